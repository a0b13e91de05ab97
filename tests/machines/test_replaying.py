"""A run that is made again from its record: in random worlds, for every machine, every row comes out the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runs.engine.effects import Answer
from runs.engine.facts import Fact
from runs.engine.machine import Machine, State
from runs.engine.replaying import Opening, Record, RecordedRow, Replay
from runs.machines import CATALOGUE
from tests.earlier_words import worded_then
from tests.machines.plays import PLAYS
from tests.machines.tapes import Tape, TapedWorld
from tests.worlds import Run, ScriptedWorld

every_machine = pytest.mark.parametrize("machine", CATALOGUE.values(), ids=list(CATALOGUE))
RULED = CATALOGUE["ruled"]
WORLDS = 400 if settings.get_current_profile_name() == "ci" else 40
LONG = b"\x07\x21\x03\x55\x10\x02\x41\x33\x08\x99\x05\x61" * 12
"""A tape that makes a run of some length in every machine."""


class Heard(list[Answer]):
    """The answers of a world, each under the row that asked."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.by_seq: dict[int, Answer] = {}

    def append(self, answer: Answer) -> None:
        pending = self.run.snapshot.pending
        assert pending is not None
        self.by_seq[pending.seq] = answer
        super().append(answer)


def played(machine: Machine, data: bytes, stubborn: int, gifts: int) -> tuple[Run, Record]:
    """A run in a random world, and its record."""
    world = TapedWorld(PLAYS[machine.name], Tape(data, stubborn), gifts, 3)
    run = world.start(machine)
    heard = Heard(run)
    run.answers = heard
    run.drive(world)
    return run, record_of(machine, run, heard.by_seq)


def _passed_over(run: Run, facts: list[dict[str, Any]]) -> bool:
    """The world of these tests compacts only where a limit is set, whoever wants it; the driver does always."""
    limit = run.terms.settings.context.limit_tokens
    return limit is None and any(fact["kind"] == "conv.compaction.wanted" for fact in facts)


def _with_limits(run: Run) -> dict[str, Any]:
    """The settings; a limit that people of this world raise without its being set is one that nothing reaches."""
    settings: dict[str, Any] = run.terms.settings.model_dump(mode="json", exclude_unset=True, by_alias=True)
    raised = {fact["name"] for row in run.rows for fact in row.facts if fact["kind"] == "run.limit"}
    limits = settings.get("limits") or {}
    unset = {name: 10**12 for name in raised if limits.get(name) is None}
    return settings | {"limits": limits | unset}


def record_of(machine: Machine, run: Run, answers: dict[int, Answer]) -> Record:
    rows = []
    for row in run.rows:
        answer = answers.get(row.seq)
        rows.append(
            RecordedRow(
                seq=row.seq,
                kind=row.kind,
                node=row.node,
                edge=row.edge,
                to=row.to if row.kind in ("transition", "rewind") else None,
                facts=() if _passed_over(run, row.facts) else tuple(row.facts),
                state=row.state,
                effect=row.effect,
                attempt=row.attempt,
                answer=answer.model_dump(mode="json") if answer else None,
            )
        )
    return Record(
        run="1",
        machine=machine.name,
        goal=run.terms.goal,
        settings=_with_limits(run),
        tools=run.terms.tools,
        opening=Opening(node=machine.start),
        rows=tuple(rows),
    )


@every_machine
@given(data=st.binary(min_size=30, max_size=300), stubborn=st.integers(0, 7), gifts=st.integers(0, 12))
@example(  # `planned`, whose time is used up where it would ask for an answer in plain text
    data=b"O\0\0\0\0\xf8\0\0\0\0\0\0\0\3\0\0\1\0\0\0\0\0\0\0\1\0\0'\0\0\1\0\0\0\xca\0\0:\0\0\1\0\0\0\0\1",
    stubborn=0,
    gifts=2,
)
@example(  # `contract`, told by a rule about every third step, and with another that asks at a cost
    data=b"\0\1\0\0\0\0\0\0\0\0\0\xf87\xc0" + b"\0" * 19 + b"\1\0\0",
    stubborn=1,
    gifts=1,
)
@settings(max_examples=WORLDS, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_row_comes_out_the_same(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    run, record = played(machine, data, stubborn, gifts)
    replay = Replay(machine, Record.model_validate_json(record.model_dump_json())).upto()
    assert replay.difference is None
    assert len(replay.rows) == len(run.rows)
    assert replay.snapshot.state.model_dump() == run.snapshot.state.model_dump()
    assert replay.snapshot.node == run.snapshot.node
    assert replay.snapshot.totals.model_calls == run.snapshot.totals.model_calls
    assert replay.snapshot.totals.cost_usd == pytest.approx(run.snapshot.totals.cost_usd)
    older = Replay(machine, Record.model_validate(_in_words_only(record))).upto()
    assert (older.difference, len(older.rows)) == (None, len(run.rows))


def _in_words_only(record: Record) -> dict[str, Any]:
    """The record as a test that was exported earlier holds it: figures and rules are in sentences only."""
    kept = record.model_dump(mode="json")
    for row in kept["rows"]:
        for fact in row["facts"]:
            if fact["kind"] in ("react.notice", "react.exit"):
                fact.pop("rule", None)
        row["effect"] = worded_then(row["effect"]) if row["effect"] else None
    return kept


@pytest.mark.parametrize("cost", [0.02, 0.05])
def test_two_rules_about_the_cost_with_one_name_are_told_apart(cost: float) -> None:
    world = ScriptedWorld().model_says({"thought": "FINAL ANSWER: 7", "action": None})
    world.next_cost_usd = cost
    dear = [(0.03, "deny"), (0.01, "notify")]
    rules = [{"when": {"next_cost_usd": over}, "do": do, "name": "Costly"} for over, do in dear]
    run = world.start(RULED, rules=rules)
    run.answers = heard = Heard(run)
    run.drive(world)
    record = record_of(RULED, run, heard.by_seq)
    assert Replay(RULED, record).upto().difference is None


@every_machine
def test_a_replay_can_end_earlier(machine: Machine) -> None:
    _, record = played(machine, LONG, 3, 4)
    replay = Replay(machine, record).upto(2)
    assert [row.seq for row in replay.rows] == [1, 2]
    assert replay.difference is None


@every_machine
def test_a_machine_that_concludes_otherwise_is_found_at_the_first_row(machine: Machine) -> None:
    """The negative control: without the comparison this machine would pass."""

    def evolve(state: State, fact: Fact) -> State:
        after: State = machine.evolve(state, fact)
        if fact.kind == "run.spent":
            return after.model_copy(update={"interrupts_asked": {"other": 1}})
        return after

    run, record = played(machine, LONG, 3, 4)
    spent = next(row.seq for row in run.rows if any(fact["kind"] == "run.spent" for fact in row.facts))
    replay = Replay(replace(machine, evolve=evolve), record).upto()
    assert replay.difference is not None
    assert (replay.difference.seq, replay.difference.what) == (spent, "the state")
    assert len(replay.rows) == spent - 1


def _changed(record: Record, at: int, **parts: Any) -> Record:
    rows = [row.model_copy(update=parts) if row.seq == at else row for row in record.rows]
    return record.model_copy(update={"rows": tuple(rows)})


@every_machine
@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_changed_row_is_found(machine: Machine, data: st.DataObject) -> None:
    """A row whose node, edge, facts, state or request were changed: the replay does not pass it."""
    _, record = played(machine, LONG, 3, 0)
    made = [row for row in record.rows if row.kind in ("transition", "ask")]
    row = data.draw(st.sampled_from(made))
    notice = {"kind": "react.notice", "code": "forged", "message": "never said"}
    change: dict[str, Any] = data.draw(
        st.sampled_from(
            [
                {"node": "elsewhere"},
                {"edge": "forged"},
                {"facts": (*row.facts, notice)},
                {"state": {**(row.state or {}), "exit_reason": "complete"}},
                {"kind": "stop", "edge": None, "to": None},
                {"attempt": 2},
            ]
        )
    )
    replay = Replay(machine, _changed(record, row.seq, **change)).upto()
    assert replay.difference is not None
    assert replay.difference.seq <= row.seq + 1
    assert str(replay.difference).startswith(f"Run 1, step {replay.difference.seq}: ")


@every_machine
def test_a_changed_answer_is_found(machine: Machine) -> None:
    _, record = played(machine, LONG, 3, 0)
    asked = next(row for row in record.rows if row.answer and row.answer["kind"] == "model_replied")
    other = {**(asked.answer or {}), "text": '{"something": "else"}', "usage": {"input_tokens": 1}}
    replay = Replay(machine, _changed(record, asked.seq, answer=other)).upto()
    assert replay.difference is not None
    assert replay.difference.seq > asked.seq


@every_machine
def test_a_row_that_is_missing_is_found(machine: Machine) -> None:
    _, record = played(machine, LONG, 3, 0)
    replay = Replay(machine, record.model_copy(update={"rows": record.rows[1:]})).upto()
    assert replay.difference is not None
    assert (replay.difference.seq, replay.rows) == (2, [])
