"""Walk a run's log: hash chain, graph, fold, budget arithmetic. Names the first step that does not fit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain as chained

from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError

from runs.engine.effects import ANSWER, Answer, ChildFinished, ToolReturned
from runs.engine.fact_kinds import fact_kinds
from runs.engine.facts import Fact, Forked, LimitRaised, ToolReported
from runs.engine.machine import END, Machine, State, Terms
from runs.engine.settings import LIMIT_NAMES
from runs.engine.snapshot import Totals
from runs.engine.tools import ToolSpec
from runs.machines import CATALOGUE
from runs.models import Artifact, Exchange, Interrupt, Run, Step, tells
from runs.store import check_run
from runs.store.appending import totals_of
from runs.store.artifacts import Made, made_by
from runs.store.check_tables import Told
from runs.store.creating import terms_hash
from runs.store.endings import ended
from runs.store.loading import Loaded, load, terms_of
from runs.store.log import budgets_of, chain
from runs.store.seals import name_and_step, seal
from runs.store.summaries import ACTING, flaws
from runs.store.switching import changed_by


@dataclass(frozen=True, slots=True)
class Misfit:
    """The first misfit. `seq` is None if it is the run's own row."""

    seq: int | None
    why: str

    def __str__(self) -> str:
        return f"step {self.seq}: {self.why}" if self.seq is not None else self.why


def verify(run: Run, tools: Mapping[str, ToolSpec]) -> Misfit | None:
    """Return the first misfit; None if everything fits."""
    if run.machine not in CATALOGUE:
        return Misfit(None, f"the machine {run.machine} is not installed")
    try:
        terms = terms_of(run, tools)
        terms_hash(run)
    except (ValueError, ObjectDoesNotExist) as fault:
        return Misfit(None, f"its launch settings can't be read ({type(fault).__qualname__})")
    try:
        return _Walk(run, CATALOGUE[run.machine], terms).misfit()
    except Exception as fault:  # any fault of a changed content is a finding
        unread = unreadable(fault)
    try:
        return _broken_link(run) or unread
    except Exception as fault:
        return unreadable(fault)


def unreadable(fault: Exception) -> Misfit:
    """Return a misfit for an unreadable part of a run. A failure of the database itself is raised again."""
    if (
        isinstance(fault, DatabaseError) and "decode" not in str(fault).lower()
    ):  # SQLite on bytes that are no text
        raise fault
    return Misfit(None, f"its stored data can't be read ({type(fault).__qualname__})")


def _broken_link(run: Run) -> Misfit | None:
    """Return the first step whose hash does not match its content and the previous step; no content is interpreted."""
    before = terms_hash(run)
    for step in run.steps.order_by("seq").iterator():
        if step.hash != chain(before, step):
            return Misfit(step.seq, _unlike(step))
        before = step.hash
    return None


def _unlike(step: Step) -> str:
    before = "the step before" if step.seq > 1 else "the launch settings"
    return f"its hash does not match its content and {before}"


class _Walk:
    """One pass over the steps that folds them."""

    def __init__(self, run: Run, machine: Machine, terms: Terms) -> None:
        self.run = run
        self.machine = machine
        self.stages = [*_earlier_terms(run, machine, terms), terms]
        """The terms that made the steps: of a fork, first those of its source."""
        self.state: State = machine.open(self.stages[0])
        self.terms = terms
        self.node = machine.start
        self.seq = 0
        self.hash = terms_hash(run)
        self.after: dict[int, tuple[str, State]] = {}
        """Node and state after each transition: the possible targets of a rewind."""
        self.kinds: dict[int, str] = {}
        self.raised: Counter[str] = Counter()
        """People's raises of each limit."""
        self.switched_to = ""
        """The model in place of the run's own."""
        self.guessed = Totals()
        """Possible usage of cut-off calls; corrected when it becomes known."""
        self.told = Told()
        self.beside = check_run.Beside(run)
        self.acting: list[tuple[int, tuple[Fact, ...]]] = []
        """The steps that make or change summaries."""
        self.gone: list[range] = []
        """The ranges rolled back."""
        self.live: dict[int, bool] = {}
        """Each step's own mark."""
        self.asked: int | None = None
        """The last asking step."""
        self.changed: Misfit | None = None
        """The first row beside the steps that their hashes do not match; other checks say more of it."""
        self.named: dict[int, tuple[int | None, tuple[Fact, ...]]] = {}
        """By step that names artifacts: the ask that it concludes, and its facts."""

    def misfit(self) -> Misfit | None:
        """Return the first step that does not fit, then a misfit of the head, the budget, the exchanges."""
        for step in self.run.steps.order_by("seq").iterator():
            why = self._row(step)
            if why:
                return Misfit(step.seq, why)
            self.changed = self.changed or self._changed(step.seals)
        return (
            self._head()
            or self._budget()
            or self._liveness()
            or self._exchanges()
            or self._interrupts()
            or self._standing()
            or self._told()
            or self._artifacts()
            or self._summaries()
            or self.changed
        )

    def _row(self, step: Step) -> str:
        if step.seq != self.seq + 1:
            return f"I3: step {self.seq + 1} is missing, or step {step.seq} exists twice"
        if self.node == END and step.kind != Step.Kind.NOTE:
            return f"I2: a step of kind {step.kind} follows the end of the run"
        self.seq = step.seq
        self.hash = chain(self.hash, step)
        if step.hash != self.hash:
            return _unlike(step)
        self.kinds[step.seq], self.live[step.seq] = step.kind, step.live
        if step.node != self.node:
            return f"its node is {step.node}; the run was at {self.node}"
        return self._fold(step)

    def _changed(self, seals: str) -> Misfit | None:
        """Return the first row beside the steps that this step's hash does not match."""
        for kept in seals.split():
            name, seq = name_and_step(kept)
            found = self.beside.sealed[name].get(seq)
            if found is None or seal(name, seq, found) != kept:
                return Misfit(seq, f"its {name} was changed or deleted")
        return None

    def _fold(self, step: Step) -> str:
        if step.fact_kinds != fact_kinds(step.facts_json):
            return "its fact_kinds does not match its facts"
        facts = self.machine.facts.validate_json(step.facts_json)
        self.told.take(step.seq, step.kind, facts)
        if step.kind in ACTING:
            self.acting.append((step.seq, facts))
        self.guessed = self.guessed.after_losses(facts)
        self.switched_to = changed_by(facts, self.switched_to)
        self.raised.update({fact.name: fact.added for fact in facts if isinstance(fact, LimitRaised)})
        if any(isinstance(fact, Forked) for fact in facts):
            del self.stages[0]
            self.state = self.state.model_copy(update={"terms": self.stages[0]})
            self.raised.clear()  # the limits in force then are the fork's own
        if any(isinstance(fact, ToolReported) and (fact.files or fact.outputs) for fact in facts):
            self.named[step.seq] = (self.asked, facts)
        if step.kind == Step.Kind.ASK:
            self.asked = step.seq
        before = self.state
        if step.kind == Step.Kind.REWIND:
            target = self.after.get(facts[0].to_seq)
            if target is None:
                return f"it rolls back to {facts[0].to_seq}, which is not a transition"
            self.gone.append(range(facts[0].to_seq + 1, step.seq))
            self.node, before = target
        self.state = self.machine.fold(before, facts)
        if step.state_json is None:
            if self.state != before or step.kind == Step.Kind.REWIND:
                return "it changes the state but stores none"
        elif json.loads(step.state_json) != self.state.model_dump(mode="json"):
            return "its state does not follow from its facts"
        return self._edge(step, before)

    def _edge(self, step: Step, before: State) -> str:
        first, now = before.exit_reason, self.state.exit_reason
        if first and now not in (first, self.machine.rewords.get(first)):
            return "it writes a second exit reason"
        match step.kind:
            case Step.Kind.TRANSITION:
                target = self.machine.targets.get((step.node, str(step.edge)))
                if target is None or target != step.to:
                    return f"the edge {step.edge} from {step.node} to {step.to} is not declared"
                self.node = target
                self.after[step.seq] = (target, self.state)
            case Step.Kind.STOP:
                self.node = "end"
                if self.state.exit_reason is None:
                    return "it stops the run without a reason"
            case Step.Kind.REWIND if step.to != self.node:
                return f"it continues at {step.to}; its target leads to {self.node}"
        return ""

    def _head(self) -> Misfit | None:
        run = self.run
        if (run.head, run.head_hash) != (self.seq, self.hash):
            return Misfit(
                None, f"the run's head is {run.head}, its last step {self.seq}, or their hashes differ"
            )
        if run.switched_to != self.switched_to:
            return Misfit(None, "the run's model differs from the last change in its steps")
        if run.node != self.node:
            return Misfit(None, f"the run is at {run.node}; its steps lead to {self.node}")
        if run.finished != (self.node == "end"):
            return Misfit(None, f"the run is {run.status} at {self.node}")
        end = ended(self.machine, self.state) if run.finished else {}
        names = ("exit_reason", "answer", "ok", "answer_source", *(("status",) if end else ()))
        for name in names:
            if getattr(run, name) != end.get(name):
                return Misfit(None, f"the run's {name} does not match its steps")
        if run.cached_model_calls > run.model_calls:
            return Misfit(None, "the run counts more cached model calls than model calls")
        return None

    def _budget(self) -> Misfit | None:
        stored = budgets_of(self.run.pk)
        for line in self.machine.budget(self.state):
            if stored.get((line.scope, line.name)) != (line.used, line.limit):
                return Misfit(
                    None, f"the budget {line.scope} {line.name} is not {line.used:g}/{line.limit:g}"
                )
        for name in LIMIT_NAMES:
            given = self.terms.settings.limits.of(name)
            used, limit = stored.get(("limits", name), (0.0, None))
            wanted = None if given is None else round(given + self.raised[name], 9)
            if wanted != (None if limit is None else round(limit, 9)):
                return Misfit(None, f"the limit {name} is {limit}; launch and raises make it {wanted}")
            _, added = stored.get(("shared", name), (0.0, 0.0))
            if ("shared", name) in stored and round(added, 9) != round(self.raised[name], 9):
                return Misfit(
                    None,
                    f"the shared limit {name} was raised by {added:g}; its steps say {self.raised[name]:g}",
                )
            if used > totals_of(self.run).used(name) + self.guessed.used(name) + 1e-9:
                return Misfit(None, f"the limit {name} counts {used:g}, more than the run has used")
        return None

    def _liveness(self) -> Misfit | None:
        """Check that exactly the steps rolled back by a later rewind are dead."""
        for seq, live in self.live.items():
            if live == any(seq in over for over in self.gone):
                return Misfit(seq, "its live mark does not match the rollbacks")
        return None

    def _exchanges(self) -> Misfit | None:
        spent = self._unconcluded()
        exchanges = self.beside.exchanges
        for exchange in exchanges.values():
            if self.kinds.get(exchange.seq) != Step.Kind.ASK:
                return Misfit(exchange.seq, "it has an exchange but asks nothing")
            if exchange.answer_json is None:
                continue
            answer = ANSWER.validate_json(exchange.answer_json)
            used = Totals().after(answer)
            if not isinstance(answer, ChildFinished) and (
                (used.input_tokens, used.output_tokens) != (exchange.input_tokens, exchange.output_tokens)
                or abs(used.cost_usd - exchange.cost_usd) > 1e-9
            ):
                return Misfit(exchange.seq, "the usage of its exchange does not match its answer")
            spent = spent.after(answer)
        asks = sum(kind == Step.Kind.ASK for kind in self.kinds.values())
        if asks != len(exchanges):
            return Misfit(None, f"{asks} steps ask, but the run has {len(exchanges)} exchanges")
        return self._totals(spent)

    def _unconcluded(self) -> Totals:
        """Return the negative usage of an open answer: the totals do not have it yet."""
        if self.loaded is None:
            return Totals()
        used = Totals().after(self.loaded.answer)
        return Totals(**{name: -amount for name, amount in used._asdict().items()})

    def _totals(self, spent: Totals) -> Misfit | None:
        """Check that the run's totals are at least its exchanges' usage; more if a call without a step was paid."""
        totals = totals_of(self.run)
        for name in ("model_calls", "cached_model_calls", "input_tokens", "output_tokens", "cost_usd"):
            if getattr(totals, name) + 1e-9 < getattr(spent, name):
                return Misfit(
                    None,
                    f"the run's {name} is {getattr(totals, name):g}; its exchanges used {getattr(spent, name):g}",
                )
        return None

    @cached_property
    def loaded(self) -> Loaded | None:
        """Return the run as a worker would read it; None if it has ended."""
        return None if self.run.finished else load(self.run, self.terms)

    @property
    def waits(self) -> Exchange | None:
        """Return the exchange of the open ask."""
        return self.loaded.exchange if self.loaded else None

    def _standing(self) -> Misfit | None:
        """Check that the run can go on, its keys, its decisions."""
        if why := check_run.way_on(self.beside, self.waits):
            return Misfit(None, why)
        flaws = chained(check_run.effects_of(self.beside), check_run.decisions_of(self.beside, self.kinds))
        return next((Misfit(seq, why) for seq, why in flaws), None)

    def _told(self) -> Misfit | None:
        """Check the tables beside the steps, as far as the steps tell of them."""
        return next((Misfit(seq, why) for seq, why in self.told.flaws(self.beside)), None)

    def _interrupts(self) -> Misfit | None:
        """Check that a question is open exactly if the run waits for its answer."""
        waits = self.waits
        for seq, question in self.beside.questions.items():
            if question.status != Interrupt.Status.PENDING:
                continue
            if self.run.finished:
                return Misfit(None, "the run has ended, but a question is still open")
            if waits is None or waits.seq != seq or waits.kind != "human_call":
                return Misfit(seq, "its question is still open, but the run does not wait for it")
        return None

    def _artifacts(self) -> Misfit | None:
        """Check that every step has the artifacts named by its facts and answer; versions count without a gap."""
        kept: dict[int, list[Artifact]] = {}
        versions: Counter[str] = Counter()
        for artifact in Artifact.objects.filter(run=self.run).order_by("seq", "pk"):
            versions[artifact.name] += 1
            if artifact.version != versions[artifact.name]:
                return Misfit(artifact.seq, f"its {artifact} should be version {versions[artifact.name]}")
            kept.setdefault(artifact.seq, []).append(artifact)
        first = min(kept, default=self.seq + 1)
        for seq, (call_seq, facts) in self.named.items():
            answer = self._answer(call_seq)
            wanted = made_by(facts, answer, call_seq)
            found = [_as_made(artifact) for artifact in kept.pop(seq, ())]
            described = isinstance(answer, ToolReturned) and any(file.sha256 for file in answer.files)
            old = not found and not described and seq < first  # from before there were rows of artifacts
            if not old and sorted(found, key=_by_name) != sorted(wanted, key=_by_name):
                return Misfit(seq, "its artifacts do not match its facts and the answer to its call")
        return Misfit(min(kept), "it has artifacts but names none") if kept else None

    def _summaries(self) -> Misfit | None:
        """Check the summaries, and people's changes to them."""
        found = flaws(self.acting, self.kinds, self.beside.exchanges)
        return next((Misfit(seq, why) for seq, why in found), None)

    def _answer(self, call_seq: int | None) -> Answer | None:
        call = self.beside.exchanges.get(call_seq or 0)
        text = call.answer_json if call is not None else None
        return None if text is None else ANSWER.validate_json(text)


def _earlier_terms(run: Run, machine: Machine, terms: Terms) -> list[Terms]:
    """Return the terms that each fork step replaced, in order."""
    rows = run.steps.filter(tells("run.forked"), kind=Step.Kind.NOTE).order_by("seq")
    told = (fact for text in rows.values_list("facts_json", flat=True) for fact in json.loads(text))
    return [
        terms.model_copy(update={"settings": machine.settings.model_validate(fact["settings_before"])})
        for fact in told
        if fact["kind"] == "run.forked"
    ]


def _as_made(artifact: Artifact) -> Made:
    return Made(
        artifact.name,
        artifact.kind,
        artifact.media_type,
        artifact.size,
        artifact.sha256,
        artifact.error,
        artifact.call_seq,
        artifact.tool,
    )


def _by_name(made: Made) -> str:
    return made.name
