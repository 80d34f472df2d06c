"""Qlik messages in files and Kafka topics, for the converter's format ``qlik-messages``.

A file holds one record per line, ``{"topic": ..., "key": ..., "value": ...}``. The value is JSON,
or ``{"hex": "00FF"}`` for other bytes. The key is text, or hex in the same form. Topic and key may
be null. A line without ``value`` is read as a bare message. A topic is
``kafka://host:port/topic?offset=earliest`` or ``offset=N``. A target may leave the topic out: the
topic is then the option ``topic``, or each table has its own topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from json.encoder import encode_basestring
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventlog.changes.format import Report
from eventlog.core.clock import monotonic, sleep
from eventlog.core.options import GivenOptions
from eventlog.core.secrets import secret_variable
from eventlog.errors import ConfigError, FormatError, NotExpressible, shown, with_location
from eventlog.files.atomic import whole_file
from eventlog.files.text import Refuse, parsed_json, parsed_lines
from eventlog.model import Change, KafkaRecord
from eventlog.qlik.messages.envelope import (
    Message,
    RegistryError,
    UnknownSchema,
    open_registry,
    registry_of_writer,
)
from eventlog.qlik.messages.message_reader import MessageReader
from eventlog.qlik.messages.message_tables import ReadOptions, WriteOptions
from eventlog.qlik.messages.message_writer import MessageWriter
from eventlog.qlik.sequence import count_events

if TYPE_CHECKING:
    from eventlog.transport.kafka import TopicUrl

_REST: Final = 0.2
"""Seconds between two reads of the metadata topic while a message waits for its metadata."""

_FLUSH_INTERVAL: Final = 1.0

_CHANGE_REFUSED: Final = (NotExpressible, FormatError)
"""The errors that concern only one change. The refusal of a table, or a refusal by a registry,
stops the writer.
"""


def read(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    """Yield the changes of a file, of the files of a directory in the order of their names, or of a
    topic (``ReadOptions``).

    A line or message that cannot be read is skipped.
    """
    if source.startswith("kafka:"):
        yield from _read_topics(source, options, report)
        return
    # A file has no time, so waiting messages wait for its end.
    reader = open_reader(options, report, clock=lambda: 0.0)
    for place, message in _placed_lines(Path(source), report.skip):
        yield from _given(reader, partial(reader.changes, message), report, place)
    yield from _finished(reader, report)


def write(changes: Iterable[Change], target: str, options: WriteOptions, report: Report) -> None:
    """Write changes to a file, whole or not at all, or to Kafka (``WriteOptions``). A change that
    messages cannot hold is skipped.
    """
    if target.startswith("kafka:"):
        _write_topics(changes, target, options, report)
        return
    with whole_file(target) as file:
        for message in _messages(changes, options, report):
            file.write(line_of(message))


def open_reader(options: ReadOptions, report: Report, **more: Any) -> MessageReader:
    """Return a reader that uses the registry in the options.

    ``more`` holds further arguments of ``MessageReader``.
    """
    registry = (
        None
        if options.registry is None
        else open_registry(options.registry, options.registry_oauth)
    )
    return MessageReader(options, report, registry, **more)


def _given(
    reader: MessageReader,
    give: Callable[[], Iterator[Change]],
    report: Report,
    place: str | None = None,
) -> Iterator[Change]:
    """Yield the changes that the reader returns, and skip each message that cannot be read. Errors
    name ``place``, the place of the message. If messages wait, errors name no place, since an error
    may be about a waiting message.
    """
    if reader.is_waiting:
        place = None
    while True:
        try:
            yield from give()
        except RegistryError:
            raise
        except FormatError as error:
            report.skip(error if place is None else with_location(error, place))
            give, place = reader.overdue, None
        else:
            return


def _finished(reader: MessageReader, report: Report) -> Iterator[Change]:
    """Yield the remaining changes at the end of the input.

    Messages whose metadata have not arrived are skipped.
    """
    while reader.is_waiting:
        try:
            reader.finish()
        except UnknownSchema as error:
            report.skip(error)
        yield from _given(reader, reader.overdue, report)


def _messages(
    changes: Iterable[Change], options: WriteOptions, report: Report
) -> Iterator[KafkaRecord]:
    writer = MessageWriter(options, report, registry_of_writer(options))
    for change in _counted(changes, options):
        try:
            # The table's metadata may come before the change.
            messages = list(writer.messages(change))
        except _CHANGE_REFUSED as error:
            report.skip(error)
            continue
        yield from messages
        report.written += bool(messages)
    report.refuse_nothing()


def _counted(changes: Iterable[Change], options: WriteOptions) -> Iterator[Change]:
    """Add event counters to changes of change tables, which have no columns for them
    (formats/qlik.md 7).
    """
    rest = iter(changes)
    first = next(rest, None)
    if first is None:
        return rest
    everything = chain((first,), rest)
    is_row = "change_seq" in first.extras  # spec/change-model.md 2
    return count_events(everything, input_complete=options.input_complete) if is_row else everything


# --- files ----------------------------------------------------------------------------------------


def line_of(message: KafkaRecord) -> bytes:
    """Return a message as a line of a file, with the line break."""
    topic, key, value, _ = message
    assert value is not None
    name = "null" if topic is None else encode_basestring(topic)
    text = value if value[:1] == b"{" else _hex(value).encode()
    return b'{"topic":%b,"key":%b,"value":%b}\n' % (name.encode(), _key_json(key).encode(), text)


def _key_json(key: bytes | None) -> str:
    if key is None:
        return "null"
    try:
        return encode_basestring(key.decode())
    except UnicodeDecodeError:
        return _hex(key)


def _hex(data: bytes) -> str:
    return f'{{"hex":"{data.hex().upper()}"}}'


def read_lines(path: Path, refuse: Refuse) -> Iterator[Message]:
    """Return the records of a file, or of the files of a directory in the order of their names.

    A line that is not a record goes to ``refuse``. Raises FormatError for a file that cannot be
    read.
    """
    return (message for _, message in _placed_lines(path, refuse))


def _placed_lines(path: Path, refuse: Refuse) -> Iterator[tuple[str, Message]]:
    """Return the records with their places."""
    return parsed_lines(path, "file of messages", _message_of, refuse)


def _message_of(line: bytes) -> Message:
    record = parsed_json(line)
    if not isinstance(record, dict) or "value" not in record:
        return Message(None, None, record)
    topic, value = record.get("topic"), record["value"]
    if not isinstance(topic, str | None):
        raise FormatError(f"topic must be text, not {shown(topic)}")
    is_hex = isinstance(value, dict) and value.keys() == {"hex"}
    return Message(topic, _bytes(record.get("key")), _bytes(value) if is_hex else value)


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return value.encode()
        return bytes.fromhex(value["hex"])
    except (TypeError, KeyError, ValueError):
        raise FormatError(f"{value!r:.60} is neither text nor hex") from None


# --- Kafka ----------------------------------------------------------------------------------------


def _read_topics(url: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    from eventlog.transport import kafka

    place = kafka.parse_url(url)
    if not place.topics:
        raise ConfigError("the URL names no topic to read: write it as kafka://host:port/topic")
    properties = with_password(options.properties)
    reader = open_reader(options, report)
    described_in = metadata_place(place, options, properties)
    # The metadata that exist are read first; later ones are read along with the messages.
    if described_in is not None:
        yield from _given_by(reader, kafka.read_topics(described_in, properties), report)
        if options.follow:
            place = place._replace(topics=(*place.topics, *described_in.topics))
    yield from _given_by(
        reader, kafka.read_topics(place, properties, follow=options.follow), report
    )
    while described_in is not None and reader.is_waiting:
        yield from _given_by(
            reader, chain(kafka.read_topics(described_in, properties), (None,)), report
        )
        sleep(_REST)
    yield from _finished(reader, report)


def metadata_place(
    place: TopicUrl, options: ReadOptions, properties: GivenOptions
) -> TopicUrl | None:
    """Return the topic of the metadata. Return None if ``place`` includes this topic, or if it does
    not exist.
    """
    from eventlog.transport import kafka

    about = options.metadata_topic
    if about is None or about in place.topics or about not in kafka.topics_of(place, properties):
        return None
    return kafka.TopicUrl(place.brokers, (about,), None)


def _given_by(reader: MessageReader, records: Iterable[Any], report: Report) -> Iterator[Change]:
    """Yield the changes of records. None in place of a record means that no record has arrived for
    a while. The reader then reports the messages that have waited too long for their metadata.
    """
    for record in records:
        if record is None:
            yield from _given(reader, reader.overdue, report)
            continue
        place = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
        message = Message(record.topic, record.key, record.value)
        yield from _given(reader, partial(reader.changes, message), report, place)


def _write_topics(
    changes: Iterable[Change], url: str, options: WriteOptions, report: Report
) -> None:
    from eventlog.transport import kafka

    place = kafka.parse_url(url)
    if len(place.topics) > 1:
        raise ConfigError(
            "the URL may name only one topic to write to; without a topic in the URL, each table "
            "has one"
        )
    if place.topics:
        options = replace(options, topic=place.topics[0])
    send(_messages(changes, options, report), place.brokers, options.properties)


def send(messages: Iterable[KafkaRecord], brokers: str, properties: GivenOptions) -> None:
    """Send messages to their topics.

    Raises FormatError for a message that Kafka refuses, and KafkaUnavailable.
    """
    from eventlog.transport import kafka

    transmitter = kafka.Transmitter(brokers, with_password(properties))

    def flush() -> float:
        for reason in transmitter.flush().values():
            raise FormatError(f"Kafka refuses a message: {reason}")
        return monotonic()

    try:
        flushed = monotonic()
        for topic, key, value, _ in messages:
            assert topic is not None
            try:
                transmitter.send(topic, key, value)
            except kafka.RecordRefused as refused:
                raise FormatError(f"Kafka refuses a message for {topic}: {refused}") from None
            if monotonic() - flushed > _FLUSH_INTERVAL:
                flushed = flush()
        flush()
    finally:
        transmitter.close()


def with_password(properties: GivenOptions) -> GivenOptions:
    """Return the properties, to which sasl.password is added from EVENTLOG_KAFKA_PASSWORD or
    EVENTLOG_KAFKA_PASSWORD_FILE.
    """
    password = secret_variable("EVENTLOG_KAFKA_PASSWORD")
    return {"sasl.password": password, **properties} if password else properties
