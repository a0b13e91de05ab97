"""The progress of a run's children: one line each, in the step that started it."""

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
"""Children shown on a page: the newest ones."""


def with_standing() -> QuerySet[Run]:
    """Return runs with the data of their lines: waiting for a person, and halted with the site."""
    asks = Interrupt.objects.filter(run=OuterRef("pk"), status=Interrupt.Status.PENDING)
    return Run.objects.annotate(asks=Exists(asks), site_halted=is_halted()).defer("settings_json")


def children_of(run: Run) -> list[Run]:
    """Return the newest children, with whether each waits for a person."""
    return list(with_standing().filter(parent=run).order_by("-pk")[:MOST])


def child_html(child: Run) -> SafeString:
    """Return a child's line: its state, its node, its number of steps, its cost, and a link."""
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
