"""Bytes to records, in any cut, and records one by one: read, and written (spec/gbase-cdc.md 2, 3)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.gbase.errors import BadValue, FramingError, TruncatedStream, at_offset
from eventlog.gbase.layout import Layout, Layouts, check_header
from eventlog.gbase.options import DEFAULT_MAX_RECORD
from eventlog.model import Value

Frame: TypeAlias = tuple[int, int, int, bytes]
"""One record: offset in the stream, record number, header size, all its bytes. A bare tuple, since millions pass."""

SCHEME: Final = 66
HEADER: Final = struct.Struct(">IIII")

BEGINTX, COMMTX, RBTX = 1, 2, 3
INSERT, DELETE, UPDBEF, UPDAFT = 40, 41, 42, 43
DISCARD, TRUNCATE, TABSCHEM, TIMEOUT, ERROR = 62, 119, 200, 201, 202

RECORD_NAMES: Final = {
    BEGINTX: "BEGINTX",
    COMMTX: "COMMTX",
    RBTX: "RBTX",
    INSERT: "INSERT",
    DELETE: "DELETE",
    UPDBEF: "UPDBEF",
    UPDAFT: "UPDAFT",
    DISCARD: "DISCARD",
    TRUNCATE: "TRUNCATE",
    TABSCHEM: "TABSCHEM",
    TIMEOUT: "TIMEOUT",
    ERROR: "ERROR",
}
ROWS: Final = frozenset((INSERT, DELETE, UPDBEF, UPDAFT))

HEADER_SIZES: Final = {
    BEGINTX: 40,
    COMMTX: 36,
    RBTX: 28,
    INSERT: 36,
    DELETE: 36,
    UPDBEF: 36,
    UPDAFT: 36,
    DISCARD: 28,
    TRUNCATE: 32,
    TABSCHEM: 36,
    TIMEOUT: 24,
    ERROR: 24,
}
"""Known header sizes by record number; row records have 4 bytes more a variable column (spec/gbase-cdc.md 3)."""


class Framer:
    """Cuts a stream into records: ``feed`` it bytes in any cut, tell it the declared end by ``finish``.

    Holds at most one record of ``max_record`` bytes and what was fed with it.
    """

    def __init__(self, max_record: int = DEFAULT_MAX_RECORD) -> None:
        self._max_record = max_record
        self._rest = bytearray()
        self._needed = HEADER.size
        self._offset = 0

    @property
    def offset(self) -> int:
        """Where in the stream the next record begins."""
        return self._offset

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """The records that are complete with ``data``. Raises FramingError at the record that is none.

        What is not taken from the iterator comes with the next ``feed``.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = self._rest
        data = bytes(data)
        self._rest = bytearray()
        at, size, base = 0, len(data), self._offset
        max_record, minimum, unpack = self._max_record, HEADER_SIZES.get, HEADER.unpack_from
        self._needed = HEADER.size
        try:
            while size - at >= 16:
                header_size, payload_size, scheme, number = unpack(data, at)
                length = header_size + payload_size
                if scheme != SCHEME or header_size < minimum(number, 16) or length > max_record:
                    raise self._error(base + at, header_size, length, scheme, number)
                if length > size - at:
                    self._needed = length
                    break
                begin, at = at, at + length
                yield base + begin, number, header_size, data[begin:at]
        finally:
            self._offset = base + at
            self._rest += data[at:]

    def finish(self) -> None:
        """The declared end. Raises TruncatedStream if it lies inside a record."""
        if self._rest:
            raise TruncatedStream(self._offset, len(self._rest))

    def _error(self, offset: int, header_size: int, length: int, scheme: int, number: int) -> FramingError:
        name = RECORD_NAMES.get(number, f"record {number}")
        if scheme != SCHEME:
            return FramingError(offset, f"packet scheme {scheme} instead of {SCHEME}")
        if length > self._max_record:
            return FramingError(offset, f"{name} of {length} bytes, above max_record {self._max_record}")
        return FramingError(offset, f"{name} with a header of {header_size} bytes, which is too short")


# The fields from offset 16 on, by record number; row records, TRUNCATE and TABSCHEM begin likewise.
_FIELDS: Final[Mapping[int, tuple[struct.Struct, tuple[str, ...]]]] = {
    BEGINTX: (struct.Struct(">QIqI"), ("seq", "tx", "time", "os_user")),
    COMMTX: (struct.Struct(">QIq"), ("seq", "tx", "time")),
    RBTX: (struct.Struct(">QI"), ("seq", "tx")),
    DISCARD: (struct.Struct(">QI"), ("seq", "tx")),
    TRUNCATE: (struct.Struct(">QII"), ("seq", "tx", "label")),
    TIMEOUT: (struct.Struct(">Q"), ("seq",)),
    ERROR: (struct.Struct(">Ii"), ("flags", "code")),
}
_ROW: Final = struct.Struct(">QIII")
_TABSCHEM: Final = struct.Struct(">IIIII")
_TABSCHEM_FIELDS: Final = ("label", "flags", "fixed_bytes", "fixed", "variable")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Record(NamedTuple):
    """One record read. ``name`` is that of its number, ``None`` for a number that is not known.

    ``fields`` are those behind the common header, in their order: ``seq``, ``tx``, ``time`` (s since 1970), ``label``,
    ...; beside them a TABSCHEM has ``layout``, a row record also ``sizes`` and ``values`` in the order of
    ``layout.names``.
    """

    offset: int
    number: int
    name: str | None
    header_size: int
    payload_size: int
    fields: Mapping[str, int]
    layout: Layout | None = None
    sizes: Sequence[int] = ()
    values: Sequence[Value] = ()


def read_record(frame: Frame, layouts: Layouts) -> Record:
    """A record with all that is in it; a TABSCHEM record is taken up in ``layouts``.

    Raises FormatError: SchemaMissing for a row without TABSCHEM, a ColumnError for a row that cannot be read.
    """
    offset, number, header_size, record = frame
    head = (offset, number, RECORD_NAMES.get(number), header_size, len(record) - header_size)
    if number in ROWS:
        fields = _row_fields(record)
        layout = layouts[fields["label"]]
        wrong = check_header(layout, header_size)
        if wrong:
            raise FramingError(offset, wrong)
        sizes = layout.sizes(record, header_size)
        return Record(*head, fields, layout, sizes, layout.decode(record, header_size))
    if number == TABSCHEM:
        layout = layouts.define(record, header_size)
        return Record(*head, dict(zip(_TABSCHEM_FIELDS, _TABSCHEM.unpack_from(record, 16), strict=True)), layout)
    if number in _FIELDS:
        form, names = _FIELDS[number]
        return Record(*head, dict(zip(names, form.unpack_from(record, 16), strict=True)))
    return Record(*head, {})


def read_head(frame: Frame) -> Record:
    """A row record without its row, where that cannot be read."""
    offset, number, header_size, record = frame
    head = (offset, number, RECORD_NAMES.get(number), header_size, len(record) - header_size)
    return Record(*head, _row_fields(record))


def _row_fields(record: bytes) -> dict[str, int]:
    return dict(zip(("seq", "tx", "label", "flags"), _ROW.unpack_from(record, 16), strict=True))


def moment(seconds: int, offset: int) -> datetime | None:
    """The time of a BEGINTX or COMMTX record at ``offset``, None for 0. Raises BadValue."""
    try:
        return _EPOCH + timedelta(seconds=seconds) if seconds else None
    except OverflowError:
        raise at_offset(BadValue(f"the time {seconds} s since 1970 is outside the years 1 to 9999"), offset) from None


# --- writing ----------------------------------------------------------------------------------------------------------


def begin_tx(seq: int, tx: int, time: int, os_user: int) -> bytes:
    """BEGINTX; ``time`` in seconds since 1970."""
    return _plain(BEGINTX, seq, tx, time, os_user)


def comm_tx(seq: int, tx: int, time: int) -> bytes:
    """COMMTX; ``time`` in seconds since 1970."""
    return _plain(COMMTX, seq, tx, time)


def rb_tx(seq: int, tx: int) -> bytes:
    """RBTX."""
    return _plain(RBTX, seq, tx)


def discard(seq: int, tx: int) -> bytes:
    """DISCARD of what the transaction did from ``seq`` on."""
    return _plain(DISCARD, seq, tx)


def truncate(seq: int, tx: int, label: int) -> bytes:
    """TRUNCATE."""
    return _plain(TRUNCATE, seq, tx, label)


def timeout(seq: int) -> bytes:
    """TIMEOUT; ``seq`` of the last data, 0 when there was none."""
    return _plain(TIMEOUT, seq)


def error(code: int, flags: int) -> bytes:
    """ERROR; bit 0 of ``flags``: the session is dead."""
    return _plain(ERROR, flags, code)


def tab_schem(label: int, columns: str, fixed_bytes: int, fixed: int, variable: int) -> bytes:
    """TABSCHEM with the text of the columns; the counts as the caller has them."""
    payload = columns.encode() + b"\0"
    counts = _TABSCHEM.pack(label, 0, fixed_bytes, fixed, variable)
    return HEADER.pack(36, len(payload), SCHEME, TABSCHEM) + counts + payload


def row(number: int, seq: int, tx: int, label: int, sizes: Iterable[int], payload: bytes, size_order: str) -> bytes:
    """A row record: INSERT, DELETE, UPDBEF or UPDAFT. ``size_order``: little or big."""
    entries = tuple(sizes)
    array = struct.pack(f"{'<' if size_order == 'little' else '>'}{len(entries)}I", *entries)
    head = HEADER.pack(36 + len(array), len(payload), SCHEME, number)
    return head + _ROW.pack(seq, tx, label, 0) + array + payload


def with_extra_header(record: bytes, extra: int) -> bytes:
    """The record with ``extra`` unknown bytes between its header and its payload."""
    header_size, payload_size, scheme, number = HEADER.unpack_from(record)
    head = HEADER.pack(header_size + extra, payload_size, scheme, number)
    return head + record[16:header_size] + b"\xee" * extra + record[header_size:]


def _plain(number: int, *fields: Any) -> bytes:
    form, _ = _FIELDS[number]
    return HEADER.pack(16 + form.size, 0, SCHEME, number) + form.pack(*fields)
