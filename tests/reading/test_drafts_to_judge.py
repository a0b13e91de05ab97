"""A draft that broke rules until a person was asked: the card shows what approving lets run, and lets run only that."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from runs import actions, driver
from runs.models import Interrupt, Run
from runs.reading.cards import card_of
from runs.reading.exporting import export
from runs.store import verifying
from tests.cast import alice, bob, signed_in
from tests.launching import FINAL, TOOLS, launched, script
from tests.running import check_everything, decide, pending, transitions, unseal, work

pytestmark = [pytest.mark.django_db]

GUESS = {"thought": "It is probably 42.", "action": None}
MOVE = {
    "params": {"target": "string", "from": "string", "note": "string"},
    "required": ["target", "from"],
    "effects": "write",
    "results": [{"output": "moved"}],
}


def guessing(tool: str, **args: Any) -> dict[str, Any]:
    """A draft that breaks a rule, with a call beside it."""
    return {"thought": "It is probably there.", "action": {"tool": tool, "args": args}}


LAST = guessing("move", note="at once", target="/srv/b", **{"from": "/srv/a"})


def rejected(*last: Any, **settings: Any) -> Run:
    """A run whose fourth draft, the first of `last`, waits for a person."""
    return launched(alice(), GUESS, GUESS, GUESS, *last, FINAL, tools=TOOLS | {"move": MOVE}, **settings)


def page_of(run: Run) -> str:
    return signed_in(bob()).get(reverse("interrupt", args=[pending(run).pk])).text


def test_the_card_shows_the_call_that_an_approval_lets_run_whole() -> None:
    long = "x" * 3000 + " the end"
    run = rejected(guessing("move", note=long, target="/srv/b", **{"from": "/srv/a"}))
    asked, page = pending(run), page_of(run)
    assert asked.title == "Draft rejected 4 times. Accept it anyway?"
    assert (asked.tool, asked.effects, asked.args["note"]) == ("move", "write", long)
    assert "Next call" in page
    assert '<code dir="ltr">move</code>' in page
    assert long in page
    assert "writes" in page
    assert "forbid guessing" in page
    assert asked.fingerprint[:4] in page


def test_its_arguments_stand_in_the_schemas_order() -> None:
    card = card_of(pending(rejected(LAST)), None)
    assert [(field.name, field.value) for field in card.fields] == [
        ("target", "/srv/b"),
        ("from", "/srv/a"),
        ("note", "at once"),
    ]


def test_a_final_answer_that_would_be_accepted_is_shown() -> None:
    page = page_of(rejected({"thought": "I guess FINAL ANSWER: 42 it is", "action": None}))
    assert "none: the thought is accepted" in page
    assert "I guess FINAL ANSWER: 42 it is" in page


@pytest.mark.parametrize(
    ("draft", "fault"),
    [
        (guessing("mvoe", target="a"), "There is no tool mvoe."),
        (guessing("move", target="/srv/b"), "move needs the argument from."),
        (guessing("t" * 400, target="a"), f"There is no tool {'t' * 400}."),
    ],
)
def test_a_call_that_can_not_run_is_said_to_be_none(draft: dict[str, Any], fault: str) -> None:
    run = rejected(draft)
    assert pending(run).tool == ""
    assert f"The call can’t run: {fault}" in page_of(run)


def test_an_approved_draft_still_passes_the_gates() -> None:
    run = rejected(LAST)
    decide(run, "approve")
    assert work(run).status == "waiting"
    asked = pending(run)
    assert (asked.kind, asked.tool, asked.args) == ("tool_call", "move", LAST["action"]["args"])
    decide(run, "approve")
    assert work(run).status == "succeeded"
    check_everything()


@pytest.mark.parametrize("do", ["deny", "allow"])
def test_rules_on_calls_hold_for_it_too(do: str) -> None:
    run = rejected(LAST, rules=[{"when": {"tool": "move"}, "do": do}])
    decide(run, "approve")
    assert work(run).status == "succeeded"
    calls = [found["request"] for found in export(run)["exchanges"] if found["kind"] == "tool_call"]
    assert [call["args"] for call in calls] == ([LAST["action"]["args"]] if do == "allow" else [])


def test_the_approval_is_for_the_draft_that_was_seen() -> None:
    run = rejected(LAST)
    with pytest.raises(actions.Conflict, match="call has changed since you saw it"):
        decide(run, "approve", fingerprint="0" * 16)
    assert pending(run).status == Interrupt.Status.PENDING


@pytest.mark.parametrize(("target", "kind"), [("/srv/b", "tool_call"), ("/etc", "human_approval")])
def test_an_answer_that_is_kept_is_for_the_same_draft_only(target: str, kind: str) -> None:
    run = rejected(LAST)
    decide(run, "approve")
    other = guessing("move", **LAST["action"]["args"] | {"target": target})
    replies = script(GUESS, GUESS, GUESS, other, FINAL, tools=TOOLS | {"move": MOVE})
    at = transitions(work(run), "retry")[-1]
    forked = work(actions.fork(run, at=at, by=None, script=replies, answers="keep"))
    asked = pending(forked)
    assert (asked.kind, asked.args["target"]) == (kind, target)


def test_a_question_of_before_the_draft_was_kept_verifies_and_is_replayed() -> None:
    run = rejected(LAST)
    asked = pending(run)
    exchange = run.exchanges.get(seq=asked.seq)
    old = '"title":"A draft keeps breaking the rules. Let it act?"'
    text = exchange.request_json.replace('"title":"Draft rejected 4 times. Accept it anyway?"', old)
    start = text.index(',"draft":')
    exchange.request_json = text[:start] + "}"
    exchange.save()
    Interrupt.objects.filter(pk=asked.pk).update(
        title="A draft keeps breaking the rules. Let it act?", tool="", args_json="{}", fingerprint=""
    )
    unseal(run)
    run.refresh_from_db()
    assert verifying.verify(run, driver.tool_specs(run)) is None
    assert driver.made_again(driver.record_of(run)).difference is None
    assert "A draft keeps breaking the rules" in page_of(run)
