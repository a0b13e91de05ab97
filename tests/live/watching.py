"""A run that grows row by row without a worker, people who may see it or not, and pages that follow it."""

import asyncio
import json
from typing import Any

from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from agentsite.sessions import SessionStore
from runs.models import Run, RunStatus, Step
from tests.cast import person

HOST = b"testserver"
PATIENCE = 10.0


def stranger(name: str, *permissions: str) -> User:
    """A person who owns a run, and not the one that the test is about."""
    made = person(name, *permissions)
    new_run(made)
    return made


def signed_in(user: User) -> str:
    """A session of theirs."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    assert session.session_key is not None
    return session.session_key


def new_run(owner: User, rows: int = 0) -> Run:
    """A run with some rows."""
    run = Run.objects.create(
        machine="ruled", goal="Grow.", owner=owner, node="thought", status=RunStatus.RUNNING
    )
    grow(run.pk, rows)
    return run


def grow(run_id: int, rows: int = 1, **changes: Any) -> int:
    """Commit rows as a worker would, head and rows in one transaction; the new head."""
    with transaction.atomic():
        run = Run.objects.select_for_update().get(pk=run_id)
        first = run.head + 1
        Step.objects.bulk_create(row_of(run_id, seq) for seq in range(first, first + rows))
        head = run.head + rows
        Run.objects.filter(pk=run_id).update(head=head, **changes)
    return head


def go_back(run_id: int, to: int) -> int:
    """Commit a rewind to a row; the new head."""
    with transaction.atomic():
        run = Run.objects.select_for_update().get(pk=run_id)
        fact = {"kind": "run.rewound", "to_seq": to, "from_seq": run.head, "by": "alice", "message": ""}
        Step.objects.filter(run_id=run_id, seq__gt=to).update(live=False)
        row = row_of(run_id, run.head + 1)
        row.kind, row.edge, row.to, row.facts_json = "rewind", None, None, json.dumps([fact])
        row.save()
        Run.objects.filter(pk=run_id).update(head=run.head + 1)
    return run.head + 1


def row_of(run_id: int, seq: int) -> Step:
    """A row that says little."""
    return Step(
        run_id=run_id,
        seq=seq,
        kind="transition",
        node="thought",
        edge="act",
        to="tool",
        at=timezone.now(),
        hash="0" * 64,
    )


class Watcher:
    """A page that does what the real one does: says hello, paints rows in order, acknowledges."""

    def __init__(self, path: str, session: str, origin: bytes = b"http://" + HOST) -> None:
        from agentsite.asgi import application

        cookie = f"{settings.SESSION_COOKIE_NAME}={session}".encode()
        self.line = WebsocketCommunicator(
            application, path, headers=[(b"host", HOST), (b"origin", origin), (b"cookie", cookie)]
        )
        self.seqs: list[int] = []
        self.dead: set[int] = set()
        self.messages: list[dict[str, Any]] = []
        self.panels: dict[str, str] = {}
        self.head = 0
        self.acknowledges = True

    async def connect(self) -> tuple[bool, int]:
        """Whether the site lets it in, and the code if not."""
        let_in, code = await self.line.connect(timeout=PATIENCE)
        return let_in, code if isinstance(code, int) else 0

    async def hello(self, after: int = 0, **more: str) -> None:
        """Say what it has."""
        self.seqs = list(range(1, after + 1))
        await self.line.send_json_to({"type": "hello", "after": after, **more})

    async def hear(self) -> dict[str, Any]:
        """The next message, painted."""
        message: dict[str, Any] = await self.line.receive_json_from(timeout=PATIENCE)
        self.messages.append(message)
        match message["type"]:
            case "hello" | "pong":
                self.head = message.get("head", 0)
            case "rows":
                for row in message["rows"]:
                    assert f'id="step-{row["seq"]}"' in row["html"]
                    self.seqs.append(row["seq"])
                    if 'data-live="false"' in row["html"]:
                        self.dead.add(row["seq"])
            case "panels":
                self.panels = message["panels"]
        if self.acknowledges and message["type"] in ("rows", "panels", "delta"):
            await self.line.send_json_to({"type": "ack", "seq": self.last})
        return message

    @property
    def last(self) -> int:
        """The newest row it has."""
        return self.seqs[-1] if self.seqs else 0

    async def until(self, kind: str) -> dict[str, Any]:
        """The next message of a kind, with all before it painted."""
        while (message := await self.hear())["type"] != kind:
            pass
        return message

    async def until_row(self, seq: int) -> None:
        """Until it has a row."""
        async with asyncio.timeout(PATIENCE * 2):
            while self.last < seq:
                await self.hear()

    async def closed_with(self) -> int:
        """The code that the site closes it with; what comes before is painted."""
        while True:
            message = await self.line.receive_output(timeout=PATIENCE)
            if message["type"] == "websocket.close":
                code: int = message["code"]
                return code

    async def leave(self) -> None:
        """Close the page."""
        await self.line.disconnect(timeout=PATIENCE)


async def in_database(deed: Any, *args: Any, **kwargs: Any) -> Any:
    """What a test does to the database, outside the event loop."""
    return await sync_to_async(deed)(*args, **kwargs)
