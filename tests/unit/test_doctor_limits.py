"""From which number on doctor reports something: one below, at and one above (spec/event-log.md 10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import pytest

from eventlog.sql.doctor import (
    HeldSnapshot,
    Limits,
    OpenTransaction,
    TableStorage,
    age,
    judge_clock,
    judge_event_time,
    judge_transactions,
)
from eventlog.sql.doctor.consumers import judge_before_epoch, judge_beyond, judge_consumer
from eventlog.sql.doctor.rows import at_least, judge_in_flight

LIMITS: Final = Limits()
NOON: Final = datetime(2026, 3, 1, 12)


def snapshot(seconds: float | None, transactions: int) -> bool:
    return HeldSnapshot(
        "session", None, 7, "app", "report", None, None, seconds, transactions, "801", "end it"
    ).is_old(LIMITS)


def slows(part: str, live: int, dead: int) -> bool:
    return TableStorage(part, part, live, dead, None, True, 0).slows_reading(LIMITS)


def opened(seconds: float) -> OpenTransaction:
    return OpenTransaction(7, "app", None, None, seconds, writes=True, wrote_log=True)


FROM: Final[Mapping[str, tuple[int, Callable[[int], object]]]] = MappingProxyType(
    {
        "seconds of a snapshot": (3600, lambda n: snapshot(n, 1000)),
        "transactions after a snapshot": (1000, lambda n: snapshot(3600, n)),
        "transactions after a snapshot of unknown age": (10**6, lambda n: snapshot(None, n)),
        "dead rows of the log": (100_000, lambda n: slows("log", 1, n)),
        "dead rows of a long log": (200_000, lambda n: slows("log", 10**6, n)),
        "dead rows of an internal table": (20_000, lambda n: slows("error", 1, n)),
        "seconds of a transaction": (60, lambda n: [*judge_transactions([opened(n)], LIMITS)]),
        "a consumer's number": (8, lambda n: [*judge_beyond("copy", n, 8)]),
        "rows that were read": (10_000, lambda n: at_least(3, n, LIMITS).startswith("at least")),
        "seconds in minutes": (120, lambda n: age(n).endswith("minutes")),
        "seconds in hours": (7200, lambda n: age(n).endswith("hours")),
        "seconds in days": (172_800, lambda n: age(n).endswith("days")),
    }
)
"""The first number that is reported."""

ABOVE: Final[Mapping[str, tuple[int, Callable[[int], object]]]] = MappingProxyType(
    {
        "seconds of a row ahead of the clock": (
            60,
            lambda n: [*judge_event_time([(7, NOON, n)], "utc", LIMITS, is_utc=False)],
        ),
        "seconds between two clocks": (2, lambda n: [*judge_clock(n, 0, LIMITS)]),
        "seconds of a consumer": (600, lambda n: [*judge_consumer("copy", 1, n, True, LIMITS)]),
        "seconds in flight": (
            600,
            lambda n: [one for one in judge_in_flight(1, 1, n, True, LIMITS) if one.fix],
        ),
        "the epoch after a consumer's beginning": (
            0,
            lambda n: [*judge_before_epoch("copy", NOON, NOON + timedelta(seconds=n))],
        ),
    }
)
"""The last number that is not reported."""


@pytest.mark.parametrize("name", FROM)
def test_doctor_reports_from_the_limit_on(name: str) -> None:
    limit, reports = FROM[name]
    assert [bool(reports(limit + step)) for step in (-1, 0, 1)] == [False, True, True]


@pytest.mark.parametrize("name", ABOVE)
def test_doctor_reports_what_is_above_the_limit(name: str) -> None:
    limit, reports = ABOVE[name]
    assert [bool(reports(limit + step)) for step in (-1, 0, 1)] == [False, False, True]
