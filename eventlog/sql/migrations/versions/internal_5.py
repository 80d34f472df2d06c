"""Why a consumer sends nothing until it is resumed (spec/event-log.md 8.8)."""

from __future__ import annotations

from typing import Final

from eventlog.sql.migrations import add_columns, drop_columns
from eventlog.sql.port.rights import Part

revision = "internal_5"
down_revision = "internal_4"
branch_labels = None
depends_on = None

_COLUMNS: Final = {
    "paused": (
        "text",
        "JSON: why it sends nothing, who paused it and since when; NULL: not paused",
    ),
}


def upgrade() -> None:
    add_columns(Part.CONSUMER, _COLUMNS)


def downgrade() -> None:
    drop_columns(Part.CONSUMER, _COLUMNS)
