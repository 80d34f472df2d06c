"""Which rows may be queued once more, and how (spec/event-log.md 11).

A row that goes once more may bring an old value back, and a part of an insert comes as an add that
replaces the whole object. Who queues rows once more asks here, object by object: the publisher's
letters, its own user's rows and the sets of consumers differ only in the ``Standing`` of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from eventlog.core.checks import DELETE_ROW, INSERT_FIELD, INSERT_FIELD_QUERY_BACK

_OF_INSERTS: Final = (INSERT_FIELD, INSERT_FIELD_QUERY_BACK)
"""The types that log an insert by a row for each column."""


class Way(Enum):
    """The place to which a row goes once more."""

    BACK = "to its old place"
    COPY = "behind all rows"


class Standing(Enum):
    """What became of a row."""

    DONE = "it was sent, is in flight, or was set apart for good"
    WAITS = "it is going to be sent"
    REFUSED = "it has E or F, and may go back to its old place, now or later"
    IGNORED = "nobody looks at it"


_OUTDATES: Final = {
    Standing.DONE: (Way.BACK, Way.COPY),
    Standing.WAITS: (Way.COPY,),
    Standing.REFUSED: (Way.COPY,),
    Standing.IGNORED: (),
}
"""The ways on which an earlier row of its object would come behind a row."""


class LoggedRow(NamedTuple):
    """A row of an object. ``way`` is None if it is not to go once more."""

    record_id: int
    event_type: int
    column_name: str | None
    standing: Standing
    way: Way | None


class Judgement(NamedTuple):
    """The judgement on the rows of an object that are to go once more, by record_id.

    ``stale`` rows would bring an old value back, or delete an object that is there again.
    ``in_parts`` are those of inserts that do not go as a whole: as an add each of them would
    replace the object.
    """

    stale: list[int]
    in_parts: list[int]


def judge(rows: Sequence[LoggedRow]) -> Judgement:
    """Judge the rows of one object, which are all that the log has of it, in record_id order.

    A row of types 1 to 4 is stale if a later row outdates it; the other types read values back. A
    row that is done outdates every earlier one. A row that waits or was refused outdates copies
    alone, since what goes back to its old place is sent before it. A delete does not outdate
    another. The rows of one insert are parts of one event: they outdate one another only in the
    same column, where they do not go together.
    """
    stale: list[int] = []
    in_parts: list[int] = []
    later = dict.fromkeys(Way, 0)  # the rows behind that outdate what goes on this way
    deletes = dict.fromkeys(Way, 0)  # those of them that are of type 4
    for life in reversed(list(_lives(rows))):
        together = _goes_together(life)
        of_insert = dict.fromkeys(Way, 0)
        columns: dict[Way, set[str | None]] = {way: set() for way in Way}
        for row in reversed(life):
            is_of_insert = row.event_type in _OF_INSERTS
            if row.way is not None:
                others = later[row.way]
                if is_of_insert:
                    others -= of_insert[row.way]
                elif row.event_type == DELETE_ROW:
                    others -= deletes[row.way]
                is_repeated = is_of_insert and not together and row.column_name in columns[row.way]
                if row.event_type <= DELETE_ROW and (others or is_repeated):
                    stale.append(row.record_id)
                if is_of_insert and not together:
                    in_parts.append(row.record_id)
            for way in _OUTDATES[row.standing]:
                later[way] += 1
                if row.event_type == DELETE_ROW:
                    deletes[way] += 1
                elif is_of_insert:
                    of_insert[way] += 1
                    columns[way].add(row.column_name)
    return Judgement(stale[::-1], in_parts[::-1])


def _lives(rows: Sequence[LoggedRow]) -> Iterator[Sequence[LoggedRow]]:
    """Yield the rows up to each delete, with it at their end, and what is behind the last one.

    The rows of an insert stand at the beginning of a life.
    """
    start = 0
    for end, row in enumerate(rows, 1):
        if row.event_type == DELETE_ROW:
            yield rows[start:end]
            start = end
    if start < len(rows):
        yield rows[start:]


def _goes_together(life: Sequence[LoggedRow]) -> bool:
    """Return True if all rows of the insert that a life begins with go on the same way, or wait in
    their old place beside those that go back.

    Rows of an insert behind another row are the rest of one that went in part before.
    """
    insert = [row for row in life if row.event_type in _OF_INSERTS]
    ways = {
        Way.BACK if row.way is None and row.standing is Standing.WAITS else row.way
        for row in insert
    }
    return len(ways) == 1 and all(row.event_type in _OF_INSERTS for row in life[: len(insert)])
