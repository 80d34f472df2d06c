"""What people see in a terminal: ``top``, ``tail``, ``status --watch``, the bar of ``publish
--once``.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import processes
import pytest
import sqlalchemy as sa
from monitored import metrics, pause, watched, write_and_resume
from processes import EVENTLOG
from publishers import Collecting, configuration, make_log, opened, settings, write
from receiver import Receiver, answer, reply, status
from shared import PATIENCE, free_port, wait_until

from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, EventResult, Level
from eventlog.publisher.run.daemon import publish_once

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from followed_stream import Stream, once
from test_follow_sources import configure
from test_follow_suspects import Failing


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return processes.run([EVENTLOG, *arguments], timeout=PATIENCE)


def of(log: sa.Engine) -> tuple[str, str]:
    return "--database-url", log.url.render_as_string(hide_password=False)


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on until it is ended, its lines read as they come."""
    pipe = subprocess.PIPE
    command = processes.start([EVENTLOG, *arguments], stdout=pipe, stderr=pipe, text=True)
    try:
        yield command
    finally:
        command.kill()
        command.communicate()


def line_of(command: subprocess.Popen[str]) -> str:
    assert command.stdout is not None
    return command.stdout.readline()


def test_top_shows_what_the_monitor_reports(log: sa.Engine, tmp_path: Path) -> None:
    with watched(log, tmp_path) as (_, address, _):
        write(log, 1, 2)
        wait_until(
            lambda: metrics(address)["eventlog_rows_published_total"] == 2, "it is published"
        )
        shown = run("top", "--url", address)
    assert shown.returncode == 0, shown.stderr
    assert "eventlog: " in shown.stdout
    assert "rows published" in shown.stdout
    assert "newest documents" in shown.stdout
    assert "success" in shown.stdout


def test_top_reports_that_the_monitor_is_gone(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    shown = run("top", "--url", address)
    assert shown.returncode == 1
    assert "does not answer" in shown.stderr


def test_top_from_the_database_alone_shows_the_queue(log: sa.Engine, tmp_path: Path) -> None:
    write(log, 1, 2)
    shown = run("--database-url", log.url.render_as_string(hide_password=False), "top")
    assert shown.returncode == 0, shown.stderr
    assert "no publisher runs" in shown.stdout
    assert "rows in the queue   2" in shown.stdout


class Terminal:
    """A terminal of a command, and all that the command has written to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._written = descriptor, ""

    def press(self, key: str) -> None:
        os.write(self._descriptor, key.encode())

    def shows(self, text: str) -> bool:
        """Whether this was written since the last time that something was waited for."""
        while select.select([self._descriptor], [], [], 0.05)[0]:
            self._written += os.read(self._descriptor, 65536).decode("utf-8", "replace")
        return text in self._written

    def wait_for(self, text: str) -> None:
        wait_until(lambda: self.shows(text), f"{text} is shown")
        self._written = ""


@contextmanager
def in_terminal(
    *arguments: str, columns: int = 160
) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """A command in a terminal of 60 lines and so many columns."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    command = [EVENTLOG, *arguments]
    # pytest-xdist sets COLUMNS, which would count more than the size of the terminal.
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment["TERM"] = "xterm"
    started = processes.start(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    try:
        yield Terminal(master), started
    finally:
        started.kill()
        started.wait()
        os.close(master)
        os.close(slave)


DOWN, ENTER, ESCAPE = "\x1b[B", "\r", "\x1b"


def test_top_opens_the_selected_event_with_enter_and_shows_what_explain_shows(
    log: sa.Engine, tmp_path: Path
) -> None:
    locked = [status("retry", "2", "the mailbox is locked")]
    with Receiver(lambda _: reply(200, answer(*locked))) as receiver:
        http = {"sink__type": "http", "sink__url": receiver.url, "retry_initial": 60}
        pause(log)
        with watched(log, tmp_path, monitor__show_values=True, **http) as (_, address, ask):
            write_and_resume(log, address, 1, 2)
            wait_until(lambda: ask("/status.json")["parked"], "one is parked")
            with in_terminal("top", "--url", address, "--interval", "60") as (terminal, command):
                terminal.wait_for("Enter opens it")
                terminal.press(ENTER)
                terminal.wait_for("parked as event 2")
                terminal.press(ESCAPE)
                terminal.wait_for("newest documents")
                terminal.press(DOWN)
                terminal.wait_for("newest documents")
                terminal.press(ENTER)
                terminal.wait_for("event 1")
                terminal.press(ESCAPE)
                terminal.wait_for("newest documents")
                terminal.press("q")
                assert command.wait(PATIENCE) == 0


def test_top_without_a_monitor_opens_an_event_whose_command_no_line_breaks(log: sa.Engine) -> None:
    write(log, 1)
    locked = Collecting(lambda _: Answer({"1": EventResult(Level.RETRY, "the mailbox is locked")}))
    with opened(configuration(log)) as context, pytest.raises(ReceiverUnavailable):
        publish_once(context, locked)
    with in_terminal(*of(log), "top", "--interval", "60", columns=80) as (terminal, _):
        terminal.wait_for("being delivered or parked")
        terminal.press(ENTER)
        terminal.wait_for("eventlog skip 1 --reason REASON")


def test_top_of_a_followed_source_opens_an_event_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stream, config = Stream(tmp_path / "capture.cdc"), configure(tmp_path)
    stream.insert(1, 2, 3)
    with pytest.raises(ReceiverUnavailable):
        once(stream, tmp_path / "position.db", Failing(2), batch_size=2)
    with in_terminal("-c", str(config), "top", "--interval", "60") as (terminal, _):
        terminal.wait_for("being delivered or parked")
        terminal.press(ENTER)
        terminal.wait_for("the receiver fails for it")


def test_top_shows_the_sentence_of_the_health_and_counts_an_event_once(
    log: sa.Engine, tmp_path: Path
) -> None:
    with Receiver(lambda _: reply(401)) as receiver:
        http = {"sink__type": "http", "sink__url": receiver.url, "retry_initial": 60}
        with watched(log, tmp_path, **http) as (_, address, ask):
            write(log, 1)
            wait_until(lambda: ask("/status.json")["state"]["name"] == "waiting", "it waits")
            shown = run("top", "--url", address).stdout
    assert "The receiver answers 401 Unauthorized for " in shown
    assert "Check the credentials: EVENTLOG_SINK_TOKEN" in shown
    assert "more condition" not in shown, "the others are below"
    assert re.search(r"events answered +0", shown)


def test_tail_shows_what_was_sent_and_goes_on_with_what_follows(
    log: sa.Engine, tmp_path: Path
) -> None:
    with watched(log, tmp_path) as (_, address, _):
        write(log, 1, 2)
        wait_until(
            lambda: metrics(address)["eventlog_rows_published_total"] == 2, "it is published"
        )
        with running("tail", "--url", address, "--interval", "0.2") as command:
            first = line_of(command)
            assert "delivery 1 document 1: 2 events (1 to 2), success after" in first
            write(log, 3)
            assert "delivery 2 document 1: 1 event (3), success after" in line_of(command)
        shown = run("tail", "--url", address, "--no-follow", "-n", "1", "--json")
        (sent,) = map(json.loads, shown.stdout.splitlines())
        assert (sent["delivery"], sent["first_id"], sent["level"]) == (2, "3", "success")


def test_tail_shows_the_receivers_reason(log: sa.Engine, tmp_path: Path) -> None:
    locked = reply(200, answer(status("retry", "1", "the mailbox is locked")))
    with Receiver(lambda _: locked) as receiver:
        options = {
            "sink__type": "http",
            "sink__url": receiver.url,
            "retry_initial": 30,
            "monitor__show_values": True,
        }
        with watched(log, tmp_path, **options) as (_, address, ask):
            write(log, 1)
            wait_until(lambda: ask("/status.json")["sent"], "it is sent")
            shown = run("tail", "--url", address, "--no-follow")
    assert "retry after" in shown.stdout
    assert shown.stdout.rstrip().endswith(": the mailbox is locked")


def test_tail_without_a_monitor_reports_that_it_needs_one(log: sa.Engine) -> None:
    shown = run(*of(log), "tail")
    assert shown.returncode == 2
    assert "tail needs the monitor of a running publisher" in shown.stderr
    assert "--url" in shown.stderr


def test_status_is_shown_again_while_it_is_watched(log: sa.Engine) -> None:
    with running(*of(log), "status", "--watch", "0.2") as command:
        shown = []
        while not shown or "E" not in shown[-1][:1]:
            shown.append(line_of(command))
        assert any(line.split()[:2] == ["N", "0"] for line in shown), shown
        write(log, 1, 2)
        until = time.monotonic() + PATIENCE
        while line_of(command).split()[:2] != ["N", "2"]:
            assert time.monotonic() < until


def test_a_watch_that_cannot_begin_ends_at_once(log: sa.Engine) -> None:
    shown = run(*of(log), "--log-table", "nowhere", "status", "--watch")
    assert shown.returncode in (1, 2)
    assert "nowhere" in shown.stderr


def started_run(
    log: sa.Engine, directory: Path, stderr: int, **options: object
) -> subprocess.Popen[bytes]:
    flags = settings(log, sink__type="files", sink__directory=str(directory), **options)
    environment = {
        f"EVENTLOG_{name.replace('.', '_').upper()}": value for name, value in flags.items()
    }
    return processes.start(
        [EVENTLOG, "publish", "--once"], env={**os.environ, "TERM": "xterm", "COLUMNS": "120",
        **environment}, stdout=subprocess.PIPE, stderr=stderr,
    )  # fmt: skip


def fill(log: sa.Engine, rows: int) -> None:
    with log.begin() as conn:
        conn.execute(
            sa.text(
                "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) "
                "SELECT 1, 'usr', 'idu=' || i, 'fname', 'Jack' FROM generate_series(1, :rows) AS i"
            ),
            {"rows": rows},
        )


def on_terminal(log: sa.Engine, directory: Path, **options: object) -> tuple[bytes, str]:
    """One run whose standard error is a terminal: its output, and what the terminal shows."""
    master, terminal = pty.openpty()
    command = started_run(log, directory, terminal, **options)
    os.close(terminal)
    shown = b""
    try:
        while fragment := os.read(master, 65536):
            shown += fragment
    except OSError:  # the other end is closed
        pass
    os.close(master)
    written, _ = command.communicate(timeout=PATIENCE)
    assert command.returncode == 0, shown
    return written, shown.decode()


def test_one_run_shows_rows_speed_and_time_left_on_a_terminal(
    log: sa.Engine, tmp_path: Path
) -> None:
    fill(log, 60_000)
    written, text = on_terminal(log, tmp_path / "out")
    assert " of 60,000 rows" in text
    assert " a second" in text
    assert "left" in text
    assert "60,000 rows read" in text, "log lines are shown too"
    assert written == b""


def test_the_snapshot_of_a_consumer_shows_how_many_objects_of_a_class_are_sent(
    log: sa.Engine, tmp_path: Path
) -> None:
    with log.begin() as conn:
        conn.execute(sa.text("INSERT INTO usr SELECT i, 'Jack' FROM generate_series(1, 2000) AS i"))
    with log.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.execute(sa.text("ANALYZE usr"))
    source = {
        "source__type": "eventlog",
        "source__consumer": "search",
        "source__start_from": "snapshot",
    }
    written, text = on_terminal(log, tmp_path / "out", **source)
    assert "Snapshot of usr" in text
    assert " of 2,000 objects" in text
    assert "the snapshot has ended" in text, "log lines are shown too"
    assert written == b""
    fill(log, 3_000)
    assert " of 3,000 rows" in on_terminal(log, tmp_path / "out", **source)[1], (
        "of the consumer, not of the publisher"
    )


def test_one_run_without_a_terminal_draws_nothing(log: sa.Engine, tmp_path: Path) -> None:
    fill(log, 10)
    command = started_run(log, tmp_path / "out", subprocess.PIPE)
    _, said = command.communicate(timeout=PATIENCE)
    assert command.returncode == 0
    assert b"\x1b" not in said
    assert b"left" not in said
