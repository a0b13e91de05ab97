"""`cache_reads`: the same call of a tool that only reads is answered again from the run's own record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs import actions
from runs.adapters.tools import TOOLS as REGISTERED
from runs.forms import launching
from runs.models import Exchange, Run
from runs.reading.rows import row_views
from tests.launching import ALLOW, FINAL, USAGE, think
from tests.replaying import check_replay
from tests.running import decide, pending, transitions, work
from tests.shell import LAST, ROWS, SHELL_CALL

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def tool(effects: str, *outputs: Any) -> dict[str, Any]:
    """A tool that gives another result each time."""
    return {"params": {"q": "string"}, "effects": effects, "results": [{"output": one} for one in outputs]}


TOOLS = {
    "search": tool("read", "first", "second", "third"),
    "roll": tool("none", "one", "two"),
    "save": tool("write", "saved", "saved again"),
    "broken": {"effects": "read", "results": [{"output": "", "exit_code": 1}, {"output": "mended"}]},
}
LOOK, OTHER, SAVE = think("search", q="tides"), think("search", q="moon"), think("save", q="x")
ON: dict[str, Any] = {"cache_reads": True, "rules": ALLOW, "cache": False}


def begun(*replies: Any, machine: str = "ruled", played: dict[str, Any] = TOOLS, **settings: Any) -> Run:
    """A run, driven as far as it goes."""
    script = {"replies": {"decision": list(replies)}, "tools": played, "usage": USAGE}
    return work(
        actions.start_run(machine=machine, goal="Tides", settings=settings, owner=None, script=script)
    )


def calls(run: Run, kind: str = "tool_call") -> list[Exchange]:
    return list(run.exchanges.filter(kind=kind).order_by("seq"))


def gave(run: Run) -> list[tuple[Any, int]]:
    """What each call gave, and the row that a result was kept from."""
    answers = [json.loads(exchange.answer_json or "") for exchange in calls(run)]
    return [(answer["value"], answer.get("cached_from", 0)) for answer in answers]


def test_it_is_off_by_default() -> None:
    run = begun(LOOK, LOOK, FINAL, rules=ALLOW)
    assert gave(run) == [("first", 0), ("second", 0)]
    assert '"cached_from"' not in "".join(run.steps.values_list("facts_json", flat=True))


def test_the_same_read_is_answered_from_the_record_and_costs_nothing() -> None:
    run = begun(LOOK, LOOK, LOOK, OTHER, FINAL, **ON)
    first = calls(run)[0].seq
    assert gave(run) == [("first", 0), ("first", first), ("first", first), ("second", 0)]
    assert (run.tool_calls, [exchange.cost_usd for exchange in calls(run)]) == (2, [0.0] * 4)
    assert [exchange.nth for exchange in calls(run)] == [1, 0, 0, 2]
    lines = [row.line for row in row_views(run) if row.line.title == "Result"]
    assert [line.tag for line in lines] == [
        "search",
        *[f"search, cached from step {first}"] * 2,
        "search",
    ]
    check_replay(run)


@pytest.mark.parametrize("machine", ["contract", "checklist", "planned", "ruled"])
def test_every_machine_has_it(machine: str) -> None:
    read = {
        "shell": {
            "params": {"line": "string"},
            "effects": "read",
            "results": [{"output": "a"}, {"output": "b"}],
        }
    }
    replies = [SHELL_CALL[machine]] * (1 if machine == "planned" else 2)
    own: dict[str, Any] = {"plan": ROWS} if machine == "planned" else {}
    run = begun(*replies, LAST[machine], machine=machine, played=read, cache_reads=True, **own)
    assert run.status == "succeeded"
    if machine != "planned":  # it skips what it has just done
        assert gave(run) == [("a", 0), ("a", calls(run)[0].seq)]
    check_replay(run)


def test_a_call_that_changes_something_empties_it() -> None:
    run = begun(LOOK, LOOK, SAVE, LOOK, LOOK, FINAL, **ON)
    one, _, _, two, _ = (exchange.seq for exchange in calls(run))
    assert gave(run) == [("first", 0), ("first", one), ("saved", 0), ("second", 0), ("second", two)]


def test_a_child_run_empties_it() -> None:
    child = think("agent.inner", goal="Tidy up")
    script = {
        "replies": {"decision": [LOOK, child, LOOK, FINAL]},
        "tools": TOOLS,
        "usage": USAGE,
        "subgraphs": {"inner": {"replies": {"decision": [FINAL]}}},
    }
    settings = ON | {"subgraphs": {"inner": {"machine": "ruled", "settings": {}}}}
    run = work(actions.start_run(machine="ruled", goal="Tides", settings=settings, owner=None, script=script))
    assert run.status == "succeeded"
    assert gave(run) == [("first", 0), ("second", 0)]


def test_only_results_of_tools_that_read_are_kept_and_only_good_ones() -> None:
    roll, broken = think("roll", q="x"), think("broken")
    run = begun(roll, roll, broken, broken, FINAL, **ON)
    assert gave(run) == [("one", 0), ("two", 0), ("", 0), ("mended", 0)]


def test_a_clock_is_never_read_from_the_cache() -> None:
    assert not REGISTERED["now"].spec().cacheable
    now = think("now")
    run = begun(now, now, FINAL, **(ON | {"tools": ["now"]}))
    assert [kept for _, kept in gave(run)] == [0, 0]


def test_a_rollback_to_before_the_read_removes_it_and_one_to_after_keeps_it() -> None:
    run = begun(LOOK, LOOK, OTHER, LOOK, FINAL, interrupt_every=2, **ON)
    assert pending(run).kind == "every_n_steps"
    before = calls(run)[0].seq
    to = next(seq for seq in transitions(run, "continue") if seq > before)
    decide(run, "rollback", to_step=to)
    run = work(run)
    kept = [answer for answer in gave(run) if answer[1]]
    assert kept and {row for _, row in kept} == {before}

    run = begun(LOOK, LOOK, LOOK, FINAL, interrupt_every=1, **ON)
    dead = calls(run)[0].seq
    decide(run, "rollback", to_step=transitions(run, "thought")[0])
    while run.status != "succeeded":
        run = work(run)
        if run.status == "waiting":
            decide(run, "resume")
    assert all(row != dead for _, row in gave(run))
    check_replay(run)


def test_a_write_that_was_gone_back_over_has_still_happened() -> None:
    run = begun(LOOK, SAVE, LOOK, FINAL, interrupt_every=2, **ON)
    decide(run, "rollback", to_step=transitions(run, "continue")[0])
    run = work(run)
    if run.status == "waiting":
        decide(run, "resume")
        run = work(run)
    assert [value for value, kept in gave(run) if kept == 0] == ["first", "saved", "second"]


def test_a_fork_reads_again_what_its_source_may_have_changed_since() -> None:
    run = begun(LOOK, LOOK, LOOK, SAVE, FINAL, **ON)
    assert [kept for _, kept in gave(run)][1:3] == [calls(run)[0].seq] * 2
    forked = work(actions.fork(run, at=transitions(run, "continue")[0], by=None))
    own = calls(forked)[1].seq
    assert own > (forked.copied_upto or 0)
    assert gave(forked)[1:3] == [("second", 0), ("second", own)]
    check_replay(forked)


def test_a_rule_on_repeated_calls_asks_before_the_cache_answers() -> None:
    rules = [{"when": {"tool": "search", "same_call": 2}, "do": "ask"}, *ALLOW]
    run = begun(LOOK, LOOK, FINAL, **(ON | {"rules": rules}))
    assert pending(run).kind == "tool_call"
    decide(run, "approve")
    run = work(run)
    assert gave(run)[-1] == ("first", calls(run)[0].seq)


def test_the_launch_form_has_a_field_for_it() -> None:
    run = begun(FINAL, **ON)
    assert launching.launch_like(run)["cache_reads"] is True
    assert "cache_reads" not in launching.launch_like(run)["more"]
    assert "cache_reads" in launching.COMMON
