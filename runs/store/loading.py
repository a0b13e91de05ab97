"""Reads a run whole, once a slice: its terms, its state, its ask that waits, its budget."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Count, Max

from runs.engine.effects import ANSWER, EFFECT, Answer
from runs.engine.machine import Block, Machine, State, Terms
from runs.engine.settings import LIMIT_NAMES, InterruptRule, LimitName, Settings
from runs.engine.snapshot import Pending, Snapshot
from runs.engine.timeline import blocks_of
from runs.engine.tools import ToolSpec
from runs.machines import CATALOGUE
from runs.models import Exchange, Run, Skill, Step
from runs.store.appending import totals_of
from runs.store.log import budgets_of


@dataclass(slots=True)
class Loaded:
    """A run in memory, between two moves."""

    run: Run
    machine: Machine
    snapshot: Snapshot
    budgets: dict[tuple[str, str], tuple[float, float]]
    exchange: Exchange | None
    """Of the ask that waits."""

    @property
    def answer(self) -> Answer | None:
        """What was answered to the ask that waits, where it has been."""
        stored = self.exchange.answer_json if self.exchange else None
        return ANSWER.validate_json(stored) if stored else None


def terms_of(run: Run, tools: Mapping[str, ToolSpec], *, guided: bool = False) -> Terms:
    """What the run was agreed on; site rules come before its own."""
    own = CATALOGUE[run.machine].settings.model_validate_json(run.settings_json)
    site = tuple(InterruptRule.model_validate(rule) for rule in json.loads(run.site_rules_json))
    if site:
        own = own.model_copy(update={"rules": site + own.rules})
    return Terms(goal=run.goal, settings=own, tools=dict(tools), skills=_skills(own), guided=guided)


def _skills(own: Settings) -> dict[str, str]:
    """The named texts of a machine that shows such: the administrator's, and the run's own before them."""
    given: dict[str, str] | None = getattr(own, "skills", None)
    return dict(Skill.objects.values_list("name", "text")) | given if given is not None else {}


def load(run: Run, terms: Terms) -> Loaded:
    """The run as its rows have it."""
    machine = CATALOGUE[run.machine]
    budgets = budgets_of(run.pk)
    exchange = _waiting(run)
    pending = None
    if exchange is not None:
        pending = Pending(EFFECT.validate_json(exchange.request_json), exchange.seq, exchange.attempt)
    limits: dict[LimitName, float] = {
        name: budgets["limits", name][1] for name in LIMIT_NAMES if ("limits", name) in budgets
    }
    snapshot = Snapshot(
        node=run.node,
        state=state_at(run, machine, terms, run.head),
        head=run.head,
        pending=pending,
        totals=totals_of(run),
        limits=limits,
        calls=reached_calls(run, terms, run.head),
    )
    return Loaded(run, machine, snapshot, budgets, exchange)


def _waiting(run: Run) -> Exchange | None:
    """The exchange of the last move, where that is an ask."""
    moves = (Step.Kind.TRANSITION, Step.Kind.ASK, Step.Kind.REWIND, Step.Kind.STOP)
    last = run.steps.filter(live=True, kind__in=moves).order_by("-seq").values_list("seq", "kind").first()
    if last is None or last[1] != Step.Kind.ASK:
        return None
    return run.exchanges.get(seq=last[0])


def state_at(run: Run, machine: Machine, terms: Terms, seq: int) -> State:
    """The control state after row `seq`. A row without a state has that of the row before; a rewind has its own."""
    rows = run.steps.filter(seq__lte=seq, state_json__isnull=False).order_by("-seq")
    stored = rows.values_list("state_json", flat=True).first()
    if stored is None:
        return machine.open(terms)
    return machine.state.model_validate({**json.loads(stored), "terms": terms})


def reached_calls(run: Run, terms: Terms, upto: int) -> dict[str, int]:
    """How often each call was reached on the live path up to row `upto`; only where a rule looks at it."""
    if not any(rule.when.same_call for rule in terms.settings.rules):
        return {}
    live = run.steps.filter(kind=Step.Kind.ASK, live=True, seq__lte=upto).values("seq")
    calls = run.exchanges.filter(kind__in=("tool_call", "child_run"), attempt=1, seq__in=live)
    return dict(calls.values_list("fingerprint").annotate(times=Count("pk")))


def attempts_of(run: Run) -> dict[str, int]:
    """How many attempts at each role and tool the run has made, by "kind name"."""
    made = run.exchanges.filter(nth__gt=0).values_list("kind", "name").annotate(most=Max("nth"))
    return {f"{kind} {name}": most for kind, name, most in made}


def load_blocks(run: Run, machine: Machine, upto: int) -> list[Block]:
    """What the model has been shown up to row `upto`."""
    rows = run.steps.filter(live=True, seq__lte=upto).exclude(facts_json="[]").order_by("seq")
    found = rows.values_list("seq", "facts_json")
    return [
        block for seq, text in found for block in blocks_of(machine, machine.facts.validate_json(text), seq)
    ]
