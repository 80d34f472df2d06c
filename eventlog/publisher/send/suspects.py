"""Documents that a receiver fails for, while it answers others (spec/event-log.md 8.4).

A failure is suspicious if the receiver got the document and gave no usable answer: the document may
be the cause. It is *suspected* at once: its objects wait, and one other document without an object
in common is sent, the *probe*. If that is answered, the receiver is available, and the suspected
document waits for its second attempt while all others go on. If it fails again, it is *isolated*:
its halves are tried by themselves. If the probe is not answered, or there is none, the receiver is
unavailable. After ``isolate_after`` such cycles in a row (the failure streak) the suspected
document is cut in halves, each of which is the probe for the other. A suspected document of a
single event cannot be cut: then the probe is, and parts may be tried.

An object in no failing document waits at most two time-outs per failing document before it, and one
more with a pause where the probe fails too.

The in-flight entry records what is needed after a restart: the parts of isolated documents with
their attempts, and the cycles without an answer from the second one on. The owner of the entry
writes it together with the marks; nothing is recorded while the receiver cannot be reached.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from eventlog.core.clock import monotonic
from eventlog.errors import ReceiverUnavailable, number_of
from eventlog.publisher.send.parking import Parked, Parking

_log = logging.getLogger("eventlog.publisher")


class Sent(Protocol):
    """An event of a document that was sent."""

    @property
    def sent_id(self) -> str: ...

    @property
    def object_id(self) -> Hashable: ...


class Doubt(Enum):
    """What follows from a suspicious failure of a document."""

    WAITS = "its objects wait, and sending continues without them"
    ISOLATED = "its objects are parked, and its halves are tried separately"
    UNAVAILABLE = "it was the probe: the receiver is unavailable"


class Suspect(NamedTuple):
    """The events of a document that waits for the answer to another document, and its
    last failure.
    """

    events: Sequence[Sent]
    failure: ReceiverUnavailable


class Suspects:
    """The suspicious failures of a receiver, and the decisions that follow from them.

    ``failure_streak`` is the number of consecutive cycles that each had such a failure and no
    answer.
    """

    def __init__(self, parking: Parking[Any], failure_streak: int = 0) -> None:
        self.failure_streak = failure_streak
        self._parking = parking
        # How many documents were answered before the first failure, by the event-id in the
        # document.
        self._failed: dict[str, int] = {}
        self._answers = 0  # the number of documents that were answered
        self._suspected: list[Suspect] = []
        self._probe: Sequence[Sent] = ()
        self._failed_probe: Sequence[Sent] = ()  # the probe of the last cycle, which had no answer
        self._has_tried = False  # a part has failed in this cycle
        # True if each suspected document is a single event, so that cutting it decides nothing.
        self._needs_parts = False
        # Objects that wait until the cycle ends, and how they were parked before.
        self._isolated_objects: dict[Hashable, Parked | None] = {}

    # --- before a document is sent ---

    @property
    def is_probing(self) -> bool:
        """True if the next document is the probe, which is sent alone."""
        return bool(self._suspected)

    def due(self, now: float) -> list[Any]:
        """Return the parked objects that are due, without those that wait until the cycle ends."""
        return self._parking.due(now, self._isolated_objects)

    @property
    def may_try(self) -> bool:
        """True if a part may be tried now: none has failed in this cycle, others have had as much
        time as the last failure took, and the receiver is not in doubt, or only a part may decide.
        """
        if self._has_tried or (self._suspected and not self._needs_parts):
            return False
        return monotonic() >= self._parking.rests_until

    def chosen(self, events: Sequence[Sent]) -> bool:
        """Return True if these events may be sent now. While a probe is needed, a document that has
        failed itself waits for the end of the cycle, and the first other document becomes the
        probe.
        """
        if not self._suspected:
            return True
        if any(event.sent_id in self._failed for event in events):
            self._set_aside(events, "it waits for the answer to another document")
            return False
        self._probe = events
        return True

    # --- after it ---

    def answered(self, events: Sequence[Sent]) -> None:
        """Record that the receiver has answered a document, so that it is available. Suspect
        documents now wait for their second attempt.
        """
        self._answers += 1
        self.failure_streak, self._needs_parts = 0, False
        if self._failed:
            self._forget(event.sent_id for event in events)
        for suspected in self._suspected:
            self._put_back(suspected)
            # Other documents get as much time as the failure took.
            self._parking.rests_until = monotonic() + suspected.failure.seconds
            self._park(*suspected, 1, self._answers)
        self._suspected, self._probe = [], ()

    def failed(self, events: Sequence[Sent], failure: ReceiverUnavailable) -> Doubt:
        """Record a suspicious failure of a document, and return what it means."""
        first = [self._failed.setdefault(event.sent_id, self._answers) for event in events]
        if self._suspected and events is self._probe:
            self._postpone(events)
            return Doubt.UNAVAILABLE
        suspected = Suspect(events, failure)
        if all(answers < self._answers for answers in first):
            self._isolate(suspected)  # another document was answered since its first failure
            return Doubt.ISOLATED
        self._suspected.append(suspected)
        self._postpone(events)
        self._set_aside(events, str(failure))
        return Doubt.WAITS

    def settled(self, events: Sequence[Sent]) -> None:
        """Record that events need no answer any more, so that their objects wait no longer."""
        done = {event.sent_id for event in events}
        self._forget(done)
        for suspected in self._suspected:
            for event in suspected.events:
                if event.sent_id in done:
                    self._isolated_objects.pop(event.object_id, None)
        self._suspected = [
            Suspect(rest, suspected.failure)
            for suspected in self._suspected
            if (rest := [event for event in suspected.events if event.sent_id not in done])
        ]

    def tried(
        self, events: Sequence[Sent], failure: ReceiverUnavailable, max_attempts: int, before: int
    ) -> str:
        """Record that a part has failed again, and park its objects. Return the reason if its only
        event is given up, otherwise the empty text. ``before`` is the number of earlier attempts at
        the part, some of which may have been made before a restart.

        Other documents get as much time as the failure took before the next part is tried. An event
        is given up only if the receiver has answered another document since the event was parked or
        separated from its part, since a receiver that is unavailable does not refuse events.
        """
        self._parking.rests_until = monotonic() + failure.seconds
        self._has_tried = True
        if events is self._probe:
            self._probe = ()  # a part decides nothing by its failure
        if len(events) > 1:
            self._park(events, failure, 1, self._answers)
        else:
            parked = self._parking.get(events[0].object_id)
            answers = None if parked is None else parked.answers
            tries = max(before, 0 if parked is None else parked.alone) + 1
            if 0 < max_attempts <= tries and answers is not None and self._answers > answers:
                return f"given up after {tries} {'try' if tries == 1 else 'tries'} alone: {failure}"
            self._park(events, failure, 1, self._answers if answers is None else answers, tries)
        return ""

    def put_off(self, events: Sequence[Sent], tries: int, answer: str) -> None:
        """Let the objects of a part wait because the part may not be tried yet. If they are not
        parked, the part was read from the in-flight entry after a restart, with ``tries`` attempts
        so far.
        """
        found = []
        for event in events:
            parked = self._parking.get(event.object_id)
            if parked is None:
                found.append(event)
            else:  # one that got retry may be due before parts may be tried again
                due = max(parked.due, self._parking.rests_until)
                self._parking.put(event.object_id, parked._replace(due=due))
        if found:
            alone = tries if len(events) == 1 else 0
            self._park(found, ReceiverUnavailable(answer), 0, self._answers, alone)

    # --- the end of a cycle ---

    def end(self) -> tuple[list[Any], list[Suspect]]:
        """End the waits of this cycle. Return the objects that no longer wait, and the documents
        that are still suspect because no other document was answered.
        """
        objects = list(self._isolated_objects)
        for object_id in objects:
            self._restore(object_id)
        suspected, probe = self._suspected, self._probe
        self._failed_probe = probe
        self._suspected, self._probe, self._has_tried = [], (), False
        if suspected and not probe:
            # All other documents have failed as probes, too, so each of them may be the probe
            # again.
            kept = {event.sent_id for one in suspected for event in one.events}
            self._forget(self._failed.keys() - kept)
        return objects, suspected

    def to_cut(self, suspected: Sequence[Suspect], isolate_after: int) -> frozenset[str] | None:
        """Note that a cycle has ended without an answer. Return the event-ids of the document to be
        cut in halves, empty if it is too early: a suspect, or the probe if each suspect is a single
        event. None if further tries decide nothing.
        """
        self.failure_streak += 1
        if self.failure_streak < isolate_after:
            return frozenset()
        self._needs_parts = all(len(events) == 1 for events, _ in suspected)
        for events in (*(one.events for one in suspected), self._failed_probe):
            if len(events) > 1:
                sent = frozenset(event.sent_id for event in events)
                self._forget(sent)
                return sent
        return None

    # --- parking ---

    def _isolate(self, suspected: Suspect) -> None:
        """Park a suspect document, since the receiver has answered another one."""
        events, failure = suspected
        first = events[0].sent_id
        _log.warning(
            "the receiver fails again for the document of %s from event %s on, and answers "
            "another one: its objects are parked, and its halves are tried by themselves (%s)",
            number_of(len(events), "event"),
            first,
            failure,
            extra={"event_id": first, "code": "suspect_parked"},
        )
        # After this answer, a single event is the culprit; among several events, any one may be.
        self._park(events, failure, 1, self._answers - (len(events) == 1))
        self._forget(event.sent_id for event in events)

    def _forget(self, sent_ids: Iterable[str]) -> None:
        for sent_id in sent_ids:
            self._failed.pop(sent_id, None)

    def _park(
        self,
        events: Sequence[Sent],
        failure: ReceiverUnavailable,
        tries: int,
        answers: int,
        alone: int = 0,
    ) -> None:
        """Park the objects of events after so many further attempts; all of them are due at the
        same time.
        """
        due = self._parking.due_after(max(1, alone), monotonic())
        for event in reversed(events):  # the first event of an object identifies it
            before = self._parking.get(event.object_id)
            tried = 0 if before is None or before.event_id != event.sent_id else before.attempts
            parked = Parked(
                max(tried + tries, alone), due, str(failure), event.sent_id, alone, answers
            )
            self._parking.put(event.object_id, parked)

    def _postpone(self, events: Sequence[Sent]) -> None:
        """Let what waits for its second attempt have its turn after all others that are due, since
        it has failed while the receiver is in doubt. Otherwise it would be the longest due for
        ever, and parts that are due after it would never be tried.
        """
        due = self._parking.due_after(1, monotonic())
        for event in events:
            if (before := self._parking.get(event.object_id)) is not None:
                self._parking.put(event.object_id, before._replace(due=due))

    def _set_aside(self, events: Sequence[Sent], reason: str) -> None:
        now = monotonic()
        for event in events:
            object_id = event.object_id
            before = self._parking.get(object_id)
            self._isolated_objects.setdefault(object_id, before)
            attempts = 0 if before is None else before.attempts
            parked = Parked(attempts, now, reason, event.sent_id, 0, self._answers)
            self._parking.put(object_id, parked)

    def _put_back(self, suspected: Suspect) -> None:
        for object_id in {event.object_id for event in suspected.events}:
            self._restore(object_id)

    def _restore(self, object_id: Hashable) -> None:
        before = self._isolated_objects.pop(object_id, None)
        if before is None:
            self._parking.release(object_id)
        else:
            self._parking.put(object_id, before)
