"""Waiting for the transactions that had written a log by a certain time (spec/event-log.md 11).

What a command decides by the rows that it sees may be wrong by those that are still to commit. So
it writes first, then waits for whoever had written before, and looks again.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from eventlog.core.clock import monotonic, sleep
from eventlog.errors import DatabaseError
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable

PATIENCE: Final = 60.0
"""The number of seconds that a command waits for the transactions that had written the log before.
"""


def writers_to_await(conn: Connection, dialect: Dialect, log: LogTable) -> frozenset[str] | None:
    """Return the open transactions that have written the log, None if they cannot be awaited: the
    database does not tell them, or this transaction does not see what they commit.
    """
    writers = dialect.open_writers(conn, log)
    if writers is None:
        return None
    sees_what_commits = (
        "concurrent_writers" not in dialect.capabilities
        or conn.get_isolation_level() == "READ COMMITTED"
    )
    return writers if sees_what_commits else None


def wait_for(
    conn: Connection, dialect: Dialect, log: LogTable, writers: frozenset[str], why: str
) -> None:
    """Wait until none of these transactions is open.

    ``why`` says what may come of them, and what to do once they have ended. Raises DatabaseError
    after ``PATIENCE`` seconds.
    """
    until, rest = monotonic() + PATIENCE, 0.01
    while writers := writers & (dialect.open_writers(conn, log) or frozenset()):
        if monotonic() > until:
            raise DatabaseError(
                f"a transaction that has written the log {log} is open for more than {PATIENCE:g} "
                f"s, and {why}"
            )
        sleep(rest)
        rest = min(1.0, rest * 2)
