"""The kill switch of the site: a row that every claim and every intent reads; each throw of it is one, and is kept.

An intent (the transaction that writes an effect as begun) and the switch exclude one another, so each intent is
committed before the switch or sees it; nothing begins after the switch is committed. See docs/operating.md, "Halt".
"""

from __future__ import annotations

from django.db import connection, transaction
from django.db.models import Exists

from runs.models import Halt, Run, RunStatus
from runs.store.db import for_people, now
from runs.store.errors import NotPossible

_LOCK = 0x61676E74
"""The number that PostgreSQL's advisory lock of the switch has; any number that nothing else takes."""


class Halted(Exception):
    """The site is halted: nothing may begin."""

    def __init__(self, halt: Halt) -> None:
        self.halt = halt
        super().__init__(f"{halt_sentence(halt)} Runs stay as they are and go on when that is over.")


class AlreadyHalted(NotPossible):
    """The site was halted before: the first one's words stay; a reason can be added where it gave none."""

    def __init__(self, halt: Halt) -> None:
        self.halt = halt
        why = ", without a reason. One can be added: manage.py halt --reason TEXT"
        if halt.reason:
            why = f": “{halt.reason}”. A new reason is not recorded."
        super().__init__(
            f"The site was halted already, by {halt.by_name} since {halt.at:%Y-%m-%d %H:%M:%S} UTC{why}"
        )


def halt_sentence(halt: Halt) -> str:
    """Since when the site is halted, by whom, and why."""
    why = f": {halt.reason}" if halt.reason else ""
    return f"The site is halted (since {halt.at:%Y-%m-%d %H:%M} UTC, by {halt.by_name}{why})."


def is_halted() -> Exists:
    """As a condition of a query."""
    return Exists(Halt.objects.filter(on=True))


def halt_now() -> Halt | None:
    """The switch where it is on; None where the site works."""
    return Halt.objects.filter(on=True).first()


@for_people
def halt_site(by: str, reason: str) -> Halt:
    """From the commit on nothing begins.

    Where the site is halted, a reason is added if there is none yet; else `AlreadyHalted`: the first one's words stay.
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
    """Let the site work again. None where it did already."""
    with transaction.atomic():
        _exclude_intents()
        halt = halt_now()
        if halt is not None:
            halt.on, halt.ended_at, halt.ended_by = False, now(), by
            halt.save(update_fields=["on", "ended_at", "ended_by"])
        return halt


def _exclude_intents() -> None:
    """Wait for the intents under way; those to come wait for this transaction. On SQLite there is one writer."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))


def halted_for_intent() -> Halt | None:
    """The switch as an intent must read it, within its transaction: it stays so until that is committed."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", (_LOCK,))
    return halt_now()


def unfinished_ids(*statuses: RunStatus) -> list[int]:
    """The runs in these states, oldest first."""
    return list(Run.objects.filter(status__in=statuses).order_by("pk").values_list("pk", flat=True))
