"""Events as XDS documents: what the three stages do for the format ``xds``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eventlog.core.events import Outgoing, association_of, build_event
from eventlog.model import LogRow
from eventlog.xds.writer import write_outgoing
from spark.directory import Directory
from spark.documents import About, write_documents
from spark.job import Job
from spark.numbering import Numbered
from spark.rendering import Decided, Render, Rendered, Written, bad_of, counts_of

Events = tuple[list[int], list[str], list[About]]
"""Events in queue order: first record_ids, texts, and for Parquet what is told of them."""


def renderer(job: Job) -> Render:
    """Groups to the texts of their events."""
    options = job.options.events
    is_told = job.output.form == "parquet"

    def render(decided: Sequence[Decided], places: Sequence[int], log_rows: Mapping[int, LogRow]) -> Rendered:
        events = [build_event(group, options, decision, current) for group, decision, current in decided]
        built = [(place, event) for place, event in zip(places, events, strict=True) if event.operation is not None]
        blob: Events | None = None
        if built:
            about = [about_of(event) for _, event in built] if is_told else []
            blob = [place for place, _ in built], [write_outgoing(event) for _, event in built], about
        return Rendered(blob, bad_of(events), counts_of(events))

    return render


def about_of(event: Outgoing) -> About:
    """What Parquet tells of an event."""
    assert event.object_id is not None
    assert event.operation is not None
    object_class, _ = event.object_id
    return event.sent_id, object_class.name, event.operation, association_of(event)


def write(job: Job, directory: Directory, part: int, blobs: Sequence[Events], before: Numbered) -> Written:
    """The events of a part in queue order, as envelopes in files."""
    ids = [place for blob in blobs for place in blob[0]]
    texts = [text for blob in blobs for text in blob[1]]
    about = [line for blob in blobs for line in blob[2]]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    texts = [texts[i] for i in order]
    size = job.output.batch_size
    envelopes = [texts[start : start + size] for start in range(0, len(texts), size)]
    in_order = [ids[i] for i in order], [about[i] for i in order if about]
    return Written(write_documents(directory, job.output, job.config, part, envelopes, *in_order), before.state)
