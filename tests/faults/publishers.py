"""Publishers on a log of a real PostgreSQL: how the log is made, run by a thread or a process, and
what they send.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from processes import EVENTLOG, start
from shared import PATIENCE, PlainSink, fetch, url_of

from eventlog.cli.context import transaction
from eventlog.cli.install.runs.db import names
from eventlog.config.load import Config, load
from eventlog.core.options import toml
from eventlog.model import Answer, Document
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.context.observer import SILENT, Observer
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.publisher import Publisher
from eventlog.publisher.run.daemon import publish
from eventlog.publisher.run.waiting import Stop, StopRequest
from eventlog.publisher.sinks import Sink
from eventlog.sql import migrations
from eventlog.sql.triggers import LOCK_TIMEOUT, triggers_of

LONG = 3600
"""A polling interval that no test waits for."""

# --- a log and its configuration ------------------------------------------------------------------


def write_config(
    directory: Path, url: str, watches: Sequence[dict[str, Any]] = (), **sections: dict[str, Any]
) -> Path:
    """A configuration file: ``sections`` by name, ``database={"schema_name": ...}`` and so on."""
    database = {"url": url, **sections.pop("database", {})}
    lines = []
    for name, settings in {"database": database, **sections}.items():
        lines += [f"[{name}]", *(f"{key} = {toml(value)}" for key, value in settings.items())]
    for watch in watches:
        lines += ["[[watch]]", *(f"{key} = {toml(value)}" for key, value in watch.items())]
    path = directory / "eventlog.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def install(config: Config) -> None:
    """The log with its internal tables, and the triggers of the watches."""
    with transaction(config) as db:
        migrations.upgrade(db.connection, **names(config))
        triggers_of(db.dialect).apply(db.connection, planned_triggers(db, config), LOCK_TIMEOUT)


ROW = """INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value)
VALUES (1, 'usr', 'idu=' || :idu, 'fname', 'Jack')"""


def make_log(engine: sa.Engine) -> None:
    """The class ``usr`` and the log as ``eventlog db upgrade`` makes it."""
    with engine.begin() as conn:
        conn.execute(sa.text("CREATE TABLE usr (idu integer PRIMARY KEY, fname text)"))
    migrations.upgrade(engine, log_table="eventlog")


def write(engine: sa.Engine, *keys: int, event_type: int = 1) -> None:
    """A row for each of these objects, in one transaction.

    A window with a modify at its end, 2, may end there; that of an insert waits for more of its
    rows.
    """
    row = sa.text(ROW.replace("(1,", f"({event_type},"))
    with engine.begin() as conn:
        for key in keys:
            conn.execute(row, {"idu": key})


def settings(engine: sa.Engine, **options: object) -> dict[str, str]:
    """Flags: options of [publisher] by their name, others as ``sink__file_layout``."""
    return {
        "database.url": url_of(engine),
        **{
            name.replace("__", ".") if "__" in name else f"publisher.{name}": str(value)
            for name, value in options.items()
        },
    }


def configuration(engine: sa.Engine, **options: object) -> Config:
    return load(None, {}, settings(engine, **options))


# --- who writes -----------------------------------------------------------------------------------


def session(engine: sa.Engine) -> psycopg.Connection[Any]:
    """A session of an application: of the bare driver, each statement in the transaction that it
    begins.
    """
    url = engine.url
    return psycopg.connect(
        host=str(url.query.get("host") or url.host or ""),
        port=url.port,
        user=url.username,
        password=url.password,
        dbname=url.database,
        application_name="writer",
    )


@contextmanager
def unless_refused(session: psycopg.Connection[Any]) -> Iterator[None]:
    """A transaction of an application, rolled back where the server refuses it for what others do
    at the same time.
    """
    try:
        yield
    except (
        psycopg.errors.IntegrityError,
        psycopg.errors.DeadlockDetected,
        psycopg.errors.CardinalityViolation,
        psycopg.errors.SerializationFailure,
    ):
        session.rollback()
    except psycopg.errors.InternalError_ as error:
        # Of the server itself, seldom: an update that is being rolled back counts ("more than one
        # updating member").
        if "multixact" not in str(error):
            raise
        session.rollback()


# --- sinks ----------------------------------------------------------------------------------------


class Collecting(PlainSink):
    """A sink that keeps its documents. ``on_send`` may look around, wait, answer, or raise."""

    def __init__(
        self, on_send: Callable[[Document], Answer | None] = lambda document: None
    ) -> None:
        self.documents: list[Document] = []
        self.on_send = on_send

    def send(self, document: Document) -> Answer:
        self.documents.append(document)
        return self.on_send(document) or Answer()

    @property
    def bodies(self) -> list[str]:
        return [document.body.decode() for document in self.documents]

    @property
    def event_ids(self) -> list[str]:
        return [event.event_id for document in self.documents for event in document.events]


@dataclass
class Inbox(PlainSink):
    """A receiver that takes everything. ``keys`` are those of the objects, in the order in which
    they came.
    """

    documents: queue.Queue[Document] = field(default_factory=queue.Queue)

    def send(self, document: Document) -> Answer:
        self.documents.put(document)
        return Answer()

    def take(self) -> list[int]:
        """The objects of the next document, which is waited for."""
        document = self.documents.get(timeout=PATIENCE)
        return [
            int(event.association.partition(",")[0].removeprefix("idu="))
            for event in document.events
        ]

    def take_all(self, count: int) -> list[int]:
        keys: list[int] = []
        while len(keys) < count:
            keys += self.take()
        return keys


# --- publishers -----------------------------------------------------------------------------------


@contextmanager
def opened(config: Config, **options: Any) -> Iterator[Context]:
    """A context that holds the lock, with options that a configuration does not allow, such as no
    waiting.
    """
    with open_context(config, Counters()) as context:
        yield dataclasses.replace(context, options=dataclasses.replace(context.options, **options))


@dataclass
class Running:
    """A publisher in a thread. ``error`` is what it ended with."""

    stop: Stop
    thread: threading.Thread
    error: BaseException | None = None


@contextmanager
def in_background(publisher: Publisher) -> Iterator[None]:
    """A publisher or consumer that runs meanwhile in a thread, and may not fail."""
    stop, failed = threading.Event(), list[Exception]()

    def run() -> None:
        try:
            publisher.run(stop)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not failed


@contextmanager
def running(publisher: Publisher) -> Iterator[None]:
    """A publisher in a thread, until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=publisher.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


@contextmanager
def publishing(
    config: Config,
    sink: Sink,
    stop: Stop | None = None,
    observer: Observer = SILENT,
    **options: Any,
) -> Iterator[Running]:
    """The daemon in a thread while the block runs; it is stopped at its end, and what it raised is
    raised.
    """

    def serve() -> None:
        try:
            publish(lambda: opened(config, **options), lambda: sink, running.stop, observer)
        except BaseException as error:
            running.error = error

    running = Running(stop or StopRequest(), threading.Thread(target=serve, name="publisher"))
    running.thread.start()
    try:
        yield running
    finally:
        running.stop.set()  # type: ignore[attr-defined]
        running.thread.join(PATIENCE)
        assert not running.thread.is_alive(), "the publisher does not stop"
        if isinstance(running.stop, StopRequest):
            running.stop.close()
    if running.error is not None:
        raise running.error


def is_drained(engine: sa.Engine, running: Running | None = None, log: str = "eventlog") -> bool:
    """Whether nothing waits and nothing is in flight."""
    if running is not None and running.error is not None:
        raise running.error
    (counts,) = fetch(
        engine,
        f"SELECT (SELECT count(*) FROM {log} WHERE status = 'N'), (SELECT count(*) FROM "
        f"{log}_inflight)",
    )
    return counts == (0, 0)


@contextmanager
def process(
    engine: sa.Engine,
    directory: Path,
    *more: str,
    first: Sequence[str] = (),
    stderr: int | None = None,
    **options: object,
) -> Iterator[subprocess.Popen[bytes]]:
    """``eventlog publish`` as its own process, killed at the end. Its sink is ``files`` by default.

    Its log lines are those of the test, unless the test asks for a pipe and reads them: a pipe that
    nobody reads stops the publisher once it is full.
    """
    files = (
        {} if "sink__type" in options else {"sink.type": "files", "sink.directory": str(directory)}
    )
    flags = settings(engine, **options) | files
    command = [
        EVENTLOG,
        *first,
        *_set(flags),
        "publish",
        *more,
    ]
    environment = os.environ | {"EVENTLOG_TRACEBACK": "1"}
    running = start(command, env=environment, stderr=stderr)
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
