"""Refused rows of a large log: what ``errors``, the page and ``skip`` read (spec/event-log.md 11).

They search the log once for rows E and F, which may lack an error row, and the error table once for
its newest lines. Nothing else that they read grows with the log or its error rows.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from shared import execute

from eventlog.publisher.inspect.refusals import read_refusals
from eventlog.publisher.inspect.skipping import skip_refused
from eventlog.sql import migrations
from eventlog.sql.connect.connection import dialect_of
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.port.open_log import OpenLog

pytestmark = pytest.mark.xdist_group("large errors")  # one log for all

ROWS = 200_000
REFUSED = range(ROWS - 990, ROWS + 1, 10)


def fill(database: sa.Engine) -> None:
    execute(database, "CREATE TABLE usr (idu integer PRIMARY KEY, fname text)")
    migrations.upgrade(database, log_table="eventlog")
    execute(
        database,
        f"""
        INSERT INTO eventlog (status, event_type, table_name, table_key, column_name, new_value)
        SELECT CASE WHEN n >= {REFUSED[0]} AND n % 10 = 0 THEN 'E' ELSE 'S' END, 2, 'usr',
               'idu=' || n % 20000, 'fname', repeat('x', 50)
        FROM generate_series(1, {ROWS}) AS n ORDER BY n
        """,
        f"""
        INSERT INTO eventlog_error (record_id, error_time, code, message)
        SELECT n, timestamp '2026-01-01' + n * interval '1 s', 'receiver', repeat('no ', 30)
        FROM generate_series(10, {ROWS}, 10) AS n
        """,
        "ANALYZE",
    )


@pytest.fixture
def log(filled_database: Any) -> Iterator[OpenLog]:
    with filled_database(fill) as database, database.connect() as conn:
        db = dialect_of(database.url).open(conn)
        yield db.log(locate_log(db, name="eventlog", schema=None))


def blocks_read(log: OpenLog, work: Callable[[], object]) -> tuple[int, int]:
    """The blocks, from memory or disk, that the two searches read, and that the other statements of
    some work read.
    """
    conn, statements = log.connection, []

    def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if statement.lstrip().upper().startswith("SELECT"):
            statements.append((statement, parameters))

    sa.event.listen(conn, "before_cursor_execute", note)
    try:
        work()
    finally:
        sa.event.remove(conn, "before_cursor_execute", note)
    explain = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "
    read = {True: 0, False: 0}
    for statement, parameters in statements:
        plan = conn.exec_driver_sql(explain + statement, parameters).scalar_one()[0]["Plan"]
        is_search = "DESC" in statement and "LIMIT" in statement
        read[is_search] += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return read[True], read[False]


@pytest.mark.parametrize("most", [100, 1000])
def test_what_errors_and_the_page_read_does_not_grow_with_the_log(log: OpenLog, most: int) -> None:
    found: list[Any] = []
    search, others = blocks_read(log, lambda: found.extend(read_refusals(log, most)))
    (group,) = found
    assert (group.rows, group.example) == (100, ROWS)
    whole = log.connection.exec_driver_sql(
        "SELECT (pg_total_relation_size('eventlog') + pg_table_size('eventlog_error')) / 8192"
    ).scalar_one()
    assert search < 1.1 * whole
    assert others < whole / 4


def test_what_skip_reads_does_not_grow_with_the_log(log: OpenLog) -> None:
    def skip() -> None:
        assert len(skip_refused(log, "", "seen", None, "usr", None, dry=True).rows) == 100

    _, others = blocks_read(log, skip)
    assert others < 3000  # of 10,000 error rows and their rows


def test_the_memory_is_that_of_the_rows_that_were_refused(log: OpenLog) -> None:
    tracemalloc.start()
    read_refusals(log, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 << 20
