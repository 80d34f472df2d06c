"""Which objects wait, and for how long (spec/event-log.md 8.4, "park")."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from samples import usr

from eventlog.model import SUCCESS, Change, ChangeOp
from eventlog.publisher.run.waiting import BackOff
from eventlog.publisher.send.parking import back_off
from eventlog.publisher.send.sending import Parking
from eventlog.publisher.stream.pending import ObjectId, Pending, PendingEvent, ReadPosition

CHANGE = Change(None, "usr", ChangeOp.TRUNCATE)
A, B, C = (usr(), "idu=1"), (usr(), "idu=2"), (usr(), "idu=3")


def parking(initial: float = 1, most: float = 60) -> Parking:
    return Parking(initial, most, random=lambda: 1.0)


BACK_OFFS = [
    (1, 1, 60, 1),
    (2, 1, 60, 2),
    (3, 1, 60, 4),
    (6, 1, 60, 32),
    (7, 1, 60, 60),
    (100_000, 1, 60, 60),
    (1, 0.5, 60, 0.5),
    (3, 0.5, 60, 2),
    (1, 5, 5, 5),
    (2, 5, 5, 5),
]


@pytest.mark.parametrize(("attempts", "initial", "most", "seconds"), BACK_OFFS)
def test_a_back_off_doubles_from_initial_to_max(
    attempts: int, initial: float, most: float, seconds: float
) -> None:
    assert back_off(attempts, initial, most) == seconds


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 4), (0.5, 6), (1.0, 8)])
def test_chance_takes_away_up_to_a_half(chance: float, seconds: float) -> None:
    assert back_off(4, 1, 60, lambda: chance) == seconds
    parked = Parking[object](8, 60, random=lambda: chance)
    parked.park(A, 100)
    assert parked.next_due() == 100 + seconds


@pytest.mark.parametrize(("asked", "pause"), [(None, 1.5), (0, 1), (17.5, 17.5), (3600, 60)])
def test_a_retry_after_of_the_receiver_is_respected_within_the_bounds(
    asked: float | None, pause: float
) -> None:
    class Stop:
        waited: float | None = None

        def is_set(self) -> bool:
            return False

        def wait(self, timeout: float | None = None) -> bool:
            self.waited = timeout
            return False

    stop = Stop()
    BackOff(1, 60, random=lambda: 0.5, attempts=1).wait(stop, "busy", asked)
    assert stop.waited == pause


def test_only_the_parked_object_waits() -> None:
    parked = parking()
    parked.park(A, 100)
    assert (parked.is_waiting(A), parked.is_waiting(B), parked.is_waiting(None)) == (
        True,
        False,
        False,
    )
    assert (A in parked, B in parked, len(parked), list(parked)) == (True, False, 1, [A])


def test_waiting_ends_when_the_back_off_has_passed_and_not_before_a_cycle_begins() -> None:
    parked = parking()
    parked.park(A, 100)
    parked.wake(parked.due(100.9))
    assert parked.is_waiting(A)
    assert parked.due(101) == [A]
    assert parked.is_waiting(A)
    parked.wake([A])
    assert not parked.is_waiting(A)
    # Awake, but its later rows still stay behind what is in flight.
    assert A in parked


def test_each_further_retry_doubles_the_wait() -> None:
    parked = parking()
    now, waits = 0.0, []
    for _ in range(8):
        parked.park(A, now)
        due = parked.next_due()
        assert due is not None
        waits.append(due - now)
        now = due
        parked.wake(parked.due(now))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_an_answer_without_retry_resets_the_back_off() -> None:
    parked = parking()
    parked.park(A, 0)
    parked.park(A, 1)
    parked.release(A)
    assert len(parked) == 0
    parked.park(A, 10)
    assert parked.next_due() == 11


def test_each_object_has_its_own_back_off() -> None:
    parked = parking()
    parked.park(A, 0)
    parked.park(A, 0)
    parked.park(B, 0.5)
    assert parked.next_due() == 1.5
    parked.wake(parked.due(1.5))
    assert (parked.is_waiting(A), parked.is_waiting(B)) == (True, False)


def test_nothing_is_due_when_nothing_is_parked() -> None:
    parked = parking()
    parked.release(A)
    assert (parked.due(5), parked.next_due()) == ([], None)


def test_who_is_due_longest_comes_first() -> None:
    parked = parking()
    parked.park(B, 3)
    parked.park(A, 0)
    parked.park(C, 1)
    assert parked.due(3.5) == [A, C]
    assert parked.due(4) == [A, C, B]


def test_who_is_parked_again_waits_again_and_so_does_who_is_not_woken() -> None:
    parked = parking()
    parked.park(A, 0)
    parked.park(B, 0)
    parked.wake([A])
    assert (parked.is_waiting(A), parked.is_waiting(B)) == (False, True)
    parked.park(A, 1)
    assert parked.is_waiting(A)
    parked.wake([B])
    parked.wake([])
    assert parked.is_waiting(B)


def test_of_a_stream_half_of_what_is_sent_at_a_time_are_retries_and_those_due_longest_come_first() -> (
    None
):
    parked: Parking[ObjectId] = Parking(1, 60, random=lambda: 1.0)
    pending = Pending(parked)

    def add(*names: str) -> None:
        for name in names:
            pending.add(name, ((name,),), CHANGE, name)

    add("a", "b", "c", "d")
    (first,) = pending.documents(4, 1, parked.due(0))
    for each, now in zip(first, (3, 0, 1, 2), strict=True):
        parked.park(each.object_id, now)
        pending.park(each)
    add("e", "f", "g")
    (document,) = pending.documents(4, 1, parked.due(100))
    assert [each.object_id for each in document] == [("b",), ("c",), ("e",), ("f",)]
    pending.put_back_unanswered()
    assert [
        [each.object_id for each in one] for one in pending.documents(1, 1, parked.due(100))
    ] == [[("b",)]]


def test_of_a_stream_all_that_is_sent_are_retries_while_nothing_else_is_there() -> None:
    parked: Parking[ObjectId] = Parking(1, 60, random=lambda: 1.0)
    pending = Pending(parked)
    for name in ("a", "b"):
        pending.add(name, ((name,),), CHANGE, name)
    (first,) = pending.documents(2, 1, parked.due(0))
    for each in first:
        parked.park(each.object_id, 0)
        pending.park(each)
    (document,) = pending.documents(2, 1, parked.due(1))
    assert [each.object_id for each in document] == [("a",), ("b",)]


# --- events of several objects --------------------------------------------------------------------


def taken(pending: Pending, due: Sequence[ObjectId] = ()) -> list[str]:
    """The event-ids of the next document."""
    return [each.sent_id for document in pending.documents(8, 1, due) for each in document]


def answer(pending: Pending, events: list[PendingEvent]) -> None:
    pending.answer(SUCCESS, events)


def pending_of(*events: tuple[str, tuple[ObjectId, ...]]) -> tuple[Pending, Parking[ObjectId]]:
    parked: Parking[ObjectId] = Parking(1, 60, random=lambda: 1.0)
    pending = Pending(parked)
    for name, objects in events:
        pending.add(name, objects, CHANGE, name)
    return pending, parked


def test_an_event_of_two_objects_waits_for_both_and_both_wait_for_it() -> None:
    pending, parked = pending_of(
        ("1", (("a",),)),
        ("2", (("b",),)),
        (
            "3",
            (
                ("a",),
                ("b",),
            ),
        ),
        ("4", (("b",),)),
        ("5", (("a",),)),
        ("6", (("c",),)),
    )
    (first,) = pending.documents(8, 1, parked.due(0))
    assert [each.sent_id for each in first] == ["1", "2"]
    parked.park(("b",), 0)
    answer(pending, first[:1])
    pending.park(first[1])
    (second,) = pending.documents(8, 1, parked.due(0))
    assert [each.sent_id for each in second] == ["6"]  # all others stand behind b, which is parked
    answer(pending, list(second))
    (third,) = pending.documents(8, 1, parked.due(2))
    assert [each.sent_id for each in third] == ["2"]
    parked.release(("b",))
    answer(pending, list(third))
    (fourth,) = pending.documents(8, 1, parked.due(2))
    assert [each.sent_id for each in fourth] == ["3"]
    answer(pending, list(fourth))
    assert taken(pending, parked.due(2)) == ["4", "5"]


def test_an_event_of_all_objects_is_in_the_air_alone() -> None:
    pending, parked = pending_of(("1", (("a",),)), ("2", ()), ("3", (("b",),)))
    (first,) = pending.documents(8, 1, parked.due(0))
    assert [each.sent_id for each in first] == ["1"]
    parked.park(("a",), 0)
    pending.park(first[0])
    assert taken(pending) == []
    (again,) = pending.documents(8, 1, parked.due(2))
    parked.release(("a",))
    answer(pending, list(again))
    (every,) = pending.documents(8, 1, parked.due(2))
    assert [each.sent_id for each in every] == ["2"]
    parked.park((), 2)
    pending.park(every[0])
    assert taken(pending, parked.due(2)) == []
    (every,) = pending.documents(8, 1, parked.due(4))
    answer(pending, list(every))
    assert taken(pending, parked.due(4)) == ["3"]


def test_forgotten_answers_bring_an_event_of_all_objects_back_before_the_events_after_it() -> None:
    pending, parked = pending_of(("1", ()), ("2", (("a",),)))
    (every,) = pending.documents(8, 1, parked.due(0))
    answer(pending, list(every))
    (behind,) = pending.documents(8, 1, parked.due(0))
    parked.park(("a",), 0)
    pending.park(behind[0])
    pending.forget_answers()
    (every,) = pending.documents(8, 1, parked.due(0))
    assert [each.sent_id for each in every] == ["1"]
    answer(pending, list(every))
    assert taken(pending) == ["2"]


def test_a_place_counts_when_all_before_it_is_answered() -> None:
    pending, parked = pending_of(("1", (("a",),)))
    pending.mark(ReadPosition("behind 1", "0001"))
    pending.add("2", (("b",),), CHANGE, "2")
    (both,) = pending.documents(8, 1, parked.due(0))
    answer(pending, list(both[1:]))
    assert pending.flushed() is None
    answer(pending, list(both[:1]))
    assert pending.flushed() == ReadPosition("behind 1", "0001")
