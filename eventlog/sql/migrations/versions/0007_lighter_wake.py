"""The trigger that wakes a sleeping publisher fires before the statement, in a log that somebody else made.

As 0005: only with ``--companions-only``, since 0006 does it for a log of ours, and only with the rights of the log's
owner. Without it the trigger of 0005 goes on to wake, at a higher price for the writer (spec/triggers.md 8).
"""

from __future__ import annotations

from alembic import context, op

from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.migrations import execute

revision = "0007"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    log: LogTable = context.config.attributes["log"]
    dialect: Dialect = context.config.attributes["dialect"]
    if dialect.wake is None or not context.config.attributes["companions_only"]:
        return
    if not context.is_offline_mode() and not dialect.wake.may_create(op.get_bind(), log):
        return
    execute(dialect.wake.create(log))


def downgrade() -> None:
    """Nothing: what 0005 made and what this made wake by the same rule."""
