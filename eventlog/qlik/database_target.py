"""Writing change tables to a database: created, appended and numbered in one transaction (spec/qlik.md 1.1, 3, 4).

The state of the writer is the row of its task in ``eventlog_change_sequence``; without it numbers go on behind the
highest change_seq stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg.sql import SQL, Identifier
from sqlalchemy.sql.elements import quoted_name

from eventlog.errors import DatabaseError, FormatError
from eventlog.qlik import sequence
from eventlog.qlik.change_rows import PARTITION_NAME, ChangeRow, TableLayout, new_layout, read_layout, row_writer
from eventlog.qlik.change_table_options import WriteOptions, full_name
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.database_partitions import list_ended_partitions
from eventlog.qlik.database_tables import (
    STATE_TABLE,
    DatabaseTable,
    change_tables,
    clause,
    columns_of_table,
    database_errors,
    default_schema,
    header_column,
)
from eventlog.qlik.database_types import data_type, header_type, moment_writer, value_writers
from eventlog.qlik.masks import check_capacity
from eventlog.qlik.sequence import WriterState
from eventlog.qlik.stored_tables import WriteRows
from eventlog.qlik.stored_values import Convert, row_converter
from eventlog.sql.connection import connect_any

_ROWS_AT_A_TIME: Final = 5000
# SQLite takes its lock, and lets tables be created within the transaction, only if this begins it.
_BEGIN: Final = {"sqlite": "BEGIN IMMEDIATE"}


class DatabaseTarget:
    """Change tables of a database, within the transaction of ``connection``."""

    def __init__(self, connection: sa.Connection, options: WriteOptions) -> None:
        self._connection, self._options = connection, options
        self._tables: list[_TableRows] = []
        self._state_rows = self._state_table()
        self.state = self._stored_state()

    def table(self, schema: str | None, table: str, columns: Sequence[QlikColumn]) -> WriteRows:
        """The function that writes the rows of a change to a table, which is created if it is not there.

        Raises MaskTooWide, MissingHeader, FormatError, DatabaseError.
        """
        rows = _TableRows(self._connection, schema, table, columns, self._options)
        for other in self._tables:
            if other.place == rows.place:
                raise FormatError(
                    f"{full_name(schema, table)} and {full_name(other.schema, other.table)} are one table in this "
                    f"database, which has no schemas; write them to two databases"
                )
        self._tables.append(rows)
        return rows.write

    def finish(self, state: WriterState) -> None:
        """Write what is still in memory, the partitions that can be read, and the state."""
        for table in self._tables:
            table.flush()
        if self._options.partitioned:
            list_ended_partitions(self._connection, self._options, state)
        rows = self._state_rows
        with database_errors():
            self._connection.execute(
                sa.update(rows)
                .where(rows.c.task_name == self._options.task)
                .values(prefix=state.prefix, number=str(state.number))
            )

    # --- state ---

    def _state_table(self) -> sa.Table:
        columns = (
            sa.Column("task_name", sa.String(128), primary_key=True),
            sa.Column("prefix", sa.String(16), nullable=True),
            sa.Column("number", sa.String(19), nullable=False),
        )
        table = sa.Table(STATE_TABLE, sa.MetaData(), *columns)
        with database_errors():
            table.create(self._connection, checkfirst=True)
        return table

    def _stored_state(self) -> WriterState:
        """The task's state, its row locked until the end of the transaction."""
        rows, task = self._state_rows, self._options.task
        saved = sa.select(rows.c.prefix, rows.c.number).where(rows.c.task_name == task).with_for_update()
        with database_errors():
            found = self._connection.execute(saved).first()
            if found is not None:
                return WriterState(found.prefix or "", int(found.number))
            state = self._highest()
            self._connection.execute(
                sa.insert(rows).values(task_name=task, prefix=state.prefix, number=str(state.number))
            )
        return state

    def _highest(self) -> WriterState:
        """The state from the highest change_seq of all change tables."""
        inspector, state = sa.inspect(self._connection), WriterState()
        for table in change_tables(inspector, self._options.suffix):
            column = header_column(inspector, table, "change_seq", self._options.header_prefix)
            if column is not None:
                highest = self._connection.execute(sa.select(sa.func.max(column))).scalar()
                if highest is not None:
                    state = sequence.raise_to(state, f"{highest:>0{sequence.LENGTH}}")
        return state


class _TableRows:
    """One change table and the rows that are to go into it."""

    def __init__(
        self,
        connection: sa.Connection,
        schema: str | None,
        table: str,
        columns: Sequence[QlikColumn],
        options: WriteOptions,
    ) -> None:
        self.schema, self.table = schema, table
        self._connection = connection
        inspector = sa.inspect(connection)
        own = default_schema(inspector)
        self.place = DatabaseTable(None if own is None else schema or own, f"{table}{options.suffix}")
        self._layout = self._existing(inspector, columns, options) or self._created(inspector, columns, options)
        self._values = row_writer(
            self._layout,
            mask_form="binary",
            byteorder=options.byteorder,
            empty_mask=options.empty_mask,
            what=full_name(schema, table),
        )
        self._convert = row_converter(
            _converters(self._layout, columns, connection.dialect.name),
            [f"{full_name(schema, table)}.{name}" for name in self._layout.columns],
        )
        self._waiting: list[list[Any]] = []

    def write(self, rows: Sequence[ChangeRow]) -> None:
        self._waiting += [self._convert(self._values(row)) for row in rows]
        if len(self._waiting) >= _ROWS_AT_A_TIME:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            with database_errors():
                _append(self._connection, clause(self.place, self._layout.columns), self._waiting)
            self._waiting = []

    def _existing(
        self, inspector: sa.Inspector, columns: Sequence[QlikColumn], options: WriteOptions
    ) -> TableLayout | None:
        if not inspector.has_table(self.place.name, schema=self.place.schema):
            return None
        what = f"change table {self.place.name}"
        layout = read_layout(
            columns_of_table(inspector, self.place),
            header_prefix=options.header_prefix,
            mask_offset=options.mask_offset,
            what=what,
        )
        check_capacity(layout.masks)
        missing = [column.name for column in columns if column.name not in layout.names]
        if options.partitioned and PARTITION_NAME not in layout.headers:
            missing.append(options.header_prefix + PARTITION_NAME)
        if missing:
            raise FormatError(f"{what} is there and has no column {missing[0]!r}; add it, or name another suffix")
        return layout

    def _created(self, inspector: sa.Inspector, columns: Sequence[QlikColumn], options: WriteOptions) -> TableLayout:
        layout = new_layout(
            [column.name for column in columns],
            headers=options.headers,
            header_prefix=options.header_prefix,
            mask_offset=options.mask_offset,
            partitioned=options.partitioned,
            what=full_name(self.schema, self.table),
        )
        with database_errors():
            if self.place.schema is not None and self.place.schema not in inspector.get_schema_names():
                self._connection.execute(sa.schema.CreateSchema(quoted_name(self.place.schema, True)))
            change_table(self.place, layout, columns).create(self._connection)
        return layout


def change_table(place: DatabaseTable, layout: TableLayout, columns: Sequence[QlikColumn]) -> sa.Table:
    """The change table as SQLAlchemy creates it: all columns nullable, types by dialect (spec/qlik.md 1.1)."""
    header_at = {at: name for name, at in layout.headers.items()}
    by_name = {column.name: column for column in columns}
    return sa.Table(
        quoted_name(place.name, True),
        sa.MetaData(),
        *(
            sa.Column(
                quoted_name(name, True), header_type(header_at[at]) if at in header_at else data_type(by_name[name])
            )
            for at, name in enumerate(layout.columns)
        ),
        schema=None if place.schema is None else quoted_name(place.schema, True),
    )


def _converters(layout: TableLayout, columns: Sequence[QlikColumn], dialect: str) -> list[Convert]:
    data = value_writers(dialect, columns)
    header_at = {at: name for name, at in layout.headers.items()}
    moment = moment_writer(dialect)
    return [
        (moment if header_at[at] == "timestamp" else _as_it_is) if at in header_at else data.get(name, _as_it_is)
        for at, name in enumerate(layout.columns)
    ]


def _as_it_is(value: Any) -> Any:
    return value


def _append(connection: sa.Connection, table: sa.TableClause, rows: list[list[Any]]) -> None:
    """Append rows: by COPY where the driver has it, as psycopg has, else by an executemany."""
    names = [column.name for column in table.columns]
    driver: Any = connection.connection.driver_connection
    if isinstance(driver, psycopg.Connection):
        _copy(driver, table, names, rows)
        return
    places = [f"v{place}" for place in range(len(names))]  # names of columns are not fit for parameters
    statement = sa.insert(table).values({name: sa.bindparam(place) for name, place in zip(names, places, strict=True)})
    connection.execute(statement, [dict(zip(places, row, strict=True)) for row in rows])


def _copy(driver: psycopg.Connection, table: sa.TableClause, names: Sequence[str], rows: list[list[Any]]) -> None:
    place = SQL(".").join(Identifier(name) for name in (table.schema, table.name) if name is not None)
    columns = SQL(", ").join(map(Identifier, names))
    try:
        with driver.cursor() as cursor, cursor.copy(SQL("COPY {} ({}) FROM STDIN").format(place, columns)) as copy:
            for row in rows:
                copy.write_row(row)
    except psycopg.Error as error:
        raise DatabaseError(f"the database refuses rows of {table.name!r}: {error}") from error


@contextmanager
def database_target(url: str, options: WriteOptions) -> Iterator[DatabaseTarget]:
    """The target, in one transaction that is committed if the block ends well, else rolled back.

    Raises ConfigError, DatabaseError.
    """
    engine = connect_any(url)
    with database_errors():
        try:
            with engine.begin() as connection:
                begin = _BEGIN.get(engine.dialect.name)
                if begin is not None:
                    connection.exec_driver_sql(begin)
                yield DatabaseTarget(connection, options)
        finally:
            engine.dispose()
