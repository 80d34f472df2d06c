"""The arguments and results of a dialect's operations on a log (spec/event-log.md 8.1, 11)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from eventlog.core.catalog import Column, ObjectClass
from eventlog.core.catalog.masks import Mask
from eventlog.core.ranges import Ranges, RecordSet, joined
from eventlog.core.rows.checks import is_of
from eventlog.core.values import Kind
from eventlog.model import EventType
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.sql_files import Binds, PlainRow, PlainRows

DuePlace = tuple[str | None, int]
"""The place of a row among due rows: event_time, as text by the log's clock, and record_id."""


@dataclass(frozen=True, slots=True)
class Window:
    """The window to read: which rows of status N, in record_id order."""

    first: int
    """The first record_id."""
    last: int | None
    """The last record_id, None = no bound."""
    limit: int | None
    """The maximum number of rows, None = no limit."""
    skipped_user: str | None = None
    """The perpetrator whose rows are left out (``loopback_action = keep``), None = nobody."""
    value_bytes: int | None = None
    """The maximum number of bytes of a row's values, None = no bound. With a bound each row has one
    more field, ``left_out``: the number of bytes of the values if they were left out, None if the
    row has its values.
    """
    gaps: Ranges | None = None
    """The ascending ranges of the rows to read, instead of ``first`` and ``last``."""
    any_status: bool = False
    """True if all rows in ``gaps`` that have one of the statuses N, S, W, E and F are read, from
    every user, instead of only rows of status N.
    """

    def outside(self, passed: RecordSet, last: int) -> Window:
        """Return the window of the rows from its ``first`` to ``last`` that are not in a set.

        Gaps that are close together are read as one: the index contains only rows of status N, so
        reading through a short range costs less than another search.
        """
        gaps = passed.gaps(last, max(self.first, 1) - 1) if last >= self.first else []
        return replace(self, gaps=tuple(gaps if self.any_status else joined(gaps, _SHORT)))

    def parameters(self, greatest: int) -> dict[str, object]:
        """Return the binds of a window's statement: ``first`` (at least 1), ``last``, ``limit``,
        and ``perpetrator`` if a user's rows are left out.

        ``greatest`` is the greatest possible record_id. With ``gaps`` the bounds belong to the last
        gap; the dialect binds the other gaps as it binds ranges.
        """
        if self.gaps is not None:
            first, last = self.gaps[-1] if self.gaps else (1, 0)
        else:
            first, last = max(self.first, 1), greatest if self.last is None else self.last
        bounds: dict[str, object] = {
            "first": first,
            "last": min(last, greatest),
            "limit": greatest if self.limit is None else self.limit,
        }
        return (
            bounds
            if self.skipped_user is None or self.any_status
            else bounds | {"perpetrator": self.skipped_user.rstrip(" ")}
        )

    @property
    def statement(self) -> str:
        """The name of the statement that reads the window, in a dialect's ``log.sql``."""
        has_gaps = self.any_status or (self.gaps is not None and len(self.gaps) > 1)
        return "read_gaps" if has_gaps else "read_window"

    @property
    def statuses(self) -> str:
        """The name of the condition on the rows of the window, in a dialect's ``log.sql``."""
        if self.any_status:
            return "of_any_status"
        return "of_new" if self.skipped_user is None else "of_new_left"


ANY_STATUS: Final = Window(1, None, None, any_status=True)
"""The window of all rows except rows with a reserved status."""

_SHORT: Final = 300
"""Two gaps are read as one if at most this many record_ids lie between them: about as many as an
index block has entries.
"""


R = TypeVar("R", bound=tuple[Any, ...])


def counted_rows(
    rows: Sequence[R], in_flight: Container[int], skipped_user: str | None = None
) -> Sequence[R]:
    """Return the rows of a window that count for publishing: the rows that are not in flight, and
    whose perpetrator is not ``skipped_user`` (spec/event-log.md 8.1, 8.3).

    ``skipped_user`` is None if the statement that read the window has left out the user's rows, or
    if rows of all perpetrators count.
    """
    if in_flight:
        rows = [row for row in rows for record_id, *_ in (row,) if record_id not in in_flight]
    if skipped_user is not None:
        rows = [
            row for row in rows for _, _, perpetrator, *_ in (row,)
            if not is_of(perpetrator, skipped_user)
        ]  # fmt: skip
    return rows


class Queue(NamedTuple):
    """The waiting rows: the number of rows of status N, and the age in seconds of the row with the
    oldest event_time. The age is None if there is no such row.
    """

    rows: int
    oldest_seconds: float | None


class NotDue(NamedTuple):
    """The rows that are not due yet, among the first ``rows_checked`` rows of status N: their
    number, the earliest of their times as text, and the seconds until that time. ``next_time`` and
    ``next_seconds`` are None if there are no such rows.
    """

    rows: int
    next_time: str | None
    next_seconds: float | None
    rows_checked: int


class TimedRow(NamedTuple):
    """A row, and whether its time is known and not after a given time."""

    record_id: int
    is_before: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects to log again. Without ``where`` and ``keys``: the whole class."""

    class_name: str
    event_type: EventType
    """5 or 6; 4 stands for deleted objects."""
    where: str | None = None
    """The operator's SQL that selects rows."""
    keys: str | None = None
    """A text that identifies the file of keys, such as its hash."""

    def __str__(self) -> str:
        what = "whole class" if self.where is None and self.keys is None else "keys of a file"
        if self.where is not None:
            what = f"where {self.where}"
        if self.event_type is EventType.DELETE_ROW:
            what = "deleted objects"
        return f"{what}, as type {int(self.event_type)}"

    @property
    def digest(self) -> str:
        """The digest that identifies the selection's row in ``<log>_resync``, as 64 hex digits."""
        parts = (self.class_name, str(int(self.event_type)), self.where or "", self.keys or "")
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class ResyncBatch(NamedTuple):
    """The result of one batch: the number of rows written, the number of keys without an object,
    and the position reached.

    ``reached`` is the last key as canonical table_key text. For a file of keys, it is the number of
    the last line read. For deleted objects, it is the record_id of the last row that names a
    deleted object. ``present`` is the number of objects that exist.
    """

    rows: int
    missing: int
    reached: str | None
    is_last: bool
    present: int = 0
    is_complete: bool = True
    """False if a key of this run could not be read, so that the due resync is not finished."""


class WalkedKeys(NamedTuple):
    """The canonical keys of the next objects of a walk, in its order."""

    keys: list[str]
    unreadable: Sequence[tuple[int, str]] = ()
    """The keys that cannot be read (spec/event-log.md 5.6). Each item consists of the number of
    ``keys`` before the unreadable key, and the unreadable key. In the unreadable key, a lone
    surrogate stands for each byte that is no character.
    """


KeyValues: TypeAlias = tuple[Any, ...]
"""The values of a key: an integer for each integer column, a text for each other column."""

KeyOrder: TypeAlias = str
"""The order of the values of a key column. Two columns with equal ``KeyOrder`` sort their values
alike, also in different databases.
"""

INTEGERS: Final[KeyOrder] = "integers"
UUIDS: Final[KeyOrder] = "texts of UUIDs"
UTF_8: Final[KeyOrder] = "bytes of UTF-8"
"""The order of texts by their bytes, which is also their order in Python and SQLite."""

ReadRange: TypeAlias = Callable[[KeyValues | None, KeyValues | None, int], PlainRows]
"""A function that returns the first objects of a table after a key and up to another key (None = no
bound), in the order of their keys. Its last argument is the maximum number of objects.

Each object is a tuple: the values of the key, then the texts of the attributes as ``query_back``
returns them; an attribute of a view with several rows for the object has a list of texts. A row
with a NULL in its key is left out.
"""


FindKeys: TypeAlias = Callable[[Sequence[KeyValues]], PlainRows]
"""A function that returns, for the given keys, the objects that exist. It returns them in the order
of the keys, in the form of ``ReadRange``.
"""

PresentKeys: TypeAlias = Callable[[Sequence[KeyValues]], Collection[KeyValues]]
"""A function that returns the given keys whose objects exist."""


def range_binds(behind: KeyValues | None, last: KeyValues | None) -> Binds:
    """Return the values of the bounds of a range of keys for binding: ``behind0``, ``last0``, and
    so on.
    """
    return {
        f"{name}{i}": value
        for name, key in (("behind", behind), ("last", last))
        for i, value in enumerate(key or ())
    }


class RangeReader(NamedTuple):
    """How the objects of a class are read by ranges of keys. If two readers have equal ``orders``,
    the same bounds select the same keys. ``orders`` has one order per key column.
    """

    orders: tuple[KeyOrder, ...]
    read: ReadRange
    find: FindKeys | None = None
    """None if objects cannot be read by the values of their keys."""
    present: PresentKeys | None = None
    """None if objects cannot be found by the values of their keys."""


def masked_ranges(reader: RangeReader, masks: Sequence[Mask | None]) -> RangeReader:
    """Return a reader of the same objects that masks their attributes; a mask None = not masked."""

    def masked(objects: Sequence[PlainRow]) -> PlainRows:
        width = len(objects[0]) - len(masks) if objects else 0
        return [
            (
                *one[:width],
                *(
                    value if mask is None else _masked_value(mask, value)
                    for mask, value in zip(masks, one[width:], strict=True)
                ),
            )
            for one in objects
        ]

    def read(behind: KeyValues | None, last: KeyValues | None, limit: int) -> PlainRows:
        return masked(reader.read(behind, last, limit))

    find = reader.find
    return reader._replace(
        read=read, find=None if find is None else lambda keys: masked(find(keys))
    )


def _masked_value(mask: Mask, value: Any) -> Any:
    """Return the masked text of an attribute, or the masked texts if a view has several rows."""
    if isinstance(value, list):
        return [None if one is None else mask(one) for one in value]
    return None if value is None else mask(value)


def order_of_values(column: Column) -> KeyOrder | None:
    """Return the order of a key column that is the same in all databases: integers of a limited
    size, and UUIDs by their texts. None if it depends on the database.
    """
    if column.type.kind is Kind.INTEGER and column.type.bits > 0:
        return INTEGERS
    return UUIDS if column.type.kind is Kind.UUID else None


@dataclass(frozen=True, slots=True)
class Walk:
    """A class whose objects are logged again, in the order of their keys."""

    log: LogTable
    schema: str | None
    cls: ObjectClass
    selection: Selection
