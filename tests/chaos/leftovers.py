"""I11 and I12: what is left when all is over, and what a worker weighs after it has worked for long."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from django.conf import settings
from django.db import connection

from tests.chaos.findings import Violation
from tests.stack import comes

FLOORS = {"descriptors": 3, "threads": 2, "memory": 12_000, "sockets": 2, "database": 2}
"""By so much more than a tenth a worker may weigh at the end than in the first half of its work; memory in KiB."""

WARM_WORK = 1_000
"""Clock ticks of CPU (10 s) until a worker has met all that it keeps for good: modules, caches, buffers of each kind.
Seen on both databases: 90 MB when it starts, 155 after six seconds of CPU, 159 after fifty."""

SQLITE = re.compile(r"\.sqlite3(-wal|-shm)?$")
"""Ends the path of a file of an SQLite database."""

PATIENCE_S = 30.0
"""Seconds that a system has to bury what was killed."""


# --- I11: leftovers -------------------------------------------------------------------------------------------------


def of_the_bench(folder: Path) -> Iterator[Violation]:
    """Nobody works for the data directory any more, and no socket in it is listened to."""
    comes(lambda: not processes_of(folder) and not sockets_in(folder), PATIENCE_S)
    for pid, words in processes_of(folder).items():
        yield Violation("I11", None, f"process {pid} is left: {words[:80]}")
    for path in sockets_in(folder):
        yield Violation("I11", None, f"the socket {Path(path).name} is left")


def of_folders(*folders: Path) -> Iterator[Violation]:
    """What the bench made for itself is gone."""
    for folder in folders:
        if folder.exists():
            yield Violation("I11", None, f"the folder {folder.name} is left")


def processes_of(folder: Path) -> dict[int, str]:
    """Processes other than this one and its own servants whose environment names the data directory."""
    wanted = f"AGENTSITE_DATA_DIR={folder}".encode()
    own = {os.getpid(), *_servants()}
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in own:
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(entry.name)] = words.strip()
    return found


def _servants() -> Iterator[int]:
    """The processes that this one forks its actors from: they end with it."""
    from multiprocessing import forkserver, resource_tracker

    for pid in (forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid):  # type: ignore[attr-defined]
        if pid is not None:
            yield pid


def sockets_in(folder: Path) -> list[str]:
    """Unix sockets below the folder that some process has open."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    named = (line.split()[7] for line in lines if len(line.split()) > 7)
    return sorted({path for path in named if path.startswith(f"{folder}/")})


def unnamed_parts(folder: Path) -> list[Path]:
    """Bytes that a run's directory got and never a name for: whoever wrote them was killed."""
    return sorted(folder.rglob(".*.part"))


def forgotten_parts(folder: Path) -> Iterator[Violation]:
    """Whoever takes a run removes what a killed writer left in its directory; it is old by then."""
    for part in unnamed_parts(folder):
        beside = [path for path in part.parent.iterdir() if path.is_file() and path not in (part,)]
        newest = max((path.stat().st_mtime for path in beside), default=0.0)
        if newest > part.stat().st_mtime + 2 * settings.LEASE_SECONDS:
            yield Violation("I11", None, f"{part.relative_to(folder)} is left, and was written beside since")


def folders_of_nobody(folder: Path, known: set[int]) -> list[Path]:
    """Directories of runs that never came to be: their copy was cut off."""
    if not folder.exists():
        return []
    found = (entry for entry in folder.iterdir() if entry.name.isdigit() and int(entry.name) not in known)
    return sorted(entry for entry in found if any(entry.rglob("*")))


def connections_left() -> Iterator[Violation]:
    """I12: where all processes are gone the database's server has no client but the one who asks."""
    if connection.vendor != "postgresql":
        return
    comes(lambda: not _clients(), PATIENCE_S)
    for name in _clients():
        yield Violation("I12", None, f"a connection of {name or 'nobody'} to the database is left")


def _clients(name: str = "%") -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND application_name LIKE %s",
            [name],
        )
        return [str(row[0]) for row in cursor.fetchall()]


def broker_clients_left() -> Iterator[Violation]:
    """I12: the same of the broker."""
    import redis

    with redis.Redis.from_url(settings.REDIS_URL) as line:
        comes(lambda: len(line.client_list()) <= 1, PATIENCE_S)
        others = len(line.client_list()) - 1
    if others:
        yield Violation("I12", None, f"{others} connections to the broker are left")


# --- I12: weights ---------------------------------------------------------------------------------------------------


def weight_of(pid: int) -> dict[str, int]:
    """Return descriptors, threads, memory (KiB), sockets, database connections, and work (clock ticks of CPU).

    The files of SQLite databases are no descriptors: a connection has three of them, and a worker opens that of the
    far side with its first effect, which may come late.
    """
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    opened = list(_opened(pid))
    return {
        "descriptors": sum(not SQLITE.search(target) for target in opened),
        "threads": int(status["Threads"]),
        "memory": int(status["VmRSS"].split()[0]),
        "sockets": sum(target.startswith("socket:") for target in opened),
        "database": _connections_of(pid, opened),
        "work": int(stat[11]) + int(stat[12]),
    }


def _opened(pid: int) -> Iterator[str]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            yield str(entry.readlink())


def _connections_of(pid: int, opened: list[str]) -> int:
    if connection.vendor == "postgresql":
        return len(_clients(f"%-{pid}"))
    return opened.count(str(connection.settings_dict["NAME"]))


def judged_from(weights: Sequence[Mapping[str, int]], last: Mapping[str, int]) -> dict[str, int]:
    """Return what the last weight is held against: the most of each in the first half of the work.

    By CPU time, not by looks: on a busy machine most looks may come before it has driven its first run. Of memory
    only where the half has a look of a warm worker: a leak and a warm-up look the same before.
    """
    half = [one for one in weights if one["work"] <= last["work"] / 2] or weights[:1]
    first = heaviest(half)
    if all(one["work"] < WARM_WORK for one in half):
        del first["memory"]
    return first


def heavier(who: str, before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Violation]:
    """What has grown by more than a tenth and its floor, of what `before` names."""
    for name in FLOORS.keys() & before.keys():
        floor = FLOORS[name]
        if after[name] > before[name] * 1.1 + floor:
            yield Violation("I12", None, f"{name} of {who}: {before[name]} at first, {after[name]} at last")


def heaviest(weights: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The most of each."""
    return {name: max(one[name] for one in weights) for name in FLOORS}


def lightest(pid: int, *, looks: int = 5) -> dict[str, int]:
    """The least of some looks: connections are opened for each question, and gone after it."""
    seen: list[dict[str, int]] = []
    for _ in range(looks):
        seen.append(weight_of(pid))
        time.sleep(0.02)
    return {name: min(one[name] for one in seen) for name in seen[0]}
