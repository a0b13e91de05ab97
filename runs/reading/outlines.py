"""The steps of a run in the form for comparison with another run's.

A step here is a step of the run's page: a concluding row, with its asks. Only the live path counts. Of long runs only a
few numbers a step are kept.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from threading import Lock
from typing import Any, NamedTuple

from django.db.models import Q

from runs.engine.presentation import Call
from runs.engine.values import canonical
from runs.models import Exchange, Run, Step
from runs.reading.aligning import Mark
from runs.reading.lines import line_of
from runs.reading.phrases import Line, call_text
from runs.reading.questions import whole_title
from runs.reading.rows import CONCLUDING
from runs.reading.speaking import reads_of

Data = dict[str, Any]

LIKE_A_CALL = ("tool_call", "child_run")
NO_CALL = Call("", {})
UNSAID = {"run.spent", "run.asked", "run.feedback", "run.summary"}
"""Facts that a comparison skips: a step's cost is shown beside it, and other facts repeat the rest."""
BY_CHANCE = {
    "run.decided": ("interrupt",),
    "run.read": ("step", "run"),
    "conv.run": ("run",),
    "run.recovered": ("epoch", "message", "cost_usd", "tokens", "lost", "stopped"),
    "run.held_back": ("halt", "since", "until", "by", "reason"),
}
"""Parts of facts that differ between any two runs, or count earlier things."""
OF_THE_COPY = {"run.forked", "run.answers.kept"}
"""A copied run's facts about its beginning: shown with the differences at launch, not as a step."""
_KEPT = 6
"""Runs whose outlines are kept."""


class Outline(NamedTuple):
    """The kept part of a step, to find its counterpart."""

    rows: tuple[int, ...]
    """Its asks, and the row that concludes them."""
    mark: Mark
    cost_usd: float
    tokens: int
    ms: float
    """Milliseconds that the world took; a person's time is not counted."""


@dataclass(frozen=True)
class StepText:
    """A step in words, and its compared content."""

    rows: tuple[int, ...]
    asked: Line | None
    said: Line
    content: Data
    call: str
    """The call that was made, or wanted, as code."""

    @property
    def seq(self) -> int:
        """Return the row that it ends with."""
        return self.rows[-1]


_outlines: OrderedDict[tuple[int, datetime, int], tuple[Outline, ...]] = OrderedDict()
_lock = Lock()


def outline_of(run: Run) -> tuple[Outline, ...]:
    """Return the steps of a run's live path up to its head. Rows never change, so a head has one outline."""
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
    """The rows of one step: each with seq, kind, node, edge, next node, facts, request, and if it ends a replay."""

    machine: str
    rows: list[tuple[int, str, str, str | None, str | None, list[Data], Data | None, bool]]
    asked_about: Data | None = None
    """The call in the last question to a person before these rows: a conclusion without an ask may be about it."""

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(row[0] for row in self.rows)

    @property
    def request(self) -> Data | None:
        """Return the last request to the world."""
        return next((row[6] for row in reversed(self.rows) if row[6] is not None), None)

    @property
    def facts(self) -> list[Data]:
        return [fact for row in self.rows for fact in row[5]]


def _steps(run: Run, seqs: Iterable[int] | None = None) -> Iterator[_Rows]:
    """Yield the live rows, or those of `seqs`, grouped into steps."""
    steps = Step.objects.filter(run=run, live=True, seq__lte=run.head)
    asked = Exchange.objects.filter(run=run, seq__lte=run.head)
    if seqs is not None:
        wanted = list(seqs)
        steps, asked = steps.filter(seq__in=wanted), asked.filter(Q(seq__in=wanted) | Q(kind="human_call"))
    found = {seq: (kind, text) for seq, kind, text in asked.values_list("seq", "kind", "request_json")}
    questions = sorted(seq for seq, (kind, _) in found.items() if kind == "human_call")
    rows = steps.order_by("seq").values_list("seq", "kind", "node", "edge", "to", "facts_json")
    asks: list[Any] = []
    for seq, kind, node, edge, to, facts_json in rows.iterator(chunk_size=1000):
        facts = json.loads(facts_json) if facts_json != "[]" else []
        request = json.loads(found[seq][1]) if seq in found else None
        row = (seq, kind, node, edge, to, facts, request, run.ends_replay(seq))
        if kind == "ask":
            asks.append(row)
            continue
        if kind in CONCLUDING:
            last = bisect_left(questions, seq)
            about = found[questions[last - 1]][1] if last and not asks else "{}"
            yield _Rows(run.machine, [*asks, row], _call_in(json.loads(about)))
            asks = []
        else:
            yield _Rows(run.machine, [row])
    if asks:
        yield _Rows(run.machine, asks)


def _is_plumbing(step: _Rows) -> bool:
    """Return True if a run's page shows none of its rows at the usual detail, or it only tells how a copy began."""
    if step.facts and all(fact["kind"] in OF_THE_COPY for fact in step.facts):
        return True
    return all(_line(step, row).level == "all" for row in step.rows)


def _line(step: _Rows, row: Any) -> Line:
    _, kind, node, edge, _, facts, request, ends_replay = row
    return line_of(kind, node, edge, facts, request, machine=step.machine, ends_replay=ends_replay)


def _outline(step: _Rows, took: dict[int, float]) -> Outline:
    content = _content(step)
    _, kind, node, *_ = step.rows[-1]
    text = canonical(content).encode("utf-8", "surrogatepass")
    same = blake2b(f"{kind} {node} ".encode() + text, digest_size=8).digest()
    tool = (content.get("call") or {}).get("tool") or wanted_call(step.machine, step.facts).tool
    costs = [fact for fact in step.facts if fact["kind"] == "run.spent"]
    return Outline(
        rows=step.seqs,
        mark=Mark(int.from_bytes(same, "big"), f"{kind} {node} {content['edge']} {tool}", f"{kind} {node}"),
        cost_usd=sum(fact["cost_usd"] for fact in costs),
        tokens=sum(fact["input_tokens"] + fact["output_tokens"] for fact in costs),
        ms=sum(took.get(seq, 0.0) for seq in step.seqs),
    )


def _content(step: _Rows) -> Data:
    """Return the compared content of a step."""
    _, _, _, edge, to, *_ = step.rows[-1]
    content: Data = {"edge": edge, "to": to}
    request = step.request or {}
    call = _call_in(request) or _unasked_call(step)
    if request.get("kind") == "human_call":
        about = {"about": request["about"], "title": whole_title(request), "why": request["why"]}
        content["question"] = about | (call or {})
    elif call is not None:
        content["call"] = call
    said_above = {"react.tool.call"} if call is not None else set()
    own = {kind: reads.by_chance for kind, reads in reads_of(step.machine).items() if reads.by_chance}
    by_chance = BY_CHANCE | own
    content["facts"] = [
        {name: value for name, value in fact.items() if name not in by_chance.get(fact["kind"], ())}
        for fact in step.facts
        if fact["kind"] not in UNSAID | said_above
    ]
    return content


def _call_in(request: Data) -> Data | None:
    """Return the call in a request, or in a question to a person."""
    match request:
        case {"kind": "tool_call", "tool": tool, "args": args}:
            return {"tool": tool, "args": args}
        case {"kind": "child_run", "name": name, "goal": goal}:
            return {"tool": name, "args": {"goal": goal}}
        case {"kind": "human_call", "holds": dict(held)}:
            return _call_in(held)
    return None


def _unasked_call(step: _Rows) -> Data | None:
    """Return the call that these rows conclude without an ask, because it was refused."""
    if reached := [fact for fact in step.facts if fact["kind"] == "react.tool.call"]:
        return {"tool": reached[-1]["tool"], "args": reached[-1]["args"]}
    concludes = any(fact["kind"] == "react.tool.result" for fact in step.facts)
    return step.asked_about if concludes else None


def wanted_call(machine: str, facts: list[Data]) -> Call:
    """Return the call in the model's reply among these facts."""
    own = reads_of(machine)
    for fact in facts:
        reads = own.get(fact["kind"])
        if reads is not None and reads.reply:
            return reads.call(fact) or NO_CALL
    return NO_CALL


def _times_of(run: Run) -> dict[int, float]:
    """Return the milliseconds that the world took over each ask; people's time is not counted."""
    asked = Exchange.objects.filter(run=run, seq__lte=run.head).exclude(kind="human_call")
    times = {exchange.seq: exchange.took_ms for exchange in asked.only("seq", "started_at", "answered_at")}
    return {seq: took for seq, took in times.items() if took is not None}


def step_texts(run: Run, steps: Iterable[Outline]) -> dict[int, StepText]:
    """Return steps in words, by each one's last row."""
    seqs = [seq for step in steps for seq in step.rows]
    return {step.seqs[-1]: _text(step) for step in _steps(run, seqs)} if seqs else {}


def _text(step: _Rows) -> StepText:
    content = _content(step)
    asked = next((line for row in step.rows[:-1] if (line := _line(step, row)).level != "all"), None)
    if request_line := [
        _line(step, row) for row in step.rows[:-1] if row[6] and row[6]["kind"] in LIKE_A_CALL
    ]:
        asked = request_line[-1]
    call = content.get("call") or {}
    tool, args = (call["tool"], call["args"]) if call else wanted_call(step.machine, step.facts)
    said = _line(step, step.rows[-1])
    return StepText(step.seqs, asked, said, content, call_text(tool, args) if tool else "")
