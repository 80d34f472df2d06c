"""The JSON form of a change (spec/change-model.md 1.1)."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.changes.json_form import dumps, from_json, loads, to_json, value_to_json
from eventlog.errors import FormatError, InvalidChange
from eventlog.model import Change, ChangeOp, Lob

EXAMPLE = (
    '{"schema":"app","table":"item","op":"UPDATE","key":[["id",7]],'
    '"before":{"id":7,"name":"nut","price":"1.50"},"after":{"id":7,"name":"nut","price":"1.75"},"changed":["price"],'
    '"position":"20240510120000000000000000000000012","transaction_id":"000000000000000000000000000000A1",'
    '"event_number":1,"last_in_transaction":true,"commit_time":"2024-05-10T12:00:00Z","user":null,"extras":{}}'
)


def test_the_example_of_the_specification_is_read_and_written() -> None:
    change = loads(EXAMPLE)
    assert change.commit_time == datetime(2024, 5, 10, 12, tzinfo=UTC)
    assert change.changed == {"price"}
    assert dumps(change) == EXAMPLE


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (1.5, 1.5),
        (inf, "Infinity"),
        (-inf, "-Infinity"),
        (nan, "NaN"),
        ("", ""),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+3"), "1000"),
        (b"\x00\xff", {"hex": "00FF"}),
        (Lob(b"\xab"), {"hex": "AB"}),
        (date(2024, 2, 29), "2024-02-29"),
        (time(1, 2, 3), "01:02:03"),
        (time(1, 2, 3, 500_000), "01:02:03.5"),
        (datetime(2024, 2, 29, 1, 2, 3), "2024-02-29T01:02:03"),
        (datetime(2024, 2, 29, 1, 2, 3, 10), "2024-02-29T01:02:03.00001"),
        (("a", None, b"\x01"), ["a", None, {"hex": "01"}]),
        ((), []),
    ],
)
def test_a_value_has_one_form(value: Any, written: Any) -> None:
    assert value_to_json(value) == written


@pytest.mark.parametrize(
    ("moment", "written"),
    [
        (datetime(2024, 5, 10, 12, 0, 0, 250_000, tzinfo=UTC), "2024-05-10T12:00:00.25Z"),
        (datetime(2024, 5, 10, 14, tzinfo=timezone(timedelta(hours=2))), "2024-05-10T12:00:00Z"),
    ],
)
def test_commit_times_are_in_utc(moment: datetime, written: str) -> None:
    change = Change(None, "t", ChangeOp.TRUNCATE, commit_time=moment)
    assert to_json(change)["commit_time"] == written
    assert loads(dumps(change)).commit_time == moment


def test_sets_are_sorted() -> None:
    change = Change(
        None, "t", ChangeOp.UPDATE, after={"b": 1, "a": 2}, changed=frozenset({"b", "a"})
    )
    assert to_json(change)["changed"] == ["a", "b"]
    assert list(to_json(change)["after"]) == ["b", "a"]


def test_missing_members_are_none_and_unknown_ones_ignored() -> None:
    change = from_json({"table": "t", "op": "DELETE", "key": [["id", 1]], "colour": "red"})
    assert change == Change(None, "t", ChangeOp.DELETE, (("id", 1),))
    assert change.extras == {}


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "JSON object"),
        ("{}", "name of its table"),
        ('{"table":"t","op":"UPSERT"}', "use one of INSERT"),
        ('{"table":"t","op":"DELETE","key":"id"}', "key is 'id', which is not of type list"),
        ('{"table":"t","op":"DELETE","key":["id"]}', "not a [column, value]"),
        ('{"table":"t","op":"INSERT","after":[]}', "after is [], which is not of type dict"),
        (
            '{"table":"t","op":"INSERT","after":{"a":{"b":1}}}',
            "a JSON object with the members b is not a value",
        ),
        ('{"table":"t","op":"INSERT","after":{"a":{"hex":"0"}}}', "cannot be read"),
        ('{"table":"t","op":"UPDATE","after":{"a":1},"changed":"a"}', "changed is 'a'"),
        ('{"table":"t","op":"TRUNCATE","position":7}', "position is 7"),
        ('{"table":"t","op":"TRUNCATE","event_number":true}', "event_number is True"),
        ('{"table":"t","op":"TRUNCATE","commit_time":"noon"}', "cannot be read"),
        (
            '{"table":"t","op":"TRUNCATE","commit_time":"0001-01-01T00:00:00+14:00"}',
            "cannot be read",
        ),
    ],
)
def test_what_is_no_change_is_refused_with_the_reason(line: str, part: str) -> None:
    with pytest.raises(FormatError) as caught:
        loads(line)
    assert part in str(caught.value)


def test_a_change_against_the_invariants_is_refused_as_such() -> None:
    with pytest.raises(InvalidChange):
        loads('{"table":"t","op":"INSERT"}')


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = PLAIN | st.binary() | st.lists(PLAIN, max_size=3).map(tuple)
ROWS = st.dictionaries(st.text(), VALUES, max_size=4)


@given(
    ROWS,
    ROWS,
    st.lists(st.tuples(st.text(), PLAIN), max_size=3),
    st.dictionaries(st.text(), PLAIN | st.binary()),
)
def test_what_json_has_types_for_comes_back_as_it_was(
    before: Any, after: Any, key: Any, extras: Any
) -> None:
    change = Change(
        "s", "t", ChangeOp.UPDATE, tuple(key), before, after, frozenset(after), "1", extras=extras
    )
    again = loads(dumps(change))
    assert again == change
    assert again.extras == extras
    assert json.loads(dumps(change), parse_constant=pytest.fail) == to_json(change)
