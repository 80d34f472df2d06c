"""Second stage: the border rows of a bucket of objects are folded into groups, and these built into events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa

from eventlog.core.catalog import ObjectId
from eventlog.core.checks import CheckedRow
from eventlog.core.events import ids_of
from eventlog.core.fold import Group, RowFolder, first_id, open_groups
from eventlog.model import LogRow
from eventlog.sql.bulk import Part
from spark.job import NOTHING, Job, Numbered, before_each, catalog, total
from spark.session import tune_collector
from spark.stages.events import Builder
from spark.stages.shuffle import (
    BEFORE,
    ROWS,
    TAKEN,
    Blob,
    RowKind,
    as_batch,
    kinds_of,
    of_batch,
    pack_numbered,
    unpack_numbered,
    unpack_rows,
)


class Boundary:
    """Sets those groups of a part apart that may fold with rows of other parts; ``rows``: the rows of these groups.

    Rows fold only within ``fold_distance`` record_ids (spec/event-log.md 6): what lies further from both ends of a part
    folds alike whatever the other parts hold. Only the rows near the ends, few as a rule, have to meet those of others.

    The ``rows`` of all parts, folded together, give exactly the groups that are missing: they begin and end where
    groups do, and wherever rows of an object are left out between them, those lie more than ``fold_distance`` apart.
    """

    def __init__(self, part: Part, fold_distance: int, fold_span: int) -> None:
        self.rows: list[CheckedRow] = []
        self._distance, self._span = fold_distance, fold_span
        self._before, self._last = part.first - 1, part.last
        self._run_ends: dict[ObjectId, int] = {}
        self._reach = self._before

    def final(self, groups: Sequence[Group]) -> list[Group]:
        """The final ones of groups that no later row of the part joins. All groups of the part come in queue order."""
        final: list[Group] = []
        for index, group in enumerate(groups):
            if first_id(group) - self._reach > self._distance:  # as is every group behind it
                return [*final, *groups[index:]]
            if not self._may_begin_before(group):
                final.append(group)
        return final

    def final_at_end(self, groups: Sequence[Group]) -> list[Group]:
        """The final ones of the part's last groups."""
        still_open = set(open_groups(groups, self._last, self._distance, self._span))
        for index in still_open:
            self.rows += groups[index]
        return self.final([group for index, group in enumerate(groups) if index not in still_open])

    def _may_begin_before(self, group: Group) -> bool:
        """Whether the group, which is near such groups or the part before, belongs to a run of its object's rows, none
        too far from the next to fold, whose first one is near that part: where such a run is cut into groups depends on
        what it holds.
        """
        first, _, object_id, _, _, _ = group[0]
        if first - self._run_ends.get(object_id, self._before) > self._distance:
            return False
        last, *_ = group[-1]
        self._run_ends[object_id] = last
        self._reach = max(self._reach, last)
        self.rows += group
        return True


def fold_bucket(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Blobs of one bucket, or of several one after the other, in the order of their first record_ids, to events."""
    tune_collector()
    with ExitStack() as stack:
        folding = _Folding(job, Builder(job, stack))
        for batch in batches:
            blobs = [passed_on for blob in of_batch(batch) for passed_on in folding.take(blob)]
            if blobs:
                yield as_batch(blobs)
        yield as_batch(folding.finish())
        yield as_batch(list(folding.before_parts()))


class _Folding:
    """The rows of the bucket that have been read and not yet sent on."""

    def __init__(self, job: Job, builder: Builder) -> None:
        self._job = job
        self._builder = builder
        self._kinds: list[RowKind] = kinds_of(catalog(job))
        self._bucket = -1
        self._folder = RowFolder(job.options.fold_distance, job.options.fold_span)
        self._log_rows: dict[int, LogRow] = {}
        self._taken_before: list[tuple[int, Numbered]] = []

    def take(self, blob: Blob) -> Iterator[Blob]:
        """What can be sent on, now that this blob has come."""
        if blob.kind == TAKEN:
            self._taken_before.append(unpack_numbered(blob.content))
        elif blob.kind == ROWS:
            yield from self._take_rows(blob)
        else:
            yield blob

    def _take_rows(self, blob: Blob) -> Iterator[Blob]:
        if blob.target != self._bucket:
            yield from self.finish()
            self._bucket = blob.target
        groups = self._folder.take(unpack_rows(blob.content, self._kinds, self._log_rows))
        yield from self._builder.blobs(groups, self._log_rows)
        if groups and self._log_rows:
            self._log_rows = {record_id: self._log_rows[record_id] for record_id in ids_of(self._folder.rows)}

    def finish(self) -> list[Blob]:
        """What is left at the end of a bucket."""
        blobs = list(self._builder.blobs(self._folder.close(None), self._log_rows))
        self._log_rows = {}
        self._folder = RowFolder(self._job.options.fold_distance, self._job.options.fold_span)
        return blobs

    def before_parts(self) -> Iterator[Blob]:
        """What is numbered before each part, as far as it is known here, now that all blobs are sent on."""
        taken = dict(self._builder.taken)
        for part, numbered in self._taken_before:
            taken[part] = total((taken.get(part, NOTHING), numbered))
        for part, before in before_each(taken, len(self._job.parts)):
            yield Blob(BEFORE, part, 0, pack_numbered(part, before))
