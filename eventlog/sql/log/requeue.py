"""Rows that are sent again: set back to N, or logged again as copies (spec/event-log.md 11).

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from eventlog.core.ranges import Ranges, RecordSet, to_ranges
from eventlog.core.rows.requeue import LoggedRow, RowState, Way, judge
from eventlog.errors import ConfigError
from eventlog.model import LOG_COLUMNS, EventType, Status, unpadded
from eventlog.sql.log.epoch import read_removed
from eventlog.sql.log.requests import ResendRequest, ask_again
from eventlog.sql.log.rows import (
    APPLIED,
    FAILED,
    ONE,
    STATUS_NEW,
    ZERO,
    Condition,
    Expression,
    column_of,
    flag,
    is_in,
    rows_of,
    runs_of_ranges,
)
from eventlog.sql.log_table import TRANSACTION_ID, LogTable
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.open_writers import wait_for, writers_to_await
from eventlog.sql.port.quoted_names import quoted


class RefusedRow(NamedTuple):
    """A row that ``requeue`` refuses to queue again, since it would send an old value."""

    record_id: int
    event_type: int
    table_name: str
    table_key: str


class Requeued(NamedTuple):
    """The result of ``requeue``: rows set back to N, rows logged again, and refused rows.

    ``removed`` is the highest record_id that was removed from the log, 0 = none: for a refused row
    below this record_id, it is unknown whether the object had later rows. ``is_requested`` is False
    if this role may not ask a running publisher for the rows, so that the publisher finds the rows
    later.
    """

    set_back: int
    copied: int
    refused: tuple[RefusedRow, ...]
    removed: int = 0
    is_requested: bool = True


def requeue(
    log: OpenLog,
    statuses: Iterable[str],
    ids: Ranges | None = None,
    *,
    in_flight: RecordSet | frozenset[int] = frozenset(),
    claimed_to: int = 0,
    own_user: str = "",
    event_time_zone: str = "utc",
    force: bool = False,
    dry: bool = False,
) -> Requeued:
    """Queue done rows again (spec/event-log.md 11).

    Rows of status E and F are set back to N and keep their place. Rows of status W and S are logged
    again as copies with new record_ids, since the receiver has applied their event-ids. Unless
    ``force`` is set, the function refuses rows of types 1 to 4 that ``judge`` finds stale, or whose
    record_id is below a row that was removed from the log. If only some rows of an insert are
    queued again, they are sent as modifies. ``ids`` are the record_ids of the rows, None = all.
    ``in_flight`` are rows of status N that have been sent, or are about to be; if rows of status E
    or F may be set back, call ``OpenLog.lock_requeuing`` before reading the rows in flight.
    ``claimed_to`` is the last record_id that a finished directory claims, 0 = there is no such
    directory. Unless ``force`` is set, rows of status E and F up to this record_id are refused.
    ``own_user`` is the user whose rows are loopback, empty = nobody. ``event_time_zone`` is the
    option of ``[publisher]`` (copies have the present time). With ``dry`` nothing is changed, and
    the numbers are what would be changed. Raises ConfigError for a status that cannot be requeued.
    """
    chosen_statuses = set(statuses)
    if unknown := chosen_statuses.difference(APPLIED, FAILED):
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
    new = {"status": STATUS_NEW, "event_time": _present_time(log, event_time_zone)}
    again, copied = _copied(log, judge_now, new, force=force)
    set_back = _set_back(log, again.back, again.in_parts)
    is_requested = not again.back or ask_again(log, ResendRequest(to_ranges(again.back)))
    return Requeued(set_back, copied, again.refused, again.removed, is_requested)


def judged_by_status(in_flight: RecordSet | frozenset[int]) -> Callable[[ObjectRow], LoggedRow]:
    """Return the function that classifies a row for the publisher's receiver by the row's status.
    ``in_flight`` is as for ``requeue``.
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
    event_time_zone: str = "utc",
    force: bool = False,
    dry: bool = False,
) -> Requeued:
    """Log rows of status S of the publisher's user again, because they were not published
    (spec/event-log.md 8.3). The new rows have no perpetrator.

    Unless ``force`` is set, a row of types 1 to 4 is refused in two cases. In the first case, its
    object has a later row that was published, is waiting, or is not queued again. In the second
    case, a row with a higher record_id was removed from the log. If only some rows of an insert are
    queued again, they are sent as modifies. ``event_time_zone`` is as for ``requeue``.
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
    new: dict[str, Expression] = {
        "status": STATUS_NEW,
        "event_time": _present_time(log, event_time_zone),
        "perpetrator": sa.null(),
    }
    again, copied = _copied(log, judge_now, new, force=force)
    return Requeued(0, copied, again.refused, again.removed)


def _present_time(log: OpenLog, event_time_zone: str) -> Expression:
    """Return the event_time of a copy (spec/event-log.md 11). With the time of the copied row, a
    consumer that begins at a time could pass over rows.
    """
    dialect, table = log.dialect, log.table
    if table.zone_of_times(event_time_zone) == "local":
        return sa.literal_column(dialect.local_now)
    column = dialect.quote(table.column("event_time"))
    return sa.literal_column(dialect.log_times(column, is_zoned=table.has_zoned_time)["new_time"])


def _within(log: LogTable, ids: Ranges | None) -> list[Condition]:
    return [] if ids is None else [is_in(log, ids)]


class ObjectRow(NamedTuple):
    """A row of the log, with the fields that queueing it again needs.

    ``is_chosen`` means that the row should be queued again, ``is_own`` that the publisher's user
    wrote the row.
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
    log: OpenLog, chosen: Condition, own_user: str = "", after: int = 0
) -> Iterator[list[ObjectRow]]:
    """Return all rows of each object (as table_name and table_key spell it) that has a chosen row,
    in record_id order. All names of a renamed table count as one name. Rows up to record_id
    ``after`` are not read.

    A row that names no object is returned alone. The statement runs before the function returns.
    """
    record_id, event_type, table_name, table_key, column_name, status, perpetrator = (
        column_of(log.table, field).label(field)
        for field in (*ObjectRow._fields[:6], "perpetrator")
    )
    # A window function reads and sorts the log once. The plan of a self-join would depend on
    # statistics, which may show the log as empty. Before version 23, Oracle does not accept a
    # condition as a column.
    is_chosen = flag(chosen)
    is_own = flag(sa.func.rtrim(perpetrator) == own_user)
    names = [_present_name(log.table, table_name), table_key]
    addressed = column_of(log.table, "record_id") > after
    columns = (
        *(record_id, event_type, table_name, table_key, column_name, status),
        is_chosen.label("is_chosen"),
        (is_own if own_user else ZERO).label("is_own"),
        sa.func.max(is_chosen).over(partition_by=names).label("is_wanted"),
        sa.func.min(record_id).over(partition_by=names).label("place"),
    )
    rows = sa.select(*columns).where(addressed).subquery("logged")
    wanted = (
        sa.select(rows.c.place, *(rows.c[field] for field in ObjectRow._fields))
        .where(rows.c.is_wanted == ONE)
        .order_by(rows.c.place, rows.c.record_id)
    )
    return _by_object(log.table, log.db.fetch_texts(wanted))


def _present_name(log: LogTable, table_name: Expression) -> Expression:
    """Return the present name of the table or view that a row names (``LogTable.present_name``)."""
    folded = sa.func.lower(table_name)
    present = [
        (folded.in_([name.lower() for name in names]), sa.literal(names[0]))
        for names in log.renamed
    ]
    return sa.case(*present, else_=table_name) if present else table_name


def _by_object(log: LogTable, found: Iterable[Sequence[Any]]) -> Iterator[list[ObjectRow]]:
    """Yield the rows of each object, one object after the other. ``found`` is the result of the
    statement of ``read_logged_objects``.
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
    return RowState.REFUSED if row.status in FAILED else RowState.IGNORED


class ResendPlan(NamedTuple):
    """The record_ids of the rows to send again, ascending; the rows in ``in_parts`` are sent as
    modifies.
    """

    back: list[int]
    copied: list[int]
    in_parts: set[int]
    refused: tuple[RefusedRow, ...]
    removed: int
    """The highest record_id that was removed from the log, 0 = none."""


def judge_all(
    log: OpenLog,
    chosen: Condition,
    judged: Callable[[ObjectRow], LoggedRow],
    *,
    own_user: str = "",
    whole: bool = False,
    claimed_to: int = 0,
    force: bool = False,
) -> ResendPlan:
    """Judge all rows of the objects that have a ``chosen`` row. ``judged`` returns the state of
    each row, ``own_user`` is as for ``requeue``.

    Unless ``force`` is set, these rows are refused: stale rows; rows of types 1 to 4 with a lower
    record_id than a row that was removed from the log; rows set back to N up to ``claimed_to``. If
    ``whole`` is set and only some rows of an insert are sent again, these rows are refused, too.
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


def _as_modify(log: LogTable) -> dict[str, Expression]:
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
    """Set rows of status E and F back to N, and return their number. The rows in ``in_parts``
    become modifies.
    """
    is_failed = column_of(log.table, "status").in_(FAILED)
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
    "its rows may come before the rows that this command writes. End the transaction (`eventlog "
    "doctor` shows it), then run the command again, or `eventlog resync` for these objects"
)


def _copied(
    log: OpenLog,
    judge_now: Callable[[], ResendPlan],
    new: Mapping[str, Expression],
    *,
    force: bool,
) -> tuple[ResendPlan, int]:
    """Judge rows, log copies of the rows that may be queued again, and return the judgement and the
    number of copies.

    An open transaction may have drawn a number below the copies' numbers for a change of the same
    object: the copy would send an older value again. So the function waits for these transactions.
    A change that draws a number above the copies may commit and be published first. So if a new row
    of the objects has appeared in the meantime, all rows are judged again. With ``force`` the
    function does not wait. Raises DatabaseError for a transaction that does not end.
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
    """Return the record_ids of all rows of the objects that the rows ``ids`` name, and how many of
    the rows ``ids`` name an object.
    """
    others = rows_of(log.table).alias("others")
    of_other = {field: others.c[quoted(log.table.column(field))] for field in LOG_COLUMNS[:7]}
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
    new: Mapping[str, Expression],
) -> int:
    """Log rows of status S and W again, in their order, with the values ``new`` in some fields. The
    copies of the rows in ``in_parts`` become modifies. Return the number of copies.
    """
    is_applied = column_of(log.table, "status").in_(APPLIED)
    total = 0
    for is_part, run in groupby(ids, key=in_parts.__contains__):
        changed = {**new, **_as_modify(log.table)} if is_part else new
        values = {
            field: changed.get(field, column_of(log.table, field))
            for field in LOG_COLUMNS
            if field != "record_id"
        }
        if log.table.transaction_column is not None:
            values[TRANSACTION_ID] = _UNKNOWN
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


_UNKNOWN: Final[Expression] = sa.cast(sa.null(), sa.BigInteger())
"""The transaction id of a copy, NULL: the transaction that wrote the copied row ended long ago
(spec/event-log.md 1.5).
"""


def _insert_copies(
    log: OpenLog,
    values: Mapping[str, Expression],
    copies: sa.Select[Any],
) -> sa.Insert:
    """Return the statement that logs the rows of a sorted query of these fields. The statement
    draws the next number for each row, if the database does not number the column itself
    (spec/event-log.md 9.1).
    """
    fields = [*values]
    if log.table.sequence is not None:
        number: Expression = sa.literal_column(log.dialect.next_number(*log.table.sequence))
        if log.dialect.numbers_sorted_rows:
            copies = copies.with_only_columns(number, *values.values())
        else:
            named = copies.with_only_columns(*(one.label(field) for field, one in values.items()))
            copies = sa.select(number, *named.subquery("sorted").c)
        fields.insert(0, "record_id")
    return sa.insert(rows_of(log.table)).from_select(
        [column_of(log.table, field) for field in fields], copies
    )
