"""The replies of the `checklist` model, and their reader."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import ConfigDict

from runs.engine.effects import ModelReplied
from runs.engine.facts import Fact
from runs.engine.reply import Read, Unread, read
from runs.engine.settings import plan_flaw
from runs.engine.tools import ToolSpec, is_harmless
from runs.engine.values import Json, Value
from runs.machines.checklist.facts import Mark, PlanMade
from runs.machines.checklist.settings import Status
from runs.machines.checklist.state import PlanStep

ACTIONS = ("call_tool", "complete", "clarify", "exit")


MARKS: dict[str, Status] = {"✓": "done", "✗": "failed"}
"""The status that a mark at the beginning of a line gives a step; in progress (→ …) and pending (□) change nothing."""


MARKED = re.compile(r"^\s*(?:[-*]\s*)?([✓✗])\s*(?:\[([0-9]{1,6})\]|([0-9]{1,6})[.:](?![0-9]))")


class CallReply(Value):
    """The call that a decision asks for. `params` is checked with the call, not here."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    tool_id: str | None = None
    params: Json = {}


class DecisionReply(Value):
    """A decision as the model replies it; other names are ignored, and null is the same as nothing."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    action: str | None = None
    strategy: str | None = None
    notes: str | None = None
    tool_call: CallReply | None = None
    completion_summary: str | None = None
    final_answer: str | None = None
    questions: list[str] | None = None

    @property
    def summary(self) -> str:
        """Return the completion summary, under either of its names."""
        return (self.completion_summary or "").strip() or (self.final_answer or "").strip()

    @property
    def asks(self) -> tuple[str, ...]:
        """Return the non-empty questions."""
        return tuple(question.strip() for question in self.questions or () if question.strip())


class PlanReply(Value):
    """A plan as the planner replies it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    steps: list[str]


def read_decision(replied: ModelReplied, tools: Mapping[str, ToolSpec]) -> Read[DecisionReply] | Unread:
    """Return the decision in a reply, or its fault."""

    def harmless(reply: DecisionReply) -> bool:
        called = reply.tool_call.tool_id if reply.tool_call else None
        return reply.action == "clarify" or (reply.action == "call_tool" and is_harmless(tools, called))

    return read(replied, DecisionReply, harmless)


def read_plan(replied: ModelReplied) -> tuple[Fact, ...]:
    """Return the plan in a planner's reply; an unusable one is no plan. It calls nothing, so the first of several
    counts."""
    found = read(replied, PlanReply, lambda plan: True)
    if isinstance(found, Unread):
        why = f"The planner's reply can't be used: {found.why}"
        return PlanMade(source="model", steps=(), why=why), *found.notices
    steps = tuple(step.strip() for step in found.reply.steps if step.strip())
    if why := plan_flaw(steps):
        return (PlanMade(source="model", steps=(), why=f"The planner's reply can't be used: {why}."),)
    return PlanMade(source="model", steps=steps), *found.notices


def acknowledged(plan: tuple[PlanStep, ...], notes: str) -> tuple[Mark, ...]:
    """Return the steps whose status the notes change; of several marks of a step the last one counts."""
    said: dict[int, Status] = {}
    for line in notes.splitlines():
        if found := MARKED.match(line):
            said[int(found[2] or found[3])] = MARKS[found[1]]
    return tuple(
        Mark(number=number, status=said[number])
        for number, step in enumerate(plan, 1)
        if said.get(number, step.status) != step.status
    )
