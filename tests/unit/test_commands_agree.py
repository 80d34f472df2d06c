"""Options with one name mean one thing at all commands, and stand wherever they could: the table of
all commands. A new command, and a new option of these names, must be entered here.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click
import pytest
from shared import Run

from eventlog import cli
from eventlog.exit_codes import ExitCode

HAS: Final = "has"
REASONS: Final = {
    "argument": "the consumer is the command's argument",
    "asks-nothing": "the command asks no question",
    "every": "the command always lists all it has, which are few",
    "estimate": "`backlog estimate` shows what would be done",
    "file": "the command reads or writes a file, and nothing else",
    "inverse": "another command takes it back, and no row is changed",
    "json": "the result is always JSON",
    "log": "only a log has what the command works on",
    "monitor": "a running publisher's monitor is asked, whoever it works for",
    "no-list": "the command lists nothing",
    "people": "the output is for people; another command gives the same to programs",
    "plan": "`triggers plan` shows what would be done",
    "publisher": "the command works for the publisher of the log alone",
    "purpose": "--purpose consumer is for consumers in general",
    "read-only": "the command changes nothing",
    "records": "one statement draws a number, and no row is changed",
    "repair": "without --repair nothing is changed",
    "sql": "--sql prints the statements and runs none",
    "stdout": "standard output is for documents",
}
"""The reasons in one word why an option does not stand at a command."""

OPTIONS: Final = ("--limit", "--json", "--yes", "--dry-run", "--consumer", "--from", "--config")

TABLE: Final[dict[str, tuple[str, ...]]] = {
    # command            --limit    --json    --yes           --dry-run    --consumer   --from     -c
    "init":             ("no-list", HAS,      "asks-nothing", "file",      "log",       "log",     HAS),
    "config":           ("every",   HAS,      "asks-nothing", "read-only", "publisher", "log",     HAS),
    "demo":             ("no-list", "people", "asks-nothing", "file",      "publisher", "log",     HAS),
    "db upgrade":       ("no-list", HAS,      "asks-nothing", "sql",       "publisher", "log",     HAS),
    "db current":       ("every",   HAS,      "asks-nothing", "read-only", "publisher", "log",     HAS),
    "db start-epoch":   ("no-list", HAS,      "asks-nothing", "records",   "publisher", "log",     HAS),
    "db partition":     ("every",   HAS,      "asks-nothing", "inverse",   "publisher", "log",     HAS),
    "db unpartition":   ("no-list", HAS,      "asks-nothing", "inverse",   "publisher", "log",     HAS),
    "db downgrade":     ("no-list", HAS,      HAS,            HAS,         "publisher", "log",     HAS),
    "grants":           ("every",   HAS,      "asks-nothing", "read-only", "purpose",   "log",     HAS),
    "triggers plan":    ("every",   HAS,      "asks-nothing", "read-only", "publisher", "log",     HAS),
    "triggers apply":   ("every",   HAS,      HAS,            HAS,         "publisher", "log",     HAS),
    "triggers accept":  ("no-list", HAS,      "asks-nothing", HAS,         "publisher", "log",     HAS),
    "triggers drop":    ("every",   HAS,      HAS,            HAS,         "publisher", "log",     HAS),
    "triggers list":    ("every",   HAS,      "asks-nothing", "read-only", "publisher", "log",     HAS),
    "filter accept":    ("no-list", HAS,      "asks-nothing", HAS,         HAS,          "log",     HAS),
    "publish":          ("no-list", "stdout", "asks-nothing", HAS,         HAS,         HAS,       HAS),
    "backlog run":      ("no-list", HAS,      "asks-nothing", "estimate",  "publisher", "log",     HAS),
    "backlog mark":     ("no-list", HAS,      "asks-nothing", HAS,         "publisher", "log",     HAS),
    "backlog estimate": ("no-list", HAS,      "asks-nothing", "read-only", "publisher", "log",     HAS),
    "backlog release":  ("no-list", HAS,      "asks-nothing", HAS,         "publisher", "log",     HAS),
    "status":           (HAS,       HAS,      "asks-nothing", "read-only", HAS,         HAS,       HAS),
    "top":              ("every",   "people", "asks-nothing", "read-only", HAS,         HAS,       HAS),
    "tail":             (HAS,       HAS,      "asks-nothing", "read-only", "monitor",   "monitor", HAS),
    "errors":           (HAS,       HAS,      "asks-nothing", "read-only", HAS,         HAS,       HAS),
    "explain":          ("every",   HAS,      "asks-nothing", "read-only", HAS,         HAS,       HAS),
    "schema":           ("no-list", "json",   "asks-nothing", "read-only", "publisher", "log",     HAS),
    "catalog":          ("every",   "json",   "asks-nothing", "read-only", "publisher", "log",     HAS),
    "doctor":           ("every",   HAS,      "asks-nothing", "read-only", HAS,         "log",     HAS),
    "health":           ("no-list", HAS,      "asks-nothing", "read-only", "file",      "file",    HAS),
    "verify":           (HAS,       HAS,      "asks-nothing", "repair",    HAS,         "log",     HAS),
    "consumers list":   ("every",   HAS,      "asks-nothing", "read-only", "every",     "log",     HAS),
    "consumers reset":  ("no-list", HAS,      HAS,            HAS,         "argument",  "log",     HAS),
    "consumers drop":   ("no-list", HAS,      HAS,            HAS,         "argument",  "log",     HAS),
    "requeue":          ("every",   HAS,      "asks-nothing", HAS,         HAS,         "log",     HAS),
    "skip":             ("no-list", HAS,      HAS,            HAS,         HAS,         HAS,       HAS),
    "pause":            ("no-list", HAS,      "asks-nothing", "inverse",   HAS,         "log",     HAS),
    "resume":           ("no-list", HAS,      "asks-nothing", "inverse",   HAS,         "log",     HAS),
    "resync":           ("no-list", HAS,      "asks-nothing", HAS,         "publisher", "log",     HAS),
    "purge":            ("no-list", HAS,      HAS,            HAS,         "publisher", "log",     HAS),
    "convert":          ("no-list", HAS,      "asks-nothing", "file",      "file",      HAS,       HAS),
    "decode":           ("every",   "people", "asks-nothing", "read-only", "file",      HAS,       HAS),
}  # fmt: skip
"""Each command with each option: that it has it, or the reason in one word why not."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that is not a group, by its name after ``eventlog``."""

    def below(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
        context = click.Context(group)
        for part in group.list_commands(context):
            command = group.get_command(context, part)
            assert command is not None
            if isinstance(command, click.Group):
                yield from below(command, f"{name}{part} ")
            else:
                yield f"{name}{part}", command

    yield from below(cli.cli, "")


COMMANDS: Final = dict(commands())


def option(command: click.Command, name: str) -> click.Option | None:
    """The option of this name of a command, None without it."""
    parent = click.Context(cli.cli, info_name="eventlog")
    context = click.Context(command, parent=parent)
    for one in command.get_params(context):
        if isinstance(one, click.Option) and name in one.opts:
            return one
    return None


def test_each_command_is_in_the_table() -> None:
    assert TABLE.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", TABLE)
def test_each_option_stands_where_the_table_has_it(name: str) -> None:
    command = COMMANDS[name]
    for option_name, entry in zip(OPTIONS, TABLE[name], strict=True):
        found = option(command, option_name) is not None
        assert found is (entry == HAS), (
            f"{name} {option_name}: the table has {entry!r} and the command "
            f"{'has it' if found else 'has it not'}; enter it in TABLE"
        )
        assert entry == HAS or entry in REASONS, f"{name} {option_name}: give a reason of REASONS"


def is_a_flag(one: click.Option, *names: str) -> bool:
    return one.is_flag and not one.multiple and set(one.opts) == set(names)


MEANINGS: Final[dict[str, Callable[[click.Option], bool]]] = {
    # The result as JSON on standard output.
    "--json": lambda one: (
        is_a_flag(one, "--json") and one.help == "Print the result as JSON, for programs."
    ),
    # The question that the command would ask on a terminal is answered.
    "--yes": lambda one: (
        is_a_flag(one, "--yes", "-y")
        and one.help == "Do not ask for confirmation, even on a terminal."
    ),
    # What would be done is shown; nothing is done.
    "--dry-run": lambda one: (
        is_a_flag(one, "--dry-run")
        and one.help is not None
        and one.help.startswith(("Show what would be", "Show where it would", "Count what would be",
                                 "Count the rows that would be", "Print the documents"))
    ),
    # At most this number of entries is read or listed.
    "--limit": lambda one: (
        isinstance(one.type, click.IntRange)
        and bool(one.default)
        and (one.help or "").startswith("How many ")
    ),
    # The consumer of the log in place of the configured reader.
    "--consumer": lambda one: (
        one.metavar == "NAME"
        and one.help == "Work for this consumer of the log.  [default: the configured consumer]"
    ),
    # Where changes come from: a source, or the format of the input.
    "--from": lambda one: one.type.name == "name" and not one.is_flag,
    "--config": lambda one: set(one.opts) == {"--config", "-c"},
}  # fmt: skip
"""What each option means, as far as a parser shows it."""


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_means_the_same_at_every_command(name: str) -> None:
    for option_name, means in MEANINGS.items():
        found = option(COMMANDS[name], option_name)
        if found is not None:
            assert means(found), f"{name} {option_name}: {found.help}"


def test_each_reason_is_used_and_each_question_can_be_answered() -> None:
    assert {entry for row in TABLE.values() for entry in row} - {HAS} <= REASONS.keys()
    asking = [name for name, row in TABLE.items() if row[OPTIONS.index("--yes")] == HAS]
    assert all(TABLE[name][OPTIONS.index("--dry-run")] == HAS for name in asking)


@pytest.mark.parametrize(
    "name", ["status", "top", "errors", "publish", "explain 1", "explain --key id=1"]
)
def test_a_consumer_of_a_followed_source_is_refused(run: Any, tmp_path: Any, name: str) -> None:
    (tmp_path / "eventlog.toml").write_text(
        '[source]\ntype = "gbase"\npath = "capture.cdc"\n'
        f'position_url = "sqlite:///{tmp_path}/position.db"\n'
    )
    arguments = ["-c", str(tmp_path / "eventlog.toml"), *name.split(), "--consumer", "search"]
    code, _, err = run(*arguments)
    assert code == 2, err
    assert "--consumer is for a log; a followed source has no consumers" in err


# --- what the options do --------------------------------------------------------------------------


PUBLISH: Final = ("--config", "search.toml", "publish", "--once")


@pytest.fixture
def shop(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a watched table, whose consumer search has processed all rows."""
    monkeypatch.chdir(tmp_path)
    Path("eventlog.toml").write_text(
        '[database]\nurl = "sqlite:///shop.db"\n[[watch]]\ntable = "item"\n[sink]\ntype = "stdout"\n'
    )
    change("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    assert run("db", "upgrade")[0] == 0
    assert run("triggers", "apply")[0] == 0
    Path("search.toml").write_text(
        f'{Path("eventlog.toml").read_text()}[source]\nconsumer = "search"\n'
        'start_from = "earliest"\n'
    )
    started = run(*PUBLISH)
    assert started[0] == 0, started
    change("INSERT INTO item VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    return tmp_path


def change(statement: str) -> list[Any]:
    with closing(sqlite3.connect("shop.db")) as db, db:
        return db.execute(statement).fetchall()


def test_a_consumer_can_be_named_on_the_command_line(shop: Path, run: Run) -> None:
    assert json.loads(run("status", "--json")[1])["log"] == "eventlog"
    known = json.loads(run("status", "--consumer", "search", "--json")[1])
    assert (known["log"], known["queue_rows"]) == ("eventlog, consumer search", 3)
    assert "consumer search" in run("top", "--consumer", "search")[1]
    assert run("doctor", "--consumer", "search", "--json")[0] in (ExitCode.DONE, ExitCode.NO)
    assert run(*PUBLISH)[0] == 0
    assert json.loads(run("status", "--consumer", "search", "--json")[1])["queue_rows"] == 0
    assert {status for (status,) in change("SELECT status FROM eventlog")} == {"N"}


def test_a_consumer_that_the_log_does_not_have_is_refused(shop: Path, run: Run) -> None:
    for name in ("status", "top", "doctor", "errors", "explain 1", "explain --key id=1"):
        code, _, err = run(*name.split(), "--consumer", "serach")
        assert (code, "has no consumer 'serach'" in err) == (2, True), name


def test_the_change_of_an_object_is_explained_for_a_consumer(shop: Path, run: Run) -> None:
    assert run(*PUBLISH)[0] == 0
    change("UPDATE item SET name = 'd' WHERE id = 2")
    key = ("explain", "--key", "id=1", "--consumer", "search")
    code, out, err = run(*key)
    assert (code, err) == (0, "")
    assert "row 1 of id=1 of class item, written at " in out
    assert ": done" in out
    assert "status N" in run("explain", "--key", "id=1")[1]
    (changed,) = json.loads(run(*key[:2], "id=2", *key[3:], "--json")[1])["objects"]
    assert changed["record_id"] == 4
    assert "waits" in changed["sentences"][0]


def test_a_dry_run_leaves_a_consumer_as_it_is(shop: Path, run: Run) -> None:
    before = change("SELECT * FROM eventlog_consumer")
    for command in ("consumers reset search", "consumers drop search"):
        code, out, _ = run(*command.split(), "--dry-run")
        assert (code, "would" in out) == (0, True), command
        assert change("SELECT * FROM eventlog_consumer") == before, command
    refused = run("consumers", "reset", "search", "--start-from", "999999999", "--dry-run")
    assert refused[0] == 2


def test_a_dry_run_of_a_downgrade_drops_nothing(shop: Path, run: Run) -> None:
    assert run("triggers", "drop", "--yes")[0] == 0
    code, out, _ = run("db", "downgrade", "base", "--force", "--dry-run")
    assert code == 0
    assert out == (
        "This drops the log eventlog with all its rows, and its internal tables (each only if "
        "eventlog created it). With --dry-run nothing is dropped.\n"
    )
    assert change("SELECT count(*) FROM eventlog") == [(3,)]
    code, out, _ = run("db", "downgrade", "base", "--force", "--dry-run", "--json")
    assert (code, json.loads(out)["dry_run"]) == (0, True)
    code, _, err = run("db", "downgrade", "base", "--dry-run")
    assert (code, "has rows that are not published" in err) == (2, True)


def test_a_downgrade_of_a_log_that_another_program_created_keeps_its_rows(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    change(
        "CREATE TABLE theirs (record_id INTEGER PRIMARY KEY, table_key TEXT, status TEXT, "
        "event_type INT, event_time TEXT, perpetrator TEXT, table_name TEXT, column_name TEXT, "
        "old_value TEXT, new_value TEXT)"
    )
    change("INSERT INTO theirs (table_key, status, event_type) VALUES ('id=1', 'N', 6)")
    place = ("--database-url", "sqlite:///shop.db", "--log-table", "theirs")
    assert run(*place, "db", "upgrade", "--existing-log")[0] == 0
    change("INSERT INTO theirs_inflight (entry_no, kind, content) VALUES (1, 'delivery', '{}')")
    code, _, err = run(*place, "db", "downgrade", "base")
    assert (code, "has deliveries in flight, which would be forgotten" in err) == (2, True)
    change("DELETE FROM theirs_inflight")
    code, _, err = run(*place, "db", "downgrade", "base")
    assert (code, err.splitlines()[0]) == (
        0,
        "This drops the internal tables of the log theirs that eventlog created. The log and its "
        "rows stay: another program created it.",
    )
    assert change("SELECT name FROM sqlite_master WHERE name GLOB '*theirs*'") == [("theirs",)]
    assert change("SELECT table_key FROM theirs") == [("id=1",)]
    code, _, err = run(*place, "db", "downgrade", "base")
    assert err.splitlines()[0] == (
        "eventlog has created nothing of the log theirs: nothing is dropped."
    )


MARKED: Final = (
    "requeue", "requeue --consumer search", "skip --parked --reason x", "skip --refused --reason x",
    "resync item", "purge --older-than 1d", "consumers reset search", "consumers drop search",
    "triggers apply", "triggers drop", "db downgrade base --force",
)  # fmt: skip
"""Each command with --dry-run and --json, in an order in which none takes away what the next one
needs.
"""


def test_the_json_of_a_dry_run_has_the_form_of_the_result_and_is_marked(
    shop: Path, run: Run
) -> None:
    for command in MARKED:
        planned = json.loads(run(*command.split(), "--json", "--dry-run")[1])
        done = json.loads(run(*command.split(), "--json")[1])
        assert (planned["dry_run"], done["dry_run"]) == (True, False), command
        assert planned.keys() >= done.keys(), command


def test_init_reports_for_programs_what_it_left_out(shop: Path, run: Run) -> None:
    change("CREATE TABLE loose (name TEXT)")
    change("CREATE VIEW open_items AS SELECT * FROM item")
    code, out, _ = run("--database-url", "sqlite:///shop.db", "-c", "new.toml", "init", "--tables",
                       "--json")  # fmt: skip
    assert code == 0
    assert json.loads(out) == {
        "file": "new.toml",
        "watched": ["item"],
        "child_tables": {},
        "not_watched": {"loose": "no primary key", "open_items": "a view: see `view` and `base`"},
    }
    assert json.loads(run("-c", "empty.toml", "init", "--json")[1]) == {
        "file": "empty.toml",
        "not_imported": [],
    }
