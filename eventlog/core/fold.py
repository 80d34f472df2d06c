"""Folding: good rows -> groups, each of which becomes at most one event (spec/event-log.md 6, 8.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from eventlog.core.catalog import ObjectId
from eventlog.core.checks import CheckedRow

_FAMILY = (0, 1, 2, 2, 0, 1, 2, 1, 2)
"""By event type: 1 = add {1, 5, 7}, 2 = modify {2, 3, 6, 8}, 0 = delete, which never folds."""

Group: TypeAlias = list[CheckedRow]
"""The rows of one object that fold together, in queue order, at least one. Not changed once ``fold`` has returned."""


def fold(rows: Iterable[CheckedRow], fold_distance: int, fold_span: int) -> list[Group]:
    """Groups in the order of their first rows. Distances are of record_ids; ``fold_span`` 0 = no bound."""
    groups: list[Group] = []
    newest: dict[ObjectId, Group] = {}
    for row in rows:
        record_id, event_type, object_id, _, _, _ = row
        group = newest.get(object_id)
        if group is not None:
            last_id, last_type, _, _, _, _ = group[-1]
            family = _FAMILY[event_type]
            if family and family == _FAMILY[last_type] and abs(record_id - last_id) <= fold_distance:
                first_id, _, _, _, _, _ = group[0]
                if not fold_span or abs(record_id - first_id) <= fold_span:
                    group.append(row)
                    continue
        newest[object_id] = group = [row]
        groups.append(group)
    return groups


def first_id(group: Group) -> int:
    """The record_id of a group's first row: its place in the queue."""
    record_id, *_ = group[0]
    return record_id


def object_of(group: Group) -> ObjectId:
    """What a group is about."""
    _, _, object_id, _, _, _ = group[0]
    return object_id


def first_open(groups: Sequence[Group], window_end: int, fold_distance: int, fold_span: int) -> int:
    """How many groups a full window may send: the index of the first group that a later row may still join.

    ``window_end`` is the record_id of the window's last row, whatever that row was.
    """
    return next(open_groups(groups, window_end, fold_distance, fold_span), len(groups))


def open_groups(groups: Sequence[Group], window_end: int, fold_distance: int, fold_span: int) -> Iterator[int]:
    """The indices of the groups, of rows in record_id order, that a row behind ``window_end`` may still join
    (spec/event-log.md 8.2).
    """
    following = window_end + 1
    # An object's newest group has its last row: where that lies too far back, so do those of its other groups.
    near: list[tuple[int, int, ObjectId, Group]] = []
    for index, group in enumerate(groups):
        last_id, last_type, object_id, _, _, _ = group[-1]
        if following - last_id <= fold_distance:
            near.append((index, last_type, object_id, group))
    newest = {object_id: index for index, _, object_id, _ in near}
    for index, last_type, object_id, group in near:
        if (
            last_type != 4
            and newest[object_id] == index
            and (not fold_span or following - first_id(group) <= fold_span)
        ):
            yield index
