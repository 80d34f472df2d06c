"""Rows to payloads, and columns to the TABSCHEM that describes them (spec/gbase-cdc.md 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from eventlog.core.catalog import Table
from eventlog.core.values import ColumnType as CatalogType
from eventlog.core.values import Kind as CatalogKind
from eventlog.errors import ConfigError, NotExpressible
from eventlog.gbase import records
from eventlog.gbase.column_types import Column, Kind, parse_type, quoted_name
from eventlog.gbase.column_writers import cut_off, writer
from eventlog.gbase.encodings import TextOptions
from eventlog.model import Row

_LONGEST_LVARCHAR: Final = 32739
_MAX_DIGITS: Final = 32
_BYTES_A_CHARACTER: Final = 4


class Payload(NamedTuple):
    """A row as its record holds it: sizes of the variable slots, and the bytes of all columns."""

    sizes: list[int]
    data: bytes


def stream_order(columns: Iterable[Column]) -> tuple[Column, ...]:
    """The columns as a stream has them: fixed ones first."""
    return tuple(sorted(columns, key=lambda column: column.type.variable))


def row_writer(
    table: str, columns: Sequence[Column], text: TextOptions, varchar_prefix: int, on_cut: Callable[[str], None]
) -> Callable[[Row], Payload]:
    """The function that writes rows of a table; ``columns`` in stream order, a row holds them all.

    ``on_cut`` is called with the column whose value lost its end. It raises NotExpressible, ValueRange naming the
    column.
    """
    writers = [(column, writer(column.type, text, varchar_prefix)) for column in columns]
    cutting = {column.name for column in columns if column.type.kind is Kind.DATETIME}

    def write(row: Row) -> Payload:
        sizes, slots = [], []
        for column, write_value in writers:
            value = row[column.name]
            try:
                slot = write_value(value)
            except NotExpressible as error:
                refused = type(error)(f"column {column.name!r} of {table!r}: {error}")
                refused.column = f"{table}.{column.name}"
                raise refused from None
            if column.type.variable:
                sizes.append(len(slot))
            elif column.name in cutting and cut_off(column.type, value):
                on_cut(column.name)
            slots.append(slot)
        return Payload(sizes, b"".join(slots))

    return write


def tabschem(label: int, columns: Sequence[Column]) -> bytes:
    """The TABSCHEM record of columns in stream order."""
    fixed = [column for column in columns if not column.type.variable]
    text = ", ".join(f"{quoted_name(column.name)} {_spelled(column)}" for column in columns)
    return records.tab_schem(
        label, text, sum(column.type.width for column in fixed), len(fixed), len(columns) - len(fixed)
    )


def _spelled(column: Column) -> str:
    """The type as servers spell it: lower-case, VARCHAR with its reserved minimum."""
    spelled = " ".join(column.type.spelled.lower().split())
    if column.type.kind is Kind.VARCHAR and column.type.size is not None:
        return f"{spelled.partition('(')[0].strip()}({column.type.size},0)"
    return spelled


def columns_of_catalog(table: Table, varchar_prefix: int) -> tuple[Column, ...]:
    """The columns that a table of the catalog has in a stream, binary ones left out, since it has none such.

    Text takes 4 bytes a character. Raises ConfigError if nothing is left.
    """
    columns = []
    for column in table.columns:
        spelled = _type_of_catalog(column.type, varchar_prefix)
        if spelled is not None:
            columns.append(Column(column.name, parse_type(spelled, column.name)))
    if not columns:
        raise ConfigError(f"table {table.name!r} of the catalog has no column that a CDC stream can hold")
    return stream_order(columns)


_INTEGERS: Final = {16: "smallint", 32: "integer", 64: "bigint"}
_SPELLED: Final = {
    CatalogKind.BOOLEAN: "boolean",
    CatalogKind.DATE: "date",
    CatalogKind.TIME: "datetime hour to fraction(5)",
    CatalogKind.TIMESTAMP: "datetime year to fraction(5)",
    CatalogKind.TIMESTAMPTZ: "datetime year to fraction(5)",
    CatalogKind.UUID: "char(36)",
}


def _type_of_catalog(type: CatalogType, varchar_prefix: int) -> str | None:
    numbers = [int(part) for part in type.sql.partition("(")[2].rstrip(") ").split(",") if part.strip().isdigit()]
    size = numbers[0] * _BYTES_A_CHARACTER if numbers else None
    match type.kind:
        case CatalogKind.BINARY:
            return None
        case CatalogKind.INTEGER if type.bits:
            return _INTEGERS[type.bits]
        case CatalogKind.INTEGER:
            return f"decimal({min(numbers[0], _MAX_DIGITS) if numbers else _MAX_DIGITS},0)"
        case CatalogKind.EXACT if numbers:
            scale = numbers[1] if len(numbers) > 1 else 0
            return f"decimal({max(min(numbers[0], _MAX_DIGITS), scale)},{scale})"
        case CatalogKind.EXACT:
            return f"decimal({_MAX_DIGITS})"
        case CatalogKind.APPROXIMATE:
            return "smallfloat" if type.bits == 32 else "float"
        case CatalogKind.FIXED:
            return f"char({size or _BYTES_A_CHARACTER})"
        case CatalogKind.CHARACTER if size is not None and size <= (0xFF if varchar_prefix == 1 else 0xFFFF):
            return f"varchar({size},0)"
        case CatalogKind.CHARACTER | CatalogKind.OTHER:
            return f"lvarchar({min(size or _LONGEST_LVARCHAR, _LONGEST_LVARCHAR)})"
        case _:
            return _SPELLED[type.kind]
