"""Two runs side by side: where they part, what differs in each step, and what that came to.

A step is what a run's page shows as such: a row that concludes something, with the asks that it concludes. Only the
live way of a run is compared. Nothing here writes, and long runs are read in a form that keeps a few numbers a step.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from threading import Lock
from typing import Any, Literal, NamedTuple

from runs.engine.values import canonical
from runs.machines import CATALOGUE
from runs.models import Exchange, Run, Step
from runs.reading import words
from runs.reading.aligning import Mark, Pair, align
from runs.reading.drawing import order_of
from runs.reading.lines import Line, call_text, line_of
from runs.reading.panels import visits_of
from runs.reading.rows import CONCLUDING

Data = dict[str, Any]
Kind = Literal["same", "differs", "apart"]

LIKE_A_CALL = ("tool_call", "child_run")
UNSAID = {"run.spent", "run.asked"}
"""Facts that are no difference by themselves: what a step cost is told beside it."""
BY_CHANCE = {
    "react.decision": ("cached",),
    "ruled.step.committed": ("number",),
    "planned.attempt.began": ("number",),
    "run.decided": ("interrupt",),
    "run.recovered": ("epoch", "message", "cost_usd", "tokens"),
    "run.held_back": ("halt", "since", "until", "by", "reason"),
}
"""Parts of facts that differ between any two runs, or count what stood before."""
OF_THE_COPY = {"run.forked", "run.answers.kept"}
"""What a row of a copy says of how it began: told with what was launched differently, and no step."""
LABELS = {"react.decision": "", "react.notice": "note"}
"""What a fact's values are called where the last part of its kind would not do."""
_KEPT = 6
"""Runs whose outlines are kept."""


class Outline(NamedTuple):
    """What is kept of a step to find the one beside it."""

    rows: tuple[int, ...]
    """Its asks, and the row that concludes them."""
    mark: Mark
    cost_usd: float
    tokens: int
    ms: float
    """How long the world took; a person's time is not counted."""


@dataclass(frozen=True)
class Place:
    """A stretch of steps that are the same, two steps that differ, or steps that only one run has there."""

    kind: Kind
    left: tuple[Outline, ...]
    right: tuple[Outline, ...]


@dataclass(frozen=True)
class Total:
    """A number of both runs. `name` says what, and decides how it is written."""

    name: str
    left: float
    right: float

    @property
    def difference(self) -> float:
        """How much more the right run has."""
        return self.right - self.left


@dataclass(frozen=True)
class Difference:
    """A value that differs; MISSING on the side that has none."""

    name: str
    left: Any
    right: Any


class _Missing:
    """Stands where a run has no such value."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


@dataclass(frozen=True)
class StepText:
    """A step in words, and what of it is compared."""

    rows: tuple[int, ...]
    asked: Line | None
    said: Line
    content: Data
    call: str
    """The call that was made, or wanted, as code."""

    @property
    def seq(self) -> int:
        """The row that it ends with."""
        return self.rows[-1]


@dataclass(frozen=True)
class Comparison:
    """Two runs, and how their steps stand beside each other; no places where their machines differ."""

    left: Run
    right: Run
    places: tuple[Place, ...]
    totals: tuple[Total, ...]
    terms: tuple[Difference, ...]
    """What was different at launch."""

    @property
    def same_machine(self) -> bool:
        """Whether their steps can be compared at all."""
        return self.left.machine == self.right.machine

    @property
    def apart(self) -> list[Place]:
        """The places that differ."""
        return [place for place in self.places if place.kind != "same"]

    @property
    def begins_alike(self) -> int:
        """How many steps are the same before the first that is not."""
        return len(self.places[0].left) if self.places and self.places[0].kind == "same" else 0

    @property
    def same_steps(self) -> int:
        """How many steps are the same."""
        return sum(len(place.left) for place in self.places if place.kind == "same")

    @property
    def same_answer(self) -> bool:
        """Whether both say the same, or neither says anything."""
        return self.left.answer == self.right.answer


def compare(left: Run, right: Run) -> Comparison:
    """Lay two runs side by side."""
    places: tuple[Place, ...] = ()
    if left.machine == right.machine:
        ours, theirs = outline_of(left), outline_of(right)
        pairs = align([step.mark for step in ours], [step.mark for step in theirs])
        places = tuple(_places(ours, theirs, pairs))
    return Comparison(left, right, places, totals_of(left, right), tuple(_terms(left, right)))


def _places(ours: tuple[Outline, ...], theirs: tuple[Outline, ...], pairs: list[Pair]) -> Iterator[Place]:
    kind: Kind | None = None
    lefts: list[Outline] = []
    rights: list[Outline] = []
    for i, j in pairs:
        one, other = None if i is None else ours[i], None if j is None else theirs[j]
        if one and other:
            now: Kind = "same" if one.mark.same == other.mark.same else "differs"
        else:
            now = "apart"
        if kind and (now != kind or kind == "differs"):
            yield Place(kind, tuple(lefts), tuple(rights))
            lefts, rights = [], []
        kind = now
        lefts += [one] if one else []
        rights += [other] if other else []
    if kind:
        yield Place(kind, tuple(lefts), tuple(rights))


# --- steps --------------------------------------------------------------------------------------------------------

_outlines: OrderedDict[tuple[int, datetime, int], tuple[Outline, ...]] = OrderedDict()
_lock = Lock()


def outline_of(run: Run) -> tuple[Outline, ...]:
    """The steps of a run's live way up to its head. Rows never change, so a head has one outline."""
    key = (run.pk, run.created_at, run.head)
    with _lock:
        if key in _outlines:
            _outlines.move_to_end(key)
            return _outlines[key]
    took = _times_of(run)
    found = tuple(_outline(step, took) for step in _steps(run) if not _is_plumbing(step))
    with _lock:
        _outlines[key] = found
        while len(_outlines) > _KEPT:
            _outlines.popitem(last=False)
    return found


class _Rows(NamedTuple):
    """The rows of one step: each with its seq, kind, node, edge, next node, facts and request."""

    rows: list[tuple[int, str, str, str | None, str | None, list[Data], Data | None]]

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(row[0] for row in self.rows)

    @property
    def request(self) -> Data | None:
        """What was asked of the world last."""
        return next((row[6] for row in reversed(self.rows) if row[6] is not None), None)

    @property
    def facts(self) -> list[Data]:
        return [fact for row in self.rows for fact in row[5]]


def _steps(run: Run, seqs: Iterable[int] | None = None) -> Iterator[_Rows]:
    """The live rows, or those of `seqs`, gathered to steps."""
    steps = Step.objects.filter(run=run, live=True, seq__lte=run.head)
    asked = Exchange.objects.filter(run=run, seq__lte=run.head)
    if seqs is not None:
        wanted = list(seqs)
        steps, asked = steps.filter(seq__in=wanted), asked.filter(seq__in=wanted)
    requests = dict(asked.values_list("seq", "request_json"))
    rows = steps.order_by("seq").values_list("seq", "kind", "node", "edge", "to", "facts_json")
    asks: list[Any] = []
    for seq, kind, node, edge, to, facts_json in rows.iterator(chunk_size=1000):
        facts = json.loads(facts_json) if facts_json != "[]" else []
        request = json.loads(requests[seq]) if seq in requests else None
        row = (seq, kind, node, edge, to, facts, request)
        if kind == "ask":
            asks.append(row)
            continue
        if kind in CONCLUDING:
            yield _Rows([*asks, row])
            asks = []
        else:
            yield _Rows([row])
    if asks:
        yield _Rows(asks)


def _is_plumbing(step: _Rows) -> bool:
    """Whether a run's page shows none of its rows at the usual detail, or it only tells how a copy began."""
    if step.facts and all(fact["kind"] in OF_THE_COPY for fact in step.facts):
        return True
    return all(_line(row).level == "all" for row in step.rows)


def _line(row: Any) -> Line:
    _, kind, node, edge, _, facts, request = row
    return line_of(kind, node, edge, facts, request)


def _outline(step: _Rows, took: dict[int, float]) -> Outline:
    content = _content(step)
    _, kind, node, *_ = step.rows[-1]
    text = canonical(content).encode("utf-8", "surrogatepass")
    same = blake2b(f"{kind} {node} ".encode() + text, digest_size=8).digest()
    tool = (content.get("call") or {}).get("tool") or _wanted(step.facts)[0]
    costs = [fact for fact in step.facts if fact["kind"] == "run.spent"]
    return Outline(
        rows=step.seqs,
        mark=Mark(int.from_bytes(same, "big"), f"{kind} {node} {content['edge']} {tool}", f"{kind} {node}"),
        cost_usd=sum(fact["cost_usd"] for fact in costs),
        tokens=sum(fact["input_tokens"] + fact["output_tokens"] for fact in costs),
        ms=sum(took.get(seq, 0.0) for seq in step.seqs),
    )


def _content(step: _Rows) -> Data:
    """What of a step is compared."""
    _, _, _, edge, to, _, _ = step.rows[-1]
    content: Data = {"edge": edge, "to": to}
    request = step.request or {}
    match request.get("kind"):
        case "tool_call":
            content["call"] = {"tool": request["tool"], "args": request["args"]}
        case "child_run":
            content["call"] = {"tool": request["name"], "args": {"goal": request["goal"]}}
        case "human_call":
            content["question"] = {
                "about": request["about"],
                "title": request["title"],
                "why": request["why"],
            }
    said_above = {"react.tool.call"} if "call" in content else set()
    content["facts"] = [
        {name: value for name, value in fact.items() if name not in BY_CHANCE.get(fact["kind"], ())}
        for fact in step.facts
        if fact["kind"] not in UNSAID | said_above
    ]
    return content


def _wanted(facts: list[Data]) -> tuple[str, Data]:
    """The call that a decision among these facts wants."""
    for fact in facts:
        if fact["kind"] == "react.decision":
            call = fact.get("tool_call") or {}
            tool, args = fact.get("tool") or call.get("tool_id"), fact.get("args") or call.get("params")
            return (tool if isinstance(tool, str) else ""), (args if isinstance(args, dict) else {})
    return "", {}


def _times_of(run: Run) -> dict[int, float]:
    """How long the world took over each ask, in milliseconds; people take their time uncounted."""
    asked = Exchange.objects.filter(run=run, seq__lte=run.head, answered_at__isnull=False)
    times = asked.exclude(kind="human_call").values_list("seq", "started_at", "answered_at")
    return {seq: max(0.0, (end - start).total_seconds() * 1000) for seq, start, end in times if end}


def step_texts(run: Run, steps: Iterable[Outline]) -> dict[int, StepText]:
    """Steps in words, by the row that each ends with."""
    seqs = [seq for step in steps for seq in step.rows]
    return {step.seqs[-1]: _text(step) for step in _steps(run, seqs)} if seqs else {}


def _text(step: _Rows) -> StepText:
    content = _content(step)
    asked = next((line for row in step.rows[:-1] if (line := _line(row)).level != "all"), None)
    if request_line := [_line(row) for row in step.rows[:-1] if row[6] and row[6]["kind"] in LIKE_A_CALL]:
        asked = request_line[-1]
    call = content.get("call") or {}
    tool, args = (call["tool"], call["args"]) if call else _wanted(step.facts)
    said = _line(step.rows[-1])
    return StepText(step.seqs, asked, said, content, call_text(tool, args) if tool else "")


# --- differences --------------------------------------------------------------------------------------------------


def differences_of(left: Data, right: Data) -> list[Difference]:
    """The values that differ between what two steps (or two launches) hold, objects looked into.

    Arguments and results of two tools have nothing to do with each other: there they are one value.
    """
    whole = _tool_in(left) != _tool_in(right)
    ours, theirs = (dict(_leaves(content, whole)) for content in (left, right))
    names = [*ours, *(name for name in theirs if name not in ours)]
    found = [Difference(name, ours.get(name, MISSING), theirs.get(name, MISSING)) for name in names]
    return [one for one in found if not _is_same(one.left, one.right)]


def _is_same(one: Any, other: Any) -> bool:
    """Equal, and of the same type: 1 is neither 1.0 nor true."""
    if one is MISSING or other is MISSING:
        return one is other
    return canonical(one) == canonical(other)


def _tool_in(content: Data) -> str:
    """The tool that a step calls, or wants."""
    call = content.get("call") or {}
    return str(call.get("tool") or _wanted(content.get("facts", []))[0])


def _leaves(content: Data, whole: bool) -> Iterator[tuple[str, Any]]:  # noqa: FBT001
    for name, value in content.items():
        match name:
            case "call":
                yield "tool", value["tool"]
                yield from [("arguments", value["args"])] if whole else _inside(value["args"], "")
            case "facts":
                yield from _facts(value, whole)
            case "to":
                yield "next state", value
            case _:
                yield from _inside(value, name)


def _facts(facts: list[Data], whole: bool) -> Iterator[tuple[str, Any]]:  # noqa: FBT001
    """Each fact's values under a name that a reader knows; the second of a kind is numbered."""
    seen: dict[str, int] = {}
    for fact in facts:
        kind = fact["kind"]
        seen[kind] = seen.get(kind, 0) + 1
        number = f" {seen[kind]}" if seen[kind] > 1 else ""
        label = f"{LABELS.get(kind, words.spoken(kind.rpartition('.')[2]))}{number}".strip()
        rest = {name: value for name, value in fact.items() if name != "kind"}
        match kind:
            case "react.decision":
                yield from _decision(rest, label, whole)
            case "react.tool.result" if not number:
                yield from _result(rest, whole)
            case "react.notice":
                yield label, fact["message"]
            case _ if not rest:
                yield label, True
            case _:
                rest = {(name if name not in ("text", "message") else ""): rest[name] for name in rest}
                yield from _inside(rest, label)


def _decision(fact: Data, label: str, whole: bool) -> Iterator[tuple[str, Any]]:  # noqa: FBT001
    for name, value in fact.items():
        if whole and name in ("args", "tool_call"):
            yield "arguments", value
        elif name == "args":
            yield from _inside(value, label)
        else:
            yield from _inside(value, f"{label}.{name}" if label else name)


def _result(fact: Data, whole: bool) -> Iterator[tuple[str, Any]]:  # noqa: FBT001
    if fact.get("error") is not None:
        yield "error", fact["error"]
    elif whole:
        yield "result", fact.get("value")
    else:
        yield from _inside(fact.get("value"), "result")
    yield from _inside({name: fact[name] for name in fact if name not in ("tool", "value", "error")}, "")


def _inside(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Objects by their names; a list is one value."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _inside(item, f"{path}.{name}" if path and name else path or name)
    else:
        yield path, value


def _terms(left: Run, right: Run) -> Iterator[Difference]:
    """What the launches set differently; the model stands once, wherever it was named."""
    ours, theirs = map(_named_by, (left, right))
    yield from differences_of(ours, theirs)
    if left.script_id != right.script_id:
        yield Difference("script", *(_script(run) for run in (left, right)))
    settings = ({**run.settings, "model": None} for run in (left, right))
    yield from differences_of(*settings)
    yield from _edited(left, right)


def _named_by(run: Run) -> Data:
    named = {"machine": run.machine, "goal": run.goal}
    return {**named, "model": run.model} if run.model else named


def _edited(left: Run, right: Run) -> Iterator[Difference]:
    """What of the state was edited when one was copied from the other."""
    for copy, source in ((left, right), (right, left)):
        if copy.copied_from_id != source.pk or copy.copied_upto is None:
            continue
        noted = Step.objects.filter(run=copy, seq=copy.copied_upto + 1, kind=Step.Kind.NOTE).first()
        facts = json.loads(noted.facts_json) if noted else []
        edits: Data = next((fact.get("state", {}) for fact in facts if fact["kind"] == "run.forked"), {})
        stored = Step.objects.filter(run=source, seq__lte=copy.copied_upto, state_json__isnull=False)
        newest = stored.order_by("-seq").values_list("state_json", flat=True).first() if edits else None
        before = json.loads(newest or "{}")
        for name, value in edits.items():
            sides = (before.get(name, MISSING), value)
            yield Difference(f"state.{name}", *(sides if copy is right else sides[::-1]))


def _script(run: Run) -> Any:
    return MISSING if run.script_id is None else f"script {run.script_id[:12]}"


# --- numbers ------------------------------------------------------------------------------------------------------


def totals_of(left: Run, right: Run) -> tuple[Total, ...]:
    """What both came to, as their pages say it."""
    names = ("cost_usd", "input_tokens", "output_tokens", "model_calls", "tool_calls", "active_seconds")
    totals = [Total(name, getattr(left, name), getattr(right, name)) for name in names]
    if left.ended_at and right.ended_at:
        lengths = [(left.ended_at - left.created_at), (right.ended_at - right.created_at)]
        totals.append(Total("elapsed", *(length.total_seconds() for length in lengths)))
    totals.append(Total("rows", left.head, right.head))
    dead = [Step.objects.filter(run=run, live=False).count() for run in (left, right)]
    if any(dead):
        totals.append(Total("dead_rows", *dead))
    return tuple(totals)


def visits_beside(left: Run, right: Run) -> list[tuple[str, int, int]]:
    """How often each run left each node, in the machine's order; nodes that neither came to are left out."""
    ours, theirs = visits_of(left), visits_of(right)
    order = order_of(CATALOGUE[left.machine])
    nodes = [*order, *(node for node in {**ours, **theirs} if node not in order)]
    return [
        (node, ours.get(node, 0), theirs.get(node, 0)) for node in nodes if node in ours or node in theirs
    ]
