"""The change format ``eventlog``: reader and writer (spec/change-model.md 2, 3.1, 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from eventlog.changes.format import Format, Report, counted, keys_of, written
from eventlog.changes.json_form import catalog_of, database_of
from eventlog.core.catalog import Catalog, Database, build_catalog
from eventlog.core.options import parse_options
from eventlog.core.values import ValueOptions
from eventlog.files.lines import spooled
from eventlog.log.database import LiveDatabase, is_url, live
from eventlog.log.files import file_format_of, read_rows, write_rows
from eventlog.log.options import LogReaderOptions, LogWriterOptions
from eventlog.log.reading import inferred_database, rows_to_changes
from eventlog.log.writing import change_to_rows, check_text
from eventlog.model import Change, LogRow


def read(source: str, options: LogReaderOptions, report: Report) -> Iterator[Change]:
    """The changes of log rows in a file, a directory of files, or the live table of a database URL."""
    with ExitStack() as stack:
        url = source if is_url(source) else options.database_url
        database = None if url is None else stack.enter_context(live(url, options.schema_name))
        if database is not None and is_url(source):
            log = database.log(options)
            rows, ignored = database.rows(log), log.own_tables
        else:
            rows, ignored = _rows_of_files(source, options, report), ()
        tables = database_of(options.catalog)
        if tables is None and database is not None:
            tables = database.database()
        if tables is None:
            tables = inferred_database(_rows_of_files(source, options, Report()), options.schema)
        name = "the log" if is_url(source) else source  # a password may stand in a URL
        yield from _changes(rows, tables, ignored, database, options, report, name)


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
        yield from counted(_changes(rows, tables, (), database, chosen, report, source), report)


def _changes(
    rows: Iterable[LogRow],
    tables: Database,
    ignored: Sequence[str],
    database: LiveDatabase | None,
    options: LogReaderOptions,
    report: Report,
    source: str,
) -> Iterator[Change]:
    catalog = build_catalog(
        tables,
        tables=options.tables,
        values=ValueOptions("full", options.time_zone, options.char_padding, options.special_times),
        meta_identifiers=options.meta_identifiers,
        ignore=ignored,
    )
    query_back = None if database is None else database.query_back
    return rows_to_changes(rows, catalog, options, query_back, report, source)


def _rows_of_files(source: str, options: LogReaderOptions, report: Report) -> Iterator[LogRow]:
    rows = read_rows(source, options, report.skip)
    return iter(sorted(rows, key=lambda row: row.record_id)) if options.sort else rows


def write(changes: Iterable[Change], target: str, options: LogWriterOptions, report: Report) -> None:
    """Changes as rows of a file, whole or not at all, or appended to the live table of a database URL in one
    transaction.
    """
    catalog = catalog_of(options.catalog)
    options = replace(
        options,
        schema=options.schema or (None if catalog is None else catalog.schema),
        existing_keys=keys_of(options.existing_keys, catalog),
    )
    file_format = None if is_url(target) else file_format_of(target, options.file_format)
    # Neither Parquet nor a database has a place for half a surrogate pair.
    rows = _rows_of_changes(changes, catalog, options, report, check_text if file_format in (None, "parquet") else None)
    if file_format is None:
        with live(target, options.schema_name) as database:
            log = database.log(options)
            database.append(log, rows)
            database.connection.commit()
    else:
        numbered = (row._replace(record_id=number) for number, row in enumerate(rows, options.first_record_id))
        write_rows(numbered, target, file_format)


def _rows_of_changes(
    changes: Iterable[Change],
    catalog: Catalog | None,
    options: LogWriterOptions,
    report: Report,
    check: Callable[[LogRow], None] | None,
) -> Iterator[LogRow]:
    now = datetime.now(UTC)

    def rows_of(change: Change, _: str) -> list[LogRow]:
        nonlocal options
        if options.schema is None and change.schema is not None:
            options = replace(options, schema=change.schema)
        rows = change_to_rows(change, catalog, options, now)
        if check is not None:
            for row in rows:
                check(row)
        return rows

    return written(changes, rows_of, report)


FORMAT: Final = Format("eventlog", read, write, (LogReaderOptions,), (LogWriterOptions,))
