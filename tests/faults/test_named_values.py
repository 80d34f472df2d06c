"""A value that is a name, such as one of regclass, has one text, whoever reads it (spec/triggers.md 6)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, opened, write_config
from shared import Run, execute, fetch, url_of

from eventlog.config.load import load
from eventlog.publisher.run.daemon import publish_once
from eventlog.sql.dialects.postgresql import compile
from eventlog.sql.port.driver_errors import open_database

TABLES = (
    "CREATE TABLE target (id integer PRIMARY KEY)",
    "CREATE TYPE mood AS ENUM ('a')",
    'CREATE TABLE job (rel regclass PRIMARY KEY, kind regtype, rels regclass[], act regproc, "when" text)',
    "CREATE FUNCTION act() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
)
VALUES = "('target', 'mood', '{target,pg_class}', 'act', 'now')"
LOGGED = {
    "kind": "public.mood",
    "rels": ["public.target", "pg_class"],
    "act": "public.act",
    "when": "now",
}


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


def published(database: sa.Engine, directory: Path, **watch: Any) -> list[dict[str, Any]]:
    path = write_config(
        directory, url_of(database), [{"table": "job", **watch}], publisher={"allow_loopback": True},
        format={"type": "cloudevents"},
    )  # fmt: skip
    config, sink = load(path, {}), Collecting()
    install(config)
    with opened(config) as context:
        publish_once(context, sink)
    return [json.loads(line)["data"] for body in sink.bodies for line in body.splitlines()]


@pytest.mark.parametrize("row_style", ["field", "row_query_back"])
def test_a_name_that_is_read_back_has_the_text_that_triggers_log(
    database: sa.Engine, tmp_path: Path, row_style: str
) -> None:
    execute(database, *TABLES)
    published(database, tmp_path, row_style=row_style)
    execute(database, f"INSERT INTO job VALUES {VALUES}")
    (event,) = published(database, tmp_path, row_style=row_style)
    assert event["key"] == {"rel": "public.target"}
    assert {name: value["new"] for name, value in event["columns"].items()} == LOGGED


def test_the_search_path_of_the_session_stays_what_it_was(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, *TABLES)
    published(database, tmp_path)
    execute(database, f"INSERT INTO job VALUES {VALUES}", "DELETE FROM eventlog")
    path = tmp_path / "eventlog.toml"
    with opened(load(path, {})) as context:
        (job,) = context.catalog.classes
        before = context.log.connection.exec_driver_sql("SHOW search_path").scalar_one()
        found = open_database(context.log.connection).query_back(
            "public", job, ["rel=public.target"], job.attributes
        )
        assert found["rel=public.target"]["kind"] == ["public.mood"]
        assert context.log.connection.exec_driver_sql("SHOW search_path").scalar_one() == before


@pytest.mark.parametrize("level", ["row", "statement"])
def test_a_session_that_quotes_all_identifiers_logs_values(
    database: sa.Engine, tmp_path: Path, level: str
) -> None:
    execute(database, *TABLES)
    published(database, tmp_path, trigger_level=level)
    execute(database, f"SET quote_all_identifiers = on; INSERT INTO job VALUES {VALUES}")
    rows = fetch(
        database, "SELECT event_type, table_key, column_name, new_value FROM eventlog ORDER BY 1"
    )
    assert {type_ for type_, *_ in rows} == {1}
    assert {key for _, key, *_ in rows} == {"rel=public.target"}
    assert ("kind", "public.mood") in [(column, value) for *_, column, value in rows]


def test_triggers_of_an_earlier_version_log_as_before_until_they_are_replaced(
    database: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    execute(database, *TABLES)
    rendered = compile.rendered
    with monkeypatch.context() as patch:
        patch.setattr(
            compile, "rendered", lambda *a, **named: compile.as_formerly(rendered(*a, **named))
        )
        published(database, tmp_path)
    execute(database, f"INSERT INTO job VALUES {VALUES}")
    assert {row for (row,) in fetch(database, "SELECT event_type FROM eventlog")} == {1}
    arguments = ("--config", str(tmp_path / "eventlog.toml"))
    code, out, err = run(*arguments, "triggers", "plan")
    assert (code, "because a session with quote_all_identifiers = on" in out) == (0, True), (
        out,
        err,
    )
    for command in ("doctor", "status"):
        _, out, err = run(*arguments, command)
        assert not re.search(r"\[trigger_|uncaptured|drifted|not captured as", out + err), (
            command,
            out,
            err,
        )
    assert run(*arguments, "triggers", "apply", "--yes")[0] == 0
    assert "quote_all_identifiers" not in run(*arguments, "triggers", "plan")[1]
