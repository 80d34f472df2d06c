"""The trigger that wakes a sleeping publisher, for a log that somebody else made (spec/triggers.md 8).

Only with ``--companions-only``, since 0003 makes it for a log of ours; and only if this session has the rights of the
log's owner: without them the publisher looks for rows every ``polling_interval`` seconds, and says so. Printed SQL has
it always, for the owner to run.
"""

from __future__ import annotations

from alembic import context, op

from eventlog.sql.migrations import execute, log_and_dialect, wake_companions

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    wake_companions()


def downgrade() -> None:
    log, dialect = log_and_dialect()
    if dialect.wake is not None and (context.is_offline_mode() or dialect.wake.may_create(op.get_bind(), log)):
        execute(dialect.wake.drop(log))
