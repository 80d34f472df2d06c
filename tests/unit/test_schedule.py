"""Times of the day, heartbeats and what else ends a rest (spec/event-log.md 8.5, 9)."""

from __future__ import annotations

from datetime import datetime, time

import pytest

from eventlog.publisher.run.waiting import LONGEST_REST, HeartbeatTimer, Timetable, next_start

SIX, NOON = time(6), time(12)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-{text}")


@pytest.mark.parametrize(
    ("times", "after", "start"),
    [
        ([SIX], "01 05:59:59", "01 06:00:00"),
        ([SIX], "01 06:00:00", "02 06:00:00"),
        ([SIX], "01 06:00:00.000001", "02 06:00:00"),
        ([SIX, NOON], "01 06:00:00", "01 12:00:00"),
        ([NOON, SIX], "01 13:00:00", "02 06:00:00"),
        ([time(0)], "01 23:59:59", "02 00:00:00"),
        ([time(23, 59, 59)], "31 00:00:00", "31 23:59:59"),
    ],
)
def test_the_next_start_is_the_first_time_of_the_day_to_come(
    times: list[time], after: str, start: str
) -> None:
    assert next_start(times, at(after)) == at(start)


def test_the_next_start_is_in_the_next_month_and_year() -> None:
    assert next_start([SIX], datetime(2026, 12, 31, 7)) == datetime(2027, 1, 1, 6)


def test_nothing_is_due_at_the_start_of_a_publisher() -> None:
    timetable = Timetable()
    assert not timetable.is_due([SIX], at("01 06:00:00"))
    assert timetable.is_due([SIX], at("02 06:00:00"))


def test_a_run_is_due_until_it_is_finished_and_then_once_a_day() -> None:
    timetable = Timetable(at("01 05:00:00"))
    assert timetable.is_due([SIX], at("01 06:00:00"))
    assert timetable.is_due([SIX], at("01 06:00:10"))  # stopped by the receiver, tried again
    timetable.finish(at("01 06:00:10"))
    assert not timetable.is_due([SIX], at("01 06:00:20"))
    assert timetable.is_due([SIX], at("02 06:00:00"))


def test_a_time_that_passes_while_a_run_goes_on_is_not_lost() -> None:
    timetable = Timetable(at("01 05:00:00"))
    timetable.finish(at("01 11:59:50"))  # begun before noon, ended after it
    assert timetable.is_due([SIX, NOON], at("01 12:00:30"))


def test_a_time_that_the_clock_leaps_over_is_due() -> None:
    timetable = Timetable(at("29 01:59:59"))
    assert timetable.is_due([time(2, 30)], at("29 03:00:00"))  # summer time begins


def test_a_time_that_comes_twice_is_due_once() -> None:
    timetable = Timetable(at("01 02:00:00"))
    assert timetable.is_due([time(2, 30)], at("01 02:30:00"))
    timetable.finish(at("01 02:59:00"))
    assert not timetable.is_due([time(2, 30)], at("01 02:00:00"))  # put back: winter time
    timetable.finish(at("01 02:10:00"))
    assert not timetable.is_due([time(2, 30)], at("01 02:45:00"))
    assert timetable.is_due([time(2, 30)], at("02 02:30:00"))


@pytest.mark.parametrize(
    ("now", "seconds"),
    [("01 05:59:00", 60), ("01 06:00:00", 0), ("01 06:00:01", 0), ("01 05:00:00", LONGEST_REST)],
)
def test_the_rest_ends_at_the_next_time_or_to_read_the_clock_again(
    now: str, seconds: float
) -> None:
    assert Timetable(at("01 00:00:00")).seconds_left([SIX], at(now)) == seconds


def test_a_heartbeat_is_due_after_its_interval_without_a_document() -> None:
    heartbeat = HeartbeatTimer(interval=120, last=1000)
    assert not heartbeat.is_due(1119)
    assert heartbeat.seconds_left(1100) == 20
    assert heartbeat.is_due(1120)
    assert heartbeat.seconds_left(1130) == 0
    heartbeat.last = 1130
    assert not heartbeat.is_due(1140)


def test_without_an_interval_there_is_no_heartbeat() -> None:
    heartbeat = HeartbeatTimer(interval=0, last=1000)
    assert not heartbeat.is_due(10**9)
    assert heartbeat.seconds_left(10**9) is None
