"""What a publisher writes its events as: XDS documents, CloudEvents, or records such as Qlik messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from eventlog.core.catalog import Catalog
from eventlog.core.events import Outgoing, association_of, public_event, sent_ids
from eventlog.core.typed import moment_reader
from eventlog.errors import BadValue
from eventlog.model import Event, KafkaRecord
from eventlog.publisher.flight import Flight
from eventlog.publisher.sinks import Document
from eventlog.publisher.whole_rows import CurrentRows
from eventlog.xds.writer import HEARTBEAT, Header, file_form, line_form, write_event, write_outgoing


class OutputFormat(Protocol):
    """Events to what a sink takes. Formats extend it, and say what is not as here."""

    @property
    def heartbeat(self) -> str:
        """What is sent when nothing else was for long, empty if the format has no such thing."""
        return ""

    @property
    def needs_origins(self) -> bool:
        """Whether ``Flight.origins`` is needed for the first row of each event."""
        return False

    @property
    def needs_current_rows(self) -> bool:
        """Whether ``Flight.current_rows`` is, for every event that does not say all columns of its row."""
        return False

    def first(self, flight: int, before: str) -> str:
        """What a flight's line keeps so that its events are numbered alike whenever they are sent
        (spec/event-log.md 10); empty if the format does not number. ``before``: that of the flight before, empty if
        none is known.
        """
        return ""

    def document(self, catalog: Catalog, flight: Flight, envelope: int, events: Sequence[Outgoing]) -> Document:
        """The document of one envelope. Every event has an operation. Raises ReceiverAway."""
        ...

    def preview(self, catalog: Catalog, events: Sequence[Outgoing], current_rows: CurrentRows) -> str:
        """What a document of these events would look like, for people. ``current_rows`` as of a flight."""
        ...

    def forget(self) -> None:
        """What was given since the last flush may not have come to the receiver."""
        return None  # noqa: RET501 - an empty body would be abstract


def of_first_row(event: Outgoing, texts: Mapping[int, str | None]) -> str | None:
    """The text of an event's first row; of one that is built again of the first that is still N."""
    first = event.ids[0]
    if first in texts:
        return texts[first]
    return next((texts[record_id] for record_id in event.ids if record_id in texts), None)


def time_reader(time_zone: str) -> Callable[[str | None], datetime | None]:
    """A function that reads when an event happened: at the time of its first row, None if that is not known.

    ``time_zone``: that of event_time, as of the option.
    """
    read = moment_reader(time_zone)

    def time_of(event_time: str | None) -> datetime | None:
        if event_time is None:
            return None
        try:
            return read(event_time)
        except BadValue:
            return None

    return time_of


Form = Literal["lines", "documents", "records"]


@dataclass(frozen=True, slots=True)
class XdsFormat(OutputFormat):
    """XDS documents: an envelope a line, an envelope a document of its own, or an envelope a record of one event."""

    header: Header
    form: Form = "lines"
    indent: int = 0

    @property
    def heartbeat(self) -> str:
        """The heartbeat (spec/xds.md 7)."""
        return self._body([HEARTBEAT])

    def document(self, catalog: Catalog, flight: Flight, envelope: int, events: Sequence[Outgoing]) -> Document:
        ids, texts = sent_ids(events), list(map(write_outgoing, events))
        associations = map(association_of, events)
        return self._document(
            flight.number, envelope, ids, associations, texts, lambda: tuple(map(public_event, events))
        )

    def document_of(self, flight: int, envelope: int, events: Sequence[Event]) -> Document:
        """The document of events that come in their public form, from a source that is no log."""
        ids = [event.event_id for event in events]
        associations = (event.association for event in events)
        return self._document(
            flight, envelope, ids, associations, list(map(write_event, events)), lambda: tuple(events)
        )

    def preview(self, catalog: Catalog, events: Sequence[Outgoing], current_rows: CurrentRows) -> str:
        texts = list(map(write_outgoing, events))
        return "".join(map(self._line, texts)) if self.form == "records" else self._body(texts)

    def _document(
        self,
        flight: int,
        envelope: int,
        ids: Sequence[str],
        associations: Iterable[str],
        texts: Sequence[str],
        make_events: Callable[[], tuple[Event, ...]],
    ) -> Document:
        if self.form != "records":
            return Document(flight, envelope, ids, self._body(texts), (), make_events)
        records = tuple(
            (KafkaRecord(None, association.encode(), self._line(text).rstrip("\n").encode()),)
            for association, text in zip(associations, texts, strict=True)
        )
        return Document(flight, envelope, ids, "", records, make_events)

    def _body(self, texts: Sequence[str]) -> str:
        if self.form == "documents":
            return file_form(texts, self.header, self.indent)
        return line_form(texts, self.header)

    def _line(self, text: str) -> str:
        return line_form((text,), self.header)
