"""The people of the bench, and those who copy and back up while everything is disturbed."""

from __future__ import annotations

import contextlib
import os
import random
import time

from agentsite import archive
from runs import actions
from runs.models import Exchange, Interrupt, Run, RunStatus
from runs.store import errors
from tests.chaos import copies, plays, saved
from tests.chaos.far_side import EFFECTS
from tests.chaos.wiring import IDLE_S, Wiring, unharmed

COPY_S = 0.4
"""Seconds between two copies."""

ADDED = {"cost_usd": 0.02, "tokens": 5_000}
"""What a person adds to a limit that was reached."""

BACKUP_S = 1.5
"""Seconds between two backups."""


def launcher(wiring: Wiring, dice: random.Random) -> None:
    """Launches a run whenever too few are unfinished; it may be killed between the row and the hint."""
    number = 0
    while True:
        with unharmed():
            unfinished = Run.objects.filter(ended_at__isnull=True, parent__isnull=True).count()
            for _ in range(max(0, wiring.level - unfinished)):
                number += 1
                start(plays.play(f"{wiring.batch}-{number}", dice))
        time.sleep(IDLE_S)


def start(play: plays.Play) -> Run:
    """Launch a play."""
    return actions.start_run(
        machine=play.machine, goal=play.label, settings=play.settings, owner=None, script=play.script
    )


def person(wiring: Wiring, dice: random.Random) -> None:
    """Answer every question: refuse some calls, ask the far side about one that may have happened, let runs go on."""
    while True:
        with unharmed():
            for interrupt in Interrupt.objects.filter(status=Interrupt.Status.PENDING)[:20]:
                with contextlib.suppress(errors.Conflict, errors.NotPossible, errors.BadDecision):
                    _answer(interrupt, dice)
        time.sleep(IDLE_S)


def _answer(interrupt: Interrupt, dice: random.Random) -> None:
    verdict, message, args = "approve", "", None
    if interrupt.kind == "limit":
        verdict, args = "top_up", {interrupt.limit: ADDED[interrupt.limit]}
    elif interrupt.kind == "manual":
        verdict = "resume"
    elif interrupt.kind == "may_have_happened":
        # the far side is told that nothing may come under that key any more: a frozen worker may wake up
        if EFFECTS.close_key(_key_of(interrupt)):
            verdict, message = "respond", "It did."
    elif dice.random() < 0.2:
        verdict, message = "reject", "No."
    actions.decide(
        interrupt.pk,
        verdict=verdict,
        by=None,
        channel="web",
        args=args,
        message=message,
        revision=interrupt.revision,
        fingerprint=interrupt.fingerprint,
    )


def _key_of(interrupt: Interrupt) -> str:
    """The key of the call that the question is about."""
    lost = Exchange.objects.filter(run_id=interrupt.run_id, seq__lt=interrupt.seq, kind="tool_call")
    return lost.order_by("-seq").values_list("key", flat=True)[0]


def meddler(wiring: Wiring, dice: random.Random) -> None:
    """Pauses, resumes and rolls back runs of its own batch while they are driven."""
    while True:
        with unharmed(), contextlib.suppress(errors.Conflict, errors.NotPossible):
            _meddle(wiring, dice)
        time.sleep(IDLE_S)


def _meddle(wiring: Wiring, dice: random.Random) -> None:
    mine = Run.objects.filter(ended_at__isnull=True, goal__startswith="steered", parent__isnull=True)
    if mine.count() < 3:
        label = f"steered-{os.getpid()}-{dice.randint(0, 10**9)}"
        calls = plays.calls_of(label, dice, 5)
        start(plays.long(label, calls) if dice.random() < 0.4 else plays.play_of("ruled", label, calls))
    for paused in mine.filter(status=RunStatus.PAUSED):
        actions.resume(paused, by=None)
    run = dice.choice(list(mine))
    targets = list(run.steps.filter(kind="transition", live=True).values_list("seq", flat=True))
    rolled_back = run.steps.filter(kind="rewind").count()
    if targets and rolled_back < 2 and dice.random() < 0.2:
        actions.rewind(run, to=dice.choice(targets), by=None)
    elif dice.random() < 0.2:
        actions.pause(run, by=None)


# --- copies and backups -------------------------------------------------------------------------------------------


def copier(wiring: Wiring, dice: random.Random) -> None:
    """Forks runs, asks them anew and replays them, whatever they are doing at the moment."""
    while True:
        with unharmed(), contextlib.suppress(errors.Conflict, errors.NotPossible):
            _copy(wiring, dice)
        time.sleep(COPY_S)


def _copy(wiring: Wiring, dice: random.Random) -> None:
    grown = Run.objects.exclude(origin="replay").filter(head__gt=2).order_by("-pk")
    found = list(grown.values_list("pk", flat=True)[:40])
    if not found:
        return
    run = Run.objects.get(pk=dice.choice(found))
    copies.write_down(run)
    crowded = Run.objects.filter(ended_at__isnull=True, parent__isnull=True).count() > wiring.level
    if crowded or dice.random() < 0.5:
        actions.replay(run, by=None)
        return
    targets = run.steps.filter(kind="transition", live=True).exclude(to="end").values_list("seq", flat=True)
    at = dice.choice([0, *targets])
    if dice.random() < 0.3:
        actions.rerun(run, at=at, by=None, answers=dice.choice(("ask again", "keep")))
    else:
        actions.fork(run, at=at, by=None, answers=dice.choice(("ask again", "keep")))


def keeper(wiring: Wiring, dice: random.Random) -> None:
    """Backs the site up, again and again, over the backups of before."""
    saved.folder().mkdir(exist_ok=True)
    while True:
        with unharmed(), contextlib.suppress(archive.FileInUse):
            archive.write(saved.folder() / dice.choice(saved.NAMES), replaces=True)
        time.sleep(BACKUP_S)
