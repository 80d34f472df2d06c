"""A log with its triggers on a real PostgreSQL, a configuration for it, and a publisher that can be run in a thread."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from shared import PlainSink

from eventlog.cli.context import transaction
from eventlog.cli.db import names
from eventlog.cli.triggers import planned_triggers
from eventlog.config.load import Config
from eventlog.model import Answer
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.daemon import publish
from eventlog.publisher.open import open_context
from eventlog.publisher.sinks import Document, Sink
from eventlog.publisher.wake import StopRequest
from eventlog.sql import migrations
from eventlog.sql.triggers.plan import LOCK_TIMEOUT

PATIENCE = 60.0
"""Seconds until a test that waits for something gives up; what it waits for takes far less."""


def write_config(directory: Path, url: str, watches: Sequence[dict[str, Any]] = (), **sections: dict[str, Any]) -> Path:
    """A configuration file: ``sections`` by name, ``database={"schema_name": ...}`` and so on."""
    database = {"url": url, **sections.pop("database", {})}
    lines = []
    for name, settings in {"database": database, **sections}.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items())]
    for watch in watches:
        lines += ["[[watch]]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in watch.items())]
    path = directory / "eventlog.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def url_of(engine: sa.Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def install(config: Config) -> None:
    """The log with its companions, and the triggers of the watches."""
    with transaction(config) as (conn, dialect):
        migrations.upgrade(conn, **names(config))
        dialect.triggers.apply(conn, planned_triggers(conn, dialect, config), LOCK_TIMEOUT)


def run(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as conn:
        for statement in statements:
            conn.exec_driver_sql(statement, execution_options={"no_parameters": True})


def rows(engine: sa.Engine, statement: str) -> list[tuple[Any, ...]]:
    with engine.connect() as conn:
        return [tuple(row) for row in conn.exec_driver_sql(statement, execution_options={"no_parameters": True})]


def session(engine: sa.Engine) -> psycopg.Connection[Any]:
    """A session of an application: of the bare driver, each statement in the transaction that it begins."""
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
    """A transaction of an application, rolled back where the server refuses it for what others do at the same time."""
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
        # Of the server itself, seldom: an update that is being rolled back counts ("more than one updating member").
        if "multixact" not in str(error):
            raise
        session.rollback()


def statuses(engine: sa.Engine, log: str = "eventlog") -> dict[int, str]:
    return dict(rows(engine, f"SELECT record_id, status FROM {log} ORDER BY record_id"))  # type: ignore[arg-type]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited {PATIENCE:g} s in vain until {what}")
        time.sleep(0.01)


class Collecting(PlainSink):
    """A sink that keeps its documents. ``on_send`` may look around, wait, answer, or raise."""

    def __init__(self, on_send: Callable[[Document], Answer | None] = lambda document: None) -> None:
        self.documents: list[Document] = []
        self.on_send = on_send

    def send(self, document: Document) -> Answer:
        self.documents.append(document)
        return self.on_send(document) or Answer()

    @property
    def bodies(self) -> list[str]:
        return [document.body for document in self.documents]

    @property
    def event_ids(self) -> list[str]:
        return [event.event_id for document in self.documents for event in document.events]


@contextmanager
def opened(config: Config, **options: Any) -> Iterator[Context]:
    """A context that holds the lock, with options that a configuration does not allow, such as no waiting."""
    with open_context(config, Counters()) as context:
        yield dataclasses.replace(context, options=dataclasses.replace(context.options, **options))


@dataclass
class Running:
    """A publisher in a thread. ``error`` is what it ended with."""

    stop: StopRequest
    error: BaseException | None = None


@contextmanager
def publishing(config: Config, sink: Sink, **options: Any) -> Iterator[Running]:
    """The daemon in a thread while the block runs; it is stopped at its end, and what it raised is raised."""
    running = Running(StopRequest())

    def serve() -> None:
        try:
            publish(lambda: opened(config, **options), lambda: sink, running.stop)
        except BaseException as error:
            running.error = error

    thread = threading.Thread(target=serve, name="publisher")
    thread.start()
    try:
        yield running
    finally:
        running.stop.set()
        thread.join(PATIENCE)
        running.stop.close()
        assert not thread.is_alive()
    if running.error is not None:
        raise running.error


def is_drained(engine: sa.Engine, running: Running | None = None, log: str = "eventlog") -> bool:
    """Whether nothing waits and nothing is in flight."""
    if running is not None and running.error is not None:
        raise running.error
    (counts,) = rows(
        engine, f"SELECT (SELECT count(*) FROM {log} WHERE status = 'N'), (SELECT count(*) FROM {log}_inflight)"
    )
    return counts == (0, 0)
