"""Conclusions, in the past tense: what rows hold, what state folds from, what prompt and page are renderings of.

The facts that every machine shares stand here; a machine adds its own.
"""

from __future__ import annotations

from typing import Any, Literal

from runs.engine.values import Json, Value


class Fact(Value):
    """One conclusion. `kind` is the spec's string, and names its template."""

    kind: str


class Notice(Fact):
    """Something the model and the reader should know: a violation, a dropped argument, a retry."""

    kind: Literal["react.notice"] = "react.notice"
    code: str
    message: str
    param: str = ""


class ToolCalled(Fact):
    """The run reached a call of a tool."""

    kind: Literal["react.tool.call"] = "react.tool.call"
    tool: str
    args: dict[str, Any]


class CallEdited(Fact):
    """A person changed the arguments before the call ran; the model is told."""

    kind: Literal["react.tool.edited"] = "react.tool.edited"
    tool: str
    args: dict[str, Any]
    by: str
    message: str = ""


class ToolReported(Fact):
    """What came of a call. `ran` is false where it was refused, answered for, or at fault."""

    kind: Literal["react.tool.result"] = "react.tool.result"
    tool: str
    value: Json = None
    error: str | None = None
    ran: bool = True
    files: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    """Names of the artifacts that it became, where the machine keeps such."""


class UserAnswered(Fact):
    """A person's words, given to the model."""

    kind: Literal["user.answer"] = "user.answer"
    text: str
    by: str = ""


class Spent(Fact):
    """What an answer cost (a cached one nothing)."""

    kind: Literal["run.spent"] = "run.spent"
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


class InterruptAsked(Fact):
    """The multiple at which a rule asked, so that it asks once for each."""

    kind: Literal["run.asked"] = "run.asked"
    rule: str
    multiple: int


class Answered(Fact):
    """The run's answer."""

    kind: Literal["run.answer"] = "run.answer"
    text: str
    source: Literal["final_answer", "fallback"] | None = None


class Exited(Fact):
    """Why the run ends. Written once; a later reason never replaces it."""

    kind: Literal["react.exit"] = "react.exit"
    reason: str
    message: str = ""


class Rewound(Fact):
    """The run went back. `kept` holds what the machine takes along from the head."""

    kind: Literal["run.rewound"] = "run.rewound"
    from_seq: int
    to_seq: int
    kept: dict[str, Any] = {}
    by: str = ""
    message: str = ""


class Decided(Fact):
    """A decision on an interrupt, on the row that a person (or the deadline) adds."""

    kind: Literal["run.decided"] = "run.decided"
    interrupt: str
    about: str
    verdict: str
    by: str
    channel: str
    message: str = ""
    args: dict[str, Any] | None = None
    to_step: int | None = None


class LimitRaised(Fact):
    """A person added to a limit of the run."""

    kind: Literal["run.limit"] = "run.limit"
    name: str
    added: float
    limit: float
    by: str = ""


class Paused(Fact):
    """A person paused the run."""

    kind: Literal["run.paused"] = "run.paused"
    by: str
    message: str = ""


class Resumed(Fact):
    """A person let a paused run go on."""

    kind: Literal["run.resumed"] = "run.resumed"
    by: str


class Recovered(Fact):
    """A worker was lost; another took the run over."""

    kind: Literal["run.recovered"] = "run.recovered"
    epoch: int
    message: str


COMMON_FACTS: tuple[type[Fact], ...] = (
    Notice,
    ToolCalled,
    CallEdited,
    ToolReported,
    UserAnswered,
    Spent,
    InterruptAsked,
    Answered,
    Exited,
    Rewound,
    Decided,
    LimitRaised,
    Paused,
    Resumed,
    Recovered,
)
