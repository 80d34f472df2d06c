"""A CDC stream as a source: files that grow, standard input, or a session with a server (spec/gbase-cdc.md 1, 4)."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from eventlog.errors import EventlogError, FormatError
from eventlog.gbase.errors import CdcError, ColumnError, SessionDead, error_name
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.session import Capture, Connection, Transport, capture_session
from eventlog.gbase.token import Token
from eventlog.gbase.transactions import Committed
from eventlog.publisher.sources import Mark, Read, SourceAway, SourceLost, Step, Unread

NAME: Final = "gbase"

_CHUNK: Final = 1 << 16
_PATIENCE: Final = 0.2
"""Seconds that standard input is waited for until what came is sent."""


@dataclass(slots=True)
class _Stream:
    """A reader with what its callbacks have told: rows that cannot be read, and whether the stream is idle.

    ``token``: the last one marked; None on a stream that begins now, until its first transaction.
    """

    reader: StreamReader
    token: Token | None
    bad: list[ColumnError] = field(default_factory=list)
    is_idle: bool = False

    def steps(self, data: bytes) -> Iterator[Step]:
        """The steps of some bytes of the stream, a mark at their end."""
        self.is_idle = False
        for committed in self.reader.transactions(data):
            if self.token is None:
                self.token = self._before(committed)
                yield Mark(self.token.to_json())
            place = f"{committed.commit_seq:016x}"
            for change in self.reader.changes(committed):
                yield from self._unread(place)
                yield Read(change, change.position or place)
            yield from self._unread(place)
        yield Mark(self._reached(), self.is_idle)

    def _reached(self) -> Any:
        """The token behind all that was read, None where that is not behind the last one: what was delivered before is
        read again. Not to be asked within a run of transactions, which it is ahead of.
        """
        token = self.reader.token
        if token.restart is None or (self.token is not None and token.restart < (self.token.restart or 0)):
            return None
        self.token = token
        return token.to_json()

    def _before(self, committed: Committed) -> Token:
        """From where the first transaction of a stream can be read again."""
        restart = self.reader.token.restart
        return Token(committed.begin_seq if restart is None else min(restart, committed.begin_seq), None)

    def _unread(self, place: str) -> Iterator[Unread]:
        for error in self.bad:
            sequence = "" if error.sequence is None else f":{error.sequence:016x}"
            yield Unread(f"{place}{sequence}", error.code, str(error))
        self.bad.clear()


def _stream(options: ReadOptions, token: Any) -> _Stream:
    """The reader of a stream that goes on behind ``token``."""
    told: list[_Stream] = []
    reader = StreamReader(
        options if token is None else replace(options, restart=Token.of(token)),
        on_idle=lambda _sequence: setattr(told[0], "is_idle", True),
        on_bad_row=lambda error: told[0].bad.append(error),
    )
    told.append(_Stream(reader, None if reader.token == Token() else reader.token))
    return told[0]


@dataclass(frozen=True, slots=True)
class CaptureFiles:
    """A file that grows, or a directory of files that continue one another in the order of their names.

    Each start reads from the beginning of what is there, since the descriptions of the tables stand there, and skips
    what was delivered. ``rest``: seconds between looks at its end.
    """

    path: Path
    options: ReadOptions
    rest: float
    name: str = NAME

    def steps(self, token: Any, *, once: bool) -> Generator[Step, None, None]:
        """The steps of the files. Raises FormatError, SourceLost."""
        stream = _stream(self.options, token)
        try:
            for data in self._pieces(once):
                if data:
                    yield from stream.steps(data)
                else:
                    yield Mark(None, is_idle=True, rest=self.rest)
        finally:
            stream.reader.close()

    def _pieces(self, once: bool) -> Iterator[bytes]:
        """What the files hold; empty where there is no more for now."""
        current: Path | None = None
        while True:
            following = self._behind(current)
            if following is None:
                if once:
                    return
                yield b""
                continue
            current = following
            yield from self._grown(current, once)

    def _behind(self, current: Path | None) -> Path | None:
        """The file that continues another one; None while there is none."""
        try:
            if not self.path.is_dir():
                self.path.stat()
                return self.path if current is None else None
            names = sorted(one.name for one in self.path.iterdir() if one.is_file() and one.name[:1] != ".")
        except OSError as error:
            raise FormatError(f"the capture {self.path} cannot be read: {error.strerror}") from error
        return next((self.path / name for name in names if current is None or name > current.name), None)

    def _grown(self, path: Path, once: bool) -> Iterator[bytes]:
        """A file to its end, until there is one behind it and its own end has been seen after that."""
        try:
            with path.open("rb", buffering=0) as file:
                is_last = True
                while True:
                    if data := file.read(_CHUNK):
                        yield data
                        continue
                    if os.fstat(file.fileno()).st_size < file.tell():
                        raise SourceLost(f"the capture {path} has become shorter than what was read of it")
                    if not is_last or (once and self._behind(path) is None):
                        return
                    is_last = self._behind(path) is None
                    if is_last:
                        yield b""
        except OSError as error:
            raise FormatError(f"the capture {path} cannot be read: {error.strerror}") from error


@dataclass(slots=True)
class StandardInput:
    """Standard input (file descriptor 0), which is read once; its end is the end of the source."""

    options: ReadOptions
    descriptor: int = 0
    name: str = NAME
    _is_read: bool = False

    def steps(self, token: Any, *, once: bool) -> Generator[Step, None, None]:
        """The steps of the input. Raises FormatError, SourceLost."""
        if self._is_read:
            raise SourceLost("standard input cannot be read a second time: pipe the stream again from its restart")
        self._is_read = True
        stream = _stream(self.options, token)
        try:
            while True:
                if not select.select([self.descriptor], [], [], _PATIENCE)[0]:
                    yield Mark(None, is_idle=True)
                    continue
                data = os.read(self.descriptor, _CHUNK)
                if not data:
                    return
                yield from stream.steps(data)
        finally:
            stream.reader.close()


@dataclass(frozen=True, slots=True)
class CaptureSession:
    """A session with a server (spec/gbase-cdc.md 1).

    ``connect`` gives a DB-API connection to ``syscdcv1`` and the function that reads a session; ``captures`` are the
    tables; ``server`` its name; ``timeout`` seconds until a TIMEOUT record says that there is nothing more.
    """

    connect: Callable[[], tuple[Connection, Transport]]
    captures: Sequence[Capture]
    server: str
    options: ReadOptions
    timeout: int = 1
    name: str = NAME

    def steps(self, token: Any, *, once: bool) -> Generator[Step, None, None]:
        """The steps of a session, which without a token begins now. Raises SourceAway, SourceLost, CdcError,
        FormatError; what the driver raises is SourceAway.
        """
        stream = _stream(self.options, token)
        try:
            connection, transport = self.connect()
            try:
                with capture_session(
                    connection,
                    transport,
                    self.captures,
                    server=self.server,
                    position=stream.reader.token.restart or 0,
                    timeout=self.timeout,
                ) as session:
                    while not (once and stream.is_idle):
                        yield from stream.steps(session.read())
            finally:
                close = getattr(connection, "close", None)
                if close is not None:
                    close()
        except CdcError as error:
            if error.name == "LSN":
                raise SourceLost(str(error)) from error
            if error.call == "read":
                raise SourceAway(str(error)) from error
            raise
        except SessionDead as error:
            raise (SourceLost if error_name(error.error) == "LSN" else SourceAway)(str(error)) from error
        except EventlogError:
            raise
        except Exception as error:
            raise SourceAway(f"the server {self.server}: {type(error).__name__}: {error}") from error
        finally:
            stream.reader.close()
