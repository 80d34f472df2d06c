"""Envelopes that a receiver fails for, while it answers others (spec/event-log.md 8.4).

A failure is suspicious if the receiver got the document and gave no usable answer: the document may
be the cause. An envelope that has failed so ``suspect_after`` times in a row is *accused*: its
objects wait, and one other envelope without an object in common is sent, the *probe*. If that is
answered, the receiver is there, and the accused envelope is parked: its objects wait as others that
are parked, and its halves are tried by themselves. If it is not, the receiver is away.

All of it is in memory. What a restart has to know, which envelopes are such parts, is in the
in-flight line.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from eventlog.core.clock import monotonic
from eventlog.errors import ReceiverAway, number_of
from eventlog.publisher.parking import Parked, Parking

_log = logging.getLogger("eventlog.publisher")


class Sent(Protocol):
    """An event of a document that was sent."""

    @property
    def sent_id(self) -> str: ...

    @property
    def object_id(self) -> Hashable: ...


class Apart(NamedTuple):
    """The event-ids of a document that the receiver has failed for, and its last answer.
    ``is_tried`` is True for one event that was tried alone.
    """

    sent_ids: frozenset[str]
    answer: str
    is_tried: bool = False


class _Row(NamedTuple):
    """The failures of an event's envelope in a row. ``answers`` is the number of documents answered
    before the first one.
    """

    failures: int
    answers: int


class _Accused(NamedTuple):
    """An envelope that waits for the answer to the probe, and its last failure."""

    events: Sequence[Sent]
    away: ReceiverAway
    failures: int


class Suspects:
    """The suspicious failures of a receiver, and what follows from them.

    ``apart`` are the envelopes, or parts of one, that have been parked since the last look: the
    owner of the in-flight lines records the halves of each as envelopes of their own, and a try of
    an event that is alone.
    """

    def __init__(self, parking: Parking[Any]) -> None:
        self.apart: list[Apart] = []
        self._parking = parking
        self._failures: dict[str, _Row] = {}  # by the event-id in the document
        self._answers = 0  # the number of documents that were answered
        self._accused: list[_Accused] = []
        self._probe: frozenset[str] | None = None
        self._has_tried = False  # a part has failed in this cycle
        # Objects that wait until the cycle ends, and how they were parked before.
        self._aside: dict[Hashable, Parked | None] = {}

    # --- before a document is sent ---

    @property
    def is_probing(self) -> bool:
        """True if the next document decides about accused ones: it is sent alone."""
        return bool(self._accused)

    @property
    def may_try(self) -> bool:
        """True if a part may be tried now: none has failed in this cycle, others have had as much
        time as the last failure took, and the receiver is not in doubt.
        """
        return not (self._accused or self._has_tried) and monotonic() >= self._parking.rests_until

    def chosen(self, events: Sequence[Sent]) -> bool:
        """Return True if these events may be sent now. While a probe is looked for, an envelope
        that has failed itself waits for the end of the cycle, and the first other one is the probe.
        """
        if not self._accused:
            return True
        if any(event.sent_id in self._failures for event in events):
            self._set_aside(events, "it waits for the answer to another envelope")
            return False
        self._probe = frozenset(event.sent_id for event in events)
        return True

    # --- after it ---

    def answered(self, events: Sequence[Sent]) -> None:
        """Note that the receiver has answered a document: what is accused is parked."""
        self._answers += 1
        if self._failures:
            self._forget(event.sent_id for event in events)
        self._park_accused()

    def failed(self, events: Sequence[Sent], away: ReceiverAway, suspect_after: int) -> bool:
        """Note a suspicious failure of an envelope. Return True if sending goes on without its
        objects, False if the receiver is away.
        """
        sent = frozenset(event.sent_id for event in events)
        none = _Row(0, self._answers)
        rows = [self._failures.get(sent_id, none) for sent_id in sent]
        for sent_id, row in zip(sent, rows, strict=True):
            self._failures[sent_id] = _Row(row.failures + 1, row.answers)
        if self._accused and sent == self._probe:
            return False
        failures = min(row.failures for row in rows) + 1
        if failures < suspect_after:
            if self._accused:  # it was on its way before the accused one failed
                self._set_aside(events, str(away))
            return bool(self._accused)
        self._accused.append(_Accused(events, away, failures))
        self._set_aside(events, str(away))
        if all(row.answers < self._answers for row in rows):
            self._park_accused()  # another one was answered since its first failure: it decides
        return True

    def tried(self, events: Sequence[Sent], away: ReceiverAway, max_tries: int, before: int) -> str:
        """Note that a part has failed again, and park its objects. Return why its only event is
        given up, empty if it is not. ``before`` is the number of earlier tries of the part, of
        which some may have been before a restart.

        Others get as much time as it took before the next part is tried. An event is given up only
        if the receiver has answered another document since the event was parked, or cut out of its
        part: a receiver that is away refuses nothing.
        """
        self._parking.rests_until = monotonic() + away.seconds
        self._has_tried = True
        if len(events) > 1:
            self._park(events, away, 1, self._answers)
        else:
            parked = self._parking.get(events[0].object_id)
            answers = None if parked is None else parked.answers
            tries = max(before, 0 if parked is None else parked.alone) + 1
            if 0 < max_tries <= tries and answers is not None and self._answers > answers:
                return f"given up after {tries} {'try' if tries == 1 else 'tries'} alone: {away}"
            self._park(events, away, 1, self._answers if answers is None else answers, tries)
        sent = frozenset(event.sent_id for event in events)
        self.apart.append(Apart(sent, str(away), is_tried=len(events) == 1))
        return ""

    def put_off(self, events: Sequence[Sent], tries: int, answer: str) -> None:
        """Let the objects of a part wait that may not be tried yet. A restart has found it after so
        many tries, if they are not parked.
        """
        found = []
        for event in events:
            parked = self._parking.get(event.object_id)
            if parked is None:
                found.append(event)
            else:
                self._parking.put(event.object_id, parked)
        if found:
            alone = tries if len(events) == 1 else 0
            self._park(found, ReceiverAway(answer), 0, self._answers, alone)

    # --- the end of a cycle ---

    def end(self) -> tuple[list[Any], ReceiverAway | None]:
        """End the waits for this cycle. Return the objects that wait no longer, and the failure of
        an envelope that is accused still, since there was no other envelope; None = there is none.
        """
        objects = list(self._aside)
        for object_id in objects:
            self._put_back(object_id)
        accused, probe = self._accused, self._probe
        self._accused, self._probe, self._has_tried = [], None, False
        if not accused or probe is not None:
            return objects, None
        # All others have failed too, each as a probe: each of them may be the probe again.
        kept = {event.sent_id for one in accused for event in one.events}
        self._forget(self._failures.keys() - kept)
        return objects, accused[0].away

    # --- parking ---

    def _park_accused(self) -> None:
        """Park the accused envelopes: the receiver has answered another one."""
        for events, away, failures in self._accused:
            sent = frozenset(event.sent_id for event in events)
            first = events[0].sent_id
            _log.warning(
                "the receiver has failed %d times in a row for the envelope of %s from event %s "
                "on, and answers another one: its objects are parked, and its halves are tried by "
                "themselves (%s)",
                failures,
                number_of(len(events), "event"),
                first,
                away,
                extra={"event_id": first, "code": "suspect_parked"},
            )
            for object_id in {event.object_id for event in events}:
                self._put_back(object_id)
            # A single event is the culprit by this answer; of several any of them may be.
            self._park(events, away, failures, self._answers - (len(events) == 1))
            self.apart.append(Apart(sent, str(away)))
            self._forget(sent)
        self._accused, self._probe = [], None

    def _forget(self, sent_ids: Iterable[str]) -> None:
        for sent_id in sent_ids:
            self._failures.pop(sent_id, None)

    def _park(
        self, events: Sequence[Sent], away: ReceiverAway, tries: int, answers: int, alone: int = 0
    ) -> None:
        """Park the objects of events after so many further tries: all of them are due at once."""
        due = self._parking.due_after(max(1, alone), monotonic())
        for event in reversed(events):  # the first event of an object names it
            before = self._parking.get(event.object_id)
            tried = 0 if before is None or before.event_id != event.sent_id else before.attempts
            parked = Parked(
                max(tried + tries, alone), due, str(away), event.sent_id, alone, answers
            )
            self._parking.put(event.object_id, parked)

    def _set_aside(self, events: Sequence[Sent], reason: str) -> None:
        now = monotonic()
        for event in events:
            object_id = event.object_id
            before = self._parking.get(object_id)
            self._aside.setdefault(object_id, before)
            attempts = 0 if before is None else before.attempts
            self._parking.put(object_id, Parked(attempts, now, reason, event.sent_id))

    def _put_back(self, object_id: Hashable) -> None:
        before = self._aside.pop(object_id, None)
        if before is None:
            self._parking.release(object_id)
        else:
            self._parking.put(object_id, before)
