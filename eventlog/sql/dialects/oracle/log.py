"""A log on Oracle in a session: its statements and its lock."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.ranges import Ranges
from eventlog.errors import DatabaseError
from eventlog.model import LogRow
from eventlog.sql.dialects.oracle import text
from eventlog.sql.dialects.oracle.session import (
    RIGHTS,
    call,
    chunks,
    error_code,
    fetch,
    may_run,
    numberings,
)
from eventlog.sql.dialects.oracle.text import qualified
from eventlog.sql.dialects.stepwise import StepwiseLog
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.rights import NeededRights, Part, Right, Rights
from eventlog.sql.port.sql_files import statements

if TYPE_CHECKING:
    from eventlog.sql.dialects.oracle import Oracle
    from eventlog.sql.dialects.oracle.database import OracleDatabase

INSTALLED_SQL: Final = statements(__package__, "installed.sql")
_SHORT: Final = 50
"""A range of at most this number of record_ids is read id by id."""
IDENTITY: Final = """SELECT SYS_CONTEXT('USERENV', 'DB_NAME') || '/'
    || SYS_CONTEXT('USERENV', 'CON_NAME') || '/'
    || OBJECT_ID || '/' || TO_CHAR(CREATED, 'YYYY-MM-DD HH24:MI:SS')
FROM ALL_OBJECTS
WHERE OWNER = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA'))
  AND OBJECT_NAME = :deliveries AND OBJECT_TYPE = 'SEQUENCE'"""
_INCARNATION: Final = "SELECT DBID, RESETLOGS_CHANGE# FROM V$DATABASE"
# Return codes of DBMS_LOCK.REQUEST; 1 is a time-out: another session has the lock.
_SUCCESS, _OWNED = 0, 4
_EXCLUSIVE: Final = 6
_LOCK_SESSION: Final = "eventlog_lock_session"
_MAY_LOCK: Final = "eventlog_may_use_dbms_lock"
_BUSY: Final = 54
_NO_TABLE: Final = 942
_NO_EXECUTE: Final = frozenset({904, 942, 1031, 6550, 41900})
"""The errors of a block that uses a package which the user may not execute: usually PLS-00201 in
ORA-06550.
"""


class _Refused(Exception):
    """The user may not execute DBMS_LOCK."""


class OracleLog(StepwiseLog):
    """A log on Oracle."""

    db: OracleDatabase
    dialect: Oracle

    def identity(self) -> str:
        # A standby that takes over has the same identity; an imported dump has a different one.
        rows = fetch(
            self.connection,
            IDENTITY,
            {"owner": self.table.schema, "deliveries": self.table.number_sequence},
        )
        return "/".join(["oracle", *(str(text) for (text,) in rows)])

    def server_parts(self) -> dict[str, str]:
        # A failover, a flashback of the database and an incomplete recovery open it with RESETLOGS.
        parts = {"database": self.identity()}
        if may_run(self.connection, f"{_INCARNATION} WHERE 1 = 0"):
            parts["incarnation"] = "/".join(map(str, fetch(self.connection, _INCARNATION)[0]))
        return parts

    def try_lock(self) -> bool:
        answer = self._request()
        if answer is not None:
            return answer in (_SUCCESS, _OWNED)
        if self.holds_lock():
            return True
        lock_session = self.connection.engine.connect()
        has_it = False
        try:
            self.db.on(lock_session).begin_publishing()
            driver: Any = lock_session.connection.driver_connection
            driver.action = "lock"
            has_it = self._lock_row(lock_session)
        finally:
            if not has_it:
                lock_session.close()
        if has_it:
            self.connection.connection.info[_LOCK_SESSION] = lock_session
        return has_it

    def holds_lock(self) -> bool:
        lock_session = self.connection.connection.info.get(_LOCK_SESSION)
        if lock_session is not None:
            is_healthy = bool(lock_session.connection.driver_connection.is_healthy())
            return is_healthy and self._lock_row(lock_session)
        answer = self._request()
        if answer == _SUCCESS:  # the request itself has taken the lock
            call(self.connection, release_block(self.table))
        return answer == _OWNED

    def unlock(self) -> None:
        lock_session = self.connection.connection.info.pop(_LOCK_SESSION, None)
        if lock_session is not None:
            lock_session.close()
        elif self.connection.connection.info.get(_MAY_LOCK, True):
            with suppress(_Refused):
                _call_lock(self.connection, release_block(self.table))

    def lacking(self, needed: NeededRights) -> list[str]:
        needed = list(needed)
        tables = [one for one in needed if one[0] is not Part.NUMBERS]
        missing = RIGHTS.lacking(self, tables)
        if len(tables) < len(needed) and not may_run(
            self.connection,
            f"SELECT {self._deliveries}.NEXTVAL FROM DUAL WHERE 1 = 0",  # noqa: S608 - quoted names
        ):
            missing.append(f"SELECT on sequence {self.table.number_sequence}")
        return missing

    def grants(self, rights: Rights, user: str) -> list[str]:
        statements = super().grants(rights, user)
        if Right.LOCK in rights.get(Part.LOG, ()):
            # A session that may not use DBMS_LOCK locks the row of the version table.
            version = qualified(self.table.schema, self.table.version_table)
            statements += [
                f"GRANT SELECT ON {version} TO {user}",
                f"GRANT EXECUTE ON SYS.DBMS_LOCK TO {user}",
            ]
        return statements

    def _granted_on(self, part: Part) -> Sequence[str]:
        if part is Part.RECORD_IDS:
            return [numbering.name for numbering in numberings(self)]
        return super()._granted_on(part)

    def read_rows(self, ranges: Ranges) -> list[LogRow]:
        # There may be thousands of short ranges: their ids are read by IN lists.
        rows = super().read_rows(
            [(first, last) for first, last in ranges if last - first >= _SHORT]
        )
        short = [
            record_id
            for first, last in ranges
            if last - first < _SHORT
            for record_id in range(first, last + 1)
        ]
        for ids in chunks(short):
            binds = {f"id{place}": record_id for place, record_id in enumerate(ids)}
            statement = self.statement("read_ids", ids=", ".join(f":{bind}" for bind in binds))
            rows += self.log_rows(statement, binds)
        return sorted(rows, key=itemgetter(0))

    def next_number(self) -> int:
        draw = f"SELECT {self._deliveries}.NEXTVAL FROM DUAL"  # noqa: S608 - quoted names
        return int(self.db.scalar(draw))

    def _lock_row(self, lock_session: Connection) -> bool:
        try:
            fetch(lock_session, row_lock(self.table))
        except DBAPIError as error:
            if error_code(error) == _NO_TABLE:
                raise DatabaseError(
                    f"cannot lock {self} against a second publisher: this user may not execute "
                    f"SYS.DBMS_LOCK, and cannot see {self.table.version_table}, whose rows would "
                    "be locked instead; grant EXECUTE on SYS.DBMS_LOCK"
                ) from error
            if error_code(error) != _BUSY:
                raise
            return False
        return True

    @property
    def _deliveries(self) -> str:
        return qualified(self.table.schema, self.table.number_sequence)

    def is_half_made(self) -> bool:
        # The log has its sequence of record_ids, too.
        binds = {"owner": self.table.schema, "name": self.table.own_name(text.NUMBERS)}
        return bool(fetch(self.connection, INSTALLED_SQL["sequence"], binds))

    def _request(self) -> int | None:
        """Request the lock of a log, and return DBMS_LOCK's answer. Return None if this user may
        not execute DBMS_LOCK. Only the request itself shows whether the user has the right, since
        the dictionary does not show which rights come from roles. A refusal is remembered for the
        session.
        """
        if not self.connection.connection.info.get(_MAY_LOCK, True):
            return None
        try:
            return _call_lock(self.connection, request_block(self.table))
        except _Refused:
            self.connection.connection.info[_MAY_LOCK] = False
            return None


def lock_id(log: LogTable) -> int:
    """Return the number of a log's user lock, in the range for applications: 0 to 1073741823."""
    digest = hashlib.sha256(f"eventlog {qualified(log.schema, log.name)}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x3FFFFFFF


def request_block(log: LogTable) -> str:
    """Return PL/SQL that requests the lock without waiting; ``:answer`` gets DBMS_LOCK's return
    code.
    """
    return (
        f"BEGIN\n    :answer := SYS.DBMS_LOCK.REQUEST({lock_id(log):d}, {_EXCLUSIVE}, 0, "
        "FALSE);\nEND;"
    )


def release_block(log: LogTable) -> str:
    """Return PL/SQL that releases the lock; ``:answer`` gets DBMS_LOCK's return code."""
    return f"BEGIN\n    :answer := SYS.DBMS_LOCK.RELEASE({lock_id(log):d});\nEND;"


def row_lock(log: LogTable) -> str:
    """Return the statement that locks the version row of a log, for users without DBMS_LOCK."""
    version_table = qualified(log.schema, log.version_table)
    return f"SELECT version_num FROM {version_table} FOR UPDATE NOWAIT"  # noqa: S608 - a quoted name


def _call_lock(conn: Connection, block: str) -> int:
    try:
        return call(conn, block)
    except DBAPIError as error:
        if error_code(error) not in _NO_EXECUTE:
            raise
        raise _Refused from error
