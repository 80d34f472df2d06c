"""The attempts to send documents since the start of the process, of which the newest are kept: the
page of an event and ``eventlog explain`` show them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from eventlog.core.rows.event_ids import is_of_snapshot
from eventlog.errors import ReceiverUnavailable, Reply
from eventlog.model import Answer, Document, Level
from eventlog.publisher.context.observer import HALVES, NO_ANSWER, Attempt, Outcome

_MAX_EVENTS: Final = 50_000
"""The most events of the kept attempts of one kind: of those with success, and of the others."""
_MAX_DOCUMENTS: Final = 2000
"""The most attempts of one kind, each with the beginning of an answer."""
_MAX_SHOWN: Final = 20


class _Kept(NamedTuple):
    at: float
    seconds: float
    document: Document
    """Without its content."""
    outcome: Outcome


class Attempts:
    """The newest attempts. Failures are kept apart from successes, which are many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds = (deque[_Kept](), deque[_Kept]())
        self._events = [0, 0]

    def add(self, at: float, seconds: float, document: Document, outcome: Outcome) -> None:
        """Add an attempt, and forget the oldest ones that are too many."""
        bare = Document(document.delivery_no, document.document_no, document.event_ids, b"")
        is_success = isinstance(outcome, Answer) and (
            outcome.worst(document.event_ids).level is Level.SUCCESS
        )
        with self._lock:
            kept = self._kinds[is_success]
            kept.append(_Kept(at, seconds, bare, outcome))
            self._events[is_success] += len(bare.event_ids)
            while len(kept) > _MAX_DOCUMENTS or (
                self._events[is_success] > _MAX_EVENTS and len(kept) > 1
            ):
                self._events[is_success] -= len(kept.popleft().document.event_ids)

    def of(self, event_id: str) -> list[Attempt]:
        """Return the newest attempts to send an event, the newest first. ``event_id`` is a
        record_id or any event-id of the event: it is found under its later event-ids
        (spec/event-log.md 7.4), too.
        """
        with self._lock:
            kept = [*self._kinds[False], *self._kinds[True]]
        kept.sort(key=attrgetter("at"))
        return list(islice(_found(reversed(kept), event_id), _MAX_SHOWN))


def is_event(sent_id: str, event_id: str) -> bool:
    """Return True if a sent event-id is of an event, which a record_id or any of its event-ids
    names: the rows of an event are those of its first row, without epoch and number.
    """
    wanted = event_id if is_of_snapshot(event_id) else event_id.partition(".")[0]
    return sent_id == wanted or sent_id.startswith(f"{wanted}.")


def _found(kept: Iterable[_Kept], event_id: str) -> Iterator[Attempt]:
    for at, seconds, document, outcome in kept:
        for sent_id in document.event_ids:
            if is_event(sent_id, event_id):
                events = len(document.event_ids)
                which = (document.delivery_no, document.document_no, events)
                yield Attempt(at, seconds, *which, sent_id, *_came_back(outcome, sent_id, events))


def _came_back(outcome: Outcome, event_id: str, events: int) -> tuple[str, str, str, str]:
    """Return level, message, status and answer."""
    status, text = (outcome.reply or Reply()).status, (outcome.reply or Reply()).text
    if isinstance(outcome, ReceiverUnavailable):
        return NO_ANSWER, str(outcome), status, text
    result = outcome.result(event_id)
    is_halved = outcome.culprit_unknown and events > 1
    return HALVES if is_halved else result.level.name.lower(), result.message, status, text
