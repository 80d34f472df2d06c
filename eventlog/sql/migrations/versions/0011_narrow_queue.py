"""The queue's index holds the rows N alone where an index can have no condition (spec/triggers.md 7).

On Oracle ``CASE status WHEN 'N' THEN record_id END`` in place of (status, record_id): the index does not grow with the
log, and a mark takes an entry out in place of moving it. It is built while others write, where the edition can.
Statements of the publisher look for this expression, so until the revision is applied they read the whole log.

Grants: none.
"""

from __future__ import annotations

from eventlog.sql.migrations import execute, log_and_dialect

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    execute(dialect.narrow_queue(log))


def downgrade() -> None:
    log, dialect = log_and_dialect()
    execute(dialect.widen_queue(log))
