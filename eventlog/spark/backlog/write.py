"""The third stage of a backlog job: it writes the events of a part to files, in queue order, and
lists the status of each of its rows.

Before the parts, the events of recorded deliveries are written to part 0 of the output, exactly as
they were recorded: with the same rows, event-ids and documents, the oldest delivery first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.core.ranges import Range, Ranges, length, to_ranges
from eventlog.core.rows.fold import first_id
from eventlog.model import Operation, Status
from eventlog.publisher.context import Context
from eventlog.publisher.ledger import Delivery
from eventlog.publisher.send import Rebuilt, build_recorded
from eventlog.qlik.sequence import is_sequence, sequence_at
from eventlog.spark.backlog.job import (
    BEFORE,
    EVENTS,
    OUTCOMES,
    RUN,
    Blob,
    Columns,
    Counts,
    DeliveryReport,
    Job,
    Numbered,
    OutputFile,
    PartOutcomes,
    PartReport,
    RowFailure,
    blobs_of_batch,
    read_run,
    snapshot_session,
    total,
    unpack_columns,
    unpack_numbered,
)
from eventlog.spark.backlog.output import (
    OutputFormat,
    RenderSent,
    WriteSent,
    Written,
    output_format,
)
from eventlog.spark.directory import Directory
from eventlog.spark.session.in_tasks import Batches, tune_collector

REPORT_SCHEMA: Final = "report string"

IDS: Final = "_ids"
"""The folder of the files that list all rows read."""


def write_part(job: Job, count: Callable[[int], None], batches: Batches) -> Batches:
    """Write the blobs of one part, or of several parts in turn, to files, and yield a
    ``PartReport`` for each part, as JSON.

    ``count`` is called with the number of events written.
    """
    tune_collector()
    directory = Directory(job.output.directory)
    for number, blobs in groupby(
        chain.from_iterable(map(blobs_of_batch, batches)), key=attrgetter("target")
    ):
        part = _Part(number)
        for blob in blobs:
            part.add(blob, directory)
        if not part.ranges:  # all of its rows were left unchanged
            continue
        report = part.write(job, directory)
        count(sum(file.events for file in report.files))
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(asdict(report))]})


class _Part:
    """The collected data of one part."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ranges: list[Range] = []
        self.failures: list[RowFailure] = []
        self.loopback = 0
        self.built: list[Columns] = []
        self.before: list[Numbered] = []
        self.counts: Counter[str] = Counter()

    def add(self, blob: Blob, directory: Directory) -> None:
        if blob.kind == RUN:
            for inner in read_run(directory, blob):
                self.add(inner, directory)
            return
        if blob.kind == OUTCOMES:
            outcomes = PartOutcomes.unpacked(blob.content)
            self.failures += outcomes.failures
            self.counts.update(outcomes.counts)
            self.ranges += outcomes.ranges
            self.loopback += outcomes.loopback
        elif blob.kind == BEFORE:
            self.before.append(unpack_numbered(blob.content)[1])
        else:
            assert blob.kind == EVENTS
            self.built.append(unpack_columns(blob.content))

    def write(self, job: Job, directory: Directory) -> PartReport:
        built, self.built = self.built, []
        before = total((job.before, *self.before))
        files, numbered = output_format(job.output.format).write(
            job, directory, self.number, built, before, {}
        )
        ranges = sorted(self.ranges)
        name = f"{IDS}/part-{self.number:06d}-{job.name}.parquet"
        checksum = _write_ids(directory, name, ranges, self.failures)
        counts = dict(self.counts)
        if self.failures:
            counts["rows_invalid"] = len(self.failures)
        rows = length(ranges)
        first, last = ranges[0][0], ranges[-1][1]
        state = numbered.state
        return PartReport(
            self.number,
            first,
            last,
            rows,
            self.loopback,
            name,
            checksum,
            tuple(files),
            counts,
            state,
        )


# --- the list of statuses
# --------------------------------------------------------------------------

_IDS_SCHEMA: Final = pa.schema(
    [("first", pa.int64()), ("last", pa.int64()), ("status", pa.string()), ("code", pa.string()),
     ("message", pa.string())]
)  # fmt: skip


def _write_ids(
    directory: Directory, name: str, read: Ranges, failures: Iterable[tuple[int, str, str]]
) -> str:
    """Write the status that each read row gets: S, or E with code and message for invalid rows.
    Returns the SHA-256 of the file.
    """
    errors = sorted(failures)
    good = _without(read, [record_id for record_id, _, _ in errors])
    rows: list[tuple[int, int, str, str | None, str | None]] = []
    rows += [(first, last, Status.SUCCESS, None, None) for first, last in good]
    rows += [(record_id, record_id, Status.ERROR, code, message.encode("utf-8", "replace").decode())
             for record_id, code, message in errors]  # fmt: skip
    columns = list(zip(*sorted(rows, key=lambda row: row[0]), strict=True)) or [()] * len(
        _IDS_SCHEMA
    )
    table = pa.Table.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(columns, _IDS_SCHEMA, strict=True)],
        schema=_IDS_SCHEMA,
    )
    with directory.new_file(name) as stream:
        pq.write_table(table, stream, compression="zstd")
    return stream.sha256


def _without(ranges: Ranges, ids: Sequence[int]) -> Iterator[Range]:
    """Yield ``ranges`` without ``ids``. Both are in ascending order."""
    at = 0
    for first, last in ranges:
        while at < len(ids) and ids[at] < first:
            at += 1
        while at < len(ids) and ids[at] <= last:
            if first < ids[at]:
                yield first, ids[at] - 1
            first = ids[at] + 1
            at += 1
        if first <= last:
            yield first, last


# --- recorded deliveries --------------------------------------------------------------------------

Recorded = tuple[list[DeliveryReport], list[OutputFile], Counts]
"""The result for all recorded deliveries: their reports, files and counts."""


def write_recorded(
    job: Job, directory: Directory, deliveries: Sequence[Delivery]
) -> tuple[Recorded, Numbered]:
    """Write the events of recorded deliveries, rebuilt from the rows that still have status N. Rows
    that now fail the checks get E.

    Returns the result, and the numbers used up to the end of these deliveries.
    """
    output = output_format(job.output.format)
    part: _RenderedEvents | _SentDocuments
    if output.render_sent is None or output.write_sent is None:
        part = _RenderedEvents(job, output)
    else:
        part = _SentDocuments(output.render_sent(job), output.write_sent)
    reports: list[DeliveryReport] = []
    counts: Counter[str] = Counter()
    for delivery in deliveries:
        with snapshot_session(job) as session, session.batch() as context:
            rebuilt = build_recorded(context, list(delivery.events()))
            failures, counted = part.add(context, delivery, rebuilt)
        counts.update(counted)
        counts.update(rows_in_flight=len(rebuilt.log_rows), rows_invalid=len(failures))
        ids = f"{IDS}/delivery-{delivery.number:012d}-{job.name}.parquet"
        checksum = _write_ids(directory, ids, to_ranges(sorted(rebuilt.log_rows)), failures)
        events = sum(counted[operation] for operation in Operation)
        reports.append(
            DeliveryReport(delivery.number, ids, checksum, len(rebuilt.log_rows), events)
        )
    files, numbered = part.write(job, directory)
    return (reports, files, dict(counts)), numbered


class _SentDocuments:
    """Recorded events that keep the documents and event-ids with which they were sent."""

    def __init__(self, render: RenderSent, write: WriteSent) -> None:
        self._render, self._write = render, write
        self._blobs: list[Columns] = []

    def add(
        self, context: Context, delivery: Delivery, rebuilt: Rebuilt
    ) -> tuple[list[RowFailure], Counter[str]]:
        """Add the next delivery, and return its invalid rows and counters."""
        failures: list[RowFailure] = []
        counted: Counter[str] = Counter()
        events = iter(rebuilt.events)
        for document in delivery.documents.values():
            own = list(islice(events, len(document)))
            places = [event.ids[0] for event in own]
            blob, failed, counts = self._render(own, places, rebuilt.log_rows, context.query_back)
            failures += failed
            counted.update(
                {operation: counts[operation] for operation in Operation if operation in counts}
            )
            if blob is not None:
                self._blobs.append(blob)
        return failures, counted

    def write(self, job: Job, directory: Directory) -> Written:
        """Return the files of all deliveries, and the numbers used up to the last of them."""
        return self._write(job, directory, self._blobs), job.before


class _RenderedEvents:
    """Recorded events that are written like the events of a part. Messages keep the sequences that
    are recorded with their delivery.
    """

    def __init__(self, job: Job, output: OutputFormat) -> None:
        self._format = output
        self._render = self._format.renderer(job)
        self._render_sent = None if output.render_sent is None else output.render_sent(job)
        self._blobs: list[Columns] = []
        self._firsts: list[int] = []
        self._sequences: dict[int, str] = {}

    def add(
        self, context: Context, delivery: Delivery, rebuilt: Rebuilt
    ) -> tuple[list[RowFailure], Counter[str]]:
        """Add the next delivery, and return its invalid rows and counters."""
        with_group = [
            (event, decided)
            for event, decided in zip(rebuilt.events, rebuilt.decided, strict=True)
            if decided[0]  # its group, empty if every row was dropped or is invalid
        ]
        decided = [each for _, each in with_group]
        # An event's place is its number among the events of all deliveries.
        places = range(len(self._firsts), len(self._firsts) + len(decided))
        self._firsts += [first_id(group) for group, _, _ in decided]
        if is_sequence(delivery.first):  # not recorded by another format's publisher
            for place, (event, _) in zip(places, with_group, strict=True):
                self._sequences[place] = sequence_at(delivery.first, event.place)
        rows, query_back = rebuilt.log_rows, context.query_back
        if self._render_sent is None:
            blob, unwritten, counts, _ = self._render(decided, places, rows, query_back)
        else:
            events = [event for event, _ in with_group]
            blob, unwritten, counts = self._render_sent(events, places, rows, query_back)
        if blob is not None:
            self._blobs.append(blob)
        counted = Counter(counts)
        counted.update(remark.counter for remark in rebuilt.remarks)
        failed = [(row.record_id, row.code, row.message) for row in rebuilt.invalid.values()]
        return sorted({*failed, *unwritten}), counted

    def write(self, job: Job, directory: Directory) -> Written:
        """Return the files of all deliveries, and the numbers used up to the last of them."""
        files, numbered = self._format.write(
            job, directory, 0, self._blobs, job.before, self._sequences
        )
        firsts = self._firsts  # the files have indexes of recorded events, not record_ids
        return [
            replace(file, first_id=firsts[file.first_id], last_id=firsts[file.last_id])
            for file in files
        ], numbered
