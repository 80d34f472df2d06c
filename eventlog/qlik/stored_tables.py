"""Change tables where they are stored: what reading and writing them is, whatever the place (spec/qlik.md 3, 4, 7).

There are two places, ``file_tables`` and ``database_tables``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from pathlib import Path
from typing import Any, Literal, Protocol

from eventlog.changes.format import Report
from eventlog.errors import FormatError, with_location
from eventlog.files.tabular import format_of
from eventlog.model import Change, full_name
from eventlog.qlik.change_rows import (
    ChangeRow,
    TableLayout,
    new_layout,
    read_layout,
    row_reader,
    row_writer,
)
from eventlog.qlik.change_table_options import ChangeTableOptions, ReadOptions, WriteOptions, described
from eventlog.qlik.change_tables import SourceTable, changes_of_rows, key_from_deletes
from eventlog.qlik.columns import QlikColumn, lobs_of
from eventlog.qlik.masks import HISTORY_TABLE, DdlEntry, MaskLayout, entry_of, layouts_by_history
from eventlog.qlik.sequence import (
    CONTROL_TABLE,
    ControlRow,
    Waiting,
    WriterState,
    count_events,
    has_ended,
    parse_partition_name,
)
from eventlog.qlik.values import plain_reader, plain_value, typed_reader


@dataclass(frozen=True, slots=True)
class Reading:
    """What all tables of one source are read with: the options, the columns and keys that are known of tables by their
    full names, the entries of attrep_ddl_history, and the report.
    """

    options: ReadOptions
    columns: Mapping[str, tuple[QlikColumn, ...]]
    keys: Mapping[str, tuple[str, ...]]
    history: Sequence[DdlEntry]
    report: Report

    def uncounted(self) -> Reading:
        """The same for a look ahead: what is odd is counted when the rows are read."""
        return replace(self, report=Report())

    def names(self, schema: str | None) -> str | None:
        """The schema that changes bear: that of the options, else that of the table."""
        return schema if self.options.schema is None else self.options.schema

    def wants(self, schema: str | None, table: str) -> bool:
        """Whether a table is to be read."""
        return not self.options.tables or full_name(schema, table) in self.options.tables


def reading(options: ReadOptions, history: Iterable[Mapping[str, Any]], report: Report) -> Reading:
    """What the tables of one source are read with. ``history``: the rows of attrep_ddl_history, which are looked at if
    the options say so. Raises ConfigError, FormatError.
    """
    entries = tuple(map(entry_of, history)) if options.ddl_history else ()
    return Reading(options, *described(options.tables, options.catalog), entries, report)


def layout_of(columns: Sequence[str], options: ChangeTableOptions, name: str) -> TableLayout:
    """The layout of a change table that is there. Raises MissingHeader, FormatError."""
    return read_layout(
        columns,
        header_prefix=options.header_prefix,
        mask_offset=options.mask_offset,
        what=f"change table of {name}",
    )


def source_table(schema: str | None, table: str, reading: Reading, rows: Iterable[ChangeRow]) -> SourceTable:
    """What turns the rows of a table into changes. ``rows``: where its key is looked for if it is not known."""
    name, options = full_name(schema, table), reading.options
    return SourceTable(
        schema,
        table,
        reading.keys.get(name) or key_from_deletes(rows),
        lobs_of(reading.columns.get(name, ())),
        options.absent_nulls,
        options.task,
    )


ReadRows = Callable[[Iterable[Sequence[Any] | FormatError]], Iterator[ChangeRow]]
"""Stored values of rows -> the rows, without those that cannot be read and may be passed over."""


def stored_row_reader(
    columns: Sequence[str], schema: str | None, table: str, reading: Reading, file: Path | None = None
) -> ReadRows:
    """The function that reads rows of a stored table with these columns, data typed as the options say.

    ``file``: that of the rows, None in a database. A row that cannot be read goes to ``Report.skip``. Raises
    MissingHeader, FormatError.
    """
    name, options, skip = full_name(schema, table), reading.options, reading.report.skip
    layout = layout_of(columns, options, name)
    read = row_reader(
        layout,
        byteorder=options.byteorder,
        counters=reading.report.counters,
        masks_at=_masks_at(layout, schema, table, reading),
        what=name,
    )
    plain = plain_value if file is not None and format_of(file) == "json" else plain_reader
    typed = typed_reader(layout.data, reading.columns.get(name, ()), plain)

    def read_rows(rows: Iterable[Sequence[Any] | FormatError]) -> Iterator[ChangeRow]:
        for number, values in enumerate(rows, 1):
            if isinstance(values, FormatError):
                skip(values)
                continue
            try:
                row = read(typed(values))
            except FormatError as error:
                skip(with_location(error, f"change table of {name}" if file is None else f"{file}: record {number}"))
            else:
                yield row

    return read_rows


def _masks_at(
    layout: TableLayout, schema: str | None, table: str, reading: Reading
) -> Callable[[str], MaskLayout] | None:
    """The mask layout by change_seq, None if attrep_ddl_history says nothing of the table."""
    is_renamed = schema is None or reading.options.schema is not None  # then it is not the owner that the entries name
    entries = [
        entry
        for entry in reading.history
        if entry.table_name == table and (is_renamed or entry.table_owner in (None, schema))
    ]
    return layouts_by_history(layout.masks, entries) if entries else None


class Source(Protocol):
    """A place that change tables are read from."""

    def is_written(self) -> bool:
        """Whether a writer has been here, though there may have been nothing to write."""

    def control_rows(self, name: str) -> Iterable[Mapping[str, Any]]:
        """The rows of a control table, by column names in upper case; none without the table."""

    def tables(self, reading: Reading) -> Sequence[tuple[SourceTable, Iterator[ChangeRow]]]:
        """The tables that the options want, each with its rows in change_seq order."""


def changes_in(source: Source, place: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    """The changes of all tables of a source in change_seq order, numbered within their transactions.

    ``place`` names the source, for messages. Raises FormatError.
    """
    tables = source.tables(reading(options, source.control_rows(HISTORY_TABLE), report))
    if not tables and not source.is_written():
        raise nothing_found(place, options)
    is_complete = options.input_complete
    streams = [changes_of_rows(rows, table, input_complete=is_complete, skip=report.skip) for table, rows in tables]
    in_order = streams[0] if len(streams) == 1 else merge(*streams, key=_position)
    return count_events(in_order, input_complete=is_complete)


def nothing_found(place: str, options: ReadOptions) -> FormatError:
    """The error of a source without a change table."""
    return FormatError(f"{place} has no change table that the options want: names end in {options.suffix}")


def _position(change: Change | Waiting) -> str:
    assert change.position is not None  # that of a change table is its change_seq
    return change.position


# --- writing ----------------------------------------------------------------------------------------------------------


WriteRows = Callable[[Sequence[ChangeRow]], None]
"""Writes the rows of one change: all of them or, if one cannot be written, none. Raises ValueRange, NotExpressible."""


class Store(Protocol):
    """A place that change tables are appended to, all or nothing: what is appended counts once ``save`` returns."""

    def stored_state(self) -> WriterState:
        """The state of the writer as it was saved, else that of the highest change_seq stored."""

    def table(self, schema: str | None, table: str, columns: Sequence[QlikColumn]) -> WriteRows:
        """The function that appends to a table, which is made if it is not there.

        Raises MaskTooWide, MissingHeader, FormatError.
        """

    def flush(self) -> None:
        """Write what is still in memory."""

    def control_rows(self, name: str) -> Iterable[Mapping[str, Any]]:
        """As ``Source.control_rows``."""

    def partitions(self) -> Iterable[tuple[str | None, str, str]]:
        """Schema, table and name of every partition that has rows, new ones among them."""

    def append_partitions(self, rows: Sequence[ControlRow]) -> None:
        """Append rows to attrep_cdc_partitions, which is created if it is not there."""

    def save(self, state: WriterState) -> None:
        """Save the state together with the rows that it numbered."""


def layout_of_new(schema: str | None, table: str, columns: Sequence[QlikColumn], options: WriteOptions) -> TableLayout:
    """The layout of a table that is not there. Raises MaskTooWide, FormatError."""
    return new_layout(
        [column.name for column in columns],
        headers=options.headers,
        header_prefix=options.header_prefix,
        mask_offset=options.mask_offset,
        partitioned=options.partitioned,
        what=full_name(schema, table),
    )


def value_writer(
    layout: TableLayout,
    convert: Callable[[Sequence[Any]], list[Any]],
    mask_form: Literal["binary", "text"],
    options: WriteOptions,
    name: str,
) -> Callable[[ChangeRow], list[Any]]:
    """The function that gives what a place holds for a row: its values as ``convert`` makes them of ours. It raises
    ValueRange, NotExpressible.
    """
    values = row_writer(
        layout, mask_form=mask_form, byteorder=options.byteorder, empty_mask=options.empty_mask, what=name
    )
    return lambda row: convert(values(row))


def finish(store: Store, options: WriteOptions, state: WriterState) -> None:
    """Write what is left, the partitions that have ended (with ``close_partitions`` all) if they are not listed, and
    the state.
    """
    store.flush()
    if options.partitioned:
        rows = _ended_partitions(store, options, state)
        store.append_partitions(sorted(rows, key=lambda row: (row.partition_start_time, row[-2] or "", row[-1])))
    store.save(state)


def _ended_partitions(store: Store, options: WriteOptions, state: WriterState) -> Iterator[ControlRow]:
    listed = {
        (row.get("TABLE_OWNER"), row.get("TABLE_NAME"), row.get("PARTITION_NAME"))
        for row in store.control_rows(CONTROL_TABLE)
    }
    for schema, table, name in set(store.partitions()) - listed:
        row = ended_partition(schema, table, name, options, state)
        if row is not None:
            yield row


def ended_partition(
    schema: str | None, table: str, name: str, options: WriteOptions, state: WriterState
) -> ControlRow | None:
    """The row of a partition that has ended, or is listed by ``close_partitions`` though it has not; None of another.

    Raises FormatError for a name that is none of a partition.
    """
    partition = parse_partition_name(name)
    if not options.close_partitions and not has_ended(partition, state):
        return None
    return ControlRow(options.server, options.task, name, *partition, schema, table)
