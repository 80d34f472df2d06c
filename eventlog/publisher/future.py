"""Windows in the order of event_time, of rows that are due (``handle_future_events``, spec/event-log.md 8.1, 8.2)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from eventlog.checks import BadRow, CheckedRow, check_rows
from eventlog.fold import fold
from eventlog.model import LogRow
from eventlog.publisher.context import Context
from eventlog.publisher.flight import ObjectId
from eventlog.publisher.window import UNLIMITED_WINDOW, Taken
from eventlog.sql.windows import DueWindow


class DuePass(NamedTuple):
    """The rest of a pass: rows that were due at ``until``, behind the row ``after`` (event_time, record_id)."""

    until: str
    after: tuple[str | None, int] | None = None


def begin_due_pass(context: Context) -> DuePass:
    """A pass over all rows that are due now by the database's clock."""
    return DuePass(context.dialect.due_until(context.connection, context.log, context.options.event_time_zone))


def take_due_window(
    context: Context, due: DuePass, in_flight: Collection[int], parked: Collection[ObjectId]
) -> tuple[Taken, DuePass | None]:
    """Read a window of a pass and fold it; what is left of the pass, None at its end.

    Groups are cut at the window's end and none is held back. Rows in flight and rows of parked objects are read past:
    they do not use up the window.
    """
    options = context.options
    limit = options.query_limit or UNLIMITED_WINDOW
    rows: list[CheckedRow] = []
    bad: list[BadRow] = []
    loopback: list[int] = []
    origins: dict[int, LogRow] = {}
    rows_read = 0
    after = due.after
    rest: DuePass | None = due
    while rest is not None and len(rows) + len(bad) + len(loopback) < limit:
        window = DueWindow(due.until, after, limit, options.driver_user if options.leave_loopback else None)
        chunk = context.dialect.read_due(context.connection, context.log, window)
        rows_read += len(chunk)
        if context.numbered is not None:
            origins.update((row.record_id, row) for row in chunk)
        free = [row for row in chunk if row.record_id not in in_flight] if in_flight else chunk
        checked = check_rows(free, context.catalog, options.driver_user)
        rows += [row for row in checked.good if (row.object_class, row.key) not in parked]
        bad += checked.bad
        loopback += checked.loopback
        if len(chunk) < limit:
            rest = None
        else:
            after = chunk[-1].event_time, chunk[-1].record_id
            rest = DuePass(due.until, after)
    groups = fold(rows, options.fold_distance, options.fold_span)
    return Taken(groups, bad, loopback, rows_read, None, origins), rest
