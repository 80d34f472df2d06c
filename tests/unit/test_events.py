"""From a group to an event, and what happens to its rows (spec/event-log.md 7, spec/xds.md 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from samples import CATALOG, catalog, database, good, row, table, view

from eventlog.core.catalog import Catalog
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.rows.events import (
    CurrentRow,
    EventOptions,
    Outgoing,
    RowOutcomes,
    apply_precedence,
    asks_for_values,
    build_event,
    ids_of,
    public_event,
)
from eventlog.core.rows.fold import Group, fold
from eventlog.model import Event, LogRow, Op

NOW: dict[str, list[str | None]] = {
    "idu": ["1"],
    "fname": ["John"],
    "lname": ["Doe"],
    "photo": ["u7s="],
    "usr_phone.phoneno": [],
}
GONE = None


def group_of(rows: Sequence[LogRow], of: Catalog = CATALOG) -> Group:
    (group,) = fold(good(rows, of), 1000, 0)
    return group


def build(
    rows: Sequence[LogRow], current: CurrentRow | None = GONE, of: Catalog = CATALOG, **options: Any
) -> Outgoing:
    group = group_of(rows, of)
    decision = apply_precedence(group)
    if decision.query_back is not None and current is not None:
        # What is not asked for is not read.
        current = {attribute.name: current[attribute.name] for attribute in decision.query_back}
    return build_event(
        group, EventOptions(**options), decision if asks_for_values(group) else None, current
    )


def public(outgoing: Outgoing) -> Event | None:
    return None if outgoing.operation is None else public_event(outgoing)


def steps(outgoing: Outgoing) -> dict[str, str] | None:
    """The steps of each attribute in short: ``-old +new``, ``--`` for remove-all-values."""
    event = public(outgoing)
    if event is None:
        return None
    signs = {Op.REMOVE: "-", Op.REMOVE_ALL: "--", Op.ADD: "+"}
    return {
        attribute.name: " ".join(signs[op] + ",".join(values) for op, values in attribute.steps)
        for attribute in event.attributes
    }


def short(outgoing: Outgoing) -> tuple[str | None, dict[str, str] | None]:
    return outgoing.operation, steps(outgoing)


def outcomes(outgoing: Outgoing) -> dict[str, list[int]]:
    """What happens to the rows, empty lists left out."""
    own = outgoing.outcomes or RowOutcomes(outgoing.ids)
    named = {
        "contributed": list(own.contributed),
        "dropped": list(own.dropped),
        "gone": list(own.gone),
        "empty": list(own.noop),
        "bad": [one.record_id for one in own.invalid],
    }
    return {name: ids for name, ids in named.items() if ids}


def f(
    record_id: int, kind: int, column: str = "fname", old: str | None = None, new: str | None = None
) -> LogRow:
    return row(record_id, kind, column=column, old=old, new=new)


# --- one listing per event type (spec/xds.md 3) ---------------------------------------------------

WHOLE = {"fname": "-- +John", "lname": "-- +Doe", "photo": "-- +u7s=", "usr_phone.phoneno": "--"}
WHOLE_ADDED = {"fname": "+John", "lname": "+Doe", "photo": "+u7s="}

LISTINGS: list[tuple[str, list[LogRow], dict[str, Any], str, dict[str, str]]] = [
    (
        "L1",
        [f(1, 1, new="Jack"), f(2, 1, "lname", new="Frost"), f(3, 1, "photo", new="qqo=")],
        {},
        "add",
        {"fname": "+Jack", "lname": "+Frost", "photo": "+qqo="},
    ),
    (
        "L2",
        [f(1, 2, old="Jack", new="John"), f(2, 2, "photo", "qqo=", "u7s=")],
        {},
        "modify",
        {"fname": "-Jack +John", "photo": "-qqo= +u7s="},
    ),
    (
        "L3",
        [f(1, 3, old="Jack", new="John"), f(2, 3, "lname", "Frost", "Doe")],
        {},
        "modify",
        {"fname": "-- +John", "lname": "-- +Doe"},
    ),
    ("L4", [row(1, 4)], {}, "delete", {}),
    ("L5", [row(1, 5)], {}, "modify", WHOLE),
    ("L5a", [row(1, 5)], {"insert_query_back": "add"}, "add", WHOLE_ADDED),
    ("L6", [row(1, 6)], {}, "modify", WHOLE),
    ("L6 as add", [row(1, 6)], {"insert_query_back": "add"}, "modify", WHOLE),
    ("L7", [f(1, 7, "lname"), f(2, 7)], {}, "modify", {"lname": "-- +Doe", "fname": "-- +John"}),
    (
        "L7a",
        [f(1, 7, "lname"), f(2, 7)],
        {"insert_query_back": "add"},
        "add",
        {"lname": "+Doe", "fname": "+John"},
    ),
    ("L8", [f(1, 8, "lname")], {}, "modify", {"lname": "-- +Doe"}),
    ("L8 as add", [f(1, 8, "lname")], {"insert_query_back": "add"}, "modify", {"lname": "-- +Doe"}),
    (
        "1 and 7",
        [f(1, 1, new="Jack"), f(2, 7, "photo")],
        {},
        "add",
        {"fname": "+Jack", "photo": "+u7s="},
    ),
    (
        "7 and 1",
        [f(1, 7, "photo"), f(2, 1, new="Jack")],
        {},
        "add",
        {"photo": "+u7s=", "fname": "+Jack"},
    ),
]


@pytest.mark.promise(
    "event INSERT_FIELD",
    "event UPDATE_FIELD",
    "event UPDATE_FIELD_REMOVE_ALL",
    "event DELETE_ROW",
    "event INSERT_ROW_QUERY_BACK",
    "event UPDATE_ROW_QUERY_BACK",
    "event INSERT_FIELD_QUERY_BACK",
    "event UPDATE_FIELD_QUERY_BACK",
)
@pytest.mark.parametrize(
    ("rows", "options", "operation", "attributes"),
    [one[1:] for one in LISTINGS],
    ids=[one[0] for one in LISTINGS],
)
def test_listing(
    rows: list[LogRow], options: dict[str, Any], operation: str, attributes: dict[str, str]
) -> None:
    outcome = build(rows, NOW, **options)
    assert short(outcome) == (operation, attributes)
    assert list(steps(outcome) or ()) == list(attributes)
    assert outcomes(outcome) == {"contributed": [one.record_id for one in rows]}


def test_an_event_carries_class_association_and_types() -> None:
    event = public(build([f(7, 1, "photo", new="qqo="), f(8, 1, new="Jack")]))
    assert event is not None
    assert event.class_name == "usr"
    assert event.association == "idu=1,table=usr,schema=indirect"
    assert event.event_id == "7"
    assert [(attribute.name, attribute.value_type) for attribute in event.attributes] == [
        ("photo", "octet"),
        ("fname", "string"),
    ]


# --- precedence (7.1) -----------------------------------------------------------------------------

PRECEDENCE = [
    ([f(1, 2), f(2, 8)], [2], [1]),
    ([f(1, 8), f(2, 2)], [1], [2]),
    ([f(1, 8), row(2, 6)], [2], [1]),
    ([f(1, 1), f(2, 7), row(3, 5)], [3], [1, 2]),
    ([row(1, 5), f(2, 1), f(3, 7)], [1], [2, 3]),
    ([row(1, 6), f(2, 2), row(3, 6)], [1, 3], [2]),
    ([row(1, 5), row(2, 5)], [1, 2], []),
    ([f(1, 2), f(2, 2, "lname"), f(3, 8)], [2, 3], [1]),
    ([f(1, 3), f(2, 2), f(3, 8), f(4, 3), f(5, 8)], [3, 5], [1, 2, 4]),
    ([f(1, 1), f(2, 7), f(3, 1)], [2], [1, 3]),
    ([f(1, 1, "lname"), f(2, 7), f(3, 1, "photo")], [1, 2, 3], []),
    ([f(1, 7), f(2, 7), f(3, 7, "lname")], [1, 2, 3], []),
    ([f(1, 2), f(2, 3), f(3, 2)], [1, 2, 3], []),
    ([row(1, 4)], [1], []),
]


@pytest.mark.promise("specification Query-back")
@pytest.mark.parametrize(("rows", "surviving", "dropped"), PRECEDENCE)
def test_query_back_beats_what_it_covers(
    rows: list[LogRow], surviving: list[int], dropped: list[int]
) -> None:
    decision = apply_precedence(group_of(rows))
    assert ids_of(decision.surviving) == surviving
    assert ids_of(decision.dropped) == dropped


def test_precedence_never_reaches_beyond_its_group() -> None:
    groups = fold(good([f(1, 1, new="x"), f(2, 8)]), 1000, 0)
    outcomes = [
        build_event(group, EventOptions(), apply_precedence(group), NOW) for group in groups
    ]
    assert [short(outcome) for outcome in outcomes] == [
        ("add", {"fname": "+x"}),
        ("modify", {"fname": "-- +John"}),
    ]


READ = [
    ([f(1, 1)], None),
    ([f(1, 2), f(2, 3, "lname")], None),
    ([row(1, 4)], None),
    ([f(1, 8, "lname"), f(2, 8), f(3, 8, "lname")], ["lname", "fname"]),
    ([f(1, 1), f(2, 7, "lname")], ["lname"]),
    ([row(1, 5)], ["fname", "lname", "photo", "usr_phone.phoneno"]),
    ([f(1, 8, "lname"), row(2, 6)], ["fname", "lname", "photo", "usr_phone.phoneno"]),
    ([f(1, 8, "idu")], []),  # whether the object is there, and no more
]


@pytest.mark.parametrize(("rows", "names"), READ)
def test_only_what_is_needed_is_read_back(rows: list[LogRow], names: list[str] | None) -> None:
    read = apply_precedence(group_of(rows)).query_back
    assert (read if read is None else [attribute.name for attribute in read]) == names


# --- the object is gone (7.2) ---------------------------------------------------------------------

GONE_CASES: list[tuple[list[LogRow], str | None, dict[str, list[int]]]] = [
    ([f(1, 2, "lname", "a", "b"), f(2, 8)], "modify", {"contributed": [1], "gone": [2]}),
    ([f(1, 2, old="a", new="b"), f(2, 8)], None, {"dropped": [1], "gone": [2]}),
    ([row(1, 6)], None, {"gone": [1]}),
    ([f(1, 1, new="x"), row(2, 5)], None, {"dropped": [1], "gone": [2]}),
    ([f(1, 1, new="x"), f(2, 7, "lname")], "add", {"contributed": [1], "gone": [2]}),
    ([f(1, 7), f(2, 7)], None, {"gone": [1, 2]}),
    ([f(1, 2, "lname", "a", "a"), f(2, 8)], None, {"gone": [2], "empty": [1]}),
    ([f(1, 7, "idu")], None, {"gone": [1]}),
    ([row(1, 4)], "delete", {"contributed": [1]}),
]


@pytest.mark.parametrize(("rows", "operation", "expected"), GONE_CASES)
def test_rows_that_ask_for_an_object_that_is_gone_have_no_effect(
    rows: list[LogRow], operation: str | None, expected: dict[str, list[int]]
) -> None:
    outcome = build(rows, GONE)
    assert short(outcome)[0] == operation
    assert outcomes(outcome) == expected


# --- elements (spec/xds.md 4.1) -------------------------------------------------------------------


def only_key(kind: int, column: str | None = None) -> list[LogRow]:
    return [row(1, kind, "code=x", column, table="tag")]


@pytest.mark.parametrize("insert_query_back", ["modify", "add"])
@pytest.mark.parametrize("rows", [only_key(5), only_key(7, "code")])
def test_an_insert_without_attributes_is_an_add_with_the_association_alone(
    rows: list[LogRow], insert_query_back: str
) -> None:
    assert short(build(rows, {"code": ["x"]}, insert_query_back=insert_query_back)) == ("add", {})


@pytest.mark.parametrize("rows", [only_key(6), only_key(8, "code")])
def test_an_update_without_attributes_is_empty(rows: list[LogRow]) -> None:
    outcome = build(rows, {"code": ["x"]})
    assert (outcome.operation, outcomes(outcome)) == (None, {"empty": [1]})


NULLS: CurrentRow = {name: [None] for name in NOW}


def test_an_insert_of_nulls_only_read_back_as_add_is_an_add_alone() -> None:
    assert short(build([row(1, 5)], NULLS, insert_query_back="add")) == ("add", {})
    assert short(build([f(1, 7)], NULLS, insert_query_back="add")) == ("add", {})


# --- attributes (spec/xds.md 4.2) -----------------------------------------------------------------


def test_attributes_stand_in_the_order_of_their_first_surviving_rows() -> None:
    rows = [
        f(1, 2, "photo", None, "qqo="),
        f(2, 2, "lname", "a", "b"),
        f(3, 8, "photo"),
        f(4, 2, "lname", "b", "c"),
    ]
    assert list(steps(build(rows, NOW)) or ()) == ["lname", "photo"]
    rows = [f(1, 1, "lname", new=None), f(2, 1, new="x"), f(3, 1, "lname", new="y")]
    assert list(steps(build(rows)) or ()) == ["lname", "fname"]


KEY_ROWS: list[tuple[list[LogRow], bool, str | None, dict[str, str] | None]] = [
    ([f(1, 1, "idu", new="1"), f(2, 1, new="x")], False, "add", {"fname": "+x"}),
    ([f(1, 1, "idu", new="1"), f(2, 1, new="x")], True, "add", {"idu": "+1", "fname": "+x"}),
    ([f(1, 1, "idu", new="1")], False, "add", {}),
    ([f(1, 2, "idu", "1", "2")], False, None, None),
    ([f(1, 2, "idu", "1", "2")], True, "modify", {"idu": "-1 +2"}),
    ([f(1, 8, "idu"), f(2, 8)], False, "modify", {"fname": "-- +John"}),
    ([f(1, 8, "idu"), f(2, 8)], True, "modify", {"idu": "-- +1", "fname": "-- +John"}),
    ([row(1, 6)], True, "modify", {"idu": "-- +1", **WHOLE}),
]


@pytest.mark.parametrize(("rows", "emit_keys", "operation", "attributes"), KEY_ROWS)
def test_key_columns_are_attributes_only_if_they_are_emitted(
    rows: list[LogRow], emit_keys: bool, operation: str | None, attributes: dict[str, str] | None
) -> None:
    assert short(build(rows, NOW, catalog(emit_keys=emit_keys))) == (operation, attributes)


# --- NULL, empty string, repeated rows (spec/xds.md 4.3) ------------------------------------------

ONE_ROW: list[tuple[int, str | None, str | None, str | None, dict[str, str] | None]] = [
    (1, None, "v", "add", {"fname": "+v"}),
    (1, "old", None, "add", {}),
    (1, None, "", "add", {"fname": "+"}),
    (2, None, "v", "modify", {"fname": "+v"}),
    (2, "v", None, "modify", {"fname": "-v"}),
    (2, None, None, None, None),
    (2, "v", "v", None, None),
    (2, "", "", None, None),
    (2, "", None, "modify", {"fname": "-"}),
    (2, None, "", "modify", {"fname": "+"}),
    (2, "a", "", "modify", {"fname": "-a +"}),
    (3, "any", "v", "modify", {"fname": "-- +v"}),
    (3, None, "v", "modify", {"fname": "-- +v"}),
    (3, "v", "v", "modify", {"fname": "-- +v"}),
    (3, "v", None, "modify", {"fname": "--"}),
    (3, None, None, "modify", {"fname": "--"}),
    (3, "a", "", "modify", {"fname": "-- +"}),
]


@pytest.mark.parametrize(("kind", "old", "new", "operation", "attributes"), ONE_ROW)
def test_one_row(
    kind: int,
    old: str | None,
    new: str | None,
    operation: str | None,
    attributes: dict[str, str] | None,
) -> None:
    outcome = build([f(1, kind, old=old, new=new)])
    assert short(outcome) == (operation, attributes)
    assert outcomes(outcome) == ({"empty": [1]} if operation is None else {"contributed": [1]})


@pytest.mark.parametrize(
    ("old", "new", "attributes"),
    [("v", "v", {"fname": "-v +v"}), ("", "", {"fname": "- +"}), (None, None, None)],
)
def test_updates_that_change_nothing_can_be_emitted(
    old: str | None, new: str | None, attributes: dict[str, str] | None
) -> None:
    assert steps(build([f(1, 2, old=old, new=new)], noop_updates="emit")) == attributes


def test_values_are_equal_if_their_converted_texts_are() -> None:
    assert build([f(1, 2, "photo", "qq o=", "qqo=")]).operation is None


READ_BACK = [
    ([f(1, 7)], "modify", None, "modify", {"fname": "--"}),
    ([f(1, 7)], "add", "", "add", {"fname": "+"}),
    ([f(1, 7), f(2, 7, "lname")], "add", None, "add", {"lname": "+Doe"}),
    ([f(1, 8)], "modify", None, "modify", {"fname": "--"}),
    ([f(1, 8)], "modify", "", "modify", {"fname": "-- +"}),
    ([f(1, 8), f(2, 8)], "modify", "x", "modify", {"fname": "-- +x"}),
    ([f(1, 7), f(2, 7)], "add", "x", "add", {"fname": "+x"}),
    ([f(1, 1, "lname", new="l"), f(2, 7)], "modify", None, "add", {"lname": "+l"}),
    ([row(1, 5)], "add", None, "add", {"lname": "+Doe", "photo": "+u7s="}),
    ([row(1, 6)], "modify", None, "modify", {**WHOLE, "fname": "--"}),
]


@pytest.mark.parametrize(
    ("rows", "insert_query_back", "value", "operation", "attributes"), READ_BACK
)
def test_nulls_and_empty_strings_read_back(
    rows: list[LogRow],
    insert_query_back: str,
    value: str | None,
    operation: str,
    attributes: dict[str, str],
) -> None:
    outcome = build(rows, {**NOW, "fname": [value]}, insert_query_back=insert_query_back)
    assert short(outcome) == (operation, attributes)


def phone(record_id: int, kind: int, old: str | None = None, new: str | None = None) -> LogRow:
    return row(record_id, kind, column="phoneno", old=old, new=new, table="usr_phone")


REPEATED = [
    ([f(1, 1, new="A"), f(2, 1, new="B")], {"fname": "+B"}),
    ([f(1, 1, new="A"), f(2, 1, new=None)], {}),
    ([f(1, 1, new=None), f(2, 1, new="B")], {"fname": "+B"}),
    ([phone(1, 1, new="b"), phone(2, 1, new="a")], {"usr_phone.phoneno": "+b,a"}),
    ([phone(1, 1, new="b"), phone(2, 1), phone(3, 1, new="b")], {"usr_phone.phoneno": "+b,b"}),
    (
        [f(1, 2, old="a", new="b"), f(2, 3, old="b", new="c"), f(3, 2, old="c")],
        {"fname": "-a +b -- +c -c"},
    ),
    ([f(1, 2, old="a", new="b"), f(2, 2, old="b", new="a")], {"fname": "-a +b -b +a"}),
    ([f(1, 2, old="a", new="a"), f(2, 2, old="a", new="b")], {"fname": "-a +b"}),
    (
        [phone(1, 2, new="1"), phone(2, 2, "1", None), phone(3, 2, "2", "3")],
        {"usr_phone.phoneno": "+1 -1 -2 +3"},
    ),
]


@pytest.mark.parametrize(("rows", "attributes"), REPEATED)
def test_repeated_rows_of_one_attribute(rows: list[LogRow], attributes: dict[str, str]) -> None:
    assert steps(build(rows)) == attributes


MANY: list[tuple[list[str | None], str]] = [
    ([], "--"),
    ([None], "--"),
    (["b", "a", "b", None], "-- +a,b"),
    (["z", "é", "Z", "𐀀", "\uffee"], "-- +Z,z,é,\uffee,𐀀"),
    ([""], "-- +"),
]


@pytest.mark.parametrize(("values", "expected"), MANY)
def test_many_values_read_back_stand_once_in_code_point_order(
    values: list[str | None], expected: str
) -> None:
    assert steps(build([phone(1, 8)], {"usr_phone.phoneno": values})) == {
        "usr_phone.phoneno": expected
    }


def test_values_are_sorted_as_written() -> None:
    of = catalog_of_view()
    rows = [row(1, 8, "pk_id=1", "mv_n", table="v")]
    assert steps(build(rows, {"n": ["10", "9", "009"]}, of)) == {"n": "-- +10,9"}


def catalog_of_view() -> Catalog:
    return build_catalog(database(view("v", "pk_id integer; sv_name text; mv_n integer")))


CONFLICTS: list[tuple[list[str | None], str, int]] = [
    (["b", "a"], "-- +a", 1),
    (["a", "a"], "-- +a", 0),
    (["b", None], "-- +b", 0),
    ([None, None], "--", 0),
]


@pytest.mark.parametrize(("values", "expected", "conflicts"), CONFLICTS)
def test_of_several_values_of_a_single_valued_view_column_the_first_counts(
    values: list[str | None], expected: str, conflicts: int
) -> None:
    rows = [row(1, 8, "pk_id=1", "name", table="v")]
    outcome = build(rows, {"name": values}, catalog_of_view())
    assert (steps(outcome), outcome.outcomes.conflicts if outcome.outcomes else 0) == (
        {"name": expected},
        conflicts,
    )


def test_children_come_after_the_parents_columns() -> None:
    of = build_catalog(
        database(
            table("p", "id integer; z text", "id"),
            *(
                table(name, "id integer; v text", "", [("id", "p", "id")])
                for name in ("b", "B", "a")
            ),
        )
    )
    current: Mapping[str, list[str | None]] = {"z": ["1"], "a.v": ["2"], "b.v": ["3"], "B.v": ["4"]}
    outcome = build([row(1, 6, "id=1", table="p")], current, of)
    assert list(steps(outcome) or ()) == ["z", "B.v", "a.v", "b.v"]


# --- values read back that cannot be written (7.3) ------------------------------------------------

BELL: CurrentRow = {**NOW, "fname": ["bell\x07"]}

UNREADABLE: list[tuple[list[LogRow], dict[str, str] | None, dict[str, list[int]]]] = [
    ([row(1, 6)], None, {"bad": [1]}),
    ([f(1, 2), row(2, 6), f(3, 8), row(4, 6)], None, {"dropped": [1, 3], "bad": [2, 4]}),
    ([f(1, 8)], None, {"bad": [1]}),
    (
        [f(1, 8), f(2, 8, "lname"), f(3, 8)],
        {"lname": "-- +Doe"},
        {"contributed": [2], "bad": [1, 3]},
    ),
    (
        [f(1, 2), f(2, 8), f(3, 2, "lname", "a", "b")],
        {"lname": "-a +b"},
        {"contributed": [3], "dropped": [1], "bad": [2]},
    ),
    ([f(1, 7), f(2, 1, "lname", new="x")], {"lname": "+x"}, {"contributed": [2], "bad": [1]}),
]


@pytest.mark.parametrize(("rows", "attributes", "expected"), UNREADABLE)
def test_rows_whose_value_read_back_cannot_be_written_are_bad(
    rows: list[LogRow], attributes: dict[str, str] | None, expected: dict[str, list[int]]
) -> None:
    outcome = build(rows, BELL)
    assert steps(outcome) == attributes
    assert outcomes(outcome) == expected
    assert outcome.outcomes is not None
    assert {one.code for one in outcome.outcomes.invalid} == {"bad_xml_char"}


# --- event-ids (7.4) ------------------------------------------------------------------------------

EVENT_IDS: list[tuple[list[LogRow], CurrentRow | None, str]] = [
    ([f(5, 2, old="a", new="b"), f(9, 2, old="b", new="c")], NOW, "5"),
    ([f(5, 2, old="a", new="b"), f(6, 8)], NOW, "5"),  # dropped or not
    ([f(5, 8), f(6, 2, "lname", "a", "b")], GONE, "5"),  # gone, but not marked E
    ([f(5, 8), f(6, 8, "lname")], BELL, "6"),  # 5 is marked E
    ([f(5, 2), f(6, 8), f(7, 8, "lname")], BELL, "5"),
]


@pytest.mark.parametrize(("rows", "current", "event_id"), EVENT_IDS)
def test_the_event_id_is_the_first_row_that_is_not_marked_e(
    rows: list[LogRow], current: CurrentRow | None, event_id: str
) -> None:
    event = build(rows, current)
    assert event.operation is not None
    assert event.event_id == event_id


def test_an_invalid_row_of_the_log_never_gives_the_event_id() -> None:
    # It does not get as far as a group.
    rows = [
        row(2, 2, column="fname", old="a", new="b"),
        row(3, 2, column="fname", old="b", new="c"),
    ]
    event = build(rows)
    assert event.operation is not None
    assert event.event_id == "2"


# --- rebuilding from the in-flight record (section 10) --------------------------------------------


def test_what_precedence_dropped_stays_dropped_whatever_rows_are_left() -> None:
    # The type 8 row was marked by somebody else; the type 2 row that it dropped must not come back
    # to life.
    group = group_of([f(1, 2, old="a", new="b")])
    outcome = build_event(group, EventOptions(), apply_precedence(group, frozenset({1})), None, "1")
    assert (outcome.operation, outcomes(outcome)) == (None, {"dropped": [1]})


def test_what_precedence_kept_stays_kept() -> None:
    group = group_of([f(1, 2, old="a", new="b"), f(2, 8)])
    outcome = build_event(group, EventOptions(), apply_precedence(group, frozenset({1})), NOW, "1")
    assert outcome.event_id == "1"
    assert short(outcome) == ("modify", {"fname": "-- +John"})
    assert outcomes(outcome) == {"contributed": [2], "dropped": [1]}


def test_options_of_the_catalog_reach_the_events() -> None:
    of = catalog(exclude={"usr": ["photo"]})
    assert list(steps(build([row(1, 6)], NOW, of)) or ()) == ["fname", "lname", "usr_phone.phoneno"]
