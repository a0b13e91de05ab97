"""Gates see every effect before the world does: let it pass, hold it for a person, answer for it, or stop.

Their order: every N steps (on entry to the deciding node), limits, approvals, repeated calls, hosts, restored. Last, a
call that asks a person becomes their question.
No machine knows of them. See docs/runtime.md, "Gates".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from runs.engine import outward
from runs.engine.effects import (
    AtLimit,
    ChildRun,
    Effect,
    EffectClass,
    Failed,
    HumanCall,
    HumanSaid,
    ModelCall,
    ToolCall,
    call_in,
    changes_something,
)
from runs.engine.facts import AskedAfterRestore, Fact, InterruptAsked, Notice
from runs.engine.machine import Machine
from runs.engine.presentation import plural
from runs.engine.rules import SETTING, NamedRule, words_of
from runs.engine.settings import LIMIT_NAMES, LIMIT_REASONS, ArgumentTest, InterruptRule, LimitName
from runs.engine.snapshot import Price, Snapshot


@dataclass(frozen=True, slots=True)
class Pass:
    """No objection; perhaps something to note."""

    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """A person is asked first."""

    call: HumanCall
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """The effect is refused; the node gets this answer."""

    answer: Failed


@dataclass(frozen=True, slots=True)
class End:
    """The run stops here."""

    reason: str
    message: str = ""
    rule: str = ""
    """The name of the ending rule; empty if a limit ends it."""


Opinion = Pass | Hold | Refuse | End

PASS = Pass()

LEAST_REPLY = 256
"""Tokens of a reply below which a limit counts as reached: a shorter reply is of no use."""

REFUSED = "Refused by a rule: "
"""Before the words of the refusing rule."""

_RESTORED = "restored:"

WHY_RESTORED = "A restored run asks before each call with side effects."
"""Why a restored run asks."""

ALL = "*"
"""Stands for every gate, if an effect was let through once already."""


def on_entry(machine: Machine, snapshot: Snapshot) -> Opinion:
    """Apply the gate on entry to the deciding node: every N steps, and before the first step."""
    settings = snapshot.state.terms.settings
    turns = machine.turns(snapshot.state)
    if settings.interrupt_every:
        due = _due(snapshot, SETTING, settings.interrupt_every, turns)
        if due:
            why = _check_in(settings.interrupt_every)
            call = HumanCall(about="every_n_steps", title=_done(turns), why=why)
            return Hold(call, (InterruptAsked(rule=SETTING, multiple=due),))
    for name, rule in snapshot.rules:
        opinion = _entry_rule(machine, snapshot, name, rule, turns)
        if opinion is not None:
            return opinion
    return PASS


def rule_that_asks(call: HumanCall, facts: tuple[Fact, ...]) -> str:
    """Return the name of the rule that asked the question with `facts`; empty if none did."""
    match call.about:
        case "plan" | "every_n_steps":
            return next((fact.rule for fact in reversed(facts) if isinstance(fact, InterruptAsked)), "")
        case "tool_call" | "manual" if call.passed:
            return call.passed[-1]
    return ""


def answered_by(call: HumanCall, said: HumanSaid) -> tuple[str, ...]:
    """Return the gates that count as answered for the held effect, once it is let pass."""
    return (call.passed[-1:] if said.verdict == "edit" else call.passed) + said.gates


def in_force(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the gates that a person may answer: all except denying rules."""
    asking = (name for name, rule in snapshot.rules if rule.do != "deny")
    return ("default", *asking, *after_restore(snapshot.restored))


def after_restore(row: int) -> tuple[str, ...]:
    """Return the name of the gate for the restore at `step`: an approval from before a later restore does not count."""
    return (f"{_RESTORED}{row}",) if row else ()


def asks_after_restore(call: HumanCall) -> bool:
    """Return True if the question about a call is asked only because the run was restored."""
    return bool(call.passed) and call.passed[-1].startswith(_RESTORED)


def _done(turns: int) -> str:
    return f"{plural(turns, 'turn')} done. Continue?"


def _check_in(every: int) -> str:
    return f"Check-in every {every} turns." if every > 1 else "Check-in every turn."


def _entry_rule(
    machine: Machine, snapshot: Snapshot, name: str, rule: InterruptRule, turns: int
) -> Opinion | None:
    """Return the opinion of one rule on entry; None if it does not match."""
    answered = snapshot.state.interrupts_asked.get(name)
    if rule.when.first_step:
        if turns > 0 and answered != 0:  # 0: a changed fork, at its own first step
            return None
        what = "review the plan" if machine.plan else "review"
        call = _question(rule, "plan", "Start the run?", f"Rule: {what} before starting.")
        due = 0 if answered else 1
    elif rule.when.every_n_steps:
        due = _due(snapshot, name, rule.when.every_n_steps, turns)
        if not due and (turns == 0 or turns % rule.when.every_n_steps):
            return None
        call = _question(rule, "every_n_steps", _done(turns), _check_in(rule.when.every_n_steps))
    else:
        return None
    if not due or rule.do == "allow":
        return PASS
    asked = InterruptAsked(rule=name, multiple=due)
    match rule.do:
        case "ask":
            return Hold(call, (asked,))
        case "deny":
            return End("aborted", f"{REFUSED}{rule.words()}", name)
        case "notify":
            return Pass((_noted(name, rule), asked))


def _due(snapshot: Snapshot, name: str, every: int, turns: int) -> int:
    """Return the reached multiple of `every` that was not asked at yet, or 0."""
    multiple = turns // every * every
    return multiple if multiple > snapshot.state.interrupts_asked.get(name, 0) else 0


def on_effect(snapshot: Snapshot, effect: Effect, passed: tuple[str, ...]) -> Opinion:
    """Return the opinion of the first gate that does not let `effect` pass. `passed` names gates already answered for
    it."""
    facts: tuple[Fact, ...] = ()
    for gate in (limits, approvals, repeated, hosts, restored):
        opinion = gate(snapshot, effect, passed)
        if isinstance(opinion, Hold) and gate in (approvals, repeated):
            return _with_host(opinion, hosts(snapshot, effect, passed), passed)
        if not isinstance(opinion, Pass):
            return opinion
        facts += opinion.facts
    if asked := _asked_by(snapshot, effect):
        return Hold(asked, facts)
    return Pass(facts) if facts else PASS


def limits(snapshot: Snapshot, effect: Effect, passed: tuple[str, ...]) -> Opinion:
    """Check the limits of the run and of its family, before each model and tool call."""
    if not (snapshot.limits or snapshot.shared) or not isinstance(effect, ModelCall | ToolCall | ChildRun):
        return PASS
    if isinstance(effect, ModelCall) and effect.at_limit == "pass":
        return PASS
    if isinstance(effect, ToolCall) and effect.infra:
        return PASS
    for line in _lines(snapshot):
        if not _reached(line, snapshot, effect):
            continue
        name = line.name
        if isinstance(effect, ModelCall) and effect.at_limit == "fail":
            return Refuse(Failed(blame="recoverable", message=f"The limit {name} is reached.", ran=False))
        if snapshot.state.terms.settings.on_limit == "stop":
            return End(LIMIT_REASONS[name])
        return Hold(at_limit(line.figures).model_copy(update={"holds": effect, "passed": passed}))
    return PASS


def at_limit(told: AtLimit) -> HumanCall:
    """Return the question at a limit, in words."""
    why = f"The run's limit {told.name} is {told.limit:g}."
    if told.root:
        why = f"Run {told.root} and its forks share the limit {told.name} of {told.limit:g}."
    if told.aside > 0:
        why = f"{why} {told.aside:g} of it is reserved for calls under way in other runs."
    if told.left is not None:
        why = f"{why} The next call may use more than the remaining {told.left:g}."
    title = f"Limit reached: {told.name} {told.used:g} of {told.limit:g}"
    return HumanCall(about="limit", title=title, why=why, limit=told.name, figures=told)


class _Line(NamedTuple):
    """A limit and its current use; `root` if it is shared with other runs."""

    name: LimitName
    used: float
    limit: float
    root: int = 0
    aside: float = 0.0

    @property
    def figures(self) -> AtLimit:
        left = self.limit - self.used if self.used < self.limit else None
        return AtLimit(
            name=self.name, used=self.used, limit=self.limit, root=self.root, left=left, aside=self.aside
        )


def _lines(snapshot: Snapshot) -> Iterator[_Line]:
    for name in LIMIT_NAMES:
        used = snapshot.totals.used(name)
        if name in snapshot.limits:
            yield _Line(name, used, snapshot.limits[name])
        if name in snapshot.shared:
            shared = snapshot.shared[name]
            used = round(used + shared.elsewhere, 10)
            yield _Line(name, used, shared.limit, shared.root, shared.aside)


def _reached(line: _Line, snapshot: Snapshot, effect: Effect) -> bool:
    """Return True if nothing is left, or too little for the shortest useful reply."""
    if line.used >= line.limit:
        return True
    if not isinstance(effect, ModelCall):
        return False
    if line.root and (use := snapshot.next_use.get(effect.role)):
        return not use.fits(line.name, line.limit - line.used)
    price = snapshot.window.price if snapshot.window else None
    if price is None or not effect.input_tokens:
        return False
    return room_for_reply(line.name, line.limit - line.used, effect.input_tokens, price) < least_reply(price)


def least_reply(price: Price) -> int:
    """Return the tokens of the shortest useful reply."""
    return min(LEAST_REPLY, price.reply_tokens)


def room_for_reply(name: LimitName, left: float, input_tokens: int, price: Price) -> float:
    """Return the longest reply, in tokens, within the rest of a limit; below 0 if the prompt alone exceeds it."""
    match name:
        case "tokens":
            return left - input_tokens
        case "cost_usd" if price.output_usd:
            return (left - price.cost(input_tokens, 0)) / price.output_usd
        case "cost_usd" if left < price.cost(input_tokens, 0):
            return -1
    return price.reply_tokens


def reply_within(snapshot: Snapshot, input_tokens: int, price: Price, room: int = 1) -> int:
    """Return the longest reply within all limits, at most `room` times the model's own."""
    price = replace(price, reply_tokens=price.reply_tokens * room)
    rooms = (
        room_for_reply(line.name, line.limit - line.used, input_tokens, price) for line in _lines(snapshot)
    )
    return max(0, int(min((price.reply_tokens, *rooms))))


def approvals(snapshot: Snapshot, effect: Effect, passed: tuple[str, ...]) -> Opinion:
    """Apply the first matching rule; by default `none` and `read` pass and the rest ask."""
    if isinstance(effect, ModelCall):
        return _cost_rules(snapshot, effect, passed)
    if (call := call_in(effect)) is None:
        return PASS
    for name, rule in snapshot.rules:
        if not rule.when.about_calls or rule.when.same_call is not None:
            continue
        if (matched := _matches(rule, call)) is not False:
            return _apply(name, rule, call, passed, matched if isinstance(matched, str) else "")
    if not changes_something(call.effects) or _answered("default", passed):
        return PASS
    why = f"Tools that {call.effects} need approval (default rule)."
    return Hold(_ask_about(call, "default", why, passed))


def repeated(snapshot: Snapshot, effect: Effect, passed: tuple[str, ...]) -> Opinion:
    """Check for the same call for the K-th time."""
    if (call := call_in(effect)) is None:
        return PASS
    for name, rule in snapshot.rules:
        if rule.when.same_call is None or (matched := _matches(rule, call)) is False:
            continue
        if snapshot.calls.get(call.fingerprint, 0) + 1 >= rule.when.same_call:
            return _apply(name, rule, call, passed, matched if isinstance(matched, str) else "")
    return PASS


def hosts(snapshot: Snapshot, effect: Effect, passed: tuple[str, ...]) -> Opinion:
    """Ask before a run that has read something contacts an unnamed host, even if its rules allow it."""
    call, state = call_in(effect), snapshot.state
    host = outward.host_contacted(state, call) if call else None
    if call is None or host is None or _answered("hosts", passed):
        return PASS
    if not (carried := outward.carried_to(state, host)):
        return PASS
    asked = _ask_about(call, "hosts", outward.why_ask(host, carried[0]), passed)
    return Hold(asked.model_copy(update={"host": host}))


def restored(snapshot: Snapshot, effect: Effect, passed: tuple[str, ...]) -> Opinion:
    """Ask before each call with side effects of a restored run, even if a rule allows it: it may repeat one."""
    names = after_restore(snapshot.restored)
    if not isinstance(effect, ToolCall) or effect.repeatable or not names or _answered(names[0], passed):
        return PASS
    return Hold(_ask_about(effect, names[0], WHY_RESTORED, passed), (AskedAfterRestore(),))


def _asked_by(snapshot: Snapshot, effect: Effect) -> HumanCall | None:
    """Return the question that a call asks a person; None where its tool does something itself."""
    spec = snapshot.state.terms.tools.get(effect.tool) if isinstance(effect, ToolCall) else None
    if not isinstance(effect, ToolCall) or spec is None or not spec.asks:
        return None
    question = str(effect.args.get(spec.asks, ""))
    why = f"The agent called {effect.tool}."
    return HumanCall(about="question", title=question, why=why, questions=(question,), holds=effect)


def _with_host(held: Hold, of_hosts: Opinion, passed: tuple[str, ...]) -> Hold:
    """Return one question in place of two about a call. If silence approves, the host is asked about after it."""
    if not isinstance(of_hosts, Hold) or held.call.on_timeout == "approve":
        return held
    update = {
        "why": f"{held.call.why} {of_hosts.call.why}",
        "host": of_hosts.call.host,
        "passed": (*passed, "hosts", held.call.passed[-1]),
    }
    return Hold(held.call.model_copy(update=update), held.facts)


def _cost_rules(snapshot: Snapshot, effect: ModelCall, passed: tuple[str, ...]) -> Opinion:
    for name, rule in snapshot.rules:
        if rule.when.next_cost_usd is None or snapshot.next_cost_usd <= rule.when.next_cost_usd:
            continue
        if _answered(name, passed) or rule.do == "allow":
            return PASS
        match rule.do:
            case "ask":
                cost = snapshot.next_cost_usd
                title = f"The next model call may cost ${cost:.4f}. Continue?"
                call = _question(rule, "manual", title, words_of(NamedRule(name, rule)))
                held = {"holds": effect, "passed": (*passed, name), "cost_usd": cost}
                return Hold(call.model_copy(update=held))
            case "deny":
                return End("cost_limit", f"{REFUSED}{rule.words()}", name)
            case "notify":
                return Pass((_noted(name, rule),))
    return PASS


def _answered(name: str, passed: tuple[str, ...]) -> bool:
    return name in passed or ALL in passed


def _apply(
    name: str, rule: InterruptRule, call: ToolCall | ChildRun, passed: tuple[str, ...], unsure: str
) -> Opinion:
    """Apply a matching rule. A rule that can't be evaluated (`unsure` says why) asks."""
    if _answered(name, passed) and (name in passed or rule.do != "deny"):
        return PASS
    if unsure:
        why = f"The rule can't be evaluated ({unsure}): {rule.words()}"
        return Hold(_ask_about(call, name, why, passed))
    match rule.do:
        case "allow":
            return PASS
        case "ask":
            asked = _ask_about(call, name, words_of(NamedRule(name, rule)), passed)
            return Hold(
                asked.model_copy(update={"deadline_s": rule.deadline_s, "on_timeout": rule.on_timeout})
            )
        case "deny":
            return Refuse(Failed(blame="recoverable", message=f"{REFUSED}{rule.words()}", ran=False))
        case "notify":
            return Pass((_noted(name, rule),))


def _noted(name: str, rule: InterruptRule) -> Notice:
    return Notice(code="rule_notified", message=rule.words(), rule=name)


def _ask_about(call: ToolCall | ChildRun, gate: str, why: str, passed: tuple[str, ...]) -> HumanCall:
    return HumanCall(
        about="tool_call", title=f"Run {call.tool}?", why=why, holds=call, passed=(*passed, gate)
    )


def _question(rule: InterruptRule, about: Any, title: str, why: str) -> HumanCall:
    return HumanCall(
        about=about, title=title, why=why, deadline_s=rule.deadline_s, on_timeout=rule.on_timeout
    )


def _matches(rule: InterruptRule, call: ToolCall | ChildRun) -> bool | str:
    """Return whether the rule's keys hold for the call; a text says why this is unknown."""
    if not is_about(rule, call.tool, call.effects):
        return False
    unsure = ""
    for path, test in (rule.when.args or {}).items():
        held = _holds(test, _argument(call.args, path))
        if held is False:
            return False
        unsure = unsure or (held if isinstance(held, str) else "")
    return unsure or True


def is_about(rule: InterruptRule, tool: str, effects: EffectClass) -> bool:
    """Return True if the rule looks at calls of such a tool."""
    when = rule.when
    named = when.tool is None or fnmatchcase(tool, when.tool)
    return named and (when.effects is None or effects in when.effects)


_MISSING = object()


def _argument(args: Mapping[str, Any], path: str) -> Any:
    value: Any = args
    for part in path.split("."):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            return _MISSING
    return value


def _holds(test: ArgumentTest, value: Any) -> bool | str:
    """Return whether every comparison holds. A value that can't be compared makes the rule ask."""
    if value is _MISSING:
        return False
    given = test.model_fields_set
    if "equals" in given and value != test.equals:
        return False
    if test.in_ is not None and value not in test.in_:
        return False
    for pattern, wanted in ((test.like, True), (test.not_like, False)):
        if pattern is None:
            continue
        if not isinstance(value, str):
            return f"{value!r} is not text"
        if fnmatchcase(value, pattern) is not wanted:
            return False
    for bound, below in ((test.lt, True), (test.gt, False)):
        if bound is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool):
            return f"{value!r} is not a number"
        if not (value < bound if below else value > bound):
            return False
    return True
