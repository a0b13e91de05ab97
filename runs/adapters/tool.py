"""A tool: a name, typed arguments, its side effects, and one function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from runs.engine.effects import Blame, EffectClass, MadeFile
from runs.engine.tools import MUST, Reads, ToolSpec
from runs.engine.values import Json


class Arguments(BaseModel):
    """The typed arguments of a tool; their JSON schema is what the model is shown."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def must(sentence: str) -> dict[str, Json]:
    """Return what a field adds to its schema, to say what its pattern demands: "must be …"."""
    return {MUST: sentence}


class Schema(ABC):
    """A JSON schema that comes from elsewhere, in place of a class of `Arguments`."""

    @abstractmethod
    def model_json_schema(self) -> dict[str, Any]:
        """Return the schema that machine and model see."""

    @abstractmethod
    def model_validate(self, given: Any, /) -> Any:
        """Return the arguments as the tool's function takes them; raises a `ToolError`."""


def anywhere(host: str) -> bool:
    """Allow every host: the call of a run that has read nothing."""
    return True


class Calls(Exception):
    """A script calls another tool, in place of a result: the run makes the call, and then resumes the script."""

    def __init__(self, tool: str, arguments: dict[str, Json]) -> None:
        self.tool = tool
        self.arguments = arguments
        super().__init__(f"The script calls {tool}.")


@dataclass(frozen=True)
class Heard:
    """An earlier call of a script, as the script made it, and its result or error."""

    tool: str
    args: dict[str, Json]
    value: Json = None
    error: str | None = None


@dataclass(frozen=True)
class Place:
    """The surroundings of a call: the run's own directory, the idempotency key, and the allowed time."""

    folder: Path
    key: str
    deadline_s: float
    may_contact: Callable[[str], bool] = anywhere
    """True if the call may go on to another host than the approved one (`engine.hosts.host_of`)."""
    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    """Of `python`: the tools that its script may call."""
    heard: tuple[Heard, ...] = ()
    """Of `python`: the calls that its script has made, in order."""


@dataclass(frozen=True)
class Result:
    """A tool's result: a JSON value, and its files; of a program its exit code and stderr too."""

    value: Json
    files: tuple[MadeFile, ...] = ()
    exit_code: int | None = None
    """A code other than 0 makes the call a failed one; the model still reads output and stderr."""
    stderr: str = ""


class NotHappened(Enum):
    """The answer of `happened` for a call that did not happen, and can't happen any more under its key."""

    FOR_SURE = "for sure"


@dataclass(frozen=True)
class Tool:
    """A registered tool. `run` keeps the deadline, and raises ToolError, TimeoutError or ConnectionError."""

    name: str
    description: str
    arguments: type[Arguments] | Schema
    effects: EffectClass
    idempotent: bool
    """Called again with the same key and arguments it has no second effect."""
    deadline_s: float
    run: Callable[[Any, Place], Result]
    happened: Callable[[Any, Place], Result | NotHappened | None] | None = None
    """Asked after a call was cut off, or its worker was lost in it; returns its result if it happened. None if unknown:
    a person is asked. `NotHappened` only if the far side takes no call under this key any more, for a frozen worker
    may wake up and make it; the call is then repeated under another key."""

    cacheable: bool = True
    """True if the same call gives the same result until something changes; a clock does not."""
    outward: str = ""
    """The argument with the URL or host of a call, or that host itself; empty if there is none."""
    reads: Reads | None = None
    """The data that a result brings into the run: none of note (empty), `private`, or `untrusted`. By default a tool
    with effects counts as private."""
    reads_if: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Values of an argument, by its name, with which a call only reads; they override `effects`."""
    asks: str = ""
    """The argument that holds a question: a person's answer is the result, and `run` is never called."""
    missing: Callable[[], str] = str
    """Says what to do where the installation lacks what the tool needs; empty where it lacks nothing."""

    def spec(self) -> ToolSpec:
        """Return the tool for machine and model, not permitted."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters=_schema_of(self.arguments),
            effects=self.effects,
            idempotent=self.idempotent,
            cacheable=self.cacheable,
            permitted=False,
            outward=self.outward,
            reads=self.reads if self.reads is not None else "" if self.effects == "none" else "private",
            reads_if=dict(self.reads_if),
            asks=self.asks,
        )


class ToolError(Exception):
    """A failed call, in a sentence for the model that asked. One class per cause."""

    blame: ClassVar[Blame] = "recoverable"
    ran: ClassVar[bool] = True
    """True if the call may have taken place."""


@cache
def _schema_of(arguments: type[Arguments] | Schema) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for described in schema.get("properties", {}).values():
        if isinstance(described, dict):  # JSON schema's `true` fits anything
            described.pop("title", None)
    return {"properties": {}, "required": [], **schema}
