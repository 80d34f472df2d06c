"""A value of a Change -> the value of a column of DISPATCH_ATTRS (spec/change-model.md 5.1, column L)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from eventlog.errors import NotExpressible
from eventlog.linter.attributes import ColumnAttrs, Typ
from eventlog.model import Lob, Value

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
    except (TypeError, ValueError, ArithmeticError):
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
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    whole = value.replace(microsecond=value.microsecond // 10_000 * 10_000)
    if whole != value:
        truncated(column)
    return whole


def _integer(value: Any) -> int:
    if not isinstance(value, int | str | Decimal):
        raise TypeError
    number = int(value)
    if isinstance(value, Decimal) and number != value:
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
        return format(value, "f")
    if isinstance(value, int | float):
        return repr(value)
    raise TypeError


def _bytes(value: Any) -> bytes:
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
    Typ.BYTE: _bytes,
    Typ.BLOB: _bytes,
    Typ.VARCHAR: _text,
    Typ.VARBYTE: _bytes,
    Typ.BOOLEAN: _boolean,
    Typ.NCHAR: _text,
    Typ.NVARCHAR: _text,
}
