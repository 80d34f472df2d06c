"""Columns as Qlik describes them, for the metadata of messages and for change tables
(formats/qlik.md 5.2).

The columns come from a table of the catalogue (``columns_of``), from the option ``columns``
(``columns_from_json``), or from the rows of a table that has no description (``ColumnsSeen``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Final, TypeAlias

from eventlog.core.catalog import Column, Table, table_of_types
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError
from eventlog.model import Change, JsonObject, Lob, Names, Value

CLASSES: Final[Mapping[str, type]] = {
    "DATE": date,
    "TIME": time,
    "DATETIME": datetime,
    "NUMERIC": Decimal,
    "BOOLEAN": bool,
    **dict.fromkeys(("STRING", "WSTRING", "CLOB", "NCLOB"), str),
    **dict.fromkeys(("BYTES", "BLOB"), bytes),
    **dict.fromkeys(("REAL4", "REAL8"), float),
    **dict.fromkeys(("INT1", "INT2", "INT4", "INT8", "UINT1", "UINT2", "UINT4", "UINT8"), int),
}
"""Qlik's column types, each with the Python class of its values."""

TEXT_TYPES: Final = frozenset(name for name, value_type in CLASSES.items() if value_type is str)
_LOB_TYPES: Final = frozenset({"CLOB", "NCLOB", "BLOB"})


@dataclass(frozen=True, slots=True)
class QlikColumn:
    """A column in a metadata message. The place of a column in the list of columns is its ordinal.
    Raises ConfigError for a type that is not in ``CLASSES``.
    """

    name: str
    type: str
    """Qlik's name of the type, as in ``CLASSES``."""
    length: int = 0
    """The greatest size in bytes, 0 = unknown."""
    precision: int = 0
    """The number of digits, for NUMERIC only."""
    scale: int = 0
    """The number of digits after the point, for NUMERIC only."""
    pk: int = 0
    """The place in the primary key from 1, 0 = not in it."""
    nullable: bool = True

    def __post_init__(self) -> None:
        if self.type not in CLASSES:
            raise ConfigError(
                f"column {self.name!r} has unsupported type {self.type!r}; use one of "
                f"{', '.join(sorted(CLASSES))}"
            )

    @property
    def avro_decimal(self) -> tuple[int, int]:
        """Precision and scale of the Avro decimal that holds every value of a NUMERIC column.
        Unlike numeric(5,-2) and numeric(2,4), an Avro decimal has no scale below 0 or above the
        precision.
        """
        if self.scale < 0:
            return self.precision - self.scale, 0
        return max(self.precision, self.scale), self.scale

    @property
    def is_lob(self) -> bool:
        """True for a LOB column, which has no bit in the masks of updates (formats/qlik.md 1.2)."""
        return self.type in _LOB_TYPES


class MomentColumn(QlikColumn):
    """A column of moments in UTC, such as the header ``timestamp``. In Parquet, the moments have a
    zone.
    """

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, "DATETIME")


class ZonedColumn(QlikColumn):
    """A DATETIME column whose column in the source has a zone. The values of the column are in UTC;
    in Parquet, they have their zone.
    """

    __slots__ = ()


QlikColumns: TypeAlias = tuple[QlikColumn, ...]
"""The columns of a table, in their order."""


def key_of(columns: Iterable[QlikColumn]) -> Names:
    """Return the names of the key columns in key order; empty if there is no key."""
    return tuple(
        column.name for column in sorted((c for c in columns if c.pk), key=lambda column: column.pk)
    )


def lobs_of(columns: Iterable[QlikColumn]) -> frozenset[str]:
    """Return the names of the LOB columns."""
    return frozenset(column.name for column in columns if column.is_lob)


# --- from the catalog -----------------------------------------------------------------------------


def columns_of(table: Table) -> QlikColumns:
    """Return the columns of a catalogue's table, in the table's order, with its primary key."""
    places = {name: place for place, name in enumerate(table.primary_key, 1)}
    return tuple(_column_of(column, places.get(column.name, 0)) for column in table.columns)


_LARGE_CHARACTER = re.compile(r"\b(n?clob|longtext|mediumtext|long)\b", re.IGNORECASE)
_LARGE_BINARY = re.compile(r"blob|\blong raw\b|\bimage\b", re.IGNORECASE)
_NATIONAL = re.compile(r"^\s*(n(char|varchar|text|clob)|national)", re.IGNORECASE)

_PLAIN_TYPES: Final = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIME: "TIME",
    Kind.TIMESTAMP: "DATETIME",
    Kind.TIMESTAMPTZ: "DATETIME",
}
_INTEGERS: Final = {16: "INT2", 32: "INT4", 64: "INT8"}
_UUID_LENGTH: Final = 36
_WIDEST_CHARACTER: Final = 4  # the most bytes of a character in UTF-8


def _column_of(column: Column, place: int) -> QlikColumn:
    kind, sql = column.type.kind, column.type.sql
    first, second = (*column.type.sizes, 0, 0)[:2]
    length = precision = scale = 0
    if kind is Kind.EXACT or (kind is Kind.INTEGER and column.type.bits == 0):
        name, precision, scale = "NUMERIC", first, second
    elif kind is Kind.INTEGER:
        name = _INTEGERS[column.type.bits]
    elif kind is Kind.APPROXIMATE:
        name = "REAL4" if column.type.bits == 32 else "REAL8"
    elif kind is Kind.BINARY:
        name, length = ("BLOB" if _LARGE_BINARY.search(sql) else "BYTES"), first
    elif kind in _PLAIN_TYPES:
        name = _PLAIN_TYPES[kind]
    elif kind is Kind.OTHER:
        # The words in such a name have no meaning: an enumeration may have the name "long", and the
        # number in interval(3) is no length of its text.
        name = "STRING"
    else:
        name = _character(column.type)
        length = _UUID_LENGTH if kind is Kind.UUID else first * _WIDEST_CHARACTER
    made = ZonedColumn if kind is Kind.TIMESTAMPTZ else QlikColumn
    return made(column.name, name, length, precision, scale, place, nullable=not place)


def _character(type: ColumnType) -> str:
    national = _NATIONAL.match(type.sql)
    if _LARGE_CHARACTER.search(type.sql):
        return "NCLOB" if national else "CLOB"
    return "WSTRING" if national else "STRING"


# --- to a catalog ---------------------------------------------------------------------------------

_TYPE_NAMES: Final = {
    "DATE": "date",
    "TIME": "time",
    "DATETIME": "timestamp",
    "BOOLEAN": "boolean",
    "STRING": "varchar",
    "WSTRING": "nvarchar",
    "CLOB": "clob",
    "NCLOB": "nclob",
    "BYTES": "varbinary",
    "BLOB": "blob",
    "REAL4": "real",
    "REAL8": "double precision",
    "INT1": "smallint",
    "UINT1": "smallint",
    "INT2": "smallint",
    "UINT2": "integer",
    "INT4": "integer",
    "UINT4": "bigint",
    "INT8": "bigint",
}


def catalog_table(name: str, columns: Sequence[QlikColumn]) -> Table:
    """Return the catalogue's table with these columns."""
    types = ((column.name, _type_name(column)) for column in columns)
    return table_of_types(name, types, key_of(columns))


def _type_name(column: QlikColumn) -> str:
    if column.type in ("STRING", "WSTRING") and column.length:
        return f"{_TYPE_NAMES[column.type]}({-(-column.length // _WIDEST_CHARACTER)})"
    if column.type == "NUMERIC" and column.precision and column.scale > 0:
        return f"numeric({column.precision},{column.scale})"
    return _TYPE_NAMES.get(column.type, "numeric")


# --- from options ---------------------------------------------------------------------------------

_FIELDS: Final = {one.name for one in fields(QlikColumn)}
_SIZES: Final = {
    "length": (0, 2**31 - 1),
    "precision": (0, 2**17),
    "scale": (-(2**17), 2**17),
    "pk": (0, 1024),
}


def columns_from_json(
    columns: Sequence[str | JsonObject], key: Sequence[str] = (), *, what: str
) -> QlikColumns:
    """Return the columns that an option describes by names, or by objects with ``name``, ``type``
    and the other fields of QlikColumn.

    A column that is given by its name alone is a STRING. ``key`` names the key columns in key
    order, and replaces ``pk`` in the columns. ``what`` names the table in messages. Raises
    ConfigError.
    """
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise ConfigError(f"the columns of {what} must be a list, not {columns!r}")
    read = [_column_from_json(column, what) for column in columns]
    names = [column.name for column in read]
    for name in (
        *(name for name in names if names.count(name) > 1),
        *(name for name in key if name not in names),
    ):
        raise ConfigError(f"{what} has no column {name!r} of its key, or has the column twice")
    if not key:
        return tuple(read)
    places = {name: place for place, name in enumerate(key, 1)}
    return tuple(replace(column, pk=places.get(column.name, 0)) for column in read)


def _column_from_json(value: str | JsonObject, what: str) -> QlikColumn:
    if isinstance(value, str):
        return QlikColumn(value, "STRING")
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise ConfigError(
            f"a column of {what} must be a name or an object with a name, not {value!r}"
        )
    unknown = sorted(map(str, set(value) - _FIELDS))
    if unknown:
        raise ConfigError(
            f"member {unknown[0]!r} of column {value['name']!r} of {what} is unknown; use "
            f"{', '.join(sorted(_FIELDS))}"
        )
    for name, (least, most) in _SIZES.items():
        number = value.get(name, 0)
        if type(number) is not int or not least <= number <= most:
            raise ConfigError(
                f"{name} of column {value['name']!r} of {what} must be a number from {least} to "
                f"{most}, not {number!r}"
            )
    if not isinstance(value.get("type", ""), str) or not isinstance(
        value.get("nullable", True), bool
    ):
        raise ConfigError(
            f"in column {value['name']!r} of {what}, type must be text, and nullable true or false"
        )
    return QlikColumn(**{"type": "STRING", **value})


# --- from rows ------------------------------------------------------------------------------------

_LARGEST_INT8: Final = 2**63 - 1


class ColumnsSeen:
    """The columns of a table without a description, as far as its changes have shown them.

    ``key`` holds the key columns; if it is empty, the key of the changes is used. A column whose
    values have several types is a STRING.
    """

    __slots__ = ("_columns", "_key", "_types")

    def __init__(self, key: Names = ()) -> None:
        self._key = key
        self._types: dict[str, str | None] = {}
        self._columns: QlikColumns | None = ()

    def see(self, change: Change) -> None:
        """Add the columns and types of one more change."""
        if change.key and not self._key:
            self._key, self._columns = tuple(name for name, _ in change.key), None
        types = self._types
        for row in (dict(change.key or ()), change.after or {}, change.before or {}):
            for name, value in row.items():
                known, type = types.get(name), _type_of(value)
                common = _common(known, type)
                if name not in types or common != known:
                    types[name], self._columns = common, None

    def columns(self) -> QlikColumns:
        """Return the columns in the order in which they were first seen."""
        if self._columns is None:
            places = {name: place for place, name in enumerate(self._key, 1)}
            self._columns = tuple(
                QlikColumn(name, type or "STRING", pk=places.get(name, 0))
                for name, type in self._types.items()
            )
        return self._columns


def _common(one: str | None, other: str | None) -> str | None:
    """Return the type of a column that has values of both types. None is the type of NULL."""
    if one is None or other is None or one == other:
        return one or other
    pair = {one, other}
    if pair <= {"INT8", "NUMERIC"}:
        return "NUMERIC"
    if pair <= {"INT8", "REAL8"}:
        return "REAL8"
    return "STRING"


def _type_of(value: Value) -> str | None:
    """Return the type of a column that holds this value, None for NULL."""
    match value:
        case None:
            return None
        case bool():
            return "BOOLEAN"
        case int():
            return "INT8" if -_LARGEST_INT8 - 1 <= value <= _LARGEST_INT8 else "NUMERIC"
        case float():
            return "REAL8"
        case Decimal():
            return "NUMERIC"
        case bytes():
            return "BYTES"
        case Lob():
            return "BLOB"
        case datetime():
            return "DATETIME"
        case date():
            return "DATE"
        case time():
            return "TIME"
        case _:
            return "STRING"
