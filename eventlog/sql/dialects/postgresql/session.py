"""A session on PostgreSQL: how it is opened, its lock on a log, its rights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from sqlalchemy import Connection, text

from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import qualified

_USER_ADVICE: Final = "check the user in the URL, and {secret}"


class PostgresSessions(Dialect):
    """One publisher a log (spec/event-log.md 12): an advisory lock, which belongs to the session."""

    driver = "postgresql+psycopg"
    session = (
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
    connect_advice: ClassVar = {
        "password authentication failed": _USER_ADVICE,
        "no password supplied": _USER_ADVICE,
        "pg_hba.conf": "let this user in by a line in the server's pg_hba.conf, or correct the URL",
        "role ": "create the user, or correct the URL",
        "database ": "create the database, or correct the URL",
        "connection option": "correct the options behind ? in the URL",
    }

    def connect_args(self, timeout: int) -> dict[str, object]:
        return {
            "connect_timeout": timeout,
            "application_name": "eventlog",
            "client_encoding": "UTF8",
            # No prepared statements: one reads a row or ten thousand, and its plan would be kept while the log grows.
            "prepare_threshold": None,
        }

    def begin_reading(self, conn: Connection, seconds: int) -> None:
        conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        conn.exec_driver_sql(f"SET LOCAL statement_timeout = '{int(seconds)}s'")

    def session_id(self, conn: Connection) -> str:
        return str(conn.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())

    def current_user(self, conn: Connection) -> str:
        return str(conn.exec_driver_sql("SELECT session_user").scalar_one())

    def read_only(self, conn: Connection) -> str | None:
        settings = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
        is_standby, is_read_only = conn.exec_driver_sql(settings).one()
        if is_standby:
            return "the server is a standby, which takes no writes"
        return (
            "default_transaction_read_only is on for this session, so that it writes nothing" if is_read_only else None
        )

    def identity(self, conn: Connection, log: LogTable) -> str:
        # A standby that takes over has the same, a dump that is restored has not. A role may ask for the cluster unless
        # that was revoked.
        flights = {"flights": qualified(log.schema, log.flight_sequence)}
        identity = str(conn.exec_driver_sql(_DATABASE_AND_FLIGHTS, flights).scalar_one())
        if conn.exec_driver_sql(_MAY_ASK).scalar_one():
            identity = f"{conn.exec_driver_sql(_CLUSTER).scalar_one()}/{identity}"
        return f"postgresql/{identity}"

    def try_lock(self, conn: Connection, log: LogTable) -> bool:
        # Asked first, since a lock that is taken twice must be given back twice.
        return bool(_scalar(conn, log, f"CASE WHEN {_HELD} THEN true ELSE pg_try_advisory_lock({_KEY}) END"))

    def is_locked(self, conn: Connection, log: LogTable) -> bool:
        return bool(_scalar(conn, log, f"EXISTS ({_LOCKS})"))

    def holds_lock(self, conn: Connection, log: LogTable) -> bool:
        return bool(_scalar(conn, log, _HELD))

    def unlock(self, conn: Connection, log: LogTable) -> None:
        _scalar(conn, log, f"CASE WHEN {_HELD} THEN pg_advisory_unlock({_KEY}) END")

    def missing_rights(self, conn: Connection, log: LogTable, deletes: bool) -> list[str]:
        if log.schema is not None and not _has_right(conn, "schema", log.schema, "USAGE"):
            return [f"USAGE on schema {log.schema}"]
        missing = super().missing_rights(conn, log, deletes)
        if not _has_right(conn, "sequence", qualified(log.schema, log.flight_sequence), "USAGE"):
            missing.append(f"USAGE on sequence {log.flight_sequence}")
        return missing

    def lacking(self, conn: Connection, log: LogTable, table: str, rights: Sequence[str], column: str) -> list[str]:
        name, missing = qualified(log.schema, table), []
        for right in rights:
            if right == "UPDATE" and table == log.name:  # of which the status alone is updated
                statement = "SELECT has_column_privilege(%(name)s, %(column)s::text, 'UPDATE')"
                has_it = conn.exec_driver_sql(statement, {"name": name, "column": column}).scalar()
                what = f"column {column} of table {table}"
            else:
                has_it, what = _has_right(conn, "table", name, right), f"table {table}"
            if not has_it:
                missing.append(f"{right} on {what}")
        return missing


_DATABASE_AND_FLIGHTS: Final = """
    SELECT concat_ws('/', d.oid, to_regclass(%(flights)s)::oid)
    FROM pg_catalog.pg_database AS d
    WHERE d.datname = current_database()"""
_MAY_ASK: Final = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_CLUSTER: Final = "SELECT system_identifier FROM pg_catalog.pg_control_system()"

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


def _scalar(conn: Connection, log: LogTable, expression: str) -> object:
    parameters = {"class": _CLASS, "log": qualified(log.schema, log.name)}
    return conn.execute(text(f"SELECT {expression}"), parameters).scalar_one()


def _has_right(conn: Connection, kind: str, name: str, right: str) -> bool:
    statement = f"SELECT has_{kind}_privilege(%(name)s, %(right)s)"
    return bool(conn.exec_driver_sql(statement, {"name": name, "right": right}).scalar())
