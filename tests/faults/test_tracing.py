"""Traces of a publisher: the spans that it makes of a real log, and what its receivers get of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import sqlalchemy as sa
from kafka_cluster import cluster, quiet_clients
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from publishers import Collecting, configuration, make_log, opened, process, write
from receiver import Receiver, Request, accept, answer, reply, status
from shared import PATIENCE

from eventlog.errors import ReceiverUnavailable
from eventlog.publisher.monitor.tracing import TracedSink, Tracing
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.sinks import Sink
from eventlog.publisher.sinks.http import HttpOptions, HttpSink, answer_form
from eventlog.publisher.sinks.kafka import KafkaSink


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


class Traced:
    """A publisher of a log with a tracer that keeps its spans."""

    def __init__(self, log: sa.Engine, sink: str) -> None:
        self.log, self.type, self.exporter = log, sink, InMemorySpanExporter()

    def publish(self, sink: Sink, **options: Any) -> list[ReadableSpan]:
        """The spans of one run, in the order in which they ended."""
        self.exporter.clear()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        tracing = Tracing(provider.get_tracer("eventlog"), "eventlog", self.type)
        directory = {"sink__type": "files", "sink__directory": "unused"}
        form = (
            {"sink__type": "kafka", "sink__brokers": "unused:1"}
            if self.type == "kafka"
            else directory
        )
        try:
            with opened(configuration(self.log, **form), **options) as context, closing(sink):
                publish_once(context, TracedSink(sink, tracing), observer=tracing)
        finally:
            provider.shutdown()
        return list(self.exporter.get_finished_spans())


def named(spans: list[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == f"eventlog.{name}"]


def told(span: ReadableSpan) -> str:
    """How ``traceparent`` names a span (W3C Trace Context 3.2)."""
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


def test_a_delivery_is_a_trace_with_its_documents_and_marks_linked_to_its_window(
    log: sa.Engine,
) -> None:
    write(log, 1, 2, 3)
    spans = Traced(log, "files").publish(Collecting(), batch_size=2)
    (window,), (delivery,) = named(spans, "window"), named(spans, "delivery")
    assert (window.attributes or {})["eventlog.groups"] == 3
    first, second = named(spans, "document")
    (mark,) = named(spans, "mark")
    assert delivery.parent is None
    assert [link.context.span_id for link in delivery.links] == [window.context.span_id]
    assert {span.parent.span_id for span in (first, second, mark) if span.parent} == {
        delivery.context.span_id
    }
    assert {span.context.trace_id for span in (first, second, mark)} == {delivery.context.trace_id}
    assert dict(first.attributes or {}) == {
        "eventlog.log": "eventlog",
        "eventlog.sink": "files",
        "eventlog.delivery": 1,
        "eventlog.document": 1,
        "eventlog.events": 2,
        "eventlog.first_event_id": "1",
        "eventlog.level": "success",
    }
    assert (delivery.attributes or {})[
        "eventlog.result"
    ] == "every event was answered, or is parked"
    for span in spans:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


def test_a_receiver_gets_the_span_of_each_document(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    with Receiver(accept) as receiver:
        spans = Traced(log, "http").publish(
            HttpSink(HttpOptions(receiver.url), answer_form("xds")), batch_size=1, concurrency=3
        )
    documents = named(spans, "document")
    assert {span.kind for span in documents} == {SpanKind.CLIENT}
    assert len(documents) == 3
    assert sorted(request.headers["traceparent"] for request in receiver.requests) == sorted(
        map(told, documents)
    )
    assert {span.parent.span_id for span in documents if span.parent} == {
        span.context.span_id for span in named(spans, "delivery")
    }


def test_the_span_shows_a_refusal_and_nothing_of_the_receivers_answer(log: sa.Engine) -> None:
    def refuse(_request: Request) -> bytes:
        return reply(200, answer(status("error", None, "no such person as Jack")))

    write(log, 1)
    with Receiver(refuse) as receiver:
        spans = Traced(log, "http").publish(HttpSink(HttpOptions(receiver.url), answer_form("xds")))
    (document,) = named(spans, "document")
    assert (document.attributes or {})["eventlog.level"] == "error"
    assert not document.status.is_ok
    assert not any("Jack" in span.to_json() for span in spans)


def test_the_span_shows_that_a_receiver_is_unavailable_and_nothing_of_its_answer(
    log: sa.Engine,
) -> None:
    write(log, 1)
    traced = Traced(log, "http")
    with Receiver(lambda _: b"Jack is out\r\n\r\n") as receiver, pytest.raises(ReceiverUnavailable):
        # Otherwise it is tried further times: the cause may be the document.
        traced.publish(HttpSink(HttpOptions(receiver.url), answer_form("xds")), park=False)
    spans = list(traced.exporter.get_finished_spans())
    (document,), (delivery,) = named(spans, "document"), named(spans, "delivery")
    assert (document.attributes or {})["error.type"] == ReceiverUnavailable.code
    assert (delivery.attributes or {})[
        "eventlog.result"
    ] == "the cycle stops: the receiver is unavailable"
    assert not any("Jack" in span.to_json() for span in spans)


def test_each_kafka_record_bears_the_span_of_its_document(log: sa.Engine) -> None:
    quiet_clients()
    write(log, 1, 2)
    with cluster() as brokers:
        spans = Traced(log, "kafka").publish(KafkaSink(brokers.brokers, "changes", timeout=20))
        (document,) = named(spans, "document")
        assert document.kind is SpanKind.PRODUCER
        assert len(named(spans, "flush")) == 1
        messages = brokers.messages("changes", 2)
    traces = [dict(message.headers() or ())["traceparent"] for message in messages]
    assert traces == [told(document).encode()] * 2


needs_exporter = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry.exporter") is None,
    reason="no exporter here: the extra otel",
)


@needs_exporter
def test_a_publisher_sends_its_spans_to_the_collector_that_the_variables_name(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: list[bytes] = []

    def collect(request: Request) -> bytes:
        assert request.path.endswith("/v1/traces")
        bodies.append(request.stream.read(int(request.headers["Content-Length"])))
        return reply(200)

    write(log, 1)
    with Receiver(collect, reads=False) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with process(log, tmp_path, "--once", stderr=PIPE) as running:
            _, lines = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, lines.decode()
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    (resource,) = ExportTraceServiceRequest.FromString(bodies[0]).resource_spans
    assert ("service.name", "eventlog") in {
        (one.key, one.value.string_value) for one in resource.resource.attributes
    }
    spans = {span.name for scope in resource.scope_spans for span in scope.spans}
    assert spans == {"eventlog.window", "eventlog.delivery", "eventlog.document", "eventlog.mark"}
    assert b"Jack" not in bodies[0]


@pytest.mark.parametrize("off", [{"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}])
def test_what_is_off_sends_nothing(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: dict[str, str]
) -> None:
    write(log, 1)
    with Receiver(lambda _: reply(200)) as collector:
        for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **off}.items():
            monkeypatch.setenv(name, value)
        with process(log, tmp_path, "--once") as running:
            running.communicate(timeout=PATIENCE)
        assert running.returncode == 0
    assert collector.requests == []


@needs_exporter
@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]
)
def test_what_cannot_be_done_is_refused_with_a_way_out(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9/")
    monkeypatch.setenv(name, value)
    with process(log, tmp_path, "--once", stderr=PIPE) as running:
        _, lines = running.communicate(timeout=PATIENCE)
    assert running.returncode == 2
    assert f"{name}={value}" in lines.decode()
    assert "opentelemetry-instrument" in lines.decode()
