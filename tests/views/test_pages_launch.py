"""The launch form: what it offers, what it makes of what is typed, and where it says what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs import forms
from runs.models import ModelProfile, Run
from tests.cast import alice, bob, signed_in
from tests.launching import ALL_WELL, launched
from tests.pages import SCRIPT, post_launch, posted_settings
from tests.running import pending, work

pytestmark = [pytest.mark.django_db]


def test_a_run_is_launched_and_belongs_to_who_launched_it() -> None:
    owner = alice()
    answer = post_launch(signed_in(owner), goal="  Say hello\r\nto everybody ")
    run = Run.objects.get()
    assert answer["Location"] == f"/runs/{run.pk}/"
    assert run.owner == owner
    assert run.goal == "Say hello\nto everybody"
    assert work(run).status == "succeeded"


def test_what_is_left_empty_stays_a_default() -> None:
    assert posted_settings({}) == {"tools": []}


def test_every_field_becomes_a_setting() -> None:
    found = posted_settings(
        {
            "tools": ["calculator", "write_file"],
            "cost_usd": "1.5",
            "tokens": "4000",
            "active_seconds": "60",
            "on_limit": "stop",
            "asks": "all",
            "interrupt_every": "3",
            "rules": '[{"when": {"tool": "write_*"}, "do": "deny"}]',
            "max_steps": "7",
            "on_retries": "stop",
            "max_rejections": "2",
            "cache": "",
            "ruleset": '[{"type": "forbid_guessing"}]',
            "more": '{"context": {"limit_tokens": 4096}}',
        }
    )
    assert found == {
        "tools": ["calculator", "write_file"],
        "limits": {"cost_usd": 1.5, "tokens": 4000, "active_seconds": 60.0},
        "on_limit": "stop",
        "rules": [{"when": {"tool": "write_*"}, "do": "deny"}, forms.launching.ASK_RULES["all"][0]],
        "interrupt_every": 3,
        "max_steps": 7,
        "on_retries": "stop",
        "max_rejections": 2,
        "cache": False,
        "ruleset": [{"type": "forbid_guessing"}],
        "context": {"limit_tokens": 4096},
    }


@pytest.mark.parametrize(
    ("fields", "place", "sentence"),
    [
        ({"goal": " "}, "goal", "Enter a goal."),
        ({"script": ""}, "script", "Paste a script"),
        ({"script": '{"replies": {"decision": [5]}}'}, "script", "The script is not right"),
        ({"script": "{nonsense"}, "script", "no JSON"),
        ({"model": ""}, "model", "Choose a model"),
        ({"model": "gone"}, "model", "There is no model &#x27;gone&#x27;"),
        ({"cost_usd": "much"}, "cost_usd", "Enter an amount in dollars, such as 0.5."),
        ({"cost_usd": "-1"}, "cost_usd", "Enter an amount in dollars, such as 0.5."),
        ({"cost_usd": "nan"}, "cost_usd", "Enter an amount in dollars, such as 0.5."),
        ({"tokens": "-5"}, "tokens", "Enter a whole number of at least 0."),
        ({"tokens": "1.5"}, "tokens", "Enter a whole number of at least 0."),
        ({"active_seconds": "soon"}, "active_seconds", "Enter a number of seconds, such as 90."),
        ({"interrupt_every": "0"}, "interrupt_every", "Enter a whole number of at least 1."),
        ({"goal": "a" * 20_001}, "goal", "A goal has at most 20000 characters; this one has 20001."),
        ({"asks": "whom"}, "asks", "“whom” is not an option"),
        ({"on_limit": "laugh"}, "on_limit", "“laugh” is not an option"),
        ({"on_retries": "cry"}, "on_retries", "“cry” is not an option"),
        ({"machine": ""}, "machine", "Choose a machine."),
        ({"tools": ["teleport"]}, "tools", "There is no tool"),
        ({"rules": "[{"}, "rules", "Invalid JSON"),
        ({"rules": '[{"when": {"tool": 5}, "do": "ask"}]'}, "rules", "rules.0.when.tool"),
        ({"rules": '[{"when": {"tool": "x", "every_n_steps": 2}, "do": "ask"}]'}, "rules", "can never hold"),
        ({"ruleset": '[{"type": "be_nice"}]'}, "ruleset", "ruleset.0.type"),
        ({"max_steps": "0"}, "max_steps", "Enter a whole number of at least 1."),
        ({"more": '{"colour": "blue"}'}, "more", "colour: ruled has no setting of this name."),
        ({"more": '{"tools": []}'}, "more", "use the field above"),
        ({"more": "[1]"}, "more", "This must be one JSON object"),
        ({"more": '{"n": ' + "9" * 5000 + "}"}, "more", "This JSON has a number that is too long."),
        (
            {"machine": "checklist", "steps": "a step\n" * 201},
            "steps",
            "the plan has 201 steps; it may have 200",
        ),
        ({"machine": "checklist", "steps": "a" * 2001}, "steps", "step 1 of the plan has 2,001 characters"),
        (
            {"machine": "planned", "rows_json": json.dumps([{"tool": "calculator"}] * 201)},
            "rows_json",
            "the plan has 201 steps",
        ),
        (
            {"machine": "planned", "rows_json": json.dumps([{"tool": "a", "args": {"text": "b" * 2000}}])},
            "rows_json",
            "step 1 of the plan has",
        ),
        ({"machine": "perpetual"}, "machine", "perpetual"),
        ({"machine": "checklist", "max_steps": "3"}, "max_steps", "checklist does not have this setting"),
    ],
)
def test_what_is_wrong_stands_beside_its_field_and_the_rest_is_kept(
    fields: dict[str, Any], place: str, sentence: str
) -> None:
    answer = post_launch(signed_in(alice()), **({"goal": "Keep <this>"} | fields))
    assert answer.status_code == 422
    form = answer.context["form"]
    assert list(form.errors) == [place]
    assert sentence in answer.text
    if "goal" not in fields:
        assert "Keep &lt;this&gt;" in answer.text
    for name, text in fields.items():
        if isinstance(text, str) and name not in ("goal", "machine", "model"):
            assert form[name].value() == text
    assert not Run.objects.exists()


UNREADABLE = {
    "goal": " ",
    "script": '{"replies":{"decision":[{]}}',
    "cost_usd": "abc",
    "tokens": "-5",
    "interrupt_every": "0",
    "rules": "[{",
    "ruleset": '[{"type": "be_nice"}]',
    "more": '{"context":{"limit_tokens":"x"},"nope":1,"tools":[]}',
}


def test_all_that_is_wrong_is_said_in_one_round_and_what_was_typed_is_kept() -> None:
    answer = post_launch(signed_in(alice()), **UNREADABLE)
    assert answer.status_code == 422
    form = answer.context["form"]
    said = {name: list(errors) for name, errors in form.errors.items()}
    assert list(map(len, said.values())) == [3 if name == "more" else 1 for name in said]
    assert sorted(said) == sorted(UNREADABLE)
    assert "no JSON" in said["script"][0]
    assert "Invalid JSON" in said["rules"][0]
    assert "ruleset.0.type" in said["ruleset"][0]
    assert said["cost_usd"] == ["Enter an amount in dollars, such as 0.5."]
    assert said["tokens"] == ["Enter a whole number of at least 0."]
    assert said["interrupt_every"] == ["Enter a whole number of at least 1."]
    assert said["more"] == [
        "tools: use the field above.",
        "context.limit_tokens: This must be a whole number, not 'x'.",
        "nope: ruled has no setting of this name. Known: model, tools, hosts, limits, on_limit, on_clarify, "
        "interrupt_every, rules, context, cache_reads, subgraphs, answers, ruleset, max_steps, on_retries, "
        "max_rejections, cache.",
    ]
    assert {name: form[name].value() for name in UNREADABLE} == UNREADABLE
    assert not Run.objects.exists()


def test_a_number_that_is_too_large_is_named_as_it_was_typed() -> None:
    huge = "9" * 23
    limits = dict.fromkeys(("cost_usd", "tokens", "active_seconds"), huge)
    form = post_launch(signed_in(alice()), **limits, max_steps=huge).context["form"]
    said = {name: list(errors) for name, errors in form.errors.items()}
    assert said == {
        **{name: [f"This must be at most 1,000,000,000,000, not {huge}."] for name in limits},
        "max_steps": [f"This must be at most 1,000,000, not {huge}."],
    }


def test_a_setting_out_of_bounds_is_told_in_plain_words() -> None:
    more = json.dumps({"context": {"limit_tokens": 3, "compact_at": 1.5}})
    form = post_launch(signed_in(alice()), more=more).context["form"]
    assert form.errors["more"] == [
        "context.limit_tokens: This must be at least 256, not 3.",
        "context.compact_at: This must be at most 1, not 1.5.",
    ]


@pytest.mark.parametrize(
    ("fields", "places"),
    [
        ({"script": "", "cost_usd": "abc"}, ["cost_usd", "script"]),
        ({"script": "\0", "cost_usd": "abc"}, ["cost_usd", "script"]),
        ({"model": "\0"}, ["model"]),
        ({"model": "", "cost_usd": "abc"}, ["cost_usd", "model"]),
        ({"machine": "perpetual", "script": "{", "tokens": "x"}, ["machine", "script", "tokens"]),
        ({"model": "gone", "goal": ""}, ["goal", "model"]),
        ({"tools": ["teleport"], "max_steps": "some"}, ["max_steps", "tools"]),
    ],
)
def test_a_field_that_can_not_be_read_is_not_reported_twice(
    fields: dict[str, Any], places: list[str]
) -> None:
    form = post_launch(signed_in(alice()), **fields).context["form"]
    assert sorted(form.errors) == places
    assert [len(errors) for errors in form.errors.values()] == [1] * len(places)


def test_every_tool_that_is_not_there_is_named() -> None:
    form = post_launch(signed_in(alice()), tools=["teleport", "fly"]).context["form"]
    assert [error.split(":")[0] for error in form.errors["tools"]] == ["tools.0", "tools.1"]


def test_a_model_of_the_site_is_offered_and_used() -> None:
    ModelProfile.objects.create(name="played", kind="script", script_json=SCRIPT)
    ModelProfile.objects.create(name="switched-off", kind="script", script_json=SCRIPT, enabled=False)
    client = signed_in(alice())
    page = client.get("/runs/new/").text
    assert "played" in page
    assert "switched-off" not in page
    post_launch(client, model="played", script="left over")
    run = Run.objects.get()
    assert (run.model, run.settings["model"]) == ("played", "played")
    assert work(run).status == "succeeded"


def test_tools_stand_with_what_they_do_to_the_world() -> None:
    page = signed_in(alice()).get("/runs/new/").text
    tool = page[page.index('value="write_file"') :]
    assert "writes" in tool[: tool.index("</li>")]
    assert "no side effects" in page
    assert 'data-graph="ruled"' in page


def test_the_demonstration_can_be_launched_as_it_is_filled_in() -> None:
    owner = alice()
    client = signed_in(owner)
    form = client.get("/runs/new/?demonstration").context["form"]
    fields = {name: form[name].value() for name in form.fields if form[name].value() not in (None, "", False)}
    quick = json.loads(fields["script"])
    quick["pace"] = {}
    answer = client.post("/runs/new/", fields | {"script": json.dumps(quick), "cache": "yes"})
    assert answer.status_code == 302
    run = work(Run.objects.get())
    question = pending(run)
    assert (question.tool, question.args["name"]) == ("write_file", "apples.txt")
    signed_in(bob()).post(f"/interrupts/{question.pk}/decision/", _as_it_stands(question))
    assert work(run).answer == "There are 93 apples; the sum is in apples.txt."


def _as_it_stands(question: Any) -> dict[str, str]:
    args = {f"arg.{name}": value for name, value in question.args.items()}
    return {"verdict": "approve", "revision": "1", "fingerprint": question.fingerprint, **args}


@pytest.mark.parametrize("asks", ["writes", "all", "nothing"])
def test_launching_one_like_this_comes_to_the_same_settings(asks: str) -> None:
    owner = alice()
    client = signed_in(owner)
    rule = [{"when": {"tool": "x"}, "do": "ask"}]
    post_launch(
        client,
        asks=asks,
        rules=json.dumps(rule),
        tokens="500",
        more='{"context": {"limit_tokens": 4096}}',
        cache="",
    )
    first = Run.objects.get()
    form = client.get(f"/runs/new/?like={first.pk}").context["form"]
    fields = {name: form[name].value() for name in form.fields if form[name].value() not in (None, "", False)}
    assert client.post("/runs/new/", fields).status_code == 302
    second = Run.objects.latest("pk")
    assert second.pk != first.pk
    assert (second.goal, second.settings, json.loads(second.script_json)) == (
        first.goal,
        first.settings,
        json.loads(first.script_json),
    )


def test_nobody_launches_one_like_a_run_that_he_may_not_see() -> None:
    run = launched(None, ALL_WELL)
    assert signed_in(alice()).get(f"/runs/new/?like={run.pk}").status_code == 404


def test_who_may_not_launch_is_told_whom_to_ask() -> None:
    client = signed_in(bob())
    assert client.get("/runs/new/").status_code == 403
    assert post_launch(client).status_code == 403
    assert "operators" in post_launch(client).text
    assert not Run.objects.exists()
