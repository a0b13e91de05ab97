"""A run that waits for a busy model server says when the next try is, and a person need not wait for it."""

from __future__ import annotations

import json
import signal
from io import StringIO

import pytest
from django.core.management import call_command
from django.urls import reverse

from runs import actions
from runs.models import ModelProfile, Run, RunStatus
from runs.reading.doing import doing_of
from runs.reading.rows import row_views
from runs.store import db, leases
from tests.cast import person, signed_in, stranger
from tests.commands import command
from tests.fake_model_server import FakeModelServer
from tests.launching import launch
from tests.running import lose_worker, make_due, work
from tests.served import BUSY, SAYS_93, SLOW_DOWN, launched, once, waits_of

pytestmark = pytest.mark.usefixtures("every_run_verifies")


def due_in_s(run: Run) -> float:
    run.refresh_from_db()
    return (run.due_at - db.now()).total_seconds()


@pytest.mark.database
@pytest.mark.django_db
def test_a_person_has_the_next_try_made_at_once_and_the_log_says_who() -> None:
    with FakeModelServer([SLOW_DOWN, SAYS_93]) as server:
        run = once(launched(server))
        assert due_in_s(run) > 20
        Run.objects.filter(pk=run.pk).update(owner=(owner := person("alice")))
        actions.try_now(Run.objects.get(pk=run.pk), by=owner)
        assert due_in_s(run) <= 0
        assert leases.claim(run.pk, "beta") is not None
        Run.objects.filter(pk=run.pk).update(status=RunStatus.QUEUED, worker="")
        assert work(run).status == "succeeded"
        assert len(server.asked) == 2
    assert "alice requested the retry now." in [view.line.text for view in row_views(run)]
    assert actions.replay(run, by=None)[1] is None


@pytest.mark.django_db
def test_a_press_that_comes_once_the_time_has_passed_is_no_mistake() -> None:
    with FakeModelServer([SLOW_DOWN, SAYS_93]) as server:
        run = once(launched(server))
        Run.objects.filter(pk=run.pk).update(owner=(owner := person("alice")))
        browser = signed_in(owner)
        assert "Try now" in browser.get(f"/runs/{run.pk}/").text
        make_due(run.pk)
        assert "Try now" not in browser.get(f"/runs/{run.pk}/").text
        answer = browser.post(f"/runs/{run.pk}/try-now/", follow=True)
        assert (answer.status_code, "Trying now." in answer.text) == (200, True)
        assert "asked for the next try" not in "".join(run.steps.values_list("facts_json", flat=True))
        assert work(run).status == "succeeded"


@pytest.mark.django_db
def test_the_model_is_not_told_that_somebody_would_not_wait() -> None:
    with FakeModelServer([SLOW_DOWN, SAYS_93]) as server:
        run = once(launched(server))
        actions.try_now(run, by=None)
        assert work(run).status == "succeeded"
        first, second = (asked.body["messages"] for asked in server.asked)
        assert first == second


@pytest.mark.django_db
def test_the_page_says_when_the_next_try_is_and_offers_it_to_those_who_may_steer() -> None:
    with FakeModelServer([SLOW_DOWN, SLOW_DOWN]) as server:
        run = once(launched(server))
        Run.objects.filter(pk=run.pk).update(owner=(owner := person("alice")))
        page = signed_in(owner).get(reverse("run", args=[run.pk])).text
        assert "Model server busy, next try" in page
        assert f"{run.due_at:%H:%M:%S} UTC" in page and "Slow down." in page
        assert "Try now" in page
        seen = (
            signed_in(person("bob", "view_run", "decide_interrupt")).get(reverse("run", args=[run.pk])).text
        )
        assert "Model server busy" in seen and "Try now" not in seen
        response = signed_in(owner).post(reverse("try-now", args=[run.pk]), follow=True)
        assert "Trying now." in response.text
        assert due_in_s(run) <= 0


@pytest.mark.django_db
def test_who_may_not_steer_may_not_try_now() -> None:
    other, reviewer = stranger("charlie"), person("bob", "view_run", "decide_interrupt")
    with FakeModelServer([SLOW_DOWN]) as server:
        run = once(launched(server))
    for who, status in ((reviewer, 403), (other, 404)):
        assert signed_in(who).post(reverse("try-now", args=[run.pk])).status_code == status
    assert due_in_s(run) > 20


@pytest.mark.django_db
def test_after_a_deed_of_a_person_the_page_still_says_what_is_waited_for() -> None:
    with FakeModelServer([SLOW_DOWN]) as server:
        run = once(launched(server))
    actions.pause(run, by=None)
    run = actions.resume(run, by=None)
    doing = doing_of(Run.objects.get(pk=run.pk))
    assert doing is not None and doing.busy


@pytest.mark.django_db
def test_a_run_that_waits_for_nothing_has_no_next_try() -> None:
    run = launch({"thought": "FINAL ANSWER: 42", "action": None})
    with pytest.raises(actions.NotPossible, match=f"Run {run.pk} is not waiting for a retry"):
        actions.try_now(run, by=None)
    work(run)
    with pytest.raises(actions.NotPossible, match="has ended already"):
        actions.try_now(run, by=None)
    assert not run.steps.filter(kind="note").exists()


@pytest.mark.django_db
def test_the_command_does_the_same() -> None:
    with FakeModelServer([SLOW_DOWN]) as server:
        run = once(launched(server))
    out = StringIO()
    call_command("try_now", str(run.pk), stdout=out)
    assert f"Run {run.pk}: queued" in out.getvalue()
    assert due_in_s(run) <= 0


PLACES = [
    "after_effect:kill9",
    "before_conclusion_commit:kill9",
    "after_commit_before_ring:kill9",
    "after_claim:kill9:2",
    "after_commit_before_ring:kill9:2",
]


@pytest.mark.database
@pytest.mark.parametrize("place", PLACES)
def test_a_worker_that_is_killed_in_an_outage_loses_nothing_of_it(place: str) -> None:
    with FakeModelServer([BUSY] * 3 + [SAYS_93] * 2) as server:
        about = {"base_url": server.base_url, "model_id": "tiny-1"}
        ModelProfile.objects.create(name="tiny", **about)
        done = command(
            "launch",
            "--machine=ruled",
            "--goal=Work out 12*7+9",
            f"--settings={json.dumps({'model': 'tiny', 'on_retries': 'stop', 'on_limit': 'stop'})}",
            "--inline",
            failpoints=place,
        )
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        run = Run.objects.get()
        lose_worker(run)
        assert work(run).status == "succeeded"
        failed = len(server.asked) - 1
    waited = waits_of(run)
    assert waited == [1, 2, 4][: len(waited)]
    assert len(waited) == (failed if "commit_before_ring" in place or "claim" in place else failed - 1)
    assert (run.model_calls, run.answer) == (1, "93")
