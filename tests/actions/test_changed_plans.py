"""Before the first step the plan can be changed: what a person gives in its place is checked, followed and told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs import actions, driver
from runs.models import Run
from runs.reading import panels
from runs.reading.exporting import export
from runs.reading.rows import row_views
from runs.store import errors, verifying
from tests.cast import bob, signed_in
from tests.launching import play
from tests.running import decide, pending, work

pytestmark = [pytest.mark.django_db]

ASKS = [{"when": {"first_step": True}, "do": "ask"}]
PLAN = [{"tool": "search", "args": {"q": "tides"}}, {"tool": "final_answer", "args": {"answer": "three"}}]
OTHER = [
    {"tool": "search", "args": {"q": "moons"}, "thought": "the moon first"},
    {"tool": "final_answer", "args": {"answer": "one"}, "thought": ""},
]


def asking(**settings: Any) -> Run:
    """A run of `planned` that asks before its first step, and then follows its plan as it stands."""
    return play("planned", **{"rules": ASKS, "follow": "plan", "plan": PLAN} | settings)


def calls_of(run: Run) -> list[dict[str, Any]]:
    """The arguments of the tools that were called."""
    asked = run.exchanges.filter(kind="tool_call").order_by("seq").values_list("request_json", flat=True)
    return [json.loads(request)["args"] for request in asked]


def sent(client: Client, run: Run, plan: str, verdict: str = "approve") -> Any:
    """The card's form, sent with this plan."""
    question = pending(run)
    form = {
        "revision": question.revision,
        "fingerprint": question.fingerprint,
        "arg.plan": plan,
        "sure": "yes",
        "verdict": verdict,
    }
    return client.post(reverse("decision", args=[question.pk]), form)


def test_a_changed_plan_is_followed_and_the_timeline_says_who_changed_it() -> None:
    run = asking()
    assert "edit" in pending(run).verdicts
    decide(run, "edit", args={"plan": OTHER})
    assert work(run).answer == "one"
    assert calls_of(run) == [{"q": "moons"}, {"answer": "one"}]
    said = [view.line for view in row_views(run)]
    assert len([line for line in said if "plan changed by a person" in line.tag]) == 1
    assert any("the operator" in line.plain for line in said if "Approved with changes" in line.plain)
    decided = export(run)["interrupts"][0]["decisions"][0]
    assert (decided["verdict"], decided["args"]) == ("edit", {"plan": OTHER})
    assert verifying.verify(run, driver.tool_specs(run)) is None
    assert "changed by a person" in panels.panels_of(run, bob())["machine"]


def test_the_card_shows_the_plan_and_takes_another_one() -> None:
    run, client = asking(), signed_in(bob())
    card = client.get(reverse("interrupt", args=[pending(run).pk])).text
    assert 'name="arg.plan"' in card
    assert "tides" in card
    assert "shown in the log; the run ends" in card
    assert sent(client, run, json.dumps(OTHER)).status_code == 302
    assert work(run).answer == "one"
    assert run.interrupts.get().decision.verdict == "edit"


def test_a_plan_that_is_left_as_it_is_is_approved() -> None:
    run, client = asking(), signed_in(bob())
    shown = json.dumps(pending(run).args["plan"], ensure_ascii=False, indent=2)
    assert sent(client, run, shown).status_code == 302
    assert run.interrupts.get().decision.verdict == "approve"
    assert work(run).answer == "three"


WRONG = [
    ("", "plan"),
    ("{", "JSON"),
    ('{"tool": "search"}', "list"),
    ('[{"args": {}}]', "row 1, tool"),
    ('[{"tool": "search"}, {"tool": "search", "why": "x"}]', "row 2, why"),
    (json.dumps([{"tool": "search"}] * 201), "200 at most"),
]


@pytest.mark.parametrize(("plan", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_plan_that_can_not_be_taken_comes_back_with_what_is_wrong(plan: str, said: str) -> None:
    run = asking()
    answer = sent(signed_in(bob()), run, plan)
    assert answer.status_code == 422
    assert 'aria-invalid="true"' in answer.text
    assert said in answer.text
    assert pending(run).status == "pending"


def test_a_changed_plan_ends_with_the_answer_as_the_planners_does() -> None:
    run = play(
        "planned", {"tool": "final_answer", "args": {"answer": "two"}}, rules=ASKS, follow="plan", plan=PLAN
    )
    decide(run, "edit", args={"plan": OTHER[:1]})
    assert [row["tool"] for row in export(work(run))["steps"][-1]["state"]["plan"]] == [
        "search",
        "final_answer",
    ]
    assert (run.answer, export(run)["steps"][-1]["state"]["max_steps"]) == ("two", 4)


def test_a_plan_by_command_names_what_is_wrong() -> None:
    run = asking()
    with pytest.raises(errors.BadDecision, match="needs the argument plan"):
        decide(run, "edit", args={})
    with pytest.raises(errors.BadDecision, match="row 1, tool"):
        decide(run, "edit", args={"plan": [{"args": {}}]})
    assert pending(run).status == "pending"


def test_a_changed_plan_is_replayed_and_kept_and_prepared() -> None:
    run = asking()
    decide(run, "edit", args={"plan": OTHER})
    work(run)
    made, difference = actions.replay(run, by=None)
    assert (difference, made.answer) == (None, "one")
    kept = work(actions.fork(run, at=1, by=None, answers="keep"))
    assert kept.answer == "one"
    answer = {"verdict": "edit", "args": {"plan": OTHER[1:]}}
    forked = work(actions.fork(run, at=1, by=None, decision=answer))
    assert (forked.answer, calls_of(forked)) == ("one", [{"answer": "one"}])
    prepared = asking(answers=[answer])
    assert (prepared.answer, calls_of(prepared)) == ("one", [{"answer": "one"}])


def test_a_machine_that_has_no_plan_by_then_offers_no_change() -> None:
    for machine in ("contract", "checklist"):
        run = play(machine, rules=ASKS)
        assert pending(run).verdicts == ["approve", "reject", "abort", "rollback"]
        with pytest.raises(errors.BadDecision, match="edit is not an answer"):
            decide(run, "edit", args={"plan": OTHER})
