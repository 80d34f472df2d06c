"""Topics of Qlik messages as a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventlog.changes.format import Report
from eventlog.config.kafka import kafka_properties
from eventlog.config.kinds import REFERENCES, SECRET, librdkafka
from eventlog.core.options import NAMES, TEXT, option, parse_options
from eventlog.errors import ConfigError
from eventlog.publisher.stream import Gives, Source, Stream, StreamOptions


@dataclass(frozen=True, slots=True)
class QlikMessagesOptions(StreamOptions):
    """Options of ``[source]`` of type ``qlik-messages``."""

    brokers: str | None = option(None, TEXT, "where to begin, comma-separated", example="broker-1:9092,broker-2:9092")
    topics: tuple[str, ...] | None = option(None, NAMES, "the topics of the data", example=["app.item", "app.customer"])
    properties: Mapping[str, Any] | None = option(
        None, librdkafka("source"), "settings of librdkafka", example={"client.id": "eventlog"}
    )
    secret_properties: Mapping[str, str] | None = option(
        None, REFERENCES, "those that are secrets, and where they are",
        example={"ssl.key.password": "file:/run/secrets/kafka-key"},
    )  # fmt: skip
    user: str | None = option(None, SECRET, "user", secret=True)
    password: str | None = option(None, SECRET, "password", secret=True)


class QlikMessages(Source):
    """Topics of the messages that Qlik Replicate writes (spec/qlik.md 5)."""

    name = "qlik-messages"
    title = "topics of Qlik messages"
    options = QlikMessagesOptions
    gives = frozenset({Gives.TYPES, Gives.TIMES})

    def open(self, options: Any, reader: Mapping[str, Any], report: Report) -> Stream:
        from eventlog.publisher.stream.topics import Topics
        from eventlog.qlik.message_tables import ReadOptions

        if options.brokers is None or not options.topics:
            raise ConfigError("a source qlik-messages needs source.brokers and source.topics")
        if (options.user is None) != (options.password is None):
            raise ConfigError("Kafka needs both EVENTLOG_SOURCE_USER and EVENTLOG_SOURCE_PASSWORD, or neither")
        chosen = parse_options(ReadOptions, reader, "source.reader")
        return Topics(options.brokers, options.topics, chosen, kafka_properties(options, "source"), report)

    def in_words(self, token: Any) -> str:
        return ", ".join(
            f"{topic} {' '.join(f'{number}:{offset}' for number, offset in partitions.items())}"
            for topic, partitions in token.items()
        )
