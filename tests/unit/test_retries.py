"""Retry: which objects are parked, what is sent again under which id, and when (spec/event-log.md 8.4, 10)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from fake_publisher import Answering, Killed, NewWorld, Receiver, deletes, flights_of, judge
from samples import row

from eventlog.model import Answer, Level, Verdict
from eventlog.publisher.delivery import FlightResult


def test_retry_parks_its_object_and_no_other(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "2", "1", "3"), batch_size=1, retry_initial=1000, retry_max=1000)
    receiver, state = Receiver(judge(e1="retry")), fake.start()
    assert fake.cycle(state, receiver).result is FlightResult.DONE
    assert receiver.sent == [["1"], ["2"], ["4"]]
    assert fake.statuses() == {1: "N", 2: "S", 3: "N", 4: "S"}
    # Later rows of the object do not overtake, those of others are not held up.
    fake.log([row(5, 4, "idu=1"), row(6, 4, "idu=4")])
    fake.cycle(state, receiver)
    assert receiver.sent[3:] == [["6"]]
    assert sorted(flights_of(state)) == ["1", "3"]
    # After a restart what is parked comes first, as it was recorded.
    fake.run(receiver)
    assert receiver.sent[4:] == [["1"], ["3"], ["5"]]


def test_a_parked_object_is_sent_again_when_it_is_due_and_then_its_later_rows(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "2"), batch_size=1)
    receiver, state = Receiver(judge(e1="retry retry")), fake.start()
    fake.cycle(state, receiver)
    fake.log([row(3, 4, "idu=1")])
    fake.cycle(state, receiver)
    assert receiver.sent == [["1"], ["2"], ["1"]]
    assert len(state.parking) == 1
    fake.run(receiver, state)
    assert receiver.sent[3:] == [["1"], ["3"]]
    assert len(state.parking) == 0
    assert set(fake.statuses().values()) == {"S"}


def test_a_later_event_of_the_object_in_the_envelope_goes_out_again_under_a_new_id(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1", "2", "1"))
    receiver, state = Receiver(judge(e1="retry retry")), fake.start()
    fake.cycle(state, receiver)
    assert receiver.sent == [["1", "2", "3", "4"]]
    assert fake.statuses() == {1: "N", 2: "N", 3: "S", 4: "N"}
    assert fake.in_flight() == {1: [[1, [["1", [[1, 1]]], ["2", [[2, 2]], [], 2], ["4", [[4, 4]], [], 2]]]]}
    fake.cycle(state, receiver)
    assert receiver.sent[1:] == [["1", "2.2", "4.2"]]
    # The number is in the line: a restart knows it.
    fake.run(receiver)
    assert receiver.sent[2:] == [["1", "2.3", "4.3"]]
    assert set(fake.statuses().values()) == {"S"}


@pytest.mark.parametrize("park", [True, False])
def test_the_new_id_is_in_the_line_before_anything_else_is_sent(new_world: NewWorld, park: bool) -> None:
    """Sent again under the old one it would be known to the receiver, and what came behind it would be its end."""
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


def test_an_error_behind_a_retry_is_sent_again_too(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1"))
    fake.run(Receiver(judge(e1="retry", e2="error")))
    assert fake.statuses() == {1: "S", 2: "S"}
    assert fake.errors() == []


def test_fatal_behind_a_retry_is_f_and_stops(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1"))
    receiver, state = Receiver(judge(e1="retry", e2="fatal")), fake.start()
    assert fake.cycle(state, receiver).result is FlightResult.FATAL
    assert fake.statuses() == {1: "N", 2: "F"}


def test_two_retries_of_one_object_in_an_envelope_are_one_attempt(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1"), retry_initial=1000, retry_max=10**9)
    state = fake.start()
    fake.cycle(state, Receiver(judge(e1="retry", e2="retry")))
    (parked,) = state.parking.values()
    assert parked.attempts == 1


def test_an_object_is_released_when_what_was_to_be_sent_again_has_lost_its_effect(new_world: NewWorld) -> None:
    fake = new_world([row(1, 8, "idu=1", "fname")])
    fake.contents["idu=1"] = {"fname": ["a"]}
    receiver, state = Receiver(judge(e1="retry")), fake.start()
    fake.cycle(state, receiver)
    assert len(state.parking) == 1
    del fake.contents["idu=1"]
    fake.log([row(2, 4, "idu=1")])
    fake.run(receiver, state)
    assert (receiver.sent, fake.statuses(), len(state.parking)) == ([["1"], ["2"]], {1: "S", 2: "S"}, 0)


def test_an_event_before_the_retry_is_done(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1"))
    receiver = Receiver(judge(e2="retry"))
    fake.run(receiver)
    assert receiver.sent == [["1", "2"], ["2"]]


def test_a_dropped_row_of_an_event_that_is_sent_again_stays_new(new_world: NewWorld) -> None:
    fake = new_world([row(1, 2, column="fname", new="x"), row(2, 8, column="fname")], retry_initial=99, retry_max=99)
    fake.contents["idu=1"] = {"fname": ["x"]}
    fake.cycle(fake.start(), Receiver(judge(e1="retry")))
    assert fake.statuses() == {1: "N", 2: "N"}
    # On rebuilding the decision stands, and the value is read anew.
    fake.contents["idu=1"] = {"fname": ["y"]}
    receiver = Receiver()
    fake.run(receiver)
    assert receiver.state == {"idu=1,table=usr,schema=indirect": {"fname": {"y"}}}
    assert fake.statuses() == {1: "S", 2: "S"}


def test_retry_without_event_id_stops_the_cycle_and_parks_nothing(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "2", "3"), batch_size=2)
    receiver, state = Answering(Answer({}, Verdict(Level.RETRY))), fake.start()
    assert fake.cycle(state, receiver).result is FlightResult.RETRY
    assert (receiver.sent, len(state.parking)) == ([["1", "2"]], 0)
    assert set(fake.statuses().values()) == {"N"}
    fake.run(receiver, state)
    assert receiver.sent[1:] == [["1", "2"], ["3"]]


def test_on_retry_stop_stops_the_cycle(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "1", "2", "3"), batch_size=3, park=False)
    receiver, state = Receiver(judge(e1="retry retry")), fake.start()
    for _ in range(2):
        assert fake.cycle(state, receiver).result is FlightResult.RETRY
        assert fake.statuses() == {1: "N", 2: "N", 3: "S", 4: "N"}
    fake.run(receiver, state)
    assert receiver.sent == [["1", "2", "3"], ["1", "2.2"], ["1", "2.3"], ["4"]]


def test_more_than_max_parked_objects_stop_the_cycle(new_world: NewWorld) -> None:
    names = [str(i) for i in range(1, 8)]
    fake = new_world(deletes(*names), batch_size=1, flight_rows=3, max_parked=2, retry_initial=1000, retry_max=1000)
    receiver, state = Receiver(lambda event: "retry"), fake.start()
    assert fake.cycle(state, receiver).result is FlightResult.RETRY
    assert receiver.sent == [["1"], ["2"], ["3"]]
    # As long as they are so many, nothing more is taken from the queue.
    assert fake.cycle(state, receiver).result is FlightResult.RETRY
    assert (len(receiver.sent), len(state.parking)) == (3, 3)


def test_parked_rows_at_the_head_of_the_queue_do_not_use_up_the_window(new_world: NewWorld) -> None:
    fake = new_world(deletes("1"), query_limit=3, retry_initial=1000, retry_max=1000)
    receiver, state = Receiver(judge(e1="retry")), fake.start()
    fake.cycle(state, receiver)
    fake.log([*(row(i, 4, "idu=1") for i in range(2, 40)), row(40, 4, "idu=2")])
    while fake.cycle(state, receiver).more:
        pass
    assert receiver.sent == [["1"], ["40"]]


def test_every_parked_object_released_in_any_flight_keeps_its_order(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "2", "1", "2", "1"), batch_size=1, flight_rows=1)
    receiver = Receiver(judge(e1="retry retry", e2="retry", e3="retry retry retry"))
    fake.run(receiver)
    assert [one for one in receiver.applied if one in ("1", "3", "5")] == ["1", "3", "5"]
    assert [one for one in receiver.applied if one in ("2", "4")] == ["2", "4"]


def test_rows_that_a_pass_left_behind_while_their_object_was_parked_come_before_its_later_ones(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes("1", "2", "1", "3", "1"), query_limit=1, batch_size=1)
    # Refused until the pass has gone beyond row 3, which is read past while its object is parked.
    receiver = Receiver(judge(e1="retry retry retry"))
    fake.run(receiver)
    assert [one for one in receiver.applied if one in ("1", "3", "5")] == ["1", "3", "5"]
