"""A log and its companions: by name, as a new log has them, or an existing log, found and checked.

See spec/event-log.md 1.1, 1.2, 1.4, 10 and spec/triggers.md 9.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.sql import quoted_name
from sqlalchemy.types import TypeEngine

from eventlog.core.catalog import Column, match_name
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError, LogTableError, NoLogTable
from eventlog.model import LogRow

if TYPE_CHECKING:
    from eventlog.sql.dialect import Dialect

INSUFFICIENT_PRIVILEGE: Final = "42501"
"""The SQLSTATE of a missing right."""


@dataclass(frozen=True, slots=True)
class LogTable:
    """A log table with its columns found."""

    schema: str | None
    name: str
    columns: tuple[str, ...]
    """The real names in the order of ``LogRow``'s fields."""
    types: tuple[ColumnType, ...] = ()
    """The types of the columns, empty if unknown."""
    max_identifier: int = 63
    """The most bytes of a name in the database, for the companions' names."""
    upper: bool = False
    """True if companions' names end in upper case, since the database keeps unquoted names so."""
    sequence: tuple[str | None, str] | None = None
    """The schema and name of the sequence that the triggers of somebody else draw record_ids from,
    None = the column numbers itself, or nobody knows.
    """

    def column(self, field: str) -> str:
        """Return the real name of the column that holds a field of ``LogRow``."""
        return self.columns[LogRow._fields.index(field)]

    def type_of(self, field: str) -> ColumnType | None:
        """Return the type of the column that holds a field of ``LogRow``, None if it is unknown."""
        return self.types[LogRow._fields.index(field)] if self.types else None

    @property
    def has_zoned_time(self) -> bool:
        """True if event_time has a zone, so that it holds the moment itself."""
        column_type = self.type_of("event_time")
        return column_type is not None and column_type.kind is Kind.TIMESTAMPTZ

    def own_name(self, pattern: str) -> str:
        """Return the name of an object of the log, made from a pattern such as ``proc_{}_quote``
        (spec/triggers.md 9).
        """
        return named_after(pattern, self.name, self.max_identifier, upper=self.upper)

    def _companion(self, ending: str, max_bytes: int) -> str:
        return cut_name(self.name + (ending.upper() if self.upper else ending), max_bytes)

    @property
    def error_table(self) -> str:
        """The name ``<log>_error`` (spec/event-log.md 10)."""
        return self._companion("_error", self.max_identifier)

    @property
    def inflight_table(self) -> str:
        """The name ``<log>_inflight`` (spec/event-log.md 10)."""
        return self._companion("_inflight", self.max_identifier)

    @property
    def state_table(self) -> str:
        """The name ``<log>_state`` (spec/event-log.md 10)."""
        return self._companion("_state", self.max_identifier)

    @property
    def flight_sequence(self) -> str:
        """The name ``<log>_flight`` of the sequence, or table, that numbers flights and never
        restarts (spec/event-log.md 10).
        """
        return self._companion("_flight", self.max_identifier)

    @property
    def version_table(self) -> str:
        """The name ``<log>_version`` of the table with the revisions that the log has reached."""
        # Its key has this name and _pkc.
        return self._companion("_version", self.max_identifier - 4)

    @property
    def resync_table(self) -> str:
        """The name ``<log>_resync`` of the table with the positions of unfinished resyncs."""
        return self._companion("_resync", self.max_identifier)

    @property
    def epoch_table(self) -> str:
        """The name ``<log>_epoch`` of the table with the log's epoch, one line (spec/event-log.md
        7.4, 10).
        """
        return self._companion("_epoch", self.max_identifier)

    @property
    def consumer_table(self) -> str:
        """The name ``<log>_consumer`` of the table with the log's consumers, one line each
        (spec/event-log.md 10, 13).
        """
        return self._companion("_consumer", self.max_identifier)

    @property
    def captured_table(self) -> str:
        """The name ``<log>_captured`` of the table with what `triggers apply` has captured, one
        line for each table (spec/event-log.md 10).
        """
        return self._companion("_captured", self.max_identifier)

    @property
    def own_tables(self) -> tuple[str, ...]:
        """The log and all tables that belong to it: they are never classes."""
        return (
            self.name,
            self.error_table,
            self.inflight_table,
            self.state_table,
            self.flight_sequence,
            self.resync_table,
            self.epoch_table,
            self.consumer_table,
            self.captured_table,
            self.version_table,
        )

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


QUEUE_INDEX: Final = "idx_{}_5"
"""The name of the queue's index if it is on an expression (``LogTable.own_name``)."""


def new_log(dialect: Dialect, schema: str | None, name: str) -> LogTable:
    """Return a log as `eventlog db upgrade` makes it: the standard columns, names as the database
    spells them.
    """
    return LogTable(
        None if schema is None else dialect.spelled(schema),
        dialect.spelled(name),
        tuple(map(dialect.spelled, LogRow._fields)),
        max_identifier=dialect.max_identifier,
        upper=dialect.spelled("log") == "LOG",
    )


def refuse_schema(dialect: Dialect, schema: str | None) -> None:
    """Raise ConfigError if a schema is named in a database without schemas."""
    if schema is not None and "schemas" not in dialect.capabilities:
        raise ConfigError(
            f"{dialect.name} has no schemas: take {schema!r} out of log_table or schema_name"
        )


# --- names ----------------------------------------------------------------------------------------


def cut_name(name: str, max_bytes: int) -> str:
    """Return the name. If it is too long for the database, it is cut and ends in ``_`` and 6 hex
    digits (spec/triggers.md 9).
    """
    encoded = name.encode()
    if len(encoded) <= max_bytes:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:6]
    return encoded[: max_bytes - 7].decode(errors="ignore") + "_" + digest


def named_after(pattern: str, name: str, max_bytes: int, *, upper: bool) -> str:
    """Return our name from ``pattern`` and the name of a table, cut to its length (spec/triggers.md
    9).

    With ``upper`` it is in upper case if the table's name is, since the database keeps unquoted
    names so.
    """
    whole = pattern.format(name)
    return cut_name(whole.upper() if upper and name == name.upper() else whole, max_bytes)


def storable(text: str) -> str:
    """Return a text for people without NUL, which no text column accepts, and lone surrogates,
    which no encoding accepts.
    """
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def split_name(name: str) -> tuple[str | None, str]:
    """Split ``table``, ``schema.table`` or either part in double quotes (there ``""`` is one ``"``)
    into schema and table.

    Raises ConfigError for any other text.
    """
    parts: list[str] = []
    rest = name.strip()
    while True:
        part, rest = _first_part(rest, name)
        parts.append(part)
        if not rest:
            break
        if not rest.startswith(".") or len(parts) == 2:
            raise _bad_name(name)
        rest = rest[1:]
    return (None, parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def _first_part(text: str, name: str) -> tuple[str, str]:
    if text.startswith('"'):
        end = 1
        while (end := text.find('"', end)) >= 0 and text[end + 1 : end + 2] == '"':
            end += 2
        part, rest = text[1:end].replace('""', '"'), text[end + 1 :]
        if end < 0:
            raise _bad_name(name)
    else:
        part, dot, rest = text.partition(".")
        rest = dot + rest
    if not part or "\0" in part:
        raise _bad_name(name)
    return part, rest


def _bad_name(name: str) -> ConfigError:
    return ConfigError(
        f'log_table {name!r} is not a table name: write table, schema.table or "Schema"."Table"'
    )


def quoted(name: str) -> quoted_name:
    """Return a name that SQLAlchemy quotes and never folds (spec/triggers.md 9)."""
    return quoted_name(name, quote=True)


def schema_of(log: LogTable) -> quoted_name | None:
    """Return the schema of a log's tables for SQLAlchemy, None = the session's current one."""
    return None if log.schema is None else quoted(log.schema)


# --- an existing log ------------------------------------------------------------------------------


def locate_log(
    conn: Connection,
    dialect: Dialect,
    *,
    name: str,
    schema: str | None = None,
    layout: str = "2.x",
    column_map: Mapping[str, str] | None = None,
    column_sort: str = "bytes",
    sequence: str | None = None,
    has_companions: bool = True,
) -> LogTable:
    """Return the log table with its columns and companions, whatever this session's rights on it.

    ``name`` may be ``schema.table``; otherwise the table is searched in ``schema``, by default the
    connection's current one: exactly, then without case. ``layout``, ``column_map`` and
    ``column_sort`` are as in ``find_columns``. ``sequence`` is the option ``record_id_sequence``.
    Without ``has_companions`` the companions need not be there.
    Raises LogTableError that names the missing table, column or sequence, ConfigError for an
    invalid name.
    """
    inspector = sa.inspect(conn)
    refuse_schema(dialect, schema)
    if (
        schema is None
        and "schemas" in dialect.capabilities
        and inspector.default_schema_name is not None
    ):
        schema = dialect.spelled(inspector.default_schema_name)
    schema, log_name = _find_table(dialect, inspector, schema, name)
    log = new_log(dialect, schema, log_name)
    try:
        columns = _columns(conn, dialect, inspector, schema, log_name)
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != INSUFFICIENT_PRIVILEGE:
            raise
        raise LogTableError(
            f"the columns of log table {log} cannot be read: {error.orig}; "
            f"have its owner grant this user USAGE on schema {schema}"
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
    log = replace(log, columns=fields, types=tuple(types[column] for column in fields))
    if has_companions:
        _refuse_without_companions(inspector, schema, log)
    if sequence is not None:
        log = replace(log, sequence=_find_sequence(dialect, inspector, log, sequence))
    return log


def _find_sequence(
    dialect: Dialect, inspector: sa.Inspector, log: LogTable, name: str
) -> tuple[str | None, str]:
    """Return the schema and name of the sequence of record_ids that the configuration names
    (spec/event-log.md 9.1).

    Raises LogTableError if there is none, or if the column does not take its numbers.
    """
    option = f"record_id_sequence = {name!r}"
    if "sequences" not in dialect.capabilities:
        raise LogTableError(f"{option}: {dialect.name} has no sequences; take the option out")
    own_schema, sequence = split_name(name)
    schema = log.schema if own_schema is None else own_schema
    record_id = log.column("record_id")
    for column in inspector.get_columns(log.name, log.schema):
        if dialect.spelled(column["name"]) == record_id and column.get("identity", {}).get(
            "always"
        ):
            raise LogTableError(
                f"{option}: the column {record_id} of the log {log} numbers itself (GENERATED "
                "ALWAYS AS IDENTITY), and takes no other numbers; take the option out"
            )
    found = match_name(sequence, [*map(dialect.spelled, inspector.get_sequence_names(schema))])
    if found is None:
        raise LogTableError(
            f"{option}: there is no such sequence in schema {schema!r}; name the one that the "
            f"triggers draw record_ids of the log {log} from"
        )
    return schema, found


def _find_table(
    dialect: Dialect, inspector: sa.Inspector, schema: str | None, name: str
) -> tuple[str | None, str]:
    """Return the schema and name of the log's table as the database has them: ``name`` as a whole,
    else as ``schema.table``. Raises NoLogTable.
    """
    if (found := _existing(inspector, schema, name)) is not None:
        return schema, found
    own_schema, table = split_name(name)
    refuse_schema(dialect, own_schema)
    schema = schema if own_schema is None else own_schema
    if (found := _existing(inspector, schema, table)) is not None:
        return schema, found
    where = f" in schema {schema!r}" if "schemas" in dialect.capabilities else ""
    raise NoLogTable(
        f"there is no log table {table!r}{where}: make it with `eventlog db upgrade`, or correct "
        "log_table or schema_name"
    )


def _refuse_without_companions(inspector: sa.Inspector, schema: str | None, log: LogTable) -> None:
    for companion in (log.error_table, log.inflight_table, log.state_table, log.epoch_table):
        if not inspector.has_table(quoted(companion), schema):
            place = companion if schema is None else f"{schema}.{companion}"
            raise LogTableError(
                f"the log {log} has no companion table {place}: make it with `eventlog db "
                "upgrade`, or with `eventlog db upgrade --companions-only` if "
                "somebody else made the log"
            )


def _columns(
    conn: Connection, dialect: Dialect, inspector: sa.Inspector, schema: str | None, name: str
) -> list[Column]:
    """Return the columns of the log in its order."""
    if "time_types" in dialect.capabilities:
        reflected = inspector.get_columns(name, schema)
        return [
            Column(dialect.spelled(column["name"]), _column_type(column["type"]))
            for column in reflected
        ]
    # The declared type decides, and SQLAlchemy keeps only the types that it knows
    # (spec/event-log.md 1.4).
    tables = dialect.reflect(conn, schema).tables
    return [column for table in tables if table.name == name for column in table.columns]


def _existing(inspector: sa.Inspector, schema: str | None, name: str) -> str | None:
    if inspector.has_table(name, schema):
        return name
    return match_name(name, inspector.get_table_names(schema))


# --- the columns of a log -------------------------------------------------------------------------

ENTRY_COLUMNS: Final = ("entry_no", "owner", "kind", "started", "content")
"""The columns of ``<log>_inflight`` and ``<log>_state`` (``eventlog.sql.internal_tables``)."""

LAYOUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "2.x": LogRow._fields,
    "3.5": (
        "record_id",
        "table_key",
        "status",
        "event_type",
        "event_time",
        "perpetrator",
        "table_name",
        "column_name",
        "old_value",
        "new_value",
    ),
}
"""The standard names by position (spec/event-log.md 1.2)."""

_CHARACTER: Final = (Kind.CHARACTER, Kind.FIXED)
_NEEDED: Final[Mapping[str, tuple[str, tuple[Kind, ...]]]] = {
    **dict.fromkeys(LogRow._fields, ("character", _CHARACTER)),
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

    ``columns`` are in the table's order. ``numbered = False`` says that the database does not
    number its columns, so that positions come from sorting the names: with ``column_sort = bytes``
    by their UTF-8, with ``collation`` as they are given. With ``textual_time`` event_time may be a
    character column, since the database has no types of time. Raises ConfigError for an unknown
    option value, LogTableError for a column that is missing or of the wrong type.
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
                f"{place} cannot be {standard}: {is_kind}, {needed} needed{by_layout}"
            )
    return tuple(names[standard] for standard in LogRow._fields)


def _mapped(column_map: Mapping[str, str], by_name: Collection[str]) -> dict[str, str]:
    real_names = {standard.lower(): real for standard, real in column_map.items()}
    for name in real_names:
        if name not in LogRow._fields:
            raise ConfigError(
                f"column_map names {name!r}, which is not a column of the log: "
                f"{', '.join(LogRow._fields)}"
            )
    columns: dict[str, str] = {}
    for standard in LogRow._fields:
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
    """Return the columns by their standard names, none unless all exist."""
    matches = {standard: match_name(standard, by_name) for standard in LogRow._fields}
    names = {standard: real for standard, real in matches.items() if real is not None}
    return names if len(names) == len(LogRow._fields) else {}


def _by_position(columns: Sequence[Column], layout: str) -> dict[str, str]:
    standard_names = LAYOUTS[layout]
    if len(columns) < len(standard_names):
        raise LogTableError(
            f"the log has {len(columns)} columns, so none at position {len(columns) + 1} can be "
            f"{standard_names[len(columns)]} (layout {layout}); ten are needed"
        )
    return {
        standard: column.name for standard, column in zip(standard_names, columns, strict=False)
    }


def _column_type(sql_type: TypeEngine[object]) -> ColumnType:
    """Return the class of a reflected column, as far as the log's ten columns need it."""
    # A domain counts as its base type (spec/xds.md 6.2).
    base = getattr(sql_type, "data_type", None)
    if isinstance(base, TypeEngine):
        return _column_type(base)
    try:
        sql = str(sql_type).lower()
    except sa.exc.SQLAlchemyError:
        sql = type(sql_type).__name__.lower()
    bits = 0
    if isinstance(sql_type, sa.Integer):
        bits = (
            16
            if isinstance(sql_type, sa.SmallInteger)
            else 64
            if isinstance(sql_type, sa.BigInteger)
            else 32
        )
    return ColumnType(_kind(sql_type), bits, sql)


def _kind(sql_type: TypeEngine[object]) -> Kind:
    if isinstance(sql_type, sa.DateTime):
        return Kind.TIMESTAMPTZ if sql_type.timezone else Kind.TIMESTAMP
    if isinstance(sql_type, sa.Numeric) and not isinstance(sql_type, sa.Float):
        return Kind.INTEGER if sql_type.precision is not None and not sql_type.scale else Kind.EXACT
    return next((kind for kind, classes in _KINDS if isinstance(sql_type, classes)), Kind.OTHER)


_KINDS: Final[tuple[tuple[Kind, tuple[type[TypeEngine[Any]], ...]], ...]] = (
    (Kind.OTHER, (sa.Enum,)),  # a String for SQLAlchemy
    (Kind.INTEGER, (sa.Integer,)),
    (Kind.APPROXIMATE, (sa.Float,)),
    (Kind.BOOLEAN, (sa.Boolean,)),
    (Kind.FIXED, (sa.CHAR, sa.NCHAR)),
    (Kind.CHARACTER, (sa.String,)),
    (Kind.BINARY, (sa.LargeBinary,)),
    (Kind.DATE, (sa.Date,)),
    (Kind.TIME, (sa.Time,)),
    (Kind.UUID, (sa.Uuid,)),
)
