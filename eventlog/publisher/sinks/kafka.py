"""Documents to Kafka topics, acknowledged by the brokers before rows are marked (spec/event-log.md 8.4).

XDS: a record an event, an envelope of its own, the key its association. Formats of numbered records bring their own.
A record that Kafka refuses for what it is (too large) is an error of its event; whatever else goes wrong means that
the receiver is away: nothing of what was not flushed is marked, and all of it is sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TextIO

from eventlog.config.load import Config
from eventlog.config.settings import kafka_properties
from eventlog.errors import ReceiverAway
from eventlog.model import Answer, Document, KafkaRecord, Level, Verdict
from eventlog.publisher.sinks import Sink
from eventlog.transport.kafka import DEFAULT_TIMEOUT, KafkaAway, RecordRefused, Transmitter

_DEFAULT_TOPIC: Final = "eventlog"
"""Where XDS documents go if no topic is named."""


def open_sink(config: Config, _stream: TextIO) -> Sink:
    """``[sink]`` of type ``kafka``."""
    settings = config.sink
    assert settings.brokers is not None
    properties = kafka_properties(settings, "sink")
    return KafkaSink(settings.brokers, settings.topic or _DEFAULT_TOPIC, properties, settings.timeout)


class KafkaSink(Sink):
    """Sends records with an idempotent producer; ``flush`` waits for them all at once.

    ``brokers``: ``host:port``, comma-separated. ``topic``: that of XDS documents. ``timeout``: seconds for a record to
    be acknowledged. ``properties``: settings of librdkafka, secrets among them. Raises ConfigError.
    """

    __slots__ = ("_away", "_has_answered", "_sent", "_topic", "_transmitter")

    def __init__(
        self,
        brokers: str,
        topic: str,
        properties: Mapping[str, Any] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        self._transmitter = Transmitter(brokers, properties, timeout)
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
                except RecordRefused as error:
                    refused[event_id] = Verdict(Level.ERROR, f"Kafka refuses the record: {error}")
                    break
                except KafkaAway as away:
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
        except KafkaAway as away:
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
