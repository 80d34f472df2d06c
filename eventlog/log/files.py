"""Rows of the event log in files: JSON lines, CSV, Parquet.

Columns are found by their standard names, without case, else by ``column_map`` or by position (``layout``), as those of
a table are (spec/event-log.md 1.3). In CSV a field without quotes and without a character is NULL, ``""`` the empty
text, as PostgreSQL's COPY writes it; the first line holds the names. A source may be a directory of such files, which
are read in the order of their names.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, TypeAlias

from eventlog.core.typed import to_text
from eventlog.errors import ConfigError, FormatError, shown, with_location
from eventlog.files.atomic import whole_file, whole_path
from eventlog.files.inputs import files_in
from eventlog.files.lines import LONGEST, numbered_lines, text_of
from eventlog.model import LogRow
from eventlog.sql.locate import LAYOUTS

FILE_FORMATS: Final = ("jsonl", "csv", "parquet")
_SUFFIXES: Final = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}

_HIGHEST: Final = 2**63 - 1
"""The highest record_id that any database has."""

Refuse: TypeAlias = Callable[[FormatError], None]
"""Called with what is wrong with one row; returns to go on."""


def file_format_of(path: str, given: str | None) -> str:
    """``jsonl``, ``csv`` or ``parquet``: as given, else by the file's name. Raises ConfigError if that does not say."""
    if given is not None:
        if given not in FILE_FORMATS:
            raise ConfigError(f"file_format {given!r} is unknown: use one of {', '.join(FILE_FORMATS)}")
        return given
    found = _SUFFIXES.get(Path(path).suffix.lower())
    if found is None:
        raise ConfigError(
            f"the name of {path} does not say what it holds: give file_format = {' | '.join(FILE_FORMATS)}"
        )
    return found


def read_rows(
    source: str, file_format: str | None, column_map: Mapping[str, str] | None, layout: str, refuse: Refuse
) -> Iterator[LogRow]:
    """The rows of a file, or of the files of a directory. A row that is none goes to ``refuse``.

    Raises FormatError for a file that cannot be read further, ConfigError for its columns, OSError.
    """
    path = Path(source)
    if path.is_dir():
        paths = files_in(path, _SUFFIXES)
        if not paths:
            raise ConfigError(f"the directory {source} holds no .jsonl, .csv or .parquet file")
    else:
        paths = [path]
    for one in paths:
        read = _READERS[file_format_of(str(one), file_format)]
        names: Sequence[str] | None = None
        columns: Sequence[str] = ()
        for place, record in read(one):
            if isinstance(record, FormatError):
                refuse(record)
                continue
            if names is None:
                names = list(record)
                columns = _columns(names, column_map, layout, str(one))
            try:
                yield _row([record.get(column) for column in columns])
            except (TypeError, ValueError, OverflowError) as error:
                refuse(FormatError(f"{one}, {place}: {error}"))


def write_rows(rows: Iterable[LogRow], target: str, file_format: str) -> None:
    """Write a file of rows, whole or not at all. Raises ConfigError if what it needs is not installed, OSError."""
    _WRITERS[file_format](rows, target)


_Record: TypeAlias = "tuple[str, Mapping[str, Any] | FormatError]"
"""Where it stands, and the columns of a row by name."""


def _columns(names: Sequence[str], column_map: Mapping[str, str] | None, layout: str, path: str) -> list[str]:
    """The names of the ten columns in the order of a row's fields."""
    by_name = {name.casefold(): name for name in names}
    if column_map:
        missing = [field for field in LogRow._fields if column_map.get(field, "").casefold() not in by_name]
        if missing:
            raise ConfigError(
                f"{path} has no column for {missing[0]} by column_map; its columns are {', '.join(names)}"
            )
        return [by_name[column_map[field].casefold()] for field in LogRow._fields]
    # A JSON object may leave out what is NULL; the standard names are in small letters then.
    if "record_id" in by_name and "event_type" in by_name:
        return [by_name.get(field, field) for field in LogRow._fields]
    if layout not in LAYOUTS:
        raise ConfigError(f"layout {layout!r} is unknown: use one of {', '.join(LAYOUTS)}")
    if len(names) < len(LogRow._fields):
        raise ConfigError(
            f"{path} has no columns record_id and event_type, and too few ({len(names)}) to take them by position"
        )
    by_position = dict(zip(LAYOUTS[layout], names, strict=False))
    return [by_position[field] for field in LogRow._fields]


def _row(values: Sequence[Any]) -> LogRow:
    record_id, status, event_type, event_time, *texts = values
    if record_id is None:
        raise ValueError("it has no record_id")
    number = _number("record_id", record_id)
    if not 0 < number <= _HIGHEST:
        raise ValueError(f"record_id {shown(str(record_id))} is no positive number of 8 bytes")
    return LogRow(
        number,
        "" if status is None else str(status),
        None if event_type is None else _number("event_type", event_type),
        _time_text(event_time),
        *(_text(text) for text in texts),
    )


def _number(column: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{column} is no number: {shown(str(value))}") from None


def _time_text(value: Any) -> str | None:
    if isinstance(value, datetime | date):
        return to_text(value)
    return _text(value)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise TypeError(f"{reprlib.repr(value)} is no text")


# --- JSON lines -------------------------------------------------------------------------------------------------------


def _read_json(path: Path) -> Iterator[_Record]:
    with path.open("rb") as file:
        for number, line in numbered_lines(file, path):
            place = f"line {number}"
            try:
                record = json.loads(text_of(line))
            except FormatError as error:
                yield place, with_location(error, f"{path}, {place}")
                continue
            except (ValueError, RecursionError) as error:
                yield place, FormatError(f"{path}, {place}: not JSON: {error}")
                continue
            if isinstance(record, dict):
                yield place, record
            else:
                yield place, FormatError(f"{path}, {place}: a row is a JSON object, not {type(record).__name__}")


def _write_json(rows: Iterable[LogRow], target: str) -> None:
    with whole_file(target) as file:
        for row in rows:
            line = json.dumps(row._asdict(), ensure_ascii=False, separators=(",", ":"))
            file.write(line.encode("utf-8", "surrogatepass") + b"\n")


# --- CSV --------------------------------------------------------------------------------------------------------------

_FIELD = re.compile(r'"((?:[^"]|"")*)"|([^",\r\n]*)')


def _read_csv(path: Path) -> Iterator[_Record]:
    names: list[str] | None = None
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        for place, record in _csv_records(file, path):
            text = _as_utf_8(record)
            fields = None if text is None else _csv_fields(text)
            if text is None:
                yield place, FormatError(f"{path}, {place}: not UTF-8")
            elif fields is None:
                yield place, FormatError(f'{path}, {place}: a quote (") stands where none can')
            elif names is None:
                names = [field or "" for field in fields]
            elif len(fields) != len(names):
                yield place, FormatError(f"{path}, {place}: {len(fields)} fields, the first line names {len(names)}")
            else:
                yield place, dict(zip(names, fields, strict=True))


def _csv_records(file: TextIO, path: Path) -> Iterator[tuple[str, str]]:
    """Records and where they begin: a line break inside quotes belongs to the record."""
    pending: list[str] = []
    quotes = begun = length = number = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        if not pending:
            begun, length = number, 0
        quotes += line.count('"')
        length += len(line)
        pending.append(line)
        if length > LONGEST:
            raise FormatError(f"{path}, line {begun}: longer than {LONGEST} characters; is a quote not closed?")
        if quotes % 2 == 0:
            record = "".join(pending).rstrip("\r\n")
            pending, quotes = [], 0
            if record:
                yield f"line {begun}", record
    if pending:
        raise FormatError(f"{path}, line {begun}: a quoted field has no end")


def _as_utf_8(record: str) -> str | None:
    """A record of which bytes that are no UTF-8 were escaped; None if there are any but surrogates, which we write."""
    if record.isascii():
        return record
    try:
        return record.encode("utf-8", "surrogateescape").decode("utf-8", "surrogatepass")
    except UnicodeError:
        return None


def _csv_fields(text: str) -> list[str | None] | None:
    """The fields of a record; None if it is malformed."""
    if '"' not in text:
        return [field or None for field in text.split(",")]
    fields: list[str | None] = []
    at = 0
    while True:
        found = _FIELD.match(text, at)
        assert found is not None
        quoted, bare = found.groups()
        fields.append(quoted.replace('""', '"') if quoted is not None else bare or None)
        at = found.end()
        if at == len(text):
            return fields
        if text[at] != ",":
            return None
        at += 1


def _write_csv(rows: Iterable[LogRow], target: str) -> None:
    with whole_file(target) as file:
        _write_csv_line(file, LogRow._fields)
        for row in rows:
            _write_csv_line(file, row)


def _write_csv_line(file: BinaryIO, fields: Sequence[object]) -> None:
    file.write((",".join(map(_csv_field, fields)) + "\n").encode("utf-8", "surrogatepass"))


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    escaped = str(value).replace('"', '""')
    return f'"{escaped}"'


# --- Parquet ----------------------------------------------------------------------------------------------------------

_BATCH: Final = 10_000


def _parquet() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            f"Parquet files need pyarrow, which is not installed: pip install 'eventlog-publisher[parquet]' ({error})"
        ) from error
    return pyarrow


def _read_parquet(path: Path) -> Iterator[_Record]:
    arrow = _parquet()
    number = 0
    try:
        with arrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                for record in batch.to_pylist():
                    number += 1
                    yield f"row {number}", record
    except FileNotFoundError:
        raise
    except (arrow.ArrowException, OSError) as error:  # OSError: a page that cannot be unpacked
        raise FormatError(f"{path}, after row {number}: not Parquet: {error}") from error


def _write_parquet(rows: Iterable[LogRow], target: str) -> None:
    arrow = _parquet()
    types = {"record_id": arrow.int64(), "event_type": arrow.int16()}
    schema = arrow.schema([(name, types.get(name, arrow.string())) for name in LogRow._fields])
    with whole_path(target) as path, arrow.parquet.ParquetWriter(path, schema) as writer:
        batch: list[LogRow] = []
        for row in rows:
            batch.append(row)
            if len(batch) == _BATCH:
                writer.write_batch(_record_batch(arrow, schema, batch))
                batch = []
        if batch:
            writer.write_batch(_record_batch(arrow, schema, batch))


def _record_batch(arrow: Any, schema: Any, rows: Sequence[LogRow]) -> Any:
    return arrow.RecordBatch.from_pylist([row._asdict() for row in rows], schema=schema)


_READERS: Final = {"jsonl": _read_json, "csv": _read_csv, "parquet": _read_parquet}
_WRITERS: Final = {"jsonl": _write_json, "csv": _write_csv, "parquet": _write_parquet}
