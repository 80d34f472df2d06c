"""Events as change events of Debezium: what the three stages do for the format ``debezium`` (spec/debezium.md).

Events are written by the publisher's own functions; what they do not say of their rows is read from the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eventlog.config.load import Config
from eventlog.core.events import Decided, QueryBack, build_event
from eventlog.core.options import parse_options
from eventlog.debezium.format import line_of
from eventlog.debezium.writer import EnvelopeWriter, WriteOptions
from eventlog.model import LogRow, Verdict
from eventlog.publisher.formats import CurrentRows, configured_options, read_whole_rows, value_options
from eventlog.publisher.formats.debezium import EventRecords
from spark.job import Job, catalog
from spark.output.formats import OutputFormat, Render, Rendered, counts_of, refuse, write_placed


def read_options(config: Config, options: Mapping[str, Any], form: str) -> WriteOptions:
    """The options of ``[format]``, as the publisher takes them; those of the request go before."""
    configured = configured_options(config, WriteOptions)
    return parse_options(WriteOptions, {**configured, **options}, "the backlog's Debezium events")


def renderer(job: Job) -> Render:
    """The function that makes records of the events of groups, as the publisher would send them."""
    options: WriteOptions = job.output.options
    writer = EnvelopeWriter(options, catalog(job), utc_now=lambda: job.started)
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
                refuse(event, written.message, counts, bad)
                continue
            kept.append(place)
            lines.append(b"".join(line_of(record, options.lines) for record in written))
        return Rendered({"place": kept, "lines": lines} if kept else None, bad, counts)

    return render


FORMAT: Final = OutputFormat(("lines",), read_options, renderer, write_placed)
