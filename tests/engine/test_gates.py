"""Gates: which effects pass, which wait for a person, which are refused, and which end the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runs.engine import gates
from runs.engine.effects import (
    ChildFinished,
    ChildRun,
    Compaction,
    EffectClass,
    HumanCall,
    HumanSaid,
    ModelCall,
    ToolCall,
    Usage,
)
from runs.engine.facts import Notice
from runs.engine.kernel import decide
from runs.engine.moves import Ask
from runs.engine.rules import is_of_site, named
from runs.engine.settings import InterruptRule
from runs.engine.snapshot import Pending, Price, SharedLimit, Snapshot, Totals, Window
from runs.engine.worker_questions import lost_too_often
from tests.engine.toys import TOY, ToyState
from tests.worlds import Run, ScriptedWorld, said

MODEL = ModelCall(role="decision", reply="text")


COMPACTION = Compaction(first=1, last=2, tokens_before=9, holds=ModelCall(role="decision", reply="text"))


def tool(name: str = "send_mail", effects: EffectClass = "send", **args: Any) -> ToolCall:
    return ToolCall(tool=name, args=args, effects=effects)


def snapshot(totals: Totals | None = None, **settings: Any) -> Snapshot:
    """A run of the toy at its start."""
    start = ScriptedWorld().start(TOY, **settings).snapshot
    return start._replace(totals=totals or Totals())


def ruled_by(*rules: dict[str, Any]) -> Snapshot:
    return snapshot(rules=rules)


def opinion(at: Snapshot, effect: Any, *passed: str) -> str:
    """What the gates say, in one word."""
    return type(gates.on_effect(at, effect, passed)).__name__.lower()


def rule(do: str, **when: Any) -> dict[str, Any]:
    return {"when": when, "do": do}


# --- without rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effects", "said"),
    [("none", "pass"), ("read", "pass"), ("write", "hold"), ("send", "hold"), ("execute", "hold")],
)
def test_the_default_goes_by_effect(effects: EffectClass, said: str) -> None:
    assert opinion(snapshot(), tool(effects=effects)) == said


def test_models_children_and_summaries_pass_by_default() -> None:
    for effect in (MODEL, ChildRun(name="helper", goal="g"), COMPACTION):
        assert opinion(snapshot(), effect) == "pass"


def test_the_default_asks_with_its_reason() -> None:
    held = gates.on_effect(snapshot(), tool(to="bob"), ())
    assert isinstance(held, gates.Hold)
    assert (held.call.about, held.call.holds, held.call.passed) == ("tool_call", tool(to="bob"), ("default",))
    assert held.call.why == "Tools that send need approval (default rule)."


def test_what_was_answered_is_not_asked_again() -> None:
    assert opinion(snapshot(), tool(), "default") == "pass"
    assert opinion(snapshot(), tool(), gates.ALL) == "pass"
    assert opinion(ruled_by(rule("ask", tool="*")), tool(), "rule:1") == "pass"
    assert opinion(ruled_by(rule("ask", tool="*")), tool(), "default") == "hold"


# --- rules on calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "said"), [("allow", "pass"), ("ask", "hold"), ("deny", "refuse"), ("notify", "pass")]
)
def test_what_a_rule_does(do: str, said: str) -> None:
    assert opinion(ruled_by(rule(do, tool="send_*")), tool()) == said


def test_deny_is_a_reject() -> None:
    refused = gates.on_effect(ruled_by(rule("deny", tool="send_*")), tool(), ())
    assert isinstance(refused, gates.Refuse)
    assert (refused.answer.blame, refused.answer.ran) == ("recoverable", False)
    assert "deny when tool send_*" in refused.answer.message


def test_notify_says_so() -> None:
    passed = gates.on_effect(ruled_by(rule("notify", tool="send_*")), tool(), ())
    assert isinstance(passed, gates.Pass)
    assert [fact.code for fact in passed.facts] == ["rule_notified"]  # type: ignore[attr-defined]


def test_a_rule_gives_its_deadline() -> None:
    held = gates.on_effect(
        ruled_by({"when": {"tool": "*"}, "do": "ask", "deadline_s": 3600, "on_timeout": "abort"}), tool(), ()
    )
    assert isinstance(held, gates.Hold)
    assert (held.call.deadline_s, held.call.on_timeout) == (3600, "abort")


@pytest.mark.parametrize(
    ("when", "matches"),
    [
        ({"tool": "send_mail"}, True),
        ({"tool": "SEND_MAIL"}, False),
        ({"tool": "send_?ail"}, True),
        ({"tool": "mail"}, False),
        ({"effects": ["write", "send"]}, True),
        ({"effects": ["read"]}, False),
        ({"effects": []}, False),
        ({"tool": "send_*", "effects": ["read"]}, False),
        ({}, True),
    ],
)
def test_which_calls_a_rule_is_about(when: dict[str, Any], matches: bool) -> None:  # noqa: FBT001
    assert opinion(ruled_by({"when": when, "do": "deny"}), tool()) == ("refuse" if matches else "hold")


TO: dict[str, Any] = {
    "to": "bob@example.com",
    "n": 3,
    "deep": {"list": [{"x": "y"}, 7]},
    "flag": True,
    "none": None,
    "dot.ted": 1,
}


@pytest.mark.parametrize(
    ("args", "matches"),
    [
        ({"to": {"equals": "bob@example.com"}}, True),
        ({"to": {"equals": "eve@example.com"}}, False),
        ({"to": {"like": "*@example.com"}}, True),
        ({"to": {"not_like": "*@example.com"}}, False),
        ({"to": {"not_like": "*@evil.com"}}, True),
        ({"to": {"in": ["a", "bob@example.com"]}}, True),
        ({"to": {"in": []}}, False),
        ({"n": {"gt": 2}}, True),
        ({"n": {"gt": 3}}, False),
        ({"n": {"lt": 4, "gt": 2}}, True),
        ({"n": {"lt": 4, "gt": 3}}, False),
        ({"deep.list.0.x": {"equals": "y"}}, True),
        ({"deep.list.1": {"lt": 8}}, True),
        ({"deep.list.9": {"lt": 8}}, False),
        ({"deep.list.x": {"lt": 8}}, False),
        ({"none": {"equals": None}}, True),
        ({"n": {"equals": None}}, False),
        ({"missing": {"equals": None}}, False),
        ({"missing": {"not_like": "*"}}, False),
        ({"to": {"like": "bob*"}, "n": {"gt": 9}}, False),
    ],
)
def test_conditions_on_arguments(args: dict[str, Any], matches: bool) -> None:  # noqa: FBT001
    at = ruled_by({"when": {"args": args}, "do": "deny"})
    assert opinion(at, tool(**TO)) == ("refuse" if matches else "hold")


@pytest.mark.parametrize(
    "args",
    [
        {"n": {"like": "3*"}},
        {"to": {"lt": 3}},
        {"flag": {"gt": 0}},
        {"none": {"not_like": "x"}},
        {"n": {"like": "3*"}, "to": {"like": "bob*"}},
        {"to": {"like": "bob*"}, "n": {"like": "3*"}},
    ],
)
@pytest.mark.parametrize("do", ["allow", "deny", "notify", "ask"])
def test_a_rule_that_can_not_be_evaluated_asks(args: dict[str, Any], do: str) -> None:
    held = gates.on_effect(ruled_by({"when": {"args": args}, "do": do}), tool(effects="read", **TO), ())
    assert isinstance(held, gates.Hold)
    assert "can't be evaluated" in held.call.why


def test_a_condition_that_fails_for_certain_makes_a_doubtful_one_irrelevant() -> None:
    at = ruled_by({"when": {"args": {"n": {"like": "3*"}, "to": {"equals": "nobody"}}}, "do": "deny"})
    assert opinion(at, tool(effects="read", **TO)) == "pass"


def test_the_first_match_wins() -> None:
    allow, deny = rule("allow", tool="send_*"), rule("deny", tool="*")
    assert opinion(ruled_by(allow, deny), tool()) == "pass"
    assert opinion(ruled_by(deny, allow), tool()) == "refuse"
    assert opinion(ruled_by(allow, deny), tool("rm", "execute")) == "refuse"
    assert opinion(ruled_by(rule("notify", tool="*"), deny), tool()) == "pass"


def test_a_child_is_a_call_of_its_name() -> None:
    child = ChildRun(name="helper", goal="look")
    assert opinion(ruled_by(rule("ask", tool="agent.helper")), child) == "hold"
    assert opinion(ruled_by(rule("deny", tool="agent.*", args={"goal": {"like": "l*"}})), child) == "refuse"
    assert opinion(ruled_by(rule("deny", effects=["none"])), child) == "refuse"


# --- the same call again ----------------------------------------------------------------------------------


def test_the_same_call_is_counted_by_tool_and_canonical_arguments() -> None:
    world = (
        ScriptedWorld()
        .tool("look", "seen", params={"x": "string"})
        .model_says(*["look a", "look b"] * 2, "done")
    )
    run = world.drive(TOY, rules=[rule("ask", same_call=2)])
    assert run.interrupts == ["tool_call"]
    assert run.waits_for and run.waits_for.holds == ToolCall(tool="look", args={"x": "a"}, effects="read")


def test_an_approved_repetition_runs_and_the_next_asks_again() -> None:
    world = ScriptedWorld().tool("look", "seen", params={"x": "string"}).model_says(*["look a"] * 4, "done")
    run = world.person_says("approve", "approve").drive(TOY, rules=[rule("ask", same_call=3)])
    assert (run.interrupts, run.exit_reason, run.totals.tool_calls) == (["tool_call"] * 2, "complete", 4)


def test_a_repetition_can_be_denied_and_named() -> None:
    world = (
        ScriptedWorld().tool("look", "seen", params={"x": "string"}).model_says("look a", "look a", "done")
    )
    run = world.drive(TOY, rules=[rule("deny", same_call=2, tool="look")])
    assert (
        run.facts("react.tool.result")[1].error
        == "Refused by a rule: deny when tool look, the same call 2 times"
    )


def test_repeated_calls_are_looked_at_after_approvals() -> None:
    at = ruled_by(rule("allow", tool="*"), rule("ask", same_call=1))
    held = gates.on_effect(at, tool(), ())
    assert isinstance(held, gates.Hold)
    assert held.call.passed == ("rule:2",)
    at = ruled_by(rule("ask", same_call=1), rule("ask", tool="*"))
    held = gates.on_effect(at, tool(), ())
    assert isinstance(held, gates.Hold)
    assert held.call.passed == ("rule:2",)
    held = gates.on_effect(at, tool(), held.call.passed)
    assert isinstance(held, gates.Hold)
    assert held.call.passed == ("rule:2", "rule:1")
    assert opinion(at, tool(), *held.call.passed) == "pass"


# --- questions to a person ---------------------------------------------------------------------------------


def world_that_asks(*answers: Any) -> ScriptedWorld:
    world = ScriptedWorld().tool("ask", effects="none", params={"x": "string"}, asks="x")
    return world.model_says("ask bob", "done").person_says(*answers)


def test_a_call_that_asks_is_a_question_and_its_answer_the_result() -> None:
    run = world_that_asks(said("respond", message="Red")).drive(TOY)
    (asked,) = run.asked("human_call")
    assert (asked["about"], asked["title"], asked["questions"]) == ("question", "bob", ["bob"])
    (told,) = run.facts("react.tool.result")
    assert (told.value, told.ran, told.error) == ({"answer": "Red", "by": "alice"}, False, None)
    assert run.asked("tool_call") == [] and run.exit_reason == "complete"
    assert run.snapshot.state.data_read == (), "a person's word is no stranger's"


def test_a_call_that_asks_passes_the_rules_first() -> None:
    run = world_that_asks("approve", said("respond", message="Red")).drive(TOY, rules=[rule("ask", tool="*")])
    assert (run.interrupts, run.exit_reason) == (["tool_call", "question"], "complete")
    run = world_that_asks().drive(TOY, rules=[rule("deny", tool="ask")])
    assert run.interrupts == []
    assert run.facts("react.tool.result")[0].error.startswith("Refused by a rule")


def test_a_rule_that_notes_such_a_call_says_so_with_the_question() -> None:
    run = world_that_asks(said("respond", message="Red")).drive(TOY, rules=[rule("notify", tool="ask")])
    assert [notice.code for notice in run.facts("react.notice")].count("rule_notified") == 1


# --- edits ------------------------------------------------------------------------------------------------


def world_with_mail() -> ScriptedWorld:
    world = ScriptedWorld().tool("mail", "sent", effects="send", params={"x": "string"})
    return world.model_says("mail bob", "done")


def test_after_an_edit_the_gate_that_asked_is_answered() -> None:
    run = world_with_mail().person_says(said("edit", args={"x": "eve"})).drive(TOY)
    assert (run.interrupts, run.exit_reason) == (["tool_call"], "complete")
    assert run.asked("tool_call")[0]["args"] == {"x": "eve"}


def test_after_an_edit_the_call_does_what_its_new_arguments_do() -> None:
    world = ScriptedWorld().model_says("mail bob", "done")
    world.tool("mail", "seen", effects="send", params={"x": "string"}, reads_if={"x": ("look",)})
    run = world.person_says(said("edit", args={"x": "look"})).drive(TOY)
    assert [(call["args"], call["effects"]) for call in run.asked("tool_call")] == [({"x": "look"}, "read")]


def test_after_an_edit_another_rule_asks_anew() -> None:
    rules = [rule("ask", args={"x": {"equals": "eve"}}), rule("ask", tool="*")]
    world = world_with_mail().person_says(said("edit", args={"x": "eve"}), "approve")
    run = world.drive(TOY, rules=rules)
    assert run.interrupts == ["tool_call", "tool_call"]
    assert run.exit_reason == "complete"


def test_after_an_edit_deny_applies() -> None:
    rules = [rule("deny", args={"x": {"equals": "eve"}})]
    run = world_with_mail().person_says(said("edit", args={"x": "eve"})).drive(TOY, rules=rules)
    assert run.facts("react.tool.result")[0].error.startswith("Refused by a rule")
    assert run.totals.tool_calls == 0


def test_after_an_edit_only_the_gate_that_asked_is_answered() -> None:
    """The default asked first and was answered for other arguments: after an edit elsewhere it asks again."""
    rules = [rule("ask", same_call=1)]
    world = world_with_mail().person_says("approve", said("edit", args={"x": "eve"}), "approve")
    run = world.drive(TOY, rules=rules)
    whys = [effect["why"] for effect in run.asked("human_call")]
    assert [why.endswith("(default rule).") for why in whys] == [True, False, True]
    assert run.exit_reason == "complete"


# --- the next cost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "cost", "said"),
    [
        ("ask", 0.02, "hold"),
        ("ask", 0.01, "pass"),
        ("deny", 0.02, "end"),
        ("allow", 0.02, "pass"),
        ("notify", 0.02, "pass"),
    ],
)
def test_the_next_cost(do: str, cost: float, said: str) -> None:
    at = ruled_by(rule(do, next_cost_usd=0.01))._replace(next_cost_usd=cost)
    assert opinion(at, MODEL) == said
    assert opinion(at, tool(effects="read")) == "pass"


def test_a_question_about_a_cost_has_it_as_a_figure() -> None:
    held = gates.on_effect(ruled_by(rule("ask", next_cost_usd=0.01))._replace(next_cost_usd=0.02), MODEL, ())
    assert isinstance(held, gates.Hold)
    assert held.call.cost_usd == 0.02


@pytest.mark.parametrize("after", ["ask", "deny"])
def test_a_cost_that_an_earlier_rule_allows_is_not_held_by_a_later_one(after: str) -> None:
    rules = (rule("allow", next_cost_usd=0.01), rule(after, next_cost_usd=0.01))
    assert opinion(ruled_by(*rules)._replace(next_cost_usd=0.02), MODEL) == "pass"


def test_a_rule_that_only_notes_a_cost_says_so_in_the_row() -> None:
    at = ruled_by(rule("notify", next_cost_usd=0.01))._replace(next_cost_usd=0.02)
    passed = gates.on_effect(at, MODEL, ())
    assert isinstance(passed, gates.Pass)
    assert [fact.code for fact in passed.facts if isinstance(fact, Notice)] == ["rule_notified"]


def test_as_long_as_no_price_is_known_no_call_is_too_dear() -> None:
    assert opinion(ruled_by(rule("ask", next_cost_usd=0.01)), MODEL) == "pass"


def test_a_costly_call_that_was_let_go_is_made() -> None:
    world = ScriptedWorld().model_says("done").person_says("resume")
    world.next_cost_usd = 0.05
    run = world.drive(TOY, rules=[rule("ask", next_cost_usd=0.01)])
    assert (run.interrupts, run.exit_reason) == (["manual"], "complete")


def test_a_costly_call_that_is_denied_ends_the_run() -> None:
    world = ScriptedWorld().model_says("done")
    world.next_cost_usd = 0.05
    run = world.drive(TOY, rules=[rule("deny", next_cost_usd=0.01)])
    assert (run.exit_reason, run.totals.model_calls) == ("cost_limit", 0)


# --- limits -----------------------------------------------------------------------------------------------


def test_a_run_without_limits_of_its_own_is_held_by_those_that_it_shares() -> None:
    shared = SharedLimit(limit=1.0, elsewhere=1.0, root=7)
    assert opinion(snapshot()._replace(shared={"cost_usd": shared}), MODEL) == "hold"
    assert opinion(snapshot()._replace(shared={"cost_usd": replace(shared, elsewhere=0.5)}), MODEL) == "pass"


def test_of_a_model_whose_replies_cost_nothing_only_the_prompt_can_be_too_much() -> None:
    price = Price(reply_tokens=500, input_usd=0.001)
    assert gates.room_for_reply("cost_usd", 0.01, 10, price) == 500
    assert gates.room_for_reply("cost_usd", 0.0099, 10, price) < 0


@pytest.mark.parametrize(("left", "said"), [(gates.LEAST_REPLY, "pass"), (gates.LEAST_REPLY - 1, "hold")])
def test_a_limit_is_reached_where_the_shortest_useful_reply_has_no_room(left: int, said: str) -> None:
    window = Window(
        blocks=(), limit=100_000, compact_at=0.8, keep_recent=0.5, price=Price(reply_tokens=4_000)
    )
    at = snapshot(limits={"tokens": 1_000})._replace(window=window)
    assert opinion(at, MODEL.model_copy(update={"input_tokens": 1_000 - left})) == said


def test_without_a_known_price_the_limits_look_at_what_is_used_alone() -> None:
    world = ScriptedWorld().model_says("done")
    window = Window(blocks=(), limit=10_000, compact_at=0.8, keep_recent=0.5)
    start = world.start(TOY, limits={"cost_usd": 1.0})
    move = decide(TOY, start.snapshot._replace(window=window), None).move
    assert isinstance(move, Ask) and isinstance(move.effect, ModelCall)
    assert (move.effect.input_tokens, move.effect.reply_tokens) == (0, 0)


@pytest.mark.parametrize("effect", [MODEL, tool(effects="read"), ChildRun(name="helper", goal="g")])
@pytest.mark.parametrize(
    ("limits", "totals", "reached"),
    [
        ({"cost_usd": 1}, Totals(cost_usd=0.99), False),
        ({"cost_usd": 1}, Totals(cost_usd=1), True),
        ({"cost_usd": 1}, Totals(cost_usd=1.01), True),
        ({"tokens": 10}, Totals(input_tokens=5, output_tokens=4), False),
        ({"tokens": 10}, Totals(input_tokens=5, output_tokens=5), True),
        ({"active_seconds": 2}, Totals(active_seconds=1.9), False),
        ({"active_seconds": 2}, Totals(active_seconds=2), True),
        ({"cost_usd": 0}, Totals(), True),
        ({"tokens": 0}, Totals(), True),
        ({"active_seconds": 0}, Totals(), True),
    ],
)
def test_a_limit_is_reached_at_it_or_above(effect: Any, limits: Any, totals: Totals, reached: bool) -> None:  # noqa: FBT001
    assert opinion(snapshot(totals, limits=limits), effect) == ("hold" if reached else "pass")
    assert opinion(snapshot(totals, limits=limits, on_limit="stop"), effect) == ("end" if reached else "pass")


def test_zero_allows_no_call_at_all() -> None:
    run = ScriptedWorld().model_says("done").drive(TOY, limits={"cost_usd": 0}, on_limit="stop")
    assert (run.exit_reason, run.totals.model_calls, run.kinds()) == ("cost_limit", 0, ["stop"])


def test_limits_are_checked_in_order() -> None:
    limits = {"active_seconds": 0, "tokens": 0, "cost_usd": 0}
    for reason in ("cost_limit", "token_limit", "time_limit"):
        at = snapshot(limits=limits, on_limit="stop")
        ended = gates.on_effect(at, MODEL, ())
        assert isinstance(ended, gates.End)
        assert ended.reason == reason
        limits.popitem()


def test_limits_come_before_approvals() -> None:
    at = snapshot(limits={"tokens": 0}, rules=[rule("deny", tool="*")])
    held = gates.on_effect(at, tool(), ())
    assert isinstance(held, gates.Hold)
    assert (held.call.about, held.call.limit) == ("limit", "tokens")


def test_the_limit_names_itself() -> None:
    held = gates.on_effect(snapshot(Totals(cost_usd=0.5), limits={"cost_usd": 0.25}), MODEL, ())
    assert isinstance(held, gates.Hold)
    assert (held.call.title, held.call.holds) == ("Limit reached: cost_usd 0.5 of 0.25", MODEL)


def test_summaries_and_people_are_no_calls() -> None:
    at = snapshot(limits={"tokens": 0})
    assert opinion(at, COMPACTION) == "pass"
    assert opinion(at, HumanCall(about="question", title="", why="")) == "pass"


def test_no_answer_passes_a_limit_gate_for_good() -> None:
    assert opinion(snapshot(limits={"tokens": 0}), tool(effects="read"), gates.ALL) == "hold"


def test_a_closing_call_is_held_by_no_limit() -> None:
    assert opinion(snapshot(limits={"tokens": 0}), MODEL.model_copy(update={"at_limit": "pass"})) == "pass"
    assert opinion(snapshot(limits={"tokens": 0}), MODEL.model_copy(update={"at_limit": "fail"})) == "refuse"


def test_the_overshoot_is_one_call() -> None:
    world = (
        ScriptedWorld(Usage(cost_usd=0.4)).tool("look", params={"x": "string"}).model_says(*["look a"] * 9)
    )
    run = world.drive(TOY, limits={"cost_usd": 1}, on_limit="stop")
    assert (run.exit_reason, run.totals.model_calls) == ("cost_limit", 3)
    assert run.totals.cost_usd == pytest.approx(1.2)


def test_the_cost_of_a_child_counts() -> None:
    world = ScriptedWorld().child("helper", ChildFinished(run="c", status="failed", cost_usd=2))
    run = world.model_says("child a", "done").drive(TOY, limits={"cost_usd": 1}, on_limit="stop")
    assert run.exit_reason == "cost_limit"


# --- on entry ---------------------------------------------------------------------------------------------


def entry(turns: int, asked: dict[str, int] | None = None, **settings: Any) -> Any:
    at = snapshot(**settings)
    assert isinstance(at.state, ToyState)
    state = at.state.model_copy(update={"turns": turns, "interrupts_asked": asked or {}})
    return gates.on_entry(TOY, at._replace(state=state))


@pytest.mark.parametrize(
    ("turns", "asked", "due"),
    [(0, 0, 0), (1, 0, 0), (2, 0, 2), (2, 2, 0), (3, 2, 0), (4, 2, 4), (3, 0, 2), (5, 2, 4), (2, 4, 0)],
)
def test_interrupt_every(turns: int, asked: int, due: int) -> None:
    """Once per multiple; one that was passed over between two entries is asked at the next."""
    said = entry(turns, {"settings": asked}, interrupt_every=2)
    if due:
        assert said.call.about == "every_n_steps"
        assert said.facts[0].multiple == due
    else:
        assert said == gates.PASS


@pytest.mark.parametrize(
    ("do", "said"), [("ask", gates.Hold), ("deny", gates.End), ("allow", gates.Pass), ("notify", gates.Pass)]
)
def test_rules_on_every_n_steps(do: str, said: type) -> None:
    rules = [rule(do, every_n_steps=2)]
    assert isinstance(entry(2, rules=rules), said)
    assert entry(1, rules=rules) == gates.PASS
    assert entry(2, {"rule:1": 2}, rules=rules) == gates.PASS


def test_before_the_first_step_the_plan_is_shown() -> None:
    rules = [rule("ask", first_step=True)]
    assert entry(0, rules=rules).call.about == "plan"
    assert entry(0, {"rule:1": 1}, rules=rules) == gates.PASS
    assert entry(1, rules=rules) == gates.PASS


def test_a_fork_that_was_changed_is_asked_before_its_own_first_step() -> None:
    rules = [rule("ask", first_step=True)]
    assert entry(3, {"rule:1": 0}, rules=rules).call.about == "plan"
    assert entry(3, {"rule:1": 1}, rules=rules) == gates.PASS


def test_a_rule_that_denies_is_answered_by_nobody_who_answered_for_all_gates() -> None:
    assert opinion(ruled_by(rule("deny", tool="send_*")), tool(), gates.ALL) == "refuse"
    assert gates.in_force(ruled_by(rule("deny", tool="x"), rule("ask", tool="y"))) == ("default", "rule:2")


def test_rules_of_the_site_that_came_later_are_named_by_what_they_say() -> None:
    at = ruled_by(rule("allow", tool="*"))
    site = [InterruptRule.model_validate(one) for one in (rule("ask", tool="send_*"), rule("deny", tool="x"))]
    at = at._replace(rules_now=named(at.state.terms, site))
    names = [one.name for one in at.rules]
    assert names[2:] == ["rule:1"]
    assert all(name.startswith("site:") for name in names[:2]) and names[0] != names[1]
    assert opinion(at, tool()) == "hold"
    assert opinion(at, tool(), names[0]) == "pass"
    assert opinion(at, tool(), "rule:1") == "hold"
    assert [is_of_site(name, 0) for name in names] == [True, True, False]
    assert [is_of_site(f"rule:{place}", 2) for place in (1, 2, 3)] == [True, True, False]
    assert not is_of_site("default", 2) and not is_of_site("", 2)


def test_on_entry_too_the_first_match_wins() -> None:
    assert entry(2, rules=[rule("allow", every_n_steps=2), rule("ask", every_n_steps=1)]) == gates.PASS
    assert (
        entry(1, rules=[rule("allow", every_n_steps=2), rule("ask", every_n_steps=1)]).facts[0].rule
        == "rule:2"
    )
    both = [rule("ask", every_n_steps=2), rule("ask", every_n_steps=1)]
    assert entry(2, {"rule:1": 2}, rules=both) == gates.PASS


def test_the_setting_asks_before_the_rules() -> None:
    said = entry(2, interrupt_every=2, rules=[rule("deny", every_n_steps=2)])
    assert isinstance(said, gates.Hold)
    assert said.facts[0].rule == "settings"  # type: ignore[attr-defined]


def drive_turns(*decisions: Any, **settings: Any) -> Run:
    world = ScriptedWorld().tool("look", params={"x": "string"}).model_says(*["look a"] * 4, "done")
    return world.person_says(*decisions).drive(TOY, **settings)


def test_every_n_steps_asks_before_limits_do() -> None:
    world = ScriptedWorld().child(
        "helper", ChildFinished(run="c", status="succeeded", answer="a", cost_usd=1)
    )
    world.model_says("child a", "done").person_says("resume")
    run = world.drive(TOY, interrupt_every=1, limits={"cost_usd": 1})
    assert run.interrupts == ["every_n_steps", "limit"]


def test_a_rule_that_notifies_every_n_steps_does_so_once_each() -> None:
    run = drive_turns(rules=[rule("notify", every_n_steps=2)])
    assert run.notices.count("rule_notified") == 2
    assert (run.interrupts, run.exit_reason) == ([], "complete")


def test_a_rule_that_denies_every_n_steps_ends_the_run() -> None:
    run = drive_turns(rules=[rule("deny", every_n_steps=2)])
    assert (run.exit_reason, run.state.turns) == ("aborted", 2)


@pytest.mark.parametrize(
    ("verdict", "reason"), [("approve", "complete"), ("edit", "complete"), ("reject", "aborted")]
)
def test_the_plan_is_approved_or_refused(verdict: str, reason: str) -> None:
    assert drive_turns(verdict, rules=[rule("ask", first_step=True)]).exit_reason == reason


# --- after a restore --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effects", "said"),
    [("none", "pass"), ("read", "pass"), ("write", "hold"), ("send", "hold"), ("execute", "hold")],
)
def test_a_restored_run_asks_by_effect_whatever_its_rules_allow(effects: EffectClass, said: str) -> None:
    restored = ruled_by(rule("allow", tool="*"))._replace(restored=7)
    assert opinion(restored, tool(effects=effects)) == said
    assert opinion(restored, ChildRun(name="helper", goal="g")) == "pass"


def test_a_yes_counts_for_its_own_restore_and_none_that_comes_later() -> None:
    restored = ruled_by(rule("allow", tool="*"))._replace(restored=7)
    held = gates.on_effect(restored, tool(), ())
    assert isinstance(held, gates.Hold) and gates.asks_after_restore(held.call)
    assert opinion(restored, tool(), *held.call.passed) == "pass"
    assert opinion(restored._replace(restored=9), tool(), *held.call.passed) == "hold"
    assert opinion(restored, tool(), *gates.in_force(restored)) == "pass"


def test_an_answer_by_hand_counts_for_the_restore_beside_its_own_question() -> None:
    held = gates.on_effect(snapshot(), tool(), ())
    assert isinstance(held, gates.Hold)
    for verdict in ("approve", "edit"):
        said = HumanSaid(verdict=verdict, gates=gates.after_restore(7))
        assert opinion(snapshot()._replace(restored=7), tool(), *gates.answered_by(held.call, said)) == "pass"


# --- lost workers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pending", "holds", "passed"),
    [
        (MODEL, MODEL, gates.in_force(snapshot())),
        (tool(effects="read"), tool(effects="read"), gates.in_force(snapshot())),
        (Compaction(first=1, last=2, tokens_before=9, holds=MODEL, passed=("Costly",)), MODEL, ("Costly",)),
        (None, None, ()),
    ],
    ids=["model", "read", "compaction", "nothing"],
)
def test_a_run_that_loses_its_workers_asks_and_holds_what_it_was_about_to_do(
    pending: Any, holds: Any, passed: tuple[str, ...]
) -> None:
    at = snapshot()._replace(pending=Pending(pending, seq=1) if pending else None)
    asked = lost_too_often(at, times=3, faults=1).effect
    assert isinstance(asked, HumanCall)
    assert (asked.about, asked.holds, asked.passed) == ("manual", holds, passed)
    assert (asked.lost, asked.faults) == (3, 1)
