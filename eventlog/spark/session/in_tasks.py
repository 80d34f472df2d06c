"""Functions that the tasks of all jobs use: a tuned garbage collector, and task numbers."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from importlib.abc import MetaPathFinder
from typing import Final

import pyarrow as pa

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
    """Create Arrow's first array without pandas; otherwise Arrow imports it to test for a Series.

    The import costs a worker 0.2 to 0.3 s of CPU (``bench/spark_hooks.py``). A function that uses
    pandas still imports it.
    """
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


def task_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers of ``spark.range`` in the batches of a task."""
    for batch in batches:
        yield from batch.column(0).to_pylist()
