"""The doorbell: "run X has grown to seq N". The log is the letter; a lost ring costs a viewer some seconds.

Writers ring from any thread, without waiting and without errors (`ring`, `ring_inbox`, `delta`). A server process
listens with one subscription and wakes its own listeners (`listening.hub`). Rings carry no data. Only `delta`, the text
that a model is writing, does, and it is not stored.
"""

from __future__ import annotations

import atexit
import os
import threading

from django.conf import settings

from runs.live.doorbell import Doorbell
from runs.live.messages import INBOX, channel_name, topic_of

__all__ = [
    "INBOX",
    "delta",
    "flush",
    "ring",
    "ring_inbox",
    "ring_person",
    "topic_of",
]

FLUSH_AT_EXIT_SECONDS = 1.0


def ring(run_id: int, seq: int) -> None:
    """Tell the viewers that a run has grown to `seq`, or (0) has changed; call it after the commit."""
    if bell := _doorbell():
        bell.put(run_id, seq)


def ring_inbox() -> None:
    """Tell every page of a change of interrupts, or a halt; call it after the commit."""
    if bell := _doorbell():
        bell.put(INBOX, 0)


def ring_person(person: int) -> None:
    """Have a person's sockets recheck their rights; call it after the commit."""
    if bell := _doorbell():
        bell.put(topic_of(person), 0)


def delta(run_id: int, node: str, text: str) -> None:
    """Show the viewers the model's whole text so far; the step will replace it."""
    if bell := _doorbell():
        bell.put_text(run_id, node, text)


def flush(seconds: float = FLUSH_AT_EXIT_SECONDS) -> bool:
    """Wait until everything has been sent or given up; return whether that was in time."""
    return _bell is None or _bell.flush(seconds)


_bell: Doorbell | None = None
_bell_lock = threading.Lock()


def _doorbell() -> Doorbell | None:
    """Return this process's doorbell, or None if hints are off or there is no message layer."""
    global _bell
    url = settings.REDIS_URL
    if not (settings.HINTS and url):
        return None
    bell = _bell
    if bell is not None and bell.url == url:
        return bell
    with _bell_lock:
        if _bell is None or _bell.url != url:
            if _bell is not None:
                _bell.close()
            _bell = Doorbell(url, channel_name())
        return _bell


def _reset_after_fork() -> None:
    """Forget the parent's thread and connection in a child process."""
    global _bell, _bell_lock
    _bell, _bell_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(flush)
