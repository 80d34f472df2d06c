"""A publisher's events in the format ``debezium``: change events whose images are whole rows (spec/debezium.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from eventlog.changes.events import ReadOutgoing, attribute_reader, outgoing_reader
from eventlog.config.load import Config
from eventlog.config.settings import SINKS
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.events import CurrentRow, Outgoing, public_event, sent_ids
from eventlog.core.typed import ReadValue
from eventlog.core.values import ValueOptions
from eventlog.debezium.format import line_of
from eventlog.debezium.writer import EnvelopeWriter, WriteOptions
from eventlog.errors import FormatError, RowError
from eventlog.model import KafkaRecord, Level, Origins, Row, Verdict
from eventlog.publisher.flight import Flight
from eventlog.publisher.formats import (
    CurrentRows,
    OutputFormat,
    configured_options,
    of_first_row,
    row_attributes,
    time_reader,
    value_options,
)
from eventlog.publisher.sinks import Document
from eventlog.sql.log_table import LogTable


def open_format(config: Config, _log: LogTable) -> DebeziumEvents:
    """``[format]`` of type ``debezium``."""
    options = WriteOptions(**configured_options(config, WriteOptions))
    return DebeziumEvents(options, value_options(config), SINKS[config.sink.type].takes_records)


class DebeziumEvents(OutputFormat):
    """Events to change events, as ``OutputFormat`` asks for them.

    ``values``: what the events were written with. ``has_records``: for Kafka; else a document holds the values, one a
    line, without tombstones.
    """

    def __init__(self, options: WriteOptions, values: ValueOptions, has_records: bool) -> None:
        self._options, self._values, self._has_records = options, values, has_records
        self._records: EventRecords | None = None

    @property
    def needs_origins(self) -> bool:
        """The time of a change is that of its first row."""
        return True

    @property
    def needs_current_rows(self) -> bool:
        return self._options.missing_columns == "read_back"

    def document(self, catalog: Catalog, flight: Flight, envelope: int, events: Sequence[Outgoing]) -> Document:
        ids = sent_ids(events)
        written = self._written(catalog, events, flight.origins, flight.current_rows)
        held = [event for event, one in zip(events, written, strict=True) if not isinstance(one, Verdict)]
        document = Document(flight.number, envelope, ids, "", (), lambda: tuple(map(public_event, held)))
        if self._has_records:
            records = [one if isinstance(one, Verdict) else tuple(one) for one in written]
            return document._replace(records=records)
        return document._replace(
            body="".join(map(_values, written)),
            media_type="application/json" if len(held) == 1 else "application/x-ndjson",
            refused={event_id: one for event_id, one in zip(ids, written, strict=True) if isinstance(one, Verdict)},
        )

    def preview(self, catalog: Catalog, flight: Flight, events: Sequence[Outgoing]) -> str:
        lines = []
        for one in self._written(catalog, events, flight.origins, flight.current_rows):
            if isinstance(one, Verdict):
                lines.append(f"# {one.message}\n")
            else:
                lines += [line_of(record, "records" if self._has_records else "values").decode() for record in one]
        return "".join(lines)

    def _written(
        self, catalog: Catalog, events: Sequence[Outgoing], origins: Origins, current_rows: CurrentRows
    ) -> list[list[KafkaRecord] | Verdict]:
        records = self._records
        if records is None or records.catalog is not catalog:
            writer = EnvelopeWriter(self._options, catalog)
            records = self._records = EventRecords(writer, catalog, self._values)
        time_of, times = records.time_of, origins.event_times
        return [
            records.write(event, time_of(of_first_row(event, times)), current_rows.get(event.object_id))
            if event.object_id is not None
            else []
            for event in events
        ]


class EventRecords:
    """Events to records, or the verdict, error, of one that the format cannot hold.

    ``values``: what the events were written with.
    """

    def __init__(self, writer: EnvelopeWriter, catalog: Catalog, values: ValueOptions) -> None:
        self.catalog = catalog
        self._writer, self._values = writer, values
        self._read_change: ReadOutgoing = outgoing_reader(catalog, values)
        self.time_of = time_reader(values.time_zone)
        self._readers: dict[ObjectClass, dict[str, tuple[ReadValue, Callable[[str], str]]]] = {}

    def write(self, event: Outgoing, time: datetime | None, current: CurrentRow | None) -> list[KafkaRecord] | Verdict:
        """``current``: the row as it is now, None if it has not been read, or is gone."""
        assert event.object_id is not None
        object_class, _ = event.object_id
        try:
            change = self._read_change(event, time, None)._replace(position=event.sent_id)
            whole_row = None if current is None else partial(self._row, object_class, current)
            return self._writer.records(change, object_class, whole_row, event.ids)
        except (FormatError, RowError) as error:
            return Verdict(Level.ERROR, str(error))

    def _row(self, object_class: ObjectClass, current: CurrentRow) -> Row:
        readers = self._readers.get(object_class)
        if readers is None:
            readers = self._readers[object_class] = {
                one.name: (attribute_reader(one.value_type, one, self._values), one.convert)
                for one in row_attributes(object_class)
            }
        return {
            name: next((read(convert(text)) for text in current.get(name, ()) if text is not None), None)
            for name, (read, convert) in readers.items()
        }


def _values(written: list[KafkaRecord] | Verdict) -> str:
    """The values of an event's records as lines."""
    if isinstance(written, Verdict):
        return ""
    return "".join(line_of(record, "values").decode() for record in written)
