"""A model behind any server that speaks OpenAI's chat completions: hosted ones, vLLM, llama.cpp, Ollama.

One call is one HTTP exchange with one deadline; nothing is tried twice here, since the engine does that and
writes it down. The exception is a server that names an optional parameter which it does not take: the call is
sent again without it.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, SecretStr, field_validator

from runs.adapters.chat_stream import Heard, chunks
from runs.adapters.prices import Tariff
from runs.adapters.provider_errors import (
    asked_to_wait,
    error_in,
    is_about,
    optional_parameter,
    overflowed,
    status_in,
)
from runs.adapters.provider_usage import CHARACTERS_PER_TOKEN, cached, cost_in, count, number
from runs.adapters.scrubbing import IN_PLACE, Scrubber
from runs.engine.effects import ContextOverflowed, Failed, ModelReplied, Usage
from runs.engine.ports import Message, ModelRequest, Watch
from runs.engine.values import MAX_TEXT, Value, clean_text

if TYPE_CHECKING:  # settings are read by the web server, which does without the HTTP library
    from runs.adapters.wire import Call, Net, Reply

log = logging.getLogger(__name__)

MAX_ERROR = 20_000

OutputMode = Literal["native", "tool", "json_object", "prompted", "none"]


class ModelSettings(Value):
    """How to reach a model; prices are USD per million tokens (None: by the public list, else 0)."""

    # A key that is refused must not be shown by the error about it.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str
    base_url: str
    """Up to and with the version, such as http://127.0.0.1:8080/v1."""
    model_id: str = Field(min_length=1, max_length=200)
    api_key: SecretStr = SecretStr("")
    output_mode: OutputMode = "native"
    """How a reply schema is asked for: as the server's own feature, as a tool's arguments, as JSON with the
    schema in the prompt (with or without the server's JSON mode), or not at all."""
    input_price: float | None = Field(default=None, ge=0)
    output_price: float | None = Field(default=None, ge=0)
    context_tokens: int | None = Field(default=None, ge=256)
    max_output_tokens: int = Field(default=2_048, ge=1)
    timeout_s: float = Field(default=120.0, gt=0, le=3_600)
    silence_s: float = Field(default=120.0, gt=0, le=3_600)
    """The longest wait for the next piece; a small machine reads a long prompt in silence."""
    seed: int | None = Field(default=None, ge=0)
    """Sent with each call where it is set; a server that refuses it is not asked without it."""
    guided: bool = False
    """The model is small: whoever writes its prompts adds worked examples and narrows the reply schema."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        url = url.strip().rstrip("/").removesuffix("/chat/completions")
        parts = urlsplit(url)
        plain = url.isascii() and url.isprintable() and not any(sign in url for sign in " ?#@\\")
        if not plain or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                "give an address such as https://api.example.com/v1, without user, query, blanks"
            )
        if parts.port == 0:
            raise ValueError("the port must be between 1 and 65535")
        return url

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, key: SecretStr) -> SecretStr:
        text = key.get_secret_value().strip()
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError(
                "the key holds characters that no key has (blanks, line ends, letters beyond ASCII)"
            )
        return SecretStr(text)


class OpenAICompatible:
    """The model port over one server."""

    def __init__(self, settings: ModelSettings, net: Net | None = None) -> None:
        self._settings = settings
        self._net = net
        self._scrubber = Scrubber(settings.api_key.get_secret_value())
        self._left_out: set[str] = set()
        """Optional parameters that this server has refused."""

    def ask(self, request: ModelRequest, watch: Watch) -> ModelReplied | ContextOverflowed | Failed:
        """One reply, streamed through `watch`; it ends by the settings' deadline whatever the server does."""
        from runs.adapters.wire import Deadline

        deadline = Deadline(self._settings.timeout_s)
        try:
            while True:
                answer = self._attempt(request, watch, deadline)
                if not isinstance(answer, _LeaveOut) or answer.parameter in self._left_out:
                    return answer.otherwise if isinstance(answer, _LeaveOut) else answer
                self._left_out.add(answer.parameter)
        except (TimeoutError, ConnectionError) as error:
            return self._unreached(error)

    def price(self, input_tokens: int) -> float:
        """What a call with so many input tokens may cost at most, in USD: its output as long as it may be."""
        return self._cost(input_tokens, self._settings.max_output_tokens)

    def _attempt(self, request: ModelRequest, watch: Watch, deadline: Any) -> _Outcome:
        from runs.adapters.wire import Net, anywhere, exchange, trusted

        call = self._call(request)
        net = self._net or Net()
        with exchange(call, deadline, trusted(), net, anywhere, self._settings.silence_s) as reply:
            if reply.status != 200:
                return self._refused(reply)
            heard = Heard(self._scrubber, by_tool=self._settings.output_mode == "tool")
            for chunk in chunks(reply):
                if error := error_in(chunk):
                    return self._read_error(status_in(error), error, reply)
                heard.take(chunk)
                if not watch(lambda: clean_text(heard.text)):
                    return Failed(blame="recoverable", message="The call was cut: it is no longer wanted.")
        heard.end()
        return self._replied(heard, call)

    def _replied(self, heard: Heard, call: Call) -> ModelReplied | Failed:
        if heard.ended is None:
            return Failed(blame="transient", message=f"{self._name} broke off in the middle of its reply.")
        if heard.unknown:
            log.warning(
                "%s ended a reply with the unknown reason %r", self._name, self._scrubbed(heard.unknown)
            )
        text = heard.text
        cut = heard.ended == "stop" and len(text) > MAX_TEXT
        return ModelReplied(
            text=clean_text(text),
            reasoning=clean_text(heard.reasoning),
            ended="length" if cut else heard.ended,
            usage=self._usage(heard, call),
            seed=self._settings.seed,
        )

    @property
    def _name(self) -> str:
        return f"The model server of “{self._settings.name}”"

    # what is sent

    def _call(self, request: ModelRequest) -> Call:
        from runs.adapters.wire import Call

        parts = urlsplit(f"{self._settings.base_url}/chat/completions")
        key = self._settings.api_key.get_secret_value()
        headers = [
            ("Content-Type", "application/json"),
            ("Accept", "text/event-stream, application/json"),
            ("User-Agent", "agentsite"),
        ]
        headers += [("Authorization", f"Bearer {key}")] if key else []
        body = json.dumps(self._body(request)).encode()
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return Call("POST", parts.scheme, parts.hostname or "", port, parts.path, tuple(headers), body)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        settings = self._settings
        longest = self._room(request)
        longest = min(longest, request.reply_tokens or longest)
        optional: dict[str, Any] = {
            "max_tokens": longest,
            "temperature": request.temperature,
            "stream_options": {"include_usage": True},
        }
        if "max_tokens" in self._left_out:
            optional["max_completion_tokens"] = longest
        if settings.seed is not None:
            optional["seed"] = settings.seed
        kept = {name: value for name, value in optional.items() if name not in self._left_out}
        messages = [{"role": message.author, "content": message.text} for message in self._messages(request)]
        return (
            {"model": settings.model_id, "messages": messages, "stream": True} | kept | self._format(request)
        )

    def _room(self, request: ModelRequest) -> int:
        """Tokens that the reply may have: more than usual only as far as the prompt leaves room in the context."""
        usual, context = self._settings.max_output_tokens, self._settings.context_tokens
        wanted = usual * request.room
        if wanted <= usual or context is None:
            return wanted
        prompt = sum(len(message.text) for message in request.messages) // CHARACTERS_PER_TOKEN
        return max(usual, min(wanted, context - prompt))

    def _messages(self, request: ModelRequest) -> list[Message]:
        """Neighbours of one author become one message, since many chat templates want them to alternate."""
        messages: list[Message] = []
        if request.reply_schema is not None and self._settings.output_mode in ("json_object", "prompted"):
            messages.append(Message(author="system", text=_in_words(request.reply_schema)))
        for message in request.messages:
            if messages and messages[-1].author == message.author:
                message = Message(author=message.author, text=f"{messages.pop().text}\n\n{message.text}")
            messages.append(message)
        return messages

    def _format(self, request: ModelRequest) -> dict[str, Any]:
        schema = request.reply_schema
        if schema is None:
            return {}
        name = re.sub(r"[^A-Za-z0-9_-]", "_", request.reply_name)[:64] or "reply"
        match self._settings.output_mode:
            case "native":
                form = {"name": name, "schema": schema, "strict": _is_strict(schema)}
                return {"response_format": {"type": "json_schema", "json_schema": form}}
            case "tool":
                function = {"name": name, "description": "Gives the reply.", "parameters": schema}
                # "required" and not the tool's name: llama.cpp knows only the former.
                return {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
            case "json_object":
                return {"response_format": {"type": "json_object"}}
            case "prompted" | "none":
                return {}

    # what it costs

    def _usage(self, heard: Heard, call: Call) -> Usage:
        """The server's own count and cost, or an estimate where it gives none."""
        counted = heard.usage
        tokens_in = count(counted.get("prompt_tokens"), len(call.body))
        tokens_out = count(counted.get("completion_tokens"), len(heard.text) + len(heard.reasoning))
        thought = number(counted, "completion_tokens_details", "reasoning_tokens")
        if thought and tokens_in + tokens_out + thought == counted.get("total_tokens"):
            tokens_out += thought  # this server does not count them among the others
        cost = cost_in(counted)
        if cost is None:
            cost = self._cost(tokens_in, tokens_out, min(cached(counted), tokens_in))
        return Usage(input_tokens=tokens_in, output_tokens=tokens_out, cost_usd=cost)

    def _cost(self, tokens_in: int, tokens_out: int, cached: int = 0) -> float:
        settings = self._settings
        tariff = Tariff(settings.model_id, settings.base_url, settings.input_price, settings.output_price)
        return tariff.charge(tokens_in, tokens_out, cached)

    # what went wrong

    def _unreached(self, error: OSError) -> Failed:
        from runs.adapters.wire import CertificateRefused

        blame: Literal["fatal", "transient"] = (
            "fatal" if isinstance(error, CertificateRefused) else "transient"
        )
        return Failed(blame=blame, message=self._scrubbed(f"{self._name} gave no reply. {error}"))

    def _refused(self, reply: Reply) -> _Outcome:
        text = reply.start(MAX_ERROR).decode("utf-8", "replace")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = text
        if isinstance(body, list) and body:
            body = body[0]
        error = body.get("error", body) if isinstance(body, dict) else body
        return self._read_error(reply.status, error, reply)

    def _read_error(self, status: int, error: Any, reply: Reply) -> _Outcome:
        """What an error means: by its code and words first, since servers differ in their statuses."""
        fields = error if isinstance(error, dict) else {"message": str(error)}
        said = str(fields.get("message") or fields.get("detail") or error)
        code = f"{fields.get('code')} {fields.get('type')}"
        named = fields.get("code") or fields.get("type") or "unknown"
        told = f"HTTP {status}" if reply.status != 200 else f"code {named}, in a reply of HTTP 200"
        if status in (400, 413, 422, 500) and overflowed(fields, f"{code} {said}"):
            return ContextOverflowed(message=self._scrubbed(said))
        if status == 413:
            return ContextOverflowed(message=f"{self._name} refuses so large a request.")
        if "insufficient_quota" in code or status == 402:
            why = f"{self._name} says that the account has no credit left ({told}): {said}"
            return Failed(blame="fatal", message=self._scrubbed(why))
        if status in (408, 409, 425, 429) or status >= 500:
            why = f"{self._name} is busy or ill ({told}{asked_to_wait(reply)}): {said}"
            return Failed(blame="transient", message=self._scrubbed(why))
        if self._settings.seed is not None and status in (400, 422) and is_about("seed", fields, said):
            why = f"{self._name} does not take a seed ({told}). Clear the seed in this model's profile. It says: {said}"
            return Failed(blame="fatal", message=self._scrubbed(why))
        fault = Failed(blame="fatal", message=self._scrubbed(self._advice(status, told, said)))
        refused = optional_parameter(fields, said) if status in (400, 422) else ""
        return _LeaveOut(refused, fault) if refused else fault

    def _advice(self, status: int, told: str, said: str) -> str:
        settings = self._settings
        match status:
            case 401 | 403:
                return f"{self._name} refuses the key ({told}). Check this model's API key. It says: {said}"
            case 404 | 405:
                return (
                    f"{self._name} knows no model “{settings.model_id}”, or no chat completions under "
                    f"{settings.base_url} ({told}). Check the model id and the base URL, which mostly "
                    f"ends in /v1. It says: {said}"
                )
            case _ if 300 <= status < 400:
                return f"{self._name} sends elsewhere ({told}). Set the base URL to its new place."
        return (
            f"{self._name} does not take the request ({told}). If it is about the reply's format, "
            f"choose another output mode than {settings.output_mode}. It says: {said}"
        )

    def _scrubbed(self, text: str) -> str:
        """`text`, short, and without the key, or what is left of one, should the server have echoed it."""
        key = self._settings.api_key.get_secret_value()
        text = self._scrubber.scrub(text)
        if key:  # a short one, too: these are no words that anything is done by
            text = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", IN_PLACE, text)
        return clean_text(_LIKE_A_KEY.sub(IN_PLACE, text)[:600])


_LIKE_A_KEY = re.compile(r"\b(sk|pk|key|gsk|xai)[-_][A-Za-z0-9*_-]{6,}|Bearer\s+\S+")


@dataclass(frozen=True)
class _LeaveOut:
    """The server does not take an optional parameter; `otherwise` is the answer where that is no way out."""

    parameter: str
    otherwise: Failed


_Outcome = ModelReplied | ContextOverflowed | Failed | _LeaveOut


def _in_words(schema: dict[str, Any]) -> str:
    return (
        "Reply with one JSON object and nothing else, without a fence and words around it, by this schema:\n"
        + json.dumps(schema, ensure_ascii=False)
    )


def _is_strict(schema: Any) -> bool:
    """Whether every object in `schema` is closed and requires all it has, as OpenAI's strict mode demands."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        names = set(schema.get("properties", {}))
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != names:
            return False
    return all(map(_is_strict, schema.values()))
