"""Topics of Qlik messages as a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eventlog.changes.format import Report
from eventlog.config.kafka import (
    ALLOW_PLAIN,
    BROKERS,
    PASSWORD,
    SECRET_PROPERTIES,
    USER,
    kafka_contradictions,
    kafka_plain_hosts,
    kafka_properties,
    properties_option,
)
from eventlog.core.options import NAMES, option, parse_options, shared
from eventlog.errors import ConfigError
from eventlog.publisher.stream import Gives, Source, Stream, StreamOptions


@dataclass(frozen=True, slots=True)
class QlikMessagesOptions(StreamOptions):
    """Options of ``[source]`` of type ``qlik-messages``."""

    brokers: str | None = shared(BROKERS)
    topics: tuple[str, ...] | None = option(
        None, NAMES, "the topics of the data", example=["app.item", "app.customer"]
    )
    properties: Mapping[str, Any] | None = shared(
        properties_option("source", {"client.id": "eventlog"})
    )
    secret_properties: Mapping[str, str] | None = shared(SECRET_PROPERTIES)
    user: str | None = shared(USER)
    password: str | None = shared(PASSWORD)
    allow_plain: bool = shared(ALLOW_PLAIN)


class QlikMessages(Source):
    """Topics of the messages that Qlik Replicate writes (formats/qlik.md 5)."""

    name = "qlik-messages"
    title = "topics of Qlik messages"
    options = QlikMessagesOptions
    reader_format = "qlik-messages"
    gives = frozenset({Gives.TYPES, Gives.TIMES})

    def open(self, options: Any, reader: Mapping[str, Any], report: Report) -> Stream:
        from eventlog.publisher.stream.topics import Topics
        from eventlog.qlik.messages.message_tables import ReadOptions

        if options.brokers is None or not options.topics:
            raise ConfigError("a source qlik-messages needs source.brokers and source.topics")
        chosen = parse_options(ReadOptions, reader, "source.reader")
        return Topics(
            options.brokers, options.topics, chosen, kafka_properties(options, "source"), report
        )

    @classmethod
    def contradictions(
        cls, options: QlikMessagesOptions, source_of: Callable[[str], str]
    ) -> Iterator[str]:
        yield from kafka_contradictions(options, "source", source_of)

    @classmethod
    def plain_hosts(cls, options: QlikMessagesOptions) -> Iterator[tuple[str, str]]:
        yield from kafka_plain_hosts(options, "source")

    def in_words(self, token: Any) -> str:
        return ", ".join(
            f"{topic} {' '.join(f'{number}:{offset}' for number, offset in partitions.items())}"
            for topic, partitions in token.items()
        )
