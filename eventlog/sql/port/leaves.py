"""The leaves of a log whose table is partitioned by record_id: how they are created, cut and
removed (spec/event-log.md 14).

``Dialect.partitioning`` is the implementation for a database, None = there is no implementation.
Only PostgreSQL has one. According to the manuals of other databases, their partitions by range
differ as follows. None of this has been tried:

- Unique keys must contain the column of the ranges (MariaDB, MySQL), as the key of a log does.
  There are no foreign keys to or from a partitioned table (MariaDB, MySQL).
- The range of a dropped partition belongs to the next partition, not to the lowest one. On Oracle
  the highest range partition cannot be dropped, and an insert creates an interval partition again.
- Partitions ahead are split from a ``MAXVALUE`` partition by ``REORGANIZE PARTITION`` (MariaDB,
  MySQL), or created by interval partitioning (Oracle).
- ``ALTER TABLE`` commits, so one transaction cannot contain the removal, the moved rows and the
  change of ``<log>_epoch``. On Oracle a global index stays usable with ``UPDATE INDEXES``.
- The time to wait for a lock is at least 1 second per lock on MySQL (``lock_wait_timeout``).
  MariaDB has ``ALTER TABLE ... NOWAIT``, and Oracle ``DDL_LOCK_TIMEOUT = 0``.
- A statement with an older database snapshot may get error 1412 (MariaDB, MySQL) or ORA-08103.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from eventlog.sql.log_table import LogTable
    from eventlog.sql.port.open_log import OpenLog

MAX_LEAVES: Final = 8
"""If a log has at least this number of leaves, new leaves become wider, because each poll and each
query plan visits all leaves.
"""
MAX_MOVED: Final = 1000
"""The maximum number of rows that are moved while the log is locked."""


class Leaf(NamedTuple):
    """One partition of a log."""

    name: str
    first: int | None
    """The lowest record_id of its range; None = there is no lower bound."""
    end: int | None
    """The record_id after its range; None = there is no upper bound."""


class UnrecordedLeaf(NamedTuple):
    """A detached table with the comment of a leaf, whose removal is not recorded: an administrator
    has detached it or restored it from a dump, or an earlier version has removed it.
    """

    name: str
    is_readable: bool
    """True if this session may read it."""


class Partitioning(Protocol):
    """The implementation of partitioned logs in a database that supports them.

    ``partition``, ``unpartition``, ``cut`` and ``remove`` each begin and commit one transaction, so
    the session must not be in a transaction. They need the rights of the log's owner. Each locks
    the log exclusively, waits at most 20 ms for the lock, and raises LogInUse if another session
    has the lock. Other sessions see a change only after its commit.
    """

    def leaves(self, log: OpenLog) -> list[Leaf]:
        """Return the leaves of a log in the order of their ranges; empty if eventlog has not
        partitioned it.
        """

    def sizes(self, log: OpenLog) -> dict[str, int]:
        """Return the size of each leaf in bytes, by its name. Indexes and large values are
        included.
        """

    def is_owner(self, log: OpenLog) -> bool:
        """Return True if this session has the rights of the log's owner."""

    def dependents(self, log: OpenLog) -> list[str]:
        """Return, in words, the objects attached to the log's table that would stay with the leaf:
        views, rules, policies, and triggers and foreign keys that eventlog did not create.
        """

    def publications(self, log: OpenLog) -> list[str]:
        """Return the names of the publications that publish the log's table or a leaf. They include
        publications of all tables and publications of the tables of a schema.
        """

    def prepare(self, log: OpenLog) -> None:
        """Prepare the table of a log to become a leaf. Other sessions can read and write in the
        meantime, and none of their rows is rejected.
        """

    def partition(self, log: OpenLog, width: int) -> list[Leaf]:
        """Make the table of a log the first leaf, after ``prepare``. Create an empty leaf of
        ``width`` numbers and an open leaf above it (spec/event-log.md 14.2).
        """

    def unpartition(self, log: OpenLog, max_copied: int) -> int:
        """Make the largest leaf the table of the log again, with the rows of all other leaves, and
        return the number of copied rows.

        Raises LogInUse, and DatabaseError if more than ``max_copied`` rows would have to be copied.
        """

    def cut(self, log: OpenLog, at: int) -> Leaf:
        """Give the open leaf the upper bound ``at``, and create a new open leaf above it, which
        gets the rows from ``at`` on.

        Raises DatabaseError if more than ``MAX_MOVED`` rows would move.
        """

    def remove(
        self, log: OpenLog, leaf: Leaf, stay: Collection[int], check: Callable[[], None]
    ) -> None:
        """Extend the lowest leaf by the range of this leaf, and move the rows ``stay`` to it. The
        removed leaf becomes a separate table, which an entry of ``<log>_state`` records and
        ``finish`` drops.

        The caller has begun the transaction in which it has determined which rows may be removed,
        and is responsible for keeping the rows N. ``check`` is called when no other session can
        write the log; if it raises an error, nothing is removed. Raises LogInUse, also while a
        session has a database snapshot that may read the leaf.
        """

    def finish(self, log: OpenLog) -> int:
        """Drop the recorded tables of removed leaves and their records. Return the number of
        tables. Rows whose status somebody has meanwhile changed by hand, so that it is neither S
        nor W, are put back into the log first.

        A table that is no longer the recorded table stays, and its record is deleted.
        """

    def unrecorded(self, log: OpenLog) -> list[UnrecordedLeaf]:
        """Return the detached tables that have the comment of a leaf and no record, by name."""

    def finish_unrecorded(self, log: OpenLog, name: str) -> int:
        """Record a table of ``unrecorded``, and drop it as ``finish`` does, in the transaction of
        the session, which is then committed. Return the number of rows that were put back.

        Raises DatabaseError if the log has no leaf for a row that has to be put back, and LogInUse
        if another session uses the table or has changed it.
        """

    def drop(self, log: LogTable) -> list[str]:
        """Return the statements that drop the objects of a log's leaves after the log was
        dropped.
        """
