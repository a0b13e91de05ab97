"""The kernel: what never reaches a node, and what a person's answers do."""

from __future__ import annotations

from typing import Any

import pytest

from runs.engine import kernel, settling
from runs.engine.effects import (
    VERDICTS,
    Answer,
    ChildFinished,
    Compaction,
    ContextOverflowed,
    Failed,
    HumanCall,
    HumanSaid,
    ModelCall,
    ModelReplied,
    Summarised,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.engine.facts import Exited
from runs.engine.machine import END, Edge, GraphError, Machine
from runs.engine.moves import Ask, Compact, Go, Rewind, Stop
from runs.engine.snapshot import Held, Pending, Price, Snapshot, Totals, Window
from tests.engine.toys import TOY, ToyState, toy
from tests.worlds import GOAL, Run, ScriptedWorld, WorkerDied, said

BUSY = Failed(blame="transient", message="busy.")
GONE = Failed(blame="fatal", message="gone")


@pytest.fixture
def world() -> ScriptedWorld:
    return (
        ScriptedWorld()
        .tool("look", "seen", params={"x": "string"})
        .tool("save", "saved", effects="write", params={"x": "string"})
        .child("helper", ChildFinished(run="c", status="succeeded", answer="a", cost_usd=0.5))
    )


# --- failures ---------------------------------------------------------------------------------------------


def asks(run: Run, kind: str) -> list[tuple[int, float]]:
    return [(row.attempt, row.delay_s) for row in run.rows if row.effect and row.effect["kind"] == kind]


def test_a_transient_failure_is_asked_again_after_one_and_two_seconds(world: ScriptedWorld) -> None:
    run = world.model_says(BUSY, BUSY, "done").drive(TOY)
    assert asks(run, "model_call") == [(1, 0.0), (2, 1.0), (3, 2.0)]
    assert run.notices[:2] == ["retried", "retried"]
    assert (run.exit_reason, run.totals.model_calls) == ("complete", 1)


def test_an_attempt_that_failed_is_neither_counted_nor_charged(world: ScriptedWorld) -> None:
    run = world.model_says(BUSY, "done").drive(TOY)
    assert (run.totals.model_calls, run.totals.cost_usd, run.totals.input_tokens) == (1, 0.001, 10)


def test_the_third_transient_failure_of_a_model_is_a_model_error(world: ScriptedWorld) -> None:
    run = world.model_says(BUSY, BUSY, BUSY, "done").drive(TOY)
    assert (run.exit_reason, run.rows[-1].kind, run.snapshot.node) == ("model_error", "stop", END)


@pytest.mark.parametrize("blame", ["fatal", "recoverable"])
def test_a_model_that_fails_for_good_is_a_model_error_at_once(world: ScriptedWorld, blame: Any) -> None:
    run = world.model_says(Failed(blame=blame, message="no key")).drive(TOY)
    assert run.exit_reason == "model_error"
    assert asks(run, "model_call") == [(1, 0.0)]
    assert run.facts("react.exit")[0].message == "no key"


def test_the_third_transient_failure_of_a_tool_is_recoverable(world: ScriptedWorld) -> None:
    run = world.tool("look", BUSY, BUSY, BUSY, "seen").model_says("look a", "done").drive(TOY)
    assert asks(run, "tool_call") == [(1, 0.0), (2, 1.0), (3, 2.0)]
    report = run.facts("react.tool.result")[0]
    assert (report.error, run.exit_reason, run.totals.tool_calls) == ("busy.", "complete", 1)


# --- replies that did not end in order --------------------------------------------------------------------

PAID = Usage(input_tokens=10, output_tokens=20, cost_usd=0.01)


def unended(ended: Any, text: str = "save a", reasoning: str = "") -> ModelReplied:
    return ModelReplied(text=text, usage=PAID, ended=ended, reasoning=reasoning)


@pytest.mark.parametrize(("ended", "room"), [("length", 2), ("content_filter", 1)])
def test_a_reply_that_did_not_end_in_order_is_never_carried_out_though_it_parses(
    world: ScriptedWorld, ended: str, room: int
) -> None:
    run = world.model_says(unended(ended), "done").drive(TOY)
    assert run.exit_reason == "complete"
    assert run.asked("tool_call") == []
    assert [call["room"] for call in run.asked("model_call")] == [1, room]
    told = run.prompt(ModelCall(role="decision", reply="text"))
    assert any("Nothing of it was read." in message.text for message in told)


def test_it_is_paid_and_is_neither_model_call_nor_decision(world: ScriptedWorld) -> None:
    run = world.model_says(unended("length"), "done").drive(TOY)
    assert (run.totals.model_calls, run.totals.cost_usd, run.state.turns) == (1, 0.011, 1)
    assert [spent.cost_usd for spent in run.facts("run.spent")] == [0.01, 0.001]


@pytest.mark.parametrize(
    ("second", "cause"),
    [
        (
            unended("length"),
            "The reply was cut off at its limit of 20 tokens. Twice in a row. "
            "Raise max output tokens in the model's profile, or ask for less at once.",
        ),
        (
            unended("length", "", "hm"),
            "The reply was cut off at its limit of 20 tokens. It held only reasoning. Twice in a row. "
            "Raise max output tokens in the model's profile, or ask for less at once.",
        ),
        (
            unended("content_filter"),
            "The provider's content filter stopped the reply. Twice in a row. Change the goal or the model.",
        ),
    ],
)
def test_a_second_one_in_a_row_ends_the_run_with_its_cause(
    world: ScriptedWorld, second: ModelReplied, cause: str
) -> None:
    run = world.model_says(unended("length"), second, "done").drive(TOY)
    assert (run.exit_reason, run.status, run.totals.model_calls) == ("model_error", "failed", 0)
    assert (run.facts("react.exit")[0].message, run.totals.cost_usd) == (cause, 0.02)


def test_two_that_are_not_in_a_row_end_nothing(world: ScriptedWorld) -> None:
    run = world.model_says(unended("length"), "look a", unended("length"), "done").drive(TOY)
    assert (run.exit_reason, run.totals.model_calls) == ("complete", 2)
    assert [call["room"] for call in run.asked("model_call")] == [1, 2, 1, 2]


def test_a_reply_that_ends_in_an_error_is_tried_three_times_and_paid_each_time(world: ScriptedWorld) -> None:
    run = world.model_says(*[unended("error")] * 3, "done").drive(TOY)
    assert asks(run, "model_call") == [(1, 0.0), (2, 1.0), (3, 2.0)]
    assert (run.exit_reason, run.totals.cost_usd, run.totals.model_calls) == ("model_error", 0.03, 0)
    assert run.facts("react.exit")[0].message.startswith("The provider ended the reply with an error.")


def test_the_limits_are_looked_at_before_it_is_asked_again(world: ScriptedWorld) -> None:
    run = world.model_says(unended("length"), "done").drive(TOY, limits={"cost_usd": 0.01}, on_limit="stop")
    assert (run.exit_reason, len(run.asked("model_call"))) == ("cost_limit", 1)


def test_more_room_is_reserved_for_the_next_try(world: ScriptedWorld) -> None:
    """As much of it as the limits pay for."""
    for limit, room in ((0.5, 200), (0.1205, 110)):
        snapshot = _asked_within(limit)
        move, _ = kernel.decide(TOY, snapshot, unended("length"))
        assert isinstance(move, Ask) and isinstance(move.effect, ModelCall)
        assert (move.effect.room, move.effect.reply_tokens) == (2, room)


def _asked_within(limit: float) -> Snapshot:
    """A run that waits for its model, whose token costs a thousandth of a dollar and whose replies have 100 at most."""
    run = Run.start(TOY, {"limits": {"cost_usd": limit}}, {})
    window = Window(
        (), 10_000, 0.9, 0.5, tokens_per_character=1e-9, price=Price(reply_tokens=100, output_usd=0.001)
    )
    pending = Pending(ModelCall(role="decision", reply="text", reply_tokens=100), 1)
    return run.snapshot._replace(pending=pending, window=window, limits={"cost_usd": limit})


@pytest.mark.parametrize("ended", ["length", "content_filter", "error"])
def test_a_fallback_that_stays_unended_is_a_failure_for_the_node(world: ScriptedWorld, ended: str) -> None:
    world.model_says("fallback", "done").model_says(*[unended(ended)] * 3, role="fallback")
    run = world.drive(TOY)
    assert run.facts("react.tool.result")[0].error.endswith(
        ("less at once.", "Change the goal or the model.", "choose another model.")
    )
    assert run.exit_reason == "complete"


@pytest.mark.parametrize("ended", ["length", "content_filter", "error"])
def test_at_a_limit_an_unended_answer_is_the_fixed_sentence(world: ScriptedWorld, ended: str) -> None:
    world.model_says("look a").model_says(*[unended(ended, "half an ans")] * 3, role="fallback")
    run = world.person_says(said("finish")).drive(TOY, limits={"cost_usd": 0.001})
    assert (run.exit_reason, run.state.answer) == ("cost_limit", kernel.no_answer(run.state))


def test_reasoning_reaches_no_node_and_no_answer(world: ScriptedWorld) -> None:
    world.model_says("<think>save a</think>look a").model_says("a</think>It is 93.", role="fallback")
    run = world.person_says(said("finish")).drive(TOY, limits={"cost_usd": 0.001})
    assert (run.state.word, run.asked("tool_call"), run.state.answer) == ("look a", [], "It is 93.")


def test_a_transient_child_is_tried_again_too(world: ScriptedWorld) -> None:
    world.child("helper", BUSY, ChildFinished(run="c", status="succeeded", answer="a"))
    run = world.model_says("child go", "done").drive(TOY)
    assert asks(run, "child_run") == [(1, 0.0), (2, 1.0)]
    assert run.totals.tool_calls == 1


def test_a_fatal_tool_stops_the_run_where_the_table_names_no_edge(world: ScriptedWorld) -> None:
    run = world.tool("look", GONE).model_says("look a").drive(TOY)
    assert (run.exit_reason, run.rows[-1].kind, run.totals.tool_calls) == ("fatal_error", "stop", 1)


def test_a_fatal_tool_reaches_the_node_where_the_table_names_an_edge(world: ScriptedWorld) -> None:
    run = world.tool("look", GONE).model_says("look a", "done").drive(toy(frozenset({"act"})))
    assert run.exit_reason == "complete"
    assert run.facts("react.tool.result")[0].error == "gone"


def test_a_call_that_did_not_run_is_not_counted(world: ScriptedWorld) -> None:
    world.tool("look", Failed(blame="recoverable", message="refused", ran=False))
    assert world.model_says("look a", "done").drive(TOY).totals.tool_calls == 0


# --- prompts that are too long ----------------------------------------------------------------------------


def test_a_prompt_that_is_too_long_is_rendered_once_more_with_stubs(world: ScriptedWorld) -> None:
    run = world.model_says(ContextOverflowed(message="8192"), "done").drive(TOY)
    assert [effect["sanitize"] for effect in run.asked("model_call")] == [False, True]
    assert run.notices[0] == "context_overflow"
    assert (run.exit_reason, run.totals.model_calls) == ("complete", 1)


def test_a_prompt_that_is_too_long_leaves_no_more_room_for_its_reply(world: ScriptedWorld) -> None:
    cut = ModelReplied(text="do", ended="length")
    run = world.model_says(cut, ContextOverflowed(message="8192"), "done").drive(TOY)
    first, more, least = [effect["room"] for effect in run.asked("model_call")]
    assert first == least == 1 < more


def test_a_second_time_is_a_model_error(world: ScriptedWorld) -> None:
    run = world.model_says(ContextOverflowed(), ContextOverflowed(message="8192"), "done").drive(TOY)
    assert run.exit_reason == "model_error"
    assert "8192" in run.facts("react.exit")[0].message


def test_each_call_has_its_own_second_chance(world: ScriptedWorld) -> None:
    world.model_says(ContextOverflowed(), "look a", ContextOverflowed(), "done")
    assert world.drive(TOY).exit_reason == "complete"


# --- the graph --------------------------------------------------------------------------------------------


def test_a_question_that_holds_nothing_back_can_not_let_it_go() -> None:
    asked = Pending(HumanCall(about="tool_call", title="Run what?", why="It writes."), 1)
    start = ScriptedWorld().start(TOY).snapshot._replace(pending=asked)
    move = kernel.decide(TOY, start, HumanSaid(verdict="approve")).move
    assert isinstance(move, Stop) and move.reason == "fatal_error"
    assert "holds no call" in str(move.facts)


def test_the_call_that_waits_for_a_summary_keeps_its_place_and_its_gates() -> None:
    call = ModelCall(role="decision", reply="text")
    compaction = Compaction(first=1, last=3, tokens_before=10, holds=call, passed=("default",))
    start = ScriptedWorld().start(TOY).snapshot._replace(pending=Pending(compaction, 4))
    assert kernel.advance(TOY, start, Compact(), start.totals).held == Held(call, ("default",))


@pytest.mark.parametrize(("cost", "facts"), [(0.0, 0), (0.5, 1)])
def test_only_a_child_that_cost_something_has_its_cost_told(cost: float, facts: int) -> None:
    child = ChildFinished(run="2", status="succeeded", answer="42", cost_usd=cost)
    assert len(settling.cost_of(child)) == facts


def test_an_edge_that_is_not_declared_is_fatal(world: ScriptedWorld) -> None:
    run = world.model_says("undeclared").drive(TOY)
    assert (run.exit_reason, run.rows[-1].kind) == ("fatal_error", "stop")
    assert run.facts("react.exit")[0].message == "act asked for the edge nowhere, which is not declared."
    assert run.notices == ["word", "x"]


def test_a_run_can_not_end_without_a_reason(world: ScriptedWorld) -> None:
    run = world.model_says("reasonless").drive(TOY)
    assert run.exit_reason == "fatal_error"
    assert "without a reason" in run.facts("react.exit")[0].message


def test_a_node_can_not_stop_the_run_by_itself(world: ScriptedWorld) -> None:
    assert world.model_says("stop").drive(TOY).exit_reason == "fatal_error"


def test_an_answer_to_nothing_is_fatal() -> None:
    start = ScriptedWorld().start(TOY).snapshot
    decision = kernel.decide(TOY, start, ToolReturned(value=1))
    assert isinstance(decision.move, Stop)
    assert decision.move.reason == "fatal_error"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"edges": (*TOY.edges, Edge("act", "again", "act"))}, "declared twice"),
        ({"edges": (*TOY.edges, Edge("gone", "x", "act"))}, "gone, which is no node"),
        ({"edges": (*TOY.edges, Edge("act", "x", "gone"))}, "gone, which is no node"),
        ({"start": "gone"}, "first or its deciding node"),
        ({"deciding": "gone"}, "first or its deciding node"),
        ({"start": "act", "edges": TOY.edges[:1] + TOY.edges[2:]}, "think can't be reached"),
    ],
)
def test_a_graph_that_does_not_hold_together_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(GraphError, match=why):
        toy(**changes)


def test_the_exit_reason_is_written_once() -> None:
    state = ToyState(terms=ScriptedWorld().start(TOY).terms)
    ends = Exited(reason="aborted"), Exited(reason="fatal_error")
    assert TOY.fold(state, ends).exit_reason == "aborted"


# --- limits and the fallback ------------------------------------------------------------------------------


def test_finish_makes_one_fallback_call_that_no_limit_holds(world: ScriptedWorld) -> None:
    world.model_says("look a").model_says("all I know", role="fallback").person_says("finish")
    run = world.drive(TOY, limits={"tokens": 10})
    assert (run.exit_reason, run.answer, run.state.answer_source) == ("token_limit", "all I know", "fallback")
    assert (run.totals.model_calls, run.rows[-1].kind, run.status) == (2, "stop", "stopped")


@pytest.mark.parametrize(
    "failing",
    [
        [GONE],
        [BUSY, BUSY, BUSY],
        [Failed(blame="transient", message="away", patience_s=1.0, wait_s=5.0)],
        [ContextOverflowed(), ContextOverflowed()],
        ["   "],
    ],
)
def test_a_fallback_that_fails_gives_the_fixed_sentence(world: ScriptedWorld, failing: list[Any]) -> None:
    world.model_says("look a").model_says(*failing, role="fallback").person_says("finish")
    run = world.drive(TOY, limits={"cost_usd": 0.0005})
    assert (run.exit_reason, run.answer) == ("cost_limit", f"The run ended without an answer to: {GOAL}")
    assert run.state.answer_source == "fallback"


def test_a_fallback_at_a_server_that_stays_away_is_not_retried_beyond_its_patience(
    world: ScriptedWorld,
) -> None:
    away = Failed(blame="transient", message="away", patience_s=1.0, wait_s=5.0)
    world.model_says("look a").model_says(away, away, away, role="fallback").person_says("finish")
    assert "retried" not in world.drive(TOY, limits={"tokens": 10}).notices


def test_a_fallback_that_fails_is_paid_once(world: ScriptedWorld) -> None:
    failed = Failed(blame="recoverable", message="cut", usage=Usage(cost_usd=0.5))
    world.model_says("look a").model_says(failed, role="fallback").person_says("finish")
    run = world.drive(TOY, limits={"tokens": 10})
    assert run.totals.cost_usd == 0.501  # with the first reply


@pytest.mark.parametrize("failing", [[GONE], [ContextOverflowed(), ContextOverflowed()], [BUSY, BUSY, BUSY]])
def test_a_call_that_may_fail_gives_its_failure_to_the_node(world: ScriptedWorld, failing: list[Any]) -> None:
    run = world.model_says("fallback", "done").model_says(*failing, role="fallback").drive(TOY)
    assert run.exit_reason == "complete"
    assert run.facts("react.tool.result")[0].error


def test_a_call_that_may_fail_does_so_at_a_limit(world: ScriptedWorld) -> None:
    run = world.model_says("fallback").drive(TOY, limits={"tokens": 10}, on_limit="stop")
    assert run.facts("react.tool.result")[0].error == "The limit tokens is reached."
    assert run.exit_reason == "token_limit"


def test_top_up_lets_the_held_call_go(world: ScriptedWorld) -> None:
    world.model_says("look a", "done").person_says(said("top_up", args={"tokens": 100}))
    run = world.drive(TOY, limits={"tokens": 10})
    assert (run.exit_reason, run.interrupts) == ("complete", ["limit"])
    assert run.snapshot.limits == {"tokens": 110}


def test_top_up_of_too_little_asks_again(world: ScriptedWorld) -> None:
    world.model_says("look a", "done").person_says(said("top_up", args={"tokens": 1}), "abort")
    run = world.drive(TOY, limits={"tokens": 10})
    assert run.interrupts == ["limit", "limit"]


def test_what_was_approved_stays_approved_over_a_limit(world: ScriptedWorld) -> None:
    """The limit is reached while a person thinks about the call; topping up does not ask for the call again."""
    world.seconds_per_effect = 3.0
    world.model_says("save a", "done").person_says("approve", said("top_up", args={"active_seconds": 100}))
    run = world.drive(TOY, limits={"active_seconds": 5})
    assert run.interrupts == ["tool_call", "limit"]
    assert (run.exit_reason, run.totals.tool_calls) == ("complete", 1)


# --- people -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("about", list(VERDICTS))
def test_abort_and_rollback_answer_every_kind(about: Any) -> None:
    assert set(VERDICTS[about][-2:]) == {"abort", "rollback"}
    pending = Pending(HumanCall(about=about, title="", why=""), 7)
    snapshot = Snapshot("think", ScriptedWorld().start(TOY).state, head=8, pending=pending)
    aborted = kernel.decide(TOY, snapshot, said("abort", message="enough")).move
    assert isinstance(aborted, Stop)
    assert aborted.reason == "aborted"
    back = kernel.decide(TOY, snapshot, said("rollback", to_step=3)).move
    assert isinstance(back, Rewind)
    assert (back.to, back.facts[0].from_seq, back.facts[0].by) == (3, 8, "alice")  # type: ignore[attr-defined]


def test_the_verdicts_are_the_specs() -> None:
    assert {about: verdicts[:-2] for about, verdicts in VERDICTS.items()} == {
        "tool_call": ("approve", "edit", "reject", "respond"),
        "question": ("respond",),
        "limit": ("top_up", "finish"),
        "every_n_steps": ("resume",),
        "manual": ("resume",),
        "human_approval": ("approve", "reject"),
        "plan": ("approve", "edit", "reject"),
        "may_have_happened": ("approve", "respond", "reject"),
    }


def test_a_call_waits_for_a_person_and_is_released(world: ScriptedWorld) -> None:
    run = world.model_says("save a", "done").person_says("approve").drive(TOY)
    assert [row.kind for row in run.rows[2:6]] == ["ask", "decision", "ask", "transition"]
    assert run.facts("react.tool.result")[0].value == "saved"


@pytest.mark.parametrize(
    ("decision", "value", "error"),
    [
        (said("respond", message="by hand"), "by hand", None),
        (said("reject", message="no"), None, "no"),
        (said("reject"), None, "Refused by a person."),
    ],
)
def test_a_call_that_is_answered_for_or_refused_is_not_run(
    world: ScriptedWorld, decision: Any, value: Any, error: Any
) -> None:
    run = world.model_says("save a", "done").person_says(decision).drive(TOY)
    report = run.facts("react.tool.result")[0]
    assert (report.value, report.error, report.ran, run.totals.tool_calls) == (value, error, False, 0)
    assert run.asked("tool_call") == []


def test_an_edited_call_is_checked_against_the_schema(world: ScriptedWorld) -> None:
    world.model_says("save a", "save a", "done")
    run = world.person_says(said("edit", args={"x": "b", "y": 1}), said("edit", args={"x": "b"})).drive(TOY)
    assert "unknown_param" in run.notices
    assert [call["args"] for call in run.asked("tool_call")] == [{"x": "b"}]
    edited = run.facts("react.tool.edited")[0]
    assert (edited.args, edited.by) == ({"x": "b"}, "alice")


def test_an_edit_that_does_not_fit_the_schema_is_not_run(world: ScriptedWorld) -> None:
    world.tool("save", effects="write", params={"x": "string"}, required=("x",))
    run = world.model_says("save a", "done").person_says(said("edit", args={"x": 5})).drive(TOY)
    report = run.facts("react.tool.result")[0]
    assert (report.ran, run.totals.tool_calls) == (False, 0)
    assert report.error == "The call that a person wrote can't run. save: x must be a string, not an integer."
    assert run.asked("tool_call") == []


def test_an_edited_child_gets_the_new_goal(world: ScriptedWorld) -> None:
    rules = [{"when": {"tool": "agent.*"}, "do": "ask"}]
    run = (
        world.model_says("child a", "done")
        .person_says(said("edit", args={"goal": "b"}))
        .drive(TOY, rules=rules)
    )
    assert run.asked("child_run")[0]["goal"] == "b"
    assert run.exit_reason == "complete"


@pytest.mark.parametrize("verdict", ["resume", "finish", "top_up", "rollback"])
def test_a_verdict_of_another_kind_or_a_rollback_without_a_step_is_fatal(
    verdict: str, world: ScriptedWorld
) -> None:
    run = world.model_says("save a").start(TOY)
    while not run.waits_for:
        assert run.step(world)
    move = kernel.decide(TOY, run.snapshot, said(verdict)).move
    assert isinstance(move, Stop)
    assert move.reason == "fatal_error"


# --- calls that may have happened -------------------------------------------------------------------------


def test_a_repeatable_call_of_a_lost_worker_is_made_again(world: ScriptedWorld) -> None:
    run = world.tool("look", WorkerDied(), "seen").model_says("look a", "done").drive(TOY)
    assert run.kinds() == [
        "ask",
        "transition",
        "ask",
        "recovered",
        "transition",
        "ask",
        "transition",
        "transition",
    ]
    assert run.totals.tool_calls == 1


def test_an_idempotent_call_of_a_lost_worker_is_made_again(world: ScriptedWorld) -> None:
    world.tool("save", WorkerDied(), "saved", effects="write", idempotent=True)
    world.model_says("save a", "done").person_says("approve")
    run = Run.start(_idempotent_toy(), {}, world.tools).drive(world)
    assert run.interrupts == ["tool_call"]
    assert run.exit_reason == "complete"


def _idempotent_toy() -> Machine:
    def act(state: ToyState, answer: Answer | None) -> Any:
        if answer is None and state.word.startswith("save"):
            return Ask(ToolCall(tool="save", args={}, effects="write", idempotent=True))
        return TOY.nodes["act"](state, answer)

    return toy(nodes={**TOY.nodes, "act": act})


@pytest.mark.parametrize(
    ("decision", "value", "error", "calls"),
    [
        (said("approve"), "saved", None, 1),
        (said("respond", message="it did"), "it did", None, 1),
        (said("reject", message="it did not"), None, "it did not", 1),
    ],
)
def test_another_call_of_a_lost_worker_is_a_persons_to_judge(
    world: ScriptedWorld, decision: Any, value: Any, error: Any, calls: int
) -> None:
    world.tool("save", WorkerDied(), "saved", effects="write")
    run = world.model_says("save a", "done").person_says("approve", decision).drive(TOY)
    assert run.interrupts == ["tool_call", "may_have_happened"]
    questions = [row.effect for row in run.rows if row.effect and row.effect["kind"] == "human_call"]
    assert questions[1]["why"] == (
        "The worker stopped mid-call; the outcome is unknown. A second call may cause harm."
    )
    report = run.facts("react.tool.result")[0]
    assert (report.value, report.error, report.ran, run.totals.tool_calls) == (value, error, True, calls)


# --- costs ------------------------------------------------------------------------------------------------


def test_what_an_answer_cost_is_the_first_fact(world: ScriptedWorld) -> None:
    run = world.model_says("child go", "done").drive(TOY)
    spent = [row.told[0] for row in run.rows if row.told and row.told[0].kind == "run.spent"]
    assert [fact.cost_usd for fact in spent] == [0.001, 0.5, 0.001]
    assert run.totals.cost_usd == pytest.approx(0.502)


def test_a_cached_reply_counts_and_costs_nothing() -> None:
    start = ScriptedWorld().start(TOY).snapshot
    asked = kernel.advance(TOY, start, Ask(ModelCall(role="decision", reply="text")), start.totals)
    decision = kernel.decide(TOY, asked, ModelReplied(text="done", cached=True))
    assert (decision.totals.model_calls, decision.totals.cached_model_calls, decision.totals.cost_usd) == (
        1,
        1,
        0,
    )
    assert [fact.kind for fact in decision.move.facts] == ["react.notice"]


def test_the_last_reply_is_charged_where_the_run_stops() -> None:
    start = ScriptedWorld().start(toy(nodes={**TOY.nodes, "think": _undeclared})).snapshot
    asked = kernel.advance(TOY, start, Ask(ModelCall(role="decision", reply="text")), start.totals)
    usage = Usage(input_tokens=7, cost_usd=0.1)
    decision = kernel.decide(
        toy(nodes={**TOY.nodes, "think": _undeclared}), asked, ModelReplied(text="", usage=usage)
    )
    assert isinstance(decision.move, Stop)
    assert decision.totals.cost_usd == 0.1
    assert decision.move.facts[0].kind == "run.spent"


def _undeclared(state: ToyState, answer: Answer | None) -> Go:
    return Go("nowhere")


def test_what_was_answered_in_a_tools_place_is_no_tool_call() -> None:
    assert Totals().after(ToolReturned(value=1)).tool_calls == 1
    assert Totals().after(ToolReturned(value=1, ran=False)).tool_calls == 0


def test_a_summary_is_a_model_call() -> None:
    after = Totals().after(Summarised(text="so far", usage=Usage(input_tokens=3, cost_usd=0.5)))
    assert (after.model_calls, after.input_tokens, after.cost_usd) == (1, 3, 0.5)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("complete", "succeeded"),
        ("goal_achieved", "succeeded"),
        ("max_steps", "stopped"),
        ("cost_limit", "stopped"),
        ("fatal_error", "failed"),
        ("tool_error", "failed"),
        ("model_error", "failed"),
        ("aborted", "cancelled"),
    ],
)
def test_the_status_follows_from_the_reason(reason: str, status: str) -> None:
    state = ScriptedWorld().start(TOY).state.model_copy(update={"exit_reason": reason})
    assert kernel.status_of(TOY, state) == status
