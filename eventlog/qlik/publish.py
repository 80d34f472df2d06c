"""A publisher's events in the format ``qlik-messages``: records that are numbered by flight (spec/qlik.md 5)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from eventlog.changes.events import OPERATIONS, ReadOutgoing, attribute_reader, outgoing_reader
from eventlog.changes.format import key_reader
from eventlog.changes.publishing import EventWriter, FlightState, Need, Publishing, of_first_row, time_reader
from eventlog.core.catalog import Attribute, Catalog, ObjectClass, row_of
from eventlog.core.events import Outgoing
from eventlog.core.options import same_fields
from eventlog.core.values import ValueOptions
from eventlog.errors import FormatError, ReceiverAway, RowError, with_location
from eventlog.model import ALL, Change, ChangeOp, KafkaRecord, Level, Operation, Origins, Verdict
from eventlog.model import full_name as table_name
from eventlog.qlik.columns import QlikColumn, columns_of
from eventlog.qlik.envelope import RegistryError, registry_of_writer
from eventlog.qlik.message_records import Draft, Images, TableRecords, timestamp_of
from eventlog.qlik.message_tables import PublishOptions, WriteOptions
from eventlog.qlik.message_writer import MessageWriter
from eventlog.qlik.sequence import first_sequence, resume, sequences
from eventlog.qlik.values import Convert

_ADD, _DELETE = Operation.ADD, Operation.DELETE  # bound names: an enumeration's members are looked up slowly


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

    def records(self, key: bytes, piece: tuple[KafkaRecord, ...]) -> tuple[KafkaRecord, ...]:
        return piece

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
            return reader.draft(op, event, timestamp_of(self._read_time(event_time)))
        except (FormatError, RowError) as error:
            raise with_location(error, f"{op} of {object_class.name!r}, position {event.event_id}") from None

    def _reader(self, object_class: ObjectClass) -> _StepReader:
        table = self._writer.table(self.catalog.schema, object_class.name)
        reader = self._classes[object_class] = _StepReader(object_class, table, self._values, self._read_change)
        return reader


class _StepReader:
    """Reads the steps of a class's events as what stands for their values in the messages of its table."""

    def __init__(
        self, object_class: ObjectClass, table: TableRecords, values: ValueOptions, read_change: ReadOutgoing
    ) -> None:
        self.table = table
        self._values, self._read_change, self._read_key = values, read_change, key_reader(object_class)
        self._key = [table.column(column.name) for column in object_class.key]
        self._attributes: dict[Attribute, tuple[str, Convert]] = {}

    def draft(self, op: ChangeOp, event: Outgoing, timestamp: str) -> Draft:
        """The message of an event."""
        return self.table.draft(op, self._images(event), timestamp, event.event_id)

    def _images(self, event: Outgoing) -> Images:
        _, _, object_id, operation, steps, _, _, _, _ = event
        assert object_id is not None
        assert steps is not None
        key = self._read_key(object_id[1])
        after = {field: write(value) for (field, write), (_, value) in zip(self._key, key, strict=True)}
        if operation is _DELETE:
            return after, None, None
        # In Avro, what is not known of the row before would be read as NULL: then none of it is written.
        is_whole = self.table.is_whole
        if len({attribute for _, _, _, attribute, _, _ in steps}) < len(steps):
            change = self._read_change(event, None, None)  # of several steps of an attribute the net effect counts
            row, old_row = change.after or {}, change.before
            if is_whole and old_row is not None and len(old_row) < len(row):
                old_row = None
            return self.table.images(row, old_row, change.changed)
        with_before = operation is not _ADD and not (is_whole and any(old is ALL for _, _, _, _, old, _ in steps))
        before = after.copy()
        of_key = len(after)
        changed = []
        for _, _, _, attribute, old, new in steps:
            assert attribute is not None
            field, write = self._attributes.get(attribute) or self._attribute(attribute)
            if field not in after:
                changed.append(field)
            after[field] = None if new is None else write(new)
            if old is not ALL and with_before:
                before[field] = None if old is None else write(old)
        if operation is _ADD:
            return after, None, None
        return after, before if len(before) > of_key else None, changed

    def _attribute(self, attribute: Attribute) -> tuple[str, Convert]:
        field, write = self.table.column(attribute.name, multi_valued=attribute.multi_valued)
        read = attribute_reader(attribute.value_type, attribute, self._values)
        if read is not str:
            column = field, lambda text: write(read(text))
        else:
            column = field, read if self.table.takes_text(field) else write
        self._attributes[attribute] = column
        return column


def full_name(catalog: Catalog, cls: ObjectClass) -> str:
    """The name of a class's table with its schema."""
    return cls.name if catalog.schema is None else f"{catalog.schema}.{cls.name}"


def class_columns(cls: ObjectClass) -> tuple[QlikColumn, ...]:
    """The columns of a class by the names that its events have: the key, then its attributes, in the class's order."""
    return columns_of(row_of(cls))
