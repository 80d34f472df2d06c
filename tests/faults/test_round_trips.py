"""What a poll and a change cost on PostgreSQL (spec/event-log.md 8.1, 8.4): round trips and commits
that wait for the disk, counted without a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, configuration, make_log, opened, write
from round_trips import traced
from shared import Run, execute, fetch, met, statuses, url_of

from eventlog.model import Answer, EventResult, Level
from eventlog.publisher.context.context import Context
from eventlog.publisher.run.waiting import Idle
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession
from eventlog.sql.dialects.postgresql.session import WAKE
from eventlog.sql.port.rights import Purpose
from eventlog.sql.port.sql_files import OF_LOG

CONSUMER = {
    "source__type": "eventlog",
    "source__consumer": "search",
    "source__start_from": "earliest",
}
READERS = pytest.mark.parametrize("options", [{}, CONSUMER], ids=["publisher", "consumer"])
MANY = """INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value)
SELECT 2, 'usr', 'idu=' || n, 'fname', 'Jack' FROM generate_series(1, {}) AS n"""
WAL_WRITES = (
    "SELECT sum(writes)::bigint FROM pg_stat_get_backend_io(pg_backend_pid()) WHERE object = 'wal'"
)
SETTINGS = "SELECT current_setting('enable_seqscan'), current_setting('plan_cache_mode')"


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as engine:
        yield engine


def reader(
    context: Context, answer: Callable[..., Answer | None] = lambda _: None
) -> PublisherSession:
    """A session that has recovered and read the queue to its end."""
    session = PublisherSession(context, recover(context), Collecting(answer))
    drain(session)
    return session


def drain(session: PublisherSession) -> None:
    while run_cycle(session).more:
        pass


def trips(session: PublisherSession, work: Callable[[], None]) -> int:
    with traced(session.context.log.connection) as counted:
        work()
    return counted.count


def change(log: sa.Engine, session: PublisherSession, *keys: int) -> None:
    write(log, *keys or (1,), event_type=2)
    drain(session)


# --- round trips ----------------------------------------------------------------------------------


def test_all_rights_are_asked_for_in_one_round_trip_and_the_tables_that_may_lack_in_another(
    log: sa.Engine,
) -> None:
    with opened(configuration(log)) as context:
        context.log.db.scalar("SELECT 1")  # begins a transaction
        with traced(context.log.connection) as counted:
            context.log.check_rights(Purpose.PUBLISHER)
    assert counted.count == 2


@READERS
def test_a_poll_of_an_empty_queue_is_one_round_trip(
    log: sa.Engine, options: dict[str, Any]
) -> None:
    with opened(configuration(log, **options)) as context:
        session = reader(context)
        change(log, session)
        assert trips(session, lambda: drain(session)) == 1


@READERS
def test_a_change_without_query_back_takes_three_round_trips(
    log: sa.Engine, options: dict[str, Any]
) -> None:
    """The poll, the entry of the delivery, and the marks."""
    with opened(configuration(log, **options)) as context:
        session = reader(context)
        # Each statement is prepared at its first time, for each size of a number.
        for _ in range(3):
            change(log, session)
        write(log, 1, event_type=2)
        assert trips(session, lambda: run_cycle(session)) == 3


@READERS
def test_many_rows_at_once_take_as_many_round_trips_as_one(
    log: sa.Engine, options: dict[str, Any]
) -> None:
    with opened(configuration(log, **options)) as context:
        session = reader(context)
        for _ in range(3):
            change(log, session)
        execute(log, MANY.format(2_000))
        assert trips(session, lambda: run_cycle(session)) <= 4


def test_falling_asleep_and_waking_up_is_one_round_trip_each(log: sa.Engine) -> None:
    with opened(configuration(log)) as context:
        session = reader(context)
        connection = context.log.connection

        def sleep_and_wake() -> None:
            assert WAKE.fall_asleep(context.log)
            connection.commit()
            WAKE.wake_up(context.log)
            connection.commit()

        Idle(context, WAKE)
        assert trips(session, sleep_and_wake) == 2


# --- the disk -------------------------------------------------------------------------------------


def wal_writes(context: Context) -> int:
    """How often this session has written the WAL: a commit that waits for the disk does it."""
    connection = context.log.connection
    connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
    connection.commit()
    written = connection.exec_driver_sql(WAL_WRITES).scalar_one()
    connection.commit()
    return int(written or 0)


@READERS
@pytest.mark.parametrize("durable", [False, True])
def test_a_change_waits_for_the_disk_once_or_with_durable_marks_twice(
    log: sa.Engine, options: dict[str, Any], durable: bool
) -> None:
    if int(fetch(log, "SHOW server_version_num")[0][0]) < 180000:
        pytest.skip("the server does not count what a session writes")
    with opened(configuration(log, durable_marks=durable, **options)) as context:
        session = reader(context)
        change(log, session)
        before = wal_writes(context)
        for _ in range(20):
            change(log, session)
        written = wal_writes(context) - before
    # The server may write a page that is full, or what another session waits for, too.
    assert written <= 24 if not durable else written >= 30, written


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({}, None),
        (CONSUMER, None),
        ({"delete_from_log": True}, None),
        ({}, Level.ERROR),
        ({}, Level.RETRY),
    ],
)
def test_only_marks_that_end_a_delivery_do_not_wait_for_the_disk(
    log: sa.Engine, options: dict[str, Any], answer: Level | None
) -> None:
    """Each transaction by its statements: whoever has the setting has the end of an entry, and what
    records a delivery, or strikes a part of it, never has it.
    """
    transactions: list[list[str]] = [[]]

    def refused(document: Any) -> Answer | None:
        return None if answer is None else Answer(results={"1": EventResult(answer, "no")})

    with opened(configuration(log, **options), retry_initial=3600.0, retry_max=3600.0) as context:
        connection = context.log.connection

        @sa.event.listens_for(connection, "before_cursor_execute")
        def note(_c: Any, _d: Any, statement: str, *_: Any) -> None:
            transactions[-1].append(statement)

        @sa.event.listens_for(connection, "commit")
        def committed(_c: Any) -> None:
            transactions.append([])

        session = reader(context, refused)
        change(log, session, 1, 2, 3)
        change(log, session, 4)
    soon = [one for one in transactions if any("synchronous_commit" in text for text in one)]
    others = [text for one in transactions if one not in soon for text in one]
    recorded = [text for text in others if text.startswith(("WITH drawn", "WITH unasked"))]
    assert len(recorded) == 2
    assert len(soon) == (1 if answer is Level.RETRY else 2)
    for one in soon:
        assert any(text.startswith(("WITH ended", "WITH former")) for text in one)
        assert not any(
            word in text for text in one for word in ("nextval", "SET content=$", "requeued")
        )


# --- prepared statements --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "statement"),
    met(
        [{}, CONSUMER],
        [
            "ALTER TABLE eventlog ALTER event_type TYPE integer",
            "ALTER TABLE eventlog ALTER record_id TYPE integer",
            "ALTER TABLE eventlog ALTER new_value TYPE varchar(4000)",
            "ALTER TABLE usr ALTER fname TYPE varchar(100)",
            "ALTER TABLE eventlog_inflight ALTER content TYPE varchar(100000)",
            "ANALYZE eventlog",
            "VACUUM FULL eventlog_inflight",
        ],
    ),
)
def test_a_table_may_change_between_two_changes(
    log: sa.Engine, options: dict[str, Any], statement: str
) -> None:
    with opened(configuration(log, **options)) as context:
        session = reader(context)
        change(log, session, 1)
        with log.connect().execution_options(isolation_level="AUTOCOMMIT") as other:
            other.exec_driver_sql(statement)
        change(log, session, 2)
        execute(log, "INSERT INTO usr VALUES (3, 'Ann')")
        write(log, 3, event_type=6)
        drain(session)
        assert [event[:1] for event in session.sink.event_ids] == ["1", "2", "3"]  # type: ignore[attr-defined]


@READERS
@pytest.mark.parametrize("statement", ["DISCARD ALL", "DEALLOCATE ALL", "DISCARD PLANS"])
def test_statements_that_the_session_has_lost_are_prepared_again(
    log: sa.Engine, options: dict[str, Any], statement: str
) -> None:
    with opened(configuration(log, **options)) as context:
        session = reader(context)
        change(log, session, 1)
        driver: Any = context.log.connection.connection.driver_connection
        assert driver.info.transaction_status == 0
        driver.pgconn.exec_(statement.encode())  # which the driver does not see
        change(log, session, 2)
        change(log, session, 3)
        assert session.sink.event_ids == ["1", "2", "3"]  # type: ignore[attr-defined]
        assert trips(session, lambda: drain(session)) == 1


def test_the_planner_has_its_usual_settings_for_all_but_the_log(log: sa.Engine) -> None:
    with opened(configuration(log)) as context:
        session = reader(context)
        change(log, session)
        connection = context.log.connection
        for options, expected in (
            ({}, ("on", "auto")),
            (OF_LOG, ("off", "force_generic_plan")),
            ({}, ("on", "auto")),
        ):
            found = connection.exec_driver_sql(SETTINGS, {}, execution_options=options).one()
            assert tuple(found) == expected
        # What a transaction has set is taken back with it.
        connection.rollback()
        assert tuple(connection.exec_driver_sql(SETTINGS).one()) == ("on", "auto")
        connection.commit()
        drain(session)


def test_a_request_is_seen_by_the_poll(log: sa.Engine, run: Run) -> None:
    answers = iter([Answer(results={"1": EventResult(Level.ERROR, "no")})])
    with opened(configuration(log)) as context:
        session = reader(context, lambda _: next(answers, None))
        change(log, session, 1)
        assert statuses(log) == {1: "E"}
        run("--database-url", url_of(log), "requeue", "--status", "E")
        drain(session)
        assert statuses(log) == {1: "S"}


def test_a_delivery_number_that_was_used_before_is_not_recorded(log: sa.Engine) -> None:
    with opened(configuration(log)) as context:
        session = reader(context)
        change(log, session, 1, 2)
        execute(log, "SELECT setval('eventlog_delivery', 1, false)")
        write(log, 3, event_type=2)
        with pytest.raises(Exception, match="used before"):
            drain(session)
    assert fetch(log, "SELECT count(*) FROM eventlog_inflight") == [(0,)]
