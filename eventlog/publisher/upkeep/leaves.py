"""The leaves (partitions) of a partitioned log: when a leaf may be removed, and where the open
leaf, which has no upper bound, is cut (spec/event-log.md 14.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, TypeVar

import sqlalchemy as sa

from eventlog.core.clock import monotonic, sleep
from eventlog.core.ranges import Range, Ranges, within
from eventlog.errors import ConfigError, LogInUse, LogTableError, number_of
from eventlog.model import Status
from eventlog.publisher.ledger.in_flight import read_recorded
from eventlog.publisher.send.cycle import recorded_ids
from eventlog.sql.log.epoch import note_removed
from eventlog.sql.log.purge import highest_id
from eventlog.sql.log.rows import APPLIED, MAX_RANGES, column_of, is_in, rows_of
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.leaves import MAX_LEAVES, MAX_MOVED, Leaf, Partitioning
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers.consumers import done_by_consumers, read_consumers
from eventlog.sql.resync import reads_of_log

Result = TypeVar("Result")

PATIENCE: Final = 20.0
"""The number of seconds for which a change of the leaves is retried while other sessions use the
log.
"""
_MIN_WIDTH: Final = 100_000
"""The width of a leaf, in record_ids, if no other leaf shows which width to use."""
_PAUSE: Final = 0.1
"""The seconds between two attempts."""


def means_to_partition(log: OpenLog) -> Partitioning:
    """Return the implementation of partitioning for a log's database. Raises ConfigError if the
    database has no implementation (spec/event-log.md 14.5).
    """
    if log.dialect.partitioning is None:
        raise ConfigError(
            f"only logs on PostgreSQL can be partitioned, and {log} is on {log.dialect.name}. "
            "Remove old rows with `eventlog purge`"
        )
    return log.dialect.partitioning


def refuse_to_partition(log: OpenLog, means: Partitioning, *, is_ours: bool) -> None:
    """Raise an error if the log may not be partitioned, or its partitioning may not be undone. It
    is ConfigError for a log that another program made. It is LogTableError if this session lacks
    the rights of the owner, if other objects are attached to the table, or if the table is
    published.
    """
    if not is_ours:
        raise ConfigError(
            f"the log {log} was not made by `eventlog db upgrade`: only the program that made it "
            "may change its table"
        )
    refuse_unless_owner(log, means)
    if attached := means.dependents(log):
        raise LogTableError(
            f"the table of the log {log} has {', '.join(attached)}, which would stay with the old "
            "table. Drop what is named here (not the table), and create it again afterwards"
        )
    if published := means.publications(log):
        raise LogTableError(
            f"the log {log} is published by {', '.join(published)}, and a subscriber that lacks a "
            "leaf would stop. Publish only the tables that the subscriber needs, without the log"
        )


def refuse_unless_owner(log: OpenLog, means: Partitioning) -> None:
    """Raise LogTableError if this session lacks the rights of the log's owner."""
    if not means.is_owner(log):
        raise LogTableError(
            f"user {log.db.current_user()} does not own the log {log}. Run the command as its "
            "owner, or as a role that has the owner's rights and CREATE on the schema"
        )


def in_turn(log: OpenLog, change: Callable[[], Result]) -> Result:
    """Change the leaves, and retry while other sessions use the log. Each attempt makes the log's
    writers wait briefly. Raises LogInUse after ``PATIENCE`` seconds.
    """
    until = monotonic() + PATIENCE
    while True:
        try:
            return change()
        except LogInUse:
            log.connection.rollback()
            if monotonic() >= until:
                raise
        sleep(_PAUSE)


# --- purge ----------------------------------------------------------------------------------------


class LeafPurge(NamedTuple):
    """The result of a purge for one leaf."""

    leaf: Leaf
    rows: int = 0
    """The number of rows that are removed with the leaf; in a dry run, that would be removed."""
    moved: int = 0
    """The number of rows that are kept by moving them to the lowest leaf."""
    why_kept: str = ""
    """Why the leaf stays, in words; empty = the leaf is removed."""
    by_rows: bool = False
    """True if the leaf has too many rows to keep, so that they are not moved. The other rows are
    then deleted individually.
    """


class _Content(NamedTuple):
    """The rows of a leaf that a purge removes or keeps."""

    rows: int
    highest: int
    """The highest record_id that may be removed, 0 = no row may be removed."""
    stay: Sequence[int]
    """The record_ids of the rows to keep, at most as many as may be moved."""


def cut_ahead(log: OpenLog, means: Partitioning) -> list[Leaf]:
    """Cut the open leaf until it begins far enough above the next record_id. The distance must be
    at least the width of the leaf below the open leaf. Return the leaves that were cut off.
    Commits.
    """
    cut: list[Leaf] = []
    while True:
        leaves = means.leaves(log)
        following = max(log.next_record_id() or highest_id(log) + 1, 1)
        log.commit()
        newest, head = leaves[-2], leaves[-1]
        assert head.first is not None
        width = _MIN_WIDTH if newest.first is None else head.first - newest.first
        if head.first - following >= width:
            return cut
        if len(leaves) >= MAX_LEAVES:
            width *= 2
        at = max(head.first, following) + width
        cut.append(in_turn(log, partial(means.cut, log, at)))


def purge_leaves(
    log: OpenLog,
    means: Partitioning,
    older_than: datetime,
    *,
    max_bytes: int | None = None,
    dry: bool,
) -> Iterator[LeafPurge]:
    """Remove the leaves whose rows are all done and older than ``older_than``, except the lowest
    leaf. Yield the result for each leaf, up to the first leaf that stays. Commits. While the log
    has more than ``max_bytes``, the age of its rows is ignored.

    Rows whose status is neither S nor W are moved to the lowest leaf, unless there are too many of
    them.
    """
    highest = highest_id(log)
    sizes = {} if max_bytes is None else means.sizes(log)
    size = sum(sizes.values())
    # The leaf with the newest row stays, and so do the leaves ahead of it.
    old = [leaf for leaf in means.leaves(log)[1:] if leaf.end is not None and leaf.end <= highest]
    log.commit()
    for leaf in old:
        is_too_large = max_bytes is not None and size > max_bytes
        found = _judge(log, leaf, None if is_too_large else older_than)
        if isinstance(found, LeafPurge):
            log.commit()
            yield found
            return
        log.commit()
        if not dry:
            try:
                in_turn(log, partial(_remove, log, means, leaf, found))
            except (LogInUse, _Needed) as error:
                log.connection.rollback()
                yield LeafPurge(leaf, why_kept=str(error))
                return
            in_turn(log, lambda: means.finish(log))
        size -= sizes.get(leaf.name, 0)
        yield LeafPurge(leaf, found.rows, len(found.stay))


class _Needed(Exception):
    """The leaf may no longer be removed because it has changed since it was checked; the text is
    the reason.
    """


def _remove(log: OpenLog, means: Partitioning, leaf: Leaf, content: _Content) -> None:
    """Remove a leaf, unless one of its rows is needed again in the meantime."""
    if leaf not in means.leaves(log):
        raise _Needed("another purge has removed it")
    undone = _undone(log, leaf)
    if why := _why_needed(log, leaf, undone):
        raise _Needed(why)

    def check() -> None:
        if why := _came(log, leaf, undone, content.highest):
            raise _Needed(why)

    if content.highest:
        note_removed(log, content.highest)
    # Until the log is locked, rows may still be added.
    means.remove(log, leaf, content.stay, check)


def _range_of(leaf: Leaf) -> Range:
    assert leaf.first is not None
    assert leaf.end is not None
    return leaf.first, leaf.end - 1


def _judge(log: OpenLog, leaf: Leaf, older_than: datetime | None) -> _Content | LeafPurge:
    """Return the rows of a leaf that may be removed, or the reason why it stays. ``older_than``
    None = rows of any age.
    """
    record_id, event_time = (column_of(log.table, one) for one in ("record_id", "event_time"))
    status = column_of(log.table, "status")
    is_inside = record_id.between(*_range_of(leaf))
    is_young = sa.false() if older_than is None else event_time >= older_than
    newest = log.connection.scalar(
        sa.select(is_young).where(is_inside).order_by(record_id.desc()).limit(1)
    )
    if newest:
        return LeafPurge(leaf, why_kept="its newest row is younger")
    if why := _why_needed(log, leaf, _undone(log, leaf)):
        return LeafPurge(leaf, why_kept=why)
    # The whole leaf is read here, once.
    is_done = status.in_(APPLIED)
    counted = sa.select(
        sa.func.count(),
        sa.func.count().filter(sa.and_(is_done, is_young)),
        sa.func.max(record_id).filter(is_done),
        sa.func.count().filter(~is_done),
    )
    rows, young, highest, others = log.connection.execute(
        counted.select_from(rows_of(log.table)).where(is_inside)
    ).one()
    if young:
        return LeafPurge(leaf, why_kept=f"{number_of(young, 'row')} of it are younger")
    if others > MAX_MOVED:
        return LeafPurge(
            leaf, why_kept=f"{number_of(others, 'row')} of it stay, which are too many to move",
            by_rows=True,
        )  # fmt: skip
    stay = (
        log.connection.scalars(sa.select(record_id).where(is_inside, ~is_done).order_by(record_id))
        if others
        else ()
    )
    staying = [int(one) for one in stay]
    return _Content(int(rows) - len(staying), int(highest or 0), staying)


def _came(log: OpenLog, leaf: Leaf, undone: Mapping[str, Ranges], highest: int) -> str:
    """Return, in words, a row that was added to a leaf after the leaf was read up to row
    ``highest``, or a row that has status N again; empty if there is no such row. The function runs
    one statement, because writers of the log wait in the meantime.
    """
    record_id, status = (column_of(log.table, one) for one in ("record_id", "status"))
    is_inside = record_id.between(*_range_of(leaf))
    newest = sa.select(record_id).where(is_inside, status.in_(APPLIED))
    rows = {
        "is not published": sa.select(record_id).where(is_inside, status == Status.NEW).limit(1),
        "was added after the leaf was read": newest.where(record_id > highest).limit(1),
        **{
            f"was added, and consumer {name} has not processed it": sa.select(
                sa.func.min(record_id)
            ).where(is_in(log.table, gaps))
            for name, gaps in undone.items()
        },
    }
    found = log.connection.execute(sa.select(*(one.scalar_subquery() for one in rows.values())))
    for reason, row in zip(rows, found.one(), strict=True):
        if row is not None:
            return f"row {row} {reason}"
    return ""


def _undone(log: OpenLog, leaf: Leaf) -> dict[str, Ranges]:
    """Return, for each consumer, the record_ids of a leaf that the consumer has not done. Until the
    end of the transaction no consumer can be registered or reset, and no consumer can be asked to
    send rows again.
    """
    first, last = _range_of(leaf)
    return {
        name: gaps
        for name, done in done_by_consumers(log).items()
        if (gaps := within(done.gaps(last), first, last))
    }


def _why_needed(log: OpenLog, leaf: Leaf, undone: Mapping[str, Ranges]) -> str:
    """Return, in words, why a row of a leaf is still needed; empty if none is. ``undone`` is the
    result of ``_undone``.
    """
    record_id, status = (column_of(log.table, one) for one in ("record_id", "status"))
    first, last = _range_of(leaf)
    is_new = sa.and_(status == Status.NEW, record_id.between(first, last))
    waiting = log.connection.scalar(sa.select(record_id).where(is_new).order_by(record_id).limit(1))
    if waiting is not None:
        return f"row {_dated(log, waiting)} is not published"
    deliveries, claim = read_recorded(log)
    if in_flight := [one for one in recorded_ids(deliveries) if first <= one <= last]:
        return f"row {_dated(log, min(in_flight))} is being delivered"
    if claim is not None and claim.last >= first:
        return claim.in_words
    if why := _why_undone(log, log.table, undone):
        return why
    return next((one.in_words for one in reads_of_log(log) if one.reached < last), "")


def _why_undone(log: OpenLog, table: LogTable, undone: Mapping[str, Ranges]) -> str:
    """Return, in words, a row of a table that a consumer has not processed; empty = none.
    ``undone`` is the result of ``_undone``.
    """
    for name, gaps in undone.items():
        if len(gaps) > MAX_RANGES:
            return (
                f"consumer {name} has {len(gaps):,} gaps in it that open transactions may still "
                "fill"
            )
        first = sa.select(sa.func.min(column_of(table, "record_id"))).where(is_in(table, gaps))
        row = log.connection.scalar(first)
        if row is not None:
            return f"consumer {name} has not processed row {_dated(log, row, table)}"
    return ""


def _dated(log: OpenLog, row: int, table: LogTable | None = None) -> str:
    """Return, in words, a record_id and the event_time of its row in ``table``, by default in the
    log.
    """
    record_id, event_time = (
        column_of(table or log.table, one) for one in ("record_id", "event_time")
    )
    time = log.connection.scalar(sa.select(event_time).where(record_id == row))
    return str(row) if time is None else f"{row} of {time:%Y-%m-%d %H:%M}"


def why_kept(log: OpenLog, leaf: Leaf) -> str:
    """Return, in words, why a row of a leaf is still needed; empty if none is. The function takes
    no lock and writes nothing.
    """
    first, last = _range_of(leaf)
    undone = dict[str, Ranges]()
    moved = {}
    for entry in read_consumers(log):
        entry.done.discard(entry.requeued.rows)
        undone[entry.name] = within(entry.done.gaps(last), first, last)
        moved[entry.name] = entry.moved or entry.begun
    reason = _why_needed(log, leaf, undone)
    for name, time in moved.items():
        if reason.startswith(f"consumer {name} has"):
            return f"{reason}; its set last changed at {time:%Y-%m-%d %H:%M} UTC"
    return reason


# --- detached tables without a record -------------------------------------------------------------


class DetachedLeaf(NamedTuple):
    """A detached table with the comment of a leaf, whose removal is not recorded."""

    name: str
    unprocessed: int | None
    """The number of rows that are neither S nor W; None = this session may not read the table."""


def detached_leaves(log: OpenLog) -> list[DetachedLeaf]:
    """Return the detached leaves of a log whose removal is not recorded. Reads each of these tables
    once. Raises DatabaseError for a record that cannot be read.
    """
    means = log.dialect.partitioning
    return [
        DetachedLeaf(one.name, _unprocessed(log, one.name) if one.is_readable else None)
        for one in (means.unrecorded(log) if means is not None else ())
    ]


def detached_leaf(log: OpenLog, name: str) -> DetachedLeaf:
    """Return a detached leaf of a log whose removal is not recorded. Raises ConfigError if there is
    no such leaf of this name.
    """
    found = detached_leaves(log)
    for one in found:
        if one.name == name:
            return one
    there = f": {', '.join(one.name for one in found)}" if found else ""
    raise ConfigError(
        f"{name} is not a detached leaf of the log {log} with an unrecorded removal; the log has "
        f"{number_of(len(found), 'such table')}{there}"
    )


def finish_leaf(log: OpenLog, means: Partitioning, name: str) -> int:
    """Drop a detached leaf whose removal is not recorded, and return the number of rows that were
    put back into the log. Commits. Raises ConfigError if a consumer has not processed a row of the
    leaf (spec/event-log.md 14.3), and the errors of ``Partitioning.finish_unrecorded``.
    """
    table = _as_log(log, name)
    record_id = column_of(table, "record_id")
    extent = sa.select(sa.func.min(record_id), sa.func.max(record_id))
    first, last = log.connection.execute(extent).one()
    undone = {} if first is None else _undone(log, Leaf(name, int(first), int(last) + 1))
    if why := _why_undone(log, table, undone):
        log.connection.rollback()
        raise ConfigError(
            f"the table {name} stays: {why}. Attach it to the log {log} again with ALTER TABLE "
            "... ATTACH PARTITION; a purge removes it later"
        )
    return means.finish_unrecorded(log, name)


def _unprocessed(log: OpenLog, name: str) -> int:
    table = _as_log(log, name)
    others = column_of(table, "status").not_in(APPLIED)
    counted = sa.select(sa.func.count()).select_from(rows_of(table)).where(others)
    return int(log.connection.execute(counted).scalar_one())


def _as_log(log: OpenLog, name: str) -> LogTable:
    """Return a table that was a leaf of a log, as a log."""
    return replace(log.table, name=name, is_partitioned=False)
