"""The columns of a change table: which are headers, which are data, and which bit is whose (spec/qlik.md 1.1, 2.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eventlog.errors import ConfigError, FormatError
from eventlog.qlik.ddl_history import ColumnHistory
from eventlog.qlik.errors import MissingHeader
from eventlog.qlik.masks import MaskLayout, check_capacity

DEFAULT_HEADERS: Final = (
    "change_seq", "change_oper", "change_mask", "stream_position", "operation", "transaction_id", "timestamp",
)  # fmt: skip
PARTITION_NAME: Final = "partition_name"
HEADERS: Final = (*DEFAULT_HEADERS, PARTITION_NAME)

TEXT_LENGTHS: Final = {
    "change_seq": 35,
    "change_oper": 1,
    "stream_position": 128,
    "operation": 12,
    "transaction_id": 32,
    PARTITION_NAME: 31,
}
"""Characters of the header columns that are text."""

MASK_BYTES: Final = 128


@dataclass(frozen=True, slots=True, eq=False)
class TableLayout:
    """The columns of a change table in order.

    ``headers``: place of each header column by its name without prefix; ``data``: the data columns with their places;
    ``masks``: which bit is which data column.
    """

    columns: tuple[str, ...]
    headers: Mapping[str, int]
    data: tuple[tuple[str, int], ...]
    masks: MaskLayout

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the data columns in order."""
        return tuple(name for name, _ in self.data)


def header_name(column: str, header_prefix: str) -> str | None:
    """The header that a column is, without prefix; None for a data column. Letter case does not count."""
    folded, prefix = column.casefold(), header_prefix.casefold()
    name = folded.removeprefix(prefix)
    return name if folded.startswith(prefix) and name in HEADERS else None


def read_layout(
    columns: Sequence[str], *, header_prefix: str = "header__", mask_offset: int | None = None, what: str
) -> TableLayout:
    """The layout of a change table that is there. ``mask_offset``: columns in front of the first data column, instead
    of those that are. ``what`` is the table, for messages.

    Raises MissingHeader where it lacks change_seq or both of change_oper and operation, FormatError for a column that
    stands twice.
    """
    headers: dict[str, int] = {}
    data = []
    for place, column in enumerate(columns):
        header = header_name(column, header_prefix)
        if header is None:
            data.append((column, place))
        elif header in headers:
            raise FormatError(f"{what} has the header column {header_prefix}{header} twice; name another header_prefix")
        else:
            headers[header] = place
    for alternatives in (("change_seq",), ("change_oper", "operation")):
        if not any(header in headers for header in alternatives):
            names = " or ".join(header_prefix + header for header in alternatives)
            raise MissingHeader(f"{what} has no column {names}; correct header_prefix, or have the column stored")
    first = data[0][1] if data else len(columns)
    own = {place: name for name, place in data}
    behind = [own.get(place) for place in range(first, len(columns))]
    places = (*(None,) * (first if mask_offset is None else mask_offset), *behind)
    return TableLayout(tuple(columns), headers, tuple(data), MaskLayout(places))


def new_layout(
    data_columns: Sequence[str],
    *,
    headers: Sequence[str] = DEFAULT_HEADERS,
    header_prefix: str = "header__",
    mask_offset: int | None = None,
    partitioned: bool = False,
    what: str,
) -> TableLayout:
    """The layout of a change table that we write: headers, data columns, and partition_name last.

    Raises MaskTooWide, and FormatError for a source column whose name would be taken for a header.
    """
    for column in data_columns:
        if header_name(column, header_prefix) is not None:
            raise FormatError(f"column {column!r} of {what} would be read as a header; choose another header_prefix")
    front = len(headers)
    columns = [*(header_prefix + header for header in headers), *data_columns]
    places = {header: place for place, header in enumerate(headers)}
    if partitioned:
        places[PARTITION_NAME] = len(columns)
        columns.append(header_prefix + PARTITION_NAME)
    masks = MaskLayout((*(None,) * (front if mask_offset is None else mask_offset), *data_columns))
    check_capacity(masks)
    return TableLayout(tuple(columns), places, tuple((name, front + i) for i, name in enumerate(data_columns)), masks)


def check_headers(headers: Sequence[str]) -> tuple[str, ...]:
    """The option ``headers``: a choice of the first seven, each once, in any order. Raises ConfigError."""
    if isinstance(headers, str) or not isinstance(headers, Sequence):
        raise ConfigError(f"headers is a list of header names, not {headers!r}")
    for header in headers:
        if header == PARTITION_NAME:
            raise ConfigError("partition_name is written by the option partitioned, not by headers")
        if header not in DEFAULT_HEADERS or list(headers).count(header) > 1:
            raise ConfigError(f"header {header!r} is unknown or stands twice; known: {', '.join(DEFAULT_HEADERS)}")
    return tuple(headers)


def masks_by_history(layout: TableLayout, history: ColumnHistory) -> Callable[[str], MaskLayout]:
    """The mask layout that was valid at a change_seq (spec/qlik.md 4)."""
    front = next((place for place, name in enumerate(layout.masks.places) if name is not None), layout.masks.width)
    layouts = {columns: MaskLayout((*(None,) * front, *columns)) for columns in history.lists}
    return lambda change_seq: layouts[history.in_force(change_seq)]
