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
_DEEPEST: Final = 12


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
    groups = _groups(file, size)
    if sum(chunk.get(7, 0) for _, chunks in groups for chunk in chunks) > size:
        raise FormatError("its parts overlap")
    left = _LEAST_EXPANDED + _MOST_EXPANDED * size
    together: int = min(_TOGETHER, max(1, _CELLS_TOGETHER // max(1, metadata.num_columns)))
    columns = [parquet.schema.column(place) for place in range(metadata.num_columns)]
    fixed = sum(max(0, column.length or 0) for column in columns)
    for rows, chunks in groups:
        expanded = 0
        for chunk in chunks:
            for page in _pages(file, chunk):
                expanded += page
                left -= page
                if page > _LARGEST_PAGE or left < 0:
                    raise FormatError(
                        f"it has a page of more than {_LARGEST_PAGE} bytes, or its pages are more "
                        f"than {_MOST_EXPANDED} times as long as the file"
                    )
        width = fixed + expanded // max(1, rows)
        together = min(together, max(1, _BYTES_TOGETHER // max(1, width)))
    return together


def _groups(file: BinaryIO, size: int) -> list[tuple[int, list[dict[int, Any]]]]:
    """Return the row groups of a file: the number of their rows, and the fields of their column
    chunks. Arrow itself ends the process for some wrong chunks. Raises FormatError.
    """
    length = int.from_bytes(os.pread(file.fileno(), 4, max(0, size - 8)), "little")
    footer = os.pread(file.fileno(), min(length, size), max(0, size - 8 - length))
    try:
        return [(group[3], [chunk[3] for chunk in group[1]]) for group in _Struct(footer).fields[4]]
    except (LookupError, TypeError) as error:
        raise FormatError(f"its footer cannot be read: {error!r}") from None


def _pages(file: BinaryIO, chunk: dict[int, Any]) -> Iterator[int]:
    """Yield the sizes of the decompressed pages of a column chunk. Raises FormatError."""
    at = min(filter(None, (chunk.get(11), chunk.get(9))), default=-1)
    end = at + chunk.get(7, 0)
    while 0 <= at < end:
        header = _header(file, at)
        expanded, length = header.fields.get(2, -1), header.fields.get(3, -1)
        if min(expanded, length) < 0:
            raise FormatError("the header of a page has no size")
        yield expanded
        at += header.length + length


class _Struct:
    """A struct at the start of these bytes: its ``fields`` by number, and its length. Raises
    IndexError if the bytes end inside the struct, FormatError if they are not a struct.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self.length = data, 0
        self.fields = self._struct(0)

    def _struct(self, depth: int) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise FormatError("a struct is too deep")
        fields: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._integer()
            fields[field] = self._value(head & 15, depth, is_field=True)
        return fields

    def _value(self, kind: int, depth: int, *, is_field: bool) -> Any:
        """Return a struct, a list or an integer; None for a value of another type."""
        if kind == _STRUCT:
            return self._struct(depth + 1)
        if kind in (_LIST, _SET):
            head = self._byte()
            length = head >> 4 if head >> 4 < 15 else self._varint()
            if length > len(self._data):
                raise FormatError("a list is longer than the file")
            return [self._value(head & 15, depth + 1, is_field=False) for _ in range(length)]
        if _BYTE < kind < _DOUBLE:
            return self._integer()
        if kind == _BINARY:
            length = self._varint()
            self.length += length
        elif kind == _DOUBLE:
            self.length += 8
        elif kind == _BYTE or not is_field:
            self.length += 1
        elif kind > _BYTE or not kind:
            raise FormatError("a field has an unknown type")
        return None  # among others a boolean: as a field, it is in its head

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


def _header(file: BinaryIO, at: int) -> _Struct:
    for length in (_HEADER, _LONGEST_HEADER):
        try:
            return _Struct(os.pread(file.fileno(), length, at))
        except IndexError:
            continue
    raise FormatError("the header of a page has no end")
