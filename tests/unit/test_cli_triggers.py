"""``db`` and ``triggers`` from an empty database to one that logs, and back."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from shared import Run, execute, url_of

from eventlog import cli
from eventlog.cli.context import reading
from eventlog.config.load import load
from eventlog.exit_codes import ExitCode
from eventlog.publisher.declared import find_log
from eventlog.publisher.declared.trigger_plan import differences
from eventlog.sql import migrations

pytestmark = pytest.mark.usefixtures("database")
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


def fill(database: sa.Engine) -> None:
    """The tables."""
    execute(database, SCHEMA)


def fill_with_log(database: sa.Engine) -> None:
    """The tables and a log."""
    fill(database)
    migrations.upgrade(database, log_table="eventlog", schema="hr")


def fill_with_triggers(database: sa.Engine) -> None:
    """The tables, a log, and the triggers of CONFIG."""
    fill_with_log(database)
    assert cli.run(["--quiet", "--database-url", url_of(database), "triggers", "apply"]) == 0


@pytest.fixture
def database(
    request: pytest.FixtureRequest,
    filled_database: Any,
    empty_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[sa.Engine]:
    """A database with the tables, which commands use; with what ``logged`` or ``installed`` adds."""
    Path("eventlog.toml").write_text(CONFIG)
    names = request.fixturenames
    by_name = {"installed": fill_with_triggers, "logged": fill_with_log}
    chosen = next((by_name[name] for name in by_name if name in names), fill)
    with filled_database(chosen) as made:
        monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(made))
        yield made


@pytest.fixture
def logged(database: sa.Engine) -> sa.Engine:
    """The database of ``fill_with_log``."""
    return database


@pytest.fixture
def installed(database: sa.Engine) -> sa.Engine:
    """The database of ``fill_with_triggers``."""
    return database


def catalogue(database: sa.Engine) -> list[tuple[str, ...]]:
    with database.connect() as conn:
        return [tuple(row) for row in conn.exec_driver_sql(CATALOGUE)]


def log_rows(database: sa.Engine) -> list[tuple[int, str, str]]:
    with database.begin() as conn:
        conn.exec_driver_sql("INSERT INTO hr.usr VALUES (1, 'Ada', NULL, 'x')")
        rows = conn.exec_driver_sql(
            "SELECT event_type, table_key, column_name FROM hr.eventlog ORDER BY record_id"
        )
        return [tuple(row) for row in rows]


def install(run: Run) -> None:
    assert run("db", "upgrade")[0] == 0
    assert run("triggers", "apply")[0] == 0


@pytest.mark.promise("option triggers-drop--force")
def test_from_nothing_to_logging_and_back_to_the_same_catalogue(
    run: Run, database: sa.Engine
) -> None:
    before = catalogue(database)
    install(run)
    assert log_rows(database) == [(1, "idu=1", "fname")]
    code, _, err = run("triggers", "drop", "--drop-log")
    assert (code, "not published" in err) == (2, True)
    assert run("triggers", "drop", "--drop-log", "--force")[0] == 0
    assert catalogue(database) == before


@pytest.mark.promise("command db upgrade")
def test_upgrade_shows_where_the_log_is_and_does_nothing_twice(run: Run) -> None:
    assert json.loads(run("db", "current", "--json")[1])["current"] == []
    code, out, err = run("db", "upgrade")
    assert (code, "upgraded" in out, err) == (0, True, "")
    assert "nothing to do" in run("db", "upgrade")[1]
    report = json.loads(run("db", "current", "--json")[1])
    assert report["current"] == report["heads"]
    assert report["current"] != []
    code, out, err = run("db", "current")
    assert (code, out.count("\n"), err) == (0, 2, "")


@pytest.mark.promise("command db downgrade", "command triggers drop", "option db-downgrade--force")
def test_a_log_with_unpublished_rows_is_dropped_only_by_force(
    run: Run, database: sa.Engine
) -> None:
    before = catalogue(database)
    install(run)
    log_rows(database)
    assert run("triggers", "drop")[0] == 0
    assert run("db", "downgrade", "base")[0] == 2
    assert run("db", "downgrade", "base", "--force")[0] == 0
    assert catalogue(database) == before


@pytest.mark.usefixtures("installed")
def test_a_log_that_triggers_write_is_not_dropped_from_under_them(
    run: Run, database: sa.Engine
) -> None:
    with database.begin() as conn:
        conn.exec_driver_sql(
            "ALTER TABLE hr.eventlog_error RENAME TO errors"
        )  # no publisher would run now
    code, _, err = run("db", "downgrade", "base", "--force")
    assert code == 2
    assert "triggers on hr.usr, hr.usr_phone write the log eventlog" in err
    assert "eventlog triggers drop" in err
    assert log_rows(database) == [(1, "idu=1", "fname")]


@pytest.mark.usefixtures("installed")
def test_a_downgrade_reports_the_revision(run: Run) -> None:
    code, out, err = run("db", "downgrade")
    assert (code, out) == (2, "")
    assert "REVISION" in err
    assert json.loads(run("db", "current", "--json")[1])["current"] != []


class Terminal(io.StringIO):
    """Standard input at which somebody sits and has typed ahead."""

    def isatty(self) -> bool:
        return True


@pytest.mark.promise(
    "exit triggers drop 1",
    "exit db downgrade 1",
    "exit purge 1",
    "option triggers-apply--dry-run",
    "option triggers-drop--drop-log",
    "option purge--older-than",
    "option purge--dry-run",
)
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (
            ("triggers", "drop"),
            "This drops the triggers of hr.usr, hr.usr_phone, whose changes are then not logged.",
        ),
        (
            ("triggers", "drop", "--drop-log"),
            "and the log eventlog with all its rows and its internal tables.",
        ),
        (
            ("db", "downgrade", "base"),
            "This drops the log eventlog with all its rows, and its internal tables",
        ),
        (("db", "downgrade", "log@base"), "This drops the log eventlog with all its rows."),
        (
            ("db", "downgrade", "internal@base"),
            "removes from the log eventlog what the migrations after",
        ),
        (
            ("purge", "--older-than", "0s"),
            "This removes from the log hr.eventlog all rows of status S and W older than",
        ),
        (
            ("triggers", "apply"),
            "This drops the triggers of hr.usr, hr.usr_phone, which no [[watch]] names any longer",
        ),
    ],
)
def test_what_destroys_asks_on_a_terminal_and_a_no_changes_nothing(
    run: Run,
    database: sa.Engine,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    question: str,
) -> None:
    if arguments[0] == "db":
        assert run("triggers", "drop")[0] == 0
    if arguments[1] == "apply":
        Path("eventlog.toml").write_text(CONFIG.split("[[watch]]")[0])
    if arguments[0] == "purge":
        log_rows(database)
        with database.begin() as conn:
            conn.exec_driver_sql("UPDATE hr.eventlog SET status = 'S'")
    before = everything(database)
    for answer in ("n\n", "\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        code, out, err = run(*arguments)
        assert (code, out, everything(database)) == (1, "", before)
        assert question in err
        assert err.endswith("eventlog: not confirmed: nothing was changed\n")
    if arguments[0] != "db":
        monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
        code, _, err = run(*arguments, "--dry-run")
        assert (code, everything(database), "Go on?" in err) == (0, before, False)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert run(*arguments)[0] == 0
    assert everything(database) != before


@pytest.mark.promise("option several--yes")
@pytest.mark.parametrize(("stdin", "yes"), [(Terminal(""), ["--yes"]), (io.StringIO(""), [])])
def test_scripts_are_not_asked(
    run: Run,
    database: sa.Engine,
    monkeypatch: pytest.MonkeyPatch,
    stdin: io.StringIO,
    yes: list[str],
) -> None:
    before = catalogue(database)
    monkeypatch.setattr(sys, "stdin", stdin)
    install(run)
    assert run("purge", "--older-than", "0s", *yes)[0] == 0
    Path("eventlog.toml").write_text(CONFIG.split("[[watch]]")[0])
    assert run("triggers", "apply", *yes)[0] == 0
    assert run("triggers", "drop", *yes)[0] == 0
    assert run("db", "downgrade", "base", *yes)[0] == 0
    assert catalogue(database) == before


@pytest.mark.promise("command triggers apply")
@pytest.mark.usefixtures("installed")
def test_a_watch_that_is_taken_out_is_reported_with_what_apply_drops(
    run: Run, database: sa.Engine
) -> None:
    before = everything(database)
    Path("eventlog.toml").write_text(CONFIG.split("[[watch]]")[0])
    for command in (("triggers", "plan"), ("triggers", "apply", "--dry-run")):
        code, out, _ = run(*command)
        assert code == 0
        lines = out.splitlines()
        assert "- hr.usr: no longer watched" in lines
        assert (
            '    DROP TRIGGER "_tgr_usr_i_1" ON "hr"."usr"' in lines
            or "    DROP TRIGGER _tgr_usr_i_1" in out
        )
        assert (
            "warning: apply drops the triggers of hr.usr, hr.usr_phone, which no [[watch]] names "
            "any longer: later changes there are not logged"
        ) in lines
    assert everything(database) == before
    assert "warning: apply drops" not in run("triggers", "apply")[1]
    assert everything(database) != before


WITH_PATTERNS = """
[database]
schema_name = "hr"
[[watch]]
table = "grp"
row_style = "row_query_back"
[[watch]]
tables = ["*"]
exclude_tables = ["tmp_*", "grp_note"]
exclude = ["password_hash"]
"""
MORE_TABLES = """
CREATE TABLE hr.grp (idg integer PRIMARY KEY, name text);
CREATE TABLE hr.grp_note (idg integer REFERENCES hr.grp, note text, PRIMARY KEY (idg, note));
CREATE TABLE hr.tmp_load (id integer PRIMARY KEY);
CREATE TABLE hr.loose (a text);
CREATE TABLE hr.parts_1 PARTITION OF hr.parts FOR VALUES IN (1);
"""


@pytest.mark.promise("option publisher.allow_loopback")
def test_a_pattern_watches_tables_and_nothing_that_belongs_to_others(
    run: Run, database: sa.Engine
) -> None:
    with database.begin() as conn:
        conn.exec_driver_sql(MORE_TABLES)
    Path("eventlog.toml").write_text(WITH_PATTERNS)
    assert run("--log-table", "second", "db", "upgrade")[0] == 0
    assert run("db", "upgrade")[0] == 0
    code, out, _ = run("triggers", "apply", "--json")
    planned = json.loads(out)
    assert code == 0
    assert {action["table"] for action in planned["actions"]} == {
        "hr.grp", "hr.grp_note", "hr.parts", "hr.usr", "hr.usr_phone",
    }  # fmt: skip
    assert any(
        "loose matches the watch * and has no primary key" in warning
        for warning in planned["warnings"]
    )
    with database.begin() as conn:
        conn.exec_driver_sql(
            "INSERT INTO hr.usr VALUES (1, 'Ada', NULL, 'x'); INSERT INTO hr.usr_phone VALUES (1, "
            "'555');INSERT INTO hr.grp VALUES (7, 'g'); INSERT INTO hr.parts VALUES (1); INSERT "
            "INTO hr.tmp_load VALUES (1)"
        )
        rows = conn.exec_driver_sql(
            "SELECT table_name, event_type, column_name FROM hr.eventlog ORDER BY record_id"
        )
        logged = [tuple(row) for row in rows]
    assert logged == [
        ("usr", 1, "fname"), ("usr", 2, "usr_phone.phoneno"), ("grp", 5, None), ("parts", 5, None),
    ]  # fmt: skip
    assert run("triggers", "plan", "--check")[0] == 0
    code, out, _ = run("--set", "publisher.allow_loopback=true", "publish", "--once", "--dry-run")
    assert (code, set(re.findall('class-name="([^"]*)"', out))) == (0, {"usr", "grp", "parts"})
    assert json.loads(run("doctor", "--json")[1])["errors"] == 0


@pytest.mark.promise("command triggers plan", "exit triggers plan 4", "option triggers-plan--check")
@pytest.mark.usefixtures("installed")
def test_a_new_table_that_matches_is_reported_by_plan(run: Run, database: sa.Engine) -> None:

    Path("eventlog.toml").write_text('[database]\nschema_name = "hr"\n[[watch]]\ntables = ["*"]\n')
    with database.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE hr.later (id integer PRIMARY KEY)")
    code, out, _ = run("triggers", "plan", "--check")
    assert (code, "+ hr.later: " in out) == (ExitCode.NO, True)
    assert any("hr.later" in line for line in json.loads(run("status", "--json")[1])["drift"])


@pytest.mark.promise("exit triggers plan 1")
@pytest.mark.usefixtures("logged")
def test_a_partition_that_is_watched_is_called_one_of_its_root(
    run: Run, database: sa.Engine
) -> None:
    with database.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE hr.parts_1 PARTITION OF hr.parts FOR VALUES IN (1)")
    for watch in ('table = "parts_1"', 'tables = ["parts_1"]'):
        Path("eventlog.toml").write_text(f'[database]\nschema_name = "hr"\n[[watch]]\n{watch}\n')
        code, out, err = run("triggers", "plan")
        assert (code, out) == (1, "")
        assert "'parts_1' is a partition of parts. Name parts" in err


@pytest.mark.promise("option database.schema_name")
@pytest.mark.usefixtures("logged")
def test_all_refusals_of_a_plan_are_reported_at_once(run: Run) -> None:
    Path("eventlog.toml").write_text(
        """
        [database]
        schema_name = "hr"
        [[watch]]
        table = "nobody"
        [[watch]]
        table = "usr_phone"
        [[watch]]
        table = "usr"
        exclude = ["idu", "nothing"]
        [[watch]]
        view = "view_usr"
        base = { nowhere = { idu = "pk_idu" } }
        """
    )
    code, out, err = run("triggers", "plan")
    assert (code, out) == (1, "")
    lines = err.splitlines()
    for part in (
        "'idu' is a key column",
        "'nothing' is not an attribute of the class",
        "there is no table or view 'nobody'",
        "'usr_phone' cannot be a class: it has no primary key",
        "there is no base table 'nowhere'",
    ):
        assert sum(line.startswith("eventlog: ") and part in line for line in lines) == 1, part
    assert len(lines) == 5


@pytest.mark.usefixtures("logged")
def test_init_fills_the_watches_in_from_the_database(
    run: Run, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.begin() as conn:
        conn.exec_driver_sql(MORE_TABLES)
    code, _, err = run("init", "--tables")
    assert (code, "has [[watch]] sections already" in err) == (2, True)
    Path("eventlog.toml").write_text('# mine\n[database]\nschema_name = "hr"\n')
    code, _, err = run("init", "--tables")
    assert (code, err.splitlines()) == (
        0,
        [
            "eventlog.toml: 4 [[watch]] added",
            "2 child tables, whose rows are values of other objects: grp_note (of grp), "
            "usr_phone (of usr)",
            "2 not watched: loose (no primary key), view_usr (a view: see `view` and `base`)",
            "Review them, then run: eventlog db upgrade, eventlog triggers plan",
        ],
    )
    text = Path("eventlog.toml").read_text()
    assert text.startswith('# mine\n[database]\nschema_name = "hr"\n')
    assert [one["table"] for one in tomllib.loads(text)["watch"]] == [
        "grp",
        "parts",
        "tmp_load",
        "usr",
    ]
    for line in (
        '#exclude = ["password_hash"]  # named like secrets: remove the #, unless they should '
        "be sent",
        '# with its child table "usr_phone"',
        '# not watched: "loose", no primary key',
        '# not watched: "view_usr", a view: see `view` and `base`',
    ):
        assert line in text.splitlines()
    assert run("triggers", "apply")[0] == 0

    Path("eventlog.toml").unlink()
    url = database.url.set(password="s3cret").render_as_string(hide_password=False)
    monkeypatch.delenv("EVENTLOG_DATABASE_URL")
    assert run("--database-url", url, "--schema", "hr", "init", "--tables")[0] == 0
    text = Path("eventlog.toml").read_text()
    assert "s3cret" not in text
    written = tomllib.loads(text)
    assert (written["database"]["schema_name"], len(written["watch"])) == ("hr", 4)
    assert run("triggers", "plan", "--check")[0] == 0
    assert "--tables only adds to a file" in run("init", "--tables", "--force")[2]


@pytest.mark.promise("option init--tables")
def test_a_schema_without_tables_is_named_and_no_pattern_is_spoken_of(
    run: Run, database: sa.Engine
) -> None:
    Path("eventlog.toml").unlink()
    with database.begin() as conn:
        conn.exec_driver_sql("CREATE SCHEMA other")
    code, _, err = run("--schema", "other", "init", "--tables")
    assert (code, Path("eventlog.toml").exists()) == (2, False)
    assert (
        'there is no table with a primary key of schema "other": name the schema of the application'
        in err
    )
    assert "*" not in err


def test_names_of_secrets_are_those_of_crypts_too(run: Run, database: sa.Engine) -> None:
    Path("eventlog.toml").unlink()
    with database.begin() as conn:
        conn.exec_driver_sql("ALTER TABLE hr.usr ADD pass_crypt text, ADD pass_salt text")
    assert run("--schema", "hr", "init", "--tables")[0] == 0
    assert (
        '#exclude = ["password_hash", "pass_crypt", "pass_salt"]'
        in Path("eventlog.toml").read_text()
    )


@pytest.mark.usefixtures("logged")
def test_references_of_views_that_stay_values_are_reported(run: Run, database: sa.Engine) -> None:
    with database.begin() as conn:
        conn.exec_driver_sql("ALTER TABLE hr.usr ADD boss integer REFERENCES hr.usr")
        conn.exec_driver_sql(
            "CREATE VIEW hr.view_boss AS SELECT idu AS pk_idu, boss AS fk__idu__boss FROM hr.usr"
        )
    Path("eventlog.toml").write_text(
        '[database]\nschema_name = "hr"\n[format]\nreferential = "dn"\n[[watch]]\nview = '
        '"view_boss"\nbase = { usr = { idu = "pk_idu", boss = "fk__idu__boss" } }\n'
    )
    code, out, err = run("triggers", "plan")
    assert code == 0
    assert "view_boss: fk__idu__boss are sent as plain values, because" in out + err


@pytest.mark.promise("code finding-child_values")
@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize("format", ["debezium", "qlik-messages"])
def test_init_makes_classes_of_child_tables_for_a_format_of_rows(
    run: Run, database: sa.Engine, format: str
) -> None:
    """A child table with a primary key is its own class; the values of one without are excluded."""
    with database.begin() as conn:
        conn.exec_driver_sql(MORE_TABLES)
        conn.exec_driver_sql(
            "CREATE TABLE hr.usr_mail (idu integer REFERENCES hr.usr, mail text PRIMARY KEY)"
        )
    path = Path("eventlog.toml")
    sink = (
        '[sink]\ntype = "stdout"\n'
        if format == "debezium"
        else '[sink]\ntype = "kafka"\nbrokers = "b:9092"\n'
    )
    head = f'[database]\nschema_name = "hr"\n[format]\ntype = "{format}"\n{sink}'
    path.write_text(head)
    assert run("init", "--tables")[0] == 0
    watches = {one["table"]: one for one in tomllib.loads(path.read_text())["watch"]}
    assert set(watches) == {"grp", "grp_note", "parts", "tmp_load", "usr", "usr_mail"}
    assert watches["usr"]["exclude"] == ["usr_phone.phoneno"]
    assert (
        '# named like secrets, add them to exclude unless they should be sent: ["password_hash"]'
        in path.read_text()
    )
    assert run("triggers", "apply")[0] == 0
    assert "child_values" not in run("doctor")[1]

    path.write_text(f'{head}[[watch]]\ntable = "usr"\n')
    found = [
        one
        for one in json.loads(run("doctor", "--json")[1])["findings"]
        if one["code"] == "child_values"
    ]
    assert [one["severity"] for one in found] == ["error", "error"]
    mail, phone = sorted(found, key=lambda one: one["text"])
    assert "events with values of usr_mail get status E" in mail["text"]
    assert '[[watch]] with table = "usr_mail"' in mail["fix"][0]
    assert "add a primary key to usr_phone" in phone["fix"][0]


@pytest.mark.usefixtures("logged")
def test_a_dry_run_changes_nothing_and_shows_what_would_be(run: Run, database: sa.Engine) -> None:
    before = everything(database)
    code, out, _ = run("triggers", "apply", "--dry-run")
    assert (code, out.splitlines()[-1], everything(database)) == (
        0,
        "2 changes would be applied.",
        before,
    )
    assert run("triggers", "apply")[0] == 0
    before = everything(database)
    code, out, _ = run("triggers", "drop", "--drop-log", "--dry-run")
    assert (code, everything(database)) == (0, before)
    assert out.splitlines()[-2:] == [
        "2 tables would be captured no longer.",
        "The log eventlog would be dropped.",
    ]
    log_rows(database)
    code, _, err = run("triggers", "drop", "--drop-log", "--dry-run")
    assert (code, "not published" in err) == (2, True)


def everything(database: sa.Engine) -> object:
    """The catalogue, and the rows of the log where there is one."""
    with database.connect() as conn:
        found = catalogue(database)
        if ("class", "hr", "eventlog") not in found:
            return found
        return found, conn.exec_driver_sql(
            "SELECT record_id, status FROM hr.eventlog ORDER BY 1"
        ).all()


@pytest.mark.promise("option several--sql")
def test_migrations_can_be_printed_without_a_server(run: Run, database: sa.Engine) -> None:
    code, sql, err = run(
        "--database-url", "postgresql://nobody@localhost:1/nowhere", "db", "upgrade", "--sql"
    )
    assert (code, err) == (0, "")
    before = catalogue(database)
    with database.begin() as conn:
        conn.exec_driver_sql(sql, execution_options={"no_parameters": True})
    assert run("triggers", "apply")[0] == 0
    assert log_rows(database) == [(1, "idu=1", "fname")]
    assert run("triggers", "drop")[0] == 0
    _, sql, _ = run("db", "downgrade", "base", "--sql")
    with database.begin() as conn:
        conn.exec_driver_sql(sql, execution_options={"no_parameters": True})
    assert catalogue(database) == before


@pytest.mark.usefixtures("logged")
def test_plan_shows_what_apply_would_do_and_check_reports_it_by_the_exit_code(run: Run) -> None:
    code, out, err = run("triggers", "plan")
    assert (code, err) == (0, "Run `eventlog triggers apply` to do this.\n")
    assert "+ hr.usr: " in out
    assert "+ hr.usr_phone: " in out
    assert run("triggers", "plan", "--check")[0] == ExitCode.NO
    code, out, err = run("triggers", "apply")
    assert (code, "2 changes applied." in out, err) == (0, True, "")
    code, out, err = run("triggers", "plan", "--check")
    assert (code, "Nothing to do" in out, err) == (0, True, "")


@pytest.mark.promise("exit triggers apply 1")
def test_plan_can_be_read_before_the_log_is_made(run: Run, database: sa.Engine) -> None:
    before = catalogue(database)
    code, out, err = run("triggers", "plan")
    assert (code, err) == (0, "")  # apply would be refused: the warning names what comes first
    planned = [line for line in out.splitlines() if line.startswith("+ ")]
    assert [line.split(":")[0] for line in planned] == ["+ hr.usr", "+ hr.usr_phone"]
    assert (
        "there is no log table 'eventlog' in schema 'hr': create it with `eventlog db upgrade`"
        in out
    )
    assert run("triggers", "plan", "--check")[0] == ExitCode.NO
    assert run("triggers", "apply", "--dry-run")[0] == 0
    code, _, err = run("triggers", "apply")
    assert (code, "create it with `eventlog db upgrade`" in err) == (1, True)
    assert catalogue(database) == before
    run("db", "upgrade")
    after = run("triggers", "plan")[1]
    assert "db upgrade" not in after


def test_a_plan_without_a_log_refuses_what_cannot_be_compiled(run: Run) -> None:
    Path("eventlog.toml").write_text(f'{CONFIG}[[watch]]\ntable = "nowhere"\n')
    code, _, err = run("triggers", "plan")
    assert (code, "nowhere" in err, "db upgrade" in err) == (2, True, False)


@pytest.mark.usefixtures("logged")
def test_plan_reports_that_no_table_is_declared(run: Run) -> None:
    Path("eventlog.toml").write_text('[database]\nschema_name = "hr"\n')
    assert "no [[watch]] that names a table" in run("triggers", "plan")[1]


def test_quiet_applies_and_drops_without_a_word(run: Run) -> None:
    for command in (("db", "upgrade"), ("triggers", "apply"), ("triggers", "drop", "--drop-log")):
        assert run("--quiet", *command) == (0, "", "")


@pytest.mark.usefixtures("installed")
def test_plan_shows_what_must_be_replaced_and_dropped(run: Run) -> None:
    Path("eventlog.toml").write_text(
        CONFIG.replace('exclude = ["password_hash"]', 'row_style = "remove_all"')
    )
    _, out, _ = run("triggers", "plan", "--json")
    planned = json.loads(out)
    assert {action["table"]: action["kind"] for action in planned["actions"]}["hr.usr"] == "replace"
    assert any("password_hash" in warning for warning in planned["warnings"])
    Path("eventlog.toml").write_text(CONFIG.split("[[watch]]")[0])
    assert "- hr.usr: " in run("triggers", "plan")[1]


@pytest.mark.usefixtures("logged")
def test_the_printed_sql_does_what_apply_does(run: Run, database: sa.Engine) -> None:
    code, sql, _ = run("triggers", "apply", "--sql")
    assert code == 0
    assert run("triggers", "plan", "--sql")[1] == sql
    assert run("triggers", "plan", "--check")[0] == ExitCode.NO
    with database.execution_options(isolation_level="AUTOCOMMIT").connect() as conn:
        conn.exec_driver_sql(sql, execution_options={"no_parameters": True})
    assert run("triggers", "plan", "--check")[0] == 0


@pytest.mark.promise("command triggers list", "option triggers-list--sql")
@pytest.mark.usefixtures("logged")
def test_show_lists_what_is_installed(run: Run, database: sa.Engine) -> None:
    assert "No triggers are installed" in run("triggers", "list")[2]
    assert run("triggers", "apply")[0] == 0
    code, out, err = run("triggers", "list")
    assert (code, "hr.usr_phone" in out, err) == (0, True, "")
    shown = json.loads(run("triggers", "list", "--json")[1])
    assert {one["table"] for one in shown} == {"hr.usr", "hr.usr_phone"}
    assert all(one["enabled"] for one in shown)
    _, sql, _ = run("triggers", "list", "--sql")
    assert (
        sql.count("CREATE OR REPLACE FUNCTION") == 4
    )  # a table each: the function, and whether it fits the table
    assert sql.count("CREATE TRIGGER") == len(shown)
    # Another log's triggers are not ours to show.
    assert run("--log-table", "other", "db", "upgrade")[0] == 0
    assert json.loads(run("--log-table", "other", "triggers", "list", "--json")[1]) == []


@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize(
    ("watch", "part"),
    [
        ('table = "nowhere"', "nowhere"),
        ('table = "usr"\nexclude = ["idu"]', "idu"),
        ('table = "parts"\ntrigger_level = "statement"', "parts is partitioned"),
        (
            'view = "view_usr"\nbase = { usr = { fname = "sv_fname" } }',
            "no column is mapped to 'pk_idu'",
        ),
        ('view = "view_usr"\nbase = { nobody = { idu = "pk_idu" } }', "no base table 'nobody'"),
    ],
)
def test_a_watch_that_cannot_be_is_refused_in_one_line(run: Run, watch: str, part: str) -> None:
    Path("eventlog.toml").write_text(f'[database]\nschema_name = "hr"\n[[watch]]\n{watch}\n')
    code, out, err = run("triggers", "plan")
    assert code in (1, 2)
    assert (out, err.count("\n")) == ("", 1)
    assert part in err


def test_without_a_log_the_message_explains_how_to_make_one(run: Run) -> None:
    code, _, err = run("triggers", "list")
    assert code == 1
    assert "eventlog db upgrade" in err


@pytest.mark.usefixtures("logged")
def test_init_makes_a_table_whose_key_is_its_foreign_key_a_class_and_names_child_tables(
    run: Run, database: sa.Engine
) -> None:
    with database.begin() as conn:
        conn.exec_driver_sql(
            "CREATE TABLE hr.manager (idu integer PRIMARY KEY REFERENCES hr.usr, office text)"
        )
    Path("eventlog.toml").write_text('[database]\nschema_name = "hr"\n')
    code, _, err = run("init", "--tables")
    assert code == 0
    assert "1 child table, whose rows are values of other objects: usr_phone (of usr)" in err
    written = tomllib.loads(Path("eventlog.toml").read_text())
    assert [one["table"] for one in written["watch"]] == ["manager", "parts", "usr"]


# --- a capture that has ended -------------------------------------------------------------------


def end_the_capture_of_phones(run: Run, database: sa.Engine) -> None:
    """``usr_phone`` gets a second column, and the triggers are applied."""
    assert run("triggers", "apply", "-y")[0] == 0
    with database.begin() as conn:
        conn.exec_driver_sql("ALTER TABLE hr.usr_phone ADD kind text")
    assert run("triggers", "apply", "-y")[0] == 0


@pytest.mark.promise("command triggers accept", "exit doctor 4", "code finding-capture_ended")
@pytest.mark.usefixtures("logged")
def test_a_child_table_that_is_none_any_more_is_an_error_until_it_is_accepted(
    run: Run, database: sa.Engine
) -> None:
    end_the_capture_of_phones(run, database)
    why = "it is no longer a child table of usr: it has columns phoneno, kind in addition to"
    code, out, _ = run("triggers", "plan", "--check")
    assert (code, why in out) == (ExitCode.NO, True)
    assert "  eventlog triggers accept hr.usr_phone" in out.splitlines()
    code, out, _ = run("doctor", "--json")
    (found,) = [one for one in json.loads(out)["findings"] if one["code"] == "capture_ended"]
    assert (code, found["severity"], why in found["text"]) == (ExitCode.NO, "error", True)
    config = load(Path("eventlog.toml"), os.environ)
    with reading(config) as db:
        (sentence,) = differences(find_log(db, config), config).uncaptured
    assert sentence.startswith(f"hr.usr_phone: {why}")
    assert run("triggers", "accept", "usr_phone")[0] == 0
    assert run("triggers", "plan", "--check")[0] == 0
    assert "capture_ended" not in run("doctor", "--json")[1]


@pytest.mark.usefixtures("logged")
def test_a_table_whose_capture_has_ended_may_become_a_class(run: Run, database: sa.Engine) -> None:
    end_the_capture_of_phones(run, database)
    with database.begin() as conn:
        conn.exec_driver_sql("ALTER TABLE hr.usr_phone ADD PRIMARY KEY (idu, phoneno)")
    with Path("eventlog.toml").open("a") as file:
        file.write('[[watch]]\ntable = "usr_phone"\n')
    assert run("triggers", "apply", "-y")[0] == 0
    assert run("triggers", "plan", "--check")[0] == 0


@pytest.mark.usefixtures("logged")
def test_a_table_of_a_pattern_that_loses_its_key_is_an_error(run: Run, database: sa.Engine) -> None:
    Path("eventlog.toml").write_text('[database]\nschema_name = "hr"\n[[watch]]\ntables = ["*"]\n')
    assert run("triggers", "apply", "-y")[0] == 0
    with database.begin() as conn:
        conn.exec_driver_sql("ALTER TABLE hr.parts DROP CONSTRAINT parts_pkey")
    assert run("triggers", "apply", "-y")[0] == 0
    code, out, _ = run("triggers", "plan", "--check")
    assert (code, "! hr.parts: it has no primary key any more" in out) == (ExitCode.NO, True)


@pytest.mark.usefixtures("logged")
def test_a_table_that_its_watch_leaves_out_has_not_ended(run: Run, database: sa.Engine) -> None:
    with database.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE hr.grp (k integer PRIMARY KEY, v text)")
    before = '[database]\nschema_name = "hr"\n[[watch]]\ntables = ["*"]\n'
    Path("eventlog.toml").write_text(before)
    assert run("triggers", "apply", "-y")[0] == 0
    left_out = 'exclude_tables = ["grp"]\nexclude = ["usr_phone.phoneno"]\n'
    Path("eventlog.toml").write_text(before + left_out)
    assert run("triggers", "apply", "-y")[0] == 0
    assert run("triggers", "plan", "--check")[0] == 0
    code, _, err = run("triggers", "accept", "grp")
    assert (code, "the capture of grp has not ended" in err) == (2, True)


@pytest.mark.usefixtures("logged")
def test_a_table_that_was_dropped_has_not_ended(run: Run, database: sa.Engine) -> None:
    end_the_capture_of_phones(run, database)
    with database.begin() as conn:
        conn.exec_driver_sql("DROP TABLE hr.usr_phone")
    assert run("triggers", "plan", "--check")[0] == 0


@pytest.mark.promise("option watch.renamed_from")
@pytest.mark.usefixtures("logged")
def test_a_renamed_table_is_proposed_by_its_present_name_and_not_by_the_nearest(
    run: Run, database: sa.Engine
) -> None:
    with Path("eventlog.toml").open("a") as file:
        file.write('[[watch]]\ntable = "parts"\n')
    assert run("triggers", "apply", "-y")[0] == 0
    with database.begin() as conn:
        conn.exec_driver_sql(
            "CREATE TABLE hr.part (k integer PRIMARY KEY); ALTER TABLE hr.parts RENAME TO item; "
            "ALTER TABLE hr.usr_phone RENAME TO phone"
        )
    _, out, err = run("triggers", "plan")
    assert "the table 'parts' has the name 'item' now" in err
    assert "the nearest" not in err
    lines = out.splitlines()
    first = lines.index(
        "Tables were renamed. In eventlog.toml, add to each [[watch]], or change in it:"
    )
    assert lines[first + 1 : first + 7] == [
        "  [[watch]]",
        '  table = "item"',
        '  renamed_from = ["parts"]',
        "  [[watch]]",
        '  table = "usr"',
        '  renamed_from = ["usr_phone"]',
    ]
    text = Path("eventlog.toml").read_text().replace('"parts"', '"item"\nrenamed_from = ["parts"]')
    Path("eventlog.toml").write_text(text)
    assert '["parts"]' not in run("triggers", "plan")[1]


@pytest.mark.usefixtures("logged")
def test_a_plan_as_json_has_an_object_for_each_renamed_table(run: Run, database: sa.Engine) -> None:
    assert run("triggers", "apply", "-y")[0] == 0
    with database.begin() as conn:
        conn.exec_driver_sql("ALTER TABLE hr.usr_phone RENAME TO phone")
    assert json.loads(run("triggers", "plan", "--json")[1])["renamed"] == [
        {"former": "usr_phone", "present": "phone", "watch": "usr"}
    ]


def test_init_shows_what_the_styles_cost_for_a_table_of_many_columns(
    run: Run, database: sa.Engine
) -> None:
    with database.begin() as conn:
        conn.exec_driver_sql(
            "CREATE TABLE hr.wide (k integer PRIMARY KEY, a text, b text, c text, d text, e text, "
            "f text, g text);"
            "INSERT INTO hr.wide SELECT n, 'x', 'x', 'x', 'x', 'x' FROM generate_series(1, 300) n;"
            "ANALYZE hr.wide"
        )
    with database.begin() as conn:
        conn.exec_driver_sql("SELECT pg_stat_force_next_flush()")
    Path("eventlog.toml").write_text('[database]\nschema_name = "hr"\n')
    assert run("init", "--tables")[0] == 0
    (line,) = (one for one in Path("eventlog.toml").read_text().splitlines() if "row_style" in one)
    assert line == (
        '#row_style = "row_query_back"  # an insert logs 1 row; in the style field about 5 rows; '
        "300 inserts so far, 0 updates"
    )
