"""What a tool is: a name, typed arguments, its effect on the world, and one function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from runs.engine.effects import Blame, EffectClass, MadeFile
from runs.engine.tools import Reads, ToolSpec
from runs.engine.values import Json


class Arguments(BaseModel):
    """The typed arguments of a tool; their JSON schema is what the model is shown."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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


@dataclass(frozen=True)
class Place:
    """Where one call happens: the run's own directory, the idempotency key, and how long it may take."""

    folder: Path
    key: str
    deadline_s: float
    may_contact: Callable[[str], bool] = anywhere
    """Whether the call may go on to another host than the one it was let through for (`engine.hosts.host_of`)."""


@dataclass(frozen=True)
class Result:
    """What a tool gives back: a JSON value, and the files that it made; of a program its exit code and stderr too."""

    value: Json
    files: tuple[MadeFile, ...] = ()
    exit_code: int | None = None
    """A code other than 0 makes the call a failed one; the model still reads output and stderr."""
    stderr: str = ""


class NotHappened(Enum):
    """What `happened` says of a call that did not happen, and can't any more under its key."""

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
    """Asked once a call was cut off, or its worker was lost in it: its result, where it happened. None, where nobody
    can tell: a person is asked. `NotHappened` only where the far side takes no call under this key any more, for a
    worker that was frozen may wake up and make it; the call is then made under another key."""

    cacheable: bool = True
    """Whether the same call gives the same result until something is changed; a clock does not."""
    outward: str = ""
    """The argument that holds the URL or host which a call contacts, or that host itself; empty where there is none."""
    reads: Reads | None = None
    """What a result brings into the run: nothing (empty), `private` data, `untrusted` words. Where it is not said, a
    tool with effects counts as private."""

    def spec(self) -> ToolSpec:
        """What machine and model see of it, not permitted."""
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
        )


class ToolError(Exception):
    """A call that could not be done, in a sentence for the model that asked. One class per cause."""

    blame: ClassVar[Blame] = "recoverable"
    ran: ClassVar[bool] = True
    """Whether the call may have taken place."""


@cache
def _schema_of(arguments: type[Arguments] | Schema) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for described in schema.get("properties", {}).values():
        described.pop("title", None)
    return {"properties": {}, "required": [], **schema}
