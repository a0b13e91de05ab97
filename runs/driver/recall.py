"""The infra tools: what a run may read again of its own record, and of its owner's earlier runs.

Nothing in the world is called, so an answer never says that something `ran`. Source: spec/context.md, "Infra tools".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q

from runs import store
from runs.adapters.folder import RunFolder
from runs.adapters.tool import ToolError
from runs.engine.effects import Failed, ToolCall, ToolReturned
from runs.engine.machine import Block
from runs.machines import CATALOGUE
from runs.models import Run, Step

TOP_K = 5
"""Blocks that a search gives where nothing is said."""

EARLIER_RUNS = 50
"""Runs of the same person that a search looks into, newest first."""

CANDIDATES = 300
"""Rows of the runs that a search weighs, newest first."""

SHOWN = 600
"""Characters of a block that a search shows; `react.read` has the whole."""


def recall(run: Run, call: ToolCall) -> ToolReturned | Failed:
    """What an infra tool answers."""
    match call.tool, call.args:
        case "react.read", {"paths": [*paths]}:
            found = {str(path): _content(run, str(path)) for path in paths}
            if unknown := [path for path, text in found.items() if text is None]:
                return _failed(f"There is nothing at {', '.join(unknown)}.")
            return ToolReturned(value=found, ran=False)
        case "react.memory_hide", {"path": str(path), "replacement": str(text)}:
            if not path.startswith("st:") or _content(run, path) is None:
                return _failed(f"There is no block at {path}.")
            return ToolReturned(value={"path": path, "replacement": text}, ran=False)
        case "react.memory_read", {"query": str(query), **more}:
            top_k = more.get("top_k")
            most = top_k if isinstance(top_k, int) and not isinstance(top_k, bool) and top_k > 0 else TOP_K
            return ToolReturned(value=_search(run, query, most), ran=False)
    return _failed(f"{call.tool} does not take these arguments.")


def _failed(why: str) -> Failed:
    return Failed(blame="recoverable", message=why, ran=False)


def _content(run: Run, path: str) -> str | None:
    """What stands at a path of the run; None where nothing does."""
    kind, _, name = path.partition(":")
    match kind:
        case "st" if name.isascii() and name.isdigit() and len(name) < 10:
            step = Step.objects.filter(run=run, seq=int(name), live=True).first()
            return "\n\n".join(block.text for block in _blocks(run, step)) or None if step else None
        case "fi":
            try:
                return RunFolder(store.folder_of(run.pk)).read(name).decode("utf-8", "replace")
            except ToolError:
                return None
    return None


def _blocks(run: Run, step: Step) -> Iterator[Block]:
    """The blocks of a row, but for those of the infra tools: a search must not find searches."""
    machine = CATALOGUE[run.machine]
    for fact in machine.facts.validate_json(step.facts_json):
        block = machine.block(fact)
        if block is not None and not str(getattr(fact, "tool", "")).startswith("react."):
            yield block


def _search(run: Run, query: str, most: int) -> list[dict[str, Any]]:
    """The blocks that hold most of the query's words, the newest of equals first."""
    words = list(dict.fromkeys(query.casefold().split()))[:20]
    if not words:
        return []
    holds = reduce(or_, (Q(facts_json__icontains=word) for word in words))
    mine = Q(run=run)
    if run.owner_id is not None:
        earlier = Run.objects.filter(owner_id=run.owner_id, pk__lt=run.pk, machine__in=CATALOGUE)
        mine |= Q(run__in=list(earlier.order_by("-pk").values_list("pk", flat=True)[:EARLIER_RUNS]))
    rows = Step.objects.filter(mine, holds, live=True).select_related("run").order_by("-run_id", "-seq")
    found = []
    for step in rows[:CANDIDATES]:
        text = "\n\n".join(block.text for block in _blocks(step.run, step))
        held = sum(word in text.casefold() for word in words)
        if held:
            found.append((held, step, text))
    found.sort(key=lambda one: -one[0])
    return [_hit(run, step, text) for _, step, text in found[:most]]


def _hit(run: Run, step: Step, text: str) -> dict[str, Any]:
    """Where a block is, and how it begins. Only blocks of this run have a path that can be read."""
    place = {"path": f"st:{step.seq}"} if step.run_id == run.pk else {"run": step.run_id, "step": step.seq}
    return {**place, "text": text if len(text) <= SHOWN else f"{text[:SHOWN]}…"}
