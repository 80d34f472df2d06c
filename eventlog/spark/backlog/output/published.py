"""Events as a format's own documents in files: the functions of the three stages for every
published format.

The stages that fold groups call the format's ``EventWriter`` to make a piece of each event. The
stage that writes files calls the ``EventWriter`` to make bodies of pieces. So the files contain the
bytes that a publisher would send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from eventlog.changes.format import Format
from eventlog.changes.publishing import CurrentRows, EventWriter, Need, Publishing, read_whole_rows
from eventlog.config.load import Config
from eventlog.config.publishing import named_options, publish_options, value_options
from eventlog.conversion import by_reason
from eventlog.core.options import parse_options
from eventlog.core.rows.events import (
    Decided,
    Outgoing,
    QueryBack,
    association_of,
    build_event,
    sent_again,
)
from eventlog.errors import ConfigError
from eventlog.model import EventResult, origins_of
from eventlog.publisher.ledger import Delivery
from eventlog.registry import format_named
from eventlog.registry import writer_of as checked_writer
from eventlog.spark.backlog.job import (
    NOTHING,
    Columns,
    Job,
    Numbered,
    OutputFile,
    catalog,
)
from eventlog.spark.backlog.output import (
    PARQUET_FOOTER,
    LogRows,
    OutputFormat,
    PartFiles,
    Render,
    Rendered,
    RenderedSent,
    RenderSent,
    Written,
    counts_of,
    refuse,
)
from eventlog.spark.directory import Directory
from eventlog.sql.connect import parse_url

FILE_LAYOUTS: Final = ("lines", "documents", "parquet")

_PIECE: Final = "piece"
_ABOUT: Final = ("event_id", "class", "operation", "association")
"""The columns of an event in Parquet, in addition to its document."""
_GROUP_EVENTS: Final = 5_000


def output_of(format: Format) -> OutputFormat:
    """Return the functions of a published format for a backlog job."""
    return OutputFormat(
        FILE_LAYOUTS,
        partial(_read_options, format),
        _renderer,
        _write,
        _sent_renderer,
        _write_sent,
        _needs_log_rows,
    )


def _read_options(
    format: Format, config: Config, options: Mapping[str, Any], file_layout: str
) -> Any:
    """Return the options of ``[format]``; options of the request take precedence."""
    kind = format.backlog_options
    if kind is None:
        if options:
            raise ConfigError(
                f"format {format.name} takes no options from --options. Set them in [format] of "
                "the "
                "configuration"
            )
        return publish_options(config)
    named = {**named_options(config, kind), **options}
    return parse_options(kind, named, f"the backlog's {format.title}")


def writer_of(job: Job, count: Callable[[str], None] | None = None) -> EventWriter[Any]:
    """Return the writer of the job's events; ``count`` is ``Publishing.count``."""
    url, log = parse_url(job.place.url), job.place.log
    layout = "documents" if job.output.file_layout == "documents" else "lines"
    database = url.database or url.username or ""
    publishing = Publishing(
        value_options(job.config),
        database,
        log.schema,
        log.name,
        file_layout=layout,
        utc_now=lambda: job.started,
    )
    if count is not None:
        publishing = replace(publishing, count=count)
    return checked_writer(format_named(job.output.format), job.output.options, publishing)


def _needs_log_rows(job: Job) -> bool:
    return Need.TIMES in writer_of(job).needs


# --- first and second stage: pieces
# ---------------------------------------------------------------


def _pieces_writer(
    job: Job, as_sent: Callable[[Sequence[Outgoing]], Sequence[Outgoing]]
) -> RenderSent:
    """Return the function that makes the columns for events. ``as_sent`` returns events as they
    are sent, from events that were built with their whole rows.
    """
    left_out: list[str] = []
    writer, classes = writer_of(job, left_out.append), catalog(job)
    is_parquet = job.output.file_layout == "parquet"

    def write(
        events: Sequence[Outgoing],
        places: Sequence[int],
        log_rows: LogRows,
        query_back: QueryBack,
    ) -> RenderedSent:
        current_rows: CurrentRows = {}
        if Need.WHOLE_ROWS in writer.needs:
            events, current_rows = read_whole_rows(events, query_back)
        events = as_sent(events)
        counts, failures = counts_of(events)
        written = [event for event in events if event.operation is not None]
        if len(written) < len(events):
            places = [
                place
                for place, event in zip(places, events, strict=True)
                if event.operation is not None
            ]
        if not written:
            return None, failures, counts
        delivery = Delivery(0, {}, origins=origins_of(log_rows.values()), current_rows=current_rows)
        pieces = writer.pieces(classes, delivery, written)
        for counter, number in by_reason(Counter(left_out)).items():
            counts[counter] = counts.get(counter, 0) + number
        left_out.clear()
        if EventResult in set(map(type, pieces)):
            several = list(zip(places, written, pieces, strict=True))
            for _, event, piece in several:
                if isinstance(piece, EventResult):
                    refuse(event, piece.message, counts, failures)
            several = [each for each in several if not isinstance(each[2], EventResult)]
            if not several:
                return None, failures, counts
            places, written, pieces = (list(column) for column in zip(*several, strict=True))
        if not writer.is_framed:
            pieces = [writer.body_of([piece]) for piece in pieces]
        blob: dict[str, Any] = {"place": places, _PIECE: pieces}
        if is_parquet:
            blob |= zip(_ABOUT, zip(*map(_about_of, written), strict=True), strict=True)
        return blob, failures, counts

    return write


def _about_of(event: Outgoing) -> tuple[str, str, str, str]:
    assert event.object_id is not None
    object_class, _ = event.object_id
    return event.sent_id, object_class.name, str(event.operation), association_of(event)


def _sent_renderer(job: Job) -> RenderSent:
    """Return the function that makes the columns for recorded events."""
    return _pieces_writer(job, lambda events: [*map(sent_again, events)])


def _renderer(job: Job) -> Render:
    """Return the function that makes the columns for the events of groups."""
    options, write = job.options.events, _pieces_writer(job, lambda events: events)

    def render(
        decided: Sequence[Decided],
        places: Sequence[int],
        log_rows: LogRows,
        query_back: QueryBack,
    ) -> Rendered:
        events = [
            build_event(group, options, decision, current) for group, decision, current in decided
        ]
        return *write(events, places, log_rows, query_back), NOTHING

    return render


# --- third stage: files ---------------------------------------------------------------------------


def _write(
    job: Job,
    directory: Directory,
    part: int,
    blobs: Sequence[Columns],
    before: Numbered,
    sequences: Mapping[int, str],
) -> Written:
    """Write the events of a part to files, as documents in queue order, as a ``Write`` does."""
    places = [place for blob in blobs for place in blob["place"]]
    order = sorted(range(len(places)), key=places.__getitem__)
    size = job.output.batch_size
    documents = [order[start : start + size] for start in range(0, len(order), size)]
    return _write_files(job, directory, part, blobs, documents), before


def _write_sent(job: Job, directory: Directory, blobs: Sequence[Columns]) -> list[OutputFile]:
    """Write each blob to files as one document, as a ``WriteSent`` does."""
    documents, end = [], 0
    for blob in blobs:
        first, end = end, end + len(blob["place"])
        documents.append(range(first, end))
    return _write_files(job, directory, 0, blobs, documents)


def _write_files(
    job: Job,
    directory: Directory,
    part: int,
    blobs: Sequence[Columns],
    documents: Sequence[Sequence[int]],
) -> list[OutputFile]:
    """Write documents. Each document is given as the indexes of its events among the events of all
    blobs.
    """
    output, writer, format = job.output, writer_of(job), format_named(job.output.format)
    pieces: list[Any] = list(chain.from_iterable(blob[_PIECE] for blob in blobs))
    places: list[int] = list(chain.from_iterable(blob["place"] for blob in blobs))
    is_file_each = output.file_layout == "documents"
    ending = ".parquet" if output.file_layout == "parquet" else format.endings[output.file_layout]
    with PartFiles(job, directory, part, ending, digits=7 if is_file_each else 5) as files:
        if output.file_layout == "parquet":
            described = (zip(*map(blob.__getitem__, _ABOUT), strict=True) for blob in blobs)
            about = list(chain.from_iterable(described))
            order = chain.from_iterable(documents)
            _write_parquet(files, writer, [(places[i], pieces[i], about[i]) for i in order])
        elif writer.is_framed or is_file_each:
            for document in documents:
                own = [pieces[i] for i in document]
                body = writer.body_of(own) if writer.is_framed else b"".join(own)
                files.add([body], len(own), 1, places[document[0]], places[document[-1]])
                if is_file_each:
                    files.close()
        else:  # lines: a file may end after any of them
            for i in chain.from_iterable(documents):
                files.add([pieces[i]], 1, pieces[i].count(b"\n"), places[i], places[i])
    return files.files


def _write_parquet(
    files: PartFiles, writer: EventWriter[Any], events: Iterable[tuple[int, Any, tuple[str, ...]]]
) -> None:
    """Write events with their places and descriptions, one row per event."""
    left = list(events)
    kinds = [*(pa.string() for _ in _ABOUT), pa.string() if writer.is_text else pa.binary()]
    schema = pa.schema(list(zip((*_ABOUT, "document"), kinds, strict=True)))
    start = 0
    while start < len(left):
        documents: list[bytes] = []
        size = 0
        for _, piece, _ in left[start : start + _GROUP_EVENTS]:
            body = writer.body_of([piece]) if writer.is_framed else piece
            document = body.rstrip(b"\n") if writer.is_text else body
            size += len(document) + 200
            if documents and size > files.max_bytes - PARQUET_FOOTER:
                break
            documents.append(document)
        end = start + len(documents)
        about = zip(*(each[2] for each in left[start:end]), strict=True)
        shown = [document.decode() for document in documents] if writer.is_text else documents
        arrays = [
            pa.array(column, kind) for column, kind in zip((*about, shown), kinds, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, schema=schema)
        files.put_table(
            table, size, len(documents), len(documents), left[start][0], left[end - 1][0]
        )
        start = end
