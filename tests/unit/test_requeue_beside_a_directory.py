"""``requeue`` while a finished directory of a backlog job holds rows (spec/event-log.md 8.6,
11).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventlog import cli
from eventlog.publisher.ledger.in_flight import BacklogClaim, encode_claim

HOLD = BacklogClaim(
    number=1,
    job="job",
    directory="documents",
    manifest="0" * 64,
    since="2026-11-23 10:00:00",
    last=2,
    rows=1,
    deliveries=(),
    writers=frozenset(),
)

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def log(tmp_path: Path) -> sqlite3.Connection:
    """A log whose row 1 was refused, whose row 2 stands in a directory, and whose row 3 was
    refused.
    """
    path = tmp_path / "log.db"
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE part (id integer PRIMARY KEY, name text)")
    conn.close()
    (tmp_path / "eventlog.toml").write_text(
        f'[database]\nurl = "sqlite:///{path}"\n[[watch]]\ntable = "part"\n'
    )
    assert cli.run(["--config", str(tmp_path / "eventlog.toml"), "db", "upgrade"]) == 0
    assert cli.run(["--config", str(tmp_path / "eventlog.toml"), "triggers", "apply"]) == 0
    session = sqlite3.connect(path, isolation_level=None)
    for key in (1, 2, 3):
        session.execute("INSERT INTO part (id) VALUES (?)", (key,))
    session.execute("UPDATE eventlog SET status = 'E' WHERE record_id <> 2")
    session.execute(
        "INSERT INTO eventlog_state (entry_no, kind, content) VALUES (1, 'claim', ?)",
        (encode_claim(HOLD),),
    )
    return session


@pytest.fixture
def requeue(log: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        code = cli.run(["--config", str(tmp_path / "eventlog.toml"), "requeue", "--json", *words])
        told = capsys.readouterr()
        result: dict[str, Any] = json.loads(told.out)
        letters = dict(log.execute("SELECT record_id, status FROM eventlog"))
        return {"code": code, "said": told.err, "letters": letters, **result}

    return run


@pytest.mark.promise("exit requeue 1")
def test_a_row_below_the_held_ones_stays_refused(requeue: Run) -> None:
    done = requeue()
    assert done["letters"] == {1: "E", 2: "N", 3: "N"}
    assert (done["code"], done["set_back"]) == (1, 1)
    assert [row["record_id"] for row in done["refused"]] == [1]


@pytest.mark.parametrize(("last", "refused"), [(0, []), (1, [1]), (2, [1]), (3, [1, 3])])
def test_a_row_up_to_the_last_claimed_one_stays_refused(
    requeue: Run, log: sqlite3.Connection, last: int, refused: list[int]
) -> None:
    log.execute("UPDATE eventlog_state SET content = ?", (encode_claim(HOLD._replace(last=last)),))
    done = requeue()
    assert [row["record_id"] for row in done["refused"]] == refused
    assert done["set_back"] == 2 - len(refused)
    assert done["letters"] == {one: "E" if one in refused else "N" for one in (1, 2, 3)}


def test_the_message_names_the_directory_and_the_ways_out(requeue: Run) -> None:
    said = requeue()["said"]
    assert "up to record_id 2 claimed for documents" in said
    assert "eventlog backlog mark" in said


def test_it_goes_once_no_row_is_held_any_more(requeue: Run, log: sqlite3.Connection) -> None:
    log.execute("DELETE FROM eventlog_state")
    assert requeue()["letters"] == {1: "N", 2: "N", 3: "N"}


def test_a_copy_is_sent_because_it_comes_after_the_claimed_rows(
    requeue: Run, log: sqlite3.Connection
) -> None:
    log.execute("UPDATE eventlog SET status = 'S' WHERE record_id = 1")
    assert requeue("--status", "S")["copied"] == 1
