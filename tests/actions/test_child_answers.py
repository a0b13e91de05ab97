"""Questions of children, and what answers them: the settings that they were launched with, and an export of the run."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.urls import reverse

from runs import actions
from runs.driver import Slice
from runs.driver.holds import held
from runs.driver.worker import Worker
from runs.management.asking import asked_by, open_questions
from runs.models import Run
from runs.store import leases
from tests.cast import person, signed_in
from tests.launching import FINAL, launch, script, think
from tests.running import decide, lose_worker, make_due, transitions, work
from tests.workers import WorkerKilled, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

CALL = think("agent.inner", goal="Write to bob")
SEND = think("send", to="bob")
LOOK = think("search", q="tides")
DONE = {"thought": "FINAL ANSWER: the inner answer", "action": None}
APPROVE = {"verdict": "approve"}
ANEW: dict[str, Any] = {"cache": False}
"""What the same prompt brings is asked anew, where a run went back."""
REJECT = {"verdict": "reject", "message": "not him"}


def child(name: str = "", **settings: Any) -> dict[str, Any]:
    """The settings of a child, which may have a child of that name."""
    inner = {"subgraphs": {name: {"machine": "ruled", "settings": {}}}} if name else {}
    return {"machine": "ruled", "settings": inner | settings}


# --- a question that the settings answer ----------------------------------------------------------------------------


class Doomed(Worker):
    """Dies as soon as it has nothing to do."""

    def _parked(self) -> bool:
        raise WorkerKilled


def die_parked(run: Run) -> None:
    """A worker takes the run and is gone as soon as a question of it is written."""
    make_due(run.pk)
    lease = leases.claim(run.pk, "doomed")
    assert lease is not None
    with held(lease) as hold, pytest.raises(WorkerKilled):
        Doomed(hold).drive(Slice())
    run.refresh_from_db()


def test_a_question_that_the_settings_answer_is_nobodys_at_any_moment() -> None:
    run = launch(SEND, FINAL, answers=[APPROVE])
    die_parked(run)
    assert run.interrupts.get().status == "decided"
    assert open_questions(run) == []
    lose_worker(run)
    assert work(run).status == "succeeded"


def test_who_follows_a_run_is_not_asked_what_the_settings_of_its_child_answer() -> None:
    played = script(CALL, FINAL, subgraphs={"inner": {"replies": {"decision": [SEND, DONE]}}})
    run = launch(played=played, subgraphs={"inner": child(answers=[APPROVE])})
    slice_of(run)
    kid = run.children.get()
    die_parked(kid)
    assert (run.status, asked_by(run)) == ("waiting", [])
    lose_worker(kid)
    work(kid)
    assert work(run).status == "succeeded"


def test_an_answer_that_does_not_fit_leaves_its_question_open_to_people() -> None:
    run = launch(SEND, FINAL, answers=[{"verdict": "resume"}])
    die_parked(run)
    assert run.status == "waiting"
    assert [question.run for question in asked_by(run)] == [run]
    assert "resume is not an answer to this question" in run.steps.get(kind="note").facts_json


# --- an export that runs through ------------------------------------------------------------------------------------


def told(*words: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def exported(run: Run) -> dict[str, Any]:
    """The run as a launch."""
    found: dict[str, Any] = json.loads(told("export", str(run.pk), "--format", "launch"))
    return found


def answers_of(told: dict[str, Any], *path: str) -> Any:
    """The answers that an export has for the child at the end of the path."""
    settings = told["settings"]
    for name in path:
        settings = settings["subgraphs"][name]["settings"]
    return settings.get("answers")


def relaunched(run: Run) -> Run:
    """The run's export, launched; nobody is there to answer."""
    return work(actions.start_run(owner=None, **exported(run)))


def way_of(run: Run) -> list[tuple[Any, ...]]:
    """Where the run went, what was rolled back left out; and where its children did."""
    rows = run.steps.filter(kind__in=("ask", "transition", "stop"), live=True).order_by("seq")
    way: list[tuple[Any, ...]] = list(rows.values_list("kind", "node", "edge", "to"))
    live = run.steps.filter(live=True).values("seq")
    for kid in run.children.filter(parent_seq__in=live).order_by("parent_seq"):
        way += way_of(kid)
    return [*way, (run.status, run.exit_reason, run.answer)]


def decided(run: Run, verdict: str, **parts: Any) -> None:
    """A person answers the run or the child of it that asks, and the family goes on."""
    asking: Run | None = asked_by(run)[0].run
    assert asking is not None
    decide(asking, verdict, **parts)
    while asking is not None:
        work(asking)
        asking = asking.parent
    run.refresh_from_db()


def family(
    *replies: Any, inner: tuple[Any, ...] = (SEND, DONE), own: dict[str, Any] | None = None, **settings: Any
) -> Run:
    """A parent that plays these replies, and whose children play `inner`; `own` are the parent's settings."""
    played = script(*replies, subgraphs={"inner": {"replies": {"decision": list(inner)}}})
    return work(launch(played=played, subgraphs={"inner": child(**settings)}, **(own or {})))


def test_what_was_decided_in_a_child_is_exported_in_the_settings_of_the_child() -> None:
    run = family(SEND, CALL, FINAL, inner=(SEND, SEND, DONE))
    decided(run, "reject", message="not him")
    decided(run, "edit", args={"to": "carol"})
    decided(run, "approve")
    assert run.status == "succeeded"
    found = exported(run)
    assert answers_of(found) == [REJECT]
    assert answers_of(found, "inner") == [{"verdict": "edit", "args": {"to": "carol"}}, APPROVE]
    assert way_of(relaunched(run)) == way_of(run)


def test_what_was_decided_in_a_child_of_a_child_is_exported_where_that_is_named() -> None:
    parts = {
        "outer": {"replies": {"decision": [CALL, SEND, DONE]}},
        "inner": {"replies": {"decision": [SEND, DONE]}},
    }
    played = script(think("agent.outer", goal="Ask further"), FINAL, subgraphs=parts)
    run = work(launch(played=played, subgraphs={"outer": child("inner")}))
    decided(run, "reject", message="not him")
    decided(run, "approve")
    assert run.status == "succeeded"
    found = exported(run)
    assert (answers_of(found, "outer"), answers_of(found, "outer", "inner")) == ([APPROVE], [REJECT])
    assert way_of(relaunched(run)) == way_of(run)


def test_calls_of_a_child_that_were_answered_alike_share_its_answers() -> None:
    """As far as each went; what an approval remarks is not heard by anybody."""
    run = family(CALL, CALL, FINAL, inner=(SEND, SEND, DONE))
    for message in ("", "", "fine", "by me"):
        decided(run, "approve", message=message)
    assert run.status == "succeeded"
    assert answers_of(exported(run), "inner") == [APPROVE, APPROVE]
    assert way_of(relaunched(run)) == way_of(run)


def refused(run: Run, form: str = "launch") -> str:
    """What an export is refused with."""
    with pytest.raises(CommandError) as caught:
        call_command("export", str(run.pk), "--format", form, stdout=io.StringIO())
    assert caught.value.returncode == 2
    return str(caught.value)


def test_calls_of_a_child_that_were_answered_otherwise_can_not_be_told() -> None:
    run = family(CALL, CALL, FINAL)
    decided(run, "approve")
    decided(run, "reject", message="not him")
    first, second = run.children.order_by("pk")
    assert refused(run) == (
        f"The run can't be exported in this form: its child inner got other answers in run {first.pk} than in run"
        f" {second.pk}, but settings.answers gives every call the same answers."
        " Export it as a test (pytest) instead."
    )
    page = signed_in(person("bob", "view_run")).get(
        reverse("run-script", args=[run.pk]), {"with": "settings"}
    )
    assert page.status_code == 409
    assert "got other answers" in page.content.decode()
    assert "test_every_step_comes_out" in told("export", str(run.pk), "--format", "pytest")
    assert "then" in json.loads(told("export", str(run.pk), "--format", "script"))["subgraphs"]["inner"]


def test_nobody_answers_in_an_export_what_is_still_open() -> None:
    run = family(CALL, CALL, FINAL)
    decided(run, "approve")
    assert len(asked_by(run)) == 1
    assert "got other answers" in refused(run)
    one = family(CALL, FINAL, inner=(SEND, SEND, DONE))
    decided(one, "approve")
    assert answers_of(exported(one), "inner") == [APPROVE]
    again = relaunched(one)
    assert (again.status, len(asked_by(again))) == ("waiting", 1)


def test_what_was_decided_takes_the_place_of_the_answers_that_a_child_was_given() -> None:
    run = family(CALL, FINAL, inner=(SEND, SEND, DONE), answers=[REJECT])
    decided(run, "approve")
    assert answers_of(exported(run), "inner") == [REJECT, APPROVE]
    assert way_of(relaunched(run)) == way_of(run)
    unasked = family(FINAL, answers=[REJECT])
    assert answers_of(exported(unasked), "inner") == [REJECT]


def test_a_child_that_was_gone_back_over_is_no_part_of_the_export() -> None:
    """Neither its decisions, nor its replies and results, nor what its parent replied to come there."""
    run = family(LOOK, CALL, SEND, CALL, SEND, FINAL, own=ANEW)
    decided(run, "reject", message="not him")
    assert asked_by(run)[0].run == run
    actions.rewind(run, to=transitions(run, "executed")[0], by=None)
    work(run)
    decided(run, "approve")
    decided(run, "reject", message="not him")
    assert (run.status, run.children.count()) == ("succeeded", 2)
    found = exported(run)
    assert (answers_of(found), answers_of(found, "inner")) == ([REJECT], [APPROVE])
    assert found["script"]["replies"]["decision"] == [LOOK, CALL, SEND, FINAL]
    assert "then" not in found["script"]["subgraphs"]["inner"]
    assert way_of(relaunched(run)) == way_of(run)


def test_a_going_back_that_was_a_decision_is_left_out_with_what_it_went_back_over() -> None:
    run = family(LOOK, CALL, SEND, CALL, FINAL, own=ANEW)
    decided(run, "reject", message="not him")
    decided(run, "rollback", to_step=transitions(run, "executed")[0])
    decided(run, "approve")
    assert run.status == "succeeded"
    found = exported(run)
    assert (answers_of(found), answers_of(found, "inner")) == (None, [APPROVE])
    assert way_of(relaunched(run)) == way_of(run)


def test_rows_of_the_child_that_were_gone_back_over_are_no_part_of_the_export() -> None:
    run = family(CALL, FINAL, inner=(LOOK, SEND, SEND, SEND, DONE), **ANEW)
    kid = run.children.get()
    decided(run, "reject", message="not him")
    decided(run, "rollback", to_step=transitions(kid, "executed")[0])
    decided(run, "approve")
    assert run.status == "succeeded"
    assert answers_of(exported(run), "inner") == [APPROVE]
    assert way_of(relaunched(run)) == way_of(run)


def test_answers_that_were_kept_are_exported_once() -> None:
    run = family(LOOK, SEND, CALL, SEND, CALL, FINAL, own=ANEW)
    decided(run, "reject", message="not him")
    actions.rewind(run, to=transitions(run, "executed")[0], by=None, answers="keep")
    work(run)
    assert asked_by(run)[0].run != run
    decided(run, "approve")
    assert run.status == "succeeded"
    found = exported(run)
    assert (answers_of(found), answers_of(found, "inner")) == ([REJECT], [APPROVE])
    assert way_of(relaunched(run)) == way_of(run)


def test_a_reply_that_came_from_the_cache_is_played_like_any_other() -> None:
    """The row whose reply it was is not made again."""
    run = work(launch(LOOK, SEND, FINAL))
    actions.rewind(run, to=transitions(run)[0], by=None)
    work(run)
    assert run.cached_model_calls > 0
    while asked_by(run):
        decided(run, "approve")
    assert run.status == "succeeded"
    assert way_of(relaunched(run)) == way_of(run)


def test_who_stopped_a_child_at_its_question_has_answered_it_so() -> None:
    run = family(CALL, FINAL)
    kid = run.children.get()
    actions.abort(kid, by=None)
    assert work(run).status == "succeeded"
    assert answers_of(exported(run), "inner") == [{"verdict": "abort"}]
    assert way_of(relaunched(run)) == way_of(run)


def test_a_limit_that_gone_over_rows_counted_against_can_not_be_told() -> None:
    run = family(CALL, FINAL, inner=(LOOK, SEND, SEND, DONE), limits={"cost_usd": 0.0025}, **ANEW)
    kid = run.children.get()
    decided(run, "rollback", to_step=transitions(kid, "executed")[0])
    question = asked_by(run)[0]
    assert question.kind == "limit"
    decided(run, "top_up", args={"cost_usd": 1})
    decided(run, "approve")
    assert run.status == "succeeded"
    assert f"step {question.seq} of run {kid.pk} asked about the limit cost_usd" in refused(run)


def test_children_of_one_name_that_went_otherwise_in_several_runs_can_not_be_told() -> None:
    """A script has one part for the first call of a name, whoever calls."""
    parts = {
        "outer": {"replies": {"decision": [CALL, DONE]}},
        "inner": {"replies": {"decision": [SEND, DONE]}},
    }
    outer = think("agent.outer", goal="Ask further")
    run = work(
        launch(played=script(outer, outer, FINAL, subgraphs=parts), subgraphs={"outer": child("inner")})
    )
    decided(run, "approve")
    decided(run, "reject", message="not him")
    assert run.status == "succeeded"
    for form in ("launch", "script"):
        assert "inner" in refused(run, form)


def test_a_fork_exports_the_children_that_its_copied_rows_called() -> None:
    run = family(CALL, SEND, FINAL)
    decided(run, "approve")
    decided(run, "approve")
    at = transitions(run, "executed")[0]
    forked = work(actions.fork(run, at=at, by=None))
    decided(forked, "reject", message="not him")
    assert forked.status == "succeeded"
    found = exported(forked)
    assert (answers_of(found), answers_of(found, "inner")) == ([REJECT], [APPROVE])
    again = relaunched(forked)
    assert (again.status, again.answer, again.children.get().status) == ("succeeded", "42", "succeeded")
