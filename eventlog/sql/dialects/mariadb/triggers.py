"""Triggers on MariaDB: a replaced trigger fires until the new one does (spec/triggers.md 7.4)."""

from __future__ import annotations

from eventlog.sql.dialects.mysql_family.triggers import (
    FamilyTriggers,
    family_renderer,
    script_head,
)


class MariaDBTriggers(FamilyTriggers):
    """Triggers by CREATE OR REPLACE."""

    title = "MariaDB"
    replaces = True
    script_head = script_head("mariadb")
    render = family_renderer(__package__)
