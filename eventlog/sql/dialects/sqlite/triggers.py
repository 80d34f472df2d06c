"""Triggers on SQLite: what is there, and what is SQLite's own in planning and applying (spec/triggers.md 7.5, 9, 10).

SQLite keeps the text of a trigger as it was written, and rewrites it when a table or column is renamed: so whole texts
are compared. A transaction has the whole file for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from eventlog.sql.dialects.sqlite.compile import columns_of, trigger_texts
from eventlog.sql.log_table import LogTable
from eventlog.sql.text import quote_identifier
from eventlog.sql.triggers.base import MarkedTriggers
from eventlog.sql.triggers.compare import Compiled, Installed, StoredTrigger
from eventlog.sql.triggers.declared import TableTriggers
from eventlog.sql.triggers.plan import one_line


class SQLiteTriggers(MarkedTriggers):
    """Triggers without functions, users and schemas."""

    script_head = ("-- sqlite3 -bail FILE < this script", "BEGIN IMMEDIATE;")
    texts = staticmethod(trigger_texts)

    def all_triggers(self, conn: Connection) -> list[StoredTrigger]:
        rows = conn.exec_driver_sql(
            "SELECT tbl_name, name, sql FROM main.sqlite_schema WHERE type = 'trigger' ORDER BY tbl_name, name"
        )
        return [StoredTrigger("", name, ("", table), sql) for table, name, sql in rows]

    def log_in_marker(self, log: LogTable) -> str:
        return one_line(quote_identifier(log.name))

    def folded(self, name: str) -> str:
        return name.lower()

    def columns_of(self, trigger: StoredTrigger) -> Mapping[str, str]:
        return columns_of(trigger.text)

    def warnings(self, log: LogTable, compiled: Sequence[Compiled], installed: Installed) -> Iterable[str]:
        for one in compiled:
            for trigger in installed.triggers.get(one.place, ()):
                if trigger.digest is None and "AFTER" in trigger.text.upper():
                    yield (
                        f"trigger {trigger.name} of {trigger.table[1]} may fire before ours, since SQLite does not "
                        "promise an order: what it writes is then logged before the change it answers"
                    )

    def not_captured(self, declared: Sequence[TableTriggers]) -> tuple[str, ...]:
        return (
            "rows that INSERT OR REPLACE and UPDATE OR REPLACE take away, unless the application's connection has set "
            "PRAGMA recursive_triggers = ON",
            "who made a change: SQLite has no users",
            "writes of a connection that has switched triggers off (SQLITE_DBCONFIG_ENABLE_TRIGGER)",
        )
