"""An approved tool of an MCP server as a tool of the toolbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from runs.adapters.mcp.definitions import Definition, DefinitionChanged
from runs.adapters.mcp.faults import CutOff, Misconfigured, NotReached, TooLarge, TooMuch, TooSlow
from runs.adapters.mcp.settings import ServerSettings
from runs.adapters.scrubbing import Scrubber
from runs.adapters.tool import Place, Result, Schema, Tool
from runs.engine.effects import EffectClass, changes_something
from runs.engine.tools import Reads

if TYPE_CHECKING:
    from mcp import Client


class Notes(Protocol):
    """Where the adapter leaves what it learns of a server, for administrators."""

    def listed(self, server: str, found: tuple[Definition, ...]) -> None:
        """Keep what the server defines now."""
        ...

    def failed(self, server: str, why: str, last_words: str) -> None:
        """Keep why a call did not reach the server, and what its process said last."""
        ...


@dataclass(frozen=True)
class Approved:
    """A definition that an administrator approved, with what they say that it does."""

    definition: Definition
    effects: EffectClass = "send"
    repeatable: bool = False
    """True if a call that was cut off may be repeated."""
    reads: Reads = "untrusted"
    outward: str = ""


@dataclass(frozen=True)
class _Parameters(Schema):
    """The schema of a definition, shown to machine and model; checked in the worker before the call."""

    name: str
    definition_text: str

    def model_json_schema(self) -> dict[str, Any]:
        """Return the schema without what the engine would have to run: patterns are told in words."""
        shown: dict[str, Any] = _without_patterns(self._schema)
        return shown

    def model_validate(self, given: Any, /) -> Any:
        """Refuse what does not fit; raises a `ToolError`."""
        from runs.adapters.mcp.schemas import check

        check(self.name, self._schema, given)
        return given

    @property
    def _schema(self) -> dict[str, Any]:
        return Definition.model_validate_json(self.definition_text).input_schema


def tool_of(settings: ServerSettings, approved: Approved, notes: Notes) -> Tool:
    """Return the tool `server.name`."""
    definition = approved.definition
    name = f"{settings.name}.{definition.name}"

    def run(arguments: dict[str, Any], place: Place) -> Result:
        return _called(settings, approved, notes, arguments, place)

    return Tool(
        name=name,
        description=definition.description or definition.title,
        arguments=_Parameters(name, definition.text),
        effects=approved.effects,
        idempotent=approved.repeatable,
        cacheable=False,
        deadline_s=settings.timeout_s,
        outward=approved.outward,
        reads=approved.reads,
        run=run,
    )


def _called(
    settings: ServerSettings, approved: Approved, notes: Notes, arguments: dict[str, Any], place: Place
) -> Result:
    """Call the tool. What it brings is read in this thread, and what went wrong is noted."""
    from runs.adapters.mcp import sessions

    definition, server = approved.definition, settings.name
    if settings.fault:
        notes.failed(server, settings.fault, "")
        raise Misconfigured(f"The server {server} can't be reached: {settings.fault}")
    question = _question(definition, arguments)
    try:
        answer = sessions.ask(settings, definition.name, definition.sha256, question)
    except DefinitionChanged as changed:
        notes.listed(server, changed.found)
        raise
    except TooMuch as fault:
        notes.failed(server, str(fault), fault.last_words)
        if changes_something(approved.effects):
            raise
        raise TooLarge(str(fault)) from None
    except (NotReached, CutOff, TooSlow) as fault:
        notes.failed(server, str(fault), fault.last_words)
        raise
    return _read(settings, definition, answer, place)


def _question(definition: Definition, arguments: dict[str, Any]) -> Callable[[Client], Any]:
    """Return what is asked of the server, by the method of the definition."""
    match definition.method:
        case "tools/call":
            return lambda client: client.call_tool(definition.name, arguments)
        case "resources/list":
            return lambda client: client.list_resources()
        case "resources/read":
            return lambda client: client.read_resource(arguments["uri"])
        case "prompts/list":
            return lambda client: client.list_prompts()
        case "prompts/get":
            return lambda client: client.get_prompt(arguments["name"], arguments.get("arguments") or {})


def _read(settings: ServerSettings, definition: Definition, answer: Any, place: Place) -> Result:
    from runs.adapters.mcp.results import Reader

    reader = Reader(place.folder, f"{settings.name}-{definition.name}", _scrubber(settings.secrets))
    match definition.method:
        case "tools/call":
            return reader.tool(answer)
        case "resources/read":
            return reader.resource(answer)
        case "prompts/get":
            return reader.prompt(answer)
        case "resources/list":
            return Result(
                reader.scrubbed([_told(one, "uri", "name", "description") for one in answer.resources])
            )
        case "prompts/list":
            return Result(
                reader.scrubbed([_told(one, "name", "description", "arguments") for one in answer.prompts])
            )


def _told(one: Any, *names: str) -> dict[str, Any]:
    told: dict[str, Any] = one.model_dump(mode="json", include=set(names), exclude_none=True)
    return told


def _scrubber(secrets: tuple[str, ...]) -> Callable[[str], str]:
    """Return what takes the server's own secrets out of a text."""
    scrubbers = [Scrubber(secret) for secret in secrets]

    def scrub(text: str) -> str:
        for one in scrubbers:
            text = one.scrub(text)
        return text

    return scrub


def _without_patterns(schema: Any) -> Any:
    """Return the schema with each pattern in its description: Python's own matching of one may never end."""
    match schema:
        case dict():
            shown = {name: _without_patterns(inner) for name, inner in schema.items()}
            pattern = schema.get("pattern")
            if isinstance(pattern, str):
                del shown["pattern"]
                about = shown.get("description", "")
                shown["description"] = (
                    f"{about} Pattern: {pattern}".strip() if isinstance(about, str) else about
                )
            return shown
        case list():
            return [_without_patterns(inner) for inner in schema]
    return schema
