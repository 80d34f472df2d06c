"""Which objects wait, and for how long (spec/event-log.md 8.4, "park")."""

from __future__ import annotations

from typing import Any, cast

import pytest
from outbox_worlds import Event

from eventlog.model import Answer, EventResult, Level
from eventlog.publisher.send.outbox import Do, Outbox
from eventlog.publisher.send.policy import Document, Rules, back_off, class_of
from eventlog.publisher.send.session import PassedOver

RETRY = EventResult(Level.RETRY)
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
    outbox = Source(("a",), rules=Rules(retry_initial=8, random=lambda: chance))
    outbox.send("1", retry="1", now=100)
    assert outbox.due(100) == 100 + seconds


@pytest.mark.parametrize(("asked", "pause"), [(None, 1.5), (0, 1), (17.5, 17.5), (3600, 60)])
def test_a_retry_after_of_the_receiver_is_respected_within_the_bounds(
    asked: float | None, pause: float
) -> None:
    assert Rules(random=lambda: 0.5).pause(2, asked) == pause


class Source:
    """An outbox of documents with one event each, "1", "2" and so on: one for each group of objects.
    No object = all.
    """

    def __init__(self, *objects: tuple[str, ...], rules: Rules | None = None) -> None:
        self.outbox = Outbox[Event](rules or Rules(), is_recorded=False)
        self.outbox.add(
            Document((number,), [Event(str(number), (number,), names, is_renamed=False)])
            for number, names in enumerate(objects, 1)
        )

    def next(self, now: float) -> str:
        """Return the event that is next, empty if none can be sent now."""
        step = self.outbox.next(now, is_empty=True)
        if step.do is not Do.SEND:
            return ""
        assert step.document is not None
        return step.document.events[0].sent_id

    def send(self, *expected: str, retry: str = "", now: float = 0.0) -> None:
        """Send what is next, as often as there are expected ones."""
        for event_id in expected:
            assert self.next(now) == event_id
            document = self.outbox.begin(self.outbox.next(now, is_empty=True))
            assert document is not None
            results = {event_id: RETRY} if event_id in retry else {}
            self.outbox.settle(document, Answer(results), now)

    def due(self, now: float) -> float | None:
        """Return the time when something can be sent."""
        self.outbox.rest()
        return self.outbox.next_due(now)


def test_only_the_parked_object_waits() -> None:
    source = Source(("a",), ("b",), ("a",))
    source.send("1", "2", retry="1")
    assert source.next(0) == ""
    assert [event.sent_id for event in source.outbox.waiting()] == ["1", "3"]


def test_each_further_retry_doubles_the_wait() -> None:
    source, now, waits = Source(("a",)), 0.0, []
    for _ in range(8):
        source.send("1", retry="1", now=now)
        due = source.due(now)
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_each_object_has_its_own_back_off() -> None:
    source = Source(("a",), ("b",))
    source.send("1", retry="1", now=0)
    source.send("2", retry="2", now=0.5)
    source.outbox.rest()
    source.send("1", retry="1", now=1)
    assert source.due(1) == 1.5
    source.send("2", now=1.5)
    assert source.due(1.5) == 3


def test_who_is_due_longest_comes_first() -> None:
    source = Source(("a",), ("b",), ("c",))
    source.send("1", retry="1", now=3)
    source.send("2", retry="2", now=0)
    source.outbox.rest()
    source.send("3", retry="3", now=0.5)
    source.outbox.rest()
    source.send("2", "3", "1", now=9)


def test_a_document_is_sent_again_once_in_a_cycle() -> None:
    source = Source(("a",), ("b",), rules=Rules(retry_initial=0, retry_max=0))
    source.send("1", "2", retry="1")
    assert source.next(0) == ""
    source.outbox.rest()
    assert source.next(0) == "1"


def test_no_more_events_than_allowed_are_sent_again_in_a_cycle() -> None:
    source = Source(*((name,) for name in "abcd"), rules=Rules(most_again=2))
    source.send("1", "2", "3", "4", retry="1234")
    source.outbox.rest()
    source.send("1", "2", now=9)
    assert source.next(9) == ""
    source.outbox.rest()
    source.send("3", "4", now=9)


def test_one_run_sends_all_that_waits_again_however_much_it_is() -> None:
    source = Source(*((name,) for name in "abcd"), rules=Rules(most_again=2))
    source.send("1", "2", "3", "4", retry="1234")
    source.outbox.retry_now()
    source.send("1", "2", "3", "4")


def test_an_event_of_two_objects_waits_for_both_and_both_wait_for_it() -> None:
    source = Source(("a",), ("b",), ("a", "b"), ("b",), ("a",), ("c",))
    source.send("1", "2", "6", retry="2")
    assert source.next(0) == ""
    source.outbox.rest()
    source.send("2", "3", "4", "5", now=2)


def test_an_event_of_all_objects_waits_for_all_and_all_wait_for_it() -> None:
    source = Source(("a",), (), ("b",))
    source.send("1", retry="1")
    assert source.next(0) == ""
    source.outbox.rest()
    source.send("1", "2", retry="2", now=2)
    assert source.next(2) == ""
    source.outbox.rest()
    source.send("2", "3", now=4)


def test_lost_answers_bring_an_event_of_all_objects_back_before_the_events_after_it() -> None:
    source = Source((), ("a",))
    source.send("1", "2", retry="2")
    source.outbox.put_back()
    source.send("1")
    source.outbox.rest()
    source.send("2", now=2)


# --- what a scan passes over ----------------------------------------------------------------------


class Waiting(set[Any]):
    """What waits in an outbox."""

    @property
    def has_waiting(self) -> bool:
        return bool(self)


A1, A2, B1 = ("a", "1"), ("a", "2"), ("b", "1")
CLASS_A = class_of(A1)


@pytest.mark.parametrize(
    ("waiting", "objects", "passed"),
    [
        ([A1], [A1, A2, B1], [A1]),
        ([CLASS_A], [A1, A2, B1], [A1, A2]),
        ([CLASS_A], [A1], [A1, A2]),  # rows of A2 may have been before as well
        ([A1], [B1], []),  # no row of A1 was passed over
        ([], [A1, A2, B1], []),
    ],
)
def test_what_a_scan_has_passed_over_waits_for_the_next_scan_once_it_is_free(
    waiting: list[Any], objects: list[Any], passed: list[Any]
) -> None:
    outbox = Waiting(waiting)
    scan = PassedOver(cast(Any, outbox))
    assert [one for one in objects if one in scan] == [one for one in passed if one in objects]
    assert not scan.has_free
    outbox.clear()
    assert [one for one in (A1, A2, B1) if one in scan] == passed
    assert (bool(scan), scan.has_free) == (bool(passed), bool(passed))
    assert [one for one in (A1, A2, B1) if one in PassedOver(cast(Any, outbox))] == []
