"""CloudEvents as the SDK of the CloudEvents project, which nobody here wrote, reads them
(formats/cloudevents.md 2).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import sqlalchemy as sa
from kafka_cluster import Cluster
from publishers import install, write_config
from shared import execute, fetch, statuses, url_of

from eventlog.config.load import Config, load
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once

pytest.importorskip("cloudevents.core", reason="the CloudEvents SDK is not installed")
from cloudevents.core.bindings import http, kafka
from cloudevents.core.formats.json import JSONFormat

CHANGES = (
    "CREATE TABLE usr (name text PRIMARY KEY, age bigint, photo bytea)",
    """INSERT INTO usr VALUES ('Zoë "Z" 100%', 9007199254740993, '\\xbbbb')""",
    "UPDATE usr SET age = 36",
    "DELETE FROM usr",
)
DATA = [
    {
        "operation": "insert",
        "columns": {"age": {"new": 9007199254740993}, "photo": {"new": "u7s="}},
    },
    {"operation": "update", "columns": {"age": {"old": 9007199254740993, "new": 36}}},
    {"operation": "delete", "columns": {}},
]


@pytest.fixture
def configure(database: sa.Engine, tmp_path: Path) -> Any:
    """A log with the changes, and configurations that publish it to a sink in a mode."""

    def make(mode: str, **sink: Any) -> Config:
        watches, publisher = [{"table": "usr"}], {"allow_loopback": True}
        return load(
            write_config(
                tmp_path, url_of(database), watches, sink=sink, publisher=publisher,
                format={"type": "cloudevents", "cloudevents": {"mode": mode, "source": "https://hr.example.com/log"}},
            ),
            {},
        )  # fmt: skip

    create, *changes = CHANGES
    execute(database, create)
    install(make("structured", type="stdout"))
    for change in changes:
        execute(database, change)
    return make


def publish(config: Config) -> None:
    with open_context(config, Counters()) as context, closing(open_sink(config, None)) as sink:  # type: ignore[arg-type]
        publish_once(context, sink)


def check(database: sa.Engine, events: list[Any]) -> None:
    times = [
        time for (time,) in fetch(database, "SELECT event_time FROM eventlog ORDER BY record_id")
    ]
    assert [event.get_id() for event in events] == ["1", "3", "4"]
    assert {event.get_source() for event in events} == {"https://hr.example.com/log"}
    assert {event.get_subject() for event in events} == {
        'name="Zoë \\"Z\\" 100%",table=usr,schema=public'
    }
    assert [event.get_type() for event in events] == [
        "eventlog.insert",
        "eventlog.update",
        "eventlog.delete",
    ]
    assert {event.get_datacontenttype() for event in events} == {"application/json"}
    for event, time, expected in zip(events, (times[0], *times[2:]), DATA, strict=True):
        said = event.get_time()
        assert isinstance(said, datetime)
        assert said.replace(tzinfo=None) == time
        data = event.get_data()
        assert {name: data[name] for name in expected} == expected
        assert data["key"] == {"name": 'Zoë "Z" 100%'}
    assert set(statuses(database).values()) == {"S"}


@pytest.fixture
def server() -> Iterator[tuple[str, list[http.HTTPMessage]]]:
    got: list[http.HTTPMessage] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append(http.HTTPMessage(dict(self.headers.items()), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}/", got
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_the_sdk_reads_each_request(
    database: sa.Engine, configure: Any, server: Any, mode: str
) -> None:
    url, got = server
    publish(configure(mode, type="http", url=url))
    check(database, [http.from_http(message, JSONFormat()) for message in got])


def test_the_sdk_reads_each_event_of_a_batch(
    database: sa.Engine, configure: Any, server: Any
) -> None:
    url, got = server
    publish(configure("batched", type="http", url=url))
    (message,) = got
    structured = {"Content-Type": "application/cloudevents+json"}
    events = [
        http.HTTPMessage(structured, json.dumps(event).encode())
        for event in json.loads(message.body)
    ]
    check(database, [http.from_http(event, JSONFormat()) for event in events])


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_the_sdk_reads_each_record(
    database: sa.Engine, configure: Any, brokers: Cluster, mode: str
) -> None:
    publish(configure(mode, type="kafka", brokers=brokers.brokers, topic="hr", timeout=20))
    check(
        database,
        [kafka.from_kafka(message, JSONFormat()) for message in consumed(brokers, "hr", len(DATA))],
    )


def consumed(brokers: Cluster, topic: str, number: int) -> list[kafka.KafkaMessage]:
    """The records of a topic as a consumer gets them, of one partition, since they are of one
    object.
    """
    found = brokers.messages(topic, number)
    assert len({record.partition() for record in found}) == 1
    assert {record.key() for record in found} == {
        'name="Zoë \\"Z\\" 100%",table=usr,schema=public'.encode()
    }
    return [
        kafka.KafkaMessage(dict(record.headers() or ()), record.key(), record.value())
        for record in found
    ]
