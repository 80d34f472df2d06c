"""Names for SQLAlchemy, which then spells them as the database does."""

from __future__ import annotations

from sqlalchemy.sql import quoted_name

from eventlog.sql.log_table import LogTable


def quoted(name: str) -> quoted_name:
    """Return a name that SQLAlchemy quotes and never folds (spec/triggers.md 9)."""
    return quoted_name(name, quote=True)


def schema_of(log: LogTable) -> quoted_name | None:
    """Return the schema of a log's tables for SQLAlchemy, None = the session's current schema."""
    return None if log.schema is None else quoted(log.schema)
