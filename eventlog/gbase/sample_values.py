"""Values of every column type, random or at its limits, for streams of the emulated server."""

from __future__ import annotations

import random
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Final

from eventlog.gbase.column_types import Column, Kind, parse_type, split_columns
from eventlog.gbase.datetimes import DAY, FIELDS, FRACTION, MONTH, SECOND, YEAR, Qualifier, holds
from eventlog.model import Value

ALL_TYPES: Final = (
    "s smallint, i integer, b bigint, q int8, se serial, f float, sf smallfloat, de decimal(10,2), dn decimal(16), "
    "od decimal(5,1), mo money, dt date, ys datetime year to second, yf datetime year to fraction(5), "
    "hf datetime hour to fraction(3), yd datetime year to day, md datetime month to day, ds interval day(3) to second, "
    "ym interval year to month, ff interval fraction to fraction(3), ch char(6), bo boolean, v varchar(30), "
    "nv nvarchar(30), lv lvarchar(200)"
)
"""Columns of every type that holds a value of its own."""

_COLUMNS: Final = tuple(Column(name, parse_type(spelled, name)) for name, spelled in split_columns(ALL_TYPES))
_BITS: Final = {Kind.SMALLINT: 15, Kind.INTEGER: 31, Kind.BIGINT: 63, Kind.INT8: 63}
_TEXTS: Final = ("", "a", "Zoë", "数据变更", 'it\'s, "quoted"', " leading", "x" * 29)
_SECONDS: Final = 3_000_000_000
_MOMENT: Final = datetime(1930, 1, 1)


def random_value(rnd: random.Random, column: Column) -> Value:
    """A value of the column's type, at times NULL, that reads back as itself."""
    if rnd.random() < 0.1:
        return None
    type = column.type
    match type.kind:
        case Kind.SMALLINT | Kind.INTEGER | Kind.BIGINT | Kind.INT8:
            bits = _BITS[type.kind]
            return rnd.randrange(-(1 << bits) + 1, 1 << bits) >> rnd.randrange(bits)
        case Kind.FLOAT:
            return rnd.uniform(-1e9, 1e9)
        case Kind.SMALLFLOAT:
            return rnd.randrange(-(1 << 20), 1 << 20) / 16
        case Kind.DECIMAL:
            assert type.size is not None
            number = rnd.randrange(-(10**type.size) + 1, 10**type.size) // 10 ** rnd.randrange(type.size)
            if type.scale is not None:
                return Decimal(f"{number}E-{type.scale}")
            return Decimal(f"{Decimal(f'{number}E-{rnd.randrange(type.size)}').normalize():f}")
        case Kind.DATE:
            return (_MOMENT + timedelta(seconds=rnd.randrange(_SECONDS))).date()
        case Kind.BOOLEAN:
            return rnd.random() < 0.5
        case Kind.DATETIME:
            assert type.qualifier is not None
            return _random_datetime(rnd, type.qualifier)
        case Kind.CHAR:
            return f"{rnd.randrange(10**5)}"[: type.size]
        case _:
            text = rnd.choice(_TEXTS) if rnd.random() < 0.3 else f"text {rnd.randrange(10**9)}"
            return text.encode()[: type.size].decode(errors="ignore")


def _random_datetime(rnd: random.Random, qualifier: Qualifier) -> Value:
    step = 10 ** (6 - qualifier.fraction)
    moment = _MOMENT + timedelta(
        seconds=rnd.randrange(_SECONDS), microseconds=rnd.randrange(10**6) // step * step if qualifier.fraction else 0
    )
    kind = holds(qualifier)
    if kind is date:
        return moment.date()
    if kind is not None:
        for name in FIELDS[qualifier.last + 1 : FRACTION]:
            moment = moment.replace(**{name: 0})  # type: ignore[arg-type]
        return moment if kind is datetime else moment.time()
    if not qualifier.interval:
        return f"{moment:%m-%d}" if (qualifier.first, qualifier.last) == (MONTH, DAY) else None
    # No zero, which has no sign.
    numbers = [rnd.randrange(1, 10**qualifier.precision), *(rnd.randrange(1, 12) for _ in range(6))]
    return _interval(qualifier, numbers, rnd.choice("- "))


def _interval(qualifier: Qualifier, numbers: list[int], sign: str) -> str:
    text = sign.strip()
    for position, field_ in enumerate(range(qualifier.first, min(qualifier.last, SECOND) + 1)):
        separator = {1: "-", DAY + 1: " "}.get(field_, ":") if position else ""
        text += f"{separator}{numbers[position] if position == 0 else f'{numbers[position]:02}'}"
    return text + (f".{numbers[-1]:0{qualifier.fraction}}" if qualifier.fraction else "")


def extreme_row(highest: bool) -> dict[str, Value]:
    """The highest or lowest values of ALL_TYPES."""
    return {column.name: _extreme(column, highest) for column in _COLUMNS}


def null_row() -> dict[str, Value]:
    """A row of ALL_TYPES of nothing but NULL."""
    return {column.name: None for column in _COLUMNS}


def _extreme(column: Column, highest: bool) -> Value:
    type, sign = column.type, 1 if highest else -1
    match type.kind:
        case Kind.SMALLINT | Kind.INTEGER | Kind.BIGINT | Kind.INT8:
            return sign * ((1 << _BITS[type.kind]) - 1)
        case Kind.FLOAT:
            return sign * 1.7976931348623157e308
        case Kind.SMALLFLOAT:
            return sign * 3.4028234663852886e38
        case Kind.DECIMAL:
            assert type.size is not None
            return Decimal(f"{sign * (10**type.size - 1)}E-{type.scale or 0}")
        case Kind.DATE:
            return date.max if highest else date.min
        case Kind.BOOLEAN:
            return highest
        case Kind.CHAR:
            return "z" * (type.size or 1) if highest else ""
        case Kind.DATETIME:
            assert type.qualifier is not None
            return _extreme_datetime(type.qualifier, highest)
        case _:
            return "z" * (type.size or 1) if highest else ""


def _extreme_datetime(qualifier: Qualifier, highest: bool) -> Value:
    kind = holds(qualifier)
    if qualifier.interval:
        tops = [10**qualifier.precision - 1]
        tops += [11 if qualifier.first == YEAR else 23 if at + qualifier.first == DAY + 1 else 59 for at in range(1, 6)]
        return _interval(qualifier, [*tops, 10**qualifier.fraction - 1], " " if highest else "-")
    if kind is None:
        return "12-31" if highest else "01-01"
    fraction = 10**6 - 10 ** (6 - qualifier.fraction) if qualifier.fraction else 0
    if kind is time:
        return time(23, 59, 59, fraction) if highest else time()
    if kind is date:
        return date.max if highest else date.min
    return datetime(9999, 12, 31, 23, 59, 59, fraction) if highest else datetime(1, 1, 1)
