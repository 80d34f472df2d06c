"""What each statement logs, in every style, on every database (spec/triggers.md 2)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from platforms import STYLES, Kept, Logged, Platform, fields, needs, usr_tables

JACK = "INSERT INTO usr VALUES (1, 'Jack', NULL, {aaaa})"
GONE = (None, None, None)


def watched(platform: Platform, trigger_level: str, row_style: str) -> Sequence[str]:
    """The classes of this file under a kind of capture and a style."""
    platform.run(
        *usr_tables(platform.name),
        "CREATE TABLE n (k {integer} PRIMARY KEY)",
        "CREATE TABLE account (idu {integer} PRIMARY KEY, fname {text}, lname {text})",
        "CREATE TABLE account_phone (idu {integer} REFERENCES account, phoneno {string}, "
        "UNIQUE (idu, phoneno))",
    )
    alike = {"row_style": row_style, "trigger_level": trigger_level}
    tables = ("usr", "keyed", "n", "account")
    excluded = {"account": {"exclude": ["lname"]}}
    watches = [{"table": table, **alike, **excluded.get(table, {})} for table in tables]
    platform.apply(platform.plan(*watches))
    return ("usr_phone", *tables)


@pytest.fixture(params=["row", "statement"])
def captured(kept: Kept, request: pytest.FixtureRequest) -> Platform:
    """The classes under each kind of capture, which log the same rows, in the style of the test."""
    if request.param == "statement":
        needs(kept.dialect, "statement_capture")
    row_style = request.node.callspec.params.get("row_style", "field")
    return kept.made(watched, request.param, row_style)


@pytest.mark.parametrize(
    ("row_style", "logged"),
    [
        ("field", fields(1, "idu=1", ("fname", None, "Jack"), ("photo", None, "qqo="))),
        ("remove_all", fields(1, "idu=1", ("fname", None, "Jack"), ("photo", None, "qqo="))),
        ("field_query_back", fields(7, "idu=1", ("fname", None, None), ("photo", None, None))),
        ("row_query_back", fields(5, "idu=1", GONE)),
    ],
)
def test_insert(captured: Platform, row_style: str, logged: list[Logged]) -> None:
    assert captured.logged(JACK) == captured.expected(logged)


@pytest.mark.parametrize(
    ("row_style", "logged"),
    [
        ("field", (1, "idu=2", "fname", None, None)),
        ("remove_all", (1, "idu=2", "fname", None, None)),
        ("field_query_back", (7, "idu=2", "fname", None, None)),
        ("row_query_back", (5, "idu=2", None, None, None)),
    ],
)
def test_insert_of_nulls_is_not_lost(captured: Platform, row_style: str, logged: Logged) -> None:
    assert captured.logged("INSERT INTO usr (idu) VALUES (2)") == [logged]


@pytest.mark.parametrize("row_style", STYLES)
def test_a_class_of_key_columns_alone(captured: Platform, row_style: str) -> None:
    assert captured.logged("INSERT INTO keyed VALUES (1, 'x')") == [
        (5, "b=x+a=1", None, None, None)
    ]
    assert captured.logged("UPDATE keyed SET a = a") == []
    assert captured.logged("UPDATE keyed SET a = 2") == [
        (4, "b=x+a=1", None, None, None),
        (5, "b=x+a=2", None, None, None),
    ]
    assert captured.logged("DELETE FROM keyed") == [(4, "b=x+a=2", None, None, None)]


@pytest.mark.parametrize(
    ("row_style", "logged"),
    [
        (
            "field",
            fields(
                2,
                "idu=1",
                ("fname", "Jack", "John"),
                ("lname", None, "Doe"),
                ("photo", "qqo=", None),
            ),
        ),
        (
            "remove_all",
            fields(
                3,
                "idu=1",
                ("fname", "Jack", "John"),
                ("lname", None, "Doe"),
                ("photo", "qqo=", None),
            ),
        ),
        (
            "field_query_back",
            fields(8, "idu=1", *((name, None, None) for name in ("fname", "lname", "photo"))),
        ),
        ("row_query_back", fields(6, "idu=1", GONE)),
    ],
)
def test_update(captured: Platform, row_style: str, logged: list[Logged]) -> None:
    captured.run(JACK)
    change = "UPDATE usr SET photo = NULL, lname = 'Doe', fname = 'John'{} WHERE idu = 1"
    assert captured.logged(change.replace("{}", "")) == captured.expected(logged)
    assert captured.logged(change.replace("{}", ", idu = 1")) == []


@pytest.mark.parametrize(
    ("row_style", "logged"),
    [
        ("field", fields(1, "idu=5", ("fname", None, "Jack"), ("photo", None, "qqo="))),
        ("remove_all", fields(1, "idu=5", ("fname", None, "Jack"), ("photo", None, "qqo="))),
        ("field_query_back", fields(7, "idu=5", ("fname", None, None), ("photo", None, None))),
        ("row_query_back", fields(5, "idu=5", GONE)),
    ],
)
def test_update_of_the_key_is_another_object(
    captured: Platform, row_style: str, logged: list[Logged]
) -> None:
    captured.run(JACK)
    rows = [(4, "idu=1", None, None, None), *captured.expected(logged)]
    # Oracle has no ON UPDATE CASCADE, so no child row follows its owner there but by its own
    # statement.
    if not captured.has("key_cascades") and captured.name != "oracle":
        rows.append((8, "idu=5", "usr_phone.phoneno", None, None))
    assert captured.logged("UPDATE usr SET idu = 5") == rows


@pytest.mark.parametrize("row_style", STYLES)
def test_a_key_that_one_row_leaves_and_another_takes(captured: Platform, row_style: str) -> None:
    captured.run("INSERT INTO n VALUES (2)", "INSERT INTO n VALUES (1)")
    assert captured.logged("UPDATE n SET k = 3 WHERE k = 2", "UPDATE n SET k = 2 WHERE k = 1") == [
        (4, "k=2", *GONE),
        (5, "k=3", *GONE),
        (4, "k=1", *GONE),
        (5, "k=2", *GONE),
    ]


@pytest.mark.parametrize("row_style", STYLES)
def test_delete(captured: Platform, row_style: str) -> None:
    captured.run(JACK, "INSERT INTO usr (idu) VALUES (2)")
    assert captured.logged("DELETE FROM usr WHERE idu = 1") == [(4, "idu=1", *GONE)]
    assert captured.logged("DELETE FROM usr") == [(4, "idu=2", *GONE)]
    assert captured.logged("DELETE FROM usr") == []


def test_truncate(captured: Platform) -> None:
    captured.needs("truncate")
    captured.run("INSERT INTO keyed VALUES (1, 'x')", "INSERT INTO keyed VALUES (2, 'x')")
    assert sorted(captured.logged("TRUNCATE TABLE keyed")) == [
        (4, f"b=x+a={n}", *GONE) for n in (1, 2)
    ]


STATEMENTS: list[tuple[str, list[str], str, list[Logged]]] = [
    (
        "field",
        [JACK],
        "update usr set fname='John', lname=NULL where idu=1",
        [(2, "idu=1", "fname", "Jack", "John")],
    ),
    (
        "remove_all",
        [JACK],
        "update usr set photo={bbbb} where idu=1",
        [(3, "idu=1", "photo", "qqo=", "u7s=")],
    ),
    (
        "field",
        ["INSERT INTO usr (idu) VALUES (5)"],
        "delete from usr where idu=5",
        [(4, "idu=5", None, None, None)],
    ),
    (
        "field",
        ["INSERT INTO usr (idu) VALUES (2)"],
        "insert into usr_phone values (2,'555-1')",
        [(2, "idu=2", "usr_phone.phoneno", None, "555-1")],
    ),
    (
        "field_query_back",
        [
            "INSERT INTO usr (idu) VALUES (2)",
            "INSERT INTO usr (idu) VALUES (3)",
            "INSERT INTO usr_phone VALUES (2, '555-1')",
        ],
        "update usr_phone set idu=3 where idu=2",
        [
            (8, "idu=2", "usr_phone.phoneno", None, None),
            (8, "idu=3", "usr_phone.phoneno", None, None),
        ],
    ),
]


@pytest.mark.parametrize(("row_style", "before", "statement", "logged"), STATEMENTS)
def test_statements_of_the_specification(
    captured: Platform, row_style: str, before: list[str], statement: str, logged: list[Logged]
) -> None:
    captured.run(*before)
    assert captured.logged(statement) == captured.expected(logged)


def test_the_other_fields_of_a_row(captured: Platform) -> None:
    captured.rows()
    captured.run(JACK, "INSERT INTO usr_phone VALUES (1, '555-1')")
    rows = captured.rows()
    now = datetime.now(UTC).replace(tzinfo=None)
    assert [str(row.table_name).lower() for row in rows] == ["usr"] * 3
    assert {row.status for row in rows} == {"N"}
    assert all(
        abs(datetime.fromisoformat(str(row.event_time)) - now) < timedelta(minutes=1)
        for row in rows
    )
    assert [row.record_id for row in rows] == sorted({row.record_id for row in rows})
    with captured.session() as (conn, _):
        user = captured.dialect.open(conn).current_user()
    assert {row.perpetrator for row in rows} == ({user} if captured.has("roles") else {None})


def test_a_row_that_an_insert_replaces_is_gone(captured: Platform) -> None:
    upsert = (
        "INSERT INTO usr (idu, fname) VALUES (1, '{}') ON CONFLICT (idu) DO UPDATE SET fname = "
        "excluded.fname"
    )
    if captured.name == "oracle":
        upsert = (
            "MERGE INTO usr USING (SELECT 1 AS k, '{}' AS n FROM DUAL) ON (idu = k) WHEN MATCHED "
            "THEN UPDATE SET fname = n WHEN NOT MATCHED THEN INSERT (idu, fname) VALUES (k, n)"
        )
    if captured.is_of_family:
        upsert = (
            "INSERT INTO usr (idu, fname) VALUES (1, '{}') ON DUPLICATE KEY UPDATE fname = "
            "VALUES(fname)"
        )
    assert captured.logged(upsert.replace("{}", "Jack")) == [(1, "idu=1", "fname", None, "Jack")]
    assert captured.logged(upsert.replace("{}", "John")) == [(2, "idu=1", "fname", "Jack", "John")]


def test_what_a_rolled_back_transaction_wrote_is_not_logged(captured: Platform) -> None:
    with captured.engine.connect() as conn:
        conn.exec_driver_sql("INSERT INTO usr (idu, fname) VALUES (1, 'x')")
        conn.rollback()
    assert captured.rows() == []


@pytest.mark.parametrize("row_style", STYLES)
def test_columns_that_are_excluded_are_never_logged(captured: Platform, row_style: str) -> None:
    captured.run("INSERT INTO account VALUES (1, 'Jack', NULL)")
    assert captured.logged("UPDATE account SET lname = 'secret'") == []
    assert "lname" not in {
        row[2] for row in captured.logged("UPDATE account SET lname = 'x', fname = 'y'")
    }
