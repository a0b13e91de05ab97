"""The far side of the tools: a ledger of effects outside the product's database, and the tools that write into it.

Four kinds: `look` only reads; `pay` honours its key (key and effect become visible in one atomic act); `post` can be
asked whether it happened, and then takes no call under that key any more; `shout` can neither, and so can `toil`, which
takes as long as a lease. Beside them `jot` writes a file of the run.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from runs.adapters.folder import RunFolder
from runs.adapters.tool import Arguments, NotHappened, Place, Result, Tool, ToolError
from runs.engine.effects import EffectClass
from runs.failpoints import failpoint

PLACE = "CHAOS_LEDGER"
"""The environment's variable that says where the ledger is."""

TAKES_S = 0.01
"""Seconds that a deed takes before and after the moment in which it happens, so that kills fall in between."""

TABLES = """
CREATE TABLE IF NOT EXISTS effect (
  id INTEGER PRIMARY KEY, tool TEXT NOT NULL, key TEXT NOT NULL, label TEXT NOT NULL, n INTEGER NOT NULL,
  pid INTEGER NOT NULL, at REAL NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS paid_once ON effect (key) WHERE tool = 'pay';
CREATE INDEX IF NOT EXISTS by_key ON effect (key);
CREATE TABLE IF NOT EXISTS closed (key TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS remembered (key TEXT PRIMARY KEY);
"""

SILENT = ("shout", "toil")
"""Tools whose calls must not be made twice, and that can't be asked whether one happened."""

ABOVE = 100
"""Calls with a number above this one are held back for a person."""


class Call(Arguments):
    """Which effect: the run's label, and the number of the call in it."""

    label: str
    n: int


class KeyClosed(ToolError):
    """Somebody was told that the call had not happened: it can't any more."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"The key {key} is closed.")


class Effects:
    """The ledger: a database file of its own, synced at each commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own = threading.local()

    @property
    def line(self) -> sqlite3.Connection:
        """This thread's connection, in this process."""
        mine: tuple[int, sqlite3.Connection] | None = getattr(self._own, "line", None)
        if mine is None or mine[0] != os.getpid():
            line = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            line.execute("PRAGMA journal_mode=WAL")
            line.execute("PRAGMA synchronous=FULL")
            mine = self._own.line = (os.getpid(), line)
        return mine[1]

    def create(self) -> None:
        """An empty ledger."""
        self.line.executescript(TABLES)

    def close(self) -> None:
        """Let go of this thread's connection."""
        self.line.close()
        del self._own.line

    def happen(self, tool: str, key: str, call: Call) -> None:
        """The effect, unless its key is closed."""
        self._in_one(self._append, tool, key, call)

    def happen_once(self, tool: str, key: str, call: Call) -> None:
        """The effect, unless one of its key is there: key and effect in one atomic act."""
        self._in_one(self._append_once, tool, key, call)

    def happened(self, key: str) -> bool:
        """Whether it has, so far."""
        return self.line.execute("SELECT 1 FROM effect WHERE key = ?", (key,)).fetchone() is not None

    def close_key(self, key: str) -> bool:
        """Whether it has happened; where it has not, it can't any more."""
        self.line.execute("BEGIN IMMEDIATE")
        try:
            happened = self.happened(key)
            if not happened:
                self.line.execute("INSERT OR IGNORE INTO closed VALUES (?)", (key,))
        finally:
            self.line.execute("COMMIT")
        return happened

    def remember(self, key: str) -> bool:
        """How it must not be done: keep the key in one act, and do the deed in another. Whether it was new."""
        return self.line.execute("INSERT OR IGNORE INTO remembered VALUES (?)", (key,)).rowcount == 1

    def all(self) -> list[tuple[str, str, str, int]]:
        """Tool, key, label and number of every effect."""
        return self.line.execute("SELECT tool, key, label, n FROM effect ORDER BY id").fetchall()

    def _in_one(self, deed: Callable[[str, str, Call], None], tool: str, key: str, call: Call) -> None:
        self.line.execute("BEGIN IMMEDIATE")
        try:
            deed(tool, key, call)
        except BaseException:
            self.line.execute("ROLLBACK")
            raise
        self.line.execute("COMMIT")

    def _append(self, tool: str, key: str, call: Call) -> None:
        if self.line.execute("SELECT 1 FROM closed WHERE key = ?", (key,)).fetchone():
            raise KeyClosed(key)
        self.line.execute(
            "INSERT INTO effect (tool, key, label, n, pid, at) VALUES (?, ?, ?, ?, ?, ?)",
            (tool, key, call.label, call.n, os.getpid(), time.time()),
        )

    def _append_once(self, tool: str, key: str, call: Call) -> None:
        if not self.happened(key):
            self._append(tool, key, call)


EFFECTS = Effects(Path(os.environ.get(PLACE, "effects.sqlite3")))


def slowly(call: Call, deed: Callable[[], None]) -> Result:
    """A deed with something before and after it."""
    time.sleep(TAKES_S)
    failpoint("effect_begun")
    deed()
    failpoint("effect_done")
    time.sleep(TAKES_S)
    return Result({"done": call.n})


def _look(call: Call, place: Place) -> Result:
    return slowly(call, lambda: None)


def _jot(call: Call, place: Place) -> Result:
    made = RunFolder(place.folder).write("jotted.txt", f"{call.label} {call.n}".encode())
    return Result({"done": call.n}, (made,))


def _pay(call: Call, place: Place) -> Result:
    return slowly(call, lambda: EFFECTS.happen_once("pay", place.key, call))


def _post(call: Call, place: Place) -> Result:
    return slowly(call, lambda: EFFECTS.happen("post", place.key, call))


def _posted(call: Call, place: Place) -> Result | NotHappened:
    return Result({"done": call.n}) if EFFECTS.close_key(place.key) else NotHappened.FOR_SURE


def _shout(call: Call, place: Place) -> Result:
    result = slowly(call, lambda: EFFECTS.happen("shout", place.key, call))
    if is_unsure(call.n):
        raise TimeoutError("no answer came")
    return result


def is_unsure(n: int) -> bool:
    """Return whether no answer comes to a call of that number."""
    return n % 7 == 0


def _toil(call: Call, place: Place) -> Result:
    half_s = float(os.environ.get("LEASE_SECONDS", "1")) / 2
    time.sleep(half_s)
    EFFECTS.happen("toil", place.key, call)
    time.sleep(half_s)
    return Result({"done": call.n})


def _doze(call: Call, place: Place) -> Result:
    time.sleep(call.n / 1000)
    return Result({"done": call.n})


def _poison(call: Call, place: Place) -> Result:
    os.kill(os.getpid(), signal.SIGKILL)
    return Result(None)


def _tool(
    name: str,
    effects: EffectClass,
    run: Callable[[Call, Place], Result],
    happened: Callable[[Call, Place], Result | NotHappened] | None = None,
) -> Tool:
    return Tool(name, f"The tool {name}.", Call, effects, name in ("pay", "jot"), 10, run, happened)


TOOLS = [
    _tool("look", "read", _look),
    _tool("jot", "write", _jot),
    _tool("pay", "write", _pay),
    _tool("post", "send", _post, _posted),
    _tool("shout", "send", _shout),
    _tool("toil", "send", _toil),
    _tool("doze", "read", _doze),
    _tool("poison", "read", _poison),
]
