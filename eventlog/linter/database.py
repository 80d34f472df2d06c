"""DISPATCH_QUEUE and DISPATCH_ATTRS in a database: made, read and polled (spec/linter-queue.md 1, 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa

from eventlog.changes.format import Report
from eventlog.changes.json_form import CATALOG, CatalogOption
from eventlog.core.catalog import match_name
from eventlog.core.options import FLAG, STRING, CheckedOptions, integer, option, shared
from eventlog.errors import DatabaseAway, DatabaseError, FormatError
from eventlog.linter.reader import DISPATCH_ATTRS, QueueReader, ReaderOptions
from eventlog.linter.rows import (
    ATTRS_COLUMNS,
    ATTRS_TYPES,
    MASK_64,
    QUEUE_COLUMNS,
    QUEUE_TYPES,
    QueueRow,
    TableAttrs,
    attrs_of_rows,
    attrs_values,
    column_positions,
    column_values,
    queue_rows,
)
from eventlog.model import Change

QUEUE: Final = "dispatch_queue"
ATTRS: Final = "dispatch_attrs"

_AT_ONCE: Final = 500

_INTEGERS: Final[Mapping[str, type[sa.types.TypeEngine[int]]]] = {
    "int16": sa.SmallInteger,
    "int32": sa.Integer,
    "int64": sa.BigInteger,
}


@dataclass(frozen=True, slots=True)
class PlaceOptions(CheckedOptions):
    """Where the two tables are, in files and in a database."""

    attrs: str | None = option(None, STRING, "file of DISPATCH_ATTRS, if it is not beside the queue")
    queue_table: str = option(QUEUE, STRING, "name of the queue's table in a database")
    attrs_table: str = option(ATTRS, STRING, "name of the table that describes the tables")
    schema: str | None = option(None, STRING, "schema of these two tables")


@dataclass(frozen=True, slots=True)
class SourceOptions(PlaceOptions):
    """Options of a source beside those of the reader.

    ``catalog`` may be given, since a conversion gives it to both sides: a queue describes its tables itself.
    """

    dispatch_attrs: Mapping[int, TableAttrs] = shared(DISPATCH_ATTRS)
    batch_rows: int = option(10_000, integer(1), "rows that are read from a database at once")
    final: bool = option(True, FLAG, "hand out everything, keep nothing back for a later read")
    catalog: CatalogOption = shared(CATALOG)


@contextmanager
def database_errors() -> Iterator[None]:
    """Errors of the driver as DatabaseAway (try again) and DatabaseError."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.InterfaceError) as error:
        raise DatabaseAway(f"the database of the Linter queue fails: {_reason(error)}") from error
    except sa.exc.SQLAlchemyError as error:
        raise DatabaseError(f"the database of the Linter queue refuses: {_reason(error)}") from error


def _reason(error: sa.exc.SQLAlchemyError) -> str:
    return " ".join(str(getattr(error, "orig", None) or type(error).__name__).split())


def find(connection: sa.Connection, name: str, schema: str | None = None) -> sa.Table:
    """The table of this name, matched exactly or else without case. Raises DatabaseError if there is none."""
    inspector = sa.inspect(connection)
    table_name = match_name(name, [*inspector.get_table_names(schema), *inspector.get_view_names(schema)])
    if table_name is None:
        raise DatabaseError(f"there is no table {name!r} in the {f'schema {schema!r}' if schema else 'default schema'}")
    return sa.Table(table_name, sa.MetaData(), schema=schema, autoload_with=connection, resolve_fks=False)


def create(connection: sa.Connection, place: PlaceOptions | None = None) -> tuple[sa.Table, sa.Table]:
    """Make the tables that are not there: for emulation, and as the target of a conversion."""
    place = place or PlaceOptions()
    queue = _found_or_made(connection, place.queue_table, place.schema, QUEUE_TYPES, "syslog_addr")
    return queue, _found_or_made(connection, place.attrs_table, place.schema, ATTRS_TYPES)


def _found_or_made(
    connection: sa.Connection, name: str, schema: str | None, types: Mapping[str, tuple[str, int]], indexed: str = ""
) -> sa.Table:
    try:
        return find(connection, name, schema)
    except DatabaseError:
        columns = [sa.Column(column.lower(), _sql_type(*column_type)) for column, column_type in types.items()]
        table = sa.Table(name, sa.MetaData(), *columns, schema=schema)
        if indexed:
            sa.Index(f"ix_{name}_{indexed}", table.columns[indexed])
        table.create(connection)
        return table


def _sql_type(name: str, size: int) -> sa.types.TypeEngine[Any]:
    if name in _INTEGERS:
        return _INTEGERS[name]()
    return sa.CHAR(size) if name == "string" else sa.LargeBinary(size)


def select_queue(table: sa.Table, order_by: str, limit: int) -> sa.Select[Any]:
    """The first rows in the order of the option ``order_by``, all columns in the table's own order.

    Raises MissingColumn.
    """
    oper_date, address, extdata = (column_of(table, name) for name in ("OPER_DATE", "SYSLOG_ADDR", "EXTDATA"))
    order = (sa.case((address < 0, 1), else_=0), address, extdata)  # unsigned
    return sa.select(*table.columns).order_by(*((oper_date, *order) if order_by == "oper_date" else order)).limit(limit)


def read_attrs(connection: sa.Connection, table: sa.Table) -> dict[int, TableAttrs]:
    """The tables that DISPATCH_ATTRS describes, by number. Raises MissingColumn, BadColumnValue."""
    names = [column.name for column in table.columns]
    return attrs_of_rows(names, (tuple(row) for row in connection.execute(sa.select(*table.columns))))


def last_address(connection: sa.Connection, table: sa.Table) -> int | None:
    """The greatest SYSLOG_ADDR of the queue, unsigned; None if it is empty."""
    address = column_of(table, "SYSLOG_ADDR")
    order = (sa.case((address < 0, 1), else_=0).desc(), address.desc())
    greatest = connection.execute(sa.select(address).order_by(*order).limit(1)).scalar()
    return None if greatest is None else int(greatest) & MASK_64


def insert_rows(connection: sa.Connection, table: sa.Table, queue: Iterable[QueueRow]) -> None:
    """Put rows into the queue, some hundred a statement."""
    names = [column_of(table, name).name for name in QUEUE_COLUMNS]
    values = iter(queue)
    while several := [dict(zip(names, column_values(row), strict=True)) for row in islice(values, _AT_ONCE)]:
        connection.execute(sa.insert(table), several)


def insert_attrs(connection: sa.Connection, table: sa.Table, tables: Sequence[TableAttrs]) -> None:
    """Describe the tables that are not yet described. Raises FormatError for one that is described otherwise."""
    names = [column_of(table, name).name for name in ATTRS_COLUMNS]
    present = read_attrs(connection, table)
    for attrs in tables:
        known = present.get(attrs.tabnum)
        if known is not None and known != attrs:
            raise FormatError(
                f"DISPATCH_ATTRS describes table {attrs.tabnum} with other columns already; give it another number"
            )
        if known is None:
            connection.execute(sa.insert(table), [dict(zip(names, row, strict=True)) for row in attrs_values(attrs)])


def column_of(table: sa.Table, name: str) -> sa.Column[Any]:
    """A column of the queue or of DISPATCH_ATTRS, by its name in any case. Raises MissingColumn."""
    names = [column.name for column in table.columns]
    (position,) = column_positions(names, (name,), table=table.name.upper())
    return table.columns[names[position or 0]]


_FETCHED_AT_ONCE: Final = 500


class QueuePoller:
    """Polls one queue. ``restart_token`` is where a new poller goes on, given as the option ``restart``.

    Each poll reads the queue in order in one statement, takes at most ``batch_rows`` rows that are new and closes its
    transaction before the first change is handed out; operations of open transactions are kept in memory until their
    COMMIT is seen. The rows that were taken before are read over again, since the queue holds but what is not sent yet.

    The names of the tables that ``place`` has are matched without case where not exactly.
    """

    def __init__(
        self,
        engine: sa.Engine,
        options: ReaderOptions | None = None,
        report: Report | None = None,
        place: SourceOptions | None = None,
    ) -> None:
        self._engine = engine
        self._options = options or ReaderOptions()
        self._place = place or SourceOptions()
        self._reader = QueueReader(self._place.dispatch_attrs, self._options, report)
        self._reads_attrs = not self._place.dispatch_attrs and self._options.codec != "none"
        self._queue: sa.Table | None = None
        self._attrs: sa.Table | None = None

    @property
    def restart_token(self) -> str | None:
        """The token of the last transaction whose changes were handed out whole."""
        return self._reader.restart_token

    def poll(self) -> Iterator[Change]:
        """The changes of the transactions whose COMMIT is new in the queue. Raises FormatError, DatabaseError.

        After DatabaseAway it may be called again; after a FormatError go on with a new poller.
        """
        rows = self._fetch()
        yield from self._reader.changes(rows, final=False)

    def drain(self) -> Iterator[Change]:
        """All that the queue holds now, in as many polls as it needs; what is open then is dropped and counted."""
        while rows := self._fetch():
            yield from self._reader.changes(rows, final=False)
        yield from self._reader.changes((), final=True)

    def _fetch(self) -> list[QueueRow]:
        place = self._place
        with database_errors(), self._engine.connect() as opened:
            connection = opened.execution_options(postgresql_readonly=True)
            if self._reads_attrs:
                if self._attrs is None:
                    self._attrs = find(connection, place.attrs_table, place.schema)
                self._reader.describe(read_attrs(connection, self._attrs))
            if self._queue is None:
                self._queue = find(connection, place.queue_table, place.schema)
            # Of so many rows at least a batch is new, if the queue holds that many new ones.
            limit = len(self._reader.transactions.taken) + place.batch_rows
            statement = select_queue(self._queue, self._options.order_by, limit)
            result = connection.execute(statement, execution_options={"yield_per": _FETCHED_AT_ONCE})
            return list(self._reader.transactions.fresh(queue_rows(tuple(result.keys()), result)))


def follow(poller: QueuePoller, wait: Callable[[], bool]) -> Iterator[Change]:
    """The changes of poll after poll. ``wait`` is called when a poll gave none: it waits, and says whether to go on.

    Raises FormatError, DatabaseError.
    """
    while True:
        has_changes = False
        for change in poller.poll():
            has_changes = True
            yield change
        if not has_changes and not wait():
            return
