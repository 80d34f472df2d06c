"""Functions that PySpark's workers use: a tuned garbage collector, task numbers, and errors without
frames.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any, Final, TypeAlias

import pyarrow as pa

from eventlog.errors import EventlogError

Batches: TypeAlias = Iterator[pa.RecordBatch]
"""Rows in the form in which Arrow passes them, such as the rows that a task reads or yields."""

_SELDOM: Final = (1_000_000, 20, 100)


def tune_collector() -> None:
    """Let the garbage collector run rarely: there are many rows and events, but they are
    short-lived and have no reference cycles.

    Spark collects after every task. Modules that a worker imported before its first task are not
    examined again.
    """
    if gc.get_threshold() != _SELDOM:
        if "pandas" not in sys.modules:
            _use_arrow_without_pandas()
        gc.set_threshold(*_SELDOM)
        gc.freeze()


class _WithoutPandas(MetaPathFinder):
    """A finder that hides pandas."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def _use_arrow_without_pandas() -> None:
    """Create Arrow's first array without pandas; otherwise Arrow imports pandas to test for a
    Series.

    The import costs a worker 0.2 to 0.3 s of CPU (``bench/spark_hooks.py``). A function that uses
    pandas still imports pandas.
    """
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


def rows_of_batch(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a batch: the values of its columns."""
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def task_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers of ``spark.range`` in the batches of a task."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


_ONLY_IN_WORKERS: Final = "pyspark.worker_util"
"""A module of PySpark that its workers import, and the driver does not."""


@contextmanager
def without_frames() -> Iterator[None]:
    """Let Spark show only the message of an EventlogError that the block, or the function, raises.
    The frames of the worker are left out, since they do not explain a wrong option.

    This function sets the environment variable SPARK_HIDE_TRACEBACK. PySpark reads the variable
    when it writes the error, and then ends the worker. No other error loses its frames.
    """
    try:
        yield
    except EventlogError:
        if _ONLY_IN_WORKERS in sys.modules:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
