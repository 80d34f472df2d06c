"""Event -> Change: how XDS is read (spec/change-model.md 3.2)."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from event_samples import DELETE, INSERT, KEY, NOON, TYPES, USR_1, add, modify, remove
from hypothesis import given
from hypothesis import strategies as st
from samples import CATALOG

from eventlog.changes.events import event_to_change, parse_association
from eventlog.core.table_key import quote
from eventlog.core.values import ColumnType, Kind, ValueOptions, converter
from eventlog.core.values.typed_values import moment_reader, value_reader
from eventlog.errors import BadTableKey, BadValue, FormatError
from eventlog.model import AttributeSteps, Change, Event, Op, Operation, Step

ALL = Step(Op.REMOVE_ALL, ())


@pytest.mark.parametrize(
    ("steps", "before", "after"),
    [
        ((remove("a"), add("b")), {"fname": "a"}, "b"),
        ((add("b"),), {"fname": None}, "b"),
        ((remove("a"),), {"fname": "a"}, None),
        ((ALL,), None, None),
        ((ALL, add("b")), None, "b"),
        ((remove("a"), add("b"), ALL, add("c"), remove("c")), {"fname": "a"}, None),
        ((remove("a"), add("b"), remove("b"), add("c")), {"fname": "a"}, "c"),
        ((add("a"), remove("a"), add("b")), {"fname": None}, "b"),
        ((add("b"), remove("a")), {"fname": "a"}, "b"),
        ((ALL, add("a"), remove("a")), None, None),
        ((remove("a"), add("a")), {"fname": "a"}, "a"),
    ],
)
def test_a_modify_reads_as_the_net_effect_of_its_steps(steps: Any, before: Any, after: Any) -> None:
    change = event_to_change(modify("fname", *steps), CATALOG)
    assert change.before == (None if before is None else {"idu": 1, **before})
    assert change.after == {"idu": 1, "fname": after}
    assert change.changed == {"fname"}


STEPS = st.lists(
    st.one_of(st.builds(add, st.sampled_from("abc")), st.builds(remove, st.sampled_from("abc")),
    st.just(ALL)), min_size=1, max_size=5,
)  # fmt: skip


@given(STEPS)
def test_the_row_after_is_that_of_the_steps_done_one_by_one(steps: list[Step]) -> None:
    value = None
    for step in steps:
        if step.op is Op.ADD:
            (value,) = step.values
        elif step.op is Op.REMOVE_ALL or value in step.values:
            value = None
    first = steps[0]
    known = {
        Op.ADD: {"fname": None},
        Op.REMOVE: {"fname": "".join(first.values)},
        Op.REMOVE_ALL: None,
    }[first.op]
    for reader in (CATALOG, None):
        change = event_to_change(modify("fname", *steps), reader)
        assert (change.after or {})["fname"] == value
        if len(steps) <= 2 and known != {"fname": None}:
            assert (change.before or {}).get("fname") == (known or {}).get("fname")


@given(st.datetimes(), st.sampled_from([" ", "T"]), st.integers(0, 9))
def test_a_moment_is_the_same_with_and_without_the_zone_it_is_read_in(
    moment: datetime, sep: str, digits: int
) -> None:
    fraction = f".{moment.microsecond:06}789"[: digits + 1] if digits else ""
    text = f"{moment.replace(microsecond=0).isoformat(sep)}{fraction}"
    read = moment_reader("UTC")
    assert read(text) == read(f"{text}Z") == read(f"{text}+00:00")
    assert read(text).tzinfo is UTC


@given(st.datetimes(), st.sampled_from([" ", "T"]), st.integers(0, 9))
def test_a_plain_moment_is_read_as_any_other(moment: datetime, sep: str, digits: int) -> None:
    fraction = f".{moment.microsecond:06}789"[: digits + 1] if digits else ""
    text = f"{moment.replace(microsecond=0).isoformat(sep)}{fraction}"
    for kind, zone in ((Kind.TIMESTAMP, None), (Kind.TIMESTAMPTZ, UTC)):
        read_any = converter(ColumnType(kind), ValueOptions("value"))
        expected = read_any(text)
        assert value_reader(ColumnType(kind))(text) == expected.replace(tzinfo=zone)


@pytest.mark.parametrize(
    "text",
    [
        "2024-02-30 01:02:03",
        "0000-01-01 00:00:00",
        "2024-01-01 24:00:00",
        "20240101 010203",
        "2024-W01-1 01:02",
    ],
)
def test_text_that_python_alone_might_read_is_no_moment(text: str) -> None:
    with pytest.raises(BadValue):
        moment_reader("UTC")(text)


@pytest.mark.parametrize(
    ("steps", "before", "after"),
    [
        ((remove("a"), add("b")), ("a",), ("b",)),
        ((add("b"),), (), ("b",)),
        ((remove("a"),), ("a",), ()),
        ((add("a"), remove("a")), (), ()),
        ((remove("a"), add("b"), remove("b"), add("a", "c")), (), ("c",)),
    ],
)
def test_a_multi_valued_attribute_reads_as_what_was_removed_and_added(
    steps: Any, before: Any, after: Any
) -> None:
    change = event_to_change(modify("usr_phone.phoneno", *steps), CATALOG)
    assert change.before == {"idu": 1, "usr_phone.phoneno": before}
    assert change.after == {"idu": 1, "usr_phone.phoneno": after}


def test_what_remove_all_values_removes_is_not_known() -> None:
    change = event_to_change(modify("usr_phone.phoneno", ALL, add("b", "a")), CATALOG)
    assert change.before is None
    assert change.after == {"idu": 1, "usr_phone.phoneno": ("b", "a")}


def test_an_add_reads_as_an_insert_of_key_and_values() -> None:
    attributes = (
        AttributeSteps("fname", "string", (add("Jack"),)),
        AttributeSteps("photo", "octet", (add("qqo="),)),
    )
    change = event_to_change(Event(Operation.ADD, "usr", USR_1, "4", attributes), CATALOG)
    assert change == Change(
        "indirect",
        "usr",
        INSERT,
        KEY,
        after={"idu": 1, "fname": "Jack", "photo": b"\xaa\xaa"},
        position="4",
    )
    assert change.extras == {"event_id": "4"}


def test_a_delete_has_its_key_alone() -> None:
    change = event_to_change(Event(Operation.DELETE, "usr", "idu=1,table=usr", "4.2"), CATALOG)
    assert change == Change(None, "usr", DELETE, KEY, before={"idu": 1}, position="4.2")


@pytest.mark.parametrize(
    ("name", "value_type", "text", "value", "without"),
    [
        ("n", "int", "007", 7, 7),
        ("d", "string", "1.50", Decimal("1.50"), "1.50"),
        ("f", "string", "1e-05", 1e-05, "1e-05"),
        ("b", "state", "true", True, True),
        ("c", "string", "ab", "ab", "ab"),
        ("s", "string", "", "", ""),
        ("x", "octet", "qqo=", b"\xaa\xaa", b"\xaa\xaa"),
        ("day", "time", "1709164800", date(2024, 2, 29), datetime(2024, 2, 29)),
        ("at", "time", "100", time(0, 1, 40), datetime(1970, 1, 1, 0, 1, 40)),
        (
            "ts",
            "time",
            "-2",
            datetime(1969, 12, 31, 23, 59, 58),
            datetime(1969, 12, 31, 23, 59, 58),
        ),
        ("tz", "time", "1715342400", NOON.replace(tzinfo=UTC), NOON),
    ],
)
def test_values_are_typed_by_their_xds_type_and_further_by_their_column(
    name: str, value_type: str, text: str, value: Any, without: Any
) -> None:
    event = Event(
        Operation.ADD, "t", "id=1,table=t", "1", (AttributeSteps(name, value_type, (add(text),)),)
    )
    assert (event_to_change(event, TYPES).after or {})[name] == value
    read = (event_to_change(event).after or {})[name]
    assert (read, type(read)) == (without, type(without))


@pytest.mark.parametrize(
    ("syntax", "name", "text", "value"),
    [
        ("canonical", "day", "20240229", date(2024, 2, 29)),
        ("canonical", "at", "000140", time(0, 1, 40)),
        ("canonical", "ts", "19691231235958500000000", datetime(1969, 12, 31, 23, 59, 58, 500_000)),
        ("java", "day", "2024-02-29", date(2024, 2, 29)),
        ("java", "ts", "1969-12-31 23:59:58.5", datetime(1969, 12, 31, 23, 59, 58, 500_000)),
        ("java", "tz", "2001-09-09 01:46:40.0", datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)),
    ],
)
def test_times_are_read_in_the_syntax_they_were_written_in(
    syntax: str, name: str, text: str, value: Any
) -> None:
    event = Event(
        Operation.ADD, "t", "id=1,table=t", "1", (AttributeSteps(name, "string", (add(text),)),)
    )
    assert (event_to_change(event, TYPES, ValueOptions(syntax)).after or {})[name] == value


@pytest.mark.parametrize(
    "event",
    [
        Event(Operation.DELETE, "usr", "nothing", "3"),
        Event(Operation.DELETE, "usr", 'idu="1,table=usr', "3"),
        Event(Operation.DELETE, "usr", "idu=x,table=usr", "3"),
        Event(Operation.DELETE, "usr", "id=1,table=usr", "3"),
        Event(Operation.ADD, "usr", USR_1, "3", (AttributeSteps("photo", "octet", (add("?"),)),)),
        Event(Operation.ADD, "usr", USR_1, "3", (AttributeSteps("at", "time", (add("noon"),)),)),
        Event(Operation.ADD, "usr", USR_1, "3", (AttributeSteps("at", "time", (add("9" * 15),)),)),
    ],
)
def test_an_event_that_cannot_be_read_is_named(event: Event) -> None:
    with pytest.raises(FormatError, match="event '3'"):
        event_to_change(event, CATALOG)


NAMES = st.text(st.characters(exclude_characters="\0"), min_size=1)


@given(
    st.dictionaries(NAMES, st.text(st.characters(exclude_characters="\0")), min_size=1, max_size=3),
    NAMES,
    NAMES,
)
def test_an_association_is_taken_apart_whatever_stands_in_its_names(
    key: Any, name: str, schema: str
) -> None:
    text = "+".join(f"{quote(column)}={quote(value)}" for column, value in key.items())
    parts, of_table, of_schema = parse_association(
        f"{text},table={quote(name)},schema={quote(schema)}"
    )
    assert [(part.name, part.value) for part in parts] == list(key.items())
    assert (of_table, of_schema) == (name, schema)


@given(st.text())
def test_any_other_text_is_an_association_or_is_refused(text: str) -> None:
    with contextlib.suppress(BadTableKey):
        parse_association(text)
