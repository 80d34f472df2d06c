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

ATTRS_COLUMNS: Final = ("TABNUM_SRC", "NAME", "ATRNUM", "TYP", "PKEY", "LEN")
"""The columns of DISPATCH_ATTRS in the order of the manual."""


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

    def column_number(self, atrnum: int) -> ColumnAttrs | None:
        """The column of this ATRNUM, or None."""
        return next((column for column in self.columns if column.atrnum == atrnum), None)


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


def attrs_of_option(option: Mapping[Any, Sequence[Mapping[str, Any]]]) -> dict[int, TableAttrs]:
    """The tables of an option ``dispatch_attrs``: by number, a list of objects with name, typ, len and, where they
    are not the place in the list and 0, atrnum and pkey.

    Raises ConfigError.
    """
    if not isinstance(option, Mapping):
        raise ConfigError("dispatch_attrs is no object of lists of columns by the number of the table")
    tables = {}
    for tabnum, columns in option.items():
        try:
            tables[int(tabnum)] = table_attrs(
                int(tabnum), (_column_of_option(number, column) for number, column in enumerate(columns, 1))
            )
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
    return table_attrs(
        tabnum,
        (
            ColumnAttrs(
                column.name,
                number,
                *_typ_and_pkey(column, table.primary_key),
                _length(column),
            )
            for number, column in enumerate(table.columns, 1)
        ),
    )


_TYP: Final = {
    Kind.EXACT: Typ.DECIMAL,
    Kind.APPROXIMATE: Typ.REAL,
    Kind.BOOLEAN: Typ.BOOLEAN,
    Kind.FIXED: Typ.CHAR,
    Kind.CHARACTER: Typ.VARCHAR,
    Kind.BINARY: Typ.VARBYTE,
    Kind.DATE: Typ.DATE,
    Kind.TIMESTAMP: Typ.DATE,
    Kind.TIMESTAMPTZ: Typ.DATE,
    Kind.UUID: Typ.CHAR,
    Kind.OTHER: Typ.VARCHAR,
}


def _typ_and_pkey(column: Column, primary_key: Sequence[str]) -> tuple[int, int]:
    kind = column.type.kind
    if kind is Kind.TIME:
        raise NotExpressible(f"column {column.name!r} holds times of day, which a Linter queue has no type for")
    typ = (Typ.INTEGER if column.type.bits else Typ.DECIMAL) if kind is Kind.INTEGER else _TYP[kind]
    return typ, primary_key.index(column.name) + 1 if column.name in primary_key else 0


def _length(column: Column) -> int:
    size = next(iter(column.type.sizes), None)
    match column.type.kind:
        case Kind.INTEGER | Kind.APPROXIMATE if column.type.bits:
            return column.type.bits // 8
        case Kind.BOOLEAN:
            return 1
        case Kind.UUID:
            return 36
        case Kind.BINARY:
            return _LONGEST if size is None else min(size, _LONGEST)
        case Kind.FIXED:
            return _BYTES_A_CHARACTER if size is None else min(size * _BYTES_A_CHARACTER, _LONGEST)
        case Kind.CHARACTER | Kind.OTHER:
            return _LONGEST if size is None else min(size * _BYTES_A_CHARACTER, _LONGEST)
        case _:
            return 16


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
        convert = _CONVERSIONS.get(column.typ)
        return value if convert is None else convert(value)
    except (TypeError, ValueError, ArithmeticError, BadValue):
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


def _integer(value: Any) -> int:
    if not isinstance(value, int | str | Decimal):
        raise TypeError
    number = whole_number(value) if isinstance(value, Decimal) else int(value)
    if number is None:
        raise ValueError
    return number


def _decimal(value: Any) -> Decimal:
    if not isinstance(value, Decimal | int | str):
        raise TypeError
    return Decimal(value)


def _float(value: Any) -> float:
    if not isinstance(value, float | int | Decimal | str):
        raise TypeError
    return float(value)


_TRUTH: Final[Mapping[Any, bool]] = {"true": True, "false": False, 1: True, 0: False}


def _boolean(value: Any) -> bool:
    if not isinstance(value, str | int) or value not in _TRUTH:
        raise TypeError
    return _TRUTH[value]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, int | float):
        return repr(value)
    raise TypeError


def bytes_of(value: Any) -> bytes:
    """The bytes that a binary column holds. Raises TypeError for another value."""
    if isinstance(value, Lob):
        return value.data
    if not isinstance(value, bytes):
        raise TypeError
    return value


_CONVERSIONS: Final[Mapping[int, Callable[[Any], Value]]] = {
    Typ.CHAR: _text,
    Typ.INTEGER: _integer,
    Typ.REAL: _float,
    Typ.DECIMAL: _decimal,
    Typ.BYTE: bytes_of,
    Typ.BLOB: bytes_of,
    Typ.VARCHAR: _text,
    Typ.VARBYTE: bytes_of,
    Typ.BOOLEAN: _boolean,
    Typ.NCHAR: _text,
    Typ.NVARCHAR: _text,
}
