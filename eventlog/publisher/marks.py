"""What is written to the log of rows that are done, and of what is left of a flight (spec/event-log.md 7.3, 8.4)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from eventlog.core.catalog import ObjectId
from eventlog.core.checks import BadRow
from eventlog.core.events import Fates, Outgoing
from eventlog.errors import number_of
from eventlog.model import Level, Status, Verdict
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.delivery import Answered, Judged, Parking, as_flushed
from eventlog.publisher.flight import Envelope, Flight, encode
from eventlog.publisher.sinks import Sink
from eventlog.sql.rows import add_errors, strike_inflight, update_inflight
from eventlog.sql.windows import to_ranges

_LETTERS = {
    Level.SUCCESS: Status.SUCCESS,
    Level.WARNING: Status.WARNING,
    Level.ERROR: Status.ERROR,
    Level.FATAL: Status.FATAL,
}


@dataclass(slots=True)
class Marks:
    """Marks and error lines that are collected and then written together. Each use begins with a new one.

    ``kept``: rows to be marked S that ``delete_from_log`` does not delete.
    """

    letters: dict[Status, list[int]] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    errors: list[BadRow] = field(default_factory=list)

    def add(self, letter: Status, record_ids: Iterable[int]) -> None:
        self.letters.setdefault(letter, []).extend(record_ids)

    def add_bad(self, bad: Iterable[BadRow]) -> None:
        """Rows that failed a check or whose value read back cannot be written: E, with a line each."""
        for row in bad:
            self.add(Status.ERROR, (row.record_id,))
            self.errors.append(row)

    def add_answered(self, events: Sequence[Outgoing], verdict: Verdict) -> int:
        """The rows of events that got an answer other than retry; what precedence dropped is S whatever it says.

        How many rows got the letter of the answer.
        """
        contributed = [ids if fates is None else fates.contributed for _, ids, _, _, _, fates, _, _, _ in events]
        record_ids = list(chain.from_iterable(contributed))
        self.add(_LETTERS[verdict.level], record_ids)
        if verdict.level in (Level.ERROR, Level.FATAL):
            message = verdict.message or f"the receiver answered {verdict.level.name.lower()}"
            self.errors.extend(BadRow(record_id, "receiver", message) for record_id in record_ids)
        for fates in special_fates(events):
            self.add_fates(fates)
        return len(record_ids)

    def add_fates(self, fates: Fates) -> None:
        """The rows of a group that do not depend on an answer."""
        for record_ids in (fates.dropped, fates.gone, fates.empty):
            if record_ids:
                self.add(Status.SUCCESS, record_ids)
        self.add_bad(fates.bad)

    def write(self, context: Context) -> None:
        """Write them in the current transaction: one statement a letter, one for the error lines."""
        for letter, record_ids in self.letters.items():
            ranges = to_ranges(sorted(record_ids))
            if not ranges:
                continue
            if context.options.delete_from_log and letter in (Status.SUCCESS, Status.WARNING):
                context.dialect.delete(context.connection, context.log, ranges)
            else:
                context.dialect.mark(context.connection, context.log, letter, ranges)
        if self.kept:
            kept = to_ranges(sorted(self.kept))
            context.dialect.mark(context.connection, context.log, Status.SUCCESS, kept)
        if self.errors:
            add_errors(context.connection, context.log, self.errors)


class InflightLine:
    """The progress of a flight whose in-flight line is committed. ``recorded``: what of the flight the line holds now.

    Rows are marked and the line is struck whenever ``mark_interval`` has passed since the last time, and at once when
    an event is to be sent under a new event-id: until that is in the line a crash repeats it under the old one, which
    the receiver may know. Events of objects that wait, and those that have not been built, stay in the line.
    """

    def __init__(self, context: Context, flight: Flight, sink: Sink, parking: Parking[ObjectId]) -> None:
        self.options, self.counters, self.parking = context.options, context.counters, parking
        self.flight, self.recorded = flight.number, flight
        self._context, self._sink = context, sink
        self._left: dict[int, Sequence[Outgoing]] = {envelope.number: envelope.events for envelope in flight.envelopes}
        self._unmarked: Answered[Outgoing] = []
        self._marks = Marks()  # of what is unmarked, as it was answered
        self._marked_at = time.monotonic()

    def take(self, envelope: int, events: Sequence[Outgoing], judged: Judged[Outgoing]) -> str:
        counters = self.counters
        for verdict, answered in judged.answered:
            counters.rows_published += self._marks.add_answered(answered, verdict)
            for fates in special_fates(answered):
                count_fates(counters, fates)
        self._unmarked += judged.answered
        self._left[envelope] = _left_of(self._left[envelope], events, judged)
        if judged.behind or time.monotonic() - self._marked_at >= self.options.mark_interval:
            self.save()
        most = self.options.max_parked
        return f"more than {number_of(most, 'object')} parked" if len(self.parking) > most else ""

    def save(self) -> None:
        """Make what was answered count, and mark it. Raises ReceiverAway if the sink has lost it."""
        refused = self._sink.flush()
        begun = time.monotonic()
        if refused:
            self._marks = Marks()
            for verdict, events in as_flushed(self._unmarked, refused, self.counters):
                self._marks.add_answered(events, verdict)
        self._write(self._marks)
        self._unmarked, self._marks, self._marked_at = [], Marks(), time.monotonic()
        self._context.observer.marked(self._marked_at - begun)

    def _write(self, marks: Marks) -> None:
        """Write marks and what is left of the flight in one transaction."""
        # Without the log's rows: they are read anew when it is sent again, and it may stay for long.
        envelopes = [Envelope(number, events) for number, events in self._left.items() if events]
        rest = Flight(self.recorded.number, envelopes, self.recorded.first)
        connection, log = self._context.connection, self._context.log
        marks.write(self._context)
        if not envelopes:
            strike_inflight(connection, log, rest.number)
        elif marks.letters or encode(rest) != encode(self.recorded):
            update_inflight(connection, log, rest.number, encode(rest))
        connection.commit()
        self.recorded = rest


def _left_of(before: Sequence[Outgoing], events: Sequence[Outgoing], judged: Judged[Outgoing]) -> Sequence[Outgoing]:
    """What of an envelope stays in the line: what was not sent, and what is to be sent again."""
    if not judged.retried and not judged.behind and len(events) == len(before):
        return ()
    done = {event.event_id for _, answered in judged.answered for event in answered}
    behind = {event.event_id for _, event in judged.behind}
    return [
        event._replace(sendings=event.sendings + 1) if event.event_id in behind else event
        for event in before
        if event.event_id not in done
    ]


def special_fates(events: Sequence[Outgoing]) -> list[Fates]:
    """The fates of those events whose rows do not all share one."""
    return [fates for _, _, _, _, _, fates, _, _, _ in events if fates is not None]


def count_fates(counters: Counters, fates: Fates) -> None:
    """Count the rows of a group that got their letter without an answer of their own (spec/event-log.md 7.3)."""
    counters.rows_dropped += len(fates.dropped)
    counters.rows_gone += len(fates.gone)
    counters.rows_empty += len(fates.empty)
    counters.rows_bad += len(fates.bad)
    counters.sv_conflicts += fates.conflicts
