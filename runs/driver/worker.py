"""Drive a run for one slice: decide the next move, write it, perform it, until the run parks, ends or is left.

The ask of a repeatable effect is held back, and written together with its conclusion in one transaction. Any other ask
is written before its effect begins (docs/runtime.md, "Commits").
"""

from __future__ import annotations

import logging
import time
from typing import get_args

from pydantic import ValidationError

from runs import live
from runs.adapters.scripted import BadScript
from runs.driver import spool
from runs.driver.attempts import Attempts
from runs.driver.batches import can_be_held_back, gather, hold_back, opened
from runs.driver.holds import Hold, Leaving
from runs.driver.looking_again import decided, move_instead
from runs.driver.performing import Performer
from runs.driver.ports import NoModel, ports_of
from runs.driver.position import Between, Gathered, HeldBack, Position, Settled, Started, Written
from runs.driver.slices import BadAnswer, Slice
from runs.driver.window import Reader
from runs.engine.effects import (
    Answer,
    ChildFinished,
    Compaction,
    ModelCall,
    ModelReplied,
    Role,
    Summarised,
    ToolCall,
)
from runs.engine.facts import Exited, RangeSummarised, SiteRulesChanged
from runs.engine.kernel import asked_anew
from runs.engine.machine import END, Block, Terms
from runs.engine.moves import Ask, Compact, Go, Move, Rewind, Stop
from runs.engine.outward import carried_to
from runs.engine.rules import named
from runs.engine.settling import MORE_ROOM, Decision, cost_of
from runs.engine.timeline import needed
from runs.engine.worker_questions import lost_too_often
from runs.failpoints import failpoint
from runs.models import Run, RunStatus
from runs.store import (
    appending,
    artifacts,
    decisions,
    deeds,
    errors,
    halting,
    leases,
    loading,
    restored,
    shared_limits,
    site_rules,
)
from runs.store.log import Asked, Batch, Row, commit

log = logging.getLogger(__name__)

RULES_S = 1.0
"""Seconds for which the site's rules are not read again, except before a call with side effects."""

MOST_ROWS, LONGEST_S = 50, 0.1
"""Steps and seconds after which the gathered moves are committed even if no effect begins."""


class FaultAgain(Exception):
    """Each worker that drives the run meets a fault of our own code."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"{leases.MOST_LOST} workers in a row met a fault here. The last one: {fault}")


UNUSABLE = (NoModel, BadScript, ValidationError, FaultAgain)
"""Faults of the installation that keep a run from being driven at all; a retry would not help."""


class Worker:
    """Drives its run for one slice. `at` is its position in the run."""

    at: Position

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.run = Run.objects.get(pk=hold.lease.run_id)
        self.woken: list[int] = []
        """Other runs that want a worker now: a started child, an answered parent."""
        self.rules_read_at = -RULES_S

    def drive(self, limit: Slice) -> list[int]:
        """Drive the run for one slice. Return the runs that want a worker next."""
        try:
            if (times := leases.lost_in_a_row(self.run)) >= leases.MOST_LOST and self._ask_a_person(times):
                return self.woken
            self.prepare()
        except UNUSABLE as fault:
            self._refuse(fault)
            return self.woken
        try:
            goes_on = self._make_moves(limit)
        finally:
            self.flush()  # moves gathered before a fault, too
        return [*self.woken, self.run.pk] if goes_on else self.woken

    def _make_moves(self, limit: Slice) -> bool:
        """Make moves until the run parks, ends or is left. Return whether it wants a worker at once."""
        at, answer = self.at, self.at.loaded.answer
        started, moves = time.monotonic(), 0
        while at.snapshot.node != END:
            if self.hold.leaving and not isinstance(at.phase, Started):
                return True
            if at.snapshot.pending is not None and answer is None:
                if at.parked:
                    return self._parked()
                try:
                    answer = self._perform()
                except (Leaving, halting.Halted):
                    return True
                if answer is None:
                    continue  # another ask is written in its place
                failpoint("after_effect")
            move = self._step(answer)
            answer = None
            moves += 1
            if isinstance(move, Ask) and (move.delay_s or at.parked):
                return self._parked()
            if isinstance(at.phase, HeldBack | Started) or at.snapshot.node == END:
                continue  # another worker can't go on from here
            if moves >= limit.moves:
                return True
            if time.monotonic() - started > limit.seconds:
                if leases.others_wait():
                    return True
                started = time.monotonic()
        return False

    def _parked(self) -> bool:
        """Leave the run with its ask. Return whether it goes on at once: the question has its answer already."""
        match self.at.phase:
            case Settled(unfit=None):
                return True
            case Settled(unfit=errors.BadDecision() as fault):
                raise BadAnswer(fault.sentence) from fault
        held = Run.objects.filter(pk=self.run.pk, epoch=self.at.epoch, status=RunStatus.RUNNING)
        held.update(status=RunStatus.WAITING)
        return False

    # --- beginning --------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Read the run once, and build its world."""
        artifacts.clear_parts(self.run.pk)
        restored.tell_restored(self.run)
        self.ports = ports_of(self.run)
        self.ports.tools.may_contact = lambda host: not carried_to(self.at.snapshot.state, host)
        terms = loading.terms_of(self.run, self.ports.tools.specs, guided=self.ports.guided, still=True)
        self._load(terms)
        limited = self.run.root_id is not None or self.at.snapshot.limits
        may_share = bool(limited and shared_limits.may_share(self.run))
        if may_share and self.run.root_id is None and shared_limits.take_over(self.run):
            self._load(terms)
        self.attempts = Attempts(self.run, self.hold.lease, self.ports, may_share=may_share)
        self.reader = Reader(self.at, self.ports, self.shown)
        self.performer = Performer(self.at, self.hold, self.ports, self.reader, self.attempts)
        if getattr(terms.settings, "cache", False) and self.at.machine.remembers:
            self.at.remembers = self.at.machine.remembers
            self.at.last_reply = loading.last_reply(self.run.pk)
        self._follow_rules()

    def _load(self, terms: Terms) -> None:
        self.at = Position(self.run, self.hold.lease.epoch, terms)

    def _refuse(self, fault: Exception) -> None:
        """Stop the run with a reason, so it brings down no worker."""
        log.warning("run %s can't be driven: %s", self.run.pk, fault)
        self._load(loading.terms_of(self.run, {}))
        no_model = isinstance(fault, NoModel)
        reason = "model_error" if no_model else "fatal_error"
        why = f"{fault} Then fork this run to continue." if no_model else str(fault)
        answer = self.at.loaded.answer
        stop = Stop(reason, (*cost_of(answer), Exited(reason=reason, message=why)))
        self.write(Decision(stop, self.at.snapshot.totals.after(answer)), None)

    def _ask_a_person(self, times: int) -> bool:
        """Open a question instead of a retry; no ports are built, for they may be the cause.

        A waiting answer would be lost to a question: then the run is paused. Return False if it only parks.
        """
        faults = leases.faults_in_a_row(self.run)
        if len(faults) == leases.MOST_LOST:
            raise FaultAgain(faults[0])
        self._load(loading.terms_of(self.run, {}))
        if self.at.loaded.answer is not None:
            leases.pause_after_losses(self.run, times, len(faults))
        elif self.at.parked:
            return False
        else:
            self._put(lost_too_often(self.at.snapshot, times, len(faults)))
        return True

    # --- deciding ---------------------------------------------------------------------------------------------------

    def _step(self, answer: Answer | None) -> Move:
        """Decide and write one move. An answer that can't be concluded is kept all the same."""
        at, asked, pending = self.at, self.at.asked, self.at.snapshot.pending
        at.tick()
        if answer is None:
            self._follow_rules()
        cut = isinstance(answer, ModelReplied) and answer.ended == "length"
        try:
            self._look(MORE_ROOM if cut else 1)
            decision = decided(at, answer)
        except BaseException:
            self.keep(asked, answer)
            raise
        self.write(decision, answer)
        move = decision.move
        if isinstance(move, Rewind):
            self.performer.went_back = True
            at.last_reply = loading.last_reply(self.run.pk)
        if isinstance(move, Compact):
            made = next(fact for fact in move.facts if isinstance(fact, RangeSummarised))
            self.reader.compacted(at.snapshot.head, made)
        elif isinstance(answer, Summarised) and pending and isinstance(pending.effect, Compaction):
            self.reader.not_used(pending.effect)
        return move

    def _look(self, room: int = 1) -> None:
        """Add to the snapshot the data beside the steps: the window, the family's usage, the next price.

        `room` is the factor on the next reply's usual length.
        """
        at = self.at
        if (window := self.reader.window()) is not at.snapshot.window:
            at.snapshot = at.snapshot._replace(window=window)
        if self.attempts.may_share:
            shared = shared_limits.limits_shared_by(self.run)
            roles = get_args(Role) if shared else ()
            uses = {role: use for role in roles if (use := self.attempts.next_use(role))}
            at.snapshot = at.snapshot._replace(shared=shared, next_use=uses)
        if any(rule.when.next_cost_usd is not None for _, rule in at.snapshot.rules):
            at.snapshot = at.snapshot._replace(next_cost_usd=self.reader.price() * room)

    def shown(self) -> list[Block]:
        """Return the model's blocks, with the held-back ask."""
        at = self.at
        if at.blocks is None:
            self.flush()
            at.blocks = loading.load_window(self.run, at.machine, at.snapshot.head)
        return at.blocks + at.blocks_held_back()

    def _perform(self) -> Answer | None:
        """Perform the open ask. Return its answer; None if the loop has to check the run again."""
        done: Answer | Move | None
        try:
            done = None if self._is_switched() else self.performer.perform()
            if done is None:
                done = self._without_room()
        except deeds.LookAgain:
            site = site_rules.site_rules()
            if isinstance(self.at.phase, HeldBack) and site.text != self.at.site_rules:
                raise Leaving(
                    self.run.pk
                ) from None  # its ask is not written: the next slice decides by these rules
            self._follow(site)
            done = move_instead(self.at)
            if done is None:
                self._write_noted()
                return None
        if isinstance(done, Move):
            self._put(done)
            return None
        return done

    def _is_switched(self) -> bool:
        """Return True if the open ask is the first of a fallback: the gates know only the model before it."""
        waits = self.at.snapshot.pending
        return waits is not None and isinstance(waits.effect, ModelCall) and waits.effect.switched

    def _without_room(self) -> Move:
        """Let the gates check again, now or next time: another run of the family was quicker, a lost call counts, or
        the model is another.
        """
        at, waits = self.at, self.at.snapshot.pending
        assert waits is not None
        if not isinstance(at.phase, HeldBack):
            self._look()
            move = asked_anew(at.machine, at.snapshot)
            if not isinstance(move, Ask) or move.effect != waits.effect:
                return move
        raise Leaving(self.run.pk)

    # --- the site's rules -------------------------------------------------------------------------------------------

    def _follow_rules(self) -> None:
        """Apply the site's current rules, at most a second old, before the gates are asked."""
        waits = self.at.snapshot.pending
        # A waiting call passed under earlier rules; it is checked again directly before it begins.
        if isinstance(self.at.phase, HeldBack) or (waits is not None and isinstance(waits.effect, ToolCall)):
            return
        if time.monotonic() - self.rules_read_at >= RULES_S:
            self.rules_read_at = time.monotonic()
            self._follow(site_rules.site_rules())

    def _follow(self, site: site_rules.SiteRules) -> None:
        """Apply these rules of the site from here on; if they differ, the next batch says so first."""
        at = self.at
        if site.text == at.site_rules:
            return
        self.flush()  # the calls that were reached are counted in the database
        seq, facts = at.snapshot.head + 1, appending.facts_text((SiteRulesChanged(rules=site.told),))
        at.noted.append(Row(seq, "note", at.snapshot.node, facts_json=facts))
        rules = named(at.snapshot.state.terms, site.rules)
        calls = loading.reached_calls(self.run, rules, seq)
        at.snapshot = at.snapshot._replace(head=seq, rules_now=rules, calls=calls)
        at.site_rules = site.text
        at.added += 1

    def _write_noted(self) -> None:
        """Write that the site's rules have changed, if nothing else follows from it."""
        if self.at.noted:
            self.at.gathered, self.at.noted = opened(self.at, self.at.snapshot.totals), []
            self.flush()

    # --- writing ----------------------------------------------------------------------------------------------------

    def _put(self, move: Move) -> None:
        """Write a move without an answer and without costs."""
        self.write(Decision(move, self.at.snapshot.totals), None)

    def write(self, decision: Decision, answer: Answer | None) -> None:
        """Gather a move with the answer it concludes, and commit before the next effect begins."""
        at, move, asked = self.at, decision.move, self.at.asked
        if isinstance(move, Ask) and answer is None and can_be_held_back(at, move):
            self.flush()  # its effect begins before it is written
            hold_back(at, move, decision.totals)
            return
        try:
            if isinstance(move, Rewind):
                self._write_noted()  # rolled back like every step before
                self.flush()
            gathered = gather(at, decision, answer)
        except BaseException:
            self.keep(asked, answer)
            raise
        at.gathered, at.noted = gathered, []
        at.phase = Written() if isinstance(move, Ask) else Between()
        at.prompt_hash = gathered.batch.prompt_hash
        if isinstance(move, Compact) and at.blocks is not None:
            at.blocks = needed(at.blocks)
        if self._must_commit(gathered, move, answer):
            self.flush()
            if isinstance(move, Rewind):
                decisions.stop_children(self.run.pk, move.to)
        failpoint("between_moves")

    def _must_commit(self, gathered: Gathered, move: Move, answer: Answer | None) -> bool:
        """Return True if the gathered moves can't wait for the next one.

        A child's answer can't: a shared limit counts the child's cost by its parent's committed steps.
        """
        late = self.at.age_s(gathered) > LONGEST_S
        last = not isinstance(move, Go | Compact) or self.at.snapshot.node == END
        return last or late or len(gathered.batch.rows) >= MOST_ROWS or isinstance(answer, ChildFinished)

    def flush(self) -> None:
        """Commit the gathered moves in one transaction, then notify viewers.

        A commit that fails is not retried, because it may have taken effect; the paid answer is kept by itself.
        """
        at, gathered = self.at, self.at.gathered
        at.gathered = None
        if gathered is None:
            return
        try:
            self._commit(gathered)
        except BaseException:
            if gathered.paid is not None:
                at.keep(gathered.paid)
            raise
        failpoint("after_commit_before_ring")
        batch = gathered.batch
        if batch.asked and batch.asked[-1].status == "started":
            at.phase = Started()
        paid = gathered.paid
        if paid is not None and paid.written and paid.asked.kind == "tool_call":
            spool.drop(paid.asked.key)
        at.counted_s = batch.totals.active_seconds
        self._notify(batch)

    def _commit(self, gathered: Gathered) -> None:
        """Write the batch; a question with its prepared answer."""
        if gathered.paid is not None:
            failpoint("before_conclusion_commit")
        if gathered.batch.rows[-1].kind == "ask":
            failpoint("before_ask_commit")
        if gathered.said is None:
            self.at.head_hash = commit(gathered.batch)
            return
        self.at.head_hash, unfit = decisions.commit_answered(gathered.batch, gathered.said)
        self.at.phase = Settled(unfit)

    def _notify(self, batch: Batch) -> None:
        live.ring(self.run.pk, batch.rows[-1].seq)
        if batch.interrupt is not None and self.at.phase != Settled(None):
            live.ring_inbox()
        if batch.child is not None:
            self.woken.append(batch.child[0].pk)
        if batch.parent is not None:
            self.woken.append(batch.parent[0])
            live.ring(batch.parent[0], 0)

    def keep(self, asked: Asked | None, answer: Answer | None) -> None:
        """Save the paid answer to the open ask, if it led nowhere."""
        if answer is not None and asked is not None:
            self.at.keep(self.at.paid(asked, answer))
