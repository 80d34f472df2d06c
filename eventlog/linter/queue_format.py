"""What the converter knows of the Linter queue: files, directories and databases (spec/linter-queue.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from eventlog.changes.catalog_option import CatalogOption
from eventlog.changes.format import Format, Report, parse_options
from eventlog.errors import FormatError, with_location
from eventlog.linter import files, tables
from eventlog.linter.attributes import attrs_of_option
from eventlog.linter.fields import DATA_SIZE
from eventlog.linter.log import first_address, next_address
from eventlog.linter.poller import QueuePoller
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.linter.writer import QueueWriter, WriterOptions
from eventlog.model import Change
from eventlog.sql.connect import connect_any


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a source beside those of the reader.

    ``attrs``: the file of DISPATCH_ATTRS if it does not lie beside the queue; ``dispatch_attrs``: the tables
    themselves, in the place of a file or table; ``queue_table``, ``attrs_table``, ``schema``, ``batch_rows`` of a
    database. ``catalog`` may be given, since a conversion gives it to both sides: a queue describes its tables itself.
    """

    attrs: str | None = None
    dispatch_attrs: Mapping[Any, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    queue_table: str = tables.QUEUE
    attrs_table: str = tables.ATTRS
    schema: str | None = None
    batch_rows: int = 10_000
    catalog: CatalogOption = None


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Options of a target beside those of the writer.

    ``files``: csv, jsonl or parquet, what is written to a directory; ``attrs``: the file of DISPATCH_ATTRS if it shall
    not lie beside the queue; ``queue_table``, ``attrs_table``, ``schema`` of a database, made if they are not there.
    """

    files: str = "csv"
    attrs: str | None = None
    queue_table: str = tables.QUEUE
    attrs_table: str = tables.ATTRS
    schema: str | None = None


def read(source: str, options: Mapping[str, Any], report: Report) -> Iterator[Change]:
    """The changes of an export (a file or a directory) or of a queue in a database (a URL of SQLAlchemy), all that is
    there now. An export is sorted in memory; ``export_reader`` takes one in order.

    Raises ConfigError, FormatError, DatabaseError.
    """
    place, rest = _split(SourceOptions, options, "the reader of linter")
    reader_options = parse_options(ReaderOptions, {"final": True, **rest}, "the reader of linter")
    for change in _changes(source, place, reader_options, report):
        report.read += 1
        yield change


def _changes(source: str, place: SourceOptions, options: ReaderOptions, report: Report) -> Iterator[Change]:
    if "://" in source:
        poller = QueuePoller(
            connect_any(source),
            options,
            report,
            queue_table=place.queue_table,
            attrs_table=place.attrs_table,
            schema=place.schema,
            batch_rows=place.batch_rows,
            attrs=attrs_of_option(place.dispatch_attrs) or None,
        )
        return poller.drain()
    queue, beside = files.export_files(Path(source))
    reader = _export_reader(beside, place, options, report)
    return _of_export(source, reader.read(files.read_queue(queue)))


def _of_export(source: str, changes: Iterator[Change]) -> Iterator[Change]:
    """The changes, errors with the name of the export; the rows are read already."""
    try:
        yield from changes
    except FormatError as error:
        raise with_location(error, source) from error.__cause__


def export_reader(source: str, options: Mapping[str, Any], report: Report) -> QueueReader:
    """The reader of an export, for rows that are in order already: ``QueueReader.changes``.

    Raises ConfigError, FormatError.
    """
    place, rest = _split(SourceOptions, options, "the reader of linter")
    reader_options = parse_options(ReaderOptions, {"final": True, **rest}, "the reader of linter")
    return _export_reader(files.export_files(Path(source))[1], place, reader_options, report)


def _export_reader(beside: Path | None, place: SourceOptions, options: ReaderOptions, report: Report) -> QueueReader:
    given = attrs_of_option(place.dispatch_attrs)
    described = beside if place.attrs is None else Path(place.attrs)
    if not given and described is not None:
        given = files.read_attrs(described)
    return QueueReader(given, options, report)


def write(changes: Iterable[Change], target: str, options: Mapping[str, Any], report: Report) -> None:
    """Write changes to a file (.csv, .jsonl, .parquet), to a directory, or behind what the queue of a database holds;
    DISPATCH_ATTRS beside. Whole or not at all.

    Raises ConfigError, FormatError, DatabaseError.
    """
    place, rest = _split(TargetOptions, options, "the writer of linter")
    writer_options = parse_options(WriterOptions, rest, "the writer of linter")
    if "://" in target:
        _write_database(changes, target, place, writer_options, report)
        return
    path = Path(target)
    if path.is_dir() or not path.suffix:
        path = path / f"{files.QUEUE_STEM}.{place.files}"
    attrs = path.with_name(f"{files.ATTRS_STEM}{path.suffix}") if place.attrs is None else Path(place.attrs)
    for one in (path, attrs):
        files.check_suffix(one.suffix.lower())
    writer = QueueWriter(writer_options, report)
    files.write_export(path, attrs, writer.rows(changes), writer.attrs.values())


def _write_database(
    changes: Iterable[Change], url: str, place: TargetOptions, options: WriterOptions, report: Report
) -> None:
    with tables.database_errors(), connect_any(url).begin() as connection:
        queue, attrs = tables.create(connection, queue=place.queue_table, attrs=place.attrs_table, schema=place.schema)
        last = tables.last_address(connection, queue)
        writer = QueueWriter(options, report, first_address() if last is None else next_address(last, DATA_SIZE))
        tables.insert_attrs(connection, attrs, list(writer.attrs.values()))
        tables.insert_rows(connection, queue, writer.rows(changes))


def _split(kind: type[Any], options: Mapping[str, Any], what: str) -> tuple[Any, dict[str, Any]]:
    """The options of a place, and the others."""
    own = {one.name for one in fields(kind)}
    place = parse_options(kind, {name: value for name, value in options.items() if name in own}, what)
    return place, {name: value for name, value in options.items() if name not in own}


FORMAT = Format("linter", read, write)
