"""The positions of resyncs that are not finished (spec/event-log.md 11).

Grants: who runs ``eventlog resync`` needs SELECT, INSERT, UPDATE, DELETE on it, and INSERT on the log.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from eventlog.sql.log_table import quoted, schema_of
from eventlog.sql.migrations import execute, log_and_dialect

revision = "0004"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    types = dialect.column_types
    index = log.own_name("idx_{}_3")
    # No primary key: a table with one would be a class of its schema.
    op.create_table(
        quoted(log.resync_table),
        sa.Column("digest", types["digest"], nullable=False, comment="SHA-256 of what is written again"),
        sa.Column("class_name", types["name"], nullable=False, comment="Class whose objects are written again"),
        sa.Column("selection", types["text"], nullable=False, comment="Which of them, for people"),
        sa.Column(
            "started",
            types["time"],
            nullable=False,
            server_default=sa.text(dialect.utc_now),
            comment="When it was started, in UTC",
        ),
        sa.Column(
            "position", types["text"], comment="Last key that is written, or last line of the file; NULL: none yet"
        ),
        sa.Column("rows_written", types["integer"], nullable=False, comment="Rows written so far"),
        schema=schema_of(log),
        comment=f"Resyncs into {log.name} that are not finished: one line each, gone with its last batch",
    )
    op.create_index(quoted(index), quoted(log.resync_table), ["digest"], unique=True, schema=schema_of(log))
    execute(dialect.after_resync(log, index))


def downgrade() -> None:
    log, _ = log_and_dialect()
    op.drop_table(quoted(log.resync_table), schema=schema_of(log))
