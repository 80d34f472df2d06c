"""The masks that each reader has used (spec/event-log.md 15.3).

The masks of a reader from before this migration are unknown: NULL in the row of a consumer, and an
entry of kind ``masks`` without masks for the publisher.
"""

from __future__ import annotations

from typing import Final

from eventlog.sql.migrations import (
    add_columns,
    drop_columns,
    execute,
    is_older,
    log_and_dialect,
)
from eventlog.sql.port.rights import Part

revision = "internal_6"
down_revision = "internal_5"
branch_labels = None
depends_on = None

_COLUMNS: Final = {
    "masks": ("text", "JSON: the masks that it has used; NULL: unknown"),
}


def upgrade() -> None:
    if is_older():
        _delete_entries()  # an interrupted migration is run again
        entry = "(entry_no, kind, content) VALUES (0, 'masks', 'null')"
        execute([f"INSERT INTO {_inflight()} {entry}"])
    add_columns(Part.CONSUMER, _COLUMNS)


def downgrade() -> None:
    drop_columns(Part.CONSUMER, _COLUMNS)
    _delete_entries()


def _delete_entries() -> None:
    execute([f"DELETE FROM {_inflight()} WHERE kind = 'masks'"])  # noqa: S608 - a quoted name


def _inflight() -> str:
    log, dialect = log_and_dialect()
    return dialect.qualified(log.schema, log.inflight_table)
