"""Try a tool out: a run whose script makes one call of it, so rules, approvals, limits and the log hold as always."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from runs import driver
from runs.actions.common import NotAllowed
from runs.actions.launching import BadLaunch, Problem, start_run
from runs.adapters.tool import Tool, ToolError
from runs.engine.tools import check_arguments
from runs.models import Run
from runs.rights import Person, may_launch
from runs.store.errors import NotPossible

MACHINE = "ruled"
"""The machine of a trial: its script calls the tool, then answers, also after a failed call."""


class NoSuchTool(NotPossible):
    """The site has no tool of this name, or no longer."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no tool {name} here.")


class BadArguments(BadLaunch):
    """Arguments that the tool does not take; a problem's path is the argument, empty for the call as a whole."""


def check_trying(person: Person) -> None:
    """Raise `NotAllowed` if the person may not try tools: a trial is a run."""
    if not may_launch(person):
        raise NotAllowed("You may not try tools. An administrator can add you to the group “operators”.")


def try_tool(name: str, args: dict[str, Any], *, by: Person) -> Run:
    """Launch a run that calls the tool once. Raises `BadArguments`, `NoSuchTool`, `NotAllowed`."""
    checked = check_trial(name, args, by=by)
    return start_run(
        machine=MACHINE,
        goal=f"Try out {name}.",
        # Without the cache: the same prompt would repeat the call of an earlier trial.
        settings={"tools": [name], "cache": False},
        owner=by,
        script=_script_of(name, checked),
    )


def check_trial(name: str, args: dict[str, Any], *, by: Person) -> dict[str, Any]:
    """Return the arguments as the call would have them. Raises the same."""
    check_trying(by)
    tool = driver.tools_here().get(name)
    if tool is None:
        raise NoSuchTool(name)
    checked = check_arguments(tool.spec(), args)
    flaws = (*checked.faults, *(drop.as_fault for drop in checked.drops))
    problems = tuple(Problem(flaw.param, flaw.message) for flaw in flaws) or _found_by(tool, checked.args)
    if problems:
        raise BadArguments(problems)
    return checked.args


def _found_by(tool: Tool, args: dict[str, Any]) -> tuple[Problem, ...]:
    """Return what only the tool itself finds wrong with arguments that fit its schema as the engine reads it."""
    try:
        tool.arguments.model_validate(args)
    except ValidationError as fault:
        return tuple(_problem(error) for error in fault.errors())
    except ToolError as fault:
        return (Problem("", str(fault)),)
    except ImportError:  # the call says what the installation lacks
        return ()
    return ()


def _problem(error: Any) -> Problem:
    name, *inside = map(str, error["loc"] or ("",))
    where = f"{'.'.join(inside)}: " if inside else ""
    return Problem(name, f"{where}{error['msg'].removeprefix('Value error, ')}.")


def _script_of(name: str, args: dict[str, Any]) -> dict[str, Any]:
    call = {"thought": f"I call {name}.", "action": {"tool": name, "args": args}}
    end = {"thought": f"FINAL ANSWER: {name} was tried. The timeline has the result."}
    return {"replies": {"decision": [call, end]}}
