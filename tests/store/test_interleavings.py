"""Random lives of a run: two workers, people, lost workers and the sweep in any order, also in the middle of a call.

After every step each run verifies and has a way to go on; what has ended stays so; nothing that was spent comes back;
no deed is done twice under one key.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from runs import actions, driver, tasks
from runs.driver import Slice
from runs.models import FINISHED, Interrupt, Run
from runs.store import errors, leases
from tests.launching import FINAL, launch, script, think
from tests.running import check_everything, check_run, lose_worker, transitions
from tests.workers import WorkerKilled, die_in, kill, slice_of

pytestmark = [pytest.mark.database]

REPLIES = (
    think("send", to="a"),
    "no JSON",
    think("search", q="x"),
    {"thought": "I guess so", "action": {"tool": "search", "args": {"q": "x"}}},
    think("agent.inner", goal="Look"),
    think("send", to="b"),
    {"$error": "transient"},
    think("nothing"),
    think("send", to="c"),
    FINAL,
)
MET: Counter[str] = Counter()
"""What all lives of a test met: a law that nothing was held against says nothing."""

INNER = (think("send", to="inner"), {"thought": "FINAL ANSWER: inner", "action": None})
ENDLESS = (FINAL,) * 60


def new_run() -> Run:
    """A run in which a little of everything happens."""
    played = script(*REPLIES, *ENDLESS, subgraphs={"inner": {"replies": {"decision": [*INNER, *ENDLESS]}}})
    return launch(
        played=played,
        subgraphs={"inner": {"machine": "ruled", "settings": {}}},
        limits={"cost_usd": 0.003},
        interrupt_every=3,
        rules=[{"when": {"tool": "send", "args": {"to": {"in": ["a", "b"]}}}, "do": "allow"}],
    )


class Lives(RuleBasedStateMachine):
    """One run, its children, and all who meddle with them."""

    def __init__(self) -> None:
        super().__init__()
        Run.objects.all().delete()
        self.run = new_run()
        self.ends: dict[int, tuple[str, int]] = {}
        self.spent: dict[int, tuple[Any, ...]] = {}
        self.checked: dict[int, tuple[Any, ...]] = {}
        """How each run stood when it was last checked."""
        self.done: list[tuple[str, str]] = []
        """Every call from the moment that a tool carries it out: whether its worker hears of it is another thing."""

    # who meddles

    def person(self, move: str, number: int) -> None:
        """A person's move on one of the runs; what can't be done is refused, and changes nothing."""
        run = list(Run.objects.order_by("pk"))[number % Run.objects.count()]
        try:
            match move:
                case "pause":
                    actions.pause(run, by=None)
                case "resume":
                    actions.resume(run, by=None)
                case "abort":
                    actions.abort(run, by=None)
                case "rewind":
                    targets = transitions(run) or [0]
                    actions.rewind(run, to=targets[number % len(targets)], by=None)
                case "decide":
                    self.decide(number)
                case "lose":
                    lose_worker(run)
                    leases.claim(run.pk, "gamma")
        except (actions.NotPossible, actions.Conflict):
            return

    @property
    def deeds(self) -> list[str]:
        """The keys of the calls that change something; another one may be made again."""
        return [key for tool, key in self.done if tool == "send"]

    def decide(self, number: int) -> None:
        question = Interrupt.objects.filter(status="pending").order_by("created_at").first()
        if question is None:
            return
        verdict = question.verdicts[number % len(question.verdicts)]
        if verdict == "abort" and number % 5:
            return
        parts: dict[str, Any] = {}
        match verdict:
            case "top_up":
                parts["args"] = {"cost_usd": 0.002}
            case "edit":
                parts["args"] = question.args
            case "respond":
                parts["message"] = "a result"
            case "rollback":
                targets = transitions(question.run)
                if not targets:
                    return
                parts["to_step"] = targets[number % len(targets)]
        actions.decide(question.pk, verdict=verdict, by=None, channel="web", **parts)

    def driven(self, number: int) -> Run | None:
        """A run that somebody can take now, its worker gone; where all wait, the oldest question is answered first."""
        due = Run.objects.filter(status__in=("queued", "running")).order_by("pk")
        if not due.exists():
            self.person("decide", 0)
        if not (found := list(due)):
            return None
        run = found[number % len(found)]
        lose_worker(run)
        return run

    # what happens

    @rule(number=st.integers(0, 9), moves=st.integers(1, 9))
    def a_worker_drives(self, number: int, moves: int) -> None:
        if run := self.driven(number):
            slice_of(run, Slice(moves=moves), done=self.done)

    @rule(
        number=st.integers(0, 9),
        move=st.sampled_from(["pause", "rewind", "decide", "lose", "abort"]),
        only=st.sampled_from(["", "decision", "send", "search"]),
        when=st.sampled_from(["before", "after"]),
    )
    def somebody_meddles_in_the_middle_of_a_call(self, number: int, move: str, only: str, when: str) -> None:
        run = self.driven(number)
        if run is None or (move == "abort" and number):
            return
        done: list[str] = []
        deeds: dict[str, Any] = {}

        def meddle() -> None:
            if not done:
                done.append(move)
                self.person(move, number)

        try:
            deeds[when] = meddle
            slice_of(run, only=only, done=self.done, **deeds)
        except errors.Fenced:
            MET["fenced"] += 1
        finally:
            MET["meddled"] += len(done)

    @rule(
        number=st.integers(0, 9),
        only=st.sampled_from(["", "decision", "send", "send", "search"]),
        when=st.sampled_from(["before", "after"]),
    )
    def a_worker_dies_in_a_call(self, number: int, only: str, when: str) -> None:
        if run := self.driven(number):
            try:
                deeds: dict[str, Any] = {when: kill}
                die_in(run, only=only, done=self.done, **deeds)
                MET["died"] += 1
            except (WorkerKilled, pytest.fail.Exception):
                lose_worker(run)  # it met no such call, and is gone all the same

    @rule(
        move=st.sampled_from(["pause", "resume", "rewind", "decide", "decide", "decide"]),
        number=st.integers(0, 9),
    )
    def a_person_moves(self, move: str, number: int) -> None:
        self.person(move, number)

    @precondition(lambda self: Run.objects.filter(status="paused").exists())
    @rule()
    def everything_is_resumed(self) -> None:
        for run in Run.objects.filter(status="paused"):
            actions.resume(run, by=None)

    @rule()
    def the_sweep_comes(self) -> None:
        tasks.sweep()

    # what always holds

    @invariant()
    def every_run_holds_together(self) -> None:
        for run in Run.objects.all():
            stands = (run.head, run.epoch, run.status, run.model_calls, run.tool_calls)
            if self.checked.get(run.pk) != stands:
                check_run(run)
                self.checked[run.pk] = stands
            now = (run.status, run.head)
            assert self.ends.setdefault(run.pk, now) == now if run.pk in self.ends else True
            if run.status in FINISHED:
                self.ends[run.pk] = now
            used = (
                run.model_calls,
                run.tool_calls,
                run.input_tokens,
                run.output_tokens,
                round(run.cost_usd, 9),
            )
            before = self.spent.get(run.pk, used)
            assert all(was <= is_now for was, is_now in zip(before, used, strict=True)), (before, used)
            self.spent[run.pk] = used

    @invariant()
    def no_deed_is_done_twice(self) -> None:
        assert len(self.deeds) == len(set(self.deeds)), Counter(self.deeds).most_common(3)

    def teardown(self) -> None:
        """Whatever has happened, the run can be brought to an end."""
        for _ in range(300):
            self.run.refresh_from_db()
            if self.run.finished:
                break
            self.everything_is_resumed()
            for run in Run.objects.filter(status__in=("queued", "running")):
                lose_worker(run)
                slice_of(run, done=self.done)
            for question in Interrupt.objects.filter(status="pending"):
                verdict = {"question": "respond"}.get(question.kind, question.verdicts[0])
                more = {"cost_usd": 1.0} if verdict == "top_up" else None
                actions.decide(
                    question.pk, verdict=verdict, by=None, channel="web", message="go on", args=more
                )
        assert self.run.finished, self.run.status
        check_everything()
        self.no_deed_is_done_twice()
        MET["lives"] += 1
        MET["deeds"] += len(self.deeds)
        Run.objects.all().delete()


def test_random_lives_hold_together(transactional_db: None) -> None:
    MET.clear()
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=int(os.environ.get("LIVES", "10")),  # a soak: LIVES=500
            stateful_step_count=20,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    assert driver.drive(0) == []
    lives = MET["lives"]
    assert MET["deeds"] >= lives, MET
    assert MET["meddled"] + MET["died"] >= lives / 4, MET
