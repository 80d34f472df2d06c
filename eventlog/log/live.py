"""The live table of a log in a database, read and written by the format ``eventlog``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.types import TypeEngine

from eventlog.core.catalog import Attribute, Database, ObjectClass
from eventlog.core.rows.events import CurrentRow
from eventlog.core.values import Kind
from eventlog.log.storage import LogOptions
from eventlog.model import LogRow
from eventlog.sql.connect.connection import connect, dialect_of
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import as_database_errors
from eventlog.sql.port.quoted_names import quoted, schema_of

_PASSWORD: Final = "the URL's password (or EVENTLOG_DATABASE_PASSWORD, if [database] has this URL)"  # noqa: S105
_BATCH: Final = 10_000


@contextmanager
def live(url: str, schema: str | None) -> Iterator[LiveDatabase]:
    """Connect to the database of a URL while the block runs. Writes that the block does not commit
    are rolled back.

    Raises ConfigError, DatabaseError, DatabaseUnavailable.
    """
    dialect = dialect_of(url)
    engine = connect(url, secret=_PASSWORD)
    try:
        with as_database_errors(engine), engine.connect() as connection:
            yield LiveDatabase(connection, dialect, schema)
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True)
class LiveDatabase:
    """A connection to a database with the tables of the classes and perhaps a log; ``schema`` None
    = the current schema.
    """

    connection: Connection
    dialect: Dialect
    schema: str | None

    def tables(self) -> Database:
        """Return the tables as they are now."""
        return self.dialect.open(self.connection).reflect(self.schema)

    def query_back(
        self, object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, CurrentRow]:
        """Return the current rows of objects by canonical key. Deleted objects are missing in the
        result.
        """
        return self.dialect.open(self.connection).query_back(
            self.schema, object_class, keys, attributes
        )

    def log(self, options: LogOptions) -> LogTable:
        """Return the log table. Raises LogTableError, ConfigError."""
        return locate_log(
            self.dialect.open(self.connection),
            name=options.log_table,
            schema=self.schema,
            layout=options.layout,
            column_map=options.column_map,
            column_sort=options.column_sort,
        )

    def rows(self, log: LogTable) -> Iterator[LogRow]:
        """Yield all rows of the log in the order of record_id, read in batches."""
        record_id = sa.column(quoted(log.columns[0]), sa.BigInteger())
        table = _table(log, [record_id])
        last = 0
        while True:
            behind = (
                sa.select(record_id)
                .select_from(table)
                .where(record_id > last)
                .order_by(record_id)
                .limit(_BATCH)
            )
            ids = self.connection.scalars(behind).all()
            if not ids:
                return
            first, last = int(ids[0]), int(ids[-1])
            yield from sorted(
                self.dialect.open(self.connection).log(log).read_rows([(first, last)])
            )

    def append(self, log: LogTable, rows: Iterable[LogRow]) -> None:
        """Append rows to the log in the order given; the database numbers them.

        The caller commits.
        """
        columns = [
            sa.column(quoted(name), _bind_type(log, position))
            for position, name in enumerate(log.columns)
        ]
        # A converted change belongs to no transaction of this database.
        unknown = {} if log.transaction_column is None else {log.transaction_column: None}
        columns += [sa.column(quoted(name), sa.BigInteger()) for name in unknown]
        insert = sa.insert(_table(log, columns))
        is_moment = log.types[3].kind in (
            Kind.TIMESTAMP,
            Kind.TIMESTAMPTZ,
            Kind.DATE,
        )
        remaining, storable = iter(rows), self.dialect.open(self.connection).storable
        while batch := list(islice(remaining, _BATCH)):
            batch = [_with_user(row, storable) for row in batch]
            self.connection.execute(
                insert, [_parameters(log, row, is_moment) | unknown for row in batch]
            )


def _with_user(row: LogRow, storable: Callable[[str], str]) -> LogRow:
    """Return the row with a perpetrator that the database can store. The row may come from another
    system.
    """
    user = row.perpetrator
    return row if user is None or user.isascii() else row._replace(perpetrator=storable(user))


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
    """Return the values of all columns but record_id, which the database assigns."""
    values: dict[str, object] = dict(zip(log.columns[1:], row[1 : len(log.columns)], strict=True))
    if is_moment and row.event_time is not None:
        values[log.columns[3]] = datetime.fromisoformat(row.event_time)
    return values
