"""A thread beside the work that takes messages to a broker, so no work waits for a silent one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue

PATIENCE_S = 0.05
"""Seconds that a worker waits for the broker to take its message."""


class Messenger:
    """Sends one message after the other. If one is lost, those waiting behind it are dropped."""

    def __init__(self, send: Callable[[int], bool], patience_s: float = PATIENCE_S) -> None:
        self._send = send
        self._patience_s = patience_s
        self._messages: SimpleQueue[tuple[int, Future[bool]]] = SimpleQueue()
        self._unsent = 0
        self._sending_since = float("inf")
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def silent(self) -> bool:
        """Return True if the broker has kept a message waiting for longer than a worker waits."""
        return time.monotonic() - self._sending_since > self._patience_s

    def post(self, *messages: int) -> list[Future[bool]]:
        """Have messages sent, without waiting. Return a future for each: whether the broker took it."""
        told: list[Future[bool]] = [Future() for _ in messages]
        with self._changed:
            self._unsent += len(messages)
            for one in zip(messages, told, strict=True):
                self._messages.put(one)
            self._start()
        return told

    def taken(self, message: int) -> bool:
        """Return True if the broker took it at once. Otherwise it may still take it later."""
        if self.silent:
            return False
        (told,) = self.post(message)
        try:
            return told.result(self._patience_s)
        except TimeoutError:
            told.cancel()  # one that has not begun need not be sent any more
            return False

    def flush(self, seconds: float) -> bool:
        """Wait until each message is sent or lost. Return whether it was in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._unsent == 0, seconds)

    def _start(self) -> None:
        """Start the sending thread if needed. `_changed` is held."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._send_all, name="messenger", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is going down, or has no thread left
                self._drop_waiting()

    def _send_all(self) -> None:
        while True:
            message, told = self._messages.get()
            lost = told.set_running_or_notify_cancel() and not self._told(message, told)
            with self._changed:
                self._unsent -= 1
                if lost:
                    self._drop_waiting()
                self._changed.notify_all()

    def _told(self, message: int, told: Future[bool]) -> bool:
        """Send the message. Return whether the broker took it."""
        self._sending_since = time.monotonic()
        try:
            taken = self._send(message)
        except BaseException as fault:
            told.set_exception(fault)
            return False
        finally:
            self._sending_since = float("inf")
        told.set_result(taken)
        return taken

    def _drop_waiting(self) -> None:
        """Give up the waiting messages. `_changed` is held."""
        while True:
            try:
                _, told = self._messages.get_nowait()
            except Empty:
                return
            self._unsent -= 1
            if told.set_running_or_notify_cancel():
                told.set_result(False)
