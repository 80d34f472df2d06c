"""Schema registries and Confluent's wire format: byte 00, the schema id, the Avro body (spec/qlik.md 5.5).

A registry is anything with ``register`` and ``schema``; ``open_registry`` gives that of a URL.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import quote

from eventlog.errors import ConfigError, FormatError
from eventlog.files.secrets import secret_variable
from eventlog.qlik.errors import RegistryError, UnknownSchema
from eventlog.qlik.message_options import WriteOptions

PREFIX_LENGTH: Final = 5
_TIMEOUT: Final = 30.0
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_HEADERS: Final = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}


class Registry(Protocol):
    """Schemas by their ids. Both raise RegistryError; ``schema`` raises UnknownSchema for an id it does not have."""

    def register(self, subject: str, schema: str) -> int: ...

    def schema(self, schema_id: int) -> str: ...


def prefix_of(schema_id: int) -> bytes:
    """What stands before the Avro body."""
    return b"\0" + schema_id.to_bytes(4, "big")


def split(data: bytes) -> tuple[int, bytes]:
    """Schema id and Avro body. Raises FormatError for fewer bytes than a prefix has, or another first byte."""
    if len(data) < PREFIX_LENGTH or data[0]:
        raise FormatError(f"{data[:PREFIX_LENGTH].hex(' ').upper()} is no prefix of a registry: 00 and four bytes")
    return int.from_bytes(data[1:PREFIX_LENGTH], "big"), data[PREFIX_LENGTH:]


def open_registry(url: str) -> HttpRegistry:
    """The registry of a URL. ``user:password`` come from EVENTLOG_REGISTRY_AUTH or EVENTLOG_REGISTRY_AUTH_FILE.

    Raises ConfigError.
    """
    return HttpRegistry(url, secret_variable("EVENTLOG_REGISTRY_AUTH", os.environ))


def registry_of_writer(options: WriteOptions) -> HttpRegistry | None:
    """The registry that a writer of messages registers its schemas in, None if it does not. Raises ConfigError."""
    if options.metadata != "registry":
        return None
    if options.registry is None:
        raise ConfigError("metadata = registry of the Qlik messages needs the option registry, its URL")
    return open_registry(options.registry)


class HttpRegistry:
    """A registry that speaks Confluent's REST interface. What was asked once is remembered."""

    def __init__(self, url: str, secret: str | None = None) -> None:
        """``secret`` is ``user:password``. Raises ConfigError."""
        from eventlog.transport.http import HttpClient  # with TLS: it takes longer to load than all that a writer needs

        authorization = f"Basic {b64encode(secret.encode()).decode()}" if secret else None
        try:
            self._client = HttpClient(
                url,
                timeout=_TIMEOUT,
                max_answer_bytes=_LARGEST_ANSWER,
                credentials=None if authorization is None else {"Authorization": authorization},
                secrets=() if not secret or authorization is None else (secret, authorization.removeprefix("Basic ")),
            )
        except ConfigError as error:
            raise ConfigError(f"the registry of the Qlik messages: {error}") from None
        self._ids: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, str] = {}

    def register(self, subject: str, schema: str) -> int:
        known = self._ids.get((subject, schema))
        if known is None:
            answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
            known = self._ids[subject, schema] = _member(answer, "id", int)
        return known

    def schema(self, schema_id: int) -> str:
        known = self._schemas.get(schema_id)
        if known is None:
            answer = self._ask("GET", f"/schemas/ids/{schema_id}")
            kind = answer.get("schemaType", "AVRO")
            if kind != "AVRO":
                raise RegistryError(f"schema {schema_id} of the registry is {kind}, and Avro is needed")
            known = self._schemas[schema_id] = _member(answer, "schema", str)
        return known

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        from eventlog.transport.http import HttpFailed

        place = self._client.shown.rstrip("/") + path
        data = None if body is None else json.dumps(body).encode()
        try:
            status, _, content = self._client.request(method, _HEADERS, data, path)
            if status == HTTPStatus.NOT_FOUND and method == "GET":
                raise UnknownSchema(f"{place}: the registry has no such schema")
            if not 200 <= status <= 299:
                said = self._client.clean(content.decode("utf-8", "replace"))
                raise RegistryError(f"{place} answers {status}: {said}")
            answer = json.loads(content)
        except (HttpFailed, ValueError) as error:
            raise RegistryError(f"{place} does not answer: {error}") from None
        finally:
            self._client.close()  # a schema is asked for once, so the next question may be far
        if not isinstance(answer, dict):
            raise RegistryError(f"{place} answers no JSON object")
        return answer


def _member(answer: dict[str, Any], name: str, kind: type[Any]) -> Any:
    if not isinstance(answer.get(name), kind):
        raise RegistryError(f"the registry's answer has no {name}")
    return answer[name]
