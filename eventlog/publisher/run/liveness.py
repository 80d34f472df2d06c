"""Signs of life of a publisher: the one clock that every supervisor of its process reads.

A publisher is alive as long as its next sign is not overdue. Any call of its observer is a sign. A
publisher announces rests and waits, so it also counts as alive while it is idle or while its
receiver or database is unavailable. A publisher that hangs in a statement, or waits for a receiver
forever, does not count as alive.

Each supervisor has one way to read the clock: systemd gets ``WATCHDOG=1`` while the publisher is
alive (``watched_over``), a container's probe checks a file that is touched as long as the publisher
is alive (``health_file``), and Kubernetes queries ``/livez`` of the monitor.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from eventlog.config.load import Config
from eventlog.core.clock import monotonic, start_thread, unix_time
from eventlog.errors import ReceiverUnavailable
from eventlog.files.health_file import health_file
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.observer import SILENT, Doing, Observer, Outcome, WaitFor
from eventlog.publisher.run.waiting import LONGEST_REST
from eventlog.publisher.sinks import Sink
from eventlog.registry import sink_named

_log = logging.getLogger("eventlog.publisher")

_REST: Final = 1.0
"""The longest rest, in seconds, while a source is followed that has no polling interval."""

_WORK: Final = 60.0
"""The seconds that a busy database may take between two signs, in addition to the
receiver's time.
"""


class LivenessClock:
    """The time until which a process counts as alive: ``timeout`` seconds after its last sign, plus
    the pause that it announced with that sign.
    """

    def __init__(self, timeout: float, clock: Callable[[], float] = monotonic) -> None:
        self.timeout, self.clock = timeout, clock
        self._until = clock() + timeout

    @property
    def is_alive(self) -> bool:
        """True while the next sign is not overdue."""
        return self.clock() <= self._until

    def sign(self, pause: float = 0.0) -> None:
        """Give a sign, and announce a pause of ``pause`` seconds."""
        self._until = self.clock() + pause + self.timeout

    @contextmanager
    def repeated(self, action: Callable[[], None], interval: float) -> Iterator[None]:
        """While the block runs, call ``action`` every ``interval`` seconds in a thread as long as
        the process is alive.
        """
        end = threading.Event()

        def repeat() -> None:
            while not end.wait(interval):
                if self.is_alive:
                    action()

        start_thread(repeat, "eventlog-alive")
        try:
            yield
        finally:
            end.set()


class Liveness(LivenessClock, Observer):
    """An observer that keeps the liveness clock of a publisher. ``rest`` is the longest rest in
    seconds. ``is_connected`` is True from the first connection on, even if it is the connection of
    a standby.
    """

    def __init__(self, timeout: float, rest: float, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(timeout, clock)
        self.rest, self.is_connected = rest, False
        self.waiting: Mapping[str, Any] | None = None
        """What the publisher waits for, as ``Waiting.from_file`` reads it."""

    def does(self, doing: Doing, reason: str = "") -> None:
        if doing is Doing.RESTING:
            self.waiting = None
        self.sign(self.rest if doing is Doing.RESTING else 0.0)

    def waits(
        self, who: WaitFor, reason: str, until: float, in_short: str = "", advice: str = ""
    ) -> None:
        before = self.waiting
        is_same = before is not None and before["who"] == who.value
        since = before["since"] if before is not None and is_same else unix_time()
        self.waiting = {"who": who.value, "since": since, "reason": in_short, "advice": advice}
        self.sign(until - self.clock())

    def connected(self, *, again: bool) -> None:
        self.is_connected = True
        self.progressed()

    def progressed(self) -> None:
        self.is_connected = True  # a standby only sees that the other process is working
        self.waiting = None
        self.sign()

    def _observed(self, *_: object, **__: object) -> None:
        self.sign()

    window_read = answered = marked = measured = _observed


def _longest_rest(config: Config) -> float:
    """Return the longest rest in seconds of a publisher with this configuration."""
    if config.follows:
        return getattr(config.source.options, "poll_interval", _REST)
    return (
        LONGEST_REST if config.publisher.time_of_day else float(config.publisher.polling_interval)
    )


def _longest_work(config: Config) -> float:
    """Return the longest time between two signs, in seconds, if a publisher neither rests nor
    waits.
    """
    timeout: float = sink_named(config.sink.type).answer_timeout(config.sink.options)
    return timeout + _WORK


def liveness_of(config: Config) -> Liveness:
    """Return the clock of a publisher with this configuration; the clock starts now."""
    return Liveness(config.monitor.liveness_timeout or _longest_work(config), _longest_rest(config))


@contextmanager
def reported_liveness(config: Config) -> Iterator[Liveness]:
    """Yield the clock of a publisher. The clock observes the publisher's work. While the block runs
    the health file of the configuration is touched as long as the publisher is alive, from its
    first connection on.

    Raises ConfigError if the file cannot be written at the start.
    """
    liveness = liveness_of(config)
    if config.publisher.health_file is None:
        yield liveness
        return
    with health_file(config.publisher.health_file) as file:

        def touch() -> None:
            if liveness.is_connected:
                file.touch(liveness.waiting)

        with liveness.repeated(touch, file.interval):
            yield liveness


@dataclass(frozen=True, slots=True)
class ReportingSink(Sink):
    """A sink that reports each document to ``observer``. For each answer other than retry it also
    reports progress, so that the progress of a long cycle is visible.
    """

    sink: Sink
    observer: Observer
    _pending: list[tuple[Document, Answer, float]] = field(default_factory=list)
    """The documents that are answered only when the sink is flushed, and the time when each was
    begun.
    """

    def send(self, document: Document) -> Answer:
        begun, event_ids = monotonic(), document.event_ids
        try:
            answer = self.sink.send(document)
        except ReceiverUnavailable as failure:
            if event_ids:
                self.observer.attempted(document, failure, monotonic() - begun)
            raise
        if not event_ids:  # a heartbeat
            return answer
        if answer.is_pending:
            named = Document(document.delivery_no, document.document_no, event_ids, b"")
            self._pending.append((named, answer, begun))
        else:
            self.observer.attempted(document, answer, monotonic() - begun)
        if not answer.is_pending and any(
            answer.result(event_id).level is not Level.RETRY for event_id in event_ids
        ):
            self.observer.progressed()
        # Otherwise its halves are reported, whose answers count.
        if not answer.culprit_unknown or len(event_ids) == 1:
            self.observer.answered(document, answer, monotonic() - begun)
        return answer

    def flush(self) -> Mapping[str, EventResult] | None:
        try:
            refused = self.sink.flush()
        except ReceiverUnavailable as failure:
            self._settle(failure)
            raise
        self._settle(refused or {})
        self.observer.flushed()
        if refused is not None:  # for a sink whose receiver answers only now
            self.observer.progressed()
        return refused

    def _settle(self, found: ReceiverUnavailable | Mapping[str, EventResult]) -> None:
        """Report the attempts whose outcome a flush has shown: a failure of all, or the results
        that replace answers.
        """
        for document, answer, begun in self._pending:
            outcome: Outcome = answer
            if isinstance(found, ReceiverUnavailable):
                outcome = found
            elif found:
                outcome = replace(answer, results={**answer.results, **found})
            self.observer.attempted(document, outcome, monotonic() - begun)
        self._pending.clear()

    def close(self) -> None:
        self._pending.clear()
        self.sink.close()


# --- the service manager (sd_notify(3)) -----------------------------------------------------------

_SIGNS_IN_TIME: Final = 3
"""How many signs are sent within the service manager's time limit, so that two of them
may be late.
"""


class ServiceManager:
    """The service manager at the socket ``NOTIFY_SOCKET``: a path, or a name that begins with ``@``
    and has no file.
    """

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._has_failed = False

    def notify(self, *assignments: str) -> None:
        """Send assignments such as ``READY=1``.

        If the socket fails, that is logged once; publishing continues.
        """
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1.0)
                sender.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _log.error(
                    "the service manager does not receive the state of the publisher: %s",
                    error.strerror or error,
                )
            self._has_failed = True
        else:
            self._has_failed = False


class _Status(Observer):
    """An observer that reports to the service manager the state of a publisher."""

    def __init__(self, manager: ServiceManager) -> None:
        self._manager, self._state, self._is_started = manager, "", False

    def does(self, doing: Doing, reason: str = "") -> None:
        if doing is Doing.RESTING or (doing is Doing.CONNECTING and not self._state):
            # A short attempt between two waits counts as waiting.
            self._show("publishing" if doing is Doing.RESTING else "connecting to the database")
        elif doing is Doing.PAUSED:
            self._show("paused")

    def waits(
        self, who: WaitFor, reason: str, until: float, in_short: str = "", advice: str = ""
    ) -> None:
        # The reason may quote a receiver and is left out:
        # everybody on the machine can read a status.
        self._show(f"waiting for the {who.value}; the log shows why")
        if (
            not self._is_started
        ):  # otherwise TimeoutStartSec would restart the process, which would only wait again
            microseconds = int((until - monotonic() + _WORK) * 1e6)
            self._manager.notify(f"EXTEND_TIMEOUT_USEC={microseconds}")

    def connected(self, *, again: bool) -> None:
        self._is_started = True
        self._show("publishing", *(() if again else ("READY=1",)))

    def progressed(self) -> None:
        self._show("publishing")

    def _show(self, state: str, *more: str) -> None:
        if state != self._state or more:
            self._state = state
            self._manager.notify(*more, f"STATUS={state}")


@contextmanager
def watched_over(
    liveness: Liveness, environ: Mapping[str, str] | None = None
) -> Iterator[Observer]:
    """Yield the observer that reports the state of the publisher to the service manager while the
    block runs; ``SILENT`` if there is no service manager. The service manager's watchdog receives
    ``WATCHDOG=1`` as long as the publisher is alive.

    ``environ`` has ``NOTIFY_SOCKET``, and with a watchdog ``WATCHDOG_USEC`` (microseconds) and
    ``WATCHDOG_PID`` (sd_watchdog_enabled(3)).
    """
    environ = os.environ if environ is None else environ
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        yield SILENT
        return
    manager = ServiceManager(address)
    microseconds = environ.get("WATCHDOG_USEC", "")
    has_watchdog = (
        microseconds.isdecimal()
        and int(microseconds) > 0
        and environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    )
    try:
        if has_watchdog:
            interval = int(microseconds) / 1e6 / _SIGNS_IN_TIME
            with liveness.repeated(lambda: manager.notify("WATCHDOG=1"), interval):
                yield _Status(manager)
        else:
            yield _Status(manager)
    finally:
        manager.notify("STOPPING=1", "STATUS=stopping")
