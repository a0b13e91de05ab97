"""No address and no form gives a 500: every route, query parameter and field of the site, with hostile values.

Each is tried with the next of the hostile values in turn: what refuses one is shared by many routes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from runs.adapters.mcp import Definition
from runs.models import McpServer, McpTool, ModelProfile, Run, SiteRule, Skill
from tests.asking import asking
from tests.cast import administrator, alice, cast_member, signed_in
from tests.compacting import compacted_run
from tests.launching import run_with_letter
from tests.pages import forms_of
from tests.running import decide, pending, work

pytestmark = [pytest.mark.django_db]

TOO_LARGE = "9" * 20
"""More than 64 bits hold."""
HOSTILE = ("²", "-1", TOO_LARGE, "9" * 5000, "1e400", "xx", "\0", "\udcff")
"""Digits that only `isdigit` takes, numbers that no column or no `int` holds, and texts that no database takes."""
FEW = ("²", TOO_LARGE, "\0")

ELSEWHERE = ("healthz",)
"""It writes in a thread of its own, which the transaction of a test here keeps out; `test_health.py` asks it."""

PLACE = re.compile(r"<(?:\w+:)?(\w+)>")
IN_QUERY = re.compile(r"""(?:GET\.get(?:list)?\(|number_in\(request, |parameter_name = )"(\w+)""")
SOURCES = Path(__file__).parents[2] / "runs"
OF_LISTS = ("o", "p", "q", "e", "all", "_facets", "_to_field", "_popup", "_changelist_filters", "nothing")
LOOKUPS = ("exact", "in", "range", "gte", "year", "isnull")


class Route(NamedTuple):
    """An address with places for values."""

    text: str

    @property
    def places(self) -> list[str]:
        """The names of its values, in their order."""
        return PLACE.findall(self.text)

    def address(self, values: Iterable[str]) -> str:
        """The address with the values."""
        left = iter(values)
        return "/" + PLACE.sub(lambda _: _quoted(next(left)), self.text)


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def routes(resolver: URLResolver | None = None, before: str = "") -> Iterator[Route]:
    """Every route of the site."""
    for found in (resolver or get_resolver()).url_patterns:
        text = before + str(found.pattern)
        if isinstance(found, URLResolver):
            yield from routes(found, text)
        elif isinstance(found, URLPattern) and "(?P" not in text and text not in ELSEWHERE:
            yield Route(text)


class Visitor:
    """A browser that notes every 500."""

    def __init__(self, user: User | None = None) -> None:
        self.client = signed_in(user) if user is not None else Client()
        self.client.raise_request_exception = False
        self.asked = 0
        self.faults: list[str] = []

    def ask(self, method: str, address: str, data: dict[str, str] | None = None) -> Any:
        """The answer. What was done is undone, and who is signed in stays so."""
        cookies = dict(self.client.cookies)
        with transaction.atomic():
            answer = getattr(self.client, method)(address, data)
            transaction.set_rollback(True)
        self.client.cookies.clear()
        self.client.cookies.update(cookies)
        self.asked += 1
        if answer.status_code >= 500:
            self.faults.append(
                f"{method} {address[:120]} {data and str(data)[:300]}: {answer.exc_info[1]!r:.120}"
            )
        return answer


class World:
    """One row of each kind, and the values that lead to them."""

    def __init__(self) -> None:
        owner = alice()
        done = run_with_letter(owner)
        decide(done, "approve")
        work(done)
        self.runs = asking("tool_call", owner), done, compacted_run(owner)
        model = ModelProfile.objects.create(name="tiny", base_url="http://127.0.0.1:9/v1", model_id="tiny")
        SiteRule.objects.create(rule_json='{"when": {"tool": "send_*"}, "do": "ask"}')
        Skill.objects.create(name="terse", text="Be terse.")
        server = McpServer.objects.create(name="notes", command="/usr/bin/false")
        text = Definition(name="find").text
        found = {"found_json": text, "found_sha256": "a" * 64}
        tool = McpTool.objects.create(server=server, name="find", **found)
        self.values = {
            "run_id": str(self.runs[0].pk),
            "other_id": str(done.pk),
            "seq": "2",
            "interrupt_id": str(pending(self.runs[0]).pk),
            "id": str(owner.pk),
            "name": "a.txt",
            "token": "x",
            "profile_id": str(model.pk),
            "server_id": str(server.pk),
            "tool_id": str(tool.pk),
            "part": "state",
            "tool": "http_request",
        }

    def of(self, route: Route) -> list[str]:
        """The values with which the route leads to something."""
        return [self.values.get(place) or self._first(route) for place in route.places]

    def _first(self, route: Route) -> str:
        _, app, model = route.text.split("/")[:3]
        row = apps.get_model(app, model).objects.first()
        return str(row.pk) if row is not None else "1"


@pytest.fixture
def world() -> World:
    return World()


def halves_of(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Every other name, and the rest: what is wrong in one field does not hide what another one does."""
    ordered = sorted(names)
    return ordered[::2], ordered[1::2]


@pytest.mark.database
def test_no_address_gives_a_500(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    visitor, values = Visitor(administrator()), cycle(HOSTILE)
    for route in routes():
        good = world.of(route)
        for method, tries in (("get", 2), ("post", 1)):
            visitor.ask(method, route.address(good))
            for place in range(len(good)):
                for value in islice(values, tries):
                    visitor.ask(method, route.address([*good[:place], value, *good[place + 1 :]]))
    assert visitor.asked > 400
    assert visitor.faults == []


def test_nobody_gets_a_500_for_a_row_that_is_not_there(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    people = [
        None,
        *(cast_member(f"staff-{group}", group, is_staff=True) for group in ("operators", "reviewers")),
    ]
    values = cycle(("xx", TOO_LARGE, "7"))
    for visitor in map(Visitor, people):
        for route in routes():
            if route.places:
                visitor.ask("get", route.address([next(values)] * len(route.places)))
        assert visitor.asked > 50
        assert visitor.faults == []


def test_the_addresses_that_were_found_broken_are_not_found() -> None:
    visitor = Visitor(administrator())
    for kind in ContentType.objects.all():
        assert visitor.ask("get", f"/admin/r/{kind.pk}/1/").status_code == 404
    answer = visitor.ask("get", "/admin/runs/interrupt/xx/change/")
    assert (answer.status_code, answer["Location"]) == (302, reverse("admin:index"))


def test_no_query_gives_a_500(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    visitor, values = Visitor(administrator()), cycle(HOSTILE)
    names = {name for source in SOURCES.rglob("*.py") for name in IN_QUERY.findall(source.read_text())}
    assert names > {"after", "before", "like", "step", "to"}
    for route in routes():
        page = route.address(world.of(route))
        own = (
            not page.startswith("/admin/") or "/compaction/" in page
        )  # Django's lists have a test of their own
        if own and visitor.ask("get", page).status_code == 200:
            for some in halves_of(names):
                visitor.ask("get", f"{page}?{'&'.join(f'{name}={_quoted(next(values))}' for name in some)}")
    assert visitor.faults == []


@pytest.mark.database
def test_no_filter_of_a_list_of_the_admin_gives_a_500(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    visitor = Visitor(administrator())
    values, lookups = cycle(FEW), cycle(LOOKUPS)
    for model in filter(admin.site.is_registered, apps.get_models()):
        page = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for name in OF_LISTS:
            visitor.ask("get", f"{page}?{name}={_quoted(next(values))}")
        # one list of ours, one of Django's: what keeps them whole is the same for all
        for field in model._meta.concrete_fields if model in (Run, User) else ():
            visitor.ask("get", f"{page}?{field.attname}__{next(lookups)}={TOO_LARGE}")
        shown = visitor.ask("get", f"{page}?e=1")
        assert shown.status_code == 200, page
    assert visitor.asked > 150
    assert visitor.faults == []


def test_no_field_of_a_form_gives_a_500(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    visitor = Visitor(administrator())
    for route in routes():
        page = route.address(world.of(route))
        answer = visitor.ask("get", page)
        if answer.status_code != 200 or "text/html" not in answer["Content-Type"]:
            continue
        for form in forms_of(answer.text):
            if form.method == "post":
                where, names = form.action or page, sorted(form.names | set(form.fields))
                for value in FEW:
                    visitor.ask("post", where, {**form.fields, **dict.fromkeys(names, value)})
                for some in halves_of(names):
                    visitor.ask("post", where, {**form.fields, **dict.fromkeys(some, TOO_LARGE)})
    assert visitor.asked > 100
    assert visitor.faults == []


def test_the_runs_are_as_they_were(world: World) -> None:
    """What the tests above send is undone, so that each begins with the same rows."""
    visitor = Visitor(administrator())
    question = pending(world.runs[0])
    form = {"revision": "1", "fingerprint": question.fingerprint, "verdict": "abort"}
    assert visitor.ask("post", reverse("decision", args=[question.pk]), form).status_code == 302
    assert Run.objects.get(pk=world.runs[0].pk).status == "waiting"
