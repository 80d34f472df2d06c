"""What would be published, without recording, marking or sending anything."""

from __future__ import annotations

from collections.abc import Iterator

from eventlog.core.events import Outgoing, ids_of
from eventlog.core.fold import Group
from eventlog.publisher.context import Context
from eventlog.publisher.cycle import State, rebuild, recorded_ids, recover
from eventlog.publisher.queue import DueScan, begin_due_scan, take_due_window
from eventlog.publisher.window import build_events, split_by_rows, take_window


def dry_run(context: Context) -> Iterator[str]:
    """The documents of one pass: what is in flight as it was recorded, then the queue."""
    state = recover(context)
    for number in sorted(state.flights):
        for envelope in rebuild(context, state.flights[number], state.parking).envelopes:
            events = [event for event in envelope.events if event.operation is not None]
            if events:
                yield context.output.preview(context.catalog, events)
    # What would be marked without being published is counted, so that it can be told.
    windows = _due_windows if context.options.handle_future_events else _windows
    for window in windows(context, state, recorded_ids(state.flights.values())):
        for groups in split_by_rows(window, context.options.flight_rows):
            events = [event for event in build_events(context, groups) if event.operation is not None]
            yield from _documents(context, events)


def _windows(context: Context, state: State, in_flight: frozenset[int]) -> Iterator[list[Group]]:
    first: int | None = 1
    while first is not None:
        taken = take_window(context, first, None, in_flight, state.parking)
        context.counters.rows_loopback += len(taken.loopback)
        yield taken.groups
        first = taken.next_first
        if first is not None:
            # Nothing is marked here, so what has been shown is read again where it lies behind a row held back.
            in_flight |= {record_id for group in taken.groups for record_id in ids_of(group) if record_id >= first}
            in_flight |= {record_id for record_id in taken.loopback if record_id >= first}


def _due_windows(context: Context, state: State, in_flight: frozenset[int]) -> Iterator[list[Group]]:
    due: DueScan | None = begin_due_scan(context, is_long=False)
    while due is not None:
        taken, due = take_due_window(context, due, in_flight, state.parking)
        context.counters.rows_loopback += len(taken.loopback)
        yield taken.groups


def _documents(context: Context, events: list[Outgoing]) -> Iterator[str]:
    size = context.options.batch_size
    for start in range(0, len(events), size):
        yield context.output.preview(context.catalog, events[start : start + size])
