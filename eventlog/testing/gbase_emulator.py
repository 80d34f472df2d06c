"""An emulated CDC server: tables, transactions, a log, and the calls of the CDC interface
(formats/gbase-cdc.md 6).

The server is for tests, and for users who have no server. It runs in this process. Only
``cdc_read`` waits, and only with a negative timeout. The server captures committed and uncommitted
work in log order.

After activation, the TABSCHEM records of all captured tables come first, in the order of
startcapture, with types in lower case, ``, `` between columns and ``varchar(n,0)``. The records
whose sequence is at least the position of the activation follow, including BEGINTX. A commit of
rows that were updated to the same values writes UPDBEF and UPDAFT.

Misuse is answered with APIVERS for a major version other than 1 or a minor version other than 0 and
1; NOSESS for an unknown session; ARGNULL for a NULL argument; NODB, NOTAB, NOCOL for a database,
table or column that startcapture does not find; TABPROPERTIES for a capture without full-row
logging, and for a capture of a view, a temporary table or a type that cannot be captured;
TABCAPTURED for a second capture of a table; TABNOTCAPTURED for ending a capture that does not
exist; LSN for activation before the oldest log or after the end; NOREOPEN for activation of an
active session; -19816 for switching full-row logging off while a table is captured.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from operator import itemgetter
from typing import Any, Final

from eventlog.errors import ConfigError, DatabaseError, FormatError
from eventlog.gbase import records
from eventlog.gbase.layout import (
    Column,
    RowWriter,
    parse_type,
    row_writer,
    split_columns,
    stream_order,
    tabschem,
)
from eventlog.gbase.options import parse_table_name
from eventlog.gbase.session import ERROR_NUMBERS, LOGGING_IN_USE
from eventlog.model import ChangeOp, Row

_FIRST_TIME: Final = 1742727439
_PAGE: Final = 0x1000
_PAGE_HEADER: Final = 0x18
_SMALLEST: Final = 0x40
_COLUMN_SIZE: Final = 8  # approximate bytes that one column of a row takes in the log

Done = tuple[ChangeOp, str, Row | None, Row | None]
"""One operation of a transaction: kind, table, values before it, values after it."""

_LogRecord = tuple[int, int, int, str | None, Row | None, tuple[int, ...]]
"""A record of the log: sequence, record number, transaction id, table, row, and further header
fields. In the header, these fields follow sequence and transaction id.
"""


@dataclass(frozen=True, slots=True)
class Switches:
    """Switches that set how the server behaves (formats/gbase-cdc.md 6)."""

    size_order: str = "little"
    """Byte order of the size array."""
    varchar_prefix: int = 2
    """Bytes of the length prefix of VARCHAR: 1 or 2."""
    max_recs: int = 64
    """Maximum number of records of a read if the argument of opensess sets no maximum."""
    read_bytes: int = 65536
    """Maximum number of bytes of a read; a read may end inside a record."""
    stale_tail: bool = False
    """True if reads return a full buffer: bytes of earlier reads follow the valid bytes."""
    timeout_every: int = 0
    """A TIMEOUT follows after each run of this number of records; 0: no TIMEOUT."""
    extra_header: int = 0
    """Number of unknown bytes between the specific header and the payload."""
    log_start: int = 11
    """Number of the first log. A sequence is log << 32 + position; a position is page << 12 +
    offset, with an offset of 0x18 or more.
    """
    log_size: int = 1 << 24
    """Bytes of a log; when the log is full, the next log begins."""
    keep_logs: int = 6
    """Number of logs that are kept; activation at an older log returns LSN."""


class _Refused(Exception):  # raised inside the emulator; the call returns its code
    """A refusal: the call returns the error code with this name."""


def _answering(call: Callable[..., int | None]) -> Callable[..., int]:
    """Wrap a call of the interface so that it answers with numbers. The answer is 0 or the call's
    own result. It is the code of the error if the call refuses, or if an argument is NULL.
    """

    @wraps(call)
    def answering(*arguments: Any) -> int:
        try:
            return ERROR_NUMBERS["ARGNULL"] if None in arguments else call(*arguments) or 0
        except _Refused as refused:
            return ERROR_NUMBERS[str(refused)]

    return answering


@dataclass(slots=True)
class Work:
    """A transaction of the emulated server. Tables have their full name ``db:owner.table``; rows
    have all columns.

    ``done`` lists the operations that no savepoint has undone, each with its sequence.
    """

    server: CdcServer
    tx: int
    begin_seq: int
    os_user: int
    done: list[tuple[int, Done]] = field(default_factory=list)

    def insert(self, table: str, row: Row) -> None:
        """Insert a row."""
        self._did(ChangeOp.INSERT, table, None, row, records.INSERT)

    def update(self, table: str, before: Row, after: Row) -> None:
        """Update a row. The update is written even if it changes no value."""
        self._did(ChangeOp.UPDATE, table, before, after, records.UPDBEF, records.UPDAFT)

    def move(self, table: str, before: Row, after: Row) -> None:
        """Update a row so that it moves to another fragment, logged as UPDBEF and INSERT (APAR
        IT07378).
        """
        self._did(ChangeOp.UPDATE, table, before, after, records.UPDBEF, records.INSERT)

    def delete(self, table: str, row: Row) -> None:
        """Delete a row."""
        self._did(ChangeOp.DELETE, table, row, None, records.DELETE)

    def truncate(self, table: str) -> None:
        """Truncate a table."""
        self._did(ChangeOp.TRUNCATE, table, None, None, records.TRUNCATE)

    def savepoint(self) -> int:
        """Return a savepoint: the sequence from which ``rollback_to`` undoes operations."""
        return self.server.next_sequence

    def rollback_to(self, savepoint: int) -> None:
        """Undo all operations since the savepoint; the log gets a DISCARD record."""
        self.done = [(sequence, done) for sequence, done in self.done if sequence < savepoint]
        self.server.log(records.DISCARD, self.tx, numbers=(savepoint,))

    def commit(self) -> None:
        """Commit the transaction."""
        self.server.end(self, records.COMMTX)

    def rollback(self) -> None:
        """Roll the transaction back."""
        self.server.end(self, records.RBTX)

    def _did(
        self, op: ChangeOp, table: str, before: Row | None, after: Row | None, *numbers: int
    ) -> None:
        sequence = self.server.next_sequence
        for number in numbers:
            self.server.log(
                number,
                self.tx,
                table,
                before if number in (records.UPDBEF, records.DELETE) else after,
            )
        self.done.append((sequence, (op, table, before, after)))


class CdcServer:
    """The emulated server. It creates tables and runs transactions. The calls of the CDC interface
    read from it.

    ``tables`` maps each table to its columns, name -> type as spelled. ``full_row_logging`` has the
    tables for which full-row logging is switched on. ``on_commit`` is called with each transaction
    at its COMMTX, in log order. ``next_sequence`` is the sequence of the next record.
    """

    def __init__(
        self, switches: Switches | None = None, on_commit: Callable[[Work, int], None] | None = None
    ) -> None:
        self.switches = switches or Switches()
        self.tables: dict[str, dict[str, str]] = {}
        self.full_row_logging: set[str] = set()
        self._views: set[str] = set()
        self._on_commit = on_commit
        self.next_sequence = self.switches.log_start << 32 | _PAGE_HEADER
        self._records: list[_LogRecord] = []  # records of the log files that are kept
        self._dropped = 0  # number of records dropped with older log files
        self._time = _FIRST_TIME
        self._busy: set[int] = set()
        self._sessions: dict[int, _Session] = {}
        self._last_session = 0
        self._changed = threading.Condition()

    # --- working

    def create_table(self, name: str, columns: str, kind: str = "table") -> str:
        """Create a table ``db:owner.table`` whose columns are spelled as in TABSCHEM, and return
        its name.

        Columns whose types are spelled otherwise cannot be captured. ``kind`` is "table", "view" or
        "temporary"; only the kind "table" can be captured.
        """
        if not _database_of(name):
            raise ConfigError(f"table {name!r} lacks its database; give it as db:owner.table")
        self.tables[name] = dict(split_columns(columns))
        if kind != "table":
            self._views.add(name)
        return name

    def begin(self, os_user: int = 0) -> Work:
        """Begin a transaction. Its id is the lowest id that no open transaction has."""
        tx = 1
        while tx in self._busy:
            tx += 1
        self._busy.add(tx)
        self._time += 1
        return Work(self, tx, self.log(records.BEGINTX, tx, numbers=(self._time, os_user)), os_user)

    def end(self, work: Work, number: int) -> None:
        """End a transaction by a COMMTX or RBTX record."""
        self._time += 1
        sequence = self.log(
            number, work.tx, numbers=(self._time,) if number == records.COMMTX else ()
        )
        self._busy.discard(work.tx)
        if number == records.COMMTX and self._on_commit is not None:
            self._on_commit(work, sequence)

    def fail(self, error: str, dead: bool = True) -> None:
        """Append an ERROR record to each active session, after all earlier records. The record has
        the code with this name.
        """
        record = records.control(
            records.ERROR, records.SESSION_DEAD if dead else 0, ERROR_NUMBERS[error]
        )
        with self._changed:
            for session in self._sessions.values():
                if session.cursor is not None:
                    session.failures.append((self._dropped + len(self._records), record))
            self._changed.notify_all()

    # --- the log; places count from the first record that was ever written

    def log(
        self,
        number: int,
        tx: int,
        table: str | None = None,
        row: Row | None = None,
        numbers: tuple[int, ...] = (),
    ) -> int:
        """Write a record to the log and return its sequence."""
        with self._changed:
            sequence = self.next_sequence
            self._records.append((sequence, number, tx, table, row, numbers))
            self._advance(_SMALLEST + _COLUMN_SIZE * len(row or ()))
            self._changed.notify_all()
        return sequence

    def _advance(self, size: int) -> None:
        """Advance the next sequence past a record. If this begins a new log file, drop the oldest
        log file.
        """
        at = self.next_sequence & 0xFFFFFFFF
        while size > 0:
            room = _PAGE - (at & 0xFFF)
            if room - size >= _SMALLEST:
                at += size
                break
            size -= room
            at = (at & ~0xFFF) + _PAGE + _PAGE_HEADER
        if at < self.switches.log_size:
            self.next_sequence = self.next_sequence & ~0xFFFFFFFF | at
            return
        self.next_sequence = (self.next_sequence >> 32) + 1 << 32 | _PAGE_HEADER
        oldest = self._place_of(self.oldest_sequence)
        del self._records[: oldest - self._dropped]
        self._dropped = oldest

    @property
    def oldest_sequence(self) -> int:
        """The lowest sequence at which a session can be activated."""
        oldest = max(
            (self.next_sequence >> 32) - self.switches.keep_logs + 1, self.switches.log_start
        )
        return oldest << 32 | _PAGE_HEADER

    def _place_of(self, sequence: int) -> int:
        """Return the place of the first record at or above a sequence."""
        return self._dropped + bisect_left(self._records, sequence, key=itemgetter(0))

    def record_at(self, place: int) -> _LogRecord | None:
        """Return the record at a place, None at the end of the log.

        Raises IndexError if its log file has been dropped.
        """
        if place < self._dropped:
            raise IndexError(place)
        place -= self._dropped
        return self._records[place] if place < len(self._records) else None

    # --- the calls (formats/gbase-cdc.md 1)

    @_answering
    def cdc_opensess(
        self, server: str, session: int, timeout: int, max_recs: int, major: int, minor: int
    ) -> int:
        """Open a session and return its id, or a negative error.

        ``timeout`` is in seconds; only its sign has an effect here.
        """
        if major != 1 or minor not in (0, 1):
            raise _Refused("APIVERS")
        self._last_session += 1
        self._sessions[self._last_session] = _Session(self, timeout, max_recs)
        return self._last_session

    @_answering
    def cdc_set_fullrowlogging(self, table: str, on: int) -> int:
        """Switch full-row logging of a table on or off.

        Returns 0 or an error: -19816 for switching it off while the table is captured.
        """
        self._find(table)
        if table in self._views:
            raise _Refused("TABPROPERTIES")
        if not on and any(table in session.captures for session in self._sessions.values()):
            return LOGGING_IN_USE
        (self.full_row_logging.add if on else self.full_row_logging.discard)(table)
        return 0

    @_answering
    def cdc_startcapture(
        self, session: int, zero: int, table: str, columns: str, label: int
    ) -> None:
        """Start the capture of a table. Returns 0 or an error.

        In an active session the TABSCHEM record of the table precedes all later records.
        """
        opened, types = self._opened(session), self._find(table)
        names = [name.strip() for name in columns.split(",")]
        if any(name not in types for name in names):
            raise _Refused("NOCOL")
        if table in opened.captures:
            raise _Refused("TABCAPTURED")
        if table not in self.full_row_logging:
            raise _Refused("TABPROPERTIES")
        try:
            captured = stream_order(Column(name, parse_type(types[name], name)) for name in names)
        except FormatError:
            raise _Refused("TABPROPERTIES") from None
        described = tabschem(label, captured)
        write = row_writer(
            table, captured, "utf-8", self.switches.varchar_prefix, lambda column: None
        )
        opened.captures[table] = label, described, write
        if opened.cursor is not None:
            opened.described.append(described)

    @_answering
    def cdc_activatesess(self, session: int, position: int) -> None:
        """Activate a session at a position; 0 is the end of the log. Returns 0 or an error.

        The TABSCHEM records of all captures come first.
        """
        opened = self._opened(session)
        if opened.cursor is not None:
            raise _Refused("NOREOPEN")
        if position and not self.oldest_sequence <= position <= self.next_sequence:
            raise _Refused("LSN")
        opened.cursor = self._place_of(position or self.next_sequence)
        opened.described.extend(described for _, described, _ in opened.captures.values())

    @_answering
    def cdc_read(self, session: int, buffer: bytearray) -> int:
        """Fill the buffer and return the number of valid bytes, or an error."""
        with self._changed:
            opened = self._opened(session)
            if opened.cursor is None:
                raise _Refused("NOSESS")
            while opened.timeout < 0 and not opened.has_data():
                self._changed.wait()
                self._opened(session)
            return opened.read(buffer)

    def has_data(self, session: int) -> bool:
        """Return True if a read would return more than a TIMEOUT record.

        This is not a call of the interface. It is for callers that drive both the server and the
        reader.
        """
        return self._sessions[session].has_data()

    @_answering
    def cdc_recboundary(self, session: int) -> None:
        """Rewind to the start of a partly read record, so that the next read begins at its start.

        Returns 0 or an error.
        """
        self._opened(session).returned = 0

    @_answering
    def cdc_deactivatesess(self, session: int) -> None:
        """Deactivate a session. Returns 0 or an error."""
        opened = self._opened(session)
        opened.cursor = None
        opened.described.clear()
        opened.record, opened.returned = b"", 0

    @_answering
    def cdc_endcapture(self, session: int, zero: int, table: str) -> None:
        """End the capture of a table. Returns 0 or an error."""
        if self._opened(session).captures.pop(table, None) is None:
            raise _Refused("TABNOTCAPTURED")

    @_answering
    def cdc_closesess(self, session: int) -> None:
        """Close a session. Returns 0 or an error."""
        with self._changed:
            self._opened(session)
            del self._sessions[session]
            self._changed.notify_all()

    def _opened(self, session: int) -> _Session:
        if session not in self._sessions:
            raise _Refused("NOSESS")
        return self._sessions[session]

    def _find(self, name: str) -> dict[str, str]:
        if name in self.tables:
            return self.tables[name]
        raise _Refused("NOTAB" if _database_of(name) in map(_database_of, self.tables) else "NODB")


def _database_of(table: str) -> str:
    return parse_table_name(table)[0]


# --- sessions of the server -----------------------------------------------------------------------


class _Session:
    """A session of the server.

    ``captures`` has the label, the TABSCHEM record and the row writer of each captured table.
    ``cursor`` is the session's place in the log, None unless the session is active.
    """

    def __init__(self, server: CdcServer, timeout: int, max_recs: int) -> None:
        self.timeout = timeout
        self.captures: dict[str, tuple[int, bytes, RowWriter]] = {}
        self.cursor: int | None = None
        self.described: deque[bytes] = deque()  # TABSCHEM records to be returned next
        # ERROR records, by the place of the record that each precedes
        self.failures: deque[tuple[int, bytes]] = deque()
        self.record = b""  # the record that is being returned
        self.returned = 0  # number of its bytes that have been returned
        self._server = server
        self._switches = server.switches
        self._max_recs = max_recs if max_recs > 0 else server.switches.max_recs
        self._since_timeout = 0
        self._last_sequence = 0

    def has_data(self) -> bool:
        """Return True if a read would return more than a TIMEOUT record."""
        self.record = self.record or self._with_header(self._next_record())
        return bool(self.record)

    def read(self, buffer: bytearray) -> int:
        """Fill the buffer up to the limits of bytes and records, and return the number of bytes."""
        limit = min(len(buffer), self._switches.read_bytes)
        size = count = 0
        while size < limit and count < self._max_recs:
            if not self.has_data():
                if size:
                    break
                self.record = self._with_header(self._timeout())
            fragment = self.record[self.returned : self.returned + limit - size]
            buffer[size : size + len(fragment)] = fragment
            size += len(fragment)
            self.returned += len(fragment)
            if self.returned == len(self.record):
                self.record, self.returned = b"", 0
                count += 1
        if not self._switches.stale_tail:
            buffer[size:] = bytes(len(buffer) - size)
        return size

    def _next_record(self) -> bytes:
        """Return the next record for this session, empty bytes if there is none yet."""
        assert self.cursor is not None
        every = self._switches.timeout_every
        if self.described:
            return self.described.popleft()
        if self.failures and self.failures[0][0] <= self.cursor:
            return self.failures.popleft()[1]
        if every and self._since_timeout >= every:
            self._since_timeout = 0
            return self._timeout()
        try:
            while (logged := self._server.record_at(self.cursor)) is not None:
                self.cursor += 1
                record = self._encoded(logged)
                if record:
                    self._last_sequence = logged[0]
                    self._since_timeout += 1
                    return record
        except IndexError:  # the log file was dropped before the session read it
            return records.control(records.ERROR, records.SESSION_DEAD, ERROR_NUMBERS["LSN"])
        return b""

    def _timeout(self) -> bytes:
        return records.control(records.TIMEOUT, self._last_sequence)

    def _encoded(self, logged: _LogRecord) -> bytes:
        sequence, number, tx, table, row, numbers = logged
        if table is not None:
            if table not in self.captures:
                return b""
            label, _, write = self.captures[table]
            if row is None:
                return records.control(number, sequence, tx, label)
            sizes, data = write(row)
            return records.row(number, sequence, tx, label, sizes, data, self._switches.size_order)
        # The sequence in a DISCARD is the one from which it discards, not that of the record.
        if number == records.DISCARD:
            return records.control(number, *numbers, tx)
        return records.control(number, sequence, tx, *numbers)

    def _with_header(self, record: bytes) -> bytes:
        extra = self._switches.extra_header
        return records.with_extra_header(record, extra) if record and extra else record


# --- as a DB-API connection -----------------------------------------------------------------------

# The calls that a statement makes. ``cdc_read`` is not a statement: the transport reads a session.
_CALL: Final = re.compile(r"EXECUTE FUNCTION (cdc_(?!read\()[a-z_]+)\(([?, ]*)\)")


class EmulatorConnection:
    """A connection to ``syscdcv1`` of the emulated server. The records of the sessions that were
    opened on this connection are also read from it.
    """

    def __init__(self, server: CdcServer) -> None:
        self._server = server
        self._buffer = bytearray()

    def cursor(self) -> EmulatorCursor:
        """Return a new cursor."""
        return EmulatorCursor(self._server)

    def read(self, session: int, size: int) -> bytes | int:
        """Return at most ``size`` bytes of a session, or a negative error."""
        if len(self._buffer) != size:
            self._buffer = bytearray(size)
        answer = self._server.cdc_read(session, self._buffer)
        return bytes(self._buffer[:answer]) if answer > 0 else answer


class EmulatorCursor:
    """A cursor that supports only the calls of the CDC interface."""

    def __init__(self, server: CdcServer) -> None:
        self._server = server
        self._answer: int | None = None

    def execute(self, operation: str, parameters: Sequence[Any] = (), /) -> None:
        """Run a call. Raises DatabaseError for a statement that is not a call."""
        match = _CALL.fullmatch(operation)
        if (
            match is None
            or not hasattr(self._server, match[1])
            or match[2].count("?") != len(parameters)
        ):
            raise DatabaseError(
                f"the emulator supports only calls of the CDC interface, not {operation!r}"
            )
        self._answer = getattr(self._server, match[1])(*parameters)

    def fetchone(self) -> tuple[int] | None:
        """Return the result of the last call as a row, None before the first call."""
        return None if self._answer is None else (self._answer,)

    def close(self) -> None:
        """Close the cursor, which has no resources."""
