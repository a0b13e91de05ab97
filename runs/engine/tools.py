"""A machine's view of a tool: its name, its arguments, its side effects.

The adapters call tools; here calls are only checked.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from runs.engine.effects import ChildRun, EffectClass, ToolCall, changes_something
from runs.engine.values import Value

FaultCode = Literal["missing_required", "type_mismatch", "unknown_param"]
DropCode = Literal["param_dropped", "unknown_param"]

MUST = "x-must"
"""The key of a property's schema with the sentence for a value that its pattern refuses."""

Reads = Literal["", "private", "untrusted"]
"""Data that a result brings into a run: none of note, private to the owner, or untrusted."""


class ToolSpec(Value):
    """A tool as a machine and a model see it. `parameters` is a JSON schema of type object."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}, "required": []}
    )
    effects: EffectClass
    idempotent: bool = False
    """Called again with the same key it has no second effect."""
    cacheable: bool = True
    """True if a repeated call of a tool that only reads gives the same result until something changes."""
    permitted: bool = True
    child: str = ""
    """Name of the subgraph, if the tool is a child run."""
    outward: str = ""
    """The argument with the URL or host of a call, or that host itself; empty if there is none."""
    reads: Reads = ""
    """The kind of data that a result brings into the run."""
    reads_if: dict[str, tuple[str, ...]] = Field(default={}, exclude_if=operator.not_)
    """Values of an argument, by its name, with which a call only reads; they override `effects`."""
    asks: str = Field(default="", exclude_if=operator.not_)
    """The argument that holds a question: a person's answer is the result, and nothing is run."""

    def effect_with(self, args: dict[str, Any]) -> ToolCall | ChildRun:
        """Return a call with these arguments; of a child run its start."""
        return ChildRun(name=self.child, goal=str(args["goal"])) if self.child else self.call_with(args)

    def call_with(self, args: dict[str, Any]) -> ToolCall:
        """Return a call with these arguments."""
        return ToolCall(
            tool=self.name, args=args, effects=self.effects_with(args), idempotent=self.idempotent
        )

    def effects_with(self, args: Mapping[str, Any]) -> EffectClass:
        """Return what a call with these arguments does to the world."""
        reads = any(args.get(name) in values for name, values in self.reads_if.items())
        return "read" if reads else self.effects

    @property
    def shown(self) -> dict[str, Any]:
        """Return the schema of the arguments as a model reads it: without the sentences, which say it again."""
        properties = self.parameters.get("properties") or {}
        if not any(isinstance(schema, dict) and MUST in schema for schema in properties.values()):
            return self.parameters
        return {
            **self.parameters,
            "properties": {name: _shown(schema) for name, schema in properties.items()},
        }

    @property
    def harmless(self) -> bool:
        """Return True if a call of it changes nothing and begins nothing."""
        return not self.child and not changes_something(self.effects)


def _shown(schema: Any) -> Any:
    return (
        {key: value for key, value in schema.items() if key != MUST} if isinstance(schema, dict) else schema
    )


def is_harmless(tools: Mapping[str, ToolSpec], name: str | None) -> bool:
    """Return True if a call of the tool of that name changes nothing; an unknown tool can't be called."""
    spec = tools.get(name or "")
    return spec is None or spec.harmless


class Flaw(Value):
    """A remark to the model about one argument."""

    code: str
    param: str
    message: str


class Fault(Flaw):
    """A fault of one argument; the call is not run."""

    code: FaultCode


class Drop(Flaw):
    """A dropped argument; the call goes on."""

    code: DropCode

    @property
    def as_fault(self) -> Fault:
        """Return the drop as a fault, for a call that must be whole: its author can write it again."""
        unknown = self.code == "unknown_param"
        cure = "take it out" if unknown else "mend it, or take it out"
        message = f"{self.message.removesuffix(_DROPPED)}; {cure}."
        return Fault(code="unknown_param" if unknown else "type_mismatch", param=self.param, message=message)


_DROPPED = "; dropped."


class CheckedCall(Value):
    """The arguments to pass on, with their faults and drops."""

    args: dict[str, Any]
    faults: tuple[Fault, ...] = ()
    drops: tuple[Drop, ...] = ()


class InspectedCall(Value):
    """A model's call, inspected: its tool, the arguments to pass on, its flaws."""

    spec: ToolSpec | None
    args: dict[str, Any]
    flaws: tuple[Flaw, ...]
    """The faults that keep it from running, in this order: codes `missing_tool_id`, `unknown_tool_id`,
    `tool_not_allowed`, `bad_params`, `missing_required`, `type_mismatch`, `unknown_param`."""
    drops: tuple[Drop, ...]


def inspect_call(tools: Mapping[str, ToolSpec], tool_id: object, params: object) -> InspectedCall:
    """Check a call against the tools of the run. The arguments of an unknown tool can't be judged."""
    if not isinstance(tool_id, str) or not tool_id:
        flaw = Flaw(code="missing_tool_id", param="", message="The call names no tool.")
        return InspectedCall(spec=None, args={}, flaws=(flaw,), drops=())
    spec = tools.get(tool_id)
    if spec is None:
        flaw = Flaw(code="unknown_tool_id", param="", message=f"There is no tool {tool_id}.")
        return InspectedCall(spec=None, args={}, flaws=(flaw,), drops=())
    flaws: tuple[Flaw, ...] = ()
    if not spec.permitted:
        flaws += (Flaw(code="tool_not_allowed", param="", message=f"This run may not call {tool_id}."),)
    if not isinstance(params, dict):
        bad = Flaw(code="bad_params", param="", message=f"The arguments of {tool_id} must be an object.")
        return InspectedCall(spec=spec, args={}, flaws=(*flaws, bad), drops=())
    checked = check_arguments(spec, params)
    return InspectedCall(spec=spec, args=checked.args, flaws=(*flaws, *checked.faults), drops=checked.drops)


def check_arguments(spec: ToolSpec, args: dict[str, Any]) -> CheckedCall:
    """Check `args` against the tool's schema (docs/machines.md, "What all machines share").

    A call with side effects loses no argument: a drop is a fault there.
    """
    properties: dict[str, Any] = spec.parameters.get("properties") or {}
    required = spec.parameters.get("required") or []
    more = spec.parameters.get("additionalProperties")
    kept: dict[str, Any] = {}
    faults = [_missing(spec, name) for name in required if args.get(name) is None]
    drops: list[Drop] = []
    for name, value in args.items():
        schema = properties.get(name, True if name in required else more)
        if schema is None or schema is False:
            why = f"{spec.name} has no argument {name}"
            drops.append(Drop(code="unknown_param", param=name, message=f"{why}{_DROPPED}"))
        elif value is None and name in required:
            continue
        elif wrong := mismatch(schema, value):
            why = f"{spec.name}: {name} {wrong}"
            if name in required:
                faults.append(Fault(code="type_mismatch", param=name, message=f"{why}."))
            elif value is not None:
                drops.append(Drop(code="param_dropped", param=name, message=f"{why}{_DROPPED}"))
        else:
            kept[name] = with_integers(schema, value)
    drops.sort(key=lambda drop: drop.code)  # param_dropped comes before unknown_param
    if changes_something(spec.effects):
        return CheckedCall(args=kept, faults=(*faults, *(drop.as_fault for drop in drops)))
    return CheckedCall(args=kept, faults=tuple(faults), drops=tuple(drops))


def _missing(spec: ToolSpec, name: str) -> Fault:
    return Fault(code="missing_required", param=name, message=f"{spec.name} needs the argument {name}.")


def mismatch(schema: Any, value: Any) -> str:
    """Return how `value` differs from a property's schema, as the rest of a sentence; empty if it fits."""
    if not isinstance(schema, dict):
        return ""  # JSON schema's `true`: anything fits
    if "anyOf" in schema:
        wrongs = [mismatch(option, value) for option in schema["anyOf"]]
        return "" if "" in wrongs else wrongs[0] if wrongs else ""
    kinds = _kinds(schema)
    if kinds and not any(_is_a(name, value) for name in kinds):
        return f"must be {' or '.join(_ARTICLE.get(name, name) for name in kinds)}, not {_kind_of(value)}"
    if isinstance(value, list | dict) and (wrong := _wrong_inside(schema, value)):
        return wrong
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(map(str, schema['enum']))}"
    if "const" in schema and value != schema["const"]:
        return f"must be {schema['const']}"
    return _out_of_bounds(schema, value)


def _wrong_inside(schema: dict[str, Any], value: list[Any] | dict[str, Any]) -> str:
    """Return the first item or member that differs from its own schema."""
    inner = _schemas_inside(schema, value)
    if isinstance(value, dict):
        missing = [name for name in schema.get("required") or () if name not in value]
        if missing:
            return f"needs the member {missing[0]}"
        unknown = [name for name in value if inner[name] is False]
        if unknown:
            return f"has no member {unknown[0]}"
    for key, item in _items(value):
        if wrong := mismatch(inner[key], item):
            return f"is not right at {key}: it {wrong}"
    return ""


def _schemas_inside(schema: dict[str, Any], value: list[Any] | dict[str, Any]) -> dict[Any, Any]:
    """Return the schema of each item or member; `True` if anything fits."""
    if isinstance(value, list):
        return dict.fromkeys(range(len(value)), schema.get("items", True))
    properties = schema.get("properties") or {}
    return {name: properties.get(name, schema.get("additionalProperties", True)) for name in value}


def _items(value: list[Any] | dict[str, Any]) -> Iterable[tuple[Any, Any]]:
    return enumerate(value) if isinstance(value, list) else value.items()


def with_integers(schema: Any, value: Any) -> Any:
    """Return `value` with each number that its schema wants as an integer as one: 30.0 becomes 30."""
    if not isinstance(schema, dict):
        return value
    if "anyOf" in schema:
        fitting = (option for option in schema["anyOf"] if not mismatch(option, value))
        return with_integers(next(fitting, True), value)
    if isinstance(value, float) and "number" not in _kinds(schema) and _is_a("integer", value):
        return int(value) if "integer" in _kinds(schema) else value
    if isinstance(value, list | dict):
        inner = _schemas_inside(schema, value)
        made = {key: with_integers(inner[key], item) for key, item in _items(value)}
        return list(made.values()) if isinstance(value, list) else made
    return value


def _kinds(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type")
    return [kind] if isinstance(kind, str) else list(kind or [])


def _out_of_bounds(schema: dict[str, Any], value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            return f"must be at least {schema['minimum']}"
        if "maximum" in schema and value > schema["maximum"]:
            return f"must be at most {schema['maximum']}"
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            return f"must have at least {schema['minLength']} characters"
        if len(value) > schema.get("maxLength", len(value)):
            return f"must have at most {schema['maxLength']} characters"
        if "pattern" in schema and not _is_found(schema["pattern"], value):
            return str(schema.get(MUST) or f"must match {schema['pattern']}")
    return ""


def _is_found(pattern: str, text: str) -> bool:
    """Return True if the pattern is in the text, or can't be read by Python (schemas come from elsewhere).

    `$` means the very end there; Python's also comes before a last line break.
    """
    try:
        return (
            re.search(_END.sub(lambda part: r"\Z" if part[0] == "$" else part[0], pattern), text) is not None
        )
    except re.error:
        return True


_END = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
"""A `$` of a pattern, and what may hold one that is none: an escaped sign, a class."""

_ARTICLE = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "object": "an object",
    "array": "an array",
    "null": "null",
}


def _is_a(name: str, value: Any) -> bool:
    """Return True if the value is of JSON schema's type; a boolean is no number, and 30.0 is an integer."""
    match name:
        case "string":
            return isinstance(value, str)
        case "integer":
            whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
            return whole or (isinstance(value, int) and not isinstance(value, bool))
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list | tuple)
        case "null":
            return value is None
    return True


def _kind_of(value: Any) -> str:
    for name in ("null", "boolean", "integer", "number", "string", "object", "array"):
        if _is_a(name, value):
            return _ARTICLE[name]
    return "something else"
