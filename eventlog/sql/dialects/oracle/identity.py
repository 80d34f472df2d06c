"""What tells one log from any other, and from itself made anew (spec/event-log.md 10)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from eventlog.sql.dialects.oracle.session import fetch
from eventlog.sql.log_table import LogTable

IDENTITY: Final = """SELECT SYS_CONTEXT('USERENV', 'DB_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') || '/'
    || OBJECT_ID || '/' || TO_CHAR(CREATED, 'YYYY-MM-DD HH24:MI:SS')
FROM ALL_OBJECTS
WHERE OWNER = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA'))
  AND OBJECT_NAME = :flights AND OBJECT_TYPE = 'SEQUENCE'"""


def identity(conn: Connection, log: LogTable) -> str:
    """The database, and the sequence of flight numbers by its number and the time that it was made.

    A standby that takes over has the same; a dump that is imported has not.
    """
    found = fetch(conn, IDENTITY, {"owner": log.schema, "flights": log.flight_sequence})
    return "/".join(["oracle", *(str(text) for (text,) in found)])
