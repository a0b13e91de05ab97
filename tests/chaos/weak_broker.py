"""The embedded broker, and what can be done to it: frozen, restarted, emptied, taken away."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time

from django.conf import settings

from agentsite import broker
from tests.stack import wait_for


class WeakBroker:
    """The broker as `up` starts it; it is hurt by chance, and mended after a while."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.process: subprocess.Popen[bytes] | None = None
        self.back = 0.0
        """When it is to be mended; 0 where it is well."""

    def start(self) -> None:
        """Until it answers."""
        path = broker.prepare(settings.DATA_DIR)
        self.process = subprocess.Popen(
            broker.command(settings.DATA_DIR, path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(lambda: broker.replies(path), 10, 0.02)

    def stop(self) -> None:
        """At once."""
        if self.process is not None:
            self.process.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGCONT)
            self.process.wait()
            self.process = None

    def hurt(self) -> str:
        """What was done; empty where it was hurt already."""
        if self.back:
            return ""
        how = self.dice.choice(("frozen", "restarted", "flushed", "off"))
        match how:
            case "flushed":
                import redis

                with contextlib.suppress(redis.RedisError), redis.Redis.from_url(settings.REDIS_URL) as line:
                    line.flushall()
            case "frozen":
                assert self.process is not None
                os.kill(self.process.pid, signal.SIGSTOP)
                self.back = time.monotonic() + self.dice.uniform(0.5, 4)
            case "restarted" | "off":
                self.stop()
                # all that it keeps: with its list of files and without a file of them it would not start again
                shutil.rmtree(settings.DATA_DIR / "broker" / "appendonlydir", ignore_errors=True)
                wait = self.dice.uniform(1, 5) if how == "off" else 0.0
                self.back = time.monotonic() + wait
        return how

    def mend(self) -> None:
        """Where the time has come."""
        if self.back and time.monotonic() >= self.back:
            self.mend_now()

    def mend_now(self) -> None:
        """Whatever was done to it."""
        if not self.back:
            return
        self.back = 0.0
        if self.process is None:
            self.start()
        else:
            os.kill(self.process.pid, signal.SIGCONT)
