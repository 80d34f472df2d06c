"""The options of reading and writing change tables, by the names of spec/qlik.md 1 to 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from eventlog.changes.catalog_option import CatalogOption, database_of
from eventlog.errors import ConfigError
from eventlog.qlik.change_rows import DEFAULT_HEADERS, check_headers
from eventlog.qlik.columns import QlikColumn, columns_from_json, columns_of, key_of
from eventlog.qlik.control_tables import Partitioning

FILE_FORMATS: Final = ("csv", "json", "parquet")

_TABLE_MEMBERS: Final = {"columns", "key"}
_WIDEST_OFFSET: Final = 1024


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of the reader.

    ``schema``: that of all changes, instead of that of each table. ``tables``: per ``<schema>.<table>``, which tables
    are read and what is known of them: ``{"columns": [...], "key": [...]}``, both optional; without it all tables that
    are found, values as they are stored, the key from the masks of deletes. ``catalog``: a JSON catalogue with the
    columns and keys of tables that ``tables`` does not describe. ``suffix``, ``header_prefix``, ``mask_offset``: how
    the tables and their columns are named and counted. ``byteorder`` of binary masks.
    ``absent_nulls``: what NULL under a clear mask bit of an update is, ``null`` or ``absent`` = not known.
    ``partitioned``: read only the partitions that attrep_cdc_partitions lists. ``ddl_history``: take the column lists
    of masks from attrep_ddl_history. ``input_complete`` False: more rows may come, so the last transaction is not known
    to be whole and a last before image waits. ``task``: the task's name, for extras. ``file_format``: read only files
    of this format. Raises ConfigError.
    """

    schema: str | None = None
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    catalog: CatalogOption = None
    suffix: str = "__ct"
    header_prefix: str = "header__"
    mask_offset: int | None = None
    byteorder: Literal["little", "big", "auto"] = "little"
    absent_nulls: Literal["null", "absent"] = "null"
    partitioned: bool = False
    ddl_history: bool = False
    input_complete: bool = True
    task: str | None = None
    file_format: str | None = None

    def __post_init__(self) -> None:
        _check_common(self.suffix, self.header_prefix, self.mask_offset)
        _texts(schema=self.schema, task=self.task)
        described(self.tables)
        _one_of("byteorder", self.byteorder, ("little", "big", "auto"))
        _one_of("absent_nulls", self.absent_nulls, ("null", "absent"))
        for name in ("partitioned", "ddl_history", "input_complete"):
            _one_of(name, getattr(self, name), (True, False))
        if self.file_format is not None:
            _one_of("file_format", self.file_format, FILE_FORMATS)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of the writer.

    ``tables``: the columns and key per ``<schema>.<table>``; ``catalog``: a JSON catalogue that has them; a table that
    neither describes has those that its changes show, for which they are all kept in a file. ``suffix``,
    ``header_prefix``, ``headers``, ``mask_offset``: how tables and columns are named and counted. ``before_images``:
    write B rows. ``byteorder``, ``empty_mask`` of binary masks. ``refresh``: skip rows of an initial load, or insert
    them. ``partitioned``: write partition_name by ``partition_seconds`` and ``partition_base``, and list ended
    partitions; ``close_partitions``: list those that have not ended as well. ``server``, ``task``: whose rows and state
    these are. ``file_format`` of files: csv, json or parquet. Raises ConfigError.
    """

    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    catalog: CatalogOption = None
    suffix: str = "__ct"
    header_prefix: str = "header__"
    headers: Sequence[str] = DEFAULT_HEADERS
    mask_offset: int | None = None
    before_images: bool = True
    byteorder: Literal["little", "big"] = "little"
    empty_mask: Literal["empty", "null"] = "empty"
    refresh: Literal["skip", "insert"] = "skip"
    partitioned: bool = False
    partition_seconds: int = 3600
    partition_base: str = "1970-01-01T00:00:00"
    close_partitions: bool = False
    server: str = "eventlog"
    task: str = "eventlog"
    file_format: str = "csv"

    def __post_init__(self) -> None:
        _check_common(self.suffix, self.header_prefix, self.mask_offset)
        _texts(server=self.server, task=self.task)
        if self.server is None or self.task is None:
            raise ConfigError("server and task of change tables are texts")
        described(self.tables)
        check_headers(self.headers)
        _one_of("byteorder", self.byteorder, ("little", "big"))
        _one_of("empty_mask", self.empty_mask, ("empty", "null"))
        _one_of("refresh", self.refresh, ("skip", "insert"))
        for name in ("before_images", "partitioned", "close_partitions"):
            _one_of(name, getattr(self, name), (True, False))
        _one_of("file_format", self.file_format, FILE_FORMATS)
        self.partitioning()

    def partitioning(self) -> Partitioning | None:
        """The partitions, None if there are none. Raises ConfigError."""
        try:
            base = datetime.fromisoformat(self.partition_base)
        except (TypeError, ValueError):
            raise ConfigError(
                f"partition_base {self.partition_base!r} of change tables is not of the form YYYY-MM-DDTHH:MM:SS"
            ) from None
        partitioning = Partitioning(self.partition_seconds, base)
        return partitioning if self.partitioned else None


class Described(NamedTuple):
    """What options say of a table: its columns and its key, None = nothing."""

    columns: tuple[QlikColumn, ...] | None
    key: tuple[str, ...] | None


def described(tables: Mapping[str, Mapping[str, Any]], catalog: CatalogOption = None) -> dict[str, Described]:
    """The options ``tables`` and ``catalog``, by ``<schema>.<table>``. Raises ConfigError."""
    if not isinstance(tables, Mapping):
        raise ConfigError("tables is an object: <schema>.<table> -> {columns, key}")
    result = _catalogued(catalog)
    for name, given in tables.items():
        what = f"table {name!r}"
        if not isinstance(given, Mapping):
            raise ConfigError(f"{what} of tables is an object with columns and key, not {given!r}")
        unknown = sorted(map(str, set(given) - _TABLE_MEMBERS))
        if unknown:
            raise ConfigError(f"member {unknown[0]!r} of {what} is not known; known: columns, key")
        key = given.get("key") or ()
        if isinstance(key, str) or not isinstance(key, Sequence) or not all(isinstance(one, str) for one in key):
            raise ConfigError(f"the key of {what} is a list of column names, not {key!r}")
        if given.get("columns") is not None:
            columns = columns_from_json(given["columns"], key, what=what)
            result[name] = Described(columns, key_of(columns) or None)
        else:
            known = result.get(name, Described(None, None))
            result[name] = Described(known.columns, tuple(key) or known.key)
    return result


def _catalogued(catalog: CatalogOption) -> dict[str, Described]:
    database = database_of(catalog)
    if database is None:
        return {}
    columns = {full_name(database.schema, table.name): columns_of(table) for table in database.tables}
    return {name: Described(found, key_of(found) or None) for name, found in columns.items()}


def full_name(schema: str | None, table: str) -> str:
    """``<schema>.<table>``, the name that options know a table by."""
    return table if schema is None else f"{schema}.{table}"


def _check_common(suffix: object, header_prefix: object, mask_offset: object) -> None:
    if not isinstance(suffix, str) or not suffix or not suffix.isprintable() or "/" in suffix:
        raise ConfigError(f"suffix of change tables is a text such as __ct, not {suffix!r}")
    if not isinstance(header_prefix, str) or not header_prefix.isprintable():
        raise ConfigError(f"header_prefix of change tables is a text, not {header_prefix!r}")
    is_number = isinstance(mask_offset, int) and not isinstance(mask_offset, bool)
    if mask_offset is not None and not (is_number and 0 <= mask_offset < _WIDEST_OFFSET):  # type: ignore[operator]
        raise ConfigError(f"mask_offset of change tables is a number of columns below 1024, not {mask_offset!r}")


def _texts(**options: object) -> None:
    for name, value in options.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{name} of change tables is a text, not {value!r}")


def _one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    if not any(value is one or (isinstance(one, str) and value == one) for one in allowed):
        raise ConfigError(f"{name} = {value!r} of change tables is none of {', '.join(map(str, allowed))}")
