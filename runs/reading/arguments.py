"""A call's arguments as form fields drawn from its JSON schema, and back: a number stays a number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from runs.engine.tools import mismatch
from runs.engine.values import (
    MAX_DEPTH,
    MAX_JSON,
    MAX_NODES,
    MAX_TEXT,
    SAFE_FLOAT,
    SAFE_INT,
    clean,
    is_too_large,
)
from runs.reading import hidden_text

Shape = Literal["line", "text", "integer", "number", "switch", "choice", "json"]
PREFIX = "arg."
LONG = 32
"""Characters of a one-line field on a phone; longer texts get a box."""

WHOLE = 1_500
WHOLE_LINES = 40
"""Most characters and lines of a box that shows the whole text; a longer one scrolls."""

BOX_LINES = 14
"""Lines of a scrolling box."""

NARROW = 36
"""Characters of a line on a phone."""

LONG_NAMES = ("content", "text", "body", "message", "html", "code", "query", "prompt")
MOST_DIGITS = 1000
MISSING = object()


@dataclass(frozen=True)
class ArgumentField:
    """One argument as a form shows it. `value` is the text in the field."""

    name: str
    shape: Shape
    value: str
    required: bool
    about: str = ""
    options: tuple[str, ...] = ()
    nullable: bool = False
    error: str = ""
    was: str = ""
    """The proposed text; the field is changed if `value` differs."""
    given: bool = True
    """True if the proposed call has the argument."""

    @property
    def field(self) -> str:
        """Return the field's name in the form."""
        return f"{PREFIX}{self.name}"

    @property
    def changed(self) -> bool:
        """Return True if a person has changed the text."""
        return lines(self.value) != lines(self.was)

    @property
    def label(self) -> str:
        """Return the argument's name, escaped; a model may have made it up."""
        return hidden_text.escaped(self.name)

    @cached_property
    def _found(self) -> hidden_text.Hidden:
        return hidden_text.hidden_in(self.value)

    @cached_property
    def _found_before(self) -> hidden_text.Hidden:
        return self._found if self.was == self.value else hidden_text.hidden_in(self.was)

    @property
    def hidden(self) -> str:
        """Return the warning beside a field with hidden characters in its name or its text."""
        return " ".join(filter(None, (self._of_name, self._found.warning)))

    @property
    def _of_name(self) -> str:
        found = hidden_text.warning(self.name)
        return f"Its name {found[0].lower()}{found[1:]}" if found else ""

    @property
    def escaped(self) -> str:
        """Return the text with signs and escapes for hidden characters."""
        return self._found.escaped

    @property
    def was_hidden(self) -> str:
        """Return the warning about the proposed text."""
        return " ".join(filter(None, (self._of_name, self._found_before.warning)))

    @property
    def was_escaped(self) -> str:
        """Return the proposed text, the same way."""
        return self._found_before.escaped

    @property
    def tall(self) -> bool:
        """Return True if its box scrolls; one with gaps does, for its text is shown below it with signs."""
        return is_long(self.value) or bool(self._found.gaps)

    @property
    def long(self) -> bool:
        """Return True if it must be scrolled to its end: no box shows all of it at once, even with signs for gaps."""
        return is_long(self.value) and is_long(self.escaped)

    @property
    def length(self) -> int:
        """Return the characters of the text."""
        return len(self.value)

    @property
    def rows(self) -> int:
        """Return the lines of a text field if the browser does not fit it to its text: a phone shows all of it."""
        if self.tall:
            return BOX_LINES
        return max(2, sum(1 + len(line) // NARROW for line in lines(self.value).split("\n")))


def is_long(text: str) -> bool:
    """Return True if a box does not show all of `text` at once."""
    return len(text) > WHOLE or lines(text).count("\n") >= WHOLE_LINES


@dataclass(frozen=True)
class ReadArguments:
    """The submitted form: typed arguments, and the fields as they were filled in."""

    args: dict[str, Any]
    fields: tuple[ArgumentField, ...]

    @property
    def wrong(self) -> bool:
        """Return True if a field can't be read."""
        return any(field.error for field in self.fields)


def fields_of(schema: Mapping[str, Any], args: Mapping[str, Any]) -> tuple[ArgumentField, ...]:
    """Return a field for each argument of the schema or the call: in that order, those of one line first."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", [])
    names = [*properties, *(name for name in args if name not in properties)]
    fields = [
        _field(name, _schema_of(properties, name), args.get(name, MISSING), name in required)
        for name in names
    ]
    return tuple(sorted(fields, key=lambda field: field.shape in ("text", "json")))


def _schema_of(properties: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an argument's schema; JSON schema's `true` demands nothing."""
    found = properties.get(name)
    return found if isinstance(found, dict) else {}


def _field(name: str, schema: Mapping[str, Any], value: Any, required: bool) -> ArgumentField:  # noqa: FBT001
    shape, options, nullable = _shape(name, schema, value, required)
    text = _text(shape, value)
    about = str(schema.get("description", ""))
    given = value is not MISSING
    return ArgumentField(name, shape, text, required, about, options, nullable, was=text, given=given)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _shape(
    name: str,
    schema: Mapping[str, Any],
    value: Any,
    required: bool,  # noqa: FBT001
) -> tuple[Shape, tuple[str, ...], bool]:
    options = [option for option in schema.get("anyOf", ()) if not _is_null(option)]
    nullable = "anyOf" in schema and len(options) < len(schema["anyOf"])
    if len(options) == 1 and isinstance(options[0], dict):
        schema = options[0]
    elif options:
        return "json", (), nullable
    if isinstance(schema.get("enum"), list) and all(isinstance(item, str) for item in schema["enum"]):
        if value is MISSING or value is None or value in schema["enum"]:
            blank = () if required else ("",)
            return "choice", (*blank, *schema["enum"]), nullable
        return "json", (), nullable  # a list of choices could not show it
    if isinstance(value, int | float) and len(json.dumps(value)) > LONG:
        return "json", (), nullable
    fits = value is MISSING or value is None or not mismatch(dict(schema), value)
    match schema.get("type"):
        case "string" if fits:
            long = isinstance(value, str) and (len(value) > LONG or "\n" in value or "\r" in value)
            return ("text" if long or name in LONG_NAMES else "line"), (), nullable
        case "integer" if fits:
            return "integer", (), nullable
        case "number" if fits:
            return "number", (), nullable
        case "boolean" if fits:
            if required and isinstance(value, bool):
                return "switch", (), nullable
            return "choice", ("", "true", "false"), nullable
    return "json", (), nullable


def _text(shape: Shape, value: Any) -> str:
    if value is MISSING or (value is None and shape != "json"):
        return ""
    match shape:
        case "line" | "text":
            return str(value)
        case "json":
            return json.dumps(value, ensure_ascii=False, indent=2)
        case "choice" if isinstance(value, str):
            return value
    return json.dumps(value)


def read_arguments(
    schema: Mapping[str, Any], args: Mapping[str, Any], data: Mapping[str, str]
) -> ReadArguments:
    """Return the arguments as the form has them; an unchanged field keeps its very value."""
    read: dict[str, Any] = {}
    fields = []
    for field in fields_of(schema, args):
        posted = data.get(field.field)
        if field.shape == "switch":
            posted = posted or "false"
        if posted is None or lines(posted) == lines(field.was):
            if field.name in args:
                read[field.name] = args[field.name]
            fields.append(field)
            continue
        kept = replace(field, value=posted)
        try:
            value = _value(kept, posted)
        except ValueError as fault:
            fields.append(replace(kept, error=str(fault)))
            continue
        if value is not MISSING:
            read[field.name] = value
        wrong = (
            "" if value is MISSING else _wrong(_schema_of(schema.get("properties", {}), field.name), value)
        )
        fields.append(replace(kept, error=f"{field.name} {wrong}." if wrong else ""))
    return ReadArguments(read, tuple(fields))


def _wrong(schema: dict[str, Any], value: Any) -> str:
    """Return why a value is not allowed; values that the engine would cut or change are refused."""
    if wrong := mismatch(schema, value):
        return wrong
    if clean(value) == value:
        return ""
    return _unkept(value) or f"is too large: at most {MAX_NODES:,} values on {MAX_DEPTH} levels"


def _unkept(value: Any) -> str:
    """Return why a text or number, or one within the value, can't be kept as it is; empty if each can."""
    match value:
        case str() if len(value) > MAX_TEXT:
            return f"is too long: {len(value):,} characters; the limit is {MAX_TEXT:,}"
        case str() if clean(value) != value:
            return "holds a character that can't be stored (NUL or half of a pair)"
        case int() if clean(value) != value:
            return f"holds a whole number beyond {SAFE_INT:,}"
        case float() if clean(value) != value:
            return f"holds a number beyond {SAFE_FLOAT:g}"
        case dict():
            return next(filter(None, map(_unkept, [*value, *value.values()])), "")
        case list():
            return next(filter(None, map(_unkept, value)), "")
    return ""


def _value(field: ArgumentField, text: str) -> Any:
    """Return a person's input in the argument's type; MISSING if the argument is left out."""
    text = lines(text)
    blank = not text.strip()
    if blank and field.shape not in ("line", "text"):
        if field.required and not field.nullable:
            raise ValueError(f"{field.name} is needed.")
        return None if field.nullable and field.required else MISSING
    match field.shape:
        case "integer":
            return _integer(field.name, text)
        case "number":
            return _number(field.name, text)
        case "switch":
            return _boolean(field.name, text)
        case "choice":
            return _boolean(field.name, text) if field.options == ("", "true", "false") else text
        case "json":
            return _json(field.name, text)
    return text


def _boolean(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{name} must be true or false.")
    return text == "true"


def _integer(name: str, text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError(f"{name} must be a whole number.") from None


def _number(name: str, text: str) -> int | float:
    try:
        number = float(text.strip())
    except ValueError:
        raise ValueError(f"{name} must be a number.") from None
    if number != number or abs(number) == float("inf"):
        raise ValueError(f"{name} must be a number.")
    whole = text.strip().lstrip("+-").isdigit()
    return int(text.strip()) if whole else number


def _json(name: str, text: str) -> Any:
    if len(text) > MAX_JSON:
        raise ValueError(f"{name} has {len(text):,} characters; the limit is {MAX_JSON:,}.")
    too_deep = f"{name} is nested too deeply: at most {MAX_DEPTH} levels."
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite, parse_int=_digits
        )
    except RecursionError:
        raise ValueError(too_deep) from None
    except ValueError as fault:
        raise ValueError(f"{name} must be JSON: {fault}.") from None
    if _too_deep(value):
        raise ValueError(too_deep)
    if is_too_large(value):
        raise ValueError(f"{name} is too large: at most {MAX_NODES:,} values.")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raises on two values for one name, of which JSON readers would silently keep either."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(
                f"the key {json.dumps(hidden_text.escaped(key), ensure_ascii=False)} appears twice"
            )
        found[key] = value
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"JSON has no number {text}")


def _finite(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _digits(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"the number {text[:20]}… is too large")
    return int(text)


def _too_deep(value: Any) -> bool:
    """Return True if a value has more levels than the engine keeps."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for outer in level
            if isinstance(outer, dict | list)
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def lines(text: str) -> str:
    """Return the text with plain line breaks; browsers send their own."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
