"""Read and write the values of columns by type (formats/qlik.md 1.1, 5.4). Messages have values as
JSON or Avro. Change tables have typed values in databases and Parquet, and text in CSV and JSON
files.

Reading is tolerant, in the same way everywhere: a text, a number or a value of an Avro type is
accepted wherever it can represent a value of the column's type. Parse JSON numbers with
``parse_float=Decimal``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from math import isinf
from pathlib import Path
from typing import Any, Final, TypeAlias

from eventlog.core.values import float_or_special
from eventlog.core.values.moments import EPOCH, microseconds, naive_utc
from eventlog.core.values.typed_values import (
    WIDEST,
    decimal_text,
    is_multi_valued,
    to_text,
    whole_number,
)
from eventlog.errors import FormatError, NotExpressible, shown
from eventlog.files import tabular
from eventlog.model import Lob, Value
from eventlog.qlik.columns import CLASSES, MomentColumn, QlikColumn, ZonedColumn

Convert = Callable[[Any], Any]
"""A function from a stored or sent form to a value, or from a value to that form.

The function is never called with NULL.
"""
ConvertRow: TypeAlias = Callable[[Sequence[Any]], list[Any]]
"""A function that converts the values of a row."""


# --- reading --------------------------------------------------------------------------------------

_UNREADABLE: Final = (
    ValueError, TypeError, AttributeError, InvalidOperation, OverflowError, FormatError,
)  # fmt: skip
"""The errors that the reader of a value raises for a value of another type."""
_ZONE: Final = r"(?: ?(Z|z|[+-][0-9]{2}:?[0-9]{2}))?"
_CLOCK: Final = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?"
_DATE_TEXT = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[ T]{_CLOCK}{_ZONE})?", re.ASCII)
_TIME_TEXT = re.compile(_CLOCK + _ZONE, re.ASCII)


def read_moment(text: str) -> datetime:
    """Return the date and time in a text as naive UTC. A blank or ``T`` separates date and time.
    The fraction has 0 to 9 digits, of which six are kept; the zone is optional.

    Raises ValueError.
    """
    match = _DATE_TEXT.fullmatch(text)
    if match is None:
        raise ValueError
    day, hour, minute, second, fraction, zone = match.groups()
    moment = datetime.fromisoformat(day)
    if hour is None:
        return moment
    moment = moment.replace(
        hour=int(hour),
        minute=int(minute),
        second=int(second or 0),
        microsecond=microseconds(fraction or ""),
    )
    return moment - _utc_offset(zone)


def _utc_offset(zone: str | None) -> timedelta:
    if zone is None or zone in "Zz":
        return timedelta(0)
    ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return -ahead if zone[0] == "-" else ahead


def _read_datetime(value: Any) -> datetime:
    if isinstance(value, datetime):
        return naive_utc(value)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        return read_moment(value)
    raise TypeError


def _read_date(value: Any) -> date:
    return value if type(value) is date else _read_datetime(value).date()


def _read_time(value: Any) -> time:
    if isinstance(value, time):
        return value
    match = _TIME_TEXT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError
    hour, minute, second, fraction, zone = match.groups()
    clock = time(int(hour), int(minute), int(second or 0), microseconds(fraction or ""))
    return clock if zone is None else (datetime.combine(EPOCH, clock) - _utc_offset(zone)).time()


def _read_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Lob):
        return value.data.decode()
    return value.hex().upper() if isinstance(value, bytes) else to_text(value)


def _read_decimal(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise TypeError
    number = (
        value
        if isinstance(value, Decimal)
        else Decimal(value if isinstance(value, int) else str(value).strip())
    )
    if not -WIDEST <= number.adjusted() < WIDEST:
        raise ValueError
    return number


_MAX_DIGITS: Final = 20
"""The number of digits of the largest integer that a column can hold, a UINT8."""


def _read_integer(value: Any) -> int:
    if type(value) is int:
        return value
    number = whole_number(_read_decimal(value), _MAX_DIGITS)
    if number is None:
        raise ValueError
    return number


def _read_real(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    real = float(value)
    if isinf(real) and Decimal(value).is_finite():  # the number is beyond the range of REAL8
        raise ValueError
    return real


def _read_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | Decimal) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise ValueError


def _read_bytes(value: Any) -> bytes:
    if isinstance(value, Lob):
        return value.data
    return value if isinstance(value, bytes) else bytes.fromhex(value)


_READERS: Final[Mapping[type, Convert]] = {
    date: _read_date,
    time: _read_time,
    datetime: _read_datetime,
    Decimal: _read_decimal,
    bool: _read_boolean,
    str: _read_text,
    bytes: _read_bytes,
    float: _read_real,
    int: _read_integer,
}

_BYTES_OF_INTEGERS: Final = (1, 2, 4, 8)
_RANGES: Final = {
    **{
        f"INT{size}": (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) for size in _BYTES_OF_INTEGERS
    },
    **{f"UINT{size}": (0, (1 << 8 * size) - 1) for size in _BYTES_OF_INTEGERS},
}


def value_reader(column: QlikColumn) -> Callable[[Any], Value]:
    """Return the function that reads a column's values from JSON or Avro.

    The function raises FormatError.
    """
    read, bounds = _READERS[CLASSES[column.type]], _RANGES.get(column.type)

    def checked(value: Any) -> Value:
        try:
            result: Value = read(value)
        except _UNREADABLE:
            raise FormatError(
                f"{shown(value)} is not {column.type}, the type of column {column.name!r}",
                code="bad_message_value",
            ) from None
        return result

    if bounds is None:
        return checked
    least, most = bounds

    def in_range(value: Any) -> Value:
        number = value if type(value) is int else checked(value)
        if not least <= number <= most:  # type: ignore[operator]
            raise FormatError(
                f"{shown(number)} in column {column.name!r} is out of range ({least} to {most})",
                code="bad_message_value",
            )
        return number

    return in_range


def plain_value(value: Any) -> Value:
    """Return the value that JSON or Avro holds for a column whose type is unknown.

    Raises FormatError.
    """
    if isinstance(value, Decimal):  # JSON: a number with a point or an exponent
        real = float(value)
        if isinf(real):
            raise FormatError(
                f"{shown(value)} is too large for a column without a type",
                code="bad_message_value",
            )
        return real
    if isinstance(value, datetime):
        return naive_utc(value)
    if isinstance(value, Mapping | list):
        raise FormatError(
            f"{shown(value)} is nested, so it cannot be the value of a column",
            code="bad_message_value",
        )
    plain: Value = value
    return plain


# --- in messages ----------------------------------------------------------------------------------


def as_is(value: Any) -> Any:
    """Return the value."""
    return value


_JSON_WRITERS: Final[Mapping[str, Convert]] = {
    "DATE": date.isoformat,
    "TIME": lambda clock: clock.isoformat("microseconds"),
    "DATETIME": lambda moment: moment.isoformat(" ", "microseconds"),
    "NUMERIC": decimal_text,
    "BYTES": lambda data: data.hex().upper(),
    "BLOB": lambda data: data.hex().upper(),
    "REAL4": float_or_special,
    "REAL8": float_or_special,
    "UINT8": str,
}


def json_writer(column: QlikColumn) -> Convert:
    """Return the function that writes a column's values for JSON.

    The function raises NotExpressible.
    """
    return writer(column, _JSON_WRITERS.get(column.type, as_is))


def writer(column: QlikColumn, write: Convert) -> Convert:
    """Return the function that converts a value to the type of its column, checks the range, and
    writes the value by ``write``. The function raises NotExpressible.
    """
    value_type, bounds = CLASSES[column.type], _RANGES.get(column.type)
    read = _READERS[value_type]
    plain_type = None if value_type is datetime else value_type  # a datetime may have a zone

    def typed(value: Value) -> Any:
        if is_multi_valued(value):
            raise NotExpressible(
                f"column {column.name!r} has several values, but a message has only one per column"
            )
        try:
            return read(value)
        except _UNREADABLE:
            raise NotExpressible(
                f"{shown(value)} in column {column.name!r} is not of type {column.type}",
                code="value_range",
            ) from None

    if bounds is None:
        if write is as_is:  # text, in most columns
            return lambda value: value if type(value) is plain_type else typed(value)
        return lambda value: write(value if type(value) is plain_type else typed(value))

    least, most = bounds

    def write_number(value: Any) -> Any:
        number = value if type(value) is int else typed(value)
        if not least <= number <= most:
            raise NotExpressible(
                f"{number} in column {column.name!r} is out of range ({least} to {most})",
                code="value_range",
            )
        return number if write is as_is else write(number)

    return write_number


# --- in change tables -----------------------------------------------------------------------------


def typed_writer(column: QlikColumn) -> Convert:
    """Return the function that converts values to the Python class of the column's type. The
    function raises NotExpressible for a value that does not fit.
    """
    value_type = CLASSES[column.type]
    if value_type is int:
        return writer(column, int)
    if value_type is str:
        return writer(column, lambda text: _encodable(text, column))
    typed = writer(column, as_is)
    return (
        typed
        if value_type is datetime
        else lambda value: value if type(value) is value_type else typed(value)
    )


def text_writer(column: QlikColumn) -> Convert:
    """Return the function that writes values as text, in the form of messages in JSON.

    The function raises NotExpressible.
    """
    in_json = json_writer(column)

    def write(value: Value) -> str:
        written = in_json(value)
        if isinstance(written, str):
            return _encodable(written, column)
        return str(written).lower() if isinstance(written, bool) else str(written)

    return write


def _encodable(text: Any, column: QlikColumn) -> str:
    """Return the text itself if UTF-8 can encode it. UTF-8 cannot encode unpaired surrogates.

    Raises NotExpressible.
    """
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise NotExpressible(
            f"{shown(text)} of column {column.name!r} cannot be written in UTF-8",
            code="value_range",
        ) from None
    return str(text)


def timestamp_text(moment: datetime) -> str:
    """Return a moment as ``YYYY-MM-DD HH:MM:SS.ffffff``, in UTC if it has a zone."""
    return naive_utc(moment).isoformat(" ", "microseconds")


def plain_reader(value: Any) -> Any:
    """Return the value that a driver has read from a column whose type is unknown. A buffer becomes
    bytes.
    """
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def row_converter(converts: Sequence[Convert], names: Sequence[str]) -> ConvertRow:
    """Return the function that converts a row, value by value; NULL stays NULL. ``names`` are the
    names of the columns, one of which each error names.
    """

    def convert(values: Sequence[Any]) -> list[Any]:
        try:
            return [
                None if value is None else one(value)
                for one, value in zip(converts, values, strict=True)
            ]
        except FormatError as error:
            refused = (
                name
                for one, value, name in zip(converts, values, names, strict=True)
                if _refuses(one, value)
            )
            error.column = next(refused)
            raise

    return convert


def _refuses(convert: Convert, value: Any) -> bool:
    try:
        if value is not None:
            convert(value)
    except FormatError:
        return True
    return False


def typed_reader(
    data: Sequence[tuple[str, int]], columns: Sequence[QlikColumn], plain: Convert = plain_reader
) -> ConvertRow:
    """Return the function that converts the data columns of a stored row to the Python classes of
    ``columns``. ``data`` has the names and places of the data columns.

    ``plain`` reads the data columns that ``columns`` lacks. The function raises FormatError.
    """
    known: dict[str, Convert] = {column.name: value_reader(column) for column in columns}
    converts = [(place, known.get(name, plain)) for name, place in data]

    def read(values: Sequence[Any]) -> list[Any]:
        typed = list(values)
        for place, convert in converts:
            if typed[place] is not None:
                typed[place] = convert(typed[place])
        return typed

    return read


# --- in files of change tables --------------------------------------------------------------------


def converter(file_format: str, columns: Sequence[QlikColumn], what: str) -> ConvertRow:
    """Return the function that converts the values of a row, in the order of ``columns``, to the
    values that files of a format hold.

    ``what`` names the table in errors. The function raises NotExpressible.
    """

    def text_converter_of(column: QlikColumn) -> Convert:
        return timestamp_text if isinstance(column, MomentColumn) else text_writer(column)

    one = _arrow_converter if file_format == "parquet" else text_converter_of
    return row_converter(list(map(one, columns)), [f"{what}.{column.name}" for column in columns])


@contextmanager
def open_part(
    path: Path, file_format: str, columns: Sequence[QlikColumn]
) -> Iterator[tabular.WriteRow]:
    """Open a new file, and yield the function that writes a row. The file is complete when the
    block has ended.

    Raises ConfigError if pyarrow is not installed, NotExpressible for values that
    Parquet cannot hold.
    """
    names = [column.name for column in columns]
    if file_format == "parquet":
        with tabular.open_parquet(path, names, list(map(arrow_type, columns))) as write:
            yield write
        return
    is_csv = file_format == "csv"
    line_of = tabular.csv_line if is_csv else partial(tabular.json_line, names)
    with path.open("x", encoding="utf-8", newline="") as file:

        def write_line(row: Sequence[Any]) -> None:
            file.write(line_of(row))

        if is_csv:
            write_line(names)
        yield write_line


_PLAIN_ARROW: Final = {
    "DATE": "date32",
    "BOOLEAN": "bool_",
    "REAL4": "float32",
    "REAL8": "float64",
    "INT1": "int8",
    "INT2": "int16",
    "INT4": "int32",
    "INT8": "int64",
    "UINT1": "int16",
    "UINT2": "int32",
    "UINT4": "int64",
    "BYTES": "binary",
    "BLOB": "binary",
}
_MAX_ARROW_DIGITS: Final = 38


def arrow_type(column: QlikColumn) -> Any:
    """Return the Arrow type of a column; Spark can read this type, too. A NUMERIC whose number of
    digits is unknown becomes text.

    Raises ConfigError if pyarrow is not installed.
    """
    arrow = tabular.pyarrow()
    if isinstance(column, MomentColumn | ZonedColumn):
        return arrow.timestamp("us", tz="UTC")
    match column.type:
        case "DATETIME":
            return arrow.timestamp("us")
        case "TIME":
            return arrow.time64("us")
        case "NUMERIC" if _has_digits(column):
            return arrow.decimal128(column.precision, column.scale)
        case "UINT8":
            return arrow.decimal128(20, 0)
        case _:
            return getattr(arrow, _PLAIN_ARROW.get(column.type, "string"))()


def _has_digits(column: QlikColumn) -> bool:
    return 0 < column.precision <= _MAX_ARROW_DIGITS and column.scale <= column.precision


def _arrow_converter(column: QlikColumn) -> Convert:
    if isinstance(column, MomentColumn):
        return lambda moment: moment.replace(tzinfo=UTC)
    if isinstance(column, ZonedColumn):
        write = typed_writer(column)
        return lambda value: write(value).replace(tzinfo=UTC)
    if column.type == "NUMERIC":
        return _arrow_decimal(column) if _has_digits(column) else text_writer(column)
    return typed_writer(column)


def _arrow_decimal(column: QlikColumn) -> Convert:
    """Return the function that writes decimals for Parquet. The function raises NotExpressible for
    NaN and infinity, which Parquet cannot hold.
    """
    write_any = typed_writer(column)

    def write(value: Any) -> Any:
        if type(value) is Decimal and value.is_finite():
            return value
        number = write_any(value)
        if not number.is_finite():
            raise NotExpressible(
                f"{number} of column {column.name!r} cannot be written to Parquet, whose decimals "
                "have neither NaN nor infinity",
                code="value_range",
            )
        return number

    return write
