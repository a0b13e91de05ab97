"""The models that a server offers, with their sizes where it tells them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from runs.adapters.models.counts import number
from runs.adapters.models.findings import Offered
from runs.adapters.models.framing import as_object
from runs.adapters.models.refusals import Refused
from runs.adapters.models.settings import ModelSettings
from runs.adapters.models.transport import PORTS, key_header
from runs.adapters.wire import Call, Deadline, Net, anywhere, exchange, trusted
from runs.engine.values import clean_text

MAX_LIST = 4_000_000
"""Most bytes read of a list."""

MOST = 1_000
"""Most models kept of a list."""

PATHS = {
    "anthropic": "/v1/models?limit=1000",
    "google": "/v1beta/models?pageSize=1000",
    "mistral": "/v1/models",
}
"""Where a kind of server has its list; `/models` below the address by default."""

VERSIONS = ("/v1beta", "/v1")

CONTEXTS = ("context_length", "max_model_len", "max_context_length", "inputTokenLimit", "max_input_tokens")
"""The servers' names for the context of a model, in tokens."""

REPLIES = ("max_completion_tokens", "outputTokenLimit", "max_output_tokens", "max_tokens")
"""Their names for the longest reply."""


class NoList(Exception):
    """The server has no list of models."""


def offered(settings: ModelSettings, deadline: Deadline, net: Net | None = None) -> tuple[Offered, ...]:
    """Return the server's models. Raises `NoList`, `Refused` for a refused key, or an error of the connection."""
    own = urlsplit(settings.base_url)
    base = own.path.rstrip("/")
    if settings.kind in PATHS:
        base = next((base.removesuffix(one) for one in VERSIONS if base.endswith(one)), base)
    target = base + PATHS.get(settings.kind, "/models")
    headers = [("Accept", "application/json"), ("User-Agent", "agentsite"), *key_header(settings)]
    if settings.kind == "anthropic":
        headers.append(("anthropic-version", "2023-06-01"))
    port = own.port or PORTS[own.scheme]
    call = Call("GET", own.scheme, own.hostname or "", port, target, tuple(headers))
    with exchange(call, deadline, trusted(), net or Net(), anywhere, settings.silence_s) as reply:
        body = _decoded(reply.start(MAX_LIST))
        if reply.status in (401, 403):
            raise Refused(reply.status, as_object(body).get("error") or "no words", reply.headers)
        if reply.status != 200:
            raise NoList
    key = settings.api_key.get_secret_value()
    return tuple(one for one in _models(body) if not key or key not in one.model_id)[:MOST]


def _decoded(body: bytes) -> Any:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict | list) else {}


def _models(body: Any) -> Iterator[Offered]:
    listed = body if isinstance(body, list) else body.get("data") or body.get("models")
    if not isinstance(listed, list):
        raise NoList
    for one in listed:
        if not isinstance(one, dict):
            continue
        name = clean_text(str(one.get("id") or one.get("name") or "")).removeprefix("models/")
        if 0 < len(name) <= 200:
            yield Offered(
                model_id=name, context_tokens=_size(one, CONTEXTS), reply_tokens=_size(one, REPLIES)
            )


def _size(one: dict[str, Any], names: tuple[str, ...]) -> int:
    """Return a size, from the model's own fields or from those of its server beneath."""
    places = (one, one.get("top_provider"), one.get("meta"), one.get("capabilities"))
    found = (number(place, name) for place in places if isinstance(place, dict) for name in names)
    return next(filter(None, found), 0)
