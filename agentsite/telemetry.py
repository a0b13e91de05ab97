"""Send spans of runs to an OpenTelemetry collector, in a thread of the scheduler's process.

It reads what is committed and remembers how far it has sent. No run waits for it. Importing this needs the packages of
`requirements-otel.in`. See docs/telemetry.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import requests
from django.conf import settings
from django.db import connections
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.trace.export import SpanExportResult

from runs.models import SentSpans
from runs.reading.otlp import readable
from runs.reading.spans import ROOT, Span, spans_of
from runs.store import health, sent_spans

LOOK_S, AWAY_S = 5.0, 30.0
"""Seconds between two looks, and to the next one while the collector is away."""

REQUEST_S = 10.0
SPANS_AT_ONCE = 500

REFUSED = (400, 413, 422)
"""Statuses that are about the spans sent, not about the key or the address."""

log = logging.getLogger(__name__)
logging.getLogger(trace_exporter.__name__).disabled = True  # it would log each attempt


class Away(Exception):
    """The collector can't be reached, or takes nothing now."""


class Refused(Exception):
    """The collector does not take these spans."""


class Sender:
    """The connection to one collector."""

    def __init__(self, endpoint: str, *, content: bool) -> None:
        self.endpoint, self.content = endpoint, content
        self.is_away = False
        self.status = 0
        """Of its last response; 0 if there was none."""
        session = requests.Session()
        session.hooks["response"].append(self._heard)
        self.exporter = trace_exporter.OTLPSpanExporter(
            endpoint=traces_url(endpoint), timeout=REQUEST_S, session=session
        )

    def look(self) -> None:
        """Send what is new; log once that the collector is away, and once that it is back."""
        try:
            for mark in sent_spans.wanting():
                self._send_run(mark)
                self._is_back()
        except Away as why:
            if not self.is_away:
                log.warning(
                    "no spans can be sent to %s (%s); they are sent once it answers", self.endpoint, why
                )
            self.is_away = True

    def _send_run(self, mark: SentSpans) -> None:
        upto = mark.run.head
        try:
            spans = self._spans(mark)
            upto = max((span.seq for span in spans), default=mark.upto)
            for first in range(0, len(spans), SPANS_AT_ONCE):
                self._send(spans[first : first + SPANS_AT_ONCE])
        except Refused as why:
            log.warning("spans of run %s are left out: the collector refused them (%s)", mark.run_id, why)
        except Away:
            raise
        except Exception as fault:
            if health.is_away(fault):
                raise
            log.exception("spans of run %s are left out", mark.run_id)
        sent_spans.note(mark, upto)

    def _spans(self, mark: SentSpans) -> list[Span]:
        spans = spans_of(mark.run, after=mark.upto, content=self.content)
        return [span for span in spans if span.seq != ROOT or mark.run.finished]

    def _send(self, spans: Sequence[Span]) -> None:
        self.status = 0
        if self.exporter.export([readable(span) for span in spans]) is SpanExportResult.SUCCESS:
            return
        why = f"HTTP {self.status}" if self.status else "no answer"
        raise Refused(why) if self.status in REFUSED else Away(why)

    def _heard(self, response: requests.Response, *args: Any, **options: Any) -> None:
        self.status = response.status_code

    def _is_back(self) -> None:
        if self.is_away:
            log.info("spans are sent to %s again", self.endpoint)
        self.is_away = False


def traces_url(endpoint: str) -> str:
    """Return the address for spans of a collector's base address."""
    return f"{endpoint.rstrip('/').removesuffix('/v1/traces')}/v1/traces"


def begin(stopping: threading.Event) -> None:
    """Start sending to the collector of the settings, until `stopping` is set."""
    sender = Sender(settings.OTLP_ENDPOINT, content=settings.OTLP_CONTENT)
    threading.Thread(target=_send_again_and_again, args=(sender, stopping), name="spans", daemon=True).start()


def _send_again_and_again(sender: Sender, stopping: threading.Event) -> None:
    begun = False
    while not stopping.is_set():
        try:
            if not begun:
                sent_spans.begin()
                begun = True
            sender.look()
        except Exception as fault:
            if health.is_away(fault):
                health.wait_until_back(stopping.is_set)
                continue
            log.exception("spans can't be sent now; the next look tries again")
        finally:
            connections.close_all()
        stopping.wait(AWAY_S if sender.is_away else LOOK_S)
