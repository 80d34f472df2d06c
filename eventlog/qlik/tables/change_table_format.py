"""The converter's format ``qlik-change-table``: change tables in a directory of files or in a
database.

A source or target that contains ``://`` is the URL of a database; any other source or target is a
path. Change tables are read from a ``Source`` and appended to a ``Store``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

from eventlog.changes.format import Format, Report
from eventlog.changes.losses import Loss
from eventlog.core.options import GivenOptions
from eventlog.errors import FormatError, NotExpressible
from eventlog.files.text import spooled
from eventlog.model import Change, JsonObject, Names, TableName, full_name
from eventlog.qlik.columns import ColumnsSeen, QlikColumn, QlikColumns
from eventlog.qlik.masks import HISTORY_TABLE
from eventlog.qlik.sequence import CONTROL_TABLE, ControlRow, Waiting, WriterState, count_events
from eventlog.qlik.tables.change_tables import (
    ReadTable,
    TargetTable,
    changes_of_rows,
    rows_of,
)
from eventlog.qlik.tables.file_tables import is_table
from eventlog.qlik.tables.stored_tables import (
    BacklogOptions,
    Reading,
    ReadOptions,
    WriteOptions,
    WriteRows,
    described,
    ended_partition,
    reading,
)

NAME = "qlik-change-table"


class Source(Protocol):
    """A place that change tables are read from."""

    def is_written(self) -> bool:
        """Return True if a writer has used this place, even without writing a row."""

    def control_rows(self, name: str) -> Iterable[JsonObject]:
        """Return the rows of a control table, by column names in upper case; empty if the table
        does not exist.
        """

    def tables(self, reading: Reading) -> Sequence[ReadTable]:
        """Return the tables that the options select, each with its rows in change_seq order."""


def _is_url(place: str) -> bool:
    return "://" in place


def _changes_in(
    source: Source, place: str, options: ReadOptions, report: Report
) -> Iterator[Change]:
    """Yield the changes of all tables of a source in change_seq order. Changes are numbered within
    their transactions.

    ``place`` names the source in messages. Raises FormatError.
    """
    tables = source.tables(reading(options, source.control_rows(HISTORY_TABLE), report))
    if not tables and not source.is_written():
        raise nothing_found(place, options)
    is_complete = options.input_complete
    streams = [
        changes_of_rows(rows, table, input_complete=is_complete, skip=report.skip)
        for table, rows in tables
    ]
    in_order = streams[0] if len(streams) == 1 else merge(*streams, key=_position)
    return count_events(in_order, input_complete=is_complete)


def nothing_found(place: str, options: ReadOptions) -> FormatError:
    """Return the error for a source without a change table."""
    return FormatError(
        f"{place} has no change table that the options select; the names of change tables end in "
        f"{options.suffix}"
    )


def _position(change: Change | Waiting) -> str:
    # The position of a change of a change table is its change_seq.
    assert change.position is not None
    return change.position


# --- writing --------------------------------------------------------------------------------------


class Store(Protocol):
    """A place to which rows of change tables are appended, all or none. The rows take effect when
    ``save`` returns.
    """

    def stored_state(self) -> WriterState:
        """Return the saved state of the writer, or the state of the highest stored change_seq if
        none was saved.
        """

    def table(self, schema: str | None, table: str, columns: Sequence[QlikColumn]) -> WriteRows:
        """Return the function that appends rows to a table. A table that does not exist is created.

        Raises FormatError.
        """

    def flush(self) -> None:
        """Write the rows that are still in memory."""

    def control_rows(self, name: str) -> Iterable[JsonObject]:
        """Return the rows of a control table, as ``Source.control_rows`` does."""

    def partitions(self) -> Iterable[tuple[str | None, str, str]]:
        """Return schema, table and name of every partition that has rows, including new ones."""

    def append_partitions(self, rows: Sequence[ControlRow]) -> None:
        """Append rows to attrep_cdc_partitions, which is created if it does not exist."""

    def save(self, state: WriterState) -> None:
        """Save the state of the writer, together with the appended rows."""


def _open(target: str, options: WriteOptions) -> AbstractContextManager[Store]:
    if _is_url(target):
        from eventlog.qlik.tables.database_tables import database_store

        return database_store(target, options)
    from eventlog.qlik.tables.file_tables import FileStore

    return closing(FileStore(Path(target), options))


def _finish(store: Store, options: WriteOptions, state: WriterState) -> None:
    """Write the remaining rows, list each partition that has ended and is not listed yet, and save
    the state. With ``close_partitions``, all partitions are listed.
    """
    store.flush()
    if options.partitioned:
        rows = _ended_partitions(store, options, state)
        store.append_partitions(
            sorted(rows, key=lambda row: (row.partition_start_time, row[-2] or "", row[-1]))
        )
    store.save(state)


def _ended_partitions(
    store: Store, options: WriteOptions, state: WriterState
) -> Iterator[ControlRow]:
    listed = {
        (row.get("TABLE_OWNER"), row.get("TABLE_NAME"), row.get("PARTITION_NAME"))
        for row in store.control_rows(CONTROL_TABLE)
    }
    for schema, table, name in set(store.partitions()) - listed:
        row = ended_partition(schema, table, name, options, state)
        if row is not None:
            yield row


def _with_columns(
    changes: Iterable[Change], options: WriteOptions
) -> Iterator[tuple[Change, QlikColumns]]:
    """Yield each change with the columns of its table.

    As soon as a table comes that the options do not describe, changes are kept in a temporary file,
    since all columns must be known before a mask can be written.
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
    changes: Iterable[Change], seen: dict[str, ColumnsSeen], keys: Mapping[str, Names]
) -> Iterator[Change]:
    """Yield the changes, and add the columns that they show to ``seen``."""
    for change in changes:
        name = full_name(change.schema, change.table)
        if name not in seen:
            seen[name] = ColumnsSeen(keys.get(name, ()))
        seen[name].see(change)
        yield change


class ChangeTableFormat(Format):
    """Qlik change tables, in files or a database (formats/qlik.md 1)."""

    name = NAME
    title = "Qlik change tables"
    schemes = None
    reader_options = (ReadOptions,)
    writer_options = (WriteOptions,)
    publish_options = BacklogOptions
    backlog_options = WriteOptions

    is_several_files = True
    loses = frozenset({Loss.USER})

    def tables(self) -> None:
        pass

    def is_sorted_first(self, options: GivenOptions) -> bool:
        # Otherwise the last row may wait, which needs one stream.
        return bool(options.get("input_complete", True))

    def is_one_source(self, place: Path, options: GivenOptions) -> bool | None:
        entries = (entry for entry in place.iterdir() if not entry.name.startswith(("_", ".")))
        suffix = str(options.get("suffix", "__ct"))
        return True if any(is_table(entry, suffix) for entry in (place, *entries)) else None

    def read_changes(self, source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
        """Yield the changes of all change tables of a source in change_seq order. Changes are
        numbered within their transactions.

        Raises ConfigError, DatabaseError and the errors of this format.
        """
        if _is_url(source):
            from eventlog.qlik.tables.database_tables import database_source

            with database_source(source) as tables:
                yield from _changes_in(tables, "the database", options, report)
        else:
            from eventlog.qlik.tables.file_tables import FileSource

            yield from _changes_in(FileSource(Path(source), options), source, options, report)

    def write_changes(
        self, changes: Iterable[Change], target: str, options: WriteOptions, report: Report
    ) -> None:
        """Append changes to the change tables of a target, all or none. The numbers of the changes
        follow the numbers of the stored changes.

        Raises ConfigError, DatabaseError and the errors of this format.
        """
        written = 0
        with _open(target, options) as store:
            state = store.stored_state()
            tables: dict[TableName, tuple[TargetTable, WriteRows]] = {}
            for change, columns in _with_columns(changes, options):
                name = change.schema, change.table
                if name not in tables:
                    try:
                        tables[name] = (
                            TargetTable(change.table, columns, options),
                            store.table(*name, columns),
                        )
                    except NotExpressible as error:  # the name of the table cannot be written
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
            report.refuse_nothing(written)
            _finish(store, options, state)
        report.written += written


FORMAT: Final = ChangeTableFormat()
