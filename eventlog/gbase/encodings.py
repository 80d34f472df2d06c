"""What reading and writing of column values share: sizes, NULLs, text options (spec/gbase-cdc.md 3.3)."""

from __future__ import annotations

import struct
from datetime import date
from typing import Final, NamedTuple

from eventlog.gbase.column_types import Kind


class TextOptions(NamedTuple):
    """How text is read and written: a Python codec, its error handler, and whether CHAR loses trailing blanks."""

    charset: str = "utf-8"
    errors: str = "strict"
    trim: bool = True


INTEGERS: Final = {
    Kind.SMALLINT: struct.Struct(">h"),
    Kind.INTEGER: struct.Struct(">i"),
    Kind.BIGINT: struct.Struct(">q"),
}
INT8: Final = struct.Struct(">hII")  # sign, low word, high word
FLOAT: Final = struct.Struct(">d")
SMALLFLOAT: Final = struct.Struct(">f")
NULL_FLOAT: Final = b"\xff" * FLOAT.size
NULL_SMALLFLOAT: Final = b"\xff" * SMALLFLOAT.size
DATE: Final = struct.Struct(">i")  # days since DAY_0
DAY_0: Final = date(1899, 12, 31).toordinal()
NULL_TEXT: Final = b"\0"  # the one byte of a VARCHAR
LOB_SIZE: Final = 76


def null_integer(form: struct.Struct) -> int:
    """The lowest number of a form, which is NULL."""
    return -(1 << 8 * form.size - 1)


NULL_DATE: Final = null_integer(DATE)
