"""A model and tools that play prepared answers: for demonstrations, tests, and reproducing a run.

See docs/commands.md, "Scripts".
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from runs.adapters.folder import NameLeavesFolder, parts_of
from runs.engine.effects import (
    Blame,
    ContextOverflowed,
    EffectClass,
    Failed,
    HowEnded,
    MadeFile,
    ModelReplied,
    Role,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.engine.known_names import known_beside
from runs.engine.ports import ModelRequest, Watch
from runs.engine.snapshot import Worst
from runs.engine.tools import Reads, ToolSpec
from runs.engine.values import MAX_DEPTH, Json, Value, clean_text, depth_of

MAX_SCRIPT = 5_000_000
"""Characters of a script."""

COPIED_COUNT = ". The script covers the whole run: its first replies belong to the copied steps."

ParamType = Literal["string", "integer", "number", "boolean", "object", "array"]
ReplyError = Literal["context_length", "transient", "fatal"]
REPLY_NAMES = frozenset({"$reply", "reasoning", "ended"})
Seconds = Annotated[float, Field(ge=0, le=60)]


class BadScript(Exception):
    """A script that can't be played. `where` is the path to the fault, `what` the rest of the sentence."""

    def __init__(self, where: str, what: str) -> None:
        self.where, self.what = where, what
        super().__init__(
            f"The script is not right at {where}: {what}." if where else f"The script is not right: {what}."
        )


class ScriptedFile(Value):
    """A file made by a scripted tool."""

    name: StrictStr
    text: StrictStr = ""

    @field_validator("name")
    @classmethod
    def _stays_inside(cls, name: str) -> str:
        try:
            parts_of(name)
        except NameLeavesFolder as error:
            raise ValueError(str(error)) from None
        return name


class ScriptedResult(Value):
    """One result of a scripted tool: an output or an error. An exit code and stderr go with an output."""

    output: Json = None
    exit_code: Annotated[StrictInt, Field(ge=-(2**31), lt=2**32)] | None = None
    stderr: StrictStr = ""
    error: StrictStr | None = None
    kind: Blame = "recoverable"
    files: tuple[ScriptedFile, ...] = ()

    @model_validator(mode="after")
    def _is_one_of_both(self) -> ScriptedResult:
        given = self.model_fields_set
        if "error" in given and "output" in given:
            raise ValueError("a result is an output or an error, not both")
        if "error" in given and given & {"exit_code", "stderr"}:
            raise ValueError("exit_code and stderr stand beside an output, not beside an error")
        if "kind" in given and self.error is None:
            raise ValueError("kind says what an error is; there is no error")
        return self


class ScriptedTool(Value):
    """A tool of one run alone."""

    params: dict[StrictStr, ParamType] = {}
    parameters: dict[StrictStr, Any] | None = None
    """A whole JSON schema in place of `params` and `required`: that of a registered tool."""
    required: tuple[StrictStr, ...] = ()
    effects: EffectClass
    allowed: StrictBool = True
    results: tuple[ScriptedResult, ...] = ()
    description: StrictStr = ""
    idempotent: StrictBool = False
    outward: StrictStr = ""
    """The argument with the URL or host of a call, or that host itself."""
    reads: Reads = ""
    """The kind of data that a result brings into the run."""
    reads_if: dict[StrictStr, tuple[StrictStr, ...]] = {}
    """Values of an argument with which a call only reads."""
    asks: StrictStr = ""
    """The argument that holds a question to a person, whose answer is the result."""

    @model_validator(mode="after")
    def _requires_what_it_has(self) -> ScriptedTool:
        for name in self.required:
            if name not in self.params:
                raise ValueError(f"{name} is required, but not among params")
        if self.parameters is not None and (self.params or self.required):
            raise ValueError("parameters stand alone: params and required are in it")
        return self


class ScriptUsage(Value):
    """The charge of every model call."""

    input_tokens: StrictInt = Field(default=0, ge=0)
    output_tokens: StrictInt = Field(default=0, ge=0)
    cost_usd: float = Field(default=0.0, ge=0, le=1_000_000, strict=True)


class Pace(Value):
    """How slowly a demonstration goes, so a person can watch: seconds per model call and tool call."""

    model_s: Seconds = 0.0
    tool_s: Seconds = 0.0
    stream: StrictBool = True


Replies = dict[Role, tuple[Json, ...]]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,100}$")]


class ScriptPart(Value):
    """A child run's own script; None: the same as its parent's."""

    replies: Replies | None = None
    tools: dict[ToolName, ScriptedTool] | None = None
    usages: dict[Role, tuple[ScriptUsage, ...]] | None = None
    """The charge of each call of a role, in order; later calls by `usage`."""

    @field_validator("replies")
    @classmethod
    def _can_be_played(cls, replies: Replies | None) -> Replies | None:
        for role, row in (replies or {}).items():
            for at, reply in enumerate(row):
                _check_reply(f"{role}.{at}", reply)
        return replies


class ChildPart(ScriptPart):
    """The scripts of the child runs of one name."""

    then: tuple[ScriptPart, ...] = ()
    """The scripts of its parent's second such run, the third, and so on; the last one serves all others."""

    def nth(self, number: int) -> ScriptPart:
        """Return the script of the run of that number, from 1."""
        parts: tuple[ScriptPart, ...] = (self, *self.then)
        return parts[min(number, len(parts)) - 1]


class Script(ScriptPart):
    """A whole script."""

    usage: ScriptUsage = ScriptUsage()
    subgraphs: dict[StrictStr, ChildPart] = {}
    pace: Pace = Pace()

    def as_json(self) -> dict[str, Any]:
        """Return the given values, as they are stored and read again."""
        return self.model_dump(mode="json", exclude_unset=True)

    def parts_of(self, name: str) -> tuple[ScriptPart, ...]:
        """Return the scripts of the child runs of that name, in order; none if they play their parent's."""
        own = self.subgraphs.get(name)
        return () if own is None else (own, *own.then)

    def for_child(self, name: str, nth: int = 1) -> Script:
        """Return the script of the child run `name`, its calls counted from 1; `nth` counts its parent's such runs."""
        if name not in self.subgraphs:
            return self
        own = self.subgraphs[name].nth(nth)
        parts = ("replies", "tools", "usages")
        given = {part: getattr(own, part) for part in parts if getattr(own, part) is not None}
        return self.model_copy(update=given)


def _check_reply(where: str, reply: Any) -> None:
    """Check a reply: an object, a text, an object with "$error" and a message at most, or one with "$reply"."""
    if not isinstance(reply, str | dict):
        raise ValueError(f'reply {where} must be an object, a text, or {{"$error": …}}')
    if isinstance(reply, dict) and "$reply" in reply:
        _check_played(where, reply)
        return
    if not isinstance(reply, dict) or "$error" not in reply:
        return
    alone = not set(reply) - {"$error", "message"} and isinstance(reply.get("message", ""), str)
    if not alone or reply["$error"] not in get_args(ReplyError):
        raise ValueError(
            f'reply {where}: "$error" stands alone and is one of {", ".join(get_args(ReplyError))}; '
            "only a message may stand beside it"
        )


def _check_played(where: str, reply: dict[str, Any]) -> None:
    told = reply.get("ended", "stop") in get_args(HowEnded) and isinstance(reply.get("reasoning", ""), str)
    if set(reply) - REPLY_NAMES or not told or not isinstance(reply["$reply"], str | dict):
        raise ValueError(
            f'reply {where}: "$reply" is a text or an object; beside it may stand reasoning (a text) and '
            f"ended (one of {', '.join(get_args(HowEnded))})"
        )


def parse_script(given: str | Any) -> Script:
    """Return the script in a person's JSON text, or in an object read from one; raises `BadScript`."""
    if isinstance(given, str):
        _refuse_long(len(given))
        given = _read(given)
    else:
        _refuse_long(_length_of(given))
    if depth_of(given) > MAX_DEPTH:
        raise BadScript("", f"it is nested too deeply; {MAX_DEPTH} levels are the most")
    return _script_in(given)


def stored_script(text: str) -> Script:
    """Return the script in a stored JSON text, which was checked before."""
    return _script_in(_read(text))


def _script_in(given: Any) -> Script:
    if not isinstance(given, dict):
        raise BadScript(
            "", "it must be one JSON object, with replies, tools, usage and subgraphs as far as needed"
        )
    try:
        return Script.model_validate(given)
    except ValidationError as error:
        raise _bad(error) from None


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadScript(
            f"line {error.lineno}, column {error.colno}", f"it is no JSON ({error.msg})"
        ) from None
    except (RecursionError, ValueError):
        raise BadScript("", "it is no JSON that can be read (too deep, or a number too long)") from None


def _length_of(given: Any) -> int:
    """Return the characters of the same script as JSON text."""
    try:
        return len(json.dumps(given, ensure_ascii=False, separators=(",", ":")))
    except (TypeError, ValueError, RecursionError):
        raise BadScript(
            "", "it is no JSON (too deep, or it holds something that JSON has no word for)"
        ) from None


def _refuse_long(length: int) -> None:
    if length > MAX_SCRIPT:
        raise BadScript("", f"it has {length} characters; {MAX_SCRIPT} are the most")


def _bad(error: ValidationError) -> BadScript:
    """Return the first fault, in words."""
    fault = error.errors()[0]
    # pydantic marks the key of a mapping and the members of a union by parts that are no names of the script.
    where = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    match fault["type"]:
        case "missing":
            what = "it is missing" + (
                f"; give one of {', '.join(get_args(EffectClass))}" if "effects" in where else ""
            )
        case "extra_forbidden":
            known = ", ".join(known_beside(Script, fault["loc"]))
            what = f"this name is not known here; known: {known}"
        case "value_error":
            what = str(fault["ctx"]["error"]).rstrip(".")
        case "literal_error":
            what = f"{_shown(fault['input'])} is not one of {fault['ctx']['expected']}"
        case "string_pattern_mismatch":
            what = f"{_shown(fault['input'])} is no name of a tool (letters, digits, _ . : -)"
        case kind if kind in _MUST_BE:
            what = f"it must be {_MUST_BE[kind]}, not {_shown(fault['input'])}"
        case _:
            what = f"{fault['msg'][:1].lower()}{fault['msg'][1:]}, not {_shown(fault['input'])}"
    return BadScript(where, what)


_MUST_BE = {
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}


def _shown(value: Any) -> str:
    return clean_text(repr(value)[:80])


class ScriptedModel:
    """Plays a script's replies, each role's in order; it never waits unless the script sets a pace.

    A reply is a text, or an object that is sent as JSON. {"$error": "context_length"|"transient"|"fatal", "message": …}
    is a call that fails. {"$reply": text or object, "reasoning": text, "ended": "stop"|"length"|"content_filter"|
    "error"} is a reply with the server's additions: the model's reasoning, and how the reply ended.
    """

    def __init__(
        self, script: Script, sleep: Callable[[float], None] = time.sleep, *, begun: bool = False
    ) -> None:
        self._script = script
        self._sleep = sleep
        self._begun = begun
        """True if the run began with another run's steps: their calls are counted, too."""

    def ask(self, request: ModelRequest, watch: Watch) -> ModelReplied | ContextOverflowed | Failed:
        """Return the reply number `request.nth` of the role; its usage is charged if there is one."""
        row = (self._script.replies or {}).get(request.role, ())
        if not 1 <= request.nth <= len(row):
            why = f"script exhausted (role {request.role}, call {request.nth})"
            return Failed(blame="fatal", message=f"{why}{COPIED_COUNT}" if self._begun else why)
        reply = row[request.nth - 1]
        if isinstance(reply, dict) and "$error" in reply:
            return _reply_error(reply["$error"], clean_text(reply.get("message", "")))
        beside: dict[str, Any] = {}
        if isinstance(reply, dict) and "$reply" in reply:
            beside = {
                "reasoning": clean_text(reply.get("reasoning", "")),
                "ended": reply.get("ended", "stop"),
            }
            reply = reply["$reply"]
        text = clean_text(reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False))
        if not self._spoken(text, watch):
            return Failed(blame="recoverable", message="The call was cut off: the run no longer needs it.")
        return ModelReplied(text=text, usage=self._charge(request.role, request.nth), **beside)

    def _charge(self, role: Role, nth: int) -> Usage:
        row = (self._script.usages or {}).get(role, ())
        usage = row[nth - 1] if nth <= len(row) else self._script.usage
        return Usage(**usage.model_dump())

    def next_use(self, role: Role, nth: int) -> Worst:
        """Return the usage of call number `nth` of the role, which a script knows beforehand."""
        usage = self._charge(role, nth)
        return Worst(usage.cost_usd, usage.input_tokens + usage.output_tokens)

    def price(self, input_tokens: int) -> float:
        """Return the script's charge for a call, in USD."""
        return self._script.usage.cost_usd

    def _spoken(self, text: str, watch: Watch) -> bool:
        """Send `text` at the script's pace; return False if the call is no longer wanted."""
        pace = self._script.pace
        if pace.model_s == 0:
            return watch(lambda: text)
        # Ten checks a second, so that a cancel works while the demonstration waits.
        beats = max(1, round(pace.model_s * 10))
        for beat in range(1, beats + 1):
            shown = len(text) * (beat - 1) // beats if pace.stream else 0
            if not watch(partial(str, text[:shown])):
                return False
            self._sleep(pace.model_s / beats)
        return watch(lambda: text)


def _reply_error(kind: ReplyError, message: str) -> ContextOverflowed | Failed:
    match kind:
        case "context_length":
            return ContextOverflowed(message=message or "The script says that the prompt is too long.")
        case "transient" | "fatal":
            return Failed(blame=kind, message=message or f"The script says that this call fails ({kind}).")


class ScriptedTools:
    """Plays the results of a script's tools, each tool's in order, the last one again and again."""

    def __init__(self, script: Script, sleep: Callable[[float], None] = time.sleep) -> None:
        self._tools = script.tools or {}
        self._pace = script.pace
        self._sleep = sleep
        self._specs = {name: _spec(name, tool) for name, tool in self._tools.items()}

    def specs(self) -> dict[str, ToolSpec]:
        """Return the tools by name."""
        return dict(self._specs)

    def call(self, call: ToolCall, nth: int) -> ToolReturned | Failed:
        """Return result number `nth` of the tool; its files are named, and written by the caller."""
        results = self._tools[call.tool].results
        if self._pace.tool_s:
            self._sleep(self._pace.tool_s)
        if not results:
            return ToolReturned(value=None)
        result = results[min(max(nth, 1), len(results)) - 1]
        if result.error is not None:
            return Failed(blame=result.kind, message=clean_text(result.error))
        return ToolReturned(
            value=result.output,
            exit_code=result.exit_code,
            stderr=result.stderr,
            files=tuple(map(_made, result.files)),
        )


def _spec(name: str, tool: ScriptedTool) -> ToolSpec:
    names = dict.fromkeys((*tool.required, *tool.params))  # a stored script has lost the order of `params`
    properties = {name: {"type": tool.params[name]} for name in names}
    simple = {"type": "object", "properties": properties, "required": list(tool.required)}
    return ToolSpec(
        name=name,
        description=tool.description,
        parameters=simple if tool.parameters is None else tool.parameters,
        effects=tool.effects,
        idempotent=tool.idempotent,
        permitted=tool.allowed,
        outward=tool.outward,
        reads=tool.reads,
        reads_if=tool.reads_if,
        asks=tool.asks,
    )


def _made(file: ScriptedFile) -> MadeFile:
    return MadeFile(name=file.name, text=file.text, size=len(file.text.encode("utf-8", "replace")))
