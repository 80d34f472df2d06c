"""Create, write and poll a Linter queue in a database (formats/linter-queue.md 1, 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa

from eventlog.changes.format import Report
from eventlog.core.catalog import match_name
from eventlog.errors import DatabaseError, FormatError
from eventlog.linter.dispatch_tables import (
    ATTRS_COLUMNS,
    ATTRS_TYPES,
    DATA_SIZE,
    MASK_64,
    QUEUE_COLUMNS,
    QUEUE_TYPES,
    DispatchRow,
    TableAttrs,
    attrs_of_rows,
    attrs_values,
    column_positions,
    column_values,
    dispatch_rows,
)
from eventlog.linter.options import PlaceOptions, SourceOptions, TargetOptions
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.linter.writer import QueueWriter, WriterOptions, first_address, next_address
from eventlog.model import Change
from eventlog.sql.connect.connection import any_database_errors, connect_any

PLACE: Final = "the database of the Linter queue"
_AT_ONCE: Final = 500
_INTEGERS: Final[Mapping[str, type[sa.types.TypeEngine[int]]]] = {
    "int16": sa.SmallInteger,
    "int32": sa.Integer,
    "int64": sa.BigInteger,
}


def find_table(connection: sa.Connection, name: str, schema: str | None = None) -> sa.Table:
    """Return the table of this name. The name matches exactly or, if no table has exactly this
    name, without case.

    Raises DatabaseError if there is no table of this name.
    """
    inspector = sa.inspect(connection)
    table_name = match_name(
        name, [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
    )
    if table_name is None:
        raise DatabaseError(
            f"there is no table {name!r} in the "
            f"{f'schema {schema!r}' if schema else 'default schema'}"
        )
    return sa.Table(
        table_name, sa.MetaData(), schema=schema, autoload_with=connection, resolve_fks=False
    )


def create_tables(
    connection: sa.Connection, place: PlaceOptions | None = None
) -> tuple[sa.Table, sa.Table]:
    """Return the two tables. A missing table is created, for emulation or as the target of a
    conversion.
    """
    place = place or PlaceOptions()
    queue = _found_or_made(connection, place.queue_table, place.schema, QUEUE_TYPES, "syslog_addr")
    return queue, _found_or_made(connection, place.attrs_table, place.schema, ATTRS_TYPES)


def _found_or_made(
    connection: sa.Connection,
    name: str,
    schema: str | None,
    types: Mapping[str, tuple[str, int]],
    indexed: str = "",
) -> sa.Table:
    try:
        return find_table(connection, name, schema)
    except DatabaseError:
        columns = [
            sa.Column(column.lower(), _sql_type(*column_type))
            for column, column_type in types.items()
        ]
        table = sa.Table(name, sa.MetaData(), *columns, schema=schema)
        if indexed:
            sa.Index(f"ix_{name}_{indexed}", table.columns[indexed])
        table.create(connection)
        return table


def _sql_type(name: str, size: int) -> sa.types.TypeEngine[Any]:
    if name in _INTEGERS:
        return _INTEGERS[name]()
    return sa.CHAR(size) if name == "string" else sa.LargeBinary(size)


def insert_rows(connection: sa.Connection, table: sa.Table, queue: Iterable[DispatchRow]) -> None:
    """Insert rows into the queue, up to 500 in one call of the driver."""
    names = [column_of(table, name).name for name in QUEUE_COLUMNS]
    values = iter(queue)
    while several := [
        dict(zip(names, column_values(row), strict=True)) for row in islice(values, _AT_ONCE)
    ]:
        connection.execute(sa.insert(table), several)


def insert_attrs(connection: sa.Connection, table: sa.Table, tables: Sequence[TableAttrs]) -> None:
    """Insert the descriptions of the tables that have no description in DISPATCH_ATTRS yet.

    Raises FormatError for a table that already has another description.
    """
    names = [column_of(table, name).name for name in ATTRS_COLUMNS]
    present = _read_attrs(connection, table)
    for attrs in tables:
        known = present.get(attrs.tabnum)
        if known is not None and known != attrs:
            raise FormatError(
                f"DISPATCH_ATTRS already describes table {attrs.tabnum} with other columns; give "
                "the table another number"
            )
        if known is None:
            connection.execute(
                sa.insert(table),
                [dict(zip(names, row, strict=True)) for row in attrs_values(attrs)],
            )


def _read_attrs(connection: sa.Connection, table: sa.Table) -> dict[int, TableAttrs]:
    """Return the tables that DISPATCH_ATTRS describes, by number.

    Raises MissingColumn, FormatError.
    """
    names = [column.name for column in table.columns]
    return attrs_of_rows(
        names, (tuple(row) for row in connection.execute(sa.select(*table.columns)))
    )


def _last_address(connection: sa.Connection, table: sa.Table) -> int | None:
    """Return the greatest SYSLOG_ADDR of the queue, unsigned; None if the queue is empty."""
    address = column_of(table, "SYSLOG_ADDR")
    order = (sa.case((address < 0, 1), else_=0).desc(), address.desc())
    greatest = connection.execute(sa.select(address).order_by(*order).limit(1)).scalar()
    return None if greatest is None else int(greatest) & MASK_64


def column_of(table: sa.Table, name: str) -> sa.Column[Any]:
    """Return a column of the queue or of DISPATCH_ATTRS by its name in any case.

    Raises MissingColumn.
    """
    names = [column.name for column in table.columns]
    (position,) = column_positions(names, (name,), table=table.name.upper())
    return table.columns[names[position or 0]]


def write_database(
    changes: Iterable[Change],
    url: str,
    place: TargetOptions,
    options: WriterOptions,
    report: Report,
) -> None:
    """Write changes to the end of a database's queue, all or none.

    Raises ConfigError, FormatError, DatabaseError.
    """
    with any_database_errors(PLACE), connect_any(url).begin() as connection:
        queue, attrs = create_tables(connection, place)
        last = _last_address(connection, queue)
        writer = QueueWriter(
            options, report, first_address() if last is None else next_address(last, DATA_SIZE)
        )
        insert_attrs(connection, attrs, list(writer.attrs.values()))
        insert_rows(connection, queue, writer.rows(changes))


# --- polling --------------------------------------------------------------------------------------


class QueuePoller:
    """A poller of one queue. With ``restart_token`` as the option ``restart``, a new poller
    continues where this poller has stopped.

    Each poll reads the queue in order in one statement, far enough for ``batch_rows`` new rows, and
    closes its transaction before it yields the first change. Operations of open transactions stay
    in memory until their COMMIT is seen. Earlier rows are read again, since rows leave the queue
    only after they were sent. The table names of ``place`` match as in ``find_table``.
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
        """The restart token of the last transaction whose changes were all yielded."""
        return self._reader.restart_token

    def attrs_of(self, tabnum: int) -> TableAttrs | None:
        """Return the description of a table, None if it has none."""
        return self._reader.attrs_of(tabnum)

    def poll(self) -> Iterator[Change]:
        """Yield the changes of the transactions whose COMMIT is new in the queue. Raises
        FormatError, DatabaseError.

        After DatabaseUnavailable, ``poll`` may be called again; after a FormatError, a new poller
        is needed.
        """
        rows = self._fetch()
        yield from self._reader.changes(rows, final=False)

    def drain(self) -> Iterator[Change]:
        """Yield all changes that are in the queue now, in as many polls as are needed. Open
        transactions are dropped and counted.
        """
        while rows := self._fetch():
            yield from self._reader.changes(rows, final=False)
        yield from self._reader.changes((), final=True)

    def _fetch(self) -> list[DispatchRow]:
        place = self._place
        with any_database_errors(PLACE), self._engine.connect() as opened:
            connection = opened.execution_options(postgresql_readonly=True)
            if self._reads_attrs:
                if self._attrs is None:
                    self._attrs = find_table(connection, place.attrs_table, place.schema)
                self._reader.describe(_read_attrs(connection, self._attrs))
            if self._queue is None:
                self._queue = find_table(connection, place.queue_table, place.schema)
            # At least one batch of so many rows is new, if the queue has that many new rows.
            limit = len(self._reader.seen) + place.batch_rows
            statement = _select_queue(self._queue, self._options.order_by, limit)
            result = connection.execute(statement, execution_options={"yield_per": _AT_ONCE})
            return list(self._reader.fresh(dispatch_rows(tuple(result.keys()), result)))


def _select_queue(table: sa.Table, order_by: str, limit: int) -> sa.Select[Any]:
    """Return the statement that reads the first rows in the order of the option ``order_by``, with
    all columns in the table's own order.

    Raises MissingColumn.
    """
    oper_date, address, extdata = (
        column_of(table, name) for name in ("OPER_DATE", "SYSLOG_ADDR", "EXTDATA")
    )
    order = (sa.case((address < 0, 1), else_=0), address, extdata)  # unsigned
    return (
        sa.select(*table.columns)
        .order_by(*((oper_date, *order) if order_by == "oper_date" else order))
        .limit(limit)
    )


def follow(poller: QueuePoller, wait: Callable[[], bool]) -> Iterator[Change]:
    """Poll the queue repeatedly, and yield the changes. ``wait`` is called after a poll without
    changes; it waits, and returns whether to continue.

    Raises FormatError, DatabaseError.
    """
    while True:
        has_changes = False
        for change in poller.poll():
            has_changes = True
            yield change
        if not has_changes and not wait():
            return
