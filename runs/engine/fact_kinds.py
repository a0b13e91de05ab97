"""Name a step's facts in one text column, so queries find steps without reading their facts.

The text has a blank around each name: a kind, or a kind with one of its marks. A mark is a field that sets facts of one
kind apart for a query: `run.held_back/halt=3`, `react.tool.result/outputs`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runs.engine.old_rows import as_now

MARKS: Mapping[str, tuple[str, ...]] = {
    "react.notice": ("code",),
    "react.tool.result": ("files", "outputs"),
    "react.infra.result": ("tool",),
    "run.held_back": ("halt",),
    "run.paused": ("backup",),
    "run.spent": ("estimated",),
    "run.recovered": ("stopped", "lost"),
    "conv.summary.undone": ("summary",),
    "conv.pinned": ("path",),
    "conv.unpinned": ("path",),
    "conv.range.summary": ("updates",),
}
"""By kind, the fields used by queries. A new one needs a migration that fills the column of older steps."""

VALUED = ("code", "tool", "halt", "lost", "summary", "path", "updates")
"""Marks named with their value; the others only say that there is one."""

CONTEXT_CHANGES = (
    "conv.summary.edited",
    "conv.summary.undone",
    "conv.pinned",
    "conv.unpinned",
    "conv.compaction.wanted",
)
"""Kinds of people's changes to a run's context."""


def fact_kinds(facts_json: str) -> str:
    """Return the names of the facts in a step's text, each once, in their order; empty if it has none."""
    if facts_json == "[]":
        return ""
    names: dict[str, None] = {}
    for fact in json.loads(facts_json):
        kind = fact["kind"]
        names[kind] = None
        if kind in MARKS:
            names |= dict.fromkeys(_marks(kind, as_now(fact)))
    return f" {' '.join(names)} " if names else ""


def name_of(kind: str, mark: str = "", value: Any = None) -> str:
    """Return the column's text for a kind, or for one of its marks, with the blanks around it."""
    assert not mark or mark in MARKS[kind], f"{kind} is not marked by {mark}"
    return f" {_marked(kind, mark, value) if mark else kind} "


def _marks(kind: str, fact: Mapping[str, Any]) -> Iterator[str]:
    for mark in MARKS[kind]:
        value = fact.get(mark)
        if value or (mark == "backup" and value is not None):
            yield _marked(kind, mark, value)


def _marked(kind: str, mark: str, value: Any) -> str:
    """Return the name of a mark; its value loses its blanks, since blanks part the names."""
    return f"{kind}/{mark}={''.join(str(value).split())}" if mark in VALUED else f"{kind}/{mark}"


def has_kind(names: str, kinds: Iterable[str]) -> bool:
    """Return True if a step's column names one of the kinds."""
    return any(name_of(kind) in names for kind in kinds)
