"""Restore a site from a backup: the database in one transaction, the directories by a rename, and both or neither.

It also handles the id shared by the database and a file beside it. If they differ, an old database has replaced the
site's, and the runs' logs lack their actions since. See docs/operating.md, "Backup and restore".
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from agentsite.archive import Backup, key_id, runs_dir
from agentsite.environment import private_dir
from agentsite.supervise import write_atomically
from runs.failpoints import failpoint
from runs.models import ModelProfile, Run
from runs.reading.words import plural
from runs.store import backups

ID_LASTS_S = 60.0
"""Seconds; a copy of the database made within them before a crash can't be told from the crashed one."""

UNKNOWN = "What this run did after that is not in its log. Once resumed, it asks before each call with side effects."


@dataclass(frozen=True)
class Restored:
    """The result of a restore."""

    runs: int
    paused: int
    lost_keys: int
    """Keys of models that this site's secret key does not open."""


class NotEmpty(Exception):
    """A restore would replace a site in use."""

    def __init__(self, runs: int, people: int) -> None:
        self.runs = runs
        self.people = people
        super().__init__(
            f"This site is not empty: {plural(runs, 'run')}, {plural(people, 'account')}. Name an empty data "
            "directory (--data DIR), or add --force to replace all of it with the backup."
        )


def refuse_where_in_use() -> None:
    """Raise `NotEmpty` if anything would be lost."""
    runs, people = Run.objects.count(), User.objects.count()
    if runs or people or any(runs_dir().glob("*")):
        raise NotEmpty(runs, people)


def restore(backup: Backup) -> Restored:
    """Restore the site from the backup. Killed anywhere, it is the old site or the new one at the next start."""
    finish_interrupted()
    new = backups.new_epoch_id()
    fresh = Path(settings.DATA_DIR) / "runs.restoring"
    write_atomically(_journal(), json.dumps({"epoch": new, "folder": fresh.name}))
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    backup.extract_files(fresh)
    failpoint("restore_before_load")
    made_at = backup.manifest.made_at
    why = f"Restored from a backup of {made_at:%Y-%m-%d %H:%M:%S} UTC. {UNKNOWN}"
    paused = _load(backup, why, new)
    failpoint("restore_after_load")
    finish_interrupted()
    other_key = backup.manifest.secret_key != key_id()
    sealed = ModelProfile.objects.exclude(sealed_key="").count()
    return Restored(Run.objects.count(), paused, sealed if other_key else 0)


def _load(backup: Backup, why: str, epoch: str) -> int:
    """Run the one transaction: tables, paused runs, the new id."""
    with backups.transaction.atomic():
        paused = backups.load(backup.lines, why, backup.manifest.made_at)
        backups.mark_restored(epoch)
        failpoint("restore_before_commit")
    return paused


# --- directories --------------------------------------------------------------------------------------------------


def _journal() -> Path:
    return private_dir(Path(settings.DATA_DIR) / "run") / "restoring.json"


def finish_interrupted() -> str:
    """Finish an interrupted restore: forward if its data is in the database, else back.

    Return a sentence about it; empty if there was none.
    """
    journal = _journal()
    if not journal.exists():
        return ""
    noted = json.loads(journal.read_text(encoding="utf-8"))
    fresh = Path(settings.DATA_DIR) / str(noted["folder"])
    if backups.epoch_id() != noted["epoch"]:
        shutil.rmtree(fresh, ignore_errors=True)
        journal.unlink()
        return "A restore was interrupted before it changed anything. Start it again if you still want it."
    old = Path(settings.DATA_DIR) / "runs.before"
    if fresh.exists():
        if runs_dir().exists():
            shutil.rmtree(old, ignore_errors=True)
            runs_dir().rename(old)
            failpoint("restore_between_renames")
        fresh.rename(runs_dir())
    _write_ids([str(noted["epoch"])])
    shutil.rmtree(old, ignore_errors=True)
    journal.unlink()
    return "A restore was interrupted after its data was loaded; it is now complete."


# --- the id in the database and beside it -------------------------------------------------------------------------


def _ids_file() -> Path:
    return Path(settings.DATA_DIR) / "restore_epoch"


def _ids_beside() -> list[str]:
    try:
        found = json.loads(_ids_file().read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    return [str(one) for one in found] if isinstance(found, list) else []


def _write_ids(ids: list[str]) -> None:
    write_atomically(_ids_file(), json.dumps(ids))


def notice_an_old_database() -> str:
    """Pause unfinished runs if the database is not the last one of this data directory, and say so.

    A database server may have several data directories, so a directory without an id takes the server's.
    """
    inside, beside = backups.epoch_id(), _ids_beside()
    unknown_here = not beside and (not inside or connection.vendor == "postgresql")
    if unknown_here or inside in beside:
        _write_another_id(inside)
        return ""
    why = f"The database replaced another one and may be an old copy. {UNKNOWN}"
    paused = backups.pause_unfinished(why)
    backups.begin_another_life()
    _write_another_id(inside)
    return (
        "This database is not the last one used here: it may be an old copy. "
        f"Unfinished runs paused for it: {paused}. Their pages say why."
    )


def renew_id() -> None:
    """Write a new id, so earlier copies of the file are recognised.

    A database that replaced the site's while it ran gets none: the next start is to notice it.
    """
    inside = backups.epoch_id()
    if connection.vendor == "postgresql" or inside in _ids_beside():
        _write_another_id(inside)


def renew_old_id() -> None:
    """Write a new id if the current one is too old, since a crash leaves no other chance. For periodic callers.

    The clock may have been set meanwhile, either way.
    """
    if connection.vendor == "sqlite" and _ids_beside():
        written_at = _ids_file().stat().st_mtime
        if abs(time.time() - written_at) >= ID_LASTS_S:
            renew_id()


def _write_another_id(inside: str) -> None:
    """Write the id first beside, then in the database: after an interruption between the two, both are known.

    A server's id stays: other data directories know it too.
    """
    if connection.vendor == "postgresql" and inside:
        _write_ids([inside])
        return
    new = backups.new_epoch_id()
    _write_ids([inside, new] if inside else [new])
    backups.set_epoch_id(new)
    _write_ids([new])
