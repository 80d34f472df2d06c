"""Ranges of record_ids, and the set of them that a reader has done (spec/event-log.md 13.1)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.core.ranges import (
    RecordSet,
    between,
    common,
    decode,
    ids_of,
    joined,
    length,
    minus,
    to_ranges,
    within,
)

_ids = st.sets(st.integers(1, 60))
_floor = st.integers(0, 20)


def _members(record_set: RecordSet, most: int = 80) -> set[int]:
    return {one for one in range(1, most) if one in record_set}


def _is_normal(record_set: RecordSet) -> bool:
    ends = [record_set.floor, *(last for _, last in record_set.ranges)]
    return all(
        first > before + 1 and first <= last
        for (first, last), before in zip(record_set.ranges, ends, strict=False)
    )


@given(st.lists(st.integers(1, 60), unique=True))
def test_ranges_hold_the_record_ids_in_their_order(ids: list[int]) -> None:
    ranges = to_ranges(ids)
    assert list(ids_of(ranges)) == ids
    assert length(ranges) == len(ids)
    assert all(before + 1 != first for (_, before), (first, _) in pairwise(ranges))


@given(_ids, _ids, st.integers(0, 70), st.integers(0, 70))
def test_what_ranges_have_in_common_is_what_their_record_ids_have(
    some: set[int], others: set[int], first: int, last: int
) -> None:
    ranges, other_ranges = to_ranges(sorted(some)), to_ranges(sorted(others))
    assert list(ids_of(common(ranges, other_ranges))) == sorted(some & others)
    assert list(ids_of(minus(ranges, RecordSet(0, other_ranges)))) == sorted(some - others)
    assert list(ids_of(within(ranges, first, last))) == [
        one for one in sorted(some) if first <= one <= last
    ]


@given(_ids, st.integers(1, 20))
def test_ranges_that_are_joined_leave_out_only_what_is_far_from_them(
    ids: set[int], apart: int
) -> None:
    of = joined(to_ranges(sorted(ids)), apart)
    assert ids <= set(ids_of(of))
    assert all(first - before > apart for (_, before), (first, _) in pairwise(of))
    assert {end for pair in of for end in pair} <= ids


@given(_floor, _ids, _floor, _ids)
def test_between_two_sets_is_what_the_first_lacks(
    floor: int, ids: set[int], later_floor: int, later_ids: set[int]
) -> None:
    start = RecordSet(floor, to_ranges(sorted(ids)))
    end = RecordSet(later_floor, to_ranges(sorted(later_ids)))
    assert list(ids_of(between(start, end))) == sorted(_members(end) - _members(start))


@given(_floor, st.lists(_ids))
def test_what_is_added_is_in_the_set_and_nothing_else(floor: int, groups: list[set[int]]) -> None:
    record_set = RecordSet(floor)
    for ids in groups:
        record_set.add(to_ranges(sorted(ids)))
        assert _is_normal(record_set)
    assert _members(record_set) == set(range(1, floor + 1)).union(*groups)


@given(_floor, _ids, _ids)
def test_what_is_discarded_is_no_longer_in_it(floor: int, ids: set[int], out: set[int]) -> None:
    record_set = RecordSet(floor, to_ranges(sorted(ids)))
    before = _members(record_set)
    record_set.discard(to_ranges(sorted(out)))
    assert _is_normal(record_set)
    assert _members(record_set) == before - out


@given(_floor, _ids, st.integers(0, 70))
def test_gaps_are_what_is_not_in_it(floor: int, ids: set[int], last: int) -> None:
    record_set = RecordSet(floor, to_ranges(sorted(ids)))
    gaps = record_set.gaps(last)
    assert {one for first, end in gaps for one in range(first, end + 1)} == set(
        range(1, last + 1)
    ) - _members(record_set)
    assert all(first <= end for first, end in gaps)


@given(_floor, _ids, st.integers(0, 70), st.integers(0, 70))
def test_gaps_above_a_record_id_are_those_of_them_that_lie_there(
    floor: int, ids: set[int], last: int, after: int
) -> None:
    record_set = RecordSet(floor, to_ranges(sorted(ids)))
    gaps = {one for first, end in record_set.gaps(last, after) for one in range(first, end + 1)}
    assert gaps == set(range(after + 1, last + 1)) - _members(record_set)


@given(_floor, _ids, _ids)
def test_a_copy_is_a_separate_set(floor: int, ids: set[int], more: set[int]) -> None:
    record_set = RecordSet(floor, to_ranges(sorted(ids)))
    copied, before = record_set.copy(), _members(record_set)
    copied.add(to_ranges(sorted(more)))
    assert (_members(record_set), _members(copied)) == (before, before | more)


@given(_floor, _ids, st.integers(0, 70), _ids)
def test_what_a_snapshot_does_not_show_is_decided(
    floor: int, ids: set[int], last: int, visible: set[int]
) -> None:
    record_set = RecordSet(floor, to_ranges(sorted(ids)))
    before = _members(record_set)
    shown = sorted(one for one in visible if one <= last and one not in record_set)
    record_set.decide(last, shown)
    assert _is_normal(record_set)
    assert _members(record_set) == (before | set(range(1, last + 1))) - set(shown)


@given(_floor, _ids)
def test_its_text_is_read_as_it_was_written(floor: int, ids: set[int]) -> None:
    record_set = RecordSet(floor, to_ranges(sorted(ids)))
    read = decode(record_set.encode())
    assert (read.floor, read.ranges) == (record_set.floor, record_set.ranges)


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1,2]", "[1,1,0]", "[-1]", "[true]", '["1"]'])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(text)


@pytest.mark.parametrize(("first", "merged"), [(5, True), (6, True), (7, False)])
def test_a_range_that_begins_at_most_so_far_above_the_previous_is_merged(
    first: int, merged: bool
) -> None:
    ranges = [(1, 2), (first, 9)]
    assert joined(ranges, 4) == ([(1, 9)] if merged else ranges)


@pytest.mark.parametrize(("last", "found"), [(4, []), (5, [(5, 5)]), (6, [(5, 6)])])
def test_a_range_is_cut_at_the_last_record_id(last: int, found: list[tuple[int, int]]) -> None:
    assert within([(5, 9)], 1, last) == found


@pytest.mark.parametrize(("floor", "spans"), [(0, [(4, 5)]), (1, [(1, 1), (4, 5)])])
def test_the_spans_begin_with_a_floor_above_zero(floor: int, spans: list[tuple[int, int]]) -> None:
    assert RecordSet(floor, [(4, 5)]).spans == spans


@pytest.mark.parametrize(
    ("last", "floor", "ranges"), [(3, 3, [(5, 6)]), (4, 6, []), (5, 6, []), (7, 7, [])]
)
def test_what_is_decided_up_to_a_range_joins_it(
    last: int, floor: int, ranges: list[tuple[int, int]]
) -> None:
    record_set = RecordSet(0, [(5, 6)])
    record_set.decide(last, ())
    assert (record_set.floor, record_set.ranges) == (floor, ranges)
