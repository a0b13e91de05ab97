"""I10: secrets that must be nowhere but where they belong, and a model server that tells them to everybody.

The site's secret key, a model's key that the database keeps sealed, and one that stands in an environment variable.
The runs that use those models fail: their server sends the key back in what it complains about, as real ones do.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import threading
import zipfile
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from django.apps import apps
from django.conf import settings
from django.db import connection, models
from django.test import Client
from django.urls import reverse

from runs.adapters.secrets import seal, unseal
from runs.models import ModelProfile, Run
from tests.chaos import MODEL_KEY
from tests.chaos.findings import Violation

GOAL = "keyed"
"""How the goals of the runs begin that use such a model."""

MODELS = ("sealed", "variable")
CHUNK = 1 << 20


class Canaries:
    """The secrets of this play, by what they are."""

    def __init__(self, sealed: str) -> None:
        self.texts = {
            "the site's secret key": settings.SECRET_KEY,
            "the sealed key of a model": sealed,
            "the key in a variable": os.environ[MODEL_KEY],
        }
        self.server: ThreadingHTTPServer | None = None
        self.columns = self.files = self.keys = self.pages = 0

    @classmethod
    def fresh(cls) -> Canaries:
        """New ones, which nobody knows yet."""
        return cls(f"canary{secrets.token_hex(16)}")

    @classmethod
    def known(cls) -> Canaries:
        """Those that the site has already."""
        profile = ModelProfile.objects.get(name="sealed")
        return cls(unseal(profile.sealed_key, settings.SECRET_KEY))

    def let_loose(self) -> None:
        """Write the models' profiles, and let their server talk."""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _Talkative)
        self.server.daemon_threads = True
        url = f"http://127.0.0.1:{self.server.server_port}/v1"
        about: dict[str, Any] = {"base_url": url, "model_id": "canary", "timeout_s": 5}
        sealed = seal(self.texts["the sealed key of a model"], settings.SECRET_KEY)
        ModelProfile.objects.create(name="sealed", sealed_key=sealed, **about)
        ModelProfile.objects.create(name="variable", key_variable=MODEL_KEY, **about)
        threading.Thread(target=self.server.serve_forever, name="talkative", daemon=True).start()

    def silence(self) -> None:
        """The end of the server."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()

    # where they must not be

    def in_tables(self) -> Iterator[Violation]:
        """Every column that holds text, of every model; on PostgreSQL every table besides."""
        for model in apps.get_models(include_auto_created=True):
            for field in model._meta.concrete_fields:
                if not isinstance(field, models.CharField | models.TextField | models.JSONField):
                    continue
                self.columns += 1
                for what, text in self.texts.items():
                    if model._base_manager.filter(**{f"{field.attname}__contains": text}).exists():
                        yield Violation("I10", None, f"{what} is in {model._meta.label}.{field.name}")
        if connection.vendor == "postgresql":
            yield from self._in_server_tables()

    def _in_server_tables(self) -> Iterator[Violation]:
        """Tables that no model knows (of the full-text search) too."""
        quote = connection.ops.quote_name
        with connection.cursor() as cursor:
            for table in connection.introspection.table_names(cursor):
                for what, text in self.texts.items():
                    cursor.execute(
                        f"SELECT count(*) FROM {quote(table)} AS one WHERE one::text LIKE %s", [f"%{text}%"]
                    )
                    if cursor.fetchone()[0]:
                        yield Violation("I10", None, f"{what} is in the table {table}")

    def in_files(self, folder: Path) -> Iterator[Violation]:
        """Every file of the data directory: logs, artifacts, backups, the database's own; the key's file excepted."""
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path == folder / "secret_key":
                continue
            self.files += 1
            for what, text in self.texts.items():
                if any(text.encode() in part for part in _contents(path)):
                    yield Violation("I10", None, f"{what} is in the file {path.relative_to(folder)}")

    def in_broker(self) -> Iterator[Violation]:
        """Every key of the broker, and what it holds."""
        import redis

        with redis.Redis.from_url(settings.REDIS_URL) as line:
            for key in line.scan_iter(count=1000):
                self.keys += 1
                held = key + repr(_value(line, key)).encode()
                for what, text in self.texts.items():
                    if text.encode() in held:
                        yield Violation("I10", None, f"{what} is in the broker's {key!r}")

    def in_pages(self, runs: Iterable[Run], client: Client) -> Iterator[Violation]:
        """The pages of some runs: the run, its newest rows, its context, its export, the rows for a script."""
        for run in runs:
            addresses = [
                reverse(name, args=(run.pk,)) for name in ("run", "context", "artifacts", "run-export")
            ]
            addresses += [
                reverse("step", args=(run.pk, seq)) for seq in range(max(1, run.head - 2), run.head + 1)
            ]
            addresses.append(f"{reverse('rows', args=(run.pk,))}?after=0")
            for address in addresses:
                self.pages += 1
                answer = client.get(address)
                body = b"".join(answer) if answer.streaming else answer.content
                for what, text in self.texts.items():
                    if text.encode() in body:
                        yield Violation("I10", run.pk, f"{what} is in {address}")


def _value(line: Any, key: bytes) -> Any:
    match line.type(key):
        case b"string":
            return line.get(key)
        case b"list":
            return line.lrange(key, 0, -1)
        case b"hash":
            return line.hgetall(key)
        case b"set":
            return line.smembers(key)
        case b"zset":
            return line.zrange(key, 0, -1)
    return line.dump(key)


def _contents(path: Path) -> Iterator[bytes]:
    """A file's bytes in parts that overlap; of an archive the parts that are packed in it."""
    if ".sqlite3" in path.name:
        # By another process: SQLite locks for a process, which loses its locks where it closes such a file itself. The
        # next one that opens the database would take itself for the first, and cut the memory that all share (SIGBUS).
        yield subprocess.run(["cat", path], capture_output=True, check=False).stdout
        return
    with contextlib.suppress(zipfile.BadZipFile, OSError, EOFError), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield archive.read(name)
        return
    before = b""
    with path.open("rb") as file:
        while part := file.read(CHUNK):
            yield before + part
            before = part[-200:]


class _Talkative(BaseHTTPRequestHandler):
    """A model server that refuses every call and says with which key it came."""

    protocol_version = "HTTP/1.1"
    statuses: ClassVar[list[int]] = [400, 503, 401, 422]
    calls = 0

    def do_POST(self) -> None:
        """Refuse."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        _Talkative.calls += 1
        key = self.headers.get("Authorization", "")
        said = {"error": {"message": f"The request came with {key}, which is {key[7:]}.", "type": key}}
        body = json.dumps(said).encode()
        self.send_response(self.statuses[_Talkative.calls % len(self.statuses)])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Key", key)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the bench's own output is the report."""
