"""Column masks: the column that each bit means, now and at the time of a mask; and the four written
forms of a mask (formats/qlik.md 2, 4).

A mask is an ``int`` of any width: bit *b* belongs to the column at place *b* of a ``MaskLayout``. A
layout is made once for a list of columns, and prepares all lookups of encoding and decoding.
Decoding is a hot path. Masks that repeat are looked up, since few statements write a table. A mask
of few bits is decoded bit by bit, a mask of many bits by its binary digits in C. The price:
``_names`` has two code paths with the same result.

attrep_ddl_history shows the list of columns with which a mask was written. The column DETAILS of
attrep_ddl_history is a JSON document whose ``columns`` describe a DDL statement. Each column is
under its old name, and has an ``action`` (ADD, DROP or ALTER), its place ``ordinal``, and
``columnNewName`` if it was renamed (Qlik help, "DDL history").
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from eventlog.core.values.typed_values import whole_number
from eventlog.errors import FormatError, shown, with_location
from eventlog.files.text import parsed_json
from eventlog.model import JsonObject
from eventlog.qlik import sequence

CAPACITY: Final = 1024
"""The number of positions in a mask of 128 bytes, including the header columns (formats/qlik.md
2.1).
"""

# Where Qlik's texts differ from their examples, the examples hold. "Bit N belongs to ordinal N"
# needs ordinal - 1 in its own example, and the table of bytes under a "direct" byte order has bits
# 7 to 0 in byte 0, which is little-endian. The order of the hex text in messages is that of its
# bits.
ByteOrder: TypeAlias = Literal["little", "big", "auto"]
"""The byte order of binary masks. Only readers accept ``auto``."""
MaskForm: TypeAlias = Literal["binary", "text"]
"""The form in which a change table stores masks."""

_FEW_BITS: Final = 24
_MAX_KEPT: Final = 256


Mask: TypeAlias = tuple[frozenset[str], int]
"""A mask that was read: the columns whose bits are set, and the number of set bits beyond the last
column (metric ``mask_extra_bits``).
"""


class MaskLayout:
    """The column that each bit means: place *b* of ``places`` is the column of bit *b*, or None for
    a header column.

    ``columns`` are the data columns in order, ``width`` is the number of places.
    """

    __slots__ = (
        "_bit_of",
        "_bits",
        "_column_bits",
        "_decoded",
        "_encoded",
        "_names_by_bit",
        "columns",
        "places",
        "width",
    )

    def __init__(self, places: Sequence[str | None]) -> None:
        self.places = tuple(places)
        self.width = len(self.places)
        self.columns = tuple(name for name in self.places if name is not None)
        self._bit_of = {name: 1 << bit for bit, name in enumerate(self.places) if name is not None}
        if len(self._bit_of) != len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise FormatError(
                f"column {twice!r} is twice in the column list of a mask; list every column once"
            )
        self._column_bits = sum(self._bit_of.values())
        self._bits = tuple(1 << bit for bit in range(self.width))
        self._names_by_bit = tuple(name or "" for name in self.places)
        self._decoded: dict[int, Mask] = {}
        self._encoded: dict[frozenset[str], int] = {}

    def bits(self, names: Iterable[str]) -> int:
        """Return the mask in which exactly these columns are set.

        Raises FormatError for an unknown name.
        """
        columns = names if isinstance(names, frozenset) else frozenset(names)
        known = self._encoded.get(columns)
        if known is not None:
            return known
        value = 0
        try:
            for name in columns:
                value |= self._bit_of[name]
        except KeyError as missing:
            raise FormatError(f"column {missing} is not in the column list of its mask") from None
        if len(self._encoded) >= _MAX_KEPT:
            self._encoded.clear()
        self._encoded[columns] = value
        return value

    def decode(self, value: int) -> Mask:
        """Return the columns of a mask.

        Bits of header columns are ignored; bits beyond the last column are counted.
        """
        known = self._decoded.get(value)
        if known is not None:
            return known
        mask = self._names(value & self._column_bits), (value >> self.width).bit_count()
        if len(self._decoded) >= _MAX_KEPT:
            self._decoded.clear()
        self._decoded[value] = mask
        return mask

    def _names(self, value: int) -> frozenset[str]:
        """Return the columns of a mask that has no bits of header columns."""
        if value.bit_count() > _FEW_BITS:
            digits = f"{value:b}"[::-1].encode("ascii").translate(_DIGIT_VALUES)
            return frozenset(compress(self._names_by_bit, digits))
        names = []
        while value:
            bit = value.bit_length() - 1
            names.append(self._names_by_bit[bit])
            value ^= self._bits[bit]
        return frozenset(names)


_DIGIT_VALUES: Final = bytes(digit == ord("1") for digit in range(256))


def layout(columns: Sequence[str | None], headers: int = 0) -> MaskLayout:
    """Return the layout of data columns that follow ``headers`` header columns. Messages have no
    header columns (formats/qlik.md 2.1).
    """
    return MaskLayout((*(None,) * headers, *columns))


def check_capacity(layout: MaskLayout) -> None:
    """Raise FormatError if a column lies beyond the 1024 bits.

    Writers call this before they write.
    """
    if layout.width > CAPACITY and any(place is not None for place in layout.places[CAPACITY:]):
        raise FormatError(
            f"{len(layout.columns)} columns after {layout.width - len(layout.columns)} headers "
            f"take {layout.width} positions, but a mask has {CAPACITY}; remove header columns or "
            "split the table",
            code="mask_too_wide",
        )


# --- writing --------------------------------------------------------------------------------------


def message_text(layout: MaskLayout, value: int) -> str:
    """Return a mask for messages in JSON: upper-case hex, most significant byte first, at the full
    width of the columns.
    """
    check_capacity(layout)
    return f"{value:0{2 * _message_size(layout)}X}"


def message_bytes(
    layout: MaskLayout, value: int, byteorder: Literal["little", "big"] = "little"
) -> bytes:
    """Return a mask for messages in Avro: bytes at the full width of the columns."""
    check_capacity(layout)
    return value.to_bytes(_message_size(layout), byteorder)


def _message_size(layout: MaskLayout) -> int:
    """Return the number of bytes of a mask in messages, which have no header columns."""
    return layout.width // 8 + 1


def table_text(layout: MaskLayout, value: int) -> str:
    """Return a mask for change tables in files: hex text with an even number of digits, without
    leading zero bytes. The shortest text is ``00``.
    """
    check_capacity(layout)
    digits = f"{value:X}"
    return "0" + digits if len(digits) % 2 else digits


def table_bytes(
    layout: MaskLayout, value: int, byteorder: Literal["little", "big"] = "little"
) -> bytes:
    """Return a mask for change tables in binary form: the fewest bytes that hold the mask. A mask
    without set bits has no bytes.
    """
    check_capacity(layout)
    return value.to_bytes((value.bit_length() + 7) // 8, byteorder)


# --- reading --------------------------------------------------------------------------------------


def parse_text(text: str | None) -> int:
    """Return the mask that hex text means. The text may begin with ``0x``, be in either case, and
    have any number of digits. NULL and empty text mean 0.

    Raises FormatError with the text.
    """
    if not text:
        return 0
    digits = text[2:] if text[:2] in ("0x", "0X") else text
    try:
        # int also accepts blanks, signs, underscores, other digits and another 0x.
        if digits.isalnum() and digits.isascii() and digits[1:2] not in ("x", "X"):
            return int(digits, 16)
    except ValueError:
        digits = text
    if digits:
        raise FormatError(
            f"mask {shown(text)} is not a hex text; it may contain only 0-9, A-F and a leading 0x",
            code="bad_mask",
        )
    return 0


def read(layout: MaskLayout, value: Any, byteorder: ByteOrder = "little") -> Mask:
    """Return the columns of a mask in hex text or bytes; NULL means 0. Raises FormatError."""
    if value is None or isinstance(value, str):
        return read_text(layout, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return read_bytes(layout, bytes(value), byteorder)
    raise no_mask(value)


def no_mask(value: Any) -> FormatError:
    """Return the error for a mask that is neither text nor bytes: a number could mean several masks
    (formats/qlik.md 2.2).
    """
    return FormatError(
        f"mask {shown(value)} is a {type(value).__name__}, but a mask must be hex text or bytes",
        code="bad_mask",
    )


def read_text(layout: MaskLayout, text: str | None) -> Mask:
    """Return the columns of a mask in hex text. Raises FormatError."""
    return layout.decode(parse_text(text))


def read_bytes(layout: MaskLayout, data: bytes | None, byteorder: ByteOrder = "little") -> Mask:
    """Return the columns of a mask in binary form of any length. NULL and empty bytes mean 0.

    ``auto`` chooses the byte order in which no bit is beyond the last column. If both orders fit,
    or neither, it chooses ``little``.
    """
    value = int.from_bytes(data or b"", "big" if byteorder == "big" else "little")
    if byteorder == "auto" and value >> layout.width:
        other = int.from_bytes(data or b"", "big")
        if not other >> layout.width:
            value = other
    return layout.decode(value)


# --- the column list of a mask: attrep_ddl_history ------------------------------------------------

HISTORY_TABLE: Final = "attrep_ddl_history"


class DdlEntry(NamedTuple):
    """The fields of a row of attrep_ddl_history from which lists of columns are made. ``details``
    is the JSON document.
    """

    change_seq: str
    table_owner: str | None
    table_name: str
    details: JsonObject


def entry_of(row: JsonObject) -> DdlEntry:
    """Return the entry that a row holds. Column names may be in any letter case. Raises
    FormatError.
    """
    fields = {name.upper(): value for name, value in row.items()}
    details = fields.get("DETAILS")
    what = f"DETAILS in {HISTORY_TABLE} of {shown(fields.get('TABLE_NAME'))}"
    try:
        document = (
            parsed_json(details) if isinstance(details, str | bytes) and details else details or {}
        )
    except FormatError as error:
        raise with_location(error, what) from None
    if not isinstance(document, Mapping):
        raise FormatError(f"{what} is not a JSON object")
    try:
        return DdlEntry(
            sequence.check(str(fields["CHANGE_SEQ"])),
            fields.get("TABLE_OWNER"),
            fields["TABLE_NAME"],
            document,
        )
    except KeyError as missing:
        raise FormatError(f"a row of {HISTORY_TABLE} lacks the column {missing}") from None


def layouts_by_history(
    present: MaskLayout, entries: Iterable[DdlEntry]
) -> Callable[[str], MaskLayout]:
    """Return a function from a change_seq to the layout that a table had at this change_seq
    (formats/qlik.md 4). Raises FormatError.

    The lists of columns are made backwards, beginning with the present list: the list before a
    statement is the list after the statement, with the statement undone.
    """
    ordered = sorted(entries, key=lambda entry: entry.change_seq)
    names: list[_Name] = [(name, name) for name in present.columns]
    headers = next(
        (place for place, name in enumerate(present.places) if name is not None), present.width
    )
    layouts = [layout([now for _, now in names], headers)]
    for entry in reversed(ordered):
        names = _undone(names, entry)
        layouts.append(layout([now for _, now in names], headers))
    layouts.reverse()  # the first is valid before all entries, the next ones after one entry each
    since = [entry.change_seq for entry in ordered]
    return lambda change_seq: layouts[bisect_right(since, change_seq)]


_Name: TypeAlias = tuple[str, str | None]
"""The name of a column at the time of an entry, and the present name of the column, None if it no
longer exists.
"""


def _undone(names: list[_Name], entry: DdlEntry) -> list[_Name]:
    """Return the column list before a statement, made from the column list after the statement.
    Raises FormatError.
    """
    columns = _columns_of(entry)
    added = {name for name, column in columns.items() if _action(column) == "ADD"}
    renamed = {
        column["columnNewName"]: name
        for name, column in columns.items()
        if column.get("columnNewName")
    }
    result = [(renamed.get(name, name), now) for name, now in names if name not in added]
    dropped = [
        (int(column.get("ordinal") or 0), name)
        for name, column in columns.items()
        if _action(column) == "DROP"
    ]
    for ordinal, name in sorted(dropped):
        place = ordinal - 1 if ordinal > 0 else len(result)
        result.insert(place, (name, None))
    return result


def _columns_of(entry: DdlEntry) -> Mapping[str, JsonObject]:
    """Return the columns that a statement concerns, by name, after checking them. Raises
    FormatError.
    """
    columns = entry.details.get("columns") or {}
    if not isinstance(columns, Mapping) or not all(
        isinstance(column, Mapping) for column in columns.values()
    ):
        raise FormatError(
            f"DETAILS of {entry.table_name!r} at {entry.change_seq} has no object of columns"
        )
    for column in columns.values():
        ordinal, new_name = column.get("ordinal") or 0, column.get("columnNewName") or ""
        if not isinstance(new_name, str) or whole_number(ordinal, 9) is None:
            raise FormatError(
                f"DETAILS of {entry.table_name!r} at {entry.change_seq} has a column whose "
                "columnNewName is not text or whose ordinal is not a number: "
                f"{shown(dict(column))}"
            )
    return columns


def _action(column: JsonObject) -> str:
    return str(column.get("action") or "").upper()
