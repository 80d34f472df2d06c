"""Topics of Qlik messages as a source (spec/qlik.md 5).

The token is the next offset of each partition. Messages are taken partition by partition as they come: changes of one
object keep their order where they lie in one partition, as with their primary key for the key of the records.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eventlog.transport import kafka  # isort: skip - says what to install where confluent-kafka is missing

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, EventlogError, FormatError
from eventlog.publisher.stream.source import Backlog, BadToken, Mark, Read, SourceAway, SourceLost, Step, Unread
from eventlog.qlik.envelope import MAGIC, METADATA, Message, open_avro, open_text
from eventlog.qlik.errors import RegistryError, UnknownSchema
from eventlog.qlik.message_options import ReadOptions
from eventlog.qlik.message_reader import MessageReader
from eventlog.qlik.registry import open_registry

_log = logging.getLogger("eventlog.kafka")
_publisher_log = logging.getLogger("eventlog.publisher")

NAME: Final = "qlik-messages"

_AT_ONCE: Final = 500
_PATIENCE: Final = 0.1
"""Seconds that messages are waited for until what came is sent."""

_NEW_PARTITIONS: Final = 60.0
"""Seconds between looks for partitions that were not there when the topics were opened."""

_NEW_METADATA: Final = 1.0
"""The same while a message waits for its metadata, whose topic may be new."""

_MOST_HELD: Final = 1000
"""Messages of a topic without a schema, and none with one: so many are no accident, but wrong options."""

Partition = tuple[str, int]
"""Topic and number."""


class Place(NamedTuple):
    """Where a message lies."""

    partition: Partition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition[0]}:{self.partition[1]}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of some brokers (``host:port``, comma-separated). ``properties``: settings of librdkafka, secrets among
    them; ``timeout``: seconds that the brokers have for an answer.
    """

    brokers: str
    topics: Sequence[str]
    options: ReadOptions
    properties: Mapping[str, Any]
    report: Report
    timeout: float = kafka.DEFAULT_TIMEOUT
    name: str = NAME

    def steps(self, token: Any, *, once: bool) -> Generator[Step, None, None]:
        """The steps of the topics; without a token from the oldest message that is kept.

        Raises SourceAway, SourceLost for messages behind the token that are not kept any more, UnknownSchema,
        ConfigError, BadToken.
        """
        offsets = self._offsets(token)
        try:
            with closing(_consumer(self.brokers, self.properties)) as consumer:
                yield from self._consume(consumer, offsets, once)
        except KafkaException as error:
            raise SourceAway(f"{self.brokers}: {error.args[0].str()}") from None

    def backlog(self, token: Any) -> Backlog:
        """The messages of the topics behind ``token``. Raises as ``steps``."""
        offsets = self._offsets(token)
        try:
            with closing(_consumer(self.brokers, self.properties)) as consumer:
                spans = self._spans(consumer).items()
        except KafkaException as error:
            raise SourceAway(f"{self.brokers}: {error.args[0].str()}") from None
        own = [(partition, span) for partition, span in spans if partition[0] in self.topics]
        return Backlog(sum(span.high - _next_offset(partition, span, offsets) for partition, span in own), "messages")

    def _offsets(self, token: Any) -> Mapping[Partition, int]:
        """The next offset of each partition that the token knows. Raises BadToken."""
        try:
            offsets = {
                (topic, int(number)): int(offset)
                for topic, partitions in (token or {}).items()
                for number, offset in partitions.items()
            }
        except (AttributeError, ValueError, TypeError):
            raise BadToken(f"{token!r} is no position of topics: was it changed by hand?") from None
        if offsets and not {topic for topic, _ in offsets} & set(self.topics):
            raise BadToken(
                f"the position is of {', '.join(token)}, not of {', '.join(self.topics)}: name another position"
            )
        return offsets

    def _consume(self, consumer: Any, token: Mapping[Partition, int], once: bool) -> Iterator[Step]:
        spans = self._spans(consumer)
        ends = {partition: span.high for partition, span in spans.items() if partition[0] in self.topics}
        start = {partition: _next_offset(partition, spans[partition], token) for partition in ends}
        registry = None if self.options.registry is None else open_registry(self.options.registry)
        unpacked = _Unpacked(MessageReader(self.options, self.report, registry), start)
        # What was described in the topics of the data themselves has to be read again too.
        is_inline = self.options.metadata_topic in self.topics
        places = {partition: span.low if is_inline else start.get(partition, span.low)
                  for partition, span in spans.items()}  # fmt: skip
        # All that is there of the metadata first; what comes later is read along.
        yield from self._read_to(consumer, unpacked, places, {p: spans[p].high for p in spans if p not in ends})
        if once:
            yield from self._read_to(consumer, unpacked, places, ends)
        _assign(consumer, places)
        looked = time.monotonic()
        while not once or unpacked.is_waiting:  # until its metadata come, or it has waited too long
            yield from _taken(consumer, unpacked)
            patience = _NEW_METADATA if unpacked.is_waiting else _NEW_PARTITIONS
            if not once and time.monotonic() > looked + patience:
                looked = time.monotonic()
                if any(partition not in places for partition in self._partitions(consumer)):
                    raise SourceAway(f"{', '.join(self.topics)}: there are new partitions; opening the topics again")
        yield Mark(unpacked.token)
        unpacked.finish()

    def _read_to(
        self, consumer: Any, unpacked: _Unpacked, places: dict[Partition, int], ends: Mapping[Partition, int]
    ) -> Iterator[Step]:
        """Read these partitions to where they end, and move their places there."""
        read = {partition: places[partition] for partition, end in ends.items() if places[partition] < end}
        _assign(consumer, read)
        left, empty = set(read), 0
        while left:
            for step in _taken(consumer, unpacked):
                empty = empty + 1 if isinstance(step, Mark) and step.is_idle else 0
                yield step
            if empty * _PATIENCE > self.timeout:
                raise SourceAway(f"{self.brokers}: nothing comes within {self.timeout:g} s")
            # By position, since offsets have gaps. Those at their end go on too while others are not.
            for reached in consumer.position([TopicPartition(*partition) for partition in read]):
                partition = reached.topic, reached.partition
                places[partition] = max(places[partition], reached.offset)
                if reached.offset >= ends[partition]:
                    left.discard(partition)

    def _spans(self, consumer: Any) -> dict[Partition, _Span]:
        """The partitions with their first offset and the one behind their last."""
        return {
            partition: _Span(*consumer.get_watermark_offsets(TopicPartition(*partition), timeout=self.timeout))
            for partition in self._partitions(consumer)
        }

    def _partitions(self, consumer: Any) -> list[Partition]:
        """The partitions of the topics, and of that of the metadata if it is there."""
        about = self.options.metadata_topic
        there = consumer.list_topics(timeout=self.timeout).topics if about is not None else {}
        extra = [about] if about is not None and about in there and about not in self.topics else []
        found = []
        for topic in [*self.topics, *extra]:
            known = consumer.list_topics(topic, timeout=self.timeout).topics.get(topic)
            if known is None or known.error is not None or not known.partitions:
                reason = "is not there" if known is None or known.error is None else known.error.str()
                raise SourceAway(f"topic {topic}: {reason}")
            found += [(topic, number) for number in sorted(known.partitions)]
        return found


class _Span(NamedTuple):
    """The first offset of a partition and the one behind its last."""

    low: int
    high: int


def _next_offset(partition: Partition, span: _Span, token: Mapping[Partition, int]) -> int:
    """Where to go on in a partition. Raises SourceLost if that is not there any more."""
    topic, number = partition
    offset = token.get(partition, span.low)
    if not span.low <= offset <= span.high:
        raise SourceLost(
            f"the position in {topic}, partition {number}, is {offset}, and the brokers have the messages from "
            f"{span.low} to {span.high}: some were removed before they were read, or the topic was made anew"
        )
    return offset


def _taken(consumer: Any, unpacked: _Unpacked) -> Iterator[Step]:
    """The steps of what has come, and a mark, which is idle if nothing has."""
    messages = consumer.consume(_AT_ONCE, timeout=_PATIENCE)
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
        yield from unpacked.take(message)
    if not messages:
        yield from unpacked.overdue()
    yield Mark(unpacked.token, is_idle=not messages)


class _Unpacked:
    """The steps of messages, and how far they go.

    ``start``: offset of each partition of data from which on messages count; what lies before is read for the tables
    that it describes. A message that waits for its metadata holds back those behind it, and the token with them.

    A message that cannot be read is passed over. One whose schema is not known may be of a topic that these options
    cannot read at all, so it is held, and the token before it, until another message of its topic has been read.
    """

    def __init__(self, reader: MessageReader, start: Mapping[Partition, int]) -> None:
        self.reader = reader
        self._start = start
        self._taken = dict(start)
        self._delivered = dict(start)
        self._readable: set[str] = set()
        self._held: dict[str, list[tuple[Place, Unread]]] = {}
        self._waiting: Place | None = None
        self._behind: deque[Any] = deque()

    @property
    def is_waiting(self) -> bool:
        """Whether a message waits for its metadata."""
        return self._waiting is not None

    @property
    def token(self) -> dict[str, dict[str, int]]:
        """The next offsets, by topic and partition, of what need not be read again."""
        if not self.is_waiting:
            self._delivered.update(self._taken)
        token: dict[str, dict[str, int]] = {}
        for (topic, number), offset in sorted(self._delivered.items()):
            held = [place.offset for place, _ in self._held.get(topic, ()) if place.partition[1] == number]
            token.setdefault(topic, {})[str(number)] = min([offset, *held])
        return token

    def take(self, message: Any) -> Iterator[Step]:
        """The steps that can be made now that this message is there. Raises UnknownSchema where too many are held,
        SourceAway.
        """
        place = _place(message)
        is_old = place.offset < self._start.get(place.partition, 0)
        if is_old and not _describes(message.value()):
            return
        if self.is_waiting and not _describes(message.value()):
            self._behind.append(message)
            return
        yield from self._fed(message, place)
        yield from self._fed_behind()

    def _fed_behind(self) -> Iterator[Step]:
        while self._behind and not self.is_waiting:
            message = self._behind.popleft()
            yield from self._fed(message, _place(message))

    def overdue(self) -> Iterator[Step]:
        """A message that has waited too long is passed over, and those behind it are read. Raises as ``take``."""
        place = self._waiting
        try:
            for _ in self.reader.overdue():
                raise AssertionError("only a description releases what waits for it")
        except UnknownSchema as error:
            assert place is not None
            self._waiting = None
            yield from self._without_schema(place, error)
            yield from self._fed_behind()

    def finish(self) -> None:
        """No more messages come. Raises UnknownSchema for a topic of which nothing could be read."""
        for topic in self._held:
            raise self._unreadable(topic)

    def _without_schema(self, place: Place, error: UnknownSchema) -> Iterator[Unread]:
        """Pass a message over, as soon as others of its topic can be read. Raises UnknownSchema."""
        topic, unread = place.partition[0], _unread(place, error.code, str(error))
        if topic in self._readable or place.partition not in self._taken:
            yield unread
            return
        held = self._held.setdefault(topic, [])
        held.append((place, unread))
        if len(held) == 1:
            _publisher_log.warning("%s; it is passed over when another message of %s can be read", unread[2], topic)
        if len(held) > _MOST_HELD:
            raise self._unreadable(topic)

    def _unreadable(self, topic: str) -> UnknownSchema:
        held = self._held[topic]
        many = "the message that is there" if len(held) == 1 else f"{len(held)} messages"
        return UnknownSchema(
            f"{topic}: no schema is known of {many}, and the position stays before: {held[0][1].message}"
        )

    def _is_readable(self, topic: str) -> Iterator[Unread]:
        """A message of the topic has been read: what is held of it is passed over."""
        if topic not in self._readable:
            self._readable.add(topic)
            for _, unread in self._held.pop(topic, ()):
                yield unread

    def _fed(self, message: Any, place: Place) -> Iterator[Step]:
        held = self._waiting or place
        try:
            for change in self.reader.changes(Message(message.topic(), message.key(), message.value())):
                yield from self._is_readable(held.partition[0])
                yield Read(change, change.position or str(held))
        except RegistryError as error:
            raise SourceAway(str(error)) from error
        except (EventlogError, MemoryError) as error:
            if not isinstance(error, FormatError):
                raise
            # What waited is released before it is read: if it still waits, its description is what is wrong.
            fault = place if self.reader.is_waiting else held
            if isinstance(error, UnknownSchema):
                yield from self._without_schema(fault, error)
            else:
                yield _unread(fault, error.code, str(error))
        except Exception as error:
            # Whatever a message does to its reader, it would do it again at each start.
            fault = place if self.reader.is_waiting else held
            yield _unread(fault, FormatError.code, f"{type(error).__name__}: {error}")
        self._waiting = held if self.reader.is_waiting else None
        if place.partition in self._taken:
            self._taken[place.partition] = max(self._taken[place.partition], place.offset + 1)


def _unread(place: Place, code: str, why: str) -> Unread:
    return Unread(str(place), code, f"message {place}: {why}")


def _place(message: Any) -> Place:
    return Place((message.topic(), message.partition()), message.offset())


def _describes(value: bytes | None) -> bool:
    """Whether a message is one of metadata; of one that cannot be read, no."""
    if not value or value[:1] == b"\0":
        return False
    try:
        envelope = open_avro(value) if value[: len(MAGIC)] == MAGIC.encode() else open_text(value)
    except Exception:  # which is said where it is read
        return False
    message = envelope.message
    return envelope.type == METADATA or (
        envelope.type is None and isinstance(message, Mapping) and "tableStructure" in message
    )


def _consumer(brokers: str, properties: Mapping[str, Any]) -> Any:
    """A consumer that joins no group and keeps no offset. Raises ConfigError."""
    ours = {
        "group.id": "eventlog",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }
    try:
        return Consumer(kafka.settings(brokers, properties, **ours), logger=_log)
    except (KafkaException, ValueError, TypeError):
        raise ConfigError("the settings of Kafka in [source] are refused; see source.properties") from None


def _assign(consumer: Any, starts: Mapping[Partition, int]) -> None:
    # Offset 0 is where a topic begins, also one that librdkafka has not asked for yet.
    consumer.assign(
        [
            TopicPartition(*partition, OFFSET_BEGINNING if offset == 0 else offset)
            for partition, offset in starts.items()
        ]
    )
