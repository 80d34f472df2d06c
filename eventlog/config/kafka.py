"""The options by which sinks and sources connect to Kafka, and the librdkafka settings for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from eventlog.config.kinds import REFERENCES, SECRET, librdkafka
from eventlog.core.options import BOOLEAN, TEXT, Option
from eventlog.core.secrets import PLAIN_HTTP, is_loopback, referenced_secret
from eventlog.errors import ConfigError

BROKERS: Final = Option(
    None, TEXT, "bootstrap servers, comma-separated", example="broker-1:9092,broker-2:9092"
)  # fmt: skip
SECRET_PROPERTIES: Final = Option(
    None, REFERENCES, "secret settings of librdkafka",
    example={"ssl.key.password": "file:/run/secrets/kafka-key"},
)  # fmt: skip
USER: Final = Option(None, SECRET, "user", secret=True)
PASSWORD: Final = Option(None, SECRET, "password", secret=True)
ALLOW_PLAIN: Final = Option(False, BOOLEAN, "no warning for credentials without TLS")

_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_MECHANISMS: Final = ("sasl.mechanism", "sasl.mechanisms")


def properties_option(section: str, example: Mapping[str, Any]) -> Option:
    """Return the option ``properties`` of a section."""
    return Option(None, librdkafka(section), "settings of librdkafka", example=example)


class KafkaOptions(Protocol):
    """The options that sinks and sources of Kafka share."""

    @property
    def brokers(self) -> str | None: ...

    @property
    def properties(self) -> Mapping[str, Any] | None: ...

    @property
    def secret_properties(self) -> Mapping[str, str] | None: ...

    @property
    def user(self) -> str | None: ...

    @property
    def password(self) -> str | None: ...


def kafka_properties(options: KafkaOptions, section: str) -> dict[str, Any]:
    """Return the settings of librdkafka, including the secrets that the options refer to.

    Raises ConfigError.
    """
    properties = dict(options.properties or {})
    for name, reference in (options.secret_properties or {}).items():
        properties[name] = referenced_secret(reference, f"{section}.secret_properties, {name}")
    if options.user is not None:
        properties |= {"sasl.username": options.user, "sasl.password": options.password}
    token_url = str(properties.get(_ENDPOINT, "")).lower()
    if token_url.startswith("http:") and not is_loopback(urlsplit(token_url).hostname or ""):
        raise ConfigError(f"{section}.properties, {_ENDPOINT}: {PLAIN_HTTP}")
    return properties


def kafka_plain_hosts(options: KafkaOptions, section: str) -> Iterator[tuple[str, str]]:
    """Yield each broker that gets credentials without TLS, and the option that asks for TLS."""
    properties = options.properties or {}
    if str(properties.get("security.protocol")).upper() == "SASL_PLAINTEXT":
        for broker in (options.brokers or "").split(","):
            host = urlsplit(f"//{broker.strip().rpartition('://')[2]}").hostname
            yield host or "", f'"security.protocol" = "SASL_SSL" in {section}.properties'


def kafka_contradictions(
    options: KafkaOptions, section: str, source_of: Callable[[str], str]
) -> Iterator[str]:
    """Yield the messages about options that are set twice or that lack their counterparts.
    ``source_of`` returns the place where an option was set.
    """
    variables = f"EVENTLOG_{section.upper()}"
    if (options.password is None) != (options.user is None):
        yield f"Kafka needs both {variables}_USER and {variables}_PASSWORD, or neither"
    secrets, plain = options.secret_properties or {}, options.properties or {}
    source = source_of("secret_properties")
    for name in sorted(secrets.keys() & plain.keys()):
        yield f"{source} and {section}.properties both have {name}; keep one"
    if any(str(plain.get(name)).upper() == "OAUTHBEARER" for name in _MECHANISMS) and not (
        plain.get("sasl.oauthbearer.method") == "oidc"
        or plain.get("enable.sasl.oauthbearer.unsecure.jwt")
    ):
        yield (
            f'{section}.properties: OAUTHBEARER needs "sasl.oauthbearer.method" = "oidc", '
            "sasl.oauthbearer.token.endpoint.url and sasl.oauthbearer.client.id there, and "
            f"sasl.oauthbearer.client.secret in {section}.secret_properties: librdkafka gets the "
            "tokens itself"
        )
    if options.user is not None and "sasl.password" in secrets:
        yield f"{source} and {variables}_PASSWORD both give sasl.password; keep one"
