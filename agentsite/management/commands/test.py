"""`manage.py test`: installs what the tests need, then runs pytest."""

import os
import subprocess
import sys
from importlib.util import find_spec

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentsite import bootstrap
from agentsite.chromium import HOW_TO_GET, get_chromium

NEEDED = ("pytest", "pytest_django", "pytest_asyncio", "playwright", "hypothesis")
NOTHING_COLLECTED = 5
WITHOUT_BROWSER = "not browser"
WITH_BROWSER = "browser"


class Command(BaseCommand):
    """Two runs of pytest, because the browser's event loop can't share a process with asynchronous tests."""

    help = "Install what the tests need and run them; takes pytest's own arguments."
    requires_system_checks: list[str] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Everything after `test` is pytest's."""
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
        sys.exit(run_both(argv[2:]))


def install_what_tests_need() -> None:
    """Into `.venv`, by hash; an environment of somebody's own is left alone."""
    venv, lock = settings.BASE_DIR / ".venv", settings.BASE_DIR / "requirements-test.lock"
    if venv.resolve() == bootstrap.Path(sys.prefix).resolve():
        bootstrap.install(bootstrap.Path(sys.executable), venv, lock)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"The tests need {', '.join(missing)}, which this environment lacks. Install with: "
            f"{sys.executable} -m pip install --require-hashes -r requirements-test.lock"
        )


def run_both(arguments: list[str]) -> int:
    """All but the browser tests, then those; the first exit code that says something is wrong, else 0.

    A caller's mark that speaks of the browser has chosen already.
    """
    chosen = "browser" in split_mark(arguments)[0]
    codes = [pytest(mark, arguments) for mark in (("",) if chosen else (WITHOUT_BROWSER, WITH_BROWSER))]
    told = [code for code in codes if code not in {0, NOTHING_COLLECTED}]
    if told:
        return told[0]
    return 0 if 0 in codes else NOTHING_COLLECTED


def pytest(mark: str, arguments: list[str]) -> int:
    """One run; a `-m` of the caller's is narrowed, not replaced."""
    wanted, rest = split_mark(arguments)
    expression = " and ".join(f"({part})" for part in (wanted, mark) if part)
    command = [sys.executable, "-m", "pytest", *rest, "-m", expression]
    environ = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(command, cwd=settings.BASE_DIR, env=environ, check=False).returncode


def split_mark(arguments: list[str]) -> tuple[str, list[str]]:
    """pytest's `-m EXPRESSION` and the other arguments."""
    wanted, rest, following = "", list[str](), iter(arguments)
    for argument in following:
        if argument == "-m":
            wanted = next(following, "")
        elif argument.startswith("-m") and not argument.startswith("--"):
            wanted = argument.removeprefix("-m").removeprefix("=")
        else:
            rest.append(argument)
    return wanted, rest
