"""The sinks that send over a wire pass the kit for others: to an HTTP server, brokers and a
bucket.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread

import pytest
from bucket import Store
from kafka_cluster import Cluster, cluster, quiet_clients

from eventlog.publisher.sinks.http import HttpOptions, HttpSink
from eventlog.publisher.sinks.kafka import KafkaSink, KafkaSinkOptions
from eventlog.publisher.sinks.objects import STATE, ObjectsSink
from eventlog.testing.sink_kit import *  # noqa: F403
from eventlog.testing.sink_kit import SinkCase

TOPICS = count(1)


def event_ids(body: bytes) -> list[str]:
    return re.findall(r'event-id="([^"]+)"', body.decode())


class WebHook:
    """Takes each event once, in their order; hangs up while it is unavailable."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.is_away = False
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hook.is_away:
                    self.close_connection = True
                    return
                hook.received += [one for one in event_ids(body) if one not in hook.received]
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @contextmanager
    def away(self) -> Iterator[None]:
        self.is_away = True
        yield
        self.is_away = False

    def case(self) -> SinkCase:
        options = HttpOptions(
            f"http://127.0.0.1:{self.server.server_port}/xds", response_format="status", timeout=10
        )
        return SinkCase(HttpSink, options, lambda: self.received, self.away)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    quiet_clients()
    with cluster() as running:
        yield running


@pytest.fixture(scope="module")
def bucket() -> Iterator[Store]:
    store = Store()
    yield store
    store.close()


def on_web_hook(request: pytest.FixtureRequest) -> Iterator[SinkCase]:
    hook = WebHook()
    yield hook.case()
    hook.server.shutdown()
    hook.server.server_close()


def on_brokers(request: pytest.FixtureRequest) -> Iterator[SinkCase]:
    running, topic = request.getfixturevalue("brokers"), f"kit-{next(TOPICS)}"
    options = KafkaSinkOptions(brokers=running.brokers, topic=topic, timeout=3)

    def received() -> set[str]:
        return {one for record in running.records(topic) for one in event_ids(record.value or b"")}

    yield SinkCase(KafkaSink, options, received, running.stopped)


def on_bucket(request: pytest.FixtureRequest) -> Iterator[SinkCase]:
    store = request.getfixturevalue("bucket")
    store.clear()

    def received() -> list[str]:
        return [
            one for name in store.names() if name != STATE for one in event_ids(store.read(name))
        ]

    yield SinkCase(ObjectsSink, store.config().sink.options, received)


@pytest.fixture(params=[on_web_hook, on_brokers, on_bucket])
def sink_case(request: pytest.FixtureRequest) -> Iterator[SinkCase]:
    open_case: Callable[[pytest.FixtureRequest], Iterator[SinkCase]] = request.param
    yield from open_case(request)
