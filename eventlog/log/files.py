"""Rows of the event log in files: JSON lines, CSV, Parquet.

Columns are found by their standard names, without case, else by ``column_map`` or by position (``layout``), as those of
a table are (spec/event-log.md 1.3). In CSV a field without quotes and without a character is NULL, ``""`` the empty
text, as PostgreSQL's COPY writes it; the first line holds the names. A source may be a directory of such files, which
are read in the order of their names.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias

from eventlog.core.typed import to_text
from eventlog.errors import ConfigError, FormatError, shown
from eventlog.files import tabular
from eventlog.files.atomic import whole_file, whole_path
from eventlog.files.lines import source_files
from eventlog.log.options import FILE_FORMATS, LogOptions
from eventlog.model import LogRow
from eventlog.sql.log_table import LAYOUTS

_NAMES: Final = {"csv": "csv", "json": "jsonl", "parquet": "parquet"}
"""``file_format`` by the formats of ``files.tabular``."""

_HIGHEST: Final = 2**63 - 1
"""The highest record_id that any database has."""

Refuse: TypeAlias = Callable[[FormatError], None]
"""Called with what is wrong with one row; returns to go on."""


def file_format_of(path: str, option: str | None) -> str:
    """One of ``FILE_FORMATS``: the option, else by the file's name. Raises ConfigError if that does not say it."""
    if option is not None:
        return option
    known = tabular.FORMATS.get(Path(path).suffix.lower())
    if known is None:
        raise ConfigError(
            f"the name of {path} does not say what it holds: give file_format = {' | '.join(FILE_FORMATS)}"
        )
    return _NAMES[known]


def read_rows(source: str, options: LogOptions, refuse: Refuse) -> Iterator[LogRow]:
    """The rows of a file, or of the files of a directory. A row that is none goes to ``refuse``.

    Raises FormatError for a file that cannot be read further, ConfigError for its columns, OSError.
    """
    for one in source_files(Path(source), ".jsonl, .csv or .parquet file", tabular.FORMATS):
        for place, values in _records(one, options):
            if isinstance(values, FormatError):
                refuse(values)
                continue
            try:
                yield _row(values)
            except (TypeError, ValueError, OverflowError) as error:
                refuse(FormatError(f"{one}, {place}: {error}"))


def write_rows(rows: Iterable[LogRow], target: str, file_format: str) -> None:
    """Write a file of rows, whole or not at all. Raises ConfigError if what it needs is not installed, OSError."""
    names = LogRow._fields
    if file_format == "parquet":
        arrow = tabular.pyarrow()
        types = {"record_id": arrow.int64(), "event_type": arrow.int16()}
        columns = [types.get(name, arrow.string()) for name in names]
        with whole_path(target) as path, tabular.open_parquet(path, names, columns) as write:
            for row in rows:
                write(row)
        return
    with whole_file(target) as file:
        if file_format == "csv":
            file.write(_csv_line(names))
            file.writelines(map(_csv_line, rows))
        else:
            file.writelines(tabular.json_line(names, row).encode("utf-8", "surrogatepass") for row in rows)


def _csv_line(values: Sequence[object]) -> bytes:
    """A row in which every text is quoted, as PostgreSQL's COPY reads it with FORCE_NULL or without."""
    fields = ("" if v is None else str(v) if isinstance(v, int) else tabular.quoted(str(v)) for v in values)
    return (",".join(fields) + "\n").encode("utf-8", "surrogatepass")


def _records(path: Path, options: LogOptions) -> Iterator[tuple[str, tabular.Row]]:
    """Where each row stands, and its ten values in the order of a row's fields."""
    file_format = file_format_of(str(path), options.file_format)
    if file_format == "jsonl":
        columns: Sequence[str] = ()
        for number, record in tabular.read_objects(path):
            if isinstance(record, FormatError):
                yield "", record
                continue
            columns = columns or _columns(tuple(record), options, path)
            values = [record.get(column) for column in columns]
            yield f"line {number}", [float(value) if type(value) is Decimal else value for value in values]
        return
    names, rows = tabular.read_csv(path) if file_format == "csv" else tabular.read_parquet(path)
    unit = "line" if file_format == "csv" else "row"
    places: list[int | None] = []
    for number, row in rows:
        if isinstance(row, tabular.CutOff):
            raise row
        if not isinstance(row, FormatError):
            if not places:
                place_of = {name: place for place, name in enumerate(names)}
                places = [place_of.get(column) for column in _columns(names, options, path)]
            row = [None if place is None else row[place] for place in places]
        yield f"{unit} {number}", row


def _columns(names: Sequence[str], options: LogOptions, path: Path) -> list[str]:
    """The names of the ten columns in the order of a row's fields."""
    by_name = {name.casefold(): name for name in names}
    if column_map := options.column_map:
        missing = [field for field in LogRow._fields if column_map.get(field, "").casefold() not in by_name]
        if missing:
            raise ConfigError(
                f"{path} has no column for {missing[0]} by column_map; its columns are {', '.join(names)}"
            )
        return [by_name[column_map[field].casefold()] for field in LogRow._fields]
    # A JSON object may leave out what is NULL; the standard names are in small letters then.
    if "record_id" in by_name and "event_type" in by_name:
        return [by_name.get(field, field) for field in LogRow._fields]
    if len(names) < len(LogRow._fields):
        raise ConfigError(
            f"{path} has no columns record_id and event_type, and too few ({len(names)}) to take them by position"
        )
    by_position = dict(zip(LAYOUTS[options.layout], names, strict=False))
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
