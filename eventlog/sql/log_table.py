"""The log table: find its columns, read a window, mark, in-flight, errors (spec/event-log.md 1, 5, 8, 10).

What is here speaks SQL that every database understands; reading, marking and what else is hot is the dialect's.
No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.sql import quoted_name
from sqlalchemy.types import TypeEngine

from eventlog.catalog import Column, match_name
from eventlog.errors import ConfigError, LogTableError
from eventlog.model import LogRow
from eventlog.values import ColumnType, Kind

if TYPE_CHECKING:
    from eventlog.sql.dialect import Dialect

Ranges = Sequence[tuple[int, int]]
"""record_ids as [first, last] of consecutive integers that were all read."""

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


@dataclass(frozen=True, slots=True)
class LogTable:
    """A log table with its columns found. ``columns`` are the real names in the order of ``LogRow``'s fields.

    ``types`` are theirs, empty if not known. ``max_identifier`` (bytes) is the database's, for the companions' names;
    ``upper``: those end in upper case, since the database keeps names that are not quoted so.
    """

    schema: str | None
    name: str
    columns: tuple[str, ...]
    types: tuple[ColumnType, ...] = ()
    max_identifier: int = 63
    upper: bool = False

    def _companion(self, ending: str, max_bytes: int) -> str:
        return cut_name(self.name + (ending.upper() if self.upper else ending), max_bytes)

    @property
    def error_table(self) -> str:
        """``<log>_error`` (spec/event-log.md 10)."""
        return self._companion("_error", self.max_identifier)

    @property
    def inflight_table(self) -> str:
        """``<log>_inflight`` (spec/event-log.md 10)."""
        return self._companion("_inflight", self.max_identifier)

    @property
    def flight_sequence(self) -> str:
        """``<log>_flight``: what numbers flights and never restarts: a sequence, or a table (spec/event-log.md 10)."""
        return self._companion("_flight", self.max_identifier)

    @property
    def version_table(self) -> str:
        """``<log>_version``: which migrations this log has seen."""
        return self._companion("_version", self.max_identifier - 4)  # its key is called this and _pkc

    @property
    def resync_table(self) -> str:
        """``<log>_resync``: the positions of the resyncs that are not finished."""
        return self._companion("_resync", self.max_identifier)

    @property
    def own_tables(self) -> tuple[str, ...]:
        """The log and all that belongs to it: never a class."""
        return (
            self.name,
            self.error_table,
            self.inflight_table,
            self.flight_sequence,
            self.resync_table,
            self.version_table,
        )

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows N to read, in record_id order: ids ``first`` to ``last`` at most ``limit`` (None = no limit).

    ``leave_user``: rows of this perpetrator are left alone (``loopback_rows = leave``); None = none are.
    """

    first: int
    last: int | None
    limit: int | None
    leave_user: str | None = None


@dataclass(frozen=True, slots=True)
class DueWindow:
    """Which rows N to read by event_time, then record_id; NULL is the earliest time (``handle_future_events``).

    ``until``: event_time at most, as text of the log's clock; ``after``: event_time and record_id of the row before the
    window, None = from the first on; at most ``limit`` rows. ``leave_user`` as in ``Window``.
    """

    until: str
    after: tuple[str | None, int] | None
    limit: int
    leave_user: str | None = None


class Queue(NamedTuple):
    """How much waits: rows with status N, and the age in seconds of the oldest by event_time, None if there is none."""

    rows: int
    oldest_seconds: float | None


class RefusedRow(NamedTuple):
    """A row that ``requeue`` leaves alone, since it would bring an old value back."""

    record_id: int
    event_type: int
    table_name: str
    table_key: str


class Requeued(NamedTuple):
    """What ``requeue`` did: rows set back to N, rows logged anew as copies, rows refused."""

    set_back: int
    copied: int
    refused: tuple[RefusedRow, ...]


# Names


def cut_name(name: str, max_bytes: int) -> str:
    """The name; if it is too long for the database, cut and ended by ``_`` and 6 hex digits (spec/triggers.md 9)."""
    encoded = name.encode()
    if len(encoded) <= max_bytes:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:6]
    return encoded[: max_bytes - 7].decode(errors="ignore") + "_" + digest


def split_name(name: str) -> tuple[str | None, str]:
    """Schema and table of ``table``, ``schema.table`` or either part in double quotes (there ``""`` is one ``"``).

    Raises ConfigError for anything else.
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
    return ConfigError(f'log_table {name!r} is no table name: write table, schema.table or "Schema"."Table"')


# Columns


def find_columns(
    columns: Sequence[Column],
    *,
    layout: str = "2.x",
    column_map: Mapping[str, str] | None = None,
    column_sort: str = "bytes",
    numbered: bool = True,
    textual_time: bool = False,
) -> tuple[str, ...]:
    """The real names of the ten columns, in the order of ``LogRow``'s fields (spec/event-log.md 1.2 to 1.4).

    ``columns`` in the table's order. ``numbered = False``: the database does not number its columns, positions come
    from sorting the names: ``column_sort = bytes`` by their UTF-8, ``collation`` as they are given. ``textual_time``:
    event_time may be a character column, since the database has no types of time.
    Raises ConfigError for an unknown option value, LogTableError for a column that is missing or of the wrong type.
    """
    if layout not in LAYOUTS:
        raise ConfigError(f"layout {layout!r} is unknown: use one of {', '.join(LAYOUTS)}")
    if column_sort not in ("bytes", "collation"):
        raise ConfigError(f"column_sort {column_sort!r} is unknown: use bytes or collation")
    by_name = {column.name: column for column in columns}
    if column_map:
        found = {
            standard: (by_name[real], f'column "{real}" (column_map)')
            for standard, real in _mapped(column_map, by_name).items()
        }
    elif standard_names := _standard(by_name):
        found = {standard: (by_name[real], f'column "{real}"') for standard, real in standard_names.items()}
    else:
        if not numbered and column_sort == "bytes":
            columns = sorted(columns, key=lambda column: column.name.encode())
        found = _by_position(columns, layout)
    for standard in LAYOUTS[layout]:
        column, place = found[standard]
        needed, kinds = _NEEDED[standard]
        if standard == "event_time" and textual_time:
            kinds = (*kinds, *_CHARACTER)
        if column.type.kind not in kinds:
            is_kind = _CALLED.get(column.type.kind, column.type.kind.value)
            if column.type.kind is Kind.OTHER and column.type.sql:
                is_kind = column.type.sql
            by_layout = f" (layout {layout})" if "position" in place else ""
            raise LogTableError(f"{place} cannot be {standard}: {is_kind}, {needed} needed{by_layout}")
    return tuple(found[standard][0].name for standard in LogRow._fields)


def _mapped(column_map: Mapping[str, str], by_name: Iterable[str]) -> dict[str, str]:
    given = {standard.lower(): real for standard, real in column_map.items()}
    for name in given:
        if name not in LogRow._fields:
            raise ConfigError(f"column_map names {name!r}, which is no column of the log: {', '.join(LogRow._fields)}")
    found: dict[str, str] = {}
    for standard in LogRow._fields:
        if standard not in given:
            raise LogTableError(f"column_map has no column for {standard}: it must name all ten")
        real = match_name(given[standard], by_name)
        if real is None:
            raise LogTableError(f'the log has no column "{given[standard]}", which column_map names as {standard}')
        if real in found.values():
            raise LogTableError(f'column_map names column "{real}" twice')
        found[standard] = real
    return found


def _standard(by_name: Iterable[str]) -> dict[str, str] | None:
    found = {standard: match_name(standard, by_name) for standard in LogRow._fields}
    complete = {standard: real for standard, real in found.items() if real is not None}
    return complete if len(complete) == len(LogRow._fields) else None


def _by_position(columns: Sequence[Column], layout: str) -> dict[str, tuple[Column, str]]:
    standard_names = LAYOUTS[layout]
    if len(columns) < len(standard_names):
        raise LogTableError(
            f"the log has {len(columns)} columns, so none at position {len(columns) + 1} can be "
            f"{standard_names[len(columns)]} (layout {layout}); ten are needed"
        )
    return {
        standard: (column, f'column "{column.name}" at position {position}')
        for position, (standard, column) in enumerate(zip(standard_names, columns, strict=False), 1)
    }


def column_type(sql_type: TypeEngine[object]) -> ColumnType:
    """The class of a column as SQLAlchemy reflects it: as far as the log's ten columns need it."""
    if isinstance(sql_type, sa.Enum):
        return ColumnType(Kind.OTHER, 0, str(sql_type))
    base = getattr(sql_type, "data_type", None)  # a domain counts as its base type (spec/xds.md 6.2)
    if isinstance(base, TypeEngine):
        return column_type(base)
    sql = _spelling(sql_type)
    if isinstance(sql_type, sa.Integer):
        bits = {sa.SmallInteger: 16, sa.BigInteger: 64}
        return ColumnType(Kind.INTEGER, next((n for cls, n in bits.items() if isinstance(sql_type, cls)), 32), sql)
    for kind, classes in _KINDS:
        if isinstance(sql_type, classes):
            return ColumnType(kind, 0, sql)
    if isinstance(sql_type, sa.Numeric):
        scale_0 = sql_type.precision is not None and not sql_type.scale
        return ColumnType(Kind.INTEGER if scale_0 else Kind.EXACT, 0, sql)
    if isinstance(sql_type, sa.DateTime):
        return ColumnType(Kind.TIMESTAMPTZ if sql_type.timezone else Kind.TIMESTAMP, 0, sql)
    return ColumnType(Kind.OTHER, 0, sql)


_KINDS: Final[tuple[tuple[Kind, tuple[type[TypeEngine[Any]], ...]], ...]] = (
    (Kind.APPROXIMATE, (sa.Float,)),
    (Kind.BOOLEAN, (sa.Boolean,)),
    (Kind.FIXED, (sa.CHAR, sa.NCHAR)),
    (Kind.CHARACTER, (sa.String,)),
    (Kind.BINARY, (sa.LargeBinary,)),
    (Kind.DATE, (sa.Date,)),
    (Kind.TIME, (sa.Time,)),
    (Kind.UUID, (sa.Uuid,)),
)


def _spelling(sql_type: TypeEngine[object]) -> str:
    try:
        return str(sql_type).lower()
    except sa.exc.SQLAlchemyError:
        return type(sql_type).__name__.lower()


# Opening


def open_log(
    conn: Connection,
    dialect: Dialect,
    *,
    name: str,
    schema: str | None = None,
    layout: str = "2.x",
    column_map: Mapping[str, str] | None = None,
    column_sort: str = "bytes",
    delete: bool = False,
) -> LogTable:
    """The log table, with everything checked that the publisher needs of it (spec/event-log.md 1.3, 1.4, 10).

    ``name`` may be ``schema.table``; otherwise the table is looked for in ``schema``, by default the connection's
    current one; exactly, then without case. ``delete``: rows are going to be deleted (``delete_from_log``).
    Raises LogTableError that names the table, column or right that is missing.
    """
    log = locate_log(
        conn, dialect, name=name, schema=schema, layout=layout, column_map=column_map, column_sort=column_sort
    )
    check_rights(conn, dialect, log, delete=delete)
    return log


def check_rights(conn: Connection, dialect: Dialect, log: LogTable, *, delete: bool = False) -> None:
    """Raise LogTableError that names the rights which this session lacks to publish the log."""
    if missing := dialect.missing_rights(conn, log, delete):
        raise LogTableError(
            f"user {dialect.current_user(conn)} lacks rights on the log {log}: {'; '.join(missing)}; "
            "have its owner grant them"
        )


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
    """The log table as ``open_log`` finds and checks it, whatever this session may do with it."""
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
        if not inspector.has_table(_name(companion), schema):
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


# Rows


def to_ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending record_ids as ranges of consecutive integers."""
    ranges: list[tuple[int, int]] = []
    iterator = iter(ids)
    for first in iterator:
        last = first
        for record_id in iterator:
            if record_id != last + 1:
                ranges.append((first, last))
                first = record_id
            last = record_id
        ranges.append((first, last))
    return ranges


@lru_cache(maxsize=32)
def _log(log: LogTable) -> sa.TableClause:
    return sa.table(_name(log.name), *(sa.column(_name(column)) for column in log.columns), schema=_schema(log))


def _field(log: LogTable, field: str) -> sa.ColumnElement[Any]:
    return _log(log).c[log.columns[LogRow._fields.index(field)]]


def _name(name: str) -> quoted_name:
    return quoted_name(name, quote=True)


def _schema(log: LogTable) -> quoted_name | None:
    return None if log.schema is None else _name(log.schema)


def tail(conn: Connection, log: LogTable) -> int | None:
    """The highest record_id with status N, or None if there is none."""
    record_id = _field(log, "record_id")
    statement = (
        sa.select(record_id)
        .where(_field(log, "status") == sa.literal_column("'N'"), record_id > 0)
        .order_by(record_id.desc())
        .limit(1)
    )
    found = conn.execute(statement).scalar()
    return None if found is None else int(found)


def count_by_status(conn: Connection, log: LogTable) -> dict[str, int]:
    """The number of rows of each status letter, blanks at its end taken off. Reads the whole log."""
    status = _field(log, "status")
    counts: Counter[str] = Counter()
    for letter, number in conn.execute(sa.select(status, sa.func.count()).group_by(status)):
        counts[str(letter).rstrip(" ")] += number
    return dict(counts)


def requeue(
    conn: Connection, log: LogTable, statuses: Iterable[str], ids: Ranges | None = None, *, force: bool = False
) -> Requeued:
    """Queue rows that are done once more (spec/event-log.md 11).

    E and F go back to N in their old place; W and S are logged anew as copies with new record_ids, since their
    event-ids were applied. Rows of types 1 to 3 whose object (as table_name and table_key spell it) has a later row S
    or W are refused, unless ``force``. ``ids`` None = all. Raises ConfigError for a status that cannot be requeued.
    """
    letters = set(statuses)
    if unknown := letters - set("EFWS"):
        raise ConfigError(f"status {min(unknown)!r} cannot be requeued: only E, F, W and S can")
    status, record_id = _field(log, "status"), _field(log, "record_id")
    chosen = [status.in_(sorted(letters)), record_id > 0]
    if ids is not None:
        chosen.append(sa.or_(sa.false(), *(record_id.between(first, last) for first, last in ids)))
    refused: tuple[RefusedRow, ...] = ()
    if not force:
        stale = _stale(log, chosen)
        rows = conn.execute(stale.order_by(stale.selected_columns[0]))
        refused = tuple(RefusedRow(int(row[0]), int(row[1]), str(row[2]), str(row[3])) for row in rows)
        if refused:
            chosen.append(record_id.not_in(stale.with_only_columns(stale.selected_columns[0])))
    # The copies first: a row that goes back to N must not be taken for one that is to be copied.
    copied_fields = [column for column in _log(log).c if column not in (record_id, status)]
    copies = (
        sa.select(sa.literal_column("'N'"), *copied_fields).where(*chosen, status.in_(["S", "W"])).order_by(record_id)
    )
    copied = 0
    if letters & {"S", "W"}:  # else the right to INSERT is not needed
        inserted = conn.execute(
            sa.insert(_log(log)).from_select([status, *copied_fields], copies),
            execution_options={"preserve_rowcount": True},
        )
        copied = inserted.rowcount
    updated = conn.execute(sa.update(_log(log)).where(*chosen, status.in_(["E", "F"])).values({status: "N"}))
    return Requeued(set_back=updated.rowcount, copied=copied, refused=refused)


def _stale(log: LogTable, chosen: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    """Of the chosen rows those of types 1 to 3 whose object has a later row S or W: what ``RefusedRow`` tells of it."""
    record_id, event_type, table_name, table_key = (_field(log, field) for field in RefusedRow._fields)
    done_id = sa.case((_field(log, "status").in_(["S", "W"]), record_id))
    # By a window, which reads and sorts the log once. A join of the log with itself is planned by statistics, and those
    # of a log may say that it is empty.
    rows = sa.select(
        record_id.label("record_id"),
        event_type.label("event_type"),
        table_name.label("table_name"),
        table_key.label("table_key"),
        sa.and_(*chosen).label("is_chosen"),
        sa.func.max(done_id).over(partition_by=[table_name, table_key]).label("last_done"),
    ).subquery("rows")
    return sa.select(*(rows.c[field] for field in RefusedRow._fields)).where(
        rows.c.is_chosen,
        rows.c.event_type.in_([1, 2, 3]),
        rows.c.last_done > rows.c.record_id,
        rows.c.table_name.is_not(None),
        rows.c.table_key.is_not(None),
    )
