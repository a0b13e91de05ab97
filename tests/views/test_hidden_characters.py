"""Characters that nobody sees: the card shows what will run, and asks for a second look."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs.models import Decision, Run
from runs.reading import rows
from runs.reading.hidden_text import escaped, holds_unseen, warning
from runs.reading.phrases import call_text, short
from tests.cast import alice, bob, signed_in
from tests.launching import ALL_WELL, launched, think
from tests.running import pending

pytestmark = [pytest.mark.django_db]

NAME, CONTENT = "report\u202etxt.sh", "ok\u200b\u2066hidden \u202eevil"
WRITES = {
    "params": {"name": "string", "content": "string", "more": "array"},
    "required": ["name", "content"],
    "effects": "write",
    "results": [{"output": "written"}],
}
FOREIGN = set("\u202e\u200b\u2066\u00ad\u200f")


def run_that_hides(name: str = NAME, content: str = CONTENT, **more: Any) -> Run:
    """A run that wants to write a file of that name, and asks first."""
    call = think("keep", name=name, content=content, **more)
    return launched(alice(), call, ALL_WELL, tools={"keep": WRITES})


def approve(client: Client, run: Run, name: str = NAME, **more: str) -> Any:
    asked = pending(run)
    fields = {"arg.name": name, "arg.content": CONTENT, "verdict": "approve", "revision": str(asked.revision)}
    return client.post(
        reverse("decision", args=[asked.pk]), {**fields, "fingerprint": asked.fingerprint, **more}
    )


# --- the rule -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "char",
    [chr(code) for code in (0x202A, 0x202E, 0x2066, 0x2069, 0x200E, 0x200F, 0x61C, 0x200B, 0xFEFF, 0xAD)]
    + ["\x00", "\x1b", "\r", "\x7f", "\x9b", "\ue000", "\ud800", "\u2028", "\u3164", "\ufe0f", "\U000e0041"],
)
def test_a_character_that_nobody_sees_is_named_with_its_place_and_escaped(char: str) -> None:
    assert warning(f"ab{char}c") == f"Holds characters that can’t be seen: U+{ord(char):04X} at 3."
    shown = escaped(f"ab{char}c")
    assert shown in (f"ab\\u{ord(char):04x}c", f"ab\\U{ord(char):08x}c")
    assert holds_unseen({"a": [1, {"b": f"x{char}"}]})
    assert holds_unseen({f"a{char}": None})


@pytest.mark.parametrize(
    "text",
    [
        "plain\n\ttext",
        "Grüße, 你好, سلام, שלום",
        "\u2764\ufe0f \U0001f469\u200d\U0001f469\u200d\U0001f467",
        "1\ufe0f\u20e3",
        "\U0001f469\U0001f3fd\u200d\U0001f52c",
        "\U0001f3f3\ufe0f\u200d\U0001f308",
        "\u26a0\ufe0f",
    ],
)
def test_ordinary_text_and_emoji_pass(text: str) -> None:
    assert warning(text) == ""
    assert escaped(text) == text
    assert not holds_unseen([text, 1, None])


def test_many_are_counted() -> None:
    assert warning("\u200b" * 20).endswith("U+200B at 8 and 12 more.")


def test_rows_of_one_line_show_escapes() -> None:
    assert short("a\u202eb\u200bc") == "a\\u202eb\\u200bc"
    assert call_text("keep", {"name": NAME, "c\u200b": 1}) == 'keep(name="report\\u202etxt.sh", c\\u200b=1)'


# --- the card -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [alice, bob])
def test_the_card_warns_and_shows_the_text_once_more_with_escapes(who: Any) -> None:
    run = run_that_hides(more=["x\u00ady"])
    asked = reverse("interrupt", args=[pending(run).pk])
    client = signed_in(bob() if who is bob else run.owner)  # type: ignore[arg-type]
    page = client.get(asked).text
    assert "Holds characters that can’t be seen: U+202E at 7." in page
    assert "U+200B at 3, U+2066 at 4, U+202E at 12." in page
    assert "report\\u202etxt.sh" in page
    assert "ok\\u200b\\u2066hidden \\u202eevil" in page
    assert "x\\u00ady" in page
    if who is bob:
        assert '<code dir="ltr">report\\u202etxt.sh</code>' in page
        assert 'name="sure"' in page
    else:
        assert not FOREIGN & set(page)


def test_approving_what_can_not_be_seen_wants_a_second_look() -> None:
    run = run_that_hides()
    client = signed_in(bob())
    answer = approve(client, run)
    assert answer.status_code == 422
    assert "tick the box" in answer.text
    assert not Decision.objects.exists()
    assert approve(client, run, sure="yes").status_code == 302
    assert Decision.objects.get().verdict == "approve"


def test_what_a_person_writes_is_looked_at_too() -> None:
    run = run_that_hides(name="a.txt", content="plain")
    client = signed_in(bob())
    answer = approve(client, run, name="a\u200b.txt")
    assert answer.status_code == 422
    assert "U+200B at 2." in answer.text
    assert 'name="sure"' in answer.text
    assert approve(client, run, name="a.txt", **{"arg.content": "mine"}).status_code == 302
    assert json.loads(Decision.objects.get().args_json or "") == {"name": "a.txt", "content": "mine"}


def test_what_is_written_as_an_escape_wants_the_tick_too_and_it_is_there() -> None:
    run = run_that_hides(name="a.txt", content="plain", more=["x"])
    client = signed_in(bob())
    hidden = {"arg.content": "plain", "arg.more": '["x\\u202ey"]'}
    answer = approve(client, run, name="a.txt", **hidden)
    assert answer.status_code == 422
    assert 'name="sure"' in answer.text
    assert approve(client, run, name="a.txt", **hidden, sure="yes").status_code == 302
    assert json.loads(Decision.objects.get().args_json or "")["more"] == ["x\u202ey"]


def test_the_queue_and_the_rows_show_escapes_only() -> None:
    run = run_that_hides()
    client = signed_in(bob())
    queue = client.get("/needs-you/").text
    assert "report\\u202etxt.sh" in queue
    assert not FOREIGN & set(queue)
    assert not FOREIGN & set("".join(rows.render_row(row) for row in rows.row_views(run)))
