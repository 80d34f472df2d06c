"""The event-ids of a log (spec/event-log.md 7.4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from eventlog.core.rows.event_ids import (
    attempt_of,
    epoch_suffix,
    new_epoch,
    raised_at,
    record_id_of,
)

EPOCH = "e202611212045009f3c01ab"
NOW = datetime(2026, 11, 21, 20, 45, 0, 123456, tzinfo=UTC)


def test_an_epoch_is_the_second_of_the_raise_in_utc_and_32_random_bits() -> None:
    epoch = new_epoch(NOW.astimezone(timezone(timedelta(hours=5))))
    assert epoch[:14] == "20261121204500"
    assert len(epoch) == 22
    int(epoch[14:], 16)
    assert raised_at(epoch) == NOW.replace(microsecond=0)


def test_two_raises_of_one_second_draw_two_epochs() -> None:
    assert len({new_epoch(NOW) for _ in range(100)}) == 100


def test_without_an_epoch_an_id_is_the_record_id_alone() -> None:
    assert epoch_suffix("") == ""
    assert raised_at("") is None


@pytest.mark.parametrize(
    ("event_id", "sending"),
    [("17", 1), ("17.2", 2), (f"17.{EPOCH}", 1), (f"17.{EPOCH}.12", 12)],
)
def test_every_form_of_an_id_contains_its_record_id_and_its_attempt(
    event_id: str, sending: int
) -> None:
    assert (record_id_of(event_id), attempt_of(event_id)) == (17, sending)
