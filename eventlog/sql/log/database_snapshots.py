"""Read from database snapshots that are proven to show tables as they were (spec/event-log.md
12.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from eventlog.core.clock import monotonic, sleep
from eventlog.sql.port.open_log import OpenLog

T = TypeVar("T")

REST: Final = 0.5
"""The seconds to wait before a part is read again, if its database snapshot was not proven."""
_SECONDS: Final = 600
"""The time-out of one statement, in seconds."""


@contextmanager
def database_snapshot(log: OpenLog, seconds: int = _SECONDS) -> Iterator[None]:
    """Run the statements of a block on one database snapshot, in a read-only transaction.
    ``seconds`` is the time-out of one statement.

    A transaction that is open before the block is ended first.
    """
    log.commit()
    log.db.begin_reading(seconds)
    try:
        yield
    except BaseException:
        log.connection.rollback()
        raise
    log.commit()


@dataclass(slots=True)
class DatabaseSnapshots:
    """The parts that are read from a log and its tables. Each part is read on one database
    snapshot, which the last statement of the part's transaction proves (spec/event-log.md 12.3).
    """

    log: OpenLog
    patience: float
    """The seconds that may still be spent on reading parts again, if their database snapshots are
    not proven.
    """
    seconds: int = _SECONDS
    """The time-out of one statement, in seconds."""
    foreign: dict[str, None] = field(default_factory=dict)
    """The foreign tables that were read, in words. Nothing can be proven for a foreign table."""

    def read(self, read: Callable[[], T]) -> T:
        """Return what the function ``read`` reads on one proven database snapshot. Without
        patience, ``read`` is called at most twice.

        Raises SnapshotOutdated.
        """
        is_last = False
        while True:
            begun = monotonic()
            with database_snapshot(self.log, self.seconds):
                found = read()
                proof = self.log.db.prove_snapshot()
            self.foreign |= dict.fromkeys(map(str, proof.foreign))
            if not proof.changed:
                return found
            if is_last:
                proof.refuse_changed()
            sleep(min(REST, max(self.patience, 0.0)))
            self.patience -= monotonic() - begun
            is_last = self.patience <= 0
