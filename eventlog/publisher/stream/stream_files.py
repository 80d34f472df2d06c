"""A CDC stream in a growing file, or in a directory of files that continue one another, as a
source.

A start reads from the oldest transaction that was open at the position. Earlier files may be
removed. If bytes that were already read are missing or have changed, the source stops, since it
would otherwise lose changes.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self, TypeAlias

from eventlog.errors import FormatError
from eventlog.files.text import files_in, order_of
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.records import BEGINTX, COMMTX, RBTX, TABSCHEM, Framer, fields_of
from eventlog.publisher.stream import (
    Backlog,
    BadToken,
    Mark,
    SourceLost,
    SourceStep,
    SourceUnavailable,
)
from eventlog.publisher.stream.cdc_stream import CdcStream

_CHUNK: Final = 1 << 16
_KNOWN: Final = 4096
"""The number of bytes before a place by which a stream is recognized: they contain sequences,
which no two streams share.
"""

_MOST_TABLES: Final = 64 << 20
"""The number of bytes of the descriptions of tables in a position."""

_WORTH_A_MARK: Final = 1 << 20
"""The number of bytes without an end of a transaction, such as idle marks, after which the position
moves anyway.
"""


_Fragment: TypeAlias = tuple["BytePosition", bytes, bytes]
"""A position in a file, the bytes read from there (empty if there are no more for now), and the
bytes before the position.
"""


@dataclass(frozen=True, slots=True)
class StreamFiles:
    """A growing file, or a directory of files that continue one another in the order of their
    names.

    ``rest`` is the seconds between checks of the end. The token is the stream's token with a
    FilesPosition as ``capture``. If the token has no ``capture``, all files are read, and delivered
    changes are skipped.
    """

    path: Path
    options: ReadOptions
    rest: float

    def steps(self, token: Any, *, once: bool) -> Generator[SourceStep, None, None]:
        """Yield the steps of the files.

        Raises FormatError, SourceUnavailable, SourceLost, ConfigError, BadToken.
        """
        saved = _place_of(token)
        stream = CdcStream(self.options, token)
        track = _Track(stream, self.options.max_record)
        stream.where = track.where
        try:
            if saved is not None:
                self._recognise(saved)
                stream.reader.layouts.size_order = saved.size_order
                yield from track.read((BytePosition("", 0), saved.tables, b""))
            for fragment in self._fragments(None if saved is None else saved.restart, once):
                if not fragment[1]:
                    yield Mark(None, is_idle=True, rest=self.rest)
                    continue
                try:
                    yield from track.read(fragment)
                except FormatError:
                    # so that earlier changes are not sent again at each start that ends here
                    yield track.mark()
                    raise
                yield track.mark()
        finally:
            stream.reader.close()

    def backlog(self, token: Any) -> Backlog:
        """Return the number of unread bytes after ``token``.

        Raises SourceUnavailable, SourceLost, BadToken.
        """
        saved = _place_of(token)
        if saved is not None:
            self._recognise(saved)
        start = None if saved is None else saved.read
        size = 0
        for path in self._files():
            if start is not None and path == self._path_of(start):
                size += _size(path) - start.offset
            elif start is None or order_of(path.name) > order_of(start.file):
                size += _size(path)
        return Backlog(size, "bytes")

    def _recognise(self, saved: FilesPosition) -> None:
        """Check that the files are still the files that were read.

        Raises SourceLost if they are not.
        """
        between = [(BytePosition(name, 0), None) for name in saved.between]
        for place, digest in ((saved.restart, None), *between, (saved.read, saved.digest)):
            path = self._path_of(place)
            try:
                with _opened(path) as file:
                    known = _before(file, path, place.offset)
            except SourceUnavailable as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    raise _lost(path, "it is not there") from None
                raise
            if digest not in (None, _digest(known)):
                raise _lost(
                    path,
                    f"the bytes before byte {place.offset} differ from those that were read",
                )

    def _path_of(self, place: BytePosition) -> Path:
        return self.path / place.file if self.path.is_dir() else self.path

    def _fragments(self, start: BytePosition | None, once: bool) -> Iterator[_Fragment]:
        """Yield the contents of the files from a place on."""
        current: Path | None = None
        while True:
            following = (
                self._next_file(current)
                if current is not None or start is None
                else self._path_of(start)
            )
            if following is None:
                if once:
                    return
                yield BytePosition("", 0), b"", b""
                continue
            offset = start.offset if current is None and start is not None else 0
            current = following
            yield from self._read_growing(current, offset, once)

    def _next_file(self, current: Path | None) -> Path | None:
        """Return the file that continues another one; None if there is none yet."""
        files = self._files()
        if current is not None and not self.path.is_dir():
            return None
        return next(
            (
                path
                for path in files
                if current is None or order_of(path.name) > order_of(current.name)
            ),
            None,
        )

    def _files(self) -> list[Path]:
        """Return the files of the stream in their order. Raises SourceUnavailable."""
        with _readable(self.path):
            if self.path.is_dir():
                return files_in(self.path)
            self.path.stat()
            return [self.path]

    def _read_growing(self, path: Path, offset: int, once: bool) -> Iterator[_Fragment]:
        """Yield the content of a file from a byte on, until a next file exists and the end of this
        file was read again after that.

        The file is opened for each check, since a longer file may have replaced it, for example by
        rsync.
        """
        known: bytes | None = None
        is_last = True
        while True:
            with _opened(path) as file:
                read_again = _before(file, path, offset)
                if known not in (None, read_again):
                    raise _lost(
                        path, f"the bytes before byte {offset} differ from those that were read"
                    )
                known = read_again
                file.seek(offset)
                while data := file.read(_CHUNK):
                    yield BytePosition(path.name, offset), data, known
                    known = _last(known, data)
                    offset += len(data)
            if not is_last or (once and self._next_file(path) is None):
                return
            is_last = self._next_file(path) is None
            if is_last:
                yield BytePosition(path.name, offset), b"", b""


class _Track:
    """Maps bytes of the stream to bytes of the files, and keeps the place where reading would begin
    again.

    The restart of a position (formats/gbase-cdc.md 4.1) is a sequence, which a server understands.
    A file is read again from a byte: the BEGINTX of the oldest open transaction. The table
    descriptions before it must be known.
    """

    def __init__(self, stream: CdcStream, max_record: int) -> None:
        self._stream = stream
        self._framer = Framer(max_record)
        self._length = 0
        self._known = b""  # the last bytes of the present file
        # For each file the byte of the stream where it begins.
        self._starts: list[tuple[int, BytePosition]] = []
        # By transaction id: sequence and offset of its BEGINTX.
        self._open: dict[int, tuple[int, int]] = {}
        # Offset, label and record of each TABSCHEM that may be in force at the restart.
        self._tables: list[tuple[int, int, bytes]] = []
        # The last marked token, and the length at that time.
        self._marked: tuple[Any, int] = (None, 0)

    def read(self, fragment: _Fragment) -> Iterator[SourceStep]:
        """Yield the changes of the next bytes. Raises FormatError."""
        position, data, before = fragment
        if not self._starts or self._starts[-1][1].file != position.file:
            self._starts.append((self._length, position))
        self._known = before  # also for a mark if the first bytes of a file are not a record
        yield from self._stream.changes(data)
        self._note(data)
        self._length += len(data)
        self._known = _last(before, data)

    def _note(self, data: bytes) -> None:
        """Record where transactions begin, and the table descriptions, in bytes that were read
        without error.
        """
        for offset, number, _, record in self._framer.feed(data):
            if number == BEGINTX:
                sequence, transaction, *_ = fields_of(number, record)
                if self._open.get(transaction, (None, 0))[0] != sequence:
                    self._open[transaction] = sequence, offset
            elif number in (COMMTX, RBTX):
                _, transaction, *_ = fields_of(number, record)
                self._open.pop(transaction, None)
            elif number == TABSCHEM:
                label, *_ = fields_of(number, record)
                self._tables.append((offset, label, record))

    def mark(self) -> Mark:
        """Return the mark after all bytes read so far, without a token if the progress is too
        small for a write.
        """
        stream = self._stream
        token = stream.reached()
        if token is None or (
            token == self._marked[0] and self._length < self._marked[1] + _WORTH_A_MARK
        ):
            return Mark(None, stream.is_idle)
        self._marked = token, self._length
        restart = min((offset for _, offset in self._open.values()), default=self._framer.offset)
        read = self._position(self._length)
        place = FilesPosition(
            self._position(restart),
            self._tables_at(restart),
            stream.reader.layouts.size_order,
            read,
            _digest(self._known),
            tuple(
                one.file for start, one in self._starts if start > restart and one.file != read.file
            ),
        )
        return Mark({**token, "capture": place.to_json()}, stream.is_idle)

    def _tables_at(self, restart: int) -> bytes:
        """Return the TABSCHEM records in force at an offset, joined, and forget older records."""
        last = {label: offset for offset, label, _ in self._tables if offset < restart}
        self._tables = [one for one in self._tables if one[0] >= last.get(one[1], 0)]
        return b"".join(record for offset, _, record in self._tables if offset < restart)

    def where(self, offset: int) -> str:
        """Return the place of a byte of the stream in words."""
        position = self._position(offset)
        return f"byte {position.offset} of {position.file}"

    def _position(self, offset: int) -> BytePosition:
        """Return the place of a byte of the stream in its file."""
        start, position = next(one for one in reversed(self._starts) if one[0] <= offset)
        return BytePosition(position.file, position.offset + offset - start)


# --- the position ---------------------------------------------------------------------------------


class BytePosition(NamedTuple):
    """A byte of a file of the stream. ``file`` is the name in the directory."""

    file: str
    offset: int


class FilesPosition(NamedTuple):
    """The progress in the files of a stream, with data that identify these files."""

    restart: BytePosition
    """The byte to read again from."""
    tables: bytes
    """The TABSCHEM records in force at ``restart``, one after the other."""
    size_order: str | None
    """The byte order that the size arrays before ``restart`` have shown."""
    read: BytePosition
    """The end of the bytes read so far."""
    digest: str
    """The digest of the bytes before ``read``."""
    between: tuple[str, ...] = ()
    """The names of the files between the files of ``restart`` and ``read``; these files are read
    again, too.
    """

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        """Parse the JSON form of a position. Raises BadToken."""
        try:
            restart, read, order = value["restart"], value["read"], value["size_order"]
            return cls(
                BytePosition(str(restart["file"]), int(restart["offset"])),
                _unpacked(value["tables"]),
                None if order is None else str(order),
                BytePosition(str(read["file"]), int(read["offset"])),
                str(read["digest"]),
                tuple(map(str, value["between"])),
            )
        except (KeyError, TypeError, ValueError, OverflowError, zlib.error) as error:
            raise BadToken(
                f"the position names no place in a stream ({error!r:.200}); perhaps it was "
                "changed by hand. Remove the member `capture` from the position to read the files "
                "from their beginning; answered changes are then skipped"
            ) from None

    def to_json(self) -> dict[str, Any]:
        return {
            "restart": self.restart._asdict(),
            "tables": _packed(self.tables),
            "size_order": self.size_order,
            "read": {**self.read._asdict(), "digest": self.digest},
            "between": list(self.between),
        }


@lru_cache(maxsize=2)
def _packed(tables: bytes) -> str:
    """Return the tables compressed, since the position is written often, and many tables have long
    descriptions.
    """
    return base64.b64encode(zlib.compress(tables)).decode()


def _digest(known: bytes) -> str:
    """Return the digest of the bytes before a place: ``_KNOWN`` bytes, or fewer near the beginning
    of a file.
    """
    return hashlib.sha256(known).hexdigest()


def _unpacked(text: str) -> bytes:
    """Return what ``_packed`` packed. Raises ValueError."""
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b64decode(text, validate=True), _MOST_TABLES)
    if not unpacking.eof:
        raise ValueError(f"tables has more than {_MOST_TABLES} bytes, or no end")
    return data


def _place_of(token: Any) -> FilesPosition | None:
    place = token.get("capture") if isinstance(token, Mapping) else None
    return None if place is None else FilesPosition.of(place)


# --- files ----------------------------------------------------------------------------------------


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into SourceUnavailable."""
    try:
        yield
    except OSError as error:
        raise SourceUnavailable(f"the file {path} cannot be read: {error.strerror}") from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open the file unbuffered. Raises SourceUnavailable, also for errors while it is read."""
    with _readable(path), path.open("rb", buffering=0) as file:
        yield file


def _last(before: bytes, data: bytes) -> bytes:
    """Return the last bytes of a file, which identify it, from a fragment and the bytes before the
    fragment.
    """
    return (before + data)[-_KNOWN:]


def _before(file: BinaryIO, path: Path, offset: int) -> bytes:
    """Return the last bytes before a place, at most ``_KNOWN``.

    Raises SourceLost if the file ends before the place.
    """
    size = os.fstat(file.fileno()).st_size
    if size < offset:
        raise _lost(path, f"it has {size} bytes, and {offset} were read")
    start = max(0, offset - _KNOWN)
    return os.pread(file.fileno(), offset - start, start)


def _size(path: Path) -> int:
    with _readable(path):
        return path.stat().st_size


def _lost(path: Path, why: str) -> SourceLost:
    return SourceLost(
        f"the file {path} is not the file that was read up to the position: {why}. Put that file "
        "back. If it is lost, record the server's log again, beginning at `restart` of the "
        "position, and remove the member `capture` from the position"
    )
