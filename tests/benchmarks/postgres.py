"""A private PostgreSQL cluster for a benchmark: a folder, a unix socket, syncs on; gone when it is left."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.stack import wait_for


def binaries() -> Path | None:
    """The folder with initdb and postgres, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    named = shutil.which("initdb")
    return Path(named).resolve().parent if named else None


class Cluster:
    """A server with an empty database, which can be stopped and started again."""

    def __init__(self, bin_dir: Path, settings: Sequence[str] = ()) -> None:
        self.bin_dir, self.settings = bin_dir, settings
        self.folder = Path(tempfile.mkdtemp(prefix="agentsite-pg-"))
        self.url = f"postgresql://postgres@/bench?host={self.folder}"
        self.process: subprocess.Popen[bytes] | None = None
        user = _user()
        self.as_user = ["runuser", "-u", user, "--"] if user else []
        if user:
            shutil.chown(self.folder, user)
        words = ["--pgdata", str(self.folder / "data"), "--username", "postgres", "--auth", "trust"]
        self._run("initdb", *words, "--encoding", "UTF8", check=True)

    def start(self) -> None:
        """Start (again), and wait until it answers."""
        data = str(self.folder / "data")
        server = [str(self.bin_dir / "postgres"), "-D", data, "-k", str(self.folder)]
        for setting in ("listen_addresses=", *self.settings):
            server += ["-c", setting]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([*self.as_user, *server], stdout=log, stderr=log)
        _wait_for(self.bin_dir, self.folder, self.as_user)

    def stop(self, mode: str = "immediate") -> None:
        """End every session, and take no new one."""
        self._run("pg_ctl", "stop", "--pgdata", str(self.folder / "data"), "--mode", mode)
        if self.process is not None:
            self.process.wait()

    def create_database(self, name: str = "bench") -> None:
        """Make an empty database; `bench` is that of the URL."""
        self._run("createdb", "--host", str(self.folder), "--username", "postgres", name, check=True)

    def _run(self, program: str, *words: str, check: bool = False) -> None:
        command = [*self.as_user, str(self.bin_dir / program), *words]
        subprocess.run(command, check=check, capture_output=True)


@contextmanager
def own_cluster(bin_dir: Path, *settings: str) -> Iterator[Cluster]:
    """A cluster with these settings that runs for the length of a `with`."""
    own = Cluster(bin_dir, settings)
    try:
        own.start()
        own.create_database()
        yield own
    finally:
        own.stop()
        shutil.rmtree(own.folder, ignore_errors=True)


@contextmanager
def cluster(bin_dir: Path, *settings: str) -> Iterator[str]:
    """Start a cluster with these settings, and give the DATABASE_URL of an empty database in it."""
    with own_cluster(bin_dir, *settings) as own:
        yield own.url


def _user() -> str:
    """PostgreSQL refuses to run as root: somebody else to run it, or empty."""
    if os.geteuid() != 0:
        return ""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _wait_for(bin_dir: Path, folder: Path, as_user: list[str]) -> None:
    ready = [*as_user, str(bin_dir / "pg_isready"), "--quiet", "--host", str(folder)]
    wait_for(lambda: subprocess.run(ready, check=False).returncode == 0)
