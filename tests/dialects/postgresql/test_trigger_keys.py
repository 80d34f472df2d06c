"""Keys and changes of every type of PostgreSQL (spec/triggers.md 4, 5)."""

from __future__ import annotations

from functools import cache

import pytest
import sqlalchemy as sa
from trigger_log import TEXTS, Fill, UncommittedIn, Watched, by_type, made_with, run

from eventlog.core import table_key
from eventlog.sql.triggers.watch import Capture, WatchedTable


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_every_text_is_a_canonical_key(empty: Watched, conforming: str) -> None:
    texts = list(dict.fromkeys(TEXTS))
    run(empty.conn, 'CREATE TABLE t (n text, "a b" text, PRIMARY KEY (n, "a b"))')
    run(
        empty.conn,
        f"SET standard_conforming_strings = {conforming}",
        "SET escape_string_warning = off",
    )
    empty.watch(WatchedTable("t"))
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


TABLES_OF_KEYS = by_type(type for type, *_ in KEYS)


@cache
def keys_of_types(trigger_level: Capture) -> Fill:
    tables = {table: f"k {type} PRIMARY KEY, v text" for type, table in TABLES_OF_KEYS.items()}
    return made_with(trigger_level, (), tables)


@pytest.mark.parametrize(("type", "value", "key"), KEYS)
def test_keys_of_every_type_are_canonical(
    empty: Watched, uncommitted_in: UncommittedIn, type: str, value: str, key: str
) -> None:
    table = TABLES_OF_KEYS[type]
    with uncommitted_in(keys_of_types(empty.trigger_level)) as conn:
        types = Watched(conn)
        assert types.logged(f"INSERT INTO {table} VALUES ({value}, 'x')") == [
            (1, key, "v", None, "x")
        ]
        assert types.catalog(table).class_named(table).canonical_key(key) == key


def test_the_key_has_changed_if_its_text_has(empty: Watched) -> None:
    run(empty.conn, "CREATE TABLE t (k numeric PRIMARY KEY, v text)")
    empty.watch(WatchedTable("t"))
    run(empty.conn, "INSERT INTO t VALUES (1.0, 'x')")
    assert empty.logged("UPDATE t SET k = 1.00") == []
    assert empty.logged("UPDATE t SET k = 1.000, v = 'y'") == [(2, "k=1", "v", "x", "y")]
    assert empty.logged("UPDATE t SET k = 1.01, v = 'y'") == [
        (4, "k=1", None, None, None),
        (1, "k=1.01", "v", None, "y"),
    ]


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


TABLES_OF_CHANGES = by_type(type for type, *_ in CHANGES)


@cache
def values_of_types(trigger_level: Capture, columns: tuple[str, ...] | None) -> Fill:
    tables = {
        table: f"k integer PRIMARY KEY, v {type}, other text"
        for type, table in TABLES_OF_CHANGES.items()
    }
    return made_with(
        trigger_level,
        (
            "CREATE TYPE pair AS (a integer, b text)",
            "CREATE TYPE mood AS ENUM ('sad', 'happy')",
            "CREATE DOMAIN word AS text",
        ),
        tables,
        lambda table: WatchedTable(table, "field_query_back", columns=columns),
    )


@pytest.mark.parametrize(("type", "old", "new", "is_changed"), CHANGES)
@pytest.mark.parametrize("columns", [None, ("v",)])
def test_a_change_is_a_change_of_bytes(
    empty: Watched,
    uncommitted_in: UncommittedIn,
    type: str,
    old: str,
    new: str,
    is_changed: bool,
    columns: tuple[str, ...] | None,
) -> None:
    table = TABLES_OF_CHANGES[type]
    with uncommitted_in(values_of_types(empty.trigger_level, columns)) as conn:
        try:
            run(conn, f"INSERT INTO {table} VALUES (1, {old})")
        except sa.exc.DBAPIError as error:
            pytest.skip(f"the server has no {type}: {error.orig}")
        assert bool(Watched(conn).logged(f"UPDATE {table} SET v = {new}")) is is_changed


def test_text_of_a_coarse_collation_is_compared_and_quoted_by_bytes(empty: Watched) -> None:
    try:
        run(
            empty.conn,
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = "
            "false)",
        )
    except sa.exc.DBAPIError:
        pytest.skip("the server was built without ICU")
    run(
        empty.conn,
        "CREATE TABLE t (k text COLLATE ci PRIMARY KEY, v text COLLATE ci)",
        "CREATE TABLE tag (k text COLLATE ci REFERENCES t ON DELETE CASCADE, v text, UNIQUE (k, "
        "v))",
    )
    empty.watch(WatchedTable("t"))
    assert empty.logged("INSERT INTO t VALUES ('a+', 'x')") == [(1, 'k="a+"', "v", None, "x")]
    assert empty.logged("UPDATE t SET v = 'X'") == [(2, 'k="a+"', "v", "x", "X")]
    assert empty.logged("INSERT INTO tag VALUES ('A+', 'x')") == [(2, 'k="a+"', "tag.v", None, "x")]
    assert empty.logged("DELETE FROM tag") == [(2, 'k="a+"', "tag.v", "x", None)]
    assert empty.logged("UPDATE t SET k = 'A+'") == [
        (4, 'k="a+"', None, None, None),
        (1, 'k="A+"', "v", None, "X"),
    ]


def test_a_type_with_its_own_equality_is_compared_by_it_and_logged_by_bytes(
    empty: Watched,
) -> None:
    try:
        run(empty.conn, "CREATE SCHEMA ext", "CREATE EXTENSION citext SCHEMA ext")
    except sa.exc.DBAPIError:
        pytest.skip("the server has no citext")
    run(
        empty.conn,
        "CREATE TABLE t (k ext.citext PRIMARY KEY, v ext.citext)",
        "CREATE TABLE tag (k ext.citext REFERENCES t ON DELETE CASCADE, v text, UNIQUE (k, v))",
    )
    empty.watch(WatchedTable("t"))
    assert empty.logged("INSERT INTO t VALUES ('a', 'x')") == [(1, "k=a", "v", None, "x")]
    assert empty.logged("UPDATE t SET v = 'X'") == [(2, "k=a", "v", "x", "X")]
    assert empty.logged("INSERT INTO tag VALUES ('A', 'x')") == [(2, "k=a", "tag.v", None, "x")]
    assert empty.logged("DELETE FROM tag") == [(2, "k=a", "tag.v", "x", None)]
    assert empty.logged("INSERT INTO tag VALUES ('A', 'x')", "DELETE FROM t")[1:] == [
        (4, "k=a", None, None, None)
    ]
