"""What a job has to know of the cluster that it runs on: how much runs at once there, and whether an executor has all
that it needs.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Final

from pyspark.sql import SparkSession

import eventlog
from spark.log_source import Place
from spark.output.directory import TEMPORARY, Directory
from spark.session import SparkFailed, as_spark_failed, context_of

_GUESS: Final = 8
"""Tasks at once where Spark does not tell (Spark Connect)."""
_LOOKS: Final = 4
"""Looks in a row that are to give one number."""
_MOST_LOOKS: Final = 10
_LOOK_SECONDS: Final = 0.3
_SHIP: Final = "ship the driver's environment with --archives, and set PYSPARK_PYTHON to its Python"


@contextmanager
def counting_cores(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Count, while the block runs, how many tasks the executors that have registered run at once.

    Gives a function that waits for the number. Executors register one after the other: a number counts when it stays.
    One at least is there after ``preflight``. For Spark Connect, which does not tell, it is a guess.
    """
    context = context_of(spark)
    if context is None:
        yield lambda: _GUESS
        return
    seen: deque[int] = deque(maxlen=_LOOKS)
    ended = Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            seen.append(int(context.defaultParallelism))

    def number() -> int:
        for _ in range(_MOST_LOOKS):
            if len(seen) == _LOOKS and len(set(seen)) == 1:
                break
            time.sleep(_LOOK_SECONDS)
        return seen[-1] if seen else int(context.defaultParallelism)

    thread = Thread(target=look, name="eventlog-executors", daemon=True)
    thread.start()
    try:
        yield number
    finally:
        ended.set()
        thread.join()


def preflight(spark: SparkSession, place: Place, directory: Directory) -> None:
    """Let an executor look for all that a task needs: packages, their version, the directory, the database.

    Raises SparkFailed that says in one line what is missing there.
    """
    nonce = uuid.uuid4().hex
    asked, answered = f"{TEMPORARY}-{nonce}-driver", f"{TEMPORARY}-{nonce}-executor"
    directory.make()
    directory.write(asked, nonce.encode())
    check = _checker(place, directory.uri, asked, answered, nonce)
    try:
        with as_spark_failed(f"nothing was begun. Executors run what PYSPARK_PYTHON names: {_SHIP}"):
            (found,) = spark.range(0, 1, 1, 1).mapInArrow(check, "host string, missing string").collect()
        missing = found.missing
        if not missing and not directory.exists(answered):
            missing = f"it writes to another directory than the driver's {directory.location}"
        if missing:
            raise SparkFailed(f"the executor on {found.host} cannot take part: {missing}")
    finally:
        for name in (asked, answered):
            if directory.exists(name):
                directory.delete(name)


def _checker(place: Place, uri: str, asked: str, answered: str, nonce: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that an executor runs. Spark sends it whole, as the package may be missing there. Spark itself
    refuses another Python than the driver's, and one without Arrow.
    """
    version, ship, url, url_file = eventlog.__version__, _SHIP, place.url, place.url_file

    def check(batches: Iterator[Any]) -> Iterator[Any]:
        import platform

        import pyarrow as pa

        def look() -> str:
            try:
                import eventlog

                if eventlog.__version__ != version:
                    return f"eventlog is {eventlog.__version__} there and {version} on the driver"
                from eventlog.errors import EventlogError
                from eventlog.sql.connection import connect
                from spark.log_source import worker_url
                from spark.output.directory import Directory
                from spark.stages import fold, read, write  # noqa: F401 - what tasks will import
            except ImportError as error:
                return f"{error}: {ship}"
            try:
                directory = Directory(uri)
                if not directory.exists(asked) or directory.read(asked).decode() != nonce:
                    return f"{directory.location} is not the directory of the driver: both are to reach it by one name"
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
                known_by = "EVENTLOG_DATABASE_URL_FILE, or the driver's URL and EVENTLOG_DATABASE_PASSWORD"
                return f"{error} (executors know the database by {known_by})"
            except Exception as error:
                return f"the database cannot be reached from there: {type(error).__name__}: {error}"
            return ""

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"host": [platform.node()], "missing": [look()]})

    return check
