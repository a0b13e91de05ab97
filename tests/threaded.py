"""A small server on loopback that answers in threads of its own for the length of a `with`."""

from __future__ import annotations

import socketserver
import threading
from types import TracebackType
from typing import Self


class OnThread:
    """Serves until the `with` ends; `closing` is set before, for handlers that wait."""

    def __init__(self, server: socketserver.ThreadingMixIn) -> None:
        assert isinstance(server, socketserver.TCPServer)
        server.daemon_threads = True
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        self.closing = threading.Event()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
