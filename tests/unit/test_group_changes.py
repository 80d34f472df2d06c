"""A group of log rows -> Change (spec/change-model.md 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from samples import CATALOG, database, good, row, table

from eventlog.core.catalog import Catalog
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.rows.events import CurrentRow, apply_precedence
from eventlog.core.rows.fold import fold
from eventlog.core.values import ColumnType, Kind
from eventlog.core.values.typed_values import value_reader
from eventlog.errors import BadValue, FormatError
from eventlog.log.reading import UNREAD, group_reader, with_rows
from eventlog.model import Change, ChangeOp, LogRow

INSERT, UPDATE, DELETE = ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE
PHONE = "usr_phone.phoneno"
NOW: CurrentRow = {"fname": ["John"], "lname": [None], "photo": ["u7s="], PHONE: ["2", "1", "2"]}
KEY = {"idu": 1}
BOTH = {"photo", "lname"}


def change_of(
    rows: Sequence[LogRow],
    current: CurrentRow | None = UNREAD,
    catalog: Catalog = CATALOG,
    **reading: Any,
) -> Change | None:
    (group,) = fold(good(rows, catalog), 1000, 10000)
    log_rows = {one.record_id: one for one in rows}
    change = group_reader(**reading)(group, apply_precedence(group), current, log_rows)
    return None if change is None else with_rows(change, group, log_rows)


@pytest.mark.parametrize(
    ("rows", "op", "before", "after", "changed"),
    [
        ([row(1, 1, column="fname", new="Jack")], INSERT, None, KEY | {"fname": "Jack"}, None),
        ([row(1, 1, column="fname")], INSERT, None, KEY | {"fname": None}, None),
        ([row(1, 1, column="idu", new="1")], INSERT, None, KEY, None),
        (
            [row(1, 1, column="fname", new="a"), row(2, 1, column="fname", new="b")],
            INSERT,
            None,
            KEY | {"fname": "b"},
            None,
        ),
        (
            [row(1, 2, column="photo", old="qqo=", new="u7s=")],
            UPDATE,
            KEY | {"photo": b"\xaa\xaa"},
            KEY | {"photo": b"\xbb\xbb"},
            {"photo"},
        ),
        (
            [
                row(1, 2, column="fname", old="a", new="b"),
                row(2, 2, column="fname", old="b", new=None),
            ],
            UPDATE,
            KEY | {"fname": "a"},
            KEY | {"fname": None},
            {"fname"},
        ),
        (
            [row(1, 2, column="fname"), row(2, 2, column="lname", old="x", new="x")],
            UPDATE,
            KEY | {"fname": None, "lname": "x"},
            KEY | {"fname": None, "lname": "x"},
            {"fname", "lname"},
        ),
        (
            [row(1, 3, column="fname", old="a", new="b")],
            UPDATE,
            None,
            KEY | {"fname": "b"},
            {"fname"},
        ),
        (
            [
                row(1, 2, column="fname", old="a", new="b"),
                row(2, 3, column="fname", old="b", new="c"),
            ],
            UPDATE,
            KEY | {"fname": "a"},
            KEY | {"fname": "c"},
            {"fname"},
        ),
        (
            [
                row(1, 3, column="fname", old="a", new="b"),
                row(2, 2, column="lname", old="x", new="y"),
            ],
            UPDATE,
            KEY | {"lname": "x"},
            KEY | {"fname": "b", "lname": "y"},
            {"fname", "lname"},
        ),
        ([row(1, 4, column="rubbish")], DELETE, KEY, None, None),
        # Child tables: values added, before those removed.
        (
            [row(1, 2, column=PHONE, new="5")],
            UPDATE,
            KEY | {PHONE: ()},
            KEY | {PHONE: ("5",)},
            {PHONE},
        ),
        (
            [row(1, 2, table="usr_phone", column="phoneno", old="4")],
            UPDATE,
            KEY | {PHONE: ("4",)},
            KEY | {PHONE: ()},
            {PHONE},
        ),
        (
            [row(1, 2, column=PHONE, old="4", new="5"), row(2, 2, column=PHONE, old="5", new="6")],
            UPDATE,
            KEY | {PHONE: ("4",)},
            KEY | {PHONE: ("6",)},
            {PHONE},
        ),
        (
            [row(1, 3, column=PHONE, new="b"), row(2, 2, column=PHONE, new="a")],
            UPDATE,
            None,
            KEY | {PHONE: ("b", "a")},
            {PHONE},
        ),
        (
            [row(1, 1, column=PHONE, new="b"), row(2, 1, column=PHONE, new="a")],
            INSERT,
            None,
            KEY | {PHONE: ("b", "a")},
            None,
        ),
    ],
)
def test_rows_that_hold_their_values(
    rows: Any, op: ChangeOp, before: Any, after: Any, changed: Any
) -> None:
    change = change_of(rows)
    assert change is not None
    assert (change.op, change.before, change.after, change.changed) == (op, before, after, changed)
    assert change.key == (("idu", 1),)


def test_rows_of_key_columns_alone_say_nothing() -> None:
    assert change_of([row(1, 2, column="idu", old="1", new="1")]) is None


@pytest.mark.parametrize(
    ("rows", "op", "after", "changed", "query_back"),
    [
        ([row(1, 5)], INSERT, NOW, None, "row"),
        ([row(1, 6), row(2, 6)], UPDATE, NOW, None, "row"),
        ([row(1, 1, column="fname", new="x"), row(2, 5)], INSERT, NOW, None, "row"),
        ([row(1, 7, column="photo")], INSERT, {"photo"}, None, "field"),
        ([row(1, 8, column="photo"), row(2, 8, column="lname")], UPDATE, BOTH, BOTH, "field"),
        ([row(1, 8, column=PHONE)], UPDATE, {PHONE}, {PHONE}, "field"),
    ],
)  # fmt: skip
def test_rows_to_be_queried_back_hold_the_current_row(
    rows: Any, op: ChangeOp, after: Any, changed: Any, query_back: str
) -> None:
    change = change_of(rows, NOW)
    row_now = {"fname": "John", "lname": None, "photo": b"\xbb\xbb", PHONE: ("1", "2")}
    assert change is not None
    assert (change.op, change.before, change.changed) == (op, None, changed)
    assert change.after == KEY | {name: row_now[name] for name in after}
    assert change.extras["query_back"] == query_back


def test_a_mix_is_one_change_with_the_columns_of_the_surviving_rows() -> None:
    rows = [
        row(1, 2, column="fname", old="a", new="b"),
        row(2, 2, column="lname", old="x", new="y"),
        row(3, 8, column="fname"),
    ]
    change = change_of(rows, NOW)
    assert change is not None
    assert change.before == KEY | {"lname": "x"}
    assert change.after == KEY | {"fname": "John", "lname": "y"}
    assert change.changed == {"fname", "lname"}


@pytest.mark.parametrize(
    ("rows", "lname"),
    [
        ([row(1, 5)], None),
        ([row(1, 8, column="fname")], None),
        ([row(1, 8, column="fname"), row(2, 2, column="lname", old="x", new="y")], "y"),
    ],
)
def test_of_an_object_that_is_gone_only_logged_values_are_left(
    rows: Any, lname: str | None
) -> None:
    change = change_of(rows, None)
    assert (None if change is None else change.after) == (
        None if lname is None else KEY | {"lname": lname}
    )


@pytest.mark.parametrize(
    ("rows", "changed", "extras"),
    [
        ([row(1, 5)], None, {"query_back": "row"}),
        (
            [row(1, 7, column="fname")],
            None,
            {"query_back": "field", "columns": ["fname"], "known": {}},
        ),
        (
            [row(1, 8, column="fname"), row(2, 2, column="lname", old="x", new="y")],
            {"fname", "lname"},
            {"query_back": "field", "columns": ["fname"], "known": {"lname": "y"}},
        ),
    ],
)
def test_without_a_connection_it_is_known_what_has_to_be_read(
    rows: Any, changed: Any, extras: Any
) -> None:
    change = change_of(rows)
    assert change is not None
    assert (change.after, change.changed) == (None, changed)
    assert {name: change.extras[name] for name in extras} == extras


def test_position_time_and_user_are_those_of_the_first_row() -> None:
    rows = [
        at_time(row(7, 2, column="fname", new="a", perpetrator="ann"), "2024-05-10 14:00:00.5"),
        at_time(row(9, 8, column="fname", perpetrator="bob", status="S"), "2024-05-10 15:00:00"),
    ]
    change = change_of(rows, schema="app", time_zone="Europe/Berlin")
    assert change is not None
    assert (change.schema, change.position, change.user) == ("app", "7", "ann")
    assert change.commit_time == datetime(2024, 5, 10, 12, 0, 0, 500_000, tzinfo=UTC)
    assert change.extras["record_ids"] == [7, 9]
    assert change.extras["types"] == [2, 8]
    assert change.extras["status"] == ["N", "S"]


def at_time(one: LogRow, event_time: str) -> LogRow:
    return one._replace(event_time=event_time)


TYPED = build_catalog(
    database(
        table(
            "t", "n bigint; d decimal(9,2); at time; ts timestamp; tz timestamptz; c char(4)", "n d"
        )
    )
)


def test_values_and_keys_have_the_types_of_their_columns() -> None:
    texts = {
        "at": "01:02:03.25",
        "ts": "2024-05-10 12:00:00.123456",
        "tz": "2024-05-10 14:00:00+02",
        "c": "ab  ",
    }
    rows = [
        row(number, 1, "d=01.50+n=7", name, new=text, table="t")
        for number, (name, text) in enumerate(texts.items(), 1)
    ]
    change = change_of(rows, catalog=TYPED)
    assert change is not None
    assert change.key == (("n", 7), ("d", Decimal("1.5")))
    assert change.after == {
        "n": 7,
        "d": Decimal("1.5"),
        "at": time(1, 2, 3, 250_000),
        "ts": datetime(2024, 5, 10, 12, 0, 0, 123_456),
        "tz": datetime(2024, 5, 10, 12, tzinfo=UTC),
        "c": "ab",
    }


@pytest.mark.parametrize(
    ("bits", "text", "value"),
    [
        (16, "7", 7), (16, "007", 7), (16, " "
"-7 ", -7), (16, "32767", 32767), (16, "-32768", -32768),
        (16, "9999", 9999), (16, "32768", None), (16, "99999", None), (32, "999999999",
        999_999_999), (32, "2147483648", None), (64, "9223372036854775807", 2**63 - 1), (64,
        "9223372036854775808", None), (0, "123456789012345678901", 123456789012345678901), (16, "",
        None), (16, "1_0", None), (16, "\u0663", None), (16, "\u00b2", None),
    ],
)  # fmt: skip
def test_an_integer_is_in_the_range_of_its_column(bits: int, text: str, value: int | None) -> None:
    read = value_reader(ColumnType(Kind.INTEGER, bits))
    if value is None:
        with pytest.raises(BadValue):
            read(text)
    else:
        assert read(text) == value


def test_digits_beyond_the_microsecond_are_reported() -> None:
    told: list[str] = []
    rows = [
        row(1, 1, "n=1+d=1", "ts", new="2024-05-10 12:00:00.123456700", table="t"),
        row(2, 1, "n=1+d=1", "at", new="12:00:00.500000000", table="t"),
    ]
    change_of(rows, catalog=TYPED, schema="app", truncated=told.append)
    assert told == ["app.t.ts"]


@pytest.mark.parametrize(
    ("rows", "current"),
    [
        ([at_time(row(3, 4), "noon")], UNREAD),
        ([row(3, 5)], {**NOW, "photo": ["?"]}),
    ],
)
def test_what_is_no_value_of_its_column_names_the_row(rows: Any, current: Any) -> None:
    with pytest.raises(FormatError, match="the change of row 3, 'usr' idu=1"):
        change_of(rows, current)


def test_a_special_time_of_the_log_is_its_text() -> None:
    price = build_catalog(
        database(table("price", "id integer; day date; amount decimal(9,2)", "id"))
    )
    rows = [
        row(1, 2, "id=1", "day", "infinity", "0044-03-15 BC", table="price"),
        row(2, 2, "id=1", "amount", "Infinity", "1.50", table="price"),
    ]
    change = change_of(rows, catalog=price)
    assert change is not None
    assert change.before == {"id": 1, "day": "infinity", "amount": Decimal("Infinity")}
    assert change.after == {"id": 1, "day": "0044-03-15 BC", "amount": Decimal("1.50")}


def test_an_old_value_that_cannot_be_converted_is_not_known() -> None:
    change = change_of([row(1, 2, column="photo", old="*", new="u7s=")])
    assert change is not None
    assert (change.op, change.before, change.after) == (UPDATE, None, KEY | {"photo": b"\xbb\xbb"})
    assert change.changed == {"photo"}
    assert change.extras["types"] == [2]
