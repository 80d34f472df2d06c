"""One publisher per log: a lock that the session holds (spec/event-log.md 12).

``DBMS_LOCK`` where the user may execute it: the lock is the session's, whatever is committed. Without that grant the
rows of ``<log>_version`` are locked by a transaction that is never ended, of a second session beside this one. Either
way nothing is left of it when the publisher dies.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.errors import DatabaseError
from eventlog.sql.dialects.oracle.session import begin_publishing, error_code, fetch
from eventlog.sql.dialects.oracle.text import qualified
from eventlog.sql.log_table import LogTable

_SUCCESS, _OWNED = 0, 4  # return codes of DBMS_LOCK.REQUEST; 1 is a time-out, somebody else has it
_EXCLUSIVE: Final = 6
_BESIDE: Final = "eventlog_lock_session"
_MAY_LOCK: Final = "eventlog_may_use_dbms_lock"
_BUSY: Final = 54
_NO_TABLE: Final = 942


def try_lock(conn: Connection, log: LogTable) -> bool:
    """Take the log for this session; True if it has it now. The lock ends with the session, not the transaction."""
    if _may_use_dbms_lock(conn):
        return call(conn, request_block(log)) in (_SUCCESS, _OWNED)
    if holds_lock(conn, log):
        return True
    beside = conn.engine.connect()
    has_it = False
    try:
        begin_publishing(beside)
        has_it = _lock_row(beside, log)
    finally:
        if not has_it:
            beside.close()
    if has_it:
        conn.connection.info[_BESIDE] = beside
    return has_it


def is_locked(conn: Connection, log: LogTable) -> bool:
    """Whether any session has the log. Takes it for a moment: a publisher that starts just then is to start again."""
    if holds_lock(conn, log) or not try_lock(conn, log):
        return True
    unlock(conn, log)
    return False


def holds_lock(conn: Connection, log: LogTable) -> bool:
    """Whether this session has the log."""
    beside = conn.connection.info.get(_BESIDE)
    if beside is not None:
        return bool(beside.connection.driver_connection.is_healthy()) and _lock_row(beside, log)
    if not _may_use_dbms_lock(conn):
        return False
    answer = call(conn, request_block(log))
    if answer == _SUCCESS:  # taken by asking
        call(conn, release_block(log))
    return answer == _OWNED


def unlock(conn: Connection, log: LogTable) -> None:
    """Give the log back, if this session has it."""
    beside = conn.connection.info.pop(_BESIDE, None)
    if beside is not None:
        beside.close()
    elif _may_use_dbms_lock(conn):
        call(conn, release_block(log))


# --- the two locks ----------------------------------------------------------------------------------------------------


def lock_id(log: LogTable) -> int:
    """The number of a log's user lock, one of those that programs give themselves: 0 to 1073741823."""
    digest = hashlib.sha256(f"eventlog {qualified(log.schema, log.name)}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x3FFFFFFF


def request_block(log: LogTable) -> str:
    """PL/SQL that asks for the lock without waiting; ``:answer`` gets DBMS_LOCK's return code."""
    return f"BEGIN\n    :answer := SYS.DBMS_LOCK.REQUEST({lock_id(log):d}, {_EXCLUSIVE}, 0, FALSE);\nEND;"


def release_block(log: LogTable) -> str:
    """PL/SQL that gives the lock back; ``:answer`` gets DBMS_LOCK's return code."""
    return f"BEGIN\n    :answer := SYS.DBMS_LOCK.RELEASE({lock_id(log):d});\nEND;"


def row_lock(log: LogTable) -> str:
    """The statement that locks the row of the fall-back, which every log has."""
    version_table = qualified(log.schema, log.version_table)
    return f"SELECT version_num FROM {version_table} FOR UPDATE NOWAIT"  # noqa: S608 - a quoted name


def _may_use_dbms_lock(conn: Connection) -> bool:
    known = conn.connection.info.get(_MAY_LOCK)
    if known is not None:
        return bool(known)
    statement = (
        "SELECT COUNT(*) FROM ALL_PROCEDURES"
        " WHERE OWNER = 'SYS' AND OBJECT_NAME = 'DBMS_LOCK' AND PROCEDURE_NAME = 'REQUEST'"
    )
    may = bool(fetch(conn, statement)[0][0])
    conn.connection.info[_MAY_LOCK] = may
    return may


def call(conn: Connection, block: str) -> int:
    """Run a PL/SQL block that gives ``:answer`` a number."""
    driver: Any = conn.connection.driver_connection
    cursor = driver.cursor()
    try:
        answer = cursor.var(int)
        conn.exec_driver_sql(block, {"answer": answer})
        return int(answer.getvalue())
    finally:
        cursor.close()


def _lock_row(beside: Connection, log: LogTable) -> bool:
    try:
        fetch(beside, row_lock(log))
    except DBAPIError as error:
        if error_code(error) == _NO_TABLE:
            raise DatabaseError(
                f"nothing keeps a second publisher off {log}: this user may not execute SYS.DBMS_LOCK, and does not "
                f"see {log.version_table}, whose rows would be locked instead; grant EXECUTE on SYS.DBMS_LOCK"
            ) from error
        if error_code(error) != _BUSY:
            raise
        return False
    return True


# --- the session ------------------------------------------------------------------------------------------------------


def current_user(conn: Connection) -> str:
    """The user that the triggers log as perpetrator: whoever opened the session (spec/triggers.md 7)."""
    return str(fetch(conn, "SELECT SYS_CONTEXT('USERENV', 'SESSION_USER') FROM DUAL")[0][0])


def session_id(conn: Connection) -> str:
    """The number of this session and its audit number: no other session has both at the same time."""
    statement = "SELECT SYS_CONTEXT('USERENV', 'SID'), SYS_CONTEXT('USERENV', 'SESSIONID') FROM DUAL"
    return "-".join(map(str, fetch(conn, statement)[0]))
