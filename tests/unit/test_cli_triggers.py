"""``db`` and ``triggers`` from an empty database to one that logs, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from eventlog import cli

SCHEMA = """
CREATE SCHEMA hr;
CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text, lname text, password_hash text);
CREATE TABLE hr.usr_phone (idu integer REFERENCES hr.usr, phoneno text, UNIQUE (idu, phoneno));
CREATE VIEW hr.view_usr AS SELECT idu AS pk_idu, fname AS sv_fname FROM hr.usr;
CREATE TABLE hr.parts (k integer PRIMARY KEY) PARTITION BY LIST (k);
"""
CONFIG = """
[database]
schema_name = "hr"
[[watch]]
table = "usr"
exclude = ["password_hash"]
"""
CATALOGUE = """
SELECT 'class', n.nspname, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname !~ '^pg_'
UNION ALL SELECT 'proc', n.nspname, p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname !~ '^pg_'
UNION ALL SELECT 'trigger', '', tgname FROM pg_trigger
ORDER BY 1, 2, 3
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(database: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    with database.begin() as conn:
        conn.exec_driver_sql(SCHEMA)
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("EVENTLOG_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", database.url.render_as_string(hide_password=False))
    Path("eventlog.toml").write_text(CONFIG)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


def catalogue(database: sa.Engine) -> list[tuple[str, ...]]:
    with database.connect() as conn:
        return [tuple(row) for row in conn.exec_driver_sql(CATALOGUE)]


def log_rows(database: sa.Engine) -> list[tuple[int, str, str]]:
    with database.begin() as conn:
        conn.exec_driver_sql("INSERT INTO hr.usr VALUES (1, 'Ada', NULL, 'x')")
        rows = conn.exec_driver_sql("SELECT event_type, table_key, column_name FROM hr.eventlog ORDER BY record_id")
        return [tuple(row) for row in rows]


def install(run: Run) -> None:
    assert run("db", "upgrade")[0] == 0
    assert run("triggers", "apply")[0] == 0


def test_from_nothing_to_logging_and_back_to_the_same_catalogue(run: Run, database: sa.Engine) -> None:
    before = catalogue(database)
    install(run)
    assert log_rows(database) == [(1, "idu=1", "fname")]
    code, _, err = run("triggers", "drop", "--drop-log")
    assert (code, "not published" in err) == (2, True)
    assert run("triggers", "drop", "--drop-log", "--force")[0] == 0
    assert catalogue(database) == before


def test_upgrade_says_where_the_log_is_and_does_nothing_twice(run: Run) -> None:
    assert json.loads(run("db", "current", "--json")[1])["current"] == []
    code, out, err = run("db", "upgrade")
    assert (code, "upgraded" in out, err) == (0, True, "")
    assert "nothing to do" in run("db", "upgrade")[1]
    report = json.loads(run("db", "current", "--json")[1])
    assert report["current"] == report["heads"]
    assert report["current"] != []
    code, out, err = run("db", "current")
    assert (code, out.count("\n"), err) == (0, 2, "")


def test_a_log_with_unpublished_rows_is_dropped_only_by_force(run: Run, database: sa.Engine) -> None:
    before = catalogue(database)
    install(run)
    log_rows(database)
    assert run("triggers", "drop")[0] == 0
    assert run("db", "downgrade")[0] == 2
    assert run("db", "downgrade", "--force")[0] == 0
    assert catalogue(database) == before


def test_a_log_that_triggers_write_is_not_dropped_from_under_them(run: Run, database: sa.Engine) -> None:
    install(run)
    with database.begin() as conn:
        conn.exec_driver_sql("ALTER TABLE hr.eventlog_error RENAME TO errors")  # no publisher would run now
    code, _, err = run("db", "downgrade", "--force")
    assert code == 2
    assert "triggers on hr.usr, hr.usr_phone write the log eventlog" in err
    assert "eventlog triggers drop" in err
    assert log_rows(database) == [(1, "idu=1", "fname")]


def test_migrations_can_be_printed_without_a_server(run: Run, database: sa.Engine) -> None:
    code, sql, err = run("--database-url", "postgresql://nobody@localhost:1/nowhere", "db", "upgrade", "--sql")
    assert (code, err) == (0, "")
    before = catalogue(database)
    with database.begin() as conn:
        conn.exec_driver_sql(sql, execution_options={"no_parameters": True})
    assert run("triggers", "apply")[0] == 0
    assert log_rows(database) == [(1, "idu=1", "fname")]
    assert run("triggers", "drop")[0] == 0
    _, sql, _ = run("db", "downgrade", "--sql")
    with database.begin() as conn:
        conn.exec_driver_sql(sql, execution_options={"no_parameters": True})
    assert catalogue(database) == before


def test_plan_tells_what_apply_would_do_and_check_says_it_by_the_exit_code(run: Run) -> None:
    run("db", "upgrade")
    code, out, err = run("triggers", "plan")
    assert (code, err) == (0, "`eventlog triggers apply` does this.\n")
    assert "+ hr.usr: " in out
    assert "+ hr.usr_phone: " in out
    assert run("triggers", "plan", "--check")[0] == 1
    code, out, err = run("triggers", "apply")
    assert (code, "2 changes applied." in out, err) == (0, True, "")
    code, out, err = run("triggers", "plan", "--check")
    assert (code, "Nothing to do" in out, err) == (0, True, "")


def test_quiet_applies_and_drops_without_a_word(run: Run) -> None:
    for command in (("db", "upgrade"), ("triggers", "apply"), ("triggers", "drop", "--drop-log")):
        assert run("--quiet", *command) == (0, "", "")


def test_plan_shows_what_is_to_be_replaced_and_dropped(run: Run) -> None:
    install(run)
    Path("eventlog.toml").write_text(CONFIG.replace('exclude = ["password_hash"]', 'style = "remove_all"'))
    _, out, _ = run("triggers", "plan", "--json")
    planned = json.loads(out)
    assert {action["table"]: action["kind"] for action in planned["actions"]}["hr.usr"] == "replace"
    assert any("password_hash" in warning for warning in planned["warnings"])
    Path("eventlog.toml").write_text(CONFIG.split("[[watch]]")[0])
    assert "- hr.usr: " in run("triggers", "plan")[1]


def test_the_printed_sql_does_what_apply_does(run: Run, database: sa.Engine) -> None:
    run("db", "upgrade")
    code, sql, _ = run("triggers", "apply", "--sql")
    assert code == 0
    assert run("triggers", "plan", "--sql")[1] == sql
    assert run("triggers", "plan", "--check")[0] == 1
    with database.execution_options(isolation_level="AUTOCOMMIT").connect() as conn:
        conn.exec_driver_sql(sql, execution_options={"no_parameters": True})
    assert run("triggers", "plan", "--check")[0] == 0


def test_show_lists_what_is_installed(run: Run, database: sa.Engine) -> None:
    run("db", "upgrade")
    assert "No triggers are installed" in run("triggers", "show")[2]
    assert run("triggers", "apply")[0] == 0
    code, out, err = run("triggers", "show")
    assert (code, "hr.usr_phone" in out, err) == (0, True, "")
    shown = json.loads(run("triggers", "show", "--json")[1])
    assert {one["table"] for one in shown} == {"hr.usr", "hr.usr_phone"}
    assert all(one["enabled"] for one in shown)
    _, sql, _ = run("triggers", "show", "--sql")
    assert sql.count("CREATE OR REPLACE FUNCTION") == 2
    assert sql.count("CREATE TRIGGER") == len(shown)
    # Another log's triggers are not ours to show.
    assert run("--log-table", "other", "db", "upgrade")[0] == 0
    assert json.loads(run("--log-table", "other", "triggers", "show", "--json")[1]) == []


@pytest.mark.parametrize(
    ("watch", "part"),
    [
        ('table = "nowhere"', "nowhere"),
        ('table = "usr"\nexclude = ["idu"]', "idu"),
        ('table = "parts"\ncapture = "statement"', "parts is partitioned"),
        ('view = "view_usr"\nbase = { usr = { fname = "sv_fname" } }', "no column is 'pk_idu'"),
        ('view = "view_usr"\nbase = { nobody = { idu = "pk_idu" } }', "no base table 'nobody'"),
    ],
)
def test_a_watch_that_cannot_be_is_refused_in_one_line(run: Run, watch: str, part: str) -> None:
    run("db", "upgrade")
    Path("eventlog.toml").write_text(f'[database]\nschema_name = "hr"\n[[watch]]\n{watch}\n')
    code, out, err = run("triggers", "plan")
    assert code in (1, 2)
    assert (out, err.count("\n")) == ("", 1)
    assert part in err


def test_without_a_log_the_message_says_how_to_make_one(run: Run) -> None:
    code, _, err = run("triggers", "plan")
    assert code == 1
    assert "eventlog db upgrade" in err
