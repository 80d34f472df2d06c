"""The log on every database: read, marked, deleted, locked (spec/event-log.md 1, 8, 10, 12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import pytest
import sqlalchemy as sa
from platforms import Platform
from shared import opened_log

from eventlog.core.ranges import RecordSet
from eventlog.errors import ConfigError, LogTableError, PublisherAlreadyRunning
from eventlog.model import Status
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.doctor.event_times import are_utc
from eventlog.sql.log.errors import add_errors, read_attempts, read_errors
from eventlog.sql.log.internal_tables import (
    EntryKind,
    add_entry,
    delete_entry,
    next_number,
    read_entries,
    replace_content,
)
from eventlog.sql.log.purge import (
    Purged,
    PurgedRows,
    purge_cutoff,
    purge_errors,
    purge_rows,
    read_purged,
    write_purged,
)
from eventlog.sql.log.requeue import RefusedRow, Requeued, requeue
from eventlog.sql.log.rows import column_of, count_by_status, extent, rows_of, tail
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import RowChunks
from eventlog.sql.readers.consumers import has_later_columns
from eventlog.sql.readers.start_time import first_row_from


class Log(NamedTuple):
    conn: sa.Connection
    dialect: Dialect
    table: LogTable

    def ids(self, window: Window = Window(1, None, None)) -> list[int]:  # noqa: B008 - immutable
        return [
            row.record_id
            for row in self.dialect.open(self.conn).log(self.table).read_window(window)
        ]


@pytest.fixture
def log(platform: Platform) -> Iterator[Log]:
    """Rows 1 to 10 of status N."""
    platform.run("CREATE TABLE keyed (a {integer} PRIMARY KEY)")
    platform.watch("keyed")
    platform.run(*(f"INSERT INTO keyed VALUES ({n})" for n in range(10)))
    with platform.session() as (conn, table):
        yield Log(conn, platform.dialect, table)


def test_a_driver_binds_a_status_as_one_character(log: Log) -> None:
    first = log.ids()[0]
    for place, letter in enumerate(Status):
        log.dialect.open(log.conn).log(log.table).mark(letter, [(first + place, first + place)])
    read = log.dialect.open(log.conn).log(log.table).read_rows([(first, first + len(Status) - 1)])
    assert [(type(row.status), row.status.rstrip()) for row in read] == [
        (str, letter) for letter in "NSWEF"
    ]


def test_a_window_is_read_in_order(log: Log) -> None:
    first, *_, last = log.ids()
    assert last - first == 9
    assert log.ids(Window(first + 2, None, 3)) == [first + 2, first + 3, first + 4]
    assert log.ids(Window(first, first + 1, None)) == [first, first + 1]
    rows = (
        log.dialect.open(log.conn)
        .log(log.table)
        .read_rows([(first, first), (first + 3, first + 4)])
    )
    assert [row.record_id for row in rows] == [first, first + 3, first + 4]
    assert {row.event_type for row in rows} == {5}
    assert tail(opened_log(log.conn, log.table)) == last


def test_a_window_is_read_in_chunks_of_one_snapshot(platform: Platform, log: Log) -> None:
    def chunks(size: int) -> RowChunks:
        everything = Window(1, None, None)
        return (
            log.dialect.open(log.conn).log(log.table).window_chunks(everything, ["record_id"], size)
        )

    assert [len(chunk) for chunk in chunks(4)] == [4, 4, 2]
    assert [len(chunk) for chunk in chunks(5)] == [5, 5, 0]
    begun = chunks(4)
    first = next(begun)
    if platform.has("concurrent_writers"):
        platform.run("INSERT INTO keyed VALUES (100)")
        assert [len(chunk) for chunk in begun] == [4, 2]
    begun.close()
    # The session can go on with other statements, whether it was read to its end or not.
    ((record_id,), *_) = first
    assert log.dialect.open(log.conn).log(log.table).mark("S", [(record_id, record_id)]) == 1


def test_the_newest_rows_before_one_are_read_and_those_with_error_rows_by_reader(
    log: Log,
) -> None:
    first, *_, last = log.ids()
    opened = opened_log(log.conn, log.table)
    opened.mark("S", [(last, last)])
    fields = ("record_id", "status")
    read = opened.read_newest(None, 3, fields)
    assert [(int(row), status.rstrip()) for row, status in read] == [
        (last, "S"), (last - 1, "N"), (last - 2, "N"),
    ]  # fmt: skip
    assert [row for row, *_ in opened.read_newest(first + 2, 9, fields)] == [first + 1, first]
    rows = (first, first + 3, first + 3, last)
    add_errors(opened, [(row, "receiver", "no") for row in rows])
    assert opened.refused_ids(None, 2) == [last, first + 3]
    assert opened.refused_ids(last, 9) == [first + 3, first]
    assert opened.refused_ids(None, 9, "nobody") == []


def test_marks_and_deletions_touch_rows_that_are_still_n(log: Log) -> None:
    first, *_, last = log.ids()
    opened = opened_log(log.conn, log.table)
    assert opened.mark("S", [(first, first + 1), (first + 3, first + 3)]) == 3
    assert opened.mark("E", [(first, first + 4)]) == 2
    assert count_by_status(opened) == {"S": 3, "E": 2, "N": 5}
    assert opened.delete([(first, last)]) == 5
    assert count_by_status(opened) == {"S": 3, "E": 2}
    assert requeue(opened, ["E"]).set_back == 2
    assert opened.mark("S", []) == 0


def test_rows_of_one_user_can_be_left_alone(log: Log) -> None:
    first, second, third, fourth, *_ = log.ids()
    user = log.dialect.quote(log.table.columns[4])
    name = log.dialect.quote(log.table.name)
    # A user of blanks alone is nobody, and never the one whose rows are left.
    for record_id, value in ((first, "me"), (second, "me  "), (third, "Me"), (fourth, " ")):
        log.conn.exec_driver_sql(
            f"UPDATE {name} SET {user} = '{value}' WHERE "
            f"{log.dialect.quote(log.table.columns[0])} = {record_id}"
        )
    assert log.ids(Window(1, None, 2, skipped_user="me")) == [third, fourth]


def test_the_queue_is_counted_and_aged(log: Log) -> None:
    found = log.dialect.open(log.conn).log(log.table).queue("utc")
    assert found.rows == 10
    assert found.oldest_seconds is not None
    assert -5 < found.oldest_seconds < 120


def test_rows_that_are_due_come_by_time(log: Log) -> None:
    first, second, third, *_ = log.ids()
    dialect, conn = log.dialect, log.conn
    name, time, record_id = map(
        dialect.quote, (log.table.name, log.table.columns[3], log.table.columns[0])
    )
    now = datetime.now(UTC).replace(tzinfo=None)
    for row, hours in ((first, -1), (second, -2), (third, 1)):
        when = now + timedelta(hours=hours)
        stamp = f"'{when:%Y-%m-%d %H:%M:%S}'"
        stamp = (
            f"TO_TIMESTAMP({stamp}, 'YYYY-MM-DD HH24:MI:SS')" if dialect.name == "oracle" else stamp
        )
        conn.exec_driver_sql(f"UPDATE {name} SET {time} = {stamp} WHERE {record_id} = {row}")
    until = dialect.open(conn).log(log.table).due_until("utc")
    fields = ("event_time", "record_id")
    due = next(dialect.open(conn).log(log.table).due_chunks(until, None, None, fields, 2))
    assert [record_id for _, record_id in due] == [second, first]
    rest = [
        record_id
        for chunk in dialect.open(conn).log(log.table).due_chunks(until, due[-1], None, fields, 3)
        for _, record_id in chunk
    ]
    assert third not in rest
    assert len(rest) == 7


def test_what_waits_for_its_time_is_exactly_what_is_not_read(log: Log) -> None:
    first, second, *_, last = log.ids()
    dialect, conn = log.dialect, log.conn
    name, time, record_id = map(
        dialect.quote, (log.table.name, log.table.columns[3], log.table.columns[0])
    )
    until = dialect.open(conn).log(log.table).due_until("utc")
    now = f"'{until[:19]}'"
    if dialect.name == "oracle":
        now = f"TO_TIMESTAMP({now}, 'YYYY-MM-DD HH24:MI:SS')"
    hour = {
        "sqlite": f"datetime({now}, '+1 hour')",
        "postgresql": f"TIMESTAMP {now} + INTERVAL '1 hour'",
        "oracle": f"{now} + INTERVAL '1' HOUR",
    }.get(dialect.name, f"TIMESTAMP({now}) + INTERVAL 1 HOUR")
    for row, when in ((first, hour), (second, now)):
        conn.exec_driver_sql(f"UPDATE {name} SET {time} = {when} WHERE {record_id} = {row}")
    due = dialect.open(conn).log(log.table).due_ids(until, first, last)
    assert due == [
        record_id
        for chunk in dialect.open(conn)
        .log(log.table)
        .due_chunks(until, None, None, ["record_id"], 100)
        for (record_id,) in chunk
    ]
    assert first not in due
    assert dialect.open(conn).log(log.table).due_ids(until, first, second) == [second]
    waiting = dialect.open(conn).log(log.table).not_due(until, 100)
    assert (waiting.rows, waiting.rows_checked) == (1, 10)
    assert waiting.next_time is not None
    assert waiting.next_seconds == pytest.approx(3600, abs=1)
    assert dialect.open(conn).log(log.table).not_due(until, 0) == (0, None, None, 0)


def test_deliveries_are_numbered_once(log: Log) -> None:
    conn, table = log.conn, log.table
    first = next_number(opened_log(conn, table))
    add_entry(opened_log(conn, table), EntryKind.DELIVERY, first, '{"a": 1}')
    second = next_number(opened_log(conn, table))
    assert second > first
    add_entry(opened_log(conn, table), EntryKind.DELIVERY, second, "{}")
    replace_content(opened_log(conn, table), EntryKind.DELIVERY, first, "x" * 5000)
    assert _in_flight(opened_log(conn, table)) == [(first, "x" * 5000), (second, "{}")]
    delete_entry(opened_log(conn, table), EntryKind.DELIVERY, first)
    delete_entry(opened_log(conn, table), EntryKind.DELIVERY, second)
    assert _in_flight(opened_log(conn, table)) == []
    assert next_number(opened_log(conn, table)) > second


def test_error_rows_keep_their_words(log: Log) -> None:
    first = log.ids()[0]
    add_errors(
        opened_log(log.conn, log.table), [(first, "bad_value", "what \0 \ud800 it was: ä 😀")]
    )
    (entry,) = read_errors(opened_log(log.conn, log.table), first)
    assert entry.code == "bad_value"
    assert "it was: ä 😀" in entry.message
    assert abs(entry.error_time - datetime.now(UTC).replace(tzinfo=None)) < timedelta(minutes=1)


def test_error_rows_tell_under_which_number_a_row_goes_again(log: Log) -> None:
    conn, table = log.conn, log.table
    add_errors(
        opened_log(conn, table), [(7, "receiver", "no"), (8, "receiver", "no")], "", {7: "7.3"}
    )
    add_errors(
        opened_log(conn, table), [(7, "receiver", "no"), (9, "bad_value", "no")], "", {9: "9.e1.2"}
    )
    add_errors(opened_log(conn, table), [(7, "receiver", "no")])
    assert read_attempts(opened_log(conn, table)) == {7: 3, 9: 2}


def test_old_rows_are_purged_with_their_error_rows(log: Log) -> None:
    conn, table = log.conn, log.table
    first, *_, last = log.ids()
    log.dialect.open(conn).log(table).mark("S", [(first, first + 3)])
    add_errors(opened_log(conn, table), [(first, "bad_value", "x"), (last, "bad_value", "y")])
    later = datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=1)
    assert extent(opened_log(conn, table)) == (first, last)
    batch = purge_rows(opened_log(conn, table), (first, last), 100, later, [first + 1], dry=False)
    assert batch == Purged(last, 10, 3, gone=[(first, first), (first + 2, first + 3)])
    errors = purge_errors(opened_log(conn, table), None, 100, later, later, dry=False)
    assert errors is not None
    assert errors.removed == 1
    _, now = purge_cutoff(log.dialect.open(conn).log(table), "utc", timedelta(0))
    assert abs(now - (later - timedelta(hours=1))) < timedelta(minutes=1)


def test_what_purges_have_removed_is_noted_in_one_line(log: Log) -> None:
    conn, table = log.conn, log.table
    assert read_purged(opened_log(conn, table)) is None
    moment = datetime(2026, 5, 6, 7, 8, 9)
    for floor in (7, 9):
        noted = PurgedRows(RecordSet(floor, [(20, 30)]), moment)
        write_purged(log.dialect.open(conn).log(table), noted)
    found = read_purged(opened_log(conn, table))
    assert found is not None
    assert (found.rows.spans, found.whole) == (noted.rows.spans, moment)
    assert len(read_entries(opened_log(conn, table), EntryKind.REMOVED)) == 1


def test_one_publisher_per_log(platform: Platform) -> None:
    platform.run("CREATE TABLE keyed (a {integer} PRIMARY KEY)")
    config = platform.config()
    with open_context(config, Counters()) as held:
        assert held.log.holds_lock()
        with platform.session() as (conn, log):
            assert platform.dialect.open(conn).log(log).is_locked()
            assert not platform.dialect.open(conn).log(log).holds_lock()
            assert not platform.dialect.open(conn).log(log).try_lock()
        with pytest.raises(PublisherAlreadyRunning), open_context(config, Counters()):
            pass
    with platform.session() as (conn, log):
        assert not platform.dialect.open(conn).log(log).is_locked()
        assert platform.dialect.open(conn).log(log).try_lock()
        platform.dialect.open(conn).log(log).unlock()
        assert not platform.dialect.open(conn).log(log).is_locked()
    assert list(platform.place.glob("*.lock")) == []


def test_what_the_log_lacks_is_named(platform: Platform) -> None:
    with platform.session() as (conn, log):
        with pytest.raises(LogTableError, match="db upgrade"):
            locate_log(platform.dialect.open(conn), name="nothing")
        conn.exec_driver_sql(f"DROP TABLE {platform.dialect.quote(log.inflight_table)}")
        conn.commit()
        with pytest.raises(LogTableError, match=r"(?i)inflight"):
            locate_log(platform.dialect.open(conn), name="eventlog")
        if not platform.has("schemas"):
            with pytest.raises(ConfigError, match="no schemas"):
                locate_log(platform.dialect.open(conn), name="eventlog", schema="hr")


def test_the_session_of_a_publisher_is_begun_as_one(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[OpenDatabase] = []
    with platform.session() as (conn, _):
        database = type(platform.dialect.open(conn))
    monkeypatch.setattr(database, "begin_publishing", lambda db: begun.append(db))
    platform.run("CREATE TABLE keyed (a {integer} PRIMARY KEY)")
    with open_context(platform.config(), Counters()) as held:
        assert begun == [held.log.db]


# --- requeue --------------------------------------------------------------------------------------


def change(log: Log, ids: list[int], **values: object) -> None:
    column = partial(column_of, log.table)
    log.conn.execute(
        sa.update(rows_of(log.table))
        .where(column("record_id").in_(ids))
        .values({column(field): value for field, value in values.items()})
    )


def test_a_copy_of_an_old_row_does_not_mislead_a_consumer_that_begins_at_a_time(log: Log) -> None:
    old, *others = log.ids()
    change(log, [old], status="S", event_time="2020-01-01 00:00:00.000")
    change(log, others, status="X")
    opened = opened_log(log.conn, log.table)
    for _ in range(2 * len(others)):
        assert requeue(opened, "S", force=True).copied == 1
    an_hour_ago = opened.db.utc_now().replace(tzinfo=None) - timedelta(hours=1)
    assert first_row_from(opened, an_hour_ago, "utc") == others[0]


def test_a_copy_has_the_time_of_the_clock_that_the_log_has(log: Log) -> None:
    old, *others = log.ids()
    change(log, [old], status="S", event_time="2020-01-01 00:00:00.000")
    change(log, others, status="X")
    of_another_program = opened_log(log.conn, replace(log.table, writes_utc=False))
    before = of_another_program.due_until("local")
    assert requeue(of_another_program, "S", event_time_zone="local").copied == 1
    (copy,) = of_another_program.read_window(Window(1, None, None))
    assert before[:19] <= str(copy.event_time)[:19] <= of_another_program.due_until("local")[:19]


def test_a_part_of_an_insert_goes_again_as_a_modify(log: Log) -> None:
    first, second, third, fourth, *others = log.ids()
    write = partial(change, log)

    def shown() -> list[tuple[int, str, str | None, str | None]]:
        rows = log.dialect.open(log.conn).log(log.table).read_window(Window(1, None, None))
        return [
            (int(row.event_type or 0), str(row.table_key), row.column_name, row.new_value)
            for row in rows
        ]

    write(others, status="X")
    for ids, key in (([first, second], "a=1"), ([third, fourth], "a=2")):
        write(ids, event_type=1, table_key=key, old_value="x", new_value="y")
        for record_id, name in zip(ids, "bc", strict=True):
            write([record_id], column_name=name)
    write([first], status="S")
    write([second], status="E")
    write([third, fourth], status="W")
    assert requeue(opened_log(log.conn, log.table), "E") == Requeued(1, 0, ())
    assert shown() == [(2, "a=1", "c", "y")]
    write([second], status="X")
    assert requeue(opened_log(log.conn, log.table), "SW", [(first, third)]) == Requeued(0, 2, ())
    assert shown() == [(1, "a=1", "b", "y"), (2, "a=2", "b", "y")]
    write(log.ids(), status="X", table_key="a=3")
    write([first, second], status="S", event_type=1)
    assert requeue(opened_log(log.conn, log.table), "S") == Requeued(0, 2, ())
    assert shown() == [(1, "a=1", "b", "y"), (1, "a=1", "c", "y")]
    assert requeue(opened_log(log.conn, log.table), "S") == Requeued(
        0, 0, (RefusedRow(first, 1, "keyed", "a=1"), RefusedRow(second, 1, "keyed", "a=1"))
    )


def _in_flight(log: OpenLog) -> list[tuple[int, str]]:
    return [(one.number, one.content) for one in read_entries(log, EntryKind.DELIVERY)]


def test_the_default_of_a_log_that_we_made_shows_that_its_times_are_utc(platform: Platform) -> None:
    with platform.session() as (conn, table):
        assert are_utc(platform.dialect.open(conn), table)


def test_the_statements_of_a_transaction_can_have_a_limit_on_every_database(
    platform: Platform,
) -> None:
    with platform.session() as (conn, table):
        platform.dialect.open(conn).limit_statements(5)
        assert opened_log(conn, table).read_rows([(1, 10)]) == []


def test_a_log_of_a_revision_before_gets_the_columns_of_a_consumers_start_and_pause(
    platform: Platform,
) -> None:
    for migrate, has_columns in (
        (partial(migrations.downgrade, revision="internal@internal_4"), False),
        (migrations.upgrade, True),
        (partial(migrations.downgrade, revision="internal@internal_2"), False),
        (migrations.upgrade, True),
    ):
        migrate(platform.engine, log_table="eventlog")
        with platform.session() as (conn, table):
            assert has_later_columns(opened_log(conn, table)) is has_columns
