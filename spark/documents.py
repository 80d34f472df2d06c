"""Envelopes of events as files of lines, files of one envelope each, or Parquet, none larger than it may be.

Names sort in queue order: ``part-000001-00001.xmll``. The same events give the same bytes under the same names.
"""

from __future__ import annotations

import gzip
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.config import Config
from eventlog.xds.writer import Header, file_form, line_form
from spark.directory import TEMPORARY, Directory
from spark.job import Output

FORMS: Final = ("lines", "documents", "parquet")
COMPRESSIONS: Final = ("none", "gzip", "zstd")
PARQUET_COLUMNS: Final = ("event_id", "class", "operation", "association", "document")

About = tuple[str, str, str, str]
"""What Parquet tells of an event beside its document: event_id, class, operation, association."""

_SUFFIXES: Final = {"lines": ".xmll", "documents": ".xml", "parquet": ".parquet"}
_ENDINGS: Final = {"none": "", "gzip": ".gz", "zstd": ".zst"}
_BLOCK_BYTES: Final = 2**20
"""What is compressed at a time, as a member of its own: so the size of a file is known before it is too large."""
_GROUP_EVENTS: Final = 5_000
_PARQUET_FOOTER: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that holds documents. ``name`` within the directory; ``first_id`` and ``last_id``: first rows of its
    first and last event.
    """

    name: str
    bytes: int
    events: int
    documents: int
    first_id: int
    last_id: int


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
    writer = _Files(directory, output, part)
    try:
        if output.form == "parquet":
            _write_parquet(writer, header, envelopes, ids, about)
        else:
            _write_texts(writer, header, config.format.indent, envelopes, ids)
    except BaseException:
        writer.abandon()
        raise
    return writer.files


def _write_texts(
    writer: _Files, header: Header, indent: int, envelopes: Sequence[Sequence[str]], ids: Sequence[int]
) -> None:
    compress = _COMPRESS[writer.output.compression]
    whole = writer.output.form == "documents"
    block: list[bytes] = []
    block_bytes = events = documents = start = at = 0

    def put() -> None:
        nonlocal block, block_bytes, events, documents, start
        if block:
            writer.put(compress(b"".join(block)), events, documents, ids[start], ids[at - 1])
            block, block_bytes, events, documents, start = [], 0, 0, 0, at

    most = min(_BLOCK_BYTES, writer.output.max_bytes)
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
    writer: _Files,
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
            if documents and size > writer.output.max_bytes - _PARQUET_FOOTER:
                break
            documents.append(document)
        end = start + len(documents)
        columns = [*zip(*about[start:end], strict=True), documents]
        table = pa.Table.from_arrays([pa.array(column, pa.string()) for column in columns], schema=schema)
        writer.put_table(table, size, len(documents), ids[start], ids[end - 1])
        start = end
    writer.close()


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, 6, mtime=0)


def _zstd(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


_COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {"none": bytes, "gzip": _gzip, "zstd": _zstd}


class _Files:
    """The files of a part, one after the other; a new one begins where the next block would make one too large."""

    def __init__(self, directory: Directory, output: Output, part: int) -> None:
        self.output = output
        self.files: list[OutputFile] = []
        self._directory = directory
        self._part = part
        self._stream: Any = None
        self._parquet: pq.ParquetWriter | None = None
        self._temporary = ""
        self._bytes = self._events = self._documents = self._first = self._last = 0

    def put(self, block: bytes, events: int, documents: int, first_id: int, last_id: int) -> None:
        if self._stream is not None and self._bytes + len(block) > self.output.max_bytes:
            self.close()
        self._begin(first_id)
        self._stream.write(block)
        self._bytes += len(block)
        self._end(events, documents, last_id)

    def put_table(self, table: pa.Table, most: int, first_events: int, first_id: int, last_id: int) -> None:
        """``most``: bytes that the rows can take at most."""
        if self._stream is not None and self._stream.tell() + most + _PARQUET_FOOTER > self.output.max_bytes:
            self.close()
        self._begin(first_id)
        if self._parquet is None:
            codec = {"none": "none", "gzip": "gzip", "zstd": "zstd"}[self.output.compression]
            self._parquet = pq.ParquetWriter(self._stream, table.schema, compression=codec)
        self._parquet.write_table(table)
        self._end(first_events, first_events, last_id)

    def _begin(self, first_id: int) -> None:
        if self._stream is None:
            self._temporary = f"{TEMPORARY}/{uuid.uuid4().hex}"
            self._stream = self._directory.open(self._temporary)
            self._first = first_id

    def _end(self, events: int, documents: int, last_id: int) -> None:
        self._events += events
        self._documents += documents
        self._last = last_id

    def close(self) -> None:
        """Finish the file that is open, if there is one, and give it its name."""
        if self._stream is None:
            return
        if self._parquet is not None:
            self._parquet.close()
            self._bytes = self._stream.tell()
            self._parquet = None
        self._stream.close()
        self._stream = None
        parquet = self.output.form == "parquet"
        ending = _SUFFIXES[self.output.form] + ("" if parquet else _ENDINGS[self.output.compression])
        digits = 7 if self.output.form == "documents" else 5
        name = f"part-{self._part:06d}-{len(self.files) + 1:0{digits}d}{ending}"
        self._directory.settle(self._temporary, name)
        self.files.append(OutputFile(name, self._bytes, self._events, self._documents, self._first, self._last))
        self._bytes = self._events = self._documents = 0

    def abandon(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
