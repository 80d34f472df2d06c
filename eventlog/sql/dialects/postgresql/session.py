"""A session on PostgreSQL: how it is opened, its lock on a log, its rights.

One publisher a log (spec/event-log.md 12): an advisory lock, which belongs to the session whatever is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, text

from eventlog.sql.log_table import LogTable
from eventlog.sql.text import qualified

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

_USER_ADVICE: Final = "check the user in the URL, and {secret}"
CONNECT_ADVICE: Final = {
    "password authentication failed": _USER_ADVICE,
    "no password supplied": _USER_ADVICE,
    "pg_hba.conf": "let this user in by a line in the server's pg_hba.conf, or correct the URL",
    "role ": "create the user, or correct the URL",
    "database ": "create the database, or correct the URL",
    "connection option": "correct the options behind ? in the URL",
}


def connect_args(timeout: int) -> dict[str, object]:
    """What psycopg is given to connect within ``timeout`` seconds."""
    return {
        "connect_timeout": timeout,
        "application_name": "eventlog",
        "client_encoding": "UTF8",
        # No prepared statements: one reads a row or ten thousand, and its plan would be kept while the log grows.
        "prepare_threshold": None,
    }


def begin_reading(conn: Connection, seconds: int) -> None:
    """Make the transaction that begins see one moment, change nothing, and no statement of it take longer."""
    conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    conn.exec_driver_sql(f"SET LOCAL statement_timeout = '{int(seconds)}s'")


def session_id(conn: Connection) -> str:
    """The number of the server's process that this session has for itself."""
    return str(conn.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


def current_user(conn: Connection) -> str:
    """The user that the triggers log as perpetrator: whoever opened the session (spec/triggers.md 7)."""
    return str(conn.exec_driver_sql("SELECT session_user").scalar_one())


def read_only(conn: Connection) -> str | None:
    """Why this session can write nothing, whatever its rights, in words; None if it can."""
    settings = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
    is_standby, is_read_only = conn.exec_driver_sql(settings).one()
    if is_standby:
        return "the server is a standby, which takes no writes"
    return "default_transaction_read_only is on for this session, so that it writes nothing" if is_read_only else None


# --- the lock ---------------------------------------------------------------------------------------------------------

_CLASS: Final = int.from_bytes(b"Elog")
"""First half of the lock's key; the second is the log's OID. Other programs keep clear of it by chance of 1 to 2^32."""

_LOCKS: Final = """
    SELECT FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
      AND classid = CAST(:class AS bigint)::oid AND objid = CAST(CAST(:log AS text) AS regclass)::oid AND objsubid = 2
      AND granted"""
_HELD: Final = f"EXISTS ({_LOCKS} AND pid = pg_backend_pid())"
_KEY: Final = ":class, CAST(CAST(:log AS text) AS regclass)::oid::integer"


def try_lock(conn: Connection, log: LogTable) -> bool:
    """Take the log for this session; True if it has it now. The lock ends with the session, not the transaction."""
    # Asked first, since a lock that is taken twice must be given back twice.
    return bool(_scalar(conn, log, f"CASE WHEN {_HELD} THEN true ELSE pg_try_advisory_lock({_KEY}) END"))


def is_locked(conn: Connection, log: LogTable) -> bool:
    """Whether any session has the log."""
    return bool(_scalar(conn, log, f"EXISTS ({_LOCKS})"))


def holds_lock(conn: Connection, log: LogTable) -> bool:
    """Whether this session has the log."""
    return bool(_scalar(conn, log, _HELD))


def unlock(conn: Connection, log: LogTable) -> None:
    """Give the log back, if this session has it."""
    _scalar(conn, log, f"CASE WHEN {_HELD} THEN pg_advisory_unlock({_KEY}) END")


def _scalar(conn: Connection, log: LogTable, expression: str) -> object:
    parameters = {"class": _CLASS, "log": qualified(log.schema, log.name)}
    return conn.execute(text(f"SELECT {expression}"), parameters).scalar_one()


# --- what tells the log from others -----------------------------------------------------------------------------------

_DATABASE_AND_FLIGHTS: Final = """
    SELECT concat_ws('/', d.oid, to_regclass(%(flights)s)::oid)
    FROM pg_catalog.pg_database AS d
    WHERE d.datname = current_database()"""
_MAY_ASK: Final = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_CLUSTER: Final = "SELECT system_identifier FROM pg_catalog.pg_control_system()"


def identity(conn: Connection, log: LogTable) -> str:
    """The cluster, the database, and the sequence of flight numbers by its number.

    A standby that takes over has the same; a dump that is restored has not. The cluster is left out if this role may
    not ask for it, which a role may unless that was revoked.
    """
    flights = qualified(log.schema, log.flight_sequence)
    identity = str(conn.exec_driver_sql(_DATABASE_AND_FLIGHTS, {"flights": flights}).scalar_one())
    if conn.exec_driver_sql(_MAY_ASK).scalar_one():
        identity = f"{conn.exec_driver_sql(_CLUSTER).scalar_one()}/{identity}"
    return f"postgresql/{identity}"


# --- rights -----------------------------------------------------------------------------------------------------------

_ALL: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")


def missing_rights(conn: Connection, log: LogTable, deletes: bool) -> list[str]:
    """The rights that this session lacks to publish the log, in words. ``deletes``: rows will be deleted."""
    if log.schema is not None and not _has_right(conn, "schema", log.schema, "USAGE"):
        return [f"USAGE on schema {log.schema}"]
    missing = [
        *_lacking(conn, log, log.name, ["SELECT", "DELETE"] if deletes else ["SELECT"]),
        *_lacking(conn, log, log.error_table, ["INSERT"]),
        *_lacking(conn, log, log.inflight_table, _ALL),
        *_lacking(conn, log, log.flight_sequence, ["USAGE"], kind="sequence"),
    ]
    column = {"name": qualified(log.schema, log.name), "column": log.column("status")}
    may_mark = "SELECT has_column_privilege(%(name)s, %(column)s::text, 'UPDATE')"
    if not conn.exec_driver_sql(may_mark, column).scalar():
        missing.append(f"UPDATE on column {log.column('status')} of table {log.name}")
    return missing


def missing_resync_rights(conn: Connection, log: LogTable, resumable: bool) -> list[str]:
    """The rights that this session lacks for a resync, in words. ``resumable``: it keeps its position."""
    missing = _lacking(conn, log, log.name, ["INSERT"])
    return missing + _lacking(conn, log, log.resync_table, _ALL) if resumable else missing


def _lacking(conn: Connection, log: LogTable, name: str, rights: Sequence[str], kind: str = "table") -> list[str]:
    """Which of the rights on a table of a log, or on its sequence, this session lacks, in words."""
    sql_name = qualified(log.schema, name)
    return [f"{right} on {kind} {name}" for right in rights if not _has_right(conn, kind, sql_name, right)]


def _has_right(conn: Connection, kind: str, name: str, right: str) -> bool:
    statement = f"SELECT has_{kind}_privilege(%(name)s, %(right)s)"
    return bool(conn.exec_driver_sql(statement, {"name": name, "right": right}).scalar())
