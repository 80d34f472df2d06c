"""The options of reading and writing change tables, by the names of spec/qlik.md 1 to 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

from eventlog.changes.json_form import CATALOG, CatalogOption, database_of
from eventlog.core.options import FLAG, OBJECT, STRING, TEXTS, CheckedOptions, Kind, choice, integer, option, shared
from eventlog.errors import ConfigError
from eventlog.model import full_name
from eventlog.qlik.change_rows import DEFAULT_HEADERS, PARTITION_NAME
from eventlog.qlik.columns import QlikColumn, columns_from_json, columns_of, key_of
from eventlog.qlik.sequence import partition_of

FILE_FORMATS: Final = ("csv", "json", "parquet")

_TABLE_MEMBERS: Final = {"columns", "key"}
_WIDEST_OFFSET: Final = 1023


def _parse_suffix(value: Any) -> str:
    suffix: str = STRING.parse(value)
    if not suffix or not suffix.isprintable() or "/" in suffix:
        raise ValueError
    return suffix


def _parse_prefix(value: Any) -> str:
    prefix: str = STRING.parse(value)
    if not prefix.isprintable():
        raise ValueError
    return prefix


def _parse_headers(value: Any) -> tuple[str, ...]:
    headers: tuple[str, ...] = TEXTS.parse(value)
    for header in headers:
        if header == PARTITION_NAME:
            raise ConfigError("partition_name is written by the option partitioned, not by headers")
        if header not in DEFAULT_HEADERS or headers.count(header) > 1:
            raise ConfigError(f"header {header!r} is unknown or stands twice; known: {', '.join(DEFAULT_HEADERS)}")
    return headers


def _parse_base(value: Any) -> str:
    text: str = STRING.parse(value)
    base = datetime.fromisoformat(text)
    if base.tzinfo is not None or base.microsecond:
        raise ValueError
    return text


def _parse_tables(value: Any) -> Mapping[str, Mapping[str, Any]]:
    tables: Mapping[str, Mapping[str, Any]] = OBJECT.parse(value)
    described(tables)
    return tables


@dataclass(frozen=True, slots=True)
class ChangeTableOptions(CheckedOptions):
    """Options of reader and writer."""

    tables: Mapping[str, Mapping[str, Any]] = option(
        {}, Kind(_parse_tables, "an object: <schema>.<table> -> {columns, key}"),
        "columns and key of a table, by <schema>.<table>; both may be left out",
    )  # fmt: skip
    catalog: CatalogOption = shared(CATALOG)
    suffix: str = option("__ct", Kind(_parse_suffix, "a text such as __ct"), "ending of the names of change tables")
    header_prefix: str = option("header__", Kind(_parse_prefix, "a text"), "beginning of the names of header columns")
    mask_offset: int | None = option(
        None, integer(0, _WIDEST_OFFSET), "columns before the first one with a bit in masks"
    )


@dataclass(frozen=True, slots=True)
class ReadOptions(ChangeTableOptions):
    """Options of the reader. Raises ConfigError.

    ``tables`` says which tables are read; without it all tables are, values as they are stored, the key from the masks
    of deletes. ``input_complete`` False: the last transaction is not known to be whole, and a last before image waits.
    """

    schema: str | None = option(None, STRING, "schema of all changes, instead of that of each table")
    byteorder: Literal["little", "big", "auto"] = option(
        "little", choice("little", "big", "auto"), "byte order of masks"
    )
    absent_nulls: Literal["null", "absent"] = option(
        "null", choice("null", "absent"), "what NULL means where the mask of an update has no bit; absent: not known"
    )
    partitioned: bool = option(False, FLAG, "read only the partitions that attrep_cdc_partitions lists")
    ddl_history: bool = option(False, FLAG, "take the column lists of masks from attrep_ddl_history")
    input_complete: bool = option(True, FLAG, "no more rows come, so that the last transaction is whole")
    task: str | None = option(None, STRING, "name of the task, which each change carries in its extras")
    file_format: str | None = option(None, choice(*FILE_FORMATS), "read only files of this format")


@dataclass(frozen=True, slots=True)
class WriteOptions(ChangeTableOptions):
    """Options of the writer. Raises ConfigError.

    A table that neither ``tables`` nor ``catalog`` describes has the columns that its changes show, for which they are
    all kept in a file.
    """

    headers: Sequence[str] = option(
        DEFAULT_HEADERS, Kind(_parse_headers, f"a list of {', '.join(DEFAULT_HEADERS)}"), "header columns to write"
    )
    before_images: bool = option(True, FLAG, "write before images, as rows B")
    byteorder: Literal["little", "big"] = option("little", choice("little", "big"), "byte order of masks")
    empty_mask: Literal["empty", "null"] = option("empty", choice("empty", "null"), "a binary mask without bits")
    refresh: Literal["skip", "insert"] = option("skip", choice("skip", "insert"), "if rows are of an initial load")
    partitioned: bool = option(False, FLAG, "write partition_name, and list ended partitions")
    partition_seconds: int = option(3600, integer(1), "length of a partition in seconds")
    partition_base: str = option(
        "1970-01-01T00:00:00", Kind(_parse_base, "a time of whole seconds without zone, in UTC"),
        "time at which a partition begins",
    )  # fmt: skip
    close_partitions: bool = option(False, FLAG, "list partitions that have not ended, too")
    server: str = option("eventlog", STRING, "name of the server in rows and state")
    task: str = option("eventlog", STRING, "name of the task in rows and state")
    file_format: str = option("csv", choice(*FILE_FORMATS), "form of the files")

    def partition_names(self) -> Callable[[str], str] | None:
        """The function that gives the partition of a change_seq, None if there are no partitions."""
        if not self.partitioned:
            return None
        return partial(partition_of, seconds=self.partition_seconds, base=datetime.fromisoformat(self.partition_base))


def described(
    tables: Mapping[str, Mapping[str, Any]], catalog: CatalogOption = None
) -> tuple[Mapping[str, tuple[QlikColumn, ...]], Mapping[str, tuple[str, ...]]]:
    """The columns and the keys that the options ``tables`` and ``catalog`` give tables, by ``<schema>.<table>``.

    Raises ConfigError.
    """
    columns: dict[str, tuple[QlikColumn, ...]] = {}
    database = database_of(catalog)
    if database is not None:
        columns = {full_name(database.schema, table.name): columns_of(table) for table in database.tables}
    keys: dict[str, tuple[str, ...]] = {}
    for name, about in tables.items():
        what = f"table {name!r}"
        if not isinstance(about, Mapping):
            raise ConfigError(f"{what} of tables is an object with columns and key, not {about!r}")
        unknown = sorted(map(str, set(about) - _TABLE_MEMBERS))
        if unknown:
            raise ConfigError(f"member {unknown[0]!r} of {what} is not known; known: columns, key")
        key = about.get("key") or ()
        if isinstance(key, str) or not isinstance(key, Sequence) or not all(isinstance(one, str) for one in key):
            raise ConfigError(f"the key of {what} is a list of column names, not {key!r}")
        if about.get("columns") is not None:
            columns[name] = columns_from_json(about["columns"], key, what=what)
        elif key:
            keys[name] = tuple(key)
    return columns, {name: key_of(each) for name, each in columns.items()} | keys
