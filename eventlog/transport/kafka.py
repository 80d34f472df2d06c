"""Send records to topics of Kafka, with the answer of the brokers for each record, and read topics
from an offset on.

Only this module uses confluent-kafka, which is in the extra ``kafka``. Settings of librdkafka are
passed on; secrets among the settings never appear in messages or log lines.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from eventlog.core.clock import monotonic
from eventlog.core.extras import install_command
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
    raise ConfigError(
        f"Kafka needs the package confluent-kafka: {install_command('kafka')}"
    ) from None

_log = logging.getLogger("eventlog.kafka")

_QUIET_SECONDS: Final = 60.0
_MAX_LOGGED: Final = 1000
_VARIES: Final = re.compile(r"#(?:producer|consumer)-\d+| \(after .*")
_last_logged: dict[str, float] = {}


def _is_news(record: logging.LogRecord) -> bool:
    """Return False if librdkafka logged the same text within the last minute. librdkafka repeats
    its messages while brokers are unavailable.
    """
    text = _VARIES.sub("", record.getMessage())
    if record.created - _last_logged.get(text, -_QUIET_SECONDS) < _QUIET_SECONDS:
        return False
    if len(_last_logged) >= _MAX_LOGGED:
        _last_logged.clear()
    _last_logged[text] = record.created
    return True


_log.addFilter(_is_news)

DEFAULT_TIMEOUT: Final = 30.0
"""The number of seconds after which a record that no broker has acknowledged is regarded as not
delivered.
"""

_LINGER_MS: Final = 5
_PATIENCE: Final = 2.0
_AT_ONCE: Final = 1000
_MOMENT: Final = 0.1
"""The maximum number of seconds to wait for records before a batch is returned."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OURS: Final = (
    "bootstrap.servers", "enable.idempotence", "transactional.id", "delivery.report.only.error",
    "enable.auto.commit", "enable.partition.eof",
)  # fmt: skip
_OF_THE_RECORD: Final = frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
})  # fmt: skip
_OF_THE_CLIENT: Final = frozenset({
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._RESOLVE,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
})  # fmt: skip
"""The errors with which brokers refuse the client, or the client refuses brokers. The records of
the client then only time out.
"""
_OF_THE_TOPIC: Final = frozenset({
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
})  # fmt: skip
"""The errors of a topic that takes no record, while others may."""
_MAX_EPOCHS: Final = 30_000
"""The number of epochs that a producer id has in 15 bits. librdkafka does not check this limit."""


class KafkaUnavailable(EventlogError):
    """Brokers that cannot be reached, that refuse the client, or that have not acknowledged every
    record in time.

    ``name`` is librdkafka's name of the error, such as ``TOPIC_AUTHORIZATION_FAILED``. ``words`` is
    the text of the error, and ``topic`` the topic of the record that failed. Each is empty if it is
    unknown. ``is_of_topic`` is True if the topic takes no record. After a flush, ``failed`` has the
    errors of the records that are not acknowledged, by number, where None = the record is refused
    itself; ``failed`` is None if it is unknown which these are.
    """

    code = "kafka_unavailable"

    def __init__(self, message: str, error: KafkaError | None = None, topic: str = "") -> None:
        super().__init__(message)
        self.name = "" if error is None else str(error.name())
        self.words = "" if error is None else str(error.str())
        self.topic = topic
        self.is_of_topic = error is not None and error.code() in _OF_THE_TOPIC
        self.failed: Mapping[int, KafkaUnavailable | None] | None = None


class RecordRefused(EventlogError):
    """A record that Kafka refuses, and would refuse again."""

    code = "record_refused"


class Record(NamedTuple):
    """A record read from a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int
    offset: int


def _client(
    kind: Callable[..., Any],
    brokers: str,
    properties: Mapping[str, Any] | None,
    ours: Mapping[str, Any],
) -> Any:
    """Return a producer or consumer with our settings and the user's settings of librdkafka.

    Raises ConfigError for a setting that librdkafka refuses, or that only we may set.
    """
    for name in properties or ():
        if name in _OURS:
            raise ConfigError(f"property {name} of Kafka is set by eventlog; remove it")
    try:
        return kind({"bootstrap.servers": brokers, **ours, **(properties or {})}, logger=_log)
    except (KafkaException, ValueError, TypeError) as error:
        raise ConfigError(f"librdkafka refuses the Kafka settings: {_refusal(error)}") from None


def _refusal(error: Exception) -> str:
    """Return the message about a refused setting, without the value of the setting, which may be a
    secret.
    """
    said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    return re.sub(r'"[^"]*"(?= for )|value "[^"]*"', '"..."', said)


# --- producing ------------------------------------------------------------------------------------


class Transmitter:
    """A sender of records. Records arrive in order, and each record arrives once, for as long as
    the object lives (idempotent producer).

    ``send`` returns immediately; ``flush`` waits for the brokers. ``timeout`` is the number of
    seconds for a record to be acknowledged. Raises ConfigError for settings that librdkafka
    refuses.

    Abandoned records may still be in a broker's socket, or in ours. Therefore the same producer
    continues, under the next epoch of its id: a partition that has a record of the new epoch
    rejects the old epoch, so that no old record arrives after the repeated records. A new producer
    would have another id, with which partitions would not reject the old records.
    """

    def __init__(
        self,
        brokers: str,
        properties: Mapping[str, Any] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        self._timeout = timeout
        ours = {
            "linger.ms": _LINGER_MS,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "message.timeout.ms": max(1, int(timeout * 1000)),
            "error_cb": self._note_client,
        }
        self._new_producer = partial(_client, Producer, brokers, properties, ours)
        self._sent = 0
        self._failed: dict[int, tuple[KafkaError, str]] = {}
        self._refused: KafkaError | None = None
        """The error with which brokers have refused the client since the last successful flush."""
        self._epochs = 0
        self._producer = self._new_producer()

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> int:
        """Send a record, and return its number since the last flush, from 0.

        Raises RecordRefused for a record that is larger than our own settings allow, and
        KafkaUnavailable if there is no room for the record.
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
                deadline = deadline or monotonic() + self._timeout
                if monotonic() > deadline:
                    refused = self._refused
                    self.abandon()
                    why = f"Kafka has accepted no more records for {self._timeout:g} s"
                    why += "" if refused is None else f": {refused.str()}"
                    raise KafkaUnavailable(why, refused, topic) from None
                producer.poll(0.05)
            except KafkaException as error:
                self._sent -= 1
                code = error.args[0].code()
                if code not in _OF_THE_RECORD:
                    if code not in _OF_THE_TOPIC:
                        self.close()
                    raise KafkaUnavailable(
                        f"Kafka does not accept records: {error.args[0].str()}",
                        error.args[0],
                        topic,
                    ) from None
                raise RecordRefused(error.args[0].str()) from None
            else:
                return number

    def ask(self, topic: str) -> tuple[int, int]:
        """Return the number of brokers, and the number of partitions of a topic. A topic that does
        not exist has 0 partitions.

        The topic is searched in the list of all topics, since a query for one topic may create it.
        Raises KafkaUnavailable.
        """
        try:
            metadata = self._producer.list_topics(timeout=self._timeout)
        except KafkaException as error:
            self._producer.poll(0)
            why = self._refused or error.args[0]
            raise KafkaUnavailable(
                f"cannot read the Kafka cluster's metadata: {why.str()}", why, topic
            ) from None
        found = metadata.topics.get(topic)
        return len(metadata.brokers), 0 if found is None else len(found.partitions)

    def flush(self) -> dict[int, str]:
        """Wait until all records are acknowledged. Return why records were refused, by the number
        of the record.

        A refusal concerns the record itself (it is too large, or malformed), so sending it again
        would fail, too. Raises KafkaUnavailable if a record is not acknowledged for another reason.
        The records without acknowledgement are then abandoned, and none of them is sent later.
        """
        if self._producer is None or not self._sent:
            self._sent = 0
            return {}
        left = self._producer.flush(self._timeout + _PATIENCE)
        failed, self._failed, self._sent = self._failed, {}, 0
        others = [one for one in failed.values() if one[0].code() not in _OF_THE_RECORD]
        if left or others:
            error, topic = others[0] if others else (None, "")
            if error is None or error.code() == KafkaError._MSG_TIMED_OUT:
                error = self._refused or error
            # If only topics take nothing, no record is left.
            is_known = not left and all(one[0].code() in _OF_THE_TOPIC for one in others)
            is_known = is_known or self.abandon()
            reason = (
                f"{left} records are not acknowledged within {self._timeout:g} s"
                if error is None
                else error.str()
            )
            lost = _not_accepted(reason, error, topic)
            if is_known:  # the abandoned records have failed, too
                lost.failed = {
                    number: None
                    if found.code() in _OF_THE_RECORD
                    else _not_accepted(found.str(), found, its_topic)
                    for number, (found, its_topic) in failed.items()
                }
            raise lost
        self._refused = None
        return {number: error.str() for number, (error, _) in failed.items()}

    def abandon(self) -> bool:
        """Drop the unacknowledged records, so that none of them can arrive after later records.
        Return True if all of them have failed.
        """
        self._failed, self._sent = {}, 0
        if self._producer is None:
            return False
        self._producer.purge()
        left = self._producer.flush(_PATIENCE)
        self._epochs += 1
        if left or self._epochs == _MAX_EPOCHS:
            self._producer, self._epochs = None, 0
        return not left

    def _note_client(self, error: KafkaError) -> None:
        if error.code() in _OF_THE_CLIENT:
            self._refused = error

    def close(self) -> None:
        """Drop the unflushed records and the producer. A later ``send`` starts a new producer.

        The brokers have a moment to accept the records: a record that is left in a socket could
        arrive after records of the next producer.
        """
        if self._producer is not None:
            self._producer.flush(_PATIENCE)
        self.abandon()
        self._producer, self._epochs = None, 0


def _not_accepted(reason: str, error: KafkaError | None, topic: str) -> KafkaUnavailable:
    return KafkaUnavailable(f"Kafka has not accepted all records: {reason}", error, topic)


def _note(failed: dict[int, tuple[KafkaError, str]], number: int, error: Any, message: Any) -> None:
    if error is not None:
        failed[number] = error, message.topic() or ""


# --- consuming ------------------------------------------------------------------------------------


class TopicUrl(NamedTuple):
    """The parts of a URL: the brokers, the topics, if any, and the offset at which to begin in
    every partition.
    """

    brokers: str
    topics: tuple[str, ...]
    offset: int | None


def parse_url(url: str) -> TopicUrl:
    """Parse ``kafka://host:port[,host:port]/topic[,topic][?offset=earliest|N]``.

    Raises ConfigError.
    """
    parts = urlsplit(url)
    topics = tuple(filter(None, parts.path.strip("/").split(",")))
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    offset = query.pop("offset", "earliest")
    if (
        parts.scheme != "kafka"
        or not parts.netloc
        or query
        or not all(map(_TOPIC.fullmatch, topics))
    ):
        raise ConfigError("write the topic as kafka://host:port/topic?offset=earliest, or offset=N")
    if "@" in parts.netloc:
        raise ConfigError(
            "the URL of a topic cannot contain a user; set sasl.username in properties"
        )
    if offset != "earliest" and not (offset.isascii() and offset.isdigit()):
        raise ConfigError(f"offset {offset!r} is not valid; use earliest or a number")
    return TopicUrl(parts.netloc, topics, None if offset == "earliest" else int(offset))


def read_topics(
    place: TopicUrl,
    properties: Mapping[str, Any] | None = None,
    *,
    follow: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
) -> Iterator[Record | None]:
    """Yield the records of topics as they arrive, in order within each partition. Yield None if no
    record arrives for a moment.

    Reading stops at the offsets at which the topics end now; with ``follow``, it never stops.
    Raises KafkaUnavailable if the brokers cannot be reached within ``timeout`` seconds or a topic
    does not exist, and ConfigError.
    """
    with TopicReader(place.brokers, properties, timeout) as topics:
        spans = topics.spans(place.topics)
        first = 0 if place.offset is None else place.offset
        starts = {partition: max(span.start, first) for partition, span in spans.items()}
        if follow:
            topics.assign(starts)
            batches = iter(topics.consume, None)
        else:
            batches = topics.read_to(
                starts, {partition: span.stop for partition, span in spans.items()}
            )
        for records in batches:
            yield from records or (None,)


def topics_of(
    place: TopicUrl, properties: Mapping[str, Any] | None = None, timeout: float = DEFAULT_TIMEOUT
) -> set[str]:
    """Return the names of all topics. Raises KafkaUnavailable, ConfigError."""
    with TopicReader(place.brokers, properties, timeout) as topics:
        return topics.names()


Partition: TypeAlias = tuple[str, int]
"""A partition: topic and number."""


class TopicReader:
    """A reader of topics from given offsets. The reader joins no consumer group and stores no
    offset.

    ``timeout`` is the number of seconds that the brokers have for an answer. ``reached`` holds, for
    each partition that ``read_to`` reads, the next offset. All methods raise KafkaUnavailable. The
    constructor raises ConfigError for settings that librdkafka refuses.
    """

    def __init__(
        self,
        brokers: str,
        properties: Mapping[str, Any] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
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
        """Return the names of all topics."""
        with self._unavailable():
            return set(self._consumer.list_topics(timeout=self._timeout).topics)

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        """Return the partitions of topics, which must exist."""
        partitions: list[Partition] = []
        for topic in topics:
            with self._unavailable():
                known = self._consumer.list_topics(topic, timeout=self._timeout).topics.get(topic)
            if known is None or known.error is not None or not known.partitions:
                reason = (
                    "does not exist" if known is None or known.error is None else known.error.str()
                )
                raise KafkaUnavailable(f"topic {topic}: {reason}")
            partitions += [(topic, number) for number in sorted(known.partitions)]
        return partitions

    def spans(self, topics: Iterable[str]) -> dict[Partition, range]:
        """Return the range of offsets that the brokers have for each partition of topics, which
        must exist.
        """
        spans = {}
        for topic, number in self.partitions(topics):
            with self._unavailable():
                bounds = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=self._timeout
                )
            spans[topic, number] = range(*bounds)
        return spans

    def assign(self, starts: Mapping[Partition, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        # Offset 0 means the beginning of a topic, even if librdkafka has not queried the topic yet.
        with self._unavailable():
            self._consumer.assign(
                [
                    TopicPartition(*partition, OFFSET_BEGINNING if offset == 0 else offset)
                    for partition, offset in starts.items()
                ]
            )

    def consume(self) -> list[Record]:
        """Return the records that have arrived. The list is empty if no record arrives within a
        moment.
        """
        records: list[Record] = []
        message: Any
        with self._unavailable():
            for message in self._consumer.consume(_AT_ONCE, timeout=_MOMENT):
                if message.error() is not None:
                    raise KafkaException(message.error())
                records.append(
                    Record(
                        message.topic(),
                        message.key(),
                        message.value(),
                        message.partition(),
                        message.offset(),
                    )
                )
        return records

    def read_to(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> Iterator[list[Record]]:
        """Read partitions up to the offsets ``ends``, and yield batches of records. A batch is
        empty if no record arrives for a moment.
        """
        left = {partition for partition, start in starts.items() if start < ends[partition]}
        self.reached = {partition: starts[partition] for partition in left}
        self.assign(self.reached)
        idle = 0
        while left:
            records = self.consume()
            idle = 0 if records else idle + 1
            if idle * _MOMENT > self._timeout:
                raise KafkaUnavailable(
                    f"{self._brokers}: no records from {len(left)} partitions for "
                    f"{self._timeout:g} s; check the brokers"
                )
            yield records
            # Ends are seen by position, since offsets have gaps. Partitions at their end are read
            # further while others are not.
            with self._unavailable():
                positions = self._consumer.position(
                    [TopicPartition(*partition) for partition in self.reached]
                )
            for position in positions:
                partition = position.topic, position.partition
                self.reached[partition] = max(self.reached[partition], position.offset)
                if position.offset >= ends[partition]:
                    left.discard(partition)

    @contextmanager
    def _unavailable(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise KafkaUnavailable(
                f"{self._brokers}: {error.args[0].str()}; check host and port, and that the "
                "brokers run and accept connections from this machine"
            ) from None
