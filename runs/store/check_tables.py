"""Compare the tables beside the log with its hashed steps.

Questions, decisions, requests and answers have rows of their own; they must agree with the facts. The seals of a step
(`runs.store.seals`) find any other change; this module says more of it, and reads steps without seals.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from runs.engine.effects import (
    ANSWER,
    EFFECT,
    Answer,
    ChildFinished,
    Effect,
    Failed,
    HumanCall,
    HumanSaid,
    ScriptCalled,
    ToolCall,
    ToolReturned,
    call_in,
    fingerprint_of,
)
from runs.engine.facts import CallEdited, Decided, EarlierRun, Fact, Forked, Spent, ToolCalled, ToolReported
from runs.engine.reporting import reported
from runs.engine.settling import cost_of
from runs.engine.values import canonical, fingerprint
from runs.models import Decision, Exchange, Interrupt, Run, Step
from runs.store.check_run import Beside
from runs.store.loading import MOVES


class Told:
    """The steps' own account, read one after the other."""

    def __init__(self) -> None:
        self.calls: dict[int, str] = {}
        """By asking step: the fingerprint of the call reached by then."""
        self.results: dict[int, tuple[int, str]] = {}
        """By asking step: the step with its result, and that result's fingerprint."""
        self.refused: set[int] = set()
        """The asking steps of calls that did not run."""
        self.costs: dict[int, tuple[int, Spent]] = {}
        """By asking step: the step with its answer's cost, and that cost."""
        self.decided: dict[str, tuple[int, Decided]] = {}
        """By decided question."""
        self.forked: tuple[int, Forked] | None = None
        """The last step that names the source run of this fork or replay."""
        self.earlier: tuple[EarlierRun, ...] = ()
        """Earlier runs before this one in its conversation."""
        self.ran = 0
        """Calls made."""
        self._call = ""
        self._pending: int | None = None

    def take(self, seq: int, kind: str, facts: tuple[Fact, ...]) -> None:
        """Add one step."""
        asked, results = self._pending, []
        for fact in facts:
            match fact:
                case ToolCalled(tool=tool, args=args) | CallEdited(tool=tool, args=args):
                    self._call = fingerprint(tool, args)
                case ToolReported():
                    results.append(fact)
                    self.ran += fact.ran and not fact.cached_from
                case Spent() if asked is not None:
                    self.costs[asked] = (seq, fact)
                case Decided():
                    self.decided[fact.interrupt] = (seq, fact)
                case Forked():
                    self.forked = (seq, fact)
                case EarlierRun() if seq == 1:
                    self.earlier += (fact,)
        if asked is not None and len(results) == 1:
            self.results[asked] = (seq, _told_by(results[0]))
            if not results[0].ran:
                self.refused.add(asked)
        if kind == Step.Kind.ASK:
            self._pending = seq
            if self._call:
                self.calls[seq] = self._call
        elif kind in MOVES:
            self._pending = None

    def flaws(self, beside: Beside) -> Iterator[tuple[int | None, str]]:
        """Yield each step that disagrees with the tables, and how."""
        run = beside.run
        if self.ran > run.tool_calls:
            yield None, f"the run's tool_calls is {run.tool_calls}; its steps have {self.ran}"
        questions = dict(beside.questions)
        children: dict[int, tuple[int, ChildFinished]] = {}
        for exchange in beside.exchanges.values():
            effect = EFFECT.validate_json(exchange.request_json)
            answer = ANSWER.validate_json(exchange.answer_json) if exchange.answer_json else None
            yield from ((exchange.seq, why) for why in self._request(exchange, effect))
            yield from self._answer(exchange, effect, answer)
            if isinstance(effect, HumanCall):
                why = _question(questions.pop(exchange.seq, None), effect)
                if why:
                    yield exchange.seq, why
            if isinstance(answer, ChildFinished) and _is_own(run, exchange):
                children[exchange.seq] = (int(answer.run), answer)
        yield from ((seq, "it has a question but asks none") for seq in questions)
        yield from self._decisions(beside)
        yield from _children(run, children)
        if self.forked and not _is_of(run, *self.forked):
            yield self.forked[0], "its source of the fork differs from the run's"
        if not _continues(run, self.earlier):
            yield 1, "its continued run differs from the run's"
        if why := _parent(run):
            yield None, why

    def _request(self, exchange: Exchange, effect: Effect) -> Iterator[str]:
        if exchange.kind != effect.kind or exchange.fingerprint != fingerprint_of(effect):
            yield "its exchange does not match its request"
        call = call_in(effect.holds) if isinstance(effect, HumanCall) else call_in(effect)
        beside_facts = isinstance(call, ToolCall) and (call.infra or call.resumes)
        if call is None or beside_facts or exchange.seq not in self.calls:
            return
        if fingerprint_of(call) != self.calls[exchange.seq]:
            yield "its exchange has another call than its steps"

    def _answer(self, exchange: Exchange, effect: Effect, answer: Answer | None) -> Iterator[tuple[int, str]]:
        call, seq = call_in(effect), exchange.seq
        if seq in self.refused and exchange.status == Exchange.Status.ASKED:
            return  # it never began: a later rule refused it
        if seq in self.results and call is not None and not (isinstance(call, ToolCall) and call.infra):
            row, told = self.results[seq]
            if _answered(call.tool, answer) not in ("", told):
                yield row, f"its result is not the answer to step {seq}"
        if seq in self.costs:
            row, spent = self.costs[seq]
            if cost_of(answer) != (spent,):
                yield row, f"its cost is not that of the answer to step {seq}"

    def _decisions(self, beside: Beside) -> Iterator[tuple[int | None, str]]:
        """Yield each decision or answer that disagrees with its step."""
        made = {str(decision.interrupt_id): decision for decision in beside.decisions.values()}
        for question, (row, decided) in self.decided.items():
            decision = made.pop(question, None)
            if decision is None:
                yield row, "I5: its decided question is missing or has no decision"
            elif _recorded(decision) != _decided(decided) or decision.interrupt.kind != decided.about:
                yield row, f"I5: it records {decided.verdict} by {decided.by}; the decision differs"
            elif _said(beside.exchanges.get(decision.interrupt.seq)) != _as_answer(decided):
                yield row, "I5: its decision differs from the recorded answer"
        if beside.run.origin == "replay":
            return  # a copy that ends before its source may have a question's decision without the step
        for decision in made.values():
            yield decision.interrupt.seq, "I5: its question was decided, but no step records it"


def _told_by(fact: ToolReported) -> str:
    program = fact.model_dump(include={"exit_code", "stderr"})
    return fingerprint(fact.tool, [fact.value, fact.error, fact.ran, list(fact.files), program])


def _answered(tool: str, answer: Answer | None) -> str:
    """Return the same of an answer; empty if it does not say how the step has it."""
    match answer:
        case ChildFinished() if not answer.gave_result and not answer.exit_reason:
            return ""
        case ScriptCalled():
            return ""  # the result beside it is that of the script's call, which was refused
        case ToolReturned() | ChildFinished() | Failed():
            return _told_by(reported(tool, answer))
    return "another answer"


def _question(question: Interrupt | None, asked: HumanCall) -> str:
    """Return the flaw of an ask's question; empty if there is none."""
    if question is None:
        return "it asks a person, but its question is missing"
    call = asked.shown
    shown = (call.tool, canonical(call.args), call.fingerprint) if call else ("", "{}", "")
    found = (question.tool, question.args_json, question.fingerprint)
    # The plan stands in place of the call's arguments; no fact has it as it was shown.
    of_plan = (shown[0], question.args_json, fingerprint("plan", json.loads(question.args_json)))
    if found != shown and (asked.about != "plan" or found != of_plan):
        return "its question shows another call than the held one"
    about = (question.kind, question.title, question.limit, question.host)
    if about != (asked.about, asked.title, asked.limit, asked.host):
        return "its question differs from its request"
    if question.figures != (asked.figures.model_dump(mode="json") if asked.figures else None):
        return "its question has other figures than its request"
    return ""


def _recorded(decision: Decision) -> tuple[Any, ...]:
    args = None if decision.args_json is None else json.loads(decision.args_json)
    said = (decision.verdict, args, decision.message, decision.to_step, decision.allow_host)
    return (*said, decision.by_name, decision.channel)


def _decided(fact: Decided) -> tuple[Any, ...]:
    return (*_as_answer(fact), fact.channel)


def _said(asked: Exchange | None) -> tuple[Any, ...] | None:
    if asked is None or asked.kind != "human_call" or asked.answer_json is None:
        return None
    said = ANSWER.validate_json(asked.answer_json)
    if not isinstance(said, HumanSaid):
        return None
    return (said.verdict, said.args, said.message, said.to_step, said.allow_host, said.by)


def _as_answer(fact: Decided) -> tuple[Any, ...]:
    return (fact.verdict, fact.args, fact.message, fact.to_step, fact.allow_host, fact.by)


def _is_of(run: Run, seq: int, forked: Forked) -> bool:
    """Return True if the run is the fork that its step names, or a replay with this step from its source."""
    if run.origin == "replay":
        return seq <= (run.copied_upto or 0)
    source = forked.run if run.copied_from_id or Run.objects.filter(pk=forked.run).exists() else None
    return run.origin != "" and (run.copied_from_id, run.copied_upto) == (source, forked.seq)


def _continues(run: Run, earlier: tuple[EarlierRun, ...]) -> bool:
    """Return True if `Run.continues` names the log's last earlier run; a copy's names none."""
    last = earlier[-1].run if earlier and not run.origin else None
    there = last is not None and Run.objects.filter(pk=last).exists()
    return run.continues_id == (last if there else None)


# --- parents and children -------------------------------------------------------------------------------------------


def _is_own(run: Run, exchange: Exchange) -> bool:
    """Return True if the answering child was called by this run, not by its source."""
    return run.origin != "replay" and exchange.seq > (run.copied_upto or 0)


def _children(run: Run, ended: Mapping[int, tuple[int, ChildFinished]]) -> Iterator[tuple[int | None, str]]:
    """Yield each answering child that is missing under that step, or ended otherwise."""
    found = Run.objects.filter(pk__in=[child for child, _ in ended.values()]) if ended else ()
    there = {child.pk: child for child in found}
    for seq, (number, answer) in ended.items():
        child = there.get(number)
        if child is None:
            continue
        if (child.parent_id, child.parent_seq) != (run.pk, seq):
            yield seq, f"run {number} answered it but is not its child"
        elif (child.status, child.answer) != (answer.status, answer.answer) or (
            answer.exit_reason not in ("", child.exit_reason)
        ):
            yield seq, f"the end of run {number} differs from its answer"


def _parent(run: Run) -> str:
    """Return the flaw of the run's parent; empty if it asked for this very run."""
    if run.parent_id is None:
        return ""
    asked = Exchange.objects.filter(run=run.parent_id, seq=run.parent_seq or 0, kind="child_run")
    text = asked.values_list("request_json", flat=True).first()
    wanted = json.loads(text) if text else {}
    if (wanted.get("name"), wanted.get("goal")) != (run.child_name, run.goal):
        return f"step {run.parent_seq} of run {run.parent_id} did not ask for it"
    return ""
