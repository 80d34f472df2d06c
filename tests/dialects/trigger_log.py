"""A connection to a database with a log, and what its triggers log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from shared import execute, opened_log

from eventlog.core.catalog import Catalog
from eventlog.core.catalog.builder import build_catalog
from eventlog.errors import TriggerError
from eventlog.model import LOG_COLUMNS, LogRow
from eventlog.sql import migrations
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable
from eventlog.sql.triggers import TriggerPlan, triggers_of
from eventlog.sql.triggers.watch import Capture, Style, WatchedTable

LOG = LogTable("log", "eventlog", LOG_COLUMNS)
LOG_DDL = (
    "CREATE SCHEMA log",
    """CREATE TABLE log.eventlog (
        record_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        status char(1) NOT NULL DEFAULT 'N' CHECK (status ~ '[A-Za-z]'),
        event_type smallint NOT NULL CHECK (event_type BETWEEN 1 AND 8),
        event_time timestamp DEFAULT (clock_timestamp() AT TIME ZONE 'UTC'),
        perpetrator text, table_name text NOT NULL, table_key text NOT NULL,
        column_name text, old_value text, new_value text)""",
)

USR_DDL = (
    "CREATE TABLE usr (idu integer PRIMARY KEY, fname text, lname varchar(40), photo bytea)",
    "CREATE TABLE usr_phone (idu integer REFERENCES usr ON UPDATE CASCADE ON DELETE CASCADE, "
    "phoneno text, UNIQUE (idu, phoneno))",
    "CREATE TABLE keyed (a integer, b text, PRIMARY KEY (b, a))",
)

TEXTS = [
    "",
    " ",
    " x",
    "x ",
    "\tx",
    "x\t",
    "a\tb",
    "John Smith",
    "O'Brien",
    'a"b\\',
    "\\",
    '"',
    "a=b",
    "a+b",
    *(f"a{chr(code)}b" for code in range(1, 0x20)),
    *(f"a{char}b" for char in ",;'+\"=\\<>"),
    "\x7f",
    "\x80",
    "\x9f",
    "\xa0x\xa0",
    "\u2003x",
    "\u00adx",
    "é",
    "e\u0301",
    "😀",
    "a\nb",
    "^",
    "[",
    "]",
    "*",
    "?",
    "%s %% $1 :x",
    "$eventlog$",
    "NULL",
    "--",
    "'; DROP TABLE t --",
    "x" * 1000,
    "äß" * 500,
]
"""Texts that are hard to write: as keys, as values, in statements."""

Logged = tuple[int, str, str | None, str | None, str | None]
STYLES: Sequence[Style] = ("field", "remove_all", "field_query_back", "row_query_back")


def run(conn: sa.Connection, *statements: str) -> None:
    for statement in statements:
        conn.exec_driver_sql(statement, execution_options={"no_parameters": True})


Fill = Callable[[sa.Engine], None]
UncommittedIn = Callable[[Fill], AbstractContextManager[sa.Connection]]
"""The fixture ``uncommitted_in``."""


@dataclass(frozen=True)
class Watched:
    """A connection to a database with a log, and what its triggers log."""

    conn: sa.Connection
    log: LogTable = LOG
    trigger_level: Capture = "row"

    def catalog(self, *tables: str) -> Catalog:
        return build_catalog(DIALECT.open(self.conn).reflect(None), tables=tables or None)

    def plan(self, *watches: WatchedTable, tables: Sequence[str] | None = None) -> TriggerPlan:
        """``trigger_level`` is that of every watch. Raises TriggerError for a watch that is
        refused.
        """
        database = DIALECT.open(self.conn).reflect(None)
        names = tables if tables is not None else [watch.table for watch in watches]
        catalog = build_catalog(database, tables=names)
        watches = (
            tuple(replace(watch, trigger_level=self.trigger_level) for watch in watches)
            if self.trigger_level != "row"
            else watches
        )
        plan = triggers_of(DIALECT).plan(
            opened_log(self.conn, self.log), database, catalog, watches, catalog.unavailable
        )
        if plan.refused:
            raise TriggerError("; ".join(plan.refused))
        return plan

    def watch(self, *watches: WatchedTable) -> TriggerPlan:
        plan = self.plan(*watches)
        triggers_of(DIALECT).apply(self.conn, plan)
        return plan

    def rows(self) -> list[LogRow]:
        """The rows of the log, which is empty afterwards."""
        return [
            LogRow(*row)
            for row in self.conn.exec_driver_sql(
                "WITH gone AS (DELETE FROM log.eventlog RETURNING *) SELECT * FROM gone ORDER BY "
                "record_id"
            )
        ]

    def logged(self, *statements: str) -> list[Logged]:
        """Type, table_key, column_name, old and new value of the rows that the statements log."""
        self.rows()
        run(self.conn, *statements)
        return self.logged_by_now()

    def logged_by_now(self) -> list[Logged]:
        """The same of what has been logged since."""
        return [
            (
                int(row.event_type or 0),
                str(row.table_key),
                row.column_name,
                row.old_value,
                row.new_value,
            )
            for row in self.rows()
        ]


def made_with(
    trigger_level: Capture,
    statements: Sequence[str],
    tables: Mapping[str, str],
    watch: Callable[[str], WatchedTable] = WatchedTable,
) -> Fill:
    """What makes a log, runs statements, and makes and watches tables by their names and columns,
    those that the server can make.
    """

    def fill(database: sa.Engine) -> None:
        execute(database, *LOG_DDL, *statements)
        made = []
        for table, columns in tables.items():
            with suppress(sa.exc.DBAPIError):
                execute(database, f"CREATE TABLE {table} ({columns})")
                made.append(table)
        with database.begin() as conn:
            Watched(conn, trigger_level=trigger_level).watch(*map(watch, made))

    return fill


def by_type(types: Iterable[str]) -> dict[str, str]:
    """The name of a table for each of these types, which may repeat."""
    return {type: f"t{place}" for place, type in enumerate(dict.fromkeys(types))}


def fields(
    event_type: int, key: str, *columns: tuple[str | None, str | None, str | None]
) -> list[Logged]:
    return [(event_type, key, *column) for column in columns]


JACK = "INSERT INTO usr VALUES (1, 'Jack', NULL, '\\xAAAA')"
PHONE = "usr_phone.phoneno"


def catalogue(conn: sa.Connection) -> list[tuple[object, ...]]:
    """All triggers, functions and comments of the database."""
    return [
        tuple(row)
        for row in conn.exec_driver_sql(
            "SELECT 'trigger', oid, tgname::text FROM pg_trigger"
            " UNION ALL SELECT 'function', oid, proname::text FROM pg_proc"
            " UNION ALL SELECT 'comment', objoid, description FROM pg_description ORDER BY 1, 2, 3"
        )
    ]


_CHANGES_NOTHING = re.compile(
    r"\s*(SELECT|PRAGMA|SAVEPOINT|RELEASE|ROLLBACK|SET(?! STATEMENT)|ALTER SESSION)\b"
)


class BrokenOff(Exception):
    """What no code of ours expects or translates."""


@contextmanager
def broken_off(conn: sa.Connection, after: int) -> Iterator[list[str]]:
    """A session that ends with BrokenOff when so many statements have changed something; they are
    in the list.
    """
    done: list[str] = []

    def count(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if _CHANGES_NOTHING.match(statement) is None:
            if len(done) == after:
                raise BrokenOff
            done.append(statement)

    sa.event.listen(conn, "before_cursor_execute", count)
    yield done


def drop_triggers(conn: sa.Connection, log: LogTable = LOG) -> TriggerPlan:
    """Drop the triggers of a log, and return the plan that was applied."""
    plan = triggers_of(DIALECT).plan_drop(opened_log(conn, log))
    triggers_of(DIALECT).apply(conn, plan)
    return plan


def upgrade(conn: sa.Connection) -> None:
    migrations.upgrade(conn, log_table="eventlog")


def downgrade(conn: sa.Connection) -> None:
    migrations.downgrade(conn, log_table="eventlog")
