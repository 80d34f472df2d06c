"""The table of what `eventlog triggers apply` has captured (spec/event-log.md 10, spec/triggers.md
9.1).

Grants: who runs `triggers apply` needs SELECT, INSERT, UPDATE, DELETE on ``<log>_captured``. The
publisher's user, and who runs `triggers plan`, `status` or `doctor`, needs SELECT.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from eventlog.sql.log_table import quoted, schema_of
from eventlog.sql.migrations import execute, log_and_dialect

revision = "companions_2"
down_revision = "companions_1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    types, now = dialect.column_types, sa.text(dialect.utc_now)
    # There is no primary key: a table with one would be a class of its schema.
    op.create_table(
        quoted(log.captured_table),
        sa.Column("schema_name", types["name"], comment="Schema of the table; NULL: there is none"),
        sa.Column("table_name", types["name"], nullable=False, comment="Name of the table"),
        sa.Column(
            "captured",
            types["time"],
            nullable=False,
            server_default=now,
            comment="When this was last written, in UTC",
        ),
        sa.Column(
            "content",
            types["text"],
            nullable=False,
            comment="JSON: the table as it was when its triggers were applied",
        ),
        schema=schema_of(log),
        comment=f"Tables that {log.name} captures: one line each, written by triggers apply",
    )
    execute(dialect.after_captured(log))


def downgrade() -> None:
    log, _ = log_and_dialect()
    op.drop_table(quoted(log.captured_table), schema=schema_of(log))
