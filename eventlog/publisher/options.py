"""The options of the publisher's cycle (spec/event-log.md 9), as its functions take them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import time

from eventlog.core.events import EventOptions


@dataclass(frozen=True, slots=True)
class PublisherOptions:
    """Counts are of log rows or events, times in seconds.

    ``driver_user``: rows of this perpetrator are loopback; None = none are (``allow_loopback``).
    ``leave_loopback``: loopback rows stay N instead of being marked S. ``delete_loopback``: ``delete_from_log`` deletes
    them too. ``loopback_is_meant``: the settings say what becomes of them, so that nobody is warned. ``park``: retry
    parks one object instead of stopping the cycle (``on_retry``). ``time_of_day``: when to publish, in place of the
    interval; empty = the interval counts. ``heartbeat_interval`` 0 = none.
    """

    batch_size: int = 128
    query_limit: int = 10000
    flight_rows: int = 10000
    mark_interval: float = 1.0
    fold_distance: int = 1000
    fold_span: int = 10000
    driver_user: str | None = None
    leave_loopback: bool = False
    delete_loopback: bool = False
    loopback_is_meant: bool = False
    delete_from_log: bool = False
    park: bool = True
    max_parked: int = 1000
    retry_initial: float = 1.0
    retry_max: float = 60.0
    polling_interval: float = 10.0
    concurrency: int = 1
    time_of_day: tuple[time, ...] = ()
    notify: bool = True
    heartbeat_interval: float = 0.0
    post_poll_statements: tuple[str, ...] = ()
    handle_future_events: bool = False
    event_time_zone: str = "utc"
    events: EventOptions = EventOptions()
