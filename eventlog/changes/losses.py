"""The parts of changes that a format loses by design. These losses are counted while changes are
written, and reported at the end (spec/change-model.md 5.2).

A format declares its losses as the attribute ``loses``. The actual losses of a conversion depend on
its changes: if the source has no commit times, no commit time is lost. A writer counts by itself
what it refuses or skips.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from enum import StrEnum
from typing import Final

from eventlog.changes.images import written_columns
from eventlog.errors import number_of
from eventlog.model import Change, ChangeOp, Row, changes_nothing, old_key


class Loss(StrEnum):
    """A part of a change that a format may have no place for. The value is the part's name in
    reports.
    """

    COMMIT_TIME = "commit_time"
    MICROSECONDS = "microseconds"
    FRACTIONS = "fractions"
    USER = "user"
    TRANSACTION = "transaction"
    TRANSACTION_ID = "transaction_id"
    POSITION = "position"
    KEY = "key"
    CHANGED = "changed"
    BEFORE = "before"
    NULLS = "nulls"
    UNCHANGED = "unchanged"
    UNCHANGED_BEFORE = "unchanged_before"
    DELETED = "deleted"
    REFRESH = "refresh"
    KEY_CHANGE = "key_change"


NO_LOSS: Final = frozenset({
    *("rows_loopback", "rows_not_taken", "rows_of_reserved_status", "groups_gone", "groups_empty"),
    *("metadata_messages", "tombstones", "other_events"),
    *("open_transactions", "log_order", "datetime_lenient", "mask_contradictions"),
})  # fmt: skip
"""The counters of a report that do not count losses. These counters count input that holds no
change to convert, and values that were read in spite of an irregularity (spec/change-model.md 5.2).
"""


def loss_counter(loses: frozenset[Loss], lost: Counter[str]) -> Callable[[Change], None]:
    """Return a function that counts, in ``lost``, the parts of a change that a format with the
    losses ``loses`` has no place for. Call the function with every change that is converted.
    """
    fields = [(loss.value, is_lost) for loss, is_lost in _COUNTS.items() if loss in loses]
    counts_columns = not _OF_COLUMNS.isdisjoint(loses)
    names = {loss: loss.value for loss in _OF_COLUMNS & loses}

    def count(change: Change) -> None:
        for name, is_lost in fields:
            if is_lost(change):
                lost[name] += 1
        if counts_columns:
            for loss, number in _columns(change):
                if number and loss in names:
                    lost[names[loss]] += number

    return count


def in_words(lost: Mapping[str, int]) -> str:
    """Return the losses as a text, empty if nothing was lost: ``commit time and user of 41 changes;
    3 columns without a value``.
    """
    by_number: dict[int, list[str]] = {}
    for loss, words in _FIELDS.items():
        if number := lost.get(loss):
            by_number.setdefault(number, []).append(words)
    phrases = [
        f"{_listed(fields)} of {number_of(number, 'change')}"
        for number, fields in by_number.items()
    ]
    phrases += [
        f"{number_of(number, noun)} {rest}"
        for loss, (noun, rest) in _COUNTED.items()
        if (number := lost.get(loss))
    ]
    return "; ".join(phrases)


def _listed(words: list[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


_FIELDS: Final[Mapping[Loss, str]] = {
    Loss.COMMIT_TIME: "commit time",
    Loss.MICROSECONDS: "microseconds of the commit time",
    Loss.FRACTIONS: "fraction of the commit time",
    Loss.USER: "user",
    Loss.TRANSACTION: "transaction",
    Loss.TRANSACTION_ID: "transaction id",
    Loss.POSITION: "position",
    Loss.KEY: "names of the key columns",
    Loss.CHANGED: "names of the changed columns",
    Loss.BEFORE: "row before",
}
_COUNTED: Final[Mapping[Loss, tuple[str, str]]] = {
    Loss.NULLS: ("column", "without a value in new rows"),
    Loss.UNCHANGED: ("unchanged column", "of updated rows"),
    Loss.UNCHANGED_BEFORE: ("unchanged column", "of rows before updates"),
    Loss.DELETED: ("column", "of deleted rows"),
    Loss.REFRESH: ("row", "of a first load, which become ordinary inserts"),
    Loss.KEY_CHANGE: ("change", "of a key, which become a delete and an insert"),
}
"""For each loss: the noun for the things that are counted, and the words after the noun."""


# --- what is counted of a change ------------------------------------------------------------------


def _is_finer_than(unit: int) -> Callable[[Change], bool]:
    def is_finer(change: Change) -> bool:
        time = change.commit_time
        return time is not None and time.microsecond % unit != 0

    return is_finer


def _has_transaction(change: Change) -> bool:
    numbered = change.event_number, change.last_in_transaction
    return change.transaction_id is not None or numbered != (None, None)


def _is_before_unusable(change: Change) -> bool:
    """Return True if the row before an update lacks a column that may have changed."""
    if change.op is not ChangeOp.UPDATE or change.before is None:
        return False
    changed = (change.after or {}).keys() if change.changed is None else change.changed
    return not changed <= change.before.keys()


def _hides_changed(change: Change) -> bool:
    """Return True if the old value of a changed column is unknown or equals its new value."""
    if change.changed is None:
        return False
    before, after = change.before, change.after or {}
    return before is None or any(
        name not in before or before[name] == after.get(name) for name in change.changed
    )


_COUNTS: Final[Mapping[Loss, Callable[[Change], bool]]] = {
    Loss.COMMIT_TIME: lambda change: change.commit_time is not None,
    Loss.MICROSECONDS: _is_finer_than(1_000),
    Loss.FRACTIONS: _is_finer_than(1_000_000),
    Loss.USER: lambda change: change.user is not None,
    Loss.TRANSACTION: _has_transaction,
    Loss.TRANSACTION_ID: lambda change: change.transaction_id is not None,
    Loss.POSITION: lambda change: change.position is not None,
    Loss.KEY: lambda change: change.key is not None,
    Loss.CHANGED: _hides_changed,
    Loss.BEFORE: _is_before_unusable,
    Loss.REFRESH: lambda change: change.op is ChangeOp.REFRESH,
    Loss.KEY_CHANGE: lambda change: change.op is ChangeOp.UPDATE and _is_moved(change),
}


def _is_moved(change: Change) -> bool:
    """Return True if the row before an update has another key."""
    before = change.before
    return (
        before is not None
        and any(before.get(name, value) != value for name, value in change.key or ())
        and old_key(change) != change.key
    )


def _columns(change: Change) -> Iterator[tuple[Loss, int]]:
    """Yield the losses of ``_OF_COLUMNS`` that a change can have, each with the number of columns
    lost.
    """
    key = {name for name, _ in change.key or ()}
    if change.op is ChangeOp.UPDATE and not _is_moved(change):
        if changes_nothing(change):  # such a change is counted as a whole, and is not written
            return
        if change.changed is None or change.extras.get("changed_unknown"):
            written = key.union(written_columns(change))
        else:
            written = key.union(change.changed.intersection(change.after or ()))
        yield Loss.UNCHANGED, _others(change.after, written)
        yield Loss.UNCHANGED_BEFORE, _others(change.before, written)
        return
    if change.after is not None:
        yield Loss.NULLS, [*change.after.values()].count(None)
    yield Loss.DELETED, _others(change.before, key)


def _others(image: Row | None, names: Set[str]) -> int:
    return 0 if image is None else len(image) - sum(map(image.__contains__, names))


_OF_COLUMNS: Final = frozenset({Loss.NULLS, Loss.UNCHANGED, Loss.UNCHANGED_BEFORE, Loss.DELETED})
