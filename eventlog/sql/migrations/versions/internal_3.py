"""What each consumer sends, and where to, as of its last start (spec/event-log.md 13.4)."""

from __future__ import annotations

from typing import Final

from eventlog.sql.migrations import add_columns, drop_columns
from eventlog.sql.port.rights import Part

revision = "internal_3"
down_revision = "internal_2"
branch_labels = None
depends_on = None

_COLUMNS: Final = {
    "sink": (
        "text",
        "Sink that it had when it last started, without secrets; NULL: none was recorded",
    ),
    "classes": ("text", "JSON: the classes that it sent when it last started; NULL: all"),
}


def upgrade() -> None:
    add_columns(Part.CONSUMER, _COLUMNS)


def downgrade() -> None:
    drop_columns(Part.CONSUMER, _COLUMNS)
