"""What tells one log from any other, and from itself made anew (spec/event-log.md 10)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from eventlog.sql.dialects.postgresql.text import qualified
from eventlog.sql.log_table import LogTable

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
