"""One step, whole: its facts, the state and its changes, its request and answer, its usage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.template import loader
from django.utils.safestring import SafeString, mark_safe

from runs.engine.effects import ANSWER, ModelReplied, Summarised
from runs.engine.ports import Message
from runs.engine.reasoning import joined, parted
from runs.engine.sources import Source
from runs.engine.unended import unended as how_it_ended
from runs.models import Exchange, Interrupt, Run, Step
from runs.reading import words
from runs.reading.compactions import CompactionView, compaction_view
from runs.reading.filling import sources_of
from runs.reading.hidden_text import all_visible, visible
from runs.reading.in_flight import late_end_of, lost_call_at
from runs.reading.mended import PinView, pin_of
from runs.reading.phrases import call_text
from runs.reading.prompt_views import PromptView, prompt_view
from runs.reading.prompts import ASKS
from runs.reading.questions import whole_title
from runs.reading.rows import CONCLUDING, RowView, row_view
from runs.reading.speaking import COMMON, reads_of, speaking
from runs.store.after_row import deeds_after

TABS = ("facts", "state", "exchange", "context", "usage")
MISSING = "—"

MOST_OF_PROMPT = 12_000
"""Characters of a prompt that the inspector shows, of all its messages together."""

FIRST_MESSAGES, LAST_MESSAGES = 2, 10
"""Messages that the inspector shows of a prompt that has more."""


@dataclass(frozen=True)
class Change:
    """A name in the state whose value differs from the step before."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class ExchangeView:
    """A request to the world, and its answer."""

    seq: int
    kind: str
    title: str
    request: str
    answer: str
    reply: str
    """A model's text, or a person's."""
    status: str
    took: str
    attempt: int
    tokens_in: int
    tokens_out: int
    cost: str
    estimated: bool
    """True if the tokens are an estimate, and the cost with them."""
    key: str
    cached: bool
    reasoning: str
    """The model's thoughts before its reply; they were not read."""
    unended: str
    """How a cut-off reply ended; empty for any other."""
    seed: int | None
    """The seed sent with a model call."""

    def text_of(self, part: str) -> str:
        """Return one of its texts by the name that its address has; empty where there is none."""
        texts = {
            "reply": self.reply,
            "reasoning": self.reasoning,
            "request": self.request,
            "response": self.answer,
        }
        return texts.get(part, "")


@dataclass(frozen=True)
class StepView:
    """A step as the inspector shows it."""

    row: RowView
    facts: tuple[SafeString, ...]
    state: str
    state_is_new: bool
    changes: tuple[Change, ...]
    exchange: ExchangeView | None
    prompt: tuple[Message, ...]
    context: PromptView | None
    """The prompt of the step's model call, or of the one that it concludes."""
    compaction: CompactionView | None
    """Of a compaction: the summary and the blocks that it replaces."""
    pin: PinView | None
    """The step's blocks that a person could pin for the model; None if it has none."""
    interrupt: Interrupt | None
    late_end: str
    """How the call in question ended, if its worker has come back; empty for any other step."""
    child: Run | None
    previous: int | None
    following: int | None
    may_go_back: bool
    """True if the run could be rolled back to this step, by a person who may steer it."""
    may_fork: bool
    """True if another run could go on from this step, by a person who may launch."""
    hash: str

    @property
    def messages(self) -> tuple[tuple[int, Message], ...]:
        """Return the shown messages of the prompt with their numbers: the first, and the newest."""
        numbered = tuple(enumerate(self.prompt, 1))
        if len(numbered) <= FIRST_MESSAGES + LAST_MESSAGES:
            return numbered
        return numbered[:FIRST_MESSAGES] + numbered[-LAST_MESSAGES:]

    @property
    def messages_left_out(self) -> int:
        """Return the number of the prompt's messages that are not shown."""
        return len(self.prompt) - len(self.messages)

    @property
    def gap_after(self) -> int:
        """Return the number of the message before the gap; 0 if all are shown."""
        return FIRST_MESSAGES if self.messages_left_out else 0

    @property
    def most_of_message(self) -> int:
        """Characters of each message of the prompt that are shown before a reader asks for all."""
        return MOST_OF_PROMPT // max(1, len(self.messages))

    def text_of(self, part: str) -> str:
        """Return a text of the step, whole, by the name that its address has; empty where there is none."""
        if part == "state":
            return self.state
        if part == "prompt":
            return visible("\n\n".join(f"[{message.author}]\n{message.text}" for message in self.prompt))
        texts = {f"message-{number}": message.text for number, message in enumerate(self.prompt, 1)}
        if part in texts:
            return visible(texts[part])
        return self.exchange.text_of(part) if self.exchange else ""


def step_view(run: Run, seq: int) -> StepView | None:
    """Return the step `seq`; None if the run has none."""
    row = row_view(run, seq)
    if row is None:
        return None
    step = Step.objects.get(run=run, seq=seq)
    exchange = _exchange_for(run, step)
    state, before = _states(run, step)
    context = prompt_view(run, exchange.seq) if exchange else None
    sources = sources_of(run)
    return StepView(
        row=row,
        facts=tuple(
            fact_html(fact, exchange.kind if exchange else "", sources, run.machine)
            for fact in json.loads(step.facts_json)
        ),
        state=pretty(state),
        state_is_new=step.state_json is not None,
        changes=tuple(changes_between(before, state)),
        exchange=_exchange_view(exchange) if exchange else None,
        prompt=context.sent.messages if context else (),
        context=context,
        compaction=compaction_view(run, seq) if step.kind == Step.Kind.COMPACTION else None,
        pin=pin_of(run, step),
        interrupt=Interrupt.objects.filter(run=run, seq=seq).first(),
        late_end=late_end_of(run, lost_call_at(run, exchange.seq)) if exchange else "",
        child=Run.objects.filter(parent=run, parent_seq=exchange.seq).first() if exchange else None,
        previous=seq - 1 if seq > 1 else None,
        following=seq + 1 if seq < run.head else None,
        may_fork=step.live and step.kind == Step.Kind.TRANSITION and step.to != "end",
        may_go_back=step.live and step.kind == Step.Kind.TRANSITION and not run.finished and seq < run.head,
        hash=step.hash,
    )


def ask_of(run: Run, seq: int) -> int | None:
    """Return the model's ask in step `seq`, or the one that it concludes; None if there is none."""
    step = Step.objects.filter(run=run, seq=seq).first()
    exchange = _exchange_for(run, step) if step else None
    return exchange.seq if exchange is not None and exchange.kind in ASKS else None


def _exchange_for(run: Run, step: Step) -> Exchange | None:
    """Return the exchange of the step's own ask, or of the ask that it concludes."""
    seq = step.seq
    if step.kind in CONCLUDING:
        before = Step.objects.filter(
            run=run, seq__lt=seq, kind__in=("ask", "transition", "rewind", "compaction")
        )
        last = before.order_by("-seq").values_list("seq", "kind").first()
        if last is None or last[1] != "ask":
            return None
        seq = last[0]
    return Exchange.objects.filter(run=run, seq=seq).first()


def _states(run: Run, step: Step) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state after the step, and after the one before it."""
    stored = Step.objects.filter(run=run, seq__lte=step.seq, state_json__isnull=False).order_by("-seq")
    newest = list(stored.values_list("seq", "state_json")[:2])
    texts = [text or "{}" for _, text in newest]
    if not newest or newest[0][0] != step.seq:
        same = json.loads(texts[0]) if texts else {}
        return same, same
    return json.loads(texts[0]), json.loads(texts[1]) if len(texts) > 1 else {}


def changes_between(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    """Yield the names whose values differ, inside objects too."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    for name in [*new, *(name for name in old if name not in new)]:
        was, now = old.get(name, MISSING), new.get(name, MISSING)
        if was != now:
            yield Change(visible(name), visible(was), visible(now))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else name)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _exchange_view(exchange: Exchange) -> ExchangeView:
    request = json.loads(exchange.request_json)
    answer = json.loads(exchange.answer_json) if exchange.answer_json else None
    took = "" if exchange.took_ms is None else words.length_of(exchange.took_ms)
    reply, reasoning, unended = _replied(answer)
    return ExchangeView(
        seq=exchange.seq,
        kind=exchange.kind,
        title=_title(request),
        request=pretty({name: value for name, value in request.items() if name != "kind"}),
        answer=""
        if answer is None
        else pretty({name: value for name, value in answer.items() if name != "kind"}),
        reply=visible(reply),
        status=exchange.status,
        took=took,
        attempt=exchange.attempt,
        tokens_in=exchange.input_tokens,
        tokens_out=exchange.output_tokens,
        cost=words.money(exchange.cost_usd),
        estimated=bool(((answer or {}).get("usage") or {}).get("estimated")),
        key=exchange.key,
        cached=bool((answer or {}).get("cached") or (answer or {}).get("cached_from")),
        reasoning=visible(reasoning),
        unended=unended,
        seed=(answer or {}).get("seed"),
    )


def _replied(answer: dict[str, Any] | None) -> tuple[str, str, str]:
    """Return a model's reply, its thoughts before, and how a cut-off reply ended."""
    if answer is None or answer["kind"] not in ("model_replied", "summarised"):
        return (answer or {}).get("text", ""), "", ""
    read = ANSWER.validate_python(answer)
    assert isinstance(read, ModelReplied | Summarised)
    spoken, thought = parted(read.text)
    unended = "" if read.ended == "stop" else how_it_ended(read)
    return spoken, joined(read.reasoning, thought), unended


def _title(request: dict[str, Any]) -> str:
    match request["kind"]:
        case "tool_call":
            return call_text(request["tool"], request["args"])
        case "model_call":
            return f"The model, for a {words.spoken(request['role'])}"
        case "child_run":
            return f"The child run {request['name']}"
        case "human_call":
            return whole_title(request)
        case "compaction":
            return f"The model, for a summary of steps {request['first']}–{request['last']}"
    return words.spoken(request["kind"])


def pretty(value: Any) -> str:
    """Return JSON for reading."""
    return visible(json.dumps(value, ensure_ascii=False, indent=2))


def fact_html(
    fact: dict[str, Any], asked: str = "", sources: tuple[Source, ...] = (), machine: str = ""
) -> SafeString:
    """Return a fact as drawn by the template of its kind; without a template as its names and values.

    `asked` is the kind of the step's ask: a child's answer reads as text, a tool's result as data. `sources` are those
    that its texts may cite.
    """
    own = _own_words(fact, machine)
    fact = all_visible(fact)
    shown = {name: _shown(value) for name, value in fact.items() if name != "kind"}
    call = fact.get("tool_call") or {}
    tool, args = fact.get("tool") or call.get("tool_id"), fact.get("args") or call.get("params")
    args = args if isinstance(args, dict) else {}
    context = {
        "fact": fact,
        "asked": asked,
        "sources": sources,
        "shown": shown,
        "pairs": list(shown.items()),
        "args": [(name, _shown(value)) for name, value in args.items()],
        "code": call_text(tool, args) if tool else "",
        "label": words.spoken(fact["kind"]),
    }
    return mark_safe(fact_template(fact["kind"], machine).render({**context, **own}))


def _own_words(fact: dict[str, Any], machine: str) -> dict[str, Any]:
    """Return the words of a machine's own fact beside its values; of a reply the thought and the wanted call."""
    speak = None if fact["kind"] in COMMON else speaking(machine).get(fact["kind"])
    if speak is None:
        return {}
    line, reads = speak(fact), reads_of(machine).get(fact["kind"])
    if reads is None or not reads.reply:
        return {"line": line, "label": line.title}
    told = ("kind", reads.said, "tool", "args", *reads.by_chance)
    pairs = [(name, _shown(all_visible(value))) for name, value in fact.items() if name not in told]
    wants = reads.call(fact) is not None
    thought = visible(str(fact.get(reads.said) or ""))
    return {"line": line, "label": line.title, "pairs": pairs, "thought": thought, "wants": wants}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else pretty(value)


@cache
def fact_template(kind: str, machine: str) -> Any:
    """Return the template of a fact: its machine's, the shared one of its kind, or the one for any fact."""
    names = [f"{machine}/facts/{kind}.html", f"runs/_facts/{kind}.html", "runs/_facts/_any.html"]
    return loader.select_template(names)


@dataclass(frozen=True)
class OutsideEffect:
    """A call that was made, and stays done after a rollback."""

    run: Run
    """The run of the call: the one rolled back, or one that it called."""
    seq: int
    code: str
    effects: words.Word
    certain: bool
    of_child: bool


def outside_effects_after(run: Run, seq: int) -> list[OutsideEffect]:
    """Return the calls after step `seq` with side effects, or possible ones; those of child runs too."""
    return [
        OutsideEffect(
            run=deed.run,
            seq=deed.seq,
            code=call_text(deed.request["tool"], deed.request["args"]),
            effects=words.EFFECTS[deed.request["effects"]],
            certain=deed.answer is not None and deed.answer["kind"] == "tool_returned",
            of_child=deed.run.pk != run.pk,
        )
        for deed in deeds_after(run, seq)
    ]


def dead_rows_after(run: Run, seq: int) -> int:
    """Return how many steps a rollback would roll back."""
    return Step.objects.filter(run=run, seq__gt=seq, live=True).count()
