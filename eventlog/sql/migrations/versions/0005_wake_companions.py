"""The trigger that wakes a sleeping publisher, for a log that somebody else made (spec/triggers.md 8).

Only with ``--companions-only``, since 0003 makes it for a log of ours; and only if this session has the rights of the
log's owner: without them the publisher looks for rows every ``polling_interval`` seconds, and says so. Printed SQL has
it always, for the owner to run.
"""

from __future__ import annotations

from alembic import context, op

from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.migrations import execute

revision = "0005"
down_revision = "0004"
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
    log: LogTable = context.config.attributes["log"]
    dialect: Dialect = context.config.attributes["dialect"]
    if dialect.wake is None or not (context.is_offline_mode() or dialect.wake.may_create(op.get_bind(), log)):
        return
    execute(dialect.wake.drop(log))
