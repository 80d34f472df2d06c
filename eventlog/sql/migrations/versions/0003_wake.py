"""The trigger of the log that wakes a publisher which sleeps (spec/triggers.md 8).

Grants: none. The function runs with its owner's rights, whoever writes the log; the publisher needs no right to listen.
"""

from __future__ import annotations

from alembic import context

from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.migrations import execute

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    log: LogTable = context.config.attributes["log"]
    dialect: Dialect = context.config.attributes["dialect"]
    execute(dialect.wake.create(log) if dialect.wake is not None else ())


def downgrade() -> None:
    log: LogTable = context.config.attributes["log"]
    dialect: Dialect = context.config.attributes["dialect"]
    execute(dialect.wake.drop(log) if dialect.wake is not None else ())
