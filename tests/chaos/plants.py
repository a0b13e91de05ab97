"""Planted faults: for each check one thing is made wrong for a moment, and the check must say so.

Those in the database are taken back with the transaction that they are planted in, those beside it are removed.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from runs import actions, driver
from runs.machines import CATALOGUE
from runs.models import Decision, Exchange, Interrupt, Run, Step
from runs.reading.panels import panels_of
from tests.chaos import canaries, copies, effects, leftovers, pages, plays, purses, saved
from tests.chaos.far_side import ABOVE
from tests.chaos.findings import Violation
from tests.chaos.people import start
from tests.chaos.rounds import rounds_are_whole


@dataclass(frozen=True)
class Cast:
    """Some runs that have ended, and that nothing is wrong with."""

    run: Run
    """It made a call that a person had let it."""
    copy: Run
    replay: Run

    @classmethod
    def made(cls) -> Cast:
        """Driven in this process."""
        calls = [plays.Planned("pay", "cast", ABOVE + 1), plays.Planned("jot", "cast", 2)]
        made = plays.limited(plays.play_of("ruled", "cast", calls), {"cost_usd": 1.0}, "stop")
        run = driver.drive_inline(start(made).pk)
        asked = Interrupt.objects.get(run=run, status=Interrupt.Status.PENDING)
        actions.decide(asked.pk, verdict="approve", by=None, channel="command")
        run = driver.drive_inline(run.pk)
        row = run.steps.filter(kind="transition", live=True).order_by("seq").values_list("seq", flat=True)[2]
        copies.write_down(run)
        copy = driver.drive_inline(actions.fork(run, at=row, by=None, answers="keep").pk)
        replay, difference = actions.replay(run, by=None)
        assert run.finished and copy.finished and difference is None
        return cls(run, copy, replay)


@dataclass(frozen=True)
class Plant:
    """A fault, and which invariant must be seen broken by it."""

    invariant: str
    what: str
    found: Callable[[Cast], list[Violation]]
    """Plants it, looks, and takes it away."""


@contextlib.contextmanager
def _for_a_moment() -> Iterator[None]:
    """Whatever is written in here is taken back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


# --- limits -------------------------------------------------------------------------------------------------------


def _reserved(cast: Cast) -> list[Violation]:
    with _for_a_moment():
        Run.objects.filter(pk=cast.run.pk).update(reserved_tokens=100)
        return list(purses.settled(Run.objects.filter(pk=cast.run.pk)))


def _overspent(cast: Cast) -> list[Violation]:
    with _for_a_moment():
        Run.objects.filter(pk=cast.copy.pk).update(reserved_usd=0.9999)
        return list(purses.families([cast.run.pk]))


def _overspent_row(cast: Cast) -> list[Violation]:
    with _for_a_moment():
        text = '{"cost_usd":0.0015}'
        run = Run.objects.get(pk=cast.run.pk)
        run.settings_json = run.settings_json.replace('{"cost_usd":1.0}', text)
        return list(purses.events(run))


# --- pages --------------------------------------------------------------------------------------------------------


def _opened(run: Run) -> pages.Page:
    page = pages.Page(run.pk)
    page.catch_up()
    return page


def _lost_row(cast: Cast) -> list[Violation]:
    page = _opened(cast.run)
    del page.rows[page.head - 1]
    return list(pages.page_is_right(page, cast.run))


def _old_row(cast: Cast) -> list[Violation]:
    page = _opened(cast.run)
    page.rows[2] = page.rows[3]
    return list(pages.page_is_right(page, cast.run))


def _old_panels(cast: Cast) -> list[Violation]:
    user, _ = pages.onlooker()
    panels = panels_of(cast.run, user)
    with _for_a_moment():
        Step.objects.filter(run=cast.run, kind="transition", seq__lt=cast.run.head).update(live=False)
        return list(pages.numbers_are_right(cast.run, panels))


# --- prompts and approvals ------------------------------------------------------------------------------------------


def _orphan(cast: Cast) -> list[Violation]:
    with _for_a_moment():
        called = Step.objects.filter(run=cast.run, facts_json__contains='"react.tool.call"').order_by("seq")[
            0
        ]
        Step.objects.filter(pk=called.pk).update(live=False)
        return list(rounds_are_whole(cast.run, CATALOGUE[cast.run.machine]))


def _unapproved(cast: Cast) -> list[Violation]:
    with _for_a_moment():
        Decision.objects.filter(interrupt__run=cast.run).update(verdict="reject")
        return list(effects.ungated(cast.run, effects.happened()))


# --- copies and states ----------------------------------------------------------------------------------------------


def _changed_parent(cast: Cast) -> list[Violation]:
    with _for_a_moment():
        Run.objects.filter(pk=cast.run.pk).update(answer="another")
        before = next(said for said in copies.written_down() if said["run"] == cast.run.pk)
        return list(copies.unchanged(before))


def _torn_copy(cast: Cast) -> list[Violation]:
    with _for_a_moment():
        Exchange.objects.filter(run=cast.copy, seq__lte=cast.copy.copied_upto or 0).delete()
        return list(copies.whole(cast.copy))


def _wrong_replay(cast: Cast) -> list[Violation]:
    with _for_a_moment():
        last = Step.objects.filter(run=cast.replay).order_by("-seq")[0]
        Step.objects.filter(pk=last.pk).update(facts_json='[{"message":"The replay differs."}]')
        return list(copies.whole(cast.replay))


def _wrong_state(cast: Cast) -> list[Violation]:
    with _for_a_moment():
        last = Step.objects.filter(run=cast.run).exclude(state_json=None).order_by("-seq")[0]
        kept = Step.objects.filter(run=cast.run).exclude(state_json=None)
        kept.exclude(pk=last.pk).update(state_json=last.state_json)
        return list(copies.restores(cast.run, random.Random(1)))


def _torn_backup(cast: Cast) -> list[Violation]:
    saved.folder().mkdir(exist_ok=True)
    path = saved.folder() / saved.NAMES[0]
    kept = path.read_bytes() if path.exists() else None
    path.write_bytes(b"PK\x03\x04 and no more")
    try:
        return list(saved.is_sound(path))
    finally:
        path.unlink()
        if kept is not None:
            path.write_bytes(kept)


# --- secrets ------------------------------------------------------------------------------------------------------


def _told_row(cast: Cast) -> list[Violation]:
    with _for_a_moment():
        Run.objects.filter(pk=cast.run.pk).update(answer=f"It is {settings.SECRET_KEY}.")
        return list(canaries.Canaries.known().in_tables())


def _told_file(cast: Cast) -> list[Violation]:
    path = Path(settings.DATA_DIR) / "logs" / "told.log"
    path.write_text("x" * (canaries.CHUNK - 9) + settings.SECRET_KEY)
    try:
        return list(canaries.Canaries.known().in_files(path.parent))
    finally:
        path.unlink()


def _told_page(cast: Cast) -> list[Violation]:
    _, client = pages.onlooker()
    with _for_a_moment():
        Run.objects.filter(pk=cast.run.pk).update(answer=f"It is {settings.SECRET_KEY}.")
        return list(canaries.Canaries.known().in_pages([cast.run], client))


# --- leftovers ----------------------------------------------------------------------------------------------------


def _left_process(cast: Cast) -> list[Violation]:
    words = [
        sys.executable,
        "-c",
        "import sys; sys.stdout.write('here'); sys.stdout.flush(); sys.stdin.read()",
    ]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as process:
        assert process.stdout is not None
        process.stdout.read(4)
        found = [
            Violation("I11", None, f"process {pid} is left: {what[:60]}")
            for pid, what in leftovers.processes_of(Path(settings.DATA_DIR)).items()
            if pid == process.pid
        ]
        process.kill()
    return found


def _left_socket(cast: Cast) -> list[Violation]:
    path = Path(settings.DATA_DIR) / "left.sock"
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(path))
        found = leftovers.sockets_in(path.parent)
    path.unlink()
    return [Violation("I11", None, f"the socket {path.name} is left") for one in found if one == str(path)]


def _left_part(cast: Cast) -> list[Violation]:
    folder = Path(settings.DATA_DIR) / "runs"
    part = folder / str(cast.run.pk) / "files" / ".left.part"
    part.write_bytes(b"half")
    os.utime(part, (1.0, 1.0))
    try:
        return list(leftovers.forgotten_parts(folder))
    finally:
        part.unlink()


PLANTS: dict[str, Plant] = {
    "reserved": Plant("I6", "a reservation on a run that has ended", _reserved),
    "overspent": Plant("I6", "a fork that has more set aside than its family has left", _overspent),
    "overspent row": Plant("I6", "a row at which more was spent than the limit", _overspent_row),
    "lost row": Plant("I7", "a page that lacks a row", _lost_row),
    "old row": Plant("I7", "a page with a row of another time", _old_row),
    "old panels": Plant("I7", "a page with panels of another time", _old_panels),
    "orphan": Plant("I8", "a result whose call the model is not shown", _orphan),
    "unapproved": Plant("I5", "a call that nobody approved", _unapproved),
    "changed parent": Plant("I9", "a run that a fork has changed", _changed_parent),
    "torn copy": Plant("I9", "half a copy", _torn_copy),
    "wrong replay": Plant("I9", "a replay that came out otherwise", _wrong_replay),
    "wrong state": Plant("I9", "a state that is not what its rows come to", _wrong_state),
    "torn backup": Plant("K12", "half a backup under the name of a whole one", _torn_backup),
    "told row": Plant("I10", "a secret in a column", _told_row),
    "told file": Plant("I10", "a secret in a log", _told_file),
    "told page": Plant("I10", "a secret on a page", _told_page),
    "left process": Plant("I11", "a process that goes on", _left_process),
    "left socket": Plant("I11", "a socket that is open", _left_socket),
    "left part": Plant("I11", "a nameless file that the next writer has left", _left_part),
}
