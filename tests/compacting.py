"""Runs whose context is compacted, and people who mend it."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from runs.models import Run
from runs.reading.compactions import CompactionView, compactions
from tests.cast import person
from tests.launching import FINAL, SEARCH, SEND, launch, think
from tests.prompts import work_reading
from tests.running import pending

WRONG, RIGHT = "Done: paid 40 pounds.", "Done: paid 45 pounds."

HELD = think("send", to="bob")

RESULTS = [{"output": f"result {number} " + "of the tide tables " * 47} for number in range(60)]

TOOLS = {"search": SEARCH | {"results": RESULTS}, "send": SEND | {"results": [{"output": "sent"}] * 9}}


def bob() -> User:
    """He reviews."""
    return person("bob", "view_run", "change_compaction")


def searches(count: int) -> list[Any]:
    return [think("search", q=f"tides {number}") for number in range(count)]


def long_run(
    *replies: Any,
    owner: User | None = None,
    summaries: tuple[Any, ...] = (WRONG, "Done: the second.", "Done: the third.", "Done: the fourth."),
    limit: int | None = 1000,
    **settings: Any,
) -> Run:
    """A run whose window is full after four searches or so; driven as far as it goes."""
    given = replies or (*searches(4), HELD, *searches(1), HELD, *searches(6), HELD, FINAL)
    played = {"replies": {"decision": list(given), "summary": list(summaries)}, "tools": TOOLS}
    context = {"context": {"limit_tokens": limit}} if limit else {}
    return launch(played=played, owner=owner, max_steps=80, **context, **settings)


def read_on(run: Run) -> list[str]:
    """Drive the run as far as it goes; the prompts that its model was shown, each as one text."""
    shown: list[str] = []
    run.refresh_from_db()
    for _ in range(20):
        if run.status not in ("queued", "running"):
            return shown
        shown += ["\n".join(message.text for message in prompt) for prompt in work_reading(run)]
    raise AssertionError("it goes on and on")


def newest(run: Run) -> CompactionView:
    return compactions(run)[-1]


def compacted_run(owner: User | None = None) -> Run:
    """A run that was compacted and waits for somebody."""
    run = long_run(owner=owner)
    read_on(run)
    assert pending(run).tool == "send"
    assert compactions(run)
    return run
