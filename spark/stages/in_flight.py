"""Recorded flights in formats that number their output: the same events, rebuilt as recorded, oldest flight first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from eventlog.core.events import Decided, Outgoing
from eventlog.core.fold import first_id
from eventlog.model import LogRow
from eventlog.publisher.context import Context
from eventlog.publisher.cycle import recorded_groups
from eventlog.publisher.flight import Flight
from eventlog.qlik.sequence import is_sequence, sequence_at
from spark.job import Job, Numbered, snapshot_context, total
from spark.output import messages as message_output
from spark.output.directory import Directory
from spark.output.formats import BadLine, Counts, module_of
from spark.output.part_files import OutputFile


class Rebuilt(NamedTuple):
    """A flight as the snapshot has it: its groups with their recorded events, their rows, those that are bad now, and
    what is counted of good ones.
    """

    decided: list[Decided]
    recorded: list[Outgoing]
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
    """The groups of a flight, of the rows that still have status N; a row that now fails the checks becomes E."""
    recorded = list(flight.events())
    groups = recorded_groups(context, recorded)
    kept = [(event, decided) for event, decided in zip(recorded, groups.decided, strict=True) if decided[1] is not None]
    bad = [(row.record_id, row.code, row.message) for row in groups.bad.values()]
    remarks = Counter([remark.counter for remark in groups.remarks])
    return Rebuilt([decided for _, decided in kept], [event for event, _ in kept], groups.log_rows, bad, remarks)


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
        firsts += [first_id(group) for group, _, _ in rebuilt.decided]
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
            given = _recorded_sequences(flight, places, rebuilt.recorded)
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


def _recorded_sequences(flight: Flight, places: Sequence[int], recorded: Sequence[Outgoing]) -> dict[int, str]:
    """By place the sequences that the events of a flight bore when they were sent; none if it was of another format."""
    if not is_sequence(flight.first):
        return {}
    return {place: sequence_at(flight.first, event.place) for place, event in zip(places, recorded, strict=True)}


def _with_ids(file: OutputFile, firsts: Sequence[int]) -> OutputFile:
    """A file whose places are those among all events in flight, with record_ids in their stead."""
    return replace(file, first_id=firsts[file.first_id], last_id=firsts[file.last_id])
