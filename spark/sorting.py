"""Rows that Spark brings into the order of their capture, on disk where memory ends.

The readers of some formats sort a capture in memory. Here its files are read one by one, in parallel; Spark sorts the
rows by keys that order as the reader does, and hands them to the task of the capture one behind the other.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from eventlog.changes.format import PROBLEMS_KEPT, Report
from eventlog.errors import ConfigError, EventlogError, FormatError
from eventlog.model import Change
from spark.captures import Capture, readable
from spark.job import tune_collector

MOST_TASKS: Final = 10_000

Options = Mapping[str, Any]


class SortedFormat(NamedTuple):
    """How a format is read whose captures have to be sorted.

    ``pieces`` of a capture that can be read apart; ``rows`` of a piece, each with the key that sorts it; ``changes`` of
    the rows of a capture in that order. All raise what the format's reader raises, and count in the report as it does.
    """

    pieces: Callable[[Capture, Options], Sequence[Any]]
    rows: Callable[[Any, Options, Report], Iterator[tuple[bytes, Any]]]
    changes: Callable[[Capture, Iterator[Any], Options, Report], Iterator[Change]]


class _Piece(NamedTuple):
    """``capture``: its place among those found; ``piece`` None: there is none, but its capture is to have its turn."""

    capture: int
    piece: Any


class _Read(NamedTuple):
    """What reading a piece came to: what its report says and, if it could not be read, the error's message."""

    counters: Mapping[str, int]
    problems: Sequence[str]
    failure: str | None
    is_config: bool


_SCHEMA: Final = "capture int, key binary, row binary"
_BATCH: Final = 1_000
_TOLD, _ROW = b"\0", b"\1"
"""How the keys begin of a ``_Read``, which sorts in front, and of rows."""


def sorted_rows(
    spark: SparkSession, form: SortedFormat, found: Sequence[Capture], options: Options, *, strict: bool
) -> DataFrame:
    """The rows of all captures, those of one behind each other in one partition, for ``by_capture``.

    Raises ConfigError for options; whatever is wrong with a capture it is told when the capture's turn comes.
    """
    pieces = [_Piece(place, one) for place, capture in enumerate(found) for one in _pieces(form, capture, options)]

    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_collector()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _batches(pieces[number].capture, _rows(form, number, pieces[number].piece, options, strict))

    scanned = spark.range(0, len(pieces), 1, min(len(pieces), MOST_TASKS)).mapInArrow(scan, _SCHEMA)
    in_partitions = scanned.repartitionById(min(len(found), MOST_TASKS), "capture")
    return in_partitions.sortWithinPartitions("capture", "key")


def _pieces(form: SortedFormat, capture: Capture, options: Options) -> Sequence[Any]:
    """The pieces of a capture, or the one thing that is wrong with it."""
    try:
        with readable():
            return form.pieces(capture, options) or [None]
    except ConfigError as error:
        raise ConfigError(f"{capture.name}: {error}") from None
    except EventlogError as error:
        return [_Read({}, (), str(error), is_config=False)]


def _rows(form: SortedFormat, number: int, piece: Any, options: Options, strict: bool) -> Iterator[tuple[bytes, Any]]:
    """The rows of a piece, and what reading it came to."""
    report = Report(strict=strict)
    read = piece if isinstance(piece, _Read) else None
    try:
        if piece is not None and read is None:
            with readable():
                for key, row in form.rows(piece, options, report):
                    yield _ROW + key, row
    except EventlogError as error:  # foreseeable: another attempt would say the same
        read = _Read({}, (), str(error), isinstance(error, ConfigError))
    yield _TOLD + number.to_bytes(4), read or _Read(dict(report.counters), tuple(report.problems), None, False)


def _batches(capture: int, rows: Iterator[tuple[bytes, Any]]) -> Iterator[pa.RecordBatch]:
    while several := list(islice(rows, _BATCH)):
        yield pa.RecordBatch.from_pydict({
            "capture": pa.array([capture] * len(several), pa.int32()),
            "key": pa.array([key for key, _ in several], pa.binary()),
            "row": pa.array([pickle.dumps(row, pickle.HIGHEST_PROTOCOL) for _, row in several], pa.binary()),
        })  # fmt: skip


KeyedRow = tuple[bytes, bytes]


def by_capture(
    found: Sequence[Capture], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[Capture, Iterator[KeyedRow]]]:
    """The captures that came to this task, each with its rows for ``changes_of``."""
    columns = (zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
    rows = (row for several in columns for row in several)
    for place, own in groupby(rows, key=itemgetter(0)):
        yield found[place], ((key, row) for _, key, row in own)


def changes_of(
    form: SortedFormat, capture: Capture, rows: Iterator[KeyedRow], options: Options, report: Report
) -> Iterator[Change]:
    """The changes of a capture whose rows are in order. Raises what reading its pieces raised, what ``form.changes``
    raises, and MissingFile.
    """
    capture.check(report)
    ready = _ready(rows, report)
    first = list(islice(ready, 1))  # with that, all that is told is heard
    with readable():
        yield from form.changes(capture, chain(first, ready), options, report)


def _ready(rows: Iterator[KeyedRow], report: Report) -> Iterator[Any]:
    """The rows, behind what is told of reading them."""
    for key, pickled in rows:
        row = pickle.loads(pickled)  # noqa: S301 - what a task of this job has written
        if key.startswith(_ROW):
            yield row
            continue
        report.counters.update(row.counters)
        report.problems += row.problems[: PROBLEMS_KEPT - len(report.problems)]
        if row.failure is not None:
            raise (ConfigError if row.is_config else FormatError)(row.failure)
