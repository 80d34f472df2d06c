"""A database as text and types: ``Dialect``, with a subclass for each database. It adds the
statements of an existing log to ``SqlDatabase``.

Each database is a package with the modules that ``eventlog.sql.dialects`` lists. All other code
calls the dialect, or what it opens (``OpenDatabase``, ``OpenLog``), and never compares database
names. The text of each statement is composed of quoted names; values are bound by the driver's own
parameters.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlalchemy import URL, Connection

from eventlog.core import table_key
from eventlog.core.catalog import Attribute, ChildTable, Column, ObjectClass, Table
from eventlog.core.values import ColumnType
from eventlog.errors import BadValue, ConfigError
from eventlog.model import LOG_COLUMNS, LogRow, is_status
from eventlog.sql.log_table import TRANSACTION_ID, LogTable
from eventlog.sql.port.database import AnswerFunction, SqlDatabase, Wake
from eventlog.sql.port.leaves import Partitioning
from eventlog.sql.port.log_operations import Walk, Window
from eventlog.sql.port.log_parts import LogPart
from eventlog.sql.port.sql_files import AS_WRITTEN, Binds, statements

if TYPE_CHECKING:
    import pyarrow as pa

    from eventlog.sql.port.open_database import OpenDatabase

CurrentRow = dict[str, list[str | None]]
"""The current values of an object by attribute name, as log text (spec/triggers.md 6): one value
for a single-valued column, one value per row for other attributes.
"""


class NoSuchValue(Exception):
    """A text that no value of a key column's type can have."""


def child_of(cls: ObjectClass, attribute: Attribute) -> ChildTable | None:
    """Return the child table that holds an attribute, None for a column of the class's table."""
    return next((child for child in cls.children if child.attribute is attribute), None)


class Dialect(SqlDatabase):
    """One database as text and types, without a session; ``open`` returns it with a session.

    A database's package overrides what differs. A further database must provide the abstract
    methods, here and in ``SqlDatabase``; ``StepwiseDialect`` provides some of them. The other
    methods have an answer that suits most databases.
    """

    @abstractmethod
    def open(self, connection: Connection) -> OpenDatabase:
        """Return the database of a connection."""

    answers: ClassVar[Mapping[str, AnswerFunction]] = MappingProxyType({})
    """The questions of ``doctor`` that SQL alone cannot answer, and the functions that answer them
    (``sql.doctor``).
    """

    @property
    def doctor_sql(self) -> Mapping[str, str]:
        """The statements of ``doctor.sql`` by name."""
        return statements(f"eventlog.sql.dialects.{self.name}", "doctor.sql")

    wake: Wake | None = None
    """The means by which a writer wakes a sleeping publisher, None = the publisher polls only."""

    partitioning: Partitioning | None = None
    """How the table of a log is partitioned, None = partitioning is not supported for this
    database.
    """

    # The log. Its statements are in ``log_sql`` (spec/event-log.md 8.1, 8.4).

    log_sql: ClassVar[Mapping[str, str]]
    """The statements of log.sql by name. They contain ``{words}``, which are replaced: ``{log}``,
    ``{fields}``, a word for the column of each field of ``LogRow``, and the words that
    ``log_times`` returns.
    """
    bigint: str = ""
    """SQL that follows a bound number of 64 bits, so that the number always has the same type."""
    last_record_id: int = 2**63 - 1
    """The greatest possible record_id."""

    @abstractmethod
    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        """Return SQL of a field of ``LogRow`` as it is read: record_id and event_type as integers
        (0 for an unusable value), all others as text.
        """

    def transaction_id_statements(self, log: LogTable) -> tuple[str, ...]:
        """Return the statements that let the database record the transaction of each row of a log
        (spec/event-log.md 1.5). Raises ConfigError if the database cannot record transactions.
        """
        raise ConfigError(
            f"database.transaction_ids: only PostgreSQL records transaction ids, and this is "
            f"{self.name}; remove the option"
        )

    def within(self, log: LogTable, record_id: str) -> str:
        """Return the text for the word ``within`` in statements that select rows by ranges. It is a
        further condition on ``record_id``, so that only the leaves of these ranges are read; it is
        empty for a log that is not partitioned.
        """
        return ""

    @abstractmethod
    def log_times(self, column: str, *, is_zoned: bool) -> Mapping[str, str]:
        """Return the words of ``log_sql`` about event_time. ``new_time`` is the value for a new
        row; ``time`` is the column in UTC.

        ``is_due`` is the condition that a row is due at the time in the bind ``until``.
        ``due_order`` sorts due rows, rows without a time first (spec/event-log.md 8.1). If ``time``
        is derived from a text, ``after`` is the bind ``after_time`` of ``due_chunks`` in the same
        form. ``is_zoned`` means that the type of the column has a time zone.
        """

    def next_number(self, schema: str | None, sequence: str) -> str:
        """Return SQL of the next number of a sequence, in databases that have sequences."""
        raise NotImplementedError

    numbers_sorted_rows: bool = True
    """True if a sorted query may draw ``next_number`` for each of its rows in the sorted order."""
    error_number: str | None = None
    """A column that numbers the rows of an internal table in the order in which they were written,
    for databases whose times are too coarse for this order (spec/event-log.md 10). None = times are
    fine enough.
    """

    condition_token: ClassVar[re.Pattern[str]]
    """What matches one token in a condition of a user, as ``why_not_one`` needs it."""

    def bindable(self, sql: str) -> str:
        """Return SQL text with the escapes that a statement with parameters needs."""
        return sql

    def strict(self, sql: str) -> str:
        """Return ``bindable`` SQL about objects, in which a name that is no column is an error."""
        return self.bindable(sql)

    def bind(self, name: str) -> str:
        """Return the placeholder of a bound value, as the driver expects it in a statement."""
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
        """Return the text in place of ``{fields}`` in ``log_sql``."""
        return ", ".join(self._read_field(log, field) for field in fields)

    def _read_field(self, log: LogTable, field: str) -> str:
        if field == TRANSACTION_ID and log.transaction_column is None:
            return "NULL"
        return self.log_field(
            field, self.bindable(self.quote(log.column(field))), log.type_of(field)
        )

    def bounded_fields(self, log: LogTable, fields: Sequence[str], value_bytes: int | None) -> str:
        """Return the text for ``{fields}`` if ``Window.value_bytes`` limits the values of rows.
        With a limit, one more field follows: the number of bytes of the values that are left out of
        the row.
        """
        if value_bytes is None:
            return self.log_fields(log, fields)
        texts = {
            field: self._read_field(log, field) for field in {*fields, "old_value", "new_value"}
        }
        size = " + ".join(
            f"COALESCE({self.value_size(texts[value])}, 0)" for value in ("old_value", "new_value")
        )
        is_small = f"CASE WHEN {size} <= {int(value_bytes)} THEN"
        bounded = {value: f"{is_small} {texts[value]} END" for value in ("old_value", "new_value")}
        left_out = f"CASE WHEN {size} > {int(value_bytes)} THEN {size} END AS left_out"
        return ", ".join([*(bounded.get(field, texts[field]) for field in fields), left_out])

    def value_size(self, text: str) -> str:
        """Return SQL of the approximate size of a text, in bytes."""
        return f"LENGTH({text})"

    def window_parameters(self, window: Window) -> Binds:
        """Return the binds of a window's statement."""
        return window.parameters(self.last_record_id)

    def window_statement(self, log: LogTable, window: Window, fields: Sequence[str]) -> str:
        """Return the statement that reads these fields of the rows of a window."""
        words = self.window_words(log, window, fields)
        return self.log_statement(log, window.statement, **words)

    def window_words(
        self, log: LogTable, window: Window, fields: Sequence[str]
    ) -> Mapping[str, str]:
        """Return further words of the statement of a window: ``fields`` and ``statuses``."""
        return {
            "fields": self.bounded_fields(log, fields, window.value_bytes),
            "statuses": log_words(self, log, "utc")[window.statuses],
        }

    def due_time(self, event_time: str) -> str:
        """Return the text of an event_time in the form in which ``due_chunks`` compares it."""
        return event_time

    # The current rows of many keys of one class (spec/event-log.md 7.2, spec/xds.md 4.3)

    def is_read_back(self, column: Column) -> bool:
        """Return True if the values of a column are read back even in styles that log values
        (spec/triggers.md 6.1).
        """
        return False

    def key_values(
        self, cls: ObjectClass, keys: Iterable[str]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the canonical keys that a row can have, each with the values to bind; keys that no
        row can have are left out.
        """
        readers = [self.key_column_reader(column) for column in cls.key]
        is_single, start = len(readers) == 1, len(cls.key[0].name) + 1
        for key in keys:
            if '"' in key:
                parts = {part.name: part.value for part in table_key.parse(key)}
                texts = [parts[column.name] for column in cls.key]
            else:
                # Nearly all canonical keys have no quotes and need no parsing.
                texts = (
                    [key[start:]]
                    if is_single
                    else [part.partition("=")[2] for part in key.split("+")]
                )
            try:
                yield (
                    key,
                    tuple([reader(text) for reader, text in zip(readers, texts, strict=True)]),
                )
            except (BadValue, NoSuchValue):
                continue

    @abstractmethod
    def key_column_reader(self, column: Column) -> Callable[[str], object]:
        """Return the function that turns a key value's text into the value that is bound.

        The function raises BadValue or NoSuchValue for a text that no value of the column can have.
        """

    # Objects written into the log again (spec/event-log.md 11, ``eventlog.sql.resync``)

    def walk_condition(self, walk: Walk, *, continues: bool) -> str:
        """Return SQL that selects the rows still to be written.

        ``continues`` means that the walk continues after the last key that it reached. The values
        of this key are bound.
        """
        conditions = []
        if walk.selection.where is not None:
            # The predicate is on separate lines, since it may end in a comment.
            conditions.append(f"{AS_WRITTEN} (\n{self.strict(walk.selection.where)}\n)")
        if walk.cls.is_view or self.keys_may_be_null:
            conditions += [f"{ref} {self.is_not_null}" for ref in self.walk_key(walk)]
        if continues:
            conditions.append(self.behind(walk))
        return " AND ".join(conditions) or "1 = 1"

    def relation(self, schema: str | None, table: Table) -> str:
        """Return SQL of a table or view."""
        return self.qualified(schema, table.name)

    def walk_rows(self, walk: Walk) -> str:
        """Return SQL of the table or view that is walked."""
        return self.strict(self.relation(walk.schema, walk.cls.table))

    def walk_key(self, walk: Walk) -> list[str]:
        """Return SQL of the key columns of the walk."""
        return [self.strict(self.quote(column.name)) for column in walk.cls.key]

    def behind(self, walk: Walk) -> str:
        """Return SQL that selects rows whose key follows the last key that the walk reached. The
        values of the last key are bound (``reached_binds``).
        """
        refs = self.walk_key(walk)
        return (
            f"({', '.join(refs)}) > ({', '.join(self.bind(f'k{i}') for i, _ in enumerate(refs))})"
        )

    def reached_binds(self, cls: ObjectClass, reached: str | None) -> Binds:
        """Return the binds of the key that a walk reached: ``k0``, ``k1``, ..., or ``position``.
        ``reached`` None = the walk begins.
        """
        if cls.is_view and self.walks_views_by_text:
            return {} if reached is None else {"position": reached}
        keys = () if reached is None else (reached,)
        return {
            f"k{i}": value
            for _, values in self.key_values(cls, keys)
            for i, value in enumerate(values)
        }

    walks_views_by_text: bool = False
    """True if a walk over a view is ordered by the canonical text of the key, which is bound as
    ``position``. Several rows of a view may have the same key.
    """
    keys_may_be_null: bool = False
    """True if a row may have a primary key that is NULL."""
    is_not_null: str = "IS NOT NULL"
    """SQL that follows a reference and tests that its value is not NULL. Another test than IS NOT
    NULL is needed if a value may be a row of NULLs.
    """

    # The log read by many sessions that see the same rows (spec/event-log.md 12)

    shares_snapshots: bool = True
    """True if several sessions can share a database snapshot of the rows of status N. Otherwise
    each part of the log lists the record_ids of its rows. This suffices, because only the status of
    a row ever changes, and no row of status N changes while the log is locked.
    """
    snapshot_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Execution options of the connections that export and join a database snapshot."""

    def has_status(self, log: LogTable, status: str | None) -> str:
        """Return SQL that selects rows of this status; None = any status. The SQL contains the
        status as a literal, so that the queue's index is used.

        Raises ConfigError for a status that is not a letter.
        """
        if status is None:
            return "1 = 1"
        if not is_status(status):
            raise ConfigError(f"status {status!r} is not valid: use N, S, W, E or F")
        return f"{self.quote(log.column('status'))} = '{status}'"

    def part_statement(
        self,
        log: LogTable,
        status: str | None,
        fields: Sequence[str],
        bounds: str = ":first AND :last",
        as_of: str = "",
    ) -> str:
        """Return the statement that reads these fields of the rows of a status, from record_id
        ``:first`` to ``:last``, in record_id order.

        ``as_of`` is SQL that follows the name of the log and selects the moment to read.
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
        """Return SQL of a field of ``LogRow`` for reading a part: status without trailing blanks,
        other fields as ``log_field`` returns them, with the changes that Arrow needs.
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
        part: LogPart,
        fields: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part as Arrow batches with these fields, in record_id order, over a
        separate connection.

        The first field is record_id. ``snapshot`` None = the present log. Raises DatabaseError, and
        ConfigError if a library is not installed.
        """


WORDS: Final = (
    *("new_id", "is_new", "not_of_user", "has_time", "first_row", "begins_part", "in_ranges"),
    *("of_any_status", "of_new", "of_new_left"),
)
"""The texts of ``log_sql`` that statements contain as ``{words}``. If a text contains words of this
list, it comes after them.
"""


@lru_cache(maxsize=64)
def log_words(dialect: Dialect, log: LogTable, event_time_zone: str) -> Mapping[str, str]:
    """Return the words for the text of a statement of ``log_sql``."""
    columns = {
        field: dialect.bindable(dialect.quote(column))
        for field, column in zip(LOG_COLUMNS, log.columns, strict=True)
    }
    is_local = log.zone_of_times(event_time_zone) == "local"
    now = dialect.local_now if is_local else dialect.utc_now
    internal = {
        "error_table": log.error_table,
        "inflight_table": log.inflight_table,
        "state_table": log.state_table,
        "consumer_table": log.consumer_table,
    }
    words = {
        "log": dialect.bindable(dialect.qualified(log.schema, log.name)),
        **{
            word: dialect.bindable(dialect.qualified(log.schema, table))
            for word, table in internal.items()
        },
        "utc_now": dialect.bindable(dialect.utc_now),
        "fields": dialect.log_fields(log, LogRow._fields),
        **columns,
        "now": now,
        "within": dialect.within(log, columns["record_id"]) if log.is_partitioned else "",
        **dialect.log_times(columns["event_time"], is_zoned=log.has_zoned_time),
        **_number_words(dialect, log, columns["record_id"]),
        **_transaction_words(dialect, log),
        "bigint": dialect.bigint,
    }
    for name in filter(dialect.log_sql.__contains__, WORDS):
        words[name] = dialect.log_sql[name].format(**words)
    return words


def _transaction_words(dialect: Dialect, log: LogTable) -> Mapping[str, str]:
    """Return the words ``transaction_column`` and ``no_transaction`` of an INSERT by eventlog
    itself: the column of the transaction id, and NULL as its value. Each has a comma before it.
    Both are empty if the log has no such column (spec/event-log.md 1.5).
    """
    if log.transaction_column is None:
        return {"transaction_column": "", "no_transaction": ""}
    column = dialect.bindable(dialect.quote(log.transaction_column))
    return {"transaction_column": f", {column}", "no_transaction": ", NULL"}


def _number_words(dialect: Dialect, log: LogTable, record_id: str) -> Mapping[str, str]:
    """Return the words ``number_column`` and ``number`` of an INSERT: record_id and its value, with
    commas after them; empty if the database numbers the column itself.
    """
    if log.sequence is None:
        return {"number_column": "", "number": ""}
    number = dialect.bindable(dialect.next_number(*log.sequence))
    return {"number_column": f"{record_id}, ", "number": f"{number}, "}
