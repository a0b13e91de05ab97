"""A thread beside the work that takes messages to a broker, so that nobody's work waits for one that is silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

PATIENCE_S = 0.05
"""How long whoever has a message waits for the broker to take it."""


class Messenger:
    """Sends one message after the other. As long as the broker is silent about one, no other is begun."""

    def __init__(self, send: Callable[[int], bool], patience_s: float = PATIENCE_S) -> None:
        self._send = send
        self._patience_s = patience_s
        self._messages: SimpleQueue[tuple[int, Future[bool]]] = SimpleQueue()
        self._sending_since = float("inf")
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def silent(self) -> bool:
        """Whether the broker has said nothing to a message for longer than anybody waits."""
        return time.monotonic() - self._sending_since > self._patience_s

    def taken(self, message: int) -> bool:
        """Whether the broker took it at once. Where it did not, it may still take it later."""
        if self.silent:
            return False
        told: Future[bool] = Future()
        self._messages.put((message, told))
        self._start()
        try:
            return told.result(self._patience_s)
        except TimeoutError:
            told.cancel()  # where it has not begun, it need not be sent any more
            return False

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._send_all, name="messenger", daemon=True)
                self._thread.start()

    def _send_all(self) -> None:
        while True:
            message, told = self._messages.get()
            if told.set_running_or_notify_cancel():
                self._sending_since = time.monotonic()
                try:
                    told.set_result(self._send(message))
                except BaseException as fault:
                    told.set_exception(fault)
                finally:
                    self._sending_since = float("inf")
