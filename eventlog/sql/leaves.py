"""A log whose table is partitioned by record_id: its leaves, and how they are made, cut and removed
(spec/event-log.md 14).

``Dialect.partitioning`` is what a database has of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from eventlog.sql.log_table import LogTable
    from eventlog.sql.open_log import OpenLog

MOST_LEAVES: Final = 8
"""The number of leaves from which on the next ones are wider: a poll and a plan look at each."""
MOST_MOVED: Final = 1000
"""The most rows that are moved while the log is locked."""


class Leaf(NamedTuple):
    """One partition of a log."""

    name: str
    first: int | None
    """The lowest record_id of its range; None = there is no lower bound."""
    end: int | None
    """The record_id after its range; None = there is no upper bound."""


class Partitioning(Protocol):
    """The partitions of logs in a database that has them.

    ``partition``, ``unpartition``, ``cut`` and ``remove`` are one transaction each, which they
    begin and commit: the session must be in none. They need the rights of the log's owner.
    Each takes the log for itself, waits at most 20 ms for it and raises LogInUse if another session
    keeps it. Until the end of the transaction no other session sees a change.
    """

    def leaves(self, log: OpenLog) -> list[Leaf]:
        """Return the leaves of a log in the order of their ranges; empty if it has none of ours."""

    def sizes(self, log: OpenLog) -> dict[str, int]:
        """Return the bytes of each leaf by its name, with its indexes and large values."""

    def is_owner(self, log: OpenLog) -> bool:
        """Return True if this session has the rights of the log's owner."""

    def holders(self, log: OpenLog) -> list[str]:
        """Return the sessions that use the log or a leaf now, in words."""

    def dependents(self, log: OpenLog) -> list[str]:
        """Return what is attached to the log's table, and would stay with the leaf: views, rules,
        publications, policies, and others' triggers and foreign keys.
        """

    def prepare(self, log: OpenLog) -> None:
        """Have the table of a log ready to be a leaf. Other sessions read and write meanwhile, and
        no row that they write can be refused.
        """

    def partition(self, log: OpenLog, width: int) -> list[Leaf]:
        """Make the table of a log, after ``prepare``, the first leaf, with an empty leaf of
        ``width`` numbers and an open one above it (spec/event-log.md 14.2).
        """

    def unpartition(self, log: OpenLog, most_copied: int) -> int:
        """Make the largest leaf the table of the log again, with the rows of all others, and return
        how many rows were copied.

        Raises LogInUse, and DatabaseError if more than ``most_copied`` would have to be.
        """

    def cut(self, log: OpenLog, at: int) -> Leaf:
        """Give the open leaf the upper bound ``at``, with a new open leaf above it, which gets the
        rows from ``at`` on.

        Raises DatabaseError if they are more than ``MOST_MOVED``.
        """

    def remove(
        self, log: OpenLog, leaf: Leaf, stay: Collection[int], check: Callable[[], None]
    ) -> None:
        """Give the range of a leaf to the lowest one, with the rows ``stay``. The leaf is then a
        table for itself, which ``finish`` drops.

        The caller has begun the transaction, in which it has read what may go. ``check`` is called
        when nobody else can write the log any more; if it raises an error, nothing is removed. It
        is the caller that keeps rows N. Raises LogInUse, also while a session has a snapshot by
        which it may still read the leaf.
        """

    def finish(self, log: OpenLog) -> int:
        """Drop the tables of removed leaves. Rows in them that are not S or W, which somebody has
        changed by hand meanwhile, go back into the log first. Return the number of tables.
        """

    def drop(self, log: LogTable) -> list[str]:
        """Return the statements that drop, after the log, what belongs to its leaves."""
