"""Events in flight that are given up by hand, and refused rows that need nothing more: ``eventlog
skip`` (spec/event-log.md 8.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Final, NamedTuple

from eventlog.core.catalog import Catalog
from eventlog.core.ranges import Ranges, RecordSet, to_ranges
from eventlog.core.rows.event_ids import object_text, record_id_of
from eventlog.core.rows.events import Outgoing
from eventlog.errors import ConfigError, first_of
from eventlog.model import EventResult, Level, Status, unpadded
from eventlog.publisher.inspect.refusals import read_refused
from eventlog.publisher.ledger.in_flight import (
    WaitingEvent,
    read_recorded,
    waiting_events,
    write_entry,
)
from eventlog.publisher.ledger.ledger import LOCK_WAIT, Ledger, ledger_of, lock_within
from eventlog.publisher.send.database_clock import DatabaseClock
from eventlog.publisher.send.log_feed import add_recorded, entry_of
from eventlog.publisher.send.outbox import Outbox
from eventlog.publisher.send.policy import Attempts, E, Kind, Rules
from eventlog.sql.log.errors import SKIPPED, ErrorRow, add_errors, add_object_errors
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers.consumers import consumer_row

_SKIPPED: Final = EventResult(Level.ERROR, "")
_UNTRIED: Final = Attempts(Kind.HALF)  # no attempt, no answer


class Skipped(NamedTuple):
    """An event that was given up. ``answer`` is the receiver's last answer, empty if none is known.
    An object of a snapshot has no ``rows``.
    """

    event_id: str
    rows: int
    tries: int
    answer: str


def skip(log: OpenLog, ledger: Ledger, event_ids: Iterable[str], why: str) -> list[Skipped]:
    """Give up events that are in flight: their rows become E, each with an error row that shows
    ``why``. The caller commits.

    A running publisher notices this at its next attempt at the event. A consumer must not run: the
    caller has its lock. It is unknown whether the receiver has applied the events. So if their rows
    are queued again, an event-id gets the next number (7.4). Raises ConfigError if an event is not
    in flight.
    """
    deliveries = {one.number: one for one in read_recorded(log, ledger.consumer)[0]}
    clock = DatabaseClock(log.connection, log.dialect)
    outbox = Outbox[Outgoing](Rules())
    for delivery in deliveries.values():
        add_recorded(outbox, delivery, {}, clock, inf)
    sent_ids = {event.event_id: event.sent_id for event in outbox.events()}
    skipped = [
        _skip(log, ledger, event, attempts, why)
        for event, attempts in taken(outbox, (sent_ids.get(one, one) for one in event_ids))
    ]
    if ledger.consumer:  # statuses do not show a consumer that a row is done
        for number, (documents, last_number) in outbox.record().items():
            left = entry_of(deliveries[number], documents, last_number, outbox, clock)
            write_entry(log, left)
    return skipped


def taken(outbox: Outbox[E], event_ids: Iterable[str]) -> Iterator[tuple[E, Attempts]]:
    """Give up the events of an outbox with these event-ids, and yield each with the attempts at its
    document. Raises ConfigError if the outbox has no such event.
    """
    for event_id in dict.fromkeys(event_ids):
        if (event := outbox.skip(event_id, _SKIPPED)) is None:
            failing = [
                one.sent_id
                for document in outbox.documents()
                if document.attempts is not None and document.attempts.kind is Kind.PART
                for one in document.events
            ]
            fails = f"the receiver fails for {first_of(failing, 10)}"
            hint = fails if failing else "see `eventlog status`"
            raise ConfigError(f"no event {event_id} is in flight; {hint}")
        (mark,) = outbox.take_marks()
        yield event, mark.document.attempts or _UNTRIED


def _skip(log: OpenLog, ledger: Ledger, event: Outgoing, attempts: Attempts, why: str) -> Skipped:
    message = with_answer(why, attempts.answer)
    skipped = Skipped(event.sent_id, 0, attempts.tries, attempts.answer)
    if not event.ids:
        add_object_errors(log, [(event.event_id, SKIPPED, message)], ledger.consumer)
        return skipped
    present = log.read_columns(to_ranges(event.ids), ("record_id", "status"))
    waiting = {int(number) for number, status in present if unpadded(status) in ledger.statuses}
    dropped = [record_id for record_id in event.dropped if record_id in waiting]
    refused = sorted(waiting.difference(dropped))
    if not refused:
        raise ConfigError(
            f"event {event.sent_id} has no row that can be given up: its rows are already done or "
            "deleted"
        )
    ledger.write({Status.ERROR: refused, Status.SUCCESS: dropped})
    next_ids = {record_id_of(event.event_id): event.again().sent_id}
    entries = [(record_id, SKIPPED, message) for record_id in refused]
    add_errors(log, entries, ledger.consumer, next_ids)
    return skipped._replace(rows=len(refused))


def with_answer(why: str, answer: str) -> str:
    """Return why an event is given up, with the receiver's last answer if it is known."""
    return f"{why}; the last answer: {answer}" if answer else why


def given_up(by: str, reason: str) -> str:
    """Return the message for the error rows of events and rows that a person gives up."""
    return f"given up by hand by {by}: {reason}"


def ledger_to_skip(log: OpenLog, consumer: str | None, *, dry: bool) -> Ledger:
    """Return the ledger of a reader, from which events can then be given up. A consumer is locked,
    unless ``dry``. Raises ConfigError for an unknown consumer, ConsumerRuns.
    """
    ledger = ledger_of(log, consumer)
    if ledger.consumer:
        consumer_row(log, ledger.consumer)
        if not dry:
            lock_within(ledger, LOCK_WAIT)
        ledger.recover()
    return ledger


class SkippedRows(NamedTuple):
    """Refused rows, and refused objects of a consumer's snapshot, that were skipped."""

    rows: tuple[int, ...]
    objects: tuple[str, ...]


def parked_events(
    log: OpenLog, ledger: Ledger, class_name: str | None, catalog: Catalog | None
) -> list[str]:
    """Return the event-ids of the parked events in the in-flight entries. ``class_name`` selects
    the events of one class, as ``catalog`` names it; None = the events of all classes.
    """
    deliveries, _ = read_recorded(log, ledger.consumer)
    return [
        one.event_id
        for one in waiting_events(log, deliveries)
        if one.is_parked and class_name in (None, _class_of(catalog, one))
    ]


def skip_refused(
    log: OpenLog,
    consumer: str,
    why: str,
    ids: Ranges | None,
    class_name: str | None,
    catalog: Catalog | None,
    *,
    dry: bool,
) -> SkippedRows:
    """Record that refused rows need nothing more: each gets an error row of code ``skipped``, and
    keeps its status. The caller commits.

    ``ids`` None = all refused rows, and for a consumer the refused objects of its snapshot. Rows
    that were skipped before are left out. With ``dry`` nothing is written. Raises ConfigError if no
    row of ``ids`` is refused, or if all refused rows of ``ids`` were skipped before.
    """
    found = read_refused(log, consumer=consumer)
    skipped = {row for row, entry in found.row_errors.items() if entry.code == SKIPPED}
    wanted = None if ids is None else RecordSet(0, ids)
    rows = [
        number
        for number, row in sorted(found.rows.items())
        if number not in skipped
        and (wanted is None or number in wanted)
        and (class_name is None or _class_named(catalog, row.table_name) == class_name)
    ]
    objects = [
        event_id
        for event_id, entry in found.objects.items()
        if wanted is None
        and entry.code != SKIPPED
        and class_name in (None, object_text(event_id).partition(".")[0])
    ]
    if not rows and wanted is not None:
        known = [str(number) for number in skipped if number in wanted]
        raise ConfigError(
            f"the rows of --ids were skipped before ({first_of(known, 5)})"
            if known
            else "no row of --ids is refused: `eventlog errors` lists the refused rows"
        )
    if not dry:
        entries = [(row, SKIPPED, _with_reason(why, found.row_errors.get(row))) for row in rows]
        add_errors(log, entries, consumer)
        add_object_errors(
            log,
            [(one, SKIPPED, _with_reason(why, found.objects[one])) for one in objects],
            consumer,
        )
    return SkippedRows(tuple(rows), tuple(objects))


def _with_reason(why: str, entry: ErrorRow | None) -> str:
    return why if entry is None else f"{why}; it was refused before: {entry.code}: {entry.message}"


def _class_of(catalog: Catalog | None, event: WaitingEvent) -> str | None:
    if event.rows:
        return _class_named(catalog, event.table_name)
    return (event.table_key or "").partition(".")[0]


def _class_named(catalog: Catalog | None, table_name: str | None) -> str | None:
    """Return the class that a table_name of the log means, else the table_name itself."""
    meaning = None if catalog is None or table_name is None else catalog.log_name(table_name)
    return table_name if meaning is None else meaning.object_class.name
