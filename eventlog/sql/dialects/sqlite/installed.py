"""The triggers that a database has: ours, known by the line in their text, and those of others beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection

from eventlog.errors import LogTableError
from eventlog.sql.dialects.sqlite.compile import MARKER, marker
from eventlog.sql.log_table import LogTable


class StoredTrigger(NamedTuple):
    """A trigger as it is stored. ``marker``: whose it is; None if it is none of ours."""

    table: str
    name: str
    sql: str
    marker: str | None
    digest: str | None


@dataclass(frozen=True, slots=True)
class Installed:
    """All triggers of a database. ``ours``: those that write the log."""

    ours: Sequence[StoredTrigger]
    others: Sequence[StoredTrigger]

    def on(self, table: str) -> list[StoredTrigger]:
        """Ours on a table."""
        return [trigger for trigger in self.ours if trigger.table == table]


def all_triggers(conn: Connection) -> list[StoredTrigger]:
    """The triggers of the file, in the order of tables and names."""
    rows = conn.exec_driver_sql(
        "SELECT tbl_name, name, sql FROM main.sqlite_schema WHERE type = 'trigger' ORDER BY tbl_name, name"
    )
    stored = []
    for table, name, sql in rows:
        found = MARKER.search(sql)
        stored.append(StoredTrigger(table, name, sql, found[1] if found else None, found[2] if found else None))
    return stored


def read_installed(conn: Connection, log: LogTable) -> Installed:
    """The triggers of a log and those of others. Raises LogTableError if the log is not there."""
    there = conn.exec_driver_sql(
        "SELECT 1 FROM main.sqlite_schema WHERE type IN ('table', 'view') AND name = ?", (log.name,)
    )
    if there.first() is None:
        raise LogTableError(f"the log {log} is missing: run `eventlog db upgrade` first")
    ours: list[StoredTrigger] = []
    others: list[StoredTrigger] = []
    for trigger in all_triggers(conn):
        own = trigger.digest is not None and trigger.marker == marker(log, trigger.digest)
        (ours if own else others).append(trigger)
    return Installed(ours, others)
