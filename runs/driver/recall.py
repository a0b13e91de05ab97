"""The infra tools: a run reads its own record again, and its owner's other runs.

A path names a place of the run itself (`st:4`, `su:9`, `fi:a.txt`); with `run:7/` before it, one of run 7 of the same
owner. The owner is looked up at each reading; another owner's run answers like a missing one. No call has side effects,
so no answer says that something `ran`. See docs/context.md, "Tools for the run's own record".
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from runs.engine.effects import Failed, ToolCall, ToolReturned
from runs.models import Run
from runs.store import artifacts, loading, memory

TOP_K = 5
"""Default number of blocks in a search result."""

MOST_HITS = 50
"""Most blocks in a search result."""

SHOWN = 600
"""Characters of a block in a search result; `react.read` has the whole."""

MOST_READ = 65_536
"""Most characters of one `react.read` in all."""

NAMED = 20
"""Most unknown paths named in an error."""

LONGEST_PATH = 250
"""Characters of a path repeated in an error."""


def recall(run: Run, call: ToolCall) -> ToolReturned | Failed:
    """Return the answer of an infra tool."""
    match call.tool, call.args:
        case "react.read", {"paths": [*paths]}:
            return _read(run, list(dict.fromkeys(_own(run, str(path)) for path in paths)))
        case "react.memory_hide", {"path": str(path), "replacement": str(text)}:
            path = _own(run, path)
            if not path.startswith(("st:", "su:")):
                return _failed(f"There is no block at {_short(path)}.")
            if _content(run, path) is None:
                return _failed(_beside(run, path) or f"There is no block at {_short(path)}.")
            return ToolReturned(value={"path": path, "replacement": text}, ran=False)
        case "react.memory_read", {"query": str(query), **more}:
            hits = memory.search(run, query, _top_k(more.get("top_k")))
            return ToolReturned(value=[_shown(run, hit, query) for hit in hits], ran=False)
    return _failed(f"{call.tool} does not take these arguments.")


def _top_k(given: Any) -> int:
    """Return the wanted number of blocks."""
    counts = isinstance(given, int) and not isinstance(given, bool) and given > 0
    return min(int(given), MOST_HITS) if counts else TOP_K


def _failed(why: str) -> Failed:
    return Failed(blame="recoverable", message=why, ran=False)


def _read(run: Run, paths: list[str]) -> ToolReturned | Failed:
    """Return the texts at the paths, or the places beside one without a block; an error that names unknown ones."""
    found = {path: _content(run, path) for path in paths}
    texts = {path: text for path, text in found.items() if text is not None}
    beside = {path: said for path in paths if path not in texts and (said := _beside(run, path))}
    if unknown := [path for path in paths if path not in texts and path not in beside]:
        return _failed(" ".join([f"There is nothing at {_named(unknown)}.", *list(beside.values())[:NAMED]]))
    if beside and not texts:
        return _failed(" ".join(list(beside.values())[:NAMED]))
    return ToolReturned(value=_bounded({path: (texts | beside)[path] for path in paths}), ran=False)


def _named(paths: list[str]) -> str:
    """Return the paths in a sentence."""
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(map(_short, paths[:NAMED])) + more


def _short(path: str) -> str:
    return path if len(path) <= LONGEST_PATH else f"{path[:LONGEST_PATH]}…"


def _bounded(texts: dict[str, str]) -> dict[str, str]:
    """Return the texts, cut with a note if all of them together are too long."""
    left = MOST_READ
    bounded = {}
    for path, text in texts.items():
        bounded[path] = text if len(text) <= left else f"{text[:left]}… [{len(text) - left} characters more]"
        left -= min(left, len(text))
    return bounded


def _own(run: Run, path: str) -> str:
    """Return the path; one of the run itself in its short form, so reading also unhides it."""
    return path.removeprefix(f"run:{run.pk}/")


def _content(run: Run, path: str) -> str | None:
    """Return the text at a path of the run, or of its owner's other runs; None if there is none."""
    whose, inner = _place(run, path)
    try:
        return _in_run(whose, inner) if whose else None
    except ValidationError:  # a step of another version of its machine
        if whose is run:
            raise
        return None


def _place(run: Run, path: str) -> tuple[Run | None, str]:
    """Return the path's run, None if it may not be read, and the path within that run."""
    if not path.startswith("run:"):
        return run, path
    name, _, inner = path.removeprefix("run:").partition("/")
    number = _number(name)
    return (memory.run_of_same_owner(run, number) if number is not None else None), inner


def _beside(run: Run, path: str) -> str:
    """Return, for a step without a block, the places of the nearest ones; empty for any other path."""
    whose, inner = _place(run, path)
    kind, _, name = inner.partition(":")
    number = _number(name)
    if whose is None or kind != "st" or number is None:
        return ""
    found = memory.places_beside(whose, number)
    if found is None:
        return ""
    nearest = " and ".join(f"{path.removesuffix(inner)}{place} ({what})" for place, what in found.items())
    return f"{path} has no block of its own" + (f"; the nearest: {nearest}." if nearest else ".")


def _in_run(run: Run, path: str) -> str | None:
    """Return the text at a path within a run."""
    kind, _, name = path.partition(":")
    number = _number(name)
    match kind:
        case "st" if number is not None:
            return memory.text_of(run, number) or None
        case "su" if number is not None:
            return loading.summary_text(run, number)
        case "fi":
            return artifacts.artifact_text(run, name)
    return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _shown(run: Run, hit: memory.Hit, query: str) -> dict[str, Any]:
    """Return a block's path, as `react.read` takes it, and the text around the words."""
    path = _own(run, f"run:{hit.run}/st:{hit.seq}")
    return {"path": path, "text": memory.extract(hit.text, query, SHOWN)}
