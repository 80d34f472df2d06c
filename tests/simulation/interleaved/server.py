"""A PostgreSQL with one watched table, and the sessions that all schedules share.

Nothing is made for a schedule: the rows of the one before are deleted, and numbers begin again. The
schedules with leaves and crashes have a second database, whose log is partitioned.

A crash ends a process of the server by SIGKILL. The server then ends all others, forgets its
memory and recovers from the WAL that was flushed: what no commit has waited for is lost, as with the
machine, because nothing else flushes it.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from shared import temporary_servers
from sqlalchemy import make_url

from eventlog import cli
from eventlog.config.load import load
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.context.used_ids import Published
from eventlog.publisher.declared.opening import open_context, open_unlocked
from eventlog.sql import embedded
from eventlog.sql.dialects.postgresql.database import PostgresDatabase
from eventlog.sql.dialects.postgresql.log_session import LogSession
from eventlog.sql.dialects.postgresql.partitions import leaf_sql
from interleaved.stepping import Stepper, sessions_of

OBJECTS = (1, 2, 3)
CONSUMER = "cons"
PLAIN, LEAVES, FAMILIES = "postgres", "leaves", "families"
"""The databases: with a log of one table, with a partitioned one, and with a child table."""
LEAF_SIZE = 5
_WRITERS = 3
_SETTINGS = {
    "max_prepared_transactions": "20",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "update_process_title": "off",
    "jit": "off",
    "track_counts": "off",
    "max_wal_senders": "0",
    "max_connections": "40",
    # These would flush what no commit has waited for.
    "wal_writer_delay": "10s",
    "wal_writer_flush_after": "2147483647",
    "bgwriter_lru_maxpages": "0",
    "checkpoint_timeout": "1d",
}
_MADE = """
    DROP TABLE IF EXISTS part, usr_phone, usr CASCADE;
    CREATE TABLE part (id integer PRIMARY KEY, v text);
    CREATE TABLE usr (idu integer PRIMARY KEY, fname text);
    CREATE TABLE usr_phone (
        idu integer REFERENCES usr ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
        phoneno text, UNIQUE (idu, phoneno));
"""
_TABLES = (
    "eventlog",
    "eventlog_inflight",
    "eventlog_state",
    "eventlog_error",
    "eventlog_consumer",
)
_EMPTY = f"""
    {"".join(f"DELETE FROM {table};" for table in _TABLES)}
    UPDATE eventlog_epoch SET removed = NULL WHERE removed IS NOT NULL;
    UPDATE part SET v = '';
    DELETE FROM usr_phone;
    DELETE FROM usr;
    SELECT setval(pg_get_serial_sequence('eventlog', 'record_id'), 1, false);
    SELECT setval('eventlog_delivery', 1, false);
"""
DETACHED = """
    SELECT relname FROM pg_class
    WHERE relname ~ '^eventlog_[0-9]+$' AND relkind = 'r' AND NOT relispartition"""
_WALWRITER = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
_RECOVERY = 60
"""The seconds within which a server works again after a crash."""
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
                admin.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        embedded.stop(directory)  # the number of prepared transactions counts from a start on
        with embedded.running(directory) as url:
            yield url


def _conninfo(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@dataclass
class Sessions:
    """The sessions of all schedules with one database, and what opens them."""

    url: str
    stepper: Stepper
    control: psycopg.Connection[Any]
    publisher: Context
    consumer: Context
    operator: Context
    purge: Context
    kind: type[psycopg.Connection[Any]]
    writers: list[psycopg.Connection[Any]] = field(default_factory=list)
    _emptied: int = 0

    @property
    def is_partitioned(self) -> bool:
        return self.operator.log.table.is_partitioned

    def empty(self) -> None:
        """Make everything as it was before the first schedule."""
        for (gid,) in self.control.execute(_PREPARED).fetchall():
            self.control.execute(f"ROLLBACK PREPARED '{gid}'")
        self._emptied += 1
        if self._emptied % _SCHEDULES_OF_A_FILE == 0:
            self.control.execute(f"TRUNCATE {', '.join(_TABLES)}")
            self.control.execute("VACUUM part")
        self.control.execute(_EMPTY)
        if self.is_partitioned:
            self._lay_leaves()

    def _lay_leaves(self) -> None:
        """Have the log in a leaf of the first numbers, below the open one."""
        log, means = self.purge.log, self.purge.log.dialect.partitioning
        assert means is not None
        for (name,) in self.control.execute(DETACHED).fetchall():
            self.control.execute(f"DROP TABLE {name}")
        known = [(one.first, one.end) for one in means.leaves(log)]
        log.commit()
        if known != [(None, 1), (1, 1 + LEAF_SIZE), (1 + LEAF_SIZE, None)]:
            means.unpartition(log, 0)
            means.prepare(log)
            means.partition(log, LEAF_SIZE)

    def begin_at(self, number: int) -> None:
        """Let the log give this number next."""
        self.control.execute(
            "SELECT setval(pg_get_serial_sequence('eventlog', 'record_id'), %s, false)", (number,)
        )

    def connect(self) -> None:
        """Open the sessions that are not contexts, again after a crash."""
        self.close()
        self.control = _control(self.url)
        self.writers[:] = [
            self.kind.connect(_conninfo(self.url), autocommit=True) for _ in range(_WRITERS)
        ]
        for writer in self.writers:
            writer.has_points = False  # type: ignore[attr-defined]  # each of its statements is a step of the schedule

    def close(self) -> None:
        for session in (self.control, *self.writers):
            session.close()

    def lose(self, *contexts: Context) -> None:
        """Let these contexts connect again when they are used next."""
        for one in contexts or (self.publisher, self.consumer, self.operator, self.purge):
            connection = one.log.connection
            if not connection.invalidated:
                connection.invalidate()
            connection.rollback()


class Databases:
    """The sessions with each database. Those that no schedule needs are never opened."""

    def __init__(self, url: str, directory: Path, kept: ExitStack) -> None:
        self._url, self._directory, self._kept = url, directory, kept
        self._stepper = Stepper(kept.enter_context(closing(_connect(url))))
        self._stepped = sessions_of(self._stepper)
        kept.enter_context(patch.object(psycopg, "connect", self._stepped.connect))
        self._opened: dict[str, Sessions] = {}

    def of(self, name: str) -> Sessions:
        if name not in self._opened:
            self._opened[name] = self._kept.enter_context(self._open(name))
        self._stepper.control = self._opened[name].control
        return self._opened[name]

    def crash(self, sessions: Sessions) -> None:
        """Crash the server, wait until it works again, and connect. The caller has all contexts of
        ``sessions`` connect again.
        """
        found = sessions.control.execute(_WALWRITER).fetchone()
        assert found is not None
        os.kill(found[0], signal.SIGKILL)
        while _answers(sessions.control):
            time.sleep(0.001)
        for one in self._opened.values():
            one.connect()
            if one is not sessions:
                one.lose()
        self._stepper.control = sessions.control

    @contextmanager
    def _open(self, name: str) -> Iterator[Sessions]:
        url = self._url
        if name != PLAIN:
            url = make_url(url).set(database=name).render_as_string(hide_password=False)
            with closing(_connect(self._url)) as admin:
                admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
                admin.execute(f"CREATE DATABASE {name}")
                admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = on")
        with closing(_connect(url)) as admin:
            admin.execute(_MADE)
            admin.execute("INSERT INTO part SELECT i, '' FROM unnest(%s::int[]) AS i", [[*OBJECTS]])
        watched = ["part", "usr"] if name == FAMILIES else ["part"]
        _install(url, self._directory, watched, is_partitioned=name == LEAVES)
        plain, own = (load(_config(url, watched, consumer), {}) for consumer in ("", CONSUMER))
        with ExitStack() as kept:
            opened = Sessions(
                url,
                self._stepper,
                _control(url),
                kept.enter_context(open_context(plain, Counters())),
                kept.enter_context(open_context(own, Counters())),
                kept.enter_context(open_unlocked(plain, Counters())),
                kept.enter_context(open_unlocked(plain, Counters())),
                self._stepped,
            )
            opened.connect()
            kept.callback(opened.close)
            yield opened


def _connect(url: str) -> psycopg.Connection[Any]:
    """Connect, after a crash as soon as the server works again."""
    until = time.monotonic() + _RECOVERY
    while True:
        try:
            return psycopg.Connection.connect(_conninfo(url), autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
        time.sleep(0.002)


def _control(url: str) -> psycopg.Connection[Any]:
    control = _connect(url)
    # The triggers do not fire for it, as they do not for rows that are replicated.
    control.execute("SET session_replication_role = replica")
    return control


def _answers(session: psycopg.Connection[Any]) -> bool:
    try:
        session.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


@contextmanager
def databases(url: str) -> Iterator[Databases]:
    """Yield the databases of a server. Their tables and triggers are made when they are used."""
    with ExitStack() as kept:
        directory = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="il-")))
        # Which index a statement uses is nothing to other sessions.
        for session in (PostgresDatabase, LogSession):
            kept.enter_context(patch.object(session, "choose_plans", lambda *_: None))
        # The clock of the readers is not the server's: the times of rows are not compared with it.
        kept.enter_context(patch.object(Published, "used_by_time", lambda *_: None))
        # The schedule holds whichever session has the lock of the log meanwhile.
        kept.enter_context(patch.object(leaf_sql, "WAIT", 2))
        yield Databases(url, directory, kept)


def _config(url: str, watched: Sequence[str], consumer: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "database": {"url": url},
        "publisher": {"allow_loopback": True, "notify": False},
        "watch": [{"table": table} for table in watched],
    }
    if consumer:
        config["source"] = {"type": "eventlog", "consumer": consumer, "start_from": "earliest"}
    return config


def _install(url: str, directory: Path, watched: Sequence[str], *, is_partitioned: bool) -> None:
    path = directory / "eventlog.toml"
    watches = "".join(f'[[watch]]\ntable = "{table}"\n' for table in watched)
    path.write_text(f'[database]\nurl = "{url}"\n{watches}')
    commands = [["db", "upgrade"], ["triggers", "apply"]]
    if is_partitioned:
        commands.append(["db", "partition", "--leaf-size", str(LEAF_SIZE)])
    said = io.StringIO()
    for words in commands:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            assert cli.run(["--config", str(path), *words]) == 0, said.getvalue()
