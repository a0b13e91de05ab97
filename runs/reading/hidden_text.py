"""Find hidden characters in a text, and write them out: invisible ones, look-alikes, long gaps, stacked marks.

A person must approve exactly what runs. So for a call with such characters, the card warns and repeats the text with
signs and escapes; lines show only that form.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import regex

from runs.reading.characters import CONTROLS, DIRECTIONS, hides, sign_of
from runs.reading.gaps import Gap, gaps, is_odd
from runs.reading.lookalikes import Alike, alikes
from runs.reading.stacks import Stack, stacks

_BREAK = re.compile("\r\n?|[\u2028\u2029]")
_SIGNS = {char: sign_of(char) for char in CONTROLS | DIRECTIONS}
_JOINS = "\u200c\u200d\ufe0e\ufe0f"
"""These have a purpose in emoji, and two of them in the letters of some scripts."""

_JOINED = re.compile(f"[{_JOINS}]")


def visible(text: str) -> str:
    """Return `text` with a sign for each invisible character; newlines and tabs stay, half pairs go."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _BREAK.sub("\n", text)
    chars = set(text)  # long texts hold millions of them: no step for each
    for char in _SIGNS.keys() & chars:
        text = text.replace(char, _SIGNS[char])
    if text.isascii():
        return text
    if not chars.isdisjoint(_JOINS):
        whole = text
        text = _JOINED.sub(
            lambda found: found[0] if _works(whole, found.start()) else sign_of(found[0]), text
        )
    for char in chars.difference(_SIGNS, _JOINS):
        if hides(char):
            text = text.replace(char, sign_of(char))
    return text


def _works(text: str, place: int) -> bool:
    """Return True if a joiner or a selector belongs to an emoji, or to a script that uses joiners."""
    if in_emoji(text, place):
        return True
    before = text[place - 1 : place]
    return (
        text[place] in "\u200c\u200d" and bool(before) and unicodedata.category(before) in ("Lo", "Mn", "Mc")
    )


def all_visible(value: Any) -> Any:
    """Return a JSON value with all its texts visible."""
    match value:
        case str():
            return visible(value)
        case dict():
            return {visible(name): all_visible(item) for name, item in value.items()}
        case list():
            return [all_visible(item) for item in value]
    return value


SHOWN = 8
"""Characters named in a warning."""

_PLAIN = regex.compile(r"[\n\t\x20-\x7e]*+")
_JOINER = "\u200d"
_WIDE_BLANK = "\u3000"
_EASTERN = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\u3000-\u303f\uff00-\uffef]")
_PICTURE_SIGNS = "\u203c\u2049\u2139"
"""Letters and marks that are pictures too."""

_PICTURES = range(0x1F000, 0x1FB00)
"""Skins, and pictures that are newer than this Python's Unicode."""


@dataclass(frozen=True)
class Hidden:
    """The hidden characters of a text, each with its place."""

    text: str
    unseen: tuple[tuple[int, str], ...] = ()
    alike: tuple[Alike, ...] = ()
    gaps: tuple[Gap, ...] = ()
    stacks: tuple[Stack, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.unseen or self.alike or self.gaps or self.stacks)

    @property
    def warning(self) -> str:
        """Return the warning beside the text; empty if nothing hides."""
        unseen = [_named(char, at) for at, char in self.unseen[:SHOWN]]
        alike = [f"{_named(char, at)} (looks like {like})" for at, char, like in self.alike[:SHOWN]]
        gaps = [f"{gap.words} at {gap.start + 1}" for gap in self.gaps[:SHOWN]]
        stacks = [stack.words for stack in self.stacks[:SHOWN]]
        said = (
            _listed("characters that can’t be seen", unseen, len(self.unseen)),
            _listed("letters that look like others", alike, len(self.alike)),
            _listed("long gaps", gaps, len(self.gaps)),
            _listed("marks stacked on one letter", stacks, len(self.stacks)),
        )
        return " ".join(filter(None, said))

    @cached_property
    def escaped(self) -> str:
        """Return the text with escapes and signs: `report\\u202etxt.sh`, `ls ⟨␣ × 10,000⟩`."""
        signs = [(at, at + 1, _escape(char)) for at, char in self.unseen]
        signs += [(at, at + 1, _escape(char)) for at, char, _ in self.alike]
        signs += [(gap.start, gap.end, gap.sign) for gap in self.gaps]
        signs += [(stack.start, stack.end, stack.sign) for stack in self.stacks]
        parts, upto = [], 0
        for start, end, sign in sorted(signs):
            parts += [self.text[upto:start], sign]
            upto = end
        return "".join([*parts, self.text[upto:]])


def hidden_in(text: str) -> Hidden:
    """Return everything that hides in `text`."""
    found = tuple(gaps(text))
    if _PLAIN.fullmatch(text):
        return Hidden(text, gaps=found)
    within = {at for gap in found for at in range(gap.start, gap.end)}
    unseen = tuple(one for one in _unseen(text) if one[0] not in within)
    return Hidden(text, unseen, tuple(alikes(text)), found, tuple(stacks(text)))


def _unseen(text: str) -> Iterator[tuple[int, str]]:
    """Yield each character of `text` that is invisible, or an unusual blank, with its place."""
    odd = {char for char in set(text) if is_odd(char)}
    for place, char in enumerate(text) if odd else ():
        if char in odd and not _belongs(text, place):
            yield place, char


def _belongs(text: str, place: int) -> bool:
    """Return True if it has a purpose there: in an emoji, at the end of a line, between letters of the same width."""
    if text[place] == _WIDE_BLANK:
        return _EASTERN.search(text[max(0, place - 1) : place] + text[place + 1 : place + 2]) is not None
    return in_emoji(text, place) or text[place : place + 2] == "\r\n"


def holds_unseen(value: Any) -> bool:
    """Return True if something hides anywhere in a JSON value, names included."""
    match value:
        case str():
            return bool(hidden_in(value))
        case dict():
            return any(holds_unseen(name) or holds_unseen(item) for name, item in value.items())
        case list() | tuple():
            return any(map(holds_unseen, value))
    return False


def warning(text: str) -> str:
    """Return the warning beside a text with hidden characters; empty without any."""
    return hidden_in(text).warning


def escaped(text: str) -> str:
    """Return `text` with escapes and signs for its hidden characters."""
    return hidden_in(text).escaped


def _listed(what: str, shown: list[str], count: int) -> str:
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return f"Holds {what}: {', '.join(shown)}{more}." if shown else ""


def _named(char: str, place: int) -> str:
    return f"U+{ord(char):04X} at {place + 1}"


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def in_emoji(text: str, place: int) -> bool:
    """Return True if a joiner or a selector belongs to an emoji, as in a family or a red heart."""
    char, before, after = text[place], text[place - 1 : place], text[place + 1 : place + 2]
    if char in "\ufe0e\ufe0f":
        return _draws(before) or (before in "0123456789#*" and before != "" and after == "\u20e3")
    if char != _JOINER:
        return False
    if before == "\ufe0f":
        before = text[place - 2 : place - 1]
    return _draws(before) and _draws(after)


def _draws(char: str) -> bool:
    """Return True if a character is a picture (or the skin of one)."""
    if not char:
        return False
    return char in _PICTURE_SIGNS or ord(char) in _PICTURES or unicodedata.category(char) in ("So", "Sm")
