"""The pages of a Parquet file, checked before Arrow reads the file.

Arrow allocates the size in the header of a page, and a page expands by its compression. So the
headers are read here: they are structs of Thrift's compact protocol. A reader of the file then
chooses how many rows it reads together by ``rows_together``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from eventlog.errors import FormatError

_LARGEST_PAGE: Final = 64 << 20
_MOST_EXPANDED: Final = 256
_LEAST_EXPANDED: Final = 1 << 20
"""The decompressed pages of a file have at most this number of bytes, and ``_MOST_EXPANDED`` times
the bytes of the file.
"""

_TOGETHER: Final = 10_000
_CELLS_TOGETHER: Final = 500_000
_BYTES_TOGETHER: Final = 16 << 20

_HEADER: Final = 4096
_LONGEST_HEADER: Final = 1 << 20
_STRUCT, _LIST, _SET, _BINARY, _DOUBLE, _BYTE = 12, 9, 10, 8, 7, 3
_DEEPEST: Final = 8


def rows_together(parquet: Any, file: BinaryIO) -> int:
    """Return the number of rows of a file that are read together so that they take little memory.
    ``parquet`` is Arrow's ParquetFile of ``file``.

    Raises FormatError for nested columns, and for pages that are too large.
    """
    for field in parquet.schema_arrow:
        if field.type.num_fields:
            raise FormatError(
                f"column {field.name!r} has the nested type {field.type}; only columns of plain "
                "values can be read"
            )
    metadata, size = parquet.metadata, os.fstat(file.fileno()).st_size
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    if sum(chunk.total_compressed_size for chunk in chunks) > size:
        raise FormatError("its parts overlap")
    left = _LEAST_EXPANDED + _MOST_EXPANDED * size
    together: int = min(_TOGETHER, max(1, _CELLS_TOGETHER // max(1, metadata.num_columns)))
    columns = [parquet.schema.column(place) for place in range(metadata.num_columns)]
    fixed = sum(max(0, column.length or 0) for column in columns)
    for group in groups:
        expanded = 0
        for place in range(group.num_columns):
            for page in _pages(file, group.column(place)):
                expanded += page
                left -= page
                if page > _LARGEST_PAGE or left < 0:
                    raise FormatError(
                        f"it has a page of more than {_LARGEST_PAGE} bytes, or its pages are more "
                        f"than {_MOST_EXPANDED} times as long as the file"
                    )
        width = fixed + expanded // max(1, group.num_rows)
        together = min(together, max(1, _BYTES_TOGETHER // max(1, width)))
    return together


def _pages(file: BinaryIO, chunk: Any) -> Iterator[int]:
    """Yield the sizes of the decompressed pages of a column chunk. Raises FormatError."""
    at = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=-1)
    end = at + chunk.total_compressed_size
    while 0 <= at < end:
        header = _header(file, at)
        yield header.uncompressed
        at += header.length + header.compressed


class _Header:
    """The header of a page, read from the bytes at its start. Raises IndexError if they end inside
    the header, FormatError if they are not a header.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self.length = data, 0
        sizes = self._struct(0)
        self.uncompressed, self.compressed = sizes.get(2, -1), sizes.get(3, -1)
        if min(self.uncompressed, self.compressed) < 0:
            raise FormatError("the header of a page has no size")

    def _struct(self, depth: int) -> dict[int, int]:
        """Pass over a struct, and return its integers by field."""
        if depth > _DEEPEST:
            raise FormatError("the header of a page is too deep")
        numbers: dict[int, int] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._integer()
            numbers[field] = self._value(head & 15, depth)
        return numbers

    def _value(self, kind: int, depth: int) -> int:
        if kind == _STRUCT:
            self._struct(depth + 1)
        elif kind in (_LIST, _SET):
            head = self._byte()
            for _ in range(head >> 4 if head >> 4 < 15 else self._varint()):
                self._value(head & 15, depth + 1)
        elif kind == _BINARY:
            length = self._varint()
            self.length += length
        elif kind == _DOUBLE:
            self.length += 8
        elif kind == _BYTE:
            self.length += 1
        elif _BYTE < kind < _DOUBLE:
            return self._integer()
        elif kind > _BYTE or not kind:
            raise FormatError("the header of a page has a field of an unknown type")
        return -1  # among others a boolean, which is in its head

    def _byte(self) -> int:
        self.length += 1
        return self._data[self.length - 1]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 0x80 and shift < 63:
            number |= (byte & 0x7F) << shift
            shift += 7
        return number | (byte & 0x7F) << shift

    def _integer(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)


def _header(file: BinaryIO, at: int) -> _Header:
    for length in (_HEADER, _LONGEST_HEADER):
        try:
            return _Header(os.pread(file.fileno(), length, at))
        except IndexError:
            continue
    raise FormatError("the header of a page has no end")
