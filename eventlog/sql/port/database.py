# ruff: noqa: B027 - what most databases leave empty
"""The text and types in which databases differ: how to connect, how names and values are written,
and the tables of a log. ``Dialect`` adds the statements of an existing log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy import URL, Connection, Engine, PoolProxiedConnection
from sqlalchemy.types import TypeEngine

from eventlog.core.catalog import Column
from eventlog.core.values import Kind
from eventlog.errors import ConfigError
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.rights import Part, Right
from eventlog.sql.port.sql_files import qualified, quote_identifier

if TYPE_CHECKING:
    from eventlog.sql.port.open_log import OpenLog

WRITES: Final = "eventlog_writes"
"""The key in ``Connection.info`` that marks a session whose transactions write
(``eventlog.sql.connect.connection``).
"""

CHANGING_POOL: Final = (
    "a connection pool in transaction mode: the lock that prevents a second "
    "publisher would not work; connect to the database directly, or through a "
    "pool in session mode"
)
"""The problem with a connection pool in transaction mode, and what to do."""

Answer = Iterable[Sequence[Any]]
"""The rows of an answer to a question of ``doctor``. In all databases the rows have the same fields
in the same order; ``doctor.sql`` names the fields.
"""

AnswerFunction = Callable[..., Answer]
"""A function that answers a question. Its first argument is the open database or the open log that
the question is about. The arguments of the question are passed by name.
"""

CAPABILITIES: Final[Mapping[str, str]] = {
    "server": "the database is a server, not a file",
    "schemas": "tables are in schemas",
    "roles": "sessions have users, with rights; triggers log them as perpetrator",
    "sequences": "numbers come from sequences",
    "partial_indexes": "an index can be limited to rows of status N",
    "transactional_ddl": "DDL is part of a transaction and is rolled back with it",
    "concurrent_writers": "several transactions write at the same time",
    "statement_capture": "trigger_level = statement",
    "truncate": "TRUNCATE is captured",
    "partitions": "partitioned tables",
    "deferrable_keys": "primary keys that are checked later than row by row",
    "fixed_char": "CHAR(n) values are padded with blanks",
    "boolean": "a boolean type whose text is true and false",
    "single_precision": "a type of approximate numbers of 32 bits",
    "exact_decimals": "exact numbers keep all their digits",
    "time_types": "types of dates and times",
    "time_zones": "a timestamp type that includes a time zone",
    "empty_text": "'' is a value, different from NULL",
    "nul_characters": "text holds U+0000",
    "binary_values": "binary columns are logged by value (spec/triggers.md 6.1)",
    "owner_look_up": (
        "the trigger for a child row's DELETE checks whether its owner still exists "
        "(spec/triggers.md 2)"
    ),
    "key_cascades": (
        "if the key of an owner changes, triggers of the child rows log the change of these rows, "
        "after the rows of the owner (spec/triggers.md 2)"
    ),
    "altered_tables": (
        "changes of a table that was altered are logged as query-back rows (spec/triggers.md 7.6)"
    ),
    "upsert_captured": "a row that INSERT replaces is logged as deleted",
    "wake": "a writer wakes a publisher that sleeps (spec/triggers.md 8)",
    "grants_together": "a GRANT names several tables",
    "consumers": (
        "the log can have consumers: the database shows which open transactions have written to it"
    ),
}
"""The capabilities of databases: names for ``SqlDatabase.capabilities``, and their meanings."""


class Keepalive(NamedTuple):
    """The times in s after which one end of a TCP connection detects the loss of the other end."""

    idle: int
    """The silence until the first probe."""
    interval: int
    """The time between two probes."""
    probes: int
    """The number of probes without an answer after which the connection is lost."""

    @property
    def milliseconds(self) -> int:
        """The longest time in milliseconds that sent bytes may stay without an acknowledgement."""
        return 1000 * (self.idle + self.interval * self.probes)


KEEPALIVE: Final = Keepalive(idle=10, interval=5, probes=3)
"""The times of our sessions: a silent loss is detected after 25 seconds (spec/event-log.md 12.2).
"""


class LockHolder(NamedTuple):
    """The session that has locked a log, as far as the database shows it: its number, its user,
    application and address (each empty if it is not shown), and the time when the session began.

    ``is_other`` means that the application of the locking session is neither eventlog nor the
    application of this session.
    """

    session: int
    user: str = ""
    application: str = ""
    address: str = ""
    since: datetime | None = None
    is_other: bool = False

    def __str__(self) -> str:
        parts = [
            f"session {self.session}",
            f"user {self.user}" if self.user else "",
            f"application {self.application!r}" if self.application else "",
            f"from {self.address}" if self.address else "",
            f"since {self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if self.since else "",
        ]
        return ", ".join(filter(None, parts))


class UnsafeSchema(NamedTuple):
    """A schema of a session's search path in which another role may create objects.

    ``creator`` is the role; None = every role. ``fix`` is the statement that makes the search path
    safe.
    """

    schema: str
    creator: str | None
    fix: str

    def __str__(self) -> str:
        who = "every role" if self.creator is None else f"the role {self.creator}"
        return (
            f"{who} may create objects in the schema {self.schema}, which is on the search path of "
            "this session: SQL of yours (conditions, post_poll_statements, functions of views) may "
            "call them with the rights of the session's user"
        )


class Refusal(NamedTuple):
    """The meaning of a failed connection: the advice for people, and whether trying again may
    succeed.

    ``advice`` None = nothing is known about the cause; ``{secret}`` in it stands for the place
    where the password is set. ``reason`` is the reason in short, empty = the driver's text.
    """

    advice: str | None
    passes: bool = False
    reason: str = ""


class Wake(Protocol):
    """The means by which a database wakes a sleeping publisher (spec/triggers.md 8).
    ``Dialect.wake`` has the implementation of a database.
    """

    def create(self, log: LogTable) -> Sequence[str]:
        """Return the statements that make the trigger of the log, or replace it."""

    def drop(self, log: LogTable) -> Sequence[str]:
        """Return the statements that drop what ``create`` makes, even if the log no
        longer exists.
        """

    def may_create(self, log: OpenLog) -> bool:
        """Return True if this session has the rights for ``create``."""

    def missing(self, log: OpenLog) -> str | None:
        """Return, in words, why writers send no notifications; None if writers send
        notifications.
        """

    def listen(self, log: OpenLog) -> None:
        """Begin to receive the notifications for this log. It takes effect when the transaction
        ends.
        """

    def fall_asleep(self, log: OpenLog) -> bool:
        """Let writers send notifications from now on. Returns False while a transaction is open
        whose writes will send no notification.
        """

    def wake_up(self, log: OpenLog) -> None:
        """Stop the notifications. Call this after ``fall_asleep`` has returned True."""

    def socket(self, conn: Connection) -> int:
        """Return the descriptor that becomes readable when a notification arrives, or when the
        connection is lost.
        """

    def was_notified(self, conn: Connection) -> bool:
        """Return True, without waiting, if a notification has arrived since the last call."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The place of a log's tables and indexes, and the names of its indexes and constraints.

    ``names`` maps default names to the requested ones. All names are written as in SQL: without
    quotes, they are case-insensitive.
    """

    tablespace: str | None = None
    index_tablespace: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.tablespace or self.index_tablespace or self.names)


class SqlDatabase(ABC):
    """A database: how to connect to it, how it writes names and values, which tables it has, and
    what a log consists of.
    """

    # Identity

    name: str
    capabilities: frozenset[str]
    """The names of ``CAPABILITIES`` that the database has."""
    driver: str
    """The SQLAlchemy driver name in URLs of the database."""
    extra: str = ""
    """The package extra that installs the driver; empty = the package itself installs the
    driver.
    """
    connect_advice: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The advice for errors that only people can fix, by the number in the driver's message;
    ``{secret}`` stands for the place where the password is set.
    """
    refused_by: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The causes outside the database that make a statement fail, each with advice. The key of a
    cause is a part of the driver's message.
    """
    plain_session: Sequence[str] = ()
    """The statements that each new session runs, also a session of ``connect_any``. They fix
    settings (spec/event-log.md 12.4): with other values a commit may end the session, a result may
    be incomplete, or SQLAlchemy may not recognize a table.
    """
    session: Sequence[str] = ()
    """Further statements for a session on a log and its tables. They fix settings, so that each
    value always has the same text when it is read.
    """
    max_identifier: int
    """The length of the longest identifier in bytes."""
    numbers_columns: bool = True
    """True if the database numbers the columns of a table (spec/event-log.md 1.3)."""
    lacks: frozenset[Kind] = frozenset()
    """The classes of column types that no version of the database has."""
    local_now: str
    """SQL of the server's local time."""
    utc_now: str
    """SQL of the present time in UTC, in the form of event_time."""

    engine_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The arguments for SQLAlchemy's dialect. They affect how SQLAlchemy compiles statements."""

    # Sessions

    @abstractmethod
    def connect_args(self, timeout: int) -> Mapping[str, object]:
        """Return the driver arguments for connecting within ``timeout`` seconds."""

    def guard_names(self, driver_connection: Any) -> None:
        """Let a new session look up the names in its statements where nobody else may create
        objects.
        """

    def first_statements(self, driver_connection: Any) -> Sequence[str]:
        """Return the statements that a new session of eventlog runs first, in as few texts as the
        driver takes: each text is a round trip. Nobody reads their results.
        """
        return (*self.plain_session, *self.session)

    def keepalive_args(self) -> Mapping[str, object]:
        """Return the driver arguments by which this end of a connection detects that the server's
        host is gone. Options of the URL take precedence.
        """
        return {}

    def driver_arguments(self, url: URL) -> Mapping[str, object] | None:
        """Return the arguments that the driver gets for a URL in place of SQLAlchemy's arguments;
        None = SQLAlchemy's arguments are right.

        Raises ConfigError for a URL that the driver cannot use.
        """
        return None

    def name_session(self, driver_connection: Any) -> None:
        """Set the name under which the server shows a new session, if the driver can.

        Raises ConfigError for a server of another database.
        """

    def begin(self, connection: PoolProxiedConnection) -> None:
        """Begin a transaction of a driver's connection, unless the driver itself begins it."""

    def listen(self, engine: Engine) -> None:
        """Add listeners to a new engine if its statements need special treatment."""

    def check_url(self, url: URL) -> None:
        """Raise ConfigError or DatabaseError for a URL that cannot lead to a log."""

    def is_there(self, url: URL) -> bool:
        """Return False if the database is known not to exist yet. The method finds this out without
        a session.
        """
        return True

    def prepare(self, url: URL) -> None:
        """Prepare a database for a log, before the first migration, outside of any transaction."""

    def refusal(self, error: BaseException) -> Refusal:
        """Return what the error of a failed connection means, by default from
        ``connect_advice``.
        """
        advice = next(
            (advice for sign, advice in self.connect_advice.items() if sign in str(error)), None
        )
        return Refusal(advice, passes=advice is None)

    refusal_ends_transaction: bool = False
    """True if a transaction accepts no further statement after a refused statement."""

    def refuses(self, error: BaseException) -> bool:
        """Return True if an operational error of the driver is the statement's own fault, so that
        trying again cannot help.
        """
        return False

    def passes(self, error: BaseException) -> bool:
        """Return True if an error of any other kind is transient, so that trying again may help."""
        return False

    def lacks_right(self, error: BaseException) -> bool:
        """Return True if a driver's error means that the user lacks a right."""
        return False

    def may_quote_rows(self, error: BaseException) -> bool:
        """Return True if the message of a driver's error may quote a value of a row."""
        return not (self.passes(error) or self.lacks_right(error))

    def error_name(self, error: BaseException) -> str:
        """Return the name of a driver's error, which quotes no value."""
        return type(error).__name__

    # Names and values

    def quote(self, name: str) -> str:
        """Return a name as an SQL identifier, always quoted (spec/triggers.md 9)."""
        return quote_identifier(name)

    def qualified(self, schema: str | None, name: str) -> str:
        """Return a name with its schema as SQL. A name without a schema is found in the session's
        current schema.
        """
        return qualified(schema, name, self.quote)

    def fold_name(self, name: str) -> str:
        """Return an unquoted name as the database stores it."""
        return name

    def spelled(self, name: str) -> str:
        """Return a name as the database stores it. The given name is written as in SQLAlchemy and
        in the configuration, where lower case = case-insensitive.
        """
        return str(name)

    @abstractmethod
    def value_text(self, column: Column, ref: str) -> str:
        """Return SQL of a column's value as log text (spec/triggers.md 6).

        ``ref`` is SQL of the column reference.
        """

    # Rights

    drawing: ClassVar[str] = "SELECT"
    """The rights, as in a GRANT, that a role needs to draw delivery numbers."""

    def granted(self, log: LogTable, part: Part, rights: Collection[Right]) -> str:
        """Return rights on a part of the log as a GRANT lists them."""
        if part is Part.NUMBERS:
            return self.drawing
        columns = [
            self.quote(log.column(field))
            for right in Right
            if right in rights
            for field in right.columns
        ]
        words = {
            right.statement: f"UPDATE ({', '.join(columns)})" if right.columns else right.value
            for right in Right
            if right in rights and right is not Right.LOCK
        }
        return ", ".join(words.values())

    # The parts of a log's tables (spec/triggers.md 7, spec/event-log.md 10). The statements of
    # ``before_...`` and ``after_...`` run next to Alembic's own; the statements of ``drop_...``
    # drop objects that dropping a table leaves.

    column_types: ClassVar[Mapping[str, TypeEngine[Any]]]
    """The column types, by the purpose of a column.

    The purposes are integer (record_ids, counts), status, event_type, event_time, name (of users,
    tables, columns), key, value, time (of internal tables), code, digest, text.
    """
    queue_by_expression: bool = False
    """True if the publisher reads by an index of ``CASE status WHEN 'N' THEN record_id END``. The
    index contains only rows of status N. It is for databases whose indexes cannot have a condition
    (spec/triggers.md 7).
    """
    prologue: Sequence[str] = ("BEGIN;", "")
    """The first lines of a script for the database's own tool."""
    epilogue: Sequence[str] = ("", "COMMIT;")
    """The last lines of a script for the database's own tool."""

    def record_id(self, log: LogTable, comment: str) -> sa.Column[Any]:
        """Return the column record_id of the log, with the source of its numbers."""
        # CACHE 1: with a cache the numbers of two sessions' changes of one row may
        # be in the wrong order.
        numbers = sa.Identity(always=False, cache=1)
        return sa.Column(
            "record_id", self.column_types["integer"], numbers, primary_key=True, comment=comment
        )

    @abstractmethod
    def log_checks(self) -> Sequence[str]:
        """Return the CHECKs of the log: status is a letter, event_type is 1 to 8. Return none if
        CHECKs would slow down the log's writers.
        """

    def create_queue_index(self, log: LogTable) -> str:
        """Return the statement that creates the index by which the publisher reads. It contains
        only rows of status N.
        """
        index, table = self.quote(log.own_name("idx_{}_1")), self.qualified(log.schema, log.name)
        return f"CREATE INDEX {index} ON {table} (record_id) WHERE status = 'N'"

    def before_log(self, log: LogTable) -> Sequence[str]:
        """Return the statements that make the objects that the log's own columns need."""
        return ()

    def drop_before_log(self, log: LogTable) -> Sequence[str]:
        """Return the statements that drop what ``before_log`` makes."""
        return ()

    def after_log(self, log: LogTable) -> Sequence[str]:
        """Return the statements that make the objects of the log that are not columns, such as the
        function that quotes keys.
        """
        return ()

    def drop_after_log(self, log: LogTable) -> Sequence[str]:
        """Return the statements that drop what ``after_log`` makes."""
        return ()

    def after_upgrade(self, log: LogTable) -> Sequence[str]:
        """Return the statements that end each upgrade of a log: they give what a superuser made to
        the owner of the log (spec/triggers.md 7.7).
        """
        return ()

    @abstractmethod
    def after_internal_tables(self, log: LogTable) -> Sequence[str]:
        """Return the statements that make the source of delivery numbers and all other objects that
        the internal tables need.
        """

    def create_deferred(self, log: LogTable) -> Sequence[str]:
        """Return the statements that make ``<log>_deferred``, if this database logs rows at the
        commit.
        """
        return ()

    def drop_deferred(self, log: LogTable) -> Sequence[str]:
        """Return the statements that drop what ``create_deferred`` makes."""
        return ()

    def drop_after_internal_tables(self, log: LogTable) -> Sequence[str]:
        """Return the statements that drop what ``after_internal_tables`` makes."""
        return [f"DROP SEQUENCE {self.qualified(log.schema, log.number_sequence)}"]

    def after_table(self, log: LogTable, part: Part, index: str = "") -> Sequence[str]:
        """Return the statements that complete an internal table after its creation.

        ``index`` is the name of a unique index of columns that are never NULL, empty = there is no
        such index.
        """
        return ()

    def deny_others(self, log: LogTable, tables: Sequence[str]) -> Sequence[str]:
        """Return the statements that take from other roles what they got by default on new tables
        of the log or its source of delivery numbers, and on the functions that belong to these
        tables. The log's readers get SELECT.
        """
        return ()

    constraint_names: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """SQLAlchemy's naming convention for the constraints of a log's tables; empty = the server
    names them.
    """

    def placed(self, text: str, storage: Storage) -> str:
        """Adapt statements that create tables and indexes to a storage, and return them. Raises
        ConfigError if the database does not support the storage.
        """
        if storage:
            raise ConfigError(
                "only `db upgrade` on Oracle takes a tablespace and names of indexes: remove these "
                f"options on {self.name}"
            )
        return text

    def as_script(self, printed: str) -> str:
        """Return the output of Alembic as a script for the database's own tool. The script can be
        run again if the database allows it.
        """
        return printed

    # The epoch of a log (spec/event-log.md 7.4)

    server_sql: ClassVar[str] = "NULL"
    """SQL of a JSON object with those ``server_parts`` that plain SQL shows to every user."""
