"""Conclusions, in the past tense: steps hold them, state is folded from them, prompt and page render them.

This module has the facts that every machine shares; a machine adds its own.
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
    """A remark for the model and the reader: a violation, a dropped argument, a retry."""

    kind: Literal["react.notice"] = "react.notice"
    code: str
    message: str
    param: str = ""
    rest: str = ""
    """The unread rest of a reply; the model is not shown it again."""
    rule: str = Field(default="", exclude_if=operator.not_)
    """The name of the noting rule; empty if there is none, and in older steps."""
    fault: str = Field(default="", exclude_if=operator.not_)
    """Of an unfit answer: its fault; empty in older steps."""


MADE_ANEW = "not_happened"
"""Code of the notice on a retry: the worker was lost, and the far side says that the call did not happen."""

FOUND_OUT = "found_out"
"""Code of the notice beside a result with a lost answer: the tool was asked for it afterwards."""


TRIED_NOW = "tried_now"
"""Code of the notice that a person skipped the wait for a call's next attempt."""


class ToolCalled(Fact):
    """The run reached a call of a tool."""

    kind: Literal["react.tool.call"] = "react.tool.call"
    tool: str
    args: dict[str, Any]
    script: int = Field(default=0, exclude_if=operator.not_)
    """The step of the call whose script makes this one; 0 if the model does."""


class CallEdited(Fact):
    """A person changed the arguments before the call ran; the model is told."""

    kind: Literal["react.tool.edited"] = "react.tool.edited"
    tool: str
    args: dict[str, Any]
    by: str
    message: str = ""
    script: int = Field(default=0, exclude_if=operator.not_)
    """As of `ToolCalled`."""


class ToolReported(Fact):
    """The result of a call. `ran` is false if it was refused, answered for, or at fault."""

    kind: Literal["react.tool.result"] = "react.tool.result"
    tool: str
    value: Json = None
    error: str | None = None
    exit_code: int | None = Field(default=None, exclude_if=is_none)
    stderr: str = Field(default="", exclude_if=operator.not_)
    cached_from: int = Field(default=0, exclude_if=operator.not_)
    """The step of the repeated call's result; 0 if the call was made."""
    ran: bool = True
    files: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    """Names of the artifacts made from it, if the machine keeps such."""
    script: int = Field(default=0, exclude_if=operator.not_)
    """As of `ToolCalled`: then the script gets it, not the model."""

    @property
    def of_program(self) -> bool:
        """Return True if it tells a program's end, or its stderr."""
        return self.exit_code is not None or bool(self.stderr)


def is_of_script(fact: Fact) -> bool:
    """Return True if the fact is about a call that a script makes: machine and model see only the script's end."""
    return isinstance(fact, ToolCalled | CallEdited | ToolReported) and fact.script > 0


class UserAnswered(Fact):
    """A person's words, given to the model."""

    kind: Literal["user.answer"] = "user.answer"
    text: str
    by: str = ""


class Spent(Fact):
    """The cost of an answer (0 for a cached one)."""

    kind: Literal["run.spent"] = "run.spent"
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = Field(default=False, exclude_if=operator.not_)
    """True if the tokens are an estimate."""


class DataRead(Fact):
    """The run has read data not meant for every host."""

    kind: Literal["run.read"] = "run.read"
    what: Literal["private", "untrusted"]
    tool: str
    """The tool that gave it; empty if a parent run gave it with the goal."""
    host: str = ""
    """The host that it came from, to which it may go back; empty if there is none."""
    step: int
    """The step of the call."""
    run: int = Field(default=0, exclude_if=operator.not_)
    """The earlier run with the read, if this run continues it; else 0."""


class HostAllowed(Fact):
    kind: Literal["run.host.allowed"] = "run.host.allowed"
    host: str
    by: str


class InterruptAsked(Fact):
    """The multiple at which a rule asked: it asks once for each."""

    kind: Literal["run.asked"] = "run.asked"
    rule: str
    multiple: int


class Answered(Fact):
    kind: Literal["run.answer"] = "run.answer"
    text: str
    source: Literal["final_answer", "fallback"] | None = None


class Exited(Fact):
    """Why the run ends. Written once; a later reason never replaces it."""

    kind: Literal["react.exit"] = "react.exit"
    reason: str
    message: str = ""
    rule: str = Field(default="", exclude_if=operator.not_)
    """The name of the ending rule; empty if there is none, and in older steps."""


class Rewound(Fact):
    """The run was rolled back. `kept` holds the values that the machine takes along from the head."""

    kind: Literal["run.rewound"] = "run.rewound"
    from_seq: int
    to_seq: int
    kept: dict[str, Any] = {}
    by: str = ""
    message: str = ""


class Decided(Fact):
    """A decision on an interrupt, on the step added by a person (or the deadline)."""

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
    """The person who chose it; empty if it is the fallback in the previous model's profile."""
    why: str = ""
    """Why the previous model can't be called."""


class Paused(Fact):
    """A person, the runtime or a restore paused the run."""

    kind: Literal["run.paused"] = "run.paused"
    by: str
    message: str = ""
    backup: str | None = Field(default=None, exclude_if=is_none)
    """By a restore: when its backup was made (ISO 8601, UTC), empty if unknown. Else None."""


class Restored(Fact):
    """A restore brought back the run, or one that it comes from. Its log lacks everything done since the backup."""

    kind: Literal["run.restored"] = "run.restored"


class AskedAfterRestore(Fact):
    """This question is asked only because the run was restored: without the restore the log would not have it."""

    kind: Literal["run.restored.asked"] = "run.restored.asked"


class Resumed(Fact):
    """A person resumed a paused run."""

    kind: Literal["run.resumed"] = "run.resumed"
    by: str


class SummaryStands(Fact):
    """The newest active summary, if the machine's state keeps it; empty if none is active any more."""

    kind: Literal["run.summary"] = "run.summary"
    text: str


class FeedbackGiven(Fact):
    """A person's words with a verdict, or their change, if the machine's state keeps it."""

    kind: Literal["run.feedback"] = "run.feedback"
    text: str
    by: str


class SiteRulesChanged(Fact):
    """From this step on the site's rules differ from those before."""

    kind: Literal["run.site_rules"] = "run.site_rules"
    rules: tuple[dict[str, Any], ...]
    """All of them as they are now, in order."""


class ApprovalLapsed(Fact):
    """An approval no longer counts: its author may no longer decide. The question opens again."""

    kind: Literal["run.approval.lapsed"] = "run.approval.lapsed"
    question: int
    """The step of the answered question."""
    verdict: str
    by: str
    channel: str


class RangeSummarised(Fact):
    """From now on the model reads `text` in place of the blocks of the steps `first` to `last`."""

    kind: Literal["conv.range.summary"] = "conv.range.summary"
    first: int
    last: int
    text: str
    tokens_before: int
    """Estimate of the prompt that was too long, and of the one with the summary in it."""
    tokens_after: int
    updates: int = 0
    """The step of the earlier summary that this one carries on; 0 if there is none."""
    kept: tuple[int, ...] = ()
    """Steps in the range with kept blocks: the plan, and blocks that a person pinned or brought back."""
    sources: tuple[Source, ...] = ()
    """The pool so far, so its numbers are known without the steps in the range."""


class SummaryEdited(Fact):
    """A person replaced the text of a summary; every version is kept."""

    kind: Literal["conv.summary.edited"] = "conv.summary.edited"
    summary: int
    """The step of the compaction."""
    version: int
    """The compaction's own version is 1."""
    text: str
    by: str
    reason: str


class SummaryUndone(Fact):
    """A person reverted a summary: the model reads the blocks themselves again."""

    kind: Literal["conv.summary.undone"] = "conv.summary.undone"
    summary: int
    by: str
    reason: str


class Pinned(Fact):
    """A person pinned a block (`st:<seq>`) or a summary (`su:<seq>`): no compaction touches it."""

    kind: Literal["conv.pinned"] = "conv.pinned"
    path: str
    rows: tuple[int, ...] = ()
    """The steps of its turn, so a call is not parted from its result."""
    by: str
    reason: str = ""


class Unpinned(Fact):
    """A person removed a pin."""

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
    """Largest cost of the model call that was cut off; counted, for its true cost stays unknown."""
    tokens: int = 0
    lost: int = 0
    """The epoch of the lost worker: if its answer arrives after all, the guess is corrected."""
    stopped: bool = False
    """No worker was lost: it left in order, and the step records the possible cost of its call."""
    fault: str = ""
    """The fault of our own code that the worker met; empty if it was lost."""


RECOVERED = TypeAdapter(tuple[Recovered, ...])
"""Reads the facts of a step of kind `recovered`."""


class HeldBack(Fact):
    """The kill switch kept workers from a run that wanted one. The model is not told."""

    kind: Literal["run.held_back"] = "run.held_back"
    halt: int
    """The number of the halt; a run's log has one such fact for each."""
    since: str
    """When a worker could have gone on with the run, and when the halt ended (ISO 8601, UTC)."""
    until: str = ""
    """Empty if the halt was still on when the step was written."""
    by: str
    """The person behind the switch."""
    reason: str = ""


class Forked(Fact):
    """The run begins as a copy of another run's steps, and goes on with its own terms and state."""

    kind: Literal["run.forked"] = "run.forked"
    run: int
    """The source run, and its last copied step."""
    seq: int
    by: str
    message: str = ""
    settings_before: dict[str, Any]
    """The settings behind the steps before this one."""
    model_before: str = ""
    changed: dict[str, Any] = {}
    """The changed settings, by name; None for a removed one."""
    state: dict[str, Any] = {}
    """The changed control values, by name: whole values."""


class KeptAnswer(Value):
    """A person's answer to a question: from before a rollback or fork, or given in advance for the fork."""

    about: str
    """The kind of the question."""
    question: str
    """The question's mark (`question_of`)."""
    verdict: str
    args: dict[str, Any] | None = None
    message: str = ""
    allow_host: bool = False
    channel: Literal["kept", "fork"] = "kept"
    """`kept`: given before and repeated. `fork`: given for the first time when the run was forked."""


class AnswersKept(Fact):
    """Answers that are repeated when their questions come again, or given in advance for a fork."""

    kind: Literal["run.answers.kept"] = "run.answers.kept"
    answers: tuple[KeptAnswer, ...]
    by: str


class EarlierRun(Fact):
    """An earlier run that this one continues: its goal, its end and its results. Read before the goal."""

    kind: Literal["conv.run"] = "conv.run"
    run: int
    goal: str
    reason: str
    """Why the run ended."""
    message: str = ""
    """Why, in the words of its last step."""
    answer: str | None = None
    summary: str = ""
    """The newest active summary of its steps; empty if there is none."""
    artifacts: tuple[str, ...] = ()
    """Names of its artifacts."""


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
