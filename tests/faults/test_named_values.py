"""A value that is a name, such as one of regclass, has one text, whoever reads it (spec/triggers.md 6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, opened, write_config
from shared import execute, url_of

from eventlog.config.load import load
from eventlog.publisher.daemon import publish_once
from eventlog.sql.connection import open_database

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
