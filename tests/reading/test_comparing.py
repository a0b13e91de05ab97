"""Two runs side by side: how steps are aligned, what differs, who may see it, and that length costs little."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.urls import reverse

from runs import actions
from runs.models import Run
from runs.reading.comparing import Comparison, compare
from runs.reading.comparing_words import (
    PLACES,
    PlaceView,
    as_json,
    place_views,
    relation_of,
    summary_of,
)
from tests.cast import alice, bob, signed_in, stranger
from tests.launching import ALLOW, TOOLS, launch, script, think
from tests.running import decide, transitions, work

pytestmark = pytest.mark.usefixtures("every_run_verifies")

FINAL = {"thought": "FINAL ANSWER: The moon makes tides.", "action": None}
OTHER_FINAL = {"thought": "FINAL ANSWER: The moon and the sun make tides.", "action": None}
SEARCHES = (think("search", q="tides"), think("search", q="moon"))


def done(*replies: dict[str, Any], **parts: Any) -> Run:
    """A run of these replies, driven to its end."""
    return work(launch(*replies, **{"rules": ALLOW} | parts))


def charlie() -> User:
    """He launches runs too."""
    return stranger("charlie", "add_run")


def told(left: Run, right: Run) -> list[str]:
    return [sentence.plain for sentence in summary_of(compare(left, right))]


def shown(found: Comparison) -> list[PlaceView]:
    return [place for place in place_views(found) if isinstance(place, PlaceView)]


# --- two runs -----------------------------------------------------------------------------------------------------


def test_the_same_twice_is_said_to_be_the_same() -> None:
    left, right = done(*SEARCHES, FINAL), done(*SEARCHES, FINAL)
    said = told(left, right)
    assert said[0] == "Step for step the same: all 7 steps."
    assert said[1] == "Both give the same answer."
    assert compare(left, right).apart == []


def test_where_two_runs_part_is_said_first() -> None:
    left = done(*SEARCHES, FINAL)
    usage = {"input_tokens": 150, "output_tokens": 20, "cost_usd": 0.002}
    replies = (SEARCHES[0], think("send", to="ann"), OTHER_FINAL)
    right = done(played=script(*replies, usage=usage))
    said = told(left, right)
    assert said[0].startswith("The same for 2 steps, then they differ")
    assert said[1] == f'Then #{left.pk} went for search(q="moon"), and #{right.pk} send(to="ann").'
    assert said[2] == "The answers differ."
    assert said[-1].startswith(f"#{right.pk} cost $0.003 more")
    assert "used 150 tokens more" in said[-1]
    found = compare(left, right)
    assert found.begins_alike == 2
    names = [[value.name for value in place.values] for place in shown(found)]
    assert names[0] == ["thought", "tool", "arguments"]
    assert names[1] == ["tool", "arguments", "result"]
    assert {total.name: total.difference for total in found.totals}["input_tokens"] == 150


def test_a_call_that_was_not_let_is_the_same_call_as_the_one_that_was() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    left, right = (work(actions.fork(run, at=transitions(run, "pass")[0], by=None)) for _ in range(2))
    decide(left, "reject", message="Do not “send” this one")
    decide(right, "approve")
    left, right = work(left), work(right)
    places = shown(compare(left, right))
    assert [[value.name for value in place.values] for place in places[:2]] == [
        ["decided.verdict", "decided"],
        ["error", "ran", "result"],
    ]
    assert told(left, right)[1] == (
        f"Then #{left.pk}: rejected by the operator by a command — “Do not ‘send’ this one”; "
        f"#{right.pk}: approved by the operator by a command."
    )


def test_a_call_that_a_rule_refuses_is_the_same_call_as_the_one_that_it_lets() -> None:
    refused = [{"do": "deny", "when": {"tool": "search"}}]
    left, right = done(SEARCHES[0], FINAL, rules=refused), done(SEARCHES[0], FINAL)
    (place, *_) = shown(compare(left, right))
    assert [value.name for value in place.values] == ["error", "ran", "result"]
    said = told(left, right)[1]
    assert said.startswith('Then search(q="tides") gave error (not run) “')
    assert "result “" in said and said.endswith(f" in #{right.pk}.")


def test_the_calls_that_two_questions_are_about_are_compared() -> None:
    left, right = (work(launch(think("send", to=whom), FINAL)) for whom in ("ann", "bob"))
    for run in (left, right):
        decide(run, "approve")
        work(run)
    names = [[value.name for value in place.values] for place in shown(compare(left, right))]
    assert names[:2] == [["to"], ["question.args.to"]]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"verdict": "approve"}, "approved by the launch settings"),
        ({"verdict": "reject", "message": "no"}, "rejected by the launch settings — “no”"),
    ],
)
def test_who_answered_beforehand_is_said_once(answer: dict[str, Any], said: str) -> None:
    run, other = (launch(think("send", to="bob"), FINAL, answers=given) for given in ([answer], []))
    run, other = work(run), work(other)
    decide(other, "edit", args={"to": "eve"}, message="“So” it " + "is " * 60)
    sentence = told(run, work(other))[1]
    assert sentence.startswith(f"Then #{run.pk}: {said}; #{other.pk}: approved with changes by ")
    assert sentence.count("“") == sentence.count("”")
    card = signed_in(bob()).get(reverse("interrupt", args=[run.interrupts.get().pk])).content.decode()
    assert "by the launch settings, <time" in card


def test_a_rollback_that_only_one_run_has_reads_as_a_sentence() -> None:
    left, right = (work(launch(*SEARCHES, think("send", to="bob"), FINAL)) for _ in range(2))
    actions.rewind(right, to=transitions(right, "continue")[0], by=None)
    (said,) = [sentence for sentence in told(left, work(right)) if "rolled back" in sentence]
    assert "has rolled" not in said and ": rolled back from step " in said


def test_a_quotation_within_a_quotation_has_marks_of_its_own() -> None:
    said_no = {"thought": "FINAL ANSWER: He said “no”.", "action": None}
    assert "thought “FINAL ANSWER: He said ‘no’.”" in " ".join(told(done(said_no), done(FINAL)))


def test_steps_of_one_run_only_stand_alone() -> None:
    left = done(SEARCHES[0], FINAL)
    right = done(*SEARCHES, FINAL)
    (place,) = shown(compare(left, right))
    assert (place.kind, place.sign.text) == ("right", f"only in #{right.pk}")
    assert [step.said.title for step in place.right] == ["Thought", "Result"]
    assert told(left, right)[1] == f'Then only in #{right.pk}: search(q="moon").'
    assert told(right, left)[1] == f'Then only in #{right.pk}: search(q="moon").'


def test_the_same_call_with_another_result_is_said_so() -> None:
    tools = {"search": {**TOOLS["search"], "results": [{"output": "nothing found"}]}}
    left, right = done(SEARCHES[0], FINAL), done(played=script(SEARCHES[0], FINAL, tools=tools))
    assert told(left, right)[1] == (
        f'Then search(q="tides") gave result “three results” in #{left.pk}, '
        f"and result “nothing found” in #{right.pk}."
    )


def test_machines_that_differ_are_compared_by_totals_and_answers_only() -> None:
    left = done(FINAL)
    plan = {
        "replies": {"decision": [{"action": "complete", "completion_summary": "At noon."}], "planner": []}
    }
    right = work(launch(machine="checklist", goal="Tides", played=plan, plan=[]))
    found = compare(left, right)
    assert found.places == ()
    assert f"#{left.pk} is a run of ruled, #{right.pk} of checklist" in told(left, right)[0]
    page = signed_in(bob()).get(reverse("compare", args=[left.pk, right.pk])).content.decode()
    assert "Step by step" not in page
    assert "Totals" in page
    assert "At noon." in page


def test_a_run_that_has_not_ended_is_compared_as_it_stands() -> None:
    left, right = done(*SEARCHES, FINAL), work(launch(SEARCHES[0], think("send", to="ann"), FINAL))
    assert right.status == "waiting"
    assert (
        f"#{left.pk} succeeded: the agent says the goal is reached; #{right.pk} waits for a person."
        in told(left, right)
    )
    page = signed_in(bob()).get(reverse("compare", args=[left.pk, right.pk])).content.decode()
    assert f"#{right.pk} has not ended; compared up to step {right.head}." in page


def test_a_fork_is_compared_with_its_source_from_where_it_was_taken() -> None:
    source = done(*SEARCHES, FINAL)
    at = transitions(source, "continue")[0]
    fork = actions.fork(
        source, at=at, by=None, script=script(SEARCHES[0], think("search", q="sun"), OTHER_FINAL)
    )
    work(fork)
    found = compare(source, fork)
    assert found.begins_alike == 2
    assert relation_of(source, fork) == f"#{fork.pk} is a fork of #{source.pk}, taken at step {at}."
    assert [place.kind for place in shown(found)] == ["differs"] * len(shown(found))
    names = [value.name for value in shown(found)[0].values]
    assert names == ["q"]


def test_an_edited_state_is_told_with_what_was_launched_differently() -> None:
    source = done(*SEARCHES, FINAL)
    at = transitions(source, "continue")[0]
    fork = actions.fork(source, at=at, by=None, state={"rejections": 2})
    found = compare(source, fork)
    assert {one.name: (one.left, one.right) for one in found.terms} == {"state.rejections": (0, 2)}


def test_an_edited_state_is_told_with_the_one_that_a_run_begins_with() -> None:
    source = done(*SEARCHES, FINAL)
    fork = actions.fork(source, at=0, by=None, state={"rejections": 2})
    for left, right, values in ((source, fork, (0, 2)), (fork, source, (2, 0))):
        (found,) = compare(left, right).terms
        assert (found.name, found.left, found.right) == ("state.rejections", *values)


def test_an_argument_with_the_name_of_a_result_is_told_on_the_page_and_in_the_json() -> None:
    save = {"params": {"result": "string"}, "effects": "write", "results": [{"output": "ok"}]}
    left, right = (
        done(played=script(think("save", result=text), FINAL, tools={"save": save})) for text in ("A", "B")
    )
    found = compare(left, right)
    thought, result = shown(found)
    assert [value.name for value in thought.values] == ["result"]
    assert [value.name for value in result.values] == ["arguments.result"]
    assert "arguments.result differs" in result.sign.text
    told = [place["differences"] for place in as_json(found)["places"] if place["kind"] == "differs"]
    assert told[1] == [{"name": "arguments.result", "left": "A", "right": "B"}]


# --- pages --------------------------------------------------------------------------------------------------------


def test_both_runs_must_be_the_readers_to_see() -> None:
    owner, stranger = alice(), charlie()
    mine, theirs = done(FINAL, owner=owner), done(FINAL, owner=stranger)
    for left, right in ((mine, theirs), (theirs, mine)):
        address = reverse("compare", args=[left.pk, right.pk])
        assert signed_in(owner).get(address).status_code == 404
        assert signed_in(stranger).get(address).status_code == 404
    reviewer = bob()
    assert signed_in(reviewer).get(reverse("compare", args=[mine.pk, theirs.pk])).status_code == 200
    chooser = reverse("compare-choose", args=[mine.pk])
    assert signed_in(stranger).get(chooser).status_code == 404
    client = signed_in(owner)
    assert f"#{theirs.pk}" not in client.get(chooser).content.decode()
    answer = client.get(chooser, {"other": str(theirs.pk)})
    assert answer.status_code == 404
    assert f"Run {theirs.pk} was not found, or you may not see it." in answer.content.decode()


def test_a_copy_opens_against_its_source_and_its_chooser_names_that_first() -> None:
    owner = alice()
    source, fork, other = (done(FINAL, owner=owner) for _ in range(3))
    Run.objects.filter(pk=fork.pk).update(copied_from=source, origin="fork", copied_upto=2)
    client = signed_in(owner)
    chooser = reverse("compare-choose", args=[fork.pk])
    assert client.get(chooser)["Location"] == reverse("compare", args=[source.pk, fork.pk])
    page = client.get(chooser, {"choose": ""}).content.decode()
    assert page.index("Its source") < page.index(reverse("compare", args=[source.pk, fork.pk]))
    assert page.index("Its source") < page.index(f"#{other.pk}")
    assert "Its copies" in client.get(reverse("compare-choose", args=[source.pk])).content.decode()
    link = f'href="{chooser}"'
    assert link in client.get(reverse("run", args=[fork.pk])).content.decode()


def test_the_chooser_takes_a_number_and_keeps_one_that_is_none() -> None:
    owner = alice()
    first, second = done(FINAL, owner=owner), done(FINAL, owner=owner)
    client = signed_in(owner)
    chooser = reverse("compare-choose", args=[second.pk])
    for text in (str(first.pk), f" #{first.pk} "):
        assert client.get(chooser, {"other": text})["Location"] == reverse(
            "compare", args=[first.pk, second.pk]
        )
    for text in ("<b>12", "-3", "9" * 30, "²", str(second.pk)):
        answer = client.get(chooser, {"other": text})
        assert answer.status_code == 404
        assert "<b>12" not in answer.content.decode()
    assert (
        "Choose a run other than this one" in client.get(chooser, {"other": str(second.pk)}).content.decode()
    )
    itself = client.get(reverse("compare", args=[first.pk, first.pk]), follow=True)
    assert itself.redirect_chain == [(f"{reverse('compare-choose', args=[first.pk])}?other={first.pk}", 302)]
    assert "Choose a run other than this one." in itself.content.decode()


def test_what_models_wrote_is_escaped_and_made_visible() -> None:
    left = done(think("search", q="tides"), FINAL)
    bad = "<script>alert(1)</script> \u202egpj.exe\u202c #1"
    final = {"thought": f"FINAL ANSWER: {bad}", "action": None}
    played = script(think("search", **{"q": bad, "<img src=x>\u200b": 1}), final)
    right = work(launch(goal=f"goal {bad}", played=played, rules=ALLOW))
    page = signed_in(bob()).get(reverse("compare", args=[left.pk, right.pk])).content.decode()
    assert "<script>alert" not in page
    assert "<img src=x>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\u202egpj.exe\\u202c" in page
    assert not {"\u202e", "\u202c", "\u200b"} & set(page)


def test_long_comparisons_are_shown_a_window_at_a_time() -> None:
    count = PLACES + 5
    left = done(*(think("search", q=f"a{number}") for number in range(count // 2 + 1)), FINAL, max_steps=100)
    right = done(*(think("search", q=f"b{number}") for number in range(count // 2 + 1)), FINAL, max_steps=100)
    differing = len(compare(left, right).apart)
    assert differing > PLACES
    client = signed_in(bob())
    address = reverse("compare", args=[left.pk, right.pk])
    first = client.get(address).content.decode()
    assert f"?from={PLACES}#places" in first
    second = client.get(address, {"from": PLACES}).content.decode()
    assert "?from=0#places" in second
    for number in range(1, differing + 1):
        place = f'id="difference-{number}"'
        assert (place in first) + (place in second) == 1
    assert client.get(address, {"from": "x"}).status_code == 200
    assert 'id="difference-' not in client.get(address, {"from": "99999"}).content.decode()


# --- the command --------------------------------------------------------------------------------------------------


def printed(*arguments: str) -> str:
    out = StringIO()
    call_command("compare", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_says_what_the_page_says() -> None:
    left, right = done(*SEARCHES, FINAL), done(SEARCHES[0], think("search", q="sun"), OTHER_FINAL)
    said = printed(str(left.pk), str(right.pk))
    for sentence in told(left, right):
        assert sentence in said
    assert "q < moon" in said
    assert "q > sun" in said
    assert "2 steps the same" in said


def test_the_json_has_every_place_and_values_as_they_are() -> None:
    left, right = done(*SEARCHES, FINAL), done(SEARCHES[0], think("search", q="sun", n=3), OTHER_FINAL)
    data = json.loads(printed(str(left.pk), str(right.pk), "--json"))
    assert data == json.loads(json.dumps(as_json(compare(left, right))))
    assert (data["format"], data["same_machine"], data["same_answer"], data["parted_after"]) == (
        1,
        True,
        False,
        2,
    )
    assert [place["kind"] for place in data["places"]] == ["same", *["differs"] * 4, "same"]
    call = data["places"][2]
    assert {"name": "n", "right": 3} in call["differences"]
    assert {"name": "q", "left": "moon", "right": "sun"} in call["differences"]
    assert {"name": "cost_usd", "left": 0.003, "right": 0.003, "difference": 0} in [
        {
            **total,
            "left": round(total["left"], 6),
            "right": round(total["right"], 6),
            "difference": round(total["difference"], 6),
        }
        for total in data["totals"]
    ]


@pytest.mark.parametrize("other", ["999", "x", "same"])
def test_the_command_refuses_what_is_not_two_runs(other: str) -> None:
    run = done(FINAL)
    with pytest.raises(CommandError) as refused:
        call_command("compare", str(run.pk), str(run.pk) if other == "same" else other)
    assert refused.value.returncode == 2


def test_a_copy_alone_is_compared_with_its_source() -> None:
    source = done(*SEARCHES, FINAL)
    copy = work(actions.rerun(source, at=transitions(source, "continue")[0], by=None))
    assert printed(str(copy.pk)) == printed(str(source.pk), str(copy.pk))
    with pytest.raises(CommandError, match=f"Run {source.pk} was not copied from a run") as refused:
        call_command("compare", str(source.pk))
    assert refused.value.returncode == 2
