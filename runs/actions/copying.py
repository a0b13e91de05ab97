"""Fork, run again, replay."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from django.db import transaction
from pydantic import ValidationError

from runs import driver, hints
from runs.actions.common import NotAllowed, as_told, name_of, note_of
from runs.actions.launching import BadLaunch, Problem, first_without_price, new_run, place_of, sentence_of
from runs.adapters.scripted import BadScript
from runs.engine.effects import HumanCall, question_of
from runs.engine.facts import KeptAnswer
from runs.engine.kernel import decide as decide_next
from runs.engine.machine import Machine, State, Terms
from runs.engine.rules import carried_over
from runs.engine.snapshot import Snapshot
from runs.engine.states import KEPT_BY_GATES, carried, control_values, refused, taken_for_another
from runs.engine.values import canonical, clean, clean_text
from runs.machines import CATALOGUE
from runs.models import Interrupt, Run
from runs.rights import Person, may_decide, may_launch
from runs.store import after_row, copying, creating, decisions, loading, shared_limits, switching
from runs.store.errors import BadDecision, NotPossible

Answers = Literal["ask again", "keep"]
"""The fate of people's answers after the step."""


def fork(
    run: Run,
    *,
    at: int,
    by: Person,
    settings: dict[str, Any] | None = None,
    script: dict[str, Any] | str | None = None,
    state: dict[str, Any] | None = None,
    decision: dict[str, Any] | None = None,
    answers: Answers = "ask again",
    message: str = "",
    seen: str | None = None,
    driven_by: Literal["a worker", "the caller"] = "a worker",
) -> Run:
    """Return a new run that goes on from the live transition step `at` of `run` (0: from the beginning).

    `settings` and `state` hold changed values (null removes a setting). `decision` (verdict, args, message) answers the
    first question after the step; with `question`, the step of the seen question, no other. `seen` is the mark of the
    page's account (`store.copy_mark`); raises `ToldOtherwise` if it has changed. `BadLaunch` names all faults with
    their places.
    """
    return _forked(
        _Fork(run, at, by, "fork", settings, script, state, decision, answers, message, seen, driven_by)
    )


def rerun(
    run: Run,
    *,
    at: int,
    by: Person,
    answers: Answers = "ask again",
    message: str = "",
    seen: str | None = None,
    driven_by: Literal["a worker", "the caller"] = "a worker",
) -> Run:
    """Return a fork without changes: the model is asked anew from step `at` on."""
    return _forked(
        _Fork(run, at, by, "rerun", answers=answers, message=message, seen=seen, driven_by=driven_by)
    )


def check_first_answer(run: Run, at: int, decision: dict[str, Any]) -> None:
    """Raise `BadLaunch` if a fork at step `at` could not take the decision."""
    _first_answer(run, at, decision)


def replay(run: Run, *, by: Person, to: int | None = None) -> tuple[Run, driver.Difference | None]:
    """Return a new run, replayed from the recorded answers; nothing is called, nothing is paid.

    The first difference comes with it, if there is one. `to` is the last replayed step.
    """
    check_copying(by, run)
    if to is not None:
        copying.check_row(run, to)
    try:
        return driver.replay_run(run, by.pk if by is not None else None, to)
    except (driver.NoMachine, BadScript, ValidationError) as fault:
        raise NotPossible(f"Run {run.pk} can't be replayed. {fault}") from None


def check_copying(person: Person, run: Run) -> None:
    """Raise `NotAllowed` if the person may not see the run, or may not launch one."""
    if person is not None and not run.seen_by(person):
        raise NotAllowed(f"Run {run.pk} is not yours to see.")
    if not may_launch(person):
        raise NotAllowed("You may not launch runs. An administrator can add you to the group “operators”.")


@dataclass(frozen=True, slots=True)
class _Fork:
    """The request for a fork."""

    run: Run
    at: int
    by: Person
    origin: Literal["fork", "rerun"]
    settings: dict[str, Any] | None = None
    script: dict[str, Any] | str | None = None
    state: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None
    answers: Answers = "ask again"
    message: str = ""
    seen: str | None = None
    driven_by: Literal["a worker", "the caller"] = "a worker"


def _forked(wanted: _Fork) -> Run:
    run, at, by = wanted.run, wanted.at, wanted.by
    check_copying(by, run)
    if run.machine not in CATALOGUE:
        raise NotPossible(f"Run {run.pk} needs the machine {run.machine}, which is not installed.")
    copying.check_fork(run, at)
    if (wanted.decision is not None or wanted.answers == "keep") and not may_decide(by, run):
        raise NotAllowed("Giving answers in a fork needs the right to decide.")
    settings = _settings_of_fork(run, at, wanted.settings)
    if wanted.decision is not None and settings.get("answers") == run.settings.get("answers"):
        settings = _without_next_answer(run, at, settings)
    script = wanted.script if wanted.script is not None else _script_of_fork(run, wanted.settings)
    new = new_run(machine=run.machine, goal=run.goal, settings=settings, owner=by, script=script)
    new = replace(new, goal=run.goal)  # to the letter: it made the copied steps
    shared = new.script is None and shared_limits.limits_cost(run.root or run)
    if shared and (unpriced := first_without_price(new.checked, new.model)):
        raise BadLaunch((Problem("settings.model", driver.no_price(unpriced)),))
    unsaved = creating.unsaved(new)
    terms = loading.terms_of(unsaved, driver.tool_specs(unsaved))
    kept: tuple[KeptAnswer, ...] = ()
    answered = at
    if wanted.decision is not None:
        answered, first = _first_answer(run, at, wanted.decision)
        kept = (first,)
    if wanted.answers == "keep":  # the question of `decision` does not get its earlier answer too
        kept += copying.answers_after(run, answered, copying.PEOPLE)
    change = copying.Change(
        by=name_of(by),
        message=note_of(wanted.message),
        settings=_changed(run.settings, settings),
        state=_state_of_fork(wanted, terms, clean({} if wanted.state is None else wanted.state)),
        answers=kept,
    )
    check = as_told(wanted.seen, after_row.copy_mark, at)
    made = copying.fork_run(run, at, new, terms, change, wanted.origin, check)
    if wanted.driven_by == "a worker":
        transaction.on_commit(lambda: hints.hint(made.pk))
    return made


def _settings_of_fork(run: Run, at: int, changes: dict[str, Any] | None) -> dict[str, Any]:
    """Return the settings of the run with the limits as of step `at`, and `changes` over them."""
    if changes is not None and not isinstance(changes, dict):
        raise BadLaunch((Problem("settings", "The settings must be a JSON object."),))
    settings = run.settings
    if limits := copying.limits_at(run, at):
        settings["limits"] = {**settings.get("limits", {}), **limits}
    if (model := switching.model_at(run, at)) != run.model:
        settings["model"] = model
    for name, value in clean(changes or {}).items():
        settings[name] = value
        if value is None:
            del settings[name]
    return settings


def _without_next_answer(run: Run, at: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without the launch's answer to the changed question: no later question may take it."""
    answers = settings.get("answers") or []
    used = decisions.given_answers(run.pk).filter(interrupt__seq__lte=at).count()
    left = [*answers[:used], *answers[used + 1 :]]
    others = {name: value for name, value in settings.items() if name != "answers"}
    return {**others, "answers": left} if left else others


def _script_of_fork(run: Run, changes: dict[str, Any] | None) -> str | None:
    """Return the run's script, unless another model is named."""
    other = (changes or {}).get("model")
    return None if other and other != run.model else run.script_json or None


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: after.get(name) for name in names}


def _first_answer(run: Run, at: int, decision: dict[str, Any]) -> tuple[int, KeptAnswer]:
    """Return the step of the first question after step `at`, and its answer."""
    if not isinstance(decision, dict):
        raise BadLaunch((Problem("decision", "A decision must be a JSON object."),))
    interrupt, asked = _question(run, at, decision.get("question"))
    if unknown := set(decision) - {"verdict", "args", "message", "question"}:
        names = ", ".join(sorted(unknown))
        raise BadLaunch(
            (Problem("decision", f"A decision has verdict, args, message and question, not {names}."),)
        )
    verdict, message = str(decision.get("verdict") or ""), clean_text(str(decision.get("message") or ""))
    if verdict == "rollback":
        raise BadLaunch((Problem("decision.verdict", "Fork from an earlier step instead of rolling back."),))
    said = decisions.Said(
        verdict=verdict, by_name="", channel=copying.IN_FORK, args=decision.get("args"), message=message
    )
    try:
        args = decisions.check_answer(interrupt, said)
    except BadDecision as fault:
        raise BadLaunch((Problem(f"decision.{fault.field}", fault.sentence),)) from None
    return interrupt.seq, KeptAnswer(
        about=asked.about,
        question=question_of(asked),
        verdict=verdict,
        args=args,
        message=message,
        channel="fork",
    )


def _question(run: Run, at: int, seen: Any) -> tuple[Interrupt, HumanCall]:
    """Return the first question after step `at`, if it is the one of step `seen`: the run may have been rolled back
    since.

    If `seen` is None it may be any.
    """
    question = copying.first_question(run, at)
    if question is None:
        why = f"Run {run.pk} has no question after step {at}."
        if seen is not None:
            why = f"The question in step {seen} was rolled back; run {run.pk} has had no question since."
        raise BadLaunch((Problem("decision" if seen is None else "decision.question", why),))
    if seen is not None and str(question[0].seq) != str(seen):
        why = f"The next question is now in step {question[0].seq}, not in step {seen}."
        raise BadLaunch((Problem("decision.question", f"{why} Look at it before you answer."),))
    return question


def _state_of_fork(wanted: _Fork, terms: Terms, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changed control values of the fork: those that follow from its settings or rules, and the requested
    ones."""
    if not isinstance(changes, dict):
        raise BadLaunch((Problem("state", "The state must be a JSON object."),))
    run, at, machine = wanted.run, wanted.at, CATALOGUE[wanted.run.machine]
    before = terms.model_copy(update={"settings": machine.settings.model_validate(run.settings)})
    now = loading.state_at(run, machine, before, at).model_dump(mode="json")
    values = carried(
        machine.open(before).model_dump(mode="json"), machine.open(terms).model_dump(mode="json"), now
    )
    problems = [
        Problem(f"state.{name}", _no_such_value(machine, name))
        for name in changes
        if name not in control_values(machine)
    ]
    if problems:
        raise BadLaunch(tuple(problems))
    unchanged = {**now, **values, "terms": terms}
    values = {**values, **changes}
    try:
        opened = machine.state.model_validate(unchanged)
        state = machine.state.model_validate({**unchanged, **changes})
    except ValidationError as fault:
        raise BadLaunch(
            tuple(
                Problem(
                    ".".join(["state", *place_of(error)]),
                    sentence_of(error, "Unknown setting.", machine.state),
                )
                for error in fault.errors()
            )
        ) from None
    if flaws := tuple(refused(opened, state)):
        raise BadLaunch(tuple(Problem(".".join(["state", *place]), why) for place, why in flaws))
    _check_next_move(machine, copying.check_fork(run, at), opened, state, changes)
    asked = carried_over(
        loading.terms_of(run, {}),
        terms,
        state.interrupts_asked,
        machine.turns(state),
        changed=bool(changes or wanted.settings or wanted.script is not None),
    )
    told = state.model_dump(mode="json") | {"interrupts_asked": asked}
    taken = [found for name in changes for found in taken_for_another(changes[name], told[name], (name,))]
    if taken:
        raise BadLaunch(tuple(Problem(".".join(["state", *place]), why) for place, why in taken))
    return {name: told[name] for name in (*values, "interrupts_asked") if told[name] != now[name]}


def _no_such_value(machine: Machine, name: str) -> str:
    if name in KEPT_BY_GATES:
        return f"The run itself keeps {name}, which counts the questions of its rules."
    if name in machine.state.model_fields:
        return f"The run itself writes {name} when it ends."
    return f"The state of {machine.name} has no value of this name: {', '.join(control_values(machine))}."


def _check_next_move(
    machine: Machine, node: str, before: State, state: State, changed: Collection[str]
) -> None:
    """Ask the machine for its next move: values may fit one by one and make no sense at `node`, or together.

    Raises with the values without whose change it could go on; else with all changed ones.
    """
    why = _refused_next_move(machine, node, state)
    if why is None:
        return
    blamed = [
        name
        for name in changed
        if _refused_next_move(machine, node, state.model_copy(update={name: getattr(before, name)})) is None
    ]
    told = state.model_dump(mode="json")
    lead = f"The fork begins at {node}. The machine can't continue there with"
    if why:
        why = f" It says: {why}"
    raise BadLaunch(
        tuple(
            Problem(
                f"state.{name}",
                f"{lead} {canonical(told[name])[:80]}.{why} Give another value, or fork from another step.",
            )
            for name in blamed or changed
        )
        or (Problem("state", f"{lead} these settings.{why} Give others, or fork from another step."),)
    )


def _refused_next_move(machine: Machine, node: str, state: State) -> str | None:
    """Return the machine's message, possibly empty, if it can't go on; None if it can."""
    try:
        machine.budget(state), machine.budget_text(state), machine.turns(state)
        decide_next(machine, Snapshot(node, state), None)
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}." if str(fault) else ""
    return None
