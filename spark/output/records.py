"""Events as lines of JSON: CloudEvents, change events of Debezium, and Qlik messages.

The publisher's own functions write them. What they do not say of their rows, Debezium reads from the snapshot. Of a
Qlik message all but its change sequence is made where its event is; the third stage, which knows the order of all
events, numbers them and makes the bytes of the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from orjson import loads

from eventlog.changes.publishing import CurrentRows, Publishing, read_whole_rows
from eventlog.cloudevents.options import STRUCTURED
from eventlog.cloudevents.options import PublishOptions as CloudEventsOptions
from eventlog.cloudevents.publish import CloudEventWriter
from eventlog.config.load import Config, connection_url
from eventlog.config.publishing import publish_options, taken_by_sink, value_options
from eventlog.core.events import Decided, Outgoing, QueryBack, build_event
from eventlog.core.json_bytes import json_bytes
from eventlog.core.options import parse_options
from eventlog.debezium import writer as debezium
from eventlog.debezium.format import line_of as debezium_line
from eventlog.debezium.publish import EventRecords
from eventlog.errors import FormatError, RowError
from eventlog.model import LogRow, Verdict, origins_of
from eventlog.publisher.flight import Flight
from eventlog.qlik.envelope import registry_of_writer
from eventlog.qlik.message_format import line_of as message_line
from eventlog.qlik.message_records import Draft
from eventlog.qlik.message_tables import WriteOptions
from eventlog.qlik.message_writer import MessageWriter
from eventlog.qlik.publish import EventMessages
from eventlog.qlik.sequence import WriterState, next_sequence, raise_to, timestamp_prefix
from eventlog.sql.connection import parse_url
from spark.directory import Directory
from spark.job import NOTHING, BadLine, Columns, Job, Numbered, OutputFile, catalog
from spark.output import RECEIVER, OutputFormat, PartFiles, Render, Rendered, counts_of, renderer_of_events


def _write(
    job: Job, directory: Directory, part: int, blobs: Sequence[Columns], before: Numbered, sequences: Mapping[int, str]
) -> tuple[list[OutputFile], Numbered]:
    """``Write`` for blobs of two columns, ``place`` and ``lines``, that number nothing."""
    lines = sorted(line for blob in blobs for line in zip(blob["place"], blob["lines"], strict=True))
    return _write_lines(job, directory, part, lines), before


def _write_lines(job: Job, directory: Directory, part: int, lines: Iterable[tuple[int, bytes]]) -> list[OutputFile]:
    """The lines of events in queue order, each event's with its place, as files of JSON."""
    with PartFiles(job, directory, part, ".jsonl") as files:
        for place, text in lines:
            files.add([text], 1, text.count(b"\n"), place, place)
    return files.files


def _refuse(event: Outgoing, message: str, counts: Counter[str], bad: list[BadLine]) -> None:
    """Take an event that the format cannot hold out of what was counted: its rows are bad."""
    assert event.operation is not None
    bad += [(record_id, RECEIVER, message) for record_id in event.contributed]
    counts[event.operation] -= 1
    counts["rows_published"] -= len(event.contributed)


# --- CloudEvents (spec/cloudevents.md) --------------------------------------------------------------------------------


def _cloudevents_options(config: Config, options: Mapping[str, Any], form: str) -> CloudEventsOptions:
    """The options of ``[format]``; those of the request go before."""
    chosen = {**asdict(publish_options(config)), "mode": STRUCTURED, **options}
    return parse_options(CloudEventsOptions, chosen, "the backlog's CloudEvents")


def _cloudevents_writer(job: Job) -> Callable[[Sequence[Outgoing], Mapping[int, LogRow]], list[bytes]]:
    """The function that writes events, whose rows it is given, as the publisher does."""
    url, log = parse_url(job.place.url), job.place.log
    publishing = Publishing(value_options(job.config), url.database or url.username or "", log.schema, log.name)
    output = CloudEventWriter(job.output.options, publishing)
    classes = catalog(job)

    def write(events: Sequence[Outgoing], log_rows: Mapping[int, LogRow]) -> list[bytes]:
        written = output.write(classes, Flight(0, {}, origins=origins_of(log_rows.values())), events)
        return [output.body([piece]) for piece in written if not isinstance(piece, Verdict)]

    return write


def _cloudevents_renderer(job: Job) -> Render:
    """The function that makes lines of the events of groups."""
    write = _cloudevents_writer(job)

    def columns(places: Sequence[int], events: Sequence[Outgoing], log_rows: Mapping[int, LogRow]) -> Columns:
        return {"place": places, "lines": write(events, log_rows)}

    return renderer_of_events(job, columns)


def _write_cloudevents(
    job: Job,
    directory: Directory,
    part: int,
    envelopes: Sequence[Sequence[Outgoing]],
    log_rows: Mapping[int, LogRow],
) -> list[OutputFile]:
    """Events that have been in envelopes before, under the event-ids that they have been sent under."""
    events = list(chain.from_iterable(envelopes))
    lines = _cloudevents_writer(job)(events, log_rows)
    return _write_lines(job, directory, part, zip((event.ids[0] for event in events), lines, strict=True))


CLOUDEVENTS: Final = OutputFormat(("lines",), _cloudevents_options, _cloudevents_renderer, _write, _write_cloudevents)


# --- Debezium (spec/debezium.md) --------------------------------------------------------------------------------------


def _debezium_options(config: Config, options: Mapping[str, Any], form: str) -> debezium.WriteOptions:
    """The options of ``[format]``, as the publisher takes them; those of the request go before."""
    topic = taken_by_sink(config).topic
    configured = {**asdict(publish_options(config)), "topic": topic, "database": _database(config)}
    return parse_options(debezium.WriteOptions, {**configured, **options}, "the backlog's Debezium events")


def _database(config: Config) -> str:
    return parse_url(connection_url(config.database)).database or ""


def _debezium_renderer(job: Job) -> Render:
    """The function that makes records of the events of groups, as the publisher would send them."""
    options: debezium.WriteOptions = job.output.options
    writer = debezium.EnvelopeWriter(options, catalog(job), utc_now=lambda: job.started)
    records = EventRecords(writer, catalog(job), value_options(job.config))

    def render(
        decided: Sequence[Decided], places: Sequence[int], log_rows: Mapping[int, LogRow], query_back: QueryBack
    ) -> Rendered:
        events = [build_event(group, job.options.events, decision, current) for group, decision, current in decided]
        current_rows: CurrentRows = {}
        if options.missing_columns == "read_back":
            events, current_rows = read_whole_rows(events, query_back)
        counts, bad = counts_of(events)
        kept: list[int] = []
        lines: list[bytes] = []
        for place, event in zip(places, events, strict=True):
            if event.operation is None or event.object_id is None:
                continue
            time = records.time_of(log_rows[event.ids[0]].event_time)
            written = records.write(event, time, current_rows.get(event.object_id))
            if isinstance(written, Verdict):
                _refuse(event, written.message, counts, bad)
                continue
            kept.append(place)
            lines.append(b"".join(debezium_line(record, options.lines) for record in written))
        return {"place": kept, "lines": lines} if kept else None, bad, counts, NOTHING

    return render


DEBEZIUM: Final = OutputFormat(("lines",), _debezium_options, _debezium_renderer, _write)


# --- Qlik messages (spec/qlik.md 5) -----------------------------------------------------------------------------------

_COLUMNS: Final = ("place", "table", "key", "body", "headers", "prefix", "numbers")
"""The columns of a blob of messages that lack their change sequences: the place of the event in the queue, the class,
the record's key, body and headers of the message, the headers as JSON, the prefix of its time and the numbers it takes.
"""


def _message_options(config: Config, options: Mapping[str, Any], form: str) -> WriteOptions:
    """The options of ``[format]``, as the publisher takes them; those of the request go before."""
    configured = {**asdict(publish_options(config)), "topic": taken_by_sink(config).topic}
    chosen = parse_options(WriteOptions, {**configured, **options}, "the backlog's Qlik messages")
    registry_of_writer(chosen)  # refused here, and not in a task
    return chosen


def _message_renderer(job: Job) -> Render:
    """The function that makes messages of the events of groups, as the publisher would send them."""
    options = job.options.events
    _, messages = _message_writer(job)

    def render(
        decided: Sequence[Decided], places: Sequence[int], log_rows: Mapping[int, LogRow], query_back: QueryBack
    ) -> Rendered:
        events = [build_event(group, options, decision, current) for group, decision, current in decided]
        counts, bad = counts_of(events)
        rows: list[tuple[Any, ...]] = []
        for place, event in zip(places, events, strict=True):
            if event.operation is None:
                continue
            try:
                _, key, body, headers, with_before = draft = messages.draft(event, log_rows[event.ids[0]].event_time)
                # In JSON a body is a dict, and a part of the message when its bytes are made.
                packed = body if isinstance(body, bytes) else json_bytes(body)
            except (FormatError, RowError, UnicodeEncodeError) as error:
                _refuse(event, str(error), counts, bad)
                continue
            prefix = timestamp_prefix(headers["timestamp"])
            rows.append((place, draft.records.table.name, key, packed, json_bytes(headers), prefix, 1 + with_before))
        if not rows:
            return None, bad, counts, NOTHING
        columns = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
        numbered = Numbered(sum(columns["numbers"]), max(columns["prefix"]), frozenset(columns["table"]))
        return columns, bad, counts, numbered

    return render


def _message_writer(job: Job) -> tuple[MessageWriter, EventMessages]:
    """A writer that knows the columns of the classes, and what makes drafts of events for it."""
    options: WriteOptions = job.output.options
    writer = MessageWriter(options, registry=registry_of_writer(options), utc_now=lambda: job.started)
    return writer, EventMessages(writer, catalog(job), value_options(job.config))


def _write_messages(
    job: Job, directory: Directory, part: int, blobs: Sequence[Columns], before: Numbered, sequences: Mapping[int, str]
) -> tuple[list[OutputFile], Numbered]:
    """The messages of a part in queue order, numbered on from what was before, as lines of files."""
    writer, messages = _message_writer(job)
    is_json = job.output.options.encoding == "json"
    rows = sorted(
        (row for blob in blobs for row in zip(*map(blob.__getitem__, _COLUMNS), strict=True)), key=itemgetter(0)
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
            if name not in described:  # its metadata message stands before its first line
                described.add(name)
                if table.announcement is not None:
                    records.insert(0, table.announcement)
            files.add(list(map(message_line, records)), 1, len(records), place, place)
    return files.files, Numbered(state.number, state.prefix, frozenset(described))


QLIK_MESSAGES: Final = OutputFormat(("lines",), _message_options, _message_renderer, _write_messages)
