"""A session of PostgreSQL: what it is set to, its lock on a log, and which log it is (spec/event-log.md 10, 12)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from eventlog.sql.dialects.postgresql.text import qualified
from eventlog.sql.log_table import LogTable

SESSION: Final = (
    # What a session can change in the text of values: pinned to what the triggers pin it to (spec/triggers.md 6).
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'postgres'",
    "SET extra_float_digits = 1",
    "SET bytea_output = 'hex'",
    "SET lc_monetary = 'C'",
    # Statements here are short, and compiling one takes longer than running it.
    "SET jit = off",
)


def read_only(conn: Connection) -> str | None:
    """Why this session can write nothing, in words; None if it can."""
    asked = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
    is_standby, is_read_only = conn.exec_driver_sql(asked).one()
    if is_standby:
        return "the server is a standby, which takes no writes"
    return "default_transaction_read_only is on for this session, so that it writes nothing" if is_read_only else None


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


_DATABASE_AND_FLIGHTS: Final = """
    SELECT concat_ws('/', d.oid, to_regclass(%(flights)s)::oid)
    FROM pg_catalog.pg_database AS d
    WHERE d.datname = current_database()"""
_MAY_ASK: Final = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_CLUSTER: Final = "SELECT system_identifier FROM pg_catalog.pg_control_system()"


def identity(conn: Connection, log: LogTable) -> str:
    """The cluster, the database and the sequence of flight numbers, by what they were given when they were made.

    A standby that takes over has the same; a dump that is restored has not. The cluster is left out if this role may
    not ask for it, which a role may unless that was revoked.
    """
    flights = qualified(log.schema, log.flight_sequence)
    identity = str(conn.exec_driver_sql(_DATABASE_AND_FLIGHTS, {"flights": flights}).scalar_one())
    if conn.exec_driver_sql(_MAY_ASK).scalar_one():
        identity = f"{conn.exec_driver_sql(_CLUSTER).scalar_one()}/{identity}"
    return f"postgresql/{identity}"
