"""Column types as TABSCHEM spells them, and the split of its text into columns (spec/gbase-cdc.md 3.1)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from eventlog.errors import shown
from eventlog.gbase.errors import UnknownType
from eventlog.gbase.packed import Qualifier, decimal_width, parse_qualifier


class Kind(Enum):
    """The encodings of spec/gbase-cdc.md 3.3: what each is called, the slot of a fixed one as ``struct`` takes it (None
    if its type has a size), and how many parameters it may have.

    A start value of SERIAL and a precision of FLOAT mean nothing here.
    """

    SMALLINT = ("smallint",), "h", 0
    INTEGER = ("integer", "int", "serial"), "i", 0
    BIGINT = ("bigint", "bigserial"), "q", 0
    INT8 = ("int8", "serial8"), "10s", 0
    FLOAT = ("float", "double precision"), "8s", 1
    SMALLFLOAT = ("smallfloat", "real"), "4s", 0
    DATE = ("date",), "i", 0
    DECIMAL = ("decimal", "dec", "numeric", "money"), None, 2
    DATETIME = ("datetime", "interval"), None, 0
    CHAR = ("char", "nchar"), None, 1
    BOOLEAN = ("boolean",), "H", 0
    VARCHAR = ("varchar", "nvarchar"), None, 2
    LVARCHAR = ("lvarchar",), None, 1
    LOB = ("blob", "clob"), "76s", 0

    def __init__(self, names: tuple[str, ...], slot: str | None, parameters: int) -> None:
        self.names = names
        self.slot = slot
        self.parameters = parameters


_BY_NAME: Final = {name: kind for kind in Kind for name in kind.names}
_SERIALS: Final = ("serial", "serial8", "bigserial")
_VARIABLE: Final = (Kind.VARCHAR, Kind.LVARCHAR)
_FLOATING_SCALE: Final = 255
_MAX_PRECISION: Final = 32


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
        if self.qualifier is not None:
            return f"{self.qualifier.width}s"
        size = self.size or 0
        if self.kind is Kind.DECIMAL:
            size = decimal_width(size, self.scale)
        return self.kind.slot or f"{size}s"

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
    parsed = _parsed(spelled, decimal_no_scale)
    if parsed is None:
        raise UnknownType(
            f"column {shown(column)} has the type {shown(spelled)}, which CDC does not capture: "
            "leave the column out of startcapture"
        )
    return parsed


def _parsed(spelled: str, no_scale: str) -> ColumnType | None:
    words = spelled.lower()
    for word in Kind.DATETIME.names:
        if words.startswith(word):
            qualifier = parse_qualifier(words[len(word) :].strip(), word == "interval")
            return None if qualifier is None else ColumnType(Kind.DATETIME, spelled, qualifier=qualifier)
    match = _TYPE.fullmatch(words)
    name = " ".join(match[1].split()) if match else ""
    kind = _BY_NAME.get(name)
    if match is None or kind is None:
        return None
    parameters = [int(part) for part in match.groups()[1:] if part is not None]
    if len(parameters) > (1 if name in _SERIALS else kind.parameters):
        return None
    if kind is Kind.DECIMAL:
        return _decimal(name, spelled, parameters, no_scale)
    if kind is not Kind.CHAR and kind not in _VARIABLE:
        return ColumnType(kind, spelled)
    size = parameters[0] if parameters else 1 if kind is Kind.CHAR else None
    return None if size == 0 else ColumnType(kind, spelled, size)


def _decimal(name: str, spelled: str, parameters: list[int], no_scale: str) -> ColumnType | None:
    precision = parameters[0] if parameters else 16
    scale: int | None
    if len(parameters) == 2:
        scale = None if parameters[1] == _FLOATING_SCALE else parameters[1]
    elif name == "money":
        scale = 2
    else:
        scale = 0 if no_scale == "zero" and parameters else None
    if not 1 <= precision <= _MAX_PRECISION or (scale or 0) > precision:
        return None
    return ColumnType(Kind.DECIMAL, spelled, precision, scale)


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
