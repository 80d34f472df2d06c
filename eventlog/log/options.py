"""The options of reading and writing rows of the event log; those of spec/event-log.md 9 bear their names there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eventlog.changes.format import EXISTING_KEYS
from eventlog.changes.json_form import CATALOG, CatalogOption
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
    Kind,
    choice,
    integer,
    object_of,
    option,
    shared,
)
from eventlog.model import Status

FILE_FORMATS: Final = ("jsonl", "csv", "parquet")

_STATUS: Final = "".join(Status)


def _parse_status(value: Any) -> str:
    status: str = STRING.parse(value)
    if not status or status.strip(_STATUS):
        raise ValueError
    return status


_STYLES: Final = object_of(STYLE.kind, f"an object of {STYLE.kind.legal}")


@dataclass(frozen=True, slots=True)
class LogOptions(CheckedOptions):
    """Options of reader and writer: where the log is, and what its columns are called."""

    catalog: CatalogOption = shared(CATALOG)
    schema_name: str | None = option(None, STRING, "schema of the live log and its classes")
    log_table: str = shared(LOG_TABLE)
    layout: str = shared(LAYOUT)
    column_map: Mapping[str, str] | None = option(None, TEXT_OBJECT, "real names of the ten standard columns")
    column_sort: str = shared(COLUMN_SORT)
    time_zone: str = shared(TIME_ZONE)
    file_format: str | None = option(None, choice(*FILE_FORMATS), "form of the file, if its name does not say it")


@dataclass(frozen=True, slots=True)
class LogReaderOptions(LogOptions):
    """Options of the reader.

    The tables are those of ``catalog``, else of the database, else everything is text.
    """

    schema: str | None = option(None, STRING, "schema of the changes; default: that of the catalogue")
    database_url: str | None = option(None, STRING, "URL of the database to read rows back from, for a log in files")
    tables: Sequence[str] | None = option(None, TEXTS, "parent tables and views that are classes; default: all")
    meta_identifiers: bool = shared(META_IDENTIFIERS)
    fold_distance: int = shared(FOLD_DISTANCE)
    fold_span: int = shared(FOLD_SPAN)
    char_padding: str = shared(CHAR_PADDING)
    special_times: str = shared(SPECIAL_TIMES)
    driver_user: str | None = option(None, STRING, "the publisher's database user, whose rows are left out")
    status: str = option(_STATUS, Kind(_parse_status, f"letters of {_STATUS}"), "letters of the rows that are read")
    sort: bool = option(False, FLAG, "the file is not in the order of record_id: sort it in memory")


@dataclass(frozen=True, slots=True)
class LogWriterOptions(LogOptions):
    """Options of the writer (spec/triggers.md 1)."""

    style: str = shared(STYLE, about="what is logged of a change, as the style of a watch")
    styles: Mapping[str, str] = option({}, _STYLES, "the style of single tables, by table")
    schema: str | None = option(
        None, STRING, "schema of the log; default: that of the catalogue, else of the first change that has one"
    )
    existing_keys: Any = shared(EXISTING_KEYS)
    first_record_id: int = option(1, integer(), "record_id of the first row of a file; a live table numbers its rows")
