"""Functions that split bytes into records, read the fields of records, and write records; and the
errors of records (formats/gbase-cdc.md 2, 3).

``Framer.feed`` is a hot path: it keeps its functions in local names and yields bare tuples. The
price: readers depend on the order of fields in ``Frame``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, Self, TypeAlias, TypeVar

from eventlog.core.values.moments import EPOCH_UTC
from eventlog.errors import FormatError, with_location

Frame: TypeAlias = tuple[int, int, int, bytes]
"""A record: its offset in the stream, its number, its header size, and all of its bytes.

A record is a bare tuple, since a stream has millions of records.
"""

_SCHEME: Final = 66
HEADER: Final = struct.Struct(">IIII")

BEGINTX, COMMTX, RBTX = 1, 2, 3
INSERT, DELETE, UPDBEF, UPDAFT = 40, 41, 42, 43
DISCARD, TRUNCATE, TABSCHEM, TIMEOUT, ERROR = 62, 119, 200, 201, 202

_ROW: Final = (">QIII", "seq tx label flags")
# Each record: its name, and its header fields after the common header.
_RECORDS: Final = {
    BEGINTX: ("BEGINTX", ">QIqI", "seq tx time os_user"),
    COMMTX: ("COMMTX", ">QIq", "seq tx time"),
    RBTX: ("RBTX", ">QI", "seq tx"),
    INSERT: ("INSERT", *_ROW),
    DELETE: ("DELETE", *_ROW),
    UPDBEF: ("UPDBEF", *_ROW),
    UPDAFT: ("UPDAFT", *_ROW),
    DISCARD: ("DISCARD", ">QI", "seq tx"),
    TRUNCATE: ("TRUNCATE", ">QII", "seq tx label"),
    TABSCHEM: ("TABSCHEM", ">IIIII", "label flags fixed_bytes fixed variable"),
    TIMEOUT: ("TIMEOUT", ">Q", "seq"),
    ERROR: ("ERROR", ">Ii", "flags code"),
}
ROWS: Final = frozenset((INSERT, DELETE, UPDBEF, UPDAFT))

RECORD_NAMES: Final = {number: name for number, (name, _, _) in _RECORDS.items()}
FIELDS: Final = {number: struct.Struct(layout) for number, (_, layout, _) in _RECORDS.items()}
"""The structs of the header fields after the common header, by record number."""
FIELD_NAMES: Final = {number: tuple(names.split()) for number, (_, _, names) in _RECORDS.items()}
"""The names of the header fields: ``time`` is in seconds since 1970; bit 0 of an ERROR's ``flags``
means that the session is dead.
"""
SESSION_DEAD: Final = 1
HEADER_SIZES: Final = {number: HEADER.size + fields.size for number, fields in FIELDS.items()}
"""The header sizes by record number; a row record has 4 bytes more for each variable column
(formats/gbase-cdc.md 3).
"""

SIZES_AT: Final = HEADER_SIZES[INSERT]  # offset of the size array in a row record

DEFAULT_MAX_RECORD: Final = 1 << 20


class Framer:
    """Splits a stream into records: ``feed`` accepts bytes in fragments of any size, ``finish``
    declares the end of the stream.

    The framer keeps at most one record of ``max_record`` bytes and the last fragment of data in
    memory. ``offset`` is the offset in the stream at which the next record begins.
    """

    def __init__(self, max_record: int = DEFAULT_MAX_RECORD) -> None:
        self._max_record = max_record
        self._rest = bytearray()
        self._needed = HEADER.size
        self.offset = 0

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Yield the records that are complete with ``data``. Raises FormatError at bytes that are
        not a record.

        If the caller does not exhaust the iterator, the next ``feed`` yields the remaining records.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = self._rest
        data = bytes(data)
        self._rest = bytearray()
        at, size, base = 0, len(data), self.offset
        max_record, minimum, unpack = self._max_record, HEADER_SIZES.get, HEADER.unpack_from
        self._needed = HEADER.size
        try:
            while size - at >= 16:
                header_size, payload_size, scheme, number = unpack(data, at)
                length = header_size + payload_size
                if scheme != _SCHEME or header_size < minimum(number, 16) or length > max_record:
                    raise self._error(base + at, header_size, length, scheme, number)
                if length > size - at:
                    self._needed = length
                    break
                begin, at = at, at + length
                yield base + begin, number, header_size, data[begin:at]
        finally:
            self.offset = base + at
            self._rest += data[at:]

    def finish(self) -> None:
        """Declare the end of the stream. Raises FormatError if the stream ends inside a record."""
        if self._rest:
            error = FormatError(
                f"the stream ends inside the record at offset {self.offset}, after "
                f"{len(self._rest)} bytes of it: the stream was cut off, or continues in another "
                "file",
                code="truncated_stream",
            )
            error.offset = self.offset
            raise error

    def _error(
        self, offset: int, header_size: int, length: int, scheme: int, number: int
    ) -> FormatError:
        name = RECORD_NAMES.get(number, f"record {number}")
        if scheme != _SCHEME:
            return framing_error(offset, f"packet scheme {scheme} instead of {_SCHEME}")
        if length > self._max_record:
            return framing_error(
                offset, f"{name} of {length} bytes, above max_record {self._max_record}"
            )
        return framing_error(
            offset, f"{name} with a header of {header_size} bytes, which is too short"
        )


def fields_of(number: int, record: bytes) -> tuple[int, ...]:
    """Return the fields of a record of a known number, in the order of ``FIELD_NAMES``."""
    return FIELDS[number].unpack_from(record, HEADER.size)


def moment(seconds: int, offset: int) -> datetime | None:
    """Return the time of a BEGINTX or COMMTX record at ``offset``, None for 0.

    Raises ColumnError.
    """
    try:
        return EPOCH_UTC + timedelta(seconds=seconds) if seconds else None
    except OverflowError:
        raise at_offset(
            ColumnError(
                f"the time {seconds} s since 1970 is outside the years 1 to 9999", code="bad_value"
            ),
            offset,
        ) from None


# --- errors ---------------------------------------------------------------------------------------

_Error = TypeVar("_Error", bound=FormatError)


def at_offset(error: _Error, offset: int) -> _Error:
    """Return the error with the stream offset of its record, unless the error has an offset."""
    if error.offset is None:
        error.offset = offset
        with_location(error, f"at offset {offset} (0x{offset:x}) of the stream")
    return error


def framing_error(offset: int, problem: str) -> FormatError:
    """Return the error for bytes at ``offset`` that are not a record (formats/gbase-cdc.md 2)."""
    error = FormatError(
        f"{problem}; check that this is a CDC stream, read from its start", code="framing"
    )
    return at_offset(error, offset)


class ColumnError(FormatError):
    """A row that cannot be read. Once its place is known, ``table``, ``sequence`` and ``name`` hold
    the place; ``column`` is ``schema.table.column``.
    """

    code = "unreadable_row"
    table = ""
    sequence: int | None = None
    name = ""

    def at(self, table: str, sequence: int, name: str) -> Self:
        """Return the error with its table, sequence and column."""
        self.table, self.sequence, self.name, self.column = table, sequence, name, f"{table}.{name}"
        return with_location(
            self, f"column {name!r} of {table!r} of the row with sequence {sequence:016x}"
        )


# --- writing --------------------------------------------------------------------------------------


def control(number: int, *fields: int) -> bytes:
    """Return a record without payload; its fields are in the order of ``FIELD_NAMES``."""
    return HEADER.pack(HEADER_SIZES[number], 0, _SCHEME, number) + FIELDS[number].pack(*fields)


def tab_schem(label: int, columns: str, fixed_bytes: int, fixed: int, variable: int) -> bytes:
    """Return a TABSCHEM record with this text of the columns and these counts."""
    payload = columns.encode() + b"\0"
    counts = FIELDS[TABSCHEM].pack(label, 0, fixed_bytes, fixed, variable)
    return HEADER.pack(HEADER_SIZES[TABSCHEM], len(payload), _SCHEME, TABSCHEM) + counts + payload


def row(
    number: int,
    seq: int,
    tx: int,
    label: int,
    sizes: Iterable[int],
    payload: bytes,
    size_order: str,
) -> bytes:
    """Return a row record: INSERT, DELETE, UPDBEF or UPDAFT. ``size_order`` is little or big."""
    entries = tuple(sizes)
    array = struct.pack(f"{'<' if size_order == 'little' else '>'}{len(entries)}I", *entries)
    head = HEADER.pack(SIZES_AT + len(array), len(payload), _SCHEME, number)
    return head + FIELDS[number].pack(seq, tx, label, 0) + array + payload


def with_extra_header(record: bytes, extra: int) -> bytes:
    """Return the record with ``extra`` unknown bytes between its header and its payload."""
    header_size, payload_size, scheme, number = HEADER.unpack_from(record)
    head = HEADER.pack(header_size + extra, payload_size, scheme, number)
    return head + record[HEADER.size : header_size] + b"\xee" * extra + record[header_size:]
