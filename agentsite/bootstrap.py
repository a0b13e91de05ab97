"""Make `.venv` beside manage.py from the hash-pinned lock, with the standard library, and go on inside it.

Works on a bare Python; nothing here may import a package that has to be installed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Literal

OLDEST = (3, 11)
ENTERED = "AGENTSITE_ENTERED_VENV"
NEEDED = ("django", "celery", "channels", "daphne", "openai", "psycopg", "pydantic_ai", "redis")
TAKE_DATA = frozenset({"up", "local_model", "backup", "restore"})
"""The commands with `--data`: all that declare it."""

WANT_A_SITE = frozenset(
    {
        *("abort", "backup", "compare", "continue", "decide", "export", "fork", "halt", "launch", "pause"),
        *("replay", "rerun", "resume", "rollback", "sign_in_link", "try_now", "unhalt", "verify"),
    }
)
"""Commands that need an existing site."""
WANT_NONE = frozenset({"add_provider", "check_machine", "help", "machines", "restore", "test"})
"""Commands that make no site either; `restore` does once its file is checked. All others make a missing one."""

SiteWanted = Literal["there", "none", "made"]

LAST_LINES = 12
LOCKED_INSTALL = (
    *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"),
    *("--require-hashes", "--no-deps", "--only-binary", ":all:"),
)


class CannotStart(Exception):
    """The environment can't be made; the sentence says what to do."""


class PythonTooOld(CannotStart):
    """This interpreter is older than the product needs."""

    def __init__(self, found: tuple[int, int]) -> None:
        super().__init__(
            f"agentsite needs Python {OLDEST[0]}.{OLDEST[1]} or newer; this is Python {found[0]}.{found[1]}. "
            "Run it with a newer one, for example: python3.12 manage.py up"
        )
        self.found = found


class NoVenvModule(CannotStart):
    """Debian and Ubuntu ship Python without ensurepip."""

    def __init__(self) -> None:
        super().__init__(
            f"{sys.executable} can't make a virtual environment: its venv module or ensurepip is missing. "
            "On Debian or Ubuntu: apt-get install python3-venv. Then run the same command again."
        )


class InstallFailed(CannotStart):
    """The package installer failed; its last lines say why."""

    def __init__(self, lock: Path, output: str) -> None:
        last = "\n".join("    " + line for line in output.strip().splitlines()[-LAST_LINES:])
        super().__init__(
            f"Installing the packages of {lock.name} failed. Check the network. "
            f"Run the same command again to continue. The installer's last lines:\n{last}"
        )
        self.lock = lock
        self.output = output


def enter(root: Path) -> None:
    """Return if this interpreter has everything needed; otherwise go on in `.venv`, made or repaired first."""
    try:
        check_python(sys.version_info[:2])
        if usable_here():
            return
        if os.environ.get(ENTERED):
            raise InstallFailed(root / "requirements.lock", f"{sys.prefix} lacks one of {', '.join(NEEDED)}")
        python = make_venv(root)
    except CannotStart as why:
        sys.exit(str(why))
    os.environ[ENTERED] = "1"
    os.execv(python, [str(python), *sys.argv])


def take_data_dir(argv: list[str], environ: MutableMapping[str, str] = os.environ) -> None:
    """Let `--data DIR` name the data directory for the settings, which are read before any command runs.

    Parsed as the command itself does: at any place, also `--data=DIR` or shortened. Anything unreadable is left to the
    command to refuse. But an empty name, which would be the working directory, is refused here.
    """
    environ.pop(ENTERED, None)
    if len(argv) < 2 or argv[1] not in TAKE_DATA:
        return
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--data")
    try:
        data = parser.parse_known_args(argv[2:])[0].data
    except argparse.ArgumentError:
        return
    if data is not None:
        if not data:
            sys.exit("--data is empty. Name a directory.")
        environ["AGENTSITE_DATA_DIR"] = os.path.abspath(data)


def site_wanted(argv: list[str]) -> SiteWanted:
    """Return whether a process with these arguments needs a site, needs none, or makes a missing one."""
    if Path(argv[0]).name != "manage.py":
        return "made"
    if not argv[1:] or argv[1] in WANT_NONE or not {"-h", "--help", "--version"}.isdisjoint(argv[1:]):
        return "none"
    return "there" if argv[1] in WANT_A_SITE else "made"


def check_python(found: tuple[int, ...]) -> None:
    """Refuse an interpreter that is too old."""
    if tuple(found[:2]) < OLDEST:
        raise PythonTooOld((found[0], found[1]))


def usable_here() -> bool:
    """Return True if this very interpreter can import the product's packages."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


def make_venv(root: Path) -> Path:
    """Return the interpreter of `.venv` with the packages of the lock; made, repaired or updated if need be."""
    venv, lock = root / ".venv", root / "requirements.lock"
    python = venv / "bin" / "python"
    if stamp_of(venv, lock) == digest(lock) and runs(python):
        return python
    with only_one(root / ".venv.lock"):
        if stamp_of(venv, lock) == digest(lock) and runs(python):
            return python
        if not runs(python, "-m", "pip", "--version"):
            say("Making .venv, this machine's own environment for agentsite (once, about a minute) …")
            create_venv(venv)
        install(python, venv, lock)
    return python


def create_venv(venv: Path) -> None:
    """Make a fresh virtual environment, in place of any half-made one."""
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise NoVenvModule
    made = run([sys.executable, "-m", "venv", "--clear", str(venv)])
    if made.returncode != 0:
        if "ensurepip" in made.stdout:
            raise NoVenvModule
        raise InstallFailed(venv, made.stdout)


def install(python: Path, venv: Path, lock: Path) -> None:
    """Install exactly the packages of the lock, by hash, unless its stamp says that this was done."""
    if stamp_of(venv, lock) == digest(lock):
        return
    say(f"Installing the packages of {lock.name} into .venv …")
    done = run([str(python), *LOCKED_INSTALL, "-r", str(lock)])
    if done.returncode != 0:
        raise InstallFailed(lock, done.stdout)
    stamp_file(venv, lock).write_text(digest(lock), encoding="ascii")


def digest(lock: Path) -> str:
    """Return the stamp of an installed lock."""
    return hashlib.sha256(lock.read_bytes()).hexdigest()


def stamp_file(venv: Path, lock: Path) -> Path:
    """Return the file with the stamp of an installed lock."""
    return venv / f"{lock.name}.sha256"


def stamp_of(venv: Path, lock: Path) -> str:
    """Return the stored stamp, or an empty text."""
    with contextlib.suppress(FileNotFoundError):
        return stamp_file(venv, lock).read_text(encoding="ascii").strip()
    return ""


def runs(python: Path, *arguments: str) -> bool:
    """Return True if an interpreter starts at all (a half-made environment's doesn't)."""
    return python.exists() and run([str(python), *(arguments or ("-c", "pass"))]).returncode == 0


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command with both its outputs in one text, without prompts."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as why:
        return subprocess.CompletedProcess(command, 127, stdout=str(why))


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the lock file; a second process waits."""
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def say(sentence: str) -> None:
    """Print to the terminal's error stream, so a command's output stays its own."""
    print(sentence, file=sys.stderr, flush=True)
