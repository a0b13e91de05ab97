"""One slice of a run: what next, write it, do it, until the run parks or ends or others get their turn."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace

from django.utils import timezone
from pydantic import ValidationError

from runs import live, store
from runs.adapters.scripted import BadScript
from runs.adapters.secrets import SecretUnreadable
from runs.driver.holds import Hold
from runs.driver.ledger import Ledger
from runs.driver.ports import NoSuchModel, ports_of
from runs.driver.recall import recall
from runs.engine.effects import Answer, HumanCall, ModelCall, ModelReplied, ToolCall
from runs.engine.facts import Exited
from runs.engine.kernel import Decision, decide, uncertain
from runs.engine.machine import END
from runs.engine.moves import Ask, Move, Rewind, Stop
from runs.engine.ports import Message, ModelRequest
from runs.engine.snapshot import Pending
from runs.engine.timeline import prompt
from runs.failpoints import failpoint
from runs.models import Interrupt, Run, RunStatus

log = logging.getLogger(__name__)

DELTA_S = 0.125
"""Seconds between pieces of streamed text that viewers are sent."""

CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Slice:
    """How long a worker keeps a run before others get their turn: moves, and seconds of machine time."""

    moves: int = 50
    seconds: float = 5.0


WHOLE = Slice(sys.maxsize, float("inf"))
"""Where nobody else waits for this process."""


class BadAnswer(Exception):
    """One of the answers given at launch does not fit the interrupt that opened."""

    def __init__(self, run_id: int, sentence: str) -> None:
        self.run_id = run_id
        self.sentence = sentence
        super().__init__(sentence)


class TooManyLost(Exception):
    """One worker after another was lost on the run, which did not move."""

    def __init__(self) -> None:
        super().__init__(
            f"{store.MOST_LOST} workers in a row were lost or met a fault here. The workers' log says more."
        )


UNUSABLE = (NoSuchModel, BadScript, SecretUnreadable, ValidationError, TooManyLost)
"""What the installation lacks for a run to be driven at all; trying again would not help."""


class Journey:
    """One slice of a run, by the worker that holds it."""

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.run = Run.objects.get(pk=hold.lease.run_id)

    def travel(self, limit: Slice) -> list[int]:
        """Move after move. Which runs want a worker next."""
        try:
            self._prepare()
        except UNUSABLE as fault:
            self._refuse(fault)
            return self.ledger.woken
        ledger = self.ledger
        started, moves = time.monotonic(), 0
        answer = ledger.loaded.answer
        while ledger.snapshot.node != END:
            if ledger.snapshot.pending is not None and answer is None:
                if ledger.parked:
                    return self._parked()
                if (ask := self._uncertain()) is not None:
                    ledger.write(Decision(ask, ledger.snapshot.totals), None)
                    return self._parked()
                answer = self._perform(ledger.snapshot.pending)
                failpoint("after_effect")
            move = self._step(answer)
            answer = None
            moves += 1
            if isinstance(move, Ask) and (move.delay_s or ledger.parked):
                return self._parked()
            over = moves >= limit.moves or time.monotonic() - started > limit.seconds
            if over and ledger.may_leave and ledger.snapshot.node != END:
                return [*ledger.woken, self.run.pk]
        return ledger.woken

    def _prepare(self) -> None:
        """Read the run once, and build its world."""
        if store.lost_in_a_row(self.run) >= store.MOST_LOST:
            raise TooManyLost
        self.ports = ports_of(self.run)
        terms = store.terms_of(self.run, self.ports.tools.specs, guided=self.ports.guided)
        self.ledger = Ledger(self.run, self.hold.lease.epoch, terms)
        self.attempts = Counter(store.attempts_of(self.run))
        machine = self.ledger.machine
        opening = prompt(machine, terms, (), ModelCall(role="decision", reply="text"))
        self.opening_hash = _digest(self.ports.model_key, *(message.text for message in opening))
        self.remembers = machine.remembers if getattr(terms.settings, "cache", False) else None
        if self.remembers:
            self.ledger.last_reply = self._last_reply()
        self.went_back = self.run.steps.filter(kind="rewind").exists()
        """Only then can a prompt come again, and its reply be in the cache."""
        self.weighs_cost = any(rule.when.next_cost_usd is not None for rule in terms.settings.rules)

    def _last_reply(self) -> int | None:
        """The ask of the last reply on the live path: the one that the next validation is about."""
        live_asks = self.run.steps.filter(kind="ask", live=True).values("seq")
        replies = self.run.exchanges.filter(kind="model_call", name="decision", seq__in=live_asks)
        return replies.order_by("-seq").values_list("seq", flat=True).first()

    def _refuse(self, fault: Exception) -> None:
        """The run stops with a reason, and takes no worker with it."""
        log.warning("run %s can't be driven: %s", self.run.pk, fault)
        self.ledger = Ledger(self.run, self.hold.lease.epoch, store.terms_of(self.run, {}))
        reason = "model_error" if isinstance(fault, NoSuchModel) else "fatal_error"
        stop = Stop(reason, (Exited(reason=reason, message=str(fault)),))
        totals = self.ledger.snapshot.totals.after(self.ledger.loaded.answer)
        self.ledger.write(Decision(stop, totals), None)

    def _step(self, answer: Answer | None) -> Move:
        """One move, decided and written. An answer whose conclusion can't be drawn is kept all the same."""
        ledger = self.ledger
        asked = ledger.asked
        ledger.tick()
        if self.weighs_cost:
            ledger.snapshot = replace(ledger.snapshot, next_cost_usd=self._next_cost())
        try:
            decision = decide(ledger.machine, ledger.snapshot, answer)
            ledger.write(decision, answer, self.remembers)
        except BaseException:
            ledger.keep(asked, answer)
            raise
        if isinstance(decision.move, Rewind):
            self.went_back = True
            ledger.last_reply = self._last_reply()
        return decision.move

    def _next_cost(self) -> float:
        """What the next model call may cost at most: by the prompt as it stands, in USD."""
        shown = self._messages(ModelCall(role="decision", reply="text"))
        characters = sum(len(message.text) for message in shown)
        return self.ports.model.price(characters // CHARACTERS_PER_TOKEN)

    # parking

    def _wait(self) -> list[int]:
        """Nothing to do until somebody answers."""
        held = Run.objects.filter(pk=self.run.pk, epoch=self.ledger.epoch, status=RunStatus.RUNNING)
        held.update(status=RunStatus.WAITING)
        return self.ledger.woken

    def _parked(self) -> list[int]:
        """The ask is written. An answer that was given at launch is applied at once."""
        ledger = self.ledger
        pending = ledger.snapshot.pending
        if pending is None or not isinstance(pending.effect, HumanCall):
            return self._wait()
        given = store.given_answer(self.run.pk, ledger.terms.settings.answers)
        if given is None:
            return self._wait()
        said = store.Said(channel="settings", by_name="the launch settings", **given.model_dump())
        interrupt = Interrupt.objects.get(run=self.run, seq=pending.seq)
        try:
            store.decide(interrupt.pk, said)
        except store.BadDecision as fault:
            self._wait()
            store.note(
                self.run.pk, "answer_unfit", f"An answer given at launch does not fit: {fault.sentence}"
            )
            raise BadAnswer(self.run.pk, fault.sentence) from fault
        except (store.Conflict, store.NotPossible):  # somebody was quicker
            return ledger.woken
        live.ring_inbox()
        return [*ledger.woken, self.run.pk]

    def _uncertain(self) -> Ask | None:
        """A call that was started by a worker that is gone: repeated with its key, or a person is asked."""
        ledger = self.ledger
        pending, asked = ledger.snapshot.pending, ledger.asked
        if pending is None or asked is None or asked.status != "started" or ledger.started_here:
            return None
        effect = pending.effect
        if isinstance(effect, ToolCall) and (effect.repeatable or effect.idempotent):
            return None
        return uncertain(pending)

    # the world

    def _perform(self, pending: Pending) -> Answer:
        """Do what was asked, and give what was answered. Nothing but answers comes out of a port."""
        asked = self.ledger.asked
        assert asked is not None
        asked.started_at = timezone.now()
        match pending.effect:
            case ModelCall() as call:
                return self._ask_model(call, asked, pending.seq)
            case ToolCall(infra=True) as call:
                return recall(self.run, call)
            case ToolCall() as call:
                if asked.status == "asked" and not call.repeatable:
                    store.start(self.run.pk, self.ledger.epoch, asked.seq)
                failpoint("after_started")
                self._count_attempt(asked)
                return self.ports.tools.call(call, asked.nth, asked.key)
        raise TypeError(f"{pending.effect.kind} is not performed by a worker")

    def _count_attempt(self, asked: store.Asked) -> None:
        """Which of the run's attempts at the role or tool this is; one that is made again keeps its number."""
        if asked.nth == 0:
            self.attempts[f"{asked.kind} {asked.name}"] += 1
            asked.nth = self.attempts[f"{asked.kind} {asked.name}"]

    def _ask_model(self, call: ModelCall, asked: store.Asked, seq: int) -> Answer:
        ledger = self.ledger
        shown = store.prompt_chain(ledger.prompt_hash, ledger.blocks_held_back())
        asked.prompt_hash = _digest(self.opening_hash, shown, call.reply, call.tail, str(call.sanitize))
        ledger.last_reply = seq
        if call.cacheable and self.went_back and (text := self._remembered(asked.prompt_hash)) is not None:
            return ModelReplied(text=text, cached=True)
        self._count_attempt(asked)
        request = ModelRequest(
            role=call.role,
            nth=asked.nth,
            messages=self._messages(call) if self.ports.reads_prompt else (),
            reply_schema=self._schema(call) if self.ports.reads_prompt else None,
            reply_name=call.reply,
        )
        return self.ports.model.ask(request, _Watcher(self.hold, ledger.snapshot.node).watch)

    def _schema(self, call: ModelCall) -> dict[str, object] | None:
        return self.ledger.machine.reply_schema(call.reply, self.ledger.snapshot.state)

    def _remembered(self, prompt_hash: str) -> str | None:
        """The reply that this run was given to the same prompt before, once it had passed validation."""
        found = self.run.exchanges.filter(prompt_hash=prompt_hash, remembered=True).order_by("-seq").first()
        if found is None or found.answer_json is None:
            return None
        text: str = json.loads(found.answer_json)["text"]
        return text

    def _messages(self, call: ModelCall) -> tuple[Message, ...]:
        ledger = self.ledger
        if ledger.blocks is None:
            ledger.blocks = store.load_blocks(self.run, ledger.machine, ledger.snapshot.head)
        blocks = ledger.blocks + ledger.blocks_held_back()
        return prompt(ledger.machine, ledger.terms, blocks, call)


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


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
