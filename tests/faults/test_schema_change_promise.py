"""Schema changes in random order under load, each followed by its page's recipe at a random later
time.

Writers have sessions that last, the publisher is killed repeatedly. No statement of the
application fails by the triggers, no other table waits, and at the end a receiver has what the
tables hold (spec/triggers.md 7.6, 9.1, spec/event-log.md 5.1). The recipes are those of
docs/guides/change-a-schema.md.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from processes import start
from psycopg import errors
from publishers import session
from recipes import CHANGES, RECIPES, TABLES, Copy, Step, config_text, differences
from shared import PATIENCE, execute, fetch, url_of, wait_until

from eventlog import cli
from eventlog.exit_codes import ExitCode

OTHER = "CREATE TABLE other (id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY, name text)"
# What is changed by only one of these in one copy of the tables: each is written for the tables as
# the page has them.
ITEM = (
    "Change the key",
    "Drop the primary key, or add one",
    "Rename a table",
    "Move a table to another schema, or drop it",
)
EMP = ("A table that takes the name of another", "A column of a view's base table")
# Recipes that the table must not be written for.
QUIET = {ITEM[3]}
# What the server refuses the application for, triggers or not, since columns and owners come and
# go.
OWN_FAILURES = (
    errors.UndefinedColumn,
    errors.UndefinedTable,
    errors.ForeignKeyViolation,
    errors.CheckViolation,  # no partition for the row
)


# --- the application ------------------------------------------------------------------------------

_COLUMNS = """SELECT a.attname, a.atttypid::regtype::text FROM pg_attribute a
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_RELATIONS = """SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
AND c.relkind IN ('r', 'p') AND c.relname ~ '^(usr|usr_phone|item|article|emp|emp_old|sale)_[0-9]+$' ORDER BY 1"""


@dataclass
class Application:
    """Sessions that write all tables, but for those that are quiet, until they are stopped."""

    database: sa.Engine
    writers: int = 2
    quiet: set[str] = field(default_factory=set)
    stopped: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)
    written: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self._at_work = [threading.Lock() for _ in range(self.writers)]

    def silence(self, name: str) -> None:
        """Return once nobody writes this table, and nobody will."""
        for lock in self._at_work:
            lock.acquire()
        self.quiet.add(name)
        for lock in self._at_work:
            lock.release()

    def write(self, seed: int, number: int) -> None:
        """Write until it is stopped; each writer has its own objects."""
        rng = random.Random(seed)
        with session(self.database) as connection:
            connection.autocommit = True
            while not self.stopped.is_set():
                with self._at_work[number]:
                    names = [
                        name for (name,) in connection.execute(_RELATIONS) if name not in self.quiet
                    ]
                    name = rng.choice(names)
                    columns = dict(connection.execute(_COLUMNS, (name,)).fetchall())
                    if columns:  # else it was renamed just now
                        self._execute(
                            connection,
                            name,
                            _statement(rng, name, columns, rng.randrange(8) * 2 + number),
                        )
                time.sleep(rng.random() / 100)

    def _execute(self, connection: psycopg.Connection[Any], name: str, statement: str) -> None:
        try:
            connection.execute(statement.encode())
            self.written += 1
        except psycopg.Error as error:
            self.refused += 1
            where = error.diag.context or ""
            if not isinstance(error, OWN_FAILURES) or "proc_" in where:
                self.failures.append(f"{statement}: {type(error).__name__} {error} {where}")

    @contextmanager
    def running(self, seed: int) -> Iterator[None]:
        threads = [
            threading.Thread(target=self.write, args=(seed + n, n)) for n in range(self.writers)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopped.set()
            for thread in threads:
                thread.join(PATIENCE)


def _statement(rng: random.Random, name: str, columns: dict[str, str], number: int) -> str:
    """A statement of the application for the columns that a table has."""
    key = next((one for one in ("id", "number") if one in columns), "id")
    if name.startswith("usr_phone"):
        value = f"'p{rng.randrange(4)}'"
        return rng.choice(
            (
                f"INSERT INTO {name} (id, no) SELECT id, {value} FROM "
                f"{name.replace('_phone', '')} WHERE id = {number} AND NOT EXISTS (SELECT FROM "
                f"{name} WHERE id = {number} AND no = {value})",
                f"DELETE FROM {name} WHERE id = {number} AND no = {value}",
            )
        )
    others = [one for one in columns if one not in {key, "day"}]
    values = {one: _value(rng, columns[one]) for one in others}
    if rng.random() < 0.4:
        row = (
            {key: str(number)} | ({"day": "date '2024-05-06'"} if "day" in columns else {}) | values
        )
        selected = ", ".join(row.values())
        # ON CONFLICT would need the primary key, which may be gone.
        there = f"SELECT FROM {name} WHERE {key} = {number}"
        return f"INSERT INTO {name} ({', '.join(row)}) SELECT {selected} WHERE NOT EXISTS ({there})"
    if rng.random() < 0.2:
        return f"DELETE FROM {name} WHERE {key} = {number}"
    column = rng.choice(others)
    return f"UPDATE {name} SET {column} = {values[column]} WHERE {key} = {number}"


def _value(rng: random.Random, type_name: str) -> str:
    if type_name in {"integer", "bigint"}:
        return str(rng.randrange(1000))
    return rng.choice(("NULL", f"'v{rng.randrange(1000)}'"))


# --- the publisher --------------------------------------------------------------------------------


class Publisher:
    """The driver that publishes the queue once and dies at a step, repeatedly, until it is
    stopped.
    """

    def __init__(self, config_file: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.deaths, self.failures = 0, list[str]()
        command = [
            sys.executable,
            str(Path(__file__).with_name("kill_driver.py")),
            str(config_file),
        ]
        self._process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def publish(self, step: int = 0) -> None:
        """Publish once, dying at a step; 0 = not."""
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{step}\n")
            self._process.stdin.flush()
            told = self._process.stdout.readline().strip()
        self.deaths += told.startswith("killed: ")
        if told != "done" and not told.startswith("killed: "):
            self.failures.append(told)

    def _go_on(self) -> None:
        while not self._stopped.is_set():
            self.publish(
                self._rng.choice((0, *(self._rng.randrange(1, most) for most in (3, 12, 40))))
            )
            self._stopped.wait(0.1)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """No process runs, so that the next one is the first to read what the file has then."""
        with self._lock:
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._go_on)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join(PATIENCE)

    def close(self) -> None:
        self._process.communicate()


# --- changes and their recipes --------------------------------------------------------------------


@dataclass
class Change:
    """A section of the page, for one copy of its tables. ``steps`` are those that are still to be
    done.
    """

    copy: Copy
    heading: str
    steps: list[Step]

    def __str__(self) -> str:
        return f"{self.heading} ({self.copy.suffix})"


class Site:
    """A database with copies of the page's tables, its file, its application and its publisher."""

    def __init__(self, database: sa.Engine, directory: Path, copies: int, seed: int) -> None:
        self.database, self.documents = database, directory / "documents"
        self.config_file = directory / "eventlog.toml"
        self.copies = [Copy(f"_{number}") for number in range(copies)]
        self.application = Application(database)
        execute(database, OTHER)
        for copy in self.copies:
            execute(
                database,
                *(copy.named(step.text) for step in RECIPES[TABLES] if step.language == "sql"),
            )
        self.save()
        for words in (["db", "upgrade"], ["triggers", "apply"]):
            assert self.eventlog(words) == ExitCode.DONE
        self.publisher = Publisher(self.config_file, seed)

    @property
    def watches(self) -> list[dict[str, Any]]:
        return [{"table": "other"}, *(watch for copy in self.copies for watch in copy.watches)]

    def save(self) -> None:
        sections = {
            "database": {"url": url_of(self.database)},
            "publisher": {"allow_loopback": True, "batch_size": 20, "delivery_rows": 200},
            "sink": {"type": "files", "directory": str(self.documents)},
        }
        written = self.config_file.with_suffix(".new")
        written.write_text(config_text(sections, self.watches), encoding="utf-8")
        written.replace(self.config_file)

    def eventlog(self, words: Sequence[str]) -> int:
        return cli.run(["--quiet", "--config", str(self.config_file), *words])

    def change(self, change: Change) -> None:
        """Change a table, as the first block of its section does."""
        if change.heading in QUIET:
            self.application.silence(change.copy.named("item"))
        self._alter(change)

    def _alter(self, change: Change) -> None:
        for statement in change.copy.statements(change.steps.pop(0)):
            with session(self.database) as owner:
                owner.execute(statement.encode())

    def fix(self, change: Change) -> bool:
        """Run what is left of a recipe; whether it came to its end, which another change may keep
        it from.
        """
        while change.steps:
            step = change.steps[0]
            change.copy.declare(step)
            with self.publisher.stopped():
                self.save()
            if step.language == "sql":
                self._alter(change)
                continue
            if step.language == "sh":
                for words in change.copy.lines(step):
                    if words[0] == "publish":
                        self.publisher.publish()
                    elif self.eventlog(words) != ExitCode.DONE and words[0] == "resync":
                        return False
            change.steps.pop(0)
        return True

    def other_tables_are_published(self) -> None:
        execute(self.database, "INSERT INTO other (name) VALUES ('x')")
        wait_until(
            lambda: (
                self.publisher.failures
                or fetch(
                    self.database,
                    "SELECT count(*) FROM eventlog WHERE table_name = 'other' AND status = 'N'",
                )
                == [(0,)]
            ),
            "the other table is published",
        )
        assert self.publisher.failures == []

    def check_end(self) -> None:
        assert self.application.failures == []
        assert self.publisher.failures == []
        assert self.eventlog(["triggers", "plan", "--check"]) == ExitCode.DONE
        self.publisher.publish()
        assert (
            fetch(
                self.database,
                "SELECT table_name, count(*) FROM eventlog WHERE status = 'N' GROUP BY 1",
            )
            == []
        )
        assert fetch(self.database, "SELECT * FROM eventlog_resync") == []
        # Child tables that are none any more, and old keys, have their own errors, which a resync
        # settles.
        others = fetch(
            self.database,
            "SELECT * FROM eventlog_error JOIN eventlog USING (record_id) WHERE code NOT IN "
            "('unknown_column', 'bad_table_key', 'superseded')",
        )
        assert others == []
        assert differences(self.database, self.watches, self.documents) == []


def changes_of(copies: Sequence[Copy], count: int, rng: random.Random) -> list[Change]:
    """As many changes, in random order."""
    found = []
    for copy in copies:
        taken = set(CHANGES) - {*ITEM, *EMP} | {rng.choice(ITEM), rng.choice(EMP)}
        found += [Change(copy, heading, list(RECIPES[heading])) for heading in sorted(taken)]
    rng.shuffle(found)
    assert len(found) >= count
    return found[:count]


IN_CI = (1, 6, 1)
RUNS = [
    IN_CI,
    *(pytest.param(4, 40, seed, marks=pytest.mark.night) for seed in range(2, 5)),
]


def recipes_of_ci() -> frozenset[str]:
    """The headings of the recipes that CI runs here while others write."""
    copies, count, seed = IN_CI
    chosen = changes_of([Copy(f"_{one}") for one in range(copies)], count, random.Random(seed))
    return frozenset(one.heading for one in chosen)


@pytest.mark.parametrize(("copies", "count", "seed"), RUNS)
def test_after_the_recipes_a_receiver_has_what_the_tables_hold(
    database: sa.Engine, tmp_path: Path, copies: int, count: int, seed: int
) -> None:
    rng = random.Random(seed)
    site = Site(database, tmp_path, copies, seed)
    try:
        to_come, open_changes = changes_of(site.copies, count, rng), list[Change]()
        with site.publisher.running(), site.application.running(seed):
            wait_until(lambda: site.application.written > 10, "the application writes")
            while to_come or open_changes:
                if to_come and (not open_changes or rng.random() < 0.6):
                    change = to_come.pop()
                    print(f"change: {change}")
                    site.change(change)
                    open_changes.append(change)
                    site.other_tables_are_published()
                else:
                    change = open_changes.pop(rng.randrange(len(open_changes)))
                    is_done = site.fix(change)
                    print(f"recipe: {change} {'' if is_done else 'has to wait'}")
                    if not is_done:
                        assert open_changes or to_come, (
                            f"the recipe of {change} does not come to its end"
                        )
                        open_changes.insert(0, change)
                time.sleep(rng.random() / 10)
                assert site.application.failures == []
        site.check_end()
        assert site.application.written > 10 * count
        assert site.publisher.deaths > 0
    finally:
        site.publisher.close()
