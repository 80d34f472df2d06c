"""Change tables in a directory of files (formats/qlik.md 1.1, 4).

::

    <directory>/<schema>.<table>__ct/<first>_<last change_seq>.csv
    <directory>/<schema>.<table>__ct/partition_name=<name>/<first>_<last change_seq>.csv
    <directory>/<schema>.<table>__ct/<name of a file>.dfm    its columns, read only
    <directory>/attrep_cdc_partitions/...        the partitions that can be read
    <directory>/attrep_ddl_history/...           read only

In the name of a table, every ASCII character outside ``[A-Za-z0-9_ -]``, such as the point, is
percent-encoded (``%2E``), and so is a ``_`` at the beginning of the name. A table or control table
may also be a single file, such as ``<schema>.<table>__ct.csv``, and the source may be a single
table.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

from eventlog.changes.format import Report
from eventlog.core.clock import random_hex
from eventlog.errors import ConfigError, FormatError, NotExpressible, shown, with_location
from eventlog.files import compression
from eventlog.files.atomic import sync_path
from eventlog.files.tabular import (
    SUFFIXES,
    WriteRow,
    bare_name,
    format_of,
    is_packed,
    read_rows,
    refuse_packed,
)
from eventlog.model import JsonDict, TableName, full_name
from eventlog.qlik.columns import MomentColumn, QlikColumn, QlikColumns, key_of
from eventlog.qlik.masks import MaskForm
from eventlog.qlik.messages.message_tables import read_file_metadata
from eventlog.qlik.sequence import CONTROL_COLUMNS, CONTROL_TABLE, ControlRow, WriterState, resume
from eventlog.qlik.tables.change_rows import (
    PARTITION_NAME,
    ChangeRow,
    StoredValues,
    header_name,
    row_order,
)
from eventlog.qlik.tables.change_tables import ReadTable, SourceTable, source_table
from eventlog.qlik.tables.stored_tables import (
    FILE_FORMATS,
    Reading,
    ReadOptions,
    WriteOptions,
    WriteRows,
    layout_of_new,
    reading,
    stored_row_reader,
    value_writer,
)
from eventlog.qlik.values import converter, open_part

_METADATA_SUFFIX: Final = ".dfm"
"""The suffix of a file that describes a data file. This suffix replaces the suffixes of the data
file.
"""

STATE_FILE: Final = "_change_sequence.json"
"""The file with the state of a directory's writer."""

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ -")


class Part(NamedTuple):
    """One file of a table. ``partition`` is the partition that its folder names, None if it names
    none.
    """

    path: Path
    partition: str | None


class TableFiles(NamedTuple):
    """A change table of a directory. ``schema`` and ``table`` are its names in changes, ``parts``
    its files, and ``wanted`` the partitions to read, None = all.
    """

    schema: str | None
    table: str
    parts: list[Part]
    wanted: frozenset[str] | None


# --- names ----------------------------------------------------------------------------------------


def _check_length(folder: Path, table: str) -> None:
    """Raise NotExpressible if the file system has no directory with a name of this length."""
    try:
        folder.stat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise NotExpressible(
                f"the name of {table} is too long for the directory {shown(folder.name)}"
            ) from None


def file_name(schema: str | None, table: str) -> str:
    """Return the name of a table in file names, without suffix.

    Raises NotExpressible for an unpaired surrogate.
    """
    try:
        full_name(schema, table).encode()
    except UnicodeEncodeError:
        raise NotExpressible(
            f"the name of {full_name(schema, table)!r} cannot be written in UTF-8"
        ) from None
    return ".".join(_encoded(name) for name in (schema, table) if name is not None)


def _encoded(name: str) -> str:
    if name.startswith("_"):  # files that begin with _ belong to the program that wrote them
        return "%5F" + _encoded(name[1:])
    return "".join(c if c in _PLAIN or c >= "\x80" else f"%{ord(c):02X}" for c in name)


# --- reading --------------------------------------------------------------------------------------


class FileSource:
    """The change tables of a directory, or a single change table."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._path, self._options = path, options

    def is_written(self) -> bool:
        return is_written(self._path)

    def control_rows(self, name: str) -> Iterator[JsonDict]:
        return control_rows(self._path, name, self._options)

    def tables(self, reading: Reading) -> list[ReadTable]:
        tables, reading = described_tables(self._path, reading)
        return [(source_of(table, reading), _sorted_rows(table, reading)) for table in tables]


def described_tables(source: Path, reading: Reading) -> tuple[list[TableFiles], Reading]:
    """Return the change tables of a directory that the options select, and the reading with the
    columns that metadata files describe. ``source`` may also be a single change table. Raises
    FormatError.
    """
    tables = _table_files(source, reading)
    refuse_unread(tables, reading.options)
    return tables, with_metadata(reading, tables)


def _table_files(source: Path, reading: Reading) -> list[TableFiles]:
    """Return the change tables of a directory, or the table at ``source``, that the options select.

    Raises FormatError.
    """
    options = reading.options
    tables = []
    for entry in table_entries(source, options.suffix):
        stored_schema, table = table_names(entry, options.suffix)
        schema = reading.names(stored_schema)
        if reading.wants(schema, table):
            wanted = (
                listed_partitions(source, stored_schema, table, options)
                if options.partitioned
                else None
            )
            tables.append(TableFiles(schema, table, parts_of(entry, options), wanted))
    return tables


def is_written(source: Path) -> bool:
    """Return True if a writer has used this directory, even without writing a row."""
    return (source / STATE_FILE).exists()


def table_names(entry: Path, suffix: str) -> TableName:
    """Return the schema and the name of the change table that a directory or file is."""
    schema, point, table = _base_name(entry)[: -len(suffix)].partition(".")
    return (unquote(schema), unquote(table)) if point else (None, unquote(schema))


def _base_name(entry: Path) -> str:
    is_rows = entry.is_file() and (format_of(entry) or is_packed(entry))
    return bare_name(entry) if is_rows else entry.name


def is_table(entry: Path, suffix: str) -> bool:
    """Return True if the name of a directory or file is the name of a change table."""
    name = _base_name(entry)
    return (
        not name.startswith((".", "_"))
        and len(name) > len(suffix)
        and name.casefold().endswith(suffix.casefold())
    )


def table_entries(source: Path, suffix: str) -> list[Path]:
    """Return the change tables of a directory, or ``source`` itself if it is a change table.

    Raises FormatError.
    """
    if not source.exists():
        raise FormatError(f"{source} does not exist; use a directory of change tables")
    if is_table(source, suffix):
        return [source]
    if source.is_file():
        raise FormatError(
            f"{source} is not a file of a change table: its name does not end in {suffix}"
        )
    return [entry for entry in sorted(source.iterdir()) if is_table(entry, suffix)]


def source_of(files: TableFiles, reading: Reading) -> SourceTable:
    """Return the description by which the rows of a table become changes.

    An unknown key is searched in all files.
    """
    rows = chain.from_iterable(_rows(part, files, reading.uncounted()) for part in files.parts)
    return source_table(files.schema, files.table, reading, rows)


def _sorted_rows(files: TableFiles, reading: Reading) -> Iterator[ChangeRow]:
    """Yield the rows of a table in change_seq order; each partition is sorted in memory."""
    for group in _groups(files.parts):
        yield from sorted(
            (row for part in group for row in rows_of_part(part, files, reading)), key=row_order
        )


def rows_of_part(part: Part, files: TableFiles, reading: Reading) -> Iterator[ChangeRow]:
    """Return the wanted rows of one file, in the order of the file. Raises FormatError."""
    rows, wanted = _rows(part, files, reading), files.wanted
    return rows if wanted is None else (row for row in rows if row.partition_name in wanted)


def with_metadata(reading: Reading, tables: Iterable[TableFiles]) -> Reading:
    """Return the reading with the columns that the metadata files next to the data describe, for
    tables that the options do not describe (formats/qlik.md 1.3). A metadata file that cannot be
    read goes to ``Report.skip``.
    """
    columns, keys = dict(reading.columns), dict(reading.keys)
    for table in tables:
        name = full_name(table.schema, table.table)
        if name not in columns:
            columns[name] = _columns_beside(table, reading)
            keys[name] = keys.get(name) or key_of(columns[name])
    return replace(reading, columns=columns, keys=keys)


def _columns_beside(table: TableFiles, reading: Reading) -> QlikColumns:
    """Return the data columns in all metadata files of a table. A later version of the table
    overrides an earlier version.
    """
    versions: list[tuple[int, QlikColumns]] = []
    for part in table.parts:
        path = part.path.with_name(bare_name(part.path) + _METADATA_SUFFIX)
        try:
            versions.append(read_file_metadata(path.read_bytes()))
        except FileNotFoundError:
            continue
        except OSError as error:
            reading.report.skip(FormatError(f"{path} cannot be read: {error.strerror}"))
        except FormatError as error:
            reading.report.skip(with_location(error, path))
    newest: dict[str, QlikColumn] = {}
    for _, columns in sorted(versions, key=itemgetter(0)):
        newest |= {column.name: column for column in columns}
    prefix = reading.options.header_prefix
    return tuple(column for name, column in newest.items() if header_name(name, prefix) is None)


def refuse_unread(tables: Iterable[TableFiles], options: ReadOptions) -> None:
    """Raise FormatError for a table without a readable file, so that no table with unknown file
    names is read as empty.
    """
    for table in tables:
        if not table.parts:
            formats = FILE_FORMATS if options.file_format is None else (options.file_format,)
            raise FormatError(
                f"the change table of {full_name(table.schema, table.table)} has no file whose "
                f"name shows one of the formats {', '.join(formats)}; exclude the table by the "
                "option tables, or rename its files"
            )


def parts_of(entry: Path, options: ReadOptions) -> list[Part]:
    """Return the files of a table. Files whose names begin with ``_`` or ``.`` are left out: they
    belong to the program that wrote them.
    """
    paths = (
        [entry] if entry.is_file() else sorted(path for path in entry.rglob("*") if path.is_file())
    )
    parts = []
    for path in paths:
        inside = path.relative_to(entry).parts if path != entry else ()
        if any(name.startswith((".", "_")) for name in inside):
            continue
        refuse_packed(path)
        file_format = format_of(path)
        if file_format is None:
            continue
        if options.file_format in (None, file_format):
            folders = [folder.partition("=") for folder in inside[:-1]]
            partition = [
                unquote(value)
                for name, is_named, value in folders
                if is_named and PARTITION_NAME in (name, header_name(name, options.header_prefix))
            ]
            parts.append(Part(path, partition[0] if partition else None))
    return parts


def _groups(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the parts that are sorted together: the parts of each partition, or all parts if any
    part is not in a partition.
    """
    if any(part.partition is None for part in parts):
        return [list(parts)]
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.partition or "", []).append(part)
    # Names of partitions begin with their start time.
    return [group for _, group in sorted(groups.items())]


def _rows(part: Part, files: TableFiles, reading: Reading) -> Iterator[ChangeRow]:
    columns, rows = read_rows(part.path)
    if not columns:
        return
    for row in stored_row_reader(columns, files.schema, files.table, reading, part.path)(
        row for _, row in rows
    ):
        yield (
            row
            if row.partition_name or part.partition is None
            else row._replace(partition_name=part.partition)
        )


def control_rows(source: Path, name: str, options: ReadOptions) -> Iterator[JsonDict]:
    """Yield the rows of a control table, by column names in upper case; none if the table does not
    exist.
    """
    home = source.parent if is_table(source, options.suffix) else source
    for entry in (
        home / name,
        *(
            home / f"{name}{suffix}{packed}"
            for suffix in SUFFIXES.values()
            for packed in ("", *compression.SUFFIXES)
        ),
    ):
        for part in parts_of(entry, options) if entry.exists() else ():
            columns, rows = read_rows(part.path)
            upper = [column.upper() for column in columns]
            for _, row in rows:
                if isinstance(row, FormatError):
                    raise row
                yield dict(zip(upper, row, strict=True))


def listed_partitions(
    source: Path, schema: str | None, table: str, options: ReadOptions
) -> frozenset[str]:
    """Return the partitions of a table that attrep_cdc_partitions lists as readable."""
    return frozenset(
        str(row.get("PARTITION_NAME"))
        for row in control_rows(source, CONTROL_TABLE, options)
        if row.get("TABLE_NAME") == table
        and (schema is None or row.get("TABLE_OWNER") in (None, schema))
    )


# --- writing --------------------------------------------------------------------------------------


class FileStore:
    """A directory to which change tables are appended. New files have temporary names until
    ``save``; ``close`` removes the temporary files.

    The state of the writer is in ``STATE_FILE``. Without this file, numbers continue after the
    highest stored change_seq. Raises ConfigError.
    """

    def __init__(self, directory: Path, options: WriteOptions) -> None:
        self._directory, self._options = directory, options
        self._read_options = ReadOptions(suffix=options.suffix, header_prefix=options.header_prefix)
        self._work = directory / f".writing-{random_hex(16)}"
        self._tables: list[_TableParts] = []
        self._control: list[tuple[Path, Path]] = []  # temporary name, final name
        self._is_new = not directory.exists()
        try:
            self._work.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"change tables cannot be written to {directory}: {error}") from error

    def stored_state(self) -> WriterState:
        path = self._directory / STATE_FILE
        if path.exists():
            try:
                saved = json.loads(path.read_text(encoding="utf-8"))
                return WriterState(str(saved["prefix"]), int(saved["number"]))
            except (
                OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError,
            ) as error:  # fmt: skip
                raise FormatError(
                    f"{path} is not the state of a writer: {error!r}; restore or remove the file"
                ) from None
        context = reading(self._read_options, (), Report(strict=True))
        rows = (
            row
            for files in _table_files(self._directory, context)
            for row in _sorted_rows(files, context)
        )
        return resume(max((row.change_seq for row in rows), default=None))

    def table(self, schema: str | None, table: str, columns: Sequence[QlikColumn]) -> WriteRows:
        options, name = self._options, full_name(schema, table)
        folder = self._directory / f"{file_name(schema, table)}{options.suffix}"
        _check_length(folder, name)
        layout = layout_of_new(schema, table, columns, options)
        mask_form: MaskForm = "binary" if options.file_format == "parquet" else "text"
        stored = layout.for_each(columns, partial(_header_column, mask_form), lambda column: column)
        values = value_writer(
            layout, converter(options.file_format, stored, name), mask_form, options, name
        )
        parts = _TableParts(schema, table, values, folder, partial(self._new_part, stored))
        self._tables.append(parts)
        return parts.append

    def _new_part(
        self, columns: Sequence[QlikColumn]
    ) -> tuple[Path, AbstractContextManager[WriteRow]]:
        path = self._new_path()
        return path, open_part(path, self._options.file_format, columns)

    def _new_path(self) -> Path:
        return self._work / f"{random_hex(16)}{SUFFIXES[self._options.file_format]}"

    def flush(self) -> None:
        for table in self._tables:
            table.close()

    def control_rows(self, name: str) -> Iterator[JsonDict]:
        return control_rows(self._directory, name, self._read_options)

    def partitions(self) -> Iterator[tuple[str | None, str, str]]:
        """Yield every partition that has a folder, and the new partitions."""
        for entry in table_entries(self._directory, self._options.suffix):
            schema, table = table_names(entry, self._options.suffix)
            for name in {part.partition for part in parts_of(entry, self._read_options)} - {None}:
                assert name is not None
                yield schema, table, name
        for parts in self._tables:
            yield from ((parts.schema, parts.table, name) for name in parts.partitions)

    def append_partitions(self, rows: Sequence[ControlRow]) -> None:
        """Write a file of the partitions for attrep_cdc_partitions, if there are any."""
        if rows:
            path = self._new_path()
            write_partitions(path, self._options.file_format, rows)
            self._control.append((path, self._directory / CONTROL_TABLE / path.name))

    def save(self, state: WriterState) -> None:
        """Move all new files into place: the files of rows, of readable partitions, and of the
        state.
        """
        folders = set()
        for temporary, final in chain(*(table.written for table in self._tables), self._control):
            final.parent.mkdir(parents=True, exist_ok=True)
            sync_path(temporary)
            temporary.replace(final)
            folders.add(final.parent)
        temporary = self._work / STATE_FILE
        temporary.write_text(json.dumps(state._asdict()) + "\n", encoding="utf-8")
        sync_path(temporary)
        temporary.replace(self._directory / STATE_FILE)
        for folder in (*folders, self._directory):
            sync_path(folder)

    def close(self) -> None:
        """Remove all temporary files, and the directory if it is new and empty."""
        self.flush()
        shutil.rmtree(self._work, ignore_errors=True)
        if self._is_new:
            with suppress(OSError):
                self._directory.rmdir()


class _TableParts:
    """The new files of one table. One file is open at a time, since rows come in change_seq order,
    and so do partitions.

    ``written`` holds the temporary and the final name of each complete file, ``partitions`` the
    partitions of the files.
    """

    def __init__(
        self,
        schema: str | None,
        table: str,
        values: StoredValues,
        folder: Path,
        new_part: Callable[[], tuple[Path, AbstractContextManager[WriteRow]]],
    ) -> None:
        self.schema, self.table = schema, table
        self.partitions: set[str] = set()
        self.written: list[tuple[Path, Path]] = []
        self._values, self._folder, self._new_part = values, folder, new_part
        self._open = ExitStack()
        self._write_row: WriteRow | None = None
        self._partition: str | None = None
        self._first = self._last = ""

    def append(self, rows: Sequence[ChangeRow]) -> None:
        for row, stored in zip(rows, list(map(self._values, rows)), strict=True):
            if self._write_row is None or row.partition_name != self._partition:
                self.close()
                self._partition, self._first = row.partition_name, row.change_seq
                self._temporary, opened = self._new_part()
                self._write_row = self._open.enter_context(opened)
            self._last = row.change_seq
            self._write_row(stored)

    def close(self) -> None:
        """Complete the current file."""
        if self._write_row is None:
            return
        self._write_row = None
        self._open.close()
        folder = self._folder
        if self._partition is not None:
            folder /= f"{PARTITION_NAME}={self._partition}"
            self.partitions.add(self._partition)
        self.written.append(
            (self._temporary, folder / f"{self._first}_{self._last}{self._temporary.suffix}")
        )


def _header_column(mask_form: str, name: str, header: str) -> QlikColumn:
    if header == "timestamp":
        return MomentColumn(name)
    return QlikColumn(
        name, "BYTES" if header == "change_mask" and mask_form == "binary" else "STRING"
    )


def write_partitions(path: Path, file_format: str, rows: Iterable[ControlRow]) -> None:
    """Write a new file of attrep_cdc_partitions."""
    columns = [
        MomentColumn(name) if name.endswith("_TIME") else QlikColumn(name, "STRING")
        for name in CONTROL_COLUMNS
    ]
    convert = converter(file_format, columns, CONTROL_TABLE)
    with open_part(path, file_format, columns) as write:
        for row in rows:
            write(convert(row))
