"""A command that a signal stops reports what was done and what was not, and ends with exit code 130."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from shared import Run

from eventlog.cli import stopping
from eventlog.cli.context import changing
from eventlog.config.load import load
from eventlog.model import Event
from eventlog.sql import migrations
from eventlog.sql import resync as batches
from eventlog.sql.log import requeue

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture
def shop(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a watched table of 40 rows, all of them logged."""
    monkeypatch.chdir(tmp_path)
    config = '[database]\nurl = "sqlite:///shop.db"\n[[watch]]\ntable = "item"\n'
    Path("eventlog.toml").write_text(config)
    change("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    assert run("db", "upgrade")[0] == 0
    assert run("triggers", "apply")[0] == 0
    change("INSERT INTO item VALUES " + ", ".join(f"({number}, 'a')" for number in range(40)))
    return tmp_path


def change(statement: str) -> list[Any]:
    with closing(sqlite3.connect("shop.db")) as db, db:
        return db.execute(statement).fetchall()


def statuses() -> str:
    return "".join(status for (status,) in change("SELECT status FROM eventlog ORDER BY record_id"))


def after(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The function, which sends this process a signal when it has done its work."""

    def stopped(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        os.kill(os.getpid(), number)
        return result

    return stopped


@SIGNALS
def test_a_change_in_a_transaction_is_rolled_back_and_reported_so(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    change("UPDATE eventlog SET status = 'E'")
    monkeypatch.setattr(requeue, "requeue", after(requeue.requeue, number))
    before = signal.getsignal(signal.SIGTERM)
    code, out, err = run("requeue")
    assert (code, out.strip()) == (130, "")
    assert err.strip().endswith("eventlog: stopped: nothing was changed")
    assert set(statuses()) == {"E"}
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.promise("exit 130")
@SIGNALS
def test_an_upgrade_that_is_stopped_changes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(migrations, "upgrade", after(migrations.upgrade, number))
    code, _, err = run("--database-url", "sqlite:///shop.db", "db", "upgrade")
    assert (code, err.splitlines()[-1]) == (130, "eventlog: stopped: nothing was changed")
    assert change("SELECT name FROM sqlite_master") == []


def test_a_database_that_commits_each_statement_gets_another_sentence(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(Path("eventlog.toml"), {})
    stopping.if_stopped(stopping.NOTHING)
    with changing(config) as db:
        assert stopping.sentence_if_stopped() == stopping.NOTHING
        kept = db.dialect.capabilities
    monkeypatch.setattr(type(db.dialect), "capabilities", kept - {"transactional_ddl"})
    stopping.if_stopped(stopping.NOTHING)
    with changing(config):
        assert "what has run stays; run the same command again" in stopping.sentence_if_stopped()
    assert stopping.sentence_if_stopped() == stopping.DONE


def test_a_signal_after_the_commit_is_reported_as_work_that_was_done(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    change("UPDATE eventlog SET status = 'E'")
    shown = after(lambda *_arguments, **_named: None, signal.SIGINT)
    monkeypatch.setattr("eventlog.cli.repair.runs.requeue.result", shown)
    code, _, err = run("requeue")
    assert code == 130
    assert "eventlog: stopped: the work was done; only its report is missing" in err
    assert set(statuses()) == {"N"}


@pytest.mark.promise("command purge", "option purge--batch", "option purge--pause")
def test_a_purge_that_is_stopped_reports_what_it_has_removed(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    change("UPDATE eventlog SET status = 'S', event_time = '2020-01-01 00:00:00'")
    monkeypatch.setattr(
        "eventlog.cli.repair.runs.purge.sleep", after(lambda _seconds: None, signal.SIGINT)
    )
    code, _, err = run("purge", "--older-than", "30d", "--batch", "10", "--pause", "1")
    assert code == 130
    left = len(statuses())
    assert f"stopped: {40 - left} rows and 0 error rows were removed; run the same command" in err
    assert 0 < left < 40


@pytest.mark.promise("option resync--batch", "option resync--resume")
def test_a_resync_that_is_stopped_shows_how_to_continue(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "pause", after(lambda *_rest: 0.0, signal.SIGINT))
    code, _, err = run("resync", "item", "--batch", "10")
    assert code == 130
    assert "stopped: 10 rows written to the log; run the same command with --resume to" in err
    assert len(statuses()) == 50
    monkeypatch.undo()
    os.chdir(shop)
    assert run("resync", "item", "--batch", "10", "--resume")[0] == 0
    assert len(statuses()) == 80


@SIGNALS
def test_one_run_of_the_publisher_that_is_stopped_reports_what_waits(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    receiver = ModuleType("receivers")
    monkeypatch.setitem(sys.modules, "receivers", receiver)
    received = []

    def receive(_document: Any, events: Sequence[Event]) -> None:
        received.append(events[0].event_id)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(receiver, "receive", receive, raising=False)
    with Path("eventlog.toml").open("a") as file:
        file.write('[sink]\ntype = "python"\nfunction = "receivers:receive"\n')
        file.write("[publisher]\nbatch_size = 1\n")
    code, _, err = run("publish", "--once")
    assert (code, received) == (130, ["1"])
    assert (
        "stopped: documents that were sent are answered, and their rows are marked; all other "
        "rows wait for the next run"
    ) in err
    assert "Traceback" not in err
    assert statuses() == "S" + 39 * "N"


@pytest.mark.promise("option status--watch")
def test_a_command_that_runs_until_it_is_stopped_prints_nothing(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "eventlog.cli.inspect.runs.status.sleep", after(lambda _seconds: None, signal.SIGINT)
    )
    code, out, err = run("status", "--watch", "1", "--json")
    assert (code, "stopped" in err) == (130, False)
    assert json.loads(out)["log"] == "eventlog"


def test_a_command_that_reads_reports_that_nothing_was_changed(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: Any, **_named: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("eventlog.cli.inspect.runs.errors.read_refusals", interrupt)
    code, _, err = run("errors")
    assert (code, err.splitlines()[-1]) == (130, "eventlog: stopped: nothing was changed")
