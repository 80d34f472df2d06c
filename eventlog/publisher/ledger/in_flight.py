"""The deliveries in flight of a reader of a log, the events without an answer, and the rows that a
backlog job has claimed (spec/event-log.md 8.6).

A claim names rows that a backlog job has converted into a finished directory and that are not
marked yet. The publisher passes over the claimed rows and over all later rows of their objects. So
nothing is sent twice and nothing overtakes the documents of the directory.

A claim may also name recorded deliveries whose documents are in the directory. The job does not
write ``<log>_inflight``: it marks the rows of these deliveries, then the claim itself. The next
publisher removes a marked claim together with the entries of its deliveries.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from eventlog.core.catalog import ObjectId
from eventlog.core.ranges import RecordSet, to_ranges
from eventlog.core.rows.event_ids import object_text, record_id_of
from eventlog.core.rows.events import Outgoing
from eventlog.errors import number_of
from eventlog.publisher.ledger.delivery import (
    ENTRY_FORMAT,
    Delivery,
    Tried,
    decode,
    encode,
    refuse_newer,
)
from eventlog.publisher.ledger.ledger import Writers
from eventlog.sql.log.internal_tables import (
    Entry,
    EntryKind,
    add_entry,
    delete_entry,
    read_entries,
    refuse_unknown_kinds,
    replace_content,
    unreadable,
)
from eventlog.sql.port.open_log import OpenLog

_log = logging.getLogger("eventlog.publisher")

CLAIM_WAYS_OUT: Final = (
    "eventlog backlog mark --out DIR, when the receiver has the documents",
    "or eventlog backlog release --out DIR: the publisher then sends the rows, so do not deliver "
    "the documents of DIR",
)


class BacklogClaim(NamedTuple):
    """The claim of a backlog job: one entry of kind ``claim``."""

    number: int
    """The entry's number."""
    job: str
    directory: str
    """The place of the job's documents. ``job`` is the name of the job."""
    manifest: str
    """The SHA-256 of the directory's manifest."""
    since: str
    last: int
    """The record_id up to which rows of status N are claimed."""
    rows: int
    """The number of rows that the job has read."""
    deliveries: tuple[int, ...]
    """The recorded deliveries whose documents are in the directory, too."""
    writers: Writers
    """The transactions that had written to the log and were open at the job's snapshot."""
    is_marking: bool = False
    """True if marking has begun."""
    is_marked: bool = False
    """True if all rows are marked. The next publisher then deletes the claim and the entries of the
    claim's deliveries.
    """

    @property
    def in_words(self) -> str:
        """A description of the claimed rows that begins a sentence."""
        begun = "; marking has begun" if self.is_marking else ""
        return (
            f"{number_of(self.rows, 'row')} up to record_id {self.last} claimed for "
            f"{self.directory} since {self.since} (backlog job {self.job}{begun}); later rows of "
            "their objects wait for them"
        )


def encode_claim(claim: BacklogClaim) -> str:
    """Return the content of the entry."""
    content = claim._asdict() | {
        "writers": None if claim.writers is None else sorted(claim.writers)
    }
    del content["number"]
    return json.dumps({"line_format": ENTRY_FORMAT, **content}, separators=(",", ":"))


def read_claims(log: OpenLog) -> list[BacklogClaim]:
    """Return all claims of a log, oldest first, including marked ones.

    Raises DatabaseError for an entry that this version cannot read.
    """
    refuse_unknown_kinds(log, EntryKind.CLAIM)
    return [_decode_claim(log, entry) for entry in read_entries(log, EntryKind.CLAIM)]


def read_recorded(log: OpenLog, consumer: str = "") -> tuple[list[Delivery], BacklogClaim | None]:
    """Return the publisher's deliveries in flight, oldest first, and the claim on rows.

    ``consumer`` selects the deliveries of this consumer, for which there is no claim; empty = the
    deliveries of the publisher. Raises DatabaseError for an entry that this version cannot read.
    """
    refuse_unknown_kinds(log, EntryKind.DELIVERY)
    # The claims are read first. A marked claim is deleted together with the entries of its
    # deliveries, so an entry that is read afterwards still has to be sent.
    claims = [] if consumer else read_claims(log)
    converted = {delivery for claim in claims for delivery in claim.deliveries}
    deliveries = [
        decode(entry.number, entry.content)
        for entry in read_entries(log, EntryKind.DELIVERY, consumer)
        if entry.number not in converted
    ]
    return deliveries, next((claim for claim in claims if not claim.is_marked), None)


def next_ids(log: OpenLog, deliveries: Collection[int]) -> dict[int, str]:
    """Return the next event-ids of the events in recorded deliveries, by the first record_id. An
    event gets its next event-id if it cannot be built any more, since it is unknown whether the
    receiver applied it (spec/event-log.md 7.4).

    ``deliveries`` are the numbers of the publisher's deliveries.
    """
    return {
        record_id_of(event.event_id): event.again().sent_id
        for entry in read_entries(log, EntryKind.DELIVERY)
        if entry.number in deliveries
        for event in decode(entry.number, entry.content).events()
    }


def add_delivery(log: OpenLog, delivery: Delivery, consumer: str) -> None:
    """Write the entry of a delivery under its number. The ledger records new deliveries of rows."""
    add_entry(log, EntryKind.DELIVERY, delivery.number, encode(delivery), consumer)


def renumber(log: OpenLog, delivery: Delivery, number: int, epoch: str, consumer: str) -> Delivery:
    """Move a recorded delivery of an earlier epoch to a new number in the present epoch, and return
    it. Its events keep their event-ids.
    """
    delete_entry(log, EntryKind.DELIVERY, delivery.number)
    delivery = delivery._replace(number=number, epoch=epoch)
    add_delivery(log, delivery, consumer)
    return delivery


def write_entry(log: OpenLog, delivery: Delivery) -> None:
    """Write what is left of a recorded delivery into its entry; delete the entry if nothing is
    left.
    """
    if delivery.documents:
        replace_content(log, EntryKind.DELIVERY, delivery.number, encode(delivery))
    else:
        delete_entry(log, EntryKind.DELIVERY, delivery.number)


def remove_marked_claims(log: OpenLog) -> None:
    """Delete each claim whose rows are all marked, and the entries of the claim's deliveries.

    The caller holds the lock of the log, so that none of these deliveries is sent meanwhile.
    """
    for claim in read_claims(log):
        if claim.is_marked:
            for delivery in claim.deliveries:
                delete_entry(log, EntryKind.DELIVERY, delivery)
            delete_entry(log, EntryKind.CLAIM, claim.number)


def placed_events(deliveries: Iterable[Delivery]) -> Iterator[tuple[Delivery, int, Outgoing]]:
    """Yield the events of deliveries in their order, each with its delivery and the number of its
    document.
    """
    for delivery in deliveries:
        for document_no, events in delivery.documents.items():
            for event in events:
                yield delivery, document_no, event


class WaitingEvent(NamedTuple):
    """An event without an answer, as the entry of its delivery, or of a followed source, records
    it. An event of a followed source has no rows, and its delivery is not recorded.
    """

    document: int
    """The number of its document; for a followed source, of the document's entry."""
    event_id: str
    events: int
    """The number of events in its document."""
    tried: Tried | None
    """The attempts at the event or at its document, None if none is recorded."""
    table_name: str | None = None
    """The table of its object, and in ``table_key`` the key, both None if they are unknown. An
    object of a snapshot has its class in the key.
    """
    table_key: str | None = None
    delivery: int = 0
    rows: int = 0
    event_id_number: int = 1

    @property
    def is_parked(self) -> bool:
        """True if its object is parked."""
        return self.tried is not None and self.tried.is_parked

    @property
    def attempts(self) -> int | None:
        """The recorded number of attempts, or of pauses while the receiver is in doubt; None = no
        attempt.
        """
        return None if self.tried is None else self.tried.tries

    @property
    def answer(self) -> str | None:
        """The last answer; None = no attempt."""
        return None if self.tried is None else self.tried.answer


def parked_number(events: Iterable[WaitingEvent]) -> int:
    """Return how many objects are parked."""
    return len({(one.table_name, one.table_key or one.event_id) for one in events if one.is_parked})


def waiting_event(delivery: Delivery, document_no: int, event: Outgoing) -> WaitingEvent:
    """Return an event of a delivery, without table and key unless it is of a snapshot."""
    return WaitingEvent(
        document_no,
        event.sent_id,
        len(delivery.documents[document_no]),
        delivery.attempts_at(document_no, event),
        table_key=None if event.ids else object_text(event.event_id),
        delivery=delivery.number,
        rows=len(event.ids),
        event_id_number=event.attempts,
    )


def waiting_events(log: OpenLog, deliveries: Iterable[Delivery]) -> list[WaitingEvent]:
    """Return the events of deliveries, each with the table and key of its first row; table and key
    are None if the row is gone.
    """
    placed = [*placed_events(deliveries)]
    firsts = sorted({event.ids[0] for _, _, event in placed if event.ids})
    fields = ("record_id", "table_name", "table_key")
    names = {
        row: {"table_name": table, "table_key": key}
        for row, table, key in log.read_columns(to_ranges(firsts), fields)
    }
    return [
        waiting_event(delivery, document_no, event)._replace(**names.get(first, {}))
        for delivery, document_no, event in placed
        for first in (event.ids[0] if event.ids else None,)
    ]


def sent_ids(log: OpenLog, consumer: str = "") -> RecordSet:
    """Return the rows of status N that the receiver may have already: the rows in flight, and all
    rows that a finished directory may contain.

    ``consumer`` is as in ``read_recorded``.
    """
    deliveries, claim = read_recorded(log, consumer)
    ids = sorted(
        record_id
        for delivery in deliveries
        for event in delivery.events()
        for record_id in event.ids
    )
    return RecordSet(0 if claim is None else claim.last, to_ranges(ids))


def _decode_claim(log: OpenLog, entry: Entry) -> BacklogClaim:
    try:
        content: dict[str, Any] = json.loads(entry.content)
        refuse_newer(entry.number, content)
        del content["line_format"]
        writers, deliveries = content.pop("writers"), tuple(content.pop("deliveries"))
        return BacklogClaim(
            entry.number,
            deliveries=deliveries,
            writers=None if writers is None else frozenset(writers),
            **content,
        )
    except (TypeError, ValueError, KeyError) as error:
        raise unreadable(log, EntryKind.CLAIM, entry.number, error) from None


_BITS: Final = 2**27
"""The number of bits, which take 16 MiB.

With a million claimed objects, one of 130 other objects waits unnecessarily. With ten million
claimed objects, it is one of 14.
"""


class ClaimedObjects:
    """The objects of claimed rows, with one bit per object. A few other objects have the same bit
    as a claimed object, and wait unnecessarily.

    ``writers`` are transactions that may still add rows to the claim. The set is complete while all
    of these transactions are open.
    """

    __slots__ = ("_bits", "writers")

    def __init__(self, writers: Writers) -> None:
        self._bits, self.writers = bytearray(_BITS // 8), writers

    def add(self, object_id: ObjectId) -> None:
        bit = _bit_of(object_id)
        self._bits[bit >> 3] |= 1 << (bit & 7)

    def __contains__(self, object_id: object) -> bool:
        bit = _bit_of(object_id)  # type: ignore[arg-type]
        return bool(self._bits[bit >> 3] >> (bit & 7) & 1)


def _bit_of(object_id: ObjectId) -> int:
    object_class, key = object_id
    return hash((object_class.name, key)) % _BITS


def warn_of(claim: BacklogClaim | None) -> None:
    """Log a warning that rows are claimed."""
    if claim is not None:
        _log.warning("%s: %s", claim.in_words, ", ".join(CLAIM_WAYS_OUT))
