"""The groups that a part finds final are correct, and the rows that it passes on make the rest."""

from __future__ import annotations

from itertools import accumulate, pairwise
from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from eventlog.changes.json_form import database_from_json
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.rows.checks import CheckedRow
from eventlog.core.rows.events import ids_of
from eventlog.core.rows.fold import Group, RowFolder, fold
from eventlog.spark.backlog.fold import Boundary
from eventlog.sql.port.log_parts import LogPart

_TABLE = {
    "name": "t",
    "kind": "table",
    "columns": [{"name": "id", "type": "integer"}],
    "primary_key": ["id"],
}
_CATALOG = build_catalog(
    database_from_json({"dialect": "postgresql", "schema": None, "tables": [_TABLE]})
)
_CLASS = _CATALOG.class_named("t")


def _row(record_id: int, event_type: int, key: str) -> CheckedRow:
    return record_id, event_type, (_CLASS, key), None, None, None


def _ids(groups: list[Group]) -> list[list[int]]:
    return [ids_of(group) for group in groups]


_ROWS = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from((1, 2, 2, 2, 4, 6)), st.sampled_from("AAB")),
    min_size=1,
    max_size=60,
)


@given(_ROWS, st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 12),
       st.integers(0, 30), st.integers(1, 20))  # fmt: skip
def test_final_groups_and_groups_of_border_rows_are_the_groups_of_all_rows(
    steps: list[tuple[int, int, str]], widths: list[int], distance: int, span: int, at_a_time: int
) -> None:
    record_ids = accumulate(step for step, _, _ in steps)
    rows = [
        _row(record_id, kind, key)
        for record_id, (_, kind, key) in zip(record_ids, steps, strict=True)
    ]
    firsts = [1, *(1 + width for width in accumulate(widths)), max(ids_of(rows)) + 50]
    parts = [LogPart(first, after - 1, 0) for first, after in pairwise(firsts)]
    found: list[Group] = []
    border: list[CheckedRow] = []
    for part in parts:
        own = [
            row
            for row, record_id in zip(rows, ids_of(rows), strict=True)
            if part.first <= record_id <= part.last
        ]
        folder, boundary = RowFolder(distance, span, at_a_time), Boundary(part, distance, span)
        for row in own:
            found += boundary.final(folder.add([row]))
        found += boundary.final_at_end(folder.close(None))
        border += sorted(boundary.rows, key=itemgetter(0))
    found += fold(border, distance, span)
    assert sorted(_ids(found)) == _ids(fold(rows, distance, span))


def test_rows_far_from_both_ends_stay_in_their_part() -> None:
    rows = [
        _row(1100, 2, "A"),
        _row(1101, 2, "B"),
        _row(2500, 2, "A"),
        _row(2600, 4, "B"),
        _row(3900, 2, "C"),
    ]
    boundary = Boundary(LogPart(1001, 4899, 0), 1000, 10_000)
    assert _ids(boundary.final_at_end(fold(rows, 1000, 10_000))) == [[2500], [2600]]
    assert sorted(ids_of(boundary.rows)) == [1100, 1101, 3900]
