"""Put faults into the code, one at a time, and say which of them no test notices.

    python -m tests.mutants                                        every subject, a sample of 100 faults of each
    python -m tests.mutants --subject gates --sample 60 --seed 1
    python -m tests.mutants --only runs/rights.py                  every fault of a module (PATH or PATH:FUNCTION)

Nothing is written to the tree: a fault is put into a process that has imported the code. With DATABASE_URL it works on
PostgreSQL, each lane in a database of its own. Faults that change nothing that could be seen are named, with the
reason, in `equivalent.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from tests.mutants.faults import MODULE, ROOT, Fault, faults_in, is_one
from tests.mutants.subjects import SUBJECTS, TESTS

EQUIVALENT = Path(__file__).with_name("equivalent.json")
LEAST_S = 60.0
"""Seconds that the tests of a fault have at least, however quick they are without it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a fault: the test that noticed it, or none."""

    subject: str
    fault: Fault
    by: str
    tests: int


class Lane:
    """One process that runs tests, and what it is asked and says."""

    def __init__(
        self, number: int, files: Sequence[str], paths: Sequence[str], fault: Fault | None = None
    ) -> None:
        environ = dict(os.environ)
        if url := environ.get("DATABASE_URL"):
            name, mark, options = url.partition("?")
            environ["DATABASE_URL"] = f"{name}_{number}{mark}{options}"
        self.log = Path(tempfile.gettempdir(), f"mutants-{os.getpid()}-{number}.log")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.lane"],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        given = {
            "files": files,
            "paths": paths,
            "fault": asdict(fault) if fault else None,
            "log": str(self.log),
        }
        self._send(given)

    def begun(self) -> bool:
        """Whether the tests can be collected; waits until that is known."""
        return "ended" not in self._said()

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Send a line, and return what is said to it."""
        self._send(asked)
        return self._said()

    def _send(self, asked: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()

    def _said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"ended": -1}

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()
        self.log.unlink(missing_ok=True)


class Bench:
    """Some lanes, what is known of the tests, and the faults that are to be tried."""

    def __init__(self, files: list[str], paths: list[str], lanes: int, most: float) -> None:
        self.files, self.paths, self.most = files, paths, most
        self.lanes = [Lane(number, files, paths) for number in range(lanes)]
        self.survey: dict[str, tuple[float, dict[str, list[int]]]] = {}
        """Of each test its seconds of the processor, and the lines that it runs, by file."""
        begun = [lane.begun() for lane in self.lanes]
        if not all(begun):
            sys.exit("The tests can't be collected: " + "".join(lane.log.read_text() for lane in self.lanes))

    def look(self, kept: Path | None) -> None:
        """Find out which lines each test runs; of those in the file `kept` it is known."""
        if kept is not None and kept.exists():
            self.survey = json.loads(kept.read_text())
        parts: list[dict[str, Any]] = [{} for _ in self.lanes]

        def look(number: int) -> None:
            parts[number] = self.lanes[number].ask(
                {"survey": [number, len(self.lanes)], "known": list(self.survey)}
            )

        _at_once(look, len(self.lanes))
        for part in parts:
            if part.get("failed") or "survey" not in part:
                sys.exit(f"Without a fault these fail: {part.get('failed', part)}")
            self.survey |= part["survey"]
        if kept is not None:
            kept.write_text(json.dumps(self.survey))

    def tests_for(self, fault: Fault) -> list[str]:
        """The tests that run the statement, the quickest first, for as many seconds as are allowed."""
        first, last = fault.lines
        chosen, total = [], 0.0
        for name, (seconds, lines) in sorted(self.survey.items(), key=lambda each: each[1][0]):
            here = lines.get(fault.path, ())
            runs = bool(here) if fault.function == MODULE else any(first <= line <= last for line in here)
            if not runs or not name.startswith(tuple(self.files)):
                continue
            total += seconds
            if total > self.most:
                break
            chosen.append(name)
        return chosen

    def try_all(self, faults: list[tuple[str, Fault]], report: Any) -> list[Found]:
        """Try each fault, in as many lanes as there are."""
        waiting: queue.SimpleQueue[tuple[str, Fault]] = queue.SimpleQueue()
        for each in faults:
            waiting.put(each)
        found: list[Found] = []

        def work(number: int) -> None:
            while True:
                try:
                    subject, fault = waiting.get_nowait()
                except queue.Empty:
                    return
                found.append(self._tried(number, subject, fault))
                report(found[-1])

        _at_once(work, len(self.lanes))
        return found

    def _tried(self, number: int, subject: str, fault: Fault) -> Found:
        tests = self.tests_for(fault)
        if not tests:
            return Found(subject, fault, "", 0)
        seconds = max(LEAST_S, 10 * sum(self.survey[name][0] for name in tests))
        asked = {"fault": asdict(fault), "tests": tests, "seconds": seconds}
        lane = self.lanes[number]
        said = lane.ask(asked)
        if said.get("cannot"):
            files = sorted({name.partition("::")[0] for name in tests})
            lane = Lane(number + 100, files, self.paths, fault)
            said = lane.ask({**asked, "fault": None}) if lane.begun() else {"ended": -1}
            lane.close()
        if "ended" in said:
            return Found(subject, fault, "import", len(tests))
        return Found(subject, fault, said["by"], len(tests))

    def close(self) -> None:
        """End the lanes."""
        for lane in self.lanes:
            lane.close()


def _tell(one: Found) -> None:
    print("." if one.by else f"\n{_told(one)}\n", end="", flush=True)


def _told(one: Found) -> str:
    fault = one.fault
    place = f"{fault.path}:{fault.line} {fault.function} ({one.subject}; {one.tests} tests tried)"
    return f"{place}\n  - {fault.before}\n  + {fault.after}"


def _at_once(deed: Any, count: int) -> None:
    threads = [threading.Thread(target=deed, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """The faults that change nothing that could be seen, and why."""
    listed = json.loads(EQUIVALENT.read_text())
    return {(one["path"], one["function"], one["before"], one["after"]): one["why"] for one in listed}


def chosen_faults(options: argparse.Namespace) -> list[tuple[str, Fault]]:
    """The faults that the command line asks for, each with its subject."""
    chosen: list[tuple[str, Fault]] = []
    for subject in options.subject or SUBJECTS:
        faults = [
            fault
            for path, functions in SUBJECTS[subject].items()
            for fault in faults_in(path, functions)
            if not options.only or any(_is_named(fault, one) for one in options.only)
        ]
        if not options.only:
            random.Random(f"{options.seed} {subject}").shuffle(faults)
        most = None if options.only else options.sample
        chosen += ((subject, fault) for fault in islice(filter(is_one, faults), most))
    return chosen


def _is_named(fault: Fault, pattern: str) -> bool:
    path, _, function = pattern.partition(":")
    return fnmatchcase(fault.path, path) and fnmatchcase(fault.function, function or "*")


def show(found: list[Found], named: dict[tuple[str, str, str, str], str]) -> bool:
    """Print the table and what was not noticed; whether enough was."""
    unnoticed = [one for one in found if not one.by]
    print(
        f"\n{'subject':10}{'faults':>8}{'noticed':>9}{'equivalent':>12}{'not noticed':>13}{'noticed of the rest':>21}"
    )
    enough = True
    for subject in dict.fromkeys(one.subject for one in found):
        mine = [one for one in found if one.subject == subject]
        same = [one for one in mine if not one.by and one.fault.key in named]
        noticed = [one for one in mine if one.by]
        share = len(noticed) / ((len(mine) - len(same)) or 1)
        enough = enough and share >= 0.97
        left = len(mine) - len(same) - len(noticed)
        print(f"{subject:10}{len(mine):8}{len(noticed):9}{len(same):12}{left:13}{share:20.1%}")
    for one in sorted(unnoticed, key=lambda one: (one.fault.path, one.fault.line)):
        if one.fault.key not in named:
            print(f"\n{_told(one)}")
    return enough


def main() -> None:
    """Do as the command line says; exits with 1 where less than 97 % were noticed."""
    reader = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.split("\n")[0])
    reader.add_argument(
        "--subject", action="append", choices=list(SUBJECTS), help="one of them; may be given again"
    )
    reader.add_argument("--sample", type=int, default=100, help="faults of a subject at most (100)")
    reader.add_argument("--seed", default="1", help="which sample (1)")
    reader.add_argument(
        "--only", action="append", metavar="PATH[:FUNCTION]", help="every fault there; no sample"
    )
    reader.add_argument(
        "--tests", action="append", metavar="FILE", help="these test files, not the usual ones"
    )
    reader.add_argument("--lanes", type=int, default=2, help="processes at a time (2)")
    reader.add_argument(
        "--most", type=float, default=90.0, help="seconds of the processor for the tests of one fault (90)"
    )
    reader.add_argument("--list", action="store_true", help="only list the faults")
    reader.add_argument(
        "--keep", type=Path, metavar="FILE", help="what tests run; read there, and written there"
    )
    reader.add_argument("--json", type=Path, help="write what came of each fault there")
    options = reader.parse_args()
    faults = chosen_faults(options)
    if options.list:
        for subject, fault in faults:
            print(
                f"{fault.path}:{fault.line} {fault.function} ({subject})\n  - {fault.before}\n  + {fault.after}"
            )
        print(f"{len(faults)} faults, seed {options.seed}")
        return
    files = options.tests or list(TESTS)
    started = time.monotonic()
    paths = sorted({path for modules in SUBJECTS.values() for path in modules})
    bench = Bench(files, paths, options.lanes, options.most)
    try:
        bench.look(options.keep)
        print(
            f"{len(bench.survey)} tests looked at in {time.monotonic() - started:.0f} s; "
            f"{len(faults)} faults, seed {options.seed}",
            flush=True,
        )
        found = bench.try_all(faults, _tell)
    finally:
        bench.close()
    if options.json:
        told = [
            {"subject": one.subject, "by": one.by, "tests": one.tests, **asdict(one.fault)} for one in found
        ]
        options.json.write_text(json.dumps(told, indent=1))
    enough = show(found, equivalents())
    print(f"\n{time.monotonic() - started:.0f} s")
    sys.exit(0 if enough else 1)


if __name__ == "__main__":
    main()
