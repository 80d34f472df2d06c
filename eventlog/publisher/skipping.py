"""An event in flight that is given up by hand, ``eventlog skip`` (spec/event-log.md 8.4)."""

from __future__ import annotations

from typing import NamedTuple

from eventlog.core.event_ids import record_id_of
from eventlog.core.events import Outgoing
from eventlog.core.ranges import to_ranges
from eventlog.errors import ConfigError, first_of
from eventlog.model import Status, unpadded
from eventlog.publisher.claimed_rows import read_recorded
from eventlog.publisher.delivery import Delivery, encode, rest_of
from eventlog.publisher.ledger import Ledger
from eventlog.sql.internal_tables import EntryKind, delete_entry, replace_content
from eventlog.sql.open_log import OpenLog
from eventlog.sql.rows import SKIPPED, add_errors, add_object_errors


class Skipped(NamedTuple):
    """An event that was given up. ``answer`` is the receiver's last one, empty if none is known.
    An object of a snapshot has no ``rows``.
    """

    event_id: str
    rows: int
    tries: int
    answer: str


def skip(log: OpenLog, ledger: Ledger, event_id: str, why: str) -> Skipped:
    """Give up an event that is in flight: its rows become E, each with an error line that shows
    ``why``. The caller commits.

    A running publisher notices this at its next attempt at the event. A consumer must not run: the
    caller has its lock. It is unknown whether the receiver has applied the event, so rows that are
    sent again get the number after the last attempt (7.4). Raises ConfigError if no such event is
    in flight.
    """
    deliveries, _ = read_recorded(log, ledger.consumer)
    delivery, document_no, event = _found(deliveries, event_id)
    tried = delivery.suspects.get(document_no)
    answer = "" if tried is None else tried.answer
    message = f"{why}; the last answer: {answer}" if answer else why
    skipped = Skipped(event.sent_id, 0, 0 if tried is None else tried.tries, answer)
    if delivery.is_of_snapshot:
        add_object_errors(log, [(event.event_id, SKIPPED, message)], ledger.consumer)
        _strike(log, delivery, event)
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
    lines = [(record_id, SKIPPED, message) for record_id in refused]
    add_errors(log, lines, ledger.consumer, next_ids)
    if ledger.consumer:  # no status shows a consumer that a row is done
        _strike(log, delivery, event)
    return skipped._replace(rows=len(refused))


def _found(deliveries: list[Delivery], event_id: str) -> tuple[Delivery, int, Outgoing]:
    """Return the event in flight with this id, its document and its delivery. Raises
    ConfigError.
    """
    for delivery in deliveries:
        for document_no, events in delivery.documents.items():
            for event in events:
                if event_id in (event.sent_id, event.event_id):
                    return delivery, document_no, event
    known = [
        event.sent_id
        for delivery in deliveries
        for number in delivery.suspects
        for event in delivery.documents.get(number, ())
    ]
    there = f"the receiver fails for {first_of(known, 10)}" if known else "see `eventlog status`"
    raise ConfigError(f"no event {event_id} is in flight; {there}")


def _strike(log: OpenLog, delivery: Delivery, skipped: Outgoing) -> None:
    left = {
        number: [event for event in events if event.event_id != skipped.event_id]
        for number, events in delivery.documents.items()
    }
    rest = rest_of(delivery, left)
    if rest.documents:
        replace_content(log, EntryKind.DELIVERY, delivery.number, encode(rest))
    else:
        delete_entry(log, EntryKind.DELIVERY, delivery.number)
