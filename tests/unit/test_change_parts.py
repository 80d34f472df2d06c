"""Parts of a batch fold as the batch does, however it is cut (spec/spark-changes.md 2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import catalog

from eventlog.core.rows.checks import CheckedRow
from eventlog.core.rows.events import ids_of
from eventlog.core.rows.fold import first_id, fold, open_groups
from eventlog.spark.changes.change_parts import Folding, groups_of_part, held_back

CLASS = catalog().classes[0]


def row(record_id: int, event_type: int, key: int) -> CheckedRow:
    return record_id, event_type, (CLASS, f"k={key}"), None, None, None


@st.composite
def batches(draw: st.DrawFn) -> list[CheckedRow]:
    """Rows of few objects, at distances small and large."""
    rows, record_id = [], 0
    for _ in range(draw(st.integers(1, 40))):
        record_id += draw(st.sampled_from([1, 1, 1, 2, 3, 5, 12]))
        rows.append(
            row(record_id, draw(st.sampled_from([2, 2, 2, 1, 3, 4])), draw(st.integers(1, 4)))
        )
    return rows


def reader(rows: Sequence[CheckedRow]) -> Any:
    def read(first: int, last: int) -> Iterable[Sequence[CheckedRow]]:
        found = [one for one in rows if first <= one[0] <= last]
        return [found[:3], found[3:]]

    return read


@pytest.mark.parametrize("examples", [40, pytest.param(600, marks=pytest.mark.night)])
def test_any_cut_of_a_batch_into_parts_folds_as_the_batch_does(examples: int) -> None:
    @given(
        batches(),
        st.integers(1, 8),
        st.sampled_from([0, 4, 9, 30]),
        st.sets(st.integers(2, 60), max_size=6),
    )
    @settings(max_examples=examples, deadline=None)
    def hold(rows: list[CheckedRow], distance: int, span: int, cuts: set[int]) -> None:
        lowest, highest = rows[0][0], rows[-1][0]
        how = Folding(distance, span, lowest, highest)
        ends = [lowest, *sorted(cut for cut in cuts if lowest < cut <= highest), highest + 1]
        found = []
        for first, following in pairwise(ends):
            found += [
                g
                for some in groups_of_part(reader(rows), (first, following - 1), how)
                for g in some
            ]
        assert found == fold(rows, distance, span)

    hold()


@pytest.mark.parametrize("examples", [40, pytest.param(600, marks=pytest.mark.night)])
def test_a_batch_that_is_cut_holds_back_what_a_full_window_holds_back(examples: int) -> None:
    @given(batches(), st.integers(1, 8), st.sampled_from([0, 4, 9, 30]), st.integers(1, 45))
    @settings(max_examples=examples, deadline=None)
    def hold(rows: list[CheckedRow], distance: int, span: int, limit: int) -> None:
        window = rows[:limit]
        last = window[-1][0]
        groups = fold(window, distance, span)
        closed = next(open_groups(groups, last, distance, span), len(groups))
        sent = sorted(record_id for group in groups[:closed] for record_id in ids_of(group))
        held = held_back(reader(window), last, Folding(distance, span, window[0][0], last))
        if held is None:
            assert closed == len(groups)
            return
        assert held.first == first_id(groups[closed])
        assert sorted([*(one[0] for one in window if one[0] < held.first), *held.ids]) == sent

    hold()
