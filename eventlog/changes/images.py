"""The images of a change: its rows before and after the change, as a format needs them. Unknown
values are refused or filled in. This module also divides changes into transactions
(spec/change-model.md 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

from eventlog.core.catalog import ObjectClass
from eventlog.core.values import ColumnTypes, Kind
from eventlog.core.values.typed_values import typed_by
from eventlog.errors import FormatError, NotExpressible, RowError
from eventlog.model import (
    Change,
    ChangeOp,
    Key,
    Row,
    RowDict,
    Value,
    column_name,
    differing,
    full_name,
    old_key,
)


def refuse_without_row(change: Change) -> None:
    """Raise FormatError for a change whose row is unknown (spec/change-model.md
    3.1, 3.4).
    """
    is_gone = change.op in (ChangeOp.DELETE, ChangeOp.TRUNCATE)
    if (change.before if is_gone else change.after) is not None or (
        is_gone and change.key is not None
    ):
        return
    what = f"{change.op} of {change.table!r} at {change.position}"
    if "part1" in change.extras:
        raise FormatError(
            f"{what} has its row only in raw form; give the reader a `codec`",
            code="needs_row_codec",
        )
    if not is_gone:
        raise FormatError(
            f"{what} has no row; give the reader a connection to its database",
            code="needs_query_back",
        )


@lru_cache(maxsize=1024)
def _columns_with_zone(object_class: ObjectClass) -> ColumnTypes:
    types = column_types(object_class)
    return {name: type for name, type in types.items() if type.kind is Kind.TIMESTAMPTZ}


@lru_cache(maxsize=1024)
def column_types(object_class: ObjectClass) -> ColumnTypes:
    """Return the types of the columns and attributes of a class, by name."""
    types = {column.name: column.type for column in object_class.table.columns}
    return types | {one.name: one.column.type for one in object_class.attributes}


def with_zones(change: Change, object_class: ObjectClass | None) -> Change:
    """Return the change with a zone added to times whose columns have a zone in the catalogue
    (spec/change-model.md 5.1).

    ``object_class`` is the class of the change's table, None = unknown. Formats without zones write
    times with a zone in UTC.
    """
    types = {} if object_class is None else _columns_with_zone(object_class)
    return with_types(change, types, reads_texts=False) if types else change


def with_types(change: Change, types: ColumnTypes, *, reads_texts: bool) -> Change:
    """Return the change with the values of the columns in ``types`` converted to these types. With
    ``reads_texts`` a text is read as the text form of a value; otherwise it stays as it is.
    """

    def of_columns(values: Iterable[tuple[str, Value]]) -> list[tuple[str, Value]]:
        return [
            (name, typed_by(types[name], value))
            if name in types and (reads_texts or not isinstance(value, str))
            else (name, value)
            for name, value in values
        ]

    key, before, after = change.key, change.before, change.after
    return change._replace(
        key=None if key is None else tuple(of_columns(key)),
        before=None if before is None else dict(of_columns(before.items())),
        after=None if after is None else dict(of_columns(after.items())),
    )


def refused_column(change: Change, column: str, error: RowError) -> NotExpressible:
    """Return the error that a writer raises if its format cannot hold the value of a column."""
    return NotExpressible(
        f"{change.op} of {change.table!r}, column {column!r}: {error}", column_name(change, column)
    )


def written_columns(change: Change) -> list[str]:
    """Return the non-key columns with which an UPDATE is written, in the order of ``after``
    (spec/change-model.md 4).

    These are the changed columns. If the changed columns are unknown, they are the columns that
    differ between the rows before and after the change; if the differing columns are also unknown,
    all known columns. The known columns of ``extras["changed_unknown"]`` are added.
    """
    after = change.after or {}
    names = change.changed
    if names is None and change.before is not None:
        names = differing(change.before, after)
    if names is None:
        names = frozenset(after)
    if unknown := change.extras.get("changed_unknown"):
        names = names.union(unknown)
    key = dict(change.key or ())
    return [name for name in after if name in names and name not in key]


Complete: TypeAlias = Callable[[str | None, str, Key | None], Row | None]
"""A function that returns the whole row of (schema, table, key), None if there is no such row
(spec/change-model.md 4).
"""


Count: TypeAlias = Callable[[str], None]
"""A function that is called with a reason, or with the name of a column, to count it."""

FILLED: Final = "filled_null"
"""The reason under which an unknown column is counted if its format writes it as NULL."""


def whole_images(
    change: Change,
    names: frozenset[str],
    complete: Complete | None,
    *,
    needs_before: bool,
    count: Count,
) -> list[RowDict]:
    """Return the rows of a change in a format of whole rows (spec/change-model.md 4); an UPDATE has
    the old and the new row.

    ``names`` are the columns of the table in the target. ``complete`` is called once for unknown
    columns. Unknown columns of a deleted row are NULL, and ``count`` is called for each. With
    ``needs_before`` an UPDATE has an old row even if no old value is known. Raises FormatError if
    the whole row is unknown, and NotExpressible, which names columns that remain unknown or are not
    in ``names``.
    """
    table = full_name(change.schema, change.table)
    if change.before is None and change.after is None and "part1" in change.extras:
        raise FormatError(
            f"a row of {table!r} exists only in raw form; give the reader a `codec`",
            code="needs_row_codec",
        )
    images = _known_images(change, needs_before)
    _refuse_columns_beyond(names, change, images)
    if change.op is ChangeOp.DELETE:
        for name in sorted(names - images[0].keys()):
            count(f"{FILLED} {column_name(change, name)}")
        return [{**dict.fromkeys(names), **images[0]}]
    if all(names <= image.keys() for image in images):
        return images
    return _completed(change, names, images, complete)


def _known_images(change: Change, needs_before: bool) -> list[RowDict]:
    """Return the rows of ``whole_images`` with the known columns of the change."""
    row = change.before if change.op is ChangeOp.DELETE else change.after
    images = [{**dict(change.key or ()), **(row or {})}]
    if change.op is ChangeOp.UPDATE and (change.before or needs_before):
        images.insert(0, {**dict(old_key(change) or ()), **(change.before or {})})
    return images


def _refuse_columns_beyond(names: frozenset[str], change: Change, images: Iterable[Row]) -> None:
    """Raise NotExpressible for a column that is not among the names of the target's columns."""
    for image in images:
        if unknown := image.keys() - names:
            raise NotExpressible(
                f"{change.op} of {full_name(change.schema, change.table)!r} has the column "
                f"{min(unknown)!r}, which the target's description of the table does not list. "
                "Add the column there, with a type that the format has",
                column_name(change, min(unknown)),
            )


def _completed(
    change: Change, names: frozenset[str], images: Iterable[Row], complete: Complete | None
) -> list[RowDict]:
    """Return the rows with their missing columns filled in from the whole row that ``complete``
    returns. Raises FormatError if there is no row, and NotExpressible for columns that the whole
    row lacks.
    """
    table = full_name(change.schema, change.table)
    row = None if complete is None else complete(change.schema, change.table, change.key)
    way_out = "read a format that has whole rows, or pass the writer's option `complete` in Python"
    if row is None and change.after is None:
        raise FormatError(
            f"a change of {table!r} has no image of its row: {way_out}", code="needs_query_back"
        )
    row = row or {}
    for image in images:
        if missing := names - image.keys() - row.keys():
            raise NotExpressible(
                f"{change.op} of {table!r} with key {dict(change.key or ())} lacks the columns "
                f"{', '.join(sorted(missing))}, but the format holds whole rows: {way_out}"
            )
    return [{**{name: row[name] for name in names - image.keys()}, **image} for image in images]


def transactions(changes: Iterable[Change]) -> Iterator[Iterator[Change]]:
    """Yield one iterator per transaction, which yields the changes of the transaction. Read each
    iterator to its end before you take the next iterator.

    A change without a transaction id is a separate transaction. The end of any other transaction is
    detected only by the next change, since a TRUNCATE without a number may follow the last numbered
    change (spec/change-model.md 4).
    """
    coming = iter(changes)
    following: Change | None = None

    def transaction_of(change: Change) -> Iterator[Change]:
        nonlocal following
        yield change
        ended = bool(change.last_in_transaction)
        while change.transaction_id is not None:
            following = next(coming, None)
            if following is None or following.transaction_id != change.transaction_id:
                return
            if ended and (
                following.op is not ChangeOp.TRUNCATE or following.event_number is not None
            ):
                return
            ended = ended or bool(following.last_in_transaction)
            yield following

    while True:
        first = next(coming, None) if following is None else following
        if first is None:
            return
        following = None
        yield transaction_of(first)
