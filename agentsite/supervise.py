"""Keeps a few child processes running until told to stop, and says in the terminal what happened to them.

Knows nothing of Django: a child is a command line, a log file and a way to see that it is ready.
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
"""The variable that tells a child, and what it starts, the name of its process. No two have the same one."""


class GaveUp(Exception):
    """A child ended again and again right after its start, and never did anything else."""

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
            f"What it has printed is in the data directory under logs/{name}.log."
        )
        self.name = name


@dataclass(frozen=True)
class Child:
    """One process to keep: its command, where its output goes, and how to see that it works."""

    name: str
    command: Sequence[str]
    log: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    ready: Callable[[], bool] | None = None
    grace: float = 10.0
    tells: str = ""
    """What stands in a line before words that are for the terminal, even while everything stops."""
    needed: bool = False
    """The others need it: they start once it is ready, and end before it."""
    replaced_when_stopped: bool = False
    """A process that was stopped (SIGSTOP) may hold a lock that all others wait for."""
    lost: Callable[[str], None] | None = None
    """Called in a thread with the name of a process that has ended, unless everything stops."""


@dataclass(frozen=True)
class Patience:
    """How long to wait before a restart, and when to stop trying."""

    first_pause: float = 0.2
    longest_pause: float = 5.0
    quick_death: float = 5.0
    quick_deaths_allowed: int = 4
    ready_within: float = 180.0
    """A few seconds on an idle machine; on a busy one a child that is only slow is not given up for that."""
    slow_after: float = 15.0
    """When the terminal is told that a child is waited for."""
    stopped_for: float = 0.5
    """Seconds after which a child that was stopped by a signal is replaced."""
    last_words: float = 5.0
    """How long a child that tells of its end has for that where nobody wants to wait."""


class Supervisor:
    """Starts children side by side, restarts those that die, stops all at once but for those that the others need."""

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
        """Until `stop` or a signal; GaveUp or NotReady when it can't go on. Leaves nothing running."""
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
        """Begin to stop everything; `run` returns when it is done. Said a second time: wait for nothing more."""
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
        """Until the child does its work, or everything is being stopped."""
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
        """Run one child again and again until everything stops; give up only on one that never lived for long."""
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
        """Start the child under a name, pass its output on, and return how it ended with its last lines."""
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
            # A grandchild may hold the pipe open: what matters has been written by now.
            await asyncio.wait([pump], timeout=0.5)
        finally:
            pump.cancel()
            watch.cancel()
            self.processes.pop(child.name, None)
            signal_group(process.pid, signal.SIGKILL)  # what it started and did not stop
        return code, list(last)

    async def _watch(self, child: Child, process: asyncio.subprocess.Process) -> None:
        """Kill a child that stays stopped, so that another takes its place; where /proc tells (Linux)."""
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
        """Output into the log; alarms into the terminal too.

        Whatever is wrong with these, it reads on: a child whose output nobody reads stands still, and never ends.
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
        """Ask all to stop; those that the others need, only when these have."""
        for last in (False, True):
            now = [child for child in self.children if child.needed is last]
            await asyncio.gather(*map(self._stop_one, now))

    async def _stop_one(self, child: Child) -> None:
        """TERM, then after the child's grace, or at once where nobody wants to wait, KILL, for its whole group.

        In between a child that tells of its end is told again, for it to name what it leaves undone.
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
        """Note who runs, so that the next start can find what a killed supervisor left behind."""
        children = {name: passport(process.pid) for name, process in self.processes.items()}
        write_atomically(
            self.record, json.dumps({**self.about, "up": passport(os.getpid()), "children": children})
        )


class BoundedLog:
    """A log file that is set aside as `.1` when it gets long, so that two files are all it ever is."""

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
    """A death is one only where something went wrong."""
    return "died" if code else "ended by itself"


def obituary(child: Child, code: int, last: Sequence[str]) -> str:
    """What ended, how, and its last words."""
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    words = "".join(f"\n    {shortened(line, child.log)}" for line in last)
    return f"The {child.name} {what_it_did(code)} ({how}); starting it again." + (
        f" Its last lines:{words}" if words else ""
    )


def shortened(line: str, log: Path) -> str:
    """A line of a log for the terminal: of a long one the beginning, and the end, where an exception stands."""
    if len(line) <= SHOWN_BEGINNING + SHOWN_END:
        return line
    return f"{line[:SHOWN_BEGINNING]} … {line[-SHOWN_END:]} (the whole line: {log})"


def signal_group(pid: int, number: signal.Signals) -> None:
    """To a child and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def passport(pid: int) -> dict[str, int | str]:
    """A process by number and birth."""
    return {"pid": pid, "born": birth_of(pid)}


def is_alive(who: Mapping[str, int | str]) -> bool:
    """Whether the very process of this passport still runs (a zombie does not)."""
    pid, born = int(who["pid"]), who["born"]
    if not born or birth_of(pid) != born:
        return False
    return state_of(pid) != "Z"


def stop_leftovers(record: Path, say: Callable[[str], None], grace: float = 10.0) -> None:
    """Stop the children of a killed supervisor; call it only while holding the data directory's lock."""
    left = {name: who for name, who in read_record(record).get("children", {}).items() if is_alive(who)}
    if left:
        say(f"A previous start was killed and left behind: {', '.join(left)}. Stopping that first.")
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
        for who in filter(is_alive, left.values()):
            signal_group(int(who["pid"]), number)
        until = time.monotonic() + patience
        while any(map(is_alive, left.values())) and time.monotonic() < until:
            time.sleep(0.05)
    record.unlink(missing_ok=True)


def read_record(record: Path) -> dict[str, Any]:
    """What the last supervisor noted, or nothing."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_atomically(path: Path, text: str) -> None:
    """Readers see the old text or the new one, after a power cut too; when it returns, the new one.

    Where it can't be written the old one stays, and no draft.
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
    """The names in it are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def held(path: Path) -> Iterator[bool]:
    """Whether this process got the lock; the system lets go of it when the process ends, however it ends."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
