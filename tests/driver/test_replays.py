"""Replays: a new run of the same rows, made again from the recorded answers; and runs as scripts and as tests."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from runs import actions, driver
from runs.adapters.scripted import parse_script
from runs.engine.facts import Exited, Notice
from runs.machines import CATALOGUE
from runs.models import Run, Step
from runs.reading.as_test import pytest_file
from runs.reading.exporting import export
from runs.reading.script_export import launch_of, script_of
from runs.reading.statuses import exit_of, status_word
from runs.store import verifying
from runs.store.creating import folder_of
from tests.cast import cast_member, person, signed_in
from tests.families import asking_family
from tests.launching import ALLOW, FINAL, TOOLS, launch, script, think
from tests.replaying import WRITE, check_replay, outcome_of, relaunched, rows_of
from tests.running import decide, make_due, pending, transitions, work
from tests.workers import die_in, kill, slice_of

pytestmark = pytest.mark.usefixtures("every_run_verifies")

LOOK = (think("search", q="a"), think("send", to="bob"), think("search", q="b"), FINAL)


def test_a_run_is_made_again_without_calling_anything() -> None:
    run = work(launch(*LOOK, rules=ALLOW))
    made = check_replay(run)
    assert (made.model_calls, made.tool_calls, made.cost_usd) == (4, 3, run.cost_usd)
    keys = set(run.exchanges.values_list("key", flat=True))
    assert set(made.exchanges.values_list("key", flat=True)) == keys


def test_decisions_edits_top_ups_and_pauses_come_in_their_order() -> None:
    run = work(launch(*LOOK, limits={"tokens": 300}))
    actions.pause(run, by=None)
    actions.resume(run, by=None)
    decide(run, "edit", args={"to": "carol"}, message="Not bob.")
    work(run)
    decide(run, "top_up", args={"tokens": 1000})
    work(run)
    assert run.status == "succeeded"
    made = check_replay(run)
    assert made.budgets.get(name="tokens").limit == 1300


@pytest.mark.parametrize("verdict", ["approve", "reject", "respond", "abort"])
def test_every_verdict_is_replayed(verdict: str) -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    decide(run, verdict, message="because")
    check_replay(work(run))


def test_rollbacks_by_a_person_and_by_a_decision_are_replayed() -> None:
    sends = [think("send", to=name) for name in "xyz"]
    run = work(launch(think("search", q="a"), *sends, FINAL, cache=False))
    first = transitions(run, "executed")[0]
    actions.rewind(run, to=first, by=None, message="Again")
    work(run)
    decide(run, "rollback", to_step=first)
    work(run)
    decide(run, "approve")
    work(run)
    assert run.status == "succeeded"
    check_replay(run)


def test_a_run_that_somebody_stopped_is_replayed() -> None:
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL))
    actions.abort(run, by=None, message="Enough")
    run.refresh_from_db()
    made = check_replay(run)
    assert made.exit_reason == "aborted"


def test_lost_workers_and_what_may_have_happened_are_replayed() -> None:
    run = launch(think("search", q="a"), think("send", to="bob"), FINAL, rules=ALLOW)
    die_in(run, only="send", after=kill)
    work(run)
    assert pending(run).kind == "may_have_happened"
    decide(run, "respond", message="It was sent.")
    work(run)
    assert Step.objects.filter(run=run, kind="recovered").exists()
    check_replay(run)


def test_calls_that_failed_and_were_tried_again_are_replayed() -> None:
    flaky = {**TOOLS["search"], "results": [{"error": "busy", "kind": "transient"}, {"output": "found"}]}
    replies = ({"$error": "transient"}, think("search", q="a"), {"$error": "context_length"}, FINAL)
    run = work(launch(played=script(*replies, tools={"search": flaky})))
    assert run.status == "succeeded"
    check_replay(run)


def test_a_replay_keeps_the_words_that_the_record_has_for_notices_and_ends() -> None:
    flaky = {**TOOLS["search"], "results": [{"error": "busy", "kind": "transient"}, {"output": "found"}]}
    run = work(
        launch(played=script({"$error": "transient"}, think("search", q="a"), tools={"search": flaky}))
    )
    record = driver.record_of(run)
    rows = [
        row.model_copy(update={"facts": [_as_worded_then(fact) for fact in row.facts]}) for row in record.rows
    ]
    replay = driver.made_again(record.model_copy(update={"rows": rows}))
    said = [fact.message for row in replay.rows for fact in row.facts if isinstance(fact, Notice | Exited)]
    assert replay.difference is None
    assert replay.ended
    assert said == ["In the words of its time."] * 3
    assert run.exit_reason == "model_error"


def _as_worded_then(fact: dict[str, Any]) -> dict[str, Any]:
    told = {"react.notice": {"message": "In the words of its time."}}
    told["react.exit"] = told["react.notice"]
    return fact | told.get(fact["kind"], {})


def test_a_run_that_waits_is_replayed_as_far_as_it_is_and_its_replay_waits_for_nobody() -> None:
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL))
    made = check_replay(run)
    assert (made.status, made.exit_reason, made.head) == ("cancelled", "aborted", run.head + 1)
    assert made.interrupts.get().status == "superseded"
    assert driver.drive(made.pk) == []


def test_a_replay_that_ends_before_its_record_has_ended_says_so_and_not_that_it_was_stopped() -> None:
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL))
    client = signed_in(cast_member("root", is_superuser=True))
    made = Run.objects.get(pk=client.post(f"/runs/{run.pk}/replay/")["Location"].strip("/").split("/")[-1])
    page, listed = client.get(f"/runs/{made.pk}/").text, client.get(f"/runs/?q=%23{made.pk}").text
    for told in (page, listed, client.get(f"/runs/{run.pk}/compare/{made.pk}/").text):
        assert "end of the replayed steps" in told
        assert "cancelled by a person" not in told
        assert "Cancelled" not in told
    assert "Replayed</span>" in page
    assert "Replayed</span>" in listed
    assert f"Replayed up to step {run.head}</h2>" in page
    assert "Ended without an answer" not in page


def test_a_replay_of_a_run_that_somebody_stopped_says_that_it_was_stopped() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    made = check_replay(actions.abort(run, by=None, message="Enough"))
    assert (status_word(made, asks=False, for_me=False).text, exit_of(made)) == (
        "Cancelled",
        "cancelled by a person",
    )


def test_a_script_of_a_replay_leaves_the_question_open_that_its_record_did() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    made = check_replay(run)
    assert launch_of(made)["settings"].get("answers") == launch_of(run)["settings"].get("answers")


def test_a_replay_can_end_at_a_row() -> None:
    run = work(launch(*LOOK, rules=ALLOW))
    made, difference = actions.replay(run, by=None, to=3)
    assert (difference, made.head, made.copied_upto) == (None, 4, 3)
    assert rows_of(made)[:3] == rows_of(run)[:3]
    with pytest.raises(actions.NotPossible, match="has no step 999"):
        actions.replay(run, by=None, to=999)


def test_a_fork_is_replayed_from_where_it_began() -> None:
    run = work(launch(*LOOK, rules=ALLOW, limits={"tokens": 9000}))
    at = transitions(run, "executed")[0]
    forked = work(actions.fork(run, at=at, by=None, state={"steps": 5}, settings={"max_steps": 15}))
    check_replay(forked)


@pytest.mark.parametrize(("parent", "child"), list(itertools.product(CATALOGUE, CATALOGUE)))
def test_a_family_of_any_machines_is_replayed_with_its_child(parent: str, child: str) -> None:
    run = work(asking_family(parent, child))
    made = check_replay(run)
    kid, again = Run.objects.get(parent=run), Run.objects.get(parent=made)
    assert (again.origin, again.copied_from, again.parent_seq) == ("replay", kid, kid.parent_seq)
    assert rows_of(again) == rows_of(kid)


# --- differences ----------------------------------------------------------------------------------------------------


def _tampered(run: Run) -> int:
    """Something in the log is changed behind everybody's back. The row."""
    row = run.steps.filter(kind="transition").order_by("seq")[1]
    facts = json.loads(row.facts_json)
    facts.append({"kind": "react.notice", "code": "forged", "message": "never said"})
    Step.objects.filter(pk=row.pk).update(facts_json=json.dumps(facts))
    return row.seq


def test_the_first_row_that_came_out_otherwise_is_named() -> None:
    run = work(launch(*LOOK, rules=ALLOW))
    seq = _tampered(run)
    made, difference = actions.replay(run, by=None)
    assert difference is not None
    assert (difference.seq, difference.what) == (seq, "the facts")
    assert (made.status, made.exit_reason, made.copied_upto) == ("failed", "fatal_error", seq - 1)
    run.delete()


def test_the_command_says_what_came_out_and_its_exit_code_is_1_on_a_difference() -> None:
    run = work(launch(*LOOK, rules=ALLOW))
    out = io.StringIO()
    call_command("replay", str(run.pk), stdout=out)
    assert out.getvalue() == f"Run {run.pk + 1}: {run.head} steps of run {run.pk} match.\n"
    seq = _tampered(run)
    with pytest.raises(CommandError) as told:
        call_command("replay", str(run.pk), stdout=io.StringIO())
    assert told.value.returncode == 1
    assert str(told.value).startswith(f"Run {run.pk}, step {seq}: the facts is ")
    run.delete()


def test_who_may_not_launch_may_not_replay() -> None:
    run = work(launch(FINAL))
    with pytest.raises(actions.NotAllowed):
        actions.replay(run, by=person("dora", "view_run"))


# --- as a script ----------------------------------------------------------------------------------------------------


def path_of(run: Run) -> list[tuple[Any, ...]]:
    """The rows of the machine, without people's names."""
    rows = run.steps.filter(kind__in=("ask", "transition", "stop", "rewind")).order_by("seq")
    return list(rows.values_list("seq", "kind", "live", "node", "edge", "to", "state_json"))


def test_a_script_of_a_run_makes_the_same_rows() -> None:
    flaky = {**TOOLS["search"], "results": [{"error": "busy", "kind": "transient"}, {"output": "found"}]}
    tools = {**TOOLS, "search": flaky, "write": WRITE}
    replies = (
        {"$error": "transient"},
        think("search", q="a"),
        "no JSON",
        think("write", name="x"),
        think("send", to="bob"),
        FINAL,
    )
    run = work(launch(played=script(*replies, tools=tools)))
    decide(run, "approve")
    work(run)
    decide(run, "edit", args={"to": "carol"})
    work(run)
    assert run.status == "succeeded"
    again = relaunched(run)
    assert path_of(again) == path_of(run)
    assert (again.answer, again.cost_usd) == (run.answer, run.cost_usd)
    assert (folder_of(again.pk) / "report.md").read_text() == "first"


def test_a_script_of_a_family_gives_each_child_its_own_part() -> None:
    call = think("agent.kid", goal="Look")
    answers = [{"thought": f"FINAL ANSWER: {number}", "action": None} for number in (1, 2)]
    parts = [{"replies": {"decision": [answer]}} for answer in answers]
    played = script(call, call, FINAL, subgraphs={"kid": {**parts[0], "then": parts[1:]}})
    run = work(launch(played=played, subgraphs={"kid": {"machine": "ruled"}}))
    assert [kid.answer for kid in Run.objects.filter(parent=run).order_by("pk")] == ["1", "2"]
    told = script_of(run)
    kid = told["subgraphs"]["kid"]
    assert [part["replies"]["decision"] for part in (kid, *kid["then"])] == [[one] for one in answers]
    again = relaunched(run)
    assert path_of(again) == path_of(run)


def test_a_script_names_what_each_call_was_charged_where_that_differs() -> None:
    played = script(think("search", q="a"), FINAL)
    played["usages"] = {"decision": [{"input_tokens": 7, "cost_usd": 0.5}, {"input_tokens": 9}]}
    run = work(launch(played=played))
    assert (run.input_tokens, run.cost_usd) == (16, 0.5)
    told = script_of(run)
    assert [usage["input_tokens"] for usage in told["usages"]["decision"]] == [7, 9]
    assert parse_script(told).usages is not None
    assert relaunched(run).cost_usd == 0.5


def test_registered_tools_are_played_with_their_whole_schema() -> None:
    played = script(think("calculator", expression="6*7"), FINAL, tools={})
    run = work(launch(played=played, tools=["calculator"], rules=ALLOW))
    told = script_of(run)["tools"]["calculator"]
    assert told["effects"] == "none"
    assert told["results"][0]["output"]
    assert path_of(relaunched(run)) == path_of(run)


# --- as a test ------------------------------------------------------------------------------------------------------


def test_a_test_of_a_run_passes_and_fails_once_the_log_is_changed(tmp_path: Path) -> None:
    run = work(launch(*LOOK, limits={"tokens": 9000}))
    decide(run, "edit", args={"to": "carol"}, message='Say """hello""" and \\n')
    work(run)
    at = transitions(run, "executed")[1]
    out = io.StringIO()
    call_command("export", str(run.pk), "--format", "pytest", "--to", str(at), stdout=out)
    text = out.getvalue()
    good = outcome_of(text, tmp_path)
    assert (good.returncode, "2 passed" in good.stdout) == (0, True), good.stdout + good.stderr
    changed = text.replace("three results", "no results", 1)
    assert changed != text
    bad = outcome_of(changed, tmp_path)
    assert bad.returncode == 1
    assert f"Run {run.pk}, step " in bad.stdout


@pytest.mark.parametrize("to", [0, -1, 999])
def test_a_test_up_to_a_row_that_is_not_there_is_refused_as_a_replay_is(to: int) -> None:
    run, client = work(launch(FINAL)), signed_in(person("alice", "view_run"))
    said = f"Run {run.pk} has no step {to}; its steps are 1 to {run.head}."
    for words in (("export", "--format=pytest"), ("replay",)):
        with pytest.raises(CommandError) as refused:
            call_command(words[0], str(run.pk), *words[1:], f"--to={to}")
        assert (str(refused.value), refused.value.returncode) == (said, 2)
    for row in ("999", "last"):
        page = client.get(f"/runs/{run.pk}/test.py?to={row}")
        assert page.status_code == (409 if row == "999" else 404)


def test_a_test_holds_the_children_too(tmp_path: Path) -> None:
    call = think("agent.kid", goal="Look")
    played = script(call, FINAL, subgraphs={"kid": {"replies": {"decision": [FINAL]}}})
    run = work(launch(played=played, subgraphs={"kid": {"machine": "ruled"}}))
    result = outcome_of(pytest_file(run), tmp_path)
    assert (result.returncode, "3 passed" in result.stdout) == (0, True), result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "wild"), "can't be exported as wild. Possible: json, script, launch, pytest."),
        (("--to", "3"), "needs --format pytest"),
    ],
)
def test_what_can_not_be_exported_is_said(words: tuple[str, ...], said: str) -> None:
    run = work(launch(FINAL))
    with pytest.raises(CommandError, match=said) as refused:
        call_command("export", str(run.pk), *words, stdout=io.StringIO())
    assert refused.value.returncode == 2


def test_the_export_says_where_a_run_comes_from() -> None:
    run = work(launch(*LOOK, rules=ALLOW))
    at = transitions(run)[0]
    forked = work(actions.fork(run, at=at, by=None))
    told = export(forked)["run"]
    assert (told["origin"], told["copied_from"], told["copied_upto"]) == ("fork", str(run.pk), at)
    told = export(run)["run"]
    assert (told["origin"], told["copied_from"], told["copied_upto"]) == (None, None, None)


def test_slices_make_no_difference() -> None:
    run = launch(*LOOK, rules=ALLOW)
    while not run.finished:
        slice_of(run, driver.Slice(moves=1))
        make_due(run.pk)
    check_replay(run)
    assert verifying.verify(run, driver.tool_specs(run)) is None


def test_a_limit_that_a_family_shares_is_replayed_in_the_child() -> None:
    call = think("agent.kid", goal="Look")
    kid_replies = [think("search", q="a"), think("search", q="b"), FINAL]
    played = script(call, FINAL, subgraphs={"kid": {"replies": {"decision": kid_replies}}})
    subgraphs = {"kid": {"machine": "ruled", "settings": {}}}
    run = work(launch(played=played, subgraphs=subgraphs, limits={"tokens": 240}))
    kid = Run.objects.get(parent=run)
    assert pending(kid).kind == "limit"
    decide(kid, "top_up", args={"tokens": 5000})
    work(kid)
    run.refresh_from_db()
    work(run)
    assert run.status == "succeeded"
    check_replay(run)
    check_replay(kid)
