"""A run as a script: the recorded replies and tool results in order, as the scripted model plays them.

Launched with the run's own settings and the answers that people gave, the script makes the same rows; but for what
people did unasked (a rollback, a stop), what became of a worker, and what a fork was changed in.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
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
from runs.models import Decision, Exchange, Run
from runs.store import folder_of

Data = dict[str, Any]


def launch_of(run: Run) -> Data:
    """What `launch --batch` takes: the machine, the goal, the settings with the answers that were given, the script."""
    settings = run.settings
    settings.pop("model", None)
    given = Decision.objects.filter(interrupt__run=run).order_by("at", "pk")
    answers = [_answer(decision) for decision in given]
    if answers:
        settings["answers"] = answers
    return {"machine": run.machine, "goal": run.goal, "settings": settings, "script": script_of(run)}


def _answer(decision: Decision) -> Data:
    answer: Data = {"verdict": decision.verdict}
    if decision.args_json is not None:
        answer["args"] = json.loads(decision.args_json)
    if decision.message:
        answer["message"] = decision.message
    if decision.to_step is not None:
        answer["to_step"] = decision.to_step
    return answer


def script_of(run: Run) -> Data:
    """The script that plays the run."""
    script = _part(run)
    children: dict[str, list[Data]] = defaultdict(list)
    for child in _descendants(run):
        children[child.child_name].append(_part(child))
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


def _descendants(run: Run) -> Iterable[Run]:
    for child in Run.objects.filter(parent=run).order_by("pk"):
        yield child
        yield from _descendants(child)


def _part(run: Run) -> Data:
    """What one run plays."""
    exchanges = list(run.exchanges.filter(nth__gt=0, answer_json__isnull=False).order_by("nth"))
    asked = [one for one in exchanges if one.kind in ("model_call", "compaction")]
    replies: dict[str, list[Any]] = defaultdict(list)
    usages: dict[str, list[Data]] = defaultdict(list)
    for exchange in asked:
        row = replies[exchange.name]
        usages[exchange.name] += [{}] * (exchange.nth - len(row))
        row += [{"$error": "fatal", "message": "This reply was not kept."}] * (exchange.nth - 1 - len(row))
        row.append(_reply(_answered(exchange)))
        usages[exchange.name][exchange.nth - 1] = _usage(exchange)
    return {"replies": dict(replies), "tools": _tools(run, exchanges), "usages": dict(usages)}


def _answered(exchange: Exchange) -> Answer:
    found: Answer = ANSWER.validate_json(exchange.answer_json or "")
    return found


def _reply(answer: Answer) -> Any:
    """A reply as it is played: an object where its text is exactly what the object is played as, else the text."""
    match answer:
        case ModelReplied(text=text) | Summarised(text=text):
            try:
                read = json.loads(text)
            except (ValueError, RecursionError):
                return text
            plain = isinstance(read, dict) and "$error" not in read
            return read if plain and json.dumps(read, ensure_ascii=False) == text else text
        case ContextOverflowed(message=why):
            return {"$error": "context_length", "message": why}
        case Failed(blame="transient", message=why):
            return {"$error": "transient", "message": why}
        case Failed(message=why):
            return {"$error": "fatal", "message": why}
    raise TypeError(f"{answer.kind} is no reply of a model")


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
        if exchange.kind == "tool_call":
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
        "results": results,
    }


def _result(run: Run, answer: Answer) -> Data:
    match answer:
        case ToolReturned(value=value, files=files):
            played: Data = {"output": value}
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
