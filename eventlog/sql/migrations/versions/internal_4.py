"""The row with which a resync has logged a refused object again (spec/event-log.md 11)."""

from __future__ import annotations

from typing import Final

from eventlog.sql.migrations import add_columns, drop_columns
from eventlog.sql.port.rights import Part

revision = "internal_4"
down_revision = "internal_3"
branch_labels = None
depends_on = None

_COLUMNS: Final = {
    "superseded_by": (
        "integer",
        "The row with which a resync has logged the object again; NULL: none",
    ),
}


def upgrade() -> None:
    add_columns(Part.ERROR, _COLUMNS)


def downgrade() -> None:
    drop_columns(Part.ERROR, _COLUMNS)
