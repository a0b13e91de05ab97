"""The writer's side: a small buffer, and the one thread that empties it into the message layer."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from runs.live.messages import ring_message, text_message

if TYPE_CHECKING:
    from runs.live.publishing import Publisher

GATHER_SECONDS = 0.01
"""How long rings are gathered after a send before the next: a run that grows fast rings once for several rows."""
GATHER_UNHEARD_SECONDS = 0.1
"""The same where no process heard the last send. Who subscribes meanwhile looks for themselves."""
PAUSE_AFTER_FAILURE_SECONDS = 0.5
LONGEST_BUFFER = 4096

log = logging.getLogger(__name__)


class Doorbell:
    """A small buffer and the one thread that empties it into the message layer.

    The buffer holds the latest ring and the latest text of each run. So it is only as long as the number of runs that
    moved since it was last emptied, whatever the server does.
    """

    def __init__(self, url: str, channel: str) -> None:
        self.url = url
        self.channel = channel
        self.sent = 0
        self.dropped = 0
        self._lock = threading.Lock()
        self._rings: dict[int, int] = {}
        self._texts: dict[int, tuple[str, str]] = {}
        self._something = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._closed = False
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._failing = False

    def put(self, topic: int, seq: int) -> None:
        """Keep a ring for the thread; it outdates a text of the same run."""
        with self._lock:
            self._texts.pop(topic, None)
            if topic not in self._rings and len(self._rings) >= LONGEST_BUFFER:
                self.dropped += 1
                return
            self._rings[topic] = max(seq, self._rings.get(topic, 0))
            self._wake()

    def put_text(self, run_id: int, node: str, text: str) -> None:
        """Keep a model's text for the thread, in place of the one before."""
        with self._lock:
            if run_id not in self._texts and len(self._texts) >= LONGEST_BUFFER:
                self.dropped += 1
                return
            self._texts[run_id] = (node, text)
            self._wake()

    def flush(self, seconds: float) -> bool:
        """Send at once what is kept, and wait for the thread."""
        self._hurry.set()
        try:
            return self._idle.wait(seconds)
        finally:
            if not self._closed:
                self._hurry.clear()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._hurry.set()
        self._something.set()

    def _wake(self) -> None:
        """Have a thread check the buffer. The lock is held."""
        self._idle.clear()
        self._something.set()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._send_loop, name="doorbell", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is going down, or has no thread left: it is a hint only
                self._thread = None
                self.dropped += len(self._rings) + len(self._texts)
                self._rings, self._texts = {}, {}
                self._idle.set()

    def _send_loop(self) -> None:
        """Run the thread: every kept message is sent or given up, and none is sent twice."""
        from runs.live.publishing import Publisher

        with contextlib.closing(Publisher(self.url, self.channel)) as publisher:
            while True:
                self._something.wait()
                if self._closed:
                    self._idle.set()
                    return
                pause = self._send(publisher, self._take())
                with self._lock:
                    if not self._something.is_set():
                        self._idle.set()
                self._hurry.wait(pause)

    def _take(self) -> list[str]:
        """Return all kept messages; texts last, because a ring removes the texts before it."""
        with self._lock:
            rings, self._rings = self._rings, {}
            texts, self._texts = self._texts, {}
            self._something.clear()
        return [ring_message(topic, seq) for topic, seq in rings.items()] + [
            text_message(run_id, node, text) for run_id, (node, text) in texts.items()
        ]

    def _send(self, publisher: Publisher, messages: list[str]) -> float:
        """Send all, or count them as dropped. Return for how many seconds to gather, or to leave the server alone."""
        from runs.live.publishing import Unreachable

        try:
            heard = publisher.publish(messages)
        except Unreachable as why:
            self.dropped += len(messages)
            if not self._failing:
                log.warning("The message layer can't be reached (%s); pages catch up by looking.", why)
            self._failing = True
            return PAUSE_AFTER_FAILURE_SECONDS
        self.sent += len(messages)
        self._failing = False
        return GATHER_SECONDS if heard else GATHER_UNHEARD_SECONDS
