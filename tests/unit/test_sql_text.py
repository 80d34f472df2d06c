"""SQL of others: split into statements, and read for the tables that it changes
(spec/event-log.md 9).
"""

from __future__ import annotations

import contextlib
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.sql.sql_text import changed_table, split_statements


@pytest.mark.parametrize(
    ("sql", "statements"),
    [
        ("", ()),
        (" ; ;", ()),
        ("a;b", ("a", "b")),
        ("select ';' ; b", ("select ';'", "b")),
        ("select 'it''s;' ; b", ("select 'it''s;'", "b")),
        ('select ";";b', ('select ";"', "b")),
        ("do $$ a; b $$; c", ("do $$ a; b $$", "c")),
        ("do $x$ a; $$ b $x$; c", ("do $x$ a; $$ b $x$", "c")),
        ("select $1; b", ("select $1", "b")),
        ("do $ü$ a; $ü$; c", ("do $ü$ a; $ü$", "c")),
        ("select a$b$c; select d$b$", ("select a$b$c", "select d$b$")),
        ("a -- it's; not\n; b", ("a -- it's; not", "b")),
        ("a /* ; ' */; b", ("a /* ; ' */", "b")),
        ("a /* b /* ; */ ; */; c", ("a /* b /* ; */ ; */", "c")),
        ("a /* b /* ; */; c", ("a /* b /* ; */", "c")),
        ("-- nothing\n; /* nothing; */ ; a; -- nothing", ("a",)),
        ("select E'\\';' ; b", ("select E'\\';'", "b")),
        ("select e'it''s\\\\' ; b", ("select e'it''s\\\\'", "b")),
        ("select type'\\' ; b", ("select type'\\'", "b")),
        ("select '-- ;' ; b", ("select '-- ;'", "b")),
        ("a - -1; b", ("a - -1", "b")),
    ],
)
def test_sql_is_split_outside_quotes_and_comments(sql: str, statements: tuple[str, ...]) -> None:
    assert split_statements(sql) == statements


@pytest.mark.parametrize("sql", ["a 'b", 'a "b', "a $x$ b $y$", "a E'b\\'", "a /* b", "a `b"])
def test_a_quote_or_comment_that_does_not_end_is_refused(sql: str) -> None:
    with pytest.raises(ValueError, match="at offset 2 does not end"):
        split_statements(sql)


@pytest.mark.parametrize("fragment", ["/*", "$x$", "$", "E'a'", "a$", "--\n", "\\"])
def test_long_sql_is_split_in_time(fragment: str) -> None:
    begun = process_time()
    with contextlib.suppress(ValueError):
        split_statements("a;" + fragment * 50_000)
    assert process_time() - begun < 2


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="'\"`$;-/"))))
def test_statements_without_quotes_come_back_as_they_were(statements: list[str]) -> None:
    stripped = tuple(statement.strip() for statement in statements if statement.strip())
    assert split_statements(";".join(statements)) == stripped


# --- the tables that a statement may change -------------------------------------------------------


def changed(statement: str, schema: str | None = "direct") -> str | None:
    return changed_table(statement, schema, ("process", "process_error"))


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM direct.process",
        "delete from process where status = 'S'",
        'DELETE /* all */ FROM -- of it\n "direct" . "process"',
        "DELETE FROM ONLY process",
        "DELETE FROM ONLY (process)",
        "DELETE process WHERE status = 'S'",
        "DELETE FROM `direct`.`Process` LIMIT 10",
        "DELETE FROM [process]",
        "DELETE LOW_PRIORITY QUICK FROM process",
        "DELETE process, u.* FROM process JOIN usr u ON u.idu = process.record_id",
        "DELETE p FROM usr u JOIN direct.process AS p ON p.record_id = u.idu",
        "DELETE FROM u, p USING usr u JOIN process p",
        "DELETE FROM (SELECT * FROM process WHERE status = 'S')",
        "WITH gone AS (DELETE FROM process RETURNING *) INSERT INTO archive SELECT * FROM gone",
        "WITH old AS (SELECT 1) DELETE FROM process USING old",
        "EXPLAIN ANALYZE DELETE FROM process",
        "UPDATE process SET status = 'S'",
        "UPDATE ONLY process AS p SET status = 'S'",
        "UPDATE OR IGNORE process SET status = 'S'",
        "UPDATE usr u, process p SET u.a = 1, p.status = 'S' WHERE u.idu = p.record_id",
        "UPDATE usr u JOIN process p ON u.idu = p.record_id SET status = 'S'",
        "UPDATE (SELECT status FROM process) SET status = 'S'",
        "MERGE INTO process p USING usr u ON (p.record_id = u.idu) WHEN MATCHED THEN DELETE",
        "REPLACE INTO process SELECT * FROM process",
        "INSERT OR REPLACE INTO process SELECT * FROM other",
        "TRUNCATE process",
        "TRUNCATE TABLE usr, ONLY direct.process CASCADE",
        "DROP TABLE IF EXISTS usr, process",
        "CREATE OR REPLACE TABLE process (a int)",
        "RENAME TABLE usr TO u, process TO old",
        "ALTER TABLE process RENAME TO old",
        "ALTER TABLE process TRUNCATE PARTITION p1",
        "DELETE FROM process_error",
        "SELECT 1; DELETE FROM process",
        "INSERT INTO notes VALUES ('it\\'s'); DELETE FROM process",
        "BEGIN NOT ATOMIC DELETE FROM process; END",
        "DO $x$ BEGIN DELETE FROM process; END $x$",
        "/*!50000 DELETE FROM process */",
    ],
)
def test_a_statement_that_removes_or_updates_rows_of_a_table_changes_it(statement: str) -> None:
    assert changed(statement) is not None


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "CALL direct.published()",
        "SELECT count(*) FROM process",
        "INSERT INTO process (status) VALUES ('N')",
        "INSERT INTO archive SELECT * FROM process",
        "INSERT INTO notes VALUES ('DELETE FROM process')",
        "-- DELETE FROM process\nSELECT 1",
        "/* DELETE FROM process */ SELECT 1",
        "DELETE FROM other.process",
        "DELETE FROM process_archive",
        "ANALYZE process",
        "DELETE 'process",
        "DELETE FROM notes WHERE source = 'process'",
        "DELETE FROM notes; /* process */",
    ],
)
def test_a_statement_without_a_word_of_change_or_without_the_table_does_not(statement: str) -> None:
    assert changed(statement) is None


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM process FOR UPDATE",
        "SELECT replace(new_value, 'a', 'b'), truncate(1.5, 0) FROM process",
        "INSERT INTO notes VALUES ($$DELETE FROM process$$)",
        "DELETE FROM notes WHERE EXISTS (SELECT 1 FROM process)",
        "DELETE FROM notes USING process WHERE notes.id = process.record_id",
        "DELETE u FROM usr u JOIN process p ON p.record_id = u.idu",
        "WITH done AS (SELECT * FROM process) DELETE FROM notes USING done",
        "UPDATE notes SET n = (SELECT count(*) FROM process), m = 2",
        "UPDATE notes SET n = p.n FROM process p",
        "UPDATE usr u JOIN process p ON u.idu = p.record_id SET u.seen = 1",
        "MERGE INTO notes USING process ON (1 = 1) WHEN MATCHED THEN UPDATE SET a = 1",
        "CREATE OR REPLACE VIEW newest AS SELECT * FROM process",
        "GRANT DELETE, UPDATE (status) ON process TO publisher",
        "ALTER TABLE process SHRINK SPACE",
    ],
)
def test_a_statement_with_a_word_of_change_that_only_reads_the_table_is_refused_too(
    statement: str,
) -> None:
    assert changed(statement) is not None


def test_without_a_known_schema_every_schema_may_be_that_of_the_table() -> None:
    assert changed("DELETE FROM other.process", None) == "process"


@pytest.mark.parametrize("fragment", ["/*", "DELETE ", "a, ", "UPDATE a, ", "(", "RENAME "])
def test_long_sql_is_read_in_time(fragment: str) -> None:
    begun = process_time()
    changed("DELETE FROM " + fragment * 20_000)
    assert process_time() - begun < 2
