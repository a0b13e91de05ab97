"""`manage.py test`: install the packages of the tests, then run pytest."""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import IO

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentsite import bootstrap
from agentsite.chromium import HOW_TO_GET, get_chromium

NEEDED = ("pytest", "pytest_django", "pytest_asyncio", "playwright", "hypothesis")
NOTHING_COLLECTED = 5
LANES = (("not browser and not stack",), ("browser", "stack and not browser"))
"""Marks of the pytest runs: those of one lane one by one, the lanes at once. The browser's event loop can't share a
process with asynchronous tests, and tests with real servers mostly wait."""


class Command(BaseCommand):
    """Runs pytest several times, two at once; the second lane's output is shown at the end."""

    help = "Install the packages of the tests and run them; takes pytest's own arguments."
    requires_system_checks: list[str] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass everything after `test` to pytest."""
        if "--help" in argv[2:] or "-h" in argv[2:]:
            self.print_help(argv[0], argv[1])
            return
        try:
            install_what_tests_need()
        except (CommandError, bootstrap.CannotStart) as why:
            self.stderr.write(str(why))
            sys.exit(1)
        if get_chromium() is None:
            self.stderr.write(HOW_TO_GET)
        sys.exit(run_lanes(argv[2:]))


def install_what_tests_need() -> None:
    """Install them into `.venv`, by hash; another environment is left alone."""
    venv, lock = settings.BASE_DIR / ".venv", settings.BASE_DIR / "requirements-test.lock"
    if venv.resolve() == bootstrap.Path(sys.prefix).resolve():
        bootstrap.install(bootstrap.Path(sys.executable), venv, lock)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"The tests need {', '.join(missing)}, which this environment lacks. Install with: "
            f"{sys.executable} -m pip install --require-hashes -r requirements-test.lock"
        )


def run_lanes(arguments: list[str]) -> int:
    """Run both lanes; return the first exit code of a failure, else 0.

    A mark that names the browser or servers has chosen already: one run.
    """
    if any(word in split_mark(arguments)[0] for word in ("browser", "stack")):
        return pytest("", arguments)
    first, beside = LANES
    with tempfile.TemporaryFile("w+") as kept, ThreadPoolExecutor(1) as pool:
        later = pool.submit(run_lane, beside, arguments, kept)
        codes = [*run_lane(first, arguments), *later.result()]
        kept.seek(0)
        shutil.copyfileobj(kept, sys.stdout)
    told = [code for code in codes if code not in {0, NOTHING_COLLECTED}]
    if told:
        return told[0]
    return 0 if 0 in codes else NOTHING_COLLECTED


def run_lane(marks: tuple[str, ...], arguments: list[str], out: IO[str] | None = None) -> list[int]:
    """Run pytest for each mark, and return the exit codes; the output goes to `out` if given."""
    return [pytest(mark, arguments, out) for mark in marks]


def pytest(mark: str, arguments: list[str], out: IO[str] | None = None) -> int:
    """Run pytest once; a given `-m` is narrowed, not replaced."""
    wanted, rest = split_mark(arguments)
    expression = " and ".join(f"({part})" for part in (wanted, mark) if part)
    command = [sys.executable, "-m", "pytest", *rest, "-m", expression]
    environ = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(command, cwd=settings.BASE_DIR, env=environ, stdout=out, check=False).returncode


def split_mark(arguments: list[str]) -> tuple[str, list[str]]:
    """Return pytest's `-m EXPRESSION` and the other arguments."""
    wanted, rest, following = "", list[str](), iter(arguments)
    for argument in following:
        if argument == "-m":
            wanted = next(following, "")
        elif argument.startswith("-m") and not argument.startswith("--"):
            wanted = argument.removeprefix("-m").removeprefix("=")
        else:
            rest.append(argument)
    return wanted, rest
