"""Purge a log: determine which rows to check, and which of these rows no delivery and no consumer
still needs (spec/event-log.md 11).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from eventlog.core.ranges import RecordSet, joined
from eventlog.publisher.ledger.in_flight import read_recorded
from eventlog.publisher.send.cycle import recorded_ids
from eventlog.sql.log.purge import (
    Purged,
    PurgedRows,
    highest_id,
    purge_errors,
    purge_rows,
    read_purged,
    write_purged,
)
from eventlog.sql.log.rows import extent
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers.consumers import done_by_consumers

YOUNG: Final = 10_000
"""A purge ends after this many consecutive rows that are younger than the requested age."""
_APART: Final = 300
"""Two gaps are read as one if at most this many record_ids lie between them, as by a publisher."""
WHOLE: Final = timedelta(days=7)
"""The age at which the record of removed rows expires.

The next purge then also finds rows that a transaction has committed late, or that somebody has put
back.
"""
_PURGED_EACH: Final = 100
"""The number of batches after which the record of removed rows is written."""


class Extent(NamedTuple):
    """The rows that a purge checks: the rows between two record_ids, except the rows in ``purged``,
    which were removed earlier.
    """

    first: int
    last: int
    purged: PurgedRows


def extent_of(log: OpenLog) -> Extent:
    """Return the rows that a purge checks if it begins now."""
    last = highest_id(log)
    now, purged = log.db.utc_now(), read_purged(log)
    # If the last record_id is below the recorded rows, the log was emptied or restored.
    if purged is not None and now - purged.whole < WHOLE and purged.rows.top <= last:
        return Extent(purged.rows.floor + 1, last, purged)
    first, last = extent(log) or (1, 0)
    return Extent(first, last, PurgedRows(RecordSet(max(first - 1, 0)), now))


def purge_batches(
    log: OpenLog,
    to_check: Extent,
    size: int,
    older_than: datetime,
    *,
    to_the_end: bool,
    dry: bool,
) -> Iterator[Purged]:
    """Remove rows in batches as ``purge_rows`` does, but keep rows that are in flight or that a
    consumer has not done. Yield each batch before it is committed. The caller also commits at the
    end.

    The rows in flight and the done rows are read in the transaction that removes rows, under the
    lock that prevents the registration of consumers. With ``to_the_end``, rows that are younger
    than ``older_than`` do not end the purge.
    """
    first, last, (known, whole) = to_check
    gone = known.copy()
    spans = known.gaps(last) if first > 0 else [(first, 0), *known.gaps(last)]
    young = batches = 0
    for begin, end in joined(spans, _APART):
        while begin <= end and (to_the_end or young < YOUNG):
            deliveries, _ = read_recorded(log)
            done = done_by_consumers(log)
            batch = purge_rows(
                log, (begin, end), size, older_than, recorded_ids(deliveries), done, dry=dry
            )
            if batch is None:
                break
            begin, batches = batch.last + 1, batches + 1
            young = batch.young + (young if batch.young == batch.rows_checked else 0)
            gone.add(one for one in batch.gone if one[0] > 0)
            if not dry and batches % _PURGED_EACH == 0:
                write_purged(log, PurgedRows(gone, whole))
            yield batch
    if not dry and gone.spans != known.spans:
        write_purged(log, PurgedRows(gone, whole))


def purge_error_rows(
    log: OpenLog,
    size: int,
    event_time: datetime,
    error_time: datetime,
    *,
    dry: bool,
) -> Iterator[Purged]:
    """Remove error rows in batches as ``purge_errors`` does. Yield each batch before it is
    committed.
    """
    deliveries, _ = read_recorded(log)
    in_flight, done = recorded_ids(deliveries), done_by_consumers(log)

    def is_needed(record_id: int) -> bool:
        is_undone = record_id > 0 and any(record_id not in one for one in done.values())
        return is_undone or record_id in in_flight

    after = None
    while batch := purge_errors(log, after, size, event_time, error_time, is_needed, dry=dry):
        after = batch.last
        yield batch
