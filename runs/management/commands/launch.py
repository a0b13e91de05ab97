"""Start a run, or a list of them. Exit codes: docs/commands.md, "Exit codes"."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from typing import Any, Literal

from runs import actions, driver
from runs.machines import CATALOGUE
from runs.management.asking import (
    EXIT_CODES,
    RunsCommand,
    asked_by,
    bad_input,
    check_one_speaks,
    driven_inline,
    exit_code,
    halt_notice,
    how_to_answer,
    interrupted,
    json_of,
    stopped,
    unasked_model,
    unfit_answer,
)
from runs.models import Interrupt, Run, RunStatus
from runs.reading.exporting import export
from runs.reading.hidden_text import visible
from runs.reading.rows import row_views
from runs.store import halting

LOOK_S = 0.2

Driver = Literal["a worker", "the caller"]


def add_following(parser: ArgumentParser) -> None:
    """Add the options about a new run's worker and its output."""
    parser.add_argument(
        "--inline", action="store_true", help="execute in this process, without broker or server"
    )
    parser.add_argument("--wait", action="store_true", help="print the timeline, and end with the run")
    parser.add_argument("--json", action="store_true", help="print the export instead")


class Command(RunsCommand):
    """Launches a run from the command line, as the installation's operator."""

    help = f"Start a run. {EXIT_CODES}"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of one launch and of a batch."""
        parser.add_argument("--machine", metavar="M", help=" or ".join(CATALOGUE))
        parser.add_argument("--goal", metavar="TEXT")
        parser.add_argument("--model", metavar="NAME", help="a model of the site")
        parser.add_argument(
            "--run-settings",
            metavar="FILE|JSON",
            help="the settings of the run; --settings '{…}' means the same here, not Django's own option",
        )
        parser.add_argument("--script", metavar="FILE|JSON", help="prepared replies in place of a model")
        add_following(parser)
        parser.add_argument(
            "--batch", metavar="FILE", help="a JSON list of launches, executed inline, an export a line"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Launch one run, or a batch."""
        if options["batch"]:
            _check_alone(options)
            self._batch(json_of(options["batch"], "--batch"))
            return
        for name in ("machine", "goal"):
            if options[name] is None:
                raise bad_input(f"Name the {name}: --{name}.")
        check_one_speaks(options)
        settings = json_of(options["run_settings"], "--settings")
        settings = {} if settings is None else settings
        if options["model"] and isinstance(settings, dict):
            settings = {**settings, "model": options["model"]}
        script = json_of(options["script"], "--script")
        driven_by: Driver = "the caller" if options["inline"] else "a worker"
        run = self._started(options["machine"], options["goal"], settings, script, driven_by)
        if said := unasked_model(settings, script):
            self.stderr.write(said)
        self.follow(run, options)

    def follow(self, run: Run, options: dict[str, Any]) -> None:
        """Drive or follow the run by the options, print its output, and end with its exit code."""
        if options["inline"]:
            run, fault = driven_inline(run)
            asked = asked_by(run)
        else:
            said = self._tell_of_halt("")
            follows = options["wait"] or options["json"]
            asked = self.followed(run, said, silent=options["json"]) if follows else []
            unfit = unfit_answer(asked)
            fault = bad_input(unfit) if unfit else None
        if options["json"]:
            self.stdout.write(json.dumps(export(run), ensure_ascii=False))
        else:
            self._say(run, asked, options["inline"] and options["wait"])
        if fault:
            raise fault
        if options["inline"] or options["wait"] or options["json"]:
            sys.exit(exit_code(run))

    def _started(self, machine: str, goal: str, settings: Any, script: Any, driven_by: Driver) -> Run:
        return actions.start_run(
            machine=machine, goal=goal, settings=settings, owner=None, script=script, driven_by=driven_by
        )

    def _tell_of_halt(self, said: str) -> str:
        """Print the notice of a halt to stderr, unless it equals `said`; return it."""
        notice = halt_notice()
        if notice not in ("", said):
            self.stderr.write(notice)
        return notice

    def followed(self, run: Run, halt: str, *, silent: bool) -> list[Interrupt]:
        """Look until the run has ended or waits for a person, printing new steps; return its questions.

        `run` is kept up to date. Questions are read only if its status says that it waits: a question that comes just
        after its status was read is the next look's.
        """
        seen = 0
        while True:
            run.refresh_from_db()
            if not silent:
                seen = self._print_rows(run, seen)
            asked = asked_by(run)
            if asked or run.finished or run.status == RunStatus.PAUSED:
                return asked
            halt = self._tell_of_halt(halt)
            time.sleep(LOOK_S)

    def _print_rows(self, run: Run, after: int) -> int:
        while rows := row_views(run, after=after):
            for row in rows:
                self.stdout.write(f"{row.seq:>5}  {row.node:<12} {row.summary}")
                after = row.seq
        return after

    def _say(self, run: Run, asked: list[Interrupt], rows: bool) -> None:  # noqa: FBT001
        if rows:
            self._print_rows(run, 0)
        reason = f" ({run.exit_reason})" if run.exit_reason else ""
        self.stdout.write(f"Run {run.pk}: {run.status}{reason}")
        if run.answer:
            self.stdout.write(visible(run.answer))
        for question in asked:
            self.stdout.write(how_to_answer(question, run))

    def _batch(self, items: Any) -> None:
        if not isinstance(items, list):
            raise bad_input("--batch needs a JSON list of {machine, goal, settings, script}.")
        halted = None
        for item in items:
            try:
                told = self._one_of_batch(item)
            except halting.Halted as fault:
                halted, told = fault, {"error": str(fault)}
            self.stdout.write(json.dumps(told, ensure_ascii=False))
        if halted:
            raise stopped(halted, "Not every run could be executed.")

    def _one_of_batch(self, item: Any) -> dict[str, Any]:
        unknown = set(item) - {"machine", "goal", "settings", "script"} if isinstance(item, dict) else {"?"}
        if unknown:
            return {"error": "Each item is an object of machine, goal, settings and script."}
        try:
            run = actions.start_run(
                machine=str(item.get("machine", "")),
                goal=str(item.get("goal", "")),
                settings={} if item.get("settings") is None else item["settings"],
                owner=None,
                script=item.get("script"),
                driven_by="the caller",
            )
            try:
                return export(driver.drive_inline(run.pk))
            except KeyboardInterrupt:
                raise interrupted(Run.objects.get(pk=run.pk)) from None
        except actions.BadLaunch as fault:
            return {"error": str(fault)}
        except driver.BadAnswer as fault:
            return {"error": f"settings.answers: {fault.sentence}"}


def _check_alone(options: dict[str, Any]) -> None:
    """Refuse options beside a batch that its items give: they would be dropped."""
    names = {"machine": "--machine", "goal": "--goal", "model": "--model", "run_settings": "--settings"}
    names["script"] = "--script"
    if beside := [option for name, option in names.items() if options[name] is not None]:
        raise bad_input(f"Batch items set these themselves: leave out {', '.join(beside)}.")
