"""`manage.py backup FILE`: the whole site in one file, while it works on."""

import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentsite import archive
from runs.management.lost_files import lost_files
from runs.reading.words import plural
from runs.store import backups


class FilesAway(CommandError):
    """The database names files missing from the backup's sources."""

    def __init__(self, lost: str) -> None:
        super().__init__(
            f"{lost} A backup would not include them. If the site uses another data directory, name it: "
            "manage.py backup FILE --data DIR. To back up the rest: --without-lost",
            returncode=2,
        )


class Command(BaseCommand):
    """Backs up database and runs' directories, as of one moment, with hashes."""

    help = "Back up the site into one file while it runs. The backup does not include data/secret_key: keep that too."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the file and the options."""
        parser.add_argument("file", metavar="FILE")
        parser.add_argument(
            "--data", metavar="DIR", help="the data directory (default: var, beside manage.py)"
        )
        parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
        parser.add_argument(
            "--without-lost", action="store_true", help="back up even if files of runs are missing"
        )

    def handle(self, *args: Any, file: str, force: bool, without_lost: bool, **options: Any) -> None:
        """Write the backup, and print its contents."""
        began = time.monotonic()
        if not backups.is_migrated():
            why = (
                "An older version made the database. Start this one once (up), or back up with the older one."
            )
            raise CommandError(why, returncode=2)
        path = _place(file)
        lost = lost_files().notice
        if lost and not without_lost:
            raise FilesAway(lost)
        try:
            manifest = archive.write(path.absolute(), replaces=force)
        except (archive.AmongRuns, archive.FileThere, archive.FileInUse) as why:
            raise CommandError(str(why), returncode=2) from None
        except OSError as why:
            raise CommandError(f"{file} can't be written: {why.strerror}.", returncode=2) from None
        rows = sum(part.rows or 0 for part in manifest.parts.values())
        files = sum(name.startswith("runs/") for name in manifest.parts)
        self.stdout.write(
            f"{file}: {plural(manifest.runs, 'run')} ({manifest.unfinished} unfinished), {rows} rows, {files} files, "
            f"{path.stat().st_size / 1e6:.1f} MB, in {time.monotonic() - began:.1f} s."
        )
        if lost:
            self.stdout.write(f"Not included: {lost}")
        self.stdout.write(
            "Anyone who has it can read everything except model keys; those need the site's secret key "
            "(SECRET_KEY, or secret_key in the data directory). Keep that elsewhere."
        )


def _place(text: str) -> Path:
    """Return the named file, in an existing directory."""
    if text == "-":
        why = "A backup can't be printed. Name a file, e.g. site.zip."
        raise CommandError(why, returncode=2)
    path = Path(text)
    if path.is_dir():
        raise CommandError(f"{text} is a directory. Name a file, e.g. {path / 'site.zip'}.", returncode=2)
    if text.endswith("/"):
        why = f"The directory {text} does not exist. Make it first and name a file in it, e.g. {path / 'site.zip'}."
        raise CommandError(why, returncode=2)
    if not path.parent.is_dir():
        why = f"{text} can't be written: the directory {path.parent} does not exist. Make it first."
        raise CommandError(why, returncode=2)
    return path
