"""The errors of CDC streams, named as spec/gbase-cdc.md names them."""

from __future__ import annotations

from typing import Self, TypeVar

from eventlog.errors import DatabaseError, FormatError, with_location

AtOffset = TypeVar("AtOffset", bound=FormatError)


def at_offset(error: AtOffset, offset: int) -> AtOffset:
    """The error, with the offset in the stream of the record that it is about, unless it has one."""
    if error.offset is None:
        error.offset = offset
        with_location(error, f"at offset {offset} (0x{offset:x}) of the stream")
    return error


class FramingError(FormatError):
    """Bytes that are no record (spec/gbase-cdc.md 2); ``offset`` is where the record begins in the stream."""

    code = "framing"
    cure = "Read the capture from its start, and its files in their order."

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(f"{problem}; is this a CDC stream, read from its start?")
        at_offset(self, offset)


class TruncatedStream(FormatError):
    """The declared end lies inside a record: ``remainder`` bytes of it are there, from ``offset`` on."""

    code = "truncated_stream"
    cure = "Read the capture together with the file that continues it, or copy the whole of it again."

    def __init__(self, offset: int, remainder: int) -> None:
        super().__init__(
            f"the stream ends inside the record at offset {offset}, of which there are {remainder} bytes: "
            "the capture was cut, or goes on in another file"
        )
        self.offset = offset
        self.remainder = remainder


class UnknownType(FormatError):
    """A column of a type that the stream's format does not have (spec/gbase-cdc.md 3.1)."""

    code = "unknown_type"
    cure = "Leave the table out of the capture."


class SchemaMismatch(FormatError):
    """A table description (TABSCHEM) whose columns disagree with its own counts (spec/gbase-cdc.md 3.1)."""

    code = "schema_mismatch"
    cure = "Capture again. If it repeats, report it with the bytes of the record."


class ColumnError(FormatError):
    """A row that cannot be read. Once known, ``table``, ``sequence`` and ``name`` say where; ``column`` is
    ``schema.table.column``.
    """

    code = "column"
    cure = "Read the rows with the description that stood before them in the stream: a capture from its start."
    table = ""
    sequence: int | None = None
    name = ""

    def at(self, table: str, sequence: int, name: str) -> Self:
        """The error with its place."""
        self.table, self.sequence, self.name, self.column = table, sequence, name, f"{table}.{name}"
        return with_location(self, f"column {name!r} of {table!r} of the row with sequence {sequence:016x}")


class RowLengthError(ColumnError):
    """A payload that is shorter or longer than its columns (spec/gbase-cdc.md 3.2)."""

    code = "row_length"
    cure = "Set `size_order` and `varchar_prefix` as the server writes them, and read the capture from its start."


class SizeArrayError(ColumnError):
    """A size array that fits the payload in no byte order, or disagrees with a length prefix."""

    code = "size_array"
    cure = "Set `size_order` and `varchar_prefix` as the server writes them."


class BadDecimal(ColumnError):
    """A packed decimal with a digit above 99, or with digits behind the first byte of zero (spec/gbase-cdc.md 3.4)."""

    code = "bad_decimal"
    cure = "Capture again. If it repeats, report it with the bytes of the row."


class BadDatetime(ColumnError):
    """A DATETIME or INTERVAL with a field out of its range (spec/gbase-cdc.md 3.5)."""

    code = "bad_datetime"
    cure = "Capture again. If it repeats, report it with the bytes of the row."


class BadValue(ColumnError):
    """A byte that its column type does not have: sign of INT8, BOOLEAN, null flag, day number."""

    code = "bad_value"
    cure = "Capture again. If it repeats, report it with the bytes of the row."


class DecodeError(ColumnError):
    """Text that is not of the configured charset (spec/gbase-cdc.md 3.3)."""

    code = "decode"
    cure = 'Set `charset` to that of the database, or `charset_errors = "replace"`.'


class DuplicateBegin(FormatError):
    """A transaction that begins while one with its id is open (spec/gbase-cdc.md 4)."""

    code = "duplicate_begin"
    cure = 'Read the capture once and from its start, or set `duplicate_begin = "replace"`.'


class OrphanRecord(FormatError):
    """A record of a transaction that did not begin, with ``orphans = "raise"`` (spec/gbase-cdc.md 4)."""

    code = "orphan_record"
    cure = 'Begin the capture before the transaction begins, or set `orphans = "skip"`.'


class SessionDead(FormatError):
    """The server has ended the session; ``error`` is its code."""

    code = "session_dead"
    cure = "Open another session from the last position; a publisher does so by itself."

    def __init__(self, error: int) -> None:
        super().__init__(f"the server ended the session with error {error} ({error_name(error)}); open another one")
        self.error = error


ERROR_NAMES = {
    -83701: "NOCDCDB",
    -83702: "APIVERS",
    -83703: "NODB",
    -83704: "DBNOTLOGGED",
    -83705: "NOTAB",
    -83706: "TABPROPERTIES",
    -83707: "NOCOL",
    -83708: "NOSESS",
    -83709: "NOREOPEN",
    -83710: "TABCAPTURED",
    -83711: "TABNOTCAPTURED",
    -83712: "ARGNULL",
    -83713: "LSN",
    -83714: "DIRECTION",
}
"""Error codes of the CDC calls by number (spec/gbase-cdc.md 1); numbers may change between servers, names do not."""

ERROR_NUMBERS = {name: number for number, name in ERROR_NAMES.items()}

LOGGING_IN_USE = -19816
"""Full-row logging cannot be switched off while the table is captured (spec/gbase-cdc.md 6)."""


def error_name(number: int) -> str:
    """The name of an error code, or ``unknown``."""
    return ERROR_NAMES.get(number, "unknown")


_HINTS = {
    "NOCDCDB": "create the database syscdcv1 as gbasedbt: cd $GBASEDBTDIR/etc; dbaccess - syscdcv1.sql",
    "DBNOTLOGGED": "the database must have logging",
    "TABPROPERTIES": "full-row logging is off, or it is a view, a temporary table or a type that cannot be captured",
    "LSN": "the position is older than the oldest log that is kept: load the tables anew",
}


class CdcError(DatabaseError):
    """A call of the CDC interface answered with an error: ``number`` and ``name`` (spec/gbase-cdc.md 1)."""

    code = "cdc"
    cure = "Look the number up in the server's manual; for the common ones the message says what to do."

    def __init__(self, call: str, number: int, about: str = "") -> None:
        name = error_name(number)
        hint = f": {_HINTS[name]}" if name in _HINTS else ""
        super().__init__(f"{call}{' of ' + about if about else ''} answered {number} ({name}){hint}")
        self.call = call
        self.number = number
        self.name = name
