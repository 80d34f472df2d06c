"""Values of every type of PostgreSQL as text, and which columns are logged (spec/triggers.md 1,
6).
"""

from __future__ import annotations

from functools import cache

import pytest
from trigger_log import (
    JACK,
    PHONE,
    STYLES,
    Fill,
    UncommittedIn,
    Watched,
    by_type,
    fields,
    made_with,
    run,
)

from eventlog.core.catalog import Column
from eventlog.core.values import ColumnType, Kind
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.dialects.postgresql.text import value_text
from eventlog.sql.triggers import triggers_of
from eventlog.sql.triggers.watch import Capture, Style, WatchedTable

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
    ("timestamptz", "'0001-01-01 00:30+01'", "0001-12-31 23:30:00Z BC"),
    ("timestamptz", "'9999-12-31 23:30-01'", "10000-01-01 00:30:00Z"),
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


TABLES = by_type(type for type, *_ in VALUES)


@cache
def values_of_types(trigger_level: Capture) -> Fill:
    tables = {table: f"k integer PRIMARY KEY, v {type}" for type, table in TABLES.items()}
    return made_with(
        trigger_level,
        (
            "CREATE TYPE mood AS ENUM ('sad', 'happy')",
            "CREATE TYPE pair AS (a integer, b text)",
            "CREATE DOMAIN word AS varchar(8)",
            "CREATE DOMAIN day AS date",
        ),
        tables,
    )


@pytest.mark.parametrize(("type", "value", "text"), VALUES)
def test_values_are_one_text_whatever_the_session(
    empty: Watched, uncommitted_in: UncommittedIn, type: str, value: str, text: str
) -> None:
    table = TABLES[type]
    with uncommitted_in(values_of_types(empty.trigger_level)) as conn:
        types = Watched(conn)
        run(conn, f"CREATE TABLE source AS SELECT CAST({value} AS {type}) AS v")
        insert = f"INSERT INTO {table} SELECT {{}}, v FROM source"
        assert types.logged(insert.format(1)) == [(1, "k=1", "v", None, text)]
        run(conn, *ODD_SETTINGS)
        assert types.logged(insert.format(2)) == [(1, "k=2", "v", None, text)]
        assert types.logged(f"UPDATE {table} SET v = NULL WHERE k = 2") == [
            (2, "k=2", "v", text, None)
        ]


def test_a_date_that_a_time_zone_has_skipped_is_itself(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE t (k integer PRIMARY KEY, v date)",
        "SET TimeZone = 'Pacific/Apia'",
    )
    empty.watch(WatchedTable("t"))
    assert empty.logged("INSERT INTO t VALUES (1, '2011-12-30')") == [
        (1, "k=1", "v", None, "2011-12-30")
    ]


def test_a_cast_of_the_types_owner_is_not_called(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TYPE pair AS (a integer, b text)",
        "CREATE FUNCTION hostile(pair) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; "
        "END $$",
        "CREATE CAST (pair AS text) WITH FUNCTION hostile(pair)",
        "CREATE TABLE t (k integer PRIMARY KEY, v pair)",
    )
    empty.watch(WatchedTable("t"))
    assert empty.logged("INSERT INTO t VALUES (1, (1, 'x'))") == [(1, "k=1", "v", None, "(1,x)")]


def test_generated_columns_are_logged_if_they_are_stored(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE t (k integer PRIMARY KEY, a integer, s integer GENERATED ALWAYS AS (a + 1) "
        "STORED)",
    )
    if empty.conn.exec_driver_sql("SHOW server_version_num").scalar_one() >= "180000":
        run(empty.conn, "ALTER TABLE t ADD COLUMN v integer GENERATED ALWAYS AS (a + 2) VIRTUAL")
    empty.watch(WatchedTable("t"))
    assert empty.logged("INSERT INTO t VALUES (1, 1)") == fields(
        1, "k=1", ("a", None, "1"), ("s", None, "2")
    )
    assert empty.logged("UPDATE t SET a = 2") == fields(2, "k=1", ("a", "1", "2"), ("s", "2", "3"))


def test_what_is_read_back_has_the_text_that_was_logged(empty: Watched) -> None:
    column = Column("v", ColumnType(Kind.TIMESTAMPTZ, 0, "timestamp with time zone"))
    run(empty.conn, "CREATE TABLE t (k integer PRIMARY KEY, v timestamptz)")
    empty.watch(WatchedTable("t"))
    (row,) = empty.logged("INSERT INTO t VALUES (1, '2024-05-06 07:08:09.25+02')")
    statement = f"SELECT {value_text(column, 't.v')} FROM t"
    assert empty.conn.exec_driver_sql(statement).scalar_one() == row[4]


@pytest.mark.parametrize("row_style", STYLES)
def test_columns_that_are_excluded_are_not_even_looked_at(usr: Watched, row_style: Style) -> None:
    run(usr.conn, JACK)
    usr.watch(WatchedTable("usr", row_style, exclude=("fname", PHONE)))
    assert (
        usr.logged("UPDATE usr SET fname = 'secret'", "INSERT INTO usr_phone VALUES (1, 'secret')")
        == []
    )
    assert len(usr.logged("UPDATE usr SET lname = 'Doe', fname = 'x'")) == 1
    run(usr.conn, "UPDATE usr SET idu = 2")
    assert all("secret" not in row and "fname" not in row for row in usr.rows())
    assert "fname" not in triggers_of(DIALECT).script(
        usr.plan(WatchedTable("usr", row_style, exclude=("fname", "lname", PHONE)))
    )


def test_a_column_more_is_noticed_and_one_less_too(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    run(usr.conn, "ALTER TABLE usr ADD COLUMN age integer")
    plan = usr.plan(WatchedTable("usr"))
    assert [(action.kind, action.table) for action in plan.actions] == [
        ("replace", "public.usr"),
        ("unchanged", "public.usr_phone"),
    ]
    assert plan.actions[0].reason == "column age (integer) is new in the watch and not captured yet"
    triggers_of(DIALECT).apply(usr.conn, plan)
    assert usr.logged("INSERT INTO usr (idu, age) VALUES (1, 30)") == [
        (1, "idu=1", "age", None, "30")
    ]
    run(usr.conn, "ALTER TABLE usr DROP COLUMN age")
    assert usr.plan(WatchedTable("usr")).actions[0].kind == "replace"


def test_an_applications_alter_table_is_not_refused(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    run(
        usr.conn,
        "ALTER TABLE usr ALTER COLUMN lname TYPE varchar(80)",
        "ALTER TABLE usr ADD COLUMN age integer",
    )
    assert usr.logged("INSERT INTO usr (idu, lname) VALUES (1, 'x')") == [
        (1, "idu=1", "lname", None, "x")
    ]
