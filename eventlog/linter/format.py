"""The format ``linter``: it reads a queue in files or in a database as Changes, writes Changes to a
queue, and lists a queue for people (formats/linter-queue.md 1, 5).

``database``, which needs SQLAlchemy, is imported when a queue in a database is read or written.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final, TypeVar

from eventlog.changes.format import Block, Format, Report
from eventlog.changes.losses import Loss
from eventlog.core.catalog import Database
from eventlog.core.options import GivenOptions, parse_all_options
from eventlog.errors import ConfigError, FormatError, with_location
from eventlog.files import tabular
from eventlog.files.atomic import directory_of, whole_path
from eventlog.files.text import files_in
from eventlog.linter.dispatch_tables import (
    ATTRS_TYPES,
    QUEUE_TYPES,
    DispatchRow,
    MissingColumn,
    TableAttrs,
    Where,
    attrs_of_rows,
    attrs_values,
    blob_attr,
    column_values,
    data_bytes,
    decode_oper_date,
    dispatch_rows,
    syslog_addr,
    table_attrs,
)
from eventlog.linter.operations import TYP_TABLES, TypTable
from eventlog.linter.options import ATTRS, QUEUE, SourceOptions, TargetOptions
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.linter.writer import QueueWriter, WriterOptions
from eventlog.model import Change, Names

_SUFFIXES: Final = (".csv", ".jsonl", ".parquet")


def export_reader(source: str, options: GivenOptions, report: Report) -> QueueReader:
    """Return the reader of an export whose rows are already in order. Call ``QueueReader.changes``
    on it.

    Raises ConfigError, FormatError.
    """
    place, reader_options = parse_all_options(FORMAT.reader_options, options, "the linter reader")
    return _export_reader(export_files(Path(source))[1], place, reader_options, report)


def _export_reader(
    attrs_file: Path | None, place: SourceOptions, options: ReaderOptions, report: Report
) -> QueueReader:
    attrs = place.dispatch_attrs
    described = attrs_file if place.attrs is None else Path(place.attrs)
    if not attrs and described is not None:
        attrs = _attrs_of_file(described)
    return QueueReader(attrs, options, report)


class LinterFormat(Format):
    """Linter's DISPATCH_QUEUE, in files or a database (formats/linter-queue.md)."""

    name = "linter"
    title = "Linter's DISPATCH_QUEUE"
    schemes = None
    reader_options = (SourceOptions, ReaderOptions)
    writer_options = (TargetOptions, WriterOptions)
    suffixes = frozenset({".csv", ".jsonl", ".parquet"})
    loses = frozenset({
        Loss.POSITION, Loss.USER, Loss.TRANSACTION_ID, Loss.CHANGED, Loss.REFRESH,
    })  # fmt: skip
    is_several_files = True
    is_written_later = True

    def read_changes(
        self, source: str, place: SourceOptions, options: ReaderOptions, report: Report
    ) -> Iterator[Change]:
        """Return all changes that are now in an export (a file or a directory) or in the queue of a
        database (a URL of SQLAlchemy).

        An export is sorted in memory; ``export_reader`` reads an export that is already in order.
        Raises ConfigError, FormatError, DatabaseError.
        """
        if "://" in source:
            from eventlog.linter.database import QueuePoller
            from eventlog.sql.connect.connection import connect_any

            yield from QueuePoller(connect_any(source), options, report, place).drain()
            return
        queue, attrs_file = export_files(Path(source))
        changes = _export_reader(attrs_file, place, options, report).read(
            read_queue(queue), final=place.final
        )
        try:
            yield from changes
        except FormatError as error:
            raise with_location(error, source) from error.__cause__

    def write_changes(
        self,
        changes: Iterable[Change],
        target: str,
        place: TargetOptions,
        options: WriterOptions,
        report: Report,
    ) -> None:
        """Write changes to a file (.csv, .jsonl, .parquet), to a directory, or to the end of a
        database's queue, completely or not at all.

        DISPATCH_ATTRS is written next to the queue. Raises ConfigError, FormatError, DatabaseError.
        """
        if "://" in target:
            from eventlog.linter.database import write_database

            write_database(changes, target, place, options, report)
            return
        path = Path(target)
        if path.is_dir() or not path.suffix:
            path = path / f"{QUEUE}.{place.files}"
        attrs = (
            path.with_name(f"{ATTRS}{path.suffix}") if place.attrs is None else Path(place.attrs)
        )
        for suffix in (path.suffix.lower(), attrs.suffix.lower()):
            if suffix not in _SUFFIXES:
                raise ConfigError(
                    f"a Linter queue is written to {', '.join(_SUFFIXES)} files, not to "
                    f"{suffix or 'others'!r}"
                )
        writer = QueueWriter(options, report)
        write_export(path, attrs, writer.rows(changes), writer.attrs.values())

    def lines(
        self, source: str, options: GivenOptions, report: Report, block: Block
    ) -> Iterator[str]:
        if "://" not in source:
            yield from queue_listing(source, options)
            yield ""
        yield from super().lines(source, options, report, block)

    def is_sorted_first(self, options: GivenOptions) -> bool:
        return True

    def is_description(self, file: Path) -> bool:
        return file.stem.casefold() == ATTRS

    def output_place(self, name: str, options: GivenOptions) -> str:
        if options.get("attrs") is not None:
            raise ConfigError(
                "the writer's option attrs names one file, but each input needs a separate file: "
                "remove the option"
            )
        return super().output_place(name, options)

    def options_of_catalog(self, side: str, database: Database) -> GivenOptions | None:
        return {} if side == "reader" else None  # DISPATCH_ATTRS describes the tables


FORMAT: Final = LinterFormat()


# --- files ----------------------------------------------------------------------------------------


def export_files(source: Path) -> tuple[list[Path], Path | None]:
    """Return the files of a queue, sorted by name, and the file of DISPATCH_ATTRS next to them, if
    any. ``source`` is a directory or a file.

    Raises FormatError.
    """
    directory = source if source.is_dir() else source.parent
    try:
        files = files_in(directory, _SUFFIXES)
    except OSError as error:
        raise FormatError(f"{source} cannot be read: {error.strerror}") from error
    described = [path for path in files if path.stem.casefold() == ATTRS]
    if source.is_dir():
        queue = [path for path in files if path not in described]
        if not queue:
            raise FormatError(
                f"{source} contains no {', '.join(_SUFFIXES)} file with rows of DISPATCH_QUEUE"
            )
    else:
        queue = [source]
    return queue, described[0] if described else None


def read_queue(paths: Iterable[Path]) -> Iterator[DispatchRow]:
    """Yield the rows of all files, in the order of the files. Raises FormatError."""
    return chain.from_iterable(rows for path in paths for rows in _tables(path, dispatch_rows))


def _attrs_of_file(path: Path) -> dict[int, TableAttrs]:
    """Return the tables, by number, that a file of DISPATCH_ATTRS describes. Raises FormatError."""
    columns: dict[int, TableAttrs] = {}
    for tables in _tables(path, attrs_of_rows):
        for tabnum, table in tables.items():
            known = columns.get(tabnum)
            columns[tabnum] = (
                table if known is None else table_attrs(tabnum, known.columns + table.columns)
            )
    return columns


_T = TypeVar("_T")


def _tables(
    path: Path, make: Callable[[Sequence[str], Iterator[Sequence[Any]], Where], _T]
) -> Iterator[_T]:
    """Yield the results of ``make`` for the tables of a file.

    ``make`` is called with column names, rows, and a function that returns the place of the last
    row that was read. In JSON lines, consecutive objects with the same members are one table.
    Raises FormatError.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise FormatError(
            f"{path} is not a {', '.join(_SUFFIXES)} file; export the queue to one of these formats"
        )
    number = 1

    def where() -> str:
        return f"{path}, {'row' if suffix == '.parquet' else 'line'} {number}"

    def values(rows: tabular.Rows) -> Iterator[Sequence[Any]]:
        nonlocal number
        for number, row in _readable(rows):  # for ``where``  # noqa: B007
            yield row

    try:
        tables = _objects(path) if suffix == ".jsonl" else ((1, *tabular.read_rows(path)),)
        for number, names, rows in tables:  # noqa: B007
            try:
                yield make(names, values(rows), where)
            except MissingColumn as error:
                raise with_location(error, path if suffix == ".parquet" else where()) from None
    except FileNotFoundError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from error


def _objects(path: Path) -> Iterator[tuple[int, Names, tabular.Rows]]:
    """Yield the tables of a file of JSON lines. Consecutive objects with the same members form one
    table.

    A table consists of the line number of its first object, the column names, and the values with
    their line numbers.
    """
    for names, alike in groupby(
        _readable(tabular.read_json_objects(path)), key=lambda numbered: tuple(numbered[1])
    ):
        first = next(alike)
        yield (
            first[0],
            names,
            ((number, list(row.values())) for number, row in chain([first], alike)),
        )


def _readable(rows: Iterable[tuple[int, _T | FormatError]]) -> Iterator[tuple[int, _T]]:
    for number, row in rows:
        if isinstance(row, FormatError):
            raise row
        yield number, row


def write_export(
    queue: Path, attrs: Path, rows_of_queue: Iterable[DispatchRow], tables: Iterable[TableAttrs]
) -> None:
    """Write both files, each whole or not at all. The directory of the files is created; the parent
    of this directory must exist.

    Raises the errors of the rows, ConfigError, OSError.
    """
    with (
        directory_of(queue),
        whole_path(str(queue)) as new_queue,
        whole_path(str(attrs)) as new_attrs,
    ):
        _write_rows(new_queue, queue, QUEUE_TYPES, map(column_values, rows_of_queue))
        described = chain.from_iterable(map(attrs_values, tables))
        _write_rows(new_attrs, attrs, ATTRS_TYPES, described)


def _write_rows(
    path: Path, named: Path, types: Mapping[str, tuple[str, int]], rows: Iterable[Sequence[Any]]
) -> None:
    """Write rows to ``path``. The suffix of ``named`` determines the file format."""
    suffix, names = named.suffix.lower(), tuple(types)
    if suffix == ".parquet":
        arrow_types = [tabular.pyarrow().type_for_alias(name) for name, _ in types.values()]
        with tabular.open_parquet(path, names, arrow_types) as write_row:
            for row in rows:
                write_row(row)
        return
    texts = ([value.hex() if isinstance(value, bytes) else value for value in row] for row in rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        if suffix == ".jsonl":
            file.writelines(tabular.json_line(names, row) for row in texts)
        else:  # the blanks that pad a CHAR are written without quotes, as servers export them
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(names)
            lines.writerows(texts)


# --- the listing ----------------------------------------------------------------------------------

_SHOWN: Final = 32  # bytes shown on a line


def queue_listing(source: str, options: GivenOptions) -> Iterator[str]:
    """Yield the lines of a listing: all rows, in the order of the files.

    Raises ConfigError, FormatError.
    """
    _, chosen = parse_all_options(FORMAT.reader_options, options, "the linter reader")
    table = TYP_TABLES[chosen.typ_table]
    files, _ = export_files(Path(source))
    for number, row in enumerate(read_queue(files), 1):
        try:
            yield from _row(number, row, table)
        except FormatError as error:
            raise with_location(error, f"{source}, row {number} of the listing") from None


def _row(number: int, row: DispatchRow, table: TypTable) -> Iterator[str]:
    file, address = syslog_addr(row.syslog_addr)
    name = table.operations.get(row.typ) or table.ends.get(row.typ, "(unknown)")
    yield (
        f"row {number}  SYSLOG_ADDR {file}:{address}  TYP {row.typ} {name}  transaction "
        f"{row.transact_id:X}"
    )
    time = decode_oper_date(row.oper_date)
    yield f"    OPER_DATE   {row.oper_date.hex().upper()}  {time} of the server {row.dbnode!r}"
    if row.typ in table.ends:
        return
    destination = ".".join(part for part in row.destination if part)
    yield (
        f"    table       {row.tabnum_src} -> {destination!r}, row id {row.rowid_src}, channel "
        f"{row.channel}"
    )
    yield f"    lengths     {row.len1} + {row.len2}, fragment {row.extdata}"
    if row.blobatr:
        column, blob_type = blob_attr(row.blobatr)
        yield f"    BLOBATR     column {column}, type {blob_type}"
    data = data_bytes(row.data)
    for at in range(0, len(data), _SHOWN):
        yield f"    {at:08x}    {data[at : at + _SHOWN].hex().upper()}"
