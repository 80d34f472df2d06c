"""Change tables that are stored somewhere, and the changes of several of them in one order (spec/qlik.md 4, 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from pathlib import Path
from typing import Any, Final

from eventlog.changes.format import Report
from eventlog.errors import FormatError, with_location
from eventlog.files.tabular import format_of
from eventlog.model import Change
from eventlog.qlik.change_rows import ChangeRow, RowReader, masks_by_history, read_layout, row_reader
from eventlog.qlik.change_table_options import Described, ReadOptions, described, full_name
from eventlog.qlik.change_tables import SourceTable, changes_of_rows
from eventlog.qlik.columns import lobs_of
from eventlog.qlik.control_tables import DdlEntry, column_history
from eventlog.qlik.sequence import Waiting, count_events
from eventlog.qlik.stored_values import Convert, plain_reader, typed_reader
from eventlog.qlik.values import plain_value

_NOTHING: Final = Described(None, None)


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A change table of a source: whose changes it holds, its rows in change_seq order, and the key columns that the
    mask of its first DELETE tells (None without one).
    """

    schema: str | None
    table: str
    rows: Callable[[], Iterator[ChangeRow]]
    key_from_deletes: Callable[[], tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class Reading:
    """What all tables of one source are read with: the options, what they say of tables, the entries of
    attrep_ddl_history, and the report.
    """

    options: ReadOptions
    described: Mapping[str, Described]
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

    def known(self, schema: str | None, table: str) -> Described:
        """What the options say of a table."""
        return self.described.get(full_name(schema, table), _NOTHING)


def reading(options: ReadOptions, history: Iterable[DdlEntry], report: Report) -> Reading:
    """What the tables of one source are read with. Raises ConfigError."""
    return Reading(options, described(options.tables, options.catalog), tuple(history), report)


WriteRows = Callable[[Sequence[ChangeRow]], None]
"""Writes the rows of one change: all of them or, if one cannot be written, none."""

ReadRows = Callable[[Iterable[Sequence[Any] | FormatError]], Iterator[ChangeRow]]
"""Stored values of rows -> the rows, without those that cannot be read and may be passed over."""


def stored_row_reader(
    columns: Sequence[str], schema: str | None, table: str, reading: Reading, file: Path | None = None
) -> ReadRows:
    """The function that reads rows of a stored table with these columns, data typed as the options say.

    ``file``: that of the rows, None in a database. A row that cannot be read goes to ``Report.skip``. Raises
    MissingHeader, FormatError.
    """
    plain = plain_value if file is not None and format_of(file) == "json" else plain_reader
    read, skip = _row_reader(columns, schema, table, reading, plain), reading.report.skip
    where = f"change table of {full_name(schema, table)}"

    def read_rows(rows: Iterable[Sequence[Any] | FormatError]) -> Iterator[ChangeRow]:
        for number, values in enumerate(rows, 1):
            if isinstance(values, FormatError):
                skip(values)
                continue
            try:
                row = read(values)
            except FormatError as error:
                skip(with_location(error, where if file is None else f"{file}: record {number}"))
            else:
                yield row

    return read_rows


def _row_reader(columns: Sequence[str], schema: str | None, table: str, reading: Reading, plain: Convert) -> RowReader:
    name, options = full_name(schema, table), reading.options
    layout = read_layout(
        columns, header_prefix=options.header_prefix, mask_offset=options.mask_offset, what=f"change table of {name}"
    )
    is_renamed = schema is None or options.schema is not None  # then it is not the owner that the entries name
    entries = [
        entry
        for entry in reading.history
        if entry.table_name == table and (is_renamed or entry.table_owner in (None, schema))
    ]
    read = row_reader(
        layout,
        byteorder=options.byteorder,
        counters=reading.report.counters,
        masks_at=masks_by_history(layout, column_history(layout.names, entries)) if entries else None,
        what=name,
    )
    typed = typed_reader(layout.data, reading.known(schema, table).columns, plain)
    return lambda values: read(typed(values))


def changes_of(tables: Iterable[StoredTable], reading: Reading) -> Iterator[Change]:
    """The changes of all tables in change_seq order, numbered within their transactions."""
    streams = [_changes(table, reading) for table in tables]
    in_order = streams[0] if len(streams) == 1 else merge(*streams, key=_position)
    return count_events(in_order, input_complete=reading.options.input_complete)


def _position(change: Change | Waiting) -> str:
    assert change.position is not None  # that of a change table is its change_seq
    return change.position


def source_table(stored: StoredTable, reading: Reading) -> SourceTable:
    """What turns the rows of a stored table into changes. Its key may be looked for in all of them."""
    known, options = reading.known(stored.schema, stored.table), reading.options
    return SourceTable(
        stored.schema,
        stored.table,
        known.key or stored.key_from_deletes(),
        lobs_of(known.columns or ()),
        options.absent_nulls,
        options.task,
    )


def _changes(stored: StoredTable, reading: Reading) -> Iterator[Change | Waiting]:
    yield from changes_of_rows(
        stored.rows(),
        source_table(stored, reading),
        input_complete=reading.options.input_complete,
        skip=reading.report.skip,
        what=full_name(stored.schema, stored.table),
    )
