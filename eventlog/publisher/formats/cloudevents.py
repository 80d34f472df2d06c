"""A publisher's events in the format ``cloudevents``: documents for HTTP and files, records for Kafka
(spec/cloudevents.md 2, 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

from sqlalchemy import URL

from eventlog.changes.events import ReadOutgoing, event_to_change, outgoing_reader
from eventlog.cloudevents.format import (
    DATA_TYPE,
    CloudEvent,
    batch_line,
    event_writer,
    referenced_key,
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
        self.mode, self._in_records, self._values = mode, in_records, values
        self._event_of = event_writer(source, event_type, form, dataschema)
        self._time_of = time_reader(values.time_zone)
        self._of_catalog: tuple[Catalog, ReadOutgoing] | None = None

    @property
    def needs_origins(self) -> bool:
        """Time and user of an event are those of its first row."""
        return True

    def document(self, catalog: Catalog, flight: Flight, envelope: int, events: Sequence[Outgoing]) -> Document:
        ids = sent_ids(events)
        written = self.events(catalog, events, flight.origins)
        body, media_type = b"", STRUCTURED_TYPE
        headers: tuple[tuple[str, str], ...] = ()
        records: list[tuple[KafkaRecord, ...]] = []
        if self._in_records:
            keys = map(association_of, events)
            records = [(self._record(key.encode(), event),) for key, event in zip(keys, written, strict=True)]
        elif self.mode == BINARY:
            (event,) = written
            body, media_type, headers = event.data_bytes(), DATA_TYPE, _http_headers(event)
        elif self.mode == BATCHED:
            body, media_type = batch_line(written), BATCHED_TYPE
        else:
            body = b"".join(event.whole_bytes() + b"\n" for event in written)
        return Document(
            flight.number,
            envelope,
            ids,
            body.decode(),
            records,
            lambda: tuple(map(public_event, events)),
            media_type,
            headers,
        )

    def preview(self, catalog: Catalog, flight: Flight, events: Sequence[Outgoing]) -> str:
        """The events as lines, in whatever mode they are sent."""
        return b"".join(event.whole_bytes() + b"\n" for event in self.events(catalog, events, flight.origins)).decode()

    def events(self, catalog: Catalog, events: Sequence[Outgoing], origins: Origins) -> Iterator[CloudEvent]:
        if self._of_catalog is None or self._of_catalog[0] is not catalog:
            self._of_catalog = catalog, outgoing_reader(catalog, self._values)
        _, read = self._of_catalog
        for event in events:
            assert event.object_id is not None
            time = self._time_of(of_first_row(event, origins.event_times))
            user = of_first_row(event, origins.users)
            try:
                change = read(event, time, user)
            except FormatError:  # a value that Python cannot hold as its type
                change = self._of_texts(event)._replace(commit_time=time, user=user)
            yield self._event_of(change, event.sent_id, association_of(event), event.object_id[0])

    def _of_texts(self, event: Outgoing) -> Change:
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
        return event_to_change(public._replace(attributes=as_strings), None, self._values)

    def _record(self, key: bytes, event: CloudEvent) -> KafkaRecord:
        """A record of Kafka protocol binding 1.0.2: binary content mode (3.2), or structured (3.3)."""
        if self.mode != BINARY:
            headers = ((_CONTENT_TYPE, STRUCTURED_TYPE.encode()),)
            return KafkaRecord(None, key, event.whole_bytes(), headers)
        attributes = ((f"ce_{name}", value.encode()) for name, value in event.attributes().items())
        return KafkaRecord(None, key, event.data_bytes(), ((_CONTENT_TYPE, DATA_TYPE.encode()), *attributes))


def _http_headers(event: CloudEvent) -> tuple[tuple[str, str], ...]:
    """The attributes of an event of binary content mode (HTTP protocol binding 1.0.2, 3.1.3)."""
    return tuple((f"ce-{name}", _in_header(value)) for name, value in event.attributes().items())


_TO_BE_ENCODED: Final = re.compile(r'[^!-~]|["%]')


def _in_header(value: str) -> str:
    """A value percent-encoded as HTTP protocol binding 1.0.2, 3.1.3.2 says: blank, quote, percent, beyond ASCII."""
    return _TO_BE_ENCODED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), value)
