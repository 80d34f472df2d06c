"""Triggers on MySQL: they are dropped and created again while their table is locked
(spec/triggers.md 7.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection

from eventlog.sql.dialects.mysql_family.text import quote_identifier
from eventlog.sql.dialects.mysql_family.triggers import (
    NO_CASCADES,
    FamilyTriggers,
    family_renderer,
    script_head,
)
from eventlog.sql.port.sql_files import fetch, run_as_it_stands
from eventlog.sql.triggers import TriggerPlan
from eventlog.sql.triggers.declared import TableName

_END: Final = ("UNLOCK TABLES", "SET SESSION sql_mode = @eventlog_sql_mode")


class MySQLTriggers(FamilyTriggers):
    """Triggers that are replaced by DROP and CREATE under LOCK TABLES."""

    only_by_row = "MySQL"
    replace_keeps_children = True
    script_head = script_head("mysql")
    render = family_renderer(__package__)

    def silence(self, conn: Connection) -> str:
        # MySQL 9.7 can fire triggers for rows that foreign keys change; each session may switch
        # this on.
        asked = "SHOW VARIABLES LIKE 'enable_cascade_triggers'"
        fires = " OR @@SESSION.enable_cascade_triggers" if fetch(conn, asked, {}) else ""
        return NO_CASCADES + fires

    def at_once(self, table: TableName, statements: Sequence[str]) -> Sequence[str]:
        return (
            # A trigger keeps the sql_mode in which it was created.
            "SET @eventlog_sql_mode = @@SESSION.sql_mode, SESSION sql_mode = ''",
            f"LOCK TABLES {quote_identifier(table[1])} WRITE",
            *statements,
            *_END,
        )

    @contextmanager
    def applying(self, conn: Connection, plan: TriggerPlan, lock_timeout: float) -> Iterator[None]:
        with super().applying(conn, plan, lock_timeout):
            try:
                yield
            except BaseException:
                if not conn.invalidated:
                    for statement in _END:
                        run_as_it_stands(conn, statement)
                raise


TRIGGERS: Final = MySQLTriggers()
