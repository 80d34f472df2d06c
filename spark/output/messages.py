"""Events as Qlik messages: what the three stages do for the format ``qlik-messages`` (spec/qlik.md 5).

A message is made where its event is, by the publisher's own functions, with a change sequence that nobody else has: it
is cut out again, and the third stage, which knows the order of all events, puts the true one into its place.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from eventlog.config.load import Config
from eventlog.core.events import Decided, Outgoing, QueryBack, build_event
from eventlog.core.options import parse_options
from eventlog.errors import FormatError, RowError
from eventlog.model import LogRow
from eventlog.publisher.formats import configured_options, value_options
from eventlog.publisher.formats.qlik_messages import EventMessages, full_name
from eventlog.qlik.envelope import registry_of_writer
from eventlog.qlik.message_events import sequence_prefix
from eventlog.qlik.message_format import line_of
from eventlog.qlik.message_options import WriteOptions
from eventlog.qlik.message_writer import MessageWriter
from eventlog.qlik.sequence import WriterState, raise_to
from spark.directory import Directory
from spark.job import Columns, Job, Numbered, OutputFile, catalog
from spark.output.formats import OutputFormat, PartFiles, Render, Rendered, counts_of, refuse

_HOLE: Final = WriterState("9999123123595999", 8 * 10**18 + secrets.randbelow(10**18))
"""The state of a writer whose next sequence no data can hold: no time is later than its prefix, none knows its number.
"""


Line = tuple[int, bytes, bytes, int, str, str]
"""A message as a line of a file, with a hole of 35 digits (in Avro: 70 hex digits) for its change sequence: the place
of its event in the queue; what stands before the hole, and behind it; the numbers it takes, the prefix of its time; the
table whose metadata message is to come before it.
"""

_TABLE: Final = 5

_COLUMNS: Final = ("place", "head", "tail", "numbers", "prefix", "table")
"""The names of a line's fields in a blob; a further column, ``metadata``, has the metadata message of the table where
it comes first.
"""


def read_options(config: Config, options: Mapping[str, Any], form: str) -> WriteOptions:
    """The options of ``[format]``, as the publisher takes them; those of the request go before."""
    configured = configured_options(config, WriteOptions)
    chosen = parse_options(WriteOptions, {**configured, **options}, "the backlog's Qlik messages")
    registry_of_writer(chosen)  # refused here, and not in a task
    return chosen


def renderer(job: Job) -> Render:
    """The function that makes messages of the events of groups, as the publisher would send them."""
    options, write = job.options.events, _line_writer(job)

    def render(
        decided: Sequence[Decided], places: Sequence[int], log_rows: Mapping[int, LogRow], query_back: QueryBack
    ) -> Rendered:
        events = [build_event(group, options, decision, current) for group, decision, current in decided]
        counts, bad = counts_of(events)
        lines: list[Line] = []
        described: dict[str, bytes] = {}
        for place, event in zip(places, events, strict=True):
            if event.operation is None:
                continue
            try:
                line, description = write(event, log_rows[event.ids[0]], place)
            except (FormatError, RowError) as error:
                refuse(event, str(error), counts, bad)
                continue
            lines.append(line)
            if description is not None:
                described[line[_TABLE]] = description
        if not lines:
            return Rendered(None, bad, counts)
        columns = dict(zip(_COLUMNS, zip(*lines, strict=True), strict=True))
        numbers, prefixes, tables = (columns[name] for name in _COLUMNS[3:])
        blob = {**columns, "metadata": [described.pop(table, None) for table in tables]}
        return Rendered(blob, bad, counts, Numbered(sum(numbers), max(prefixes), frozenset(tables)))

    return render


def _line_writer(job: Job) -> Callable[[Outgoing, LogRow, int], tuple[Line, bytes | None]]:
    """The function that writes the message of an event at a place, whose first row is given, with the metadata message
    of its table.
    """
    options: WriteOptions = job.output.options
    writer = MessageWriter(options, registry=registry_of_writer(options), utc_now=lambda: job.started)
    messages = EventMessages(writer, catalog(job), value_options(job.config))
    names = {cls: full_name(messages.catalog, cls) for cls in messages.catalog.classes}
    encode = _encoded if options.encoding == "avro" else str.encode
    holes = {_HOLE.number + n: encode(f"{_HOLE.prefix}{_HOLE.number + n:019}") for n in (1, 2)}
    descriptions: dict[str, bytes] = {}

    def write(event: Outgoing, row: LogRow, place: int) -> tuple[Line, bytes | None]:
        assert event.object_id is not None
        object_class, _ = event.object_id
        writer.state, name, timestamp = _HOLE, names[object_class], messages.timestamp_of(row.event_time)
        *described, message = messages.write(event, timestamp)
        for description in described:
            descriptions[name] = line_of(description)
        number = writer.state.number
        head, _, tail = line_of(message).partition(holes[number])
        assert tail
        line = place, head, tail, number - _HOLE.number, sequence_prefix(timestamp), name
        return line, descriptions.get(name)

    return write


def _encoded(sequence: str) -> bytes:
    """A sequence in a message in Avro, which stands in its line as hex text."""
    return sequence.encode().hex().upper().encode()


def write(
    job: Job, directory: Directory, part: int, blobs: Sequence[Columns], before: Numbered, sequences: Mapping[int, str]
) -> tuple[list[OutputFile], Numbered]:
    """The messages of a part in queue order, numbered on from what was before, as lines of files."""
    lines = sorted(line for blob in blobs for line in zip(*map(blob.__getitem__, _COLUMNS), strict=True))
    described_by = (
        (table, text) for blob in blobs for table, text in zip(blob["table"], blob["metadata"], strict=True)
    )
    descriptions = {table: text for table, text in described_by if text is not None}
    number, prefix, tables = before
    numbered = []
    for place, _, _, numbers, own, _ in lines:
        if place in sequences:
            prefix, number = raise_to(WriterState(prefix, number), sequences[place])
            numbered.append(sequences[place])
        else:
            prefix = max(prefix, own)
            number += numbers
            numbered.append(f"{prefix}{number:019}")
    encode = _encoded if job.output.options.encoding == "avro" else str.encode
    described = set(tables)
    with PartFiles(job, directory, part, ".jsonl") as files:
        for (place, head, rest, _, _, table), sequence in zip(lines, numbered, strict=True):
            texts = [head, encode(sequence), rest]
            if table not in described:  # its metadata message stands before its first line
                described.add(table)
                if table in descriptions:
                    texts.insert(0, descriptions[table])
            files.add(texts, 1, len(texts) - 2, place, place)
    return files.files, Numbered(number, prefix, frozenset(described))


FORMAT: Final = OutputFormat(("lines",), read_options, renderer, write)
