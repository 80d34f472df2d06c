"""What a format is to a backlog job: an ``OutputFormat`` of functions, made in a module of this package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, NamedTuple

import pyarrow as pa

from eventlog.config.load import Config
from eventlog.core.events import Decided, Outgoing, QueryBack, build_event
from eventlog.errors import ConfigError
from eventlog.model import LogRow
from eventlog.qlik.sequence import WriterState
from spark.job import NOTHING, Job, Numbered
from spark.output.directory import Directory
from spark.output.part_files import ENDINGS, OutputFile, PartFiles

BadLine = tuple[int, str, str]
"""record_id, code and message of a row that gets E."""

Counts = dict[str, int]

RECEIVER: Final = "receiver"
"""The code of a row whose event the format cannot hold (spec/event-log.md 10)."""


Columns = Mapping[str, Sequence[Any]]
"""What is to be written, as columns of equal length of numbers, texts and bytes. It waits for the third stage as an
Arrow stream, which tells whoever reads it nothing to do: the storage it waits on may be shared with others.
"""


class Rendered(NamedTuple):
    """What groups of one part became.

    ``blob``: what the third stage gets; None = nothing is written. ``bad``: rows that get E. ``taken``: what the blob
    takes of the numbering.
    """

    blob: Columns | None
    bad: list[BadLine]
    counts: Counts
    taken: Numbered = NOTHING


Render = Callable[[Sequence[Decided], Sequence[int], Mapping[int, LogRow], QueryBack], Rendered]
"""Groups in queue order, their places in it, and, for formats that need them, their rows as the log has them; what
reads rows of objects from the snapshot.
"""


Write = Callable[
    [Job, Directory, int, Sequence[Columns], Numbered, Mapping[int, str]], tuple[list[OutputFile], Numbered]
]
"""Writes the blobs of a part (its number, from 1; 0 = what was in flight) in queue order as files, numbered on from
what was before; the files, and what is numbered at its end. The mapping, by place: sequences of messages that have been
sent already, which keep them.
"""

WriteEnvelopes = Callable[[Job, Directory, int, Sequence[Sequence[Outgoing]], Mapping[int, LogRow]], list[OutputFile]]
"""Writes events in the envelopes, and under the event-ids, that they have been sent under; with their rows of the log.
"""


def _no_folders(job: Job) -> list[str]:
    return []


def _nothing_beside(job: Job, directory: Directory, files: Sequence[OutputFile], state: WriterState) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """What a backlog job needs of a format; each module of this package ends with its own.

    ``forms`` that the files may have, the usual one first. ``read_options``: the writer's options, of the
    configuration, of the request and for a form; raises ConfigError. ``renderer``: what makes blobs of groups, in the
    stage that folds them. ``write_envelopes``: for formats that number nothing. ``folders`` that the output may have;
    raises FormatError, MaskTooWide for classes that it cannot hold. ``finish`` writes what stands in the directory
    once, of all files and the last state of the numbering; its names.
    """

    forms: tuple[str, ...]
    read_options: Callable[[Config, Mapping[str, Any], str], Any]
    renderer: Callable[[Job], Render]
    write: Write
    write_envelopes: WriteEnvelopes | None = None
    folders: Callable[[Job], list[str]] = _no_folders
    finish: Callable[[Job, Directory, Sequence[OutputFile], WriterState], list[str]] = _nothing_beside


FORMATS: Final[Mapping[str, str]] = {
    "xds": "spark.output.xds",
    "cloudevents": "spark.output.cloudevents",
    "debezium": "spark.output.debezium",
    "qlik-messages": "spark.output.messages",
    "qlik-change-table": "spark.output.tables",
}
"""The formats by name, with the module of each."""


def format_named(name: str, form: str | None = None) -> OutputFormat:
    """A format. Raises ConfigError if there is none of this name, or if it has no such form."""
    if name not in FORMATS:
        raise ConfigError(f"format {name!r} is unknown: use {', '.join(FORMATS)}")
    found: OutputFormat = import_module(FORMATS[name]).FORMAT
    if form is not None and form not in found.forms:
        raise ConfigError(f"form {form!r} is unknown: files of {name} are {', '.join(found.forms)}")
    return found


def counts_of(events: Sequence[Outgoing]) -> tuple[Counter[str], list[BadLine]]:
    """How many events of which operation, and how many rows had which fate (spec/event-log.md 11); the rows whose value
    read back cannot be written.
    """
    counts: Counter[str] = Counter([event.operation for event in events if event.operation is not None])
    published = sum([len(event.ids) for event in events if event.fates is None])
    bad: list[BadLine] = []
    for event in events:
        fates = event.fates
        if fates is not None:  # of few groups
            published += len(fates.contributed)
            counts["rows_dropped"] += len(fates.dropped)
            counts["rows_gone"] += len(fates.gone)
            counts["rows_empty"] += len(fates.empty)
            counts["sv_conflicts"] += fates.conflicts
            bad += [(row.record_id, row.code, row.message) for row in fates.bad]
    counts["rows_published"] = published
    return counts, bad


def refuse(event: Outgoing, message: str, counts: Counter[str], bad: list[BadLine]) -> None:
    """Take an event that the format cannot hold out of what was counted: its rows are bad."""
    assert event.operation is not None
    bad += [(record_id, RECEIVER, message) for record_id in event.contributed]
    counts[event.operation] -= 1
    counts["rows_published"] -= len(event.contributed)


def renderer_of_events(
    job: Job, columns: Callable[[Sequence[int], Sequence[Outgoing], Mapping[int, LogRow]], Columns]
) -> Render:
    """The function that makes ``columns`` of the events of groups, of their places and of their rows of the log."""
    options = job.options.events

    def render(
        decided: Sequence[Decided], places: Sequence[int], log_rows: Mapping[int, LogRow], query_back: QueryBack
    ) -> Rendered:
        events = [build_event(group, options, decision, current) for group, decision, current in decided]
        written = [event for event in events if event.operation is not None]
        if len(written) < len(events):
            places = [place for place, event in zip(places, events, strict=True) if event.operation is not None]
        counts, bad = counts_of(events)
        return Rendered(columns(places, written, log_rows) if written else None, bad, counts)

    return render


# --- files ------------------------------------------------------------------------------------------------------------


def part_files(
    job: Job, directory: Directory, part: int, suffix: str, folder: str = "", *, header: bytes = b"", digits: int = 5
) -> PartFiles:
    """The files of a part. ``suffix``: of their form; ``folder``: within the output; ``header`` as of ``PartFiles``;
    ``digits`` of their numbers.
    """
    output = job.output
    ending = suffix if suffix == ".parquet" else f"{suffix}{ENDINGS[output.compression]}"
    stem = f"{folder}/part-{part:06d}" if folder else f"part-{part:06d}"

    def name(number: int) -> str:
        return f"{stem}-{number:0{digits}d}-{job.name}{ending}"

    return PartFiles(directory, name, output.max_bytes, output.compression, header)


def write_lines(job: Job, directory: Directory, part: int, lines: Iterable[tuple[int, bytes]]) -> list[OutputFile]:
    """The lines of events in queue order, each event's with its place, as files of JSON."""
    with part_files(job, directory, part, ".jsonl") as files:
        for place, text in lines:
            files.add([text], 1, text.count(b"\n"), place, place)
    return files.files


def write_placed(
    job: Job, directory: Directory, part: int, blobs: Sequence[Columns], before: Numbered, sequences: Mapping[int, str]
) -> tuple[list[OutputFile], Numbered]:
    """``Write`` for blobs of two columns, ``place`` and ``lines``, that number nothing."""
    lines = sorted(line for blob in blobs for line in zip(blob["place"], blob["lines"], strict=True))
    return write_lines(job, directory, part, lines), before


def arrow_bytes(batch: pa.RecordBatch) -> bytes:
    """A batch as bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())
