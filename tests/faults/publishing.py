"""A log on a real server, a publisher on it in a thread or as a process, and a sink that says when documents come."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa
from shared import PlainSink

from eventlog.config.load import Config, load
from eventlog.model import Answer
from eventlog.publisher.context import Counters
from eventlog.publisher.daemon import publish
from eventlog.publisher.open import open_context
from eventlog.publisher.sinks import Document, Sink
from eventlog.publisher.wake import Stop, StopRequest
from eventlog.sql import migrations

PATIENCE = 60.0
"""Seconds after which a test gives up. Nothing here takes a second; the machine may be busy."""

LONG = 3600
"""A polling interval that no test waits for."""

ROW = """INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value)
VALUES (1, 'usr', 'idu=' || :idu, 'fname', 'Jack')"""


def make_log(engine: sa.Engine) -> None:
    """The class ``usr`` and the log as ``eventlog db upgrade`` makes it."""
    with engine.begin() as conn:
        conn.execute(sa.text("CREATE TABLE usr (idu integer PRIMARY KEY, fname text)"))
    migrations.upgrade(engine, log_table="eventlog")


def write(engine: sa.Engine, *keys: int) -> None:
    """A row for each of these objects, in one transaction."""
    with engine.begin() as conn:
        for key in keys:
            conn.execute(sa.text(ROW), {"idu": key})


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not after {PATIENCE} s: {what}"
        time.sleep(0.01)


def settings(engine: sa.Engine, **options: object) -> dict[str, str]:
    """Flags: options of [publisher] by their name, others as ``sink__form``."""
    return {
        "database.url": engine.url.render_as_string(hide_password=False),
        **{
            name.replace("__", ".") if "__" in name else f"publisher.{name}": str(value)
            for name, value in options.items()
        },
    }


def configuration(engine: sa.Engine, **options: object) -> Config:
    return load(None, {}, settings(engine, **options))


@dataclass
class Inbox(PlainSink):
    """A receiver that takes everything. ``keys`` are those of the objects, in the order in which they came."""

    documents: queue.Queue[Document] = field(default_factory=queue.Queue)

    def send(self, document: Document) -> Answer:
        self.documents.put(document)
        return Answer()

    def take(self) -> list[int]:
        """The objects of the next document, which is waited for."""
        document = self.documents.get(timeout=PATIENCE)
        return [int(event.association.partition(",")[0].removeprefix("idu=")) for event in document.events]

    def take_all(self, count: int) -> list[int]:
        keys: list[int] = []
        while len(keys) < count:
            keys += self.take()
        return keys


@contextmanager
def publisher(config: Config, sink: Sink, stop: Stop | None = None) -> Iterator[threading.Thread]:
    """A publisher in a thread, stopped at the end. What it raises is raised there."""
    asked = StopRequest() if stop is None else stop
    raised: list[BaseException] = []

    def run() -> None:
        try:
            publish(lambda: open_context(config, Counters()), lambda: sink, asked)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="publisher")
    thread.start()
    try:
        yield thread
    finally:
        asked.set()  # type: ignore[attr-defined]
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the publisher does not stop"
        if isinstance(asked, StopRequest):
            asked.close()
    if raised:
        raise raised[0]


@contextmanager
def process(
    engine: sa.Engine, directory: Path, *more: str, first: Sequence[str] = (), **options: object
) -> Iterator[subprocess.Popen[bytes]]:
    """``eventlog publish`` as a process of its own, killed at the end. Its sink is ``files`` by default."""
    files = {} if "sink__type" in options else {"sink.type": "files", "sink.directory": str(directory)}
    flags = settings(engine, **options) | files
    command = [str(Path(sys.executable).with_name("eventlog")), *first, *_set(flags), "publish", *more]
    running = subprocess.Popen(command, env=os.environ | {"EVENTLOG_TRACEBACK": "1"}, stderr=subprocess.PIPE)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def _set(flags: dict[str, str]) -> Sequence[str]:
    return [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]


# What the server knows of a publisher.

_LOCKS = """SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND classid = CAST(:class AS bigint)::oid
  AND objid = 'eventlog'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


def sleeps(engine: sa.Engine) -> bool:
    """Whether a publisher has the lock that makes writers notify."""
    return _locked(engine, b"Ewak")


def runs(engine: sa.Engine) -> bool:
    """Whether a publisher has the log."""
    return _locked(engine, b"Elog")


def _locked(engine: sa.Engine, name: bytes) -> bool:
    with engine.connect() as conn:
        return bool(conn.execute(sa.text(_LOCKS), {"class": int.from_bytes(name)}).scalar_one())


def backend(engine: sa.Engine) -> sa.Row[tuple[int, str, bool]]:
    """Process, state and "in a transaction" of the publisher's session."""
    statement = """SELECT a.pid, a.state, a.xact_start IS NOT NULL FROM pg_stat_activity a JOIN pg_locks l USING (pid)
    WHERE l.locktype = 'advisory' AND l.classid = CAST(:class AS bigint)::oid AND a.datname = current_database()"""
    with engine.connect() as conn:
        return conn.execute(sa.text(statement), {"class": int.from_bytes(b"Elog")}).one()
