"""A model server that caches prompts and counts it: by blocks that are marked, or the longest beginning it has read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runs.adapters.models import Kind
from tests.adapters.dialects import reply
from tests.fake_model_server import Asked, Behaviour, Says

UNIT = 128
"""Tokens by which a cached beginning grows, where a provider caches by itself."""

LOOKBACK = 20
"""Blocks before a mark in which a marked beginning is looked for."""


@dataclass
class Caching:
    """What a server has read, and how much of it again. A token has four characters."""

    kind: Kind
    says: Callable[[int], Any]
    """The reply to request number n."""
    read: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    prompts: list[list[str]] = field(default_factory=list)
    """The blocks of each prompt."""
    heads: list[list[str]] = field(default_factory=list)
    """Those up to the last mark; none without a mark."""
    _known: set[str] = field(default_factory=set)

    def behave(self, asked: Asked) -> Behaviour:
        """Answer, with the counts."""
        blocks, marks = blocks_of(asked.body)
        text = "".join(blocks)
        hit = self._marked(blocks, marks) if self.kind == "anthropic" else self._begun(text)
        self.read.append(len(text) // 4)
        self.cached.append(hit // 4)
        self.prompts.append(blocks)
        self.heads.append(blocks[: marks[-1] + 1] if marks else [])
        said = self.says(len(self.read))
        if self.kind == "anthropic":
            return reply("anthropic", text=json.dumps(said))
        return Says(said, usage=(self.read[-1], 20))

    def _marked(self, blocks: list[str], marks: list[int]) -> int:
        """Return the characters up to the last known mark, and know those of this prompt."""
        beginnings = ["".join(blocks[: at + 1]) for at in range(len(blocks))]
        near = {at - back for at in marks for back in range(LOOKBACK) if at >= back}
        hits = [len(beginnings[at]) for at in near if beginnings[at] in self._known]
        self._known |= {beginnings[at] for at in marks}
        return max(hits, default=0)

    def _begun(self, text: str) -> int:
        """Return the characters that begin an earlier prompt, too."""
        known = max((_common(text, earlier) for earlier in self._known), default=0)
        self._known.add(text)
        return known // (4 * UNIT) * (4 * UNIT)

    @property
    def share(self) -> float:
        """Return the share of all tokens that was cached."""
        return sum(self.cached) / sum(self.read)


def blocks_of(body: dict[str, Any]) -> tuple[list[str], list[int]]:
    """Return the blocks of a prompt as text, and the places of those that are marked for the cache."""
    blocks: list[str] = []
    marks: list[int] = []
    form = json.dumps(body.get("response_format") or body.get("output_config") or {}, sort_keys=True)
    told = body.get("system") or []
    told = [{"type": "text", "text": told}] if isinstance(told, str) else told
    system = [{"type": "text", "text": form}, *told]  # the form of the reply comes before all
    messages = [{"role": "system", "content": system}, *body["messages"]]
    for message in messages:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            if part.get("cache_control"):
                marks.append(len(blocks))
            blocks.append(f"{message['role']}: {part['text']}\n")
    return blocks, marks


def _common(one: str, other: str) -> int:
    short, long = sorted((one, other), key=len)
    if long.startswith(short):
        return len(short)
    return next(at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b)
