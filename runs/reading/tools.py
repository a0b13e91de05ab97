"""The site's tools as people read them: what each does, its arguments in words, and whether a call asks first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.contrib.auth.models import Group

from runs.adapters.tool import Tool
from runs.adapters.tools import OWN, TOOLS
from runs.engine.effects import EffectClass, changes_something
from runs.engine.gates import is_about
from runs.engine.settings import InterruptRule
from runs.engine.tools import MUST, ToolSpec
from runs.reading import words
from runs.reading.hidden_text import visible
from runs.reading.words import Word

ASKS: dict[str, Word] = {
    "allow": Word("runs without approval", "check", "quiet"),
    "ask": Word("needs approval", "hand", "ask"),
    "deny": Word("denied", "cross", "bad"),
    "question": Word("asks a person", "question", "ask"),
}
"""What comes before a call, by the deed of the rule that decides."""

BRINGS = {"": "Nothing of note", "private": "Private data", "untrusted": "Untrusted content"}

_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "object",
    "null": "null",
}


@dataclass(frozen=True)
class Argument:
    """One argument in words."""

    name: str
    kind: str
    about: str
    required: bool


@dataclass(frozen=True)
class ToolPage:
    """One tool, with the site's present rules."""

    tool: Tool
    rules: tuple[InterruptRule, ...]

    @property
    def name(self) -> str:
        """Return its name, with hidden characters shown."""
        return visible(self.tool.name)

    @property
    def purpose(self) -> str:
        """Return its description."""
        return visible(self.tool.description)

    @cached_property
    def spec(self) -> ToolSpec:
        """Return it as the engine sees it."""
        return self.tool.spec()

    @property
    def source(self) -> str:
        """Return where it comes from."""
        if self.tool.name in OWN:
            return "This site"
        if self.tool.name in TOOLS:
            return "Built in"
        return f"MCP server {self.tool.name.partition('.')[0]}"

    @property
    def effects(self) -> Word:
        """Return its effect."""
        return words.EFFECTS[self.spec.effects]

    @property
    def reads_only(self) -> str:
        """Return which calls only read, as a sentence; empty if the effect is that of every call."""
        told = (f"{name} is {_or(values)}" for name, values in self.spec.reads_if.items())
        return f"Reads only if {' or '.join(told)}." if self.spec.reads_if else ""

    @property
    def brings(self) -> str:
        """Return what its results bring into a run."""
        return BRINGS[self.spec.reads]

    @property
    def contacts(self) -> str:
        """Return what host a call contacts, as a part of a sentence; empty if none."""
        outward = self.spec.outward
        return f"the host in {visible(outward)}" if outward in self._properties else visible(outward)

    @property
    def signature(self) -> str:
        """Return the names of the arguments; optional ones with a question mark."""
        return ", ".join(f"{one.name}{'' if one.required else '?'}" for one in self.arguments)

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """Return its arguments in words."""
        required = self.spec.parameters.get("required") or ()
        return tuple(_argument(name, told, name in required) for name, told in self._properties.items())

    @property
    def schema(self) -> str:
        """Return the schema of its arguments as JSON."""
        return visible(json.dumps(self.spec.parameters, indent=2, ensure_ascii=False))

    @property
    def asks(self) -> Word:
        """Return what comes before a call; that of one with its full effect."""
        deed, _ = _deed(self.spec, self.spec.effects, self.rules)
        return ASKS["question" if self.spec.asks and deed == "allow" else deed]

    @property
    def why(self) -> tuple[str, ...]:
        """Return why, and which rules look at arguments or repeated calls."""
        deed, said = _deed(self.spec, self.spec.effects, self.rules)
        found = [said] if said else []
        if self.spec.reads_if and _deed(self.spec, "read", self.rules)[0] != deed:
            found.append(f"A call that only reads {ASKS[_deed(self.spec, 'read', self.rules)[0]].text}.")
        return (*found, *(f"Site rule: {rule.words()}." for rule in _conditional(self.spec, self.rules)))

    @property
    def _properties(self) -> Mapping[str, Any]:
        found = self.spec.parameters.get("properties")
        return found if isinstance(found, Mapping) else {}


def tool_pages(tools: Mapping[str, Tool], rules: tuple[InterruptRule, ...]) -> dict[str, list[ToolPage]]:
    """Return all tools by their source: built in, the site's, then each server's."""
    found: dict[str, list[ToolPage]] = {}
    for tool in tools.values():
        page = ToolPage(tool, rules)
        found.setdefault(page.source, []).append(page)
    return found


def groups_that_may(permission: str) -> list[str]:
    """Return the names of the groups with a permission of the app."""
    named = {"permissions__codename": permission, "permissions__content_type__app_label": "runs"}
    return list(Group.objects.filter(**named).order_by("name").values_list("name", flat=True))


def _about(spec: ToolSpec, effects: EffectClass, rules: Iterable[InterruptRule]) -> Iterator[InterruptRule]:
    return (rule for rule in rules if rule.when.about_calls and is_about(rule, spec.name, effects))


def _deed(spec: ToolSpec, effects: EffectClass, rules: tuple[InterruptRule, ...]) -> tuple[str, str]:
    """Return what the first rule that holds for every such call does, and why in a sentence."""
    for rule in _about(spec, effects, rules):
        if rule.when.args is None and rule.when.same_call is None:
            return ("allow" if rule.do == "notify" else rule.do), f"Site rule: {rule.words()}."
    if changes_something(effects):
        return "ask", f"Tools that {effects} need approval (default rule)."
    return "allow", ""


def _conditional(spec: ToolSpec, rules: tuple[InterruptRule, ...]) -> Iterator[InterruptRule]:
    """Yield the rules that hold for some calls of the tool only."""
    for rule in _about(spec, spec.effects, rules):
        if rule.when.args is not None or rule.when.same_call is not None:
            yield rule


def _argument(name: str, told: Any, required: bool) -> Argument:  # noqa: FBT001
    schema = told if isinstance(told, Mapping) else {}
    kind = ", ".join(filter(None, (_kind(schema), _bounds(schema), _default(schema))))
    return Argument(visible(name), visible(kind), visible(str(schema.get("description", ""))), required)


def _kind(schema: Mapping[str, Any]) -> str:
    if isinstance(options := schema.get("anyOf"), list):
        return _or(dict.fromkeys(_kind(one if isinstance(one, Mapping) else {}) for one in options))
    if isinstance(choices := schema.get("enum"), list):
        return f"one of {', '.join(map(_value, choices))}"
    if "const" in schema:
        return _value(schema["const"])
    if "$ref" in schema:
        return "object"
    kinds = schema.get("type", [])
    named = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    return _or(_KINDS.get(str(one), str(one)) for one in named) or "any JSON"


def _bounds(schema: Mapping[str, Any]) -> str:
    said = (
        ("minLength", "at least {:,} characters"),
        ("maxLength", "at most {:,} characters"),
        ("minimum", "at least {:,}"),
        ("maximum", "at most {:,}"),
    )
    found = [words.format(schema[key]) for key, words in said if isinstance(schema.get(key), int | float)]
    found = [one for one in found if one != "at least 1 characters"]
    return ", ".join([*found, *([str(schema[MUST])] if MUST in schema else [])])


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return "" if value in (None, "", [], {}) else f"default {json.dumps(value, ensure_ascii=False)}"


def _value(value: Any) -> str:
    """Return a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _or(texts: Iterable[str]) -> str:
    *first, last = list(texts) or [""]
    return f"{', '.join(first)} or {last}" if first else last
