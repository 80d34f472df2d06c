"""The offsets of a stream of changes, and the ranges of a log between two of them
(spec/spark-changes.md 3).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from eventlog.core.record_set import Range, RecordSet, decode
from eventlog.errors import ConfigError

_last: Final = itemgetter(1)


class Offset(NamedTuple):
    """The position of a stream. ``epoch`` is the log's epoch, ``done`` has the rows read, ``rows``
    is the number of rows in the batch that ends here, None = no batch ends here: the query begins.

    ``absent`` has record_ids below the highest removed one that the log did not have when the query
    began. ``line`` says when the consumer's line was written that protects the unread rows, empty
    without a consumer.
    """

    epoch: str
    done: RecordSet
    rows: int | None
    absent: RecordSet
    line: str

    def as_json(self) -> dict[str, Any]:
        """Return the offset as Spark keeps it."""
        return {
            "epoch": self.epoch,
            "line": self.line,
            "done": self.done.encode(),
            "absent": self.absent.encode(),
            "rows": self.rows,
        }


def offset_of(value: Mapping[str, Any]) -> Offset:
    """Return the offset of its JSON form. Raises ConfigError for a value that is no offset."""
    try:
        return Offset(
            str(value["epoch"]),
            decode(value["done"]),
            None if value["rows"] is None else int(value["rows"]),
            decode(value["absent"]),
            str(value["line"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the checkpoint holds no offset of format eventlog-changes ({error!r}): give the "
            "query another one"
        ) from None


def between(start: RecordSet, end: RecordSet) -> list[Range]:
    """Return the ranges of ``end`` that are not in ``start``, in ascending order."""
    return common(start.gaps(end.top), end.spans)


def common(some: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """Return the intersection of two ascending lists of ranges."""
    found: list[Range] = []
    i = j = 0
    while i < len(some) and j < len(others):
        first, last = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if first <= last:
            found.append((first, last))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found


def minus(ranges: Sequence[Range], others: RecordSet) -> list[Range]:
    """Return ascending ranges without the numbers of a set."""
    return common(ranges, others.gaps(ranges[-1][1])) if ranges else []


def within(ranges: Sequence[Range], first: int, last: int) -> list[Range]:
    """Return the parts of ascending ranges between two record_ids."""
    begin = bisect_left(ranges, first, key=_last)
    found: list[Range] = []
    for low, high in ranges[begin:]:
        if low > last:
            break
        found.append((max(low, first), min(high, last)))
    return found


def length(ranges: Iterable[Range]) -> int:
    """Return the number of record_ids in the ranges."""
    return sum(last - first + 1 for first, last in ranges)
