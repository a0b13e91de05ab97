"""The result of a test of a model's profile, as it is stored: read by the web server, without any library."""

from __future__ import annotations

from typing import Literal

from runs.engine.values import Value

MOST_WORDS = 2_000_000
"""Words of the longest prompt."""

LONGER = 1.15
"""The prompt over the context, as a multiple of the context: its words are about a token each."""

Tone = Literal["good", "warn", "bad"]


class Offered(Value):
    """One model of a server; sizes in tokens, 0 where the server does not tell."""

    model_id: str
    context_tokens: int = 0
    reply_tokens: int = 0


class Finding(Value):
    """What one part of a test showed, and what to set."""

    tone: Tone
    text: str


class Checked(Value):
    """The result of a test."""

    findings: tuple[Finding, ...] = ()
    offered: tuple[Offered, ...] = ()
    """The server's own list of its models; empty if it has none."""
    tokens: int = 0
    cost_usd: float = 0.0


def too_long_words(context_tokens: int) -> int:
    """Return about how many tokens the prompt over the context has."""
    return min(int(context_tokens * LONGER), MOST_WORDS)
