"""The writer's side: a small buffer, and the one thread that empties it into the message layer."""

from __future__ import annotations

import contextlib
import logging
import threading

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from runs.live.messages import SOCKET_SECONDS, ring_message, text_message

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
        self._closed = threading.Event()
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
        """Wait for the thread."""
        return self._idle.wait(seconds)

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
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
        client = redis.Redis.from_url(
            self.url,
            socket_timeout=SOCKET_SECONDS,
            socket_connect_timeout=SOCKET_SECONDS,
            # a connection that a restart has cut is opened anew, once; a silent server is not tried again
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.exceptions.ConnectionError,)),
        )
        with contextlib.closing(client):
            while True:
                self._something.wait()
                if self._closed.is_set():
                    self._idle.set()
                    return
                self._send(client, self._take())
                with self._lock:
                    if not self._something.is_set():
                        self._idle.set()

    def _take(self) -> list[str]:
        """Return all kept messages; texts last, because a ring removes the texts before it."""
        with self._lock:
            rings, self._rings = self._rings, {}
            texts, self._texts = self._texts, {}
            self._something.clear()
        return [ring_message(topic, seq) for topic, seq in rings.items()] + [
            text_message(run_id, node, text) for run_id, (node, text) in texts.items()
        ]

    def _send(self, client: redis.Redis, messages: list[str]) -> None:
        """Send all in one round trip; on failure count them, and leave the server alone for a moment."""
        try:
            with client.pipeline(transaction=False) as line:
                for message in messages:
                    line.publish(self.channel, message)
                line.execute()
        except (RedisError, OSError) as why:
            self.dropped += len(messages)
            if not self._failing:
                log.warning("The message layer can't be reached (%s); pages catch up by looking.", why)
            self._failing = True
            with self._lock:
                if not self._something.is_set():
                    self._idle.set()
            self._closed.wait(PAUSE_AFTER_FAILURE_SECONDS)
        else:
            self.sent += len(messages)
            self._failing = False
