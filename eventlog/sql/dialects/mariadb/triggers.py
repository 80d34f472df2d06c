"""Triggers on MariaDB: a replaced trigger fires until the new one does (spec/triggers.md 7.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eventlog.sql.dialects.mysql_family.triggers import (
    FamilyTriggers,
    family_renderer,
    script_head,
)
from eventlog.sql.triggers.declared import TableTriggers


class MariaDBTriggers(FamilyTriggers):
    """Triggers that are replaced by CREATE OR REPLACE."""

    title = "MariaDB"
    replaces = True
    script_head = script_head("mariadb")
    render = family_renderer(__package__)

    def not_captured(self, declared: Sequence[TableTriggers]) -> tuple[str, ...]:
        return (
            *super().not_captured(declared),
            "writes to a watched table under LOCK TABLES: the server refuses them with error "
            "1442 once any session has read the log. Lock rows by SELECT ... FOR UPDATE in a "
            "transaction instead",
        )


TRIGGERS: Final = MariaDBTriggers()
