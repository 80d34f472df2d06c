"""The bare binary encoding of Avro (Avro specification, Binary encoding), written and read by
fastavro. fastavro belongs to the extra ``avro`` and is imported only when it is used.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.core.extras import install_command
from eventlog.core.values.typed_values import unscaled_bytes
from eventlog.errors import ConfigError, FormatError, NotExpressible, shown
from eventlog.files.text import DEEPEST, parsed_json
from eventlog.model import JsonDict, JsonObject
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.values import Convert, as_is, json_writer, writer

# --- values of columns ----------------------------------------------------------------------------


def avro_writer(column: QlikColumn, logical_types: bool) -> Convert:
    """Return the function that converts a column's values to the values that fastavro accepts.

    The function raises NotExpressible.
    """
    if column.type in ("DATE", "TIME", "DATETIME", "NUMERIC") and not (
        logical_types and (column.type != "NUMERIC" or column.precision)
    ):
        return json_writer(column)
    match column.type:
        case "DATETIME":  # fastavro takes a datetime without a zone for local time
            return writer(column, lambda moment: moment.replace(tzinfo=UTC))
        case "NUMERIC":
            return writer(column, _in_places(column))
        case "UINT8":
            return writer(column, Decimal if logical_types else _in_long)
        case _:
            return writer(column, as_is)


def _in_places(column: QlikColumn) -> Callable[[Decimal], bytes]:
    """Return the function that turns a number into the unscaled bytes of the column's Avro decimal.
    The function does not round, and raises NotExpressible if the number does not fit the column.
    """
    exactly = Context(prec=column.precision, traps=[InvalidOperation, Inexact])
    unit = Decimal(1).scaleb(-column.scale)
    _, scale = column.avro_decimal

    def in_places(number: Decimal) -> bytes:
        try:
            exact = exactly.quantize(number, unit)
        except (InvalidOperation, Inexact):
            exact = Decimal("NaN")
        if not exact.is_finite():
            raise NotExpressible(
                f"{number} of column {column.name!r} is not NUMERIC({column.precision}, "
                f"{column.scale})",
                code="value_range",
            )
        return unscaled_bytes(exact, scale)

    return in_places


def _in_long(number: int) -> int:
    if number > 2**63 - 1:
        raise NotExpressible(
            f"{number} of type UINT8 does not fit into an Avro long; set logical_types = true",
            code="value_range",
        )
    return number


# --- records by their schemas ---------------------------------------------------------------------


def _fastavro() -> Any:
    """Return the module fastavro. Raises ConfigError if it is not installed."""
    try:
        import fastavro
    except ModuleNotFoundError:
        raise ConfigError(
            f"messages in Avro need the package fastavro: {install_command('avro')}; or use "
            "encoding = json"
        ) from None
    return fastavro


@lru_cache(maxsize=1024)
def parsed(schema: str) -> Any:
    """Return the schema that a JSON text holds, in the form that fastavro accepts. Illegal names
    are accepted, too. Raises FormatError.
    """
    return _parsed(schema)


def _parsed(schema: str) -> Any:
    fastavro = _fastavro()
    try:
        return fastavro.parse_schema(parsed_json(schema))
    except (
        ValueError,
        TypeError,
        ArithmeticError,
        LookupError,
        AttributeError,
        FormatError,
        fastavro.schema.SchemaParseException,
    ) as error:
        raise FormatError(
            f"an Avro schema cannot be read: {type(error).__name__}: {error}", code="bad_avro"
        ) from None


def bytes_writer(schema: str) -> _ToBytes:
    """Return the function that writes values of a schema as bare Avro binary. Raises FormatError.

    The function raises NotExpressible for a value that does not fit the schema.
    """
    write, written_by = _fastavro().schemaless_writer, parsed(schema)

    def to_bytes(value: Any) -> bytes:
        buffer = io.BytesIO()
        try:
            write(buffer, written_by, value)
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise NotExpressible(f"a record does not fit its Avro schema: {error}") from None
        return buffer.getvalue()

    return to_bytes


# fastavro takes 16 us for the message of an update of six columns, most of it to find the branches
# of unions; with the branches given it takes 11 us, and with a schema for each pattern of NULLs 7
# to 9 us. The writers below take 3.4 us (bench/RESULTS.md, "One path to JSON"). They leave rare
# types to fastavro. The tests test_avro_messages_are_whole_records_of_their_schemas and
# test_a_record_is_written_as_fastavro_writes_it check that both agree.

_NULL: Final = b"\0"
_VALUE: Final = b"\2"
"""The bytes of the branch of a value in a union of null and the type of the value."""


_ToBytes: TypeAlias = Callable[[Any], bytes]


def record_writer(
    fields: Sequence[JsonObject], values: Mapping[str, Convert] | None = None
) -> Callable[[JsonObject], bytes]:
    """Return the function that writes these fields of a record, one after the other, as
    ``bytes_writer`` does.

    A union must consist of null and one type. ``values`` maps fields to functions that make the
    values of these fields. The fields in ``values`` must have few different values, since the
    values are kept. The function raises NotExpressible. Raises FormatError.
    """
    written_by = [(field["name"], _type_writer(field["type"])) for field in fields]
    for place, (name, to_bytes) in enumerate(written_by):
        if values and name in values:
            written_by[place] = name, _remembered(values[name], to_bytes)

    def write(record: JsonObject) -> bytes:
        try:
            return b"".join([to_bytes(record[name]) for name, to_bytes in written_by])
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise NotExpressible(f"a record does not fit its Avro schema: {error}") from None

    return write


def _remembered(value_of: Convert, to_bytes: _ToBytes) -> _ToBytes:
    return lru_cache(maxsize=1024)(lambda given: to_bytes(value_of(given)))


def _type_writer(kind: Any) -> _ToBytes:
    match kind:
        case ["null", "string"]:  # nearly all columns
            return lambda value: _NULL if value is None else _VALUE + sized(value.encode())
        case ["null", other]:
            to_bytes = _type_writer(other)
            return lambda value: _NULL if value is None else _VALUE + to_bytes(value)
        case "string":
            return lambda value: sized(value.encode())
        case "bytes":
            return sized
        case "int" | "long":
            return _whole_number
        case {"type": "enum", "symbols": symbols}:
            return {
                symbol: _whole_number(place) for place, symbol in enumerate(symbols)
            }.__getitem__
        case {"type": "record", "fields": fields}:
            return record_writer(fields)
        case _:
            return bytes_writer(json.dumps(kind))


def sized(data: bytes) -> bytes:
    """Return the length of bytes in Avro's form, followed by the bytes. A text is given as bytes in
    UTF-8.
    """
    size = len(data)
    return (_ONE_BYTE[size << 1] if size < 64 else _whole_number(size)) + data


_ONE_BYTE: Final = [bytes([number]) for number in range(128)]


def _whole_number(number: int) -> bytes:
    """Return a whole number in Avro's form: its sign is in the last bit, each byte has seven bits,
    and the lowest bits come first.
    """
    rest = number << 1 if number >= 0 else ~(number << 1)
    if rest < 128:
        return _ONE_BYTE[rest]
    groups = []
    while rest > 127:
        groups.append(rest & 127 | 128)
        rest >>= 7
    groups.append(rest)
    return bytes(groups)


# --- schemas from outside ---
#
# fastavro reads a type by a recursive function in C, which ends the process if it runs out of
# stack, and a count in a message makes it read a type that takes no bytes any number of times. So
# each schema is weighed before a message is read by it.

_LARGEST_DECIMAL: Final = 4096
"""The number of bytes of the largest decimal that is read: the time to convert it grows with the
square of its length.
"""
_DECIMAL: Final = "eventlog-decimal"
"""The logical type by which decimals of limited length are read."""


class _Weight(NamedTuple):
    """What the values of a type are at most: ``levels`` deep, and ``surplus`` more in number than
    two per byte.
    """

    levels: int
    surplus: int


@lru_cache(maxsize=1024)
def _for_reading(schema: str) -> Any:
    """Return a schema by which a message may be read. Raises FormatError for a schema by which a
    short message could take any time and memory (formats/qlik.md 5.7).
    """
    fastavro = _fastavro()
    for kind in ("bytes", "fixed"):
        name = f"{kind}-{_DECIMAL}"
        if name not in fastavro.read.LOGICAL_READERS:
            read = fastavro.read.LOGICAL_READERS[f"{kind}-decimal"]
            fastavro.read.LOGICAL_READERS[name] = partial(_limited_decimal, read)
    types = _parsed(schema)
    if not isinstance(types, dict) or "__fastavro_parsed" in parsed_json(schema):
        raise _bad_schema("it must be a record")
    _weigh(types, {})
    return types


def _limited_decimal(read: Callable[..., Decimal], data: bytes, *types: Any) -> Decimal:
    if len(data) > _LARGEST_DECIMAL:
        raise ValueError(f"a decimal has {len(data)} bytes, more than {_LARGEST_DECIMAL}")
    return read(data, *types)


def _weigh(kind: Any, known: dict[str, _Weight | None]) -> _Weight:
    """Return the weight of a type. Decimals get the logical type ``_DECIMAL``. ``known`` are the
    types by name; a record whose fields are being weighed is None. Raises FormatError.
    """
    match kind:
        case list():
            weight = _within([_weigh(one, known) for one in kind], max)
            weight = weight._replace(surplus=weight.surplus - 2)  # the number of the branch
        # fastavro reads these words as types, even if a record has one for its name.
        case "null":
            weight = _Weight(1, 1)
        case "boolean" | "int" | "long" | "float" | "double" | "bytes" | "string":
            weight = _Weight(1, -1)
        case str() if kind in known:
            of_name = known[kind]
            if of_name is None:
                raise _bad_schema(f"the record {shown(kind)} contains itself")
            return of_name
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            of_items = _weigh(inner, known)
            if of_items.surplus > 0:
                raise _bad_schema("the items of an array or map may take too few bytes")
            weight = _Weight(of_items.levels + 1, -1)
        case {"type": "record" | "error", "name": str(name), "fields": fields}:
            known[name] = None
            weight = _within([_weigh(field["type"], known) for field in fields], sum)
            weight = known[name] = weight._replace(surplus=weight.surplus + 1)
        case {"type": "fixed", "name": str(name), "size": int(size)}:
            _limit_decimals(kind)
            weight = known[name] = _Weight(1, 1 - 2 * size)
        case {"type": "enum", "name": str(name)}:
            weight = known[name] = _Weight(1, -1)
        case {"type": inner}:
            _limit_decimals(kind)
            return _weigh(inner, known)
        case _:
            weight = _Weight(1, -1)
    if weight.levels > DEEPEST:
        raise _bad_schema(f"its types are nested in more than {DEEPEST} levels")
    if weight.surplus > 2:
        raise _bad_schema("its values may take too few bytes")
    return weight


def _within(weights: Sequence[_Weight], surplus_of: Callable[[Iterable[int]], int]) -> _Weight:
    levels = max((one.levels for one in weights), default=0)
    return _Weight(levels + 1, surplus_of([one.surplus for one in weights] or [0]))


def _limit_decimals(kind: JsonDict) -> None:
    if kind.get("logicalType") == "decimal":
        kind["logicalType"] = _DECIMAL


def _bad_schema(why: str) -> FormatError:
    return FormatError(f"an Avro schema is refused: {why}", code="bad_avro")


def from_bytes(schema: str, data: bytes) -> JsonDict:
    """Return the record that bare Avro binary holds.

    Raises FormatError for missing, surplus or malformed bytes, and for a schema that is refused.
    """
    buffer = io.BytesIO(data)
    types = _for_reading(schema)
    try:
        record = _fastavro().schemaless_reader(buffer, types, None)
    except (
        EOFError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        AttributeError,
        MemoryError,
    ) as error:
        raise FormatError(
            f"{len(data)} bytes are not Avro of their schema: {type(error).__name__}: {error}",
            code="bad_avro",
        ) from None
    if buffer.tell() != len(data):
        raise FormatError(
            f"{len(data) - buffer.tell()} bytes follow after an Avro record of "
            f"{buffer.tell()} bytes",
            code="bad_avro",
        )
    if not isinstance(record, dict):
        raise FormatError(
            f"the Avro schema must be a record, not {type(record).__name__}",
            code="bad_avro",
        )
    return record


def record_in(schema: str, field: str) -> JsonDict | None:
    """Return the record type of a field in the schema of a record, None if the field is missing or
    is not a record.

    Raises FormatError.
    """
    parsed(schema)
    record = parsed_json(schema)
    for one in record.get("fields", ()) if isinstance(record, dict) else ():
        if one["name"] == field:
            kinds = one["type"] if isinstance(one["type"], list) else [one["type"]]
            return next(
                (kind for kind in kinds if isinstance(kind, dict) and kind.get("type") == "record"),
                None,
            )
    return None
