"""A database of any dialect with an installed log, and what its triggers write: what the compliance
suite runs on.

Tables are declared in words that each dialect spells in its own way: ``{integer}``, ``{text}``,
``{binary}``, ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from shared import opened_log
from sqlalchemy import Connection, Engine
from trigger_log import BrokenOff, broken_off

from eventlog.cli.context import transaction
from eventlog.config.load import Config, load
from eventlog.core.catalog import Catalog
from eventlog.core.options import toml
from eventlog.errors import TriggerError
from eventlog.model import LogRow
from eventlog.publisher.declared.configured_classes import catalog_of, class_names, declared_watches
from eventlog.publisher.declared.opening import find_log
from eventlog.sql import migrations
from eventlog.sql.connect.connection import connect, will_write
from eventlog.sql.dialects.mysql_family import Family
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import CAPABILITIES, WRITES
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.log_operations import Window
from eventlog.sql.triggers import TriggerPlan, triggers_of

Logged = tuple[int, str, str | None, str | None, str | None]
"""Type, table_key, column_name, old and new value of a row of the log."""

STYLES = ("field", "remove_all", "field_query_back", "row_query_back")

WORDS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {
        "integer": "integer",
        "number": "numeric",
        "real": "double precision",
        "text": "text",
        "string": "varchar(40)",
        "long": "varchar(1000)",
        "binary": "bytea",
        "date": "date",
        "timestamp": "timestamp",
    },
    "sqlite": {
        "integer": "integer",
        "number": "numeric",
        "real": "double",
        "text": "text",
        "string": "varchar(40)",
        "long": "varchar(1000)",
        "binary": "blob",
        "date": "date",
        "timestamp": "timestamp",
    },
    "oracle": {
        "integer": "NUMBER(10)",
        "number": "NUMBER",
        "real": "BINARY_DOUBLE",
        "text": "VARCHAR2(4000)",
        "string": "VARCHAR2(40)",
        "long": "VARCHAR2(1900)",
        "binary": "RAW(2000)",
        "date": "DATE",
        "timestamp": "TIMESTAMP(6)",
    },
    "mariadb": {
        "integer": "integer",
        "number": "decimal(30,10)",
        "real": "double",
        "text": "longtext",
        "string": "varchar(40)",
        "long": "varchar(380) COLLATE utf8mb4_nopad_bin",
        "binary": "varbinary(2000)",
        "date": "date",
        "timestamp": "datetime(6)",
    },
}
WORDS = {
    **WORDS,
    "mysql": {**WORDS["mariadb"], "long": "varchar(380) COLLATE utf8mb4_0900_bin"},
}
BINARY = {
    "postgresql": "'\\x{}'",
    "sqlite": "x'{}'",
    "oracle": "HEXTORAW('{}')",
    "mariadb": "x'{}'",
    "mysql": "x'{}'",
}


def spelled(name: str, statement: str) -> str:
    """A statement in the words of the database of this name."""
    binary = {digits.lower(): BINARY[name].format(digits) for digits in ("AAAA", "BBBB")}
    words = {**WORDS[name], **binary}
    return re.sub(r"\{(\w+)\}", lambda found: words[found[1]], statement)


@dataclass
class Platform:
    """One database with a log. ``engine``: the application's; ``place``: a directory of the test's
    own.

    ``watches`` and ``settings`` (by section) make the configuration.
    """

    dialect: Dialect
    engine: Engine
    place: Path
    last: int = 0
    trigger_level: str = "row"
    watches: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _kept: Connection | None = None

    @property
    def name(self) -> str:
        return self.dialect.name

    @property
    def is_of_family(self) -> bool:
        """True for MariaDB and MySQL."""
        return isinstance(self.dialect, Family)

    def needs(self, capability: str) -> None:
        """Skip the test where the database lacks a capability."""
        needs(self.dialect, capability)

    def has(self, capability: str) -> bool:
        assert capability in CAPABILITIES
        return capability in self.dialect.capabilities

    # The application.

    def sql(self, statement: str) -> str:
        """A statement in the database's own words."""
        if self.is_of_family:
            statement = statement.replace("\\", "\\\\")
        return spelled(self.name, statement)

    def binary(self, digits: str) -> str:
        return BINARY[self.name].format(digits)

    def run(self, *statements: str) -> None:
        """Each statement in its own transaction."""
        for statement in statements:
            with self.engine.begin() as conn:
                conn.exec_driver_sql(self.sql(statement), execution_options={"no_parameters": True})

    def spelled(self, name: str) -> str:
        """A name without quotes as the database keeps it."""
        return name.upper() if self.name == "oracle" else name

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows with bound values; names are quoted as they stand."""
        columns = [sa.column(sa.sql.quoted_name(name, quote=True)) for name in rows[0]]
        with self.engine.begin() as conn:
            conn.execute(
                sa.insert(sa.table(sa.sql.quoted_name(table, quote=True), *columns)), list(rows)
            )

    # The log.

    def config(self, **sections: Mapping[str, Any]) -> Config:
        """The configuration, written down; ``sections`` count for this time."""
        file = self.place / "eventlog.toml"
        url = self.engine.url.render_as_string(hide_password=False)
        given = {"database": {"url": url}, **self.settings, **sections}
        lines = []
        for section, settings in given.items():
            lines += [
                f"[{section}]",
                *(f"{key} = {toml(value)}" for key, value in settings.items()),
            ]
        for watch in self.watches:
            lines += ["[[watch]]", *(f"{key} = {toml(value)}" for key, value in watch.items())]
        file.write_text("\n".join(lines), encoding="utf-8")
        return load(file, {}, {})

    def install(self) -> None:
        """The log, as ``eventlog db upgrade`` makes it."""
        config = self.config()
        self.dialect.prepare(self.engine.url)
        with transaction(config) as db:
            conn = db.connection
            migrations.upgrade(conn, log_table="eventlog")
        self.__dict__.pop("_log", None)

    @cached_property
    def ours(self) -> Engine:
        return connect(self.engine.url)

    @contextmanager
    def session(self) -> Iterator[tuple[Connection, LogTable]]:
        """A session of ours, and the log."""
        with self.ours.connect() as conn:
            yield conn, find_log(self.dialect.open(conn), self.config()).table

    @contextmanager
    def _kept_session(self) -> Iterator[Connection]:
        """One session for all that this platform does: a session costs more than what it runs."""
        if self._kept is None or self._kept.closed:
            self._kept = self.ours.connect()
        try:
            yield self._kept
        except BaseException:
            self.close()
            raise
        finally:
            if self._kept is not None:
                self._kept.rollback()
                self._kept.info.pop(WRITES, None)

    def close(self) -> None:
        """End all sessions. The next use begins others."""
        if self._kept is not None:
            self._kept.invalidate()
            self._kept.close()
            self._kept = None
        self.engine.dispose()

    @cached_property
    def _log(self) -> LogTable:
        with self._kept_session() as conn:
            return find_log(self.dialect.open(conn), self.config()).table

    def plan(self, *watches: Mapping[str, Any], tables: Sequence[str] | None = None) -> TriggerPlan:
        """What applying these watches would do. Raises TriggerError for a watch that is refused."""
        self.watches = [dict(watch) for watch in watches]
        config, log = self.config(), self._log
        with self._kept_session() as conn:
            schema, named = class_names(config)
            database = self.dialect.open(conn).reflect(schema)
            catalog = catalog_of(config, database, tables or named, log)
            plan = triggers_of(self.dialect).plan(
                opened_log(conn, log), database, catalog, declared_watches(config)
            )
        if plan.refused:
            raise TriggerError("; ".join(plan.refused))
        return plan

    def apply(self, plan: TriggerPlan) -> TriggerPlan:
        with self._kept_session() as conn:
            will_write(conn)
            triggers_of(self.dialect).apply(conn, plan, 5.0)
            conn.commit()
        return plan

    def broken_off(self, after: int, work: Callable[[Connection], object]) -> int | None:
        """Do some work that breaks off after so many statements. Returns how many it has, if it
        comes to its end, None if not.
        """
        with suppress(BrokenOff):
            return len(self.statements_of(work, after))
        return None

    def statements_of(self, work: Callable[[Connection], object], after: int = 10**6) -> list[str]:
        """Do some work, and return its statements. Raises BrokenOff after so many of them."""
        with transaction(self.config()) as db, broken_off(db.connection, after) as done:
            work(db.connection)
        return done

    def watch(self, table: str, row_style: str = "field", **more: Any) -> TriggerPlan:
        """Apply the triggers of one table; those of others go."""
        return self.apply(
            self.plan(
                {
                    "table": table,
                    "row_style": row_style,
                    "trigger_level": self.trigger_level,
                    **more,
                }
            )
        )

    def catalog(self) -> Catalog:
        config, log = self.config(), self._log
        with self._kept_session() as conn:
            schema, tables = class_names(config)
            return catalog_of(config, self.dialect.open(conn).reflect(schema), tables, log)

    def rows(self) -> list[LogRow]:
        """The rows that came since they were asked for last."""
        log = self._log
        with self._kept_session() as conn:
            found = self.dialect.open(conn).log(log).read_window(Window(self.last + 1, None, None))
        self.last = max([self.last, *(row.record_id for row in found)])
        return found

    def logged(self, *statements: str) -> list[Logged]:
        """What the statements log, names in the case they are declared in."""
        self.rows()
        self.run(*statements)
        return [self._shown(row) for row in self.rows()]

    def _shown(self, row: LogRow) -> Logged:
        key, column = str(row.table_key), row.column_name
        if self.name == "oracle":
            key = re.sub(r"(?:^|(?<=\+))[A-Z_]+(?==)", lambda found: found[0].lower(), key)
            column = None if column is None else column.lower()
        return int(row.event_type or 0), key, column, row.old_value, row.new_value

    def expected(self, rows: Sequence[Logged], binary: Sequence[str] = ("photo",)) -> list[Logged]:
        """Rows as they are where binary columns are not logged by value (spec/triggers.md 6.1)."""
        if self.has("binary_values"):
            return list(rows)
        back = {1: 7, 2: 8, 3: 8}
        return [
            (back.get(row[0], row[0]), row[1], row[2], None, None) if row[2] in binary else row
            for row in rows
        ]


@contextmanager
def opened(dialect: Dialect, engine: Engine, place: Path) -> Iterator[Platform]:
    """A platform whose sessions end with the block."""
    made = Platform(dialect, engine, place)
    try:
        yield made
    finally:
        made.close()


@dataclass(frozen=True)
class Kept:
    """What the fixture ``kept`` gives: ``made(fill, ...)`` is a platform of this dialect as
    ``fill(platform, ...)`` leaves it, one for all tests of a file that name the same arguments.

    ``fill`` returns the tables, children first: they are empty when a test begins, and so is what
    ``rows`` finds. A test changes no table and no trigger there.
    """

    dialect: Dialect
    made: Callable[..., Platform]


def needs(dialect: Dialect, capability: str) -> None:
    """Skip the test where the database lacks a capability."""
    assert capability in CAPABILITIES
    if capability not in dialect.capabilities:
        pytest.skip(f"{dialect.name} has no capability {capability}: {CAPABILITIES[capability]}")


def usr_tables(name: str) -> list[str]:
    """The class of spec/triggers.md 2, its child, and a class of key columns alone, in the words of
    a database.
    """
    update = "" if name == "oracle" else " ON UPDATE CASCADE"
    return [
        spelled(name, statement)
        for statement in (
            "CREATE TABLE usr (idu {integer} PRIMARY KEY, fname {text}, lname {string}, photo "
            "{binary})",
            f"CREATE TABLE usr_phone (idu {{integer}} REFERENCES usr{update} ON DELETE CASCADE, "
            "phoneno {string}, UNIQUE (idu, phoneno))",
            "CREATE TABLE keyed (a {integer}, b {string}, PRIMARY KEY (b, a))",
        )
    ]


def fields(
    event_type: int, key: str, *columns: tuple[str | None, str | None, str | None]
) -> list[Logged]:
    return [(event_type, key, *column) for column in columns]
