"""Documents to Kafka topics, acknowledged by the brokers before rows are marked (spec/event-log.md 8.4).

XDS: a record an event, an envelope of its own, the key its association. Formats of numbered records bring their own.
A record that Kafka refuses for what it is (too large) is an error of its event; whatever else goes wrong means that
the receiver is away: nothing of what was not flushed is marked, and all of it is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from eventlog.config.kafka import (
    BROKERS,
    PASSWORD,
    SECRET_PROPERTIES,
    USER,
    kafka_contradictions,
    kafka_properties,
    properties_option,
)
from eventlog.core.options import TEXT, option, shared, toml
from eventlog.errors import ReceiverAway
from eventlog.model import Answer, Document, KafkaRecord, Level, Verdict
from eventlog.publisher.sinks import TIMEOUT, Opening, Sink

_DEFAULT_TOPIC: Final = "eventlog"
"""Where XDS documents go if no topic is named."""


_LEAST_TIMEOUT: Final = 2.0
"""Seconds. An idempotent producer that asks the brokers a second time for its number has waited for one by then."""


@dataclass(frozen=True, slots=True)
class KafkaSinkOptions:
    """Options of ``[sink]`` of type ``kafka``."""

    brokers: str | None = shared(BROKERS)
    topic: str | None = option(
        None, TEXT, "the topic; default: eventlog, of Qlik messages one a table", example="hr.changes"
    )
    properties: Mapping[str, Any] | None = shared(properties_option("sink", {"compression.type": "lz4"}))
    secret_properties: Mapping[str, str] | None = shared(SECRET_PROPERTIES)
    timeout: float = shared(TIMEOUT)
    user: str | None = shared(USER)
    password: str | None = shared(PASSWORD)


class KafkaSink(Sink):
    """Sends records with an idempotent producer; ``flush`` waits for them all at once.

    ``brokers``: ``host:port``, comma-separated. ``topic``: that of XDS documents. ``timeout``: seconds for a record to
    be acknowledged. ``properties``: settings of librdkafka, secrets among them. Raises ConfigError.
    """

    name = "kafka"
    title = "Kafka topics"
    options = KafkaSinkOptions
    needs = {"brokers": "where a broker is: host:port"}  # noqa: RUF012 - read only
    takes_records = True
    has_headers = True
    span_kind = "PRODUCER"

    @classmethod
    def open(cls, options: KafkaSinkOptions, opening: Opening) -> KafkaSink:
        assert options.brokers is not None
        properties = kafka_properties(options, "sink")
        return cls(options.brokers, options.topic or _DEFAULT_TOPIC, properties, options.timeout)

    @classmethod
    def contradictions(cls, options: KafkaSinkOptions, source_of: Callable[[str], str]) -> Iterator[str]:
        yield from super().contradictions(options, source_of)
        yield from kafka_contradictions(options, "sink", source_of)
        if options.timeout < _LEAST_TIMEOUT:
            yield (
                f"{source_of('timeout')} = {toml(options.timeout)} is too short for Kafka, whose producer asks for its "
                f"number first: at least {_LEAST_TIMEOUT:g} s, better 10 or more"
            )

    @classmethod
    def patience(cls, options: KafkaSinkOptions) -> float:
        return options.timeout

    def __init__(
        self,
        brokers: str,
        topic: str,
        properties: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT.default,
    ) -> None:
        # Here, since it brings librdkafka, which takes longer to load than a configuration.
        from eventlog.transport import kafka

        self._kafka = kafka
        self._transmitter = kafka.Transmitter(brokers, properties, timeout)
        self._topic = topic
        self._sent: list[tuple[str, KafkaRecord]] = []  # event-id and record, since the last flush, in order
        self._has_answered = False  # since the last flush
        self._away = ""  # why records are lost that have been answered since the last flush, if they are

    def send(self, document: Document) -> Answer:
        """Hand the records over. The answer names events that are refused at once; the rest counts with ``flush``.

        Raises ReceiverAway: then what was answered since the last flush is lost too, and that flush raises it again.
        """
        if self._away:
            raise _lost(self._away)
        refused: dict[str, Verdict] = {}
        for event_id, records in self._records(document):
            if isinstance(records, Verdict):
                refused[event_id] = records
                continue
            for record in records:
                topic, key, value, headers = record
                try:
                    self._transmitter.send(topic or self._topic, key, value, headers)
                except self._kafka.RecordRefused as error:
                    refused[event_id] = Verdict(Level.ERROR, f"Kafka refuses the record: {error}")
                    break
                except self._kafka.KafkaAway as away:
                    self._sent = []
                    if self._has_answered:
                        self._away = str(away)
                    raise _lost(str(away)) from None
                self._sent.append((event_id, record))
        self._has_answered = True
        return Answer(refused, is_pending=True)

    def flush(self) -> dict[str, Verdict]:
        """Wait for the brokers. Verdicts of events whose records they refuse. Raises ReceiverAway."""
        sent, self._sent = self._sent, []
        away_since, self._away, self._has_answered = self._away, "", False
        if away_since:
            raise _lost(away_since)
        try:
            refused = self._transmitter.flush()
            return self._one_by_one(sent[min(refused) :]) if refused else {}
        except self._kafka.KafkaAway as away:
            raise _lost(str(away)) from None

    def close(self) -> None:
        """Drop what was not flushed: its rows are not marked and its events are sent again."""
        self._sent = []
        self._transmitter.close()

    def _one_by_one(self, sent: list[tuple[str, KafkaRecord]]) -> dict[str, Verdict]:
        """Send records again, each alone, from the first that was refused: brokers refuse a batch whole.

        Those behind it that had come through come again, so that they are not overtaken by the ones before them.
        """
        verdicts: dict[str, Verdict] = {}
        for event_id, record in sent:
            self._transmitter.send(record.topic or self._topic, *record[1:])
            for reason in self._transmitter.flush().values():
                verdicts[event_id] = Verdict(Level.ERROR, f"Kafka refuses the record: {reason}")
        return verdicts

    def _records(self, document: Document) -> list[tuple[str, tuple[KafkaRecord, ...] | Verdict]]:
        """The records of each event, or why there are none."""
        if not document.event_ids:  # a heartbeat, which not every format has
            return [("", (KafkaRecord(self._topic, None, line),)) for line in document.body.split(b"\n")[:-1]]
        return list(zip(document.event_ids, document.records, strict=True))


def _lost(why: str) -> ReceiverAway:
    """The error of records that no broker has taken. The words are the client's own, and quote no record."""
    return ReceiverAway(why, why)
