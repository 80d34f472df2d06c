# ruff: noqa: B027 - what most databases leave empty
"""A database as one session sees it: ``OpenDatabase``, which each database implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.types import TypeEngine

from eventlog.core.catalog import Attribute, Catalog, Column, Database, ObjectClass
from eventlog.core.catalog.masks import masked_rows
from eventlog.core.values import ColumnType, Kind
from eventlog.sql.log_table import LogTable, storable
from eventlog.sql.port.database import Answer, UnsafeSchema
from eventlog.sql.port.dialect import CurrentRow, Dialect
from eventlog.sql.port.log_operations import RangeReader, masked_ranges
from eventlog.sql.port.quoted_names import quoted
from eventlog.sql.port.snapshot_proof import SnapshotProof
from eventlog.sql.port.sql_files import (
    AS_ANY,
    Binds,
    Options,
    PlainRows,
    RowChunks,
    fetch,
    fetch_chunks,
    run_as_it_stands,
)
from eventlog.sql.sql_text import why_not_one

if TYPE_CHECKING:
    from eventlog.sql.port.open_log import OpenLog

NO_BINDS: Final[Binds] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OpenDatabase(ABC):
    """A database in a session: the connection and its dialect. ``Dialect.open`` creates it once,
    when the session begins.
    """

    connection: Connection
    dialect: Dialect

    @abstractmethod
    def log(self, table: LogTable) -> OpenLog:
        """Return a log of this database, as this session sees it."""

    def on(self, connection: Connection) -> OpenDatabase:
        """Return the same database as another session sees it."""
        return self.dialect.open(connection)

    # The session

    def why_not_one(self, condition: str) -> str | None:
        """Return why a user's condition is not one expression, as this session reads it; None if it
        is one (spec/event-log.md 15.2).
        """
        return why_not_one(condition, self.dialect.condition_token)

    def begin_publishing(self) -> None:
        """Set up what only a publisher's session needs, such as a time-out for a silent server."""

    def prepare_log_statements(self) -> None:
        """Let this session prepare the statements of its log, if that makes them faster. Call it
        after ``begin_publishing``, and not for a session of a pool.
        """

    def make_durable(self) -> None:
        """Make sure that, after the commit of this transaction, a crash of the server cannot undo
        what the transaction has read. Call it after ``begin_publishing``.
        """

    def read_only(self) -> str | None:
        """Return, in words, why this session cannot write, even with all rights; None if it can
        write.
        """
        return None

    def unverified(self) -> tuple[str, str, str] | None:
        """Return the host of this session, what the session has in place of TLS that verifies the
        server, and what to write in the URL; None if TLS does, or there is no network.
        """
        return None

    def is_standby(self) -> bool:
        """Return True if this server only repeats what a primary writes: the locks of sessions that
        work with the log are at the primary.
        """
        return False

    @abstractmethod
    def begin_reading(self, seconds: int) -> None:
        """Start a read-only snapshot transaction, in which each statement takes at most
        ``seconds``.
        """

    @abstractmethod
    def limit_statements(self, seconds: int) -> None:
        """Limit each statement of this transaction, or its wait for a lock, to ``seconds``."""

    @abstractmethod
    def session_id(self) -> str:
        """Return a text that identifies the session: no other session has it at the same time."""

    def utc_now(self) -> datetime:
        """Return the database's time in UTC."""
        return self._time(self.dialect.utc_now)

    def current_user(self) -> str:
        """Return the user that triggers log as perpetrator, the empty text if triggers log no
        user.
        """
        return ""

    def storable(self, text: str) -> str:
        """Return a text for people in a form that the database can store (spec/event-log.md 5.6):
        characters that the database's encoding lacks are escaped. The transaction continues.
        """
        return storable(text)

    def unsafe_schemas(self) -> Sequence[UnsafeSchema]:
        """Return who else may create objects in the search path of this session."""
        return ()

    def has_user(self, name: str) -> bool | None:
        """Return True if the server has a user of this name, as the database spells it; None if
        users without special rights cannot see that.
        """
        return None

    def local_time(self) -> datetime:
        """Return the local time of the server, in its time zone rather than the session's."""
        return self._time(self.dialect.local_now)

    def _time(self, now: str) -> datetime:
        time: datetime = self.connection.execute(
            sa.select(sa.literal_column(now, sa.TIMESTAMP()))
        ).scalar_one()
        return time

    @abstractmethod
    def reflect(self, schema: str | None) -> Database:
        """Return the tables and views of one schema, None = the connection's current schema.

        A foreign key to a table of another schema names it ``schema.table``. Raises DatabaseError
        if the schema does not exist.
        """

    def fingerprint(self, catalog: Catalog) -> str | None:
        """Return a text that changes when a column of the catalogue's tables is added, dropped,
        renamed or retyped.

        It takes one quick statement. None = the database has no such text: reflect the tables to
        detect changes.
        """
        return None

    def foreign_tables(self, catalog: Catalog) -> Mapping[str, Sequence[str]]:
        """Return the tables and views of a catalogue that show rows of foreign tables, by name,
        each with these foreign tables as schema.name. No snapshot of the database contains rows of
        foreign tables (spec/event-log.md 12.3).
        """
        return {}

    def fetch(
        self,
        statement: str,
        parameters: Binds,
        options: Options = AS_ANY,
    ) -> PlainRows:
        """Return the rows of a statement as the driver makes them.

        ``options`` are execution options, such as ``statements.OF_LOG``.
        """
        return fetch(self.connection, statement, parameters, options)

    def scalar(self, statement: str, parameters: Binds = NO_BINDS) -> Any:
        """Return the only field of the only row of a statement."""
        ((value,),) = self.fetch(statement, parameters)
        return value

    def fetch_chunks(self, statement: str, parameters: Binds, size: int) -> RowChunks:
        """Yield the rows of a statement, all of one database snapshot, in lists of ``size``; the
        last list may be shorter.
        """
        return fetch_chunks(self.connection, statement, parameters, size)

    def run(self, statement: str) -> None:
        """Run a statement by ``run_as_it_stands``.

        Raises DatabaseError for a function or trigger that does not compile.
        """
        run_as_it_stands(self.connection, statement)

    def denied(self) -> Sequence[str]:
        """Return the GRANTs that give back what ``Dialect.deny_others`` has taken in this
        transaction, and forget them.
        """
        return ()

    def guarded(self, statement: str) -> str:
        """Return a statement of Alembic in a form that can be run again after an interruption."""
        return statement

    def refuse_replaced(self) -> None:
        """Raise DatabaseUnavailable if the URL now leads to another database than this
        session's.
        """

    def has_table(self, schema: str | None, name: str) -> bool | None:
        """Return whether a schema has a table; None if this session cannot see that, since some
        databases hide tables on which a user has no right.
        """
        return sa.inspect(self.connection).has_table(quoted(name), schema)

    def missing_tables(self, schema: str | None, names: Collection[str]) -> Collection[str]:
        """Return those of these names that a schema certainly has no table of (``has_table``)."""
        return [name for name in names if self.has_table(schema, name) is False]

    def columns(self, schema: str | None, name: str) -> Sequence[Column]:
        """Return the columns of a table of exactly this name in the order of the table; none if
        there is no such table. The types have as much detail as the columns of a log need
        (spec/event-log.md 1.4).
        """
        place = None if schema is None else quoted(schema)
        try:
            found = sa.inspect(self.connection).get_columns(quoted(name), place)
        except sa.exc.NoSuchTableError:
            return ()
        spelled = self.dialect.spelled
        return [Column(spelled(column["name"]), _column_type(column["type"])) for column in found]

    def is_partitioned(self, schema: str | None, name: str) -> bool:
        """Return True if a table is partitioned, so that statements should name the range of their
        rows.
        """
        return False

    def transaction_column(self, schema: str | None, name: str) -> str | None:
        """Return the name of the column in which the database itself records the transaction of
        each row of a log, None if the table has no such column (spec/event-log.md 1.5).
        """
        return None

    def choose_plans(self) -> None:
        """Set how the database plans the log's statements. Call it before rows are read or
        marked.
        """

    def are_open(self, writers: frozenset[str]) -> bool:
        """Return True if all of these transactions were open when the previous statement began."""
        return False

    def query_back(
        self,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> Mapping[str, Mapping[str, Sequence[str | None]]]:
        """Return the current values of ``attributes`` for the objects with these canonical keys, by
        key and attribute name. Values of masked attributes are masked (spec/event-log.md 15.1).

        A single-valued table column has one value, an attribute of a child table or a view has one
        value per row. Missing objects are left out; keys are compared exactly, whatever the
        collation is (spec/event-log.md 7.2).
        """
        if cls.stored is None:
            return self.read_current(schema, cls, keys, attributes)
        stored = [one.stored or one for one in attributes]
        return masked_rows(self.read_current(schema, cls.stored, keys, stored), attributes)

    @abstractmethod
    def read_current(
        self,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        """Return the values of ``query_back`` for a class and attributes without masks, as the
        database has them.
        """

    def range_reader(
        self, schema: str | None, cls: ObjectClass, attributes: Sequence[Attribute]
    ) -> RangeReader | None:
        """Return the reader of the objects of a class by ranges of keys. It reads the
        ``attributes``, which are columns of the class's table or view. Returns None if the order of
        the objects' keys is not known. Values of masked attributes are masked.
        """
        if cls.stored is None:
            return self.read_ranges(schema, cls, attributes)
        stored = [one.stored or one for one in attributes]
        reader = self.read_ranges(schema, cls.stored, stored)
        masks = [one.mask for one in attributes]
        return None if reader is None else masked_ranges(reader, masks)

    def read_ranges(
        self, schema: str | None, cls: ObjectClass, attributes: Sequence[Attribute]
    ) -> RangeReader | None:
        """Return what ``range_reader`` returns, for a class and attributes without masks."""
        return None

    def fetch_answer(
        self,
        statement: str,
        names: Mapping[str, str],
        binds: Binds,
    ) -> Answer:
        """Run a statement of ``doctor.sql``: ``{name}`` stands for a name, ``:name`` for a bound
        value.
        """
        # A colon in a name must not be taken for a bind.
        escaped = {key: name.replace(":", "\\:") for key, name in names.items()}
        return list(self.fetch_texts(sa.text(statement.format(**escaped)), binds))

    def fetch_texts(
        self,
        statement: sa.Executable,
        binds: Binds | None = None,
        options: Options = AS_ANY,
    ) -> Iterable[Sequence[Any]]:
        """Return the rows of a statement, even if some texts cannot be read (spec/event-log.md
        5.6): an unreadable text has a lone surrogate for each byte that is no character.
        """
        return self.connection.execute(statement, binds or {}, execution_options=options)

    def sees_triggers(self, schema: str) -> bool:
        """Return True if this session can see the triggers of a schema's tables.

        If the session cannot see triggers, no trigger is reported as missing.
        """
        return True

    @abstractmethod
    def export_snapshot(self) -> str:
        """Return the name of this transaction's database snapshot, which other sessions can join
        until the transaction ends.
        """

    @abstractmethod
    def join_snapshot(self, snapshot: str) -> None:
        """Join another transaction's database snapshot, as the first statement of this transaction.

        Raises DatabaseError.
        """

    @contextmanager
    def in_snapshot(self, snapshot: str) -> Iterator[None]:
        """Let the block read the database snapshot of another transaction. The block runs in a
        transaction of this session, which ends with the block. Keep the block short: an ALTER of a
        table that the block reads waits for the end of the block, and other statements wait for the
        ALTER.

        Raises DatabaseError, and SnapshotOutdated if ``prove_snapshot`` finds a changed relation.
        After an error, close the session.
        """
        self.join_snapshot(snapshot)
        yield
        proof = self.prove_snapshot()
        self.connection.rollback()
        proof.refuse_changed()

    @abstractmethod
    def prove_snapshot(self) -> SnapshotProof:
        """Return whether, in this transaction's database snapshot, each table that was read appears
        in its state at the time of the snapshot (spec/event-log.md 12.3).

        Call it as the last statement of a transaction that has read with one snapshot. What the
        transaction reads afterwards is not proven.
        """


# --- the types of columns as SQLAlchemy reflects them ---------------------------------------------


def _column_type(sql_type: TypeEngine[object]) -> ColumnType:
    """Return the column type of a reflected type of SQLAlchemy."""
    # A domain counts as its base type (spec/xds.md 6.2).
    base = getattr(sql_type, "data_type", None)
    if isinstance(base, TypeEngine):
        return _column_type(base)
    try:
        sql = str(sql_type).lower()
    except sa.exc.SQLAlchemyError:
        sql = type(sql_type).__name__.lower()
    bits = 0
    if isinstance(sql_type, sa.Integer):
        bits = (
            16
            if isinstance(sql_type, sa.SmallInteger)
            else 64
            if isinstance(sql_type, sa.BigInteger)
            else 32
        )
    return ColumnType(_kind(sql_type), bits, sql)


def _kind(sql_type: TypeEngine[object]) -> Kind:
    if isinstance(sql_type, sa.DateTime):
        return Kind.TIMESTAMPTZ if sql_type.timezone else Kind.TIMESTAMP
    if isinstance(sql_type, sa.Numeric) and not isinstance(sql_type, sa.Float):
        return Kind.INTEGER if sql_type.precision is not None and not sql_type.scale else Kind.EXACT
    return next((kind for kind, classes in _KINDS if isinstance(sql_type, classes)), Kind.OTHER)


_KINDS: Final[tuple[tuple[Kind, tuple[type[TypeEngine[Any]], ...]], ...]] = (
    (Kind.OTHER, (sa.Enum,)),  # SQLAlchemy treats it as a String
    (Kind.INTEGER, (sa.Integer,)),
    (Kind.APPROXIMATE, (sa.Float,)),
    (Kind.BOOLEAN, (sa.Boolean,)),
    (Kind.FIXED, (sa.CHAR, sa.NCHAR)),
    (Kind.CHARACTER, (sa.String,)),
    (Kind.BINARY, (sa.LargeBinary,)),
    (Kind.DATE, (sa.Date,)),
    (Kind.TIME, (sa.Time,)),
    (Kind.UUID, (sa.Uuid,)),
)
