"""A PostgreSQL schema as a catalog (spec/xds.md 5, 6.2)."""

from __future__ import annotations

import json
import re

import pytest
import sqlalchemy as sa

from eventlog.core.catalog import Database, ForeignKey, Table
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import DatabaseError
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.port.sql_files import statements


@pytest.fixture
def conn(uncommitted: sa.Connection) -> sa.Connection:
    return uncommitted


def run(conn: sa.Connection, *statements: str) -> None:
    for statement in statements:
        conn.exec_driver_sql(statement, execution_options={"no_parameters": True})


def tables(database: Database) -> dict[str, Table]:
    return {table.name: table for table in database.tables}


TYPES = [
    ("smallint", Kind.INTEGER, 16, "smallint"),
    ("integer", Kind.INTEGER, 32, "integer"),
    ("bigserial", Kind.INTEGER, 64, "bigint"),
    ("numeric(9,0)", Kind.INTEGER, 0, "numeric(9,0)"),
    ("numeric(9)", Kind.INTEGER, 0, "numeric(9,0)"),
    ("numeric(9,2)", Kind.EXACT, 0, "numeric(9,2)"),
    ("numeric(2,-3)", Kind.EXACT, 0, "numeric(2,-3)"),
    ("numeric", Kind.EXACT, 0, "numeric"),
    ("real", Kind.APPROXIMATE, 32, "real"),
    ("double precision", Kind.APPROXIMATE, 64, "double precision"),
    ("boolean", Kind.BOOLEAN, 0, "boolean"),
    ("char(8)", Kind.FIXED, 0, "character(8)"),
    ("bpchar", Kind.FIXED, 0, "bpchar"),
    ("varchar(8)", Kind.CHARACTER, 0, "character varying(8)"),
    ("text", Kind.CHARACTER, 0, "text"),
    ("bytea", Kind.BINARY, 0, "bytea"),
    ("date", Kind.DATE, 0, "date"),
    ("time(3)", Kind.TIME, 0, "time(3) without time zone"),
    ("timetz", Kind.OTHER, 0, "time with time zone"),
    ("timestamp", Kind.TIMESTAMP, 0, "timestamp without time zone"),
    ("timestamptz(0)", Kind.TIMESTAMPTZ, 0, "timestamp(0) with time zone"),
    ("uuid", Kind.UUID, 0, "uuid"),
    ("jsonb", Kind.OTHER, 0, "jsonb"),
    ("integer[]", Kind.OTHER, 0, "integer[]"),
    ("interval", Kind.OTHER, 0, "interval"),
    ("inet", Kind.OTHER, 0, "inet"),
    ("mood", Kind.OTHER, 0, "mood"),
    ("code", Kind.FIXED, 0, "character(3)"),
    ("nested", Kind.FIXED, 0, "character(3)"),
    ("amount", Kind.EXACT, 0, "numeric(12,4)"),
    ("other.date", Kind.OTHER, 0, "other.date"),
]


def test_every_type_has_its_class_and_domains_are_their_base_type(conn: sa.Connection) -> None:
    run(
        conn,
        "CREATE SCHEMA other",
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TYPE other.date AS (day integer)",
        "CREATE DOMAIN code AS char(3)",
        "CREATE DOMAIN nested AS code CHECK (VALUE <> '')",
        "CREATE DOMAIN amount AS numeric(12,4)",
        f"CREATE TABLE t ({', '.join(f'c{place} {type[0]}' for place, type in enumerate(TYPES))})",
    )
    found = [column.type for column in tables(DIALECT.open(conn).reflect(None))["t"].columns]
    assert found == [ColumnType(kind, bits, sql) for _, kind, bits, sql in TYPES]


def test_columns_stand_in_order_without_those_that_are_gone_or_virtual(conn: sa.Connection) -> None:
    has_virtual = conn.exec_driver_sql("SHOW server_version_num").scalar_one() >= "180000"
    virtual = ", v integer GENERATED ALWAYS AS (a + 2) VIRTUAL" if has_virtual else ""
    run(
        conn,
        "CREATE TABLE t (z integer, gone text, a integer, s integer GENERATED ALWAYS AS (a + 1) "
        f"STORED{virtual})",
        "ALTER TABLE t DROP COLUMN gone",
        'ALTER TABLE t ADD COLUMN "Ä b" text',
    )
    assert [column.name for column in tables(DIALECT.open(conn).reflect(None))["t"].columns] == [
        "z",
        "a",
        "s",
        "Ä b",
    ]


def test_primary_key_stands_in_key_order_and_unique_keys_are_those_that_always_hold(
    conn: sa.Connection,
) -> None:
    run(
        conn,
        "CREATE TABLE t (a integer, b integer, c integer, d integer, e integer, PRIMARY KEY (b, "
        "a) INCLUDE (c))",
        "ALTER TABLE t ADD CONSTRAINT by_c UNIQUE (c, a)",
        "ALTER TABLE t ADD CONSTRAINT later UNIQUE (d) DEFERRABLE",
        "CREATE UNIQUE INDEX partial ON t (e) WHERE a > 0",
        "CREATE UNIQUE INDEX expression ON t ((e + 1))",
        "CREATE UNIQUE INDEX with_more ON t (d, e) INCLUDE (a)",
        "CREATE INDEX not_unique ON t (e)",
    )
    table = tables(DIALECT.open(conn).reflect(None))["t"]
    assert table.primary_key == ("b", "a")
    assert not table.key_deferrable
    assert table.unique_keys == (("b", "a"), ("c", "a"), ("d", "e"))


def test_a_deferrable_key_is_the_primary_key_and_no_unique_key(conn: sa.Connection) -> None:
    run(conn, "CREATE TABLE t (a integer PRIMARY KEY DEFERRABLE)")
    table = tables(DIALECT.open(conn).reflect(None))["t"]
    assert (table.primary_key, table.key_deferrable, table.unique_keys) == (("a",), True, ())


def test_foreign_keys_stand_by_the_position_of_their_first_column(conn: sa.Connection) -> None:
    run(
        conn,
        "CREATE SCHEMA other",
        "CREATE TABLE grp (idg integer PRIMARY KEY)",
        "CREATE TABLE usr (branch text, idu integer, PRIMARY KEY (branch, idu))",
        "CREATE TABLE other.city (id integer PRIMARY KEY)",
        "CREATE TABLE member (idg integer, u integer, b text, city integer)",
        "ALTER TABLE member ADD CONSTRAINT a FOREIGN KEY (city) REFERENCES other.city",
        "ALTER TABLE member ADD CONSTRAINT b FOREIGN KEY (u, b) REFERENCES usr (idu, branch)",
        "ALTER TABLE member ADD CONSTRAINT c FOREIGN KEY (idg) REFERENCES grp",
    )
    assert tables(DIALECT.open(conn).reflect(None))["member"].foreign_keys == (
        ForeignKey(("idg",), "grp", ("idg",)),
        ForeignKey(("u", "b"), "usr", ("idu", "branch")),
        ForeignKey(("city",), "other.city", ("id",)),
    )


def test_a_partitioned_table_is_one_table_and_one_foreign_key(conn: sa.Connection) -> None:
    run(
        conn,
        "CREATE TABLE usr (idu integer PRIMARY KEY) PARTITION BY RANGE (idu)",
        "CREATE TABLE usr_low PARTITION OF usr FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE usr_high PARTITION OF usr FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE phone (idu integer REFERENCES usr, no text, UNIQUE (idu, no)) PARTITION BY "
        "HASH (idu)",
        "CREATE TABLE phone_all PARTITION OF phone FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    )
    found = tables(DIALECT.open(conn).reflect(None))
    assert set(found) == {"usr", "phone"}
    assert found["usr"].partitioned
    assert found["usr"].primary_key == ("idu",)
    assert found["phone"].foreign_keys == (ForeignKey(("idu",), "usr", ("idu",)),)
    assert found["phone"].unique_keys == (("idu", "no"),)


def test_views_and_materialized_views_are_views(conn: sa.Connection) -> None:
    run(
        conn,
        "CREATE TABLE t (a integer PRIMARY KEY)",
        "CREATE VIEW v AS SELECT a AS pk_a, a::numeric(5,0) AS n FROM t",
        "CREATE MATERIALIZED VIEW m AS SELECT a AS pk_a FROM t",
        "CREATE UNIQUE INDEX ON m (pk_a)",
        "CREATE SEQUENCE s",
        "CREATE TYPE composite AS (a integer)",
    )
    found = tables(DIALECT.open(conn).reflect(None))
    assert {name: table.kind for name, table in found.items()} == {
        "m": "view",
        "t": "table",
        "v": "view",
    }
    assert [column.name for column in found["v"].columns] == ["pk_a", "n"]
    assert found["m"].unique_keys == ()


def test_text_whose_equality_is_coarser_than_its_bytes_is_marked(conn: sa.Connection) -> None:
    try:
        run(
            conn,
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = "
            "false)",
        )
    except sa.exc.DBAPIError:
        pytest.skip("the server was built without ICU")
    run(conn, "CREATE DOMAIN word AS text COLLATE ci")
    run(conn, 'CREATE TABLE t (a text, b text COLLATE "C", c text COLLATE ci, d word)')
    columns = tables(DIALECT.open(conn).reflect(None))["t"].columns
    assert [column.deterministic for column in columns] == [True, True, False, False]


def test_one_schema_is_reflected_and_names_are_as_they_are(conn: sa.Connection) -> None:
    run(
        conn,
        'CREATE SCHEMA "My Schema"',
        'CREATE TABLE "My Schema"."Ta""ble %s" ("Co:l" integer PRIMARY KEY)',
        "CREATE TABLE elsewhere (a integer)",
        "CREATE TABLE empty_one ()",
    )
    database = DIALECT.open(conn).reflect("My Schema")
    assert (database.dialect, database.schema) == ("postgresql", "My Schema")
    (table,) = database.tables
    assert (table.name, table.primary_key) == ('Ta"ble %s', ("Co:l",))
    current = DIALECT.open(conn).reflect(None)
    assert current.schema == "public"
    assert [(table.name, len(table.columns)) for table in current.tables] == [
        ("elsewhere", 1),
        ("empty_one", 0),
    ]


def test_a_schema_that_is_missing_is_named(conn: sa.Connection) -> None:
    with pytest.raises(DatabaseError, match="there is no schema 'nowhere'"):
        DIALECT.open(conn).reflect("nowhere")
    run(conn, "SET search_path = nowhere")
    with pytest.raises(DatabaseError, match="no current schema"):
        DIALECT.open(conn).reflect(None)


QUESTIONS = {
    (file, name): sql
    for file in ("reflect.sql", "installed.sql")
    for name, sql in statements("eventlog.sql.dialects.postgresql", file).items()
    if re.search(r":schemas?\b", sql)
    and not re.search(r":(tables|name)\b", sql)
    and name != "schema"
}


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_twice_the_tables_are_twice_the_work_before_there_are_statistics(
    conn: sa.Connection, question: tuple[str, str]
) -> None:
    statement = QUESTIONS[question]

    def pages_read() -> int:
        schema = conn.exec_driver_sql("SELECT 'many'::regnamespace::oid").scalar_one()
        explained = conn.execute(
            sa.text(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}"),
            {"schemas": ["many"]} if ":schemas" in statement else {"schema": schema},
        ).scalar_one()
        (plan,) = explained if isinstance(explained, list) else json.loads(explained)
        return int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])

    def make_tables(first: int, last: int) -> None:
        columns = ", ".join(f"c{number} many.code" for number in range(8))
        for number in range(first, last):
            run(
                conn,
                f"CREATE TABLE many.t{number} (id integer PRIMARY KEY REFERENCES many.t0, "
                f"{columns})",
            )

    run(
        conn,
        "CREATE SCHEMA many",
        "CREATE DOMAIN many.code AS text",
        "CREATE TABLE many.t0 (id integer PRIMARY KEY)",
    )
    make_tables(1, 50)
    few = pages_read()
    make_tables(50, 100)
    assert pages_read() < 3 * few
