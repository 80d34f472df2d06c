"""Receivers: replicas of the tables that answer as their mood says, and readers of files and
objects.

A receiver applies each event-id once, as docs/guides/receivers.md says: an add replaces, a modify follows
its steps, a delete removes. The *strict* one refuses what is behind a retry of the same object; the
*lenient* one applies it, and knows the event again by the new event-id.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excuses import Excuse

from eventlog.model import Answer, Event, EventResult, Level, Op, Operation

if TYPE_CHECKING:
    from world import World

Key = tuple[str, str]
"""Class and association of an object."""

MOODS: dict[str, dict[str, float]] = {
    "good": {},
    "slow": {"slow": 0.5, "warning": 0.1},
    "retry": {"retry": 0.3},
    "slow retry": {"retry": 0.3, "slow": 0.6},
    "moody": {"retry": 0.15, "away": 0.1, "lost": 0.1, "slow": 0.2, "half": 0.05, "warning": 0.1},
    "errors": {"error": 0.1, "unnamed": 0.6, "retry": 0.1, "slow": 0.1},
    "halves": {"error": 0.15, "unnamed": 1.0, "retry": 0.2, "lost": 0.1},
    "busy": {"general retry": 0.3, "retry": 0.1},
    "fatal": {"fatal": 0.05, "retry": 0.1},
    "away": {"away": 0.7},
    "hangs up": {"lost": 0.4, "half": 0.3},
    "poisoned": {"retry one": 1.0},
    "stumbles": {"fail one": 1.0, "retry": 0.1},
    "stumbles late": {"fail one": 1.0, "applies": 1.0, "slow": 0.1},
    "stumbles within": {"fail one": 1.0, "applies a part": 1.0, "retry": 0.1},
    "slow stumbles": {"fail one": 1.0, "slow": 0.5, "retry": 0.05},
    "slow errors": {"error": 0.15, "unnamed": 0.7, "applies a part": 0.5, "slow": 0.4},
    "slow losses": {"retry": 0.2, "lost": 0.2, "half": 0.1, "slow": 0.4},
    "slow places": {"retry": 0.3, "slow": 0.6, "place": 1.0},
}
"""The probability of each answer, by the name of a mood."""


_SLOW = (2.0, 2.0, 0.3, 7.0)
"""The seconds that a slow answer takes."""
_AFTERWARDS = (3.0, 15.0, 40.0)
"""The seconds for which a receiver goes on with a request that the publisher has given up."""


class Replica:
    """The objects that the applied events leave."""

    def __init__(self) -> None:
        self.objects: dict[Key, dict[str, list[str]]] = {}
        self.applied: set[str] = set()
        self.deletes: set[str] = set()
        """The event-ids under which it has deleted an object."""
        self.refused: set[Key] = set()
        """The objects of which an event was refused for good: they may differ until they are
        resynced.
        """

    def apply(self, event: Event) -> bool:
        """Apply an event, unless its event-id was applied before; return whether it was new."""
        if event.event_id in self.applied:
            return False
        self.applied.add(event.event_id)
        key = object_of(event)
        if event.operation is Operation.DELETE:
            self.deletes.add(event.event_id)
            self.objects.pop(key, None)
            return True
        state = {} if event.operation is Operation.ADD else self.objects.get(key, {})
        self.objects[key] = state
        for attribute in event.attributes:
            values = list(state.get(attribute.name, ()))
            for step in attribute.steps:
                if step.op is Op.REMOVE_ALL:
                    values = []
                elif step.op is Op.REMOVE:
                    values = [value for value in values if value not in step.values]
                else:
                    values += [value for value in step.values if value not in values]
            if values:
                state[attribute.name] = values
            else:
                state.pop(attribute.name, None)
        return True


@dataclass
class Overtaking:
    """The events of an object that a receiver has applied although an earlier one got retry, each
    with the disturbances until then; -1 = the publisher never got the answer."""

    ahead: dict[str, int] = field(default_factory=dict)


class Receiver:
    """A replica behind a python sink."""

    def __init__(self, world: World, name: str, *, is_strict: bool) -> None:
        self._world, self.name, self.is_strict = world, name, is_strict
        self.replica = Replica()
        self.mood: dict[str, float] = {}
        self.seed, self.documents = 0, 0
        self.failures = 0
        """How often it has failed for a document."""
        self._tries: Counter[str] = Counter()
        self._late: tuple[object, dict[str, Event]] = (None, {})
        """The events that it will refuse at the next flush, and the process that has sent them."""
        self._overtaken: dict[str, Overtaking] = {}
        """Of a lenient receiver: what it has applied behind a retry, by the event-id of the
        retry.
        """
        self._behind_refused: defaultdict[Key, dict[str, set[str]]] = defaultdict(dict)
        """What it has applied after refused events, by the object and the refused event-id."""
        self.unfinished: list[tuple[float, Sequence[Event]]] = []
        """The requests that it goes on with, and the times at which it has done them."""

    def _draws(self, what: str, event_id: str) -> bool:
        probability = self.mood.get(what, 0.0)
        if not probability:
            return False
        told = f"{self.seed}/{what}/{event_id}/{self._tries[event_id]}"
        return _number(told) < probability

    def _refuses(self, what: str, event_id: str) -> bool:
        """Return True if an event is refused, or has to come again. A known id never is:
        docs/guides/receivers.md asks for success.
        """
        return event_id not in self.replica.applied and self._draws(what, event_id)

    def receive(self, body: bytes, events: Sequence[Event]) -> Answer | None:
        """Take a document, and answer."""
        if not events:
            return None  # a heartbeat
        self.documents += 1
        tell, point = self._world.tell, self._world.scheduler.point
        first = events[0].event_id
        self._tries.update(event.event_id for event in events)
        told = (
            f"{event.event_id}:{event.operation.value} {event.association}" for event in events[:20]
        )
        tell(f"  {self.name} gets {' '.join(told)}")
        seconds = _SLOW[self.seed % len(_SLOW)]
        point(f"gets {self.name} {first}", seconds if self._draws("slow", first) else 0.0)
        if self._draws("away", first):
            self._hang_up("is unavailable")
        if self._draws("late", first):
            seconds = _AFTERWARDS[self._tries[first] % len(_AFTERWARDS)]
            self.unfinished.append((self._world.scheduler.now + seconds, events))
            self._hang_up("goes on with it, and the publisher waits no longer")
        if "fail one" in self.mood and any(self._is_poison(event) for event in events):
            if self._draws("applies", first):
                self.apply(events)
            self._apply_a_part(events)
            self._hang_up("fails for one of them")
        if self._draws("half", first):
            self.apply(events[: len(events) // 2])
            point(f"hangs up {self.name}")
            self._hang_up("applies half of it, then is unavailable")
        if self._draws("general retry", first):
            tell(f"  {self.name}: retry for all")
            self._world.auditor.is_answered(self.name, events, {}, Level.RETRY)
            return Answer(general=EventResult(Level.RETRY, "busy"))
        has_errors = any(self._refuses("error", event.event_id) for event in events)
        if len(events) > 1 and has_errors and self._draws("unnamed", first):
            self._apply_a_part(events)
            tell(f"  {self.name}: refuses the document")
            return Answer(general=EventResult(Level.ERROR, "bad"), culprit_unknown=True)
        good, verdicts = self._judge(events)
        late = self._refuse_late(good)
        self.apply(event for event in good if event.event_id not in late)
        if verdicts:
            named = (f"{one}={verdict.level.name.lower()}" for one, verdict in verdicts.items())
            tell(f"  {self.name} answers {' '.join(named)}")
        self._note_overtaking(events, verdicts)
        self._world.auditor.refuses(
            self.name,
            [
                one
                for one, verdict in verdicts.items()
                if verdict.level in (Level.ERROR, Level.FATAL)
            ]
            + list(late),
        )
        point(f"answers {self.name} {first}")
        if self._draws("lost", first):
            self._lose_overtaking(events)
            self._hang_up("answers, and the answer is lost")
        answered = [event for event in events if event.event_id not in late]
        self._world.auditor.is_answered(self.name, answered, verdicts)
        return Answer(results=verdicts) if verdicts else None

    def _refuse_late(self, events: Iterable[Event]) -> Mapping[str, Event]:
        """Choose events that are accepted now, and refused at the next flush of the process. A sink
        with such flushes takes one document at a time.
        """
        task = self._world.scheduler.current
        if task is None or (process := task.process).tasks[0] is not task:
            return {}
        late = {one.event_id: one for one in events if self._refuses("refuses late", one.event_id)}
        if late:
            self._world.tell(f"  {self.name} will refuse {' '.join(late)}")
            before = self._late[1] if self._late[0] is process else {}
            self._late = process, before | late
            for event in late.values():
                self._note_refused(event)
        return late

    @property
    def has_late(self) -> bool:
        """True if it will refuse events at the next flush."""
        return bool(self._late[1])

    def flush(self) -> Mapping[str, EventResult] | None:
        """Return the verdicts that come with a flush of the process that runs, as those of a broker
        do.
        """
        (process, late), task = self._late, self._world.scheduler.current
        if not late or task is None or process is not task.process:
            return None
        self._late = None, {}
        verdicts = {event_id: EventResult(Level.ERROR, "bad") for event_id in late}
        self._world.tell(f"  {self.name} refuses {' '.join(late)} at the flush")
        self._world.auditor.is_answered(self.name, list(late.values()), verdicts)
        return verdicts

    def _judge(self, events: Sequence[Event]) -> tuple[list[Event], dict[str, EventResult]]:
        good: list[Event] = []
        verdicts: dict[str, EventResult] = {}
        waiting: set[Key] = set()
        for event in events:
            key, one = object_of(event), event.event_id
            is_poison = "retry one" in self.mood and self._is_poison(event)
            waits = (key in waiting and self.is_strict) or is_poison
            if waits or self._refuses("retry", one):
                waiting.add(key)
                place = event.class_name if self._draws("place", one) else ""
                verdicts[one] = EventResult(Level.RETRY, "later", place=place)
            elif self._refuses("error", one):
                verdicts[one] = EventResult(Level.ERROR, "bad")
                self._note_refused(event)
            elif self._refuses("fatal", one):
                verdicts[one] = EventResult(Level.FATAL, "stop")
                self._note_refused(event)
            else:
                good.append(event)
                if self._draws("warning", one):
                    verdicts[one] = EventResult(Level.WARNING, "hm")
        return good, verdicts

    def _note_refused(self, event: Event) -> None:
        key = object_of(event)
        self.replica.refused.add(key)
        self._behind_refused[key].setdefault(event.event_id, set())

    def _is_poison(self, event: Event) -> bool:
        return self.is_poison_key(object_of(event))

    def is_poison_key(self, key: Key) -> bool:
        """Return True if it is an object that some moods never take."""
        return _number(f"{self.seed}/{key}") < 0.2

    def _apply_a_part(self, events: Sequence[Event]) -> None:
        """Apply the first of the events, before one of which the receiver fails."""
        if self._draws("applies a part", events[0].event_id):
            good = takewhile(
                lambda one: not self._is_poison(one) and not self._refuses("error", one.event_id),
                events,
            )
            self.apply(good)

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            overtaking = self._overtaken.get(event.event_id)
            if self.replica.apply(event):
                for refused, behind in self._behind_refused.get(object_of(event), {}).items():
                    if refused not in self.replica.applied:
                        behind.add(event.event_id)
                is_in_order = overtaking is None or not overtaking.ahead
                self._world.auditor.is_applied(self.name, event, is_in_order)
            else:
                self._pass_over(event)

    # --- requests that the publisher has given up ---

    def finish(self) -> None:
        """Finish the requests whose time has come: apply the events whose ids are not known."""
        now = self._world.scheduler.now
        due = [events for until, events in self.unfinished if until <= now]
        self.unfinished = [one for one in self.unfinished if one[0] > now]
        for event in chain.from_iterable(due):
            key, event_id = object_of(event), event.event_id
            if event_id in self.replica.applied:
                is_fenced = (
                    event_id in self.replica.deletes and event.operation is not Operation.DELETE
                )
                self._world.stats["a late request whose object is deleted"] += is_fenced
            elif event_id not in self._behind_refused[key]:
                self._world.tell(f"  {self.name} applies {event_id} at last")
                is_replaced = self._world.auditor.is_replaced(self.name, event_id)
                if is_replaced:
                    self._world.stats["a late request under an id that was replaced"] += 1
                    self._world.auditor.goes_back(self.name, key, Excuse.LATE_UNDER_FIRST_ID)
                self.replica.apply(event)
                self._world.auditor.is_applied(self.name, event, not is_replaced)

    # --- a lenient receiver, which applies what is behind a retry ---

    def _note_overtaking(
        self, events: Sequence[Event], verdicts: Mapping[str, EventResult]
    ) -> None:
        """Note which events were applied although an earlier one of their object has to come
        again.
        """
        waiting: defaultdict[Key, list[Overtaking]] = defaultdict(list)
        for event in events:
            key, verdict = object_of(event), verdicts.get(event.event_id)
            if verdict is not None and verdict.level is Level.RETRY:
                one = self._overtaken.setdefault(event.event_id, Overtaking())
                waiting[key].append(one)
            elif event.event_id in self.replica.applied:
                for one in waiting[key]:
                    one.ahead[event.event_id] = self._disturbances

    def _lose_overtaking(self, events: Iterable[Event]) -> None:
        """Note that the publisher never gets the answer to these events, so that it sends the same
        event-ids again.
        """
        lost = {event.event_id for event in events}
        for event_id in lost & self._overtaken.keys():
            ahead = self._overtaken[event_id].ahead
            ahead.update(dict.fromkeys(lost & ahead.keys(), -1))

    def _pass_over(self, event: Event) -> None:
        """Note an event that comes again under an event-id that was applied. If what it has
        overtaken, or what was refused before it, was applied meanwhile, the object goes back to an
        older state: docs/guides/receivers.md says so of an answer that the publisher never got or
        could not record, and of no other."""
        for event_id, one in self._overtaken.items():
            if event.event_id in one.ahead and event_id in self.replica.applied:
                if one.ahead.pop(event.event_id) == self._disturbances:
                    self._world.fail(
                        f"{self.name} applied {event.event_id} behind {event_id}, which came again, and "
                        f"{event.event_id} came again under its old event-id"
                    )
                self._world.auditor.goes_back(self.name, object_of(event))
        for refused, behind in self._behind_refused.get(object_of(event), {}).items():
            if event.event_id in behind and refused in self.replica.applied:
                behind.remove(event.event_id)
                self._world.auditor.goes_back(self.name, object_of(event))

    @property
    def _disturbances(self) -> int:
        """The number of what may keep a publisher from recording an answer."""
        stats = self._world.stats
        return stats["kills"] + stats["faults"] + stats["restored"] + stats["locked"]

    def _hang_up(self, what: str) -> None:
        self.failures += 1
        self._world.tell(f"  {self.name} {what}")
        raise ConnectionError(what)


class Readers:
    """Who reads the files or objects: one reads whenever it looks and remembers the names that it
    has read, the other reads all at the end. Both know a document by what was handed to the sink.
    """

    def __init__(self, world: World, directory: Path, layout: str) -> None:
        self._world, self._directory, self._layout = world, directory, layout
        self._events: dict[bytes, Sequence[Event]] = {}
        self._read: dict[str, list[str]] = {}
        self._lost: set[Key] = set()
        """The objects of files that a loss of power took before they were read, while a later file
        stayed: they may come again after it (docs/guides/publish.md).
        """
        self.remembering = Replica()

    def note(self, document: Any) -> None:
        """Note what a document means before it is handed to the sink."""
        events, lines = document.events, document.body.splitlines()
        if len(lines) == len(events) > 1:
            for line, event in zip(lines, events, strict=True):
                self._events[line] = (event,)
        self._events[document.body.rstrip(b"\n")] = events

    def look(self) -> None:
        """Read new names, and check that no old name has gained an event."""
        for name, events in self._documents().items():
            event_ids = [event.event_id for event in events]
            if name not in self._read:
                self._read[name] = event_ids
                self._world.tell(f"  a reader reads {name}: {' '.join(event_ids[:20])}")
                for event in events:
                    if self.remembering.apply(event):
                        is_late = object_of(event) in self._lost
                        self._world.auditor.is_applied("reader", event, not is_late)
            elif gained := set(event_ids) - set(self._read[name]):
                self._world.fail(f"{name} gained {sorted(gained)} after a reader had read it")

    def unread(self) -> dict[str, list[Event]]:
        """Return the events of each name that was not read yet."""
        return {name: each for name, each in self._documents().items() if name not in self._read}

    def lose(self, files: Iterable[Sequence[Event]]) -> None:
        """Note the events of files that a loss of power has taken, while a later file stays."""
        for event in chain.from_iterable(files):
            self._lost.add(object_of(event))
            self._world.auditor.goes_back("reader", object_of(event), Excuse.READ_BEFORE_SYNC)

    def forget(self, name: str) -> None:
        """Forget a name that was read before its directory was synced, and of which a loss of power
        has left nothing, or an older file: it may come again with more events
        (docs/guides/publish.md).
        """
        if self._read.pop(name, None) is not None:
            self._world.auditor.excuse(Excuse.READ_BEFORE_SYNC, True)

    def read_all(self) -> Replica:
        """Return what a reader has that reads all names at the end. It lacks the same as the other:
        objects that were skipped, and which ``requeue`` names as stale.
        """
        replica = Replica()
        replica.refused = self.remembering.refused
        for events in self._documents().values():
            for event in events:
                replica.apply(event)
        return replica

    def _documents(self) -> dict[str, list[Event]]:
        """Return the events of each name, in the order of names."""
        found = (
            {path.name: path.read_bytes() for path in self._directory.glob("[0-9]*")}
            if self._directory.exists()
            else {}
        )
        found.update({name: body for name, body in self._world.objects.items() if name[0] != "_"})
        return {name: self._events_in(found[name]) for name in sorted(found)}

    def _events_in(self, content: bytes) -> list[Event]:
        parts = [content] if self._layout == "documents" else content.splitlines()
        events: list[Event] = []
        for part in parts:
            known = self._events.get(part.rstrip(b"\n"))
            if known is None:
                self._world.fail(f"a document that nobody wrote: {part[:200]!r}")
            else:
                events += known
        return events


def class_of(name: str) -> str:
    """Return the class that a table is, whatever its name was: ``part`` gets other names."""
    return "part" if name.startswith("part") else name


def object_of(event: Event) -> Key:
    """Return the object of an event: its class and its key, whatever the table's name was."""
    return class_of(event.class_name), event.association.partition(",table=")[0]


def _number(text: str) -> float:
    """Return a number from 0 to 1 that the text alone decides."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") / 2**32
