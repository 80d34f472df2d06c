"""A publisher's events in the format ``debezium``: change events whose images are whole rows
(formats/debezium.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial

from eventlog.changes.events import attribute_reader, outgoing_reader
from eventlog.changes.publishing import (
    DeliveryState,
    EventWriter,
    Need,
    Publishing,
    row_attributes,
    text_of_first_row,
    time_reader,
)
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.options import same_fields
from eventlog.core.rows.events import CurrentRow, Outgoing
from eventlog.core.rows.transaction_ids import transaction_of
from eventlog.core.values import Converter
from eventlog.core.values.typed_values import ReadValue
from eventlog.debezium.records import line_of
from eventlog.debezium.writer import EnvelopeWriter, Logged, PublishOptions, WriteOptions
from eventlog.errors import FormatError, RowError
from eventlog.model import Change, EventResult, KafkaRecords, Level, Row


def write_options(options: PublishOptions, publishing: Publishing) -> WriteOptions:
    """Return the options of the writer of records.

    For a backlog job, ``options`` already includes the options of the writer.
    """
    named = same_fields(options, WriteOptions)
    for name, value in (("database", publishing.database), ("topic", publishing.topic)):
        named[name] = named.get(name) or value
    return WriteOptions(**named)


class DebeziumWriter(EventWriter[KafkaRecords]):
    """A writer of events as change events. A piece is the records of an event. A body has the
    values of records, one on each line, without tombstones.
    """

    pieces_are_records = True

    def __init__(self, options: PublishOptions, publishing: Publishing) -> None:
        self.in_records = publishing.in_records
        self.needs = frozenset(
            {Need.TIMES, Need.WHOLE_ROWS}
            if options.missing_columns == "read_back"
            else {Need.TIMES}
        )
        self._options = write_options(options, publishing)
        values_alone = not self.in_records and not isinstance(options, WriteOptions)
        self._lines = "values" if values_alone else self._options.lines
        self._records_of = lru_cache(maxsize=1)(
            partial(EventRecords, options=self._options, publishing=publishing)
        )
        self._changes = EnvelopeWriter(self._options, publishing.catalog, count=publishing.count)

    def piece_of(
        self, change: Change, event_id: str, object_class: ObjectClass | None
    ) -> KafkaRecords:
        return tuple(self._changes.records(change._replace(position=event_id), object_class))

    def write(
        self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]
    ) -> list[KafkaRecords | EventResult]:
        records, current_rows = self._records_of(catalog), delivery.current_rows
        time_of, (times, _, transactions) = records.time_of, delivery.origins
        return [
            records.write(
                event,
                time_of(text_of_first_row(event, times)),
                transaction_of(event, transactions),
                current_rows.get(event.object_id),
            )
            if event.object_id is not None
            else ()
            for event in events
        ]

    def body(self, pieces: Sequence[KafkaRecords]) -> bytes:
        return b"".join(line_of(record, self._lines) for piece in pieces for record in piece)

    def media_type_of(self, pieces: Sequence[KafkaRecords]) -> str:
        return "application/json" if len(pieces) == 1 else "application/x-ndjson"


class EventRecords:
    """A writer of events as records. For an event that the format cannot hold, the writer returns a
    result of level error.
    """

    def __init__(self, catalog: Catalog, options: WriteOptions, publishing: Publishing) -> None:
        self._writer = EnvelopeWriter(options, catalog, publishing.utc_now, publishing.count)
        self._values = publishing.values
        self._read_change = outgoing_reader(catalog, self._values)
        self.time_of = time_reader(self._values.time_zone)
        self._readers = lru_cache(maxsize=None)(self._readers_of)

    def write(
        self,
        event: Outgoing,
        time: datetime | None,
        transaction: str | None,
        current: CurrentRow | None,
    ) -> KafkaRecords | EventResult:
        """Return the records of an event. ``transaction`` is the number of its transaction, None =
        unknown; ``current`` is the present row, None if it was not read or is deleted.
        """
        assert event.object_id is not None
        object_class, _ = event.object_id
        try:
            change = self._read_change(event, time, None)._replace(position=event.sent_id)
            whole_row = None if current is None else partial(self._row, object_class, current)
            logged = Logged(event.ids, None if transaction is None else int(transaction))
            return tuple(self._writer.records(change, object_class, whole_row, logged))
        except (FormatError, RowError) as error:
            return EventResult(Level.ERROR, str(error))

    def _row(self, object_class: ObjectClass, current: CurrentRow) -> Row:
        return {
            name: next(
                (read(convert(text)) for text in current.get(name, ()) if text is not None), None
            )
            for name, (read, convert) in self._readers(object_class).items()
        }

    def _readers_of(self, object_class: ObjectClass) -> Mapping[str, tuple[ReadValue, Converter]]:
        return {
            one.name: (attribute_reader(one.value_type, one, self._values), one.convert)
            for one in row_attributes(object_class)
        }
