"""A publisher at rest: how it is stopped, how the database wakes it (spec/triggers.md 8), and when
the clock starts its next work (spec/event-log.md 8.5, 9, spec/xds.md 7).

Times of the day are the database server's local time, as naive datetimes: so the log and its
publisher use the same clock.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import selectors
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from typing import Final, NamedTuple, Protocol

from eventlog.core.clock import chance, cpu_time, monotonic
from eventlog.errors import (
    ConsumerRuns,
    DatabaseError,
    EventlogError,
    LostSession,
    PublisherAlreadyRunning,
    ServerUnavailable,
    receiver_code,
)
from eventlog.publisher.context.context import Context
from eventlog.publisher.context.observer import Doing, Observer, WaitFor
from eventlog.publisher.send.policy import back_off
from eventlog.publisher.send.sending import Delivered
from eventlog.sql.port.database import Wake

_log = logging.getLogger("eventlog.publisher")

_POLL_PAUSES: Final = (0.05, 1.0)
"""The first and the longest pause in seconds before the queue is read again. These pauses apply
while a writer has an open transaction that will not notify. The pauses double.
"""

FLOWING: Final = 0.03
"""The seconds that the publisher rests between polls, in total, after it has sent something; then
it sleeps until a notification. Before that, writers need not send notifications.
"""
_MIN_REST: Final = 0.003
"""The shortest rest between polls, in seconds."""
_SHARE: Final = 0.15
"""The share of a core that a publisher uses while changes flow, for polls and deliveries together.
The remaining time is left to other processes, and the next poll finds more rows to send together. A
cheaper poll does not lead to more polls.
"""

_FIRST_REST: Final = 0.05
"""Without notifications: the seconds until the queue is read again after a cycle that sent
something.
"""

_WARNING_INTERVAL: Final = 60.0
"""The seconds between two log lines that report that the first connection has not been made yet."""

_LOCK_WAIT: Final = 60.0
"""The seconds that a publisher which lost its connection waits for a lock that another session has.
This session may be a job that marks, a publisher that ends, or, if the database does not show the
session, the publisher's own lost session.
"""

_SLICE: Final = 0.2
"""The seconds between two checks of a stop request that has no descriptor."""


class Stop(Protocol):
    """The request to stop a publisher: a ``StopRequest``, or a ``threading.Event``."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class StopRequest:
    """A request that a signal handler or another thread sets once. A thread can wait for the
    request and for a socket together, without polling.

    The request has no lock, unlike ``threading.Event``, whose ``set`` may wait forever for the code
    that a signal interrupts.
    """

    __slots__ = ("_asked", "_reader", "_writer")

    def __init__(self) -> None:
        self._asked, self._reader, self._writer = False, -1, -1
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def set(self) -> None:
        self._asked = True
        # Full or closed: the waiting thread already has the message.
        with contextlib.suppress(OSError):
            os.write(self._writer, b".")

    def is_set(self) -> bool:
        return self._asked

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the request is set, at most ``timeout`` seconds; return True if it is set."""
        if not self._asked:
            _wait_for((self._reader,), timeout)
        return self._asked

    def fileno(self) -> int:
        """Return a descriptor that is readable once the request is set."""
        return self._reader

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptors now; otherwise they end with the object."""
        for descriptor in (self._reader, self._writer):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._reader = self._writer = -1


class Idle:
    """The rest of a publisher without work. ``wake`` is None if the queue is only polled."""

    __slots__ = ("_begun", "_context", "_is_asleep", "_refused", "_rested", "_used", "wake")

    def __init__(self, context: Context, wake: Wake | None) -> None:
        self._context, self.wake = context, wake
        # When the present work began (the end of the last rest), and the CPU used until then.
        self._begun, self._used = monotonic(), cpu_time()
        self._rested = math.inf  # the seconds of rest since the last sending
        self._is_asleep = False  # True if this session has the lock that makes writers notify
        self._refused = 0  # the number of refused locks in a row

    def wake_up(self) -> None:
        """Let writers stop sending notifications, since the publisher is about to send or polls."""
        self._refused, self._rested = 0, 0.0
        if self.wake is not None and self._is_asleep:
            self._give_back(self.wake)
            self._context.log.commit()

    def wait(self, stop: Stop, seconds: float) -> None:
        """Wait after a cycle that left nothing to send, until ``stop`` or a notification, but at
        most ``seconds``.

        If the database sends no notifications, a rest is as long as the sum of all rests since
        something was sent. So a row waits at most as long as the queue was empty before it. If the
        database notifies, the first rests are short, and no notification ends them. The call after
        them may return immediately: rows written before the lock was taken have no notification, so
        the queue must be read again.
        """
        context, connection = self._context, self._context.log.connection
        context.observer.does(
            Doing.RESTING, "woken by the database" if self.wake is not None else ""
        )
        if connection.in_transaction():
            connection.rollback()
        if self.wake is None:
            if not context.options.time_of_day:
                seconds = min(seconds, max(_FIRST_REST, self._rested))
            self._rested += seconds
            stop.wait(seconds)
        elif self._is_asleep:
            self._sleep(self.wake, stop, seconds)
            # This happens in the transaction of the next cycle, since each commit costs time.
            self._give_back(self.wake)
        elif self._rested < FLOWING:
            rest = rest_after(monotonic() - self._begun, cpu_time() - self._used)
            self._rested += rest
            self.wake.was_notified(connection)  # this drops what other readers were sent
            stop.wait(min(seconds, rest))
        elif self.wake.fall_asleep(context.log):
            connection.commit()
            self._is_asleep = True
            # This drops notifications of rows that the next cycle sees anyway.
            self.wake.was_notified(connection)
        else:
            # A writer that will not notify has shared the lock, or another reader of the log sleeps
            # with it. The notifications for that reader arrive here, too.
            connection.commit()
            self._refused += 1
            if self._sleep(self.wake, stop, min(seconds, back_off(self._refused, *_POLL_PAUSES))):
                self._refused = 0
        self._begun, self._used = monotonic(), cpu_time()

    def _give_back(self, wake: Wake) -> None:
        wake.wake_up(self._context.log)
        self._is_asleep, self._refused = False, 0

    def _sleep(self, wake: Wake, stop: Stop, seconds: float) -> bool:
        """Wait at most ``seconds``, or until ``stop``; return True for a notification."""
        connection = self._context.log.connection
        until = monotonic() + seconds
        while not stop.is_set():
            if wake.was_notified(connection):
                return True
            left = until - monotonic()
            if left <= 0:
                return False
            if isinstance(stop, StopRequest):
                _wait_for((wake.socket(connection), stop.fileno()), left)
            else:
                _wait_for((wake.socket(connection),), min(left, _SLICE))
        return False


def rest_after(worked: float, used: float) -> float:
    """Return the seconds to rest while changes flow, after ``worked`` seconds of work that have
    used ``used`` seconds of CPU.
    """
    return min(FLOWING, max(_MIN_REST, used / _SHARE - worked))


def begin_idle(context: Context) -> Idle:
    """Listen, if the database notifies and the options allow it.

    The caller reads the queue only after this.
    """
    wake = context.log.dialect.wake
    # With times of day, nothing is published in between.
    if wake is None or not context.options.notify or context.options.time_of_day:
        return Idle(context, None)
    reason = wake.missing(context.log)
    if reason is None:
        wake.listen(context.log)
    else:
        _log.info(
            "the queue is read at least every %g s: %s", context.options.polling_interval, reason
        )
    context.log.commit()
    return Idle(context, wake if reason is None else None)


_Selector: Final = getattr(selectors, "PollSelector", selectors.DefaultSelector)
"""For a few descriptors that are waited for once, poll needs one system call, epoll needs five."""


def _wait_for(descriptors: Iterable[int], seconds: float | None) -> None:
    """Wait until one of the descriptors is readable."""
    with _Selector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        selector.select(seconds)


LONGEST_REST: Final = 600.0
"""Seconds after which the server's clock is read again: it may be set, or change to summer time."""


@dataclass(slots=True)
class Timetable:
    """The times of the day up to ``done`` are done. ``done`` is in the server's local time; None =
    unknown. The object outlives a lost connection, so that an interrupted run continues.
    """

    done: datetime | None = None

    def is_due(self, times: Sequence[time], now: datetime) -> bool:
        """Return True if one of the times has come since the last run."""
        if self.done is None:
            self.done = now
        return next_start(times, self.done) <= now

    def finish(self, started: datetime) -> None:
        """Record the end of a run that began at ``started``.

        A time of day that passed during the run is not done yet.
        """
        # The clock may have been set back: each time of day counts once a day.
        self.done = started if self.done is None else max(self.done, started)

    def seconds_left(self, times: Sequence[time], now: datetime) -> float:
        """Return the seconds until the next run, at most ``LONGEST_REST``."""
        left = (next_start(times, self.done or now) - now).total_seconds()
        return min(max(left, 0.0), LONGEST_REST)


def next_start(times: Sequence[time], after: datetime) -> datetime:
    """Return the first of these times of the day after ``after``, today or tomorrow."""
    days = (after.date(), after.date() + timedelta(days=1))
    return min(
        start for day in days for at in times if (start := datetime.combine(day, at)) > after
    )


@dataclass(slots=True)
class HeartbeatTimer:
    """The time of the last document, on a monotonic clock in seconds.

    ``interval`` 0 = no heartbeats.
    """

    interval: float
    last: float

    def is_due(self, now: float) -> bool:
        return self.interval > 0 and now >= self.last + self.interval

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until the next heartbeat if nothing is sent before; None = never."""
        return max(0.0, self.last + self.interval - now) if self.interval > 0 else None


def soonest(*seconds: float | None) -> float:
    """Return the smallest of these numbers; None = never. At least one value must be a number."""
    return min(one for one in seconds if one is not None)


def wait_until(
    until: float,
    stop: Stop,
    why: Delivered,
    observer: Observer,
    measure: Callable[[], None] = lambda: None,
    work: Callable[[], float | None] = lambda: None,
) -> None:
    """Log the reason, and wait until a time of ``monotonic``. ``measure`` is called when the
    observer wants a report. ``work`` is called meanwhile, and returns the seconds until it must be
    called again, None = not before the end.
    """
    pause = max(0.0, until - monotonic())
    code = receiver_code(why.advice)
    _log.warning("%s; trying again in %.3g s", why.reason, pause, extra={"code": code})
    observer.waits(WaitFor.RECEIVER, why.reason, until, why.in_short, why.advice)
    while (due := soonest(pause, observer.measure_due(), work())) < pause:
        if stop.wait(due):
            return
        if observer.measure_due() == 0.0:
            measure()
        pause = until - monotonic()
    stop.wait(max(0.0, pause))


class Pause(NamedTuple):
    """A failure after which the work is tried again."""

    why: str
    who: WaitFor = WaitFor.DATABASE
    level: int = logging.ERROR
    line: str | None = None
    """The log line, None = the same failure was logged before."""
    is_healthy: bool = False
    """True for a standby, which sees that the other process works."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The connection of a process to its database, and the lock of the process. ``unavailable`` and
    ``stands_by_for`` are as in ``keep_connected``.
    """

    unavailable: tuple[type[EventlogError], ...]
    stands_by_for: type[PublisherAlreadyRunning] = ConsumerRuns
    is_connected: bool = False
    was_connected: bool = False
    """True from the first connection on."""
    attempts: int = 0
    """How many failures in a row there were since the last connection or wait for a lock."""
    lost_at: float | None = None
    """The time when the connection was lost, None = it was not lost."""
    stands_by: bool = False
    logged: str = ""
    """The last log line about a failed attempt to connect."""
    logged_at: float = 0.0
    locked_out: str = ""
    """Why this process waits for the lock, as it was logged."""

    def connected(self) -> Connection:
        """Return the state after the connection was made and the lock was taken."""
        return Connection(
            self.unavailable, self.stands_by_for, is_connected=True, was_connected=True
        )

    def failed(self, error: EventlogError, now: float) -> tuple[Connection, Pause] | None:
        """Return the state after the work has failed, and the pause before the work is tried again.
        Return None if the error ends the process. ``now`` is the time of the failure on the
        monotonic clock.
        """
        again = replace(self, is_connected=False, attempts=self.attempts + 1)
        if isinstance(error, PublisherAlreadyRunning):
            return self._locked(error, now, again)
        if not isinstance(error, self.unavailable):
            if self.lost_at is None or not isinstance(error, DatabaseError):
                return None
            # Perhaps the server is still starting.
            return again, Pause(str(error), line=f"{error}; trying again")
        who = WaitFor.DATABASE if isinstance(error, DatabaseError) else WaitFor.SOURCE
        if self.was_connected:
            again = replace(again, lost_at=self.lost_at or now)
            line, level = f"{error}; connecting again", logging.ERROR
        elif isinstance(error, ServerUnavailable):
            line, level = f"{error}; waiting for it", logging.WARNING
        else:
            return None
        if line == self.logged and now - self.logged_at < _WARNING_INTERVAL:
            return again, Pause(str(error), who, level)
        return replace(again, logged=line, logged_at=now), Pause(str(error), who, level, line)

    def _locked(
        self, error: PublisherAlreadyRunning, now: float, again: Connection
    ) -> tuple[Connection, Pause] | None:
        is_lost = isinstance(error, LostSession)
        is_standby = not is_lost and isinstance(error, self.stands_by_for)
        if is_lost:
            why = str(error)
        elif is_standby:
            why = f"{error}; waiting as its standby until it ends"
        elif self.lost_at is not None and now - self.lost_at <= _LOCK_WAIT:
            why = f"{error}; trying again for {_LOCK_WAIT:g} s"
        else:
            return None
        line = None if why == self.locked_out else why
        level = logging.INFO if is_standby else logging.WARNING
        pause = Pause(why, level=level, line=line, is_healthy=is_standby)
        again = replace(again, stands_by=self.stands_by or is_standby, locked_out=why)
        return (replace(again, attempts=1) if is_lost or is_standby else again), pause


def keep_connected(
    work: Callable[[Callable[[], bool]], None],
    stop: Stop,
    unavailable: tuple[type[EventlogError], ...],
    initial: float,
    maximum: float,
    observer: Observer,
    stands_by_for: type[PublisherAlreadyRunning] = ConsumerRuns,
) -> None:
    """Call ``work``, which connects and works, until it returns or ``stop`` is set; a lost
    connection is opened again.

    ``work`` receives a function that it calls whenever it is connected, and that returns True the
    first time. ``unavailable`` are the errors of a lost connection. Before the first connection,
    ``keep_connected`` waits for a database server that cannot be reached, and raises all other
    errors. ``initial`` and ``maximum`` are the back-off in seconds. ``observer`` is called for each
    connection.

    If the session that was lost still has the lock, this process waits for the lock. The process
    also waits if the error about the lock is of the type ``stands_by_for``. Raises
    PublisherAlreadyRunning if any other session has the lock.
    """
    connection = Connection(unavailable, stands_by_for)

    def connected() -> bool:
        nonlocal connection
        if connection.is_connected:
            return False
        if connection.stands_by:
            _log.info("the other process has ended, and this one takes over")
        is_first, connection = not connection.was_connected, connection.connected()
        observer.connected(again=not is_first)
        return is_first

    while not stop.is_set():
        observer.does(Doing.CONNECTING)
        try:
            work(connected)
        except EventlogError as error:
            failed = connection.failed(error, monotonic())
            if failed is None:
                raise
            connection, pause = failed
            if pause.line is not None:
                _log.log(pause.level, "%s", pause.line, extra={"code": error.code})
        else:
            return
        if pause.is_healthy:
            observer.progressed()
        seconds = back_off(connection.attempts, initial, maximum, chance)
        observer.disconnected()
        observer.waits(pause.who, pause.why, monotonic() + seconds, pause.why)
        stop.wait(seconds)
