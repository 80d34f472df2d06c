"""Ranges of record_ids, and a set of record_ids that grows from its lower end. In this set a reader
of a log records the rows that it has processed (spec/event-log.md 13.1).
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Final

_first: Final = itemgetter(0)
_last: Final = itemgetter(1)

Range = tuple[int, int]
"""The first and the last of consecutive record_ids."""

Ranges = Sequence[Range]


def to_ranges(ids: Sequence[int]) -> list[Range]:
    """Return record_ids as ranges of consecutive integers, in their order."""
    if not ids:
        return []
    # Most sequences are one range.
    if ids[-1] - ids[0] + 1 == len(ids) and ids == list(range(ids[0], ids[-1] + 1)):
        return [(ids[0], ids[-1])]
    ranges: list[Range] = []
    first = last = ids[0]
    for record_id in islice(ids, 1, None):
        if record_id != last + 1:
            ranges.append((first, last))
            first = record_id
        last = record_id
    ranges.append((first, last))
    return ranges


def ids_of(ranges: Iterable[Range]) -> Iterator[int]:
    """Yield the record_ids of ranges, in their order."""
    return chain.from_iterable(range(first, last + 1) for first, last in ranges)


def length(ranges: Iterable[Range]) -> int:
    """Return the number of record_ids in the ranges."""
    return sum(last - first + 1 for first, last in ranges)


def joined(ranges: Ranges, apart: int) -> Ranges:
    """Return ascending ranges, in which a range is merged into the previous range if it begins at
    most ``apart`` above the end of the previous range.
    """
    found: list[Range] = []
    for first, last in ranges:
        if found and first - found[-1][1] <= apart:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found


def common(some: Ranges, others: Ranges) -> list[Range]:
    """Return the intersection of two ascending lists of ranges."""
    found: list[Range] = []
    i = j = 0
    while i < len(some) and j < len(others):
        first, last = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if first <= last:
            found.append((first, last))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found


def within(ranges: Ranges, first: int, last: int) -> list[Range]:
    """Return the parts of ascending ranges between two record_ids."""
    begin = bisect_left(ranges, first, key=_last)
    found: list[Range] = []
    for low, high in ranges[begin:]:
        if low > last:
            break
        found.append((max(low, first), min(high, last)))
    return found


class RecordSet:
    """A set of record_ids: all record_ids up to ``floor``, and ascending ``ranges`` above the
    floor. No range is adjacent to another or to the floor.
    """

    __slots__ = ("floor", "ranges")

    def __init__(self, floor: int = 0, ranges: Iterable[Range] = ()) -> None:
        self.floor: int = floor
        self.ranges: list[Range] = []
        self.add(ranges)

    @property
    def top(self) -> int:
        """The highest record_id of the set."""
        return self.ranges[-1][1] if self.ranges else self.floor

    @property
    def spans(self) -> list[Range]:
        """The whole set as ranges, including the range up to the floor."""
        return [(1, self.floor), *self.ranges] if self.floor > 0 else self.ranges.copy()

    def __contains__(self, record_id: int) -> bool:
        if record_id <= self.floor:
            return True
        place = bisect_left(self.ranges, record_id, key=_last)
        return place < len(self.ranges) and self.ranges[place][0] <= record_id

    def __repr__(self) -> str:
        return f"RecordSet({self.floor}, {self.ranges})"

    def add(self, ranges: Iterable[Range]) -> None:
        """Add ranges to the set, in any order."""
        own = self.ranges
        for first, last in ranges:
            if last <= self.floor:
                continue
            begin = end = bisect_left(own, first - 1, key=_last)
            while end < len(own) and own[end][0] <= last + 1:
                end += 1
            if begin < end:
                first, last = min(first, own[begin][0]), max(last, own[end - 1][1])
            if first <= self.floor + 1:
                self.floor = last
                del own[:end]
            else:
                own[begin:end] = [(first, last)]

    def copy(self) -> RecordSet:
        """Return a copy of the set."""
        copied = RecordSet(self.floor)
        copied.ranges = self.ranges.copy()
        return copied

    def discard(self, ranges: Iterable[Range]) -> None:
        """Remove ranges from the set, in any order."""
        out, place = sorted(ranges), 0
        kept: list[Range] = []
        for begin, end in self.spans:
            while place < len(out) and out[place][1] < begin:
                place += 1
            following = place
            while following < len(out) and out[following][0] <= end:
                first, last = out[following]
                if begin < first:
                    kept.append((begin, first - 1))
                begin, following = max(begin, last + 1), following + 1
            if begin <= end:
                kept.append((begin, end))
        self.floor = kept.pop(0)[1] if kept and kept[0][0] == 1 else 0
        self.ranges = kept

    def decide(self, last: int, shown: Sequence[int]) -> None:
        """Add all record_ids up to ``last`` except the record_ids in ``shown``. The record_ids in
        ``shown`` ascend, and the set does not have them yet.
        """
        if last <= self.floor:
            return
        place, end = bisect_left(self.ranges, last, key=_last), last
        if place < len(self.ranges) and self.ranges[place][0] <= last + 1:
            end, place = self.ranges[place][1], place + 1
        # Lists: a generator would cost two calls per row.
        begins = [self.floor + 1, *[one + 1 for one in shown]]
        ends = [*[one - 1 for one in shown], end]
        decided = [(first, stop) for first, stop in zip(begins, ends, strict=True) if first <= stop]
        if decided and decided[0][0] == self.floor + 1:
            self.floor = decided.pop(0)[1]
        self.ranges[:place] = decided

    def gaps(self, last: int, after: int = 0) -> list[Range]:
        """Return the ranges above ``after`` and up to ``last`` that the set lacks, in ascending
        order.
        """
        after = max(after, self.floor)
        begin = bisect_left(self.ranges, after, key=_last)
        own = self.ranges[begin : bisect_right(self.ranges, last, lo=begin, key=_first)]
        begins = [after + 1, *[end + 1 for _, end in own]]
        ends = [*[first - 1 for first, _ in own], last]
        gaps = list(zip(begins, ends, strict=True))
        # Ranges are not adjacent, so no other gap is empty.
        if gaps[-1][0] > gaps[-1][1]:
            del gaps[-1]
        if gaps and gaps[0][0] > gaps[0][1]:
            del gaps[0]
        return gaps

    def encode(self) -> str:
        """Return the set as a JSON list: the floor, then two numbers for each range: the distance
        from the end before it, and its length - 1.
        """
        numbers, before = [self.floor], self.floor
        for first, last in self.ranges:
            numbers += (first - before, last - first)
            before = last
        return json.dumps(numbers, separators=(",", ":"))


def decode(text: str) -> RecordSet:
    """Return the set that ``encode`` wrote. Raises ValueError for any other text."""
    numbers = json.loads(text)
    if (
        not isinstance(numbers, list)
        or len(numbers) % 2 == 0
        or not all(type(one) is int and one >= 0 for one in numbers)
    ):
        raise ValueError("not a set of record_ids")
    floor, *steps = numbers
    decoded, before = RecordSet(floor), floor
    for distance, length in zip(steps[::2], steps[1::2], strict=True):
        if distance < 2:
            raise ValueError("internal error: adjacent ranges of record_ids were not merged")
        first = before + distance
        before = first + length
        decoded.ranges.append((first, before))
    return decoded


def between(start: RecordSet, end: RecordSet) -> list[Range]:
    """Return the ranges of ``end`` that are not in ``start``, in ascending order."""
    return common(start.gaps(end.top), end.spans)


def minus(ranges: Ranges, others: RecordSet) -> list[Range]:
    """Return ascending ranges without the record_ids of a set."""
    return common(ranges, others.gaps(ranges[-1][1])) if ranges else []
