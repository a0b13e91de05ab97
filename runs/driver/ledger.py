"""What a worker keeps in memory of the run it drives, and the batches in which it writes it.

The ask of an effect that may be repeated is held back, and written together with what follows from its answer, in
one transaction; any other ask is written before the deed (docs/runtime.md, "Commits").
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from dataclasses import replace
from datetime import UTC, timedelta
from functools import cached_property, partial
from typing import Any, NamedTuple

from django.db import OperationalError, connection

from runs import live, store
from runs.driver import spool
from runs.driver.away import once_there
from runs.driver.ports import script_of
from runs.engine.effects import (
    ANSWER,
    Answer,
    ChildFinished,
    ChildRun,
    Compaction,
    Effect,
    Failed,
    HumanCall,
    ModelCall,
    ToolCall,
    fingerprint_of,
)
from runs.engine.facts import ApprovalLapsed, Fact, SiteRulesChanged
from runs.engine.gates import rule_that_asks
from runs.engine.kernel import Decision, advance
from runs.engine.machine import END, Block, Machine, State, Terms
from runs.engine.moves import Ask, Compact, Go, Move, Rewind, Stop
from runs.engine.outward import allowed_by_person, inherited
from runs.engine.presentation import BudgetRow
from runs.engine.rules import named
from runs.engine.settings import LIMIT_NAMES, Settings
from runs.engine.snapshot import Snapshot, Totals
from runs.engine.timeline import blocks_of, needed
from runs.engine.values import canonical, fingerprint
from runs.failpoints import failpoint
from runs.machines import CATALOGUE
from runs.models import Interrupt, Run, RunStatus

log = logging.getLogger(__name__)

TIMES_KEPT = 5
"""How often it is tried to keep a paid answer; each try waits as long as the database lets it."""

MOST_ROWS, LONGEST_S = 50, 0.1
"""Rows and seconds after which the gathered moves are committed even if no effect begins."""

RISKS = {"none": "low", "read": "low", "write": "medium", "send": "high", "execute": "high"}


class Paid(NamedTuple):
    """An answer that has come, its ask, and whether the ask is in the database."""

    asked: store.Asked
    answer: Answer
    written: bool


class Ledger:
    """The run between two moves, and the pen that writes the next one."""

    def __init__(self, run: Run, epoch: int, terms: Terms) -> None:
        self.run = run
        self.epoch = epoch
        self.terms = terms
        self.machine: Machine = CATALOGUE[run.machine]
        self.loaded = store.load(run, terms)
        self.snapshot: Snapshot = self.loaded.snapshot
        self.budgets = self.loaded.budgets
        self.head_hash, self.prompt_hash = run.head_hash, run.prompt_hash
        waits = self.loaded.exchange
        self.asked = store.Asked.stored(waits) if waits is not None else None
        """The exchange of the ask that waits."""
        self.held_back: tuple[store.Row, store.Asked] | None = None
        """A repeatable ask that is written with what follows from it."""
        self.noted: list[store.Row] = []
        """Rows that say that the site's rules have changed, and are written before all else."""
        self.gathered: store.Batch | None = None
        """The moves since the last commit. Nothing outside has seen them, and no effect has begun since."""
        self.gathered_since = 0.0
        self.paid: Paid | None = None
        """The answer that the gathered moves follow from."""
        self.started_here = False
        """Whether this worker itself has just written the ask that must not be repeated."""
        self.said: store.Said | None = None
        """The answer that was prepared for the question that is about to be written."""
        self.answered = False
        """Whether the question was answered as it was written: this seat is over."""
        self.unfit: store.BadDecision | None = None
        """What is wrong with the answer that was prepared: the question waits for a person."""
        self.blocks: list[Block] | None = None
        """What the model has been shown; read only where a model reads prompts."""
        self.last_reply: int | None = None
        """The ask of the last model reply, which the cache may remember."""
        self.woken: list[int] = []
        """Other runs that want a worker now: a child that was started, a parent that was answered."""
        self.mark = time.monotonic()
        self.counted_s = self.snapshot.totals.active_seconds
        """What the run has been active as far as its row has it from here."""
        self.took = 0.0
        """Seconds since the last row that says how long its move took."""
        self.site_rules = self.loaded.site_rules
        """The text of the site's rules by which moves are decided; the log has them."""
        self._mind_rules()

    def _mind_rules(self) -> None:
        rules = [rule for _, rule in self.snapshot.rules]
        self.counts_calls = any(rule.when.same_call for rule in rules)
        self.weighs_cost = any(rule.when.next_cost_usd is not None for rule in rules)

    def follow(self, site: store.SiteRules) -> None:
        """Go by these rules of the site from here on; where they are others, the next batch says so first."""
        if site.text == self.site_rules:
            return
        self.flush()  # the calls that were reached are counted in the database
        seq, facts = self.snapshot.head + 1, store.facts_text((SiteRulesChanged(rules=site.told),))
        self.noted.append(store.Row(seq, "note", self.snapshot.node, facts_json=facts))
        rules = named(self.terms, site.rules)
        calls = store.reached_calls(self.run, rules, seq)
        self.snapshot = replace(self.snapshot, head=seq, rules_now=rules, calls=calls)
        self.site_rules = site.text
        self._added += 1
        self._mind_rules()

    def write_noted(self) -> None:
        """Write that the site's rules have changed, where nothing else follows from it."""
        if self.noted:
            self.gathered, self.noted = self._opened(self.snapshot.totals), []
            self.flush()

    @property
    def parked(self) -> bool:
        """Whether the ask that waits is for a person or a child to answer."""
        pending = self.snapshot.pending
        return pending is not None and isinstance(pending.effect, HumanCall | ChildRun)

    @property
    def host(self) -> str:
        """The host that the call which waits contacts only because a person allowed it for this run."""
        pending = self.snapshot.pending
        if pending is None or not isinstance(pending.effect, ToolCall):
            return ""
        return allowed_by_person(self.snapshot.state, pending.effect)

    @property
    def may_leave(self) -> bool:
        """Whether others may go on from here: not between the row of a deed and the deed, nor with a row unwritten."""
        return self.held_back is None and not self.started_here

    def tick(self) -> None:
        """Add the time since the last look to what the run has been active."""
        now = time.monotonic()
        active = self.snapshot.totals.active_seconds + now - self.mark
        self.took += now - self.mark
        self.mark = now
        self.snapshot = replace(
            self.snapshot, totals=replace(self.snapshot.totals, active_seconds=round(active, 6))
        )

    def keep(self, asked: store.Asked | None, answer: Answer | None) -> None:
        """Save the paid answer to the ask that waits, where it led nowhere."""
        if answer is not None and asked is not None:
            self._keep(Paid(asked, answer, self.held_back is None))

    def _keep(self, paid: Paid) -> None:
        """Save it for the next worker where its ask is written, else as cost.

        The time that it took counts too; of a model call that failed nothing else does.
        """
        asked = paid.asked
        if asked.answer_json is None:
            asked.answered(paid.answer)
        seconds = round(self.snapshot.totals.active_seconds - self.counted_s, 6)
        asked_of = self.run.pk, self.epoch, asked
        for _ in range(TIMES_KEPT):
            try:
                once_there(partial(store.keep_answer, *asked_of, seconds, written=paid.written))
                return
            except OperationalError as fault:  # the row was locked for too long
                log.warning("run %s: a paid answer could not be kept yet: %s", self.run.pk, fault)
                connection.close_if_unusable_or_obsolete()

    def write(
        self, decision: Decision, answer: Answer | None, remember: tuple[str, str] | None = None
    ) -> None:
        """Gather a move with the answer it concludes, and commit before the next effect begins.

        `remember` is the transition whose reply is kept.
        """
        move = decision.move
        if isinstance(move, Ask) and self._can_wait(move, answer):
            self.flush()  # its effect begins before it is written
            self.held_back = self._ask_rows(move, self.head_hash)
            self.asked = self.held_back[1]
            self.snapshot = self._reached(advance(self.machine, self.snapshot, move, decision.totals), move)
            return
        asked = self.asked
        try:
            batch = self._made(decision, answer, remember)
        except BaseException:
            self.keep(asked, answer)
            raise
        if self.gathered is None:
            self.gathered_since = self.mark
        self.gathered = batch
        if answer is not None and asked is not None:
            self.paid = Paid(asked, answer, self.held_back is None)
        self._taken_in(batch, move)
        if self._must_commit(batch, move, answer):
            self.flush()
            if isinstance(move, Rewind):
                store.stop_children(self.run.pk, move.to)
        failpoint("between_moves")

    def _must_commit(self, batch: store.Batch, move: Move, answer: Answer | None) -> bool:
        """Return whether the gathered moves can't wait for the next one.

        A child's answer can't: a shared limit counts the child's cost by its parent's committed steps.
        """
        late = time.monotonic() - self.gathered_since > LONGEST_S
        last = not isinstance(move, Go | Compact) or self.snapshot.node == END
        return last or late or len(batch.rows) >= MOST_ROWS or isinstance(answer, ChildFinished)

    def _made(
        self, decision: Decision, answer: Answer | None, remember: tuple[str, str] | None
    ) -> store.Batch:
        """Return the gathered batch with this move added."""
        move, asked = decision.move, self.asked
        if isinstance(move, Rewind):
            self.write_noted()  # it is gone over as every row before
            self.flush()
        batch = self._opened(decision.totals)
        self._conclude(batch, answer)
        if isinstance(move, Rewind):
            self._go_back(batch, move)
        else:
            self._go_on(batch, move, decision, remember)
        if answer is not None and asked is not None:
            batch.rows[-1].cover("answer", asked.seq, asked)
        made = store.made_by(move.facts, answer, asked.seq if asked else None)
        batch.artifacts += tuple((batch.rows[-1].seq, one) for one in made)
        return batch

    def flush(self) -> None:
        """Commit the gathered moves in one transaction, then notify viewers.

        A commit that fails is not retried, because it may have taken effect; the paid answer is kept by itself.
        """
        batch, paid = self.gathered, self.paid
        self.gathered = self.paid = None
        if batch is None:
            return
        try:
            self._commit(batch, paid)
        except BaseException:
            if paid is not None:
                self._keep(paid)
            raise
        failpoint("after_commit_before_ring")
        self.started_here = bool(batch.asked) and batch.asked[-1].status == "started"
        if batch.concluded is not None and batch.concluded.kind == "tool_call":
            spool.drop(batch.concluded.key)
        self.counted_s = batch.totals.active_seconds
        self._tell(batch)

    def _commit(self, batch: store.Batch, paid: Paid | None) -> None:
        """Write it; a question with the answer that was prepared for it."""
        if paid is not None:
            failpoint("before_conclusion_commit")
        if batch.rows[-1].kind == "ask":
            failpoint("before_ask_commit")
        if self.said is None:
            self.head_hash = store.commit(batch)
            return
        self.head_hash, self.unfit = store.commit_answered(batch, self.said)
        self.answered = self.unfit is None

    def _can_wait(self, move: Ask, answer: Answer | None) -> bool:
        first = answer is None and self.held_back is None
        return first and not move.delay_s and repeatable(move.effect)

    def _opened(self, totals: Totals) -> store.Batch:
        """Return a copy of the gathered batch to add a move to: if the move fails, the original is unchanged."""
        before = self.gathered
        if before is None:
            before = store.Batch(
                run_id=self.run.pk,
                epoch=self.epoch,
                node=self.snapshot.node,
                totals=totals,
                known=replace(self.snapshot.totals, active_seconds=self.counted_s),
                head_hash=self.head_hash,
                prompt_hash=self.prompt_hash,
                rows=[],
            )
        return replace(
            before,
            totals=totals,
            site_rules=self.site_rules,
            rows=[*before.rows, *self.noted],
            asked=[*before.asked],
            budgets=[*before.budgets],
        )

    def _conclude(self, batch: store.Batch, answer: Answer | None) -> None:
        """The ask that is answered: written now where it was held back, else completed."""
        if self.held_back is not None:
            row, asked = self.held_back
            batch.rows.append(row)
            batch.asked.append(asked)
            batch.prompt_hash = self._shown(batch.prompt_hash, self.blocks_held_back())
            if answer is not None:
                asked.answered(answer)
        elif answer is not None and self.asked is not None and self.asked.status != "answered":
            self.asked.answered(answer)
            batch.concluded = self.asked

    def blocks_held_back(self) -> list[Block]:
        """How the model reads the ask that is not written yet."""
        if self.held_back is None or self.held_back[0].facts_json == "[]":
            return []
        row = self.held_back[0]
        return blocks_of(self.machine, self.machine.facts.validate_json(row.facts_json), row.seq)

    def _go_on(
        self,
        batch: store.Batch,
        move: Ask | Go | Stop | Compact,
        decision: Decision,
        remember: tuple[str, str] | None,
    ) -> None:
        before = self.snapshot
        asked: store.Asked | None = None
        if isinstance(move, Ask):
            row, asked = self._ask_rows(move, store.hash_after(batch))
            batch.asked.append(asked)
            if isinstance(move.effect, ToolCall):
                batch.host = allowed_by_person(before.state, move.effect)
        else:
            row = self._row(move)
        after = advance(self.machine, before, move, decision.totals)
        row.state_json = _changed(before.state, after.state)
        batch.rows.append(row)
        batch.node = after.node
        batch.prompt_hash = self._shown(batch.prompt_hash, blocks_of(self.machine, move.facts, row.seq))
        self._budget(batch, after)
        if after.node == END:
            if self.asked is not None and self.asked.status != "answered" and self.held_back is None:
                batch.left_behind = self.asked.seq
            batch.changes = store.ended(self.machine, after.state)
            unwritten = [row.facts_json for row in batch.rows]
            batch.parent = store.for_parent(
                self.run, self.machine, after.state, batch.changes, after.totals.cost_usd, unwritten
            )
        elif isinstance(move, Ask):
            self._park(batch, move)
        if isinstance(move, Go) and (before.node, move.edge) == remember:
            batch.remembered = self.last_reply
        self.snapshot, self.asked = self._reached(after, move), asked

    def _reached(self, after: Snapshot, move: Move) -> Snapshot:
        """With the call that was reached counted, where a rule looks at how often that was."""
        if not self.counts_calls or not isinstance(move, Ask) or move.attempt > 1:
            return after
        call = fingerprint_of(move.effect)
        return replace(after, calls={**after.calls, call: after.calls.get(call, 0) + 1}) if call else after

    def _row(self, move: Go | Stop | Compact) -> store.Row:
        node, seq, ms = self.snapshot.node, self.snapshot.head + 1, self._ms()
        facts = store.facts_text(move.facts)
        if isinstance(move, Stop | Compact):
            return store.Row(
                seq, "stop" if isinstance(move, Stop) else "compaction", node, facts_json=facts, ms=ms
            )
        return store.Row(
            seq, "transition", node, move.edge, self.machine.targets[node, move.edge], facts, ms=ms
        )

    def _ask_rows(self, move: Ask, head_hash: str) -> tuple[store.Row, store.Asked]:
        """`head_hash` is that of the row before."""
        seq, effect = self.snapshot.head + 1, move.effect
        row = store.Row(seq, "ask", self.snapshot.node, facts_json=store.facts_text(move.facts))
        if move.facts:
            row.state_json = _changed(self.snapshot.state, self.machine.fold(self.snapshot.state, move.facts))
        deed = isinstance(effect, ToolCall) and not effect.repeatable and not move.delay_s
        before = self.asked if move.attempt > 1 and _took_place(self.asked) else None
        call = fingerprint_of(effect)
        asked = store.Asked(
            seq=seq,
            kind=effect.kind,
            name=_name(effect),
            request_json=effect.model_dump_json(),
            status="started" if deed else "asked",
            key=before.key if before is not None else self._key(seq, call, head_hash),
            attempt=move.attempt,
            fingerprint=call,
        )
        row.cover("request", seq, asked)
        return row, asked

    def _key(self, seq: int, call: str | None, head_hash: str) -> str:
        """The idempotency key of what is asked at a row, with at most 64 characters.

        After a restore the same call at the same move has the same key, so that the far side still knows it; the rows
        that the restore, people and the runtime add in one of the two lives do not count. Another call there, or a call
        of another run that was given the same number, has another key: it would be taken for done. What is no call has
        the hash of the rows before, which no other life repeats.
        """
        place = seq - self._added if call else seq
        born = self.run.created_at.astimezone(UTC).isoformat(timespec="microseconds")
        told = hashlib.sha256(f"{born} {place} {call or head_hash}".encode()).hexdigest()
        return f"run-{self.run.pk}-{place}-{told[:12]}"

    @cached_property
    def _added(self) -> int:
        """Rows that are no moves; as long as this worker has the run, every other row is its own."""
        return store.rows_added(self.run.pk, self.loaded.snapshot.head)

    def _budget(self, batch: store.Batch, after: Snapshot) -> None:
        """The budget lines that have changed."""
        lines = list(self.machine.budget(after.state))
        for name in LIMIT_NAMES:
            if name in after.limits:
                used = round(after.totals.used(name), 10)
                lines.append(BudgetRow(scope="limits", name=name, used=used, limit=after.limits[name]))
        for line in lines:
            if self.budgets.get((line.scope, line.name)) != (line.used, line.limit):
                self.budgets[line.scope, line.name] = (line.used, line.limit)
                batch.budgets.append(line)

    def _park(self, batch: store.Batch, move: Ask) -> None:
        """An ask that no worker waits for: its person, its child, its moment."""
        match move.effect:
            case HumanCall() as call:
                self.said = self._prepared_answer(call, move)
                if self.said is None:
                    batch.changes = {"status": RunStatus.WAITING.value}
                row = batch.rows[-1]
                batch.interrupt = self._interrupt(call, move, row.seq)
                row.cover("question", row.seq, batch.interrupt)
            case ChildRun() as call:
                batch.changes = {"status": RunStatus.WAITING.value}
                child, checked = self._child(call, batch.rows[-1].seq)
                read = inherited(self.machine.fold(self.snapshot.state, move.facts))
                batch.child = child, checked, _first_row(child, read) if read else None
            case _ if move.delay_s:
                due = store.now() + timedelta(seconds=move.delay_s)
                batch.changes = {"status": RunStatus.QUEUED.value, "due_at": due}

    def _prepared_answer(self, call: HumanCall, move: Ask) -> store.Said | None:
        """The answer that was given beforehand; a question that is asked anew waits for a person."""
        if any(isinstance(fact, ApprovalLapsed) for fact in move.facts):
            return None
        rule = rule_that_asks(call, move.facts)
        return store.prepared_answer(self.run, call, self.terms.settings.answers, rule)

    def _go_back(self, batch: store.Batch, move: Rewind) -> None:
        self.loaded.snapshot = self.snapshot
        self.run.node, self.run.head = self.snapshot.node, self.snapshot.head
        back, after = store.rewind_batch(self.loaded, move)
        batch.rows += back.rows
        batch.node, batch.prompt_hash = after.node, back.prompt_hash
        batch.budgets, batch.dead_after = back.budgets, back.dead_after
        for line in batch.budgets:
            self.budgets[line.scope, line.name] = (line.used, line.limit)
        after = replace(after, calls=store.reached_calls(self.run, after.rules, move.to))
        self.snapshot, self.asked, self.blocks = after, None, None

    def _taken_in(self, batch: store.Batch, move: Move) -> None:
        """Go on from the gathered batch, which is not committed yet."""
        self.held_back, self.noted, self.started_here = None, [], False
        self.prompt_hash = batch.prompt_hash
        if isinstance(move, Compact) and self.blocks is not None:
            self.blocks = needed(self.blocks)

    def _tell(self, batch: store.Batch) -> None:
        live.ring(self.run.pk, batch.rows[-1].seq)
        if batch.interrupt is not None and not self.answered:
            live.ring_inbox()
        if batch.child is not None:
            self.woken.append(batch.child[0].pk)
        if batch.parent is not None:
            self.woken.append(batch.parent[0])
            live.ring(batch.parent[0], 0)

    def _shown(self, prompt_hash: str, blocks: list[Block]) -> str:
        """The hash chain over what the model has been shown, with these blocks."""
        if self.blocks is not None:
            self.blocks += blocks
        return store.prompt_chain(prompt_hash, blocks)

    def _ms(self) -> float:
        """Milliseconds that the move at hand took, the call that it concludes included: no clock can jump in them."""
        ms, self.took = round(self.took * 1000, 3), 0.0
        return ms

    def _interrupt(self, call: HumanCall, move: Ask, seq: int) -> Interrupt:
        shown = call.shown
        spec = self.terms.tools.get(shown.tool) if shown else None
        tool, effects, args, print_ = (
            (shown.tool, shown.effects, shown.args, shown.fingerprint) if shown else ("", "", {}, "")
        )
        schema = spec.parameters if spec else {}
        if call.about == "plan" and self.machine.plan is not None:
            args = self.machine.plan.shown(self.machine.fold(self.snapshot.state, move.facts))
            schema, print_ = self.machine.plan.schema, fingerprint("plan", args)
        deadline = store.now() + timedelta(seconds=call.deadline_s) if call.deadline_s else None
        return Interrupt(
            run=self.run,
            seq=seq,
            kind=call.about,
            title=call.title,
            why=call.why,
            tool=tool,
            args_json=canonical(args),
            # In the schema's own order: so the fields stand on the card.
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

    def _child(self, call: ChildRun, seq: int) -> tuple[Run, Settings]:
        named = self.terms.settings.subgraphs[call.name]
        settings = self._for_child(named.settings)
        checked = CATALOGUE[named.machine].settings.model_validate(settings)
        script = None
        if self.run.script_json:
            # By the rows, those gone back over included: a copy has the rows, and no children for them.
            started = self.run.exchanges.filter(kind="child_run", name=_name(call))
            nth = started.count() + 1
            script = script_of(self.run.script_json).for_child(call.name, nth)
        new = store.NewRun(
            machine=named.machine,
            goal=call.goal,
            settings=settings,
            checked=checked,
            script=script.as_json() if script is not None else None,
            model=checked.model or self.run.model,
            owner_id=self.run.owner_id,
            by_operator=self.run.by_operator,
            site_rules=tuple(json.loads(self.site_rules)),
            site_hosts=tuple(json.loads(self.run.site_hosts_json)),
        )
        child = store.unsaved(new)
        child.parent_id, child.parent_seq, child.child_name = self.run.pk, seq, call.name
        child.root_id = self.run.root_id or self.run.pk
        child.restored_at = self.run.restored_at
        return child, checked

    def _for_child(self, given: dict[str, Any]) -> dict[str, Any]:
        """A child's settings: a run that asks nobody at a limit has no child that does, and a child may contact the
        hosts of its parent, unless they say so themselves."""
        if self.terms.settings.on_limit == "stop":
            given = {"on_limit": "stop", **given}
        hosts = self.run.settings.get("hosts")
        return {"hosts": hosts, **given} if hosts else given


def _first_row(child: Run, read: tuple[Fact, ...]) -> store.Row:
    """Return the row that a child begins with: its goal may carry what its parent has read."""
    machine = CATALOGUE[child.machine]
    state = machine.fold(machine.open(store.terms_of(child, {})), read)
    row = store.Row(
        1, "note", child.node, facts_json=store.facts_text(read), state_json=state.model_dump_json()
    )
    child.head, child.head_hash = row.seq, row.hashed(child.head_hash)
    return row


def _risk(call: HumanCall) -> str:
    """Return how much harm the held call may do; what has been read and goes to a host is not taken back."""
    shown = call.shown
    risk = RISKS.get(shown.effects, "unknown") if shown else "low"
    return "medium" if call.host and risk == "low" else risk


def _took_place(attempt: store.Asked | None) -> bool:
    """Whether a failed attempt did; under the key of one that did not the far side takes nothing any more."""
    said = ANSWER.validate_json(attempt.answer_json) if attempt and attempt.answer_json else None
    return isinstance(said, Failed) and said.ran


def repeatable(effect: Effect) -> bool:
    """Whether doing it twice harms nobody, and a worker does it."""
    return isinstance(effect, ModelCall) or (isinstance(effect, ToolCall) and effect.repeatable)


def _name(effect: Effect) -> str:
    match effect:
        case ModelCall(role=role):
            return role
        case ToolCall() | ChildRun():
            return effect.tool
        case HumanCall(about=about):
            return about
        case Compaction():
            return "summary"


def _changed(before: State, after: State) -> str | None:
    """The state as text, where it is another one."""
    return None if after is before or after == before else after.model_dump_json()
