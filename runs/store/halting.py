"""The kill switch of the site: a row that every claim and every intent reads; each use of it is kept.

An intent (the transaction that writes an effect as begun) and the switch exclude one another. So each intent is
committed before the switch or sees it; nothing begins after the switch is committed. See docs/operating.md, "Halt".
"""

from __future__ import annotations

from django.db import connection, transaction
from django.db.models import Exists

from runs.models import Halt, Run, RunStatus
from runs.store.db import for_people, now
from runs.store.errors import NotPossible

_LOCK = 0x61676E74
"""Number of PostgreSQL's advisory lock for the switch; any number with no other use."""


class Halted(Exception):
    """The site is halted: nothing may begin."""

    def __init__(self, halt: Halt) -> None:
        self.halt = halt
        super().__init__(f"{halt_sentence(halt)} Runs keep their state and continue once it is resumed.")


class AlreadyHalted(NotPossible):
    """The site is halted already: the first reason stays; one can be added if there is none."""

    def __init__(self, halt: Halt) -> None:
        self.halt = halt
        why = ", without a reason. One can be added: manage.py halt --reason TEXT"
        if halt.reason:
            why = f": “{halt.reason}”. A new reason is not recorded."
        super().__init__(
            f"The site was halted already, by {halt.by_name} since {halt.at:%Y-%m-%d %H:%M:%S} UTC{why}"
        )


def halt_sentence(halt: Halt) -> str:
    """Return the halt's time, author and reason."""
    why = f": {halt.reason}" if halt.reason else ""
    return f"The site is halted (since {halt.at:%Y-%m-%d %H:%M} UTC, by {halt.by_name}{why})."


def is_halted() -> Exists:
    """Return the query condition that the site is halted."""
    return Exists(Halt.objects.filter(on=True))


def halt_now() -> Halt | None:
    """Return the active halt; None if the site works."""
    return Halt.objects.filter(on=True).first()


@for_people
def halt_site(by: str, reason: str) -> Halt:
    """Halt the site: after the commit nothing begins.

    If it is halted already, a missing reason is added; else raises `AlreadyHalted`, and the first reason stays.
    """
    with transaction.atomic():
        _exclude_intents()
        before = halt_now()
        if before is not None and (before.reason or not reason):
            raise AlreadyHalted(before)
        if before is not None:
            before.reason = reason
            before.save(update_fields=["reason"])
            return before
        return Halt.objects.create(on=True, by_name=by, reason=reason, at=now())


@for_people
def unhalt_site(by: str) -> Halt | None:
    """Resume the site. Return None if it was not halted."""
    with transaction.atomic():
        _exclude_intents()
        halt = halt_now()
        if halt is not None:
            halt.on, halt.ended_at, halt.ended_by = False, now(), by
            halt.save(update_fields=["on", "ended_at", "ended_by"])
        return halt


def _exclude_intents() -> None:
    """Wait for intents in flight; later ones wait for this transaction. On SQLite there is one writer."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))


def halted_for_intent() -> Halt | None:
    """Return the active halt for an intent, within its transaction: it can't change until that is committed."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", (_LOCK,))
    return halt_now()


def unfinished_ids(*statuses: RunStatus) -> list[int]:
    """Return the runs in these states, oldest first."""
    return list(Run.objects.filter(status__in=statuses).order_by("pk").values_list("pk", flat=True))
