"""``publish --once`` for a script: an exit code that shows whether all was published, and figures
that add up (spec/event-log.md 11).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import make_log, process, write, write_config
from receiver import Receiver, answer, reply, status
from shared import PATIENCE, Run, execute, fetch, statuses, url_of

Publish = Callable[..., tuple[int, str]]


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


@pytest.fixture
def publish(log: sa.Engine, tmp_path: Path) -> Iterator[Publish]:
    """One run to a receiver that refuses event 1 and parks event 2: exit code and log lines."""
    mixed = reply(
        200, answer(status("error", "1", "no"), status("retry", "2", "the mailbox is locked"))
    )
    with Receiver(lambda _: mixed) as receiver:

        def run(*more: str, **options: object) -> tuple[int, str]:
            http = {"sink__type": "http", "sink__url": receiver.url, "batch_size": 1, **options}
            with process(log, tmp_path, "--once", *more, stderr=PIPE, **http) as running:
                _, lines = running.communicate(timeout=PATIENCE)
            return running.returncode, lines.decode()

        yield run


def figures(lines: str) -> tuple[int, dict[str, int]]:
    """The rows read by the last line, and the other figures by their name."""
    (read, others) = re.findall(r"(\d+) rows? read: ([^;]*)", lines)[-1]
    names = re.sub(r"\([^)]*\)", "", others)
    return int(read), {
        name.strip(): int(rows) for rows, name in re.findall(r"(\d+) ([a-z ]+)", names)
    }


def test_the_figures_of_the_last_line_add_up(log: sa.Engine, publish: Publish) -> None:
    write(log, 1, 2, 3, 4)
    row = (
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value{more}) "
        "VALUES ({kind}, 'usr', '{key}', 'fname', 'Jack'{values})"
    )
    execute(
        log,
        "INSERT INTO usr VALUES (7, 'Alice')",
        row.format(kind=1, key="idu=two", more="", values=""),
        row.format(kind=2, key="idu=7", more="", values=""),
        row.format(kind=6, key="idu=7", more="", values=""),
        row.format(kind=6, key="idu=8", more="", values=""),
        row.format(kind=1, key="idu=9", more=", perpetrator", values=", current_user"),
    )
    code, lines = publish()
    read, others = figures(lines)
    assert code == 1
    assert read == sum(others.values()) == fetch(log, "SELECT count(*) FROM eventlog")[0][0]
    assert others == {
        "published": 3, "refused": 1, "invalid": 1, "without effect": 3, "waiting": 1,
    }  # fmt: skip
    for reason in (
        "covered by another row",
        "of an object that no longer exists",
        "of the publisher's own",
    ):
        assert f"1 {reason}" in lines
    code, lines = publish()
    assert figures(lines) == (1, {"published": 0, "waiting": 1}), "in flight since the first run"
    assert code == 1


def test_refused_rows_give_exit_code_1_unless_they_are_allowed(
    log: sa.Engine, publish: Publish
) -> None:
    write(log, 1)
    code, lines = publish()
    assert code == 1
    assert "1 row read: 0 published, 1 refused; 1 event in 1 document; `eventlog errors`" in lines
    execute(log, "UPDATE eventlog SET status = 'N'")
    assert publish("--allow-refused")[0] == 0
    assert statuses(log) == {1: "E"}


def test_invalid_rows_give_exit_code_1_unless_they_are_allowed(log: sa.Engine, run: Run) -> None:
    row = (
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) "
        "VALUES (1, 'usr', 'idu=two', 'fname', 'Jack')"
    )
    execute(log, row)
    command = ("--database-url", url_of(log), "publish", "--once")
    assert run(*command)[0] == 1
    execute(log, row)
    assert run(*command, "--allow-refused")[0] == 0
    assert run(*command)[0] == 0, "nothing new was refused"


def test_a_class_that_is_not_published_gives_exit_code_1(
    database: sa.Engine, empty_home: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    execute(database, "CREATE TABLE usr (id integer PRIMARY KEY)", "CREATE TABLE doc (id integer)")
    execute(database, "ALTER TABLE doc ADD PRIMARY KEY (id)")
    settings = {"publisher": {"allow_loopback": True}}
    watches = ({"table": "usr"}, {"table": "doc"})
    config = ("--config", str(write_config(empty_home, url_of(database), watches, **settings)))
    assert run(*config, "db", "upgrade")[0] == 0
    assert run(*config, "triggers", "apply")[0] == 0
    execute(database, "INSERT INTO usr VALUES (1)", "DROP TABLE doc")
    assert run(*config, "publish", "--once")[0] == 1
    assert "doc is not published, and its rows wait" in caplog.text
    assert run(*config, "publish", "--once", "--allow-refused")[0] == 0


def test_the_settings_are_one_line(
    log: sa.Engine, empty_home: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_config(empty_home, url_of(log), ({"table": "usr"},), publisher={"batch_size": 7})
    run("--config", str(path), "publish", "--once")
    (line,) = [one for one in caplog.text.splitlines() if "settings:" in one]
    assert re.search(
        rf"settings: {re.escape(str(path))}, 1 \[\[watch\]\], \d+ settings not the default",
        line,
    )


def test_refused_rows_are_allowed_with_once_alone(run: Run) -> None:
    code, _, lines = run("publish", "--allow-refused")
    assert code == 2
    assert "--allow-refused goes with --once" in lines
