"""Continue: a follow-up goal in a new run whose history is the runs before it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs import actions
from runs.driver import tool_specs
from runs.driver.replaying import made_again, record_of
from runs.engine.effects import ModelCall
from runs.engine.timeline import prompt
from runs.machines import CATALOGUE
from runs.models import Budget, Run
from runs.reading.exporting import export
from runs.reading.filling import filling_of
from runs.store import continuing, loading, verifying
from tests.cast import person, signed_in, stranger
from tests.commands import refused, told
from tests.launching import FINAL, launch, script, think
from tests.outward import GO, OTHER, PLAYED, READ, visited
from tests.pages import form_to
from tests.running import decide, pending, transitions, work

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

ANY = ModelCall(role="decision", reply="text")
GOALS = ("And the neap tides?", "And in Bristol?", "And at night?")


def continued(run: Run, goal: str = GOALS[0], **parts: Any) -> Run:
    """The next run, driven as far as it goes."""
    return work(actions.continue_run(run, goal=goal, by=parts.pop("by", None), **parts))


def conversation(first: Run) -> list[Run]:
    """A conversation of four runs."""
    runs = [work(first)]
    for goal in GOALS:
        runs.append(continued(runs[-1], goal))
    return runs


def read_by(run: Run) -> str:
    """All that the model of the run reads now."""
    machine = CATALOGUE[run.machine]
    blocks = loading.load_window(run, machine, run.head)
    return "\n".join(message.text for message in prompt(machine, loading.terms_of(run, {}), blocks, ANY))


def test_each_run_reads_all_runs_before_it_in_order_once_and_then_its_own_goal() -> None:
    runs = conversation(launch(think("search", q="tides"), FINAL))
    for number, run in enumerate(runs):
        text = read_by(run)
        goals = [earlier.goal for earlier in runs[:number]]
        places = [text.index(goal) for goal in [*goals, f"Goal: {run.goal}"]]
        assert places == sorted(places)
        assert [text.count(goal) for goal in goals] == [1] * number
        assert text.count("the answer of that run says") == number
        assert text.index("three results") > places[-1]


@pytest.mark.parametrize("machine", list(CATALOGUE))
def test_every_machine_reads_the_runs_before_its_goal(machine: str) -> None:
    made = actions.start_run(
        machine=machine, goal="Count the boats", settings={}, owner=None, script={"replies": {}}
    )
    first = work(made)
    if not first.finished:
        actions.abort(first, by=None)
        first.refresh_from_db()
    second = actions.continue_run(first, goal=GOALS[0], by=None)
    text = read_by(second)
    assert text.index("Count the boats") < text.index(f"Goal: {GOALS[0]}")
    assert first.exit_reason is not None
    assert first.exit_reason in text


def test_a_run_names_what_the_run_before_made() -> None:
    played = script(
        think("save"),
        FINAL,
        tools={
            "save": {
                "params": {},
                "effects": "none",
                "results": [{"output": "kept", "files": [{"name": "tides.csv", "text": "1,2"}]}],
            }
        },
    )
    second = continued(work(launch(played=played)))
    (earlier,) = continuing.earlier_runs(second)
    assert earlier.artifacts == ("tides.csv",)
    assert "tides.csv" in read_by(second)


def test_counters_and_budgets_begin_anew() -> None:
    first = work(launch(FINAL, limits={"cost_usd": 0.5}))
    second = actions.continue_run(first, goal=GOALS[0], by=None)
    assert (second.cost_usd, second.input_tokens, second.model_calls) == (0, 0, 0)
    line = Budget.objects.get(run=second, scope="limits", name="cost_usd")
    assert (line.used, line.limit) == (0, 0.5)
    assert second.root_id is None


def test_prepared_answers_are_for_the_run_they_were_given_for() -> None:
    settings: dict[str, Any] = {"answers": [{"verdict": "approve"}], "max_steps": 7, "tools": ["search"]}
    second = continued(work(launch(FINAL, **settings)))
    assert second.settings == {"max_steps": 7, "tools": ["search"]}


@pytest.mark.parametrize("how", ["whole", "from the beginning"])
def test_a_continued_run_and_its_forks_replay_equal(how: str) -> None:
    second = continued(work(launch(think("search", q="tides"), FINAL)))
    if how == "from the beginning":
        second = work(actions.fork(second, at=0, by=None))
    replay = made_again(record_of(second))
    assert replay.difference is None
    made, difference = actions.replay(second, by=None)
    assert difference is None
    assert continuing.earlier_runs(made) == continuing.earlier_runs(second)


def test_a_fork_keeps_the_history_from_any_row() -> None:
    second = continued(work(launch(think("search", q="tides"), FINAL)))
    for at in (0, transitions(second)[0]):
        fork = work(actions.fork(second, at=at, by=None))
        assert continuing.earlier_runs(fork) == continuing.earlier_runs(second)
        assert read_by(fork).count("Write a short report about tides") == 1
        assert fork.continues_id is None
        third = continued(fork, GOALS[1])
        assert [one.run for one in continuing.earlier_runs(third)] == [second.continues_id, fork.pk]


def test_a_rollback_keeps_the_history() -> None:
    ask = think("send", to="a")
    second = actions.continue_run(work(launch(FINAL)), goal=GOALS[0], by=None, script=script(ask, FINAL))
    work(second)
    actions.rewind(second, to=transitions(second)[0], by=None)
    second.refresh_from_db()
    assert read_by(second).count("Write a short report about tides") == 1


def test_the_run_before_may_be_deleted() -> None:
    first = work(launch(FINAL))
    second = continued(first)
    before = read_by(second)
    first.delete()
    second.refresh_from_db()
    assert second.continues_id is None
    assert read_by(second) == before
    assert verifying.verify(second, tool_specs(second)) is None
    assert read_by(continued(second, GOALS[1])).count("Write a short report about tides") == 1


def test_a_run_that_is_marked_as_continuing_another_one_does_not_verify() -> None:
    first, other = work(launch(FINAL)), work(launch(FINAL))
    second = continued(first)
    Run.objects.filter(pk=second.pk).update(continues=other)
    marked = Run.objects.get(pk=second.pk)
    misfit = verifying.verify(marked, tool_specs(marked))
    assert misfit is not None
    assert misfit.seq == 1
    Run.objects.filter(pk=second.pk).update(continues=first)


def test_a_run_that_follows_one_with_private_data_asks_before_each_host() -> None:
    first = work(launch(played=script(READ, FINAL, tools=PLAYED)))
    second = actions.continue_run(
        first, goal=GOALS[0], by=None, script=script(GO, OTHER, FINAL, tools=PLAYED)
    )
    work(second)
    question = pending(second)
    assert question.host == "api.test"
    assert f"private data (through run {first.pk}, which it continues)" in question.why
    assert visited(second) == []
    decide(second, "approve", allow_host=True)
    work(second)
    assert pending(second).host == "other.test"
    decide(second, "reject")
    work(second)
    third = actions.continue_run(second, goal=GOALS[1], by=None, script=script(GO, FINAL, tools=PLAYED))
    assert pending(work(third)).host == "api.test"


def test_a_run_that_failed_or_was_cancelled_can_be_continued() -> None:
    failed = work(launch(played={"replies": {"decision": [{"error": "no credit left"}]}, "tools": {}}))
    assert failed.status == "failed"
    text = read_by(actions.continue_run(failed, goal=GOALS[0], by=None))
    assert "model_error: " in text
    cancelled = launch(FINAL)
    actions.abort(cancelled, by=None, message="wrong tides")
    cancelled.refresh_from_db()
    assert "aborted" in read_by(actions.continue_run(cancelled, goal=GOALS[0], by=None))


def test_a_run_that_has_not_ended_and_a_child_are_not_continued() -> None:
    waiting = work(launch(think("send", to="a"), FINAL))
    with pytest.raises(actions.NotPossible, match="has not ended: it is waiting"):
        actions.continue_run(waiting, goal=GOALS[0], by=None)
    with pytest.raises(actions.BadLaunch, match="goal: Enter a goal"):
        actions.continue_run(work(launch(FINAL)), goal=" ", by=None)
    assert Run.objects.filter(continues__isnull=False).count() == 0


def test_only_who_may_see_a_run_and_launch_continues_it() -> None:
    owner, other = person("alice", "add_run"), person("bob", "view_run", "add_run")
    run = work(launch(FINAL, owner=owner))
    for one in (stranger("charlie", "add_run"), person("dora", "view_run")):
        with pytest.raises(actions.NotAllowed):
            actions.continue_run(run, goal=GOALS[0], by=one)
    assert actions.continue_run(run, goal=GOALS[0], by=owner).owner == owner
    assert actions.continue_run(run, goal=GOALS[0], by=other).owner == other


def test_a_script_is_played_again_unless_another_is_given() -> None:
    first = work(launch(FINAL))
    assert continued(first).answer == "42"
    other = script({"thought": "FINAL ANSWER: 43", "action": None})
    assert continued(first, script=other).answer == "43"


def test_the_window_shows_earlier_runs_by_name() -> None:
    filling = filling_of(continued(work(launch(FINAL))))
    assert filling is not None
    part = next(part for part in filling.parts if part.what == "conv.run")
    assert (part.label, part.count) == ("Earlier runs", 1)


def small_window(answer: str) -> dict[str, Any]:
    """A script of a run whose history may have to be compacted before it says `answer`."""
    replies = {"decision": [{"thought": f"FINAL ANSWER: {answer}", "action": None}]}
    return script() | {"replies": replies | {"summary": ["Goal: tides\nDone: all"] * 3}}


def test_a_history_that_fills_the_window_is_compacted_before_the_first_decision() -> None:
    long = small_window("tide " * 1500)
    run = work(launch(played=long, context={"limit_tokens": 4000}))
    for goal in GOALS:
        run = continued(run, goal, script=long)
    last = continued(run, "The last one", script=small_window("done"))
    assert last.status == "succeeded"
    assert last.steps.filter(kind="compaction").count() == 1
    assert "Done: all" in read_by(last)
    assert "tide tide" not in read_by(last)
    again = continued(last, "The one after", script=small_window("done"))
    assert continuing.earlier_runs(again)[-1].summary.startswith("Goal: tides")
    assert len(continuing.earlier_runs(again)) == 5


def test_the_export_says_which_run_it_continues() -> None:
    first = work(launch(FINAL))
    second = continued(first)
    assert export(first)["run"]["continues"] is None
    assert export(second)["run"]["continues"] == str(first.pk)
    assert [fact["kind"] for fact in export(second)["steps"][0]["facts"]] == ["conv.run"]


# --- pages and command -------------------------------------------------------------------------------------------


def test_the_page_of_an_ended_run_has_the_box_and_launches_the_next_run() -> None:
    owner = person("alice", "add_run")
    first = work(launch(FINAL, owner=owner))
    browser = signed_in(owner)
    form = form_to(browser.get(f"/runs/{first.pk}/").content.decode(), f"/runs/{first.pk}/continue/")
    done = browser.post(form.action, form.fields | {"goal": GOALS[0]})
    second = Run.objects.get(continues=first)
    assert done["Location"] == f"/runs/{second.pk}/"
    page = browser.get(f"/runs/{work(second).pk}/").content.decode()
    assert "Run 2 of 2 of this conversation" in page
    assert f'href="/runs/{first.pk}/"' in page
    assert f'href="/runs/{second.pk}/"' in browser.get(f"/runs/{first.pk}/").content.decode()
    assert f'continues run <a href="/runs/{first.pk}/">' in browser.get("/runs/").content.decode()


def test_a_form_that_is_refused_keeps_its_text() -> None:
    owner = person("alice", "add_run")
    first = work(launch(FINAL, owner=owner))
    page = signed_in(owner).post(
        f"/runs/{first.pk}/continue/", {"goal": "And <b>now</b>?", "script": "{no json"}
    )
    text = page.content.decode()
    assert page.status_code == 422
    assert "And &lt;b&gt;now&lt;/b&gt;?" in text
    assert "{no json" in text
    assert 'id="continue-script-wrong"' in text
    waiting = work(launch(think("send", to="a"), FINAL, owner=owner))
    page = signed_in(owner).post(f"/runs/{waiting.pk}/continue/", {"goal": "Kept"})
    assert page.status_code == 422
    assert "has not ended" in page.content.decode()
    assert "Kept</textarea>" in page.content.decode()
    assert not Run.objects.filter(continues__isnull=False).exists()


def test_the_first_step_speaks_of_the_run_before_and_counts_them_all() -> None:
    last = conversation(launch(FINAL))[-1]
    said = export(last)["steps"][0]["summary"]
    assert GOALS[1] in said
    assert "3 runs before this one" in said


def test_the_page_offers_and_takes_nothing_from_who_may_not_launch() -> None:
    run = work(launch(FINAL, owner=person("alice", "add_run")))
    reader = signed_in(person("dora", "view_run"))
    assert 'action="/runs/' not in reader.get(f"/runs/{run.pk}/").content.decode()
    assert reader.post(f"/runs/{run.pk}/continue/", {"goal": "x"}).status_code == 403
    other = signed_in(stranger("charlie", "add_run"))
    assert other.post(f"/runs/{run.pk}/continue/", {"goal": "x"}).status_code == 404


def test_runs_that_the_reader_may_not_see_are_not_links() -> None:
    owner, other = person("alice", "add_run"), person("bob", "view_run", "add_run")
    first = work(launch(FINAL, owner=owner))
    second = work(actions.continue_run(first, goal=GOALS[0], by=other))
    other.user_permissions.clear()
    page = signed_in(other).get(f"/runs/{second.pk}/").content.decode()
    assert f'<a href="/runs/{first.pk}/">' not in page
    assert "Run 2 of 2 of this conversation" in page
    assert "of this conversation" not in signed_in(owner).get(f"/runs/{first.pk}/").content.decode()


def test_the_command_continues_and_ends_as_launch_does() -> None:
    first = work(launch(FINAL))
    out, code = told("continue", str(first.pk), "--goal", GOALS[0], "--inline", "--json")
    exported = json.loads(out)
    assert (code, exported["run"]["continues"], exported["run"]["goal"]) == (0, str(first.pk), GOALS[0])
    asking = json.dumps(script(think("send", to="a"), FINAL))
    _, code = told("continue", str(first.pk), "--goal", GOALS[0], "--script", asking, "--inline", "--wait")
    assert code == 6
    waiting = Run.objects.get(status="waiting")
    assert "has not ended" in refused("continue", str(waiting.pk), "--goal", "x")
    assert "goal: Enter a goal" in refused("continue", str(first.pk), "--goal", " ")
    assert "There is no run 999" in refused("continue", "999", "--goal", "x")
    _, code = told(
        "continue", str(first.pk), "--goal", "x", "--run-settings", '{"max_steps": 7}', "--inline", "--json"
    )
    assert (code, Run.objects.latest("pk").settings["max_steps"]) == (0, 7)
    assert "must be a JSON object" in refused(
        "continue", str(first.pk), "--goal", "x", "--run-settings", "[]"
    )
