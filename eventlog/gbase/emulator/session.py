"""A CDC session of the emulated server: what of the log it gives, and how reads cut it (spec/gbase-cdc.md 6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from eventlog.gbase import records
from eventlog.gbase.column_types import Column, parse_type
from eventlog.gbase.errors import ERROR_NUMBERS
from eventlog.gbase.layout import stream_order
from eventlog.gbase.values import TextOptions
from eventlog.gbase.writer import Payload, row_writer, tabschem
from eventlog.model import Row

if TYPE_CHECKING:
    from eventlog.gbase.emulator.server import CdcServer, LogRecord

_DEAD: Final = 1


def capture_columns(columns: Mapping[str, str]) -> tuple[Column, ...]:
    """The columns of a capture in stream order. Raises UnknownType for one that cannot be captured."""
    return stream_order(Column(name, parse_type(spelled, name)) for name, spelled in columns.items())


class Capture(NamedTuple):
    """A table that a session captures, its columns in stream order."""

    table: str
    label: int
    columns: tuple[Column, ...]


class Session:
    """A session. ``cursor`` is its place in the log, None while it is not active."""

    def __init__(self, server: CdcServer, id: int, timeout: int, max_recs: int) -> None:
        self.id = id
        self.timeout = timeout
        self.captures: dict[str, tuple[Capture, Callable[[Row], Payload]]] = {}
        self.cursor: int | None = None
        self._server = server
        self._max_recs = max_recs if max_recs > 0 else server.switches.max_recs
        self._queue: deque[bytes] = deque()
        self._failures: deque[tuple[int, bytes]] = deque()  # ERROR records, by the place that they come in front of
        self._record = b""  # the one being returned
        self._returned = 0  # bytes of it
        self._since_timeout = 0
        self._last_sequence = 0

    def start(self, capture: Capture) -> None:
        """Capture a table; in an active session its TABSCHEM comes before what is read next."""
        switches = self._server.switches
        payload = row_writer(
            capture.table, capture.columns, TextOptions(), switches.varchar_prefix, lambda column: None
        )
        self.captures[capture.table] = (capture, payload)
        if self.cursor is not None:
            self._queue.append(tabschem(capture.label, capture.columns))

    def activate(self, place: int) -> None:
        """Give the TABSCHEM records of all captures, then the log from this place on."""
        self.cursor = place
        self._queue.extend(tabschem(capture.label, capture.columns) for capture, _ in self.captures.values())

    def fail(self, place: int, error: int, dead: bool) -> None:
        """An ERROR record comes in front of the log record at this place."""
        self._failures.append((place, records.control(records.ERROR, _DEAD if dead else 0, error)))

    def to_boundary(self) -> None:
        """Return the record that was being returned from its start again."""
        self._returned = 0

    def deactivate(self) -> None:
        """Give nothing until activated again."""
        self.cursor = None
        self._queue.clear()
        self._record, self._returned = b"", 0

    def has_data(self) -> bool:
        """Whether a read would return more than a TIMEOUT."""
        if not self._record:
            self._take_next()
        return bool(self._record)

    def read(self, buffer: bytearray) -> int:
        """Fill the buffer as far as records, their greatest number and the limits go; gives the number of bytes."""
        switches = self._server.switches
        limit = min(len(buffer), switches.read_bytes)
        size = count = 0
        while size < limit and count < self._max_recs:
            if not self._record:
                self._take_next()
            if not self._record:
                if size:
                    break
                self._record = self._with_header(records.control(records.TIMEOUT, self._last_sequence))
            piece = self._record[self._returned : self._returned + limit - size]
            buffer[size : size + len(piece)] = piece
            size += len(piece)
            self._returned += len(piece)
            if self._returned == len(self._record):
                self._record, self._returned = b"", 0
                count += 1
        if not switches.stale_tail:
            buffer[size:] = bytes(len(buffer) - size)
        return size

    def _take_next(self) -> None:
        every = self._server.switches.timeout_every
        if self._queue:
            self._record = self._with_header(self._queue.popleft())
        elif self._failures and self.cursor is not None and self._failures[0][0] <= self.cursor:
            self._record = self._with_header(self._failures.popleft()[1])
        elif every and self._since_timeout >= every:
            self._since_timeout = 0
            self._record = self._with_header(records.control(records.TIMEOUT, self._last_sequence))
        else:
            self._record = self._from_log()
            self._since_timeout += bool(self._record)

    def _from_log(self) -> bytes:
        assert self.cursor is not None
        while True:
            try:
                logged = self._server.record_at(self.cursor)
            except IndexError:  # the log was used again before it was read
                return records.control(records.ERROR, _DEAD, ERROR_NUMBERS["LSN"])
            if logged is None:
                return b""
            self.cursor += 1
            record = self._encoded(logged)
            if record:
                self._last_sequence = logged.sequence
                return self._with_header(record)

    def _encoded(self, logged: LogRecord) -> bytes:
        sequence, number, tx, table, row, numbers = logged
        if table is not None:
            if table not in self.captures:
                return b""
            capture, payload = self.captures[table]
            if row is None:
                return records.control(number, sequence, tx, capture.label)
            sizes, data = payload(row)
            return records.row(number, sequence, tx, capture.label, sizes, data, self._server.switches.size_order)
        if number == records.DISCARD:  # it has the sequence that it discards from instead of its own
            return records.control(number, *numbers, tx)
        return records.control(number, sequence, tx, *numbers)

    def _with_header(self, record: bytes) -> bytes:
        extra = self._server.switches.extra_header
        return records.with_extra_header(record, extra) if extra else record
