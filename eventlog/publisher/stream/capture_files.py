"""A CDC stream in a file that grows, or in a directory of files that continue one another, as a source.

A start reads from the oldest transaction that was open at the position, not from the beginning: what lies before can be
taken away. Bytes that were read and are there no more, or are others, stop the source: to go on would lose changes.
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
from eventlog.publisher.stream import Backlog, BadToken, Mark, SourceAway, SourceLost, Step
from eventlog.publisher.stream.cdc_stream import CdcStream

_CHUNK: Final = 1 << 16
_KNOWN: Final = 4096
"""Bytes before a place that tell one capture from another: they hold sequences, which no two captures share."""

_WORTH_A_MARK: Final = 1 << 20
"""Bytes without an end of a transaction, as of idle marks, after which the position moves all the same."""


_Piece: TypeAlias = tuple["BytePosition", bytes, bytes]
"""What was read of a file from a position on, nothing if there is no more for now, and the bytes before it."""


@dataclass(frozen=True, slots=True)
class CaptureFiles:
    """A file that grows, or a directory of files that continue one another in the order of their names.

    ``rest``: seconds between looks at its end. The token is that of the stream with a CapturePosition as ``capture``;
    without this part all that is there is read, and what was delivered is skipped.
    """

    path: Path
    options: ReadOptions
    rest: float

    def steps(self, token: Any, *, once: bool) -> Generator[Step, None, None]:
        """The steps of the files. Raises FormatError, SourceAway, SourceLost, ConfigError, BadToken."""
        saved = _place_of(token)
        stream = CdcStream(self.options, token)
        track = _Track(stream, self.options.max_record)
        stream.where = track.where
        try:
            if saved is not None:
                self._recognise(saved)
                stream.reader.layouts.size_order = saved.size_order
                yield from track.read((BytePosition("", 0), saved.tables, b""))
            for piece in self._pieces(None if saved is None else saved.restart, once):
                if not piece[1]:
                    yield Mark(None, is_idle=True, rest=self.rest)
                    continue
                try:
                    yield from track.read(piece)
                except FormatError:
                    yield track.mark()  # so that what came before is not sent again at each start that ends here
                    raise
                yield track.mark()
        finally:
            stream.reader.close()

    def backlog(self, token: Any) -> Backlog:
        """The bytes that were not read up to ``token``. Raises SourceAway, SourceLost, BadToken."""
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

    def _recognise(self, saved: CapturePosition) -> None:
        """Raises SourceLost unless the files are those that were read, as far as they were read."""
        between = [(BytePosition(name, 0), None) for name in saved.between]
        for place, digest in ((saved.restart, None), *between, (saved.read, saved.digest)):
            path = self._path_of(place)
            try:
                with _opened(path) as file:
                    known = _before(file, path, place.offset)
            except SourceAway as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    raise _lost(path, "it is not there") from None
                raise
            if digest not in (None, _digest(known)):
                raise _lost(path, f"the bytes before byte {place.offset} are others than those that were read")

    def _path_of(self, place: BytePosition) -> Path:
        return self.path / place.file if self.path.is_dir() else self.path

    def _pieces(self, start: BytePosition | None, once: bool) -> Iterator[_Piece]:
        """What the files hold from a place on."""
        current: Path | None = None
        while True:
            following = self._next_file(current) if current is not None or start is None else self._path_of(start)
            if following is None:
                if once:
                    return
                yield BytePosition("", 0), b"", b""
                continue
            offset = start.offset if current is None and start is not None else 0
            current = following
            yield from self._read_growing(current, offset, once)

    def _next_file(self, current: Path | None) -> Path | None:
        """The file that continues another one; None if there is none yet."""
        files = self._files()
        if current is not None and not self.path.is_dir():
            return None
        return next((path for path in files if current is None or order_of(path.name) > order_of(current.name)), None)

    def _files(self) -> list[Path]:
        """The files of the capture that are there, in their order. Raises SourceAway."""
        with _readable(self.path):
            if self.path.is_dir():
                return files_in(self.path)
            self.path.stat()
            return [self.path]

    def _read_growing(self, path: Path, offset: int, once: bool) -> Iterator[_Piece]:
        """A file from a byte to its end, until there is one behind it and its own end has been seen after that.

        It is opened at each look: it may have been replaced by one that is longer, as by rsync.
        """
        known: bytes | None = None
        is_last = True
        while True:
            with _opened(path) as file:
                read_again = _before(file, path, offset)
                if known not in (None, read_again):
                    raise _lost(path, f"the bytes before byte {offset} are others than those that were read")
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
    """The stream of the files: which byte of which file each of its bytes is, and from where it is read again.

    The restart of a position (spec/gbase-cdc.md 4.1) is a sequence, which a server can be asked for. A file is read
    again from a byte: that of the BEGINTX of the oldest open transaction; what was described before has to be known.
    """

    def __init__(self, stream: CdcStream, max_record: int) -> None:
        self._stream = stream
        self._framer = Framer(max_record)
        self._length = 0
        self._known = b""  # the last bytes of the file that is read
        self._starts: list[tuple[int, BytePosition]] = []  # from which byte of the stream on a file is read
        self._open: dict[int, tuple[int, int]] = {}  # by transaction id: sequence and offset of its BEGINTX
        # Offset, label and record of each TABSCHEM that may be in force at the restart.
        self._tables: list[tuple[int, int, bytes]] = []
        self._marked: tuple[Any, int] = (None, 0)  # the token that was marked last, and the length at that time

    def read(self, piece: _Piece) -> Iterator[Step]:
        """The changes of the next bytes. Raises FormatError."""
        position, data, before = piece
        if not self._starts or self._starts[-1][1].file != position.file:
            self._starts.append((self._length, position))
        self._known = before  # also of a mark where the first bytes of a file are no record
        yield from self._stream.changes(data)
        self._note(data)
        self._length += len(data)
        self._known = _last(before, data)

    def _note(self, data: bytes) -> None:
        """Note where transactions begin and tables are described, in bytes that were read without error."""
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
        """The mark behind all that was read, without token if that is not worth a write."""
        stream = self._stream
        token = stream.reached()
        if token is None or (token == self._marked[0] and self._length < self._marked[1] + _WORTH_A_MARK):
            return Mark(None, stream.is_idle)
        self._marked = token, self._length
        restart = min((offset for _, offset in self._open.values()), default=self._framer.offset)
        read = self._position(self._length)
        capture = CapturePosition(
            self._position(restart),
            self._tables_at(restart),
            stream.reader.layouts.size_order,
            read,
            _digest(self._known),
            tuple(one.file for start, one in self._starts if start > restart and one.file != read.file),
        )
        return Mark({**token, "capture": capture.to_json()}, stream.is_idle)

    def _tables_at(self, restart: int) -> bytes:
        """The TABSCHEM records in force at an offset, one after the other; older ones are forgotten."""
        last = {label: offset for offset, label, _ in self._tables if offset < restart}
        self._tables = [one for one in self._tables if one[0] >= last.get(one[1], 0)]
        return b"".join(record for offset, _, record in self._tables if offset < restart)

    def where(self, offset: int) -> str:
        """Where a byte of the stream lies, for people."""
        position = self._position(offset)
        return f"byte {position.offset} of {position.file}"

    def _position(self, offset: int) -> BytePosition:
        """Which byte of which file a byte of the stream is."""
        start, position = next(one for one in reversed(self._starts) if one[0] <= offset)
        return BytePosition(position.file, position.offset + offset - start)


# --- the position -----------------------------------------------------------------------------------------------------


class BytePosition(NamedTuple):
    """A byte of a file of the capture, ``file`` is its name in the directory."""

    file: str
    offset: int


class CapturePosition(NamedTuple):
    """How far the files of a capture were read, and how they are known again.

    ``restart``: the byte to read again from. ``tables``: the TABSCHEM records in force there, one after the other;
    ``size_order``: what the size arrays before it have shown. ``read``: how far was read, and ``digest`` of the bytes
    before that; ``between``: the names of the files between these two, which are read again too.
    """

    restart: BytePosition
    tables: bytes
    size_order: str | None
    read: BytePosition
    digest: str
    between: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        """The place of its JSON form. Raises BadToken."""
        try:
            restart, read, order = value["restart"], value["read"], value["size_order"]
            return cls(
                BytePosition(str(restart["file"]), int(restart["offset"])),
                zlib.decompress(base64.b64decode(value["tables"], validate=True)),
                None if order is None else str(order),
                BytePosition(str(read["file"]), int(read["offset"])),
                str(read["digest"]),
                tuple(map(str, value["between"])),
            )
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise BadToken(
                f"the position names no place in a capture ({error!r}): was it changed by hand? Without its part "
                "capture the files are read from their beginning, and what was answered is skipped"
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
    """Compressed, since the position is written again and again, and many tables have long descriptions."""
    return base64.b64encode(zlib.compress(tables)).decode()


def _digest(known: bytes) -> str:
    """The digest of the bytes before a place, of which there are ``_KNOWN`` unless the file has fewer."""
    return hashlib.sha256(known).hexdigest()


def _place_of(token: Any) -> CapturePosition | None:
    capture = token.get("capture") if isinstance(token, Mapping) else None
    return None if capture is None else CapturePosition.of(capture)


# --- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises SourceAway for what fails in the block."""
    try:
        yield
    except OSError as error:
        raise SourceAway(f"the capture {path} cannot be read: {error.strerror}") from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file, unbuffered. Raises SourceAway, also for what fails while it is read."""
    with _readable(path), path.open("rb", buffering=0) as file:
        yield file


def _last(before: bytes, data: bytes) -> bytes:
    """The bytes that a file is known again by, of those before a piece and its own."""
    return (before + data)[-_KNOWN:]


def _before(file: BinaryIO, path: Path, offset: int) -> bytes:
    """The last bytes before a place, at most ``_KNOWN``. Raises SourceLost if the file ends before it."""
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
        f"the capture {path} is not the one that was read up to the position: {why}. Put it back; or, if what follows "
        "in the server's log from the position's restart on is captured anew, take the part capture out of the position"
    )
