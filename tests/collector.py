"""An OpenTelemetry collector on loopback: it parses OTLP/HTTP in protobuf, and keeps the spans."""

from __future__ import annotations

from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.threaded import OnThread


class Collector(OnThread):
    """It answers with `statuses` in turn, then with 200; only what it answers with 200 is kept."""

    def __init__(self, statuses: Sequence[int] = (), port: int = 0) -> None:
        self.spans: list[Span] = []
        self.statuses = list(statuses)
        self.requests: list[dict[str, str]] = []
        """The headers of each request."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = collector.take(self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        super().__init__(ThreadingHTTPServer(("127.0.0.1", port), Handler))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Keep the spans of a request; return the status of the answer."""
        self.requests.append(headers)
        if path != "/v1/traces":
            return 404
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            request = ExportTraceServiceRequest.FromString(body)
            self.spans += [
                span
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
        return status
