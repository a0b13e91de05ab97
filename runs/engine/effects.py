"""Everything that a run can ask of the world, and every answer.

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
"""The verdicts that a person may give to each kind of interrupt (docs/runtime.md, "Questions")."""


LET_PASS: tuple[Verdict, ...] = ("approve", "edit")
"""Verdicts that release a held call."""

BY_HAND = ("web", "admin", "api", "command")
"""Channels of decisions made in sight of the question."""


def changes_something(effects: str) -> bool:
    """Return True if calls of this effect leave something behind; False for no call (empty)."""
    return effects not in ("", "none", "read")


class ModelCall(Value):
    """One request to a model. The prompt itself is a rendering of the log up to this ask, and not stored here."""

    kind: Literal["model_call"] = "model_call"
    role: Role
    reply: str
    """Name of the reply schema, resolved by the machine; `text` for free text."""
    tail: str = ""
    """The end of this prompt only."""
    shows: tuple[str, ...] = ()
    """Names of the artifacts shown in full before the tail, in this prompt only."""
    cacheable: bool = False
    sanitize: bool = False
    """Set after a context-length error: old tool results become stubs."""
    longest: int = 0
    """Most characters of one block in this prompt; 0 if the window sets no bound."""
    input_tokens: int = 0
    reply_tokens: int = 0
    """The prompt's estimate, and the longest reply within the limits; 0 if no limit needs to know."""
    at_limit: Literal["ask", "fail", "pass"] = "ask"
    """The effect of a reached limit on this call."""
    cut: bool = False
    """True if the reply before this one was cut off: a second one in a row ends the run."""
    room: int = 1
    """Factor on the reply's usual length: 2 after a reply that was cut off for its length."""
    waited_s: float = Field(default=0.0, exclude_if=operator.not_)
    """Seconds held back so far because the model's server was away."""
    waits: int = Field(default=0, exclude_if=operator.not_)
    """Attempts at an unavailable server; they do not count against `ATTEMPTS`."""
    switched: bool = Field(default=False, exclude_if=operator.not_)
    """True for the first call of a fallback, until the gates have looked at it again."""
    closes: str = ""
    """The exit reason with which the reply ends the run; empty if a node takes the reply."""


class ToolCall(Value):
    """One call of a tool, with arguments accepted by its schema."""

    kind: Literal["tool_call"] = "tool_call"
    tool: str
    args: dict[str, Any]
    effects: EffectClass
    idempotent: bool = False
    infra: bool = False
    """Works on the run's own record: no limit holds or counts it."""
    resumes: int = Field(default=0, exclude_if=operator.not_)
    """The step of the call whose script goes on, with the results of its calls so far; 0 for any other call."""
    script: int = Field(default=0, exclude_if=operator.not_)
    """The step of the call whose script makes this one; 0 if the model does."""

    @property
    def repeatable(self) -> bool:
        """Return True if a second call does no harm."""
        return not changes_something(self.effects)

    @property
    def fingerprint(self) -> str:
        """Return 16 hex digits of tool and canonical arguments."""
        return fingerprint(self.tool, self.args)


class Compaction(Value):
    """A planned summary of older blocks, and the model call that waits for it."""

    kind: Literal["compaction"] = "compaction"
    first: int
    last: int
    """The covered steps."""
    updates: int = 0
    """The step of the earlier summary that it carries on; 0 if there is none."""
    version: int = 1
    """The version of that summary read by the summariser."""
    kept: tuple[int, ...] = ()
    """Steps in the range whose blocks stay as they are."""
    tokens_before: int
    """Estimate of the too long prompt."""
    room: int = 0
    """Characters of the blocks shown to the summariser, if a window bounds it."""
    wanted_by: str = ""
    """The person who requested it; empty if the prompt was too long."""
    holds: ModelCall
    passed: tuple[str, ...] = ()
    """Names of the gates already answered for the held call."""


class ChildRun(Value):
    """A named child run, with a goal from its parent. Models, rules and people see a call of a tool."""

    kind: Literal["child_run"] = "child_run"
    name: str
    goal: str
    script: int = Field(default=0, exclude_if=operator.not_)
    """As of `ToolCall`."""

    @property
    def tool(self) -> str:
        """Return the call's name."""
        return f"agent.{self.name}"

    @property
    def args(self) -> dict[str, Any]:
        return {"goal": self.goal}

    @property
    def effects(self) -> EffectClass:
        """Return `none`: the child asks for itself."""
        return "none"

    @property
    def fingerprint(self) -> str:
        """Return 16 hex digits of tool and canonical arguments."""
        return fingerprint(self.tool, self.args)


class Draft(Value):
    """The step or call that an approval lets a machine act on. Its call is not held yet: all gates still come before
    it."""

    thought: str
    call: ToolCall | ChildRun | None = None
    """The next call of the machine."""
    fault: str = ""
    """Why there is no call, if the draft names a fault."""
    rules: tuple[str, ...] = ()
    """The rules broken by the draft."""

    @property
    def tool(self) -> str:
        """Return the tool of its call."""
        return self.call.tool if self.call else ""

    @property
    def args(self) -> dict[str, Any]:
        """Return the arguments of its call."""
        return self.call.args if self.call else {}

    @property
    def effects(self) -> str:
        """Return the effect of its call."""
        return self.call.effects if self.call else ""

    @property
    def fingerprint(self) -> str:
        """Return 16 hex digits of its thought and its call."""
        return fingerprint(self.tool, {"thought": self.thought, "args": self.args})


class AtLimit(Value):
    """The figures of a question at a limit, in the limit's own unit."""

    name: str
    used: float
    limit: float
    root: int = 0
    """The run that owns the limit if other runs share it; else 0."""
    left: float | None = None
    """The amount left, if too little for the next call; None if the limit is reached."""
    aside: float = 0.0
    """The part of `used` that is only reserved, for calls in flight in other runs."""
    rounded: bool = Field(default=False, exclude_if=operator.not_)
    """True if the figures have only the digits of the title: an earlier version kept no others."""


class HumanCall(Value):
    """A question to a person. It may hold an effect back until it is answered."""

    kind: Literal["human_call"] = "human_call"
    about: InterruptKind
    title: str
    why: str
    """The asking rule, in words."""
    holds: ModelCall | ToolCall | ChildRun | None = None
    passed: tuple[str, ...] = ()
    """Names of the gates answered for the held effect, this one included."""
    limit: str = ""
    """Of kind `limit`: its name."""
    figures: AtLimit | None = Field(default=None, exclude_if=is_none)
    """Of kind `limit`: its use when this was asked."""
    cost_usd: float = Field(default=0.0, exclude_if=operator.not_)
    """The held model call's largest cost, if a rule asks about it; else 0."""
    host: str = ""
    """The host that the call contacts, if the question is about it; an approval may allow it for the whole run."""
    model: str = Field(default="", exclude_if=operator.not_)
    """The model that can't be called, if the question is about it: `resume` may name another one."""
    lost: int = 0
    """Workers lost in a row before this question; 0 if it is about something else."""
    faults: int = 0
    """How many of them met a fault of our own code."""
    questions: tuple[str, ...] = ()
    deadline_s: float | None = None
    on_timeout: Literal["deny", "approve", "abort"] = "deny"
    draft: Draft | None = None
    """Of kind `human_approval`: the draft to approve. None in questions asked before it was stored."""

    @property
    def shown(self) -> ToolCall | ChildRun | Draft | None:
        """Return the call, or the draft, to decide on; None for a call that is answered as a question."""
        return None if self.about == "question" else self.draft or call_in(self.holds)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Return the possible verdicts."""
        return VERDICTS[self.about]


def question_of(call: HumanCall) -> str:
    """Return the mark that sets a question apart from others of its kind: the exact call or draft, the limit, or its
    words."""
    if call.shown is not None:
        return call.shown.fingerprint
    return call.limit or fingerprint(call.title, {"questions": list(call.questions)})


Effect = ModelCall | ToolCall | Compaction | ChildRun | HumanCall


def call_in(effect: Effect | None) -> ToolCall | ChildRun | None:
    """Return the effect if it is a call for rules and approvals."""
    return effect if isinstance(effect, ToolCall | ChildRun) else None


def fingerprint_of(effect: Effect | None) -> str:
    """Return the fingerprint of a call; empty if the effect is no call."""
    call = call_in(effect)
    return call.fingerprint if call else ""


class Usage(Value):
    """Tokens and USD used by one model call."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = Field(default=False, exclude_if=operator.not_)
    """True if the tokens are an estimate: the server did not count them, or its count did not arrive."""


def _is_nothing(usage: Usage) -> bool:
    return usage == Usage()


HowEnded = Literal["stop", "length", "content_filter", "error"]
"""How a model's reply ended. Only a complete one (`stop`) is ever read."""


class ModelReplied(Value):
    """The model's text, not yet read."""

    kind: Literal["model_replied"] = "model_replied"
    text: str
    usage: Usage = Usage()
    cached: bool = False
    reasoning: str = ""
    """The model's thoughts before its reply, if the server sent them apart. Shown, never read."""
    ended: HowEnded = "stop"
    seed: int | None = Field(default=None, exclude_if=is_none)
    """The seed sent with the call; None if the model has none."""
    sent_tokens: int = Field(default=0, exclude_if=operator.not_)
    """About how many tokens were sent, if the server counted far fewer; else 0."""


class ContextOverflowed(Value):
    """The prompt was longer than the model takes."""

    kind: Literal["context_overflowed"] = "context_overflowed"
    message: str = ""


class MadeFile(Value):
    """A file made by a tool in the run's own directory."""

    name: str
    text: str = ""
    """Its beginning, as far as a result carries it."""
    size: int = 0
    """Bytes."""
    media_type: str = ""
    sha256: str = ""
    """SHA-256 of the bytes, in hex: the key under which they stay stored after a later write to the name."""


class ToolReturned(Value):
    """A tool's result. `ran` is false if a person or a rule gave it in the tool's place."""

    kind: Literal["tool_returned"] = "tool_returned"
    value: Json = None
    exit_code: int | None = Field(default=None, exclude_if=is_none)
    """Exit code of the program that the tool ran; any other than 0 makes the call a failed one."""
    stderr: str = Field(default="", exclude_if=operator.not_)
    files: tuple[MadeFile, ...] = ()
    ran: bool = True
    cached_from: int = Field(default=0, exclude_if=operator.not_)
    """The step of the repeated call's result; 0 if the call was made."""
    by_asking: bool = False
    """The result was lost with the call; the tool was asked for it afterwards."""


class ScriptCalled(Value):
    """A script, run by a tool, waits for the result of a call of another tool."""

    kind: Literal["script_called"] = "script_called"
    tool: str
    args: dict[str, Any]


class Summarised(Value):
    """The text of a summary, or a reply that is none."""

    kind: Literal["summarised"] = "summarised"
    text: str
    usage: Usage = Usage()
    reasoning: str = ""
    ended: HowEnded = "stop"
    seed: int | None = Field(default=None, exclude_if=is_none)
    unfit: str = ""
    """Why the text is no summary; empty if it is one."""


class HumanSaid(Value):
    """A person's decision (or the deadline's)."""

    kind: Literal["human_said"] = "human_said"
    verdict: Verdict
    args: dict[str, Any] | None = None
    message: str = ""
    to_step: int | None = None
    allow_host: bool = False
    """With an approval: the host in question may be contacted for the rest of the run."""
    by: str = ""
    gates: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Gates that it answers beside those of its question."""


class ChildFinished(Value):
    """How a child run ended. `answer` is None if it has none."""

    kind: Literal["child_finished"] = "child_finished"
    run: str
    status: str
    answer: str | None = None
    cost_usd: float = 0.0
    exit_reason: str = Field(default="", exclude_if=operator.not_)
    """Why a child without a result ended; empty in records made before it was stored."""
    message: str = Field(default="", exclude_if=operator.not_)
    """The same in the words of its last step."""
    metadata: dict[str, Any] = Field(default={}, exclude_if=operator.not_)
    """Of a fixed node: the state merged into its parent's."""

    @property
    def gave_result(self) -> bool:
        """Return True if its answer is its parent's result: it has one, and neither failed nor was cancelled."""
        return self.answer is not None and self.status in ("succeeded", "stopped")


class Failed(Value):
    """An error, and its possible remedy. `ran` tells whether a call took place at all."""

    kind: Literal["failed"] = "failed"
    blame: Blame
    message: str
    ran: bool = True
    wait_s: float = Field(default=0.0, exclude_if=operator.not_)
    """Seconds that the model's server asks to wait; 0 if it does not say."""
    patience_s: float = Field(default=0.0, exclude_if=operator.not_)
    """Seconds that such a call waits in all before a person is asked; 0 if it has the usual few attempts."""
    asks: bool = Field(default=False, exclude_if=operator.not_)
    """True if a person is asked at once: the key or the account needs mending."""
    model: str = Field(default="", exclude_if=operator.not_)
    """The model of the failed call, if its server is away or needs a person."""
    fallback: str = Field(default="", exclude_if=operator.not_)
    """The model that takes over after the wait; empty if a person is asked."""
    usage: Usage = Field(default=Usage(), exclude_if=_is_nothing)
    """Usage of a model call that broke off: it is billed all the same."""


Answer = (
    ModelReplied
    | ContextOverflowed
    | ToolReturned
    | ScriptCalled
    | Summarised
    | HumanSaid
    | ChildFinished
    | Failed
)

EFFECT: TypeAdapter[Effect] = TypeAdapter(Annotated[Effect, Field(discriminator="kind")])
ANSWER: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="kind")])
