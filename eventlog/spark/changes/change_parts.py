"""Find the groups of a part of a batch, exactly and without a shuffle (spec/spark-changes.md 2).

A batch is folded like a window (spec/event-log.md 6, 8.2). A part of a batch is a range of
record_ids, and has the groups whose first row is in the range. To find these groups, a task reads
rows beyond the ends of the part: before its first row, back to the beginning of the runs of its
objects, and after its last row, until none of its groups is open. Usually few rows beyond the ends
are read, since a run ends at a delete, between adds and modifies, and where rows of its object are
too far apart to fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from eventlog.core.catalog import ObjectId
from eventlog.core.ranges import Range
from eventlog.core.rows.checks import CheckedRow
from eventlog.core.rows.events import ids_of
from eventlog.core.rows.fold import (
    FAMILY,
    Group,
    RowFolder,
    first_id,
    fold,
    object_of,
    open_groups,
    reach,
)

Read = Callable[[int, int], Iterable[Sequence[CheckedRow]]]
"""A function that yields the valid rows of a batch between two record_ids, in queue order, in
chunks.
"""


class Folding(NamedTuple):
    """The rules by which a batch is folded, with its ``lowest`` and ``highest`` record_id."""

    fold_distance: int
    fold_span: int
    lowest: int
    highest: int

    @property
    def reach(self) -> int:
        """The largest distance between two successive rows that may fold."""
        return reach(self.fold_distance)


def rows_before(
    read: Read, rows: Sequence[CheckedRow], first: int, how: Folding
) -> list[CheckedRow]:
    """Return, in queue order, the rows before ``first`` that affect how ``rows`` fold.

    ``rows`` are the rows of the batch from ``first`` on, at least as far as ``how.reach``. The
    returned rows and ``rows`` together fold into the same groups as in the whole batch.
    """
    distance = how.reach
    seen: set[ObjectId] = set()
    # The record_id of the earliest row of a run that may continue before the rows read so far, and
    # its family.
    runs: dict[ObjectId, tuple[int, int]] = {}
    for record_id, event_type, object_id, _, _, _ in rows:
        if record_id - first >= distance:
            break
        if object_id not in seen:
            seen.add(object_id)
            if FAMILY[event_type]:
                runs[object_id] = record_id, FAMILY[event_type]
    found: list[CheckedRow] = []
    step, high = distance, first - 1
    while runs and high >= how.lowest:
        low = max(how.lowest, high - step + 1)
        chunk = [row for fragment in read(low, high) for row in fragment if row[2] in runs]
        for row in reversed(chunk):
            record_id, event_type, object_id, _, _, _ = row
            run = runs.get(object_id)
            if run is None:
                continue
            earliest, family = run
            if FAMILY[event_type] != family or earliest - record_id > distance:
                del runs[object_id]
            else:
                runs[object_id] = record_id, family
                found.append(row)
        runs = {object_id: run for object_id, run in runs.items() if run[0] - (low - 1) <= distance}
        high, step = low - 1, 2 * step
    found.reverse()
    return found


def groups_of_part(read: Read, part: Range, how: Folding) -> Iterator[list[Group]]:
    """Yield the groups whose first row is in the part, in queue order, in chunks."""
    first, last = part
    folder = RowFolder(how.fold_distance, how.fold_span)

    def own(groups: list[Group]) -> list[Group]:
        if groups and (first_id(groups[0]) < first or first_id(groups[-1]) > last):
            return [group for group in groups if first <= first_id(group) <= last]
        return groups

    begin = first
    if first > how.lowest:
        head_end = min(last, first + how.reach)
        head = list(chain.from_iterable(read(first, head_end)))
        folder.rows = rows_before(read, head, first, how)
        yield own(folder.add(head))
        begin = head_end + 1
    if begin <= last:
        for fragment in read(begin, last):
            yield own(folder.add(fragment))
    read_to = last
    while read_to < how.highest:
        groups = fold(folder.rows, how.fold_distance, how.fold_span)
        still_open = open_groups(groups, read_to, how.fold_distance, how.fold_span)
        waiting = {object_of(groups[i]) for i in still_open if first <= first_id(groups[i])}
        if not waiting:
            break
        following = min(how.highest, read_to + how.reach)
        folder.rows += [
            row
            for fragment in read(read_to + 1, following)
            for row in fragment
            if row[2] in waiting
        ]
        read_to = following
    yield own(folder.close(None))


class HeldBack(NamedTuple):
    """The rows that a full window holds back: all rows from ``first`` on, except ``ids``, which
    belong to groups that began earlier.
    """

    first: int
    ids: Sequence[int]


def held_back(read: Read, last: int, how: Folding) -> HeldBack | None:
    """Return the rows that a batch cut after ``last`` holds back (spec/event-log.md 8.2); None = no
    group is open.
    """
    groups = _groups_from(read, max(how.lowest, last - how.reach), last, how)
    is_open = next(open_groups(groups, last, how.fold_distance, how.fold_span), None)
    if is_open is None:
        return None
    first = first_id(groups[is_open])
    begun_before = (
        group for group in _groups_from(read, first, last, how) if first_id(group) < first
    )
    return HeldBack(
        first,
        [record_id for group in begun_before for record_id in ids_of(group) if record_id > first],
    )


def _groups_from(read: Read, first: int, last: int, how: Folding) -> list[Group]:
    """Return the groups with rows from ``first`` to ``last``."""
    rows = list(chain.from_iterable(read(first, last)))
    return fold([*rows_before(read, rows, first, how), *rows], how.fold_distance, how.fold_span)
