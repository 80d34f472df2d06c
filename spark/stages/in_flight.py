"""What is in flight goes to part 0 of the output, exactly as it was recorded: the same rows, event-ids and envelopes,
oldest flight first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from eventlog.core.events import Outgoing
from eventlog.core.fold import first_id
from eventlog.model import LogRow, Operation
from eventlog.publisher.context import Context
from eventlog.publisher.cycle import RecordedGroups, build_recorded, recorded_groups
from eventlog.publisher.flight import Flight
from eventlog.qlik.sequence import is_sequence, sequence_at
from eventlog.sql.windows import to_ranges
from spark.directory import Directory
from spark.job import BadLine, Columns, Counts, FlightReport, Job, Numbered, OutputFile, snapshot_context
from spark.output.formats import OutputFormat, WriteEnvelopes, counts_of, format_named
from spark.stages.write import IDS, write_ids


class Recorded(NamedTuple):
    """What became of all flights: their reports, files and counts, and what is numbered up to here."""

    flights: list[FlightReport]
    files: list[OutputFile]
    counts: Counts
    numbered: Numbered


def write_flights(job: Job, directory: Directory, flights: Sequence[Flight]) -> Recorded:
    """The events of flights, rebuilt of the rows that still have status N; rows that fail the checks now become E."""
    output = format_named(job.output.format)
    part = _Rendered(job, output) if output.write_envelopes is None else _Envelopes(output.write_envelopes)
    reports: list[FlightReport] = []
    counts: Counter[str] = Counter()
    for flight in flights:
        with snapshot_context(job) as context:
            recorded = list(flight.events())
            groups = recorded_groups(context, recorded)
            bad, counted = part.add(context, flight, recorded, groups)
        counts.update(counted)
        counts.update(rows_in_flight=len(groups.log_rows), rows_bad=len(bad))
        ids = f"{IDS}/flight-{flight.number:012d}-{job.name}.parquet"
        checksum = write_ids(directory, ids, to_ranges(sorted(groups.log_rows)), bad)
        events = sum(counted[operation] for operation in Operation)
        reports.append(FlightReport(flight.number, ids, checksum, len(groups.log_rows), events))
    files, numbered = part.write(job, directory)
    return Recorded(reports, files, dict(counts), numbered)


class _Envelopes:
    """Events keep their envelopes, and the event-ids that they have been sent under."""

    def __init__(self, write: WriteEnvelopes) -> None:
        self._write = write
        self._envelopes: list[list[Outgoing]] = []
        self._log_rows: dict[int, LogRow] = {}

    def add(
        self, context: Context, flight: Flight, recorded: Sequence[Outgoing], groups: RecordedGroups
    ) -> tuple[list[BadLine], Counter[str]]:
        """The next flight; its bad rows and what is counted."""
        built = build_recorded(context, recorded, groups)
        self._log_rows |= groups.log_rows
        events = iter(built)
        for envelope in flight.envelopes.values():
            sent = [event for _, event in zip(envelope, events, strict=False) if event.operation is not None]
            if sent:
                self._envelopes.append(sent)
        _, bad = counts_of(built)
        return bad, Counter([event.operation for event in built if event.operation is not None])

    def write(self, job: Job, directory: Directory) -> tuple[list[OutputFile], Numbered]:
        """The files of all flights, and what is numbered up to here."""
        return self._write(job, directory, 0, self._envelopes, self._log_rows), job.before


class _Rendered:
    """Formats that number their output. Messages keep the sequences that the line of their flight gives them."""

    def __init__(self, job: Job, output: OutputFormat) -> None:
        self._format = output
        self._render = self._format.renderer(job)
        self._blobs: list[Columns] = []
        self._firsts: list[int] = []
        self._sequences: dict[int, str] = {}

    def add(
        self, context: Context, flight: Flight, recorded: Sequence[Outgoing], groups: RecordedGroups
    ) -> tuple[list[BadLine], Counter[str]]:
        """The next flight; its bad rows and what is counted."""
        left = [(event, each) for event, each in zip(recorded, groups.decided, strict=True) if each[0]]
        decided = [each for _, each in left]
        places = range(len(self._firsts), len(self._firsts) + len(decided))
        self._firsts += [first_id(group) for group, _, _ in decided]
        if is_sequence(flight.first):  # else it was recorded by a publisher of another format
            for place, (event, _) in zip(places, left, strict=True):
                self._sequences[place] = sequence_at(flight.first, event.place)
        blob, unwritten, counts, _ = self._render(decided, places, groups.log_rows, context.query_back)
        if blob is not None:
            self._blobs.append(blob)
        counted = Counter(counts)
        counted.update(remark.counter for remark in groups.remarks)
        failed = [(row.record_id, row.code, row.message) for row in groups.bad.values()]
        return sorted({*failed, *unwritten}), counted

    def write(self, job: Job, directory: Directory) -> tuple[list[OutputFile], Numbered]:
        """The files of all flights, and what is numbered up to here."""
        files, numbered = self._format.write(job, directory, 0, self._blobs, job.before, self._sequences)
        firsts = self._firsts  # the places are those among all events in flight
        return [replace(file, first_id=firsts[file.first_id], last_id=firsts[file.last_id]) for file in files], numbered
