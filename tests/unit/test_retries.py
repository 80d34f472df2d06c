"""Retry: which objects are parked, what is sent again under which id, and when (spec/event-log.md
8.4, 10).
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from fake_publisher import (
    LOG,
    Answering,
    FakePublisher,
    Killed,
    NewWorld,
    Receiver,
    deletes,
    deliveries_of,
    judge,
)
from samples import row, usr
from shared import opened_log

from eventlog.model import Answer, EventResult, Level, Operation
from eventlog.publisher.feeds import queue
from eventlog.publisher.ledger.ledger import StatusLedger
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.sending import DeliveryResult
from eventlog.publisher.send.session import PublisherSession, PublisherState
from eventlog.sql.log.internal_tables import EntryKind, add_entry
from eventlog.sql.log.pauses import Pause
from eventlog.sql.log.requests import is_requested
from eventlog.sql.log.requeue import requeue


def test_retry_parks_its_object_and_no_other(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "2", "1", "3"), batch_size=1, retry_initial=1000, retry_max=1000)
    receiver, state = Receiver(judge(e1="retry")), fake.start()
    assert fake.cycle(state, receiver).result is DeliveryResult.DONE
    assert receiver.sent == [["1"], ["2"], ["4"]]
    assert fake.statuses() == {1: "N", 2: "S", 3: "N", 4: "S"}
    # Later rows of the object do not overtake, those of others are not held up.
    fake.log([row(5, 4, "idu=1"), row(6, 4, "idu=4")])
    fake.cycle(state, receiver)
    assert receiver.sent[3:] == [["6"]]
    assert sorted(deliveries_of(state)) == ["1", "3"]
    # A restart does not change the wait, which is recorded with the answers to the others.
    state = fake.start()
    fake.cycle(state, receiver)
    assert len(receiver.sent) == 4
    state.outbox.retry_now()
    fake.run(receiver, state)
    assert receiver.sent[4:] == [["1"], ["3"], ["5"]]


def test_rows_of_an_object_that_becomes_free_during_a_scan_keep_their_order(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes("1"), batch_size=1, query_limit=2, fold_distance=0)
    receiver, state = Receiver(judge(e1="retry retry retry")), fake.start()
    fake.cycle(state, receiver)
    # So many rows of the object that the scan goes on when the object is free.
    objects = "1111111" + "2345" + "16"
    fake.log([row(i, 4, f"idu={name}") for i, name in enumerate(objects, 2)])
    fake.run(receiver, state)
    assert [event_id for sent in receiver.sent for event_id in sent] == [
        *("1", "1", "9", "10"),
        *("1", "11", "12"),
        *("1", "14"),
        *("2", "3", "4", "5", "6", "7", "8", "13"),
    ]


def test_a_parked_object_that_becomes_due_once_its_publisher_is_paused_is_not_sent(
    new_world: NewWorld,
) -> None:
    waits = {"retry_initial": 1000, "retry_max": 1000, "mark_interval": 0}
    fake = new_world(deletes("1"), batch_size=1, **waits)
    receiver, state = Receiver(judge(e1="retry")), fake.start()
    fake.cycle(state, receiver)
    fake.log([row(2, 4, "idu=2")])

    def pause_while_it_is_sent(name: str) -> None:
        if name == "before send":
            paused = Pause("maintenance", "an operator", datetime.now(UTC)).encode()
            add_entry(opened_log(fake.connection, LOG), EntryKind.PAUSED, 1, paused)
            state.outbox.retry_now()

    receiver.step = pause_while_it_is_sent
    assert fake.cycle(state, receiver).result is DeliveryResult.PAUSED
    assert receiver.sent == [["1"], ["2"]]
    assert fake.statuses() == {1: "N", 2: "S"}


def test_a_parked_object_is_sent_again_when_it_is_due_and_then_its_later_rows(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes("1", "2"), batch_size=1)
    receiver, state = Receiver(judge(e1="retry retry")), fake.start()
    fake.cycle(state, receiver)
    fake.log([row(3, 4, "idu=1")])
    fake.cycle(state, receiver)
    assert receiver.sent == [["1"], ["2"], ["1"]]
    assert len(state.parked_objects()) == 1
    fake.run(receiver, state)
    assert receiver.sent[3:] == [["1"], ["3"]]
    assert len(state.parked_objects()) == 0
    assert set(fake.statuses().values()) == {"S"}


def test_a_later_event_of_the_object_in_the_document_goes_out_again_under_a_new_id(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes("1", "1", "2", "1"))
    receiver, state = Receiver(judge(e1="retry retry")), fake.start()
    fake.cycle(state, receiver)
    assert receiver.sent == [["1", "2", "3", "4"]]
    assert fake.statuses() == {1: "N", 2: "N", 3: "S", 4: "N"}
    assert fake.in_flight() == {
        1: [[2, [["1", [[1, 1]]], ["2", [[2, 2]], [], 2], ["4", [[4, 4]], [], 2]]]]
    }
    fake.cycle(state, receiver)
    assert receiver.sent[1:] == [["1", "2.2", "4.2"]]
    # The number is in the line: a restart knows it.
    fake.run(receiver)
    assert receiver.sent[2:] == [["1", "2.3", "4.3"]]
    assert set(fake.statuses().values()) == {"S"}


@pytest.mark.promise(
    "guarantee An event that the receiver may have applied before an earlier event of its object gets a new id",
)
@pytest.mark.parametrize("park", [True, False])
def test_the_new_id_is_in_the_line_before_anything_else_is_sent(
    new_world: NewWorld, park: bool
) -> None:
    """Sent again under the old one it would be known to the receiver, and what came after it would
    be its end.
    """
    fake = new_world(deletes("1", "1", "2", "3"), batch_size=2, mark_interval=1000, park=park)
    receiver = Receiver(judge(e1="retry"))

    def die(name: str) -> None:
        if name == "before send" and len(receiver.documents) == 1:
            raise Killed

    receiver.step = die
    with suppress(Killed):
        fake.cycle(fake.start(), receiver)
    fake.connection.rollback()
    receiver.step = lambda name: None
    fake.run(receiver)
    assert receiver.sent == [["1", "2"], ["1", "2.2"], ["3", "4"]]


def test_an_event_that_got_retry_itself_keeps_its_id(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1"))
    receiver, state = Receiver(judge(e1="retry", e2="retry")), fake.start()
    fake.run(receiver, state)
    assert receiver.sent == [["1", "2"], ["1", "2"]]


def test_an_error_after_a_retry_is_sent_again_too(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1"))
    fake.run(Receiver(judge(e1="retry", e2="error")))
    assert fake.statuses() == {1: "S", 2: "S"}
    assert fake.errors() == []


def put_back(fake: FakePublisher) -> None:
    requeue(opened_log(fake.connection, LOG), {"E"})
    fake.connection.commit()


@pytest.mark.parametrize("request_", ['{"rows": [[1, 1]], "objects": []}', '{"ranges": [[1, 1]]}'])
@pytest.mark.parametrize("by_number", [False, True], ids=["by time", "by number"])
def test_a_publisher_that_starts_takes_up_the_requests_that_are_there(
    new_world: NewWorld, by_number: bool, request_: str
) -> None:
    log = opened_log(new_world(deletes("1")).connection, LOG)
    add_entry(log, EntryKind.REQUEST, 1, request_)
    assert is_requested(log)
    StatusLedger(log, by_number=by_number, locked=True).recover()
    assert not is_requested(log)


def test_what_is_marked_by_hand_while_it_is_sent_goes_again_under_the_next_number(
    new_world: NewWorld,
) -> None:
    # The receiver may have applied the attempt that was on its way.
    fake = new_world(deletes("1", "1", "2"), batch_size=1)
    receiver, state = Receiver(), fake.start()

    def mark(status: str) -> None:
        fake.connection.exec_driver_sql(
            f"UPDATE eventlog SET status = '{status}' WHERE record_id = 1"
        )
        fake.connection.commit()

    def mark_once(name: str) -> None:
        if name == "before send" and not receiver.documents:
            mark("E")

    receiver.step = mark_once
    session = PublisherSession(fake.context(), state, receiver)
    with fake.numbering_deliveries():
        run_cycle(session)
        assert (receiver.sent, fake.statuses()) == ([["1"], ["2"], ["3"]], {1: "E", 2: "S", 3: "S"})
        mark("N")
        run_cycle(session)
    assert receiver.sent[3:] == [["1.2"]]
    assert fake.statuses() == {1: "S", 2: "S", 3: "S"}


def test_what_is_refused_under_a_later_number_goes_again_under_it_and_not_under_the_first(
    new_world: NewWorld,
) -> None:
    # The receiver has applied 2 after the retry, and would pass over it.
    fake = new_world(deletes("1", "1"))
    receiver, state = Receiver(judge(e1="retry", e2_2="error")), fake.start()
    fake.run(receiver, state)
    put_back(fake)
    fake.run(receiver)
    assert receiver.sent == [["1", "2"], ["1", "2.2"], ["2.2"]]
    assert set(fake.statuses().values()) == {"S"}


def test_it_gets_the_next_number_after_another_retry(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1", "1"))
    receiver = Receiver(judge(e1="retry", e2_2="error", e3_2="error"))
    fake.run(receiver)
    receiver.judge = judge(e2_2="retry")
    put_back(fake)
    fake.run(receiver)
    assert receiver.sent[2:] == [["2.2", "3.2"], ["2.2", "3.3"]]


def test_a_row_that_is_bad_when_its_event_is_sent_again_goes_again_under_the_next_number(
    new_world: NewWorld,
) -> None:
    # It is not known whether the receiver has applied the first sending.
    fake = new_world([row(1, 2, column="fname", new="x")])
    lost = Receiver(judge(e1="lost"))
    fake.cycle(fake.start(), lost)
    fake.connection.exec_driver_sql("UPDATE eventlog SET new_value = CHAR(1)")
    fake.run(lost)
    assert fake.statuses() == {1: "E"}
    fake.connection.exec_driver_sql("UPDATE eventlog SET new_value = 'y'")
    put_back(fake)
    fake.run(lost)
    assert lost.sent == [["1"], ["1.2"]]
    assert lost.state == {"idu=1,table=usr,schema=indirect": {"fname": {"x", "y"}}}


def test_fatal_after_a_retry_is_f_and_stops(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1"))
    receiver, state = Receiver(judge(e1="retry", e2="fatal")), fake.start()
    assert fake.cycle(state, receiver).result is DeliveryResult.FATAL
    assert fake.statuses() == {1: "N", 2: "F"}


def test_two_retries_of_one_object_in_a_document_are_one_attempt(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1"), retry_initial=1000, retry_max=10**9)
    state = fake.start()
    fake.cycle(state, Receiver(judge(e1="retry", e2="retry")))
    (parked,) = state.parked_objects()
    assert parked.tries == 1


def test_an_object_is_released_by_the_delete_that_its_pending_change_has_become(
    new_world: NewWorld,
) -> None:
    fake = new_world([row(1, 8, "idu=1", "fname")])
    fake.contents["idu=1"] = {"fname": ["a"]}
    receiver, state = Receiver(judge(e1="retry")), fake.start()
    fake.cycle(state, receiver)
    assert len(state.parked_objects()) == 1
    del fake.contents["idu=1"]
    fake.log([row(2, 4, "idu=1")])
    fake.run(receiver, state)
    assert (receiver.sent, fake.statuses(), len(state.parked_objects())) == (
        [["1"], ["1"], ["2"]],
        {1: "S", 2: "S"},
        0,
    )
    assert [one.events[0].operation for one in receiver.documents[1:]] == [Operation.DELETE] * 2


def test_an_event_before_the_retry_is_done(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1"))
    receiver = Receiver(judge(e2="retry"))
    fake.run(receiver)
    assert receiver.sent == [["1", "2"], ["2"]]


def test_a_dropped_row_of_an_event_that_is_sent_again_stays_new(new_world: NewWorld) -> None:
    fake = new_world(
        [row(1, 2, column="fname", new="x"), row(2, 8, column="fname")],
        retry_initial=99,
        retry_max=99,
    )
    fake.contents["idu=1"] = {"fname": ["x"]}
    fake.cycle(fake.start(), Receiver(judge(e1="retry")))
    assert fake.statuses() == {1: "N", 2: "N"}
    # On rebuilding the decision stands, and the value is read again.
    fake.contents["idu=1"] = {"fname": ["y"]}
    receiver = Receiver()
    fake.run(receiver)
    assert receiver.state == {"idu=1,table=usr,schema=indirect": {"fname": {"y"}}}
    assert fake.statuses() == {1: "S", 2: "S"}


def test_retry_without_event_id_stops_the_cycle_and_parks_nothing(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "2", "3"), batch_size=2)
    receiver, state = Answering(Answer({}, EventResult(Level.RETRY))), fake.start()
    assert fake.cycle(state, receiver).result is DeliveryResult.RETRY
    assert (receiver.sent, len(state.parked_objects())) == ([["1", "2"]], 0)
    assert set(fake.statuses().values()) == {"N"}
    fake.run(receiver, state)
    assert receiver.sent[1:] == [["1", "2"], ["3"]]


def test_on_retry_stop_stops_the_cycle(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1", "2", "3"), batch_size=3, park=False)
    receiver, state = Receiver(judge(e1="retry retry")), fake.start()
    for _ in range(2):
        assert fake.cycle(state, receiver).result is DeliveryResult.RETRY
        assert fake.statuses() == {1: "N", 2: "N", 3: "S", 4: "N"}
    fake.run(receiver, state)
    assert receiver.sent == [["1", "2", "3"], ["1", "2.2"], ["1", "2.3"], ["4"]]


@pytest.mark.promise("option publisher.max_parked")
def test_more_than_max_parked_objects_stop_the_cycle(new_world: NewWorld) -> None:
    names = [str(i) for i in range(1, 8)]
    fake = new_world(
        deletes(*names),
        batch_size=1,
        delivery_rows=3,
        max_parked=2,
        retry_initial=1000,
        retry_max=1000,
    )
    receiver, state = Receiver(lambda event: "retry"), fake.start()
    assert fake.cycle(state, receiver).result is DeliveryResult.RETRY
    assert receiver.sent == [["1"], ["2"], ["3"]]
    # As long as they are so many, nothing more is taken from the queue.
    assert fake.cycle(state, receiver).result is DeliveryResult.RETRY
    assert (len(receiver.sent), len(state.parked_objects())) == (3, 3)


def test_parked_rows_at_the_head_of_the_queue_do_not_use_up_the_window(new_world: NewWorld) -> None:
    fake = new_world(deletes("1"), query_limit=3, retry_initial=1000, retry_max=1000)
    receiver, state = Receiver(judge(e1="retry")), fake.start()
    fake.cycle(state, receiver)
    fake.log([*(row(i, 4, "idu=1") for i in range(2, 40)), row(40, 4, "idu=2")])
    while fake.cycle(state, receiver).more:
        pass
    assert receiver.sent == [["1"], ["40"]]


def test_every_parked_object_released_in_any_delivery_keeps_its_order(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "2", "1", "2", "1"), batch_size=1, delivery_rows=1)
    receiver = Receiver(judge(e1="retry retry", e2="retry", e3="retry retry retry"))
    fake.run(receiver)
    assert [one for one in receiver.applied if one in ("1", "3", "5")] == ["1", "3", "5"]
    assert [one for one in receiver.applied if one in ("2", "4")] == ["2", "4"]


def test_rows_that_a_scan_passed_over_while_their_object_was_parked_come_before_its_later_ones(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes("1", "2", "1", "3", "1"), query_limit=1, batch_size=1)
    # Refused until the scan has gone beyond row 3, which is read past while its object is parked.
    receiver = Receiver(judge(e1="retry retry retry"))
    fake.run(receiver)
    assert [one for one in receiver.applied if one in ("1", "3", "5")] == ["1", "3", "5"]


# --- many parked objects --------------------------------------------------------------------------

MANY = 2000
NEW = 100_000


def many_parked(
    new_world: NewWorld, **options: Any
) -> tuple[FakePublisher, PublisherState, Receiver, set[str]]:
    """A publisher with many parked objects, the receiver that refuses them, and their event-ids,
    for it to forget.
    """
    fake = new_world(
        deletes(*(str(i) for i in range(MANY))),
        batch_size=100,
        delivery_rows=500,
        max_parked=MANY,
        **options,
    )
    fake.connection.exec_driver_sql("CREATE INDEX ix_record_id ON eventlog (record_id)")
    refused = {str(i) for i in range(1, MANY + 1)}
    receiver, state = (
        Receiver(lambda event: "retry" if event.event_id in refused else "success"),
        fake.start(),
    )
    while fake.cycle(state, receiver).more:
        pass
    assert len(state.parked_objects()) == MANY
    return fake, state, receiver, refused


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each window has read, in fragments."""
    read: list[int] = []
    original = queue.WindowReader.add

    def add(self: queue.WindowReader, chunk: list[Any]) -> None:
        read.append(len(chunk))
        original(self, chunk)

    monkeypatch.setattr(queue.WindowReader, "add", add)
    return read


@pytest.mark.parametrize("by_time", [False, True])
def test_however_many_objects_are_parked_a_cycle_sends_half_a_window_of_them_and_then_new_rows(
    new_world: NewWorld, rows_read: list[int], by_time: bool
) -> None:
    fake, state, receiver, _ = many_parked(new_world, query_limit=200, handle_future_events=by_time)
    fake.log([row(MANY + i, 4, f"idu={NEW + i}") for i in range(1, 1001)])
    retried: list[str] = []
    for _ in range(5):
        del receiver.documents[:], rows_read[:]
        fake.cycle(state, receiver)
        sent = [int(event_id) for event_ids in receiver.sent for event_id in event_ids]
        again, new = [one for one in sent if one <= MANY], [one for one in sent if one > MANY]
        assert (len(again) - 100 in range(128), len(new)) == (True, 200)
        assert sum(rows_read) <= MANY + 3 * 200
        retried += map(str, again)
    # Each was its turn: nobody is tried twice while others are due longer.
    assert len(set(retried)) == len(retried) >= 500
    assert Counter(fake.statuses().values()) == {"N": MANY, "S": 1000}


def test_an_object_with_more_recorded_events_than_a_cycle_tries_is_sent_whole(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes("1", "1", "1", "2"), query_limit=4)
    receiver, state = Receiver(judge(e1="retry", e4="retry")), fake.start()
    fake.cycle(state, receiver)
    fake.cycle(state, receiver)
    assert receiver.sent == [["1", "2", "3", "4"], ["1", "2.2", "3.2", "4"]]


def test_of_objects_that_are_freed_one_after_the_other_no_more_is_read_past_than_taken(
    new_world: NewWorld, rows_read: list[int]
) -> None:
    """A pass that began again with each of them would read past all that still are parked, window
    by window.
    """
    fake, state, receiver, refused = many_parked(new_world, query_limit=200)
    later = [row(MANY + i, 4, f"idu={i - 1}") for i in range(1, MANY + 1)]
    fake.log([*later, *(row(2 * MANY + i, 4, f"idu={NEW + i}") for i in range(1, MANY + 1))])
    refused.clear()
    rows_read.clear()
    fake.run(receiver, state)
    assert set(fake.statuses().values()) == {"S"}
    assert sum(rows_read) < 12 * MANY  # of a scan that starts again each time: 22 times
    order = {
        event_id: number for number, event_id in enumerate(e for ids in receiver.sent for e in ids)
    }
    assert all(order[str(i)] < order[str(MANY + i)] for i in range(1, MANY + 1))


def test_rows_of_a_freed_object_on_both_sides_of_the_scan_keep_their_order(
    new_world: NewWorld,
) -> None:
    fake = new_world(
        deletes(*(str(i) for i in range(50)), "900"), query_limit=4, batch_size=1, max_parked=60
    )
    refused = {str(i) for i in range(1, 52)}
    receiver, state = (
        Receiver(lambda event: "retry" if event.event_id in refused else "success"),
        fake.start(),
    )
    while fake.cycle(state, receiver).more:
        pass
    # A pass has read past row 52 when its object is freed, and is to come to row 253.
    fake.log(
        [
            row(52, 4, "idu=900"),
            *(row(52 + i, 4, f"idu={NEW + i}") for i in range(1, 201)),
            row(253, 4, "idu=900"),
        ]
    )
    fake.log([row(253 + i, 4, f"idu={2 * NEW + i}") for i in range(1, 100)])
    for _ in range(3):
        fake.cycle(state, receiver)
    assert "64" in receiver.applied
    refused.remove("51")
    while "51" not in receiver.applied:
        fake.cycle(state, receiver)
    assert (usr(), "idu=900") not in state.outbox
    assert "252" not in receiver.applied
    refused.clear()
    fake.run(receiver, state)
    order = [one for one in receiver.applied if one in ("51", "52", "253")]
    assert order == ["51", "52", "253"]
    assert set(fake.statuses().values()) == {"S"}


def test_where_few_objects_are_parked_the_rows_of_one_that_is_freed_come_with_the_next_window(
    new_world: NewWorld,
) -> None:
    fake = new_world(
        deletes("1", "2", "8", "9", "1", *map(str, range(NEW, NEW + 40))),
        query_limit=4,
        batch_size=1,
    )
    receiver, state = Receiver(judge(e1="retry retry", e2=" ".join(["retry"] * 20))), fake.start()
    while "1" not in receiver.applied:
        fake.cycle(state, receiver)
    assert state.scan is not None
    fake.cycle(state, receiver)
    assert "5" in receiver.applied
    assert "45" not in receiver.applied


def test_after_a_restart_only_what_is_not_recorded_as_parked_is_sent_at_once(
    new_world: NewWorld,
) -> None:
    fake, _, receiver, _ = many_parked(new_world, query_limit=200)
    fake.log([row(MANY + i, 4, f"idu={i - 1}") for i in range(1, 11)])
    fake.log([row(2 * MANY + i, 4, f"idu={NEW + i}") for i in range(1, 11)])
    state = fake.start()
    recorded = len(state.parked_objects())
    assert 0 < recorded < MANY
    for most in (MANY - recorded + 100, 100):
        del receiver.documents[:]
        fake.cycle(state, receiver)
        sent = [int(event_id) for event_ids in receiver.sent for event_id in event_ids]
        assert len([one for one in sent if one <= MANY]) == most
    # Later rows of parked objects have not overtaken; those of others are done.
    assert Counter(fake.statuses().values()) == {"N": MANY + 10, "S": 10}
