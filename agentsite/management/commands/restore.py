"""`manage.py restore FILE`: restore a site from a backup, on either database."""

import os
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from agentsite import archive, presence, restoring
from agentsite.environment import private_dir, secret_key_in
from agentsite.migrating import DatabaseAway, prepare_database
from agentsite.stopped import sentence_of
from agentsite.supervise import held, stop_leftovers
from runs.management.asking import halt_notice
from runs.management.lost_files import lost_files
from runs.reading.words import plural
from runs.store import backups


class SiteRuns(CommandError):
    """A process of the site is running, perhaps with another data directory."""

    def __init__(self, where: str = "") -> None:
        super().__init__(f"The site runs{where}. Stop it first (Ctrl-C in its terminal).", returncode=2)


class Command(BaseCommand):
    """Checks the file in full, then replaces everything at once; unfinished runs are paused with a note."""

    help = "Restore a backup, into an empty site or (--force) in place of this one. The site must be stopped."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the file, and whether it may replace an existing site."""
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument(
            "--data", metavar="DIR", help="the data directory (default: var, beside manage.py)"
        )
        parser.add_argument("--force", action="store_true", help="replace a site that is not empty")

    def handle(self, *args: Any, file: Path, force: bool, **options: Any) -> None:
        """Check, restore, and print the points to check."""
        os.umask(0o077)
        lock = Path(settings.DATA_DIR) / "run" / "up.lock"
        refuse_where_it_runs(lock)
        began = time.monotonic()
        try:
            with archive.checked(file.absolute()) as backup:
                refuse_another_schema(backup)
                make_data_dir()
                with held(lock) as mine:
                    if not mine:
                        raise SiteRuns
                    stop_leftovers(lock.with_name("up.json"), self.stdout.write)
                    with presence.alone() as nobody:
                        if not nobody:
                            raise SiteRuns(": a web server, worker or scheduler of it works on this database")
                        prepare_database()
                        restoring.finish_interrupted()
                        if not force:
                            restoring.refuse_where_in_use()
                        done = restoring.restore(backup)
        except OperationalError as why:
            raise DatabaseAway(why) from None
        except OSError as why:
            raise BrokeOff(why) from None
        except (archive.BadBackup, restoring.NotEmpty) as why:
            raise CommandError(str(why), returncode=2) from None
        self.say(backup, done, time.monotonic() - began)

    def say(self, backup: archive.Backup, done: restoring.Restored, seconds: float) -> None:
        """Print the new state, and what to do."""
        made_at = backup.manifest.made_at
        self.stdout.write(
            f"Restored the site of {made_at:%Y-%m-%d %H:%M:%S} UTC: {plural(done.runs, 'run')}, in {seconds:.1f} s."
        )
        self.stdout.write("Everyone must sign in again; earlier sign-in links no longer work.")
        if done.paused:
            self.stdout.write(
                f"Paused, each with a note: {plural(done.paused, 'unfinished run')}. Resume them on the page of "
                "runs or with manage.py resume --restored. Each asks before a call with side effects: it could "
                "repeat one."
            )
        if lost := lost_files().notice:
            self.stdout.write(f"Missing from the backup: {lost}")
        if notice := halt_notice():
            self.stdout.write(notice)
        if done.lost_keys:
            self.stdout.write(
                f"The backup was made with another secret key: {plural(done.lost_keys, 'stored model key')} can't be "
                "opened. Put the old SECRET_KEY (or the file secret_key) back, or enter the keys again."
            )


class BrokeOff(CommandError):
    """The restore broke off, without room or the right to write."""

    def __init__(self, why: OSError) -> None:
        super().__init__(
            f"The restore broke off. {sentence_of(why) or why} If its data is already in the database, the next "
            "restore or start completes it; else the site is unchanged."
        )


def refuse_where_it_runs(lock: Path) -> None:
    """Raise `SiteRuns` at once, before a long file is read: a running site holds this lock."""
    if lock.exists():
        with held(lock) as mine:
            if not mine:
                raise SiteRuns


def make_data_dir() -> None:
    """Make the site's own directory and key, if missing."""
    private_dir(Path(settings.DATA_DIR) / "run")
    if not settings.ENVIRONMENT.secret_key:
        secret_key_in(Path(settings.DATA_DIR), settings.SECRET_KEY)


def refuse_another_schema(backup: archive.Backup) -> None:
    """Refuse a backup with another schema: that version restores it, and this one migrates it then."""
    mine, its = set(backups.migrations()), set(backup.manifest.migrations)
    if mine != its:
        first = min(mine ^ its)
        older = "an older" if first in mine else "a newer"
        raise archive.BadBackup(
            backup.path,
            f"{older} version made it (they differ in {first}). Restore it with that version, "
            "then start this one, which migrates it.",
        )
