"""The open writers of a log on MariaDB and MySQL: the sessions that hold a metadata lock on it, and
the prepared transactions (spec/event-log.md 13.6).

Why no row is missed:

- A writer has the lock before it draws a number: a statement locks its table, and every table that
  its triggers write, before it executes. This holds for each ``innodb_autoinc_lock_mode``.
- The writer keeps the lock until its rows are visible: the server releases it after the commit
  in InnoDB, or after the rollback. KILL and a lost client roll back first. ROLLBACK TO SAVEPOINT
  releases the locks of later statements after their rows are gone. FLUSH TABLES WITH READ LOCK
  changes no lock on the log.
- The highest record_id in the log is read first. So, at the check, a transaction that drew this
  number or a lower one has the lock, is prepared, or has ended. A later statement sees the rows of
  transactions that have ended.
- A transaction is listed as prepared before it loses its lock, and until its commit is visible. The
  locks are read first, so the transaction is in one of the two lists.
- A lock is named by its thread, event and instance, and no two locks have the same name while the
  server runs. After a restart the locks are read in a new session, without the names of earlier
  locks.

``innodb_trx`` does not show who has written: the server renews that list only if nobody has read it
for a tenth of a second, and a transaction draws its number before it is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.clock import chance, monotonic, random_hex, sleep
from eventlog.errors import ServerUnavailable
from eventlog.sql.dialects.mysql_family.session import (
    FamilySessions,
    error_code,
    fetch_transactions,
    has_process,
    may_run,
)
from eventlog.sql.dialects.mysql_family.text import bindable, quote_identifier
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.driver_errors import right_advice
from eventlog.sql.port.rights import Purpose
from eventlog.sql.port.sql_files import PlainRows, fetch, statements

_SQL: Final = statements(__package__, "writers.sql")
TABLES: Final = tuple(
    f"performance_schema.{name}"
    for name in ("metadata_locks", "threads", "setup_instruments", "setup_consumers")
)
"""The tables of the server that a role reads to see the open writers."""
_READING: Final = frozenset({"SHARED", "SHARED_HIGH_PRIO", "SHARED_READ", "SHARED_READ_ONLY"})
"""The types of metadata locks whose holder is not writing to the table."""
PREPARED: Final = "xa:"
"""The prefix of the names of prepared transactions, which any session may commit."""
_COPIED_LOCK: Final = "mdl.cc:"
"""The beginning of ``SOURCE`` for a lock that MySQL has copied for a prepared transaction. This
transaction no longer belongs to a session.
"""
_XA_REFUSED: Final = 1401
"""The error of XA RECOVER on MySQL without the right XA_RECOVER_ADMIN."""
_KEY: Final = "eventlog_writers"
"""``Connection.info`` has the ``KnownWriters`` of each log under this key."""
_LIST_AGE: Final = 0.11
"""The server renews ``innodb_trx`` if nobody has read it for this number of seconds."""
_LONGEST_REST: Final = 1.0
PATIENCE: Final = 5.0
"""How many seconds a session waits for an updated list, and for earlier transactions to end."""
_SETTINGS: Final = (
    "set performance_schema = ON and performance-schema-instrument = "
    "'wait/lock/metadata/sql/mdl=ON' in the server's configuration, and restart it"
)


@dataclass(slots=True)
class KnownWriters:
    """The writers of a log that a session has seen.

    When a transaction is prepared, the lock that identified it is released; from then on its XID
    identifies it. So a lock that was released still counts as long as a prepared transaction may
    have had this lock.
    """

    thread: int
    """The thread of the session itself."""
    checks: int = 0
    since: dict[str, int] = field(default_factory=dict)
    """For each writer that the last check has shown, the number of the check that first showed
    it.
    """
    became: dict[str, frozenset[str]] = field(default_factory=dict)
    """For each former holder of a lock, the prepared transactions that it may have become."""

    def follow(self, shown: frozenset[str]) -> frozenset[str]:
        """Record the writers that the server shows now, and return them with all names that this
        session uses for them.
        """
        self.checks += 1
        prepared = {name for name in shown if name.startswith(PREPARED)}
        for name in prepared | shown:
            self.since.setdefault(name, self.checks)
        for name in self.since.keys() - shown:
            # The locks are read before the prepared transactions: a transaction may appear as
            # prepared one check before its lock does.
            first = self.since.pop(name)
            self.became[name] = frozenset(one for one in prepared if self.since[one] >= first - 1)
        self.became = {
            name: still for name, others in self.became.items() if (still := others & prepared)
        }
        return shown | self.became.keys()


@dataclass(frozen=True, slots=True)
class Writers:
    """The open writers of a log, as a session sees them. The methods of the log use this class."""

    conn: Connection
    dialect: FamilySessions
    log: LogTable

    def open(self) -> frozenset[str] | None:
        """Return the names of the open transactions of other sessions that have written to the log,
        None if the server hides some of them.
        """
        known: dict[LogTable, KnownWriters] = self.conn.info.setdefault(_KEY, {})
        if self.log not in known and not self._are_shown():
            return None
        of_log = known[self.log]
        # The order matters: a transaction that loses its lock because it is prepared appears in the
        # list that is read later. Conditions that hide locks are read last, which shows that they
        # did not apply before.
        locks = self._locks()
        prepared = prepared_transactions(self.conn, self.dialect)
        if all(thread != of_log.thread for thread, *_ in locks) or _what_hides(
            self.conn, self.dialect
        ):
            del known[self.log]
            return None
        holders = {
            _name_of(thread, event, instance, source)
            for thread, event, instance, kind, source in locks
            if thread != of_log.thread and kind not in _READING
        }
        return of_log.follow(frozenset({*holders, *prepared}))

    def hidden(self) -> str | None:
        """Return why this session cannot see the open writers of the log, and what to do; None if
        it sees them.

        Raises ServerUnavailable if the session may see the writers a little later.
        """
        known: dict[LogTable, KnownWriters] = self.conn.info.setdefault(_KEY, {})
        reason = (
            _unfit(self.conn)
            or _lacking(self.conn, self.dialect)
            or _what_hides(self.conn, self.dialect)
        )
        if reason is None and self.log in known:
            return None
        known.pop(self.log, None)
        if reason is not None:
            return reason
        ((thread,),) = fetch(self.conn, _SQL["thread"], {}) or ((None,),)
        if thread is None or all(owner != thread for owner, *_ in self._locks()):
            return f"the server does not show the metadata locks of this session; {_SETTINGS}"
        self._wait_for_earlier()
        known[self.log] = KnownWriters(int(thread))
        return None

    def transactions(self) -> Iterator[Sequence[object]]:
        """Yield the open writers, with the fields of ``OpenTransaction``; nothing if the server
        hides them.
        """
        if not self._are_shown():
            return
        threads = {
            thread
            for thread, _, _, kind, source in self._locks()
            if kind not in _READING and not str(source or "").startswith(_COPIED_LOCK)
        }
        if threads:
            listed = ", ".join(map(str, threads))
            found = fetch_transactions(self.conn, _SQL["sessions"].format(threads=listed), {})
            if found is None:
                found = fetch(self.conn, _SQL["sessions_alone"].format(threads=listed), {})
            for session, user, state, seconds in found:
                yield session, user, None, state, float(seconds), True, True, None
        for name in prepared_transactions(self.conn, self.dialect):
            # It may have written to the log; the server does not show when it began.
            yield None, None, None, "prepared", None, True, True, name.removeprefix(PREPARED)

    def _are_shown(self) -> bool:
        try:
            return self.hidden() is None
        except ServerUnavailable:
            return False

    def _locks(self) -> PlainRows:
        ((schema,),) = fetch(self.conn, "SELECT DATABASE()", {})
        statement = _SQL["locks"].format(log=bindable(quote_identifier(self.log.name)))
        return fetch(self.conn, statement, {"schema": schema, "table": self.log.name})

    def _wait_for_earlier(self) -> None:
        """Wait briefly until no transaction is open that may have written the log while the server
        hid its lock.

        The server's instrument for metadata locks may have been switched on while the server was
        running. Locks that sessions had at that time are never shown. Raises ServerUnavailable,
        since another attempt may succeed.
        """
        suspect: set[tuple[str, int]] | None = None
        until, rest = monotonic() + PATIENCE, _LIST_AGE
        while monotonic() < until:
            transactions = self._in_list()
            if transactions is not None:
                hidden = _without_lock(self.conn, transactions)
                suspect = hidden if suspect is None else suspect & hidden
                if not suspect:
                    return
            # Without a random pause, readers that start at the same time would keep each other's
            # lists out of date forever.
            sleep(rest * (1 + chance()))
            rest = min(2 * rest, _LONGEST_REST)
        if suspect is None:
            raise ServerUnavailable(
                f"cannot determine yet which transactions have written the log {self.log}: other "
                "sessions read information_schema.innodb_trx all the time, or run statements that "
                "this table cannot show (MySQL: with an emoji, or with raw bytes)"
            )
        sessions = ", ".join(sorted({str(session) for _, session in suspect}))
        raise ServerUnavailable(
            f"cannot determine yet which transactions have written the log {self.log}: session "
            f"{sessions} has a transaction that began before the server recorded metadata locks. "
            "End it, or wait until it has ended"
        )

    def _in_list(self) -> set[tuple[str, int]] | None:
        """Return the number and the session of each open transaction of another session that may
        have written a table; None if the server's list is out of date, or not shown.
        """
        mark = f"eventlog {random_hex(16)}"
        fetch(self.conn, _SQL["touch"].format(log=bindable(quote_identifier(self.log.name))), {})
        ((own,),) = fetch(self.conn, "SELECT CONNECTION_ID()", {})
        rows = fetch_transactions(self.conn, _SQL["transactions"].format(mark=mark), {})
        if rows is None:
            return None
        if not any(session == own and mark in str(query) for _, session, query, _ in rows):
            return None
        return {
            (str(number), int(session))
            for number, session, _, worked in rows
            if session not in (0, own) and worked
        }


def are_open(conn: Connection, writers: frozenset[str]) -> bool:
    """Return True if all of these writers were certainly open when the previous statement began.

    The server releases locks shortly after the changes are visible. So each writer must also be
    idle, not even running COMMIT. Any session may commit a prepared transaction at any time, so the
    function returns False if a writer is prepared.
    """
    if not writers:
        return True
    if any(name.startswith(PREPARED) for name in writers):
        return False
    threads = {int(name.partition(".")[0]) for name in writers}
    listed = ", ".join(map(str, threads))
    # The order matters: a session that is idle first and has the same lock afterwards had the lock
    # all the time.
    asleep = {thread for (thread,) in fetch(conn, _SQL["sleeping"].format(threads=listed), {})}
    if asleep != threads:
        return False
    locks = fetch(conn, _SQL["locks_of"].format(threads=listed), {})
    return writers <= {_name_of(*lock) for lock in locks}


def grants(dialect: FamilySessions, user: str) -> Iterator[str]:
    """Yield the statements that let a quoted user see the open writers of all logs."""
    for table in TABLES:
        yield f"GRANT SELECT ON {table} TO {user}"
    yield f"GRANT {', '.join(dialect.rights_to_see_transactions)} ON *.* TO {user}"


# --- what the server shows ------------------------------------------------------------------------


def _name_of(thread: object, event: object, instance: object, source: object) -> str:
    copied = PREPARED if str(source or "").startswith(_COPIED_LOCK) else ""
    return f"{copied}{thread}.{event}.{instance}"


def prepared_transactions(conn: Connection, dialect: FamilySessions) -> Iterable[str]:
    """Return the names of the prepared transactions of the server."""
    return [
        PREPARED + ".".join(map(str, transaction))
        for transaction in fetch(conn, dialect.xa_recover, {})
    ]


def _what_hides(conn: Connection, dialect: FamilySessions) -> str | None:
    """Return the reason why metadata locks may be hidden now, None if there is none."""
    statement = _SQL["state"].format(global_status=dialect.global_status)
    ((instrument, consumer, lost, replica),) = fetch(conn, statement, {})
    if not instrument or not consumer:
        what = "instrument wait/lock/metadata/sql/mdl" if consumer else "global_instrumentation"
        return f"the server does not show metadata locks, since {what} is off; {_SETTINGS}"
    if int(float(lost or 0)):
        return (
            "the performance_schema of the server is too small for all metadata locks or "
            "threads (Performance_schema_metadata_lock_lost, "
            "Performance_schema_thread_instances_lost). Raise "
            "performance_schema_max_metadata_locks and performance_schema_max_thread_instances, "
            "and restart the server"
        )
    if replica:
        return (
            "the server is a replica, and the changes that it applies have numbers that the "
            "primary drew long ago. Use the primary"
        )
    return None


def _unfit(conn: Connection) -> str | None:
    """Return why this kind of server hides the writers of a log, None if it does not."""
    settings = {str(name).lower(): str(value) for name, value in fetch(conn, _SQL["settings"], {})}

    def is_on(name: str) -> bool:
        return settings.get(name, "OFF").upper() not in ("OFF", "0", "")

    if is_on("wsrep_on"):
        return "a node of a Galera cluster does not show the writers on the other nodes"
    if settings.get("group_replication_group_name"):
        return "a member of a replication group does not show the writers on the other members"
    if is_on("read_only"):
        return "the server is read_only, as a replica is. Use the primary"
    if not is_on("performance_schema"):
        return f"the server runs without performance_schema; {_SETTINGS}"
    return None


def _lacking(conn: Connection, dialect: FamilySessions) -> str | None:
    """Return, in words, the rights that this session lacks for seeing the open writers."""
    missing = [
        f"SELECT on {table}"
        for table in TABLES
        if not may_run(conn, f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - a constant
    ]
    if not has_process(conn):
        missing.append("PROCESS")
    try:
        fetch(conn, dialect.xa_recover, {})
    except DBAPIError as error:
        if error_code(error) != _XA_REFUSED:
            raise
        missing.append("XA_RECOVER_ADMIN")
    if not missing:
        return None
    to_do = right_advice(conn, Purpose.CONSUMER)
    return f"the user lacks {'; '.join(missing)}, which an administrator grants; {to_do}"


def _without_lock(conn: Connection, transactions: set[tuple[str, int]]) -> set[tuple[str, int]]:
    if not transactions:
        return set()
    listed = ", ".join(str(session) for _, session in transactions)
    found = {
        int(session) for (session,) in fetch(conn, _SQL["without_lock"].format(sessions=listed), {})
    }
    return {one for one in transactions if one[1] in found}
