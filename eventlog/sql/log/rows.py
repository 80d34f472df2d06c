"""The rows of a log and the rows of its error table: counted, requeued, removed (spec/event-log.md
10, 11).

The statements here are those that every database understands; the dialect has reading, marking and
other hot paths. No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.ranges import Ranges, RecordSet, to_ranges
from eventlog.core.rows.event_ids import attempt_of
from eventlog.core.rows.requeue import LoggedRow, RowState, Way, judge
from eventlog.errors import ConfigError, LogTableError
from eventlog.model import EventType, LogRow, Status, unpadded
from eventlog.sql.log.epoch import read_removed
from eventlog.sql.log.internal_tables import (
    EntryKind,
    add_entry,
    delete_entry,
    next_number,
    read_entries,
    unreadable,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.driver_errors import is_refused
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.open_writers import wait_for, writers_to_await
from eventlog.sql.port.quoted_names import quoted, schema_of

STATUS_NEW: Final[sa.ColumnElement[str]] = sa.literal_column(f"'{Status.NEW}'")
_ONE, _ZERO = sa.literal_column("1", sa.Integer()), sa.literal_column("0", sa.Integer())
NEVER: Final[sa.ColumnElement[bool]] = _ONE == _ZERO
"""A condition that is never true, in a form that every database accepts: Oracle does not accept a
plain number as a condition.
"""
APPLIED: Final = (Status.SUCCESS, Status.WARNING)
_FAILED: Final = (Status.ERROR, Status.FATAL)
PUT_BACK: Final = "requeued"
"""The code of an error row which means that its log row or object is no longer refused."""
SKIPPED: Final = "skipped"
"""The code of an error row of an event that was given up by hand, or of a refused row that needs
nothing more.
"""
TICK: Final = timedelta(milliseconds=1)
"""The lowest precision of a database's times, that of SQLite."""
RECEIVER: Final = "receiver"
TOO_LARGE: Final = "too_large"
"""The code of an error row for an event that the receiver has refused."""


@lru_cache(maxsize=32)
def rows_of(log: LogTable) -> sa.TableClause:
    """Return the log with its ten columns for a statement."""
    return sa.table(
        quoted(log.name),
        *(sa.column(quoted(column)) for column in log.columns),
        schema=schema_of(log),
    )


def column_of(log: LogTable, field: str) -> sa.ColumnElement[Any]:
    """Return the column of ``rows_of`` that holds a field of ``LogRow``."""
    return rows_of(log).c[log.column(field)]


def tail(log: OpenLog) -> int | None:
    """Return the highest record_id with status N, None if there is none."""
    place, is_new = _queued(log)
    statement = sa.select(place).where(*is_new, place > 0).order_by(place.desc()).limit(1)
    highest = log.connection.execute(statement).scalar()
    return None if highest is None else readable_id(int(highest), log)


def refuse_large_ids(log: OpenLog) -> None:
    """Raise LogTableError if the log has a row whose record_id is too large to be read
    (spec/event-log.md 1.4). Nothing is read if the column's type cannot hold such a number.
    """
    column_type = log.table.type_of("record_id")
    if column_type is None or (column_type.bits and "unsigned" not in column_type.sql):
        return
    highest = log.connection.execute(
        sa.select(sa.func.max(column_of(log.table, "record_id")))
    ).scalar()
    if highest is not None:
        readable_id(int(highest), log)


def readable_id(record_id: int, log: OpenLog) -> int:
    """Return ``record_id`` unchanged. Raises LogTableError if it is too large to be read."""
    last = log.dialect.last_record_id
    if record_id > last:
        raise LogTableError(
            f"the log {log} has a row with {log.table.column('record_id')} = {record_id}, above "
            f"{last} (2^63 - 1), the greatest possible record_id: restart the sequence of its rows "
            "below that, and delete or renumber the rows above it"
        )
    return record_id


def extent(log: OpenLog) -> tuple[int, int] | None:
    """Return the lowest and the highest positive record_id, None if there is none."""
    record_id = column_of(log.table, "record_id")
    lowest, highest = log.connection.execute(
        sa.select(sa.func.min(record_id), sa.func.max(record_id)).where(record_id > 0)
    ).one()
    return None if lowest is None else (int(lowest), int(highest))


def count_queue(log: OpenLog, most: int) -> int:
    """Count the rows of status N with the queue's index, up to ``most``."""
    place, is_new = _queued(log)
    first = sa.select(place.label("place")).where(*is_new).order_by(place).limit(most)
    return count(log.connection, first.subquery())


def _queued(log: OpenLog) -> tuple[sa.ColumnElement[Any], list[sa.ColumnElement[bool]]]:
    """Return the record_id in the form in which the queue's index contains it, and the conditions
    that select rows of status N.
    """
    record_id, status = column_of(log.table, "record_id"), column_of(log.table, "status")
    if log.dialect.queue_by_expression:
        place = sa.case((STATUS_NEW, record_id), value=status)
        return place, [place.is_not(None)]
    return record_id, [status == STATUS_NEW]


def count(
    conn: Connection, table: sa.FromClause, conditions: Iterable[sa.ColumnElement[bool]] = ()
) -> int:
    """Return the number of rows of a table."""
    return int(
        conn.execute(sa.select(sa.func.count()).select_from(table).where(*conditions)).scalar_one()
    )


def count_by_status(log: OpenLog) -> dict[str, int]:
    """Return the number of rows of each status, without trailing blanks.

    Reads the whole log.
    """
    status = column_of(log.table, "status")
    counts: Counter[str] = Counter()
    for value, number in log.connection.execute(
        sa.select(status, sa.func.count()).group_by(status)
    ):
        counts[unpadded(value)] += number
    return dict(counts)


def count_newest(log: OpenLog, most: int) -> list[tuple[str | None, str, int]]:
    """Count the newest ``most`` rows of the log by table_name and status.

    Yields table_name, status, number, without trailing blanks, in this order.
    """
    record_id = column_of(log.table, "record_id")
    newest = (
        sa.select(
            column_of(log.table, "table_name").label("table_name"),
            column_of(log.table, "status").label("status"),
        )
        .where(record_id.is_not(None))
        .order_by(record_id.desc())
        .limit(most)
        .subquery()
    )
    counted = sa.select(newest.c.table_name, newest.c.status, sa.func.count()).group_by(*newest.c)
    counts: Counter[tuple[str | None, str]] = Counter()
    for table_name, status, number in log.connection.execute(counted):
        counts[table_name, unpadded(status)] += number
    return sorted(
        ((*kind, number) for kind, number in counts.items()), key=lambda one: (one[0] or "", one[1])
    )


# --- queuing rows again -----------------------------------------------------------------------


class RefusedRow(NamedTuple):
    """A row that ``requeue`` refuses to queue again, since it would send an old value."""

    record_id: int
    event_type: int
    table_name: str
    table_key: str


class Requeued(NamedTuple):
    """The result of ``requeue``: rows set back to N, rows logged again, and refused rows.

    ``removed`` is the highest record_id that was removed from the log, 0 = none: for a refused row
    below it, it is unknown whether its object had later rows.
    """

    set_back: int
    copied: int
    refused: tuple[RefusedRow, ...]
    removed: int = 0


def requeue(
    log: OpenLog,
    statuses: Iterable[str],
    ids: Ranges | None = None,
    *,
    in_flight: RecordSet | frozenset[int] = frozenset(),
    claimed_to: int = 0,
    own_user: str = "",
    force: bool = False,
    dry: bool = False,
) -> Requeued:
    """Queue done rows again (spec/event-log.md 11).

    Rows of status E and F are set back to N and keep their place. Rows of status W and S are logged
    again as copies with new record_ids, since the receiver has applied their event-ids. Unless
    ``force``, it refuses rows of types 1 to 4 that ``judge`` finds stale, or whose record_id is
    below a row that was removed from the log. If only some rows of an insert are queued again, they
    are sent as modifies. ``ids`` None = all. ``in_flight`` are rows of status N that have been
    sent, or are about to be; if rows of status E or F may be set back, call
    ``OpenLog.lock_requeuing`` before reading them. ``claimed_to`` is the last record_id that a
    finished directory claims, 0 = there is none: unless ``force``, it refuses rows of status E and
    F up to it. ``own_user`` is the user whose rows are loopback, empty = nobody. With ``dry``
    nothing is changed, and the numbers are what would be changed. Raises ConfigError for a status
    that cannot be requeued.
    """
    chosen_statuses = set(statuses)
    if unknown := chosen_statuses.difference(APPLIED, _FAILED):
        raise ConfigError(f"status {min(unknown)!r} cannot be requeued: only E, F, W and S can")

    judged = judged_by_status(in_flight)
    chosen = sa.and_(
        column_of(log.table, "status").in_(sorted(chosen_statuses)),
        column_of(log.table, "record_id") > 0,
        *_within(log.table, ids),
    )

    def judge_now() -> ResendPlan:
        return judge_all(log, chosen, judged, own_user=own_user, claimed_to=claimed_to, force=force)

    if dry:
        again = judge_now()
        return Requeued(len(again.back), len(again.copied), again.refused, again.removed)
    # INSERT is needed only for copies. UPDATE of columns other than the status is needed only for
    # parts of inserts.
    again, copied = _copied(log, judge_now, {"status": STATUS_NEW}, force=force)
    set_back = _set_back(log, again.back, again.in_parts)
    if again.back:
        record_requeue_request(log, again.back)
    return Requeued(set_back, copied, again.refused, again.removed)


def judged_by_status(in_flight: RecordSet | frozenset[int]) -> Callable[[ObjectRow], LoggedRow]:
    """Return the function that classifies a row for the publisher's receiver, by its status.
    ``in_flight`` is that of ``requeue``.
    """

    def judged(row: ObjectRow) -> LoggedRow:
        way = None
        if row.is_chosen:
            way = Way.COPY if row.status in APPLIED else Way.BACK
        is_sent = row.status in APPLIED or (
            row.status == Status.NEW and (row.is_own or row.record_id in in_flight)
        )
        return LoggedRow(
            row.record_id, row.event_type, row.column_name, _state_of(row, is_sent), way
        )

    return judged


def requeue_loopback(
    log: OpenLog,
    user: str,
    ids: Ranges | None = None,
    *,
    force: bool = False,
    dry: bool = False,
) -> Requeued:
    """Log rows of status S of the publisher's user again, without a perpetrator, because they were
    not published (spec/event-log.md 8.3).

    Unless ``force``, it refuses rows of types 1 to 4 whose object has a later row that was
    published, is waiting, or is not queued again, and those below a row that was removed from the
    log. If only some rows of an insert are queued again, they are sent as modifies.
    """

    def judged(row: ObjectRow) -> LoggedRow:
        way = Way.COPY if row.is_chosen else None
        # Copies do not make each other stale, since they are written in the order of the rows.
        state = RowState.IGNORED if row.is_chosen else _state_of(row, row.status in APPLIED)
        return LoggedRow(row.record_id, row.event_type, row.column_name, state, way)

    record_id, perpetrator = column_of(log.table, "record_id"), column_of(log.table, "perpetrator")
    is_own = sa.func.rtrim(perpetrator) == user
    is_success = column_of(log.table, "status") == Status.SUCCESS
    chosen = sa.and_(is_own, is_success, record_id > 0, *_within(log.table, ids))

    def judge_now() -> ResendPlan:
        return judge_all(log, chosen, judged, force=force)

    if dry:
        again = judge_now()
        return Requeued(0, len(again.copied), again.refused, again.removed)
    new: dict[str, sa.ColumnElement[Any]] = {"status": STATUS_NEW, "perpetrator": sa.null()}
    again, copied = _copied(log, judge_now, new, force=force)
    return Requeued(0, copied, again.refused, again.removed)


def _within(log: LogTable, ids: Ranges | None) -> list[sa.ColumnElement[bool]]:
    return [] if ids is None else [is_in(log, ids)]


def is_in(log: LogTable, ids: Ranges) -> sa.ColumnElement[bool]:
    """Return the condition that a row's record_id is in one of the ranges."""
    record_id = column_of(log, "record_id")
    return sa.or_(*(record_id.between(first, last) for first, last in ids)) if ids else NEVER


class ObjectRow(NamedTuple):
    """A row of the log, with the fields that queueing it again needs.

    ``is_chosen`` means that it should be queued again, ``is_own`` that the publisher's user wrote
    it.
    """

    record_id: int
    event_type: int
    table_name: str | None
    table_key: str | None
    column_name: str | None
    status: str
    is_chosen: bool
    is_own: bool


def read_logged_objects(
    log: OpenLog, chosen: sa.ColumnElement[bool], own_user: str = "", after: int = 0
) -> Iterator[list[ObjectRow]]:
    """Return all rows of each object (as table_name and table_key spell it) that has a chosen row,
    in record_id order. The names of a renamed table are one name. Rows up to record_id ``after``
    are not read.

    A row that names no object is returned alone. The statement runs before the function returns.
    """
    record_id, event_type, table_name, table_key, column_name, status, perpetrator = (
        column_of(log.table, field).label(field)
        for field in (*ObjectRow._fields[:6], "perpetrator")
    )
    # A window function reads and sorts the log once. The plan of a self-join would depend on
    # statistics, which may show the log as empty. Before version 23, Oracle does not accept a
    # condition as a column.
    is_chosen = sa.case((chosen, _ONE), else_=_ZERO)
    is_own = sa.case((sa.func.rtrim(perpetrator) == own_user, _ONE), else_=_ZERO)
    names = [_present_name(log.table, table_name), table_key]
    addressed = column_of(log.table, "record_id") > after
    columns = (
        *(record_id, event_type, table_name, table_key, column_name, status),
        is_chosen.label("is_chosen"),
        (is_own if own_user else _ZERO).label("is_own"),
        sa.func.max(is_chosen).over(partition_by=names).label("is_wanted"),
        sa.func.min(record_id).over(partition_by=names).label("place"),
    )
    rows = sa.select(*columns).where(addressed).subquery("logged")
    wanted = (
        sa.select(rows.c.place, *(rows.c[field] for field in ObjectRow._fields))
        .where(rows.c.is_wanted == _ONE)
        .order_by(rows.c.place, rows.c.record_id)
    )
    return _by_object(log.table, log.db.fetch_texts(wanted))


def _present_name(log: LogTable, table_name: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return the present name of the table or view that a row names (``LogTable.present_name``)."""
    folded = sa.func.lower(table_name)
    present = [
        (folded.in_([name.lower() for name in names]), sa.literal(names[0]))
        for names in log.renamed
    ]
    return sa.case(*present, else_=table_name) if present else table_name


def _by_object(log: LogTable, found: Iterable[Sequence[Any]]) -> Iterator[list[ObjectRow]]:
    """Yield the rows of one object after the other from the result of ``read_logged_objects``'s
    statement.
    """
    for _, alike in groupby(found, key=itemgetter(0)):
        # A collation may treat different names or keys as equal.
        objects: dict[object, list[ObjectRow]] = {}
        for _, number, type_, table, key, column, status, is_one, is_of_user in alike:
            row = ObjectRow(
                int(number),
                int(type_ or 0),
                table,
                key,
                column,
                unpadded(status),
                bool(is_one),
                bool(is_of_user),
            )
            names_object = table is not None and key is not None
            named = (log.present_name(table), key) if names_object else row.record_id
            objects.setdefault(named, []).append(row)
        yield from objects.values()


def _state_of(row: ObjectRow, is_sent: bool) -> RowState:
    if is_sent:
        return RowState.DONE
    if row.status == Status.NEW:
        return RowState.WAITS
    return RowState.REFUSED if row.status in _FAILED else RowState.IGNORED


class ResendPlan(NamedTuple):
    """The rows to send again, by record_id, ascending; those in ``in_parts`` as modifies."""

    back: list[int]
    copied: list[int]
    in_parts: set[int]
    refused: tuple[RefusedRow, ...]
    removed: int
    """The highest record_id that was removed from the log, 0 = none."""


def judge_all(
    log: OpenLog,
    chosen: sa.ColumnElement[bool],
    judged: Callable[[ObjectRow], LoggedRow],
    *,
    own_user: str = "",
    whole: bool = False,
    claimed_to: int = 0,
    force: bool = False,
) -> ResendPlan:
    """Judge all rows of the objects that have a ``chosen`` row. ``judged`` returns the state of
    each row, ``own_user`` is as for ``requeue``.

    Unless ``force``, it refuses stale rows, rows of types 1 to 4 with a lower record_id than a row
    that was removed from the log, rows set back to N up to ``claimed_to``, and with ``whole`` rows
    of inserts of which only some rows are sent again.
    """
    objects = read_logged_objects(log, chosen, own_user)
    # The order matters: a process that removes rows records the removal first. So removed rows are
    # either read here, or recorded.
    removed = read_removed(log)
    return plan_of(objects, removed, judged, whole=whole, claimed_to=claimed_to, force=force)


def plan_of(
    objects: Iterable[Sequence[ObjectRow]],
    removed: int,
    judged: Callable[[ObjectRow], LoggedRow],
    *,
    whole: bool = False,
    claimed_to: int = 0,
    force: bool = False,
) -> ResendPlan:
    """Return which chosen rows of these objects are sent again and which are refused, by the rules
    of ``judge_all``. ``removed`` is the highest record_id that was removed from the log.
    """
    ids: dict[Way, list[int]] = {way: [] for way in Way}
    in_parts: set[int] = set()
    refused: list[RefusedRow] = []
    for rows in objects:
        logged = list(map(judged, rows))
        judgement = judge(logged)
        in_parts.update(judgement.in_parts)
        not_allowed = {*judgement.stale, *(judgement.in_parts if whole else ())}
        for row, (record_id, event_type, _, _, way) in zip(rows, logged, strict=True):
            is_claimed = way is Way.BACK and record_id <= claimed_to
            is_unknown = record_id < removed and event_type <= EventType.DELETE_ROW
            is_refused_now = is_claimed or is_unknown or record_id in not_allowed
            if way is not None and is_refused_now and not force:
                refused.append(
                    RefusedRow(record_id, event_type, str(row.table_name), str(row.table_key))
                )
            elif way is not None:
                ids[way].append(record_id)
    back, copied = sorted(ids[Way.BACK]), sorted(ids[Way.COPY])
    return ResendPlan(back, copied, in_parts, tuple(sorted(refused)), removed)


MAX_RANGES: Final = 500
"""The number of ranges of record_ids in one statement: SQLite accepts expressions of at most a
thousand parts.
"""


def runs_of_ranges(ids: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Yield lists of ranges from ascending record_ids, each list as long as one
    statement accepts.
    """
    ranges = to_ranges(ids)
    for start in range(0, len(ranges), MAX_RANGES):
        yield ranges[start : start + MAX_RANGES]


def _as_modify(log: LogTable) -> dict[str, sa.ColumnElement[Any]]:
    """Return the values that turn an insert's row into an update's row: type 2 in place of 1, 8 in
    place of 7, and no old value, which an insert does not use.
    """
    event_type = column_of(log, "event_type")
    by_value, read_back = (
        sa.literal_column(str(int(each)), sa.Integer())
        for each in (EventType.UPDATE_FIELD, EventType.UPDATE_FIELD_QUERY_BACK)
    )
    is_by_value = event_type == EventType.INSERT_FIELD
    return {
        "event_type": sa.case((is_by_value, by_value), else_=read_back),
        "old_value": sa.null(),
    }


def _set_back(log: OpenLog, ids: Sequence[int], in_parts: Container[int]) -> int:
    """Set rows of status E and F back to N, those in ``in_parts`` as modifies, and return their
    number.
    """
    is_failed = column_of(log.table, "status").in_(_FAILED)
    parts, whole = (
        [record_id for record_id in ids if (record_id in in_parts) is is_part]
        for is_part in (True, False)
    )
    total = 0
    for chosen, changed in ((whole, {}), (parts, _as_modify(log.table))):
        values = {column_of(log.table, field): value for field, value in changed.items()}
        # A standby refuses the statement even if no row would be set back.
        for ranges in list(runs_of_ranges(chosen)) or ([] if changed else [[]]):
            total += log.connection.execute(
                sa.update(rows_of(log.table))
                .where(is_failed, is_in(log.table, ranges))
                .values({column_of(log.table, "status"): Status.NEW, **values})
            ).rowcount
    return total


_MAY_WRITE: Final = (
    "its rows may come before the copies. End the transaction (`eventlog doctor` "
    "shows it), then run the command again, or `eventlog resync` for these objects"
)


def _copied(
    log: OpenLog,
    judge_now: Callable[[], ResendPlan],
    new: Mapping[str, sa.ColumnElement[Any]],
    *,
    force: bool,
) -> tuple[ResendPlan, int]:
    """Judge rows, log copies of those that may be queued again, and return the judgement and the
    number of copies.

    An open transaction may have drawn a number below those of the copies for a change of the same
    object: the copy would send an older value again. So the function waits for such transactions. A
    change that draws a number above the copies may commit and be published first. So if any row of
    the objects has appeared meanwhile, all rows are judged again. With ``force`` it does not wait.
    Raises DatabaseError for a transaction that does not end.
    """
    again = judge_now()
    while again.copied and not force and writers_to_await(log) is not None:
        before, _ = _rows_of_same_objects(log, again.copied)
        savepoint = log.connection.begin_nested()
        wanted, again = again.copied, judge_now()
        if again.copied != wanted:
            savepoint.rollback()
            continue
        copied = copy_rows(log, again.copied, again.in_parts, new)
        if writers := writers_to_await(log):
            wait_for(log, writers, _MAY_WRITE)
        after, named = _rows_of_same_objects(log, again.copied)
        if len(after - before) == named:
            savepoint.commit()
            return again, copied
        savepoint.rollback()
        again = judge_now()
    return again, copy_rows(log, again.copied, again.in_parts, new)


def _rows_of_same_objects(log: OpenLog, ids: Sequence[int]) -> tuple[set[int], int]:
    """Return all rows of the objects of these rows, and the number of these rows that name an
    object.
    """
    others = rows_of(log.table).alias("others")
    of_other = {field: others.c[quoted(log.table.column(field))] for field in LogRow._fields[:7]}
    table_name, table_key = names = [
        column_of(log.table, field) for field in ("table_name", "table_key")
    ]
    is_same_object = [
        _present_name(log.table, of_other["table_name"]) == _present_name(log.table, table_name),
        of_other["table_key"] == table_key,
    ]
    others_found: set[int] = set()
    named = 0
    for ranges in runs_of_ranges(ids):
        alike = sa.select(*names).where(is_in(log.table, ranges), *is_same_object)
        found = sa.select(of_other["record_id"]).where(alike.exists())
        others_found.update(map(int, log.connection.execute(found).scalars()))
        count = sa.select(sa.func.count()).select_from(rows_of(log.table))
        has_names = [name.is_not(None) for name in names]
        named += int(
            log.connection.execute(count.where(is_in(log.table, ranges), *has_names)).scalar_one()
        )
    return others_found, named


def copy_rows(
    log: OpenLog,
    ids: Sequence[int],
    in_parts: Container[int],
    new: Mapping[str, sa.ColumnElement[Any]],
) -> int:
    """Log rows of status S and W again, in their order, with the values ``new`` in some fields;
    those in ``in_parts`` become modifies. Return their number.
    """
    is_applied = column_of(log.table, "status").in_(APPLIED)
    total = 0
    for is_part, run in groupby(ids, key=in_parts.__contains__):
        changed = {**new, **_as_modify(log.table)} if is_part else new
        values = {
            field: changed.get(field, column_of(log.table, field))
            for field in LogRow._fields
            if field != "record_id"
        }
        for ranges in runs_of_ranges(list(run)):
            copies = (
                sa.select(*values.values())
                .where(is_applied, is_in(log.table, ranges))
                .order_by(column_of(log.table, "record_id"))
            )
            inserted = log.connection.execute(
                _insert_copies(log, values, copies),
                execution_options={"preserve_rowcount": True},
            )
            total += inserted.rowcount
    return total


def _insert_copies(
    log: OpenLog,
    values: Mapping[str, sa.ColumnElement[Any]],
    copies: sa.Select[Any],
) -> sa.Insert:
    """Return the statement that logs the rows of a sorted query of these fields. It draws the next
    number for each row, if the database does not number the column itself (spec/event-log.md 9.1).
    """
    fields = [*values]
    if log.table.sequence is not None:
        number: sa.ColumnElement[Any] = sa.literal_column(
            log.dialect.next_number(*log.table.sequence)
        )
        if log.dialect.numbers_sorted_rows:
            copies = copies.with_only_columns(number, *values.values())
        else:
            named = copies.with_only_columns(*(one.label(field) for field, one in values.items()))
            copies = sa.select(number, *named.subquery("sorted").c)
        fields.insert(0, "record_id")
    return sa.insert(rows_of(log.table)).from_select(
        [column_of(log.table, field) for field in fields], copies
    )


# --- errors and requests --------------------------------------------------------------------------


@lru_cache(maxsize=32)
def errors_of(log: LogTable) -> sa.TableClause:
    """Return ``<log>_error`` with its columns for a statement."""
    others = ("record_id", "code", "message", "consumer", "event_id")
    columns = [sa.column("error_time", sa.TIMESTAMP()), *map(sa.column, others)]
    return sa.table(quoted(log.error_table), *columns, schema=schema_of(log))


def add_errors(
    log: OpenLog,
    entries: Sequence[tuple[int, str, str]],
    consumer: str = "",
    event_ids: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Write rows (record_id, code, message) to ``<log>_error``; characters that no text column
    accepts are replaced.

    ``consumer`` is the consumer whose events failed; empty = the publisher. ``event_ids`` has, by
    record_id, the event-ids for sending rows again, where they differ from the first ones.
    """
    if entries:
        time = _error_time(log, consumer, sorted({record_id for record_id, _, _ in entries}))
        whose = {"consumer": consumer} if consumer else {}
        rows = [
            {
                "error_time": time,
                "record_id": record_id,
                "code": code,
                "message": log.db.storable(message),
                **whose,
                **({"event_id": event_ids.get(record_id)} if event_ids else {}),
            }
            for record_id, code, message in entries
        ]
        log.connection.execute(sa.insert(errors_of(log.table)), rows)


def add_object_errors(log: OpenLog, entries: Sequence[tuple[str, str, str]], consumer: str) -> None:
    """Write error rows (event_id, code, message) of objects of a consumer's snapshot; they have the
    record_id 0.
    """
    if entries:
        time = _error_time(log, consumer, [0])
        rows = [
            {
                "error_time": time,
                "record_id": 0,
                "code": code,
                "message": log.db.storable(message),
                "consumer": consumer,
                "event_id": event_id,
            }
            for event_id, code, message in entries
        ]
        log.connection.execute(sa.insert(errors_of(log.table)), rows)


def _error_time(log: OpenLog, consumer: str, ids: Sequence[int]) -> datetime:
    """Return the time for new error rows of these ascending record_ids, UTC.

    It is the database's time. Where the clock was set back, it is later than the earlier error rows
    of the same record_ids, and not earlier than the registration of the consumer, since older ones
    do not count (spec/event-log.md 13.4).
    """
    errors = errors_of(log.table)
    now = sa.literal_column(log.dialect.utc_now, sa.TIMESTAMP())
    begun = [_begun(log.table, consumer)] if consumer else []
    moments: list[datetime] = []
    for ranges in runs_of_ranges(ids):
        of_rows = sa.or_(*(errors.c.record_id.between(*pair) for pair in ranges))
        newest = sa.select(sa.func.max(errors.c.error_time)).where(
            of_rows, _is_consumer(log.table, consumer)
        )
        last, *others = log.connection.execute(
            sa.select(newest.scalar_subquery(), now, *begun)
        ).one()
        moments += [] if last is None else [last + TICK]
        moments += [one.replace(tzinfo=None) for one in others if one is not None]
    return max(moments)


def read_attempts(
    log: OpenLog, consumer: str = "", ids: Sequence[int] | None = None
) -> dict[int, int]:
    """Map the record_id of each refused row to the attempt number for sending it again, where that
    is not 1 (spec/event-log.md 7.4). ``consumer`` is as in ``read_errors``, ``ids`` are the
    ascending record_ids to read; None = all.
    """
    errors = errors_of(log.table)
    named = sa.select(errors.c.record_id, errors.c.event_id).where(
        errors.c.record_id > 0, errors.c.event_id.is_not(None), _is_of(log.table, consumer)
    )
    parts = (
        [named]
        if ids is None
        else [
            named.where(sa.or_(*(errors.c.record_id.between(*pair) for pair in ranges)))
            for ranges in runs_of_ranges(ids)
        ]
    )
    attempts: dict[int, int] = {}
    for part in parts:
        for record_id, event_id in log.connection.execute(part):
            number = max(attempts.get(int(record_id), 1), attempt_of(str(event_id)))
            attempts[int(record_id)] = number
    return attempts


def record_requeue_request(log: OpenLog, ids: Sequence[int]) -> None:
    """Record a request for the publisher: these rows were set back to N (spec/event-log.md 8.1).

    No request is recorded in databases where a publisher does not remember which rows are done. Nor
    is one recorded by a role that may not write it; the publisher then finds the rows later.
    """
    if "consumers" not in log.dialect.capabilities:
        return
    try:
        with log.connection.begin_nested():
            content = json.dumps({"ranges": to_ranges(ids)})
            add_entry(log, EntryKind.REQUEST, next_number(log), content)
    except DBAPIError as error:
        if not is_refused(log.connection, error):
            raise


def take_requests(log: OpenLog) -> list[tuple[int, int]]:
    """Return the rows of all requests of ``record_requeue_request`` as ranges, and delete these
    requests.

    Raises DatabaseError for a request that cannot be read.
    """
    log.db.choose_plans()  # the window that is read next is in the same transaction
    rows: list[tuple[int, int]] = []
    for request in read_entries(log, EntryKind.REQUEST):
        try:
            ranges = json.loads(request.content)["ranges"]
            rows += [(int(first), int(last)) for first, last in ranges]
        except (TypeError, ValueError, KeyError) as error:
            raise unreadable(log, EntryKind.REQUEST, request.number, error) from None
        delete_entry(log, EntryKind.REQUEST, request.number)
    return rows


class ErrorRow(NamedTuple):
    """A row of ``<log>_error``; ``error_time`` is UTC.

    ``event_id`` is set if an object of a consumer's snapshot failed; None = a row of the log
    failed.
    """

    error_time: datetime
    code: str
    message: str
    event_id: str | None = None


def _is_of(log: LogTable, consumer: str) -> sa.ColumnElement[bool]:
    """Return the condition that selects the error rows of a consumer since its registration; for an
    empty name, those of the publisher.
    """
    is_consumer = _is_consumer(log, consumer)
    if not consumer:
        return is_consumer
    return sa.and_(is_consumer, errors_of(log).c.error_time >= _begun(log, consumer))


def _is_consumer(log: LogTable, name: str) -> sa.ColumnElement[bool]:
    """Return the condition that selects all error rows of consumers of this name; for an empty
    name, those of the publisher.
    """
    consumer = errors_of(log).c.consumer
    return consumer == name if name else consumer.is_(None)


def _begun(log: LogTable, consumer: str) -> sa.ScalarSelect[datetime]:
    """Return the query for the time of a consumer's registration."""
    consumers = sa.table(
        quoted(log.consumer_table),
        sa.column("name"),
        sa.column("begun", sa.TIMESTAMP()),
        schema=schema_of(log),
    )
    return sa.select(consumers.c.begun).where(consumers.c.name == consumer).scalar_subquery()


def newest_error_time(log: OpenLog, consumer: str) -> datetime | None:
    """Return the time of the newest error row of a consumer of this name, registered or not, None
    if there is none.
    """
    errors = errors_of(log.table)
    newest = sa.select(sa.func.max(errors.c.error_time)).where(_is_consumer(log.table, consumer))
    return log.connection.execute(newest).scalar()


def _order_of_writing(log: OpenLog) -> sa.ColumnElement[Any]:
    """Return what sorts error rows in the order in which they were written."""
    number = log.dialect.error_number
    return errors_of(log.table).c.error_time if number is None else sa.column(number)


def read_errors(log: OpenLog, row: int | str, consumer: str = "") -> list[ErrorRow]:
    """Return the error rows of a log row, by its record_id, or of an object of a snapshot, by its
    event-id; oldest first.

    ``consumer`` selects the error rows of that consumer since its registration; empty = those of
    the publisher.
    """
    errors = errors_of(log.table)
    columns = (errors.c.error_time, errors.c.code, errors.c.message)
    of_row = errors.c.record_id == row if isinstance(row, int) else errors.c.event_id == row
    entries = (
        sa.select(*columns)
        .where(of_row, _is_of(log.table, consumer))
        .order_by(_order_of_writing(log))
    )
    return [ErrorRow(*entry) for entry in log.connection.execute(entries)]


class FailedRows(NamedTuple):
    """The numbers of rows, and of objects of a consumer's snapshot, that were finally not
    published.
    """

    refused: int
    """The number that the receiver has refused."""
    invalid: int
    """The number that failed a check."""


def count_failed(log: OpenLog, most: int, consumer: str = "") -> FailedRows:
    """Count the rows E and F by the newest ``most`` error rows: what ``eventlog errors`` lists,
    without those that were skipped by hand.

    With ``consumer``, count instead what was refused for this consumer and not queued again since.
    """
    errors = errors_of(log.table)
    order = _order_of_writing(log)
    columns = (errors.c.record_id, errors.c.event_id, errors.c.code)
    entries = (
        sa.select(*columns, order.label("written"))
        .where(_is_of(log.table, consumer))
        .order_by(order.desc(), errors.c.record_id.desc())
        .limit(most)
        .subquery()
    )
    if consumer:
        read = sa.select(entries.c.record_id, entries.c.event_id, entries.c.code, sa.literal("E"))
    else:
        record_id = column_of(log.table, "record_id")
        read = sa.select(
            entries.c.record_id, entries.c.event_id, entries.c.code, column_of(log.table, "status")
        ).join_from(entries, record_id.table, record_id == entries.c.record_id)
    newest: dict[Any, str] = {}
    ordered = read.order_by(entries.c.written.desc(), entries.c.record_id.desc())
    for row, event_id, code, status in log.connection.execute(ordered):
        if unpadded(status) in _FAILED:
            newest.setdefault(row or event_id, code)
    refused = sum(code in (RECEIVER, TOO_LARGE) for code in newest.values())
    settled = sum(code in (PUT_BACK, SKIPPED) for code in newest.values())
    return FailedRows(refused, len(newest) - refused - settled)


def newest_errors(log: OpenLog, most: int, consumer: str = "") -> list[tuple[int, ErrorRow]]:
    """Return at most ``most`` error rows with their record_ids, the newest first.

    ``consumer`` is as for ``read_errors``.
    """
    errors = errors_of(log.table)
    columns = (
        errors.c.record_id,
        errors.c.error_time,
        errors.c.code,
        errors.c.message,
        errors.c.event_id,
    )
    newest_first = _order_of_writing(log).desc(), errors.c.record_id.desc()
    entries = (
        sa.select(*columns).where(_is_of(log.table, consumer)).order_by(*newest_first).limit(most)
    )
    return [
        (int(row), ErrorRow(time, code, message, None if row else event_id))
        for row, time, code, message, event_id in log.connection.execute(entries)
    ]


def newest_errors_of(log: OpenLog, ids: Sequence[int]) -> dict[int, ErrorRow]:
    """Return the newest error row of the publisher for each of these ascending record_ids that has
    one.
    """
    errors = errors_of(log.table)
    columns = (errors.c.record_id, errors.c.error_time, errors.c.code, errors.c.message)
    found: dict[int, ErrorRow] = {}
    for ranges in runs_of_ranges(ids):
        # One search of the index for all single rows, in place of one per row.
        single = [first for first, last in ranges if first == last]
        runs = [errors.c.record_id.between(*pair) for pair in ranges if pair[0] != pair[1]]
        of_rows = sa.or_(errors.c.record_id.in_(single), *runs) if single else sa.or_(*runs)
        entries = sa.select(*columns).where(of_rows, _is_of(log.table, ""))
        for row, *entry in log.connection.execute(entries.order_by(_order_of_writing(log))):
            found[int(row)] = ErrorRow(*entry)
    return found


def newest_failed_rows(log: OpenLog, most: int) -> list[int]:
    """Return the record_ids of the newest rows E and F, at most ``most``, ascending."""
    record_id, status = column_of(log.table, "record_id"), column_of(log.table, "status")
    newest = (
        sa.select(record_id)
        .where(status.in_(_FAILED), record_id > 0)
        .order_by(record_id.desc())
        .limit(most)
    )
    return sorted(int(row) for row in log.connection.execute(newest).scalars())
