"""What each consumer sends, and where to, as of its last start (spec/event-log.md 13.4)."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import context, op

from eventlog.sql.log_table import LogTable
from eventlog.sql.migrations import log_and_dialect
from eventlog.sql.port.quoted_names import quoted, schema_of

revision = "internal_3"
down_revision = "internal_2"
branch_labels = None
depends_on = None

_COLUMNS: Final = {
    "sink": "Sink that it had when it last started, without secrets; NULL: none was recorded",
    "classes": "JSON: the classes that it sent when it last started; NULL: all",
}


def upgrade() -> None:
    log, dialect = log_and_dialect()
    present = set() if context.is_offline_mode() else _columns(log)
    for name, comment in _COLUMNS.items():
        if name not in present:  # an interrupted migration is run again
            column = sa.Column(name, dialect.column_types["text"], comment=comment)
            op.add_column(quoted(log.consumer_table), column, schema=schema_of(log))


def downgrade() -> None:
    log, _ = log_and_dialect()
    present = set(_COLUMNS) if context.is_offline_mode() else _columns(log)
    for name in _COLUMNS:
        if name in present:
            op.drop_column(quoted(log.consumer_table), name, schema=schema_of(log))


def _columns(log: LogTable) -> set[str]:
    """Return the names of the columns of ``<log>_consumer``; none if the table is gone, as after an
    interrupted downgrade.
    """
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table(quoted(log.consumer_table), schema_of(log)):
        return set()
    found = inspector.get_columns(quoted(log.consumer_table), schema_of(log))
    return {column["name"] for column in found}
