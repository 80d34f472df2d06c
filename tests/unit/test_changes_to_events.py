"""Change -> events: how changes are written as XDS (spec/change-model.md 4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from event_samples import (
    DELETE,
    INSERT,
    KEY,
    NOON,
    TRUNCATE,
    TYPES,
    UPDATE,
    USR_1,
    add,
    remove,
    usr,
)
from samples import CATALOG, database, table
from shared import refused

from eventlog.changes.events import event_to_change
from eventlog.changes.to_events import EventWriting, change_to_events
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import ValueOptions
from eventlog.errors import EventlogError, FormatError, NotExpressible
from eventlog.model import AttributeSteps, Change, ChangeOp, Event, Operation
from eventlog.xds.reader import read_events
from eventlog.xds.writer import Header, line_form, write_event


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
    ("before", "after", "steps"),
    [
        ("a\x07", "ok", "<remove-all-values/><add-value><value>ok</value></add-value>"),
        ("a\x07", None, "<remove-all-values/>"),
        (("a\x07", "b"), "ok", "<remove-value><value>b</value></remove-value>"
                               "<add-value><value>ok</value></add-value>"),
    ],
    ids=["single", "to NULL", "several"],
)  # fmt: skip
def test_an_old_value_that_xml_cannot_hold_is_not_removed_since_it_was_never_sent(
    before: Any, after: Any, steps: str
) -> None:
    counted: list[str] = []
    row = {"idu": 1, "fname": after}
    change = usr(UPDATE, before={**row, "fname": before}, after=row, changed=frozenset({"fname"}))
    (element,) = written(change, old_unreadable=counted.append)
    assert f'<modify-attr attr-name="fname">{steps}</modify-attr>' in element
    assert counted == ["indirect.usr.fname"]


@pytest.mark.parametrize(
    ("insert_query_back", "elements"),
    [
        (
            "modify",
            '<modify event-id="7">A<modify-attr '
            'attr-name="fname"><remove-all-values/><add-value><value>John</value></add-value></modify-attr><modify-attr '
            'attr-name="lname"><remove-all-values/></modify-attr></modify>',
        ),
        (
            "add",
            '<add event-id="7">A<add-attr attr-name="fname"><value>John</value></add-attr></add>',
        ),
    ],
)
def test_an_insert_that_was_queried_back_is_written_as_types_5_and_7(
    insert_query_back: str, elements: str
) -> None:
    change = usr(
        INSERT, after={"idu": 1, "fname": "John", "lname": None}, extras={"query_back": "row"}
    )
    assert written(change, insert_query_back=insert_query_back) == [elements]


def test_an_insert_queried_back_with_nothing_to_carry_is_not_lost() -> None:
    assert written(usr(INSERT, after={"idu": 1}, extras={"query_back": "row"})) == [
        '<add event-id="7">A</add>'
    ]


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        (
            "a",
            "b",
            "<remove-value><value>a</value></remove-value><add-value><value>b</value></add-value>",
        ),
        (None, "b", "<add-value><value>b</value></add-value>"),
        ("a", None, "<remove-value><value>a</value></remove-value>"),
        (
            "a",
            "a",
            "<remove-value><value>a</value></remove-value><add-value><value>a</value></add-value>",
        ),
        (
            "a",
            "",
            "<remove-value><value>a</value></remove-value><add-value><value></value></add-value>",
        ),
    ],
)
def test_an_update_with_its_old_value_removes_it(before: Any, after: Any, steps: str) -> None:
    change = usr(
        UPDATE,
        before={"idu": 1, "fname": before, "lname": "x"},
        after={"idu": 1, "fname": after, "lname": "x"},
        changed=frozenset({"fname"}),
    )
    assert written(change) == [
        f'<modify event-id="7">A<modify-attr attr-name="fname">{steps}</modify-attr></modify>'
    ]


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
    assert written(change) == [
        f'<modify event-id="7">A<modify-attr attr-name="{name}">{steps}</modify-attr></modify>'
    ]


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ({"idu": 1, "fname": "a", "lname": "x"}, {"idu": 1, "fname": "b", "lname": "x"}, ["fname"]),
        ({"fname": "a"}, {"idu": 1, "fname": "b", "lname": "x"}, ["fname", "lname"]),
        (None, {"idu": 1, "fname": "b", "lname": "x"}, ["fname", "lname"]),
    ],
)
def test_columns_are_written_that_differ_or_else_all_that_are_known(
    before: Any, after: Any, names: list[str]
) -> None:
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
        usr(
            UPDATE,
            before={"idu": 1, "fname": None},
            after={"idu": 1, "fname": None},
            changed=frozenset({"fname"}),
        ),
    ],
)
def test_an_update_that_changes_nothing_is_no_event(change: Change) -> None:
    assert written(change) == []


def test_a_new_key_is_a_delete_then_an_add_of_the_whole_row() -> None:
    change = Change(
        "indirect",
        "usr",
        UPDATE,
        (("idu", 5),),
        {"idu": 1, "fname": "a"},
        {"idu": 5, "fname": "a", "lname": "x"},
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
    row = {
        "d": Decimal("1E+3"),
        "f": 1e16,
        "b": False,
        "day": date(1970, 1, 2),
        "at": time(0, 0, 7),
        "ts": NOON,
    }
    (event,) = change_to_events(
        Change(None, "t", INSERT, (("k", "a b"), ("n", Decimal("1.50"))), after=row), "1"
    )
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


@pytest.mark.promise("code error-needs_query_back", "code error-needs_row_codec")
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (usr(INSERT, extras={"query_back": "row"}), "needs_query_back"),
        (usr(UPDATE, extras={"query_back": "field", "columns": ["fname"]}), "needs_query_back"),
        (usr(INSERT, extras={"part1": b"\0"}), "needs_row_codec"),
        (Change(None, "usr", DELETE, extras={"part1": b"\0"}), "needs_row_codec"),
        (usr(INSERT, after={"idu": 1, "fname": "bell \a"}), NotExpressible),
        (Change("indirect", "usr", DELETE, (("idu", None),)), NotExpressible),
        (Change("indirect", "usr", DELETE, (("idu", "x"),)), NotExpressible),
        (Change("bad \a", "usr", DELETE, (("idu", 1),)), NotExpressible),
    ],
)
def test_what_a_document_cannot_say_is_refused(
    change: Change, error: str | type[EventlogError]
) -> None:
    with refused(error, match="usr"):
        change_to_events(change, "7", CATALOG)


def test_fractions_of_a_second_that_are_not_written_are_reported() -> None:
    told: list[str] = []
    row = {
        "id": 1,
        "at": time(1, 2, 3, 4),
        "ts": NOON.replace(microsecond=1),
        "tz": NOON.replace(tzinfo=UTC),
    }
    change = Change("indirect", "t", INSERT, (("id", 1),), after=row)
    change_to_events(change, "1", TYPES, EventWriting(truncated=told.append))
    assert told == ["indirect.t.at", "indirect.t.ts"]


# Special times

PRICE = build_catalog(
    database(
        table("price", "id integer; day date; at time; until timestamptz; amount decimal", "id")
    )
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
def test_special_times_come_back_as_their_text(
    syntax: str, column: str, old: Any, new: Any
) -> None:
    change = Change(
        "indirect",
        "price",
        UPDATE,
        (("id", 1),),
        {"id": 1, column: old},
        {"id": 1, column: new},
        frozenset((column,)),
    )
    (event,) = change_to_events(change, "1", PRICE, EventWriting(ValueOptions(syntax)))
    document = line_form([write_event(event)], Header())
    (read,) = read_events(document).events
    back = event_to_change(read, PRICE, ValueOptions(syntax))
    assert (back.before, back.after) == (change.before, change.after)


def test_without_a_catalog_special_times_are_written_next_to_times() -> None:
    moment = datetime(2024, 2, 29)
    change = Change(
        "s", "t", UPDATE, (("id", "1"),), {"d": "infinity"}, {"d": moment}, frozenset("d")
    )
    (event,) = change_to_events(change, "1")
    assert event.attributes == (
        AttributeSteps("d", "time", (remove("infinity"), add("1709164800"))),
    )
    back = event_to_change(event)
    assert (back.before, back.after) == ({"id": "1", "d": "infinity"}, {"id": "1", "d": moment})


def test_a_column_of_another_database_holds_no_special_time() -> None:
    elsewhere = build_catalog(
        replace(database(table("price", "id integer; day date", "id")), dialect="oracle")
    )
    change = Change("indirect", "price", INSERT, (("id", 1),), None, {"id": 1, "day": "infinity"})
    with pytest.raises(NotExpressible, match="column 'day': 'infinity' is not a date"):
        change_to_events(change, "1", elsewhere)
    event = Event(
        Operation.ADD, "price", PRICE_1, "1", (AttributeSteps("day", "string", (add("infinity"),)),)
    )
    with pytest.raises(FormatError, match="'infinity' is not a date"):
        event_to_change(event, elsewhere)


def test_words_of_exact_numbers_are_written_with_and_without_a_catalog() -> None:
    change = Change(
        "indirect", "price", INSERT, (("id", 1),), None, {"id": 1, "amount": Decimal("NaN")}
    )
    for catalog in (PRICE, None):
        (event,) = change_to_events(change, "1", catalog)
        assert event.attributes == (AttributeSteps("amount", "string", (add("NaN"),)),)


def test_a_key_may_be_a_special_time() -> None:
    classes = build_catalog(database(table("slot", "until timestamptz; n integer", "until")))
    change = Change(
        "indirect", "slot", INSERT, (("until", "infinity"),), None, {"until": "infinity", "n": 1}
    )
    (event,) = change_to_events(change, "1", classes)
    assert event.association == "until=infinity,table=slot,schema=indirect"
    assert event_to_change(event, classes).key == (("until", "infinity"),)


@pytest.mark.parametrize(
    ("changed", "event_id", "part"),
    [
        ({"table": "\ud800"}, "1", "key or name of '\\\\ud800'"),
        ({}, "\ud800", "position of 'usr'"),
        ({"after": {"idu": 1, "\ud800": 2}}, "1", "name of the column '\\\\ud800'"),
    ],
)
def test_names_that_no_document_can_carry_are_refused(
    changed: dict[str, Any], event_id: str, part: str
) -> None:
    change = Change("indirect", "usr", INSERT, KEY, None, {"idu": 1, "fname": "a"})._replace(
        **changed
    )
    with pytest.raises(NotExpressible, match=f"the {part} .*cannot be written"):
        change_to_events(change, event_id)


def test_a_column_that_changes_from_null_to_null_is_reported() -> None:
    row = {"idu": 1, "fname": None, "lname": "b"}
    change = Change(
        "indirect", "usr", UPDATE, KEY, {**row, "lname": "a"}, row, frozenset({"fname", "lname"})
    )
    told: list[str] = []
    (event,) = change_to_events(change, "1", None, EventWriting(null_unchanged=told.append))
    assert ([one.name for one in event.attributes], told) == (["lname"], ["indirect.usr.fname"])
