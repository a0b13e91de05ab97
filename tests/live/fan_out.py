"""How long from a commit to its row at the viewers, on the real stack. A command, not a test:

    python -m tests.live.fan_out --viewers 100 --rate 50 --rows 300

Writer, viewers and site are processes of their own; all read the machine's one steady clock. Run it on an idle
machine: viewers, writer, broker and web server share its processors.
"""

import argparse
import asyncio
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from tests.stack import ROOT, Site, running_site

MODULE = "tests.live.fan_out"
SEQ = re.compile(rb'"seq": (\d+), "html"')
ACK_SECONDS = 0.2
ACK_MESSAGES = 8


def main() -> None:
    """Start everything, and print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--viewers", type=int, default=100)
    arguments.add_argument("--rate", type=float, default=50.0, help="rows a second; 0 is as fast as it goes")
    arguments.add_argument("--rows", type=int, default=300)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="fan-") as folder, running_site(Path(folder) / "data") as site:
        run, session = part(site, "prepare").split()
        viewers = subprocess.Popen(
            [
                sys.executable,
                "-m",
                MODULE,
                "watch",
                site.url,
                run,
                session,
                str(given.viewers),
                str(given.rows),
            ],
            cwd=ROOT,
            env=environ(site),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert viewers.stdout is not None
        assert viewers.stdout.readline() == "ready\n"
        before = cpu_seconds(site.pids["web"])
        written = json.loads(part(site, "write", run, str(given.rate), str(given.rows)))
        arrived = json.loads(viewers.communicate(timeout=120)[0])
        used = cpu_seconds(site.pids["web"]) - before
    report(given, written, arrived, used)


def report(given: argparse.Namespace, written: list[float], arrived: list[list[float]], used: float) -> None:
    """The quantiles of commit → row."""
    waits = sorted((at - written[int(seq) - 1]) * 1000 for seq, at in arrived)
    figures = {
        "viewers": given.viewers,
        "rows_per_second": round((len(written) - 1) / (written[-1] - written[0]), 1),
        "deliveries": len(waits),
        **{f"p{part}_ms": round(waits[int(len(waits) * part / 100)], 1) for part in (50, 95, 99)},
        "max_ms": round(waits[-1], 1),
        "web_cpu_seconds": round(used, 2),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def part(site: Site, *arguments: str) -> str:
    """What another process of this module prints."""
    done = subprocess.run(
        [sys.executable, "-m", MODULE, *arguments],
        cwd=ROOT,
        env=environ(site),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def environ(site: Site) -> dict[str, str]:
    """The site's own environment, its broker included."""
    socket = site.data_dir / "broker" / "valkey.sock"
    return site.environ | {"DJANGO_SETTINGS_MODULE": "agentsite.settings", "REDIS_URL": f"unix://{socket}"}


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def prepare() -> None:
    """A run that no worker touches, and a session that may watch it."""
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.utils import timezone

    from runs.models import Run
    from tests.live.watching import new_run, signed_in

    user = User.objects.get(username="admin")
    run = new_run(user)
    Run.objects.filter(pk=run.pk).update(worker="nobody", lease_until=timezone.now() + timedelta(hours=1))
    sys.stdout.write(f"{run.pk} {settings.SESSION_COOKIE_NAME}={signed_in(user)}\n")


def write(run_id: int, rate: float, rows: int) -> None:
    """Commit rows, ring, and print when each was committed."""
    from runs import live
    from tests.live.watching import grow

    began, written = time.perf_counter(), []
    for number in range(rows):
        if rate:
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        head = grow(run_id)
        written.append(time.perf_counter())
        live.ring(run_id, head)
    live.flush(5)
    sys.stdout.write(json.dumps(written))


class Viewer(asyncio.Protocol):
    """A socket that does as little as it can, so that the site is measured and not the viewer."""

    def __init__(self, address: str, run: str, session: str, rows: int) -> None:
        self.address, self.run, self.session, self.rows = urlsplit(address), run, session, rows
        self.ready, self.done = asyncio.Event(), asyncio.Event()
        self.buffer, self.open, self.last, self.unacknowledged = b"", False, 0, 0
        self.arrived: list[tuple[int, float]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the socket."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        lines = (
            f"GET /ws/runs/{self.run}/ HTTP/1.1",
            f"Host: {self.address.netloc}",
            f"Origin: http://{self.address.netloc}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
            f"Cookie: {self.session}",
        )
        transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        """Note what has come, and when."""
        now = time.perf_counter()
        self.buffer += data
        if not self.open:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            assert b" 101 " in head, head
            self.open, self.buffer = True, rest
            self.say({"type": "hello", "after": 0})
        while (message := self.next_message()) is not None:
            self.heard(message, now)

    def next_message(self) -> bytes | None:
        """The next whole text frame; pings are answered on the way."""
        while len(self.buffer) >= 2:
            length, start = self.buffer[1] & 127, 2
            if length > 125:
                wide = length == 127
                start = 10 if wide else 4
                if len(self.buffer) < start:
                    return None
                length = struct.unpack(">Q" if wide else ">H", self.buffer[2:start])[0]
            if len(self.buffer) < start + length:
                return None
            kind, content = self.buffer[0] & 15, self.buffer[start : start + length]
            self.buffer = self.buffer[start + length :]
            if kind == 1:
                return content
            if kind == 9:
                self.transport.write(bytes([0x8A, 0x80 | len(content)]) + bytes(4) + content)
        return None

    def heard(self, message: bytes, now: float) -> None:
        """Rows are noted, and acknowledged as the page does it."""
        if message.startswith(b'{"type": "hello"'):
            self.ready.set()
            return
        if message.startswith(b'{"type": "rows"'):
            for found in SEQ.findall(message):
                assert int(found) == self.last + 1, "a row is missing, repeated or out of order"
                self.last = int(found)
                self.arrived.append((self.last, now))
        self.unacknowledged += 1
        if self.unacknowledged >= ACK_MESSAGES:
            self.acknowledge()
        elif self.unacknowledged == 1:
            asyncio.get_running_loop().call_later(ACK_SECONDS, self.acknowledge)
        if self.last >= self.rows:
            self.done.set()

    def acknowledge(self) -> None:
        """What has come so far."""
        if self.unacknowledged:
            self.unacknowledged = 0
            self.say({"type": "ack", "seq": self.last})

    def say(self, message: dict[str, object]) -> None:
        """A short text frame."""
        content = json.dumps(message).encode()
        self.transport.write(bytes([0x81, 0x80 | len(content)]) + bytes(4) + content)


async def watch(address: str, run: str, session: str, viewers: int, rows: int) -> None:
    """Connect all, say so, and print when each row came to each."""
    loop, watching = asyncio.get_running_loop(), []
    host, port = urlsplit(address).hostname or "", urlsplit(address).port or 80
    for number in range(viewers):
        viewer: Viewer
        _, viewer = await loop.create_connection(lambda: Viewer(address, run, session, rows), host, port)
        watching.append(viewer)
        if number % 20 == 19:
            await viewer.ready.wait()
    for viewer in watching:
        await viewer.ready.wait()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for viewer in watching:
        await asyncio.wait_for(viewer.done.wait(), 120)
    sys.stdout.write(json.dumps([arrival for viewer in watching for arrival in viewer.arrived]))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ("prepare", "write", "watch"):
        import django

        django.setup()
        match sys.argv[1:]:
            case ["prepare"]:
                prepare()
            case ["write", run, rate, rows]:
                write(int(run), float(rate), int(rows))
            case ["watch", address, run, session, viewers, rows]:
                asyncio.run(watch(address, run, session, int(viewers), int(rows)))
    else:
        main()
