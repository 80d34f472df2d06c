"""The consumers of a log: their rows in ``<log>_consumer``, their sets of done rows in
``<log>_inflight``, and the beginning of a new consumer (spec/event-log.md 13).

A set that has grown is written as an entry with a new number, and the earlier entry is deleted.
Updating an entry in place would leave dead versions, and every read would go through all dead
versions while an old snapshot is open.

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from eventlog.core.options import names_hint
from eventlog.core.ranges import Ranges, RecordSet, decode, to_ranges
from eventlog.core.rows.event_ids import resent
from eventlog.core.rows.requeue import LoggedRow, RowState, Way
from eventlog.core.start_time import start_time_of
from eventlog.errors import ConfigError, DatabaseError, LogTableError, ServerUnavailable
from eventlog.sql.log.epoch import read_removed
from eventlog.sql.log.errors import (
    PUT_BACK,
    TICK,
    add_errors,
    add_object_errors,
    newest_error_time,
    read_attempts,
)
from eventlog.sql.log.internal_tables import (
    CONSUMER_COLUMNS,
    LATER_COLUMNS,
    EntryKind,
    add_entry,
    consumers_of,
    delete_entry,
    end_delivery,
    end_set,
    has_columns,
    next_number,
    read_entries,
    unreadable,
    update_consumer,
)
from eventlog.sql.log.next_record_id import next_unused
from eventlog.sql.log.pauses import Pause, decode_of
from eventlog.sql.log.recorded_masks import NO_MASKS
from eventlog.sql.log.requests import ResendRequest, ask_again, consumer_gone
from eventlog.sql.log.requeue import ObjectRow, RefusedRow, Requeued, judge_all
from eventlog.sql.log.rows import MAX_RANGES, column_of, is_in, readable_id, runs_of_ranges
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.questions import Numbering, ask
from eventlog.sql.port.sql_files import OF_LOG, OF_LOG_ALONE, in_parts
from eventlog.sql.readers.start_time import first_row_from

_log = logging.getLogger("eventlog.publisher")

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
SNAPSHOT: Final = "snapshot"
_KNOWN: Final = "eventlog_consumers"
"""``Connection.info`` has, under this key, the logs whose table of consumers was found."""


STREAM_OF_SPARK: Final = "a stream of Spark"
"""The sink of a consumer that is a stream of Spark. ``eventlog publish`` cannot run it."""


class ConsumerStart(NamedTuple):
    """What a consumer sends, and where to, as recorded when it starts."""

    sink: str
    """The sink in words, without secrets."""
    classes: tuple[str, ...] | None = None
    """The configured classes, None = all."""

    def __str__(self) -> str:
        return f"{in_words(self.classes)} to {self.sink}"


def in_words(classes: Sequence[str] | None) -> str:
    """Return, in words, the classes that a consumer sends; None = all classes."""
    return "all classes" if classes is None else ", ".join(classes)


class ConsumerRow(NamedTuple):
    """A consumer's row in ``<log>_consumer``. Times are UTC."""

    name: str
    begun: datetime
    begins: str
    """Where the consumer began: latest, earliest, snapshot, a record_id or a time."""
    done: RecordSet
    moved: datetime | None
    """The time when the consumer's set or its snapshot last changed."""
    requeued: ResendRequest
    """The request to send rows and objects again. Until the consumer has read the request, the
    requested rows are still in the set.
    """
    loaded: dict[str, Any] | None
    """The progress of the consumer's snapshot (spec/event-log.md 13.3), None = the consumer has no
    snapshot, or its snapshot is complete.
    """
    start: ConsumerStart | None = None
    """What the consumer's last start has recorded, None = nothing yet."""
    pause: Pause | None = None
    """Why the consumer sends nothing, None = it is not paused."""
    masks: str | None = None
    """The masks that the consumer has used, None = they are unknown (``recorded_masks``)."""
    entries: tuple[int, ...] = ()
    """The numbers of the entries that contain the consumer's set; the entry with the whole set
    comes first.
    """


class SetEntry(NamedTuple):
    """An entry of ``<log>_inflight`` with the set of a consumer, or with rows that were added to
    the set later.
    """

    number: int
    consumer: str
    is_whole: bool
    rows: str
    started: datetime


class SetEntries(NamedTuple):
    """The name of a consumer, and the numbers of the entries that contain its set."""

    name: str
    entries: tuple[int, ...] = ()


def has_table(log: OpenLog) -> bool:
    """Return True if the log has a table of consumers."""
    known: set[LogTable] = log.connection.info.setdefault(_KNOWN, set())
    if log.table not in known and log.may_have(log.table.consumer_table):
        known.add(log.table)
    return log.table in known


def has_later_columns(log: OpenLog) -> bool:
    """Return True if the log's table of consumers has ``LATER_COLUMNS``."""
    return has_table(log) and has_columns(log, log.table.consumer_table, LATER_COLUMNS)


def is_followable(log: OpenLog) -> bool:
    """Return True if a reader can determine which gaps in the record_ids will stay empty
    (spec/event-log.md 13.5): sessions draw the numbers one by one, and the database shows which
    open transactions have written to the log.
    """
    try:
        check_numbering(log)
    except (LogTableError, ServerUnavailable):
        return False
    return True


def check_possible(log: OpenLog) -> None:
    """Raise LogTableError if the log cannot have consumers (spec/event-log.md 13.5), and
    ServerUnavailable if that cannot be determined yet.
    """
    check_numbering(log)
    if not has_table(log):
        raise LogTableError(
            f"the log {log} has no table {log.table.consumer_table}, where consumers record what "
            "they have done: create it with `eventlog db upgrade`, or with `eventlog db upgrade "
            "--existing-log` if another program made the log"
        )
    check_columns(log)


def check_columns(log: OpenLog) -> None:
    """Raise LogTableError if the table of consumers lacks a column that was added later."""
    if not has_later_columns(log):
        raise LogTableError(
            f"the table {log.table.consumer_table} of the log {log} lacks one of the columns "
            f"{', '.join(LATER_COLUMNS)}, which consumers need: add it with `eventlog db upgrade`, "
            "or with `eventlog db upgrade --existing-log` if another program made the log"
        )


def check_numbering(log: OpenLog) -> None:
    """Raise LogTableError if the gaps in the record_ids cannot be followed, and ServerUnavailable
    if that cannot be determined yet.
    """
    if "consumers" not in log.dialect.capabilities:
        raise LogTableError(
            f"the log {log} cannot have consumers: {log.dialect.name} does not show which open "
            "transactions have written the log, so a consumer could miss rows; use a separate log "
            "for this receiver"
        )
    if reason := log.hidden_writers():
        raise LogTableError(f"the log {log} cannot have consumers: {reason}")
    numberings = ask(log, "numberings", Numbering)
    if not numberings and "concurrent_writers" in log.dialect.capabilities:
        raise LogTableError(
            f"the log {log} cannot have consumers while it is unknown which sequence numbers "
            f"its rows: the column {log.table.column('record_id')} has no default, so the "
            "triggers draw the numbers. Set record_id_sequence in [database] to their sequence; "
            "eventlog then checks that it has no cache"
        )
    for numbering in numberings:
        if (
            numbering.cache > 1
            or numbering.increment < 1
            or numbering.cycles
            or numbering.disorder is not None
        ):
            why = (
                f"caches {numbering.cache} numbers per session"
                if numbering.cache > 1
                else "does not ascend"
            )
            raise LogTableError(
                f"the log {log} cannot have consumers: its sequence {numbering.name} {why}, so a "
                f"consumer could miss rows. Run: ALTER SEQUENCE {numbering.name} CACHE 1 INCREMENT "
                "1 NO CYCLE"
            )


def read_consumers(log: OpenLog) -> list[ConsumerRow]:
    """Return all consumers, sorted by name; none if the log has no table of consumers.

    Raises DatabaseError for an unreadable row.
    """
    if not has_table(log):
        return []
    rows = log.connection.execute(_selected(log).order_by("name")).all()
    # The order matters: if rows are removed from a set in the meantime, the request for them is
    # still found here.
    sets = read_set_entries(log) if rows else []
    return [_with_set(_consumer_row(tuple(row)), sets) for row in rows]


def read_consumer(log: OpenLog, name: str) -> ConsumerRow | None:
    """Return the row of a consumer, None if the consumer is not registered.

    Raises DatabaseError for an unreadable row.
    """
    entry = _read_row(log, name)
    return None if entry is None else _with_set(entry, read_set_entries(log, name))


def consumer_row(log: OpenLog, name: str) -> ConsumerRow:
    """Return the row of a consumer. Raises ConfigError if it is not registered."""
    if has_table(log) and (entry := read_consumer(log, name)) is not None:
        return entry
    raise unknown_consumer(log, name)


def unknown_consumer(log: OpenLog, name: str) -> ConfigError:
    """Return the error for a consumer that the log does not have."""
    hint = names_hint(name, consumer_names(log), "consumers")
    return ConfigError(f"the log {log} has no consumer {name!r}; {hint}")


def _read_row(log: OpenLog, name: str) -> ConsumerRow | None:
    """Return the row of a consumer in ``<log>_consumer``, without the part of the set that may be
    in entries of ``<log>_inflight``.
    """
    rows = _selected(log).where(consumers_of(log.table).c.name == name)
    row = log.connection.execute(rows).first()
    return None if row is None else _consumer_row(tuple(row))


def _selected(log: OpenLog) -> sa.Select[Any]:
    """Return the statement that reads the rows of consumers, with all columns of the table."""
    columns = (*CONSUMER_COLUMNS, *LATER_COLUMNS) if has_later_columns(log) else CONSUMER_COLUMNS
    table = consumers_of(log.table)
    return sa.select(*(table.c[name] for name in columns))


def _consumer_row(row: Sequence[Any]) -> ConsumerRow:
    name, begun, begins, done, moved, requeued, loaded, *later = row
    sink, classes, paused, masks = later or (None, None, None, None)
    try:
        record_set = decode(done)
        again = ResendRequest.decode(requeued)
        place = None if loaded is None else json.loads(loaded)
        start, pause = _start_of(sink, classes), decode_of(name, paused)
        return ConsumerRow(
            str(name), begun, str(begins), record_set, moved, again, place, start, pause, masks
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(name, error) from None


def _start_of(sink: str | None, classes: str | None) -> ConsumerStart | None:
    """Return the last start that a consumer's columns record. Raises TypeError, ValueError."""
    if sink is None:
        return None
    return ConsumerStart(sink, None if classes is None else tuple(map(str, json.loads(classes))))


def _with_set(entry: ConsumerRow, sets: Sequence[SetEntry]) -> ConsumerRow:
    """Return the row of a consumer, with the set from separate entries if there are any."""
    own = [one for one in sets if one.consumer == entry.name]
    whole = max((one for one in own if one.is_whole), default=None, key=attrgetter("number"))
    if whole is None:
        return entry
    try:
        done = decode(whole.rows)
        for one in own:
            done.add(decode(one.rows).spans)
    except (TypeError, ValueError) as error:
        raise _unreadable(entry.name, error) from None
    moved = max(one.started for one in own)
    others = (one.number for one in own if one is not whole)
    return entry._replace(
        done=done,
        moved=moved if entry.moved is None else max(moved, entry.moved),
        entries=(whole.number, *others),
    )


def _unreadable(name: str, error: Exception) -> DatabaseError:
    return DatabaseError(
        f"the row of consumer {name!r} cannot be read ({error}). If it was changed by hand, undo "
        "the change"
    )


def read_set_entries(log: OpenLog, name: str | None = None) -> list[SetEntry]:
    """Return the entries with the rows that a consumer has done, oldest first; ``name`` None = the
    entries of all consumers.
    """
    entries = []
    for entry in read_entries(log, EntryKind.DONE, name):
        try:
            content = json.loads(entry.content)
            is_whole, rows = content["set"] == "whole", str(content["rows"])
        except (TypeError, ValueError, KeyError) as error:
            raise unreadable(log, EntryKind.DONE, entry.number, error) from None
        entries.append(SetEntry(entry.number, entry.owner, is_whole, rows, entry.started))
    return entries


def done_by_consumers(log: OpenLog) -> dict[str, RecordSet]:
    """Return the rows that each consumer has done. This function takes the lock that prevents the
    registration of a consumer until the transaction ends.
    """
    if not has_table(log):
        return {}
    log.lock_removing()
    done: dict[str, RecordSet] = {}
    for entry in read_consumers(log):
        entry.done.discard(entry.requeued.rows)
        done[entry.name] = entry.done
    return done


def consumer_names(log: OpenLog) -> list[str]:
    """Return the names of all consumers, sorted."""
    if not has_table(log):
        return []
    name = consumers_of(log.table).c.name
    return [str(one) for one in log.connection.execute(sa.select(name).order_by(name)).scalars()]


def begun_of(log: OpenLog, name: str) -> datetime | None:
    """Return when a consumer was registered, UTC; None if it is not registered."""
    entry = _read_row(log, name)
    return None if entry is None else entry.begun


def has_consumers(log: OpenLog) -> bool:
    """Return True if any consumer is registered."""
    return (
        log.connection.execute(
            sa.select(consumers_of(log.table).c.name).limit(1), execution_options=OF_LOG
        ).first()
        is not None
    )


def register(
    log: OpenLog,
    name: str,
    begins: str,
    event_time_zone: str = "utc",
    former: ConsumerRow | None = None,
) -> None:
    """Write the row of a new consumer. The function takes a lock that transactions which delete
    rows take, too (spec/event-log.md 13.2, 13.4).

    ``begins`` and ``event_time_zone`` are as in ``set_of_start``. ``former`` is the row that the
    new row replaces, None = the consumer is new. Raises ConfigError as ``set_of_start`` does.
    """
    log.lock_registering()
    for entry in read_entries(log, EntryKind.DONE, name):  # its row was deleted by hand
        delete_entry(log, EntryKind.DONE, entry.number)
    table = consumers_of(log.table)
    done = set_of_start(log, begins, event_time_zone)
    values: dict[str, Any] = {"name": name, "begins": begins, "done": done.encode()}
    if begins == SNAPSHOT:
        values["loaded"] = json.dumps({})
    if former is not None and former.start is not None:
        values.update(_start_values(former.start))
    if former is not None and former.pause is not None:
        values["paused"] = former.pause.encode()
    values["masks"] = NO_MASKS.encode() if former is None else former.masks
    begun = None if former is None else former.begun
    if (first := _first_moment(log, name, begun)) is not None:
        now = log.db.utc_now().replace(tzinfo=None)
        values["begun"] = max(now, first)
    log.connection.execute(sa.insert(table).values(values))


def _first_moment(log: OpenLog, name: str, former: datetime | None) -> datetime | None:
    """Return the first moment at which a consumer may be registered, None = any.

    The moment is after the error rows of an earlier consumer of this name, even if the clock was
    set back: these rows do not count for the new consumer. After a reset the moment is at least a
    second after ``former``: event-ids of a snapshot contain the second, so the event-ids of a new
    snapshot differ.
    """
    newest = newest_error_time(log, name)
    moments = [
        *([] if newest is None else [newest + TICK]),
        *([] if former is None else [former + timedelta(seconds=1)]),
    ]
    return max(moments, default=None)


def reset(log: OpenLog, name: str, begins: str, event_time_zone: str = "utc") -> None:
    """Rewrite the row of a consumer, as at its registration. The consumer's pause and its masks
    stay, and so does what its last start has recorded.

    The caller handles the consumer's entries in ``<log>_inflight``.
    """
    former = _read_row(log, name)
    forget(log, name)
    register(log, name, begins, event_time_zone, former)


def forget(log: OpenLog, name: str) -> bool:
    """Delete the row of a consumer, and return True if there was one."""
    table = consumers_of(log.table)
    return log.connection.execute(sa.delete(table).where(table.c.name == name)).rowcount > 0


def set_of_start(log: OpenLog, begins: str, event_time_zone: str = "utc") -> RecordSet:
    """Return the first set of a reader that begins at ``begins``: latest, earliest, snapshot, a
    record_id or a time (``core.start_time``).

    ``event_time_zone`` is the option of ``[publisher]``. Raises ConfigError if rows from the
    record_id or the time on were removed, if the record_id is above the next record_id, and if the
    time is in the future.
    """
    time = start_time_of(begins)
    if time is None:
        return first_set(log, begins)
    # The search comes second, so that it sees each row of the set. A row that is committed between
    # the two statements is not in the set.
    done = first_set(log, LATEST)
    first = first_row_from(log, time, event_time_zone)
    if first is not None:
        done.discard([(first, log.dialect.last_record_id)])
    return done


def first_set(log: OpenLog, begins: str) -> RecordSet:
    """Return the first set of a consumer that begins at ``begins``, which must not be a time."""
    if begins == EARLIEST:
        return RecordSet()
    if begins in (LATEST, SNAPSHOT):
        highest = _highest(log)
        # The writers are read after the highest number: a transaction that drew a lower number is
        # either among them, or its rows are visible by now.
        if log.open_writers() != frozenset():
            return RecordSet(0, visible_ids(log))
        return RecordSet(highest)
    first = int(begins)
    _check_begin(log, first)
    return RecordSet(first - 1)


def _check_begin(log: OpenLog, first: int) -> None:
    """Raise ConfigError for a beginning at which the consumer would miss rows (spec/event-log.md
    13.2).
    """
    if (removed := read_removed(log)) >= first:
        raise ConfigError(
            f"start_from = {first}: rows up to record_id {removed} were removed from the log "
            f"{log}, and a consumer that starts there would miss them; start after {removed}, or "
            'use "earliest" (the rows that the log still has) or "snapshot"'
        )
    following = next_unused(log)
    if following is None:
        _log.warning(
            "start_from = %d cannot be compared with the record_ids of the log %s: it has no rows, "
            "and this role cannot read the next number. The consumer will skip rows with smaller "
            "numbers",
            first,
            log,
        )
    elif first > following:
        raise ConfigError(
            f"start_from = {first}: the next record_id of the log {log} is {following}, so a "
            f"consumer that starts there would miss the rows up to {first - 1}; use {following} or "
            'a smaller number, or "latest"'
        )


def _highest(log: OpenLog) -> int:
    highest = log.connection.execute(
        sa.select(sa.func.max(column_of(log.table, "record_id"))), execution_options=OF_LOG_ALONE
    ).scalar()
    return readable_id(int(highest or 0), log)


def visible_ids(log: OpenLog) -> list[tuple[int, int]]:
    """Return all record_ids that one statement sees, as ranges."""
    record_id = column_of(log.table, "record_id")
    number = (record_id - sa.func.row_number().over(order_by=record_id)).label("island")
    numbered = sa.select(record_id.label("record_id"), number).where(record_id > 0).subquery()
    first = sa.func.min(numbered.c.record_id)
    ranges = (
        sa.select(first, sa.func.max(numbered.c.record_id))
        .group_by(numbered.c.island)
        .order_by(first)
    )
    return [(int(low), int(high)) for low, high in log.connection.execute(ranges)]


# --- while a consumer runs ------------------------------------------------------------------------


def record_start(log: OpenLog, name: str, start: ConsumerStart) -> ConsumerStart | None:
    """Record what a consumer sends from now on. Return what the consumer's last start had recorded;
    None if this is the same, or if nothing was recorded.
    """
    entry = _read_row(log, name)
    if entry is None:
        raise consumer_gone(log.table, name)
    if entry.start == start:
        return None
    update_consumer(log, name, _start_values(start))
    return entry.start


def _start_values(start: ConsumerStart) -> dict[str, str | None]:
    """Return the values of the columns that record a start."""
    classes = None if start.classes is None else json.dumps(start.classes, ensure_ascii=False)
    return {"sink": start.sink, "classes": classes}


class Ending(NamedTuple):
    """How the transaction that ends a delivery commits, if it can be one statement. With
    ``durable`` the commit waits for the disk; with ``alone`` nothing else belongs to the
    transaction.
    """

    durable: bool = True
    alone: bool = False


DURABLY: Final = Ending()


def write_done(
    log: OpenLog,
    entry: ConsumerRow | SetEntries,
    done: RecordSet,
    ended: int | None = None,
    ending: Ending = DURABLY,
) -> tuple[int, ...]:
    """Write the whole set of a consumer in place of its entries, and return the number of the new
    entry.

    ``ended`` is the number of one of the consumer's deliveries. The entry of this delivery becomes
    the entry of the set.
    """
    return (_write_set(log, entry.name, "whole", done, ended, entry.entries, ending),)


def write_recent(
    log: OpenLog,
    entry: ConsumerRow | SetEntries,
    recent: RecordSet,
    ended: int | None = None,
    ending: Ending = DURABLY,
) -> tuple[int, ...]:
    """Write the rows that have joined the set since it was last written as a whole, and return the
    numbers of the set's entries. ``ended`` is as in ``write_done``.
    """
    whole, *former = entry.entries
    return whole, _write_set(log, entry.name, "recent", recent, ended, former, ending)


def _write_set(
    log: OpenLog,
    name: str,
    what: str,
    rows: RecordSet,
    ended: int | None,
    former: Sequence[int],
    ending: Ending,
) -> int:
    content = json.dumps({"set": what, "rows": rows.encode()}, separators=(",", ":"))
    if ended is not None and log.has_statement("end_set"):
        others = [one for one in former if one != ended]
        end_set(log, ended, content, name, others, durable=ending.durable, alone=ending.alone)
        return ended
    number = next_number(log) if ended is None else ended
    if ended is None or not end_delivery(log, ended, content):
        add_entry(log, EntryKind.DONE, number, content, name)
    for one in former:
        if one != number:
            delete_entry(log, EntryKind.DONE, one)
    return number


def lock_consumer(log: OpenLog, name: str) -> None:
    """Lock the row of a consumer, if there is one, until the transaction ends. Until then, the
    consumer cannot record a delivery (spec/event-log.md 13.4).
    """
    if has_table(log):
        table = consumers_of(log.table)
        log.connection.execute(
            sa.select(table.c.name).where(table.c.name == name).with_for_update()
        )


def loading(log: OpenLog, name: str) -> tuple[datetime, dict[str, Any]] | None:
    """Return when a consumer was registered, and the progress of its snapshot; None if it has no
    unfinished snapshot.
    """
    entry = _read_row(log, name)
    return None if entry is None or entry.loaded is None else (entry.begun, entry.loaded)


def write_loaded(log: OpenLog, name: str, loaded: dict[str, Any] | None) -> None:
    """Write the progress of a consumer's snapshot; None = it is complete."""
    values: dict[str, Any] = {
        "loaded": None if loaded is None else json.dumps(loaded),
        "moved": sa.literal_column(log.dialect.utc_now),
    }
    if not update_consumer(log, name, values):
        raise consumer_gone(log.table, name)


def _again(by: str) -> str:
    return f"to be sent again, as {by} asked" if by else "to be sent again"


def judged_by_set(
    entry: ConsumerRow,
    chosen: Container[int] | RecordSet,
    *,
    failed: Container[int] = (),
    in_flight: RecordSet | frozenset[int] = frozenset(),
) -> Callable[[ObjectRow], LoggedRow]:
    """Return the function that classifies a row for a consumer's receiver, by the consumer's set.
    ``chosen`` are the rows to send again; the other arguments are as for ``requeue_for``.
    """
    asked_before = RecordSet(0, entry.requeued.rows)

    def judged(row: ObjectRow) -> LoggedRow:
        is_done = row.record_id in entry.done
        state = RowState.DONE if is_done or row.record_id in in_flight else RowState.WAITS
        if is_done and row.record_id in asked_before:
            state = RowState.WAITS
        elif is_done and row.record_id in failed:
            state = RowState.REFUSED
        way = Way.BACK if is_done and row.record_id in chosen else None
        return LoggedRow(row.record_id, row.event_type, row.column_name, state, way)

    return judged


def requeue_for(
    log: OpenLog,
    entry: ConsumerRow,
    ids: Ranges,
    *,
    failed: Container[int] = (),
    in_flight: RecordSet | frozenset[int] = frozenset(),
    force: bool = False,
    dry: bool = False,
    by: str = "",
) -> Requeued:
    """Ask a consumer to send again rows that it has done (spec/event-log.md 13.4). ``by`` is who
    asks; the error rows name it.

    Unless ``force`` is set, these rows are refused: rows that ``judge`` finds stale; rows of types
    1 to 4 with a lower record_id than a row that was removed from the log; rows of an insert, if
    not all rows of this insert are sent again. Nothing is written to the log, so no row can become
    a modify. ``failed`` are the rows that the receiver refused: they keep their event-id. The other
    rows get the next attempt number, since the receiver has applied the earlier event-id (7.4).
    ``in_flight`` are the rows that were in flight for the consumer before ``entry`` was read. The
    caller has locked the row of the consumer (``lock_consumer``). Rows that a purge removes in the
    meantime are left out: the purge read the consumers' rows before this request was written.
    """
    judged = judged_by_set(entry, RecordSet(0, ids), failed=failed, in_flight=in_flight)
    resent, refused = set[int](), set[RefusedRow]()
    removed = 0
    for some in in_parts(ids, MAX_RANGES):
        is_chosen = is_in(log.table, some)
        part = judge_all(log, is_chosen, judged, whole=True, force=force)
        resent.update(part.back)
        refused.update(part.refused)
        removed = part.removed
    asked = sorted(resent)
    if asked and not dry:
        log.lock_registering()
        asked = _present(log, asked)
    if asked and not dry:
        ask_again(log, ResendRequest(to_ranges(asked)), entry.name)
        applied = [one for one in asked if one not in failed]
        numbers = read_attempts(log, entry.name, ids=applied)
        event_ids = {one: f"{one}.{numbers.get(one, 1) + 1}" for one in applied}
        add_errors(log, [(one, PUT_BACK, _again(by)) for one in asked], entry.name, event_ids)
    return Requeued(len(asked), 0, tuple(sorted(refused)), removed)


def _present(log: OpenLog, ids: Sequence[int]) -> list[int]:
    """Return the record_ids among ``ids``, in ascending order, that are in the log now."""
    record_id = column_of(log.table, "record_id")
    present: set[int] = set()
    for ranges in runs_of_ranges(ids):
        present.update(
            log.connection.execute(sa.select(record_id).where(is_in(log.table, ranges))).scalars()
        )
    return [one for one in ids if one in present]


def requeue_objects_for(
    log: OpenLog, entry: ConsumerRow, event_ids: Sequence[str], by: str = ""
) -> None:
    """Ask a consumer to send objects of its snapshot again, with the values that they have when
    they are sent (spec/event-log.md 13.4). ``by`` is who asks; the error rows name it.
    """
    if event_ids:
        ask_again(log, ResendRequest(objects=event_ids), entry.name)
        add_object_errors(log, [(one, PUT_BACK, _again(by)) for one in event_ids], entry.name)


def resend_classes(log: OpenLog, name: str, classes: Sequence[str]) -> None:
    """Ask a consumer to send all objects of classes again: an object that exists for the reader is
    sent as it is at that time, and each other object of the table is sent as a delete
    (spec/event-log.md 15.3).
    """
    lock_consumer(log, name)
    begun = resent(log.db.utc_now())
    ask_again(log, ResendRequest(classes=classes, begun=begun), name)


# --- rows that a consumer has not done ------------------------------------------------------------


def shown_ids(log: OpenLog, window: Window) -> list[int]:
    """Return the record_ids of a window."""
    fields = ("record_id", "event_type")
    return [record_id for fragment in log.read_fields(window, fields) for record_id, _ in fragment]


def count_rows(log: OpenLog, window: Window) -> int:
    """Return the number of rows of a window."""
    undone = log.dialect.window_statement(log.table, window, ("record_id",))
    counted = f"SELECT COUNT(*) FROM ({undone}) AS undone"  # noqa: S608 - a statement of the dialect
    ((rows,),) = log.db.fetch(counted, log.dialect.window_parameters(window), OF_LOG)
    return int(rows)


def highest_row(log: OpenLog) -> int | None:
    """Return the highest record_id, None if there is no row."""
    return _highest(log) or None
