"""The scripts for SQL*Plus can be run again; what they do to the version table is run on SQLite."""

from __future__ import annotations

import io
import re
import sqlite3
from collections.abc import Iterator

import pytest
from oracle_catalogue import ELSEWHERE, downgrade_script, migration_script, script_statements

from eventlog.errors import ConfigError, TriggerError
from eventlog.sql import migrations
from eventlog.sql.dialects.oracle.script import guarded, placed, rerunnable, terminated, unless
from eventlog.sql.port.database import Storage

UPGRADE = script_statements(migration_script())
DOWNGRADE = script_statements(downgrade_script())


def version_statements(statements: tuple[str, ...]) -> list[str]:
    """Those that write the version table, out of their blocks."""
    found = []
    for statement in statements:
        block = re.match(r"BEGIN\n    EXECUTE IMMEDIATE '(.*)';\nEXCEPTION", statement, re.DOTALL)
        inner = block[1].replace("''", "'") if block else statement
        if re.match(r'(INSERT INTO|UPDATE|DELETE FROM) "LOGS"."EVENTLOG_VERSION"', inner):
            found.append(inner.replace('"LOGS"."EVENTLOG_VERSION".version_num', "version_num"))
    return found


@pytest.fixture
def versions() -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(":memory:")
    database.execute("ATTACH ':memory:' AS LOGS")
    database.execute("CREATE TABLE DUAL (x)")
    database.execute("INSERT INTO DUAL VALUES (1)")
    database.execute('CREATE TABLE "LOGS"."EVENTLOG_VERSION" (version_num TEXT PRIMARY KEY)')
    yield database
    database.close()


def recorded(database: sqlite3.Connection) -> list[str]:
    return [
        row[0]
        for row in database.execute('SELECT version_num FROM "LOGS"."EVENTLOG_VERSION" ORDER BY 1')
    ]


@pytest.mark.parametrize("stopped_after", range(len(version_statements(UPGRADE)) + 1))
def test_an_upgrade_that_stopped_anywhere_is_ended_by_the_next_run(
    versions: sqlite3.Connection, stopped_after: int
) -> None:
    for statement in [
        *version_statements(UPGRADE)[:stopped_after],
        *version_statements(UPGRADE) * 2,
    ]:
        versions.execute(statement)
    assert recorded(versions) == ["internal_7", "log_1"]


def test_a_downgrade_can_be_run_again(versions: sqlite3.Connection) -> None:
    for statement in [*version_statements(UPGRADE), *version_statements(DOWNGRADE) * 2]:
        versions.execute(statement)
    assert recorded(versions) == []


@pytest.mark.parametrize(
    ("statements", "verb"), [(UPGRADE, "CREATE"), (DOWNGRADE, "DROP"), (DOWNGRADE, "DELETE")]
)
def test_what_is_there_or_gone_already_is_no_error(statements: tuple[str, ...], verb: str) -> None:
    bare = [
        one
        for one in statements
        if one.startswith(verb) and not one.startswith("CREATE OR REPLACE")
    ]
    guarded = [one for one in statements if re.match(f"BEGIN\n    EXECUTE IMMEDIATE '{verb} ", one)]
    assert bare == []
    assert guarded
    assert all(
        re.search(r"IF SQLCODE (<> -\d+|NOT IN \([-\d, ]+\)) THEN\n            RAISE;", one)
        for one in guarded
    )


def test_a_column_that_a_later_migration_adds_may_be_there() -> None:
    assert "IF SQLCODE <> -1430 THEN" in rerunnable('ALTER TABLE "L"."T" ADD c NUMBER\n\n/\n')


RUN_AGAIN = [
    # as Alembic runs it, what it takes for success
    ('\nCREATE TABLE "L"."T" (\n\tid NUMBER\n)\n\n', "SQLCODE <> -955"),
    ('CREATE UNIQUE INDEX "L"."I" ON "L"."T" (id)', "SQLCODE NOT IN (-955, -1408)"),
    ('ALTER TABLE "L"."T" ADD c NUMBER', "SQLCODE <> -1430"),
    ('\nDROP TABLE "L"."T"', "SQLCODE <> -942"),
]


@pytest.mark.parametrize(("statement", "success"), RUN_AGAIN)
def test_what_a_migration_runs_can_be_run_again_too(statement: str, success: str) -> None:
    again = guarded(statement)
    assert again.startswith(f"BEGIN\n    EXECUTE IMMEDIATE '{statement.strip()}'")
    assert success in again


@pytest.mark.parametrize(
    "statement",
    [
        "COMMENT ON TABLE t IS 'x'",
        "INSERT INTO v (version_num) VALUES ('0001')",
        "UPDATE v SET version_num='0004' WHERE v.version_num = '0001'",  # whose rows Alembic counts
        "DELETE FROM v WHERE v.version_num = '0001'",
        "SELECT 1 FROM DUAL",
        'CREATE OR REPLACE FUNCTION "F" RETURN NUMBER IS BEGIN RETURN 1; END;',
        unless("DROP SEQUENCE s", -2289),
    ],
)
def test_what_can_be_run_again_as_it_is_is_left_so(statement: str) -> None:
    assert guarded(statement) == statement


def test_a_script_holds_what_a_migration_runs() -> None:
    blocks = [
        one
        for one in UPGRADE
        if one.startswith("BEGIN") and "EXECUTE IMMEDIATE 'CREATE TABLE" in one
    ]
    assert len(blocks) == 9
    for block in blocks:
        inner = block[block.index("'") + 1 : block.index("';\nEXCEPTION")].replace("''", "'")
        assert guarded(f"\n{inner}\n\n") == block


def test_a_function_of_the_log_that_does_not_compile_stops_the_script() -> None:
    made = [
        place for place, one in enumerate(UPGRADE) if one.startswith("CREATE OR REPLACE FUNCTION")
    ]
    assert made
    assert all("RAISE_APPLICATION_ERROR" in UPGRADE[place + 1] for place in made)


def test_a_trigger_that_does_not_compile_is_dropped_before_the_script_stops() -> None:
    (_, _, check, _) = terminated(['CREATE OR REPLACE TRIGGER "APP"."T\'s" x'])
    drop, stop = (
        check.index("""'DROP TRIGGER "APP"."T\'\'s"'"""),
        check.index("RAISE_APPLICATION_ERROR"),
    )
    assert drop < stop


@pytest.mark.parametrize("name", ["A\n/\nB", "A\n.\nB", "A\n#EXIT\nB", "A -\nB", "A" * 2500])
def test_a_name_that_sql_plus_would_take_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(TriggerError, match="without --sql"):
        terminated([f'DROP TRIGGER "{name}"'])


# --- where tables and indexes are made ------------------------------------------------------------


def test_tables_and_indexes_get_the_configured_places_and_names() -> None:
    script = migration_script(ELSEWHERE)
    tables = re.findall(r"CREATE TABLE .*?\n\)( [^']*)?'", script, re.DOTALL)
    assert len(tables) >= 5
    assert set(tables) == {' TABLESPACE "LOGS"'}
    keys = re.findall(r"PRIMARY KEY \([^)]*\)(?: USING INDEX TABLESPACE ([^,\n]+))?", script)
    assert set(keys) == {'"Fast disk"'}
    made = [line for line in script.split("\n") if re.search("CREATE (UNIQUE )?INDEX", line)]
    assert all(' TABLESPACE "Fast disk"' in line for line in made)
    assert 'CREATE INDEX "LOGS"."LOG_QUEUE" ON' in script
    assert 'CONSTRAINT "LOG_PK" PRIMARY KEY (record_id)' in script
    assert "IDX_EVENTLOG_5" not in script


def test_what_names_a_log_of_itself_needs_no_quotes() -> None:
    script = migration_script()
    names = re.findall(r'(?:INDEX|CONSTRAINT|TABLE|SEQUENCE) (?:"[^"]+"\.)?"([^"]+)"', script)
    odd = {name for name in names if name != name.upper()}
    assert odd == {"EVENTLOG_VERSION_pkc"}  # Alembic's own
    assert {"PK_EVENTLOG", "CK_EVENTLOG_1", "CK_EVENTLOG_2", "PK_EVENTLOG_INFLIGHT"} <= set(names)


def test_a_migration_that_is_run_is_placed_like_its_script() -> None:
    made = '\nCREATE TABLE "L"."T" (\n\tid NUMBER, \n\tCONSTRAINT "PK_T" PRIMARY KEY (id)\n)\n\n'
    placed_ = placed(made, Storage("logs", "fast", {"pk_t": "mine"}))
    assert (
        'CONSTRAINT "MINE" PRIMARY KEY (id) USING INDEX TABLESPACE "FAST"\n) TABLESPACE "LOGS"'
        in placed_
    )
    assert guarded(placed_).startswith("BEGIN\n    EXECUTE IMMEDIATE 'CREATE TABLE")
    assert placed(made, Storage()) == made


@pytest.mark.parametrize("name", ["a'b", 'a"b', "a\nb", "a\\1"])
def test_a_tablespace_that_could_leave_its_quotes_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="correct it"):
        placed('CREATE TABLE "T" (\n\tid NUMBER\n)', Storage(name))


@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
def test_a_database_without_them_refuses_tablespaces_and_names(database: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"only `db upgrade` on Oracle takes a tablespace .* options on {database}",
    ):
        migrations.upgrade(
            None, log_table="eventlog", sql=io.StringIO(), dialect_name=database, storage=ELSEWHERE
        )
