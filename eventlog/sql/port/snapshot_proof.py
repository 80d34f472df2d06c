"""The proof that a database snapshot shows the relations that a transaction has read, in the state
in which they were when the snapshot was taken (spec/event-log.md 12.3).

Rows are read as a snapshot shows them, but a table is found in the present catalogue. A table that
was rewritten, truncated or replaced after the snapshot was taken therefore appears empty, without
an error. A lock would prevent that, but it would also block the application; so the reader runs the
proof afterwards, as the last statement of the transaction in which it has read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from eventlog.errors import SnapshotOutdated, first_of

_NAMED: Final = 3
"""The maximum number of relations that a message names."""

FOREIGN: Final = "foreign"
"""The ``why`` of a foreign table, whose rows never belong to the database snapshot."""

_IN_WORDS: Final = {
    "created": "was created, or took the name of another table",
    "renamed": "was renamed or moved to another schema",
    "rewritten": "was rewritten or truncated",
    "children": "has lost a partition or a table that inherited from it",
    "columns": "was altered, attached as a partition, or began to inherit",
    "definition": "has another definition",
    FOREIGN: "is a foreign table, which has no database snapshot",
}


@dataclass(frozen=True, slots=True)
class UnprovenRelation:
    """A table or view that a database snapshot does not show, or may not show, as it was."""

    schema: str
    name: str
    """The present name."""
    why: str
    """created, renamed, rewritten, children, columns, definition or foreign."""

    def __str__(self) -> str:
        """Return the relation and the reason, in words."""
        return f"{self.schema}.{self.name} {_IN_WORDS[self.why]}"


@dataclass(frozen=True, slots=True)
class SnapshotProof:
    """The result of a proof: ``changed`` are the relations that the transaction has read and that
    the database snapshot does not show as they were. ``foreign`` are the foreign tables that it has
    read: nothing can be proven for foreign tables.
    """

    changed: tuple[UnprovenRelation, ...] = ()
    foreign: tuple[UnprovenRelation, ...] = ()

    def refuse_changed(self) -> None:
        """Raise SnapshotOutdated if a relation has changed."""
        if self.changed:
            named = first_of([str(one) for one in self.changed], _NAMED, "table")
            raise SnapshotOutdated(
                f"{named} after the database snapshot was taken, so the snapshot does not show all "
                "of its rows. Wait until the tables are no longer altered, and run the command "
                "again"
            )


PROVEN: Final = SnapshotProof()
"""The proof of a database whose snapshots always show the tables as they were."""


def proof_of(rows: Iterable[tuple[str, str, str]]) -> SnapshotProof:
    """Return the proof from rows of schema, name and ``why``."""
    found = [UnprovenRelation(*row) for row in rows]
    return SnapshotProof(
        tuple(one for one in found if one.why != FOREIGN),
        tuple(one for one in found if one.why == FOREIGN),
    )
