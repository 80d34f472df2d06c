"""A session on PostgreSQL: how it is opened, its plans, its lock on a log, its rights, and how it
is woken.

NOTIFY wakes a sleeping publisher; a publisher that is awake gets no notification (spec/triggers.md
8). A lock shows whether the publisher sleeps. A writer of the log holds the lock in shared mode
until its transaction ends. The publisher takes the lock exclusively before it sleeps, and releases
it when it wakes. A writer that cannot get the lock sends a notification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, ClassVar, Final

import psycopg
from sqlalchemy import Connection

from eventlog.sql.dialects.postgresql import log_session
from eventlog.sql.dialects.postgresql.refusals import refusal_of
from eventlog.sql.dialects.postgresql.search_path import guard_names
from eventlog.sql.dialects.postgresql.text import MAX_IDENTIFIER, TEXT_SETTINGS, literal
from eventlog.sql.log_table import INSUFFICIENT_PRIVILEGE, LogTable
from eventlog.sql.port.database import CHANGING_POOL, KEEPALIVE, Refusal, Wake
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import (
    NEUTRAL_ALONE,
    Binds,
    qualified,
    quote_identifier,
    statements,
)

TIMELINE: Final = "substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8)"
"""SQL of the timeline that the server writes.

A promotion, or a recovery to a point in time, raises the timeline.
"""

_SERVER_KEEPALIVE: Final = {
    "tcp_keepalives_idle": KEEPALIVE.idle,
    "tcp_keepalives_interval": KEEPALIVE.interval,
    "tcp_keepalives_count": KEEPALIVE.probes,
    "tcp_user_timeout": KEEPALIVE.milliseconds,
}
_SET_KEEPALIVE: Final = f"""
    SELECT pg_catalog.set_config(wanted.name, wanted.value, false)
    FROM (VALUES {", ".join(f"('{name}', '{value}')" for name, value in _SERVER_KEEPALIVE.items())})
         AS wanted (name, value)
    JOIN pg_catalog.pg_settings AS present ON present.name = wanted.name
    WHERE present.source NOT IN ('client', 'user', 'database', 'database user', 'global')"""  # noqa: S608
"""The statement that lets the server detect that a publisher's host is gone. The statement changes
nothing if the URL, the role or the database has keepalive settings.
"""


_OF_SERVER: Final = ("08", "25", "26", "28", "40", "53", "55", "57", "58")
"""The classes of SQLSTATEs about the session, the server, locks and transactions. The messages of
the server itself under these SQLSTATEs quote no row.
"""


class PostgresSessions(Dialect):
    """Sessions, and the lock of the one publisher of a log (spec/event-log.md 12). The lock is an
    advisory lock, which belongs to the session.
    """

    driver = "postgresql+psycopg"
    plain_session = (
        # SQLAlchemy does not recognize "text" as a type.
        "SET quote_all_identifiers = off",
    )
    session = (
        # The same settings as in the triggers (spec/triggers.md 6).
        *(f"SET {name} = '{value}'" for name, value in TEXT_SETTINGS.items()),
        # Statements here are short, and compiling one takes longer than running it.
        "SET jit = off",
    )
    # PgBouncer's message in mode ``statement``, at the first transaction.
    refused_by: ClassVar = {"not allowed in statement pooling mode": CHANGING_POOL}

    def guard_names(self, driver_connection: Any) -> None:
        guard_names(driver_connection)

    def first_statements(self, driver_connection: Any) -> Sequence[str]:
        keepalive = () if _is_by_socket(driver_connection) else (_SET_KEEPALIVE,)
        return ("; ".join((*super().first_statements(driver_connection), *keepalive)),)

    def connect_args(self, timeout: int) -> dict[str, object]:
        return {
            "connect_timeout": timeout,
            "application_name": "eventlog",
            "client_encoding": "UTF8",
            # No prepared statements: a statement may read one row or ten thousand, and its plan
            # would stay the same while the log grows. The log's statements have one plan
            # (``log_session``).
            "prepare_threshold": None,
        }

    def keepalive_args(self) -> dict[str, object]:
        # libpq ignores them for a Unix socket.
        return {
            "keepalives_idle": KEEPALIVE.idle,
            "keepalives_interval": KEEPALIVE.interval,
            "keepalives_count": KEEPALIVE.probes,
            "tcp_user_timeout": KEEPALIVE.milliseconds,
        }

    listen = staticmethod(log_session.listen)
    # Errors in the middle of a transaction; the next session runs the transaction again.
    passes = staticmethod(log_session.is_stale)

    def lacks_right(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) == INSUFFICIENT_PRIVILEGE

    def may_quote_rows(self, error: BaseException) -> bool:
        if not isinstance(error, psycopg.Error) or error.sqlstate is None:
            # libpq lost the connection, or the driver cannot read a value.
            return not isinstance(error, psycopg.OperationalError)
        if error.diag.context is not None:  # a function may quote a row under any SQLSTATE
            return True
        is_of_server = error.sqlstate.startswith(_OF_SERVER) or self.lacks_right(error)
        return not is_of_server and error.diag.statement_position is None

    def error_name(self, error: BaseException) -> str:
        state = getattr(error, "sqlstate", None)
        if state is None:
            return super().error_name(error)
        # The driver has a class for each SQLSTATE, such as InvalidTextRepresentation for 22P02.
        with suppress(KeyError):
            name = psycopg.errors.lookup(state).__name__
            return f"{state} {' '.join(re.findall('[A-Z][a-z]*', name)).lower()}"
        return f"SQLSTATE {state}"

    def refusal(self, error: BaseException) -> Refusal:
        return refusal_of(str(error))

    server_sql = f"CAST(json_build_object('timeline', {TIMELINE}) AS text)"

    drawing = "USAGE"


def _is_by_socket(driver_connection: Any) -> bool:
    """Return True if the server has a Unix socket at its end of a session: it needs no keepalive
    settings, which take longer to look up than to ask this. A pooler may have a socket at this end
    alone, so the server is asked.
    """
    if not driver_connection.info.host.startswith(("/", "@")):
        return False
    asked = driver_connection.execute("SELECT pg_catalog.inet_client_addr() IS NULL")
    return bool(asked.fetchone()[0])


# --- the lock and the rights ----------------------------------------------------------------------


_DATABASE: Final = (
    "SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()"
)


_MAY_ASK: Final = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_CLUSTER: Final = "SELECT system_identifier FROM pg_catalog.pg_control_system()"
_KNOWN_CLUSTER: Final = "eventlog_cluster"
"""A key of ``Connection.info``: the server of a session is asked once."""


def system_identifier(conn: Connection) -> str | None:
    """Return the system identifier of the server, None if the role may not read it."""
    if _KNOWN_CLUSTER not in conn.info:
        may_ask = conn.exec_driver_sql(_MAY_ASK).scalar_one()
        found = str(conn.exec_driver_sql(_CLUSTER).scalar_one()) if may_ask else None
        conn.info[_KNOWN_CLUSTER] = found
    known: str | None = conn.info[_KNOWN_CLUSTER]
    return known


def database_number(conn: Connection) -> str:
    """Return the system identifier of the server, if the role may read it, and the OID of the
    database. The numbers of tables and columns are valid only in this database of this server.
    """
    number = str(conn.exec_driver_sql(_DATABASE).scalar_one())
    return "/".join(filter(None, (system_identifier(conn), number)))


# --- waking the publisher -------------------------------------------------------------------------

_WAKE_SQL: Final = statements(__package__, "wake.sql")
"""The statements about notifications. A publisher that is awake is not notified, since all commits
that notify pass through one lock of the server.
"""
_WAKE_CLASS: Final = int.from_bytes(b"Ewak")
"""The first half of the key of the lock for sleeping; the second half is the log's OID.

This is not the publisher's lock.
"""


def channel(log: LogTable) -> str:
    """Return the channel of a log: ``eventlog_<log table>`` in lower case, cut to 63 bytes.

    Logs of the same name in several schemas share a channel: their publishers are sometimes woken
    unnecessarily.
    """
    return f"eventlog_{log.name}".lower().encode()[:MAX_IDENTIFIER].decode(errors="ignore")


class PostgresWake(Wake):
    """Notifications by NOTIFY. A trigger of the log sends one if the publisher holds the lock."""

    def create(self, log: LogTable) -> list[str]:
        return _wake_statements(log, "function", "revoke", "drop_trigger", "trigger", "always")

    def drop(self, log: LogTable) -> list[str]:
        return _wake_statements(log, "drop_trigger", "drop_function")

    def may_create(self, log: OpenLog) -> bool:
        words = {"log": _wake_words(log.table)["log"]}
        return bool(log.connection.exec_driver_sql(_WAKE_SQL["owns"], words).scalar())

    def missing(self, log: OpenLog) -> str | None:
        words = _wake_words(log.table)
        parameters = {
            "log": words["log"],
            "trigger": words["trigger_name"],
            "function": f"{words['function']}()",
        }
        reason = log.connection.exec_driver_sql(_WAKE_SQL["missing"], parameters).scalar()
        return None if reason is None else str(reason)

    def listen(self, log: OpenLog) -> None:
        log.connection.exec_driver_sql(
            f"LISTEN {quote_identifier(channel(log.table))}",
            execution_options={"no_parameters": True},
        )

    def fall_asleep(self, log: OpenLog) -> bool:
        statement = "SELECT pg_try_advisory_lock(%(class)s, %(log)s::regclass::oid::integer)"
        return bool(
            log.connection.exec_driver_sql(
                statement, _wake_key(log.table), execution_options=NEUTRAL_ALONE
            ).scalar_one()
        )

    def wake_up(self, log: OpenLog) -> None:
        log.connection.exec_driver_sql(
            "SELECT pg_advisory_unlock(%(class)s, %(log)s::regclass::oid::integer)",
            _wake_key(log.table),
            execution_options=NEUTRAL_ALONE,
        )

    def socket(self, conn: Connection) -> int:
        return int(_driver(conn).fileno())

    def was_notified(self, conn: Connection) -> bool:
        # Read all of them, so that each counts once.
        return len(list(_driver(conn).notifies(timeout=0))) > 0


def _driver(conn: Connection) -> Any:
    return conn.connection.driver_connection


def _wake_key(log: LogTable) -> Binds:
    return {"class": _WAKE_CLASS, "log": _wake_words(log)["log"]}


def _wake_statements(log: LogTable, *names: str) -> list[str]:
    return [_WAKE_SQL[name].format(**_wake_words(log)) for name in names]


def wake_function(log: LogTable) -> str:
    """Return the quoted name of the function that wakes a sleeping publisher."""
    return qualified(log.schema, log.own_name("proc_{}_wake"))


@lru_cache(maxsize=32)
def _wake_words(log: LogTable) -> Mapping[str, str]:
    trigger = log.own_name("_tgr_{}_i_1")
    return {
        "log": qualified(log.schema, log.name),
        "trigger": quote_identifier(trigger),
        "trigger_name": trigger,
        "function": wake_function(log),
        "channel": literal(channel(log)),
        "lock_class": str(_WAKE_CLASS),
    }


WAKE: Final = PostgresWake()
