"""Limits of the Qlik formats: one below, at and one above (formats/qlik.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import pytest

from eventlog.errors import ConfigError, NotExpressible
from eventlog.qlik.columns import columns_from_json
from eventlog.qlik.messages.message_tables import checked_topic
from eventlog.qlik.sequence import transaction_text


def taken(call: Callable[[], object]) -> bool:
    with suppress(ConfigError, NotExpressible):
        call()
        return True
    return False


def size_taken(name: str) -> Callable[[int], bool]:
    column = {"name": "a", "type": "NUMERIC"}
    return lambda n: taken(lambda: columns_from_json([{**column, name: n}], what="table t"))


MOST: Final[Mapping[str, tuple[int, Callable[[int], bool]]]] = MappingProxyType(
    {
        "length": (2**31 - 1, size_taken("length")),
        "precision": (2**17, size_taken("precision")),
        "scale": (2**17, size_taken("scale")),
        "pk": (1024, size_taken("pk")),
        "characters of a topic": (249, lambda n: taken(lambda: checked_topic("t" * n))),
        "digits of a transaction id": (32, lambda n: transaction_text("a" * n).endswith("A" * n)),
    }
)
LEAST: Final[Mapping[str, tuple[int, Callable[[int], bool]]]] = MappingProxyType(
    {
        "length": (0, size_taken("length")),
        "scale": (-(2**17), size_taken("scale")),
        "digits of a transaction id": (
            1,
            lambda n: n >= 0 and transaction_text("a" * n) == ("A" * n).zfill(32),
        ),
    }
)


@pytest.mark.parametrize("name", MOST)
def test_the_limit_is_the_last_that_is_taken(name: str) -> None:
    limit, is_taken = MOST[name]
    assert [is_taken(limit + step) for step in (-1, 0, 1)] == [True, True, False]


@pytest.mark.parametrize("name", LEAST)
def test_the_limit_is_the_first_that_is_taken(name: str) -> None:
    limit, is_taken = LEAST[name]
    assert [is_taken(limit + step) for step in (-1, 0, 1)] == [False, True, True]
