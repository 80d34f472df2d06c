"""Where a log is: one that is there, found and checked, or one as it will be made (spec/event-log.md 1.3, 1.4, 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.core.catalog import Column, match_name
from eventlog.errors import ConfigError, LogTableError
from eventlog.model import LogRow
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_columns import column_type, find_columns
from eventlog.sql.log_table import LogTable, split_name
from eventlog.sql.quoting import quoted


def locate_log(
    conn: Connection,
    dialect: Dialect,
    *,
    name: str,
    schema: str | None = None,
    layout: str = "2.x",
    column_map: Mapping[str, str] | None = None,
    column_sort: str = "bytes",
) -> LogTable:
    """The log table with its columns and companions, whatever this session may do with it.

    ``name`` may be ``schema.table``; otherwise the table is looked for in ``schema``, by default the connection's
    current one; exactly, then without case. ``layout``, ``column_map``, ``column_sort`` as of ``find_columns``. Raises
    LogTableError that names the table or column that is missing, ConfigError for a name that is none.
    """
    inspector = sa.inspect(conn)
    refuse_schema(dialect, schema)
    has_schemas = "schemas" in dialect.capabilities
    if schema is None and has_schemas and inspector.default_schema_name is not None:
        schema = dialect.spelled(inspector.default_schema_name)
    log_name = _existing(inspector, schema, name)
    if log_name is None:
        own_schema, table = split_name(name)
        refuse_schema(dialect, own_schema)
        schema = schema if own_schema is None else own_schema
        log_name = _existing(inspector, schema, table)
        if log_name is None:
            where = f" in schema {schema!r}" if has_schemas else ""
            raise LogTableError(
                f"there is no log table {table!r}{where}: make it with `eventlog db upgrade`, "
                "or correct log_table or schema_name"
            )
    log = new_log(dialect, schema, log_name)
    try:
        columns = _columns(conn, dialect, inspector, schema, log_name)
    except sa.exc.DBAPIError as error:
        raise LogTableError(
            f"the columns of log table {log} cannot be read: {error.orig}; "
            f"have its owner grant this user USAGE on schema {schema}"
        ) from error
    try:
        found = find_columns(
            columns,
            layout=layout,
            column_map=column_map,
            column_sort=column_sort,
            numbered=dialect.numbers_columns,
            textual_time="time_types" not in dialect.capabilities,
        )
    except LogTableError as error:
        raise LogTableError(f"log table {log}: {error}") from None
    types = {column.name: column.type for column in columns}
    log = replace(log, columns=found, types=tuple(types[column] for column in found))
    for companion in (log.error_table, log.inflight_table):
        if not inspector.has_table(quoted(companion), schema):
            place = companion if schema is None else f"{schema}.{companion}"
            raise LogTableError(
                f"the log {log} has no companion table {place}: make it with `eventlog db upgrade`, "
                "or with `eventlog db upgrade --companions-only` if somebody else made the log"
            )
    return log


def _columns(
    conn: Connection, dialect: Dialect, inspector: sa.Inspector, schema: str | None, name: str
) -> list[Column]:
    """The columns of the log in its order."""
    if "time_types" in dialect.capabilities:
        reflected = inspector.get_columns(name, schema)
        return [Column(dialect.spelled(column["name"]), column_type(column["type"])) for column in reflected]
    # The declared type decides, of which SQLAlchemy keeps only what it knows (spec/event-log.md 1.4).
    tables = dialect.reflect(conn, schema).tables
    return [column for table in tables if table.name == name for column in table.columns]


def check_rights(conn: Connection, dialect: Dialect, log: LogTable, *, delete: bool = False) -> None:
    """Raise LogTableError that names the rights which this session lacks to publish the log.

    ``delete``: rows are going to be deleted (``delete_from_log``).
    """
    if missing := dialect.missing_rights(conn, log, delete):
        raise LogTableError(
            f"user {dialect.current_user(conn)} lacks rights on the log {log}: {'; '.join(missing)}; "
            "have its owner grant them"
        )


def new_log(dialect: Dialect, schema: str | None, name: str) -> LogTable:
    """A log as `eventlog db upgrade` makes it: the standard columns, names as the database spells them."""
    return LogTable(
        None if schema is None else dialect.spelled(schema),
        dialect.spelled(name),
        tuple(map(dialect.spelled, LogRow._fields)),
        max_identifier=dialect.max_identifier,
        upper=dialect.spelled("log") == "LOG",
    )


def refuse_schema(dialect: Dialect, schema: str | None) -> None:
    """Raise ConfigError if a schema is named where there are none."""
    if schema is not None and "schemas" not in dialect.capabilities:
        raise ConfigError(f"{dialect.name} has no schemas: take {schema!r} out of log_table or schema_name")


def _existing(inspector: sa.Inspector, schema: str | None, name: str) -> str | None:
    if inspector.has_table(name, schema):
        return name
    return match_name(name, inspector.get_table_names(schema))
