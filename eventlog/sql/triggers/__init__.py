"""Plan and apply triggers. ``Triggers``, with a subclass for each database, makes the plan that
brings the triggers of a database to the declared state.

The module ``watch`` defines a watch, and ``declared`` defines the rows that the tables of a watch
log. ``planner`` compares compiled triggers with the installed ones. ``marked`` does so for triggers
whose text contains a hash of their declaration. See spec/triggers.md 2, 9, 10.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Catalog, Database
from eventlog.errors import (
    DatabaseError,
    DatabaseUnavailable,
    EventlogError,
    LogTableError,
    TriggerError,
    together,
)
from eventlog.sql import LOCK_TIMEOUT
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import AS_OWNER, as_database_errors, open_database
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import Part, Purpose, Right, grants_advice, rights_for
from eventlog.sql.port.sql_files import grouped
from eventlog.sql.triggers.captured import (
    CapturedTable,
    Identity,
    Renamed,
    as_captured,
    ended_captures,
    forget_captured,
    has_table,
    read_captured,
    recorded_keys,
    renamed_tables,
    uncaptured_since,
    unlike_entries,
    write_captured,
)
from eventlog.sql.triggers.declared import TableName, TableTriggers, declared_triggers, warnings_of
from eventlog.sql.triggers.uncaptured import Uncaptured
from eventlog.sql.triggers.watch import WatchedTable

NO_LONGER_WATCHED: Final = "no longer watched"
"""The reason for dropping the triggers of a table that no watch names."""
ALL_GO: Final = "all triggers of the log are dropped"
FactLiterals = Mapping[str, Any]
"""Further facts on which the SQL of triggers depends, in a form that a migration contains."""
_NO_FACTS: Final[FactLiterals] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TableSql:
    """The SQL of one table."""

    table: str
    """The name of the table, as in actions."""
    digest: str
    """A hash of the other fields."""
    create: tuple[str, ...]
    """The statements that create functions, and then the triggers that call them.
    """
    drop: tuple[str, ...]
    """The statements that drop triggers, and then the functions that they call.
    """


class InstalledTrigger(NamedTuple):
    """One trigger of the log, with its SQL and the SQL of its function. ``function`` and
    ``function_sql`` are None if the trigger has no function.
    """

    table: str
    trigger: str
    function: str | None
    enabled: bool
    trigger_sql: str
    function_sql: str | None


@dataclass(frozen=True, slots=True)
class Action:
    """The action for one table, and its reason.

    ``statements`` is SQL text. It is empty if the table is ``unchanged``, if its triggers match
    the declaration but did not capture some earlier change (``resync``), or if its capture has
    ``ended``, which only a watch or ``Triggers.accept`` can change (spec/triggers.md 9.1).
    """

    kind: Literal["create", "replace", "drop", "resync", "ended", "unchanged"]
    table: str
    reason: str
    statements: tuple[str, ...] = ()
    uncaptured: tuple[Uncaptured, ...] = ()
    is_former: bool = False
    """True if an earlier version made the triggers. They log as they did before."""


@dataclass(frozen=True, slots=True)
class TriggerPlan:
    """The actions that bring the database to the declared state."""

    actions: tuple[Action, ...]
    warnings: tuple[str, ...] = ()
    not_captured: tuple[str, ...] = ()
    """Warnings, and what no trigger captures (spec/triggers.md 7.3), as sentences for people."""
    refused: tuple[str, ...] = ()
    """Sentences on impossible watches. Their triggers are not changed. The triggers of tables that
    no watch names are not changed either, since these tables may be the tables of the refused
    watches under another name.
    """
    captured: tuple[CapturedTable, ...] = ()
    """The declared tables as they are now; `triggers apply` records them."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The hash of the installed triggers of each table, as ``Triggers.digests`` returns it."""
    lacking: tuple[str, ...] = ()
    """The reasons why this role cannot apply the plan, though it can read it."""
    ungranted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The statements that grant the owner of a table what its trigger functions need, by the
    table's name in actions, if a superuser makes or owns these functions.
    """
    renamed: tuple[Renamed, ...] = ()
    """The recorded tables that have other names now, without those that ``renamed_from`` names."""
    grants: tuple[str, ...] = ()
    """The statements that let the roles that publish read the captured tables."""
    lacks_log: bool = False
    """True if there is no log yet, so that nothing can be applied."""

    @classmethod
    def of_new(cls, tables: Iterable[TableSql]) -> TriggerPlan:
        """Return the plan for a database that has none of these triggers yet."""
        return cls(tuple(Action("create", one.table, "watched", one.create) for one in tables))

    @property
    def changes(self) -> tuple[Action, ...]:
        """The actions with statements."""
        return tuple(action for action in self.actions if action.statements)

    @property
    def differences(self) -> tuple[Action, ...]:
        """The actions with which ``apply`` changes or records something."""
        return tuple(action for action in self.actions if action.statements or action.uncaptured)

    @property
    def ended(self) -> tuple[Action, ...]:
        """The tables whose capture has ended (spec/triggers.md 9.1)."""
        return tuple(action for action in self.actions if action.kind == "ended")

    @property
    def faults(self) -> tuple[Action, ...]:
        """The tables that are ``ended``, and the ``differences`` that keep triggers from logging as
        declared.
        """
        own = (one for one in self.differences if not one.is_former or one.uncaptured)
        return (*self.ended, *own)

    @property
    def uncaptured(self) -> tuple[Uncaptured, ...]:
        """The changes, in any table, that no trigger has logged."""
        return tuple(
            dict.fromkeys(change for action in self.actions for change in action.uncaptured)
        )

    @property
    def unwatched(self) -> tuple[str, ...]:
        """The captured tables that no watch names any longer."""
        return tuple(
            action.table for action in self.actions if action.reason.startswith(NO_LONGER_WATCHED)
        )

    @property
    def kept(self) -> tuple[str, ...]:
        """The captured tables that no watch names, and whose triggers stay (``refused``)."""
        return tuple(action.table for action in self.actions if action.reason == _KEPT)


class Triggers(ABC):
    """The triggers of one database. The class has the interface for the core, and the methods that
    each database implements.
    """

    script_head: Sequence[str] = ("BEGIN;",)
    """The first lines of a script for the database's own tool."""
    script_end: Sequence[str] = ("COMMIT;", "")
    """The last lines of a script for the database's own tool."""

    # Methods that a database must provide

    @abstractmethod
    def find_log(self, log: OpenLog) -> OpenLog:
        """Return the log as the database has it. Raises LogTableError if it is missing."""

    @abstractmethod
    def tables_sql(
        self,
        schema: str | None,
        log: LogTable,
        declared: Sequence[TableTriggers],
        facts: FactLiterals,
    ) -> list[TableSql]:
        """Return the SQL of the declared triggers, table by table. Raises TriggerError for triggers
        that cannot be compiled.
        """

    @abstractmethod
    def plan_declared(
        self, log: OpenLog, schema: str | None, declared: Sequence[TableTriggers]
    ) -> TriggerPlan:
        """Return the plan of the declared triggers.

        ``log`` is as the database has it; ``schema`` is the schema of the classes. Raises
        TriggerError for triggers that could not run, DatabaseError if the present state cannot be
        read.
        """

    @abstractmethod
    def plan_drop(self, log: OpenLog) -> TriggerPlan:
        """Return the plan that drops all visible triggers that write to a log; the log stays.

        Raises LogTableError if the log is missing.
        """

    @abstractmethod
    def installed(self, log: OpenLog) -> list[InstalledTrigger]:
        """Return the triggers that write to a log, for display, in the order of tables and names.
        The database stays unchanged.
        """

    @abstractmethod
    def tables_of(self, log: OpenLog) -> list[TableName]:
        """Return the tables with triggers that write to a log. The log need not exist."""

    @abstractmethod
    def digests(self, log: OpenLog, tables: Collection[TableName] = ()) -> Mapping[str, str]:
        """Return the hash of the installed triggers of each table (named as in ``TableSql.table``).
        On ``tables``, triggers that were made for the log under a former name are included
        (spec/triggers.md 9.3).
        """

    # Methods that a database may override

    def facts(self, log: OpenLog, database: Database, tables: Collection[str]) -> FactLiterals:
        """Return the facts besides these tables on which the SQL of ``plan`` depends, as literals
        for ``compile``.
        """
        return _NO_FACTS

    def identities(
        self, conn: Connection, tables: Collection[TableName]
    ) -> Mapping[TableName, Identity]:
        """Return the internal numbers of tables and their columns, such as OIDs; empty if the
        database has no such numbers.
        """
        return {}

    @contextmanager
    def applying(
        self, conn: Connection, _plan: TriggerPlan, _lock_timeout: float
    ) -> Iterator[None]:
        """Run the block in a savepoint: all of its statements or none take effect, if DDL is
        transactional.
        """
        with conn.begin_nested():
            yield

    def locked_out(
        self,
        conn: Connection,
        plan: TriggerPlan,
        action: Action,
        error: DBAPIError,
        lock_timeout: float,
    ) -> DatabaseError | None:
        """Return the error to raise if an error of ``action`` means that a table was locked for too
        long, otherwise None.
        """
        return None

    def settings(self, lock_timeout: float) -> Sequence[str]:
        """Return the statements that set how long a plan waits for a table."""
        return ()

    def ended(self, statements: Iterable[str]) -> Iterable[str]:
        """Yield statements with their terminator in a script."""
        return (f"{statement.rstrip()};" for statement in statements)

    # The interface for the core

    def compile(
        self,
        database: Database,
        catalog: Catalog,
        log: LogTable,
        watches: Sequence[WatchedTable],
        facts: FactLiterals = _NO_FACTS,
    ) -> tuple[TableSql, ...]:
        """Return the SQL of the declared triggers, table by table, from the catalogue and ``facts``
        alone.

        It does not query the database, so it cannot see which names are in use there. Raises
        TriggerError for a watch that cannot be compiled.
        """
        declared, _, refused = declared_triggers(database, catalog, watches)
        if refused:
            raise together(list(refused.values()))
        return tuple(self.tables_sql(database.schema, log, declared, facts))

    def plan(
        self,
        log: OpenLog,
        database: Database,
        catalog: Catalog,
        watches: Sequence[WatchedTable],
        refused: Mapping[str, EventlogError] = MappingProxyType({}),
        without_key: Collection[str] = (),
    ) -> TriggerPlan:
        """Return the plan that brings the triggers that write to a log to the declared state: one
        action for each table, with its reason.

        ``database`` is the reflected schema, ``catalog`` its classes, built with or without
        ``excluded_columns``. ``refused`` are tables to leave out, with the reason; ``without_key``
        are tables without a primary key that the patterns of watches match. Triggers of the log
        that no watch declares are dropped, unless a watch is refused. The database stays
        unchanged. Raises LogTableError if the log is missing, TriggerError for triggers that could
        not run, DatabaseError.
        """
        log = self.find_log(log)
        declared = declared_triggers(database, catalog, watches, log.db.reflect, refused)
        plan = self.plan_declared(log, database.schema, declared.tables)
        entries = self._entries(log)
        known = set(chain.from_iterable(catalog.former_names().values()))
        found = renamed_tables(entries, database, partial(self.identities, log.connection))
        renamed = [one for one in found if one.former not in known]
        why = {
            one.former: TriggerError(f"the table {one.former!r} has the name {one.present!r} now")
            for one in renamed
        }
        errors = {name: why.get(name, error) for name, error in declared.refused.items()}
        declared = declared._replace(refused=errors)
        actions = plan.actions
        if declared.refused or plan.refused:
            actions = tuple(
                Action("unchanged", action.table, _KEPT)
                if action.reason == NO_LONGER_WATCHED
                else action
                for action in actions
            )
        tables = by_place(declared.tables, database.schema)
        captured = as_captured(
            tables.values(),
            database.schema,
            plan.digests,
            self.identities(log.connection, tables),
            catalog.former_names(),
        )
        uncaptured = uncaptured_since(entries, captured)
        watched = [*(watch.table for watch in watches), *without_key]
        ended = ended_captures(entries, captured, database, watched, catalog.no_children)
        actions = tuple(
            _with_uncaptured(
                _with_child_reason(action, database.schema, catalog.no_children),
                uncaptured.get(action.table, ()),
            )
            for action in actions
        )
        has_triggers = {action.table for action in actions}
        actions += tuple(
            Action("ended", table, why) for table, why in ended.items() if table not in has_triggers
        )
        sentences = dict.fromkeys(
            (*declared.warnings, *warnings_of(declared.tables), *plan.warnings)
        )
        return replace(
            plan,
            actions=actions,
            warnings=tuple(sentences),
            refused=(*declared.refusals, *plan.refused),
            captured=captured,
            renamed=tuple(renamed),
        )

    def unlike_recorded(
        self,
        log: OpenLog,
        database: Database,
        catalog: Catalog,
        watches: Sequence[WatchedTable],
        refused: Mapping[str, EventlogError] = MappingProxyType({}),
    ) -> tuple[str, ...]:
        """Return one sentence per declared table that is not as `triggers apply` has recorded it.

        The method is for a role to which the database shows no triggers. It needs only the right to
        read the record. The arguments are as in ``plan``.
        """
        log = self.find_log(log)
        if not (entries := self._entries(log)):
            return ()
        declared = declared_triggers(database, catalog, watches, log.db.reflect, refused)
        tables = by_place(declared.tables, database.schema)
        present = {
            place: [column.name for column in of_table[0].table.columns]
            for place, of_table in tables.items()
        }
        captured = as_captured(tables.values(), database.schema, {}, {})
        watched = [watch.table for watch in watches]
        ended = ended_captures(entries, captured, database, watched, catalog.no_children)
        return (
            *unlike_entries(entries, captured, present),
            *(f"{table}: {why}" for table, why in ended.items()),
        )

    def recorded_keys(self, log: OpenLog, tables: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return, by class, the key columns by which the triggers of these tables log objects, as
        the last apply recorded them. Return none if this session may not read the record.
        """
        return recorded_keys(self._entries(log), tables)

    def _entries(self, log: OpenLog) -> tuple[CapturedTable, ...]:
        """Return the rows of ``<log>_captured``; empty if there is no such table, or if this
        session may not read it.
        """
        return read_captured(log) if not self._unreadable(log, Right.SELECT) else ()

    def write_to(self, log: OpenLog) -> bool:
        """Return True if triggers of eventlog write to a log: triggers that this session sees, or
        triggers that the last apply recorded.
        """
        return bool(self.tables_of(log) or self._entries(log))

    def _unreadable(self, log: OpenLog, *rights: Right) -> list[str]:
        what = log.table.captured_table
        try:
            with log.connection.begin_nested():
                if not has_table(log):
                    return [f"the table {what}, which `eventlog db upgrade` creates"]
                return log.lacking((Part.CAPTURED, right) for right in rights)
        except DBAPIError as error:  # a role that has not even a right on the schema of the log
            if error.connection_invalidated:
                raise
            return [f"{', '.join(rights)} on table {what}"]

    def record(self, log: OpenLog, plan: TriggerPlan) -> list[str]:
        """Record in ``<log>_captured`` what an applied plan captures. Return, in words, the rights
        that this session lacks for the record. The caller commits.
        """
        log = self.find_log(log)
        needed = rights_for(Purpose.TRIGGERS)[Part.CAPTURED]
        rights = [right for right in Right if right in needed]
        if plan.captured and not (missing := self._unreadable(log, *rights)):
            digests = self.digests(log)
            now = (replace(one, digest=digests.get(one.name)) for one in plan.captured)
            write_captured(log, [one for one in now if one.digest is not None])
            return []
        return missing if plan.captured else []

    def accept(self, log: OpenLog, tables: Collection[str]) -> None:
        """Accept that the capture of these tables, named as in actions, has ended. The caller
        commits.

        Raises LogTableError if this session lacks a right.
        """
        if missing := self._unreadable(log, Right.DELETE):
            raise LogTableError(f"this role lacks {'; '.join(missing)}")
        for entry in self._entries(log):
            if entry.name in tables:
                forget_captured(log, entry.place)

    def apply(
        self, conn: Connection, plan: TriggerPlan, lock_timeout: float = LOCK_TIMEOUT
    ) -> None:
        """Run the statements of a plan, all or none if DDL is transactional. The caller commits.

        With transactional DDL every change is logged, either by an old trigger or by a new one.
        ``lock_timeout`` is the number of seconds to wait for a table lock, 0 = no limit; writers of
        the table wait meanwhile. Raises DatabaseError if the database refuses a statement, if a
        trigger does not compile, or if a table stays locked for too long; TriggerError for triggers
        that could not run.
        """
        if not plan.changes:
            return
        if plan.lacking:
            raise together([TriggerError(reason) for reason in plan.lacking])
        action, run = plan.changes[0], open_database(conn).run
        locked_out: DatabaseError | None = None
        try:
            with as_database_errors(conn, _right_to_apply(conn)):
                try:
                    with self.applying(conn, plan, lock_timeout):
                        for action in plan.changes:
                            for statement in action.statements:
                                run(statement)
                except DBAPIError as error:
                    locked_out = self.locked_out(conn, plan, action, error, lock_timeout)
                    if locked_out is None:
                        raise
                    raise locked_out from error
        except DatabaseError as error:
            if error is locked_out or isinstance(error, DatabaseUnavailable):
                raise
            raise DatabaseError(f"the triggers of {action.table}: {error}") from error

    def script(self, plan: TriggerPlan, lock_timeout: float = LOCK_TIMEOUT) -> str:
        """Return the statements of a plan as a script for the database's own tool; a plan without
        statements results in a comment.
        """
        if not plan.changes:
            return "-- Nothing to do: the triggers are as declared.\n"
        lines = [*self.script_head, *(f"{setting};" for setting in self.settings(lock_timeout)), ""]
        for action in plan.changes:
            # A name may contain a line break: in a comment, the text after it would be run as SQL.
            lines.append(f"-- {action.kind} {one_line(action.table)}: {one_line(action.reason)}")
            lines += [*self.ended(action.statements), ""]
        return "\n".join([*lines, *self.script_end])


def triggers_of(dialect: Dialect) -> Triggers:
    """Return the triggers of a database: what they log, and how they are made."""
    triggers: Triggers = import_module(f"eventlog.sql.dialects.{dialect.name}.triggers").TRIGGERS
    return triggers


_KEPT: Final = (
    "no watch names this table; its triggers stay, because it may be the table of a watch whose "
    "table was not found"
)
"""The reason of the action that keeps the triggers of a table instead of dropping them."""


def _with_uncaptured(action: Action, uncaptured: Sequence[Uncaptured]) -> Action:
    """Return an action with the uncaptured changes of its table added."""
    if not uncaptured or action.kind == "drop":
        return action
    every = tuple(dict.fromkeys((*action.uncaptured, *uncaptured)))
    if action.statements:
        return replace(action, uncaptured=every)
    reasons = "; ".join(dict.fromkeys(change.reason for change in every))
    return replace(action, kind="resync", reason=reasons, uncaptured=every)


def _with_child_reason(
    action: Action, schema: str | None, no_children: Mapping[str, str]
) -> Action:
    """Return the action. If its table is no longer captured as a child table, add the reason."""
    if action.reason == NO_LONGER_WATCHED:
        for name, why in no_children.items():
            if action.table in (name, f"{schema}.{name}"):
                return replace(action, reason=f"{NO_LONGER_WATCHED}: {why}")
    return action


def missing_log(log: LogTable) -> LogTableError:
    """Return the error for triggers whose log does not exist."""
    return LogTableError(f"the log {log} does not exist: run `eventlog db upgrade` first")


def made_for(log: str, *, fails: bool = True) -> str:
    """Return the reason for replacing triggers after the log was renamed or moved to another
    schema. ``log`` is the former name, as SQL; ``fails`` means that the triggers still write to
    that name.
    """
    meanwhile = ": writes to the table fail until they are applied" if fails else ""
    return f"its triggers were made for {log}, which does not exist any more{meanwhile}"


def warnings_of_missing_log(log: LogTable, tables: Iterable[TableName]) -> Iterator[str]:
    """Yield a warning for each of these tables. Their triggers write to a missing log."""
    for table in tables:
        yield (
            f"{'.'.join(filter(None, table))} has triggers that write to {log}, which does not "
            "exist: writes to the table fail. If the log was renamed or moved, set log_table in "
            "[database] to its present name and run `eventlog triggers apply`"
        )


def warnings_of_lost_logs(lost: Mapping[TableName, Iterable[str]]) -> Iterator[str]:
    """Yield a warning for each table whose triggers write to a log that does not exist. A former
    name of this log causes no warning. ``lost`` has the names of the logs, as SQL.
    """
    for table, logs in sorted(lost.items()):
        yield (
            f"{'.'.join(filter(None, table))} has triggers that were made for {', '.join(logs)}, "
            "which does not exist: writes to the table may fail. Run `eventlog triggers apply` "
            "with the configuration of that log, or drop the triggers"
        )


def error_for_log_table(table: str) -> TriggerError:
    """Return the error for a declared table that is the log or one of its internal tables."""
    what = "triggers on it would log their own rows in an endless loop"
    return TriggerError(
        f"{table} is the log or one of its internal tables: {what}. Remove it from the watches"
    )


# --- names, hashes, tables ------------------------------------------------------------------------


def first_free(name_of: Callable[[int], str], is_used: Callable[[str], bool]) -> str:
    """Return the first name that is not in use; ``name_of`` returns the names 1, 2, ...
    (spec/triggers.md 9).
    """
    number = 1
    while is_used(name := name_of(number)):
        number += 1
    return name


def one_line(comment: str) -> str:
    """Return a text without line breaks, for a comment of SQL."""
    return " ".join(comment.split())


def sha256(text: str) -> str:
    """Return the hash of a compiled text."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(digests: Iterable[str]) -> str:
    """Return one hash for all triggers of a table, computed from the hashes of the triggers."""
    return sha256("\n".join(sorted(digests)))


def by_place(
    declared: Iterable[TableTriggers], schema: str | None
) -> dict[TableName, list[TableTriggers]]:
    """Return the declarations by their tables. ``schema`` is the schema of the classes."""
    return grouped(((one.schema or schema or "", one.table.name), one) for one in declared)


class _OfTable(Protocol):
    @property
    def place(self) -> TableName: ...


T = TypeVar("T", bound=_OfTable)


def by_table(compiled: Iterable[T]) -> list[list[T]]:
    """Return the declarations of each table; the tables are in the order of their first
    declarations.
    """
    return list(grouped((one.place, one) for one in compiled).values())


def _right_to_apply(conn: Connection) -> str:
    """Return what to do if this session lacks a right to apply triggers."""
    to_grant = grants_advice(conn.engine.url.username, Purpose.TRIGGERS)
    return f"{AS_OWNER} of the tables; if another role owns the log: {to_grant}"
