"""The rules for which rows may be queued again, and how (spec/event-log.md 11).

A row that is queued again may bring an old value back, and a part of an insert becomes an add that
replaces the whole object. All code that queues rows again calls this module, once per object. Rows
with a status, loopback rows and rows of a consumer differ only in their ``RowState``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from eventlog.core.rows.checks import DELETE_ROW, INSERT_FIELD, INSERT_FIELD_QUERY_BACK

_OF_INSERTS: Final = (INSERT_FIELD, INSERT_FIELD_QUERY_BACK)
"""The types that log an insert by one row per column."""


class Way(Enum):
    """The place in the queue to which a row returns."""

    BACK = "to its old place"
    COPY = "after all rows"


class RowState(Enum):
    """The state of a row."""

    DONE = "it was sent, is being sent, or was set apart permanently"
    WAITS = "it will be sent"
    REFUSED = "it has E or F, and may return to its old place, now or later"
    IGNORED = "it does not affect other rows"


_OUTDATES: Final = {
    RowState.DONE: (Way.BACK, Way.COPY),
    RowState.WAITS: (Way.COPY,),
    RowState.REFUSED: (Way.COPY,),
    RowState.IGNORED: (),
}
"""The ways on which an earlier row of the same object would be sent later than a row in this state.
"""


class LoggedRow(NamedTuple):
    """A row of an object. ``way`` is None if the row is not queued again."""

    record_id: int
    event_type: int
    column_name: str | None
    state: RowState
    way: Way | None


class Judgement(NamedTuple):
    """The reasons against queueing rows of an object again, as record_ids.

    ``stale`` rows would bring an old value back, or delete an object that exists again.
    ``in_parts`` are the rows of an insert that is not queued again as a whole, or that lacks
    columns of later rows. As an add, these rows would replace the object.
    """

    stale: list[int]
    in_parts: list[int]


def judge(rows: Sequence[LoggedRow]) -> Judgement:
    """Judge the rows of one object: all its rows in the log, in record_id order.

    A row of types 1 to 4 is stale if a later row outdates it. Rows of the other types are never
    stale, since their values are read back. A row that is done outdates all earlier rows. A row
    that waits or was refused outdates only rows that return as copies, since a row that returns to
    its old place is sent earlier. A delete does not outdate another delete, and the rows of one
    insert, which are parts of one event, do not outdate each other.
    """
    stale: list[int] = []
    in_parts: list[int] = []
    later = dict.fromkeys(Way, 0)  # the later rows that outdate a row that returns on this way
    deletes = dict.fromkeys(Way, 0)  # the later rows of type 4 among them
    columns: dict[Way, set[str | None]] = {way: set() for way in Way}  # of the others; None = all
    for life in reversed(list(_lives(rows))):
        inserts = list(_inserts(life))
        of_insert = dict.fromkeys(Way, 0)  # the later rows of the same insert among them
        lacks = dict.fromkeys(Way, False)  # an add would lack columns of the rows after the insert
        for row in reversed(life):
            is_of_insert = row.event_type in _OF_INSERTS
            if is_of_insert and row.record_id < inserts[-1].first:
                del inserts[-1]
                of_insert = dict.fromkeys(Way, 0)
            if is_of_insert and row.record_id == inserts[-1].last:
                lacks = {way: not columns[way] <= inserts[-1].columns for way in Way}
            if row.way is not None:
                others = later[row.way]
                if is_of_insert:
                    others -= of_insert[row.way]
                elif row.event_type == DELETE_ROW:
                    others -= deletes[row.way]
                if row.event_type <= DELETE_ROW and others:
                    stale.append(row.record_id)
                is_read_back = row.event_type == INSERT_FIELD_QUERY_BACK
                if is_of_insert and (
                    not inserts[-1].goes_together or (is_read_back and lacks[row.way])
                ):
                    in_parts.append(row.record_id)
            for way in _OUTDATES[row.state]:
                later[way] += 1
                if row.event_type == DELETE_ROW:
                    deletes[way] += 1
                    continue
                columns[way].add(row.column_name)
                if is_of_insert:
                    of_insert[way] += 1
    return Judgement(stale[::-1], in_parts[::-1])


def _lives(rows: Sequence[LoggedRow]) -> Iterator[Sequence[LoggedRow]]:
    """Yield the rows up to and including each delete, then the rows after the last delete.

    After a delete, the next life of the object begins with an insert.
    """
    start = 0
    for end, row in enumerate(rows, 1):
        if row.event_type == DELETE_ROW:
            yield rows[start:end]
            start = end
    if start < len(rows):
        yield rows[start:]


class _Insert(NamedTuple):
    """The rows of one insert. ``goes_together`` is True if the rows are the whole object and all
    return on the same way.
    """

    first: int
    last: int
    columns: frozenset[str | None]
    goes_together: bool


def _inserts(life: Sequence[LoggedRow]) -> Iterator[_Insert]:
    """Yield the inserts of a life. A repeated column begins another insert: the log lacks the
    delete between the two inserts.

    ``goes_together`` is true if queueing the rows again makes the whole object, under three
    conditions. All rows return on the same way; a row that waits in its old place is treated as a
    row that returns there. No other row of the object is before these rows, since otherwise the
    rest of the insert was sent earlier. No earlier insert has a column that these rows lack.
    """
    rows = [row for row in life if row.event_type in _OF_INSERTS]
    others = [row.record_id for row in life if row.event_type not in (*_OF_INSERTS, DELETE_ROW)]
    seen: set[str | None] = set()
    start = 0
    while start < len(rows):
        columns: set[str | None] = set()
        ways: set[Way | None] = set()
        end = start
        while end < len(rows) and rows[end].column_name not in columns:
            row = rows[end]
            columns.add(row.column_name)
            waits = row.way is None and row.state is RowState.WAITS
            ways.add(Way.BACK if waits else row.way)
            end += 1
        is_first = not others or rows[end - 1].record_id < others[0]
        yield _Insert(
            rows[start].record_id,
            rows[end - 1].record_id,
            frozenset(columns),
            len(ways) == 1 and is_first and columns >= seen,
        )
        seen |= columns
        start = end
