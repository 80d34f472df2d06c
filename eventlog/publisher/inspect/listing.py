"""The rows of a log as a list, the newest first, selected by class, status and time, and paged by
record_id.

Each page reads a bounded number of rows, and names the range that it has read. Only the key has an
index, and a page must not read a large log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from eventlog.core.ranges import to_ranges
from eventlog.errors import number_of
from eventlog.model import Status
from eventlog.publisher.context.context import Context
from eventlog.publisher.ledger.ledger import status_of
from eventlog.sql.log.errors import PUT_BACK, ErrorRow, newest_errors_of

_MAX_READ: Final = 5000
_BLOCK: Final = 1000
"""The maximum number of rows that one page reads, and the number of rows that one statement reads.
"""
_MAX_REFUSED: Final = 1500
_BLOCK_REFUSED: Final = 250
"""The same two numbers for refused rows, which are read with their error rows."""
FIELDS: Final = (
    "record_id",
    "status",
    "table_name",
    "table_key",
    "event_type",
    "column_name",
    "event_time",
)
REFUSED: Final = (Status.ERROR, Status.FATAL)


class Wanted(NamedTuple):
    """What a list shows; empty = everything."""

    class_name: str = ""
    status: str = ""
    """N, S, W, E or F; ``refused`` for E and F."""
    since: str = ""
    until: str = ""
    """The first and the last event_time in the form that the log has, or the beginning of an
    event_time in this form.
    """
    before: int | None = None
    """The record_id before which the list begins, None = at the end of the log."""


class ListedRow(NamedTuple):
    """A row of the list, without its values."""

    record_id: int
    status: str
    """The status; for a consumer, its set of processed rows and its error rows determine the
    status.
    """
    class_name: str | None
    """The class of the row, or its table_name if no class has that name."""
    key: str | None
    event_type: int | None
    column_name: str | None
    event_time: str | None
    code: str | None = None
    message: str | None = None
    """The newest error row of a refused row."""


class Listed(NamedTuple):
    """A page of the list."""

    rows: Sequence[ListedRow]
    searched: str
    """Which rows were read."""
    older: int | None
    """The record_id before which the next page begins, None = there is none."""

    def as_data(self) -> dict[str, Any]:
        """Return the page as data for JSON."""
        return {**self._asdict(), "rows": [one._asdict() for one in self.rows]}


def list_rows(context: Context, wanted: Wanted, most: int = 50) -> Listed:
    """Return the newest ``most`` rows that are wanted, and read at most 5,000 rows for this.

    Refused rows are found by their error rows, which have an index; at most 1,500 are read.
    """
    context.ledger.recover()
    is_refused = wanted.status in ("refused", *REFUSED)
    found: list[ListedRow] = []
    before, read, is_end = wanted.before, 0, False
    newest = before
    most_read, size = (_MAX_REFUSED, _BLOCK_REFUSED) if is_refused else (_MAX_READ, _BLOCK)
    while read < most_read and len(found) < most and not is_end:
        block = _refused(context, before) if is_refused else _newest(context, before)
        is_end = len(block) < size
        for row in block:
            newest = newest or row.record_id + 1
            before, read = row.record_id, read + 1
            if _is_wanted(row, wanted):
                found.append(row)
                if len(found) == most:
                    is_end = False
                    break
    if not is_refused:
        failed = sorted(row.record_id for row in found if row.status in REFUSED)
        entries = newest_errors_of(context.log, failed, context.ledger.consumer)
        found = [_with_error(row, entries, context.ledger.consumer) for row in found]
    what = "refused row" if is_refused else "row"
    if not read:
        return Listed((), f"no {what}", None)
    first = "the first" if is_end else f"{before:,}"
    searched = f"{number_of(read, what)}, from {first} to before {newest:,}"
    return Listed(found, searched, None if is_end else before)


def _newest(context: Context, before: int | None) -> list[ListedRow]:
    """Return a block of the newest rows before a record_id."""
    return list(_listed(context, context.log.read_newest(before, _BLOCK, FIELDS)))


def _refused(context: Context, before: int | None) -> list[ListedRow]:
    """Return a block of the newest rows that have error rows and whose record_id is before the
    given record_id. A row that is no longer refused has its present status, so that the caller
    leaves it out.
    """
    log, consumer = context.log, context.ledger.consumer
    ids = log.refused_ids(before, _BLOCK_REFUSED, consumer)
    entries = newest_errors_of(log, sorted(ids), consumer)
    rows = log.read_columns(to_ranges(sorted(ids)), FIELDS) if ids else []
    found = [_with_error(row, entries, consumer) for row in _listed(context, rows)]
    # A row that was purged stays in the block, so that the next one begins before it.
    gone = set(ids).difference(row.record_id for row in found)
    found += [ListedRow(record_id, "", None, None, None, None, None) for record_id in gone]
    return sorted(found, reverse=True)


def _with_error(row: ListedRow, entries: dict[int, ErrorRow], consumer: str) -> ListedRow:
    entry = entries.get(row.record_id)
    if entry is None:
        return row
    status = row.status
    if consumer:  # the consumer's set does not show whether a row was refused
        status = row.status if entry.code == PUT_BACK else Status.ERROR.value
    return row._replace(status=status, code=entry.code, message=entry.message)


def _listed(context: Context, rows: Sequence[tuple[Any, ...]]) -> Iterator[ListedRow]:
    for record_id, status, table_name, key, *more in rows:
        named = context.catalog.log_name(table_name) if table_name else None
        name = table_name if named is None else named.object_class.name
        now = status_of(context.ledger, record_id, status)
        yield ListedRow(record_id, now, name, key, *more)


def _is_wanted(row: ListedRow, wanted: Wanted) -> bool:
    statuses = REFUSED if wanted.status == "refused" else (wanted.status,)
    time = row.event_time or ""
    return (
        row.status != ""
        and wanted.class_name in ("", row.class_name)
        and (not wanted.status or row.status in statuses)
        and wanted.since <= time
        and (not wanted.until or time[: len(wanted.until)] <= wanted.until)
    )
