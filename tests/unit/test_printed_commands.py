"""Each command that a program prints is accepted in the state in which it was printed."""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, closing
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from followed_stream import ITEM, Stream
from printed_commands import arguments_of, example_of, is_of, printed_in, templates
from shared import Run
from source_trees import READS_TREES

from eventlog import cli
from eventlog.core.options import toml
from eventlog.exit_codes import ExitCode
from eventlog.publisher.context.conditions import KINDS

PRINTED: Final[Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
TESTS: Final = Path(__file__).parents[1]
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
FAILING: Final = """
from eventlog import Answer, ReceiverUnavailable

def receive(document, events):
    if events[0].event_id.split(".")[0] == "1":
        raise ReceiverUnavailable("it fails", is_suspicious=True)
    return Answer()
"""
FOLLOWED: Final = (
    "[source]",
    'type = "gbase"',
    'path = "capture.cdc"',
    'position_url = "sqlite:///position.db"',
    f'reader = {{ labels = {{ 111 = "{ITEM}" }}, keys = {{ item = ["id"] }} }}',
)
ALLOW: Final = {"allow_loopback": True}


@cache
def shop_files() -> Mapping[str, bytes]:
    """The files of a shop, which is made once for all states."""
    with tempfile.TemporaryDirectory() as directory, chdir(directory):
        configure(sink=STDOUT, publisher=ALLOW)
        change(
            "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, shop TEXT)",
            "CREATE VIEW view_item AS "
            "SELECT id AS pk_id, name AS sv_name FROM item WHERE shop = 'a'",
        )
        assert cli.run(["db", "upgrade"]) == cli.run(["triggers", "apply"]) == 0
        return {path.name: path.read_bytes() for path in Path().iterdir()}


def shop(run: Run) -> None:
    for name, content in shop_files().items():
        Path(name).write_bytes(content)


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


def fails_alone(run: Run) -> None:
    """The receiver fails for the document of one event, and answers the others."""
    waiting(run)
    change("INSERT INTO item VALUES (2, 'bolt', 'a'), (3, 'nail', 'a')")
    Path("failing.py").write_text(FAILING)
    failing = {"type": "python", "function": "failing:receive"}
    options = {"batch_size": 1, "retry_initial": 0.1, "retry_max": 0.1}
    configure(sink=failing, publisher=ALLOW | options)
    run("publish", "--once")


def source(run: Run) -> None:
    """A stream of another database in place of a log."""
    Stream(Path("capture.cdc")).insert(1)
    Path("eventlog.toml").write_text("\n".join(FOLLOWED))


def source_event_waits(run: Run) -> None:
    """The receiver has asked for an event of the source later."""
    source(run)
    Path("retrying.py").write_text(RECEIVER.format("RETRY"))
    sink = ["[sink]", 'type = "python"', 'function = "retrying:receive"']
    Path("eventlog.toml").write_text("\n".join([*FOLLOWED, *sink]))
    run("publish", "--once")


def source_by_time(run: Run) -> None:
    source(run)
    Path("eventlog.toml").write_text(
        "\n".join([*FOLLOWED, "[publisher]", 'time_of_day = "06:00:00"'])
    )


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


def another_receiver(run: Run) -> None:
    """A consumer is configured for another receiver than at its last start."""
    consumer(run)
    where = {"type": "files", "directory": "documents"}
    configure(sink=where, publisher=ALLOW, source={"type": "eventlog", "consumer": "search"})


def consumer_of_others(run: Run) -> None:
    """A consumer is registered, and the configuration is the publisher's."""
    consumer(run)
    configure(sink=STDOUT, publisher=ALLOW)


def consumer_beyond(run: Run) -> None:
    """A consumer has done numbers that the log gives again."""
    consumer(run)
    run("publish", "--once")
    change("DELETE FROM eventlog", "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'eventlog'")


def snapshot_refused(run: Run) -> Sequence[Sequence[str]]:
    """The receiver of a consumer has refused an object of its snapshot, whose event-id has the
    time of the snapshot.
    """
    waiting(run)
    Path("refusing.py").write_text(RECEIVER.format("ERROR"))
    source = {"type": "eventlog", "consumer": "search", "start_from": "snapshot"}
    configure(sink=REFUSING, publisher=ALLOW, source=source)
    run("publish", "--once")
    with closing(sqlite3.connect("shop.db")) as db:
        ((event_id,),) = db.execute("SELECT event_id FROM eventlog_error")
    return [("explain", event_id)]


def published(run: Run) -> None:
    waiting(run)
    run("publish", "--once")


def other_program(run: Run) -> None:
    """A log of another program, without internal tables."""
    without_log(run)
    change(
        "CREATE TABLE eventlog (record_id INTEGER PRIMARY KEY AUTOINCREMENT, table_key TEXT, "
        "status TEXT DEFAULT 'N', event_type INTEGER NOT NULL, event_time TEXT, perpetrator TEXT, "
        "table_name TEXT, column_name TEXT, old_value TEXT, new_value TEXT)"
    )


def log_dropped(run: Run) -> None:
    shop(run)
    assert run("triggers", "drop", "--yes")[0] == 0
    change("DROP TABLE eventlog")


State = Callable[[Run], Sequence[Sequence[str]] | None]
"""It makes a state, and returns what else is run there."""
STATES: Final[Mapping[State, Sequence[Sequence[str]]]] = {
    **dict.fromkeys(
        (without_log, shop, without_triggers, waiting, refused, invalid, new_column, due,
         view_membership, view_membership_due, paused, parked, another_filter, loopback, consumer),
        PRINTERS,
    ),
    another_receiver: [("publish", "--once")],
    consumer_beyond: [("doctor",)],
    snapshot_refused: [("errors",)],
    published: [("explain", "1")],
    fails_alone: [("explain", "1")],
    source: [("doctor",)],
    source_event_waits: [("explain", "--key", "id=1")],
    source_by_time: [("publish",)],
    other_program: [("consumers", "list"), ("resync", "item")],
    log_dropped: [("db", "upgrade")],
}  # fmt: skip
"""The states, and what is run in each."""
OF_OTHERS: Final[Mapping[str, tuple[State, Sequence[Sequence[str]]]]] = {
    "filter_accepted": (another_filter, [("filter", "accept")]),
    "log_with_triggers": (shop, [("db", "downgrade", "base", "--yes")]),
    "codes": (
        consumer_of_others,
        [
            ("explain", code)
            for code in (
                "consumer_before_epoch", "consumer_beyond", "consumer_waits", "false_delete",
                "invalid_rows", "missed_delete", "receiver_unavailable", "rights_triggers",
            )
        ],
    ),
}  # fmt: skip
"""Further answers in states that stand above, by the name in the data file."""
CASES: Final = {
    **{state.__name__: (state, printers) for state, printers in STATES.items()},
    **OF_OTHERS,
}


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


@pytest.mark.parametrize("case", CASES)
def test_each_command_is_accepted_where_it_is_printed(
    case: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    state, printers = CASES[case]
    made = tmp_path / "made"
    made.mkdir()
    monkeypatch.chdir(made)
    monkeypatch.syspath_prepend(str(made))
    more = state(run) or ()
    known = PRINTED.get(case, {})
    tried: set[str] = set()
    refused: dict[str, str] = {}
    for printer in (*printers, *more):
        after = copied(made, "printed", monkeypatch)
        caplog.clear()
        _, out, err = run(*printer)
        for command in set(printed_in("\n".join([out, err, *caplog.messages]))) - tried:
            tried.add(command)
            copied(after, "tried", monkeypatch)
            if why := answer_of(run, command):
                refused[command] = why
    assert refused.keys() == known.get("refused", {}).keys(), refused
    for command, why in known.get("refused", {}).items():
        assert why in refused[command]
    missing = [one for one in known["prints"] if not any(is_of(each, one) for each in tried)]
    assert missing == [], tried


def test_the_commands_of_each_condition_are_accepted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    made.mkdir()
    monkeypatch.chdir(made)
    waiting(run)
    database = {"url": "sqlite:///shop.db", "keep_days": 30}
    configure(sink=STDOUT, publisher=ALLOW, database=database)
    refused = {}
    commands = {command for kind in KINDS.values() for command in kind.commands}
    assert commands.issuperset(PRINTED["conditions"]["prints"])
    for command in commands:
        copied(made, "tried", monkeypatch)
        if why := answer_of(run, command):
            refused[command] = why
    assert refused == {}


@READS_TREES
def test_each_command_in_the_source_is_printed_in_a_state_or_has_a_reason() -> None:
    printed = {one for known in PRINTED.values() for one in known.get("prints", ())}
    known = printed | set(PRINTED["elsewhere"]) | set(PRINTED["named"]["commands"])
    assert templates() == known, "add the command to test_printed_commands.toml, or remove it there"


def test_each_test_that_runs_a_command_elsewhere_is_there() -> None:
    for reason in PRINTED["elsewhere"].values():
        for path, test in re.findall(r"(\S+\.py)::(\w+)", reason):
            assert f"def {test}(" in (TESTS / path).read_text("utf-8"), reason


@pytest.mark.parametrize("command", [*PRINTED["elsewhere"], *PRINTED["named"]["commands"]])
def test_a_command_of_another_state_has_these_options(command: str, run: Run) -> None:
    code, out, err = run(*example_of(command), "--help")
    assert (code, out.startswith("Usage: eventlog")) == (0, True), err
