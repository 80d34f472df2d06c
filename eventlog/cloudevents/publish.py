"""A publisher's events in the format ``cloudevents``: documents for HTTP and files, records for
Kafka (formats/cloudevents.md 2, 3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final
from urllib.parse import quote

from eventlog.changes.publishing import (
    DeliveryState,
    EventWriter,
    Need,
    Publishing,
    text_of_first_row,
    time_reader,
)
from eventlog.changes.to_events import association_text
from eventlog.cloudevents.events import (
    DATA_TYPE,
    CloudEvent,
    attribute_writer,
    batch_line,
    data_reader,
    event_writer,
)
from eventlog.cloudevents.options import (
    BATCHED,
    BINARY,
    STRUCTURED,
    FileOptions,
    PublishOptions,
    mode_of,
)
from eventlog.cloudevents.values import JsonEncoding
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.rows.events import Outgoing, association_of
from eventlog.core.rows.transaction_ids import transaction_text
from eventlog.errors import FormatError
from eventlog.model import Change, EventResult, KafkaRecord, KafkaRecords, Level

# The charset is in lower case, because the SDK of npm compares the content type of a single event
# as text, and refuses UTF-8. The case has no meaning (RFC 2046 4.1.2).
STRUCTURED_TYPE: Final = "application/cloudevents+json; charset=utf-8"
BATCHED_TYPE: Final = "application/cloudevents-batch+json; charset=utf-8"

_CONTENT_TYPE: Final = "content-type"


def source_of(publishing: Publishing) -> str:
    """Return the attribute ``source`` of a log's events: database, schema and log
    (formats/cloudevents.md 3).
    """
    database = re.split(r"[/\\]", publishing.database)[-1]
    parts = database, publishing.schema, publishing.log
    return "".join(f"/{quote(part, safe='')}" for part in parts if part)


class CloudEventWriter(EventWriter[CloudEvent]):
    """A writer of events as CloudEvents, in the chosen mode or, if none is chosen, in the usual
    mode of the sink (formats/cloudevents.md 2).
    """

    needs = frozenset({Need.TIMES})
    joins_new_key = True

    def __init__(self, options: FileOptions, publishing: Publishing) -> None:
        chosen = options.mode if isinstance(options, PublishOptions) else STRUCTURED
        self.mode, self.in_records = mode_of(chosen, publishing), publishing.in_records
        self.is_single = publishing.in_messages and self.mode != BATCHED
        encoding = JsonEncoding(options.integers, options.nested_values)
        source = options.source or source_of(publishing)
        self._with_data = attribute_writer(source, options.event_type, options.dataschema)
        self._event_of = event_writer(source, options.event_type, encoding, options.dataschema)
        self._time_of = time_reader(publishing.values.time_zone)
        self._reader_of = lru_cache(maxsize=1)(
            partial(data_reader, values=publishing.values, encoding=encoding)
        )

    def write(
        self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]
    ) -> list[CloudEvent | EventResult]:
        data_of_event = self._reader_of(catalog)
        times, users, transactions = delivery.origins
        written: list[CloudEvent | EventResult] = []
        for event in events:
            time = self._time_of(text_of_first_row(event, times))
            user = text_of_first_row(event, users)
            transaction = transaction_text(event, transactions) if transactions else None
            subject, data = association_of(event), data_of_event(event, user, transaction)
            try:
                written.append(self._with_data(event.sent_id, subject, time, data))
            except FormatError as error:
                written.append(EventResult(Level.ERROR, str(error)))
        return written

    def body(self, pieces: Sequence[CloudEvent]) -> bytes:
        if self.mode == BINARY:
            (event,) = pieces
            return event.data_bytes()
        return batch_line(pieces) if self.mode == BATCHED else _lines(pieces)

    def media_type_of(self, pieces: Sequence[CloudEvent]) -> str:
        return {BINARY: DATA_TYPE, BATCHED: BATCHED_TYPE}.get(self.mode, STRUCTURED_TYPE)

    def headers_of(self, pieces: Sequence[CloudEvent]) -> tuple[tuple[str, str], ...]:
        if self.mode != BINARY:
            return ()
        # The attributes of the event (HTTP protocol binding 1.0.2, 3.1.3).
        attributes = pieces[0].attributes()
        return tuple((f"ce-{name}", _in_header(value)) for name, value in attributes.items())

    def records(self, key: bytes, piece: CloudEvent) -> KafkaRecords:
        """Return a record of Kafka protocol binding 1.0.2, in binary content mode (3.2) or in
        structured content mode (3.3).
        """
        if self.mode != BINARY:
            headers = ((_CONTENT_TYPE, STRUCTURED_TYPE.encode()),)
            return (KafkaRecord(None, key, piece.whole_bytes(), headers),)
        attributes = ((f"ce_{name}", value.encode()) for name, value in piece.attributes().items())
        return (
            KafkaRecord(
                None, key, piece.data_bytes(), ((_CONTENT_TYPE, DATA_TYPE.encode()), *attributes)
            ),
        )

    def piece_of(
        self, change: Change, event_id: str, object_class: ObjectClass | None
    ) -> CloudEvent:
        key = change.key
        subject = None if key is None else association_text(change, key, object_class)
        return self._event_of(change, event_id, subject, object_class)

    def shown(self, piece: CloudEvent) -> str:
        return piece.whole_bytes().decode()

    def preview(self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]) -> str:
        """Return the events as lines of structured JSON, also if they are sent in another mode."""
        written = self.write(catalog, delivery, events)
        return _lines([event for event in written if isinstance(event, CloudEvent)]).decode()


def _lines(events: Sequence[CloudEvent]) -> bytes:
    return b"".join(event.whole_bytes() + b"\n" for event in events)


_TO_BE_ENCODED: Final = re.compile(r'[^!-~]|["%]')


def _in_header(value: str) -> str:
    """Percent-encode blanks, quotes, percent signs and characters beyond ASCII of a value, as HTTP
    protocol binding 1.0.2, 3.1.3.2, requires.
    """
    return _TO_BE_ENCODED.sub(
        lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), value
    )
