"""The auditor: what was committed, what each reader has sent, and what the database says at the
end.

It reads the log, the in-flight entries and the consumer's set with its own statements and its own
code.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from shared import Objects, apply_event

from eventlog.model import Event, Level, Operation
from interleaved.server import CONSUMER, DETACHED
from interleaved.writers import Change

if TYPE_CHECKING:
    from interleaved.world import World

PUBLISHER = "publisher"
_LOG = """
    SELECT record_id, status, table_key, new_value FROM eventlog
    WHERE table_name = 'part' ORDER BY record_id"""
_ROWS_OF_FAMILIES = """
    SELECT record_id, status, event_type, table_key FROM eventlog
    WHERE table_name = 'usr' ORDER BY record_id"""
_FAMILIES = """
    SELECT 'idu=' || idu, fname, ARRAY(SELECT phoneno FROM usr_phone WHERE idu = usr.idu) FROM usr"""
_NUMBERS = """
    SELECT content FROM eventlog_inflight WHERE kind = 'delivery'"""
_CONSUMERS = "SELECT name FROM eventlog_consumer"
_SETS = """
    SELECT content::json ->> 'rows' FROM eventlog_inflight WHERE kind = 'done'
    UNION ALL
    SELECT done FROM eventlog_consumer"""
_ASKED = "SELECT requeued FROM eventlog_consumer WHERE name = %s"
_AFTER_THE_LAST_LOOK = ("_rows_of_same_objects", "_set_back", "COMMIT log")
"""Places of ``requeue`` at which it has seen the other changes of an object for the last time."""
_REFUSED = ("E", "F")
_DELETE, _QUERY_BACK = 4, 8
"""The event_types of a delete, and of a row whose values are read back."""
LATE = "a value is read back after its object was deleted"
_IS_REGISTERED = "SELECT FROM eventlog_consumer WHERE name = %s"


class Row(NamedTuple):
    """A row of the log."""

    record_id: int
    status: str
    change: Change


def _row(record_id: int, status: str, key: str, value: str) -> Row:
    return Row(record_id, status.strip(), Change(int(key.removeprefix("id=")), value))


@dataclass
class Sent:
    """What a reader has sent of one change."""

    event_ids: set[str]
    life: int
    level: Level
    is_recorded: bool = False
    """True if the database has recorded the answer."""
    is_asked: bool = False
    """True if it was refused and is to be sent again."""


@dataclass
class Reader:
    """What the auditor knows of a reader."""

    sent: dict[Change, Sent] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    """The highest position of a change of each object that was sent."""
    last: dict[int, Change] = field(default_factory=dict)
    """The change of each object that its receiver has applied last."""
    families: Objects = field(default_factory=dict)
    """What its receiver has of the class ``usr``."""
    applied: set[str] = field(default_factory=set)
    """The event-ids of these objects that its receiver has applied."""
    begun_from: int = 0
    begun_to: int = 0
    """The numbers of commits before and after the reader found its beginning."""


class Audit:
    """The auditor of a schedule."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.committed: list[Change] = []
        self._history: defaultdict[int, list[Change]] = defaultdict(list)
        """The changes of each object in the order of their commits."""
        self._copies: Counter[Change] = Counter()
        """The copies of the rows of changes."""
        self._overtakes: set[int] = set()
        """The objects with a change that may be published before their copies, which do not see it
        (spec/event-log.md 11).
        """
        self._hidden: set[Change] = set()
        """The changes whose rows somebody has detached by hand. A consumer passes them over, and
        they may come back after later ones were sent (spec/event-log.md 13.5, 8.1).
        """
        self._unneeded: set[Change] = set()
        """The changes whose rows a purge has removed while the log had no consumer."""
        self._in_memory: set[Change] = set()
        """The changes of transactions that did not wait for the disk."""
        self._meanings: dict[tuple[str, str], frozenset[Change]] = {}
        """The changes of each event-id that the receiver of a reader has applied."""
        self.readers: defaultdict[str, Reader] = defaultdict(Reader)

    # --- what happens ---

    def commits(self, changes: Sequence[Change], writer: str) -> None:
        """Note the changes of a transaction that a writer has committed."""
        for change in changes:
            if writer in self._world.hasty:
                self._in_memory.add(change)
            self.committed.append(change)
            self._history[change.key].append(change)
            if self._world.operator.place.startswith(_AFTER_THE_LAST_LOOK):
                self._overtakes.add(change.key)

    def begins(self, name: str) -> None:
        """Note that a reader begins with what is committed from now on, unless it has begun."""
        if self._world.control.execute(_IS_REGISTERED, (name,)).fetchone() is None:
            self.readers[name].begun_from = len(self.committed)
            self.readers[name].begun_to = -1

    def has_begun(self, name: str) -> None:
        if self.readers[name].begun_to < 0:
            self.readers[name].begun_to = len(self.committed)

    def receives(
        self, name: str, life: int, event_id: str, changes: Sequence[Change], level: Level
    ) -> None:
        """Judge an event that a reader sends in one of its lives, and note its answer."""
        reader = self.readers[name]
        if not changes:
            self._world.fail(f"{name} sends {event_id} without a change")
        meaning = self._meanings.pop((name, event_id), frozenset(changes))
        if level is not Level.ERROR:
            # An id that was applied, and is refused when it comes again because the answer was lost,
            # is answered: after requeue it may have more rows (spec/event-log.md 7.4).
            self._meanings[name, event_id] = meaning
        if meaning != frozenset(changes):
            self._world.fail(f"{name} sends {event_id} with {changes}, and before with {meaning}")
        for change in dict.fromkeys(changes):
            if change not in self._history[change.key]:
                self._world.fail(f"{name} sends {change}, which was not committed")
                continue
            place = self._history[change.key].index(change)
            if level is not Level.ERROR:
                reader.last[change.key] = change
            before = reader.sent.get(change)
            if before is None:
                is_late = place < reader.newest.get(change.key, -1)
                if (
                    is_late
                    and change not in self._hidden
                    and not (self._copies[change] and change.key in self._overtakes)
                ):
                    self._world.fail(f"{name} sends {change} behind a later change of its object")
                reader.newest[change.key] = max(place, reader.newest.get(change.key, -1))
                before = Sent(set(), life, level, is_asked=True)
            if not before.is_asked and not self._may_repeat(name, life, event_id, change):
                self._world.fail(
                    f"{name} sends {change} as {event_id}, and before as {before.event_ids}"
                )
            reader.sent[change] = Sent({*before.event_ids, event_id}, life, level)

    def receives_family(self, name: str, event: Event) -> None:
        """Judge an event of an owner and its child rows. The receiver applies each event-id once,
        and refuses a modify of an object that it does not have.
        """
        reader = self.readers[name]
        if event.event_id in reader.applied:
            return
        reader.applied.add(event.event_id)
        key = event.association.partition(",")[0]
        if event.operation is Operation.MODIFY and key not in reader.families:
            if self._is_read_back_late(key):
                self._world.count(LATE)
            else:
                self._world.fail(f"the receiver of {name} refuses {event}: it has no such object")
        apply_event(reader.families, event, key)

    def _may_repeat(self, name: str, life: int, event_id: str, change: Change) -> bool:
        """Return True if a change that was sent may come again though nobody has asked for it: it
        was not recorded when the process was killed, or it is of a copy of its row.
        """
        before = self.readers[name].sent[change]
        if event_id in before.event_ids:
            return before.life < life and not self._is_done(name, change)
        return len(before.event_ids) <= self._copies[change]

    def marks(self) -> None:
        """Note which refusals the publisher has recorded. It has just committed."""
        sent = self.readers[PUBLISHER].sent
        for row in self.rows():
            if row.status in _REFUSED and row.change in sent:
                sent[row.change].is_recorded = True

    def requeued(self, name: str) -> None:
        """Note what ``requeue`` has asked for. It has just committed: from its first statement on
        the reader has recorded nothing new, so that it has sent no later change of these objects.
        """
        reader = self.readers[name]
        applied = {change for change, sent in reader.sent.items() if sent.level is not Level.ERROR}
        asked = self._asked_of_consumer() if name == CONSUMER else set[int]()
        for row in self.rows():
            change = row.change
            if row.record_id not in asked and not (
                name == PUBLISHER
                and row.status == "N"
                and change in reader.sent
                and reader.sent[change].is_recorded
            ):
                continue
            reader.sent[change].is_asked = True
            if later := applied.intersection(self._later(change)):
                self._world.fail(f"requeue sends {change} again after {later}")

    def _later(self, change: Change) -> list[Change]:
        """Return the later changes of an object that have committed, and that nobody has detached
        by hand: ``requeue`` does not see those.
        """
        history = self._history[change.key]
        return [one for one in history[history.index(change) + 1 :] if one not in self._hidden]

    def copied(self) -> None:
        """Note the copies that ``requeue`` has written. It has just committed."""
        self._copies = Counter(row.change for row in self.rows()) - Counter(self.committed)

    # --- leaves and crashes ---

    def removes(self, before: Sequence[Row], judged: Sequence[Row]) -> None:
        """Judge the rows that a purge has just removed: each was published, every consumer has
        processed it, and nobody has asked for it again. A row that was refused after the purge
        had read its leaf (``judged``) comes back when the leaf is finished (spec/event-log.md
        14.3); ``complaints`` reports one that does not.
        """
        present = {row.record_id for row in self.rows()}
        gone = [row for row in before if row.record_id not in present]
        if not gone:
            return
        consumers = self._world.control.execute(_CONSUMERS).fetchall()
        if not consumers:
            self._unneeded.update(row.change for row in gone)
        done, asked = self.done_by_consumer(), self._asked_of_consumer()
        for row in gone:
            sent = self.readers[PUBLISHER].sent.get(row.change)
            if row.status in _REFUSED and row not in judged:
                self._world.count("a row that is refused late leaves with its leaf")
            elif row.status != "S" or sent is None or sent.level is Level.ERROR:
                self._world.fail(f"a purge removes {row}, which was sent as {sent}")
            if consumers and (row.record_id not in done or row.record_id in asked):
                self._world.fail(f"a purge removes {row}, which a consumer needs")

    def hides(self, rows: Sequence[Row]) -> None:
        """Note rows that somebody has detached by hand."""
        self._hidden.update(row.change for row in rows)

    def set_back(self, found: Sequence[tuple[Any, ...]]) -> None:
        """Note rows of the log that somebody has set back to N by hand: they are sent again. Their
        events were answered, so the event-ids may mean other rows now (spec/event-log.md 7.4).
        """
        rows = [_row(*one) for one in found]
        self.hides(rows)
        for row in rows:
            self.readers[PUBLISHER].sent[row.change].is_asked = True
            for told, changes in [*self._meanings.items()]:
                if told[0] == PUBLISHER and row.change in changes:
                    del self._meanings[told]

    def are_in_flight(self) -> bool:
        """Return True if a reader works with rows."""
        is_midway = any(not one.is_at_rest for one in self._world.readers.values())
        return is_midway or bool(self._world.control.execute(_NUMBERS).fetchall())

    def crashed(self, before: Sequence[Row], done: Set[int]) -> None:
        """Judge what a crash of the server has taken back, and forget it. ``before`` are the rows
        before the crash, and ``done`` those that the consumer had done.
        """
        rows = {row.record_id: row for row in self.rows()}
        self._unneeded.difference_update(row.change for row in rows.values())
        lost = [row.change for row in before if row.record_id not in rows]
        unmarked = [one for one in before if one.status != rows.get(one.record_id, one).status]
        count = self._world.count
        count("a crash loses changes", len(lost))
        undone = done - self.done_by_consumer()
        count("a crash loses marks", len(unmarked) + len(undone))
        count("a crash brings removed rows back", len({*rows} - {row.record_id for row in before}))
        for change in lost:
            if change not in self._in_memory:
                self._world.fail(f"a crash takes back {change}, which has waited for the disk")
            for name, reader in self.readers.items():
                if change in reader.sent:
                    self._world.fail(f"{name} has sent {change}, which a crash has taken back")
            self.committed.remove(change)
            self._history[change.key].remove(change)
        if (unmarked or undone) and self._world.schedule["durable_marks"]:
            self._world.fail(f"a crash takes back the marks of {unmarked or undone}")
        for reader in self.readers.values():
            reader.begun_from = min(reader.begun_from, len(self.committed))
            reader.begun_to = min(reader.begun_to, len(self.committed))
        status = {row.change: row.status for row in rows.values()}
        for change, sent in self.readers[PUBLISHER].sent.items():
            sent.is_recorded = status.get(change) in _REFUSED

    # --- the end ---

    def complaints(self) -> Iterator[str]:
        """Yield what is wrong at the end: all transactions have ended, and the readers have been at
        rest.
        """
        rows = self.rows()
        told, expected = (
            Counter(row.change for row in rows),
            Counter(self.committed) + self._copies,
        )
        if told - expected or any(not self._may_be_removed(one) for one in expected - told):
            yield f"the log has {told}, committed were {expected}"
            return
        if detached := self._world.control.execute(DETACHED).fetchall():
            yield f"a detached table stays: {detached}"
        if deliveries := self._world.control.execute(_NUMBERS).fetchall():
            yield f"a delivery stays in flight: {deliveries[0][0][:200]}"
        for name in self._world.readers:
            yield from self._unsent(name)
        if PUBLISHER in self._world.readers:
            yield from self._publisher_complaints(rows)
        if CONSUMER in self._world.readers:
            yield from self._consumer_complaints(rows)
        yield from self._complaints_about_families()

    def _complaints_about_families(self) -> Iterator[str]:
        found = self._world.control.execute(_FAMILIES).fetchall()
        present = {
            key: {"fname": {fname}, **({"usr_phone.phoneno": {*phones}} if phones else {})}
            for key, fname, phones in found
        }
        for name in self._world.readers:
            if (known := self.readers[name].families) != present:
                yield f"the receiver of {name} has {known}, and the tables have {present}"
        done = self.done_by_consumer()
        for record_id, status, *_ in self._rows_of_families():
            if PUBLISHER in self._world.readers and status.strip() != "S":
                yield f"the row {record_id} has the status {status}"
            if CONSUMER in self._world.readers and record_id not in done:
                yield f"the consumer's set lacks {record_id}"

    def _may_be_removed(self, change: Change) -> bool:
        """Return True if a purge may have removed the row of a change."""
        sent = self.readers[PUBLISHER].sent.get(change)
        is_done = sent is not None and sent.level is not Level.ERROR and not sent.is_asked
        return is_done and self._world.sessions.is_partitioned

    def _publisher_complaints(self, rows: Sequence[Row]) -> Iterator[str]:
        for row in rows:
            if row.status == "N" or (
                row.status not in self._statuses_of(row) and not self._copies[row.change]
            ):
                yield f"a row has another status than its answer: {row}"
        followed = self._world.readers[PUBLISHER].followed
        if followed is not None and followed.ranges:
            yield f"gaps of the publisher's set stay open: {followed}"

    def _consumer_complaints(self, rows: Sequence[Row]) -> Iterator[str]:
        done = self.done_by_consumer()
        if missing := [row.record_id for row in rows if row.record_id not in done]:
            yield f"the consumer's set lacks {missing}, and all has been sent"
        last = max((row.record_id for row in rows), default=0)
        if gaps := [number for number in range(1, last + 1) if number not in done]:
            yield f"gaps of the consumer's set stay open: {gaps}"

    def _unsent(self, name: str) -> Iterator[str]:
        reader = self.readers[name]
        for number, change in enumerate(self.committed):
            sent = reader.sent.get(change)
            is_unneeded = sent is None and change in self._unneeded
            if name == CONSUMER and (change in self._hidden or is_unneeded):
                continue
            if sent is None and number >= reader.begun_to:
                yield f"{name} has never sent {change}"
            elif sent and number < reader.begun_from and not self._copies[change]:
                yield f"{name} has sent {change}, which is older than its beginning"
            elif sent is not None and sent.is_asked:
                yield f"{name} has not sent {change} again, as requeue has asked"
        for key, change in reader.last.items():
            is_excused = key in self._overtakes or change in self._hidden
            newer = [] if is_excused else self._later(change)
            if any(
                reader.sent[one].level is not Level.ERROR for one in newer if one in reader.sent
            ):
                yield f"the receiver of {name} ends with {change}, and had {newer} before"

    def _statuses_of(self, row: Row) -> Sequence[str]:
        sent = self.readers[PUBLISHER].sent.get(row.change)
        return "N" if sent is None else _REFUSED if sent.level is Level.ERROR else "S"

    # --- the database ---

    def _is_done(self, name: str, change: Change) -> bool:
        """Return True if the database says that a reader has done a row."""
        rows = [row for row in self.rows() if row.change == change]
        done = self.done_by_consumer() if name == CONSUMER else set[int]()
        return all(row.record_id in done if name == CONSUMER else row.status != "N" for row in rows)

    def rows(self) -> Sequence[Row]:
        """Return the rows of the log."""
        purge = self._world.purge
        if purge is not None and purge.holds_log:
            return purge.before
        found = self._world.control.execute(_LOG).fetchall()
        return [_row(*one) for one in found]

    def _is_read_back_late(self, key: str) -> bool:
        """Return True if a transaction has deleted an owner after a child row that came before it,
        and the key was used again: the row of the commit comes after the delete (spec/triggers.md
        7.1).
        """
        kinds = [kind for *_, kind, one in self._rows_of_families() if one == key]
        return (_DELETE, _QUERY_BACK) in pairwise(kinds)

    def _rows_of_families(self) -> Sequence[tuple[int, str, int, str]]:
        return self._world.control.execute(_ROWS_OF_FAMILIES).fetchall()

    def early_rows(self) -> int:
        """Return how many rows were logged at the commit."""
        return sum(kind == _QUERY_BACK for *_, kind, _ in self._rows_of_families())

    def _asked_of_consumer(self) -> set[int]:
        told = self._world.control.execute(_ASKED, (CONSUMER,)).fetchone()
        if told is None or told[0] is None:
            return set()
        ranges = json.loads(told[0])["rows"]
        return {number for first, last in ranges for number in range(first, last + 1)}

    def done_by_consumer(self) -> set[int]:
        done: set[int] = set()
        for (text,) in self._world.control.execute(_SETS).fetchall():
            floor, *steps = json.loads(text)
            done.update(range(1, floor + 1))
            for distance, more in zip(steps[::2], steps[1::2], strict=True):
                done.update(range(floor + distance, floor + distance + more + 1))
                floor += distance + more
        return done
