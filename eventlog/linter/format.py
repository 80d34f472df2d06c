"""What the converter knows of the Linter queue: files, directories and databases (spec/linter-queue.md)."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventlog.changes.format import CATALOG, CatalogOption, Format, Report
from eventlog.core.options import STRING, Option, check, integer, option, parse_all_options, shared
from eventlog.errors import ConfigError, FormatError, with_location
from eventlog.files.atomic import directory_of, whole_path
from eventlog.files.lines import files_in, numbered_lines, text_of
from eventlog.linter import database
from eventlog.linter.attributes import (
    ATTRS_COLUMNS,
    TableAttrs,
    attrs_of_option,
    attrs_of_rows,
    attrs_values,
    table_attrs,
)
from eventlog.linter.database import QueuePoller
from eventlog.linter.errors import MissingColumn
from eventlog.linter.reader import DISPATCH_ATTRS, QueueReader, ReaderOptions
from eventlog.linter.rows import DATA_SIZE, QUEUE_COLUMNS, QueueRow, column_values, queue_rows
from eventlog.linter.writer import QueueWriter, WriterOptions, first_address, next_address
from eventlog.model import Change
from eventlog.sql.connection import connect_any

ATTRS_STEM: Final = "dispatch_attrs"
QUEUE_STEM: Final = "dispatch_queue"


class Part(NamedTuple):
    """Rows that are read together: the names of their columns and where those stand, the rows, and where the row of an
    index among them stands.
    """

    names: Sequence[str]
    heading: str
    rows: Sequence[Sequence[Any]]
    place: Callable[[int], str]


_ROWS_A_BATCH: Final = 5_000


def export_files(source: Path) -> tuple[list[Path], Path | None]:
    """The queue files of a directory or file by name, and the attrs file beside them, if any. Raises FormatError."""
    directory = source if source.is_dir() else source.parent
    try:
        files = files_in(directory, _READERS)
    except OSError as error:
        raise FormatError(f"{source} cannot be read: {error.strerror}") from error
    described = [path for path in files if path.stem.casefold() == ATTRS_STEM]
    if source.is_dir():
        queue = [path for path in files if path not in described]
        if not queue:
            raise FormatError(f"{source} holds no {', '.join(_READERS)} file with rows of DISPATCH_QUEUE")
    else:
        queue = [source]
    return queue, described[0] if described else None


def read_queue(paths: Iterable[Path]) -> Iterator[QueueRow]:
    """The rows of all files, in the order of the files. Raises FormatError."""
    return chain.from_iterable(_queue_rows(part) for path in paths for part in _parts(path))


def _queue_rows(part: Part) -> Iterator[QueueRow]:
    try:
        return queue_rows(part.names, part.rows, part.place)
    except FormatError as error:
        raise with_location(error, part.heading) from None


def read_attrs(path: Path) -> dict[int, TableAttrs]:
    """The tables by number. Raises FormatError."""
    columns: dict[int, TableAttrs] = {}
    for part in _parts(path):
        try:
            tables = attrs_of_rows(part.names, part.rows, part.place)
        except MissingColumn as error:
            raise with_location(error, part.heading) from None
        for tabnum, table in tables.items():
            known = columns.get(tabnum)
            columns[tabnum] = table if known is None else table_attrs(tabnum, known.columns + table.columns)
    return columns


def _parts(path: Path) -> Iterator[Part]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise FormatError(f"{path} is none of {', '.join(_READERS)}, in which a queue is exported")
    try:
        yield from reader(path)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # of Arrow
        raise FormatError(f"{path} cannot be read: {error}") from error


def _place(what: str, numbers: Sequence[int], index: int) -> str:
    return f"{what} {numbers[index]}"


def _read_csv(path: Path) -> Iterator[Part]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        try:
            names = next(lines, None)
            rows = _whole(lines, names or [], path)
            while several := list(islice(rows, _ROWS_A_BATCH)):
                place = partial(_place, f"{path}, line", [number for number, _ in several])
                yield Part(names or [], f"{path}, line 1", [row for _, row in several], place)
        except (csv.Error, UnicodeDecodeError) as error:
            raise FormatError(f"{path}, at or behind line {lines.line_num}: no CSV in UTF-8: {error}") from None


def _whole(lines: Any, names: list[str], path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a reader of CSV with the numbers of their lines."""
    for row in lines:
        if len(row) == len(names):
            yield lines.line_num, row
        elif row:
            raise FormatError(f"{path}, line {lines.line_num}: {len(row)} values for {len(names)} columns")


def _read_jsonl(path: Path) -> Iterator[Part]:
    with path.open("rb") as file:
        objects = ((number, _object(line, f"{path}, line {number}")) for number, line in numbered_lines(file, path))
        while several := list(islice(objects, _ROWS_A_BATCH)):
            for names, alike in groupby(several, key=lambda numbered: tuple(numbered[1])):
                numbers, values = zip(*alike, strict=True)
                place = partial(_place, f"{path}, line", numbers)
                yield Part(names, place(0), [tuple(one.values()) for one in values], place)


def _object(line: bytes, place: str) -> dict[str, Any]:
    try:
        value = json.loads(text_of(line))
    except FormatError as error:
        raise with_location(error, place) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{place}: no JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{place}: no JSON object")
    return value


def _read_parquet(path: Path) -> Iterator[Part]:
    arrow = _pyarrow()
    number = 0
    try:
        with arrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS_A_BATCH):
                rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
                numbers = range(number + 1, number + 1 + len(rows))
                yield Part(batch.schema.names, str(path), rows, partial(_place, f"{path}, row", numbers))
                number += len(rows)
    except FileNotFoundError:
        raise
    except (arrow.ArrowException, OSError) as error:  # OSError: a page that cannot be unpacked
        raise FormatError(f"{path}, behind row {number}: no Parquet that can be read: {error}") from error


_READERS: Final[Mapping[str, Callable[[Path], Iterator[Part]]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow, which is not installed: pip install 'eventlog-publisher[parquet]'"
        ) from None
    return pyarrow


# --- writing ----------------------------------------------------------------------------------------------------------


def check_suffix(suffix: str) -> None:
    """Whether files of this suffix can be written. Raises ConfigError."""
    if suffix not in _WRITERS:
        raise ConfigError(f"a Linter queue is written to {', '.join(_WRITERS)} files, not to {suffix or 'others'!r}")


def write_export(queue: Path, attrs: Path, rows_of_queue: Iterable[QueueRow], tables: Iterable[TableAttrs]) -> None:
    """Write both files; each is whole or not there. Their directory is made, that above must be there.

    Raises what the rows raise, ConfigError, OSError.
    """
    with directory_of(queue), whole_path(str(queue)) as new_queue, whole_path(str(attrs)) as new_attrs:
        _WRITERS[queue.suffix.lower()](new_queue, QUEUE_COLUMNS, map(column_values, rows_of_queue), _QUEUE_TYPES)
        values = chain.from_iterable(map(attrs_values, tables))
        _WRITERS[attrs.suffix.lower()](new_attrs, ATTRS_COLUMNS, values, _ATTRS_TYPES)


def _text(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _write_csv(path: Path, names: Sequence[str], values: Iterable[Sequence[Any]], _types: Sequence[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(names)
        lines.writerows(map(_text, row) for row in values)


def _write_jsonl(path: Path, names: Sequence[str], values: Iterable[Sequence[Any]], _types: Sequence[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in values:
            line = dict(zip(names, map(_text, row), strict=True))
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


_QUEUE_TYPES: Final = (
    "binary", "int16", "string", "int64", "int64", "int16", "int16", "int32", "int32", "int32", "int32", "int32",
    "string", "string", "string", "binary",
)  # fmt: skip
_ATTRS_TYPES: Final = ("int32", "string", "int16", "int16", "int16", "int32")


def _write_parquet(path: Path, names: Sequence[str], values: Iterable[Sequence[Any]], types: Sequence[str]) -> None:
    arrow = _pyarrow()
    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in zip(names, types, strict=True)])
    left = iter(values)
    with arrow.parquet.ParquetWriter(path, schema) as file:
        while several := list(islice(left, _ROWS_A_BATCH)):
            columns = [
                arrow.array(column, field.type)
                for column, field in zip(zip(*several, strict=True), schema, strict=True)
            ]
            file.write_batch(arrow.RecordBatch.from_arrays(columns, schema=schema))


_WRITERS: Final[Mapping[str, Callable[[Path, Sequence[str], Iterable[Sequence[Any]], Sequence[str]], None]]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}


_ATTRS: Final = Option(None, STRING, "the file of DISPATCH_ATTRS, if it does not lie beside the queue")
_QUEUE_TABLE: Final = Option(database.QUEUE, STRING, "the queue in a database")
_ATTRS_TABLE: Final = Option(database.ATTRS, STRING, "the description of its tables")
_SCHEMA: Final = Option(None, STRING, "schema of both")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a source beside those of the reader.

    ``catalog`` may be given, since a conversion gives it to both sides: a queue describes its tables itself.
    """

    attrs: str | None = shared(_ATTRS)
    dispatch_attrs: Mapping[Any, Sequence[Mapping[str, Any]]] = shared(DISPATCH_ATTRS)
    queue_table: str = shared(_QUEUE_TABLE)
    attrs_table: str = shared(_ATTRS_TABLE)
    schema: str | None = shared(_SCHEMA)
    batch_rows: int = option(10_000, integer(1), "rows of a database that are read at once")
    catalog: CatalogOption = shared(CATALOG)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Options of a target beside those of the writer. The tables of a database are made if they are not there."""

    files: str = option("csv", STRING, "csv, jsonl or parquet: what is written to a directory")
    attrs: str | None = shared(_ATTRS)
    queue_table: str = shared(_QUEUE_TABLE)
    attrs_table: str = shared(_ATTRS_TABLE)
    schema: str | None = shared(_SCHEMA)

    def __post_init__(self) -> None:
        check(self)


def read(source: str, options: Mapping[str, Any], report: Report) -> Iterator[Change]:
    """The changes of an export (a file or a directory) or of a queue in a database (a URL of SQLAlchemy), all that is
    there now. An export is sorted in memory; ``export_reader`` takes one in order.

    Raises ConfigError, FormatError, DatabaseError.
    """
    place, reader_options = _reader_options(options)
    for change in _changes(source, place, reader_options, report):
        report.read += 1
        yield change


def _changes(source: str, place: SourceOptions, options: ReaderOptions, report: Report) -> Iterator[Change]:
    if "://" in source:
        poller = QueuePoller(
            connect_any(source),
            options,
            report,
            queue_table=place.queue_table,
            attrs_table=place.attrs_table,
            schema=place.schema,
            batch_rows=place.batch_rows,
            attrs=attrs_of_option(place.dispatch_attrs) or None,
        )
        return poller.drain()
    queue, beside = export_files(Path(source))
    reader = _export_reader(beside, place, options, report)
    return _of_export(source, reader.read(read_queue(queue)))


def _of_export(source: str, changes: Iterator[Change]) -> Iterator[Change]:
    """The changes, errors with the name of the export; the rows are read already."""
    try:
        yield from changes
    except FormatError as error:
        raise with_location(error, source) from error.__cause__


def export_reader(source: str, options: Mapping[str, Any], report: Report) -> QueueReader:
    """The reader of an export, for rows that are in order already: ``QueueReader.changes``.

    Raises ConfigError, FormatError.
    """
    place, reader_options = _reader_options(options)
    return _export_reader(export_files(Path(source))[1], place, reader_options, report)


def _export_reader(beside: Path | None, place: SourceOptions, options: ReaderOptions, report: Report) -> QueueReader:
    given = attrs_of_option(place.dispatch_attrs)
    described = beside if place.attrs is None else Path(place.attrs)
    if not given and described is not None:
        given = read_attrs(described)
    return QueueReader(given, options, report)


def write(changes: Iterable[Change], target: str, options: Mapping[str, Any], report: Report) -> None:
    """Write changes to a file (.csv, .jsonl, .parquet), to a directory, or behind what the queue of a database holds;
    DISPATCH_ATTRS beside. Whole or not at all.

    Raises ConfigError, FormatError, DatabaseError.
    """
    place, writer_options = parse_all_options((TargetOptions, WriterOptions), options, "the writer of linter")
    if "://" in target:
        _write_database(changes, target, place, writer_options, report)
        return
    path = Path(target)
    if path.is_dir() or not path.suffix:
        path = path / f"{QUEUE_STEM}.{place.files}"
    attrs = path.with_name(f"{ATTRS_STEM}{path.suffix}") if place.attrs is None else Path(place.attrs)
    for one in (path, attrs):
        check_suffix(one.suffix.lower())
    writer = QueueWriter(writer_options, report)
    write_export(path, attrs, writer.rows(changes), writer.attrs.values())


def _write_database(
    changes: Iterable[Change], url: str, place: TargetOptions, options: WriterOptions, report: Report
) -> None:
    with database.database_errors(), connect_any(url).begin() as connection:
        queue, attrs = database.create(
            connection, queue=place.queue_table, attrs=place.attrs_table, schema=place.schema
        )
        last = database.last_address(connection, queue)
        writer = QueueWriter(options, report, first_address() if last is None else next_address(last, DATA_SIZE))
        database.insert_attrs(connection, attrs, list(writer.attrs.values()))
        database.insert_rows(connection, queue, writer.rows(changes))


def _reader_options(options: Mapping[str, Any]) -> list[Any]:
    return parse_all_options((SourceOptions, ReaderOptions), {"final": True, **options}, "the reader of linter")


FORMAT = Format("linter", read, write)
