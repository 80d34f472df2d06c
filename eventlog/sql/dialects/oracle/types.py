"""Oracle's types as column types (spec/xds.md 6.2), and what a trigger can do with each (spec/triggers.md 6.1)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from eventlog.core.catalog import Column
from eventlog.core.values import ColumnType, Kind

_KINDS: Final = {
    "FLOAT": (Kind.EXACT, 0),  # REAL and DOUBLE PRECISION too: a NUMBER of so many binary digits
    "BINARY_FLOAT": (Kind.APPROXIMATE, 32),
    "BINARY_DOUBLE": (Kind.APPROXIMATE, 64),
    "BOOLEAN": (Kind.BOOLEAN, 0),
    "CHAR": (Kind.FIXED, 0),
    "NCHAR": (Kind.FIXED, 0),
    "VARCHAR2": (Kind.CHARACTER, 0),
    "NVARCHAR2": (Kind.CHARACTER, 0),
    "CLOB": (Kind.CHARACTER, 0),
    "NCLOB": (Kind.CHARACTER, 0),
    "LONG": (Kind.CHARACTER, 0),
    "RAW": (Kind.BINARY, 0),
    "BLOB": (Kind.BINARY, 0),
    "BFILE": (Kind.BINARY, 0),
    "LONG RAW": (Kind.BINARY, 0),
    "DATE": (Kind.TIMESTAMP, 0),
    "ROWID": (Kind.OTHER, 0),
    "UROWID": (Kind.OTHER, 0),
    "XMLTYPE": (Kind.OTHER, 0),
    "JSON": (Kind.OTHER, 0),
}
_SIZED: Final = frozenset({"CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2", "RAW", "UROWID"})


def column_type(data_type: str, length: int, precision: int | None, scale: int | None) -> ColumnType | None:
    """The column type of a row of ``ALL_TAB_COLS``; None for a type that has no text form, such as an object type.

    ``length`` in bytes, of national texts in those of UTF-16; it stands in ``ColumnType.sql`` of what has one, whatever
    the unit it was declared in.
    """
    if data_type == "NUMBER":
        return _number(precision, scale)
    if data_type.startswith("TIMESTAMP"):
        return ColumnType(Kind.TIMESTAMPTZ if data_type.endswith("TIME ZONE") else Kind.TIMESTAMP, 0, data_type)
    if data_type.startswith("INTERVAL"):
        return ColumnType(Kind.OTHER, 0, data_type)
    if data_type not in _KINDS:
        return None
    kind, bits = _KINDS[data_type]
    return ColumnType(kind, bits, f"{data_type}({length})" if data_type in _SIZED else data_type)


def _number(precision: int | None, scale: int | None) -> ColumnType:
    if scale is None:
        return ColumnType(Kind.EXACT, 0, "NUMBER")
    return ColumnType(Kind.INTEGER if scale == 0 else Kind.EXACT, 0, f"NUMBER({precision or '*'},{scale})")


class Family(StrEnum):
    """The type by which PL/SQL takes the values of a column: its parameters name it without a size."""

    NUMBER = "NUMBER"
    FLOAT = "BINARY_FLOAT"
    DOUBLE = "BINARY_DOUBLE"
    TEXT = "VARCHAR2"
    NATIONAL = "NVARCHAR2"
    RAW = "RAW"
    BOOLEAN = "BOOLEAN"
    # The unconstrained subtypes: the plain names would keep six digits of the seconds.
    MOMENT = "TIMESTAMP_UNCONSTRAINED"
    ZONED = "TIMESTAMP_TZ_UNCONSTRAINED"
    MONTHS = "YMINTERVAL_UNCONSTRAINED"
    SECONDS = "DSINTERVAL_UNCONSTRAINED"
    CLOB = "CLOB"
    NCLOB = "NCLOB"
    UNREADABLE = "unreadable"
    """LONG, LONG RAW, BLOB and the like: a trigger can only ask whether an UPDATE names them."""


_BY_WORD: Final = {
    "BINARY_FLOAT": Family.FLOAT,
    "BINARY_DOUBLE": Family.DOUBLE,
    "NCHAR": Family.NATIONAL,
    "NVARCHAR2": Family.NATIONAL,
    "CLOB": Family.CLOB,
    "TEXT": Family.CLOB,
    "NCLOB": Family.NCLOB,
    "LONG": Family.UNREADABLE,
    "BLOB": Family.UNREADABLE,
    "BFILE": Family.UNREADABLE,
    "XMLTYPE": Family.UNREADABLE,
    "JSON": Family.UNREADABLE,
}
_BY_KIND: Final = {
    Kind.INTEGER: Family.NUMBER,
    Kind.EXACT: Family.NUMBER,
    Kind.APPROXIMATE: Family.NUMBER,
    Kind.BOOLEAN: Family.BOOLEAN,
    Kind.BINARY: Family.RAW,
    Kind.DATE: Family.MOMENT,
    Kind.TIMESTAMP: Family.MOMENT,
    Kind.TIMESTAMPTZ: Family.ZONED,
}


def family(column: Column) -> Family:
    """The family of a column, of Oracle's own types and of the generic ones of a catalogue file (spec/xds.md 9)."""
    sql = column.type.sql.upper()
    word = re.split(r"[ (]", sql, maxsplit=1)[0]
    if word == "INTERVAL":
        return Family.MONTHS if " YEAR" in sql else Family.SECONDS
    return _BY_WORD.get(word) or _BY_KIND.get(column.type.kind, Family.TEXT)


def length(column: Column) -> int:
    """The greatest length of a value in bytes as it was declared, 0 if there is none."""
    size = re.search(r"\((\d+)", column.type.sql)
    return int(size[1]) if size else 0


_MAX_RAW: Final = 24_000  # bytes whose base64 is not longer than the longest VARCHAR2 of PL/SQL


def is_loggable(column: Column, lob_values: bool) -> bool:
    """Whether the value itself is logged in styles field and remove_all (spec/triggers.md 6.1)."""
    match family(column):
        case Family.UNREADABLE:
            return False
        case Family.CLOB | Family.NCLOB:
            return lob_values
        case Family.RAW:
            return length(column) <= _MAX_RAW
        case _:
            return True


def is_locator(column: Column) -> bool:
    """Whether a trigger gets a locator of a large object, which is valid for its row only."""
    return family(column) in (Family.CLOB, Family.NCLOB)


def text_bytes(column: Column) -> int | None:
    """Bytes of the longest log text that a value can have; None where the type does not tell."""
    match family(column):
        case Family.CLOB | Family.NCLOB | Family.UNREADABLE:
            return None
        case Family.RAW:
            return (length(column) + 2) // 3 * 4 or None  # base64
        case Family.NATIONAL:
            return length(column) * 3 // 2 or None  # UTF-16 to UTF-8
        case Family.TEXT if column.type.sql.upper() == "ROWID":
            return _SHORT_TEXT
        case Family.TEXT if column.type.sql == column.type.sql.lower():
            return length(column) * 4 or None  # of a catalogue file (spec/xds.md 9): characters
        case Family.TEXT:
            return length(column) or None
        case _:
            return _SHORT_TEXT


def national_length(column: Column) -> int:
    """Characters of a national text as it was declared; the most that NCHAR has anywhere if it was not."""
    return length(column) // 2 or _MAX_NCHAR


_MAX_NCHAR: Final = 666
"""2000 bytes of three a character, as national texts have in the character set UTF8."""

_SHORT_TEXT: Final = 70
"""Bytes that hold every number (TM9 has 64 characters at most, and a key's begins with 0), moment, interval, ROWID."""

SQL_TEXT: Final = 4000
"""Bytes of a text that SQL takes without a LOB, whatever MAX_STRING_SIZE is."""


def is_long(column: Column) -> bool:
    """Whether the text of a value may have more bytes than SQL takes without a LOB."""
    return is_locator(column) or (text_bytes(column) or 0) > SQL_TEXT
