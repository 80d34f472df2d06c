"""The change format ``eventlog``: options, reader and writer (spec/change-model.md 2, 3.1, 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from eventlog.changes.catalog_file import CATALOG, CatalogOption, catalog_of, database_of
from eventlog.changes.format import EXISTING_KEYS, Format, Report, keys_of, written
from eventlog.changes.from_rows import GroupReading
from eventlog.core import parameters
from eventlog.core.catalog import Catalog, Database, build_catalog
from eventlog.core.options import (
    FLAG,
    STRING,
    TEXT_OBJECT,
    TEXTS,
    CheckedOptions,
    Kind,
    Option,
    integer,
    option,
    parse_options,
    shared,
)
from eventlog.core.values import ValueOptions
from eventlog.files.lines import spooled
from eventlog.log.database import LiveDatabase, is_url, live
from eventlog.log.files import file_format_of, read_rows, write_rows
from eventlog.log.reading import Folding, inferred_database, rows_to_changes
from eventlog.log.writing import RowWriting, change_to_rows, check_text
from eventlog.model import Change, LogRow

_STATUS: Final = "NSWEF"


def _parse_status(value: Any) -> str:
    status: str = STRING.parse(value)
    if not status or status.strip(_STATUS):
        raise ValueError
    return status


_SCHEMA_NAME: Final = Option(None, STRING, "schema of the live log and its classes")
_COLUMN_MAP: Final = Option(None, TEXT_OBJECT, "real names of the ten standard columns")
_FILE_FORMAT: Final = Option(None, STRING, "form of the file, if its name does not say it: jsonl, csv or parquet")


@dataclass(frozen=True, slots=True)
class LogReaderOptions(CheckedOptions):
    """Options of the reader; those of spec/event-log.md 9 under their names there.

    The tables are those of ``catalog``, else of the database, else everything is text.
    """

    schema: str | None = option(None, STRING, "schema of the changes; default: that of the catalogue")
    catalog: CatalogOption = shared(CATALOG)
    database_url: str | None = option(None, STRING, "URL of the database to read rows back from, for a log in files")
    schema_name: str | None = shared(_SCHEMA_NAME)
    log_table: str = shared(parameters.LOG_TABLE)
    tables: Sequence[str] | None = option(None, TEXTS, "parent tables and views that are classes; default: all")
    meta_identifiers: bool = shared(parameters.META_IDENTIFIERS)
    layout: str = shared(parameters.LAYOUT)
    column_map: Mapping[str, str] | None = shared(_COLUMN_MAP)
    column_sort: str = shared(parameters.COLUMN_SORT)
    fold_distance: int = shared(parameters.FOLD_DISTANCE)
    fold_span: int = shared(parameters.FOLD_SPAN)
    time_zone: str = shared(parameters.TIME_ZONE)
    char_padding: str = shared(parameters.CHAR_PADDING)
    special_times: str = shared(parameters.SPECIAL_TIMES)
    driver_user: str | None = option(None, STRING, "the publisher's database user, whose rows are left out")
    status: str = option(_STATUS, Kind(_parse_status, f"letters of {_STATUS}"), "letters of the rows that are read")
    sort: bool = option(False, FLAG, "the file is not in the order of record_id: sort it in memory")
    file_format: str | None = shared(_FILE_FORMAT)


@dataclass(frozen=True, slots=True)
class LogWriterOptions(CheckedOptions):
    """Options of the writer (spec/triggers.md 1)."""

    style: str = option("field", STRING, "what is logged of a change, as the style of a watch")
    styles: Mapping[str, str] = option({}, TEXT_OBJECT, "the style of single tables, by table")
    schema: str | None = option(
        None, STRING, "schema of the log; default: that of the catalogue, else of the first change that has one"
    )
    catalog: CatalogOption = shared(CATALOG)
    existing_keys: Any = shared(EXISTING_KEYS)
    time_zone: str = shared(parameters.TIME_ZONE)
    first_record_id: int = option(1, integer(), "record_id of the first row of a file; a live table numbers its rows")
    schema_name: str | None = shared(_SCHEMA_NAME)
    log_table: str = shared(parameters.LOG_TABLE)
    layout: str = shared(parameters.LAYOUT)
    column_map: Mapping[str, str] | None = shared(_COLUMN_MAP)
    column_sort: str = shared(parameters.COLUMN_SORT)
    file_format: str | None = shared(_FILE_FORMAT)


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
    catalog = catalog_of(chosen.catalog)
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

    def rows_of(change: Change, _: str) -> list[LogRow]:
        nonlocal writing
        if writing.schema is None and change.schema is not None:
            writing = replace(writing, schema=change.schema)
        rows = change_to_rows(change, catalog, writing, now)
        if check is not None:
            for row in rows:
                check(row)
        return rows

    return written(changes, rows_of, report)


FORMAT: Final = Format("eventlog", read, write, (LogReaderOptions,), (LogWriterOptions,))
