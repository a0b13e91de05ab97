"""Answers of workers that could not draw the conclusion: their seat was taken, or the database failed them."""

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
"""Kinds of asks that a model answers."""


@again
def keep_answer(run_id: int, epoch: int, asked: Asked, seconds: float, *, written: bool) -> None:
    """Keep what the call of the worker with that epoch brought. `written`: its ask is a row.

    The `seconds` that it was at work, and that no row has counted, count in any case: they are gone.

    Whoever goes on from that ask uses it. Where nobody will (it is no row, is answered otherwise, or the run has ended
    or gone back), the run is charged at once; so it is where the model is asked anew, for the limits or the context
    have changed. A tool's call that is made again is counted there, and not here. The guess at what the call cost is
    taken back. Where the conclusion was written after all, and only that was not heard of, there is nothing to do.
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
                _take_back_the_guess(run_id, epoch)
                charge(run_id, answer)
            return  # whoever goes on makes the call again
        _take_back_the_guess(run_id, epoch)
        if not written:
            _charge(run_id, asked, answer, since=asked.seq)
        elif _is_asked_anew(run_id, asked):
            pay(run_id, answer)
        else:
            _use_or_charge(run_id, asked, answer)


def _lock(run_id: int) -> None:
    """Hold the run, and before it those that it was called from, which may be charged with it."""
    parent = Run.objects.values("parent_id").get(pk=run_id)["parent_id"]
    if parent is not None:
        _lock(parent)
    lock(run_id)


def _is_asked_anew(run_id: int, asked: Asked) -> bool:
    """Whether the model's answer is not wanted any more: another ask took the place of its own, or will.

    Who changes what the model reads wants it to be asked again; a summary is looked at again when it is concluded.
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
    """What nobody will conclude: a model's reply is paid in any case, the attempts of a tool's call are one."""
    if asked.kind in OF_A_MODEL or not _is_counted_later(run_id, since):
        charge(run_id, answer)


def _is_counted_later(run_id: int, since: int) -> bool:
    """Whether the rows from `since` on make the call again, or say how it ended, or will."""
    moves = Step.objects.filter(run_id=run_id, seq__gte=since, kind__in=MOVES).exclude(kind=Step.Kind.ASK)
    first = moves.order_by("seq").values_list("seq", "kind").first()
    if first is None:
        return True
    seq, kind = first
    answered = Exchange.objects.filter(run_id=run_id, seq__gte=since, seq__lt=seq, status="answered")
    return kind not in (Step.Kind.STOP, Step.Kind.REWIND) or answered.exists()


def _goes_on(run_id: int, asked: Asked) -> bool:
    return Step.objects.filter(run_id=run_id, seq=asked.seq, live=True).exclude(run__node=END).exists()


def _take_back_the_guess(run_id: int, epoch: int) -> None:
    """What the worker's call may have used is known now: nothing is set aside for it, nor counted as a guess."""
    mine = Run.objects.filter(pk=run_id, reserved_epoch=epoch)
    if mine.update(reserved_usd=0, reserved_tokens=0, reserved_epoch=0):
        return
    told = Step.objects.filter(tells_of("run.recovered", lost=epoch), run_id=run_id, kind=Step.Kind.RECOVERED)
    for text in told.values_list("facts_json", flat=True):
        lost = tuple(fact for fact in RECOVERED.validate_json(text) if fact.lost == epoch)
        guess = Totals().after_losses(lost)
        add_beside(run_id, Totals(output_tokens=-guess.output_tokens, cost_usd=-guess.cost_usd))
