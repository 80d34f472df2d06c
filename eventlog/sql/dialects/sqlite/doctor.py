"""What ``doctor`` asks of SQLite beside doctor.sql, and what a plan of triggers tells people (spec/triggers.md 7.5)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.sql.dialects.sqlite.installed import Installed, all_triggers, read_installed
from eventlog.sql.dialects.sqlite.session import file_of
from eventlog.sql.dialects.sqlite.text import quote_identifier
from eventlog.sql.doctor.facts import AnswerFunction, IndexColumn, LogTrigger, Orphan
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import statements
from eventlog.sql.triggers.declared import TableTriggers, logged_secrets, undecided_views

_SQL: Final = statements(__package__, "doctor.sql")


def _indexes(conn: Connection, log: LogTable) -> Iterator[IndexColumn]:
    """The indexes of the log; its INTEGER PRIMARY KEY, which is the table itself, counts as one."""
    keys = [row.name for row in conn.exec_driver_sql("SELECT name FROM pragma_table_info(?) WHERE pk", (log.name,))]
    if len(keys) == 1:
        yield IndexColumn("primary key", True, keys[0], None)
    for name, column, sql in conn.exec_driver_sql(_SQL["index_columns"], {"log_name": log.name}):
        predicate = re.search(r"\bWHERE\b(.*)$", sql or "", re.DOTALL | re.IGNORECASE)
        yield IndexColumn(name, True, column, predicate[1].strip() if predicate else None)


def _installed_triggers(conn: Connection, log: LogTable) -> Iterator[LogTrigger]:
    """The triggers that write the log; SQLite cannot disable one."""
    for trigger in read_installed(conn, log).ours:
        yield LogTrigger(trigger.table, trigger.name, True, "")


def _orphans(conn: Connection) -> Iterator[Orphan]:
    """Triggers of ours whose log is gone."""
    tables = {quote_identifier(row.name) for row in conn.exec_driver_sql(_SQL["tables"])}
    for trigger in all_triggers(conn):
        log = "" if trigger.marker is None else trigger.marker.partition(" log ")[2]
        if trigger.marker is not None and log not in tables:
            yield Orphan(trigger.table, trigger.name, log, f"DROP TRIGGER {quote_identifier(trigger.name)}")


def _without_triggers(conn: Connection, tables: Sequence[str], **_: Any) -> list[tuple[str]]:
    """Those of the tables that have no trigger at all."""
    with_triggers = {trigger.table for trigger in all_triggers(conn)}
    return [(table,) for table in tables if table not in with_triggers]


def _rights_to_apply(conn: Connection, **_: Any) -> Iterator[tuple[str]]:
    """What this process lacks to apply triggers, in words."""
    file = file_of(conn)
    if file is not None and not os.access(file, os.W_OK):
        yield (f"write access to {str(file)!r}",)


def _grants(conn: Connection, **_: Any) -> Iterator[tuple[str]]:
    """What lets this process publish: the right to write the file and its directory."""
    file = file_of(conn)
    if file is not None:
        yield (f"chmod u+rw {file} && chmod u+rwx {file.parent}",)


ANSWERS: Final[Mapping[str, AnswerFunction]] = {
    "grants": _grants,
    "indexes": _indexes,
    "installed_triggers": _installed_triggers,
    "orphans": _orphans,
    "without_triggers": _without_triggers,
    "rights_to_apply": _rights_to_apply,
}


# --- what people should know of declared triggers (spec/triggers.md 1, 7) ---------------------------------------------


def warnings(declared: Sequence[TableTriggers], installed: Installed) -> list[str]:
    """Sentences on what is declared."""
    sentences: list[str] = []
    for triggers in declared:
        sentences += logged_secrets(triggers)
        sentences += undecided_views(triggers, declared)
        sentences += _order(triggers, installed)
    return list(dict.fromkeys(sentences))


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
