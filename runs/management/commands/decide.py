"""Answer an interrupt from the command line, as the installation's operator."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from runs import actions
from runs.management.asking import RunsCommand, bad_input, call_shown, halt_notice, interrupt_of, json_of
from runs.management.going_back import GO_BACK, check_sure, told_of_going_back
from runs.models import Interrupt
from runs.reading.arguments import fields_of
from runs.reading.in_flight import late_end_of, unsure_of
from runs.reading.looking import hides, lets_act
from runs.reading.phrases import call_text
from runs.reading.restored import doubt_of
from runs.reading.rollback import staying
from runs.store import decisions


class Command(RunsCommand):
    """Takes one decision; the same one again returns the first one's outcome."""

    help = "Answer an open question. Exit code 2: not possible; 1: another decision was recorded."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the parts of the decision."""
        parser.add_argument(
            "interrupt", metavar="INTERRUPT", help="its id, or the number of a run with one open question"
        )
        parser.add_argument("--verdict", required=True, metavar="V", help="a verdict that its kind allows")
        parser.add_argument(
            "--args",
            dest="new_args",
            metavar="JSON",
            help="edit: the whole new arguments; top_up: amounts; resume: another model",
        )
        parser.add_argument("--message", default="", metavar="T")
        parser.add_argument("--to-step", type=int, metavar="N", help="rollback: the seq of a live transition")
        parser.add_argument(
            "--allow-host",
            action="store_true",
            help="approve, edit: also allow the host for the rest of the run",
        )
        parser.add_argument("--revision", type=int, metavar="R", help="the revision that you saw")
        parser.add_argument(
            "--sure",
            action="store_true",
            help="approve a call with hidden characters, or one that may already have been made; "
            "roll back past side effects, or past changes to the context",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Decide."""
        _check_options(options)
        interrupt = interrupt_of(options["interrupt"])
        _check_not_done(interrupt, options)
        _check_hidden_text(interrupt, options)
        told = _rollback_warning(interrupt, options)
        try:
            decision = actions.decide(
                interrupt.pk,
                verdict=options["verdict"],
                by=None,
                channel="command",
                args=json_of(options["new_args"], "--args"),
                message=options["message"],
                to_step=options["to_step"],
                allow_host=options["allow_host"],
                revision=options["revision"],
            )
        except (actions.Conflict, actions.NotPossible) as fault:
            raise CommandError(fault.sentence) from None
        if told:
            self.stdout.write(told)
        self.stdout.write(f"Recorded: {decision.verdict} on run {interrupt.run_id}.")
        if notice := halt_notice():
            self.stderr.write(notice)


_OTHER_MODEL = ("resume",)
"""The verdict that may name another model, if one can't be called; for other questions it takes no arguments."""


def _check_options(options: dict[str, Any]) -> None:
    """Refuse an option that the verdict does not take: none is dropped."""
    for name, option, verdicts in (
        ("new_args", "--args", (*decisions.TAKE_ARGS, *_OTHER_MODEL)),
        ("to_step", "--to-step", ("rollback",)),
    ):
        if options[name] is not None and options["verdict"] not in verdicts:
            named = " and ".join(verdict for verdict in verdicts if verdict not in _OTHER_MODEL)
            raise bad_input(f"{option} goes with {named}; nothing was decided.")


def _check_not_done(interrupt: Interrupt, options: dict[str, Any]) -> None:
    """Refuse, without --sure, to approve a call that a restore or a lost worker made doubtful."""
    if options["sure"] or not lets_act(interrupt, options["verdict"]):
        return
    if doubt := doubt_of(interrupt):
        raise bad_input(f"{doubt} If it was not, add --sure. Nothing was decided.")
    if lost := _lost_call_warning(interrupt):
        raise bad_input(f"{lost} Check outside first, then add --sure. Nothing was decided.")


def _check_hidden_text(interrupt: Interrupt, options: dict[str, Any]) -> None:
    """Refuse, without --sure, to approve a call with hidden characters, and show it with signs."""
    if options["sure"] or not lets_act(interrupt, options["verdict"]):
        return
    fields = fields_of(interrupt.schema, interrupt.args)
    if options["verdict"] != "edit" and hides(interrupt, fields):
        raise bad_input(
            f"This call has hidden characters:\n    {call_shown(interrupt)}\n"
            "Read it, then add --sure. Nothing was decided."
        )


def _lost_call_warning(interrupt: Interrupt) -> str:
    """Return a note on the call that may run twice, and its known outcome; empty for other or decided questions."""
    if interrupt.kind != "may_have_happened" or interrupt.status != Interrupt.Status.PENDING:
        return ""
    call = call_text(interrupt.tool, interrupt.args)
    late_end = late_end_of(interrupt.run, unsure_of(interrupt))
    known = f"{late_end.rstrip('.')}. " if late_end else ""
    return f"{known}This runs the call {call} again. If it already happened, this could duplicate it."


def _rollback_warning(interrupt: Interrupt, options: dict[str, Any]) -> str:
    """Return the lasting side effects of a rollback, and people's lost changes: both need --sure.

    Empty if there are none.
    """
    found = staying(interrupt, options["to_step"])
    told = told_of_going_back(found, options["to_step"]) if found else ""
    check_sure(told, GO_BACK, options)
    return told
