"""How captures become the work of tasks: each as its reader takes it or, where that would sort, sorted by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from eventlog.changes.format import Report
from eventlog.model import Change
from spark.captures import Capture, read_capture
from spark.sorted_formats import sorted_format
from spark.sorting import MOST_TASKS, Options, SortedFormat, by_capture, changes_of, sorted_rows

Read = Callable[[Report], Iterator[Change]]
"""Reads a capture, once. Raises what the format's reader raises."""


class Work(NamedTuple):
    """``frame``: what is handed to the tasks; ``taken``: the captures that came to a task in its batches of that, each
    to be read before the next is taken.
    """

    frame: DataFrame
    taken: Callable[[Iterator[pa.RecordBatch]], Iterator[tuple[Capture, Read]]]


def work_on(spark: SparkSession, found: Sequence[Capture], format: str, options: Options, *, strict: bool) -> Work:
    """A task a capture, unless there are very many. ``options``: those of the format's reader; ``strict`` as of the
    reports that the captures will be read with. Raises ConfigError.
    """
    form = sorted_format(format, options)
    if form is not None:
        return Work(sorted_rows(spark, form, found, options, strict=strict), partial(_sorted, form, found, options))
    frame = spark.range(0, len(found), 1, min(len(found), MOST_TASKS))
    return Work(frame, partial(_as_they_come, found, format, options))


def _as_they_come(
    found: Sequence[Capture], format: str, options: Options, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[Capture, Read]]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield found[number], partial(read_capture, found[number], format, options)


def _sorted(
    form: SortedFormat, found: Sequence[Capture], options: Options, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[Capture, Read]]:
    for capture, rows in by_capture(found, batches):
        yield capture, partial(changes_of, form, capture, rows, options)
