"""SQLite's declared types as column types (spec/xds.md 6.2)."""

from __future__ import annotations

from typing import Final

from eventlog.values import ColumnType, Kind

_RULES: Final = (
    (("BOOL",), Kind.BOOLEAN, 0),
    (("DATETIME", "TIMESTAMP"), Kind.TIMESTAMP, 0),
    (("DATE",), Kind.DATE, 0),
    (("TIME",), Kind.TIME, 0),
    (("INT",), Kind.INTEGER, 64),
    (("CHAR", "CLOB", "TEXT"), Kind.CHARACTER, 0),
    (("BLOB",), Kind.BINARY, 0),
    (("REAL", "FLOA", "DOUB"), Kind.APPROXIMATE, 64),
)


def column_type(declared: str) -> ColumnType:
    """The column type of a declared type, such as ``VARCHAR(40)``; none at all is binary, the rest exact."""
    upper = declared.upper()
    if not upper.strip():
        return ColumnType(Kind.BINARY, 0, "")
    for words, kind, bits in _RULES:
        if any(word in upper for word in words):
            return ColumnType(kind, bits, declared)
    return ColumnType(Kind.EXACT, 0, declared)
