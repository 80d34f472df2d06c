"""What people should know of declared triggers: warnings, and what no trigger sees (spec/triggers.md 1, 7.5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventlog.sql.dialects.sqlite.installed import Installed
from eventlog.sql.triggers.declared import TableTriggers, secret_names, undecided_views


def warnings(declared: Sequence[TableTriggers], installed: Installed) -> list[str]:
    """Sentences on what is declared."""
    found: list[str] = []
    for triggers in declared:
        for column in secret_names(triggers):
            where = f"{triggers.table.name}.{column}"
            found.append(f"{where} looks like a secret and is logged in clear: exclude it if it is not needed")
        found += undecided_views(triggers, declared)
        found += _order(triggers, installed)
    return list(dict.fromkeys(found))


def _order(triggers: TableTriggers, installed: Installed) -> Iterable[str]:
    for trigger in installed.others:
        if trigger.table == triggers.table.name and trigger.digest is None and "AFTER" in trigger.sql.upper():
            yield (
                f"trigger {trigger.name} of {trigger.table} may fire before ours, since SQLite does not promise an "
                "order: what it writes is then logged before the change it answers"
            )


def not_captured(declared: Sequence[TableTriggers]) -> tuple[str, ...]:
    """Sentences on what the declared triggers do not see."""
    if not declared:
        return ()
    return (
        "rows that INSERT OR REPLACE and UPDATE OR REPLACE take away, unless the application's connection has set "
        "PRAGMA recursive_triggers = ON",
        "who made a change: SQLite has no users",
        "writes of a connection that has switched triggers off (SQLITE_DBCONFIG_ENABLE_TRIGGER)",
    )
