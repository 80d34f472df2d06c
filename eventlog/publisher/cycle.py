"""One cycle of the publisher: what is in flight first, then one window of the queue (spec/event-log.md 8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eventlog.checks import BadRow, check_rows
from eventlog.events import Outcome, apply_precedence, build_event
from eventlog.fold import Group
from eventlog.model import LogRow, Status
from eventlog.publisher.context import Context
from eventlog.publisher.delivery import Landing, count_fates, deliver
from eventlog.publisher.flight import Envelope, Flight, Sending, decode, encode, ids_of, numbered, pack, record_of
from eventlog.publisher.future import DuePass, begin_due_pass, take_due_window
from eventlog.publisher.marks import Marks
from eventlog.publisher.parking import Parking
from eventlog.publisher.sinks import Sink
from eventlog.publisher.window import build_outcomes, query_back, split_by_rows, take_window
from eventlog.sql.companions import next_flight, read_inflight, write_inflight
from eventlog.sql.log_rows import tail


@dataclass(slots=True)
class State:
    """What a publisher knows between cycles; all of it can be had again from the database.

    ``flights``: what is recorded in the in-flight lines, by number. ``newest``: what the last numbered one began with.
    ``first`` and ``last``: the rest of the current pass over the queue, None between passes; ``due`` is it with
    ``handle_future_events``.
    """

    parking: Parking
    flights: dict[int, Flight] = field(default_factory=dict)
    newest: str = ""
    first: int = 1
    last: int | None = None
    due: DuePass | None = None

    @property
    def in_pass(self) -> bool:
        """Whether a pass has been begun and is not at its end."""
        return self.last is not None or self.due is not None


class Cycle(NamedTuple):
    """How a cycle ended. ``more``: there is something to do at once. ``reason`` for people when it was stopped."""

    landing: Landing
    more: bool
    reason: str = ""


def recover(context: Context) -> State:
    """The state of a publisher that has just got its lock: what is in flight is sent first."""
    flights = {number: decode(number, text) for number, text in read_inflight(context.connection, context.log)}
    context.connection.commit()
    newest = max((flight.first for flight in flights.values()), default="")
    return State(Parking(context.options.retry_initial, context.options.retry_max), flights, newest)


def _nothing() -> None:
    pass


def run_cycle(
    context: Context,
    state: State,
    sink: Sink,
    stopping: Callable[[], bool],
    before_flight: Callable[[], None] = _nothing,
    before_bad: Callable[[], None] = _nothing,
) -> Cycle:
    """Send what is in flight and due, then take one window of the queue and send its flights.

    ``before_flight`` is called before the envelopes of a flight are sent, with no transaction open. ``before_bad`` is
    called before rows are marked bad, and may stop the cycle by an error: nothing of the rows is recorded yet.
    Raises DatabaseError or SQLAlchemy's errors when the database fails; then nothing is known of the
    open transaction and the caller connects and recovers anew.
    """
    cycle = send_in_flight(context, state, sink, stopping, before_flight, before_bad)
    if cycle.landing is not Landing.DONE:
        return cycle
    if not state.in_pass and not _begin_pass(context, state):
        context.connection.commit()
        return Cycle(Landing.DONE, more=False)
    in_flight = recorded_ids(state.flights.values())
    several_windows = state.first > 1 or (state.due is not None and state.due.after is not None)
    if state.due is not None:
        taken, rest = take_due_window(context, state.due, in_flight, state.parking)
    else:
        assert state.last is not None
        taken, rest = take_window(context, state.first, state.last, in_flight, state.parking), None
    if taken.bad:
        before_bad()
    context.counters.rows_read += taken.rows_read
    marks = _marks_without_group(context, taken.bad, taken.loopback)
    for groups in split_by_rows(taken.groups, context.options.flight_rows):
        if stopping():
            return _stopped(state, Landing.STOPPED, "told to stop")
        prepared = _prepare(context, groups, taken.origins, marks, before_bad, state.newest)
        marks = Marks()
        if prepared is not None:
            state.newest = prepared.first
            landing, reason = _fly(context, state, prepared, sink, stopping, before_flight)
            if landing is not Landing.DONE:
                return _stopped(state, landing, reason)
    marks.write(context)
    context.connection.commit()
    if rest is None and taken.next_first is None:
        _end_pass(state)
        return Cycle(Landing.DONE, more=several_windows)
    state.due = rest
    state.first = taken.next_first or state.first
    return Cycle(Landing.DONE, more=True)


def send_in_flight(
    context: Context,
    state: State,
    sink: Sink,
    stopping: Callable[[], bool],
    before_flight: Callable[[], None] = _nothing,
    before_bad: Callable[[], None] = _nothing,
) -> Cycle:
    """Send what is recorded in flight and whose objects do not wait. Arguments and errors as of ``run_cycle``."""
    parked = set(state.parking)
    state.parking.wake(time.monotonic())
    for number in sorted(state.flights):
        if not _is_due(state.flights[number], state.parking):
            continue
        flight = rebuild(context, state.flights[number], state.parking, before_bad)
        landing, reason = _fly(context, state, flight, sink, stopping, before_flight)
        if landing is not Landing.DONE:
            return _stopped(state, landing, reason)
    if not parked.issubset(state.parking):
        # The pass has read past rows of the objects that are free now: they come before what is behind them.
        _end_pass(state)
    if len(state.parking) > context.options.max_parked:
        return _stopped(state, Landing.RETRY, f"more than {context.options.max_parked} objects are parked")
    return Cycle(Landing.DONE, more=False)


def _begin_pass(context: Context, state: State) -> bool:
    """Begin a pass at the head of the queue; False if the queue is empty."""
    if context.options.handle_future_events:
        state.due = begin_due_pass(context)
        return True
    state.first, state.last = 1, tail(context.connection, context.log)
    return state.last is not None


def _end_pass(state: State) -> None:
    """Let the next window begin at the head of the queue."""
    state.last = state.due = None


def _stopped(state: State, landing: Landing, reason: str) -> Cycle:
    _end_pass(state)
    return Cycle(landing, more=False, reason=reason)


def _fly(
    context: Context,
    state: State,
    flight: Flight,
    sink: Sink,
    stopping: Callable[[], bool],
    before_flight: Callable[[], None],
) -> tuple[Landing, str]:
    before_flight()
    state.flights[flight.number] = flight
    landing, rest, reason = deliver(context, flight, sink, state.parking, stopping)
    if rest.envelopes:
        state.flights[flight.number] = rest
    else:
        del state.flights[flight.number]
    return landing, reason


def _is_due(flight: Flight, parking: Parking) -> bool:
    return any(
        not parking.is_waiting(sending.object_id) for envelope in flight.envelopes for sending in envelope.sendings
    )


def recorded_ids(flights: Iterable[Flight]) -> frozenset[int]:
    """The record_ids of all rows that are in flight."""
    return frozenset(
        record_id
        for flight in flights
        for envelope in flight.envelopes
        for sending in envelope.sendings
        for record_id in ids_of(sending.record.rows)
    )


def _marks_without_group(context: Context, bad: Sequence[BadRow], loopback: Sequence[int]) -> Marks:
    marks = Marks()
    marks.add_bad(bad)
    marks.add(Status.SUCCESS, loopback)
    context.counters.rows_bad += len(bad)
    context.counters.rows_loopback += len(loopback)
    return marks


def _prepare(
    context: Context,
    groups: Sequence[Group],
    origins: Mapping[int, LogRow],
    marks: Marks,
    before_bad: Callable[[], None],
    newest: str,
) -> Flight | None:
    """Build the events of a flight and record it; marks of rows that make no event are written with it."""
    sendings: list[Sending] = []
    outcomes = build_outcomes(context, groups)
    if any(outcome.bad for outcome in outcomes):
        before_bad()
    for group, outcome in zip(groups, outcomes, strict=True):
        if outcome.event is None:
            marks.add_without_event(outcome)
            count_fates(context, outcome)
        else:
            order = [row.record_id for row in group.rows] if context.options.handle_future_events else None
            if context.numbered is None:
                record, origin = record_of(outcome, order), None
            else:
                record = record_of(outcome, order, place=len(sendings) + 1)
                origin = origins.get(record.rows[0][0])
            sendings.append(Sending(record, (group.object_class, group.key), outcome.event, outcome, origin))
    flight = None
    if sendings:
        number = next_flight(context.connection, context.log)
        flight = pack(number, sendings, context.options.batch_size)
        if context.numbered is not None:
            flight = flight._replace(first=context.numbered.first(number, newest))
        write_inflight(context.connection, context.log, flight.number, encode(flight))
    marks.write(context)
    context.connection.commit()
    return flight


def rebuild(context: Context, flight: Flight, parking: Parking, before_bad: Callable[[], None] = _nothing) -> Flight:
    """A recorded flight with its events built anew: the same rows, event-ids and envelopes, values read back anew.

    A row that is missing or no longer N is done; one that fails the checks now becomes E. Events of objects that
    still wait are left as they are. ``before_bad`` as of ``run_cycle``.
    """
    if context.numbered is not None and not flight.first:  # recorded by a publisher of another format
        flight = numbered(flight, context.numbered.first(flight.number, ""))
    wanted = [
        sending.record
        for envelope in flight.envelopes
        for sending in envelope.sendings
        if not parking.is_waiting(sending.object_id)
    ]
    ids = sorted(pair for record in wanted for pair in record.rows)
    rows = [
        row
        for row in context.dialect.read_rows(context.connection, context.log, ids)
        if row.status.rstrip() == Status.NEW
    ]
    checked = check_rows(rows, context.catalog, None)
    if checked.bad:
        before_bad()
    by_id = {row.record_id: row for row in rows}
    good = {row.record_id: row for row in checked.good}
    bad = {row.record_id: row for row in checked.bad}
    decided = {}
    for record in wanted:
        members = [good[i] for i in ids_of(record.rows) if i in good]
        if members:
            group = Group(members[0].object_class, members[0].key, members)
            decided[record] = apply_precedence(group, context.options.events, frozenset(ids_of(record.dropped)))
    current = query_back(context, list(decided.values()))
    context.connection.commit()

    def again(sending: Sending) -> Sending:
        record = sending.record
        if parking.is_waiting(sending.object_id):
            return sending
        failed = [bad[i] for i in ids_of(record.rows) if i in bad]
        precedence = decided.get(record)
        if precedence is None:
            return Sending(record, sending.object_id, None, Outcome(None, [], [], [], [], failed, 0))
        object_id = precedence.group.object_class, precedence.group.key
        outcome = build_event(precedence, current.get(object_id), context.options.events, record.sent_id)
        outcome.bad.extend(failed)
        origin = by_id.get(precedence.group.rows[0].record_id) if flight.first else None
        return Sending(record, object_id, outcome.event, outcome, origin)

    return Flight(
        flight.number,
        tuple(Envelope(envelope.number, tuple(map(again, envelope.sendings))) for envelope in flight.envelopes),
        flight.first,
    )
