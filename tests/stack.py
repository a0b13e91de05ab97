"""The real thing for tests: `manage.py up` on a data directory and port of its own, and faults for it."""

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agentsite.environment import ROOT
from agentsite.supervise import is_alive, read_record
from tests.forking import Forker

Found = TypeVar("Found")

START_SECONDS = 240.0
"""A few seconds on idle cores; tests share theirs with others. Longer than `up` waits for its own processes."""

STOP_SECONDS = 60.0
LONGEST_S = 60.0
"""How long a test waits for what takes a moment on idle cores, before it says that it does not come."""

A_BUSY_SECOND = 3.0
"""Processor seconds that what takes a second on an idle core may take where both halves of that core are busy."""

LINK_BEGINS = "Sign in (works once, within an hour): "


class DidNotStart(AssertionError):
    """The stack did not come up; what it printed says why."""

    def __init__(self, output: str) -> None:
        super().__init__(f"`manage.py up` did not start. It printed:\n{output}")


class Site:
    """One running site: its address, its sign-in link, its processes."""

    def __init__(
        self, data_dir: Path, port: int, environ: dict[str, str] | None = None, options: Sequence[str] = ()
    ) -> None:
        self.data_dir = data_dir
        self.options = options
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.environ = own_environ(data_dir) | (environ or {})
        self.forker = Forker(self.environ)
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self.reader: threading.Thread | None = None

    def start(self) -> None:
        """Start (again), and wait until the page answers."""
        self.lines = []
        self.forker.close()
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(self.port), "--no-browser", *self.options],
            cwd=ROOT,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self.reader.start()
        try:
            wait_for(lambda: self.answers() or self.process_ended(), START_SECONDS)
            wait_for(
                lambda: any("Ctrl-C" in line for line in self.lines) or self.process_ended(), START_SECONDS
            )
        except TimeoutError:
            self.tell_where_it_stands()
            self.kill_all()
        if self.process_ended():
            self.stop()
            raise DidNotStart(self.output)

    def stop(self) -> int:
        """What Ctrl-C does; the exit code."""
        assert self.process is not None and self.reader is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill_all()
            code = self.process.wait(STOP_SECONDS)
        self.reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def tell_where_it_stands(self) -> None:
        """Into the output: what each process of a site that does not come up is at."""
        for name in (
            "run/up.json",
            *(f"logs/{name}.log" for name in ("broker", "worker", "scheduler", "web")),
        ):
            with contextlib.suppress(OSError):
                self.lines.append(f"{name}: {(self.data_dir / name).read_text(errors='replace')[-2000:]}")
        assert self.process is not None
        self.process.send_signal(signal.SIGABRT)  # with PYTHONFAULTHANDLER its threads' stacks are printed
        self.process.wait(STOP_SECONDS)

    @property
    def output(self) -> str:
        """All that `up` printed since its last start."""
        return "\n".join(self.lines)

    @property
    def link(self) -> str:
        """The one-time sign-in link of the last start."""
        return next(line for line in self.lines if line.startswith(LINK_BEGINS)).removeprefix(LINK_BEGINS)

    @property
    def pids(self) -> dict[str, int]:
        """The processes by name: broker, worker, scheduler, web."""
        children = read_record(self.data_dir / "run" / "up.json").get("children", {})
        return {name: who["pid"] for name, who in children.items() if is_alive(who)}

    def manage(self, *arguments: str, code: int | None = 0, timeout: float = 120) -> str:
        """A command of manage.py on this site's data; its standard output, after a check of its exit code."""
        ended, printed, complained = self.forker.run(arguments, timeout)
        assert code in (None, ended), f"exit code {ended}\n{printed}\n{complained}"
        return printed

    def fresh_link(self, person: str = "admin") -> str:
        """Another one-time sign-in link, for anybody."""
        return self.manage("sign_in_link", person, "--address", self.url).strip()

    def export(self, run: str) -> dict[str, Any]:
        """A run as `export` writes it."""
        exported: dict[str, Any] = json.loads(self.manage("export", run))
        return exported

    def kill9(self, name: str) -> int:
        """kill -9 one process by its name; returns the number it had."""
        pid = self.pids[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    @contextlib.contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Stop a process without ending it; `up` may replace it meanwhile."""
        pid = self.pids[name]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def back(self, name: str, killed: int, seconds: float = 30) -> int:
        """Wait until another process of that name runs (and the page answers); returns its number."""
        wait_for(lambda: self.pids.get(name, killed) != killed and self.answers(), seconds)
        return self.pids[name]

    def kill_all(self) -> None:
        """kill -9 everything at once, the supervisor first, as if the power went."""
        assert self.process is not None
        pids = self.pids.values()
        self.process.kill()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def answers(self) -> bool:
        """Whether the site says that it is well."""
        try:
            with urllib.request.urlopen(self.url + "/healthz", timeout=5) as page:
                return bool(page.status == 200)
        except urllib.error.HTTPError as why:
            why.close()
            return False
        except OSError:
            return False

    def process_ended(self) -> bool:
        """Whether `up` itself has ended."""
        return self.process is not None and self.process.poll() is not None

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in process.stdout:
                self.lines.append(line.rstrip("\n"))


def own_environ(data_dir: Path) -> dict[str, str]:
    """This process's environment without what the tests' own settings put there."""
    foreign = {"REDIS_URL", "DATABASE_URL", "DJANGO_SETTINGS_MODULE", "DJANGO_ALLOW_ASYNC_UNSAFE"}
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    return kept | {"AGENTSITE_DATA_DIR": str(data_dir), "PYTHONFAULTHANDLER": "1"}


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for(condition: Callable[[], Found], seconds: float = LONGEST_S, every: float = 0.05) -> Found:
    """Look every so many seconds until something is so, and return it; TimeoutError if it isn't in time."""
    until = time.monotonic() + seconds
    pause = threading.Event()
    while not (found := condition()):
        if time.monotonic() > until:
            raise TimeoutError(f"not so after {seconds:g} seconds")
        pause.wait(every)
    return found


def comes(condition: Callable[[], object], seconds: float, every: float = 0.05) -> bool:
    """Wait likewise. Return whether it was so in time."""
    with contextlib.suppress(TimeoutError):
        wait_for(condition, seconds, every)
        return True
    return False


PREPARE = """
import os
os.umask(0o077)
from django.conf import settings
from agentsite.environment import private_dir
from agentsite.management.commands.up import collect_static_files
from agentsite.migrating import prepare_database
private_dir(settings.DATA_DIR / "run")
prepare_database()
collect_static_files(settings.DATA_DIR)
"""


@functools.cache
def prepared() -> "tempfile.TemporaryDirectory[str]":
    """A data directory as the first start leaves it, before its servers come up: made once, by `up`'s own functions."""
    folder = tempfile.TemporaryDirectory(prefix="agentsite-prepared-")
    forker = Forker(own_environ(Path(folder.name)))
    ended, printed, complained = forker.run(("shell", "-c", PREPARE), 300)
    forker.close()
    assert ended == 0, f"{printed}\n{complained}"
    return folder


def prepare(data_dir: Path) -> None:
    """Spare a site its first start's work: the tables, and the static files (their bytes are shared, not copied)."""
    source = Path(prepared().name)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in ("secret_key", "agentsite.sqlite3"):
        shutil.copy2(source / part, data_dir / part)
    shutil.copytree(source / "run", data_dir / "run")
    shutil.copytree(source / "static", data_dir / "static", copy_function=os.link)


@contextlib.contextmanager
def running_site(
    data_dir: Path,
    environ: dict[str, str] | None = None,
    *,
    fresh: bool = False,
    options: Sequence[str] = (),
) -> Iterator[Site]:
    """A site that runs for the length of a `with`, and leaves no process behind.

    `fresh`: on an empty directory; `options`: more of `up`'s.
    """
    if not fresh:
        prepare(data_dir)
    site = Site(data_dir, free_port(), environ, options)
    site.start()
    try:
        yield site
    finally:
        site.stop()
        site.forker.close()
