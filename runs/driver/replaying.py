"""A run's record, and its replay as a new run: nothing is called, nothing is paid."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.db import transaction

from runs.driver.ports import price_of, prompt_tokens, tool_specs
from runs.engine.context import ratio
from runs.engine.facts import Forked
from runs.engine.machine import Machine
from runs.engine.replaying import Difference, Opening, Record, RecordedRow, Replay
from runs.machines import CATALOGUE
from runs.models import Exchange, ModelProfile, Run, Step
from runs.store import copying, creating, db, loading


def record_of(run: Run) -> Record:
    """Return the stored run, for a replay. A fork's replay begins after its given steps."""
    machine = CATALOGUE[run.machine]
    profile = None if run.script_json else ModelProfile.objects.filter(name=run.model_name).first()
    terms = loading.terms_of(run, tool_specs(run), guided=bool(profile and profile.guided))
    steps = list(run.steps.order_by("seq"))
    exchanges = {exchange.seq: exchange for exchange in run.exchanges.all()}
    begins = max((step.seq for step in steps if step.has("run.forked")), default=0)
    return Record(
        run=str(run.pk),
        machine=run.machine,
        goal=run.goal,
        settings=terms.settings.model_dump(mode="json", by_alias=True),
        site_rules=terms.site_rules,
        tools=terms.tools,
        skills=terms.skills,
        guided=terms.guided,
        opening=_opening(run, machine, [step for step in steps if step.seq <= begins], exchanges),
        rows=tuple(_row(step, exchanges.get(step.seq)) for step in steps if step.seq > begins),
        reads_prompt=not run.script_json,
        context_tokens=prompt_tokens(profile) if profile else None,
        price=price_of(profile) if profile else None,
    )


def _opening(run: Run, machine: Machine, given: list[Step], exchanges: dict[int, Exchange]) -> Opening:
    """Return the start of the machine, or the state after the steps given to the run."""
    if not given:
        return Opening(node=machine.start)
    last = given[-1].seq
    forked = next(fact for fact in _facts(machine, given[-1]) if isinstance(fact, Forked))
    targets: dict[int, tuple[str, dict[str, object] | None]] = {}
    state: dict[str, object] | None = None
    for step in given:
        state = json.loads(step.state_json) if step.state_json else state
        if step.kind == Step.Kind.TRANSITION and step.to:
            targets[step.seq] = (step.to, state)
    gone = loading.gone_over(run.steps.filter(seq__lte=last))
    # As of the fork's beginning: it may have rolled back some of them since.
    live = [step for step in given if not any(step.seq in over for over in gone)]
    asked = [exchanges[step.seq] for step in live if step.kind == Step.Kind.ASK]
    counted = [found for found in exchanges.values() if found.seq <= last and found.prompt_chars]
    counted = [found for found in counted if found.input_tokens]
    shown = max(counted, key=lambda found: found.seq, default=None)
    opening = Opening(
        seq=last,
        node=given[-1].node,
        state=state,
        targets={seq: kept for seq, kept in targets.items() if seq <= forked.seq},
        totals=copying.totals_at(run, last)._asdict(),
        calls=tuple((found.seq, found.fingerprint) for found in asked if _reached(found)),
        facts=tuple((step.seq, tuple(json.loads(step.facts_json))) for step in live),
        restored=max((step.seq for step in given if step.has("run.restored")), default=0),
    )
    if shown is None or run.script_json:
        return opening
    return opening.model_copy(update={"tokens_per_character": ratio(shown.input_tokens, shown.prompt_chars)})


def _reached(exchange: Exchange) -> bool:
    return exchange.attempt == 1 and bool(exchange.fingerprint)


def _facts(machine: Machine, step: Step) -> tuple[object, ...]:
    found: tuple[object, ...] = machine.facts.validate_json(step.facts_json)
    return found


def _row(step: Step, exchange: Exchange | None) -> RecordedRow:
    asked = {}
    if exchange is not None:
        asked = {
            "effect": json.loads(exchange.request_json),
            "attempt": exchange.attempt,
            "answer": json.loads(exchange.answer_json) if exchange.answer_json else None,
            "prompt_chars": exchange.prompt_chars,
            "input_tokens": exchange.input_tokens,
        }
    return RecordedRow(
        seq=step.seq,
        kind=step.kind,
        node=step.node,
        edge=step.edge,
        to=step.to,
        facts=tuple(json.loads(step.facts_json)),
        state=json.loads(step.state_json) if step.state_json else None,
        **asked,
    )


# --- the new run ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Family:
    """A replayed run, and its children."""

    run: Run
    replay: Replay
    children: tuple[_Family, ...]

    def difference(self) -> Difference | None:
        """Return the first difference: the run's own, else its first child's."""
        inner = (child.difference() for child in self.children)
        return self.replay.difference or next((found for found in inner if found is not None), None)


def made_again(record: Record) -> Replay:
    """Return the record's replay, as far as it comes out the same."""
    return Replay(CATALOGUE[record.machine], record).upto()


@db.for_people
def replay_run(run: Run, owner_id: int | None, upto: int | None = None) -> tuple[Run, Difference | None]:
    """Return a new run of the replayed steps, to step `upto` or all; and the first difference.

    Its children are replayed with it. The replayed run is only read.
    """
    family = _made_again(run, upto)
    with transaction.atomic():
        made = _write(family, owner_id, None)
    return made, family.difference()


def _made_again(run: Run, upto: int | None) -> _Family:
    replay = Replay(CATALOGUE[run.machine], record_of(run)).upto(upto)
    last = replay.snapshot.head
    children = Run.objects.filter(parent=run, parent_seq__lte=last).order_by("pk")
    return _Family(run, replay, tuple(_made_again(child, None) for child in children))


def _write(family: _Family, owner_id: int | None, parent: tuple[Run, int, str] | None) -> Run:
    run = family.run
    new = creating.NewRun(
        machine=run.machine,
        goal=run.goal,
        settings=run.settings,
        checked=family.replay.terms.settings,
        script=json.loads(run.script_json) if run.script_json else None,
        model=run.model,
        owner_id=owner_id,
        by_operator=owner_id is None,
        site_rules=tuple(json.loads(run.site_rules_json)),
        site_hosts=tuple(json.loads(run.site_hosts_json)),
    )
    made = copying.write_replay(run, family.replay, new, parent)
    for child in family.children:
        _write(child, owner_id, (made, child.run.parent_seq or 0, child.run.child_name))
    return made
