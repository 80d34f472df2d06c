"""Names for SQLAlchemy's statements as the database keeps them: always quoted (spec/triggers.md 9)."""

from __future__ import annotations

from sqlalchemy.sql import quoted_name

from eventlog.sql.log_table import LogTable


def quoted(name: str) -> quoted_name:
    """A name that SQLAlchemy writes in quotes and never folds."""
    return quoted_name(name, quote=True)


def schema_of(log: LogTable) -> quoted_name | None:
    """The schema of a log's tables, None = the session's current one."""
    return None if log.schema is None else quoted(log.schema)
