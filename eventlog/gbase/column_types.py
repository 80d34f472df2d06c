"""Column types as TABSCHEM spells them, and the split of its text into columns (spec/gbase-cdc.md 3.1)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eventlog.errors import shown
from eventlog.gbase.errors import UnknownType
from eventlog.gbase.packed import Qualifier, decimal_width, parse_qualifier


class Kind(StrEnum):
    """The encodings of spec/gbase-cdc.md 3.3."""

    SMALLINT = "smallint"
    INTEGER = "integer"
    BIGINT = "bigint"
    INT8 = "int8"
    FLOAT = "float"
    SMALLFLOAT = "smallfloat"
    DATE = "date"
    DECIMAL = "decimal"
    DATETIME = "datetime"
    CHAR = "char"
    BOOLEAN = "boolean"
    VARCHAR = "varchar"
    LVARCHAR = "lvarchar"
    LOB = "lob"


_NAMES: Final = {
    "smallint": Kind.SMALLINT,
    "integer": Kind.INTEGER,
    "int": Kind.INTEGER,
    "serial": Kind.INTEGER,
    "bigint": Kind.BIGINT,
    "bigserial": Kind.BIGINT,
    "int8": Kind.INT8,
    "serial8": Kind.INT8,
    "float": Kind.FLOAT,
    "double precision": Kind.FLOAT,
    "smallfloat": Kind.SMALLFLOAT,
    "real": Kind.SMALLFLOAT,
    "decimal": Kind.DECIMAL,
    "dec": Kind.DECIMAL,
    "numeric": Kind.DECIMAL,
    "money": Kind.DECIMAL,
    "date": Kind.DATE,
    "boolean": Kind.BOOLEAN,
    "char": Kind.CHAR,
    "nchar": Kind.CHAR,
    "varchar": Kind.VARCHAR,
    "nvarchar": Kind.VARCHAR,
    "lvarchar": Kind.LVARCHAR,
    "blob": Kind.LOB,
    "clob": Kind.LOB,
}
# The slots of the fixed types as ``struct`` takes them; those of the others are of their size.
_SLOTS: Final = {
    Kind.SMALLINT: "h",
    Kind.INTEGER: "i",
    Kind.BIGINT: "q",
    Kind.INT8: "10s",
    Kind.FLOAT: "8s",
    Kind.SMALLFLOAT: "4s",
    Kind.DATE: "i",
    Kind.BOOLEAN: "H",
    Kind.LOB: "76s",
}
# How many parameters a type may have; a start value of SERIAL and a precision of FLOAT mean nothing here.
_PARAMETERS: Final = {
    Kind.DECIMAL: 2, Kind.CHAR: 1, Kind.VARCHAR: 2, Kind.LVARCHAR: 1, Kind.FLOAT: 1,
}  # fmt: skip
_SERIALS: Final = ("serial", "serial8", "bigserial")
_FLOATING_SCALE: Final = 255
_MAX_PRECISION: Final = 32

_VARIABLE: Final = (Kind.VARCHAR, Kind.LVARCHAR)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column type. ``size``: bytes of CHAR, greatest number of bytes of VARCHAR and LVARCHAR (None = not said),
    digits of DECIMAL; ``scale`` of DECIMAL, None = floating; ``spelled`` as TABSCHEM has it.
    """

    kind: Kind
    spelled: str
    size: int | None = None
    scale: int | None = None
    qualifier: Qualifier | None = None

    @property
    def variable(self) -> bool:
        """Whether its values have a length prefix and an entry in the size array."""
        return self.kind in _VARIABLE

    @property
    def slot(self) -> str:
        """The slot of a fixed type, as ``struct`` takes it."""
        size = self.size or 0
        if self.qualifier is not None:
            size = self.qualifier.width
        elif self.kind is Kind.DECIMAL:
            size = decimal_width(size, self.scale)
        return _SLOTS.get(self.kind, f"{size}s")

    @property
    def width(self) -> int:
        """Bytes of a value of a fixed type."""
        return struct.calcsize(f">{self.slot}")


@dataclass(frozen=True, slots=True)
class Column:
    """A captured column."""

    name: str
    type: ColumnType


_TYPE: Final = re.compile(r"([a-z0-9]+(?:\s+precision)?)\s*(?:\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\))?", re.ASCII)


def parse_type(text: str, column: str, decimal_no_scale: str = "floating") -> ColumnType:
    """The type of its text, in any case; ``column`` is for messages.

    ``decimal_no_scale``: what DECIMAL(p) means, ``floating`` or ``zero``. Raises UnknownType.
    """
    spelled = text.strip()
    words = spelled.lower()
    for word in ("datetime", "interval"):
        if words.startswith(word):
            qualifier = parse_qualifier(words[len(word) :].strip(), word == "interval")
            if qualifier is None:
                raise _unknown(spelled, column)
            return ColumnType(Kind.DATETIME, spelled, qualifier=qualifier)
    match = _TYPE.fullmatch(words)
    kind = _NAMES.get(" ".join(match[1].split())) if match else None
    if match is None or kind is None:
        raise _unknown(spelled, column)
    parameters = [int(part) for part in match.groups()[1:] if part is not None]
    if len(parameters) > _PARAMETERS.get(kind, int(match[1] in _SERIALS)):
        raise _unknown(spelled, column)
    size = parameters[0] if parameters else None
    if kind is Kind.DECIMAL:
        return _decimal(match[1], spelled, column, parameters, decimal_no_scale)
    if kind is Kind.CHAR:
        size = 1 if size is None else size
    if size == 0 and (kind is Kind.CHAR or kind in _VARIABLE):
        raise _unknown(spelled, column)
    return ColumnType(kind, spelled, size if kind is Kind.CHAR or kind in _VARIABLE else None)


def _decimal(name: str, spelled: str, column: str, parameters: list[int], no_scale: str) -> ColumnType:
    precision = parameters[0] if parameters else 16
    scale: int | None
    if len(parameters) == 2:
        scale = None if parameters[1] == _FLOATING_SCALE else parameters[1]
    elif name == "money":
        scale = 2
    else:
        scale = 0 if no_scale == "zero" and parameters else None
    if not 1 <= precision <= _MAX_PRECISION or (scale or 0) > precision:
        raise _unknown(spelled, column)
    return ColumnType(Kind.DECIMAL, spelled, precision, scale)


def _unknown(spelled: str, column: str) -> UnknownType:
    return UnknownType(
        f"column {shown(column)} has the type {shown(spelled)}, which CDC does not capture: "
        "leave the column out of startcapture"
    )


def split_columns(text: str) -> Iterator[tuple[str, str]]:
    """Name and type of each column of a TABSCHEM text. Raises UnknownType where one lacks its type."""
    for part in _split_at_commas(text):
        column = part.strip()
        if column.startswith('"'):
            end = _QUOTED.match(column)
            if end is None:
                raise UnknownType(f"column name without its closing quote: {column!r}")
            name, spelled = end[1].replace('""', '"'), column[end.end() :]
        else:
            name, _, spelled = column.partition(" ")
        yield name, spelled.strip()


_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')
_TOKENS: Final = re.compile(r'"(?:[^"]|"")*"|\'(?:[^\']|\'\')*\'|.', re.DOTALL)


def _split_at_commas(text: str) -> list[str]:
    if not text.strip():
        return []
    parts, depth = [""], 0
    for piece in _TOKENS.findall(text):
        if piece == "," and depth == 0:
            parts.append("")
            continue
        depth += (piece == "(") - (piece == ")")
        parts[-1] += piece
    return parts


def quoted_name(name: str) -> str:
    """A column name as TABSCHEM text has it: quoted unless it is a plain word."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else '"' + name.replace('"', '""') + '"'
