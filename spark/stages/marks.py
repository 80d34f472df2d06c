"""After ``_SUCCESS``: the rows that were read, and no others, get their letter (spec/event-log.md 8.4, 10).

Rows are named by the files of ``_ids``. Marks are written in bounded transactions, of which each can be the last one:
a rerun goes on, and touches only rows that still have status N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Final

import pyarrow.parquet as pq
from pyarrow import BufferReader
from sqlalchemy import Connection

from eventlog.core.checks import is_of
from eventlog.errors import DatabaseAway
from eventlog.model import Status
from eventlog.publisher.context import Context
from eventlog.sql.connection import as_database_errors
from eventlog.sql.rows import add_errors, read_inflight, strike_inflight
from eventlog.sql.windows import to_ranges
from spark.directory import Directory
from spark.hold import Manifest, committed
from spark.job import BadLine, PartReport

MARKED: Final = "_marked"
"""The folder that says which parts are marked."""
_BATCH_ROWS: Final = 20_000
"""Rows marked in one transaction."""

_Range = tuple[int, int]


def mark(
    context: Context, directory: Directory, manifest: Manifest, connections: int, done: Callable[[int], None]
) -> int:
    """Mark or delete the rows of a finished directory and strike its flights; how many rows changed.

    ``context`` holds the lock of the log. ``connections`` at most are open at once beside it; ``done`` is told of rows
    that have been looked after. Raises DatabaseError.
    """
    directory.make(MARKED)
    one_at_a_time = Lock()

    def still_locked() -> None:
        with one_at_a_time, committed(context) as connection:
            held = context.dialect.holds_lock(connection, context.log)
        if not held:
            raise DatabaseAway(f"the lock of the log {context.log} is lost; run the command again to finish the marks")

    still_locked()
    changed = _strike_flights(context, directory, manifest)
    waiting = [part for part in manifest.parts if not directory.exists(_done(part.part))]
    done(manifest.totals.get("rows_read", 0) - sum(part.rows_read for part in waiting))

    def mark_part(part: PartReport) -> int:
        marked = 0
        with context.connection.engine.connect() as connection, as_database_errors(connection):
            for good, bad, rows in _batches(directory, part.ids):
                still_locked()
                marked += _keep_loopback(context, connection, good) if part.rows_loopback else 0
                marked += _write(context, connection, good, bad)
                connection.commit()
                done(rows)
        directory.write(_done(part.part), b"")
        return marked

    with ThreadPoolExecutor(max(1, connections), thread_name_prefix="eventlog-mark") as threads:
        futures = [threads.submit(mark_part, part) for part in waiting]
        try:
            return changed + sum(future.result() for future in futures)
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise


def is_marked(directory: Directory, manifest: Manifest) -> bool:
    """Whether nothing is left to be marked, as far as the directory knows."""
    return all(directory.exists(_done(part.part)) for part in manifest.parts)


def _done(part: int) -> str:
    return f"{MARKED}/part-{part:06d}"


def _strike_flights(context: Context, directory: Directory, manifest: Manifest) -> int:
    """The rows of each recorded flight, and its line, in one transaction; a line that has gone was done before."""
    changed = 0
    connection = context.connection
    with as_database_errors(connection):
        recorded = {number for number, _ in read_inflight(connection, context.log)} if manifest.in_flight else set()
        for flight in manifest.in_flight:
            if flight.flight in recorded:
                for good, bad, _ in _batches(directory, flight.ids):
                    changed += _write(context, connection, good, bad)
                strike_inflight(connection, context.log, flight.flight)
            connection.commit()
    return changed


def _batches(directory: Directory, ids: str) -> Iterator[tuple[list[_Range], list[BadLine], int]]:
    """The rows of a file, some at a time: ranges to be S, bad rows, and how many rows these are."""
    good: list[_Range] = []
    bad: list[BadLine] = []
    rows = 0
    table = pq.read_table(BufferReader(directory.read(ids)))
    for first, last, status, code, message in zip(*(column.to_pylist() for column in table.columns), strict=True):
        for start in range(first, last + 1, _BATCH_ROWS):
            end = min(last, start + _BATCH_ROWS - 1)
            if status == Status.SUCCESS:
                good.append((start, end))
            else:  # a row alone
                bad.append((start, code, message))
            rows += end - start + 1
            if rows >= _BATCH_ROWS:
                yield good, bad, rows
                good, bad, rows = [], [], 0
    if rows:
        yield good, bad, rows


def _write(context: Context, connection: Connection, good: Sequence[_Range], bad: Sequence[BadLine]) -> int:
    """Mark them in the current transaction."""
    changed = 0
    dialect, log = context.dialect, context.log
    if good:
        if context.options.delete_from_log:
            changed += dialect.delete(connection, log, good)
        else:
            changed += dialect.mark(connection, log, Status.SUCCESS, good)
    if bad:
        ids = [(record_id, record_id) for record_id, _, _ in bad]
        # Only rows that this run marks get a line: each failure has one, whatever was run again.
        waiting = {row.record_id for row in dialect.read_rows(connection, log, ids) if _is_new(row.status)}
        changed += dialect.mark(connection, log, Status.ERROR, ids)
        add_errors(connection, log, [line for line in bad if line[0] in waiting])
    return changed


def _keep_loopback(context: Context, connection: Connection, good: Sequence[_Range]) -> int:
    """Mark the loopback rows among those to be deleted, so that they stay (spec/event-log.md 8.3); how many."""
    options, dialect, log = context.options, context.dialect, context.log
    if not options.delete_from_log or options.delete_loopback or options.driver_user is None or not good:
        return 0
    rows = dialect.read_rows(connection, log, good)
    loopback = [row.record_id for row in rows if is_of(row.perpetrator, options.driver_user) and _is_new(row.status)]
    return dialect.mark(connection, log, Status.SUCCESS, to_ranges(loopback)) if loopback else 0


def _is_new(status: str) -> bool:
    return status.rstrip(" ") == Status.NEW
