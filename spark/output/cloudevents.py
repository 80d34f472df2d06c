"""Events as CloudEvents, one a line: what the three stages do for the format ``cloudevents`` (spec/cloudevents.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from eventlog.cloudevents.options import EVENT_TYPE, SOURCE, STRUCTURED
from eventlog.config.load import Config
from eventlog.core.events import Outgoing
from eventlog.core.options import CheckedOptions, parse_options, same_fields, shared
from eventlog.model import LogRow, origins_of
from eventlog.publisher.formats import value_options
from eventlog.publisher.formats.cloudevents import CloudEvents, source_of
from eventlog.sql.connection import parse_url
from spark.directory import Directory
from spark.job import Columns, Job, OutputFile, catalog
from spark.output.formats import OutputFormat, Render, renderer_of_events, write_lines, write_placed


@dataclass(frozen=True, slots=True)
class Options(CheckedOptions):
    """The options of ``[format]`` that files of events have. Raises ConfigError."""

    source: str | None = shared(SOURCE)
    event_type: str = shared(EVENT_TYPE)


def read_options(config: Config, options: Mapping[str, Any], form: str) -> Options:
    """The options of ``[format]``; those of the request go before."""
    return parse_options(Options, {**same_fields(config.format, Options), **options}, "the backlog's CloudEvents")


def _line_writer(job: Job) -> Callable[[Sequence[Outgoing], Mapping[int, LogRow]], list[bytes]]:
    """The function that writes events, whose rows it is given, as the publisher does."""
    options: Options = job.output.options
    source = options.source or source_of(parse_url(job.place.url), job.place.log)
    output = CloudEvents(STRUCTURED, source, options.event_type, value_options(job.config))
    classes = catalog(job)

    def write(events: Sequence[Outgoing], log_rows: Mapping[int, LogRow]) -> list[bytes]:
        written = output.events(classes, events, origins_of(log_rows.values()))
        return [f"{event.text()}\n".encode() for event in written]

    return write


def renderer(job: Job) -> Render:
    """The function that makes lines of the events of groups."""
    write = _line_writer(job)

    def columns(places: Sequence[int], events: Sequence[Outgoing], log_rows: Mapping[int, LogRow]) -> Columns:
        return {"place": places, "lines": write(events, log_rows)}

    return renderer_of_events(job, columns)


def write_envelopes(
    job: Job,
    directory: Directory,
    part: int,
    envelopes: Sequence[Sequence[Outgoing]],
    log_rows: Mapping[int, LogRow],
) -> list[OutputFile]:
    """Events that have been in envelopes before, under the event-ids that they have been sent under."""
    events = list(chain.from_iterable(envelopes))
    lines = _line_writer(job)(events, log_rows)
    return write_lines(job, directory, part, zip((event.ids[0] for event in events), lines, strict=True))


FORMAT: Final = OutputFormat(("lines",), read_options, renderer, write_placed, write_envelopes)
