"""No address and no field gives a 500: every route, every query parameter and every form, with hostile values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from runs.models import Compaction, Halt, ModelProfile, Run, SiteRule, Skill
from tests.factories import alice, cast_member, run_with_letter, signed_in
from tests.runs.running import decide, pending, work
from tests.runs.test_mending import compacted_run

pytestmark = [pytest.mark.django_db, pytest.mark.database]

NUMBERS = ("0", "²", "٣", "-1", "1" * 10, "9" * 15, "9" * 19, "9" * 20, "9" * 5000, "1e400", "nan")
"""Not a row's number: digits that only `isdigit` takes, and more than 32 bits, 64 bits, or `int` hold."""
TEXTS = ("xx", "%", "'", "\0", "\udcff", "a/b", "_5F", "{}", "[" * 3000, "x" * 3000)
HOSTILE = NUMBERS + TEXTS

ROUTE = re.compile(r"<(?:(?P<kind>\w+):)?(?P<name>\w+)>")
SOURCES = Path(__file__).parents[2] / "runs"
IN_QUERY = re.compile(r"""(?:GET\.get(?:list)?\(|number_in\(request, |parameter_name = )"(\w+)""")


class Route(NamedTuple):
    """An address with places for values."""

    text: str
    name: str

    @property
    def places(self) -> list[str]:
        """The kinds of its values, in their order."""
        return [found["kind"] or "str" for found in ROUTE.finditer(self.text)]

    def address(self, *values: str) -> str:
        """The address with the values."""
        left = iter(values)
        return "/" + ROUTE.sub(lambda _: quote(next(left), safe="", errors="surrogatepass"), self.text)


def routes(resolver: URLResolver | None = None, before: str = "") -> Iterator[Route]:
    """Every route of the site."""
    for found in (resolver or get_resolver()).url_patterns:
        route = before + str(found.pattern)
        if isinstance(found, URLResolver):
            yield from routes(found, route)
        elif isinstance(found, URLPattern) and "(?P" not in route:
            yield Route(route, found.name or "")


class Forms(HTMLParser):
    """The forms of a page that are posted: where to, and their fields as the page fills them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A form begins, or a field belongs to the last one."""
        has = dict(attrs)
        if tag == "form":
            self.found.append((has.get("action") or "", {}) if has.get("method") == "post" else ("", {}))
        elif tag in ("input", "textarea", "select", "button") and has.get("name") and self.found:
            self.found[-1][1][str(has["name"])] = has.get("value") or ""


def world() -> dict[str, Any]:
    """One row of every kind, and who looks at them."""
    owner = alice()
    done = run_with_letter(owner)
    decide(done, "approve")
    work(done)
    open_ = run_with_letter(owner)
    compacted = compacted_run(owner)
    ModelProfile.objects.create(name="tiny", base_url="http://127.0.0.1:9/v1", model_id="tiny")
    SiteRule.objects.create(rule_json='{"when": {"tool": "send_*"}, "do": "ask"}')
    Skill.objects.create(name="terse", text="Be terse.")
    return {"open": open_, "done": done, "compacted": compacted}


def people() -> dict[str, Client]:
    """Somebody of each kind."""
    return {
        "stranger": Client(raise_request_exception=False),
        "staff": _client(cast_member("sam", is_staff=True)),
        "operator": _client(cast_member("olga", "operators", is_staff=True)),
        "reviewer": _client(cast_member("rita", "reviewers", is_staff=True)),
        "administrator": _client(User.objects.create_superuser("ada", password="pw")),
    }


def _client(user: User) -> Client:
    client = signed_in(user)
    client.raise_request_exception = False
    return client


def asked(client: Client, method: str, address: str, data: dict[str, str] | None = None) -> Any:
    """The answer; whatever was done is undone."""
    kept = client.cookies.copy()
    with transaction.atomic():
        answer = getattr(client, method)(address, data)
        transaction.set_rollback(True)
    client.cookies = kept
    return answer



def real(route, place, rows):
    from django.apps import apps
    from django.contrib.contenttypes.models import ContentType
    if place == "object_id":
        found = re.match(r"admin/(\w+)/(\w+)/<", route.text)
        model = apps.get_model(found[1], found[2]) if found else Run
        first = model.objects.first()
        return str(first.pk) if first else "1"
    return {"run_id": str(rows["open"].pk), "seq": "2", "other_id": str(rows["done"].pk),
        "content_type_id": str(ContentType.objects.get_for_model(Run).pk), "name": "a.txt", "token": "x",
        "id": str(User.objects.first().pk), "interrupt_id": str(pending(rows["open"]).pk)}[place]

def test_explore() -> None:
    import time, logging
    from django.contrib.contenttypes.models import ContentType
    from django.contrib import admin
    logging.disable(50)
    rows = world()
    faults: dict[str, str] = {}
    n = 0
    t = time.time()
    def note(answer, key, value):
        if answer.status_code >= 500:
            exc = getattr(answer, "exc_info", None)
            k = key + f" {exc and exc[0].__name__} "
            faults.setdefault(k, f"{str(exc and exc[1])[:60]!r}: ")
            faults[k] += f"{value[:12]!r}, "
    client = people()["administrator"]
    for ct in ContentType.objects.all():
        for v in HOSTILE:
            n+=1
            note(asked(client, "get", f"/admin/r/{ct.pk}/{quote(v, safe='', errors='surrogatepass')}/"), f"r/{ct.model}", v)
    names = {name for source in SOURCES.rglob("*.py") for name in IN_QUERY.findall(source.read_text())}
    names |= {"o", "p", "q", "e", "all", "_facets", "_to_field", "_popup", "_changelist_filters", "next", "app_label","model_name","field_name","term"}
    print(sorted(names))
    for route in routes():
        places = [f["name"] for f in ROUTE.finditer(route.text)]
        good = [real(route, place, rows) for place in places]
        for k, place in enumerate(places):
            for v in HOSTILE:
                vals = list(good); vals[k] = v
                for method in ("get", "post"):
                    n += 1
                    note(asked(client, method, route.address(*vals)), f"{method} {route.text} {place}", v)
        page = route.address(*good)
        answer = asked(client, "get", page)
        if answer.status_code != 200: continue
        more = set()
        if "cl" in (answer.context or {}):
            cl = answer.context["cl"]
            for f in cl.list_filter: 
                if isinstance(f, str): more |= {f + "__exact", f+"__in", f+"__isnull", f}
            more |= {f.name for f in cl.model._meta.fields if f.name} if False else set()
            more |= {f"{f.attname}__{l}" for f in cl.model._meta.concrete_fields for l in ("exact","gte","in","isnull","year","range")} if client else set()
            if cl.date_hierarchy: more |= {f"{cl.date_hierarchy}__{p}" for p in ("year","month","day","gte","lt")}
        for name in names | more:
            for v in HOSTILE:
                if len(v) > 1000 and v[0] != "9": continue
                n += 1
                q = f"{page}?{name}={quote(v, safe='', errors='surrogatepass')}"
                note(asked(client, "get", q), f"query {route.text} {name}", v)
        for where, fields in Forms(answer.text).found:
            for name in fields:
                for v in HOSTILE:
                    n += 1
                    if v == "\udcff": continue
                    note(asked(client, "post", where or page, {**fields, name: v}), f"form {route.text} {where} {name}", v)
    print(n, time.time() - t)
    Path("/tmp/faults.txt").write_text("\n".join(f"{k}: {v}" for k, v in faults.items()))
