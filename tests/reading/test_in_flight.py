"""A run is stopped in the middle of a call: its pages say how that call ended, though no row can."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from runs import actions
from runs.engine.effects import Failed, ToolReturned
from runs.models import Run
from runs.reading import rows
from runs.reading.panels import panels_of
from runs.reading.rollback import again
from runs.store import errors
from tests.cast import person, signed_in
from tests.compact import compact
from tests.launching import ALLOW, FINAL, SEARCH, SEND, USAGE, launch, script, think
from tests.running import decide, lose_worker, pending, transitions, work
from tests.workers import die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies", "no_glances")]

PLAN = [
    {"tool": "send", "args": {"to": "ann"}},
    {"tool": "search", "args": {"q": "tides"}},
    {"tool": "final_answer"},
]
ROW = r'data-status="(\w+)"'


def planned(**settings: Any) -> Run:
    """A run that follows its plan to the letter: it sends first."""
    return launch(
        machine="planned",
        goal="Tell Ann",
        played={"replies": {}, "tools": {"search": SEARCH, "send": SEND}, "usage": USAGE},
        **{"plan": PLAN, "follow": "plan", "rules": ALLOW} | settings,
    )


def stop_in_send(run: Run, after: Callable[[], None] = lambda: None) -> Run:
    """Somebody stops the run while its worker is in `send`; the call goes on, and is done."""
    with pytest.raises(errors.Fenced):
        slice_of(run, before=lambda: actions.abort(run, by=None), only="send", after=after)
    return Run.objects.get(pk=run.pk)


def plain(html: str) -> str:
    """Without its tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).replace("&quot;", '"').split())


def last_row(run: Run) -> str:
    """The row that stopped the run, as the timeline shows it."""
    return plain(rows.render_row(rows.row_views(run)[-1]))


def someone() -> Any:
    """Who looks."""
    return User.objects.filter(username="bob").first() or person("bob", "view_run", "decide_interrupt")


def panels(run: Run) -> dict[str, str]:
    """The panels, as somebody sees them who may see everything."""
    return panels_of(run, someone())


def test_a_call_that_was_done_after_the_stop_is_told_in_plan_timeline_and_answer() -> None:
    run = stop_in_send(planned())
    found = panels(run)
    assert re.findall(ROW, found["machine"]) == ["done", "left", "left"]
    said = plain(found["machine"])
    assert "1 of 3 done" in said
    assert "the run ended first It was done: sent 1 step" in said
    for told in (last_row(run), plain(found["answer"]), plain(found["unheard"])):
        assert 'send(to="ann") It was done: sent 1' in told
        assert "before its last call returned" in told


def test_while_the_call_goes_on_the_page_says_so() -> None:
    seen: list[dict[str, str]] = []
    run = planned()
    stop_in_send(run, after=lambda: seen.append(panels(Run.objects.get(pk=run.pk))))
    assert re.findall(ROW, seen[0]["machine"]) == ["unsure", "left", "left"]
    assert "It is still under way." in plain(seen[0]["unheard"])
    assert seen[0]["header"] != panels(Run.objects.get(pk=run.pk))["header"]


@pytest.mark.parametrize("when", ["at once", "after the question"])
def test_where_nobody_has_heard_how_it_ended_it_may_have_happened(when: str) -> None:
    run = planned()
    journey = die_in(run, before=kill, only="send")
    if when == "at once":
        actions.abort(run, by=None)
        lose_worker(run)
    else:
        work(run)
        assert pending(run).kind == "may_have_happened"
        decide(run, "abort")
        work(run)
    run.refresh_from_db()
    assert run.exit_reason == "aborted"
    assert re.findall(ROW, panels(run)["machine"]) == ["unsure", "left", "left"]
    assert "0 of 3 done" in plain(panels(run)["machine"])
    assert "It may have happened: the outcome is unknown." in last_row(run)
    journey.keep(journey.at.asked, ToolReturned(value="sent 1"))
    assert "It was done: sent 1" in last_row(run)
    assert "1 of 3 done" in plain(panels(run)["machine"])


def test_a_call_that_failed_after_the_stop_has_not_done_its_row() -> None:
    run = planned()
    journey = die_in(run, before=kill, only="send")
    actions.abort(run, by=None)
    failed = Failed(blame="recoverable", message="no such address")
    journey.keep(journey.at.asked, failed)
    run.refresh_from_db()
    assert re.findall(ROW, panels(run)["machine"]) == ["left", "left", "left"]
    assert "It failed: no such address" in last_row(run)


def test_an_end_that_followed_from_the_call_or_came_before_one_has_nothing_more_to_tell() -> None:
    asks = [{"when": {"tool": "*"}, "do": "ask"}]
    never_called = work(planned(rules=asks))
    actions.abort(never_called, by=None)
    denied = {"error": "the key is not valid", "kind": "fatal"}
    broken = launch(
        played=script(think("send", to="bob"), tools={"send": {**SEND, "results": [denied]}}), rules=ALLOW
    )
    assert work(broken).exit_reason == "fatal_error"
    for run in (Run.objects.get(pk=never_called.pk), broken):
        assert run.exchanges.order_by("-seq")[0].kind == (
            "human_call" if run == never_called else "tool_call"
        )
        assert "unheard" not in panels(run)
        assert 'class="unheard"' not in rows.render_row(rows.row_views(run)[-1])


def test_the_page_has_it_in_the_row_where_the_socket_renews_it() -> None:
    run = stop_in_send(planned())
    page = signed_in(someone()).get(f"/runs/{run.pk}/").content.decode()
    there = re.search(r'<div class="row__child" data-panel="unheard">(.*?)</div>', page, re.DOTALL)
    assert there is not None
    assert there[1] == compact(panels(run)["unheard"])


def test_what_a_tool_returned_is_text_on_the_page() -> None:
    run = planned()
    journey = die_in(run, before=kill, only="send")
    actions.abort(run, by=None)
    journey.keep(journey.at.asked, ToolReturned(value="<script>alert(1)</script>"))
    run.refresh_from_db()
    found = panels(run)
    for html in (found["unheard"], found["machine"], found["answer"]):
        assert "&lt;script&gt;" in html
        assert "<script>" not in html


def test_a_child_whose_parent_went_back_tells_its_call_too() -> None:
    call = think("agent.helper", goal="Tell Bob")
    helper = {"replies": {"decision": [think("send", to="bob"), FINAL]}, "tools": {"send": SEND}}
    played = {
        "replies": {"decision": [think("search", q="a"), call, FINAL]},
        "tools": {"search": SEARCH},
        "usage": USAGE,
        "subgraphs": {"helper": helper},
    }
    helpers = {"helper": {"machine": "ruled", "settings": {"rules": ALLOW}}}
    parent = launch(played=played, rules=ALLOW, subgraphs=helpers)
    slice_of(parent)
    child = Run.objects.get(parent=parent)
    to = transitions(parent)[-2]
    with pytest.raises(errors.Fenced):
        slice_of(child, before=lambda: actions.rewind(parent, to=to, by=None), only="send")
    assert 'send(to="bob") It was done: sent 1' in last_row(child)
    assert [(one.of_child, one.certain) for one in again(parent, to).outside] == [(True, True)]
