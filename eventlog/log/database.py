"""The event log as a live table, and the tables it is about: read, queried back, appended to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.types import TypeEngine

from eventlog.core.catalog import Attribute, Database, ObjectClass
from eventlog.core.events import CurrentRow
from eventlog.core.values import Kind
from eventlog.errors import ConfigError
from eventlog.log.options import LogOptions
from eventlog.model import LogRow
from eventlog.sql.connection import as_database_errors, connect, dialect_of
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable, locate_log, quoted, schema_of

_PASSWORD: Final = "that it holds the password, or is the URL of [database] with EVENTLOG_DATABASE_PASSWORD set"  # noqa: S105

_BATCH: Final = 10_000


@dataclass(frozen=True, slots=True)
class LiveDatabase:
    """A connection to a database with the classes' tables, perhaps a log; ``schema`` None = the current one."""

    connection: Connection
    dialect: Dialect
    schema: str | None

    def database(self) -> Database:
        """Its tables as they are now."""
        return self.dialect.reflect(self.connection, self.schema)

    def query_back(
        self, object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, CurrentRow]:
        """The current rows of objects by canonical key, gone ones left out."""
        return self.dialect.query_back(self.connection, self.schema, object_class, keys, attributes)

    def log(self, options: LogOptions) -> LogTable:
        """The log table. Raises LogTableError, ConfigError."""
        return locate_log(
            self.connection,
            self.dialect,
            name=options.log_table,
            schema=self.schema,
            layout=options.layout,
            column_map=options.column_map,
            column_sort=options.column_sort,
        )

    def rows(self, log: LogTable) -> Iterator[LogRow]:
        """All rows of the log in the order of record_id, read in batches."""
        record_id = sa.column(quoted(log.columns[0]), sa.BigInteger())
        table = _table(log, [record_id])
        last = 0
        while True:
            behind = sa.select(record_id).select_from(table).where(record_id > last).order_by(record_id).limit(_BATCH)
            ids = self.connection.scalars(behind).all()
            if not ids:
                return
            first, last = int(ids[0]), int(ids[-1])
            yield from sorted(self.dialect.read_rows(self.connection, log, [(first, last)]))

    def append(self, log: LogTable, rows: Iterable[LogRow]) -> None:
        """Add rows to the log, which numbers them, in the order given. The caller commits."""
        columns = [sa.column(quoted(name), _bind_type(log, position)) for position, name in enumerate(log.columns)]
        insert = sa.insert(_table(log, columns))
        is_moment = log.types[3].kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.DATE)
        remaining = iter(rows)
        while batch := list(islice(remaining, _BATCH)):
            self.connection.execute(insert, [_parameters(log, row, is_moment) for row in batch])


@contextmanager
def live(url: str, schema: str | None) -> Iterator[LiveDatabase]:
    """A connection to the database of a URL for as long as it is needed; what was written is rolled back unless
    committed. Raises ConfigError, DatabaseError, DatabaseAway.
    """
    dialect = dialect_of(url)
    engine = connect(url, secret=_PASSWORD)
    try:
        with engine.connect() as connection, as_database_errors(connection):
            yield LiveDatabase(connection, dialect, schema)
    finally:
        engine.dispose()


def is_url(text: str) -> bool:
    """Whether this is a database URL and no path. Raises ConfigError for a URL of another kind."""
    scheme, separator, _ = text.partition("://")
    if not separator:
        return False
    if not scheme.replace("+", "").isalnum():
        raise ConfigError(f"{scheme}:// is no database URL: write postgresql://user@host/database")
    return True


def _table(log: LogTable, columns: Sequence[sa.ColumnClause[Any]]) -> sa.TableClause:
    return sa.table(quoted(log.name), *columns, schema=schema_of(log))


def _bind_type(log: LogTable, position: int) -> TypeEngine[Any]:
    match log.types[position].kind:
        case Kind.INTEGER:
            return sa.BigInteger()
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ | Kind.DATE:
            return sa.DateTime()
        case _:
            return sa.String()


def _parameters(log: LogTable, row: LogRow, is_moment: bool) -> dict[str, object]:
    """The values of all columns but record_id, which the database gives."""
    values: dict[str, object] = dict(zip(log.columns[1:], row[1:], strict=True))
    if is_moment and row.event_time is not None:
        values[log.columns[3]] = datetime.fromisoformat(row.event_time)
    return values
