# ruff: noqa: B027 - what most databases leave empty
"""A log as one session sees it: ``OpenLog``, which each database implements.

Reading the log is a hot path: the driver's plain tuples become LogRow without a Python frame
(``log_row``), a window is one statement, and the garbage collector is off while a window's tuples
are created.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.core.catalog import ObjectClass
from eventlog.core.ranges import Ranges
from eventlog.errors import LogTableError
from eventlog.model import LogRow, log_row
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import LockHolder
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import for_message
from eventlog.sql.port.log_operations import (
    DuePlace,
    NotDue,
    Queue,
    ResyncBatch,
    Selection,
    TimedRow,
    Walk,
    WalkedKeys,
    Window,
)
from eventlog.sql.port.log_parts import LogPart, part_size, parts_of
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.rights import (
    Addition,
    NeededRights,
    Part,
    Purpose,
    Right,
    Rights,
    demanded,
    grants_advice,
    name_of,
)
from eventlog.sql.port.sql_files import (
    FIRST,
    NEUTRAL,
    OF_LOG,
    OF_LOG_ALONE,
    Binds,
    PlainRows,
    RowChunks,
    run_many,
    without_collector,
)

_LATER: Final = frozenset({Part.CONSUMER, Part.CAPTURED, Part.RESYNC, Part.VERSION})
"""The internal tables that an older log may lack: check for them before use."""
_FRAGMENT: Final = 10_000
"""The number of rows in a chunk of a window."""


@dataclass(frozen=True, slots=True)
class OpenLog(ABC):
    """A log in a session: its database and its table. ``OpenDatabase.log`` creates it.

    The methods run their statements on the session of the database, in its transaction.
    """

    db: OpenDatabase
    table: LogTable

    def __str__(self) -> str:
        return str(self.table)

    @property
    def connection(self) -> Connection:
        """The connection of the session."""
        return self.db.connection

    @property
    def dialect(self) -> Dialect:
        """The dialect of the database."""
        return self.db.dialect

    def on(self, connection: Connection) -> OpenLog:
        """Return the same log as another session sees it."""
        return self.db.on(connection).log(self.table)

    def commit(self) -> None:
        """Commit the transaction of the session."""
        self.connection.commit()

    # One publisher for each log (spec/event-log.md 12)

    @abstractmethod
    def try_lock(self) -> bool:
        """Lock the log for this session. Return True if the session now holds the lock. The lock
        ends with the session, not with the transaction.
        """

    def claim(self) -> bool:
        """Return True if the lock that this session has taken excludes all other sessions.

        If the locks of a database are files outside of it, this method also checks for a lock in
        another place, and records the place of this lock in the row of the epoch.
        """
        return True

    def is_locked(self) -> bool:
        """Return True if any session has locked the log.

        If the database does not show locks, the method takes the lock for a moment to find out.
        """
        if self.holds_lock() or not self.try_lock():
            return True
        self.unlock()
        return False

    def lock_holder(self) -> LockHolder | None:
        """Return the session that has locked the log. Return None if no session has locked it, or
        if the database does not show the session, for whatever reason: the answer is used only in
        the text of messages.
        """
        return for_message(self.connection, self.read_lock_holder)

    def read_lock_holder(self, consumer: str = "") -> LockHolder | None:
        """Return the answer of ``lock_holder``, or of ``consumer_holder`` for a consumer, if the
        database shows locks.
        """
        return None

    @abstractmethod
    def holds_lock(self) -> bool:
        """Return True if this session has locked the log."""

    @abstractmethod
    def unlock(self) -> None:
        """Release the log if this session has locked it."""

    # Consumers of a log (spec/event-log.md 13.4)

    def try_consumer_lock(self, consumer: str) -> bool:
        """Lock a consumer for this session. Return True if the session now holds the lock.

        The lock ends with the session.
        """
        return False

    def is_consumer_locked(self, consumer: str) -> bool:
        """Return True if any session has locked the consumer."""
        return False

    def consumer_holder(self, consumer: str) -> LockHolder | None:
        """Return the session that has locked a consumer, as ``lock_holder`` does."""
        return for_message(self.connection, partial(self.read_lock_holder, consumer))

    def lock_registering(self) -> None:
        """Lock out transactions that remove rows of the log: wait for open transactions, and block
        new ones until this transaction ends.
        """

    def lock_removing(self) -> None:
        """Lock out transactions that register a consumer: wait for an open one, and block new ones
        until this transaction ends.
        """

    def lock_requeuing(self) -> None:
        """Wait for the transactions in which a publisher records a delivery, and block new ones
        until this transaction ends. In a database with one writer at a time, no lock is needed.
        """

    def lock_recording(self) -> None:
        """Wait for the transactions that set rows back to N (``lock_requeuing``), and block new
        ones until this transaction ends.
        """

    # Rights

    @abstractmethod
    def lacking(self, needed: NeededRights) -> list[str]:
        """Return, in words, which of these rights on parts of the log this session lacks."""

    def grants(self, rights: Rights, user: str) -> list[str]:
        """Return the statements that grant rights on the parts of a log to a user. ``user`` is
        quoted. ``Part.CLASSES`` and ``Part.TABLES`` are left out.
        """
        return [
            f"GRANT {self.dialect.granted(self.table, part, wanted)} ON {name} TO {user}"
            for part, wanted in rights.items()
            for name in self._granted_on(part)
            if wanted - {Right.LOCK}
        ]

    def _granted_on(self, part: Part) -> Sequence[str]:
        """Return the names of a part of a log in a GRANT; empty if there is nothing to grant."""
        if part in (Part.CLASSES, Part.TABLES, Part.RECORD_IDS, Part.WRITERS) or (
            part is Part.DEFERRED and not self.may_have(self.table.deferred_table)
        ):
            return ()
        return (self.dialect.qualified(self.table.schema, name_of(self.table, part)),)

    # Numbers and identity

    def is_half_made(self) -> bool:
        """Return True if a table with the log's name is eventlog's own and was left by an
        interrupted migration.
        """
        return False

    @abstractmethod
    def next_number(self) -> int:
        """Draw a delivery number, which was never used before, and return it."""

    def draw_numbers(self, number: int) -> int:
        """Draw ``number`` delivery numbers, at least 1, and return the last."""
        for _ in range(number - 1):
            self.next_number()
        return self.next_number()

    def server_parts(self) -> Mapping[str, str]:
        """Return the facts about the server, by name, that change when the log's newest rows may
        have been lost: timeline and identity.

        A fact that the server does not show, or that this session may not read, is left out.
        """
        return {}

    @abstractmethod
    def identity(self) -> str:
        """Return a text that identifies the log, as far as the database can distinguish logs.

        A log that is dropped and created again gets another text.
        """

    # Several steps in one statement, where the database allows it

    def statement(self, name: str, **words: str) -> str:
        """Return a statement of ``log_sql`` for this log, as ``Dialect.log_statement`` does."""
        return self.dialect.log_statement(self.table, name, **words)

    def has_statement(self, name: str) -> bool:
        """Return True if the dialect has this statement of ``log_sql``. It replaces several
        statements.
        """
        return name in self.dialect.log_sql

    def run_statement(
        self,
        name: str,
        parameters: Binds,
        *,
        alone: bool,
        first: str | None = None,
        **words: str,
    ) -> int | None:
        """Run a statement of ``log_sql`` with these parameters. Return the number in its only row,
        None if there is no row. For a statement without a result, return the number of rows that it
        changed.

        ``alone`` is true if nothing else belongs to its transaction. ``first`` is the name of a
        statement with the same parameters that runs before it: the database snapshot of the
        statement is taken when the first statement has ended.
        """
        options = dict(OF_LOG_ALONE if alone else OF_LOG)
        if first is not None:
            options[FIRST] = self.statement(first)
        ran = self.connection.exec_driver_sql(
            self.statement(name, **words),
            dict(parameters),
            execution_options=options,
        )
        if not ran.returns_rows:
            return ran.rowcount
        number = ran.scalar()
        return None if number is None else int(number)

    def poll(
        self, window: Window, fields: Sequence[str], consumer: str
    ) -> Iterator[PlainRows] | None:
        """Return the rows of a window as ``read_fields`` does, and check in the same statement
        whether the publisher, or the named consumer, has been requested to send rows again.

        Returns None if there is a request, or if the dialect has no such statement.
        """
        return None

    # The rows (spec/event-log.md 8.1, 8.4)

    def read_window(self, window: Window) -> list[LogRow]:
        """Return the rows of status N in a window, in record_id order (spec/event-log.md 8.1)."""
        statement = self.dialect.window_statement(self.table, window, LogRow._fields)
        return self.log_rows(statement, self.dialect.window_parameters(window))

    def read_fields(self, window: Window, fields: Sequence[str]) -> Iterator[PlainRows]:
        """Yield these fields of the rows of a window, as ``window_chunks`` does, in lists of the
        dialect's own size.
        """
        return self.window_chunks(window, fields, _FRAGMENT)

    def window_chunks(self, window: Window, fields: Sequence[str], size: int) -> RowChunks:
        """Yield these fields of the rows of a window in lists of ``size``; the last list may be
        shorter. One statement reads them, so they belong to one database snapshot. With
        ``Window.value_bytes`` each row has one more field: the number of bytes of the values that
        were left out, None if the row has its values. A reader that stops before the end has to
        close the iterator.
        """
        statement = self.dialect.window_statement(self.table, window, fields)
        return self._chunks(statement, self.dialect.window_parameters(window), size)

    def due_chunks(
        self,
        until: str,
        after: DuePlace | None,
        skipped_user: str | None,
        fields: Sequence[str],
        size: int,
        value_bytes: int | None = None,
    ) -> RowChunks:
        """Yield these fields of the rows of status N with an event_time up to ``until``, ordered by
        that time (NULL first) and record_id.

        ``until`` is a time as text, by the clock of event_time. The lists are as in
        ``window_chunks``. ``after`` None = from the first row on; ``skipped_user`` and
        ``value_bytes`` are as in ``Window``.
        """
        after_time, after_id = after or (None, 0)
        parameters: dict[str, object] = {
            "until": until,
            "after_time": None if after_time is None else self.dialect.due_time(after_time),
            "after_id": after_id,
            "limit": self.dialect.last_record_id,
            "perpetrator": None if skipped_user is None else skipped_user.rstrip(" "),
        }
        bounded = self.dialect.bounded_fields(self.table, fields, value_bytes)
        statement = self.statement("read_due", fields=bounded)
        return self._chunks(statement, parameters, size)

    def due_ids(self, until: str, first: int, last: int) -> list[int]:
        """Return the record_ids from ``first`` to ``last`` of rows that are due at ``until``, with
        any status, in the order of ``due_chunks``.
        """
        rows = self._timed("due_ids", until, first, last)
        return [int(record_id) for (record_id,) in rows]

    def next_row(self, until: str, first: int, last: int) -> TimedRow | None:
        """Return the first row between two record_ids, of any status, and whether its event_time
        is known and not after ``until``; None if there is no row.
        """
        rows = self._timed("next_row", until, first, last)
        return next((TimedRow(int(row), bool(is_before)) for row, is_before in rows), None)

    def _timed(self, name: str, until: str, first: int, last: int) -> PlainRows:
        parameters = {"until": until, "first": first, "last": last}
        return self.db.fetch(self.statement(name), parameters, OF_LOG_ALONE)

    def add_transaction_ids(self) -> None:
        """Let the database record the transaction of each row that is written from now on, in a
        column that the log does not have yet (spec/event-log.md 1.5). Commits.

        Raises LogInUse if another session uses the log; ConfigError if the database cannot record
        transactions.
        """
        for statement in self.dialect.transaction_id_statements(self.table):
            self.db.run(statement)
        self.commit()

    def next_not_before(self, until: str, first: int, last: int) -> int | None:
        """Return the first record_id from ``first`` to ``last`` whose row (of any status) has an
        event_time after ``until``, or an event_time that is not known. Return None if there is no
        such row.
        """
        rows = self._timed("next_not_before", until, first, last)
        return next((int(record_id) for (record_id,) in rows), None)

    def not_due(self, until: str, limit: int) -> NotDue:
        """Return the rows that are not due at ``until``, among the first ``limit`` rows of status
        N.
        """
        parameters = {"until": until, "limit": limit}
        ((rows, next_time, seconds, rows_checked),) = self.db.fetch(
            self.statement("not_due"), parameters
        )
        seconds = None if seconds is None else float(seconds)
        return NotDue(int(rows), next_time, seconds, int(rows_checked))

    def due_until(self, event_time_zone: str = "utc") -> str:
        """Return the present time of the database's clock in the form of event_time: rows up to
        this time are due (spec/event-log.md 8.1).
        """
        ((now,),) = self.db.fetch(
            self.statement("due_until", event_time_zone=event_time_zone), {}, NEUTRAL
        )
        return str(now)

    def queue(self, event_time_zone: str = "utc") -> Queue:
        """Return the number of rows of status N, and the age of the oldest one by the database's
        clock (spec/event-log.md 11).

        The method counts all these rows; ``sql.log.rows.count_queue`` stops at a maximum number.
        """
        ((rows, oldest),) = self.db.fetch(
            self.statement("queue", event_time_zone=event_time_zone), {}
        )
        return Queue(int(rows), None if oldest is None else float(oldest))

    def read_rows(self, ranges: Ranges) -> list[LogRow]:
        """Return the rows of these record_ids, of any status, in record_id order."""
        statement = self.statement("read_rows")
        rows = [self.log_rows(statement, {"first": first, "last": last}) for first, last in ranges]
        return sorted(chain.from_iterable(rows), key=itemgetter(0))

    def read_newest(self, before: int | None, most: int, fields: Sequence[str]) -> PlainRows:
        """Return these fields of the newest ``most`` rows before a record_id, the newest first.

        ``before`` None = the newest rows of the log.
        """
        statement = self.statement(
            "newest_rows", fields=self.dialect.log_fields(self.table, fields)
        )
        if before is None:
            before = self.dialect.last_record_id
        self.db.choose_plans()
        return self.db.fetch(statement, {"before": before, "limit": most}, OF_LOG_ALONE)

    def refused_ids(self, before: int | None, most: int, consumer: str = "") -> list[int]:
        """Return the ``most`` newest record_ids below ``before`` that have error rows, the newest
        first. The publisher's error rows are searched, or the error rows of a ``consumer`` since
        its registration. ``before`` None = no upper bound.
        """
        last = self.dialect.last_record_id if before is None else before
        binds: dict[str, object] = {"before": last, "limit": most}
        if consumer:
            binds["consumer"] = consumer
        statement = self.statement("refused_ids_of" if consumer else "refused_ids")
        return [int(row) for (row,) in self.db.fetch(statement, binds)]

    def read_columns(self, ranges: Ranges, fields: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return these fields of the rows of these record_ids, in record_id order; the first field
        is record_id.

        Values may be large, so only these fields are read.
        """
        statement = self.statement("read_rows", fields=self.dialect.log_fields(self.table, fields))
        self.db.choose_plans()
        rows = [
            self.db.fetch(statement, {"first": first, "last": last}, OF_LOG_ALONE)
            for first, last in ranges
        ]
        return sorted(chain.from_iterable(rows), key=itemgetter(0))

    def mark(self, status: str, ranges: Ranges) -> int:
        """Set the status of the rows of these record_ids that still have status N, and return their
        number.
        """
        return self.change_rows(self.statement("mark"), ranges, status=status)

    def delete(self, ranges: Ranges) -> int:
        """Delete the rows of these record_ids that still have status N, and return their number."""
        return self.change_rows(self.statement("delete"), ranges)

    def end_delivery(
        self, status: str | None, ranges: Ranges, ended: int, *, durable: bool, alone: bool
    ) -> int:
        """Set the status of the rows of these record_ids that still have status N (None = delete
        them), delete the entry of the delivery ``ended``, and return the number of changed rows.
        Only for a log that has the statement ``mark_ending``.

        Unless ``durable`` the commit of the transaction does not wait for the disk. ``alone`` is as
        for ``run_statement``.
        """
        raise NotImplementedError

    def change_rows(self, statement: str, ranges: Ranges, **values: object) -> int:
        """Run a statement for the rows of these record_ids, ``:first`` to ``:last``, and return the
        number of changed rows.
        """
        return run_many(
            self.connection,
            statement,
            [{"first": first, "last": last, **values} for first, last in ranges],
        )

    def log_rows(self, statement: str, parameters: Binds) -> list[LogRow]:
        """Return the rows of a statement that selects ``{fields}``."""
        self.db.choose_plans()
        with without_collector():
            return list(map(log_row, self.db.fetch(statement, parameters, OF_LOG_ALONE)))

    def _chunks(self, statement: str, parameters: Binds, size: int) -> RowChunks:
        self.db.choose_plans()
        with closing(self.db.fetch_chunks(statement, parameters, size)) as chunks:
            yield from chunks

    def open_writers(self) -> frozenset[str] | None:
        """Return the names of other sessions' open transactions that have written to the log; None
        = the database does not show them.
        """
        return None

    def hidden_writers(self) -> str | None:
        """Return why this session cannot see which open transactions have written to the log, and
        what to do about it; None if it can see them. For databases with the capability
        ``consumers``. Raises ServerUnavailable if the session may see these transactions a little
        later.
        """
        return None

    def next_record_id(self) -> int | None:
        """Return the record_id that the next row of the log gets, without drawing it; None if the
        database does not show it to this role.
        """
        return None

    # Objects written into the log by a resync (spec/event-log.md 11, ``eventlog.sql.resync``)

    def start_walk(
        self,
        schema: str | None,
        cls: ObjectClass,
        selection: Selection,
    ) -> Walk:
        """Return the walk that the other methods take as argument. The caller commits, and
        continues in the same session.
        """
        return Walk(self.table, schema, cls, selection)

    @abstractmethod
    def write_batch(self, walk: Walk, reached: str | None, limit: int) -> ResyncBatch:
        """Log the next ``limit`` objects after ``reached`` (canonical table_key text, None = from
        the beginning).
        """

    @abstractmethod
    def keys_after(self, walk: Walk, reached: str | None, limit: int) -> list[str]:
        """Return the canonical keys of the next ``limit`` objects after ``reached``, in the order
        of the walk, without keys that cannot be read.
        """

    def walked_keys(self, walk: Walk, reached: str | None, limit: int) -> WalkedKeys:
        """Return the keys of ``keys_after``, and the keys between them that cannot be read."""
        return WalkedKeys(self.keys_after(walk, reached, limit))

    def estimate(self, walk: Walk, reached: str | None) -> int:
        """Estimate the number of objects after ``reached``.

        This also shows whether the operator's predicate is valid SQL.
        """
        return self.count(walk, reached)

    def count(self, walk: Walk, reached: str | None) -> int:
        """Return the number of objects after ``reached``."""
        condition = self.dialect.walk_condition(walk, continues=reached is not None)
        statement = f"SELECT COUNT(*) FROM {self.dialect.walk_rows(walk)} WHERE {condition}"  # noqa: S608 - the operator's own
        ((rows,),) = self.db.fetch(statement, self.dialect.reached_binds(walk.cls, reached))
        return int(rows)

    def write_keys(self, selection: Selection, keys: Sequence[str]) -> None:
        """Log the objects with these canonical keys, in their order.

        The rows have no perpetrator, so they are never loopback (spec/event-log.md 8.3).
        """
        row = {"event_type": int(selection.event_type), "class_name": selection.class_name}
        run_many(
            self.connection,
            self.statement("write_key"),
            [{**row, "table_key": key} for key in keys],
        )

    # The log read by many sessions that see the same rows (spec/event-log.md 12)

    def log_parts(
        self,
        status: str | None,
        first: int,
        last: int,
        rows: int,
        multiple: int,
    ) -> list[LogPart]:
        """Return ranges of record_ids in ascending order. The ranges have about equal numbers of
        rows of a status, at most ``rows`` rows each.

        ``status`` None = any. The number of parts is a multiple of ``multiple``, so that parallel
        tasks end at about the same time, unless the parts would be too small. The ranges cover all
        record_ids from ``first`` (at least 1) to the present last row.
        """
        bounds = {"first": max(first, 1), "last": min(last, self.dialect.last_record_id)}
        has_status = self.dialect.bindable(self.dialect.has_status(self.table, status))
        if not self.dialect.shares_snapshots:
            runs = self.db.fetch(
                self.statement("runs_of_part", has_status=has_status),
                bounds,
            )
            return parts_of(
                [(int(start), int(end)) for start, end in runs], bounds["first"], rows, multiple
            )
        count = self.statement("count_part", has_status=has_status)
        ((counted, greatest),) = self.db.fetch(count, bounds)
        if not counted:
            return []
        total = int(counted)
        size = part_size(total, rows, multiple)
        cuts = self.statement("cut_part", has_status=has_status)
        firsts = [
            int(record_id) for (record_id,) in self.db.fetch(cuts, {**bounds, "part_size": size})
        ]
        firsts[0] = bounds["first"]
        lasts = [*(after - 1 for after in firsts[1:]), int(greatest)]
        sizes = [size] * (len(firsts) - 1) + [total - size * (len(firsts) - 1)]
        return list(map(LogPart, firsts, lasts, sizes))

    def may_have(self, table: str) -> bool:
        """Return False if the log has no internal table of this name. Return True for a table that
        this session cannot see, since it may exist.
        """
        return self.db.has_table(self.table.schema, table) is not False

    def missing_rights(self, purpose: Purpose, *additions: Addition) -> list[str]:
        """Return, in words, the rights that this session lacks for a purpose. Tables that an older
        log lacks need no rights.
        """
        return self.lacking(self._present(demanded(purpose, *additions)))

    def _present(self, needed: NeededRights) -> Iterator[tuple[Part, Right]]:
        wanted = list(needed)
        later = {part: name_of(self.table, part) for part, _ in wanted if part in _LATER}
        missing = self.db.missing_tables(self.table.schema, list(later.values())) if later else ()
        yield from (one for one in wanted if later.get(one[0]) not in missing)

    def check_rights(self, purpose: Purpose, *additions: Addition) -> None:
        """Raise LogTableError, which names the missing rights, if this session lacks rights for a
        purpose.
        """
        self._refuse_without(demanded(purpose, *additions), purpose)

    def check_rights_to_read(self, needed: Purpose, purpose: Purpose) -> None:
        """Raise LogTableError if this session lacks SELECT rights that a publisher or consumer
        needs; the error names these rights. ``needed`` is the purpose of the publisher or consumer.
        The advice names the session's own ``purpose``.
        """
        reading = [one for one in demanded(needed) if one[1] is Right.SELECT]
        self._refuse_without(reading, purpose)

    def _refuse_without(self, needed: NeededRights, purpose: Purpose) -> None:
        if missing := self.lacking(self._present(needed)):
            raise LogTableError(self._lacks(missing, purpose))

    def what_lacks(self, purpose: Purpose, *additions: Addition) -> str:
        """Return the sentence about the rights that this session lacks for a purpose, empty if the
        session has all rights.
        """
        missing = self.missing_rights(purpose, *additions)
        return self._lacks(missing, purpose) if missing else ""

    def _lacks(self, missing: Sequence[str], purpose: Purpose) -> str:
        user = self.db.current_user()
        return (
            f"user {user} lacks rights on the log {self}: {'; '.join(missing)}; "
            f"{grants_advice(user, purpose)}"
        )
