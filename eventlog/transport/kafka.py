"""Kafka: records to topics with what the brokers say of each, and topics read from an offset.

All that touches confluent-kafka, the extra ``kafka``. Settings of librdkafka are passed through; secrets among them are
in no message and no log line.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
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
    """The brokers cannot be reached, refuse, or have not acknowledged all in time: nothing is known to be stored."""

    code = "kafka_away"


class RecordRefused(EventlogError):
    """A record that Kafka does not take, and would not take another time."""

    code = "record_refused"


class Record(NamedTuple):
    """What was read of a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int
    offset: int


def settings(brokers: str, properties: Mapping[str, Any], **ours: Any) -> dict[str, Any]:
    """The settings of librdkafka: ours, and what the user adds. Raises ConfigError for one that we need as it is."""
    for name in properties:
        if name in _OURS:
            raise ConfigError(f"property {name} of Kafka is eventlog's own; leave it out")
    return {"bootstrap.servers": brokers, **ours, **properties}


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
        self._settings: dict[str, Any] = {
            "linger.ms": _LINGER_MS,
            **settings(
                brokers,
                properties or {},
                **{
                    "enable.idempotence": True,
                    "delivery.report.only.error": True,
                    "message.timeout.ms": max(1, int(timeout * 1000)),
                },
            ),
        }
        self._sent = 0
        self._failed: dict[int, KafkaError] = {}
        self._epochs = 0
        self._producer: Any = None
        self._connect()

    def send(self, topic: str, key: bytes | None, value: bytes) -> int:
        """Hand over a record. Its number, from 0, since the last flush.

        Raises RecordRefused for a record that is too large by our own settings, KafkaAway if there is no room for it.
        """
        producer = self._producer if self._producer is not None else self._connect()
        number = self._sent
        self._sent += 1
        deadline = 0.0
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=partial(_note, self._failed, number))
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

    def _connect(self) -> Any:
        try:
            self._producer = Producer(self._settings, logger=_log)
        except (KafkaException, ValueError, TypeError) as error:
            raise ConfigError(f"Kafka's settings are refused: {_refusal(error)}") from None
        return self._producer


def _note(failed: dict[int, KafkaError], number: int, error: Any, _message: Any) -> None:
    if error is not None:
        failed[number] = error


def _refusal(error: Exception) -> str:
    """Which setting is refused; not its value, which may be a secret."""
    said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    return re.sub(r'"[^"]*"(?= for )|value "[^"]*"', '"..."', said)


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
    """The records of topics, partition by partition as they come; None where there is none at the moment.

    Ends at the offsets that the topics end at now; with ``follow`` never. No consumer group is joined and no offset
    kept. Raises KafkaAway if the brokers cannot be reached within ``timeout`` seconds or a topic is not there,
    ConfigError.
    """
    given = properties or {}
    ours = {
        "group.id": "eventlog",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }
    try:
        consumer = Consumer(settings(place.brokers, given, **ours), logger=_log)
    except (KafkaException, ValueError, TypeError) as error:
        raise ConfigError(f"Kafka's settings are refused: {_refusal(error)}") from None
    try:
        yield from _consume(consumer, place, follow, timeout)
    except KafkaException as error:
        raise _away(place, error) from None
    finally:
        consumer.close()


def topics_of(place: Place, properties: Mapping[str, Any] | None = None, timeout: float = DEFAULT_TIMEOUT) -> set[str]:
    """The topics that there are. Raises KafkaAway, ConfigError."""
    consumer = Consumer(settings(place.brokers, properties or {}, **{"group.id": "eventlog"}), logger=_log)
    try:
        return set(consumer.list_topics(timeout=timeout).topics)
    except KafkaException as error:
        raise _away(place, error) from None
    finally:
        consumer.close()


def _away(place: Place, error: KafkaException) -> KafkaAway:
    return KafkaAway(
        f"{place.brokers}: {error.args[0].str()}; check host and port, that the brokers run and let this machine in"
    )


def _consume(consumer: Any, place: Place, follow: bool, timeout: float) -> Iterator[Record | None]:
    ends: dict[tuple[str, int], int] = {}
    starts = []
    for topic, partition in _partitions(consumer, place.topics, timeout):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout)
        first = low if place.offset is None else max(low, place.offset)
        if follow or first < high:
            ends[topic, partition] = high
            starts.append(TopicPartition(topic, partition, OFFSET_BEGINNING if first == 0 else first))
    if not starts:
        return
    consumer.assign(starts)
    last_heard = time.monotonic()
    while follow or ends:
        messages = consumer.consume(1000, timeout=0.1)
        if not messages:
            if not follow and time.monotonic() - last_heard > timeout:
                raise KafkaAway(f"{place.brokers}: nothing comes of {len(ends)} partitions within {timeout:g} s")
            yield None
            continue
        last_heard = time.monotonic()
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            yield Record(message.topic(), message.key(), message.value(), message.partition(), message.offset())
        if not follow:
            _strike_ended(consumer, ends)


def _strike_ended(consumer: Any, ends: dict[tuple[str, int], int]) -> None:
    """Take away the partitions that have been read to their end; by position, since offsets have gaps."""
    positions = consumer.position([TopicPartition(topic, partition) for topic, partition in ends])
    for reached in positions:
        if reached.offset >= ends[reached.topic, reached.partition]:
            del ends[reached.topic, reached.partition]


def _partitions(consumer: Any, topics: Sequence[str], timeout: float) -> Iterator[tuple[str, int]]:
    for topic in topics:
        found = consumer.list_topics(topic, timeout=timeout).topics.get(topic)
        if found is None or found.error is not None or not found.partitions:
            reason = "is not there" if found is None or found.error is None else found.error.str()
            raise KafkaAway(f"topic {topic}: {reason}")
        for partition in sorted(found.partitions):
            yield topic, partition
