"""Output formats: what a publisher writes its events as. XDS stands here.

Each other format is a module of its name here, with a function ``open_format`` that takes the configuration and the
log; its options stand in ``config.settings.FormatSettings``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, Literal, Protocol

from eventlog.cloudevents.options import BATCHED, mode_of
from eventlog.config.load import Config, connection_url
from eventlog.config.settings import CLOUDEVENTS, SINKS
from eventlog.core.catalog import Attribute, Catalog, ObjectClass, ObjectId
from eventlog.core.events import CurrentRow, Fates, Outgoing, QueryBack, association_of, public_event, sent_ids
from eventlog.core.options import options_of, same_fields
from eventlog.core.typed import moment_reader
from eventlog.core.values import ValueOptions
from eventlog.errors import BadValue
from eventlog.model import Event, KafkaRecord, Operation
from eventlog.publisher.flight import Flight
from eventlog.publisher.sinks import Document
from eventlog.sql.connection import parse_url
from eventlog.sql.log_table import LogTable
from eventlog.xds.writer import HEARTBEAT, Header, file_form, line_form, write_event, write_outgoing

CurrentRows = Mapping[ObjectId, CurrentRow]
"""Rows of objects as they are now, by object."""


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

    def first(self, flight: int, before: str, raised: datetime | None) -> str:
        """What a flight's line keeps so that its events are numbered alike whenever they are sent
        (spec/event-log.md 10); empty if the format does not number. ``before``: that of the flight before, empty if
        none is known; ``raised``: when the log's epoch was drawn, None without one.
        """
        return ""

    def document(self, catalog: Catalog, flight: Flight, envelope: int, events: Sequence[Outgoing]) -> Document:
        """The document of one envelope. Every event has an operation. Raises ReceiverAway."""
        ...

    def preview(self, catalog: Catalog, flight: Flight, events: Sequence[Outgoing]) -> str:
        """What a document of these events of a flight would look like, for people: what will be sent, but that a flight
        which is not recorded has no number yet.
        """
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

    def preview(self, catalog: Catalog, flight: Flight, events: Sequence[Outgoing]) -> str:
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


# --- whole rows, for formats whose consumers store them (spec/debezium.md 4) ------------------------------------------


def row_attributes(cls: ObjectClass) -> tuple[Attribute, ...]:
    """The attributes that are columns of the class's one row, without its key."""
    return tuple(
        one for one in cls.attributes if not one.is_key and not one.multi_valued and one.table == cls.table.name
    )


def read_whole_rows(events: Sequence[Outgoing], query_back: QueryBack) -> tuple[list[Outgoing], CurrentRows]:
    """Events, and the rows of those that do not say all of theirs, read by one statement a class.

    A modify whose object is gone makes no event: its rows are gone, as of spec/event-log.md 7.2.
    """
    columns: dict[ObjectClass, tuple[Attribute, ...]] = {}
    keys: dict[ObjectClass, dict[str, None]] = {}
    lacking: set[str] = set()
    for event in events:
        if event.object_id is None or event.operation not in (Operation.ADD, Operation.MODIFY):
            continue
        object_class, key = event.object_id
        if object_class not in columns:
            columns[object_class] = row_attributes(object_class)
        known = {attribute for _, _, _, attribute, _, _ in event.steps or ()}
        if not known.issuperset(columns[object_class]):
            keys.setdefault(object_class, {})[key] = None
            lacking.add(event.event_id)
    current = {
        (object_class, key): row
        for object_class, wanted in keys.items()
        for key, row in query_back(object_class, list(wanted), columns[object_class]).items()
    }
    return [
        _gone(event)
        if event.operation == Operation.MODIFY and event.event_id in lacking and event.object_id not in current
        else event
        for event in events
    ], current


def _gone(event: Outgoing) -> Outgoing:
    fates = event.fates or Fates(event.ids)
    return event._replace(
        operation=None, steps=(), fates=fates._replace(contributed=(), gone=[*fates.gone, *fates.contributed])
    )


# --- from the configuration -------------------------------------------------------------------------------------------


def output_format(config: Config, log: LogTable) -> OutputFormat:
    """What the events of a log are written as. Raises ConfigError.

    Only the module of the format is loaded: each brings libraries of its own.
    """
    if config.format.type in ("xds", "qlik-change-table"):  # change tables: only a backlog job writes them, to files
        return xds_format(config)
    module = import_module(f"{__name__}.{config.format.type.replace('-', '_')}")
    output: OutputFormat = module.open_format(config, log)
    return output


def xds_format(config: Config) -> XdsFormat:
    """XDS documents in the form that the sink takes."""
    header = Header(config.format.product_name, config.format.product_version)
    form: Form = "lines" if config.sink.form == "lines" else "documents"
    return XdsFormat(header, "records" if SINKS[config.sink.type].takes_records else form, config.format.indent)


def ignored_indent(config: Config) -> str | None:
    """What is said of an ``indent`` that has no effect: envelopes of form ``lines``, and messages, are not indented."""
    if not config.format.indent:
        return None
    if config.format.type != "xds" or SINKS[config.sink.type].takes_records:
        return (
            f"{config.sources['format.indent']} has no effect: what is no XDS, and what goes to Kafka, is not indented"
        )
    if config.sink.form == "lines":
        return (
            f'{config.sources["format.indent"]} has no effect with form = "lines", which writes an envelope on one '
            'line: set form = "documents" in [sink], or leave indent out'
        )
    return None


def value_options(config: Config) -> ValueOptions:
    """How values are written. Only XDS has its types of times, which lose a fraction, and only XML lacks characters."""
    settings = config.format
    time_syntax, characters = (settings.time_syntax, "xml") if settings.type == "xds" else ("full", "unicode")
    return ValueOptions(time_syntax, settings.time_zone, settings.char_padding, settings.special_times, characters)


def configured_options(config: Config, kind: type) -> dict[str, Any]:
    """What the configuration says of a writer's options of this kind: [format], the topic, the database's name."""
    options = same_fields(config.format, kind)
    names = options_of(kind)
    if "topic" in names:
        options["topic"] = config.sink.topic
    if "database" in names:
        options["database"] = parse_url(connection_url(config.database)).database or ""
    return options


def cloudevents_mode(config: Config) -> str:
    """The mode of CloudEvents (spec/cloudevents.md 2)."""
    return mode_of(config.format.mode, config.sink.type, config.sink.form)


def is_single(config: Config) -> bool:
    """Whether a document is one event: CloudEvents over HTTP and to functions that are not batched."""
    is_cloudevent = config.format.type == CLOUDEVENTS and SINKS[config.sink.type].takes_several
    return is_cloudevent and cloudevents_mode(config) != BATCHED
