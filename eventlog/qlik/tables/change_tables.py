"""Convert rows of change tables to changes, and changes to rows. The module also makes the live
view, which is the state of a table after its changes (formats/qlik.md 1.2, 6, 7;
spec/change-model.md 2 to 4).

Every row passes through ``change_of`` or ``images_of``. So names of the module stand for members of
enumerations, whose look-up is slow, and rows are shared: an image that equals the data of its row
is the row's own dict, so no code may change this dict afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from eventlog.changes.images import refuse_without_row
from eventlog.changes.keys import key_in
from eventlog.errors import FormatError, NotExpressible
from eventlog.files.text import Refuse
from eventlog.model import (
    Change,
    ChangeOp,
    Names,
    Row,
    Value,
    changes_nothing,
    differing,
    full_name,
)
from eventlog.qlik import sequence
from eventlog.qlik.columns import QlikColumn, key_of, lobs_of
from eventlog.qlik.sequence import Waiting, WriterState, last_sequence_of
from eventlog.qlik.tables.change_rows import ChangeRow, row_order
from eventlog.qlik.tables.stored_tables import Reading, WriteOptions

_INSERT = ChangeOp.INSERT
_UPDATE = ChangeOp.UPDATE
_DELETE = ChangeOp.DELETE
_TRUNCATE = ChangeOp.TRUNCATE
_REFRESH = ChangeOp.REFRESH
_OPS: Final = {"I": _INSERT, "U": _UPDATE, "D": _DELETE, "T": _TRUNCATE}  # by change_oper

# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A change table to read."""

    schema: str | None
    table: str
    """The name that the table has in changes; ``schema`` is its schema."""
    key: Names | None = None
    """The key columns in key order, None if the key is unknown."""
    lobs: frozenset[str] = frozenset()
    """The LOB columns."""
    absent_nulls: Literal["null", "absent"] = "absent"
    """The meaning of a NULL whose mask bit is not set. ``null`` means NULL; ``absent`` means that
    the value is unknown, unless the before image has a value (spec/change-model.md 3.3).
    """
    task: str | None = None
    """The task that the ``extras`` of changes name."""


ReadTable: TypeAlias = tuple[SourceTable, Iterator[ChangeRow]]
"""The description of a change table that is read, and the rows of the table."""


def key_from_deletes(rows: Iterable[ChangeRow]) -> Names | None:
    """Return the columns in the mask of the first DELETE, in the order of its data: these are the
    key columns. Return None if there is no DELETE.
    """
    for row in rows:
        if row.change_oper == "D" and row.mask:
            return tuple(name for name in row.data if name in row.mask)
    return None


def source_table(
    schema: str | None, table: str, reading: Reading, rows: Iterable[ChangeRow]
) -> SourceTable:
    """Return the description by which the rows of a table become changes.

    An unknown key is searched in ``rows``.
    """
    name, options = full_name(schema, table), reading.options
    return SourceTable(
        schema,
        table,
        reading.keys.get(name) or key_from_deletes(rows),
        lobs_of(reading.columns.get(name, ())),
        options.absent_nulls,
        options.task,
    )


def refuse(error: FormatError) -> None:
    """Raise the error. With this function as ``skip``, no row is skipped."""
    raise error


def changes_of_rows(
    rows: Iterable[ChangeRow],
    table: SourceTable,
    *,
    input_complete: bool,
    skip: Refuse = refuse,
) -> Iterator[Change | Waiting]:
    """Yield the changes of a table's rows for ``count_events``. Rows must be in change_seq order,
    with a before image directly before its update.

    A before image at the end of an input that is not declared complete waits for its update. Any
    other unpaired before image is passed to ``skip`` as a FormatError. ``skip`` raises this error,
    or returns so that the row is skipped.
    """
    before: ChangeRow | None = None
    for row in rows:
        if before is not None and (row.change_oper != "U" or row.change_seq != before.change_seq):
            skip(_unpaired(before, table))
            before = None
        if row.change_oper == "B":
            before = row
        else:
            yield change_of(before, row, table)
            before = None
    if before is not None and input_complete:
        skip(_unpaired(before, table))
    elif before is not None:
        yield Waiting(before.change_seq, before.transaction_id)


def _unpaired(before: ChangeRow, table: SourceTable) -> FormatError:
    what = full_name(table.schema, table.table)
    return FormatError(
        f"before image {before.change_seq} of {what} has no update row (U) of the same change_seq",
        code="unpaired_before_image",
    )


def change_of(before: ChangeRow | None, row: ChangeRow, table: SourceTable) -> Change:
    """Return the change of a row, including the before image of the row if there is one.

    ``count_events`` adds the event counters.
    """
    op, key = _OPS[row.change_oper], table.key
    before_image: Row | None = None
    after_image: Row | None = None
    changed: frozenset[str] | None = None
    if op is _UPDATE:
        before_image, after_image, changed = _images_of_update(before, row, table)
    elif op is _INSERT:
        after_image = _after(row, None, table) if row.mask else row.data
    elif op is _DELETE:
        key = key_from_deletes((row,)) if key is None else key
        before_image = _deleted(row, key)
    image = before_image if after_image is None else after_image
    return Change(
        table.schema,
        table.table,
        op,
        None if not key or image is None else key_in(image, key),
        before_image,
        after_image,
        changed,
        row.change_seq,
        row.transaction_id,
        commit_time=row.timestamp,
        extras=_extras(row, table, after_image if op is _UPDATE else None),
    )


def _images_of_update(
    before: ChangeRow | None, row: ChangeRow, table: SourceTable
) -> tuple[Row | None, Row, frozenset[str] | None]:
    """Return the row before an update, the row after the update, and the changed columns. The row
    before is None if it is unknown. Columns that are unknown after the update are left out of both
    rows.
    """
    image_before = None if before is None else before.data
    image_after = _after(row, image_before, table)
    if image_before is not None and len(image_after) < len(row.data):
        image_before = {name: old for name, old in image_before.items() if name in image_after}
    return image_before, image_after, _changed(row, image_before, image_after, table)


def _extras(row: ChangeRow, table: SourceTable, updated: Row | None) -> dict[str, Any]:
    """Return the extras of a change. ``updated`` is the row after an update; it is unknown whether
    its LOB columns have changed.
    """
    extras: dict[str, Any] = {"change_seq": row.change_seq}
    if row.stream_position is not None:
        extras["stream_position"] = row.stream_position
    if row.partition_name is not None:
        extras["partition_name"] = row.partition_name
    if table.task is not None:
        extras["task"] = table.task
    if updated is not None and not table.lobs.isdisjoint(updated):
        extras["changed_unknown"] = sorted(table.lobs.intersection(updated))
    return extras


def _after(row: ChangeRow, before: Row | None, table: SourceTable) -> Row:
    """Return the row after a change. A NULL whose mask bit is not set is unknown and left out,
    except in two cases: ``absent_nulls`` is ``null``, or the row before has a value in the column,
    which the NULL replaces.

    A change holds only what its own rows contain (spec/change-model.md 3.3). The live view, which
    has the object's state, follows the opposite rule (``_updated``).
    """
    mask = row.mask
    if table.absent_nulls == "null" or mask is None:
        return row.data
    return {
        name: value
        for name, value in row.data.items()
        if value is not None
        or name in mask
        or name in table.lobs  # LOB columns have no bit (formats/qlik.md 1.2)
        or (before is not None and before.get(name) is not None)
    }


def _changed(
    row: ChangeRow, before: Row | None, after: Row, table: SourceTable
) -> frozenset[str] | None:
    """Return the changed columns according to the mask or, without masks, according to the
    difference of the images.
    """
    if row.mask is not None:
        changed = row.mask
    else:
        differences = None if before is None else differing(before, after)
        if differences is None:
            return None
        changed = differences
    changed = changed if changed <= after.keys() else changed & after.keys()
    return changed - table.lobs if table.lobs else changed


def _deleted(row: ChangeRow, key: Names | None) -> Row:
    """Return the deleted row: all columns, or only the key if all other columns are NULL
    (spec/change-model.md 3.3).
    """
    if not key or any(value is not None for name, value in row.data.items() if name not in key):
        return row.data
    return {name: row.data.get(name) for name in key}


# --- writing --------------------------------------------------------------------------------------


class TargetTable:
    """A change table to write: the names of its data columns, of its key columns and of its LOB
    columns, and the options for its rows. If there are no key columns, the key columns of each
    change are used.
    """

    __slots__ = ("before_images", "key", "lobs", "name", "names", "partition_of", "refresh")

    def __init__(self, name: str, columns: Sequence[QlikColumn], options: WriteOptions) -> None:
        self.name = name
        self.names = frozenset(column.name for column in columns)
        self.key, self.lobs = frozenset(key_of(columns)), lobs_of(columns)
        self.before_images, self.refresh = options.before_images, options.refresh
        self.partition_of = options.partition_names()


def rows_of(
    change: Change, table: TargetTable, state: WriterState, counters: Counter[str]
) -> tuple[WriterState, tuple[ChangeRow, ...]]:
    """Return the state of the writer after a change, and the rows of the change. Store both
    together (formats/qlik.md 3).

    An update that changes nothing has no row and no number; it is counted as ``no_op_skipped``. A
    REFRESH that does not become an insert has no row and no number, too; it is counted as
    ``refresh_skipped``. Raises NotExpressible for a column that the table lacks, and FormatError
    for a change that does not have its row.
    """
    rows = images_of(change, table, counters)
    if not rows:
        return state, ()
    position, stream_position = change.position, change.position
    if sequence.is_sequence(position):
        assert position is not None
        change_seq, state = position, sequence.raise_to(state, position)
        stream_position = change.extras.get("stream_position")
    else:
        prefix = sequence.time_prefix(change.commit_time)
        state, change_seq = sequence.next_sequence(state, prefix, with_before=len(rows) > 1)
    partition = None if table.partition_of is None else table.partition_of(change_seq)
    return state, tuple(
        ChangeRow(
            change_seq,
            change_oper,
            mask,
            stream_position,
            change.transaction_id,
            change.commit_time,
            partition,
            data,
        )
        for change_oper, mask, data in rows
    )


RowImage = tuple[str, frozenset[str], Row]
"""The change_oper, mask and data of a row."""


def images_of(change: Change, table: TargetTable, counters: Counter[str]) -> tuple[RowImage, ...]:
    """Return the parts of a change's rows that do not depend on earlier rows. The result is empty
    if ``rows_of`` returns no row.

    Raises NotExpressible, FormatError as ``rows_of`` does.
    """
    op = change.op
    if op is _REFRESH and table.refresh == "skip":
        counters["refresh_skipped"] += 1
        return ()
    if op is _UPDATE and _is_no_op(change, table.lobs):
        counters["no_op_skipped"] += 1
        return ()
    refuse_without_row(change)
    if op is _DELETE:
        return (
            ("D", _deleted_columns(change, table), _row(change.before or {}, change.key, table)),
        )
    if op is _TRUNCATE:
        return (("T", _NO_COLUMNS, {}),)
    # refuse_without_row lets only DELETE and TRUNCATE pass without it.
    assert change.after is not None
    after = _row(change.after, change.key, table)
    if op is not _UPDATE:
        columns = table.names if len(after) == len(table.names) else frozenset(after)
        return (("I", columns, after),)
    return _update(change, after, table)


def _update(change: Change, after: Row, table: TargetTable) -> tuple[RowImage, ...]:
    changed = _changed_columns(change, table)
    update = "U", changed, after
    before, key = change.before, change.key
    if not before or not table.before_images:
        return (update,)
    # A changed key column does not show the old key.
    if key and not changed.isdisjoint([name for name, _ in key]):
        key = tuple(part for part in key if part[0] not in changed)
    return ("B", _NO_COLUMNS, _row(before, key, table)), update


def _is_no_op(change: Change, lobs: frozenset[str]) -> bool:
    """Return True if a change is known to change nothing. For a table with LOB columns, only equal
    images show this (spec/change-model.md 4).
    """
    if not changes_nothing(change):
        return False
    return not lobs or (
        change.before is not None and change.after is not None and change.before == change.after
    )


_NO_COLUMNS: frozenset[str] = frozenset()


def _row(image: Row, key: tuple[tuple[str, Value], ...] | None, table: TargetTable) -> Row:
    """Return an image with its missing key columns added, so that every row names its object."""
    for name, _ in key or ():
        if name not in image:
            image = {**dict(key or ()), **image}
            break
    if not image.keys() <= table.names:
        unknown = min(image.keys() - table.names)
        raise NotExpressible(
            f"column {unknown!r} is not in the change table of {table.name!r}; add it to the "
            "option tables, or leave it out at the source"
        )
    return image


def _deleted_columns(change: Change, table: TargetTable) -> frozenset[str]:
    """Return the key columns; for a table without a key, return all columns."""
    if table.key:
        return table.key
    return frozenset(name for name, _ in change.key) if change.key else table.names


def _changed_columns(change: Change, table: TargetTable) -> frozenset[str]:
    changed = change.changed
    if changed is None:
        assert change.after is not None
        changed = differing(change.before, change.after) if change.before is not None else None
        if changed is None:
            changed = frozenset(change.after)
    return changed - table.lobs if table.lobs else changed


# --- the live view --------------------------------------------------------------------------------


Key: TypeAlias = tuple[Value, ...]

_NO_ROW: Row = {}


def live_view(
    base: Iterable[Row],
    changes: Iterable[ChangeRow],
    as_of: datetime | None = None,
    *,
    key: Sequence[str] | None = None,
) -> dict[Key, Row]:
    """Apply the changes up to and including ``as_of`` to ``base``, and return the resulting rows by
    key. ``as_of`` is in UTC if it is naive; None = all changes.

    ``changes`` may come in any order. ``key`` holds the key columns; without ``key``, the mask of
    the first DELETE names them. Raises FormatError if the key remains unknown.
    """
    rows = sorted(changes, key=row_order)
    names = tuple(key) if key is not None else key_from_deletes(rows)
    if not names:
        raise FormatError(
            "cannot determine the key: the change table has no DELETE. Name the key columns"
        )
    state: dict[Key, Row] = {_key(row, names): row for row in base}
    bound = None if as_of is None else last_sequence_of(as_of)
    before: ChangeRow | None = None
    for row in rows:
        if bound is not None and row.change_seq > bound:
            break
        match row.change_oper:
            case "B":
                before = row
                continue
            case "I":
                state[_key(row.data, names)] = row.data
            case "U":
                _update_state(state, before, row, names)
            case "D":
                state.pop(_key(row.data, names), None)
            case _:
                state.clear()
        before = None
    return state


def _update_state(
    state: dict[Key, Row], before: ChangeRow | None, row: ChangeRow, names: Sequence[str]
) -> None:
    """Apply an update to the state. If ``before`` is the row before this update, it has the old key
    of the object.
    """
    old = new = _key(row.data, names)
    if before is not None and before.change_seq == row.change_seq:
        old = _key(before.data, names)
    previous = state.get(old, _NO_ROW)
    if old != new:
        state.pop(old, None)
    state[new] = _updated(row, previous)


def _key(row: Row, names: Sequence[str]) -> Key:
    return tuple(row.get(name) for name in names)


def _updated(row: ChangeRow, previous: Row) -> Row:
    """Return an object's state in the live view after an update (formats/qlik.md 6). A NULL whose
    mask bit is not set was not captured, so the value in the state stays, even if the row before
    has another value. ``_after``, which makes a change, follows the opposite rule.
    """
    mask = row.mask or frozenset()
    updated = {**previous, **dict.fromkeys(mask)}
    for name, value in row.data.items():
        if value is not None:
            updated[name] = value
        else:
            updated.setdefault(name, None)
    return updated
