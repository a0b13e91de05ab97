"""A model server that is busy or away is waited for without a worker; then, or for the key, a person is asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runs import actions
from runs.adapters.models.waits import asked_wait
from runs.engine.effects import ANSWER, Failed
from runs.models import Interrupt, ModelProfile, RunStatus
from runs.store.db import now
from tests.fake_model_server import Behaviour, BreaksOff, FakeModelServer, Refuses, Says
from tests.running import decide, pending, work
from tests.served import BUSY, NO_CREDIT, SAYS_93, SLOW_DOWN, launched, once, waits_of

pytestmark = pytest.mark.usefixtures("every_run_verifies")


@pytest.mark.database
@pytest.mark.django_db
def test_a_run_waits_as_its_server_asks_without_a_worker() -> None:
    with FakeModelServer([SLOW_DOWN, SAYS_93]) as server:
        run = once(launched(server))
        assert (run.status, run.worker) == (RunStatus.QUEUED, "")
        left = (run.due_at - now()).total_seconds()
        assert 25 < left <= 37
        assert once(run).status == "succeeded"
        assert len(server.asked) == 2
    told = "".join(run.steps.values_list("facts_json", flat=True))
    assert "asks to wait 37 seconds): Slow down. Next try in 37 s, then up to 563 s more." in told


@pytest.mark.django_db
def test_waits_grow_to_a_minute_until_patience_is_over_and_then_a_person_is_asked() -> None:
    answers: list[Behaviour] = [BUSY] * 16
    with FakeModelServer(answers) as server:
        run = work(launched(server))
        assert run.status == RunStatus.WAITING
        assert waits_of(run) == [1, 2, 4, 8, 16, 32, *[60] * 8]
        assert len(server.asked) == 15
    question = pending(run)
    assert (question.kind, question.title) == ("manual", "The model can't be called. Try again?")
    assert "HTTP 503" in question.why and "All slots are taken." in question.why


@pytest.mark.django_db
def test_after_a_persons_word_the_call_is_made_again_with_all_its_patience() -> None:
    answers: list[Behaviour] = [BUSY, BUSY, BUSY, SAYS_93]
    with FakeModelServer(answers) as server:
        run = work(launched(server, patience_s=1.0))
        assert run.status == RunStatus.WAITING
        assert len(server.asked) == 2
        decide(run, "resume")
        run = work(run)
        assert (run.status, run.answer, len(server.asked)) == ("succeeded", "93", 4)


@pytest.mark.django_db
@pytest.mark.parametrize("status", [401, 402, 403])
def test_for_key_and_account_a_person_is_asked_at_once_and_the_mended_profile_counts(status: int) -> None:
    refusal = Refuses(status, {"message": "The plan ended in June."})
    with FakeModelServer([refusal]) as server, FakeModelServer([SAYS_93]) as other:
        run = work(launched(server))
        assert (run.status, len(server.asked)) == (RunStatus.WAITING, 1)
        assert "The plan ended in June." in pending(run).why
        ModelProfile.objects.update(base_url=other.base_url)
        decide(run, "resume")
        assert work(run).status == "succeeded"


@pytest.mark.django_db
def test_a_person_may_stop_a_run_whose_model_is_away() -> None:
    with FakeModelServer([NO_CREDIT]) as server:
        run = work(launched(server))
    decide(run, "abort")
    assert (work(run).status, Interrupt.objects.get(run=run).status) == ("cancelled", "decided")


@pytest.mark.django_db
def test_a_server_that_takes_no_connection_is_waited_for() -> None:
    with FakeModelServer([]) as server:
        run = launched(server, patience_s=5.0)
    run = work(run)
    assert run.status == RunStatus.WAITING
    assert waits_of(run) == [1, 2]


@pytest.mark.django_db
def test_a_server_that_asks_for_more_than_the_patience_is_not_waited_for() -> None:
    later = Refuses(429, {"message": "Daily limit."}, (("Retry-After", "7200"),))
    with FakeModelServer([later]) as server:
        run = work(launched(server))
        assert (run.status, len(server.asked)) == (RunStatus.WAITING, 1)
    assert "asks to wait 7200 seconds" in pending(run).why


@pytest.mark.django_db
def test_a_profile_without_patience_has_three_attempts() -> None:
    answers: list[Behaviour] = [BUSY] * 4
    with FakeModelServer(answers) as server:
        run = work(launched(server, patience_s=0.0))
        assert (run.status, run.exit_reason, len(server.asked)) == ("failed", "model_error", 3)


@pytest.mark.django_db
def test_after_an_outage_other_failures_have_their_three_attempts() -> None:
    broken = BreaksOff('{"thought": "Hm')
    with FakeModelServer([*[BUSY] * 4, broken, BUSY, broken, SAYS_93]) as server:
        assert work(launched(server)).status == "succeeded"
    with FakeModelServer([*[BUSY] * 4, broken, BUSY, broken, broken, SAYS_93]) as server:
        run = work(launched(server))
        assert (run.exit_reason, len(server.asked)) == ("model_error", 8)
    assert waits_of(run) == [1, 2, 4, 8, 0, 16, 0]


@pytest.mark.django_db
def test_what_is_stored_of_other_failures_has_not_changed() -> None:
    stored = '{"kind":"failed","blame":"transient","message":"busy","ran":true}'
    assert ANSWER.validate_json(stored) == Failed(blame="transient", message="busy")
    assert Failed(blame="transient", message="busy").model_dump_json() == stored


NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(seconds=37)
ASKED = {
    "seconds": ({"retry-after": "37"}, {}),
    "seconds and a part": ({"retry-after": "37.0"}, {}),
    "a date": ({"retry-after": "Mon, 30 Nov 2026 12:00:37 GMT"}, {}),
    "milliseconds": ({"retry-after-ms": "37000", "retry-after": "60"}, {}),
    "google": ({}, {"details": [{"@type": "RetryInfo", "retryDelay": "37s"}]}),
    "openai": ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-reset-tokens": "37s"}, {}),
    "minutes": ({"x-ratelimit-reset-tokens": "0m37.0s"}, {}),
    "anthropic": ({"anthropic-ratelimit-requests-reset": "2026-11-30T12:00:37Z"}, {}),
    "openrouter": ({"x-ratelimit-reset": str(int(LATER.timestamp() * 1_000))}, {}),
    "a moment in seconds": ({"x-ratelimit-reset": str(int(LATER.timestamp()))}, {}),
}


@pytest.mark.parametrize(("headers", "fields"), ASKED.values(), ids=ASKED)
def test_a_wait_is_read_in_every_way_in_which_servers_ask_for_one(headers: Any, fields: Any) -> None:
    assert asked_wait(headers, fields, NOW) == 37.0


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "nan", "inf", "1e9", "99999999", "Mon, 30 Nov 2025 12:00:00 GMT", "9" * 400]
)
def test_a_wait_that_is_none_is_not_kept(text: str) -> None:
    assert asked_wait({"retry-after": text}, {"details": [{"retryDelay": 3}, 7]}, NOW) == 0.0


@pytest.mark.django_db
def test_a_server_that_cuts_prompts_is_named_on_the_row_and_not_to_the_model() -> None:
    with FakeModelServer([Says({"thought": "Hm.", "action": None}, usage=(2_048, 7)), SAYS_93]) as server:
        ModelProfile.objects.create(name="tiny", base_url=server.base_url, model_id="tiny-1")
        wanted = {"model": "tiny", "on_retries": "stop", "on_limit": "stop"}
        goal = "Work out 12*7+9. " + "Numbers stay small. " * 900
        run = work(actions.start_run(owner=None, machine="ruled", goal=goal, settings=wanted))
        assert run.status == "succeeded"
        sent = [str(asked.body) for asked in server.asked]
    told = "".join(run.steps.values_list("facts_json", flat=True))
    assert told.count("The model server read 2,048 tokens of a prompt of about") == 1
    assert len(sent) == 2
    assert "tokens of a prompt" not in sent[1]
