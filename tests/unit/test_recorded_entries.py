"""Entries of deliveries that the sender of before the outbox wrote: it is restored from them, and
writes the same again, so a standby of either may take over (spec/event-log.md 10).
"""

from __future__ import annotations

import pytest
from fake_publisher import NewWorld, deletes

from eventlog.core.rows.events import Outgoing
from eventlog.publisher.ledger.delivery import decode, encode
from eventlog.publisher.send.database_clock import DatabaseClock
from eventlog.publisher.send.log_feed import add_recorded, entry_of
from eventlog.publisher.send.outbox import Do, Outbox
from eventlog.publisher.send.policy import Kind, Rules

NOTHING = (
    '{"line_format":1,"documents":[{"number":1,"rows":[[1,2]],"counts":[1,1]},'
    '{"number":2,"rows":[[3,3]],"counts":[1]}]}'
)
RETRY = (
    '{"line_format":1,"documents":[{"number":4,"rows":[[1,2]],"counts":[1,1],"events":{'
    '"0":{"parked":{"tries":2,"answer":"later","due":"2999-11-25T08:00:00.000"}},'
    '"1":{"attempts":2,"parked":{"tries":2,"answer":"later","due":"2999-11-25T08:00:00.000"}}}}]}'
)
PARTS = (
    '{"line_format":1,"documents":[{"number":5,"rows":[[1,1]],"counts":[1],'
    '"suspect":{"tries":3,"answer":"answers 500","due":"2999-11-25T08:00:00.000"}},'
    '{"number":6,"rows":[[2,3]],"counts":[1,1],'
    '"suspect":{"tries":0,"answer":"answers 500","due":"2999-11-25T08:00:00.000"}},'
    '{"number":7,"rows":[[4,4]],"counts":[1]}]}'
)
FAILURES = (
    '{"line_format":1,"documents":[{"number":1,"rows":[[1,2]],"counts":[1,1],'
    '"failures":{"tries":4,"answer":"answers 500"}},{"number":2,"rows":[[3,3]],"counts":[1]}]}'
)
KEPT = (
    '{"line_format":1,"documents":[{"number":6,"rows":[[1,1]],"counts":[1],'
    '"suspect":{"tries":3,"answer":"answers 500","due":"2999-11-25T08:00:00.000"}},'
    '{"number":4,"rows":[[2,2]],"counts":[1]}]}'
)


def restored_outbox(new_world: NewWorld, content: str) -> Outbox[Outgoing]:
    """Return the outbox with a delivery of two rows of one object."""
    context = new_world(deletes(*"11")).context()
    clock = DatabaseClock(context.log.connection, context.log.dialect)
    outbox = Outbox[Outgoing](Rules())
    same = context.catalog.classes[0], "idu=1"
    add_recorded(outbox, decode(7, content), {"1": same, "2": same}, clock, 1e12)
    return outbox


def numbers(outbox: Outbox[Outgoing]) -> list[int]:
    """Return the numbers of the documents after they are recorded."""
    outbox.record()
    return [one.number for one in outbox.batch(7)]


@pytest.mark.parametrize(
    ("content", "kinds"),
    [
        (NOTHING, [None, None]),
        (RETRY, [Kind.PARKED]),
        (PARTS, [Kind.PART, Kind.PART, None]),
        (FAILURES, [Kind.SUSPECT, None]),
    ],
)
def test_an_entry_of_before_is_restored_and_written_again_as_it_was(
    new_world: NewWorld, content: str, kinds: list[Kind | None]
) -> None:
    fake = new_world(deletes(*"1234"))
    log = fake.context().log
    clock = DatabaseClock(log.connection, log.dialect)
    delivery = decode(7, content)
    outbox = Outbox[Outgoing](Rules())
    add_recorded(outbox, delivery, {}, clock, 1e12)
    documents = list(outbox.batch(7))
    assert [one.attempts and one.attempts.kind for one in documents] == kinds
    written = entry_of(delivery, documents, delivery.last_number, outbox, clock)
    assert encode(written) == content


def test_events_of_a_document_that_got_retry_at_other_times_are_separate_documents(
    new_world: NewWorld,
) -> None:
    outbox = restored_outbox(new_world, RETRY.replace("08:00:00", "09:00:00", 1))
    first, second = outbox.batch(7)
    assert first.attempts is not None
    assert second.attempts is not None
    assert first.attempts.due - second.attempts.due == pytest.approx(3600)
    assert numbers(outbox) == [5, 6]  # a number never means other events


def test_recorded_documents_keep_the_order_of_their_entry_and_get_numbers_in_this_order(
    new_world: NewWorld,
) -> None:
    outbox = restored_outbox(new_world, KEPT)
    assert outbox.next(0.0, is_empty=True).do is Do.WAIT  # the first one is not due
    assert numbers(outbox) == [6, 7]
