"""Checks before a job begins: estimate its cost, count the tasks that run at the same time, and
test whether executors can run tasks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from sqlalchemy import Connection

import eventlog
from eventlog.config.load import Config
from eventlog.core.clock import random_hex, sleep, start_thread
from eventlog.core.rows.events import ids_of
from eventlog.core.rows.fold import Group
from eventlog.model import Status
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.declared import open_unlocked
from eventlog.publisher.feeds import build_events, read_window
from eventlog.publisher.send import recover
from eventlog.spark.backlog.job import COMPRESSION
from eventlog.spark.directory import TEMPORARY, Directory
from eventlog.spark.log_source import LAST_ID, LogLocation
from eventlog.spark.session.session import SparkFailed, as_spark_failed, cores_of
from eventlog.spark.session.spark_context import context_of
from eventlog.sql.port import LogPart, Purpose, as_database_errors
from eventlog.xds.writer import write_outgoing

# --- the cost of a job ----------------------------------------------------------------------------

START_SECONDS = 8.0
CORE_SECONDS_PER_ROW = 10.9e-6
MARK_SECONDS_PER_ROW = 4.2e-6
DELETE_SECONDS_PER_ROW = 0.56e-6
"""This number and the numbers above were measured on the machine of docs/operate/deploy.md. The
seconds per row are seconds of one core; for marking and deleting, they are seconds of the server.
"""


def waiting_parts(
    context: Context, connection: Connection, partition_rows: int, cores: int
) -> list[LogPart]:
    """Return the parts into which a job divides the rows of status N, with at most
    ``partition_rows`` rows each. The number of parts is a multiple of twice the number of cores,
    unless the backlog is small.
    """
    return context.log.on(connection).log_parts(Status.NEW, 1, LAST_ID, partition_rows, 2 * cores)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected cost of a job."""

    rows: int
    parts: int
    events: int
    bytes: int
    """The bytes of XDS lines without compression."""
    temporary_bytes: int
    """The bytes, compressed, that are used in addition to ``bytes`` until the job ends."""
    cores: int
    converting_seconds: float
    mark_seconds: float
    delete_seconds: float
    claimed: bool
    """True if rows are claimed, so that only a copy can be converted."""


def estimate(config: Config, master: str | None, partition_rows: int) -> Estimate:
    """Return the plan of a job on ``master``, without Spark, lock or output. Raises ConfigError,
    DatabaseError.

    The first waiting rows are folded and written to measure the output per row.
    """
    cores = cores_of(master) if master is not None else os.cpu_count() or 1
    with (
        open_unlocked(config, Counters(), Purpose.BACKLOG) as context,
        as_database_errors(context.log.connection),
    ):
        parts = waiting_parts(context, context.log.connection, partition_rows, cores)
        state = recover(context)
        sampled: list[Group] = []
        if parts:
            window = read_window(context, 1, None, frozenset(), state.outbox)
            # Without the groups that do not fit in the window.
            sampled = [group for group in window.groups if window.unread.isdisjoint(ids_of(group))]
        events = [
            event
            for event in build_events(context, sampled, context.query_back)
            if event.operation is not None
        ]
        text = "".join(map(write_outgoing, events)).encode()
        context.log.connection.rollback()
    rows = sum(part.rows for part in parts)
    share = rows / max(1, sum(map(len, sampled)))
    packed = pa.compress(text, COMPRESSION, asbytes=True)
    return Estimate(
        rows=rows,
        parts=len(parts),
        events=round(len(events) * share),
        bytes=round(len(text) * share),
        temporary_bytes=round(len(packed) * share),
        cores=cores,
        converting_seconds=START_SECONDS + rows * CORE_SECONDS_PER_ROW / cores,
        mark_seconds=rows * MARK_SECONDS_PER_ROW,
        delete_seconds=rows * DELETE_SECONDS_PER_ROW,
        claimed=state.claim is not None,
    )


# --- the cluster ----------------------------------------------------------------------------------

_GUESS: Final = 8
"""The number of tasks that are assumed to run at the same time if Spark does not report the number
(Spark Connect).
"""
_POLLS: Final = 4
"""The number of successive polls that must return the same number."""
_MAX_POLLS: Final = 10
POLL_SECONDS: Final = 0.3
_SHIP: Final = "ship the driver's environment with --archives, and set PYSPARK_PYTHON to its Python"


@contextmanager
def counting_cores(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Count, while the block runs, how many tasks the registered executors run at the same time.

    Yields a function that waits for the number. Executors register one after the other, so the
    number is used when it no longer changes. After ``preflight`` there is at least one executor.
    Spark Connect does not report the number, so the number is a guess with Spark Connect.
    """
    context = context_of(spark)
    if context is None:
        yield lambda: _GUESS
        return
    seen: deque[int] = deque(maxlen=_POLLS)
    ended = Event()

    def poll() -> None:
        while not ended.wait(POLL_SECONDS):
            seen.append(int(context.defaultParallelism))

    def number() -> int:
        for _ in range(_MAX_POLLS):
            if len(seen) == _POLLS and len(set(seen)) == 1:
                break
            sleep(POLL_SECONDS)
        return seen[-1] if seen else int(context.defaultParallelism)

    thread = start_thread(poll, "eventlog-executors")
    try:
        yield number
    finally:
        ended.set()
        thread.join()


def preflight(spark: SparkSession, place: LogLocation, directory: Directory) -> None:
    """Let an executor check everything that a task needs: packages, their version, the directory,
    the database.

    Raises SparkFailed with one line about what the executor lacks.
    """
    nonce = random_hex(16)
    asked, answered = f"{TEMPORARY}-{nonce}-driver", f"{TEMPORARY}-{nonce}-executor"
    directory.make()
    directory.write(asked, nonce.encode())
    check = _checker(place, directory.uri, asked, answered, nonce)
    try:
        with as_spark_failed(
            f"nothing was begun. Executors run the Python in PYSPARK_PYTHON: {_SHIP}"
        ):
            (found,) = (
                spark.range(0, 1, 1, 1).mapInArrow(check, "host string, missing string").collect()
            )
        missing = found.missing
        if not missing and not directory.exists(answered):
            missing = f"it writes to another directory than the driver's {directory.location}"
        if missing:
            raise SparkFailed(f"the executor on {found.host} cannot run tasks: {missing}")
    finally:
        for name in (asked, answered):
            if directory.exists(name):
                directory.delete(name)


def _checker(
    place: LogLocation, uri: str, asked: str, answered: str, nonce: str
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function that an executor runs. Spark sends the whole code of this function, since
    the executor may lack the package. Spark itself refuses a Python of another version than the
    driver's, and a Python without Arrow.
    """
    version, ship, url, url_file = eventlog.__version__, _SHIP, place.url, place.url_file

    def check(batches: Iterator[Any]) -> Iterator[Any]:
        import platform

        import pyarrow as pa

        def missing() -> str:
            try:
                import eventlog

                if eventlog.__version__ != version:
                    return f"eventlog is {eventlog.__version__} there and {version} on the driver"
                from eventlog.errors import EventlogError
                from eventlog.spark.backlog import fold, write  # noqa: F401 - what tasks will import
                from eventlog.spark.directory import Directory
                from eventlog.spark.log_source import worker_url
                from eventlog.sql.connect import connect
            except ImportError as error:
                return f"{error}: {ship}"
            try:
                directory = Directory(uri)
                if not directory.exists(asked) or directory.read(asked).decode() != nonce:
                    return (
                        f"{directory.location} is not the driver's directory. Give a directory "
                        "that the driver and all workers reach under the same name"
                    )
                directory.write(answered, b"")
            except (EventlogError, OSError) as error:
                return f"the directory cannot be used: {error}"
            try:
                engine = connect(worker_url(url, url_file))
                with engine.connect():
                    pass
                engine.dispose()
            except (EventlogError, ImportError) as error:
                if isinstance(error, ImportError) or isinstance(error.__cause__, ImportError):
                    return f"{error}; {ship}"
                known_by = (
                    "EVENTLOG_DATABASE_URL_FILE, or the driver's URL and EVENTLOG_DATABASE_PASSWORD"
                )
                return f"{error} (executors find the database with {known_by})"
            except Exception as error:
                return f"it cannot connect to the database: {type(error).__name__}: {error}"
            return ""

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"host": [platform.node()], "missing": [missing()]})

    return check
