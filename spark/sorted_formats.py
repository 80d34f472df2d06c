"""The formats whose captures Spark sorts, since their readers would do so in memory: exports of a Linter queue, change
tables, and event logs with the option ``sort``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.changes.format import Report, parse_options
from eventlog.errors import FormatError, with_location
from eventlog.linter.files import export_files, read_queue
from eventlog.linter.queue_format import export_reader
from eventlog.linter.rows import QueueRow
from eventlog.log.files import read_rows
from eventlog.log.row_format import LogReaderOptions, changes_of_sorted
from eventlog.model import Change, LogRow
from eventlog.qlik import file_tables
from eventlog.qlik.change_rows import ChangeRow, row_order
from eventlog.qlik.change_table_format import NAME as CHANGE_TABLES
from eventlog.qlik.change_table_format import nothing_found
from eventlog.qlik.change_table_options import Described, ReadOptions, full_name
from eventlog.qlik.change_tables import changes_of_rows
from eventlog.qlik.ddl_history import DdlEntry
from eventlog.qlik.file_tables import Part, TableFiles, rows_of_part, stored_table, table_files
from eventlog.qlik.stored_tables import Reading, reading, source_table
from eventlog.qlik.transactions import Waiting, count_events
from spark.captures import Capture, files_of
from spark.sorting import Options, SortedFormat


def sorted_format(format: str, options: Options) -> SortedFormat | None:
    """How Spark sorts captures of a format, None where its reader takes them as they come."""
    match format:
        case "linter":
            return _LINTER
        case "qlik-change-table" if options.get("input_complete", True):  # else a last row may wait, of one stream
            return _CHANGE_TABLES
        case "eventlog" if options.get("sort"):
            return _EVENT_LOG
        case _:
            return None


_PLACE: Final = struct.Struct(">IQ")
"""The place of a row, by file and within it: rows that are equal in order stay as they stand."""


def _ordered(number: int) -> bytes:
    """A whole number as bytes that sort as it does, as far as 64 bits hold it."""
    return (min(max(number, -(2**63)), 2**63 - 1) + 2**63).to_bytes(8)


class _File(NamedTuple):
    number: int
    path: Path


# --- Linter queues ----------------------------------------------------------------------------------------------------


def _queue_files(capture: Capture, options: Options) -> Sequence[_File]:
    files = [file for path in capture.paths for file in export_files(path)[0]]
    return [_File(number, path) for number, path in enumerate(files)]


def _queue_rows(file: _File, options: Options, report: Report) -> Iterator[tuple[bytes, QueueRow]]:
    by_date = options.get("order_by") == "oper_date"
    for place, row in enumerate(read_queue([file.path])):
        key = row.syslog_addr.to_bytes(8) + _ordered(row.extdata) + _PLACE.pack(file.number, place)
        yield row.oper_date + key if by_date else key, row


def _queue_changes(capture: Capture, rows: Iterator[QueueRow], options: Options, report: Report) -> Iterator[Change]:
    reader = export_reader(str(capture.paths[0]), options, report)
    try:
        for change in reader.changes(rows, final=bool(options.get("final", True))):
            report.read += 1
            yield change
    except FormatError as error:
        raise with_location(error, capture.place) from error.__cause__


_LINTER: Final = SortedFormat(_queue_files, _queue_rows, _queue_changes)


# --- change tables ----------------------------------------------------------------------------------------------------


class _TablePart(NamedTuple):
    """A file of a change table. ``place``: of the table and of the file in it; ``table`` without its files."""

    place: tuple[int, int]
    part: Part
    table: TableFiles
    history: Sequence[DdlEntry]
    described: Described


def _tables(capture: Capture, options: Options, report: Report) -> tuple[Reading, list[TableFiles]]:
    (path,) = capture.paths
    chosen = parse_options(ReadOptions, options, f"the reader of {CHANGE_TABLES}")
    context = reading(chosen, file_tables.ddl_history(path, chosen) if chosen.ddl_history else (), report)
    found = table_files(path, context)
    if not found and not file_tables.is_written(path):
        raise nothing_found(str(path), chosen)
    file_tables.refuse_unread(found, chosen)
    return file_tables.with_metadata(context, found), found


def _table_parts(capture: Capture, options: Options) -> Sequence[_TablePart]:
    context, found = _tables(capture, options, Report())
    return [
        _TablePart(
            (number, place), part, table._replace(parts=[]), context.history, context.known(table.schema, table.table)
        )
        for number, table in enumerate(found)
        for place, part in enumerate(table.parts)
    ]


def _table_rows(piece: _TablePart, options: Options, report: Report) -> Iterator[tuple[bytes, tuple[int, ChangeRow]]]:
    context = reading(parse_options(ReadOptions, options, ""), piece.history, report)
    context = replace(context, described={full_name(piece.table.schema, piece.table.table): piece.described})
    table, number = piece.place
    for place, row in enumerate(rows_of_part(piece.part, piece.table, context)):
        sequence, is_behind = row_order(row)
        # By tables before a before image and its update, so that these stand together.
        order = struct.pack(">I?", table, is_behind) + _PLACE.pack(number, place)
        yield sequence.encode() + order, (table, row)


def _table_changes(
    capture: Capture, rows: Iterator[tuple[int, ChangeRow]], options: Options, report: Report
) -> Iterator[Change]:
    context, found = _tables(capture, options, report)
    sources = [source_table(stored_table(table, context), context) for table in found]

    def in_order() -> Iterator[Change | Waiting]:
        for number, own in groupby(rows, key=itemgetter(0)):
            source = sources[number]
            what = full_name(source.schema, source.table)
            of_table = (row for _, row in own)
            yield from changes_of_rows(of_table, source, input_complete=True, skip=report.skip, what=what)

    for change in count_events(in_order(), input_complete=True):
        report.read += 1
        yield change


_CHANGE_TABLES: Final = SortedFormat(_table_parts, _table_rows, _table_changes)


# --- event logs -------------------------------------------------------------------------------------------------------


def _log_files(capture: Capture, options: Options) -> Sequence[_File]:
    return [_File(number, path) for number, path in enumerate(files_of(capture, "eventlog"))]


def _log_rows(file: _File, options: Options, report: Report) -> Iterator[tuple[bytes, LogRow]]:
    chosen = parse_options(LogReaderOptions, options, "the eventlog reader")
    rows = read_rows(str(file.path), chosen.file_format, chosen.column_map, chosen.layout, report.skip)
    for place, row in enumerate(rows):
        yield _ordered(row.record_id) + _PLACE.pack(file.number, place), row


def _log_changes(capture: Capture, rows: Iterator[LogRow], options: Options, report: Report) -> Iterator[Change]:
    return changes_of_sorted(rows, str(capture.place), options, report)


_EVENT_LOG: Final = SortedFormat(_log_files, _log_rows, _log_changes)
