"""Good, bad and loopback rows (spec/event-log.md 3, 5, 8.3)."""

from __future__ import annotations

import pytest
from samples import CATALOG, USR, catalog, database, row, table

from eventlog.core.catalog.builder import build_catalog
from eventlog.core.rows.checks import CheckedRow, check_rows
from eventlog.core.rows.events import ids_of
from eventlog.core.values import ValueOptions
from eventlog.model import ALL, All, LogRow, queue_rows


def check(one: LogRow, loopback_user: str | None = None) -> CheckedRow | str | None:
    """The checked row, the code of its failure, or None for a loopback row."""
    checked = check_rows(queue_rows([one]), CATALOG, loopback_user)
    assert len(checked.valid) + len(checked.invalid) + len(checked.loopback) == 1
    if checked.loopback:
        return None
    return checked.valid[0] if checked.valid else checked.invalid[0].code


BAD = [
    ("bad_event_type", row(1, None)),
    ("bad_event_type", row(1, 0)),
    ("bad_event_type", row(1, 9)),
    ("bad_event_type", row(1, -1)),
    ("missing_table", row(1, 4, table=None)),
    ("missing_table", row(1, 4, table="")),
    ("unknown_table", row(1, 4, table="nobody")),
    ("unknown_table", row(1, 4, table="other.usr")),
    ("unknown_table", row(1, 4, table=" ")),
    ("bad_event_type", row(1, 4, table="usr_phone")),  # it would delete the owner
    ("bad_table_key", row(1, 4, None)),
    ("bad_table_key", row(1, 4, "")),
    ("bad_table_key", row(1, 4, "idu=x")),
    ("bad_table_key", row(1, 4, "id=1")),
    ("bad_table_key", row(1, 4, "idu=1+IDU=1")),
    ("bad_table_key", row(1, 6, "phoneno=1", table="usr_phone")),
    ("bad_xml_char", row(1, 4, 'code="a\x01"', table="tag")),
    ("bad_xml_char", row(1, 4, 'code="\ufffe"', table="tag")),
    ("bad_xml_char", row(1, 4, "code=\ud800", table="tag")),
    *(
        ("missing_column", row(1, kind, column=column))
        for kind in (1, 2, 3, 7, 8)
        for column in (None, "")
    ),
    *(("unknown_column", row(1, kind, column="nothing")) for kind in (1, 2, 3, 7, 8)),
    ("unknown_column", row(1, 1, column="phoneno")),
    ("unknown_column", row(1, 1, column="idu", table="usr_phone")),
    ("bad_value", row(1, 1, column="photo", new="*")),
    ("bad_value", row(1, 3, column="photo", new="*")),
    ("bad_value", row(1, 2, column="photo", old="*", new="*")),
    ("bad_value", row(1, 2, column="photo", old="qqo=", new="*")),
    ("bad_xml_char", row(1, 1, column="fname", new="\x00")),
    ("bad_xml_char", row(1, 2, column="fname", old="\x07", new="\x08")),
    ("bad_xml_char", row(1, 2, column="fname", old="ok", new="\uffff")),
    ("bad_xml_char", row(1, 3, column="fname", new="\udfff")),
]


@pytest.mark.promise("code error-missing_table")
@pytest.mark.parametrize(("code", "one"), BAD)
def test_an_invalid_row_has_the_code_of_its_first_failure(code: str, one: LogRow) -> None:
    assert check(one) == code


ORDER = [
    ("bad_event_type", row(1, 9, "", "", table="")),
    ("missing_table", row(1, 1, "", "", table="")),
    ("unknown_table", row(1, 1, "", "", table="nobody")),
    ("bad_event_type", row(1, 4, "", table="usr_phone")),
    ("bad_table_key", row(1, 1, "", "", table="usr")),
    ("bad_xml_char", row(1, 1, 'code="\x01"', "", table="tag")),
    ("missing_column", row(1, 1, column="", new="\x01")),
    ("bad_value", row(1, 2, column="photo", old="*", new="\x01")),
]


@pytest.mark.promise("code error-missing_column")
@pytest.mark.parametrize(("code", "one"), ORDER)
def test_the_checks_have_an_order(code: str, one: LogRow) -> None:
    assert check(one) == code


def test_of_type_2_the_old_value_is_looked_at_first() -> None:
    checked = check_rows(
        queue_rows([row(1, 2, column="photo", old="old", new="new")]), CATALOG, None
    )
    assert "old" in checked.invalid[0].message


@pytest.mark.parametrize("new", ["qqo=", None])
def test_an_old_value_that_cannot_be_converted_gives_way_to_a_good_new_one(new: str | None) -> None:
    bad_old = check_rows(queue_rows([row(1, 2, column="photo", old="*", new=new)]), CATALOG, None)
    replaced = check_rows(queue_rows([row(1, 3, column="photo", new=new)]), CATALOG, None)
    ((_, _, _, _, *step),), ((_, _, _, _, *step_of_type_3),) = bad_old.valid, replaced.valid
    assert (step, bad_old.invalid) == (step_of_type_3, [])
    (remark,) = bad_old.remarks
    assert (remark.record_id, remark.attribute.name, remark.counter) == (
        1,
        "photo",
        "old_unreadable",
    )
    assert "'*' is not base64" in remark.reason


UNICODE = catalog(values=ValueOptions("full", characters="unicode"))


@pytest.mark.promise("code error-bad_xml_char")
@pytest.mark.parametrize("text", ["\0", "a\x01", "\x7f\x85", "\ufffe", "\uffff"])
def test_only_xml_lacks_characters(text: str) -> None:
    rows = [row(1, 1, column="fname", new=text)]
    if text != "\0":  # which no key has
        rows.append(row(2, 4, f'code="{text}"', table="tag"))
    assert [one.code for one in check_rows(queue_rows(rows), CATALOG, None).invalid] == [
        "bad_xml_char"
    ] * len(rows) or (
        text == "\x7f\x85"  # which XML holds
    )
    checked = check_rows(queue_rows(rows), UNICODE, None)
    assert (len(checked.valid), checked.invalid) == (len(rows), [])


@pytest.mark.promise("code error-bad_value")
@pytest.mark.parametrize(
    "one", [row(1, 1, column="fname", new="a\ud800"), row(1, 4, 'code="\udfff"', table="tag")]
)
def test_half_a_surrogate_pair_is_no_text_in_any_format(one: LogRow) -> None:
    assert [bad.code for bad in check_rows(queue_rows([one]), UNICODE, None).invalid] == [
        "bad_value"
    ]


@pytest.mark.parametrize("new", ["ok", None])
@pytest.mark.parametrize(("column", "removed"), [("fname", ALL), ("usr_phone.phoneno", None)])
def test_an_old_value_that_xml_cannot_hold_was_never_sent_and_gives_way(
    column: str, removed: object, new: str | None
) -> None:
    checked = check_rows(queue_rows([row(1, 2, column=column, old="\x07", new=new)]), CATALOG, None)
    ((_, _, _, attribute, *step),) = checked.valid
    assert (attribute and attribute.name, step, checked.invalid) == (column, [removed, new], [])
    assert [one.counter for one in checked.remarks] == ["old_unreadable"]


def test_a_new_value_that_xml_cannot_hold_is_the_one_that_is_reported() -> None:
    rows = queue_rows([row(1, 2, column="fname", old="\x07", new="a\x08")])
    checked = check_rows(rows, CATALOG, None)
    ((_, code, message),) = checked.invalid
    assert (code, checked.remarks) == ("bad_xml_char", [])
    assert message.startswith("U+0008 at offset 1")


def test_of_a_multi_valued_attribute_an_old_value_that_cannot_be_converted_stays_bad() -> None:
    child = table("usr_day", "idu integer; day date", "", [("idu", "usr", "idu")])
    several = build_catalog(database(USR, child))
    checked = check_rows(
        queue_rows([row(1, 2, column="usr_day.day", old="no day", new="2024-02-29")]), several, None
    )
    assert ([one.code for one in checked.invalid], checked.valid, checked.remarks) == (
        ["bad_value"],
        [],
        [],
    )


TIMES = table(
    "times", "id integer; at time; made timestamp; until timestamptz; day date; name text", "id"
)


def truncated(
    column: str, old: str | None, new: str | None, time_syntax: str = "integer"
) -> list[str]:
    """The columns that an update is remarked to have lost a fraction of."""
    classes = build_catalog(database(TIMES), values=ValueOptions(time_syntax))
    checked = check_rows(
        queue_rows([row(1, 2, "id=1", column, old, new, table="times")]), classes, None
    )
    assert not checked.invalid
    assert {remark.counter for remark in checked.remarks} <= {"truncated"}
    return [remark.attribute.name for remark in checked.remarks]


@pytest.mark.parametrize(
    ("column", "old", "new"),
    [
        ("made", "2024-05-06 07:08:09.25", "2024-05-06 07:08:09.5"),
        ("made", "2024-05-06 07:08:09", "2024-05-06T07:08:09.000001"),
        ("until", "2024-05-06 07:08:09.25Z", "2024-05-06 09:08:09.75+02"),
        ("at", "07:08:09.25", "07:08:09"),
    ],
)
def test_an_update_whose_fraction_is_cut_is_remarked(column: str, old: str, new: str) -> None:
    assert truncated(column, old, new) == [column]


@pytest.mark.parametrize(
    ("column", "old", "new"),
    [
        ("made", "2024-05-06 07:08:09.25", "2024-05-06 07:08:10.25"),
        ("made", "2024-05-06 07:08:09.25", "2024-05-06 07:08:09.250"),
        ("made", "2024-05-06 07:08:09.25", "2024-05-06 07:08:09.25"),
        ("made", "2024-05-06 07:08:09.25", None),
        ("made", None, "2024-05-06 07:08:09.25"),
        ("made", "infinity", "infinity"),
        ("day", "2024-05-06", "2024-05-06 00:00:00.0"),
        ("name", "1.5", "1.5"),
    ],
)
def test_an_update_that_is_written_or_changes_nothing_is_not_remarked(
    column: str, old: str | None, new: str | None
) -> None:
    assert truncated(column, old, new) == []


@pytest.mark.parametrize("time_syntax", ["canonical", "java"])
def test_the_other_syntaxes_cut_the_fraction_of_a_time_of_day_alone(time_syntax: str) -> None:
    assert truncated("made", "2024-05-06 07:08:09.25", "2024-05-06 07:08:09.5", time_syntax) == []
    assert truncated("at", "07:08:09.25", "07:08:09.5", time_syntax) == ["at"]


@pytest.mark.parametrize("kind", [1, 2, 3, 7, 8])
def test_the_message_of_an_invalid_row_names_what_was_wrong(kind: int) -> None:
    checked = check_rows(queue_rows([row(5, kind, column="nothing")]), CATALOG, None)
    assert checked.invalid[0].record_id == 5
    assert "'nothing' is not an attribute of class 'usr'" in checked.invalid[0].message


NOT_USED = [
    *(row(1, kind, column="rubbish", old="\x00", new="\x00") for kind in (4, 5, 6)),
    *(row(1, kind, column="photo", old="*", new="\x00") for kind in (7, 8)),
    row(1, 1, column="photo", old="*\x00", new="qqo="),
    row(1, 3, column="fname", old="bell \x07", new="ok"),
    row(1, 3, column="fname", old="bell \x07", new=None),
]


@pytest.mark.parametrize("one", NOT_USED)
def test_what_a_type_does_not_use_is_not_looked_at(one: LogRow) -> None:
    assert isinstance(check(one), tuple)


@pytest.mark.parametrize(
    ("one", "old", "new"),
    [
        (row(1, 1, column="idu", old="x", new=" 007 "), None, None),  # no output uses a key column
        (row(1, 2, column="photo", old="q q o=", new="u7s="), "qqo=", "u7s="),
        (row(1, 2, column="fname", old=None, new=None), None, None),
        (row(1, 2, column="fname", old="", new=""), "", ""),
        (row(1, 3, column="fname", old="a", new="b"), ALL, "b"),
        (row(1, 8, column="fname", old="a", new="b"), None, None),
    ],
)
def test_values_are_converted_where_they_are_used(
    one: LogRow, old: str | All | None, new: str | None
) -> None:
    checked = check(one)
    assert isinstance(checked, tuple)
    _, _, _, _, goes, comes = checked
    assert (goes, comes) == (old, new)


def test_child_and_parent_name_one_object_and_one_attribute() -> None:
    of_child = check(row(1, 2, " IDU = 01 ", "PHONENO", table="USR_phone", new="5"))
    of_parent = check(row(1, 2, "idu=1", "usr_phone.phoneno", table="indirect.usr", new="5"))
    assert of_child == of_parent
    assert isinstance(of_child, tuple)
    _, _, (object_class, key), _, _, _ = of_child
    assert (object_class.name, key) == ("usr", "idu=1")


@pytest.mark.parametrize("kind", [5, 6])
def test_a_whole_row_may_be_named_by_its_child_table(kind: int) -> None:
    checked = check(row(1, kind, table="usr_phone"))
    assert isinstance(checked, tuple)
    _, _, (object_class, _), _, _, _ = checked
    assert object_class.name == "usr"


def test_rows_keep_their_order_and_bad_ones_do_not_stop_the_others() -> None:
    rows = [
        row(1, 4),
        row(2, 9),
        row(3, 4, "idu=2"),
        row(4, 4, perpetrator="me"),
        row(5, 4, "x"),
        row(6, 4, "idu=3"),
    ]
    checked = check_rows(queue_rows(rows), CATALOG, "me")
    assert ids_of(checked.valid) == [1, 3, 6]
    assert [one.record_id for one in checked.invalid] == [2, 5]
    assert checked.loopback == [4]


LOOPBACK = [
    ("eventlog", "eventlog", True),
    ("eventlog   ", "eventlog", True),
    ("Eventlog", "eventlog", False),
    (" eventlog", "eventlog", False),
    ("eventlog\t", "eventlog", False),
    ("", "eventlog", False),
    (None, "eventlog", False),
    ("eventlog", None, False),
    (None, None, False),
]


@pytest.mark.parametrize(("perpetrator", "user", "is_loopback"), LOOPBACK)
def test_loopback_is_the_publishers_own_user(
    perpetrator: str | None, user: str | None, is_loopback: bool
) -> None:
    assert (check(row(1, 4, perpetrator=perpetrator), user) is None) == is_loopback


@pytest.mark.parametrize("one", [one._replace(perpetrator="me") for _, one in BAD])
def test_loopback_rows_are_set_apart_before_any_check(one: LogRow) -> None:
    assert check(one, "me") is None


@pytest.mark.promise("code error-unknown_column")
def test_an_excluded_column_is_unknown() -> None:
    without = catalog(exclude={"usr": ["lname"]})
    assert (
        check_rows(queue_rows([row(1, 1, column="lname", new="x")]), without, None).invalid[0].code
        == "unknown_column"
    )
