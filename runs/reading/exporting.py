"""A run as JSON for other systems. See docs/commands.md, "Export"."""

from __future__ import annotations

import json
from typing import Any

from runs.engine.machine import State, Terms
from runs.engine.sources import Source
from runs.engine.timeline import folded
from runs.machines import CATALOGUE
from runs.models import Artifact, Decision, Exchange, Interrupt, Run, Step
from runs.reading.compactions import CompactionView, compactions
from runs.reading.lines import line_of
from runs.store.artifacts import live_artifacts_of, row_name
from runs.store.db import of_one_moment
from runs.store.loading import load_window
from runs.store.shared_limits import SHARED

Data = dict[str, Any]


@of_one_moment
def export(run: Run) -> Data:
    """Return the whole run: its steps, budget, interrupts, files and exchanges."""
    exchanges = list(Exchange.objects.filter(run=run).order_by("seq"))
    steps = _steps(run, {exchange.seq: exchange for exchange in exchanges})
    state = steps[-1]["state"] if steps else opening_state(run)
    return {
        "format": 1,
        "run": _run(run),
        "steps": steps,
        "budget": {"text": _budget_text(run, state), "rows": _budget_rows(run)},
        "interrupts": [_interrupt(found) for found in _interrupts(run)],
        "artifacts": _artifacts(run, state, steps),
        "sources": [source.model_dump() for source in _sources(run)],
        "compactions": [_compaction(view) for view in compactions(run)],
        "exchanges": [_exchange(exchange) for exchange in exchanges],
    }


def opening_state(run: Run) -> Data:
    """Return the control state before the first step."""
    machine = CATALOGUE[run.machine]
    state: Data = machine.open(_terms(run)).model_dump(mode="json")
    return state


def _terms(run: Run) -> Terms:
    # The budget's words need only goal and settings: no tool is looked up.
    settings = CATALOGUE[run.machine].settings.model_validate(run.settings)
    return Terms(goal=run.goal, settings=settings)


def _run(run: Run) -> Data:
    return {
        "id": str(run.pk),
        "machine": run.machine,
        "goal": run.goal,
        "status": run.status,
        "exit_reason": run.exit_reason,
        "ok": run.ok,
        "answer": run.answer,
        "answer_source": run.answer_source,
        "node": run.node,
        "head": run.head,
        "parent": None if run.parent_id is None else str(run.parent_id),
        "origin": run.origin or None,
        "copied_from": None if run.copied_from_id is None else str(run.copied_from_id),
        "copied_upto": run.copied_upto,
        "continues": None if run.continues_id is None else str(run.continues_id),
        "settings": run.settings,
        "totals": {
            "model_calls": run.model_calls,
            "cached_model_calls": run.cached_model_calls,
            "tool_calls": run.tool_calls,
            "input_tokens": run.input_tokens,
            "output_tokens": run.output_tokens,
            "cost_usd": run.cost_usd,
            "active_seconds": round(run.active_seconds, 3),
        },
        "model": run.model_name,
        "owner": run.owner.get_username() if run.owner else None,
        "created_at": run.created_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
    }


def _steps(run: Run, exchanges: dict[int, Exchange]) -> list[Data]:
    state = opening_state(run)
    rows = []
    for step in Step.objects.filter(run=run).order_by("seq"):
        if step.state_json is not None:
            state = json.loads(step.state_json)
        rows.append(_step(run, step, state, exchanges.get(step.seq)))
    return rows


def _step(run: Run, step: Step, state: Data, exchange: Exchange | None) -> Data:
    facts = json.loads(step.facts_json)
    asked = json.loads(exchange.request_json) if exchange else None
    line = line_of(
        step.kind,
        step.node,
        step.edge,
        facts,
        asked,
        machine=run.machine,
        ends_replay=run.ends_replay(step.seq),
    )
    return {
        "seq": step.seq,
        "kind": step.kind,
        "live": step.live,
        "node": step.node,
        "edge": step.edge,
        "to": step.to,
        "state": state,
        "facts": facts,
        "summary": line.plain,
        "started_at": step.at.isoformat(),
        "ms": step.ms,
        "usage": _usage(exchange),
        "hash": step.hash,
    }


def _usage(exchange: Exchange | None) -> Data:
    if exchange is None or exchange.kind not in ("model_call", "compaction"):
        return {}
    answer = json.loads(exchange.answer_json or "{}")
    estimated = {"estimated": True} if (answer.get("usage") or {}).get("estimated") else {}
    return estimated | {
        "input_tokens": exchange.input_tokens,
        "output_tokens": exchange.output_tokens,
        "cost_usd": exchange.cost_usd,
    }


def _budget_text(run: Run, state: Data) -> str:
    return CATALOGUE[run.machine].budget_text(state_of(run, state))


def _budget_rows(run: Run) -> list[Data]:
    # People's raises of a family's limit are the store's own account, and no line of this run's budget.
    rows = run.budgets.exclude(scope=SHARED).order_by("id").values("scope", "name", "used", "limit")
    return [{**row, "used": _whole(row["used"]), "limit": _whole(row["limit"])} for row in rows]


def _whole(number: float) -> float | int:
    return int(number) if number == int(number) else number


def _interrupts(run: Run) -> list[Interrupt]:
    return list(Interrupt.objects.filter(run=run).select_related("decision").order_by("seq"))


def _interrupt(found: Interrupt) -> Data:
    decision: Decision | None = getattr(found, "decision", None)
    return {
        "id": str(found.pk),
        "kind": found.kind,
        "status": found.status,
        "seq": found.seq,
        "title": found.title,
        "why": found.why,
        "tool": found.tool,
        "args": found.args,
        "host": found.host,
        "effects": found.effects,
        "fingerprint": found.fingerprint,
        "revision": found.revision,
        "verdicts": found.verdicts,
        "deadline": found.deadline.isoformat() if found.deadline else None,
        "on_timeout": found.on_timeout,
        "decisions": [] if decision is None else [_decision(decision)],
    }


def _decision(decision: Decision) -> Data:
    return {
        "verdict": decision.verdict,
        "by": decision.by_name,
        "channel": decision.channel,
        "at": decision.at.isoformat(),
        "args": None if decision.args_json is None else json.loads(decision.args_json),
        "message": decision.message,
        "to_step": decision.to_step,
        "allow_host": decision.allow_host,
        "revision": decision.revision_seen,
        "fingerprint": decision.fingerprint_seen,
    }


def _artifacts(run: Run, state: Data, steps: list[Data]) -> list[Data]:
    """Return the artifacts in the machine's own registry, then other files of the run's live calls, each once."""
    names = {row.name: row.model_dump() for row in CATALOGUE[run.machine].artifacts(state_of(run, state))}
    newest = {made.name: made for made in live_artifacts_of(run).order_by("version")}
    for step in steps:
        for fact in step["facts"] if step["live"] else []:
            for name in fact.get("files") or []:
                kind = newest[name].kind if name in newest else "file"
                names.setdefault(name, {"name": name, "kind": kind, "error": None, "slot": None})
    return [row | _version(newest.get(row_name(row["name"]))) for row in names.values()]


def _version(made: Artifact | None) -> Data:
    """Return the name's version at the end of the run; nothing for a file from before versions were kept."""
    wanted = ("version", "media_type", "size", "sha256", "seq", "tool")
    return {name: getattr(made, name, None) for name in wanted}


def state_of(run: Run, state: Data) -> State:
    """Return a stored control state as the machine's own value."""
    return CATALOGUE[run.machine].state.model_validate({**state, "terms": _terms(run)})


def _sources(run: Run) -> tuple[Source, ...]:
    return folded(load_window(run, CATALOGUE[run.machine], run.head)).sources


def _compaction(view: CompactionView) -> Data:
    undone = view.undone
    return {
        "seq": view.seq,
        "live": not view.dead,
        "first": view.first,
        "last": view.last,
        "kept": list(view.kept),
        "tokens_before": view.tokens_before,
        "tokens_after": view.tokens_after,
        "state": view.state,
        "pinned": view.pinned,
        "carries_on": view.carries_on,
        "carried_on_by": view.carried_on_by,
        "wanted_by": view.wanted_by,
        "version": view.version,
        "versions": [
            {"version": one.number, "text": one.text, "by": one.by, "reason": one.reason, "seq": one.seq}
            for one in view.versions
        ],
        "undone": None
        if undone is None
        else {"by": undone.by, "reason": undone.reason, "at": undone.at.isoformat(), "seq": undone.seq},
    }


def _exchange(exchange: Exchange) -> Data:
    return {
        "seq": exchange.seq,
        "kind": exchange.kind,
        "name": exchange.name,
        "nth": exchange.nth,
        "attempt": exchange.attempt,
        "status": exchange.status,
        "request": json.loads(exchange.request_json),
        "answer": None if exchange.answer_json is None else json.loads(exchange.answer_json),
        "key": exchange.key,
        "input_tokens": exchange.input_tokens,
        "output_tokens": exchange.output_tokens,
        "cost_usd": exchange.cost_usd,
        "started_at": exchange.started_at.isoformat(),
        "answered_at": exchange.answered_at.isoformat() if exchange.answered_at else None,
    }
