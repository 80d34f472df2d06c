"""What conversion and `eventlog decode` know of Linter queues: files, directories, databases (spec/linter-queue.md)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final, TypeVar

from eventlog.changes.format import Format, Report
from eventlog.core.options import STRING, option, parse_all_options
from eventlog.errors import ConfigError, FormatError, with_location
from eventlog.files import tabular
from eventlog.files.atomic import directory_of, whole_path
from eventlog.files.text import files_in
from eventlog.linter import database
from eventlog.linter.database import PlaceOptions, QueuePoller, SourceOptions
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.linter.rows import (
    ATTRS_TYPES,
    DATA_SIZE,
    QUEUE_TYPES,
    MissingColumn,
    QueueRow,
    TableAttrs,
    Where,
    attrs_of_rows,
    attrs_values,
    blob_attr,
    column_values,
    data_bytes,
    decode_oper_date,
    queue_rows,
    syslog_addr,
    table_attrs,
)
from eventlog.linter.transactions import TYP_TABLES, TypTable
from eventlog.linter.writer import QueueWriter, WriterOptions, first_address, next_address
from eventlog.model import Change
from eventlog.sql.connection import connect_any

_SUFFIXES: Final = (".csv", ".jsonl", ".parquet")


# --- exports ----------------------------------------------------------------------------------------------------------


def export_files(source: Path) -> tuple[list[Path], Path | None]:
    """The queue files of a directory or file by name, and the attrs file beside them, if any. Raises FormatError."""
    directory = source if source.is_dir() else source.parent
    try:
        files = files_in(directory, _SUFFIXES)
    except OSError as error:
        raise FormatError(f"{source} cannot be read: {error.strerror}") from error
    described = [path for path in files if path.stem.casefold() == database.ATTRS]
    if source.is_dir():
        queue = [path for path in files if path not in described]
        if not queue:
            raise FormatError(f"{source} holds no {', '.join(_SUFFIXES)} file with rows of DISPATCH_QUEUE")
    else:
        queue = [source]
    return queue, described[0] if described else None


def read_queue(paths: Iterable[Path]) -> Iterator[QueueRow]:
    """The rows of all files, in the order of the files. Raises FormatError."""
    return chain.from_iterable(rows for path in paths for rows in _tables(path, queue_rows))


def read_attrs(path: Path) -> dict[int, TableAttrs]:
    """The tables by number. Raises FormatError."""
    columns: dict[int, TableAttrs] = {}
    for tables in _tables(path, attrs_of_rows):
        for tabnum, table in tables.items():
            known = columns.get(tabnum)
            columns[tabnum] = table if known is None else table_attrs(tabnum, known.columns + table.columns)
    return columns


Tables = TypeVar("Tables")


def _tables(path: Path, take: Callable[[Sequence[str], Iterator[Sequence[Any]], Where], Tables]) -> Iterator[Tables]:
    """What ``take`` makes of the rows of a file: of names of columns, rows, and where the last row taken stands.

    Objects of JSON lines with the same members are taken together. Raises FormatError.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise FormatError(f"{path} is none of {', '.join(_SUFFIXES)}, in which a queue is exported")
    number = 1

    def where() -> str:
        return f"{path}, {'row' if suffix == '.parquet' else 'line'} {number}"

    def values(rows: tabular.Rows) -> Iterator[Sequence[Any]]:
        nonlocal number
        for number, row in rows:  # noqa: B007  # for ``where``
            if isinstance(row, FormatError):
                raise row
            yield row

    try:
        tables = _objects(path) if suffix == ".jsonl" else ((1, *tabular.read_rows(path)),)
        for number, names, rows in tables:  # noqa: B007
            try:
                yield take(names, values(rows), where)
            except MissingColumn as error:
                raise with_location(error, path if suffix == ".parquet" else where()) from None
    except FileNotFoundError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from error


def _objects(path: Path) -> Iterator[tuple[int, tuple[str, ...], tabular.Rows]]:
    """JSON lines, those with the same members together: the line of the first, the names, the values by their lines."""
    for names, alike in groupby(_members(path), key=lambda numbered: tuple(numbered[1])):
        first = next(alike)
        yield first[0], names, ((number, list(row.values())) for number, row in chain([first], alike))


def _members(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in tabular.read_objects(path):
        if isinstance(row, FormatError):
            raise row
        yield number, row


def write_export(queue: Path, attrs: Path, rows_of_queue: Iterable[QueueRow], tables: Iterable[TableAttrs]) -> None:
    """Write both files; each is whole or not there. Their directory is made, that above must be there.

    Raises what the rows raise, ConfigError, OSError.
    """
    with directory_of(queue), whole_path(str(queue)) as new_queue, whole_path(str(attrs)) as new_attrs:
        _write_rows(new_queue, queue, QUEUE_TYPES, map(column_values, rows_of_queue))
        described = chain.from_iterable(map(attrs_values, tables))
        _write_rows(new_attrs, attrs, ATTRS_TYPES, described)


def _write_rows(path: Path, named: Path, types: Mapping[str, tuple[str, int]], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows to ``path`` in the form that the suffix of ``named`` says."""
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
        else:  # blanks that pad a CHAR stand without quotes, as servers export them
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(names)
            lines.writerows(texts)


# --- the format -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetOptions(PlaceOptions):
    """Options of a target beside those of the writer. The tables of a database are made if they are not there."""

    files: str = option("csv", STRING, "form of the files in a directory: csv, jsonl or parquet")


def read(source: str, place: SourceOptions, options: ReaderOptions, report: Report) -> Iterator[Change]:
    """The changes of an export (a file or a directory) or of a queue in a database (a URL of SQLAlchemy), all that is
    there now. An export is sorted in memory; ``export_reader`` takes one in order.

    Raises ConfigError, FormatError, DatabaseError.
    """
    if "://" in source:
        yield from QueuePoller(connect_any(source), options, report, place).drain()
        return
    queue, beside = export_files(Path(source))
    changes = _export_reader(beside, place, options, report).read(read_queue(queue), final=place.final)
    try:
        yield from changes
    except FormatError as error:
        raise with_location(error, source) from error.__cause__


def export_reader(source: str, options: Mapping[str, Any], report: Report) -> QueueReader:
    """The reader of an export, for rows that are in order already: ``QueueReader.changes``.

    Raises ConfigError, FormatError.
    """
    place, reader_options = parse_all_options(FORMAT.reader_options, options, "the linter reader")
    return _export_reader(export_files(Path(source))[1], place, reader_options, report)


def _export_reader(beside: Path | None, place: SourceOptions, options: ReaderOptions, report: Report) -> QueueReader:
    attrs = place.dispatch_attrs
    described = beside if place.attrs is None else Path(place.attrs)
    if not attrs and described is not None:
        attrs = read_attrs(described)
    return QueueReader(attrs, options, report)


def write(changes: Iterable[Change], target: str, place: TargetOptions, options: WriterOptions, report: Report) -> None:
    """Write changes to a file (.csv, .jsonl, .parquet), to a directory, or behind what the queue of a database holds;
    DISPATCH_ATTRS beside. Whole or not at all.

    Raises ConfigError, FormatError, DatabaseError.
    """
    if "://" in target:
        _write_database(changes, target, place, options, report)
        return
    path = Path(target)
    if path.is_dir() or not path.suffix:
        path = path / f"{database.QUEUE}.{place.files}"
    attrs = path.with_name(f"{database.ATTRS}{path.suffix}") if place.attrs is None else Path(place.attrs)
    for suffix in (path.suffix.lower(), attrs.suffix.lower()):
        if suffix not in _SUFFIXES:
            raise ConfigError(
                f"a Linter queue is written to {', '.join(_SUFFIXES)} files, not to {suffix or 'others'!r}"
            )
    writer = QueueWriter(options, report)
    write_export(path, attrs, writer.rows(changes), writer.attrs.values())


def _write_database(
    changes: Iterable[Change], url: str, place: TargetOptions, options: WriterOptions, report: Report
) -> None:
    with database.database_errors(), connect_any(url).begin() as connection:
        queue, attrs = database.create(connection, place)
        last = database.last_address(connection, queue)
        writer = QueueWriter(options, report, first_address() if last is None else next_address(last, DATA_SIZE))
        database.insert_attrs(connection, attrs, list(writer.attrs.values()))
        database.insert_rows(connection, queue, writer.rows(changes))


FORMAT = Format("linter", read, write, (SourceOptions, ReaderOptions), (TargetOptions, WriterOptions))


# --- the listing ------------------------------------------------------------------------------------------------------

_SHOWN = 32  # bytes a line


def queue_listing(source: str, options: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a file or directory, row by row in the order of the files. Raises ConfigError, FormatError."""
    _, chosen = parse_all_options(FORMAT.reader_options, options, "the linter reader")
    table = TYP_TABLES[chosen.typ_table]
    files, _ = export_files(Path(source))
    for number, row in enumerate(read_queue(files), 1):
        try:
            yield from _row(number, row, table)
        except FormatError as error:
            raise with_location(error, f"{source}, row {number} of the listing") from None


def _row(number: int, row: QueueRow, table: TypTable) -> Iterator[str]:
    file, address = syslog_addr(row.syslog_addr)
    name = table.operations.get(row.typ) or table.ends.get(row.typ, "(unknown)")
    yield f"row {number}  SYSLOG_ADDR {file}:{address}  TYP {row.typ} {name}  transaction {row.transact_id:X}"
    time = decode_oper_date(row.oper_date)
    yield f"    OPER_DATE   {row.oper_date.hex().upper()}  {time} of the server {row.dbnode!r}"
    if row.typ in table.ends:
        return
    destination = ".".join(part for part in row.destination if part)
    yield f"    table       {row.tabnum_src} -> {destination!r}, row id {row.rowid_src}, channel {row.channel}"
    yield f"    lengths     {row.len1} + {row.len2}, piece {row.extdata}"
    if row.blobatr:
        column, blob_type = blob_attr(row.blobatr)
        yield f"    BLOBATR     column {column}, type {blob_type}"
    data = data_bytes(row.data)
    for at in range(0, len(data), _SHOWN):
        yield f"    {at:08x}    {data[at : at + _SHOWN].hex().upper()}"
