"""The storage of change tables: the options of readers and writers, under the names of
formats/qlik.md 1 to 4, and the functions for columns and rows that all places of change tables
share (formats/qlik.md 3, 4, 7).

There are two places, ``file_tables`` and ``database_tables``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from eventlog.changes.format import Report
from eventlog.changes.json_form import CATALOG, CatalogOption, database_of
from eventlog.core.options import (
    FLAG,
    OBJECT,
    STRING,
    TEXTS,
    CheckedOptions,
    Option,
    OptionKind,
    choice,
    integer,
    option,
    shared,
)
from eventlog.errors import ConfigError, FormatError, with_location
from eventlog.files.tabular import format_of
from eventlog.model import JsonObject, Names, full_name
from eventlog.qlik.columns import QlikColumn, QlikColumns, columns_from_json, columns_of, key_of
from eventlog.qlik.masks import (
    DdlEntry,
    MaskForm,
    MaskLayout,
    check_capacity,
    entry_of,
    layouts_by_history,
)
from eventlog.qlik.sequence import (
    ControlRow,
    WriterState,
    has_ended,
    parse_partition_name,
    partition_of,
)
from eventlog.qlik.tables.change_rows import (
    DEFAULT_HEADERS,
    PARTITION_NAME,
    ChangeRow,
    StoredValues,
    TableLayout,
    header_name,
    row_reader,
    row_writer,
    table_layout,
)
from eventlog.qlik.values import ConvertRow, plain_reader, plain_value, typed_reader

# --- options --------------------------------------------------------------------------------------

FILE_FORMATS: Final = ("csv", "json", "parquet")

_TABLE_MEMBERS: Final = {"columns", "key"}
_WIDEST_OFFSET: Final = 1023


def _parse_suffix(value: Any) -> str:
    suffix: str = STRING.parse(value)
    if not suffix or not suffix.isprintable() or "/" in suffix:
        raise ValueError
    return suffix


def _parse_prefix(value: Any) -> str:
    prefix: str = STRING.parse(value)
    if not prefix.isprintable():
        raise ValueError
    return prefix


def _parse_headers(value: Any) -> Names:
    headers: Names = TEXTS.parse(value)
    for header in headers:
        if header == PARTITION_NAME:
            raise ConfigError("partition_name is written by the option partitioned, not by headers")
        if header not in DEFAULT_HEADERS or headers.count(header) > 1:
            raise ConfigError(
                f"header {header!r} is unknown or listed twice; known headers: "
                f"{', '.join(DEFAULT_HEADERS)}"
            )
    return headers


def _parse_base(value: Any) -> str:
    text: str = STRING.parse(value)
    base = datetime.fromisoformat(text)
    if base.tzinfo is not None or base.microsecond:
        raise ValueError
    return text


def _parse_tables(value: Any) -> Mapping[str, JsonObject]:
    tables: Mapping[str, JsonObject] = OBJECT.parse(value)
    described(tables)
    return tables


@dataclass(frozen=True, slots=True)
class ChangeTableOptions(CheckedOptions):
    """The options that reader and writer share."""

    tables: Mapping[str, JsonObject] = option(
        {}, OptionKind(_parse_tables, "an object: <schema>.<table> -> {columns, key}"),
        "columns and key of a table, by <schema>.<table>; columns and key are optional",
    )  # fmt: skip
    catalog: CatalogOption = shared(CATALOG)
    suffix: str = option(
        "__ct",
        OptionKind(_parse_suffix, "a text such as __ct"),
        "ending of the names of change tables",
    )
    header_prefix: str = option(
        "header__", OptionKind(_parse_prefix, "a text"), "beginning of the names of header columns"
    )
    mask_offset: int | None = option(
        None, integer(0, _WIDEST_OFFSET), "number of mask bits before those of the data columns"
    )


@dataclass(frozen=True, slots=True)
class ReadOptions(ChangeTableOptions):
    """Options of the reader. Raises ConfigError.

    ``tables`` names the tables to read. Without this option all tables are read, values are read as
    they are stored, and the masks of deletes show the key. If ``input_complete`` is False, the last
    transaction may be incomplete, and a before image at the end waits for its update.
    """

    schema: str | None = option(
        None, STRING, "schema of all changes, instead of that of each table"
    )
    byteorder: Literal["little", "big", "auto"] = option(
        "little", choice("little", "big", "auto"), "byte order of masks"
    )
    absent_nulls: Literal["null", "absent"] = option(
        "absent",
        choice("null", "absent"),
        "meaning of NULL in a column whose mask bit is clear: the value NULL, or no known value",
    )
    partitioned: bool = option(
        False, FLAG, "read only the partitions that attrep_cdc_partitions lists"
    )
    ddl_history: bool = option(
        False, FLAG, "take the column lists of masks from attrep_ddl_history"
    )
    input_complete: bool = option(
        True, FLAG, "the input has no further rows, so the last transaction is complete"
    )
    task: str | None = option(None, STRING, "name of the task, as additional data of each change")
    file_format: str | None = option(None, choice(*FILE_FORMATS), "read only files of this format")


_SERVER: Final = Option("eventlog", STRING, "name of the server in rows and state")
_TASK: Final = Option("eventlog", STRING, "name of the task in rows and state")


@dataclass(frozen=True, slots=True)
class BacklogOptions(CheckedOptions):
    """The options in the configuration for the change tables of a backlog."""

    server: str = shared(_SERVER)
    task: str = shared(_TASK)


@dataclass(frozen=True, slots=True)
class WriteOptions(ChangeTableOptions):
    """Options of the writer. Raises ConfigError.

    A table that neither ``tables`` nor ``catalog`` describes has the columns that its changes show;
    to find these, all changes are kept in a file.
    """

    headers: Sequence[str] = option(
        DEFAULT_HEADERS,
        OptionKind(_parse_headers, f"a list of {', '.join(DEFAULT_HEADERS)}"),
        "header columns to write",
    )
    before_images: bool = option(True, FLAG, "write before images, as rows B")
    byteorder: Literal["little", "big"] = option(
        "little", choice("little", "big"), "byte order of masks"
    )
    empty_mask: Literal["empty", "null"] = option(
        "empty", choice("empty", "null"), "form of a binary mask without set bits"
    )
    refresh: Literal["skip", "insert"] = option(
        "skip", choice("skip", "insert"), "what happens to rows of an initial load"
    )
    partitioned: bool = option(False, FLAG, "write partition_name, and list ended partitions")
    partition_seconds: int = option(3600, integer(1), "length of a partition in seconds")
    partition_base: str = option(
        "1970-01-01T00:00:00",
        OptionKind(_parse_base, "a time of whole seconds without zone, in UTC"),
        "time at which a partition begins",
    )  # fmt: skip
    close_partitions: bool = option(False, FLAG, "list partitions that have not ended, too")
    server: str = shared(_SERVER)
    task: str = shared(_TASK)
    file_format: str = option("csv", choice(*FILE_FORMATS), "form of the files")

    def partition_names(self) -> Callable[[str], str] | None:
        """Return the function from a change_seq to the name of its partition, None without
        partitions.
        """
        if not self.partitioned:
            return None
        return partial(
            partition_of,
            seconds=self.partition_seconds,
            base=datetime.fromisoformat(self.partition_base),
        )


def described(
    tables: Mapping[str, JsonObject], catalog: CatalogOption = None
) -> tuple[Mapping[str, QlikColumns], Mapping[str, Names]]:
    """Return the columns and the keys of tables, by ``<schema>.<table>``, that the options
    ``tables`` and ``catalog`` describe.

    Raises ConfigError.
    """
    columns: dict[str, QlikColumns] = {}
    database = database_of(catalog)
    if database is not None:
        columns = {
            full_name(database.schema, table.name): columns_of(table) for table in database.tables
        }
    keys: dict[str, Names] = {}
    for name, about in tables.items():
        what = f"table {name!r}"
        if not isinstance(about, Mapping):
            raise ConfigError(
                f"{what} of tables must be an object with columns and key, not {about!r}"
            )
        unknown = sorted(map(str, set(about) - _TABLE_MEMBERS))
        if unknown:
            raise ConfigError(f"member {unknown[0]!r} of {what} is unknown; use columns, key")
        key = about.get("key") or ()
        if (
            isinstance(key, str)
            or not isinstance(key, Sequence)
            or not all(isinstance(one, str) for one in key)
        ):
            raise ConfigError(f"the key of {what} must be a list of column names, not {key!r}")
        if about.get("columns") is not None:
            columns[name] = columns_from_json(about["columns"], key, what=what)
        elif key:
            keys[name] = tuple(key)
    return columns, {name: key_of(each) for name, each in columns.items()} | keys


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """The context in which all tables of one source are read: the options, the known columns and
    keys of tables by their full names, the entries of attrep_ddl_history, and the report.
    """

    options: ReadOptions
    columns: Mapping[str, QlikColumns]
    keys: Mapping[str, Names]
    history: Sequence[DdlEntry]
    report: Report

    def uncounted(self) -> Reading:
        """Return the same context for reading ahead. This context counts nothing, since rows are
        counted when they are read again.
        """
        return replace(self, report=Report())

    def names(self, schema: str | None) -> str | None:
        """Return the schema that changes have: the schema in the options, otherwise the schema of
        the table.
        """
        return schema if self.options.schema is None else self.options.schema

    def wants(self, schema: str | None, table: str) -> bool:
        """Return True if the options select a table."""
        return not self.options.tables or full_name(schema, table) in self.options.tables


def reading(options: ReadOptions, history: Iterable[JsonObject], report: Report) -> Reading:
    """Return the context in which the tables of one source are read. ``history`` holds the rows of
    attrep_ddl_history, which are used if the options say so. Raises ConfigError, FormatError.
    """
    entries = tuple(map(entry_of, history)) if options.ddl_history else ()
    return Reading(options, *described(options.tables, options.catalog), entries, report)


def layout_of(columns: Sequence[str], options: ChangeTableOptions, name: str) -> TableLayout:
    """Return the layout of an existing change table. Raises FormatError if the table lacks
    change_seq, if it lacks both change_oper and operation, or if it has a column twice.
    """
    what = f"change table of {name}"
    layout = table_layout(columns, options, what)
    for alternatives in (("change_seq",), ("change_oper", "operation")):
        if layout.headers.keys().isdisjoint(alternatives):
            names = " or ".join(options.header_prefix + header for header in alternatives)
            raise FormatError(
                f"{what} has no column {names}. Correct header_prefix, or configure Qlik to store "
                "the column",
                code="missing_header",
            )
    return layout


def stored_row_reader(
    columns: Sequence[str],
    schema: str | None,
    table: str,
    reading: Reading,
    file: Path | None = None,
) -> Callable[[Iterable[Sequence[Any] | FormatError]], Iterator[ChangeRow]]:
    """Return the function that reads rows of a stored table with these columns. The options decide
    the types of its values.

    ``file`` is the file of the rows, None in a database. A row that cannot be read goes to
    ``Report.skip`` and is skipped. Raises FormatError.
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
                skip(
                    with_location(
                        error,
                        f"change table of {name}" if file is None else f"{file}: record {number}",
                    )
                )
            else:
                yield row

    return read_rows


def _masks_at(
    layout: TableLayout, schema: str | None, table: str, reading: Reading
) -> Callable[[str], MaskLayout] | None:
    """Return the function from a change_seq to the layout of masks, None if attrep_ddl_history has
    no entry for the table.
    """
    # The owner in the entries is then another schema.
    is_renamed = schema is None or reading.options.schema is not None
    entries = [
        entry
        for entry in reading.history
        if entry.table_name == table and (is_renamed or entry.table_owner in (None, schema))
    ]
    return layouts_by_history(layout.masks, entries) if entries else None


# --- writing --------------------------------------------------------------------------------------

WriteRows = Callable[[Sequence[ChangeRow]], None]
"""A function that writes the rows of one change. If a row cannot be written, it writes no row and
raises NotExpressible.
"""


def layout_of_new(
    schema: str | None, table: str, columns: Sequence[QlikColumn], options: WriteOptions
) -> TableLayout:
    """Return the layout of a new table: header columns, data columns, and then partition_name.

    Raises FormatError, also for a source column whose name would be read as a header.
    """
    what, prefix = full_name(schema, table), options.header_prefix
    for column in columns:
        if header_name(column.name, prefix) is not None:
            raise FormatError(
                f"column {column.name!r} of {what} would be read as a header; choose another "
                "header_prefix"
            )
    behind = [PARTITION_NAME] if options.partitioned else []
    names = [
        *(prefix + one for one in options.headers),
        *(column.name for column in columns),
        *(prefix + one for one in behind),
    ]
    layout = table_layout(names, options, what)
    check_capacity(layout.masks)
    return layout


def value_writer(
    layout: TableLayout,
    convert: ConvertRow,
    mask_form: MaskForm,
    options: WriteOptions,
    name: str,
) -> StoredValues:
    """Return the function that makes the stored values of a row and converts them by ``convert``.
    The function raises NotExpressible.
    """
    values = row_writer(layout, mask_form, options, name)
    return lambda row: convert(values(row))


def ended_partition(
    schema: str | None, table: str, name: str, options: WriteOptions, state: WriterState
) -> ControlRow | None:
    """Return the row of attrep_cdc_partitions for a partition. Return None for a partition that has
    not ended, unless the option ``close_partitions`` is set.

    Raises FormatError if ``name`` is not the name of a partition.
    """
    partition = parse_partition_name(name)
    if not options.close_partitions and not has_ended(partition, state):
        return None
    return ControlRow(options.server, options.task, name, *partition, schema, table)
