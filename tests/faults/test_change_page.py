"""docs/guides/change-a-schema.md: each recipe is run, and then a receiver has what the tables
hold.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import install
from recipes import CHANGES, RECIPES, TABLES, Copy, config_text, differences
from shared import Run, execute, fetch, in_ci, url_of
from test_schema_change_promise import recipes_of_ci

from eventlog.config.load import load

FIRST = (
    "INSERT INTO usr SELECT i, 'n' || i, 'k' || i, 'c' || i, i, 'secret' FROM generate_series(1, "
    "5) i",
    "INSERT INTO usr_phone SELECT i, '555-' || i FROM generate_series(1, 3) i",
    "INSERT INTO item SELECT i, 'n' || i FROM generate_series(1, 5) i",
    "INSERT INTO emp SELECT i, 'n' || i FROM generate_series(1, 5) i",
    "INSERT INTO sale SELECT i, make_date(2022 + i, 5, 6), 'n' || i FROM generate_series(1, 2) i",
)
# What the application writes between a change and the end of its recipe, by its heading; else the
# usual.
USUAL = (
    "UPDATE usr SET age = age + 100 WHERE id = 1; DELETE FROM usr WHERE id = 2",
    "INSERT INTO usr (id, name) VALUES (9, 'x')",
    "INSERT INTO usr_phone VALUES (9, '1'); DELETE FROM usr_phone WHERE id = 3",
    "UPDATE item SET name = 'x' WHERE id = 1; DELETE FROM item WHERE id = 2; INSERT INTO item "
    "VALUES (9, 'x')",
    "UPDATE emp SET name = 'x' WHERE id = 1; DELETE FROM emp WHERE id = 2; INSERT INTO emp VALUES "
    "(9, 'x')",
    "UPDATE sale SET name = 'x' WHERE id = 2; INSERT INTO sale VALUES (9, '2024-05-06', 'x')",
)
WRITES = {
    "Change the key": [
        one.replace("item SET name = 'x' WHERE id", "item SET name = 'x' WHERE number").replace(
            "item WHERE id", "item WHERE number"
        )
        for one in USUAL
    ],
    "Move a table to another schema, or drop it": [one for one in USUAL if "item" not in one],
    "Rename a table": [one.replace("item", "article") for one in USUAL],
    "A column of a view's base table": [
        one.replace("emp SET name", "emp SET full_name") for one in USUAL
    ],
    "Add a column": [*USUAL, "UPDATE usr SET mail = 'a@b.c' WHERE id = 4"],
    "Rename a column": [*USUAL, "UPDATE usr SET town = 'Rome' WHERE id = 4"],
    "Add a partition": [*USUAL, "INSERT INTO sale VALUES (8, '2025-05-06', 'x')"],
}


class Site:
    """A database with the tables of the page, the file, and the command line."""

    def __init__(self, database: sa.Engine, directory: Path, run: Run) -> None:
        self.database, self.documents, self.run = database, directory / "documents", run
        self.copy = Copy("")
        self.save()

    def save(self) -> None:
        sections = {
            "database": {"url": url_of(self.database)},
            "publisher": {"allow_loopback": True},
            "sink": {"type": "files", "directory": str(self.documents)},
        }
        Path("eventlog.toml").write_text(config_text(sections, self.copy.watches), encoding="utf-8")

    def eventlog(self, *words: str) -> str:
        code, out, err = self.run(*words)
        assert code == 0, f"{words}: {out}{err}"
        return out


def install_tables(database: sa.Engine) -> None:
    """The tables of the page, and their log and triggers as the commands make them."""
    execute(database, *(step.text for step in RECIPES[TABLES] if step.language == "sql"))
    sections = {"database": {"url": url_of(database)}}
    text = config_text(sections, Copy("").watches)
    install(load(tomllib.loads(text), {}))


@pytest.fixture
def database(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(install_tables) as database:
        yield database


@pytest.fixture
def site(database: sa.Engine, empty_home: Path, run: Run) -> Site:
    site = Site(database, empty_home, run)
    execute(database, *FIRST)
    site.eventlog("publish", "--once")
    assert differences(database, site.copy.watches, site.documents) == []
    return site


@pytest.mark.parametrize("heading", in_ci(CHANGES, *(set(CHANGES) - recipes_of_ci())))
def test_after_the_recipe_a_receiver_has_what_the_tables_hold(
    database: sa.Engine, site: Site, heading: str
) -> None:
    steps = RECIPES[heading]
    changes = [number for number, step in enumerate(steps) if step.language == "sql"]
    written = changes[0] if heading.startswith("Drop the primary key") else changes[-1]
    for number, step in enumerate(steps):
        site.copy.declare(step)
        site.save()
        if step.language == "sql":
            execute(database, *site.copy.statements(step))
        if step.language == "sh":
            for words in site.copy.lines(step):
                site.eventlog(*words)
        if number == written:
            execute(database, *WRITES.get(heading, USUAL))
    site.eventlog("publish", "--once", "--allow-refused")
    assert differences(database, site.copy.watches, site.documents) == []
    lost = {
        "A child table that gains a column": {"unknown_column"},
        "Change the key": {"bad_table_key"},
    }.get(heading, set())
    assert {code for (code,) in fetch(database, "SELECT code FROM eventlog_error")} <= lost
    assert fetch(database, "SELECT count(*) FROM eventlog WHERE status = 'N'") == [(0,)]
    findings = json.loads(site.run("doctor", "--json")[1])["findings"]
    open_ = {
        "resync_due",
        "trigger_drifted",
        "trigger_missing",
        "trigger_disabled",
        "watch_refused",
    }
    assert [one["text"] for one in findings if one["code"] in open_] == []


def test_every_section_of_the_page_that_has_a_block_is_run() -> None:
    assert len(CHANGES) == 15
    assert all(
        steps[0].language == "sql" and steps[-1].language == "sh"
        for steps in map(RECIPES.get, CHANGES)
        if steps
    )
