"""Which tools of a run change something, and which it may call unasked: a restored run may do so a second time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from runs import driver, store
from runs.driver import NoMachine
from runs.engine.effects import changes_something
from runs.engine.gates import at_loosest
from runs.engine.settings import Settings
from runs.engine.tools import ToolSpec
from runs.engine.values import canonical
from runs.models import Run, Step, tells


def with_kept_answers(run_ids: Iterable[int]) -> set[int]:
    """Those of the runs for which somebody kept answers that were given before."""
    rows = Step.objects.filter(tells("run.answers.kept"), run__in=list(run_ids), live=True)
    return set(rows.values_list("run", flat=True))


def unattended(run: Run, site: store.SiteRules, *, kept: bool = False) -> tuple[str, ...]:
    """The tools, by name, that change something, can't tell a second call from the first, and may pass unasked.

    `site` are the site's rules of now. `kept`: somebody kept answers, which may be left for the questions about them.
    Children are looked at too.
    """
    try:
        settings = store.own_settings_of(run)
        rules = (*site.rules, *settings.rules)
        answered = (kept or bool(settings.answers)) and store.answers_left(run, settings.answers)
        wanted = ("allow", "ask") if answered else ("allow",)
        found = {
            tool.name for tool in _changing(run) if not tool.idempotent and at_loosest(rules, tool) in wanted
        }
        for child in _children_of(run, settings):
            found |= {*unattended(child, site)}
    except (NoMachine, ValidationError):
        return ()  # this version does not drive it
    return tuple(sorted(found))


def may_change_something(run: Run) -> bool:
    """Whether it, or a child of it, has a tool that does."""
    try:
        children = _children_of(run, store.own_settings_of(run))
        return any(_changing(run)) or any(map(may_change_something, children))
    except (NoMachine, ValidationError):
        return True  # who can tell?


def _changing(run: Run) -> Iterator[ToolSpec]:
    tools = driver.tool_specs(run).values()
    return (tool for tool in tools if tool.permitted and changes_something(tool.effects))


def _children_of(run: Run, settings: Settings) -> list[Run]:
    """As each would be started, but for what a script plays in it."""
    return [
        Run(machine=one.machine, settings_json=canonical(one.settings)) for one in settings.subgraphs.values()
    ]
