"""Rows of several MiB: the publisher's memory is bounded by bytes, not by rows (spec/event-log.md
8.2, 8.4).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import sqlalchemy as sa
from publishers import Collecting, configuration, make_log, opened, settings
from shared import PATIENCE, execute, fetch, statuses

from eventlog.errors import ReceiverUnavailable
from eventlog.publisher.run.daemon import publish_once

MIB = 2**20
ROWS = 60
COLUMNS = "event_type, table_name, table_key, column_name, new_value"
MOST = 300 * MIB
"""What the process may use in addition to the libraries that it maps."""


def write_large(database: sa.Engine, rows: int = ROWS, mib: int = 4) -> None:
    """So many objects, each with a row of so many MiB, which does not compress in the database."""
    execute(
        database,
        "ALTER TABLE eventlog ALTER new_value SET STORAGE EXTERNAL",
        f"INSERT INTO eventlog ({COLUMNS}) SELECT 1, 'usr', 'idu=' || g, 'fname', repeat('x', "
        f"{mib} * 1048576) FROM generate_series(1, {rows}) AS g",
    )


class _Receiver(ThreadingHTTPServer):
    """Takes what it is sent, without keeping it; ``answers`` says with which status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 204
        self.bytes = 0
        self.largest = 0


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, _Receiver)
        left = size = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, MIB)))
        self.server.bytes += size
        self.server.largest = max(self.server.largest, size)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiving() -> Iterator[_Receiver]:
    server = _Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def publish_bounded(
    database: sa.Engine, receiver: _Receiver, **options: object
) -> subprocess.CompletedProcess[str]:
    """``eventlog publish --once`` whose data may not grow beyond ``MOST``."""
    url = f"http://127.0.0.1:{receiver.server_address[1]}/"
    flags = settings(database, **options) | {
        "sink.type": "http",
        "sink.url": url,
        "sink.response_format": "status",
    }
    sets = [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]
    program = (
        "import resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_DATA, ({MOST}, {MOST})); "
        "from eventlog.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *sets, "publish", "--once"],
        env=os.environ | {"EVENTLOG_TRACEBACK": "1"}, capture_output=True, text=True,
        timeout=5 * PATIENCE, check=False,
    )  # fmt: skip


def test_large_rows_are_published_in_bounded_memory(database: sa.Engine) -> None:
    make_log(database)
    write_large(database)
    with receiving() as receiver:
        ended = publish_bounded(database, receiver)
    assert ended.returncode == 0, ended.stderr
    assert set(statuses(database).values()) == {"S"}
    assert receiver.bytes > ROWS * 4 * MIB
    assert receiver.largest < 20 * MIB  # delivery_bytes, and what XDS writes around the values


@pytest.mark.night
def test_a_delivery_of_large_rows_that_was_recorded_is_sent_a_document_at_a_time(
    database: sa.Engine,
) -> None:
    """As a version recorded it that counted rows alone."""
    make_log(database)
    write_large(database)

    def away(_document: object) -> None:
        raise ReceiverUnavailable("nobody there")

    with (
        pytest.raises(ReceiverUnavailable),
        opened(configuration(database, batch_size=4), delivery_bytes=2**40) as context,
    ):
        publish_once(context, Collecting(away))
    assert len(fetch(database, "SELECT FROM eventlog_inflight")) == 1
    with receiving() as receiver:
        ended = publish_bounded(database, receiver)
    assert ended.returncode == 0, ended.stderr
    assert set(statuses(database).values()) == {"S"}


@pytest.mark.night
def test_large_rows_that_are_read_back_are_published_in_bounded_memory(database: sa.Engine) -> None:
    make_log(database)
    execute(
        database,
        "ALTER TABLE usr ALTER fname SET STORAGE EXTERNAL",
        f"INSERT INTO usr SELECT g, repeat('x', 4 * 1048576) FROM generate_series(1, {ROWS}) AS g",
        "INSERT INTO eventlog (event_type, table_name, table_key) "
        f"SELECT 5, 'usr', 'idu=' || g FROM generate_series(1, {ROWS}) AS g",
    )
    with receiving() as receiver:
        ended = publish_bounded(database, receiver)
    assert ended.returncode == 0, ended.stderr
    assert set(statuses(database).values()) == {"S"}


def test_the_events_are_the_same_whatever_the_bytes_of_a_delivery(
    database: sa.Engine, tmp_path: Path
) -> None:
    make_log(database)
    execute(
        database,
        # Small and large rows of few objects, so that they fold; one large row is bad and one is of
        # an unknown type.
        f"INSERT INTO eventlog ({COLUMNS}) SELECT 2, 'usr', 'idu=' || g % 7, 'fname', "
        "repeat(chr(97 + g % 26), CASE WHEN g % 3 = 0 THEN 40000 ELSE 10 END) || g FROM "
        "generate_series(1, 200) AS g",
        f"INSERT INTO eventlog ({COLUMNS}) VALUES (2, 'usr', 'idu=1', 'fname', repeat(chr(1), "
        "50000)), (-7, 'usr', 'idu=1', 'fname', repeat('x', 50000)), (2, 'usr', 'idu=2', 'fname', "
        "'last')",
    )
    sent = []
    for delivery_bytes in (2**40, 2**16, 100_000):
        sink = Collecting()
        with opened(
            configuration(database, query_limit=50), delivery_bytes=delivery_bytes
        ) as context:
            publish_once(context, sink)
        sent.append([event for document in sink.documents for event in document.events])
        assert len(fetch(database, "SELECT FROM eventlog WHERE status = 'E'")) == 2
        execute(database, "UPDATE eventlog SET status = 'N'", "DELETE FROM eventlog_error")
    assert sent[0] == sent[1] == sent[2]
    assert len(sent[0]) > 1
