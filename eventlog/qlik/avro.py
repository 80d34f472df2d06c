"""Avro as bare binary (Avro specification, Binary encoding), written and read by fastavro: the extra ``avro``, which is
imported only where it is used.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from typing import Any

from eventlog.errors import ConfigError, FormatError, NotExpressible, ValueRange
from eventlog.files.text import parsed_json
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.values import Convert, as_is, json_writer, writer


class BadAvro(FormatError):
    """Bytes that are not of their Avro schema, or a schema that cannot be read."""

    code = "bad_avro"
    cure = "Give the reader the schema that the messages are written in, by their metadata or by `registry`."


# --- values of columns ------------------------------------------------------------------------------------------------


def avro_writer(column: QlikColumn, logical_types: bool) -> Convert:
    """Return the function that makes of a column's values what fastavro takes for them.

    It raises NotExpressible, ValueRange.
    """
    if column.type in ("DATE", "TIME", "DATETIME", "NUMERIC") and not (
        logical_types and (column.type != "NUMERIC" or column.precision)
    ):
        return json_writer(column)
    match column.type:
        case "DATETIME":  # which fastavro takes for local time without a zone
            return writer(column, lambda moment: moment.replace(tzinfo=UTC))
        case "NUMERIC":
            return writer(column, _in_places(column))
        case "UINT8":
            return writer(column, Decimal if logical_types else _in_long)
        case _:
            return writer(column, as_is)


def _in_places(column: QlikColumn) -> Callable[[Decimal], Decimal]:
    """Return the function that gives a number the places of its column. It raises ValueRange."""
    exactly = Context(prec=column.precision, traps=[InvalidOperation, Inexact])
    unit = Decimal(1).scaleb(-column.scale)

    def in_places(number: Decimal) -> Decimal:
        try:
            exact = exactly.quantize(number, unit)
        except (InvalidOperation, Inexact):
            exact = Decimal("NaN")
        if not exact.is_finite():
            raise ValueRange(f"{number} of column {column.name!r} is no NUMERIC({column.precision}, {column.scale})")
        return exact

    return in_places


def _in_long(number: int) -> int:
    if number > 2**63 - 1:
        raise ValueRange(f"{number} does not fit into the long of UINT8; turn logical_types on")
    return number


# --- records by their schemas -----------------------------------------------------------------------------------------


def _fastavro() -> Any:
    """Fastavro. Raises ConfigError if it is not installed."""
    try:
        import fastavro
    except ModuleNotFoundError:
        raise ConfigError(
            "messages in Avro need the package fastavro; install eventlog-publisher[avro], or use encoding = json"
        ) from None
    return fastavro


@lru_cache(maxsize=1024)
def parsed(schema: str) -> Any:
    """The schema of a JSON text as fastavro takes it, illegal names and all. Raises BadAvro."""
    fastavro = _fastavro()
    try:
        return fastavro.parse_schema(parsed_json(schema))
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        FormatError,
        fastavro.schema.SchemaParseException,
    ) as error:
        raise BadAvro(f"an Avro schema cannot be read: {type(error).__name__}: {error}") from None


def bytes_writer(schema: str) -> Callable[[Any], bytes]:
    """Return the function that writes values of a schema as bare Avro binary. Raises BadAvro.

    The function raises NotExpressible for a value that the schema does not take.
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


def from_bytes(schema: str, data: bytes) -> dict[str, Any]:
    """The record of bare Avro binary. Raises BadAvro if the bytes are cut short, too many, or none of the schema."""
    buffer = io.BytesIO(data)
    try:
        record = _fastavro().schemaless_reader(buffer, parsed(schema), None)
    except (EOFError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
        raise BadAvro(f"{len(data)} bytes are no Avro of their schema: {type(error).__name__}: {error}") from None
    if buffer.tell() != len(data):
        raise BadAvro(f"{len(data) - buffer.tell()} bytes follow behind an Avro record of {buffer.tell()} bytes")
    if not isinstance(record, dict):
        raise BadAvro(f"a record is needed, and the Avro schema gives {type(record).__name__}")
    return record


def record_in(schema: str, field: str) -> dict[str, Any] | None:
    """The record type of a field of a record, None if there is no such field or it is no record. Raises BadAvro."""
    parsed(schema)
    record = parsed_json(schema)
    for one in record.get("fields", ()) if isinstance(record, dict) else ():
        if one["name"] == field:
            kinds = one["type"] if isinstance(one["type"], list) else [one["type"]]
            return next((kind for kind in kinds if isinstance(kind, dict) and kind.get("type") == "record"), None)
    return None
