"""One publisher under load, watched as somebody on call would.

What is killed shows on the page, in the metrics and in the log within five seconds; what comes back
shows too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))

from monitored import metrics, read, watched
from publishers import make_log
from receiver import Receiver
from shared import wait_until
from test_status_page import pytestmark, text

from eventlog.sql import embedded

__all__ = ["pytestmark"]  # where there is no browser

SOON = 5.0
"""Seconds within which whoever watches is told."""


class Server:
    """A PostgreSQL of its own, which can be killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.url = embedded.start(directory)

    def kill(self) -> None:
        pid = int((self._directory / "postmaster.pid").read_text().splitlines()[0])
        os.kill(
            pid, signal.SIGQUIT
        )  # at once, as a crash: nothing is said to sessions, nothing is written
        wait_until(
            lambda: not (self._directory / "postmaster.pid").exists() or not _lives(pid),
            "the server is gone",
        )

    def start(self) -> None:
        embedded.stop(self._directory)
        assert embedded.start(self._directory) == self.url


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def server() -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="el-story-", dir="/tmp"))
    try:
        made = Server(directory / "pg")
        yield made
        embedded.stop(directory / "pg")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def load(url: str) -> Iterator[None]:
    """An application that writes all the time, and connects again when it is cut off."""
    ended = threading.Event()
    plain = sa.make_url(url)

    def write() -> None:
        key = 0
        while not ended.wait(0.2):
            try:
                with psycopg.connect(
                    host=str(plain.query["host"]), user="postgres", dbname="postgres"
                ) as conn:
                    while not ended.wait(0.2):
                        conn.execute(
                            "INSERT INTO eventlog (event_type, table_name, table_key, "
                            "column_name, new_value) SELECT 1, 'usr', 'idu=' || (%s + i), "
                            "'fname', 'Jack' FROM generate_series(1, 100) AS i",
                            (key,),
                        )
                        conn.commit()
                        key += 100
            except psycopg.Error:
                continue

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        ended.set()
        writing.join()


def lines_of(running: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """The log lines of a process, filled as they come."""
    lines: list[dict[str, Any]] = []
    stream = running.stderr
    assert stream is not None
    running.stderr = None  # read here alone

    def follow() -> None:
        with stream:
            for line in stream:
                if line.startswith(b"{"):
                    lines.append(json.loads(line))

    threading.Thread(target=follow, daemon=True).start()
    return lines


def soon(began: float, holds: Callable[[], object], what: str) -> None:
    """It holds ``SOON`` after ``began``; a machine with more work than cores gets as much
    longer.
    """
    longer = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    wait_until(holds, what)
    assert time.monotonic() - began < SOON * longer, what


@pytest.mark.night
def test_what_is_killed_is_seen_on_the_page_in_the_metrics_and_in_the_log(
    server: Server, browser: Any, tmp_path: Path
) -> None:
    log = sa.create_engine(server.url, poolclass=sa.NullPool)
    make_log(log)
    options = {
        "sink__type": "http",
        "retry_initial": 1,
        "retry_max": 2,
        "log__format": "json",
        "polling_interval": 1,
    }
    with Receiver() as receiver, load(server.url):
        port, url = receiver.port, receiver.url
        with watched(log, tmp_path, sink__url=url, stderr=subprocess.PIPE, **options) as (
            running,
            address,
            _,
        ):
            lines = lines_of(running)

            def shows(words: str) -> Callable[[], bool]:
                return lambda: words in text(browser, "words")

            def said(words: str, code: str, since: int) -> Callable[[], bool]:
                return lambda: any(
                    words in line["message"] and line.get("code") == code for line in lines[since:]
                )

            browser.get(f"{address}/")
            wait_until(
                lambda: metrics(address)["eventlog_rows_published_total"] > 500,
                "it publishes under load",
            )

            def curves() -> object:
                return browser.execute_script(
                    "return [...document.querySelectorAll('#charts svg path.first')]"
                    ".filter((path) => path.getAttribute('d').split('L').length > 3).length"
                )

            wait_until(lambda: curves() == 4, "four curves are drawn")
            assert metrics(address)["eventlog_delivery_latency_seconds_count"] > 0

            since, began = len(lines), time.monotonic()
            receiver.__exit__(None, None, None)
            soon(began, shows("The receiver "), "the page shows that the receiver is unavailable")
            soon(
                began,
                lambda: metrics(address)["eventlog_backoffs_total"] > 0,
                "the metrics say so",
            )
            soon(began, said("trying again", "receiver_unavailable", since), "the log reports it")
            assert read(f"{address}/livez") == (200, "ok\n")
            with Receiver(port=port):
                wait_until(
                    lambda: not text(browser, "words").startswith("The receiver "),
                    "the receiver is back",
                )

                since, began = len(lines), time.monotonic()
                server.kill()
                soon(
                    began,
                    shows("The database "),
                    "the page shows that the database is unavailable",
                )
                soon(began, lambda: metrics(address)["eventlog_ready"] == 0, "the metrics say so")
                soon(began, said("", "database_unavailable", since), "the log reports it")
                assert read(f"{address}/livez") == (200, "ok\n")
                server.start()
                wait_until(lambda: metrics(address)["eventlog_ready"] == 1, "the database is back")
                before = metrics(address)["eventlog_rows_published_total"]
                wait_until(
                    lambda: metrics(address)["eventlog_rows_published_total"] > before + 200,
                    "it publishes on",
                )

                began = time.monotonic()
                running.kill()
                soon(
                    began,
                    lambda: text(browser, "lost").startswith("No answer since"),
                    "the page has lost it",
                )
                assert read(f"{address}/metrics")[0] == 0
                command = [
                    str(Path(sys.executable).with_name("eventlog")),
                    "--database-url",
                    server.url,
                    "status",
                ]
                told = subprocess.run(
                    command, capture_output=True, text=True, timeout=60, check=False
                )
                assert "no publisher runs" in told.stdout, told.stderr
    log.dispose()
