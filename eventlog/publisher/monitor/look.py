"""What costs a statement to know of a log while it is published, looked at between two flights."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from typing import Final

from sqlalchemy import Connection

from eventlog.publisher.context import Context
from eventlog.publisher.cycle import State
from eventlog.publisher.observer import QUEUE_CAP, FlightInfo, Looked, ParkedObject
from eventlog.sql.dialect import Dialect
from eventlog.sql.doctor import facts
from eventlog.sql.log_table import LogTable
from eventlog.sql.rows import count_queue
from eventlog.sql.windows import Window

_TRANSACTIONS: Final = 100


def look_if_due(context: Context, state: State) -> None:
    """Tell the observer what waits, if it is time. No transaction may be open, and none is left open."""
    if context.observer.look_due() == 0.0:
        look(context, state)


def look(context: Context, state: State) -> None:
    """Tell the observer what waits, as before a long pause; nothing if nobody listens. Transactions as above."""
    if context.observer.look_due() is None:
        return
    begun = time.monotonic()
    conn, dialect, log = context.connection, context.dialect, context.log
    transactions = facts.ask(conn, dialect, "transactions", facts.OpenTransaction, log, limit=_TRANSACTIONS)
    queue = look_at_queue(conn, dialect, log, context.options.event_time_zone, context.observer.queue_cap)
    conn.commit()
    writers = [each.seconds for each in transactions if each.wrote_log and each.seconds is not None]
    parked = [
        ParkedObject(object_class.name, key, due, tries, reason)
        for (object_class, key), due, tries, reason in state.parking.objects()
    ]
    flights = [
        FlightInfo(
            flight.number,
            sum(len(envelope.events) for envelope in flight.envelopes),
            sum(len(event.ids) for event in flight.events()),
        )
        for flight in state.flights.values()
    ]
    seconds = time.monotonic() - begun
    context.observer.looked(
        replace(
            queue,
            oldest_writer_seconds=max(writers, default=None),
            parked=parked,
            flights=flights,
            seconds=seconds,
        )
    )


def look_at_queue(
    conn: Connection, dialect: Dialect, log: LogTable, event_time_zone: str, cap: int = QUEUE_CAP
) -> Looked:
    """What waits in a log, without counting more than ``cap`` rows. The clock is read last."""
    rows = count_queue(conn, log, cap)
    head = dialect.read_window(conn, log, Window(1, None, 1)) if rows else []
    clock = moment(dialect.due_until(conn, log, event_time_zone))
    return Looked(rows, cap, event_age(head[0].event_time, clock) if head else None, clock=clock)


def event_age(event_time: str | None, clock: datetime) -> float | None:
    """Seconds from an event_time, as its text, to the log's clock; None if the text is no usual time."""
    try:
        return (clock - moment(event_time or "")).total_seconds()
    except (ValueError, OverflowError):
        return None


def moment(text: str) -> datetime:
    """A time of the log's clock, without its zone; fractions beyond microseconds are cut off. Raises ValueError."""
    whole, dot, fraction = text.strip().partition(".")
    return datetime.fromisoformat(whole + dot + fraction[:6]).replace(tzinfo=None)
