"""A CDC stream as a source: standard input, or a session with a server (formats/gbase-cdc.md 1,
4).
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from eventlog.errors import (
    ConfigError,
    EventlogError,
    FormatError,
    WrongResult,
    kind_of,
    with_location,
)
from eventlog.gbase.layout import Layout, catalog_table
from eventlog.gbase.options import ReadOptions, Token
from eventlog.gbase.reader import Committed, StreamReader
from eventlog.gbase.records import ColumnError
from eventlog.gbase.session import (
    Capture,
    CdcError,
    Connection,
    SessionDead,
    Transport,
    capture_session,
    error_name,
)
from eventlog.publisher.stream import (
    BadToken,
    Described,
    Failure,
    Mark,
    Read,
    SourceLost,
    SourceStep,
    SourceUnavailable,
)

_CHUNK: Final = 1 << 16
_PATIENCE: Final = 0.2
"""The seconds to wait for more standard input before the changes so far are sent."""
_TIMEOUT: Final = 1
"""The seconds after which the server sends a TIMEOUT record because there is nothing more."""


class CdcStream:
    """A stream that continues after a position. ``is_idle`` is True while the stream is idle.
    ``where`` returns the place of a byte in words.
    """

    def __init__(self, options: ReadOptions, token: Any) -> None:
        """Prepare to read after ``token``, from its ``restart`` and ``commit``. Raises BadToken."""
        if token is not None:
            try:
                options = replace(
                    options, restart=Token.of({name: token[name] for name in Token._fields})
                )
            except (ConfigError, TypeError, KeyError):
                raise BadToken(
                    f"{token!r} is not a position of a CDC stream; if it was changed by hand, "
                    "restore it"
                ) from None
        self.where: Callable[[int], str] | None = None
        self.is_idle = False
        self._invalid_rows: list[ColumnError] = []
        self._described: dict[int, Layout] = {}
        self._defined = 0
        self.reader = StreamReader(
            options, on_idle=self._rests, on_invalid_row=self._invalid_rows.append
        )
        # The last marked token; None on a new stream until its first transaction.
        self._marked = None if self.reader.token == Token() else self.reader.token

    def changes(self, data: bytes) -> Iterator[SourceStep]:
        """Yield the changes that some bytes of the stream commit; on a new stream a mark comes
        first.

        Raises FormatError.
        """
        try:
            yield from self._changes(data)
        except FormatError as error:
            self._located(error)
            raise

    def _changes(self, data: bytes) -> Iterator[SourceStep]:
        self.is_idle = False
        for committed in self.reader.transactions(data):
            if self._marked is None:
                self._marked = self._before(committed)
                yield Mark(self._marked.to_json())
            if self._defined != self.reader.layouts.defined:
                yield from self._newly_described()
            place = f"{committed.commit_seq:016x}"
            for change in self.reader.changes(committed):
                yield from self._unread(place)
                yield Read(change, change.position or place)
            yield from self._unread(place)

    def _newly_described(self) -> Iterator[SourceStep]:
        layouts = self.reader.layouts
        self._defined = layouts.defined
        for label, layout in layouts.items():
            if self._described.get(label) is not layout:
                self._described[label] = layout
                yield Described(layout.schema, catalog_table(layout))

    def reached(self) -> dict[str, str | None] | None:
        """Return the token after all bytes read so far. Return None while delivered changes are
        being read again: the token would be before the last token. Do not call this within a run of
        transactions: the token would be ahead of these transactions.
        """
        token = self.reader.token
        if token.restart is None or (
            self._marked is not None and token.restart < (self._marked.restart or 0)
        ):
            return None
        self._marked = token
        return token.to_json()

    def _before(self, committed: Committed) -> Token:
        """Return the place from which the first transaction of a stream can be read again."""
        restart = self.reader.token.restart
        return Token(
            committed.begin_seq if restart is None else min(restart, committed.begin_seq), None
        )

    def _rests(self, _sequence: int) -> None:
        self.is_idle = True

    def _unread(self, place: str) -> Iterator[Failure]:
        for error in self._invalid_rows:
            sequence = "" if error.sequence is None else f":{error.sequence:016x}"
            yield Failure(f"{place}{sequence}", error.code, str(self._located(error)))
        self._invalid_rows.clear()

    def _located(self, error: FormatError) -> FormatError:
        return (
            error
            if self.where is None or error.offset is None
            else with_location(error, self.where(error.offset))
        )


@dataclass(slots=True)
class StandardInput:
    """Standard input (file descriptor 0), which is read once; its end is the end of the source."""

    options: ReadOptions
    descriptor: int = 0
    _is_read: bool = False

    def backlog(self, token: Any) -> None:
        """Return None: the rest of standard input is unknown."""

    def steps(self, token: Any, *, once: bool) -> Generator[SourceStep, None, None]:
        """Yield the steps of the input. Raises FormatError, SourceLost, BadToken."""
        if self._is_read:
            raise SourceLost(
                "standard input cannot be read twice: pipe the stream again, beginning at the "
                "member `restart` of the position"
            )
        self._is_read = True
        stream = CdcStream(self.options, token)
        arrivals = select.poll()
        arrivals.register(self.descriptor, select.POLLIN)
        try:
            while True:
                if not arrivals.poll(_PATIENCE * 1000):
                    yield Mark(None, is_idle=True)
                    continue
                data = os.read(self.descriptor, _CHUNK)
                if not data:
                    return
                yield from stream.changes(data)
                yield Mark(stream.reached(), stream.is_idle)
        finally:
            stream.reader.close()


@dataclass(frozen=True, slots=True)
class ServerSession:
    """A session with a server (formats/gbase-cdc.md 1)."""

    connect: Callable[[], tuple[Connection, Transport]]
    """A function that returns a DB-API connection to ``syscdcv1`` and the function that reads a
    session.
    """
    captures: Sequence[Capture]
    """The tables."""
    server: str
    """The server's name."""
    options: ReadOptions

    def _connected(self) -> tuple[Connection, Transport]:
        """Return the result of the function in the option ``connect``. Raises WrongResult."""
        found: Any = self.connect()
        if not isinstance(found, tuple) or len(found) != 2 or not callable(found[1]):
            raise WrongResult(
                self.connect,
                f"returned {kind_of(found)}; a connection, and the function that reads a session, "
                "are needed",
            )
        connection, transport = found
        return connection, transport

    def backlog(self, token: Any) -> None:
        """Return None, since a server does not report how much of its logs follows a sequence."""

    def steps(self, token: Any, *, once: bool) -> Generator[SourceStep, None, None]:
        """Yield the steps of a session; without a token it begins at the present. Raises
        SourceUnavailable, SourceLost, CdcError, FormatError, BadToken; an error of the driver
        becomes SourceUnavailable.
        """
        server = token.get("server", self.server) if isinstance(token, Mapping) else self.server
        if server != self.server:
            raise BadToken(
                f"the position belongs to the server {server}, not {self.server}. Name a "
                f"position of {self.server}; or, if {self.server} has taken over the logs of "
                f"{server}, change server in the position"
            )
        stream = CdcStream(self.options, token)
        try:
            connection, transport = self._connected()
            try:
                with capture_session(
                    connection,
                    transport,
                    self.captures,
                    server=self.server,
                    position=stream.reader.token.restart or 0,
                    timeout=_TIMEOUT,
                ) as session:
                    while not (once and stream.is_idle):
                        for step in stream.changes(session.read()):
                            yield self._named(step)
                        yield self._named(Mark(stream.reached(), stream.is_idle))
            finally:
                close = getattr(connection, "close", None)
                if close is not None:
                    close()
        except CdcError as error:
            if error.name == "LSN":
                raise SourceLost(str(error)) from error
            if error.call == "read":
                raise SourceUnavailable(str(error)) from error
            raise
        except SessionDead as error:
            raise (SourceLost if error_name(error.error) == "LSN" else SourceUnavailable)(
                str(error)
            ) from error
        except EventlogError:
            raise
        except Exception as error:
            raise SourceUnavailable(
                f"the session with the server {self.server} failed: {type(error).__name__}: {error}"
            ) from error
        finally:
            stream.reader.close()

    def _named(self, step: SourceStep) -> SourceStep:
        """Return the step, with the server's name in its token, since a sequence has no meaning in
        another server's logs.
        """
        if isinstance(step, Mark) and step.token is not None:
            return step._replace(token={**step.token, "server": self.server})
        return step
