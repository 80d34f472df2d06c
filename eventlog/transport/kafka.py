"""Kafka: records to topics with what the brokers say of each, and topics read from an offset.

All that touches confluent-kafka, the extra ``kafka``. Settings of librdkafka are passed through; secrets among them are
in no message and no log line.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from eventlog.errors import ConfigError, EventlogError

try:
    from confluent_kafka import (
        OFFSET_BEGINNING,
        Consumer,
        KafkaError,
        KafkaException,
        Producer,
        TopicPartition,
    )
except ModuleNotFoundError:
    raise ConfigError("Kafka needs the package confluent-kafka; install eventlog-publisher[kafka]") from None

_log = logging.getLogger("eventlog.kafka")

_QUIET_SECONDS: Final = 60.0
_MOST_SAID: Final = 1000
_VARIES: Final = re.compile(r"#(?:producer|consumer)-\d+| \(after .*")
_said: dict[str, float] = {}


def _is_news(record: logging.LogRecord) -> bool:
    """Whether librdkafka has not said the same within a minute: it repeats itself while brokers are away."""
    text = _VARIES.sub("", record.getMessage())
    if record.created - _said.get(text, -_QUIET_SECONDS) < _QUIET_SECONDS:
        return False
    if len(_said) >= _MOST_SAID:
        _said.clear()
    _said[text] = record.created
    return True


_log.addFilter(_is_news)

DEFAULT_TIMEOUT: Final = 30.0
"""Seconds until a record that no broker has acknowledged counts as not delivered."""

_LINGER_MS: Final = 5
_PATIENCE: Final = 2.0
_AT_ONCE: Final = 1000
_MOMENT: Final = 0.1
"""Seconds that records are waited for until what has come is given."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OURS: Final = (
    "bootstrap.servers", "enable.idempotence", "transactional.id", "delivery.report.only.error", "enable.auto.commit",
    "enable.partition.eof",
)  # fmt: skip
_OF_THE_RECORD: Final = frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
})  # fmt: skip
_MOST_EPOCHS: Final = 30_000
"""Epochs of one producer id: it has 15 bits for them, and librdkafka does not look."""


class KafkaAway(EventlogError):
    """The brokers cannot be reached, refuse, or have not acknowledged all in time."""

    code = "kafka_away"
    cure = "Check the brokers, the topic and the user's rights. Nothing is marked; the publisher tries again."


class RecordRefused(EventlogError):
    """A record that Kafka refuses, now and at any later time."""

    code = "record_refused"
    cure = "Let the topic take larger records (`max.message.bytes`), or send fewer events a document."


class Record(NamedTuple):
    """What was read of a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int
    offset: int


def _client(
    kind: Callable[..., Any], brokers: str, properties: Mapping[str, Any] | None, ours: Mapping[str, Any]
) -> Any:
    """A producer or consumer with our settings of librdkafka and what the user adds.

    Raises ConfigError for a setting that librdkafka refuses, or that we need as it is.
    """
    for name in properties or ():
        if name in _OURS:
            raise ConfigError(f"property {name} of Kafka is eventlog's own; leave it out")
    try:
        return kind({"bootstrap.servers": brokers, **ours, **(properties or {})}, logger=_log)
    except (KafkaException, ValueError, TypeError) as error:
        raise ConfigError(f"Kafka's settings are refused: {_refusal(error)}") from None


def _refusal(error: Exception) -> str:
    """Which setting is refused; not its value, which may be a secret."""
    said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    return re.sub(r'"[^"]*"(?= for )|value "[^"]*"', '"..."', said)


# --- producing --------------------------------------------------------------------------------------------------------


class Transmitter:
    """Sends records in order, once each as far as one life of it reaches (idempotent producer).

    ``send`` returns at once; ``flush`` waits for the brokers. ``timeout``: seconds for a record to be acknowledged.
    Raises ConfigError for settings that librdkafka refuses.

    What was abandoned may still lie in a broker's socket, or in ours. So the same producer goes on, under the next
    epoch of its id: a partition that has a record of the new epoch takes none of the old one any more, so that nothing
    comes behind what is sent again. A new producer would have another id, which fences nothing.
    """

    def __init__(
        self, brokers: str, properties: Mapping[str, Any] | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        self._timeout = timeout
        ours = {
            "linger.ms": _LINGER_MS,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "message.timeout.ms": max(1, int(timeout * 1000)),
        }
        self._new_producer = partial(_client, Producer, brokers, properties, ours)
        self._sent = 0
        self._failed: dict[int, KafkaError] = {}
        self._epochs = 0
        self._producer = self._new_producer()

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes], ...] = ()
    ) -> int:
        """Hand over a record. Its number, from 0, since the last flush.

        Raises RecordRefused for a record that is too large by our own settings, KafkaAway if there is no room for it.
        """
        if self._producer is None:
            self._producer = self._new_producer()
        producer = self._producer
        number = self._sent
        self._sent += 1
        deadline = 0.0
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    on_delivery=partial(_note, self._failed, number),
                    headers=list(headers) if headers else None,
                )
            except BufferError:
                deadline = deadline or time.monotonic() + self._timeout
                if time.monotonic() > deadline:
                    self.abandon()
                    raise KafkaAway(f"Kafka takes no more records within {self._timeout:g} s") from None
                producer.poll(0.05)
            except KafkaException as error:
                self._sent -= 1
                if error.args[0].code() not in _OF_THE_RECORD:
                    self.close()
                    raise KafkaAway(f"Kafka takes no records: {error.args[0].str()}") from None
                raise RecordRefused(error.args[0].str()) from None
            else:
                return number

    def flush(self) -> dict[int, str]:
        """Wait until all records are acknowledged; reasons of those that the brokers refuse, by number.

        A refusal is of the record itself (it is too large, or malformed): to send it again helps nothing. Raises
        KafkaAway if any is not acknowledged for another reason; all are abandoned then, none is sent later on.
        """
        if self._producer is None or not self._sent:
            self._sent = 0
            return {}
        left = self._producer.flush(self._timeout + _PATIENCE)
        failed, self._failed, self._sent = self._failed, {}, 0
        others = [error for error in failed.values() if error.code() not in _OF_THE_RECORD]
        if left or others:
            self.abandon()
            reason = others[0].str() if others else f"{left} records are not acknowledged within {self._timeout:g} s"
            raise KafkaAway(f"Kafka has not taken all records: {reason}")
        return {number: error.str() for number, error in failed.items()}

    def abandon(self) -> None:
        """Drop what is not acknowledged, so that it cannot come behind what is sent afterwards."""
        self._failed, self._sent = {}, 0
        if self._producer is None:
            return
        self._producer.purge()
        left = self._producer.flush(_PATIENCE)
        self._epochs += 1
        if left or self._epochs == _MOST_EPOCHS:
            self._producer, self._epochs = None, 0

    def close(self) -> None:
        """Drop what was not flushed, and the producer; ``send`` begins with a new one.

        What the brokers take at once they may take: left in a socket it could come behind records of the next one.
        """
        if self._producer is not None:
            self._producer.flush(_PATIENCE)
        self.abandon()
        self._producer, self._epochs = None, 0


def _note(failed: dict[int, KafkaError], number: int, error: Any, _message: Any) -> None:
    if error is not None:
        failed[number] = error


# --- consuming --------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """What a URL names: brokers, topics (perhaps none), and the offset to begin at in every partition."""

    brokers: str
    topics: tuple[str, ...]
    offset: int | None


def parse_url(url: str) -> Place:
    """``kafka://host:port[,host:port]/topic[,topic][?offset=earliest|N]``. Raises ConfigError."""
    parts = urlsplit(url)
    topics = tuple(filter(None, parts.path.strip("/").split(",")))
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    offset = query.pop("offset", "earliest")
    if parts.scheme != "kafka" or not parts.netloc or query or not all(map(_TOPIC.fullmatch, topics)):
        raise ConfigError("a topic is named as kafka://host:port/topic?offset=earliest, or offset=N")
    if "@" in parts.netloc:
        raise ConfigError("a user does not belong in the URL of a topic; set sasl.username in properties")
    if offset != "earliest" and not (offset.isascii() and offset.isdigit()):
        raise ConfigError(f"offset {offset!r} is neither earliest nor a number")
    return Place(parts.netloc, topics, None if offset == "earliest" else int(offset))


def read_topics(
    place: Place, properties: Mapping[str, Any] | None = None, *, follow: bool = False, timeout: float = DEFAULT_TIMEOUT
) -> Iterator[Record | None]:
    """The records of topics, partition by partition as they come; None if nothing has come for a moment.

    Ends at the offsets that the topics end at now; with ``follow`` never. Raises KafkaAway if the brokers cannot be
    reached within ``timeout`` seconds or a topic is not there, ConfigError.
    """
    with TopicReader(place.brokers, properties, timeout) as topics:
        spans = topics.spans(place.topics)
        first = 0 if place.offset is None else place.offset
        starts = {partition: max(span.start, first) for partition, span in spans.items()}
        if follow:
            topics.assign(starts)
            batches = iter(topics.consume, None)
        else:
            batches = topics.read_to(starts, {partition: span.stop for partition, span in spans.items()})
        for records in batches:
            yield from records or (None,)


def topics_of(place: Place, properties: Mapping[str, Any] | None = None, timeout: float = DEFAULT_TIMEOUT) -> set[str]:
    """The topics that there are. Raises KafkaAway, ConfigError."""
    with TopicReader(place.brokers, properties, timeout) as topics:
        return topics.names()


Partition: TypeAlias = tuple[str, int]
"""Topic and number."""


class TopicReader:
    """Reads topics from offsets that it is given: it joins no consumer group, and keeps no offset.

    ``timeout``: seconds that the brokers have for an answer. ``reached``: the next offsets of what ``read_to`` reads.
    All methods raise KafkaAway. Raises ConfigError for settings that librdkafka refuses.
    """

    def __init__(
        self, brokers: str, properties: Mapping[str, Any] | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        ours = {
            "group.id": "eventlog",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
        }
        self._consumer = _client(Consumer, brokers, properties, ours)
        self._brokers, self._timeout = brokers, timeout
        self.reached: dict[Partition, int] = {}

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def names(self) -> set[str]:
        """The topics that there are."""
        with self._away():
            return set(self._consumer.list_topics(timeout=self._timeout).topics)

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        """The partitions of topics, which have to be there."""
        partitions: list[Partition] = []
        for topic in topics:
            with self._away():
                known = self._consumer.list_topics(topic, timeout=self._timeout).topics.get(topic)
            if known is None or known.error is not None or not known.partitions:
                reason = "is not there" if known is None or known.error is None else known.error.str()
                raise KafkaAway(f"topic {topic}: {reason}")
            partitions += [(topic, number) for number in sorted(known.partitions)]
        return partitions

    def spans(self, topics: Iterable[str]) -> dict[Partition, range]:
        """The offsets that the brokers have of the partitions of topics, which have to be there."""
        spans = {}
        for topic, number in self.partitions(topics):
            with self._away():
                bounds = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=self._timeout)
            spans[topic, number] = range(*bounds)
        return spans

    def assign(self, starts: Mapping[Partition, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        # Offset 0 is where a topic begins, also one that librdkafka has not asked for yet.
        with self._away():
            self._consumer.assign(
                [
                    TopicPartition(*partition, OFFSET_BEGINNING if offset == 0 else offset)
                    for partition, offset in starts.items()
                ]
            )

    def consume(self) -> list[Record]:
        """What has come, none if nothing comes for a moment."""
        records: list[Record] = []
        message: Any
        with self._away():
            for message in self._consumer.consume(_AT_ONCE, timeout=_MOMENT):
                if message.error() is not None:
                    raise KafkaException(message.error())
                records.append(
                    Record(message.topic(), message.key(), message.value(), message.partition(), message.offset())
                )
        return records

    def read_to(self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[list[Record]]:
        """Read partitions to their ends: lists of what has come, of no record where nothing has for a moment."""
        left = {partition for partition, start in starts.items() if start < ends[partition]}
        self.reached = {partition: starts[partition] for partition in left}
        self.assign(self.reached)
        idle = 0
        while left:
            records = self.consume()
            idle = 0 if records else idle + 1
            if idle * _MOMENT > self._timeout:
                raise KafkaAway(f"{self._brokers}: nothing comes of {len(left)} partitions within {self._timeout:g} s")
            yield records
            # By position, since offsets have gaps. Those at their end go on too while others are not.
            with self._away():
                positions = self._consumer.position([TopicPartition(*partition) for partition in self.reached])
            for position in positions:
                partition = position.topic, position.partition
                self.reached[partition] = max(self.reached[partition], position.offset)
                if position.offset >= ends[partition]:
                    left.discard(partition)

    @contextmanager
    def _away(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise KafkaAway(
                f"{self._brokers}: {error.args[0].str()}; check host and port, that the brokers run and let this "
                "machine in"
            ) from None
