"""I9: copies of runs, and states that can be gone back to.

Whoever copies a run writes down beforehand what it was. At the end it must still be that; and each copy must be whole,
or not there at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.conf import settings

from runs.adapters.folder import RunFolder
from runs.adapters.tool import ToolError
from runs.engine.facts import Forked
from runs.engine.machine import State
from runs.machines import CATALOGUE
from runs.models import Artifact, Decision, Interrupt, Run, Step
from runs.store.creating import folder_of
from runs.store.loading import state_at, terms_of
from tests.chaos.findings import Violation

Row = tuple[Any, ...]


def _witness() -> Path:
    return Path(settings.DATA_DIR) / "witness.jsonl"


# --- the run that is copied from ------------------------------------------------------------------------------------


def write_down(run: Run) -> None:
    """What the run is before it is copied."""
    said = {"run": run.pk, "head": run.head, "hash": run.head_hash}
    if run.finished:
        said["all"] = _all_of(run.pk)
    line = os.open(_witness(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(line, (json.dumps(said) + "\n").encode())
    finally:
        os.close(line)


def _all_of(run_id: int) -> str:
    """One hash over everything of a run that nobody may change once it has ended."""
    parts = (
        Run.objects.filter(pk=run_id).values_list("status", "exit_reason", "answer", "head", "head_hash"),
        Step.objects.filter(run=run_id).order_by("seq").values_list(),
        Interrupt.objects.filter(run=run_id).order_by("seq").values_list(),
        Decision.objects.filter(interrupt__run=run_id).order_by("pk").values_list(),
        Artifact.objects.filter(run=run_id).order_by("pk").values_list(),
    )
    return hashlib.sha256(repr([list(part) for part in parts]).encode()).hexdigest()


def written_down() -> list[dict[str, Any]]:
    """All that was, in order."""
    if not _witness().exists():
        return []
    return [json.loads(line) for line in _witness().read_text().splitlines()]


def unchanged(before: dict[str, Any]) -> Iterator[Violation]:
    """A run that was copied from has the rows that it had; one that had ended is the same in everything."""
    row = Step.objects.filter(run=before["run"], seq=before["head"]).values_list("hash", flat=True).first()
    if row != before["hash"]:
        yield Violation(
            "I9", before["run"], f"a copy was made of it, and row {before['head']} is another one"
        )
    elif "all" in before and _all_of(before["run"]) != before["all"]:
        yield Violation("I9", before["run"], "it had ended, a copy was made of it, and something has changed")


# --- the copy -----------------------------------------------------------------------------------------------------


def whole(copy: Run) -> Iterator[Violation]:
    """A copy has all of its source up to the row, as it stands there still, and nothing of it is open."""
    source, upto = copy.copied_from, copy.copied_upto
    if source is None or upto is None:
        yield Violation("I9", copy.pk, f"it is a {copy.origin}, and of no run")
        return
    for what, mine, theirs in _pairs(copy, source, upto):
        if mine != theirs:
            yield Violation("I9", copy.pk, f"its {what} up to row {upto} are not those of run {source.pk}")
    if copy.interrupts.filter(seq__lte=upto, status=Interrupt.Status.PENDING).exists():
        yield Violation("I9", copy.pk, "a question that was copied is open")
    if copy.origin != "replay":
        row = (
            copy.steps.filter(seq=upto + 1, kind=Step.Kind.NOTE).values_list("facts_json", flat=True).first()
        )
        if row is None or '"run.forked"' not in row:
            yield Violation("I9", copy.pk, f"row {upto + 1} does not say that it was forked")
    elif "The replay differs." in str(
        copy.steps.order_by("-seq").values_list("facts_json", flat=True).first()
    ):
        yield Violation(
            "I9", copy.pk, f"the replay of run {source.pk} came out otherwise: {_last(copy)[:400]}"
        )
    yield from _files(copy, source, upto)


def _last(run: Run) -> str:
    return str(run.steps.order_by("-seq").values_list("facts_json", flat=True).first())


def _pairs(copy: Run, source: Run, upto: int) -> Iterator[tuple[str, list[Row], list[Row]]]:
    yield "rows", _rows(copy, upto), _rows(source, upto)
    exchanges = ("seq", "kind", "name", "attempt", "request_json", "key")
    for what, found, columns in (
        ("exchanges", "exchanges", exchanges),
        ("questions", "interrupts", ("seq", "kind", "args_json", "fingerprint")),
        ("artifacts", "artifacts", ("name", "version", "kind", "sha256", "seq")),
    ):
        mine, theirs = (
            list(getattr(run, found).filter(seq__lte=upto).order_by("seq", "pk").values_list(*columns))
            for run in (copy, source)
        )
        yield what, sorted(mine), sorted(theirs)


def _rows(run: Run, upto: int) -> list[Row]:
    columns = ("seq", "kind", "node", "edge", "to", "facts_json", "state_json", "at", "ms")
    found = run.steps.filter(seq__lte=upto).order_by("seq").values_list(*columns)
    return [(*row[:5], _unnamed(row[1], row[5]), *row[6:]) for row in found]


def _unnamed(kind: str, facts: str) -> str:
    """A decision's facts without the name of its question, of which a copy has its own."""
    if kind != Step.Kind.DECISION:
        return facts
    return json.dumps(
        [{name: fact[name] for name in fact if name != "interrupt"} for fact in json.loads(facts)]
    )


def _files(copy: Run, source: Run, upto: int) -> Iterator[Violation]:
    mine, theirs = RunFolder(folder_of(copy.pk)), RunFolder(folder_of(source.pk))
    for digest in copy.artifacts.filter(seq__lte=upto, kind="file").values_list("sha256", flat=True):
        if _has(theirs, digest) and not _has(mine, digest):
            yield Violation("I9", copy.pk, f"the bytes {digest[:12]} of run {source.pk} are not copied")


def _has(folder: RunFolder, digest: str) -> bool:
    try:
        return bool(folder.kept(digest))
    except ToolError:
        return False


def acyclic(run: Run) -> Iterator[Violation]:
    """Whatever a run came from was there before it, and the root of a family has none itself."""
    for name in ("copied_from_id", "parent_id", "root_id"):
        earlier = getattr(run, name)
        if earlier is not None and earlier >= run.pk:
            yield Violation("I9", run.pk, f"its {name} is {earlier}")
    if run.root is not None and run.root.root_id is not None:
        yield Violation("I9", run.pk, f"its root {run.root_id} came from run {run.root.root_id} itself")


# --- states -------------------------------------------------------------------------------------------------------


def restores(run: Run, dice: random.Random) -> Iterator[Violation]:
    """The state at some row that can be gone back to is what the facts of the rows up to it come to."""
    machine = CATALOGUE[run.machine]
    targets = list(
        run.steps.filter(kind=Step.Kind.TRANSITION, live=True, seq__gt=run.copied_upto or 0).values_list(
            "seq", flat=True
        )
    )
    if not targets:
        return
    at = dice.choice(targets)
    terms = terms_of(run, {})
    state: State = machine.open(terms)
    live = run.steps.filter(live=True, seq__lte=at).order_by("seq").values_list("facts_json", flat=True)
    for facts in map(machine.facts.validate_json, live):
        state = machine.fold(state, facts)
        if any(isinstance(fact, Forked) for fact in facts):
            state = state.model_copy(update={"terms": terms})
    if state_at(run, machine, terms, at) != state:
        yield Violation("I9", run.pk, f"the state at row {at} is not what its rows come to")


def restorable(runs: Iterable[Run]) -> list[Run]:
    """Those whose rows were all made by one set of terms: of a fork the verification does the rest."""
    return [run for run in runs if not run.origin]
