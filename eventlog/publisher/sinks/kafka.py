"""Send documents to Kafka topics; the brokers acknowledge them before rows are marked
(spec/event-log.md 8.4).

Each XDS event is a record: its own document, with the association as its key. Formats of numbered
records make their own records. A record that Kafka refuses for its content (it is too large) is an
error of its event, and an event whose topic takes nothing waits for it. Any other failure means
that the receiver is unavailable: the events whose records the brokers have not acknowledged are
sent again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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
from eventlog.core.options import TEXT, option, shared, toml
from eventlog.errors import ReceiverUnavailable, Reply, number_of
from eventlog.model import SUCCESS, Answer, Document, EventResult, KafkaRecord, Level
from eventlog.publisher.sinks import TIMEOUT, NetworkSink, Opening

if TYPE_CHECKING:
    from eventlog.transport.kafka import KafkaUnavailable

_DEFAULT_TOPIC: Final = "eventlog"
"""The topic of XDS documents if none is configured."""


_MIN_TIMEOUT: Final = 2.0
"""The shortest timeout in seconds. By then an idempotent producer has its number, even if it had to
request it from the brokers twice.
"""


@dataclass(frozen=True, slots=True)
class KafkaSinkOptions:
    """Options of ``[sink]`` of type ``kafka``."""

    brokers: str | None = shared(BROKERS)
    topic: str | None = option(
        None,
        TEXT,
        "the topic; default: eventlog, or one topic per table for Qlik messages",
        example="hr.changes",
    )
    properties: Mapping[str, Any] | None = shared(
        properties_option("sink", {"compression.type": "lz4"})
    )
    secret_properties: Mapping[str, str] | None = shared(SECRET_PROPERTIES)
    timeout: float = shared(TIMEOUT)
    user: str | None = shared(USER)
    password: str | None = shared(PASSWORD)
    allow_plain: bool = shared(ALLOW_PLAIN)


class KafkaSink(NetworkSink):
    """A sink that sends records with an idempotent producer; ``flush`` waits for all of them.

    ``brokers`` is ``host:port``, comma-separated. ``topic`` is the topic of XDS documents.
    ``timeout`` is the seconds until a record must be acknowledged. ``properties`` are settings of
    librdkafka, secrets among them. Raises ConfigError.
    """

    name = "kafka"
    title = "Kafka topics"
    options = KafkaSinkOptions
    needs = {"brokers": "the address of a broker, host:port"}  # noqa: RUF012 - read only
    address = ("brokers", "topic")
    takes_records = True
    has_headers = True
    span_kind = "PRODUCER"

    @classmethod
    def open(cls, options: KafkaSinkOptions, opening: Opening) -> KafkaSink:
        assert options.brokers is not None
        properties = kafka_properties(options, "sink")
        return cls(options.brokers, options.topic or _DEFAULT_TOPIC, properties, options.timeout)

    @classmethod
    def contradictions(
        cls, options: KafkaSinkOptions, source_of: Callable[[str], str]
    ) -> Iterator[str]:
        yield from super().contradictions(options, source_of)
        yield from kafka_contradictions(options, "sink", source_of)
        if options.timeout < _MIN_TIMEOUT:
            yield (
                f"{source_of('timeout')} = {toml(options.timeout)} is too short for Kafka, because "
                "the producer first requests a producer id: set at least "
                f"{_MIN_TIMEOUT:g} s, better 10 or more"
            )

    @classmethod
    def plain_hosts(cls, options: KafkaSinkOptions) -> Iterator[tuple[str, str]]:
        yield from kafka_plain_hosts(options, "sink")

    @classmethod
    def try_out(cls, options: KafkaSinkOptions, opening: Opening) -> str:
        """Query the brokers for their metadata, including the metadata of the default topic."""
        with closing(cls.open(options, opening)) as sink:
            try:
                brokers, partitions = sink.transmitter.ask(sink._topic)
            except sink._kafka.KafkaUnavailable as unavailable:
                raise _lost(unavailable) from None
        topic = (
            f"topic {sink._topic} has {number_of(partitions, 'partition')}"
            if partitions
            else f"there is no topic {sink._topic} yet"
        )
        return f"{options.brokers}: {number_of(brokers, 'broker')} known; {topic}"

    def __init__(
        self,
        brokers: str,
        topic: str,
        properties: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT.default,
    ) -> None:
        # A late import: the module loads librdkafka, which takes longer than a configuration.
        from eventlog.transport import kafka

        self._kafka = kafka
        self.transmitter = kafka.Transmitter(brokers, properties, timeout)
        self._topic = topic
        # The pairs of event-id and record since the last flush, in order.
        self._sent: list[tuple[str, KafkaRecord]] = []
        self._has_answered = False  # True once ``send`` has answered since the last flush
        # The topics that took nothing, and those that were not there since the last flush.
        self._waiting: dict[str, KafkaUnavailable] = {}
        self._asked: set[str] = set()
        # Why records answered since the last flush are lost, None = they are not.
        self._unavailable: ReceiverUnavailable | None = None

    def send(self, document: Document) -> Answer:
        """Send the records. The answer names the events that are refused immediately; for the other
        events the answer is final after ``flush``.

        Raises ReceiverUnavailable. All answers since the last flush are then lost, and the next
        flush raises the error again.
        """
        if self._unavailable is not None:
            raise self._unavailable
        refused: dict[str, EventResult] = {}
        for event_id, records in self._records(document):
            if isinstance(records, EventResult):
                refused[event_id] = records
                continue
            for record in records:
                topic, key, value, headers = record
                try:
                    self._check(topic)
                    self.transmitter.send(topic or self._topic, key, value, headers)
                except self._kafka.RecordRefused as error:
                    refused[event_id] = _refusal(str(error))
                    break
                except self._kafka.KafkaUnavailable as unavailable:
                    if (waits := self._waits(record, unavailable)) is not None:
                        refused[event_id] = waits
                        break
                    self._sent, lost = [], _lost(unavailable)
                    if self._has_answered:
                        self._unavailable = lost
                    raise lost from None
                self._sent.append((event_id, record))
        self._has_answered = True
        return Answer(refused, is_pending=True)

    def flush(self) -> dict[str, EventResult]:
        """Wait for the brokers, and return the results of events whose records they refuse, or
        whose topic takes nothing.

        Raises ReceiverUnavailable, with the results of the events that the brokers have.
        """
        sent, self._sent = self._sent, []
        lost, self._unavailable, self._has_answered = self._unavailable, None, False
        self._asked.clear()
        if lost is not None:
            raise lost
        try:
            try:
                refused: Collection[int] = self.transmitter.flush()
            except self._kafka.KafkaUnavailable as unavailable:
                if unavailable.failed is None:
                    raise
                results, refused = self._in_part(sent, unavailable, unavailable.failed)
            else:
                results = {}
            return self._one_by_one(sent, refused) | results
        except self._kafka.KafkaUnavailable as unavailable:
            raise _lost(unavailable) from None

    def _in_part(
        self,
        sent: Sequence[tuple[str, KafkaRecord]],
        unavailable: KafkaUnavailable,
        failed: Mapping[int, KafkaUnavailable | None],
    ) -> tuple[dict[str, EventResult], Collection[int]]:
        """Return the results of the events whose topics take nothing, and the records that are
        refused, if the brokers have acknowledged all others. Raises ReceiverUnavailable.
        """
        results: dict[str, EventResult] = {}
        is_lost = False
        for number, (event_id, record) in enumerate(sent):
            failure = failed.get(number)
            if number in failed:
                waits = None if failure is None else self._waits(record, failure)
                is_lost |= failure is not None and waits is None
                results[event_id] = waits or EventResult(Level.RETRY)
        refused = [number for number, failure in failed.items() if failure is None]
        if is_lost:
            lost = _lost(unavailable)
            lost.answered = {event_id: SUCCESS for event_id, _ in sent if event_id not in results}
            raise lost
        return {event_id: one for event_id, one in results.items() if one.place}, refused

    def _waits(self, record: KafkaRecord, unavailable: KafkaUnavailable) -> EventResult | None:
        """Return the result of an event whose topic takes nothing while others may, None if the
        records of the sink have one topic or the failure has another reason.
        """
        if not unavailable.is_of_topic or record.topic is None:
            return None
        self._waiting[record.topic] = unavailable
        return EventResult(Level.RETRY, str(_lost(unavailable)), place=record.topic)

    def _check(self, topic: str | None) -> None:
        """Ask for a topic that took nothing, once until the next flush: a record to a topic that
        does not exist would let all others wait for ``timeout``. Raises KafkaUnavailable.
        """
        if topic is None or (failure := self._waiting.get(topic)) is None:
            return
        if topic not in self._asked and self.transmitter.ask(topic)[1] > 0:
            del self._waiting[topic]
            return
        self._asked.add(topic)
        raise failure

    def close(self) -> None:
        """Discard unflushed records: their rows are not marked, and their events are sent again."""
        self._sent = []
        self.transmitter.close()

    def _one_by_one(
        self, sent: Sequence[tuple[str, KafkaRecord]], refused: Collection[int]
    ) -> dict[str, EventResult]:
        """Send the refused records again one at a time, since brokers refuse a whole batch.

        If they accept such a record now, the later events of its object that they have must come
        again.
        """
        results: dict[str, EventResult] = {}
        late: set[tuple[str | None, bytes | None]] = set()
        for number, (event_id, record) in enumerate(sent if refused else ()):
            if number in refused:
                self.transmitter.send(record.topic or self._topic, *record[1:])
                reasons = self.transmitter.flush().values()
                for reason in reasons:
                    results[event_id] = _refusal(reason)
                if not reasons and record.key is not None:
                    late.add((record.topic, record.key))
            elif (record.topic, record.key) in late:
                results.setdefault(event_id, EventResult(Level.RETRY))
        return results

    def _records(
        self, document: Document
    ) -> list[tuple[str, tuple[KafkaRecord, ...] | EventResult]]:
        """Return the records of each event, or the error result of an event without records."""
        if not document.event_ids:  # a heartbeat, which only some formats have
            return [
                ("", (KafkaRecord(self._topic, None, line),))
                for line in document.body.split(b"\n")[:-1]
            ]
        return list(zip(document.event_ids, document.records, strict=True))


_CREDENTIALS: Final = (
    "check EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD, and sasl.mechanism and security.protocol "
    "in sink.properties"
)
_NO_TOPIC: Final = "create the topic {topic}, or correct sink.topic"
_ADVICE: Final = {
    "_AUTHENTICATION": _CREDENTIALS,
    "SASL_AUTHENTICATION_FAILED": _CREDENTIALS,
    "UNSUPPORTED_SASL_MECHANISM": _CREDENTIALS,
    "_SSL": (
        "check security.protocol, ssl.ca.location and the certificates in sink.properties, and the "
        "names in sink.brokers"
    ),
    "_RESOLVE": "check the names in sink.brokers",
    "TOPIC_AUTHORIZATION_FAILED": (
        "permit the user to write to and describe the topic {topic}, or correct EVENTLOG_SINK_USER "
        "or sink.topic"
    ),
    "CLUSTER_AUTHORIZATION_FAILED": (
        "permit the user IdempotentWrite on the cluster, or correct EVENTLOG_SINK_USER"
    ),
    "UNKNOWN_TOPIC_OR_PART": _NO_TOPIC,
    "_UNKNOWN_TOPIC": _NO_TOPIC,
    "TOPIC_EXCEPTION": "{topic} is not a name of a topic; correct sink.topic",
    "UNSUPPORTED_COMPRESSION_TYPE": "correct compression.type in sink.properties",
}
"""What to do about the option that causes an error, by librdkafka's name of the error."""
_TOO_LARGE: Final = re.compile("too large", re.IGNORECASE)


def _lost(unavailable: KafkaUnavailable) -> ReceiverUnavailable:
    """Return the error of lost records. The message comes from the client and quotes no record."""
    advice = _ADVICE.get(unavailable.name, "").format(topic=unavailable.topic)
    why = "; ".join(filter(None, [str(unavailable), advice]))
    reply = Reply.in_words(unavailable.name, unavailable.words) if unavailable.name else None
    return ReceiverUnavailable(why, why, advice=advice, reply=reply)


def _refusal(reason: str) -> EventResult:
    """Return the error of an event whose record Kafka refuses."""
    why = f"Kafka refuses the record: {reason}"
    if _TOO_LARGE.search(reason) is not None:
        why += (
            "; raise max.message.bytes of the topic, and message.max.bytes in sink.properties, or "
            "leave large columns out"
        )
    return EventResult(Level.ERROR, why)
