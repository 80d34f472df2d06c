"""Changes as rows of the event log, in the four styles (spec/change-model.md 4, spec/triggers.md
2).
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from samples import CATALOG
from shared import refused

from eventlog.core.values.typed_values import to_text
from eventlog.errors import ConfigError, EventlogError, NotExpressible
from eventlog.log.format import change_to_rows
from eventlog.log.storage import LogWriterOptions
from eventlog.model import Change, ChangeOp, Lob

INSERT, UPDATE, DELETE, TRUNCATE = (
    ChangeOp.INSERT,
    ChangeOp.UPDATE,
    ChangeOp.DELETE,
    ChangeOp.TRUNCATE,
)
NOW = datetime(2024, 5, 10, 12, tzinfo=UTC)
PHONE = "usr_phone.phoneno"
KEY = (("idu", 1),)
EDGE = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))


def usr(op: ChangeOp, **fields: Any) -> Change:
    return Change("indirect", "usr", op, fields.pop("key", KEY), **fields)


def rows(change: Change, row_style: str = "field", **options: Any) -> list[tuple[Any, ...]]:
    """Type, key, column, old, new of the rows, the last three only where they are."""
    found = change_to_rows(change, CATALOG, LogWriterOptions(row_style=row_style, **options), NOW)
    for row in found:
        assert (row.status, row.event_time, row.table_name) == (
            "N",
            "2024-05-10 12:00:00",
            change.table,
        )
    short = [
        (row.event_type, row.table_key, row.column_name, row.old_value, row.new_value)
        for row in found
    ]
    return [line[:2] if line[2:] == (None, None, None) else line for line in short]


JACK = {"idu": 1, "fname": "Jack", "lname": None, "photo": b"\xaa\xaa"}
LATER = {"idu": 1, "fname": "John", "lname": None, "photo": b"\xaa\xaa"}
FNAME = frozenset({"fname"})

EXAMPLES: list[tuple[str, Change, dict[str, list[tuple[Any, ...]]]]] = [
    (
        "insert",
        usr(INSERT, after=JACK),
        {
            "field remove_all": [
                (1, "idu=1", "fname", None, "Jack"),
                (1, "idu=1", "photo", None, "qqo="),
            ],
            "field_query_back": [
                (7, "idu=1", "fname", None, None),
                (7, "idu=1", "photo", None, None),
            ],
            "row_query_back": [(5, "idu=1")],
        },
    ),
    (
        "insert, all NULL",
        usr(INSERT, after={"idu": 1, "fname": None, "lname": None}),
        {
            "field remove_all": [(1, "idu=1", "fname", None, None)],
            "field_query_back": [(7, "idu=1", "fname", None, None)],
            "row_query_back": [(5, "idu=1")],
        },
    ),
    (
        "insert, nothing known",
        usr(INSERT, after={"idu": 1}),
        {"field remove_all": [(1, "idu=1", "fname", None, None)], "row_query_back": [(5, "idu=1")]},
    ),
    (
        "insert, key columns only",
        Change("indirect", "tag", INSERT, (("code", "ab"),), after={"code": "ab"}),
        {"field remove_all field_query_back row_query_back": [(5, "code=ab")]},
    ),
    (
        "insert with values of a child table",
        usr(INSERT, after={"idu": 1, PHONE: ("b", "a")}),
        {
            "field remove_all": [(1, "idu=1", PHONE, None, "b"), (1, "idu=1", PHONE, None, "a")],
            "field_query_back": [(7, "idu=1", PHONE, None, None)],
        },
    ),
    (
        "update",
        usr(UPDATE, before=JACK, after=LATER, changed=FNAME),
        {
            "field": [(2, "idu=1", "fname", "Jack", "John")],
            "remove_all": [(3, "idu=1", "fname", "Jack", "John")],
            "field_query_back": [(8, "idu=1", "fname", None, None)],
            "row_query_back": [(6, "idu=1")],
        },
    ),
    (
        "update, its old value not known",
        usr(UPDATE, after=LATER, changed=FNAME),
        {
            "field remove_all": [(3, "idu=1", "fname", None, "John")],
            "field_query_back": [(8, "idu=1", "fname", None, None)],
            "row_query_back": [(6, "idu=1")],
        },
    ),
    (
        "update to NULL",
        usr(UPDATE, before={"fname": "Jack"}, after={"idu": 1, "fname": None}, changed=FNAME),
        {
            "field": [(2, "idu=1", "fname", "Jack", None)],
            "remove_all": [(3, "idu=1", "fname", "Jack", None)],
        },
    ),
    (
        "update of a child table",
        usr(UPDATE, before={PHONE: ("4",)}, after={PHONE: ("5", "6")}, changed=frozenset({PHONE})),
        {
            "field remove_all": [(2, "idu=1", PHONE, "4", "5"), (2, "idu=1", PHONE, None, "6")],
            "field_query_back row_query_back": [(8, "idu=1", PHONE, None, None)],
        },
    ),
    (
        "update of a child table, its old values not known",
        usr(UPDATE, after={PHONE: ("5", "6")}, changed=frozenset({PHONE})),
        {"field remove_all": [(3, "idu=1", PHONE, None, "5"), (2, "idu=1", PHONE, None, "6")]},
    ),
    (
        "update of row and child table",
        usr(UPDATE, after={"fname": "x", PHONE: ()}, changed=frozenset({"fname", PHONE})),
        {
            "field": [(3, "idu=1", "fname", None, "x"), (3, "idu=1", PHONE, None, None)],
            "row_query_back": [(6, "idu=1"), (8, "idu=1", PHONE, None, None)],
        },
    ),
    (
        "update, a column that may have changed",
        usr(
            UPDATE,
            before={"fname": "a", "photo": b"\0"},
            after={"fname": "b", "photo": b"\xaa\xaa"},
            changed=FNAME,
            extras={"changed_unknown": ["photo"]},
        ),
        {"field": [(2, "idu=1", "fname", "a", "b"), (3, "idu=1", "photo", None, "qqo=")]},
    ),
    (
        "update, nothing changed",
        usr(UPDATE, before=JACK, after=JACK),
        {"field remove_all field_query_back row_query_back": []},
    ),
    (
        "update of the key",
        usr(UPDATE, key=(("idu", 5),), before=JACK, after={**JACK, "idu": 5}),
        {
            "field remove_all": [
                (4, "idu=1"),
                (1, "idu=5", "fname", None, "Jack"),
                (1, "idu=5", "photo", None, "qqo="),
            ],
            "row_query_back": [(4, "idu=1"), (5, "idu=5")],
        },
    ),
    (
        "delete",
        usr(DELETE, before=JACK),
        {"field remove_all field_query_back row_query_back": [(4, "idu=1")]},
    ),
    (
        "delete, its key by the catalogue",
        usr(DELETE, key=None, before=JACK),
        {"field remove_all field_query_back row_query_back": [(4, "idu=1")]},
    ),
    ("refresh", usr(ChangeOp.REFRESH, after=JACK), {"row_query_back": [(5, "idu=1")]}),
    (
        "insert to be queried back",
        usr(INSERT, extras={"query_back": "row"}),
        {"field row_query_back": [(5, "idu=1")]},
    ),
    (
        "update to be queried back",
        usr(UPDATE, extras={"query_back": "row"}),
        {"field row_query_back": [(6, "idu=1")]},
    ),
    (
        "columns to be queried back next to logged ones",
        usr(
            UPDATE,
            before={"lname": "x"},
            changed=frozenset({"lname", "photo"}),
            extras={"query_back": "field", "columns": ["photo"], "known": {"lname": "y"}},
        ),
        {
            "field row_query_back": [
                (2, "idu=1", "lname", "x", "y"),
                (8, "idu=1", "photo", None, None),
            ]
        },
    ),
    (
        "inserted columns to be queried back next to logged ones",
        usr(
            INSERT,
            extras={
                "query_back": "field",
                "columns": ["photo"],
                "known": {"lname": "y", "fname": None},
            },
        ),
        {"field": [(1, "idu=1", "lname", None, "y"), (7, "idu=1", "photo", None, None)]},
    ),
]


@pytest.mark.promise("option eventlog.writer.row_style")
@pytest.mark.parametrize(
    ("change", "row_style", "expected"),
    [
        pytest.param(change, row_style, expected, id=f"{name}-{row_style}")
        for name, change, styles in EXAMPLES
        for names, expected in styles.items()
        for row_style in names.split()
    ],
)
def test_a_change_is_written_as_triggers_of_its_style_would(
    change: Change, row_style: str, expected: Any
) -> None:
    assert rows(change, row_style) == expected


@pytest.mark.promise("option eventlog.writer.row_styles")
def test_a_table_may_have_its_own_style() -> None:
    assert rows(usr(INSERT, after=JACK), row_styles={"usr": "row_query_back"}) == [(5, "idu=1")]
    with pytest.raises(ConfigError, match='"fields"'):
        LogWriterOptions(row_styles={"usr": "fields"})


@pytest.mark.promise("option eventlog.writer.existing_keys")
def test_a_truncate_is_a_delete_for_each_key_that_is_given() -> None:
    change = Change("indirect", "usr", TRUNCATE)
    keys = [(("idu", 2),), (("idu", 1),)]
    assert rows(change, existing_keys={"usr": keys}.get) == [(4, "idu=2"), (4, "idu=1")]
    with pytest.raises(NotExpressible, match="existing_keys"):
        rows(change)


@pytest.mark.promise("option eventlog.reader.time_zone")
@pytest.mark.parametrize(
    ("zone", "event_time"),
    [("UTC", "2024-02-29 23:30:00.25"), ("Europe/Berlin", "2024-03-01 00:30:00.25")],
)
def test_event_time_is_the_commit_time_in_the_zone_of_the_log(zone: str, event_time: str) -> None:
    moment = datetime(2024, 2, 29, 23, 30, 0, 250_000, tzinfo=UTC)
    change = usr(DELETE, commit_time=moment, user="ann")
    (row,) = change_to_rows(change, None, LogWriterOptions(time_zone=zone), NOW)
    assert (row.event_time, row.perpetrator) == (event_time, "ann")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", ""),
        (7, "7"),
        (True, "true"),
        (False, "false"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+3"), "1000"),
        (1e3, "1000"),
        (1e-05, "1e-05"),
        (-0.0, "0"),
        (float("inf"), "Infinity"),
        (b"\xaa\xaa", "qqo="),
        (Lob(b"\xaa\xaa"), "qqo="),
        (date(2024, 2, 29), "2024-02-29"),
        (time(1, 2, 3), "01:02:03"),
        (time(1, 2, 3, 500_000), "01:02:03.5"),
        (datetime(2024, 2, 29, 1, 2, 3), "2024-02-29 01:02:03"),
        (datetime(2024, 2, 29, 1, 2, 3, 120), "2024-02-29 01:02:03.00012"),
        (datetime(2024, 2, 29, 1, 2, 3, 500_000, tzinfo=UTC), "2024-02-29 01:02:03.5Z"),
    ],
)
def test_values_are_the_text_that_triggers_log(value: Any, text: str) -> None:
    assert to_text(value) == text


@pytest.mark.parametrize(
    ("change", "error", "part"),
    [
        (Change("other", "usr", DELETE, KEY), NotExpressible, "the log is for schema indirect"),
        (Change(None, "item", DELETE, None, {"id": 1}), NotExpressible, "has no key"),
        (usr(INSERT, extras={"part1": b"\0"}), "needs_row_codec", "only in raw form"),
        (
            Change(None, "usr", UPDATE, None, extras={"query_back": "row"}),
            NotExpressible,
            "has no key",
        ),
        (
            usr(INSERT, after={"idu": 1, "fname": EDGE}),
            NotExpressible,
            "column 'fname': 0001-01-01",
        ),
        (
            usr(DELETE, key=(("idu", None),)),
            NotExpressible,
            "'idu' of DELETE of 'usr' at None is NULL",
        ),
    ],
)
def test_what_the_log_cannot_say_is_refused(
    change: Change, error: str | type[EventlogError], part: str
) -> None:
    with refused(error, match=part):
        rows(change, schema="indirect")
