"""A call in flight when its run was stopped: no step can tell how it ended, but its exchange does.

Stopping a run can't undo a call in flight. Its answer is stored on arrival, though the log is closed by then
(docs/runtime.md, "Stopping").
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from django.template import loader
from django.utils.dateformat import format as date_text
from django.utils.safestring import SafeString, mark_safe

from runs.models import Exchange, Interrupt, Run, Step
from runs.reading.phrases import call_text, short, value_text

Outcome = Literal["done", "failed", "not_done", "under_way", "unknown"]

SAID: dict[Outcome, str] = {
    "done": "It was done",
    "failed": "It failed",
    "not_done": "It was not done",
    "under_way": "It is still under way",
    "unknown": "It may have happened: the outcome is unknown",
}


@dataclass(frozen=True)
class Unheard:
    """A call without a step for its result, and its known outcome."""

    seq: int
    """The step that asked for it."""
    tool: str
    code: str
    outcome: Outcome
    result: str = ""
    """Its result, or its error, on one line."""

    @property
    def sentence(self) -> str:
        """Return how it ended, in a sentence."""
        return _sentence(self.outcome, self.result)


def unsure_of(interrupt: Interrupt) -> Exchange | None:
    """Return the call in question: the last one before the question."""
    calls = Exchange.objects.filter(run=interrupt.run_id, kind="tool_call", seq__lt=interrupt.seq)
    return calls.order_by("-seq").first()


def lost_call_at(run: Run, seq: int) -> Exchange | None:
    """Return the call asked for at `seq`, or in question there, if a person was asked about its outcome."""
    about = Interrupt.objects.filter(run=run, kind="may_have_happened", seq__gte=seq).order_by("seq").first()
    call = unsure_of(about) if about else None
    return call if about and call and seq in (about.seq, call.seq) else None


def late_end_of(run: Run, exchange: Exchange | None) -> str:
    """Return the end of a call with an open question about its outcome; empty as long as it is unknown.

    Its worker was thought lost, and has come back: its answer was kept, and not used.
    """
    if exchange is None or exchange.answered_at is None:
        return ""
    when = f"{date_text(exchange.answered_at, 'j M, H:i')} UTC"
    return (
        f"The lost worker returned on {when} with the outcome of the call. "
        f"{_sentence(*_ended(run, exchange))}"
    )


def unheard_of(run: Run) -> Unheard | None:
    """Return the tool call in flight when the run was stopped; None if every call has its step."""
    if not run.steps.filter(kind=Step.Kind.STOP, live=True).exists():
        return None
    told = run.steps.filter(kind=Step.Kind.TRANSITION, live=True).order_by("-seq")
    asks = run.steps.filter(
        kind=Step.Kind.ASK, live=True, seq__gt=told.values_list("seq", flat=True).first() or 0
    )
    calls = run.exchanges.filter(kind="tool_call", seq__in=asks.values("seq")).order_by("-seq")
    exchange = calls.first()
    if exchange is None or exchange.status == Exchange.Status.ASKED:
        return None
    request = json.loads(exchange.request_json)
    outcome, result = _ended(run, exchange)
    if outcome == "failed" and run.exit_reason != "aborted":
        return None  # the stop followed from the failure, and says it
    return Unheard(
        exchange.seq, request["tool"], call_text(request["tool"], request["args"]), outcome, result
    )


def _ended(run: Run, exchange: Exchange) -> tuple[Outcome, str]:
    if exchange.answer_json is None:
        return "under_way" if run.stopping else "unknown", ""
    answer: dict[str, Any] = json.loads(exchange.answer_json)
    if answer["kind"] != "tool_returned":
        return "failed" if answer["ran"] else "not_done", short(answer["message"])
    if code := answer.get("exit_code"):
        return "failed", f"exit code {code}, {value_text(answer['value'])}"
    return "done" if answer["ran"] else "not_done", value_text(answer["value"])


def _sentence(outcome: Outcome, result: str) -> str:
    return f"{SAID[outcome]}: {result}" if result else f"{SAID[outcome]}."


def unheard_html(unheard: Unheard) -> SafeString:
    """Return the HTML for the step that stopped the run."""
    return mark_safe(_template().render({"unheard": unheard}).strip())


@cache
def _template() -> Any:
    return loader.get_template("runs/_unheard.html")
