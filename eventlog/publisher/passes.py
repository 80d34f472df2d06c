"""A pass over the queue, window by window, and how long it may go on (spec/event-log.md 8.1, 8.2).

A window that begins at the head of the queue is one snapshot: of an object it has all rows or the first ones. A later
window begins behind what its pass has read, to spare the walk over what was just marked. Between the two a transaction
may commit whose rows lie on both sides: the later ones would overtake the earlier ones. So a pass ends when any
transaction ends that had written the log when it began, and at the highest row N that there was; what began after that
lies behind it.
"""

from __future__ import annotations

from typing import NamedTuple

from eventlog.publisher.context import Context
from eventlog.sql.log_rows import tail

Writers = frozenset[str] | None
"""Transactions of others that had written the log and were open; None = not known, and nobody may go on."""


class Pass(NamedTuple):
    """The rest of a pass: record_ids ``first`` to ``last``; ``writers`` when it began."""

    first: int
    last: int
    writers: Writers

    @property
    def is_begun(self) -> bool:
        """Whether a window of it has been read."""
        return self.first > 1


def begin_pass(context: Context, is_long: bool) -> Pass | None:
    """A pass from the head of the queue on; None if the queue is empty. ``is_long``: one window will not do."""
    last = tail(context.connection, context.log)
    # After the tail: whoever has a record_id below it is among the writers, or can be seen by now.
    return None if last is None else Pass(1, last, open_writers(context) if is_long else None)


def open_writers(context: Context) -> Writers:
    """Who has written the log and is open."""
    return context.dialect.open_writers(context.connection, context.log)


def may_go_on(context: Context, writers: Writers) -> bool:
    """Whether nobody of ``writers`` has ended: nothing of theirs was to be seen in what has been read until now."""
    return writers is not None and (not writers or context.dialect.are_open(context.connection, writers))
