"""A process that has imported the code and collected the tests, and runs some with a fault, in a fork for each.

It reads one JSON object a line, and answers each with one: `{"survey": [part, of]}` says which lines each of its
tests runs; `{"fault": …, "tests": […], "seconds": …}` says whether one of the tests fails with that fault.
"""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from tests.mutants.faults import MODULE, ROOT, Fault

IN, OUT = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
"""Where lines come from and answers go: pytest has the standard ones for itself."""


class Lane:
    """The plugin that runs tests as it is told, in place of all of them once."""

    def __init__(self, asks: Any, paths: frozenset[str]) -> None:
        self.asks = asks
        self.files = {str(ROOT / path): path for path in paths}
        self.failed = ""
        self.is_clean = False
        """Whether there is a database, and no test was killed that may have left rows in it."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first test that fails."""
        if report.failed and not self.failed:
            self.failed = report.nodeid if report.when == "call" else f"{report.when} of {report.nodeid}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do what the lines say, to the end of them."""
        if session.testsfailed:
            raise session.Interrupted("a test file can't be imported")
        items = {item.nodeid: item for item in session.items}
        functions = _functions(frozenset(self.files))
        _say({"tests": list(items)})
        for line in self.asks:
            asked = json.loads(line)
            if "survey" in asked:
                part, of = asked["survey"]
                known = set(asked["known"])
                chosen = [item for name, item in items.items() if name not in known][part::of]
                _say(self._apart(session, partial(self._surveyed, session, chosen), 1800))
                continue
            chosen = [items[name] for name in asked["tests"] if name in items]
            fault = Fault(**asked["fault"]) if asked["fault"] else None
            if fault is not None and not _can_be_swapped(fault, functions):
                _say({"cannot": True})
                continue
            _say(
                self._apart(
                    session, partial(self._tried, session, chosen, fault, functions), asked["seconds"]
                )
            )
        return True

    def _apart(
        self, session: pytest.Session, deed: Callable[[], dict[str, Any]], seconds: float
    ) -> dict[str, Any]:
        """What `deed` says in a process of its own, with an empty database."""
        session.config.option.create_db = not self.is_clean
        said = _forked(deed, seconds)
        self.is_clean = said is not None
        return {"by": "time"} if said is None else said

    def _run(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        session.items = items
        for item, following in zip(items, [*items[1:], None], strict=False):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return

    def _tried(
        self,
        session: pytest.Session,
        items: list[pytest.Item],
        fault: Fault | None,
        functions: dict[tuple[str, str, int], list[FunctionType]],
    ) -> dict[str, Any]:
        if fault is not None:
            _swap(fault, functions)
        self._run(session, items)
        return {"by": self.failed}

    def _surveyed(self, session: pytest.Session, items: list[pytest.Item]) -> dict[str, Any]:
        """Which lines each test runs, and its seconds of the processor."""
        run: set[tuple[str, int]] = set()

        def enter(frame: FrameType, event: str, arg: object) -> Any:
            return note if frame.f_code.co_filename in self.files else None

        def note(frame: FrameType, event: str, arg: object) -> Any:
            run.add((frame.f_code.co_filename, frame.f_lineno))
            return note

        survey: dict[str, Any] = {}
        failed: list[str] = []
        for item, following in zip(items, [*items[1:], None], strict=False):
            run.clear()
            started = time.process_time()
            sys.settrace(enter)
            threading.settrace(enter)
            try:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            finally:
                sys.settrace(None)
                threading.settrace(None)
            if self.failed:
                failed.append(self.failed)
                self.failed = ""
                continue
            survey[item.nodeid] = [round(time.process_time() - started, 3), self._lines(run)]
        return {"survey": survey, "failed": failed}

    def _lines(self, run: set[tuple[str, int]]) -> dict[str, list[int]]:
        lines: dict[str, list[int]] = {}
        for file, line in sorted(run):
            lines.setdefault(self.files[file], []).append(line)
        return lines


def _say(answer: dict[str, Any]) -> None:
    OUT.write(json.dumps(answer) + "\n")
    OUT.flush()


def _forked(deed: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any] | None:
    """What `deed` says in a process of its own; None where it takes too long."""
    from django.db import connections

    for one in connections.all(initialized_only=True):
        one.close()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            said = deed()
        except BaseException as fault:
            said = {"by": f"{type(fault).__name__}: {fault}"[:200]}
        with os.fdopen(write, "w") as out:
            out.write(json.dumps(said))
        os._exit(0)
    os.close(write)
    text, end = b"", time.monotonic() + seconds
    while select.select([read], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(read, 1 << 20)
        if not piece:
            break
        text += piece
    os.close(read)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(text) if text else None


# --- putting a fault into what is imported already ----------------------------------------------------------------


def _functions(files: frozenset[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    """The functions of these files that modules and classes hold, by file, name and first line."""
    found: dict[tuple[str, str, int], list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in files:
            code = each.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(each)
    return found


def _codes(code: CodeType) -> list[CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [*inner, *(one for each in inner for one in _codes(each))]


def _swapped(
    fault: Fault, functions: dict[tuple[str, str, int], list[FunctionType]]
) -> list[tuple[FunctionType, CodeType]]:
    """The functions whose code is another one with the fault, with that code; none where that can't be done."""
    if fault.function == MODULE:
        return []
    file = str(ROOT / fault.path)
    changed = compile(fault.applied((ROOT / fault.path).read_bytes()), file, "exec", dont_inherit=True)
    pairs = []
    for code in _codes(changed):
        if code.co_qualname == fault.function:
            for function in functions.get((file, code.co_qualname, code.co_firstlineno), []):
                if function.__code__.co_freevars == code.co_freevars and function.__code__ != code:
                    pairs.append((function, code))
    return pairs


def _can_be_swapped(fault: Fault, functions: dict[tuple[str, str, int], list[FunctionType]]) -> bool:
    return bool(_swapped(fault, functions))


def _swap(fault: Fault, functions: dict[tuple[str, str, int], list[FunctionType]]) -> None:
    for function, code in _swapped(fault, functions):
        function.__code__ = code


# --- or into what is yet to be imported ---------------------------------------------------------------------------


class _Importer(importlib.machinery.SourceFileLoader):
    """Gives one module with the fault in it."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.module = fault.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        super().__init__(self.module, str(ROOT / fault.path))

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        """The module's own spec, with this as its loader."""
        if fullname != self.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        """The code with the fault: never from a cache, and into none."""
        return compile(
            self.fault.applied((ROOT / self.fault.path).read_bytes()), self.path, "exec", dont_inherit=True
        )


def main() -> None:
    """Import and collect what the first line names, then do what the others say."""
    given = json.loads(IN.readline())
    if given["fault"]:
        sys.meta_path.insert(0, _Importer(Fault(**given["fault"])))
    os.dup2(os.open(given["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    options = [
        "-q",
        "--reuse-db",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-m",
        "not browser and not stack",
    ]
    code = pytest.main([*options, *given["files"]], plugins=[Lane(IN, frozenset(given["paths"]))])
    _say({"ended": int(code)})


if __name__ == "__main__":
    main()
