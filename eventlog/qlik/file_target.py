"""Writing change tables to a directory of files (see ``file_tables``): nothing is there until all is.

The state of the writer is ``_change_sequence.json``; without it numbers go on behind the highest change_seq stored.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, FormatError
from eventlog.files.atomic import sync_path
from eventlog.files.tabular import SUFFIXES, WriteRow
from eventlog.qlik import sequence
from eventlog.qlik.change_rows import PARTITION_NAME, ChangeRow, TableLayout, new_layout, row_writer
from eventlog.qlik.change_table_options import ReadOptions, WriteOptions, full_name
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.control_tables import CONTROL_COLUMNS, CONTROL_TABLE, ControlRow, has_ended, parse_partition_name
from eventlog.qlik.file_tables import STATE_FILE, control_rows, file_name, partition_folders, stored_tables
from eventlog.qlik.sequence import WriterState
from eventlog.qlik.stored_tables import WriteRows, reading
from eventlog.qlik.stored_values import FileColumn, converter, open_part

_STORED_TYPES: Final = {"change_mask": "BYTES", "timestamp": "DATETIME"}
_CONTROL_TIMES: Final = frozenset({"PARTITION_START_TIME", "PARTITION_END_TIME"})


class FileTarget:
    """A directory that change tables are written to, under temporary names until ``finish``."""

    def __init__(self, directory: Path, options: WriteOptions) -> None:
        self._directory, self._options = directory, options
        self._read_options = ReadOptions(suffix=options.suffix, header_prefix=options.header_prefix)
        self._work = directory / f".writing-{uuid.uuid4().hex}"
        self._parts: list[tuple[Path, Path]] = []  # temporary name, final name
        self._tables: list[_TableParts] = []
        try:
            self._work.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"change tables cannot be written to {directory}: {error}") from error
        self.state = self._stored_state()

    def table(self, schema: str | None, table: str, columns: Sequence[QlikColumn]) -> WriteRows:
        """The function that writes the rows of a change. Raises MaskTooWide, FormatError."""
        parts = _TableParts(self._directory, self._work, schema, table, columns, self._options)
        self._tables.append(parts)
        return parts.write

    def finish(self, state: WriterState) -> None:
        """Let everything appear: the rows, the partitions that can be read, the state."""
        for table in self._tables:
            table.close()
            self._parts += table.written
        self._list_partitions(state)
        folders = set()
        for temporary, final in self._parts:
            final.parent.mkdir(parents=True, exist_ok=True)
            sync_path(temporary)
            temporary.replace(final)
            folders.add(final.parent)
        self._save_state(state)
        for folder in (*folders, self._directory):
            sync_path(folder)

    def close(self) -> None:
        """Remove what has not appeared."""
        for table in self._tables:
            table.close()
        shutil.rmtree(self._work, ignore_errors=True)

    def _stored_state(self) -> WriterState:
        path = self._directory / STATE_FILE
        if path.exists():
            try:
                saved = json.loads(path.read_text(encoding="utf-8"))
                return WriterState(str(saved["prefix"]), int(saved["number"]))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise FormatError(f"{path} is no state of a writer: {error!r}; restore it or remove it") from None
        tables = stored_tables(self._directory, reading(self._read_options, (), Report(strict=True)))
        highest = max((row.change_seq for table in tables for row in table.rows()), default=None)
        return sequence.resume(highest)

    def _save_state(self, state: WriterState) -> None:
        temporary = self._work / STATE_FILE
        temporary.write_text(json.dumps(state._asdict()) + "\n", encoding="utf-8")
        sync_path(temporary)
        temporary.replace(self._directory / STATE_FILE)

    def _list_partitions(self, state: WriterState) -> None:
        """A file of the partitions that have ended, and are not listed, for attrep_cdc_partitions."""
        if not self._options.partitioned:
            return
        rows = sorted(self._ended_partitions(state), key=lambda row: (row.partition_start_time, row[-2:]))
        if not rows:
            return
        columns = [_control_column(name) for name in CONTROL_COLUMNS]
        name = f"{uuid.uuid4().hex}{SUFFIXES[self._options.file_format]}"
        with open_part(self._work / name, self._options.file_format, columns) as write:
            convert = converter(self._options.file_format, columns, CONTROL_TABLE)
            for row in rows:
                write(convert(row))
        self._parts.append((self._work / name, self._directory / CONTROL_TABLE / name))

    def _ended_partitions(self, state: WriterState) -> Iterator[ControlRow]:
        listed = {
            (row.get("TABLE_OWNER"), row.get("TABLE_NAME"), row.get("PARTITION_NAME"))
            for row in control_rows(self._directory, CONTROL_TABLE, self._read_options)
        }
        stored = set(partition_folders(self._directory, self._read_options))
        stored |= {(table.schema, table.table, name) for table in self._tables for name in table.partitions}
        for schema, table, name in stored - listed:
            partition = parse_partition_name(name)
            if self._options.close_partitions or has_ended(partition, state):
                yield ControlRow(self._options.server, self._options.task, name, *partition, schema, table)


class _TableParts:
    """The new files of one table, one at a time: rows come in change_seq order, so partitions do too."""

    def __init__(
        self,
        directory: Path,
        work: Path,
        schema: str | None,
        table: str,
        columns: Sequence[QlikColumn],
        options: WriteOptions,
    ) -> None:
        self.schema, self.table = schema, table
        self.partitions: set[str] = set()
        self.written: list[tuple[Path, Path]] = []
        self._folder = directory / f"{file_name(schema, table)}{options.suffix}"
        self._work, self._format = work, options.file_format
        layout = new_layout(
            [column.name for column in columns],
            headers=options.headers,
            header_prefix=options.header_prefix,
            mask_offset=options.mask_offset,
            partitioned=options.partitioned,
            what=full_name(schema, table),
        )
        is_binary = options.file_format == "parquet"
        self._columns = _file_columns(layout, columns, is_binary=is_binary)
        self._values = row_writer(
            layout,
            mask_form="binary" if is_binary else "text",
            byteorder=options.byteorder,
            empty_mask=options.empty_mask,
            what=full_name(schema, table),
        )
        self._convert = converter(self._format, self._columns, full_name(schema, table))
        self._open = ExitStack()
        self._write_row: WriteRow | None = None
        self._partition: str | None = None
        self._first = self._last = ""

    def write(self, rows: Sequence[ChangeRow]) -> None:
        """Write the rows of one change, all of them or, if one cannot be, none."""
        values = [self._convert(self._values(row)) for row in rows]
        for row, stored in zip(rows, values, strict=True):
            if self._write_row is None or row.partition_name != self._partition:
                self.close()
                self._partition, self._first = row.partition_name, row.change_seq
                self._temporary = self._work / f"{uuid.uuid4().hex}{SUFFIXES[self._format]}"
                self._write_row = self._open.enter_context(open_part(self._temporary, self._format, self._columns))
            self._last = row.change_seq
            self._write_row(stored)

    def close(self) -> None:
        if self._write_row is None:
            return
        self._write_row = None
        self._open.close()
        folder = self._folder
        if self._partition is not None:
            folder /= f"{PARTITION_NAME}={self._partition}"
            self.partitions.add(self._partition)
        name = f"{self._first}_{self._last}{SUFFIXES[self._format]}"
        self.written.append((self._temporary, folder / name))


def _file_columns(layout: TableLayout, columns: Sequence[QlikColumn], *, is_binary: bool) -> list[FileColumn]:
    header_at = {place: name for name, place in layout.headers.items()}
    by_name = {column.name: column for column in columns}
    found = []
    for place, name in enumerate(layout.columns):
        header = header_at.get(place)
        if header is None:
            found.append(FileColumn(by_name[name]))
        else:
            type = "STRING" if header == "change_mask" and not is_binary else _STORED_TYPES.get(header, "STRING")
            found.append(FileColumn(QlikColumn(name, type), header == "timestamp"))
    return found


def _control_column(name: str) -> FileColumn:
    is_time = name in _CONTROL_TIMES
    return FileColumn(QlikColumn(name, "DATETIME" if is_time else "STRING"), is_time)


@contextmanager
def file_target(directory: Path, options: WriteOptions) -> Iterator[FileTarget]:
    """The target; what was not finished is gone afterwards. Raises ConfigError, FormatError."""
    target = FileTarget(directory, options)
    try:
        yield target
    finally:
        target.close()
