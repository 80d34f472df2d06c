"""PostgreSQL's types as column types (spec/xds.md 6.2)."""

from __future__ import annotations

from typing import Final

from eventlog.core.values import ColumnType, Kind

_KINDS: Final = {
    "int2": (Kind.INTEGER, 16),
    "int4": (Kind.INTEGER, 32),
    "int8": (Kind.INTEGER, 64),
    "numeric": (Kind.EXACT, 0),
    "float4": (Kind.APPROXIMATE, 32),
    "float8": (Kind.APPROXIMATE, 64),
    "bool": (Kind.BOOLEAN, 0),
    "bpchar": (Kind.FIXED, 0),
    "varchar": (Kind.CHARACTER, 0),
    "text": (Kind.CHARACTER, 0),
    "bytea": (Kind.BINARY, 0),
    "date": (Kind.DATE, 0),
    "time": (Kind.TIME, 0),
    "timestamp": (Kind.TIMESTAMP, 0),
    "timestamptz": (Kind.TIMESTAMPTZ, 0),
    "uuid": (Kind.UUID, 0),
}

_HEADER: Final = 4  # VARHDRSZ, which numeric's typmod has on top


def column_type(type_name: str | None, typmod: int, sql: str) -> ColumnType:
    """The column type of a base type (spec/xds.md 6.2, column PostgreSQL).

    ``type_name`` is ``pg_type.typname`` of a type of ``pg_catalog``, None for any other type; ``typmod`` as in
    ``pg_attribute.atttypmod``, -1 for none; ``sql`` the text of ``format_type``. Domains are to be resolved before.
    """
    kind, bits = _KINDS.get(type_name or "", (Kind.OTHER, 0))
    if kind is Kind.EXACT and typmod >= _HEADER and _scale(typmod) == 0:
        kind = Kind.INTEGER
    return ColumnType(kind, bits, sql)


def _scale(typmod: int) -> int:
    # Eleven bits, signed: scales from -1000 on are possible since PostgreSQL 15.
    return (((typmod - _HEADER) & 0x7FF) ^ 0x400) - 0x400
