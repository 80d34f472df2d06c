"""A publisher and a consumer of a partitioned log, which run while its leaves are cut and removed:
each row is sent once, as from one table (spec/event-log.md 14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from postgres_clusters import Server, primary, programs, servers
from publishers import LONG, Inbox, configuration, is_drained, make_log, publishing, session, write
from shared import fetch, statuses, wait_until

from eventlog.config.load import Config
from eventlog.publisher.upkeep.leaves import cut_ahead, in_turn, purge_leaves
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.port.open_log import OpenLog

MEANS = DIALECT.partitioning
WIDTH = 10


@contextmanager
def owner(database: sa.Engine) -> Iterator[OpenLog]:
    with database.connect() as conn:
        db = DIALECT.open(conn)
        yield db.log(locate_log(db, name="eventlog"))
        conn.rollback()


def make_leaves(database: sa.Engine) -> None:
    make_log(database)
    with owner(database) as log:
        MEANS.prepare(log)
        MEANS.partition(log, WIDTH)


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_leaves) as engine:
        yield engine


@pytest.fixture
def writer(log: sa.Engine) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(session(log))


def consumer(engine: sa.Engine, **options: object) -> Config:
    of_log = {"type": "eventlog", "consumer": "search", "start_from": "earliest"}
    return configuration(
        engine, **{f"source__{name}": one for name, one in of_log.items()}, **options
    )


def tend(database: sa.Engine) -> int:
    """Cut and remove leaves as a purge does; the number of removed ones."""
    with owner(database) as log:
        cut_ahead(log, MEANS)
        now = log.db.utc_now()
        log.commit()
        return sum(not one.why_kept for one in purge_leaves(log, MEANS, now, dry=False))


def test_each_row_is_sent_once_while_leaves_come_and_go(log: sa.Engine) -> None:
    published, consumed, keys = Inbox(), Inbox(), count(1)
    removed, sent = 0, list[int]()
    with (
        publishing(configuration(log, polling_interval=1), published) as publisher,
        publishing(consumer(log, polling_interval=1), consumed),
    ):
        for _ in range(8):
            new = [next(keys) for _ in range(WIDTH - 2)]
            write(log, *new, event_type=2)
            assert published.take_all(len(new)) == new
            assert consumed.take_all(len(new)) == new
            sent += new
            wait_until(lambda: set(statuses(log).values()) <= {"S"})
            removed += tend(log)
        assert publisher.error is None
    assert published.documents.empty()
    assert consumed.documents.empty()
    assert removed >= 3
    assert len(statuses(log)) < len(sent)


def test_a_row_that_commits_late_into_an_earlier_leaf_is_sent(
    log: sa.Engine, writer: Callable[[], psycopg.Connection[Any]]
) -> None:
    inbox, late = Inbox(), writer()
    row = (
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) "
        "VALUES (2, 'usr', 'idu=99', 'fname', 'late')"
    )
    with publishing(consumer(log, polling_interval=1), inbox):
        late.execute(row)
        write(log, *range(1, 2 * WIDTH + 1), event_type=2)
        assert inbox.take_all(2 * WIDTH) == [*range(1, 2 * WIDTH + 1)]
        late.commit()
        assert inbox.take() == [99]


def test_a_sleeping_publisher_is_woken_by_a_row_of_any_leaf(log: sa.Engine) -> None:
    inbox = Inbox()
    with publishing(configuration(log, polling_interval=LONG), inbox):
        write(log, 1, event_type=2)
        assert inbox.take() == [1]
        with owner(log) as own:
            in_turn(own, lambda: MEANS.cut(own, 500))
        for number in (-5, 300, 10**12):
            with log.begin() as conn:
                conn.exec_driver_sql(
                    "INSERT INTO eventlog (record_id, event_type, table_name, table_key, "
                    f"column_name, new_value) VALUES ({number}, 2, 'usr', 'idu=2', 'fname', 'x')"
                )
            if number > 0:
                assert inbox.take() == [2]
        wait_until(lambda: fetch(log, "SELECT count(*) FROM eventlog WHERE status = 'N'") == [(1,)])
    assert not is_drained(
        log
    )  # a number below 1 is never read (1.2), and its insert has not failed


# --- a failover -----------------------------------------------------------------------------------


class Lost(Exception):
    """The primary is lost here."""


@pytest.fixture(scope="module")
def partitioned() -> Iterator[Server]:
    """A server whose log has leaves, stopped."""
    if programs() is None:
        pytest.skip("the server's programs are not installed")
    with primary() as server:
        engine = sa.create_engine(server.url)
        make_leaves(engine)
        engine.dispose()
        server.stop_cleanly()
        yield server


def purge_until(database: sa.Engine, number: int) -> bool:
    """Cut and remove leaves until the primary is lost before this statement; True if it is not."""
    with owner(database) as log:
        seen = count(1)

        def lose(*_: Any) -> None:
            if next(seen) == number:
                raise Lost

        sa.event.listen(log.connection, "before_cursor_execute", lose)
        try:
            cut_ahead(log, MEANS)
            now = log.db.utc_now()
            log.commit()
            for _ in purge_leaves(log, MEANS, now, dry=False):
                pass
        except Lost:
            log.connection.invalidate()
            return False
    return True


def test_a_crash_that_loses_the_removal_of_a_leaf_loses_its_record(partitioned: Server) -> None:
    with servers(partitioned.data) as server:
        server.execute("ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()")
        database = sa.create_engine(server.url)
        write(database, *range(1, 3 * WIDTH), event_type=2)
        with owner(database) as log:
            cut_ahead(log, MEANS)
            leaf = MEANS.leaves(log)[1]
            server.execute("CHECKPOINT")
            MEANS.remove(log, leaf, [], lambda: None)
            assert leaf not in MEANS.leaves(log)
            log.connection.invalidate()
        database.dispose()
        server.stop()
        server.start()
        with owner(database) as log:
            assert leaf in MEANS.leaves(log)
        server.execute(f"ALTER TABLE eventlog DETACH PARTITION {leaf.name}")
        with owner(database) as log:
            assert MEANS.finish(log) == 0
            assert [one.name for one in MEANS.unrecorded(log)] == [leaf.name]
        assert server.value(f"SELECT count(*) FROM {leaf.name}") == WIDTH
        database.dispose()


@pytest.mark.night
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("has_all", [True, False], ids=["synchronous", "behind"])
def test_a_failover_between_any_two_steps_of_a_purge_loses_no_row(
    partitioned: Server, has_all: bool
) -> None:
    ended, number = False, -2
    while not ended:
        number += 3  # a transaction has about three statements
        with servers(partitioned.data) as first:
            second, inbox = first.standby("b"), Inbox()
            old, new = sa.create_engine(first.url), sa.create_engine(second.url)
            write(old, *range(1, 4 * WIDTH), event_type=2)
            with publishing(configuration(old, polling_interval=1), inbox):
                inbox.take_all(4 * WIDTH - 1)
                wait_until(lambda: set(statuses(old).values()) <= {"S"})  # noqa: B023
            first.catch_up(second)
            if not has_all:
                second.cut()
            ended = purge_until(old, number)
            if has_all:
                first.catch_up(second)
            old.dispose()
            first.stop()
            second.promote()
            later = range(100, 100 + 2 * WIDTH)
            with publishing(configuration(new, polling_interval=1), inbox):
                write(new, *later, event_type=2)
                assert set(later) <= set(inbox.take_all(len(later)))
                for place in (1, WIDTH + 5, 3 * WIDTH, 10**9):  # an insert into any leaf
                    with new.connect() as conn, conn.begin() as inserted:
                        conn.exec_driver_sql(
                            "INSERT INTO eventlog (record_id, event_type, table_name, table_key) "
                            f"SELECT {place}, 5, 'usr', 'idu=1' WHERE NOT EXISTS (SELECT FROM "
                            f"eventlog WHERE record_id = {place})"
                        )
                        inserted.rollback()
                wait_until(lambda: set(statuses(new).values()) <= {"S"})  # noqa: B023
            assert purge_until(new, 0)
            assert min(statuses(new)) > 1
            new.dispose()
    assert number > 20
