"""The fields of a row: the types of Kafka Connect and Debezium's logical types, and their values in
JSON.

The mapping is as in the PostgreSQL connector, "Data type mappings"; the JSON is as in Connect's
JsonConverter (formats/debezium.md 3). A field is built once for each column type, and its functions
make no further choices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

from eventlog.changes.json_form import value_to_json
from eventlog.core.values import ColumnType, Kind, float_or_special, parse_type, without_host_mask
from eventlog.core.values.json_bytes import JsonText, escaped_json_bytes
from eventlog.core.values.typed_values import (
    WIDEST,
    decimal_text,
    to_text,
    unscaled_bytes,
    value_reader,
    whole_value,
)
from eventlog.debezium import temporals
from eventlog.debezium.scalars import (
    FLOATS,
    Decode,
    Decoders,
    Encode,
    base64_of,
    boolean,
    bytes_of,
    float_json,
    float_of,
    int64,
    integer,
    no,
    number_of,
    text_of,
)
from eventlog.debezium.temporals import MICRO, MILLI, NANO
from eventlog.errors import ConfigError, shown
from eventlog.model import JsonDict, JsonObject, Lob, Value


class Field(NamedTuple):
    """The way in which the values of a column are written and read. ``schema`` is the schema of
    Connect, without ``field`` and ``optional``.
    """

    schema: JsonObject
    encode: Encode
    decode: Decode


# --- by the column's type -------------------------------------------------------------------------

_DIGITS_OF_SCALE: Final = 7
_LARGEST_SCALE: Final = (
    16383  # PostgreSQL's limit; the scale in a schema from outside is checked against it
)


@lru_cache(maxsize=4096)
def field_of(type: ColumnType, decimals: str = "precise", times: str = "adaptive") -> Field:
    """Return the field of a column, under ``decimal.handling.mode`` and ``time.precision.mode``."""
    match type.kind:
        case Kind.BOOLEAN:
            return Field({"type": "boolean"}, boolean, boolean)
        case Kind.INTEGER if type.bits:
            whole = integer(type.bits)
            return Field({"type": f"int{type.bits}"}, whole, whole)
        case Kind.INTEGER if not type.sizes:
            return Field({"type": "int64"}, int64, int64)
        case Kind.INTEGER | Kind.EXACT:
            return _decimal(type, decimals)
        case Kind.APPROXIMATE:
            return Field({"type": "float" if type.bits == 32 else "double"}, float_json, float_of)
        case Kind.BINARY:
            return Field({"type": "bytes"}, base64_of, bytes_of)
        case Kind.DATE | Kind.TIME | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return _temporal(type.kind, times, next(iter(type.sizes), 6))
        case Kind.UUID:
            return Field(_named("string", "io.debezium.data.Uuid"), text_of, text_of)
        case Kind.OTHER if type.sql.lower() in ("json", "jsonb"):
            return Field(_named("string", "io.debezium.data.Json"), text_of, text_of)
        case Kind.OTHER if type.sql.lower() == "xml":
            return Field(_named("string", "io.debezium.data.Xml"), text_of, text_of)
        case Kind.OTHER if type.sql.lower() == "inet":
            return Field({"type": "string"}, _address, text_of)
        case _:
            return Field({"type": "string"}, text_of, text_of)


def _named(type: str, name: str, **parameters: str) -> JsonDict:
    named: JsonDict = {"type": type, "name": name, "version": 1}
    return named | {"parameters": parameters} if parameters else named


def _decimal(type: ColumnType, mode: str) -> Field:
    is_whole = type.kind is Kind.INTEGER
    if mode == "double":
        return Field({"type": "double"}, _double, _exact_reader(is_whole))
    if mode == "string":
        return Field({"type": "string"}, _decimal_text, _exact_reader(is_whole))
    if not type.sizes:
        schema = _named("struct", "io.debezium.data.VariableScaleDecimal") | {
            "fields": [
                {"type": "int32", "optional": False, "field": "scale"},
                {"type": "bytes", "optional": False, "field": "value"},
            ]
        }
        return Field(schema, _variable_scale, _read_variable_scale)
    precision, scale = (*type.sizes, 0)[:2]
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    schema = _named("bytes", "org.apache.kafka.connect.data.Decimal", **parameters)
    return Field(
        schema,
        lambda value: base64_of(unscaled_bytes(_exact(value), scale)),
        _decimal_decoder(scale, is_whole),
    )


def _temporal(kind: Kind, mode: str, precision: int) -> Field:
    is_coarse = mode == "connect" or precision <= 3
    package = "org.apache.kafka.connect.data" if mode == "connect" else "io.debezium.time"
    if kind is Kind.TIMESTAMPTZ:
        return Field(
            _named("string", "io.debezium.time.ZonedTimestamp"),
            temporals.zoned_writer(min(precision, 6)),
            temporals.read_zoned_timestamp,
        )
    if kind is Kind.DATE:
        return Field(_named("int32", f"{package}.Date"), temporals.write_date, temporals.read_date)
    unit, size = (MILLI, "") if is_coarse else (MICRO, "Micro")
    if kind is Kind.TIME:
        type = "int32" if is_coarse else "int64"
        return Field(
            _named(type, f"{package}.{size}Time"),
            temporals.time_writer(unit),
            temporals.time_reader(unit),
        )
    return Field(
        _named("int64", f"{package}.{size}Timestamp"),
        temporals.timestamp_writer(unit),
        temporals.timestamp_reader(unit),
    )


# --- by the schema in an event, and the column's type ---------------------------------------------


def decoder_of(schema: JsonObject, type: ColumnType | None = None) -> Decode:
    """Return the function that reads the values of a field with this schema of Connect. The
    function returns values as a log has them for a column of ``type`` (None = unknown). The name of
    the schema takes precedence over the type of the schema.

    Raises ValueError for an invalid schema.
    """
    name, connect_type = _name_of(schema), schema.get("type")
    parameters = schema.get("parameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    decode = _BY_NAME.get(name)
    if name == "org.apache.kafka.connect.data.Decimal":
        scale = _scale_of(parameters)
        decode = _decimal_decoder(scale, is_whole=scale == 0)
    elif name == _STRUCTURED_DURATION and parameters.get(_KIND_OF_DURATION) == "elapsed-time":
        decode = temporals.read_elapsed_time
    elif decode is None and connect_type in ("array", "map", "struct"):
        nested = _nested(schema)
        decode = lambda value: _json_text(nested(value))  # noqa: E731
    elif decode is None and isinstance(connect_type, str):
        decode = _BY_TYPE.get(connect_type)
    if decode is None:
        raise ValueError(f"{shown(connect_type)} is not a type of Connect")
    return decode if type is None else _of_column(type, name, parameters, decode)


def column_decoder(type: ColumnType, decimals: str, times: str) -> Decode:
    """Return the function that reads the values of a column in events without schema, under
    ``decimal.handling.mode`` and ``time.precision.mode``. For other modes, the form of a value
    suffices: a text or a struct for a date or time, and a number for a decimal.
    """
    decode = field_of(type, decimals, times).decode
    match type.kind:
        case Kind.DATE | Kind.TIME | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return temporals.by_form(*_TEMPORAL_FORMS[type.kind], decode)
        case Kind.OTHER if type.sql.endswith("[]"):
            return _array_decoder(type, decimals, times)
        case Kind.OTHER:
            return _of_column(type, "", {}, plain)
        case Kind.BINARY if _word(type) == "bit":
            return _of_column(type, _BITS, {}, decode)
        case _:
            return decode


def _array_decoder(type: ColumnType, decimals: str, times: str) -> Decode:
    """Return the reader of an array in an event without schema. The reader returns the JSON of the
    array, whose elements are converted by the element type of the column.
    """
    try:
        element = parse_type(type.sql.rstrip("[]"), "postgresql")
    except ConfigError:  # a type of the database's own
        return plain
    decode = column_decoder(element, decimals, times)

    def part(value: Any) -> Any:
        if isinstance(value, list):
            return [part(one) for one in value]
        return None if value is None else _in_json(decode(value))

    return lambda value: _json_text(part(value)) if isinstance(value, list) else text_of(value)


def _name_of(schema: JsonObject) -> str:
    """Return the logical name of a schema, empty if it has no name. Debezium appends the precision
    and the column to the name of a structured time; these are cut off.
    """
    name = schema.get("name")
    if not isinstance(name, str):
        return ""
    match = _STRUCTURED.fullmatch(name)
    return name if match is None else match[1]


_STRUCTURED: Final = re.compile(
    r"(io\.debezium\.time\.Structured(?:Date|Duration|Time|Timestamp|ZonedTime|ZonedTimestamp))"
    r"(?:Precision[0-9]+)?(?:SourceColumn[0-9a-f]*)?"
)


def _scale_of(parameters: JsonObject) -> int:
    text = parameters.get("scale")
    scale = (
        int(text) if isinstance(text, str) and len(text) < _DIGITS_OF_SCALE else _LARGEST_SCALE + 1
    )
    if abs(scale) > _LARGEST_SCALE:
        raise ValueError(f"a decimal of scale {shown(text)}")
    return scale


def _word(type: ColumnType) -> str:
    """Return the name of a type without its sizes, in lower case."""
    return " ".join(_IN_PARENTHESES.sub(" ", type.sql).lower().split())


_IN_PARENTHESES: Final = re.compile(r"\([^)]*\)")


def _of_column(type: ColumnType, name: str, parameters: JsonObject, decode: Decode) -> Decode:
    """Return the function that reads values as a log has them for a column of this type. The
    function is ``decode``, or a changed ``decode`` where the logical ``name`` does not suffice.
    """
    word = _word(type)
    if name == _STRUCTURED_DURATION and type.kind is Kind.TIME:
        return temporals.read_elapsed_time
    if type.kind is Kind.BINARY and name == _BITS:
        size = -(-_bit_length(type, parameters) // 8)
        return lambda value: bytes_of(value)[::-1].rjust(size, b"\0")
    if type.kind is not Kind.OTHER:
        return decode
    if word in _BIT_TYPES:
        decode = _bits_decoder(_bit_length(type, parameters), is_fixed=word == "bit")
    elif word.startswith("interval"):
        decode = _INTERVALS.get(name, decode)
    elif word in _ZONED_TIMES and not name:
        decode = temporals.read_any_zoned_time

    def read(value: Any) -> Value:
        found = decode(value)
        return found if isinstance(found, str | bytes | Lob) else to_text(found)

    return read


_BITS: Final = "io.debezium.data.Bits"
_BIT_TYPES: Final = frozenset({"bit", "bit varying", "varbit"})
_ZONED_TIMES: Final = frozenset({"timetz", "time with time zone"})
_STRUCTURED_DURATION: Final = "io.debezium.time.StructuredDuration"
_KIND_OF_DURATION: Final = "io.debezium.time.duration.kind"


def _bit_length(type: ColumnType, parameters: JsonObject) -> int:
    """Return the number of bits of a column, 1 if neither its type nor its schema has a number."""
    if type.sizes:
        return type.sizes[0]
    text = parameters.get("length")
    is_number = isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 11
    return int(text) if isinstance(text, str) and is_number else 1


def _bits_decoder(length: int, *, is_fixed: bool) -> Decode:
    """Return the reader of bits as PostgreSQL's digits.

    Debezium writes a single bit as a truth value, and several bits as bytes, the lowest byte first.
    Our own events have the digits. The bytes of a ``bit varying`` do not show its length.
    """

    def read(value: Any) -> str:
        if isinstance(value, bool):
            return "1" if value else "0"
        text = text_of(value)
        if not text.strip("01") and (len(text) == length or not is_fixed):
            return text
        if not is_fixed:
            raise ValueError("the length of a `bit varying` value cannot be read from bytes")
        digits = f"{int.from_bytes(bytes_of(text), 'little'):0{length}b}"
        if len(digits) > length:
            raise ValueError(f"more than {length} bits")
        return digits

    return read


# --- structs, arrays and maps ---


def _nested(schema: JsonObject) -> Callable[[Any], Any]:
    """Return the function that turns a value into JSON as people read it: decimals and floats
    become numbers, dates and times become texts. Parts without a schema stay as they are.
    """
    match schema.get("type"):
        case "array":
            item = _nested_part(schema.get("items"))
            return lambda value: [item(one) for one in _a(list, value)]
        case "map":
            key, member = _nested_part(schema.get("keys")), _nested_part(schema.get("values"))

            def read_map(value: Any) -> Any:
                if isinstance(value, list):  # keys that are not texts: pairs
                    return [[key(one[0]), member(one[1])] for one in map(_pair, value)]
                return {name: member(one) for name, one in _a(dict, value).items()}

            return read_map
        case _:
            fields = schema.get("fields")
            parts = {
                field["field"]: _nested_part(field)
                for field in (fields if isinstance(fields, list) else ())
                if isinstance(field, Mapping) and isinstance(field.get("field"), str)
            }
            return lambda value: {
                name: parts.get(name, _as_it_is)(one) for name, one in _a(dict, value).items()
            }


def _nested_part(schema: Any) -> Callable[[Any], Any]:
    if not isinstance(schema, Mapping):
        return _as_it_is
    if schema.get("type") in ("array", "map", "struct") and _name_of(schema) not in _BY_NAME:
        nested = _nested(schema)
        return lambda value: None if value is None else nested(value)
    decode = decoder_of(schema)

    def read(value: Any) -> Any:
        return None if value is None else _in_json(decode(value))

    return read


def _a(kind: type[Any], value: Any) -> Any:
    if not isinstance(value, kind):
        raise no("object" if kind is dict else "array")
    return value


def _pair(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 2:
        raise no("pair")
    return value


def _in_json(value: Value) -> Any:
    match value:
        case Decimal() if value.is_finite():
            return JsonText(decimal_text(value))
        case float():
            return float_or_special(value)
        case bytes():
            return base64_of(value)
        case None | bool() | int() | str():
            return value
        case _:
            return value_to_json(value)


def _as_it_is(value: Any) -> Any:
    """Return parsed JSON that has no schema in a form in which each number keeps its digits."""
    match value:
        case dict():
            return {name: _as_it_is(one) for name, one in value.items()}
        case list():
            return [_as_it_is(one) for one in value]
        case Decimal():
            return JsonText(str(value))
        case float():
            return float_or_special(value)
        case _:
            return value


def _json_text(value: Any) -> str:
    return escaped_json_bytes(value).decode()


def plain(value: Any) -> Value:
    """Return a JSON value whose type is unknown. Objects and arrays become JSON text."""
    if isinstance(value, dict | list):
        return _json_text(_as_it_is(value))
    read: Value = value
    return read


# --- values ---------------------------------------------------------------------------------------


def _address(value: Value) -> str:
    """Return an inet address in PostgreSQL's own text."""
    return without_host_mask(text_of(value))


# decimals


def _exact(value: Value) -> Decimal:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise no("exact number; set decimal_handling_mode = string to write NaN and Infinity")
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError("not finite; set decimal_handling_mode = string to write it")
    if abs(number.adjusted()) > WIDEST:
        raise ValueError("too many digits")
    return number


def _decimal_decoder(scale: int, is_whole: bool) -> Decode:
    def read(value: Any) -> Value:
        if not isinstance(value, str):  # decimal.format = NUMERIC
            value = base64_of(unscaled_bytes(_exact(Decimal(number_of(value))), scale))
        whole = int.from_bytes(bytes_of(value), "big", signed=True)
        return whole_value(whole) if is_whole else _scaled(whole, scale)

    return read


def _scaled(whole: int, scale: int) -> Decimal:
    """Return the number exactly, whatever precision the decimal context has."""
    digits = Decimal(whole).as_tuple()
    return Decimal((digits.sign, digits.digits, -scale))


def _variable_scale(value: Value) -> JsonDict:
    number = _exact(value)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    return {"scale": scale, "value": base64_of(unscaled_bytes(number, scale))}


def _read_variable_scale(value: Any) -> Decimal:
    if not isinstance(value, dict):
        return _exact(Decimal(number_of(value)))
    scale = value.get("scale")
    if not isinstance(scale, int) or abs(scale) > _LARGEST_SCALE:
        raise no("scale")
    return _scaled(int.from_bytes(bytes_of(value.get("value")), "big", signed=True), scale)


_WORDS: Final = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
"""The words for NaN and the infinities in the mode ``string`` ("Decimal types"; the words for the
infinities are from Debezium's code).
"""
_DECIMALS: Final = {
    text: word for word, of_debezium in _WORDS.items() for text in (word, of_debezium)
}


def _double(value: Value) -> Any:
    return float_json(FLOATS.get(value, value) if isinstance(value, str) else value)


def _decimal_text(value: Value) -> str:
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise no("exact number")
    text = decimal_text(Decimal(value))
    return _WORDS.get(text, text)


def _exact_reader(is_whole: bool) -> Decode:
    """Return the reader of exact numbers of the modes double and string."""
    read_text = value_reader(ColumnType(Kind.INTEGER if is_whole else Kind.EXACT))

    def read(value: Any) -> Value:
        if isinstance(value, str):
            return Decimal(_DECIMALS[value]) if value in _DECIMALS else read_text(value)
        number = _exact(Decimal(number_of(value)))
        is_int = is_whole and number == number.to_integral_value()
        return whole_value(int(number)) if is_int else number

    return read


_BY_NAME: Final[Decoders] = {
    "io.debezium.data.VariableScaleDecimal": _read_variable_scale,
    "io.debezium.time.Date": temporals.read_date,
    "io.debezium.time.IsoDate": temporals.read_iso_date,
    "io.debezium.time.IsoTime": temporals.read_iso_time,
    "io.debezium.time.IsoTimestamp": temporals.read_iso_timestamp,
    "io.debezium.time.MicroTime": temporals.time_reader(MICRO),
    "io.debezium.time.MicroTimestamp": temporals.timestamp_reader(MICRO),
    "io.debezium.time.NanoTime": temporals.time_reader(NANO),
    "io.debezium.time.NanoTimestamp": temporals.timestamp_reader(NANO),
    "io.debezium.time.StructuredDate": temporals.read_structured_date,
    "io.debezium.time.StructuredTime": temporals.read_structured_time,
    "io.debezium.time.StructuredTimestamp": temporals.read_structured_timestamp,
    "io.debezium.time.StructuredZonedTime": temporals.read_structured_zoned_time,
    "io.debezium.time.StructuredZonedTimestamp": temporals.read_structured_zoned_timestamp,
    _STRUCTURED_DURATION: temporals.read_structured_duration,
    "io.debezium.time.Time": temporals.time_reader(MILLI),
    "io.debezium.time.Timestamp": temporals.timestamp_reader(MILLI),
    "io.debezium.time.ZonedTime": temporals.read_zoned_time,
    "io.debezium.time.ZonedTimestamp": temporals.read_zoned_timestamp,
    "org.apache.kafka.connect.data.Date": temporals.read_date,
    "org.apache.kafka.connect.data.Time": temporals.time_reader(MILLI),
    "org.apache.kafka.connect.data.Timestamp": temporals.timestamp_reader(MILLI),
}

_INTERVALS: Final[Decoders] = {
    "io.debezium.time.Interval": temporals.iso_interval_text,
    "io.debezium.time.MicroDuration": temporals.duration_reader(MICRO),
    "io.debezium.time.NanoDuration": temporals.duration_reader(NANO),
    _STRUCTURED_DURATION: temporals.read_structured_duration,
    "": temporals.read_interval,
}
"""The readers of intervals by Debezium's logical names; the name is empty without a schema."""

_TEMPORAL_FORMS: Final[Mapping[Kind, tuple[Decode, Decode]]] = {
    Kind.DATE: (temporals.read_structured_date, temporals.read_iso_date),
    Kind.TIME: (temporals.read_structured_clock, temporals.read_iso_time),
    Kind.TIMESTAMP: (temporals.read_structured_timestamp, temporals.read_iso_timestamp),
    Kind.TIMESTAMPTZ: (
        temporals.read_structured_zoned_timestamp,
        temporals.read_zoned_timestamp,
    ),
}
"""The readers of structs and of texts by the kind of the column."""

_BY_TYPE: Final[Decoders] = {
    "boolean": boolean,
    **{f"int{bits}": integer(bits) for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("float32", "float64", "float", "double"), float_of),
    "string": text_of,
    "bytes": bytes_of,
}
