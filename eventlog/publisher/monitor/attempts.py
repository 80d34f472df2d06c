"""The newest attempts to send documents since the start of the process. The page of an event and
``eventlog explain`` show them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from eventlog.core.rows.event_ids import row_or_object
from eventlog.errors import ReceiverUnavailable, Reply
from eventlog.model import Document, Level
from eventlog.publisher.context.observer import HALVES, NO_ANSWER, Attempt, Outcome

_MAX_EVENTS: Final = 50_000
"""The maximum number of events in the kept attempts of one kind. Attempts with success are one
kind, all others are the second kind.
"""
_MAX_DOCUMENTS: Final = 2000
"""The maximum number of kept attempts of one kind, each with the beginning of an answer."""
_MAX_SHOWN: Final = 20


_Kept = tuple[float, float, int, int, Sequence[str], Outcome]
"""The time, the seconds, the numbers of delivery and document, the event-ids, and what came back.
A plain tuple, since one is made for each document.
"""


class _Newest:
    """The newest attempts of one kind."""

    __slots__ = ("events", "kept")

    def __init__(self) -> None:
        self.kept: deque[_Kept] = deque()
        self.events = 0

    def add(self, one: _Kept) -> None:
        """Add an attempt, and forget the oldest attempts if there are too many."""
        kept = self.kept
        kept.append(one)
        self.events += len(one[4])
        while (self.events > _MAX_EVENTS and len(kept) > 1) or len(kept) > _MAX_DOCUMENTS:
            self.events -= len(kept.popleft()[4])


class Attempts:
    """The newest attempts. Failures are kept apart from successes, which are many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._successes, self._failures = _Newest(), _Newest()

    def add(self, at: float, seconds: float, document: Document, outcome: Outcome) -> None:
        """Add an attempt."""
        delivery_no, document_no, event_ids = document[:3]
        is_failure = isinstance(outcome, ReceiverUnavailable) or (
            # as few answers are
            bool(outcome.results or outcome.general)
            and outcome.worst(event_ids).level is not Level.SUCCESS
        )
        newest = self._failures if is_failure else self._successes
        with self._lock:
            newest.add((at, seconds, delivery_no, document_no, event_ids, outcome))

    def of(self, event_id: str) -> list[Attempt]:
        """Return the newest attempts to send an event, the newest first. ``event_id`` is a
        record_id or any event-id of the event. The event is also found under its later event-ids
        (spec/event-log.md 7.4).
        """
        with self._lock:
            kept = [*self._failures.kept, *self._successes.kept]
        kept.sort(key=itemgetter(0))
        return list(islice(_found(reversed(kept), event_id), _MAX_SHOWN))


def is_event(sent_id: str, event_id: str) -> bool:
    """Return True if ``sent_id`` is an event-id of the event that ``event_id`` (a record_id, or any
    event-id of the event) names. The event-ids of an event differ only in epoch and number, which
    the event-ids of another source do not have.
    """
    wanted = row_or_object(event_id) or event_id
    return sent_id in (event_id, str(wanted)) or sent_id.startswith(f"{wanted}.")


def _found(kept: Iterable[_Kept], event_id: str) -> Iterator[Attempt]:
    for at, seconds, delivery_no, document_no, event_ids, outcome in kept:
        for sent_id in event_ids:
            if is_event(sent_id, event_id):
                events = len(event_ids)
                came_back = _came_back(outcome, sent_id, events)
                yield Attempt(
                    round(at, 3), seconds, delivery_no, document_no, events, sent_id, *came_back
                )


def _came_back(outcome: Outcome, event_id: str, events: int) -> tuple[str, str, str, str]:
    """Return level, message, status and answer."""
    status, text = (outcome.reply or Reply()).status, (outcome.reply or Reply()).text
    if isinstance(outcome, ReceiverUnavailable):
        return NO_ANSWER, str(outcome), status, text
    result = outcome.result(event_id)
    is_halved = outcome.culprit_unknown and events > 1
    return HALVES if is_halved else result.level.name.lower(), result.message, status, text
