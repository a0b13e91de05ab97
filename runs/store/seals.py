"""Digests of the rows beside a step: its request, the answer that it concludes, its question, its decision.

The step's hash covers them, so `verify` finds a later change of a reply, a time or a cost. Each is one word,
`NAME:SEQ:DIGEST`, in `Step.seals`; `SEQ` is the step that asked. Steps from before 0.2 have none.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

COLUMNS = {
    "request": ("kind", "name", "attempt", "request_json", "key", "fingerprint"),
    "answer": (
        *("answer_json", "nth", "input_tokens", "output_tokens", "cost_usd"),
        *("prompt_hash", "prompt_chars", "prompt_upto", "started_at", "answered_at"),
    ),
    "question": (
        *("kind", "title", "why", "tool", "args_json", "schema_json", "effects", "risk", "fingerprint"),
        *("limit", "figures_json", "host", "verdicts_json", "on_timeout", "created_at"),
    ),
    "decision": (
        *("verdict", "args_json", "message", "to_step", "allow_host", "by_name", "channel"),
        *("revision_seen", "fingerprint_seen", "at"),
    ),
}
"""The columns covered by each kind of seal; `key` of an exchange, not of the database."""


def seal(name: str, seq: int, beside: Any) -> str:
    """Return the seal of a (future) exchange, a question or a decision."""
    text = _encode(_VALUES[name](beside))
    return f"{name}:{seq}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def name_and_step(kept: str) -> tuple[str, int]:
    """Return the kind of a seal, and the step that asked."""
    name, seq, _ = kept.split(":")
    return name, int(seq)


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds")


_VALUES = {name: attrgetter(*columns) for name, columns in COLUMNS.items()}
_encode = json.JSONEncoder(ensure_ascii=False, default=_moment).encode
