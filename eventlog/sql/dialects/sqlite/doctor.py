"""What ``doctor`` asks of SQLite beside doctor.sql: the texts of indexes and triggers, the rights on the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.sql.dialects.sqlite.session import file_of
from eventlog.sql.dialects.sqlite.triggers import SQLiteTriggers
from eventlog.sql.doctor.facts import Answer, AnswerFunction, IndexColumn, LogTrigger
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import statements
from eventlog.sql.text import quote_identifier

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
    for trigger in SQLiteTriggers().installed(conn, log):
        yield LogTrigger(trigger.table, trigger.trigger, True, "")


def _orphans(conn: Connection) -> Answer:
    """Triggers of ours whose log is gone."""
    tables = {quote_identifier(row.name) for row in conn.exec_driver_sql(_SQL["tables"])}
    for trigger in SQLiteTriggers().all_triggers(conn):
        if trigger.log is not None and trigger.log not in tables:
            yield trigger.table[1], trigger.name, trigger.log, f"DROP TRIGGER {quote_identifier(trigger.name)}"


def _without_triggers(conn: Connection, tables: Sequence[str], **_: Any) -> list[tuple[str]]:
    """The tables that have no trigger of any kind."""
    with_triggers = {trigger.table[1] for trigger in SQLiteTriggers().all_triggers(conn)}
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
