"""Keep a few child processes running until told to stop, and report their fate in the terminal.

Knows nothing of Django: a child is a command line, a log file and a check that it is ready.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import signal
import subprocess
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs.processes import birth_of, state_of

LOG_BYTES = 2_000_000
SHOWN_LINES = 8
SHOWN_BEGINNING, SHOWN_END = 100, 300
LINE_LIMIT = 1 << 20
ALARMS = ("ERROR", "CRITICAL", "Traceback")

NAMED = "PROCESS_NAME"
"""The variable with the name of a child's process, for it and its own children. No two have the same one."""


class GaveUp(Exception):
    """A child ended again and again right after its startevery time."""

    def __init__(self, name: str, code: int, times: int) -> None:
        super().__init__(
            f"The {name} {what_it_did(code)} {times} times right after starting, so everything stops. "
            f"The lines above say why; the whole log is in the data directory under logs/{name}.log."
        )
        self.name = name


class NotReady(Exception):
    """A child runs but does not do its work."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(
            f"The {name} was not ready after {seconds:g} seconds, so everything stops. "
            f"Its output is in the data directory under logs/{name}.log."
        )
        self.name = name


@dataclass(frozen=True)
class Child:
    """One process to keep: its command, its log, and a check that it works."""

    name: str
    command: Sequence[str]
    log: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    ready: Callable[[], bool] | None = None
    grace: float = 10.0
    tells: str = ""
    """A mark in lines for the terminal, even during the stop."""
    needed: bool = False
    """True if the others need it: they start once it is ready, and end before it."""
    replaced_when_stopped: bool = False
    """True for a process that, when stopped (SIGSTOP), may hold a lock that all others wait for."""
    lost: Callable[[str], None] | None = None
    """Called in a thread with the name of a process that has ended, unless everything stops."""


@dataclass(frozen=True)
class Patience:
    """Times until a restart, and until giving up."""

    first_pause: float = 0.2
    longest_pause: float = 5.0
    quick_death: float = 5.0
    quick_deaths_allowed: int = 4
    ready_within: float = 180.0
    """Seconds; few are needed on an idle machine, but a child that is only slow on a busy one is not given up."""
    slow_after: float = 15.0
    """Seconds after which the terminal reports the wait for a child."""
    stopped_for: float = 0.5
    """Seconds after which a child that was stopped by a signal is replaced."""
    last_words: float = 5.0
    """Seconds for a child's last lines if the stop must not wait."""


class Supervisor:
    """Starts children side by side, restarts dead ones, and stops all at once, except those needed by the others."""

    def __init__(
        self,
        children: Sequence[Child],
        say: Callable[[str], None],
        record: Path,
        about: Mapping[str, str],
        patience: Patience = Patience(),
    ) -> None:
        self.children = children
        self.say = say
        self.record = record
        self.about = about
        self.patience = patience
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.stopping = asyncio.Event()
        self.hurrying = asyncio.Event()

    async def run(self, when_ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Run until `stop` or a signal; raises GaveUp or NotReady if it can't go on. Leaves nothing running."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop)
        keepers: list[asyncio.Task[None]] = []
        try:
            started: list[tuple[Child, asyncio.Event]] = []
            for child in self.children:
                up = asyncio.Event()
                keepers.append(asyncio.create_task(self._keep(child, up), name=child.name))
                started.append((child, up))
                if child.needed:
                    await self._first(keepers, self._until_ready(child, up))
            for child, up in started:
                await self._first(keepers, self._until_ready(child, up))
            if when_ready is not None and not self.stopping.is_set():
                await when_ready()
            await self._first(keepers, self.stopping.wait())
        finally:
            self.stopping.set()
            await self._stop_all()
            await asyncio.gather(*keepers, return_exceptions=True)
            self.record.unlink(missing_ok=True)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Begin to stop everything; `run` returns when it is done. The second call stops all waiting."""
        if self.stopping.is_set():
            self.hurrying.set()
        self.stopping.set()

    async def _first(self, keepers: list[asyncio.Task[None]], wanted: Awaitable[object]) -> None:
        """Wait for something, or fail with the first keeper that gave up."""
        waiting = asyncio.ensure_future(wanted)
        done, _ = await asyncio.wait([waiting, *keepers], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task is not waiting and not self.stopping.is_set():
                waiting.cancel()
            task.result()

    async def _until_ready(self, child: Child, up: asyncio.Event) -> None:
        """Wait until the child works, or everything is being stopped."""
        began, patience, told = time.monotonic(), self.patience, False
        await up.wait()
        while not self.stopping.is_set() and child.ready is not None and not child.ready():
            waited = time.monotonic() - began
            if waited > patience.ready_within:
                raise NotReady(child.name, patience.ready_within)
            if waited > patience.slow_after and not told:
                self.say(
                    f"The {child.name} is not ready yet; waiting up to {patience.ready_within:g} seconds."
                )
                told = True
            await asyncio.sleep(0.03)

    async def _keep(self, child: Child, up: asyncio.Event) -> None:
        """Run one child again and again until everything stops; give up only on one that always ends soon."""
        quick, pause, once_lived = 0, self.patience.first_pause, False
        with BoundedLog(child.log) as log:
            while not self.stopping.is_set():
                began = time.monotonic()
                name = secrets.token_hex(6)
                code, last = await self._run_once(child, name, log, up)
                if self.stopping.is_set():
                    return
                if child.lost is not None:
                    asyncio.get_running_loop().run_in_executor(None, child.lost, name)
                if time.monotonic() - began < self.patience.quick_death:
                    quick, pause = quick + 1, pause * 2
                else:
                    quick, pause, once_lived = 1, self.patience.first_pause, True
                self.say(obituary(child, code, last))
                if quick > self.patience.quick_deaths_allowed and not once_lived:
                    raise GaveUp(child.name, code, quick)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopping.wait(), min(pause, self.patience.longest_pause))

    async def _run_once(
        self, child: Child, name: str, log: "BoundedLog", up: asyncio.Event
    ) -> tuple[int, list[str]]:
        """Start the child under a name, pass its output on, and return its exit code with its last lines."""
        process = await asyncio.create_subprocess_exec(
            *child.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **child.environ, NAMED: name},
            limit=LINE_LIMIT,
            start_new_session=True,
        )
        self.processes[child.name] = process
        self._write_record()
        if self.stopping.is_set():
            signal_group(process.pid, signal.SIGKILL)
        up.set()
        last: deque[str] = deque(maxlen=SHOWN_LINES)
        pump = asyncio.create_task(self._pump(child, process, log, last))
        watch = asyncio.create_task(self._watch(child, process))
        try:
            code = await process.wait()
            # A grandchild may hold the pipe open: everything important has been written by now.
            await asyncio.wait([pump], timeout=0.5)
        finally:
            pump.cancel()
            watch.cancel()
            self.processes.pop(child.name, None)
            signal_group(process.pid, signal.SIGKILL)  # its children that it did not stop
        return code, list(last)

    async def _watch(self, child: Child, process: asyncio.subprocess.Process) -> None:
        """Kill a child that stays stopped, so another takes its place; if /proc tells (Linux)."""
        looks = 0
        while child.replaced_when_stopped:
            await asyncio.sleep(self.patience.stopped_for / 2)
            looks = looks + 1 if state_of(process.pid) == "T" and not self.stopping.is_set() else 0
            if looks > 2:
                self.say(f"The {child.name} was stopped (SIGSTOP) and is replaced.")
                signal_group(process.pid, signal.SIGKILL)
                return

    async def _pump(
        self, child: Child, process: asyncio.subprocess.Process, log: "BoundedLog", last: deque[str]
    ) -> None:
        """Write output into the log; alarms into the terminal too.

        It reads on after any fault of these: a child whose output is not read stands still, and never ends.
        """
        assert process.stdout is not None
        while True:
            try:
                raw = await process.stdout.readline()
            except ValueError:
                continue  # a line beyond LINE_LIMIT: the stream has dropped it
            if not raw:
                return
            with contextlib.suppress(OSError, ValueError):  # a full disk
                log.write(raw)
            line = raw.decode("utf-8", "replace").rstrip()
            if not line:
                continue
            last.append(line)
            if child.tells and child.tells in line:
                with contextlib.suppress(OSError):
                    self.say(line.partition(child.tells)[2])
            elif any(alarm in line[:80] for alarm in ALARMS) and not self.stopping.is_set():
                with contextlib.suppress(OSError):  # the terminal is gone
                    self.say(f"{child.name}: {shortened(line, child.log)}")

    async def _stop_all(self) -> None:
        """Ask all to stop; those that the others need, only after these."""
        for last in (False, True):
            now = [child for child in self.children if child.needed is last]
            await asyncio.gather(*map(self._stop_one, now))

    async def _stop_one(self, child: Child) -> None:
        """Send TERM, then after the child's grace, or at once in a hurry, KILL, to its whole group.

        In between a reporting child gets a second TERM, so it names its unfinished work.
        """
        process = self.processes.get(child.name)
        if process is None or process.returncode is not None:
            return
        signal_group(process.pid, signal.SIGTERM)
        ended, hurried = asyncio.ensure_future(process.wait()), asyncio.ensure_future(self.hurrying.wait())
        await asyncio.wait([ended, hurried], timeout=child.grace, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if child.tells and self.hurrying.is_set() and not ended.done():
            signal_group(process.pid, signal.SIGTERM)
            await asyncio.wait([ended], timeout=self.patience.last_words)
        if not ended.done():
            signal_group(process.pid, signal.SIGKILL)
        await ended

    def _write_record(self) -> None:
        """Note the running processes, so the next start can find those of a killed supervisor."""
        children = {name: passport(process.pid) for name, process in self.processes.items()}
        write_atomically(
            self.record, json.dumps({**self.about, "up": passport(os.getpid()), "children": children})
        )


class BoundedLog:
    """A log file that is set aside as `.1` when it gets long: there are never more than two."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "BoundedLog":
        self.file = self.path.open("ab", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, line: bytes) -> None:
        """Append a line, in a new file if the old one is full."""
        if self.file.tell() + len(line) > LOG_BYTES:
            self.file.close()
            self.path.replace(self.path.with_name(self.path.name + ".1"))
            self.file = self.path.open("ab", buffering=0)
        self.file.write(line)


def what_it_did(code: int) -> str:
    """Return the words for an exit: "died" only for a failure."""
    return "died" if code else "exited"


def obituary(child: Child, code: int, last: Sequence[str]) -> str:
    """Return the name of an ended child, how it ended, and its last words."""
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    words = "".join(f"\n    {shortened(line, child.log)}" for line in last)
    return f"The {child.name} {what_it_did(code)} ({how}); starting it again." + (
        f" Its last lines:{words}" if words else ""
    )


def shortened(line: str, log: Path) -> str:
    """Return a log line for the terminal: of a long one the beginning, and the end with the exception."""
    if len(line) <= SHOWN_BEGINNING + SHOWN_END:
        return line
    return f"{line[:SHOWN_BEGINNING]} … {line[-SHOWN_END:]} (the whole line: {log})"


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a child and all its descendants."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def passport(pid: int) -> dict[str, int | str]:
    """Return a process by number and birth."""
    return {"pid": pid, "born": birth_of(pid)}


def is_alive(who: Mapping[str, int | str]) -> bool:
    """Return True if the very process of this passport still runs (a zombie does not)."""
    pid, born = int(who["pid"]), who["born"]
    if not born or birth_of(pid) != born:
        return False
    return state_of(pid) != "Z"


def stop_leftovers(record: Path, say: Callable[[str], None], grace: float = 10.0) -> None:
    """Stop the children of a killed supervisor; call it only while holding the data directory's lock."""
    left = {name: who for name, who in read_record(record).get("children", {}).items() if is_alive(who)}
    if left:
        say(f"A killed start left these processes: {', '.join(left)}. Stopping them first.")
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
        for who in filter(is_alive, left.values()):
            signal_group(int(who["pid"]), number)
        until = time.monotonic() + patience
        while any(map(is_alive, left.values())) and time.monotonic() < until:
            time.sleep(0.05)
    record.unlink(missing_ok=True)


def read_record(record: Path) -> dict[str, Any]:
    """Return the last supervisor's notes, or nothing."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_atomically(path: Path, text: str) -> None:
    """Write so that readers see the old text or the new one, after a power cut too; on return, the new one.

    If it can't be written the old one stays, and no draft.
    """
    draft = path.with_name(path.name + ".new")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in the folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def held(path: Path) -> Iterator[bool]:
    """Yield whether this process got the lock; the system releases it when the process ends, however it ends."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
