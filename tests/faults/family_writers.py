"""Writers of a MariaDB or MySQL whose transactions end in all the ways that a reader of the log has
to bear (spec/event-log.md 13.6), and a reader that follows the log by its open writers.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mysql_servers
import pymysql
import sqlalchemy as sa
from publishers import install, write_config
from pymysql.connections import Connection as Session
from shared import execute, url_of

from eventlog.config.load import load
from eventlog.core.ranges import to_ranges
from eventlog.sql.port.log_operations import ANY_STATUS
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers.consumers import shown_ids
from eventlog.sql.readers.followed_set import FollowedSet

KEYS = 40
"""The number of objects that exist all the time, and are changed by several writers."""
TABLE = "CREATE TABLE usr (id int AUTO_INCREMENT PRIMARY KEY, name varchar(40), num int)"
NUMBERS = (
    "CREATE TABLE numbers (n int PRIMARY KEY)",
    f"INSERT INTO numbers VALUES {', '.join(f'({n})' for n in range(20))}",
)
WATCHES = [{"table": "usr"}]
OBJECTS = f"INSERT INTO usr VALUES {', '.join(f'({n}, NULL, 0)' for n in range(1, KEYS + 1))}"
_EXPECTED = {1020, 1205, 1213, 1317, 1397, 1401, 1927, 2003, 2006, 2013}
"""What the server answers for what others do at the same time: locks, and sessions that were
ended.
"""


@contextlib.contextmanager
def filled(server: mysql_servers.Server, directory: Path) -> Iterator[sa.Engine]:
    """The database ``app`` with the objects, their log and its triggers, by the superuser."""
    with server.database() as url:
        root = sa.create_engine(server.url.set(database=url.database), poolclass=sa.NullPool)
        execute(root, TABLE, *NUMBERS)
        install(load(write_config(directory, url_of(root), WATCHES), {}, {}))
        execute(root, OBJECTS)
        try:
            yield root
        finally:
            end_prepared(server)


def session(server: mysql_servers.Server, database: str = "app", **more: Any) -> Session[Any]:
    """A session of an application, by the bare driver; each statement is a transaction."""
    # PyMySQL leaves a socket open that nobody listens at.
    with socket.socket(socket.AF_UNIX) as asked:
        if asked.connect_ex(str(server.socket)):
            raise pymysql.err.OperationalError(2003, "the server is down")
    return pymysql.connect(
        unix_socket=str(server.socket),
        user="root",
        password="",
        database=database,
        autocommit=True,
        ssl_disabled=True,
        **more,
    )


def run(session: Session[Any], *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, and return the rows of the last."""
    with session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall() if cursor.description else ())


@contextlib.contextmanager
def closed(session: Session[Any]) -> Iterator[Session[Any]]:
    """Close a session at the end, which the server may have ended."""
    try:
        yield session
    finally:
        close(session)


def close(session: Session[Any] | None) -> None:
    """Close a session, which the server may have ended."""
    if session is not None:
        with contextlib.suppress(pymysql.err.MySQLError):
            session.close()
        session._force_close()


class Writers:
    """Eight writers that make so many transactions together, and more until ``enough`` is true. Each
    rests for so many seconds between two of them.
    """

    def __init__(
        self,
        server: mysql_servers.Server,
        transactions: int,
        seed: int = 1,
        rest: float = 0,
        enough: Callable[[], bool] = lambda: True,
    ) -> None:
        self.enough = enough
        self.server, self.left, self.seed, self.rest = server, transactions, seed, rest
        self.counting, self.stop = threading.Lock(), threading.Event()
        self.errors: list[str] = []
        self.inserted: list[int] = []
        """Objects that may be deleted."""
        self.threads = [threading.Thread(target=self._write, args=(n,)) for n in range(8)]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def join(self) -> None:
        for thread in self.threads:
            thread.join()

    @property
    def are_writing(self) -> bool:
        return any(thread.is_alive() for thread in self.threads)

    def _next(self) -> bool:
        with self.counting:
            self.left -= 1
            return not self.stop.is_set() and (self.left >= 0 or not self.enough())

    def _write(self, number: int) -> None:
        chance, mine, count = random.Random(self.seed * 100 + number), None, 0
        while self._next():
            count += 1
            try:
                mine = mine or session(self.server)
                self._transaction(mine, chance, f"{self.seed}-{number}-{count}")
                self.stop.wait(self.rest)
            except pymysql.err.MySQLError as error:
                code = error.args[0] if error.args else 0
                if code not in {0, *_EXPECTED} and not self.stop.is_set():
                    self.errors.append(repr(error))
                close(mine)
                mine = None
                time.sleep(0.05)  # the server may be down
        close(mine)

    def _transaction(self, mine: Session[Any], chance: random.Random, name: str) -> None:
        key = chance.randint(1, KEYS)
        insert = f"INSERT INTO usr (name) VALUES ('{name}')"
        update = f"UPDATE usr SET num = num + 1, name = '{name}' WHERE id = {key}"
        kind = chance.random()
        if kind < 0.2:
            run(mine, insert)
            with self.counting:
                self.inserted.append(mine.insert_id())
        elif kind < 0.35:
            run(mine, update)
        elif kind < 0.4:
            run(mine, f"INSERT INTO usr (num) SELECT n FROM numbers LIMIT {chance.randint(2, 20)}")
        elif kind < 0.45:
            self._prepare(mine, chance, name, insert)
            time.sleep(chance.random() * 0.05)
            run(mine, f"XA {'COMMIT' if chance.random() < 0.8 else 'ROLLBACK'} '{name}'")
        elif kind < 0.47:
            # Prepared by a session that has gone: another one ends the transaction.
            with closed(session(self.server)) as other:
                self._prepare(other, chance, name, insert)
            time.sleep(0.02 + chance.random() * 0.2)
            run(mine, f"XA {'COMMIT' if chance.random() < 0.8 else 'ROLLBACK'} '{name}'")
        elif kind < 0.48:
            with self.counting:
                gone = self.inserted.pop(0) if self.inserted else 0
            run(mine, f"DELETE FROM usr WHERE id = {gone}")
        elif kind < 0.49:
            # A session that is ended in the midst of its transaction.
            with closed(session(self.server)) as other:
                run(other, "BEGIN", insert)
                run(mine, f"KILL {other.thread_id()}")
        else:
            run(mine, "BEGIN", *[chance.choice((insert, update))] * chance.randint(1, 3))
            if chance.random() < 0.2:
                run(mine, "SAVEPOINT s", insert, "ROLLBACK TO s")
            if chance.random() < 0.3:
                time.sleep(chance.expovariate(1 / 0.01))
            if chance.random() < 0.004:
                time.sleep(0.5)
            run(mine, "ROLLBACK" if chance.random() < 0.15 else "COMMIT")

    def _prepare(
        self, mine: Session[Any], chance: random.Random, name: str, statement: str
    ) -> None:
        run(mine, f"XA START '{name}'", statement)
        # A reader may see the lock first, and then only that the transaction is prepared.
        time.sleep(chance.random() * 0.02)
        run(mine, f"XA END '{name}'", f"XA PREPARE '{name}'")


def end_prepared(server: mysql_servers.Server) -> None:
    """Commit what is prepared."""
    with contextlib.closing(session(server)) as mine:
        for _, length, _, name in run(mine, "XA RECOVER"):
            text = name.decode() if isinstance(name, bytes) else name
            run(mine, f"XA COMMIT '{text[:length]}'")


CHANGES = (
    "ALTER TABLE eventlog COMMENT = 'a'",
    "ALTER TABLE eventlog FORCE",
    "ALTER TABLE eventlog FORCE, ALGORITHM = COPY, LOCK = SHARED",
    "ALTER TABLE eventlog ADD INDEX further_index (table_name(20), record_id)",
    "ALTER TABLE eventlog DROP INDEX further_index",
    "ALTER TABLE eventlog ADD COLUMN further int",
    "ALTER TABLE eventlog DROP COLUMN further",
    "OPTIMIZE TABLE eventlog",
    "ANALYZE TABLE eventlog",
)
"""Statements that change the log, or make it again from a copy of its rows. Without LOCK = SHARED
MariaDB 11.8 loses the rows of transactions that are prepared while it copies (docs/databases/mysql-and-mariadb.md).
"""


class Changes:
    """A thread that changes the log repeatedly. ``number`` counts the changes."""

    def __init__(self, server: mysql_servers.Server) -> None:
        self.server, self.number, self.ended = server, 0, threading.Event()
        self.thread = threading.Thread(target=self._change)

    def _change(self) -> None:
        with closed(session(self.server)) as owner:
            run(owner, "SET SESSION lock_wait_timeout = 5")
            while not self.ended.is_set():
                with contextlib.suppress(pymysql.err.OperationalError):  # a lock took too long
                    run(owner, CHANGES[self.number % len(CHANGES)])
                    self.number += 1
                self.ended.wait(0.05)


@contextlib.contextmanager
def changing(server: mysql_servers.Server) -> Iterator[Changes]:
    """Change the log until the block ends."""
    changes = Changes(server)
    changes.thread.start()
    try:
        yield changes
    finally:
        changes.ended.set()
        changes.thread.join()


class Follower:
    """A reader in the manner of a consumer: windows outside of a set, whose gaps are closed by the
    open writers.
    """

    def __init__(self, log: OpenLog) -> None:
        self.log, self.followed = log, FollowedSet()
        self.read: list[int] = []

    def reconnect(self, log: OpenLog) -> None:
        """Go on in another session, with the done rows alone."""
        self.log, self.followed = log, FollowedSet(self.followed.done)

    def poll(self) -> list[int]:
        """Return the rows of the next window, and add them to the set."""
        self.followed.poll(self.log)
        window = ANY_STATUS.outside(self.followed.passed, self.log.dialect.last_record_id)
        found = shown_ids(self.log, window)
        skipped = self.followed.writers
        if skipped and not self.log.db.are_open(skipped):
            found = []
        self.log.commit()
        self.followed.add(to_ranges(found))
        self.read += found
        return found

    def follow(self, writers: Writers, rest: float = 0.003) -> None:
        """Poll until the writers have ended and nothing is left to read or to close."""
        quiet = 0
        while quiet < 3:
            ended = not writers.are_writing
            if not self.poll() and ended:
                quiet += 1
            time.sleep(rest)
        for _ in range(20):
            self.poll()


def rows(log: sa.Connection) -> list[tuple[int, str]]:
    """All rows of the log: record_id and key, as another session sees them."""
    found = log.exec_driver_sql(
        "SELECT record_id, table_key FROM eventlog ORDER BY record_id"
    ).all()
    log.commit()
    return [(int(record_id), str(key)) for record_id, key in found]


def out_of_order(read: list[int], keys: dict[int, str]) -> list[tuple[int, int]]:
    """The rows that were read after a later row of the same object."""
    last: dict[str, int] = defaultdict(int)
    wrong = []
    for record_id in read:
        key = keys[record_id]
        if record_id < last[key]:
            wrong.append((last[key], record_id))
        last[key] = max(last[key], record_id)
    return wrong
