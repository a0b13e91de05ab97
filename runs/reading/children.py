"""How far the children of a run are: one line each, in the row that started it."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.template import loader
from django.utils.safestring import SafeString, mark_safe

from runs.models import Interrupt, Run
from runs.reading import words
from runs.reading.statuses import exit_of, status_word
from runs.store.halting import is_halted

MOST = 50
"""Children that a page shows: the newest ones."""


def with_standing() -> QuerySet[Run]:
    """Return runs with what a line says of each: whether it waits for a person, and whether the site is halted."""
    asks = Interrupt.objects.filter(run=OuterRef("pk"), status=Interrupt.Status.PENDING)
    return Run.objects.annotate(asks=Exists(asks), site_halted=is_halted()).defer("settings_json")


def children_of(run: Run) -> list[Run]:
    """The newest children, with whether each waits for a person."""
    return list(with_standing().filter(parent=run).order_by("-pk")[:MOST])


def child_html(child: Run) -> SafeString:
    """A child's line: its state, where it is, how many rows and what cost, and the way there."""
    context = {
        "child": child,
        "status": status_word(child, getattr(child, "asks", False), True),
        "exit": exit_of(child),
        "rows": words.plural(child.head, "step"),
    }
    return mark_safe(_template().render(context).strip())


@cache
def _template() -> Any:
    return loader.get_template("runs/_child.html")
