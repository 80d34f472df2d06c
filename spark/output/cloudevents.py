"""Events as CloudEvents, one a line: what the three stages do for the format ``cloudevents`` (spec/cloudevents.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from eventlog.cloudevents.options import EVENT_TYPE, SOURCE, STRUCTURED
from eventlog.config.load import Config
from eventlog.core.events import Decided, Outgoing, QueryBack, build_event
from eventlog.core.options import CheckedOptions, parse_options, same_fields, shared
from eventlog.model import LogRow, origins_of
from eventlog.publisher.cloudevents import CloudEvents, source_of
from eventlog.publisher.open import value_options
from eventlog.sql.registry import parse_url
from spark.job import Job, Numbered, catalog
from spark.output.directory import Directory
from spark.output.formats import Columns, OutputFormat, Render, Rendered, counts_of
from spark.output.part_files import OutputFile, json_lines


@dataclass(frozen=True, slots=True)
class Options(CheckedOptions):
    """The options of ``[format]`` that files of events have. Raises ConfigError."""

    source: str | None = shared(SOURCE)
    event_type: str = shared(EVENT_TYPE)


def read_options(config: Config, options: Mapping[str, Any], form: str) -> Options:
    """The options of ``[format]``; those of the request go before."""
    return parse_options(Options, {**same_fields(config.format, Options), **options}, "the backlog's CloudEvents")


def _output(job: Job) -> CloudEvents:
    """The publisher's writer of events, with the options of the job."""
    options: Options = job.output.options
    source = options.source or source_of(parse_url(job.place.url), job.place.log)
    return CloudEvents(STRUCTURED, source, options.event_type, value_options(job.config))


def renderer(job: Job) -> Render:
    """The function that makes lines of the events of groups."""
    options, output, classes = job.options.events, _output(job), catalog(job)

    def render(
        decided: Sequence[Decided], places: Sequence[int], log_rows: Mapping[int, LogRow], query_back: QueryBack
    ) -> Rendered:
        events = [build_event(group, options, decision, current) for group, decision, current in decided]
        counts, bad = counts_of(events)
        placed = [(place, event) for place, event in zip(places, events, strict=True) if event.operation is not None]
        if not placed:
            return Rendered(None, bad, counts)
        written = output.events(classes, [event for _, event in placed], origins_of(log_rows.values()))
        lines = [f"{event.text()}\n".encode() for event in written]
        blob: Columns = {"place": [place for place, _ in placed], "line": lines}
        return Rendered(blob, bad, counts)

    return render


def write(
    job: Job, directory: Directory, part: int, blobs: Sequence[Columns], before: Numbered, sequences: Mapping[int, str]
) -> tuple[list[OutputFile], Numbered]:
    """The events of a part in queue order, as lines of files."""
    lines = sorted(line for blob in blobs for line in zip(blob["place"], blob["line"], strict=True))
    return _write_lines(job, directory, part, lines), before


def write_envelopes(
    job: Job,
    directory: Directory,
    part: int,
    envelopes: Sequence[Sequence[Outgoing]],
    log_rows: Mapping[int, LogRow],
) -> list[OutputFile]:
    """Events that have been in envelopes before, under the event-ids that they have been sent under."""
    events = list(chain.from_iterable(envelopes))
    written = _output(job).events(catalog(job), events, origins_of(log_rows.values()))
    lines = ((event.ids[0], f"{one.text()}\n".encode()) for event, one in zip(events, written, strict=True))
    return _write_lines(job, directory, part, lines)


def _write_lines(job: Job, directory: Directory, part: int, lines: Iterable[tuple[int, bytes]]) -> list[OutputFile]:
    output = job.output
    with json_lines(directory, job.name, part, output.max_bytes, output.compression) as files:
        for place, line in lines:
            files.add([line], 1, 1, place, place)
    return files.files


FORMAT: Final = OutputFormat(("lines",), read_options, renderer, write, write_envelopes)
