"""A command waits a moment for the lock of the command before it: the server may end that session a
moment later (spec/event-log.md 12.2).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from shared import Run

from eventlog import Publisher
from eventlog.config.load import load
from eventlog.core.clock import monotonic
from eventlog.errors import PublisherAlreadyRunning
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.ledger import ledger
from eventlog.publisher.stream.position import position_table


@pytest.fixture
def shop(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a log."""
    monkeypatch.chdir(tmp_path)
    Path("eventlog.toml").write_text(
        '[database]\nurl = "sqlite:///shop.db"\n[[watch]]\ntable = "item"\n[sink]\ntype = "stdout"\n'
    )
    with closing(sqlite3.connect("shop.db")) as db:
        db.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    assert run("db", "upgrade")[0] == 0
    return tmp_path


@contextmanager
def held(seconds: float | None) -> Iterator[None]:
    """Have the lock of the log in another session, for some seconds, None = until the block ends."""
    locked, end = threading.Event(), threading.Event()

    def hold() -> None:
        with open_context(load(Path("eventlog.toml"), {}), Counters()):
            locked.set()
            end.wait(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(30)
    try:
        yield
    finally:
        end.set()
        thread.join()


def publish_once(run: Run) -> int:
    return run("publish", "--once")[0]


def start_epoch(run: Run) -> int:
    return run("db", "start-epoch")[0]


def run_in_python(_run: Run) -> int:
    publisher = Publisher.from_config("eventlog.toml", sink=lambda _document, _events: None)
    publisher.run_once()
    return 0


@pytest.mark.parametrize("command", [publish_once, start_epoch, run_in_python])
def test_a_command_right_after_another_one_waits_for_its_session_to_end(
    shop: Path, run: Run, command: Callable[[Run], int]
) -> None:
    with held(0.4):
        assert command(run) == 0


@pytest.mark.promise("exit publish 1")
def test_a_log_that_is_published_is_refused_after_the_wait(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = monotonic()
    with held(None):
        code, _, err = run("publish", "--once")
    assert code == 1
    assert "is already being published" in err
    assert 0.9 * ledger.LOCK_WAIT < monotonic() - began < 10 * ledger.LOCK_WAIT


def test_a_daemon_does_not_wait(shop: Path, run: Run) -> None:
    with held(None):
        began = monotonic()
        code, _, err = run("publish")
        seconds = monotonic() - began
    assert (code, "is already being published" in err) == (1, True)
    assert seconds < ledger.LOCK_WAIT


def test_the_position_of_a_source_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/position.db"
    monkeypatch.setattr(ledger, "LOCK_WAIT", 0.2)
    with (
        position_table(url, "eventlog_position", "gbase"),
        pytest.raises(PublisherAlreadyRunning, match="is locked"),
        position_table(url, "eventlog_position", "gbase"),
    ):
        pass
    monkeypatch.undo()
    first = position_table(url, "eventlog_position", "gbase")
    first.__enter__()
    closing_it = threading.Timer(0.4, lambda: first.__exit__(None, None, None))
    closing_it.start()
    with position_table(url, "eventlog_position", "gbase") as position:
        assert position.load().token is None
    closing_it.join()
