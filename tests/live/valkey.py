"""A message layer of a test's own: a real server on a unix socket, with the faults it can have."""

import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from agentsite.broker import replies, server_program


class Valkey:
    """A server that can be killed, frozen and started again at the same address."""

    def __init__(self) -> None:
        # A unix socket's path is at most 107 bytes long, and a test's own folder often is longer.
        self.folder = Path(tempfile.mkdtemp(prefix="vk-"))
        self.socket = self.folder / "s"
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start (again), and wait until it answers."""
        self.process = subprocess.Popen(
            [
                *(server_program(), "--port", "0", "--unixsocket", str(self.socket)),
                *("--dir", str(self.folder), "--save", "", "--appendonly", "no", "--loglevel", "warning"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until, pause = time.monotonic() + 10, threading.Event()
        while not replies(self.socket):
            assert time.monotonic() < until, "the server does not answer"
            pause.wait(0.01)

    def kill9(self) -> None:
        """As if it had crashed: nothing is said goodbye to."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def freeze(self) -> None:
        """It holds every connection and answers nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Leave nothing behind."""
        self.kill9()
        shutil.rmtree(self.folder, ignore_errors=True)
