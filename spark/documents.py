"""Envelopes of events as files of lines, files of one envelope each, or Parquet.

Names sort in queue order: ``part-000001-00001.xmll``. The same events give the same bytes under the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from eventlog.config.load import Config
from eventlog.xds.writer import Header, file_form, line_form
from spark.directory import Directory
from spark.job import Output
from spark.part_files import BLOCK_BYTES, COMPRESS, ENDINGS, PARQUET_FOOTER, OutputFile, PartFiles

FORMS: Final = ("lines", "documents", "parquet")
PARQUET_COLUMNS: Final = ("event_id", "class", "operation", "association", "document")

About = tuple[str, str, str, str]
"""What Parquet tells of an event beside its document: event_id, class, operation, association."""

_SUFFIXES: Final = {"lines": ".xmll", "documents": ".xml", "parquet": ".parquet"}
_GROUP_EVENTS: Final = 5_000


def write_documents(
    directory: Directory,
    output: Output,
    config: Config,
    part: int,
    envelopes: Sequence[Sequence[str]],
    ids: Sequence[int],
    about: Sequence[About],
) -> list[OutputFile]:
    """The envelopes of a part as files. ``ids``: the record_ids of the events' first rows; ``about``: for Parquet."""
    header = Header(config.format.product_name, config.format.product_version)
    writer = PartFiles(directory, partial(_name, output, part), output.max_bytes, output.compression)
    try:
        if output.form == "parquet":
            _write_parquet(writer, header, envelopes, ids, about)
        else:
            _write_texts(writer, output, header, config.format.indent, envelopes, ids)
    except BaseException:
        writer.abandon()
        raise
    return writer.files


def _name(output: Output, part: int, number: int) -> str:
    ending = _SUFFIXES[output.form] + ("" if output.form == "parquet" else ENDINGS[output.compression])
    digits = 7 if output.form == "documents" else 5
    return f"part-{part:06d}-{number:0{digits}d}{ending}"


def _write_texts(
    writer: PartFiles,
    output: Output,
    header: Header,
    indent: int,
    envelopes: Sequence[Sequence[str]],
    ids: Sequence[int],
) -> None:
    compress = COMPRESS[output.compression]
    whole = output.form == "documents"
    block: list[bytes] = []
    block_bytes = events = documents = start = at = 0

    def put() -> None:
        nonlocal block, block_bytes, events, documents, start
        if block:
            writer.put(compress(b"".join(block)), events, documents, ids[start], ids[at - 1])
            block, block_bytes, events, documents, start = [], 0, 0, 0, at

    most = min(BLOCK_BYTES, output.max_bytes)
    for envelope in envelopes:
        text = (file_form(envelope, header, indent) if whole else line_form(envelope, header)).encode()
        if block and (whole or block_bytes + len(text) > most):
            put()
        block.append(text)
        block_bytes += len(text)
        events += len(envelope)
        documents += 1
        at += len(envelope)
        if whole:
            put()
            writer.close()
    put()
    writer.close()


def _write_parquet(
    writer: PartFiles,
    header: Header,
    envelopes: Sequence[Sequence[str]],
    ids: Sequence[int],
    about: Sequence[About],
) -> None:
    texts = [text for envelope in envelopes for text in envelope]
    schema = pa.schema([(name, pa.string()) for name in PARQUET_COLUMNS])
    start = 0
    while start < len(texts):
        documents: list[str] = []
        size = 0
        for text in texts[start : start + _GROUP_EVENTS]:
            document = line_form((text,), header).rstrip("\n")
            size += len(document.encode()) + 200
            if documents and size > writer.max_bytes - PARQUET_FOOTER:
                break
            documents.append(document)
        end = start + len(documents)
        columns = [*zip(*about[start:end], strict=True), documents]
        table = pa.Table.from_arrays([pa.array(column, pa.string()) for column in columns], schema=schema)
        writer.put_table(table, size, len(documents), len(documents), ids[start], ids[end - 1])
        start = end
    writer.close()
