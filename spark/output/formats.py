"""What one format makes of groups after precedence, where they were folded: in the first or second stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final, NamedTuple

from eventlog.config.load import Config
from eventlog.core.events import Decided, Outgoing
from eventlog.core.options import parse_options, same_fields
from eventlog.errors import ConfigError
from eventlog.model import LogRow
from eventlog.qlik import change_table_options, message_options
from eventlog.qlik.sequence import WriterState
from spark.job import NOTHING, Job, Numbered, Output
from spark.output.part_files import OutputFile

BadLine = tuple[int, str, str]
"""record_id, code and message of a row that gets E."""

Counts = dict[str, int]


class Rendered(NamedTuple):
    """What groups of one part became.

    ``blob``: what the third stage gets, as marshal takes it; None = nothing is written. ``bad``: rows that get E.
    ``taken``: what the blob takes of the numbering.
    """

    blob: Any
    bad: list[BadLine]
    counts: Counts
    taken: Numbered = NOTHING


class Written(NamedTuple):
    """What the third stage wrote of a part, in queue order; ``state`` of the sequence writer at its end."""

    files: list[OutputFile]
    state: WriterState


Render = Callable[[Sequence[Decided], Sequence[int], Mapping[int, LogRow]], Rendered]
"""Groups in queue order, their places in it, and, for formats that need them, their rows as the log has them."""

FORMATS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "xds": ("spark.output.xds", ("lines", "documents", "parquet")),
    "qlik-messages": ("spark.output.messages", ("lines",)),
    "qlik-change-table": ("spark.output.tables", ("parquet", "csv", "json")),
}
"""The formats by name: the module of each, and the forms that its files may have, the usual one first."""

RECEIVER: Final = "receiver"
"""The code of a row whose event the format cannot hold (spec/event-log.md 10)."""


def module_of(job: Job) -> Any:
    """The module of the job's format: ``renderer(job)`` gives its ``Render``, ``write`` makes files of its blobs."""
    return import_module(FORMATS[job.output.format][0])


def counts_of(events: Sequence[Outgoing]) -> Counter[str]:
    """How many events of which operation, and how many rows had which fate (spec/event-log.md 11)."""
    counts = Counter([event.operation for event in events if event.operation is not None])
    published = 0
    for event in events:
        published += len(event.contributed)
        if event.fates is not None:  # of few groups
            counts["rows_dropped"] += len(event.fates.dropped)
            counts["rows_gone"] += len(event.fates.gone)
            counts["rows_empty"] += len(event.fates.empty)
            counts["sv_conflicts"] += event.fates.conflicts
    counts["rows_published"] = published
    return counts


def bad_of(events: Sequence[Outgoing]) -> list[BadLine]:
    """The rows whose value read back cannot be written."""
    special = [event.fates for event in events if event.fates is not None]
    return [(row.record_id, row.code, row.message) for fates in special for row in fates.bad]


def check(format: str, form: str | None) -> None:
    """Raises ConfigError for a format that there is not, or a form that it does not have."""
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is unknown: use {', '.join(FORMATS)}")
    _, forms = FORMATS[format]
    if form is not None and form not in forms:
        raise ConfigError(f"form {form!r} is unknown: files of {format} are {', '.join(forms)}")


def output_of(
    config: Config,
    format: str,
    options: Mapping[str, Any],
    *,
    directory: str,
    form: str | None,
    compression: str,
    max_bytes: int,
) -> Output:
    """Where the output of a job goes and in what form. Raises ConfigError for the options of its format."""
    form = FORMATS[format][1][0] if form is None else form
    output = Output(directory, form, compression, max_bytes, config.publisher.batch_size, format)
    match format:
        case "qlik-messages":
            return replace(output, messages=_message_options(config, options))
        case "qlik-change-table":
            return replace(output, tables=_table_options(config, options, form))
        case _:
            if options:
                raise ConfigError("format xds takes no options of --map: set them in [format] of the configuration")
            return output


def _message_options(config: Config, options: Mapping[str, Any]) -> message_options.WriteOptions:
    """Those of ``[format]``, as the publisher takes them, under those of the request."""
    configured = {**same_fields(config.format, message_options.WriteOptions), "topic": config.sink.topic}
    chosen = parse_options(message_options.WriteOptions, {**configured, **options}, "the backlog's Qlik messages")
    if chosen.metadata == "registry" and chosen.registry is None:
        raise ConfigError("metadata = registry of the Qlik messages needs the option registry, its URL")
    return chosen


def _table_options(config: Config, options: Mapping[str, Any], form: str) -> change_table_options.WriteOptions:
    own = {"server": config.format.server, "task": config.format.task, **options, "file_format": form}
    chosen = parse_options(change_table_options.WriteOptions, own, "the backlog's change tables")
    if chosen.tables or chosen.catalog is not None:
        raise ConfigError(
            "the change tables of a backlog have the columns of the database; leave out tables and catalog"
        )
    return chosen
