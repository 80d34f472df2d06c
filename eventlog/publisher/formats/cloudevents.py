"""A publisher's events in the format ``cloudevents``: documents for HTTP and files, records for Kafka
(spec/cloudevents.md 2, 3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from sqlalchemy import URL

from eventlog.changes.events import OPERATIONS, ReadOutgoing, event_to_change, outgoing_reader
from eventlog.changes.json_form import utc_text
from eventlog.cloudevents.format import (
    DATA_TYPE,
    CloudEvent,
    DataOf,
    data_text,
    data_writer,
    referenced_key,
    schema_uri,
    subject_of,
    type_writer,
    types_of,
)
from eventlog.cloudevents.options import BATCHED, BINARY
from eventlog.cloudevents.values import JSON_FORM, JsonForm
from eventlog.config.load import Config, connection_url
from eventlog.config.settings import SINKS
from eventlog.core.catalog import Catalog
from eventlog.core.events import Outgoing, association_of, public_event, sent_ids
from eventlog.core.values import ValueOptions
from eventlog.errors import FormatError
from eventlog.model import Change, KafkaRecord, Origins, Step
from eventlog.publisher.flight import Flight
from eventlog.publisher.formats import (
    OutputFormat,
    cloudevents_mode,
    of_first_row,
    time_reader,
    value_options,
)
from eventlog.publisher.sinks import Document
from eventlog.sql.log_table import LogTable

_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time

STRUCTURED_TYPE: Final = "application/cloudevents+json; charset=utf-8"
BATCHED_TYPE: Final = "application/cloudevents-batch+json; charset=utf-8"

_CONTENT_TYPE: Final = "content-type"


def open_format(config: Config, log: LogTable) -> CloudEvents:
    """``[format]`` of type ``cloudevents``."""
    settings = config.format
    source = settings.source or source_of(connection_url(config.database), log)
    in_records = SINKS[config.sink.type].takes_records
    mode, values = cloudevents_mode(config), value_options(config)
    form = JsonForm(settings.integers, settings.nested_values)
    return CloudEvents(mode, source, settings.event_type, values, form, settings.dataschema, in_records=in_records)


def source_of(url: URL, log: LogTable) -> str:
    """The source of a log's events: database, schema and log (spec/cloudevents.md 3)."""
    database = re.split(r"[/\\]", url.database or url.username or "")[-1]
    return "".join(f"/{quote(part, safe='')}" for part in (database, log.schema, log.name) if part)


class CloudEvents(OutputFormat):
    """Events to CloudEvents, as ``OutputFormat`` asks for them.

    ``values``: what the events were written with; ``form``: how values stand in JSON. ``in_records``: they go to Kafka,
    else in documents, which hold one event if they are in binary mode.
    """

    def __init__(
        self,
        mode: str,
        source: str,
        event_type: str,
        values: ValueOptions,
        form: JsonForm = JSON_FORM,
        dataschema: str | None = None,
        *,
        in_records: bool = False,
    ) -> None:
        self._form, self._dataschema = form, dataschema
        self.mode, self._in_records, self._values = mode, in_records, values
        self._source, self._type_of = source, type_writer(event_type)
        self._read_time = time_reader(values.time_zone)
        self._of_catalog: tuple[Catalog, DataOf, ReadOutgoing] | None = None
        self._latest: tuple[str | None, str | None] = None, None

    @property
    def needs_origins(self) -> bool:
        """Time and user of an event are those of its first row."""
        return True

    def document(self, catalog: Catalog, flight: Flight, envelope: int, events: Sequence[Outgoing]) -> Document:
        ids = sent_ids(events)
        written = self.events(catalog, events, flight.origins)
        body, media_type = "", STRUCTURED_TYPE
        headers: tuple[tuple[str, str], ...] = ()
        records: list[tuple[KafkaRecord, ...]] = []
        if self._in_records:
            keys = map(association_of, events)
            records = [(self._record(key.encode(), event),) for key, event in zip(keys, written, strict=True)]
        elif self.mode == BINARY:
            (event,) = written
            body, media_type, headers = event.data, DATA_TYPE, _http_headers(event)
        elif self.mode == BATCHED:
            body, media_type = f"[{','.join(event.text() for event in written)}]\n", BATCHED_TYPE
        else:
            body = "".join(f"{event.text()}\n" for event in written)
        return Document(
            flight.number, envelope, ids, body, records, lambda: tuple(map(public_event, events)), media_type, headers
        )

    def preview(self, catalog: Catalog, flight: Flight, events: Sequence[Outgoing]) -> str:
        """The events as lines, in whatever mode they are sent."""
        return "".join(f"{event.text()}\n" for event in self.events(catalog, events, flight.origins))

    def events(self, catalog: Catalog, events: Sequence[Outgoing], origins: Origins) -> list[CloudEvent]:
        if self._of_catalog is None or self._of_catalog[0] is not catalog:
            self._of_catalog = (
                catalog,
                data_writer(catalog, self._values, self._form),
                outgoing_reader(catalog, self._values),
            )
        _, write_data, read = self._of_catalog
        written = []
        for event in events:
            event_time, user = of_first_row(event, origins.event_times), of_first_row(event, origins.users)
            data = write_data(event, user)
            if data is None:
                assert event.object_id is not None
                try:
                    change = read(event, None, user)
                except FormatError:  # a value that Python cannot hold as its type
                    change = self._of_texts(event, user)
                data = data_text(change, types_of(event.object_id[0]), self._form)
            written.append(self._event(catalog, event, event_time, data))
        return written

    def _event(self, catalog: Catalog, event: Outgoing, event_time: str | None, data: str) -> CloudEvent:
        assert event.object_id is not None
        assert event.operation is not None
        object_class, _ = event.object_id
        event_type = self._type_of(OPERATIONS[event.operation], catalog.schema, object_class.name)
        subject = subject_of(association_of(event))
        dataschema = schema_uri(self._dataschema, catalog.schema, object_class.name)
        time = self._time_of(event_time)
        return _new(CloudEvent, (event.sent_id, self._source, event_type, subject, time, data, dataschema))

    def _time_of(self, event_time: str | None) -> str | None:
        """The time of an event: that of its first row. The rows of a transaction, which come together, have one."""
        if event_time is None:
            return None
        known, time = self._latest
        if event_time != known:
            moment = self._read_time(event_time)
            time = None if moment is None else utc_text(moment)
            self._latest = event_time, time
        return time

    def _of_texts(self, event: Outgoing, user: str | None) -> Change:
        """The change of an event with a value that Python cannot hold as its type: its values are texts of the log."""
        public = public_event(event)
        as_strings = tuple(
            one._replace(
                value_type="string",
                steps=tuple(
                    Step(op, tuple(map(referenced_key, texts)) if one.value_type == "dn" else texts)
                    for op, texts in one.steps
                ),
            )
            for one in public.attributes
        )
        change = event_to_change(public._replace(attributes=as_strings), None, self._values)
        return change._replace(user=user)

    def _record(self, key: bytes, event: CloudEvent) -> KafkaRecord:
        """A record of Kafka protocol binding 1.0.2: binary content mode (3.2), or structured (3.3)."""
        if self.mode != BINARY:
            headers = ((_CONTENT_TYPE, STRUCTURED_TYPE.encode()),)
            return KafkaRecord(None, key, event.text().encode(), headers)
        attributes = ((f"ce_{name}", value.encode()) for name, value in event.attributes().items())
        return KafkaRecord(None, key, event.data.encode(), ((_CONTENT_TYPE, DATA_TYPE.encode()), *attributes))


def _http_headers(event: CloudEvent) -> tuple[tuple[str, str], ...]:
    """The attributes of an event of binary content mode (HTTP protocol binding 1.0.2, 3.1.3)."""
    return tuple((f"ce-{name}", _in_header(value)) for name, value in event.attributes().items())


_TO_BE_ENCODED: Final = re.compile(r'[^!-~]|["%]')


def _in_header(value: str) -> str:
    """A value percent-encoded as HTTP protocol binding 1.0.2, 3.1.3.2 says: blank, quote, percent, beyond ASCII."""
    return _TO_BE_ENCODED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), value)
