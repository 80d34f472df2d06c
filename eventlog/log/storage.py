"""The storage of event log rows in files of JSON lines, CSV or Parquet, and the options of reader
and writer under the names of spec/event-log.md 9. ``live`` has the live table of a database.

The columns of a file are found by ``column_map``, otherwise by their standard names, without case,
otherwise by position (``layout``), as in a table (spec/event-log.md 1.3). In CSV an empty field
without quotes is NULL, and ``""`` is the empty text, as PostgreSQL's COPY writes it. The first line
holds the names. A source may be a directory of files, which are read in the order of their names.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from eventlog.changes.json_form import CATALOG, CatalogOption
from eventlog.changes.keys import EXISTING_KEYS
from eventlog.core.options import (
    CHAR_PADDING,
    COLUMN_SORT,
    FLAG,
    FOLD_DISTANCE,
    FOLD_SPAN,
    LAYOUT,
    LOG_TABLE,
    META_IDENTIFIERS,
    SPECIAL_TIMES,
    STRING,
    STYLE,
    TEXT_OBJECT,
    TEXTS,
    TIME_ZONE,
    CheckedOptions,
    choice,
    matching,
    object_of,
    option,
    shared,
)
from eventlog.core.values.typed_values import to_text
from eventlog.errors import ConfigError, FormatError, shown
from eventlog.files import tabular
from eventlog.files.atomic import whole_file, whole_path
from eventlog.files.text import Refuse, source_files
from eventlog.model import LOG_COLUMNS, LogRow, Status
from eventlog.sql.log_table import LAYOUTS

FILE_FORMATS: Final = ("jsonl", "csv", "parquet")
_STATUS: Final = "".join(Status)


_STYLES: Final = object_of(STYLE.kind, f"an object: table -> {STYLE.kind.legal}")


@dataclass(frozen=True, slots=True)
class LogOptions(CheckedOptions):
    """Options that reader and writer share: the place of the log, and the names of its columns."""

    catalog: CatalogOption = shared(CATALOG)
    schema_name: str | None = option(None, STRING, "schema of the log and the logged tables")
    log_table: str = shared(LOG_TABLE)
    layout: str = shared(LAYOUT)
    column_map: Mapping[str, str] | None = option(
        None, TEXT_OBJECT, "real names of the ten standard columns"
    )
    column_sort: str = shared(COLUMN_SORT)
    time_zone: str = shared(TIME_ZONE)
    file_format: str | None = option(
        None, choice(*FILE_FORMATS), "form of the file, if its name does not show it"
    )


@dataclass(frozen=True, slots=True)
class LogReaderOptions(LogOptions):
    """Options of the reader.

    The tables come from ``catalog``, otherwise from the database. Without either, every column is
    text.
    """

    schema: str | None = option(
        None, STRING, "schema of the changes; default: the catalogue's schema"
    )
    database_url: str | None = option(
        None, STRING, "URL of the database to read rows back from, for a log in files"
    )
    tables: Sequence[str] | None = option(
        None, TEXTS, "tables and views to read; do not name child tables; default: all"
    )
    meta_identifiers: bool = shared(META_IDENTIFIERS)
    fold_distance: int = shared(FOLD_DISTANCE)
    fold_span: int = shared(FOLD_SPAN)
    char_padding: str = shared(CHAR_PADDING)
    special_times: str = shared(SPECIAL_TIMES)
    driver_user: str | None = option(
        None, STRING, "the publisher's database user, whose rows are left out"
    )
    status: str = option(
        _STATUS,
        matching(f"[{_STATUS}]+", f"letters of {_STATUS}"),
        "statuses of the rows that are read",
    )
    sort: bool = option(
        False, FLAG, "sort the file in memory, since it is not in the order of record_id"
    )


@dataclass(frozen=True, slots=True)
class LogWriterOptions(LogOptions):
    """Options of the writer (spec/triggers.md 1)."""

    row_style: str = shared(
        STYLE, about="which rows are written for a change: a style, as in [[watch]]"
    )
    row_styles: Mapping[str, str] = option({}, _STYLES, "row_style for individual tables")
    schema: str | None = option(
        None,
        STRING,
        "schema of the log; default: the catalogue's schema, else that of the first change that "
        "has one",
    )
    existing_keys: Any = shared(EXISTING_KEYS)


# --- files ----------------------------------------------------------------------------------------

_NAMES: Final = {"csv": "csv", "json": "jsonl", "parquet": "parquet"}
"""The value of ``file_format`` by the format name of ``files.tabular``."""


def file_format_of(path: str, option: str | None) -> str:
    """Return one of ``FILE_FORMATS``: the option if it is set, otherwise the format that the file's
    name shows. Raises ConfigError if the name shows no format.
    """
    if option is not None:
        return option
    known = tabular.FORMATS.get(Path(path).suffix.lower())
    if known is None:
        raise ConfigError(
            f"the name of {path} does not show its format: set file_format = "
            f"{' | '.join(FILE_FORMATS)}"
        )
    return _NAMES[known]


def read_rows(source: str, options: LogOptions, refuse: Refuse) -> Iterator[LogRow]:
    """Yield the rows of a file, or of the files of a directory. The error of a row that cannot be
    read goes to ``refuse``.

    Raises FormatError for a file that cannot be read further, ConfigError if its columns cannot be
    found, OSError.
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


def _records(path: Path, options: LogOptions) -> Iterator[tuple[str, tabular.Row]]:
    """Return the place of each row, and its ten values in the order of a row's fields."""
    file_format = file_format_of(str(path), options.file_format)
    if file_format == "jsonl":
        return _records_of_objects(path, options)
    if file_format == "csv":
        return _records_of_table(path, options, *tabular.read_csv(path), "line")
    return _records_of_table(path, options, *tabular.read_parquet(path), "row")


def _records_of_objects(path: Path, options: LogOptions) -> Iterator[tuple[str, tabular.Row]]:
    """Yield the records of a file of JSON objects. The first object names the columns."""
    columns: Sequence[str] = ()
    for number, record in tabular.read_json_objects(path):
        if isinstance(record, FormatError):
            yield "", record
            continue
        columns = columns or _columns(tuple(record), options, path)
        values = [record.get(column) for column in columns]
        yield (
            f"line {number}",
            [float(value) if type(value) is Decimal else value for value in values],
        )


def _records_of_table(
    path: Path, options: LogOptions, names: Sequence[str], rows: tabular.Rows, unit: str
) -> Iterator[tuple[str, tabular.Row]]:
    """Yield the records of a file whose columns have these names. ``unit`` (line or row) is for the
    places in messages.
    """
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
    """Return the names of the ten columns in the order of a row's fields."""
    by_name = {name.casefold(): name for name in names}
    if column_map := options.column_map:
        missing = [
            field for field in LOG_COLUMNS if column_map.get(field, "").casefold() not in by_name
        ]
        if missing:
            raise ConfigError(
                f"column_map gives no column of {path} for {missing[0]}; the columns are "
                f"{', '.join(names)}"
            )
        return [by_name[column_map[field].casefold()] for field in LOG_COLUMNS]
    # A JSON object may leave out columns that are NULL;
    # their standard names are in small letters then.
    if "record_id" in by_name and "event_type" in by_name:
        return [by_name.get(field, field) for field in LOG_COLUMNS]
    if len(names) < len(LOG_COLUMNS):
        raise ConfigError(
            f"{path} has no columns record_id and event_type, and too few columns ({len(names)}) "
            "to find them by position"
        )
    by_position = dict(zip(LAYOUTS[options.layout], names, strict=False))
    return [by_position[field] for field in LOG_COLUMNS]


_HIGHEST: Final = 2**63 - 1
"""The highest record_id in any database."""


def _row(values: Sequence[Any]) -> LogRow:
    record_id, status, event_type, event_time, *texts = values
    if record_id is None:
        raise ValueError("it has no record_id")
    number = _number("record_id", record_id)
    if not 0 < number <= _HIGHEST:
        raise ValueError(
            f"record_id {shown(record_id)} is not a positive integer of at most 8 bytes"
        )
    return LogRow(
        number,
        "" if status is None else str(status),
        None if event_type is None else _number("event_type", event_type),
        to_text(event_time) if isinstance(event_time, date) else _text(event_time),
        *(_text(text) for text in texts),
    )


def _number(column: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{column} is not a number: {shown(value)}") from None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise TypeError(f"{reprlib.repr(value)} is not text")


def write_rows(rows: Iterable[LogRow], target: str, file_format: str) -> None:
    """Write a file of rows, whole or not at all.

    Raises ConfigError if a package is missing, OSError.
    """
    names = LOG_COLUMNS
    if file_format == "parquet":
        arrow = tabular.pyarrow()
        types = {"record_id": arrow.int64(), "event_type": arrow.int16()}
        columns = [types.get(name, arrow.string()) for name in names]
        with whole_path(target) as path, tabular.open_parquet(path, names, columns) as write:
            for row in rows:
                write(row[: len(names)])
        return
    with whole_file(target) as file:
        if file_format == "csv":
            file.write(_csv_line(names))
            file.writelines(_csv_line(row[: len(names)]) for row in rows)
        else:
            file.writelines(
                tabular.json_line(names, row[: len(names)]).encode("utf-8", "surrogatepass")
                for row in rows
            )


def _csv_line(values: Sequence[object]) -> bytes:
    """Return a line in which every text is quoted. PostgreSQL's COPY reads the same values from the
    line with and without FORCE_NULL.
    """
    fields = (
        "" if v is None else str(v) if isinstance(v, int) else tabular.quoted(str(v))
        for v in values
    )
    return (",".join(fields) + "\n").encode("utf-8", "surrogatepass")


def is_url(text: str) -> bool:
    """Return True for a database URL, False for a path.

    Raises ConfigError for a URL of another kind.
    """
    scheme, separator, _ = text.partition("://")
    if not separator:
        return False
    if not scheme.replace("+", "").isalnum():
        raise ConfigError(
            f"{scheme}:// is not a database URL: write postgresql://user@host/database"
        )
    return True
