"""Where a form comes back the focus is on what says so; its words lead to each field, which says what is wrong."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.cast import cast_member, signed_in
from tests.launching import FINAL, think
from tests.launching import launch as launched
from tests.pages import post_launch
from tests.running import pending, transitions, work

pytestmark = [pytest.mark.django_db]


class Tags(HTMLParser):
    """The tags of a page, each with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def by_id(self, name: str) -> tuple[str, dict[str, str | None]]:
        """The one tag of this id."""
        (found,) = [one for one in self.found if one[1].get("id") == name]
        return found

    @property
    def focused(self) -> dict[str, str | None]:
        """The one tag that the browser puts the focus on."""
        (found,) = [attrs for _, attrs in self.found if "autofocus" in attrs]
        return found


def links_of(page: str) -> dict[str, str]:
    """Where the banner's links lead, each with its words."""
    banner = re.search(r'<div class="note note--error" role="alert".*?</div></div>', page, re.S)
    assert banner is not None
    return dict(re.findall(r'<a href="#([^"]+)">([^<]+)</a>', banner[0]))


def check_led(page: str, wanted: dict[str, str]) -> None:
    """The banner has the focus and these links; each leads to a control that is marked, and says what is wrong."""
    tags = Tags(page)
    assert (tags.focused.get("role"), tags.focused.get("tabindex")) == ("alert", "-1")
    assert links_of(page) == wanted
    for place in wanted:
        tag, control = tags.by_id(place)
        assert tag in ("input", "textarea", "select")
        assert control.get("aria-invalid") == "true", place
        described = control["aria-describedby"]
        assert described is not None
        assert tags.by_id(described)[1]["class"] == "field__error"


LAUNCHES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"goal": ""}, {"goal": "Goal"}),
    ({"goal": "", "cost_usd": "much", "max_steps": "0"},
     {"goal": "Goal", "cost_usd": "Cost", "max_steps": "Maximum steps"}),
    ({"machine": ""}, {"machine": "Machine"}),
    ({"tools": ["no_such_tool"]}, {"tools": "Tools"}),
    ({"asks": "nobody"}, {"asks": "Require approval for"}),
    ({"on_clarify": "shout"}, {"on_clarify": "When the model asks a question"}),
    ({"rules": "{"}, {"rules": "Rules"}),
    ({"machine": "contract", "depth": "abyss", "plan_shape": "round"},
     {"depth": "Depth", "plan_shape": "Plan shape"}),
    ({"machine": "contract", "slots-0-id": "a", "slots-0-type": "inline", "slots-1-id": "b", "slots-1-type": "song"},
     {"slots-1-type": "Slots"}),
    ({"machine": "planned", "rows-0-tool": "calculator", "rows-0-args": "{"}, {"rows-0-args": "The plan"}),
    ({"machine": "planned", "follow": "the leader"}, {"follow": "Next call decided by"}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "links"), LAUNCHES, ids=[" ".join(links) for _, links in LAUNCHES])
def test_a_launch_that_comes_back_leads_to_each_field(fields: dict[str, Any], links: dict[str, str]) -> None:
    answer = post_launch(signed_in(cast_member("launcher", "operators")), **fields)
    assert answer.status_code == 422
    check_led(answer.text, links)


def test_a_form_without_faults_takes_no_focus() -> None:
    page = signed_in(cast_member("launcher", "operators")).get("/runs/new/").text
    assert "autofocus" not in page
    assert 'aria-invalid="true"' not in page


def test_a_fork_that_comes_back_leads_to_each_field() -> None:
    run = work(launched(think("search", q="a"), think("send", to="bob"), FINAL))
    client = signed_in(cast_member("root", is_superuser=True))
    at, asked = transitions(run)[0], pending(run).seq
    fields = {
        "at": at,
        "asked": asked,
        "tokens": "few",
        "state-steps": "some",
        "message": "y" * 501,
        "settings": "{",
    }
    answer = client.post(f"/runs/{run.pk}/fork/", fields | {"verdict": "edit", "args": "{"})
    assert answer.status_code == 422
    check_led(
        answer.text,
        {
            "args": "Arguments",
            "tokens": "Tokens",
            "message": "Why",
            "settings": "Settings as JSON",
            "state-steps": "steps",
        },
    )


def test_a_risky_answer_in_a_fork_leads_to_its_tick() -> None:
    tools = {"boom": {"params": {}, "required": [], "effects": "execute", "results": [{"output": "ok"}]}}
    played = {"replies": {"decision": [think("boom"), FINAL]}, "tools": tools}
    run = work(launched(played=played))
    fields = {"at": 0, "asked": pending(run).seq, "verdict": "approve", "args": "{}"}
    answer = signed_in(cast_member("root", is_superuser=True)).post(f"/runs/{run.pk}/fork/", fields)
    assert answer.status_code == 422
    check_led(answer.text, {"sure": "Confirmation"})


def test_run_again_leads_to_its_own_field_alone() -> None:
    run = work(launched(FINAL))
    fields = {"at": 0, "how": "rerun", "message": "y" * 501, "tokens": "few"}
    answer = signed_in(cast_member("root", is_superuser=True)).post(f"/runs/{run.pk}/fork/", fields)
    assert answer.status_code == 422
    check_led(answer.text, {"message": "Why"})


def test_a_halt_without_a_reason_puts_the_focus_on_it() -> None:
    client = signed_in(cast_member("root", is_superuser=True))
    assert "autofocus" not in client.get("/halt/").text
    focused = Tags(client.post("/halt/", {"deed": "halt", "reason": " "}).text).focused
    assert (focused["id"], focused["aria-invalid"], focused["aria-describedby"]) == (
        "reason",
        "true",
        "reason-fault",
    )
