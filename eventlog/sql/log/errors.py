"""The rows of ``<log>_error``: each belongs to a row of the log, or to an object of a consumer's
snapshot (spec/event-log.md 10).

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from eventlog.core.rows.event_ids import attempt_of
from eventlog.model import unpadded
from eventlog.sql.log.internal_tables import consumers_of, has_columns
from eventlog.sql.log.rows import (
    FAILED,
    Condition,
    Expression,
    column_of,
    is_within,
    runs_of_ranges,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.quoted_names import quoted, schema_of
from eventlog.sql.port.sql_files import in_parts

PUT_BACK: Final = "requeued"
"""An error row with this code means that its log row or object is no longer refused."""
SKIPPED: Final = "skipped"
"""The code of an error row of an event that was given up by hand, or of a refused row that needs
nothing more.
"""
SUPERSEDED: Final = "superseded"
"""The code of an error row of a refused row or object that a resync has logged again: the new row
counts in its place.
"""
DEAD_LETTER: Final = "dead_letter"
"""The code of an error row of a dead letter that was refused itself. This error row changes nothing
about the row or object of the letter; only ``refused_letters`` reads it.
"""
TICK: Final = timedelta(milliseconds=1)
"""The lowest precision that times have in a supported database: the precision of SQLite."""
RECEIVER: Final = "receiver"
"""The code of an error row for an event that the receiver has refused."""
TOO_LARGE: Final = "too_large"
"""The code of an error row for an event that is larger than the receiver accepts."""


_NEW_ROW: Final = "superseded_by"
"""The column of ``<log>_error`` that was added later."""


def records_new_rows(log: OpenLog) -> bool:
    """Return True if ``<log>_error`` has the column that names the new row of a refused row."""
    return has_columns(log, log.table.error_table, (_NEW_ROW,))


@lru_cache(maxsize=32)
def errors_of(log: LogTable) -> sa.TableClause:
    """Return ``<log>_error`` with its columns for a statement."""
    others = ("record_id", "code", "message", "consumer", "event_id", _NEW_ROW)
    columns = [sa.column("error_time", sa.TIMESTAMP()), *map(sa.column, others)]
    return sa.table(quoted(log.error_table), *columns, schema=schema_of(log))


def add_errors(
    log: OpenLog,
    entries: Sequence[tuple[int, str, str]],
    consumer: str = "",
    event_ids: Mapping[int, str] = MappingProxyType({}),
    new_rows: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Write rows (record_id, code, message) to ``<log>_error``; characters that no text column
    accepts are replaced.

    ``consumer`` is the consumer whose events failed; empty = the publisher. ``event_ids`` has, by
    record_id, the event-ids with which rows are sent again, if these differ from the first
    event-ids. ``new_rows`` has, by record_id, the new rows that count in place of the rows.
    """
    _add(
        log,
        [
            {
                "record_id": record_id,
                "code": code,
                "message": message,
                **({"event_id": event_ids.get(record_id)} if event_ids else {}),
                **({_NEW_ROW: new_rows.get(record_id)} if new_rows else {}),
            }
            for record_id, code, message in entries
        ],
        consumer,
    )


def add_object_errors(
    log: OpenLog,
    entries: Sequence[tuple[str, str, str]],
    consumer: str,
    new_rows: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Write error rows (event_id, code, message) of objects of a consumer's snapshot; they have the
    record_id 0. ``new_rows`` has, by event_id, the new rows that count in place of the objects.
    """
    _add(
        log,
        [
            {
                "record_id": 0,
                "code": code,
                "message": message,
                "event_id": event_id,
                **({_NEW_ROW: new_rows.get(event_id)} if new_rows else {}),
            }
            for event_id, code, message in entries
        ],
        consumer,
    )


def _add(log: OpenLog, rows: Sequence[dict[str, Any]], consumer: str) -> None:
    """Write rows to ``<log>_error``, all with the same time."""
    if rows:
        time = _error_time(log, consumer, sorted({row["record_id"] for row in rows}))
        same = {"error_time": time, **({"consumer": consumer} if consumer else {})}
        written = [{**row, **same, "message": log.db.storable(row["message"])} for row in rows]
        log.connection.execute(sa.insert(errors_of(log.table)), written)


def _error_time(log: OpenLog, consumer: str, ids: Sequence[int]) -> datetime:
    """Return the time for new error rows of these ascending record_ids, UTC.

    The time is the database's time. If the clock was set back, the time is later than the earlier
    error rows of the same record_ids. The time is never earlier than the registration of the
    consumer, since older error rows do not count (spec/event-log.md 13.4).
    """
    errors = errors_of(log.table)
    now = sa.literal_column(log.dialect.utc_now, sa.TIMESTAMP())
    begun = [_begun(log.table, consumer)] if consumer else []
    moments: list[datetime] = []
    for ranges in runs_of_ranges(ids):
        of_rows = is_within(errors.c.record_id, ranges)
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
    """Map the record_id of each refused row to the attempt number with which the row is sent again,
    unless that number is 1 (spec/event-log.md 7.4). ``consumer`` is as in ``read_errors``, ``ids``
    are the ascending record_ids to read; None = all.
    """
    errors = errors_of(log.table)
    named = sa.select(errors.c.record_id, errors.c.event_id).where(
        errors.c.record_id > 0, errors.c.event_id.is_not(None), _is_of(log.table, consumer)
    )
    parts = (
        [named]
        if ids is None
        else [named.where(is_within(errors.c.record_id, ranges)) for ranges in runs_of_ranges(ids)]
    )
    attempts: dict[int, int] = {}
    for part in parts:
        for record_id, event_id in log.connection.execute(part):
            number = max(attempts.get(int(record_id), 1), attempt_of(str(event_id)))
            attempts[int(record_id)] = number
    return attempts


class ErrorRow(NamedTuple):
    """A row of ``<log>_error``; ``error_time`` is UTC.

    ``event_id`` is set if an object of a consumer's snapshot failed; None = a row of the log
    failed. ``superseded_by`` is the new row that counts in place of the failed row or object, None
    = there is no new row.
    """

    error_time: datetime
    code: str
    message: str
    event_id: str | None = None
    superseded_by: int | None = None


def _is_of(log: LogTable, consumer: str) -> Condition:
    """Return the condition that selects the error rows of a consumer since its registration; for an
    empty name, the error rows of the publisher.
    """
    return sa.and_(_is_letter_of(log, consumer), errors_of(log).c.code != DEAD_LETTER)


def _is_letter_of(log: LogTable, consumer: str) -> Condition:
    """Return the condition of ``_is_of`` that also selects error rows of dead letters."""
    is_consumer = _is_consumer(log, consumer)
    if not consumer:
        return is_consumer
    return sa.and_(is_consumer, errors_of(log).c.error_time >= _begun(log, consumer))


def _is_consumer(log: LogTable, name: str) -> Condition:
    """Return the condition that selects all error rows of consumers of this name; for an empty
    name, the error rows of the publisher.
    """
    consumer = errors_of(log).c.consumer
    return consumer == name if name else consumer.is_(None)


def _begun(log: LogTable, consumer: str) -> sa.ScalarSelect[datetime]:
    """Return the query for the time of a consumer's registration."""
    consumers = consumers_of(log)
    return sa.select(consumers.c.begun).where(consumers.c.name == consumer).scalar_subquery()


def newest_error_time(log: OpenLog, consumer: str) -> datetime | None:
    """Return the time of the newest error row of a consumer of this name, whether it is registered
    or not; None if there is no error row.
    """
    errors = errors_of(log.table)
    newest = sa.select(sa.func.max(errors.c.error_time)).where(_is_consumer(log.table, consumer))
    return log.connection.execute(newest).scalar()


def _order_of_writing(log: OpenLog) -> Expression:
    """Return the column that sorts error rows in the order in which they were written."""
    number = log.dialect.error_number
    return errors_of(log.table).c.error_time if number is None else sa.column(number)


def _new_row(log: OpenLog) -> Expression:
    """Return the column that names the new row of a refused row, NULL in an older log."""
    return errors_of(log.table).c[_NEW_ROW] if records_new_rows(log) else sa.null().label(_NEW_ROW)


def read_errors(log: OpenLog, row: int | str, consumer: str = "") -> list[ErrorRow]:
    """Return the error rows of one row or object, oldest first. A row of the log is given by its
    record_id, an object of a snapshot by its event-id.

    ``consumer`` selects the error rows of that consumer since its registration; empty = the error
    rows of the publisher.
    """
    return _of_row(log, row, _is_of(log.table, consumer))


def refused_letters(log: OpenLog, row: int | str, consumer: str = "") -> list[ErrorRow]:
    """Return the error rows of those dead letters of a log row or an object that were refused
    themselves. The arguments are as for ``read_errors``.
    """
    is_letter = errors_of(log.table).c.code == DEAD_LETTER
    return _of_row(log, row, sa.and_(_is_letter_of(log.table, consumer), is_letter))


def _of_row(log: OpenLog, row: int | str, condition: Condition) -> list[ErrorRow]:
    errors = errors_of(log.table)
    columns = (errors.c.error_time, errors.c.code, errors.c.message, sa.null(), _new_row(log))
    of_row = errors.c.record_id == row if isinstance(row, int) else errors.c.event_id == row
    entries = sa.select(*columns).where(of_row, condition).order_by(_order_of_writing(log))
    return [ErrorRow(*entry) for entry in log.connection.execute(entries)]


_NO_REFUSAL: Final = (PUT_BACK, SKIPPED, SUPERSEDED, DEAD_LETTER)
_OBJECTS_AT_ONCE: Final = 500


def count_refusals(
    log: OpenLog, ids: Sequence[int], objects: Sequence[str], consumer: str
) -> dict[int | str, int]:
    """Return how often rows, and objects of a snapshot, have become E for a consumer; empty name =
    the publisher. ``ids`` are the ascending record_ids of the rows, ``objects`` the event-ids of
    the objects.
    """
    errors = errors_of(log.table)
    of_reader = _is_consumer(log.table, consumer), errors.c.code.not_in(_NO_REFUSAL)
    counted: dict[int | str, int] = {}
    for ranges in runs_of_ranges(ids):
        of_rows = is_within(errors.c.record_id, ranges)
        by_row = sa.select(errors.c.record_id, sa.func.count()).where(of_rows, *of_reader)
        rows = log.connection.execute(by_row.group_by(errors.c.record_id))
        counted |= {int(row): int(number) for row, number in rows}
    for event_ids in in_parts(objects, _OBJECTS_AT_ONCE):
        some = errors.c.event_id.in_(event_ids)
        by_object = sa.select(errors.c.event_id, sa.func.count()).where(
            errors.c.record_id == 0, some, *of_reader
        )
        found = log.connection.execute(by_object.group_by(errors.c.event_id))
        counted |= {str(event_id): int(number) for event_id, number in found}
    return counted


class FailedRows(NamedTuple):
    """How many rows, and how many objects of a consumer's snapshot, were finally not published."""

    refused: int
    """The number that the receiver has refused."""
    invalid: int
    """The number that failed a check."""
    new_rows: tuple[int, ...] = ()
    """The new rows that count in place of rows and objects which a resync has logged again."""


def count_failed(log: OpenLog, most: int, consumer: str = "") -> FailedRows:
    """Count the rows E and F by the newest ``most`` error rows: the rows that ``eventlog errors``
    lists, without rows that were skipped by hand.

    With ``consumer``, count instead the rows and objects that were refused for this consumer and
    have not been queued again.
    """
    errors = errors_of(log.table)
    order = _order_of_writing(log)
    columns = (errors.c.record_id, errors.c.event_id, errors.c.code, _new_row(log))
    entries = (
        sa.select(*columns, order.label("written"))
        .where(_is_of(log.table, consumer))
        .order_by(order.desc(), errors.c.record_id.desc())
        .limit(most)
        .subquery()
    )
    which = (entries.c.record_id, entries.c.event_id, entries.c.code, entries.c[_NEW_ROW])
    if consumer:
        read = sa.select(*which, sa.literal("E"))
    else:
        record_id = column_of(log.table, "record_id")
        read = sa.select(*which, column_of(log.table, "status")).join_from(
            entries, record_id.table, record_id == entries.c.record_id
        )
    newest: dict[Any, tuple[str, int | None]] = {}
    ordered = read.order_by(entries.c.written.desc(), entries.c.record_id.desc())
    for row, event_id, code, new_row, status in log.connection.execute(ordered):
        if unpadded(status) in FAILED:
            newest.setdefault(row or event_id, (code, new_row))
    codes = [code for code, _ in newest.values()]
    refused = sum(code in (RECEIVER, TOO_LARGE) for code in codes)
    others = sum(code in (PUT_BACK, SKIPPED, SUPERSEDED) for code in codes)
    again = [int(row) for code, row in newest.values() if code == SUPERSEDED and row is not None]
    return FailedRows(refused, len(codes) - refused - others, tuple(again))


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
        _new_row(log),
    )
    newest_first = _order_of_writing(log).desc(), errors.c.record_id.desc()
    entries = (
        sa.select(*columns).where(_is_of(log.table, consumer)).order_by(*newest_first).limit(most)
    )
    return [
        (int(row), ErrorRow(time, code, message, None if row else event_id, new_row))
        for row, time, code, message, event_id, new_row in log.connection.execute(entries)
    ]


def newest_by_row(log: OpenLog, most: int, consumer: str = "") -> dict[int | str, ErrorRow]:
    """Return the newest error row of each row, by record_id, and of each object of a consumer's
    snapshot, by event-id. Only the newest ``most`` error rows are read. ``consumer`` is as for
    ``read_errors``.
    """
    newest: dict[int | str, ErrorRow] = {}
    for record_id, entry in newest_errors(log, most, consumer):
        newest.setdefault(record_id if entry.event_id is None else entry.event_id, entry)
    return newest


def newest_errors_of(log: OpenLog, ids: Sequence[int], consumer: str = "") -> dict[int, ErrorRow]:
    """Return the newest error row of each of these ascending record_ids, if it has error rows.
    ``consumer`` is as for ``read_errors``.
    """
    errors = errors_of(log.table)
    columns = (
        errors.c.record_id,
        errors.c.error_time,
        errors.c.code,
        errors.c.message,
        sa.null(),
        _new_row(log),
    )
    found: dict[int, ErrorRow] = {}
    for ranges in runs_of_ranges(ids):
        # One search of the index for all single rows, in place of one per row.
        single = [first for first, last in ranges if first == last]
        runs = [errors.c.record_id.between(*pair) for pair in ranges if pair[0] != pair[1]]
        of_rows = sa.or_(errors.c.record_id.in_(single), *runs) if single else sa.or_(*runs)
        entries = sa.select(*columns).where(of_rows, _is_of(log.table, consumer))
        for row, *entry in log.connection.execute(entries.order_by(_order_of_writing(log))):
            found[int(row)] = ErrorRow(*entry)
    return found
