"""The parts of a log that many sessions read at the same time, and their rows as Arrow batches
(spec/event-log.md 12).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventlog.core.ranges import Ranges, length

if TYPE_CHECKING:
    import pyarrow as pa

_WORTH_IT: Final = 10_000
"""The least number of rows for which dividing a part is worth its cost."""


class LogPart(NamedTuple):
    """A range of record_ids, both ends included, and the approximate number of its rows of the
    wanted status.

    ``ids`` are the record_ids of its rows, if sessions cannot share a database snapshot; ``rows``
    is then exact. Without ``ids`` the part has all rows that the snapshot shows.
    """

    first: int
    last: int
    rows: int
    ids: Ranges | None = None

    def only_own(self, fragments: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Filter fragments of the range's rows down to the rows of this part. The first field of a
        row is record_id.
        """
        if self.ids is None:
            yield from fragments
            return
        ranges = iter(self.ids)
        first, last = next(ranges, (0, 0))
        for fragment in fragments:
            own = []
            for row in fragment:
                while last < row[0] and first:
                    first, last = next(ranges, (0, 0))
                if first and first <= row[0]:
                    own.append(row)
            yield own


def part_size(total: int, rows: int, multiple: int) -> int:
    """Return the number of rows of each part of a log; ``rows`` and ``multiple`` are as
    in ``OpenLog.log_parts``.
    """
    parts, worthwhile = -(-total // rows), -(-total // _WORTH_IT)
    in_step = -(-parts // multiple) * multiple
    return -(-total // max(parts, min(in_step, worthwhile)))


def parts_of(runs: Ranges, first: int, rows: int, multiple: int) -> list[LogPart]:
    """Divide a log whose rows have these record_ids by the rules of ``OpenLog.log_parts``. Return
    the parts with their ``ids``.
    """
    total = length(runs)
    if not total:
        return []
    size = part_size(total, rows, multiple)
    parts: list[LogPart] = []
    own: list[tuple[int, int]] = []
    left = size
    for run_start, end in runs:
        start = run_start
        while start <= end:
            cut = min(end, start + left - 1)
            own.append((start, cut))
            left -= cut - start + 1
            start = cut + 1
            if not left:
                parts.append(LogPart(first, cut, size, tuple(own)))
                first, own, left = start, [], size
    if own:
        parts.append(LogPart(first, own[-1][1], size - left, tuple(own)))
    return parts


def arrow_schema(fields: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of fields of ``LogRow``: record_id and event_type int64, event_time
    timestamp[us], others text.
    """
    import pyarrow as pa

    types = {"record_id": pa.int64(), "event_type": pa.int64(), "event_time": pa.timestamp("us")}
    return pa.schema([pa.field(name, types.get(name, pa.string())) for name in fields])


def arrow_batch(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return rows with these fields as one Arrow batch. The rows contain event_time as text."""
    import pyarrow as pa

    schema = arrow_schema(fields)
    columns = zip(*rows, strict=True)
    arrays = [_array(field, column) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    if field.name != "event_time":
        return pa.array(values, field.type)
    # An Arrow timestamp cannot be infinite.
    texts = [text if text is None or text[:1].isdigit() else None for text in values]
    return pa.array(texts, pa.string()).cast(field.type)
