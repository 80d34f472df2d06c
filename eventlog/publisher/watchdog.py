"""What a publisher tells the service manager that started it: that it is ready, does something, stops (sd_notify(3)).

systemd restarts a service that sends no ``WATCHDOG=1`` for ``WatchdogSec``. A thread of its own sends it, as long as
the publisher has lately told its observer anything, or waits for something that is told beforehand: an idle publisher,
and one whose receiver or database is away, are not dead. One that hangs in a statement or in a receiver is.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from eventlog.config.load import Config
from eventlog.publisher.liveness import longest_rest, longest_work
from eventlog.publisher.observer import SILENT, Doing, Observer, WaitFor

_log = logging.getLogger("eventlog.publisher")

_SIGNS_IN_TIME: Final = 3
"""Signs within the time after which the service manager acts: one may be late, and one more."""


class ServiceManager:
    """The socket of ``NOTIFY_SOCKET``: a path, or a name without a file, which begins with ``@``."""

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._has_failed = False

    def tell(self, *assignments: str) -> None:
        """Send assignments such as ``READY=1``. A socket that takes none is logged once, and publishing goes on."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1.0)
                sender.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _log.error("the service manager cannot be told of the publisher: %s", error.strerror or error)
            self._has_failed = True
        else:
            self._has_failed = False


class Watchdog(Observer):
    """Knows until when a publisher need not be heard of, and tells the service manager its state.

    ``work``, ``rest``: seconds until the next sign of a publisher that works, and of one that rests.
    """

    def __init__(self, manager: ServiceManager, work: float, rest: float) -> None:
        self._manager, self._work, self._rest = manager, work, rest
        self._state = ""
        self._until = 0.0
        self._sign()

    @property
    def is_alive(self) -> bool:
        """Whether the next sign is not overdue."""
        return time.monotonic() <= self._until

    def does(self, doing: Doing, reason: str = "") -> None:
        self._sign(self._rest if doing is Doing.RESTING else 0.0)
        if doing is Doing.RESTING or (doing is Doing.CONNECTING and not self._state):
            # A short try between two waits is part of the waiting.
            self._show("publishing" if doing is Doing.RESTING else "connecting to the database")

    def waits(self, who: WaitFor, reason: str, until: float) -> None:
        self._sign(until - time.monotonic())
        # Without the reason, which may be what a receiver said: everybody on the machine can read a status.
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
        """Send a sign of life every so many seconds, if there is one, until ``end`` is set."""
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
    """Give who tells the service manager of the publisher while the block runs; ``SILENT`` if none has started it.

    ``environ`` has ``NOTIFY_SOCKET``, and with a watchdog ``WATCHDOG_USEC`` (microseconds) and ``WATCHDOG_PID``
    (sd_watchdog_enabled(3)).
    """
    environ = os.environ if environ is None else environ
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        yield SILENT
        return
    manager = ServiceManager(address)
    watchdog = Watchdog(manager, config.monitor.patience or longest_work(config), longest_rest(config))
    end = threading.Event()
    microseconds = environ.get("WATCHDOG_USEC", "")
    if (
        microseconds.isdecimal()
        and int(microseconds)
        and environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    ):
        interval = int(microseconds) / 1e6 / _SIGNS_IN_TIME
        threading.Thread(target=watchdog.feed, args=(interval, end), name="eventlog-watchdog", daemon=True).start()
    try:
        yield watchdog
    finally:
        end.set()
        manager.tell("STOPPING=1", "STATUS=stopping")
