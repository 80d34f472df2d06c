"""Which objects wait, and for how long (spec/event-log.md 8.4, "park")."""

from __future__ import annotations

import pytest
from samples import usr

from eventlog.publisher.delivery import Parking
from eventlog.publisher.waiting import BackOff, back_off

A, B = (usr(), "idu=1"), (usr(), "idu=2")


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
def test_a_back_off_doubles_from_initial_to_max(attempts: int, initial: float, most: float, seconds: float) -> None:
    assert back_off(attempts, initial, most) == seconds


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 4), (0.5, 6), (1.0, 8)])
def test_chance_takes_away_up_to_a_half(chance: float, seconds: float) -> None:
    assert back_off(4, 1, 60, lambda: chance) == seconds
    parked = Parking[object](8, 60, random=lambda: chance)
    parked.park(A, 100)
    assert parked.next_due() == 100 + seconds


@pytest.mark.parametrize(("asked", "pause"), [(None, 1.5), (0, 1), (17.5, 17.5), (3600, 60)])
def test_a_receiver_that_says_how_long_is_left_alone_within_the_bounds(asked: float | None, pause: float) -> None:
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
    assert (parked.is_waiting(A), parked.is_waiting(B), parked.is_waiting(None)) == (True, False, False)
    assert (A in parked, B in parked, len(parked), list(parked)) == (True, False, 1, [A])


def test_waiting_ends_when_the_back_off_has_passed_and_not_before_a_cycle_begins() -> None:
    parked = parking()
    parked.park(A, 100)
    parked.end_waits(100.9)
    assert parked.is_waiting(A)
    parked.end_waits(101)
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
        parked.end_waits(now)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_an_answer_without_retry_resets_the_back_off() -> None:
    parked = parking()
    parked.park(A, 0)
    parked.park(A, 1)
    parked.release(A)
    assert len(parked) == 0
    parked.park(A, 10)
    assert parked.next_due() == 11


def test_objects_have_back_offs_of_their_own() -> None:
    parked = parking()
    parked.park(A, 0)
    parked.park(A, 0)
    parked.park(B, 0.5)
    assert parked.next_due() == 1.5
    parked.end_waits(1.5)
    assert (parked.is_waiting(A), parked.is_waiting(B)) == (True, False)


def test_nothing_is_due_when_nothing_is_parked() -> None:
    parked = parking()
    parked.release(A)
    parked.end_waits(5)
    assert parked.next_due() is None
