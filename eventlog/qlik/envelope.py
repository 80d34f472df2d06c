"""A record of a topic, and the envelope around its payload, in JSON and in Avro (spec/qlik.md 5.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from eventlog.errors import FormatError, shown
from eventlog.files.lines import parsed_json
from eventlog.qlik import avro
from eventlog.qlik.avro import NULL, VALUE
from eventlog.qlik.errors import BadEnvelope, BadMagic

# --- records ----------------------------------------------------------------------------------------------------------


class Message(NamedTuple):
    """A record that was read. ``topic`` is None if it is not known; ``value`` is None for a tombstone, and may be an
    object of JSON that was parsed with ``parse_float=Decimal``.
    """

    topic: str | None
    key: bytes | None
    value: bytes | Mapping[str, Any] | None


# --- envelopes --------------------------------------------------------------------------------------------------------


MAGIC: Final = "atMSG"
METADATA: Final = "MD"
DATA: Final = "DT"

ENVELOPE_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "MessageEnvelope",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": len(MAGIC)}},
            {"name": "type", "type": "string"},
            {"name": "headers", "type": ["null", {"type": "map", "values": "string"}]},
            {"name": "messageSchemaId", "type": ["null", "string"]},
            {"name": "messageSchema", "type": ["null", "string"]},
            {"name": "message", "type": "bytes"},
        ],
    },
    separators=(",", ":"),
)


_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Envelope(NamedTuple):
    """What an envelope says of its payload. ``message`` is an object (JSON) or bytes (Avro).

    ``type`` is None if the record has no envelope; then ``message`` is the whole record.
    """

    type: str | None
    schema_id: str | None
    schema: str | None
    message: Any


def json_envelope(type: str, schema_id: str | None, schema: str | None, message: Mapping[str, Any]) -> bytes:
    """An envelope in JSON, as UTF-8 without blanks."""
    return f"{json_envelope_start(type, schema_id, schema)}{_ENCODE(message)}}}".encode()


def json_envelope_start(type: str, schema_id: str | None, schema: str | None) -> str:
    """What stands before the message; behind it stands the closing brace."""
    start = {"magic": MAGIC, "type": type, "headers": None, "messageSchemaId": schema_id, "messageSchema": schema}
    return f'{_ENCODE(start)[:-1]},"message":'


def avro_envelope(type: str, schema_id: str | None, schema: str | None, message: bytes) -> bytes:
    """An envelope in Avro: bare binary, no container file, no registry prefix."""
    return avro_envelope_start(type, schema_id, schema) + avro.data(message)


def avro_envelope_start(type: str, schema_id: str | None, schema: str | None) -> bytes:
    """What stands before the message, which is bytes behind their length."""
    texts = [NULL if text is None else VALUE + avro.text(text) for text in (schema_id, schema)]
    return b"".join((MAGIC.encode(), avro.text(type), NULL, *texts))


def open_json(record: Any) -> Envelope:
    """The envelope of a record in JSON, or the record as a message without one (spec/qlik.md 5.7).

    Raises BadMagic, BadEnvelope.
    """
    if not isinstance(record, Mapping):
        raise BadEnvelope(f"a message is a JSON object, not {shown(str(record))}")
    if "message" not in record:
        return Envelope(None, None, None, record)
    if record.get("magic") != MAGIC:
        raise BadMagic(f"the magic of an envelope is {shown(str(record.get('magic')))}, not {MAGIC}")
    if not isinstance(record["message"], Mapping):
        raise BadEnvelope(f"the message of an envelope is an object, not {shown(str(record['message']))}")
    schema_id, schema = record.get("messageSchemaId"), record.get("messageSchema")
    for name, value in (("messageSchemaId", schema_id), ("messageSchema", schema)):
        if value is not None and not isinstance(value, str):
            raise BadEnvelope(f"{name} of an envelope is text, not {shown(str(value))}")
    return Envelope(record.get("type") or DATA, schema_id, schema, record["message"])


def open_avro(data: bytes) -> Envelope:
    """The envelope of a record in Avro. Raises BadMagic, BadAvro."""
    if not data.startswith(MAGIC.encode()):
        raise BadMagic(f"a message begins with {data[:5].hex(' ').upper() or 'nothing'}, not with the magic {MAGIC}")
    record = avro.from_bytes(ENVELOPE_SCHEMA, data)
    return Envelope(record["type"], record["messageSchemaId"], record["messageSchema"], record["message"])


def open_text(data: bytes) -> Envelope:
    """The envelope of a record in JSON text. Raises BadMagic, BadEnvelope."""
    try:
        record = parsed_json(data)
    except FormatError as error:
        raise BadEnvelope(f"a message is {error}") from None
    return open_json(record)
