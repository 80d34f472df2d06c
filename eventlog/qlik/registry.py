"""Schema registries and Confluent's wire format: byte 00, the schema id, the Avro body (spec/qlik.md 5.5).

A registry is anything with ``register`` and ``schema``. ``MemoryRegistry`` lives as long as the process;
``open_registry`` gives that of an URL: confluent-kafka's own client where what it needs is installed
(the extra ``registry``), else a small one of the standard library.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

from eventlog.errors import ConfigError, FormatError
from eventlog.qlik.errors import RegistryError, UnknownSchema

PREFIX_LENGTH: Final = 5
_TIMEOUT: Final = 30.0
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


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


@dataclass(slots=True)
class MemoryRegistry:
    """A registry in memory. A schema has one id, whatever its subjects."""

    schemas: list[str] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)

    def register(self, subject: str, schema: str) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def schema(self, schema_id: int) -> str:
        if not 1 <= schema_id <= len(self.schemas):
            raise UnknownSchema(f"the registry has no schema {schema_id}")
        return self.schemas[schema_id - 1]


def open_registry(url: str) -> Registry:
    """The registry of a URL. ``user:password`` come from EVENTLOG_REGISTRY_AUTH. Raises ConfigError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"registry {url!r} is no URL of a schema registry, such as http://localhost:8081")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("a secret does not belong in the URL of the registry; set EVENTLOG_REGISTRY_AUTH")
    secret = os.environ.get("EVENTLOG_REGISTRY_AUTH")
    if secret and parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ConfigError("credentials are not sent to a registry over plain http on another machine; use https")
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError:
        return HttpRegistry(url, secret)
    settings = {"url": url} | ({"basic.auth.user.info": secret} if secret else {})
    return ConfluentRegistry(SchemaRegistryClient(settings))


@dataclass(slots=True)
class ConfluentRegistry:
    """confluent-kafka's own client, which remembers what it has asked."""

    client: Any

    def close(self) -> None:
        """Give its connections back."""
        self.client.__exit__(None, None, None)

    def register(self, subject: str, schema: str) -> int:
        from confluent_kafka import schema_registry
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        make: Any = schema_registry.Schema  # attrs, which mypy sees where it is installed only
        try:
            return int(self.client.register_schema(subject, make(schema, "AVRO")))
        except (SchemaRegistryError, OSError) as error:
            raise RegistryError(f"the registry does not take the schema of {subject}: {error}") from None

    def schema(self, schema_id: int) -> str:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return str(self.client.get_schema(schema_id).schema_str)
        except SchemaRegistryError as error:
            if error.http_status_code == http.HTTPStatus.NOT_FOUND:
                raise UnknownSchema(f"the registry has no schema {schema_id}") from None
            raise RegistryError(f"the registry does not give schema {schema_id}: {error}") from None
        except OSError as error:
            raise RegistryError(f"the registry does not give schema {schema_id}: {error}") from None


@dataclass(slots=True)
class HttpRegistry:
    """Confluent's REST interface by the standard library. What was asked once is remembered."""

    url: str
    secret: str | None = field(default=None, repr=False)
    timeout: float = _TIMEOUT
    _ids: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)
    _schemas: dict[int, str] = field(default_factory=dict, repr=False)

    def register(self, subject: str, schema: str) -> int:
        known = self._ids.get((subject, schema))
        if known is None:
            answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
            known = self._ids[subject, schema] = _member(answer, "id", int)
        return known

    def schema(self, schema_id: int) -> str:
        known = self._schemas.get(schema_id)
        if known is None:
            answer = self._ask(f"/schemas/ids/{schema_id}")
            kind = answer.get("schemaType", "AVRO")
            if kind != "AVRO":
                raise RegistryError(f"schema {schema_id} of the registry is {kind}, and Avro is needed")
            known = self._schemas[schema_id] = _member(answer, "schema", str)
        return known

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
        if self.secret:
            headers["Authorization"] = f"Basic {b64encode(self.secret.encode()).decode()}"
        data = None if body is None else json.dumps(body).encode()
        place = self.url.rstrip("/") + path
        request = urllib.request.Request(place, data, headers)  # noqa: S310 - http or https: open_registry
        # Proxies of the environment are not used: what goes to the registry goes there, or nowhere.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
        try:
            with opener.open(request, timeout=self.timeout) as response:
                answer = json.loads(response.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == http.HTTPStatus.NOT_FOUND and body is None:
                    raise UnknownSchema(f"{place}: the registry has no such schema") from None
                said = error.read(200).decode("utf-8", "replace")
            raise RegistryError(f"{place} answers {error.code}: {' '.join(said.split())}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RegistryError(f"{place} does not answer: {type(error).__name__}: {error}") from None
        if not isinstance(answer, dict):
            raise RegistryError(f"{place} answers no JSON object")
        return answer


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Credentials and schemas go to the place that is named."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


def _member(answer: dict[str, Any], name: str, kind: type[Any]) -> Any:
    if not isinstance(answer.get(name), kind):
        raise RegistryError(f"the registry's answer has no {name}")
    return answer[name]
