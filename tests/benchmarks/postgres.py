"""A private PostgreSQL cluster for a benchmark: a folder, a unix socket, syncs on; gone when it is left."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def binaries() -> Path | None:
    """The folder with initdb and postgres, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    named = shutil.which("initdb")
    return Path(named).resolve().parent if named else None


@contextmanager
def cluster(bin_dir: Path, *settings: str) -> Iterator[str]:
    """Start a cluster with these settings, and give the DATABASE_URL of an empty database in it."""
    folder = Path(tempfile.mkdtemp(prefix="agentsite-pg-"))
    user = _user()
    as_user = ["runuser", "-u", user, "--"] if user else []
    if user:
        shutil.chown(folder, user)
    data = folder / "data"
    initdb = [str(bin_dir / "initdb"), "--pgdata", str(data), "--username", "postgres", "--auth", "trust"]
    subprocess.run([*as_user, *initdb, "--encoding", "UTF8"], check=True, capture_output=True)
    server = [str(bin_dir / "postgres"), "-D", str(data), "-k", str(folder), "-c", "listen_addresses="]
    for setting in settings:
        server += ["-c", setting]
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        process = subprocess.Popen([*as_user, *server], stdout=log, stderr=log)
    try:
        _wait_for(bin_dir, folder, as_user)
        created = [str(bin_dir / "createdb"), "--host", str(folder), "--username", "postgres", "bench"]
        subprocess.run([*as_user, *created], check=True)
        yield f"postgresql://postgres@/bench?host={folder}"
    finally:
        stop = [str(bin_dir / "pg_ctl"), "stop", "--pgdata", str(data), "--mode", "immediate"]
        subprocess.run([*as_user, *stop], check=False, capture_output=True)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
        Path(log.name).unlink(missing_ok=True)


def _user() -> str:
    """PostgreSQL refuses to run as root: somebody else to run it, or empty."""
    if os.geteuid() != 0:
        return ""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _wait_for(bin_dir: Path, folder: Path, as_user: list[str]) -> None:
    ready = [*as_user, str(bin_dir / "pg_isready"), "--quiet", "--host", str(folder)]
    for _ in range(200):
        if subprocess.run(ready, check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise TimeoutError("PostgreSQL did not start")
