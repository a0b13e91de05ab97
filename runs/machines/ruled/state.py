"""The control state of `ruled`, and how facts change it."""

from __future__ import annotations

import operator
from typing import Any, Literal

from pydantic import ConfigDict, Field

from runs.engine.effects import HumanCall, HumanSaid, call_in
from runs.engine.facts import (
    Answered,
    CallEdited,
    Exited,
    Fact,
    FeedbackGiven,
    Rewound,
    Spent,
    SummaryStands,
    ToolReported,
)
from runs.engine.machine import State, Terms, evolve_common
from runs.engine.values import Value, add_cost, canonical
from runs.machines.ruled.facts import (
    DraftApproved,
    DraftPassed,
    DraftRejected,
    DraftReturned,
    ReplyUnread,
    RuleBroken,
    StepCommitted,
    StepObserved,
    SubgraphMerged,
    Thought,
)
from runs.machines.ruled.settings import RuledSettings

MOST_FEEDBACK = 2_000
"""Characters of an entry of `user_feedback`."""


HISTORY = 20
"""Most entries of `tool_history` and `user_feedback` in the state, so its size has a bound."""


class Draft(Value):
    """The step at hand: its thought, its action, its progress."""

    thought: str
    tool: str | None = None
    args: dict[str, Any] = {}
    status: Literal["draft", "validated", "executed", "failed"] = "draft"


class Metadata(Value):
    """The extended state, with the values left by fixed subgraphs."""

    model_config = ConfigDict(frozen=True, extra="allow")
    goal: str
    retry_count: int = 0
    retry_reason: str = ""
    rule: str = ""
    total_cost: float = 0.0
    tool_history: tuple[str, ...] = ()
    summary: str = ""
    user_feedback: dict[str, str] = {}
    rolled_back_from: int | None = None
    rolled_back_to: int | None = None
    fatal_error: str = ""


class RuledState(State):
    steps: int = 0
    unread_replies: int = 0
    rejections: int = 0
    draft: Draft | None = None
    final: bool = False
    merged: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """The fixed subgraphs that have run."""
    metadata: Metadata

    @property
    def settings(self) -> RuledSettings:
        assert isinstance(self.terms.settings, RuledSettings)
        return self.terms.settings


def open_state(terms: Terms) -> RuledState:
    """Return the state before the first step."""
    return RuledState(terms=terms, metadata=Metadata(goal=terms.goal))


def _with(state: RuledState, metadata: dict[str, Any], **changes: Any) -> RuledState:
    changes["metadata"] = state.metadata.model_copy(update=metadata)
    return state.model_copy(update=changes)


def _drafted(state: RuledState, **changes: Any) -> RuledState:
    assert state.draft is not None
    return state.model_copy(update={"draft": state.draft.model_copy(update=changes)})


def evolve(state: RuledState, fact: Fact) -> State:
    """Fold a fact into the state: one case a fact."""
    meta = state.metadata
    match fact:
        case Spent(cost_usd=cost):
            return _with(state, {"total_cost": add_cost(meta.total_cost, cost)})
        case Thought(thought=thought, tool=tool, args=args):
            draft = Draft(thought=thought, tool=tool, args=args)
            return state.model_copy(update={"draft": draft, "unread_replies": 0})
        case ReplyUnread():
            return state.model_copy(update={"unread_replies": state.unread_replies + 1})
        case DraftPassed():
            return _with(_drafted(state, status="validated"), {"retry_count": 0, "retry_reason": ""})
        case DraftRejected(reason=reason):
            return _with(state, {"retry_count": meta.retry_count + 1, "retry_reason": reason})
        case DraftApproved(message=message):
            feedback = _feedback(state, message or "approved")
            return _with(
                _drafted(state, status="validated"), {"retry_count": 0, "retry_reason": "", **feedback}
            )
        case DraftReturned(message=message):
            feedback = _feedback(state, message or "rejected")
            return _with(state, feedback, rejections=state.rejections + 1, draft=None)
        case SummaryStands(text=text):
            return _with(state, {"summary": text})
        case FeedbackGiven(text=text):
            return _with_feedback(state, text)
        case RuleBroken(rule=rule):
            return _with(state, {"rule": rule})
        case CallEdited(tool=tool, args=args):
            return _drafted(state, args=args) if state.draft and state.draft.tool == tool else state
        case SubgraphMerged(name=name, metadata=new):
            return _with(state, new, merged=(*state.merged, name))
        case ToolReported(tool=tool, error=error, ran=ran):
            history = (*meta.tool_history, tool)[-HISTORY:] if ran else meta.tool_history
            return _with(
                _drafted(state, status="failed" if error is not None else "executed"),
                {"tool_history": history},
            )
        case StepObserved(status=status):
            return _drafted(state, status=status)
        case StepCommitted(number=number):
            return state.model_copy(update={"steps": number, "draft": None})
        case Answered(source=None):
            return evolve_common(state.model_copy(update={"final": True}), fact)
        case Exited(reason="fatal_error", message=message):
            return evolve_common(_with(state, {"fatal_error": message}), fact)
        case Rewound(from_seq=head, to_seq=to, kept=kept):
            return _with(
                state,
                {
                    "rolled_back_from": head,
                    "rolled_back_to": to,
                    "total_cost": kept.get("total_cost", meta.total_cost),
                },
                rejections=kept.get("rejections", state.rejections),
            )
    return evolve_common(state, fact)


def feedback(call: HumanCall | None, said: HumanSaid) -> tuple[Fact, ...]:
    """Return a person's words or change, on a question or a rollback; other facts tell the verdict on a draft."""
    if call is not None and call.about == "human_approval":
        return ()
    held = call_in(call.holds) if call else None
    changed = (
        f"Changed {held.tool} to {canonical(said.args or {})}." if held and said.verdict == "edit" else ""
    )
    text = " ".join(filter(None, (changed, said.message.strip())))
    if len(text) > MOST_FEEDBACK:
        text = f"{text[: MOST_FEEDBACK - 1]}…"
    return (FeedbackGiven(text=text, by=said.by),) if text else ()


def _with_feedback(state: RuledState, text: str) -> RuledState:
    """Add an entry for the step at hand; beside an existing one."""
    entries, key = state.metadata.user_feedback, f"step_{state.steps + 1}"
    if number := sum(name == key or name.startswith(f"{key}_") for name in entries):
        key = f"{key}_{number + 1}"
    return _with(state, {"user_feedback": dict([*entries.items(), (key, text)][-HISTORY:])})


def _feedback(state: RuledState, text: str) -> dict[str, Any]:
    entries = {**state.metadata.user_feedback, f"step_{state.steps + 1}": text}
    return {"user_feedback": dict(list(entries.items())[-HISTORY:])}


def kept(state: RuledState) -> dict[str, Any]:
    """Return the values that a rollback keeps: costs and rejections."""
    return {"total_cost": state.metadata.total_cost, "rejections": state.rejections}
