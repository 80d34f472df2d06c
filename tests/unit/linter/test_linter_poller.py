"""A queue in a real database, polled while another session fills it and a third removes what it has
sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from shared import in_ci

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, DatabaseError, DatabaseUnavailable
from eventlog.linter.database import (
    QueuePoller,
    create_tables,
    find_table,
    follow,
    insert_attrs,
    insert_rows,
)
from eventlog.linter.dispatch_tables import DispatchRow, MissingColumn
from eventlog.linter.options import SourceOptions
from eventlog.linter.reader import ReaderOptions
from eventlog.model import Change
from eventlog.testing.linter_emulator import ATTRS, Step, Workload, emulate

EMULATOR: dict[str, Any] = {"codec": "eventlog-emulator-1"}


@pytest.fixture(params=["postgresql", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    if request.param == "postgresql":
        yield request.getfixturevalue("database")
        return
    made = sa.create_engine(
        f"sqlite:///{tmp_path / 'queue.db'}", poolclass=sa.NullPool, connect_args={"timeout": 60}
    )
    with made.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    yield made
    made.dispose()


@pytest.fixture
def queue(engine: sa.Engine) -> sa.Table:
    with engine.begin() as connection:
        queue, attrs = create_tables(connection)
        insert_attrs(connection, attrs, list(ATTRS.values()))
    return queue


def put(engine: sa.Engine, queue: sa.Table, rows: list[DispatchRow]) -> None:
    with engine.begin() as connection:
        insert_rows(connection, queue, rows)


def remove(engine: sa.Engine, queue: sa.Table, rows: list[DispatchRow]) -> None:
    with engine.begin() as connection:
        for row in rows:
            connection.execute(sa.delete(queue).where(queue.c.syslog_addr == row.syslog_addr))


def poller(
    engine: sa.Engine, report: Report | None = None, *, batch_rows: int = 10_000, **options: Any
) -> QueuePoller:
    return QueuePoller(
        engine,
        ReaderOptions(**{**EMULATOR, **options}),
        report,
        SourceOptions(batch_rows=batch_rows),
    )


def rows_of(steps: list[Step]) -> list[DispatchRow]:
    return [row for step in steps for row in step.rows]


def changes_of(steps: list[Step]) -> list[Change]:
    return [change for step in steps for change in step.changes]


def contents(engine: sa.Engine, queue: sa.Table) -> list[Any]:
    with engine.connect() as connection:
        return list(
            connection.execute(sa.select(queue).order_by(queue.c.syslog_addr, queue.c.extdata))
        )


@pytest.mark.parametrize("batch_rows", [1, 7, 10_000])
def test_a_poll_gives_what_was_committed_and_leaves_the_queue_as_it_was(
    engine: sa.Engine, queue: sa.Table, batch_rows: int
) -> None:
    steps = list(emulate(Workload(1, transactions=12, servers=("B", "A"))))
    put(engine, queue, rows_of(steps))
    before = contents(engine, queue)
    asked = poller(engine, batch_rows=batch_rows)
    assert list(asked.drain()) == changes_of(steps)
    assert list(asked.poll()) == []
    assert contents(engine, queue) == before


def test_addresses_that_sql_holds_as_negative_come_last(engine: sa.Engine, queue: sa.Table) -> None:
    steps = list(
        emulate(Workload(2, transactions=15, address=(0x7FFFFFFF << 32) | ((1 << 31) - 9_000)))
    )
    rows = rows_of(steps)
    assert {row.syslog_addr >> 63 for row in rows} == {0, 1}
    put(engine, queue, list(reversed(rows)))
    assert list(poller(engine, batch_rows=5).drain()) == changes_of(steps)


def test_files_that_wrap_are_read_by_date(engine: sa.Engine, queue: sa.Table) -> None:
    steps = list(
        emulate(Workload(3, transactions=15, address=(0xFFFFFFFF << 32) | ((1 << 31) - 9_000)))
    )
    put(engine, queue, rows_of(steps))
    assert list(poller(engine, batch_rows=5, order_by="oper_date").drain()) == changes_of(steps)


def test_open_transactions_are_followed_though_their_rows_are_removed_meanwhile(
    engine: sa.Engine, queue: sa.Table
) -> None:
    steps = list(emulate(Workload(4, transactions=15)))
    asked = poller(engine)
    made: list[Change] = []
    for step in steps:
        put(engine, queue, step.rows)
        made += asked.poll()
        remove(engine, queue, step.rows)
    assert made == changes_of(steps)


def test_a_new_poller_goes_on_from_the_token(engine: sa.Engine, queue: sa.Table) -> None:
    steps = list(emulate(Workload(5, transactions=20)))
    made: list[Change] = []
    token = None
    for start in range(0, len(steps), 9):
        put(engine, queue, rows_of(steps[start : start + 9]))
        asked = poller(engine, restart=token)
        made += asked.poll()
        token = asked.restart_token
    assert made == changes_of(steps)


def test_a_poller_that_stops_half_way_repeats_the_transaction_it_was_in(
    engine: sa.Engine, queue: sa.Table
) -> None:
    steps = list(emulate(Workload(6, transactions=20)))
    put(engine, queue, rows_of(steps))
    expected = changes_of(steps)
    stop = next(
        number for number, change in enumerate(expected) if number > 5 and change.event_number == 2
    )
    asked = poller(engine)
    handed_out = asked.poll()
    made = [next(handed_out) for _ in range(stop)]
    handed_out.close()
    again = list(poller(engine, restart=asked.restart_token).poll())
    assert made[:-1] + again == expected  # its first change comes twice, nothing is left out


@pytest.mark.parametrize("transactions", in_ci([30, 60], 30))
def test_nothing_is_lost_while_one_session_writes_and_another_removes(
    engine: sa.Engine, queue: sa.Table, transactions: int
) -> None:
    """A server's own pace: it removes a transaction once a whole poll has gone by since it was
    committed.
    """
    steps = list(emulate(Workload(7, transactions=transactions, servers=("B", "A"))))
    polls = 0
    written = threading.Event()
    removed = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Any) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)
                written.set()
                removed.set()

        return threading.Thread(target=run)

    sent: list[tuple[int, list[DispatchRow]]] = []

    def write() -> None:
        open_rows: dict[int, list[DispatchRow]] = {}
        for start in range(0, len(steps), 3):
            rows = rows_of(steps[start : start + 3])
            put(engine, queue, rows)
            for row in rows:
                own = open_rows.setdefault(row.transact_id, [])
                own.append(row)
                if row.typ in (4, 10):
                    sent.append((polls, open_rows.pop(row.transact_id)))
        written.set()

    def take_away() -> None:
        while not (written.is_set() and not sent) and not failures:
            if sent and polls >= sent[0][0] + 2:
                remove(engine, queue, sent.pop(0)[1])
            else:
                time.sleep(0.001)
        removed.set()

    threads = [guarded(write), guarded(take_away)]
    for thread in threads:
        thread.start()
    asked = poller(
        engine, batch_rows=10_000
    )  # a poll reads all there is, or the server may be faster than it
    made: list[Change] = []
    while not removed.is_set():
        made += asked.poll()
        polls += 1
    for thread in threads:
        thread.join()
    assert not failures
    made += asked.drain()
    assert made == changes_of(steps)
    assert contents(engine, queue) == []


def test_follow_waits_when_there_is_nothing_and_stops_on_request(
    engine: sa.Engine, queue: sa.Table
) -> None:
    steps = list(emulate(Workload(8, transactions=10)))
    ahead = [steps[start : start + 10] for start in range(0, len(steps), 10)]

    def wait() -> bool:
        if not ahead:
            return False
        put(engine, queue, rows_of(ahead.pop(0)))
        return True

    asked = poller(engine)
    made: list[Change] = []
    while True:
        waits = len(ahead)
        made += follow(asked, wait)
        if not waits:
            break
    assert made == changes_of(steps)


def test_open_transactions_are_counted_when_a_queue_is_drained(
    engine: sa.Engine, queue: sa.Table
) -> None:
    put(
        engine,
        queue,
        [row for row in rows_of(list(emulate(Workload(9, transactions=10)))) if row.typ != 4],
    )
    report = Report()
    assert list(poller(engine, report).drain()) == []
    assert report.counters["open_transactions"] > 0


def test_a_new_description_is_taken_up(engine: sa.Engine, queue: sa.Table) -> None:
    with engine.begin() as connection:
        attrs = find_table(connection, "DISPATCH_ATTRS")
        connection.execute(sa.delete(attrs))
    asked = poller(engine)
    assert list(asked.poll()) == []
    with engine.begin() as connection:
        insert_attrs(connection, attrs, list(ATTRS.values()))
    steps = list(emulate(Workload(10, transactions=10)))
    put(engine, queue, rows_of(steps))
    assert list(asked.poll()) == changes_of(steps)


def test_what_is_missing_is_named(engine: sa.Engine) -> None:
    with pytest.raises(DatabaseError, match="no table 'dispatch_queue'"):
        list(QueuePoller(engine).poll())
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "CREATE TABLE dispatch_queue (typ integer, syslog_addr integer, extdata integer)"
            )
        )
    with pytest.raises(MissingColumn, match="column OPER_DATE of DISPATCH_QUEUE"):
        list(QueuePoller(engine).poll())
    with pytest.raises(ConfigError):
        SourceOptions(batch_rows=0)


def test_a_poll_can_be_tried_again_when_the_database_was_unavailable(
    engine: sa.Engine, queue: sa.Table
) -> None:
    steps = list(emulate(Workload(11, transactions=10)))
    put(engine, queue, rows_of(steps))
    asked = poller(engine)
    engine.dispose()

    @sa.event.listens_for(engine, "do_connect")
    def refuse(*_: Any) -> None:
        raise engine.dialect.loaded_dbapi.OperationalError("gone")

    with pytest.raises(DatabaseUnavailable, match="gone"):
        list(asked.poll())
    sa.event.remove(engine, "do_connect", refuse)
    assert list(asked.poll()) == changes_of(steps)
