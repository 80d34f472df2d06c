"""The live view: base and changes to the present state (formats/qlik.md 6)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import FormatError
from eventlog.model import Change, ChangeOp, Row
from eventlog.qlik.columns import columns_from_json
from eventlog.qlik.sequence import WriterState
from eventlog.qlik.tables.change_rows import ChangeRow
from eventlog.qlik.tables.change_tables import TargetTable, live_view, rows_of
from eventlog.qlik.tables.stored_tables import WriteOptions

NOON = datetime(2024, 5, 10, 12, tzinfo=UTC)
COLUMNS = columns_from_json(["id", "name", "price"], ["id"], what="item")
BASE: list[Row] = [{"id": 1, "name": "a", "price": 1}, {"id": 2, "name": "b", "price": 2}]


def row(number: int, oper: str, data: Row, mask: str = "", seconds: int = 0) -> ChangeRow:
    prefix = (NOON + timedelta(seconds=seconds)).strftime("%Y%m%d%H%M%S00")
    return ChangeRow(
        f"{prefix}{number:019}", oper, frozenset(mask.split()), None, None, NOON, None, data
    )


def view(*rows: ChangeRow, as_of: datetime | None = None) -> list[Row]:
    return [row for _, row in sorted(live_view(BASE, rows, as_of, key=["id"]).items())]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [row(1, "I", {"id": 1, "name": "x", "price": 9}, "id name")],
            [{"id": 1, "name": "x", "price": 9}, BASE[1]],
        ),
        ([row(1, "D", {"id": 1, "name": None, "price": None}, "id")], [BASE[1]]),
        ([row(1, "D", {"id": 9, "name": None, "price": None}, "id")], BASE),
        ([row(1, "T", {"id": None, "name": None, "price": None})], []),
        # changed to NULL, not captured, changed, captured though not changed
        (
            [row(1, "U", {"id": 1, "name": None, "price": None}, "name")],
            [{"id": 1, "name": None, "price": 1}, BASE[1]],
        ),
        (
            [row(1, "U", {"id": 1, "name": "z", "price": 7}, "name")],
            [{"id": 1, "name": "z", "price": 7}, BASE[1]],
        ),
        # an object that is not there has no previous values
        (
            [row(1, "U", {"id": 9, "name": None, "price": 7}, "price")],
            [*BASE, {"id": 9, "name": None, "price": 7}],
        ),
        # the key moves, onto another object
        (
            [row(1, "B", BASE[0]), row(1, "U", {"id": 2, "name": None, "price": 3}, "id price")],
            [{"id": 2, "name": "a", "price": 3}],
        ),
        # a before image is only that of its own update
        (
            [row(1, "B", BASE[0]), row(2, "U", {"id": 2, "name": None, "price": 3}, "price")],
            [BASE[0], {"id": 2, "name": "b", "price": 3}],
        ),
    ],
)
def test_effect_of_rows(rows: list[ChangeRow], expected: list[Row]) -> None:
    assert view(*rows) == expected
    assert view(*reversed(rows)) == expected


def test_as_of_is_the_last_hundredth_that_counts() -> None:
    rows = [row(number, "D", {"id": number}, "id", seconds=number) for number in (1, 2)]
    assert view(*rows, as_of=NOON) == BASE
    assert view(*rows, as_of=NOON + timedelta(seconds=1, milliseconds=9)) == [BASE[1]]
    assert view(*rows, as_of=(NOON + timedelta(seconds=2)).replace(tzinfo=None)) == []


def test_the_key_may_come_from_the_masks_of_deletes() -> None:
    assert live_view(BASE, [row(1, "D", {"id": 1, "name": "a", "price": 1}, "id")]) == {
        (2,): BASE[1]
    }
    with pytest.raises(FormatError, match="key"):
        live_view(BASE, [row(1, "T", {})])


IDS = st.integers(1, 4)
VALUES = st.none() | st.sampled_from(["", "a", "b"])


@given(
    st.lists(st.tuples(st.sampled_from("IUUKD"), IDS, IDS, VALUES, VALUES), max_size=40),
    st.booleans(),
)
def test_the_view_is_the_table(
    steps: list[tuple[str, int, int, str | None, str | None]], before_images: bool
) -> None:
    """A table is changed at random, its changes are written as rows: the view of the rows is the
    table.
    """
    table: dict[int, Row] = {}
    target, state = (
        TargetTable("item", COLUMNS, WriteOptions(before_images=before_images)),
        WriterState(),
    )
    rows: list[ChangeRow] = []
    for step, id, other, name, price in steps:
        old, new = table.get(id), {"id": id, "name": name, "price": price}
        if step == "D" and old is not None:
            change = Change(None, "item", ChangeOp.DELETE, (("id", id),), table.pop(id))
        elif step == "I" and old is None:
            change = Change(None, "item", ChangeOp.INSERT, (("id", id),), None, new)
            table[id] = new
        elif step in "UK" and old is not None:
            if step == "K" and before_images and other not in table:
                new["id"] = other
            change = Change(None, "item", ChangeOp.UPDATE, (("id", new["id"]),), old, new)
            del table[id]
            table[new["id"]] = new
        else:
            continue
        state, more = rows_of(change, target, state, Counter())
        rows += more
    assert live_view([], rows, key=["id"]) == {(id,): row for id, row in table.items()}
