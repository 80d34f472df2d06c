"""Times that other calendars do not have: logged, sent and read back by PostgreSQL (spec/xds.md
4.3, 6.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from shared import PlainSink, opened_log

from eventlog.config.load import load
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.table_key import quote
from eventlog.model import Answer, Document, Event, Op
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.sql import migrations
from eventlog.sql.connect.connection import connect
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.triggers import triggers_of
from eventlog.sql.triggers.watch import WatchedTable
from eventlog.xds.reader import read_events

SCHEMA = """
CREATE TABLE price (id integer PRIMARY KEY, amount numeric(10,2), free numeric, day date, at time, until timestamptz,
    made timestamp);
CREATE TABLE slot (until timestamptz PRIMARY KEY, n integer)
"""
COLUMNS = {
    "day": [
        "infinity",
        "-infinity",
        "10000-01-01",
        "5874897-12-31",
        "0044-03-15 BC",
        "4713-01-01 BC",
    ],
    "at": ["24:00:00"],
    "made": [
        "infinity",
        "-infinity",
        "12345-01-01",
        "294276-12-31 23:59:59.999999",
        "4713-01-01 00:00:00 BC",
    ],
    "until": [
        "infinity",
        "-infinity",
        "12345-01-01 00:00+02",
        "0044-03-15 10:00:00 BC",
        "294276-12-31 23:59:59+00",
    ],
    "amount": ["NaN"],
    "free": ["NaN", "Infinity", "-Infinity"],
}
CASES = [(column, value) for column, values in COLUMNS.items() for value in values]


def fill(database: sa.Engine) -> None:
    with database.begin() as conn:
        conn.exec_driver_sql(SCHEMA, execution_options={"no_parameters": True})
    migrations.upgrade(database, log_table="eventlog")
    with database.begin() as conn:
        log = locate_log(DIALECT.open(conn), name="eventlog")
        found = DIALECT.open(conn).reflect(None)
        classes = build_catalog(found, ignore=log.own_tables)
        watches = (WatchedTable("price"), WatchedTable("slot", "row_query_back"))
        triggers_of(DIALECT).apply(
            conn, triggers_of(DIALECT).plan(opened_log(conn, log), found, classes, watches)
        )


@pytest.fixture
def watched(filled_database: Any) -> Iterator[sa.Engine]:
    """A database whose triggers log the two tables."""
    with filled_database(fill) as database:
        yield database


class Receiver(PlainSink):
    def __init__(self) -> None:
        self.events: list[Event] = []

    def send(self, document: Document) -> Answer:
        self.events += read_events(document.body).events
        return Answer()


def publish(database: sa.Engine, **options: str) -> tuple[list[Event], Counters]:
    url = database.url.render_as_string(hide_password=False)
    receiver, counters = Receiver(), Counters()
    flags = {
        "database.url": url,
        "publisher.allow_loopback": "yes",
        **{f"format.{k}": v for k, v in options.items()},
    }
    with open_context(load(None, {}, flags), counters) as context:
        publish_once(context, receiver)
    return receiver.events, counters


def run(database: sa.Engine, *statements: str) -> None:
    with database.begin() as conn:
        for statement in statements:
            conn.exec_driver_sql(statement, execution_options={"no_parameters": True})


def letters(database: sa.Engine) -> set[str]:
    with database.connect() as conn:
        return set(conn.execute(sa.text("SELECT status FROM eventlog")).scalars())


@pytest.mark.parametrize("time_syntax", ["integer", "java"])
def test_every_special_value_that_is_stored_is_sent(watched: sa.Engine, time_syntax: str) -> None:
    for number, (column, value) in enumerate(CASES):
        run(
            watched,
            f"INSERT INTO price (id, {column}) VALUES ({number}, '{value}')",
            f"UPDATE price SET {column} = NULL WHERE id = {number}",
        )
    events, counters = publish(watched, **{"xds.time_syntax": time_syntax})
    assert letters(watched) == {"S"}
    assert counters.old_unreadable == 0
    removed = [
        attribute
        for event in events
        for attribute in event.attributes
        if attribute.steps[0].op is Op.REMOVE
    ]
    assert [attribute.name for attribute in removed] == [column for column, _ in CASES]
    assert {attribute.value_type for attribute in removed} == {"string"}


def test_special_times_that_are_not_wanted_are_invalid_rows(watched: sa.Engine) -> None:
    run(
        watched,
        "INSERT INTO price (id, day) VALUES (1, 'infinity')",
        "INSERT INTO slot VALUES ('infinity', 1)",
    )
    publish(watched, special_times="error")
    with watched.connect() as conn:
        codes = (
            conn.execute(sa.text("SELECT DISTINCT code FROM eventlog_error ORDER BY 1"))
            .scalars()
            .all()
        )
    assert codes == ["bad_table_key", "bad_value"]


@pytest.mark.parametrize("value", COLUMNS["until"])
def test_an_object_whose_key_is_a_special_time_is_read_back(watched: sa.Engine, value: str) -> None:
    run(watched, f"INSERT INTO slot VALUES ('{value}', 7)")
    events, _ = publish(watched)
    assert [(attribute.name, attribute.steps[-1].values) for attribute in events[0].attributes] == [
        ("n", ("7",))
    ]


KEYS = {
    "date": COLUMNS["day"],
    "time": ["24:00:00"],
    "timestamp": [
        "infinity",
        "12345-01-01 00:00:00",
        "294276-12-31 23:59:59.999999",
        "4714-11-24 00:00:00 BC",
    ],
    "timestamptz": [
        "12345-01-01 00:00:00+15:59",
        "294275-12-31 23:59:59-15:59",
        "4713-01-01 00:00:00+15 BC",
    ],
    "numeric": ["NaN", "Infinity", "-Infinity"],
}


@pytest.mark.parametrize(
    ("type", "text"), [(type, text) for type, texts in KEYS.items() for text in texts]
)
def test_a_key_that_is_a_special_value_is_never_an_error_of_the_server(
    never_committed: sa.Engine, type: str, text: str
) -> None:
    with connect(never_committed.url).connect() as conn:
        conn.exec_driver_sql(f"CREATE TABLE odd (k {type} PRIMARY KEY, n integer)")
        cls = build_catalog(DIALECT.open(conn).reflect("public")).class_named("odd")
        key = cls.canonical_key(f"k={quote(text)}")
        assert DIALECT.open(conn).query_back("public", cls, [key], cls.attributes) == {}
        conn.exec_driver_sql(f"INSERT INTO odd VALUES ('{text}', 7)")
        (found,) = DIALECT.open(conn).query_back("public", cls, [key], cls.attributes).values()
        assert found["n"] == ["7"]
        conn.rollback()
