"""Every source that is followed, in every format, to every sink: three changes, and a kill in their
midst.

What goes together is asked of the objects. A cell that is refused reports why before anything is
read.
"""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from bucket import ACCESS_KEY, SECRET_KEY, Store
from followed_stream import ITEM, Stream
from kafka_cluster import QUICK, Cluster, cluster, quiet_clients
from shared import met

from eventlog.changes.format import Report
from eventlog.config.load import Config, load
from eventlog.config.publishing import taken_by
from eventlog.errors import ConfigError
from eventlog.model import Answer, Change, ChangeOp, Document
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.sinks import Sink
from eventlog.publisher.stream import Source
from eventlog.publisher.stream.follow import follow
from eventlog.publisher.stream.open_source import following, position_of, refusal_of
from eventlog.qlik.messages.message_tables import WriteOptions
from eventlog.qlik.messages.message_writer import MessageWriter
from eventlog.registry import FORMATS, SINKS, SOURCES, format_named, names, source_named

MOMENT = datetime(2024, 5, 10, 12, tzinfo=UTC)
ROWS: list[tuple[ChangeOp, dict[str, Any] | None, dict[str, Any] | None]] = [
    (ChangeOp.INSERT, None, {"id": 1, "name": "nut"}),
    (ChangeOp.UPDATE, {"id": 1, "name": "nut"}, {"id": 1, "name": None}),
    (ChangeOp.DELETE, {"id": 1, "name": None}, None),
]


def changes() -> list[Change]:
    return [
        Change("app", "item", op, (("id", 1),), before, after,
               frozenset({"name"}) if op is ChangeOp.UPDATE else None, None, f"{number:032X}", 1,
               True, MOMENT)
        for number, (op, before, after) in enumerate(ROWS, 1)
    ]  # fmt: skip


# --- sources --------------------------------------------------------------------------------------

COLUMNS = [{"name": "id", "type": "INT4", "pk": 1}, {"name": "name", "type": "STRING"}]
CATALOG = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "item",
            "kind": "table",
            "columns": [{"name": "id", "type": "integer"}, {"name": "name", "type": "varchar(20)"}],
            "primary_key": ["id"],
            "foreign_keys": [],
        }
    ],
}


READER = {"labels": {"111": ITEM}, "keys": {"app.item": ["id"]}}


def gbase_stream(directory: Path, _brokers: Cluster) -> dict[str, Any]:
    stream = Stream(directory / "capture.cdc")
    for op, before, after in ROWS:
        work = stream.begin()
        if op is ChangeOp.INSERT:
            work.insert(ITEM, after)
        elif op is ChangeOp.UPDATE:
            work.update(ITEM, before, after)
        else:
            work.delete(ITEM, before)
        work.commit()
    stream.write()
    return {"path": str(stream.path), "reader": READER}


def queue(directory: Path, _brokers: Cluster) -> dict[str, Any]:
    url = f"sqlite:///{directory / 'queue.db'}"
    format_named("linter").write(changes(), url, {"catalog": CATALOG}, Report())
    return {"url": url, "reader": {"codec": "eventlog-emulator-1"}}


def topics(directory: Path, brokers: Cluster) -> dict[str, Any]:
    topic = f"{directory.name}.in"
    writer = MessageWriter(WriteOptions(topic=topic, columns={"app.item": COLUMNS}))
    brokers.write(message for change in changes() for message in writer.messages(change))
    return {"brokers": brokers.brokers, "topics": [topic], "properties": QUICK}


FEEDS: Mapping[str, Callable[[Path, Cluster], dict[str, Any]]] = {
    "gbase": gbase_stream, "linter": queue, "qlik-messages": topics,
}  # fmt: skip


# --- sinks ----------------------------------------------------------------------------------------


@dataclass
class Target:
    """What is sent to a sink: its settings, and the bytes that have come."""

    settings: dict[str, Any]
    received: Callable[[], bytes]
    stream: io.StringIO


TAKEN: list[bytes] = []


def take(document: bytes, _events: Any) -> None:
    """The function of the sink python."""
    TAKEN.append(document)


@contextmanager
def web_hook() -> Iterator[tuple[str, list[bytes]]]:
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = "".join(
                f"{name}: {value}\n"
                for name, value in self.headers.items()
                if name.startswith("ce-")
            )
            bodies.append(headers.encode() + self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", bodies
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def target(
    name: str, directory: Path, brokers: Cluster, store: Store | None = None
) -> Iterator[Target]:
    stream = io.StringIO()
    if name == "files":
        place = directory / "documents"
        files = lambda: b"".join(path.read_bytes() for path in sorted(place.glob("[!.]*")))  # noqa: E731
        yield Target({"directory": str(place)}, files, stream)
    elif name == "http":
        with web_hook() as (url, bodies):
            yield Target(
                {"url": url, "response_format": "status"}, lambda: b"\n".join(bodies), stream
            )
    elif name == "kafka":
        topic = f"{directory.name}.out"

        def stored() -> bytes:
            return b"\n".join(record.value or b"" for record in brokers.records(topic))

        yield Target({"brokers": brokers.brokers, "topic": topic}, stored, stream)
    elif name == "objects":
        assert store is not None
        store.clear()
        keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
        objects = lambda: b"".join(store.read(one) for one in store.names() if "/" not in one)  # noqa: E731
        yield Target({**store.sink(), **keys}, objects, stream)
    elif name == "python":
        TAKEN.clear()
        yield Target({"function": f"{__name__}:take"}, lambda: b"\n".join(TAKEN), stream)
    else:
        yield Target({}, lambda: stream.getvalue().encode(), stream)


# --- one run --------------------------------------------------------------------------------------


class Killed(BaseException):
    """The publisher is gone, between what it has sent and its answer."""


class Recorded(Sink):
    """A sink that notes what goes to the one behind it, and dies behind so many documents; -1 =
    never.
    """

    def __init__(self, sink: Sink, sent: list[tuple[str, bytes]], lives: int) -> None:
        self._sink, self._sent, self._lives = sink, sent, lives

    def send(self, document: Document) -> Answer:
        answer = self._sink.send(document)
        if document.records:
            values = [
                b"|".join(value for one in records if (value := _fixed(one.value)))
                for records in document.records
            ]  # type: ignore[union-attr]
        else:
            values = [_fixed(document.body)]
        assert len(values) == len(document.event_ids) == 1
        self._sent.append((document.event_ids[0], values[0]))
        self._lives -= 1
        if self._lives == 0:
            self._sink.flush()
            raise Killed
        return answer

    def flush(self) -> Any:
        return self._sink.flush()

    def close(self) -> None:
        self._sink.close()


VARYING = ("ts_ms", "ts_us", "ts_ns")


def _fixed(value: bytes | None) -> bytes:
    """What is written of an event, without the time of writing and the metadata of its table."""
    if value is None or b"ts_ms" not in value:
        return b"" if value is None or b"tableStructure" in value else value
    content = json.loads(value)
    for name in VARYING:
        content.get("payload", content).pop(name, None)
    return json.dumps(content).encode()


def publish(config: Config, to: Target, lives: int = -1) -> list[tuple[str, bytes]]:
    sent: list[tuple[str, bytes]] = []
    with suppress(Killed):
        follow(
            following(config, Counters(), Report()),
            position_of(config),
            lambda: Recorded(open_sink(config, to.stream), sent, lives),
            StopRequest(),
            once=True,
        )
    return sent


def configured(
    source: dict[str, Any], format: dict[str, Any], sink: dict[str, Any], position: Path
) -> Config:
    return load(
        {
            "source": {**source, "position_url": f"sqlite:///{position}"},
            "format": format,
            "sink": sink,
            "publisher": {"batch_size": 1, "mark_interval": 0},
        },
        {},
    )


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    quiet_clients()
    with cluster() as made:
        yield made


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with closing(Store()) as made:
        yield made


OF_SERVERS = ("nats", "rabbitmq", "redis", "sqs")
"""The sinks of queues and streams, each of which has a file of tests with its server."""

FOLLOWED = [name for name in names(SOURCES) if not source_named(name).is_log]
PUBLISHED = [name for name in names(FORMATS) if format_named(name).can("publish")]


@pytest.mark.promise("option sink.bucket_url")
@pytest.mark.parametrize(
    ("source", "format", "sink"),
    met(FOLLOWED, PUBLISHED, [name for name in names(SINKS) if name not in OF_SERVERS]),
)
def test_a_cell_loses_nothing_by_a_kill_and_repeats_ids_and_bytes(
    source: str, format: str, sink: str, brokers: Cluster, store: Store, tmp_path: Path
) -> None:
    kind: Source = source_named(source)()
    options: dict[str, Any] = {"type": format}
    feed = {"type": source, **FEEDS[source](tmp_path, brokers)}
    with target(sink, tmp_path, brokers, store) as to:
        settings = {"type": sink, **to.settings}
        if why := refusal_of(kind, format_named(format), sink):
            with pytest.raises(ConfigError, match=re.escape(why)):
                following(
                    configured(feed, options, settings, tmp_path / "position.db"),
                    Counters(),
                    Report(),
                )
            if not format_named(format).refusal(
                format_named(format).publish_options(), taken_by(sink)
            ):
                options[format] = {"missing_columns": "placeholder"}  # as the message specifies
            else:
                return
        elsewhere = {
            "files": {"directory": str(tmp_path / "whole")},
            "objects": {"bucket_url": "s3://landing/whole"},
        }
        whole = configured(
            feed, options, {**settings, **elsewhere.get(sink, {})}, tmp_path / "whole.db"
        )
        expected = publish(whole, to)
        assert len(expected) == len(dict(expected)) == 3
        before = len(to.received())
        config = configured(feed, options, settings, tmp_path / "position.db")
        first = publish(config, to, lives=2)
        second = publish(config, to)
        third = publish(config, to)
        assert len(first) == 2
        assert first[1] in second  # it was not answered
        assert {*first, *second} == set(expected)
        assert first == expected[:2]
        assert second == expected[-len(second) :]
        assert third == []
        received = to.received()
        assert len(received) > before or sink in elsewhere


# --- what a change becomes ------------------------------------------------------------------------


def written(config: Config, to: Target) -> list[Document]:
    """The documents of one run, as the sink gets them."""
    documents: list[Document] = []

    class Noted(Sink):
        def __init__(self, sink: Sink) -> None:
            self._sink = sink

        def send(self, document: Document) -> Answer:
            documents.append(document)
            return self._sink.send(document)

        def flush(self) -> Any:
            return self._sink.flush()

    open_noted = lambda: Noted(open_sink(config, to.stream))  # noqa: E731
    follow(
        following(config, Counters(), Report()),
        position_of(config),
        open_noted,
        StopRequest(),
        once=True,
    )
    return documents


def moved_and_truncated(directory: Path) -> dict[str, Any]:
    """A stream in which a row is made, gets another key, and the table is emptied and filled
    again.
    """
    stream = Stream(directory / "capture.cdc")
    stream.insert(1)
    work = stream.begin()
    work.update(ITEM, {"id": 1, "name": "new"}, {"id": 2, "name": "new"})
    work.commit()
    work = stream.begin()
    work.truncate(ITEM)
    work.commit()
    stream.insert(2)
    stream.write()
    return {
        "type": "gbase",
        "path": str(stream.path),
        "reader": {"labels": {"111": ITEM}, "keys": {"app.item": ["id"]}},
    }


MEANINGS = {
    "xds": ["add 1", "delete 1", "add 2", "add 2"],  # the TRUNCATE is refused
    "cloudevents": ["insert 1", "update 2", "truncate", "insert 2"],
    "debezium": ["c 1", "d 1", "c 2", "t", "c 2"],
}


def meanings(format: str, body: bytes) -> list[str]:
    """The operations of a body with the keys of their rows."""
    text = body.decode()
    if format == "xds":
        return [
            " ".join(found)
            for found in re.findall(r"<(add|modify|delete) .*?<association>id=(\d+)", text)
        ]
    told = []
    for line in text.splitlines():
        content = json.loads(line)
        if format == "cloudevents":
            data = content["data"]
            told.append(" ".join([data["operation"], *map(str, data.get("key", {}).values())]))
        else:
            payload = content["payload"]
            row = payload["after"] or payload["before"] or {}
            told.append(" ".join([payload["op"], *([str(row["id"])] if row else [])]))
    return told


@pytest.mark.parametrize("format", MEANINGS)
def test_a_new_key_and_an_emptied_table_are_written_in_the_form_of_the_format_and_in_order(
    format: str, tmp_path: Path, brokers: Cluster
) -> None:
    with target("stdout", tmp_path, brokers) as to:
        config = configured(
            moved_and_truncated(tmp_path), {"type": format}, {"type": "stdout"}, tmp_path / "p.db"
        )
        documents = written(replace(config, publisher=replace(config.publisher, batch_size=8)), to)
    assert [one for document in documents for one in meanings(format, document.body)] == MEANINGS[
        format
    ]
    ids = [event_id for document in documents for event_id in document.event_ids]
    assert len(ids) == len(set(ids))
    emptied = [
        document
        for document in documents
        if meanings(format, document.body)[-1] in ("t", "truncate")
    ]
    assert all(len(document.event_ids) == 1 for document in emptied)  # it is in the air alone


@pytest.mark.promise("option format.debezium.missing_columns")
def test_types_come_from_the_source_also_where_a_value_is_null(
    tmp_path: Path, brokers: Cluster
) -> None:
    def name_type(body: bytes) -> str:
        fields = json.loads(body)["schema"]["fields"]
        (after,) = [one for one in fields if one["field"] == "after"]
        (own,) = [one["type"] for one in after["fields"] if one["field"] == "id"]
        return str(own)

    for source, make in FEEDS.items():
        directory = tmp_path / source
        directory.mkdir()
        with target("stdout", directory, brokers) as to:
            options = {"type": "debezium", "debezium": {"missing_columns": "placeholder"}}
            feed = {"type": source, **make(directory, brokers)}
            documents = written(
                configured(feed, options, {"type": "stdout"}, directory / "p.db"), to
            )
        assert {name_type(document.body) for document in documents} == {"int32"}, source


def test_numbers_of_messages_continue_after_the_position(tmp_path: Path, brokers: Cluster) -> None:
    """Each start reads one more transaction; no number comes twice, and each is greater than those
    before.
    """

    def sequences(documents: list[Document]) -> list[str]:
        values = [
            one.value for document in documents for records in document.records for one in records
        ]  # type: ignore[union-attr]
        return [
            found
            for value in values
            if value
            for found in re.findall(r'"changeSequence":"(\d{35})"', value.decode())
        ]

    stream = Stream(tmp_path / "capture.cdc")
    source = {"type": "gbase", "path": str(stream.path), "reader": READER}
    numbers: list[str] = []
    with target("kafka", tmp_path, brokers) as to:
        settings = {"type": "kafka", **to.settings}
        for key in range(1, 4):
            stream.insert(key)
            config = configured(source, {"type": "qlik-messages"}, settings, tmp_path / "p.db")
            numbers += sequences(written(config, to))
    assert len(numbers) == 3
    assert numbers == sorted(set(numbers))
    assert [int(number[16:]) for number in numbers] == [1, 2, 3]
