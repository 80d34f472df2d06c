"""The result that a batch of changes has for each object, and what is passed to the tables of live
copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import types as t

from eventlog.core.clock import monotonic
from eventlog.spark.copies.copy_types import Columns, Note
from eventlog.spark.session.arrow_rows import structs_of
from eventlog.spark.session.in_tasks import Batches

Key = tuple[Any, ...]
"""The values of an object's key, in the order of its columns."""


Values = Mapping[str, Any]
"""The values of a row by column."""


class LatestChange(NamedTuple):
    """The result that a batch has for one object."""

    is_gone: bool
    """True if the object is deleted."""
    is_whole: bool
    """True if columns that are not in ``values`` are NULL; otherwise they do not change."""
    values: Values


GONE: Final = LatestChange(is_gone=True, is_whole=True, values={})


class KeyedChange(NamedTuple):
    """A change of an object: the object's key, the result, the operation, and the change's position
    and time in the log.
    """

    key: Key
    change: LatestChange
    operation: str
    position: int
    commit_time: datetime | None


def latest_changes(changes: Iterable[tuple[Key, LatestChange]]) -> dict[Key, LatestChange]:
    """Return the result that changes have for each object, by key. The changes are in queue order.

    An update of an object that the batch has deleted creates the object again. Rows of one INSERT
    that are far apart are several adds, in one batch or in several (spec/event-log.md 6): each add
    sets its own columns, as an update does.
    """
    latest: dict[Key, LatestChange] = {}
    for key, change in changes:
        before = latest.get(key)
        if before is not None and not change.is_whole:
            change = LatestChange(
                is_gone=False, is_whole=before.is_whole, values={**before.values, **change.values}
            )
        latest[key] = change
    return latest


# --- a target -------------------------------------------------------------------------------------


class CopyBatch(NamedTuple):
    """A batch of a query: the query's name, and the number of the batch in the query.

    ``done`` is the set of the log's rows that the stream has read at the end of the batch, as text;
    empty if the set is unknown.
    """

    query: str
    number: int
    done: str = ""


class Nulled:
    """The number of values that are NULL in a copy because its types have no such value: dates
    before Christ or after the year 9999, infinite dates, and NaN of decimals.
    """

    def __init__(self) -> None:
        self.number = 0

    def add(self, number: int, /) -> None:
        """Add a number to the count."""
        self.number += number


class CopyLoad(NamedTuple):
    """A load of a copy: its note, the columns, and the rows. ``nulled`` counts while the rows are
    read.
    """

    note: Note
    columns: Columns
    rows: Batches
    nulled: Nulled


class LastBatch(NamedTuple):
    """The last batch of a query in a target: its number, and the note of the copy at that time."""

    number: int
    note: Note


_DAY: Final = 86_400.0
_SEARCHED: Final[dict[str, float]] = {}
"""The times at which this process last searched for files that killed writers left, by table."""


def may_search(table: str) -> bool:
    """Return True if files that killed writers left may be searched: once a day for each table."""
    last = _SEARCHED.get(table)
    if last is not None and monotonic() - last < _DAY:
        return False
    _SEARCHED[table] = monotonic()
    return True


MANY_FILES: Final = 100
"""The least number of files at which small files are compacted: each batch of inserts
adds a file.
"""


def plain_column(columns: Columns) -> str | None:
    """Return a key column of numbers or texts, whose statistics show which files to read; None if
    there is no such column.
    """
    return next(
        (
            name
            for name in columns.key
            if isinstance(columns.types[name].dataType, t.LongType | t.StringType)
        ),
        None,
    )


def stored_keys(columns: Columns, keys: Sequence[Key]) -> list[Key]:
    """Return keys with their values as a table stores them."""
    types = t.StructType([columns.types[name] for name in columns.key])
    rows = [dict(zip(columns.key, key, strict=True)) for key in keys]
    return [tuple(row.values()) for row in structs_of(rows, types, "the copy").to_pylist()]


# --- the rows of a merge --------------------------------------------------------------------------


class MergeSource(NamedTuple):
    """The rows of a merge: the columns of the class, a flag per column if the column is set, and a
    flag if the object is deleted. ``sets`` and ``is_gone`` are the names of the flags.
    """

    rows: pa.Table
    sets: Mapping[str, str]
    is_gone: str
    nulled: int
    """The number of values that are NULL because their types have no such value."""


def merge_source(columns: Columns, latest: Mapping[Key, LatestChange]) -> MergeSource:
    """Return the rows that merge the latest change of each object."""
    rows = [
        {**change.values, **dict(zip(columns.key, key, strict=True))}
        for key, change in latest.items()
    ]
    nulled, names = Nulled(), columns.types.names
    table = pa.Table.from_struct_array(structs_of(rows, columns.types, "the copy", nulled))
    prefix = "_"  # longer until no column begins with it
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    sets, is_gone = {name: f"{prefix}sets {name}" for name in names}, f"{prefix}is gone"
    for name, its_flag in sets.items():
        is_set = [change.is_whole or name in change.values for change in latest.values()]
        table = table.append_column(its_flag, pa.array(is_set, pa.bool_()))
    flags = pa.array([change.is_gone for change in latest.values()], pa.bool_())
    return MergeSource(table.append_column(is_gone, flags), sets, is_gone, nulled.number)
