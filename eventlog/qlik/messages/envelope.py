"""The wrapping of a record's payload: an envelope in JSON or Avro, or Confluent's prefix with the
id of a schema in a registry (formats/qlik.md 5.1, 5.5).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from eventlog.core.oauth import OAuthOptions, client_secret
from eventlog.core.secrets import secret_variable
from eventlog.errors import ConfigError, FormatError, shown
from eventlog.files.text import parsed_json
from eventlog.model import JsonDict, JsonObject
from eventlog.qlik.messages import avro
from eventlog.qlik.messages.message_tables import WriteOptions

if TYPE_CHECKING:
    from eventlog.transport.http import Tokens


class BadEnvelope(FormatError):
    """A record that is not a Qlik message, with or without an envelope (formats/qlik.md 5.1,
    5.7).
    """

    code = "bad_envelope"


class UnknownSchema(FormatError):
    """A message whose payload schema is unknown (formats/qlik.md 5.1)."""

    code = "unknown_schema"


class RegistryError(FormatError):
    """A registry that cannot be reached, or that refuses a schema."""

    code = "registry"


# --- records --------------------------------------------------------------------------------------


class Message(NamedTuple):
    """A record that was read. ``topic`` is None if the topic is unknown. ``value`` is None for a
    tombstone; it may be an object of JSON that was parsed with ``parse_float=Decimal``.
    """

    topic: str | None
    key: bytes | None
    value: bytes | JsonObject | None


# --- envelopes ------------------------------------------------------------------------------------


MAGIC: Final = "atMSG"
METADATA: Final = "MD"
DATA: Final = "DT"

_FIELDS: Final = [
    {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": len(MAGIC)}},
    {"name": "type", "type": "string"},
    {"name": "headers", "type": ["null", {"type": "map", "values": "string"}]},
    {"name": "messageSchemaId", "type": ["null", "string"]},
    {"name": "messageSchema", "type": ["null", "string"]},
    {"name": "message", "type": "bytes"},
]
_NAME: Final = {"type": "record", "name": "MessageEnvelope"}
ENVELOPE_SCHEMA: Final = json.dumps({**_NAME, "fields": _FIELDS})
_START_SCHEMA: Final = json.dumps({**_NAME, "fields": _FIELDS[:-1]})
"""The schema of the fields before the message. All messages of a table have these fields in common.
"""


class Envelope(NamedTuple):
    """The fields of an envelope. ``message`` is an object (JSON) or bytes (Avro).

    If the record has no envelope, ``type`` is None and ``message`` is the whole record.
    """

    type: str | None
    schema_id: str | None
    schema: str | None
    message: Any


def json_envelope(
    type: str, schema_id: str | None, schema: str | None, message: JsonObject | None
) -> JsonDict:
    """Return an envelope in JSON."""
    return {"magic": MAGIC, "type": type, "headers": None, "messageSchemaId": schema_id,
            "messageSchema": schema, "message": message}  # fmt: skip


def avro_envelope(type: str, schema_id: str | None, schema: str | None) -> Callable[[bytes], bytes]:
    """Return the function that wraps a message in its Avro envelope. The envelope is bare Avro
    binary, without a container and without the prefix of a registry.
    """
    start = json_envelope(type, schema_id, schema, None) | {"magic": MAGIC.encode()}
    written = avro.bytes_writer(_START_SCHEMA)(start)
    return lambda message: written + avro.sized(message)


def open_json(record: Any) -> Envelope:
    """Return the envelope of a record in JSON. A record that has no envelope is returned as the
    message (formats/qlik.md 5.7).

    Raises FormatError, BadEnvelope.
    """
    if not isinstance(record, Mapping):
        raise BadEnvelope(f"a message must be a JSON object, not {shown(record)}")
    if "message" not in record:
        return Envelope(None, None, None, record)
    if record.get("magic") != MAGIC:
        raise FormatError(
            f"the magic of an envelope is {shown(record.get('magic'))}; expected {MAGIC}",
            code="bad_magic",
        )
    if not isinstance(record["message"], Mapping):
        raise BadEnvelope(
            f"the message of an envelope must be an object, not {shown(record['message'])}"
        )
    schema_id, schema = record.get("messageSchemaId"), record.get("messageSchema")
    for name, value in (("messageSchemaId", schema_id), ("messageSchema", schema)):
        if value is not None and not isinstance(value, str):
            raise BadEnvelope(f"{name} of an envelope must be text, not {shown(value)}")
    return Envelope(record.get("type") or DATA, schema_id, schema, record["message"])


def open_avro(data: bytes) -> Envelope:
    """Return the envelope of a record in Avro. Raises FormatError."""
    if not data.startswith(MAGIC.encode()):
        raise FormatError(
            f"a message begins with {data[:5].hex(' ').upper() or 'nothing'}; expected the magic "
            f"{MAGIC}",
            code="bad_magic",
        )
    record = avro.from_bytes(ENVELOPE_SCHEMA, data)
    return Envelope(
        record["type"], record["messageSchemaId"], record["messageSchema"], record["message"]
    )


def open_text(data: bytes) -> Envelope:
    """Return the envelope of a record in JSON text. Raises FormatError, BadEnvelope."""
    try:
        record = parsed_json(data)
    except FormatError as error:
        raise BadEnvelope(f"a message is {error}") from None
    return open_json(record)


# --- Confluent's wire format: byte 00, the schema id, the Avro body -------------------------------

_PREFIX_LENGTH: Final = 5
_TIMEOUT: Final = 30.0
_LARGEST_ANSWER: Final = 4 * 1024 * 1024
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_HEADERS: Final = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}


def prefix_of(schema_id: int) -> bytes:
    """Return the prefix that precedes the Avro body."""
    return b"\0" + schema_id.to_bytes(4, "big")


def split(data: bytes) -> tuple[int, bytes]:
    """Return the schema id and the Avro body. Raises FormatError if the prefix is too short or
    begins with another byte.
    """
    if len(data) < _PREFIX_LENGTH or data[0]:
        raise FormatError(
            f"{data[:_PREFIX_LENGTH].hex(' ').upper()} is not the prefix of a registry, which is "
            "00 and four bytes"
        )
    return int.from_bytes(data[1:_PREFIX_LENGTH], "big"), data[_PREFIX_LENGTH:]


def open_registry(url: str, oauth: OAuthOptions | None = None) -> HttpRegistry:
    """Return the registry at a URL. ``user:password`` comes from EVENTLOG_REGISTRY_AUTH or
    EVENTLOG_REGISTRY_AUTH_FILE. With ``oauth``, tokens of its server replace the password.

    Raises ConfigError.
    """
    return HttpRegistry(url, secret_variable("EVENTLOG_REGISTRY_AUTH"), oauth)


def registry_of_writer(options: WriteOptions) -> HttpRegistry | None:
    """Return the registry in which a writer of messages registers its schemas, None if it registers
    none. Raises ConfigError.
    """
    if options.metadata != "registry":
        return None
    if options.registry is None:
        raise ConfigError(
            "metadata = registry of the Qlik messages needs the option registry: set it to the "
            "registry's URL"
        )
    return open_registry(options.registry, options.registry_oauth)


class HttpRegistry:
    """A registry with Confluent's REST interface. The client remembers answers."""

    def __init__(
        self, url: str, secret: str | None = None, oauth: OAuthOptions | None = None
    ) -> None:
        """Create the client of the registry at ``url``.

        ``secret`` is ``user:password``. In place of a secret, ``oauth`` may describe a client of
        OAuth. Raises ConfigError.
        """
        # Loads TLS, which takes longer than a writer's other imports.
        from eventlog.transport.http import HttpClient

        if secret and oauth is not None:
            raise ConfigError(
                "EVENTLOG_REGISTRY_AUTH cannot be used with the option registry_oauth of the Qlik "
                "messages; keep one"
            )
        authorization = f"Basic {b64encode(secret.encode()).decode()}" if secret else None
        try:
            self._client = HttpClient(
                url,
                timeout=_TIMEOUT,
                max_response_bytes=_LARGEST_ANSWER,
                credentials=None if authorization is None else {"Authorization": authorization},
                tokens=None if oauth is None else _tokens(oauth),
                secrets=()
                if not secret or authorization is None
                else (secret, authorization.removeprefix("Basic ")),
            )
        except ConfigError as error:
            raise ConfigError(f"the registry of the Qlik messages: {error}") from None
        self._ids: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, str] = {}

    def register(self, subject: str, schema: str) -> int:
        known = self._ids.get((subject, schema))
        if known is None:
            answer = self._ask(
                "POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema}
            )
            known = self._ids[subject, schema] = _member(answer, "id", int)
        return known

    def schema(self, schema_id: int) -> str:
        known = self._schemas.get(schema_id)
        if known is None:
            answer = self._ask("GET", f"/schemas/ids/{schema_id}")
            kind = answer.get("schemaType", "AVRO")
            if kind != "AVRO":
                raise RegistryError(
                    f"schema {schema_id} of the registry is {kind}; only Avro is supported"
                )
            known = self._schemas[schema_id] = _member(answer, "schema", str)
        return known

    def _ask(self, method: str, path: str, body: JsonDict | None = None) -> JsonDict:
        from eventlog.transport.http import HttpFailed

        place = self._client.shown.rstrip("/") + path
        data = None if body is None else json.dumps(body).encode()
        try:
            status, _, content = self._client.request(method, _HEADERS, data, path)
            if status == HTTPStatus.NOT_FOUND and method == "GET":
                raise UnknownSchema(f"{place}: the registry has no such schema")
            if not 200 <= status <= 299:
                text = self._client.clean(content.decode("utf-8", "replace"))
                raise RegistryError(f"{place} returned {status}: {text}")
        except HttpFailed as error:
            raise RegistryError(f"cannot get an answer from {place}: {error}") from None
        finally:
            # each schema is requested once, so the next request may come much later
            self._client.close()
        try:
            answer = parsed_json(content)
        except FormatError as error:
            raise RegistryError(f"cannot get an answer from {place}: {error}") from None
        if not isinstance(answer, dict):
            raise RegistryError(f"{place} returned a value that is not a JSON object")
        return answer


def _tokens(oauth: OAuthOptions) -> Tokens:
    """Return the tokens for a registry. Raises ConfigError."""
    from eventlog.transport.oauth import ClientTokens

    section = "registry_oauth"
    return ClientTokens(oauth, client_secret(oauth, section), section, timeout=_TIMEOUT)


def _member(answer: JsonDict, name: str, kind: type[Any]) -> Any:
    if not isinstance(answer.get(name), kind):
        raise RegistryError(f"the registry's answer has no {name}")
    return answer[name]
