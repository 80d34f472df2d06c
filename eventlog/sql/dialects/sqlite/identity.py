"""What tells one log from any other (spec/event-log.md 10)."""

from __future__ import annotations

from sqlalchemy import Connection

from eventlog.sql.dialects.sqlite.session import file_of
from eventlog.sql.log_table import LogTable


def identity(conn: Connection, log: LogTable) -> str:
    """The file and the log in it: a log that is made anew in the same place has the same."""
    return f"sqlite/{file_of(conn)}/{log.name}"
