"""A publisher's events in the format ``cloudevents``: documents for HTTP and files, records for Kafka
(spec/cloudevents.md 2, 3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from sqlalchemy import URL

from eventlog.changes.from_events import ReadOutgoing, event_to_change, outgoing_reader
from eventlog.cloudevents.event import DATA_TYPE, CloudEvent, as_text, event_writer
from eventlog.cloudevents.options import BATCHED, BINARY
from eventlog.core.catalog import Catalog
from eventlog.core.events import Outgoing, association_of, public_event
from eventlog.core.typed import moment_reader
from eventlog.core.values import ValueOptions
from eventlog.errors import BadValue, FormatError
from eventlog.model import LogRow
from eventlog.publisher.flight import Flight
from eventlog.publisher.formats import first_row
from eventlog.publisher.sinks import Document, KafkaRecord
from eventlog.publisher.whole_rows import CurrentRows
from eventlog.sql.log_table import LogTable

STRUCTURED_TYPE: Final = "application/cloudevents+json; charset=UTF-8"
BATCHED_TYPE: Final = "application/cloudevents-batch+json; charset=UTF-8"

_CONTENT_TYPE: Final = "content-type"


def source_of(url: URL, log: LogTable) -> str:
    """The source of a log's events: database, schema and log (spec/cloudevents.md 3)."""
    database = re.split(r"[/\\]", url.database or url.username or "")[-1]
    return "".join(f"/{quote(part, safe='')}" for part in (database, log.schema, log.name) if part)


class CloudEvents:
    """Events to CloudEvents, as ``eventlog.publisher.formats.OutputFormat`` asks for them.

    ``values``: what the events were written with. ``in_records``: they go to Kafka, else in documents, which hold one
    event if they are in binary mode.
    """

    def __init__(
        self, mode: str, source: str, event_type: str, values: ValueOptions, *, in_records: bool = False
    ) -> None:
        self.mode, self._in_records, self._values = mode, in_records, values
        self._write = event_writer(source, event_type)
        self._read_moment = moment_reader(values.time_zone)
        self._reader: tuple[Catalog, ReadOutgoing] | None = None

    @property
    def heartbeat(self) -> str:
        """CloudEvents have none: an event says that something occurred."""
        return ""

    @property
    def needs_log_rows(self) -> bool:
        """Time and user of an event are those of its first row."""
        return True

    @property
    def needs_current_rows(self) -> bool:
        """An event says what was changed."""
        return False

    def first(self, flight: int, before: str) -> str:
        return ""

    def forget(self) -> None:
        """Nothing is kept between documents."""

    def document(self, catalog: Catalog, flight: Flight, envelope: int, events: Sequence[Outgoing]) -> Document:
        ids = [event.sent_id for event in events]
        written = self.events(catalog, events, flight.log_rows)
        body, media_type = "", STRUCTURED_TYPE
        headers: tuple[tuple[str, str], ...] = ()
        records: list[tuple[KafkaRecord, ...]] = []
        if self._in_records:
            keys = map(association_of, events)
            records = [(self._record(key.encode(), event),) for key, event in zip(keys, written, strict=True)]
        elif self.mode == BINARY:
            (event,) = written
            body, media_type, headers = as_text(event.data), DATA_TYPE, _http_headers(event)
        elif self.mode == BATCHED:
            body, media_type = f"[{','.join(event.text() for event in written)}]\n", BATCHED_TYPE
        else:
            body = "".join(f"{event.text()}\n" for event in written)
        return Document(
            flight.number, envelope, ids, body, records, lambda: tuple(map(public_event, events)), media_type, headers
        )

    def preview(self, catalog: Catalog, events: Sequence[Outgoing], current_rows: CurrentRows) -> str:
        """The events as lines, without what only their rows tell."""
        return "".join(f"{event.text()}\n" for event in self.events(catalog, events, {}))

    def events(self, catalog: Catalog, events: Sequence[Outgoing], log_rows: Mapping[int, LogRow]) -> list[CloudEvent]:
        """Events as CloudEvents."""
        if self._reader is None or self._reader[0] is not catalog:
            self._reader = catalog, outgoing_reader(catalog, self._values)
        read = self._reader[1]
        return [self._event(read, event, first_row(event, log_rows)) for event in events]

    def _event(self, read: ReadOutgoing, event: Outgoing, row: LogRow | None) -> CloudEvent:
        user = None if row is None else row.perpetrator
        time = None
        if row is not None and row.event_time is not None:
            try:
                time = self._read_moment(row.event_time)
            except BadValue:
                time = None
        try:
            change = read(event, time, user)
        except FormatError:  # a value of its type that Python cannot hold: all values of the event are text
            public = public_event(event)
            as_strings = tuple(one._replace(value_type="string") for one in public.attributes)
            change = event_to_change(public._replace(attributes=as_strings), None, self._values)
            change = change._replace(commit_time=time, user=user)
        return self._write(change, event.sent_id, association_of(event))

    def _record(self, key: bytes, event: CloudEvent) -> KafkaRecord:
        """A record of Kafka protocol binding 1.0.2: binary content mode (3.2), or structured (3.3)."""
        if self.mode != BINARY:
            headers = ((_CONTENT_TYPE, STRUCTURED_TYPE.encode()),)
            return KafkaRecord(None, key, event.text().encode(), headers)
        attributes = ((f"ce_{name}", value.encode()) for name, value in event.attributes().items())
        return KafkaRecord(None, key, as_text(event.data).encode(), ((_CONTENT_TYPE, DATA_TYPE.encode()), *attributes))


def _http_headers(event: CloudEvent) -> tuple[tuple[str, str], ...]:
    """The attributes of an event of binary content mode (HTTP protocol binding 1.0.2, 3.1.3)."""
    return tuple((f"ce-{name}", _in_header(value)) for name, value in event.attributes().items())


_TO_BE_ENCODED: Final = re.compile(r'[^!-~]|["%]')


def _in_header(value: str) -> str:
    """A value percent-encoded as HTTP protocol binding 1.0.2, 3.1.3.2 says: blank, quote, percent, beyond ASCII."""
    return _TO_BE_ENCODED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), value)
