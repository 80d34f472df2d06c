"""Fold valid rows into groups, each of which becomes at most one event (spec/event-log.md 6,
8.2).

``fold`` is a hot path: one pass over tuples unpacked by position, one dictionary look-up for each
row, type families in a tuple that is indexed by type, and groups that are plain lists of rows. The
price: a group has no methods, and ``first_id`` and ``object_of`` read it by position.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from eventlog.core.catalog import ObjectId
from eventlog.core.rows.checks import INSERT_FIELD, INSERT_FIELD_QUERY_BACK, CheckedRow

AT_A_TIME: Final = 10_000
"""The number of rows that are folded together: few enough for the processor's cache."""

FAMILY = (0, 1, 2, 2, 0, 1, 2, 1, 2)
"""The family of each event type: 1 = add {1, 5, 7}, 2 = modify {2, 3, 6, 8}, 0 = delete, which
never folds.
"""

INSERT_DISTANCE: Final = 1000
INSERT_SPAN: Final = 10_000
"""The distance in record_ids up to which rows of an add always fold, even if the options are
smaller. An insert may have one row per column; if these rows became two adds, the second add would
replace the object.
"""

Group: TypeAlias = list[CheckedRow]
"""The rows of one object that fold together, in queue order, at least one.

The group is complete when ``fold`` returns.
"""


class _Bounds(NamedTuple):
    """The largest distances of record_ids by family: from a row to the last row of a group, and
    from a row to the first row of a group.
    """

    distances: tuple[int, int, int]
    spans: tuple[int, int, int]


def _bounds(fold_distance: int, fold_span: int) -> _Bounds:
    span = fold_span or sys.maxsize
    return _Bounds((-1, reach(fold_distance), fold_distance), (-1, reach_of_span(span), span))


def reach(fold_distance: int) -> int:
    """Return the largest distance at which two successive rows may fold."""
    return max(fold_distance, INSERT_DISTANCE)


def reach_of_span(fold_span: int) -> int:
    """Return the largest distance between the first and the last row of a group; 0 = no bound."""
    return fold_span and max(fold_span, INSERT_SPAN)


def fold(rows: Iterable[CheckedRow], fold_distance: int, fold_span: int) -> list[Group]:
    """Return the groups in the order of their first rows. Distances are in record_ids;
    ``fold_span`` 0 = no bound.
    """
    distances, spans = _bounds(fold_distance, fold_span)
    groups: list[Group] = []
    newest: dict[ObjectId, Group] = {}
    for row in rows:
        record_id, event_type, object_id, _, _, _ = row
        group = newest.get(object_id)
        if group is not None:
            last_id, last_type, _, _, _, _ = group[-1]
            family = FAMILY[event_type]
            if family == FAMILY[last_type] and abs(record_id - last_id) <= distances[family]:
                first_id, _, _, _, _, _ = group[0]
                if abs(record_id - first_id) <= spans[family]:
                    group.append(row)
                    continue
        newest[object_id] = group = [row]
        groups.append(group)
    return groups


def is_rest_of_insert(group: Group, row: CheckedRow, fold_distance: int, fold_span: int) -> bool:
    """Return True if a row is a further column of an insert and folds into this group of its
    object.
    """
    _, event_type, _, column, _, _ = row
    columns = {attribute for _, _, _, attribute, _, _ in group}
    return (
        event_type in (INSERT_FIELD, INSERT_FIELD_QUERY_BACK)
        and column not in columns
        and len(fold([*group, row], fold_distance, fold_span)) == 1
    )


def first_id(group: Group) -> int:
    """Return the record_id of a group's first row: its place in the queue."""
    record_id, *_ = group[0]
    return record_id


def object_of(group: Group) -> ObjectId:
    """Return the object of a group."""
    _, _, object_id, _, _, _ = group[0]
    return object_id


def open_groups(
    groups: Sequence[Group], window_end: int, fold_distance: int, fold_span: int
) -> Iterator[int]:
    """Yield the indices of the groups that a row after ``window_end`` may still join
    (spec/event-log.md 8.2).

    The groups must have been folded from rows in record_id order.
    """
    distances, spans = _bounds(fold_distance, fold_span)
    following, farthest = window_end + 1, max(distances)
    # The newest group of an object has the object's last row. If that row is too far back, so are
    # the rows of its other groups.
    near: list[tuple[int, int, ObjectId, Group]] = []
    for index, group in enumerate(groups):
        last_id, last_type, object_id, _, _, _ = group[-1]
        if following - last_id <= farthest:
            near.append((index, last_type, object_id, group))
    newest = {object_id: index for index, _, object_id, _ in near}
    for index, last_type, object_id, group in near:
        last_id, *_ = group[-1]
        family = FAMILY[last_type]
        if (
            newest[object_id] == index
            and following - last_id <= distances[family]
            and following - first_id(group) <= spans[family]
        ):
            yield index


class RowFolder:
    """Folds rows that arrive in chunks, in queue order (spec/event-log.md 8.2).

    A group is returned as soon as no later row can join it, so that a reader of a long log has few
    rows in memory at a time. ``rows`` are the rows whose groups have not been returned, in queue
    order. ``add`` folds them as soon as there are ``at_a_time`` rows.
    """

    def __init__(self, fold_distance: int, fold_span: int, at_a_time: int = AT_A_TIME) -> None:
        self.rows: list[CheckedRow] = []
        self._distances = fold_distance, fold_span
        self._at_a_time = self._enough = at_a_time

    def add(self, rows: Sequence[CheckedRow]) -> list[Group]:
        """Add rows. Once there are enough rows to fold, return the groups that no later row can
        join.
        """
        self.rows += rows
        if len(self.rows) < self._enough:
            return []
        last_id, *_ = self.rows[-1]
        groups = self.close(last_id)
        # If groups stay open for long, folding all rows again for every chunk is wasteful.
        self._enough = max(self._at_a_time, 2 * len(self.rows))
        return groups

    def close(self, read_to: int | None) -> list[Group]:
        """Return the groups that no row after record_id ``read_to`` can join, in queue order; None
        = all groups.
        """
        groups = fold(self.rows, *self._distances)
        closed = len(groups)
        if read_to is not None:
            closed = next(open_groups(groups, read_to, *self._distances), closed)
        self.rows = sorted(chain.from_iterable(groups[closed:]), key=itemgetter(0))
        return groups[:closed]
