"""Triggers on MariaDB: a replaced trigger fires until the new one does (spec/triggers.md 7.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eventlog.sql.dialects.mysql_family.cascades import CascadeTriggers
from eventlog.sql.dialects.mysql_family.triggers import (
    FamilyTriggers,
    family_renderer,
    row_key,
    script_head,
)
from eventlog.sql.triggers.declared import ClassTriggers, TableTriggers


class MariaDBTriggers(FamilyTriggers):
    """Triggers that are replaced by CREATE OR REPLACE."""

    only_by_row = "MariaDB"
    replaces = True
    fires_for_refused = True
    script_head = script_head("mariadb")
    render = family_renderer(__package__)

    def not_captured(self, declared: Sequence[TableTriggers]) -> tuple[str, ...]:
        without_key = dict.fromkeys(
            one.table.name
            for one in declared
            if isinstance(one, ClassTriggers)
            and not isinstance(one, CascadeTriggers)
            and not row_key(one.table)
        )
        refused = (
            "the server's refusal of an UPDATE IGNORE of a row of "
            f"{', '.join(without_key)}, which has neither a primary key nor a unique index: the "
            "refused change is logged",
        )
        return (
            *super().not_captured(declared),
            *(refused if without_key else ()),
            "writes to a watched table under LOCK TABLES: the server refuses them with error "
            "1442 once any session has read the log. Lock rows by SELECT ... FOR UPDATE in a "
            "transaction instead",
        )


TRIGGERS: Final = MariaDBTriggers()
