"""Tell whether a SQLite file is the site's own database: links of both kinds are followed.

Agents read registered databases, and the site's own holds password hashes and keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from os import stat_result
from os.path import realpath, samestat
from pathlib import Path
from typing import Any

BESIDE = ("", "-wal", "-journal")
"""What SQLite adds to the name of a database for its files."""


def is_own_file(file: Path, own: Mapping[str, Any]) -> bool:
    """Return True if `file`, or a log beside it, is a file of the site's database (Django's description)."""
    if not own["ENGINE"].endswith("sqlite3"):
        return False
    site = Path(own["NAME"])
    if realpath(file) == realpath(site):  # also of a database that is not made yet
        return True
    stats = list(_files_of(site))
    return any(samestat(mine, other) for mine in _files_of(file) for other in stats)


def _files_of(file: Path) -> Iterator[stat_result]:
    for ending in BESIDE:
        with suppress(OSError):
            yield file.with_name(f"{file.name}{ending}").stat()
