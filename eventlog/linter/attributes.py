"""DISPATCH_ATTRS: the columns of the replicated tables, and what their values are (spec/linter-queue.md 1, 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, NamedTuple

from eventlog.core.catalog import Column, Table
from eventlog.core.moments import naive_utc
from eventlog.core.typed import decimal_text, whole_number
from eventlog.core.values import Kind
from eventlog.errors import BadValue, ConfigError, NotExpressible, with_location
from eventlog.linter.errors import BadColumnValue
from eventlog.linter.rows import Where, column_positions, integer, stripped
from eventlog.model import Lob, Value

ATTRS_TYPES: Final = {
    "TABNUM_SRC": ("int32", 4), "NAME": ("string", 66), "ATRNUM": ("int16", 2), "TYP": ("int16", 2),
    "PKEY": ("int16", 2), "LEN": ("int32", 4),
}  # fmt: skip
"""The columns of DISPATCH_ATTRS in the order of the manual, as those of ``QUEUE_TYPES``."""

ATTRS_COLUMNS: Final = tuple(ATTRS_TYPES)


class Typ:
    """Type codes of DISPATCH_ATTRS.TYP (spec/linter-queue.md 6)."""

    CHAR: Final = 1
    INTEGER: Final = 2
    REAL: Final = 3
    DATE: Final = 4
    DECIMAL: Final = 5
    BYTE: Final = 6
    BLOB: Final = 7
    VARCHAR: Final = 8
    VARBYTE: Final = 9
    BOOLEAN: Final = 10
    NCHAR: Final = 11
    NVARCHAR: Final = 12


class ColumnAttrs(NamedTuple):
    """A replicated column. ``pkey`` 0 = not in the key, else its place; ``length`` in bytes."""

    name: str
    atrnum: int
    typ: int
    pkey: int
    length: int


@dataclass(frozen=True)
class TableAttrs:
    """A replicated table: its number at the source and its columns by ATRNUM."""

    tabnum: int
    columns: tuple[ColumnAttrs, ...]

    def __hash__(self) -> int:
        # Codecs keep what they prepare by table and look it up for every row.
        return self.tabnum

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key columns in key order; where every PKEY is 1 that is the order of ATRNUM."""
        return tuple(column.name for column in sorted(self.columns, key=lambda one: one.pkey) if column.pkey)


def table_attrs(tabnum: int, columns: Iterable[ColumnAttrs]) -> TableAttrs:
    """A table of columns in any order."""
    return TableAttrs(tabnum, tuple(sorted(columns, key=lambda column: column.atrnum)))


def attrs_of_rows(
    names: Sequence[str], values: Iterable[Sequence[Any]], where: Where | None = None
) -> dict[int, TableAttrs]:
    """The tables by their number, of rows of DISPATCH_ATTRS whose columns are ``names``.

    ``where`` says where the row that was taken last stands, for errors. Raises MissingColumn, BadColumnValue.
    """
    positions = [position or 0 for position in column_positions(names, ATTRS_COLUMNS, table="DISPATCH_ATTRS")]
    columns: dict[int, list[ColumnAttrs]] = {}
    for row in values:
        tabnum, name, atrnum, typ, pkey, length = (row[position] for position in positions)
        try:
            columns.setdefault(integer("TABNUM_SRC", tabnum), []).append(
                ColumnAttrs(
                    stripped(name),
                    integer("ATRNUM", atrnum),
                    integer("TYP", typ),
                    integer("PKEY", pkey or 0),
                    integer("LEN", length),
                )
            )
        except BadColumnValue as error:
            raise error if where is None else with_location(error, where()) from None
    return {tabnum: table_attrs(tabnum, described) for tabnum, described in columns.items()}


def attrs_of_option(option: Any) -> dict[int, TableAttrs]:
    """The tables of an option ``dispatch_attrs``: by number, a TableAttrs or a list of objects with name, typ, len and,
    where they are not the place in the list and 0, atrnum and pkey.

    Raises ConfigError.
    """
    if not isinstance(option, Mapping):
        raise ConfigError("dispatch_attrs is no object of lists of columns by the number of the table")
    tables = {}
    for tabnum, columns in option.items():
        try:
            if not isinstance(columns, TableAttrs):
                described = (_column_of_option(number, column) for number, column in enumerate(columns, 1))
                columns = table_attrs(int(tabnum), described)
            tables[int(tabnum)] = columns
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"dispatch_attrs of table {tabnum!r} cannot be read ({error!r}); "
                "give a list of objects with name, typ, len, atrnum and pkey under the number of the table"
            ) from None
    return tables


def _column_of_option(number: int, column: Mapping[str, Any]) -> ColumnAttrs:
    unknown = column.keys() - {"name", "atrnum", "typ", "pkey", "len"}
    if unknown:
        raise ConfigError(f"a column of dispatch_attrs has the unknown member {min(unknown)!r}")
    return ColumnAttrs(
        str(column["name"]),
        int(column.get("atrnum", number)),
        int(column["typ"]),
        int(column.get("pkey", 0)),
        int(column["len"]),
    )


def attrs_values(table: TableAttrs) -> Iterator[tuple[Any, ...]]:
    """The rows of DISPATCH_ATTRS of a table, values in the order of ATTRS_COLUMNS (spec/linter-queue.md 8)."""
    for column in table.columns:
        yield table.tabnum, column.name.ljust(66), column.atrnum, column.typ, column.pkey, column.length


_BYTES_A_CHARACTER: Final = 4  # UTF-8
_LONGEST: Final = 4000


def attrs_of_table(tabnum: int, table: Table) -> TableAttrs:
    """The description of a table of the catalog (spec/change-model.md 5.1, column L).

    Text has room for four bytes a character, up to 4000 bytes. Raises NotExpressible for a column of times, which the
    queue has no type for.
    """
    columns = []
    for number, column in enumerate(table.columns, 1):
        typ, length = _typ_and_length(column)
        pkey = table.primary_key.index(column.name) + 1 if column.name in table.primary_key else 0
        columns.append(ColumnAttrs(column.name, number, typ, pkey, length))
    return TableAttrs(tabnum, tuple(columns))


def _typ_and_length(column: Column) -> tuple[int, int]:
    bits, sizes = column.type.bits, column.type.sizes
    size = sizes[0] if sizes else _LONGEST
    match column.type.kind:
        case Kind.INTEGER if bits:
            return Typ.INTEGER, bits // 8
        case Kind.INTEGER | Kind.EXACT:
            return Typ.DECIMAL, 16
        case Kind.APPROXIMATE:
            return Typ.REAL, bits // 8
        case Kind.BOOLEAN:
            return Typ.BOOLEAN, 1
        case Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return Typ.DATE, 16
        case Kind.UUID:
            return Typ.CHAR, 36
        case Kind.BINARY:
            return Typ.VARBYTE, min(size, _LONGEST)
        case Kind.FIXED:
            return Typ.CHAR, min((sizes[0] if sizes else 1) * _BYTES_A_CHARACTER, _LONGEST)
        case Kind.CHARACTER | Kind.OTHER:
            return Typ.VARCHAR, min(size * _BYTES_A_CHARACTER, _LONGEST)
        case Kind.TIME:
            raise NotExpressible(f"column {column.name!r} holds times of day, which a Linter queue has no type for")


Truncated = Callable[[str], None]
"""Called with the name of a column whose value loses digits."""


def column_value(value: Value, column: ColumnAttrs, truncated: Truncated) -> Value:
    """The value as the row codec takes it: text read as the column's type, times truncated to 1/100 s.

    Raises NotExpressible for a value that the column cannot hold.
    """
    if value is None:
        return None
    try:
        if column.typ == Typ.DATE:
            return _date(value, column.name, truncated)
        types, convert = _CONVERSIONS.get(column.typ, _UNCHANGED)
        if isinstance(value, types):
            return convert(value)
    except (TypeError, ValueError, LookupError, ArithmeticError, BadValue):
        pass
    kind = type(value).__name__
    raise NotExpressible(
        f"column {column.name!r} of type code {column.typ} cannot hold the {kind} {value!r:.60} in a Linter queue"
    )


def _date(value: Value, column: str, truncated: Truncated) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise TypeError
    value = naive_utc(value)
    whole = value.replace(microsecond=value.microsecond // 10_000 * 10_000)
    if whole != value:
        truncated(column)
    return whole


def _integer(value: int | str | Decimal) -> int:
    number = whole_number(value) if isinstance(value, Decimal) else int(value)
    if number is None:
        raise ValueError
    return number


_TRUTH: Final[Mapping[Any, bool]] = {"true": True, "false": False, 1: True, 0: False}


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case datetime():
            return value.isoformat(" ")
        case date():
            return value.isoformat()
        case bool():
            return "true" if value else "false"
        case Decimal():
            return decimal_text(value)
        case _:
            return repr(value)


def bytes_of(value: Any) -> bytes:
    """The bytes that a binary column holds. Raises TypeError for another value."""
    if isinstance(value, Lob):
        return value.data
    if not isinstance(value, bytes):
        raise TypeError
    return value


_Conversion = tuple[tuple[type, ...], Callable[[Any], Value]]
_UNCHANGED: Final[_Conversion] = (object,), lambda value: value
_TO_TEXT: Final[_Conversion] = (str, date, int, Decimal, float), _text
_TO_BYTES: Final[_Conversion] = (bytes, Lob), bytes_of
_CONVERSIONS: Final[Mapping[int, _Conversion]] = {
    Typ.CHAR: _TO_TEXT,
    Typ.VARCHAR: _TO_TEXT,
    Typ.NCHAR: _TO_TEXT,
    Typ.NVARCHAR: _TO_TEXT,
    Typ.BYTE: _TO_BYTES,
    Typ.VARBYTE: _TO_BYTES,
    Typ.BLOB: _TO_BYTES,
    Typ.INTEGER: ((int, str, Decimal), _integer),
    Typ.REAL: ((float, int, str, Decimal), float),
    Typ.DECIMAL: ((Decimal, int, str), Decimal),
    Typ.BOOLEAN: ((str, int), _TRUTH.__getitem__),
}
"""The values that a column of a type takes, and what makes its own of them."""
