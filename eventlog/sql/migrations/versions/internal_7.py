"""The table whose rows are logged at the commit (spec/triggers.md 7.1), on PostgreSQL.

If another program made the log, this needs the rights of the log's owner. Without the table a child
row is logged before its owner, in the order of the statements.
"""

from __future__ import annotations

from alembic import context, op

from eventlog.sql.migrations import execute, log_and_dialect

revision = "internal_7"
down_revision = "internal_6"
branch_labels = None
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    is_foreign = context.config.attributes["existing_log"] and not context.is_offline_mode()
    if dialect.wake is None or (
        is_foreign and not dialect.wake.may_create(dialect.open(op.get_bind()).log(log))
    ):
        return
    execute(dialect.create_deferred(log))
    execute(dialect.deny_others(log, [log.deferred_table]))


def downgrade() -> None:
    log, dialect = log_and_dialect()
    execute(dialect.drop_deferred(log))
