"""Calls that a script makes: judged as a model's calls, and answered to the script.

A tool that runs a script (`python`) answers `ScriptCalled` for each call out of it. The kernel asks for that call
through all gates, and resumes the script with the result. The machine sees one call, and how the script ended.
See docs/tools.md, "Python".
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from runs.engine.effects import Answer, ChildFinished, ChildRun, Failed, ScriptCalled, ToolCall, ToolReturned
from runs.engine.facts import Fact, Notice, ToolCalled, ToolReported
from runs.engine.machine import State
from runs.engine.reporting import reported
from runs.engine.snapshot import Pending
from runs.engine.tools import inspect_call

PYTHON = "python"
"""The tool that runs scripts."""


class Judged(NamedTuple):
    """A checked call of a script: the effect to ask for or its refusal, and the facts to record."""

    effect: ToolCall | ChildRun | Failed
    facts: tuple[Fact, ...]


def judged(state: State, pending: Pending, call: ScriptCalled, withheld: Collection[str]) -> Judged:
    """Check a script's call as a model's. `withheld` names the tools that no script may call."""
    assert isinstance(pending.effect, ToolCall)
    begun = pending.effect.resumes or pending.seq
    found = inspect_call(state.terms.tools, call.tool, call.args)
    drops = tuple(Notice(code=drop.code, message=drop.message, param=drop.param) for drop in found.drops)
    if found.spec is None or found.flaws or call.tool in withheld:
        why = " ".join(flaw.message for flaw in found.flaws) or f"A script can't call {call.tool}."
        called = ToolCalled(tool=call.tool, args=call.args, script=begun)
        return Judged(Failed(blame="recoverable", message=why, ran=False), (called,))
    called = ToolCalled(tool=call.tool, args=found.args, script=begun)
    effect = found.spec.effect_with(found.args).model_copy(update={"script": begun})
    return Judged(effect, (called, *drops))


def answered(state: State, answer: Answer | None) -> ToolReported | None:
    """Return the result for the script that waits for it; None if the answer is for the machine.

    A fatal failure ends the script: it is the machine's.
    """
    waits = state.script_call
    if waits is None or not isinstance(answer, ToolReturned | ChildFinished | Failed):
        return None
    return reported(waits.tool, answer).model_copy(update={"script": waits.script})


def resumed(script: int) -> ToolCall:
    """Return the call that goes on with the script begun at that step."""
    return ToolCall(tool=PYTHON, args={}, effects="none", resumes=script)
