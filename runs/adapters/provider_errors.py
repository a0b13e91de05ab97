"""What a model server's error means: by its numbers and codes, and only where it gives none by its words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from runs.adapters.provider_usage import number

if TYPE_CHECKING:
    from runs.adapters.wire import Reply

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|context (window|length|size|limit)"
    r"|prompt is too long|input is too long|too many (input )?tokens|reduce the length",
    re.IGNORECASE,
)
_OPTIONAL = ("max_tokens", "temperature", "stream_options")
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 529,
}
"""The status that belongs to a word by which providers name an error."""


def error_in(chunk: dict[str, Any]) -> Any:
    """The error that stands in place of a reply; empty where there is none."""
    if chunk.get("error"):
        return chunk["error"]
    choices = chunk.get("choices")
    if not choices and "usage" not in chunk and (chunk.get("message") or chunk.get("detail")):
        return chunk
    of_choices = choices if isinstance(choices, list) else []
    return next((one["error"] for one in of_choices if isinstance(one, dict) and one.get("error")), None)


def status_in(error: Any) -> int:
    """The status that an error in a reply of status 200 stands for; 500 where it names none."""
    fields = error if isinstance(error, dict) else {}
    for name in ("code", "status", "type"):
        given = str(fields.get(name))
        if given in _STATUS:
            return _STATUS[given]
        if re.fullmatch("[45][0-9][0-9]", given):
            return int(given)
    return 500


def overflowed(fields: dict[str, Any], words: str) -> bool:
    """Whether the prompt was too long: by the server's own numbers, else by its words."""
    needed, room = number(fields, "n_prompt_tokens"), number(fields, "n_ctx")
    return 0 < room < needed or _OVERFLOW.search(words) is not None


def optional_parameter(fields: dict[str, Any], said: str) -> str:
    """The optional parameter that the server's error is about, or nothing."""
    return next((name for name in _OPTIONAL if is_about(name, fields, said)), "")


def is_about(parameter: str, fields: dict[str, Any], said: str) -> bool:
    """Return whether the server's error is that it does not take the parameter."""
    if fields.get("param") in (*_OPTIONAL, "seed"):
        return bool(fields["param"] == parameter)
    unsupported = re.search(
        r"unsupported|not supported|unrecognized|unknown|not permitted|extra", said, re.IGNORECASE
    )
    return unsupported is not None and re.search(rf"\b{parameter}\b", said) is not None


def asked_to_wait(reply: Reply) -> str:
    """How long a busy server asks to wait, in words; empty where it does not."""
    wait = reply.headers.get("retry-after", "")
    return f", and asks to wait {wait[:40]} seconds" if wait.isdigit() else ""
