"""The types that all layers share: a row of the log with its status and type, an event that is made
of rows, a change in the form that all formats share, and a record of a topic.

Millions of changes and of rows of the log are made, so both are tuples. ``log_row`` and ``Change``
are made by ``tuple.__new__``, without the Python frame of a named tuple's own constructor. A row of
the queue is a plain tuple, which readers unpack by position. The price: the fields of ``Change``
are listed twice, and readers of the queue rely on the order of ``QUEUE_FIELDS``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from eventlog.errors import InvalidChange, Reply


class EventType(IntEnum):
    """The eight event types of spec/event-log.md 3."""

    INSERT_FIELD = 1
    UPDATE_FIELD = 2
    UPDATE_FIELD_REMOVE_ALL = 3
    DELETE_ROW = 4
    INSERT_ROW_QUERY_BACK = 5
    UPDATE_ROW_QUERY_BACK = 6
    INSERT_FIELD_QUERY_BACK = 7
    UPDATE_FIELD_QUERY_BACK = 8


class Status(StrEnum):
    """The statuses of a row (spec/event-log.md 2).

    Any other status is reserved and stays unchanged.
    """

    NEW = "N"
    SUCCESS = "S"
    WARNING = "W"
    ERROR = "E"
    FATAL = "F"


def unpadded(status: object) -> str:
    """Return a status as the database has it, without the blanks by which CHAR(n) pads it
    (spec/event-log.md 2).
    """
    return str(status).rstrip(" ")


def is_status(text: str) -> bool:
    """Return True if a text can be the status of a row: one letter of ASCII."""
    return len(text) == 1 and text.isascii() and text.isalpha()


class LogRow(NamedTuple):
    """One row of the event log. The fields are in the order of layout 2.x (spec/event-log.md 1).

    A row is a bare tuple, since millions of rows are processed. ``event_time`` is text as the
    database writes it (``yyyy-mm-dd hh:mm:ss[.f]``); the publisher orders by this column in SQL and
    never parses the text.
    """

    record_id: int
    status: str
    event_type: int | None
    event_time: str | None
    perpetrator: str | None
    table_name: str | None
    table_key: str | None
    column_name: str | None
    old_value: str | None
    new_value: str | None
    transaction_id: str | None = None
    """The number of the transaction that wrote the row, as text of the database. None = unknown, as
    in every log without this column (spec/event-log.md 1.5).
    """


LOG_COLUMNS: Final = LogRow._fields[:-1]
"""The standard names of the ten columns that every log has, in the order of layout 2.x."""

log_row: Final = partial(tuple.__new__, LogRow)
"""A function that does the work of ``LogRow._make`` without a Python frame for each row."""

QueueRow: TypeAlias = tuple[
    int, int | None, str | None, str | None, str | None, str | None, str | None, str | None
]
"""The columns that are read from a row of the queue: record_id, event_type, perpetrator,
table_name, table_key, column_name, old_value, new_value.

The status of every row in the queue is N, and event_time only determines the order.
"""

QUEUE_FIELDS: Final = (
    "record_id", "event_type", "perpetrator", "table_name", "table_key", "column_name", "old_value",
    "new_value",
)  # fmt: skip

_queue_row = itemgetter(*map(LogRow._fields.index, QUEUE_FIELDS))

TIMED_FIELDS: Final = (*QUEUE_FIELDS, "event_time")
"""The columns that are read for a format that includes the time and the user of a change."""

TRACED_FIELDS: Final = (*TIMED_FIELDS, "transaction_id")
"""The ``TIMED_FIELDS``, and transaction_id, which are read if the log has transaction ids."""


class Origins(NamedTuple):
    """The times, writers and transactions of rows: event_time, perpetrator and transaction_id by
    record_id. ``transactions`` lacks the rows of a log without transaction ids.

    The values are bare texts, since millions of rows are processed: keeping an object for each row
    costs more than reading the row.
    """

    event_times: dict[int, str | None]
    users: dict[int, str | None]
    transactions: dict[int, str | None]


def origins_of(rows: Iterable[LogRow]) -> Origins:
    """Return the origins of whole rows."""
    rows = list(rows)
    return Origins(
        {row.record_id: row.event_time for row in rows},
        {row.record_id: row.perpetrator for row in rows},
        {row.record_id: row.transaction_id for row in rows},
    )


def queue_rows(rows: Iterable[LogRow]) -> Iterable[QueueRow]:
    """Return, for each whole row, the columns that are read from the queue."""
    return map(_queue_row, rows)


class All(Enum):
    """The old value of a step that removes all values of an attribute: remove-all-values
    (spec/xds.md 4.3).
    """

    ALL = "all"


ALL: Final = All.ALL


class Op(IntEnum):
    """The effect of a modify's step on its attribute. The order of the steps matters (spec/xds.md
    4.3).
    """

    REMOVE = 0
    REMOVE_ALL = 1
    ADD = 2


class Step(NamedTuple):
    """One step of an attribute: remove-value, remove-all-values (no values) or add-value."""

    op: Op
    values: tuple[str, ...]


class AttributeSteps(NamedTuple):
    """An attribute of an event, with the steps of this attribute in order. In an add, an attribute
    has one ``Op.ADD`` step.

    ``value_type`` is the XDS type of the attribute's values: string, int, state, octet, time or dn.
    A value of type time that is not a number of seconds is the text of a special time (spec/xds.md
    6.3).
    """

    name: str
    value_type: str
    steps: tuple[Step, ...]


class Operation(StrEnum):
    """The operation of an event."""

    ADD = "add"
    MODIFY = "modify"
    DELETE = "delete"


class Event(NamedTuple):
    """An add, modify or delete of one object, from which a document is written
    (spec/xds.md 3, 4).
    """

    operation: Operation
    class_name: str
    """The name of the class in the database's spelling."""
    association: str
    """The key of the object (spec/xds.md 5.1)."""
    event_id: str
    """The event-id, with ``.2`` and so on if the event is sent again (spec/event-log.md 7.4)."""
    attributes: tuple[AttributeSteps, ...] = ()


class ChangeOp(StrEnum):
    """The operation of a change (spec/change-model.md 1). REFRESH is a row of an initial load."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    TRUNCATE = "TRUNCATE"
    REFRESH = "REFRESH"


# Names of the module, since looking up an enumeration's members is slow.
_UPDATE, _DELETE, _TRUNCATE = ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.TRUNCATE


class Lob(NamedTuple):
    """A large object with opaque content."""

    data: bytes


Value: TypeAlias = (
    str
    | int
    | Decimal
    | float
    | bool
    | bytes
    | date
    | time
    | datetime
    | Lob
    | tuple[Any, ...]
    | None
)
"""A value of a column. None is NULL. A tuple holds the values of a multi-valued attribute; only
rows of a log, XDS and CloudEvents have tuples.
"""

Row: TypeAlias = Mapping[str, Value]
"""An image of a row: exactly its known columns."""


RowDict: TypeAlias = dict[str, Value]
"""A row as a dict, to which columns may be added."""
Key: TypeAlias = tuple[tuple[str, Value], ...]
"""The names and values of a row's key columns."""
TableName: TypeAlias = tuple[str | None, str]
"""The schema of a table, None if it is unknown, and the table's name."""
Names: TypeAlias = tuple[str, ...]
"""Names in an order, such as the names of columns."""
JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object, or a record of Avro or of a database that has the same form."""
JsonDict: TypeAlias = dict[str, Any]
"""A JSON object as a dict, to which members may be added."""


class _ChangeFields(NamedTuple):
    schema: str | None
    """The schema or owner at the source."""
    table: str
    """The table or view, in the database's own case."""
    op: ChangeOp
    key: Key | None
    """The primary key in key order: of the new row, or for DELETE of the old row. None = unknown,
    or no key. A value of None is NULL.
    """
    before: Row | None
    """The known columns of the row before the change. A value of None is NULL."""
    after: Row | None
    """The known columns of the row after the change."""
    changed: frozenset[str] | None
    """For UPDATE, the columns whose value changed; empty = known to be none."""
    position: str | None
    """The place of the change in its source."""
    transaction_id: str | None
    """32 upper-case hex digits, or opaque text of the source."""
    event_number: int | None
    """1, 2, .. within the transaction, over all tables."""
    last_in_transaction: bool | None
    commit_time: datetime | None
    """The commit time, or the nearest time that the source has, with a zone, in UTC."""
    user: str | None
    """The user who made the change."""
    extras: Mapping[str, Any]
    """Facts that only one format has. Equality ignores the extras. Writers of other formats ignore
    them except ``query_back``, ``changed_unknown`` and ``stream_position``.
    """


NO_EXTRAS: Final[Mapping[str, Any]] = {}


def _check_delete(
    table: str, key: object, before: Row | None, after: Row | None, extras: Mapping[str, Any]
) -> None:
    if after is not None:
        raise InvalidChange("after", f"DELETE of {table!r} must not have an `after` row")
    if before is None and key is None and "part1" not in extras:
        raise InvalidChange("before", f"DELETE of {table!r} has neither a `before` row nor a key")


def _check_truncate(table: str, key: object, before: Row | None, after: Row | None) -> None:
    for name, value in (("before", before), ("after", after), ("key", key)):
        if value is not None:
            raise InvalidChange(name, f"TRUNCATE of {table!r} must not have {name}")


class Change(_ChangeFields):
    """One change of one row. Every format is read into changes and written from changes
    (spec/change-model.md 1). None = unknown.

    INSERT, REFRESH and UPDATE have ``after``, or ``extras`` with ``query_back`` or ``part1``.
    INSERT and REFRESH have no ``before``. Only UPDATE has ``changed``, a subset of ``after``.
    DELETE has no ``after``; it has ``before``, ``key``, or ``extras`` with ``part1``. TRUNCATE has
    no images and no key.

    A change is a tuple: millions are processed. ``_replace`` returns a changed copy, which is
    checked like a new change. Raises InvalidChange, which names the field.
    """

    __slots__ = ()

    def __new__(
        cls,
        schema: str | None,
        table: str,
        op: ChangeOp,
        key: Key | None = None,
        before: Row | None = None,
        after: Row | None = None,
        changed: frozenset[str] | None = None,
        position: str | None = None,
        transaction_id: str | None = None,
        event_number: int | None = None,
        last_in_transaction: bool | None = None,
        commit_time: datetime | None = None,
        user: str | None = None,
        extras: Mapping[str, Any] = NO_EXTRAS,
    ) -> Self:
        if op is not _UPDATE and changed is not None:
            raise InvalidChange(
                "changed", f"`changed` is allowed only on UPDATE, not on {op} of {table!r}"
            )
        if op is _DELETE:
            _check_delete(table, key, before, after, extras)
        elif op is _TRUNCATE:
            _check_truncate(table, key, before, after)
        else:
            if op is not _UPDATE and before is not None:
                raise InvalidChange("before", f"{op} of {table!r} must not have a `before` row")
            if after is None and "query_back" not in extras and "part1" not in extras:
                raise InvalidChange("after", f"{op} of {table!r} has no `after` row")
            if changed is not None and after is not None and not changed <= after.keys():
                unknown = min(changed - after.keys())
                raise InvalidChange(
                    "changed",
                    f"`changed` of an UPDATE of {table!r} names column {unknown!r}, but `after` "
                    "lacks it",
                )
        if commit_time is not None and commit_time.tzinfo is None:
            raise InvalidChange(
                "commit_time", f"commit time {commit_time} of {table!r} has no time zone"
            )
        fields = (
            schema, table, op, key, before, after, changed, position, transaction_id, event_number,
            last_in_transaction, commit_time, user, extras,
        )  # fmt: skip
        return tuple.__new__(cls, fields)

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Self:  # type: ignore[override]
        return cls(*iterable)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Change) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # images are mappings

    @property
    def present(self) -> frozenset[str]:
        """The known columns of ``after``, or of ``before`` if there is no ``after``."""
        image = self.after if self.after is not None else self.before
        return frozenset() if image is None else frozenset(image)


def full_name(schema: str | None, table: str) -> str:
    """Return ``schema.table``, or the table if the schema is unknown: the name of a table in
    options, reports and messages.
    """
    return table if schema is None else f"{schema}.{table}"


def column_name(change: Change, column: str) -> str:
    """Return ``schema.table.column``, the name of a change's column in reports."""
    return f"{full_name(change.schema, change.table)}.{column}"


def old_key(change: Change) -> Key | None:
    """Return the key before the change: from ``before`` if it has the key columns, otherwise
    ``key`` itself.
    """
    key, before = change.key, change.before
    if key is None or before is None or not all(name in before for name, _ in key):
        return key
    return tuple((name, before[name]) for name, _ in key)


def differing(before: Row, after: Row) -> frozenset[str] | None:
    """Return the columns whose values differ; two NULLs are equal. Return None if ``before`` lacks
    a column of ``after`` (spec/change-model.md 1).
    """
    if not before.keys() >= after.keys():
        return None
    return frozenset(name for name, value in after.items() if before[name] != value)


def changes_nothing(change: Change) -> bool:
    """Return True if an UPDATE is known to change nothing (spec/change-model.md 4)."""
    if change.op is not _UPDATE or change.extras.get("changed_unknown"):
        return False
    if change.changed is not None:
        return not change.changed
    return (
        change.before is not None
        and change.after is not None
        and dict(change.before) == dict(change.after)
    )


# --- records and answers --------------------------------------------------------------------------


class KafkaRecord(NamedTuple):
    """A record to be written to a topic.

    If ``topic`` is None, the topic is the sink's topic. If ``value`` is None, the record is a
    tombstone.
    """

    topic: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


KafkaRecords: TypeAlias = tuple[KafkaRecord, ...]
"""The records of an event."""


class Level(IntEnum):
    """The level of an answer.

    If an event has several levels, the greatest level, which is the worst, decides.
    """

    SUCCESS = 0
    WARNING = 1
    ERROR = 2
    RETRY = 3
    FATAL = 4


class EventResult(NamedTuple):
    """A level and its message, which goes to the error table under ``code`` if the level is error
    or fatal.
    """

    level: Level
    message: str = ""
    code: str = "receiver"
    place: str = ""
    """If the level is retry: the place of the receiver, such as a queue, that did not take the
    event. The other events of the class wait with it. Empty = the event has no such place.
    """


SUCCESS = EventResult(Level.SUCCESS)


class Document(NamedTuple):
    """One document: events that are sent and answered as a unit, and the body that is written from
    them.
    """

    delivery_no: int
    document_no: int
    """The number of the recorded delivery, and of the document in it."""
    event_ids: Sequence[str]
    """The event-ids of the document's events; a heartbeat has no events."""
    body: bytes
    """The body; empty in a format of records."""
    records: Sequence[KafkaRecords | EventResult] = ()
    """In a format of records, for each event its records. An event that the format cannot hold has
    its result instead.
    """
    make_events: Callable[[], tuple[Event, ...]] = tuple
    """A function that returns the events in their public form, for the few sinks that use them."""
    media_type: str = "application/xml; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    """The media type and the headers (names and values) that go with ``body`` over HTTP."""
    refused: Mapping[str, EventResult] = MappingProxyType({})
    """The results of level error, by event-id, of the events that the body lacks because the format
    cannot hold them.
    """
    nonce: str = ""
    """The random text of the delivery for a sink that ``drops_repetitions``, else empty."""

    @property
    def events(self) -> tuple[Event, ...]:
        return self.make_events()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one document."""

    results: Mapping[str, EventResult] = field(default_factory=dict)
    """The worst result of each event, by event-id."""
    general: EventResult | None = None
    """The worst status without an event-id, which applies to every event; None = no status."""
    unknown_ids: tuple[str, ...] = ()
    """The event-ids that are not in the document."""
    ignored: int = 0
    """The number of elements other than statuses."""
    is_pending: bool = False
    """True if the receiver answers only when the sink is flushed."""
    culprit_unknown: bool = False
    """True if ``general`` is an error that may concern a single event, which is not named. The
    error then applies only if the document has one event.
    """
    retry_after: float | None = None
    """If ``general`` is a retry: the seconds that the receiver asks to wait; None = not given."""
    in_short: str = ""
    """A short description of the answer that contains no text from the receiver, such as the HTTP
    status; empty if there is none.
    """
    is_sent: bool = True
    """False if the document was not sent because the format can hold none of its events."""
    reply: Reply | None = field(default=None, compare=False)
    """What the receiver has replied, for people; None = nothing."""

    def result(self, event_id: str) -> EventResult:
        """Return the worst result of an event; success if it has none."""
        result = self.results.get(event_id, SUCCESS)
        if self.general is not None and self.general.level > result.level:
            return self.general
        return result

    def worst(self, event_ids: Sequence[str]) -> EventResult:
        """Return the worst result of one or more events."""
        if not self.results and self.general is None:  # as in most answers
            return SUCCESS
        return max(map(self.result, event_ids), key=lambda result: result.level)


LEVELS: Final = {level.name.lower(): level for level in Level}
"""The levels by the words of an answer. Any other word is an error (spec/event-log.md 8.4)."""


_STATUSES_OF_AN_EVENT: Final = 16


def max_statuses(event_ids: Collection[str]) -> int:
    """Return the maximum number of statuses in an answer to a document of ``event_ids``. A response
    with more statuses is not an answer (spec/event-log.md 8.4).
    """
    return _STATUSES_OF_AN_EVENT * max(1, len(event_ids))


def answer_of(
    statuses: Iterable[tuple[str | None, EventResult]], event_ids: Collection[str], ignored: int = 0
) -> Answer:
    """Return the answer to a document of ``event_ids``. Each status comes with its event-id; None
    means every event.

    If an event has several statuses, the worst status decides; among equally bad statuses, the
    first with a message.
    """
    known = frozenset(event_ids)
    worst: dict[str | None, EventResult] = {}
    unknown: dict[str, None] = {}
    for event_id, result in statuses:
        if event_id is not None and event_id not in known:
            unknown[event_id] = None
            continue
        before = worst.get(event_id)
        if (
            before is None
            or result.level > before.level
            or (result.level == before.level and not before.message)
        ):
            worst[event_id] = result
    general = worst.pop(None, None)
    results = {event_id: result for event_id, result in worst.items() if event_id is not None}
    return Answer(results, general, tuple(unknown), ignored)
