"""What a batch of changes says of each object in the end, and what a table has to be able to do to
follow it: the protocol of the targets of live copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from eventlog.spark.arrow_rows import structs_of
from eventlog.spark.copy_types import Columns, Note

Key = tuple[Any, ...]
"""The values of an object's key, in the order of its columns."""


class LastWord(NamedTuple):
    """The result of a batch for one object.

    ``is_gone``: the object is deleted. ``is_whole``: a column that ``values`` does not name is
    NULL; otherwise such a column stays as it is.
    """

    is_gone: bool
    is_whole: bool
    values: Mapping[str, Any]


GONE: Final = LastWord(is_gone=True, is_whole=True, values={})

KeyedChange = tuple[Key, LastWord]
"""The key of an object, and what one change says of it."""


def last_words(changes: Iterable[KeyedChange]) -> dict[Key, LastWord]:
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


class Held(NamedTuple):
    """What a target holds of a query: the number of its last batch, and the note of the copy."""

    number: int
    note: Note


class Target(Protocol):
    """A table that a live copy can be written to.

    The number of a batch stands in the same commit as its rows, and of two writers one fails.
    """

    def number_done(self, query: str, content: str) -> Held | None:
        """Return the last batch of a query that the table holds; None if it holds none.

        ``content`` describes the source of the copy. Raises CopyRefused for a table with other
        content.
        """

    def load(
        self,
        batch: Batch,
        content: str,
        schema: pa.Schema,
        note: Note,
        rows: Iterable[pa.RecordBatch],
    ) -> None:
        """Replace the whole table by rows, as a batch; create it if it is missing."""

    def merge(
        self,
        batch: Batch,
        columns: Columns,
        held: Note,
        words: Mapping[Key, LastWord],
        newest: datetime | None,
    ) -> None:
        """Bring the columns of the table to those of the class, each value the same, then merge the
        last words on objects, as a batch.

        ``held`` is the note that the table has. ``newest`` is the commit time of the batch's last
        change, if the log has it.
        """

    def clear(self, keep: timedelta) -> None:
        """Remove the files that no reader of the last ``keep`` needs."""


# --- the rows of a merge --------------------------------------------------------------------------

IS_GONE: Final = "is gone"
SETS: Final = "sets "
"""The prefix of the columns in a merge's source that say whether a column is set."""


def merge_source(columns: Columns, words: Mapping[Key, LastWord]) -> pa.Table:
    """Return the rows of a merge: the columns, for each column whether it is set, and whether the
    object is deleted.
    """
    rows = [
        {**word.values, **dict(zip(columns.key, key, strict=True))} for key, word in words.items()
    ]
    table = pa.Table.from_struct_array(structs_of(rows, columns.types, "the copy"))
    for name in columns.types.names:
        is_set = [word.is_whole or name in word.values for word in words.values()]
        table = table.append_column(SETS + name, pa.array(is_set, pa.bool_()))
    return table.append_column(
        IS_GONE, pa.array([word.is_gone for word in words.values()], pa.bool_())
    )
