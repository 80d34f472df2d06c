"""Groups to what their format writes of them: what the reading and the folding stage have in common."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.events import CurrentRow, Decided, asks_for_values, decide
from eventlog.core.fold import Group, first_id
from eventlog.model import LogRow
from eventlog.publisher.context import Context
from spark.job import EVENTS, FATES, NOTHING, BadLine, Blob, Fates, Job, Numbered, pack_columns, snapshot_context, total
from spark.output.formats import format_named

_BLOB_EVENTS: Final = 2_000


class Builder:
    """Builds the events of groups. ``taken``: what those of each part have taken of the numbering."""

    def __init__(self, job: Job, stack: ExitStack) -> None:
        self.taken: dict[int, Numbered] = {}
        self._job = job
        self._stack = stack
        self._render = format_named(job.output.format).renderer(job)
        self._context: Context | None = None

    @property
    def context(self) -> Context:
        """The snapshot, for reading, by a connection that is opened when it is first asked for."""
        if self._context is None:
            self._context = self._stack.enter_context(snapshot_context(self._job))
        return self._context

    def blobs(self, groups: Sequence[Group], log_rows: Mapping[int, LogRow]) -> Iterator[Blob]:
        """What is written of groups in queue order, and what becomes of their rows, part by part.

        ``log_rows``: their rows as the log has them, for formats that need them.
        """
        decided = self._decided(groups)
        places = list(map(first_id, groups))
        start = 0
        while start < len(places):
            part = self._job.part_of(places[start])
            last = self._job.parts[part - 1].last
            end = bisect_right(places, last, start, min(start + _BLOB_EVENTS, len(places)))
            yield from self._part_blobs(part, decided[start:end], places[start:end], log_rows)
            start = end

    def _part_blobs(
        self, part: int, decided: Sequence[Decided], places: Sequence[int], log_rows: Mapping[int, LogRow]
    ) -> Iterator[Blob]:
        blob, bad, counts, taken = self._render(decided, places, log_rows, self._query_back)
        if blob is not None:
            yield Blob(EVENTS, part, places[0], pack_columns(blob))
        if taken is not NOTHING:
            self.taken[part] = total((self.taken.get(part, NOTHING), taken))
        by_part: dict[int, list[BadLine]] = {part: []}
        for line in bad:
            by_part.setdefault(self._job.part_of(line[0]), []).append(line)
        for number, lines in by_part.items():
            fates = Fates(lines, dict(counts) if number == part else {})
            yield Blob(FATES, number, places[0], fates.packed())

    def _decided(self, groups: Sequence[Group]) -> list[Decided]:
        if not any(map(asks_for_values, groups)):
            return [(group, None, None) for group in groups]
        return decide(groups, self._query_back)

    def _query_back(
        self, object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, CurrentRow]:
        """Rows of objects as of the snapshot."""
        return self.context.query_back(object_class, keys, attributes)
