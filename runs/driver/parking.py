"""Asks without a waiting worker: a person's answer, a child run's end, a delay."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from runs.driver.ports import script_of, unfit_for
from runs.engine.effects import ChildRun, HumanCall
from runs.engine.facts import ApprovalLapsed, Fact
from runs.engine.gates import rule_that_asks
from runs.engine.machine import Machine, State
from runs.engine.moves import Ask
from runs.engine.outward import inherited
from runs.engine.settings import Settings
from runs.engine.values import canonical, fingerprint
from runs.machines import CATALOGUE
from runs.models import Interrupt, Run, RunStatus
from runs.store import appending, copying, creating, db, decisions, loading, log

RISKS = {"none": "low", "read": "low", "write": "medium", "send": "high", "execute": "high"}


def park(batch: log.Batch, run: Run, machine: Machine, state: State, move: Ask) -> decisions.Said | None:
    """Add to the batch the question, child or delay of its last step. Return a question's prepared answer, if there is
    one.

    `state` is that after the move.
    """
    row = batch.rows[-1]
    match move.effect:
        case HumanCall() as call:
            said = _prepared_answer(run, state, call, move)
            if said is None:
                batch.changes = {"status": RunStatus.WAITING.value}
            batch.interrupt = _question(run, machine, state, call, row.seq)
            row.cover("question", row.seq, batch.interrupt)
            return said
        case ChildRun() as call:
            batch.changes = {"status": RunStatus.WAITING.value}
            child, checked = _child(run, state, call, row.seq, batch.site_rules)
            read = inherited(state)
            batch.child = child, checked, _first_row(child, read) if read else None
        case _ if move.delay_s:
            due = db.now() + timedelta(seconds=move.delay_s)
            batch.changes = {"status": RunStatus.QUEUED.value, "due_at": due}
    return None


# --- questions ------------------------------------------------------------------------------------------------------


def _prepared_answer(run: Run, state: State, call: HumanCall, move: Ask) -> decisions.Said | None:
    """Return the answer given in advance; a question that opens again waits for a person."""
    if any(isinstance(fact, ApprovalLapsed) for fact in move.facts):
        return None
    rule = rule_that_asks(call, move.facts)
    said = copying.prepared_answer(run, call, state.terms.settings.answers, rule)
    named = said.args.get("model") if said is not None and isinstance(said.args, dict) else None
    if call.model and isinstance(named, str) and unfit_for(run, named):
        return None  # the question waits for a person
    return said


def _question(run: Run, machine: Machine, state: State, call: HumanCall, seq: int) -> Interrupt:
    shown = call.shown
    spec = state.terms.tools.get(shown.tool) if shown else None
    tool, effects, args, print_ = (
        (shown.tool, shown.effects, shown.args, shown.fingerprint) if shown else ("", "", {}, "")
    )
    schema = spec.parameters if spec else {}
    if call.about == "plan" and machine.plan is not None:
        args = machine.plan.shown(state)
        schema, print_ = machine.plan.schema, fingerprint("plan", args)
    deadline = db.now() + timedelta(seconds=call.deadline_s) if call.deadline_s else None
    return Interrupt(
        run=run,
        seq=seq,
        kind=call.about,
        title=call.title,
        why=call.why,
        tool=tool,
        args_json=canonical(args),
        # In the schema's own order: so the card shows its fields.
        schema_json=json.dumps(schema, ensure_ascii=False),
        effects=effects,
        risk=_risk(call),
        fingerprint=print_,
        limit=call.limit,
        figures_json=call.figures.model_dump_json() if call.figures else "",
        host=call.host,
        verdicts_json=json.dumps([verdict for verdict in call.verdicts if verdict != "edit" or print_]),
        deadline=deadline,
        on_timeout=call.on_timeout,
    )


def _risk(call: HumanCall) -> str:
    """Return the possible harm of the held call; data sent to a host can't be taken back."""
    shown = call.shown
    risk = RISKS.get(shown.effects, "unknown") if shown else "low"
    return "medium" if call.host and risk == "low" else risk


# --- child runs -----------------------------------------------------------------------------------------------------


def _child(run: Run, state: State, call: ChildRun, seq: int, site_rules: str) -> tuple[Run, Settings]:
    """Return the child that step `seq` of the run starts, and its checked settings."""
    named = state.terms.settings.subgraphs[call.name]
    settings = _for_child(run, state, named.settings)
    checked = CATALOGUE[named.machine].settings.model_validate(settings)
    script = None
    if run.script_json:
        # By the steps, rolled-back ones included: a copy has the steps, and no children for them.
        nth = run.exchanges.filter(kind="child_run", name=call.tool).count() + 1
        script = script_of(run.script_json).for_child(call.name, nth).as_json()
    new = creating.NewRun(
        machine=named.machine,
        goal=call.goal,
        settings=settings,
        checked=checked,
        script=script,
        model=checked.model or run.model_name,
        owner_id=run.owner_id,
        by_operator=run.by_operator,
        site_rules=tuple(json.loads(site_rules)),
        site_hosts=tuple(json.loads(run.site_hosts_json)),
    )
    child = creating.unsaved(new)
    child.parent_id, child.parent_seq, child.child_name = run.pk, seq, call.name
    child.root_id = run.root_id or run.pk
    child.restored_at = run.restored_at
    return child, checked


def _for_child(run: Run, state: State, given: dict[str, Any]) -> dict[str, Any]:
    """Return a child's settings: it asks no person at a limit if its parent doesn't, and may contact its parent's
    hosts, unless its own settings differ."""
    if state.terms.settings.on_limit == "stop":
        given = {"on_limit": "stop", **given}
    hosts = run.settings.get("hosts")
    return {"hosts": hosts, **given} if hosts else given


def _first_row(child: Run, read: tuple[Fact, ...]) -> log.Row:
    """Return a child's first step: its goal may carry data that its parent has read."""
    machine = CATALOGUE[child.machine]
    state = machine.fold(machine.open(loading.terms_of(child, {})), read)
    facts = appending.facts_text(read)
    row = log.Row(1, "note", child.node, facts_json=facts, state_json=state.model_dump_json())
    child.head, child.head_hash = row.seq, row.hashed(child.head_hash)
    return row
