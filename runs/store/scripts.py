"""Read what a script has called so far, and heard: all that a worker needs to go on with it."""

from __future__ import annotations

from runs.engine.effects import ANSWER, EFFECT, ScriptCalled, ToolCall
from runs.engine.facts import ToolReported
from runs.engine.scripts import PYTHON
from runs.machines import CATALOGUE
from runs.models import Run, Step, tells


def script_at(run: Run, seq: int) -> ToolCall:
    """Return the call with the script that step `seq` began."""
    call = EFFECT.validate_json(run.exchanges.get(seq=seq).request_json)
    assert isinstance(call, ToolCall)
    return call


def heard_by(run: Run, seq: int) -> list[tuple[ScriptCalled, ToolReported]]:
    """Return the calls of the script that the live step `seq` began, each with its result."""
    live = run.steps.filter(live=True, seq__gte=seq)
    asked = run.exchanges.filter(kind="tool_call", seq__in=live.filter(kind=Step.Kind.ASK).values("seq"))
    asked = asked.filter(name=PYTHON, answer_json__isnull=False).order_by("seq")
    said = [ANSWER.validate_json(text or "") for text in asked.values_list("answer_json", flat=True)]
    calls = [answer for answer in said if isinstance(answer, ScriptCalled)]
    return list(zip(calls, _results(run, seq), strict=True))


def _results(run: Run, seq: int) -> list[ToolReported]:
    """Return what the script has heard, in order."""
    machine = CATALOGUE[run.machine]
    rows = run.steps.filter(tells("react.tool.result"), live=True, seq__gt=seq).order_by("seq")
    facts = (
        fact
        for text in rows.values_list("facts_json", flat=True)
        for fact in machine.facts.validate_json(text)
    )
    return [fact for fact in facts if isinstance(fact, ToolReported) and fact.script == seq]
