"""Start a run: all faults of a launch are reported at once, and nothing is written before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from django.conf import settings as site
from django.db import transaction
from pydantic import BaseModel, ValidationError

from runs import driver, hints
from runs.actions.common import NotAllowed
from runs.adapters.scripted import BadScript, Script, parse_script
from runs.adapters.tool import Tool
from runs.engine.known_names import known_beside
from runs.engine.machine import Machine
from runs.engine.settings import MOST_ENTRIES, Settings
from runs.engine.values import MAX_DEPTH, MAX_NODES, clean, clean_text, is_too_large
from runs.machines import CATALOGUE
from runs.models import ModelProfile, Run, SiteHost
from runs.rights import Person, decides, may_launch
from runs.store import creating, site_rules

MAX_GOAL = 20_000
"""Characters of a goal."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault in one part of a launch: its place, and a sentence."""

    path: str
    message: str


class BadLaunch(Exception):
    """An unacceptable launch; nothing was written."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__(" ".join(f"{problem.path}: {problem.message}" for problem in problems))


@dataclass(frozen=True, slots=True)
class _Checked:
    given: dict[str, Any]
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
    """Launch a run: write its row and budget in one transaction, hint a worker on commit."""
    new = new_run(machine=machine, goal=goal, settings=settings, owner=owner, script=script)
    run = creating.create_run(new)
    if driven_by == "a worker":
        transaction.on_commit(lambda: hints.hint(run.pk))
    return run


def new_run(
    *,
    machine: str,
    goal: str,
    settings: dict[str, Any],
    owner: Person,
    script: dict[str, Any] | str | None,
) -> creating.NewRun:
    """Return a run's checked launch values, with the site's current rules."""
    checked = check_launch(machine=machine, goal=goal, settings=settings, owner=owner, script=script)
    return creating.NewRun(
        machine=machine,
        goal=clean_text(goal.strip()),
        settings=checked.given,
        checked=checked.settings,
        script=checked.script.as_json() if checked.script is not None else None,
        model=checked.model,
        owner_id=owner.pk if owner is not None else None,
        by_operator=owner is None,
        site_rules=site_rules.site_rules().told,
        site_hosts=tuple(SiteHost.objects.values_list("host", flat=True)),
    )


def check_launch(
    *,
    machine: str,
    goal: str,
    settings: dict[str, Any],
    owner: Person,
    script: dict[str, Any] | str | None = None,
) -> _Checked:
    """Return the checked launch; raises `BadLaunch` with all its faults."""
    problems: list[Problem] = []
    if not may_launch(owner):
        raise NotAllowed("You may not launch runs. An administrator can add you to the group “operators”.")
    if machine not in CATALOGUE:
        problems.append(
            Problem("machine", f"There is no machine {machine!r}. Machines: {', '.join(CATALOGUE)}.")
        )
    if not goal.strip():
        problems.append(Problem("goal", "Enter a goal."))
    elif len(goal) > MAX_GOAL:
        problems.append(
            Problem("goal", f"A goal has at most {MAX_GOAL} characters; this one has {len(goal)}.")
        )
    if too_large := list(_too_large(settings, "settings")):
        raise BadLaunch((*problems, *too_large))  # not read any further
    settings = _with_site_defaults(machine, settings)
    played = _script_of(script, problems)
    # As they will be stored: values changed by cleaning must be right too.
    checked = _settings_of(machine, clean(settings), "settings", problems) if machine in CATALOGUE else None
    if checked is None:
        raise BadLaunch(tuple(problems))
    if any(problem.path == "script" for problem in problems):
        raise BadLaunch(tuple(problems))  # a valid script needs no named model
    model, played = _model_of(checked, played, problems)
    if not problems:
        tools = driver.tools_here()
        _check_parts(CATALOGUE[machine], checked, played, tools, "settings", problems)
        if played is None:
            _check_prices(checked, model, "settings", problems)
        if not decides(owner):
            scripted = frozenset(played.tools or ()) if played else frozenset()
            _check_answers(checked, played, scripted, tools, "settings", problems)
    if problems:
        raise BadLaunch(tuple(problems))
    return _Checked(settings, checked, played, model)


def _too_large(settings: Any, path: str) -> Iterator[Problem]:
    """Yield a problem for each part with more entries than any person writes, which would take long to check."""
    if is_too_large(settings):
        yield Problem(path, f"Too large: {MAX_NODES:,} values on {MAX_DEPTH} levels at most.")
        return
    if not isinstance(settings, dict):
        return
    for name, value in [("", settings), *settings.items()]:
        if isinstance(value, list | dict) and len(value) > MOST_ENTRIES:
            said = f"This may have at most {MOST_ENTRIES:,} entries; it has {len(value):,}."
            yield Problem(f"{path}.{name}".rstrip("."), said)
    children = settings.get("subgraphs")
    for name, child in children.items() if isinstance(children, dict) else ():
        if isinstance(child, dict):
            yield from _too_large(child.get("settings"), f"{path}.subgraphs.{name}.settings")


def _with_site_defaults(machine: Any, given: Any) -> Any:
    """Return the settings with this site's defaults for missing ones; those of subgraphs too."""
    if not isinstance(given, dict) or machine not in list(CATALOGUE):
        return given
    usual = CATALOGUE[machine].settings.model_fields
    own = site.MACHINE_DEFAULTS.get(machine, {})
    found: dict[str, Any] = {
        name: value for name, value in own.items() if value != usual[name].default
    } | given
    if isinstance(children := given.get("subgraphs"), dict):
        found["subgraphs"] = {name: _child_with_defaults(child) for name, child in children.items()}
    return found


def _child_with_defaults(child: Any) -> Any:
    if not isinstance(child, dict):
        return child
    settings = _with_site_defaults(child.get("machine"), child.get("settings", {}))
    return child | {"settings": settings} if settings else child


def _script_of(script: dict[str, Any] | str | None, problems: list[Problem]) -> Script | None:
    if script is None or (isinstance(script, str) and not script.strip()):
        return None
    try:
        return parse_script(script)
    except BadScript as fault:
        problems.append(Problem("script", str(fault)))
        return None


def _settings_of(machine: str, given: Any, path: str, problems: list[Problem]) -> Settings | None:
    """Return the settings of `machine`, with those of its subgraphs checked too."""
    if not isinstance(given, dict):
        problems.append(Problem(path, "The settings must be a JSON object."))
        return None
    own = CATALOGUE[machine].settings
    try:
        checked = own.model_validate(given)
    except ValidationError as fault:
        problems += (
            Problem(
                ".".join([path, *place_of(error)]),
                sentence_of(error, f"{machine} has no setting of this name.", own),
            )
            for error in fault.errors()
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


def place_of(error: Any) -> list[str]:
    """Return the place of a fault found by pydantic."""
    return [str(part) for part in error["loc"]]


def sentence_of(error: Any, unknown: str, model: type[BaseModel]) -> str:
    """Return the fault as a sentence with a remedy; `unknown` is said of a name that the model does not know."""
    match error["type"]:
        case "extra_forbidden":
            return f"{unknown} Known: {', '.join(known_beside(model, error['loc']))}."
        case "value_error":
            return f"{error['ctx']['error']}."
        case "missing":
            return "This is missing."
        case "string_too_long":
            most, length = error["ctx"]["max_length"], len(error["input"])
            return f"This may have at most {most:,} characters; it has {length:,}."
        case kind if kind in _MUST_BE:
            return f"This must be {_MUST_BE[kind]}, not {str(error['input'])[:80]!r}."
        case kind if kind in _BOUNDS:
            words, bound = _BOUNDS[kind]
            return f"This must be {words} {error['ctx'][bound]:,.15g}, not {str(error['input'])[:80]}."
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
"""The required kind of a setting, by the name of pydantic's complaint."""

_BOUNDS = {
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
}
"""The words for a number's bound, and its key in pydantic's complaint."""


def _model_of(
    checked: Settings, script: Script | None, problems: list[Problem], path: str = "settings"
) -> tuple[str, Script | None]:
    """Return the model's name and the script, if it is one."""
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
    problems += (Problem(f"{path}.model", why) for why in driver.why_not([profile.name]).values())
    return profile.name, None


def first_without_price(checked: Settings, model: str) -> str:
    """Return the first of the models of a run and its children that has no price; empty if each has one."""
    models = dict.fromkeys((model, *_models_below(checked)))
    return next(filter(None, map(driver.without_price, models)), "")


def _check_prices(checked: Settings, model: str, path: str, problems: list[Problem]) -> None:
    """Require a price for each model if a limit on cost holds: it covers a run and its children."""
    if checked.limits.cost_usd is not None:
        if unpriced := first_without_price(checked, model):
            problems.append(Problem(f"{path}.limits.cost_usd", driver.no_price(unpriced)))
        return
    for name, child in checked.subgraphs.items():
        inner = CATALOGUE[child.machine].settings.model_validate(child.settings)
        where = f"{path}.subgraphs.{name}.settings"
        _check_prices(inner, inner.model or model, where, problems)


def _models_below(checked: Settings) -> Iterator[str]:
    """Yield the models that children name, at any depth."""
    for child in checked.subgraphs.values():
        inner = CATALOGUE[child.machine].settings.model_validate(child.settings)
        if inner.model:
            yield inner.model
        yield from _models_below(inner)


def _check_parts(
    machine: Machine,
    checked: Settings,
    script: Script | None,
    tools: Mapping[str, Tool],
    path: str,
    problems: list[Problem],
) -> None:
    """Check that everything named by the settings exists; the same for each subgraph."""
    built_in = {spec.name for spec in machine.built_in}
    played = set(script.tools or {} if script else {})
    known = set(tools) | built_in | played
    for index, name in enumerate(checked.tools):
        if name not in known:
            names = ", ".join(sorted(known))
            problems.append(Problem(f"{path}.tools.{index}", f"There is no tool {name!r}. Tools: {names}."))
        elif name in tools and name not in played and (why := tools[name].missing()):
            problems.append(Problem(f"{path}.tools.{index}", f"The tool {name} can't be used. {why}"))
    for name, child in checked.subgraphs.items():
        inner_machine = CATALOGUE[child.machine]
        inner = inner_machine.settings.model_validate(child.settings)
        where = f"{path}.subgraphs.{name}.settings"
        if script is None and inner.model:
            _model_of(inner, None, problems, where)
        inner_script = script.for_child(name) if script else None
        _check_parts(inner_machine, inner, inner_script, tools, where, problems)


def _check_answers(
    checked: Settings,
    script: Script | None,
    played: frozenset[str],
    tools: Mapping[str, Tool],
    path: str,
    problems: list[Problem],
) -> None:
    """Check the answers of a launcher without the right to decide: only in a script, for the tools played by it.

    `played` are those, and for a child only those played by each of its scripts.
    """
    if checked.answers and script is None:
        why = "Answers given in advance need the right to decide, which you lack."
        problems.append(Problem(f"{path}.answers", why))
    elif checked.answers and (real := _real_ones(checked.tools, played, tools)):
        problems.append(Problem(f"{path}.answers", _could_let_run(real)))
    for name, child in checked.subgraphs.items():
        inner = CATALOGUE[child.machine].settings.model_validate(child.settings)
        parts = [part.tools for part in script.parts_of(name)] if script else []
        in_each = [played if one is None else frozenset(one) for one in parts or [None]]
        where = f"{path}.subgraphs.{name}.settings"
        _check_answers(inner, script, frozenset.intersection(*in_each), tools, where, problems)


def _real_ones(names: Iterable[str], played: frozenset[str], tools: Mapping[str, Tool]) -> list[str]:
    """Return the tools whose calls have effects that no script plays."""
    real = [name for name in names if name in tools and name not in played]
    return [name for name in real if tools[name].effects != "none"]


def _could_let_run(real: list[str]) -> str:
    tools = f"{' and '.join(real)} run, which {'is a real tool' if len(real) == 1 else 'are real tools'}"
    return (
        f"These answers could let {tools}. You have no right to decide. "
        "Take out the answers or the tool, or let the script play it."
    )
