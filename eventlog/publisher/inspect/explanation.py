"""The explanation of a single event: of a row, of an object of a snapshot, or of an event of a
followed source (``publisher.stream.explaining``).

The explanation of a row has its checks, its group, the decision of precedence, its document, and
its outcome. Nothing is recorded, marked or sent. The group is exact for rows in flight, whose
in-flight entry records it. For waiting rows it is the group that the next cycle would make. For
done rows it is a reconstruction, since their events are not recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from eventlog.core.catalog import Attribute, ObjectId
from eventlog.core.catalog.masks import shown_row
from eventlog.core.ranges import to_ranges
from eventlog.core.rows.checks import CheckedRow, InvalidRow, check_rows, is_of
from eventlog.core.rows.event_ids import is_of_snapshot
from eventlog.core.rows.events import (
    READS_FIELD,
    READS_ROW,
    Decision,
    Outgoing,
    build_event,
    decide,
    ids_of,
)
from eventlog.core.rows.fold import first_id, fold, object_of, reach, reach_of_span
from eventlog.errors import BadTableKey, DatabaseError, NoSuchRow
from eventlog.model import (
    QUEUE_FIELDS,
    EventType,
    LogRow,
    Operation,
    Status,
    origins_of,
    queue_rows,
    unpadded,
)
from eventlog.publisher.context.context import (
    Context,
    in_savepoint,
    remark_in_words,
    unavailable_in_words,
)
from eventlog.publisher.context.observer import Seen
from eventlog.publisher.feeds.snapshot import Present, read_object
from eventlog.publisher.inspect.remedies import Remedy, remedies_of, skipping
from eventlog.publisher.ledger.delivery import Delivery
from eventlog.publisher.ledger.in_flight import (
    BacklogClaim,
    WaitingEvent,
    placed_events,
    read_recorded,
    waiting_event,
)
from eventlog.publisher.ledger.ledger import is_at_work, status_of
from eventlog.publisher.send.cycle import preview, recorded_ids
from eventlog.publisher.send.log_feed import build_recorded, rebuild
from eventlog.sql.log.errors import (
    PUT_BACK,
    SKIPPED,
    SUPERSEDED,
    ErrorRow,
    read_errors,
    refused_letters,
)

_SECONDS: Final = 60
"""The time-out of one statement, in seconds."""
_MAX_REACH: Final = 50_000
"""The maximum number of record_ids on each side of a row that are read for its group."""
_MAX_STEPS: Final = 10
_VALUES: Final = (None, None)  # old_value and new_value, the last of ``QUEUE_FIELDS``
_REFUSED: Final = (Status.ERROR, Status.FATAL)
_PUBLISHED: Final = (Status.SUCCESS, Status.WARNING)
_DONE: Final = (*_REFUSED, *_PUBLISHED)

Kind = Literal["row", "object", "event"]
"""A row of the log, an object of a consumer's snapshot, or an event of a followed source."""
Source = Literal["in_flight", "queue", "reconstructed", "nearby"]


class InFlight(NamedTuple):
    """The place of a row in the delivery that records the row as in flight. ``event_id`` is the
    event-id in the document.

    ``attempts`` is the recorded number of attempts at an event that is parked, 0 = none is
    recorded; while the receiver is in doubt, it is the number of pauses. ``next_attempt`` is a time
    of the database in UTC (ISO 8601), empty if the attempt is due at once. ``limit`` is the reason
    why the event is not given up after ``max_attempts`` attempts, empty after fewer attempts.
    """

    delivery: int
    document: int
    event_id: str
    event_id_number: int
    attempts: int = 0
    last_answer: str = ""
    next_attempt: str = ""
    limit: str = ""


class Member(NamedTuple):
    """A row of the group, and its outcome."""

    record_id: int
    status: str
    event_type: int
    column_name: str | None
    old: str | None
    new: str | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of an event."""

    log: str
    """The log, or the source."""
    kind: Kind
    state: str
    """The state as a sentence."""
    row: LogRow | None = None
    """The row, with its values masked for the reader."""
    problem: InvalidRow | None = None
    """The check that the row fails now."""
    class_name: str | None = None
    """The class, or the table of the source."""
    key: str | None = None
    in_flight: InFlight | None = None
    source: Source | None = None
    """How the group is known, None if the row is in no group."""
    members: tuple[Member, ...] = ()
    read_back: tuple[str, ...] | None = None
    """The attributes that are read from the object now, None if there are none."""
    event_id: str | None = None
    operation: str | None = None
    """The event-id and the operation of the event, None without an event."""
    document: str | None = None
    change: Mapping[str, Any] | None = None
    """The change of a source in its JSON form (spec/change-model.md 1.1)."""
    errors: tuple[ErrorRow, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about how reliable the explanation is."""
    remedies: tuple[Remedy, ...] = ()
    """What can be done."""
    seen: Seen | None = None
    """What the running process has seen of the event, None if it was not asked."""


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as data for JSON: named tuples become objects."""
    data = {name: getattr(explanation, name) for name in Explanation.__dataclass_fields__}
    for name in ("row", "problem", "in_flight"):
        data[name] = data[name] and data[name]._asdict()
    for name in ("members", "errors", "remedies"):
        data[name] = [one._asdict() for one in data[name]]
    return {**data, "seen": None if explanation.seen is None else explanation.seen.as_data()}


class _Known(NamedTuple):
    """A row, with what the log and its internal tables contain about it."""

    row: LogRow
    status: str
    """The row's status according to the ledger."""
    object_id: ObjectId | None
    """The object. It is None if the row is invalid, for the reason in ``problem``, or if its class
    is unavailable.
    """
    problem: InvalidRow | None
    place: tuple[WaitingEvent, Outgoing, Delivery] | None
    """The event that records the row in flight."""
    ahead: WaitingEvent | None
    """The event in flight that the row waits for."""
    deliveries: Sequence[Delivery]
    claim: BacklogClaim | None
    """The claim that the row belongs to."""
    claimed_to: int
    """The last row that a backlog job has claimed, 0 = no row is claimed."""
    errors: Sequence[ErrorRow]


class _Built(NamedTuple):
    """A group: how it is known, its rows in the log, and what became of it.

    ``delivery`` is the delivery in which the event is sent, or would be sent.
    """

    source: Source
    rows: Sequence[LogRow]
    decision: Decision
    event: Outgoing
    delivery: Delivery


def explain(
    context: Context, record_id: int, seconds: int = _SECONDS, within: int | None = None
) -> Explanation:
    """Explain the row of this record_id. ``within`` is as in ``read_refusals``.

    Raises NoSuchRow if the row does not exist, and DatabaseError.
    """
    context.log.db.begin_reading(seconds)
    return _with_remedies(context, explain_as_read(context, record_id), within)


def _with_remedies(
    context: Context, explained: Explanation, within: int | None = None
) -> Explanation:
    if explained.remedies:
        return explained
    event_id, errors = explained.event_id or "", explained.errors
    found = remedies_of(context, explained.row, event_id, errors, within)
    return replace(explained, remedies=tuple(found))


def explain_as_read(context: Context, record_id: int) -> Explanation:
    """Explain the row of this record_id as ``explain`` does, but in the transaction that the
    session has begun.
    """
    notes: list[str] = []
    known = _read(context, record_id, notes)
    built = _group_of(context, known, notes)
    source = None if built is None else built.source
    if built is not None and _is_unknown(known, built):
        source = "nearby"
        notes.append(_UNKNOWN)
    elif source == "reconstructed":
        notes.append(_RECONSTRUCTED)
    elif built is not None and _is_deleted_since(built):
        notes.append(_DELETED_SINCE)
    is_certain = built is not None and source != "nearby" and built.event.operation is not None
    event = built.event if built is not None and is_certain else None
    object_id, place, ahead = known.object_id, known.place, known.ahead
    to_skip = ahead if place is None else place[0]
    return Explanation(
        log=str(context.log),
        kind="row",
        state=_state(context, known),
        row=shown_row(known.row, context.catalog),
        problem=known.problem,
        class_name=None if object_id is None else object_id[0].name,
        key=None if object_id is None else object_id[1],
        in_flight=None if place is None else in_flight_of(place[0], context.options.max_attempts),
        source=source,
        members=()
        if built is None
        else tuple(_members(context, built, are_known=source != "nearby")),
        read_back=_read_back(built) if source != "nearby" else None,
        event_id=None if event is None else event.sent_id,
        operation=None if event is None else event.operation,
        document=None
        if built is None or event is None
        else preview(context, built.delivery, [event]),
        errors=tuple(known.errors),
        notes=tuple(notes),
        remedies=() if to_skip is None else (skipping(to_skip.event_id, context.ledger.consumer),),
    )


_UNKNOWN: Final = (
    "the log does not record which of these rows were sent as one event, nor the values that were "
    "read back, so the document that was sent is not known"
)
_RECONSTRUCTED: Final = (
    "the event is a reconstruction from the rows that still exist, and values that are read back "
    "are the present ones"
)
_DELETED_SINCE: Final = (
    "the event was recorded while its object existed for this reader. It is sent again as a "
    "delete, because an earlier request with the event may still be on its way"
)


def _is_deleted_since(built: _Built) -> bool:
    """Return True if a recorded event has become a delete that no row of type 4 asks for."""
    return (
        built.source == "in_flight"
        and built.event.operation is Operation.DELETE
        and all(row.event_type != EventType.DELETE_ROW for row in built.rows)
    )


def _is_unknown(known: _Known, built: _Built) -> bool:
    """Return True if it is unknown what was sent for a processed row: another processed row may
    have been in its event, or values were read back. Rows that were refused are shown as they would
    be sent now.
    """
    if built.source != "reconstructed" or known.status in (Status.ERROR, Status.FATAL):
        return False
    return len(built.rows) > 1 or built.decision.query_back is not None


def _read(context: Context, record_id: int, notes: list[str]) -> _Known:
    """Read a row and check it. Raises NoSuchRow if the row does not exist."""
    rows = context.log.read_rows([(record_id, record_id)])
    if not rows:
        raise NoSuchRow(
            f"the log {context.log} has no row {record_id}: it may have been purged, deleted once "
            "it was published (delete_from_log), or never committed"
        )
    (row,) = rows
    context.ledger.recover()
    errors = _errors(context, record_id, notes)
    checked = check_rows(queue_rows([row]), context.catalog, None)
    notes += [remark_in_words(remark) for remark in checked.remarks]
    if (
        checked.waiting
        and (name := context.catalog.unavailable_class(row.table_name or "")) is not None
    ):
        notes.append(unavailable_in_words(name, context.catalog.unavailable[name]))
    deliveries, claim = read_recorded(context.log, context.ledger.consumer)
    status = _status(context, row, errors)
    claimed_to = 0 if claim is None else claim.last
    if claim is not None and (status != Status.NEW or record_id > claim.last):
        claim = None
    object_id = object_of(checked.valid) if checked.valid else None
    place, ahead = _place(deliveries, record_id), None
    is_sent_next = status == Status.NEW and place is None and claim is None
    if is_sent_next and object_id is not None and not _is_loopback(context, row):
        ahead = _event_ahead(context, object_id, deliveries)
    return _Known(
        row,
        status,
        object_id,
        checked.invalid[0] if checked.invalid else None,
        place,
        ahead,
        deliveries,
        claim,
        claimed_to,
        errors,
    )


def _group_of(context: Context, known: _Known, notes: list[str]) -> _Built | None:
    """Return the group of a row with its event, None if the row is in no group."""
    row, object_id = known.row, known.object_id
    try:
        with in_savepoint(context.log.connection):
            if known.place is not None:
                return _recorded(context, *known.place[1:])
            if object_id is None or _is_loopback(context, row):
                return None
            if known.status == Status.NEW and _is_due(context, row):
                return _folded(context, "queue", known, object_id, (Status.NEW,))
            if known.status in _DONE:
                alike: Sequence[str] = _REFUSED if known.status in _REFUSED else _PUBLISHED
                if context.ledger.consumer:  # its set does not show which rows were refused
                    alike = _DONE
                return _folded(context, "reconstructed", known, object_id, alike)
    except DatabaseError as error:
        notes.append(f"the event of this row could not be built: {error}")
    return None


def explain_object(context: Context, event_id: str, seconds: int = _SECONDS) -> Explanation:
    """Explain an object of a consumer's snapshot by its event-id, as ``explain`` does for a row.

    Raises NoSuchRow for an impossible event-id.
    """
    context.log.db.begin_reading(seconds)
    if not context.ledger.consumer or not is_of_snapshot(event_id):
        raise NoSuchRow(
            f"{event_id} is not the event-id of an object in a consumer's snapshot. Use an id "
            "that begins with 'snapshot.', and name the consumer with --consumer"
        )
    notes: list[str] = []
    errors = _errors(context, event_id, notes)
    present = _present(context, event_id, notes)
    event = None if present is None or present.event.operation is None else present.event
    problem = (
        None
        if present is None or present.event.outcomes is None
        else next(iter(present.event.outcomes.invalid), None)
    )
    if present is not None and event is None and problem is None:
        event = _recorded_object(context, event_id)
        notes.append(
            "the object does not exist now, so nothing would be sent for it"
            if event is None
            else _DELETED_SINCE
        )
    explained = Explanation(
        log=str(context.log),
        kind="object",
        state=_state_of_object(context, errors),
        problem=problem,
        class_name=None if present is None else present.object_id[0].name,
        key=None if present is None else present.object_id[1],
        event_id=event_id,
        operation=None if event is None else event.operation,
        document=None
        if present is None or event is None
        else preview(context, present.delivery, [event]),
        errors=tuple(errors),
        notes=tuple(notes),
    )
    return _with_remedies(context, explained)


def _present(context: Context, event_id: str, notes: list[str]) -> Present | None:
    """Return the object of a snapshot as it is now, None if it cannot be read."""
    try:
        with in_savepoint(context.log.connection):
            return read_object(context, event_id)
    except (DatabaseError, BadTableKey) as error:
        notes.append(f"the object could not be read: {error}")
        return None


def _recorded_object(context: Context, event_id: str) -> Outgoing | None:
    """Return the event in flight of an object of a snapshot as it would be sent again, None if the
    object is not in flight or no event would be sent.
    """
    deliveries, _ = read_recorded(context.log, context.ledger.consumer)
    for delivery, _, event in placed_events(deliveries):
        if event.event_id == event_id:
            (built,) = rebuild(context, delivery, [event]).events
            return None if built.operation is None else built
    return None


def _state_of_object(context: Context, errors: Sequence[ErrorRow]) -> str:
    if not errors:
        loads = context.ledger.loading() is not None
        return (
            "sent with the snapshot, or waiting to be sent"
            if loads
            else "sent with the snapshot, if it existed at that time"
        )
    if errors[-1].code == PUT_BACK:
        return "queued again: it was sent again since, or it waits to be sent"
    return _state_of_refused(Status.ERROR, errors[-1], "")


def _errors(context: Context, row: int | str, notes: list[str]) -> list[ErrorRow]:
    conn = context.log.connection
    try:
        with in_savepoint(conn):
            consumer = context.ledger.consumer
            notes += [one.message for one in refused_letters(context.log, row, consumer)]
            return read_errors(context.log, row, consumer)
    except DatabaseError as error:
        notes.append(f"its error rows cannot be read: {error}")
        return []


def _status(context: Context, row: LogRow, errors: Sequence[ErrorRow]) -> str:
    """Return the status of the row; for a consumer, its set and its error rows determine the
    status.
    """
    status = status_of(context.ledger, row.record_id, row.status)
    is_refused = context.ledger.consumer and errors and errors[-1].code != PUT_BACK
    return Status.ERROR.value if status == Status.SUCCESS and is_refused else status


# --- the row --------------------------------------------------------------------------------------


def _place(
    deliveries: Iterable[Delivery], record_id: int
) -> tuple[WaitingEvent, Outgoing, Delivery] | None:
    for delivery, document_no, event in placed_events(deliveries):
        if record_id in event.ids:
            return waiting_event(delivery, document_no, event), event, delivery
    return None


def in_flight_of(waiting: WaitingEvent, max_attempts: int) -> InFlight:
    """Return the place of an event with its attempts."""
    place = InFlight(waiting.delivery, waiting.document, waiting.event_id, waiting.event_id_number)
    if (tried := waiting.tried) is None:
        return place
    limit = tried.limit_in_words(max_attempts)
    return place._replace(
        attempts=tried.tries, last_answer=tried.answer, next_attempt=tried.due, limit=limit
    )


def _is_loopback(context: Context, row: LogRow) -> bool:
    return is_of(row.perpetrator, context.options.driver_user)


def _is_due(context: Context, row: LogRow) -> bool:
    return not context.options.handle_future_events or bool(
        _due_ids(context, row.record_id, row.record_id)
    )


def _due_ids(context: Context, first: int, last: int) -> list[int]:
    """Return the record_ids of the rows that are due now, in the order in which they are read. The
    database compares event_time with its own clock.
    """
    log = context.log
    now = log.due_until(context.options.event_time_zone)
    return log.due_ids(now, first, last)


def _state(context: Context, known: _Known) -> str:
    row, status, claim = known.row, known.status, known.claim
    if claim is not None:
        return (
            f"claimed by backlog job {claim.job} since {claim.since}: the row is in "
            f"{claim.directory}, or waits for another row there"
        )
    if status == Status.NEW:
        return _state_of_new(context, known)
    loopback = (
        f", made by {row.perpetrator!r}, the publisher's own user, and not published; `eventlog "
        "requeue --loopback` queues it again"
    )
    last = known.errors[-1] if known.errors else None
    match status:
        case Status.SUCCESS:
            return "done" + (
                loopback
                if _is_loopback(context, row)
                else ": published and answered success, or without effect"
            )
        case Status.WARNING:
            return "done: published, and the receiver answered warning"
        case Status.ERROR | Status.FATAL if last is not None and (
            status == Status.ERROR or last.code in ("receiver", SKIPPED, SUPERSEDED)
        ):
            return _state_of_refused(
                status, last, "" if known.problem is not None else ", and it passes the checks now"
            )
        case Status.ERROR | Status.FATAL:
            return f"failed ({status}); the reason is not recorded; {_AGAIN}"
    return f"ignored: status {row.status!r} is reserved, and only rows with status N are sent"


_AGAIN: Final = "not tried again until it is requeued: `eventlog errors` prints the command"


def _state_of_refused(status: str, last: ErrorRow, fix: str) -> str:
    """Return the state of a refused row or object with this status, from its newest error row.
    ``fix`` describes a change that was made since this error row.
    """
    if last.code == SKIPPED:
        return f"skipped: {last.message}; not sent again until `eventlog requeue`"
    if last.code == SUPERSEDED:
        return (
            f"refused, and logged again by a resync: row {last.superseded_by} counts in its place "
            f"(`eventlog explain {last.superseded_by}`)"
        )
    if last.code == "receiver":
        level = "error" if status == Status.ERROR else "fatal"
        return f"the receiver answered {level}: {last.message}; {_AGAIN}"
    return f"invalid ({last.code}): {last.message}{fix}; {_AGAIN}"


def _state_of_new(context: Context, known: _Known) -> str:
    row, problem, place = known.row, known.problem, known.place
    runs = is_at_work(context.log, context.ledger.consumer)
    if place is not None:
        return _state_in_flight(context, place[0], runs=runs)
    if _is_loopback(context, row):
        who = f"made by {row.perpetrator!r}, the publisher's own user"
        if context.options.leave_loopback:
            return f"ignored: {who} (loopback_action = keep)"
        return f"will be marked S without being published: {who}"
    if problem is not None:
        return f"will become E ({problem.code}): {problem.message}"
    if not _is_due(context, row):
        return f"not due before {row.event_time} (handle_future_events)"
    if known.ahead is not None:
        first, is_parked = known.ahead.event_id, known.ahead.is_parked
        what = "parked" if is_parked else "in flight or parked"
        why = f": {_attempts(context, known.ahead, runs=runs)}" if known.ahead.tried else ""
        return f"waits for event {first} of its object, which is {what}{why}"
    return "waits to be published" if runs else "waits to be published; no publisher runs"


def _state_in_flight(context: Context, waiting: WaitingEvent, *, runs: bool) -> str:
    what = (
        f"{'parked' if waiting.is_parked else 'in flight'} as event {waiting.event_id} (delivery "
        f"{waiting.delivery}, document {waiting.document})"
    )
    if waiting.tried is not None:
        return f"{what}: {_attempts(context, waiting, runs=runs)}"
    then = (
        "sent without a final answer, or parked" if runs else "sent first when a publisher starts"
    )
    return f"{what}: {then}"


def _attempts(context: Context, waiting: WaitingEvent, *, runs: bool) -> str:
    """Return the recorded attempts, the last answer and the next attempt."""
    tried = waiting.tried
    assert tried is not None
    why = tried.state_in_words(waiting.events, context.options.max_attempts, runs=runs)
    answer = f"; the last answer: {tried.answer}" if tried.answer else ""
    due = f"at {tried.due} UTC" if tried.due else "at once"
    return f"{why}{answer}" + (f"; the next attempt is due {due}" if tried.is_parked else "")


def _event_ahead(
    context: Context, object_id: ObjectId, deliveries: Iterable[Delivery]
) -> WaitingEvent | None:
    """Return the event in flight for this object, None if there is no such event."""
    by_first = {
        event.ids[0]: waiting_event(delivery, document_no, event)
        for delivery, document_no, event in placed_events(deliveries)
        if event.ids
    }
    rows = context.log.read_rows([(first, first) for first in sorted(by_first)])
    for record_id, _, other, _, _, _ in check_rows(queue_rows(rows), context.catalog, None).valid:
        if other == object_id:
            return by_first[record_id]
    return None


# --- the group ------------------------------------------------------------------------------------


def _recorded(context: Context, recorded: Outgoing, delivery: Delivery) -> _Built | None:
    """Rebuild the event of an in-flight entry from the rows that still have status N
    (spec/event-log.md 10).
    """
    rebuilt = build_recorded(context, [recorded])
    ((_, decision, _),) = rebuilt.decided
    if decision is None:
        return None
    rows = context.log.read_rows(to_ranges(sorted(recorded.ids)))
    delivery = delivery._replace(origins=origins_of(rebuilt.log_rows.values()))
    return _Built("in_flight", rows, decision, rebuilt.events[0], delivery)


def _rows_of_object(context: Context, object_id: ObjectId, first: int, last: int) -> list[LogRow]:
    """Return the rows of an object from one record_id to another, with any status.

    The keys are read first: other objects' rows may have large values, which are not read.
    """
    keys = context.log.read_columns([(first, last)], QUEUE_FIELDS[: -len(_VALUES)])
    without_values = [(*row, *_VALUES) for row in keys]
    good = check_rows(without_values, context.catalog, None).valid
    ids = [record_id for record_id, _, other, _, _, _ in good if other == object_id]
    return context.log.read_rows(to_ranges(ids))


def _rows_alike(
    context: Context,
    known: _Known,
    object_id: ObjectId,
    alike: Collection[str],
    first: int,
    last: int,
) -> list[LogRow]:
    """Return, in queue order, the rows of an object that are between two record_ids and may be in
    one group with a known row. The rows have a status in ``alike``; waiting rows that are in flight
    or not due are left out. Claimed rows form no group with later rows.
    """
    rows = [
        row
        for row in _rows_of_object(context, object_id, first, last)
        if status_of(context.ledger, row.record_id, row.status) in alike
    ]
    if Status.NEW not in alike:
        return rows
    in_flight = recorded_ids(known.deliveries)
    end, is_claimed = known.claimed_to, known.claim is not None
    rows = [row for row in rows if (row.record_id <= end) is is_claimed]
    by_id = {row.record_id: row for row in rows if row.record_id not in in_flight}
    if context.options.handle_future_events:
        return [by_id[due] for due in _due_ids(context, first, last) if due in by_id]
    return [*by_id.values()]


def _folded(
    context: Context, source: Source, known: _Known, object_id: ObjectId, alike: Collection[str]
) -> _Built | None:
    """Return the group that the row is in when all rows around it with a status in ``alike`` are
    folded; None if the row is in no group. For a waiting row this is the group that the next cycle
    would make (spec/event-log.md 6).
    """
    options, record_id = context.options, known.row.record_id
    span = min(reach_of_span(options.fold_span) or _MAX_REACH, _MAX_REACH)
    first, last = max(1, record_id - span), record_id + span
    rows: list[LogRow] = []
    mine: list[CheckedRow] = []
    for _ in range(_MAX_STEPS):
        rows = _rows_alike(context, known, object_id, alike, first, last)
        good = check_rows(queue_rows(rows), context.catalog, options.driver_user).valid
        mine = [row for row in good for _, _, other, _, _, _ in (row,) if other == object_id]
        # The beginning of a group depends on the end of the previous group, so go back to a gap
        # that no group can span.
        if not mine or first == 1 or first_id(mine) - first >= reach(options.fold_distance):
            break
        first = max(1, first - span)
    for group in fold(mine, options.fold_distance, options.fold_span):
        ids = ids_of(group)
        if record_id in ids:
            ((_, decision, current),) = decide([group], context.query_back, [None])
            assert decision is not None
            event = build_event(group, options.events, decision, current, attempts=context.attempts)
            own = [row for row in rows if row.record_id in ids]
            return _Built(source, own, decision, event, Delivery(0, {}, "", origins_of(own)))
    return None


# --- the outcome of its rows
# -------------------------------------------------------------------------


def _members(context: Context, built: _Built, *, are_known: bool) -> Iterable[Member]:
    """Yield the rows of the group, with their values masked for the reader. Unless it is known that
    the rows are one group (``are_known``), the outcome of each row is its status.
    """
    outcomes: dict[int, str] = dict.fromkeys(built.event.contributed, "makes the event")
    for dropped in built.decision.dropped:
        record_id, _, _, attribute, _, _ = dropped
        outcomes[record_id] = _why_dropped(attribute, built.decision.surviving)
    if built.event.outcomes is not None:
        outcomes |= dict.fromkeys(built.event.outcomes.gone, _why_gone(built.event))
        outcomes |= dict.fromkeys(built.event.outcomes.noop, "no effect: it changes nothing")
        outcomes |= {
            row.record_id: f"invalid ({row.code}): {row.message}"
            for row in built.event.outcomes.invalid
        }
    for row in (shown_row(one, context.catalog) for one in built.rows):
        status = unpadded(row.status)
        done = f"done: status {status}"
        outcome = outcomes.get(row.record_id, done) if are_known else done
        yield Member(
            row.record_id,
            status,
            row.event_type or 0,
            row.column_name,
            row.old_value,
            row.new_value,
            outcome,
        )


def _why_gone(event: Outgoing) -> str:
    cls = None if event.object_id is None else event.object_id[0]
    if cls is not None and cls.main_table is not None and cls.condition is None:
        return "no effect: the object does not exist, or is not in the view"
    if cls is not None and cls.condition is not None:
        return "no effect: the object does not exist, or does not match the [[filter]]"
    return "no effect: the object no longer exists"


def _why_dropped(attribute: Attribute | None, surviving: Sequence[CheckedRow]) -> str:
    """Return the sentence about the row that takes precedence over a row of this attribute
    (spec/event-log.md 7.1).
    """
    for record_id, event_type, _, _, _, _ in surviving:
        if event_type in READS_ROW:
            return f"not used, because row {record_id} of type {event_type} reads the whole object"
    for record_id, event_type, _, other, _, _ in surviving:
        if event_type in READS_FIELD and other is attribute:
            return (
                f"not used, because row {record_id} of type {event_type} "
                "reads the attribute from the table"
            )
    return "not used: another row of the event replaced it when the event was first built"


def _read_back(built: _Built | None) -> tuple[str, ...] | None:
    if built is None or built.decision.query_back is None:
        return None
    return tuple(attribute.name for attribute in built.decision.query_back)
