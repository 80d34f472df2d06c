"""The format ``qlik-change-table`` of the converter: change tables in a directory of files or in a database.

A source or target with ``://`` is the URL of a database, anything else a path. Options: ``change_table_options``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from itertools import chain
from pathlib import Path

from eventlog.changes.format import Format, Report
from eventlog.errors import FormatError, NotExpressible
from eventlog.files.text import spooled
from eventlog.model import Change, full_name
from eventlog.qlik.change_table_options import ReadOptions, WriteOptions, described
from eventlog.qlik.change_tables import TargetTable, rows_of
from eventlog.qlik.columns import ColumnsSeen, QlikColumn
from eventlog.qlik.stored_tables import Store, WriteRows, changes_in, finish

NAME = "qlik-change-table"


def read(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    """The changes of all change tables of a source in change_seq order, numbered within their transactions.

    Raises ConfigError, DatabaseError and the errors of this format.
    """
    if _is_url(source):
        from eventlog.qlik.database_tables import database_source

        with database_source(source) as tables:
            yield from changes_in(tables, "the database", options, report)
    else:
        from eventlog.qlik.file_tables import FileSource

        yield from changes_in(FileSource(Path(source), options), source, options, report)


def write(changes: Iterable[Change], target: str, options: WriteOptions, report: Report) -> None:
    """Changes appended to the change tables of a target, all or none, numbered behind what is stored there.

    Raises ConfigError, DatabaseError and the errors of this format.
    """
    with _open(target, options) as store:
        _write(changes, store, options, report)


def _is_url(place: str) -> bool:
    return "://" in place


def _open(target: str, options: WriteOptions) -> AbstractContextManager[Store]:
    if _is_url(target):
        from eventlog.qlik.database_tables import database_store

        return database_store(target, options)
    from eventlog.qlik.file_tables import FileStore

    return closing(FileStore(Path(target), options))


def _write(changes: Iterable[Change], store: Store, options: WriteOptions, report: Report) -> None:
    state = store.stored_state()
    tables: dict[tuple[str | None, str], tuple[TargetTable, WriteRows]] = {}
    written = 0
    for change, columns in _with_columns(changes, options):
        name = change.schema, change.table
        if name not in tables:
            try:
                tables[name] = TargetTable(change.table, columns, options), store.table(*name, columns)
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
    finish(store, options, state)
    report.written += written


def _with_columns(changes: Iterable[Change], options: WriteOptions) -> Iterator[tuple[Change, tuple[QlikColumn, ...]]]:
    """Each change with the columns of its table. From the first table on that the options do not describe, changes are
    kept in a temporary file, since a mask needs all columns before it can be written.
    """
    columns, keys = described(options.tables, options.catalog)
    rest = iter(changes)
    for change in rest:
        name = full_name(change.schema, change.table)
        if name in columns:
            yield change, columns[name]
            continue
        seen: dict[str, ColumnsSeen] = {}
        with spooled(_seen(chain((change,), rest), seen, keys)) as again:
            columns = {**{table: shown.columns() for table, shown in seen.items()}, **columns}
            yield from ((one, columns[full_name(one.schema, one.table)]) for one in again())


def _seen(
    changes: Iterable[Change], seen: dict[str, ColumnsSeen], keys: Mapping[str, tuple[str, ...]]
) -> Iterator[Change]:
    """The changes as they come, what they show of their tables' columns put into ``seen``."""
    for change in changes:
        name = full_name(change.schema, change.table)
        if name not in seen:
            seen[name] = ColumnsSeen(keys.get(name, ()))
        seen[name].see(change)
        yield change


FORMAT = Format(NAME, read, write, (ReadOptions,), (WriteOptions,))
