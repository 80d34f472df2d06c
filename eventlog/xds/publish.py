"""A publisher's events in the format ``xds``: an envelope a line, an envelope a document of its own, or an envelope a
record of one event (spec/xds.md 2).
"""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.changes.publishing import EventWriter, FlightState, Publishing
from eventlog.core.catalog import Catalog
from eventlog.core.events import Outgoing
from eventlog.model import Document, Event
from eventlog.xds.writer import HEARTBEAT, Header, file_form, line_form, write_event, write_outgoing

MEDIA_TYPE = "application/xml; charset=utf-8"


class XdsWriter(EventWriter[str]):
    """Events to XDS documents. A piece is an event's element. ``indent``: of documents that stand on their own."""

    media_type = MEDIA_TYPE
    is_framed = True

    def __init__(self, header: Header, publishing: Publishing = Publishing(), indent: int = 0) -> None:  # noqa: B008 - frozen
        self.in_records = publishing.in_records
        self._header, self._indent = header, indent
        self._is_line = publishing.in_records or publishing.layout == "lines"
        self.heartbeat = self.body([HEARTBEAT])

    def write(self, catalog: Catalog, flight: FlightState, events: Sequence[Outgoing]) -> list[str]:  # type: ignore[override]
        return list(map(write_outgoing, events))

    def body(self, pieces: Sequence[str]) -> bytes:
        if self._is_line:
            return line_form(pieces, self._header).encode()
        return file_form(pieces, self._header, self._indent).encode()

    def preview(self, catalog: Catalog, flight: FlightState, events: Sequence[Outgoing]) -> str:
        pieces = self.write(catalog, flight, events)
        if self.in_records:
            return "".join(self.body([piece]).decode() for piece in pieces)
        return self.body(pieces).decode()

    def document_of(self, flight: int, envelope: int, events: Sequence[Event]) -> Document:
        """Return the document of events that come in their public form, from a source that is no log."""
        ids, pieces = [event.event_id for event in events], list(map(write_event, events))
        if not self.in_records:
            return Document(flight, envelope, ids, self.body(pieces), (), lambda: tuple(events), self.media_type)
        records = [self.records(event.association.encode(), piece) for event, piece in zip(events, pieces, strict=True)]
        return Document(flight, envelope, ids, b"", records, lambda: tuple(events))
