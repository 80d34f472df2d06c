"""What is said of a publisher's work in the log (spec/event-log.md 11), and of loopback rows (8.3)."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from eventlog.errors import first_of, number_of
from eventlog.publisher.context import Context, Counters, PublisherOptions
from eventlog.sql.dialect import Dialect
from eventlog.sql.doctor.facts import ask
from eventlog.sql.windows import Queue

_log = logging.getLogger("eventlog.publisher")


REPORT_INTERVAL: Final = 60.0
"""Seconds between log lines that say what was done."""

"""The counters of remarks, for people."""


class ReportTimer:
    """When a log line on what was done is due: each ``REPORT_INTERVAL`` at most, if there is something to tell."""

    def __init__(self, counters: Counters) -> None:
        self._reported, self._at = replace(counters), time.monotonic()

    def due(self, counters: Counters) -> Counters | None:
        """The counters as the last line showed them, if it is time for another one; else None."""
        now = time.monotonic()
        if now < self._at + REPORT_INTERVAL or counters == self._reported or not _log.isEnabledFor(logging.INFO):
            return None
        before, self._reported, self._at = self._reported, replace(counters), now
        return before


def stream_summary(counters: Counters) -> str:
    """What was done of a source that is no log, for people."""
    return (
        f"{number_of(counters.rows_read, 'change')} read, {number_of(counters.events_sent, 'event')} in "
        f"{number_of(counters.documents_sent, 'document')} sent, {number_of(counters.rows_bad, 'change')} not sent, "
        f"{number_of(counters.answers_error, 'event')} refused"
    )


def summary(before: Counters, now: Counters, queue: Queue, parked: int) -> str:
    """One line for people: what was done between two looks at the counters, and what waits. ``parked``: objects."""
    bad, refused = now.rows_bad - before.rows_bad, now.answers_error - before.answers_error
    documents = number_of(now.documents_sent - before.documents_sent, "document")
    oldest = "" if queue.oldest_seconds is None else f", oldest {queue.oldest_seconds:.1f} s"
    parts = [
        f"{number_of(now.rows_published - before.rows_published, 'row')} published",
        f"{number_of(now.events_sent - before.events_sent, 'event')} in {documents}",
        f"{number_of(bad, 'row')} bad" if bad else "",
        *remarks(now.old_unreadable - before.old_unreadable, now.truncated - before.truncated),
        f"{number_of(refused, 'answer')} error" if refused else "",
        f"queue: {number_of(queue.rows, 'row')}{oldest}",
        f"{number_of(parked, 'object')} parked" if parked else "",
    ]
    return "; ".join(filter(None, parts))


def remarks(old_unreadable: int, truncated: int) -> list[str]:
    """What is told of good rows, if there is something to tell."""
    told = [f"{number_of(old_unreadable, 'old value')} unreadable"] if old_unreadable else []
    return [*told, f"{number_of(truncated, 'change')} below a second not sent"] if truncated else told


# --- loopback ---------------------------------------------------------------------------------------------------------

LOOPBACK_INTERVAL: Final = 60.0
"""Seconds between two warnings of one publisher."""

LOOPBACK_WAYS_OUT: Final = (
    "give the publisher a database user of its own",
    "or allow_loopback = true in [publisher], to publish its changes too",
    'or loopback_rows = "consume" in [publisher], if that is meant',
)
"""What ends the warnings: the first two publish what comes."""


def loopback_of_tables(user: str, tables: Sequence[str]) -> str:
    """The warning that the publisher's user owns captured tables."""
    owned = first_of(tables, 3)
    return f"{user!r}, the publisher's database user, owns {owned}: what it changes there is loopback, not published"


def owned_tables(
    conn: Connection, dialect: Dialect, options: PublisherOptions, schema: str | None, tables: Sequence[str]
) -> Sequence[str]:
    """Those of the tables that the publisher's user owns; none if loopback is off, or the settings speak of it."""
    if not options.driver_user or schema is None or options.loopback_is_meant:
        return ()
    return ask(conn, dialect, "owned", str, schema=schema, tables=list(tables), user=options.driver_user)


def warn_at_start(context: Context) -> None:
    """Warn where the publisher's user owns captured tables. Ends the transaction. Raises SQLAlchemy's errors."""
    connection, options = context.connection, context.options
    tables = owned_tables(connection, context.dialect, options, context.catalog.schema, context.captured)
    connection.commit()
    if tables:
        _log.warning("%s: %s", loopback_of_tables(options.driver_user or "", tables), ", ".join(LOOPBACK_WAYS_OUT))


@dataclass(slots=True)
class LoopbackWarning:
    """How many loopback rows of a publisher were warned of, and when."""

    warned: int = 0
    at: float = float("-inf")

    def write(self, context: Context, *, at_end: bool = False) -> None:
        """Warn of the rows since the last warning: at most each ``LOOPBACK_INTERVAL``, and at the end."""
        rows = context.counters.rows_loopback - self.warned
        now = time.monotonic()
        if rows > 0 and (at_end or now >= self.at + LOOPBACK_INTERVAL):
            self.warned, self.at = context.counters.rows_loopback, now
            warn_of_loopback(context, rows)


def warn_of_loopback(context: Context, rows: int, done: str = "marked") -> None:
    """Warn of so many rows that are marked S without being published, unless the settings speak of them."""
    if rows > 0 and not context.options.loopback_is_meant:
        _log.warning(
            "%s %s S without being published, since %r made the changes, the publisher's own database user (loopback): "
            "%s; `eventlog requeue --loopback` brings rows back",
            number_of(rows, "row"),
            done,
            context.options.driver_user or "",
            ", ".join(LOOPBACK_WAYS_OUT),
        )
