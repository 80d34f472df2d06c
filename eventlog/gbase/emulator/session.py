"""The log of the emulated server and the CDC sessions that read it: what they give of it, and how reads cut it
(spec/gbase-cdc.md 6).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from eventlog.gbase import records
from eventlog.gbase.layout import Column, RowWriter, row_writer, tabschem
from eventlog.gbase.session import ERROR_NUMBERS
from eventlog.model import Row

_PAGE: Final = 0x1000
_PAGE_HEADER: Final = 0x18
_SMALLEST: Final = 0x40
_COLUMN_SIZE: Final = 8  # what a column of a row takes in the log, about
_DEAD: Final = 1


@dataclass(frozen=True, slots=True)
class Switches:
    """How the server behaves (spec/gbase-cdc.md 6)."""

    size_order: str = "little"
    varchar_prefix: int = 2
    max_recs: int = 64
    read_bytes: int = 65536
    stale_tail: bool = False
    timeout_every: int = 0
    extra_header: int = 0
    log_start: int = 11
    log_size: int = 1 << 24
    keep_logs: int = 6


class LogRecord(NamedTuple):
    """A record of the log: ``numbers`` are its fields behind sequence and transaction id."""

    sequence: int
    number: int
    tx: int
    table: str | None
    row: Row | None
    numbers: tuple[int, ...]


class ServerLog:
    """Log records at rising sequences; the oldest log files are dropped. A place is counted from the first record ever.

    ``next_sequence`` is that of the next record.
    """

    def __init__(self, switches: Switches) -> None:
        self.next_sequence = switches.log_start << 32 | _PAGE_HEADER
        self._switches = switches
        self._records: list[LogRecord] = []
        self._dropped = 0  # records that stood in front of _records[0]

    @property
    def oldest_sequence(self) -> int:
        """The lowest sequence that can be activated at."""
        oldest = max((self.next_sequence >> 32) - self._switches.keep_logs + 1, self._switches.log_start)
        return oldest << 32 | _PAGE_HEADER

    @property
    def end(self) -> int:
        """The place behind the last record."""
        return self._dropped + len(self._records)

    def append(self, number: int, tx: int, table: str | None, row: Row | None, numbers: tuple[int, ...]) -> int:
        """Write a record; gives its sequence."""
        sequence = self.next_sequence
        self._records.append(LogRecord(sequence, number, tx, table, row, numbers))
        self._advance(_SMALLEST + _COLUMN_SIZE * len(row or ()))
        return sequence

    def place_of(self, sequence: int) -> int:
        """The place of the first record from a sequence on."""
        return self._dropped + bisect_left(self._records, sequence, key=lambda record: record.sequence)

    def record_at(self, place: int) -> LogRecord | None:
        """The record at a place, None at the end. Raises IndexError if its log is kept no more."""
        if place < self._dropped:
            raise IndexError(place)
        return self._records[place - self._dropped] if place < self.end else None

    def _advance(self, size: int) -> None:
        at = self.next_sequence & 0xFFFFFFFF
        while size > 0:
            room = _PAGE - (at & 0xFFF)
            if room - size >= _SMALLEST:
                at += size
                break
            size -= room
            at = (at & ~0xFFF) + _PAGE + _PAGE_HEADER
        if at < self._switches.log_size:
            self.next_sequence = self.next_sequence & ~0xFFFFFFFF | at
            return
        self.next_sequence = (self.next_sequence >> 32) + 1 << 32 | _PAGE_HEADER
        oldest = self.place_of(self.oldest_sequence)
        del self._records[: oldest - self._dropped]
        self._dropped = oldest


class Session:
    """A session. ``captures``: label, TABSCHEM record and writer of rows by table.

    ``cursor``: its place in the log, None unless it is active.
    """

    def __init__(self, log: ServerLog, switches: Switches, timeout: int, max_recs: int) -> None:
        self.timeout = timeout
        self.captures: dict[str, tuple[int, bytes, RowWriter]] = {}
        self.cursor: int | None = None
        self._log = log
        self._switches = switches
        self._max_recs = max_recs if max_recs > 0 else switches.max_recs
        self._queue: deque[bytes] = deque()
        self._failures: deque[tuple[int, bytes]] = deque()  # ERROR records, by the place that they come in front of
        self._record = b""  # the one being returned
        self._returned = 0  # bytes of it
        self._since_timeout = 0
        self._last_sequence = 0

    def start(self, table: str, label: int, columns: tuple[Column, ...]) -> None:
        """Capture a table; in an active session its TABSCHEM comes before what is read next."""
        write = row_writer(table, columns, "utf-8", self._switches.varchar_prefix, lambda column: None)
        described = tabschem(label, columns)
        self.captures[table] = label, described, write
        if self.cursor is not None:
            self._queue.append(described)

    def activate(self, place: int) -> None:
        """Give the TABSCHEM records of all captures, then the log from this place on."""
        self.cursor = place
        self._queue.extend(described for _, described, _ in self.captures.values())

    def fail(self, error: int, dead: bool) -> None:
        """An ERROR record comes behind all that was done so far."""
        self._failures.append((self._log.end, records.control(records.ERROR, _DEAD if dead else 0, error)))

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
        self._record = self._record or self._next_record()
        return bool(self._record)

    def read(self, buffer: bytearray) -> int:
        """Fill the buffer as far as records, their greatest number and the limits go; gives the number of bytes."""
        limit = min(len(buffer), self._switches.read_bytes)
        size = count = 0
        while size < limit and count < self._max_recs:
            if not self.has_data():
                if size:
                    break
                self._record = self._timeout()
            piece = self._record[self._returned : self._returned + limit - size]
            buffer[size : size + len(piece)] = piece
            size += len(piece)
            self._returned += len(piece)
            if self._returned == len(self._record):
                self._record, self._returned = b"", 0
                count += 1
        if not self._switches.stale_tail:
            buffer[size:] = bytes(len(buffer) - size)
        return size

    def _next_record(self) -> bytes:
        every = self._switches.timeout_every
        if self._queue:
            return self._with_header(self._queue.popleft())
        if self._failures and self.cursor is not None and self._failures[0][0] <= self.cursor:
            return self._with_header(self._failures.popleft()[1])
        if every and self._since_timeout >= every:
            self._since_timeout = 0
            return self._timeout()
        record = self._from_log()
        self._since_timeout += bool(record)
        return record

    def _timeout(self) -> bytes:
        return self._with_header(records.control(records.TIMEOUT, self._last_sequence))

    def _from_log(self) -> bytes:
        assert self.cursor is not None
        while True:
            try:
                logged = self._log.record_at(self.cursor)
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
            label, _, write = self.captures[table]
            if row is None:
                return records.control(number, sequence, tx, label)
            sizes, data = write(row)
            return records.row(number, sequence, tx, label, sizes, data, self._switches.size_order)
        if number == records.DISCARD:  # it has the sequence that it discards from instead of its own
            return records.control(number, *numbers, tx)
        return records.control(number, sequence, tx, *numbers)

    def _with_header(self, record: bytes) -> bytes:
        extra = self._switches.extra_header
        return records.with_extra_header(record, extra) if extra else record
