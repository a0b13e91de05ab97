"""TCP ports on this machine: read one from the command line, refuse a taken one, and find the site's address."""

import socket
from argparse import ArgumentTypeError

from django.conf import settings
from django.core.management.base import CommandError

from agentsite.stopped import STOPPED
from agentsite.unsafe import is_this_machine

HOST = "127.0.0.1"


class PortTaken(CommandError):
    """Another program listens there."""

    def __init__(self, port: int, command: str) -> None:
        super().__init__(
            f"Port {port} is taken by another program. Stop that program, or choose another port: "
            f"python3 manage.py {command} --port {port + 1}",
            returncode=STOPPED,
        )
        self.port = port


class PortReserved(CommandError):
    """Only the system may listen there."""

    def __init__(self, port: int) -> None:
        super().__init__(f"Port {port} is reserved for the system. Choose one above 1023 with --port.")
        self.port = port


def port_number(text: str) -> int:
    """Return a TCP port."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError(f"{text!r} is not a port; write a number from 1 to 65535")
    return int(text)


def refuse_taken(port: int, command: str) -> None:
    """Refuse a taken port before anything is started."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError:
            raise PortReserved(port) from None
        except OSError:
            raise PortTaken(port, command) from None


def listens(port: int) -> bool:
    """Return True if a server accepts connections there."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def address_of(port: int) -> str:
    """Return the site's address for people: its first public host, served by a proxy; else the port itself."""
    public = (host for host in settings.ENVIRONMENT.allowed_hosts if not is_this_machine(host))
    name = next(public, None)
    return f"https://{name}" if name else f"http://{HOST}:{port}"
