"""Which tools a run may call unasked: those whose calls a restored run could make a second time, unseen."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from runs import driver, store
from runs.driver import NoMachine
from runs.engine.facts import AnswersKept
from runs.engine.gates import at_loosest
from runs.engine.tools import ToolSpec
from runs.engine.values import canonical
from runs.models import Run, Step

_KEPT = f'"kind":"{AnswersKept.model_fields["kind"].default}"'


def with_kept_answers(run_ids: Iterable[int]) -> set[int]:
    """Those of the runs for which somebody kept answers that were given before."""
    rows = Step.objects.filter(run__in=list(run_ids), live=True, facts_json__contains=_KEPT)
    return set(rows.values_list("run", flat=True))


def unattended(run: Run, *, kept: bool = False) -> tuple[str, ...]:
    """The tools, by name, that change something, can't tell a second call from the first, and may pass unasked.

    `kept`: answers that were kept may be given to the questions about them. Children are looked at too.
    """
    try:
        return tuple(sorted(_of(run, kept=kept)))
    except (NoMachine, ValidationError):
        return ()  # this version does not drive it


def _of(run: Run, *, kept: bool) -> set[str]:
    settings = store.settings_of(run)
    answered = kept or any(answer.verdict in ("approve", "edit") for answer in settings.answers)
    wanted = ("allow", "ask") if answered else ("allow",)
    found = {
        tool.name
        for tool in driver.tool_specs(run).values()
        if _leaves_something(tool) and at_loosest(settings.rules, tool) in wanted
    }
    for child in settings.subgraphs.values():
        as_run = Run(
            machine=child.machine,
            settings_json=canonical(child.settings),
            site_rules_json=run.site_rules_json,
        )
        found |= _of(as_run, kept=False)
    return found


def _leaves_something(tool: ToolSpec) -> bool:
    return tool.permitted and not tool.idempotent and tool.effects not in ("none", "read")
