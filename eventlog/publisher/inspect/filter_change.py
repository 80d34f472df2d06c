"""What happens to recorded events when the filters of a reader change (spec/event-log.md 15.3)."""

from __future__ import annotations

from eventlog.publisher.ledger.in_flight import read_recorded, write_entry
from eventlog.sql.port.open_log import OpenLog


def renew_recorded(log: OpenLog, consumer: str | None) -> int:
    """Give the recorded events of a reader new event-ids, and return the number of these events.
    Under another filter an old event-id could mean something else, and the receiver may have
    applied it. The objects of a snapshot keep their ids, which always mean their present values.

    The caller has the lock of the reader, and commits.
    """
    renewed = 0
    for delivery in read_recorded(log, consumer or "")[0]:
        if delivery.is_of_snapshot:
            continue
        documents = {
            number: [event.again() for event in events]
            for number, events in delivery.documents.items()
        }
        write_entry(log, delivery._replace(documents=documents))
        renewed += sum(map(len, documents.values()))
    return renewed
