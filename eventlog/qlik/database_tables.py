"""Change tables in a database: read in change_seq order with bounded memory; created, appended and numbered in one
transaction (spec/qlik.md 1.1, 3, 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple

import psycopg
import sqlalchemy as sa
from psycopg.sql import SQL, Identifier

from eventlog.errors import ConfigError, DatabaseAway, DatabaseError, FormatError
from eventlog.model import full_name
from eventlog.qlik import sequence
from eventlog.qlik.change_rows import PARTITION_NAME, ChangeRow, TableLayout, header_name, read_layout
from eventlog.qlik.change_table_options import WriteOptions
from eventlog.qlik.change_tables import key_from_deletes
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.control_tables import CONTROL_COLUMNS, CONTROL_TABLE, ControlRow
from eventlog.qlik.database_types import data_type, header_type, moment_writer, value_writers
from eventlog.qlik.masks import check_capacity
from eventlog.qlik.sequence import WriterState
from eventlog.qlik.stored_tables import Reading, StoredTable, layout_of_new, stored_row_reader
from eventlog.qlik.stored_values import Convert, row_converter
from eventlog.sql.connection import connect_any
from eventlog.sql.log_table import quoted

STATE_TABLE: Final = "eventlog_change_sequence"
"""The states of the writers of a database, by task."""

_SYSTEM_SCHEMAS: Final = frozenset({"information_schema", "performance_schema", "mysql", "sys"})
_WITHOUT_SCHEMAS: Final = frozenset({"sqlite"})
_ROWS_AT_A_TIME: Final = 2000


class DatabaseTable(NamedTuple):
    """A table of the database by its real name; ``schema`` is None if the database has no schemas."""

    schema: str | None
    name: str


@contextmanager
def database_errors() -> Iterator[None]:
    """SQLAlchemy's errors as ours, with the driver's message and without statement and values."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        kind = DatabaseAway if error.connection_invalidated else DatabaseError
        raise kind(f"the database refuses: {error.orig}") from error
    except sa.exc.SQLAlchemyError as error:
        raise DatabaseError(f"the change tables cannot be read or written: {error}") from error


def clause(table: DatabaseTable, columns: Sequence[str]) -> sa.TableClause:
    """The table as statements name it, quoted, with columns whose values the driver gives as they are."""
    return sa.table(
        quoted(table.name),
        *(sa.column(quoted(column)) for column in columns),
        schema=None if table.schema is None else quoted(table.schema),
    )


def default_schema(inspector: sa.Inspector) -> str | None:
    """The schema of tables that name none; None if the database has no schemas."""
    return None if inspector.dialect.name in _WITHOUT_SCHEMAS else inspector.default_schema_name


def schemas_of(inspector: sa.Inspector) -> list[str | None]:
    """The schemas that may hold change tables."""
    if default_schema(inspector) is None:
        return [None]
    names = inspector.get_schema_names()
    return [name for name in names if name.lower() not in _SYSTEM_SCHEMAS and not name.startswith("pg_")]


def change_tables(inspector: sa.Inspector, suffix: str) -> list[DatabaseTable]:
    """The tables whose names end in the suffix, in any letter case."""
    ending = suffix.casefold()
    return [
        DatabaseTable(schema, name)
        for schema in schemas_of(inspector)
        for name in sorted(inspector.get_table_names(schema=schema))
        if len(name) > len(suffix) and name.casefold().endswith(ending)
    ]


def columns_of_table(inspector: sa.Inspector, table: DatabaseTable) -> list[str]:
    """The names of a table's columns in order."""
    return [column["name"] for column in inspector.get_columns(table.name, schema=table.schema)]


class DatabaseSource:
    """The change tables that a connection sees."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection, self._inspector = connection, sa.inspect(connection)

    def is_written(self) -> bool:
        return self._inspector.has_table(STATE_TABLE)

    def control_rows(self, name: str) -> Iterator[dict[str, Any]]:
        return control_rows(self._connection, self._inspector, name)

    def tables(self, reading: Reading) -> tuple[list[StoredTable], Reading]:
        """Raises MissingHeader, FormatError, DatabaseError."""
        suffix = reading.options.suffix
        tables = []
        for table in change_tables(self._inspector, suffix):
            schema, name = reading.names(table.schema), table.name[: -len(suffix)]
            if reading.wants(schema, name):
                tables.append(_stored_table(self._connection, self._inspector, table, schema, name, reading))
        return tables, reading


def _stored_table(
    connection: sa.Connection,
    inspector: sa.Inspector,
    table: DatabaseTable,
    schema: str | None,
    name: str,
    reading: Reading,
) -> StoredTable:
    columns, options = columns_of_table(inspector, table), reading.options
    layout = read_layout(columns, header_prefix=options.header_prefix, what=f"change table {table.name}")
    read = stored_row_reader(columns, schema, name, reading)
    rows = clause(table, columns)
    select = sa.select(*rows.c).order_by(*_order(rows, layout))
    if options.partitioned:
        select = select.where(_is_listed(inspector, rows, layout, table, name))

    def read_rows() -> Iterator[ChangeRow]:
        yield from read(stream(connection, select))

    def key() -> tuple[str, ...] | None:
        statement = sa.select(*rows.c).where(_is_delete(rows, layout)).limit(1)
        with database_errors():
            deletes = connection.execute(statement).fetchall()
        return key_from_deletes(stored_row_reader(columns, schema, name, reading.uncounted())(deletes))

    return StoredTable(schema, name, read_rows, key)


def stream(connection: sa.Connection, select: sa.Select[Any]) -> Iterator[Sequence[Any]]:
    """The rows of a query, some thousands in memory at a time."""
    with database_errors():
        yield from connection.execute(select, execution_options={"yield_per": _ROWS_AT_A_TIME})


def _column(rows: sa.TableClause, layout: TableLayout, header: str) -> sa.ColumnElement[Any] | None:
    place = layout.headers.get(header)
    return None if place is None else rows.c[layout.columns[place]]


def _order(rows: sa.TableClause, layout: TableLayout) -> list[sa.ColumnElement[Any]]:
    """By change_seq, before images in front: B and BEFOREIMAGE stand in front of U and UPDATE in the alphabet."""
    columns = (_column(rows, layout, header) for header in ("change_seq", "change_oper", "operation"))
    return [column for column in columns if column is not None]


def _is_delete(rows: sa.TableClause, layout: TableLayout) -> sa.ColumnElement[bool]:
    change_oper, operation = (_column(rows, layout, header) for header in ("change_oper", "operation"))
    return change_oper == "D" if change_oper is not None else operation == "DELETE"  # type: ignore[return-value]


# --- control tables ---------------------------------------------------------------------------------------------------


def control_table(inspector: sa.Inspector, name: str) -> tuple[DatabaseTable, dict[str, str]] | None:
    """A control table with the real names of its columns by those in upper case; None if there is no such table."""
    for schema in (None, *schemas_of(inspector)):
        for real_name in inspector.get_table_names(schema=schema):
            if real_name.casefold() == name.casefold():
                table = DatabaseTable(schema, real_name)
                return table, {column.upper(): column for column in columns_of_table(inspector, table)}
    return None


def control_rows(connection: sa.Connection, inspector: sa.Inspector, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a control table, by column names in upper case; none without the table."""
    control = control_table(inspector, name)
    if control is not None:
        table, columns = control
        rows = clause(table, list(columns.values()))
        for row in stream(connection, sa.select(*rows.c)):
            yield dict(zip(columns, row, strict=True))


def _is_listed(
    inspector: sa.Inspector, rows: sa.TableClause, layout: TableLayout, table: DatabaseTable, name: str
) -> sa.ColumnElement[bool]:
    """Whether a row is in a partition that attrep_cdc_partitions says can be read."""
    partition, listing = _column(rows, layout, PARTITION_NAME), control_table(inspector, CONTROL_TABLE)
    if partition is None or listing is None:
        missing = f"{CONTROL_TABLE} is not there" if listing is None else f"{table.name} has no partition_name"
        raise ConfigError(f"partitions cannot be read: {missing}; read with partitioned = false")
    control, columns = listing
    listed = clause(control, list(columns.values()))
    conditions = [listed.c[columns["PARTITION_NAME"]] == partition, listed.c[columns["TABLE_NAME"]] == name]
    if table.schema is not None:
        owner = listed.c[columns["TABLE_OWNER"]]
        conditions.append(sa.or_(owner.is_(None), owner == table.schema))
    return sa.exists(sa.select(sa.literal(1)).select_from(listed).where(*conditions))


@contextmanager
def database_source(url: str) -> Iterator[DatabaseSource]:
    """A source that sees one state of the database while it is read. Raises ConfigError, DatabaseError."""
    engine = connect_any(url)
    try:
        with database_errors(), engine.connect() as connection:
            if "REPEATABLE READ" in engine.dialect.get_isolation_level_values(None):  # type: ignore[arg-type]
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield DatabaseSource(connection)
    finally:
        engine.dispose()


# --- writing ----------------------------------------------------------------------------------------------------------

_ROWS_WRITTEN_TOGETHER: Final = 5000
# SQLite takes its lock, and lets tables be created within the transaction, only if this begins it.
_BEGIN: Final = {"sqlite": "BEGIN IMMEDIATE"}

_CONTROL_TYPES: Final = {
    "PARTITION_NAME": header_type(PARTITION_NAME),
    "PARTITION_START_TIME": header_type("timestamp"),
    "PARTITION_END_TIME": header_type("timestamp"),
}
_NAME: Final = sa.String(128)


@contextmanager
def database_store(url: str, options: WriteOptions) -> Iterator[DatabaseStore]:
    """A database to append to, in one transaction that is committed if the block ends well, else rolled back.

    Raises ConfigError, DatabaseError.
    """
    engine = connect_any(url)
    with database_errors():
        try:
            with engine.begin() as connection:
                begin = _BEGIN.get(engine.dialect.name)
                if begin is not None:
                    connection.exec_driver_sql(begin)
                yield DatabaseStore(connection, options)
        finally:
            engine.dispose()


class DatabaseStore:
    """A database that change tables are appended to, within the transaction of ``connection``.

    The state of the writer is the row of its task in ``STATE_TABLE``; without it numbers go on behind the highest
    change_seq stored.
    """

    def __init__(self, connection: sa.Connection, options: WriteOptions) -> None:
        self.mask_form: Literal["binary", "text"] = "binary"
        self._connection, self._options = connection, options
        self._tables: list[_TableRows] = []
        columns = (
            sa.Column("task_name", sa.String(128), primary_key=True),
            sa.Column("prefix", sa.String(16), nullable=True),
            sa.Column("number", sa.String(19), nullable=False),
        )
        self._states = sa.Table(STATE_TABLE, sa.MetaData(), *columns)

    def stored_state(self) -> WriterState:
        """The task's state, its row locked until the end of the transaction."""
        states, task = self._states, self._options.task
        saved = sa.select(states.c.prefix, states.c.number).where(states.c.task_name == task).with_for_update()
        with database_errors():
            states.create(self._connection, checkfirst=True)
            row = self._connection.execute(saved).first()
            if row is not None:
                return WriterState(row.prefix or "", int(row.number))
            state = self._highest()
            self._connection.execute(
                sa.insert(states).values(task_name=task, prefix=state.prefix, number=str(state.number))
            )
        return state

    def _highest(self) -> WriterState:
        """The state from the highest change_seq of all change tables."""
        state = WriterState()
        for _, column in self._header_columns("change_seq"):
            highest = self._connection.execute(sa.select(sa.func.max(column))).scalar()
            if highest is not None:
                state = sequence.raise_to(state, f"{highest:>0{sequence.LENGTH}}")
        return state

    def _header_columns(self, header: str) -> Iterator[tuple[DatabaseTable, sa.ColumnElement[Any]]]:
        """A header column of every change table that has it."""
        inspector = sa.inspect(self._connection)
        for table in change_tables(inspector, self._options.suffix):
            columns = columns_of_table(inspector, table)
            for name in columns:
                if header_name(name, self._options.header_prefix) == header:
                    yield table, clause(table, columns).c[name]
                    break

    def table(self, schema: str | None, table: str, columns: Sequence[QlikColumn]) -> _TableRows:
        """Raises DatabaseError, too."""
        rows = _TableRows(self._connection, schema, table, columns, self._options)
        for other in self._tables:
            if other.place == rows.place:
                raise FormatError(
                    f"{rows.full_name} and {other.full_name} are one table in this "
                    f"database, which has no schemas; write them to two databases"
                )
        self._tables.append(rows)
        return rows

    def flush(self) -> None:
        for table in self._tables:
            table.flush()

    def control_rows(self, name: str) -> Iterator[dict[str, Any]]:
        return control_rows(self._connection, sa.inspect(self._connection), name)

    def partitions(self) -> Iterator[tuple[str | None, str, str]]:
        for table, column in self._header_columns(PARTITION_NAME):
            names = stream(self._connection, sa.select(column).where(column.is_not(None)).distinct())
            for name in [row[0] for row in names]:
                yield table.schema, table.name[: -len(self._options.suffix)], name

    def append_partitions(self, rows: Sequence[ControlRow]) -> None:
        """Raises DatabaseError."""
        table = control_table(sa.inspect(self._connection), CONTROL_TABLE)
        if table is None:
            columns = (sa.Column(name, _CONTROL_TYPES.get(name, _NAME), quote=True) for name in CONTROL_COLUMNS)
            with database_errors():
                sa.Table(quoted(CONTROL_TABLE), sa.MetaData(), *columns).create(self._connection)
            table = control_table(sa.inspect(self._connection), CONTROL_TABLE)
        assert table is not None
        control, names = table
        real_names = [names[name] for name in CONTROL_COLUMNS]
        moment = moment_writer(self._connection.dialect.name)
        for row in rows:
            start, end = moment(row.partition_start_time), moment(row.partition_end_time)
            stored = row._replace(partition_start_time=start, partition_end_time=end)
            with database_errors():
                self._connection.execute(
                    sa.insert(clause(control, real_names)).values(dict(zip(real_names, stored, strict=True)))
                )

    def save(self, state: WriterState) -> None:
        states = self._states
        with database_errors():
            self._connection.execute(
                sa.update(states)
                .where(states.c.task_name == self._options.task)
                .values(prefix=state.prefix, number=str(state.number))
            )


class _TableRows:
    """One change table, created if it is not there, and the rows that are to go into it."""

    def __init__(
        self,
        connection: sa.Connection,
        schema: str | None,
        table: str,
        columns: Sequence[QlikColumn],
        options: WriteOptions,
    ) -> None:
        self.full_name = full_name(schema, table)
        self._connection = connection
        inspector = sa.inspect(connection)
        default = default_schema(inspector)
        self.place = DatabaseTable(None if default is None else schema or default, f"{table}{options.suffix}")
        if inspector.has_table(self.place.name, schema=self.place.schema):
            self.layout = self._existing(inspector, columns, options)
        else:
            self.layout = layout_of_new(schema, table, columns, options)
            with database_errors():
                if self.place.schema is not None and self.place.schema not in inspector.get_schema_names():
                    connection.execute(sa.schema.CreateSchema(quoted(self.place.schema)))
                change_table(self.place, self.layout, columns).create(connection)
        self.convert = row_converter(
            _converters(self.layout, columns, connection.dialect.name),
            [f"{self.full_name}.{name}" for name in self.layout.columns],
        )
        self._waiting: list[list[Any]] = []

    def append(self, rows: Sequence[ChangeRow], values: Sequence[list[Any]]) -> None:
        self._waiting += values
        if len(self._waiting) >= _ROWS_WRITTEN_TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        if self._waiting:
            with database_errors():
                _append(self._connection, clause(self.place, self.layout.columns), self._waiting)
            self._waiting = []

    def _existing(self, inspector: sa.Inspector, columns: Sequence[QlikColumn], options: WriteOptions) -> TableLayout:
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


def change_table(place: DatabaseTable, layout: TableLayout, columns: Sequence[QlikColumn]) -> sa.Table:
    """The change table as SQLAlchemy creates it: all columns nullable, types by dialect (spec/qlik.md 1.1)."""
    header_at = {at: name for name, at in layout.headers.items()}
    by_name = {column.name: column for column in columns}
    return sa.Table(
        quoted(place.name),
        sa.MetaData(),
        *(
            sa.Column(quoted(name), header_type(header_at[at]) if at in header_at else data_type(by_name[name]))
            for at, name in enumerate(layout.columns)
        ),
        schema=None if place.schema is None else quoted(place.schema),
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
