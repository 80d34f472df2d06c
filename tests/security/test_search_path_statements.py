"""Each operator, function and type of the server gets its schema, and the statement means the same
(spec/event-log.md 12.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import sqlalchemy as sa
from shared import Run, execute, url_of

from eventlog.sql.connect.connection import connect, connect_any
from eventlog.sql.dialects.postgresql.qualify import CannotQualify, with_schemas
from eventlog.sql.dialects.postgresql.search_path import unsafe_schemas
from eventlog.sql.port.sql_files import AS_WRITTEN

EQUAL: Final = "OPERATOR(pg_catalog.=)"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT a = 1", f"SELECT a {EQUAL} 1"),
        ("SELECT a=1", f"SELECT a {EQUAL} 1"),
        ("SELECT a != 1", "SELECT a OPERATOR(pg_catalog.<>) 1"),
        ("SELECT count(*)", "SELECT pg_catalog.count(*)"),
        ("SELECT a::text, b::bigint", "SELECT a::pg_catalog.text, b::bigint"),
        ("SELECT CAST(a AS oid[])", "SELECT CAST(a AS pg_catalog.oid[])"),
        ("SELECT a::citext", "SELECT a::citext"),
        ("SELECT 'x' COLLATE \"C\"", "SELECT 'x' COLLATE pg_catalog.\"C\""),
        # A named operator binds more tightly than a comparison, and less tightly than a sum.
        (
            "SELECT a || b = c || d",
            f"SELECT a OPERATOR(pg_catalog.||) b {EQUAL} (c OPERATOR(pg_catalog.||) d)",
        ),
        (
            "SELECT a + b * c",
            "SELECT a OPERATOR(pg_catalog.+) (b OPERATOR(pg_catalog.*) c)",
        ),
        ("SELECT NOT a = 1 AND b", f"SELECT NOT a {EQUAL} 1 AND b"),
        (
            "SELECT -a, -1, a - -1",
            "SELECT OPERATOR(pg_catalog.-) a, -1, a OPERATOR(pg_catalog.-) -1",
        ),
        # Operators without a name.
        ("SELECT a IN (SELECT b)", f"SELECT a {EQUAL} ANY (SELECT b)"),
        ("SELECT a IN ('r', 'p')", f"""SELECT a {EQUAL} ANY ('{{"r","p"}}')"""),
        ("SELECT a NOT IN (1, 2)", "SELECT a OPERATOR(pg_catalog.<>) ALL (ARRAY[1, 2])"),
        ("SELECT a IN (%(x)s, b)", f"SELECT (a {EQUAL} %(x)s OR a {EQUAL} b)"),
        ("SELECT (a, b) = (1, 2)", f"SELECT (a, b) {EQUAL} (1, 2)"),
        (
            "SELECT a BETWEEN 1 AND 2 AND b",
            "SELECT (a OPERATOR(pg_catalog.>=) 1 AND a OPERATOR(pg_catalog.<=) 2) AND b",
        ),
        ("SELECT NULLIF(a, '')", f"SELECT CASE WHEN a {EQUAL} '' THEN NULL ELSE a END"),
        ("SELECT CASE a WHEN 1 THEN 2 END", f"SELECT CASE WHEN a {EQUAL} 1 THEN 2 END"),
        ("SELECT a NOT LIKE 'x%%'", "SELECT a OPERATOR(pg_catalog.!~~) 'x%%'"),
        ("SELECT a IS DISTINCT FROM NULL", "SELECT a IS DISTINCT FROM NULL"),
        # What looks like a function or an operator.
        (
            "WITH k (a) AS MATERIALIZED (SELECT 1) SELECT * FROM f() AS g (a, b)",
            "WITH k (a) AS MATERIALIZED (SELECT 1) SELECT * FROM pg_catalog.f() AS g (a, b)",
        ),
        ("INSERT INTO t (a, b) VALUES (1, f())", "INSERT INTO t (a, b) VALUES (1, pg_catalog.f())"),
        ("UPDATE t SET a = b = c WHERE d", f"UPDATE t SET a = b {EQUAL} c WHERE d"),
        (
            "INSERT INTO t AS e (a) SELECT 1 ON CONFLICT (a) DO UPDATE SET b = excluded.b",
            "INSERT INTO t AS e (a) SELECT 1 ON CONFLICT (a) DO UPDATE SET b = excluded.b",
        ),
        ("SELECT * FROM unnest(a, b) AS u (c, d)", "SELECT * FROM unnest(a, b) AS u (c, d)"),
        ('SELECT "own"(a), hr.own(b)', 'SELECT "own"(a), hr.own(b)'),
        ("SELECT '=' || $$=$$", "SELECT '=' OPERATOR(pg_catalog.||) $$=$$"),
        ("SELECT extract(epoch FROM a)", "SELECT extract(epoch FROM a)"),
        # Definitions and settings.
        (
            "CREATE INDEX i ON t (a) WHERE b = 'N'",
            f"CREATE INDEX i ON t (a) WHERE b {EQUAL} 'N'",
        ),
        ("SET a = 'b'; SELECT 1 = 2", f"SET a = 'b'; SELECT 1 {EQUAL} 2"),
        # SQL of a user.
        (
            f"SELECT 1 = 1 WHERE {AS_WRITTEN} (a = b AND f(')'))",
            f"SELECT 1 {EQUAL} 1 WHERE {AS_WRITTEN} (a = b AND f(')'))",
        ),
        (f"{AS_WRITTEN} SELECT a = b", f"{AS_WRITTEN} SELECT a = b"),
    ],
)
def test_names_get_their_schema(statement: str, expected: str) -> None:
    assert with_schemas(statement) == expected


@pytest.mark.parametrize(
    "statement",
    ["SELECT * FROM a JOIN b USING (c)", "SELECT position('a' IN b)", "SELECT a SIMILAR TO 'b'"],
)
def test_an_unknown_form_is_refused(statement: str) -> None:
    with pytest.raises(CannotQualify):
        with_schemas(statement)


_VALUES: Final = "(VALUES (NULL), (1), (2), (3)) AS v (a), (VALUES (NULL), (1), (2)) AS w (b)"
_TEXTS: Final = "(VALUES (NULL), (''), ('a%%'), ('ab'), ('B')) AS v (t)"


@pytest.mark.parametrize(
    "statement",
    [
        *(
            f"SELECT a, b, {expression} FROM {_VALUES} ORDER BY 1, 2"
            for expression in (
                "a IS DISTINCT FROM b",
                "a IS NOT DISTINCT FROM b OR a + 1 IS DISTINCT FROM b * 2",
                "a BETWEEN b AND 2",
                "a NOT BETWEEN 1 AND b + 1",
                "a IN (1, b)",
                "a NOT IN (b, 3)",
                "a IN (1, 2) AND NOT b IN (SELECT 2)",
                "a NOT IN (SELECT b FROM (VALUES (1), (NULL)) AS x (b))",
                "(a, b) IN ((1, 2), (3, NULL))",
                "(a, b) < (2, 1)",
                "NULLIF(a, b)",
                "CASE a WHEN b THEN 'same' WHEN 3 THEN 'three' ELSE 'other' END",
                "CASE WHEN a = b THEN 1 WHEN a < b THEN 2 END IS NULL",
                "a - b - 1, a + b * 2 - -1, -a - 1, (a & 3) << 1 = 2, a %% 2 = 1 AND b > 0",
                "2 ^ 3 ^ 2 = 64, a::text || b::text = '12', NOT a = 1 IS NULL",
                "a = ANY (ARRAY[1, 2]), a <> ALL (SELECT 1)",
            )
        ),
        f"SELECT t, t LIKE 'a%%', t NOT LIKE '%%b', t LIKE 'a!%%' ESCAPE '!', t ILIKE 'b' FROM {_TEXTS} ORDER BY 1",
        f"SELECT t, t IN ('', 'ab'), t NOT IN ('x''y', 'B'), NULLIF(t, '') FROM {_TEXTS} ORDER BY 1",
        f"SELECT count(*) FILTER (WHERE t > 'a'), max(t COLLATE \"C\"), string_agg(t, ',' ORDER BY t) FROM {_TEXTS}",
    ],
)
def test_the_statement_means_the_same(uncommitted: sa.Connection, statement: str) -> None:
    plain = uncommitted.exec_driver_sql(statement, {}).all()
    assert uncommitted.exec_driver_sql(with_schemas(statement), {}).all() == plain


# --- which search path is unsafe ------------------------------------------------------------------


@pytest.fixture(scope="module")
def roles(new_database: Any, postgres_url: str) -> Iterator[sa.Engine]:
    """A database with the roles sp_owner, sp_dev and sp_reader."""
    names = ("sp_owner", "sp_dev", "sp_reader")
    with new_database() as engine:
        execute(engine, *(f"CREATE ROLE {name} LOGIN" for name in names))
        execute(engine, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        yield engine
        for name in names:
            execute(engine, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


OWNED: Final = "CREATE SCHEMA hr AUTHORIZATION sp_owner"
TABLE: Final = "SET ROLE sp_owner; CREATE TABLE hr.usr (idu integer); RESET ROLE"


@pytest.mark.parametrize(
    ("script", "unsafe"),
    [
        ([], []),
        (["GRANT CREATE ON SCHEMA public TO PUBLIC"], [("public", None)]),
        (["GRANT CREATE ON SCHEMA public TO sp_dev"], [("public", "sp_dev")]),
        (["GRANT CREATE ON SCHEMA public TO sp_reader"], []),
        ([OWNED, TABLE], []),
        ([OWNED], [("hr", "sp_owner")]),
        ([OWNED, TABLE, "GRANT CREATE ON SCHEMA hr TO sp_dev"], [("hr", "sp_dev")]),
        ([OWNED, TABLE, "ALTER SCHEMA hr OWNER TO postgres"], []),
        ([OWNED, TABLE, "GRANT USAGE ON SCHEMA hr TO PUBLIC"], []),
    ],
)
def test_a_path_is_unsafe_if_others_may_create_objects_in_it(
    roles: sa.Engine, script: list[str], unsafe: list[tuple[str, str | None]]
) -> None:
    with roles.connect() as conn:
        for statement in (*script, "SET search_path = hr, public"):
            conn.exec_driver_sql(statement)
        conn.exec_driver_sql("GRANT USAGE ON SCHEMA public TO sp_reader")
        if any("SCHEMA hr" in one for one in script):
            conn.exec_driver_sql("GRANT USAGE ON SCHEMA hr TO sp_reader")
        conn.exec_driver_sql("SET ROLE sp_reader")
        assert [(one.schema, one.creator) for one in unsafe_schemas(conn)] == unsafe


def test_the_statement_of_each_finding_makes_the_path_safe(roles: sa.Engine) -> None:
    execute(
        roles,
        OWNED,
        "GRANT CREATE ON SCHEMA public TO PUBLIC, sp_dev",
        "GRANT USAGE ON SCHEMA hr, public TO sp_reader",
        f"ALTER ROLE sp_reader IN DATABASE {roles.url.database} SET search_path = hr, public",
    )
    reader = sa.create_engine(roles.url.set(username="sp_reader"), poolclass=sa.NullPool)
    with reader.connect() as conn:
        found = unsafe_schemas(conn)
    assert [one.schema for one in found] == ["hr", "public", "public"]
    execute(roles, *(one.fix for one in found))
    with reader.connect() as conn:
        assert unsafe_schemas(conn) == ()


@pytest.mark.parametrize("opened", [connect, connect_any])
def test_a_session_with_a_safe_path_sends_its_statements_as_they_are(
    database: sa.Engine, opened: Any
) -> None:
    sent = []
    for right in (
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "GRANT CREATE ON SCHEMA public TO PUBLIC",
    ):
        execute(database, right)
        with opened(url_of(database)).connect() as conn:
            asked = "SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            sent.append(conn.exec_driver_sql(asked).scalar_one() == asked)
    assert sent == [True, False]


def test_the_index_that_a_script_creates_calls_no_operator_of_another_role(
    database: sa.Engine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
    execute(
        database,
        "CREATE FUNCTION public.hostile(character, character) RETURNS boolean LANGUAGE plpgsql "
        "IMMUTABLE AS $$ BEGIN RAISE 'hostile'; END $$",
        *(
            f"CREATE OPERATOR public.{name} (LEFTARG = character, RIGHTARG = character, "
            "FUNCTION = public.hostile)"
            for name in ("!~", "~")
        ),
    )
    _, script, _ = run("db", "upgrade", "--sql")
    execute(database, script.replace("BEGIN;", "").replace("COMMIT;", ""))
    execute(
        database,
        "INSERT INTO eventlog (status, event_type, table_name, table_key) VALUES ('W', 1, 't', 'k')",
    )
