"""Events as XDS documents: what the three stages do for the format ``xds``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from eventlog.config.load import Config
from eventlog.config.publishing import publish_options
from eventlog.core.events import Outgoing, association_of
from eventlog.errors import ConfigError
from eventlog.model import LogRow
from eventlog.xds.writer import Header, file_form, line_form, write_outgoing
from spark.directory import Directory
from spark.job import Columns, Job, Numbered, Output, OutputFile
from spark.output import PARQUET_FOOTER, OutputFormat, PartFiles, Render, renderer_of_events

_PARQUET_COLUMNS: Final = ("event_id", "class", "operation", "association", "document")

_About = tuple[str, str, str, str]
"""What Parquet tells of an event beside its document: event_id, class, operation, association."""

_SUFFIXES: Final = {"lines": ".xmll", "documents": ".xml", "parquet": ".parquet"}
_GROUP_EVENTS: Final = 5_000


def _write_documents(
    job: Job,
    directory: Directory,
    part: int,
    envelopes: Sequence[Sequence[str]],
    ids: Sequence[int],
    about: Sequence[_About],
) -> list[OutputFile]:
    """The envelopes of a part as files. ``ids``: the record_ids of the events' first rows; ``about``: for Parquet."""
    output, config = job.output, job.config
    options = publish_options(config)
    header = Header(options.product_name, options.product_version)
    digits = 7 if output.form == "documents" else 5
    with PartFiles(job, directory, part, _SUFFIXES[output.form], digits=digits) as files:
        if output.form == "parquet":
            _write_parquet(files, header, envelopes, ids, about)
        else:
            _write_texts(files, output, header, options.indent, envelopes, ids)
    return files.files


def _write_texts(
    files: PartFiles,
    output: Output,
    header: Header,
    indent: int,
    envelopes: Sequence[Sequence[str]],
    ids: Sequence[int],
) -> None:
    is_file_each = output.form == "documents"
    at = 0
    for envelope in envelopes:
        text = file_form(envelope, header, indent) if is_file_each else line_form(envelope, header)
        files.add([text.encode()], len(envelope), 1, ids[at], ids[at + len(envelope) - 1])
        at += len(envelope)
        if is_file_each:
            files.close()


def _write_parquet(
    files: PartFiles,
    header: Header,
    envelopes: Sequence[Sequence[str]],
    ids: Sequence[int],
    about: Sequence[_About],
) -> None:
    texts = [text for envelope in envelopes for text in envelope]
    schema = pa.schema([(name, pa.string()) for name in _PARQUET_COLUMNS])
    start = 0
    while start < len(texts):
        documents: list[str] = []
        size = 0
        for text in texts[start : start + _GROUP_EVENTS]:
            document = line_form((text,), header).rstrip("\n")
            size += len(document.encode()) + 200
            if documents and size > files.max_bytes - PARQUET_FOOTER:
                break
            documents.append(document)
        end = start + len(documents)
        columns = [*zip(*about[start:end], strict=True), documents]
        table = pa.Table.from_arrays([pa.array(column, pa.string()) for column in columns], schema=schema)
        files.put_table(table, size, len(documents), len(documents), ids[start], ids[end - 1])
        start = end


def read_options(config: Config, options: Mapping[str, Any], form: str) -> None:
    """The writer has no options: raises ConfigError if the request has any."""
    if options:
        raise ConfigError("format xds takes no options of --map: set them in [format] of the configuration")


def renderer(job: Job) -> Render:
    """The function that makes texts of the events of groups."""
    is_parquet = job.output.form == "parquet"

    def columns(places: Sequence[int], events: Sequence[Outgoing], _: Mapping[int, LogRow]) -> Columns:
        about = zip(_PARQUET_COLUMNS, zip(*map(_about_of, events), strict=True), strict=False) if is_parquet else ()
        return {"place": places, "text": list(map(write_outgoing, events)), **dict(about)}

    return renderer_of_events(job, columns)


def _about_of(event: Outgoing) -> _About:
    """What Parquet has of an event beside its document."""
    assert event.object_id is not None
    assert event.operation is not None
    object_class, _ = event.object_id
    return event.sent_id, object_class.name, str(event.operation), association_of(event)


def write(
    job: Job, directory: Directory, part: int, blobs: Sequence[Columns], before: Numbered, sequences: Mapping[int, str]
) -> tuple[list[OutputFile], Numbered]:
    """The events of a part in queue order, as envelopes in files."""
    ids = [place for blob in blobs for place in blob["place"]]
    texts = [text for blob in blobs for text in blob["text"]]
    about: list[_About] = []
    if job.output.form == "parquet":
        about = [line for blob in blobs for line in zip(*map(blob.__getitem__, _PARQUET_COLUMNS[:-1]), strict=True)]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    texts = [texts[i] for i in order]
    size = job.output.batch_size
    envelopes = [texts[start : start + size] for start in range(0, len(texts), size)]
    in_order = [ids[i] for i in order], [about[i] for i in order if about]
    return _write_documents(job, directory, part, envelopes, *in_order), before


def write_envelopes(
    job: Job,
    directory: Directory,
    part: int,
    envelopes: Sequence[Sequence[Outgoing]],
    log_rows: Mapping[int, LogRow],
) -> list[OutputFile]:
    """Write events in the envelopes that they have been sent in."""
    events = list(chain.from_iterable(envelopes))
    texts = [list(map(write_outgoing, envelope)) for envelope in envelopes]
    return _write_documents(
        job, directory, part, texts, [event.ids[0] for event in events], list(map(_about_of, events))
    )


FORMAT: Final = OutputFormat(("lines", "documents", "parquet"), read_options, renderer, write, write_envelopes)
