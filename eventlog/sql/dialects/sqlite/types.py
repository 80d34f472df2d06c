"""SQLite's declared types as column types (spec/xds.md 6.2)."""

from __future__ import annotations

import re
from typing import Final

from eventlog.core.values import ColumnType, Kind

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

_WHOLE: Final = re.compile(r"\b(?:DECIMAL|NUMERIC)\s*\(\s*[0-9]+\s*(?:,\s*[+-]?0+\s*)?\)")
"""A scale of 0, or a precision alone."""


def column_type(declared: str) -> ColumnType:
    """The column type of a declared type, such as ``VARCHAR(40)``; none at all is binary, the rest exact.

    DECIMAL and NUMERIC of scale 0 or with a precision alone are integers without a range.
    """
    upper = declared.upper()
    if not upper.strip():
        return ColumnType(Kind.BINARY, 0, "")
    for words, kind, bits in _RULES:
        if any(word in upper for word in words):
            return ColumnType(kind, bits, declared)
    if _WHOLE.search(upper):
        return ColumnType(Kind.INTEGER, 0, declared)
    return ColumnType(Kind.EXACT, 0, declared)
