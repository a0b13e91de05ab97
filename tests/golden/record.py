"""Records the goldens of this version anew: `python3 -m tests.golden.record`.

Those of earlier versions are never recorded again: that this version still reads them is what they are for.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

VERSION = "0.1.0"


def main() -> None:
    """Each story in an empty database: as it waits, and as it ended."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "AGENTSITE_DATA_DIR": folder,
            "DATABASE_URL": f"sqlite:///{folder}/db.sqlite3",
            "REDIS_URL": "",
        }
        os.environ["DJANGO_SETTINGS_MODULE"] = "agentsite.settings"
        import django

        django.setup()
        record(Path(__file__).resolve().parent / VERSION)


def record(folder: Path) -> None:
    """Into a folder."""
    from django.core.management import call_command

    from tests.golden import keeping
    from tests.golden.stories import STORIES, go_on

    call_command("migrate", verbosity=0)
    for story in STORIES:
        call_command("flush", verbosity=0, interactive=False)
        run = story.begin()
        waits = keeping.rows()
        go_on(run, story.verdicts)
        run.refresh_from_db()
        golden = {
            "version": VERSION,
            "run": run.pk,
            "verdicts": story.verdicts,
            "waits": waits,
            "ends": keeping.rows(),
        }
        keeping.write(folder / f"{story.name}.json", golden)
        print(f"{story.name}: {run.status}, {run.head} rows")  # noqa: T201


if __name__ == "__main__":
    main()
