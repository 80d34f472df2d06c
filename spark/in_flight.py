"""Recorded flights in formats that number their output: the same events, rebuilt as recorded, oldest flight first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from eventlog.checks import check_rows
from eventlog.events import apply_precedence
from eventlog.fold import Group
from eventlog.model import LogRow, Status
from eventlog.publisher.context import Context
from eventlog.publisher.flight import Flight, Record
from eventlog.qlik.flight_sequence import sequence_at
from eventlog.qlik.sequence import is_sequence
from eventlog.sql.windows import Ranges
from spark import message_output
from spark.directory import Directory
from spark.job import Job, snapshot_context
from spark.numbering import Numbered, total
from spark.part_files import OutputFile
from spark.rendering import BadLine, Counts, Decided, module_of, with_current


class Rebuilt(NamedTuple):
    """A flight as the snapshot has it: its groups with their records, their rows, those that are bad now, and what is
    counted of good ones.
    """

    decided: list[Decided]
    records: list[Record]
    log_rows: dict[int, LogRow]
    bad: list[BadLine]
    remarks: Counter[str]


class Written(NamedTuple):
    """What became of all flights: of each its rows and the bad ones among them, the events it holds; the files; counts;
    what was numbered up to here.
    """

    flights: list[tuple[Flight, list[int], list[BadLine], int]]
    files: list[OutputFile]
    counts: Counts
    numbered: Numbered


def rebuild(context: Context, flight: Flight) -> Rebuilt:
    """As ``eventlog.publisher.cycle.rebuild``: a row that is missing or no longer N is done, one that now fails the
    checks becomes E, values to be read back are read anew.
    """
    records = [sending.record for envelope in flight.envelopes for sending in envelope.sendings]
    ids = sorted(pair for record in records for pair in record.rows)
    rows = [
        row
        for row in context.dialect.read_rows(context.connection, context.log, ids)
        if row.status.rstrip() == Status.NEW
    ]
    checked = check_rows(rows, context.catalog, None)
    good = {row.record_id: row for row in checked.good}
    kept, groups = [], []
    for record in records:
        members = [good[i] for i in _ids(record.rows) if i in good]
        if members:
            group = Group(members[0].object_class, members[0].key, members)
            kept.append(record)
            groups.append(apply_precedence(group, context.options.events, frozenset(_ids(record.dropped))))
    bad = [(row.record_id, row.code, row.message) for row in checked.bad]
    remarks = Counter([remark.counter for remark in checked.remarks])
    return Rebuilt(with_current(context, groups), kept, {row.record_id: row for row in rows}, bad, remarks)


def _ids(ranges: Ranges) -> list[int]:
    return [record_id for first, last in ranges for record_id in range(first, last + 1)]


def write(job: Job, directory: Directory, flights: Sequence[Flight]) -> Written:
    """All flights as part 0. Messages keep the sequences that their flight's line gives them."""
    module = module_of(job)
    render = module.renderer(job)
    blobs: list[Any] = []
    files: list[OutputFile] = []
    firsts: list[int] = []
    told: list[tuple[Flight, list[int], list[BadLine], int]] = []
    sequences: list[str] = []
    counts: Counter[str] = Counter()
    numbered = job.before
    for flight in flights:
        with snapshot_context(job) as context:
            rebuilt = rebuild(context, flight)
        places = [len(firsts) + n for n in range(len(rebuilt.decided))]
        firsts += [precedence.group.rows[0].record_id for precedence, _ in rebuilt.decided]
        made = render(rebuilt.decided, places, rebuilt.log_rows)
        bad = sorted({*rebuilt.bad, *made.bad})
        counts.update(made.counts)
        counts.update(rebuilt.remarks)
        counts.update(rows_in_flight=len(rebuilt.log_rows), rows_bad=len(bad))
        events = sum(made.counts.get(operation, 0) for operation in ("add", "modify", "delete"))
        told.append((flight, sorted(rebuilt.log_rows), bad, events))
        if made.blob is None:
            continue
        blobs.append(made.blob)
        if job.output.format == "qlik-messages":
            given = _recorded_sequences(flight, places, rebuilt.records)
            numbered, own = message_output.sequences_of(numbered, made.blob[0], given)
            sequences += own
        else:
            numbered = total((numbered, made.taken))
    if job.output.format == "qlik-messages":
        lines = [line for blob in blobs for line in blob[0]]
        descriptions = {table: text for blob in blobs for table, text in blob[1].items()}
        files = message_output.write_lines(job, directory, 0, lines, sequences, descriptions, ())
    elif blobs:
        files = module.write(job, directory, 0, blobs, job.before).files
    return Written(told, [_with_ids(file, firsts) for file in files], dict(counts), numbered)


def _recorded_sequences(flight: Flight, places: Sequence[int], records: Sequence[Record]) -> dict[int, str]:
    """By place the sequences that the events of a flight bore when they were sent; none if it was of another format."""
    if not is_sequence(flight.first):
        return {}
    return {place: sequence_at(flight.first, record.place) for place, record in zip(places, records, strict=True)}


def _with_ids(file: OutputFile, firsts: Sequence[int]) -> OutputFile:
    """A file whose places are those among all events in flight, with record_ids in their stead."""
    return replace(file, first_id=firsts[file.first_id], last_id=firsts[file.last_id])
