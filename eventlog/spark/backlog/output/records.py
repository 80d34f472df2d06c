"""Events as numbered Qlik messages, one per line.

The publisher's own functions write the messages. The first stages make each message without its
change sequence. The third stage, in which the order of all events is known, numbers the messages
and makes the bytes of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from typing import Any, Final

from orjson import loads

from eventlog.changes.format import Format
from eventlog.config.load import Config
from eventlog.config.publishing import publish_options, taken_by_sink, value_options
from eventlog.core.options import parse_options
from eventlog.core.rows.events import Decided, Outgoing, QueryBack, build_event
from eventlog.core.rows.transaction_ids import transaction_digits
from eventlog.core.values.json_bytes import json_bytes
from eventlog.errors import FormatError, RowError
from eventlog.qlik.messages.envelope import registry_of_writer
from eventlog.qlik.messages.message_files import line_of as message_line
from eventlog.qlik.messages.message_records import Draft
from eventlog.qlik.messages.message_tables import WriteOptions
from eventlog.qlik.messages.message_writer import MessageWriter
from eventlog.qlik.messages.publish import EventMessages
from eventlog.qlik.sequence import WriterState, next_sequence, raise_to, timestamp_prefix
from eventlog.spark.backlog.job import NOTHING, Columns, Job, Numbered, catalog
from eventlog.spark.backlog.output import (
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

_COLUMNS: Final = ("place", "table", "key", "body", "headers", "prefix", "numbers")
"""The columns of a blob of messages without change sequences: the place of the event in the queue,
the class, the key of the record, the body of the message, its headers as JSON, the prefix of its
time, and the count of numbers that it uses.
"""


def _message_options(config: Config, options: Mapping[str, Any], file_layout: str) -> WriteOptions:
    """Return the options of ``[format]`` as the publisher uses them; options of the request take
    precedence.
    """
    configured = {**asdict(publish_options(config)), "topic": taken_by_sink(config).topic}
    chosen = parse_options(WriteOptions, {**configured, **options}, "the backlog's Qlik messages")
    registry_of_writer(chosen)  # raises here, before any task
    return chosen


def _message_renderer(job: Job) -> Render:
    """Return the function that makes the messages for groups, as the publisher would send them."""
    options, write = job.options.events, _messages_writer(job)

    def render(
        decided: Sequence[Decided],
        places: Sequence[int],
        log_rows: LogRows,
        _: QueryBack,
    ) -> Rendered:
        events = [
            build_event(group, options, decision, current) for group, decision, current in decided
        ]
        return write(events, places, log_rows)

    return render


def _sent_renderer(job: Job) -> RenderSent:
    """Return the function that makes the messages for recorded events."""
    write = _messages_writer(job)

    def render(
        events: Sequence[Outgoing], places: Sequence[int], log_rows: LogRows, _: QueryBack
    ) -> RenderedSent:
        blob, failures, counts, _numbered = write(events, places, log_rows)
        return blob, failures, counts

    return render


def _messages_writer(
    job: Job,
) -> Callable[[Sequence[Outgoing], Sequence[int], LogRows], Rendered]:
    """Return the function that makes the messages for events, given their places and their rows in
    the log.
    """
    _, messages = _message_writer(job)

    def write(events: Sequence[Outgoing], places: Sequence[int], log_rows: LogRows) -> Rendered:
        counts, failures = counts_of(events)
        rows: list[tuple[Any, ...]] = []
        for place, event in zip(places, events, strict=True):
            if event.operation is None:
                continue
            try:
                _, key, body, headers, with_before = draft = messages.draft(
                    event,
                    log_rows[event.ids[0]].event_time,
                    transaction_digits(
                        event, {one: log_rows[one].transaction_id for one in event.ids[-1:]}
                    ),
                )
                # In JSON a body is a dict, which becomes part of the message
                # when its bytes are made.
                packed = body if isinstance(body, bytes) else json_bytes(body)
            except (FormatError, RowError, UnicodeEncodeError) as error:
                refuse(event, str(error), counts, failures)
                continue
            prefix = timestamp_prefix(headers["timestamp"])
            rows.append(
                (
                    place,
                    draft.records.table.name,
                    key,
                    packed,
                    json_bytes(headers),
                    prefix,
                    1 + with_before,
                )
            )
        if not rows:
            return None, failures, counts, NOTHING
        columns = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
        numbered = Numbered(
            sum(columns["numbers"]), max(columns["prefix"]), frozenset(columns["table"])
        )
        return columns, failures, counts, numbered

    return write


def _message_writer(job: Job) -> tuple[MessageWriter, EventMessages]:
    """Return a message writer, and the drafter of its messages. The drafter has the columns of the
    classes.
    """
    options: WriteOptions = job.output.options
    writer = MessageWriter(
        options, registry=registry_of_writer(options), utc_now=lambda: job.started
    )
    return writer, EventMessages(writer, catalog(job), value_options(job.config))


def _write_messages(
    job: Job,
    directory: Directory,
    part: int,
    blobs: Sequence[Columns],
    before: Numbered,
    sequences: Mapping[int, str],
) -> Written:
    """Write the messages of a part as lines, in queue order, numbered after ``before``."""
    writer, messages = _message_writer(job)
    is_json = job.output.options.encoding == "json"
    rows = sorted(
        (row for blob in blobs for row in zip(*map(blob.__getitem__, _COLUMNS), strict=True)),
        key=itemgetter(0),
    )
    state, described = WriterState(before.prefix, before.number), set(before.tables)
    with PartFiles(job, directory, part, ".jsonl") as files:
        for place, name, key, body, headers, prefix, numbers in rows:
            if place in sequences:
                sequence = sequences[place]
                state = raise_to(state, sequence)
            else:
                state, sequence = next_sequence(state, prefix, with_before=numbers > 1)
            table = writer.table(messages.catalog.schema, name)
            draft = Draft(table, key, loads(body) if is_json else body, loads(headers), numbers > 1)
            records = [table.record(draft, sequence)]
            if name not in described:  # the metadata message of a table comes before its first line
                described.add(name)
                if table.announcement is not None:
                    records.insert(0, table.announcement)
            files.add(list(map(message_line, records)), 1, len(records), place, place)
    return files.files, Numbered(state.number, state.prefix, frozenset(described))


def output_of(format: Format) -> OutputFormat:
    """Return the functions of messages for a backlog job."""
    return OutputFormat(
        ("lines",), _message_options, _message_renderer, _write_messages, _sent_renderer
    )
