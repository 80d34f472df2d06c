"""The layout of a captured table: the columns in its TABSCHEM record, and the functions that read
and write its rows (formats/gbase-cdc.md 3.1, 3.2).

The row decoder is a hot path. The decoder unpacks all fixed columns with one ``struct`` call, and
converts only the columns that need a conversion. The decoder accepts the common size array
(little-endian, sizes that add up to the payload exactly) without the checks of ``_sizes_reader``.
The price: ``decode`` is a closure over many prepared lists, and calls ``_sizes_reader``, which has
the rules of size arrays, for every other array.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Final, NamedTuple

from eventlog.changes.images import Count
from eventlog.core.catalog import Table, table_of_types
from eventlog.errors import ConfigError, FormatError, NotExpressible, shown, with_location
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.packed import cuts_off, holds, parse_qualifier
from eventlog.gbase.records import (
    SIZES_AT,
    TABSCHEM,
    ColumnError,
    fields_of,
    framing_error,
    tab_schem,
)
from eventlog.gbase.values import ColumnType, Encoding, codec
from eventlog.model import Key, Row, Value, full_name

# --- TABSCHEM -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A captured column."""

    name: str
    type: ColumnType


def parse_columns(text: str, decimal_no_scale: str = "floating") -> tuple[Column, ...]:
    """Return the columns of a TABSCHEM text in the order of the text.

    Raises FormatError, also if a name occurs twice.
    """
    columns = tuple(
        Column(name, parse_type(spelled, name, decimal_no_scale))
        for name, spelled in split_columns(text)
    )
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise FormatError(f"a column occurs twice in {shown(text)}", code="schema_mismatch")
    return columns


def stream_order(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns in the order of a stream: fixed columns, then variable columns."""
    return tuple(sorted(columns, key=lambda column: column.type.variable))


def split_columns(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and type of each column of a TABSCHEM text.

    Raises FormatError if a quoted name does not end.
    """
    for part in _split_at_commas(text):
        column = part.strip()
        if column.startswith('"'):
            end = _QUOTED.match(column)
            if end is None:
                raise FormatError(
                    f"column name without its closing quote: {shown(column)}", code="unknown_type"
                )
            name, spelled = end[1].replace('""', '"'), column[end.end() :]
        else:
            name, _, spelled = column.partition(" ")
        yield name, spelled.strip()


_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')
_TOKENS: Final = re.compile(r'"(?:[^"]|"")*"|\'(?:[^\']|\'\')*\'|[(),]')


def _split_at_commas(text: str) -> Iterator[str]:
    if not text.strip():
        return
    begin = depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] == "," and depth == 0:
            yield text[begin : token.start()]
            begin = token.end()
        depth += (token[0] == "(") - (token[0] == ")")
    yield text[begin:]


_BY_NAME: Final = {name: kind for kind in Encoding for name in kind.names}
_SERIALS: Final = ("serial", "serial8", "bigserial")
_FLOATING_SCALE: Final = 255
_MAX_PRECISION: Final = 32
_TYPE: Final = re.compile(
    r"([a-z0-9]+(?:\s+precision)?)\s*(?:\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\))?", re.ASCII
)


def parse_type(text: str, column: str, decimal_no_scale: str = "floating") -> ColumnType:
    """Parse the spelling of a type, in upper or lower case. Messages name ``column``.

    ``decimal_no_scale`` is the meaning of DECIMAL(p): ``floating`` or ``zero``. Raises FormatError.
    """
    spelled = text.strip()
    parsed = _parsed(spelled, decimal_no_scale)
    if parsed is None:
        raise FormatError(
            f"column {shown(column)} has the type {shown(spelled)}, which CDC cannot capture: "
            "remove the column from startcapture",
            code="unknown_type",
        )
    return parsed


def _parsed(spelled: str, no_scale: str) -> ColumnType | None:
    words = spelled.lower()
    for word in Encoding.DATETIME.names:
        if words.startswith(word):
            qualifier = parse_qualifier(words[len(word) :].strip(), word == "interval")
            return (
                None
                if qualifier is None
                else ColumnType(Encoding.DATETIME, spelled, qualifier=qualifier)
            )
    match = _TYPE.fullmatch(words)
    name = " ".join(match[1].split()) if match else ""
    kind = _BY_NAME.get(name)
    if match is None or kind is None:
        return None
    parameters = [int(part) for part in match.groups()[1:] if part is not None]
    if len(parameters) > (1 if name in _SERIALS else kind.parameters):
        return None
    if kind is Encoding.DECIMAL:
        return _decimal(name, spelled, parameters, no_scale)
    if kind not in (Encoding.CHAR, Encoding.VARCHAR, Encoding.LVARCHAR):
        return ColumnType(kind, spelled)
    size = parameters[0] if parameters else 1 if kind is Encoding.CHAR else None
    return None if size == 0 else ColumnType(kind, spelled, size)


def _decimal(name: str, spelled: str, parameters: list[int], no_scale: str) -> ColumnType | None:
    precision = parameters[0] if parameters else 16
    scale: int | None
    if len(parameters) == 2:
        scale = None if parameters[1] == _FLOATING_SCALE else parameters[1]
    elif name == "money":
        scale = 2
    else:
        scale = 0 if no_scale == "zero" and parameters else None
    if not 1 <= precision <= _MAX_PRECISION or (scale or 0) > precision:
        return None
    return ColumnType(Encoding.DECIMAL, spelled, precision, scale)


def tabschem(label: int, columns: Sequence[Column]) -> bytes:
    """Return the TABSCHEM record of columns in stream order."""
    fixed = [column for column in columns if not column.type.variable]
    text = ", ".join(map(_spelled, columns))
    return tab_schem(
        label,
        text,
        sum(column.type.width for column in fixed),
        len(fixed),
        len(columns) - len(fixed),
    )


def _spelled(column: Column) -> str:
    """Return a column in the spelling of servers: the name is quoted unless it is a plain word, the
    type is in lower case, and VARCHAR has a reserved minimum of 0.
    """
    name, type = column.name, column.type
    quoted = name if re.fullmatch(r"[^\W\d]\w*", name) else '"' + name.replace('"', '""') + '"'
    spelled = " ".join(type.spelled.lower().split())
    if type.kind is Encoding.VARCHAR and type.size is not None:
        spelled = f"{spelled.partition('(')[0].strip()}({type.size},0)"
    return f"{quoted} {spelled}"


# --- rows -----------------------------------------------------------------------------------------


class Layout:
    """The layout of the rows of one label.

    ``columns`` and ``names`` are in stream order: fixed columns, then variable columns.
    ``qualified`` is ``schema.table``, or the table alone. ``header_size`` is the size of the
    smallest header that holds the size array.

    ``sizes(record, header_size)`` returns the size array in its byte order. ``decode(record,
    header_size)`` returns the values in the order of ``names``. Both functions raise a ColumnError
    that has the place of the error. ``key_of(row)`` returns the key; ``key_of`` is None if the key
    is unknown. Raises ConfigError for a key column that is not captured.
    """

    def __init__(
        self, label: int, columns: tuple[Column, ...], options: ReadOptions, layouts: Layouts
    ) -> None:
        self.schema, self.table = options.name_of(label)
        self.qualified = full_name(self.schema, self.table)
        self.columns = columns
        self.names = names = tuple(column.name for column in columns)
        self.header_size = SIZES_AT + 4 * sum(column.type.variable for column in columns)
        self.sizes = _sizes_reader(self.qualified, columns, options.size_order, layouts)
        self.decode = _row_decoder(self.qualified, columns, self.sizes, options, layouts)
        key = options.key_of(self.schema, self.table)
        for name in key or ():
            if name not in names:
                captured = ", ".join(names)
                raise ConfigError(
                    f"key column {name!r} of {self.table!r} is not captured; the captured columns "
                    f"are {captured}"
                )
        self.key = tuple(key or ())
        self.key_of = None if key is None else _key_reader(key)

    def check_header(self, header_size: int, offset: int) -> None:
        """Raise FormatError if the header of the row record at ``offset`` is too short for the
        size array.
        """
        if header_size < self.header_size:
            size = f"a header of {header_size} bytes instead of {self.header_size}"
            raise framing_error(offset, f"row of {self.table!r} with {size}")


def _key_reader(names: Sequence[str]) -> Callable[[Row], Key]:
    if len(names) == 1:
        (name,) = names
        return lambda row: ((name, row[name]),)
    return lambda row: tuple([(name, row[name]) for name in names])


MOST_COLUMNS: Final = 250_000
"""The number of columns that the TABSCHEM records of a stream may describe while it is read: each
takes about a kilobyte.
"""

# A layout counts as some columns besides its own, and so does a text with long names.
_COLUMNS_OF_A_LAYOUT: Final = 4
_LONG_NAME: Final = 256


class Layouts(dict[int, Layout]):
    """The current layouts by label. ``define`` adds the layout of a TABSCHEM record. The new layout
    replaces an earlier layout with the same label.

    ``size_order`` is the byte order of the stream's size arrays, once an array has shown it.
    ``defined`` counts the TABSCHEM records.
    """

    def __init__(self, options: ReadOptions, counters: Counter[str]) -> None:
        super().__init__()
        self._options = options
        self._counters = counters
        self._records: dict[int, bytes] = {}
        self._columns_left = MOST_COLUMNS
        self.size_order: str | None = None
        self.defined = 0

    def define(self, record: bytes, header_size: int) -> Layout:
        """Define and return the layout of a TABSCHEM record. A record that repeats the label's last
        record keeps its layout.

        Raises FormatError, also for more than ``MOST_COLUMNS`` columns in all layouts, and
        ConfigError for a key column that is not captured.
        """
        label, _, _, fixed, variable = fields_of(TABSCHEM, record)
        self.defined += 1
        if self._records.get(label) == record:
            return self[label]
        columns = self._columns(label, fixed, variable, record[header_size:])
        self._columns_left -= len(columns) + _COLUMNS_OF_A_LAYOUT + len(record) // _LONG_NAME
        if self._columns_left < 0:
            raise FormatError(
                f"the TABSCHEM records up to label {label} describe more than {MOST_COLUMNS} "
                "columns: capture fewer tables in one stream, or continue from the last position",
                code="schema_mismatch",
            )
        self._records[label] = record
        layout = self[label] = Layout(label, columns, self._options, self)
        return layout

    def _columns(self, label: int, fixed: int, variable: int, payload: bytes) -> tuple[Column, ...]:
        """Return the columns of a TABSCHEM in stream order, checked against the counts of the
        record.
        """
        try:
            text = payload.split(b"\0", 1)[0].decode("utf-8")
        except UnicodeDecodeError as error:
            raise ColumnError(
                f"the TABSCHEM of label {label} is not UTF-8: {error}", code="decode"
            ) from None
        columns = parse_columns(text, self._options.decimal_no_scale)
        variable_columns = sum(column.type.variable for column in columns)
        if (fixed, variable) != (len(columns) - variable_columns, variable_columns):
            raise FormatError(
                f"the TABSCHEM of label {label} counts {fixed} fixed and {variable} variable "
                f"columns, but its text {shown(text)} has {len(columns) - variable_columns} and "
                f"{variable_columns}",
                code="schema_mismatch",
            )
        # The sort is stable, so it changes nothing if the server already uses stream order.
        return stream_order(columns)

    def __missing__(self, label: int) -> Layout:
        raise FormatError(
            f"a row has the label {label}, which no TABSCHEM record has described: read the "
            "stream from its start",
            code="schema_missing",
        )

    def count_lenient(self) -> None:
        """Count a DATETIME that was read leniently."""
        self._counters["datetime_lenient"] += 1


_SEQUENCE: Final = struct.Struct(">Q")
_AMBIGUOUS_FROM: Final = 1 << 16
"""The payload size below which a size array fits in only one byte order (formats/gbase-cdc.md 3.2).
"""


def _sequence(record: bytes) -> int:
    (sequence,) = _SEQUENCE.unpack_from(record, 16)
    return int(sequence)


_SizesReader = Callable[[bytes, int], Sequence[int]]
_SIGNS: Final = {"little": "<", "big": ">"}  # byte orders as ``struct`` spells them


def _sizes_reader(
    table: str, columns: Sequence[Column], size_order: str, layouts: Layouts
) -> _SizesReader:
    """Return the function that reads the size array of a row, and checks the length of the row
    against the array. The function raises ColumnError.
    """
    variable = [column.name for column in columns if column.type.variable]
    fixed_bytes = sum(column.type.width for column in columns if not column.type.variable)
    last = columns[-1].name if columns else ""
    in_its_order = _array_reader(table, variable, size_order, layouts)

    def read(record: bytes, header_size: int) -> Sequence[int]:
        payload = len(record) - header_size
        sizes = in_its_order(record, payload) if variable else ()
        end = fixed_bytes
        for name, size in zip(variable, sizes, strict=True):
            end += size
            if end > payload:
                problem = f"its slot ends at byte {end} of a payload of {payload}"
                raise ColumnError(problem, code="row_length").at(table, _sequence(record), name)
        if end != payload:
            problem = f"the columns take {end} bytes, but the payload has {payload}"
            raise ColumnError(problem, code="row_length").at(table, _sequence(record), last)
        return sizes

    return read


def _array_reader(
    table: str, variable: Sequence[str], size_order: str, layouts: Layouts
) -> _SizesReader:
    """Return the function that reads the size array of the variable columns. The function uses the
    byte order that fits the size of the payload, its second argument. The function raises
    ColumnError.
    """
    orders = _SIGNS if size_order == "auto" else (size_order,)
    readers = [
        (order, struct.Struct(f"{_SIGNS[order]}{len(variable)}I").unpack_from) for order in orders
    ]

    def read(record: bytes, payload: int) -> Sequence[int]:
        fitting: dict[str, Sequence[int]] = {}
        for order, read_array in readers:
            sizes = read_array(record, SIZES_AT)
            if min(sizes) >= 1 and sum(sizes) <= payload:
                fitting[order] = sizes
        if not fitting:
            array = record[SIZES_AT : SIZES_AT + 4 * len(variable)].hex().upper()
            order = "either byte order" if size_order == "auto" else f"the byte order {size_order}"
            problem = (
                f"in {order}, the size array {array} does not fit the payload of {payload} bytes"
            )
            raise ColumnError(problem, code="size_array").at(table, _sequence(record), variable[0])
        if len(fitting) == 1:
            (layouts.size_order,) = fitting
        # Payloads of 64 KiB and more may fit both byte orders.
        return fitting[layouts.size_order or "little"]

    return read


class _Slots(NamedTuple):
    """The columns of a table, in the form that the decoder of its rows uses."""

    fixed: struct.Struct
    """The fixed slots."""
    nulls: list[tuple[int, int]]
    """The places of fixed slots that have no converter, each with the number that means NULL."""
    converters: list[tuple[int, Callable[..., Value]]]
    """The places of the other fixed slots, each with the function that converts its value."""
    variable: list[tuple[int, Callable[..., Value]]]
    """The places of variable slots, each with the function that reads the slot."""


def _slots(columns: Sequence[Column], options: ReadOptions, layouts: Layouts) -> _Slots:
    prefix = options.varchar_prefix if isinstance(options.varchar_prefix, int) else None
    codecs = [
        codec(
            column.type,
            options.charset,
            prefix,
            options.charset_errors,
            options.char_trim,
            layouts.count_lenient,
        )
        for column in columns
    ]
    fixed = [column.type.slot for column in columns if not column.type.variable]
    # Integers need no conversion; their lowest value means NULL.
    readers = [(place, one.read) for place, one in enumerate(codecs) if one.read is not None]
    return _Slots(
        struct.Struct(">" + "".join(fixed)),
        [
            (place, struct.unpack(f">{slot}", one.null)[0])
            for place, (slot, one) in enumerate(zip(fixed, codecs, strict=False))
            if one.read is None
        ],
        [(place, convert) for place, convert in readers if place < len(fixed)],
        [(place - len(fixed), read) for place, read in readers if place >= len(fixed)],
    )


def _row_decoder(
    table: str,
    columns: Sequence[Column],
    read_sizes: _SizesReader,
    options: ReadOptions,
    layouts: Layouts,
) -> Callable[[bytes, int], list[Value]]:
    """Return the function that decodes the rows of a table. The function raises a ColumnError that
    has the place of the error.
    """
    fixed, nulls, converters, variable = _slots(columns, options, layouts)
    unpack, fixed_bytes, fixed_count = fixed.unpack_from, fixed.size, len(columns) - len(variable)
    little = struct.Struct(f"<{len(variable)}I").unpack_from
    longest = _AMBIGUOUS_FROM if options.size_order != "big" else 0
    sizes_at = SIZES_AT

    def decode(record: bytes, header_size: int) -> list[Value]:
        # The common size array is little-endian and uses up the payload exactly: it needs no
        # further check.
        length = len(record)
        end = header_size + fixed_bytes
        sizes: Sequence[int] = little(record, sizes_at) if length < longest else (0,)
        if end + sum(sizes) != length or 0 in sizes:
            sizes = read_sizes(record, header_size)
        elif layouts.size_order is None:
            layouts.size_order = "little"
        values = list(unpack(record, header_size))
        place = 0
        try:
            for place, null in nulls:
                if values[place] == null:
                    values[place] = None
            for place, convert in converters:
                values[place] = convert(values[place])
            place = fixed_count
            for slot, read in variable:
                begin = end
                end += sizes[slot]
                values.append(read(record, begin, end))
        except ColumnError as error:
            column = columns[place if place < fixed_count else len(values)]
            raise error.at(table, _sequence(record), column.name) from None
        return values

    return decode


RowWriter = Callable[[Row], tuple[list[int], bytes]]
"""A function that returns the two parts that a row has in its record: the sizes of the variable
slots, and the bytes of all columns.
"""


def row_writer(
    table: str,
    columns: Sequence[Column],
    charset: str,
    varchar_prefix: int,
    on_cut: Count,
) -> RowWriter:
    """Return the function that writes rows of a table. ``columns`` are in stream order; a row must
    have all of them.

    ``on_cut`` is called with the name of a column whose value is cut off. The function raises
    NotExpressible, which names the column.
    """
    codecs = [(column, codec(column.type, charset, varchar_prefix)) for column in columns]

    def write(row: Row) -> tuple[list[int], bytes]:
        sizes, slots = [], []
        for column, (null, write_value, _) in codecs:
            value = row[column.name]
            try:
                slot = null if value is None else write_value(value)
            except NotExpressible as error:
                error.column = f"{table}.{column.name}"
                raise with_location(error, f"column {column.name!r} of {table!r}") from None
            if column.type.variable:
                sizes.append(len(slot))
            elif column.type.qualifier is not None and cuts_off(value, column.type.qualifier):
                on_cut(column.name)
            slots.append(slot)
        return sizes, b"".join(slots)

    return write


# --- a layout as a table of a catalogue -----------------------------------------------------------

_TYPE_NAMES: Final = {
    Encoding.SMALLINT: "smallint",
    Encoding.INTEGER: "integer",
    Encoding.BIGINT: "bigint",
    Encoding.INT8: "bigint",
    Encoding.FLOAT: "double precision",
    Encoding.SMALLFLOAT: "real",
    Encoding.DATE: "date",
    Encoding.BOOLEAN: "boolean",
    Encoding.LOB: "other",
}
_TIME_NAMES: Final = {date: "date", time: "time", datetime: "timestamp", None: "other"}


def catalog_table(layout: Layout) -> Table:
    """Return a captured table as a catalogue describes it: its columns with the types of their
    values, and its key.
    """
    types = ((column.name, _type_name(column.type)) for column in layout.columns)
    return table_of_types(layout.table, types, layout.key)


def _type_name(type: ColumnType) -> str:
    if type.qualifier is not None:
        return _TIME_NAMES[holds(type.qualifier)]
    # The values always have a decimal point, whatever their number of fraction digits.
    if type.kind is Encoding.DECIMAL:
        return f"numeric({type.size},{type.scale})" if type.scale else "numeric"
    return _TYPE_NAMES.get(type.kind) or (f"varchar({type.size})" if type.size else "varchar")
