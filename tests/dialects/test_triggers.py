"""What the triggers of PostgreSQL write, as tables of statements and rows (spec/triggers.md)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from watched import LOG, LOG_DDL, STYLES, Logged, Watched, fields, run

from eventlog import table_key
from eventlog.catalog import Column
from eventlog.errors import DatabaseError, LogTableError, TriggerError
from eventlog.model import LogRow
from eventlog.sql import migrations
from eventlog.sql.dialects.postgresql import DIALECT, triggers
from eventlog.sql.dialects.postgresql.text import quote_identifier, value_text
from eventlog.sql.log_table import LogTable, Window, open_log
from eventlog.sql.triggers import Style, Watch
from eventlog.values import ColumnType, Kind

# --- operations x styles ----------------------------------------------------------------------------------------------

JACK = "INSERT INTO usr VALUES (1, 'Jack', NULL, '\\xAAAA')"


@pytest.mark.parametrize(
    ("style", "logged"),
    [
        ("field", fields(1, "idu=1", ("fname", None, "Jack"), ("photo", None, "qqo="))),
        ("remove_all", fields(1, "idu=1", ("fname", None, "Jack"), ("photo", None, "qqo="))),
        ("field_query_back", fields(7, "idu=1", ("fname", None, None), ("photo", None, None))),
        ("row_query_back", fields(5, "idu=1", (None, None, None))),
    ],
)
def test_insert(usr: Watched, style: Style, logged: list[Logged]) -> None:
    usr.watch(Watch("usr", style))
    assert usr.logged(JACK) == logged


@pytest.mark.parametrize(
    ("style", "logged"),
    [
        ("field", (1, "idu=2", "fname", None, None)),
        ("remove_all", (1, "idu=2", "fname", None, None)),
        ("field_query_back", (7, "idu=2", "fname", None, None)),
        ("row_query_back", (5, "idu=2", None, None, None)),
    ],
)
def test_insert_of_nulls_is_not_lost(usr: Watched, style: Style, logged: Logged) -> None:
    usr.watch(Watch("usr", style))
    assert usr.logged("INSERT INTO usr (idu) VALUES (2)") == [logged]


@pytest.mark.parametrize("style", STYLES)
def test_a_class_of_key_columns_alone(usr: Watched, style: Style) -> None:
    usr.watch(Watch("keyed", style))
    assert usr.logged("INSERT INTO keyed VALUES (1, 'x')") == [(5, "b=x+a=1", None, None, None)]
    assert usr.logged("UPDATE keyed SET a = a") == []
    assert usr.logged("UPDATE keyed SET a = 2") == [
        (4, "b=x+a=1", None, None, None),
        (5, "b=x+a=2", None, None, None),
    ]
    assert usr.logged("DELETE FROM keyed") == [(4, "b=x+a=2", None, None, None)]


@pytest.mark.parametrize(
    ("style", "logged"),
    [
        ("field", fields(2, "idu=1", ("fname", "Jack", "John"), ("lname", None, "Doe"), ("photo", "qqo=", None))),
        ("remove_all", fields(3, "idu=1", ("fname", "Jack", "John"), ("lname", None, "Doe"), ("photo", "qqo=", None))),
        ("field_query_back", fields(8, "idu=1", *((name, None, None) for name in ("fname", "lname", "photo")))),
        ("row_query_back", fields(6, "idu=1", (None, None, None))),
    ],
)
def test_update(usr: Watched, style: Style, logged: list[Logged]) -> None:
    usr.watch(Watch("usr", style))
    run(usr.conn, JACK)
    assert usr.logged("UPDATE usr SET photo = NULL, lname = 'Doe', fname = 'John' WHERE idu = 1") == logged
    assert usr.logged("UPDATE usr SET photo = NULL, lname = 'Doe', fname = 'John', idu = 1 WHERE idu = 1") == []


@pytest.mark.parametrize(
    ("style", "logged"),
    [
        ("field", fields(1, "idu=5", ("fname", None, "Jack"), ("photo", None, "qqo="))),
        ("remove_all", fields(1, "idu=5", ("fname", None, "Jack"), ("photo", None, "qqo="))),
        ("field_query_back", fields(7, "idu=5", ("fname", None, None), ("photo", None, None))),
        ("row_query_back", fields(5, "idu=5", (None, None, None))),
    ],
)
def test_update_of_the_key_is_another_object(usr: Watched, style: Style, logged: list[Logged]) -> None:
    usr.watch(Watch("usr", style))
    run(usr.conn, JACK)
    assert usr.logged("UPDATE usr SET idu = 5") == [(4, "idu=1", None, None, None), *logged]


@pytest.mark.parametrize("style", STYLES)
def test_delete_and_truncate(usr: Watched, style: Style) -> None:
    usr.watch(Watch("usr", style))
    run(usr.conn, JACK, "INSERT INTO usr (idu) VALUES (2), (3)")
    assert usr.logged("DELETE FROM usr WHERE idu = 1") == [(4, "idu=1", None, None, None)]
    assert usr.logged("TRUNCATE usr CASCADE") == [(4, f"idu={key}", None, None, None) for key in (2, 3)]
    assert usr.logged("TRUNCATE usr CASCADE") == []


STATEMENTS: list[tuple[Style, list[str], str, list[Logged]]] = [
    ("field", [JACK], "update usr set fname='John', lname=NULL where idu=1", [(2, "idu=1", "fname", "Jack", "John")]),
    ("remove_all", [JACK], "update usr set photo='\\xBBBB' where idu=1", [(3, "idu=1", "photo", "qqo=", "u7s=")]),
    (
        "field",
        ["INSERT INTO usr VALUES (1, 'John', NULL, '\\xBBBB')"],
        "update usr set idu=5 where idu=1",
        [(4, "idu=1", None, None, None), *fields(1, "idu=5", ("fname", None, "John"), ("photo", None, "u7s="))],
    ),
    ("field", ["INSERT INTO usr VALUES (5)"], "delete from usr where idu=5", [(4, "idu=5", None, None, None)]),
    (
        "field",
        ["INSERT INTO usr VALUES (2)"],
        "insert into usr_phone values (2,'555-1')",
        [(2, "idu=2", "usr_phone.phoneno", None, "555-1")],
    ),
    (
        "field_query_back",
        ["INSERT INTO usr VALUES (2), (3)", "INSERT INTO usr_phone VALUES (2, '555-1')"],
        "update usr_phone set idu=3 where idu=2",
        [(8, "idu=2", "usr_phone.phoneno", None, None), (8, "idu=3", "usr_phone.phoneno", None, None)],
    ),
]


@pytest.mark.parametrize(("style", "before", "statement", "logged"), STATEMENTS)
def test_statements_of_the_specification(
    usr: Watched, style: Style, before: list[str], statement: str, logged: list[Logged]
) -> None:
    usr.watch(Watch("usr", style))
    run(usr.conn, *before)
    assert usr.logged(statement) == logged


def test_the_other_fields_of_a_row(usr: Watched) -> None:
    usr.watch(Watch("usr"))
    before = usr.conn.exec_driver_sql("SELECT clock_timestamp() AT TIME ZONE 'UTC'").scalar_one()
    run(usr.conn, "SET TimeZone = 'Asia/Tokyo'", JACK, "INSERT INTO usr_phone VALUES (1, '555-1')")
    after = usr.conn.exec_driver_sql("SELECT clock_timestamp() AT TIME ZONE 'UTC'").scalar_one()
    rows = usr.rows()
    assert [row.table_name for row in rows] == ["usr"] * 3
    assert {row.status for row in rows} == {"N"}
    assert {row.perpetrator for row in rows} == {usr.conn.exec_driver_sql("SELECT session_user").scalar_one()}
    assert all(before <= row.event_time <= after for row in rows)


def test_upserts_merges_and_copies_are_captured(usr: Watched) -> None:
    usr.watch(Watch("usr"))
    upsert = "INSERT INTO usr VALUES (1, '{}') ON CONFLICT (idu) DO UPDATE SET fname = excluded.fname"
    assert usr.logged(upsert.format("Jack")) == [(1, "idu=1", "fname", None, "Jack")]
    assert usr.logged(upsert.format("John")) == [(2, "idu=1", "fname", "Jack", "John")]
    assert usr.logged("INSERT INTO usr VALUES (1) ON CONFLICT DO NOTHING") == []
    cursor = usr.conn.connection.cursor()
    with cursor.copy("COPY usr (idu, fname) FROM STDIN") as copy:
        copy.write("7\tx\n")
    assert [(row.event_type, row.table_key) for row in usr.rows()] == [(1, "idu=7")]
    merge = (
        "MERGE INTO usr USING (VALUES (1, 'Max'), (9, 'New')) AS v (k, n) ON idu = k"
        " WHEN MATCHED THEN UPDATE SET fname = n WHEN NOT MATCHED THEN INSERT (idu, fname) VALUES (k, n)"
    )
    assert usr.logged(merge) == [(2, "idu=1", "fname", "John", "Max"), (1, "idu=9", "fname", None, "New")]


# --- child tables -----------------------------------------------------------------------------------------------------

PHONE = "usr_phone.phoneno"


@pytest.mark.parametrize(("style", "event_type"), [("field", 2), ("remove_all", 2), ("row_query_back", 8)])
def test_a_child_row_is_a_value_of_its_owner(usr: Watched, style: Style, event_type: int) -> None:
    usr.watch(Watch("usr", style))
    run(usr.conn, "INSERT INTO usr VALUES (1), (2)")

    def value(key: int, old: str | None, new: str | None) -> Logged:
        return (event_type, f"idu={key}", PHONE, *((old, new) if event_type == 2 else (None, None)))

    assert usr.logged("INSERT INTO usr_phone VALUES (1, 'a'), (1, 'b')") == [value(1, None, "a"), value(1, None, "b")]
    assert usr.logged("UPDATE usr_phone SET phoneno = 'c' WHERE phoneno = 'b'") == [value(1, "b", "c")]
    assert usr.logged("UPDATE usr_phone SET phoneno = phoneno, idu = idu") == []
    assert usr.logged("UPDATE usr_phone SET idu = 2 WHERE phoneno = 'c'") == [value(1, "c", None), value(2, None, "c")]
    assert usr.logged("UPDATE usr_phone SET idu = 1, phoneno = 'd' WHERE idu = 2") == [
        value(2, "c", None),
        value(1, None, "d"),
    ]
    assert usr.logged("DELETE FROM usr_phone WHERE phoneno = 'a'") == [value(1, "a", None)]
    assert sorted(usr.logged("INSERT INTO usr_phone VALUES (1, 'e'), (2, 'f')", "TRUNCATE usr_phone")[2:]) == [
        (8, "idu=1", PHONE, None, None),
        (8, "idu=2", PHONE, None, None),
    ]


def test_a_child_row_without_owner_or_value_logs_nothing(usr: Watched) -> None:
    usr.watch(Watch("usr"))
    run(usr.conn, "INSERT INTO usr VALUES (1)")
    assert usr.logged("INSERT INTO usr_phone VALUES (NULL, 'a'), (1, NULL)") == []
    assert usr.logged("UPDATE usr_phone SET idu = 1 WHERE phoneno = 'a'") == [(2, "idu=1", PHONE, None, "a")]
    assert usr.logged("UPDATE usr_phone SET phoneno = 'b' WHERE phoneno IS NULL") == [(2, "idu=1", PHONE, None, "b")]
    assert usr.logged("UPDATE usr_phone SET idu = NULL WHERE phoneno = 'a'") == [(2, "idu=1", PHONE, "a", None)]
    assert usr.logged("UPDATE usr_phone SET phoneno = 'x' WHERE idu IS NULL", "TRUNCATE usr_phone") == [
        (8, "idu=1", PHONE, None, None)
    ]


@pytest.mark.parametrize("style", STYLES)
def test_a_child_that_may_hold_a_value_twice_is_read_back(usr: Watched, style: Style) -> None:
    run(usr.conn, "CREATE TABLE usr_mail (idu integer REFERENCES usr, mail text)")
    usr.watch(Watch("usr", style))
    run(usr.conn, "INSERT INTO usr VALUES (1)")
    back = (8, "idu=1", "usr_mail.mail", None, None)
    assert usr.logged("INSERT INTO usr_mail VALUES (1, 'a'), (1, 'a')") == [back, back]
    assert usr.logged("DELETE FROM usr_mail WHERE ctid = (SELECT min(ctid) FROM usr_mail)") == [back]


@pytest.mark.parametrize("style", STYLES)
def test_a_cascade_logs_nothing_after_the_delete_of_its_owner(usr: Watched, style: Style) -> None:
    usr.watch(Watch("usr", style))
    run(usr.conn, "INSERT INTO usr VALUES (1), (2)", "INSERT INTO usr_phone VALUES (1, 'a'), (1, 'b'), (2, 'c')")
    assert usr.logged("DELETE FROM usr") == [(4, "idu=1", None, None, None), (4, "idu=2", None, None, None)]


def test_a_cascade_of_a_key_brings_the_values_to_the_new_object(usr: Watched) -> None:
    usr.watch(Watch("usr"))
    run(usr.conn, "INSERT INTO usr VALUES (1, 'Jack')", "INSERT INTO usr_phone VALUES (1, 'a'), (1, 'b')")
    assert usr.logged("UPDATE usr SET idu = 5") == [
        (4, "idu=1", None, None, None),
        (1, "idu=5", "fname", None, "Jack"),
        (2, "idu=5", PHONE, None, "a"),
        (2, "idu=5", PHONE, None, "b"),
    ]


def test_a_child_row_may_come_before_its_owner(usr: Watched) -> None:
    run(usr.conn, "ALTER TABLE usr_phone ALTER CONSTRAINT usr_phone_idu_fkey DEFERRABLE INITIALLY DEFERRED")
    usr.watch(Watch("usr"))
    assert usr.logged("INSERT INTO usr_phone VALUES (1, 'a')", "INSERT INTO usr VALUES (1)") == [
        (2, "idu=1", PHONE, None, "a"),
        (1, "idu=1", "fname", None, None),
    ]


def test_a_composite_owner_and_types_that_differ(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE acc (branch char(6), num integer, n numeric, PRIMARY KEY (num, branch, n))",
        "CREATE TABLE acc_tag (tag text, b varchar(9), amount numeric, num bigint,"
        " FOREIGN KEY (b, num, amount) REFERENCES acc (branch, num, n), PRIMARY KEY (b, num, amount, tag))",
    )
    empty.watch(Watch("acc"))
    run(empty.conn, "INSERT INTO acc VALUES ('N+W', 7, 1.50)")
    key = 'num=7+branch="N+W"+n=1.5'
    assert empty.logged("INSERT INTO acc_tag VALUES ('x', 'N+W', 1.500, 7)") == [(2, key, "acc_tag.tag", None, "x")]
    assert empty.logged("UPDATE acc_tag SET amount = 1.5") == []
    assert empty.logged("DELETE FROM acc_tag") == [(2, key, "acc_tag.tag", "x", None)]


def test_equal_keys_of_other_spelling_mean_the_owner_as_it_is_spelled(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE f (k double precision PRIMARY KEY, v text)",
        "CREATE TABLE f_tag (k double precision REFERENCES f ON DELETE CASCADE, tag text, UNIQUE (k, tag))",
    )
    empty.watch(Watch("f"))
    run(empty.conn, "INSERT INTO f VALUES ('-0'), (1)")
    assert empty.logged("INSERT INTO f_tag VALUES ('0', 'x')") == [(2, "k=-0", "f_tag.tag", None, "x")]
    assert empty.logged("UPDATE f_tag SET k = '-0'") == []
    assert empty.logged("UPDATE f_tag SET k = 1") == [
        (2, "k=-0", "f_tag.tag", "x", None),
        (2, "k=1", "f_tag.tag", None, "x"),
    ]
    assert empty.logged("DELETE FROM f WHERE k = 1") == [(4, "k=1", None, None, None)]


# --- keys -------------------------------------------------------------------------------------------------------------

TEXTS = [
    "",
    " ",
    " x",
    "x ",
    "\tx",
    "x\t",
    "a\tb",
    "John Smith",
    "O'Brien",
    'a"b\\',
    "\\",
    '"',
    "a=b",
    "a+b",
    *(f"a{chr(code)}b" for code in range(1, 0x20)),
    *(f"a{char}b" for char in ",;'+\"=\\<>"),
    "\x7f",
    "\x80",
    "\x9f",
    "\xa0x\xa0",
    "\u2003x",
    "\u00adx",
    "é",
    "e\u0301",
    "😀",
    "a\nb",
    "^",
    "[",
    "%s %% $1 :x",
    "$eventlog$",
    "NULL",
]


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_every_text_is_a_canonical_key(empty: Watched, conforming: str) -> None:
    texts = list(dict.fromkeys(TEXTS))
    run(empty.conn, 'CREATE TABLE t (n text, "a b" text, PRIMARY KEY (n, "a b"))')
    run(empty.conn, f"SET standard_conforming_strings = {conforming}", "SET escape_string_warning = off")
    empty.watch(Watch("t"))
    empty.conn.execute(sa.text("INSERT INTO t VALUES (:t, :t)"), [{"t": each} for each in texts])
    cls = empty.catalog("t").class_named("t")
    keys = [str(row.table_key) for row in empty.rows()]
    assert keys == [table_key.key_text([("n", each), ("a b", each)]) for each in texts]
    assert [cls.canonical_key(key) for key in keys] == keys


KEYS = [
    ("smallint", "-7", "k=-7"),
    ("numeric(9,0)", "7", "k=7"),
    ("numeric", "1.500", "k=1.5"),
    ("numeric", "100", "k=100"),
    ("numeric", "0.0", "k=0"),
    ("numeric", "1e30", "k=1000000000000000000000000000000"),
    ("char(8)", "'AB'", "k=AB"),
    ("char(8)", "'  AB'", 'k="  AB"'),
    ("bytea", "'\\xAAAA'", 'k="qqo="'),
    ("bytea", "'\\x000102'", "k=AAEC"),
    ("uuid", "'6F9619FF-8B86-D011-B42D-00C04FC964FF'", "k=6f9619ff-8b86-d011-b42d-00c04fc964ff"),
    ("boolean", "'t'", "k=true"),
    ("date", "'2024-05-06'", "k=2024-05-06"),
    ("time", "'07:08:09.5'", "k=07:08:09.5"),
    ("timestamp", "'2024-05-06 07:08:09'", "k=2024-05-06 07:08:09.000000"),
    ("timestamptz", "'2024-05-06 07:08:09+02'", "k=2024-05-06 05:08:09.000000Z"),
    ("double precision", "1e20", 'k="1e+20"'),
    ("real", "0.1", "k=0.1"),
    ("interval", "'1 day 02:00'", "k=1 day 02:00:00"),
    ("text[]", "'{a,b}'", 'k="{a,b}"'),
    ("inet", "'10.0.0.1'", "k=10.0.0.1/32"),
]


@pytest.mark.parametrize(("type", "value", "key"), KEYS)
def test_keys_of_every_type_are_canonical(empty: Watched, type: str, value: str, key: str) -> None:
    run(empty.conn, f"CREATE TABLE t (k {type} PRIMARY KEY, v text)")
    empty.watch(Watch("t"))
    assert empty.logged(f"INSERT INTO t VALUES ({value}, 'x')") == [(1, key, "v", None, "x")]
    assert empty.catalog("t").class_named("t").canonical_key(key) == key


def test_the_key_has_changed_if_its_text_has(empty: Watched) -> None:
    run(empty.conn, "CREATE TABLE t (k numeric PRIMARY KEY, v text)")
    empty.watch(Watch("t"))
    run(empty.conn, "INSERT INTO t VALUES (1.0, 'x')")
    assert empty.logged("UPDATE t SET k = 1.00") == []
    assert empty.logged("UPDATE t SET k = 1.000, v = 'y'") == [(2, "k=1", "v", "x", "y")]
    assert empty.logged("UPDATE t SET k = 1.01, v = 'y'") == [
        (4, "k=1", None, None, None),
        (1, "k=1.01", "v", None, "y"),
    ]


# --- change test ------------------------------------------------------------------------------------------------------

CHANGES = [
    ("text", "NULL", "NULL", False),
    ("text", "NULL", "''", True),
    ("text", "''", "NULL", True),
    ("text", "'a'", "'A'", True),
    ("varchar(9)", "'x'", "'x '", True),
    ("char(9)", "'x'", "'x '", False),
    ("bpchar", "'x'", "'x '", True),
    ("integer", "1", "1", False),
    ("numeric", "1.0", "1.00", True),
    ("numeric", "1.0", "1.0", False),
    ("double precision", "0", "'-0'", True),
    ("double precision", "'NaN'", "'NaN'", False),
    ("json", "'{}'", "'{ }'", True),
    ("json", "'{}'", "'{}'", False),
    ("jsonb", "'1.0'", "'1.00'", True),
    ("jsonb", '\'{"a":1,"b":2}\'', '\'{"b":2,"a":1}\'', False),
    ("xml", "'<a/>'", "'<b/>'", True),
    ("point", "'(1,2)'", "'(1,3)'", True),
    ("point", "'(1,2)'", "'(1,2)'", False),
    ("box", "'(0,0),(1,1)'", "'(5,5),(6,6)'", True),
    ("interval", "'24 hours'", "'1 day'", True),
    ("numeric[]", "'{1.0}'", "'{1.00}'", True),
    ("text[]", "'{a}'", "'{a}'", False),
    ("text[]", "'{NULL}'", "NULL", True),
    ("bytea", "'\\x00'", "'\\x0000'", True),
    ("timestamptz", "'2024-01-01 00:00+00'", "'2024-01-01 01:00+01'", False),
    ("timetz", "'00:00+00'", "'01:00+01'", True),
    ("pair", "ROW(1, NULL)", "ROW(1, NULL)", False),
    ("pair", "ROW(1, NULL)", "NULL", True),
    ("pair", "ROW(NULL, NULL)", "NULL", True),
    ("mood", "'sad'", "'happy'", True),
    ("word", "'a'", "'A'", True),
]


@pytest.mark.parametrize(("type", "old", "new", "is_changed"), CHANGES)
@pytest.mark.parametrize("columns", [None, ("v",)])
def test_a_change_is_a_change_of_bytes(
    empty: Watched, type: str, old: str, new: str, is_changed: bool, columns: tuple[str, ...] | None
) -> None:
    run(
        empty.conn,
        "CREATE TYPE pair AS (a integer, b text)",
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE DOMAIN word AS text",
    )
    try:
        run(empty.conn, f"CREATE TABLE t (k integer PRIMARY KEY, v {type}, other text)")
        run(empty.conn, f"INSERT INTO t VALUES (1, {old})")
    except sa.exc.DBAPIError as error:
        pytest.skip(f"the server has no {type}: {error.orig}")
    empty.watch(Watch("t", "field_query_back", columns=columns))
    assert bool(empty.logged(f"UPDATE t SET v = {new}")) is is_changed


def test_text_of_a_coarse_collation_is_compared_and_quoted_by_bytes(empty: Watched) -> None:
    try:
        run(empty.conn, "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    except sa.exc.DBAPIError:
        pytest.skip("the server was built without ICU")
    run(
        empty.conn,
        "CREATE TABLE t (k text COLLATE ci PRIMARY KEY, v text COLLATE ci)",
        "CREATE TABLE tag (k text COLLATE ci REFERENCES t ON DELETE CASCADE, v text, UNIQUE (k, v))",
    )
    empty.watch(Watch("t"))
    assert empty.logged("INSERT INTO t VALUES ('a+', 'x')") == [(1, 'k="a+"', "v", None, "x")]
    assert empty.logged("UPDATE t SET v = 'X'") == [(2, 'k="a+"', "v", "x", "X")]
    assert empty.logged("INSERT INTO tag VALUES ('A+', 'x')") == [(2, 'k="a+"', "tag.v", None, "x")]
    assert empty.logged("DELETE FROM tag") == [(2, 'k="a+"', "tag.v", "x", None)]
    assert empty.logged("UPDATE t SET k = 'A+'") == [(4, 'k="a+"', None, None, None), (1, 'k="A+"', "v", None, "X")]


def test_a_type_with_an_equality_of_its_own_is_compared_by_it_and_logged_by_bytes(empty: Watched) -> None:
    try:
        run(empty.conn, "CREATE SCHEMA ext", "CREATE EXTENSION citext SCHEMA ext")
    except sa.exc.DBAPIError:
        pytest.skip("the server has no citext")
    run(
        empty.conn,
        "CREATE TABLE t (k ext.citext PRIMARY KEY, v ext.citext)",
        "CREATE TABLE tag (k ext.citext REFERENCES t ON DELETE CASCADE, v text, UNIQUE (k, v))",
    )
    empty.watch(Watch("t"))
    assert empty.logged("INSERT INTO t VALUES ('a', 'x')") == [(1, "k=a", "v", None, "x")]
    assert empty.logged("UPDATE t SET v = 'X'") == [(2, "k=a", "v", "x", "X")]
    assert empty.logged("INSERT INTO tag VALUES ('A', 'x')") == [(2, "k=a", "tag.v", None, "x")]
    assert empty.logged("DELETE FROM tag") == [(2, "k=a", "tag.v", "x", None)]
    assert empty.logged("INSERT INTO tag VALUES ('A', 'x')", "DELETE FROM t")[1:] == [(4, "k=a", None, None, None)]


# --- values -----------------------------------------------------------------------------------------------------------

VALUES = [
    ("smallint", "-7", "-7"),
    ("bigint", "9223372036854775807", "9223372036854775807"),
    ("numeric(12,4)", "1.5", "1.5000"),
    ("numeric", "1e-10", "0.0000000001"),
    ("numeric", "'NaN'", "NaN"),
    ("real", "0.1", "0.1"),
    ("double precision", "0.1::float8 + 0.2", "0.30000000000000004"),
    ("double precision", "'-Infinity'", "-Infinity"),
    ("boolean", "true", "true"),
    ("char(8)", "'ab'", "ab"),
    ("varchar(8)", "'ab  '", "ab  "),
    ("text", "E'a\\nb\\\\'", "a\nb\\"),
    ("bytea", "'\\xAAAA'", "qqo="),
    ("bytea", "decode(repeat('00', 60), 'hex')", "A" * 80),
    ("bytea", "''", ""),
    ("date", "'2024-02-29'", "2024-02-29"),
    ("date", "'0001-01-01'", "0001-01-01"),
    ("date", "'9999-12-31'", "9999-12-31"),
    ("date", "'10000-01-01'", "10000-01-01"),
    ("date", "'5874897-12-31'", "5874897-12-31"),
    ("date", "'0044-03-15 BC'", "0044-03-15 BC"),
    ("date", "'infinity'", "infinity"),
    ("time", "'00:01:40.5'", "00:01:40.5"),
    ("timestamp", "'2024-05-06 07:08:09.123456'", "2024-05-06 07:08:09.123456"),
    ("timestamp", "'2024-05-06'", "2024-05-06 00:00:00.000000"),
    ("timestamp", "'0044-03-15 10:00 BC'", "0044-03-15 10:00:00 BC"),
    ("timestamp", "'-infinity'", "-infinity"),
    ("timestamptz", "'2001-09-09 03:46:40+02'", "2001-09-09 01:46:40.000000Z"),
    ("timestamptz", "'0001-01-01 00:30+01'", "0001-12-31 23:30:00 BC"),
    ("timestamptz", "'9999-12-31 23:30-01'", "10000-01-01 00:30:00"),
    ("timestamptz", "'infinity'", "infinity"),
    ("uuid", "'6F9619FF-8B86-D011-B42D-00C04FC964FF'", "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
    ("jsonb", "'{\"a\": 1}'", '{"a": 1}'),
    ("json", "'{ }'", "{ }"),
    ("integer[]", "'{1,NULL}'", "{1,NULL}"),
    ("date[]", "ARRAY['2024-05-06'::date]", "{2024-05-06}"),
    ("timestamptz[]", "ARRAY['2024-05-06 07:08:09+02'::timestamptz]", '{"2024-05-06 05:08:09+00"}'),
    ("bytea[]", "ARRAY['\\xAAAA'::bytea]", '{"\\\\xaaaa"}'),
    ("float8[]", "ARRAY[0.1::float8 + 0.2]", "{0.30000000000000004}"),
    ("interval", "'1 year 2 mons 3 days 04:05:06.7'", "1 year 2 mons 3 days 04:05:06.7"),
    ("tsrange", "tsrange('2024-05-06', NULL)", '["2024-05-06 00:00:00",)'),
    ("point", "point(0.1::float8 + 0.2, 1)", "(0.30000000000000004,1)"),
    ("money", "1234.5::numeric::money", "$1,234.50"),
    ("inet", "'10.0.0.1'", "10.0.0.1/32"),
    ("cidr", "'10.0.0.0/8'", "10.0.0.0/8"),
    ("bit(3)", "'101'", "101"),
    ("regclass", "'pg_class'", "pg_class"),
    ("mood", "'happy'", "happy"),
    ("pair", "ROW(1, NULL)", "(1,)"),
    ("pair", "ROW(NULL, NULL)", "(,)"),
    ("word", "'x'", "x"),
    ("day", "'2024-02-29'", "2024-02-29"),
]
ODD_SETTINGS = (
    "SET DateStyle = 'German, DMY'",
    "SET TimeZone = 'Pacific/Apia'",
    "SET IntervalStyle = 'sql_standard'",
    "SET bytea_output = 'escape'",
    "SET extra_float_digits = -5",
    "SET escape_string_warning = off",
    "SET search_path = public",
)


@pytest.mark.parametrize(("type", "value", "text"), VALUES)
def test_values_are_one_text_whatever_the_session(empty: Watched, type: str, value: str, text: str) -> None:
    run(
        empty.conn,
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TYPE pair AS (a integer, b text)",
        "CREATE DOMAIN word AS varchar(8)",
        "CREATE DOMAIN day AS date",
        f"CREATE TABLE t (k integer PRIMARY KEY, v {type})",
        f"CREATE TABLE source AS SELECT CAST({value} AS {type}) AS v",
    )
    empty.watch(Watch("t"))
    assert empty.logged("INSERT INTO t SELECT 1, v FROM source") == [(1, "k=1", "v", None, text)]
    run(empty.conn, *ODD_SETTINGS)
    assert empty.logged("INSERT INTO t SELECT 2, v FROM source") == [(1, "k=2", "v", None, text)]
    assert empty.logged("UPDATE t SET v = NULL WHERE k = 2") == [(2, "k=2", "v", text, None)]


def test_a_date_that_a_time_zone_has_skipped_is_itself(empty: Watched) -> None:
    run(empty.conn, "CREATE TABLE t (k integer PRIMARY KEY, v date)", "SET TimeZone = 'Pacific/Apia'")
    empty.watch(Watch("t"))
    assert empty.logged("INSERT INTO t VALUES (1, '2011-12-30')") == [(1, "k=1", "v", None, "2011-12-30")]


def test_a_cast_of_the_types_owner_is_not_called(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TYPE pair AS (a integer, b text)",
        "CREATE FUNCTION hostile(pair) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$",
        "CREATE CAST (pair AS text) WITH FUNCTION hostile(pair)",
        "CREATE TABLE t (k integer PRIMARY KEY, v pair)",
    )
    empty.watch(Watch("t"))
    assert empty.logged("INSERT INTO t VALUES (1, (1, 'x'))") == [(1, "k=1", "v", None, "(1,x)")]


def test_generated_columns_are_logged_if_they_are_stored(empty: Watched) -> None:
    run(empty.conn, "CREATE TABLE t (k integer PRIMARY KEY, a integer, s integer GENERATED ALWAYS AS (a + 1) STORED)")
    if empty.conn.exec_driver_sql("SHOW server_version_num").scalar_one() >= "180000":
        run(empty.conn, "ALTER TABLE t ADD COLUMN v integer GENERATED ALWAYS AS (a + 2) VIRTUAL")
    empty.watch(Watch("t"))
    assert empty.logged("INSERT INTO t VALUES (1, 1)") == fields(1, "k=1", ("a", None, "1"), ("s", None, "2"))
    assert empty.logged("UPDATE t SET a = 2") == fields(2, "k=1", ("a", "1", "2"), ("s", "2", "3"))


def test_what_is_read_back_has_the_text_that_was_logged(empty: Watched) -> None:
    column = Column("v", ColumnType(Kind.TIMESTAMPTZ, 0, "timestamp with time zone"))
    run(empty.conn, "CREATE TABLE t (k integer PRIMARY KEY, v timestamptz)")
    empty.watch(Watch("t"))
    (row,) = empty.logged("INSERT INTO t VALUES (1, '2024-05-06 07:08:09.25+02')")
    statement = f"SELECT {value_text(column, 't.v')} FROM t"
    assert empty.conn.exec_driver_sql(statement).scalar_one() == row[4]


# --- columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_columns_that_are_excluded_are_not_even_looked_at(usr: Watched, style: Style) -> None:
    run(usr.conn, JACK)
    usr.watch(Watch("usr", style, exclude=("fname", PHONE)))
    assert usr.logged("UPDATE usr SET fname = 'secret'", "INSERT INTO usr_phone VALUES (1, 'secret')") == []
    assert len(usr.logged("UPDATE usr SET lname = 'Doe', fname = 'x'")) == 1
    run(usr.conn, "UPDATE usr SET idu = 2")
    assert all("secret" not in row and "fname" not in row for row in usr.rows())
    assert "fname" not in triggers.to_sql(usr.plan(Watch("usr", style, exclude=("fname", "lname", PHONE))))


def test_a_column_more_is_noticed_and_one_less_too(usr: Watched) -> None:
    usr.watch(Watch("usr"))
    run(usr.conn, "ALTER TABLE usr ADD COLUMN age integer")
    plan = usr.plan(Watch("usr"))
    assert [(action.kind, action.table) for action in plan.actions] == [
        ("replace", "public.usr"),
        ("unchanged", "public.usr_phone"),
    ]
    assert plan.actions[0].reason == "the watch, its table or the templates have changed"
    triggers.apply(usr.conn, plan)
    assert usr.logged("INSERT INTO usr (idu, age) VALUES (1, 30)") == [(1, "idu=1", "age", None, "30")]
    run(usr.conn, "ALTER TABLE usr DROP COLUMN age")
    assert usr.plan(Watch("usr")).actions[0].kind == "replace"


def test_an_applications_alter_table_is_not_refused(usr: Watched) -> None:
    usr.watch(Watch("usr"))
    run(usr.conn, "ALTER TABLE usr ALTER COLUMN lname TYPE varchar(80)", "ALTER TABLE usr ADD COLUMN age integer")
    assert usr.logged("INSERT INTO usr (idu, lname) VALUES (1, 'x')") == [(1, "idu=1", "lname", None, "x")]


# --- names ------------------------------------------------------------------------------------------------------------

NAMES = [
    "usr",
    "Usr",
    "select",
    'q"uote',
    "it's",
    "100% %s %(x)s",
    "$1 $eventlog$ $$",
    "back\\slash",
    "a+b=c",
    " blank ",
    "line\nbreak; DROP TABLE usr; --",
    "{{ table }}",
    ":colon",
    "Größe",
    "表",
    "a" * 63,
    "é" * 31,
    "new_key",
    "old",
    "o",
    "v",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("conforming", ["on", "off"])
def test_any_identifier_is_a_name_and_nothing_else(empty: Watched, name: str, conforming: str) -> None:
    run(empty.conn, f"SET standard_conforming_strings = {conforming}", "SET escape_string_warning = off")
    quoted = quote_identifier(name)
    value = quote_identifier(name[:28] + "2")
    run(
        empty.conn,
        f"CREATE SCHEMA {quoted}",
        f"SET search_path = {quoted}",
        f"CREATE TABLE {quoted} ({quoted} text PRIMARY KEY, {value} text)",
        f"CREATE TABLE child ({quoted} text REFERENCES {quoted} ON DELETE CASCADE, {value} text,"
        f" UNIQUE ({quoted}, {value}))",
    )
    empty.watch(Watch(name))
    assert {action.kind for action in empty.plan(Watch(name)).actions} == {"unchanged"}
    key = table_key.key_text([(name, "x")])
    column = name[:28] + "2"
    assert empty.logged(f"INSERT INTO {quoted} VALUES ('x', 'v')") == [(1, key, column, None, "v")]
    assert empty.logged(f"UPDATE {quoted} SET {value} = 'w'") == [(2, key, column, "v", "w")]
    assert empty.logged("INSERT INTO child VALUES ('x', 'c')") == [(2, key, f"child.{column}", None, "c")]
    assert empty.logged(f"DELETE FROM {quoted}") == [(4, key, None, None, None)]
    triggers.drop(empty.conn, LOG)
    assert empty.logged(f"INSERT INTO {quoted} VALUES ('x', 'v')") == []


def test_the_printed_script_does_what_apply_does(empty: Watched) -> None:
    run(empty.conn, 'CREATE TABLE "line\nDROP TABLE usr; --" ("it\'s 100%" integer PRIMARY KEY, v text)')
    script = triggers.to_sql(empty.plan(Watch("line\nDROP TABLE usr; --")))
    settings = "SET LOCAL search_path = pg_catalog, pg_temp;\nSET LOCAL lock_timeout = 5000;\n"
    assert script.startswith(f"BEGIN;\n{settings}\n-- create ")
    assert script.endswith("COMMIT;\n")
    run(empty.conn, script)
    plan = empty.plan(Watch("line\nDROP TABLE usr; --"))
    assert [action.kind for action in plan.actions] == ["unchanged"]
    assert triggers.to_sql(plan) == "-- Nothing to do: the triggers are as declared.\n"


def test_long_names_stay_apart_and_fit(empty: Watched) -> None:
    names = ["t" * 62 + last for last in "ab"]
    for name in names:
        run(empty.conn, f"CREATE TABLE {name} (k integer PRIMARY KEY, v text)")
    empty.watch(*map(Watch, names))
    functions = empty.conn.exec_driver_sql("SELECT proname FROM pg_proc WHERE prosecdef").scalars().all()
    assert len(set(functions)) == 2
    assert all(len(name) == 63 and name.startswith("proc_tttt") for name in functions)
    for name in names:
        run(empty.conn, f"INSERT INTO {name} VALUES (1)")
    assert [row.table_name for row in empty.rows()] == names


def test_somebody_elses_function_and_trigger_keep_their_names(usr: Watched) -> None:
    theirs = (
        "CREATE FUNCTION proc_usr_1() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
        'CREATE TRIGGER "_tgr_usr_i_1" AFTER INSERT ON usr FOR EACH ROW EXECUTE FUNCTION proc_usr_1()',
    )
    run(usr.conn, *theirs)
    usr.watch(Watch("usr"))
    assert {action.kind for action in usr.plan(Watch("usr")).actions} == {"unchanged"}
    names = usr.conn.exec_driver_sql(
        "SELECT t.tgname, p.proname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid"
        " WHERE t.tgrelid = 'usr'::regclass AND NOT t.tgisinternal ORDER BY 1"
    ).all()
    assert [tuple(row) for row in names] == [
        ("_tgr_usr_d_1", "proc_usr_2"),
        ("_tgr_usr_i_1", "proc_usr_1"),
        ("_tgr_usr_i_2", "proc_usr_2"),
        ("_tgr_usr_t_1", "proc_usr_2"),
        ("_tgr_usr_u_1", "proc_usr_2"),
    ]
    triggers.drop(usr.conn, LOG)
    assert (
        usr.conn.exec_driver_sql("SELECT count(*) FROM pg_proc WHERE starts_with(proname, 'proc_usr')").scalar_one()
        == 1
    )


# --- rights -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def writer(usr: Watched) -> Iterator[str]:
    name = "eventlog_test_writer"
    run(usr.conn, f"DROP ROLE IF EXISTS {name}", f"CREATE ROLE {name}", f"GRANT ALL ON usr, usr_phone TO {name}")
    yield name
    usr.conn.rollback()


def test_a_writer_without_rights_on_the_log_is_the_perpetrator(usr: Watched, writer: str) -> None:
    usr.watch(Watch("usr"))
    run(usr.conn, f"SET SESSION AUTHORIZATION {writer}", JACK, "INSERT INTO usr_phone VALUES (1, 'a')")
    run(usr.conn, "DELETE FROM usr_phone", "RESET SESSION AUTHORIZATION")
    assert [row.perpetrator for row in usr.rows()] == [writer] * 4


def test_nobody_else_may_use_the_trigger_function(usr: Watched, writer: str) -> None:
    usr.watch(Watch("usr"))
    run(usr.conn, f"GRANT CREATE ON SCHEMA public TO {writer}", f"SET SESSION AUTHORIZATION {writer}")
    run(usr.conn, "CREATE TABLE forged (idu integer, fname text, lname text, photo bytea)")
    with pytest.raises(sa.exc.ProgrammingError, match="permission denied for function proc_usr_1"):
        run(usr.conn, "CREATE TRIGGER t AFTER INSERT ON forged FOR EACH ROW EXECUTE FUNCTION proc_usr_1()")


def test_hostile_functions_and_operators_are_not_called(usr: Watched, writer: str) -> None:
    run(usr.conn, "ALTER TABLE usr ADD COLUMN born date", "ALTER TABLE usr ADD COLUMN n numeric")
    run(usr.conn, f"GRANT CREATE ON SCHEMA public TO {writer}", f"SET SESSION AUTHORIZATION {writer}")
    run(usr.conn, "SET search_path = public, pg_catalog, pg_temp")
    body = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile'; END $$"
    for signature, result in [
        ("to_char(date, text)", "text"),
        ("replace(text, text, text)", "text"),
        ("encode(bytea, text)", "text"),
        ("clock_timestamp()", "timestamptz"),
        ("array_append(text[], text)", "text[]"),
        ("same(integer, integer)", "boolean"),
        ("joined(text, text)", "text"),
    ]:
        run(usr.conn, f"CREATE FUNCTION public.{signature} RETURNS {result} {body}")
    run(
        usr.conn,
        "CREATE OPERATOR public.= (FUNCTION = public.same, LEFTARG = integer, RIGHTARG = integer)",
        "CREATE OPERATOR public.|| (FUNCTION = public.joined, LEFTARG = text, RIGHTARG = text)",
        "CREATE TEMP TABLE eventlog (status text)",
        "RESET SESSION AUTHORIZATION",
    )
    usr.watch(Watch("usr"))
    run(usr.conn, f"SET SESSION AUTHORIZATION {writer}", "SET search_path = public, pg_catalog, pg_temp")
    logged = "INSERT INTO usr VALUES (1, 'J', 'D', '\\xAA', '2024-05-06', 1.0)"
    run(usr.conn, logged, "UPDATE usr SET n = 2, born = NULL", "INSERT INTO usr_phone VALUES (1, 'a')")
    run(usr.conn, "DELETE FROM usr_phone", "RESET SESSION AUTHORIZATION", "RESET search_path")
    assert len(usr.rows()) == 9


def test_triggers_that_could_not_run_are_not_made(usr: Watched, writer: str) -> None:
    run(usr.conn, f"SET SESSION AUTHORIZATION {writer}")
    with pytest.raises(TriggerError, match=f"role {writer} may not write"):
        usr.plan(Watch("usr"))
    run(usr.conn, "RESET SESSION AUTHORIZATION", f"GRANT USAGE ON SCHEMA log TO {writer}")
    run(usr.conn, f"GRANT INSERT ON log.eventlog TO {writer}", f"REVOKE SELECT ON usr FROM {writer}")
    run(usr.conn, f"SET SESSION AUTHORIZATION {writer}")
    with pytest.raises(TriggerError, match=r'may not read "public"\."usr"'):
        usr.plan(Watch("usr"))


# --- plan, apply, drop ------------------------------------------------------------------------------------------------


def catalogue(conn: sa.Connection) -> list[tuple[object, ...]]:
    return [
        tuple(row)
        for row in conn.exec_driver_sql(
            "SELECT 'trigger', oid, tgname::text FROM pg_trigger"
            " UNION ALL SELECT 'function', oid, proname::text FROM pg_proc"
            " UNION ALL SELECT 'comment', objoid, description FROM pg_description ORDER BY 1, 2, 3"
        )
    ]


def test_drop_leaves_the_catalogue_as_it_was(usr: Watched) -> None:
    before = catalogue(usr.conn)
    usr.watch(Watch("usr"), Watch("keyed"))
    assert catalogue(usr.conn) != before
    dropped = triggers.drop(usr.conn, LOG)
    assert catalogue(usr.conn) == before
    assert [(action.kind, action.table) for action in dropped.actions] == [
        ("drop", "public.keyed"),
        ("drop", "public.usr"),
        ("drop", "public.usr_phone"),
    ]
    assert triggers.drop(usr.conn, LOG).actions == ()


def test_applying_twice_changes_nothing(usr: Watched) -> None:
    first = usr.watch(Watch("usr"), Watch("keyed", "row_query_back"))
    assert [(action.kind, action.reason) for action in first.actions] == [
        ("create", "watched, and not captured yet")
    ] * 3
    before = catalogue(usr.conn)
    second = usr.watch(Watch("usr"), Watch("keyed", "row_query_back"))
    assert {(action.kind, action.reason) for action in second.actions} == {("unchanged", "as declared")}
    assert second.changes == ()
    assert catalogue(usr.conn) == before


def test_the_sessions_search_path_is_left_alone(usr: Watched) -> None:
    run(usr.conn, "SET search_path = public, log")
    usr.watch(Watch("usr"))
    assert usr.conn.exec_driver_sql("SHOW search_path").scalar_one() == "public, log"


def test_a_plan_is_applied_as_a_whole_or_not_at_all(usr: Watched) -> None:
    plan = usr.plan(Watch("usr"), Watch("keyed"))
    before = catalogue(usr.conn)
    run(usr.conn, "ALTER TABLE keyed RENAME TO gone")
    with pytest.raises(DatabaseError, match="keyed"):
        triggers.apply(usr.conn, plan)
    assert catalogue(usr.conn) == before


def test_what_is_no_longer_watched_is_dropped(usr: Watched) -> None:
    usr.watch(Watch("usr"), Watch("keyed"))
    plan = usr.watch(Watch("usr", exclude=(PHONE,)))
    assert [(action.kind, action.table, action.reason) for action in plan.actions] == [
        ("unchanged", "public.usr", "as declared"),
        ("drop", "public.keyed", "no longer watched"),
        ("drop", "public.usr_phone", "no longer watched"),
    ]
    assert usr.logged(JACK, "INSERT INTO usr_phone VALUES (1, 'a')", "INSERT INTO keyed VALUES (1, 'x')")[2:] == []


def test_the_function_of_a_table_that_is_gone_is_dropped(usr: Watched) -> None:
    before = usr.conn.exec_driver_sql("SELECT count(*) FROM pg_proc").scalar_one()
    usr.watch(Watch("keyed"))
    run(usr.conn, "DROP TABLE keyed")
    plan = usr.watch()
    assert [(action.table, action.reason) for action in plan.actions] == [
        ("public.proc_keyed_1", "a function without triggers")
    ]
    assert usr.conn.exec_driver_sql("SELECT count(*) FROM pg_proc").scalar_one() == before


def test_triggers_that_were_all_dropped_by_hand_come_back(usr: Watched) -> None:
    usr.watch(Watch("keyed"))
    run(usr.conn, *(f"DROP TRIGGER _tgr_keyed_{operation}_1 ON keyed" for operation in "iudt"))
    assert [(action.kind, action.table) for action in usr.watch(Watch("keyed")).changes] == [("create", "public.keyed")]
    assert usr.plan(Watch("keyed")).changes == ()
    assert usr.logged("INSERT INTO keyed VALUES (1, 'x')") == [(5, "b=x+a=1", None, None, None)]


def test_a_table_that_was_renamed_gets_new_names(usr: Watched) -> None:
    usr.watch(Watch("keyed"))
    run(usr.conn, "ALTER TABLE keyed RENAME TO locked")
    plan = usr.watch(Watch("locked"))
    assert [(action.kind, action.reason) for action in plan.actions] == [
        ("replace", "function proc_locked_1 is missing")
    ]
    assert [action.kind for action in usr.plan(Watch("locked")).actions] == ["unchanged"]
    assert usr.conn.exec_driver_sql("SELECT proname FROM pg_proc WHERE prosecdef").scalars().all() == ["proc_locked_1"]
    assert usr.logged("INSERT INTO locked VALUES (1, 'x')") == [(5, "b=x+a=1", None, None, None)]


BY_HAND = [
    ("ALTER FUNCTION proc_usr_1() SECURITY INVOKER", "function proc_usr_1 was changed by hand"),
    ("ALTER FUNCTION proc_usr_1() RESET search_path", "function proc_usr_1 was changed by hand"),
    ("ALTER FUNCTION proc_usr_1() SET work_mem = '1MB'", "function proc_usr_1 was changed by hand"),
    (
        "CREATE OR REPLACE FUNCTION proc_usr_1() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        " SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NULL; END'",
        "function proc_usr_1 was changed by hand",
    ),
    ("ALTER TABLE usr DISABLE TRIGGER _tgr_usr_i_1", "trigger _tgr_usr_i_1 is disabled"),
    ("ALTER TABLE usr ENABLE ALWAYS TRIGGER _tgr_usr_i_1", "trigger _tgr_usr_i_1 was changed by hand"),
    ("DROP TRIGGER _tgr_usr_d_1 ON usr", "trigger _tgr_usr_d_1 is missing"),
    (
        "ALTER TRIGGER _tgr_usr_d_1 ON usr RENAME TO mine",
        "trigger _tgr_usr_d_1 is missing; trigger mine is one too many",
    ),
    (
        "CREATE OR REPLACE TRIGGER _tgr_usr_u_1 AFTER UPDATE ON usr FOR EACH ROW EXECUTE FUNCTION proc_usr_1()",
        "trigger _tgr_usr_u_1 was changed by hand",
    ),
    (
        "CREATE OR REPLACE TRIGGER _tgr_usr_u_1 AFTER UPDATE ON usr FOR EACH ROW WHEN (OLD.fname <> NEW.fname)"
        " EXECUTE FUNCTION proc_usr_1()",
        "trigger _tgr_usr_u_1 was changed by hand",
    ),
    (
        "CREATE OR REPLACE TRIGGER _tgr_usr_i_1 AFTER INSERT ON usr FOR EACH ROW WHEN (NEW.idu > 9)"
        " EXECUTE FUNCTION proc_usr_1()",
        "trigger _tgr_usr_i_1 was changed by hand",
    ),
    ("COMMENT ON TRIGGER _tgr_usr_i_1 ON usr IS NULL", "trigger _tgr_usr_i_1 was changed by hand"),
    (
        "CREATE TRIGGER more AFTER INSERT ON usr FOR EACH ROW EXECUTE FUNCTION proc_usr_1()",
        "trigger more is one too many",
    ),
]


@pytest.mark.parametrize(("statement", "reason"), BY_HAND)
def test_changes_by_hand_are_noticed_and_undone(usr: Watched, statement: str, reason: str) -> None:
    usr.watch(Watch("usr"))
    run(usr.conn, statement)
    plan = usr.plan(Watch("usr"))
    assert [(action.kind, action.reason) for action in plan.actions] == [
        ("replace", reason),
        ("unchanged", "as declared"),
    ]
    triggers.apply(usr.conn, plan)
    assert {action.kind for action in usr.plan(Watch("usr")).actions} == {"unchanged"}
    assert usr.logged(JACK)[0] == (1, "idu=1", "fname", None, "Jack")
    triggers.drop(usr.conn, LOG)
    assert usr.conn.exec_driver_sql("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").scalar_one() == 0


def test_another_style_replaces_the_triggers(usr: Watched) -> None:
    usr.watch(Watch("usr"))
    plan = usr.watch(Watch("usr", "remove_all"))
    assert [action.kind for action in plan.actions] == ["replace", "unchanged"]
    run(usr.conn, JACK)
    assert usr.logged("UPDATE usr SET fname = 'John'") == [(3, "idu=1", "fname", "Jack", "John")]


def test_two_logs_of_one_table_do_not_touch_each_other(usr: Watched) -> None:
    other = LogTable("log", "second", LogRow._fields)
    run(usr.conn, LOG_DDL.replace("log.eventlog", "log.second"), triggers.render_quote_function(other))
    second = Watched(usr.conn, other)
    usr.watch(Watch("usr"))
    assert {action.kind for action in second.watch(Watch("usr", "row_query_back")).actions} == {"create"}
    for watched, style in ((usr, "field"), (second, "row_query_back")):
        assert {action.kind for action in watched.plan(Watch("usr", style)).actions} == {"unchanged"}  # type: ignore[arg-type]
    run(usr.conn, "INSERT INTO usr (idu, fname) VALUES (1, 'Jack')")
    counts = [
        usr.conn.exec_driver_sql(f"SELECT event_type FROM log.{log}").scalars().all() for log in ("eventlog", "second")
    ]
    assert counts == [[1], [5]]
    triggers.drop(usr.conn, other)
    assert {action.kind for action in usr.plan(Watch("usr")).actions} == {"unchanged"}


def test_a_log_with_names_and_order_of_its_own(usr: Watched) -> None:
    run(
        usr.conn,
        'CREATE TABLE log."Event ""Log""" ("%id" serial, tkey varchar(200), st varchar(4), typ integer,'
        ' "when" timestamptz, who varchar(64), "table" text, col text, "OLD" text, "new" text)',
    )
    log = LogTable(
        "log",
        'Event "Log"',
        ("%id", "st", "typ", "when", "who", "table", "tkey", "col", "OLD", "new"),
        types=(
            *(ColumnType(Kind.CHARACTER),) * 3,
            ColumnType(Kind.TIMESTAMPTZ),
            *(ColumnType(Kind.CHARACTER),) * 6,
        ),
    )
    run(usr.conn, triggers.render_quote_function(log), "SET TimeZone = 'Asia/Tokyo'")
    Watched(usr.conn, log).watch(Watch("usr"))
    run(usr.conn, JACK)
    rows = usr.conn.exec_driver_sql(
        'SELECT st, typ, tkey, col, "OLD", "new", clock_timestamp() - "when" BETWEEN \'0 s\' AND \'1 min\''
        ' FROM log."Event ""Log""" ORDER BY 1',
        execution_options={"no_parameters": True},
    ).all()
    assert [tuple(row) for row in rows] == [
        ("N", 1, "idu=1", "fname", None, "Jack", True),
        ("N", 1, "idu=1", "photo", None, "qqo=", True),
    ]


# --- warnings and refusals --------------------------------------------------------------------------------------------


def test_warnings(usr: Watched) -> None:
    run(
        usr.conn,
        "CREATE TABLE heap (a integer)",
        "CREATE TABLE shifting (k integer PRIMARY KEY DEFERRABLE, api_token text)",
        "CREATE FUNCTION app() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        'CREATE TRIGGER "A first" AFTER INSERT ON shifting FOR EACH ROW EXECUTE FUNCTION app()',
        "CREATE TRIGGER behind AFTER INSERT ON shifting FOR EACH ROW EXECUTE FUNCTION app()",
        'CREATE TRIGGER "A before" BEFORE INSERT ON shifting FOR EACH ROW EXECUTE FUNCTION app()',
        'CREATE TRIGGER "A statement" AFTER INSERT ON shifting EXECUTE FUNCTION app()',
    )
    watches = (Watch("heap"), Watch("shifting"))
    heap, secret, key, order = usr.plan(*watches, tables=["shifting"]).warnings
    assert "heap has no primary key" in heap
    assert "shifting.api_token looks like a secret" in secret
    assert "primary key of shifting is DEFERRABLE" in key
    assert "trigger A first of shifting fires before ours" in order


def test_what_is_not_captured_is_said(usr: Watched) -> None:
    run(
        usr.conn,
        "CREATE TABLE p (k integer PRIMARY KEY) PARTITION BY LIST (k)",
        "CREATE TABLE base (k integer PRIMARY KEY)",
        "CREATE TABLE heir () INHERITS (base)",
    )
    said = usr.plan(Watch("p"), Watch("base")).not_captured
    assert [sentence.split(":")[0] for sentence in said[:2]] == ["p", "base"]
    assert any("session_replication_role" in sentence for sentence in said)
    assert usr.plan().not_captured == ()


@pytest.mark.parametrize(
    ("watches", "tables", "message"),
    [
        ([Watch("nothing")], ["usr"], "there is no such table in schema public"),
        ([Watch("keyed")], ["usr"], "keyed is not among the classes"),
        ([Watch("usr"), Watch("USR")], ["usr"], "usr is watched twice"),
        ([Watch("usr", exclude=("idu",))], ["usr"], "'idu' is a key column"),
        ([Watch("usr", columns=("age",))], ["usr"], "'age' is no attribute"),
    ],
)
def test_watches_that_cannot_be_are_refused(
    usr: Watched, watches: list[Watch], tables: list[str], message: str
) -> None:
    with pytest.raises(TriggerError, match=message):
        usr.plan(*watches, tables=tables)


def test_the_log_itself_is_not_watched(empty: Watched) -> None:
    run(empty.conn, "SET search_path = log")
    with pytest.raises(TriggerError, match="eventlog is the log"):
        empty.plan(Watch("eventlog"))


def test_a_log_that_is_missing_is_named(usr: Watched) -> None:
    missing = Watched(usr.conn, LogTable("log", "nothing", LogRow._fields))
    with pytest.raises(LogTableError, match=r"the log log\.nothing is missing"):
        missing.plan(Watch("usr"))


def test_a_quoting_function_that_the_log_lacks_comes_and_goes_with_the_triggers(usr: Watched) -> None:
    run(usr.conn, "DROP FUNCTION log.proc_eventlog_quote(text)")
    before = catalogue(usr.conn)
    assert "quote" not in triggers.to_sql(usr.watch(Watch("usr")))
    plan = usr.watch(Watch("keyed"))
    assert (plan.actions[0].kind, plan.actions[0].table) == ("create", "log.proc_eventlog_quote")
    assert usr.logged("INSERT INTO keyed VALUES (1, 'a+b')") == [(5, 'b="a+b"+a=1', None, None, None)]
    assert usr.plan(Watch("keyed")).changes == ()
    run(
        usr.conn,
        "COMMENT ON FUNCTION log.proc_eventlog_quote(text) IS 'eventlog sha256:" + "0" * 64 + ' log "log"."eventlog"\'',
    )
    assert [action.kind for action in usr.watch(Watch("keyed")).changes] == ["replace"]
    assert [action.kind for action in usr.watch(Watch("usr")).changes] == ["create", "create", "drop", "drop"]
    triggers.drop(usr.conn, LOG)
    assert catalogue(usr.conn) == before


# --- options ----------------------------------------------------------------------------------------------------------


def test_always_captures_what_a_replication_applies(usr: Watched) -> None:
    plan = usr.watch(Watch("usr", always=True))
    assert not any("replica" in sentence for sentence in plan.not_captured)
    assert usr.plan(Watch("usr", always=True)).changes == ()
    run(usr.conn, "SET session_replication_role = replica")
    assert [row[0] for row in usr.logged(JACK, "INSERT INTO usr_phone VALUES (1, 'a')")] == [1, 1, 2]
    run(usr.conn, "SET session_replication_role = origin")
    run(usr.conn, "ALTER TABLE usr ENABLE TRIGGER _tgr_usr_i_1")
    (change,) = usr.plan(Watch("usr", always=True)).changes
    assert change.reason == "trigger _tgr_usr_i_1 was changed by hand"
    usr.watch(Watch("usr"))
    run(usr.conn, "SET session_replication_role = replica")
    assert usr.logged("UPDATE usr SET fname = 'x'") == []


def test_large_values_are_ordinary_columns_whatever_lob_values_says(usr: Watched) -> None:
    assert usr.watch(Watch("usr", lob_values=False)).changes
    assert usr.plan(Watch("usr", lob_values=True)).changes == ()
    assert usr.logged(JACK) == fields(1, "idu=1", ("fname", None, "Jack"), ("photo", None, "qqo="))


def test_applying_does_not_wait_for_a_table_without_end(usr: Watched, database: sa.Engine) -> None:
    usr.conn.commit()
    with database.connect() as application:
        run(application, "SET application_name = 'payroll'", "INSERT INTO usr VALUES (1)")
        plan = usr.plan(Watch("usr"), Watch("keyed"))
        before = catalogue(usr.conn)
        with pytest.raises(DatabaseError, match=r"more than 0\.05 s by process .*payroll, idle in transaction"):
            triggers.apply(usr.conn, plan, 0.05)
        assert catalogue(usr.conn) == before
        assert usr.conn.exec_driver_sql("SHOW lock_timeout").scalar_one() == "0"
    triggers.apply(usr.conn, plan)
    assert usr.conn.exec_driver_sql("SHOW lock_timeout").scalar_one() == "0"
    assert usr.plan(Watch("usr"), Watch("keyed")).changes == ()


def test_row_level_security_that_hides_rows_from_the_triggers_is_named(usr: Watched, writer: str) -> None:
    run(
        usr.conn,
        f"GRANT USAGE ON SCHEMA log TO {writer}",
        f"GRANT INSERT ON log.eventlog TO {writer}",
        "ALTER TABLE usr ENABLE ROW LEVEL SECURITY",
    )
    assert usr.plan(Watch("usr")).warnings == ()
    run(usr.conn, f"SET SESSION AUTHORIZATION {writer}")
    (warning,) = usr.plan(Watch("usr")).warnings
    assert "row level security filters public.usr" in warning


def test_a_log_of_somebody_else_is_written_by_its_own_columns(usr: Watched) -> None:
    run(
        usr.conn,
        # Layout 3.5 under other names, numbered by a trigger, with more columns behind.
        "CREATE TABLE log.theirs (rid numeric(18) NOT NULL, tk varchar(4000), st char(1), et numeric(1), tm timestamp,"
        " usr varchar(64), tn varchar(64), cn varchar(64), ov text, nv text, remark text DEFAULT 'x')",
        "CREATE SEQUENCE log.numbers",
        "CREATE FUNCTION log.number() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.rid := nextval('log.numbers'); RETURN NEW; END $$",
        "CREATE TRIGGER number BEFORE INSERT ON log.theirs FOR EACH ROW EXECUTE FUNCTION log.number()",
    )
    migrations.upgrade(usr.conn, log_table="theirs", schema="log", companions_only=True)
    log = open_log(usr.conn, DIALECT, name="theirs", schema="log", layout="3.5")
    theirs = Watched(usr.conn, log)
    # The key needs quoting, and its function comes with the triggers.
    assert [action.table for action in theirs.watch(Watch("usr"), Watch("keyed")).changes] == [
        "log.proc_theirs_quote", "public.usr", "public.usr_phone", "public.keyed",
    ]  # fmt: skip
    statement = Watched(usr.conn, log, "statement")
    for watched in (theirs, statement):
        watched.watch(Watch("usr"), Watch("keyed"))
        run(usr.conn, JACK, "INSERT INTO keyed VALUES (1, 'a+b')", "DELETE FROM usr", "DELETE FROM keyed")
    rows = DIALECT.read_window(usr.conn, log, Window(0, None, None))
    assert [(row.event_type, row.table_name, row.table_key, row.column_name, row.new_value) for row in rows] == [
        (1, "usr", "idu=1", "fname", "Jack"),
        (1, "usr", "idu=1", "photo", "qqo="),
        (5, "keyed", 'b="a+b"+a=1', None, None),
        (4, "usr", "idu=1", None, None),
        (4, "keyed", 'b="a+b"+a=1', None, None),
    ] * 2
    assert [row.record_id for row in rows] == list(range(1, 11))
    triggers.drop(usr.conn, log)
    migrations.downgrade(usr.conn, log_table="theirs", schema="log")


# --- partitions -------------------------------------------------------------------------------------------------------


def test_rows_of_partitions_are_rows_of_their_root(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE p (k integer, v text, PRIMARY KEY (k)) PARTITION BY RANGE (k)",
        "CREATE TABLE low (v text, k integer NOT NULL)",
        "ALTER TABLE p ATTACH PARTITION low FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE tag (k integer REFERENCES p ON DELETE CASCADE, tag text, UNIQUE (k, tag))",
    )
    empty.watch(Watch("p"))
    run(empty.conn, "CREATE TABLE high PARTITION OF p FOR VALUES FROM (10) TO (20)")
    assert {action.kind for action in empty.plan(Watch("p")).actions} == {"unchanged"}
    assert empty.logged("INSERT INTO p VALUES (1, 'x')") == [(1, "k=1", "v", None, "x")]
    assert empty.logged("UPDATE low SET v = 'y'", "UPDATE low SET v = v") == [(2, "k=1", "v", "x", "y")]
    assert empty.logged("UPDATE p SET k = 11") == [(4, "k=1", None, None, None), (1, "k=11", "v", None, "y")]
    assert empty.logged("INSERT INTO tag VALUES (11, 'a')", "DELETE FROM tag")[1] == (2, "k=11", "tag.tag", "a", None)
    assert empty.logged("TRUNCATE p CASCADE") == [(4, "k=11", None, None, None)]
    triggers.drop(empty.conn, LOG)
    assert empty.logged("INSERT INTO p VALUES (1, 'x')") == []
