"""One cycle of the publisher: first the flights in flight, then one window of the queue
(spec/event-log.md 8).

This is a hot path by its statements, not by its loops: a window is read by one statement, and a
flight is two commits, its line before it is sent and its marks after it. So the marks of rows that
are in no flight wait for the transaction of the next flight's line. Rows are checked in ``queue``,
events are made in ``core.events``; here no loop visits single rows, and events with fates, which
are rare, are set apart in one pass. In return ``marks`` is handed from flight to flight.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from eventlog.core.catalog import ObjectId
from eventlog.core.checks import BadRow, Remark, check_rows
from eventlog.core.clock import monotonic
from eventlog.core.event_ids import raised_at, record_id_of
from eventlog.core.events import Decided, Fates, Outgoing, build_event, decide, ids_of
from eventlog.core.ranges import to_ranges
from eventlog.errors import DatabaseUnavailable, number_of
from eventlog.model import LogRow, Origins, Status, origins_of, queue_rows, unpadded
from eventlog.publisher.context import Context, report_missing
from eventlog.publisher.delivery import Delivered, FlightResult, deliver_flight
from eventlog.publisher.flight import (
    Flight,
    Tried,
    encode,
    note_try,
    numbered,
    pack,
    set_apart,
    unbuilt,
)
from eventlog.publisher.held_rows import read_recorded, warn_of
from eventlog.publisher.ledger import QueueScan
from eventlog.publisher.marks import InflightLine, Marks, all_wait, keep_next_sendings
from eventlog.publisher.parking import Parking
from eventlog.publisher.queue import (
    DueScan,
    Either,
    WindowResult,
    begin_due_scan,
    begin_scan,
    is_still_valid,
    most_retries,
    read_due_window,
    read_objects,
    read_window,
)
from eventlog.publisher.read_back import Built, built_flights, with_current_rows
from eventlog.publisher.session import Session, State, begin_flight
from eventlog.publisher.snapshot import Loading, load_chunk
from eventlog.sql.internal_tables import EntryKind, add_entry, replace_content
from eventlog.sql.rows import read_sendings

_log = logging.getLogger("eventlog.publisher")


def recover(context: Context) -> State:
    """Return the state of a publisher that has just got its lock, with the recorded flights, which
    ``run_cycle`` sends first.
    """
    context.ledger.recover()
    recorded, hold = read_recorded(context.log, context.ledger.consumer)
    loading = _loading(context)
    context.log.commit()
    warn_of(hold)
    flights = {flight.number: flight for flight in recorded}
    newest = max((flight.first for flight in recorded), default="")
    parking: Parking[ObjectId] = Parking(context.options.retry_initial, context.options.retry_max)
    return State(parking, flights, newest, hold=hold, loading=loading)


def _loading(context: Context) -> Loading | None:
    """Return the snapshot that is sent before the log is read, None = there is none."""
    told = context.ledger.loading()
    return None if told is None else Loading.of_line(*told)


def run_cycle(session: Session) -> Delivered:
    """Send the flights that are in flight and due, then read one window of the queue and send its
    flights.

    Raises DatabaseError or SQLAlchemy's errors when the database fails. The state of the open
    transaction is unknown then, and the caller connects and recovers again.
    """
    return _ended(session, _run_cycle(session))


def _run_cycle(session: Session) -> Delivered:
    """Run a cycle that leaves open what happens to an accused envelope."""
    context, state = session.context, session.state
    cycle = _send_recorded(session)
    if cycle.result is not FlightResult.DONE:
        return cycle
    if state.loading is not None:
        sent_before = context.counters.documents_sent
        delivered, is_loaded = load_chunk(session, state.loading)
        state.loading = None if is_loaded else state.loading
        if context.counters.documents_sent > sent_before:
            state.suspects.answered(())
            _set_apart(context, state)
        return delivered
    scan = _scan_to_read(context, state)
    if scan is None:
        state.loading = _loading(context)
        context.log.commit()
        return Delivered(FlightResult.DONE, more=state.loading is not None)
    window = _valid_window(context, state, scan)
    if window is None:
        context.log.commit()
        return Delivered(FlightResult.DONE, more=True)
    _refuse_given_again(context, window)
    if window.bad:
        session.check.before_bad()
    delivered = _send_window(session, window)
    more = delivered.more or state.scan is not None or scan.is_begun
    return delivered if delivered.result is not FlightResult.DONE else delivered._replace(more=more)


def _ended(session: Session, cycle: Delivered) -> Delivered:
    """Return how a cycle ended, once it is known what happens to an accused document: without
    another document that is answered the receiver is unavailable.
    """
    context, state = session.context, session.state
    if cycle.result is FlightResult.DONE and cycle.more and state.suspects.is_probing:
        return cycle  # the next window may have another one
    freed, accused = state.suspects.end()
    if state.scan is not None:
        # The scan has passed over rows of the objects that are free now.
        state.freed.update(one for one in freed if one not in state.parking)
    if accused and cycle.result is FlightResult.DONE:
        state.scan = None
        cycle = Delivered.away(accused[0].away)._replace(is_suspicious=True)
    if not accused or not cycle.is_suspicious:
        return cycle
    sent_ids = state.suspects.to_cut(accused, context.options.isolate_after)
    if sent_ids:
        _cut(context, state, sent_ids)
        return cycle._replace(retry_after=0.0)  # the halves are documents that have not failed yet
    return cycle._replace(is_suspicious=sent_ids is not None)


def _scan_to_read(context: Context, state: State) -> QueueScan | DueScan | None:
    """Return the scan that goes on, or a new one, with the objects of held rows in ``state``. None
    if the queue is empty or its held rows cannot be known now.
    """
    scan = state.scan
    # Objects that have become free begin a new scan, unless passing over parked rows would cost
    # more than the scan has read.
    if (
        scan is None
        or (state.freed and scan.past <= 0)
        or not is_still_valid(context, scan.writers)
    ):
        begin = begin_due_scan if context.options.handle_future_events else begin_scan
        scan = state.scan = begin(context, is_long=scan is not None)
        state.freed.clear()
    if state.hold is not None and state.held is None:
        state.held = read_objects(context, state.hold)
    if state.held is not None and state.held.writers is None:
        return None
    return scan


def _valid_window(context: Context, state: State, scan: QueueScan | DueScan) -> WindowResult | None:
    """Return the next window of the scan, None if a transaction has ended meanwhile whose rows the
    window may lack. Then the scan ends, too.
    """
    begun = monotonic()
    window, state.scan = _next_window(context, scan, state, recorded_ids(state.flights.values()))
    seconds = monotonic() - begun
    context.observer.window_read(seconds, len(window.groups))
    _log.debug("a window of %d groups was read in %.3f s", len(window.groups), seconds)
    is_stale = scan.rests_on_writers and not is_still_valid(context, scan.writers)
    if state.held is not None and not is_still_valid(context, state.held.writers):
        # New rows may belong to held objects, and later rows behind them.
        state.held, is_stale = None, True
    if is_stale:
        state.scan = None
        return None
    return window


def _refuse_given_again(context: Context, window: WindowResult) -> None:
    """Raise DatabaseUnavailable if a row of a window has a number that was published for another
    row: the log gets a new epoch at the next connection (spec/event-log.md 7.4).
    """
    options, used = context.options, context.used
    used.published.remember()
    rows = chain.from_iterable(map(ids_of, window.groups))
    zone = None if options.handle_future_events else options.event_time_zone
    used.given_again = used.published.given_again(context.log, rows, zone)
    if used.given_again is not None:
        raise DatabaseUnavailable(f"the log {context.log} gives numbers again: {used.given_again}")


def _send_window(session: Session, window: WindowResult) -> Delivered:
    """Send the flights of a window, and mark its rows that are in no flight. Errors as for
    ``run_cycle``.
    """
    context, state = session.context, session.state
    for remark in window.remarks:
        context.counters.remark(remark)
    marks = _marks_without_group(context, window.bad, window.loopback)
    marks.add(Status.SUCCESS, window.passed)
    more = False
    for built in built_flights(context, window, state.row_sizes, session.check):
        if session.is_stopping():
            state.scan = None
            return Delivered(FlightResult.STOPPED, "told to stop")
        if context.ledger.is_requested():
            # The requested rows may be earlier ones of objects of the next delivery.
            state.scan = None
            more = True
            break
        prepared = _prepare(session, built, window.origins, marks)
        # Counted here and not where they are read:
        # a row that is deferred or not sent in the end is read again.
        context.counters.rows_read += sum(map(len, built.groups))
        marks = Marks(context.counters)
        if prepared is not None:
            delivered = _send_new(session, prepared)
            if delivered.result is not FlightResult.DONE:
                return delivered
    marks.write(context)
    context.log.commit()
    return Delivered(FlightResult.DONE, more=more)


def _next_window(
    context: Context, scan: QueueScan | DueScan, state: State, in_flight: frozenset[int]
) -> tuple[WindowResult, QueueScan | DueScan | None]:
    """Return the next window of a scan, and the rest of the scan, None at its end."""
    first = 1
    left_out: Container[int] = in_flight
    waiting: Container[ObjectId] = (
        Either(state.parking, state.freed) if state.freed else state.parking
    )
    if state.hold is not None and state.held is not None:
        first = state.hold.last + 1
        left_out, waiting = Either(in_flight, range(first)), Either(waiting, state.held)
    if isinstance(scan, DueScan):
        window, rest = read_due_window(context, scan, left_out, waiting)
        return window, None if rest is None else rest._replace(past=scan.past + window.past)
    # A window from the head of the queue has all visible rows, or the first of them.
    last = scan.last if scan.is_begun else None
    window = read_window(context, max(scan.first, first), last, left_out, waiting)
    if window.next_first is None:
        return window, None
    return window, context.ledger.rest(scan, window.next_first, window.past)


def send_in_flight(session: Session) -> Delivered:
    """Send the recorded flights whose objects do not wait. Errors as for ``run_cycle``."""
    return _ended(session, _send_recorded(session))


def _send_recorded(session: Session) -> Delivered:
    """Send the recorded flights, as ``send_in_flight`` does, and leave open what happens to an
    accused envelope.
    """
    context, state = session.context, session.state
    woken = _wake(context, state)
    for number in sorted(state.flights):
        flight = state.flights[number]
        if all_wait(flight.events(), flight.waiting, state.parking):
            continue
        delivered = _send_again(session, _numbered(context, flight))
        if delivered.result is not FlightResult.DONE:
            return delivered
    if state.scan is not None:
        # The scan has passed over rows of the objects that are free now;
        # these come before the rows behind them.
        state.freed.update(object_id for object_id in woken if object_id not in state.parking)
    if full := state.parking.too_many(context.options.max_parked):
        return Delivered(FlightResult.RETRY, full, in_short=full)
    return Delivered(FlightResult.DONE)


def _wake(context: Context, state: State) -> list[ObjectId]:
    """End the waits of objects that are due, as long as a cycle has room for their events, and
    return these objects.

    The others wait for the next cycle, so that many parked objects leave room for all others
    (spec/event-log.md 8.4).
    """
    due = state.parking.due(monotonic())
    woken: list[ObjectId] = []
    if due:
        events = Counter(
            event.object_id for flight in state.flights.values() for event in flight.events()
        )
        left = most_retries(context.options)
        for object_id in due:
            left -= events[object_id]
            if woken and left < 0:
                break
            woken.append(object_id)
    state.parking.wake(woken)
    return woken


def _send_new(session: Session, flight: Flight) -> Delivered:
    """Send a flight whose line has just been recorded: its events are built."""
    context, state = session.context, session.state
    state.flights[flight.number] = flight
    session.before_flight()
    _announce(context, flight, flight.origins.event_times)
    line = InflightLine(context, flight, session.sink, state.parking, None, state.suspects)
    return _deliver(session, flight, line)


def _send_again(session: Session, flight: Flight) -> Delivered:
    """Send a flight of an earlier cycle: its events are rebuilt, an envelope at a time."""
    context, state = session.context, session.state
    state.flights[flight.number] = flight
    # Once for all envelopes: nothing is answered yet that an error would have to save.
    session.check.before_read_back()
    flight = _put_back(session, flight)
    context.log.commit()
    session.before_flight()
    times = flight.origins.event_times
    if context.observer.wants_flights and context.observer.wants_event_times:
        firsts = sorted(events[0].ids[0] for events in flight.envelopes.values())
        times = _event_times(context, firsts)
        context.log.commit()
    _announce(context, flight, times)

    def build(part: Flight) -> Flight:
        def save_first() -> None:
            line.save()
            session.check.before_bad()

        return rebuild(context, part, state.parking, save_first)

    line = InflightLine(context, flight, session.sink, state.parking, build, state.suspects)
    return _deliver(session, flight, line)


def _put_back(session: Session, flight: Flight) -> Flight:
    """Return a recorded delivery with the next number of each event that was given up by hand and
    whose rows were set back to N before its next attempt. Such a number is recorded: the receiver
    may know the previous one, and fewer rows may go again (spec/event-log.md 7.4).
    """
    context = session.context
    if context.ledger.consumer:  # ``skip`` takes the events of a consumer out of the line
        return flight
    firsts = sorted({record_id_of(event.event_id) for event in flight.events()})
    known = read_sendings(context.log, ids=firsts)
    envelopes = {
        number: [
            event._replace(sendings=max(event.sendings, known.get(record_id_of(event.event_id), 1)))
            for event in events
        ]
        for number, events in flight.envelopes.items()
    }
    if all(envelopes[number] == [*events] for number, events in flight.envelopes.items()):
        return flight
    flight = flight._replace(envelopes=envelopes)
    _record(context, session.state, flight)
    return flight


def _announce(context: Context, flight: Flight, times: Mapping[int, str | None]) -> None:
    """Tell the observer that a flight begins; ``times`` has the event_time of rows."""
    if context.observer.wants_flights:
        firsts = [events[0] for events in flight.envelopes.values()]
        event_times = {
            event.sent_id: times[event.ids[0]] for event in firsts if event.ids[0] in times
        }
        context.observer.flight_begins(flight.info(), event_times)


def _deliver(session: Session, flight: Flight, line: InflightLine) -> Delivered:
    """Send the envelopes of a flight, and keep what is left of it."""
    context, state = session.context, session.state
    begun = monotonic()
    context.used.published.add(max(max(event.ids) for event in flight.events()))
    documents = (
        sum(map(len, flight.envelopes.values()))
        if context.output.is_single
        else len(flight.envelopes)
    )
    delivered = deliver_flight(context, line.to_send(), documents, line, session.is_stopping)
    if delivered.result is not FlightResult.DONE:
        state.scan = None
    if line.recorded.envelopes:
        state.flights[flight.number] = unbuilt(line.recorded)
    else:
        del state.flights[flight.number]
    _set_apart(context, state)
    left = line.recorded.info() if line.recorded.envelopes else None
    context.observer.flight_ended(flight.number, delivered.result.value, left)
    _log.debug(
        "flight %d of %s ended after %.3f s: %s",
        flight.number,
        number_of(len(flight.envelopes), "envelope"),
        monotonic() - begun,
        delivered.result.value,
        extra={"delivery": flight.number},
    )
    return delivered


def _set_apart(context: Context, state: State) -> None:
    """Record the halves of envelopes that were parked as envelopes of their own, and the tries of
    events that are alone, and commit.
    """
    apart = state.suspects.apart
    if not apart:
        return
    for before in list(state.flights.values()):
        flight = before
        for one in apart:
            if one.is_tried:
                flight = note_try(flight, next(iter(one.sent_ids)), one.answer)
            elif any(event.sent_id in one.sent_ids for event in flight.events()):
                flight = set_apart(flight, one.sent_ids, Tried(0, one.answer))
        if flight is not before:
            _record(context, state, flight)
    apart.clear()
    context.log.commit()


def _cut(context: Context, state: State, sent_ids: frozenset[str]) -> None:
    """Record the halves of an accused document as documents of their own, and commit."""
    for flight in list(state.flights.values()):
        if any(event.sent_id in sent_ids for event in flight.events()):
            _record(context, state, set_apart(flight, sent_ids, None))
    context.log.commit()


def _record(context: Context, state: State, flight: Flight) -> None:
    replace_content(context.log, EntryKind.DELIVERY, flight.number, encode(flight))
    state.flights[flight.number] = flight


def recorded_ids(flights: Iterable[Flight]) -> frozenset[int]:
    """Return the record_ids of all rows that are in flight."""
    return _ids_in(event for flight in flights for event in flight.events())


def _ids_in(events: Iterable[Outgoing]) -> frozenset[int]:
    return frozenset(record_id for event in events for record_id in event.ids)


def _marks_without_group(context: Context, bad: Sequence[BadRow], loopback: Sequence[int]) -> Marks:
    marks = Marks(context.counters)
    marks.add_bad(bad)
    if context.options.delete_from_log and not context.options.delete_loopback:
        marks.retained.extend(loopback)
    else:
        marks.add(Status.SUCCESS, loopback)
    context.counters.rows_read += len(bad) + len(loopback)
    context.counters.rows_loopback += len(loopback)
    return marks


def _prepare(session: Session, built: Built, origins: Origins, marks: Marks) -> Flight | None:
    """Record a flight of events, and write the marks of rows that make no event in the same
    transaction.
    """
    context, state = session.context, session.state
    _, events, current_rows = built
    special = [(event.operation, event.fates) for event in events if event.fates is not None]
    if special:
        if any(fates.bad for _, fates in special):
            session.check.before_bad()
        marks.add_fates([fates for operation, fates in special if operation is None])
        events = [event for event in events if event.operation is not None]
    flight = None
    if events:
        number, first = begin_flight(context, state)
        size = context.options.batch_size
        # Without fates every row of a new event contributes, and so does the first row,
        # which names the event.
        flight = pack(number, events, size, first, origins, context.epoch)
        if context.observer.wants_event_times and not origins.event_times:
            # The first rows are enough: event_time only serves to measure the delay of answers.
            firsts = sorted(own[0].ids[0] for own in flight.envelopes.values())
            flight = flight._replace(origins=Origins(_event_times(context, firsts), {}))
        if current_rows:
            flight = flight._replace(current_rows=current_rows)
        add_entry(
            context.log,
            EntryKind.DELIVERY,
            flight.number,
            encode(flight, is_plain=not special and not context.attempts),
            context.ledger.consumer,
        )
    marks.write(context)
    context.log.commit()
    if flight is not None:
        context.used.flight = flight.number
    return flight


def _event_times(context: Context, record_ids: Sequence[int]) -> dict[int, str | None]:
    """Return the event_time of rows."""
    fields = ("record_id", "event_time")
    return dict(context.log.read_columns(to_ranges(record_ids), fields))


def _numbered(context: Context, flight: Flight) -> Flight:
    """Return a recorded flight with numbers, if the format numbers events: a publisher of another
    format may have recorded it.
    """
    if not flight.first and (
        first := context.output.first(flight.number, "", raised_at(context.epoch))
    ):
        return numbered(flight, first)
    return flight


def rebuild(
    context: Context,
    flight: Flight,
    parking: Parking[ObjectId],
    before_bad: Callable[[], None] = lambda: None,
) -> Flight:
    """Return a recorded flight with rebuilt events: the same rows, event-ids and envelopes, with
    values read back again.

    A row that is missing or no longer N is done; one that fails the checks now becomes E. Events of
    objects that still wait are not rebuilt. ``before_bad`` is called before events with bad rows
    are returned.
    """
    flight = _numbered(context, flight)
    wanted = [event for event in flight.events() if not parking.is_waiting(event.object_id)]
    rebuilt = build_recorded(context, wanted)
    if gone := context.counters.note_missing(rebuilt.missing):
        report_missing(context, len(gone), gone[0], gone[-1])
    waiting = frozenset(
        event.event_id for event in wanted if not rebuilt.waiting.isdisjoint(event.ids)
    )
    events_now, current_rows = with_current_rows(context, rebuilt.events)
    if any(event.fates is not None and event.fates.bad for event in events_now):
        before_bad()
    context.log.commit()
    built = iter(events_now)
    envelopes = {
        number: [event if parking.is_waiting(event.object_id) else next(built) for event in events]
        for number, events in flight.envelopes.items()
    }
    origins = origins_of(rebuilt.log_rows.values())
    return flight._replace(
        envelopes=envelopes, origins=origins, current_rows=current_rows, waiting=waiting
    )


class Rebuilt(NamedTuple):
    """Recorded events, rebuilt from those of their rows that are not done, and their parts."""

    events: list[Outgoing]
    decided: list[Decided]
    """The group of each event with the decision of precedence at the first build; an empty group
    and no decision if no good row is left.
    """
    bad: dict[int, BadRow]
    """The rows that fail the checks now, by record_id."""
    log_rows: dict[int, LogRow]
    """All rows read, by record_id."""
    remarks: Sequence[Remark]
    waiting: frozenset[int]
    """The record_ids of rows whose class is unavailable."""
    missing: frozenset[int] = frozenset()
    """The record_ids of rows that are gone from the log."""


def build_recorded(context: Context, recorded: Sequence[Outgoing]) -> Rebuilt:
    """Rebuild events of in-flight lines under their event-ids, with values read back again
    (spec/event-log.md 10).
    """
    ranges = sorted(pair for event in recorded for pair in to_ranges(event.ids))
    present = context.log.read_rows(ranges)
    missing = _ids_in(recorded).difference(map(itemgetter(0), present))
    log_rows = {
        row.record_id: row for row in present if unpadded(row.status) in context.ledger.statuses
    }
    if not context.ledger.consumer:
        refused = {row.record_id for row in present if unpadded(row.status) == Status.ERROR}
        keep_next_sendings(context, recorded, refused)
    checked = check_rows(queue_rows(log_rows.values()), context.catalog, None)
    good = dict(zip(ids_of(checked.good), checked.good, strict=True))
    bad = {row.record_id: row for row in checked.bad}
    groups = [
        [good[record_id] for record_id in event.ids if record_id in good] for event in recorded
    ]
    decided = decide(groups, context.query_back, [frozenset(event.dropped) for event in recorded])
    events = []
    for event, (group, decision, current) in zip(recorded, decided, strict=True):
        failed = [bad[record_id] for record_id in event.ids if record_id in bad]
        if decision is None:
            events.append(event._replace(operation=None, steps=(), fates=Fates(bad=failed)))
            continue
        built = build_event(group, context.options.events, decision, current, event.event_id)
        fates = built.fates
        if fates is None and len(group) < len(event.ids):
            fates = Fates(contributed=built.ids)
        if fates is not None and failed:
            fates = fates._replace(bad=[*fates.bad, *failed])
        events.append(
            event._replace(
                object_id=built.object_id,
                operation=built.operation,
                steps=built.steps,
                rows=built.rows,
                fates=fates,
            )
        )
    waiting = frozenset(checked.waiting)
    return Rebuilt(events, decided, bad, log_rows, checked.remarks, waiting, missing)


# --- dry run --------------------------------------------------------------------------------------


def dry_run(context: Context) -> Iterator[str]:
    """Yield the documents of one scan: first the recorded flights, then the queue."""
    state = recover(context)
    for number in sorted(state.flights):
        flight = _numbered(context, state.flights[number])
        for envelope, recorded in flight.envelopes.items():
            built = rebuild(context, flight._replace(envelopes={envelope: recorded}), state.parking)
            for events in built.envelopes.values():
                yield preview(context, built, events)
    if state.hold is not None:
        state.held = read_objects(context, state.hold)
    for window in _windows(context, state):
        for built_now in built_flights(context, window, state.row_sizes):
            events = [event for event in built_now.events if event.operation is not None]
            flight = pack(1, events, context.options.batch_size, origins=window.origins)
            for envelope_events in flight.envelopes.values():
                yield preview(context, flight, envelope_events)


def _windows(context: Context, state: State) -> Iterator[WindowResult]:
    """Yield the windows of the whole queue.

    Rows that would be marked without being published are counted for a warning.
    """
    in_flight = recorded_ids(state.flights.values())
    by_event_time = context.options.handle_future_events
    scan: QueueScan | DueScan | None = (
        begin_due_scan(context, is_long=False) if by_event_time else QueueScan(1, None, None)
    )
    while scan is not None:
        window, scan = _next_window(context, scan, state, in_flight)
        context.counters.rows_loopback += len(window.loopback)
        yield window
        if isinstance(scan, QueueScan):
            # Nothing is marked here, so a window behind a deferred row shows its rows again.
            bad = (row.record_id for row in window.bad)
            shown = sorted(chain(bad, window.loopback, window.passed, *map(ids_of, window.groups)))
            in_flight |= context.ledger.leave_out(scan, shown)
        else:  # a window has rows of inserts that lie behind its end
            in_flight |= frozenset(chain.from_iterable(map(ids_of, window.groups)))


def preview(context: Context, flight: Flight, events: Sequence[Outgoing]) -> str:
    """Return the document of these events of a flight for people; empty if all objects are gone."""
    read, current_rows = with_current_rows(
        context, [event for event in events if event.operation is not None]
    )
    events = [event for event in read if event.operation is not None]
    flight = flight._replace(current_rows=current_rows)
    return context.output.preview(context.catalog, flight, events) if events else ""
