"""Answers of workers that could not conclude them: they lost their lease, or the database failed."""

from __future__ import annotations

from django.db import connection, transaction
from django.db.models import Q

from runs.engine.effects import ANSWER, Answer, Failed, Usage
from runs.engine.fact_kinds import CONTEXT_CHANGES
from runs.engine.facts import RECOVERED
from runs.engine.machine import END
from runs.engine.snapshot import Totals
from runs.models import Exchange, Run, Step, tells, tells_of
from runs.store.db import again
from runs.store.loading import MOVES
from runs.store.log import Asked, add_beside, answer_first, charge, lock, pay

OF_A_MODEL = ("model_call", "compaction")
"""Kinds of asks answered by a model."""


@again
def keep_answer(run_id: int, epoch: int, asked: Asked, seconds: float, *, written: bool) -> None:
    """Keep the answer to a call by the worker with that epoch. `written`: its ask is a step.

    The `seconds` of its work that no step has counted are added in any case.

    The run's next worker uses the answer. The run is charged at once if none will: the ask is no step, is answered
    otherwise, or the run has ended or was rolled back. So it is if the model is asked anew after a change of limits or
    context. A retried tool call is counted at the retry, not here. The guess at the call's cost is corrected. If the
    conclusion was written after all, there is nothing to do.
    """
    assert asked.answer_json is not None
    with transaction.atomic():
        _lock(run_id)
        if Exchange.objects.filter(run_id=run_id, seq=asked.seq, answered_at=asked.answered_at).exists():
            return
        add_beside(run_id, Totals(active_seconds=seconds))
        answer = ANSWER.validate_json(asked.answer_json)
        if isinstance(answer, Failed) and asked.kind in OF_A_MODEL:
            if answer.usage != Usage():
                _correct_guess(run_id, epoch)
                charge(run_id, answer)
            return  # the next worker makes the call again
        _correct_guess(run_id, epoch)
        if not written:
            _charge(run_id, asked, answer, since=asked.seq)
        elif _is_superseded(run_id, asked):
            pay(run_id, answer)
        else:
            _use_or_charge(run_id, asked, answer)


def _lock(run_id: int) -> None:
    """Lock the run, and before it its callers, which may be charged with it."""
    parent = Run.objects.values("parent_id").get(pk=run_id)["parent_id"]
    if parent is not None:
        _lock(parent)
    lock(run_id)


def _is_superseded(run_id: int, asked: Asked) -> bool:
    """Return True if the model's answer is no longer wanted: another ask took the place of its own, or will.

    A change of the model's context wants it to be asked again; a summary is checked again when it is concluded.
    """
    if asked.kind not in OF_A_MODEL or not _goes_on(run_id, asked):
        return False
    unanswered = Exchange.objects.filter(run_id=run_id, seq=asked.seq).exclude(status="answered").exists()
    later = Step.objects.filter(run_id=run_id, live=True, seq__gt=asked.seq)
    for_another = Q(kind__in=MOVES)
    if asked.kind == "model_call":
        for_another |= Q(kind=Step.Kind.NOTE) & tells(*CONTEXT_CHANGES)
    return unanswered and later.filter(for_another).exists()


def _use_or_charge(run_id: int, asked: Asked, answer: Answer) -> None:
    with connection.cursor() as cursor:
        kept = answer_first(cursor, run_id, asked)
    if not kept:
        pay(run_id, answer)
    elif not _goes_on(run_id, asked):
        _charge(run_id, asked, answer, since=asked.seq + 1)


def _charge(run_id: int, asked: Asked, answer: Answer, since: int) -> None:
    """Charge an answer without a conclusion: a model's reply is always paid, the attempts of a tool's call count as
    one."""
    if asked.kind in OF_A_MODEL or not _is_counted_later(run_id, since):
        charge(run_id, answer)


def _is_counted_later(run_id: int, since: int) -> bool:
    """Return True if the steps from `since` on repeat the call, or record its end, or will."""
    moves = Step.objects.filter(run_id=run_id, seq__gte=since, kind__in=MOVES).exclude(kind=Step.Kind.ASK)
    first = moves.order_by("seq").values_list("seq", "kind").first()
    if first is None:
        return True
    seq, kind = first
    answered = Exchange.objects.filter(run_id=run_id, seq__gte=since, seq__lt=seq, status="answered")
    return kind not in (Step.Kind.STOP, Step.Kind.REWIND) or answered.exists()


def _goes_on(run_id: int, asked: Asked) -> bool:
    return Step.objects.filter(run_id=run_id, seq=asked.seq, live=True).exclude(run__node=END).exists()


def _correct_guess(run_id: int, epoch: int) -> None:
    """Correct the guess at the worker's call, whose true usage is known now, and drop its reservation."""
    mine = Run.objects.filter(pk=run_id, reserved_epoch=epoch)
    if mine.update(reserved_usd=0, reserved_tokens=0, reserved_epoch=0):
        return
    told = Step.objects.filter(tells_of("run.recovered", lost=epoch), run_id=run_id, kind=Step.Kind.RECOVERED)
    for text in told.values_list("facts_json", flat=True):
        lost = tuple(fact for fact in RECOVERED.validate_json(text) if fact.lost == epoch)
        guess = Totals().after_losses(lost)
        add_beside(run_id, Totals(output_tokens=-guess.output_tokens, cost_usd=-guess.cost_usd))
