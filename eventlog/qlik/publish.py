"""A publisher's events in the format ``qlik-messages``: records that are numbered by flight (spec/qlik.md 5)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, TypeAlias

from eventlog.changes.events import OPERATIONS, ReadOutgoing, attribute_reader, outgoing_reader
from eventlog.changes.format import key_reader
from eventlog.changes.publishing import EventWriter, FlightState, Need, Publishing, of_first_row, time_reader
from eventlog.core.catalog import Attribute, Catalog, ObjectClass, row_of
from eventlog.core.events import Outgoing
from eventlog.core.options import same_fields
from eventlog.core.values import ValueOptions
from eventlog.errors import FormatError, ReceiverAway, RowError, with_location
from eventlog.model import ALL, Change, KafkaRecord, Level, Operation, Origins, Verdict
from eventlog.model import full_name as table_name
from eventlog.qlik.columns import QlikColumn, columns_of
from eventlog.qlik.envelope import RegistryError, registry_of_writer
from eventlog.qlik.message_records import Draft, Images, TableRecords, timestamp_of
from eventlog.qlik.message_tables import PublishOptions, WriteOptions
from eventlog.qlik.message_writer import MessageWriter
from eventlog.qlik.sequence import first_sequence, resume, sequences
from eventlog.qlik.values import Convert

_ADD, _DELETE = Operation.ADD, Operation.DELETE  # bound names: an enumeration's members are looked up slowly
_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time
_MOST_SHAPES: Final = 1024


def write_options(options: PublishOptions, publishing: Publishing) -> WriteOptions:
    """Return the options of the writer of messages. Those of a backlog's request are more than a publisher's."""
    return WriteOptions(**{"topic": publishing.topic, **same_fields(options, WriteOptions)})


class QlikWriter(EventWriter[tuple[KafkaRecord, ...]]):
    """Events to messages. A piece is the records of an event.

    The columns are those of the classes; where they change, the version of the table is raised.
    """

    needs = frozenset({Need.TIMES, Need.NUMBERS})
    in_records = True
    pieces_are_records = True
    joins_new_key = True

    def __init__(
        self,
        options: PublishOptions,
        publishing: Publishing,
    ) -> None:
        self._values, self._utc_now = publishing.values, publishing.utc_now
        chosen = write_options(options, publishing)
        self._writer = MessageWriter(chosen, registry=registry_of_writer(chosen), utc_now=publishing.utc_now)
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

    def body(self, pieces: Sequence[tuple[KafkaRecord, ...]]) -> bytes:
        """Return the records as lines, for people: sinks take the records themselves."""
        from eventlog.qlik.message_files import line_of  # brings the reader too, which nothing else needs

        return b"".join(line_of(record) for piece in pieces for record in piece)

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

    def preview(self, catalog: Catalog, flight: FlightState, events: Sequence[Outgoing]) -> str:
        """Return the records as lines; the sequences are those that will be sent if the flight is recorded."""
        lines = []
        first = flight.first
        if not first:
            first = first_sequence(0, "", self._utc_now())
            events = [event._replace(place=place) for place, event in enumerate(events, 1)]
        for records in self._records(catalog, first, events, flight.origins):
            if isinstance(records, Verdict):
                lines.append(json.dumps({"error": records.message}, ensure_ascii=False) + "\n")
            else:
                lines.append(self.shown(records))
        return "".join(lines)

    def _records(
        self, catalog: Catalog, first: str, events: Sequence[Outgoing], origins: Origins
    ) -> list[tuple[KafkaRecord, ...] | Verdict]:
        """The records of each event, or the verdict, error, of one that the format cannot hold."""
        if self._messages is None or catalog is not self._messages.catalog:
            self._messages = EventMessages(self._writer, catalog, self._values)
        draft_of, records_of, sequence_of = self._messages.draft, self._writer.records, sequences(first)
        event_times = origins.event_times
        records: list[tuple[KafkaRecord, ...] | Verdict] = []
        for event in events:
            try:
                draft = draft_of(event, of_first_row(event, event_times))
                records.append(records_of(draft, sequence_of(event.place)))
            except RegistryError as error:
                raise ReceiverAway(str(error)) from error
            except (FormatError, RowError) as error:
                records.append(Verdict(Level.ERROR, str(error)))
        return records


class EventMessages:
    """Makes messages of events for a writer, whose columns are those of the catalog's classes.

    ``values``: what the events were written with.
    """

    def __init__(self, writer: MessageWriter, catalog: Catalog, values: ValueOptions) -> None:
        writer.columns = {full_name(catalog, cls): class_columns(cls) for cls in catalog.classes}
        self.catalog, self._writer, self._values = catalog, writer, values
        self._read_time, self._read_change = time_reader(values.time_zone), outgoing_reader(catalog, values)
        self._classes: dict[ObjectClass, _StepReader] = {}

    def draft(self, event: Outgoing, event_time: str | None) -> Draft:
        """The message of an event whose first row has this event_time. Raises FormatError, RowError."""
        assert event.object_id is not None
        assert event.operation is not None
        object_class, _ = event.object_id
        op = OPERATIONS[event.operation]
        try:
            reader = self._classes.get(object_class) or self._reader(object_class)
            timestamp = timestamp_of(self._read_time(event_time))
            return reader.table.draft(op, reader.images(event), timestamp, event.event_id)
        except (FormatError, RowError) as error:
            raise with_location(error, f"{op} of {object_class.name!r}, position {event.event_id}") from None

    def _reader(self, object_class: ObjectClass) -> _StepReader:
        table = self._writer.table(self.catalog.schema, object_class.name)
        reader = self._classes[object_class] = _StepReader(object_class, table, self._values, self._read_change)
        return reader


_Shape: TypeAlias = tuple[dict[Attribute | None, tuple[str, Convert]] | None, tuple[str, ...], tuple[str, ...]]
"""Of the attributes of an event's steps their columns, None if an attribute comes several times; the fields that are
known of the row, the key's first; and those of them that are none of the key's.
"""


class _StepReader:
    """Reads the steps of a class's events as what stands for their values in the messages of its table."""

    def __init__(
        self, object_class: ObjectClass, table: TableRecords, values: ValueOptions, read_change: ReadOutgoing
    ) -> None:
        self.table = table
        self._values, self._read_change, self._read_key = values, read_change, key_reader(object_class)
        self._key_fields = tuple(table.column(column.name)[0] for column in object_class.key)
        # Tables are written by few statements, so that the same attributes come again and again.
        self._shape = lru_cache(maxsize=_MOST_SHAPES)(self._shape_of)

    def images(self, event: Outgoing) -> Images:
        """Return the images of an event's change. Raises FormatError, RowError."""
        _, _, object_id, operation, steps, _, _, _, _ = event
        assert object_id is not None
        assert steps is not None
        data, columns = self.table.nothing.copy(), self.table.columns
        for name, value in self._read_key(object_id[1]):
            field, write = columns[name]
            data[field] = write(value)
        if operation is _DELETE:
            return _new(Images, (data, None, self._key_fields, None))
        attributes, known, changed = self._shape(tuple([attribute for _, _, _, attribute, _, _ in steps]))
        if attributes is None:
            return self._net_images(event)
        if operation is _ADD:
            for _, _, _, attribute, _, new in steps:
                field, write = attributes[attribute]
                data[field] = None if new is None else write(new)
            return _new(Images, (data, None, known, None))
        # In Avro, what is not known of the row before would be read as NULL: then none of it is written.
        with_before = not self.table.is_whole or True not in [old is ALL for _, _, _, _, old, _ in steps]
        before = data.copy()
        is_known = False
        for _, _, _, attribute, old, new in steps:
            field, write = attributes[attribute]
            data[field] = None if new is None else write(new)
            if not with_before:
                continue
            if old is not ALL:
                before[field] = None if old is None else write(old)
                is_known = is_known or field in changed
            elif field in changed:
                del before[field]
        return _new(Images, (data, before if is_known else None, known, changed))

    def _net_images(self, event: Outgoing) -> Images:
        """Return the images of an event that has several steps of an attribute, of which the net effect counts."""
        change = self._read_change(event, None, None)
        row, before = change.after or {}, change.before
        if before is not None and self.table.is_whole and len(before) < len(row):
            before = None
        return self.table.images(row, before, change.changed)

    def _shape_of(self, attributes: tuple[Attribute | None, ...]) -> _Shape:
        """Return what follows from the attributes of an event's steps. Raises FormatError."""
        if len(set(attributes)) < len(attributes):
            return None, (), ()
        columns = {attribute: self._column(attribute) for attribute in attributes}
        changed = tuple(field for field, _ in columns.values() if field not in self._key_fields)
        return columns, (*self._key_fields, *changed), changed

    def _column(self, attribute: Attribute | None) -> tuple[str, Convert]:
        assert attribute is not None
        field, write = self.table.column(attribute.name, multi_valued=attribute.multi_valued)
        read = attribute_reader(attribute.value_type, attribute, self._values)
        if read is not str:
            return field, lambda text: write(read(text))
        return field, read if self.table.takes_text(field) else write


def full_name(catalog: Catalog, cls: ObjectClass) -> str:
    """The name of a class's table with its schema."""
    return cls.name if catalog.schema is None else f"{catalog.schema}.{cls.name}"


def class_columns(cls: ObjectClass) -> tuple[QlikColumn, ...]:
    """The columns of a class by the names that its events have: the key, then its attributes, in the class's order."""
    return columns_of(row_of(cls))
