"""Signs of life of a publisher for the supervisor of its process: progress, its time limits,
systemd.

systemd restarts a service that sends no ``WATCHDOG=1`` for ``WatchdogSec``. A thread of its own
sends it as long as the publisher has lately called its observer, or is in an announced wait. An
idle publisher, and one whose receiver or database is away, is alive. One that hangs in a statement
or in a receiver is not.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from eventlog.config.load import Config
from eventlog.model import Answer, Document, Level, Verdict
from eventlog.publisher.health_file import Progress
from eventlog.publisher.observer import SILENT, Doing, Observer, WaitFor
from eventlog.publisher.sinks import Sink
from eventlog.publisher.waiting import LONGEST_REST
from eventlog.registry import sink_named

_log = logging.getLogger("eventlog.publisher")

_REST: Final = 1.0
"""The longest rest in seconds of a followed source without an interval."""

_RESTS: Final = 3
"""The rests that may pass without a touch: one is usual, and a machine may be slow."""

_WORK: Final = 60.0
"""Seconds that a busy database may take between two touches, beside the rest and the receiver."""


def _longest_rest(config: Config) -> float:
    """Return the longest rest in seconds of a publisher with this configuration."""
    if config.follows:
        return getattr(config.source.options, "poll_interval", _REST)
    return (
        LONGEST_REST if config.publisher.time_of_day else float(config.publisher.polling_interval)
    )


def _longest_work(config: Config) -> float:
    """Return the longest time in seconds between two signs of a publisher that neither rests nor
    waits.
    """
    patience: float = sink_named(config.sink.type).patience(config.sink.options)
    return patience + _WORK


def patience(config: Config) -> float:
    """Return the seconds within which a publisher with this configuration touches its file if it
    makes progress.
    """
    return _RESTS * _longest_rest(config) + _longest_work(config)


@dataclass(frozen=True, slots=True)
class ReportingSink(Sink):
    """A sink that reports progress for each answer other than retry, so that a long cycle shows its
    progress, and that reports each envelope to ``observer``.
    """

    sink: Sink
    progress: Progress
    observer: Observer = SILENT

    def send(self, document: Document) -> Answer:
        begun = time.monotonic()
        answer = self.sink.send(document)
        event_ids = document.event_ids
        if not event_ids:  # a heartbeat
            return answer
        if not answer.is_pending and any(
            answer.verdict(event_id).level is not Level.RETRY for event_id in event_ids
        ):
            self.progress()
        # Otherwise its halves are reported, which decide.
        if not answer.culprit_unknown or len(event_ids) == 1:
            self.observer.answered(document, answer, time.monotonic() - begun)
        return answer

    def flush(self) -> Mapping[str, Verdict] | None:
        refused = self.sink.flush()
        self.observer.flushed()
        if refused is not None:  # of a sink whose receiver answers only now
            self.progress()
        return refused

    def close(self) -> None:
        self.sink.close()


# --- the service manager (sd_notify(3)) -----------------------------------------------------------

_SIGNS_IN_TIME: Final = 3
"""The signs within the service manager's time limit: one may be late, and one more."""


class ServiceManager:
    """The service manager at the socket ``NOTIFY_SOCKET``: a path, or a name without a file, which
    begins with ``@``.
    """

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._has_failed = False

    def tell(self, *assignments: str) -> None:
        """Send assignments such as ``READY=1``. A failing socket is logged once, and publishing
        goes on.
        """
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1.0)
                sender.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _log.error(
                    "the service manager cannot be told of the publisher: %s",
                    error.strerror or error,
                )
            self._has_failed = True
        else:
            self._has_failed = False


class Watchdog(Observer):
    """An observer that knows the time of the publisher's next sign, and reports its state to the
    service manager.

    ``work`` and ``rest`` are the seconds until the next sign of a working and of a resting
    publisher.
    """

    def __init__(self, manager: ServiceManager, work: float, rest: float) -> None:
        self._manager, self._work, self._rest = manager, work, rest
        self._state = ""
        self._until = 0.0
        self._sign()

    @property
    def is_alive(self) -> bool:
        """True while the next sign is not overdue."""
        return time.monotonic() <= self._until

    def does(self, doing: Doing, reason: str = "") -> None:
        self._sign(self._rest if doing is Doing.RESTING else 0.0)
        if doing is Doing.RESTING or (doing is Doing.CONNECTING and not self._state):
            # A short try between two waits is part of the waiting.
            self._show("publishing" if doing is Doing.RESTING else "connecting to the database")

    def waits(self, who: WaitFor, reason: str, until: float, in_short: str = "") -> None:
        self._sign(until - time.monotonic())
        # The reason may quote a receiver and is left out: everybody on the machine can read a
        # status.
        self._show(f"waiting for the {who.value}; the log says why")

    def connected(self, *, again: bool) -> None:
        self._sign()
        self._show("publishing", *(() if again else ("READY=1",)))

    def progressed(self) -> None:
        self._sign()
        self._show("publishing")

    def _is_heard(self, *_: object, **__: object) -> None:
        self._sign()

    window_read = answered = marked = looked = _is_heard

    def feed(self, interval: float, end: threading.Event) -> None:
        """Send a sign of life every ``interval`` seconds while the publisher is alive, until
        ``end`` is set.
        """
        while not end.wait(interval):
            if self.is_alive:
                self._manager.tell("WATCHDOG=1")

    def _sign(self, pause: float = 0.0) -> None:
        self._until = time.monotonic() + pause + self._work

    def _show(self, state: str, *more: str) -> None:
        if state != self._state or more:
            self._state = state
            self._manager.tell(*more, f"STATUS={state}")


@contextmanager
def watched_over(config: Config, environ: Mapping[str, str] | None = None) -> Iterator[Observer]:
    """Yield the observer that reports to the service manager while the block runs; ``SILENT``
    without a service manager.

    ``environ`` has ``NOTIFY_SOCKET``, and with a watchdog ``WATCHDOG_USEC`` (microseconds) and
    ``WATCHDOG_PID`` (sd_watchdog_enabled(3)).
    """
    environ = os.environ if environ is None else environ
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        yield SILENT
        return
    manager = ServiceManager(address)
    watchdog = Watchdog(
        manager, config.monitor.patience or _longest_work(config), _longest_rest(config)
    )
    end = threading.Event()
    microseconds = environ.get("WATCHDOG_USEC", "")
    if (
        microseconds.isdecimal()
        and int(microseconds)
        and environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    ):
        interval = int(microseconds) / 1e6 / _SIGNS_IN_TIME
        threading.Thread(
            target=watchdog.feed, args=(interval, end), name="eventlog-watchdog", daemon=True
        ).start()
    try:
        yield watchdog
    finally:
        end.set()
        manager.tell("STOPPING=1", "STATUS=stopping")
