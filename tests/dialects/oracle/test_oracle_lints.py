"""The lints find what they are for: each case is a sound statement with one thing made wrong."""

from __future__ import annotations

import pytest
from oracle_catalogue import cases
from oracle_lints import lint

TRIGGER = cases()["trigger_children"][1]  # a compound one
ROW_TRIGGER = cases()["trigger_children"][0]


@pytest.mark.parametrize(
    ("sound", "made_wrong", "expected"),
    [
        ("    END put;", "    END putt;", "PUT is ended by END PUTT"),
        ("    END AFTER "
"STATEMENT;\n", "    END AFTER "
"EACH ROW;\n", "AFTER STATEMENT is ended by END "
"AFTER EACH ROW"),
        ("    END IF;\n", "", "END"),
        ("        END LOOP;\n", "", "END"),
        ("table_key IN VARCHAR2,", "table_key IN VARCHAR2(4000),", "IN VARCHAR2 has a size"),
        ("old_key VARCHAR2(32767);", "old_key VARCHAR2;", "OLD_KEY VARCHAR2 has no size"),
        ('"APP"."USR"', f'"APP"."{"A" * 129}"', "has 129 bytes"),
        ("'USR'", f"'{'x' * 4001}'", "a literal has"),
        ("log_rows.DELETE;", f"-- {'x' * 33_000}\nlog_rows.DELETE;", "the trigger has"),
        ("    END put;", f"    END put;\n    -- {'x' * 2500}", "a line has 2507 characters"),
        ("    END put;", "    END put;\n/\n", "is a command of SQL*Plus"),
        ("    END put;", "    END put; --", "SQL*Plus joins the line"),
        ("IF UPDATING('PHOTO') "
"THEN", 'IF "APP"."PROC_EVENTLOG_QUOTE"(x) '
'THEN', "is called with "
"its schema"),
        ("PROCEDURE put(", "PROCEDURE share(", "SHARE is a reserved word"),
        ("table_key IN VARCHAR2,", "date IN VARCHAR2,", "DATE is a reserved word"),
        ("    END AFTER "
"STATEMENT;", '    x := :NEW."A";\n    '
'END AFTER STATEMENT;', ":OLD or :NEW "
"outside"),
        ("PROCEDURE write_log", "PROCEDURE write", "ended by END"),
        ("FUNCTION identity", "FUNCTION identify", "identity is not declared"),
        ("    BEFORE STATEMENT "
"IS", "    late_one VARCHAR2(1);\n   "
" BEFORE STATEMENT IS", "stands behind a "
"subprogram"),
    ],
)  # fmt: skip
def test_a_defect_is_found(sound: str, made_wrong: str, expected: str) -> None:
    assert lint(TRIGGER) == []
    assert sound in TRIGGER
    found = lint(TRIGGER.replace(sound, made_wrong, 1))
    assert any(expected in problem for problem in found), found


def test_a_bind_that_is_a_reserved_word_is_found() -> None:
    assert lint("SELECT 1 FROM DUAL WHERE 1 = :limit") == []
    assert lint("SELECT 1 FROM DUAL WHERE 1 = :user") == [":user is a reserved word"]


def test_old_in_a_trigger_for_insert_is_found() -> None:
    assert lint(ROW_TRIGGER) == []
    assert lint(ROW_TRIGGER.replace(":NEW", ":OLD")) == [":OLD in a trigger for INSERT"]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT a IN (1, 2) AS b FROM t", "a condition as a column"),
        ("SELECT MAX(CASE WHEN a = 1 THEN b = 2 END) FROM t", "a condition as a column"),
        ("SELECT x FROM (SELECT NOT a IS NULL AS x FROM t) u", "a condition as a column"),
        ("DELETE FROM t WHERE 0", "WHERE 0 is not a condition"),
        ("SELECT a FROM t WHERE a = 1 AND 1 ORDER BY a", "AND 1 is not a condition"),
        ("SELECT a FROM t WHERE :b OR a = 1", "WHERE :b is not a condition"),
        ("SELECT rows.a FROM (SELECT a FROM t) rows", "the alias ROWS is reserved"),
        ("SELECT a AS level FROM t", "the alias LEVEL is reserved"),
        (
            f"SELECT a FROM t WHERE a IN ({', '.join(['1'] * 1001)})",
            "an IN list of 1001 expressions",
        ),
        ("SELECT a FROM t FETCH FIRST 1 ROWS ONLY", "FETCH FIRST"),
    ],
)
def test_what_the_server_refuses_of_a_query_is_found(statement: str, expected: str) -> None:
    assert any(expected in problem for problem in lint(statement)), lint(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT CASE WHEN a IN (1, 2) THEN 1 ELSE 0 END AS b FROM t WHERE a BETWEEN 1 AND 2 AND b "
        "= 1",
        "SELECT a, (SELECT MAX(b) FROM u WHERE u.c = t.c AND 1 = 0) AS m FROM t",
        "SELECT CAST(a AS NUMBER(18)) AS b FROM t AS OF SCN 7 WHERE NOT EXISTS (SELECT 1 FROM u)",
        f"SELECT a FROM t WHERE a IN ({', '.join(['f(1, 2)'] * 1000)})",
    ],
)
def test_what_the_server_takes_of_a_query_passes(statement: str) -> None:
    assert lint(statement) == []
