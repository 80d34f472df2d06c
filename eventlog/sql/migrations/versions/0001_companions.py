"""The companion tables of a log (spec/event-log.md 10).

Grants: the publisher's user needs INSERT on ``<log>_error``; SELECT, INSERT, UPDATE, DELETE on ``<log>_inflight``;
USAGE on the sequence ``<log>_flight``. Nobody else needs any right on them; people who look into failures, SELECT on
both tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from eventlog.sql.log_table import quoted, schema_of
from eventlog.sql.migrations import execute, log_and_dialect

revision = "0001"
down_revision = None
branch_labels = ("companions",)
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    types, now = dialect.column_types, sa.text(dialect.utc_now)
    op.create_table(
        quoted(log.error_table),
        sa.Column("record_id", types["integer"], nullable=False, comment="The row of the log that failed"),
        sa.Column("error_time", types["time"], nullable=False, server_default=now, comment="When it failed, in UTC"),
        sa.Column("code", types["code"], nullable=False, comment="Why: a code of the row checks, or receiver"),
        sa.Column("message", types["text"], nullable=False, comment="Why, for people"),
        schema=schema_of(log),
        comment=f"Rows of {log.name} that failed: one line a failure, never changed afterwards",
    )
    index = quoted(log.own_name("idx_{}_2"))
    op.create_index(index, quoted(log.error_table), ["record_id"], schema=schema_of(log))
    op.create_table(
        quoted(log.inflight_table),
        sa.Column(
            "flight_no",
            types["integer"],
            primary_key=True,
            autoincrement=False,
            comment="Number of the flight, never reused",
        ),
        sa.Column("started", types["time"], nullable=False, server_default=now, comment="When it started, in UTC"),
        sa.Column(
            "composition",
            types["text"],
            nullable=False,
            comment="JSON: its envelopes, their events and the rows of each",
        ),
        schema=schema_of(log),
        comment=f"What the publisher of {log.name} has sent and not yet marked: one line a flight",
    )
    execute(dialect.after_companions(log))


def downgrade() -> None:
    log, dialect = log_and_dialect()
    execute(dialect.drop_after_companions(log))
    op.drop_table(quoted(log.inflight_table), schema=schema_of(log))
    op.drop_table(quoted(log.error_table), schema=schema_of(log))
