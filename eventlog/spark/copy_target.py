"""What a batch of changes says of each object in the end, and what a table has to be able to do to
follow it: the protocol of the targets of live copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import types as t

from eventlog.spark.arrow_rows import structs_of
from eventlog.spark.copy_types import Columns, Note

Key = tuple[Any, ...]
"""The values of an object's key, in the order of its columns."""


class LastWord(NamedTuple):
    """The result of a batch for one object."""

    is_gone: bool
    """True if the object is deleted."""
    is_whole: bool
    """True if a column that ``values`` does not name is NULL; otherwise it stays as it is."""
    values: Mapping[str, Any]


GONE: Final = LastWord(is_gone=True, is_whole=True, values={})


class KeyedChange(NamedTuple):
    """A change of an object: its key, what the change says, and what the log tells of it."""

    key: Key
    word: LastWord
    operation: str
    position: int
    commit_time: datetime | None


def last_words(changes: Iterable[tuple[Key, LastWord]]) -> dict[Key, LastWord]:
    """Return by key the result that changes in queue order have for each object.

    An update of an object that the batch has deleted makes it anew. Rows of one INSERT that lie far
    apart are several adds, of one batch or of several (spec/event-log.md 6): each sets the columns
    that it has, as an update does.
    """
    words: dict[Key, LastWord] = {}
    for key, word in changes:
        before = words.get(key)
        if before is not None and not word.is_whole:
            word = LastWord(
                is_gone=False, is_whole=before.is_whole, values={**before.values, **word.values}
            )
        words[key] = word
    return words


# --- a target -------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """A batch of a query: the query's name, and the batch's number in it."""

    query: str
    number: int


class Nulled:
    """The number of values that a copy has as NULL because their types have no such value: dates
    before Christ or after the year 9999, infinite ones, and NaN of numbers with a size.
    """

    def __init__(self) -> None:
        self.number = 0

    def add(self, number: int, /) -> None:
        """Count so many more."""
        self.number += number


class Loading(NamedTuple):
    """A load of a copy: its note, the columns, and the rows. ``nulled`` counts while these are
    read.
    """

    note: Note
    columns: Columns
    rows: Iterator[pa.RecordBatch]
    nulled: Nulled


class Held(NamedTuple):
    """What a target holds of a query: the number of its last batch, and the note of the copy."""

    number: int
    note: Note


class Files(Protocol):
    """The files of one state of a table, which tasks read: it goes to them as bytes.

    ``count`` is the number of files, ``names`` are the columns, ``note`` is the text of the note,
    None of a table that has no commit yet.
    """

    @property
    def count(self) -> int: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def note(self) -> str | None: ...

    def rows(self, numbers: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files of these numbers, from 0 on."""


class Target(Protocol):
    """A table that a live copy can be written to.

    The number of a batch stands in the same commit as its rows, and of two writers one fails.
    """

    def beside(self, suffix: str) -> Target:
        """Return the table that has the same name with a suffix."""

    def number_done(self, query: str, content: str) -> Held | None:
        """Return the last batch of a query that the table holds; None if it holds none.

        ``content`` describes the source of the copy. Raises CopyRefused for a table with other
        content.
        """

    def load(self, batch: Batch, content: str, loading: Loading) -> None:
        """Replace the whole table by a load, as a batch; create it if it is missing."""

    def merge(
        self,
        batch: Batch,
        columns: Columns,
        held: Note,
        source: MergeSource,
        newest: datetime | None,
    ) -> None:
        """Bring the columns of the table to those of the class, each value the same, then merge the
        rows of ``source``, as a batch.

        ``held`` is the note that the table has. ``newest`` is the commit time of the batch's last
        change, if the log has it.
        """

    def append(
        self,
        batch: Batch,
        content: str,
        schema: pa.Schema,
        note: Note,
        rows: Iterable[pa.RecordBatch],
        behind: int | None,
    ) -> None:
        """Append rows, as a batch; create the table if it is missing, and bring its columns to
        those of ``schema``, each value the same.

        ``behind`` is the number of the query's last batch that the table has to have: with another
        one somebody else has written, and nothing is appended.
        """

    def rows(
        self, column: str | None = None, values: Collection[Any] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in whose column one of the values stands; without a column all rows."""

    def files(self) -> Files | None:
        """Return the files of the table as it is now; None if there is no table."""

    def clear(self, keep: timedelta) -> None:
        """Remove the files that no reader of the last ``keep`` needs; many small files become
        one.
        """

    def compact(self) -> None:
        """Put small files together by one commit, if there are many."""


MANY_FILES: Final = 100
"""The number of files from which on small ones are put together: batches of inserts leave one each.
"""


def plain_column(columns: Columns) -> str | None:
    """Return a column of the key by which files can be searched: of numbers or texts, None if it
    has none.
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
    """Return keys with the values by which a table has them."""
    types = t.StructType([columns.types[name] for name in columns.key])
    rows = [dict(zip(columns.key, key, strict=True)) for key in keys]
    return [tuple(row.values()) for row in structs_of(rows, types, "the copy").to_pylist()]


# --- the rows of a merge --------------------------------------------------------------------------


class MergeSource(NamedTuple):
    """The rows of a merge: the columns of the class, for each column whether it is set, and whether
    the object is deleted. ``sets`` and ``is_gone`` are the names of these further columns.
    """

    rows: pa.Table
    sets: Mapping[str, str]
    is_gone: str
    nulled: int
    """The number of values that are NULL because their types have no such value."""


def merge_source(columns: Columns, words: Mapping[Key, LastWord]) -> MergeSource:
    """Return the rows that merge the last words on objects."""
    rows = [
        {**word.values, **dict(zip(columns.key, key, strict=True))} for key, word in words.items()
    ]
    nulled, names = Nulled(), columns.types.names
    table = pa.Table.from_struct_array(structs_of(rows, columns.types, "the copy", nulled))
    prefix = _unused_prefix(names)
    sets, is_gone = {name: f"{prefix}sets {name}" for name in names}, f"{prefix}is gone"
    for name, its_flag in sets.items():
        is_set = [word.is_whole or name in word.values for word in words.values()]
        table = table.append_column(its_flag, pa.array(is_set, pa.bool_()))
    flags = pa.array([word.is_gone for word in words.values()], pa.bool_())
    return MergeSource(table.append_column(is_gone, flags), sets, is_gone, nulled.number)


def _unused_prefix(names: Collection[str]) -> str:
    """Return a prefix that no name has."""
    prefix = "_"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix
