"""A process that has loaded the project once and forks for each command of manage.py, or every one costs two seconds.

`python -m tests.forking`: a line of JSON for each command comes in (its arguments, and the files for what it prints),
its exit code goes out. The command runs in a process of its own, through manage.py's own door.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from agentsite.environment import ROOT


class Forker:
    """The process, and the way to have it run a command."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ
        self.process: subprocess.Popen[str] | None = None
        self.end: Callable[[], object] = lambda: None
        self.guard = threading.Lock()

    def run(
        self, arguments: tuple[str, ...], timeout: float, failpoints: str = "", data_dir: Path | None = None
    ) -> tuple[int, str, str]:
        """Exit code, standard output, standard error; TimeoutError where it takes longer.

        `failpoints` as FAILPOINTS has them, `data_dir` in place of the site's: for this command alone.
        """
        with self.guard, tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            for file in (out, err):
                file.touch()
            asked = {"argv": ["manage.py", *arguments], "out": str(out), "err": str(err)}
            own = {"failpoints": failpoints, "data_dir": str(data_dir or "")}
            code = self._ask(json.dumps(asked | own), timeout)
            return code, out.read_text(errors="replace"), err.read_text(errors="replace")

    def close(self) -> None:
        """No process is left, and the next command finds the project as it is then."""
        with self.guard:
            self.end()
            self.process = None

    def _ask(self, line: str, timeout: float) -> int:
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.forking"],
                cwd=ROOT,
                env=self.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self.end = weakref.finalize(self, _end, self.process)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            raise TimeoutError(f"after {timeout:g} seconds still at {line}")
        return int(self.process.stdout.readline())


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def main() -> None:
    """Load everything, then fork for each line."""
    import django

    from agentsite import bootstrap

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
    bootstrap.take_data_dir(sys.argv)
    django.setup()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _be_the_command(**json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _be_the_command(argv: list[str], out: str, err: str, failpoints: str = "", data_dir: str = "") -> None:
    """As a shell starts it; never returns."""
    from django.conf import settings

    import manage
    from runs import hints, live
    from runs.failpoints import PLANNED, planned

    PLANNED.update(planned(failpoints))
    if data_dir:
        settings.DATA_DIR = Path(data_dir)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    sys.argv = argv
    code: object = 0
    try:
        manage.main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    hints.flush()  # as at the end of any process
    live.flush()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main()
