"""`manage.py up`: run everything on one machine until Ctrl-C."""

import asyncio
import hashlib
import logging
import os
import sys
import webbrowser
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, OperationalError, connections

from agentsite import broker
from agentsite.environment import private_dir
from agentsite.migrating import DatabaseAway, prepare_database
from agentsite.ports import HOST, address_of, listens, port_number, refuse_taken
from agentsite.providers import MCP, OTEL, add_missing
from agentsite.restoring import finish_interrupted, notice_an_old_database, renew_id
from agentsite.sign_in_link import make_link
from agentsite.supervise import Child, GaveUp, NotReady, Supervisor, held, read_record, stop_leftovers
from runs.driver.desk import HANDS, SEATS
from runs.live.messages import LARGEST_SENT
from runs.models import McpServer, ModelProfile
from runs.store import leases

WORKER_CONNECTIONS = SEATS + HANDS + 12
"""Most connections of a worker: its working threads, and a few more. None is kept during a call that may be slow."""

MOST_WORKERS = 16

LONGEST_DRAIN_S = 3600.0
TO_END_S = 10.0
"""Seconds until a drained process that has not ended is killed."""

DRAIN_TELLS = " WARNING runs.driver.draining "
"""The mark of log lines about waiting for a call, or cutting one off."""


log = logging.getLogger(__name__)


class AlreadyRunning(CommandError):
    """Another `up` holds this data directory."""

    def __init__(self, data_dir: Path, record: dict[str, Any]) -> None:
        where = f" at {record['address']}" if record.get("address") else ""
        process = f" (process {record['up']['pid']})" if record.get("up") else ""
        super().__init__(
            f"agentsite already runs on {data_dir}{where}{process}. Open it there, stop it with "
            "Ctrl-C in its terminal, or give a second site its own: manage.py up --data DIR --port PORT"
        )


class Command(BaseCommand):
    """Prepares the data, starts broker, web server, worker and scheduler, and keeps them running."""

    help = "Run everything on this machine until Ctrl-C: broker, web server, worker and scheduler."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the port, the data directory, and the options."""
        parser.add_argument(
            "--port", type=port_number, default=8000, help="on this machine only (default: 8000)"
        )
        parser.add_argument(
            "--data", metavar="DIR", help="the data directory (default: var, beside manage.py)"
        )
        parser.add_argument(
            "--drain",
            type=seconds_of,
            default=settings.DRAIN_SECONDS,
            metavar="SECONDS",
            help="how long Ctrl-C waits for calls that change something (default: 25); again stops at once",
        )
        parser.add_argument(
            "--workers",
            type=count_of,
            default=1,
            metavar="N",
            help=f"worker processes (default: 1, at most {MOST_WORKERS}); with two, one that hangs stops no run",
        )
        parser.add_argument("--no-browser", action="store_true", help="don't open the page in a browser")

    def handle(
        self, *args: Any, port: int, drain: float, workers: int, no_browser: bool, **options: Any
    ) -> None:
        """Run everything in its order; exit code 0 after Ctrl-C."""
        os.umask(0o077)
        data_dir: Path = settings.DATA_DIR
        record = private_dir(data_dir / "run") / "up.json"
        with held(data_dir / "run" / "up.lock") as mine:
            if not mine:
                raise AlreadyRunning(data_dir, read_record(record))
            stop_leftovers(record, self.say)
            refuse_taken(port, f"up --data {options['data']}" if options["data"] else "up")
            try:
                prepare_database()
                for sentence in filter(None, (finish_interrupted(), notice_an_old_database())):
                    self.say(sentence)
                kinds = ModelProfile.objects.filter(enabled=True).values_list("kind", flat=True)
                servers = [MCP] if McpServer.objects.filter(enabled=True).exists() else []
                spans = [OTEL] if settings.OTLP_ENDPOINT else []
                for sentence in add_missing([*kinds, *servers, *spans]):
                    self.say(sentence)
                collect_static_files(data_dir)
                opens_browser = not no_browser and has_display()
                children = children_of(data_dir, port, drain, workers)
                asyncio.run(self.serve(port, children, record, opens_browser=opens_browser))
            except OperationalError as why:
                raise DatabaseAway(why) from None
            except (GaveUp, NotReady, broker.NoBrokerProgram, broker.NotPrivate) as why:
                raise CommandError(str(why)) from None
            except KeyboardInterrupt:
                pass
            connections.close_all()  # connections opened at the start may have died since
            renew_id()
        self.say("Stopped.")

    async def serve(self, port: int, children: Sequence[Child], record: Path, *, opens_browser: bool) -> None:
        """Run the processes, from the first to the last."""
        address = address_of(port)
        link = await asyncio.to_thread(administrator_link, address)

        async def welcome() -> None:
            self.say(f"agentsite runs at {address}")
            self.say(f"Sign in (works once, within an hour): {link}")
            if not address.startswith("http://"):
                self.say(f"Its proxy passes requests on to http://{HOST}:{port}")
            self.say(f"Data: {settings.DATA_DIR}{elsewhere()}")
            self.say("Ctrl-C stops everything.")
            if opens_browser:
                await asyncio.to_thread(webbrowser.open, link)

        await Supervisor(children, self.say, record, {"address": address}).run(welcome)

    def say(self, sentence: str) -> None:
        """Print a line at once, even into a pipe."""
        self.stdout.write(sentence)
        self.stdout.flush()


def collect_static_files(data_dir: Path) -> None:
    """Collect them into the data directory, but only if one has changed since."""
    stamp = data_dir / "run" / "static.sha256"
    wanted = static_digest()
    if stamp.exists() and stamp.read_text() == wanted and settings.STATIC_ROOT.exists():
        return
    call_command("collectstatic", interactive=False, verbosity=0, clear=settings.STATIC_ROOT.exists())
    stamp.write_text(wanted)


def static_digest() -> str:
    """Return a digest of the static files: their names, sizes and times, and Django's version for the admin's."""
    digest = hashlib.sha256(django.__version__.encode())
    for folder in settings.STATICFILES_DIRS:
        for path in sorted(Path(folder).rglob("*")):
            about = path.stat()
            digest.update(f"{path}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def administrator_link(address: str) -> str:
    """Return a fresh sign-in link for the administrator, who is made if the site has none."""
    administrators = User.objects.filter(is_superuser=True, is_active=True).order_by("pk")
    person = administrators.filter(username="admin").first() or administrators.first()
    if person is None:
        person = User.objects.create_superuser(username="admin")
    try:
        return make_link(person, address)
    finally:
        connections.close_all()


def seconds_of(text: str) -> float:
    """Return a length of time from the command line."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_DRAIN_S:
        raise ArgumentTypeError(f"give seconds from 0 to {LONGEST_DRAIN_S:g}, not {text!r}")
    return seconds


def count_of(text: str) -> int:
    """Return a number of workers from the command line."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_WORKERS):
        raise ArgumentTypeError(f"give a number from 1 to {MOST_WORKERS}, not {text!r}")
    return int(text)


def children_of(data_dir: Path, port: int, drain: float, workers: int) -> list[Child]:
    """Return the processes to run: the broker (unless REDIS_URL names one), which the others need, and the others."""
    logs = private_dir(data_dir / "logs")
    own = {
        "AGENTSITE_DATA_DIR": str(data_dir),
        "CELERY_SKIP_CHECKS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(settings.BASE_DIR), os.environ.get("PYTHONPATH")])),
    }
    children = []
    if not settings.ENVIRONMENT.redis_url:
        path = broker.prepare(data_dir)
        own["REDIS_URL"] = f"unix://{path}"
        children.append(
            Child(
                "broker",
                broker.command(data_dir, path),
                logs / "broker.log",
                ready=lambda: broker.replies(path),
                needed=True,
            )
        )
    manage = str(settings.BASE_DIR / "manage.py")
    # A worker listens to the broker all day and may wait longer than a page that only leaves a hint there.
    own |= {"DRAIN_SECONDS": str(drain)}
    working = own | {"DATABASE_POOL": str(WORKER_CONNECTIONS), "BROKER_TIMEOUT": "10"}
    drained: dict[str, Any] = {
        "grace": drain + TO_END_S,
        "tells": DRAIN_TELLS,
        "replaced_when_stopped": True,
    }
    return [
        *children,
        Child(
            "web",
            web_command(port),
            logs / "web.log",
            own,
            ready=lambda: listens(port),
            replaced_when_stopped=True,
        ),
        *(
            Child(name, worker_command(), logs / f"{name}.log", working, lost=release_runs, **drained)
            for name in ("worker", *(f"worker-{number}" for number in range(2, workers + 1)))
        ),
        Child("scheduler", [sys.executable, manage, "sweeper"], logs / "scheduler.log", own, **drained),
    ]


def release_runs(process: str) -> None:
    """Release the runs of an ended worker, so others go on at once, before its leases expire."""
    try:
        leases.lose_all(process)
    except DatabaseError:
        log.exception("the runs of the worker that has ended wait for its leases to run out")
    finally:
        connections.close_all()


def web_command(port: int) -> list[str]:
    """Return the command of Daphne, on this machine only, with limits on a client's messages and connections.

    The size of a message counts in both directions, that of a frame only for incoming ones.
    """
    return [
        *(sys.executable, "-m", "agentsite.web", "-b", HOST, "-p", str(port), "-v", "0", "--no-server-name"),
        *("--websocket-max-message-size", str(2 * LARGEST_SENT), "--websocket-max-frame-size", "65536"),
        *("--websocket_timeout", "-1", "--ping-interval", "20", "--ping-timeout", "20"),
        *("--application-close-timeout", "5", "--http-timeout", "60", "agentsite.asgi:application"),
    ]


def worker_command() -> list[str]:
    """Return the command of Celery with threads: a worker mostly waits for models."""
    return [
        *(sys.executable, "-m", "celery", "--app", "agentsite", "worker", "--pool", "threads"),
        *(
            "--concurrency",
            str(settings.ENVIRONMENT.worker_threads),
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
        ),
        *("--loglevel", "WARNING"),
    ]


def elsewhere() -> str:
    """Return the hint for other commands to an unusual data directory."""
    usual = settings.BASE_DIR / "var"
    return (
        "" if usual == settings.DATA_DIR else f" (for other commands: AGENTSITE_DATA_DIR={settings.DATA_DIR})"
    )


def has_display() -> bool:
    """Return True if a browser window could appear: a person at a terminal with a screen."""
    screen = sys.platform == "darwin" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return screen and sys.stdout.isatty()
