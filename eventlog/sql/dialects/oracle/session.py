"""A session on Oracle: how it is opened, how its rows are fetched, its rights, its lock on a log,
and the answers for ``doctor``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.sql.dialects.oracle.address import arguments_of
from eventlog.sql.dialects.oracle.text import NUMBERS, qualified
from eventlog.sql.dialects.rights_by_trial import TriedRights
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import Answer, AnswerFunction
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.questions import Numbering
from eventlog.sql.port.rights import Part, Right
from eventlog.sql.port.sql_files import Binds, PlainRows, literal, statements
from eventlog.sql.port.sql_files import fetch as fetch_rows

_ARRAY_SIZE: Final = 1000
"""The number of rows in one round trip."""
_EXPIRE_MINUTES: Final = 1
"""The server's host is probed after this number of minutes without traffic; at least 1.

The driver gives up after ten probes, six seconds apart.
"""


_CACHED_STATEMENTS: Final = 200
"""The number of statements that a session keeps parsed: the statements of the log, and one
statement for each class, style and size of an IN list.
"""
_MODULE: Final = "eventlog"
"""The MODULE of eventlog sessions in V$SESSION; ACTION is publish, lock or read."""

_ENCRYPTION: Final = (
    "set SQLNET.ENCRYPTION_SERVER and SQLNET.CRYPTO_CHECKSUM_SERVER on the server "
    "to ACCEPTED, and use TLS (protocol=tcps) if the network needs encryption"
)
_SERVICE: Final = "correct the service in the URL: oracle://user@host:1521/?service_name=NAME"
_CONNECT_ADVICE: Final = {
    "ORA-01017": "check the user in the URL, and {secret}",
    "DPY-4001": "set the user in the URL, and the password: {secret}",
    "ORA-28000": "the account is locked: unlock it",
    "ORA-28001": "the password has expired: set a new one",
    "ORA-01045": "grant CREATE SESSION to the user",
    "ORA-12514": _SERVICE,
    "DPY-6001": _SERVICE,
    "DPY-6003": "correct the SID in the URL, or use a service: "
    "oracle://user@host:1521/?service_name=NAME",
    "DPY-3010": "the server is older than 12.1, and the driver does not support it",
    "DPY-3001": (
        "the server requires a feature that the driver's thin mode does not have, usually native "
        f"network encryption: {_ENCRYPTION}"
    ),
    "DPY-3015": (
        "the server stores the password in the format of a release before 11g: set "
        "SQLNET.ALLOWED_LOGON_VERSION_SERVER on the server to 11 or 12, then set the password "
        "again"
    ),
    "ORA-12660": (
        "the server requires native network encryption, which the driver's thin mode does not "
        "have: "
    )
    + _ENCRYPTION,
    "DPY-6000": (
        "the listener runs but cannot accept this session: `lsnrctl services` shows whether the "
        "service is blocked or has no free sessions or processes; the listener's log has the error"
    ),
    "ORA-28040": (
        "SQLNET.ALLOWED_LOGON_VERSION_SERVER of the server requires a way of logging in that the "
        "driver does not have: set it to 12 or 11, then set the password again"
    ),
}
_PASSING: Final = frozenset(
    {
        *(51, 54, 2049, 4021, 30006),  # another session holds a lock for too long
        *(60, 4020),  # a deadlock
        *(
            257,
            1536,
            1628,
            1650,
            1651,
            1652,
            1653,
            1654,
            1655,
            1688,
            1691,
            1692,
            19809,
            30036,
        ),  # out of disk space
        *(4030, 4031, 4036),  # out of memory
        *(1555, 8103, 8176, 8177),  # the undo that the query needs no longer exists
        *(4061, 4065, 4068),  # an object was recompiled
        *(
            1109,
            16000,
            16456,
        ),  # the database is not open, or not for writing, as during a switchover
        *(25401, 25402, 25408, 25409),  # the session moved to another instance in the middle
    }
)


class OracleSessions(Dialect):
    """Sessions, and the lock of the one publisher of a log (spec/event-log.md 12).

    The lock is taken by ``DBMS_LOCK`` if the user may execute it; a lock of ``DBMS_LOCK`` belongs
    to the session, whatever is committed. Without the right to execute ``DBMS_LOCK``, a second
    session locks the rows of ``<log>_version`` in a transaction that it never ends. Either lock
    ends with the publisher.
    """

    driver = "oracle+oracledb"
    extra = "oracle"
    session = (
        # Session settings that affect the text of values, or equality, are set to fixed values
        # (spec/triggers.md 6).
        "ALTER SESSION SET TIME_ZONE = 'UTC'",
        "ALTER SESSION SET NLS_COMP = 'BINARY'",
        "ALTER SESSION SET NLS_SORT = 'BINARY'",
        "ALTER SESSION SET NLS_CALENDAR = 'GREGORIAN'",
        "ALTER SESSION SET NLS_NUMERIC_CHARACTERS = '.,'",
    )
    connect_advice: ClassVar = _CONNECT_ADVICE
    # ROWNUM stops at the limit in every version;
    # FETCH FIRST sorts all rows by ROW_NUMBER before 19.
    engine_options: ClassVar = {"enable_offset_fetch": False}

    def connect_args(self, timeout: int) -> dict[str, object]:
        # The thin mode needs no client library.
        return {
            "tcp_connect_timeout": timeout,
            "expire_time": _EXPIRE_MINUTES,
            "stmtcachesize": _CACHED_STATEMENTS,
        }

    driver_arguments = staticmethod(arguments_of)

    def name_session(self, driver_connection: Any) -> None:
        # The driver sends it with its next call, so it needs no right and no round trip.
        driver_connection.module = _MODULE

    def passes(self, error: BaseException) -> bool:
        reason: Any = error.args[0] if error.args else None
        if getattr(reason, "full_code", "") == "DPY-4024":  # a call exceeded its time limit
            return True
        return (
            bool(getattr(reason, "isrecoverable", False)) or getattr(reason, "code", 0) in _PASSING
        )

    def lacks_right(self, error: BaseException) -> bool:
        reason: Any = error.args[0] if error.args else None
        return getattr(reason, "code", 0) in _NO_RIGHT

    def error_name(self, error: BaseException) -> str:
        reason: Any = error.args[0] if error.args else None
        return getattr(reason, "full_code", "") or type(error).__name__

    def granted(self, log: LogTable, part: Part, rights: Collection[Right]) -> str:
        if part is Part.RECORD_IDS:
            return "SELECT"  # draws a number as well
        return super().granted(log, part, rights)


# --- statements and errors ------------------------------------------------------------------------


def fetch(conn: Connection, statement: str, parameters: Binds | None = None) -> PlainRows:
    """Return the rows as the driver makes them, with large objects as text or bytes."""
    with own_types(conn):
        return fetch_rows(conn, statement, parameters or {})


CHUNKS: Final = (1, 10, 100, 900)
"""The possible sizes of IN lists.

A list takes at most 1000 values, and with few sizes the server has few statements to parse.
"""

T = TypeVar("T")


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the values in chunks of the sizes in ``CHUNKS``.

    The last chunk is filled up with its last value.
    """
    for start in range(0, len(values), CHUNKS[-1]):
        fragment = list(values[start : start + CHUNKS[-1]])
        size = next(size for size in CHUNKS if size >= len(fragment))
        yield fragment + fragment[-1:] * (size - len(fragment))


def error_code(error: DBAPIError) -> int:
    """Return the number of an ORA- error, 0 for any other error."""
    (reason, *_) = error.orig.args if error.orig is not None and error.orig.args else (None,)
    return int(getattr(reason, "code", 0) or 0)


def _as_text(cursor: Any, metadata: Any) -> Any:
    """Fetch large objects with their row instead of as locators. This function is an output type
    handler of python-oracledb.
    """
    import oracledb

    types = {
        oracledb.DB_TYPE_CLOB: oracledb.DB_TYPE_LONG,
        oracledb.DB_TYPE_NCLOB: oracledb.DB_TYPE_LONG_NVARCHAR,
        oracledb.DB_TYPE_BLOB: oracledb.DB_TYPE_LONG_RAW,
    }
    wanted = types.get(metadata.type_code)
    return None if wanted is None else cursor.var(wanted, arraysize=cursor.arraysize)


@contextmanager
def own_types(conn: Connection) -> Iterator[None]:
    driver: Any = conn.connection.driver_connection
    dialect: Any = conn.dialect
    before = driver.outputtypehandler, dialect.arraysize
    driver.outputtypehandler, dialect.arraysize = _as_text, _ARRAY_SIZE
    try:
        yield
    finally:
        driver.outputtypehandler, dialect.arraysize = before


# no such table (or no right to see it), no right, no sequence
_NO_RIGHT: Final = frozenset({942, 1031, 2289, 41900})
RIGHTS: Final = TriedRights(
    statements={
        "SELECT": "SELECT 1 FROM {table} WHERE 1 = 0",
        "INSERT": "INSERT INTO {table} ({column}) SELECT NULL FROM DUAL WHERE 1 = 0",
        "UPDATE": "UPDATE {table} SET {column} = {column} WHERE 1 = 0",
        "DELETE": "DELETE FROM {table} WHERE 1 = 0",
    },
    no_right=_NO_RIGHT,
    # errors that are raised when the statement runs, after the check of its rights, as in a
    # read-only transaction
    otherwise_refused=frozenset({1456}),
    error_code=error_code,
)
may_run: Final = RIGHTS.may_run


def current_user(conn: Connection) -> str:
    """Return the user that triggers log as perpetrator: the user who opened the session
    (spec/triggers.md 7).
    """
    return str(fetch(conn, "SELECT SYS_CONTEXT('USERENV', 'SESSION_USER') FROM DUAL")[0][0])


# --- the two locks --------------------------------------------------------------------------------


def call(conn: Connection, block: str) -> int:
    """Run a PL/SQL block that gives ``:answer`` a number, and return the number."""
    driver: Any = conn.connection.driver_connection
    cursor = driver.cursor()
    try:
        answer = cursor.var(int)
        conn.exec_driver_sql(block, {"answer": answer})
        return int(answer.getvalue())
    finally:
        cursor.close()


# --- what doctor queries in addition to doctor.sql
# --------------------------------------------------

# Facts that only V$ views have, such as the open transactions of other sessions, are left out: an
# application's user cannot see these views.

_SQL: Final = statements(__package__, "doctor.sql")
_NO_COLUMN: Final = 904


def numberings(log: OpenLog) -> list[Numbering]:
    """Return the sequence that gives record_ids: the sequence that the configuration names, or the
    one that `eventlog db upgrade` creates (spec/triggers.md 7).
    """
    conn, table = log.connection, log.table
    owner, own_name = table.sequence or (table.schema, table.own_name(NUMBERS))
    names = {"owner": owner, "name": own_name}
    answer = []
    for owner, name, cache, step, cycles, ordered, of_session in fetch(
        conn, _SQL["numberings"], names
    ):
        sequence = qualified(owner, name)
        # The cache belongs to the instance, and sessions take numbers from it one by one.
        numbering = Numbering(sequence, 1, int(step), cycles == "Y")
        if of_session == "Y":
            disorder, fix = "gives every session the same numbers (SESSION)", "GLOBAL"
        elif _is_scaled(conn, names):
            disorder, fix = "includes instance and session in its numbers (SCALE)", "NOSCALE"
        elif ordered != "Y" and int(cache) > 0 and _is_cluster(conn):
            disorder = f"has a cache of {cache} numbers on each instance of a cluster (NOORDER)"
            fix = "ORDER"
        else:
            answer.append(numbering)
            continue
        answer.append(numbering._replace(disorder=disorder, fix=f"ALTER SEQUENCE {sequence} {fix}"))
    return answer


def _indexes(log: OpenLog) -> Answer:
    """Return the columns of the log's indexes.

    An expression in an index is represented by its text.
    """
    names = {"log_schema": log.table.schema, "log_name": log.table.name}
    rows = fetch(log.connection, _SQL["indexes"], names)
    return [
        (name, is_valid, expression or column, None) for name, is_valid, column, expression in rows
    ]


def _is_scaled(conn: Connection, names: dict[str, str | None]) -> bool:
    try:
        return bool(fetch(conn, _SQL["scaled"], names))
    except DBAPIError as error:
        if error_code(error) != _NO_COLUMN:
            raise
        return False


def _is_cluster(conn: Connection) -> bool:
    # V$INSTANCE is not used, since an application's user cannot see it.
    is_cluster = "CASE WHEN DBMS_UTILITY.IS_CLUSTER_DATABASE THEN 1 ELSE 0 END"
    return call(conn, f"BEGIN\n    :answer := {is_cluster};\nEND;") == 1


def has_log(conn: Connection, name: str) -> bool:
    """Return True if a log named in the text of a trigger exists."""
    return may_run(conn, f"SELECT 1 FROM {name} WHERE 1 = 0")  # noqa: S608 - quoted


def _owned(_db: OpenDatabase, schema: str, tables: Sequence[str], user: str) -> list[tuple[str]]:
    """Return all of these tables or no table, since a schema belongs to one user."""
    return [(table,) for table in tables] if schema == user else []


def _unreadable(log: OpenLog, schema: str, tables: Sequence[str], columns: Sequence[str]) -> Answer:
    """Return the columns that this user may not read.

    Oracle grants whole tables: all columns of a table or none.
    """
    return RIGHTS.unreadable(
        log,
        tables,
        columns,
        lambda table, _: f"SELECT 1 FROM {qualified(schema, table)} WHERE 1 = 0",  # noqa: S608 - quoted names
    )


def _rights_to_apply(log: OpenLog, schema: str, **_: Any) -> Iterator[tuple[str]]:
    """Yield, in words, the rights that this session's user lacks for applying triggers to tables of
    a schema.
    """
    privileges = {row[0] for row in fetch(log.connection, _SQL["rights"])}
    if "CREATE ANY TRIGGER" in privileges:
        return
    user = log.db.current_user()
    if "CREATE TRIGGER" not in privileges:
        yield ("the system privilege CREATE TRIGGER",)
    if schema != user:
        yield (
            f"CREATE ANY TRIGGER, since the tables are in schema {schema} and the user is "
            f"{literal(user)}",
        )


ANSWERS: Final[Mapping[str, AnswerFunction]] = {
    "numberings": numberings,
    "indexes": _indexes,
    "owned": _owned,
    "unreadable": _unreadable,
    "rights_to_apply": _rights_to_apply,
}
