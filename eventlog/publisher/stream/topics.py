"""Topics of Qlik messages as a source (formats/qlik.md 5).

The token is the next offset of each partition. Messages are read partition by partition as they
arrive. Changes of one object keep their order if they are in one partition, for example if the
primary key is the key of the records.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from eventlog.changes.format import Report
from eventlog.core.clock import monotonic
from eventlog.errors import EventlogError, FormatError, number_of
from eventlog.publisher.stream import (
    Backlog,
    BadToken,
    Described,
    Failure,
    Mark,
    Read,
    SourceLost,
    SourceStep,
    SourceUnavailable,
)
from eventlog.qlik.columns import catalog_table
from eventlog.qlik.messages.envelope import (
    MAGIC,
    METADATA,
    Message,
    RegistryError,
    UnknownSchema,
    open_avro,
    open_registry,
    open_text,
)
from eventlog.qlik.messages.message_reader import MessageReader
from eventlog.qlik.messages.message_tables import MessageTable, ReadOptions
from eventlog.transport import kafka

_log = logging.getLogger("eventlog.publisher")

_NEW_PARTITIONS: Final = 60.0
"""The seconds between checks for partitions that were created after the topics were opened."""

_NEW_METADATA: Final = 1.0
"""The seconds between these checks while a message waits for its metadata: the topic of the
metadata may be new.
"""

MAX_UNDECODED: Final = 1000
"""The maximum number of messages of a topic that are kept while no message of the topic has a known
schema. If there are more messages, the options must be wrong.
"""


Partition = kafka.Partition


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of some brokers (``host:port``, comma-separated). ``properties`` are settings of
    librdkafka, secrets among them; ``timeout`` is the seconds in which the brokers must answer.
    """

    brokers: str
    topics: Sequence[str]
    options: ReadOptions
    properties: Mapping[str, Any]
    report: Report
    timeout: float = kafka.DEFAULT_TIMEOUT

    def steps(self, token: Any, *, once: bool) -> Generator[SourceStep, None, None]:
        """Yield the steps of the topics; without a token from the oldest message on.

        Raises SourceUnavailable, SourceLost for removed messages after the token, UnknownSchema,
        ConfigError, BadToken.
        """
        offsets = self._offsets(token)
        with self._connected() as reader:
            yield from self._consume(reader, offsets, once)

    def backlog(self, token: Any) -> Backlog:
        """Return the number of messages after ``token`` in the topics.

        Raises the errors of ``steps``.
        """
        offsets = self._offsets(token)
        with self._connected() as reader:
            spans = reader.spans(self.topics).items()
        return Backlog(
            sum(span.stop - _next_offset(partition, span, offsets) for partition, span in spans),
            "messages",
        )

    @contextmanager
    def _connected(self) -> Iterator[kafka.TopicReader]:
        try:
            with kafka.TopicReader(self.brokers, self.properties, self.timeout) as reader:
                yield reader
        except kafka.KafkaUnavailable as error:
            raise SourceUnavailable(str(error)) from None

    def _offsets(self, token: Any) -> Mapping[Partition, int]:
        """Return the next offset of each partition in the token. Raises BadToken."""
        try:
            offsets = {
                (topic, int(number)): int(offset)
                for topic, partitions in (token or {}).items()
                for number, offset in partitions.items()
            }
        except (AttributeError, ValueError, TypeError):
            raise BadToken(
                f"{token!r} is not a position of topics; if it was changed by hand, restore it"
            ) from None
        if offsets and not {topic for topic, _ in offsets} & set(self.topics):
            raise BadToken(
                f"the position belongs to {', '.join(token)}, not to {', '.join(self.topics)}; "
                "name another position"
            )
        return offsets

    def _consume(
        self, topics: kafka.TopicReader, token: Mapping[Partition, int], once: bool
    ) -> Iterator[SourceStep]:
        spans = topics.spans(self._all_topics(topics))
        ends = {
            partition: span.stop for partition, span in spans.items() if partition[0] in self.topics
        }
        start = {partition: _next_offset(partition, spans[partition], token) for partition in ends}
        registry = (
            None
            if self.options.registry is None
            else open_registry(self.options.registry, self.options.registry_oauth)
        )
        unpacked = _MessageSteps(MessageReader(self.options, self.report, registry), start)
        # Descriptions of tables in the data topics themselves must be read again, too.
        is_inline = self.options.metadata_topic in self.topics
        places = {partition: span.start if is_inline else start.get(partition, span.start)
                  for partition, span in spans.items()}  # fmt: skip
        # All present metadata are read first; later metadata are read together with the data.
        for several in ({p: spans[p].stop for p in spans if p not in ends}, ends if once else {}):
            for records in topics.read_to(
                {partition: places[partition] for partition in several}, several
            ):
                yield from _steps_of(records, unpacked)
            places |= topics.reached
        topics.assign(places)
        yield from self._follow(topics, unpacked, places, once)
        yield Mark(unpacked.token)
        unpacked.finish()

    def _follow(
        self,
        topics: kafka.TopicReader,
        unpacked: _MessageSteps,
        places: Collection[Partition],
        once: bool,
    ) -> Iterator[SourceStep]:
        """Yield the steps of messages as they come; with ``once`` until no message waits for its
        metadata. Raises SourceUnavailable if there are other partitions than ``places``.
        """
        looked = monotonic()
        while not once or unpacked.is_waiting:  # it arrives, or the message has waited too long
            yield from _steps_of(topics.consume(), unpacked)
            patience = _NEW_METADATA if unpacked.is_waiting else _NEW_PARTITIONS
            if not once and monotonic() > looked + patience:
                looked = monotonic()
                now = topics.partitions(self._all_topics(topics))
                if any(partition not in places for partition in now):
                    raise SourceUnavailable(
                        f"{', '.join(self.topics)}: there are new partitions; "
                        "opening the topics again"
                    )

    def _all_topics(self, topics: kafka.TopicReader) -> list[str]:
        """Return the topics, and the topic of the metadata if it exists."""
        about = self.options.metadata_topic
        is_other = about is not None and about not in self.topics and about in topics.names()
        return [*self.topics, *([about] if is_other and about is not None else [])]


def _next_offset(partition: Partition, span: range, token: Mapping[Partition, int]) -> int:
    """Return the next offset of a partition. Raises SourceLost if the message was removed."""
    topic, number = partition
    offset = token.get(partition, span.start)
    if not span.start <= offset <= span.stop:
        raise SourceLost(
            f"the position in {topic}, partition {number}, is {offset}, and the brokers have the "
            f"messages from {span.start} to {span.stop}: some were removed before they were read, "
            "or the topic was created again. Load the tables again, then begin with another "
            "position"
        )
    return offset


def _steps_of(records: Sequence[kafka.Record], unpacked: _MessageSteps) -> Iterator[SourceStep]:
    """Yield the steps of received records, and a mark. Without records the mark is idle."""
    for record in records:
        yield from unpacked.take(record)
    if not records:
        yield from unpacked.overdue()
    yield Mark(unpacked.token, is_idle=not records)


class _MessageSteps:
    """Makes steps of messages, and records the progress.

    ``start`` has the offset of each data partition from which on messages count; earlier messages
    are read only for the tables that they describe. A message that waits for its metadata delays
    the later messages and the token.

    A message that cannot be read is skipped. A message with an unknown schema may belong to a topic
    that these options cannot read at all. So the message is kept, and the token stays before it,
    until another message of its topic was read.
    """

    def __init__(self, reader: MessageReader, start: Mapping[Partition, int]) -> None:
        self.reader = reader
        self._start = start
        self._next_offsets = dict(start)
        self._delivered = dict(start)
        self._readable: set[str] = set()
        self._undecoded: dict[str, list[tuple[Partition, int, Failure]]] = {}
        self._waiting: kafka.Record | None = None
        self._later: deque[kafka.Record] = deque()
        self._described: dict[tuple[str | None, str], MessageTable] = {}

    @property
    def is_waiting(self) -> bool:
        """True while a message waits for its metadata."""
        return self._waiting is not None

    @property
    def token(self) -> dict[str, dict[str, int]]:
        """The next offsets, by topic and partition; no earlier message needs to be read again."""
        if not self.is_waiting:
            self._delivered.update(self._next_offsets)
        token: dict[str, dict[str, int]] = {}
        for (topic, number), offset in sorted(self._delivered.items()):
            held = [
                held_at
                for partition, held_at, _ in self._undecoded.get(topic, ())
                if partition == (topic, number)
            ]
            token.setdefault(topic, {})[str(number)] = min([offset, *held])
        return token

    def take(self, message: kafka.Record) -> Iterator[SourceStep]:
        """Yield the steps that this message makes possible.

        Raises UnknownSchema if too many messages are held, and SourceUnavailable.
        """
        is_old = message.offset < self._start.get(_partition_of(message), 0)
        if is_old and not _describes(message.value):
            return
        if self.is_waiting and not _describes(message.value):
            self._later.append(message)
            return
        yield from self._read(message)
        yield from self._read_later()

    def _read_later(self) -> Iterator[SourceStep]:
        while self._later and not self.is_waiting:
            yield from self._read(self._later.popleft())

    def overdue(self) -> Iterator[SourceStep]:
        """Skip a message that has waited too long for its metadata, and read the messages after it.

        Raises the errors of ``take``.
        """
        waiting = self._waiting
        try:
            for _ in self.reader.overdue():
                raise AssertionError("only metadata may release a waiting message")
        except UnknownSchema as error:
            assert waiting is not None
            self._waiting = None
            yield from self._keep_or_skip(waiting, error)
            yield from self._read_later()

    def finish(self) -> None:
        """End the messages. Raises UnknownSchema for a topic without a readable message."""
        for topic in self._undecoded:
            raise self._unreadable(topic)

    def _keep_or_skip(self, message: kafka.Record, error: UnknownSchema) -> Iterator[Failure]:
        """Keep a message until another message of its topic can be read, then skip it.

        Raises UnknownSchema.
        """
        topic = message.topic
        partition = _partition_of(message)
        unread = _unread(message, error.code, str(error))
        if topic in self._readable or partition not in self._next_offsets:
            yield unread
            return
        held = self._undecoded.setdefault(topic, [])
        held.append((partition, message.offset, unread))
        if len(held) == 1:
            _log.warning(
                "%s; it is skipped when another message of %s can be read", unread.message, topic
            )
        if len(held) > MAX_UNDECODED:
            raise self._unreadable(topic)

    def _unreadable(self, topic: str) -> UnknownSchema:
        held = self._undecoded[topic]
        many = "its only message" if len(held) == 1 else number_of(len(held), "message")
        return UnknownSchema(
            f"{topic}: the schema of {many} is unknown, so the position does not move past it: "
            f"{held[0][-1].message}"
        )

    def _release_undecoded(self, topic: str) -> Iterator[Failure]:
        """Skip the held messages of a topic, now that one of its messages was read."""
        if topic not in self._readable:
            self._readable.add(topic)
            for *_, unread in self._undecoded.pop(topic, ()):
                yield unread

    def _read(self, message: kafka.Record) -> Iterator[SourceStep]:
        held = self._waiting or message
        try:
            for change in self.reader.changes(Message(message.topic, message.key, message.value)):
                yield from self._release_undecoded(held.topic)
                described, named = self.reader.described, (change.schema, change.table)
                if described is not None and self._described.get(named) is not described:
                    self._described[named] = described
                    yield Described(change.schema, catalog_table(change.table, described.columns))
                yield Read(change, change.position or _position_of(held))
        except RegistryError as error:
            raise SourceUnavailable(str(error)) from error
        except (EventlogError, MemoryError) as error:
            if not isinstance(error, FormatError):
                raise
            # A waiting message is released before it is read. If it still has to wait, its
            # description is wrong.
            fault = message if self.reader.is_waiting else held
            if isinstance(error, UnknownSchema):
                yield from self._keep_or_skip(fault, error)
            else:
                yield _unread(fault, error.code, str(error))
        except Exception as error:
            # A message that breaks its reader would break it again at each start.
            fault = message if self.reader.is_waiting else held
            yield _unread(fault, FormatError.code, f"{type(error).__name__}: {error}")
        self._waiting = held if self.reader.is_waiting else None
        if (partition := _partition_of(message)) in self._next_offsets:
            self._next_offsets[partition] = max(self._next_offsets[partition], message.offset + 1)


def _unread(message: kafka.Record, code: str, why: str) -> Failure:
    position = _position_of(message)
    return Failure(position, code, f"message {position}: {why}")


def _position_of(message: kafka.Record) -> str:
    """Return the name of a message, for people, and for events that have no position."""
    return f"{message.topic}:{message.partition}:{message.offset}"


def _partition_of(message: kafka.Record) -> Partition:
    return message.topic, message.partition


def _describes(value: bytes | None) -> bool:
    """Return True if a message has metadata, False if it has none or cannot be read."""
    if not value or value[:1] == b"\0":
        return False
    try:
        envelope = open_avro(value) if value[: len(MAGIC)] == MAGIC.encode() else open_text(value)
    except Exception:  # the reader reports it
        return False
    message = envelope.message
    return envelope.type == METADATA or (
        envelope.type is None and isinstance(message, Mapping) and "tableStructure" in message
    )
