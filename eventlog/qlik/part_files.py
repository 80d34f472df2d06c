"""Flat rows in files: CSV, JSON lines, Parquet (spec/qlik.md 1.1, the file targets)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from eventlog.errors import ConfigError, FormatError, ValueRange
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.csv_lines import read_lines, write_line
from eventlog.qlik.stored_values import Convert, row_converter, text_writer, timestamp_text, typed_writer

SUFFIXES: Final = {"csv": ".csv", "json": ".jsonl", "parquet": ".parquet"}
"""File names by the option ``file_format``."""

_FORMATS: Final = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_ROWS_OF_A_GROUP: Final = 20_000
_ROWS_READ_TOGETHER: Final = 10_000

WriteRow = Callable[[Sequence[Any]], None]
"""Writes one row, as ``converter`` has made it."""


class FileColumn(NamedTuple):
    """A column of a file. ``is_moment``: a header timestamp, which Parquet holds with its zone, UTC."""

    column: QlikColumn
    is_moment: bool = False


def format_of(path: Path) -> str | None:
    """The file format that a name stands for; None = no file of rows."""
    return _FORMATS.get(path.suffix.lower())


# --- reading ----------------------------------------------------------------------------------------------------------


def read_part(path: Path) -> tuple[tuple[str, ...], Iterator[list[Any]]]:
    """The column names and rows of a file: text, in Parquet typed values. Both raise FormatError, ConfigError."""
    match format_of(path):
        case "csv":
            return _read_csv(path)
        case "json":
            return _read_json(path)
        case _:
            return _read_parquet(path)


def _read_csv(path: Path) -> tuple[tuple[str, ...], Iterator[list[Any]]]:
    lines = _csv_lines(path)
    names = tuple(name or "" for name in next(lines, []))
    return names, _of_width(len(names), lines, path)


def _csv_lines(path: Path) -> Iterator[list[Any]]:
    with _reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        yield from read_lines(file, path.name)


def _of_width(width: int, rows: Iterator[list[Any]], path: Path) -> Iterator[list[Any]]:
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise FormatError(f"{path}: record {number} has {len(row)} values, and the file {width} columns")
        yield row


def _read_json(path: Path) -> tuple[tuple[str, ...], Iterator[list[Any]]]:
    # Objects may leave members out, so the file is read for its names before it is read for its rows.
    names = tuple(dict.fromkeys(name for value in _json_objects(path) for name in value))
    return names, ([value.get(name) for name in names] for value in _json_objects(path))


def _json_objects(path: Path) -> Iterator[dict[str, Any]]:
    with _reading(path), path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FormatError(f"{path}, line {number}: no JSON: {error}") from None
            if not isinstance(value, dict):
                raise FormatError(f"{path}, line {number}: no JSON object")
            yield value


def _read_parquet(path: Path) -> tuple[tuple[str, ...], Iterator[list[Any]]]:
    arrow, parquet = _pyarrow()
    with _reading(path):
        try:
            names = tuple(parquet.read_schema(path).names)
        except arrow.ArrowException as error:
            raise FormatError(f"{path} is no Parquet file: {error}") from None
    return names, _parquet_rows(path)


def _parquet_rows(path: Path) -> Iterator[list[Any]]:
    arrow, parquet = _pyarrow()
    with _reading(path):
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(_ROWS_READ_TOGETHER):
                    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        yield list(row)
        except arrow.ArrowException as error:
            raise FormatError(f"{path} is no Parquet file: {error}") from None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeError) as error:
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
    return typed_writer(one.column)


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError("Parquet files need pyarrow: install eventlog-publisher[spark]") from None
    return pyarrow, pyarrow.parquet
