"""Avro as bare binary: schemas parsed once, records to bytes and back. Needs fastavro, the extra ``avro``."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from eventlog.errors import ConfigError, FormatError, NotExpressible
from eventlog.files.lines import parsed_json

try:
    import fastavro
    from fastavro.schema import SchemaParseException
except ModuleNotFoundError:
    raise ConfigError(
        "messages in Avro need the package fastavro; install eventlog-publisher[avro], or use encoding = json"
    ) from None


class BadAvro(FormatError):
    """Bytes that are not what their Avro schema says, or a schema that is none."""

    code = "bad_avro"


@lru_cache(maxsize=1024)
def parsed(schema: str) -> Any:
    """The schema of a JSON text as fastavro takes it, illegal names and all. Raises BadAvro."""
    try:
        return fastavro.parse_schema(parsed_json(schema))
    except (ValueError, TypeError, LookupError, AttributeError, FormatError, SchemaParseException) as error:
        raise BadAvro(f"an Avro schema cannot be read: {type(error).__name__}: {error}") from None


def to_bytes(schema: str, record: Mapping[str, Any]) -> bytes:
    """A record as bare Avro binary. Raises NotExpressible for a value that the schema does not take."""
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, parsed(schema), record)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise NotExpressible(f"a record does not fit its Avro schema: {error}") from None
    return buffer.getvalue()


def from_bytes(schema: str, data: bytes) -> dict[str, Any]:
    """The record of bare Avro binary. Raises BadAvro if the bytes are cut short, too many, or none of the schema."""
    buffer = io.BytesIO(data)
    try:
        record = fastavro.schemaless_reader(buffer, parsed(schema), None)
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
