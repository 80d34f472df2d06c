"""The tests that a format must pass: round trips, reported losses, garbage, order, and the same
bytes after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventlog.changes.format import Format, Report
from eventlog.changes.losses import Loss
from eventlog.changes.publishing import EventWriter, Need, Publishing
from eventlog.conversion import in_own_options, write
from eventlog.errors import EventlogError
from eventlog.model import Change
from eventlog.testing import samples

_NOW = datetime(2024, 5, 10, 12, 0, tzinfo=UTC)
_ODD = (Decimal("NaN"), float("inf"), 2**64, "\ud800", "\0", b"", "x" * 70_000)


@dataclass(frozen=True)
class FormatCase:
    """A format under test."""

    format: Format
    reader: Mapping[str, Any] = field(default_factory=dict)
    """The options for reading."""
    writer: Mapping[str, Any] = field(default_factory=dict)
    """The options for writing."""
    publish: Mapping[str, Any] = field(default_factory=dict)
    """The options for publishing."""
    in_records: bool = False
    """True if the format is published only as Kafka records."""

    def event_writer(self) -> EventWriter[Any]:
        """Return a new event writer. Skips the test if the format is not published."""
        if not self.format.can("publish"):
            pytest.skip(f"{self.format.name} is not published")
        kind = self.format.publish_options
        options = None if kind is None else kind(**self.publish)
        return self.format.publish(
            options, Publishing(in_records=self.in_records, utc_now=lambda: _NOW)
        )

    def round_trip(self, changes: list[Change], place: Path) -> tuple[list[Change], Report]:
        """Write changes and read them back. Skips the test if the format cannot write or cannot
        read.
        """
        can = self.format.can
        if not can("read_changes") or not (can("write_changes") or can("publish")):
            pytest.skip(f"{self.format.name} is not both read and written")
        name, catalog, report = self.format.name, {"catalog": samples.CATALOG}, Report()
        write(
            self.format,
            changes,
            str(place),
            in_own_options(name, "writer", {**catalog, **self.writer}),
            report,
        )
        reader = in_own_options(name, "reader", {**catalog, **self.reader})
        return list(self.format.read(str(place), reader, report)), report


def _place(case: FormatCase, directory: Path) -> Path:
    return directory / f"out{case.format.endings['lines']}"


def test_changes_are_read_back_as_they_were_written(
    format_case: FormatCase, tmp_path: Path
) -> None:
    back, report = format_case.round_trip(list(samples.CHANGES), _place(format_case, tmp_path))
    assert [(one.table, one.op, one.key) for one in back] == [
        (one.table, one.op, one.key) for one in samples.CHANGES
    ], report.problems
    for read, wrote in zip(back[:2], samples.CHANGES[:2], strict=True):
        assert read.after is not None
        assert wrote.after is not None
        # A format may write only the changed columns of an update.
        assert read.after.keys() >= (wrote.changed or wrote.after.keys())
        assert dict(read.after) == {name: wrote.after[name] for name in read.after}


_LOSSES_OF: Final = {
    "commit_time": {Loss.COMMIT_TIME, Loss.MICROSECONDS, Loss.FRACTIONS},
    "user": {Loss.USER},
    "transaction_id": {Loss.TRANSACTION, Loss.TRANSACTION_ID},
    "event_number": {Loss.TRANSACTION},
    "last_in_transaction": {Loss.TRANSACTION},
}
"""By field of a change, the losses that report that the field is missing."""


def test_a_field_of_a_change_that_is_not_read_back_is_declared_as_a_loss(
    format_case: FormatCase, tmp_path: Path
) -> None:
    wrote = samples.CHANGES[0]._replace(
        transaction_id=f"{7:032X}", event_number=1, last_in_transaction=True
    )
    (read,), report = format_case.round_trip([wrote], _place(format_case, tmp_path))
    silent = [
        name
        for name, losses in _LOSSES_OF.items()
        if getattr(read, name) != getattr(wrote, name) and losses.isdisjoint(map(Loss, report.lost))
    ]
    name = format_case.format.name
    assert not silent, (
        f"{name} drops {', '.join(silent)} silently. Add what is dropped to the format's `loses`"
    )


@pytest.mark.parametrize("value", _ODD, ids=lambda value: repr(value)[:20])
def test_a_value_that_is_not_read_back_is_reported(
    value: Any, format_case: FormatCase, tmp_path: Path
) -> None:
    insert = samples.CHANGES[0]
    change = insert._replace(after={**(insert.after or {}), "name": value})
    try:
        back, report = format_case.round_trip([change], _place(format_case, tmp_path))
    except EventlogError:
        return
    is_same = [repr(one.after and one.after.get("name")) for one in back] == [repr(value)]
    assert (
        is_same
        or report.counters
        or [type(one.after and one.after.get("name")) for one in back] == [str]
    )


@given(garbage=st.binary(max_size=300))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_garbage_is_refused_and_raises_nothing_else(
    garbage: bytes, format_case: FormatCase, tmp_path: Path
) -> None:
    if not format_case.format.can("read_changes"):
        pytest.skip(f"{format_case.format.name} is not read")
    place = _place(format_case, tmp_path)
    place.write_bytes(garbage)
    try:
        list(format_case.format.read(str(place), dict(format_case.reader), Report()))
    except EventlogError as error:
        assert str(error)  # noqa: PT017 - both ways are allowed


def test_the_same_delivery_gives_the_same_bytes_after_a_restart(format_case: FormatCase) -> None:
    classes = samples.catalog()
    written = samples.events(classes)
    first = format_case.event_writer().first(1, "", None)
    delivery = samples.DeliverySample(1, first, samples.origins(written))
    before, after = (
        format_case.event_writer().document(classes, delivery, 1, written) for _ in range(2)
    )
    assert (before.body, before.records, before.refused) == (
        after.body,
        after.records,
        after.refused,
    )
    assert before.body or before.records
    assert list(before.event_ids) == ["1", "2", "3"]


def test_each_event_has_one_piece_and_pieces_are_in_the_order_of_events(
    format_case: FormatCase,
) -> None:
    classes = samples.catalog()
    written = samples.events(classes)
    together, alone = format_case.event_writer(), format_case.event_writer()
    first = together.first(1, "", None)
    assert bool(first) is (Need.NUMBERS in together.needs)
    delivery = samples.DeliverySample(1, first, samples.origins(written))
    pieces = together.write(classes, delivery, written)
    assert pieces == [alone.write(classes, delivery, [event])[0] for event in written]
    assert len(set(map(repr, pieces))) == len(written)
