"""`ruled`: every thought is validated by rules before it may act.

Pure functions: the settings, the facts, the state and its fold, the five nodes, and the words for the model.
See docs/machines.md, "ruled".
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import regex
from pydantic import ConfigDict, Field, model_validator

from runs.engine import effects
from runs.engine.effects import (
    Answer,
    ChildFinished,
    ChildRun,
    Failed,
    HumanCall,
    HumanSaid,
    ModelCall,
    ModelReplied,
    ToolCall,
    ToolReturned,
    call_in,
)
from runs.engine.facts import (
    Answered,
    CallEdited,
    Exited,
    Fact,
    FeedbackGiven,
    Notice,
    Rewound,
    Spent,
    SummaryStands,
    ToolCalled,
    ToolReported,
)
from runs.engine.kernel import Fatal, UnexpectedAnswer
from runs.engine.machine import COMMON_EXITS, END, BudgetRow, Edge, Machine, State, Terms, evolve_common
from runs.engine.moves import Ask, Go
from runs.engine.reply import Unread, read
from runs.engine.reporting import reported
from runs.engine.settings import MOST_ROUNDS, Settings
from runs.engine.tools import check_arguments, is_harmless
from runs.engine.values import Value, add_cost, canonical
from runs.machines.prompts import ruled as words

REPLIES = 3
"""How often a reply that does not parse is asked for in all."""

RETRIES = 3
"""Rejected drafts in a row before a person is asked."""

FINAL = "FINAL ANSWER"

PATTERN_S = 0.5
"""Seconds that one search of a `forbid_pattern` may take."""

GUESSES = ("I guess", "probably", "I'm not sure", "might be", "could be")

MOST_FEEDBACK = 2_000
"""Characters of an entry of `user_feedback`."""

HISTORY = 20
"""How many entries of `tool_history` and `user_feedback` the state keeps, so that its size has a bound."""


# --- settings ---------------------------------------------------------------------------------------------------


class RulesetRule(Value):
    """One rule on thoughts. What `value` means depends on the type; None is the default."""

    type: Literal["max_depth", "cost_limit", "forbid_guessing", "require_tool_use", "forbid_pattern"]
    value: int | float | str | tuple[str, ...] | None = None
    enabled: bool = True
    severity: Literal["terminal", "retryable"] | None = None

    @model_validator(mode="after")
    def _value_fits(self) -> RulesetRule:
        match self.type:
            case "max_depth" | "cost_limit":
                if self.value is not None and not isinstance(self.value, int | float):
                    raise ValueError(f"{self.type} needs a number as its value")
            case "forbid_guessing":
                if isinstance(self.value, int | float):
                    raise ValueError("forbid_guessing takes a phrase or a list of phrases as its value")
            case "forbid_pattern":
                if not isinstance(self.value, str) or not self.value:
                    raise ValueError("forbid_pattern needs a regular expression as its value")
                try:
                    regex.compile(self.value)
                except regex.error as fault:
                    raise ValueError(
                        f"forbid_pattern: {self.value!r} is no regular expression ({fault})"
                    ) from None
        return self

    @property
    def terminal(self) -> bool:
        """Whether breaking it ends the run."""
        default = "terminal" if self.type in ("max_depth", "cost_limit") else "retryable"
        return (self.severity or default) == "terminal"

    def most(self, default: float) -> float:
        """The value up to which `max_depth` (steps) or `cost_limit` (USD) passes."""
        return self.value if isinstance(self.value, int | float) else default

    @property
    def phrases(self) -> tuple[str, ...]:
        """What `forbid_guessing` looks for."""
        own = (self.value,) if isinstance(self.value, str) else self.value
        return GUESSES + (own if isinstance(own, tuple) else ())


MOST_USD = 0.50
"""What a run may cost where its `cost_limit` rule has no value."""

DEFAULT_RULES = tuple(
    RulesetRule(type=name) for name in ("max_depth", "cost_limit", "forbid_guessing", "require_tool_use")
)


class RuledSettings(Settings):
    """The settings of a `ruled` run."""

    ruleset: tuple[RulesetRule, ...] = DEFAULT_RULES
    max_steps: int = Field(default=20, ge=1, le=MOST_ROUNDS)
    on_retries: Literal["ask", "stop"] = "ask"
    max_rejections: int = Field(default=10, ge=0, le=MOST_ROUNDS)
    cache: bool = True
    places: ClassVar[tuple[str, ...]] = ("thought",)

    def rules_in_order(self) -> list[RulesetRule]:
        """The enabled rules, terminal ones first."""
        return sorted((rule for rule in self.ruleset if rule.enabled), key=lambda rule: not rule.terminal)


# --- facts ------------------------------------------------------------------------------------------------------


class Thought(Fact):
    """The model's reply, read: a draft that has not been validated."""

    kind: Literal["react.decision"] = "react.decision"
    thought: str
    tool: str | None = None
    args: dict[str, Any] = {}
    cached: bool = False


class ReplyUnread(Fact):
    """A reply that is no thought; the raw text is on the exchange."""

    kind: Literal["ruled.reply.unread"] = "ruled.reply.unread"
    message: str


class DraftPassed(Fact):
    """The draft broke no rule."""

    kind: Literal["ruled.draft.passed"] = "ruled.draft.passed"


class DraftRejected(Fact):
    """The draft broke rules: it is in the log, and does not count as a step."""

    kind: Literal["ruled.draft.rejected"] = "ruled.draft.rejected"
    rules: tuple[str, ...]
    reason: str


class DraftApproved(Fact):
    """A person let a draft act that breaks rules."""

    kind: Literal["ruled.draft.approved"] = "ruled.draft.approved"
    by: str
    message: str = ""


class DraftReturned(Fact):
    """A person sent the draft back, with a message for the model."""

    kind: Literal["ruled.draft.returned"] = "ruled.draft.returned"
    by: str
    message: str


class RuleBroken(Fact):
    """A terminal rule ends the run."""

    kind: Literal["ruled.rule.broken"] = "ruled.rule.broken"
    rule: str
    message: str


class SubgraphMerged(Fact):
    """A fixed subgraph has run: the parent's metadata takes over what it left under names that the parent has not."""

    kind: Literal["ruled.subgraph.merged"] = "ruled.subgraph.merged"
    name: str
    metadata: dict[str, Any] = {}
    error: str | None = None
    ran: bool = True


class StepObserved(Fact):
    """What came of the step's action."""

    kind: Literal["ruled.step.observed"] = "ruled.step.observed"
    status: Literal["executed", "failed"]


class StepCommitted(Fact):
    """The step counts."""

    kind: Literal["ruled.step.committed"] = "ruled.step.committed"
    number: int


# --- state ------------------------------------------------------------------------------------------------------


class Draft(Value):
    """The step at hand: what was thought, what is to be done, how far it is."""

    thought: str
    tool: str | None = None
    args: dict[str, Any] = {}
    status: Literal["draft", "validated", "executed", "failed"] = "draft"


class Metadata(Value):
    """The extended state, and beside it what fixed subgraphs left."""

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
    """The control state of a `ruled` run."""

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
        """The run's settings."""
        assert isinstance(self.terms.settings, RuledSettings)
        return self.terms.settings


def open_state(terms: Terms) -> RuledState:
    """The state before the first row."""
    return RuledState(terms=terms, metadata=Metadata(goal=terms.goal))


def _with(state: RuledState, metadata: dict[str, Any], **changes: Any) -> RuledState:
    changes["metadata"] = state.metadata.model_copy(update=metadata)
    return state.model_copy(update=changes)


def _drafted(state: RuledState, **changes: Any) -> RuledState:
    assert state.draft is not None
    return state.model_copy(update={"draft": state.draft.model_copy(update=changes)})


def evolve(state: RuledState, fact: Fact) -> State:
    """The fold: one case a fact."""
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
    """Return what a person said of a question or a rollback, or changed; other facts tell the verdict on a draft."""
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
    """An entry for the step at hand; where it has one, beside that."""
    entries, key = state.metadata.user_feedback, f"step_{state.steps + 1}"
    if number := sum(name == key or name.startswith(f"{key}_") for name in entries):
        key = f"{key}_{number + 1}"
    return _with(state, {"user_feedback": dict([*entries.items(), (key, text)][-HISTORY:])})


def _feedback(state: RuledState, text: str) -> dict[str, Any]:
    entries = {**state.metadata.user_feedback, f"step_{state.steps + 1}": text}
    return {"user_feedback": dict(list(entries.items())[-HISTORY:])}


def kept(state: RuledState) -> dict[str, Any]:
    """What was spent stays spent, and a rejection that was given stays given."""
    return {"total_cost": state.metadata.total_cost, "rejections": state.rejections}


# --- nodes ------------------------------------------------------------------------------------------------------


class ActionReply(Value):
    """The call that a thought asks for; names beside these are passed over, and null is no arguments."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    tool: str
    args: dict[str, Any] | None = None


class ThoughtReply(Value):
    """What the model is asked to say; names beside these are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    thought: str
    action: ActionReply | None = None


def thought(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Asks the model, and reads its reply; one that does not parse is asked for again."""
    match answer:
        case None:
            return Ask(_thought_call(state))
        case ModelReplied(cached=cached):
            found = read(answer, ThoughtReply, lambda reply: _is_harmless(state, reply))
            if isinstance(found, Unread):
                return _asked_again(state, found)
            reply, action = found.reply, found.reply.action
            tool, args = (action.tool, action.args or {}) if action else (None, {})
            draft = Thought(thought=reply.thought, tool=tool, args=args, cached=cached)
            return Go("thought", (draft, *found.notices))
    raise UnexpectedAnswer("thought", answer)


def _thought_call(state: RuledState) -> ModelCall:
    cacheable = state.settings.cache and state.unread_replies == 0
    return ModelCall(role="decision", reply="thought", tail=words.tail(state), cacheable=cacheable)


def _is_harmless(state: RuledState, reply: ThoughtReply) -> bool:
    """Whether the thought changes nothing and is not the last one."""
    tool = reply.action.tool if reply.action else None
    return FINAL not in reply.thought and is_harmless(state.terms.tools, tool)


def _asked_again(state: RuledState, found: Unread) -> Ask:
    facts = (ReplyUnread(message=found.why), *found.notices)
    if state.unread_replies + 1 >= REPLIES:
        raise Fatal(f"{REPLIES} replies in a row could not be read. The last one: {found.why}", facts)
    asked_again = state.model_copy(update={"unread_replies": state.unread_replies + 1})
    return Ask(_thought_call(asked_again), facts)


def validate(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Holds the draft against the rules; too many rejected drafts are a person's to judge."""
    match answer:
        case None:
            return _judge(state)
        case HumanSaid(verdict="approve", by=by, message=message):
            return Go("pass", (DraftApproved(by=by, message=message), *_final(state)))
        case HumanSaid(verdict="reject", by=by, message=message):
            return Go("retry", (DraftReturned(by=by, message=message),))
    raise UnexpectedAnswer("validate", answer)


def _judge(state: RuledState) -> Ask | Go:
    broken: list[tuple[RulesetRule, str]] = []
    for rule in state.settings.rules_in_order():
        why = _breach(rule, state)
        if not why:
            continue
        if rule.terminal:
            reason = "cost_limit" if rule.type == "cost_limit" else "rule_violation"
            fact = RuleBroken(rule=rule.type, message=why)
            return Go("terminal", (fact, Exited(reason=reason, message=why)))
        broken.append((rule, why))
    if not broken:
        return Go("pass", (DraftPassed(), *_final(state)))
    rejected = DraftRejected(
        rules=tuple(rule.type for rule, _ in broken), reason=" ".join(why for _, why in broken)
    )
    if state.metadata.retry_count + 1 <= RETRIES:
        return Go("retry", (rejected,))
    if state.settings.on_retries == "stop" or state.rejections >= state.settings.max_rejections:
        return Go("terminal", (rejected, Exited(reason="retries_exhausted", message=rejected.reason)))
    title = f"Draft rejected {state.metadata.retry_count + 1} times. Accept it anyway?"
    asked = HumanCall(
        about="human_approval", title=title, why=rejected.reason, draft=_shown(state, rejected.rules)
    )
    return Ask(asked, (rejected,))


def _shown(state: RuledState, rules: tuple[str, ...]) -> effects.Draft:
    """The draft as a person judges it."""
    draft = state.draft
    assert draft is not None
    shown = effects.Draft(thought=draft.thought, rules=rules)
    if draft.tool is None:
        return shown
    call, _ = _call_of(state, draft.tool, draft.args)
    return shown.model_copy(update={"fault" if isinstance(call, str) else "call": call})


def _breach(rule: RulesetRule, state: RuledState) -> str:
    """How the draft breaks `rule`, in a sentence; empty where it passes."""
    draft = state.draft
    assert draft is not None
    match rule.type:
        case "max_depth":
            step, most = state.steps + 1, rule.most(state.settings.max_steps)
            return f"Step {step} is past the {most:g} that are allowed." if step > most else ""
        case "cost_limit":
            return _over_cost(rule, state)
        case "forbid_guessing":
            low = draft.thought.lower()
            guess = next((phrase for phrase in rule.phrases if phrase and phrase.lower() in low), "")
            return (
                f"The thought guesses (“{guess}”). Use a tool to find out, or say what you know."
                if guess
                else ""
            )
        case "require_tool_use":
            if FINAL in draft.thought or draft.tool in state.terms.tools:
                return ""
            which = f"{draft.tool} is no tool here. " if draft.tool else ""
            return f"{which}Call one of the tools, or give the answer after “{FINAL}:”."
        case "forbid_pattern":
            return _pattern_breach(str(rule.value), draft)


def _pattern_breach(pattern: str, draft: Draft) -> str:
    """A pattern that takes too long counts as found: what can't be told may not pass, and may not hold a worker."""
    try:
        for text in _texts(draft):
            if regex.search(pattern, text, timeout=PATTERN_S, concurrent=True):
                return f"The thought or its arguments hold what must not be there: {pattern}"
    except TimeoutError:
        return f"The thought could not be held against the pattern {pattern} in time."
    return ""


def _over_cost(rule: RulesetRule, state: RuledState) -> str:
    cost, most = state.metadata.total_cost, rule.most(MOST_USD)
    return f"The run has cost ${cost:.4f}, more than the ${most:g} allowed." if cost > most else ""


def _texts(draft: Draft) -> Iterator[str]:
    yield draft.thought
    yield canonical(draft.args)
    yield from _leaves(draft.args)


def _leaves(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _leaves(item)
        case list():
            for item in value:
                yield from _leaves(item)


def _final(state: RuledState) -> tuple[Fact, ...]:
    """The answer, where the draft gives the final one."""
    assert state.draft is not None
    _, found, rest = state.draft.thought.partition(FINAL)
    return (Answered(text=rest.lstrip().removeprefix(":").strip()),) if found else ()


def action(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Runs the call, where there is one that can be run."""
    draft = state.draft
    assert draft is not None
    match answer:
        case None:
            return _act(state, draft)
        case ToolReturned() | ChildFinished() | Failed():
            return Go("executed", (reported(str(draft.tool), answer),))
    raise UnexpectedAnswer("action", answer)


def _due(state: RuledState) -> str | None:
    """Return the name of the next fixed subgraph that has not run; None after the last."""
    fixed = (name for name, child in state.settings.subgraphs.items() if child.at)
    return next((name for name in fixed if name not in state.merged), None)


def subgraph(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Run a fixed subgraph with the run's goal, and merge its metadata; the model reads why one failed."""
    name = _due(state)
    match answer:
        case None if name is not None:
            call = ChildRun(name=name, goal=state.terms.goal)
            return Ask(call, (ToolCalled(tool=call.tool, args=call.args),))
        case ToolReturned() | ChildFinished() | Failed() if name is not None:
            told = reported(f"agent.{name}", answer)
            found = answer.metadata if isinstance(answer, ChildFinished) else {}
            if isinstance(answer, ToolReturned):  # a person gave it in the subgraph's place
                found = {"answer": answer.value}
            new = {key: value for key, value in found.items() if key not in Metadata.model_fields}
            return Go("merged", (SubgraphMerged(name=name, metadata=new, error=told.error, ran=told.ran),))
    raise UnexpectedAnswer("subgraph", answer)


def _act(state: RuledState, draft: Draft) -> Ask | Go:
    if _due(state) is not None:
        return Go("subgraph")
    if draft.tool is None:
        return Go("executed")
    call, notices = _call_of(state, draft.tool, draft.args)
    if isinstance(call, str):
        return Go("executed", (*notices, ToolReported(tool=draft.tool, error=call, ran=False)))
    return Ask(call, (*notices, ToolCalled(tool=call.tool, args=call.args)))


def _call_of(
    state: RuledState, tool: str, args: dict[str, Any]
) -> tuple[ToolCall | ChildRun | str, tuple[Notice, ...]]:
    """The call that a draft comes to, or why it can't run; with what is to be noted of its arguments."""
    spec = state.terms.tools.get(tool)
    if spec is None or not spec.permitted:
        return (f"There is no tool {tool}." if spec is None else f"This run may not call {tool}."), ()
    checked = check_arguments(spec, args)
    notices = tuple(
        Notice(code=fault.code, message=fault.message, param=fault.param)
        for fault in (*checked.faults, *checked.drops)
    )
    if checked.faults:
        return " ".join(fault.message for fault in checked.faults), notices
    if spec.child:
        return ChildRun(name=spec.child, goal=str(checked.args["goal"])), notices
    call = ToolCall(tool=tool, args=checked.args, effects=spec.effects, idempotent=spec.idempotent)
    return call, notices


def observation(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Records how the action went."""
    if answer is not None:
        raise UnexpectedAnswer("observation", answer)
    failed = state.draft is not None and state.draft.status == "failed"
    return Go("recorded", (StepObserved(status="failed" if failed else "executed"),))


def commit(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Counts the step, and looks whether the run is over."""
    if answer is not None:
        raise UnexpectedAnswer("commit", answer)
    steps = state.steps + 1
    committed = StepCommitted(number=steps)
    for rule in state.settings.rules_in_order():
        if rule.type == "cost_limit" and (why := _over_cost(rule, state)):
            broken = RuleBroken(rule=rule.type, message=why)
            return Go("terminated", (committed, broken, Exited(reason="cost_limit", message=why)))
    if state.final:
        return Go("terminated", (committed, Exited(reason="goal_achieved")))
    if steps >= state.settings.max_steps:
        return Go("terminated", (committed, Exited(reason="max_steps")))
    return Go("continue", (committed,))


# --- the declaration --------------------------------------------------------------------------------------------


def budget(state: RuledState) -> tuple[BudgetRow, ...]:
    """Committed steps, and rejected drafts in a row (advisory: past 3 a person is asked)."""
    return (
        BudgetRow(scope="global", name="steps", used=state.steps, limit=state.settings.max_steps),
        BudgetRow(scope="global", name="retries", used=state.metadata.retry_count, limit=RETRIES),
    )


def budget_text(state: RuledState) -> str:
    """The budget in one line."""
    left = max(0, state.settings.max_steps - state.steps)
    return f"BUDGET_STATE: steps left {left}/{state.settings.max_steps}, retries {state.metadata.retry_count}/{RETRIES}"


RULED = Machine(
    name="ruled",
    line="Every thought is checked by rules before it may act; rejected ones are tried again, then shown to a person.",
    start="thought",
    deciding="thought",
    nodes={
        "thought": thought,
        "validate": validate,
        "action": action,
        "subgraph": subgraph,
        "observation": observation,
        "commit": commit,
    },
    edges=(
        Edge("thought", "thought", "validate"),
        Edge("validate", "pass", "action"),
        Edge("validate", "retry", "thought", "retryable violation"),
        Edge("validate", "terminal", END, "terminal violation, or retries with nobody to ask"),
        Edge("action", "subgraph", "subgraph", "a fixed subgraph has not run yet"),
        Edge("subgraph", "merged", "action"),
        Edge("action", "executed", "observation", "also when there is nothing to execute"),
        Edge("observation", "recorded", "commit"),
        Edge("commit", "continue", "thought"),
        Edge("commit", "terminated", END),
    ),
    exit_reasons=(
        "goal_achieved",
        "max_steps",
        "cost_limit",
        "rule_violation",
        "retries_exhausted",
        *COMMON_EXITS,
    ),
    settings=RuledSettings,
    state=RuledState,
    own_facts=(
        Thought,
        ReplyUnread,
        DraftPassed,
        DraftRejected,
        DraftApproved,
        DraftReturned,
        RuleBroken,
        SubgraphMerged,
        StepObserved,
        StepCommitted,
        FeedbackGiven,
    ),
    open=open_state,
    evolve=evolve,
    turns=lambda state: state.steps,
    budget=budget,
    budget_text=budget_text,
    system=words.system,
    examples=words.examples,
    block=words.block,
    reply_schema=words.reply_schema,
    kept=kept,
    feedback=feedback,
    keeps_summary=True,
    metadata=lambda state: state.metadata.model_dump(mode="json"),
    remembers=("validate", "pass"),
)
