"""The watched tables change while a publisher runs: it says so, once, and no row goes bad (issue 5, schema drift)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, is_drained, publishing, runs, write_config
from shared import execute, statuses, url_of, wait_until

from eventlog.cli.context import reading
from eventlog.cli.status import drift as drift_in_status
from eventlog.cli.triggers import planned_triggers
from eventlog.config.load import Config, load
from eventlog.publisher import open_log
from eventlog.publisher.doctor import examine
from eventlog.sql.triggers import TriggerPlan

USR = "CREATE TABLE usr (id integer PRIMARY KEY, name text, age integer, nick varchar(40))"
WATCH: dict[str, Any] = {"table": "usr"}


def watched(engine: sa.Engine, tmp_path: Path, *watches: dict[str, Any]) -> Config:
    execute(engine, USR)
    config = load(
        write_config(
            tmp_path, url_of(engine), watches or (WATCH,), publisher={"polling_interval": 1, "allow_loopback": True}
        ),
        {},
    )
    install(config)
    return config


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def log_row(event_type: int, column: str | None, value: str | None, key: str = "id=1") -> str:
    texts = ", ".join("NULL" if text is None else f"'{text}'" for text in (column, value))
    return (
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value)"
        f" VALUES ({event_type}, 'usr', '{key}', {texts})"
    )


CHANGES = {
    "add": (
        "ALTER TABLE usr ADD mail text",
        log_row(2, "mail", "a@b.c"),
        "usr: column mail (text) is new",
        ["<add-attr attr-name=", 'attr-name="mail"', "a@b.c"],
    ),
    "drop": (
        "ALTER TABLE usr DROP nick",
        log_row(2, "nick", "Jay"),
        "usr: column nick is gone",
        ['attr-name="nick"', "Jay"],
    ),
    "rename": (
        "ALTER TABLE usr RENAME nick TO alias",
        log_row(2, "alias", "Jay"),
        "usr: column nick is called alias now (or was dropped, and alias added)",
        ['attr-name="alias"', "Jay"],
    ),
    "retype": (
        "ALTER TABLE usr ALTER age TYPE bigint",
        log_row(2, "age", "3000000000"),
        "usr: column age is bigint now, and was integer",
        ['attr-name="age"', "3000000000"],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_running_publisher_takes_a_change_up_and_no_row_goes_bad(
    database: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    statement, row, sentence, parts = CHANGES[change]
    config = watched(database, tmp_path)
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(database, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
        wait_until(lambda: len(sink.documents) == 1 and is_drained(database, running), "the first row is sent")
        execute(database, statement, row)
        wait_until(lambda: len(sink.documents) == 2 and is_drained(database, running), "the second row is sent")
        execute(database, row)
        wait_until(lambda: len(sink.documents) == 3 and is_drained(database, running), "the third row is sent")
    assert set(statuses(database).values()) == {"S"}
    assert all(part in sink.bodies[1] for part in parts[-2:])
    if change != "drop":  # whose rows are good by the old catalogue, so nothing hurries
        assert warnings_of(caplog) == [f"{sentence}; see `eventlog triggers plan`, then `eventlog triggers apply`"]


def test_a_new_table_of_a_pattern_is_published_by_a_publisher_that_runs(database: sa.Engine, tmp_path: Path) -> None:
    config = watched(database, tmp_path, {"tables": ["*"]})
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(database, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
        wait_until(lambda: len(sink.documents) == 1 and is_drained(database, running), "the first row is sent")
        for name in ("later", "latest"):
            execute(database, f"CREATE TABLE {name} (id integer PRIMARY KEY, name text)")
            install(config)
            execute(database, f"INSERT INTO {name} VALUES (1, 'x')")
            wait_until(lambda: is_drained(database, running), "the row of the new table is sent")
    assert set(statuses(database).values()) == {"S"}
    assert [name in body for name, body in zip(("later", "latest"), sink.bodies[1:], strict=True)] == [True, True]


def test_a_look_at_the_tables_comes_by_the_clock_too(
    database: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_log, "CATALOG_INTERVAL", 0.0)
    config = watched(database, tmp_path)
    with publishing(config, Collecting()):
        wait_until(lambda: runs(database), "it runs")
        execute(database, "ALTER TABLE usr DROP nick")
        wait_until(lambda: bool(warnings_of(caplog)), "it says so")
    (warning,) = warnings_of(caplog)
    assert warning.startswith("usr: column nick is gone; see")


QUERY_BACK: dict[str, tuple[dict[str, Any], str, Callable[[str], bool]]] = {
    "a whole row": ({"style": "row_query_back"}, log_row(6, None, None), lambda body: '"nick"' not in body),
    "a column that is gone": (
        {"style": "field_query_back"},
        log_row(8, "nick", None),
        lambda body: "<remove-all-values/>" in body and '"nick"' in body,
    ),
}


@pytest.mark.parametrize("case", QUERY_BACK)
def test_reading_back_goes_on_without_a_column_that_is_gone(database: sa.Engine, tmp_path: Path, case: str) -> None:
    settings, row, is_right = QUERY_BACK[case]
    config = watched(database, tmp_path, WATCH | settings)
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(database, "INSERT INTO usr VALUES (1, 'Jack', 7, 'Jay')")
        wait_until(lambda: len(sink.documents) == 1 and is_drained(database, running), "the first row is sent")
        execute(database, "ALTER TABLE usr DROP nick", row)
        wait_until(lambda: len(sink.documents) == 2 and is_drained(database, running), "the second row is sent")
    assert set(statuses(database).values()) == {"S"}
    assert is_right(sink.bodies[1]), sink.bodies[1]


def test_a_table_that_can_be_no_class_any_more_is_said_once_and_publishing_goes_on(
    database: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = watched(database, tmp_path)
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(database, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
        wait_until(lambda: len(sink.documents) == 1, "the first row is sent")
        execute(
            database, "ALTER TABLE usr DROP CONSTRAINT usr_pkey", log_row(2, "nobody", "x"), log_row(2, "name", "John")
        )
        wait_until(lambda: len(sink.documents) == 2 and is_drained(database, running), "the second row is sent")
        execute(database, log_row(2, "nobody", "x"))
        wait_until(lambda: is_drained(database, running), "the third row is marked")
    assert list(statuses(database).values()) == ["S", "E", "S", "E"]
    (warning,) = warnings_of(caplog)
    assert warning.startswith(
        "the tables have changed, and the publisher goes on with what it knows of them: 'usr' cann"
    )


def test_another_key_is_said_before_rows_of_the_old_one_become_bad(
    database: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = watched(database, tmp_path)
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(database, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
        wait_until(lambda: len(sink.documents) == 1 and is_drained(database, running), "the first row is sent")
        execute(
            database, "ALTER TABLE usr RENAME id TO no", log_row(4, None, None, "id=1"), log_row(4, None, None, "no=1")
        )
        wait_until(lambda: len(sink.documents) == 2 and is_drained(database, running), "the third row is sent")
    assert list(statuses(database).values()) == ["S", "E", "S"]
    (warning,) = warnings_of(caplog)
    assert warning.startswith(
        "usr: column id is called no now (or was dropped, and no added); the key is no now, and was id: rows that were "
        "logged by the old one become E; see `eventlog triggers plan`"
    )


def plan_of(config: Config) -> TriggerPlan:
    with reading(config) as (conn, dialect):
        return planned_triggers(conn, dialect, config)


def drift_of(config: Config) -> list[str]:
    with reading(config) as (conn, dialect):
        return drift_in_status(conn, dialect, config)


PLANS = {
    "add": (
        "ALTER TABLE usr ADD mail text",
        "column mail (text) is new to the watch, and not captured yet",
    ),
    "drop": (
        "ALTER TABLE usr DROP nick",
        "column nick is gone; the triggers still name nick: they log rows to be read back until they are applied",
    ),
    "rename": (
        "ALTER TABLE usr RENAME nick TO alias",
        "column nick is called alias now (or was dropped, and alias added); the triggers still name nick: they log "
        "rows to be read back until they are applied",
    ),
    "retype": ("ALTER TABLE usr ALTER age TYPE bigint", "column age is bigint now, and was integer"),
}


@pytest.mark.parametrize("change", PLANS)
def test_the_plan_the_status_and_the_doctor_say_what_has_changed(
    database: sa.Engine, tmp_path: Path, change: str
) -> None:
    statement, words = PLANS[change]
    config = watched(database, tmp_path)
    assert [action.kind for action in plan_of(config).actions] == ["unchanged"]
    execute(database, statement)
    (action,) = plan_of(config).changes
    assert (action.kind, action.reason) == ("replace", words)
    (finding,) = [one for one in examine(config, planned_triggers) if one.code == "trigger_drifted"]
    assert finding.text == f"triggers of public.usr are not as declared: {words}"
    assert drift_of(config) == [f"public.usr: {words}"]
    install(config)
    assert [action.kind for action in plan_of(config).actions] == ["unchanged"]
    assert drift_of(config) == []


SQLITE_PLANS = {
    "ALTER TABLE usr ADD mail text": "column mail (TEXT) is new to the watch, and not captured yet",
    "ALTER TABLE usr RENAME nick TO alias": "column nick is called alias now (or was dropped, and alias added)",
}


@pytest.mark.parametrize("statement", SQLITE_PLANS)
def test_the_plan_says_it_on_sqlite_too(tmp_path: Path, statement: str) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}", poolclass=sa.NullPool)
    config = watched(engine, tmp_path)
    execute(engine, statement)
    (action,) = plan_of(config).changes
    assert (action.kind, action.table, action.reason) == ("replace", "usr", SQLITE_PLANS[statement])
    assert drift_of(config) == [f"usr: {SQLITE_PLANS[statement]}"]


def test_a_publisher_on_sqlite_takes_a_new_column_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}", poolclass=sa.NullPool)
    config = watched(engine, tmp_path)
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(engine, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
        wait_until(lambda: len(sink.documents) == 1 and is_drained(engine, running), "the first row is sent")
        execute(engine, "ALTER TABLE usr ADD mail text", log_row(2, "mail", "a@b.c"))
        wait_until(lambda: len(sink.documents) == 2 and is_drained(engine, running), "the second row is sent")
    assert set(statuses(engine).values()) == {"S"}
    assert 'attr-name="mail"' in sink.bodies[1]
    (warning,) = warnings_of(caplog)
    assert warning.startswith("usr: column mail (TEXT) is new; see")
