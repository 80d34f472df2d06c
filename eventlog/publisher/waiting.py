"""A publisher at rest: how it is stopped, how the database wakes it (spec/triggers.md 8), and when it is to go on by
the clock (spec/event-log.md 8.5, 9, spec/xds.md 7).

Times of the day are the database server's local time, as naive datetimes: one clock for the log and for its publisher.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import selectors
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from time import monotonic
from typing import Final, Protocol

from eventlog.errors import AnotherPublisher, ConsumerRuns, DatabaseError, EventlogError, ReceiverAway
from eventlog.publisher.context import Context
from eventlog.publisher.observer import SILENT, Doing, Observer, WaitFor
from eventlog.sql.database import Wake

_log = logging.getLogger("eventlog.publisher")

_LOOKS: Final = (0.05, 1.0)
"""Seconds until the queue is read again while a writer is open that will not notify: doubling from the first on."""

_FIRST_REST: Final = 0.05
"""Seconds until the queue is read again after a cycle that sent something, where nobody notifies."""

_LOCK_PATIENCE: Final = 60.0
"""Seconds that a publisher which lost its connection waits for the server to notice, before it takes the lock again."""

_SLICE: Final = 0.2
"""Seconds between looks at a stop that has no descriptor to wait for."""


class Stop(Protocol):
    """What tells a publisher to stop: a ``StopRequest``, or a ``threading.Event``."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class StopRequest:
    """Set once, by a signal handler or another thread; can be waited for beside a socket, without looking again.

    There is no lock in it as in ``threading.Event``, whose ``set`` may wait forever for the code that a signal
    interrupts.
    """

    __slots__ = ("_asked", "_reader", "_writer")

    def __init__(self) -> None:
        self._asked = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def set(self) -> None:
        self._asked = True
        # Full or closed: whoever waits has been told already.
        with contextlib.suppress(OSError):
            os.write(self._writer, b".")

    def is_set(self) -> bool:
        return self._asked

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for ``timeout`` seconds at most; whether it is."""
        if not self._asked:
            _wait_for((self._reader,), timeout)
        return self._asked

    def fileno(self) -> int:
        """A descriptor that is readable once it is set."""
        return self._reader

    def close(self) -> None:
        for descriptor in (self._reader, self._writer):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._reader = self._writer = -1


class Idle:
    """What a publisher does while it has nothing to send. ``wake`` is None if the queue is only polled."""

    __slots__ = ("_context", "_is_asleep", "_refused", "_rested", "wake")

    def __init__(self, context: Context, wake: Wake | None) -> None:
        self._context, self.wake = context, wake
        self._rested = math.inf  # seconds of rest since something was sent
        self._is_asleep = False  # this session has the lock that makes writers notify
        self._refused = 0  # how often in a row the lock was not to be had

    def wake_up(self) -> None:
        """Writers need not notify: the publisher is about to send, or will look again by itself."""
        self._refused, self._rested = 0, 0.0
        if self.wake is not None and self._is_asleep:
            self._give_back(self.wake)
            self._context.connection.commit()

    def wait(self, stop: Stop, seconds: float) -> None:
        """Wait after a cycle that left nothing to be sent: for ``seconds`` at most, until ``stop`` or a notification.

        The first call after ``wake_up`` may return at once: what was written before the lock was got is notified by
        nobody, so the queue is to be read once more. Where nobody notifies, a rest is as long as all rests since
        something was sent: a row waits no longer than the queue was empty before it.
        """
        context, connection = self._context, self._context.connection
        if connection.in_transaction():
            connection.rollback()
        if self.wake is None:
            if not context.options.time_of_day:
                seconds = min(seconds, max(_FIRST_REST, self._rested))
            self._rested += seconds
            stop.wait(seconds)
        elif self._is_asleep:
            self._sleep(self.wake, stop, seconds)
            self._give_back(self.wake)  # in the transaction of the cycle that follows: each commit is a delay
        elif self.wake.fall_asleep(connection, context.log):
            connection.commit()
            self._is_asleep = True
            self.wake.heard(connection)  # of rows that the next cycle sees anyway
        else:
            # A writer that will not notify has shared the lock, or another reader of the log sleeps with it: what is
            # notified to that one is heard here too.
            connection.commit()
            self._refused += 1
            if self._sleep(self.wake, stop, min(seconds, back_off(self._refused, *_LOOKS))):
                self._refused = 0

    def _give_back(self, wake: Wake) -> None:
        wake.wake_up(self._context.connection, self._context.log)
        self._is_asleep, self._refused = False, 0

    def _sleep(self, wake: Wake, stop: Stop, seconds: float) -> bool:
        """Wait for ``seconds`` at most, until ``stop`` or a notification; whether there was one."""
        connection = self._context.connection
        until = monotonic() + seconds
        while not stop.is_set():
            if wake.heard(connection):
                return True
            left = until - monotonic()
            if left <= 0:
                return False
            if isinstance(stop, StopRequest):
                _wait_for((wake.socket(connection), stop.fileno()), left)
            else:
                _wait_for((wake.socket(connection),), min(left, _SLICE))
        return False


def begin_idle(context: Context) -> Idle:
    """Listen, if the database notifies and the options want it; to be called before the queue is first read."""
    wake = context.dialect.wake
    # Whoever gives times of the day does not want to publish in between.
    if wake is None or not context.options.notify or context.options.time_of_day:
        return Idle(context, None)
    reason = wake.missing(context.connection, context.log)
    if reason is None:
        wake.listen(context.connection, context.log)
    else:
        _log.info("the queue is read every %g s at least: %s", context.options.polling_interval, reason)
    context.connection.commit()
    return Idle(context, wake if reason is None else None)


def _wait_for(descriptors: Iterable[int], seconds: float | None) -> None:
    """Until one of them is readable."""
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        selector.select(seconds)


LONGEST_REST: Final = 600.0
"""Seconds after which the server's clock is read again: it may be set, or change to summer time."""


@dataclass(slots=True)
class Timetable:
    """What has become of the times of the day. ``done``: the server's local time up to which they are past; None = it
    is not known yet. Outlives a lost connection, so that a run that was cut off goes on.
    """

    done: datetime | None = None

    def is_due(self, times: Sequence[time], now: datetime) -> bool:
        """Whether one of the times has come since the last run."""
        if self.done is None:
            self.done = now
        return next_start(times, self.done) <= now

    def finish(self, started: datetime) -> None:
        """A run that began at ``started`` is done. A time that passed while it ran is still to come."""
        # The clock may have been put back: a time of the day comes once a day.
        self.done = started if self.done is None else max(self.done, started)

    def seconds_left(self, times: Sequence[time], now: datetime) -> float:
        """Until the next run; not more than ``LONGEST_REST``."""
        left = (next_start(times, self.done or now) - now).total_seconds()
        return min(max(left, 0.0), LONGEST_REST)


def next_start(times: Sequence[time], after: datetime) -> datetime:
    """The first of these times of the day behind ``after``, today or tomorrow."""
    days = (after.date(), after.date() + timedelta(days=1))
    return min(start for day in days for at in times if (start := datetime.combine(day, at)) > after)


@dataclass(slots=True)
class HeartbeatTimer:
    """When a document was last sent, on a monotonic clock in seconds. ``interval`` 0 = no heartbeats."""

    interval: float
    last: float

    def is_due(self, now: float) -> bool:
        return self.interval > 0 and now >= self.last + self.interval

    def seconds_left(self, now: float) -> float | None:
        """Until the next heartbeat if nothing is sent before; None = never."""
        return max(0.0, self.last + self.interval - now) if self.interval > 0 else None


def soonest(*seconds: float | None) -> float:
    """The smallest of these numbers; None = never, which not all of them are."""
    return min(one for one in seconds if one is not None)


Random = Callable[[], float]
"""Gives a number from 0 to 1, by chance."""


def back_off(attempts: int, initial: float, maximum: float, random: Random = lambda: 1.0) -> float:
    """Seconds to wait after so many attempts in a row: doubling from ``initial``, at most ``maximum``.

    ``random`` takes away up to half of it, so that those who failed together do not come back together; without it
    nothing is taken away.
    """
    return float(min(maximum, initial * 2 ** min(attempts - 1, 62))) * (1 + random()) / 2


@dataclass(slots=True)
class BackOff:
    """Waits after failures in a row: seconds as of ``back_off``. ``attempts``: how many there were."""

    initial: float
    maximum: float
    observer: Observer = SILENT
    attempts: int = 0
    random: Random = random.random

    def wait(
        self,
        stop: Stop,
        why: str,
        retry_after: float | None = None,
        look: Callable[[], None] = lambda: None,
        in_short: str = "",
    ) -> None:
        """Say why nothing can be done now, and wait: for ``retry_after`` seconds where who failed has said so, within
        the bounds of the back-off. ``look`` is called when the observer wants to be told what waits. ``in_short`` as of
        ``Observer.waits``.
        """
        self.attempts += 1
        if retry_after is None:
            pause = back_off(self.attempts, self.initial, self.maximum, self.random)
        else:
            pause = min(self.maximum, max(self.initial, retry_after))
        _log.warning("%s; trying again in %.3g s", why, pause, extra={"code": ReceiverAway.code})
        until = monotonic() + pause
        self.observer.waits(WaitFor.RECEIVER, why, until, in_short)
        while (due := self.observer.look_due()) is not None and due < pause:
            if stop.wait(due):
                return
            look()
            pause = until - monotonic()
        stop.wait(max(0.0, pause))


def keep_connected(
    life: Callable[[Callable[[], bool]], None],
    stop: Stop,
    away: tuple[type[EventlogError], ...],
    initial: float,
    maximum: float,
    observer: Observer,
) -> None:
    """Call ``life``, which connects and works, until it returns or ``stop`` is set; what is lost is connected again.

    ``life`` is given what it calls whenever it is connected, and which tells it whether that is the first time.
    ``away``: errors that say that a connection is lost; raised if there has never been one. ``initial``, ``maximum``:
    the back-off in seconds. ``observer`` is told of each life. Raises AnotherPublisher if another publisher holds the
    log or the position; where another process works as the same consumer it waits until that one ends.
    """
    attempts, was_connected, is_connected, is_locked_out = 0, False, False, False
    lost_at: float | None = None

    def connected() -> bool:
        nonlocal attempts, was_connected, is_connected, is_locked_out, lost_at
        is_first, was_connected = not was_connected, True
        attempts, is_locked_out, lost_at = 0, False, None
        if not is_connected:
            is_connected = True
            observer.connected(again=not is_first)
        return is_first

    while not stop.is_set():
        observer.does(Doing.CONNECTING)
        is_connected, who = False, WaitFor.DATABASE
        try:
            life(connected)
        except ConsumerRuns as runs:
            why = f"{runs}; waiting as its standby"
            if not is_locked_out:
                is_locked_out = True
                _log.info("%s", why)
            attempts = 0
        except AnotherPublisher:
            # The server may not have noticed yet that our former session is gone.
            if lost_at is None or monotonic() - lost_at > _LOCK_PATIENCE:
                raise
            why = "the log is still locked by the session that was lost: the server has not noticed yet that it is gone"
            if not is_locked_out:
                is_locked_out = True
                _log.warning("%s; trying again for %g s", why, _LOCK_PATIENCE, extra={"code": AnotherPublisher.code})
        except away as error:
            if not was_connected:
                raise
            _log.error("%s; connecting again", error, extra={"code": error.code})
            why = str(error)
            if not isinstance(error, DatabaseError):
                who = WaitFor.SOURCE
            lost_at = lost_at or monotonic()
        except DatabaseError as error:  # perhaps of a server that is about to start
            if lost_at is None:
                raise
            _log.error("%s; trying again", error, extra={"code": error.code})
            why = str(error)
        else:
            return
        attempts += 1
        pause = back_off(attempts, initial, maximum, random.random)
        observer.disconnected()
        observer.waits(who, why, monotonic() + pause, why)
        stop.wait(pause)
