"""``requeue`` of rows whose objects may have had later rows that were removed (spec/event-log.md
11).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventlog import cli

Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def log(tmp_path: Path) -> sqlite3.Connection:
    """A log of which ``purge`` has removed row 2: its object's row 1 was refused, and so were rows
    3 and 4, the latter of the same object."""
    path = tmp_path / "log.db"
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE part (id integer PRIMARY KEY, name text)")
        conn.execute("INSERT INTO part VALUES (1, 'a'), (2, 'b')")
    conn.close()
    (tmp_path / "eventlog.toml").write_text(
        f'[database]\nurl = "sqlite:///{path}"\n[[watch]]\ntable = "part"\n'
    )
    for words in ("db upgrade", "triggers apply"):
        assert cli.run(["--config", str(tmp_path / "eventlog.toml"), *words.split()]) == 0
    session = sqlite3.connect(path, isolation_level=None)
    for name, key in (("c", 1), ("d", 1), ("e", 2), ("f", 1)):
        session.execute("UPDATE part SET name = ? WHERE id = ?", (name, key))
    session.execute(
        "UPDATE eventlog SET event_time = '2020-01-01 00:00:00', "
        "status = CASE record_id WHEN 2 THEN 'S' ELSE 'E' END"
    )
    return session


@pytest.fixture
def run(log: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        code = cli.run(["--config", str(tmp_path / "eventlog.toml"), *words, "--json"])
        told = capsys.readouterr()
        return code, json.loads(told.out), told.err

    assert run("purge", "--older-than", "1d", "--yes")[1]["rows"] == 1
    return run


def rows(log: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Status and all other fields of each row."""
    return list(
        log.execute(
            "SELECT status, record_id, event_type, event_time, perpetrator, table_name, table_key, "
            "column_name, old_value, new_value FROM eventlog ORDER BY record_id"
        )
    )


def letters(log: sqlite3.Connection) -> dict[int, str]:
    return dict(log.execute("SELECT record_id, status FROM eventlog"))


def test_a_row_below_a_removed_one_is_refused(log: sqlite3.Connection, run: Run) -> None:
    before = rows(log)
    code, told, said = run("requeue")
    assert code == 1
    assert told == {
        "set_back": 2,
        "copied": 0,
        "refused": [{"record_id": 1, "event_type": 2, "table_name": "part", "table_key": "id=1"}],
        "removed": 2,
        "is_requested": True,
        "commands": ["eventlog resync part --key id=1"],
        "dry_run": False,
    }
    assert rows(log) == [before[0], *(("N", *row[1:]) for row in before[1:])]
    assert "Rows up to record_id 2 were removed from the log" in said


def test_it_goes_by_force(log: sqlite3.Connection, run: Run) -> None:
    assert run("requeue", "--force")[0] == 0
    assert letters(log) == {1: "N", 3: "N", 4: "N"}


@pytest.mark.promise("option requeue--status")
def test_a_copy_of_a_row_below_a_removed_one_is_refused(log: sqlite3.Connection, run: Run) -> None:
    log.execute("UPDATE eventlog SET status = 'S' WHERE record_id = 1")
    code, told, _ = run("requeue", "--status", "S")
    assert (code, told["copied"], [row["record_id"] for row in told["refused"]]) == (1, 0, [1])


def test_a_row_that_is_read_back_goes(log: sqlite3.Connection, run: Run) -> None:
    log.execute("UPDATE eventlog SET event_type = 6 WHERE record_id = 1")
    assert run("requeue", "--ids", "1")[0] == 0
    assert letters(log)[1] == "N"


def test_a_row_of_a_consumer_below_a_removed_one_is_refused(
    log: sqlite3.Connection, run: Run, tmp_path: Path
) -> None:
    options = {
        "source.type": "eventlog",
        "source.consumer": "search",
        "source.start_from": "earliest",
        "sink.type": "files",
        "sink.directory": str(tmp_path / "out"),
    }
    flags = [word for one in options.items() for word in ("--set", "=".join(one))]
    config = ["--config", str(tmp_path / "eventlog.toml")]
    assert cli.run([*config, *flags, "publish", "--once"]) == 0
    code, told, _ = run("requeue", "--consumer", "search", "--ids", "1,3")
    assert (code, told["set_back"], [row["record_id"] for row in told["refused"]]) == (1, 1, [1])


def test_a_copy_has_the_values_of_its_row_and_the_present_time(
    log: sqlite3.Connection, run: Run
) -> None:
    log.execute("UPDATE eventlog SET status = 'S', perpetrator = 'ann' WHERE record_id = 3")
    before = rows(log)
    _, told, _ = run("requeue", "--status", "S")
    assert (told["set_back"], told["copied"], told["refused"]) == (0, 1, [])
    *others, copy = rows(log)
    assert others == before
    moment = datetime.fromisoformat(copy[3]).replace(tzinfo=UTC)
    assert 0 <= (datetime.now(UTC) - moment).total_seconds() < 600
    assert copy == ("N", 5, 2, copy[3], "ann", "part", "id=2", "name", "b", "e")


@pytest.mark.parametrize(("written", "changed"), [(1, 2), (7, 8)])
@pytest.mark.parametrize(("status", "event"), [("E", 3), ("S", 5)])
def test_a_part_of_an_insert_goes_as_an_update_without_an_old_value(
    log: sqlite3.Connection, run: Run, written: int, changed: int, status: str, event: int
) -> None:
    log.execute(
        f"UPDATE eventlog SET status = '{status}', event_type = {written} WHERE record_id = 3"
    )
    log.execute(
        "INSERT INTO eventlog (status, event_type, event_time, table_name, table_key, column_name, "
        f"new_value) VALUES ('S', {written}, '2020-01-01 00:00:00', 'part', 'id=2', 'id', '2')"
    )
    run("requeue", "--status", status, "--ids", "3")
    sent = [row for row in rows(log) if row[0] == "N"]
    event = event if status == "E" else 6
    moment = sent[0][3] if status == "S" else "2020-01-01 00:00:00"
    assert sent == [("N", event, changed, moment, None, "part", "id=2", "name", None, "e")]
