"""Things that are read twice come as they were, in memory or in a file."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice

import pytest

from eventlog.files.text import spooled
from eventlog.model import Change, ChangeOp, Lob


@pytest.mark.parametrize("number", [0, 1, 500, 1001])
def test_everything_is_given_again_in_its_order(number: int) -> None:
    with spooled(iter(range(number))) as again:
        assert list(again()) == list(range(number))
        assert list(again()) == list(range(number))


def test_what_was_left_half_way_begins_again() -> None:
    with spooled(["x" * 100_000] * 400) as again:  # 40 MB, which go to a file
        assert len(list(islice(again(), 3))) == 3
        assert sum(map(len, again())) == 40_000_000


def test_changes_keep_their_types() -> None:
    row = {
        "id": 7,
        "price": Decimal("1.50"),
        "made": datetime(2024, 5, 10, tzinfo=UTC),
        "scan": Lob(b"\0"),
        "tags": ("a",),
    }
    change = Change("app", "item", ChangeOp.INSERT, (("id", 7),), None, row, extras={"task": "t"})
    with spooled([change]) as again:
        assert list(again()) == [change]
