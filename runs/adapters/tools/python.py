"""Run a script of the model in a sandbox without I/O; its calls of tools go out as calls of the run.

A script that calls a tool ends here with `Calls`. Once the call has an answer the script runs again from its beginning,
and hears the same answers as before: it has no clock, no files and fixed random numbers, so it comes to the same place.
Nothing of the interpreter is kept, and no call is made here. See docs/decisions/side-effects.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.conf import settings
from pydantic import Field

from runs.adapters.script_limits import ScriptLimits
from runs.adapters.tool import Arguments, Calls, Heard, Place, Result, Tool, ToolError
from runs.engine.scripts import PYTHON
from runs.engine.tools import ToolSpec
from runs.engine.values import clean, fingerprint

if TYPE_CHECKING:
    from pydantic_monty import FunctionSnapshot, MontySession, SyncSnapshot

MOST_PRINTED = 50_000
"""Characters kept of what a script prints."""

DEADLINE_S = 60.0
"""Seconds after which the sandbox's process is killed, in case its own limits fail."""

MEGABYTE = 1_000_000

PLACE = 'File "<python-input-0>", '
"""What the sandbox writes before each line number."""


class PythonArguments(Arguments):
    """The script."""

    code: str = Field(
        min_length=1,
        max_length=20_000,
        description="A Python script. What it prints, and the value of its last line, come back.",
    )


class WentElsewhere(ToolError):
    """A script that did not come to the same calls again."""

    def __init__(self, heard: Heard, calls: Calls | None) -> None:
        self.heard, self.calls = heard, calls
        now = f"it calls {calls.tool}" if calls else "it ends"
        super().__init__(
            f"The script can't go on: when run again to here, {now} where it had called {heard.tool} with other "
            "arguments or at another place. What it has done so far stays done."
        )


class SandboxEnded(ToolError):
    """The sandbox's process was lost."""

    def __init__(self) -> None:
        super().__init__("The sandbox ended before the script did. Use less memory, or split the script.")


class Printed:
    """What a script prints; only its beginning is kept."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._left = MOST_PRINTED
        self._cut = 0

    def __call__(self, stream: str, text: str) -> None:
        kept = text[: self._left]
        self._parts.append(kept)
        self._left -= len(kept)
        self._cut += len(text) - len(kept)

    @property
    def text(self) -> str:
        """Return the kept text, and how much is missing."""
        return "".join(self._parts) + (f"… [{self._cut} characters more]" if self._cut else "")


def is_missing() -> str:
    """Return what to do where the sandbox is not installed; empty where it is."""
    if find_spec("pydantic_monty") is not None:
        return ""
    return "It needs packages that are not installed. Run: python3 manage.py add_provider python"


def run(arguments: PythonArguments, place: Place) -> Result:
    """Run the script to its end; raises `Calls` at its next call of a tool."""
    from pydantic_monty import Monty, MontyCrashedError, MontyError

    limits: ScriptLimits = settings.PYTHON_LIMITS
    printed = Printed()
    try:
        with (
            Monty(max_processes=1, request_timeout=DEADLINE_S) as pool,
            pool.checkout(
                limits={
                    "max_feed_duration_secs": limits.seconds,
                    "max_memory": limits.megabytes * MEGABYTE,
                    "max_recursion_depth": limits.depth,
                    "max_suspensions": 100_000,
                },
                os_policy={
                    "datetime": "call_host",
                    "sleep": "zero",
                    "random_start": {"seed": arguments.code},
                },
            ) as session,
        ):
            return _Script(place, limits, printed).run(session, arguments.code)
    except MontyCrashedError:
        raise SandboxEnded from None
    except MontyError as error:
        return _failed(printed, _told(error, limits))


class _Script:
    """A script on its way: which tools it may call, and what it has heard."""

    def __init__(self, place: Place, limits: ScriptLimits, printed: Printed) -> None:
        self._tools = {_name_of(name): spec for name, spec in place.tools.items()}
        self._heard = place.heard
        self._limits = limits
        self._printed = printed

    def run(self, session: MontySession, code: str) -> Result:
        """Return how the script ends; raises `Calls` at its first call without an answer, and `WentElsewhere`."""
        known = {name: _standing_for(name) for name in self._tools}
        at = session.feed_start(code, external_lookup=known, print_callback=self._printed)
        for heard in self._heard:
            at, calls = self._to_call(at)
            if calls is None or not _is_same(calls, heard):
                raise WentElsewhere(heard, calls)
            at = _answer(at, heard)
        at, calls = self._to_call(at)
        if calls is None:
            return Result(_output(self._printed, at.output))
        if len(self._heard) >= self._limits.calls:
            why = (
                f"The script wants to call {calls.tool}, and has made {self._limits.calls} calls: its limit."
            )
            return _failed(self._printed, why)
        raise calls

    def _to_call(self, at: SyncSnapshot) -> tuple[Any, Calls | None]:
        """Return where the script calls a tool, with the call; at its end without one."""
        from pydantic_monty import FunctionSnapshot, NameLookupSnapshot

        while True:
            match at:
                case NameLookupSnapshot():
                    at = at.resume_auto()
                case FunctionSnapshot() if at.is_os_function:
                    at = at.resume_not_handled()
                case FunctionSnapshot():
                    spec = self._tools.get(at.function_name)
                    if spec is None:
                        at = at.resume({"exc_type": "NameError", "message": self._unknown(at.function_name)})
                    elif (args := _arguments(spec, at)) is None:
                        why = f"{at.function_name}: name each argument, as in {_example(spec)}"
                        at = at.resume({"exc_type": "TypeError", "message": why})
                    else:
                        return at, Calls(spec.name, args)
                case _:
                    return at, None

    def _unknown(self, name: str) -> str:
        tools = ", ".join(sorted(self._tools)) or "none"
        return f"name {name!r} is not defined; tools that a script may call: {tools}"


def _name_of(tool: str) -> str:
    """Return the name under which a script calls the tool: other signs than letters, digits and _ become _."""
    return re.sub(r"\W", "_", tool)


def _standing_for(name: str) -> Callable[..., None]:
    """Return what the sandbox binds to the name of a tool; it is never called."""

    def tool() -> None: ...

    tool.__name__ = name
    return tool


def _arguments(spec: ToolSpec, at: FunctionSnapshot) -> dict[str, Any] | None:
    """Return the call's arguments by name: those without one in the tool's own order; None if they don't fit."""
    names = list(spec.parameters.get("properties") or {})
    if len(at.args) > len(names):
        return None
    placed = dict(zip(names, at.args, strict=False))
    if set(placed) & set(at.kwargs):
        return None
    args: dict[str, Any] = clean(placed | at.kwargs)
    return args


def _example(spec: ToolSpec) -> str:
    names = ", ".join(f"{name}=…" for name in spec.parameters.get("properties") or {})
    return f"{_name_of(spec.name)}({names})"


def _is_same(calls: Calls, heard: Heard) -> bool:
    return fingerprint(calls.tool, calls.arguments) == fingerprint(heard.tool, heard.args)


def _answer(at: FunctionSnapshot, heard: Heard) -> SyncSnapshot:
    if heard.error is not None:
        return at.resume({"exc_type": "RuntimeError", "message": heard.error})
    return at.resume({"return_value": heard.value})


def _told(error: Any, limits: ScriptLimits) -> str:
    """Return an error with the lines of the script; a limit in words."""
    text = str(error.display()).strip().replace(PLACE, "")
    if "time limit exceeded" in text:
        return f"TimeoutError: the script computed for {limits.seconds:g} s, its limit."
    if "memory limit exceeded" in text:
        lines = text.splitlines()[:-1]
        return "\n".join(
            [*lines, f"MemoryError: the script needs more than {limits.megabytes} MB, its limit."]
        )
    if "maximum recursion depth exceeded" in text:
        return f"{text} (limit: {limits.depth} calls)"
    return text


def _failed(printed: Printed, why: str) -> Result:
    return Result({"printed": printed.text} if printed.text else None, exit_code=1, stderr=why)


def _output(printed: Printed, value: Any) -> Mapping[str, Any]:
    told = {"printed": printed.text} if printed.text else {}
    return {**told, "value": clean(value)} if value is not None or not told else told


TOOL = Tool(
    name=PYTHON,
    description=(
        "Runs a Python script, for data and for several calls in one turn. It has no network, files or clock, and a "
        "part of the standard library: json, re, math, datetime, collections. Other tools are functions in it, such as "
        "read_file(name='a.txt'). They return what the tool returns, or raise RuntimeError, and need approval as "
        "always. Call them directly or in loops, not through map or sorted."
    ),
    arguments=PythonArguments,
    effects="none",
    idempotent=True,
    deadline_s=DEADLINE_S,
    run=run,
    missing=is_missing,
)
