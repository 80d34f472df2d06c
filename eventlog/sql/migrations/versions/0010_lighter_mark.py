"""A mark costs less: the guard of status asks for S before its regular expression (spec/triggers.md 7.1).

On PostgreSQL the queue's index of revision 0006 is built anew, if its predicate is the one of then. The log is locked
meanwhile, for as long as one index is built: where somebody else holds it for more than five seconds nothing is
changed. It can be left out: the log works as before.

Grants: none.
"""

from __future__ import annotations

import sqlalchemy as sa

from eventlog.errors import DatabaseError
from eventlog.sql.migrations import execute, log_and_dialect

revision = "0010"
down_revision = "0006"
branch_labels = None
depends_on = None

_LOCKED = "55P03"


def upgrade() -> None:
    log, dialect = log_and_dialect()
    try:
        execute(dialect.renew_guard(log))
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCKED:
            raise
        raise DatabaseError(
            f"the log {log} was locked for too long by another transaction: nothing is changed; run `eventlog db "
            "upgrade` again when fewer write it, or leave revision 0010 out by `eventlog db upgrade companions@head`"
        ) from error


def downgrade() -> None:
    """Leave the index as it is: the guard of 0006 and this one refuse the same."""
