"""Change tables in a database: found, and read in change_seq order with bounded memory (spec/qlik.md 1.1, 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql.elements import quoted_name

from eventlog.errors import ConfigError, DatabaseAway, DatabaseError
from eventlog.qlik.change_rows import PARTITION_NAME, ChangeRow, TableLayout, header_name, read_layout
from eventlog.qlik.change_table_options import ReadOptions
from eventlog.qlik.change_tables import key_from_deletes
from eventlog.qlik.control_tables import CONTROL_TABLE, HISTORY_TABLE, DdlEntry, entry_of
from eventlog.qlik.stored_tables import Reading, StoredTable, stored_row_reader
from eventlog.sql.connection import connect_any

STATE_TABLE: Final = "eventlog_change_sequence"
"""The states of the writers of a database, by task."""

_SYSTEM_SCHEMAS: Final = frozenset({"information_schema", "performance_schema", "mysql", "sys"})
_WITHOUT_SCHEMAS: Final = frozenset({"sqlite"})
_ROWS_AT_A_TIME: Final = 2000


class DatabaseTable(NamedTuple):
    """A table of the database by its real name; ``schema`` None where the database has none."""

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
        quoted_name(table.name, True),
        *(sa.column(quoted_name(column, True)) for column in columns),
        schema=None if table.schema is None else quoted_name(table.schema, True),
    )


def default_schema(inspector: sa.Inspector) -> str | None:
    """The schema of tables that name none; None where the database has no schemas."""
    return None if inspector.dialect.name in _WITHOUT_SCHEMAS else inspector.default_schema_name


def schemas_of(inspector: sa.Inspector) -> list[str | None]:
    """The schemas that may hold change tables."""
    if default_schema(inspector) is None:
        return [None]
    names = inspector.get_schema_names()
    return [name for name in names if name.lower() not in _SYSTEM_SCHEMAS and not name.startswith("pg_")]


def is_written(connection: sa.Connection) -> bool:
    """Whether a writer has been here, though there may have been nothing to write."""
    return sa.inspect(connection).has_table(STATE_TABLE)


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


def header_column(
    inspector: sa.Inspector, table: DatabaseTable, header: str, header_prefix: str
) -> sa.ColumnElement[Any] | None:
    """A header column of a table, for a query of it alone; None where it has none."""
    columns = columns_of_table(inspector, table)
    name = next((column for column in columns if header_name(column, header_prefix) == header), None)
    return None if name is None else clause(table, columns).c[name]


def stored_tables(connection: sa.Connection, reading: Reading) -> list[StoredTable]:
    """The change tables of a database that the options want. Raises MissingHeader, FormatError, DatabaseError."""
    inspector, suffix = sa.inspect(connection), reading.options.suffix
    found = []
    for table in change_tables(inspector, suffix):
        schema, name = reading.names(table.schema), table.name[: -len(suffix)]
        if reading.wants(schema, name):
            found.append(_stored_table(connection, inspector, table, schema, name, reading))
    return found


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
            found = connection.execute(statement).fetchall()
        return key_from_deletes(stored_row_reader(columns, schema, name, reading.uncounted())(found))

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
    """A control table with the real names of its columns by those in upper case; None where there is none."""
    for schema in (None, *schemas_of(inspector)):
        for found in inspector.get_table_names(schema=schema):
            if found.casefold() == name.casefold():
                table = DatabaseTable(schema, found)
                return table, {column.upper(): column for column in columns_of_table(inspector, table)}
    return None


def control_rows(connection: sa.Connection, inspector: sa.Inspector, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a control table, by column names in upper case; none without the table."""
    found = control_table(inspector, name)
    if found is not None:
        table, columns = found
        rows = clause(table, list(columns.values()))
        for row in stream(connection, sa.select(*rows.c)):
            yield dict(zip(columns, row, strict=True))


def ddl_history(connection: sa.Connection, options: ReadOptions) -> list[DdlEntry]:
    """The entries of attrep_ddl_history. Raises FormatError, DatabaseError."""
    return [entry_of(row) for row in control_rows(connection, sa.inspect(connection), HISTORY_TABLE)]


def _is_listed(
    inspector: sa.Inspector, rows: sa.TableClause, layout: TableLayout, table: DatabaseTable, name: str
) -> sa.ColumnElement[bool]:
    """Whether a row is in a partition that attrep_cdc_partitions says can be read."""
    partition, found = _column(rows, layout, PARTITION_NAME), control_table(inspector, CONTROL_TABLE)
    if partition is None or found is None:
        missing = f"{CONTROL_TABLE} is not there" if found is None else f"{table.name} has no partition_name"
        raise ConfigError(f"partitions cannot be read: {missing}; read with partitioned = false")
    control, columns = found
    listed = clause(control, list(columns.values()))
    own = [listed.c[columns["PARTITION_NAME"]] == partition, listed.c[columns["TABLE_NAME"]] == name]
    if table.schema is not None:
        owner = listed.c[columns["TABLE_OWNER"]]
        own.append(sa.or_(owner.is_(None), owner == table.schema))
    return sa.exists(sa.select(sa.literal(1)).select_from(listed).where(*own))


@contextmanager
def snapshot(url: str) -> Iterator[sa.Connection]:
    """A connection that sees one state of the database while it reads. Raises ConfigError, DatabaseError."""
    engine = connect_any(url)
    try:
        with database_errors(), engine.connect() as connection:
            if "REPEATABLE READ" in engine.dialect.get_isolation_level_values(None):  # type: ignore[arg-type]
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection
    finally:
        engine.dispose()
