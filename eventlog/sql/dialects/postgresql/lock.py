"""One publisher a log: a session lock of PostgreSQL (spec/event-log.md 12)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from eventlog.sql.dialects.postgresql.text import qualified
from eventlog.sql.log_table import LogTable

_CLASS: Final = int.from_bytes(b"Elog")
"""First half of the lock's key; the second is the log's OID. Other programs keep clear of it by chance of 1 to 2^32."""

_LOCKS: Final = """
    SELECT FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
      AND classid = CAST(:class AS bigint)::oid AND objid = CAST(CAST(:log AS text) AS regclass)::oid AND objsubid = 2
      AND granted"""
_HELD: Final = f"EXISTS ({_LOCKS} AND pid = pg_backend_pid())"
_HELD_BY_ANY: Final = f"EXISTS ({_LOCKS})"


def try_lock(conn: Connection, log: LogTable) -> bool:
    """Take the log for this session; True if it has it now. The lock ends with the session, not the transaction."""
    statement = text(
        # Asked first, since a lock that is taken twice must be given back twice.
        f"SELECT CASE WHEN {_HELD} THEN true"
        " ELSE pg_try_advisory_lock(:class, CAST(CAST(:log AS text) AS regclass)::oid::integer) END"
    )
    return bool(conn.execute(statement, _key(log)).scalar_one())


def is_locked(conn: Connection, log: LogTable) -> bool:
    """Whether any session has the log. Only looks: a publisher that starts at this moment gets it."""
    return bool(conn.execute(text(f"SELECT {_HELD_BY_ANY}"), _key(log)).scalar_one())


def holds_lock(conn: Connection, log: LogTable) -> bool:
    """Whether this session has the log."""
    return bool(conn.execute(text(f"SELECT {_HELD}"), _key(log)).scalar_one())


def unlock(conn: Connection, log: LogTable) -> None:
    """Give the log back, if this session has it."""
    statement = text(
        f"SELECT CASE WHEN {_HELD}"
        " THEN pg_advisory_unlock(:class, CAST(CAST(:log AS text) AS regclass)::oid::integer) END"
    )
    conn.execute(statement, _key(log))


def current_user(conn: Connection) -> str:
    """The user that the triggers log as perpetrator: whoever opened the session (spec/triggers.md 7.1)."""
    return str(conn.execute(text("SELECT session_user")).scalar_one())


def session_id(conn: Connection) -> str:
    """The server process of this session: no other session has the same at the same time."""
    return str(conn.execute(text("SELECT pg_backend_pid()")).scalar_one())


def _key(log: LogTable) -> dict[str, object]:
    return {"class": _CLASS, "log": qualified(log.schema, log.name)}
