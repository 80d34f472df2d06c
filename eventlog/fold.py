"""Folding: good rows -> groups, each of which becomes at most one event (spec/event-log.md 6, 8.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from eventlog.catalog import ObjectClass
from eventlog.checks import CheckedRow

_new: Final = tuple.__new__  # a NamedTuple from a tuple of its fields, in half the time

_FAMILY = (0, 1, 2, 2, 0, 1, 2, 1, 2)
"""By event type: 1 = add {1, 5, 7}, 2 = modify {2, 3, 6, 8}, 0 = delete, which never folds."""


class Group(NamedTuple):
    """The rows of one object that fold together, in queue order. Not changed once ``fold`` has returned."""

    object_class: ObjectClass
    key: str
    rows: list[CheckedRow]


def fold(rows: Iterable[CheckedRow], fold_distance: int, fold_span: int) -> list[Group]:
    """Groups in the order of their first rows. Distances are of record_ids; ``fold_span`` 0 = no bound."""
    groups: list[Group] = []
    newest: dict[tuple[ObjectClass, str], Group] = {}
    for row in rows:
        object_id = row.object_class, row.key
        group = newest.get(object_id)
        if group is not None:
            members = group.rows
            last = members[-1]
            family = _FAMILY[row.event_type]
            if (
                family
                and family == _FAMILY[last.event_type]
                and abs(row.record_id - last.record_id) <= fold_distance
                and (not fold_span or abs(row.record_id - members[0].record_id) <= fold_span)
            ):
                members.append(row)
                continue
        group = newest[object_id] = _new(Group, (row.object_class, row.key, [row]))
        groups.append(group)
    return groups


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
    near = [
        (index, group) for index, group in enumerate(groups) if following - group.rows[-1].record_id <= fold_distance
    ]
    newest = {(group.object_class, group.key): group for _, group in near}
    for index, group in near:
        if (
            group.rows[-1].event_type != 4
            and (not fold_span or following - group.rows[0].record_id <= fold_span)
            and newest[group.object_class, group.key] is group
        ):
            yield index
