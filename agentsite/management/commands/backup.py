"""`manage.py backup FILE`: the whole site in one file, while it works on."""

import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentsite import archive
from runs.store import backups


class Command(BaseCommand):
    """Database and runs' directories, of one moment, with hashes."""

    help = "Back the site up into one file, while it runs. Keep data/secret_key beside it: it is not in it."

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to."""
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--force", action="store_true", help="replace FILE if it is there")

    def handle(self, *args: Any, file: Path, force: bool, **options: Any) -> None:
        """Write it, and say what it holds."""
        began = time.monotonic()
        if not backups.is_migrated():
            why = "The database is that of an older version. Start this one once (up), or use the older one's backup."
            raise CommandError(why, returncode=2)
        if file.is_dir():
            raise CommandError(f"{file} is a directory. Name a file, e.g. {file / 'site.zip'}.", returncode=2)
        try:
            manifest = archive.write(file.absolute(), replaces=force)
        except (archive.AmongRuns, archive.FileThere, archive.FileInUse) as why:
            raise CommandError(str(why), returncode=2) from None
        except OSError as why:
            raise CommandError(f"{file} can't be written: {why.strerror}.", returncode=2) from None
        rows = sum(part.rows or 0 for part in manifest.parts.values())
        files = sum(name.startswith("runs/") for name in manifest.parts)
        self.stdout.write(
            f"{file}: {manifest.runs} runs ({manifest.unfinished} unfinished), {rows} rows, {files} files, "
            f"{file.stat().st_size / 1e6:.1f} MB, in {time.monotonic() - began:.1f} s."
        )
        self.stdout.write(
            "Whoever has it can read everything, but no key of a model: those need the site's secret key "
            "(SECRET_KEY, or secret_key in the data directory). Keep that elsewhere."
        )
