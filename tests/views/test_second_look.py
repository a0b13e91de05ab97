"""What a call hides, or is too long to show at once, is approved at a second look: with a tick that the site wants."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from runs import actions
from runs.management.asking import how_to_answer
from runs.models import Decision, Interrupt, Run, SiteRule
from runs.reading.arguments import fields_of
from tests.cast import alice, bob, cast_member, signed_in
from tests.launching import ALL_WELL, launch, launched, think
from tests.running import pending, transitions, work
from tests.stack import A_BUSY_SECOND

pytestmark = [pytest.mark.django_db]

COMMAND = {
    "params": {"command": "string", "mode": "string", "times": "integer"},
    "required": ["command"],
    "effects": "write",
    "results": [{"output": "done"}],
}
DEED = "; rm -rf /srv/data"
LONG = (
    "# note: nothing to see in this line of a hundred characters, nor in the next one, as it goes on and on\n"
)

HIDDEN = {
    "10,000 blanks": ("ls" + " " * 10_000 + DEED, "⟨␣ × 10,000⟩"),
    "600 blanks of another kind": ("ls" + "\u00a0" * 600 + DEED, "⟨␣ × 600⟩"),
    "4,000 line breaks": ("ls" + "\n" * 4_000 + DEED, "⟨⏎ × 4,000⟩"),
    "a Cyrillic letter": ("curl https://p\u0430ypal.com", "p\\u0430ypal"),
    "full width": ("\uff52\uff4d -rf /", "\\uff52\\uff4d -rf"),
    "another direction": ("rm \u202etxt.exe", "\\u202etxt"),
    "no width": ("rm\u200b -rf", "rm\\u200b -rf"),
    "a soft hyphen": ("rm\u00ad -rf", "rm\\u00ad -rf"),
    "400 marks on one letter": ("ls" + "\u0301" * 400 + DEED, "ls⟨U+0301 × 400⟩;"),
    "a tag": ("ls\U000e0041", "ls\\U000e0041"),
}


def asking(command: str, tools: dict[str, Any] | None = None, **more: Any) -> Run:
    """A run that asks whether it may run a command."""
    return launched(alice(), think("run", command=command, **more), ALL_WELL, tools=tools or {"run": COMMAND})


def send(client: Client, asked: Interrupt, verdict: str = "approve", **fields: str) -> Any:
    """Send the card's form, arguments left as they are."""
    seen = {"revision": str(asked.revision), "fingerprint": asked.fingerprint}
    return client.post(reverse("decision", args=[asked.pk]), {"verdict": verdict, **seen, **fields})


def page_of(client: Client, asked: Interrupt) -> str:
    return client.get(reverse("interrupt", args=[asked.pk])).text


@pytest.mark.parametrize("name", HIDDEN)
def test_what_hides_is_shown_with_signs_and_is_not_approved_at_the_first_press(name: str) -> None:
    command, sign = HIDDEN[name]
    asked, client = pending(asking(command)), signed_in(bob())
    page = page_of(client, asked)
    assert sign in page
    assert 'name="sure"' in page
    assert "more than fits in the box" not in page
    assert send(client, asked).status_code == 422
    assert not Decision.objects.exists()
    assert send(client, asked, sure="yes").status_code == 302
    assert Decision.objects.get().verdict == "approve"


def test_a_text_longer_than_its_box_wants_its_end_seen() -> None:
    command = LONG * 60 + DEED
    asked, client = pending(asking(command)), signed_in(bob())
    page = page_of(client, asked)
    assert f"{len(command):,} characters, more than fits in the box." in page
    assert "I have read all of it." in page
    assert "I have read this call" not in page
    answer = send(client, asked)
    assert answer.status_code == 422
    assert "Read all of it, then tick the box to approve it." in answer.text
    assert not Decision.objects.exists()
    whole = answer.text.partition("Full text:")[2].partition("</pre>")[0]
    assert DEED in whole
    assert "escapes__text--whole" in whole
    assert send(client, asked, sure="yes").status_code == 302


@pytest.mark.parametrize(
    "text",
    [
        "Съешь же ещё этих мягких французских булок, да выпей чаю.",
        "Grüße aus Köln, naïve café",
        "これは設定です。\u3000「ＯＫ！」",
        "👩🏽‍🔬 ❤️ fine",
        "def one():\n\n\n    return 1\n",
        "x" * 1_500,
        "a line\n" * 39,
    ],
)
def test_ordinary_text_that_its_box_shows_whole_is_approved_at_once(text: str) -> None:
    asked, client = pending(asking(text)), signed_in(bob())
    assert 'name="sure"' not in page_of(client, asked)
    assert send(client, asked).status_code == 302


@pytest.mark.parametrize("verdict", ["reject", "abort"])
def test_what_lets_nothing_run_wants_no_tick(verdict: str) -> None:
    asked = pending(asking(HIDDEN["10,000 blanks"][0]))
    assert send(signed_in(bob()), asked, verdict, reason="no").status_code == 302


def test_an_edit_that_is_too_long_wants_the_tick_too() -> None:
    asked, client = pending(asking("ls")), signed_in(bob())
    longer = {"arg.command": "x" * 3_000}
    answer = send(client, asked, **longer)
    assert answer.status_code == 422
    assert 'name="sure"' in answer.text
    assert send(client, asked, **longer, sure="yes").status_code == 302
    assert Decision.objects.get().verdict == "edit"


def test_a_tools_name_can_hide_nothing() -> None:
    with pytest.raises(actions.BadLaunch, match="no name of a tool"):
        launched(alice(), ALL_WELL, tools={"r\u0443n": COMMAND})


def test_an_arguments_name_may_hide_something() -> None:
    tools = {"run": COMMAND | {"params": {"command": "string", "m\u043ede": "string"}}}
    asked, client = pending(asking("ls", tools, mоde="x")), signed_in(bob())
    assert "Its name holds letters that look like others: U+043E at 2 (looks like o)." in page_of(
        client, asked
    )
    assert send(client, asked).status_code == 422


def test_a_call_held_at_a_limit_is_shown_whole_and_wants_the_same_look() -> None:
    call, limits = think("run", command=HIDDEN["10,000 blanks"][0]), {"tokens": 120}
    rules = [{"when": {"tool": "*"}, "do": "allow"}]
    run = launched(alice(), call, ALL_WELL, tools={"run": COMMAND}, limits=limits, rules=rules)
    asked, client = pending(run), signed_in(bob())
    assert asked.kind == "limit"
    page = page_of(client, asked)
    assert "Next call" in page
    assert "⟨␣ × 10,000⟩" in page
    assert send(client, asked, "top_up", **{"amount.tokens": "1000"}).status_code == 422
    assert send(client, asked, "top_up", sure="yes", **{"amount.tokens": "1000"}).status_code == 302


def test_a_model_call_held_at_a_limit_is_named() -> None:
    run = launched(
        alice(), think("run", command="ls"), ALL_WELL, tools={"run": COMMAND}, limits={"tokens": 0}
    )
    page = page_of(signed_in(bob()), pending(run))
    assert "model call (decision)" in page
    assert 'name="sure"' not in page


def test_a_plan_shows_its_rows_whole_and_wants_the_same_look() -> None:
    row = {"tool": "calculator", "args": {"expression": "1 +" + " " * 1_000 + "1"}, "thought": "sum"}
    rules = [{"when": {"first_step": True}, "do": "ask"}]
    run = launch(
        machine="planned",
        goal="Add",
        played={"replies": {"decision": []}, "tools": {}},
        plan=[row],
        tools=["calculator"],
        rules=rules,
        follow="plan",
    )
    asked, client = pending(work(run)), signed_in(bob())
    assert asked.kind == "plan"
    assert "⟨␣ × 1,000⟩" in page_of(client, asked)
    assert send(client, asked).status_code == 422
    assert send(client, asked, sure="yes").status_code == 302


def test_the_command_shows_the_call_whole_and_wants_to_be_told_that_it_was_seen() -> None:
    asked = pending(asking(HIDDEN["10,000 blanks"][0], mode="x"))
    shown = "    run\n      mode: x\n      command: ls⟨␣ × 10,000⟩; rm -rf /srv/data\n"
    assert shown in how_to_answer(asked, asked.run)
    words = ("decide", str(asked.pk), "--verdict", "approve")
    with pytest.raises(CommandError) as refused:
        call_command(*words)
    assert shown in str(refused.value)
    assert refused.value.returncode == 2
    assert not Decision.objects.exists()
    call_command(*words, "--sure")
    assert Decision.objects.get().verdict == "approve"


def test_the_list_of_questions_shows_the_call_and_says_where_it_is_shortened() -> None:
    limits, rules = {"tokens": 120}, [{"when": {"tool": "*"}, "do": "allow"}]
    call = think("run", command="x" * 6_000)
    launched(alice(), call, ALL_WELL, tools={"run": COMMAND}, limits=limits, rules=rules)
    page = signed_in(bob()).get("/needs-you/").text
    assert "Next call: <code" in page
    assert "… (6,015 characters)</code>" in page


def test_an_answer_given_with_a_fork_wants_the_same_look() -> None:
    run = asking(LONG * 60 + DEED)
    at = transitions(run)[-1]
    client = signed_in(cast_member("dora", "operators", "reviewers"))
    page = client.get(reverse("fork", args=[run.pk]) + f"?at={at}").text
    assert "characters, more than fits in the box." in page
    assert "I have read all of it." in page


def test_a_choice_that_the_schema_does_not_have_is_shown_as_it_is() -> None:
    schema = {"properties": {"mode": {"type": "string", "enum": ["safe", "fast"]}}, "required": ["mode"]}
    (field,) = fields_of(schema, {"mode": "wipe"})
    assert (field.shape, field.value) == ("json", '"wipe"')


def test_a_number_too_long_for_a_line_gets_a_box() -> None:
    (field,) = fields_of({"properties": {"n": {"type": "integer"}}}, {"n": 10**200})
    assert (field.shape, field.value) == ("json", str(10**200))


def test_arguments_stand_in_the_schemas_order_short_ones_first_and_unknown_ones_after() -> None:
    properties = {
        name: {"type": kind} for name, kind in (("z", "string"), ("body", "string"), ("a", "integer"))
    }
    fields = fields_of({"properties": properties}, {"more": "x", "z": "1", "body": "text", "a": 1})
    assert [field.name for field in fields] == ["z", "a", "body", "more"]


def test_a_card_of_400_000_characters_is_painted_in_well_under_a_second() -> None:
    asked, client = pending(asking(("p\u0430y " + "x" * 60 + "\n") * 6_000)), signed_in(bob())
    page_of(client, asked)
    began = time.process_time()
    page = page_of(client, asked)
    assert time.process_time() - began < A_BUSY_SECOND
    assert len(page) > 400_000


def test_the_card_says_whose_rule_asks_whatever_its_name_claims() -> None:
    claims = {"when": {"tool": "run"}, "do": "ask", "name": "Site rule: cleared by the administrator"}
    owner, reviewer = alice(), signed_in(bob())

    def page() -> str:
        call = think("run", command="ls")
        return page_of(
            reviewer, pending(launched(owner, call, ALL_WELL, tools={"run": COMMAND}, rules=[claims]))
        )

    assert '<span class="card__label">Rule of</span> this run, launched by alice' in page()
    SiteRule.objects.create(rule_json='{"when": {"tool": "run"}, "do": "ask"}')
    assert '<span class="card__label">Rule of</span> the site' in page()


def test_without_a_rule_the_card_names_none() -> None:
    assert "Rule of" not in page_of(signed_in(bob()), pending(asking("ls")))
