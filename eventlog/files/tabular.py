"""Rows in files, independent of event logs: CSV that distinguishes NULL from the empty text, JSON
lines, Parquet.

In CSV, NULL is an empty field without quotes, and the empty text is ``""``, as PostgreSQL's COPY
writes it. Otherwise the files follow RFC 4180. Files are written with LF, and read with LF or CR
LF. The first line has the names of the columns. Python's ``csv`` cannot distinguish NULL from the
empty text. Reading a record takes time in proportion to its length, whatever it contains.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, cast

from eventlog.core.extras import install_command
from eventlog.errors import ConfigError, FormatError, NotExpressible, number_of, with_location
from eventlog.files import compression
from eventlog.files.parquet_pages import rows_together
from eventlog.files.text import (
    LONGEST,
    continues,
    numbered_lines,
    parsed_json,
    pretty_printed,
    text_of,
)
from eventlog.model import JsonDict, Names

FORMATS: Final = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
"""The formats of files by their suffixes in small letters."""

SUFFIXES: Final = {"csv": ".csv", "json": ".jsonl", "parquet": ".parquet"}
"""The suffixes of new files by their formats."""

_PACKED: Final = frozenset(
    {".gz", ".zst", ".bz2", ".xz", ".lz4", ".lzo", ".snappy", ".deflate", ".z", ".zip"}
)

_LONGEST_PACKED: Final = 8 << 20
"""The number of bytes or characters of the longest line of a compressed file."""

MOST_MEMBERS: Final = 5000
"""The number of different members of the objects in a file of JSON lines."""

_MOST_EXPANDED: Final = 256
_LEAST_UNPACKED: Final = 1 << 20
"""The content of a compressed file has at most this number of bytes, and ``_MOST_EXPANDED`` times
the bytes of the file.
"""

Row: TypeAlias = "list[Any] | FormatError"
"""The values of a record in the order of the columns, or an error if the record cannot be read."""

Rows: TypeAlias = Iterator[tuple[int, Row]]
"""Rows with their numbers from 1: the number of the line, or in Parquet the number of the row."""


class CutOff(FormatError):
    """The last record of a CSV file that ends within quotes."""


# --- names ----------------------------------------------------------------------------------------


def format_of(path: Path) -> str | None:
    """Return ``csv``, ``json`` or ``parquet`` by a file's name; None for other files. Files of CSV
    and JSON may be compressed.
    """
    if path.name.endswith(compression.SUFFIXES):
        file_format = FORMATS.get(Path(path.stem).suffix.lower())
        return None if file_format == "parquet" else file_format  # Parquet compresses inside
    return FORMATS.get(path.suffix.lower())


def is_packed(path: Path) -> bool:
    """Return True if the name belongs to a file of rows with a compression that is not supported,
    so that the file is not silently ignored.
    """
    is_named = path.suffix.lower() in _PACKED and Path(path.stem).suffix.lower() in FORMATS
    return is_named and format_of(path) is None


def refuse_packed(path: Path) -> None:
    """Raise FormatError if the file has a compression that is not supported."""
    if is_packed(path):
        raise FormatError(
            f"{path} has an unsupported compression: decompress it. CSV and JSON files may end in "
            f"{' or '.join(compression.SUFFIXES)} (lower case), and Parquet compresses inside the "
            "file"
        )


def bare_name(path: Path) -> str:
    """Return the name of a file of rows without the suffixes of format and compression."""
    return Path(path.stem).stem if path.suffix.lower() in _PACKED else path.stem


# --- reading --------------------------------------------------------------------------------------


def read_rows(path: Path) -> tuple[Names, Rows]:
    """Return the column names of a file, and its rows: texts in CSV, typed values in JSON and
    Parquet.

    A file of JSON lines is read twice, since a row may lack members. Both the call and the
    iteration over the rows raise FormatError or ConfigError for a file that cannot be read further,
    and FileNotFoundError.
    """
    match format_of(path):
        case "csv":
            return read_csv(path)
        case "json":
            names = _member_names(path)
            return names, _rows_of_objects(path, names)
        case _:
            return read_parquet(path)


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open the content of a file, decompressed by the suffix of its name.

    Raises FormatError, ConfigError, FileNotFoundError.
    """
    with _reading(path):
        if path.suffix == ".zst":
            arrow = pyarrow()
            try:
                with path.open("rb") as file, arrow.CompressedInputStream(file, "zstd") as plain:
                    yield cast("BinaryIO", io.BufferedReader(_Unpacked(plain, path)))
            except arrow.ArrowException as error:
                raise FormatError(f"{path} cannot be read: {error}") from None
        elif path.suffix == ".gz":
            with gzip.open(path) as plain:
                yield cast("BinaryIO", io.BufferedReader(_Unpacked(plain, path)))
        else:
            with path.open("rb") as content:
                yield content


class _Unpacked(io.RawIOBase):
    """The decompressed content of a file. Reading raises FormatError where the content becomes
    too long for the size of the file.
    """

    def __init__(self, content: Any, path: Path) -> None:
        self._read, self._path = content.read, path
        self._left = _LEAST_UNPACKED + _MOST_EXPANDED * path.stat().st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data: bytes = self._read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise FormatError(
                f"{self._path}: its content is more than {_MOST_EXPANDED} times as long as the "
                "file; if this is expected, decompress the file"
            )
        buffer[: len(data)] = data
        return len(data)


def _longest_line(path: Path) -> int:
    return _LONGEST_PACKED if path.suffix in compression.SUFFIXES else LONGEST


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, UnicodeError, EOFError, zlib.error) as error:
        raise FormatError(f"{path} cannot be read: {error}") from error


# --- CSV


def read_csv(path: Path) -> tuple[Names, Rows]:
    """Return the names in the first line of a CSV file, and the records after this line.

    Raises as ``read_rows`` does.
    """
    records = _csv_file(path)
    _, first = next(records, (1, []))
    if isinstance(first, FormatError):
        raise first
    names = tuple(name or "" for name in first)
    return names, _check_widths(len(names), records, path)


def _csv_file(path: Path) -> Rows:
    with (
        open_bytes(path) as content,
        io.TextIOWrapper(content, "utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        yield from csv_records(text, path, _longest_line(path))


def _check_widths(width: int, records: Rows, path: Path) -> Rows:
    for number, row in records:
        if not isinstance(row, FormatError) and len(row) != width:
            error = FormatError(
                f"{path}, line {number}: {number_of(len(row), 'field')}, but the first line names "
                f"{width}"
            )
            yield number, error
        else:
            yield number, row


def csv_records(file: io.TextIOBase, name: object, longest: int = LONGEST) -> Rows:
    """Yield the records of a text with the numbers of the lines where they begin; blank lines are
    left out.

    ``file`` is opened with ``newline=""`` and ``errors="surrogateescape"``; ``name`` is for
    messages. Surrogates in UTF-8, as we write them, are accepted. Raises FormatError for a record
    that is too long.
    """
    lines: list[str] = []
    begun, length, is_quoted = 1, 0, False
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), ""), 1):
        lines.append(line)
        length += len(line)
        if length > longest:
            raise FormatError(
                f"{name}, line {begun}: longer than {longest} characters; check whether a quote is "
                "not closed"
            )
        is_quoted ^= line.count('"') % 2 == 1
        if is_quoted:  # the line break lies within quotes
            continue
        record = (line if len(lines) == 1 else "".join(lines)).rstrip("\r\n")
        if record:
            yield begun, _fields(record, name, begun)
        lines, begun, length = [], number + 1, 0
    if lines:
        yield begun, CutOff(f"{name}, line {begun}: a quoted field has no end")


_FIELD: Final = re.compile(r'(?:"((?:[^"]++|"")*+)"|([^",]*+))(,|\Z)')


def _fields(record: str, name: object, number: int) -> Row:
    if not record.isascii():
        try:  # bytes that are not UTF-8 are surrogates here (surrogateescape)
            record = record.encode("utf-8", "surrogateescape").decode("utf-8", "surrogatepass")
        except UnicodeError:
            return FormatError(f"{name}, line {number}: the text is not UTF-8")
    if '"' not in record:
        return [field or None for field in record.split(",")]
    values: list[Any] = []
    at = 0
    while True:
        match = _FIELD.match(record, at)
        if match is None:
            return FormatError(f'{name}, line {number}: a quote (") is not allowed here')
        quoted, bare, end = match.groups()
        values.append(quoted.replace('""', '"') if quoted is not None else bare or None)
        if not end:
            return values
        at = match.end()


# --- JSON lines


def read_json_objects(path: Path) -> Iterator[tuple[int, JsonDict | FormatError]]:
    """Yield the objects of JSON lines with the numbers of their lines; numbers with a point are
    Decimal.

    Raises as ``read_rows`` does, also for pretty-printed JSON, whose values span several lines.
    """
    with open_bytes(path) as content:
        for number, line in numbered_lines(content, path, _longest_line(path)):
            try:
                yield number, json_object(line)
            except FormatError as error:
                place = f"{path}, line {number}"
                if number == 1 and continues(line):
                    raise pretty_printed(place) from None
                yield number, with_location(error, place)


def json_object(line: str | bytes) -> JsonDict:
    """Return the members of an object in a line of JSON. Raises FormatError."""
    value = parsed_json(text_of(line) if isinstance(line, bytes) else line)
    if not isinstance(value, dict):
        raise FormatError(f"a row must be a JSON object, not {type(value).__name__}")
    return value


def first_names(path: Path) -> Names:
    """Return the member names of the first object of JSON lines. Raises as ``read_rows`` does."""
    return next(
        (tuple(value) for _, value in read_json_objects(path) if isinstance(value, dict)), ()
    )


def _member_names(path: Path) -> Names:
    names: dict[str, None] = {}
    error: FormatError | None = None
    for number, value in read_json_objects(path):
        if isinstance(value, FormatError):
            error = error or value
        elif not value.keys() <= names.keys():
            names.update(dict.fromkeys(value))
            if len(names) > MOST_MEMBERS:
                raise FormatError(
                    f"{path}, line {number}: by here, the objects have more than {MOST_MEMBERS} "
                    "different members; check that this is a file of the rows of one table"
                )
    if error is not None and not names:
        raise error
    return tuple(names)


def _rows_of_objects(path: Path, names: Sequence[str]) -> Rows:
    for number, value in read_json_objects(path):
        yield (
            number,
            value if isinstance(value, FormatError) else [value.get(name) for name in names],
        )


# --- Parquet

_NO_VALUE: Final = (ValueError, OverflowError, TypeError, ArithmeticError)
"""The errors that Arrow raises for a value that Python cannot represent: text that is not UTF-8, a
day after the year 9999.
"""


def pyarrow() -> Any:
    """Return the package pyarrow with ``pyarrow.parquet``.

    Raises ConfigError if pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            f"Parquet and .zst files need pyarrow, which is not installed: "
            f"{install_command('parquet')}"
        ) from None
    return pyarrow


def read_parquet(path: Path) -> tuple[Names, Rows]:
    """Return the names of a file's columns, and its rows. Raises as ``read_rows`` does."""
    with _reading_parquet(path, [0]):
        names = tuple(pyarrow().parquet.read_schema(path).names)
    return names, _parquet_rows(path)


def _parquet_rows(path: Path) -> Rows:
    read, arrow = [0], pyarrow()
    with _reading_parquet(path, read), path.open("rb") as content:
        with arrow.parquet.ParquetFile(content) as file:
            together, schema = rows_together(file, content), file.schema_arrow
        is_text = (
            arrow.types.is_string,
            arrow.types.is_binary,
            arrow.types.is_large_string,
            arrow.types.is_large_binary,
        )
        texts = [field.name for field in schema if any(one(field.type) for one in is_text)]
        # As a dictionary, a column has each of its texts once.
        with arrow.parquet.ParquetFile(content, read_dictionary=texts) as file:
            for batch in file.iter_batches(together):
                yield from enumerate(batch_rows(batch, path, read[0]), read[0] + 1)
                read[0] += batch.num_rows


@contextmanager
def _reading_parquet(path: Path, read: Sequence[int]) -> Iterator[None]:
    """Raise FormatError for errors of reading Parquet; ``read[0]`` is the number of rows read so
    far.
    """
    arrow = pyarrow()
    try:
        yield
    except FileNotFoundError:
        raise
    except FormatError as error:
        raise with_location(error, path) from None
    except (
        arrow.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError,
    ) as error:  # fmt: skip
        # OSError: a page that cannot be decompressed. The last three: a footer of other types.
        raise FormatError(f"{path}, after row {read[0]}: not Parquet: {error}") from error


def batch_rows(batch: Any, place: object, before: int = 0) -> Iterator[Row]:
    """Yield the rows of an Arrow batch; ``place`` is the batch's source, for messages; ``before``
    is the number of rows before the batch in this source.
    """
    try:
        columns = [_values(column) for column in batch.columns]
    except _NO_VALUE:
        for number in range(batch.num_rows):
            yield _parquet_row(batch, number, f"{place}: record {before + number + 1}")
    else:
        yield from map(list, zip(*columns, strict=True))


def _values(column: Any) -> list[Any]:
    if not hasattr(column, "dictionary"):
        values: list[Any] = column.to_pylist()
        return values
    used = column.indices.unique().drop_null()
    by_place = dict(zip(used.to_pylist(), column.dictionary.take(used).to_pylist(), strict=True))
    return [by_place.get(place) for place in column.indices.to_pylist()]


def _parquet_row(batch: Any, number: int, place: str) -> Row:
    """Return a row of a batch that contains an unreadable value: its values, or the error of its
    first unreadable value.
    """
    values = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values.append(column[number].as_py())
        except _NO_VALUE as error:
            return FormatError(f"{place}: the value of column {name!r} cannot be read: {error}")
    return values


# --- writing --------------------------------------------------------------------------------------

_NEEDS_QUOTES: Final = re.compile('[",\r\n]|^\\s|\\s$')
_ROWS_OF_A_GROUP: Final = 20_000

WriteRow = Callable[[Sequence[Any]], None]


def csv_line(values: Sequence[str | None]) -> str:
    """Return one record with its line break; a text is quoted if it needs quotes."""
    return ",".join(map(_field, values)) + "\n"


def _field(value: str | None) -> str:
    if value is None:
        return ""
    return quoted(value) if not value or _NEEDS_QUOTES.search(value) else value


def quoted(text: str) -> str:
    """Return a text as a quoted CSV field."""
    return '"' + text.replace('"', '""') + '"'


def json_line(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return one JSON object with its line break."""
    return (
        json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False, separators=(",", ":"))
        + "\n"
    )


@contextmanager
def open_parquet(path: Path, names: Sequence[str], types: Sequence[Any]) -> Iterator[WriteRow]:
    """Create a Parquet file with columns of these Arrow types, and yield the function that writes a
    row. The file is complete at the end of the block.

    Raises ConfigError if pyarrow is not installed; the function raises NotExpressible for a
    value that its column cannot hold.
    """
    arrow = pyarrow()
    schema = arrow.schema(list(zip(names, types, strict=True)))
    group: list[Sequence[Any]] = []

    with arrow.parquet.ParquetWriter(path, schema) as writer:

        def flush() -> None:
            columns = zip(names, types, zip(*group, strict=True), strict=True)
            arrays = [_arrow_array(arrow, name, type, values) for name, type, values in columns]
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
        raise NotExpressible(
            f"a value of column {name!r} does not fit into its Parquet type {type}: {error}",
            code="value_range",
        ) from None
