"""Runs of a machine that this version has not: nothing is lost, nothing is tried in vain, and everybody is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models.functions import Now

from runs import actions, driver, tasks
from runs.models import Interrupt, Run
from runs.store import backups, leases
from tests.cast import person, signed_in
from tests.launching import FINAL, launch, script, think
from tests.running import decide, kinds, lose_worker, work
from tests.workers import slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

SENTENCE = (
    "The machine older is not installed. Its runs can be viewed; they continue once a version of agentsite "
    "with this machine runs."
)
ASKS = [{"when": {"tool": "send"}, "do": "ask", "deadline_s": 60}]


@contextmanager
def without_its_machine(*runs: Run) -> Iterator[None]:
    """Another version of the site, which has not the machine of these; afterwards the one that has it again."""
    these = Run.objects.filter(pk__in=[run.pk for run in runs])
    these.update(machine="older")
    try:
        yield
    finally:
        these.update(machine="ruled")


def as_it_stands(run: Run) -> Any:
    return Run.objects.values("status", "epoch", "head", "worker").get(pk=run.pk)


def due() -> list[int]:
    return list(Run.objects.due().values_list("pk", flat=True))


def late_question() -> Run:
    run = work(launch(think("send", to="bob"), FINAL, rules=ASKS))
    Interrupt.objects.filter(run=run).update(deadline=Now() - timedelta(seconds=1))
    return run


@pytest.mark.parametrize("before", ["queued", "its worker was lost"])
def test_a_run_of_a_machine_that_is_gone_rests_and_goes_on_once_the_machine_is_back(
    before: str,
) -> None:
    run = launch(think("search", q="a"), FINAL)
    if before == "its worker was lost":
        leases.claim(run.pk, "alpha")
        lose_worker(run)
    stood = as_it_stands(run)
    with without_its_machine(run):
        assert due() == []
        assert tasks.sweep() == 0
        assert driver.drive(run.pk) == []
        assert driver.drive_inline(run.pk).status == stood["status"]
        assert as_it_stands(run) == stood
    assert due() == [run.pk]
    assert work(run).status == "succeeded"


def test_a_parent_waits_for_a_child_whose_machine_is_gone() -> None:
    played = script(
        think("agent.inner", goal="Look"), FINAL, subgraphs={"inner": {"replies": {"decision": [FINAL]}}}
    )
    run = launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": {}}})
    slice_of(run)
    child = Run.objects.get(parent=run)
    with without_its_machine(child):
        assert driver.drive_inline(run.pk).status == "waiting"
    assert driver.drive_inline(run.pk).status == "succeeded"


def test_its_question_waits_past_the_deadline_and_keeps_no_other_from_being_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone, fine = late_question(), late_question()
    monkeypatch.setattr(tasks, "SWEEP_AT_MOST", 1)
    with without_its_machine(gone):
        tasks.sweep()
        assert fine.interrupts.get().status == "expired"
        assert gone.interrupts.get().status == "pending"
    tasks.sweep()
    assert gone.interrupts.get().status == "expired"


@pytest.mark.parametrize("move", [actions.pause, actions.abort])
def test_who_moves_it_is_told_why_not_and_nothing_changes(move: Any) -> None:
    run = launch(FINAL)
    before = as_it_stands(run)
    with without_its_machine(run), pytest.raises(actions.NotPossible) as refusal:
        move(run, by=None)
    assert refusal.value.sentence == SENTENCE
    assert as_it_stands(run) == before


def test_who_answers_its_question_is_told_why_not_and_can_answer_later() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    with without_its_machine(run), pytest.raises(actions.NotPossible) as refusal:
        decide(run, "approve")
    assert refusal.value.sentence == SENTENCE
    decide(run, "approve")
    assert work(run).status == "succeeded"


def test_its_pages_say_what_is_wrong_and_what_to_do() -> None:
    client = signed_in(person("bob", "view_run"))
    run, done = launch(FINAL), work(launch(FINAL))
    with without_its_machine(run, done):
        for page in (f"/runs/{run.pk}/", f"/runs/{done.pk}/", f"/runs/{done.pk}/export.json"):
            answer = client.get(page)
            assert answer.status_code == 409
            assert SENTENCE in answer.text
        listed = client.get("/runs/")
        assert listed.status_code == 200
        assert listed.text.count("Machine not installed") == 1, "of the one that has not ended"


@pytest.mark.parametrize("command", ["pause", "abort", "export", "replay"])
def test_its_commands_say_what_is_wrong_and_what_to_do(command: str) -> None:
    run = launch(FINAL)
    with (
        without_its_machine(run),
        pytest.raises(CommandError, match="The machine older is not installed") as end,
    ):
        call_command(command, str(run.pk))
    assert end.value.returncode == 2


def test_a_restore_pauses_it_with_all_others_and_it_goes_on_once_the_machine_is_back() -> None:
    gone, fine = launch(think("search", q="a"), FINAL), launch(FINAL)
    with without_its_machine(gone):
        assert backups.pause_unfinished("Restored from a backup.") == 2
    assert kinds(gone) == kinds(fine) == ["pause"]
    actions.resume_restored([gone.pk, fine.pk], by=None)
    assert [work(run).status for run in (gone, fine)] == ["succeeded", "succeeded"]
