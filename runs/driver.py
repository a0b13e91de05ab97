"""Drives a run: claim it, ask the kernel what next, commit the move, perform what was asked, until it parks or ends.

The loop is the same in a worker and in `launch --inline`. Only here are ports built. It holds no truth: whatever it
has in memory, a worker that takes the run over finds in the rows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone

from runs import live, store
from runs.adapters.openai_compatible import ModelSettings, OpenAICompatible
from runs.adapters.scripted import Script, ScriptedModel, parse_script
from runs.adapters.secrets import unseal
from runs.adapters.toolbox import Toolbox
from runs.engine.effects import (
    Answer,
    ChildRun,
    Effect,
    Failed,
    HumanCall,
    ModelCall,
    ModelReplied,
    ToolCall,
)
from runs.engine.facts import Exited
from runs.engine.kernel import Decision, advance, decide, uncertain
from runs.engine.machine import END, Block, BudgetRow, Machine, Terms
from runs.engine.moves import Ask, Go, Move, Rewind, Stop
from runs.engine.ports import Message, ModelPort, ModelRequest
from runs.engine.settings import LIMIT_NAMES
from runs.engine.snapshot import Pending
from runs.engine.timeline import messages, sanitized
from runs.engine.tools import ToolSpec
from runs.engine.values import canonical, fingerprint
from runs.machines import CATALOGUE
from runs.models import Interrupt, ModelProfile, Run, RunStatus

log = logging.getLogger(__name__)

POSTPONED_S = 30.0
"""Seconds until a run is tried again whose worker met a fault of our own."""

GLANCE_S = 0.5
"""Seconds between looks whether a call that is under way is still wanted."""

DELTA_S = 0.125
"""Seconds between pieces of streamed text that viewers are sent."""

RISKS = {"none": "low", "read": "low", "write": "medium", "send": "high", "execute": "high"}


class BadAnswer(Exception):
    """One of the answers given at launch does not fit the interrupt that opened."""

    def __init__(self, run_id: int, sentence: str) -> None:
        self.run_id = run_id
        self.sentence = sentence
        super().__init__(sentence)


# --- entrances --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slice:
    """How long a worker keeps a run before others get their turn: moves, and seconds of machine time."""

    moves: int = 50
    seconds: float = 5.0


WHOLE = Slice(sys.maxsize, float("inf"))
"""Where nobody else waits for this process."""


def drive(run_id: int) -> list[int]:
    """Drive the run for one slice, if it is due and nobody else has it. Which runs want a worker next."""
    lease = store.claim(run_id, secrets.token_hex(8))
    if lease is None:
        return []
    with _held(lease) as hold:
        try:
            return Journey(hold).travel(Slice())
        except store.Fenced:
            return []
        except BadAnswer as fault:
            log.warning("run %s: %s It waits for a person.", run_id, fault.sentence)
            return []
        except Exception:
            log.exception("run %s met a fault; it is tried again in %g s", run_id, POSTPONED_S)
            store.postpone(lease, POSTPONED_S)
            return []
        finally:
            store.let_go(lease)
            live.ring(run_id, 0)


def drive_inline(run_id: int) -> Run:
    """Drive the run, and the children it waits for, in this process until it ends or waits for a person."""
    while True:
        run = Run.objects.get(pk=run_id)
        if run.finished or run.status == RunStatus.PAUSED:
            return run
        if run.status == RunStatus.WAITING:
            child = Run.objects.filter(parent=run, ended_at__isnull=True).order_by("-pk").first()
            if child is None or not _moved(child):
                return Run.objects.get(pk=run_id)
            continue
        wait = (run.due_at - timezone.now()).total_seconds()
        if wait > 0:
            time.sleep(wait)
        _drive_strictly(run_id)


def _moved(child: Run) -> bool:
    """Drive a child as far as it goes; whether its parent can go on."""
    return drive_inline(child.pk).finished


def _drive_strictly(run_id: int) -> None:
    """One slice; a bad answer among the settings is the caller's to report."""
    lease = store.claim(run_id, f"inline-{os.getpid()}")
    if lease is None:
        return
    with _held(lease) as hold:
        try:
            Journey(hold).travel(WHOLE)
        except store.Fenced:
            return
        finally:
            store.let_go(lease)


# --- the hold on a run ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Hold:
    """A lease that is being renewed; `lost` once somebody else has the seat."""

    lease: store.Lease
    lost: bool = False
    looked_at: float = 0.0

    def wanted(self) -> bool:
        """Whether this worker still has the seat; looks at the database at most every GLANCE_S."""
        now = time.monotonic()
        if not self.lost and now - self.looked_at > GLANCE_S:
            self.looked_at = now
            self.lost = not Run.objects.filter(pk=self.lease.run_id, epoch=self.lease.epoch).exists()
        return not self.lost


class _Renewer:
    """One thread per process renews every lease that the process holds."""

    def __init__(self) -> None:
        self._holds: dict[int, Hold] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def add(self, hold: Hold) -> None:
        """Renew `hold` from now on."""
        with self._lock:
            self._holds[id(hold)] = hold
            if self._thread is None or not self._thread.is_alive() or self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._renew_all, name="lease-renewer", daemon=True)
                self._thread.start()

    def remove(self, hold: Hold) -> None:
        """Renew it no longer."""
        with self._lock:
            self._holds.pop(id(hold), None)
            if not self._holds:
                self._wake.set()

    def _renew_all(self) -> None:
        while True:
            self._wake.wait(store.RENEW_S)
            self._wake.clear()
            with self._lock:
                holds = list(self._holds.values())
                if not holds:
                    self._thread = None
                    return
            for hold in holds:
                try:
                    hold.lost = hold.lost or not store.renew(hold.lease)
                except Exception:  # the database may be away for a moment; the lease outlasts three tries
                    log.exception("the lease of run %s could not be renewed", hold.lease.run_id)
            connection.close()


_renewer = _Renewer()


@contextmanager
def _held(lease: store.Lease) -> Iterator[Hold]:
    hold = Hold(lease, looked_at=time.monotonic())
    _renewer.add(hold)
    try:
        yield hold
    finally:
        _renewer.remove(hold)


# --- ports ------------------------------------------------------------------------------------------------------


class NoSuchModel(Exception):
    """A run names a model that the site does not have, or has switched off."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"There is no model {name!r} here. Launch a run like this one with another model.")


@dataclass(slots=True)
class Ports:
    """The world of one run."""

    model: ModelPort
    model_key: str
    """Model and parameters, as far as the cache of replies tells them apart."""
    reads_prompt: bool
    guided: bool
    tools: Toolbox


def ports_of(run: Run) -> Ports:
    """The ports that the run's settings name."""
    wanted = CATALOGUE[run.machine].settings.model_validate_json(run.settings_json)
    script = _script(run.script_json) if run.script_json else None
    tools = Toolbox(wanted.tools, store.folder_of(run.pk), script, wanted.subgraphs)
    if script is not None:
        return Ports(ScriptedModel(script), "script", False, False, tools)
    profile = ModelProfile.objects.filter(name=run.model, enabled=True).first()
    if profile is None:
        raise NoSuchModel(run.model)
    model = OpenAICompatible(model_settings(profile))
    return Ports(model, f"{profile.base_url} {profile.model_id} 0", True, profile.guided, tools)


@lru_cache(maxsize=64)
def _script(text: str) -> Script:
    """A script, read once for all the slices of its run."""
    return parse_script(text)


def model_settings(profile: ModelProfile) -> ModelSettings:
    """A model's profile as its adapter takes it; the key from its variable, else unsealed."""
    key = os.environ.get(profile.key_variable, "") if profile.key_variable else ""
    if not key and profile.sealed_key:
        key = unseal(profile.sealed_key, settings.SECRET_KEY)
    return ModelSettings.model_validate(
        {
            "name": profile.name,
            "base_url": profile.base_url,
            "model_id": profile.model_id,
            "api_key": key,
            "output_mode": profile.output_mode,
            "input_price": profile.input_price,
            "output_price": profile.output_price,
            "context_tokens": profile.context_tokens,
            "max_output_tokens": profile.max_output_tokens,
            "timeout_s": profile.timeout_s,
            "guided": profile.guided,
        }
    )


def tool_specs(run: Run) -> dict[str, ToolSpec]:
    """Every tool that the run knows of; those it may call are `permitted`."""
    wanted = CATALOGUE[run.machine].settings.model_validate_json(run.settings_json)
    script = _script(run.script_json) if run.script_json else None
    return dict(Toolbox(wanted.tools, store.folder_of(run.pk), script, wanted.subgraphs).specs)


# --- the journey ------------------------------------------------------------------------------------------------


class Journey:
    """One slice of a run: what its worker keeps in memory between moves."""

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.run = Run.objects.get(pk=hold.lease.run_id)
        self.mark = time.monotonic()
        self.unwritten: tuple[store.Row, store.Asked] | None = None
        """A repeatable ask that is written together with what follows from it."""
        self.woken: list[int] = []
        """Other runs that want a worker now: a child that was started, a parent that was answered."""
        self.fresh_start = False
        """Whether this worker itself has just written the ask that must not be repeated."""

    def travel(self, limit: Slice) -> list[int]:
        """Move after move, until the run parks or ends or the slice is over. Which runs want a worker next."""
        try:
            self._prepare()
        except Exception as fault:
            self._cannot_start(fault)
            return self.woken
        started, moves = time.monotonic(), 0
        answer = self.loaded.answer
        while self.snapshot.node != END:
            if self.snapshot.pending is not None and answer is None:
                if self._is_parked():
                    self._park()
                    return self.woken
                if (ask := self._uncertain()) is not None:
                    self._write(Decision(ask, self.snapshot.totals), None)
                    return self._parked_now()
                answer = self._perform(self.snapshot.pending)
            move = self._step(answer)
            answer = None
            moves += 1
            if isinstance(move, Ask) and (move.delay_s or self._is_parked()):
                return self._parked_now()
            over = moves >= limit.moves or time.monotonic() - started > limit.seconds
            if over and self.unwritten is None and self.snapshot.node != END:
                return [*self.woken, self.run.pk]
        return self.woken

    def _prepare(self) -> None:
        self.machine: Machine = CATALOGUE[self.run.machine]
        self.ports = ports_of(self.run)
        self.terms: Terms = store.terms_of(self.run, self.ports.tools.specs, self.ports.guided)
        self.loaded = store.load(self.run, self.terms)
        self.snapshot = self.loaded.snapshot
        self.budgets = self.loaded.budgets
        self.head_hash, self.prompt_hash = self.run.head_hash, self.run.prompt_hash
        self.attempts = Counter(store.attempts_of(self.run))
        self.remembers = bool(getattr(self.terms.settings, "cache", False))
        self.blocks: list[Block] | None = None
        self.asked: store.Asked | None = self._stored_ask()
        self.system_hash = _digest(self.machine.system(self.terms), self.run.goal, self.ports.model_key)
        self.last_reply: int | None = None
        self.prices = any(rule.when.next_cost_usd is not None for rule in self.terms.settings.rules)

    def _stored_ask(self) -> store.Asked | None:
        exchange = self.loaded.exchange
        if exchange is None:
            return None
        return store.Asked(
            seq=exchange.seq,
            kind=exchange.kind,
            name=exchange.name,
            request=exchange.request_json,
            status=exchange.status,
            key=exchange.key,
            nth=exchange.nth,
            attempt=exchange.attempt,
            prompt_hash=exchange.prompt_hash,
        )

    def _cannot_start(self, fault: Exception) -> None:
        """The installation lacks what the run needs: it stops with a reason, and takes no worker with it."""
        if isinstance(fault, store.Fenced):
            raise fault
        log.exception("run %s can't be driven", self.run.pk)
        self.machine = CATALOGUE[self.run.machine]
        self.terms = store.terms_of(self.run, {})
        self.loaded = store.load(self.run, self.terms)
        self.snapshot, self.budgets = self.loaded.snapshot, self.loaded.budgets
        self.head_hash, self.prompt_hash = self.run.head_hash, self.run.prompt_hash
        self.blocks, self.asked, self.last_reply = None, None, None
        reason = "model_error" if isinstance(fault, NoSuchModel) else "fatal_error"
        stop = Stop(reason, (Exited(reason=reason, message=str(fault) or type(fault).__name__),))
        self._write(Decision(stop, self.snapshot.totals), None)

    # what next

    def _step(self, answer: Answer | None) -> Move:
        """One move, decided and written. An answer whose conclusion can't be drawn is kept all the same."""
        self._tick()
        try:
            decision = decide(self.machine, self.snapshot, answer)
            self._write(decision, answer)
        except BaseException:
            self._keep(answer)
            raise
        return decision.move

    def _tick(self) -> None:
        """Add the time since the last look to what the run has been active."""
        now = time.monotonic()
        active = self.snapshot.totals.active_seconds + now - self.mark
        self.mark = now
        totals = replace(self.snapshot.totals, active_seconds=active)
        self.snapshot = replace(self.snapshot, totals=totals)

    def _keep(self, answer: Answer | None) -> None:
        """The paid answer is saved: for the next worker where its ask is written, else as cost of the run."""
        if answer is None or self.asked is None:
            return
        if self.asked.answer is None:
            self.asked.answered(answer)
        if self.unwritten is None:
            store.save_answer(self.run.pk, self.asked)
        else:
            store.charge(self.run.pk, self.asked)

    # writing

    def _write(self, decision: Decision, answer: Answer | None) -> None:
        move = decision.move
        if self._may_wait(move, answer):
            assert isinstance(move, Ask)
            self._hold_back(move, decision)
            return
        batch = self._batch(decision)
        self._conclude(batch, answer)
        if isinstance(move, Rewind):
            self._go_back(batch, move)
        else:
            self._go_on(batch, decision)
        self.head_hash = store.commit(batch)
        self._written(batch, move)

    def _may_wait(self, move: Move, answer: Answer | None) -> bool:
        """A repeatable effect that is asked first is written with what follows from it, in one transaction."""
        return (
            isinstance(move, Ask)
            and answer is None
            and self.unwritten is None
            and not move.delay_s
            and _repeatable(move.effect)
        )

    def _hold_back(self, move: Ask, decision: Decision) -> None:
        row, asked = self._ask_rows(move)
        self.unwritten = (row, asked)
        self.asked = asked
        self.snapshot = advance(self.machine, self.snapshot, move, decision.totals)

    def _batch(self, decision: Decision) -> store.Batch:
        return store.Batch(
            run_id=self.run.pk,
            epoch=self.hold.lease.epoch,
            node=self.snapshot.node,
            totals=decision.totals,
            head_hash=self.head_hash,
            prompt_hash=self.prompt_hash,
        )

    def _conclude(self, batch: store.Batch, answer: Answer | None) -> None:
        """The ask that is answered: written now where it was held back, else completed."""
        if self.unwritten is not None:
            row, asked = self.unwritten
            batch.rows.append(row)
            batch.asked.append(asked)
            batch.prompt_hash = self._shown(batch.prompt_hash, row)
            if answer is not None:
                asked.answered(answer)
        elif answer is not None and self.asked is not None and self.asked.answer is None:
            if self.asked.status != "answered":
                self.asked.answered(answer)
                batch.concluded = self.asked

    def _go_on(self, batch: store.Batch, decision: Decision) -> None:
        move = decision.move
        before = self.snapshot
        asked: store.Asked | None = None
        if isinstance(move, Ask):
            row, asked = self._ask_rows(move)
            batch.asked.append(asked)
        else:
            row = self._row(move)
        after = advance(self.machine, before, move, decision.totals)
        row.state = _changed(before.state, after.state)
        batch.rows.append(row)
        batch.node = after.node
        batch.prompt_hash = self._shown(batch.prompt_hash, row, move)
        self._changes(batch, move, after)
        if isinstance(move, Go) and self.remembers and (before.node, move.edge) == self.machine.remembers:
            batch.remembered = self.last_reply
        self.snapshot = after
        self.asked = asked

    def _row(self, move: Move) -> store.Row:
        snapshot = self.snapshot
        facts = store.facts_text(move.facts)
        match move:
            case Go(edge=edge):
                to = self.machine.targets[(snapshot.node, edge)]
                return store.Row(
                    snapshot.head + 1, "transition", snapshot.node, edge, to, facts, ms=self._ms()
                )
            case Stop():
                return store.Row(snapshot.head + 1, "stop", snapshot.node, facts=facts, ms=self._ms())
        raise TypeError(f"{move} has no row of its own here")

    def _ask_rows(self, move: Ask) -> tuple[store.Row, store.Asked]:
        seq = self.snapshot.head + 1
        facts = store.facts_text(move.facts)
        row = store.Row(seq, "ask", self.snapshot.node, facts=facts)
        if move.facts:
            row.state = _changed(self.snapshot.state, self.machine.fold(self.snapshot.state, move.facts))
        effect = move.effect
        kept_key = self.asked.key if move.attempt > 1 and self.asked is not None else ""
        status = "started" if isinstance(effect, ToolCall) and not effect.repeatable else "asked"
        asked = store.Asked(
            seq=seq,
            kind=effect.kind,
            name=_name(effect),
            request=effect.model_dump_json(),
            status="asked" if move.delay_s else status,
            key=kept_key or f"run-{self.run.pk}-{seq}",
            attempt=move.attempt,
        )
        if isinstance(effect, ToolCall):
            asked.fingerprint = effect.fingerprint
        elif isinstance(effect, ChildRun):
            asked.fingerprint = fingerprint(f"agent.{effect.name}", {"goal": effect.goal})
        return row, asked

    def _changes(self, batch: store.Batch, move: Move, after: Any) -> None:
        """Budget lines that changed, and what the run's row says beside its head."""
        lines = list(self.machine.budget(after.state))
        for name in LIMIT_NAMES:
            if name in after.limits:
                used = round(after.totals.used(name), 10)
                lines.append(BudgetRow(scope="limits", name=name, used=used, limit=after.limits[name]))
        for line in lines:
            if self.budgets.get((line.scope, line.name)) != (line.used, line.limit):
                self.budgets[line.scope, line.name] = (line.used, line.limit)
                batch.budgets.append(line)
        if after.node == END:
            batch.changes = store.ended(self.machine, after.state)
            batch.parent = store.for_parent(self.run, batch.changes, after.totals.cost_usd)
        elif isinstance(move, Ask):
            self._parking(batch, move)

    def _parking(self, batch: store.Batch, move: Ask) -> None:
        """An ask that no worker waits for: its person, its child, its moment."""
        match move.effect:
            case HumanCall() as call:
                batch.changes = {"status": RunStatus.WAITING.value}
                batch.interrupt = self._interrupt(call, batch.rows[-1].seq)
            case ChildRun() as call:
                batch.changes = {"status": RunStatus.WAITING.value}
                batch.child = self._child(call, batch.rows[-1].seq)
            case _ if move.delay_s:
                due = timezone.now() + timedelta(seconds=move.delay_s)
                batch.changes = {"status": RunStatus.QUEUED.value, "due_at": due}

    def _go_back(self, batch: store.Batch, move: Rewind) -> None:
        self.loaded.snapshot = self.snapshot
        self.run.node, self.run.head = self.snapshot.node, self.snapshot.head
        back, after = store.rewind_batch(self.loaded, move)
        batch.rows += back.rows
        batch.node, batch.prompt_hash = after.node, back.prompt_hash
        batch.budgets, batch.dead_after = back.budgets, back.dead_after
        for line in batch.budgets:
            self.budgets[line.scope, line.name] = (line.used, line.limit)
        self.snapshot, self.asked, self.blocks = after, None, None

    def _written(self, batch: store.Batch, move: Move) -> None:
        """After the commit, and only then, viewers are told."""
        self.unwritten = None
        self.prompt_hash = batch.prompt_hash
        self.fresh_start = bool(batch.asked) and batch.asked[-1].status == "started"
        if isinstance(move, Rewind):
            store.stop_children(self.run.pk, move.to)
        live.ring(self.run.pk, self.snapshot.head)
        if batch.interrupt is not None:
            live.ring_inbox()
        if batch.child is not None:
            self.woken.append(batch.child[0].pk)
        if batch.parent is not None:
            self.woken.append(batch.parent[0])
            live.ring(batch.parent[0], 0)

    def _shown(self, prompt_hash: str, row: store.Row, move: Move | None = None) -> str:
        """The hash chain over what the model has been shown, with this row's facts."""
        if row.facts == "[]":
            return prompt_hash
        facts = move.facts if move is not None else self.machine.facts.validate_json(row.facts)
        blocks = [block for fact in facts if (block := self.machine.block(fact)) is not None]
        if self.blocks is not None:
            self.blocks += blocks
        return store.prompt_chain(prompt_hash, blocks)

    def _ms(self) -> float:
        """Milliseconds of work on the move at hand."""
        started = self.asked.started_at if self.asked is not None else None
        if started is not None and self.unwritten is not None:
            return round((timezone.now() - started).total_seconds() * 1000, 3)
        return round((time.monotonic() - self.mark) * 1000, 3)

    # parking

    def _is_parked(self) -> bool:
        pending = self.snapshot.pending
        return pending is not None and isinstance(pending.effect, HumanCall | ChildRun)

    def _park(self) -> None:
        """Nothing to do until somebody answers."""
        held = Run.objects.filter(pk=self.run.pk, epoch=self.hold.lease.epoch, status=RunStatus.RUNNING)
        held.update(status=RunStatus.WAITING)

    def _parked_now(self) -> list[int]:
        """The ask is written. An answer that was given at launch is applied at once."""
        pending = self.snapshot.pending
        if pending is None or not isinstance(pending.effect, HumanCall):
            return self.woken
        given = store.given_answer(self.run.pk, self.terms.settings.answers)
        if given is None:
            return self.woken
        said = store.Said(channel="settings", by_name="the launch settings", **given.model_dump())
        interrupt = Interrupt.objects.get(run=self.run, seq=pending.seq)
        try:
            store.decide(interrupt.pk, said)
        except store.BadDecision as fault:
            raise BadAnswer(self.run.pk, fault.sentence) from fault
        live.ring_inbox()
        return [*self.woken, self.run.pk]

    def _uncertain(self) -> Ask | None:
        """A call that was started by a worker that is gone: repeated with its key, or a person is asked."""
        pending, asked = self.snapshot.pending, self.asked
        if pending is None or asked is None or asked.status != "started" or self.fresh_start:
            return None
        effect = pending.effect
        if isinstance(effect, ToolCall) and (effect.repeatable or effect.idempotent):
            return None
        return uncertain(pending)

    def _interrupt(self, call: HumanCall, seq: int) -> Interrupt:
        held = call.holds
        tool, args, effects = _held_call(held)
        spec = self.terms.tools.get(tool)
        deadline = timezone.now() + timedelta(seconds=call.deadline_s) if call.deadline_s else None
        return Interrupt(
            run=self.run,
            seq=seq,
            kind=call.about,
            title=call.title,
            why=call.why,
            tool=tool,
            args_json=canonical(args),
            schema_json=canonical(spec.parameters if spec else {}),
            effects=effects,
            risk=RISKS.get(effects, "unknown") if tool else "low",
            fingerprint=fingerprint(tool, args) if tool else "",
            limit=call.limit,
            verdicts_json=json.dumps(self._verdicts(call)),
            deadline=deadline,
            on_timeout=call.on_timeout,
        )

    def _verdicts(self, call: HumanCall) -> list[str]:
        """What may be answered here: only a tool's arguments can be edited."""
        editable = isinstance(call.holds, ToolCall)
        return [verdict for verdict in call.verdicts if verdict != "edit" or editable]

    def _child(self, call: ChildRun, seq: int) -> tuple[Run, Any]:
        named = self.terms.settings.subgraphs[call.name]
        checked = CATALOGUE[named.machine].settings.model_validate(named.settings)
        script = _script(self.run.script_json).for_child(call.name) if self.run.script_json else None
        new = store.NewRun(
            machine=named.machine,
            goal=call.goal,
            settings=named.settings,
            checked=checked,
            script=_plain(script),
            model=checked.model or self.run.model,
            owner_id=self.run.owner_id,
            site_rules=tuple(json.loads(self.run.site_rules_json)),
        )
        child = store.unsaved(new)
        child.parent_id, child.parent_seq, child.child_name = self.run.pk, seq, call.name
        return child, checked

    # the world

    def _perform(self, pending: Pending) -> Answer:
        """Do what was asked, and give what was answered. Nothing but answers comes out of a port."""
        asked = self.asked
        assert asked is not None
        asked.started_at = timezone.now()
        match pending.effect:
            case ModelCall() as call:
                return self._ask_model(call, asked, pending.seq)
            case ToolCall() as tool_call:
                if asked.status == "asked" and not tool_call.repeatable:
                    store.start(self.run.pk, self.hold.lease.epoch, asked.seq)
                asked.nth = self._next_attempt(asked)
                return self.ports.tools.call(tool_call, asked.nth, asked.key)
        raise TypeError(f"{pending.effect.kind} is not performed by a worker")

    def _next_attempt(self, asked: store.Asked) -> int:
        if asked.nth == 0:
            self.attempts[f"{asked.kind} {asked.name}"] += 1
            asked.nth = self.attempts[f"{asked.kind} {asked.name}"]
        return asked.nth

    def _ask_model(self, call: ModelCall, asked: store.Asked, seq: int) -> Answer:
        shown = self.prompt_hash
        if self.unwritten is not None:
            shown = self._peek(shown, self.unwritten[0])
        asked.prompt_hash = _digest(self.system_hash, shown, call.reply, call.tail, str(call.sanitize))
        self.last_reply = seq
        if call.cacheable and self.remembers and (text := self._remembered(asked.prompt_hash)) is not None:
            return ModelReplied(text=text, cached=True)
        asked.nth = self._next_attempt(asked)
        request = ModelRequest.model_construct(
            role=call.role,
            nth=asked.nth,
            messages=self._messages(call) if self.ports.reads_prompt else (),
            reply_schema=self.machine.reply_schema(call.reply, self.snapshot.state)
            if self.ports.reads_prompt
            else None,
            reply_name=call.reply,
            temperature=0.0,
        )
        return self.ports.model.ask(request, _Watcher(self.hold, self.snapshot.node).watch)

    def _peek(self, shown: str, row: store.Row) -> str:
        """The chain with an ask's own facts, which are written only with its answer."""
        if row.facts == "[]":
            return shown
        facts = self.machine.facts.validate_json(row.facts)
        return store.prompt_chain(shown, [block for fact in facts if (block := self.machine.block(fact))])

    def _remembered(self, prompt_hash: str) -> str | None:
        """The reply that this run was given to the same prompt before, once it had passed validation."""
        found = self.run.exchanges.filter(prompt_hash=prompt_hash, remembered=True).order_by("-seq").first()
        if found is None or found.answer_json is None:
            return None
        text: str = json.loads(found.answer_json)["text"]
        return text

    def _messages(self, call: ModelCall) -> tuple[Message, ...]:
        if self.blocks is None:
            self.blocks = store.load_blocks(self.run, self.machine, self.snapshot.head)
        blocks = list(self.blocks)
        if self.unwritten is not None:
            facts = self.machine.facts.validate_json(self.unwritten[0].facts)
            blocks += [block for fact in facts if (block := self.machine.block(fact)) is not None]
        shown = sanitized(blocks) if call.sanitize else blocks
        return messages(self.machine.system(self.terms), self.run.goal, shown, call.tail)


class _Watcher:
    """Looks at a reply while it streams: viewers see it, and a call that nobody wants any more is cut."""

    def __init__(self, hold: Hold, node: str) -> None:
        self.hold = hold
        self.node = node
        self.sent_at = 0.0

    def watch(self, text: str) -> bool:
        """Whether the call is still wanted."""
        now = time.monotonic()
        if text and now - self.sent_at > DELTA_S:
            self.sent_at = now
            live.delta(self.hold.lease.run_id, self.node, text)
        return self.hold.wanted()


def _repeatable(effect: Effect) -> bool:
    return isinstance(effect, ModelCall) or (isinstance(effect, ToolCall) and effect.repeatable)


def _name(effect: Effect) -> str:
    match effect:
        case ModelCall(role=role):
            return role
        case ToolCall(tool=tool):
            return tool
        case ChildRun(name=name):
            return f"agent.{name}"
        case HumanCall(about=about):
            return about
    return effect.kind


def _held_call(held: Effect | None) -> tuple[str, dict[str, Any], str]:
    match held:
        case ToolCall(tool=tool, args=args, effects=effects):
            return tool, args, effects
        case ChildRun(name=name, goal=goal):
            return f"agent.{name}", {"goal": goal}, "none"
    return "", {}, ""


def _changed(before: Any, after: Any) -> str | None:
    """The state as text, where it is another one."""
    return None if after is before or after == before else after.model_dump_json()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _plain(script: Script | None) -> dict[str, Any] | None:
    return script.model_dump(mode="json", exclude_unset=True) if script is not None else None
