"""Check whether event_time of a log is UTC regardless of the option ``event_time_zone``
(spec/event-log.md 9.2).
"""

from __future__ import annotations

import re

import sqlalchemy as sa

from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.quoted_names import quoted, schema_of
from eventlog.sql.triggers import triggers_of


def are_utc(db: OpenDatabase, log: LogTable) -> bool:
    """Return True if eventlog made the log, or if triggers of eventlog write to it.

    The default of event_time shows who made the log: every role can read it, but few can read the
    revisions of the log.
    """
    return _has_our_default(db, log) or triggers_of(db.dialect).write_to(db.log(log))


def _has_our_default(db: OpenDatabase, log: LogTable) -> bool:
    columns = sa.inspect(db.connection).get_columns(quoted(log.name), schema_of(log))
    defaults = (
        column["default"]
        for column in columns
        if db.dialect.spelled(column["name"]) == log.column("event_time")
    )
    return any(
        default is not None and _bare(default) == _bare(db.dialect.utc_now) for default in defaults
    )


def _bare(expression: str) -> str:
    """Return an expression without the parts that a database may add when it shows it."""
    return re.sub(r"::\w+|[\s()]", "", expression).lower()
