"""The context that the functions of the publisher work with, its options and counters.

The module also makes the log lines about a publisher's work (spec/event-log.md 11), including the
warnings about loopback rows (spec/event-log.md 8.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from datetime import time as day_time
from itertools import islice
from threading import Lock
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from eventlog.changes.publishing import EventWriter
from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.catalog.masks import MaskedColumns
from eventlog.core.clock import monotonic
from eventlog.core.rows.checks import Remark
from eventlog.core.rows.events import CurrentRow, EventOptions, exists_for_reader
from eventlog.core.values import Kind
from eventlog.errors import EventlogError, first_of, number_of
from eventlog.model import Level
from eventlog.publisher.context.observer import SILENT, Measured, Observer
from eventlog.publisher.context.used_ids import Published
from eventlog.publisher.ledger.ledger import Ledger
from eventlog.sql.port.database import LockHolder
from eventlog.sql.port.driver_errors import as_database_errors
from eventlog.sql.port.filtered import read_for_reader
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.questions import ask

_log = logging.getLogger("eventlog.publisher")
_COUNTING: Final = Lock()
UNLIMITED_WINDOW: Final = 10_000
"""The maximum number of rows of a window with ``query_limit = 0``. The division into windows does
not change the result, and memory stays bounded.
"""


class Retention(NamedTuple):
    """How long rows are kept, and how large the log may be, as ``[database]`` sets it."""

    keep_days: int | None = None
    keep_bytes: int | None = None


NO_RETENTION: Final = Retention()


@dataclass(frozen=True, slots=True)
class PublisherOptions:
    """The options of a publisher. Counts are of log rows or events, times in seconds."""

    batch_size: int = 128
    query_limit: int = 10000
    delivery_rows: int = 10000
    delivery_bytes: int = 16 * 2**20
    mark_interval: float = 1.0
    fold_distance: int = 1000
    fold_span: int = 10000
    driver_user: str | None = None
    """The perpetrator whose rows are loopback, None = no rows are loopback (``allow_loopback``)."""
    leave_loopback: bool = False
    """True if loopback rows stay N instead of being marked S."""
    delete_loopback: bool = False
    """True if ``delete_from_log`` deletes loopback rows, too."""
    loopback_is_meant: bool = False
    """True if the settings determine what happens to loopback rows, so that no warning
    is needed.
    """
    delete_from_log: bool = False
    park: bool = True
    """True if an answer *retry*, or a failure that the document may have caused, parks one object
    instead of stopping the cycle (``on_retry``).
    """
    max_parked: int = 1000
    isolate_after: int = 5
    """The number of consecutive failures, without an answer to any document, after which a document
    is sent in halves.
    """
    max_attempts: int = 0
    """The most attempts to send an event alone while the receiver fails for it; 0 = no limit."""
    retry_initial: float = 1.0
    retry_max: float = 60.0
    polling_interval: float = 10.0
    concurrency: int = 1
    time_of_day: tuple[day_time, ...] = ()
    """The times of day at which to publish; empty = publish at ``polling_interval``."""
    notify: bool = True
    heartbeat_interval: float = 0.0
    """The interval of heartbeats, 0 = none."""
    post_poll_statements: tuple[str, ...] = ()
    handle_future_events: bool = False
    event_time_zone: str = "utc"
    classes: frozenset[str] | None = None
    """The names of the wanted classes, None = all. Rows of other classes are recorded as done and
    are not sent.
    """
    events: EventOptions = EventOptions()
    retention: Retention = NO_RETENTION
    dead_letters: bool = False
    """True if each event that becomes E has a letter for a second sink (spec/event-log.md 8.7)."""
    needs_nonces: bool = False
    """True if the sink drops repetitions, so that the entry of a delivery needs a nonce
    (spec/event-log.md 8.4).
    """
    letters_need_nonces: bool = False
    """True if the second sink drops repetitions."""

    @property
    def window_rows(self) -> int:
        """The maximum number of rows of a window, or of unanswered events of a followed source."""
        return self.query_limit or UNLIMITED_WINDOW

    @property
    def skipped_user(self) -> str | None:
        """The perpetrator whose rows are not even read; None = all rows are read."""
        return self.driver_user if self.leave_loopback else None


# --- counters, and the log lines about them -------------------------------------------------------


_MAX_REFUSED: Final = 100_000
"""The maximum number of rows of status E and F that a process remembers, so that it recognizes
these rows when they are queued again.
"""


@dataclass(slots=True)
class Counters:
    """The counts since the start of the process, which are never reset."""

    rows_read: int = 0
    """Rows taken from the queue, each once, without rows that an earlier process has recorded."""
    rows_success: int = 0
    """Rows of events with the final answer success. Three counters of other answers follow."""
    rows_warning: int = 0
    rows_error: int = 0
    rows_fatal: int = 0
    rows_requeued: int = 0
    """Rows that became E or F in this process, requeued and done since."""
    rows_dropped: int = 0
    rows_gone: int = 0
    rows_noop: int = 0
    rows_loopback: int = 0
    rows_invalid: int = 0
    rows_missing: int = 0
    events_sent: int = 0
    """Answers to events. An event that is sent again counts again."""
    documents_sent: int = 0
    """Answered documents and halves of documents, without heartbeats."""
    answers_success: int = 0
    answers_warning: int = 0
    answers_error: int = 0
    answers_retry: int = 0
    answers_fatal: int = 0
    heartbeats_sent: int = 0
    letters_written: int = 0
    """Dead letters that were recorded. The next two count answered letters."""
    letters_sent: int = 0
    letters_refused: int = 0
    sv_conflicts: int = 0
    old_unreadable: int = 0
    truncated: int = 0
    warned: set[str] = field(default_factory=set, compare=False)
    """The columns with a warning about lost fractions."""
    refused: dict[int, None] = field(default_factory=dict, compare=False)
    """The last rows that became E or F. If they are read again, they count as queued again."""
    missing: set[int] = field(default_factory=set, compare=False)
    """The rows in flight that are known to be deleted."""

    @property
    def rows_published(self) -> int:
        """The number of rows that the receiver has accepted with success or warning."""
        return self.rows_success + self.rows_warning

    @property
    def events_answered(self) -> int:
        """The number of events with a final answer: an event that is sent again is counted once."""
        accepted = self.answers_success + self.answers_warning
        return accepted + self.answers_error + self.answers_fatal

    def count_rows(self, level: Level, number: int) -> None:
        """Count rows of events with this final answer."""
        name = f"rows_{level.name.lower()}"
        setattr(self, name, getattr(self, name) + number)

    def count_requeued(self, record_ids: Collection[int]) -> None:
        """Count the rows that are done again and that were refused earlier in this process."""
        for record_id in self.refused.keys() & record_ids:
            del self.refused[record_id]
            self.rows_requeued += 1

    def note_refused(self, record_ids: Iterable[int]) -> None:
        """Remember rows that become E or F. If there are too many, the oldest rows are
        forgotten.
        """
        self.refused.update(dict.fromkeys(record_ids))
        for record_id in list(islice(self.refused, max(0, len(self.refused) - _MAX_REFUSED))):
            del self.refused[record_id]

    def note_missing(self, record_ids: Iterable[int]) -> list[int]:
        """Remember recorded rows that were deleted. Return the rows whose deletion was not known
        before, in ascending order.
        """
        new = sorted(set(record_ids) - self.missing)
        self.missing.update(new)
        return new

    def remark(self, remark: Remark) -> None:
        """Count a remark on a row; warn about lost fractions once per column."""
        setattr(self, remark.counter, getattr(self, remark.counter) + 1)
        column = f"{remark.attribute.table}.{remark.attribute.column.name}"
        if remark.counter == "truncated" and column not in self.warned:
            self.warned.add(column)
            _log.warning("%s: %s", column, remark_in_words(remark))

    def count_left_out(self, reason: str) -> None:
        """Count what the format has left out of an event, such as ``old_unreadable table.column``.

        Several threads that make documents may call it.
        """
        counter, _, _ = reason.partition(" ")
        if counter == "old_unreadable":
            with _COUNTING:
                self.old_unreadable += 1

    def count_answers(self, level: Level, number: int) -> None:
        """Count events that were answered with this level; a negative number corrects an earlier
        count.
        """
        name = f"answers_{level.name.lower()}"
        setattr(self, name, getattr(self, name) + number)


def remark_in_words(remark: Remark) -> str:
    """Return a remark on a row as a sentence."""
    if remark.counter == "old_unreadable" and remark.attribute.multi_valued:
        return (
            f"old_value cannot be converted ({remark.reason}): it was never sent, so the event "
            f"does not remove it from {remark.attribute.name!r}"
        )
    if remark.counter == "old_unreadable":
        return (
            f"old_value cannot be converted ({remark.reason}): the event removes all values of "
            f"{remark.attribute.name!r} before it adds the new one"
        )
    way_out = (
        'set time_syntax = "canonical" or "java" in [format.xds] to send fractions of timestamps'
    )
    if remark.attribute.column.type.kind is Kind.TIME:
        way_out = "no setting of time_syntax writes the fraction of a time of day"
    return (
        f"an update changed nothing but the fraction of a second ({remark.reason}), which is not "
        f"sent: {way_out}"
    )


REPORT_INTERVAL: Final = 60.0
"""Seconds between log lines about the work done, and between warnings of loopback rows."""


class Reports:
    """The log lines about a publisher's work: each line at most every ``REPORT_INTERVAL``, and only
    if something has changed.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._reported, self._reported_at = replace(counters), monotonic()
        self._loopback, self._warned_at = counters.rows_loopback, float("-inf")

    def due(self) -> Counters | None:
        """Return the counters of the last line if it is time for another line, otherwise None."""
        now, counters = monotonic(), self._counters
        is_early = now < self._reported_at + REPORT_INTERVAL
        if is_early or counters == self._reported or not _log.isEnabledFor(logging.INFO):
            return None
        before, self._reported, self._reported_at = self._reported, replace(counters), now
        return before

    def warn_of_loopback(self, context: Context, *, at_end: bool = False) -> None:
        """Warn about the loopback rows since the last warning, if it is time or ``at_end``."""
        rows, now = self._counters.rows_loopback - self._loopback, monotonic()
        if rows > 0 and (at_end or now >= self._warned_at + REPORT_INTERVAL):
            self._loopback, self._warned_at = self._counters.rows_loopback, now
            warn_of_loopback(context, rows)


def stream_summary(counters: Counters) -> str:
    """Return a summary, for people, of the work on a source that is not a log."""
    return (
        f"{number_of(counters.rows_read, 'change')} read, "
        f"{_sent(Counters(), counters)} sent, "
        f"{number_of(counters.rows_invalid, 'change')} not sent, "
        f"{number_of(counters.answers_error, 'event')} refused"
    )


def summary(before: Counters, now: Counters, queue: Measured | None, parked: int) -> str:
    """Return one log line about the work between two readings of the counters and, unless ``queue``
    is None, the state of the queue. ``parked`` is the number of parked objects.
    """
    invalid = now.rows_invalid - before.rows_invalid
    refused = now.rows_error + now.rows_fatal - before.rows_error - before.rows_fatal
    letters = now.letters_sent - before.letters_sent
    parts = [
        f"{number_of(now.rows_published - before.rows_published, 'row')} published",
        _sent(before, now),
        f"{number_of(invalid, 'row')} invalid" if invalid else "",
        *remarks(now.old_unreadable - before.old_unreadable, now.truncated - before.truncated),
        f"{number_of(refused, 'row')} refused" if refused else "",
        f"{number_of(letters, 'dead letter')} sent" if letters else "",
        "" if queue is None else _in_words(queue),
        f"{number_of(parked, 'object')} parked" if parked else "",
    ]
    return "; ".join(filter(None, parts))


def _sent(before: Counters, now: Counters) -> str:
    """Return, in words, what was sent between two readings of the counters."""
    events = number_of(now.events_answered - before.events_answered, "event")
    again = now.answers_retry - before.answers_retry
    documents = number_of(now.documents_sent - before.documents_sent, "document")
    return f"{events}{f' and {again:,} to send again' if again else ''} in {documents}"


def _in_words(queue: Measured) -> str:
    oldest = "" if queue.oldest_seconds is None else f", oldest {queue.oldest_seconds:.1f} s"
    more = " or more" if queue.queue_rows == queue.cap else ""
    return f"queue: {number_of(queue.queue_rows or 0, 'row')}{more}{oldest}"


def closing_summary(counters: Counters, parked: int, waiting: int) -> tuple[str, bool]:
    """Return one log line about the work of a process. Also return True if an operator must examine
    refused rows, invalid rows, or ``parked`` objects.

    The number of rows read is the sum of the other numbers of rows in the line. ``waiting`` is the
    number of rows that are in flight at the end. These rows include rows that an earlier process
    had in flight.
    """
    without_effect = (
        counters.rows_dropped + counters.rows_gone + counters.rows_noop + counters.rows_loopback
    )
    refused = counters.rows_error + counters.rows_fatal
    figures = [
        (counters.rows_published, "published"),
        (refused, "refused"),
        (counters.rows_invalid, "invalid"),
        (without_effect, f"without effect ({_reasons_without_event(counters)})"),
        (waiting, "waiting"),
    ]
    read = number_of(sum(rows for rows, _ in figures), "row")
    added = ", ".join(f"{rows:,} {what}" for rows, what in figures if rows or what == "published")
    failed = has_failed(counters)
    parts = [
        f"{read} read: {added}",
        _answered(counters, waiting),
        *remarks(counters.old_unreadable, counters.truncated),
        f"{number_of(parked, 'object')} parked" if parked else "",
        "`eventlog errors` shows the reasons" if failed else "",
        "`eventlog status` shows what is parked" if parked else "",
    ]
    return "; ".join(filter(None, parts)), bool(failed or parked)


def _answered(counters: Counters, waiting: int) -> str:
    """Return, in words, what was answered. A document that the receiver did not take is not
    answered.
    """
    if waiting and not counters.documents_sent:
        return "the receiver has taken no document"
    return _sent(Counters(), counters)


def _reasons_without_event(counters: Counters) -> str:
    """Return, in words, why rows made no event."""
    reasons = [
        (counters.rows_dropped, "covered by another row"),
        (counters.rows_gone, "of an object that no longer exists"),
        (counters.rows_noop, "that changed nothing"),
        (counters.rows_loopback, "of the publisher's own user"),
    ]
    return ", ".join(f"{rows:,} {why}" for rows, why in reasons if rows)


def has_failed(counters: Counters) -> bool:
    """Return True if rows, objects of a snapshot, or changes of a source were refused or
    invalid.
    """
    return bool(
        counters.rows_invalid
        + counters.rows_error
        + counters.rows_fatal
        + counters.answers_error
        + counters.answers_fatal
    )


def remarks(old_unreadable: int, truncated: int) -> list[str]:
    """Return, in words, the remarks on valid rows; empty if there are no remarks."""
    found = [f"{number_of(old_unreadable, 'old value')} unreadable"] if old_unreadable else []
    if truncated:
        found.append(f"{number_of(truncated, 'change')} below a second not sent")
    return found


# --- the context ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Used:
    """The numbers of a log that this process has used in all of the process's connections
    (spec/event-log.md 7.4).

    The object has the highest delivery number, the published record_ids, the last identification of
    the server, and the session that had the lock last.
    """

    delivery_no: int = 0
    published: Published = field(default_factory=Published)
    given_again: str | None = None
    """The reason why a published record_id may have been used a second time, None if there is no
    such reason.
    """
    begun: datetime | None = None
    """The time when the consumer of this process was registered, UTC."""
    server: Mapping[str, str] = field(default_factory=dict)
    holder: LockHolder | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that the functions of the publisher work with: one connection, one log, its
    classes, and the settings and writer of their events.
    """

    log: OpenLog
    catalog: Catalog
    options: PublisherOptions
    output: EventWriter[Any]
    counters: Counters
    ledger: Ledger
    """The ledger, which records the done rows."""
    reread: Callable[[], Catalog] | None = None
    """A function that reads the present classes, None = the classes do not change. The function
    raises ConfigError, TriggerError, DatabaseError.
    """
    captured: Callable[[Catalog], Collection[str]] = lambda _: ()
    """A function that returns the tables of these classes whose triggers fill the log."""
    masks: Sequence[MaskedColumns] = ()
    """The masks of the reader."""
    observer: Observer = SILENT
    """The observer, which is informed of the work."""
    epoch: str = ""
    """The log's epoch."""
    used: Used = field(default_factory=Used)
    """The numbers of the log that the process has used. The numbers outlive the connection."""
    attempts: dict[int, int] = field(default_factory=dict)
    """The attempt numbers of new events that are not 1, by the record_id of the event's first row
    (spec/event-log.md 7.4). They are read from the error table at each connection; the code that
    marks rows adds attempt numbers.
    """

    def wants(self, table_name: str | None) -> bool:
        """Return True if rows of this table_name belong to a wanted class."""
        classes = self.options.classes
        if classes is None:
            return True
        meant = self.catalog.log_name(table_name) if table_name else None
        name = (
            self.catalog.unavailable_class(table_name or "")
            if meant is None
            else meant.object_class.name
        )
        return name in classes

    def query_back(
        self, object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, CurrentRow]:
        """Return the current rows of objects by canonical key, as ``QueryBack`` describes it."""
        db = self.log.db
        return read_for_reader(db, self.catalog.schema, object_class, keys, attributes)

    def existing(
        self, object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, CurrentRow]:
        """Return the current rows of the objects that exist for the reader, by canonical key."""
        rows = self.query_back(object_class, keys, attributes)
        return {key: row for key, row in rows.items() if exists_for_reader(row)}


class CatalogCheck:
    """The checks that the owner of the catalogue makes before a window relies on it. The checks of
    this class do nothing.

    If the tables no longer match the catalogue, both methods raise an error, which ends the cycle.
    Nothing about the window's rows is recorded before that.
    """

    def before_invalid(self) -> None:
        """Check before rows are marked E."""

    def before_read_back(self) -> None:
        """Check after rows are read, and before the first values of these rows are read back."""


UNCHECKED: Final = CatalogCheck()
"""A check that does nothing, for callers that record nothing or have just read the catalogue."""


@contextmanager
def in_savepoint(connection: Connection) -> Iterator[None]:
    """Run the block in a savepoint, so that the transaction goes on after a statement that the
    database refuses. Raises DatabaseError, DatabaseUnavailable for errors of the driver.
    """
    with as_database_errors(connection), connection.begin_nested():
        yield


# --- warnings at the start ------------------------------------------------------------------------

LOOPBACK_WAYS_OUT: Final = (
    "give the publisher its own database user",
    "or allow_loopback = true in [publisher], to publish its changes too",
    'or loopback_action = "mark" in [publisher], if its changes must not be published',
)
"""The ways to end the warnings about loopback rows. With the first two ways, the rows are
published.
"""


def loopback_of_tables(user: str, tables: Sequence[str]) -> str:
    """Return the warning that the publisher's user owns captured tables."""
    owned = first_of(tables, 3)
    return (
        f"{user!r}, the publisher's database user, owns {owned}: its changes there are loopback "
        "and are not published"
    )


def owned_tables(
    db: OpenDatabase,
    options: PublisherOptions,
    schema: str | None,
    tables: Collection[str],
) -> Sequence[str]:
    """Return the tables that the publisher's user owns. Return none if there is no loopback user,
    or if the settings determine what happens to loopback rows.
    """
    if not options.driver_user or schema is None or options.loopback_is_meant:
        return ()
    return ask(db, "owned", str, schema=schema, tables=list(tables), user=options.driver_user)


def unavailable_in_words(name: str, error: EventlogError) -> str:
    """Return a sentence on a class that is unavailable (spec/event-log.md 5.1)."""
    return f"{name} is not published, and its rows wait: {error}"


def utc_anyway(log: object) -> str:
    """Return the warning about ``event_time_zone = "local"`` for a log whose times are UTC."""
    return (
        f'event_time_zone = "local" has no effect on the log {log}: eventlog writes event_time in '
        "UTC, so it counts as UTC. Remove the option"
    )


def warn_at_start(context: Context) -> None:
    """Warn about classes that are unavailable, about captured tables that the publisher's user
    owns, and about a time zone that has no effect.

    Ends the transaction. Raises SQLAlchemy's errors.
    """
    options = context.options
    for name, error in context.catalog.unavailable.items():
        _log.error("%s", unavailable_in_words(name, error), extra={"code": error.code})
    if context.log.table.writes_utc:
        _log.warning("%s", utc_anyway(context.log))
    captured = context.captured(context.catalog)
    tables = owned_tables(context.log.db, options, context.catalog.schema, captured)
    context.log.commit()
    if tables:
        _log.warning(
            "%s: %s",
            loopback_of_tables(options.driver_user or "", tables),
            ", ".join(LOOPBACK_WAYS_OUT),
        )


def report_missing(context: Context, rows: int, first: int, last: int) -> None:
    """Count rows that were deleted after they were read and before they were answered, and log an
    error (spec/event-log.md 10). The deleted rows are among the record_ids ``first`` to ``last``.
    """
    context.counters.rows_missing += rows
    _log.error(
        "%s of the log %s %s deleted before the answer was recorded, among record_ids %d to %d. "
        "These changes may never have been sent. Find and stop the program that deletes "
        "unpublished rows; delete_from_log and `eventlog purge` delete only rows that are done",
        number_of(rows, "row"),
        context.log.table,
        "was" if rows == 1 else "were",
        first,
        last,
        extra={"code": "rows_missing"},
    )


def warn_of_loopback(context: Context, rows: int, done: str = "marked") -> None:
    """Warn about rows that are marked S without being published, unless the settings demand
    this.
    """
    if rows > 0 and not context.options.loopback_is_meant:
        _log.warning(
            "%s %s S without being published, because %r, the publisher's own database user, "
            "made the changes (loopback): %s; run `eventlog requeue --loopback` to queue the "
            "rows again",
            number_of(rows, "row"),
            done,
            context.options.driver_user or "",
            ", ".join(LOOPBACK_WAYS_OUT),
        )
