"""``handle_future_events``: rows in the order of event_time, none before its time
(spec/event-log.md 8.1, 8.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa
from shared import PlainSink

from eventlog.config.load import load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Document, Event, EventResult, Level
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context, open_unlocked
from eventlog.publisher.ledger.delivery import decode
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.send.cycle import dry_run
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT

PAST = [f"2020-01-01 00:00:0{second}" for second in range(10)]
FUTURE = "2999-01-01"


@dataclass
class Receiver(PlainSink):
    """``levels`` by event-id; ``"away"`` loses the connection."""

    levels: dict[str, str] = field(default_factory=dict)
    documents: list[list[Event]] = field(default_factory=list)

    def send(self, document: Document) -> Answer:
        if any(self.levels.get(event.event_id) == "away" for event in document.events):
            raise ReceiverUnavailable("away")
        self.documents.append(list(document.events))
        return Answer(
            {name: EventResult(Level[level.upper()]) for name, level in self.levels.items()}
        )

    @property
    def sent(self) -> list[str]:
        return [event.event_id for events in self.documents for event in events]


def fill(database: sa.Engine) -> None:
    with database.begin() as conn:
        conn.execute(sa.text("CREATE TABLE usr (idu integer PRIMARY KEY, fname text)"))
    migrations.upgrade(database, log_table="eventlog")
    with database.begin() as conn:
        # As a log that somebody else made may be.
        conn.execute(
            sa.text(
                "ALTER TABLE eventlog ALTER event_time DROP NOT NULL, ALTER event_time DROP DEFAULT"
            )
        )


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(fill) as database:
        yield database


def write(engine: sa.Engine, *rows: tuple[int, str | None, int], **more: object) -> None:
    """Rows of type 1 as (record_id, event_time, object), each with its record_id as the new
    value.
    """
    same = {"event_type": 1, "table_name": "usr", "column_name": "fname", **more}
    names = ["record_id", "event_time", "table_key", "new_value", *same]
    statement = (
        f"INSERT INTO eventlog ({', '.join(names)}) VALUES "
        f"({', '.join(f':{name}' for name in names)})"
    )
    with engine.begin() as conn:
        for record_id, event_time, idu in rows:
            own = {"record_id": record_id, "event_time": event_time, "table_key": f"idu={idu}"}
            conn.execute(sa.text(statement), {**same, **own, "new_value": str(record_id)})
        conn.execute(
            sa.text(
                "SELECT setval('eventlog_record_id_seq', greatest(max(record_id), 1)) FROM eventlog"
            )
        )


def publisher(engine: sa.Engine, **options: object) -> Any:
    url = engine.url.render_as_string(hide_password=False)
    given = {"handle_future_events": "yes", **options}
    flags = {
        "database.url": url,
        **{f"publisher.{name}": str(value) for name, value in given.items()},
    }
    return open_context(load(None, {}, flags), Counters())


def publish(engine: sa.Engine, receiver: Receiver | None = None, **options: object) -> Receiver:
    receiver = receiver or Receiver()
    with publisher(engine, **options) as context:
        publish_once(context, receiver)
    return receiver


def left(engine: sa.Engine) -> list[int]:
    with engine.connect() as conn:
        rows = conn.execute(
            sa.text("SELECT record_id FROM eventlog WHERE status = 'N' ORDER BY record_id")
        )
        return [row[0] for row in rows]


def test_rows_are_sent_by_event_time_then_record_id(log: sa.Engine) -> None:
    write(log, (1, PAST[5], 1), (2, PAST[3], 2), (3, PAST[3], 3), (4, PAST[1], 4))
    assert publish(log).sent == ["4", "2", "3", "1"]
    assert left(log) == []


def test_without_the_option_event_time_does_not_count(log: sa.Engine) -> None:
    write(log, (1, FUTURE, 1), (2, PAST[3], 2))
    assert publish(log, handle_future_events="no").sent == ["1", "2"]


def test_a_row_waits_until_its_time_has_come(log: sa.Engine) -> None:
    write(log, (1, FUTURE, 1), (2, PAST[1], 2), (3, "infinity", 3), (4, "-infinity", 4))
    assert publish(log).sent == ["4", "2"]
    assert left(log) == [1, 3]


def test_a_row_without_time_is_due_and_first(log: sa.Engine) -> None:
    write(log, (1, PAST[1], 1), (2, None, 2), (3, None, 3))
    assert publish(log).sent == ["2", "3", "1"]


CLOCKS = [
    # zone of the server, event_time_zone, age of the row in hours by UTC, due
    ("UTC", "utc", 0.5, True),
    ("UTC", "utc", -0.5, False),
    ("Asia/Tokyo", "utc", -0.5, False),
    ("Asia/Tokyo", "local", -8.5, True),
    ("Asia/Tokyo", "local", -9.5, False),
    ("America/New_York", "local", 3, False),
    ("America/New_York", "local", 6, True),
    ("America/New_York", "utc", 3, True),
]


@pytest.mark.parametrize(("server_zone", "event_time_zone", "age", "due"), CLOCKS)
def test_the_servers_clock_decides_what_is_due(
    log: sa.Engine, server_zone: str, event_time_zone: str, age: float, due: bool
) -> None:
    with log.begin() as conn:
        conn.execute(sa.text(f"ALTER DATABASE {log.url.database} SET timezone = '{server_zone}'"))
        time = conn.execute(
            sa.text(
                "SELECT (clock_timestamp() AT TIME ZONE 'UTC' - :age * interval '1 hour')::text"
            ),
            {"age": age},
        ).scalar_one()
    log.dispose()
    write(log, (1, time, 1))
    assert publish(log, event_time_zone=event_time_zone).sent == (["1"] if due else [])


@pytest.mark.parametrize("event_time_zone", ["utc", "local"])
def test_a_time_with_zone_needs_no_zone(log: sa.Engine, event_time_zone: str) -> None:
    with log.begin() as conn:
        conn.execute(sa.text(f"ALTER DATABASE {log.url.database} SET timezone = 'Asia/Tokyo'"))
        conn.execute(sa.text("ALTER TABLE eventlog ALTER event_time TYPE timestamptz"))
        before, after = (
            str(
                conn.execute(
                    sa.text(f"SELECT clock_timestamp() {sign} interval '1 min'")
                ).scalar_one()
            )
            for sign in "-+"
        )
    log.dispose()
    write(log, (1, after, 1), (2, before, 2))
    assert publish(log, event_time_zone=event_time_zone).sent == ["2"]
    with log.connect() as conn:
        opened = locate_log(DIALECT.open(conn), name="eventlog")
        assert -61 < (DIALECT.open(conn).log(opened).queue(event_time_zone).oldest_seconds or 0) < 0


@pytest.mark.parametrize("query_limit", [0, 1, 2, 3, 10])
def test_windows_are_walked_to_the_end_of_what_is_due(log: sa.Engine, query_limit: int) -> None:
    write(log, *((number, PAST[-number % 7], number) for number in range(1, 10)), (10, FUTURE, 10))
    order = [
        str(number)
        for number in sorted(range(1, 10), key=lambda number: (PAST[-number % 7], number))
    ]
    assert publish(log, query_limit=query_limit).sent == order
    assert left(log) == [10]


@pytest.mark.parametrize(
    ("query_limit", "sent"),
    [(10, [("2", ["2", "1"]), ("3", ["3"])]), (2, [("2", ["2"]), ("3", ["3"]), ("1", ["1"])])],
)
def test_groups_are_cut_at_the_end_of_a_window(
    log: sa.Engine, query_limit: int, sent: list[tuple[str, list[str]]]
) -> None:
    """Nothing is held back: ids are not in order, so no row could close a group."""
    write(log, (1, PAST[3], 1), (2, PAST[1], 1), (3, PAST[2], 2))
    receiver = publish(log, query_limit=query_limit)
    assert [
        (event.event_id, last_values(event)) for events in receiver.documents for event in events
    ] == [(event_id, values[-1:]) for event_id, values in sent]


@pytest.mark.parametrize("query_limit", [1, 2, 3])
def test_an_insert_is_not_cut_at_the_end_of_a_window(log: sa.Engine, query_limit: int) -> None:
    """A part of it would be a separate add, which replaces the object."""
    with log.begin() as conn:
        conn.execute(sa.text("ALTER TABLE usr ADD lname text, ADD phone text"))
    write(log, (1, PAST[1], 1), (2, PAST[2], 2), (7, PAST[2], 3), (8, PAST[3], 1))
    write(log, (3, PAST[2], 2), (5, PAST[2], 3), column_name="lname")
    write(log, (4, PAST[2], 2), (6, PAST[2], 3), column_name="phone")
    receiver = publish(log, query_limit=query_limit)
    events = [event for events in receiver.documents for event in events]
    assert {event.event_id: sorted(last_values(event)) for event in events} == {
        "1": ["1"],
        "2": ["2", "3", "4"],
        "5": ["5", "6", "7"],
        "8": ["8"],
    }
    assert left(log) == []


def last_values(event: Event) -> list[str]:
    return [
        value for attribute in event.attributes for step in attribute.steps for value in step.values
    ]


def test_an_event_is_rebuilt_in_the_order_that_it_was_sent_in(log: sa.Engine) -> None:
    """The line keeps the order of the queue, which is not that of the ids."""
    write(log, (1, PAST[3], 1), (2, PAST[1], 1), (3, PAST[2], 1))
    with pytest.raises(ReceiverUnavailable):
        publish(log, Receiver({"2": "away"}))
    with log.connect() as conn:
        line = conn.execute(sa.text("SELECT content FROM eventlog_inflight")).scalar_one()
    assert [(event.event_id, list(event.ids)) for event in decode(1, line).events()] == [
        ("2", [2, 3, 1])
    ]
    write(log, (4, PAST[0], 1))  # of an earlier time, but not in what may have been applied
    receiver = publish(log)
    assert receiver.sent == ["2", "4"]
    assert last_values(receiver.documents[0][0]) == ["1"]


@pytest.mark.parametrize("query_limit", [1, 2, 10])
def test_a_parked_object_does_not_use_up_the_window(log: sa.Engine, query_limit: int) -> None:
    write(log, (1, PAST[0], 1), (2, PAST[1], 2), (3, PAST[2], 1), (4, PAST[3], 3))
    receiver = Receiver({"1": "retry"})
    with pytest.raises(ReceiverUnavailable, match="1 object left"):
        publish(
            log,
            receiver,
            query_limit=query_limit,
            fold_distance=0,
            batch_size=1,
            retry_initial=1000,
            retry_max=1000,
        )
    assert receiver.sent == ["1", "2", "4"]
    assert left(log) == [1, 3]


@pytest.mark.parametrize(("loopback_action", "remaining"), [("keep", [1, 2]), ("mark", [])])
def test_loopback_rows_that_are_left_do_not_use_up_the_window(
    log: sa.Engine, loopback_action: str, remaining: list[int]
) -> None:
    write(log, (1, PAST[0], 1), (2, PAST[1], 2), perpetrator="hr  ")
    write(log, (3, PAST[2], 3), perpetrator="HR")
    write(log, (4, PAST[3], 4))
    receiver = publish(log, query_limit=1, loopback_action=loopback_action, driver_user="hr")
    assert receiver.sent == ["3", "4"]
    assert left(log) == remaining


def test_invalid_rows_and_rows_without_positive_id_do_not_stop_the_queue(log: sa.Engine) -> None:
    write(log, (-1, PAST[0], 1), (0, PAST[0], 1))
    write(log, (1, PAST[1], 1), table_name="nobody")
    write(log, (2, PAST[2], 2))
    assert publish(log, query_limit=1).sent == ["2"]
    assert left(log) == [-1, 0]


def test_a_dry_run_shows_what_is_due(log: sa.Engine) -> None:
    write(log, (1, PAST[1], 1), (2, FUTURE, 2), (3, PAST[0], 3))
    url = log.url.render_as_string(hide_password=False)
    flags = {
        "database.url": url,
        "publisher.handle_future_events": "yes",
        "publisher.query_limit": "1",
    }
    with open_unlocked(load(None, {}, flags), Counters()) as context:
        documents = list(dry_run(context))
    assert [document.partition('event-id="')[2][0] for document in documents] == ["3", "1"]
    assert left(log) == [1, 2, 3]


def test_the_window_is_read_by_the_index_of_the_queue(log: sa.Engine) -> None:
    """The log is mostly done; a row N must not cost a walk over all of it."""
    with log.begin() as conn:
        conn.execute(
            sa.text(
                "INSERT INTO eventlog (event_type, table_name, table_key, status)"
                " SELECT 4, 'usr', 'idu=' || n, 'S' FROM generate_series(1, 2000) AS n"
            )
        )
    with log.connect() as conn:
        DIALECT.open(conn).choose_plans()
        opened = locate_log(DIALECT.open(conn), name="eventlog")
        statement = DIALECT.log_statement(opened, "read_due")
        parameters = {
            "until": FUTURE,
            "after_time": None,
            "after_id": 0,
            "limit": 10,
            "perpetrator": None,
        }
        plan = "\n".join(row[0] for row in conn.exec_driver_sql("EXPLAIN " + statement, parameters))
    assert "Index Scan using idx_eventlog_1" in plan
    assert "Seq Scan" not in plan
