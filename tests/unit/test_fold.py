"""Which rows make one group, and which groups a full window may send (spec/event-log.md 6, 8.2)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import good, row

from eventlog.core.rows.checks import CheckedRow
from eventlog.core.rows.events import ids_of
from eventlog.core.rows.fold import Group, RowFolder, first_id, fold, object_of, open_groups

_COLUMNS = {1: "fname", 2: "fname", 3: "lname", 7: "lname", 8: "fname"}


def rows(text: str) -> list[CheckedRow]:
    """``"1: 2 A, 2: 4 B"``: record_id, type and object."""
    parsed = (part.replace(":", "").split() for part in text.split(",") if part)
    return good(
        [
            row(int(i), int(kind), f"idu={ord(one)}", _COLUMNS.get(int(kind)), new="x")
            for i, kind, one in parsed
        ]
    )


def ids(groups: list[Group]) -> list[list[int]]:
    return [ids_of(group) for group in groups]


EXAMPLES = [
    # The table of section 6.
    ("1: 2 A, 2: 2 B, 3: 2 A", [[1, 3], [2]]),
    ("1: 1 A, 2: 2 A, 3: 1 A", [[1], [2], [3]]),
    ("1: 5 A, 2: 4 A, 3: 5 A", [[1], [2], [3]]),
    ("1: 4 A, 2: 4 A", [[1], [2]]),
    ("1: 2 A, 1001: 2 A, 2002: 2 A", [[1, 1001], [2002]]),
    ("1: 2 A, 2: 4 B, 3: 8 A", [[1, 3], [2]]),
    # Families.
    ("1: 1 A, 2: 5 A, 3: 7 A, 4: 1 A", [[1, 2, 3, 4]]),
    ("1: 2 A, 2: 3 A, 3: 6 A, 4: 8 A, 5: 2 A", [[1, 2, 3, 4, 5]]),
    ("1: 5 A, 2: 6 A", [[1], [2]]),
    ("1: 7 A, 2: 8 A", [[1], [2]]),
    ("1: 4 A, 2: 2 A, 3: 4 A", [[1], [2], [3]]),
    ("1: 4 A, 2: 5 A", [[1], [2]]),
    # The distance is to the last row of the group, the span to its first.
    ("1: 2 A, 1001: 2 A, 2001: 2 A, 3001: 2 A", [[1, 1001, 2001, 3001]]),
    ("1: 2 A, 1002: 2 A", [[1], [1002]]),
    # A row joins the newest group of its object only.
    ("1: 2 A, 2: 1 A, 3: 2 A, 4: 1 A", [[1], [2], [3], [4]]),
    ("", []),
]


@pytest.mark.parametrize(("text", "expected"), EXAMPLES)
def test_rows_fold(text: str, expected: list[list[int]]) -> None:
    assert ids(fold(rows(text), 1000, 10000)) == expected


SPANS = [
    ("1: 2 A, 9: 2 A, 12: 2 A", 1000, 10, [[1, 9], [12]]),
    ("1: 2 A, 9: 2 A, 11: 2 A", 1000, 10, [[1, 9, 11]]),
    ("1: 2 A, 9: 2 A, 12: 2 A", 1000, 0, [[1, 9, 12]]),
    ("1: 2 A, 2: 2 A", 0, 0, [[1], [2]]),
    ("1: 2 A, 2: 2 A, 4: 2 A", 1, 0, [[1, 2], [4]]),
    # A group that began because of the span counts from its own first row.
    ("1: 2 A, 12: 2 A, 22: 2 A", 1000, 10, [[1], [12, 22]]),
    ("1: 2 A, 5: 2 B, 12: 2 B, 16: 2 B", 1000, 10, [[1], [5, 12], [16]]),
    # The rows of an insert may stand 1000 and 10000 apart with any options, since another add would
    # replace the object.
    ("1: 1 A, 2: 7 A, 1002: 1 A, 2003: 1 A", 0, 5, [[1, 2, 1002], [2003]]),
    ("1: 1 A, 1000: 1 A, 2000: 2 A, 2001: 2 A", 0, 5, [[1, 1000], [2000], [2001]]),
    (
        ", ".join(f"{i}: 1 A" for i in range(1, 10_910, 909)),
        0,
        5,
        [[*range(1, 10_001, 909)], [10909]],
    ),
    ("1: 1 A, 2001: 1 A", 2000, 5, [[1, 2001]]),
    ("1: 1 A, 10901: 1 A", 20_000, 10_900, [[1, 10901]]),
]


@pytest.mark.parametrize(("text", "distance", "span", "expected"), SPANS)
def test_distance_and_span_bound_a_group(
    text: str, distance: int, span: int, expected: list[list[int]]
) -> None:
    assert ids(fold(rows(text), distance, span)) == expected


def test_distances_are_absolute() -> None:
    # With handle_future_events rows come in order of event_time.
    assert ids(fold(rows("2000: 2 A, 1002: 2 A, 1: 2 A"), 1000, 10000)) == [[2000, 1002], [1]]


def test_child_rows_fold_with_their_owners() -> None:
    of_child = good([row(2, 8, column="phoneno", table="usr_phone")])
    assert ids(fold([*rows("1: 2 A"), *of_child], 1000, 0)) == [[1], [2]]
    of_child = good([row(2, 8, "idu=65", "phoneno", table="usr_phone")])
    assert ids(fold([*rows("1: 2 A"), *of_child], 1000, 0)) == [[1, 2]]


def test_one_key_in_two_classes_is_two_objects() -> None:
    tag = good([row(2, 6, "code=1", table="tag"), row(3, 6, "code=1", table="tag")])
    assert ids(fold([*good([row(1, 6, "idu=1")]), *tag], 1000, 0)) == [[1], [2, 3]]


OPEN = [
    # The example of section 8.2: W = 4.
    ("1: 2 A, 2: 4 B, 3: 2 C, 4: 2 C", 4, 1000, 10000, 0),
    ("1: 4 A, 2: 4 B, 3: 2 C, 4: 2 C", 4, 1000, 10000, 2),
    # W + 1 - last <= fold_distance
    ("1: 2 A", 1000, 1000, 10000, 0),
    ("1: 2 A", 1001, 1000, 10000, 1),
    # W + 1 - first <= fold_span
    ("1: 2 A, 9: 2 A", 10, 1000, 10, 0),
    ("1: 2 A, 9: 2 A", 11, 1000, 10, 1),
    ("1: 2 A, 9: 2 A", 500, 1000, 0, 0),
    # Only the newest group of an object can grow.
    ("1: 2 A, 2: 4 A", 2, 1000, 0, 2),
    ("1: 2 A, 2: 1 A, 3: 4 B", 3, 1000, 0, 1),
    # Type 4 never grows, no row ever joins at distance 0.
    ("1: 4 A, 2: 4 B", 2, 1000, 0, 2),
    ("1: 2 A, 2: 2 B", 2, 0, 0, 2),
    # Adds stay open for as long as rows of an insert may stand apart.
    ("1: 4 B, 2: 1 A", 1001, 0, 1, 1),
    ("1: 4 B, 2: 1 A", 1002, 0, 1, 2),
    ("1: 1 A, 2: 2 A", 2, 0, 1, 2),
    ("", 7, 1000, 0, 0),
]


@pytest.mark.parametrize(("text", "window_end", "distance", "span", "count"), OPEN)
def test_groups_before_the_first_open_one_may_be_sent(
    text: str, window_end: int, distance: int, span: int, count: int
) -> None:
    groups = fold(rows(text), distance, span)
    assert next(open_groups(groups, window_end, distance, span), len(groups)) == count


queues = st.lists(
    st.tuples(
        st.integers(1, 12) | st.sampled_from([997, 1000, 1001, 3000]),
        st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8]),
        st.sampled_from("ABC"),
    ),
    max_size=40,
)
bounds = st.integers(0, 40)


def queue(steps: list[tuple[int, int, str]]) -> list[CheckedRow]:
    record_id, texts = 0, []
    for gap, kind, one in steps:
        record_id += gap
        texts.append(f"{record_id}: {kind} {one}")
    return rows(",".join(texts))


def may_join(one: CheckedRow, group: list[CheckedRow], distance: int, span: int) -> bool:
    """The four conditions of section 6, word by word."""
    add, modify = {1, 5, 7}, {2, 3, 6, 8}
    record_id, kind, _, _, _, _ = one
    last_id, last_kind, _, _, _, _ = group[-1]
    kinds = {kind, last_kind}
    if kinds <= add:
        distance, span = max(distance, 1000), span and max(span, 10_000)
    return (
        4 not in kinds
        and (kinds <= add or kinds <= modify)
        and abs(record_id - last_id) <= distance
        and (span == 0 or abs(record_id - first_id(group)) <= span)
    )


@given(queues, bounds, bounds)
def test_groups_are_a_partition_in_the_order_of_their_first_rows(
    steps: list[tuple[int, int, str]], distance: int, span: int
) -> None:
    given_rows = queue(steps)
    groups = fold(given_rows, distance, span)
    assert sorted(i for group in ids(groups) for i in group) == ids_of(given_rows)
    assert all(ids_of(group) == sorted(ids_of(group)) for group in groups)
    firsts = list(map(first_id, groups))
    assert firsts == sorted(firsts)
    for group in groups:
        assert {object_id for _, _, object_id, _, _, _ in group} == {object_of(group)}
        for i, one in enumerate(group[1:], 1):
            assert may_join(one, group[:i], distance, span)


def test_groups_of_one_object_follow_each_other_and_could_not_be_one() -> None:
    pairs = 0

    @given(queues, bounds, bounds)
    def compare(steps: list[tuple[int, int, str]], distance: int, span: int) -> None:
        nonlocal pairs
        groups = fold(queue(steps), distance, span)
        for object_id in set(map(object_of, groups)):
            of_object = [group for group in groups if object_of(group) == object_id]
            for before, after in pairwise(of_object):
                assert max(ids_of(before)) < first_id(after)
                assert not may_join(after[0], before, distance, span)
                pairs += 1

    compare()
    assert pairs


@given(queues, bounds, bounds)
def test_rows_of_other_objects_in_between_change_nothing(
    steps: list[tuple[int, int, str]], distance: int, span: int
) -> None:
    given_rows = queue(steps)
    own = [one for one in given_rows if object_of([one])[1] == "idu=65"]
    folded = [
        group for group in fold(given_rows, distance, span) if object_of(group)[1] == "idu=65"
    ]
    assert folded == fold(own, distance, span)


@given(queues, queues, bounds, bounds)
def test_no_later_row_joins_a_group_that_may_be_sent(
    steps: list[tuple[int, int, str]], more: list[tuple[int, int, str]], distance: int, span: int
) -> None:
    window = queue(steps)
    if not window:
        return
    end = max(ids_of(window))
    groups = fold(window, distance, span)
    closed = next(open_groups(groups, end, distance, span), len(groups))
    assert fold(queue(steps + more), distance, span)[:closed] == groups[:closed]


@given(queues, bounds, bounds, st.integers(1, 7), st.integers(1, 9))
def test_rows_that_come_in_fragments_leave_in_the_groups_of_all_of_them(
    steps: list[tuple[int, int, str]], distance: int, span: int, size: int, at_a_time: int
) -> None:
    all_rows = queue(steps)
    folder = RowFolder(distance, span, at_a_time)
    groups = [
        group
        for start in range(0, len(all_rows), size)
        for group in folder.add(all_rows[start : start + size])
    ]
    assert ids_of(folder.rows) == sorted(ids_of(folder.rows))
    assert groups + folder.close(None) == fold(all_rows, distance, span)
    assert folder.rows == []
