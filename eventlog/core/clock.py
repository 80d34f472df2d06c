"""The one place where the package gets time, sleep, randomness and threads.

All other modules use this module, and ``ruff`` refuses any other source (``pyproject.toml``), so
that a simulation can replace the machine: ``simulated`` sends all calls to another ``Machine``
while its block runs (``tests/simulation``). A session that waits for a signal waits for the
``Stop`` that it was given; a test can replace this object separately.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")
Random = Callable[[], float]
"""A function that returns a random number, at least 0 and below 1."""


class Machine:
    """The clocks, the randomness and the threads of the machine."""

    monotonic = staticmethod(time.monotonic)
    """Return the seconds of a clock that never goes back; only the difference of two results has a
    meaning.
    """

    def cpu_time(self) -> float:
        """Return the seconds of CPU that this process has used."""
        return time.process_time()

    def unix_time(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Sleep for this many seconds."""
        time.sleep(seconds)

    def chance(self) -> float:
        """Return a random number, at least 0 and below 1. Do not use it for secrets."""
        return random.random()  # noqa: S311 - spreads waits, guards no secret

    def random_hex(self, count: int) -> str:
        """Return the hexadecimal digits of ``count`` random bytes."""
        return os.urandom(count).hex()

    def start_thread(self, run: Callable[[], object], name: str) -> threading.Thread:
        """Start a daemon thread: the process can end while it runs."""
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def executor(self, most: int, name: str) -> Executor:
        """Return an executor of at most ``most`` threads, whose names begin with ``name``."""
        return ThreadPoolExecutor(most, name)

    def wait_for_one(self, futures: Collection[Future[Any]]) -> None:
        """Wait until one of the futures is done."""
        wait_for_futures(futures, return_when=FIRST_COMPLETED)

    def wait_for_all(self, futures: Collection[Future[Any]]) -> None:
        """Wait until all futures are done."""
        wait_for_futures(futures)


_machine = Machine()


@contextmanager
def simulated(machine: Machine) -> Iterator[None]:
    """Send all calls of this module's functions to another machine while the block runs."""
    global _machine
    before, _machine = _machine, machine
    try:
        yield
    finally:
        _machine = before


def monotonic() -> float:
    """Return the seconds of a clock that never goes back; only the difference of two results has a
    meaning.
    """
    return _machine.monotonic()


def cpu_time() -> float:
    """Return the seconds of CPU that this process has used."""
    return _machine.cpu_time()


def unix_time() -> float:
    """Return the seconds since 1970."""
    return _machine.unix_time()


def utc_now() -> datetime:
    """Return the present moment as an aware datetime in UTC."""
    return datetime.fromtimestamp(_machine.unix_time(), UTC)


def sleep(seconds: float) -> None:
    """Sleep for this many seconds."""
    _machine.sleep(seconds)


def chance() -> float:
    """Return a random number, at least 0 and below 1. Do not use it for secrets."""
    return _machine.chance()


def random_hex(count: int) -> str:
    """Return the hexadecimal digits of ``count`` random bytes."""
    return _machine.random_hex(count)


def start_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread: the process can end while it runs."""
    return _machine.start_thread(run, name)


def executor(most: int, name: str) -> Executor:
    """Return an executor of at most ``most`` threads, whose names begin with ``name``."""
    return _machine.executor(most, name)


def first_done(futures: Collection[Future[T]]) -> list[Future[T]]:
    """Wait until a future is done, and return all futures that are done, in their order."""
    _machine.wait_for_one(futures)
    return [future for future in futures if future.done()]


def wait_for_all(futures: Collection[Future[Any]]) -> None:
    """Wait until all futures are done."""
    _machine.wait_for_all(futures)
