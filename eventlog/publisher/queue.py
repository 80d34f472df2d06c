"""What is read next of the queue: a scan of it, window by window, and how long that is valid
(spec/event-log.md 8.1, 8.2, where a scan is called a pass).

A window that begins at the head of the queue is one snapshot: of an object it has all rows or the first ones. A later
window begins behind what its scan has read, to spare the walk over what was just marked. Between the two a transaction
may commit whose rows lie on both sides: the later ones would overtake the earlier ones. So a scan ends when any
transaction ends that had written the log when it began, and at the highest row N that there was; what began after that
lies behind it.

With ``handle_future_events`` the order is that of event_time, and only rows that are due are read.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from typing import NamedTuple

from eventlog.core.catalog import ObjectId
from eventlog.publisher.context import Context
from eventlog.publisher.window import UNLIMITED_WINDOW, WindowReader, WindowResult
from eventlog.sql.log_rows import tail
from eventlog.sql.windows import DueWindow

Writers = frozenset[str] | None
"""Transactions of others that had written the log and were open; None = not known, and nobody may go on."""


class QueueScan(NamedTuple):
    """The rest of a scan: record_ids ``first`` to ``last``; ``writers`` when it began."""

    first: int
    last: int
    writers: Writers

    @property
    def is_begun(self) -> bool:
        """Whether a window of it has been read."""
        return self.first > 1


def begin_scan(context: Context, is_long: bool) -> QueueScan | None:
    """A scan from the head of the queue on; None if the queue is empty. ``is_long``: one window will not do."""
    last = tail(context.connection, context.log)
    # After the tail: whoever has a record_id below it is among the writers, or can be seen by now.
    return None if last is None else QueueScan(1, last, open_writers(context) if is_long else None)


def open_writers(context: Context) -> Writers:
    """Who has written the log and is open."""
    return context.dialect.open_writers(context.connection, context.log)


def is_still_valid(context: Context, writers: Writers) -> bool:
    """Whether nobody of ``writers`` has ended: nothing of theirs was to be seen in what has been read until now."""
    return writers is not None and (not writers or context.dialect.are_open(context.connection, writers))


# --- in the order of event_time ---------------------------------------------------------------------------------------


class DueScan(NamedTuple):
    """The rest of a scan: rows that were due at ``until``, behind the row ``after`` (event_time, record_id).

    ``writers`` as of ``QueueScan``.
    """

    until: str
    writers: Writers
    after: tuple[str | None, int] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether a window of it has been read."""
        return self.after is not None


def begin_due_scan(context: Context, is_long: bool) -> DueScan:
    """A scan of all rows that are due now by the database's clock. ``is_long`` as of ``begin_scan``."""
    until = context.dialect.due_until(context.connection, context.log, context.options.event_time_zone)
    return DueScan(until, open_writers(context) if is_long else None)


def take_due_window(
    context: Context, due: DueScan, in_flight: Collection[int], parked: Collection[ObjectId]
) -> tuple[WindowResult, DueScan | None]:
    """Read a window of a scan, of one snapshot, and fold it; what is left of the scan, None at its end.

    Groups are cut at the window's end and none is held back. Rows in flight and rows of parked objects are read past:
    they do not use up the window.
    """
    options = context.options
    limit = options.query_limit or UNLIMITED_WINDOW
    reader = WindowReader(context, in_flight, parked)
    rest: DueScan | None = None
    window = DueWindow(due.until, due.after, None, options.driver_user if options.leave_loopback else None)
    with closing(context.dialect.due_chunks(context.connection, context.log, window, limit)) as chunks:
        for chunk in chunks:
            reader.add(reader.kept(chunk))
            if len(chunk) == limit and reader.taken >= limit:
                rest = due._replace(after=(chunk[-1].event_time, chunk[-1].record_id))
                break
    return reader.result(reader.fold()), rest
