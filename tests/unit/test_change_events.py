"""Event <-> Change (spec/change-model.md 3.2, 4)."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import CATALOG, database, good, row, table

from eventlog.changes.from_events import event_to_change, outgoing_reader, parse_association
from eventlog.changes.to_events import EventWriting, change_to_events
from eventlog.core.catalog import build_catalog
from eventlog.core.events import EventOptions, build_event, public_event
from eventlog.core.fold import fold
from eventlog.core.table_key import quote
from eventlog.core.typed import moment_reader
from eventlog.core.values import ValueOptions
from eventlog.errors import BadTableKey, BadValue, FormatError, NeedsQueryBack, NeedsRowCodec, NotExpressible
from eventlog.model import AttributeSteps, Change, ChangeOp, Event, Op, Operation, Step
from eventlog.xds.reader import read_events
from eventlog.xds.writer import Header, line_form, write_event

INSERT, UPDATE, DELETE, TRUNCATE = ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.TRUNCATE
USR_1 = "idu=1,table=usr,schema=indirect"
KEY = (("idu", 1),)
ALL = Step(Op.REMOVE_ALL, ())


def add(*values: str) -> Step:
    return Step(Op.ADD, values)


def remove(*values: str) -> Step:
    return Step(Op.REMOVE, values)


def modify(name: str, *steps: Step, value_type: str = "string") -> Event:
    return Event(Operation.MODIFY, "usr", USR_1, "9", (AttributeSteps(name, value_type, steps),))


# Reading


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
    st.one_of(st.builds(add, st.sampled_from("abc")), st.builds(remove, st.sampled_from("abc")), st.just(ALL)),
    min_size=1, max_size=5,
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
    known = {Op.ADD: {"fname": None}, Op.REMOVE: {"fname": "".join(first.values)}, Op.REMOVE_ALL: None}[first.op]
    for reader in (CATALOG, None):
        change = event_to_change(modify("fname", *steps), reader)
        assert (change.after or {})["fname"] == value
        if len(steps) <= 2 and known != {"fname": None}:
            assert (change.before or {}).get("fname") == (known or {}).get("fname")


@given(st.datetimes(), st.sampled_from([" ", "T"]), st.integers(0, 9))
def test_a_moment_is_the_same_with_and_without_the_zone_it_is_read_in(moment: datetime, sep: str, digits: int) -> None:
    fraction = f".{moment.microsecond:06}789"[: digits + 1] if digits else ""
    text = f"{moment.replace(microsecond=0).isoformat(sep)}{fraction}"
    read = moment_reader("UTC")
    assert read(text) == read(f"{text}Z") == read(f"{text}+00:00")
    assert read(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text", ["2024-02-30 01:02:03", "0000-01-01 00:00:00", "2024-01-01 24:00:00", "20240101 010203", "2024-W01-1 01:02"]
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
def test_a_multi_valued_attribute_reads_as_what_was_removed_and_added(steps: Any, before: Any, after: Any) -> None:
    change = event_to_change(modify("usr_phone.phoneno", *steps), CATALOG)
    assert change.before == {"idu": 1, "usr_phone.phoneno": before}
    assert change.after == {"idu": 1, "usr_phone.phoneno": after}


def test_what_remove_all_values_removes_is_not_known() -> None:
    change = event_to_change(modify("usr_phone.phoneno", ALL, add("b", "a")), CATALOG)
    assert change.before is None
    assert change.after == {"idu": 1, "usr_phone.phoneno": ("b", "a")}


def test_an_add_reads_as_an_insert_of_key_and_values() -> None:
    attributes = (AttributeSteps("fname", "string", (add("Jack"),)), AttributeSteps("photo", "octet", (add("qqo="),)))
    change = event_to_change(Event(Operation.ADD, "usr", USR_1, "4", attributes), CATALOG)
    assert change == Change(
        "indirect", "usr", INSERT, KEY, after={"idu": 1, "fname": "Jack", "photo": b"\xaa\xaa"}, position="4"
    )
    assert change.extras == {"event_id": "4"}


def test_a_delete_knows_its_key_alone() -> None:
    change = event_to_change(Event(Operation.DELETE, "usr", "idu=1,table=usr", "4.2"), CATALOG)
    assert change == Change(None, "usr", DELETE, KEY, before={"idu": 1}, position="4.2")


TYPES = build_catalog(
    database(
        table(
            "t",
            "id integer; n integer; d decimal(9,2); f double; b boolean; c char(5); s varchar(9); x varbinary(9);"
            "day date; at time; ts timestamp; tz timestamptz",
            "id",
        ),
        table("ref", "id integer; t integer", "id", [("t", "t", "id")]),
    ),
    referential="dn",
)
NOON = datetime(2024, 5, 10, 12)


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
        ("ts", "time", "-2", datetime(1969, 12, 31, 23, 59, 58), datetime(1969, 12, 31, 23, 59, 58)),
        ("tz", "time", "1715342400", NOON.replace(tzinfo=UTC), NOON),
    ],
)
def test_values_are_typed_by_their_xds_type_and_further_by_their_column(
    name: str, value_type: str, text: str, value: Any, without: Any
) -> None:
    event = Event(Operation.ADD, "t", "id=1,table=t", "1", (AttributeSteps(name, value_type, (add(text),)),))
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
def test_times_are_read_in_the_syntax_they_were_written_in(syntax: str, name: str, text: str, value: Any) -> None:
    event = Event(Operation.ADD, "t", "id=1,table=t", "1", (AttributeSteps(name, "string", (add(text),)),))
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


@given(st.dictionaries(NAMES, st.text(st.characters(exclude_characters="\0")), min_size=1, max_size=3), NAMES, NAMES)
def test_an_association_is_taken_apart_whatever_stands_in_its_names(key: Any, name: str, schema: str) -> None:
    text = "+".join(f"{quote(column)}={quote(value)}" for column, value in key.items())
    found = parse_association(f"{text},table={quote(name)},schema={quote(schema)}")
    assert [(part.name, part.value) for part in found.key] == list(key.items())
    assert (found.table, found.schema) == (name, schema)


@given(st.text())
def test_any_other_text_is_an_association_or_is_refused(text: str) -> None:
    with contextlib.suppress(BadTableKey):
        parse_association(text)


# Writing


def usr(op: ChangeOp, **fields: Any) -> Change:
    return Change("indirect", "usr", op, KEY, position="7", **fields)


def written(change: Change, **options: Any) -> list[str]:
    """The elements without what all have in common."""
    events = change_to_events(change, "7", CATALOG, EventWriting(**options))
    return [
        write_event(event)
        .replace(f"<association>{USR_1}</association>", "A")
        .replace(' class-name="usr"', "")
        .replace(' type="string"', "")
        for event in events
    ]


def test_an_insert_is_an_add_without_its_nulls() -> None:
    change = usr(INSERT, after={"idu": 1, "fname": "Jack", "lname": None, "photo": b"\xaa\xaa"})
    assert written(change) == [
        '<add event-id="7">A<add-attr attr-name="fname"><value>Jack</value></add-attr>'
        '<add-attr attr-name="photo"><value type="octet">qqo=</value></add-attr></add>'
    ]
    assert written(change._replace(op=ChangeOp.REFRESH)) == written(change)


def test_an_insert_without_any_value_is_an_add_with_its_association_alone() -> None:
    assert written(usr(INSERT, after={"idu": 1, "fname": None})) == ['<add event-id="7">A</add>']


@pytest.mark.parametrize(
    ("insert_query_back", "elements"),
    [
        (
            "modify",
            '<modify event-id="7">A<modify-attr attr-name="fname"><remove-all-values/><add-value><value>John</value>'
            '</add-value></modify-attr><modify-attr attr-name="lname"><remove-all-values/></modify-attr></modify>',
        ),
        ("add", '<add event-id="7">A<add-attr attr-name="fname"><value>John</value></add-attr></add>'),
    ],
)
def test_an_insert_that_was_queried_back_is_written_as_types_5_and_7(insert_query_back: str, elements: str) -> None:
    change = usr(INSERT, after={"idu": 1, "fname": "John", "lname": None}, extras={"query_back": "row"})
    assert written(change, insert_query_back=insert_query_back) == [elements]


def test_an_insert_queried_back_with_nothing_to_carry_is_not_lost() -> None:
    assert written(usr(INSERT, after={"idu": 1}, extras={"query_back": "row"})) == ['<add event-id="7">A</add>']


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ("a", "b", "<remove-value><value>a</value></remove-value><add-value><value>b</value></add-value>"),
        (None, "b", "<add-value><value>b</value></add-value>"),
        ("a", None, "<remove-value><value>a</value></remove-value>"),
        ("a", "a", "<remove-value><value>a</value></remove-value><add-value><value>a</value></add-value>"),
        ("a", "", "<remove-value><value>a</value></remove-value><add-value><value></value></add-value>"),
    ],
)
def test_an_update_with_its_old_value_removes_it(before: Any, after: Any, steps: str) -> None:
    change = usr(
        UPDATE,
        before={"idu": 1, "fname": before, "lname": "x"},
        after={"idu": 1, "fname": after, "lname": "x"},
        changed=frozenset({"fname"}),
    )
    assert written(change) == [f'<modify event-id="7">A<modify-attr attr-name="fname">{steps}</modify-attr></modify>']


@pytest.mark.parametrize(
    ("after", "steps"),
    [
        ("b", "<remove-all-values/><add-value><value>b</value></add-value>"),
        (None, "<remove-all-values/>"),
        (("b", "a"), "<remove-all-values/><add-value><value>b</value><value>a</value></add-value>"),
        ((), "<remove-all-values/>"),
    ],
)
def test_an_update_without_its_old_value_removes_all(after: Any, steps: str) -> None:
    name = "usr_phone.phoneno" if isinstance(after, tuple) else "fname"
    change = usr(UPDATE, after={"idu": 1, name: after}, changed=frozenset({name}))
    assert written(change) == [f'<modify event-id="7">A<modify-attr attr-name="{name}">{steps}</modify-attr></modify>']


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ({"idu": 1, "fname": "a", "lname": "x"}, {"idu": 1, "fname": "b", "lname": "x"}, ["fname"]),
        ({"fname": "a"}, {"idu": 1, "fname": "b", "lname": "x"}, ["fname", "lname"]),
        (None, {"idu": 1, "fname": "b", "lname": "x"}, ["fname", "lname"]),
    ],
)
def test_columns_are_written_that_differ_or_else_all_that_are_known(before: Any, after: Any, names: list[str]) -> None:
    (event,) = change_to_events(usr(UPDATE, before=before, after=after), "7", CATALOG)
    assert [attribute.name for attribute in event.attributes] == names


def test_a_column_that_may_have_changed_is_written_without_its_old_value() -> None:
    change = usr(
        UPDATE,
        before={"idu": 1, "fname": "a", "photo": b"\0"},
        after={"idu": 1, "fname": "a", "photo": b"\xaa\xaa"},
        changed=frozenset(),
        extras={"changed_unknown": ["photo", "lname"]},
    )
    assert written(change) == [
        '<modify event-id="7">A<modify-attr attr-name="photo"><remove-all-values/>'
        '<add-value><value type="octet">qqo=</value></add-value></modify-attr></modify>'
    ]


@pytest.mark.parametrize(
    "change",
    [
        usr(UPDATE, after={"idu": 1, "fname": "b"}, changed=frozenset()),
        usr(UPDATE, before={"fname": "b"}, after={"fname": "b"}),
        usr(UPDATE, before={"idu": 1, "fname": None}, after={"idu": 1, "fname": None}, changed=frozenset({"fname"})),
    ],
)
def test_an_update_that_changes_nothing_is_no_event(change: Change) -> None:
    assert written(change) == []


def test_a_new_key_is_a_delete_then_an_add_of_the_whole_row() -> None:
    change = Change(
        "indirect", "usr", UPDATE, (("idu", 5),), {"idu": 1, "fname": "a"}, {"idu": 5, "fname": "a", "lname": "x"}
    )
    old, new = change_to_events(change, "7", CATALOG)
    assert (old.operation, old.association, old.event_id) == (Operation.DELETE, USR_1, "7")
    assert (new.operation, new.event_id) == (Operation.ADD, "7.2")
    assert new.association == "idu=5,table=usr,schema=indirect"
    assert [attribute.name for attribute in new.attributes] == ["fname", "lname"]


def test_a_truncate_deletes_the_keys_that_are_given() -> None:
    change = Change("indirect", "usr", TRUNCATE)
    keys = [(("idu", 1),), (("idu", 2),), (("idu", 3),)]
    events = change_to_events(change, "7", CATALOG, EventWriting(existing_keys={"usr": keys}.get))
    assert [(event.association[:5], event.event_id) for event in events] == [
        ("idu=1", "7"),
        ("idu=2", "7.2"),
        ("idu=3", "7.3"),
    ]
    for options in (EventWriting(), EventWriting(existing_keys=lambda table: None)):
        with pytest.raises(NotExpressible, match="TRUNCATE of 'usr'"):
            change_to_events(change, "7", CATALOG, options)


def test_a_key_that_the_change_does_not_say_comes_from_the_catalogue() -> None:
    change = Change("indirect", "usr", DELETE, None, {"idu": 1, "fname": "a"})
    assert change_to_events(change, "7", CATALOG)[0].association == USR_1
    with pytest.raises(NotExpressible, match="has no key"):
        change_to_events(change, "7")


def test_without_a_catalogue_values_are_written_by_their_own_types() -> None:
    row = {"d": Decimal("1E+3"), "f": 1e16, "b": False, "day": date(1970, 1, 2), "at": time(0, 0, 7), "ts": NOON}
    (event,) = change_to_events(Change(None, "t", INSERT, (("k", "a b"), ("n", Decimal("1.50"))), after=row), "1")
    assert event.association == "k=a b+n=1.5,table=t"
    assert [(one.name, one.value_type, one.steps[0].values[0]) for one in event.attributes] == [
        ("d", "string", "1000"),
        ("f", "string", "1e+16"),
        ("b", "state", "false"),
        ("day", "time", "86400"),
        ("at", "time", "7"),
        ("ts", "time", "1715342400"),
    ]


def test_a_reference_is_written_and_read_as_the_association_of_its_target() -> None:
    change = Change("indirect", "ref", INSERT, (("id", 1),), after={"id": 1, "t": 5}, position="1")
    (event,) = change_to_events(change, "1", TYPES)
    assert event.attributes[0].steps[0].values == ("id=5,table=t,schema=indirect",)
    assert event_to_change(event, TYPES) == change


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (usr(INSERT, extras={"query_back": "row"}), NeedsQueryBack),
        (usr(UPDATE, extras={"query_back": "field", "columns": ["fname"]}), NeedsQueryBack),
        (usr(INSERT, extras={"part1": b"\0"}), NeedsRowCodec),
        (Change(None, "usr", DELETE, extras={"part1": b"\0"}), NeedsRowCodec),
        (usr(INSERT, after={"idu": 1, "fname": "bell \a"}), NotExpressible),
        (Change("indirect", "usr", DELETE, (("idu", None),)), NotExpressible),
        (Change("indirect", "usr", DELETE, (("idu", "x"),)), NotExpressible),
        (Change("bad \a", "usr", DELETE, (("idu", 1),)), NotExpressible),
    ],
)
def test_what_a_document_cannot_say_is_refused(change: Change, error: type[Exception]) -> None:
    with pytest.raises(error, match="usr"):
        change_to_events(change, "7", CATALOG)


def test_fractions_of_a_second_that_are_not_written_are_told() -> None:
    told: list[str] = []
    row = {"id": 1, "at": time(1, 2, 3, 4), "ts": NOON.replace(microsecond=1), "tz": NOON.replace(tzinfo=UTC)}
    change = Change("indirect", "t", INSERT, (("id", 1),), after=row)
    change_to_events(change, "1", TYPES, EventWriting(truncated=told.append))
    assert told == ["indirect.t.at", "indirect.t.ts"]


# Special times

PRICE = build_catalog(
    database(table("price", "id integer; day date; at time; until timestamptz; amount decimal", "id"))
)
PRICE_1 = "id=1,table=price,schema=indirect"


@pytest.mark.parametrize("syntax", ["integer", "canonical", "java"])
@pytest.mark.parametrize(
    ("column", "old", "new"),
    [
        ("day", "infinity", date(2024, 2, 29)),
        ("day", date(2024, 2, 29), "0044-03-15 BC"),
        ("day", "12345-01-01", "-infinity"),
        ("at", time(1, 2, 3), "24:00:00"),
        ("until", "infinity", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        ("until", "infinity", None),
    ],
)
def test_special_times_come_back_as_their_text(syntax: str, column: str, old: Any, new: Any) -> None:
    change = Change(
        "indirect", "price", UPDATE, (("id", 1),), {"id": 1, column: old}, {"id": 1, column: new}, frozenset((column,))
    )
    (event,) = change_to_events(change, "1", PRICE, EventWriting(time_syntax=syntax))
    document = line_form([write_event(event)], Header())
    (read,) = read_events(document).events
    back = event_to_change(read, PRICE, ValueOptions(syntax))
    assert (back.before, back.after) == (change.before, change.after)


def test_without_a_catalog_special_times_stand_beside_times() -> None:
    moment = datetime(2024, 2, 29)
    change = Change("s", "t", UPDATE, (("id", "1"),), {"d": "infinity"}, {"d": moment}, frozenset("d"))
    (event,) = change_to_events(change, "1")
    assert event.attributes == (AttributeSteps("d", "time", (remove("infinity"), add("1709164800"))),)
    back = event_to_change(event)
    assert (back.before, back.after) == ({"id": "1", "d": "infinity"}, {"id": "1", "d": moment})


def test_a_column_of_another_database_holds_no_special_time() -> None:
    elsewhere = build_catalog(replace(database(table("price", "id integer; day date", "id")), dialect="oracle"))
    change = Change("indirect", "price", INSERT, (("id", 1),), None, {"id": 1, "day": "infinity"})
    with pytest.raises(NotExpressible, match="column 'day': 'infinity' is not a date"):
        change_to_events(change, "1", elsewhere)
    event = Event(Operation.ADD, "price", PRICE_1, "1", (AttributeSteps("day", "string", (add("infinity"),)),))
    with pytest.raises(FormatError, match="'infinity' is not a date"):
        event_to_change(event, elsewhere)


def test_words_of_exact_numbers_are_written_with_and_without_a_catalog() -> None:
    change = Change("indirect", "price", INSERT, (("id", 1),), None, {"id": 1, "amount": Decimal("NaN")})
    for catalog in (PRICE, None):
        (event,) = change_to_events(change, "1", catalog)
        assert event.attributes == (AttributeSteps("amount", "string", (add("NaN"),)),)


def test_a_key_may_be_a_special_time() -> None:
    classes = build_catalog(database(table("slot", "until timestamptz; n integer", "until")))
    change = Change("indirect", "slot", INSERT, (("until", "infinity"),), None, {"until": "infinity", "n": 1})
    (event,) = change_to_events(change, "1", classes)
    assert event.association == "until=infinity,table=slot,schema=indirect"
    assert event_to_change(event, classes).key == (("until", "infinity"),)


@pytest.mark.parametrize(
    ("changed", "event_id", "part"),
    [
        ({"table": "\ud800"}, "1", "name of '\\\\ud800'"),
        ({}, "\ud800", "position of 'usr'"),
        ({"after": {"idu": 1, "\ud800": 2}}, "1", "name of the column '\\\\ud800'"),
    ],
)
def test_names_that_no_document_can_carry_are_refused(changed: dict[str, Any], event_id: str, part: str) -> None:
    change = Change("indirect", "usr", INSERT, KEY, None, {"idu": 1, "fname": "a"})._replace(**changed)
    with pytest.raises(NotExpressible, match=f"the {part} .*cannot be written"):
        change_to_events(change, event_id)


# --- events on their way ----------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["a", "b", ""])
LOGGED = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 2, 3]),
        st.sampled_from([("usr", "fname"), ("usr", "lname"), ("usr", "idu"), ("usr_phone", "phoneno")]),
        st.none() | TEXTS,
        st.none() | TEXTS,
    ),
    min_size=1,
    max_size=6,
)


def test_the_change_of_an_event_on_its_way_is_that_of_its_public_form() -> None:
    compared = 0

    @given(LOGGED)
    def compare(logged: list[tuple[int, tuple[str, str], str | None, str | None]]) -> None:
        nonlocal compared
        rows = [
            row(number, kind, column=column, old=old, new=new, table=name)
            for number, (kind, (name, column), old, new) in enumerate(logged, 1)
        ]
        read = outgoing_reader(CATALOG, ValueOptions())
        for group in fold(good(rows), 1000, 0):
            event = build_event(group, EventOptions())
            if event.operation is not None:
                assert read(event, None, None) == event_to_change(public_event(event), CATALOG)
                compared += 1

    compare()
    assert compared
