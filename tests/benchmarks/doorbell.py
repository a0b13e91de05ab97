"""How much a writer is slowed down by the doorbell: pairs of the same scripted run without it and with it.

    python3 -m tests.benchmarks.doorbell [--pairs N] [--heard] [TRANSITIONS]

A new SQLite file, a message layer of its own. With `--heard` a page of some other run is open: a process of the site
hears each ring. Prints the median ratio of the CPU's and of the clock's time, without ÷ with; and what the bell's
thread itself took of the CPU, which a busy machine disturbs least (Linux).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import django

from tests.benchmarks.contenders import PER_CYCLE, launched

LISTENS = """
import sys, redis
line = redis.Redis.from_url(sys.argv[1]).pubsub()
line.subscribe(sys.argv[2])
print(line.get_message(timeout=10)["type"], flush=True)
for message in line.listen():
    pass
"""


def driven(transitions: int, *, rings: bool) -> tuple[float, float]:
    """Drive a run. Return the seconds of this process on the CPU and those of the clock."""
    from django.conf import settings

    from runs import driver, live

    settings.HINTS = False  # no worker is told of it
    run = launched(transitions // PER_CYCLE)
    settings.HINTS = rings
    cpu, clock = time.process_time(), time.perf_counter()
    run = driver.drive_inline(run.pk)
    live.flush()
    took = time.process_time() - cpu, time.perf_counter() - clock
    assert run.status == "succeeded", run.exit_reason
    return took


def bell_cost() -> float:
    """Return the CPU seconds of the bell's thread."""
    thread = next(thread for thread in threading.enumerate() if thread.name == "doorbell")
    ran = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]
    return int(ran) / 1e9


@contextlib.contextmanager
def somebody_listening(url: str) -> Iterator[None]:
    """A process that hears each ring, as a web server does."""
    from runs.live.messages import channel_name

    listener = subprocess.Popen(
        [sys.executable, "-c", LISTENS, url, channel_name()], stdout=subprocess.PIPE, text=True
    )
    assert listener.stdout is not None
    assert listener.stdout.readline() == "subscribe\n"
    listener.stdout.close()
    try:
        yield
    finally:
        listener.kill()
        listener.wait()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("transitions", nargs="?", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--heard", action="store_true", help="somebody listens to the site's rings")
    options = parser.parse_args()

    from tests.live.valkey import Valkey

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        server = Valkey()
        stack.callback(server.remove)
        server.start()
        os.environ |= {"AGENTSITE_DATA_DIR": folder, "REDIS_URL": server.url, "DATABASE_POOL": "0"}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        if options.heard:
            stack.enter_context(somebody_listening(server.url))
        driven(options.transitions, rings=True)  # warm
        pairs = [
            (driven(options.transitions, rings=False), driven(options.transitions, rings=True))
            for _ in range(options.pairs)
        ]
    mine = bell_cost()
    with_bell_s = sum(with_bell[0] for _, with_bell in pairs)
    print(f"  bell: {mine / (with_bell_s - mine):.1%} of the writer's CPU time")
    for name, at in (("CPU", 0), ("clock", 1)):
        ratios = [without[at] / with_bell[at] for without, with_bell in pairs]
        best = min(without[at] for without, _ in pairs) / min(with_bell[at] for _, with_bell in pairs)
        speed = options.transitions / statistics.median(without[at] for without, _ in pairs)
        print(
            f"{name:>6}: with the bell {statistics.median(ratios):.3f} of the speed without "
            f"({min(ratios):.3f} to {max(ratios):.3f}; of the fastest {best:.3f}; without {speed:.0f} transitions/s)"
        )


if __name__ == "__main__":
    main()
