"""What no trigger has logged: plan and apply tell it, and doctor until its resync was run
(spec/triggers.md 9.1).
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import write_config
from shared import Run, execute, fetch, url_of

from eventlog.model import EventType
from eventlog.sql.windows import Selection

USR = (
    "CREATE TABLE usr (id integer PRIMARY KEY, name text, nick text)",
    "CREATE TABLE phone (id integer REFERENCES usr, no text, UNIQUE (id, no))",
    "INSERT INTO usr VALUES (1, 'Jack', 'Jay'), (2, 'Joe', NULL)",
)
WHOLE = ["eventlog resync usr", "eventlog resync usr --deleted"]
MAIL = "eventlog resync usr --as-update --where '\"mail\" IS NOT NULL'"
SWAP = (
    "CREATE TABLE usr_new AS SELECT * FROM usr",
    "ALTER TABLE usr_new ADD PRIMARY KEY (id)",
    "ALTER TABLE usr RENAME TO usr_old",
    "ALTER TABLE usr_new RENAME TO usr",
)
CHANGES: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "a new column": (("ALTER TABLE usr ADD mail text DEFAULT 'x'",), [MAIL]),
    "two new columns": (
        ("ALTER TABLE usr ADD mail text, ADD fax text",),
        [MAIL, "eventlog resync usr --as-update --where '\"fax\" IS NOT NULL'"],
    ),
    "a renamed column": (
        ("ALTER TABLE usr RENAME nick TO alias",),
        ["eventlog resync usr --as-update --where '\"alias\" IS NOT NULL'"],
    ),
    "a disabled trigger": (("ALTER TABLE usr DISABLE TRIGGER _tgr_usr_u_1",), WHOLE),
    "a trigger for a replication": (
        ("ALTER TABLE usr ENABLE REPLICA TRIGGER _tgr_usr_u_1",),
        WHOLE,
    ),
    "a missing trigger": (("DROP TRIGGER _tgr_usr_d_1 ON usr",), WHOLE),
    "a child table's trigger": (
        ("ALTER TABLE phone DISABLE TRIGGER ALL",),
        ["eventlog resync usr --as-update"],
    ),
    "a new child table": (
        ("CREATE TABLE fax (id integer REFERENCES usr, no text, UNIQUE (id, no))",),
        ["eventlog resync usr --as-update"],
    ),
    "a swap": ((*SWAP, "DROP TABLE phone"), WHOLE),
    "a swap, the old table dropped": ((*SWAP, "DROP TABLE phone, usr_old"), WHOLE),
    "another type": (("ALTER TABLE usr ALTER name TYPE varchar(90)",), []),
    "a column dropped": (("ALTER TABLE usr DROP nick",), []),
    "a new table": (
        ("CREATE TABLE item (id integer PRIMARY KEY, name text)", "INSERT INTO item VALUES (1)"),
        [],
    ),
}


class Site:
    """The command line on a database whose tables are watched; ``answer`` is of ``--json``."""

    def __init__(self, url: str, directory: Path, run: Run) -> None:
        self._run = run
        self.config = write_config(
            directory, url, ({"tables": ["*"], "exclude_tables": ["usr_*"]},)
        )
        assert self.run("db", "upgrade")[0] == self.run("triggers", "apply")[0] == 0

    def run(self, *words: str) -> tuple[int, str, str]:
        return self._run("--config", str(self.config), *words)

    def answer(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json")[1])

    def due(self) -> list[str]:
        """What doctor says is due."""
        found = self.answer("doctor")["findings"]
        return [command for one in found if one["code"] == "resync_due" for command in one["mend"]]


@pytest.fixture
def site(database: sa.Engine, empty_home: Path, run: Run) -> Site:
    execute(database, *USR)
    return Site(url_of(database), empty_home, run)


@pytest.mark.parametrize("change", CHANGES)
def test_apply_names_the_resync_and_doctor_does_until_it_was_run(
    database: sa.Engine, site: Site, change: str
) -> None:
    statements, commands = CHANGES[change]
    assert site.due() == []
    execute(database, *statements)
    assert [one["command"] for one in site.answer("triggers", "plan")["due"]] == commands
    told = site.run("triggers", "apply")[1]
    assert [
        line.strip().partition("    # ")[0]
        for line in told.splitlines()
        if "eventlog resync" in line
    ] == commands
    assert "eventlog resync" not in site.run("triggers", "apply")[1]
    for number, command in enumerate(commands):
        assert site.due() == commands[number:]
        assert site.run(*_words(command))[0] in {
            0,
            1,
        }  # --deleted of a log without rows of the class
    assert site.due() == []
    assert fetch(database, "SELECT * FROM eventlog_resync") == []


def _words(command: str) -> list[str]:
    return shlex.split(command)[1:]


def test_a_resync_settles_what_is_of_the_same_objects_alone(
    database: sa.Engine, site: Site
) -> None:
    execute(database, "ALTER TABLE usr ADD mail text DEFAULT 'x'")
    site.run("triggers", "apply")
    for words in (("--key", "id=1"), ("--where", "id = 1"), ("--deleted",)):
        site.run("resync", "usr", *words)
        assert site.due() == [MAIL], words
    assert site.run("resync", "usr", "--dry-run")[0] == 0
    assert site.due() == [MAIL]
    assert site.run("resync", "usr")[0] == 0
    assert site.due() == []


def test_a_resync_that_began_before_apply_does_not_settle_it(
    database: sa.Engine, site: Site
) -> None:
    digest = Selection("usr", EventType.INSERT_ROW_QUERY_BACK).digest
    begun = "INSERT INTO eventlog_resync (digest, class_name, selection, rows_written) VALUES"
    execute(database, f"{begun} ('{digest}', 'usr', 'whole class, as type 5', 0)")
    execute(database, "ALTER TABLE usr ADD mail text DEFAULT 'x'")
    site.run("triggers", "apply")
    assert site.run("resync", "usr", "--resume")[0] == 0
    assert site.due() == [MAIL]
    assert site.run("resync", "usr")[0] == 0
    assert site.due() == []


def test_nothing_to_resume_does_not_name_what_is_due(database: sa.Engine, site: Site) -> None:
    execute(database, "ALTER TABLE usr ADD mail text")
    site.run("triggers", "apply")
    assert (
        "there is no unfinished resync of usr: leave --resume out"
        in site.run("resync", "usr", "--resume")[2]
    )


def test_apply_without_a_right_to_write_the_positions_says_it_all_the_same(
    database: sa.Engine, site: Site
) -> None:
    execute(database, "ALTER TABLE usr ADD mail text", "DROP TABLE eventlog_resync")
    code, told, _ = site.run("triggers", "apply")
    assert code == 0
    assert MAIL in told
    assert site.due() == []


def test_a_log_of_an_earlier_revision_is_brought_up_and_filled_by_the_next_apply(
    database: sa.Engine, site: Site
) -> None:
    assert site.run("db", "downgrade", "companions@companions_1", "--yes")[0] == 0
    execute(database, "ALTER TABLE usr ADD mail text DEFAULT 'x'")
    code, told, _ = site.run("triggers", "apply")
    assert (code, MAIL in told) == (0, True)
    assert "eventlog_captured, which `eventlog db upgrade` makes" in told
    assert site.run("db", "upgrade")[0] == 0
    captured = "SELECT table_name FROM eventlog_captured ORDER BY 1"
    assert fetch(database, captured) == []
    assert "Nothing to do." in site.run("triggers", "apply")[1]
    assert fetch(database, captured) == [("phone",), ("usr",)]


SQLITE: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "a new column": (("ALTER TABLE usr ADD mail text DEFAULT 'x'",), [MAIL]),
    "a missing trigger": (("DROP TRIGGER tgr_usr_d_1",), WHOLE),
    "a swap": (
        (
            "CREATE TABLE usr_new (id integer PRIMARY KEY, name text, nick text)",
            "ALTER TABLE usr RENAME TO usr_old",
            "ALTER TABLE usr_new RENAME TO usr",
        ),
        WHOLE,
    ),
    "a renamed table": (("ALTER TABLE usr RENAME TO person",), []),
}


@pytest.mark.parametrize("change", SQLITE)
def test_apply_and_doctor_say_it_on_sqlite_too(empty_home: Path, run: Run, change: str) -> None:
    engine = sa.create_engine(f"sqlite:///{empty_home / 'app.db'}", poolclass=sa.NullPool)
    execute(engine, USR[0], USR[2])
    site = Site(url_of(engine), empty_home, run)
    statements, commands = SQLITE[change]
    execute(engine, *statements)
    assert [one["command"] for one in site.answer("triggers", "plan")["due"]] == commands
    site.run("triggers", "apply")
    for number, command in enumerate(commands):
        assert site.due() == commands[number:]
        site.run(*_words(command))
    assert site.due() == []
