"""The trigger that wakes a sleeping publisher fires before the statement, in a log that somebody else made.

As 0005: only with ``--companions-only``, since 0006 does it for a log of ours, and only with the rights of the log's
owner. Without it the trigger of 0005 goes on to wake, at a higher price for the writer (spec/triggers.md 8).
"""

from __future__ import annotations

from eventlog.sql.migrations import wake_companions

revision = "0007"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    wake_companions()


def downgrade() -> None:
    """Leave the trigger as it is: what 0005 makes and what this makes wake by the same rule."""
