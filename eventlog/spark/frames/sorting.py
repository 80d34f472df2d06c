"""Inputs whose rows Spark sorts, on disk if memory does not suffice.

The readers of some formats sort an input in memory. Here the files of an input are read in
parallel. Spark sorts the rows by keys that sort in the reader's order, and passes them one by one
to the task of the input.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from eventlog.changes.format import PROBLEMS_KEPT, Report
from eventlog.changes.json_form import CatalogOption, catalog_of
from eventlog.conversion import zoned
from eventlog.core.catalog import Catalog
from eventlog.core.options import parse_options
from eventlog.errors import ConfigError, EventlogError, FormatError, with_location
from eventlog.linter.dispatch_tables import DispatchRow
from eventlog.linter.format import LinterFormat, export_files, export_reader, read_queue
from eventlog.log.format import EventLogFormat, changes_of_sorted
from eventlog.log.storage import LogReaderOptions, read_rows
from eventlog.model import Change, LogRow, full_name
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.masks import HISTORY_TABLE, DdlEntry
from eventlog.qlik.sequence import Waiting, count_events
from eventlog.qlik.tables import file_tables
from eventlog.qlik.tables.change_rows import ChangeRow, row_order
from eventlog.qlik.tables.change_table_format import NAME as CHANGE_TABLES
from eventlog.qlik.tables.change_table_format import ChangeTableFormat, nothing_found
from eventlog.qlik.tables.change_tables import changes_of_rows
from eventlog.qlik.tables.file_tables import Part, TableFiles, rows_of_part
from eventlog.qlik.tables.stored_tables import Reading, ReadOptions, reading
from eventlog.registry import format_named
from eventlog.spark.frames.inputs import Input, Options, files_of, read_input, readable
from eventlog.spark.session.in_tasks import Batches, rows_of_batch, task_numbers, tune_collector
from eventlog.spark.session.session import by_number

_MAX_TASKS: Final = 10_000


def numbered_tasks(spark: SparkSession, number: int) -> DataFrame:
    """Return the numbers from 0 for ``task_numbers``, one per task, unless there are very many
    numbers.
    """
    return spark.range(0, number, 1, min(number, _MAX_TASKS))


Read = Callable[[Report], Iterator[Change]]
"""A function that reads an input, once. The function raises the errors of the format's reader."""

Inputs = Iterator[tuple[Input, Read]]
"""The inputs in the batches of a task. Read each input to its end before you take the next input.
"""

InputsOf = Callable[[Batches], Inputs]
"""A function that yields the inputs in the batches of a task."""


def work_on(
    spark: SparkSession,
    inputs: Sequence[Input],
    format: str,
    options: Options,
    *,
    strict: bool,
    catalog: CatalogOption = None,
) -> tuple[DataFrame, InputsOf]:
    """Return the frame for the tasks, and the function with which a task takes inputs from it: one
    input per task, unless there are very many inputs.

    ``options`` are the options of the format's reader. ``strict`` must be as in the reports with
    which the inputs are read. ``catalog`` determines the zones of times, as in
    ``conversion.zoned``. Raises ConfigError.
    """
    by = sorted_format(format, options)
    inputs_of: InputsOf
    if by is not None:
        frame = _sorted_rows(spark, by, inputs, options, strict=strict)
        inputs_of = partial(_sorted, by, inputs, options)
    else:
        frame = numbered_tasks(spark, len(inputs))
        inputs_of = partial(_unsorted_inputs, inputs, format, options)
    return frame, inputs_of if catalog is None else partial(_zoned, inputs_of, catalog)


def _zoned(inputs_of: InputsOf, catalog: CatalogOption, batches: Batches) -> Inputs:
    classes = catalog_of(catalog)
    for input, read in inputs_of(batches):
        yield input, partial(_read_zoned, read, classes)


def _read_zoned(read: Read, classes: Catalog | None, report: Report) -> Iterator[Change]:
    return zoned(read(report), classes)


def _unsorted_inputs(
    inputs: Sequence[Input], format: str, options: Options, batches: Batches
) -> Inputs:
    for number in task_numbers(batches):
        yield inputs[number], partial(read_input, inputs[number], format, options)


# --- inputs that are sorted ---------------------------------------------------------------------


KeyedRows = Iterator[tuple[bytes, Any]]
"""Rows of a fragment, each with its sort key."""


class _SortedFormat(NamedTuple):
    """The functions for a format whose inputs must be sorted.

    All functions raise and count errors exactly like the format's reader.
    """

    fragments: Callable[[Input, Options], Sequence[Any]]
    """A function that returns the fragments of an input that can be read separately."""
    rows: Callable[[Any, Options, Report], KeyedRows]
    """A function that returns the rows of a fragment, each with its sort key."""
    changes: Callable[[Input, Iterator[Any], Options, Report], Iterator[Change]]
    """A function that returns the changes of an input's sorted rows."""


_SCHEMA: Final = "input int, key binary, row binary"
_BATCH: Final = 1_000
_RESULT, _ROW = b"\0", b"\1"
"""The first bytes of keys: for the result of a fragment, which sorts first, and for a row."""


def _sorted_rows(
    spark: SparkSession,
    by: _SortedFormat,
    inputs: Sequence[Input],
    options: Options,
    *,
    strict: bool,
) -> DataFrame:
    """Return the rows of all inputs, with the rows of each input together in one partition.

    Raises ConfigError for options. Errors of an input are raised when its rows are read.
    """
    # Each fragment has its input's index. The fragment None stands for an input that has no
    # fragments but must be converted, too.
    fragments = [
        (place, one) for place, input in enumerate(inputs) for one in _fragments(by, input, options)
    ]

    def scan(batches: Batches) -> Batches:
        tune_collector()
        for number in task_numbers(batches):
            input, fragment = fragments[number]
            yield from _batches(input, _rows(by, number, fragment, options, strict))

    scanned = numbered_tasks(spark, len(fragments)).mapInArrow(scan, _SCHEMA)
    in_partitions = by_number(scanned, min(len(inputs), _MAX_TASKS), "input")
    return in_partitions.sortWithinPartitions("input", "key")


def _fragments(by: _SortedFormat, input: Input, options: Options) -> Sequence[Any]:
    """Return the fragments of an input, or the error that prevents finding them."""
    try:
        with readable():
            return by.fragments(input, options) or [None]
    except ConfigError as error:
        raise ConfigError(f"{input.name}: {error}") from None
    except EventlogError as error:
        return [FormatError(str(error))]


def _rows(
    by: _SortedFormat, number: int, fragment: Any, options: Options, strict: bool
) -> KeyedRows:
    """Yield the rows of a fragment, and the result of reading it: its counters, or the error."""
    report = Report(strict=strict)
    failure = fragment if isinstance(fragment, EventlogError) else None
    try:
        if fragment is not None and failure is None:
            with readable():
                for key, row in by.rows(fragment, options, report):
                    yield _ROW + key, row
    except EventlogError as error:  # a retry would fail in the same way
        failure = (ConfigError if isinstance(error, ConfigError) else FormatError)(str(error))
    yield (
        _RESULT + number.to_bytes(4),
        failure or (report.counters, report.problems, report.passed_over),
    )


def _batches(input: int, rows: KeyedRows) -> Batches:
    while several := list(islice(rows, _BATCH)):
        pickled = [pickle.dumps(row, pickle.HIGHEST_PROTOCOL) for _, row in several]
        yield pa.RecordBatch.from_pydict({
            "input": pa.array([input] * len(several), pa.int32()),
            "key": pa.array([key for key, _ in several], pa.binary()),
            "row": pa.array(pickled, pa.binary()),
        })  # fmt: skip


def _sorted(
    by: _SortedFormat,
    inputs: Sequence[Input],
    options: Options,
    batches: Batches,
) -> Inputs:
    """Yield the inputs in the frame of ``_sorted_rows``, as an ``InputsOf`` does."""
    rows = (row for batch in batches for row in rows_of_batch(batch))
    for place, of_input in groupby(rows, key=itemgetter(0)):
        keyed = ((key, row) for _, key, row in of_input)
        yield inputs[place], partial(_changes_of, by, inputs[place], keyed, options)


def _changes_of(
    by: _SortedFormat,
    input: Input,
    rows: Iterator[tuple[bytes, bytes]],
    options: Options,
    report: Report,
) -> Iterator[Change]:
    """Yield the changes of an input whose rows are sorted. Raises the errors of reading its
    fragments and of ``by.changes``, and FormatError.
    """
    input.check(report)
    ready = _ready(rows, report)
    first = list(islice(ready, 1))  # reading the first row consumes the results of all fragments
    with readable():
        yield from by.changes(input, chain(first, ready), options, report)


def _ready(rows: Iterator[tuple[bytes, bytes]], report: Report) -> Iterator[Any]:
    """Handle the results of reading the fragments, then yield the rows."""
    for key, pickled in rows:
        row = pickle.loads(pickled)  # noqa: S301 - written by a task of this job
        if key.startswith(_ROW):
            yield row
            continue
        if isinstance(row, EventlogError):
            raise row
        counters, problems, passed_over = row
        report.counters.update(counters)
        report.passed_over += passed_over
        report.problems += problems[: PROBLEMS_KEPT - len(report.problems)]


def sorted_format(format: str, options: Options) -> _SortedFormat | None:
    """Return the functions that sort inputs, None if the format's inputs are not sorted."""
    asked = format_named(format)
    return _SORTED.get(type(asked)) if asked.is_sorted_first(options) else None


_PLACE: Final = struct.Struct(">IQ")
"""The place of a row: the number of the file, and the place within the file. The place keeps rows
with equal keys in their order.
"""


def _ordered(number: int) -> bytes:
    """Return an integer as bytes that sort in the order of the integers. An integer beyond 64 bits
    sorts as the greatest or the least 64-bit integer.
    """
    return (min(max(number, -(2**63)), 2**63 - 1) + 2**63).to_bytes(8)


_File = tuple[int, Path]
"""A file of an input, with its number in the input's order."""


# --- Linter queues --------------------------------------------------------------------------------


def _queue_files(input: Input, options: Options) -> Sequence[_File]:
    return list(enumerate(file for path in input.paths for file in export_files(path)[0]))


def _dispatch_rows(
    file: _File, options: Options, report: Report
) -> Iterator[tuple[bytes, DispatchRow]]:
    by_date = options.get("order_by") == "oper_date"
    number, path = file
    for place, row in enumerate(read_queue([path])):
        key = row.syslog_addr.to_bytes(8) + _ordered(row.extdata) + _PLACE.pack(number, place)
        yield row.oper_date + key if by_date else key, row


def _queue_changes(
    input: Input, rows: Iterator[DispatchRow], options: Options, report: Report
) -> Iterator[Change]:
    reader = export_reader(str(input.paths[0]), options, report)
    try:
        for change in reader.changes(rows, final=bool(options.get("final", True))):
            report.read += 1
            yield change
    except FormatError as error:
        raise with_location(error, input.place) from error.__cause__


_LINTER: Final = _SortedFormat(_queue_files, _dispatch_rows, _queue_changes)


# --- change tables --------------------------------------------------------------------------------


class _TablePart(NamedTuple):
    """A file of a change table. ``place`` has the number of the table and the number of the file in
    the table; ``table`` does not include the files.
    """

    place: tuple[int, int]
    part: Part
    table: TableFiles
    history: Sequence[DdlEntry]
    columns: tuple[QlikColumn, ...]


def _tables(input: Input, options: Options, report: Report) -> tuple[Reading, list[TableFiles]]:
    (path,) = input.paths
    chosen = parse_options(ReadOptions, options, f"the {CHANGE_TABLES} reader")
    history = file_tables.control_rows(path, HISTORY_TABLE, chosen)
    tables, context = file_tables.described_tables(path, reading(chosen, history, report))
    if not tables and not file_tables.is_written(path):
        raise nothing_found(str(path), chosen)
    return context, tables


def _table_parts(input: Input, options: Options) -> Sequence[_TablePart]:
    context, tables = _tables(input, options, Report())
    return [
        _TablePart(
            (number, place),
            part,
            table._replace(parts=[]),
            context.history,
            context.columns[full_name(table.schema, table.table)],
        )
        for number, table in enumerate(tables)
        for place, part in enumerate(table.parts)
    ]


def _table_rows(
    fragment: _TablePart, options: Options, report: Report
) -> Iterator[tuple[bytes, tuple[int, ChangeRow]]]:
    context = reading(parse_options(ReadOptions, options, ""), (), report)
    columns = {full_name(fragment.table.schema, fragment.table.table): fragment.columns}
    context = replace(context, columns=columns, history=fragment.history)
    table, number = fragment.place
    for place, row in enumerate(rows_of_part(fragment.part, fragment.table, context)):
        sequence, is_after = row_order(row)
        # The table comes before the kind of row in the key,
        # so that a before image and its update are together.
        order = struct.pack(">I?", table, is_after) + _PLACE.pack(number, place)
        yield sequence.encode() + order, (table, row)


def _table_changes(
    input: Input, rows: Iterator[tuple[int, ChangeRow]], options: Options, report: Report
) -> Iterator[Change]:
    context, tables = _tables(input, options, report)
    sources = [file_tables.source_of(table, context) for table in tables]

    def in_order() -> Iterator[Change | Waiting]:
        for number, rows_of_table in groupby(rows, key=itemgetter(0)):
            of_table = (row for _, row in rows_of_table)
            yield from changes_of_rows(
                of_table, sources[number], input_complete=True, skip=report.skip
            )

    for change in count_events(in_order(), input_complete=True):
        report.read += 1
        yield change


_CHANGE_TABLES: Final = _SortedFormat(_table_parts, _table_rows, _table_changes)


# --- event logs -----------------------------------------------------------------------------------


def _log_files(input: Input, options: Options) -> Sequence[_File]:
    return list(enumerate(files_of(input, "eventlog")))


def _log_rows(file: _File, options: Options, report: Report) -> Iterator[tuple[bytes, LogRow]]:
    chosen = parse_options(LogReaderOptions, options, "the eventlog reader")
    number, path = file
    rows = read_rows(str(path), chosen, report.skip)
    for place, row in enumerate(rows):
        yield _ordered(row.record_id) + _PLACE.pack(number, place), row


def _log_changes(
    input: Input, rows: Iterator[LogRow], options: Options, report: Report
) -> Iterator[Change]:
    return changes_of_sorted(rows, str(input.place), options, report)


_EVENT_LOG: Final = _SortedFormat(_log_files, _log_rows, _log_changes)

_SORTED: Final[Mapping[type, _SortedFormat]] = {
    LinterFormat: _LINTER,
    ChangeTableFormat: _CHANGE_TABLES,
    EventLogFormat: _EVENT_LOG,
}
