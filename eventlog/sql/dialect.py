"""The operations of a log on its database: ``Dialect``, of which each database has a subclass.

Each database is a package with the modules that ``eventlog.sql.dialects`` lists: the dialect and
its log, sessions, SQL text, the application's objects, triggers. The core asks the dialect and
never compares its name.

Reading the log is a hot path: rows come as the driver's plain tuples and become LogRow without a
Python frame (``log_row``), a window is one statement, and the garbage collector is off while a
window's tuples are made. In return values are bound by the driver's own parameters, and the text of
each statement is composed here from quoted names.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import URL, Connection

from eventlog.core import table_key
from eventlog.core.catalog import Attribute, ChildTable, Column, ObjectClass
from eventlog.core.ranges import Ranges, length
from eventlog.core.values import ColumnType
from eventlog.errors import BadValue, ConfigError
from eventlog.model import LogRow, is_status, log_row
from eventlog.sql.database import SqlDatabase, Wake
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import run_many, statements, without_collector
from eventlog.sql.windows import Batch, DuePlace, NotDue, Queue, Selection, Walk, Window

if TYPE_CHECKING:
    import pyarrow as pa

    from eventlog.sql.doctor import Answer, AnswerFunction
    from eventlog.sql.triggers import Triggers

CurrentRow = dict[str, list[str | None]]
"""The current values by attribute name as log text (spec/triggers.md 6): one for a single-valued
column, else one for each row.
"""

RowChunks = Generator[list[tuple[Any, ...]], None, None]

_PIECE: Final = 10_000
"""The number of rows of a piece of a window."""
_WORTH_IT: Final = 10_000
"""The number of rows below which dividing a part of the log costs more than it saves."""


class Part(NamedTuple):
    """A range of record_ids, both ends included, and the approximate number of its rows of the
    wanted status.

    ``ids`` are the record_ids of its rows, if sessions cannot share a snapshot; then ``rows`` is
    exact. None: all rows that a session in the snapshot sees.
    """

    first: int
    last: int
    rows: int
    ids: Ranges | None = None

    def only_own(self, pieces: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Yield the part's own rows from pieces of the rows of its range; the first field of a row
        is record_id.
        """
        if self.ids is None:
            yield from pieces
            return
        ranges = iter(self.ids)
        first, last = next(ranges, (0, 0))
        for piece in pieces:
            own = []
            for row in piece:
                while last < row[0] and first:
                    first, last = next(ranges, (0, 0))
                if first and first <= row[0]:
                    own.append(row)
            yield own


class NoSuchValue(Exception):
    """A text that no value of a key column's type has."""


def child_of(cls: ObjectClass, attribute: Attribute) -> ChildTable | None:
    """Return the child table that holds an attribute, None for a column of the class's own."""
    return next((child for child in cls.children if child.attribute is attribute), None)


class Dialect(SqlDatabase):
    """One database, as the core uses it. A database's package overrides what differs.

    A further database must provide the abstract methods, here and in ``SqlDatabase``;
    ``StepwiseDialect`` provides some of them. The other methods have an answer that suits most
    databases.
    """

    triggers: Triggers
    answers: ClassVar[Mapping[str, AnswerFunction]] = MappingProxyType({})
    """The questions of ``doctor`` that SQL alone cannot answer, and the functions that do
    (``sql.doctor``).
    """

    @property
    def doctor_sql(self) -> Mapping[str, str]:
        """The statements of ``doctor.sql`` by name."""
        return statements(f"eventlog.sql.dialects.{self.name}", "doctor.sql")

    wake: Wake | None = None
    """The means by which a writer wakes a sleeping publisher, None = the publisher polls only."""

    # The log. Its statements are in ``log_sql`` (spec/event-log.md 8.1, 8.4).

    log_sql: ClassVar[Mapping[str, str]]
    """The statements of log.sql by name, with ``{words}``: ``{log}``, ``{fields}``, the fields of
    ``LogRow`` for their columns, and the result of ``log_times``.
    """
    last_record_id: int = 2**63 - 1
    """The greatest possible record_id."""

    @abstractmethod
    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        """Return SQL of a field of ``LogRow`` as it is read: record_id and event_type as integers
        (0 for an unusable one), all others as text.
        """

    @abstractmethod
    def log_times(self, column: str, *, is_zoned: bool) -> Mapping[str, str]:
        """Return the words of ``log_sql`` about event_time: ``new_time``, the value that it is set
        to, and ``time``, it in UTC.

        ``is_due`` is the one condition for a row that is due at the bind ``until``, and
        ``due_order`` puts due rows in order, those without a time first (spec/event-log.md 8.1). If
        ``time`` is made of a text, ``after`` is a bind of ``due_chunks`` in the same form.
        ``is_zoned`` says that the column has a zone, and holds the moment itself.
        """

    def next_number(self, schema: str | None, sequence: str) -> str:
        """Return SQL of the next number of a sequence, in databases that have sequences."""
        raise NotImplementedError

    numbers_sorted_rows: bool = True
    """True if a query that sorts its rows may draw ``next_number`` for each, in that order."""

    def bindable(self, sql: str) -> str:
        """Return SQL text as it stands in a statement with parameters."""
        return sql

    def bind(self, name: str) -> str:
        """Return a bound value as the driver has it in a statement."""
        return f":{name}"

    def log_statement(
        self, log: LogTable, name: str, event_time_zone: str = "utc", **words: str
    ) -> str:
        """Return a statement of ``log_sql`` for this log. Only quoted identifiers and ``words`` are
        put into its text.

        ``event_time_zone`` is utc or local: the zone of event_time.
        """
        return self.log_sql[name].format(**{**log_words(self, log, event_time_zone), **words})

    def log_fields(self, log: LogTable, fields: Sequence[str]) -> str:
        """Return the word ``{fields}`` of ``log_sql``."""
        return ", ".join(
            self.log_field(field, self.bindable(self.quote(log.column(field))), log.type_of(field))
            for field in fields
        )

    def bounded_fields(self, log: LogTable, fields: Sequence[str], value_bytes: int | None) -> str:
        """Return the word ``{fields}`` for rows with values bounded by ``Window.value_bytes``, and
        behind it, if there is a bound, the bytes of the values that a row comes without.
        """
        if value_bytes is None:
            return self.log_fields(log, fields)
        texts = {
            field: self.log_field(
                field, self.bindable(self.quote(log.column(field))), log.type_of(field)
            )
            for field in {*fields, "old_value", "new_value"}
        }
        size = " + ".join(
            f"COALESCE({self.value_size(texts[value])}, 0)" for value in ("old_value", "new_value")
        )
        is_small = f"CASE WHEN {size} <= {int(value_bytes)} THEN"
        bounded = {value: f"{is_small} {texts[value]} END" for value in ("old_value", "new_value")}
        left_out = f"CASE WHEN {size} > {int(value_bytes)} THEN {size} END AS left_out"
        return ", ".join([*(bounded.get(field, texts[field]) for field in fields), left_out])

    def value_size(self, text: str) -> str:
        """Return SQL of the approximate number of bytes of a text."""
        return f"LENGTH({text})"

    def choose_plans(self, conn: Connection) -> None:
        """Tell the database how to plan the log's statements, before it is read or marked."""

    def read_window(self, conn: Connection, log: LogTable, window: Window) -> list[LogRow]:
        """Return the rows N of a window, in record_id order (spec/event-log.md 8.1)."""
        statement = self.window_statement(log, window, LogRow._fields)
        return self.log_rows(conn, statement, self.window_parameters(window))

    def window_parameters(self, window: Window) -> Mapping[str, object]:
        """Return the binds of a window's statement."""
        return window.parameters(self.last_record_id)

    def window_statement(self, log: LogTable, window: Window, fields: Sequence[str]) -> str:
        """Return the statement that reads these fields of the rows of a window."""
        words = {"fields": self.bounded_fields(log, fields, window.value_bytes)}
        if window.statement == "read_gaps":
            words["letters"] = self.log_statement(log, window.letters)
        return self.log_statement(log, window.statement, **words)

    def read_fields(
        self, conn: Connection, log: LogTable, window: Window, fields: Sequence[str]
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield these fields of the rows of a window, as ``window_chunks`` does, in lists of the
        dialect's own size.
        """
        return self.window_chunks(conn, log, window, fields, _PIECE)

    def window_chunks(
        self, conn: Connection, log: LogTable, window: Window, fields: Sequence[str], size: int
    ) -> RowChunks:
        """Yield these fields of the rows of a window by one statement, hence of one snapshot, in
        lists of ``size``; the last may be shorter.

        With ``Window.value_bytes`` each row has one more field: the number of bytes of the values
        that it comes without, None if it has them. A reader that stops before the end has to close
        it.
        """
        statement = self.window_statement(log, window, fields)
        return self._chunks(conn, statement, self.window_parameters(window), size)

    def due_chunks(
        self,
        conn: Connection,
        log: LogTable,
        until: str,
        after: DuePlace | None,
        leave_user: str | None,
        fields: Sequence[str],
        size: int,
        value_bytes: int | None = None,
    ) -> RowChunks:
        """Yield these fields of the rows N with an event_time up to ``until``, ordered by that time
        (NULL first) and record_id.

        ``until`` is a text of the log's clock. The lists are as in ``window_chunks``. ``after``
        None = from the first row on; ``leave_user`` and ``value_bytes`` are as in ``Window``.
        """
        after_time, after_id = after or (None, 0)
        parameters: dict[str, object] = {
            "until": until,
            "after_time": None if after_time is None else self.due_time(after_time),
            "after_id": after_id,
            "limit": self.last_record_id,
            "perpetrator": None if leave_user is None else leave_user.rstrip(" "),
        }
        bounded = self.bounded_fields(log, fields, value_bytes)
        statement = self.log_statement(log, "read_due", fields=bounded)
        return self._chunks(conn, statement, parameters, size)

    def due_ids(
        self, conn: Connection, log: LogTable, until: str, first: int, last: int
    ) -> list[int]:
        """Return the record_ids from ``first`` to ``last`` of rows that are due at ``until``, with
        any status, in the order of ``due_chunks``.
        """
        parameters = {"until": until, "first": first, "last": last}
        rows = self.fetch(conn, self.log_statement(log, "due_ids"), parameters)
        return [int(record_id) for (record_id,) in rows]

    def not_due(self, conn: Connection, log: LogTable, until: str, limit: int) -> NotDue:
        """Return how many of the first ``limit`` rows N are not due at ``until``."""
        parameters = {"until": until, "limit": limit}
        ((rows, next_time, seconds, looked_at),) = self.fetch(
            conn, self.log_statement(log, "not_due"), parameters
        )
        seconds = None if seconds is None else float(seconds)
        return NotDue(int(rows), next_time, seconds, int(looked_at))

    def due_time(self, event_time: str) -> str:
        """Return the text of an event_time as ``read_due`` compares it."""
        return event_time

    def due_until(self, conn: Connection, log: LogTable, event_time_zone: str = "utc") -> str:
        """Return the database's clock now, in the terms of event_time: rows up to it are due
        (spec/event-log.md 8.1).
        """
        ((now,),) = self.fetch(conn, self.log_statement(log, "due_until", event_time_zone), {})
        return str(now)

    def queue(self, conn: Connection, log: LogTable, event_time_zone: str = "utc") -> Queue:
        """Return the number of rows N, and the age of the oldest by the database's clock
        (spec/event-log.md 11).

        It counts all of them; ``sql.rows.count_queue`` stops at a number.
        """
        ((rows, oldest),) = self.fetch(conn, self.log_statement(log, "queue", event_time_zone), {})
        return Queue(int(rows), None if oldest is None else float(oldest))

    def read_rows(self, conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
        """Return the rows of these record_ids, of any status, in record_id order."""
        statement = self.log_statement(log, "read_rows")
        rows = [
            self.log_rows(conn, statement, {"first": first, "last": last}) for first, last in ranges
        ]
        return sorted(chain.from_iterable(rows), key=itemgetter(0))

    def read_columns(
        self, conn: Connection, log: LogTable, ranges: Ranges, fields: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        """Return these fields of the rows of these record_ids, in record_id order; the first field
        is record_id.

        Other fields are not read, since values may be large.
        """
        statement = self.log_statement(log, "read_rows", fields=self.log_fields(log, fields))
        self.choose_plans(conn)
        rows = [
            self.fetch(conn, statement, {"first": first, "last": last}) for first, last in ranges
        ]
        return sorted(chain.from_iterable(rows), key=itemgetter(0))

    def mark(self, conn: Connection, log: LogTable, letter: str, ranges: Ranges) -> int:
        """Give the rows of these record_ids that still have status N another letter, and return
        their number.
        """
        return self.change_rows(conn, self.log_statement(log, "mark"), ranges, letter=letter)

    def delete(self, conn: Connection, log: LogTable, ranges: Ranges) -> int:
        """Delete the rows of these record_ids that still have status N, and return their number."""
        return self.change_rows(conn, self.log_statement(log, "delete"), ranges)

    def change_rows(
        self, conn: Connection, statement: str, ranges: Ranges, **values: object
    ) -> int:
        """Run a statement for the rows of these record_ids, ``:first`` to ``:last``, and return the
        number of changed rows.
        """
        return run_many(
            conn, statement, [{"first": first, "last": last, **values} for first, last in ranges]
        )

    def log_rows(
        self, conn: Connection, statement: str, parameters: Mapping[str, object]
    ) -> list[LogRow]:
        """Return the rows of a statement that selects ``{fields}``."""
        self.choose_plans(conn)
        with without_collector():
            return list(map(log_row, self.fetch(conn, statement, parameters)))

    def _chunks(
        self, conn: Connection, statement: str, parameters: Mapping[str, object], size: int
    ) -> RowChunks:
        self.choose_plans(conn)
        with closing(self.fetch_chunks(conn, statement, parameters, size)) as chunks:
            yield from chunks

    def open_writers(self, conn: Connection, log: LogTable) -> frozenset[str] | None:
        """Return the names of the other sessions' open transactions that have written the log; None
        = the database cannot tell.
        """
        return None

    def are_open(self, conn: Connection, writers: frozenset[str]) -> bool:
        """Return True if all of these transactions were open when the previous statement began."""
        return False

    def next_record_id(self, conn: Connection, log: LogTable) -> int | None:
        """Return the record_id that the next row of the log gets, without drawing it; None if the
        database does not tell it, or not to this role.
        """
        return None

    # The current rows of many keys of one class (spec/event-log.md 7.2, spec/xds.md 4.3)

    @abstractmethod
    def query_back(
        self,
        conn: Connection,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        """Return the current values of ``attributes`` for the objects with these canonical keys, by
        key and attribute name.

        A single-valued table column has one value, an attribute of a child table or a view one for
        each row. Missing objects are left out; the keys are compared exactly, whatever the
        collation (spec/event-log.md 7.2).
        """

    def is_read_back(self, column: Column) -> bool:
        """Return True if the value is read back, also in styles that log values (spec/triggers.md
        6.1).
        """
        return False

    def key_values(
        self, cls: ObjectClass, keys: Iterable[str]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the canonical keys that a row can have, each with its values as they are bound;
        others are left out.
        """
        readers = [(column.name, self.key_column_reader(column)) for column in cls.key]
        for key in keys:
            parts = {part.name: part.value for part in table_key.parse(key)}
            try:
                yield key, tuple(reader(parts[name]) for name, reader in readers)
            except (BadValue, NoSuchValue):
                continue

    @abstractmethod
    def key_column_reader(self, column: Column) -> Callable[[str], object]:
        """Return the function that turns a key value's text into the value that is bound.

        It raises BadValue or NoSuchValue for a text that no value of the column can have.
        """

    # Objects written into the log once more (spec/event-log.md 11, ``eventlog.sql.resync``)

    def start_walk(
        self,
        conn: Connection,
        log: LogTable,
        schema: str | None,
        cls: ObjectClass,
        selection: Selection,
    ) -> Walk:
        """Return the walk that the other methods need.

        The caller commits, and goes on in the same session.
        """
        return Walk(log, schema, cls, selection)

    @abstractmethod
    def write_batch(self, conn: Connection, walk: Walk, position: str | None, limit: int) -> Batch:
        """Log the next ``limit`` objects behind ``position`` (canonical table_key text, None = from
        the beginning).
        """

    @abstractmethod
    def keys_behind(
        self, conn: Connection, walk: Walk, position: str | None, limit: int
    ) -> list[str]:
        """Return the canonical keys of the next ``limit`` objects behind ``position``, in the order
        of the walk.
        """

    def walk_condition(self, walk: Walk, *, goes_on: bool) -> str:
        """Return SQL that selects the rows still to be written.

        ``goes_on`` says that a position is bound.
        """
        conditions = []
        if walk.selection.where is not None:
            # The predicate stands on lines of its own, since it may end in a comment.
            conditions.append(f"(\n{self.bindable(walk.selection.where)}\n)")
        if walk.cls.is_view or self.keys_may_be_null:
            conditions += [f"{ref} {self.is_not_null}" for ref in self.walk_key(walk)]
        if goes_on:
            conditions.append(self.behind(walk))
        return " AND ".join(conditions) or "1 = 1"

    def walk_rows(self, walk: Walk) -> str:
        """Return SQL of the relation that is walked."""
        return self.bindable(self.qualified(walk.schema, walk.cls.table.name))

    def walk_key(self, walk: Walk) -> list[str]:
        """Return SQL of its key columns."""
        return [self.bindable(self.quote(column.name)) for column in walk.cls.key]

    def behind(self, walk: Walk) -> str:
        """Return SQL that selects rows whose key follows the position, whose values are bound
        (``position_binds``).
        """
        refs = self.walk_key(walk)
        return (
            f"({', '.join(refs)}) > ({', '.join(self.bind(f'k{i}') for i, _ in enumerate(refs))})"
        )

    def position_binds(self, cls: ObjectClass, position: str | None) -> Mapping[str, object]:
        """Return the values of a position's key as they are bound: ``k0``, ``k1``, ... None = no
        position.
        """
        keys = () if position is None else (position,)
        return {
            f"k{i}": value
            for _, values in self.key_values(cls, keys)
            for i, value in enumerate(values)
        }

    keys_may_be_null: bool = False
    """True if a row may have a primary key that is NULL."""
    is_not_null: str = "IS NOT NULL"
    """The test that follows a reference; a value may be a row of NULLs."""

    def estimate(self, conn: Connection, walk: Walk, position: str | None) -> int:
        """Return the expected number of objects behind ``position``.

        Also tries out the operator's predicate.
        """
        return self.count(conn, walk, position)

    def count(self, conn: Connection, walk: Walk, position: str | None) -> int:
        """Return the number of objects behind ``position``."""
        condition = self.walk_condition(walk, goes_on=position is not None)
        statement = f"SELECT COUNT(*) FROM {self.walk_rows(walk)} WHERE {condition}"  # noqa: S608 - the operator's own
        ((rows,),) = self.fetch(conn, statement, self.position_binds(walk.cls, position))
        return int(rows)

    def write_keys(
        self, conn: Connection, log: LogTable, selection: Selection, keys: Sequence[str]
    ) -> None:
        """Log the objects with these canonical keys, in their order.

        The rows have no perpetrator, so that they are never loopback (spec/event-log.md 8.3).
        """
        row = {"event_type": int(selection.event_type), "class_name": selection.class_name}
        run_many(
            conn, self.log_statement(log, "write_key"), [{**row, "table_key": key} for key in keys]
        )

    # The questions of ``doctor`` (``eventlog.sql.doctor``)

    def fetch_answer(
        self,
        conn: Connection,
        statement: str,
        names: Mapping[str, str],
        binds: Mapping[str, object],
    ) -> Answer:
        """Run a statement of ``doctor.sql``: names stand in braces, binds behind colons."""
        # A colon in a name must not begin a bind.
        escaped = {key: name.replace(":", "\\:") for key, name in names.items()}
        return conn.execute(sa.text(statement.format(**escaped)), binds).all()

    def sees_triggers(self, conn: Connection, schema: str) -> bool:
        """Return True if this session can see the triggers of a schema's tables.

        If not, none counts as missing.
        """
        return True

    # The log read by many sessions that see the same rows (spec/event-log.md 12)

    shares_snapshots: bool = True
    """True if sessions can see the rows N of one moment. If they cannot, the parts of the log list
    their rows: a row of the log changes in nothing but its status, and no row N of a locked log
    loses that.
    """
    snapshot_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Execution options of the connections that export and join a snapshot."""

    @abstractmethod
    def export_snapshot(self, conn: Connection) -> str:
        """Return the name of this transaction's snapshot, for others to join until it ends."""

    @abstractmethod
    def join_snapshot(self, conn: Connection, snapshot: str) -> None:
        """Join the snapshot of another transaction, as the first statement of this one.

        Raises DatabaseError.
        """

    def log_parts(
        self,
        conn: Connection,
        log: LogTable,
        status: str | None,
        first: int,
        last: int,
        rows: int,
        multiple: int,
    ) -> list[Part]:
        """Return ranges of record_ids with about equal numbers of rows of a status, at most
        ``rows``, in ascending order.

        ``status`` None = any. The number of parts is a multiple of ``multiple``, unless the parts
        were too small to be worthwhile: tasks that run at once then end at once. The ranges cover
        all record_ids from ``first`` (at least 1) to the present last row.
        """
        bounds = {"first": max(first, 1), "last": min(last, self.last_record_id)}
        has_status = self.bindable(self.has_status(log, status))
        if not self.shares_snapshots:
            runs = self.fetch(
                conn, self.log_statement(log, "runs_of_part", has_status=has_status), bounds
            )
            return _parts_of(
                [(int(start), int(end)) for start, end in runs], bounds["first"], rows, multiple
            )
        count = self.log_statement(log, "count_part", has_status=has_status)
        ((counted, greatest),) = self.fetch(conn, count, bounds)
        if not counted:
            return []
        total = int(counted)
        size = _part_size(total, rows, multiple)
        cuts = self.log_statement(log, "cut_part", has_status=has_status)
        firsts = [
            int(record_id) for (record_id,) in self.fetch(conn, cuts, {**bounds, "part_size": size})
        ]
        firsts[0] = bounds["first"]
        lasts = [*(after - 1 for after in firsts[1:]), int(greatest)]
        sizes = [size] * (len(firsts) - 1) + [total - size * (len(firsts) - 1)]
        return list(map(Part, firsts, lasts, sizes))

    def has_status(self, log: LogTable, status: str | None) -> str:
        """Return SQL that selects rows of this status letter, as a literal, so that the queue's
        index serves; None = any.

        Raises ConfigError for a status that is not a letter.
        """
        if status is None:
            return "1 = 1"
        if not is_status(status):
            raise ConfigError(f"status {status!r} is not a letter: use N, S, W, E or F")
        return f"{self.quote(log.column('status'))} = '{status}'"

    def part_statement(
        self,
        log: LogTable,
        status: str | None,
        fields: Sequence[str],
        bounds: str = ":first AND :last",
        as_of: str = "",
    ) -> str:
        """Return the statement that reads these fields of the rows of a status, from ``:first`` to
        ``:last``, in their order.

        ``as_of`` is SQL behind the name of the log that names the moment to read.
        """
        selected = ", ".join(
            f"{self.part_field(log, field)} AS {self.quote(field)}" for field in fields
        )
        record_id = self.quote(log.column("record_id"))
        return (
            f"SELECT {selected} FROM {self.qualified(log.schema, log.name)}{as_of}"  # noqa: S608 - quoted names
            f" WHERE {self.has_status(log, status)} AND {record_id} BETWEEN {bounds}"
            f" ORDER BY {record_id}"
        )

    def part_field(self, log: LogTable, field: str) -> str:
        """Return SQL of a field of ``LogRow`` as a part has it: status without trailing blanks, the
        others as ``log_field`` returns them, except for the needs of Arrow.
        """
        text = self.log_field(field, self.quote(log.column(field)), log.type_of(field))
        return f"RTRIM({text})" if field == "status" else text

    @abstractmethod
    def read_part(
        self,
        url: URL,
        log: LogTable,
        snapshot: str | None,
        status: str | None,
        part: Part,
        fields: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part as Arrow batches with these fields, in record_id order, by a
        connection of its own.

        The first field is record_id. ``snapshot`` None = the present log. Raises DatabaseError, and
        ConfigError if a library is not installed.
        """


def _part_size(total: int, rows: int, multiple: int) -> int:
    """Return the number of rows of each part of a log; ``rows`` and ``multiple`` are as
    in ``Dialect.log_parts``.
    """
    parts, worthwhile = -(-total // rows), -(-total // _WORTH_IT)
    in_step = -(-parts // multiple) * multiple
    return -(-total // max(parts, min(in_step, worthwhile)))


def _parts_of(runs: Ranges, first: int, rows: int, multiple: int) -> list[Part]:
    """Return the parts, with their ``ids``, of a log whose rows have these record_ids, by the rules
    of ``Dialect.log_parts``.
    """
    total = length(runs)
    if not total:
        return []
    size = _part_size(total, rows, multiple)
    parts: list[Part] = []
    own: list[tuple[int, int]] = []
    left = size
    for run_start, end in runs:
        start = run_start
        while start <= end:
            cut = min(end, start + left - 1)
            own.append((start, cut))
            left -= cut - start + 1
            start = cut + 1
            if not left:
                parts.append(Part(first, cut, size, tuple(own)))
                first, own, left = start, [], size
    if own:
        parts.append(Part(first, own[-1][1], size - left, tuple(own)))
    return parts


@lru_cache(maxsize=64)
def log_words(dialect: Dialect, log: LogTable, event_time_zone: str) -> Mapping[str, str]:
    """Return the words for the text of a statement of ``log_sql``."""
    columns = {
        field: dialect.bindable(dialect.quote(column))
        for field, column in zip(LogRow._fields, log.columns, strict=True)
    }
    # A column that has a zone holds the moment itself.
    now = (
        dialect.local_now
        if event_time_zone == "local" and not log.has_zoned_time
        else dialect.utc_now
    )
    return {
        "log": dialect.bindable(dialect.qualified(log.schema, log.name)),
        "fields": dialect.log_fields(log, LogRow._fields),
        **columns,
        "now": now,
        **dialect.log_times(columns["event_time"], is_zoned=log.has_zoned_time),
        **_number_words(dialect, log, columns["record_id"]),
    }


def _number_words(dialect: Dialect, log: LogTable, record_id: str) -> Mapping[str, str]:
    """Return the words ``number_column`` and ``number`` of an INSERT: record_id and its value, with
    commas behind them; empty if the column numbers itself.
    """
    if log.sequence is None:
        return {"number_column": "", "number": ""}
    number = dialect.bindable(dialect.next_number(*log.sequence))
    return {"number_column": f"{record_id}, ", "number": f"{number}, "}


def arrow_schema(fields: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of fields of ``LogRow``: record_id and event_type int64, event_time
    timestamp[us], others text.
    """
    import pyarrow as pa

    types = {"record_id": pa.int64(), "event_type": pa.int64(), "event_time": pa.timestamp("us")}
    return pa.schema([pa.field(name, types.get(name, pa.string())) for name in fields])


def arrow_batch(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return rows with these fields, event_time as text, as one Arrow batch."""
    import pyarrow as pa

    schema = arrow_schema(fields)
    columns = zip(*rows, strict=True)
    arrays = [_array(field, column) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    if field.name != "event_time":
        return pa.array(values, field.type)
    # Infinity is not a timestamp.
    texts = [text if text is None or text[:1].isdigit() else None for text in values]
    return pa.array(texts, pa.string()).cast(field.type)
