"""The columns and rows of a change table: the header columns, the columns that the bits of masks
mean, and the conversion between ``ChangeRow`` and the values in a table or file (formats/qlik.md
1.1, 2.1).

The function that ``row_reader`` returns runs once for each row. So the place of each header column
is found once for a table, and an ``itemgetter`` reads the header columns. The price: the function
is a closure over one reader per column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from eventlog.core.values.moments import EPOCH, aware_utc, naive_utc
from eventlog.core.values.typed_values import whole_number
from eventlog.errors import FormatError, NotExpressible, shown
from eventlog.model import Lob, Names, Row, Value
from eventlog.qlik import masks, sequence
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.masks import ByteOrder, MaskForm, MaskLayout
from eventlog.qlik.sequence import transaction_from_text, transaction_text

if TYPE_CHECKING:
    from eventlog.qlik.tables.stored_tables import ChangeTableOptions, WriteOptions

T = TypeVar("T")

# --- the columns of a table -----------------------------------------------------------------------


DEFAULT_HEADERS: Final = (
    "change_seq", "change_oper", "change_mask", "stream_position", "operation", "transaction_id",
    "timestamp",
)  # fmt: skip
PARTITION_NAME: Final = "partition_name"
HEADERS: Final = (*DEFAULT_HEADERS, PARTITION_NAME)

TEXT_LENGTHS: Final = {
    "change_seq": sequence.LENGTH,
    "change_oper": 1,
    "stream_position": 128,
    "operation": 12,
    "transaction_id": 32,
    PARTITION_NAME: 31,
}
"""The lengths, in characters, of the header columns that hold text."""


@dataclass(frozen=True, slots=True, eq=False)
class TableLayout:
    """The columns of a change table in order."""

    columns: Names
    headers: Mapping[str, int]
    """The place of each header column, by its name without prefix."""
    data: tuple[tuple[str, int], ...]
    """The data columns with their places."""
    masks: MaskLayout
    """The data column that each bit of a mask means."""

    @property
    def names(self) -> Names:
        """The names of the data columns in order."""
        return tuple(name for name, _ in self.data)

    def for_each(
        self,
        columns: Iterable[QlikColumn],
        of_header: Callable[[str, str], T],
        of_data: Callable[[QlikColumn], T],
    ) -> list[T]:
        """Return the result of ``of_header`` or ``of_data`` for each column, in the order of the
        table.

        ``of_header`` gets two names of a header column: its name in the table, and its name without
        prefix. ``of_data`` gets the data column in ``columns``, or a text column if ``columns``
        lacks it.
        """
        by_name = {column.name: column for column in columns}
        header_at = {place: header for header, place in self.headers.items()}
        return [
            of_header(name, header_at[place])
            if place in header_at
            else of_data(by_name.get(name) or QlikColumn(name, "STRING"))
            for place, name in enumerate(self.columns)
        ]


def header_name(column: str, header_prefix: str) -> str | None:
    """Return the name, without prefix, of the header that a column holds, None for a data column.

    Letter case is ignored.
    """
    folded, prefix = column.casefold(), header_prefix.casefold()
    name = folded.removeprefix(prefix)
    return name if folded.startswith(prefix) and name in HEADERS else None


def table_layout(columns: Sequence[str], options: ChangeTableOptions, what: str) -> TableLayout:
    """Return the layout of a table with these columns. ``what`` names the table in messages. Raises
    FormatError for a duplicate column.
    """
    header_prefix, mask_offset = options.header_prefix, options.mask_offset
    headers: dict[str, int] = {}
    data = []
    for place, column in enumerate(columns):
        header = header_name(column, header_prefix)
        if header is None:
            data.append((column, place))
        elif header in headers:
            raise FormatError(
                f"{what} has the header column {header_prefix}{header} twice; set another "
                "header_prefix"
            )
        else:
            headers[header] = place
    first = data[0][1] if data else len(columns)
    name_at = {place: name for name, place in data}
    behind = [name_at.get(place) for place in range(first, len(columns))]
    mask_layout = masks.layout(behind, first if mask_offset is None else mask_offset)
    return TableLayout(tuple(columns), headers, tuple(data), mask_layout)


# --- one row --------------------------------------------------------------------------------------


OPERATIONS: Final = {
    "I": "INSERT",
    "U": "UPDATE",
    "D": "DELETE",
    "B": "BEFOREIMAGE",
    "T": "TRUNCATE",
}
"""The name of the operation for each change_oper."""

_LETTERS: Final = {operation: letter for letter, operation in OPERATIONS.items()}
_NO_COLUMNS: Final[frozenset[str]] = frozenset()


class ChangeRow(NamedTuple):
    """One row of a change table."""

    change_seq: str
    change_oper: str
    """I, U, D, B or T."""
    mask: frozenset[str] | None
    """The columns whose bits are set, None if the table has no masks."""
    stream_position: str | None
    transaction_id: str | None
    """The transaction, None if it is unknown. An unknown transaction is stored as 32 zeros."""
    timestamp: datetime | None
    """The aware time in UTC, None if it is unknown. An unknown time is stored as 1970-01-01."""
    partition_name: str | None
    data: Row
    """The values of the data columns. A column that is missing is NULL."""


StoredValues: TypeAlias = Callable[[ChangeRow], list[Any]]
"""A function that returns the values of a row as they are stored."""


def row_order(row: ChangeRow) -> tuple[str, bool]:
    """Return the key that sorts rows by change_seq, and a before image before its update."""
    return row.change_seq, row.change_oper != "B"


# --- reading --------------------------------------------------------------------------------------


def row_reader(
    layout: TableLayout,
    *,
    byteorder: ByteOrder = "little",
    counters: Counter[str],
    masks_at: Callable[[str], MaskLayout] | None = None,
    what: str,
) -> Callable[[Sequence[Any]], ChangeRow]:
    """Return the function that reads the rows of one change table from values in the order of its
    columns. A header that is missing is read as NULL.

    A mask may be binary or hex text, change_seq may be text or a whole number, and timestamp may be
    a datetime or text. ``masks_at`` returns the mask layout at a change_seq, None if the present
    columns are the only layout. ``counters`` counts ``mask_extra_bits``. ``what`` names the table
    in messages. The function raises FormatError.
    """
    headers = layout.headers
    has_mask = "change_mask" in headers
    seq, oper, mask, stream, operation, transaction, time, partition = (
        itemgetter(headers[name]) if name in headers else _null for name in HEADERS
    )
    data = layout.data

    def read(values: Sequence[Any]) -> ChangeRow:
        change_seq = _sequence_text(seq(values), what)
        letter = _letter(oper(values), operation(values), change_seq, what)
        columns: frozenset[str] | None = None
        if has_mask:
            mask_layout = layout.masks if masks_at is None else masks_at(change_seq)
            columns, extra = masks.read(mask_layout, mask(values), byteorder)
            if extra:
                counters["mask_extra_bits"] += extra
        return ChangeRow(
            change_seq,
            letter,
            columns,
            _text(stream(values)),
            transaction_from_text(_text(transaction(values))),
            _moment(time(values), what),
            _text(partition(values)),
            {name: values[place] for name, place in data},
        )

    return read


def _null(values: Sequence[Any]) -> None:
    return None


def _sequence_text(value: Any, what: str) -> str:
    if isinstance(value, str):
        return sequence.check(value)
    if value is None:
        return sequence.check("")
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        number = whole_number(value, sequence.LENGTH)
        if number is not None:
            return sequence.check(f"{number:0{sequence.LENGTH}}")
    raise FormatError(
        f"change_seq {shown(value)} of {what} is neither text nor a whole number of 35 digits"
    )


def _letter(change_oper: Any, operation: Any, change_seq: str, what: str) -> str:
    """Return the letter of the operation, which is in one of the two columns or in both."""
    letter = None if change_oper is None else str(change_oper).strip().upper()
    named = None if operation is None else str(operation).strip().upper()
    if not letter:
        letter = _LETTERS.get(named or "")
    elif named and OPERATIONS.get(letter) != named and letter in OPERATIONS:
        raise FormatError(
            f"row {change_seq} of {what} has change_oper {letter} but operation {shown(named)}",
            code="operation_mismatch",
        )
    if letter not in OPERATIONS:
        raise FormatError(
            f"row {change_seq} of {what} has change_oper {shown(change_oper)} and operation "
            f"{shown(operation)}; expected one of "
            f"{', '.join(f'{letter} {name}' for letter, name in OPERATIONS.items())}",
            code="unknown_operation",
        )
    return letter


def header_text(header: str | None, value: Any) -> str | None:
    """Return a member of JSON as text, for Spark's columns; ``header`` is None for a data column.

    Raises FormatError for values that the reader of rows refuses, since this reader would accept
    the text of the values.
    """
    if value is None or isinstance(value, str):
        return value
    if header == "change_mask":
        raise masks.no_mask(value)
    if header == "timestamp" or isinstance(value, dict | list):
        wanted = "timestamp" if header == "timestamp" else "single value"
        raise FormatError(f"{shown(value)} is not a {wanted}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _moment(value: Any, what: str) -> datetime | None:
    """Return the aware moment of a stored timestamp, None if the time is unknown."""
    if value is None or value == "":
        return None
    try:
        stored = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(stored, datetime):
            raise ValueError  # noqa: TRY004, TRY301 - as for text that is none
        moment = aware_utc(stored)
    except (ValueError, OverflowError):
        raise FormatError(
            f"timestamp {shown(value)} of {what} is not of the form YYYY-MM-DD HH:MM:SS.ffffff"
        ) from None
    return None if moment.replace(tzinfo=None) == EPOCH else moment


# --- writing --------------------------------------------------------------------------------------


def row_writer(
    layout: TableLayout, mask_form: MaskForm, options: WriteOptions, what: str
) -> StoredValues:
    """Return the function that makes the stored values of a row, in the order of the table's
    columns. The timestamp is naive and in UTC; a Lob becomes its bytes.

    The function raises NotExpressible for a multi-valued attribute, and for a stream position of
    more than 128 characters.
    """
    headers = sorted(
        (place, name) for name, place in layout.headers.items() if name != PARTITION_NAME
    )
    write_mask = mask_writer(layout.masks, mask_form, options)
    writer_of = _HEADER_WRITERS | {
        "change_mask": lambda row: write_mask(row.mask or _NO_COLUMNS),
        "stream_position": _stream_position_writer(what),
    }
    writers = [writer_of[name] for _, name in headers]
    names = layout.names
    partitioned = PARTITION_NAME in layout.headers
    places = [place for place, _ in headers] + [place for _, place in layout.data]
    places += [layout.headers[PARTITION_NAME]] if partitioned else []
    order = (
        None if places == sorted(places) else [places.index(place) for place in range(len(places))]
    )

    def write(row: ChangeRow) -> list[Any]:
        values: list[Any] = list(map(row.data.get, names))
        if not _COMPOUND.isdisjoint(map(type, values)):
            values = [_plain(name, value, what) for name, value in zip(names, values, strict=True)]
        stored = [header(row) for header in writers] + values
        if partitioned:
            stored.append(row.partition_name)
        return stored if order is None else [stored[place] for place in order]

    return write


_MAX_MASKS: Final = 4096
_COMPOUND: Final = frozenset({tuple, Lob})


def _plain(name: str, value: Value, what: str) -> Any:
    if isinstance(value, Lob):
        return value.data
    if isinstance(value, tuple):
        raise NotExpressible(
            f"{name!r} of {what} has several values, which a change table cannot hold"
        )
    return value


def mask_writer(
    layout: MaskLayout, mask_form: MaskForm, options: WriteOptions
) -> Callable[[frozenset[str]], str | bytes | None]:
    """Return the function that makes the stored mask of a set of columns. The function remembers
    masks, since the same few sets repeat. The options ``byteorder`` and ``empty_mask`` apply to
    binary masks only.
    """
    empty, byteorder = None if options.empty_mask == "null" else b"", options.byteorder

    @lru_cache(maxsize=_MAX_MASKS)
    def stored(columns: frozenset[str]) -> str | bytes | None:
        if mask_form == "text":
            return masks.table_text(layout, layout.bits(columns))
        return masks.table_bytes(layout, layout.bits(columns), byteorder) if columns else empty

    return stored


def _stream_position_writer(what: str) -> Callable[[ChangeRow], str | None]:
    longest = TEXT_LENGTHS["stream_position"]

    def write(row: ChangeRow) -> str | None:
        position = row.stream_position
        if position is not None and len(position) > longest:
            raise NotExpressible(
                f"stream position {shown(position)} of row {row.change_seq} of {what} has "
                f"{len(position)} characters, but the column takes at most {longest}",
                code="value_range",
            )
        return position

    return write


@lru_cache(maxsize=256)  # the rows of a transaction share one time
def _naive(moment: datetime | None) -> datetime:
    # formats/qlik.md 1.1 stores an unknown time as the epoch.
    return EPOCH if moment is None else naive_utc(moment)


_HEADER_WRITERS: Final[dict[str, Callable[[ChangeRow], Any]]] = {
    "change_seq": itemgetter(0),
    "change_oper": itemgetter(1),
    "operation": lambda row: OPERATIONS[row.change_oper],
    "transaction_id": lambda row: transaction_text(row.transaction_id),
    "timestamp": lambda row: _naive(row.timestamp),
}
