"""The model's replies and their readers: a decision, or a contract from the coordinator."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ConfigDict, Field

from runs.engine.effects import ModelReplied
from runs.engine.reply import Read, Unread, read
from runs.engine.tools import ToolSpec, is_harmless
from runs.engine.values import Json, Value
from runs.machines.contract.settings import Hint, SlotType

STRATEGIES = ("explore", "exploit", "render")
ACTIONS = ("call_tool", "decision", "clarify", "complete", "exit")


class Output(Value):
    """An artifact declared by a call."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    name: str | None = None
    kind: str | None = None


class CallReply(Value):
    """The call that a decision asks for; `protocol_verify` judges it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    tool_id: str | None = None
    params: Json = Field(default_factory=dict)
    out_artifacts: tuple[Output, ...] | None = None
    reason: str | None = None

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Return its declared outputs; one without a kind is `inline`."""
        given = self.out_artifacts or ()
        return tuple(one.model_copy(update={"kind": "inline"}) if one.kind is None else one for one in given)


class MapReply(Value):
    """An artifact for one slot."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    slot: str | None = None
    artifact: str | None = None
    draft: bool | None = None
    gaps: str | tuple[str, ...] | None = None


class Reply(Value):
    """A decision as the model replies it; other names are ignored, and null is as good as absent."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    action: str | None = None
    strategy: str | None = None
    focus_slot: str | None = None
    notes: str | None = None
    tool_call: CallReply | None = None
    show_artifacts: tuple[str, ...] | None = None
    show_skills: tuple[str, ...] | None = None
    map_slots: tuple[MapReply, ...] | None = None
    questions: tuple[str, ...] | None = None
    completion_summary: str | None = None

    @property
    def call(self) -> CallReply:
        return self.tool_call or CallReply()

    @property
    def charged(self) -> str | None:
        """Return the strategy that a round is charged to."""
        return self.strategy if self.strategy in STRATEGIES else None


class SlotReply(Value):
    """A slot as the coordinator writes it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    id: str = Field(min_length=1, max_length=60)
    type: SlotType
    description: str | None = None
    format: str | None = None


class HintReply(Hint):
    """A hint as the coordinator writes it."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PlanReply(Value):
    """A contract as the coordinator replies it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    slots: tuple[SlotReply, ...] | None = None
    depth: str | None = None
    plan_shape: str | None = None
    hints: dict[str, HintReply | None] | None = None


def read_decision(replied: ModelReplied, tools: Mapping[str, ToolSpec]) -> Read[Reply] | Unread:
    """Return the decision, or its fault; strategy `exit` makes the action `exit`."""
    found = read(replied, Reply, lambda reply: _is_harmless(reply, tools))
    if isinstance(found, Unread):
        return found
    reply = found.reply
    if reply.strategy == "exit":
        return found._replace(reply=reply.model_copy(update={"action": "exit"}))
    if reply.action not in ACTIONS:
        wrong = f"There is no action {reply.action}." if reply.action else "The reply names no action."
        return Unread(f"{wrong} Use one of {', '.join(ACTIONS)}.", found.notices)
    return found


def _is_harmless(reply: Reply, tools: Mapping[str, ToolSpec]) -> bool:
    """Return True if the decision changes nothing and ends nothing."""
    match reply.action:
        case "call_tool":
            return reply.strategy != "exit" and is_harmless(tools, reply.call.tool_id)
        case "decision" | "clarify":
            return reply.strategy != "exit"
    return False


def read_plan(replied: ModelReplied) -> Read[PlanReply] | Unread:
    """Return the coordinator's contract, or its fault. It calls nothing, so the first of several counts."""
    return read(replied, PlanReply, lambda plan: True)
