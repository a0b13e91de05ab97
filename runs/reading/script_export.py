"""Export a run as a script: the recorded replies and tool results in order, as the scripted model plays them.

Launched with the run's own settings and people's answers, the script makes the same steps again. Exceptions are unasked
actions by people, losses of workers, and the changes of a fork. Rolled-back steps are left out, with their replies and
children. A child's answers are part of its own settings, which every call of it shares. They are exported if the calls
were answered alike, as far as each went. See docs/commands.md, "Scripts".
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
from runs.engine.scripts import PYTHON
from runs.engine.tools import ToolSpec
from runs.machines import CATALOGUE
from runs.models import Decision, Exchange, Interrupt, Run
from runs.store.after_row import called_after, live_asks
from runs.store.creating import folder_of
from runs.store.db import of_one_moment
from runs.store.errors import NotPossible


class Untold(NotPossible):
    """A run can't be exported in the requested form; `why` without a full stop."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The run can't be exported in this form: {why}. Export it as a test (pytest) instead."
        )


def called_by(run: Run) -> list[Run]:
    """Return the children called on the run's path, in order; raises `Untold` if one is no longer stored."""
    called = called_after(run)
    calls = run.exchanges.filter(kind="child_run", seq__in=live_asks(run)).order_by("seq")
    seqs = list(calls.values_list("seq", flat=True))
    if lost := [seq for seq in seqs if seq not in called]:
        raise Untold(f"the child that step {lost[0]} of run {run.pk} called was deleted")
    return [called[seq] for seq in seqs]


def family(run: Run) -> Iterator[Run]:
    """Yield the run, the children called on its path, and theirs."""
    yield run
    for child in called_by(run):
        yield from family(child)


Data = dict[str, Any]

HEARD = ("respond", "reject", "abort")
"""Verdicts whose message is more than a remark: the run goes on with it."""


def settings_of(run: Run) -> Data:
    """Return the run's settings with its and its children's answers; raises `Untold` if they can't be exported."""
    _check_limits(run)
    return _with_answers(run.settings, [run])


def _with_answers(settings: Data, runs: list[Run]) -> Data:
    """Return the settings that all these runs have, with their answers."""
    asked = _common_answers(runs)
    if asked:
        settings = {name: value for name, value in settings.items() if name != "answers"}
        if answers := [answer for answer in asked if answer is not None]:
            settings["answers"] = answers
    called = [child for run in runs for child in called_by(run)]
    subgraphs = dict(settings.get("subgraphs") or {})
    for name in subgraphs:
        own = subgraphs[name].get("settings") or {}
        children = [child for child in called if child.child_name == name]
        if children and (told := _with_answers(own, children)) != own:
            subgraphs[name] = {**subgraphs[name], "settings": told}
    return {**settings, "subgraphs": subgraphs} if subgraphs else settings


def _common_answers(runs: list[Run]) -> list[Data | None]:
    """Return the answers that fit each of the runs, in the order of its questions; None stands for an open one."""
    told_by, told = runs[0], _asked(runs[0])
    for run in runs[1:]:
        asked = _asked(run)
        if any(_weight(one) != _weight(other) for one, other in zip(told, asked, strict=False)):
            why = (
                f"its child {run.child_name} got other answers in run {told_by.pk} than in run {run.pk}, but"
                " settings.answers gives every call the same answers"
            )
            raise Untold(why)
        if len(asked) > len(told):
            told_by, told = run, asked
    return told


def _weight(answer: Data | None) -> Data | None:
    """Return the answer as far as the run reads it."""
    if answer is None or answer["verdict"] in HEARD:
        return answer
    return {name: value for name, value in answer.items() if name != "message"}


# --- one run --------------------------------------------------------------------------------------------------------


def _questions(run: Run) -> list[Interrupt]:
    """Return the run's questions on its path; without those about lost calls, which a replay does not have."""
    found = run.interrupts.filter(seq__in=live_asks(run)).exclude(kind="may_have_happened")
    return list(found.select_related("decision").order_by("seq"))


def _asked(run: Run) -> list[Data | None]:
    """Return the answer to each question of the run; a person who stopped it at one has answered so."""
    stopped: Data | None = (
        {"verdict": "abort"} if run.exit_reason == "aborted" and not run.replayed_only else None
    )
    decisions = [getattr(question, "decision", None) for question in _questions(run)]
    return [stopped if decision is None else _answer(decision) for decision in decisions]


def _answer(decision: Decision) -> Data | None:
    """Return the decision as one given in advance; an unfinished rollback leaves its question open."""
    if decision.verdict == "rollback":
        return None
    answer: Data = {"verdict": decision.verdict}
    if decision.args_json is not None:
        answer["args"] = json.loads(decision.args_json)
    if decision.message:
        answer["message"] = decision.message
    if decision.allow_host:
        answer["allow_host"] = True
    return answer


def _check_limits(run: Run) -> None:
    """Raise `Untold` if rolled-back costs count against a limit: a launch does not spend them again."""
    runs = list(family(run))
    if not any(one.steps.filter(live=False).exists() for one in runs):
        return
    for one in runs:
        for question in _questions(one):
            if question.kind == "limit":
                why = (
                    f"step {question.seq} of run {one.pk} asked about the limit {question.limit}, which counted"
                    " rolled-back steps"
                )
                raise Untold(why)


@of_one_moment
def launch_of(run: Run) -> Data:
    """Return the input of `launch --batch`: the machine, the goal, the settings with the given answers, the script.

    Raises `Untold` if the answers or the script can't be exported.
    """
    settings = settings_of(run)
    settings.pop("model", None)
    return {"machine": run.machine, "goal": run.goal, "settings": settings, "script": script_of(run)}


@of_one_moment
def script_of(run: Run) -> Data:
    """Return the script that plays the run; raises `Untold` if its children can't be exported."""
    script = _part(run)
    children: dict[str, list[Data]] = defaultdict(list)
    for child, nth in _descendants(run):
        parts, part = children[child.child_name], _part(child)
        if nth > len(parts):
            parts.append(part)
        elif parts[nth - 1] != part:
            why = (
                f"several runs called the child {child.child_name}, which differed in each;"
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
    """Yield the children on the path, and theirs; each with how many of its name its parent had called by then."""
    called: Counter[str] = Counter()
    for child in called_by(run):
        called[child.child_name] += 1
        yield child, called[child.child_name]
        yield from _descendants(child)


def _part(run: Run) -> Data:
    """Return the script of one run: a reply from the cache is a reply like any other."""
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
    """Return a reply as it is played: an object if its text is exactly that object's, else the text."""
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
    """Return the tools that the run may call, each with its results; those of its script as the script has them.

    Scripts of the model run again: they come to the same calls, which have their results here.
    """
    played: Mapping[str, Any] = json.loads(run.script_json).get("tools") or {} if run.script_json else {}
    built_in = {PYTHON, *(spec.name for spec in CATALOGUE[run.machine].built_in)}
    results: dict[str, list[Data]] = defaultdict(list)
    for exchange in exchanges:
        if exchange.kind == "tool_call" and exchange.nth and (exchange.name != PYTHON or PYTHON in played):
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
        **({"reads_if": spec.reads_if} if spec.reads_if else {}),
        **({"asks": spec.asks} if spec.asks else {}),
        "results": results,
    }


def _result(run: Run, answer: Answer) -> Data:
    match answer:
        case ToolReturned(value=value, files=files):
            beside = answer.model_dump(include={"exit_code", "stderr"})  # unset values are left out
            played: Data = {"output": value, **beside}
            if files:
                played["files"] = [{"name": file.name, "text": _text(run, file)} for file in files]
            return played
        case Failed(blame=blame, message=why):
            return {"error": why, "kind": blame}
    raise TypeError(f"{answer.kind} is no result of a tool")


def _text(run: Run, file: MadeFile) -> str:
    """Return the file's stored text; of an older run its beginning, as far as the result carries it."""
    try:
        kept = RunFolder(folder_of(run.pk)).kept(file.sha256) if file.sha256 else None
    except ToolError:
        kept = None
    return file.text if kept is None else kept.decode("utf-8", "replace")
