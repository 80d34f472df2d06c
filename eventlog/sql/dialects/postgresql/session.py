"""A session on PostgreSQL: how it is opened, its plans, its lock on a log, its rights, and how it
is woken.

NOTIFY wakes a sleeping publisher; a publisher that is awake gets no notification (spec/triggers.md
8). A lock distinguishes the two. A writer of the log shares it until its transaction ends. The
publisher takes it exclusively before it sleeps, and releases it when it wakes. A writer that cannot
share the lock sends a notification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

from sqlalchemy import Connection, CursorResult, text
from sqlalchemy.exc import DBAPIError

from eventlog.sql.database import CHANGING_POOL, KEEPALIVE, LockHolder, Refusal, Wake
from eventlog.sql.dialect import Dialect
from eventlog.sql.dialects.postgresql.refusals import refusal_of
from eventlog.sql.dialects.postgresql.text import MAX_IDENTIFIER, TEXT_SETTINGS, bindable, literal
from eventlog.sql.doctor import Numbering, ask
from eventlog.sql.log_table import LogTable
from eventlog.sql.rights import Part, Right, Rights, name_of
from eventlog.sql.statements import qualified, quote_identifier, statements

_TIMELINE: Final = (
    "substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8)"
)
"""SQL of the timeline that the server writes.

A promotion and a recovery to a point in time raise it.
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
    JOIN pg_catalog.pg_settings AS present USING (name)
    WHERE present.source NOT IN ('client', 'user', 'database', 'database user', 'global')
      AND pg_catalog.inet_client_addr() IS NOT NULL"""  # noqa: S608
"""Lets the server notice that a publisher's host is gone, unless the URL, the role or the database
has settings for it. A session of a Unix socket needs none.
"""


class PostgresSessions(Dialect):
    """Sessions, and the lock of the one publisher of a log (spec/event-log.md 12): an advisory
    lock, which belongs to the session.
    """

    driver = "postgresql+psycopg"
    session = (
        # The same settings as in the triggers (spec/triggers.md 6).
        *(f"SET {name} = '{value}'" for name, value in TEXT_SETTINGS.items()),
        # Statements here are short, and compiling one takes longer than running it.
        "SET jit = off",
        _SET_KEEPALIVE,
    )
    # PgBouncer's message in mode ``statement``, at the first transaction.
    refused_by: ClassVar = {"not allowed in statement pooling mode": CHANGING_POOL}

    def connect_args(self, timeout: int) -> dict[str, object]:
        return {
            "connect_timeout": timeout,
            "application_name": "eventlog",
            "client_encoding": "UTF8",
            # No prepared statements: a statement reads one row or ten thousand, and its plan would
            # be kept while the log grows.
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

    def refusal(self, error: BaseException) -> Refusal:
        return refusal_of(str(error))

    def begin_reading(self, conn: Connection, seconds: int) -> None:
        conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        conn.exec_driver_sql(f"SET LOCAL statement_timeout = '{int(seconds)}s'")

    def choose_plans(self, conn: Connection) -> None:
        """Allow only plans that use an index, if there is one, to the end of the transaction or to
        ``usual_plans``.

        The settings are sent once in a transaction, since each time costs a round trip.
        """
        if _is_said(conn):
            return
        read = ", ".join(f"current_setting('{name}')" for name in OTHER_PLANS)
        row = conn.exec_driver_sql(
            f"SELECT {read}, {_written()}", dict.fromkeys(OTHER_PLANS, "off")
        ).one()
        conn.info[_BY_INDEX] = (
            conn.get_nested_transaction() or conn.get_transaction(),
            row[: len(OTHER_PLANS)],
        )

    def session_id(self, conn: Connection) -> str:
        return str(conn.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())

    def current_user(self, conn: Connection) -> str:
        return str(conn.exec_driver_sql("SELECT session_user").scalar_one())

    def read_only(self, conn: Connection) -> str | None:
        settings = (
            "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
        )
        is_standby, is_read_only = conn.exec_driver_sql(settings).one()
        if is_standby:
            return "the server is a standby, which takes no writes"
        return (
            "default_transaction_read_only is on for this session, so that it writes nothing"
            if is_read_only
            else None
        )

    def begin_publishing(self, conn: Connection) -> None:
        # Other sessions may commit without waiting for the disk. A commit here makes all earlier
        # ones durable, so that no event is sent whose transaction a crash takes back
        # (spec/event-log.md 12). remote_apply waits for still more.
        conn.exec_driver_sql(_DURABLE)
        # Each statement has its own snapshot, whatever the role's default is. A snapshot taken
        # after transactions have ended shows their rows (spec/event-log.md 13.1).
        conn.exec_driver_sql(
            "SELECT set_config('default_transaction_isolation', 'read committed', false)"
        )

    def make_durable(self, conn: Connection) -> None:
        # A transaction that has written the WAL waits at its commit for all of the WAL before. Most
        # of the time nothing is written here, since who commits has waited for the disk.
        try:
            with conn.begin_nested():
                conn.exec_driver_sql(_FLUSHED)
        except DBAPIError as error:  # a server that only speaks PostgreSQL's protocol
            if error.connection_invalidated:
                raise

    def identity(self, conn: Connection, log: LogTable) -> str:
        # A standby that takes over has the same identity, a restored dump has not. A role may ask
        # for the cluster unless that right was revoked.
        parts = _identity_parts(conn, log)
        return "/".join(
            ["postgresql", *(parts[name] for name in ("cluster", "database") if name in parts)]
        )

    server_sql = f"CAST(json_build_object('timeline', {_TIMELINE}) AS text)"

    def server_parts(self, conn: Connection, log: LogTable) -> dict[str, str]:
        parts = _identity_parts(conn, log)
        try:
            with conn.begin_nested():
                parts["timeline"] = str(conn.exec_driver_sql(f"SELECT {_TIMELINE}").scalar_one())
        except DBAPIError as error:  # a server that only speaks PostgreSQL's protocol
            if error.connection_invalidated:
                raise
        return parts

    def try_lock(self, conn: Connection, log: LogTable) -> bool:
        # The session asks first, since a lock that is taken twice must be released twice.
        return bool(
            _scalar(conn, log, f"CASE WHEN {_HELD} THEN true ELSE pg_try_advisory_lock({_KEY}) END")
        )

    def is_locked(self, conn: Connection, log: LogTable) -> bool:
        return bool(_scalar(conn, log, f"EXISTS ({_LOCKS})"))

    def lock_holder(self, conn: Connection, log: LogTable) -> LockHolder | None:
        parameters = {"class": _LOCK_CLASS, "log": qualified(log.schema, log.name)}
        found = conn.execute(text(_holder(_LOCKS)), parameters).first()
        return None if found is None else LockHolder(*found)

    def holds_lock(self, conn: Connection, log: LogTable) -> bool:
        return bool(_scalar(conn, log, _HELD))

    def unlock(self, conn: Connection, log: LogTable) -> None:
        _scalar(conn, log, f"CASE WHEN {_HELD} THEN pg_advisory_unlock({_KEY}) END")

    def try_consumer_lock(self, conn: Connection, log: LogTable, consumer: str) -> bool:
        taken = f"SELECT pg_try_advisory_lock(:class, {_CONSUMER_KEY})"
        return bool(_of_consumer(conn, log, consumer, taken).scalar_one())

    def is_consumer_locked(self, conn: Connection, log: LogTable, consumer: str) -> bool:
        locked = f"SELECT EXISTS ({_CONSUMER_LOCKS})"
        return bool(_of_consumer(conn, log, consumer, locked).scalar_one())

    def consumer_holder(self, conn: Connection, log: LogTable, consumer: str) -> LockHolder | None:
        found = _of_consumer(conn, log, consumer, _holder(_CONSUMER_LOCKS)).first()
        return None if found is None else LockHolder(*found)

    def lock_registering(self, conn: Connection, log: LogTable) -> None:
        _removal_lock(conn, log, "pg_advisory_xact_lock")

    def lock_removing(self, conn: Connection, log: LogTable) -> None:
        _removal_lock(conn, log, "pg_advisory_xact_lock_shared")

    def next_record_id(self, conn: Connection, log: LogTable) -> int | None:
        following: list[int] = []
        for numbering in ask(conn, self, "numberings", Numbering, log):
            if not _has_right(conn, "sequence", numbering.name, "SELECT"):
                return None
            number = f"last_value + CASE WHEN is_called THEN {int(numbering.increment)} ELSE 0 END"
            sequence = bindable(numbering.name)
            following.append(
                int(conn.exec_driver_sql(f"SELECT {number} FROM {sequence}").scalar_one())  # noqa: S608 - quoted
            )
        return max(following, default=None)

    drawing = "USAGE"

    def lacking(
        self, conn: Connection, log: LogTable, needed: Iterable[tuple[Part, Right]]
    ) -> list[str]:
        if log.schema is not None and not _has_right(conn, "schema", log.schema, "USAGE"):
            return [f"USAGE on schema {log.schema}"]
        missing = []
        for part, right in needed:
            name = name_of(log, part)
            there = qualified(log.schema, name)
            if part is Part.NUMBERS:
                if not _has_right(conn, "sequence", there, self.drawing):
                    missing.append(f"{self.drawing} on sequence {name}")
            elif right.columns:
                statement = "SELECT has_column_privilege(%(name)s, %(column)s::text, 'UPDATE')"
                for column in map(log.column, right.columns):
                    names = {"name": there, "column": column}
                    if not conn.exec_driver_sql(statement, names).scalar():
                        missing.append(f"UPDATE on column {column} of table {name}")
            elif not _has_right(conn, "table", there, right.statement):
                missing.append(f"{right.statement} on table {name}")
        return missing

    def grants(self, conn: Connection, log: LogTable, rights: Rights, user: str) -> list[str]:
        statements = super().grants(conn, log, rights, user)
        if log.schema is not None:
            statements.insert(0, f"GRANT USAGE ON SCHEMA {self.quote(log.schema)} TO {user}")
        # Without a right on the schema nobody sees what numbers the rows.
        if Part.RECORD_IDS in rights and (
            log.schema is None or _has_right(conn, "schema", log.schema, "USAGE")
        ):
            # An identity column draws its numbers without a right on its sequence.
            is_identity = conn.execute(
                text(_IS_IDENTITY),
                {"log": qualified(log.schema, log.name), "column": log.column("record_id")},
            ).scalar()
            words = {Right.SELECT: "SELECT", Right.DRAW: "" if is_identity else "USAGE"}
            granted = ", ".join(
                words[one] for one in words if one in rights[Part.RECORD_IDS] and words[one]
            )
            statements += [
                f"GRANT {granted} ON SEQUENCE {numbering.name} TO {user}"
                for numbering in ask(conn, self, "numberings", Numbering, log)
                if granted
            ]
        return statements

    def _granted_on(self, conn: Connection, log: LogTable, part: Part) -> Sequence[str]:
        named = super()._granted_on(conn, log, part)
        return [f"SEQUENCE {name}" for name in named] if part is Part.NUMBERS else named


# --- the lock and the rights ----------------------------------------------------------------------

_DATABASE_AND_FLIGHTS: Final = """
    SELECT concat_ws('/', d.oid, to_regclass(%(flights)s)::oid)
    FROM pg_catalog.pg_database AS d
    WHERE d.datname = current_database()"""
_DATABASE: Final = (
    "SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()"
)
_IS_IDENTITY: Final = """
    SELECT attidentity <> '' FROM pg_catalog.pg_attribute
    WHERE attrelid = to_regclass(:log) AND attname = :column"""
_MAY_ASK: Final = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_CLUSTER: Final = "SELECT system_identifier FROM pg_catalog.pg_control_system()"

_DURABLE: Final = """
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"""

_FLUSHED: Final = """
    SELECT pg_catalog.pg_logical_emit_message(true, 'eventlog', CAST('' AS text))
    WHERE pg_catalog.pg_current_wal_flush_lsn() < pg_catalog.pg_current_wal_insert_lsn()"""


def _identity_parts(conn: Connection, log: LogTable) -> dict[str, str]:
    """Return the facts that identify the database and its log: ``database``, and ``cluster`` if the
    role may ask for it.
    """
    flights = {"flights": qualified(log.schema, log.flight_sequence)}
    parts = {"database": str(conn.exec_driver_sql(_DATABASE_AND_FLIGHTS, flights).scalar_one())}
    if conn.exec_driver_sql(_MAY_ASK).scalar_one():
        parts["cluster"] = str(conn.exec_driver_sql(_CLUSTER).scalar_one())
    return parts


def database_number(conn: Connection) -> str:
    """Return the system identifier of the server, if the role may ask for it, and the OID of the
    database: the numbers of tables and columns count within these.
    """
    number = str(conn.exec_driver_sql(_DATABASE).scalar_one())
    if conn.exec_driver_sql(_MAY_ASK).scalar_one():
        return f"{conn.exec_driver_sql(_CLUSTER).scalar_one()}/{number}"
    return number


_LOCK_CLASS: Final = int.from_bytes(b"Elog")
"""The first half of the lock's key; the second is the log's OID. Another program uses the same half
with a chance of 1 to 2^32.
"""

_LOCKS: Final = """
    SELECT FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
      AND classid = CAST(:class AS bigint)::oid
      AND objid = CAST(CAST(:log AS text) AS regclass)::oid
      AND objsubid = 2
      AND granted"""
_HELD: Final = f"EXISTS ({_LOCKS} AND pid = pg_backend_pid())"
_KEY: Final = ":class, CAST(CAST(:log AS text) AS regclass)::oid::integer"


def _holder(locks: str) -> str:
    """Return the statement that tells the session which has one of these locks."""
    return f"""
    SELECT a.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''),
           coalesce(host(a.client_addr), ''), a.backend_start,
           coalesce(a.application_name, '')
               NOT IN ('eventlog', current_setting('application_name'))
    FROM pg_catalog.pg_stat_activity AS a
    WHERE EXISTS ({locks} AND pg_locks.pid = a.pid)"""  # noqa: S608


def _scalar(conn: Connection, log: LogTable, expression: str) -> object:
    parameters = {"class": _LOCK_CLASS, "log": qualified(log.schema, log.name)}
    return conn.execute(text(f"SELECT {expression}"), parameters).scalar_one()


_CONSUMER_CLASS: Final = int.from_bytes(b"Econ")
"""The first half of the key of a consumer's lock; the second is a hash of the log's OID and the
consumer's name.
"""
_REMOVAL_CLASS: Final = int.from_bytes(b"Erem")
"""The first half of the key of the lock between registering a consumer and removing rows; the
second is the log's OID.
"""
_CONSUMER_KEY: Final = (
    "hashtext(CAST(CAST(:log AS text) AS regclass)::oid::text || '/' || CAST(:consumer AS text))"
)
_CONSUMER_LOCKS: Final = f"""
    SELECT FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
      AND classid = CAST(:class AS bigint)::oid AND objid = ({_CONSUMER_KEY})::oid
      AND objsubid = 2 AND granted"""  # noqa: S608


def _of_consumer(
    conn: Connection, log: LogTable, consumer: str, statement: str
) -> CursorResult[Any]:
    parameters = {
        "class": _CONSUMER_CLASS,
        "log": qualified(log.schema, log.name),
        "consumer": consumer,
    }
    return conn.execute(text(statement), parameters)


def _removal_lock(conn: Connection, log: LogTable, function: str) -> None:
    statement = f"SELECT {function}(:class, CAST(CAST(:log AS text) AS regclass)::oid::integer)"
    conn.execute(text(statement), {"class": _REMOVAL_CLASS, "log": qualified(log.schema, log.name)})


def _has_right(conn: Connection, kind: str, name: str, right: str) -> bool:
    statement = f"SELECT has_{kind}_privilege(%(name)s, %(right)s)"
    return bool(conn.exec_driver_sql(statement, {"name": name, "right": right}).scalar())


# --- plans ----------------------------------------------------------------------------------------

# The plans that a window would use otherwise: they read all of its rows and sort them, and the
# limit takes the first ones.
OTHER_PLANS: Final = ("enable_seqscan", "enable_bitmapscan", "enable_sort")
_BY_INDEX: Final = "eventlog_by_index"
"""A key of ``Connection.info``: the transaction or savepoint in which the plans were switched off,
and the earlier settings.
"""


def usual_plans(conn: Connection) -> None:
    """Restore the settings that the log's statements have switched off in this transaction, since
    other tables need other plans.
    """
    if _is_said(conn):
        _, before = conn.info.pop(_BY_INDEX)
        conn.exec_driver_sql(f"SELECT {_written()}", dict(zip(OTHER_PLANS, before, strict=True)))


def _is_said(conn: Connection) -> bool:
    transaction, _ = conn.info.get(_BY_INDEX, (None, ()))
    return transaction is not None and transaction in (
        conn.get_transaction(),
        conn.get_nested_transaction(),
    )


def _written() -> str:
    return ", ".join(f"set_config('{name}', %({name})s, true)" for name in OTHER_PLANS)


# --- waking the publisher -------------------------------------------------------------------------

_WAKE_SQL: Final = statements(__package__, "wake.sql")
_WAKE_CLASS: Final = int.from_bytes(b"Ewak")
"""The first half of the lock's key; the second is the log's OID.

This is not the publisher's lock.
"""


def channel(log: LogTable) -> str:
    """Return the channel of a log: ``eventlog_<log table>`` in lower case, cut to 63 bytes.

    Logs of one name in several schemas share it: their publishers wake each other once too often.
    """
    return f"eventlog_{log.name}".lower().encode()[:MAX_IDENTIFIER].decode(errors="ignore")


class PostgresWake(Wake):
    """Notifications by NOTIFY, sent by a trigger of the log if the publisher holds the lock."""

    def create(self, log: LogTable) -> list[str]:
        return _wake_statements(log, "function", "revoke", "drop_trigger", "trigger", "always")

    def drop(self, log: LogTable) -> list[str]:
        return _wake_statements(log, "drop_trigger", "drop_function")

    def may_create(self, conn: Connection, log: LogTable) -> bool:
        return bool(
            conn.exec_driver_sql(_WAKE_SQL["owns"], {"log": _wake_words(log)["log"]}).scalar()
        )

    def missing(self, conn: Connection, log: LogTable) -> str | None:
        words = _wake_words(log)
        parameters = {
            "log": words["log"],
            "trigger": words["trigger_name"],
            "function": f"{words['function']}()",
        }
        reason = conn.exec_driver_sql(_WAKE_SQL["missing"], parameters).scalar()
        return None if reason is None else str(reason)

    def listen(self, conn: Connection, log: LogTable) -> None:
        conn.exec_driver_sql(
            f"LISTEN {quote_identifier(channel(log))}", execution_options={"no_parameters": True}
        )

    def fall_asleep(self, conn: Connection, log: LogTable) -> bool:
        statement = "SELECT pg_try_advisory_lock(%(class)s, %(log)s::regclass::oid::integer)"
        return bool(conn.exec_driver_sql(statement, _wake_key(log)).scalar_one())

    def wake_up(self, conn: Connection, log: LogTable) -> None:
        conn.exec_driver_sql(
            "SELECT pg_advisory_unlock(%(class)s, %(log)s::regclass::oid::integer)", _wake_key(log)
        )

    def socket(self, conn: Connection) -> int:
        return int(_driver(conn).fileno())

    def heard(self, conn: Connection) -> bool:
        # All of them are taken, so that each counts once.
        return len(list(_driver(conn).notifies(timeout=0))) > 0


def _driver(conn: Connection) -> Any:
    return conn.connection.driver_connection


def _wake_key(log: LogTable) -> dict[str, object]:
    return {"class": _WAKE_CLASS, "log": _wake_words(log)["log"]}


def _wake_statements(log: LogTable, *names: str) -> list[str]:
    return [_WAKE_SQL[name].format(**_wake_words(log)) for name in names]


@lru_cache(maxsize=32)
def _wake_words(log: LogTable) -> Mapping[str, str]:
    trigger = log.own_name("_tgr_{}_i_1")
    return {
        "log": qualified(log.schema, log.name),
        "trigger": quote_identifier(trigger),
        "trigger_name": trigger,
        "function": qualified(log.schema, log.own_name("proc_{}_wake")),
        "channel": literal(channel(log)),
        "lock_class": str(_WAKE_CLASS),
    }


WAKE: Final = PostgresWake()
