"""Shared parts of the commands: finding a run, reading JSON from a file or the line, and refusing in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from runs import actions, driver
from runs.models import Interrupt, Run, RunStatus
from runs.reading.arguments import fields_of
from runs.reading.cards import headline_now
from runs.reading.hidden_text import escaped, visible
from runs.reading.questions import titles_of
from runs.store import decisions, halting

BAD_INPUT = 2
NOT_AT_ITS_END = 6
INTERRUPTED = 130
"""A shell's exit code for a command ended by Ctrl-C."""
STOPPED = 74
"""Something outside stopped the command, as `agentsite.stopped` has it."""
_ENDS = {"succeeded": 0, "stopped": 3, "failed": 4, "cancelled": 5}
EXIT_CODES = (
    "Exit code: 0 succeeded, 3 stopped, 4 failed, 5 cancelled, 6 waiting for a person, 2 bad input, "
    "74 the site is halted."
)
"""In the help of commands that drive or follow a run."""


def bad_input(sentence: str) -> CommandError:
    """Return the error that ends a command with exit code 2."""
    return CommandError(sentence, returncode=BAD_INPUT)


class RunsCommand(BaseCommand):
    """A command about runs. An action's refusal ends it with exit code 2 and the sentence."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Execute it; every refusal of a command is answered here."""
        try:
            return super().execute(*args, **options)
        except actions.BadLaunch as fault:
            told = "\n".join(f"{problem.path}: {problem.message}" for problem in fault.problems)
        except (actions.BadDecision, actions.NotPossible, driver.NoMachine) as fault:
            told = fault.sentence
        raise bad_input(told)


def exit_code(run: Run) -> int:
    """Return the exit code of a command that followed or drove a run: 0 only for success."""
    return _ENDS[run.status] if run.finished else NOT_AT_ITS_END


def halt_notice() -> str:
    """Return the notice on a halted site, since nothing moves then; empty if it works."""
    halt = halting.halt_now()
    if halt is None:
        return ""
    return f"{visible(halting.halt_sentence(halt))} To resume the site: manage.py unhalt"


def stopped(halted: halting.Halted, what: str) -> CommandError:
    """Return the error of a command that could not finish because of a halt."""
    return CommandError(
        f"{what} {visible(str(halted))} To resume the site: manage.py unhalt", returncode=STOPPED
    )


def interrupted(run: Run) -> CommandError:
    """Return the error that ends a command after Ctrl-C, with the run's cut-off calls."""
    going = [run.pk, *run.children.filter(ended_at__isnull=True).values_list("pk", flat=True)]
    said = f"Interrupted. Run {run.pk} stays {run.status}. {driver.what_is_cut(going)}"
    return CommandError(said.strip(), returncode=INTERRUPTED)


def driven_inline(run: Run) -> tuple[Run, CommandError | None]:
    """Return the run once this process can bring it no further; and the error that stops it there, if any.

    The run exists all the same, and is reported first.
    """
    try:
        run = driver.drive_inline(run.pk)
    except KeyboardInterrupt:
        run = Run.objects.get(pk=run.pk)
        return run, interrupted(run)
    except halting.Halted as halted:
        run = Run.objects.get(pk=run.pk)
        return run, stopped(halted, f"Run {run.pk} stays {run.status}.")
    except driver.BadAnswer:
        run = Run.objects.get(pk=run.pk)
    unfit = unfit_answer(asked_by(run))
    return run, bad_input(unfit) if unfit else None


def unfit_answer(asked: list[Interrupt]) -> str:
    """Return the fault of the settings' answer that one of these questions refused; empty if there is none."""
    found = (decisions.unfit_answer(question) for question in asked)
    return next((f"settings.answers: {sentence}" for sentence in found if sentence), "")


def run_of(text: str) -> Run:
    """Return the run named by an argument."""
    run = _run_numbered(text)
    if run is None:
        raise bad_input(f"There is no run {text}.")
    return run


def _run_numbered(text: str) -> Run | None:
    return Run.objects.filter(pk=int(text)).first() if text.isdecimal() and len(text) < 18 else None


def interrupt_of(text: str) -> Interrupt:
    """Return the interrupt named by an argument: by its id, or by the number of a run with one open question."""
    run = _run_numbered(text)
    if run is not None:
        return _only_question(run)
    try:
        return Interrupt.objects.select_related("run").get(pk=text)
    except (Interrupt.DoesNotExist, ValidationError):
        other = " and no run of this number" if text.isdecimal() else ""
        raise bad_input(
            f"There is no question {text}{other}. Ids are in export RUN and on the page Needs you."
        ) from None


def _only_question(run: Run) -> Interrupt:
    match open_questions(run):
        case [question]:
            return question
        case []:
            raise bad_input(f"Run {run.pk} has no open question. Name a question by its id (export RUN).")
        case several:
            lines = [f"  {one.pk}  {visible(_title(one))}" for one in several]
            count = (
                f"Run {run.pk} has {len(several)} open questions; nothing was decided. Name one by its id:"
            )
            raise bad_input("\n".join([count, *lines]))


def open_questions(run: Run) -> list[Interrupt]:
    """Return the questions to answer before the run goes on: its own, and those of unfinished children."""
    own = list(run.interrupts.filter(status=Interrupt.Status.PENDING).select_related("run"))
    children = run.children.filter(ended_at__isnull=True)
    return own + [question for child in children for question in open_questions(child)]


def asked_by(run: Run) -> list[Interrupt]:
    """Return the run's questions if its status, as read before, is waiting: so both are of one moment."""
    return open_questions(run) if run.status in (RunStatus.WAITING, RunStatus.PAUSED) else []


def _title(question: Interrupt) -> str:
    """Return the whole question; of a limit, its current state."""
    return headline_now(question) if question.kind == "limit" else titles_of([question])[question.pk]


def call_shown(question: Interrupt) -> str:
    """Return the question's call, whole and in lines, with signs for hidden characters; empty for no call."""
    if not question.tool:
        return ""
    fields = fields_of(question.schema, question.args)
    given = [f"  {field.label}: {visible(field.was_escaped)}" for field in fields if field.given]
    return "\n".join((escaped(question.tool), *given)).replace("\n", "\n    ")


def how_to_answer(question: Interrupt, followed: Run) -> str:
    """Return the question, its run, its call, and the command that answers it."""
    verdict, *others = question.verdicts
    child = question.run
    asks = "It asks"
    if child.pk != followed.pk:
        asks = f"Run {child.pk} ({visible(child.child_name)}), a child of run {child.parent_id}, asks"
    more = {"respond": " --message TEXT", "top_up": f" --args '{{\"{question.limit}\": AMOUNT}}'"}
    lines = [
        f"{asks}: {visible(_title(question))}",
        *([f"    {call}"] if (call := call_shown(question)) else []),
        f"  python3 manage.py decide {question.pk} --verdict {verdict}{more.get(verdict, '')}",
        f"  or another verdict: {', '.join(others)}",
    ]
    if question.host:
        lines.append(f"  --allow-host lets it contact {question.host} for the rest of the run")
    return "\n".join(lines)


def check_one_speaks(options: dict[str, Any]) -> None:
    """Refuse a command with both a model and a script, which plays in place of one: neither is dropped."""
    if options["model"] and options["script"] is not None:
        raise bad_input("--script plays in place of a model: give --model or --script, not both.")


def unasked_model(settings: Any, script: Any) -> str:
    """Return a note that a script replaces the model named in the settings; empty if they name none."""
    model = settings.get("model") if isinstance(settings, dict) and script is not None else None
    return (
        f"The script plays; the model of the settings, {visible(str(model))}, is not asked." if model else ""
    )


def json_of(text: str | None, what: str) -> Any:
    """Return JSON given on the line or as the name of a file; None if nothing was given."""
    if text is None:
        return None
    if not text.lstrip().startswith(("{", "[", '"')):
        path = Path(text)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise bad_input(f"{what}: {path} can't be read ({fault}). Give a file or JSON.") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise bad_input(f"{what} is no JSON: {fault}.") from None
