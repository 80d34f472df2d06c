"""Limits of small functions, each tried one below, at and one above."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, time
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, cast

import pytest

from eventlog.core.catalog.masks import LAST, MaskedColumns
from eventlog.core.options import Option, integer, number, parse_value
from eventlog.core.ranges import decode
from eventlog.core.values import ValueOptions, converter, parse_type
from eventlog.core.values.typed_values import WIDEST, decimal_text, whole_number, whole_value
from eventlog.errors import BadValue, ConfigError
from eventlog.publisher.ledger.delivery import Tried, TriedKind
from eventlog.publisher.run.health import growth_in_a_day
from eventlog.publisher.run.waiting import HeartbeatTimer, Timetable
from eventlog.publisher.upkeep.retention import size_in_words


def taken(call: Callable[[], object]) -> bool:
    with suppress(BadValue, ValueError):
        call()
        return True
    return False


def converted(type: str, text: str) -> Callable[[], object]:
    convert = converter(parse_type(type), ValueOptions())
    return lambda: convert(text)


def given_up_after(most: int) -> str:
    return Tried(4, kind=TriedKind.PART).limit_in_words(most)


def refused_option(value: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_value(Option(1, integer(), "a number"), value, "a")
    return str(caught.value)


last_of = MaskedColumns("t", ("a",), LAST).mask_of(cast(Any, None))


MOST: Final[Mapping[str, tuple[int, Callable[[int], bool]]]] = MappingProxyType(
    {
        "a whole number of twenty digits": (
            10**20 - 1,
            lambda n: whole_number(n) == n,
        ),
        "a whole decimal of twenty digits": (
            19,
            lambda n: whole_number(Decimal(f"1E{n}")) is not None,
        ),
        "an int of as many digits as Python writes": (
            10**4300 - 1,
            lambda n: isinstance(whole_value(n), int),
        ),
        "digits before the point": (
            WIDEST,
            lambda n: taken(lambda: decimal_text(Decimal(f"1E{n - 1}"))),
        ),
        "digits after the point": (
            WIDEST,
            lambda n: taken(lambda: decimal_text(Decimal(f"1E-{n}"))),
        ),
        "an integer of 64 bits": (2**63 - 1, lambda n: taken(converted("bigint", str(n)))),
        "an exponent of a decimal": (400, lambda n: taken(converted("numeric", f"1e{n}"))),
        "a whole number of an option": (9, lambda n: taken(lambda: integer(3, 9).parse(n))),
        "a number of an option": (9, lambda n: taken(lambda: number(3, 9).parse(n))),
        "the characters of an option that a message shows": (
            200,
            lambda n: "..." not in refused_option("x" * (n - 2)),  # and the quotes
        ),
        "the characters of a value that the mask hides": (
            8,
            lambda n: not str(last_of("v" * n)).endswith("v"),
        ),
        "bytes without a larger unit": (999, lambda n: size_in_words(n).endswith("bytes")),
        "attempts that a limit allows": (4, lambda n: given_up_after(n) != ""),
    }
)
"""The last number that is taken, by a function that shows whether one is."""

LEAST: Final[Mapping[str, tuple[int, Callable[[int], bool]]]] = MappingProxyType(
    {
        "a whole number of an option": (3, lambda n: taken(lambda: integer(3, 9).parse(n))),
        "a number of an option": (3, lambda n: taken(lambda: number(3, 9).parse(n))),
        "the distance between two ranges": (2, lambda n: taken(lambda: decode(f"[0, {n}, 0]"))),
        "a limit of attempts": (1, lambda n: given_up_after(n) != ""),
        "the seconds until a heartbeat": (10, lambda n: HeartbeatTimer(10, 0).is_due(n)),
        "the interval of heartbeats": (1, lambda n: HeartbeatTimer(n, 0).is_due(100)),
        "the interval of heartbeats that are awaited": (
            1,
            lambda n: HeartbeatTimer(n, 0).seconds_left(0) is not None,
        ),
        "the minute of a time of day": (
            30,
            lambda n: Timetable(datetime(2026, 3, 1, 12)).is_due(
                [time(12, 30)], datetime(2026, 3, 1, 12, n)
            ),
        ),
        "the seconds between two sizes of a log": (
            3600,
            lambda n: growth_in_a_day((0.0, 1), (n, 2)) is not None,
        ),
    }
)
"""The first number that is taken."""


@pytest.mark.parametrize("name", MOST)
def test_the_limit_is_the_last_that_is_taken(name: str) -> None:
    limit, is_taken = MOST[name]
    assert [is_taken(limit + step) for step in (-1, 0, 1)] == [True, True, False]


@pytest.mark.parametrize("name", LEAST)
def test_the_limit_is_the_first_that_is_taken(name: str) -> None:
    limit, is_taken = LEAST[name]
    assert [is_taken(limit + step) for step in (-1, 0, 1)] == [False, True, True]
