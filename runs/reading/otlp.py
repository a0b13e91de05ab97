"""Spans in OpenTelemetry's own form. Importing this needs its packages (`requirements-otel.in`)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from opentelemetry.exporter.otlp.json.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from runs.reading.spans import Span, SpanRef

RESOURCE = Resource.create({"service.name": "agentsite"})
SCOPE = InstrumentationScope("agentsite")


def as_json(spans: Iterable[Span]) -> str:
    """Return the spans as one OTLP trace request in JSON."""
    return encode_spans([readable(span) for span in spans]).to_json()


def readable(span: Span) -> ReadableSpan:
    """Return the span as exporters take it."""
    status = Status(StatusCode.ERROR, span.message or None) if span.error else Status()
    return ReadableSpan(
        name=span.name,
        context=_context(span.ref),
        parent=_context(span.parent) if span.parent else None,
        resource=RESOURCE,
        attributes=dict(span.attributes) | ({"error.type": span.error} if span.error else {}),
        links=[Link(_context(span.link))] if span.link else [],
        kind=SpanKind.CLIENT if span.calls_out else SpanKind.INTERNAL,
        instrumentation_scope=SCOPE,
        status=status,
        start_time=_nanoseconds(span.start),
        end_time=_nanoseconds(span.end),
    )


def _context(ref: SpanRef) -> SpanContext:
    return SpanContext(ref.trace, ref.span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000) * 1_000
