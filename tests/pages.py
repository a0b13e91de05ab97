"""The forms of a page with their fields as the page fills them, so that a test sends what a browser would send."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from django.test import Client
from django.urls import reverse

from runs.forms.copying import ForkForm
from runs.models import Interrupt, Run
from runs.store import after_row
from tests.cast import cast_member, signed_in
from tests.launching import ALL_WELL, LETTER, script


@dataclass
class PageForm:
    """A form: where it is sent to, how, its fields as filled in, and the names of its boxes and buttons."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[PageForm] = []
        self.by_id: dict[str, PageForm] = {}
        self.elsewhere: list[tuple[str, str, str]] = []
        """Fields that name their form, which may come later: form, name, value."""
        self.open: PageForm | None = None
        self.text: str | None = None
        self.select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A form begins, or a field of one."""
        has = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.open = PageForm(has.get("action", ""), has.get("method", "get").lower())
            self.forms.append(self.open)
            self.by_id[has.get("id", "")] = self.open
        elif tag == "option":
            self._option(has)
        elif tag in ("input", "textarea", "select", "button") and has.get("name"):
            self._field(tag, has)

    def _field(self, tag: str, has: dict[str, str]) -> None:
        name, value = has["name"], has.get("value", "on")
        if "form" in has:
            self.elsewhere.append((has["form"], name, has.get("value", "")))
        elif self.open is not None:
            self.open.names.add(name)
            self.select = name if tag == "select" else ""
            if tag == "textarea":
                self.text = name
                self.open.fields[name] = ""
            elif tag == "input" and (has.get("type") not in ("checkbox", "radio") or "checked" in has):
                self.open.fields[name] = has.get("value", "") if has.get("type") != "checkbox" else value

    def _option(self, has: dict[str, str]) -> None:
        if (
            self.open is not None
            and self.select
            and ("selected" in has or self.select not in self.open.fields)
        ):
            self.open.fields[self.select] = has.get("value", "")

    def handle_data(self, data: str) -> None:
        """The text of a text area; its first line break is not of it."""
        if self.text is not None and self.open is not None:
            self.open.fields[self.text] += data if self.open.fields[self.text] else data.removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        """A form or a text area ends."""
        if tag == "form":
            self.open = None
        elif tag == "textarea":
            self.text = None


def forms_of(page: str) -> list[PageForm]:
    """Every form of the page."""
    reader = _Reader()
    reader.feed(page)
    for form, name, value in reader.elsewhere:
        if form in reader.by_id:
            reader.by_id[form].fields[name] = value
            reader.by_id[form].names.add(name)
    return reader.forms


class _Folds(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        """The text of each open fold, the innermost last."""
        self.label: str | None = None
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A fold or a button begins."""
        if tag == "details":
            self.open.append("")
        elif tag == "button":
            self.label = ""

    def handle_data(self, data: str) -> None:
        """The text of a button, or of the innermost fold."""
        if self.label is not None:
            self.label += data
        elif self.open:
            self.open[-1] += f" {data}"

    def handle_endtag(self, tag: str) -> None:
        """A fold or a button ends."""
        if tag == "details":
            self.open.pop()
        elif tag == "button" and self.label is not None:
            fold = self.open[-1] if self.open else ""
            self.found.append((" ".join(self.label.split()), " ".join(fold.split())))
            self.label = None


def folds_of(page: str, button: str) -> list[str]:
    """For each button with this label: the text before it in the innermost fold, empty outside of folds."""
    reader = _Folds()
    reader.feed(page)
    return [fold for label, fold in reader.found if label == button]


def form_to(page: str, ending: str) -> PageForm:
    """The one that is sent to an address with this ending."""
    (found,) = [form for form in forms_of(page) if form.action.endswith(ending)]
    return found


def card_form(interrupt: Interrupt, **changed: str) -> dict[str, str]:
    """The card's form as a browser sends it."""
    fields = {"arg.to": LETTER["to"], "arg.body": LETTER["body"].replace("\n", "\r\n"), "arg.copies": "1"}
    fields |= {"arg.urgent": "true", "arg.ratio": "", "arg.tags": "", "sure": "yes"}
    return {"revision": str(interrupt.revision), "fingerprint": interrupt.fingerprint, **fields, **changed}


def send_card(client: Client, run: Run, verdict: str, **changed: str) -> Any:
    """Send the card's form."""
    interrupt = run.interrupts.order_by("-seq")[0]
    return client.post(
        reverse("decision", args=[interrupt.pk]), card_form(interrupt, verdict=verdict, **changed)
    )


def fork_form(run: Run, at: int, **typed: str) -> dict[str, str]:
    """The form as a browser would send it, unchanged but for what was typed."""
    form = ForkForm(run, at)
    fields = {name: str(form[name].value() or "") for name in form.fields}
    seen = after_row.copy_mark(run, at)
    return {**fields, "at": str(at), "how": "fork", "seen": seen, **typed}


def post_fork(client: Client, run: Run, at: int, **typed: str) -> Any:
    return client.post(reverse("fork", args=[run.pk]), fork_form(run, at, **typed))


SCRIPT = json.dumps(script(ALL_WELL, tools={}))


def post_launch(client: Client, **fields: Any) -> Any:
    """Send the form; what is not named is as the empty form has it."""
    usual = {
        "goal": "Say hello",
        "machine": "ruled",
        "model": "script",
        "script": SCRIPT,
        "cache": "yes",
        "asks": "writes",
    }
    return client.post("/runs/new/", usual | fields)


def posted_settings(fields: dict[str, Any]) -> dict[str, Any]:
    answer = post_launch(signed_in(cast_member("launcher", "operators")), **fields)
    assert answer.status_code == 302, answer.text
    return Run.objects.latest("pk").settings
