"""The formats of a backlog job: documents of any published format (``published``), numbered
messages (``records``), tables (``tables``); and the files of a part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.config.load import Config
from eventlog.core.rows.events import Decided, Outgoing, QueryBack
from eventlog.errors import ConfigError
from eventlog.files.compression import COMPRESSIONS
from eventlog.model import LogRow
from eventlog.qlik.sequence import WriterState
from eventlog.registry import format_named
from eventlog.spark.backlog.job import Columns, Counts, Job, Numbered, OutputFile, RowFailure
from eventlog.spark.directory import Directory, FileStream

RECEIVER: Final = "receiver"
"""The code of a row whose event the format cannot hold (spec/event-log.md 10)."""

Rendered = tuple[Columns | None, list[RowFailure], Counts, Numbered]
"""The output for groups of one part: the columns for the third stage (None = nothing is written),
rows that get E, counters, and the numbers used.
"""

LogRows = Mapping[int, LogRow]
"""Rows as they are in the log, by record_id."""

Render = Callable[[Sequence[Decided], Sequence[int], LogRows, QueryBack], Rendered]
"""A function that renders groups in queue order. Its arguments: the groups, their places in the
queue, their rows as they are in the log (only for formats that need these rows), and a function
that reads rows of objects from the database snapshot.
"""

Written = tuple[list[OutputFile], Numbered]
"""The files of a part, and the numbers used at its end."""

Write = Callable[[Job, Directory, int, Sequence[Columns], Numbered, Mapping[int, str]], Written]
"""A function that writes the blobs of a part to files, in queue order. Parts are numbered from 1;
part 0 has the recorded deliveries. The changes are numbered after the numbers used before. The
mapping has, by place, the change sequences of messages that were already sent; these messages keep
their sequences.
"""

RenderedSent = tuple[Columns | None, list[RowFailure], Counts]
"""The output for events that keep their event-ids: ``Rendered`` without the numbers used."""

RenderSent = Callable[[Sequence[Outgoing], Sequence[int], LogRows, QueryBack], RenderedSent]
"""A function that renders events that keep their event-ids. Its arguments: the events, their
places, their rows in the log, and a function that reads rows of objects.
"""

WriteSent = Callable[[Job, Directory, Sequence[Columns]], list[OutputFile]]
"""A function that writes documents that were sent before, one blob per document."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The functions of a format for a backlog job, created by the other modules of this package."""

    file_layouts: tuple[str, ...]
    """The possible layouts, the default first."""
    read_options: Callable[[Config, Mapping[str, Any], str], Any]
    """A function that returns the writer's options, from the configuration, the request and the
    file layout. The function raises ConfigError.
    """
    renderer: Callable[[Job], Render]
    """A function that returns the ``Render`` function, which the stages that fold groups call."""
    write: Write
    render_sent: Callable[[Job], RenderSent] | None = None
    """A function for formats whose readers may already have a recorded event. Without it, a
    recorded event is written like a new one.
    """
    write_sent: WriteSent | None = None
    """A function for formats whose recorded events keep their documents."""
    needs_log_rows: Callable[[Job], bool] = lambda _: True
    """A function that returns True if whole rows of the log are needed."""
    folders: Callable[[Job], list[str]] = lambda _: []
    """A function that returns the possible folders of the output. The function raises FormatError
    for classes that the format cannot hold.
    """
    finish: Callable[[Job, Directory, Sequence[OutputFile], WriterState], list[str]] = lambda *_: []
    """A function that writes the files that a directory has only once, and returns their names. The
    function's arguments include all other files and the last state of the numbering.
    """


def output_format(name: str, file_layout: str | None = None) -> OutputFormat:
    """Return the functions of the format with this name. Raises ConfigError if a backlog cannot be
    written in the format, or if the format does not have the file layout.
    """
    format = format_named(name)
    if format.can("tables"):
        module = "eventlog.spark.backlog.output.tables"
    elif format.is_numbered:
        module = "eventlog.spark.backlog.output.records"
    else:
        module = "eventlog.spark.backlog.output.published"
    output: OutputFormat = import_module(module).output_of(format)
    if file_layout is not None and file_layout not in output.file_layouts:
        raise ConfigError(
            f"file layout {file_layout!r} is unknown; with format {name} use one of "
            f"{', '.join(output.file_layouts)}"
        )
    return output


def counts_of(events: Sequence[Outgoing]) -> tuple[Counter[str], list[RowFailure]]:
    """Return the number of events by operation and the number of rows by outcome (spec/event-log.md
    11), and the rows whose value was read back but cannot be written.
    """
    counts: Counter[str] = Counter(
        [event.operation for event in events if event.operation is not None]
    )
    published = sum([len(event.ids) for event in events if event.outcomes is None])
    failures: list[RowFailure] = []
    for event in events:
        outcomes = event.outcomes
        if outcomes is not None:  # this is true for few groups
            published += len(outcomes.contributed)
            counts["rows_dropped"] += len(outcomes.dropped)
            counts["rows_gone"] += len(outcomes.gone)
            counts["rows_noop"] += len(outcomes.noop)
            counts["sv_conflicts"] += outcomes.conflicts
            failures += [(row.record_id, row.code, row.message) for row in outcomes.invalid]
    counts["rows_published"] = published
    return counts, failures


def refuse(event: Outgoing, message: str, counts: Counts, failures: list[RowFailure]) -> None:
    """Subtract a refused event from the counters. Its rows are invalid, since the format cannot
    hold the event.
    """
    assert event.operation is not None
    failures += [(record_id, RECEIVER, message) for record_id in event.contributed]
    counts[event.operation] -= 1
    counts["rows_published"] -= len(event.contributed)


# --- files ----------------------------------------------------------------------------------------

_BLOCK_BYTES: Final = 2**20
"""The bytes that are compressed together, so that a file is closed before it is too large."""

PARQUET_FOOTER: Final = 64 * 1024


class PartFiles:
    """The files of a part. A new file begins when the next block would make the present file too
    large.

    ``suffix`` is the suffix of the layout, ``folder`` is within the output. Every file of blocks
    begins with ``header``, compressed like a block. ``digits`` is the number of digits of the
    files' numbers. The last file gets its name at the end of the ``with`` block, unless the block
    fails.
    """

    def __init__(
        self,
        job: Job,
        directory: Directory,
        part: int,
        suffix: str,
        folder: str = "",
        *,
        header: bytes = b"",
        digits: int = 5,
    ) -> None:
        self.files: list[OutputFile] = []
        self.max_bytes = job.output.max_bytes
        self._directory, self._codec, self._header = directory, job.output.compression, header
        self._stem = f"{folder}/part-{part:06d}" if folder else f"part-{part:06d}"
        self._digits = digits
        packed = "" if suffix == ".parquet" else COMPRESSIONS[self._codec].suffix
        self._ending = f"-{job.name}{suffix}{packed}"  # Parquet compresses inside
        self._block: list[bytes] = []
        self._block_bytes = self._block_events = self._block_documents = self._block_first = (
            self._block_last
        ) = 0
        self._stream: FileStream | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._name = self._temporary = ""
        self._bytes = self._events = self._documents = self._first = self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is None:
            self.close()
        elif self._stream is not None:
            self._stream.close()

    def add(
        self, text: Sequence[bytes], events: int, documents: int, first_id: int, last_id: int
    ) -> None:
        """Add text to the current block, which is written to a file when it is large enough."""
        length = sum(map(len, text))
        if self._block_bytes + length > min(_BLOCK_BYTES, self.max_bytes):
            self._put_block()
        if not self._block:
            self._block_first = first_id
        self._block += text
        self._block_bytes += length
        self._block_events += events
        self._block_documents += documents
        self._block_last = last_id

    def _put_block(self) -> None:
        if self._block:
            block = COMPRESSIONS[self._codec].compress(b"".join(self._block))
            self.put(
                block,
                self._block_events,
                self._block_documents,
                self._block_first,
                self._block_last,
            )
            self._block = []
            self._block_bytes = self._block_events = self._block_documents = 0

    def put(self, block: bytes, events: int, documents: int, first_id: int, last_id: int) -> None:
        """Add one complete, compressed block to a file."""
        if self._stream is not None and self._bytes + len(block) > self.max_bytes:
            self._close_file()
        stream = self._stream
        if stream is None:
            stream = self._begin(first_id)
            stream.write(self._header)
            self._bytes = len(self._header)
        stream.write(block)
        self._bytes += len(block)
        self._end(events, documents, last_id)

    def put_table(
        self, table: pa.Table, most: int, events: int, documents: int, first_id: int, last_id: int
    ) -> None:
        """Add rows to a Parquet file. ``most`` is the maximum size of these rows in bytes."""
        if (
            self._stream is not None
            and self._stream.tell() + most + PARQUET_FOOTER > self.max_bytes
        ):
            self._close_file()
        if self._stream is None:
            stream = self._begin(first_id)
            self._parquet = pq.ParquetWriter(stream, table.schema, compression=self._codec)
        assert self._parquet is not None
        self._parquet.write_table(table)
        self._end(events, documents, last_id)

    def _begin(self, first_id: int) -> FileStream:
        self._name = f"{self._stem}-{len(self.files) + 1:0{self._digits}d}{self._ending}"
        self._temporary = self._directory.until_settled(self._name)
        self._stream = self._directory.open(self._temporary)
        self._first = first_id
        return self._stream

    def _end(self, events: int, documents: int, last_id: int) -> None:
        self._events += events
        self._documents += documents
        self._last = last_id

    def close(self) -> None:
        """Finish the open file, if there is one, and give it its name."""
        self._put_block()
        self._close_file()

    def _close_file(self) -> None:
        if self._stream is None:
            return
        if self._parquet is not None:
            self._parquet.close()
            self._bytes = self._stream.tell()
            self._parquet = None
        self._stream.close()
        checksum = self._stream.sha256
        self._stream = None
        self._directory.settle(self._temporary, self._name)
        about = self._bytes, self._events, self._documents, self._first, self._last, checksum
        self.files.append(OutputFile(self._name, *about))
        self._bytes = self._events = self._documents = 0
