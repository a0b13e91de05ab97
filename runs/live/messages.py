"""The messages of the message layer, and their channel."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from django.conf import settings

INBOX: Final = 0
"""The topic of everything that waits for people; run ids count from 1; topics below 0 are people."""
LONGEST_DELTA = 8_000
"""Characters shown of a reply while it is written: its end."""
LARGEST_SENT: Final = 512 * 1024
"""Bytes of a message to a page; the server's own limit (`up`) is above it, and drops larger ones."""
SOCKET_SECONDS = 2.0


def channel_name() -> str:
    """Return the site's own channel: two sites may share one server, and never hear each other."""
    return f"agentsite:live:{hashlib.sha256(b'live' + settings.SECRET_KEY.encode()).hexdigest()[:16]}"


def topic_of(person: int) -> int:
    """Return the topic of a person's rights."""
    return -person


def ring_message(topic: int, seq: int) -> str:
    """Return a ring in its sent form."""
    return json.dumps({"run": topic, "seq": seq})


def text_message(run_id: int, node: str, text: str) -> str:
    """Return a model's text in its sent form: its end, if it is long."""
    shown = text if len(text) <= LONGEST_DELTA else f"…{text[-LONGEST_DELTA:]}"
    return json.dumps({"run": run_id, "node": node, "text": shown})


def read_message(data: bytes) -> Any:
    """Return a message's content, or None."""
    try:
        return json.loads(data)
    except ValueError:
        return None
