"""The names that a model knows at a place of its data, for a sentence about one that it does not know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]


def known_beside(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Return the names that are known beside an unknown one; `place` is where pydantic has found it."""
    whole = model.model_json_schema()
    here = list(_options(whole, whole))
    for part in place[:-1]:
        # pydantic also names the member of a union, which is no part of the data
        here = [option for inner in _inside(here, part) for option in _options(inner, whole)] or here
    return list(dict.fromkeys(name for option in here for name in option.get("properties", {})))


def _options(schema: Schema, whole: Schema) -> Iterator[Schema]:
    """Yield a schema without references and choices: one for each choice."""
    if "$ref" in schema:
        yield from _options(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
        return
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    for choice in choices:
        yield from _options(choice, whole)
    if not choices:
        yield schema


def _inside(options: Sequence[Schema], part: int | str) -> Iterator[Schema]:
    """Yield the schemas of the member or item `part`."""
    for option in options:
        named = option.get("properties", {})
        if isinstance(part, int):
            inner = [option.get("items")]
        elif part in named:
            inner = [named[part]]
        else:
            inner = [option.get("additionalProperties"), *option.get("patternProperties", {}).values()]
        yield from (schema for schema in inner if isinstance(schema, dict))
