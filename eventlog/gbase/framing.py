"""Bytes to records, in any cut (spec/gbase-cdc.md 2)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

from eventlog.gbase.errors import FramingError, TruncatedStream

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

DEFAULT_MAX_RECORD: Final = 1 << 20


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
