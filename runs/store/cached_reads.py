"""Results that can be repeated to a run: its earlier reads, until something changes."""

from __future__ import annotations

from runs.engine.effects import ANSWER, EFFECT, ToolCall, ToolReturned
from runs.models import Exchange, Run


def read_before(run: Run, call: ToolCall, seq: int) -> ToolReturned | None:
    """Return the same call's result before step `seq`; None if unknown, or if something was changed since.

    A change counts even if it was rolled back: it has happened. Steps copied into a fork don't count: the source run
    may have changed something since.
    """
    own = run.steps.filter(kind="ask", live=True, seq__gt=run.copied_upto or 0, seq__lt=seq)
    live = own.values("seq")
    same = run.exchanges.filter(
        seq__in=live, kind="tool_call", fingerprint=call.fingerprint, status="answered"
    )
    found = same.order_by("-seq").first()
    if found is None or _changed_since(run, found.seq, seq):
        return None
    answer = ANSWER.validate_json(found.answer_json or "")
    if not isinstance(answer, ToolReturned) or not answer.ran or answer.exit_code or answer.files:
        return None
    return answer.model_copy(update={"cached_from": answer.cached_from or found.seq})


def _changed_since(run: Run, after: int, before: int) -> bool:
    """Return True if a call between the two steps may have changed something; a child run may."""
    between = run.exchanges.filter(seq__gt=after, seq__lt=before)
    if between.filter(kind="child_run").exists():
        return True
    begun = between.filter(kind="tool_call").exclude(status=Exchange.Status.ASKED)
    effects = (EFFECT.validate_json(text) for text in begun.values_list("request_json", flat=True))
    return any(isinstance(effect, ToolCall) and not effect.repeatable for effect in effects)
