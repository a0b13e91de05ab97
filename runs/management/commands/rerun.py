"""Ask the model anew from a step on: a fork without changes."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from runs import actions
from runs.management.copying import CopyingCommand
from runs.management.going_back import told_of_lost
from runs.models import Run
from runs.reading.rollback import Again, again
from runs.store import copying


class Command(CopyingCommand):
    """Asks the model anew from a step on, in a new run; prints the likely cost."""

    help = "Run again from a live transition (0: from the beginning), in a new run. --estimate only prints the cost."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the option that only estimates."""
        super().add_arguments(parser)
        parser.add_argument("--estimate", action="store_true", help="print the estimated cost and do nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        """Rerun, or only print the estimate."""
        if not options["estimate"]:
            super().handle(*args, **options)
            return
        run = self.run_of(options)
        copying.check_fork(run, options["at"])
        found = again(run, options["at"])
        if options["json"]:
            self.stdout.write(json.dumps(_estimate(found), ensure_ascii=False))
        self.tell(found, options)

    def copied(self, run: Run, options: dict[str, Any]) -> Run:
        """Return the new run."""
        return actions.rerun(
            run,
            at=options["at"],
            by=None,
            answers=self.answers(options),
            message=options["message"],
            seen=options["seen"],
            driven_by=self.driven_by(options),
        )

    def tell(self, found: Again, options: dict[str, Any]) -> None:
        """Print the likely cost."""
        if options["json"]:
            return
        self.stdout.write(f"Estimated to add: {found.sentence}")
        if found.lost:
            told = map(told_of_lost, found.lost)
            self.stdout.write("\n".join(["Changes to the context since are not copied:", *told]))


def _estimate(found: Again) -> dict[str, Any]:
    """Return the output of --estimate, as JSON."""
    return {
        "model_calls": found.model_calls,
        "tokens": found.tokens,
        "cost_usd": found.cost_usd,
        "tool_calls": found.tool_calls,
        "outside_calls": found.outside_calls,
        "lost": [{"seq": change.seq, "what": change.line.plain} for change in found.lost],
    }
