"""The rows that a purge removes: rows that neither a flight nor a consumer still needs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from eventlog.publisher.cycle import recorded_ids
from eventlog.publisher.held_rows import read_recorded
from eventlog.sql.consumers import done_by_consumers
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.rows import Purged, purge_rows


def purge_batch(
    conn: Connection,
    dialect: Dialect,
    log: LogTable,
    after: int,
    size: int,
    older_than: datetime,
    *,
    dry: bool,
) -> Purged | None:
    """Remove a batch as ``purge_rows`` does, but keep rows that are in flight or that a consumer
    has not done.

    Both are read in the removing transaction, under the lock that keeps new consumers away.
    """
    flights, _ = read_recorded(conn, log)
    done = done_by_consumers(conn, dialect, log)
    return purge_rows(conn, log, after, size, older_than, recorded_ids(flights), done, dry=dry)
