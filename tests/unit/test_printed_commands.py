"""Each command that a program prints is accepted in the state in which it was printed."""

from __future__ import annotations

import shutil
import sqlite3
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from printed_commands import arguments_of, example_of, is_of, printed_in, templates
from shared import Run

from eventlog.core.options import toml
from eventlog.exit_codes import ExitCode

PRINTED: Final[Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
PRINTERS: Final = (
    ("doctor",),
    ("status",),
    ("errors",),
    ("explain", "1"),
    ("explain", "--key", "item.id=1"),
    ("triggers", "plan"),
    ("consumers", "list"),
    ("publish", "--once"),
    ("triggers", "apply"),
)
"""What is run in each state, each on its own copy: all that they print is tried."""


def change(*statements: str) -> None:
    with closing(sqlite3.connect("shop.db")) as db, db:
        for statement in statements:
            db.execute(statement)


def configure(watch: str = 'table = "item"', **sections: Mapping[str, object]) -> None:
    lines = []
    for name, options in ({"database": {"url": "sqlite:///shop.db"}} | sections).items():
        lines += [f"[{name}]", *(f"{key} = {toml(value)}" for key, value in options.items())]
    Path("eventlog.toml").write_text("\n".join([*lines, "[[watch]]", watch, ""]))


STDOUT: Final = {"type": "stdout"}
REFUSING: Final = {"type": "python", "function": "refusing:receive"}
RECEIVER: Final = """
from eventlog import Answer, EventResult, Level

def receive(document, events):
    return Answer({{one.event_id: EventResult(Level.{}, "no") for one in events}})
"""
ALLOW: Final = {"allow_loopback": True}


def shop(run: Run) -> None:
    configure(sink=STDOUT, publisher=ALLOW)
    change(
        "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, shop TEXT)",
        "CREATE VIEW view_item AS SELECT id AS pk_id, name AS sv_name FROM item WHERE shop = 'a'",
    )
    assert run("db", "upgrade")[0] == 0
    assert run("triggers", "apply")[0] == 0


def without_log(run: Run) -> None:
    configure(sink=STDOUT)
    change("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")


def without_triggers(run: Run) -> None:
    shop(run)
    assert run("triggers", "drop", "--yes")[0] == 0


def waiting(run: Run) -> None:
    shop(run)
    change("INSERT INTO item VALUES (1, 'nut', 'a')")


def refused(run: Run) -> None:
    """Rows that the receiver refused, of objects that are there, have changed, and are gone."""
    waiting(run)
    change("INSERT INTO item VALUES (2, 'bolt', 'a'), (3, 'nail', 'a')")
    Path("refusing.py").write_text(RECEIVER.format("ERROR"))
    configure(sink=REFUSING, publisher=ALLOW)
    run("publish", "--once")
    configure(sink=STDOUT, publisher=ALLOW)
    change("UPDATE item SET name = 'screw' WHERE id = 2", "DELETE FROM item WHERE id = 3")
    run("publish", "--once")


def invalid(run: Run) -> None:
    shop(run)
    row = "INSERT INTO eventlog (event_type, table_name, table_key) VALUES "
    change(f"{row} (4, 'other', 'id=1')", f"{row} (4, 'item', 'id')")
    run("publish", "--once")


def new_column(run: Run) -> None:
    waiting(run)
    change("ALTER TABLE item ADD COLUMN price INTEGER", "UPDATE item SET price = 7")


def due(run: Run) -> None:
    new_column(run)
    assert run("triggers", "apply")[0] == 0


def view_membership(run: Run) -> None:
    """A column that only decides what a view has is captured later than the view."""
    view = 'view = "view_item"\nbase = { item = { id = "pk_id", name = "sv_name" } }'
    shop(run)
    configure(view, sink=STDOUT, publisher=ALLOW)
    assert run("triggers", "apply")[0] == 0
    change("INSERT INTO item VALUES (1, 'nut', 'a')")
    configure(f'{view}\nmembership = ["shop"]', sink=STDOUT, publisher=ALLOW)


def view_membership_due(run: Run) -> None:
    view_membership(run)
    assert run("triggers", "apply")[0] == 0


def paused(run: Run) -> None:
    waiting(run)
    assert run("pause", "--reason", "upgrade")[0] == 0


def parked(run: Run) -> None:
    waiting(run)
    Path("retrying.py").write_text(RECEIVER.format("RETRY"))
    configure(sink={"type": "python", "function": "retrying:receive"}, publisher=ALLOW)
    run("publish", "--once")


def another_filter(run: Run) -> None:
    waiting(run)
    configure(
        'table = "item"\n[[filter]]\ntable = "item"\nwhere = "shop = \'a\'"',
        sink=STDOUT,
        publisher=ALLOW,
    )


def loopback(run: Run) -> None:
    waiting(run)
    configure(sink=STDOUT)


def consumer(run: Run) -> None:
    waiting(run)
    configure(sink=STDOUT, publisher=ALLOW, source={"type": "eventlog", "consumer": "search"})
    run("publish", "--once")
    change("INSERT INTO item VALUES (2, 'bolt', 'a')")


STATES: Final[Sequence[Callable[[Run], None]]] = (
    without_log, shop, without_triggers, waiting, refused, invalid, new_column, due,
    view_membership, view_membership_due, paused, parked, another_filter, loopback, consumer,
)  # fmt: skip


def copied(directory: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a directory, in which the following commands run."""
    copy = directory.with_name(name)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    monkeypatch.chdir(copy)
    monkeypatch.syspath_prepend(str(copy))
    return copy


def answer_of(run: Run, command: str) -> str:
    """Why a command is refused, empty if it is accepted."""
    arguments = arguments_of(command)
    code, _, err = run(*arguments)
    # A daemon that is run once may find that the receiver answers nothing; an examination has
    # findings.
    accepted = {"publish": (ExitCode.FAILED,), "doctor": (ExitCode.NO,)}
    return "" if code == 0 or code in accepted.get(arguments[0], ()) else err


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_each_command_is_accepted_where_it_is_printed(
    state: Callable[[Run], None], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    made.mkdir()
    monkeypatch.chdir(made)
    monkeypatch.syspath_prepend(str(made))
    state(run)
    known = PRINTED.get(state.__name__, {})
    tried: set[str] = set()
    refused: dict[str, str] = {}
    for printer in PRINTERS:
        after = copied(made, "printed", monkeypatch)
        _, out, err = run(*printer)
        for command in set(printed_in(f"{out}\n{err}")) - tried:
            tried.add(command)
            copied(after, "tried", monkeypatch)
            if why := answer_of(run, command):
                refused[command] = why
    assert refused.keys() == known.get("refused", {}).keys(), refused
    for command, why in known.get("refused", {}).items():
        assert why in refused[command]
    missing = [one for one in known["prints"] if not any(is_of(each, one) for each in tried)]
    assert missing == [], tried


def test_each_command_in_the_source_is_printed_in_a_state_or_has_a_reason() -> None:
    printed = {one for known in PRINTED.values() for one in known.get("prints", ())}
    known = printed | set(PRINTED["elsewhere"]) | set(PRINTED["named"]["commands"])
    assert templates() == known, "add the command to test_printed_commands.toml, or remove it there"


@pytest.mark.parametrize("command", [*PRINTED["elsewhere"], *PRINTED["named"]["commands"]])
def test_a_command_of_another_state_has_these_options(command: str, run: Run) -> None:
    code, out, err = run(*example_of(command), "--help")
    assert (code, out.startswith("Usage: eventlog")) == (0, True), err
