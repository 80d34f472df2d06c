"""What ``doctor`` asks of SQLite beside doctor.sql: the texts of indexes and triggers, the rights on the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.sql.dialects.sqlite.session import file_of
from eventlog.sql.dialects.sqlite.triggers import SQLiteTriggers
from eventlog.sql.dialects.stepwise import trigger_answers
from eventlog.sql.doctor.facts import AnswerFunction, IndexColumn
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


def _has_log(conn: Connection, log: str) -> bool:
    return log in {quote_identifier(row.name) for row in conn.exec_driver_sql(_SQL["tables"])}


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
    **trigger_answers(SQLiteTriggers(), _has_log),
    "rights_to_apply": _rights_to_apply,
}
