"""Take off a model's reasoning before its reply is read, in whatever form it comes.

Tags in several spellings, a closing tag alone (all before it is reasoning), an opening one that is never closed (all
after it is), channels. A tag inside a readable object is part of that object.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from runs.engine.effects import ModelReplied
from runs.engine.objects import SEAM, Fault, begins_object, closing, read_object
from runs.engine.values import MAX_TEXT


class Parted(NamedTuple):
    """A text without its reasoning, and the reasoning."""

    spoken: str
    thought: str


def heard(replied: ModelReplied, *, prose: bool) -> ModelReplied:
    """Return the reply without its reasoning. A text cut for its length is left for the reader."""
    if len(replied.text) > MAX_TEXT and not prose:
        return replied
    spoken, thought = parted(replied.text, seam="" if prose else SEAM)
    return replied.model_copy(update={"text": spoken, "reasoning": joined(replied.reasoning, thought)})


def joined(*thoughts: str) -> str:
    """Return several pieces of reasoning as one text."""
    return "\n".join(stripped for thought in thoughts if (stripped := thought.strip()))


def parted(text: str, seam: str = "") -> Parted:
    """Return `text` in its two parts; `seam` marks the places of removed reasoning."""
    if bare := _BARE.match(text):
        return Parted(text[bare.end() :].strip(), joined(bare[0]))
    if _TOKEN.search(text) is None:
        return Parted(text, "")
    return _Listener(text).parted(seam)


_BARE = re.compile(r"\s*(?:assistant)?(?:analysis|commentary)(?![:.\s]).*assistantfinal", re.DOTALL)
"""Channels whose markers a server has left out."""

_NAME = (
    r"think(?:ing)?|thoughts?|reasoning(?:_content)?|reflection|scratch_?pad|analysis|chain_of_thought"
    r"|(?:inner|internal)_(?:monologue|thoughts?)"
)
_TOKEN = re.compile(
    rf"`</?(?:{_NAME})>`(?P<named>)"  # only mentioned
    rf"|[<\[◁⟨](?P<bar>[|｜])?\s*(?P<mark>/|(?:begin|start|end)(?:_of)?_)?\s*(?:[a-z]\w{{0,20}}:)?(?P<name>{_NAME})"
    r"(?P<tail>_(?:begin|start|end))?(?(bar)[|｜])(?:\s[^<>\[\]]{0,300})?[>\]▷⟩]"
    r"|<\|channel\|?>\s*(?P<channel>[a-z]*)"
    r"(?:[^<{\n]{0,200}(?:<\|constrain\|>[^<{\n]{0,40})?<\|message\|>)?"
    r"|<\|(?P<end>end|return|call)\|>|(?P<left><channel\|>)|<\|start\|>(?:assistant)?",
    re.IGNORECASE,
)

ROOM = MAX_TEXT
"""Characters of braces without objects to look through; tags in later text count as tags."""

TRY = 100
"""Characters that each failed brace adds to the count beside its own length."""


class _Listener:
    """One pass through a text that sorts its pieces."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[tuple[str, bool]] = []
        """Each piece, and whether it is reasoning."""
        self.before = 0
        """How many pieces a lone closing tag turned into reasoning."""
        self.inside: list[str] = []
        """Opened and not yet closed."""
        self.final = False
        """True if the channel at hand is that of the reply."""
        self.room = ROOM

    def parted(self, seam: str) -> Parted:
        start = at = 0
        token = _TOKEN.search(self.text)
        while token:
            brace = -1 if self.inside else self.text.find("{", at, token.start())
            if brace >= 0:
                at = self._past(brace)
                if at > token.start():
                    token = _TOKEN.search(self.text, at)
                continue
            if token["named"] is None:
                piece = self.text[start : token.start()]
                self.pieces.append((piece, bool(self.inside)))
                self._take(token, piece)
                start = token.end()
            at = token.end()
            token = _TOKEN.search(self.text, at)
        self.pieces.append((self.text[start:], bool(self.inside)))
        thoughts = [piece for piece, _ in self.pieces[: self.before]]
        spoken: list[str] = []
        for piece, thought in self.pieces[self.before :]:
            if thought or piece.strip():
                (thoughts if thought else spoken).append(piece)
        return Parted(seam.join(spoken).strip(), joined(*thoughts))

    def _past(self, brace: int) -> int:
        """Return the end of the object that begins there; the place behind the brace if none can be read."""
        if self.room <= 0:
            return brace + 1
        end = closing(self.text, brace)
        try:
            if end is not None and begins_object(self.text, brace):
                read_object(self.text[brace:end])
                return end
        except Fault:
            pass
        self.room -= (end or len(self.text)) - brace + TRY
        return brace + 1

    def _take(self, token: re.Match[str], piece: str) -> None:
        if token["name"]:
            name = _FAMILY.get(token["name"].lower()[:5], token["name"].lower())
            closes = token["mark"] == "/" or "end" in f"{token['mark']}{token['tail']}".lower()
            self._close(name) if closes else self._open(name, piece)
        elif token["channel"] is not None:
            self.final = token["channel"].lower() == "final"
            if self.final:
                self.inside.clear()
            elif "channel" not in self.inside[-1:]:
                self.inside.append("channel")
        elif token["end"] or token["left"]:
            if "channel" in self.inside or (not self.final and (token["end"] or "").lower() in ("", "end")):
                self._close("channel")
            self.final = False

    def _open(self, name: str, piece: str) -> None:
        """Open a tag; one opened twice with nothing between counts once."""
        if self.inside[-1:] != [name] or piece.strip():
            self.inside.append(name)

    def _close(self, name: str) -> None:
        """Close it, and everything opened in it; with nothing open all text before is reasoning."""
        if name in self.inside:
            while self.inside.pop() != name:
                pass
        elif not self.inside:
            self.before = len(self.pieces)


_FAMILY = {"think": "think", "thoug": "think"}
