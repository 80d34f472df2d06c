"""The trigger of the log that wakes a publisher which sleeps (spec/triggers.md 8).

Grants: none. The function runs with its owner's rights, whoever writes the log; the publisher needs no right to listen.
"""

from __future__ import annotations

from eventlog.sql.migrations import execute, log_and_dialect

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    execute(dialect.wake.create(log) if dialect.wake is not None else ())


def downgrade() -> None:
    log, dialect = log_and_dialect()
    execute(dialect.wake.drop(log) if dialect.wake is not None else ())
