"""How the statements of the log are planned on a real server, and read in chunks (spec/event-log.md
8.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import Any

import pytest
import sqlalchemy as sa
from shared import execute, in_ci
from sqlalchemy import Connection
from written_log import EVERYTHING, write

from eventlog.core.catalog.builder import build_catalog
from eventlog.model import LOG_COLUMNS
from eventlog.sql import migrations
from eventlog.sql.connect.connection import connect
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.log_operations import Window


def test_what_is_read_back_is_planned_as_before(conn: Connection, opened: LogTable) -> None:
    conn.execute(
        sa.text(
            "CREATE VIEW v AS SELECT 1 AS pk_n, current_setting('enable_sort') AS sort, "
            "current_setting('enable_seqscan') AS seqscan"
        )
    )
    catalog = build_catalog(DIALECT.open(conn).reflect(None), tables=["v"])
    conn.commit()
    conn.execute(sa.text("SET LOCAL enable_sort = off"))
    DIALECT.open(conn).log(opened).read_window(EVERYTHING)
    cls = catalog.class_named("v")
    for _ in range(2):
        assert DIALECT.open(conn).query_back(None, cls, ["pk_n=1"], cls.attributes)["pk_n=1"][
            "sort"
        ] == ["off"]
        assert DIALECT.open(conn).query_back(None, cls, ["pk_n=1"], cls.attributes)["pk_n=1"][
            "seqscan"
        ] == ["on"]
        DIALECT.open(conn).log(opened).mark("S", [(1, 1)])
    conn.rollback()
    shown = [
        conn.execute(sa.text(f"SHOW {name}")).scalar() for name in ("enable_sort", "enable_seqscan")
    ]
    assert shown == ["on", "on"]


@contextmanager
def statements(conn: Connection) -> Iterator[list[str]]:
    """The statements that the connection runs within the block."""
    run: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        run.append(statement)

    sa.event.listen(conn, "before_cursor_execute", note)
    try:
        yield run
    finally:
        sa.event.remove(conn, "before_cursor_execute", note)


def test_the_plans_of_a_transaction_are_chosen_once(conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "N"), (2, "N"))
    conn.commit()
    with statements(conn) as run:
        DIALECT.open(conn).log(opened).read_window(EVERYTHING)
        DIALECT.open(conn).log(opened).mark("S", [(1, 1)])
        DIALECT.open(conn).log(opened).delete([(2, 2)])
        assert len(run) == 4
        conn.commit()
        DIALECT.open(conn).log(opened).mark("S", [(1, 1)])
        assert len(run) == 6
        conn.rollback()
        with conn.begin():
            savepoint = conn.begin_nested()
            DIALECT.open(conn).log(opened).mark("S", [(1, 1)])
            savepoint.rollback()
            DIALECT.open(conn).log(opened).mark("S", [(1, 1)])
    assert sum("set_config" in statement for statement in run) == 4


def test_an_error_between_two_chunks_is_the_one_that_is_raised(
    conn: Connection, opened: LogTable
) -> None:
    write(conn, (1, "N"), (2, "N"), (3, "N"))

    def leave_half_way() -> None:
        with closing(
            DIALECT.open(conn).log(opened).window_chunks(EVERYTHING, ["record_id"], 1)
        ) as chunks:
            next(chunks)
            conn.execute(sa.text("SELECT * FROM no_such_table"))

    with pytest.raises(sa.exc.ProgrammingError, match="no_such_table"):
        leave_half_way()


def test_chunks_that_are_left_close_their_cursor(conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "N"), (2, "N"), (3, "N"))
    for _ in range(2):  # a cursor of this name that were open would be in the way
        with closing(
            DIALECT.open(conn).log(opened).window_chunks(EVERYTHING, ["record_id"], 1)
        ) as chunks:
            assert next(chunks) == [(1,)]


def plan(
    conn: Connection, opened: LogTable, name: str | Window, parameters: dict[str, object]
) -> str:
    """The plan of a statement as it is run. The log's indexes are all that it may use."""
    DIALECT.open(conn).choose_plans()
    statement = (
        DIALECT.log_statement(opened, name)
        if isinstance(name, str)
        else DIALECT.window_statement(opened, name, LOG_COLUMNS)
    )
    rows = conn.exec_driver_sql("EXPLAIN " + statement, parameters)
    return "\n".join(row[0] for row in rows)


STATISTICS = {
    "never analyzed": "",
    "analyzed when all is done": (
        "UPDATE eventlog SET status = 'S'; ANALYZE eventlog; UPDATE eventlog SET status = 'N'"
    ),
    "analyzed when all is new": (
        "ANALYZE eventlog; UPDATE eventlog SET status = 'S' WHERE record_id > 100"
    ),
    "analyzed": "UPDATE eventlog SET status = 'S' WHERE record_id % 100 <> 0; ANALYZE eventlog",
}


@cache
def log_of(rows: int) -> Callable[[sa.Engine], None]:
    """What makes a log of so many new rows, without statistics."""

    def fill(database: sa.Engine) -> None:
        migrations.upgrade(database, log_table="eventlog")
        execute(
            database,
            "ALTER TABLE eventlog SET (autovacuum_enabled = false)",
            "INSERT INTO eventlog (event_type, table_name, table_key, new_value) SELECT 1, 'usr', "
            f"'idu=' || n, repeat('x', 20) FROM generate_series(1, {rows}) AS n",
        )

    return fill


@pytest.fixture
def filled(filled_database: Any, rows: int) -> Iterator[Connection]:
    with filled_database(log_of(rows)) as database, connect(database.url).connect() as conn:
        yield conn


@pytest.mark.xdist_group("plans of a filled log")  # which is written once
@pytest.mark.parametrize("rows", in_ci([100_000, 200_000], 100_000))
@pytest.mark.parametrize("statistics", STATISTICS)
def test_the_hot_statements_walk_an_index_whatever_the_statistics(
    filled: Connection, statistics: str
) -> None:
    opened = locate_log(DIALECT.open(filled), name="eventlog")
    for statement in STATISTICS[statistics].split(";"):
        if statement:
            filled.execute(sa.text(statement))
    window = {"first": 1, "last": 2**63 - 1, "limit": 10_000}
    ten_thousand = {"lo": list(range(1, 20_000, 2)), "hi": list(range(1, 20_000, 2))}
    one = {"lo": [5], "hi": [5]}
    for name, parameters in [
        (EVERYTHING, window),
        (EVERYTHING, window | {"limit": 2**62}),
        (Window(1, None, None, "eventlog"), window | {"perpetrator": "eventlog"}),
        ("mark", ten_thousand | {"status": "S"}),
        ("mark", one | {"status": "S"}),
        ("delete", ten_thousand),
        ("read_rows", ten_thousand),
        ("read_rows", one),
    ]:
        shown = plan(filled, opened, name, dict(parameters))
        assert "Seq Scan" not in shown, shown
        assert "Sort" not in shown, shown
        assert "Index" in shown, shown
        if isinstance(name, Window):
            assert "idx_eventlog_1" in shown, shown


def test_an_empty_log_is_read_by_index_too(conn: Connection, opened: LogTable) -> None:
    assert "idx_eventlog_1" in plan(conn, opened, EVERYTHING, {"first": 1, "last": 9, "limit": 5})
    assert "Seq Scan" not in plan(conn, opened, "mark", {"lo": [1], "hi": [9], "status": "S"})
