"""An emulated server: tables, transactions, a log, and the calls of the CDC interface (spec/gbase-cdc.md 6).

For tests, and for users without a server. It runs in this process; only ``cdc_read`` under a negative timeout waits.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final

from eventlog.errors import ConfigError, DatabaseError
from eventlog.gbase import records
from eventlog.gbase.emulator.session import ServerLog, Session, Switches
from eventlog.gbase.layout import Column, UnknownType, parse_type, split_columns, stream_order
from eventlog.gbase.options import parse_table_name
from eventlog.gbase.session import ERROR_NUMBERS, LOGGING_IN_USE
from eventlog.model import ChangeOp, Row

_FIRST_TIME: Final = 1742727439

Done = tuple[ChangeOp, str, Row | None, Row | None]
"""A piece of work that a transaction did: operation, table, row before and after."""


class _Refused(Exception):  # no error of ours: the answer of a call
    """A call is answered with the error of this name."""


def _answering(call: Callable[..., int | None]) -> Callable[..., int]:
    """A call of the interface, which answers 0 or its number, or an error if it refuses or an argument is NULL."""

    @wraps(call)
    def answering(*arguments: Any) -> int:
        try:
            return ERROR_NUMBERS["ARGNULL"] if None in arguments else call(*arguments) or 0
        except _Refused as refused:
            return ERROR_NUMBERS[str(refused)]

    return answering


@dataclass(slots=True)
class Work:
    """A transaction. Tables by their full name ``db:owner.table``; rows hold all columns.

    ``done`` is what it has done and not undone.
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
        """Update a row; equal rows are written too."""
        self._did(ChangeOp.UPDATE, table, before, after, records.UPDBEF, records.UPDAFT)

    def move(self, table: str, before: Row, after: Row) -> None:
        """Update a row so that it moves to another fragment: UPDBEF and INSERT (APAR IT07378)."""
        self._did(ChangeOp.UPDATE, table, before, after, records.UPDBEF, records.INSERT)

    def delete(self, table: str, row: Row) -> None:
        """Delete a row."""
        self._did(ChangeOp.DELETE, table, row, None, records.DELETE)

    def truncate(self, table: str) -> None:
        """Truncate a table."""
        self._did(ChangeOp.TRUNCATE, table, None, None, records.TRUNCATE)

    def savepoint(self) -> int:
        """A savepoint: the sequence from which ``rollback_to`` undoes."""
        return self.server.next_sequence

    def rollback_to(self, savepoint: int) -> None:
        """Undo what was done since the savepoint: a DISCARD."""
        self.done = [(sequence, done) for sequence, done in self.done if sequence < savepoint]
        self.server.log(records.DISCARD, self.tx, numbers=(savepoint,))

    def commit(self) -> None:
        """Commit."""
        self.server.end(self, records.COMMTX)

    def rollback(self) -> None:
        """Roll back."""
        self.server.end(self, records.RBTX)

    def _did(self, op: ChangeOp, table: str, before: Row | None, after: Row | None, *numbers: int) -> None:
        sequence = self.server.next_sequence
        for number in numbers:
            self.server.log(number, self.tx, table, before if number in (records.UPDBEF, records.DELETE) else after)
        self.done.append((sequence, (op, table, before, after)))


class CdcServer:
    """The server: make tables, work in transactions, read through the calls of the CDC interface.

    ``tables``: the columns of each, name -> type as spelled; ``full_row_logging``: those that have it on. ``on_commit``
    is called with each transaction at its COMMTX, in log order.
    """

    def __init__(self, switches: Switches | None = None, on_commit: Callable[[Work, int], None] | None = None) -> None:
        self.switches = switches or Switches()
        self.tables: dict[str, dict[str, str]] = {}
        self.full_row_logging: set[str] = set()
        self._views: set[str] = set()
        self._on_commit = on_commit
        self._log = ServerLog(self.switches)
        self._time = _FIRST_TIME
        self._busy: set[int] = set()
        self._sessions: dict[int, Session] = {}
        self._last_session = 0
        self._changed = threading.Condition()

    # --- working

    def create_table(self, name: str, columns: str, kind: str = "table") -> str:
        """A table ``db:owner.table`` with columns as TABSCHEM spells them; other types cannot be captured.

        ``kind``: table, or view or temporary, which cannot be captured either.
        """
        if not _database_of(name):
            raise ConfigError(f"table {name!r} lacks its database; give it as db:owner.table")
        self.tables[name] = dict(split_columns(columns))
        if kind != "table":
            self._views.add(name)
        return name

    def begin(self, os_user: int = 0) -> Work:
        """A transaction; ids are used again once they are free."""
        tx = 1
        while tx in self._busy:
            tx += 1
        self._busy.add(tx)
        self._time += 1
        return Work(self, tx, self.log(records.BEGINTX, tx, numbers=(self._time, os_user)), os_user)

    @property
    def next_sequence(self) -> int:
        """The sequence of the next record."""
        return self._log.next_sequence

    @property
    def oldest_sequence(self) -> int:
        """The lowest sequence that can be activated at."""
        return self._log.oldest_sequence

    def log(
        self, number: int, tx: int, table: str | None = None, row: Row | None = None, numbers: tuple[int, ...] = ()
    ) -> int:
        """Write a log record; gives its sequence."""
        with self._changed:
            sequence = self._log.append(number, tx, table, row, numbers)
            self._changed.notify_all()
        return sequence

    def end(self, work: Work, number: int) -> None:
        """End a transaction by COMMTX or RBTX."""
        self._time += 1
        sequence = self.log(number, work.tx, numbers=(self._time,) if number == records.COMMTX else ())
        self._busy.discard(work.tx)
        if number == records.COMMTX and self._on_commit is not None:
            self._on_commit(work, sequence)

    def fail(self, error: str, dead: bool = True) -> None:
        """An ERROR record with the code of this name in every active session, behind all that was done so far."""
        with self._changed:
            for session in self._sessions.values():
                if session.cursor is not None:
                    session.fail(ERROR_NUMBERS[error], dead)
            self._changed.notify_all()

    # --- the calls (spec/gbase-cdc.md 1)

    @_answering
    def cdc_opensess(self, server: str, session: int, timeout: int, max_recs: int, major: int, minor: int) -> int:
        """A session id, or a negative error. ``timeout`` in seconds, of which only the sign counts here."""
        if major != 1 or minor not in (0, 1):
            raise _Refused("APIVERS")
        self._last_session += 1
        self._sessions[self._last_session] = Session(self._log, self.switches, timeout, max_recs)
        return self._last_session

    @_answering
    def cdc_set_fullrowlogging(self, table: str, on: int) -> int:
        """0 or an error; -19816 for switching it off while the table is captured."""
        self._find(table)
        if table in self._views:
            raise _Refused("TABPROPERTIES")
        if not on and any(table in session.captures for session in self._sessions.values()):
            return LOGGING_IN_USE
        (self.full_row_logging.add if on else self.full_row_logging.discard)(table)
        return 0

    @_answering
    def cdc_startcapture(self, session: int, zero: int, table: str, columns: str, label: int) -> None:
        """0 or an error."""
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
        except UnknownType:
            raise _Refused("TABPROPERTIES") from None
        opened.start(table, label, captured)

    @_answering
    def cdc_activatesess(self, session: int, position: int) -> None:
        """0 or an error. ``position`` 0 is now."""
        opened = self._opened(session)
        if opened.cursor is not None:
            raise _Refused("NOREOPEN")
        if position and not self.oldest_sequence <= position <= self.next_sequence:
            raise _Refused("LSN")
        opened.activate(self._log.place_of(position or self.next_sequence))

    @_answering
    def cdc_read(self, session: int, buffer: bytearray) -> int:
        """Fill the buffer: the number of bytes that are valid, or an error."""
        with self._changed:
            opened = self._opened(session)
            if opened.cursor is None:
                raise _Refused("NOSESS")
            while opened.timeout < 0 and not opened.has_data():
                self._changed.wait()
                self._opened(session)
            return opened.read(buffer)

    def has_data(self, session: int) -> bool:
        """Whether a read would return more than a TIMEOUT. No call of the interface: for those who drive both ends."""
        return self._sessions[session].has_data()

    @_answering
    def cdc_recboundary(self, session: int) -> None:
        """0 or an error: the next read begins with the start of the record that was being returned."""
        self._opened(session).to_boundary()

    @_answering
    def cdc_deactivatesess(self, session: int) -> None:
        """0 or an error."""
        self._opened(session).deactivate()

    @_answering
    def cdc_endcapture(self, session: int, zero: int, table: str) -> None:
        """0 or an error."""
        if self._opened(session).captures.pop(table, None) is None:
            raise _Refused("TABNOTCAPTURED")

    @_answering
    def cdc_closesess(self, session: int) -> None:
        """0 or an error."""
        with self._changed:
            self._opened(session)
            del self._sessions[session]
            self._changed.notify_all()

    def _opened(self, session: int) -> Session:
        if session not in self._sessions:
            raise _Refused("NOSESS")
        return self._sessions[session]

    def _find(self, name: str) -> dict[str, str]:
        if name in self.tables:
            return self.tables[name]
        raise _Refused("NOTAB" if _database_of(name) in map(_database_of, self.tables) else "NODB")


def _database_of(table: str) -> str:
    return parse_table_name(table)[0]


# --- as a DB-API connection -------------------------------------------------------------------------------------------

# Those that a statement calls; a session is read otherwise.
_CALL: Final = re.compile(r"EXECUTE FUNCTION (cdc_(?!read\()[a-z_]+)\(([?, ]*)\)")


class EmulatorConnection:
    """A connection to ``syscdcv1`` of the emulated server, and the transport that reads its sessions."""

    def __init__(self, server: CdcServer) -> None:
        self._server = server
        self._buffer = bytearray()

    def cursor(self) -> EmulatorCursor:
        """A new cursor."""
        return EmulatorCursor(self._server)

    def read(self, session: int, size: int) -> bytes | int:
        """At most ``size`` bytes of a session, or a negative error."""
        if len(self._buffer) != size:
            self._buffer = bytearray(size)
        answer = self._server.cdc_read(session, self._buffer)
        return bytes(self._buffer[:answer]) if answer > 0 else answer


class EmulatorCursor:
    """A cursor that knows the calls of the CDC interface and no other statement."""

    def __init__(self, server: CdcServer) -> None:
        self._server = server
        self._answer: int | None = None

    def execute(self, operation: str, parameters: Sequence[Any] = (), /) -> None:
        """Run a call. Raises DatabaseError for any other statement."""
        match = _CALL.fullmatch(operation)
        if match is None or not hasattr(self._server, match[1]) or match[2].count("?") != len(parameters):
            raise DatabaseError(f"the emulator knows calls of the CDC interface only, not {operation!r}")
        self._answer = getattr(self._server, match[1])(*parameters)

    def fetchone(self) -> tuple[int] | None:
        """The answer of the call."""
        return None if self._answer is None else (self._answer,)

    def close(self) -> None:
        """Give it back."""
