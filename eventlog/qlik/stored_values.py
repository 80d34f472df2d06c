"""Values of columns as change tables hold them: typed, in databases and Parquet, or as text, in CSV and JSON files
(spec/qlik.md 1.1, 5.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from eventlog.core.moments import naive_utc
from eventlog.errors import FormatError, ValueRange, shown
from eventlog.files import tabular
from eventlog.model import Value
from eventlog.qlik.columns import CLASSES, MomentColumn, QlikColumn
from eventlog.qlik.values import Convert, json_writer, value_reader


def typed_writer(column: QlikColumn) -> Convert:
    """The function that brings values to their column's class. It raises ValueRange for one that cannot be."""
    value_type, read = CLASSES[column.type], value_reader(column)
    if value_type is int:
        in_range = json_writer(column)
        return lambda value: int(in_range(value))

    def write(value: Value) -> Any:
        if type(value) is value_type and value_type is not datetime and value_type is not str:
            return value
        try:
            typed = read(value)
        except FormatError:
            raise ValueRange(f"{shown(str(value))} of column {column.name!r} is no {column.type}") from None
        return _encodable(typed, column) if value_type is str else typed

    return write


def text_writer(column: QlikColumn) -> Convert:
    """The function that gives the text of values: that of messages in JSON. It raises ValueRange."""
    form = json_writer(column)

    def write(value: Value) -> str:
        written = form(value)
        if isinstance(written, str):
            return _encodable(written, column)
        return str(written).lower() if isinstance(written, bool) else str(written)

    return write


def _encodable(text: Any, column: QlikColumn) -> str:
    """The text itself, if it is text in UTF-8: half a surrogate pair is not."""
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise ValueRange(f"{shown(text)} of column {column.name!r} cannot be written in UTF-8") from None
    return str(text)


def timestamp_text(moment: datetime) -> str:
    """``YYYY-MM-DD HH:MM:SS.ffffff`` of a moment, in UTC if it has a zone."""
    return naive_utc(moment).isoformat(" ", "microseconds")


def plain_reader(value: Any) -> Any:
    """A value of a column whose type is not known, as its driver gives it."""
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def row_converter(converts: Sequence[Convert], names: Sequence[str]) -> Callable[[Sequence[Any]], list[Any]]:
    """The function that converts a row, value by value; NULL stays. Its errors name the column, of ``names``."""

    def convert(values: Sequence[Any]) -> list[Any]:
        try:
            return [None if value is None else one(value) for one, value in zip(converts, values, strict=True)]
        except FormatError as error:
            refused = (name for one, value, name in zip(converts, values, names, strict=True) if _refuses(one, value))
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
) -> Callable[[Sequence[Any]], list[Any]]:
    """The function that brings the data columns of a stored row, by their places, to the classes of ``columns``.

    A column that these do not name is read by ``plain``. It raises BadMessageValue.
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


# --- files ------------------------------------------------------------------------------------------------------------


def converter(file_format: str, columns: Sequence[QlikColumn], what: str) -> Callable[[Sequence[Any]], list[Any]]:
    """The function that gives the values of a row, in the order of ``columns``, as files of a format hold them.

    ``what`` is the table, for errors. The function raises ValueRange, NotExpressible.
    """
    one = _arrow_converter if file_format == "parquet" else _text_converter
    return row_converter(list(map(one, columns)), [f"{what}.{column.name}" for column in columns])


@contextmanager
def open_part(path: Path, file_format: str, columns: Sequence[QlikColumn]) -> Iterator[tabular.WriteRow]:
    """A new file, whole when the block has ended; gives the function that writes a row.

    Raises ConfigError if pyarrow is not installed, ValueRange for what Parquet cannot hold.
    """
    names = [column.name for column in columns]
    if file_format == "parquet":
        with tabular.open_parquet(path, names, list(map(arrow_type, columns))) as write:
            yield write
        return
    with path.open("x", encoding="utf-8", newline="") as file:

        def write_csv(row: Sequence[Any]) -> None:
            file.write(tabular.csv_line(row))

        def write_json(row: Sequence[Any]) -> None:
            file.write(tabular.json_line(names, row))

        if file_format == "csv":
            write_csv(names)
        yield write_csv if file_format == "csv" else write_json


def _text_converter(column: QlikColumn) -> Convert:
    return timestamp_text if isinstance(column, MomentColumn) else text_writer(column)


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
_MOST_DIGITS: Final = 38


def arrow_type(column: QlikColumn) -> Any:
    """The Arrow type of a column, such that Spark reads it too; a NUMERIC without known digits is text.

    Raises ConfigError if pyarrow is not installed.
    """
    arrow = tabular.pyarrow()
    if isinstance(column, MomentColumn):
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
    return 0 < column.precision <= _MOST_DIGITS and column.scale <= column.precision


def _arrow_converter(column: QlikColumn) -> Convert:
    if isinstance(column, MomentColumn):
        return lambda moment: moment.replace(tzinfo=UTC)
    if column.type == "NUMERIC":
        return _arrow_decimal(column) if _has_digits(column) else text_writer(column)
    return typed_writer(column)


def _arrow_decimal(column: QlikColumn) -> Convert:
    """Parquet's decimals are numbers: NaN and infinity are none."""
    write_any = typed_writer(column)

    def write(value: Any) -> Any:
        if type(value) is Decimal and value.is_finite():
            return value
        number = write_any(value)
        if not number.is_finite():
            raise ValueRange(f"{number} of column {column.name!r} is no number, which Parquet's decimals are")
        return number

    return write
