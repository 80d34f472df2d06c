"""A condition of a user is one expression: it cannot end the parentheses that it stands in
(spec/event-log.md 15.2).
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import Final

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from eventlog.sql.dialects.mysql_family.text import CONDITION_TOKEN as MYSQL
from eventlog.sql.dialects.oracle.text import CONDITION_TOKEN as ORACLE
from eventlog.sql.dialects.postgresql.text import CONDITION_TOKEN as POSTGRESQL
from eventlog.sql.dialects.postgresql.text import ESCAPING_TOKEN
from eventlog.sql.dialects.sqlite.text import CONDITION_TOKEN as SQLITE
from eventlog.sql.sql_text import why_not_one

EVERY: Final = (POSTGRESQL, ESCAPING_TOKEN, MYSQL, ORACLE, SQLITE)
NAMES: Final = {
    POSTGRESQL: "postgresql",
    ESCAPING_TOKEN: "postgresql without standard_conforming_strings",
    MYSQL: "mysql",
    ORACLE: "oracle",
    SQLITE: "sqlite",
}
ONE: Final = (
    (EVERY, "tenant = 'a' AND state <> 'draft'"),
    (EVERY, "(a = 1 OR b = 2) AND (c IN (1, 2, 3))"),
    (EVERY, "name = ')' AND other = '(' OR x = 'it''s ('"),
    (EVERY, '"odd ) name" = 1'),
    (EVERY, "a = 1 -- the first )\n AND b = 2"),
    (EVERY, "a = 1 -- the last )"),
    (EVERY, "a = 1 /* ; ) ' */"),
    (EVERY, "x = ';'"),
    (EVERY, "EXISTS (SELECT 1 FROM t WHERE t.id = orders.id)"),
    (EVERY, "CASE WHEN a = 1 THEN b = 2 ELSE c = 3 END"),
    (EVERY, "name LIKE '100%' AND größe > 1"),
    (EVERY, "\n\ta = 1\r\n\tAND b = 2\r\n"),
    ((POSTGRESQL, SQLITE, ORACLE), r"path LIKE 'C:\'"),
    ((POSTGRESQL, ESCAPING_TOKEN), r"path = E'it\'s )'"),
    ((POSTGRESQL, ESCAPING_TOKEN), "path = E'a'\n-- then\n 'b\\')'"),
    ((POSTGRESQL, ESCAPING_TOKEN), "x = $$ ) ' $$ AND y = $q$ $$ ) $q$"),
    ((POSTGRESQL, ESCAPING_TOKEN), "a$$ = 1 AND b$$ = 2"),
    ((POSTGRESQL, ESCAPING_TOKEN), "€$$ = 1"),
    ((POSTGRESQL, ESCAPING_TOKEN), "a = 1 /* ( /* nested */ ) */"),
    ((POSTGRESQL, ESCAPING_TOKEN), "tags[1] = 'x' AND j -> 'a' ? 'b' AND r @> '{}'::jsonb"),
    ((POSTGRESQL, ESCAPING_TOKEN), "a = 1 -- ends here (\r AND b = 2"),
    ((MYSQL, ESCAPING_TOKEN), r"name = 'it\'s )'"),
    ((MYSQL, ESCAPING_TOKEN), r"a = '\' ) OR ( b = '"),
    ((MYSQL, ESCAPING_TOKEN), r"path = 'C:\\'"),
    ((MYSQL,), "a--1 > (2)"),
    ((MYSQL,), "a = 1 # ( ends here\n AND b = 2"),
    ((MYSQL, SQLITE), "`odd ( name` = 1"),
    ((ORACLE,), "x = q'[it's )]' AND y = nq'!a'b!' AND z = Q'(a)b)'"),
    ((ORACLE,), "a#q = 'x'"),
    ((SQLITE,), "[odd ) name] = 1"),
)
NOT_ONE: Final = (
    (EVERY, "a) OR (b"),
    (EVERY, "a = 1) OR (1 = 1"),
    (EVERY, "(a = 1"),
    (EVERY, "a = 1)"),
    (EVERY, "a = 1; DELETE FROM usr"),
    (EVERY, "a = 'x"),
    (EVERY, 'a = "x'),
    (EVERY, "a = 1 /* x"),
    (EVERY, ""),
    (EVERY, " -- nothing\n /* at all */ "),
    (EVERY, "a = ')' ) OR ( b = '('"),
    (EVERY, "a = 1 -- '\n ) OR ( b = 1 -- '"),
    ((POSTGRESQL, SQLITE, ORACLE), r"a = '\' ) OR ( b = '\'"),
    ((POSTGRESQL, ESCAPING_TOKEN), r"a = E'x\'' ) OR ( b = E'\''"),
    ((POSTGRESQL, ESCAPING_TOKEN), "a = $$ '$$ ) OR ( b = $$' $$"),
    ((POSTGRESQL, ESCAPING_TOKEN), "a = $x$ $y$"),
    ((POSTGRESQL, ESCAPING_TOKEN), "a = 1 /* /* */ "),
    ((POSTGRESQL, ESCAPING_TOKEN), "a = 1 -- x\r ) OR ( b = 1"),
    ((POSTGRESQL, ESCAPING_TOKEN), "€$$ ) OR ( $$ = 1"),
    ((MYSQL, ORACLE, SQLITE), "a = 1 /* /* */ ) OR ( b = 1 /* */"),
    ((MYSQL, ESCAPING_TOKEN), r"a = '\'' ) OR ( b = '\''"),
    ((MYSQL,), "a = 1--2) OR (3"),
    ((MYSQL,), "a = 1 /*! ) OR ( */"),
    ((MYSQL,), "a = 1 /*M!100100 ) OR ( */"),
    ((MYSQL,), "a = 1 # '\n ) OR ( b = 1 # '"),
    ((ORACLE,), "x = q'[']' ) OR ( y = q'[']'"),
    ((ORACLE,), "x = q'[ ' ) OR ( ' "),
    ((SQLITE,), "[a'] ) OR ( [b'] = 1"),
    ((SQLITE,), "[a = 1"),
)


def cases(given_cases: tuple[tuple[tuple[re.Pattern[str], ...], str], ...]) -> list[object]:
    return [
        pytest.param(token, condition, id=f"{NAMES[token]}: {condition!r}")
        for tokens, condition in given_cases
        for token in tokens
    ]


@pytest.mark.parametrize(("token", "condition"), cases(ONE))
def test_a_condition_that_is_one_expression_is_accepted(
    token: re.Pattern[str], condition: str
) -> None:
    assert why_not_one(condition, token) is None


@pytest.mark.parametrize(("token", "condition"), cases(NOT_ONE))
def test_a_condition_that_is_not_one_expression_is_refused(
    token: re.Pattern[str], condition: str
) -> None:
    assert why_not_one(condition, token) is not None


hidden = st.lists(
    st.sampled_from(
        [
            "'",
            "''",
            "\\",
            "\\'",
            "/*",
            "*/",
            "--",
            "\n",
            "\r",
            "$$",
            "$",
            ")",
            "(",
            "x",
            " ",
            "]",
            '"',
        ]
    ),
    max_size=4,
).map("".join)
operands = st.one_of(
    st.just("true"),
    st.builds("'{}' = 'x'".format, hidden),
    st.builds("E'{}' = 'x'".format, hidden),
    st.builds("E'x'{}'{}' = 'x'".format, st.sampled_from(["\n", " --'\n", "\r\n"]), hidden),
    st.builds("$${}$$ = 'x'".format, hidden),
    st.builds("$a${}$a$ = 'x'".format, hidden),
    st.builds("true /*{}*/".format, hidden),
    st.builds("true --{}\n".format, hidden),
    st.builds("true --{}\r".format, hidden),
    st.builds("(true AS €$${})".format, hidden),
    st.builds('"{}" = `{}` OR [{}] = true'.format, hidden, hidden, hidden),
)
conditions = st.builds(
    lambda first, others: first + "".join(joint + other for joint, other in others),
    operands,
    st.lists(st.tuples(st.sampled_from([" OR ", ") OR ("]), operands), max_size=3),
)
"""Conditions whose quotes and comments hide what begins and ends others."""
_MALFORMED: Final = re.compile("syntax error|unrecognized token|incomplete input|one statement")


@pytest.mark.parametrize(("strings", "token"), [("on", POSTGRESQL), ("off", ESCAPING_TOKEN)])
def test_postgresql_reads_a_condition_as_it_was_judged(
    postgres_url: str, strings: str, token: re.Pattern[str]
) -> None:
    options = f"-c standard_conforming_strings={strings} -c escape_string_warning=off"
    url = sa.make_url(postgres_url).set(drivername="postgresql")
    with psycopg.connect(
        url.render_as_string(hide_password=False), options=options, autocommit=True
    ) as session:

        def run(statement: str) -> tuple[bool, list[object]]:
            """Return whether a statement is well-formed, and its rows."""
            try:
                return True, [*session.execute(statement)]  # type: ignore[call-overload]
            except psycopg.Error as error:
                return error.sqlstate != "42601", []

        @given(conditions)
        def check(condition: str) -> None:
            if why_not_one(condition, token) is None:
                in_where, rows = run(f"SELECT 1 WHERE (\n{condition}\n) AND false")
                alone, _ = run(f"SELECT (\n{condition}\n)")
                assert (rows, in_where) == ([], alone)

        check()


@given(conditions)
def test_sqlite_reads_a_condition_as_it_was_judged(condition: str) -> None:
    with closing(sqlite3.connect(":memory:")) as session:

        def run(statement: str) -> tuple[bool, list[object]]:
            try:
                return True, session.execute(statement).fetchall()
            except (sqlite3.Error, sqlite3.Warning) as error:
                return not _MALFORMED.search(str(error)), []

        if why_not_one(condition, SQLITE) is None:
            in_where, rows = run(f"SELECT 1 WHERE (\n{condition}\n) AND 0")
            alone, _ = run(f"SELECT (\n{condition}\n)")
            assert (rows, in_where) == ([], alone)
