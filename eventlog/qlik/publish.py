"""A publisher's events in the format ``qlik-messages``: records that are numbered by flight (spec/qlik.md 5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from eventlog.changes.events import outgoing_reader
from eventlog.changes.publishing import EventWriter, FlightState, Need, Publishing, of_first_row, time_reader
from eventlog.core.catalog import Catalog, ObjectClass, row_of
from eventlog.core.events import Outgoing
from eventlog.core.options import same_fields
from eventlog.core.values import ValueOptions
from eventlog.errors import FormatError, ReceiverAway, RowError
from eventlog.model import Change, KafkaRecord, Level, Origins, Verdict
from eventlog.model import full_name as table_name
from eventlog.qlik.columns import QlikColumn, columns_of
from eventlog.qlik.envelope import RegistryError, registry_of_writer
from eventlog.qlik.message_tables import PublishOptions, WriteOptions
from eventlog.qlik.message_template import UNKNOWN_TIMESTAMP, timestamp_of
from eventlog.qlik.message_writer import MessageWriter, WriteOutgoing
from eventlog.qlik.sequence import first_sequence, resume, sequences


def write_options(options: PublishOptions, publishing: Publishing) -> WriteOptions:
    """Return the options of the writer of messages. Those of a backlog's request are more than a publisher's."""
    return WriteOptions(**{"topic": publishing.topic, **same_fields(options, WriteOptions)})


class QlikWriter(EventWriter[tuple[KafkaRecord, ...]]):
    """Events to messages. A piece is the records of an event.

    The columns are those of the classes; where they change, the version of the table is raised.
    """

    needs = frozenset({Need.TIMES, Need.NUMBERS})
    in_records = True
    joins_new_key = True

    def __init__(
        self,
        options: PublishOptions,
        publishing: Publishing,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._values, self._utc_now = publishing.values, utc_now
        chosen = write_options(options, publishing)
        self._writer = MessageWriter(chosen, registry=registry_of_writer(chosen), utc_now=utc_now)
        self._messages: EventMessages | None = None
        self._described: dict[str, ObjectClass] = {}

    def piece_of(
        self, change: Change, event_id: str, object_class: ObjectClass | None
    ) -> tuple[KafkaRecord, ...] | None:
        name = table_name(change.schema, change.table)
        if object_class is not None and self._described.get(name) is not object_class:
            self._described[name] = object_class
            self._writer.columns = {**self._writer.columns, name: class_columns(object_class)}
        try:
            return self._writer.messages(change) or None
        except RegistryError as error:
            raise ReceiverAway(str(error)) from error

    @property
    def numbered(self) -> str:
        prefix, number = self._writer.state
        return f"{prefix}{number:019}" if prefix else ""

    def resume(self, numbered: str) -> None:
        self._writer.state = resume(numbered or None)

    def shown(self, piece: tuple[KafkaRecord, ...]) -> str:
        """Return the records as lines."""
        from eventlog.qlik.message_format import line_of  # brings the reader too, which nothing else needs

        return "".join(line_of(record).decode() for record in piece)

    def first(self, flight: int, before: str, raised: datetime | None) -> str:
        now = self._utc_now()
        # What was sent before the raise has earlier times, also where the clock has gone back since.
        return first_sequence(flight, before, now if raised is None else max(now, raised))

    def forget(self) -> None:
        """Metadata are published again."""
        self._writer.announce_again()

    def write(
        self, catalog: Catalog, flight: FlightState, events: Sequence[Outgoing]
    ) -> list[tuple[KafkaRecord, ...] | Verdict]:
        return self._records(catalog, flight.first, events, flight.origins)

    def records(self, key: bytes, piece: tuple[KafkaRecord, ...]) -> tuple[KafkaRecord, ...]:
        return piece

    def preview(self, catalog: Catalog, flight: FlightState, events: Sequence[Outgoing]) -> str:
        """Return the records as lines; the sequences are those that will be sent if the flight is recorded."""
        from eventlog.qlik.message_format import line_of  # brings the reader too, which nothing else needs

        lines = []
        first = flight.first
        if not first:
            first = first_sequence(0, "", self._utc_now())
            events = [event._replace(place=place) for place, event in enumerate(events, 1)]
        for records in self._records(catalog, first, events, flight.origins):
            if isinstance(records, Verdict):
                lines.append(json.dumps({"error": records.message}, ensure_ascii=False) + "\n")
            else:
                lines += [line_of(record).decode() for record in records]
        return "".join(lines)

    def _records(
        self, catalog: Catalog, first: str, events: Sequence[Outgoing], origins: Origins
    ) -> list[tuple[KafkaRecord, ...] | Verdict]:
        """The records of each event, or the verdict, error, of one that the format cannot hold."""
        if self._messages is None or catalog is not self._messages.catalog:
            self._messages = EventMessages(self._writer, catalog, self._values)
        write, timestamp_of, sequence_of = self._messages.write, self._messages.timestamp_of, sequences(first)
        event_times = origins.event_times
        records: list[tuple[KafkaRecord, ...] | Verdict] = []
        for event in events:
            try:
                records.append(write(event, timestamp_of(of_first_row(event, event_times)), sequence_of(event.place)))
            except RegistryError as error:
                raise ReceiverAway(str(error)) from error
            except (FormatError, RowError) as error:
                records.append(Verdict(Level.ERROR, str(error)))
        return records


class EventMessages:
    """Events to messages: straight from their steps where it can be, else by way of Change, which says what is wrong.

    ``values``: what the events were written with. The columns are those of the catalog's classes.
    """

    def __init__(self, writer: MessageWriter, catalog: Catalog, values: ValueOptions) -> None:
        writer.columns = {full_name(catalog, cls): class_columns(cls) for cls in catalog.classes}
        self.catalog = catalog
        self._writer, self._values, self._generation = writer, values, writer.generation
        self._read_change, self.timestamp_of = outgoing_reader(catalog, values), timestamp_reader(values.time_zone)
        self._direct: dict[ObjectClass, WriteOutgoing] = {}

    def write(self, event: Outgoing, timestamp: str, sequence: str | None = None) -> tuple[KafkaRecord, ...]:
        """The messages of an event whose first row has this ``timestamp``. ``sequence`` and errors as of
        ``MessageWriter.messages``.
        """
        assert event.object_id is not None
        writer, (object_class, _) = self._writer, event.object_id
        if self._generation != writer.generation:
            self._generation = writer.generation
            self._direct.clear()
        write = self._direct.get(object_class)
        if write is None:
            write = writer.outgoing_writer(object_class, self.catalog.schema, self._values)
            if write is not None:
                self._direct[object_class] = write
        message = None if write is None else write(event, timestamp, sequence)
        if message is not None:
            return (message,)
        # Of the time no more is written than the timestamp says.
        time = None if timestamp == UNKNOWN_TIMESTAMP else datetime.fromisoformat(f"{timestamp}Z")
        return writer.messages(self._read_change(event, time, None), sequence)


def timestamp_reader(time_zone: str) -> Callable[[str | None], str]:
    """A function that reads the ``timestamp`` of an event out of the event_time of its first row.

    ``time_zone``: that of event_time, as of the option. What is the same from row to row is read once: whole texts,
    since the rows of a transaction have one event_time, and without their fractions, since many rows come a second.
    """
    read = time_reader(time_zone)
    of_text = lru_cache(maxsize=256)(lambda text: timestamp_of(read(text)))

    @lru_cache(maxsize=256)
    def begin_of(text: str) -> str | None:
        return of_text(text[:-1])[:20] if text[19:] == "." and read(text[:-1]) is not None else None

    def timestamp(text: str | None) -> str:
        if text is None:
            return UNKNOWN_TIMESTAMP
        begin, fraction = begin_of(text[:20]), text[20:]
        if begin is not None and fraction.isdecimal() and fraction.isascii() and len(fraction) < 10:
            return begin + fraction[:3].ljust(3, "0")
        return of_text(text)

    return timestamp


def full_name(catalog: Catalog, cls: ObjectClass) -> str:
    """The name of a class's table with its schema."""
    return cls.name if catalog.schema is None else f"{catalog.schema}.{cls.name}"


def class_columns(cls: ObjectClass) -> tuple[QlikColumn, ...]:
    """The columns of a class by the names that its events have: the key, then its attributes, in the class's order."""
    return columns_of(row_of(cls))
