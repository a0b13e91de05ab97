"""The meaning of a model server's error: from its numbers and codes, and from its words only without any."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from runs.adapters.models.counts import number
from runs.adapters.models.waits import asked_wait

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|string_above_max_length|tokens_limit_reached"
    r"|context[ _-](window|length|size|limit)|(prompt|input)s?( \([^)]*\))? is too (long|large)"
    r"|too many (input )?tokens|reduce the length|maximum (prompt|model|input) length"
    r"|token count.{0,40}exceeds"
    r"|exceed(s|ed)? (the |max(imum)? |model )*(input |prompt )?(token limit|length|number of tokens)"
    r"|prompt exceeds|max_new_tokens` must be|range of input length",
    re.IGNORECASE,
)
_STATUS = {
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "authentication_error": 401,
    "unauthenticated": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "not_found": 404,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "unavailable": 503,
    "overloaded_error": 529,
}
"""The status for a provider's error name."""

_SAYS_NO = re.compile(
    r"unsupported|not (?:be |currently |yet )?(?:support|permit|allow|accept|implement|available|enabled)"
    r"|(?:does|do)(?:n't| not) (?:support|allow|accept)|unrecognized|unknown|unexpected|extra|deprecated"
    r"|only .{0,40}(?:supported|allowed)|must be 'json_schema'",
    re.IGNORECASE,
)
_ABOUT = {
    "seed": r"\bseed\b",
    "reasoning_effort": r"\breasoning[_. ]effort\b|\breasoning\.|\bthinking\b",
    "stream_options": r"\bstream_options\b",
    "max_tokens": r"\bmax_tokens\b",
    "temperature": r"\btemperature\b",
    "response_format": r"\b(response[_ ]format|json_schema|json[_ ](mode|object)|structured outputs?)\b",
    "system": r"\bsystem[ _'\"]{0,2}(role|message|prompt|instruction)s?\b|\brole\W{0,4}system\b"
    r"|\bonly user and assistant roles\b",
    "stream": r"\bstream(?:ing|ed)?\b",
}
"""Servers' words for an option that a call can do without."""

_FIELDS = {"reasoning": "reasoning_effort", "thinking": "reasoning_effort"}
"""Fields of requests that hold an option of another name."""


class Refused(Exception):
    """A server answered with an error, by its status or in place of a reply."""

    def __init__(
        self,
        status: int,
        error: Any,
        headers: Mapping[str, str],
        had: Collection[str] = (),
        *,
        in_reply: bool = False,
    ) -> None:
        self.status = status
        self._had = set(had)
        self.fields: dict[str, Any] = error if isinstance(error, dict) else {"message": str(error)}
        self.said = str(self.fields.get("message") or self.fields.get("detail") or error)
        self.headers = headers
        self.in_reply = in_reply
        super().__init__(self.said)

    @property
    def code(self) -> str:
        """Return the provider's names for the error."""
        return " ".join(str(self.fields.get(name)) for name in ("code", "type", "status"))

    @property
    def told(self) -> str:
        """Return the error's number, for people."""
        named = self.fields.get("code") or self.fields.get("type") or "unknown"
        return f"code {named}, in a reply of HTTP 200" if self.in_reply else f"HTTP {self.status}"

    @property
    def lacks_credit(self) -> bool:
        """Return True if the account can pay no more: by status or code; one provider has only words for it."""
        named = any(word in self.code for word in ("insufficient_quota", "exceeded_current_quota"))
        return self.status == 402 or named or "credit balance is too low" in self.said

    @property
    def refuses_key(self) -> bool:
        """Return True if the key is refused: by status, else by the error's own name."""
        if self.status in (401, 403):
            return True
        details = self.fields.get("details")
        reasons = (
            [one.get("reason") for one in details if isinstance(one, dict)]
            if isinstance(details, list)
            else []
        )
        named = [_STATUS.get(word) for word in self.code.lower().split()]
        return self.status == 400 and ("API_KEY_INVALID" in reasons or 401 in named or 403 in named)

    @property
    def overflowed(self) -> bool:
        """Return True if the prompt was too long: by the server's own numbers, else by its words."""
        if self.status == 413:
            return True
        if self.status not in (400, 422, 500):
            return False
        needed, room = number(self.fields, "n_prompt_tokens"), number(self.fields, "n_ctx")
        return 0 < room < needed or _OVERFLOW.search(f"{self.code} {self.said}") is not None

    @property
    def option(self) -> str:
        """Return the option of the call that the server rejects; empty if the error is about something else."""
        if self.status == 500:
            had = self._had & {"system"}  # some servers' templates fail on it
        elif self.status in (400, 422, 501):
            had = self._had
        else:
            return ""
        known = {"response_format" if name == "json_schema" else name: name for name in had}
        for named in self._named():
            first = re.split(r"[.\[]", named)[0]
            if (about := _FIELDS.get(first, first)) in _ABOUT:
                return known.get(about, "")
        if _SAYS_NO.search(self.said) is None:
            return ""
        return next(
            (known[name] for name, words in _ABOUT.items() if name in known and self._says(words)), ""
        )

    def _says(self, words: str) -> bool:
        return re.search(words, self.said, re.IGNORECASE) is not None

    def _named(self) -> list[str]:
        """Return the subjects of the error, from the server's own fields."""
        named = [str(self.fields.get("param") or "")]
        detail = self.fields.get("detail")
        for one in detail if isinstance(detail, list) else []:
            place = one.get("loc") if isinstance(one, dict) else None
            named += [str(step) for step in place] if isinstance(place, list) else []
        return named

    @property
    def wait_s(self) -> float:
        """Return the seconds that a busy server asks to wait; 0 if it does not say."""
        return asked_wait(self.headers, self.fields, datetime.now(UTC))


def error_in(chunk: dict[str, Any]) -> Any:
    """Return the error that stands in place of a reply; empty if there is none."""
    if chunk.get("error"):
        return chunk["error"]
    if chunk.get("type") == "error":
        return chunk
    response = chunk.get("response")
    if chunk.get("type") == "response.failed" and isinstance(response, dict) and response.get("error"):
        return response["error"]
    if set(chunk) <= _ERROR_FIELDS and (isinstance(chunk.get("message"), str) or chunk.get("detail")):
        return chunk
    choices = chunk.get("choices")
    of_choices = choices if isinstance(choices, list) else []
    return next((one["error"] for one in of_choices if isinstance(one, dict) and one.get("error")), None)


_ERROR_FIELDS = {"message", "detail", "code", "type", "status", "param", "object", "request_id"}


def status_in(error: Any) -> int:
    """Return the status of an error in a reply of status 200; 500 if it names none."""
    fields = error if isinstance(error, dict) else {}
    for name in ("code", "status", "type"):
        given = str(fields.get(name)).lower()
        if given in _STATUS:
            return _STATUS[given]
        if re.fullmatch("[45][0-9][0-9]", given):
            return int(given)
    return 500
