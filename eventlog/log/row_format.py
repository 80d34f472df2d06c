"""The change format ``eventlog``: options, reader and writer (spec/change-model.md 2, 3.1, 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from eventlog.changes.catalog_option import CatalogOption, database_of, keys_of
from eventlog.changes.format import Format, Report, parse_options
from eventlog.changes.from_rows import GroupReading
from eventlog.core.catalog import Catalog, Database, build_catalog
from eventlog.core.values import ValueOptions
from eventlog.errors import ConfigError, FormatError
from eventlog.files.spool import spooled
from eventlog.log.database import LiveDatabase, is_url, live
from eventlog.log.files import file_format_of, read_rows, write_rows
from eventlog.log.inferred import inferred_database
from eventlog.log.reading import Folding, rows_to_changes
from eventlog.log.writing import RowWriting, change_to_rows, check_text
from eventlog.model import Change, LogRow

_STATUS: Final = "NSWEF"


@dataclass(frozen=True, slots=True)
class LogReaderOptions:
    """Options of the reader; those of spec/event-log.md 9 under their names there.

    ``schema``: that of the changes; default that of the catalogue. ``catalog``: path of a JSON catalogue, else the
    tables of the database are asked, else everything is text. ``database_url``: where to query back, for rows in files.
    ``status``: the letters of the rows that are read. ``sort``: the file is not in the order of record_id; it is sorted
    in memory. ``file_format``: jsonl, csv or parquet where the file's name does not say it.
    """

    schema: str | None = None
    catalog: CatalogOption = None
    database_url: str | None = None
    schema_name: str | None = None
    log_table: str = "eventlog"
    tables: Sequence[str] | None = None
    meta_identifiers: bool = True
    layout: str = "2.x"
    column_map: Mapping[str, str] | None = None
    column_sort: str = "bytes"
    fold_distance: int = 1000
    fold_span: int = 10000
    time_zone: str = "UTC"
    char_padding: str = "trim"
    special_times: str = "text"
    driver_user: str | None = None
    status: str = _STATUS
    sort: bool = False
    file_format: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.tables, str):
            raise ConfigError(f"option 'tables' of the eventlog reader is {self.tables!r}: a list of names is needed")
        unknown = [letter for letter in self.status if letter not in _STATUS]
        if unknown or not self.status:
            raise ConfigError(f"status {self.status!r} of the eventlog reader: letters of {_STATUS} are needed")


@dataclass(frozen=True, slots=True)
class LogWriterOptions:
    """Options of the writer.

    ``style`` of all tables, ``styles`` of single ones (spec/triggers.md 1). ``schema``: that of the log; default that
    of the catalogue, else of the first change that has one. ``existing_keys``: the keys that a TRUNCATE deletes, by
    table, or a function. ``first_record_id``: files only, a live table numbers its rows.
    """

    style: str = "field"
    styles: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    catalog: CatalogOption = None
    existing_keys: Any = None
    time_zone: str = "UTC"
    first_record_id: int = 1
    schema_name: str | None = None
    log_table: str = "eventlog"
    layout: str = "2.x"
    column_map: Mapping[str, str] | None = None
    column_sort: str = "bytes"
    file_format: str | None = None


def read(source: str, options: Mapping[str, Any], report: Report) -> Iterator[Change]:
    """The changes of log rows in a file, a directory of files, or the live table of a database URL."""
    chosen = parse_options(LogReaderOptions, options, "the eventlog reader")
    with ExitStack() as stack:
        url = source if is_url(source) else chosen.database_url
        database = None if url is None else stack.enter_context(live(url, chosen.schema_name))
        if database is not None and is_url(source):
            log = database.log(chosen.log_table, chosen.layout, chosen.column_map, chosen.column_sort)
            rows, ignored = database.rows(log), log.own_tables
        else:
            rows, ignored = _rows_of_files(source, chosen, report), ()
        tables = database_of(chosen.catalog)
        if tables is None and database is not None:
            tables = database.database()
        if tables is None:
            tables = inferred_database(_rows_of_files(source, chosen, Report()), chosen.schema)
        name = "the log" if is_url(source) else source  # a password may stand in a URL
        yield from _changes(rows, _catalog(tables, chosen, ignored), database, chosen, report, name)


def changes_of_sorted(
    rows: Iterable[LogRow], source: str, options: Mapping[str, Any], report: Report
) -> Iterator[Change]:
    """The changes of rows that were read from files, in the order of record_id. Raises as ``read``."""
    chosen = parse_options(LogReaderOptions, options, "the eventlog reader")
    with ExitStack() as stack:
        database = None
        if chosen.database_url is not None:
            database = stack.enter_context(live(chosen.database_url, chosen.schema_name))
        tables = database_of(chosen.catalog)
        if tables is None and database is not None:
            tables = database.database()
        if tables is None:
            again = stack.enter_context(spooled(rows))
            rows, tables = again(), inferred_database(again(), chosen.schema)
        yield from _changes(rows, _catalog(tables, chosen, ()), database, chosen, report, source)


def _changes(
    rows: Iterable[LogRow],
    catalog: Catalog,
    database: LiveDatabase | None,
    chosen: LogReaderOptions,
    report: Report,
    source: str,
) -> Iterator[Change]:
    return rows_to_changes(
        rows,
        catalog,
        GroupReading(
            chosen.schema or catalog.schema,
            chosen.time_zone,
            chosen.char_padding,
            lambda column: report.count(f"truncated {column}"),
        ),
        Folding(chosen.fold_distance, chosen.fold_span, frozenset(chosen.status), chosen.driver_user),
        None if database is None else database.query_back,
        report,
        source,
    )


def _rows_of_files(source: str, options: LogReaderOptions, report: Report) -> Iterator[LogRow]:
    rows = read_rows(source, options.file_format, options.column_map, options.layout, report.skip)
    return iter(sorted(rows, key=lambda row: row.record_id)) if options.sort else rows


def _catalog(tables: Database, options: LogReaderOptions, ignored: Sequence[str]) -> Catalog:
    return build_catalog(
        tables,
        tables=options.tables,
        values=ValueOptions("full", options.time_zone, options.char_padding, options.special_times),
        meta_identifiers=options.meta_identifiers,
        ignore=ignored,
    )


def write(changes: Iterable[Change], target: str, options: Mapping[str, Any], report: Report) -> None:
    """Changes as rows of a file, whole or not at all, or appended to the live table of a database URL in one
    transaction.
    """
    chosen = parse_options(LogWriterOptions, options, "the eventlog writer")
    tables = database_of(chosen.catalog)
    catalog = None if tables is None else build_catalog(tables)
    file_format = None if is_url(target) else file_format_of(target, chosen.file_format)
    # Neither Parquet nor a database has a place for half a surrogate pair.
    rows = _rows_of_changes(changes, catalog, chosen, report, check_text if file_format in (None, "parquet") else None)
    if file_format is None:
        with live(target, chosen.schema_name) as database:
            log = database.log(chosen.log_table, chosen.layout, chosen.column_map, chosen.column_sort)
            database.append(log, rows)
            database.connection.commit()
    else:
        numbered = (row._replace(record_id=number) for number, row in enumerate(rows, chosen.first_record_id))
        write_rows(numbered, target, file_format)


def _rows_of_changes(
    changes: Iterable[Change],
    catalog: Catalog | None,
    options: LogWriterOptions,
    report: Report,
    check: Callable[[LogRow], None] | None,
) -> Iterator[LogRow]:
    schema = options.schema or (None if catalog is None else catalog.schema)
    keys = keys_of(options.existing_keys, catalog)
    writing = RowWriting(options.style, options.styles, schema, options.time_zone, keys)
    now = datetime.now(UTC)
    for change in changes:
        if writing.schema is None and change.schema is not None:
            writing = replace(writing, schema=change.schema)
        try:
            rows = change_to_rows(change, catalog, writing, now)
            if check is not None:
                for row in rows:
                    check(row)
        except FormatError as error:
            report.skip(error)
            continue
        if rows:
            report.written += 1
        else:
            report.count("changes_nothing")
        yield from rows


FORMAT: Final = Format("eventlog", read, write)
