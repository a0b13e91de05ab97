"""Read what a script has called so far, and heard: all that a worker needs to go on with it."""

from __future__ import annotations

from typing import NamedTuple

from runs.engine.effects import ANSWER, EFFECT, ScriptCalled, ToolCall
from runs.engine.facts import ToolReported
from runs.machines import CATALOGUE
from runs.models import Run, Step, tells


class Begun(NamedTuple):
    """The call that began a script, and the script's calls since, each with its result."""

    call: ToolCall
    heard: tuple[tuple[ScriptCalled, ToolReported], ...]


def begun_at(run: Run, seq: int) -> Begun:
    """Return the script that the live step `seq` began."""
    live = run.steps.filter(live=True, seq__gte=seq)
    asked = run.exchanges.filter(kind="tool_call", seq__in=live.filter(kind=Step.Kind.ASK).values("seq"))
    own = [
        (effect, exchange.answer_json)
        for exchange in asked.order_by("seq")
        if isinstance(effect := EFFECT.validate_json(exchange.request_json), ToolCall)
        and seq in (exchange.seq, effect.resumes)
    ]
    said = [ANSWER.validate_json(text) for _, text in own if text]
    calls = [answer for answer in said if isinstance(answer, ScriptCalled)]
    return Begun(own[0][0], tuple(zip(calls, _results(run, seq), strict=True)))


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
