"""What a person can do: start, answer, rewind, pause, resume, abort. Each checks the right, makes one move, tells.

Source: spec/runtime.md; who may do what: runs/DECISIONS.md.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import Any, Literal

from django.conf import settings as site
from django.db import transaction
from pydantic import ValidationError

from runs import driver, live, store, tasks
from runs.adapters.scripted import BadScript, Script, parse_script
from runs.adapters.secrets import seal
from runs.adapters.tools import TOOLS
from runs.engine.effects import question_of
from runs.engine.facts import KeptAnswer
from runs.engine.kernel import decide as decide_next
from runs.engine.machine import Machine, State, Terms
from runs.engine.settings import InterruptRule, Settings
from runs.engine.snapshot import Snapshot
from runs.engine.states import carried, control_values
from runs.engine.values import clean, clean_text
from runs.machines import CATALOGUE
from runs.models import Decision, Halt, Interrupt, ModelProfile, Run, RunStatus, SiteRule
from runs.rights import Person, decides, may_decide, may_halt, may_launch, may_mend, may_steer
from runs.store import BadDecision, Conflict, NotPossible

__all__ = [
    "BadDecision",
    "BadLaunch",
    "Conflict",
    "NotAllowed",
    "NotPossible",
    "Problem",
    "abort",
    "check_launch",
    "compact_now",
    "decide",
    "edit_summary",
    "halt_site",
    "may_decide",
    "may_halt",
    "may_launch",
    "may_mend",
    "may_steer",
    "pause",
    "pin",
    "register_model",
    "replay",
    "rerun",
    "resume",
    "rewind",
    "start_run",
    "undo_summary",
    "unhalt_site",
    "unpin",
]

log = logging.getLogger(__name__)

MAX_GOAL = 20_000
"""Characters of a goal."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one part of a launch: where, and a sentence."""

    path: str
    message: str


class BadLaunch(Exception):
    """A launch that can't be accepted; nothing was written."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__(" ".join(f"{problem.path}: {problem.message}" for problem in problems))


class NotAllowed(Exception):
    """The person may not do that."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


def _name(person: Person) -> str:
    return "the operator" if person is None else person.get_username()


# --- launching --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Checked:
    settings: Settings
    script: Script | None
    model: str


def start_run(
    *,
    machine: str,
    goal: str,
    settings: dict[str, Any],
    owner: Person,
    script: dict[str, Any] | str | None = None,
    driven_by: Literal["a worker", "the caller"] = "a worker",
) -> Run:
    """Launch a run: its row and budget in one transaction, the hint for a worker on commit."""
    new = _new_run(machine=machine, goal=goal, settings=settings, owner=owner, script=script)
    run = store.create_run(new)
    if driven_by == "a worker":
        transaction.on_commit(lambda: tasks.hint(run.pk))
    return run


def _new_run(
    *,
    machine: str,
    goal: str,
    settings: dict[str, Any],
    owner: Person,
    script: dict[str, Any] | str | None,
) -> store.NewRun:
    """What a run begins with, checked, and with the site's rules of today."""
    checked = check_launch(machine=machine, goal=goal, settings=settings, owner=owner, script=script)
    return store.NewRun(
        machine=machine,
        goal=clean_text(goal.strip()),
        settings=settings,
        checked=checked.settings,
        script=checked.script.as_json() if checked.script is not None else None,
        model=checked.model,
        owner_id=owner.pk if owner is not None else None,
        site_rules=tuple(json.loads(rule.rule_json) for rule in SiteRule.objects.filter(enabled=True)),
    )


def check_launch(
    *,
    machine: str,
    goal: str,
    settings: dict[str, Any],
    owner: Person,
    script: dict[str, Any] | str | None = None,
) -> _Checked:
    """What a launch comes to, or `BadLaunch` with everything that is wrong with it."""
    problems: list[Problem] = []
    if not may_launch(owner):
        raise NotAllowed("You may not launch runs. An administrator can add you to the group “operators”.")
    if machine not in CATALOGUE:
        problems.append(
            Problem("machine", f"There is no machine {machine!r}. Machines: {', '.join(CATALOGUE)}.")
        )
    if not goal.strip():
        problems.append(Problem("goal", "Say what the run is to achieve."))
    elif len(goal) > MAX_GOAL:
        problems.append(
            Problem("goal", f"A goal has at most {MAX_GOAL} characters; this one has {len(goal)}.")
        )
    played = _script_of(script, problems)
    # As they will be stored: what the one door changes must be right too.
    checked = _settings_of(machine, clean(settings), "settings", problems) if machine in CATALOGUE else None
    if checked is None:
        raise BadLaunch(tuple(problems))
    if any(problem.path == "script" for problem in problems):
        raise BadLaunch(tuple(problems))  # with a script that can be played no model need be named
    model, played = _model_of(checked, played, problems)
    if not problems:
        _check_parts(CATALOGUE[machine], checked, played, owner, "settings", problems)
    if problems:
        raise BadLaunch(tuple(problems))
    return _Checked(checked, played, model)


def _script_of(script: dict[str, Any] | str | None, problems: list[Problem]) -> Script | None:
    if not script or (isinstance(script, str) and not script.strip()):
        return None
    try:
        return parse_script(script)
    except BadScript as fault:
        problems.append(Problem("script", str(fault)))
        return None


def _settings_of(machine: str, given: Any, path: str, problems: list[Problem]) -> Settings | None:
    """The settings of `machine`, with those of its subgraphs checked too."""
    if not isinstance(given, dict):
        problems.append(Problem(path, "The settings must be a JSON object."))
        return None
    try:
        checked = CATALOGUE[machine].settings.model_validate(given)
    except ValidationError as fault:
        problems += (
            Problem(".".join([path, *_place(error)]), _sentence(error, machine)) for error in fault.errors()
        )
        return None
    for name, child in checked.subgraphs.items():
        where = f"{path}.subgraphs.{name}"
        if child.machine not in CATALOGUE:
            known = ", ".join(CATALOGUE)
            problems.append(
                Problem(f"{where}.machine", f"There is no machine {child.machine!r}. Machines: {known}.")
            )
        else:
            _settings_of(child.machine, child.settings, f"{where}.settings", problems)
    return checked


def _place(error: Any) -> list[str]:
    return [str(part) for part in error["loc"]]


def _sentence(error: Any, machine: str) -> str:
    """What is wrong, as a sentence that says what to do."""
    match error["type"]:
        case "extra_forbidden":
            return f"{machine} has no setting of this name."
        case "value_error":
            return f"{error['ctx']['error']}."
        case "missing":
            return "This is missing."
        case kind if kind in _MUST_BE:
            return f"This must be {_MUST_BE[kind]}, not {str(error['input'])[:80]!r}."
    return f"{error['msg']}, not {str(error['input'])[:80]!r}."


_MUST_BE = {
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}
"""What a setting must be, by the name of pydantic's complaint."""


def _model_of(
    checked: Settings, script: Script | None, problems: list[Problem], path: str = "settings"
) -> tuple[str, Script | None]:
    """The model's name and the script that is played, where it is one."""
    if script is not None:
        return "", script
    if not checked.model:
        names = (
            ", ".join(ModelProfile.objects.filter(enabled=True).values_list("name", flat=True)) or "none yet"
        )
        problems.append(Problem(f"{path}.model", f"Name a model, or give a script. Models: {names}."))
        return "", None
    profile = ModelProfile.objects.filter(name=checked.model, enabled=True).first()
    if profile is None:
        names = (
            ", ".join(ModelProfile.objects.filter(enabled=True).values_list("name", flat=True)) or "none yet"
        )
        problems.append(Problem(f"{path}.model", f"There is no model {checked.model!r}. Models: {names}."))
        return checked.model, None
    if profile.kind == ModelProfile.Kind.SCRIPT:
        return profile.name, _script_of(profile.script_json, problems)
    return profile.name, None


def _check_parts(
    machine: Machine,
    checked: Settings,
    script: Script | None,
    owner: Person,
    path: str,
    problems: list[Problem],
) -> None:
    """What the settings name must exist, and be the launcher's to say; the same for each subgraph."""
    built_in = {spec.name for spec in machine.built_in}
    known = set(TOOLS) | built_in | set(script.tools or {} if script else {})
    for index, name in enumerate(checked.tools):
        if name not in known:
            tools = ", ".join(sorted(known))
            problems.append(Problem(f"{path}.tools.{index}", f"There is no tool {name!r}. Tools: {tools}."))
    if checked.answers and script is None and not decides(owner):
        why = "Answers given beforehand need the right to decide interrupts, which you lack."
        problems.append(Problem(f"{path}.answers", why))
    for name, child in checked.subgraphs.items():
        inner_machine = CATALOGUE[child.machine]
        inner = inner_machine.settings.model_validate(child.settings)
        where = f"{path}.subgraphs.{name}.settings"
        if script is None and inner.model:
            _model_of(inner, None, problems, where)
        _check_parts(inner_machine, inner, script.for_child(name) if script else None, owner, where, problems)


# --- deciding and steering --------------------------------------------------------------------------------------


def decide(
    interrupt_id: Any,
    *,
    verdict: str,
    by: Person,
    channel: str,
    args: dict[str, Any] | None = None,
    message: str = "",
    to_step: int | None = None,
    revision: int | None = None,
    fingerprint: str | None = None,
) -> Decision:
    """Answer an interrupt, once; the run is queued after the decision is committed."""
    interrupt = Interrupt.objects.select_related("run").get(pk=interrupt_id)
    if not may_decide(by, interrupt.run):
        raise NotAllowed("You may not decide this. A reviewer can.")
    said = store.Said(
        verdict=verdict,
        by_name=_name(by),
        by_id=by.pk if by is not None else None,
        channel=channel,
        args=args,
        message=message,
        to_step=to_step,
        revision=revision,
        fingerprint=fingerprint,
    )
    try:
        decision = store.decide(interrupt_id, said)
    except Conflict:
        _tell(interrupt.run_id)  # the deadline may have decided just now
        raise
    _tell(interrupt.run_id)
    return decision


def abort(run: Run, *, by: Person, message: str = "") -> Run:
    """End the run for good."""
    _check_steering(by, run)
    parent = run.parent_id
    after = store.abort(run.pk, _name(by), clean_text(message))
    _tell(run.pk)
    if parent is not None:
        _tell(parent)
    return after


def pause(run: Run, *, by: Person, message: str = "") -> Run:
    """Hold the run until it is resumed."""
    _check_steering(by, run)
    after = store.pause(run.pk, _name(by), clean_text(message))
    _tell(run.pk)
    return after


def resume(run: Run, *, by: Person) -> Run:
    """Let a paused run go on."""
    _check_steering(by, run)
    after = store.resume(run.pk, _name(by))
    _tell(run.pk)
    return after


def rewind(
    run: Run, *, to: int, by: Person, message: str = "", answers: Literal["ask again", "keep"] = "ask again"
) -> Run:
    """Go back to the state after the live transition row `to`; answers given after it are asked for again, or kept."""
    _check_steering(by, run)
    kept: tuple[KeptAnswer, ...] = ()
    if answers == "keep":
        if not may_decide(by, run):
            raise NotAllowed(
                "Keeping answers needs the right to decide, which you lack. They can be asked again."
            )
        kept = store.answers_after(run, to, (*store.PEOPLE, store.SETTINGS))
    after = store.rewind(run.pk, to, _name(by), clean_text(message), kept)
    _tell(run.pk)
    return after


def edit_summary(run: Run, *, seq: int, version: int, text: str, reason: str, by: Person) -> int:
    """Correct the summary of the compaction in row `seq`, which the person saw at `version`; the new version."""
    _check_mending(by, run)
    reason = _reason(reason, "Say why you change it; the reason stays with the version.")
    after = store.edit_summary(run.pk, seq, version, clean_text(text.strip()), _name(by), reason)
    _tell(run.pk)
    return after


def undo_summary(run: Run, *, seq: int, reason: str, by: Person, version: int | None = None) -> None:
    """Take back the summary of row `seq`: the model reads the rows themselves again, as far as they fit its window.

    `version` is the one that the person saw; None where they did not say.
    """
    _check_mending(by, run)
    store.undo_summary(run.pk, seq, version, _name(by), _reason(reason, "Say why you take it back."))
    _tell(run.pk)


def pin(run: Run, *, path: str, by: Person, reason: str = "") -> None:
    """Let no compaction touch a row's blocks (`st:<seq>`) or a summary (`su:<seq>`)."""
    _check_mending(by, run)
    store.pin(run.pk, path, _name(by), _reason(reason))
    _tell(run.pk)


def unpin(run: Run, *, path: str, by: Person, reason: str = "") -> None:
    """Take a pin away."""
    _check_mending(by, run)
    store.unpin(run.pk, path, _name(by), _reason(reason))
    _tell(run.pk)


def compact_now(run: Run, *, by: Person, reason: str = "") -> None:
    """Have the context compacted before the run's next model call."""
    _check_mending(by, run)
    store.want_compaction(run.pk, _name(by), _reason(reason))
    _tell(run.pk)


def _check_mending(person: Person, run: Run) -> None:
    if not may_mend(person, run):
        raise NotAllowed(f"You may not change what the model of run {run.pk} reads. A reviewer can.")


MAX_REASON = 1_000
"""Characters of a reason."""


def _reason(given: str, why: str = "") -> str:
    """The reason as it is kept; `why` is said where none is given and one is needed."""
    reason = clean_text(given.strip())
    if not reason and why:
        raise NotPossible(why)
    if len(given) > MAX_REASON:
        raise NotPossible(f"A reason has at most {MAX_REASON} characters; this one has {len(given)}.")
    return reason


def _check_steering(person: Person, run: Run) -> None:
    if not may_steer(person, run):
        raise NotAllowed(f"Run {run.pk} is not yours to steer.")


def _tell(run_id: int) -> None:
    """Viewers and workers look again, once the change is committed."""

    def tell() -> None:
        live.ring(run_id, 0)
        live.ring_inbox()
        tasks.hint(run_id)

    transaction.on_commit(tell)


# --- going another way ------------------------------------------------------------------------------------------

Answers = Literal["ask again", "keep"]
"""What is to become of the answers that people gave after the row."""


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
    driven_by: Literal["a worker", "the caller"] = "a worker",
) -> Run:
    """A new run that goes on from the live transition row `at` of `run` (0: from the beginning), which stays as it is.

    `settings` and `state` name what is to be another value (null takes a setting away), `decision` (verdict, args,
    message) answers the first question after the row. `BadLaunch` says what can't be accepted, and where.
    """
    return _forked(_Fork(run, at, by, "fork", settings, script, state, decision, answers, message, driven_by))


def rerun(
    run: Run,
    *,
    at: int,
    by: Person,
    answers: Answers = "ask again",
    message: str = "",
    driven_by: Literal["a worker", "the caller"] = "a worker",
) -> Run:
    """A fork that changes nothing: the model is asked anew from row `at` on."""
    return _forked(_Fork(run, at, by, "rerun", answers=answers, message=message, driven_by=driven_by))


def replay(run: Run, *, by: Person, to: int | None = None) -> tuple[Run, driver.Difference | None]:
    """A new run of the same rows, made again from the recorded answers; nothing is called, nothing is paid.

    The first difference comes with it, where there is one. `to` is the last row that is made again.
    """
    _check_copying(by, run)
    if to is not None and not 1 <= to <= run.head:
        raise NotPossible(f"Run {run.pk} has no row {to}; its rows are 1 to {run.head}.")
    try:
        return driver.replay_run(run, by.pk if by is not None else None, to)
    except (driver.NoMachine, BadScript, ValidationError) as fault:
        raise NotPossible(f"Run {run.pk} can't be replayed. {fault}") from None


def _check_copying(person: Person, run: Run) -> None:
    if person is not None and not Run.objects.for_user(person).filter(pk=run.pk).exists():
        raise NotAllowed(f"Run {run.pk} is not yours to see.")
    if not may_launch(person):
        raise NotAllowed("You may not launch runs. An administrator can add you to the group “operators”.")


@dataclass(frozen=True, slots=True)
class _Fork:
    """A fork as it was asked for."""

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
    driven_by: Literal["a worker", "the caller"] = "a worker"


def _forked(wanted: _Fork) -> Run:
    run, at, by = wanted.run, wanted.at, wanted.by
    _check_copying(by, run)
    if run.machine not in CATALOGUE:
        raise NotPossible(f"Run {run.pk} is of the machine {run.machine}, which is not here any more.")
    store.check_fork(run, at)
    if (wanted.decision or wanted.answers == "keep") and not may_decide(by, run):
        raise NotAllowed("Answers that are given in a fork need the right to decide, which you lack.")
    settings = _settings_of_fork(run, at, wanted.settings)
    script = wanted.script or _script_of_fork(run, wanted.settings)
    new = _new_run(machine=run.machine, goal=run.goal, settings=settings, owner=by, script=script)
    new = replace(new, goal=run.goal)  # to the letter: the rows that are copied were made by it
    unsaved = store.unsaved(new)
    terms = store.terms_of(unsaved, driver.tool_specs(unsaved))
    kept = _first_answer(run, at, wanted.decision) if wanted.decision else ()
    if wanted.answers == "keep":
        kept += store.answers_after(run, at, store.PEOPLE)
    change = store.Change(
        by=_name(by),
        message=clean_text(wanted.message),
        settings=_changed(run.settings, settings),
        state=_state_of_fork(run, at, terms, clean(wanted.state or {})),
        answers=kept,
    )
    made = store.fork_run(run, at, new, terms, change, wanted.origin)
    if wanted.driven_by == "a worker":
        transaction.on_commit(lambda: tasks.hint(made.pk))
    return made


def _settings_of_fork(run: Run, at: int, changes: dict[str, Any] | None) -> dict[str, Any]:
    """The settings of the run with the limits as they stood at row `at`, and `changes` over them."""
    if changes is not None and not isinstance(changes, dict):
        raise BadLaunch((Problem("settings", "The settings must be a JSON object."),))
    settings = run.settings
    if limits := store.limits_at(run, at):
        settings["limits"] = {**settings.get("limits", {}), **limits}
    for name, value in clean(changes or {}).items():
        settings[name] = value
        if value is None:
            del settings[name]
    return settings


def _script_of_fork(run: Run, changes: dict[str, Any] | None) -> str | None:
    """The script goes along, unless another model is named."""
    other = (changes or {}).get("model")
    return None if other and other != run.model else run.script_json or None


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: after.get(name) for name in names}


def _first_answer(run: Run, at: int, decision: dict[str, Any]) -> tuple[KeptAnswer, ...]:
    """What is to be answered to the first question that the run came to after row `at`."""
    question = store.first_question(run, at)
    if question is None:
        raise BadLaunch((Problem("decision", f"Run {run.pk} asked nobody anything after row {at}."),))
    if unknown := set(decision) - {"verdict", "args", "message"}:
        names = ", ".join(sorted(unknown))
        raise BadLaunch((Problem("decision", f"A decision has verdict, args and message, not {names}."),))
    verdict, message = str(decision.get("verdict") or ""), clean_text(str(decision.get("message") or ""))
    if verdict == "rollback":
        raise BadLaunch((Problem("decision.verdict", "Fork from an earlier row instead of rolling back."),))
    said = store.Said(
        verdict=verdict, by_name="", channel=store.KEPT, args=decision.get("args"), message=message
    )
    interrupt, asked = question
    try:
        args = store.check_answer(interrupt, said)
    except BadDecision as fault:
        raise BadLaunch((Problem(f"decision.{fault.field}", fault.sentence),)) from None
    return (
        KeptAnswer(
            about=asked.about, question=question_of(asked), verdict=verdict, args=args, message=message
        ),
    )


def _state_of_fork(run: Run, at: int, terms: Terms, changes: dict[str, Any]) -> dict[str, Any]:
    """The control values that are others at the beginning of the fork: those that follow from the new settings, and
    those that were asked for."""
    machine = CATALOGUE[run.machine]
    before = terms.model_copy(update={"settings": machine.settings.model_validate(run.settings)})
    now = store.state_at(run, machine, before, at).model_dump(mode="json")
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
    values = {**values, **changes}
    try:
        state = machine.state.model_validate({**now, **values, "terms": terms})
    except ValidationError as fault:
        raise BadLaunch(
            tuple(
                Problem(".".join(["state", *_place(error)]), _sentence(error, machine.name))
                for error in fault.errors()
            )
        ) from None
    _check_goes_on(machine, store.check_fork(run, at), state)
    told = state.model_dump(mode="json")
    return {name: told[name] for name in values if told[name] != now[name]}


def _no_such_value(machine: Machine, name: str) -> str:
    if name in machine.state.model_fields:
        return f"{name} is written by the run itself when it ends."
    return f"The state of {machine.name} has no value of this name: {', '.join(control_values(machine))}."


def _check_goes_on(machine: Machine, node: str, state: State) -> None:
    """Values may fit one by one and make no sense together: the machine is asked what it would do next."""
    try:
        machine.budget(state), machine.budget_text(state), machine.turns(state)
        decide_next(machine, Snapshot(node, state), None)
    except Exception as fault:
        what = f"The machine could not go on from these values ({type(fault).__name__}: {fault})."
        raise BadLaunch((Problem("state", what),)) from None


# --- the site ---------------------------------------------------------------------------------------------------

MAX_HALT_REASON = 500
"""Characters of the reason for a halt."""


def halt_site(*, by: Person, reason: str) -> Halt:
    """Stop everything: no run is claimed, no effect begins, nothing is lost."""
    _check_halting(by)
    halt = store.halt_site(_name(by), clean_text(reason.strip())[:MAX_HALT_REASON])
    log.warning("halted by %s: %r", halt.by_name, halt.reason)
    _tell_all(store.unfinished_ids(RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING, RunStatus.PAUSED))
    return halt


def unhalt_site(*, by: Person) -> int:
    """Let the site work again; how many runs want a worker now."""
    _check_halting(by)
    if store.unhalt_site(_name(by)) is None:
        raise NotPossible("The site is not halted.")
    log.warning("no longer halted, by %s", _name(by))
    wanting = store.unfinished_ids(RunStatus.QUEUED, RunStatus.RUNNING)
    _tell_all(store.unfinished_ids(RunStatus.WAITING, RunStatus.PAUSED))
    for run_id in wanting:
        _tell(run_id)
    return len(wanting)


def _check_halting(person: Person) -> None:
    if not may_halt(person):
        raise NotAllowed("You may not stop everything. An administrator can.")


def _tell_all(run_ids: list[int]) -> None:
    """Whoever looks at one of these sees that something about it has changed."""

    def tell() -> None:
        for run_id in run_ids:
            live.ring(run_id, 0)
        live.ring_inbox()

    transaction.on_commit(tell)


def register_model(
    *, name: str, base_url: str, model_id: str, api_key: str = "", **fields: Any
) -> ModelProfile:
    """Add or replace a model of the site; its key is stored sealed."""
    sealed = seal(api_key, site.SECRET_KEY) if api_key else ""
    values = {
        "kind": ModelProfile.Kind.OPENAI,
        "base_url": base_url,
        "model_id": model_id,
        "sealed_key": sealed,
    }
    profile, _ = ModelProfile.objects.update_or_create(
        name=name, defaults={**values, **fields, "enabled": True}
    )
    return profile


def check_rule(text: str) -> InterruptRule:
    """A site rule from its JSON; raises `ValueError` with a sentence."""
    try:
        return InterruptRule.model_validate_json(text)
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the rule"
        raise ValueError(f"{where}: {first['msg']}.") from None
