"""A model that stays away: a person names another one, or its fallback takes over, and the log says so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db.utils import IntegrityError
from django.urls import reverse

from runs import actions, driver
from runs.models import ModelProfile, Run, RunStatus
from runs.reading.exporting import export
from runs.reading.rows import row_views
from runs.store import verifying
from tests.cast import cast_member, signed_in
from tests.fake_model_server import Behaviour, FakeModelServer, Refuses
from tests.launching import FINAL, launch
from tests.pages import folds_of
from tests.running import decide, pending, work
from tests.served import BUSY, NO_CREDIT, SAYS_93, launched

pytestmark = pytest.mark.usefixtures("every_run_verifies")

THINKS: list[Behaviour] = [BUSY, BUSY]


def spare(server: FakeModelServer, name: str = "spare", **fields: Any) -> ModelProfile:
    return ModelProfile.objects.create(name=name, base_url=server.base_url, model_id="spare-1", **fields)


def asks_for_model(run: Run) -> Run:
    assert (run.status, pending(run).kind) == (RunStatus.WAITING, "manual")
    return run


def told_of_models(run: Run) -> list[dict[str, Any]]:
    facts = run.steps.order_by("seq").values_list("facts_json", flat=True)
    return [fact for text in facts for fact in json.loads(text) if fact["kind"] == "run.model"]


@pytest.mark.database
def test_a_person_names_another_model_and_the_run_calls_it_from_then_on() -> None:
    with FakeModelServer([BUSY, BUSY]) as server, FakeModelServer([SAYS_93]) as other:
        spare(other)
        run = asks_for_model(work(launched(server, patience_s=1.0)))
        decide(run, "resume", args={"model": "spare"})
        assert work(run).status == "succeeded"
        assert (len(server.asked), len(other.asked)) == (2, 1)
        assert other.asked[0].body["model"] == "spare-1"
    assert (run.model, run.switched_to, run.model_name) == ("tiny", "spare", "spare")
    assert export(run)["run"]["model"] == "spare"
    assert [(fact["before"], fact["model"], fact["by"]) for fact in told_of_models(run)] == [
        ("tiny", "spare", "the operator")
    ]
    assert "Model changed" in [view.line.title for view in row_views(run)]
    assert actions.replay(run, by=None)[1] is None


@pytest.mark.parametrize("status", [401, 402, 403])
def test_for_key_and_account_too_another_model_may_be_named(status: int) -> None:
    refusal = Refuses(status, {"message": "The plan ended in June."})
    with FakeModelServer([refusal]) as server, FakeModelServer([SAYS_93]) as other:
        spare(other)
        run = asks_for_model(work(launched(server)))
        assert "The plan ended in June." in pending(run).why
        decide(run, "resume", args={"model": "spare"})
        assert work(run).status == "succeeded"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"model": "none"}, "There is no other model 'none' here. Others: spare."),
        ({"model": "tiny"}, "There is no other model 'tiny' here. Others: spare."),
        ({"model": "played"}, "There is no other model 'played' here. Others: spare."),
        ({"model": "off"}, "There is no other model 'off' here. Others: spare."),
        ({"model": "keyless"}, "The model 'keyless' can't be called. Keys come from no other variables."),
        ({"model": ["spare"]}, "Name the model"),
        ({"model": "spare", "more": 1}, "Name the model"),
        ([], "Name the model"),
    ],
)
def test_a_model_that_can_t_be_called_is_refused_and_the_question_stays(args: Any, said: str) -> None:
    with FakeModelServer([NO_CREDIT]) as server:
        spare(server)
        spare(server, name="off", enabled=False)
        if args == {"model": "keyless"}:
            spare(server, name="keyless", key_variable="SECRET_KEY")
        ModelProfile.objects.create(name="played", kind="script", script_json="{}")
        run = asks_for_model(work(launched(server)))
    with pytest.raises(actions.BadDecision, match=said):
        decide(run, "resume", args=args)
    assert not told_of_models(asks_for_model(run))


def test_other_questions_take_no_model() -> None:
    run = work(launch(FINAL, rules=[{"when": {"first_step": True}, "do": "ask"}]))
    with pytest.raises(actions.BadDecision):
        decide(run, "approve", args={"model": "spare"})


def test_the_card_offers_to_try_again_to_use_another_model_and_to_cancel() -> None:
    person = cast_member("carol", is_superuser=True)
    browser = signed_in(person)
    with FakeModelServer([NO_CREDIT]) as server, FakeModelServer([SAYS_93]) as other:
        spare(other)
        spare(other, name="off", enabled=False)
        run = asks_for_model(work(launched(server)))
        question = pending(run)
        page = browser.get(reverse("run", args=[run.pk])).text
        for words in ("Try again", "Use another model…", "Use this model", "Cancel run…"):
            assert words in page
        assert all("This ends the run and its children" in fold for fold in folds_of(page, "Cancel run"))
        assert '<option value="spare"' in page
        assert '<option value="off"' not in page and '<option value="tiny"' not in page
        form = {"verdict": "another_model", "model": "", "revision": "1", "fingerprint": question.fingerprint}
        refused = browser.post(reverse("decision", args=[question.pk]), form)
        assert refused.status_code == 422 and "Choose a model." in refused.text
        gone = browser.post(reverse("decision", args=[question.pk]), form | {"model": "off"})
        assert gone.status_code == 422 and "There is no other model" in gone.text
        taken = browser.post(reverse("decision", args=[question.pk]), form | {"model": "spare"}, follow=True)
        assert "Recorded" in taken.text
        assert work(run).status == "succeeded"
    shown = browser.get(reverse("interrupt", args=[question.pk])).text
    assert "With another model" in shown and "spare" in shown


def test_the_command_names_another_model() -> None:
    with FakeModelServer([NO_CREDIT]) as server, FakeModelServer([SAYS_93]) as other:
        spare(other)
        run = asks_for_model(work(launched(server)))
        call_command("decide", str(run.pk), "--verdict", "resume", "--args", '{"model": "spare"}')
        assert work(run).status == "succeeded"


@pytest.mark.database
def test_the_fallback_takes_over_once_the_patience_is_over_and_the_timeline_says_so() -> None:
    with FakeModelServer([BUSY] * 3) as server, FakeModelServer([SAYS_93]) as other:
        second = spare(other)
        run = work(launched(server, patience_s=3.0, fallback=second))
        assert run.status == "succeeded"
        assert (len(server.asked), len(other.asked)) == (3, 1)
    assert not run.interrupts.exists()
    assert run.model_name == "spare"
    line = next(view.line for view in row_views(run) if view.line.title == "Model changed")
    assert line.text.startswith("from tiny to spare, its fallback") and "All slots are taken." in line.text
    assert actions.replay(run, by=None)[1] is None


DEAR: dict[str, Any] = {"input_price": 1_000.0, "output_price": 1_000.0}
ASKS_FOR_COST = [{"when": {"next_cost_usd": 0.05}, "do": "ask"}]


@pytest.mark.database
def test_the_first_call_of_a_fallback_passes_the_gates_too() -> None:
    with FakeModelServer([BUSY] * 3) as server, FakeModelServer([SAYS_93]) as other:
        free = {"input_price": 0.0, "output_price": 0.0}
        run = launched(server, patience_s=3.0, fallback=spare(other, **DEAR), rules=ASKS_FOR_COST, **free)
        asks_for_model(run := work(run))
        assert "The next model call may cost" in pending(run).title
        assert not other.asked
        decide(run, "resume")
        assert work(run).status == "succeeded"
        assert len(other.asked) == 1
    assert actions.replay(run, by=None)[1] is None


def test_a_rule_that_forbids_dear_calls_holds_for_a_fallback() -> None:
    rules = [{"when": {"next_cost_usd": 0.05}, "do": "deny"}]
    with FakeModelServer([BUSY] * 3) as server, FakeModelServer([SAYS_93]) as other:
        free = {"input_price": 0.0, "output_price": 0.0}
        run = work(launched(server, patience_s=3.0, fallback=spare(other, **DEAR), rules=rules, **free))
        assert run.exit_reason == "cost_limit"
        assert not other.asked
    assert actions.replay(run, by=None)[1] is None


def test_the_fallback_has_a_fallback_of_its_own_and_the_last_one_asks_a_person() -> None:
    with FakeModelServer([BUSY] * 9) as server:
        last = spare(server, name="last", patience_s=1.0)
        second = spare(server, patience_s=1.0, fallback=last)
        run = asks_for_model(work(launched(server, patience_s=1.0, fallback=second)))
        assert [asked.body["model"] for asked in server.asked] == ["tiny-1"] * 2 + ["spare-1"] * 4
    assert [fact["model"] for fact in told_of_models(run)] == ["spare", "last"]


def test_without_patience_the_fallback_takes_over_after_three_attempts() -> None:
    with FakeModelServer([BUSY] * 3) as server, FakeModelServer([SAYS_93]) as other:
        run = work(launched(server, patience_s=0.0, fallback=spare(other)))
        assert (run.status, len(server.asked)) == ("succeeded", 3)


@pytest.mark.parametrize("fields", [{"enabled": False}, {"key_variable": "SECRET_KEY"}])
def test_a_fallback_that_can_t_be_called_is_passed_over_and_a_person_is_asked(fields: dict[str, Any]) -> None:
    with FakeModelServer([BUSY] * 3) as server:
        second = spare(server, **fields)
        asks_for_model(work(launched(server, patience_s=1.0, fallback=second)))


def test_no_fallback_leads_back_to_its_own_model() -> None:
    first, second, third = (ModelProfile(name=name, base_url="http://a.test/v1") for name in "abc")
    first.save()
    second.fallback = first
    second.save()
    third.fallback = second
    third.save()
    first.fallback = third
    with pytest.raises(ValidationError, match="circle: a → c → b → a"):
        first.clean()
    second.fallback = second
    with pytest.raises(ValidationError, match="circle: b → b"):
        second.clean()
    with pytest.raises(IntegrityError):
        second.save()


def switched_run(server: FakeModelServer, other: FakeModelServer) -> Run:
    spare(other)
    run = asks_for_model(work(launched(server, patience_s=1.0)))
    decide(run, "resume", args={"model": "spare"})
    return work(run)


def test_a_fork_goes_on_with_the_model_of_its_step() -> None:
    answers: list[Behaviour] = [BUSY, BUSY]
    with FakeModelServer(answers) as server, FakeModelServer([SAYS_93] * 3) as other:
        run = switched_run(server, other)
        after = run.steps.filter(kind="transition", live=True).order_by("seq").values_list("seq", flat=True)
        later = actions.rerun(run, at=after[0], by=None)
        assert (later.model, later.switched_to) == ("spare", "")
        assert work(later).status == "succeeded"
        first = actions.fork(run, at=0, by=None)
        assert first.model == "tiny"
    assert verifying.verify(run, driver.tool_specs(run)) is None


def test_a_rollback_keeps_the_model() -> None:
    think = Refuses(402, {"message": "The plan ended in June."})
    from tests.fake_model_server import Says

    thinks = Says({"thought": "Hm, let me think.", "action": None})
    with FakeModelServer([thinks, think]) as server, FakeModelServer([thinks, NO_CREDIT, SAYS_93]) as other:
        spare(other)
        run = asks_for_model(work(launched(server)))
        decide(run, "resume", args={"model": "spare"})
        run = asks_for_model(work(run))
        first = (
            run.steps.filter(kind="transition", live=True).order_by("seq").values_list("seq", flat=True)[0]
        )
        decide(run, "rollback", to_step=first)
        assert work(run).status == "succeeded"
        assert run.model_name == "spare"


def test_a_model_in_the_column_that_the_log_does_not_tell_is_found() -> None:
    with FakeModelServer([BUSY, BUSY]) as server, FakeModelServer([SAYS_93]) as other:
        run = switched_run(server, other)
    Run.objects.filter(pk=run.pk).update(switched_to="elsewhere")
    misfit = verifying.verify(Run.objects.get(pk=run.pk), driver.tool_specs(run))
    assert misfit is not None and "model" in misfit.why
    Run.objects.filter(pk=run.pk).update(switched_to="spare")


def test_who_may_not_decide_is_not_told_why_a_model_cant_be_called() -> None:
    with FakeModelServer([NO_CREDIT]) as server:
        spare(server, name="keyless", key_variable="SECRET_KEY")
        run = asks_for_model(work(launched(server)))
    with pytest.raises(actions.NotAllowed):
        asked, args = pending(run).pk, {"model": "keyless"}
        actions.decide(asked, verdict="resume", args=args, by=cast_member("dora"), channel="web")


def test_a_fork_and_a_follow_up_name_the_model_that_they_will_call() -> None:
    with FakeModelServer([NO_CREDIT]) as server, FakeModelServer([SAYS_93] * 2) as other:
        spare(other)
        run = work(launched(server))
        decide(run, "resume", args={"model": "spare"})
        run = work(run)
        browser = signed_in(cast_member("carol", is_superuser=True))
        page = browser.get(reverse("fork", args=[run.pk]) + "?at=0").text
        assert "unchanged (tiny)" in page and '<option value="spare">' in page
        later = actions.continue_run(run, goal="And then?", by=None)
        assert later.model == "spare"
