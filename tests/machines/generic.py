"""How a machine without a play is played: its usual settings, and replies that fit its own schemas."""

from __future__ import annotations

from typing import Any

from runs.engine.effects import ModelCall
from tests.machines.tapes import CALLS, NOT_OBJECTS, TOOLS, Play, Tape
from tests.worlds import TOO_MANY_ROWS, Run

TEXTS = ("The tides come twice a day.", "FINAL ANSWER: 42", "", "Which one?")
WORDS = ("tides", *TOOLS, "42", "", "FINAL ANSWER: 42", "a.txt", "nosuch")
NUMBERS = (1, 0, 2, 7, -1, 1_000)
OBJECTS = tuple(args for _, args in CALLS)
DEEPEST = 6


def reply(run: Run, call: ModelCall, tape: Tape) -> Any:
    """What a model may say: mostly what fits the schema of the reply, now and then anything."""
    if tape.chance(16):
        return tape.one_of(NOT_OBJECTS)
    schema = run.machine.reply_schema(call.reply, run.state)
    return tape.one_of(TEXTS) if schema is None else _fitting(schema, tape, schema.get("$defs", {}), 0)


def _fitting(schema: Any, tape: Tape, known: dict[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > DEEPEST:
        return None
    if "$ref" in schema:
        return _fitting(known.get(schema["$ref"].rpartition("/")[2]), tape, known, depth + 1)
    for several in ("anyOf", "oneOf"):
        if schema.get(several):
            return _fitting(tape.one_of(schema[several]), tape, known, depth + 1)
    if schema.get("enum"):
        return tape.one_of(schema["enum"])
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type", "object" if "properties" in schema else "null")
    return _of_kind(tape.one_of(kind) if isinstance(kind, list) else kind, schema, tape, known, depth)


def _of_kind(kind: str, schema: dict[str, Any], tape: Tape, known: dict[str, Any], depth: int) -> Any:
    match kind:
        case "string":
            return tape.one_of(WORDS)
        case "integer" | "number":
            return tape.one_of(NUMBERS)
        case "boolean":
            return tape.below(2) == 0
        case "array":
            return [_fitting(schema.get("items"), tape, known, depth + 1) for _ in range(tape.below(3))]
        case "object" if not schema.get("properties"):
            return tape.one_of(OBJECTS)
        case "object":
            required = schema.get("required", ())
            names = [name for name in schema["properties"] if name in required or tape.below(2) == 1]
            return {name: _fitting(schema["properties"][name], tape, known, depth + 1) for name in names}
    return None


PLAY = Play(settings=lambda tape: {}, replies={}, rows=lambda run: TOO_MANY_ROWS, reply=reply)
