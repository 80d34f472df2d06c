"""A log that costs its writers less: no CHECK is read and compiled for each statement (spec/triggers.md 7, 8).

On PostgreSQL the queue's index guards status in place of its CHECK, event_type has none, and the trigger that wakes the
publisher fires before the statement. The log is locked meanwhile, for as long as one index is built: where somebody
else holds it for more than five seconds nothing is changed. It can be left out: the log works as before.

Grants: none.
"""

from __future__ import annotations

import sqlalchemy as sa

from eventlog.errors import DatabaseError
from eventlog.sql.migrations import execute, log_and_dialect

revision = "0006"
down_revision = "0003"
branch_labels = None
depends_on = None

_LOCKED = "55P03"


def upgrade() -> None:
    log, dialect = log_and_dialect()
    try:
        execute(dialect.guard_by_index(log))
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCKED:
            raise
        raise DatabaseError(
            f"the log {log} was locked for too long by another transaction: nothing is changed; run `eventlog db "
            "upgrade` again when fewer write it, or leave revision 0006 out by `eventlog db upgrade companions@head`"
        ) from error


def downgrade() -> None:
    log, dialect = log_and_dialect()
    execute(dialect.guard_by_checks(log))
