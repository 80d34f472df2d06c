"""Describe a new log with the standard columns, or find and check an existing log
(spec/event-log.md 1.2, 1.4).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import sqlalchemy as sa

from eventlog.core.catalog import Column, match_name
from eventlog.core.options import nearest_name
from eventlog.core.values import Kind
from eventlog.errors import ConfigError, LogTableError, NoInternalTable, NoLogTable, NoSchema
from eventlog.model import LOG_COLUMNS
from eventlog.sql.log_table import INSUFFICIENT_PRIVILEGE, LAYOUTS, LogTable, split_name
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import for_message, right_advice
from eventlog.sql.port.open_database import OpenDatabase


def new_log(dialect: Dialect, schema: str | None, name: str) -> LogTable:
    """Return a log as `eventlog db upgrade` creates it: with the standard columns, and with names
    in the database's spelling.
    """
    return LogTable(
        None if schema is None else dialect.spelled(schema),
        dialect.spelled(name),
        tuple(map(dialect.spelled, LOG_COLUMNS)),
        max_identifier=dialect.max_identifier,
        upper=dialect.spelled("log") == "LOG",
    )


def refuse_schema(dialect: Dialect, schema: str | None) -> None:
    """Raise ConfigError if a schema is named in a database without schemas."""
    if schema is not None and "schemas" not in dialect.capabilities:
        raise ConfigError(
            f"{dialect.name} has no schemas: remove {schema!r} from log_table or schema_name"
        )


def locate_log(
    db: OpenDatabase,
    *,
    name: str,
    schema: str | None = None,
    layout: str = "2.x",
    column_map: Mapping[str, str] | None = None,
    column_sort: str = "bytes",
    sequence: str | None = None,
    has_internal_tables: bool = True,
) -> LogTable:
    """Return the log table with its columns and internal tables, whatever the session's rights.

    ``name`` may be ``schema.table``; otherwise the table is searched in ``schema``, which is by
    default the connection's current schema. The table is searched by its exact name first, then
    without regard to case. ``layout``, ``column_map`` and ``column_sort`` are as in
    ``find_columns``. ``sequence`` is the option ``record_id_sequence``. Without
    ``has_internal_tables`` the internal tables need not exist. Raises LogTableError that names the
    missing table, column or sequence, and ConfigError for an invalid name.
    """
    dialect, inspector = db.dialect, sa.inspect(db.connection)
    refuse_schema(dialect, schema)
    if (
        schema is None
        and "schemas" in dialect.capabilities
        and inspector.default_schema_name is not None
    ):
        schema = dialect.spelled(inspector.default_schema_name)
    schema, log_name = _find_table(db, inspector, schema, name)
    log = new_log(dialect, schema, log_name)
    try:
        columns = db.columns(schema, log_name)
        is_partitioned = db.is_partitioned(schema, log_name)
        transaction_column = db.transaction_column(schema, log_name)
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != INSUFFICIENT_PRIVILEGE:
            raise
        raise LogTableError(
            f"the columns of log table {log} cannot be read without "
            f"USAGE on schema {schema}: {error.orig}; "
            f"{right_advice(db.connection)}"
        ) from error
    try:
        fields = find_columns(
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
    log = replace(
        log,
        columns=fields,
        types=tuple(types[column] for column in fields),
        is_partitioned=is_partitioned,
        transaction_column=transaction_column,
    )
    if has_internal_tables:
        _refuse_without_internal_tables(db, log)
    if sequence is not None:
        log = replace(log, sequence=_find_sequence(dialect, inspector, log, sequence))
    return log


def _find_sequence(
    dialect: Dialect, inspector: sa.Inspector, log: LogTable, name: str
) -> tuple[str | None, str]:
    """Return the schema and name of the sequence that the configuration names for record_ids
    (spec/event-log.md 9.1).

    Raises LogTableError if the sequence does not exist, or if the column does not accept its
    numbers.
    """
    option = f"record_id_sequence = {name!r}"
    if "sequences" not in dialect.capabilities:
        raise LogTableError(f"{option}: {dialect.name} has no sequences; remove the option")
    own_schema, sequence = split_name(name)
    schema = log.schema if own_schema is None else own_schema
    record_id = log.column("record_id")
    for column in inspector.get_columns(log.name, log.schema):
        if dialect.spelled(column["name"]) == record_id and column.get("identity", {}).get(
            "always"
        ):
            raise LogTableError(
                f"{option}: the column {record_id} of the log {log} is GENERATED ALWAYS AS "
                "IDENTITY and accepts no other numbers; remove the option"
            )
    found = match_name(sequence, [*map(dialect.spelled, inspector.get_sequence_names(schema))])
    if found is None:
        raise LogTableError(
            f"{option}: there is no such sequence in schema {schema!r}; set it to the sequence "
            f"from which the triggers draw record_ids of the log {log}"
        )
    return schema, found


def _find_table(
    db: OpenDatabase, inspector: sa.Inspector, schema: str | None, name: str
) -> tuple[str | None, str]:
    """Return the schema and name of the log's table as the database has them. The function looks
    for ``name`` as a whole first, then as ``schema.table``. Raises NoLogTable.
    """
    if (found := _existing(inspector, schema, name)) is not None:
        return schema, found
    own_schema, table = split_name(name)
    dialect = db.dialect
    refuse_schema(dialect, own_schema)
    schema = schema if own_schema is None else own_schema
    if (found := _existing(inspector, schema, table)) is not None:
        return schema, found
    where = f" in schema {schema!r}" if "schemas" in dialect.capabilities else ""
    known = for_message(db.connection, inspector.get_schema_names) if where else None
    if known and schema is not None and schema not in known:
        near = nearest_name(schema, known)
        hint = f"; the nearest one is {near}" if near else ""
        raise NoSchema(
            f"there is no schema {schema!r}, where the log table {table!r} should be{hint}: "
            "correct schema_name or log_table"
        )
    raise NoLogTable(
        f"there is no log table {table!r}{where}: create it with `eventlog db upgrade`, or correct "
        "log_table or schema_name"
    )


def _refuse_without_internal_tables(db: OpenDatabase, log: LogTable) -> None:
    needed = (log.error_table, log.inflight_table, log.state_table, log.epoch_table)
    missing = db.missing_tables(log.schema, needed)
    for internal_table in needed:
        if internal_table in missing:
            place = internal_table if log.schema is None else f"{log.schema}.{internal_table}"
            raise NoInternalTable(
                f"the log {log} has no internal table {place}: create it with `eventlog db "
                "upgrade`, or with `eventlog db upgrade --existing-log` if another program made "
                "the log"
            )


def _existing(inspector: sa.Inspector, schema: str | None, name: str) -> str | None:
    if inspector.has_table(name, schema):
        return name
    return match_name(name, inspector.get_table_names(schema))


# --- the columns of a log -------------------------------------------------------------------------

ENTRY_COLUMNS: Final = ("entry_no", "owner", "kind", "started", "content")
"""The columns of ``<log>_inflight`` and ``<log>_state`` (``eventlog.sql.log.internal_tables``)."""

_CHARACTER: Final = (Kind.CHARACTER, Kind.FIXED)
_NEEDED: Final[Mapping[str, tuple[str, tuple[Kind, ...]]]] = {
    **dict.fromkeys(LOG_COLUMNS, ("character", _CHARACTER)),
    "record_id": ("integer", (Kind.INTEGER,)),
    "event_type": ("integer", (Kind.INTEGER,)),
    "event_time": ("date or timestamp", (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)),
}
_CALLED: Final[Mapping[Kind, str]] = {
    Kind.EXACT: "numeric that is not of scale 0",
    Kind.APPROXIMATE: "approximate numeric",
    Kind.FIXED: "character",
    Kind.TIMESTAMPTZ: "timestamp",
}


def find_columns(
    columns: Sequence[Column],
    *,
    layout: str = "2.x",
    column_map: Mapping[str, str] | None = None,
    column_sort: str = "bytes",
    numbered: bool = True,
    textual_time: bool = False,
) -> tuple[str, ...]:
    """Return the real names of the ten columns, in the order of ``LogRow``'s fields
    (spec/event-log.md 1.2 to 1.4).

    ``columns`` are in the table's order. Without ``numbered`` the database does not number its
    columns, so positions come from sorting the names: ``column_sort = bytes`` sorts by the UTF-8 of
    the names, ``collation`` keeps the given order. With ``textual_time`` event_time may be a
    character column, since the database has no date or time types. Raises ConfigError for an
    unknown option value, and LogTableError for a column that is missing or of the wrong type.
    """
    if layout not in LAYOUTS:
        raise ConfigError(f"layout {layout!r} is unknown: use one of {', '.join(LAYOUTS)}")
    if column_sort not in ("bytes", "collation"):
        raise ConfigError(f"column_sort {column_sort!r} is unknown: use bytes or collation")
    by_name = {column.name: column for column in columns}
    how = by_layout = ""
    if column_map:
        names, how = _mapped(column_map, by_name), " (column_map)"
    elif not (names := _standard(by_name)):
        if not numbered and column_sort == "bytes":
            columns = sorted(columns, key=lambda column: column.name.encode())
        names = _by_position(columns, layout)
        how = " at position {}"
        by_layout = f" (layout {layout})"
    for position, standard in enumerate(LAYOUTS[layout], 1):
        column = by_name[names[standard]]
        needed, kinds = _NEEDED[standard]
        if standard == "event_time" and textual_time:
            kinds = (*kinds, *_CHARACTER)
        if column.type.kind not in kinds:
            is_kind = _CALLED.get(column.type.kind, column.type.kind.value)
            if column.type.kind is Kind.OTHER and column.type.sql:
                is_kind = column.type.sql
            place = f'column "{column.name}"{how.format(position)}'
            raise LogTableError(
                f"{place} cannot be {standard}: {is_kind}, expected {needed}{by_layout}"
            )
    return tuple(names[standard] for standard in LOG_COLUMNS)


def _mapped(column_map: Mapping[str, str], by_name: Collection[str]) -> dict[str, str]:
    real_names = {standard.lower(): real for standard, real in column_map.items()}
    for name in real_names:
        if name not in LOG_COLUMNS:
            raise ConfigError(
                f"column_map names {name!r}, which is not a column of the log: "
                f"{', '.join(LOG_COLUMNS)}"
            )
    columns: dict[str, str] = {}
    for standard in LOG_COLUMNS:
        if standard not in real_names:
            raise LogTableError(f"column_map has no column for {standard}: it must name all ten")
        real = match_name(real_names[standard], by_name)
        if real is None:
            raise LogTableError(
                f'the log has no column "{real_names[standard]}", '
                f"which column_map names as {standard}"
            )
        if real in columns.values():
            raise LogTableError(f'column_map names column "{real}" twice')
        columns[standard] = real
    return columns


def _standard(by_name: Collection[str]) -> dict[str, str]:
    """Return the columns by their standard names; an empty result if a standard name is missing."""
    matches = {standard: match_name(standard, by_name) for standard in LOG_COLUMNS}
    names = {standard: real for standard, real in matches.items() if real is not None}
    return names if len(names) == len(LOG_COLUMNS) else {}


def _by_position(columns: Sequence[Column], layout: str) -> dict[str, str]:
    standard_names = LAYOUTS[layout]
    if len(columns) < len(standard_names):
        raise LogTableError(
            f"the log has {len(columns)} columns, but ten are needed: "
            f"{standard_names[len(columns)]} should be at position {len(columns) + 1} (layout "
            f"{layout})"
        )
    return {
        standard: column.name for standard, column in zip(standard_names, columns, strict=False)
    }
