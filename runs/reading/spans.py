"""A run as spans by OpenTelemetry's semantic conventions for generative AI, derived from its committed steps.

Ids come from run and step: a span sent twice is the same. OpenTelemetry's own packages are not needed here. See
docs/telemetry.md.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from typing import Any

from runs.engine.effects import (
    ANSWER,
    EFFECT,
    Answer,
    ChildFinished,
    ChildRun,
    Compaction,
    ContextOverflowed,
    Effect,
    Failed,
    HumanCall,
    HumanSaid,
    ModelCall,
    ModelReplied,
    Summarised,
    ToolCall,
    ToolReturned,
    call_in,
)
from runs.machines import CATALOGUE
from runs.models import Exchange, Interrupt, ModelProfile, Run
from runs.reading.prompts import ASKS, prompt_of
from runs.store.db import of_one_moment
from runs.store.switching import changes_of

Attribute = str | int | float | bool | tuple[str, ...]

PROVIDERS = {"google": "gcp.gemini", "mistral": "mistral_ai", "responses": "openai"}
"""Names in the conventions of the kinds of models, if they differ."""

UNANSWERED = "unanswered"
"""The error of a call that was given up before its answer."""

ROOT = 0
"""In place of a step: the span of the run itself."""


@dataclass(frozen=True, slots=True)
class SpanRef:
    """The ids of a span: 16 bytes of its trace, 8 of its own."""

    trace: int
    span: int


@dataclass(frozen=True, slots=True)
class Span:
    """One finished piece of work of a run."""

    seq: int
    """The asking step, or `ROOT`."""
    ref: SpanRef
    parent: SpanRef | None
    name: str
    start: datetime
    end: datetime
    """Never before `start`, whatever the clock did."""
    attributes: Mapping[str, Attribute]
    calls_out: bool = False
    """True for a call of another system."""
    error: str = ""
    """The error's type; empty without an error."""
    message: str = ""
    """The error in words; empty unless content is wanted."""
    link: SpanRef | None = None
    """The run that this one was copied from."""


@dataclass(frozen=True)
class _Reader:
    """What the spans of one run have in common."""

    run: Run
    trace: int
    content: bool
    models: Sequence[tuple[int, str]]
    profiles: Mapping[str, ModelProfile]
    channels: Mapping[int, str | None] = field(default_factory=dict)

    def ref(self, seq: int) -> SpanRef:
        return SpanRef(self.trace, span_id(self.run, seq))


@of_one_moment
def spans_of(run: Run, *, after: int = 0, content: bool = False) -> list[Span]:
    """Return the spans of the run's own calls and waits after step `after` that are over, then that of the run.

    An unfinished run's span ends with its newest call. Left out are copied steps, and calls that were not made: those
    that the cache, a rule or a person answered. `content` adds prompts, replies, arguments, results and errors.
    """
    first = max(after, run.copied_upto or 0)
    asked = list(run.exchanges.filter(seq__gt=first).order_by("seq"))
    reader = _reader(run, content=content)
    spans = [_span(reader, exchange, end) for exchange, end in over(run, asked) if _was_made(exchange)]
    return [*spans, _root(reader, max((span.end for span in spans), default=run.created_at))]


def family_of(run: Run) -> Iterator[Run]:
    """Return the run, then the child runs below it."""
    yield run
    for child in run.children.order_by("parent_seq"):
        yield from family_of(child)


def over(run: Run, asked: Sequence[Exchange]) -> Iterator[tuple[Exchange, datetime]]:
    """Return the exchanges that will not change any more, each with its end. `asked` are the run's newest, in order.

    One without an answer is over once the run has asked for something else, or has ended.
    """
    for exchange, following in pairwise([*asked, None]):
        assert exchange is not None
        end = exchange.answered_at or (following.started_at if following else run.ended_at)
        if end is not None:
            yield exchange, max(end, exchange.started_at)


def span_id(run: Run, seq: int) -> int:
    """Return the id of the run's span at a step (`ROOT`: its own)."""
    return _number(run, str(seq), 8)


def ref_of(run: Run) -> SpanRef:
    """Return the ids of the run's own span."""
    return SpanRef(_trace(run), span_id(run, ROOT))


def _number(run: Run, what: str, size: int) -> int:
    # Other sites have runs of the same number; none is as old to the microsecond.
    named = f"{run.pk} {run.created_at.timestamp():.6f} {what}"
    return int.from_bytes(sha256(named.encode()).digest()[:size])


def _trace(run: Run) -> int:
    while run.parent is not None:
        run = run.parent
    return _number(run, "trace", 16)


def _reader(run: Run, *, content: bool) -> _Reader:
    models = [(0, run.model), *changes_of(run)]
    names = {name for _, name in models}
    channels = Interrupt.objects.filter(run=run).values_list("seq", "decision__channel")
    return _Reader(
        run=run,
        trace=_trace(run),
        content=content and run.machine in CATALOGUE,
        models=models,
        profiles={profile.name: profile for profile in ModelProfile.objects.filter(name__in=names)},
        channels=dict(channels),
    )


def _was_made(exchange: Exchange) -> bool:
    """Return False if a call got its answer elsewhere, or has none and is not known to have begun."""
    if exchange.kind not in (*ASKS, "tool_call"):
        return True
    if exchange.answer_json is None:
        return exchange.status == Exchange.Status.STARTED
    return exchange.nth > 0 and (
        exchange.kind in ASKS or json.loads(exchange.answer_json).get("ran") is not False
    )


# --- the run --------------------------------------------------------------------------------------------------------


def _root(reader: _Reader, newest: datetime) -> Span:
    run = reader.run
    begun = run.started_at or run.created_at
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": run.machine,
        "gen_ai.conversation.id": str(_conversation(run).pk),
        "agentsite.run.id": str(run.pk),
        "agentsite.run.status": run.status,
    }
    if run.exit_reason:
        attributes["agentsite.run.exit_reason"] = run.exit_reason
    if run.origin:
        attributes["agentsite.run.origin"] = run.origin
    if reader.content:
        attributes["gen_ai.input.messages"] = _messages([("user", run.goal)])
        attributes["gen_ai.output.messages"] = _messages([("assistant", run.answer or "")])
    parent = run.parent
    return Span(
        seq=ROOT,
        ref=reader.ref(ROOT),
        parent=SpanRef(reader.trace, span_id(parent, run.parent_seq or ROOT)) if parent else None,
        name=f"invoke_agent {run.machine}",
        start=begun,
        end=max(begun, run.ended_at or newest),
        attributes=attributes,
        error=run.exit_reason or run.status if run.status == "failed" else "",
        link=ref_of(run.copied_from) if run.copied_from else None,
    )


def _conversation(run: Run) -> Run:
    while run.continues is not None:
        run = run.continues
    return run


# --- its calls ------------------------------------------------------------------------------------------------------


def _span(reader: _Reader, exchange: Exchange, end: datetime) -> Span:
    asked = EFFECT.validate_json(exchange.request_json)
    answer = ANSWER.validate_json(exchange.answer_json) if exchange.answer_json else None
    match asked:
        case ModelCall() | Compaction():
            name, attributes = _chat(reader, exchange, answer)
        case HumanCall():
            name, attributes = _wait(reader, exchange, asked, answer)
        case ToolCall() | ChildRun():
            name, attributes = _tool(reader, exchange, asked, answer)
    script = _script_of(asked)
    error, message = _error(exchange, answer)
    return Span(
        seq=exchange.seq,
        ref=reader.ref(exchange.seq),
        parent=reader.ref(script if script > (reader.run.copied_upto or 0) else ROOT),
        name=name,
        start=exchange.started_at,
        end=end,
        attributes=attributes | {"agentsite.run.id": str(reader.run.pk), "agentsite.step": exchange.seq},
        calls_out=exchange.kind in ASKS,
        error=error,
        message=message if reader.content else "",
    )


def _script_of(asked: Effect) -> int:
    """Return the step of the call whose script this is a part of; 0 if there is none."""
    match call_in(asked.holds if isinstance(asked, HumanCall) else asked):
        case ToolCall(script=script, resumes=resumes):
            return script or resumes
        case ChildRun(script=script):
            return script
    return 0


def _error(exchange: Exchange, answer: Answer | None) -> tuple[str, str]:
    match answer:
        case Failed(blame=blame, message=message):
            return blame, message
        case ContextOverflowed(message=message):
            return "context_length", message
        case ToolReturned(exit_code=int(code)) if code:
            return "exit_code", answer.stderr
        case ModelReplied(ended=ended) | Summarised(ended=ended) if ended != "stop":
            return ended, ""
        case ChildFinished(status="failed", exit_reason=reason, message=message):
            return reason or "failed", message
        case None if exchange.kind != "human_call":
            return UNANSWERED, ""
    return "", ""


def _chat(reader: _Reader, exchange: Exchange, answer: Answer | None) -> tuple[str, dict[str, Attribute]]:
    named = reader.models[bisect_right(reader.models, exchange.seq, key=lambda change: change[0]) - 1][1]
    profile = reader.profiles.get(named)
    kind = profile.kind if profile else "script" if not named else "unknown"
    model = (profile.model_id if profile else "") or named or "script"
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDERS.get(kind, kind),
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": exchange.input_tokens,
        "gen_ai.usage.output_tokens": exchange.output_tokens,
        "agentsite.cost_usd": exchange.cost_usd,
        "agentsite.role": exchange.name,
        "agentsite.attempt": exchange.attempt,
    }
    if isinstance(answer, ModelReplied | Summarised):
        attributes["gen_ai.response.finish_reasons"] = (answer.ended,)
        if answer.usage.estimated:
            attributes["agentsite.usage.estimated"] = True
    if reader.content:
        prompt = prompt_of(reader.run, exchange.seq) or ()
        attributes["gen_ai.input.messages"] = _messages((one.author, one.text) for one in prompt)
        if isinstance(answer, ModelReplied | Summarised):
            attributes["gen_ai.output.messages"] = _messages([("assistant", answer.text)])
    return f"chat {model}", attributes


def _tool(
    reader: _Reader, exchange: Exchange, asked: ToolCall | ChildRun, answer: Answer | None
) -> tuple[str, dict[str, Attribute]]:
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": asked.tool,
        "gen_ai.tool.call.id": exchange.key,
        "agentsite.attempt": exchange.attempt,
    }
    if reader.content:
        attributes["gen_ai.tool.call.arguments"] = _json(asked.args)
        match answer:
            case ToolReturned(value=value):
                attributes["gen_ai.tool.call.result"] = _json(value)
            case ChildFinished(answer=str(text)):
                attributes["gen_ai.tool.call.result"] = _json(text)
    return f"execute_tool {asked.tool}", attributes


def _wait(
    reader: _Reader, exchange: Exchange, asked: HumanCall, answer: Answer | None
) -> tuple[str, dict[str, Attribute]]:
    attributes: dict[str, Attribute] = {"agentsite.question.kind": exchange.name}
    if asked.shown is not None and asked.shown.tool:
        attributes["agentsite.question.tool"] = asked.shown.tool
    if isinstance(answer, HumanSaid):
        attributes["agentsite.decision.verdict"] = answer.verdict
        attributes["agentsite.decision.channel"] = reader.channels.get(exchange.seq) or ""
        if reader.content and answer.message:
            attributes["agentsite.decision.message"] = answer.message
    return f"wait_for_person {exchange.name}", attributes


def _messages(said: Iterable[tuple[str, str]]) -> str:
    return _json([{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in said])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
