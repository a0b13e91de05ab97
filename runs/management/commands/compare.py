"""Print how two runs differ."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from runs.management.asking import bad_input, run_of
from runs.models import Run
from runs.reading.comparing import compare
from runs.reading.comparing_words import (
    FoldView,
    PlaceView,
    ValueView,
    as_json,
    place_views,
    relation_of,
    summary_of,
    total_views,
)

AT_MOST = 100
"""Places printed as text; the JSON has all."""


class Command(BaseCommand):
    """Prints a summary, the numbers, and the steps that differ."""

    help = "Compare two runs step by step; --json prints the whole comparison."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the two runs and the form."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument(
            "other",
            metavar="OTHER",
            nargs="?",
            help="without it a copy is compared with the run it was copied from",
        )
        parser.add_argument("--json", action="store_true", help="everything, as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the comparison."""
        left, right = _both(options["run"], options["other"])
        if left.pk == right.pk:
            raise bad_input("Both names mean the same run. Name two.")
        found = compare(left, right)
        if options["json"]:
            self.stdout.write(json.dumps(as_json(found), ensure_ascii=False, indent=2))
            return
        relation = relation_of(left, right)
        for line in [relation, *(sentence.plain for sentence in summary_of(found))]:
            if line:
                self.stdout.write(line)
        self.stdout.write("")
        for total in total_views(found.totals):
            self.stdout.write(f"{total.label:<22}{total.left:>12}{total.right:>12}  {total.difference}")
        for view in place_views(found, most=AT_MOST):
            self._print(view)
        if len(found.apart) > AT_MOST:
            self.stdout.write(f"… and {len(found.apart) - AT_MOST} more places; --json has them.")

    def _print(self, view: FoldView | PlaceView) -> None:
        if isinstance(view, FoldView):
            self.stdout.write(f"\n    {view.count} the same ({view.left_rows}; {view.right_rows})")
            return
        self.stdout.write(f"\n{view.number}. {view.sign.text}")
        for sign, steps, more in (("<", view.left, view.left_more), (">", view.right, view.right_more)):
            for step in steps:
                asked = f"{step.asked.plain} · " if step.asked else ""
                self.stdout.write(f"  {sign} {step.seq:>5}  {asked}{step.said.plain}")
            if more:
                self.stdout.write(f"  {sign}        … and {more} more")
        for value in view.values:
            self._print_value(value)

    def _print_value(self, value: ValueView) -> None:
        for sign, pieces, missing in (
            ("<", value.left, value.left_missing),
            (">", value.right, value.right_missing),
        ):
            text = " ".join("".join(piece.text for piece in pieces).split())
            shown = text if len(text) <= 200 else f"{text[:199]}…"
            self.stdout.write(f"         {value.name} {sign} {'(nothing)' if missing else shown}")


def _both(run: str, other: str | None) -> tuple[Run, Run]:
    """Return the two runs; a copy named alone comes second, after its source."""
    if other is not None:
        return run_of(run), run_of(other)
    copy = run_of(run)
    if copy.copied_from is None:
        raise bad_input(f"Run {run} was not copied from a run that is here. Name the other one too.")
    return copy.copied_from, copy
