"""Why a consumer sends nothing until it is resumed (spec/event-log.md 8.8)."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import context, op

from eventlog.sql.log_table import LogTable
from eventlog.sql.migrations import log_and_dialect
from eventlog.sql.port.quoted_names import quoted, schema_of

revision = "internal_5"
down_revision = "internal_4"
branch_labels = None
depends_on = None

_COLUMN: Final = "paused"


def upgrade() -> None:
    log, dialect = log_and_dialect()
    if context.is_offline_mode() or not _has_column(log):  # an interrupted migration is run again
        column = sa.Column(
            _COLUMN,
            dialect.column_types["text"],
            comment="JSON: why it sends nothing, who paused it and since when; NULL: not paused",
        )
        op.add_column(quoted(log.consumer_table), column, schema=schema_of(log))


def downgrade() -> None:
    log, _ = log_and_dialect()
    if context.is_offline_mode() or _has_column(log):
        op.drop_column(quoted(log.consumer_table), _COLUMN, schema=schema_of(log))


def _has_column(log: LogTable) -> bool:
    """Return True if ``<log>_consumer`` exists and has the column."""
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table(quoted(log.consumer_table), schema_of(log)):
        return False
    found = inspector.get_columns(quoted(log.consumer_table), schema_of(log))
    return any(column["name"].lower() == _COLUMN for column in found)
