"""Flat rows in files: CSV, JSON lines, Parquet (spec/qlik.md 1.1, the file targets)."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TextIO, cast

from eventlog.errors import ConfigError, FormatError, ValueRange, with_location
from eventlog.files.lines import goes_on, numbered_lines, parsed_json, pretty_printed
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.csv_lines import Line, read_lines, write_line
from eventlog.qlik.stored_values import Convert, row_converter, text_writer, timestamp_text, typed_writer

SUFFIXES: Final = {"csv": ".csv", "json": ".jsonl", "parquet": ".parquet"}
"""File names by the option ``file_format``."""

_FORMATS: Final = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
COMPRESSED: Final = (".gz", ".zst")
"""What the names of compressed files end in."""

_NOT_READ: Final = frozenset({".gz", ".zst", ".bz2", ".xz", ".lz4", ".lzo", ".snappy", ".deflate", ".z", ".zip"})
_ROWS_OF_A_GROUP: Final = 20_000
_ROWS_READ_TOGETHER: Final = 10_000

WriteRow = Callable[[Sequence[Any]], None]
"""Writes one row, as ``converter`` has made it."""


class FileColumn(NamedTuple):
    """A column of a file. ``is_moment``: a header timestamp, which Parquet holds with its zone, UTC."""

    column: QlikColumn
    is_moment: bool = False


def format_of(path: Path) -> str | None:
    """The file format that a name stands for, of compressed CSV and JSON too; None = no file of rows."""
    if path.name.endswith(COMPRESSED):
        file_format = _FORMATS.get(Path(path.stem).suffix.lower())
        return None if file_format == "parquet" else file_format  # which compresses inside
    return _FORMATS.get(path.suffix.lower())


def is_packed(path: Path) -> bool:
    """Whether a name stands for rows in a compression that is not read, which would be missed without a word."""
    is_named = path.suffix.lower() in _NOT_READ and Path(path.stem).suffix.lower() in _FORMATS
    return is_named and format_of(path) is None


def refuse_packed(path: Path) -> None:
    """Raises FormatError for ``is_packed``."""
    if is_packed(path):
        raise FormatError(
            f"{path} is compressed in a way that is not read: CSV and JSON may end in {' or '.join(COMPRESSED)}, in "
            f"small letters, and Parquet compresses inside; decompress it"
        )


def bare_name(path: Path) -> str:
    """The name of a file of rows without what says its format and its compression."""
    return Path(path.stem).stem if path.suffix.lower() in _NOT_READ else path.stem


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """The content of a file, decompressed as its name says. Raises FormatError, ConfigError."""
    with _reading(path):
        if path.suffix == ".zst":
            arrow, _ = _pyarrow()
            try:
                with path.open("rb") as file, arrow.CompressedInputStream(file, "zstd") as plain:
                    yield cast("BinaryIO", io.BufferedReader(plain))
            except arrow.ArrowException as error:
                raise FormatError(f"{path} cannot be read: {error}") from None
        else:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as content:
                yield cast("BinaryIO", content)


# --- reading ----------------------------------------------------------------------------------------------------------

Stored = list[Any] | FormatError
"""The values of a record in the order of the columns, or why there are none."""


def read_part(path: Path) -> tuple[tuple[str, ...], Iterator[Stored]]:
    """The column names and records of a file: text, in JSON and Parquet typed values. Both raise FormatError,
    ConfigError for a file that cannot be read further.
    """
    match format_of(path):
        case "csv":
            return _read_csv(path)
        case "json":
            return _read_json(path)
        case _:
            return _read_parquet(path)


def _read_csv(path: Path) -> tuple[tuple[str, ...], Iterator[Stored]]:
    lines = _csv_lines(path)
    first = next(lines, [])
    if isinstance(first, FormatError):
        raise first
    names = tuple(name or "" for name in first)
    return names, _of_width(len(names), lines, path)


def _csv_lines(path: Path) -> Iterator[Line | FormatError]:
    with open_bytes(path) as content, io.TextIOWrapper(content, "utf-8-sig", newline="") as text:
        yield from read_lines(text, path.name)


def _of_width(width: int, rows: Iterator[Line | FormatError], path: Path) -> Iterator[Stored]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, FormatError) and len(row) != width:
            yield FormatError(f"{path}: record {number} has {len(row)} values, and the file {width} columns")
        else:
            yield row


def _read_json(path: Path) -> tuple[tuple[str, ...], Iterator[Stored]]:
    # Objects may leave members out, so the file is read for its names before it is read for its rows.
    names: dict[str, None] = {}
    error: FormatError | None = None
    for value in _json_objects(path):
        if isinstance(value, FormatError):
            error = error or value
        elif not value.keys() <= names.keys():
            names.update(dict.fromkeys(value))
    if error is not None and not names:
        raise error
    return tuple(names), _json_rows(path, tuple(names))


def _json_rows(path: Path, names: Sequence[str]) -> Iterator[Stored]:
    for value in _json_objects(path):
        yield value if isinstance(value, FormatError) else [value.get(name) for name in names]


def first_names(path: Path) -> tuple[str, ...]:
    """The names of the first object of a file of JSON lines. Raises FormatError."""
    return next((tuple(value) for value in _json_objects(path) if isinstance(value, dict)), ())


def _json_objects(path: Path) -> Iterator[dict[str, Any] | FormatError]:
    with open_bytes(path) as content:
        for number, line in numbered_lines(content, path):
            place = f"{path}, line {number}"
            try:
                yield json_object(line)
            except FormatError as error:
                if number == 1 and goes_on(line):
                    raise pretty_printed(place) from None
                yield with_location(error, place)


def json_object(line: str | bytes) -> dict[str, Any]:
    """The members of an object in a line of JSON. Raises FormatError."""
    value = parsed_json(line)
    if not isinstance(value, dict):
        raise FormatError("no JSON object")
    return value


def _read_parquet(path: Path) -> tuple[tuple[str, ...], Iterator[Stored]]:
    arrow, parquet = _pyarrow()
    with _reading(path):
        try:
            names = tuple(parquet.read_schema(path).names)
        except (arrow.ArrowException, ValueError) as error:
            raise FormatError(f"{path} is no Parquet file: {error}") from None
    return names, _parquet_rows(path)


def _parquet_rows(path: Path) -> Iterator[Stored]:
    arrow, parquet = _pyarrow()
    with _reading(path):
        try:
            with parquet.ParquetFile(path) as file:
                number = 0
                for batch in file.iter_batches(_ROWS_READ_TOGETHER):
                    yield from batch_rows(batch, path, number)
                    number += batch.num_rows
        except (arrow.ArrowException, ValueError) as error:
            raise FormatError(f"{path} is no Parquet file: {error}") from None


_NO_VALUE: Final = (ValueError, OverflowError, TypeError, ArithmeticError)
"""What Arrow raises for a value that Python does not have: text that is not UTF-8, a day after the year 9999."""


def batch_rows(batch: Any, place: object, before: int = 0) -> Iterator[Stored]:
    """The rows of an Arrow batch; ``place`` is for messages, ``before`` how many rows come before it there."""
    try:
        columns = [column.to_pylist() for column in batch.columns]
    except _NO_VALUE:
        for number in range(batch.num_rows):
            yield _parquet_row(batch, number, f"{place}: record {before + number + 1}")
    else:
        yield from map(list, zip(*columns, strict=True))


def _parquet_row(batch: Any, number: int, place: str) -> Stored:
    """A row of a batch in which there is a value that cannot be read."""
    values = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values.append(column[number].as_py())
        except _NO_VALUE as error:
            return FormatError(f"{place}: column {name!r} has no value that can be read: {error}")
    return values


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeError, EOFError, zlib.error) as error:
        raise FormatError(f"{path} cannot be read: {error}") from error


# --- writing ----------------------------------------------------------------------------------------------------------


def converter(file_format: str, columns: Sequence[FileColumn], what: str) -> Callable[[Sequence[Any]], list[Any]]:
    """The function that gives the values of a row, in the order of ``columns``, as files of a format hold them.

    ``what`` is the table, for errors. The function raises ValueRange, NotExpressible.
    """
    one = _arrow_converter if file_format == "parquet" else _text_converter
    return row_converter(list(map(one, columns)), [f"{what}.{column.column.name}" for column in columns])


@contextmanager
def open_part(path: Path, file_format: str, columns: Sequence[FileColumn]) -> Iterator[WriteRow]:
    """A new file, whole when the block has ended; gives the function that writes a row.

    Raises ConfigError where pyarrow is missing, ValueRange for what Parquet cannot hold.
    """
    if file_format == "parquet":
        with _open_parquet(path, columns) as write:
            yield write
        return
    names = [one.column.name for one in columns]
    with path.open("x", encoding="utf-8", newline="") as file:
        if file_format == "csv":
            file.write(write_line(names))
            yield lambda row: _write_csv(file, row)
        else:
            yield lambda row: _write_json(file, names, row)


def _write_csv(file: TextIO, values: Sequence[str | None]) -> None:
    file.write(write_line(values))


def _write_json(file: TextIO, names: Sequence[str], values: Sequence[str | None]) -> None:
    file.write(json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False, separators=(",", ":")) + "\n")


def _text_converter(column: FileColumn) -> Convert:
    return timestamp_text if column.is_moment else text_writer(column.column)


def arrow_type(column: FileColumn) -> Any:
    """The Arrow type of a column of a Parquet file. Raises ConfigError where pyarrow is missing."""
    arrow, _ = _pyarrow()
    return _arrow_type(arrow, column)


@contextmanager
def _open_parquet(path: Path, columns: Sequence[FileColumn]) -> Iterator[WriteRow]:
    arrow, parquet = _pyarrow()
    fields = [(one.column.name, _arrow_type(arrow, one)) for one in columns]
    schema = arrow.schema(fields)
    group: list[Sequence[Any]] = []

    with parquet.ParquetWriter(path, schema) as writer:

        def flush() -> None:
            columns = zip(fields, zip(*group, strict=True), strict=True)
            arrays = [_arrow_array(arrow, name, type, values) for (name, type), values in columns]
            writer.write_batch(arrow.record_batch(arrays, schema=schema))
            group.clear()

        def write(row: Sequence[Any]) -> None:
            group.append(row)
            if len(group) >= _ROWS_OF_A_GROUP:
                flush()

        yield write
        if group:
            flush()


def _arrow_array(arrow: Any, name: str, type: Any, values: Sequence[Any]) -> Any:
    try:
        return arrow.array(values, type)
    except (arrow.ArrowException, OverflowError) as error:
        raise ValueRange(f"a value of column {name!r} does not fit into its Parquet type {type}: {error}") from None


_PLAIN_ARROW: Final = {
    "DATE": "date32",
    "BOOLEAN": "bool_",
    "REAL4": "float32",
    "REAL8": "float64",
    "INT1": "int8",
    "INT2": "int16",
    "INT4": "int32",
    "INT8": "int64",
    "UINT1": "int16",
    "UINT2": "int32",
    "UINT4": "int64",
    "BYTES": "binary",
    "BLOB": "binary",
}
_MOST_DIGITS: Final = 38


def _arrow_type(arrow: Any, one: FileColumn) -> Any:
    """The Arrow type of a column, such that Spark reads it too; a NUMERIC without known digits is text."""
    column = one.column
    if one.is_moment:
        return arrow.timestamp("us", tz="UTC")
    match column.type:
        case "DATETIME":
            return arrow.timestamp("us")
        case "TIME":
            return arrow.time64("us")
        case "NUMERIC" if _has_digits(column):
            return arrow.decimal128(column.precision, column.scale)
        case "UINT8":
            return arrow.decimal128(20, 0)
        case _:
            return getattr(arrow, _PLAIN_ARROW.get(column.type, "string"))()


def _has_digits(column: QlikColumn) -> bool:
    return 0 < column.precision <= _MOST_DIGITS and column.scale <= column.precision


def _arrow_converter(one: FileColumn) -> Convert:
    if one.is_moment:
        return _aware
    if one.column.type == "NUMERIC" and not _has_digits(one.column):
        return text_writer(one.column)
    return _arrow_decimal(one.column) if one.column.type == "NUMERIC" else typed_writer(one.column)


def _arrow_decimal(column: QlikColumn) -> Convert:
    """Parquet's decimals are numbers: NaN and infinity are none."""
    write_any = typed_writer(column)

    def write(value: Any) -> Any:
        if type(value) is Decimal and value.is_finite():
            return value
        number = write_any(value)
        if not number.is_finite():
            raise ValueRange(f"{number} of column {column.name!r} is no number, which Parquet's decimals are")
        return number

    return write


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            "Parquet files, and those in .zst, need pyarrow: install eventlog-publisher[parquet]"
        ) from None
    return pyarrow, pyarrow.parquet
