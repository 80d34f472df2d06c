"""Trace a publisher with OpenTelemetry: a span for each window, delivery, document and mark (extra
``otel``).

A delivery is a trace: its documents and marks are spans below the delivery's span, which is linked
to the window of the delivery's rows. The receiver of a document gets the document's span as
``traceparent`` (W3C Trace Context), in a header of the HTTP request or of each Kafka record. Spans
contain numbers, levels and event-ids: never a value, a key or a receiver's words.

The standard variables of OpenTelemetry configure everything: the target of the spans, their number,
their name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer

from eventlog import __version__
from eventlog.config.load import Config
from eventlog.core.clock import unix_time
from eventlog.core.rows.event_ids import without_key
from eventlog.errors import ConfigError
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.observer import Doing, Observer
from eventlog.publisher.ledger.delivery import DeliveryInfo
from eventlog.publisher.sinks import Sink
from eventlog.registry import sink_named

_ROOT: Final = Context()
_PROTOCOL: Final = "http/protobuf"


class Tracing(Observer):
    """An observer that makes spans for a publisher's work and for the attempts of its sink.

    ``log`` and ``sink`` are the published log and the type of the sink. One delivery is sent at a
    time; several threads may send its documents.
    """

    def __init__(self, tracer: Tracer, log: str, sink: str) -> None:
        self._tracer = tracer
        self._attributes = {"eventlog.log": log, "eventlog.sink": sink}
        self.kind = SpanKind[sink_named(sink).span_kind]
        self._window: Link | None = None
        self._delivery: Span | None = None
        self._context = _ROOT

    # --- the publisher's reports ---

    def does(self, doing: Doing, reason: str = "") -> None:
        self._window = None  # recorded deliveries belong to another window

    def window_read(self, seconds: float, groups: int) -> None:
        if groups:  # an idle publisher reads windows all the time
            self._window = Link(
                self._past("eventlog.window", seconds, _ROOT, groups=groups).get_span_context()
            )

    def delivery_begins(
        self, delivery: DeliveryInfo, event_times: Mapping[str, str | None]
    ) -> None:
        self._end_delivery("the publisher lost its connection")
        links = [] if self._window is None else [self._window]
        self._delivery = self.span(
            "eventlog.delivery", _ROOT, links=links, delivery=delivery.number
        )
        self._context = trace.set_span_in_context(self._delivery, _ROOT)

    def delivery_ended(self, number: int, result: str, left: DeliveryInfo | None = None) -> None:
        self._end_delivery("", result)

    def marked(self, seconds: float) -> None:
        self._past("eventlog.mark", seconds, self._context)

    def disconnected(self) -> None:
        self._end_delivery("the publisher lost its connection")

    def _end_delivery(self, broken: str, result: str = "") -> None:
        delivery, self._delivery, self._context = self._delivery, None, _ROOT
        if delivery is None:
            return
        if broken:
            delivery.set_status(StatusCode.ERROR, broken)
        else:
            delivery.set_attribute("eventlog.result", result)
        delivery.end()

    def _past(self, name: str, seconds: float, context: Context, **numbers: int) -> Span:
        """Return a span of work that ends now and took ``seconds``, with ``numbers`` as in
        ``span``.
        """
        now = int(unix_time() * 1e9)
        span = self.span(
            name, context, SpanKind.INTERNAL, None, now - int(seconds * 1e9), **numbers
        )
        span.end(now)
        return span

    # --- the sink's sending ---

    def span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: list[Link] | None = None,
        begun: int | None = None,
        **numbers: int | str,
    ) -> Span:
        """Return a span that began at ``begun`` (nanoseconds since 1970) or now. The span is below
        the present delivery, or in ``context``.

        ``numbers`` become attributes of the span, with names that begin with ``eventlog.``.
        """
        attributes = {
            **self._attributes,
            **{f"eventlog.{key}": value for key, value in numbers.items()},
        }
        return self._tracer.start_span(
            name, self._context if context is None else context, kind, attributes, links, begun
        )


class TracedSink(Sink):
    """A sink that makes a span of each document and sends the document to the receiver."""

    def __init__(self, sink: Sink, tracing: Tracing) -> None:
        self._sink, self._tracing = sink, tracing
        self._is_pending = False

    def send(self, document: Document) -> Answer:
        event_ids = document.event_ids
        if not event_ids:  # a heartbeat
            return self._sink.send(document)
        span = self._tracing.span(
            "eventlog.document",
            kind=self._tracing.kind,
            delivery=document.delivery_no,
            document=document.document_no,
            events=len(event_ids),
            first_event_id=without_key(event_ids[0]),
        )
        with self._made(span):
            answer = self._sink.send(_with_context(document))
            level = answer.worst(event_ids).level
            span.set_attribute("eventlog.level", level.name.lower())
            if level in (Level.ERROR, Level.FATAL):
                span.set_status(StatusCode.ERROR)
        self._is_pending = self._is_pending or answer.is_pending
        return answer

    def flush(self) -> Mapping[str, EventResult] | None:
        if not self._is_pending:
            return self._sink.flush()
        self._is_pending = False
        span = self._tracing.span("eventlog.flush", kind=self._tracing.kind)
        with self._made(span):
            return self._sink.flush()

    @contextmanager
    def _made(self, span: Span) -> Iterator[None]:
        """Make the span the current one until the block ends, and record the kind of an error."""
        # The words of a receiver must not appear in spans, so no exception is recorded.
        with trace.use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield
            except Exception as error:
                span.set_status(StatusCode.ERROR)
                span.set_attribute("error.type", getattr(error, "code", type(error).__name__))
                raise

    def close(self) -> None:
        self._sink.close()


def _with_context(document: Document) -> Document:
    """Return the document with the headers of the current span."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    headers = tuple((name, value.encode()) for name, value in carrier.items())
    records = [
        own
        if isinstance(own, EventResult)
        else tuple(one._replace(headers=(*one.headers, *headers)) for one in own)
        for own in document.records
    ]
    return document._replace(headers=(*document.headers, *carrier.items()), records=records)


@contextmanager
def tracing(config: Config) -> Iterator[Tracing]:
    """Trace a publisher while the block runs; the remaining spans are sent at the end.

    If ``opentelemetry-instrument`` has set up a provider, this provider is used. Without a
    provider, spans go to a collector by OTLP over HTTP. Raises ConfigError for another exporter or
    protocol, ModuleNotFoundError without the exporter.
    """
    provider = trace.get_tracer_provider()
    own = _provider() if isinstance(provider, trace.ProxyTracerProvider) else None
    log = f"source {config.source.type}" if config.follows else config.database.log_table
    try:
        yield Tracing((own or provider).get_tracer("eventlog", __version__), log, config.sink.type)
    finally:
        if own is not None:
            own.shutdown()


def _provider() -> TracerProvider:
    """Return a provider that sends spans to a collector; the SDK reads the variables of
    OpenTelemetry itself. Raises ConfigError.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip()
    if exporter != "otlp":
        raise ConfigError(
            f"eventlog exports traces over otlp only. For OTEL_TRACES_EXPORTER={exporter}, start "
            "it with opentelemetry-instrument, or set the variable to otlp or none"
        )
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if os.environ.get(name, _PROTOCOL) != _PROTOCOL:
            raise ConfigError(
                f"eventlog exports traces over {_PROTOCOL} only. For {name}={os.environ[name]}, "
                "start it with opentelemetry-instrument"
            )
    has_name = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    provider = TracerProvider(
        resource=Resource.create({} if has_name else {"service.name": "eventlog"})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
