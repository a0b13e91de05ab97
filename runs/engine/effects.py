"""The whole list of what a run can do to the world, and of what the world can answer.

An effect is asked and later answered; both survive JSON. See docs/runtime.md, "The kernel".
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from runs.engine.values import Json, Value, fingerprint, is_none

Role = Literal["decision", "coordinator", "planner", "summary", "fallback"]
EffectClass = Literal["none", "read", "write", "send", "execute"]
Blame = Literal["transient", "recoverable", "fatal"]
InterruptKind = Literal[
    "tool_call", "question", "every_n_steps", "plan", "limit", "human_approval", "may_have_happened", "manual"
]
Verdict = Literal["approve", "edit", "reject", "respond", "resume", "abort", "rollback", "top_up", "finish"]

VERDICTS: dict[InterruptKind, tuple[Verdict, ...]] = {
    "tool_call": ("approve", "edit", "reject", "respond", "abort", "rollback"),
    "question": ("respond", "abort", "rollback"),
    "limit": ("top_up", "finish", "abort", "rollback"),
    "every_n_steps": ("resume", "abort", "rollback"),
    "manual": ("resume", "abort", "rollback"),
    "human_approval": ("approve", "reject", "abort", "rollback"),
    "plan": ("approve", "edit", "reject", "abort", "rollback"),
    "may_have_happened": ("approve", "respond", "reject", "abort", "rollback"),
}
"""What a person may answer to each kind of interrupt (docs/runtime.md, "Questions")."""


LET_PASS: tuple[Verdict, ...] = ("approve", "edit")
"""Verdicts with which a call that is held back is made."""

BY_HAND = ("web", "admin", "api", "command")
"""Channels of decisions that a person makes in sight of the question."""


def changes_something(effects: str) -> bool:
    """Whether calls of this effect leave something behind; those of no call (empty) do not."""
    return effects not in ("", "none", "read")


class ModelCall(Value):
    """One request to a model. The prompt itself is a rendering of the log up to this ask, and is not kept here."""

    kind: Literal["model_call"] = "model_call"
    role: Role
    reply: str
    """Name of the reply schema, resolved by the machine; `text` where free text is wanted."""
    tail: str = ""
    """What stands at the end of this prompt only."""
    shows: tuple[str, ...] = ()
    """Names whose whole texts stand before the tail, in this prompt only."""
    cacheable: bool = False
    sanitize: bool = False
    """Set after a context-length error: old tool results become stubs."""
    longest: int = 0
    """Characters of one block that this prompt shows at most; 0 where the window sets no bound."""
    input_tokens: int = 0
    reply_tokens: int = 0
    """What the prompt is estimated at, and the longest reply that no limit forbids; 0 where no limit needs to know."""
    at_limit: Literal["ask", "fail", "pass"] = "ask"
    """What a reached limit of the run does to this call."""
    cut: bool = False
    """Whether the reply before this one did not end in order: a second such one in a row ends the run."""
    room: int = 1
    """How many times its usual length the reply may have: 2 after one that was cut off for its length."""
    waited_s: float = Field(default=0.0, exclude_if=operator.not_)
    """Seconds that it has been held back because the model's server was away."""
    waits: int = Field(default=0, exclude_if=operator.not_)
    """How many of its attempts met a server that was away: they are none of the few that other failures have."""
    closes: str = ""
    """The exit reason that the reply ends the run with; empty where a node takes the reply."""


class ToolCall(Value):
    """One call of a tool, with arguments that its schema has accepted."""

    kind: Literal["tool_call"] = "tool_call"
    tool: str
    args: dict[str, Any]
    effects: EffectClass
    idempotent: bool = False
    infra: bool = False
    """Works on the run's own record: no limit holds it, and it is counted nowhere."""

    @property
    def repeatable(self) -> bool:
        """Whether doing it twice harms nobody."""
        return not changes_something(self.effects)

    @property
    def fingerprint(self) -> str:
        """16 hex digits of tool and canonical arguments."""
        return fingerprint(self.tool, self.args)


class Compaction(Value):
    """A summary that is to stand in place of older blocks, and the model call that waits for it."""

    kind: Literal["compaction"] = "compaction"
    first: int
    last: int
    """The rows it covers."""
    updates: int = 0
    """The row of the earlier summary that it carries on; 0 where there is none."""
    version: int = 1
    """The version of that summary which the summariser reads."""
    kept: tuple[int, ...] = ()
    """Rows in the range whose blocks stay as they are."""
    tokens_before: int
    """Estimate of the prompt that is too long."""
    room: int = 0
    """Characters of the blocks that the summariser is shown, where a window bounds it."""
    wanted_by: str = ""
    """The person who asked for it; empty where the prompt was too long."""
    holds: ModelCall
    passed: tuple[str, ...] = ()
    """Names of the gates that have been answered for the call that is held."""


class ChildRun(Value):
    """A named child run, with the goal that the parent gives it. Models, rules and people see a call of a tool."""

    kind: Literal["child_run"] = "child_run"
    name: str
    goal: str

    @property
    def tool(self) -> str:
        """What the call is named."""
        return f"agent.{self.name}"

    @property
    def args(self) -> dict[str, Any]:
        """The call's arguments."""
        return {"goal": self.goal}

    @property
    def effects(self) -> EffectClass:
        """The child asks for itself."""
        return "none"

    @property
    def fingerprint(self) -> str:
        """16 hex digits of tool and canonical arguments."""
        return fingerprint(self.tool, self.args)


class Draft(Value):
    """What an approval lets a machine act on. Its call is no held one: it has all gates still before it."""

    thought: str
    call: ToolCall | ChildRun | None = None
    """The call that the machine asks for next."""
    fault: str = ""
    """Why there is none, where the draft names one."""
    rules: tuple[str, ...] = ()
    """The rules that it breaks."""

    @property
    def tool(self) -> str:
        """The tool of its call."""
        return self.call.tool if self.call else ""

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of its call."""
        return self.call.args if self.call else {}

    @property
    def effects(self) -> str:
        """What its call can change."""
        return self.call.effects if self.call else ""

    @property
    def fingerprint(self) -> str:
        """16 hex digits of its thought and its call."""
        return fingerprint(self.tool, {"thought": self.thought, "args": self.args})


class AtLimit(Value):
    """The figures of a question at a limit, in the limit's own unit."""

    name: str
    used: float
    limit: float
    root: int = 0
    """The run whose limit it is, where others count in it; else 0."""
    left: float | None = None
    """What is left, where that is too little for the next call; None where the limit is reached."""
    aside: float = 0.0
    """What of `used` was only set aside, for calls under way in other runs."""
    rounded: bool = Field(default=False, exclude_if=operator.not_)
    """Whether the figures have only the digits of the title: an earlier version kept no others."""


class HumanCall(Value):
    """A question to a person. It may hold an effect back until it is answered."""

    kind: Literal["human_call"] = "human_call"
    about: InterruptKind
    title: str
    why: str
    """The rule that asked, in words."""
    holds: ModelCall | ToolCall | ChildRun | None = None
    passed: tuple[str, ...] = ()
    """Names of the gates that have been answered for the effect that is held, this one included."""
    limit: str = ""
    """Of kind `limit`: which one."""
    figures: AtLimit | None = Field(default=None, exclude_if=is_none)
    """Of kind `limit`: how far it was used when this was asked."""
    cost_usd: float = Field(default=0.0, exclude_if=operator.not_)
    """What the model call that is held may cost, where a rule asks about that; else 0."""
    host: str = ""
    """The host that the call contacts, where that is what is asked; an approval may allow it for the whole run."""
    model: str = Field(default="", exclude_if=operator.not_)
    """The model that can't be called, where that is what is asked: `resume` may name another one."""
    lost: int = 0
    """Workers in a row that were lost before this question; 0 where it is about something else."""
    faults: int = 0
    """How many of them met a fault of our own code."""
    questions: tuple[str, ...] = ()
    deadline_s: float | None = None
    on_timeout: Literal["deny", "approve", "abort"] = "deny"
    draft: Draft | None = None
    """Of kind `human_approval`: what an approval lets act. None in questions that were asked before it was kept."""

    @property
    def shown(self) -> ToolCall | ChildRun | Draft | None:
        """The call, or the draft, that a person decides on. A call that is answered as a question is none."""
        return None if self.about == "question" else self.draft or call_in(self.holds)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What a person may answer."""
        return VERDICTS[self.about]


def question_of(call: HumanCall) -> str:
    """What tells a question from others of its kind: the exact call or draft, the limit, or its words."""
    if call.shown is not None:
        return call.shown.fingerprint
    return call.limit or fingerprint(call.title, {"questions": list(call.questions)})


Effect = ModelCall | ToolCall | Compaction | ChildRun | HumanCall


def call_in(effect: Effect | None) -> ToolCall | ChildRun | None:
    """The effect, where it is a call that rules look at and people approve."""
    return effect if isinstance(effect, ToolCall | ChildRun) else None


def fingerprint_of(effect: Effect | None) -> str:
    """That of a call; empty where the effect is none."""
    call = call_in(effect)
    return call.fingerprint if call else ""


class Usage(Value):
    """What one model call used: tokens and USD."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = Field(default=False, exclude_if=operator.not_)
    """Whether the tokens are an estimate: the server did not count them, or its count did not arrive."""


def _is_nothing(usage: Usage) -> bool:
    return usage == Usage()


HowEnded = Literal["stop", "length", "content_filter", "error"]
"""How a model's reply ended. Only one that ended in order (`stop`) is ever read."""


class ModelReplied(Value):
    """The model's text, not yet read."""

    kind: Literal["model_replied"] = "model_replied"
    text: str
    usage: Usage = Usage()
    cached: bool = False
    reasoning: str = ""
    """What the model thought before it replied, as far as the server sent it apart. It is shown, and never read."""
    ended: HowEnded = "stop"
    seed: int | None = Field(default=None, exclude_if=is_none)
    """The seed that was sent with the call; None where the model has none."""
    sent_tokens: int = Field(default=0, exclude_if=operator.not_)
    """About how many tokens were sent, where the server counted far fewer; else 0."""


class ContextOverflowed(Value):
    """The prompt was longer than the model takes."""

    kind: Literal["context_overflowed"] = "context_overflowed"
    message: str = ""


class MadeFile(Value):
    """A file that a tool made in the run's own directory."""

    name: str
    text: str = ""
    """Its beginning, as far as a result carries it."""
    size: int = 0
    """Bytes."""
    media_type: str = ""
    sha256: str = ""
    """Of the bytes, in hex: under it they are kept, whatever is written under the name later."""


class ToolReturned(Value):
    """A tool's result. `ran` is false where a person or a rule gave it in the tool's place."""

    kind: Literal["tool_returned"] = "tool_returned"
    value: Json = None
    exit_code: int | None = Field(default=None, exclude_if=is_none)
    """Of the program that the tool ran; a code other than 0 makes the call a failed one."""
    stderr: str = Field(default="", exclude_if=operator.not_)
    files: tuple[MadeFile, ...] = ()
    ran: bool = True
    cached_from: int = Field(default=0, exclude_if=operator.not_)
    """The row of the call whose result is given again; 0 where the call was made."""
    by_asking: bool = False
    """Nobody had heard it from the call itself: the tool was asked afterwards what became of it."""


class Summarised(Value):
    """The text of a summary, or a reply that is none."""

    kind: Literal["summarised"] = "summarised"
    text: str
    usage: Usage = Usage()
    reasoning: str = ""
    ended: HowEnded = "stop"
    seed: int | None = Field(default=None, exclude_if=is_none)
    unfit: str = ""
    """Why the text is no summary; empty where it is one."""


class HumanSaid(Value):
    """A person's decision (or the deadline's)."""

    kind: Literal["human_said"] = "human_said"
    verdict: Verdict
    args: dict[str, Any] | None = None
    message: str = ""
    to_step: int | None = None
    allow_host: bool = False
    """With an approval: the host that was asked about may be contacted for the rest of the run."""
    by: str = ""
    gates: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Gates that it answers beside those of its question."""


class ChildFinished(Value):
    """How a child run ended. `answer` is None where it has none."""

    kind: Literal["child_finished"] = "child_finished"
    run: str
    status: str
    answer: str | None = None
    cost_usd: float = 0.0
    exit_reason: str = Field(default="", exclude_if=operator.not_)
    """Why a child without a result ended; empty in records that were made before it was kept."""
    message: str = Field(default="", exclude_if=operator.not_)
    """The same in the words of the step that ended it."""
    metadata: dict[str, Any] = Field(default={}, exclude_if=operator.not_)
    """Of a fixed node: what is merged into its parent's."""

    @property
    def gave_result(self) -> bool:
        """Whether its answer is its parent's result: it has one, and neither failed nor was cancelled."""
        return self.answer is not None and self.status in ("succeeded", "stopped")


class Failed(Value):
    """What went wrong, and what may be done about it. `ran` tells whether a call took place at all."""

    kind: Literal["failed"] = "failed"
    blame: Blame
    message: str
    ran: bool = True
    wait_s: float = Field(default=0.0, exclude_if=operator.not_)
    """How long the model's server asks to wait; 0 where it does not say."""
    patience_s: float = Field(default=0.0, exclude_if=operator.not_)
    """How long a call that fails so waits in all before a person is asked; 0 where it has its few attempts."""
    asks: bool = Field(default=False, exclude_if=operator.not_)
    """Whether a person is asked at once: the key or the account has to be mended."""
    model: str = Field(default="", exclude_if=operator.not_)
    """The model whose call that was, where its server is away or wants something of a person."""
    fallback: str = Field(default="", exclude_if=operator.not_)
    """The model that takes over once the wait is over; empty where a person is asked."""
    usage: Usage = Field(default=Usage(), exclude_if=_is_nothing)
    """What a model call used that broke off: it is paid all the same."""


Answer = ModelReplied | ContextOverflowed | ToolReturned | Summarised | HumanSaid | ChildFinished | Failed

EFFECT: TypeAdapter[Effect] = TypeAdapter(Annotated[Effect, Field(discriminator="kind")])
ANSWER: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="kind")])
