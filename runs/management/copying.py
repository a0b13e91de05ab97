"""Shared parts of fork and rerun."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any, Literal

from runs import actions
from runs.management.asking import RunsCommand, driven_inline, exit_code, halt_notice, run_of
from runs.management.going_back import BEGIN_AGAIN, told_first, told_of_beginning_again
from runs.models import Run
from runs.reading.exporting import export
from runs.reading.rollback import Again, again
from runs.store import after_row, copying


class CopyingCommand(RunsCommand):
    """Begins a new run from a step of another one, as the installation's operator."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the run and the step."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument(
            "--at", type=int, required=True, metavar="SEQ", help="the seq of a live transition, or 0"
        )
        parser.add_argument(
            "--keep-answers",
            action="store_true",
            help="give the same questions after the step the same answers again",
        )
        parser.add_argument("--message", default="", metavar="T", help="why; shown in the log")
        parser.add_argument(
            "--inline", action="store_true", help="execute in this process, without broker or server"
        )
        parser.add_argument(
            "--sure", action="store_true", help="confirm that side effects after the step may be repeated"
        )
        parser.add_argument("--json", action="store_true", help="print the export of the new run")

    def copied(self, run: Run, options: dict[str, Any]) -> Run:
        """Return the new run of the command."""
        raise NotImplementedError(f"{type(self).__module__} makes no run")

    def tell(self, found: Again, options: dict[str, Any]) -> None:
        """Print notes once the new run exists, before it is driven."""

    def run_of(self, options: dict[str, Any]) -> Run:
        """Return the named run, if it has the named step."""
        return run_of(options["run"])

    def answers(self, options: dict[str, Any]) -> actions.Answers:
        """Return the fate of the answers after the step."""
        return "keep" if options["keep_answers"] else "ask again"

    def driven_by(self, options: dict[str, Any]) -> Literal["a worker", "the caller"]:
        """Return the driver of the new run."""
        return "the caller" if options["inline"] else "a worker"

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the run and print its number. If it may repeat side effects, a warning comes first, and --sure is
        needed."""
        run, at = self.run_of(options), options["at"]
        copying.check_fork(run, at)
        seen, found = after_row.copy_mark(run, at), again(run, at)
        with told_first(told_of_beginning_again(found, at), seen, BEGIN_AGAIN, options) as mark:
            made = self.copied(run, options | {"seen": mark})
        self.tell(found, options)
        stays = None
        if options["inline"]:
            made, stays = driven_inline(made)
        elif notice := halt_notice():
            self.stderr.write(notice)
        if options["json"]:
            self.stdout.write(json.dumps(export(made), ensure_ascii=False))
        else:
            self.stdout.write(str(made.pk))
        if stays:
            raise stays
        if options["inline"]:
            sys.exit(exit_code(made))
