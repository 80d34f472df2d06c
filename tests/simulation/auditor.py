"""The auditor: what must hold at every moment, and what must hold at the end.

It models what each event-id means: the committed rows that it stands for. Safety, at every moment:

- an event-id never has two sets of rows, unless its first was refused for good or is to come again;
- a row is applied under one event-id alone (its later attempts, ``.2``, are the same one);
- events of one object are applied in the order of their rows;
- a process ends by an error of ours, or not at all.

Liveness, at the end, after the last fault: each committed row was applied, needed no event, or has
an error row that says why not; nothing waits without a reason; receivers have what the tables have.
"""

from __future__ import annotations

import traceback
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import once
from application import KEYS, OWN_USER, VIEW
from at_sending import FOLLOWER, AtSending
from entries import Request, Rows, events_of_entry, rows_in_flight
from excuses import Excuse
from replicas import Key, Replica, class_of, object_of
from scheduler import BEGIN

from eventlog.errors import (
    ConfigError,
    DatabaseError,
    EventlogError,
    FatalAnswer,
    PublisherAlreadyRunning,
)
from eventlog.model import Event, EventResult, Level, Operation

if TYPE_CHECKING:
    from scheduler import Process
    from world import World

_NOT_FOR_GOOD = (Level.ERROR, Level.FATAL, Level.RETRY)
_LETTERS = {Level.SUCCESS: "S", Level.WARNING: "W", Level.ERROR: "E", Level.FATAL: "F"}
_MULTIPLE = "customer_tag.tag"
_REFUSED_UNSENT = (
    "(code NOT IN ('requeued', 'skipped', 'superseded') AND message NOT IN ('bad', 'stop') "
    "AND message NOT LIKE 'given up after %')"
)
"""The condition of error rows of what was refused before it was sent, by a format or by the checks of rows: receivers
answer ``bad`` and ``stop``."""
_DELETED = "deleted"
Order = tuple[str, int]
"""Epoch and delivery, or the number of a change."""
_OF_COPIES = ("_answered", "_brought", "_began_at", "_attempts", "_numbered", "_renumbered")
"""What of the model goes back when a copy of the database is put back."""


class Auditor:
    """The model of event-ids, and the checks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.at_sending = AtSending(world)
        self._rows: dict[tuple[str, str], tuple[int, ...]] = {}
        self._contents: dict[tuple[str, str], str] = {}
        self._parts: dict[tuple[str, str], tuple[frozenset[int], frozenset[int]]] = {}
        """The rows that contribute to each event, and those that precedence dropped."""
        self._numbers: dict[tuple[str, str], str] = {}
        self._numbered: dict[tuple[str, str], tuple[str, ...]] = {}
        self._orders: dict[str, list[Order]] = {}
        """The deliveries of each reader whose events have numbers, by their epochs, or the changes
        of a source."""
        self._renumbered: dict[tuple[str, int], Order] = {}
        """What the number of a delivery was before an older copy was put back."""
        self._spans: dict[tuple[str, Order], tuple[str, str]] = {}
        """The least and the greatest number of each of them."""
        self._answered: dict[tuple[str, str], Level] = {}
        self._answered_in_vain: set[tuple[str, str]] = set()
        """Those whose last answer went to a process with the file of before a restore."""
        self._applied: dict[tuple[str, int], str] = {}
        self._newest: dict[tuple[str, Key, str], int] = {}
        self._values: dict[int, str] = {}
        """The column whose value a row brings; ``_DELETED`` for a delete."""
        self._brought: dict[tuple[str, Key, str], frozenset[int]] = {}
        """The rows that were applied, by receiver, object and column."""
        self._columns: defaultdict[tuple[str, Key], set[str]] = defaultdict(set)
        """The columns that an object of a receiver ever had in ``_brought``."""
        self._idle: dict[tuple[str, int], float] = {}
        """When a publisher or a consumer last found that a row needs no event."""
        self._copied_at = 0.0
        self._taken_back: list[tuple[float, float]] = []
        """From when to when the letters of the log have been lost, by a copy that was put back."""
        self._refusals = Counter[tuple[str, int]]()
        """How often each row was refused for good."""
        self._invalid = Counter[tuple[str, int]]()
        """How often each row was found to be invalid."""
        self._attempts: dict[tuple[str, str], int] = {}
        """The number of the newest sending of each event-id."""
        self._built_with: dict[tuple[str, str], int] = {}
        """The next number of each event by its error rows, when it was built again."""
        self._copied: dict[str, Any] = {}
        """The model as it was when the database was copied."""
        self._lost: set[tuple[str, int]] = set()
        """The rows that a receiver has applied, and that an older copy has as not sent."""
        self.is_restored = False
        self._left: list[tuple[set[str], int]] = []
        """For each copy that was put back, the epochs until then, and the highest record_id of the
        copy: higher ones mean other rows in these epochs, also if they are sent only now, by a
        process that still has the old file open.
        """
        self._begun_since: set[str] = set()
        """The epochs of the log since a copy was put back, as far as a receiver applied events
        meanwhile: an operator may have begun some.
        """
        self._lacks_reset: set[str] = set()
        """The consumers whose entry is of before a reset since an older copy was put back."""
        self._snapshots: dict[str, str] = {}
        """When the consumer of a receiver began, by the first event of its snapshot."""
        self.unsure: set[Key] = set()
        """The objects of which the database lost changes that a receiver has."""
        self.given_up: set[tuple[str, Key]] = set()
        """The objects of which an event was given up, by max_attempts or by hand, each with the
        receiver.
        """
        self._given_up_of_snapshots: set[tuple[str, str]] = set()
        """The events of objects of a snapshot that were given up, each with the consumer."""
        self._outdated: set[tuple[str, Key]] = set()
        """The objects of which a receiver has applied an event after later ones, since nobody had
        recorded its answer, which was a refusal or a retry. Each has the receiver."""
        self._refused_rows = Counter[tuple[str, int]]()
        """How often a receiver has refused each row, also in answers that were lost."""
        self.asked_again: set[str] = set()
        """The consumers for which an operator has given ``requeue``."""
        self._asked: dict[tuple[str, int], int] = {}
        """The request that was last found to ask a consumer for a row."""
        self._skipped: set[tuple[str, int]] = set()
        """The rows that were given up, each with its consumer."""
        self._skipped_ids: set[tuple[str, str]] = set()
        """The event-ids under which rows were sent that are given up."""
        self._left_out: set[tuple[str, int]] = set()
        """The rows of refused events that came again without them, each with its consumer."""
        self._sent_at: dict[tuple[str, int], float] = {}
        """When each row was last sent."""
        self._began_at: dict[str, float] = {}
        self.checks = 0
        self.excused = Counter[Excuse]()
        """How often each excuse was needed."""
        self.looked_at = Counter[str]()
        """How much each check of the end has looked at, and how many objects were excused, by
        reason.
        """

    # --- at every moment ---

    def sends(self, consumer: str, events: Iterable[Any]) -> None:
        """Note what a publisher or a consumer is about to send under which event-id."""
        for event in events:
            which, rows = (consumer, event.sent_id), tuple(event.ids)
            self._sent_at.update(
                dict.fromkeys(((consumer, row) for row in rows), self._world.scheduler.now)
            )
            before = self._rows.setdefault(which, rows)
            self.checks += 1
            if before != rows:
                last = self._answered.get(which)
                if (
                    last not in _NOT_FOR_GOOD
                    and not self._is_refused_by_format(consumer, before, rows)
                    and not self._lacks_emptying(consumer)
                ):
                    self._world.fail(
                        f"event-id {event.sent_id} of {consumer or 'the publisher'} meant rows {before}, and means {rows}; "
                        f"its last answer was {last.name.lower() if last else 'none'}"
                    )
                self._left_out |= {(consumer, row) for row in {*before}.difference(rows)}
                self._rows[which] = rows
                self._contents.pop(which, None)
                self._parts.pop(which, None)
            self._compare_contents(which, event)
            self._compare_parts(which, event)
            self._compare_attempts(consumer, event)
            for step in event.steps or ():
                if step[1] <= 4:
                    self._values[step[0]] = step[3].name if step[1] < 4 else _DELETED

    def _lacks_emptying(self, consumer: str) -> bool:
        """Return True if a copy was put back that does not know that a receiver was emptied, and a
        process may have the old file open: what ids of before meant is not what they mean there."""
        return self.excuse(Excuse.OLD_FILE, consumer in self._lacks_reset)

    def _compare_attempts(self, consumer: str, event: Any) -> None:
        """Check that the number of an attempt never falls, and that what was given up without an
        answer comes under another number (docs/spec/event-log.md 7.4)."""
        meaning, number = _meaning(event.sent_id), _sending(event.sent_id)
        newest = self._attempts.get((consumer, meaning), 0)
        self.checks += 1
        if number < newest:
            self._world.fail(f"{event.sent_id} of {consumer} comes after its sending {newest}")
        self._attempts[consumer, meaning] = max(number, newest)
        built_with = self._built_with.get((consumer, meaning))
        # Error rows of before a consumer was reset are not its own.
        if number == newest and consumer not in self._began_at:
            highest = self._next_sending(consumer, meaning) if built_with is None else built_with
            self._built_with[consumer, meaning] = highest
            if number < highest:
                self._world.fail(
                    f"{event.sent_id} of {consumer} was given up, and its next sending is {highest}"
                )

    def builds(self, consumer: str, events: Iterable[Any]) -> None:
        """Note events that a publisher has just built again. It sends them although one is given up
        from now on: ``skip`` comes too late for an event that is in the air."""
        for event in events:
            if event.ids:
                meaning = _meaning(event.sent_id)
                self._built_with[consumer, meaning] = self._next_sending(consumer, meaning)

    def records(self, consumer: str, events: Iterable[Any]) -> None:
        """Check events that a reader records for the first time: a number that they have is that of
        the reader's error rows (docs/spec/event-log.md 7.4), or the next one, of an event that was
        skipped while its entry was there.
        """
        for event in events:
            if event.ids and (number := _sending(event.sent_id)) > 1:
                self.checks += 1
                self.looked_at["numbers of error rows"] += 1
                whose = f"= '{consumer}'" if consumer else "IS NULL"
                lines = self._ask(
                    "SELECT event_id FROM eventlog_error WHERE event_id IS NOT NULL "
                    f"AND record_id = {event.ids[0]} AND consumer {whose}"
                )
                own = max((_sending(event_id) for (event_id,) in lines), default=0)
                if not own or number > own + 1:
                    self._world.fail(
                        f"{consumer or 'the publisher'} records {event.sent_id}, and the greatest "
                        f"number of that reader's error rows is {own}"
                    )

    def _next_sending(self, consumer: str, meaning: str) -> int:
        """Return the greatest number in the error rows of an event, 0 = there is none."""
        whose = f"= '{consumer}'" if consumer else "IS NULL"
        lines = self._ask(
            "SELECT event_id FROM eventlog_error WHERE event_id IS NOT NULL AND record_id > 0 "
            f"AND record_id = {meaning.partition('.')[0]} AND consumer {whose}"
        )
        numbers = (_sending(event_id) for (event_id,) in lines if _meaning(event_id) == meaning)
        return max(numbers, default=0)

    def numbers(
        self, process: str, delivery_no: int, event_id: str, numbers: Sequence[str]
    ) -> None:
        """Note the numbers of an event in a format that has them: an event that comes again has its
        own, and no other event ever has them. Only an object of a snapshot that an operator asks
        for comes with greater numbers (docs/spec/event-log.md 13.3). The numbers grow from delivery
        to delivery, also over epochs, and those of a followed source from change to change."""
        consumer, meaning, epoch = _consumer(process), _meaning(event_id), _epoch(event_id)
        if consumer == FOLLOWER:
            self._audit_growth(consumer, ("", int(event_id.split(".")[1])), event_id, numbers)
        elif not self._world.has_gone_back and self.at_sending.is_up_to_date():
            epoch = epoch or self.at_sending.epoch_of(delivery_no)  # a snapshot's ids have none
            order = self._renumbered.get((consumer, delivery_no), (epoch, delivery_no))
            self._audit_growth(consumer, order, event_id, numbers)
        for number in numbers:
            self.checks += 1
            other = self._numbers.setdefault((consumer, number), meaning)
            is_together = _began_together(_epoch(other), epoch) or _is_of_begin(number, epoch)
            if other != meaning and not is_together:
                self._world.fail(f"number {number} was that of {other}, and is that of {event_id}")
        which = consumer, event_id
        before = self._numbered.setdefault(which, tuple(numbers))
        # A copy that was put back may lack the chunk, and so the object is read again.
        is_asked_for = event_id.startswith("snapshot.") and (
            consumer in self.asked_again or self.is_restored
        )
        is_other = before != tuple(numbers) and not (is_asked_for and min(numbers) > max(before))
        if (
            is_other
            and self._answered.get(which) not in _NOT_FOR_GOOD
            and not self._lacks_emptying(consumer)
        ):
            self._world.fail(f"{event_id} had the numbers {before}, and has {tuple(numbers)}")
        self._numbered[which] = tuple(numbers)

    def renumbers(self, consumer: str, before: int, epoch: str, number: int) -> None:
        """Note that a delivery of this epoch gets another number. Its events keep their numbers.
        Another process may give the same number in an old file that it has open."""
        order = f"e{epoch}" if epoch else "", before
        self._renumbered[consumer, number] = self._renumbered.get((consumer, before), order)

    def _audit_growth(
        self, consumer: str, order: Order, event_id: str, numbers: Sequence[str]
    ) -> None:
        """Check that the numbers of an event are between those of what comes before and after."""
        orders = self._orders.setdefault(consumer, [])
        spans = self._spans
        if not numbers or any(_began_together(order[0], epoch) for epoch, _ in orders):
            return
        if _is_of_begin(min(numbers), order[0]):
            return
        at = bisect_left(orders, order)
        is_known = at < len(orders) and orders[at] == order
        if not is_known:
            orders.insert(at, order)
        first, last = spans.get((consumer, order), (min(numbers), max(numbers)))
        first, last = min(first, *numbers), max(last, *numbers)
        before = spans[consumer, orders[at - 1]][1] if at else ""
        after = spans[consumer, orders[at + 1]][0] if at + 1 < len(orders) else "~"
        self.checks += 1
        spans[consumer, order] = first, last
        if not before < first <= last < after:
            self._world.fail(
                f"{event_id} of {consumer or 'the publisher'} has the numbers {tuple(numbers)}, what "
                f"was before it has {before}, and what comes after it {after}"
            )

    def _compare_contents(self, which: tuple[str, str], event: Any) -> None:
        """Check that an event by value says what it said before under its event-id."""
        steps = event.steps or ()
        if self._world.application.shape.has_changed or any(step[1] > 4 for step in steps):
            return
        content = f"{event.operation} " + " ".join(
            f"{step[1]} {step[3] and step[3].name} {step[4]!r} {step[5]!r}" for step in steps
        )
        before = self._contents.setdefault(which, content)
        self.checks += 1
        # The format reads the whole row of a modify: without the row, the event comes again as a
        # delete (docs/spec/event-log.md 8.4). Whether a view has an object is decided as an event is
        # sent (15.4), so that any event may come again as a delete, or no longer be one.
        is_delete = event.operation is Operation.DELETE
        is_without_row = (
            self._world.plan["format"] == "debezium"
            and is_delete
            and before.startswith(f"{Operation.MODIFY} ")
        )
        has_left = class_of(event.object_id[0].name) == VIEW and (
            is_delete or before.startswith(f"{Operation.DELETE} ")
        )
        if is_without_row or has_left:
            return
        if before != content and self._answered.get(which) not in _NOT_FOR_GOOD:
            self._world.fail(f"event-id {which[1]} said {before!r}, and says {content!r}")
        self._contents[which] = content

    def _compare_parts(self, which: tuple[str, str], event: Any) -> None:
        """Check that no row that contributed to an event is dropped when it comes again, and that
        none contributes that was dropped, also where values are read back (docs/spec/event-log.md
        8.4). A row may lose its effect meanwhile."""
        dropped = () if event.outcomes is None else event.outcomes.dropped
        parts = frozenset(event.contributed), frozenset((*event.dropped, *dropped))
        before = self._parts.setdefault(which, parts)
        self.checks += 1
        self.looked_at["rows that precedence dropped"] += len(parts[1])
        if changed := (parts[0] & before[1]) | (parts[1] & before[0]):
            self._world.fail(
                f"rows {sorted(changed)} of event-id {which[1]} of {which[0] or 'the publisher'} "
                f"contributed or were dropped, and are not: {before}, {parts}"
            )

    def _is_refused_by_format(
        self, consumer: str, before: Sequence[int], rows: Sequence[int]
    ) -> bool:
        """Return True if the format itself has refused, for this consumer, an event that was about
        to be sent: all its rows, or each of those that it has lost since.
        """
        if not self._world.refuses_values:
            return False
        unsent = self._rows_refused_unsent(consumer)
        lost = set(before) - set(rows)
        has_only_lost = bool(lost) and set(rows) <= set(before) and lost <= unsent
        # Rows that precedence dropped are done whatever the answer.
        return has_only_lost or unsent >= {
            row for row in before if (consumer, row) not in self._idle
        }

    def _went_back(self, receiver: str, row: int) -> bool:
        """Return True if the format has refused a row, or its checks have (its key was renamed), so
        that only ``requeue`` can have sent it again. What reads the present state is never stale,
        and no delete is because of another one (docs/spec/event-log.md 11)."""
        has_refused = row in self._rows_refused_unsent(_consumer(receiver))
        return self.excuse(Excuse.WENT_BACK, has_refused)

    def _rows_refused_unsent(self, consumer: str) -> set[int]:
        whose = f"= '{consumer}'" if consumer else "IS NULL"
        lines = self._ask(
            f"SELECT record_id FROM eventlog_error WHERE {_REFUSED_UNSENT} AND consumer {whose} "
            f"UNION SELECT record_id FROM removed_lines WHERE {_REFUSED_UNSENT} AND consumer {whose} "
            "AND record_id IN (SELECT record_id FROM removed_rows)"
        )
        return {row for (row,) in lines}

    def is_applied(self, receiver: str, event: Event, is_strict: bool) -> None:
        """Note an event that a receiver has applied for the first time."""
        key = object_of(event)
        classes = self._world.classes_of(receiver)
        if classes is not None and key[0] not in classes:
            self._world.fail(f"{receiver} has the classes {sorted(classes)}, and gets {key}")
        rows = self._rows.get((_consumer(receiver), event.event_id))
        if rows is None:  # of a snapshot
            self._note_snapshot(receiver, event.event_id)
            return
        self.checks += 1
        meaning = _meaning(event.event_id)
        lost: set[tuple[str, int]] = set()
        if self.is_restored:
            self._begun_since.add(f"e{self._world.application.epoch()[0]}")
        if self.is_restored and not self._is_recorded(receiver, rows):
            # It was in the air when the copy without its entry was put back, or comes from a process
            # that has the old file open, and may have begun an epoch there.
            lost = {
                (receiver, row) for row in rows if self._applied.get((receiver, row)) != meaning
            }
            # What has an epoch of this log was recorded, and a reader reads it late.
            self._left[-1][0].update({_epoch(meaning)} - self._begun_since)
        for row in rows:
            other = self._applied.setdefault((receiver, row), meaning)
            if other == meaning:
                continue
            self._applied[receiver, row] = meaning
            if not self._may_repeat(receiver, row, other, meaning) and not self._may_differ(
                receiver, key
            ):
                self._world.fail(
                    f"{receiver}: row {row} was applied under {other}, and again under {event.event_id}"
                )
        self._lost |= lost
        which = receiver, key, _epoch(meaning)  # what was sent before a raise may be sent again
        newest = self._newest.get(which, 0)
        is_first = event.event_id == meaning
        if (
            is_strict
            and is_first
            and rows[0] < newest
            and self._world.is_ordered
            and not self._may_differ(receiver, key)
            and not self._went_back(receiver, rows[0])
        ):
            self._world.fail(
                f"{receiver}: {event.event_id} of {key} comes after row {newest} of the object"
            )
        # A reader may find files of before a restore only now, and what was sent again after it.
        is_read_late = receiver == "reader" and self.is_restored
        if is_strict and is_first and key not in self.unsure and not is_read_late:
            self._refuse_stale(receiver, event.event_id, key, rows)
        # Rows of requeue and resync hold no lock of their object: what is open may commit behind
        # them.
        locked = self._world.application.written.intersection(rows)
        self._newest[which] = max(newest, *locked, 0)

    def _note_snapshot(self, receiver: str, event_id: str) -> None:
        """Note that a receiver gets a second snapshot since a restore has lost the registration of
        its consumer, and that nobody has emptied it."""
        if event_id.startswith("snapshot."):
            begun = event_id.split(".")[1]
            if self._snapshots.setdefault(receiver, begun) != begun and self.is_restored:
                self._lacks_reset.add(receiver)

    def _is_recorded(self, receiver: str, rows: Sequence[int]) -> bool:
        """Return True if the lines in flight have the first of these rows."""
        consumer = _consumer(receiver)
        whose = f"= '{consumer}'" if consumer else "IS NULL"
        lines = self._ask(
            f"SELECT content FROM eventlog_inflight WHERE kind = 'delivery' AND owner {whose}"
        )
        return any(rows[0] in rows_in_flight(content) for (content,) in lines)

    def _may_repeat(self, receiver: str, row: int, before: str, now: str) -> bool:
        """Return True if a row may be applied under a second id, since the database has lost that
        it was applied, or an operator has asked for it. A reader may read files of before only now.
        """
        is_lost = (receiver, row) in self._lost or (receiver == "reader" and self.is_restored)
        self._lost.discard((receiver, row))
        return self._is_asked_for(receiver, row) or self.excuse(
            Excuse.REPEATED, is_lost and _epoch(before) != _epoch(now)
        )

    def _is_asked_for(self, receiver: str, row: int) -> bool:
        """Return True if a consumer was asked for a row since this was last found to be so."""
        sql = f"SELECT rowid, rows FROM asked_rows WHERE name = '{receiver}'"
        asked = max(
            (number for number, told in self._ask(sql) if row in Request.of(told).rows), default=0
        )
        before = self._asked.get((receiver, row), 0)
        self._asked[receiver, row] = asked
        return asked > before

    def _refuse_stale(self, receiver: str, event_id: str, key: Key, rows: Sequence[int]) -> None:
        """Check that no row brings back what a newer one has changed, also of objects of which an
        event was refused: ``requeue`` sends no stale row (docs/spec/event-log.md 11).

        What comes under an epoch of before a restore, and stands in no entry, comes from a process
        that still has the old file open: the copy does not know of it.
        """
        is_of_before = any(_epoch(event_id) in epochs for epochs, _ in self._left)
        if is_of_before and not self._is_recorded(receiver, rows):
            return
        if receiver in self._lacks_reset:  # a copy lacks that it was emptied
            return
        brought = [(self._values[row], row) for row in rows if row in self._values]
        of_object = self._columns[receiver, key]
        columns = {name for name in of_object if (receiver, key, name) in self._brought}
        for column, row in brought:
            outdating = columns - {_DELETED} if column == _DELETED else {column, _DELETED} & columns
            newest = max(
                chain(*(self._brought[receiver, key, one] for one in outdating)), default=0
            )
            self.checks += 1
            # With handle_future_events a publisher keeps no set: it sends first what it has read.
            is_put_back = (
                not self._world.is_ordered and self._refused_rows[_consumer(receiver), row]
            )
            if row < newest and self.excuse(
                Excuse.UNRECORDED, bool(is_put_back) or self._is_unrecorded(receiver, rows)
            ):
                self._outdated.add((receiver, key))
            elif row < newest:
                self._world.fail(
                    f"{receiver}: {event_id} of {key} brings row {row} ({column}) after row {newest}"
                )
        if (_consumer(receiver), event_id) in self._skipped_ids:
            return  # while it was in the air: its rows may come again one after the other
        for column, row in brought:
            which = receiver, key, column
            self._brought[which] = self._brought.get(which, frozenset()) | {row}
            of_object.add(column)

    def refuses(self, receiver: str, event_ids: Iterable[str]) -> None:
        """Note events that a receiver refuses for good; the publisher may never get the answer."""
        consumer = _consumer(receiver)
        for event_id in event_ids:
            rows = self._rows.get((consumer, event_id), ())
            self._refused_rows.update((consumer, row) for row in rows)

    def _is_unrecorded(self, receiver: str, rows: Sequence[int]) -> bool:
        """Return True if the receiver has refused an event of these rows, and nobody has recorded
        it: the event comes again, and the receiver may take it after later ones
        (docs/guides/receivers.md).
        """
        consumer = _consumer(receiver)
        whose = f"= '{consumer}'" if consumer else "IS NULL"
        lines = self._ask(
            "SELECT record_id FROM eventlog_error WHERE code <> 'requeued' "
            f"AND consumer {whose} AND record_id IN ({','.join(map(str, rows))})"
        )
        recorded = Counter(row for (row,) in lines)
        return any(self._refused_rows[consumer, row] > recorded[row] for row in rows)

    def goes_back(self, receiver: str, key: Key, why: Excuse = Excuse.ANSWER_LOST) -> None:
        """Note an object that a receiver has in an older state, since it answered retry for an
        event and applied later ones, and nobody had recorded that answer
        (docs/guides/receivers.md), or for another reason ``why``."""
        self._outdated.add((receiver, key))
        self.excused[why] += 1

    def is_answered(
        self,
        receiver: str,
        events: Sequence[Event],
        verdicts: Mapping[str, EventResult],
        others: Level = Level.SUCCESS,
    ) -> None:
        """Note the answer that has left a receiver: verdicts by event-id, and one for all
        others.
        """
        for event in events:
            verdict = verdicts.get(event.event_id)
            level = others if verdict is None else verdict.level
            which = _consumer(receiver), event.event_id
            if (task := self._world.scheduler.current) is not None:
                task.process.answers[level.name.lower()] += 1
            # Without an answer its document may be cut, and the halves are sent as they were built.
            self._built_with.pop((which[0], _meaning(event.event_id)), None)
            self._answered.pop(which, None)  # the last answer to a row comes last
            self._answered[which] = level
            self._answered_in_vain.discard(which)
            if self.at_sending.has_old_file():
                self._answered_in_vain.add(which)
            if level is not Level.RETRY:  # a kill may come before it is recorded as given up
                self._given_up_of_snapshots.discard(which)
            if level in (Level.ERROR, Level.FATAL):
                self._refusals.update((which[0], row) for row in self._rows.get(which, ()))

    def gives_up(self, consumer: str, events: Iterable[Any]) -> None:
        """Note events that a publisher or an operator gives up although no answer refuses them."""
        for event in events:
            if event.ids:
                rows = self._rows.get((consumer, event.sent_id), tuple(event.ids))
                self.skips(consumer, rows)
            else:  # an object of a snapshot
                object_class, key = event.object_id
                self.given_up.add((consumer or self.reader, (object_class.name, key)))
                self._given_up_of_snapshots.add((consumer, event.sent_id))

    def skips(self, consumer: str, rows: Sequence[int]) -> None:
        """Note rows that are given up. A receiver may have applied them without an answer that
        arrived: they may come again one after the other, and so bring older values back for a
        while.
        """
        told = ",".join(map(str, rows))
        receiver = consumer or self.reader
        for table, key in self._ask(
            f"SELECT DISTINCT table_name, table_key FROM eventlog WHERE record_id IN ({told})"
        ):
            self.given_up.add((receiver, (class_of(table), key)))
        for which, brought in self._brought.items():
            if _consumer(which[0]) == consumer:
                self._brought[which] = brought.difference(rows)
        self._skipped.update((consumer, row) for row in rows)
        self._skipped_ids |= {
            which
            for which, sent in self._rows.items()
            if which[0] == consumer and not set(rows).isdisjoint(sent)
        }
        self._refusals.update((consumer, row) for row in rows)

    def skips_object(self, consumer: str, event_id: str) -> None:
        """Note an object of a snapshot that an operator gives up."""
        _, _, name, key = event_id.split(".", 3)
        self.given_up.add((consumer, (class_of(name), key)))
        self._given_up_of_snapshots.add((consumer, event_id))

    def need_nothing_more(self, consumer: str, rows: Iterable[int]) -> None:
        """Note refused rows for which an operator has skipped what is left to do: each has one more
        error row."""
        self._refusals.update((consumer, row) for row in rows)

    def _given_up_rows(self, consumer: str) -> set[int]:
        return {row for whose, row in self._skipped if whose == consumer}

    def in_flight(self, consumer: str) -> list[tuple[str, tuple[int, ...]]]:
        """Return the events that were sent and have no answer for good: event-id, and the rows with
        which the event was last sent, under whatever number.
        """
        own = {
            event_id: rows for (whose, event_id), rows in self._rows.items() if whose == consumer
        }
        last = {_meaning(event_id): rows for event_id, rows in own.items()}
        return [
            (event_id, last[_meaning(event_id)])
            for event_id in own
            if self._answered.get((consumer, event_id), Level.RETRY) is Level.RETRY
        ]

    def rows_of(self, consumer: str, event_id: str) -> tuple[int, ...]:
        """Return the rows of an event that was sent under this event-id or an earlier one."""
        meaning = _meaning(event_id)
        names = [event_id, meaning, *(f"{meaning}.{one}" for one in range(2, _sending(event_id)))]
        return next(rows for name in names if (rows := self._rows.get((consumer, name))))

    def is_replaced(self, receiver: str, event_id: str) -> bool:
        """Return True if a receiver has applied an event under a later id than this one, which
        keeps no earlier request from being applied (docs/guides/receivers.md).
        """
        meaning, sending = _meaning(event_id), _sending(event_id)
        return any(
            _meaning(one) == meaning and _sending(one) > sending
            for one in self._world.replica_of(receiver).applied
        )

    def own_changes(self, objects: Iterable[tuple[str, str]]) -> None:
        """Note objects that the publisher's own user has changed: nobody has to get these
        changes.
        """
        self.unsure |= {(class_of(table), key) for table, key in objects}

    def _may_differ(self, receiver: str, key: Key) -> bool:
        """Return True if a receiver may lack an event of an object."""
        may = (
            key in self._world.replica_of(receiver).refused
            # The copy has what it refused before it was emptied.
            or receiver in self._lacks_reset
            or (receiver, key) in self.given_up
            or key in self.unsure
        )
        return self.excuse(Excuse.OBJECT_DIFFERS, may)

    def excuse(self, excuse: Excuse, is_needed: bool) -> bool:
        """Count an excuse that is needed, as what would fail without it asks for it."""
        self.excused[excuse] += is_needed
        return is_needed

    @property
    def reader(self) -> str:
        """The name of the publisher's receiver."""
        return "receiver" if self._world.plan["sink"] == "python" else "reader"

    def needs_no_event(self, rows: Iterable[int]) -> None:
        """Note rows that precedence dropped, or whose object is gone: they are marked without an
        event.
        """
        task = self._world.scheduler.current
        consumer = "" if task is None else _consumer(task.process.name)
        self._idle.update(((consumer, row), self._world.scheduler.now) for row in rows)

    def is_invalid(self, process: str, rows: Iterable[int]) -> None:
        """Note rows that a publisher, a consumer or a job gives an error row each, since they or
        their values cannot be written."""
        consumer = _consumer(process)
        self._invalid.update((consumer, row) for row in rows)

    def process_ended(self, process: Process, error: BaseException) -> None:
        """Check how a process has ended by itself: by an error of ours that has a reason."""
        self.looked_at["ends of processes"] += 1
        if not isinstance(error, EventlogError):
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.name}"
            self._world.fail(
                f"{process.name} ended by {type(error).__name__} in {where}: {error} {last.line}"
            )
        elif not self._may_end(process, error):
            self._world.fail(
                f"{process.name} ended by {type(error).__name__} without a reason: {error}"
            )

    def _may_end(self, process: Process, error: EventlogError) -> bool:
        """Return True if an error has a reason: the receiver answered fatal, another publisher
        runs, or the database failed or was replaced."""
        match error:
            case FatalAnswer():
                return bool(process.answers["fatal"])
            case PublisherAlreadyRunning():
                has_second = process.start.get("second") or self._world.has_second()
                return process.name == "second" or has_second
            case ConfigError() if "were removed from the log" in str(error):
                return process.name.startswith("cons") and self._world.has_removed
            case ConfigError() if "the disk is full" in str(error):  # as it claims a directory
                return process.had_no_room
            case ConfigError():  # a registration that a restore has lost
                return self.is_restored and "the next record_id" in str(error)
            case DatabaseError():
                # A command that waits for a transaction keeps the lock of the file meanwhile.
                is_locked = "database is locked" in str(error) and self._world.has_commands()
                # By a clock that has gone back, a row of before is younger than it is.
                is_old = "published before its row" in str(error) and self._world.has_gone_back
                return process.has_failed or self.is_restored or is_locked or is_old
        return once.may_end(self._world, process, error)

    def is_repaired(self) -> None:
        """Note that all classes were sent again: what receivers have of no object is excused any
        more, unless nobody can know that they have it.
        """
        unknown = self.unknown_objects(key for _, key in self.given_up)
        self.given_up = {(whose, key) for whose, key in self.given_up if key in unknown}
        self._outdated.clear()
        self._left_out.clear()
        there = self._world.application.objects()
        self.unsure = {key for key in self.unsure if key not in there}

    def unknown_objects(self, objects: Iterable[Key]) -> set[Key]:
        """Return those of the objects that are gone, and of which the log has no row."""
        known = set(self._world.application.objects()) | {
            (class_of(table), key)
            for table, key in self._ask("SELECT DISTINCT table_name, table_key FROM eventlog")
        }
        return set(objects) - known

    def refusals_end(self, receiver: str, stale: Sequence[Mapping[str, Any]]) -> None:
        """Note that all that a receiver refused was asked for again: from now on it may differ only
        in the objects that ``requeue`` has named as stale, and in those whose refused rows were
        removed.
        """
        consumer = _consumer(receiver)
        named = {(class_of(row["table_name"]), row["table_key"]) for row in stale}
        for row in stale:
            self.looked_at["rows named as stale"] += 1
            if not self._is_stale(row, "SWN" if receiver == self.reader else "SWNEF"):
                self._world.fail(f"requeue for {receiver} refuses a row that is not stale: {row}")
        refused = [
            row for row, (_, level) in self._answers_of(consumer).items() if level in _NOT_FOR_GOOD
        ]
        # A purge may take rows of a refused insert before the publisher has marked the others.
        left_out = [row for whose, row in self._left_out if whose == consumer]
        told = ",".join(map(str, [*refused, *left_out, *self._given_up_rows(consumer)]))
        gone = self._ask(
            f"SELECT table_name, table_key FROM removed_rows WHERE record_id IN ({told})"
        )
        replica = self._world.replica_of(receiver)
        forgotten = self._forgotten_objects(consumer)
        if forgotten and not self._world.has_removed and not self.is_restored:
            self._world.fail(f"{consumer} refused {sorted(forgotten)[:3]}, which have no error row")
        replica.refused = {
            *named,
            *forgotten,
            *((class_of(table), key) for table, key in gone),
        }
        self.given_up = {(whose, key) for whose, key in self.given_up if whose != receiver}
        self.looked_at["refused rows asked for again"] += len(refused)

    def recovers(self, consumer: str) -> None:
        """Note that a process has read its entries: of the objects of snapshots that were given up,
        those count that were recorded before a kill.
        """
        if not self._world.has_removed:
            recorded = self._recorded_of_snapshots(consumer)
            self._given_up_of_snapshots = {
                (whose, event_id)
                for whose, event_id in self._given_up_of_snapshots
                if whose != consumer or event_id in recorded
            }

    def _recorded_of_snapshots(self, consumer: str) -> set[str]:
        """Return the event-ids of the objects of snapshots that have error rows."""
        return {
            event_id
            for (event_id,) in self._ask(
                f"SELECT event_id FROM eventlog_error WHERE record_id = 0 AND consumer = '{consumer}'"
            )
        }

    def _forgotten_objects(self, consumer: str) -> set[Key]:
        """Return the objects of the snapshot of a consumer that it has refused or were given up,
        and whose error rows a purge has removed by their age: ``requeue`` does not know of them
        any more.
        """
        recorded = self._recorded_of_snapshots(consumer)
        refused = {
            which for which, level in self._answered.items() if level in (Level.ERROR, Level.FATAL)
        }
        given_up = {
            which
            for which in self._given_up_of_snapshots
            if self._answered.get(which, Level.RETRY) is Level.RETRY
        }
        forgotten = [
            event_id.split(".", 3)
            for whose, event_id in refused | given_up
            if whose == consumer and event_id.startswith("snapshot.") and event_id not in recorded
        ]
        return {(class_of(name), key) for _, _, name, key in forgotten}

    def _is_stale(self, row: Mapping[str, Any], done: str) -> bool:
        """Return True if a row that ``requeue`` refuses has a later one of its object with a status
        that outdates it, stands below a row that was removed, or is of an insert that may not go as
        a whole (docs/spec/event-log.md 11)."""
        kind = row["event_type"]
        ((removed,),) = self._ask("SELECT coalesce(max(removed), 0) FROM eventlog_epoch")
        if kind <= 4 and row["record_id"] < removed:
            return True
        later = self._ask(
            "SELECT event_type, table_name FROM eventlog "
            f"WHERE table_key = '{row['table_key']}' "
            f"AND record_id > {row['record_id']} AND instr('{done}', status)"
        )
        of_class = [kind for kind, table in later if class_of(table) == class_of(row["table_name"])]
        if kind in (1, 7):
            return True
        return kind <= 4 and any(kind < 4 or other != 4 for other in of_class)

    def is_copied(self) -> None:
        """Note that the database is copied: what was sent and answered up to now."""
        self._copied = {name: dict(getattr(self, name)) for name in _OF_COPIES}
        # What an earlier restore has lost is not sent in this copy either.
        self._copied["_applied"] = {
            which: meaning for which, meaning in self._applied.items() if which not in self._lost
        }
        self._copied["_rows"] = dict(self._rows)
        self._copied_at = self._world.scheduler.now
        self.at_sending.is_copied()

    def time_goes_back(self, top: int, epoch: str) -> None:
        """Note that the newest copy was put back, whose highest record_id is this one, in place of
        a log with this epoch: the log has no answer that came later, and so what was sent later is
        sent again, under other ids."""
        before = {_epoch(event_id) for _, event_id in self._rows}
        self._left.append(({*before, f"e{epoch}" if epoch else ""}, top))
        self._begun_since = set()
        self._taken_back.append((self._copied_at, self._world.scheduler.now))
        written = self._world.application.written
        written -= {row for row in written if row > top}
        began_at = self._began_at
        for name in _OF_COPIES:
            setattr(self, name, dict(self._copied[name]))
        self._lacks_reset = {
            name for name, at in began_at.items() if at != self._began_at.get(name, 0.0)
        } | self._lacks_reset
        self.is_restored = True
        self.at_sending.is_put_back()
        # A consumer that was dropped and registered after the copy has applied rows under new ids.
        self._lost |= {
            which
            for which, meaning in self._applied.items()
            if self._copied["_applied"].get(which) != meaning
        }
        self._forget_meanings()
        self._contents.clear()
        self._parts.clear()
        self._values = {row: name for row, name in self._values.items() if row <= top}
        for by_row in (self._applied, self._idle, self._sent_at):
            for receiver, row in [which for which in by_row if which[1] > top]:
                del by_row[receiver, row]
        for which in [which for which, rows in self._rows.items() if max(rows, default=0) > top]:
            del self._rows[which]

    def _forget_meanings(self) -> None:
        """Forget which rows the ids of the copy's deliveries stood for since the copy was made. These
        events keep their ids and rows, and `requeue` may have sent other rows under the same ids
        (docs/spec/event-log.md 7.4). A reader may read them only now.
        """
        lines = self._ask(
            "SELECT coalesce(owner, ''), content FROM eventlog_inflight WHERE kind = 'delivery'"
        )
        recorded = {(owner, row) for owner, content in lines for row in rows_in_flight(content)}
        of_copy = {
            (owner, event_id): event.rows
            for owner, content in lines
            for event_id, event in events_of_entry(content).items()
        }
        before = self._copied["_rows"]
        for which, rows in list(self._rows.items()):
            if before.get(which) == rows or (which[0], next(iter(rows), 0)) not in recorded:
                continue
            del self._rows[which]
            if (meant := of_copy.get((which[0], _meaning(which[1])))) is not None:
                self._rows[which] = meant
        self._rows |= before

    def begins_anew(self, consumer: str) -> None:
        """Note that a consumer was reset: its receiver begins with nothing, as
        docs/guides/consumers.md asks."""
        self.given_up = {(whose, key) for whose, key in self.given_up if whose != consumer}
        self._skipped = {(whose, row) for whose, row in self._skipped if whose != consumer}
        self._outdated = {(whose, key) for whose, key in self._outdated if whose != consumer}
        self._lacks_reset.discard(consumer)
        self._snapshots.pop(consumer, None)
        self._began_at[consumer] = (
            self._world.scheduler.now + 1
        )  # of requests only seconds are known
        for model in (self._applied, self._newest, self._brought):
            for which in [which for which in model if which[0] == consumer]:
                del model[which]
        by_event = (
            self._rows, self._answered, self._contents, self._parts, self._numbers, self._numbered,
        )  # fmt: skip
        for meant in (*by_event, self._attempts):
            for which in [which for which in meant if which[0] == consumer]:
                del meant[which]

    def seconds_to_newest_row(self) -> float:
        """Return how far the newest row of the log lies in the future, 0 if it does not."""
        ((seconds,),) = self._ask(
            "SELECT max(strftime('%s', event_time)) - strftime('%s', 'now') FROM eventlog"
        )
        return max(0.0, float(seconds or 0))

    def audit_counters(self, process: Process) -> None:
        """Check that a publisher or a consumer that was stopped has counted the answers that it
        got.
        """
        if process.counters is None or process.error is not None:
            return
        if process.has_failed:
            self.excused[Excuse.FAILED_PROCESS] += 1
            return
        self.looked_at["counters of processes"] += 1
        counters = process.counters()
        for level in Level:
            name = level.name.lower()
            counted = getattr(counters, f"answers_{name}")
            # An event that the format has left out of its document too gets an error, or what
            # the receiver answers to the document as a whole, if that is worse.
            has_more = level >= Level.ERROR and self._world.refuses_values
            if counted != process.answers[name] and not (
                has_more and counted > process.answers[name]
            ):
                self._world.fail(
                    f"{process.name} counts {counted} answers {name}, and got {process.answers[name]}"
                )

    # --- at the end ---

    def waits_only_for(self, receiver: str, is_poison: Callable[[Key], bool]) -> str:
        """Return the objects that a receiver takes, and that wait all the same; ``is_poison`` tells
        those that it never takes."""
        rows = self._world.undone_rows(_consumer(receiver))
        told = ",".join(map(str, rows))
        objects = {
            (class_of(table), key)
            for table, key in self._ask(
                f"SELECT table_name, table_key FROM eventlog WHERE record_id IN ({told})"
            )
        }
        waiting = sorted(key for key in objects if not is_poison(key))
        return f"{len(waiting)} objects of {receiver}, such as {waiting[0]}" if waiting else ""

    def audit_status(self, told: Mapping[str, Any]) -> None:
        """Check what ``eventlog status`` has reported of a log that is at rest."""
        letters = dict(self._ask("SELECT status, count(*) FROM eventlog GROUP BY status"))
        self.looked_at["reports of status"] += 1
        expected = {
            "rows": letters,
            "queue_rows": 0,
            "in_flight": [],
            "backlog": None,
            "publisher_runs": False,
        }
        found = {name: told[name] for name in expected}
        found["rows"] = {letter: count for letter, count in told["rows"].items() if count}
        if found != expected:
            self._world.fail(f"status reports {found}, and the log has {expected}")
        names = sorted(name for (name,) in self._ask("SELECT name FROM eventlog_consumer"))
        behind = [one for one in told["consumers"] if one["rows_behind"] or one["runs"]]
        if sorted(one["name"] for one in told["consumers"]) != names or behind:
            self._world.fail(f"status reports the consumers {told['consumers']}, there are {names}")

    def audit_purged(self, *, is_first: bool) -> None:
        """Check that a purge has left nothing that is done, and has taken nothing else. The first
        one need not find what was committed late, below rows that an earlier one has removed."""
        left = {
            row
            for (row,) in self._ask("SELECT record_id FROM eventlog WHERE status NOT IN ('E', 'F')")
        }
        if is_first:
            left -= self._world.application.committed_late
        if left:
            self._world.fail(f"a purge leaves rows that are done: {sorted(left)[:10]}")
        if undone := self._ask(
            "SELECT record_id, status FROM removed_rows WHERE status IN ('E', 'F') LIMIT 10"
        ):
            self._world.fail(f"rows were removed that were not done: {undone}")
        self.looked_at["purges at the end"] += 1

    def audit(self) -> None:
        """Check what must hold when all is delivered."""
        self._world.readers.look()
        ask = self._ask
        if left := ask(
            "SELECT record_id, table_name, table_key FROM eventlog WHERE status = 'N' LIMIT 10"
        ):
            self._world.fail(f"rows are left N: {left}")
        entries = [
            *ask("SELECT * FROM eventlog_inflight WHERE kind = 'delivery' LIMIT 3"),
            *ask("SELECT * FROM eventlog_state WHERE kind = 'claim' LIMIT 3"),
            *ask("SELECT * FROM eventlog_state WHERE kind = 'request' LIMIT 3"),
        ]
        if entries:
            self._world.fail(f"entries in flight, claims or requests are left: {entries}")
        if unexplained := ask(
            "SELECT record_id FROM eventlog WHERE status IN ('E', 'F') AND record_id NOT IN "
            "(SELECT record_id FROM eventlog_error WHERE consumer IS NULL) LIMIT 10"
        ):
            self._world.fail(f"rows E or F have no error row: {unexplained}")
        application = self._world.application
        # Of a snapshot's object that is asked for while its class is unavailable: unknown_table, as
        # docs/spec/event-log.md 13.3 says.
        codes = {"receiver", "requeued", "skipped", "superseded"}
        has_changed = replace(application.shape, columns=()).has_changed
        if has_changed or application.former_columns:  # what was logged before triggers apply
            codes |= {"unknown_column", "bad_table_key"}
        entries = ask("SELECT record_id, code, message FROM eventlog_error")
        bad = [
            entry
            for entry in entries
            if entry[1] not in codes and not (entry[0] == 0 and entry[1] == "unknown_table")
        ]
        is_needed = any(entry[1] in ("unknown_column", "bad_table_key") for entry in entries)
        self.excuse(Excuse.INVALID_AFTER_CHANGE, is_needed)
        if bad and not self._world.refuses_values:
            self._world.fail(f"rows became bad: {bad[:5]}")
        ((noted, removed),) = ask(
            "SELECT coalesce(max(removed), 0), (SELECT coalesce(max(record_id), 0) FROM removed_rows) "
            "FROM eventlog_epoch"
        )
        if noted < removed:
            self._world.fail(f"row {removed} was removed, and the log notes {noted} as the highest")
        self._audit_rows()
        self._audit_error_rows()
        self.audit_replicas()

    def _audit_rows(self) -> None:
        """Check that each committed row has the letter of its answer, and that what is done was
        applied, needed no event, or was refused."""
        reader = self.reader
        own = self._world.application.own | {  # copies of them too
            row
            for (row,) in self._ask(
                f"SELECT record_id FROM eventlog WHERE perpetrator = '{OWN_USER}' "
                f"UNION SELECT record_id FROM removed_rows WHERE perpetrator = '{OWN_USER}'"
            )
        }
        refused = {
            row
            for (row,) in self._ask("SELECT record_id FROM eventlog_error WHERE consumer IS NULL")
        }
        there = dict(self._ask("SELECT record_id, status FROM removed_rows"))
        if undone := {row: letter for row, letter in there.items() if letter not in "SWN"}:
            self._world.fail(f"rows were removed that were not done: {undone}")
        by_status = {row: letter for row, letter in there.items() if letter != "N"}
        removed_new = there.keys() - by_status.keys()
        there = dict.fromkeys(there, "S")  # N: by delete_from_log, once it was answered
        there |= dict(self._ask("SELECT record_id, status FROM eventlog"))
        self.checks += 2 * len(there)
        lost = [
            (row, letter)
            for row, letter in sorted(there.items())
            if letter in ("S", "W")
            and (reader, row) not in self._applied
            and ("", row) not in self._idle
            and row not in refused
            and row not in own
        ]
        if lost:
            told = self._ask(
                f"SELECT record_id, status, event_type, table_name, table_key FROM eventlog WHERE record_id IN ({','.join(str(row) for row, _ in lost[:10])})"
            )
            self._world.fail(f"rows are done, and {reader} never applied them: {lost[:10]} {told}")
        if reader == "receiver":
            letters = by_status | dict(self._ask("SELECT record_id, status FROM eventlog"))
            # A row of the own user that was refused and asked for again may be passed over.
            passed = {row for row in own if letters.get(row) == "S"}
            self._audit_statuses({row: letters[row] for row in letters.keys() - passed})
            self._audit_deleted(removed_new)
        for name in sorted(set(self._world.receivers) - {"receiver"}):
            self._audit_consumer(name, set(there))

    def _audit_statuses(self, letters: Mapping[int, str]) -> None:
        """Check that a row has the letter of the last answer to its event."""
        newest = self._ask(
            f"SELECT record_id, {_REFUSED_UNSENT}, max(rowid) FROM eventlog_error "
            "WHERE consumer IS NULL AND code NOT IN ('superseded', 'skipped') GROUP BY record_id"
        )
        invalid = {row for row, is_unsent, _ in newest if is_unsent}
        for row, (event_id, level) in self._answers_of("").items():
            letter = letters.get(row)
            if letter is None or ("", row) in self._skipped:
                continue
            self.checks += 1
            if letter == "E" and row in invalid:
                continue  # it was, or became, invalid before its event could go again
            if (found_at := self._idle.get(("", row))) is not None:
                is_lost = any(since <= found_at <= until for since, until in self._taken_back)
                is_newest = found_at > self._sent_at.get(("", row), -1.0)
                if letter in "EF" and is_newest and not is_lost:
                    self._world.fail(f"row {row} is {letter}, and needs no event")
                continue
            if letter != _LETTERS.get(level):
                self._world.fail(
                    f"row {row} is {letter}, and the last answer to {event_id} was {level.name.lower()}"
                )
                return

    def _audit_deleted(self, rows: Iterable[int]) -> None:
        """Check that ``delete_from_log`` has deleted no row that the receiver refused."""
        answers = self._answers_of("")
        self.looked_at["deleted rows"] += len(list(rows))
        for row in rows:
            event_id, level = answers.get(row, ("", Level.SUCCESS))
            if level not in (Level.SUCCESS, Level.WARNING) and ("", row) not in self._idle:
                self._world.fail(
                    f"row {row} was deleted, and the last answer to {event_id} was {level.name.lower()}"
                )
                return

    def _audit_error_rows(self) -> None:
        """Check that the error rows are those of the answers: no more than there were refusals, of
        the rows and the consumers that were refused, and one at least for each row that is refused
        now.
        """
        for codes, counted, what in (
            ("IN ('receiver', 'skipped')", self._refusals, "refused"),
            ("NOT IN ('receiver', 'skipped', 'requeued', 'superseded')", self._invalid, "invalid"),
        ):
            lines = Counter(
                self._ask(
                    "SELECT consumer, record_id FROM written_lines "
                    f"WHERE record_id > 0 AND code {codes}"
                )
            )
            self.looked_at[f"error rows of rows that were {what}"] += lines.total()
            for (consumer, row), count in sorted(lines.items()):
                # A format that refuses values has receivers' answers and its own in one code.
                is_own = what == "refused" and self._world.refuses_values
                if count > counted[consumer, row] and not is_own:
                    self._world.fail(
                        f"row {row} has {count} error rows of {consumer or 'the publisher'}, and "
                        f"was {what} {counted[consumer, row]} times"
                    )
                    return
        any_lines = set(
            self._ask(
                "SELECT coalesce(consumer, ''), record_id FROM eventlog_error WHERE code <> 'requeued'"
            )
        )
        there = {row for (row,) in self._ask("SELECT record_id FROM eventlog")}
        for consumer in sorted(
            {whose for whose, _ in self._answered} & self._world.receivers.keys()
        ):
            for row, (event_id, level) in self._answers_of(consumer).items():
                is_refused = level in (Level.ERROR, Level.FATAL) and row in there
                if (
                    is_refused
                    and not self._is_dropped(consumer, row)
                    and ((consumer, row) not in any_lines)
                ):
                    self._world.fail(
                        f"{consumer} refused {event_id}, and row {row} has no error row"
                    )
                    return

    def _is_dropped(self, consumer: str, row: int) -> bool:
        """Return True if precedence dropped a row from the event that it was last sent with: the
        row is done, whatever the answer to the event is (docs/spec/event-log.md 8.4)."""
        which = consumer, row
        return self._idle.get(which, -1.0) >= self._sent_at.get(which, 0.0)

    def _answers_of(self, consumer: str) -> dict[int, tuple[str, Level]]:
        """Return the event-id of each row that was answered, and the last answer, if it may be in this
        log."""
        answers: dict[int, tuple[str, Level]] = {}
        for (whose, event_id), level in self._answered.items():
            if whose == consumer and (whose, event_id) not in self._answered_in_vain:
                rows = self._rows.get((whose, event_id), ())
                last = self._last_row_of(_epoch(event_id))
                there = (row for row in rows if row <= last)
                answers.update(dict.fromkeys(there, (event_id, level)))
        return answers

    def _last_row_of(self, epoch: str) -> float:
        """Return the highest record_id that means the same row in this epoch and now."""
        return min((top for epochs, top in self._left if epoch in epochs), default=float("inf"))

    def _audit_consumer(self, name: str, rows: set[int]) -> None:
        """Check that a consumer applied each row since its beginning, or that it needed no event,
        or was refused."""
        begun = self._ask(
            f"SELECT done, removed, begins FROM begun_consumers WHERE name = '{name}' ORDER BY rowid DESC LIMIT 1"
        )
        if not begun or name in self._lacks_reset:
            return
        done, removed, begins = Rows.of(begun[0][0]), begun[0][1], begun[0][2]
        gone = {
            row
            for (row,) in self._ask(f"SELECT record_id FROM removed_rows WHERE rowid <= {removed}")
        }
        if begins.isdigit() and (missing := sorted(row for row in gone if row >= int(begins))):
            self._world.fail(
                f"{name} begins at {begins}, and rows {missing[:5]} were removed before"
            )
        refused = {
            row
            for (row,) in self._ask(
                f"SELECT record_id FROM eventlog_error WHERE consumer = '{name}'"
            )
        }
        # Purge takes the lines of rows that are gone, also of rows that were bad.
        refused |= {
            row for row, (_, level) in self._answers_of(name).items() if level in _NOT_FOR_GOOD
        }
        refused |= {
            row
            for (row,) in self._ask(
                "SELECT record_id FROM removed_lines JOIN eventlog_consumer ON name = consumer "
                f"WHERE name = '{name}' AND code <> 'requeued' AND error_time >= begun"
            )
        }
        refused |= self._given_up_rows(name)
        self.checks += len(rows)
        passed_over = self._passed_over(name)
        lost = [
            row
            for row in sorted(rows - gone - refused - passed_over)
            if row not in done
            and (name, row) not in self._applied
            and (name, row) not in self._idle
        ]
        if lost:
            self._world.fail(f"{name} never applied rows {lost[:10]}")
        own = sorted(row for row in self._rows_of_own_user(name) if (name, row) in self._applied)
        if own and not self.is_restored:  # a number may have been another row's before
            self._world.fail(f"{name} has sent rows {own[:10]} of the publisher's own user")
        self._audit_requests(name, passed_over)

    def _passed_over(self, consumer: str) -> set[int]:
        """Return the rows that are done for a consumer without being sent: of other classes than it
        is limited to, and of the publisher's user if it passes over them."""
        found = self._rows_of_own_user(consumer)
        if (classes := self._world.classes_of(consumer)) is not None:
            several = self._ask(
                "SELECT record_id, table_name FROM eventlog "
                "UNION ALL SELECT record_id, table_name FROM removed_rows"
            )
            found |= {row for row, table in several if class_of(table) not in classes}
        self.looked_at["rows that a consumer passes over"] += len(found)
        return found

    def _rows_of_own_user(self, consumer: str) -> set[int]:
        if not self._world.passes_over_own(consumer):
            return set()
        several = self._ask(
            f"SELECT record_id FROM eventlog WHERE perpetrator = '{OWN_USER}' "
            f"UNION ALL SELECT record_id FROM removed_rows WHERE perpetrator = '{OWN_USER}'"
        )
        return {row for (row,) in several}

    def _audit_requests(self, name: str, passed_over: set[int]) -> None:
        """Check that a consumer sent again what it was asked for, found that it needs no event, or
        has an error row since then that says why not. A purge removes none of these rows before."""
        begun_at = self._began_at.get(name, 0.0)
        there = {row for (row,) in self._ask("SELECT record_id FROM eventlog")}
        newest_lines = "SELECT record_id, max(rowid) FROM written_lines WHERE code {} 'requeued' AND consumer = ? GROUP BY record_id"
        asked, failed = (
            dict(self._ask(newest_lines.format(operator), name)) for operator in ("=", "<>")
        )
        refused = {row for row, entry in failed.items() if row in asked and entry > asked[row]}
        for told, at, before in self._ask(
            "SELECT rows, at, removed FROM asked_rows WHERE name = ?", name
        ):
            second = float(at) - BEGIN
            if second < begun_at:
                continue
            removed = {
                row
                for (row,) in self._ask(
                    "SELECT record_id FROM removed_rows WHERE rowid > ?", before
                )
            }
            wanted = [row for row in Request.of(told).rows if row in there | removed]
            rows = [row for row in wanted if row not in passed_over]
            self.looked_at["rows asked for"] += len(rows)
            self.looked_at["rows asked for and removed since"] += len(removed.intersection(rows))
            unsent = [
                row
                for row in rows
                if row not in refused
                and max(self._sent_at.get((name, row), -1.0), self._idle.get((name, row), -1.0))
                < second - 0.001  # the database has milliseconds
            ]
            if unsent:
                self._world.fail(
                    f"{name} was asked for rows {unsent[:10]} at {second:g}, and never sent them again"
                )
                return

    def audit_replicas(self) -> None:
        """Check that receivers have what the tables have."""
        world = self._world
        if world.plan["sink"] == "python":
            self._compare("receiver", world.receivers["receiver"].replica)
        else:
            self._compare("reader", world.readers.remembering)
            self._compare("reader", world.readers.read_all(), "the reader of all names")
        for name, receiver in world.receivers.items():
            if name != "receiver" and not self._lacks_a_beginning(name):
                self._compare(name, receiver.replica)

    def _lacks_a_beginning(self, name: str) -> bool:
        """Return True if a consumer began now, at a record_id, or with what the log still held
        after a purge, or if its entry is of before its receiver began with nothing."""
        if name in self._lacks_reset:
            return True
        begun = self._ask(
            f"SELECT begins NOT IN ('earliest', 'snapshot') OR (begins = 'earliest' AND removed > 0) FROM begun_consumers WHERE name = '{name}' ORDER BY rowid DESC LIMIT 1"
        )
        return bool(begun and begun[0][0])

    def _compare(self, receiver: str, replica: Replica, named: str = "") -> None:
        """Compare the replica of a receiver with the tables, except for objects of which it refused
        an event."""
        who = named or receiver
        application = self._world.application
        unheeded = {_MULTIPLE, "mark"} if self._world.refuses_values else set()
        is_away = application.hidden
        classes = self._world.classes_of(receiver)
        wanted = {
            key: _values(values, unheeded)
            for key, values in application.objects().items()
            if classes is None or key[0] in classes
        }
        # A receiver keeps what it has of a column that is gone: DDL is not an event.
        there = {
            key: {
                name: texts
                for name, texts in _values(values, unheeded).items()
                if not name.startswith("extra") or name in application.shape.columns
            }
            for key, values in replica.objects.items()
        }
        excuses = self._excuses(receiver, replica, {key for key in there if key not in wanted})
        for key in sorted(set(wanted) | set(there)):
            self.looked_at["objects"] += 1
            has, should = there.get(key), wanted.get(key)
            differs = has != should and bool(has or should)
            why = next((why for why, keys in excuses.items() if key in keys), None)
            if why is None and key[0] in is_away:
                why = Excuse.UNAVAILABLE
            if why is not None:
                self.looked_at[f"excused objects, {why.words}"] += 1
                self.excuse(why, differs)
                continue
            self.checks += 1
            if differs:
                rows = self._ask(
                    f"SELECT record_id, status, event_type, column_name, substr(old_value, 1, 20), substr(new_value, 1, 20) "
                    f"FROM eventlog WHERE table_name = {key[0]!r} AND table_key = '{key[1]}' ORDER BY record_id DESC LIMIT 8"
                )
                self._world.fail(
                    f"{who}: {key} is {has}, and the table has {should}; its newest rows: {rows}"
                )
                return

    def _excuses(self, receiver: str, replica: Replica, beyond: set[Key]) -> dict[Excuse, set[Key]]:
        """Return the objects that may differ for a receiver, by the reason. ``beyond`` are those
        that it has beyond the tables."""
        excuses = {
            Excuse.LOST: self.unsure,
            Excuse.REFUSED: replica.refused,
            Excuse.REFUSED_BY_FORMAT: self._refused_objects(),
            Excuse.GIVEN_UP: {key for whose, key in self.given_up if whose == receiver},
            Excuse.OUTDATED: {key for whose, key in self._outdated if whose == receiver},
        }
        # Deletes that no trigger saw, of objects of which the log has no row: only a snapshot sent
        # them, or their rows were removed.
        unlogged = self._world.application.unlogged
        excuses[Excuse.NOT_LOGGED] = (
            unlogged if self._world.has_removed else self.unknown_objects(unlogged)
        )
        if self._world.has_removed and len(self._world.application.shape.keys) > 1:
            # It was logged under the other name of the key.
            excuses[Excuse.KEY_RENAMED] = {key for key in beyond if key[0] == "doc"}
        return excuses

    def reasons_to_differ(self, receiver: str) -> set[Key] | None:
        """Return the objects that a receiver may have otherwise than the tables at this moment;
        None if that holds for all, since it began without them."""
        is_consumer = receiver not in ("receiver", "reader")
        if self._world.has_removed or (is_consumer and self._lacks_a_beginning(receiver)):
            return None
        excuses = self._excuses(receiver, self._world.replica_of(receiver), set())
        return set[Key]().union(*excuses.values())

    def _refused_objects(self) -> set[Key]:
        """Return the objects of events that the format itself has refused, also those whose rows are
        removed."""
        if not self._world.refuses_values:
            return set()
        found = self._ask(
            "SELECT table_name, table_key FROM eventlog WHERE record_id IN (SELECT record_id FROM eventlog_error) "
            "UNION SELECT table_name, table_key FROM removed_rows WHERE record_id IN (SELECT record_id FROM removed_lines)"
        )
        return {(class_of(table), key) for table, key in found}

    def _ask(self, sql: str, *given: object) -> list[Any]:
        return self._world.application.session.execute(sql, given).fetchall()


def _consumer(receiver: str) -> str:
    """Return the consumer that a receiver or a process is of, empty for the publisher."""
    name = receiver.removesuffix("'s standby")
    return "" if name in ("receiver", "reader", "publisher", "second") else name


def _meaning(event_id: str) -> str:
    """Return an event-id without the number of its sending."""
    first, *parts = event_id.split(".")
    return ".".join([first, *(part for part in parts if not part.isdigit())])


def _sending(event_id: str) -> int:
    """Return the number of the sending of an event-id."""
    *before, last = event_id.split(".")
    return int(last) if before and last.isdigit() else 1


def _epoch(event_id: str) -> str:
    return next((part for part in event_id.split(".") if part[0] == "e"), "")


def _began_together(one: str, other: str) -> bool:
    """Return True for two epochs that began in the same second, as no two restores of a real
    database do (docs/formats/qlik.md 3)."""
    return one != other and one[: len("eYYYYMMDDhhmmss")] == other[: len("eYYYYMMDDhhmmss")]


def _is_of_begin(number: str, epoch: str) -> bool:
    """Return True for a number of the second in which its epoch began. A restore takes no time
    here, so that the epoch before may have sent in this second."""
    second = len("YYYYMMDDhhmmss")
    return number[:second] == epoch[1 : second + 1]


def _values(values: Mapping[str, Sequence[str]], unheeded: set[str]) -> dict[str, list[str]]:
    return {name: sorted(set(texts)) for name, texts in values.items() if name not in unheeded}


__all__ = ["KEYS", "Auditor"]
