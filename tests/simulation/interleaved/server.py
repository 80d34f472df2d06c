"""A PostgreSQL with one watched table, and the sessions that all schedules share.

Nothing is made for a schedule: the rows of the one before are deleted, and numbers begin again.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from shared import temporary_servers
from sqlalchemy import make_url

from eventlog import cli
from eventlog.config.load import load
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.open_context import open_context, open_unlocked
from eventlog.publisher.published import Published
from eventlog.sql import embedded
from eventlog.sql.dialects.postgresql.database import PostgresDatabase
from eventlog.sql.dialects.postgresql.log_session import LogSession
from interleaved.stepping import Stepper, sessions_of

OBJECTS = (1, 2, 3)
CONSUMER = "cons"
_WRITERS = 3
_SETTINGS = {
    "max_prepared_transactions": "20",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "update_process_title": "off",
    "jit": "off",
    "track_counts": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "20",
}
_TABLE = "CREATE TABLE part (id integer PRIMARY KEY, v text)"
_TABLES = (
    "eventlog",
    "eventlog_inflight",
    "eventlog_state",
    "eventlog_error",
    "eventlog_consumer",
)
_EMPTY = f"""
    {"".join(f"DELETE FROM {table};" for table in _TABLES)}
    UPDATE part SET v = '';
    SELECT setval(pg_get_serial_sequence('eventlog', 'record_id'), 1, false);
    SELECT setval('eventlog_delivery', 1, false);
"""
_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
_SCHEDULES_OF_A_FILE = 100
"""The number of schedules after which the files of the tables are made again."""


@contextmanager
def server() -> Iterator[str]:
    """Yield the URL of an embedded PostgreSQL whose data is in memory, as far as there is room."""
    memory = Path("/dev/shm")
    with temporary_servers("il-", memory if memory.is_dir() else None) as made:
        directory = made / "pg"
        url = embedded.start(directory)
        with closing(psycopg.connect(_conninfo(url), autocommit=True)) as admin:
            for name, value in _SETTINGS.items():
                admin.execute(f"ALTER SYSTEM SET {name} = {value}")
        embedded.stop(directory)  # the number of prepared transactions counts from a start on
        with embedded.running(directory) as url:
            yield url


def _conninfo(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@dataclass
class Sessions:
    """The sessions of all schedules, and what opens them."""

    stepper: Stepper
    publisher: Context
    consumer: Context
    operator: Context
    writers: list[psycopg.Connection[Any]]
    _emptied: int = 0

    @property
    def control(self) -> psycopg.Connection[Any]:
        return self.stepper.control

    def empty(self) -> None:
        """Make everything as it was before the first schedule."""
        for (gid,) in self.control.execute(_PREPARED).fetchall():
            self.control.execute(f"ROLLBACK PREPARED '{gid}'")
        self._emptied += 1
        if self._emptied % _SCHEDULES_OF_A_FILE == 0:
            self.control.execute(f"TRUNCATE {', '.join(_TABLES)}")
            self.control.execute("VACUUM part")
        self.control.execute(_EMPTY)


@contextmanager
def sessions(url: str) -> Iterator[Sessions]:
    """Make the tables and their triggers, and yield the sessions."""
    with ExitStack() as kept:
        directory = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="il-")))

        def connect(kind: type[psycopg.Connection[Any]] = psycopg.Connection) -> Any:
            opened = kind.connect(_conninfo(url), autocommit=True)
            return kept.enter_context(closing(opened))

        control = connect()
        control.execute("DROP TABLE IF EXISTS part CASCADE")
        control.execute(_TABLE)
        control.execute("INSERT INTO part SELECT i, '' FROM unnest(%s::int[]) AS i", [[*OBJECTS]])
        _install(url, directory)
        # The triggers do not fire for it, as they do not for rows that are replicated.
        control.execute("SET session_replication_role = replica")
        stepper = Stepper(control)
        stepped = sessions_of(stepper)
        kept.enter_context(patch.object(psycopg, "connect", stepped.connect))
        # Which index a statement uses is nothing to other sessions.
        for session in (PostgresDatabase, LogSession):
            kept.enter_context(patch.object(session, "choose_plans", lambda *_: None))
        # The clock of the readers is not the server's: the times of rows are not compared with it.
        kept.enter_context(patch.object(Published, "_by_time", lambda *_: None))
        plain, own = _config(url), _config(url, CONSUMER)
        writers = [connect(stepped) for _ in range(_WRITERS)]
        for writer in writers:
            writer.has_points = False  # each of its statements is a step of the schedule
        yield Sessions(
            stepper,
            kept.enter_context(open_context(load(plain, {}), Counters())),
            kept.enter_context(open_context(load(own, {}), Counters())),
            kept.enter_context(open_unlocked(load(plain, {}), Counters())),
            writers,
        )


def _config(url: str, consumer: str = "") -> dict[str, Any]:
    config: dict[str, Any] = {
        "database": {"url": url},
        "publisher": {"allow_loopback": True, "notify": False},
        "watch": [{"table": "part"}],
    }
    if consumer:
        config["source"] = {"type": "eventlog", "consumer": consumer, "start_from": "earliest"}
    return config


def _install(url: str, directory: Path) -> None:
    path = directory / "eventlog.toml"
    path.write_text(f'[database]\nurl = "{url}"\n[[watch]]\ntable = "part"\n')
    said = io.StringIO()
    for words in (("db", "upgrade"), ("triggers", "apply")):
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            assert cli.run(["--config", str(path), *words]) == 0, said.getvalue()
