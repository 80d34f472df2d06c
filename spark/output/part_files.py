"""The files of a part, none larger than it may be, and what the manifest of a backlog says of them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from spark.output.directory import Directory, FileStream

IDS: Final = "_ids"
"""The folder of the files that name every row that was read."""
MARKED: Final = "_marked"
"""The folder that says which parts are marked."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file of the output. ``name`` within the directory; ``events`` it holds, in ``documents`` (documents, records of
    a topic, or rows); ``first_id`` and ``last_id``: first rows of its first and last event; ``sha256`` of its content.
    """

    name: str
    bytes: int
    events: int
    documents: int
    first_id: int
    last_id: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PartReport:
    """What a part became. ``first`` and ``last`` record_id that were read; ``ids``: the file that names all of them.

    ``ids_sha256``: of that file's content. ``state``: greatest time prefix and last number of the formats that number,
    up to the end of the part.
    """

    part: int
    first: int
    last: int
    rows_read: int
    rows_loopback: int
    ids: str
    ids_sha256: str
    files: tuple[OutputFile, ...]
    counts: dict[str, int]
    state: tuple[str, int]


@dataclass(frozen=True, slots=True)
class FlightReport:
    """A recorded flight that stands in the output: its number, the file that names its rows, its documents."""

    flight: int
    ids: str
    ids_sha256: str
    rows: int
    events: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished directory holds. ``totals``: counters of spec/event-log.md 11, and events by operation.

    ``job``: the name of the run, which stands in the names of its files. ``settings``: what decided on documents and
    marks. ``format``: one of ``spark.output.formats``; of those that number ``last_sequence`` is the highest change
    sequence, else empty. ``others``: the SHA-256 of files that hold no events.
    """

    job: str
    settings: Mapping[str, str]
    log: str
    database: str
    snapshot: str
    started: str
    finished: str
    totals: Mapping[str, int]
    in_flight: tuple[FlightReport, ...]
    in_flight_files: tuple[OutputFile, ...]
    parts: tuple[PartReport, ...]
    format: str
    last_sequence: str
    others: Mapping[str, str]

    @property
    def files(self) -> list[OutputFile]:
        """The files of documents, in queue order."""
        return [*self.in_flight_files, *(file for part in self.parts for file in part.files)]

    @property
    def checksums(self) -> dict[str, str]:
        """The SHA-256 of every file that counts, by its name."""
        ids = {flight.ids: flight.ids_sha256 for flight in self.in_flight}
        ids |= {part.ids: part.ids_sha256 for part in self.parts}
        return {**ids, **self.others, **{file.name: file.sha256 for file in self.files}}


def manifest_of(value: Mapping[str, Any]) -> Manifest:
    """A manifest from its JSON form. Raises KeyError, TypeError for what is none."""
    known = {one.name: value[one.name] for one in fields(Manifest)}
    known["in_flight"] = tuple(FlightReport(**flight) for flight in known["in_flight"])
    known["in_flight_files"] = _files(known["in_flight_files"])
    known["parts"] = tuple(map(part_report, known["parts"]))
    return Manifest(**known)


def part_report(value: Mapping[str, Any]) -> PartReport:
    """A report from its JSON form."""
    return PartReport(**{**value, "files": _files(value["files"])})


def _files(values: Sequence[Mapping[str, Any]]) -> tuple[OutputFile, ...]:
    return tuple(OutputFile(**file) for file in values)


# --- files ------------------------------------------------------------------------------------------------------------

COMPRESSIONS: Final = ("none", "gzip", "zstd")
ENDINGS: Final = {"none": "", "gzip": ".gz", "zstd": ".zst"}
"""What a compressed file's name ends in; Parquet compresses inside."""
BLOCK_BYTES: Final = 2**20
"""What is compressed at a time, as a member of its own: so the size of a file is known before it is too large."""

PARQUET_FOOTER: Final = 64 * 1024


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, 6, mtime=0)


def _zstd(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {"none": bytes, "gzip": _gzip, "zstd": _zstd}


class PartFiles:
    """The files of a part; a new one begins where the next block would make one too large.

    ``name``: the number of a file, from 1 -> its name. ``codec`` of blocks, and of Parquet. ``header``: what every file
    of blocks begins with, compressed like them. The last file gets its name at the end of a ``with`` block, unless that
    fails.
    """

    def __init__(
        self, directory: Directory, name: Callable[[int], str], max_bytes: int, codec: str, header: bytes = b""
    ) -> None:
        self.files: list[OutputFile] = []
        self.max_bytes = max_bytes
        self._directory, self._name, self._codec, self._header = directory, name, codec, header
        self._block: list[bytes] = []
        self._block_bytes = self._block_events = self._block_documents = self._block_first = self._block_last = 0
        self._stream: FileStream | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._temporary = ""
        self._bytes = self._events = self._documents = self._first = self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is None:
            self.close()
        elif self._stream is not None:
            self._stream.close()

    def add(self, text: Sequence[bytes], events: int, documents: int, first_id: int, last_id: int) -> None:
        """Add text to a block, which is put into a file when it is large enough."""
        length = sum(map(len, text))
        if self._block_bytes + length > min(BLOCK_BYTES, self.max_bytes):
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
            block = COMPRESS[self._codec](b"".join(self._block))
            self.put(block, self._block_events, self._block_documents, self._block_first, self._block_last)
            self._block = []
            self._block_bytes = self._block_events = self._block_documents = 0

    def put(self, block: bytes, events: int, documents: int, first_id: int, last_id: int) -> None:
        """Add a block, compressed and whole, to a file."""
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

    def put_table(self, table: pa.Table, most: int, events: int, documents: int, first_id: int, last_id: int) -> None:
        """Add rows to a Parquet file. ``most``: bytes that they can take at most."""
        if self._stream is not None and self._stream.tell() + most + PARQUET_FOOTER > self.max_bytes:
            self._close_file()
        if self._stream is None:
            stream = self._begin(first_id)
            self._parquet = pq.ParquetWriter(stream, table.schema, compression=self._codec)
        assert self._parquet is not None
        self._parquet.write_table(table)
        self._end(events, documents, last_id)

    def _begin(self, first_id: int) -> FileStream:
        self._temporary = self._directory.until_settled(self._name(len(self.files) + 1))
        self._stream = self._directory.open(self._temporary)
        self._first = first_id
        return self._stream

    def _end(self, events: int, documents: int, last_id: int) -> None:
        self._events += events
        self._documents += documents
        self._last = last_id

    def close(self) -> None:
        """Finish the file that is open, if there is one, and give it its name."""
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
        name = self._name(len(self.files) + 1)
        self._directory.settle(self._temporary, name)
        about = self._bytes, self._events, self._documents, self._first, self._last, checksum
        self.files.append(OutputFile(name, *about))
        self._bytes = self._events = self._documents = 0
