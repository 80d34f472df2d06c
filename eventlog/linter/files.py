"""Exports of a queue: CSV, JSON lines and Parquet, with DISPATCH_ATTRS in a file beside it.

``dispatch_attrs.csv`` (or ``.jsonl``, ``.parquet``; case does not count) describes the tables of the exports in its
directory. In text files OPER_DATE and DATA are hex digits.
"""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Final

from eventlog.errors import ConfigError, FormatError
from eventlog.linter import attributes, rows
from eventlog.linter.attributes import TableAttrs, attrs_of_rows, attrs_values
from eventlog.linter.rows import QueueRow, column_values, queue_rows

ATTRS_STEM: Final = "dispatch_attrs"
QUEUE_STEM: Final = "dispatch_queue"

Part = tuple[Sequence[str], Iterable[Sequence[Any]]]
"""Names of columns, and rows of them."""

_ROWS_A_BATCH: Final = 5_000


def export_files(source: Path) -> tuple[list[Path], Path | None]:
    """The queue files of a directory or file by name, and the attrs file beside them, if any. Raises FormatError."""
    directory = source if source.is_dir() else source.parent
    try:
        files = sorted(path for path in directory.iterdir() if path.is_file() and path.suffix.lower() in _READERS)
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
    return chain.from_iterable(queue_rows(names, values) for path in paths for names, values in _parts(path))


def read_attrs(path: Path) -> dict[int, TableAttrs]:
    """The tables by number. Raises FormatError."""
    columns: dict[int, TableAttrs] = {}
    parts = [(names, list(values)) for names, values in _parts(path)]
    for names, alike in groupby(parts, key=lambda part: tuple(part[0])):
        for tabnum, table in attrs_of_rows(names, chain.from_iterable(values for _, values in alike)).items():
            known = columns.get(tabnum)
            columns[tabnum] = table if known is None else attributes.table_attrs(tabnum, known.columns + table.columns)
    return columns


def _parts(path: Path) -> Iterator[Part]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise FormatError(f"{path} is none of {', '.join(_READERS)}, in which a queue is exported")
    try:
        yield from reader(path)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}") from error
    except (csv.Error, ValueError, RecursionError) as error:  # ValueError: JSON, UTF-8, Arrow
        raise FormatError(f"{path} cannot be read: {error}") from error


def _read_csv(path: Path) -> Iterator[Part]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        names = next(lines, None)
        whole = (_whole(line, names or [], path, number) for number, line in enumerate(lines, 2) if line)
        while several := list(islice(whole, _ROWS_A_BATCH)):
            yield names or [], several


def _whole(line: list[str], names: list[str], path: Path, number: int) -> list[str]:
    if len(line) != len(names):
        raise FormatError(f"row {number} of {path} has {len(line)} values for {len(names)} columns")
    return line


def _read_jsonl(path: Path) -> Iterator[Part]:
    with path.open(encoding="utf-8") as file:
        objects = (_object(line, path, number) for number, line in enumerate(file, 1) if not line.isspace())
        while several := list(islice(objects, _ROWS_A_BATCH)):
            for names, alike in groupby(several, key=tuple):
                yield names, [tuple(one.values()) for one in alike]


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise FormatError(f"line {number} of {path} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"line {number} of {path} is no JSON object")
    return value


def _read_parquet(path: Path) -> Iterator[Part]:
    arrow = _pyarrow()
    try:
        with arrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS_A_BATCH):
                yield batch.schema.names, list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    except arrow.ArrowException as error:
        raise FormatError(f"{path} is no Parquet file that can be read: {error}") from error


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
            "Parquet needs pyarrow, which is not installed: pip install 'eventlog-publisher[spark]'"
        ) from None
    return pyarrow


# --- writing ----------------------------------------------------------------------------------------------------------


def check_suffix(suffix: str) -> None:
    """Whether files of this suffix can be written. Raises ConfigError."""
    if suffix not in _WRITERS:
        raise ConfigError(f"a Linter queue is written to {', '.join(_WRITERS)} files, not to {suffix or 'others'!r}")


def write_export(queue: Path, attrs: Path, rows_of_queue: Iterable[QueueRow], tables: Iterable[TableAttrs]) -> None:
    """Write both files; each is whole or not there. Raises what the rows raise, ConfigError, FormatError."""
    with _replaced(queue) as new_queue, _replaced(attrs) as new_attrs:
        _WRITERS[queue.suffix.lower()](new_queue, rows.COLUMNS, map(column_values, rows_of_queue), _QUEUE_TYPES)
        values = chain.from_iterable(map(attrs_values, tables))
        _WRITERS[attrs.suffix.lower()](new_attrs, attributes.COLUMNS, values, _ATTRS_TYPES)


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A file beside ``path`` that takes its place when all went well."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise FormatError(f"{path} cannot be written: {error.strerror}") from error
    os.close(handle)
    made = Path(name)
    try:
        yield made
        made.chmod(0o666 & ~_umask())
        made.replace(path)
    except OSError as error:
        raise FormatError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        made.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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
