"""The publisher's writer for the format ``qlik-messages``: records that are numbered by delivery
(formats/qlik.md 5).

``_StepReader.images`` is a hot path: it makes the images of a message from the steps of an event,
without a Change in between. Results that depend only on the attributes of the steps are cached
(``_Shape``). Steps are unpacked by position, ``tuple.__new__`` makes tuples, and names of the
module stand for members of enumerations. The price: the rules of images are written twice, here for
one step of each attribute, and in ``TableRecords.images`` for the net effect of several steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Final, TypeAlias

from eventlog.changes.events import OPERATIONS, ReadOutgoing, attribute_reader, outgoing_reader
from eventlog.changes.keys import key_reader
from eventlog.changes.publishing import (
    DeliveryState,
    EventWriter,
    Need,
    Publishing,
    text_of_first_row,
    time_reader,
)
from eventlog.core.catalog import Attribute, Catalog, ObjectClass, row_of
from eventlog.core.options import same_fields
from eventlog.core.rows.checks import CheckedRow
from eventlog.core.rows.events import Outgoing
from eventlog.core.rows.transaction_ids import transaction_digits
from eventlog.core.values import ValueOptions
from eventlog.errors import FormatError, ReceiverUnavailable, RowError, with_location
from eventlog.model import (
    ALL,
    Change,
    EventResult,
    KafkaRecords,
    Level,
    Names,
    Operation,
    Origins,
    full_name,
)
from eventlog.qlik.columns import QlikColumns, columns_of
from eventlog.qlik.messages.envelope import RegistryError, registry_of_writer
from eventlog.qlik.messages.message_records import (
    Draft,
    Images,
    MessageRow,
    TableRecords,
    timestamp_of,
)
from eventlog.qlik.messages.message_tables import PublishOptions, WriteOptions
from eventlog.qlik.messages.message_writer import MessageWriter
from eventlog.qlik.sequence import first_sequence, resume, sequences, transaction_text
from eventlog.qlik.values import Convert

_ADD, _DELETE = Operation.ADD, Operation.DELETE
_new: Final = tuple.__new__
_MAX_SHAPES: Final = 1024


def write_options(options: PublishOptions, publishing: Publishing) -> WriteOptions:
    """Return the options of the writer of messages.

    For a backlog job, ``options`` already includes the options of the writer.
    """
    return WriteOptions(**{"topic": publishing.topic, **same_fields(options, WriteOptions)})


class QlikWriter(EventWriter[KafkaRecords]):
    """A writer of events as messages. A piece is the records of an event.

    The columns come from the classes. A change of the columns raises the version of the table.
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
        self._utc_now = publishing.utc_now
        chosen = write_options(options, publishing)
        self._writer = MessageWriter(
            chosen, registry=registry_of_writer(chosen), utc_now=publishing.utc_now
        )
        self._messages_of = lru_cache(maxsize=1)(
            partial(EventMessages, self._writer, values=publishing.values)
        )
        self._described: dict[str, ObjectClass] = {}

    def piece_of(
        self, change: Change, event_id: str, object_class: ObjectClass | None
    ) -> KafkaRecords | None:
        name = full_name(change.schema, change.table)
        if object_class is not None and self._described.get(name) is not object_class:
            self._described[name] = object_class
            self._writer.columns = {**self._writer.columns, name: class_columns(object_class)}
        try:
            return self._writer.messages(change) or None
        except RegistryError as error:
            raise ReceiverUnavailable(str(error)) from error

    @property
    def numbered(self) -> str:
        prefix, number = self._writer.state
        return f"{prefix}{number:019}" if prefix else ""

    def resume(self, numbered: str) -> None:
        self._writer.state = resume(numbered or None)

    def body(self, pieces: Sequence[KafkaRecords]) -> bytes:
        """Return the records as lines for people. Sinks use the records themselves."""
        # Imports the reader too, which no other method needs.
        from eventlog.qlik.messages.message_files import line_of

        return b"".join(line_of(record) for piece in pieces for record in piece)

    def first(self, delivery_no: int, before: str, raised: datetime | None) -> str:
        now = self._utc_now()
        # Sequences sent before the raise have earlier times, even if the clock has gone back since.
        return first_sequence(delivery_no, before, now if raised is None else max(now, raised))

    def forget(self) -> None:
        """Publish the metadata again before the next records, since they may not have reached the
        receiver.
        """
        self._writer.announce_again()

    def write(
        self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]
    ) -> list[KafkaRecords | EventResult]:
        return self._records(catalog, delivery.first, events, delivery.origins)

    def preview(self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]) -> str:
        """Return the records as lines, with the sequences that a recorded delivery will send."""
        lines = []
        first = delivery.first
        if not first:
            first = first_sequence(0, "", self._utc_now())
            events = [event._replace(place=place) for place, event in enumerate(events, 1)]
        for records in self._records(catalog, first, events, delivery.origins):
            if isinstance(records, EventResult):
                lines.append(json.dumps({"error": records.message}, ensure_ascii=False) + "\n")
            else:
                lines.append(self.shown(records))
        return "".join(lines)

    def _records(
        self, catalog: Catalog, first: str, events: Sequence[Outgoing], origins: Origins
    ) -> list[KafkaRecords | EventResult]:
        """Return the records of each event, or the error result of an event that the format cannot
        hold.
        """
        draft_of = self._messages_of(catalog).draft
        records_of = self._writer.records
        sequence_of = sequences(first)
        event_times, _, transactions = origins
        records: list[KafkaRecords | EventResult] = []
        for event in events:
            try:
                draft = draft_of(
                    event,
                    text_of_first_row(event, event_times),
                    transaction_digits(event, transactions),
                )
                records.append(records_of(draft, sequence_of(event.place)))
            except RegistryError as error:
                raise ReceiverUnavailable(str(error)) from error
            except (FormatError, RowError) as error:
                records.append(EventResult(Level.ERROR, str(error)))
        return records


class EventMessages:
    """The messages of events. A writer makes them with the columns of the catalogue's classes.

    ``values`` are the options with which the events were written.
    """

    def __init__(self, writer: MessageWriter, catalog: Catalog, values: ValueOptions) -> None:
        writer.columns = {
            full_name(catalog.schema, cls.name): class_columns(cls) for cls in catalog.classes
        }
        self.catalog, self._writer, self._values = catalog, writer, values
        self._read_time = time_reader(values.time_zone)
        self._read_change = outgoing_reader(catalog, values)
        self._reader = lru_cache(maxsize=None)(self._reader_of)

    def draft(self, event: Outgoing, event_time: str | None, transaction: str | None) -> Draft:
        """Return the message of an event. ``event_time`` is the time of its first row, and
        ``transaction`` its transaction; None = unknown.

        Raises FormatError, RowError.
        """
        assert event.object_id is not None
        assert event.operation is not None
        object_class, _ = event.object_id
        op = OPERATIONS[event.operation]
        try:
            reader = self._reader(object_class)
            timestamp = timestamp_of(self._read_time(event_time))
            known = transaction_text(transaction), None, None
            return reader.table.draft(op, reader.images(event), timestamp, event.event_id, known)
        except (FormatError, RowError) as error:
            raise with_location(
                error, f"{op} of {object_class.name!r}, position {event.event_id}"
            ) from None

    def _reader_of(self, object_class: ObjectClass) -> _StepReader:
        table = self._writer.table(self.catalog.schema, object_class.name)
        return _StepReader(object_class, table, self._values, self._read_change)


_Shape: TypeAlias = tuple[dict[Attribute | None, tuple[str, Convert]] | None, Names, Names]
"""The results that depend only on the attributes of an event's steps. The results are the column of
each attribute, or None if an attribute has several steps; the known fields of the row, beginning
with the key; and the known fields that are not in the key.
"""


class _StepReader:
    """A reader that turns the steps of a class's events into the values of messages."""

    def __init__(
        self,
        object_class: ObjectClass,
        table: TableRecords,
        values: ValueOptions,
        read_change: ReadOutgoing,
    ) -> None:
        self.table = table
        self._values = values
        self._read_change = read_change
        self._read_key = key_reader(object_class)
        self._key_fields = tuple(table.column(column.name)[0] for column in object_class.key)
        # Few statements write a table, so the same attributes repeat.
        self._shape = lru_cache(maxsize=_MAX_SHAPES)(self._shape_of)

    def images(self, event: Outgoing) -> Images:
        """Return the images of an event's change. Raises FormatError, RowError."""
        _, _, object_id, operation, steps, _, _, _, _, all_rows = event
        assert object_id is not None
        assert steps is not None
        data, columns = self.table.nothing.copy(), self.table.columns
        for name, value in self._read_key(object_id[1]):
            field, write = columns[name]
            data[field] = write(value)
        if operation is _DELETE:
            return _new(Images, (data, None, self._key_fields, None))
        attributes, known, changed = self._shape(
            tuple([attribute for _, _, _, attribute, _, _ in steps])
        )
        if attributes is None or all_rows is not None:
            return self._net_images(event)
        if operation is _ADD:
            for _, _, _, attribute, _, new in steps:
                field, write = attributes[attribute]
                data[field] = None if new is None else write(new)
            return _new(Images, (data, None, known, None))
        return self._updated(data, steps, attributes, known, changed)

    def _updated(
        self,
        data: MessageRow,
        steps: Iterable[CheckedRow],
        columns: Mapping[Attribute | None, tuple[str, Convert]],
        known: Names,
        changed: Names,
    ) -> Images:
        """Return the images of an update. The row ``data`` has only the key at first."""
        # Avro would read unknown columns of the row before as NULL, so a row before with unknown
        # columns is left out.
        with_before = not self.table.is_whole or True not in [
            old is ALL for _, _, _, _, old, _ in steps
        ]
        before = data.copy()
        is_known = False
        for _, _, _, attribute, old, new in steps:
            field, write = columns[attribute]
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
        """Return the images of an event that has several rows of an attribute. The net effect of
        the rows makes the images.
        """
        change = self._read_change(event, None, None)
        row, before = change.after or {}, change.before
        if before is not None and self.table.is_whole and len(before) < len(row):
            before = None
        return self.table.images(row, before, change.changed)

    def _shape_of(self, attributes: tuple[Attribute | None, ...]) -> _Shape:
        """Return the shape of these attributes. Raises FormatError."""
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


def class_columns(cls: ObjectClass) -> QlikColumns:
    """Return the columns of a class, under the names that its events use: the key, then the
    attributes, in the order of the class.
    """
    return columns_of(row_of(cls))
