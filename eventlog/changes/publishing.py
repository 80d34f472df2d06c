"""The base of the writers, which turn events into the documents that sinks send.

A format's ``publish`` returns an ``EventWriter``. The writer makes a *piece* of each event, and
combines the pieces of a document: into a body of bytes, or into records of Kafka.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import ClassVar, Final, Generic, Protocol, TypeVar, cast

from eventlog.core.catalog import Attribute, Catalog, ObjectClass, ObjectId
from eventlog.core.clock import utc_now
from eventlog.core.rows.events import (
    CurrentRow,
    Outgoing,
    QueryBack,
    RowOutcomes,
    association_of,
    exists_for_reader,
    public_event,
    sent_ids,
)
from eventlog.core.values import ValueOptions
from eventlog.core.values.typed_values import moment_reader
from eventlog.errors import BadValue, WrongResult, check_result
from eventlog.model import (
    Change,
    Document,
    EventResult,
    KafkaRecord,
    KafkaRecords,
    Operation,
    Origins,
)

CurrentRows = Mapping[ObjectId, CurrentRow]
"""The current rows of objects, by object."""


class Need(Enum):
    """What a writer needs from the engine in addition to the events."""

    TIMES = "time, user and transaction of each event: DeliveryState.origins"
    WHOLE_ROWS = "the current row for each event without all columns: DeliveryState.current_rows"
    NUMBERS = "a number for each event that stays the same whenever it is sent: DeliveryState.first"


class DeliveryState(Protocol):
    """The part of a delivery's state that a writer needs to write its events."""

    @property
    def number(self) -> int: ...

    @property
    def first(self) -> str: ...

    @property
    def origins(self) -> Origins: ...

    @property
    def current_rows(self) -> CurrentRows: ...


def _ignore(reason: str) -> None:
    pass


_FULL: Final = ValueOptions("full", characters="unicode")


@dataclass(frozen=True, slots=True)
class Publishing:
    """The source of a writer's events, and what the sink of its documents can do."""

    values: ValueOptions = _FULL
    """The options with which values were converted to text."""
    database: str = ""
    schema: str | None = None
    log: str = ""
    """The names of the source: its database, its schema and its log."""
    topic: str | None = None
    """The configured topic of the sink."""
    file_layout: str = "lines"
    """``lines`` if documents follow one another in a file, ``documents`` if each has its own file.
    """
    in_records: bool = False
    """True if the sink takes records of Kafka."""
    in_messages: bool = False
    """True if each document is sent as a message with its own answer."""
    has_headers: bool = False
    """True if headers are sent with each document."""
    catalog: Catalog | None = None
    """The classes of a followed source, for keys and types; None = unknown. Events of a log have
    their own classes.
    """
    utc_now: Callable[[], datetime] = utc_now
    """The clock."""
    count: Callable[[str], None] = _ignore
    """A function that is called with a reason of a report (such as ``old_unreadable table.column``)
    for everything that a written event leaves out.
    """


P = TypeVar("P")


class EventWriter(ABC, Generic[P]):
    """A writer of events as documents. A format's writer extends this class with ``write``,
    ``body`` and ``piece_of``, and overrides the defaults that differ.
    """

    media_type: str = "application/octet-stream"
    """The media type of bodies."""
    heartbeat: bytes = b""
    """The body that is sent if there were no events for a long time; empty if the format has no
    such body.
    """
    needs: frozenset[Need] = frozenset()
    is_framed: ClassVar[bool] = False
    """True if a body is more than the concatenation of its pieces."""
    is_text: ClassVar[bool] = True
    """True if bodies are text in UTF-8."""
    is_single: bool = False
    """True if a document holds one event."""
    in_records: bool = False
    pieces_are_records: ClassVar[bool] = False
    """True if a piece is the records of its event, which have their own keys."""
    joins_new_key: ClassVar[bool] = False
    """True if a change of a row's key is one event, False if it is a delete and an insert."""

    @abstractmethod
    def write(
        self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]
    ) -> list[P | EventResult]:
        """Return the piece of each event, or an error result for an event that the format cannot
        hold.

        Every event must have an operation. Raises ReceiverUnavailable if a registry does not
        answer.
        """

    @abstractmethod
    def body(self, pieces: Sequence[P]) -> bytes:
        """Return the body that holds these pieces. There is at least one piece."""

    def body_of(self, pieces: Sequence[P]) -> bytes:
        """Return the result of ``body`` for these pieces. Raises WrongResult if the body is not
        bytes.
        """
        body = self.body(pieces)
        check_result(self.body, body, bytes, "bytes")
        return body

    def pieces(
        self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]
    ) -> list[P | EventResult]:
        """Return the pieces that ``write`` makes of the events. Raises WrongResult unless ``write``
        returns one piece per event.
        """
        written = self.write(catalog, delivery, events)
        check_result(self.write, written, list | tuple, "a list of pieces")
        if len(written) != len(events):
            raise WrongResult(
                self.write,
                f"returned {len(written)} pieces of {len(events)} events; exactly one piece per "
                "event is needed",
            )
        return written

    def records(self, key: bytes, piece: P) -> KafkaRecords:
        """Return the records of an event. ``key`` is the association of the event's object."""
        return (KafkaRecord(None, key, self.body_of([piece]).rstrip(b"\n")),)

    def records_of(
        self, pieces: Sequence[P | EventResult], keys: Callable[[], Iterable[bytes]]
    ) -> Sequence[KafkaRecords | EventResult]:
        """Return, for each event, its records or its error result. ``keys`` returns the
        associations of the events' objects, and is called only if they are needed.
        """
        if self.pieces_are_records:
            return cast("Sequence[KafkaRecords | EventResult]", pieces)
        return [
            piece if isinstance(piece, EventResult) else self.records(key, piece)
            for key, piece in zip(keys(), pieces, strict=True)
        ]

    def document(
        self,
        catalog: Catalog,
        delivery: DeliveryState,
        document_no: int,
        events: Sequence[Outgoing],
    ) -> Document:
        """Return the document with these events. ``document_no`` is the number of the document in
        the delivery. Raises as ``write`` does.
        """
        ids, written = sent_ids(events), self.pieces(catalog, delivery, events)
        if self.in_records:
            records = self.records_of(
                written, lambda: [association_of(event).encode() for event in events]
            )
            return Document(
                delivery.number,
                document_no,
                ids,
                b"",
                records,
                lambda: tuple(map(public_event, events)),
            )
        pieces = [one for one in written if not isinstance(one, EventResult)]
        refused: dict[str, EventResult] = {}
        if len(pieces) < len(written):
            refused = {
                event_id: one
                for event_id, one in zip(ids, written, strict=True)
                if isinstance(one, EventResult)
            }
            events = [
                event
                for event, one in zip(events, written, strict=True)
                if not isinstance(one, EventResult)
            ]
        return Document(
            delivery.number,
            document_no,
            ids,
            self.body_of(pieces) if pieces else b"",
            (),
            lambda: tuple(map(public_event, events)),
            self.media_type_of(pieces),
            self.headers_of(pieces),
            refused,
        )

    # --- the changes of a followed source ---

    @abstractmethod
    def piece_of(self, change: Change, event_id: str, object_class: ObjectClass | None) -> P | None:
        """Return the piece of a change, None if the format writes no piece for it. The caller
        passes changes in order.

        ``object_class`` is the class of the change's table, None = unknown. Raises FormatError and
        RowError, and ReceiverUnavailable if a registry does not answer.
        """

    @property
    def numbered(self) -> str:
        """The numbers that the changes so far have used, empty if the format has no numbers
        (spec/change-model.md 6.3).
        """
        return ""

    def resume(self, numbered: str) -> None:
        """Continue numbering after ``numbered``, a value that the property ``numbered`` had
        earlier.
        """

    def shown(self, piece: P) -> str:
        """Return the event of a piece as text, for the record of a refused event and for people."""
        return self.body_of([piece]).decode("utf-8", "backslashreplace")

    # --- about pieces ---

    def media_type_of(self, pieces: Sequence[P]) -> str:
        """Return the media type of the body of these pieces."""
        return self.media_type

    def headers_of(self, pieces: Sequence[P]) -> tuple[tuple[str, str], ...]:
        """Return the headers that go with the body of these pieces."""
        return ()

    def preview(self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]) -> str:
        """Return the document of these events as a preview for people. The preview equals the
        document that will be sent, except that a delivery that is not recorded yet has no number.
        """
        return "".join(
            f"# {one.message}\n"
            if isinstance(one, EventResult)
            else self.body_of([one]).decode("utf-8", "backslashreplace")
            for one in self.pieces(catalog, delivery, events)
        )

    def first(self, delivery_no: int, before: str, raised: datetime | None) -> str:
        """Return the numbering that a delivery records, so that its events get the same numbers
        whenever they are sent (spec/event-log.md 10); empty if the format has no numbers.

        ``before`` is the value of the previous delivery, empty if it is unknown. ``raised`` is the
        time when the log's present epoch began, None in the first epoch.
        """
        return ""

    @property
    def is_numbered(self) -> bool:
        """True if the format numbers events, so that it needs the delivery's number."""
        return type(self).first is not EventWriter.first

    def forget(self) -> None:
        """Record that the receiver may not have got all pieces since the last flush."""

    def close(self) -> None:
        """Release the writer's resources, such as the connection to a registry."""


class NoWriter(EventWriter[None]):
    """The writer for a target without documents, such as a job that makes tables."""

    def write(
        self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]
    ) -> list[EventResult | None]:
        return [None] * len(events)

    def body(self, pieces: Sequence[None]) -> bytes:
        return b""

    def piece_of(self, change: Change, event_id: str, object_class: ObjectClass | None) -> None:
        return None


# --- functions that several formats share ---------------------------------------------------------


def text_of_first_row(event: Outgoing, texts: Mapping[int, str | None]) -> str | None:
    """Return the text of an event's first row. If the event is built again, its first row is the
    first of its rows that still has status N. An object of a snapshot has no rows; ``texts`` has
    its text under record_id 0.
    """
    first = event.ids[0] if event.ids else 0
    if first in texts:
        return texts[first]
    return next((texts[record_id] for record_id in event.ids if record_id in texts), None)


def time_reader(time_zone: str) -> Callable[[str | None], datetime | None]:
    """Return a function that reads the time of an event: the time of its first row, None if it is
    unknown.

    ``time_zone`` is the time zone of event_time, in the form of the option.
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


# --- whole rows, for formats whose consumers store them (formats/debezium.md 4) -------------------


def row_attributes(cls: ObjectClass) -> tuple[Attribute, ...]:
    """Return the attributes that are columns of the class's single row, without its key."""
    return tuple(
        one
        for one in cls.attributes
        if not one.is_key and not one.multi_valued and one.table == cls.table.name
    )


def read_whole_rows(
    events: Sequence[Outgoing], query_back: QueryBack
) -> tuple[list[Outgoing], CurrentRows]:
    """Return the events, and the current rows of the objects whose events lack columns. One
    statement per class reads these rows.

    A modify whose object no longer exists makes no event: its rows are *gone* and get S, as if
    their values had been read back (spec/event-log.md 7.2).
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
        if exists_for_reader(row)
    }
    return [
        _gone(event)
        if event.operation == Operation.MODIFY
        and event.event_id in lacking
        and event.object_id not in current
        else event
        for event in events
    ], current


def _gone(event: Outgoing) -> Outgoing:
    outcomes = event.outcomes or RowOutcomes(event.ids)
    return event._replace(
        operation=None,
        steps=(),
        outcomes=outcomes._replace(contributed=(), gone=[*outcomes.gone, *outcomes.contributed]),
    )
