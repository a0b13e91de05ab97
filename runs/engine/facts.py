"""Conclusions, in the past tense: what rows hold, what state folds from, what prompt and page are renderings of.

The facts that every machine shares stand here; a machine adds its own.
"""

from __future__ import annotations

import operator
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from runs.engine.sources import Source
from runs.engine.values import Json, Value, is_none


class Fact(Value):
    """One conclusion. `kind` is stored, never changes its meaning, and names its template."""

    kind: str


class Notice(Fact):
    """Something the model and the reader should know: a violation, a dropped argument, a retry."""

    kind: Literal["react.notice"] = "react.notice"
    code: str
    message: str
    param: str = ""
    rest: str = ""
    """What of a reply was not read; the model is not shown it again."""
    rule: str = Field(default="", exclude_if=operator.not_)
    """The name of the rule that has it noted; empty where none has, and in older rows."""
    fault: str = Field(default="", exclude_if=operator.not_)
    """Of an answer that does not fit: what is wrong with it; empty in older rows."""


MADE_ANEW = "not_happened"
"""Code of the notice on a call that is made anew: its worker was lost, and the far side says that it did not happen."""

FOUND_OUT = "found_out"
"""Code of the notice beside a result that nobody had heard: the tool was asked what became of the call."""


TRIED_NOW = "tried_now"
"""Code of the notice that a person did not wait for the next attempt at a call."""


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
    exit_code: int | None = Field(default=None, exclude_if=is_none)
    stderr: str = Field(default="", exclude_if=operator.not_)
    cached_from: int = Field(default=0, exclude_if=operator.not_)
    """The row of the call whose result is given again; 0 where the call was made."""
    ran: bool = True
    files: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    """Names of the artifacts that it became, where the machine keeps such."""

    @property
    def of_program(self) -> bool:
        """Whether it says how a program ended, or what it wrote to stderr."""
        return self.exit_code is not None or bool(self.stderr)


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
    estimated: bool = Field(default=False, exclude_if=operator.not_)
    """Whether the tokens are an estimate."""


class DataRead(Fact):
    """The run has read something that may not go to every host."""

    kind: Literal["run.read"] = "run.read"
    what: Literal["private", "untrusted"]
    tool: str
    """The tool that gave it; empty where a parent run gave it with the goal."""
    host: str = ""
    """The host that it came from, to which it may go back; empty where there is none."""
    step: int
    """The row of the call."""
    run: int = Field(default=0, exclude_if=operator.not_)
    """The run that had read it, where this one continues that; 0 where it does not."""


class HostAllowed(Fact):
    """A person allowed a host for the rest of this run."""

    kind: Literal["run.host.allowed"] = "run.host.allowed"
    host: str
    by: str


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
    rule: str = Field(default="", exclude_if=operator.not_)
    """The name of the rule that ends the run; empty where none does, and in older rows."""


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
    allow_host: bool = False


class LimitRaised(Fact):
    """A person added to a limit of the run."""

    kind: Literal["run.limit"] = "run.limit"
    name: str
    added: float
    limit: float
    by: str = ""


class ModelChanged(Fact):
    """From now on the run calls another model."""

    kind: Literal["run.model"] = "run.model"
    before: str
    model: str
    by: str = ""
    """Who chose it; empty where it is the fallback in the profile of the one before."""
    why: str = ""
    """Why the one before can't be called."""


class Paused(Fact):
    """A person, the runtime or a restore paused the run."""

    kind: Literal["run.paused"] = "run.paused"
    by: str
    message: str = ""
    backup: str | None = Field(default=None, exclude_if=is_none)
    """By a restore: when its backup was made (ISO 8601, UTC), empty where that is not known. Else None."""


class Restored(Fact):
    """A restore has brought the run back, or one that it comes from: what it did since the backup is not in its log."""

    kind: Literal["run.restored"] = "run.restored"


class AskedAfterRestore(Fact):
    """This question is asked only because the run was restored: without the restore the log would not have it."""

    kind: Literal["run.restored.asked"] = "run.restored.asked"


class Resumed(Fact):
    """A person let a paused run go on."""

    kind: Literal["run.resumed"] = "run.resumed"
    by: str


class SummaryStands(Fact):
    """The newest summary that stands, where the machine's state keeps it; empty where none stands any more."""

    kind: Literal["run.summary"] = "run.summary"
    text: str


class FeedbackGiven(Fact):
    """What a person said with a verdict, or changed, where the machine's state keeps it."""

    kind: Literal["run.feedback"] = "run.feedback"
    text: str
    by: str


class SiteRulesChanged(Fact):
    """From this row on the site's rules are others than they were for the run so far."""

    kind: Literal["run.site_rules"] = "run.site_rules"
    rules: tuple[dict[str, Any], ...]
    """All of them as they are now, in order."""


class ApprovalLapsed(Fact):
    """What let the run go on counts no more: whoever decided may no longer decide. It is asked anew."""

    kind: Literal["run.approval.lapsed"] = "run.approval.lapsed"
    question: int
    """The row of the question that was answered."""
    verdict: str
    by: str
    channel: str


class RangeSummarised(Fact):
    """From now on the model reads `text` in place of the blocks of the rows `first` to `last`."""

    kind: Literal["conv.range.summary"] = "conv.range.summary"
    first: int
    last: int
    text: str
    tokens_before: int
    """Estimate of the prompt that was too long, and of the one with the summary in it."""
    tokens_after: int
    updates: int = 0
    """The row of the earlier summary that this one carries on; 0 where there is none."""
    kept: tuple[int, ...] = ()
    """Rows in the range whose blocks stay as they are: the plan, what a person pinned or brought back."""
    sources: tuple[Source, ...] = ()
    """The pool so far, so that its numbers can be known without the rows in the range."""


class SummaryEdited(Fact):
    """A person put another text in the place of a summary's; every version is kept."""

    kind: Literal["conv.summary.edited"] = "conv.summary.edited"
    summary: int
    """The row of the compaction."""
    version: int
    """The one that compaction wrote is 1."""
    text: str
    by: str
    reason: str


class SummaryUndone(Fact):
    """A person took a summary back: the model reads the blocks themselves again."""

    kind: Literal["conv.summary.undone"] = "conv.summary.undone"
    summary: int
    by: str
    reason: str


class Pinned(Fact):
    """A person pinned a block (`st:<seq>`) or a summary (`su:<seq>`): no compaction touches it."""

    kind: Literal["conv.pinned"] = "conv.pinned"
    path: str
    rows: tuple[int, ...] = ()
    """The rows of its round, so that a call is not parted from its result."""
    by: str
    reason: str = ""


class Unpinned(Fact):
    """A person took a pin away."""

    kind: Literal["conv.unpinned"] = "conv.unpinned"
    path: str
    by: str
    reason: str = ""


class CompactionWanted(Fact):
    """A person wants the context compacted before the next model call, full or not."""

    kind: Literal["conv.compaction.wanted"] = "conv.compaction.wanted"
    by: str
    reason: str = ""


class Recovered(Fact):
    """A worker was lost; another took the run over."""

    kind: Literal["run.recovered"] = "run.recovered"
    epoch: int
    message: str
    cost_usd: float = 0.0
    """What the model call that was cut off may have cost at most; counted, for nobody will ever tell."""
    tokens: int = 0
    lost: int = 0
    """The epoch of the worker whose call that was: should it answer after all, the guess is taken back."""
    stopped: bool = False
    """Nobody was lost: the worker left in order, and the row is there for what its call may have cost."""
    fault: str = ""
    """The fault of our own code that the worker met; empty where it was lost."""


RECOVERED = TypeAdapter(tuple[Recovered, ...])
"""What a row of kind `recovered` says."""


class HeldBack(Fact):
    """The kill switch kept workers from the run while it wanted one. The model is not told."""

    kind: Literal["run.held_back"] = "run.held_back"
    halt: int
    """The number of the halt; a run's log has one such fact for each."""
    since: str
    """The moment from which a worker could have gone on with the run, and that of the halt's end (ISO 8601, UTC)."""
    until: str = ""
    """Empty where the halt was still on when the row was written."""
    by: str
    """Who threw the switch."""
    reason: str = ""


class Forked(Fact):
    """The run begins as a copy of another one's rows, and goes on by terms and from a state of its own."""

    kind: Literal["run.forked"] = "run.forked"
    run: int
    """The run that it was copied from, and the row up to which."""
    seq: int
    by: str
    message: str = ""
    settings_before: dict[str, Any]
    """What the rows before this one were made by."""
    model_before: str = ""
    changed: dict[str, Any] = {}
    """The settings that are others now, by name; None where one was taken away."""
    state: dict[str, Any] = {}
    """The control values that are others now, by name: whole values."""


class KeptAnswer(Value):
    """What somebody answered to a question before the run went back or was forked, or beforehand in the fork."""

    about: str
    """The kind of the question."""
    question: str
    """What tells it from others (`question_of`)."""
    verdict: str
    args: dict[str, Any] | None = None
    message: str = ""
    allow_host: bool = False
    channel: Literal["kept", "fork"] = "kept"
    """Whether it was given before and is given again, or was given for the first time when the run was forked."""


class AnswersKept(Fact):
    """Where a question comes again that was answered before, that answer is given again; one of a fork likewise."""

    kind: Literal["run.answers.kept"] = "run.answers.kept"
    answers: tuple[KeptAnswer, ...]
    by: str


class EarlierRun(Fact):
    """One run that this one continues: its goal, how it ended, and what it leaves. Read before the goal."""

    kind: Literal["conv.run"] = "conv.run"
    run: int
    goal: str
    reason: str
    """Why the run ended."""
    message: str = ""
    """Why, in the words of the step that ended it."""
    answer: str | None = None
    summary: str = ""
    """The newest summary of its steps; empty where none stands."""
    artifacts: tuple[str, ...] = ()
    """Names of what it made."""


COMMON_FACTS: tuple[type[Fact], ...] = (
    Notice,
    ToolCalled,
    CallEdited,
    ToolReported,
    UserAnswered,
    Spent,
    DataRead,
    HostAllowed,
    InterruptAsked,
    Answered,
    Exited,
    Rewound,
    Decided,
    LimitRaised,
    ModelChanged,
    Paused,
    Restored,
    AskedAfterRestore,
    Resumed,
    Recovered,
    HeldBack,
    SiteRulesChanged,
    ApprovalLapsed,
    RangeSummarised,
    SummaryEdited,
    SummaryUndone,
    SummaryStands,
    Pinned,
    Unpinned,
    CompactionWanted,
    Forked,
    AnswersKept,
    EarlierRun,
)
