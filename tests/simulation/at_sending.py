"""What must hold at the moment of sending, of the publisher, of consumers and of who follows a
source. It is checked at once, so that a fault shows without a kill that comes just then.

- a row that is built into an event is not done yet: nobody has marked, refused or skipped it;
- each event that is sent stands in the entry of its delivery, under the id that it is sent with;
- a new number of an event is in the entry before anything else is sent;
- a number of a document has one set of events, and a new epoch has greater numbers of deliveries;
- an event whose next attempt has a recorded time is not sent before it, after a restart either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pauses
from entries import RecordedEvent, Request, events_in_position, events_of_entry, seconds_of
from excuses import Excuse
from replicas import class_of
from scheduler import BEGIN

if TYPE_CHECKING:
    from scheduler import Process
    from world import World

Document = tuple[str, str, int, int]
"""Reader, epoch, delivery and document."""
FOLLOWER = "follower"
"""The reader of a followed source, whose deliveries are in no log."""
_PASSED_OVER = 100
"""The delivery numbers that a new epoch passes over (docs/spec/event-log.md 7.4)."""
_TOLERANCE = 0.002
"""Recorded times have milliseconds."""


class AtSending:
    """The entries, documents and times as they were, and the checks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read: dict[int, tuple[str, str, Mapping[str, RecordedEvent]]] = {}
        """The entries that were read last, by their numbers: content, epoch and events."""
        self._known: dict[Document, tuple[Process | None, frozenset[str]]] = {}
        """The events of each document whose answer is recorded, or that has a name which others
        read."""
        self._sent_as: dict[Document, frozenset[str]] = {}
        """The events with which each document of the log was sent last."""
        self._answered: dict[Process, dict[Document, frozenset[str]]] = {}
        """The events of each document whose answer a process has still to record."""
        self._sent: dict[Document, frozenset[str]] = {}
        """The events of each document of a source that is being sent."""
        self._pauses: dict[str, str] = {}
        """The recorded times of the next attempts at events of a source, by event-id."""
        self._newest: dict[str, int] = {}
        """The newest delivery of each epoch."""
        self._copied = self._put_back = 0
        """The newest delivery of the newest copy, and of the one that was put back last."""
        self._numbered: dict[Process, list[tuple[int, str, int]]] = {}
        """The new numbers of events that have to be in an entry when their process sends next:
        delivery, event-id and number."""
        self._restored: dict[Process, int] = {}
        """How often the database had been put back when a process read its entries."""
        self._epochs: dict[Process | None, str] = {}
        """The epoch in which a process went on when it had read its entries."""
        self._due: dict[Process, dict[str, float]] = {}
        """The earliest next attempt with an object's event that was recorded when a process read
        its entries, by object."""

    # --- the steps of a process ---

    def recovers(self, consumer: str, epoch: str, latest: float, leap: float) -> None:
        """Note that a process has read its entries, and the epoch in which it goes on. No recorded
        pause lasts longer than until this simulated second: the longest pause after the process
        began to read. ``leap`` is how far the clock on the wall was ahead then.
        """
        if (process := self._process()) is None:
            return
        self._epochs[process] = epoch
        self._restored[process] = self._world.stats["restored"]
        # What could not be written is lost, as by a kill.
        self._numbered.pop(process, None)
        if process.start.get("once"):  # which tries each event, due or not
            return
        whose = f"= '{consumer}'" if consumer else "IS NULL"
        lines = self._ask(
            f"SELECT content FROM eventlog_inflight WHERE kind = 'delivery' AND owner {whose}"
        )
        recorded = {
            event_id: one
            for (content,) in lines
            for event_id, one in events_of_entry(content).items()
        }
        objects = self._objects({event_id: one.rows for event_id, one in recorded.items()})
        # An entry may still have what was skipped since, which nothing waits for.
        undone = set(self._world.undone_rows(consumer))
        times = [
            (objects[event_id], one.due)
            for event_id, one in recorded.items()
            if one.due
            and self._has_key(process, objects[event_id])
            and (not one.rows or not undone.isdisjoint(one.rows))
            and (not one.rows or self._has_column(one.rows))
        ]
        self._due[process] = self._earliest(times, latest, leap)

    def follows(self, entries: Iterable[str], latest: float, leap: float) -> None:
        """Note that who follows a source has read the entries of its position, as ``recovers``."""
        if (process := self._process()) is None:
            return
        recorded = dict(one for content in entries for one in events_in_position(content))
        # A pause lasts until its event is sent, over any number of restarts.
        self._pauses = {
            event_id: due
            for event_id, told in recorded.items()
            if (due := told or self._pauses.get(event_id))
        }
        if process.start.get("once"):
            self._pauses = {}
        else:
            self._due[process] = self._earliest(self._pauses.items(), latest, leap)

    def is_built(self, consumer: str, events: Iterable[Any]) -> None:
        """Check events that were just built from the rows of their entry, or of a window: no row
        that is sent is done, whatever has marked it."""
        process = self._process()
        rows = {row for event in events if event.operation for row in event.contributed}
        if not rows or (process is not None and self._has_old_file(process)):
            return
        if process is not None and process.name.startswith("command"):
            return  # a dry run sends nothing, and others mark rows meanwhile
        if consumer:
            known = self._world.done_by_consumers().get(consumer, ())
            # The transaction that records rows which it was asked for takes them from its set.
            asked = self._ask(f"SELECT rows FROM asked_rows WHERE name = '{consumer}'")
            done = {row for row in rows if row in known}
            for (told,) in asked if done else ():
                done.difference_update(Request.of(told).rows)
        else:
            told = ",".join(map(str, rows))
            sql = f"SELECT record_id FROM eventlog WHERE status = 'N' AND record_id IN ({told})"
            done = rows.difference(row for (row,) in self._ask(sql))
        self._world.auditor.checks += 1
        if done:
            who = consumer or "the publisher"
            self._world.fail(f"{who} builds events of rows {sorted(done)[:10]}, which are done")

    def has_new_numbers(self, delivery_no: int, events: Iterable[tuple[str, int]]) -> None:
        """Note event-ids with new numbers: they are in the entry before anything else is sent."""
        if (process := self._process()) is not None:
            several = self._numbered.setdefault(process, [])
            several += [(delivery_no, *one) for one in events]

    def sends(
        self,
        consumer: str,
        delivery_no: int,
        document_no: int,
        events: Sequence[Any],
        *,
        is_single: bool,
    ) -> None:
        """Check a document of a delivery that a process is about to send; ``is_single`` if a number
        stands for several documents of one event each."""
        process = self._process()
        if process is None:
            return
        if self._has_old_file(process):
            self._world.auditor.excused[Excuse.OLD_FILE] += 1
            return
        pauses.sends(self._world, process, delivery_no, document_no)
        self._compare_with_entry(consumer, delivery_no, events)
        self._audit_new_numbers(process)
        epoch = self._entry(delivery_no)[0]
        if not is_single:
            which = consumer, epoch, delivery_no, document_no
            names = [event.event_id for event in events]
            self._compare_document(which, names)
            self._compare_sendings(which, names)
        self._compare_epochs(epoch, delivery_no)
        if self._due.get(process):
            objects = self._objects({event.event_id: event.ids for event in events})
            for event in events:
                self._compare_time(process, objects[event.event_id], event.sent_id)

    def waits_no_longer(self) -> None:
        """Note that what the present process has read as waiting need not wait any more."""
        if (process := self._process()) is not None:
            self._due.pop(process, None)
            if process.name == FOLLOWER:
                self._pauses = {}

    def has_name(
        self, consumer: str, delivery_no: int, document_no: int, events: Sequence[Any]
    ) -> None:
        """Note a document that is a file or an object by now, so that a reader may have seen it. A
        line has no name before its file is complete."""
        if self._has_names(consumer):
            which = consumer, self._entry(delivery_no)[0], delivery_no, document_no
            names = frozenset(event.event_id for event in events)
            self._known[which] = self._process(), names

    @contextmanager
    def sends_of_source(
        self, delivery_no: int, document_no: int, events: Sequence[Any]
    ) -> Iterator[None]:
        """Check a document that who follows a source sends while the block runs."""
        if (process := self._process()) is None:
            yield
            return
        names = frozenset(event.sent_id for event in events)
        which = FOLLOWER, "", delivery_no, document_no
        self._compare_document(which, names)
        others = self._sent.get(which) or self._answered.get(process, {}).get(which, names)
        if not names <= others:
            self._world.fail(
                f"document {delivery_no}-{document_no} has the events {sorted(names)[:10]}, and one "
                f"of the same number has {sorted(others)[:10]}"
            )
        for name in names:
            self._compare_time(process, name, name)
            self._pauses.pop(name, None)
        self._sent[which] = names
        try:
            yield
        finally:
            self._sent.pop(which, None)

    def is_answered(
        self, consumer: str, delivery_no: int, document_no: int, names: Iterable[str]
    ) -> None:
        """Note a document of which a part was answered. Once that is recorded, the rest of it comes
        under another number. What got retry, or was left out since its object waits, may come under
        the same one until then."""
        if (process := self._process()) is not None:
            epoch = "" if consumer == FOLLOWER else self._entry(delivery_no)[0]
            which = consumer, epoch, delivery_no, document_no
            self._answered.setdefault(process, {})[which] = frozenset(names)

    def is_recorded(self) -> None:
        """Note that a process has recorded the answers that it has."""
        if (process := self._process()) is not None:
            answered = self._answered.pop(process, {})
            if process.name == FOLLOWER or not self._has_old_file(process):
                self._known.update({which: (process, names) for which, names in answered.items()})

    def is_up_to_date(self) -> bool:
        """Return True if the present process works on the present database."""
        process = self._process()
        return process is not None and not self._has_old_file(process)

    def has_old_file(self) -> bool:
        """Return True if the present process may work on a database of before a restore."""
        process = self._process()
        return process is not None and process.name != FOLLOWER and self._has_old_file(process)

    def epoch_of(self, delivery_no: int) -> str:
        """Return the epoch of a delivery in flight, as it is written in an event-id."""
        epoch = self._entry(delivery_no)[0]
        return f"e{epoch}" if epoch else ""

    def is_copied(self) -> None:
        """Note that the database is copied."""
        self._copied = self._world.application.newest_delivery()

    def is_put_back(self) -> None:
        """Note that the newest copy is put back."""
        self._put_back = self._copied
        self._read = {number: read for number, read in self._read.items() if number <= self._copied}
        # The copy may lack the record of what was sent under a number.
        self._sent_as.clear()
        self._known = {
            which: one for which, one in self._known.items() if self._has_names(which[0])
        }

    # --- the checks ---

    def _compare_with_entry(self, consumer: str, delivery_no: int, events: Sequence[Any]) -> None:
        recorded = self._entry(delivery_no)[1]
        for event in events:
            self._world.auditor.checks += 1
            found = recorded.get(event.event_id)
            if found is None or found[:2] != (event.attempts, tuple(event.ids)):
                self._world.fail(
                    f"{consumer or 'the publisher'} sends {event.sent_id} of rows {tuple(event.ids)}, "
                    f"and the entry of delivery {delivery_no} has {found}"
                )
                return

    def _audit_new_numbers(self, process: Process) -> None:
        for delivery_no, event_id, number in self._numbered.pop(process, ()):
            self._world.auditor.checks += 1
            found = self._entry(delivery_no)[1].get(event_id)
            if found is not None and found.attempts < number:
                self._world.fail(
                    f"{process.name} sends a document before the entry of delivery {delivery_no} "
                    f"has {event_id}.{number}: it has {found}"
                )
                return

    def _compare_document(self, which: Document, names: Iterable[str]) -> None:
        """Check that a number which a receiver has seen has gained no event. It may lack some that
        were decided since: nobody sends them again."""
        now = frozenset(names)
        seen_by, before = self._known.get(which, (None, now))
        self._world.auditor.checks += 1
        if now <= before:
            return
        if seen_by is not self._process() and not self._has_names(which[0]):
            # A document of which a part had to wait is built again with that part: the entry does
            # not say what waited.
            self._world.auditor.excused[Excuse.MORE_AFTER_RESTART] += 1
        else:
            reader, _, delivery_no, document_no = which
            self._world.fail(
                f"document {delivery_no}-{document_no} of {reader or 'the publisher'} had the events "
                f"{sorted(before)[:10]}, and has {sorted(now)[:10]}"
            )

    def _compare_sendings(self, which: Document, names: Iterable[str]) -> None:
        """Check that a number under which a document was sent is not used for other events, nor for
        a part of them: what is left of a document gets a new number, also when an operator gives an
        event up (docs/spec/event-log.md 10).
        """
        now = frozenset(names)
        before, self._sent_as[which] = self._sent_as.get(which, now), now
        self._world.auditor.checks += 1
        if not before <= now:
            reader, _, delivery_no, document_no = which
            self._world.fail(
                f"document {delivery_no}-{document_no} of {reader or 'the publisher'} was sent with "
                f"{sorted(before)[:10]}, and its number comes again with {sorted(now)[:10]}"
            )

    def _has_names(self, reader: str) -> bool:
        """Return True if the documents of a reader of the log become files or objects."""
        plan = self._world.plan
        is_file = plan["sink"] == "files" and plan["layout"] == "documents"
        return not reader and (is_file or plan["sink"] == "objects")

    def _compare_epochs(self, epoch: str, delivery_no: int) -> None:
        """Check that the deliveries of a new epoch have greater numbers than those of the epochs
        before, of which the database lost so few that the passed over numbers are enough."""
        if epoch not in self._newest:
            newest = max(self._newest.values(), default=0)
            self._world.auditor.checks += 1
            if delivery_no <= newest < self._put_back + _PASSED_OVER:
                self._world.fail(
                    f"the epoch {epoch} begins with delivery {delivery_no}, and {newest} was before"
                )
        self._newest[epoch] = max(self._newest.get(epoch, 0), delivery_no)

    def _compare_time(self, process: Process, which: str, sent_id: str) -> None:
        earliest = self._due.get(process, {}).pop(which, 0.0)
        now = self._world.scheduler.now
        self._world.auditor.looked_at["attempts with a recorded time"] += bool(earliest)
        if now < earliest - _TOLERANCE:
            self._world.fail(
                f"{process.name} sends {sent_id} at {now:.3f} s, but its entry allows it not before "
                f"{earliest:.3f} s"
            )

    # --- what they read ---

    def _process(self) -> Process | None:
        task = self._world.scheduler.current
        return None if task is None else task.process

    def _has_old_file(self, process: Process) -> bool:
        """Return True if the database was put back since a process read its entries: it may still
        write to the file of before."""
        restored = self._world.stats["restored"]
        return restored > 0 and self._restored.get(process, -1) != restored

    def _entry(self, number: int) -> tuple[str, Mapping[str, RecordedEvent]]:
        """Return the epoch and the events of the entry of a delivery, none if there is none."""
        sql = (
            f"SELECT content FROM eventlog_inflight WHERE kind = 'delivery' AND entry_no = {number}"
        )
        for (content,) in self._ask(sql):
            if number not in self._read or self._read[number][0] != content:
                # An entry of a snapshot has no epoch: it is that of who wrote it, also if somebody
                # else has begun another one.
                known = self._read[number][1] if number in self._read else None
                epoch = json.loads(content).get("epoch") or known
                if epoch is None:
                    epoch_of_log = self._world.application.epoch()[0] or ""
                    epoch = self._epochs.get(self._process(), epoch_of_log)
                self._read[number] = content, epoch, events_of_entry(content)
            return self._read[number][1:]
        return "", {}

    def _has_key(self, process: Process, which: str) -> bool:
        """Return True if the rows of an object have the key that a process is configured with. Else
        they are invalid, and nothing waits for them."""
        class_name, _, key = which.partition(" ")
        shape = process.start.get("shape", self._world.application.configured)
        return class_name != "doc" or key.partition("=")[0] == shape.keys[-1]

    def _has_column(self, rows: Iterable[int]) -> bool:
        """Return True if the column of any of these rows is there, as far as a table of its name is.
        Else all are invalid, and nothing waits for them."""
        told = ",".join(map(str, rows))
        columns = "SELECT name FROM pragma_table_info(table_name)"
        sql = (
            f"SELECT 1 FROM eventlog WHERE record_id IN ({told}) AND (column_name IS NULL "
            f"OR instr(column_name, '.') OR column_name IN ({columns}) OR NOT EXISTS ({columns}))"
        )
        return bool(self._ask(sql))

    def _objects(self, events: Mapping[str, Sequence[int]]) -> dict[str, str]:
        """Return the object of each event as a text, by event-id; that of a snapshot is its id."""
        firsts = {event_id: rows[0] for event_id, rows in events.items() if rows}
        told = ",".join(map(str, firsts.values()))
        sql = f"SELECT record_id, table_name, table_key FROM eventlog WHERE record_id IN ({told})"
        of_rows = {row: f"{class_of(table)} {key}" for row, table, key in self._ask(sql)}
        return {event_id: of_rows.get(firsts.get(event_id, 0), event_id) for event_id in events}

    def _earliest(
        self, times: Iterable[tuple[str, str]], latest: float, leap: float
    ) -> dict[str, float]:
        """Return when each object is due at the earliest, of its recorded times by the clock on the
        wall, as simulated seconds. The process read that clock at some moment since ``leap``."""
        leap = max(leap, self._world.scheduler.leap)
        found: dict[str, float] = {}
        for which, told in times:
            due = min(seconds_of(told) - BEGIN - leap, latest)
            found[which] = min(due, found.get(which, due))
        return found

    def _ask(self, sql: str) -> list[Any]:
        return self._world.application.session.execute(sql).fetchall()
