"""The changes and events of a followed source that are not sent again: the rows for the table of
failures, and the events to leave out when the source is read again (spec/change-model.md 6.4).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from eventlog.changes import json_form as change_json
from eventlog.model import Change
from eventlog.publisher.stream import Failure
from eventlog.publisher.stream.pending_event import PendingEvent
from eventlog.publisher.stream.recorded import RecordedDocument, SettledEvent, encode

_MOST: Final = 10_000
"""The maximum number of failures that wait until the position passes them, and of event-ids in
entries. If a very long transaction has more, failures are written before the position passes them.
After a crash more events are sent again, and their failures are written a second time.
"""


class FailedEvent(NamedTuple):
    """A failure with its event."""

    failure: Failure
    event: PendingEvent | None = None
    """The event, None for a change that makes no event."""
    attempts: int = 0
    """How often the event was sent."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """Events of an entry, each with the number that it got when it was read again; None = it was
    not read again yet.
    """

    content: str
    numbers: dict[SettledEvent, int | None]

    def is_passed(self, passed: int) -> bool:
        return all(number is not None and number < passed for number in self.numbers.values())


class Failures:
    """The failures of one session of the connections.

    A change that makes no event fails each time it is read, so it is written with the position that
    passes it. An event that was refused or given up is written with the next save. The event-id
    stays in an entry until the position passes the event. So the event is not sent again after a
    crash: later events of its object may have been sent.
    """

    def __init__(self) -> None:
        self._unread: list[tuple[int, FailedEvent]] = []
        self._refused: list[tuple[PendingEvent, FailedEvent]] = []
        self._entries: dict[int, _Entry] = {}
        self._by_id: dict[str, tuple[_Entry, SettledEvent]] = {}  # those that may be read again

    def restore(self, entry_no: int, content: str, events: Iterable[SettledEvent]) -> None:
        """Add the events of an entry that was read."""
        entry = self._entries[entry_no] = _Entry(content, dict.fromkeys(events))
        self._by_id.update({event.sent_id: (entry, event) for event in entry.numbers})

    def make_no_event(self, number: int, failure: Failure) -> None:
        """Add a change that makes no event."""
        self._unread.append((number, FailedEvent(failure)))

    def refuse(self, event: PendingEvent, failure: Failure, attempts: int) -> None:
        """Add an event that the receiver has refused, or that was given up, after ``attempts``
        attempts.
        """
        self._refused.append((event, FailedEvent(failure, event, attempts)))

    def is_settled(self, number: int, sent_id: str, change: Change) -> bool:
        """Return True if an event, read again under this number, is not sent again."""
        entry, event = self._by_id.get(sent_id, (None, None))
        if entry is None or event is None or event.digest != _digest(change):
            return False
        entry.numbers[event] = number
        return True

    def take(self, passed: int, *, is_at_end: bool) -> tuple[list[FailedEvent], dict[int, str]]:
        """Return the failures to write with a position that has passed the events with numbers
        below ``passed``, and the contents of the entries to keep, by their numbers. At the end of a
        source all failures are written.
        """
        everything = is_at_end or len(self._unread) > _MOST
        failures = [one for number, one in self._unread if everything or number < passed]
        failures += [failure for _, failure in self._refused]
        ahead = {
            SettledEvent(event.sent_id, _digest(event.change)): event.number
            for event, _ in self._refused
            if event.number >= passed
        }
        self._unread = [one for one in self._unread if not everything and one[0] >= passed]
        self._refused = []
        known = sum(len(entry.numbers) for entry in self._entries.values())
        if ahead and known + len(ahead) <= _MOST:
            content = encode(RecordedDocument([], settled=list(ahead)))
            self._entries[min(ahead.values())] = _Entry(content, dict(ahead))
        for entry_no, entry in list(self._entries.items()):
            if entry.is_passed(passed):
                del self._entries[entry_no]
                for event in entry.numbers:
                    self._by_id.pop(event.sent_id, None)
        return failures, {entry_no: entry.content for entry_no, entry in self._entries.items()}


def _digest(change: Change) -> str:
    return hashlib.sha256(change_json.dumps(change).encode()).hexdigest()[:16]
