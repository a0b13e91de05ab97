"""The nodes of `ruled`: pure functions that return the next move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import regex
from pydantic import ConfigDict

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
)
from runs.engine.facts import Answered, Exited, Fact, Notice, ToolCalled, ToolReported
from runs.engine.kernel import Fatal, UnexpectedAnswer
from runs.engine.moves import Ask, Go
from runs.engine.reply import Unread, read
from runs.engine.reporting import reported
from runs.engine.tools import check_arguments, is_harmless
from runs.engine.values import Value, canonical
from runs.machines.ruled import prompts as words
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
from runs.machines.ruled.settings import MOST_USD, RETRIES, RulesetRule
from runs.machines.ruled.state import Draft, Metadata, RuledState

REPLIES = 3
"""Attempts in all at a reply that does not parse."""


FINAL = "FINAL ANSWER"


PATTERN_S = 0.5
"""Seconds that one search of a `forbid_pattern` may take."""


class ActionReply(Value):
    """The call that a thought asks for; other names are ignored, and null is no arguments."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    tool: str
    args: dict[str, Any] | None = None


class ThoughtReply(Value):
    """A thought as the model replies it; other names are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    thought: str
    action: ActionReply | None = None


def thought(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Ask the model, and read its reply; one that does not parse is asked for again."""
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
    """Return True if the thought changes nothing and is not the last one."""
    tool = reply.action.tool if reply.action else None
    return FINAL not in reply.thought and is_harmless(state.terms.tools, tool)


def _asked_again(state: RuledState, found: Unread) -> Ask:
    facts = (ReplyUnread(message=found.why), *found.notices)
    if state.unread_replies + 1 >= REPLIES:
        raise Fatal(f"{REPLIES} replies in a row could not be read. The last one: {found.why}", facts)
    asked_again = state.model_copy(update={"unread_replies": state.unread_replies + 1})
    return Ask(_thought_call(asked_again), facts)


def validate(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Check the draft against the rules; after too many rejected drafts a person decides."""
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
    """Return the draft as a person judges it."""
    draft = state.draft
    assert draft is not None
    shown = effects.Draft(thought=draft.thought, rules=rules)
    if draft.tool is None:
        return shown
    call, _ = _call_of(state, draft.tool, draft.args)
    return shown.model_copy(update={"fault" if isinstance(call, str) else "call": call})


def _breach(rule: RulesetRule, state: RuledState) -> str:
    """Return how the draft breaks `rule`, in a sentence; empty if it passes."""
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
    """Search for the pattern; one that takes too long counts as found, for safety and to free the worker."""
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
    """Return the answer, if the draft gives the final one."""
    assert state.draft is not None
    _, found, rest = state.draft.thought.partition(FINAL)
    return (Answered(text=rest.lstrip().removeprefix(":").strip()),) if found else ()


def action(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Run the call, if there is one that can run."""
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
    """Return the call of a draft, or why it can't run; with notices about its arguments."""
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
    return spec.effect_with(checked.args), notices


def observation(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Record the action's outcome."""
    if answer is not None:
        raise UnexpectedAnswer("observation", answer)
    failed = state.draft is not None and state.draft.status == "failed"
    return Go("recorded", (StepObserved(status="failed" if failed else "executed"),))


def commit(state: RuledState, answer: Answer | None) -> Ask | Go:
    """Count the step, and check whether the run is over."""
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
