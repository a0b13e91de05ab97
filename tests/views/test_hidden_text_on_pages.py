"""Characters that nobody would see, in a goal, in names and in reasons: every page shows signs for them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs import actions
from runs.models import Compaction, Decision, Exchange, Interrupt, Run, Step
from runs.reading import compactions, panels
from runs.reading.artifacts import files_of, natural
from runs.reading.hidden_text import hides, visible
from tests.cast import cast_member, signed_in
from tests.launching import SEARCH, SEND, USAGE, launch, think
from tests.running import pending, work

pytestmark = [pytest.mark.django_db]  # what a page shows does not depend on the database

HOSTILE = "a\u202eb\x1bc\u200bd\ufeffe\u2066f\u3164g\U000e0041h\u200di\x9bj"
"""It turns the text, begins an escape, and hides letters."""

TYPED = re.compile(r"<textarea\b[^>]*>.*?</textarea>|<input\b[^>]*>|<option\b[^>]*>", re.DOTALL)
"""What a person goes on with: the text itself, as it is."""


def administrator() -> User:
    return cast_member("root", is_superuser=True, is_staff=True)


def contract_run() -> Run:
    """A contract whose slots, artifacts and words are hostile, with a hostile answer."""
    tools = {"search": {"effects": "read", "results": [{"output": HOSTILE}, {"error": HOSTILE}]}}
    call = {
        "tool_id": "search",
        "params": {HOSTILE: HOSTILE},
        "out_artifacts": [{"name": f"out{HOSTILE}", "kind": "inline"}],
    }
    again = {**call, "out_artifacts": [{"name": f"gone{HOSTILE}", "kind": "file"}]}
    begun: dict[str, Any] = {"action": "call_tool", "strategy": "explore", "focus_slot": f"s{HOSTILE}"}
    mapped = {"slot": f"s{HOSTILE}", "artifact": f"out{HOSTILE}", "gaps": HOSTILE}
    replies = [
        {**begun, "tool_call": call, "notes": HOSTILE},
        {**begun, "tool_call": again},
        {
            **begun,
            "strategy": "render",
            "action": "complete",
            "completion_summary": HOSTILE,
            "map_slot": mapped,
        },
    ]
    slot = {"id": f"s{HOSTILE}", "type": "inline", "description": HOSTILE, "format": HOSTILE}
    return work(
        actions.start_run(
            machine="contract",
            goal=HOSTILE,
            settings={"contract": [slot]},
            owner=None,
            script={"replies": {"decision": replies}, "tools": tools, "usage": USAGE},
        )
    )


def planned_run(machine: str) -> Run:
    """A run of a machine with a plan whose steps, calls and marks are hostile; its script ends too soon."""
    call = {"tool_id": "search", "params": {"q": HOSTILE}}
    ticked = {"action": "call_tool", "strategy": "explore", "notes": f"□ [1] {HOSTILE}", "tool_call": call}
    settings: dict[str, dict[str, Any]] = {
        "checklist": {"plan": [HOSTILE, f"2 {HOSTILE}"]},
        "planned": {"plan": [{"thought": HOSTILE, "tool": "search", "args": {"q": HOSTILE}}] * 2},
    }
    chosen = {"thought": HOSTILE, "tool": "search", "args": {"q": HOSTILE}}
    tools = {"search": SEARCH | {"results": [{"output": HOSTILE}, {"error": HOSTILE}]}}
    run = actions.start_run(
        machine=machine,
        goal=HOSTILE,
        settings=settings[machine],
        owner=None,
        script={"replies": {"decision": [ticked if machine == "checklist" else chosen] * 3}, "tools": tools},
    )
    return work(run)


def held_run() -> Run:
    """A run that was compacted, corrected and pinned with hostile reasons, and waits for an approval."""
    outputs = [{"output": HOSTILE + " of the tide tables" * 90} for _ in range(9)]
    tools = {"search": {"effects": "read", "results": outputs}, "send": SEND}
    replies = [*(think("search", q=f"{number} {HOSTILE}") for number in range(6)), think("send", to=HOSTILE)]
    run = work(
        actions.start_run(
            machine="ruled",
            goal=HOSTILE,
            settings={"context": {"limit_tokens": 1500}, "max_steps": 40},
            owner=None,
            script={"replies": {"decision": replies, "summary": [f"Done: {HOSTILE}"] * 4}, "tools": tools},
        )
    )
    assert pending(run).tool == "send"
    seq = compactions.compactions(run)[-1].seq
    actions.edit_summary(run, seq=seq, version=1, text=f"2 {HOSTILE}", reason=HOSTILE, by=None)
    actions.pin(run, path=f"su:{seq}", by=None, reason=HOSTILE)
    actions.compact_now(run, by=None, reason=HOSTILE)
    return run


def addresses(run: Run) -> list[str]:
    """Every page that shows something of the run."""
    at = f"/runs/{run.pk}/"
    turn = Step.objects.filter(run=run, kind="transition", live=True).order_by("seq").first()
    assert turn is not None
    asked = Exchange.objects.filter(run=run, kind="model_call").values_list("seq", flat=True)
    return [
        *(
            "/runs/",
            "/needs-you/",
            at,
            f"{at}context/",
            f"{at}artifacts/",
            f"{at}rows/?before={run.head + 1}",
        ),
        *(f"{at}steps/{seq}/" for seq in range(1, run.head + 1)),
        *(f"{at}context/?step={seq}" for seq in asked),
        *(f"{at}fork/?at={turn.seq}", f"{at}fork/?at=0", f"{at}rewind/?to={turn.seq}"),
        *(f"{at}compare/?choose", f"{at}compare/{run.pk - 1}/", f"/runs/new/?like={run.pk}"),
        *(file.url for file in files_of(run)),
        *(f"/interrupts/{one.pk}/" for one in Interrupt.objects.filter(run=run)),
        *(
            f"/admin/runs/{name}/"
            for name in ("run", "step", "exchange", "interrupt", "decision", "compaction")
        ),
        f"/admin/runs/run/{run.pk}/change/",
        f"/admin/runs/run/{run.pk}/compact/",
        *(
            f"/admin/runs/{model._meta.model_name}/{pk}/change/"
            for model, field in (
                (Step, "run"),
                (Exchange, "run"),
                (Interrupt, "run"),
                (Compaction, "run"),
                (Decision, "interrupt__run"),
            )
            for pk in model.objects.filter(**{field: run}).values_list("pk", flat=True)
        ),
    ]


def leaks(browser: Client, address: str) -> set[str]:
    """The characters that a page shows as they are."""
    answer = browser.get(address)
    assert answer.status_code == 200, address
    return {f"{ord(char):04X}" for char in {*TYPED.sub("", answer.content.decode())} if hides(char)}


def test_no_page_shows_a_character_that_nobody_sees() -> None:
    browser = signed_in(administrator())
    launch()
    runs = [contract_run(), planned_run("checklist"), planned_run("planned"), held_run()]
    interrupt = Interrupt.objects.get(run=runs[-1])
    pages = [address for run in runs for address in addresses(run)]
    assert all("⟨U+202E⟩" in panels.panels_of(run, None)["machine"] for run in runs[:-1])
    found = {address: leaks(browser, address) for address in dict.fromkeys(pages)}
    actions.decide(interrupt.pk, verdict="reject", by=None, channel="cli", message=HOSTILE)
    actions.abort(runs[-1], by=None, message=HOSTILE)
    runs[-1].refresh_from_db()
    found |= {f"{address} decided": leaks(browser, address) for address in addresses(runs[-1])}
    assert {address: chars for address, chars in found.items() if chars} == {}


def test_the_signs_are_on_the_page() -> None:
    html = signed_in(administrator()).get(f"/runs/{contract_run().pk}/").content.decode()
    assert "a⟨U+202E⟩b␛c⟨U+200B⟩d⟨U+FEFF⟩e⟨U+2066⟩f⟨U+3164⟩g⟨U+E0041⟩h⟨U+200D⟩i⟨U+009B⟩j" in html


@pytest.mark.parametrize(
    "text", ["👩\u200d👧", "❤\ufe0f", "می\u200cخواهم", "क्\u200dष", "plain\n\ttext", "1\ufe0f\u20e3"]
)
def test_what_a_text_is_written_with_stays(text: str) -> None:
    assert visible(text) == text


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    names = ["out10", "out2.txt", "out1", "Out3", "b", "10", "9", "out02"]
    assert sorted(names, key=natural) == ["9", "10", "b", "out1", "out02", "out2.txt", "Out3", "out10"]


def test_numbers_of_tokens_have_their_thousands_apart() -> None:
    run = held_run()
    Run.objects.filter(pk=run.pk).update(input_tokens=1234567)
    asked = Exchange.objects.filter(run=run, kind="model_call").first()
    assert asked is not None
    Exchange.objects.filter(pk=asked.pk).update(input_tokens=7654321)
    browser = signed_in(administrator())
    assert "1,234,567" in browser.get(f"/admin/runs/run/{run.pk}/change/").content.decode()
    assert "7,654,321" in browser.get(f"/admin/runs/exchange/{asked.pk}/change/").content.decode()
    assert "7,654,321" in browser.get("/admin/runs/exchange/").content.decode()
    inspector = browser.get(f"/runs/{run.pk}/steps/{asked.seq}/").content.decode()
    assert "7,654,321" in inspector
    made = Step.objects.filter(run=run, kind="compaction").first()
    assert made is not None
    page = browser.get(f"/runs/{run.pk}/steps/{made.seq}/").content.decode()
    assert re.search(r"Estimated next prompt: [0-9],[0-9]{3} → [0-9,]+ tokens", page)
