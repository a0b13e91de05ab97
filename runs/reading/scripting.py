"""A run as a script: the recorded replies and tool results in order, as the scripted model plays them.

Launched with the run's own settings and the answers that people gave, the script makes the same way again; but for
what people did unasked, what became of a worker, and what a fork was changed in. Rows that were gone back over are no
part of the way: neither what was replied there nor the children that were called there are played.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from runs import driver
from runs.adapters.folder import RunFolder
from runs.adapters.scripted import ParamType
from runs.adapters.tool import ToolError
from runs.engine.effects import (
    ANSWER,
    Answer,
    ContextOverflowed,
    Failed,
    MadeFile,
    ModelReplied,
    Summarised,
    ToolReturned,
)
from runs.engine.tools import ToolSpec
from runs.machines import CATALOGUE
from runs.models import Exchange, Run
from runs.reading.given import settings_of
from runs.reading.live_way import Untold, called_by, live_asks
from runs.store import folder_of
from runs.store.moment import of_one_moment

Data = dict[str, Any]


@of_one_moment
def launch_of(run: Run) -> Data:
    """What `launch --batch` takes: the machine, the goal, the settings with the answers that were given, the script.

    `Untold` where the answers or the script can't be told.
    """
    settings = settings_of(run)
    settings.pop("model", None)
    return {"machine": run.machine, "goal": run.goal, "settings": settings, "script": script_of(run)}


@of_one_moment
def script_of(run: Run) -> Data:
    """The script that plays the run; `Untold` where its children can't be told."""
    script = _part(run)
    children: dict[str, list[Data]] = defaultdict(list)
    for child, nth in _descendants(run):
        parts, part = children[child.child_name], _part(child)
        if nth > len(parts):
            parts.append(part)
        elif parts[nth - 1] != part:
            why = (
                f"several runs called the child {child.child_name}, which went otherwise in each;"
                " a script has one part for all of them"
            )
            raise Untold(why)
    if children:
        script["subgraphs"] = {name: _in_order(parts) for name, parts in children.items()}
    usages = [usage for part in _parts(script) for row in part["usages"].values() for usage in row]
    if usages and all(usage == usages[0] for usage in usages):
        script["usage"] = usages[0]
        for part in _parts(script):
            del part["usages"]
    return script


def _in_order(parts: list[Data]) -> Data:
    first, *others = parts
    return {**first, "then": others} if others else first


def _parts(script: Data) -> list[Data]:
    parts = [script]
    for found in script.get("subgraphs", {}).values():
        parts += [found, *found.get("then", [])]
    return parts


def _descendants(run: Run) -> Iterator[tuple[Run, int]]:
    """The children on the way, and theirs; each with how many of its name its parent had called then."""
    called: Counter[str] = Counter()
    for child in called_by(run):
        called[child.child_name] += 1
        yield child, called[child.child_name]
        yield from _descendants(child)


def _part(run: Run) -> Data:
    """What one run plays: nothing is gone back over, so a reply that came from the cache is a reply like any other."""
    exchanges = list(run.exchanges.filter(answer_json__isnull=False, seq__in=live_asks(run)).order_by("seq"))
    replies: dict[str, list[Any]] = defaultdict(list)
    usages: dict[str, list[Data]] = defaultdict(list)
    for exchange in exchanges:
        if exchange.kind in ("model_call", "compaction"):
            replies[exchange.name].append(_reply(_answered(exchange)))
            usages[exchange.name].append(_usage(exchange))
    return {"replies": dict(replies), "tools": _tools(run, exchanges), "usages": dict(usages)}


def _answered(exchange: Exchange) -> Answer:
    found: Answer = ANSWER.validate_json(exchange.answer_json or "")
    return found


def _reply(answer: Answer) -> Any:
    """A reply as it is played: an object where its text is exactly what the object is played as, else the text."""
    match answer:
        case ModelReplied() | Summarised():
            beside = answer.model_dump(include={"reasoning", "ended"}, exclude_defaults=True)
            return {"$reply": _text_of(answer.text), **beside} if beside else _text_of(answer.text)
        case ContextOverflowed(message=why):
            return {"$error": "context_length", "message": why}
        case Failed(blame="transient", message=why):
            return {"$error": "transient", "message": why}
        case Failed(message=why):
            return {"$error": "fatal", "message": why}
    raise TypeError(f"{answer.kind} is no reply of a model")


def _text_of(text: str) -> Any:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return text
    plain = isinstance(read, dict) and not {"$error", "$reply"} & set(read)
    return read if plain and json.dumps(read, ensure_ascii=False) == text else text


def _usage(exchange: Exchange) -> Data:
    return {
        "input_tokens": exchange.input_tokens,
        "output_tokens": exchange.output_tokens,
        "cost_usd": exchange.cost_usd,
    }


# --- tools ----------------------------------------------------------------------------------------------------------


def _tools(run: Run, exchanges: Iterable[Exchange]) -> Data:
    """The tools that the run may call, each with what it gave; those of its script as the script has them."""
    played: Mapping[str, Any] = json.loads(run.script_json).get("tools") or {} if run.script_json else {}
    built_in = {spec.name for spec in CATALOGUE[run.machine].built_in}
    results: dict[str, list[Data]] = defaultdict(list)
    for exchange in exchanges:
        if exchange.kind == "tool_call" and exchange.nth:
            results[exchange.name].append(_result(run, _answered(exchange)))
    tools: Data = {}
    for name, spec in driver.tool_specs(run).items():
        if name in played:
            own = {"results": results[name]} if results[name] else {}
            tools[name] = {**played[name], **own}
        elif spec.permitted and not spec.child and name not in built_in:
            tools[name] = _tool(spec, results[name])
    return tools


def _tool(spec: ToolSpec, results: list[Data]) -> Data:
    properties = spec.parameters.get("properties") or {}
    known = set(spec.parameters) <= {"type", "properties", "required"}
    simple = known and all(
        set(schema) == {"type"} and schema["type"] in get_args(ParamType) for schema in properties.values()
    )
    takes: Data = {"parameters": spec.parameters}
    if simple:
        kinds = {name: schema["type"] for name, schema in properties.items()}
        takes = {"params": kinds, "required": spec.parameters.get("required") or []}
    return {
        "description": spec.description,
        **takes,
        "effects": spec.effects,
        "idempotent": spec.idempotent,
        **({"outward": spec.outward} if spec.outward else {}),
        **({"reads": spec.reads} if spec.reads else {}),
        "results": results,
    }


def _result(run: Run, answer: Answer) -> Data:
    match answer:
        case ToolReturned(value=value, files=files):
            beside = answer.model_dump(include={"exit_code", "stderr"})  # what is not set is left out
            played: Data = {"output": value, **beside}
            if files:
                played["files"] = [{"name": file.name, "text": _text(run, file)} for file in files]
            return played
        case Failed(blame=blame, message=why):
            return {"error": why, "kind": blame}
    raise TypeError(f"{answer.kind} is no result of a tool")


def _text(run: Run, file: MadeFile) -> str:
    """The file's text as it was kept; of an older run its beginning, as far as the result carries it."""
    try:
        kept = RunFolder(folder_of(run.pk)).kept(file.sha256) if file.sha256 else None
    except ToolError:
        kept = None
    return file.text if kept is None else kept.decode("utf-8", "replace")
