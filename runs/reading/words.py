"""The pages' words for the engine's names: short, plain, and the same everywhere."""

from __future__ import annotations

from runs.engine.presentation import EXITS
from runs.engine.presentation import Word as Word
from runs.engine.presentation import money as money
from runs.engine.presentation import plural as plural
from runs.engine.presentation import spoken as spoken
from runs.machines import CATALOGUE

STATUS: dict[str, Word] = {
    "queued": Word("Queued", "clock", "quiet"),
    "running": Word("Running", "play", "busy"),
    "waiting": Word("Waiting", "hand", "ask"),
    "delayed": Word("Delayed", "clock", "quiet"),
    "paused": Word("Paused", "pause", "quiet"),
    "halted": Word("Halted", "stop", "warn"),
    "pausing": Word("Pausing", "pause", "busy"),
    "halting": Word("Halting", "stop", "busy"),
    "cancelling": Word("Cancelling", "stop", "busy"),
    "succeeded": Word("Finished", "check", "good"),
    "stopped": Word("Stopped", "flag", "warn"),
    "failed": Word("Failed", "cross", "bad"),
    "cancelled": Word("Cancelled", "stop", "quiet"),
    "replayed": Word("Replayed", "check", "good"),
}

EFFECTS: dict[str, Word] = {
    "none": Word("no side effects", "dot", "quiet"),
    "read": Word("reads", "eye", "quiet"),
    "write": Word("writes", "pen", "warn"),
    "send": Word("sends", "send", "warn"),
    "execute": Word("executes", "bolt", "bad"),
}

RISK: dict[str, Word] = {
    "low": Word("low risk", "dot", "quiet"),
    "medium": Word("medium risk", "alert", "warn"),
    "high": Word("high risk", "alert", "bad"),
    "unknown": Word("unknown risk", "alert", "quiet"),
}

INTERRUPT: dict[str, Word] = {
    "tool_call": Word("Approval", "hand", "ask"),
    "question": Word("Question", "question", "ask"),
    "every_n_steps": Word("Checkpoint", "pause", "ask"),
    "plan": Word("Plan", "list", "ask"),
    "limit": Word("Limit", "gauge", "ask"),
    "human_approval": Word("Draft", "hand", "ask"),
    "may_have_happened": Word("May have happened", "alert", "ask"),
    "manual": Word("Go-ahead", "hand", "ask"),
}

INTERRUPT_STATUS: dict[str, Word] = {
    "pending": Word("Waiting for a decision", "hand", "ask"),
    "decided": Word("Decided", "check", "good"),
    "expired": Word("Expired", "clock", "quiet"),
    "superseded": Word("No longer needed", "back", "quiet"),
}

VERDICT_DONE: dict[str, Word] = {
    "approve": Word("Approved", "check", "good"),
    "edit": Word("Approved with changes", "pen", "good"),
    "reject": Word("Rejected", "cross", "bad"),
    "respond": Word("Answered", "question", "good"),
    "resume": Word("Resumed", "play", "good"),
    "abort": Word("Cancelled", "stop", "bad"),
    "rollback": Word("Rolled back", "back", "warn"),
    "top_up": Word("Limit raised", "gauge", "good"),
    "finish": Word("Told to finish", "flag", "warn"),
}

VERDICT_DID: dict[str, str] = {
    "approve": "approved this",
    "edit": "approved this with changes",
    "reject": "rejected this",
    "respond": "answered this",
    "resume": "resumed the run",
    "abort": "cancelled the run",
    "rollback": "rolled the run back",
    "top_up": "raised the limit",
    "finish": "told the run to finish",
}
"""What a person did with a decision, as the rest of a sentence."""

LIMIT: dict[str, str] = {"cost_usd": "Cost", "tokens": "Tokens", "active_seconds": "Time"}

TIMEOUT: dict[str, str] = {
    "deny": "denied",
    "approve": "approved",
    "abort": "denied, and the run is cancelled",
}

CHANNEL: dict[str, str] = {
    "web": "on the web",
    "admin": "in the admin",
    "api": "through the API",
    "command": "by a command",
    "deadline": "at the deadline",
    "settings": "by the run's settings",
    "kept": "as before",
    "fork": "in advance, in the fork",
}
NOBODY = ("deadline", "settings")
"""Channels without a person: the name in a person's place says as much as the channel."""


def channel(name: str, by: str) -> str:
    """Return the channel of an answer by `by`, in words; empty if the name has said it."""
    return "" if by and name in NOBODY else CHANNEL.get(name, name)


def exit_words(reason: str | None) -> str:
    """Return why a run ended, as the rest of a sentence."""
    reason = reason or ""
    every = [EXITS, *(machine.presentation.exits for machine in CATALOGUE.values())]
    return next((exits[reason] for exits in every if reason in exits), spoken(reason))


ESTIMATED = "≈ "
"""Before figures that are estimates."""

REPLAYED = "end of the replayed steps"
"""The end of a replay whose record goes on."""


def count(number: float) -> str:
    """Return a count that fits a narrow column."""
    if number >= 1_000_000:
        return f"{number / 1_000_000:.1f}M"
    return f"{number / 1000:.1f}k" if number >= 10_000 else f"{number:,.0f}"


def amount(name: str, value: float) -> str:
    """Return an amount of a limit in its unit."""
    match name:
        case "cost_usd":
            return money(value)
        case "active_seconds":
            return seconds(value)
    return count(value)


def number(value: float) -> str:
    """Return a number in full, with separated thousands."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def seconds(value: float) -> str:
    """Return a length of time, short: 0.4 s, 12 s, 3:05, 2 h 10 min, 3 d 4 h."""
    if value < 10:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def length_of(ms: float) -> str:
    """Return a duration, given milliseconds: 3 ms, 0.4 s, …"""
    return f"{ms:.0f} ms" if ms < 100 else seconds(ms / 1000)


def continuing(runs: int) -> str:
    """Return how many runs continue once the site is resumed."""
    return plural(runs, "run continues.", "runs continue.")
