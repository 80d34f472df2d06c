"""Windows in the order of event_time, of rows that are due (``handle_future_events``, spec/event-log.md 8.1, 8.2)."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from typing import NamedTuple

from eventlog.core.catalog import ObjectId
from eventlog.publisher.context import Context
from eventlog.publisher.passes import Writers, open_writers
from eventlog.publisher.window import UNLIMITED_WINDOW, Reading, Taken
from eventlog.sql.windows import DueWindow


class DuePass(NamedTuple):
    """The rest of a pass: rows that were due at ``until``, behind the row ``after`` (event_time, record_id).

    ``writers`` as of ``Pass``.
    """

    until: str
    writers: Writers
    after: tuple[str | None, int] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether a window of it has been read."""
        return self.after is not None


def begin_due_pass(context: Context, is_long: bool) -> DuePass:
    """A pass over all rows that are due now by the database's clock. ``is_long`` as of ``begin_pass``."""
    until = context.dialect.due_until(context.connection, context.log, context.options.event_time_zone)
    return DuePass(until, open_writers(context) if is_long else None)


def take_due_window(
    context: Context, due: DuePass, in_flight: Collection[int], parked: Collection[ObjectId]
) -> tuple[Taken, DuePass | None]:
    """Read a window of a pass, of one snapshot, and fold it; what is left of the pass, None at its end.

    Groups are cut at the window's end and none is held back. Rows in flight and rows of parked objects are read past:
    they do not use up the window.
    """
    options = context.options
    limit = options.query_limit or UNLIMITED_WINDOW
    reading = Reading(context, in_flight, parked)
    rest: DuePass | None = None
    window = DueWindow(due.until, due.after, None, options.driver_user if options.leave_loopback else None)
    with closing(context.dialect.due_chunks(context.connection, context.log, window, limit)) as chunks:
        for chunk in chunks:
            reading.add(reading.kept(chunk))
            if len(chunk) == limit and reading.taken >= limit:
                rest = due._replace(after=(chunk[-1].event_time, chunk[-1].record_id))
                break
    return reading.give(reading.fold()), rest
