"""Which columns of a table are the ten of a log, whatever they are called (spec/event-log.md 1.2 to 1.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from eventlog.core.catalog import Column, match_name
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError, LogTableError
from eventlog.model import LogRow

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
