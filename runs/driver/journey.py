"""One slice of a run: what next, write it, do it, until the run parks or ends or others get their turn."""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import get_args

from django.utils import timezone
from pydantic import ValidationError

from runs import live, store
from runs.adapters.scripted import BadScript
from runs.adapters.tool import NotHappened
from runs.adapters.toolbox import MayHaveHappened
from runs.driver import spool
from runs.driver.holds import Hold, Leaving
from runs.driver.ledger import Ledger
from runs.driver.looking_again import decided, move_instead
from runs.driver.ports import NoModel, ports_of
from runs.driver.recall import recall
from runs.driver.turns import Turn, turn_at
from runs.driver.window import ANY, Reader
from runs.engine.context import CHARACTERS_PER_TOKEN
from runs.engine.effects import (
    Answer,
    Compaction,
    Failed,
    ModelCall,
    ModelReplied,
    Role,
    Summarised,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.engine.facts import MADE_ANEW, Exited, Notice, RangeSummarised
from runs.engine.gates import after_restore
from runs.engine.kernel import (
    MORE_ROOM,
    Decision,
    Known,
    asked_anew,
    cost_of,
    lost_too_often,
    uncertain,
)
from runs.engine.machine import END
from runs.engine.moves import Ask, Compact, Move, Rewind, Stop
from runs.engine.outward import carried_to
from runs.engine.ports import ModelRequest
from runs.engine.snapshot import Pending
from runs.engine.timeline import prompt
from runs.failpoints import failpoint
from runs.models import Run, RunStatus

log = logging.getLogger(__name__)

RULES_S = 1.0
"""Seconds for which the site's rules are not read again, but for a deed."""

TURN_S = 1.0
"""Seconds until a run looks again whether it may make a call whose cost nobody knows beforehand."""

DELTA_S = 0.125
"""Seconds between pieces of streamed text that viewers are sent."""


@dataclass(frozen=True, slots=True)
class Slice:
    """How long a worker keeps a run: at most so many moves, and, where another run waits for a worker, seconds."""

    moves: int = sys.maxsize
    seconds: float = 1.0


WHOLE = Slice(seconds=float("inf"))
"""Where nobody else waits for this process."""


class BadAnswer(Exception):
    """One of the answers given at launch does not fit the interrupt that opened."""

    def __init__(self, run_id: int, sentence: str) -> None:
        self.run_id = run_id
        self.sentence = sentence
        super().__init__(sentence)


class FaultAgain(Exception):
    """Each worker that drives the run meets a fault of our own code."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"{store.MOST_LOST} workers in a row met a fault here, the last: {fault}")


UNUSABLE = (NoModel, BadScript, ValidationError, FaultAgain)
"""What the installation lacks for a run to be driven at all; trying again would not help."""


class Journey:
    """One slice of a run, by the worker that holds it."""

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.run = Run.objects.get(pk=hold.lease.run_id)
        self.followed = -RULES_S
        """When the site's rules were last read."""
        self.just_passed = False
        """Whether the gates have let the ask that waits pass a moment ago, in this slice."""

    def travel(self, limit: Slice) -> list[int]:
        """Drive the run for one slice. Return the runs that want a worker next."""
        try:
            if (times := store.lost_in_a_row(self.run)) >= store.MOST_LOST and self._left_to_a_person(times):
                return self.ledger.woken
            self._prepare()
        except UNUSABLE as fault:
            self._refuse(fault)
            return self.ledger.woken
        try:
            return self._moves(limit)
        finally:
            self.ledger.flush()  # what was gathered before a fault, too

    def _moves(self, limit: Slice) -> list[int]:
        """Make moves until the run parks, ends or is left. Return the runs that want a worker next."""
        ledger = self.ledger
        started, moves = time.monotonic(), 0
        answer = ledger.loaded.answer
        while ledger.snapshot.node != END:
            if self.hold.leaving and not ledger.started_here:
                return [*ledger.woken, self.run.pk]
            if ledger.snapshot.pending is not None and answer is None:
                if ledger.parked:
                    return self._parked()
                lost = self._lost_call()
                try:
                    answer = self._find_out(lost) if lost else self._perform(ledger.snapshot.pending)
                except (Leaving, store.Halted):
                    return [*ledger.woken, self.run.pk]
                except store.LookAgain:
                    self._look_again()
                    continue
                if answer is None:
                    continue  # another ask is written in its place
                failpoint("after_effect")
            move = self._step(answer)
            answer = None
            moves += 1
            if isinstance(move, Ask) and (move.delay_s or ledger.parked):
                return self._parked()
            if not ledger.may_leave or ledger.snapshot.node == END:
                continue
            if moves >= limit.moves:
                return [*ledger.woken, self.run.pk]
            if time.monotonic() - started > limit.seconds:
                if store.others_wait():
                    return [*ledger.woken, self.run.pk]
                started = time.monotonic()
        return ledger.woken

    def _prepare(self) -> None:
        """Read the run once, and build its world."""
        store.clear_parts(self.run.pk)
        store.tell_restored(self.run)
        self.ports = ports_of(self.run)
        self.ports.tools.may_contact = self._may_contact
        terms = store.terms_of(self.run, self.ports.tools.specs, guided=self.ports.guided, still=True)
        self.ledger = Ledger(self.run, self.hold.lease.epoch, terms)
        self.attempts = Counter(store.attempts_of(self.run))
        limited = self.run.root_id is not None or self.ledger.snapshot.limits
        self.may_share = bool(limited and store.may_share(self.run))
        """Whether others may use up its limits too: a fork may begin at any moment."""
        if self.may_share and self.run.root_id is None and store.take_over(self.run):
            self.ledger = Ledger(self.run, self.hold.lease.epoch, terms)
        machine = self.ledger.machine
        self.reader = Reader(self.run, self.ledger, self.ports)
        opening = prompt(machine, terms, (), ANY)
        self.opening_hash = _digest(self.ports.model_key, *(message.text for message in opening))
        self.remembers = machine.remembers if getattr(terms.settings, "cache", False) else None
        if self.remembers:
            self.ledger.last_reply = store.last_reply(self.run.pk)
        self.went_back = self.run.steps.filter(kind="rewind").exists()
        """Only then can a prompt come again, and its reply be in the cache."""
        self._follow_rules()

    def _refuse(self, fault: Exception) -> None:
        """The run stops with a reason, and takes no worker with it."""
        log.warning("run %s can't be driven: %s", self.run.pk, fault)
        self.ledger = Ledger(self.run, self.hold.lease.epoch, store.terms_of(self.run, {}))
        no_model = isinstance(fault, NoModel)
        reason = "model_error" if no_model else "fatal_error"
        why = f"{fault} Then fork this run, and go on there." if no_model else str(fault)
        answer = self.ledger.loaded.answer
        stop = Stop(reason, (*cost_of(answer), Exited(reason=reason, message=why)))
        totals = self.ledger.snapshot.totals.after(answer)
        self.ledger.write(Decision(stop, totals), None)

    def _left_to_a_person(self, times: int) -> bool:
        """Open a question instead of a further try; nothing of the run's world is built, for it may be the cause.

        Where an answer waits, a question would take its place: the run is paused. Return False where it only parks.
        """
        faults = store.faults_in_a_row(self.run)
        if len(faults) == store.MOST_LOST:
            raise FaultAgain(faults[0])
        self.ledger = Ledger(self.run, self.hold.lease.epoch, store.terms_of(self.run, {}))
        if self.ledger.loaded.answer is not None:
            store.pause_after_losses(self.run, times, len(faults))
        elif self.ledger.parked:
            return False
        else:
            snapshot = self.ledger.snapshot
            question = lost_too_often(snapshot, times, len(faults))
            self.ledger.write(Decision(question, snapshot.totals), None)
        return True

    def _step(self, answer: Answer | None) -> Move:
        """One move, decided and written. An answer whose conclusion can't be drawn is kept all the same."""
        ledger = self.ledger
        asked, pending = ledger.asked, ledger.snapshot.pending
        ledger.tick()
        if answer is None:
            self._follow_rules()
        cut = isinstance(answer, ModelReplied) and answer.ended == "length"
        try:
            self._look(MORE_ROOM if cut else 1)
            decision = decided(ledger, answer)
        except BaseException:
            ledger.keep(asked, answer)
            raise
        ledger.write(decision, answer, self.remembers)
        self.just_passed = isinstance(decision.move, Ask) and decision.move.attempt == 1
        if isinstance(decision.move, Rewind):
            self.went_back = True
            ledger.last_reply = store.last_reply(self.run.pk)
        if isinstance(decision.move, Compact):
            made = next(fact for fact in decision.move.facts if isinstance(fact, RangeSummarised))
            self.reader.compacted(ledger.snapshot.head, made)
        elif isinstance(answer, Summarised) and pending and isinstance(pending.effect, Compaction):
            self.reader.not_used(pending.effect)
        return decision.move

    def _follow_rules(self) -> None:
        """Go by the site's rules of now, at most a second old, before the gates are asked."""
        ledger = self.ledger
        waits = ledger.snapshot.pending
        # A call that waits was let pass by the rules of then; it is looked at again directly before the deed.
        asks_for_call = waits is not None and isinstance(waits.effect, ToolCall)
        if asks_for_call or ledger.held_back is not None or time.monotonic() - self.followed < RULES_S:
            return
        self.followed = time.monotonic()
        ledger.follow(store.site_rules())

    def _look_again(self) -> None:
        """A call that was let pass may not begin: another move takes its place, or it may after all."""
        ledger = self.ledger
        move = move_instead(ledger)
        if move is None:
            ledger.write_noted()
            return
        ledger.write(Decision(move, ledger.snapshot.totals), None)
        self.just_passed = isinstance(move, Ask)

    def _look(self, room: int = 1) -> None:
        """What the kernel has to know beside the rows: the window, what the family has used, the next price.

        `room` is how many times its usual length the next reply may have.
        """
        ledger = self.ledger
        if (window := self.reader.window()) is not ledger.snapshot.window:
            ledger.snapshot = replace(ledger.snapshot, window=window)
        if self.may_share:
            shared = store.shared_limits(self.run)
            roles = get_args(Role) if shared else ()
            uses = {role: use for role in roles if (use := self._next_use(role))}
            ledger.snapshot = replace(ledger.snapshot, shared=shared, next_use=uses)
        if ledger.weighs_cost:
            ledger.snapshot = replace(ledger.snapshot, next_cost_usd=self.reader.price() * room)

    # parking

    def _wait(self) -> list[int]:
        """Nothing to do until somebody answers."""
        held = Run.objects.filter(pk=self.run.pk, epoch=self.ledger.epoch, status=RunStatus.RUNNING)
        held.update(status=RunStatus.WAITING)
        return self.ledger.woken

    def _parked(self) -> list[int]:
        """The ask is written, and where an answer to it was prepared, so is that: the run goes on in another seat."""
        ledger = self.ledger
        if ledger.unfit is not None:
            raise BadAnswer(self.run.pk, ledger.unfit.sentence) from ledger.unfit
        return [*ledger.woken, self.run.pk] if ledger.answered else self._wait()

    def _lost_call(self) -> ToolCall | None:
        """A call that was started, by a worker that is gone, and that can't simply be made again."""
        ledger = self.ledger
        pending, asked = ledger.snapshot.pending, ledger.asked
        if pending is None or asked is None or asked.status != "started" or ledger.started_here:
            return None
        effect = pending.effect
        if not isinstance(effect, ToolCall) or effect.repeatable or effect.idempotent:
            return None
        return effect

    def _find_out(self, call: ToolCall) -> Answer | None:
        """What became of it. One that did not happen is made anew: it was the worker that failed, and not the call."""
        ledger = self.ledger
        assert ledger.snapshot.pending is not None and ledger.asked is not None
        if (kept := self._kept(ledger.asked)) is not None:
            return kept
        restored = store.lost_by_restore(self.run.pk, ledger.snapshot.pending.seq)
        said = self._heard_of(call, "restored" if restored else "worker lost")
        if said is not NotHappened.FOR_SURE:
            return said
        lost = "This site was restored from a backup" if restored else "A worker was lost or stopped"
        why = f"{lost}, and {call.tool} says that the call did not happen. It is made anew."
        notice = Notice(code=MADE_ANEW, message=why)
        anew = Ask(call, (notice,), attempt=ledger.snapshot.pending.attempt)
        ledger.write(Decision(anew, ledger.snapshot.totals), None)
        return None

    def _kept(self, asked: store.Asked) -> Answer | None:
        """Return the answer that a worker left on this disk when it died before the database had it."""
        kept = None if self.ledger.started_here else spool.get(asked.key)
        if kept is not None:
            self._count_attempt(asked)
        return kept

    def _heard_of(self, call: ToolCall, cause: Known) -> ToolReturned | Failed | NotHappened | None:
        """What the far side says became of a call. Where it can't tell, a person is asked."""
        ledger = self.ledger
        pending, asked = ledger.snapshot.pending, ledger.asked
        assert pending is not None and asked is not None
        with self.hold.outside(slow=self.ports.slow):
            said = self.ports.tools.happened(call, asked.key)
        if said is None:
            known: list[Known] = [cause]
            if self.ports.tools.can_ask(call):
                known.append("tool can't tell")
            question = uncertain(ledger.snapshot, *known)
            ledger.write(Decision(Ask(question), ledger.snapshot.totals), None)
        elif said is not NotHappened.FOR_SURE:
            self._count_attempt(asked)
        return said.model_copy(update={"by_asking": True}) if isinstance(said, ToolReturned) else said

    # the world

    def _perform(self, pending: Pending) -> Answer | None:
        """Do what was asked, and give what was answered; None where nobody knows whether it happened."""
        assert self.ledger.asked is not None
        with self.hold.within(self.ledger.asked):
            return self._performed(pending, self.ledger.asked)

    def _performed(self, pending: Pending, asked: store.Asked) -> Answer | None:
        asked.started_at = timezone.now()
        match pending.effect:
            case ModelCall() as call:
                with self.hold.cuttable():
                    return self._unless_cut(self._ask_model(call, asked, pending.seq))
            case Compaction() as compaction:
                with self.hold.cuttable():
                    return self._unless_cut(self._summarise(compaction, asked))
            case ToolCall(infra=True) as call:
                return recall(self.run, call)
            case ToolCall(repeatable=True) as call:
                self._check_again(pending)
                if (known := self._read_before(call, pending.seq)) is not None:
                    return known
                with self.hold.cuttable():
                    return self._call_tool(call, asked)
            case ToolCall() as call:
                if (kept := self._kept(asked)) is not None:
                    return kept
                if not self.ledger.started_here:
                    self._start(call, asked.seq)
                failpoint("after_started")
                store.check_seat(self.run.pk, self.ledger.epoch)
                return self._call_tool(call, asked)
        raise TypeError(f"{pending.effect.kind} is not performed by a worker")

    def _read_before(self, call: ToolCall, seq: int) -> ToolReturned | None:
        """Return the earlier result of the same read, where `cache_reads` is set and there is one."""
        if not self.ledger.terms.settings.cache_reads or call.effects != "read":
            return None
        spec = self.ports.tools.specs.get(call.tool)
        return store.read_before(self.run, call, seq) if spec is not None and spec.cacheable else None

    def _check_again(self, pending: Pending) -> None:
        """`LookAgain` where a call that the gates did not let pass just now may not begin any more."""
        ledger = self.ledger
        if self.just_passed and not ledger.host:
            return
        if not store.still_holds(self.run.pk, pending.seq, ledger.site_rules, ledger.host):
            raise store.LookAgain

    def _start(self, call: ToolCall, seq: int) -> None:
        """Commit the intent of a call that must not happen twice.

        In a restored run a person has said yes to it, or the far side can tell it from the first by its key.
        """
        ledger = self.ledger
        gate = () if call.idempotent else after_restore(ledger.snapshot.restored)
        if gate and gate[0] not in store.passed_before(self.run.pk, seq):
            raise store.LookAgain
        store.start(self.run.pk, ledger.epoch, seq, ledger.site_rules, ledger.host)

    def _unless_cut(self, answer: Answer | None) -> Answer | None:
        """A model call that fails while its worker leaves was cut, or might as well have been: it is made again."""
        if self.hold.leaving and isinstance(answer, Failed):
            raise Leaving(self.run.pk)
        return answer

    def _call_tool(self, call: ToolCall, asked: store.Asked) -> Answer | None:
        self._count_attempt(asked)
        try:
            with self.hold.outside(slow=self.ports.slow):
                answer = self.ports.tools.call(call, asked.nth, asked.key)
        except MayHaveHappened as fault:
            log.warning("run %s: %s", self.run.pk, fault)
        else:
            if not call.repeatable:
                spool.put(asked.key, answer)
            return answer
        said = self._heard_of(call, "cut off")
        if said is not NotHappened.FOR_SURE:
            return said
        why = f"{call.tool} was cut off, and says that the call did not happen."
        return Failed(blame="transient", message=why, ran=False)

    def _may_contact(self, host: str) -> bool:
        """Return whether a call that was let through may go on to another host."""
        return not carried_to(self.ledger.snapshot.state, host)

    def _count_attempt(self, asked: store.Asked) -> None:
        """Which of the run's attempts at the role or tool this is; one that is made again keeps its number."""
        if asked.nth == 0:
            self.attempts[f"{asked.kind} {asked.name}"] += 1
            asked.nth = self.attempts[f"{asked.kind} {asked.name}"]

    def _ask_model(self, call: ModelCall, asked: store.Asked, seq: int) -> Answer | None:
        ledger = self.ledger
        shown = store.prompt_chain(ledger.prompt_hash, ledger.blocks_held_back())
        asked.prompt_hash = _digest(
            self.opening_hash, shown, call.reply, call.tail, str(call.sanitize), str(call.longest)
        )
        ledger.last_reply = seq
        if call.cacheable and self.went_back and (known := self._remembered(asked.prompt_hash)) is not None:
            return known
        if not self._reserved(call, call.role, asked):
            self._without_room(call)
            return None
        self._count_attempt(asked)
        messages = self.reader.messages(call) if self.ports.reads_prompt else ()
        asked.prompt_chars = sum(len(message.text) for message in messages)
        asked.prompt_upto = ledger.snapshot.head
        request = ModelRequest(
            role=call.role,
            nth=asked.nth,
            messages=messages,
            reply_schema=self._schema(call) if self.ports.reads_prompt else None,
            reply_name=call.reply,
            reply_tokens=call.reply_tokens,
            room=call.room,
        )
        with self._turn(asked.prompt_chars) as turn, self.hold.outside(slow=self.ports.slow):
            watcher = _Watcher(self.hold, ledger.snapshot.node)
            answer = turn.heard(self.ports.model.ask(request, watcher.watch))
        if isinstance(answer, ModelReplied):
            self.reader.counted(answer.usage.input_tokens, asked.prompt_chars)
        return answer

    def _without_room(self, call: ModelCall) -> None:
        """Somebody of the family was quicker, or a lost call counts: the gates look again, now or in the next slice."""
        ledger = self.ledger
        if ledger.held_back is not None:
            raise Leaving(self.run.pk)
        self._look()
        move = asked_anew(ledger.machine, ledger.snapshot)
        if isinstance(move, Ask) and move.effect == call:
            raise Leaving(self.run.pk)  # there is room by now
        ledger.write(Decision(move, ledger.snapshot.totals), None)

    def _summarise(self, compaction: Compaction, asked: store.Asked) -> Answer:
        if not self._reserved(compaction.holds, "summary", asked):
            return Failed(blame="recoverable", message="The limits leave no room for it.", ran=False)
        self._count_attempt(asked)
        asked.prompt_upto = self.ledger.snapshot.head
        characters = compaction.tokens_before * CHARACTERS_PER_TOKEN
        with self._turn(characters) as turn, self.hold.outside(slow=self.ports.slow):
            answer = self.reader.summarise(compaction, asked.nth, lambda so_far: self.hold.wanted())
            return turn.heard(answer)

    def _turn(self, characters: int) -> AbstractContextManager[Turn]:
        """The call's turn at a model that only so many may call at once or in a minute."""
        return turn_at(self.ports.limits, self.hold.lease, characters)

    def _reserved(self, call: ModelCall, role: Role, asked: store.Asked) -> bool:
        """Whether what is asked may use at most is set aside: `call`, or the summary that makes room for it.

        So it is where no limit needs to know. Of a script only what a family shares is held to the exact amount.
        """
        ledger, limits = self.ledger, self.ledger.snapshot.limits
        worst = self.reader.worst(call)
        if call.at_limit != "pass" and (use := self._next_use(role, asked.kind, asked.nth)):
            worst, limits = use, {}
        try:
            return worst is None or store.reserve(self.run, ledger.epoch, worst, limits)
        except store.NotYet:
            store.rest(self.hold.lease, TURN_S)
            raise Leaving(self.run.pk) from None

    def _next_use(self, role: Role, kind: str = "model_call", nth: int = 0) -> store.Worst | None:
        """What the next call of the role will use, where others may share a limit and a script tells."""
        if self.ports.next_use is None or self.ports.price is not None or not self.may_share:
            return None
        return self.ports.next_use(role, nth or self.attempts[f"{kind} {role}"] + 1)

    def _schema(self, call: ModelCall) -> dict[str, object] | None:
        return self.ledger.machine.reply_schema(call.reply, self.ledger.snapshot.state)

    def _remembered(self, prompt_hash: str) -> ModelReplied | None:
        """The reply that this run was given to the same prompt before, once it had passed validation."""
        found = self.run.exchanges.filter(prompt_hash=prompt_hash, remembered=True).order_by("-seq").first()
        if found is None or found.answer_json is None:
            return None
        known = ModelReplied.model_validate_json(found.answer_json)
        return known.model_copy(update={"usage": Usage(), "cached": True})


class _Watcher:
    """Looks at a reply while it streams: viewers see it, and a call that nobody wants any more is cut."""

    def __init__(self, hold: Hold, node: str) -> None:
        self.hold = hold
        self.node = node
        self.sent_at = 0.0

    def watch(self, so_far: Callable[[], str]) -> bool:
        """Whether the call is still wanted. The text is read only when it is time to show it."""
        now = time.monotonic()
        if now - self.sent_at > DELTA_S and (text := so_far()):
            self.sent_at = now
            live.delta(self.hold.lease.run_id, self.node, text)
        return self.hold.wanted()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
