"""Hints for workers, sent beside the work: "look at run X". Losing, repeating or reordering one loses nothing."""

from __future__ import annotations

import atexit
import logging

from django.conf import settings
from django.utils.module_loading import import_string

from runs.failpoints import failpoint
from runs.messenger import Messenger

TASK = "runs.tasks.drive_run"

FLUSH_AT_EXIT_S = 1.0
"""Seconds that an ending process waits for the broker to take its hints."""

log = logging.getLogger(__name__)


def hint(*run_ids: int) -> None:
    """Hint that these runs want a worker, without waiting for the broker. The sweep finds the runs of lost messages."""
    failpoint("before_hint")
    if settings.HINTS:
        messenger.post(*run_ids)


def hint_beside(run_id: int) -> bool:
    """Hint the same for a worker, which drives the run on itself if the broker does not take the hint at once."""
    failpoint("before_hint")
    return not settings.HINTS or messenger.taken(run_id)


def send(run_id: int) -> bool:
    """Send a hint, and wait for the broker. Return whether it took it.

    The queue's application is loaded with the first hint: most commands send none.
    """
    try:
        import_string(settings.QUEUE_APPLICATION).send_task(TASK, (run_id,), retry=False, ignore_result=True)
    except Exception as fault:
        log.warning("no hint for run %s (%s); the sweep will find it", run_id, fault)
        return False
    return True


def flush(seconds: float = FLUSH_AT_EXIT_S) -> bool:
    """Wait until each hint is sent or lost. Return whether it was in time."""
    return messenger.flush(seconds)


messenger = Messenger(send)
atexit.register(flush)
