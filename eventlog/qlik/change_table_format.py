"""The format ``qlik-change-table`` of the converter: change tables in a directory of files or in a database.

A source or target with ``://`` is the URL of a database, anything else a path. Options: ``change_table_options``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from eventlog.changes.format import Format, Report
from eventlog.core.options import parse_options
from eventlog.errors import FormatError, NotExpressible
from eventlog.files.lines import spooled
from eventlog.model import Change
from eventlog.qlik.change_table_options import Described, ReadOptions, WriteOptions, described, full_name
from eventlog.qlik.change_tables import TargetTable, rows_of, target_table
from eventlog.qlik.columns import ColumnsSeen, QlikColumn
from eventlog.qlik.sequence import WriterState
from eventlog.qlik.stored_tables import WriteRows, changes_of, reading

NAME = "qlik-change-table"


def read(source: str, options: Mapping[str, Any], report: Report) -> Iterator[Change]:
    """The changes of all change tables of a source in change_seq order, numbered within their transactions.

    Raises ConfigError, DatabaseError and the errors of this format.
    """
    read_options = parse_options(ReadOptions, options, f"the reader of {NAME}")
    changes = _read_database if _is_url(source) else _read_files
    for change in changes(source, read_options, report):
        report.read += 1
        yield change


def _is_url(place: str) -> bool:
    return "://" in place


def _read_files(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    from eventlog.qlik import file_tables

    path = Path(source)
    history = file_tables.ddl_history(path, options) if options.ddl_history else ()
    context = reading(options, history, report)
    found = file_tables.table_files(path, context)
    if not found and not file_tables.is_written(path):
        raise nothing_found(source, options)
    file_tables.refuse_unread(found, options)
    context = file_tables.with_metadata(context, found)
    return changes_of([file_tables.stored_table(files, context) for files in found], context)


def _read_database(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    from eventlog.qlik import database_tables

    with database_tables.snapshot(source) as connection:
        history = database_tables.ddl_history(connection, options) if options.ddl_history else ()
        context = reading(options, history, report)
        tables = database_tables.stored_tables(connection, context)
        if not tables and not database_tables.is_written(connection):
            raise nothing_found("the database", options)
        yield from changes_of(tables, context)


def nothing_found(where: str, options: ReadOptions) -> FormatError:
    """The error of a source without a change table."""
    return FormatError(f"{where} has no change table that the options want: names end in {options.suffix}")


# --- writing ----------------------------------------------------------------------------------------------------------


class Target(Protocol):
    """A place that change tables are written to; ``state`` is what was numbered there so far."""

    state: WriterState

    def table(self, schema: str | None, table: str, columns: tuple[QlikColumn, ...]) -> WriteRows:
        """The function that writes the rows of a change to a table."""

    def finish(self, state: WriterState) -> None:
        """Write what is left, and the state, with the rows that it numbered."""


def write(changes: Iterable[Change], target: str, options: Mapping[str, Any], report: Report) -> None:
    """Changes appended to the change tables of a target, all or none, numbered behind what is stored there.

    Raises ConfigError, DatabaseError and the errors of this format.
    """
    write_options = parse_options(WriteOptions, options, f"the writer of {NAME}")
    with _open(target, write_options) as opened:
        _write(changes, opened, write_options, report)


def _open(target: str, options: WriteOptions) -> AbstractContextManager[Target]:
    if _is_url(target):
        from eventlog.qlik.database_target import database_target

        return database_target(target, options)
    from eventlog.qlik.file_target import file_target

    return file_target(Path(target), options)


def _write(changes: Iterable[Change], opened: Target, options: WriteOptions, report: Report) -> None:
    state, partitioning = opened.state, options.partitioning()
    tables: dict[tuple[str | None, str], tuple[TargetTable, WriteRows]] = {}
    written = 0
    for change, columns in _with_columns(changes, options):
        name = change.schema, change.table
        if name not in tables:
            table = target_table(
                *name,
                columns,
                before_images=options.before_images,
                refresh=options.refresh,
                partitioning=partitioning,
            )
            try:
                tables[name] = table, opened.table(*name, columns)
            except NotExpressible as error:  # of its name
                report.skip(error)
                continue
        table, write_rows = tables[name]
        try:
            numbered, rows = rows_of(change, table, state, report.counters)
            write_rows(rows)
        except FormatError as error:
            report.skip(error)
        else:
            state = numbered
            written += bool(rows)
    opened.finish(state)
    report.written += written


def _with_columns(changes: Iterable[Change], options: WriteOptions) -> Iterator[tuple[Change, tuple[QlikColumn, ...]]]:
    """Each change with the columns of its table. From the first table on that the options do not describe, changes are
    kept in a temporary file, since a mask needs all columns before it can be written.
    """
    known = described(options.tables, options.catalog)
    columns = {name: table.columns for name, table in known.items() if table.columns is not None}
    rest = iter(changes)
    for change in rest:
        name = full_name(change.schema, change.table)
        if name in columns:
            yield change, columns[name]
            continue
        seen: dict[str, ColumnsSeen] = {}
        with spooled(_seen(chain((change,), rest), seen, known)) as again:
            columns = {**{other: own.columns() for other, own in seen.items()}, **columns}
            yield from ((one, columns[full_name(one.schema, one.table)]) for one in again())


def _seen(changes: Iterable[Change], seen: dict[str, ColumnsSeen], known: Mapping[str, Described]) -> Iterator[Change]:
    """The changes as they come, what they show of their tables' columns put into ``seen``."""
    for change in changes:
        name = full_name(change.schema, change.table)
        if name not in seen:
            seen[name] = ColumnsSeen(known[name].key or () if name in known else ())
        seen[name].see(change)
        yield change


FORMAT = Format(NAME, read, write)
