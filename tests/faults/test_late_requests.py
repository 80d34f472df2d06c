"""A receiver that goes on with a request which the publisher has given up, while the object of the
request is deleted (spec/event-log.md 8.4, *Built again*).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
from applied import Receiver, change, select
from publishers import install, running, write_config
from shared import Run, execute, url_of, wait_until

from eventlog import Event, Operation, Publisher
from eventlog.cli.context import changing_log
from eventlog.config.load import load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_classes import filters_of
from eventlog.publisher.declared.opening import open_context, open_unlocked
from eventlog.publisher.inspect.explanation import explain, explain_object
from eventlog.publisher.send.cycle import dry_run, run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession
from eventlog.sql.log.accepted_filters import accept_filters

TABLES: Final = (
    "CREATE TABLE orders (id integer PRIMARY KEY, state varchar(9), amount integer)",
    "CREATE VIEW open_orders AS SELECT id AS pk_id, amount AS sv_amount FROM orders WHERE state = 'open'",
)
INSERT: Final = "INSERT INTO orders VALUES (1, 'open', 1)"
DELETE: Final = "DELETE FROM orders"
CLOSE: Final = "UPDATE orders SET state = 'closed'"
FILTER: Final = [{"table": "orders", "where": "state = 'open'"}]
VIEW: Final = [
    {"view": "open_orders", "row_style": "row_query_back", "membership": ["state"],
     "base": {"orders": {"id": "pk_id", "amount": "sv_amount"}}}
]  # fmt: skip
CONSUMER: Final = {"consumer": "one", "start_from": "earliest"}
SNAPSHOT: Final = {"consumer": "one", "start_from": "snapshot"}
FORMATS: Final[Mapping[str, Any]] = {
    "xds": {"type": "xds", "xds": {"insert_query_back": "add"}},
    "cloudevents": {"type": "cloudevents"},
    "debezium": {"type": "debezium", "debezium": {"topic_prefix": "hr"}},
    "qlik-messages": {"type": "qlik-messages"},
}


class Late(Receiver):
    """A receiver that applies each event-id once. It works on its first document until ``finish``,
    long after the publisher has given the request up.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: set[str] = set()
        self._first: Sequence[Event] | None = None

    def __call__(self, body: bytes, events: Sequence[Event]) -> None:
        if self._first is None:
            self._first = events
            raise ReceiverUnavailable("no answer within 2 s")
        self._take(body, events)

    def finish(self) -> None:
        assert self._first
        self._take(b"", self._first)

    def _take(self, body: bytes, events: Sequence[Event]) -> None:
        new = [event for event in events if event.event_id not in self._known]
        self._known.update(event.event_id for event in new)
        super().__call__(body, new)

    @property
    def told(self) -> list[tuple[str, Operation]]:
        return [(event.event_id, event.operation) for event in self.events]


def configuration(url: str, style: str = "row_query_back", **more: Any) -> dict[str, Any]:
    return {
        "database": {"url": url},
        "publisher": {"allow_loopback": True},
        "format": FORMATS["xds"],
        "watch": [{"table": "orders", "row_style": style}],
        **more,
    }


def prepare(config: dict[str, Any]) -> None:
    loaded = load(config, {})
    install(loaded)
    with changing_log(loaded) as log:
        accept_filters(log, loaded.of_log.consumer, filters_of(loaded))
        log.commit()


def publish(config: dict[str, Any], receiver: Any) -> None:
    Publisher.from_config(config, sink=receiver, environ={}).run_once()


def give_up(config: dict[str, Any], receiver: Any) -> None:
    """Publish until the receiver gives no answer."""
    with pytest.raises(ReceiverUnavailable):
        publish(config, receiver)


def statuses(url: str) -> set[str]:
    return {status.strip() for (status,) in select(url, "SELECT status FROM eventlog")}


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as conn:
        for table in TABLES:
            conn.execute(table)
    return f"sqlite:///{file}"


@pytest.fixture
def postgres(logged: sa.Engine) -> str:
    for table in TABLES:
        execute(logged, table)
    return url_of(logged)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


CASES: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "the whole row is read": ({}, DELETE),
    "columns are read": ({"style": "field_query_back"}, DELETE),
    "a filter, and the object is deleted": ({"style": "field", "filter": FILTER}, DELETE),
    "a filter, and the object has left it": ({"style": "field", "filter": FILTER}, CLOSE),
    "a filter of columns that never change": (
        {"style": "field", "filter": [{**FILTER[0], "changes": False}]},
        DELETE,
    ),
    "a view": ({"watch": VIEW}, DELETE),
    "a view, and the object has left it": ({"watch": VIEW}, CLOSE),
    "rows that were due": (
        {"publisher": {"allow_loopback": True, "handle_future_events": True}},
        DELETE,
    ),
    "a consumer": ({"source": CONSUMER}, DELETE),
    "a consumer with a filter": ({"source": CONSUMER, "filter": FILTER}, DELETE),
    "an object of a snapshot": ({"source": SNAPSHOT}, DELETE),
    "an object of a snapshot that has left the filter": (
        {"source": SNAPSHOT, "filter": FILTER},
        CLOSE,
    ),
}


@pytest.mark.promise("guarantee An event that was sent comes again until it is answered")
@pytest.mark.parametrize("case", CASES)
def test_a_request_that_outlives_its_object_leaves_nothing(database: str, case: str) -> None:
    more, then = CASES[case]
    config = configuration(database, **more)
    prepare(config)
    change(database, INSERT)
    receiver = Late()
    give_up(config, receiver)
    change(database, then)
    publish(config, receiver)
    receiver.finish()
    (first, *_) = receiver.told
    assert first[1] is Operation.DELETE
    assert receiver.objects == {}
    if "source" not in config:
        assert statuses(database) == {"S"}


class Kept:
    """A sink that has no answer to its first document, and keeps the others."""

    def __init__(self) -> None:
        self.documents: list[Document] = []

    def send(self, document: Document) -> Answer:
        self.documents.append(document)
        if len(self.documents) == 1:
            raise ReceiverUnavailable("no answer within 2 s")
        return Answer()

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("format_name", FORMATS)
def test_each_format_writes_the_delete_under_the_id_of_the_recorded_event(
    sqlite: str, format_name: str
) -> None:
    records = {"type": "kafka", "brokers": "127.0.0.1:1"}
    config = load(
        configuration(
            sqlite,
            format=FORMATS[format_name],
            sink=records if format_name == "qlik-messages" else {"type": "stdout"},
        ),
        {},
    )
    install(config)
    change(sqlite, INSERT)
    sink, once = Kept(), {"batch_size": 1}
    for _ in range(2):
        with open_context(config, Counters()) as context:
            context = replace(context, options=replace(context.options, **once))
            run_cycle(PublisherSession(context, recover(context), sink))
        change(sqlite, DELETE)
    added, again, deleted = sink.documents
    assert [list(one.event_ids) for one in sink.documents] == [["1"], ["1"], ["2"]]
    assert [one.events[0].operation for one in (added, again)] == [Operation.ADD, Operation.DELETE]
    assert _without_ids(again) == _without_ids(deleted)


def _without_ids(document: Document) -> Any:
    """A document without what differs between two deletes of an object."""
    if document.records:
        return [_bare(json.loads(each[-1].value or b"{}")) for each in document.records]
    text = document.body.decode()
    if text.startswith("<"):
        return text.replace('event-id="2"', 'event-id="1"')
    return [_bare(json.loads(line)) for line in text.splitlines()]


def _bare(value: Any) -> Any:
    names = {"id", "time", "event_id", "record_ids", "ts_ms", "ts_us", "ts_ns", "changeSequence",
             "timestamp", "streamPosition"}  # fmt: skip
    if isinstance(value, dict):
        return {key: _bare(one) for key, one in value.items() if key not in names}
    return [_bare(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("format_name", ["xds", "debezium"])
def test_an_update_of_a_deleted_object_is_a_delete_where_the_format_reads_whole_rows(
    sqlite: str, format_name: str
) -> None:
    config = configuration(sqlite, "field", format=FORMATS[format_name])
    change(sqlite, INSERT)
    prepare(config)
    change(sqlite, "UPDATE orders SET amount = 2")
    receiver = Late()
    give_up(config, receiver)
    change(sqlite, DELETE)
    publish(config, receiver)
    receiver.finish()
    again = Operation.MODIFY if format_name == "xds" else Operation.DELETE
    assert receiver.told == [("1", again), ("2", Operation.DELETE)]
    assert receiver.objects == {}


def test_rows_with_values_stay_the_event_of_an_object_that_is_deleted(sqlite: str) -> None:
    """What is left of the event is under its event-id, too."""
    config = configuration(sqlite, "field")
    change(sqlite, INSERT)
    prepare(config)
    change(
        sqlite,
        CLOSE,
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name) VALUES "
        "(8, 'orders', 'id=1', 'amount')",
    )
    receiver = Late()
    give_up(config, receiver)
    change(sqlite, DELETE)
    publish(config, receiver)
    receiver.finish()
    assert receiver.told == [("1", Operation.MODIFY), ("3", Operation.DELETE)]
    assert receiver.objects == {}


def test_a_receiver_that_has_applied_the_event_gets_the_delete_from_the_row_of_type_4(
    sqlite: str,
) -> None:
    config = configuration(sqlite)
    prepare(config)
    change(sqlite, INSERT)
    receiver = Late()
    give_up(config, receiver)
    receiver.finish()
    change(sqlite, DELETE)
    publish(config, receiver)
    assert receiver.told == [("1", Operation.ADD), ("2", Operation.DELETE)]
    assert receiver.objects == {}


def test_a_new_id_does_not_replace_the_first_one(sqlite: str) -> None:
    """The receiver has to prevent this (docs/guides/receivers.md, *A request that the publisher has
    given up*).
    """
    config = configuration(sqlite, "field")
    config["publisher"] |= {"fold_distance": 0, "isolate_after": 1, "retry_initial": 0.01}
    prepare(config)
    change(sqlite, INSERT, DELETE)  # two events of one object in a document

    class Hanging(Late):
        def __call__(self, body: bytes, events: Sequence[Event]) -> None:
            try:
                super().__call__(body, events)
            except ReceiverUnavailable:
                raise TimeoutError from None  # the document may be the cause

    receiver = Hanging()
    publish(config, receiver)
    change(sqlite, INSERT)
    publish(config, receiver)
    assert set(receiver.objects) == {1}
    receiver.finish()
    assert [event_id for event_id, _ in receiver.told] == ["1", "3.2", "4", "3"]
    assert receiver.objects == {}
    assert statuses(sqlite) == {"S"}


class TestARecordedEventIsNotSentAgain:
    """The exceptions of *Built again*: an error row or a counter shows each of them."""

    @pytest.fixture
    def recorded(self, sqlite: str) -> dict[str, Any]:
        """A recorded event whose object is deleted."""
        config = configuration(sqlite)
        prepare(config)
        change(sqlite, INSERT)
        give_up(config, Late())
        change(sqlite, DELETE)
        return config

    def test_if_its_rows_are_missing(self, recorded: dict[str, Any], sqlite: str) -> None:
        change(sqlite, "DELETE FROM eventlog WHERE record_id = 1")
        sent: list[str] = []
        publisher = Publisher.from_config(recorded, sink=_ids_to(sent), environ={})
        publisher.run_once()
        assert sent == ["2"]
        assert publisher.counters.rows_missing == 1

    def test_if_its_rows_have_become_invalid(self, recorded: dict[str, Any], sqlite: str) -> None:
        change(sqlite, "UPDATE eventlog SET table_key = 'id=x' WHERE record_id = 1")
        sent: list[str] = []
        publish(recorded, _ids_to(sent))
        assert sent == ["2"]
        assert select(sqlite, "SELECT record_id, code FROM eventlog_error") == [
            (1, "bad_table_key")
        ]

    def test_if_it_was_skipped(
        self, recorded: dict[str, Any], sqlite: str, run: Run, tmp_path: Path
    ) -> None:
        file = write_config(tmp_path, sqlite, recorded["watch"], sink={"type": "stdout"})
        assert run("--config", str(file), "skip", "1", "--reason", "gone")[0] == 0
        sent: list[str] = []
        publish(recorded, _ids_to(sent))
        assert sent == ["2"]
        assert select(sqlite, "SELECT record_id, code FROM eventlog_error") == [(1, "skipped")]

    def test_if_it_was_given_up(self, sqlite: str) -> None:
        config = configuration(sqlite)
        tried = {"max_attempts": 2, "retry_initial": 0.01, "retry_max": 0.01, "batch_size": 1}
        config["publisher"] |= {**tried, "polling_interval": 1}
        prepare(config)
        told: list[tuple[str, Operation]] = []

        def fails(_: bytes, events: Sequence[Event]) -> None:
            told.extend((event.event_id, event.operation) for event in events)
            if events[0].event_id == "1":
                raise ReceiverUnavailable("it fails", is_suspicious=True)

        change(sqlite, INSERT)
        give_up(config, fails)
        change(sqlite, DELETE)
        change(sqlite, *(f"INSERT INTO orders VALUES ({number}, 'open', 1)" for number in (2, 3)))
        with running(Publisher.from_config(config, sink=fails, environ={})):
            wait_until(lambda: statuses(sqlite) == {"E", "S"})
        assert select(sqlite, "SELECT record_id, code FROM eventlog_error") == [(1, "receiver")]
        ids = [event_id for event_id, _ in told]
        assert ("1", Operation.DELETE) in told
        assert "1" not in ids[ids.index("2") :]

    def test_if_its_object_may_only_have_left_its_view(self, sqlite: str) -> None:
        watch = {name: value for name, value in VIEW[0].items() if name != "membership"}
        config = configuration(sqlite, watch=[watch])
        config["publisher"] |= {"profile": "idm"}
        prepare(config)
        change(sqlite, INSERT)
        give_up(config, Late())
        change(sqlite, CLOSE)
        sent: list[str] = []
        publisher = Publisher.from_config(config, sink=_ids_to(sent), environ={})
        publisher.run_once()
        assert sent == []
        assert publisher.counters.rows_gone >= 1


def _ids_to(sent: list[str]) -> Callable[[bytes, Sequence[Event]], None]:
    def receive(_: bytes, events: Sequence[Event]) -> None:
        sent.extend(event.event_id for event in events)

    return receive


@pytest.mark.parametrize("source", [None, SNAPSHOT], ids=["a row", "an object of a snapshot"])
def test_a_refused_insert_does_not_become_a_letter_with_a_delete(
    sqlite: str, tmp_path: Path, source: dict[str, str] | None
) -> None:
    letters = {"type": "files", "directory": str(tmp_path / "letters")}
    config = configuration(
        sqlite, dead_letter=letters, **({} if source is None else {"source": source})
    )
    prepare(config)
    change(sqlite, INSERT)
    give_up(config, Late())

    def refuse(_: bytes, events: Sequence[Event]) -> Answer:
        change(sqlite, DELETE)
        return Answer({event.event_id: EventResult(Level.ERROR, "no") for event in events})

    publish(config, refuse)
    written = [
        json.loads(line)
        for file in sorted((tmp_path / "letters").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    assert [(one["code"], "rows" in one, "event" in one) for one in written][:1] == [
        ("receiver", True, False)
    ]


@pytest.mark.parametrize("source", [None, SNAPSHOT], ids=["a row", "an object of a snapshot"])
def test_explain_and_the_preview_show_the_delete_that_a_recorded_event_has_become(
    sqlite: str, source: dict[str, str] | None
) -> None:
    more = {} if source is None else {"source": source}
    settings = configuration(sqlite, **more)
    prepare(settings)
    change(sqlite, INSERT)
    sent: list[str] = []
    give_up(settings, _lost_to(sent))
    config = load(settings, {})
    change(sqlite, DELETE)
    with open_unlocked(config, Counters()) as context:
        (event_id,) = sent
        explained = explain(context, 1) if source is None else explain_object(context, event_id)
    assert (explained.event_id, explained.operation) == (event_id, Operation.DELETE)
    assert [note for note in explained.notes if "sent again as a delete" in note]
    assert explained.document is not None
    assert "<delete" in explained.document
    with open_unlocked(config, Counters()) as context:
        (document, *_) = dry_run(context)
    assert "<delete" in document
    assert event_id in document


def _lost_to(sent: list[str]) -> Callable[[bytes, Sequence[Event]], None]:
    def receive(_: bytes, events: Sequence[Event]) -> None:
        sent.extend(event.event_id for event in events)
        raise ReceiverUnavailable("no answer within 2 s")

    return receive
