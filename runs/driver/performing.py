"""Perform a run's asks of its model and its tools, and find the outcome of a lost call."""

from __future__ import annotations

import hashlib
import logging
from contextlib import AbstractContextManager

from django.utils import timezone

from runs.adapters.tool import Calls, Heard, NotHappened
from runs.adapters.toolbox import MayHaveHappened
from runs.driver import spool
from runs.driver.attempts import Attempts
from runs.driver.holds import Hold, Leaving
from runs.driver.ports import Ports
from runs.driver.position import HeldBack, Position, Started, Written
from runs.driver.recall import recall
from runs.driver.streaming import Watcher
from runs.driver.turns import Turn, turn_at
from runs.driver.window import ANY, Reader
from runs.engine import timeline
from runs.engine.context import CHARACTERS_PER_TOKEN
from runs.engine.effects import (
    Answer,
    Compaction,
    Effect,
    Failed,
    ModelCall,
    ModelReplied,
    ScriptCalled,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.engine.facts import MADE_ANEW, Notice, ToolReported
from runs.engine.gates import after_restore
from runs.engine.moves import Ask
from runs.engine.ports import ModelRequest
from runs.engine.snapshot import Pending
from runs.engine.timeline import prompt
from runs.engine.worker_questions import Known, uncertain
from runs.failpoints import failpoint
from runs.store import appending, cached_reads, deeds, scripts
from runs.store.log import Asked, check_seat, start
from runs.store.restored import lost_by_restore

log = logging.getLogger(__name__)


class Performer:
    """Calls the model and the tools of one run."""

    def __init__(self, at: Position, hold: Hold, ports: Ports, reader: Reader, attempts: Attempts) -> None:
        self.at = at
        self.hold = hold
        self.ports = ports
        self.reader = reader
        self.attempts = attempts
        opening = prompt(at.machine, reader.terms, (), ANY)
        self._opening_hash = _digest(ports.model_key, *(message.text for message in opening))
        self.went_back = at.run.steps.filter(kind="rewind").exists()
        """Only then can a prompt recur, and its reply be in the cache."""

    def perform(self) -> Answer | Ask | None:
        """Return the answer to the open ask, or the ask that takes its place.

        None if the limits leave no room for a model call. Raises `LookAgain` if a tool's call may no longer begin,
        `Leaving` if the worker is to leave the run.
        """
        pending, asked = self.at.snapshot.pending, self.at.asked
        assert pending is not None and asked is not None
        if self._is_lost(pending.effect, asked):
            return self._find_out(pending, asked)
        with self.hold.within(asked):
            return self._performed(pending.effect, asked)

    def _performed(self, effect: Effect, asked: Asked) -> Answer | Ask | None:
        asked.started_at = timezone.now()
        match effect:
            case ModelCall() as call:
                with self.hold.cuttable():
                    return self._unless_cut(self._ask_model(call, asked), asked)
            case Compaction() as compaction:
                with self.hold.cuttable():
                    return self._unless_cut(self._summarise(compaction, asked), asked)
            case ToolCall(infra=True) as call:
                return recall(self.at.run, call)
            case ToolCall(repeatable=True) as call:
                self._check_again(asked)
                if (known := self._read_before(call, asked.seq)) is not None:
                    return known
                with self.hold.cuttable():
                    return self._call_tool(call, asked)
            case ToolCall() as call:
                if (kept := self._kept(asked)) is not None:
                    return kept
                if not isinstance(self.at.phase, Started):
                    self._start(call, asked.seq)
                failpoint("after_started")
                check_seat(self.at.run.pk, self.at.epoch)
                return self._call_tool(call, asked)
        raise TypeError(f"{effect.kind} is not performed by a worker")

    # --- the model --------------------------------------------------------------------------------------------------

    def _ask_model(self, call: ModelCall, asked: Asked) -> Answer | None:
        at, snapshot = self.at, self.at.snapshot
        shown = appending.prompt_chain(at.prompt_hash, at.blocks_held_back())
        asked.prompt_hash = _digest(
            self._opening_hash, shown, call.reply, call.tail, str(call.sanitize), str(call.longest)
        )
        at.last_reply = asked.seq
        if call.cacheable and self.went_back and (known := self._remembered(asked.prompt_hash)) is not None:
            return known
        reads = self.ports.reads_prompt
        parts = self.reader.pieces(call) if reads else []
        messages = timeline.messages(parts)
        asked.prompt_chars = sum(len(message.text) for message in messages)
        # The turn comes first: a reservation counts as paid if taking the turn fails.
        with self._turn(asked.prompt_chars) as turn:
            if not self.attempts.reserve(call, call.role, asked, snapshot.limits):
                return None
            self.attempts.count(asked)
            asked.prompt_upto = snapshot.head
            request = ModelRequest(
                role=call.role,
                nth=asked.nth,
                messages=messages,
                reply_schema=at.machine.reply_schema(call.reply, snapshot.state) if reads else None,
                reply_name=call.reply,
                reply_tokens=call.reply_tokens,
                passing=timeline.passing(parts),
                room=call.room,
            )
            turn.asked = True
            with self.hold.outside(slow=self.ports.slow):
                answer = turn.heard(self.ports.model.ask(request, Watcher(self.hold, snapshot.node).watch))
        if isinstance(answer, ModelReplied):
            self.reader.counted(answer.usage.input_tokens, asked.prompt_chars)
        return answer

    def _remembered(self, prompt_hash: str) -> ModelReplied | None:
        """Return this run's earlier reply to the same prompt, if it had passed validation."""
        found = (
            self.at.run.exchanges.filter(prompt_hash=prompt_hash, remembered=True).order_by("-seq").first()
        )
        if found is None or found.answer_json is None:
            return None
        known = ModelReplied.model_validate_json(found.answer_json)
        return known.model_copy(update={"usage": Usage(), "cached": True})

    def _summarise(self, compaction: Compaction, asked: Asked) -> Answer:
        characters = compaction.tokens_before * CHARACTERS_PER_TOKEN
        with self._turn(characters) as turn:
            if not self.attempts.reserve(compaction.holds, "summary", asked, self.at.snapshot.limits):
                return Failed(blame="recoverable", message="The limits leave no room for it.", ran=False)
            self.attempts.count(asked)
            asked.prompt_upto = self.at.snapshot.head
            turn.asked = True
            with self.hold.outside(slow=self.ports.slow):
                answer = self.reader.summarise(compaction, asked.nth, lambda so_far: self.hold.wanted())
                return turn.heard(answer)

    def _turn(self, characters: int) -> AbstractContextManager[Turn]:
        """Take the call's turn at a model with limits."""
        return turn_at(self.ports.limits, self.hold.lease, characters)

    def _unless_cut(self, answer: Answer | None, asked: Asked) -> Answer | None:
        """Drop a model call's failure while its worker leaves: it was cut, or might as well have been, and is retried.

        Its usage is paid all the same.
        """
        if self.hold.leaving and isinstance(answer, Failed):
            if answer.usage != Usage():
                self.at.keep(self.at.paid(asked, answer))
            raise Leaving(self.at.run.pk)
        return answer

    # --- tools ------------------------------------------------------------------------------------------------------

    def _read_before(self, call: ToolCall, seq: int) -> ToolReturned | None:
        """Return the earlier result of the same read, if `cache_reads` is set and there is one."""
        if not self.reader.terms.settings.cache_reads or call.effects != "read":
            return None
        spec = self.ports.tools.specs.get(call.tool)
        return (
            cached_reads.read_before(self.at.run, call, seq) if spec is not None and spec.cacheable else None
        )

    def _check_again(self, asked: Asked) -> None:
        """Raise `LookAgain` if a call that the gates did not check just now may no longer begin."""
        at, host = self.at, self.at.host
        if isinstance(at.phase, HeldBack | Written) and not host:
            return
        if not deeds.still_holds(at.run.pk, asked.seq, at.site_rules, host):
            raise deeds.LookAgain

    def _start(self, call: ToolCall, seq: int) -> None:
        """Commit the intent of a call that must not happen twice.

        In a restored run a person has approved it, or the far side can tell it from the first by its key.
        """
        at = self.at
        gate = () if call.idempotent else after_restore(at.snapshot.restored)
        if gate and gate[0] not in deeds.passed_before(at.run.pk, seq):
            raise deeds.LookAgain
        start(at.run.pk, at.epoch, seq, at.site_rules, at.host)

    def _call_tool(self, call: ToolCall, asked: Asked) -> Answer | Ask:
        self.attempts.count(asked)
        call, heard = self._script(call)
        try:
            with self.hold.outside(slow=self.ports.slow):
                answer = self.ports.tools.call(call, asked.nth, asked.key, **heard)
        except Calls as out:
            return ScriptCalled(tool=out.tool, args=out.arguments)
        except MayHaveHappened as fault:
            log.warning("run %s: %s", self.at.run.pk, fault)
        else:
            if not call.repeatable:
                spool.put(asked.key, answer)
            return answer
        said = self._heard_of(call, "cut off", asked)
        if said is not NotHappened.FOR_SURE:
            return said
        why = f"{call.tool} was cut off and says that the call did not happen."
        return Failed(blame="transient", message=why, ran=False)

    def _script(self, call: ToolCall) -> tuple[ToolCall, dict[str, tuple[Heard, ...]]]:
        """Return the call that began the script which `call` resumes, with all that the script has heard."""
        if not call.resumes:
            return call, {}
        begun = scripts.script_at(self.at.run, call.resumes)
        heard = (_heard(called, told) for called, told in scripts.heard_by(self.at.run, call.resumes))
        return call.model_copy(update={"args": begun.args}), {"heard": tuple(heard)}

    # --- lost calls -------------------------------------------------------------------------------------------------

    def _is_lost(self, effect: Effect, asked: Asked) -> bool:
        """Return True if a lost worker started the call, and it can't simply be repeated."""
        if asked.status != "started" or isinstance(self.at.phase, Started):
            return False
        return isinstance(effect, ToolCall) and not (effect.repeatable or effect.idempotent)

    def _find_out(self, pending: Pending, asked: Asked) -> Answer | Ask:
        """Return the outcome of a lost call. A call that did not happen is repeated as the same attempt."""
        call = pending.effect
        assert isinstance(call, ToolCall)
        if (kept := self._kept(asked)) is not None:
            return kept
        restored = lost_by_restore(self.at.run.pk, pending.seq)
        said = self._heard_of(call, "restored" if restored else "worker lost", asked)
        if said is not NotHappened.FOR_SURE:
            return said
        lost = "This site was restored from a backup" if restored else "The worker stopped mid-call"
        why = f"{lost}. {call.tool} says that the call did not happen, so the worker retries it."
        return Ask(call, (Notice(code=MADE_ANEW, message=why),), attempt=pending.attempt)

    def _kept(self, asked: Asked) -> Answer | None:
        """Return the answer that a dead worker left on this disk before the database had it."""
        kept = None if isinstance(self.at.phase, Started) else spool.get(asked.key)
        if kept is not None:
            self.attempts.count(asked)
        return kept

    def _heard_of(
        self, call: ToolCall, cause: Known, asked: Asked
    ) -> ToolReturned | Failed | Ask | NotHappened:
        """Return the call's outcome according to the far side. If it can't tell, a person is asked."""
        with self.hold.outside(slow=self.ports.slow):
            said = self.ports.tools.happened(call, asked.key)
        if said is None:
            known: list[Known] = [cause]
            if self.ports.tools.can_ask(call):
                known.append("tool can't tell")
            return Ask(uncertain(self.at.snapshot, *known))
        if said is not NotHappened.FOR_SURE:
            self.attempts.count(asked)
        return said.model_copy(update={"by_asking": True}) if isinstance(said, ToolReturned) else said


def _heard(called: ScriptCalled, told: ToolReported) -> Heard:
    """Return a result as a script gets it: the value, or an error to raise."""
    error = None if told.error is None else " ".join(filter(None, (told.error, told.stderr)))
    return Heard(called.tool, called.args, told.value, error)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
