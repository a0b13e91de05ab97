"""I7: what a page that was open all the while has, against what the log says, and against a page that is opened now."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from runs.feeds import reads
from runs.models import Run, Step
from runs.reading import words
from runs.reading.panels import panels_of
from runs.reading.rows import render_row, row_views
from runs.store import copying
from tests.chaos.findings import Violation

PAGE_ROWS = 7
"""Rows of one answer of the catch-up: runs of the bench are short, and pages shall have seams."""

OPEN_PAGES = 3
"""Pages that are open at once while everything is disturbed."""

_CHILD = re.compile(r'<div class="row__child".*</div>(?=\s*</li>)', re.DOTALL)
_HEAD = re.compile(r'state__head">(\d+) step')
_CALLS = re.compile(
    r'gauge__used">(\d+)</span>\s*<span class="gauge__limit">\s*model.*?gauge__used">(\d+)</span>'
    r'\s*<span class="gauge__limit">\s*tool',
    re.DOTALL,
)
_NODE = re.compile(r'data-filter-node="([^"]+)"(.*?)</li>', re.DOTALL)
_VISITS = re.compile(r'title="visits">(\d+)<')


def in_small_portions() -> None:
    """The catch-up of this process hands out a few rows at a time."""
    reads.PAGE_ROWS = PAGE_ROWS  # type: ignore[misc]


class Page:
    """A page of a run: it has what the catch-up gave it, row after row, and sees a rollback by its row alone."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        self.head = 0
        self.rows: dict[int, str] = {}
        self.dead: set[int] = set()
        self.answers = 0

    def catch_up(self) -> None:
        """Ask for what comes after the last row, until nothing does."""
        while rows := reads.rows_after(self.run_id, self.head):
            self.answers += 1
            before = self.head
            for row in rows:
                self.take(row)
            if self.head == before:
                return  # a row is missing: the page waits for it, and the check will say so

    def take(self, row: reads.Row) -> None:
        """One row as it came; a page takes no row that is not the next one."""
        if row.seq != self.head + 1:
            return
        if row.rewind_to is not None:
            self.dead |= set(range(row.rewind_to + 1, row.seq))
        self.rows[row.seq] = json.loads(row.json)["html"]
        self.head = row.seq


class OpenPages:
    """Pages that are open while everything is disturbed: of a run that is new, until it has ended."""

    def __init__(self) -> None:
        self.pages: dict[int, Page] = {}
        self.watched: list[Page] = []

    def look(self) -> None:
        """What comes of a ring, or of the time that a page waits for one."""
        self.watched = [page for page in self.watched if not _has_ended(page)]
        missing = OPEN_PAGES - len(self.watched)
        if missing:
            seen = Run.objects.filter(ended_at__isnull=True).exclude(pk__in=self.pages)
            for run_id in seen.order_by("-pk").values_list("pk", flat=True)[:missing]:
                self.pages[run_id] = Page(run_id)
                self.watched.append(self.pages[run_id])
        for page in self.watched:
            page.catch_up()


def _has_ended(page: Page) -> bool:
    return not Run.objects.filter(pk=page.run_id, ended_at__isnull=True).exists()


# --- rows ---------------------------------------------------------------------------------------------------------


def page_is_right(page: Page, run: Run) -> Iterator[Violation]:
    """Every row once, in order, and looking as it does on a page that is opened now."""
    steps = dict(run.steps.order_by("seq").values_list("seq", "live"))
    if list(page.rows) != list(steps):
        yield Violation("I7", run.pk, f"its page has {len(page.rows)} rows, and the log {len(steps)}")
        return
    if page.dead != {seq for seq, live in steps.items() if not live}:
        yield Violation("I7", run.pk, f"its page strikes out {sorted(page.dead)}, and the log other rows")
    painted = painted_now(run)
    for seq, html in page.rows.items():
        if steps[seq] and _without_child(html) != _without_child(painted[seq]):
            yield Violation("I7", run.pk, f"row {seq} of its page is another one than a new page shows")
            return


def painted_now(run: Run) -> dict[int, str]:
    """The rows as a page shows them that is opened now."""
    views = row_views(run, before=run.head + 1, limit=max(run.head, 1))
    return {view.seq: render_row(view) for view in views}


def _without_child(html: str) -> str:
    """How far a child is comes as a panel; what is left of its place is blank."""
    return " ".join(_CHILD.sub("", html).split())


# --- panels -------------------------------------------------------------------------------------------------------


def numbers_are_right(run: Run, panels: dict[str, str]) -> Iterator[Violation]:
    """The numbers of the panels, against sums over the log."""
    shown = _HEAD.search(panels["header"])
    rows = run.steps.count()
    if shown is None or int(shown[1]) != rows:
        yield Violation("I7", run.pk, f"its page says {shown and shown[1]} rows, and the log has {rows}")
    visits = Counter(run.steps.filter(kind=Step.Kind.TRANSITION, live=True).values_list("node", flat=True))
    if run.finished:
        visits["end"] = 1
    told = {}
    for name, rest in _NODE.findall(panels["strip"]):
        found = _VISITS.search(rest)
        told[name] = int(found[1]) if found else 0
    if {name: times for name, times in told.items() if times} != visits:
        yield Violation("I7", run.pk, f"its page counts {told}, and the log {dict(visits)}")
    yield from _sums(run, panels["gauges"])


def _sums(run: Run, gauges: str) -> Iterator[Violation]:
    """Calls, cost and tokens. What was paid after a run was taken from its worker is in no row, and in the sums."""
    log = copying.totals_at(run, run.head)
    calls = _CALLS.search(gauges)
    # Of a call that a person answered for the answer itself may come late: it is kept, and not counted twice.
    doubted = run.interrupts.filter(kind="may_have_happened").exists()
    least = (log.model_calls, 0 if doubted else log.tool_calls)
    if calls is None or any(int(one) < other for one, other in zip(calls.groups(), least, strict=True)):
        yield Violation(
            "I7", run.pk, f"its page says {calls and calls.groups()} calls, and the log has {least}"
        )
    beside = run.model_calls - log.model_calls or run.cost_usd - log.cost_usd
    tokens = log.input_tokens + log.output_tokens
    amounts = {"cost_usd": log.cost_usd, "tokens": float(tokens)}
    for name, amount in amounts.items():
        text = words.amount(name, amount)
        if not beside and f'gauge__used">{text}<' not in gauges:
            yield Violation("I7", run.pk, f"its page does not say {text}, which is the log's {name}")


# --- as a browser gets it -----------------------------------------------------------------------------------------


def onlooker() -> tuple[User, Client]:
    """Somebody who may see everything, signed in."""
    user, _ = User.objects.get_or_create(username="onlooker", is_superuser=True, is_staff=True)
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    return user, client


def answers_are_right(run: Run, user: User, client: Client) -> Iterator[Violation]:
    """What the site answers: the page, the rows after some row, the export, each against the log."""
    painted = painted_now(run)
    seqs = list(painted)
    page = client.get(reverse("run", args=(run.pk,)))
    if page.status_code != 200:
        yield Violation("I7", run.pk, f"its page can't be had ({page.status_code})")
        return
    text = page.content.decode()
    if any(html not in text for html in painted.values()):
        yield Violation("I7", run.pk, "its page lacks a row")
    after = run.head // 2
    answer: Any = client.get(reverse("rows", args=(run.pk,)), {"after": str(after)}).json()
    if (answer["head"], [row["seq"] for row in answer["rows"]]) != (run.head, [n for n in seqs if n > after]):
        yield Violation("I7", run.pk, f"the rows after {after} are not those of the log")
    if any(row["html"] != painted[row["seq"]] for row in answer["rows"]):
        yield Violation("I7", run.pk, f"a row after {after} looks otherwise than on the page")
    if answer["panels"] != panels_of(run, user):
        yield Violation("I7", run.pk, "the panels beside the rows are not those of the page")
    kept = client.get(reverse("run-export", args=(run.pk,))).json()
    if [step["seq"] for step in kept["steps"]] != seqs:
        yield Violation("I7", run.pk, f"its export has {len(kept['steps'])} rows of {run.head}")
