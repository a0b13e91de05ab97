"""Kombu's Redis transport for hints only: any other message in the queue would end the worker.

A hint names a run. It is rebuilt here, so no other field of a message reaches Celery.
"""

from __future__ import annotations

import base64
import json
import logging
import uuid
from queue import Empty
from typing import Any

from kombu.transport import redis

TASK = "runs.tasks.drive_run"
LARGEST_ID = 2**63 - 1

log = logging.getLogger(__name__)


class Channel(redis.Channel):
    """Drops unparsable messages."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except (Empty, *self.connection.connection_errors, *self.connection.channel_errors):
            raise
        except Exception as fault:
            _drop(fault)
            return False


class Transport(redis.Transport):
    """Drops messages that are no hints."""

    Channel = Channel

    def _deliver(self, message: Any, queue: str) -> None:
        try:
            run_id = run_in(message)
        except Exception as fault:
            _drop(fault)
        else:
            super()._deliver(hint_at(run_id, queue), queue)


class NoHint(ValueError):
    """A message without a run."""

    def __init__(self, task: object) -> None:
        super().__init__(f"no run is named in a message for task {str(task)[:100]!r}")


def run_in(message: Any) -> int:
    """Return the run in a message of Celery's; any exception means that it is no hint."""
    task = message["headers"]["task"]
    args, kwargs, _ = json.loads(base64.b64decode(message["body"], validate=True))
    match args:
        case [int(run_id)] if (
            task == TASK and kwargs == {} and 0 < run_id <= LARGEST_ID and run_id is not True
        ):
            return run_id
    raise NoHint(task)


def hint_at(run_id: int, queue: str) -> dict[str, Any]:
    """Return the message that calls Celery's task for a run."""
    tag = str(uuid.uuid4())
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return {
        "body": base64.b64encode(json.dumps([[run_id], {}, embedded]).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": TASK, "id": tag, "root_id": tag, "timelimit": [None, None]},
        "properties": {
            "correlation_id": tag,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "delivery_tag": tag,
            "body_encoding": "base64",
        },
    }


def _drop(fault: Exception) -> None:
    log.warning("A message in the queue is no hint and is dropped: %s: %.200s", type(fault).__name__, fault)
