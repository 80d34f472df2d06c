"""A table becomes a child table, or is none any more, while a publisher runs (spec/xds.md 5)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, is_drained, publishing, runs, write_config
from shared import execute, fetch, statuses, url_of, wait_until

from eventlog.cli.context import reading
from eventlog.config.load import Config, load
from eventlog.publisher.declared import catalog_watcher
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.inspect.doctor import examine

TABLES = (
    "CREATE TABLE usr (id integer PRIMARY KEY, name text)",
    "CREATE TABLE tag (id integer REFERENCES usr, word text)",
)
WHY = "it has columns word, since in addition to its foreign key to usr; a child table has exactly one"


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


def watched(engine: sa.Engine, directory: Path, **settings: Any) -> Config:
    options = {"polling_interval": 1, "allow_loopback": True}
    config = load(
        write_config(directory, url_of(engine), ({"table": "usr"} | settings,), publisher=options),
        {},
    )
    install(config)
    return config


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_table_that_becomes_a_child_by_a_dropped_column_is_known_without_a_restart(
    database: sa.Engine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog_watcher, "CATALOG_INTERVAL", 0.0)
    execute(database, *TABLES, "ALTER TABLE tag ADD since date")
    config = watched(database, tmp_path)
    sink = Collecting()
    with publishing(config, sink) as running:
        wait_until(lambda: runs(database), "it runs")
        execute(database, "ALTER TABLE tag DROP since")
        wait_until(lambda: bool(warnings_of(caplog)), "it says so")
        install(config)
        execute(
            database, "INSERT INTO usr VALUES (1, 'Jack')", "INSERT INTO tag VALUES (1, 'tall')"
        )
        wait_until(
            lambda: len(sink.documents) >= 1 and is_drained(database, running), "the rows are sent"
        )
    assert set(statuses(database).values()) == {"S"}
    assert 'attr-name="tag.word"' in "".join(sink.bodies)
    assert warnings_of(caplog)[0].startswith(
        "tag is a child table of usr now; see `eventlog triggers plan`"
    )


def test_a_child_table_that_gets_a_third_column_is_no_longer_captured_and_the_reason_is_reported(
    database: sa.Engine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog_watcher, "CATALOG_INTERVAL", 0.0)
    execute(database, *TABLES)
    config = watched(database, tmp_path)
    with publishing(config, Collecting()):
        wait_until(lambda: runs(database), "it runs")
        execute(database, "ALTER TABLE tag ADD since date")
        wait_until(lambda: bool(warnings_of(caplog)), "it says so")
    assert warnings_of(caplog)[0].startswith(
        f"tag is no longer a child table of usr: {WHY}; its values are not"
    )
    with reading(config) as db:
        (action,) = planned_triggers(db, config).changes
    assert (action.kind, action.table, action.reason) == (
        "drop",
        "public.tag",
        f"no longer watched: {WHY}",
    )
    assert any(WHY in one.text for one in examine(config, planned_triggers))


@pytest.mark.parametrize("row_style", ["field", "row_query_back"])
@pytest.mark.parametrize("trigger_level", ["row", "statement"])
def test_what_a_replication_applies_passes_after_a_dropped_column(
    database: sa.Engine, tmp_path: Path, row_style: str, trigger_level: str
) -> None:
    execute(database, *TABLES, "ALTER TABLE usr ADD age integer")
    watched(
        database,
        tmp_path,
        capture_replicated=True,
        row_style=row_style,
        trigger_level=trigger_level,
    )
    applied = "SET LOCAL session_replication_role = 'replica'"
    execute(database, applied, "INSERT INTO usr VALUES (1, 'Jack', 7)")
    execute(database, "ALTER TABLE usr DROP age")
    execute(
        database,
        applied,
        "INSERT INTO usr VALUES (2, 'Jill')",
        "UPDATE usr SET name = 'Joe' WHERE id = 1",
    )
    execute(database, applied, "DELETE FROM usr WHERE id = 2")
    logged = fetch(database, "SELECT event_type, table_key FROM eventlog ORDER BY record_id")
    assert logged[-3:] == [(5, "id=2"), (6, "id=1"), (4, "id=2")]
