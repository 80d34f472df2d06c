"""Change tables in a database. Tables are read in change_seq order with bounded memory. In one
transaction, tables are created and numbered rows are appended (formats/qlik.md 1.1, 3, 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg.sql import SQL, Identifier
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql
from sqlalchemy.types import TypeEngine

from eventlog.errors import ConfigError, DatabaseError, FormatError
from eventlog.model import JsonDict, TableName, full_name
from eventlog.qlik import sequence
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.masks import CAPACITY, check_capacity
from eventlog.qlik.sequence import CONTROL_COLUMNS, CONTROL_TABLE, ControlRow, WriterState
from eventlog.qlik.tables.change_rows import (
    PARTITION_NAME,
    TEXT_LENGTHS,
    ChangeRow,
    StoredValues,
    TableLayout,
    header_name,
)
from eventlog.qlik.tables.change_tables import ReadTable, source_table
from eventlog.qlik.tables.stored_tables import (
    Reading,
    WriteOptions,
    WriteRows,
    layout_of,
    layout_of_new,
    stored_row_reader,
    value_writer,
)
from eventlog.qlik.values import Convert, row_converter, text_writer, timestamp_text, typed_writer
from eventlog.sql.connect.connection import any_database_errors, connect_any
from eventlog.sql.port.quoted_names import quoted

_STATES: Final = sa.Table(
    "eventlog_change_sequence",
    sa.MetaData(),
    sa.Column("task_name", sa.String(128), primary_key=True),
    sa.Column("prefix", sa.String(16), nullable=True),
    sa.Column("number", sa.String(19), nullable=False),
)
"""The table of the writers' states in a database, by task."""

_SYSTEM_SCHEMAS: Final = frozenset({"information_schema", "performance_schema", "mysql", "sys"})
_ROWS_AT_A_TIME: Final = 2000
_PLACE: Final = "the database of the change tables"


def _default_schema(inspector: sa.Inspector) -> str | None:
    """Return the schema of a table that names no schema, None if the database has no schemas."""
    return None if inspector.dialect.name == "sqlite" else inspector.default_schema_name


def _schemas_of(inspector: sa.Inspector) -> list[str | None]:
    """Return the schemas that may hold change tables."""
    if _default_schema(inspector) is None:
        return [None]
    names = inspector.get_schema_names()
    return [
        name for name in names if name.lower() not in _SYSTEM_SCHEMAS and not name.startswith("pg_")
    ]


def _change_tables_of(inspector: sa.Inspector, suffix: str) -> list[TableName]:
    """Return schema and name of the tables whose names end in the suffix, in any letter case."""
    ending = suffix.casefold()
    return [
        (schema, name)
        for schema in _schemas_of(inspector)
        for name in sorted(inspector.get_table_names(schema=schema))
        if len(name) > len(suffix) and name.casefold().endswith(ending)
    ]


def _table_named(inspector: sa.Inspector, schema: str | None, name: str) -> sa.TableClause:
    """Return a table of the database with all of its columns; ``schema`` is None if the database
    has no schemas.
    """
    return _clause(
        schema, name, [column["name"] for column in inspector.get_columns(name, schema=schema)]
    )


def _clause(schema: str | None, name: str, columns: Iterable[str]) -> sa.TableClause:
    """Return a table for statements, with quoted names. The values of the driver stay unchanged."""
    schema = None if schema is None else quoted(schema)
    return sa.table(quoted(name), *(sa.column(quoted(column)) for column in columns), schema=schema)


class DatabaseSource:
    """The change tables that a connection can read."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection, self._inspector = connection, sa.inspect(connection)

    def is_written(self) -> bool:
        return self._inspector.has_table(_STATES.name)

    def control_rows(self, name: str) -> Iterator[JsonDict]:
        return _control_rows(self._connection, name)

    def tables(self, reading: Reading) -> list[ReadTable]:
        """Return the tables as ``Source.tables`` does.

        Raises FormatError, DatabaseError.
        """
        suffix = reading.options.suffix
        tables = []
        for stored_schema, stored_name in _change_tables_of(self._inspector, suffix):
            schema, name = reading.names(stored_schema), stored_name[: -len(suffix)]
            if reading.wants(schema, name):
                tables.append(
                    self._table(
                        _table_named(self._inspector, stored_schema, stored_name), schema, reading
                    )
                )
        return tables

    def _table(self, table: sa.TableClause, schema: str | None, reading: Reading) -> ReadTable:
        options, name = reading.options, table.name[: -len(reading.options.suffix)]
        columns = table.c.keys()
        layout = layout_of(columns, options, full_name(schema, name))
        headers = {header: table.c[columns[place]] for header, place in layout.headers.items()}
        is_delete = (
            headers["change_oper"] == "D"
            if "change_oper" in headers
            else headers["operation"] == "DELETE"
        )
        deletes = sa.select(*table.c).where(is_delete).limit(1)
        if "change_mask" in headers:  # a row without a mask does not show the key
            deletes = deletes.where(headers["change_mask"].is_not(None))
        # B and BEFOREIMAGE come before U and UPDATE in the alphabet.
        order = [
            headers[header]
            for header in ("change_seq", "change_oper", "operation")
            if header in headers
        ]
        select = sa.select(*table.c).order_by(*order)
        if options.partitioned:
            select = select.where(
                _is_listed(self._inspector, table, headers.get(PARTITION_NAME), name)
            )
        look_ahead = stored_row_reader(columns, schema, name, reading.uncounted())
        source = source_table(
            schema, name, reading, look_ahead(_fetched(self._connection, deletes))
        )
        return source, stored_row_reader(columns, schema, name, reading)(
            _stream(self._connection, select)
        )


def _stream(connection: sa.Connection, select: sa.Select[Any]) -> Iterator[Sequence[Any]]:
    """Yield the rows of a query, with some thousands in memory at a time."""
    with any_database_errors(_PLACE):
        yield from connection.execute(select, execution_options={"yield_per": _ROWS_AT_A_TIME})


def _fetched(connection: sa.Connection, select: sa.Select[Any]) -> Iterator[Sequence[Any]]:
    """Yield the few rows of a query.

    The query runs when the first row is requested, and leaves no cursor open.
    """
    with any_database_errors(_PLACE):
        rows = connection.execute(select).fetchall()
    yield from rows


# --- control tables -------------------------------------------------------------------------------


def _control_table(inspector: sa.Inspector, name: str) -> sa.TableClause | None:
    """Return a control table, None if it does not exist."""
    for schema in (None, *_schemas_of(inspector)):
        for real_name in inspector.get_table_names(schema=schema):
            if real_name.casefold() == name.casefold():
                return _table_named(inspector, schema, real_name)
    return None


def _control_rows(connection: sa.Connection, name: str) -> Iterator[JsonDict]:
    """Yield the rows of a control table, by column names in upper case; none if the table does not
    exist.
    """
    table = _control_table(sa.inspect(connection), name)
    if table is not None:
        columns = _by_upper(table)
        for row in _stream(connection, sa.select(*columns.values())):
            yield dict(zip(columns, row, strict=True))


def _by_upper(table: sa.TableClause) -> dict[str, sa.ColumnElement[Any]]:
    return {column.name.upper(): column for column in table.c}


def _is_listed(
    inspector: sa.Inspector,
    table: sa.TableClause,
    partition: sa.ColumnElement[Any] | None,
    name: str,
) -> sa.ColumnElement[bool]:
    """Return the SQL condition for rows in a partition that attrep_cdc_partitions lists as
    readable.
    """
    listing = _control_table(inspector, CONTROL_TABLE)
    if partition is None or listing is None:
        missing = (
            f"{CONTROL_TABLE} does not exist"
            if listing is None
            else f"{table.name} has no partition_name"
        )
        raise ConfigError(f"partitions cannot be read: {missing}; set partitioned = false")
    listed = _by_upper(listing)
    conditions = [listed["PARTITION_NAME"] == partition, listed["TABLE_NAME"] == name]
    if table.schema is not None:
        owner = listed["TABLE_OWNER"]
        conditions.append(sa.or_(owner.is_(None), owner == table.schema))
    return sa.exists(sa.select(sa.literal(1)).select_from(listing).where(*conditions))


@contextmanager
def database_source(url: str) -> Iterator[DatabaseSource]:
    """Open a source whose reads all see the same snapshot of the database.

    Raises ConfigError, DatabaseError.
    """
    engine = connect_any(url)
    with any_database_errors(_PLACE), engine.connect() as connection:
        if "REPEATABLE READ" in engine.dialect.get_isolation_level_values(None):  # type: ignore[arg-type]
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        yield DatabaseSource(connection)


# --- writing --------------------------------------------------------------------------------------

_ROWS_WRITTEN_TOGETHER: Final = 5000
# SQLite locks the database, and lets tables be created within the transaction, only if BEGIN
# IMMEDIATE begins it.
_BEGIN: Final = {"sqlite": "BEGIN IMMEDIATE"}


@contextmanager
def database_store(url: str, options: WriteOptions) -> Iterator[DatabaseStore]:
    """Open a database, to append to it in one transaction. The transaction is committed if the
    block succeeds, otherwise rolled back.

    Raises ConfigError, DatabaseError.
    """
    with any_database_errors(_PLACE), connect_any(url).begin() as connection:
        begin = _BEGIN.get(connection.dialect.name)
        if begin is not None:
            connection.exec_driver_sql(begin)
        yield DatabaseStore(connection, options)


class DatabaseStore:
    """A database that change tables are appended to, within the transaction of ``connection``.

    The state of the writer is the row of its task in ``_STATES``. Without this row, numbers
    continue after the highest stored change_seq.
    """

    def __init__(self, connection: sa.Connection, options: WriteOptions) -> None:
        self._connection, self._options = connection, options
        self._in_text = _AS_TEXT.get(connection.dialect.name, frozenset())
        self._moment: Convert = timestamp_text if self._in_text else lambda moment: moment
        self._tables: dict[TableName, _TableRows] = {}

    def stored_state(self) -> WriterState:
        """Return the state of the task. The row of the state is locked until the end of the
        transaction.
        """
        task = self._options.task
        with any_database_errors(_PLACE):
            _STATES.create(self._connection, checkfirst=True)
            row = self._connection.execute(
                sa.select(_STATES).where(_STATES.c.task_name == task).with_for_update()
            ).first()
            if row is not None:
                return WriterState(row.prefix or "", int(row.number))
            state = self._highest()
            values = {"task_name": task, "prefix": state.prefix, "number": str(state.number)}
            self._connection.execute(sa.insert(_STATES).values(values))
        return state

    def _highest(self) -> WriterState:
        """Return the state of the highest change_seq in all change tables."""
        state = WriterState()
        for _, column in self._header_columns("change_seq"):
            highest = self._connection.execute(sa.select(sa.func.max(column))).scalar()
            if highest is not None:
                state = sequence.raise_to(state, f"{highest:>0{sequence.LENGTH}}")
        return state

    def _header_columns(
        self, header: str
    ) -> Iterator[tuple[sa.TableClause, sa.ColumnElement[Any]]]:
        """Yield each change table that has a column for this header, and the column."""
        inspector = sa.inspect(self._connection)
        for place in _change_tables_of(inspector, self._options.suffix):
            table = _table_named(inspector, *place)
            for column in table.c:
                if header_name(column.name, self._options.header_prefix) == header:
                    yield table, column
                    break

    def table(self, schema: str | None, table: str, columns: Sequence[QlikColumn]) -> WriteRows:
        """Return the function that appends to a table, as ``Store.table`` does.

        Raises DatabaseError, too.
        """
        connection, options, name = self._connection, self._options, full_name(schema, table)
        inspector = sa.inspect(connection)
        default = _default_schema(inspector)
        place = stored_schema, stored_name = (
            None if default is None else schema or default,
            f"{table}{options.suffix}",
        )
        if place in self._tables:
            raise FormatError(
                f"{name} and {self._tables[place].full_name} would be the same table in this "
                "database, which has no schemas; write them to two databases"
            )
        if inspector.has_table(stored_name, schema=stored_schema):
            stored = _table_named(inspector, *place)
            layout = self._existing(stored, columns, name)
        else:
            layout = layout_of_new(schema, table, columns, options)
            with any_database_errors(_PLACE):
                if stored_schema is not None and stored_schema not in inspector.get_schema_names():
                    connection.execute(sa.schema.CreateSchema(quoted(stored_schema)))
                change_table(*place, layout, columns).create(connection)
            stored = _clause(*place, layout.columns)
        converts = layout.for_each(
            columns,
            lambda _, header: self._moment if header == "timestamp" else lambda value: value,
            lambda column: (
                text_writer(column) if column.type in self._in_text else typed_writer(column)
            ),
        )
        convert = row_converter(converts, [f"{name}.{column}" for column in layout.columns])
        values = value_writer(layout, convert, "binary", options, name)
        self._tables[place] = _TableRows(connection, stored, name, values)
        return self._tables[place].append

    def _existing(
        self, table: sa.TableClause, columns: Sequence[QlikColumn], name: str
    ) -> TableLayout:
        options = self._options
        layout = layout_of(table.c.keys(), options, name)
        check_capacity(layout.masks)
        missing = [column.name for column in columns if column.name not in layout.names]
        if options.partitioned and PARTITION_NAME not in layout.headers:
            missing.append(options.header_prefix + PARTITION_NAME)
        if missing:
            raise FormatError(
                f"the change table of {name} exists, but has no column {missing[0]!r}; add the "
                "column, or set another suffix"
            )
        return layout

    def flush(self) -> None:
        for table in self._tables.values():
            table.flush()

    def control_rows(self, name: str) -> Iterator[JsonDict]:
        return _control_rows(self._connection, name)

    def partitions(self) -> Iterator[tuple[str | None, str, str]]:
        for table, column in self._header_columns(PARTITION_NAME):
            for (name,) in _fetched(
                self._connection, sa.select(column).where(column.is_not(None)).distinct()
            ):
                yield table.schema, table.name[: -len(self._options.suffix)], name

    def append_partitions(self, rows: Sequence[ControlRow]) -> None:
        """Append rows to attrep_cdc_partitions. Raises DatabaseError."""
        table = _control_table(sa.inspect(self._connection), CONTROL_TABLE)
        if table is None:
            types = {
                name: _moment() if name.endswith("_TIME") else sa.String(128)
                for name in CONTROL_COLUMNS
            }
            types["PARTITION_NAME"] = _header_type(PARTITION_NAME)
            columns = (sa.Column(name, type, quote=True) for name, type in types.items())
            with any_database_errors(_PLACE):
                sa.Table(quoted(CONTROL_TABLE), sa.MetaData(), *columns).create(self._connection)
            table = _clause(None, CONTROL_TABLE, CONTROL_COLUMNS)
        stored = _by_upper(table)
        for row in rows:
            start = self._moment(row.partition_start_time)
            end = self._moment(row.partition_end_time)
            values = row._replace(partition_start_time=start, partition_end_time=end)._asdict()
            with any_database_errors(_PLACE):
                self._connection.execute(
                    sa.insert(table).values(
                        {stored[name.upper()]: value for name, value in values.items()}
                    )
                )

    def save(self, state: WriterState) -> None:
        saved = sa.update(_STATES).where(_STATES.c.task_name == self._options.task)
        with any_database_errors(_PLACE):
            self._connection.execute(saved.values(prefix=state.prefix, number=str(state.number)))


class _TableRows:
    """The rows to append to one change table. ``values`` returns the stored values of a row."""

    def __init__(
        self,
        connection: sa.Connection,
        table: sa.TableClause,
        full_name: str,
        values: StoredValues,
    ) -> None:
        self.full_name = full_name
        self._connection, self._table, self._values = connection, table, values
        self._waiting: list[list[Any]] = []

    def append(self, rows: Sequence[ChangeRow]) -> None:
        self._waiting += list(map(self._values, rows))
        if len(self._waiting) >= _ROWS_WRITTEN_TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write the rows in memory."""
        if self._waiting:
            with any_database_errors(_PLACE):
                _append(self._connection, self._table, self._waiting)
            self._waiting = []


def change_table(
    schema: str | None, name: str, layout: TableLayout, columns: Sequence[QlikColumn]
) -> sa.Table:
    """Return the change table as SQLAlchemy creates it. All columns are nullable, and types depend
    on the dialect (formats/qlik.md 1.1).
    """
    types = layout.for_each(columns, lambda _, header: _header_type(header), _data_type)
    return sa.Table(
        quoted(name),
        sa.MetaData(),
        *(
            sa.Column(quoted(column), type)
            for column, type in zip(layout.columns, types, strict=True)
        ),
        schema=None if schema is None else quoted(schema),
    )


def _append(connection: sa.Connection, table: sa.TableClause, rows: list[list[Any]]) -> None:
    """Append rows: by COPY if the driver is psycopg, otherwise by executemany."""
    names = [column.name for column in table.columns]
    driver: Any = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        # Column names cannot be used as parameter names.
        places = [f"v{place}" for place in range(len(names))]
        values: JsonDict = {
            name: sa.bindparam(place) for name, place in zip(names, places, strict=True)
        }
        connection.execute(
            sa.insert(table).values(values), [dict(zip(places, row, strict=True)) for row in rows]
        )
        return
    place = SQL(".").join(
        Identifier(name) for name in (table.schema, table.name) if name is not None
    )
    statement = SQL("COPY {} ({}) FROM STDIN").format(place, SQL(", ").join(map(Identifier, names)))
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except psycopg.Error as error:
        raise DatabaseError(f"the database refuses rows of {table.name!r}: {error}") from error


# --- SQL types, by dialect (formats/qlik.md 1.1) --------------------------------------------------

_AS_TEXT: Final = {"sqlite": frozenset({"NUMERIC", "UINT8", "DATE", "TIME", "DATETIME"})}
"""The types that a database lacks. Columns of these types hold text, in the forms of files."""

_PLAIN_TYPES: Final[Mapping[str, type[TypeEngine[Any]]]] = {
    "REAL4": sa.REAL,
    "REAL8": sa.Double,
    "BOOLEAN": sa.Boolean,
    **dict.fromkeys(("INT1", "INT2", "UINT1"), sa.SmallInteger),
    **dict.fromkeys(("INT4", "UINT2"), sa.Integer),
    **dict.fromkeys(("INT8", "UINT4"), sa.BigInteger),
}
_LONGEST_VARCHAR: Final = 4000


class _Timestamp6(sa.types.UserDefinedType[Any]):
    """The type TIMESTAMP(6), which SQLAlchemy's own type for Oracle cannot express."""

    cache_ok = True

    def get_col_spec(self, **options: Any) -> str:
        return "TIMESTAMP(6)"


def _moment() -> TypeEngine[Any]:
    return (
        sa.DateTime()
        .with_variant(postgresql.TIMESTAMP(precision=6), "postgresql")
        .with_variant(_Timestamp6(), "oracle")
        .with_variant(mssql.DATETIME2(6), "mssql")  # type: ignore[no-untyped-call]
        .with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
        .with_variant(sa.Text(), "sqlite")
    )


def _binary(length: int) -> TypeEngine[Any]:
    return (
        sa.LargeBinary(length)
        .with_variant(oracle.RAW(length), "oracle")
        .with_variant(sa.VARBINARY(length), "mssql", "mysql", "mariadb")
    )


def _header_type(header: str) -> TypeEngine[Any]:
    """Return the type of a header column, by its name without prefix."""
    match header:
        case "change_mask":
            return _binary(CAPACITY // 8)
        case "timestamp":
            return _moment()
        case _:
            return sa.String(TEXT_LENGTHS[header]).with_variant(sa.Text(), "sqlite")


def _data_type(column: QlikColumn) -> TypeEngine[Any]:
    """Return the type of a data column."""
    match column.type:
        case "DATETIME":
            return _moment()
        case "DATE":
            return sa.Date().with_variant(sa.Text(), "sqlite")
        case "TIME":
            return (
                sa.Time()
                .with_variant(sa.Text(), "sqlite")
                .with_variant(mysql.TIME(fsp=6), "mysql", "mariadb")
            )
        case "NUMERIC":
            # If the digits are unknown, the database would use its own default,
            # which may be too few.
            number: sa.Numeric[Any] = sa.Numeric(
                column.precision or None, column.scale if column.precision else None
            )
            return number.with_variant(sa.Text(), "sqlite")
        case "UINT8":
            return sa.Numeric(20, 0).with_variant(sa.Text(), "sqlite")
        case "BYTES" if 0 < column.length <= _LONGEST_VARCHAR // 2:
            return _binary(column.length)
        case "BYTES" | "BLOB":
            return sa.LargeBinary()
        case "STRING" | "WSTRING" if 0 < column.length <= _LONGEST_VARCHAR:
            return sa.String(column.length).with_variant(sa.Text(), "sqlite")
        case _:
            return _PLAIN_TYPES.get(column.type, sa.Text)()
