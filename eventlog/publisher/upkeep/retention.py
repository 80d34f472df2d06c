"""The limits on the age of a log's rows and on the log's size: ``keep_days`` and ``keep_bytes``.
The module reports whether purges obey these limits, and what holds a purge back (spec/event-log.md
14.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import sqlalchemy as sa

from eventlog.publisher.context.context import NO_RETENTION, Retention
from eventlog.publisher.context.observer import Measured, OverduePurge
from eventlog.publisher.upkeep.leaves import PATIENCE, why_kept
from eventlog.sql.doctor import TableStorage, age
from eventlog.sql.log.purge import highest_id, purge_cutoff
from eventlog.sql.log.rows import column_of
from eventlog.sql.port.leaves import Leaf
from eventlog.sql.port.open_log import OpenLog

_MIN_SPAN: Final = timedelta(hours=1)
"""The shortest time between two rows that shows the growth of a log."""


class LogSize(NamedTuple):
    """The size of a log, and its growth."""

    bytes: int
    leaves: int
    """The number of leaves, 0 = the log is not partitioned."""
    bytes_a_day: float | None
    """The bytes of the rows of one day, None if the rows cover less than an hour."""

    def in_words(self, retention: Retention) -> str:
        """Return the size, the growth and the forecast as a sentence."""
        in_leaves = f" in {self.leaves} leaves" if self.leaves else ""
        text = f"the log has {size_in_words(self.bytes)}{in_leaves}"
        if self.bytes_a_day is None:
            return text
        text += f", and its rows take {size_in_words(self.bytes_a_day)} a day"
        keep_days, keep_bytes = retention
        if keep_days is not None:
            kept = size_in_words(self.bytes_a_day * keep_days)
            text += f"; with keep_days = {keep_days}, the kept rows take {kept}"
        if keep_bytes is not None and self.bytes < keep_bytes and self.bytes_a_day > 0:
            days = (keep_bytes - self.bytes) / self.bytes_a_day
            text += f"; without a purge it reaches keep_bytes in {age(days * 86_400)}"
        return text


def size_in_words(size: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} bytes" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def log_size(log: OpenLog, tables: Sequence[TableStorage]) -> LogSize:
    """Return the size of a log from ``tables``. Its growth is computed from the times of its first
    and its last row, without the lowest leaf, which has rows that stay.
    """
    whole = sum(table.bytes for table in tables if table.part == "log")
    known, sizes = _leaves(log), dict[str, int]()
    if known and log.dialect.partitioning is not None:
        sizes = log.dialect.partitioning.sizes(log)
        del sizes[known[0].name]
    first = 1 if not known or known[0].end is None else known[0].end
    oldest = _time_at(log, first, None, is_last=False)
    newest = _time_at(log, first, None, is_last=True)
    if oldest is None or newest is None:
        return LogSize(whole, len(known), None)
    span = newest - oldest
    grown = (sum(sizes.values()) if known else whole) / max(span, _MIN_SPAN).total_seconds()
    return LogSize(whole, len(known), grown * 86_400 if span >= _MIN_SPAN else None)


def with_retention(
    log: OpenLog, retention: Retention, event_time_zone: str, measured: Measured
) -> Measured:
    """Return the measurements of a log, with the work that its purges have left undone."""
    if retention == NO_RETENTION:
        return measured
    return replace(
        measured,
        overdue_purge=overdue_purge(log, retention, event_time_zone, measured),
        keep_bytes=retention.keep_bytes,
    )


def overdue_purge(
    log: OpenLog, retention: Retention, event_time_zone: str, measured: Measured
) -> OverduePurge:
    """Return what purges should have done at least half of ``keep_days`` ago: remove a leaf, or cut
    the open leaf. Also return what holds a purge back: a row, a consumer, a claim, a resync, or a
    transaction (from ``measured``).
    """
    known = _leaves(log)
    if retention.keep_days is None or len(known) < 2:
        return OverduePurge()
    half = timedelta(days=retention.keep_days / 2)
    leaf, head = known[1], known[-1]
    newest = _time_at(log, leaf.first, leaf.end, is_last=True) if leaf is not head else None
    cutoff, _ = purge_cutoff(log, event_time_zone, 3 * half)
    is_passed = leaf.end is not None and leaf.end <= highest_id(log)
    if is_passed and newest is not None and newest < cutoff:
        what = f"leaf {leaf.name} has only rows up to {newest:%Y-%m-%d %H:%M}"
        return OverduePurge(what, why_kept(log, leaf) or _transaction(measured))
    oldest = _time_at(log, head.first, head.end, is_last=False)
    cutoff, _ = purge_cutoff(log, event_time_zone, half)
    if oldest is not None and oldest < cutoff:
        what = f"the open leaf {head.name} has had rows since {oldest:%Y-%m-%d %H:%M}"
        return OverduePurge(what, _transaction(measured))
    return OverduePurge()


def _leaves(log: OpenLog) -> list[Leaf]:
    means = log.dialect.partitioning
    return means.leaves(log) if means is not None and log.table.is_partitioned else []


def _time_at(log: OpenLog, first: int | None, end: int | None, *, is_last: bool) -> datetime | None:
    """Return the event_time of the first or the last row from record_id ``first`` to the record_id
    before ``end``. A bound None = no bound. Returns None if there is no row.
    """
    record_id, event_time = (column_of(log.table, one) for one in ("record_id", "event_time"))
    order = record_id.desc() if is_last else record_id
    statement = sa.select(event_time).order_by(order).limit(1)
    if first is not None:
        statement = statement.where(record_id >= first)
    if end is not None:
        statement = statement.where(record_id < end)
    time = log.connection.scalar(statement)
    return time if isinstance(time, datetime) else None


def _transaction(measured: Measured) -> str:
    """Return, in words, the transaction for which a removal or a cut waits."""
    seconds = measured.oldest_open_transaction_age_seconds
    if seconds is not None:
        return (
            f"{measured.oldest_open_transaction} has had a transaction open for {age(seconds)} "
            "that has written the log"
        )
    snapshot = measured.oldest_snapshot
    # A purge waits for a database snapshot that passes.
    if snapshot is not None and (snapshot.seconds is None or snapshot.seconds >= PATIENCE):
        since = "" if snapshot.seconds is None else f" for {age(snapshot.seconds)}"
        return f"{snapshot.who} has had a database snapshot{since}"
    return "no purge by the owner of the log has run"
