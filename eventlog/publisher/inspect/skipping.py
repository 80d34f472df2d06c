"""Events in flight that are given up by hand, and refused rows that need nothing more: ``eventlog
skip`` (spec/event-log.md 8.4).
"""

from __future__ import annotations

from typing import NamedTuple

from eventlog.core.catalog import Catalog
from eventlog.core.ranges import Ranges, RecordSet, to_ranges
from eventlog.core.rows.event_ids import object_text, record_id_of
from eventlog.core.rows.events import Outgoing
from eventlog.errors import ConfigError, first_of
from eventlog.model import Status, unpadded
from eventlog.publisher.inspect.refusals import read_refused
from eventlog.publisher.ledger.delivery import Delivery, encode, rest_of
from eventlog.publisher.ledger.in_flight import (
    WaitingEvent,
    placed_events,
    read_recorded,
    waiting_events,
)
from eventlog.publisher.ledger.ledger import LOCK_WAIT, Ledger, ledger_of, lock_within
from eventlog.sql.log.errors import SKIPPED, ErrorRow, add_errors, add_object_errors
from eventlog.sql.log.internal_tables import EntryKind, delete_entry, replace_content
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers.consumers import consumer_row


class Skipped(NamedTuple):
    """An event that was given up. ``answer`` is the receiver's last answer, empty if none is known.
    An object of a snapshot has no ``rows``.
    """

    event_id: str
    rows: int
    tries: int
    answer: str


def skip(log: OpenLog, ledger: Ledger, event_id: str, why: str) -> Skipped:
    """Give up an event that is in flight: its rows become E, each with an error row that shows
    ``why``. The caller commits.

    A running publisher notices this at its next attempt at the event. A consumer must not run: the
    caller has its lock. It is unknown whether the receiver has applied the event. So if its rows
    are queued again, the event-id gets the next number (7.4). Raises ConfigError if no such event
    is in flight.
    """
    deliveries, _ = read_recorded(log, ledger.consumer)
    delivery, document_no, event = _found(deliveries, event_id)
    tried = delivery.attempts_at(document_no, event)
    answer = "" if tried is None else tried.answer
    message = f"{why}; the last answer: {answer}" if answer else why
    skipped = Skipped(event.sent_id, 0, 0 if tried is None else tried.tries, answer)
    if delivery.is_of_snapshot:
        add_object_errors(log, [(event.event_id, SKIPPED, message)], ledger.consumer)
        _remove_from_delivery(log, delivery, event)
        return skipped
    present = log.read_columns(to_ranges(event.ids), ("record_id", "status"))
    waiting = {int(number) for number, status in present if unpadded(status) in ledger.statuses}
    dropped = [record_id for record_id in event.dropped if record_id in waiting]
    refused = sorted(waiting.difference(dropped))
    if not refused:
        raise ConfigError(
            f"event {event_id} has no row that can be given up: its rows are already done or "
            "deleted"
        )
    ledger.write({Status.ERROR: refused, Status.SUCCESS: dropped})
    next_ids = {record_id_of(event.event_id): f"{event.event_id}.{event.attempts + 1}"}
    entries = [(record_id, SKIPPED, message) for record_id in refused]
    add_errors(log, entries, ledger.consumer, next_ids)
    if ledger.consumer:  # statuses do not show a consumer that a row is done
        _remove_from_delivery(log, delivery, event)
    return skipped._replace(rows=len(refused))


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


def _found(deliveries: list[Delivery], event_id: str) -> tuple[Delivery, int, Outgoing]:
    """Return the event in flight with this id, its document and its delivery. Raises
    ConfigError.
    """
    known = []
    for place in placed_events(deliveries):
        delivery, document_no, event = place
        if event_id in (event.sent_id, event.event_id):
            return place
        if document_no in delivery.parts():
            known.append(event.sent_id)
    there = f"the receiver fails for {first_of(known, 10)}" if known else "see `eventlog status`"
    raise ConfigError(f"no event {event_id} is in flight; {there}")


def _remove_from_delivery(log: OpenLog, delivery: Delivery, skipped: Outgoing) -> None:
    left = {
        number: [event for event in events if event.event_id != skipped.event_id]
        for number, events in delivery.documents.items()
    }
    rest = rest_of(delivery, left)
    if rest.documents:
        replace_content(log, EntryKind.DELIVERY, delivery.number, encode(rest))
    else:
        delete_entry(log, EntryKind.DELIVERY, delivery.number)
