"""The tools of one run behind the engine's port: registered ones, the script's own, and child runs."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from runs.adapters.folder import RunFolder
from runs.adapters.scripted import Script, ScriptedTools
from runs.adapters.tool import Calls, Heard, NotHappened, Place, Result, Tool, ToolError, anywhere
from runs.adapters.tools import TOOLS
from runs.engine.effects import Failed, MadeFile, ToolCall, ToolReturned
from runs.engine.scripts import PYTHON
from runs.engine.tools import ToolSpec
from runs.engine.values import Json, canonical, clean, clean_text

MAX_RESULT = 65_536
"""Characters of a result in its canonical spelling."""

_INSTALLATION = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
    errno.EIO,
)

log = logging.getLogger(__name__)


class MayHaveHappened(Exception):
    """A call that can't be repeated was cut off: only the far side, or a person, can find its outcome."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        super().__init__(f"{tool} was cut off; it may have happened.")


class Toolbox:
    """The tools of one run. A scripted tool hides a registered one of its name, a child run both; the machine's
    built-in tools hide all."""

    def __init__(
        self,
        permitted: Iterable[str],
        folder: Path,
        script: Script | None,
        subgraphs: Iterable[str],
        tools: Mapping[str, Tool] = TOOLS,
        built_in: Iterable[ToolSpec] = (),
        fixed: Iterable[str] = (),
    ) -> None:
        self._folder = folder
        self.may_contact: Callable[[str], bool] = anywhere
        """True if a call may go on to another host than the approved one."""
        self._tools = tools
        self._scripted = ScriptedTools(script) if script else None
        self._built_in = {spec.name: spec for spec in built_in}
        self._specs = _specs(set(permitted), tools, self._scripted, subgraphs) | self._built_in
        for name in fixed:  # a node of the graph, not called by the model
            spec = _child_spec(name).model_copy(update={"permitted": False})
            self._specs[spec.name] = spec

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """Return every tool by name; `permitted` tells whether this run may call it."""
        return MappingProxyType(self._specs)

    def call(
        self, call: ToolCall, nth: int, key: str, heard: tuple[Heard, ...] = ()
    ) -> ToolReturned | Failed:
        """Run the tool; every error is a `Failed`, except `MayHaveHappened`. `heard`: a script's calls so far.

        Raises `Calls` where a script wants another call.
        """
        spec = self._specs.get(call.tool)
        if spec is None or not spec.permitted or spec.child:
            return _not_callable(call.tool, spec)
        try:
            answer = self._answer(call, nth, key, heard)
        except (MayHaveHappened, Calls):
            raise
        except Exception as error:
            return _failed(call.tool, error)
        return answer

    def happened(self, call: ToolCall, key: str) -> ToolReturned | Failed | NotHappened | None:
        """Return a lost or cut-off call's outcome by the far side; None if it can't tell."""
        inquiry = self._inquiry(call.tool)
        if inquiry is None:
            return None
        tool = self._tools[call.tool]
        try:
            arguments = tool.arguments.model_validate(call.args)
            said = inquiry(arguments, Place(self._folder, key, tool.deadline_s))
            return self._returned(said) if isinstance(said, Result) else said
        except Exception as error:
            log.warning("tool %s can't say whether a call happened (%s)", call.tool, type(error).__name__)
            return None

    def can_ask(self, call: ToolCall) -> bool:
        """Return True if the far side can be asked about the outcome of a call."""
        return self._inquiry(call.tool) is not None

    def _inquiry(self, name: str) -> Callable[[Any, Place], Result | NotHappened | None] | None:
        """Return the tool's own function for that."""
        tool = self._tools.get(name)
        return None if tool is None or self._is_played(name) else tool.happened

    def _is_played(self, name: str) -> bool:
        """Return True if no registered tool is behind the name."""
        return name in self._built_in or (self._scripted is not None and name in self._scripted.specs())

    def _answer(self, call: ToolCall, nth: int, key: str, heard: tuple[Heard, ...]) -> ToolReturned | Failed:
        if call.tool in self._built_in:
            return _bounded(ToolReturned(value=call.args))
        if self._scripted and call.tool in self._scripted.specs():
            played = self._scripted.call(call, nth)
            if isinstance(played, ToolReturned):
                played = played.model_copy(update={"files": self._written(played.files)})
            return _bounded(played)
        tool = self._tools[call.tool]
        arguments = tool.arguments.model_validate(call.args)
        try:
            place = Place(self._folder, key, tool.deadline_s, self.may_contact)
            if call.tool == PYTHON:
                place = replace(place, tools=self._of_scripts(), heard=heard)
            result = tool.run(arguments, place)
        except (TimeoutError, ConnectionError) as error:
            if call.repeatable or tool.idempotent or isinstance(error, ConnectionRefusedError):
                raise
            raise MayHaveHappened(call.tool) from error
        return self._returned(result)

    def _of_scripts(self) -> dict[str, ToolSpec]:
        """Return the tools that a script may call: those that the run may, without the machine's own."""
        withheld = {PYTHON, *self._built_in}
        return {name: spec for name, spec in self._specs.items() if spec.permitted and name not in withheld}

    def _returned(self, result: Result) -> ToolReturned | Failed:
        return _bounded(
            ToolReturned(
                value=result.value,
                exit_code=result.exit_code,
                stderr=result.stderr,
                files=tuple(map(self._kept, result.files)),
            )
        )

    def _written(self, files: tuple[MadeFile, ...]) -> tuple[MadeFile, ...]:
        """Return the files named in a script, once all of them exist."""
        contents = [(file.name, file.text.encode("utf-8", "replace")) for file in files]
        made = RunFolder(self._folder).write_all(contents)
        return tuple(
            one.model_copy(update={"text": file.text}) for one, file in zip(made, files, strict=True)
        )

    def _kept(self, file: MadeFile) -> MadeFile:
        """Return a tool's file with its type; its bytes are kept if the tool has not done so."""
        if file.sha256:
            return file
        return RunFolder(self._folder).keep(file.name).model_copy(update={"text": file.text})


def _specs(
    permitted: set[str], tools: Mapping[str, Tool], scripted: ScriptedTools | None, subgraphs: Iterable[str]
) -> dict[str, ToolSpec]:
    specs = {
        name: tool.spec().model_copy(update={"permitted": name in permitted}) for name, tool in tools.items()
    }
    specs |= scripted.specs() if scripted else {}
    return specs | {f"agent.{name}": _child_spec(name) for name in subgraphs}


def _child_spec(name: str) -> ToolSpec:
    goal = {"type": "string", "minLength": 1, "description": "What the child run is to do, in full."}
    return ToolSpec(
        name=f"agent.{name}",
        description=f"Gives a goal to the child run {name} and returns its answer.",
        parameters={"type": "object", "properties": {"goal": goal}, "required": ["goal"]},
        effects="none",
        child=name,
        reads="untrusted",
    )


def _not_callable(name: str, spec: ToolSpec | None) -> Failed:
    if spec is None:
        why = f"There is no tool {name}."
    elif spec.child:
        why = f"{name} is a child run; it is started, not called."
    else:
        why = f"The tool {name} is not permitted in this run."
    return Failed(blame="recoverable", message=why, ran=False)


def _failed(tool: str, error: Exception) -> Failed:
    """Return the sentence and the blame of a tool's error."""
    match error:
        case ToolError():
            return Failed(blame=error.blame, message=clean_text(str(error)), ran=error.ran)
        case ValidationError():
            return Failed(blame="recoverable", message=clean_text(_faults(tool, error)), ran=False)
        case TimeoutError() | ConnectionError():
            return Failed(blame="transient", message=clean_text(f"{tool}: {error}"))
        case OSError() if error.errno in _INSTALLATION:
            why = f"{tool} can't work on this machine: {error.strerror}. An administrator has to look at it."
            return Failed(blame="fatal", message=why)
        case ImportError():
            why = f"{tool} can't work: the installation lacks {error.name}. Install the requirements."
            return Failed(blame="fatal", message=why)
    log.error("tool %s raised %s", tool, type(error).__name__, exc_info=error)
    return Failed(
        blame="recoverable", message=f"{tool} failed with {type(error).__name__}; the log has more."
    )


def _faults(tool: str, error: ValidationError) -> str:
    faults = (
        f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}" for fault in error.errors()[:5]
    )
    return f"{tool} does not take these arguments: {'; '.join(faults)}."


def _bounded(answer: ToolReturned | Failed) -> ToolReturned | Failed:
    if isinstance(answer, Failed):
        return answer
    files = tuple(file.model_copy(update={"text": clean_text(file.text)}) for file in answer.files)
    value, stderr = cut(clean(answer.value)), _cut_text(clean_text(answer.stderr), MAX_RESULT // 2)
    return answer.model_copy(update={"value": value, "stderr": stderr, "files": files})


def cut(value: Json) -> Json:
    """Return `value`; beyond MAX_RESULT with its long texts cut, each saying by how much."""
    if len(canonical(value)) <= MAX_RESULT:
        return value
    longest = MAX_RESULT // 2
    while longest >= 256:
        shorter = _cut_texts(value, longest)
        if len(canonical(shorter)) <= MAX_RESULT:
            return shorter
        longest //= 2
    # Too many parts rather than too long ones: of a list the first stay, of anything else the start of its spelling.
    if isinstance(value, list) and (kept := _first_entries(_cut_texts(value, 256))):
        return kept
    return _cut_text(canonical(value), MAX_RESULT // 2)


def _first_entries(entries: list[Any]) -> list[Any]:
    """Return as many entries as fit, and a last one with the number left out; a list of sources stays one."""
    room = MAX_RESULT - 200
    count = 0
    for entry in entries:
        room -= len(canonical(entry)) + 1
        if room < 0:
            break
        count += 1
    said = f"… [{len(entries) - count} entries more, left out for length]"
    sources = all(isinstance(entry, dict) and "url" in entry for entry in entries)
    return [*entries[:count], {"url": "", "title": said} if sources else said] if count else []


def _cut_texts(value: Any, longest: int) -> Any:
    match value:
        case str():
            return _cut_text(value, longest)
        case list():
            return [_cut_texts(item, longest) for item in value]
        case dict():
            return {_cut_text(name, longest): _cut_texts(item, longest) for name, item in value.items()}
    return value


def _cut_text(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… [{len(text) - longest} characters cut]"
