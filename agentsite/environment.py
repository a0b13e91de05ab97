"""The variables of the environment, checked once: an unsafe or unreadable value stops the start."""

import hashlib
import os
import secrets
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from agentsite.bootstrap import SiteWanted
from agentsite.unsafe import faults_of, weak_key
from runs.engine.hosts import pattern_of
from runs.engine.settings import MOST_ROUNDS
from runs.machines import FOLDERS, BadMachineName, install

ROOT = Path(__file__).resolve().parent.parent
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": (
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY;"
        " PRAGMA cache_size=-16000; PRAGMA mmap_size=134217728;"
    ),
}
POSTGRES_LIMITS = "-c idle_in_transaction_session_timeout=10s -c lock_timeout=5s -c statement_timeout=30s"
PREPARED = {"server_side_binding": True, "prepare_threshold": 5}
"""The server parses and plans a statement once for each connection: a worker repeats the same few."""
RECONNECT_S = 0.5
"""Seconds between two tries of the pool to connect to an unavailable server."""

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LONGEST_SOCKET_PATH = 100  # the kernel's limit is 107 bytes on Linux, 103 on macOS


class Environment(BaseSettings):
    """The environment's variables by their own names; lists are written with commas."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", case_sensitive=True)

    data_dir: Path = Field(ROOT / "var", alias="AGENTSITE_DATA_DIR")
    database_url: str = Field("", alias="DATABASE_URL")
    redis_url: str | None = Field(None, alias="REDIS_URL")
    secret_key: str = Field("", alias="SECRET_KEY")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        ("localhost", "127.0.0.1", "[::1]"), alias="ALLOWED_HOSTS"
    )
    csrf_trusted_origins: Annotated[tuple[str, ...], NoDecode] = Field((), alias="CSRF_TRUSTED_ORIGINS")
    https: bool = Field(False, alias="HTTPS")
    debug: bool = Field(False, alias="DEBUG")
    worker_threads: int = Field(256, alias="WORKER_THREADS", ge=1, le=2000)
    """Calls that one worker process may wait for at once."""
    database_pool: int = Field(20, alias="DATABASE_POOL", ge=0, le=500)
    hints: bool = Field(True, alias="HINTS")  # off: nothing is rung or queued, and everything still works
    broker_timeout: float = Field(
        2.0, alias="BROKER_TIMEOUT", gt=0, le=60
    )  # seconds; the longest that a hint may take
    lease_seconds: float = Field(
        20.0, alias="LEASE_SECONDS", ge=0.5, le=3600
    )  # seconds of silence after which a worker counts as lost, and another one goes on
    drain: float = Field(25.0, alias="DRAIN_SECONDS", ge=0, le=3600)
    """Seconds that an ending process waits for an unrepeatable call in flight."""
    process_name: str = Field("", alias="PROCESS_NAME", max_length=16)
    """Set by `up`, to release the runs of a process that has ended."""
    log_level: str = Field("WARNING", alias="LOG_LEVEL")
    retry_buffer: int = Field(2, alias="REACT_RETRY_BUFFER", ge=0, le=MOST_ROUNDS)
    replan_failure_threshold: int = Field(2, alias="REACT_REPLAN_FAILURE_THRESHOLD", ge=1, le=MOST_ROUNDS)
    """Defaults of `planned` for a launch without a value."""
    machines: Annotated[tuple[str, ...], NoDecode] = Field((), alias="AGENTSITE_MACHINES")
    """Machines from elsewhere, each as `package:NAME`."""
    email_url: str = Field("", alias="EMAIL_URL")
    email_from: str = Field("", alias="EMAIL_FROM")
    email_domains: Annotated[tuple[str, ...], NoDecode] = Field((), alias="EMAIL_DOMAINS")
    """Domains that agents may write to; empty: any."""
    sql_databases: str = Field("", alias="AGENTSITE_SQL_DATABASES")
    """Databases that agents may read, each as `name=URL`."""
    documents: str = Field("", alias="AGENTSITE_DOCUMENTS")
    """Folders of documents that agents may read, each as `name=/path`."""
    python_limits: str = Field("", alias="AGENTSITE_PYTHON_LIMITS")
    """Limits of scripts of the tool `python`, each as `name=number`."""
    otlp_endpoint: str = Field("", alias="AGENTSITE_OTLP_ENDPOINT")
    """The OpenTelemetry collector that gets spans of runs; empty: none."""
    otlp_content: bool = Field(False, alias="AGENTSITE_OTLP_CONTENT")
    """With prompts, replies, arguments and results."""

    @field_validator("allowed_hosts", "csrf_trusted_origins", "machines", "email_domains", mode="before")
    @classmethod
    def split_at_commas(cls, value: Any) -> Any:
        """Return `a.example, b.example` as two names."""
        return (
            tuple(filter(None, (part.strip() for part in value.split(","))))
            if isinstance(value, str)
            else value
        )

    @field_validator("email_domains")
    @classmethod
    def hosts(cls, domains: tuple[str, ...]) -> tuple[str, ...]:
        """Each in the spelling that hosts are compared in."""
        return tuple(map(pattern_of, domains))

    @field_validator("otlp_endpoint")
    @classmethod
    def is_web_address(cls, endpoint: str) -> str:
        """Refuse what is no address; keys belong into OTEL_EXPORTER_OTLP_HEADERS."""
        parts = urlsplit(endpoint)
        if endpoint and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
            raise ValueError("give an address such as http://localhost:4318, without user and password")
        return endpoint

    @field_validator("data_dir", mode="before")
    @classmethod
    def named(cls, path: Any) -> Any:
        """Refuse an empty name, which would be the working directory."""
        if path == "":
            raise ValueError("name a folder, or unset it")
        return path

    @field_validator("data_dir")
    @classmethod
    def absolute(cls, path: Path) -> Path:
        """Return the absolute path: the children of `up` may have another working directory."""
        return path.expanduser().absolute()

    @field_validator("log_level")
    @classmethod
    def known_level(cls, level: str) -> str:
        """Return one of Python's own levels, in letters of any case."""
        if level.upper() not in LOG_LEVELS:
            raise ValueError(f"write one of {', '.join(LOG_LEVELS)}")
        return level.upper()


def read_environment() -> Environment:
    """Return the checked environment; errors are named by variable."""
    try:
        environment = Environment()
    except ValidationError as why:
        raise BadEnvironment(
            (str(error["loc"][0]), error["msg"].removeprefix("Value error, ")) for error in why.errors()
        ) from None
    if faults := list(faults_of(environment)):
        raise BadEnvironment(faults)
    return environment


def install_machines(environment: Environment) -> list[Path]:
    """Add the machines named in the environment; return the template folders of all installed ones."""
    try:
        install(environment.machines)
    except BadMachineName as why:
        raise BadEnvironment([("AGENTSITE_MACHINES", str(why))]) from why
    return [folder / "templates" for folder in FOLDERS.values()]


class BadEnvironment(ImproperlyConfigured):
    """Unsafe or unreadable variables of the environment; each is named with its remedy."""

    def __init__(self, faults: Iterable[tuple[str, str]]) -> None:
        said = ". ".join(f"{name}: {why}" for name, why in faults)
        super().__init__(f"The environment can't be used. {said}.")


def database_of(url: str, data_dir: Path, pool: int) -> dict[str, Any]:
    """Return Django's description of the database at a URL: `sqlite:////abs/path` or
    `postgresql://user@host:port/name`."""
    if not url:
        return sqlite_database(data_dir / "agentsite.sqlite3")
    parts = urlsplit(url)
    match parts.scheme:
        case "sqlite" | "sqlite3" if len(parts.path) > 1 and not parts.netloc:
            return sqlite_database(Path(unquote(parts.path[1:])))
        case "postgres" | "postgresql":
            return postgres_database(url, pool)
    raise ImproperlyConfigured(
        f"DATABASE_URL can't be used: {parts.scheme or 'it'} is not a form that agentsite knows. Write "
        "sqlite:////absolute/path.sqlite3, postgresql://user:password@host:5432/name "
        "or postgresql://user@/name?host=/folder/of/the/socket."
    )


def sqlite_database(path: Path) -> dict[str, Any]:
    """Return a file, opened so that several processes may write and every commit is on the disk."""
    return {
        "ENGINE": "agentsite.sqlite3",
        "NAME": str(path),
        "OPTIONS": dict(SQLITE_OPTIONS),
        "TEST": {"NAME": f"{path}.test"},
    }


def postgres_database(url: str, pool: int) -> dict[str, Any]:
    """Return a server, over TCP or its unix socket; connections come from a pool unless its size is 0."""
    parts = urlsplit(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    host = query.pop("host", None) or unquote(parts.hostname or "")
    options: dict[str, Any] = {**query, "options": POSTGRES_LIMITS, **PREPARED}
    if pool:
        from psycopg_pool import ConnectionPool

        options["pool"] = {"min_size": 1, "max_size": pool, "timeout": 10}
        # Its own pauses grow to minutes while the server is away
        options["pool"] |= {"reconnect_timeout": RECONNECT_S, "reconnect_failed": ConnectionPool.check}
    try:
        port = str(parts.port or query.pop("port", ""))
    except ValueError:
        raise ImproperlyConfigured("DATABASE_URL can't be used: its port is not a number.") from None
    options.pop("port", None)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.removeprefix("/")) or "agentsite",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": port,
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,  # a connection that died in the pool is not handed out
        "OPTIONS": options,
    }


class BadDataDirectory(ImproperlyConfigured):
    """The folder for the data can't be used; the sentence says why, and what to do."""


class NoSite(ImproperlyConfigured):
    """A command needs a site, and the environment has none."""

    def __init__(self, data_dir: Path, database: Path | None) -> None:
        where = f"in {data_dir}" if data_dir.is_dir() else f"at {data_dir}: the directory does not exist"
        if data_dir.is_dir() and database is not None and database.parent != data_dir:
            where = f"at {database}"
        super().__init__(
            f"There is no site {where}. Name the right data directory (AGENTSITE_DATA_DIR), "
            "or start a site there (manage.py up). Nothing was made."
        )


def refuse_without_site(environment: Environment) -> None:
    """Raise `NoSite` if the database's file is missing; with a server's database, if there is no site's key."""
    known = database_of(environment.database_url, environment.data_dir, 0)
    file = Path(known["NAME"]) if known["ENGINE"].endswith("sqlite3") else None
    there = (
        file.is_file() if file is not None else environment.data_dir.is_dir() or bool(environment.secret_key)
    )
    if not there:
        raise NoSite(environment.data_dir, file)


def private_dir(path: Path) -> Path:
    """Return the folder, made if need be, with access for its owner only; an open folder of other files is refused."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as why:
        raise BadDataDirectory(
            f"{path} can't be the data directory: {why.strerror}. Name a folder."
        ) from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise BadDataDirectory(
            f"{path} can't be the data directory: this user may not read and write in it. "
            "Run it as its owner, or name another folder."
        )
    if path.stat().st_mode & 0o077:
        if any(path.iterdir()) and not (path / "secret_key").exists():
            raise BadDataDirectory(
                f"{path} can't be the data directory: it holds other files and others may read it. "
                f"Name an empty or new folder, or make this one private first: chmod 700 {path}"
            )
        path.chmod(0o700)
    return path


def secret_key_in(data_dir: Path, new: str = "") -> str:
    """Return the site's key, made once (`new` if given); the loser of a race reads the winner's."""
    path = private_dir(data_dir) / "secret_key"
    if not path.exists():
        draft = path.with_name(f"secret_key.{os.getpid()}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(new or new_secret_key())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    key = path.read_text(encoding="ascii")
    if why := weak_key(key):
        raise BadDataDirectory(
            f"The secret key in {path} can't be used: {why}. Put the site's own key back. Without it stored model "
            "keys can't be opened; if it is lost, delete the file, start the site, and enter them again."
        )
    return key


def new_secret_key() -> str:
    """Return an unguessable key that is not stored yet."""
    return secrets.token_urlsafe(64)


def cookie_name(use: str, data_dir: Path, secret_key: str) -> str:
    """Return the site's own name for a cookie: browsers keep cookies by host, and another port may be another site.

    Behind a proxy a site does not know its port. A copy of a data directory has the same key, and another path.
    """
    site = hashlib.sha256(f"cookies of {data_dir} {secret_key}".encode()).hexdigest()
    return f"agentsite_{use}_{site[:8]}"


def data_in(environment: Environment, site: SiteWanted) -> tuple[Path, str]:
    """Return data directory and secret key, made if the site may be made; else a key for this process alone."""
    data_dir, key = environment.data_dir, environment.secret_key
    if site != "none" or data_dir.exists():
        private_dir(data_dir)
    if not key:
        there = site == "made" or (data_dir / "secret_key").exists()
        key = secret_key_in(data_dir) if there else new_secret_key()
    return data_dir, key


def broker_socket(data_dir: Path) -> Path:
    """Return the embedded broker's socket: beside the data, or at a place with a short enough path."""
    beside = data_dir / "broker" / "valkey.sock"
    if len(os.fsencode(beside)) <= LONGEST_SOCKET_PATH:
        return beside
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    name = data_dir.stat().st_ino if data_dir.exists() else 0
    return base / f"agentsite-{os.getuid()}-{name}" / "valkey.sock"


def redis_url_of(given: str | None, data_dir: Path) -> str:
    """Return the broker to use: the environment's, else the embedded one if it answers, else none."""
    if given is not None:
        return given
    path = broker_socket(data_dir)
    return f"unix://{path}" if answers(path) else ""


def answers(path: Path) -> bool:
    """Return True if a server accepts connections at this unix socket."""
    if not path.exists():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(0.5)
        try:
            line.connect(str(path))
        except OSError:
            return False
    return True


def celery_broker_of(redis_url: str) -> str:
    """Return the same broker in Celery's spelling."""
    if not redis_url:
        return "memory://"
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    number = parse_qs(parts.query).get("db", ["0"])[-1]
    return f"redis+socket://{parts.path}?virtual_host={number}"
