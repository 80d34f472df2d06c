"""The events of a followed source that are not sent again after a restart, although the position is
before them (spec/change-model.md 6.4).
"""

from __future__ import annotations

from eventlog.model import Change, ChangeOp
from eventlog.publisher.stream import Failure
from eventlog.publisher.stream.failures import Failures
from eventlog.publisher.stream.pending_event import PendingEvent
from eventlog.publisher.stream.recorded import decode


def event(number: int) -> PendingEvent:
    change = Change(None, "item", ChangeOp.DELETE, (("id", number),), {"id": number})
    return PendingEvent(number, f"id-{number}", ((None, "item", number),), change, "")


def refuse(failures: Failures, *numbers: int) -> None:
    for number in numbers:
        failures.refuse(event(number), Failure(f"id-{number}", "receiver", "no"), 1)


def test_an_entry_stays_until_the_position_has_passed_each_of_its_events() -> None:
    failures = Failures()
    refuse(failures, 4, 8)
    for passed in (4, 6, 8):
        _, entries = failures.take(passed, is_at_end=False)
        (settled,) = [decode(number, content).settled for number, content in entries.items()]
        assert [one.sent_id for one in settled] == ["id-4", "id-8"]
    assert failures.take(10, is_at_end=False)[1] == {}


def test_an_entry_that_was_read_stays_until_each_of_its_events_is_read_again_and_passed() -> None:
    before = Failures()
    refuse(before, 4, 8)
    ((number, content),) = before.take(2, is_at_end=False)[1].items()
    failures = Failures()
    failures.restore(number, content, decode(number, content).settled)
    assert failures.is_settled(12, "id-4", event(4).change)
    assert failures.take(14, is_at_end=False)[1] == {number: content}
    assert failures.is_settled(16, "id-8", event(8).change)
    assert failures.take(18, is_at_end=False)[1] == {}
