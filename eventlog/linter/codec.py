"""Row images: their types and the interface of codecs (formats/linter-queue.md 6, 7).

Only the codec of our emulator (``eventlog.testing.linter_codec``) has a name. This codec is
imported when the option ``codec`` names it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, Protocol, runtime_checkable

from eventlog.core.catalog import Table, table_of_types
from eventlog.errors import ConfigError, FormatError, NotExpressible
from eventlog.linter.dispatch_tables import ColumnAttrs, TableAttrs
from eventlog.model import Lob, Row, RowDict


class RowDecodeError(FormatError):
    """A row image that its codec cannot read (formats/linter-queue.md 6, 7). If ``column`` is None
    the whole image is unreadable. A codec sets only the column's name; the reader replaces it by
    ``schema.table.column``.
    """

    code = "row_decode"


class RowEncodeError(NotExpressible):
    """A row that its codec cannot write (formats/linter-queue.md 7). ``column`` is as in
    RowDecodeError.
    """

    code = "row_encode"


class Typ:
    """Type codes of DISPATCH_ATTRS.TYP (formats/linter-queue.md 6)."""

    CHAR: Final = 1
    INTEGER: Final = 2
    REAL: Final = 3
    DATE: Final = 4
    DECIMAL: Final = 5
    BYTE: Final = 6
    BLOB: Final = 7
    VARCHAR: Final = 8
    VARBYTE: Final = 9
    BOOLEAN: Final = 10
    NCHAR: Final = 11
    NVARCHAR: Final = 12


@runtime_checkable
class RowCodec(Protocol):
    """A codec for row images of one kind.

    The reader turns each error of ``decode`` into a RowDecodeError with the address and the table
    of the row.
    """

    name: str

    def decode(self, table: TableAttrs, image: bytes) -> RowDict:
        """Return the values that a row image has for all columns, by column name."""
        ...

    def encode(self, table: TableAttrs, row: Row) -> bytes:
        """Return the image of a row that has all columns."""
        ...


EMULATOR_CODEC: Final = "eventlog-emulator-1"
"""The name of the codec of our emulator."""

_EMULATOR_MODULE: Final = "eventlog.testing.linter_codec"


def row_codec(option: object, charset: str = "utf-8") -> RowCodec | None:
    """Return the codec of the option ``codec``: an object, ``"none"`` or ``"eventlog-emulator-1"``.

    ``charset`` is the charset of the emulator's CHAR and VARCHAR. Raises ConfigError.
    """
    if option == "none":
        return None
    if option == EMULATOR_CODEC:
        emulator: RowCodec = import_module(_EMULATOR_MODULE).EmulatorCodec(charset)
        return emulator
    if isinstance(option, RowCodec):
        return option
    raise ConfigError(
        f"codec {option!r} is unknown; set 'none', {EMULATOR_CODEC!r} or an object with the "
        "methods decode and encode"
    )


LONGEST: Final = 4000
"""The greatest number of bytes of a column."""


def bytes_of(value: Any) -> bytes:
    """Return the bytes that a binary column holds. Raises TypeError for another value."""
    if isinstance(value, Lob):
        return value.data
    if not isinstance(value, bytes):
        raise TypeError
    return value


# --- a replicated table as a table of a catalogue -------------------------------------------------

_TYPE_NAMES: Final = {
    (Typ.INTEGER, 2): "smallint",
    (Typ.INTEGER, 4): "integer",
    (Typ.INTEGER, 8): "bigint",
    (Typ.REAL, 4): "real",
    (Typ.REAL, 8): "double precision",
}
_NAMES_WITHOUT_LENGTH: Final = {
    Typ.DATE: "timestamp",
    Typ.DECIMAL: "numeric",
    Typ.BYTE: "varbinary",
    Typ.VARBYTE: "varbinary",
    Typ.BLOB: "blob",
    Typ.BOOLEAN: "boolean",
}


def catalog_table(name: str, attrs: TableAttrs) -> Table:
    """Return a replicated table, under this name, as a catalogue describes it: its key, and its
    columns with the types of their values.
    """
    types = ((column.name, _type_name(column)) for column in attrs.columns)
    return table_of_types(name, types, attrs.key)


def _type_name(column: ColumnAttrs) -> str:
    name = _TYPE_NAMES.get((column.typ, column.length)) or _NAMES_WITHOUT_LENGTH.get(column.typ)
    if name is not None:
        return name
    if column.typ in (Typ.NCHAR, Typ.NVARCHAR):
        return f"varchar({max(column.length // 2, 1)})"
    return f"varchar({max(column.length, 1)})" if column.typ in (Typ.CHAR, Typ.VARCHAR) else "other"
