"""A publisher's events in the format ``xds``: one XDS document per line, per document of the
publisher, or per record, which has one event (spec/xds.md 2).
"""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.changes.publishing import DeliveryState, EventWriter, Publishing
from eventlog.changes.to_events import EventWriting, change_to_events
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.rows.events import Outgoing
from eventlog.model import Change
from eventlog.xds.writer import HEARTBEAT, Header, file_form, line_form, write_event, write_outgoing

MEDIA_TYPE = "application/xml; charset=utf-8"


class XdsWriter(EventWriter[str]):
    """A writer of events as XDS documents. A piece is an event's element. ``indent`` applies to
    documents that have a file each.
    """

    media_type = MEDIA_TYPE
    is_framed = True

    def __init__(
        self,
        header: Header,
        publishing: Publishing = Publishing(),  # noqa: B008
        indent: int = 0,
    ) -> None:
        self.in_records = publishing.in_records
        self._header, self._indent = header, indent
        self._catalog = publishing.catalog
        self._writing = EventWriting(
            publishing.values,
            old_unreadable=lambda column: publishing.count(f"old_unreadable {column}"),
        )
        self._is_line = publishing.in_records or publishing.file_layout == "lines"
        self.heartbeat = self.body([HEARTBEAT])

    def write(  # type: ignore[override]
        self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]
    ) -> list[str]:
        return list(map(write_outgoing, events))

    def body(self, pieces: Sequence[str]) -> bytes:
        if self._is_line:
            return line_form(pieces, self._header).encode()
        return file_form(pieces, self._header, self._indent).encode()

    def preview(self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]) -> str:
        pieces = self.write(catalog, delivery, events)
        if self.in_records:
            return "".join(self.body([piece]).decode() for piece in pieces)
        return self.body(pieces).decode()

    def piece_of(
        self, change: Change, event_id: str, object_class: ObjectClass | None
    ) -> str | None:
        events = change_to_events(change, event_id, self._catalog, self._writing)
        return write_event(events[0]) if events else None
