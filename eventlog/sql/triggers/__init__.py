"""Triggers: what is to be done to have those that are declared, with a subclass of ``Triggers`` for each database.

What a watch is tells ``watch``, what its tables log ``declared``; ``marked`` are the triggers whose own text tells what
they were compiled of. See spec/triggers.md 2, 9, 10.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Catalog, Database
from eventlog.core.options import toml
from eventlog.errors import DatabaseAway, DatabaseError, EventlogError, LogTableError, TriggerError, together
from eventlog.sql.connection import AS_OWNER, as_database_errors, load_dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import quote_identifier
from eventlog.sql.triggers.declared import ClassTriggers, TableTriggers, declared_triggers, warnings_of
from eventlog.sql.triggers.watch import WatchedTable

LOCK_TIMEOUT: Final = 5.0
"""Seconds that applying waits for a table. Whoever writes it meanwhile waits behind."""
ANOTHER_TABLE: Final = "another table had this name, or none, when its triggers were made"
"""Why the changes of a table were not logged whose name was a captured table's."""
NEW_TO_CLASS: Final = "its rows were not captured with the class"
"""Why the changes of a table were not logged that is captured with a class that was captured before."""
NO_LONGER_WATCHED: Final = "no longer watched"
"""Why the triggers of a table go that no watch names."""
ALL_GO: Final = "all triggers of the log go"
_NO_FACTS: Final[Mapping[str, Any]] = MappingProxyType({})

TableName = tuple[str, str]
"""Schema and table; the schema is empty if the database has none, or if it is the session's."""


@dataclass(frozen=True, slots=True)
class TableSql:
    """All that is declared for one table, as SQL. ``table`` as actions name it; ``digest``: a hash of the rest.

    ``create`` and ``drop``: statement by statement, functions before the triggers that call them and after them.
    """

    table: str
    digest: str
    create: tuple[str, ...]
    drop: tuple[str, ...]


class InstalledTrigger(NamedTuple):
    """One trigger of the log, with its own SQL and that of its function, None where a trigger has none."""

    table: str
    trigger: str
    function: str | None
    enabled: bool
    trigger_sql: str
    function_sql: str | None


@dataclass(frozen=True, slots=True)
class Gap:
    """What no trigger has logged of a class before a plan is applied (spec/triggers.md 9.1).

    ``reason`` in words; ``where``: SQL of the objects that it can be of, None = of any; ``deletes``: whether objects
    may be gone, too.
    """

    class_name: str
    reason: str
    where: str | None = None
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """What is to be done for one table, and why. ``statements`` is SQL text, none if the table is ``unchanged``."""

    kind: Literal["create", "replace", "drop", "unchanged"]
    table: str
    reason: str
    statements: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class TriggerPlan:
    """What brings the database to what is declared. ``warnings`` and ``not_captured`` are sentences for people.

    ``refused``: sentences on watches that cannot be followed. Their triggers stay as they are, and so do those of
    tables that no watch names, which may be theirs under another name.
    """

    actions: tuple[Action, ...]
    warnings: tuple[str, ...] = ()
    not_captured: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @classmethod
    def of_new(cls, tables: Iterable[TableSql]) -> TriggerPlan:
        """The plan for a database that has none of these triggers yet."""
        return cls(tuple(Action("create", one.table, "watched", one.create) for one in tables))

    @property
    def changes(self) -> tuple[Action, ...]:
        """The actions that do something."""
        return tuple(action for action in self.actions if action.statements)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What no trigger has logged before, of all tables."""
        return tuple(dict.fromkeys(gap for action in self.actions for gap in action.gaps))

    @property
    def unwatched(self) -> tuple[str, ...]:
        """The tables that are captured now and that no watch names any longer."""
        return tuple(action.table for action in self.actions if action.reason.startswith(NO_LONGER_WATCHED))


class Triggers(ABC):
    """The triggers of one database: what the core asks for, and what that is made of."""

    script_head: Sequence[str] = ("BEGIN;",)
    """The lines that a script for the database's own tool begins with."""
    script_end: Sequence[str] = ("COMMIT;", "")
    """The lines that it ends with."""

    # What a database must write

    @abstractmethod
    def find_log(self, conn: Connection, log: LogTable) -> LogTable:
        """The log as it is there. Raises LogTableError if it is missing."""

    @abstractmethod
    def tables_sql(
        self, schema: str | None, log: LogTable, declared: Sequence[TableTriggers], facts: Mapping[str, Any]
    ) -> list[TableSql]:
        """The SQL of what is declared, table by table. Raises TriggerError for what cannot be compiled."""

    @abstractmethod
    def plan_declared(
        self, conn: Connection, log: LogTable, schema: str | None, declared: Sequence[TableTriggers]
    ) -> TriggerPlan:
        """The plan of what is declared. ``log``: as it is there; ``schema``: of the classes.

        Raises TriggerError for triggers that could not run, DatabaseError if it cannot be told what is there.
        """

    @abstractmethod
    def plan_drop(self, conn: Connection, log: LogTable) -> TriggerPlan:
        """What takes all triggers away that write a log, found by what stands in the database; the log stays.

        Raises LogTableError if the log is missing.
        """

    @abstractmethod
    def installed(self, conn: Connection, log: LogTable) -> list[InstalledTrigger]:
        """The triggers that write a log, for people, in the order of tables and names. Nothing is changed."""

    @abstractmethod
    def digests(self, conn: Connection, log: LogTable) -> Mapping[str, str]:
        """Table (as ``TableSql.table`` has it) -> hash of what was compiled for it, for what is installed."""

    # What it may have of its own

    def facts(self, conn: Connection, database: Database, log: LogTable, tables: Collection[str]) -> Mapping[str, Any]:
        """What else compiling needs to know of these tables to give what ``plan`` does, as literals for ``compile``."""
        return _NO_FACTS

    @contextmanager
    def applying(self, conn: Connection, _plan: TriggerPlan, _lock_timeout: float) -> Iterator[None]:
        """All that is run in the block, or none of it, where DDL is transactional."""
        with conn.begin_nested():
            yield

    def locked_out(
        self, conn: Connection, plan: TriggerPlan, action: Action, error: DBAPIError, lock_timeout: float
    ) -> DatabaseError | None:
        """What to say if an error of ``action`` means that a table was locked for too long; None if it does not."""
        return None

    def settings(self, lock_timeout: float) -> Sequence[str]:
        """The statements that say how long a plan waits for a table."""
        return ()

    def ended(self, statements: Iterable[str]) -> Iterable[str]:
        """Statements as they stand in a script."""
        return (f"{statement.rstrip()};" for statement in statements)

    # What the core asks for

    def compile(
        self,
        database: Database,
        catalog: Catalog,
        log: LogTable,
        watches: Sequence[WatchedTable],
        facts: Mapping[str, Any] = _NO_FACTS,
    ) -> tuple[TableSql, ...]:
        """The SQL of what is declared, table by table, from the catalogue and from ``facts`` alone.

        No database is asked, so names that others use there are not seen. Raises TriggerError for a watch that
        cannot be compiled.
        """
        declared, _, refused = declared_triggers(database, catalog, watches)
        if refused:
            raise together(list(refused.values()))
        return tuple(self.tables_sql(database.schema, log, declared, facts))

    def plan(
        self,
        conn: Connection,
        database: Database,
        catalog: Catalog,
        log: LogTable,
        watches: Sequence[WatchedTable],
        refused: Mapping[str, EventlogError] = MappingProxyType({}),
    ) -> TriggerPlan:
        """Return what brings the triggers that write a log to what is declared: one action a table, with its reason.

        ``database`` is the reflected schema, ``catalog`` its classes, built with or without ``exclusions``;
        ``refused``: tables that are not to be looked at, with the reason. Triggers of the log that no watch declares
        are dropped, unless a watch is refused. Nothing is changed. Raises LogTableError if the log is missing,
        TriggerError for triggers that could not run, DatabaseError.
        """
        log = self.find_log(conn, log)
        reflect = partial(load_dialect(conn.dialect.name).reflect, conn)
        declared = declared_triggers(database, catalog, watches, reflect, refused)
        plan = self.plan_declared(conn, log, database.schema, declared.tables)
        actions = plan.actions
        if declared.refused or plan.refused:
            actions = tuple(_kept(action) if action.reason == NO_LONGER_WATCHED else action for action in actions)
        actions = tuple(_as_no_child(action, database.schema, catalog.no_children) for action in actions)
        sentences = dict.fromkeys((*declared.warnings, *warnings_of(declared.tables), *plan.warnings))
        return TriggerPlan(actions, tuple(sentences), plan.not_captured, (*declared.refusals, *plan.refused))

    def apply(self, conn: Connection, plan: TriggerPlan, lock_timeout: float = LOCK_TIMEOUT) -> None:
        """Run the statements of a plan, all or none where DDL is transactional. The caller commits.

        Where it is, no change goes unlogged between an old trigger and a new one. ``lock_timeout``: seconds to wait for
        a table, 0 = without end; whoever writes it meanwhile waits behind us. Raises DatabaseError if the database
        refuses a statement, if a trigger does not compile, or if a table is not to be had in time.
        """
        if not plan.changes:
            return
        action, run = plan.changes[0], load_dialect(conn.dialect.name).run
        locked_out: DatabaseError | None = None
        try:
            with as_database_errors(conn, AS_OWNER):
                try:
                    with self.applying(conn, plan, lock_timeout):
                        for action in plan.changes:
                            for statement in action.statements:
                                run(conn, statement)
                except DBAPIError as error:
                    locked_out = self.locked_out(conn, plan, action, error, lock_timeout)
                    if locked_out is None:
                        raise
                    raise locked_out from error
        except DatabaseError as error:
            if error is locked_out or isinstance(error, DatabaseAway):
                raise
            raise DatabaseError(f"the triggers of {action.table}: {error}") from error

    def drop(self, conn: Connection, log: LogTable) -> TriggerPlan:
        """Take away what ``plan_drop`` names, and say what it was. The caller commits."""
        dropped = self.plan_drop(conn, log)
        self.apply(conn, dropped)
        return dropped

    def script(self, plan: TriggerPlan, lock_timeout: float = LOCK_TIMEOUT) -> str:
        """The statements of a plan as the database's own tool runs them; a comment alone if there is nothing to do."""
        if not plan.changes:
            return "-- Nothing to do: the triggers are as declared.\n"
        lines = [*self.script_head, *(f"{setting};" for setting in self.settings(lock_timeout)), ""]
        for action in plan.changes:
            # A name may hold a line break, and what follows it would be SQL.
            lines.append(f"-- {action.kind} {one_line(action.table)}: {one_line(action.reason)}")
            lines += [*self.ended(action.statements), ""]
        return "\n".join([*lines, *self.script_end])


def _kept(action: Action) -> Action:
    """Return that the triggers of a table stay, in place of an action that drops them."""
    return Action("unchanged", action.table, "named by no watch; kept, since it may be a table that a watch misses")


def _as_no_child(action: Action, schema: str | None, no_children: Mapping[str, str]) -> Action:
    """Return the action with the reason why its table, which was captured as a child table, is none any more."""
    if action.reason == NO_LONGER_WATCHED:
        for name, why in no_children.items():
            if action.table in (name, f"{schema}.{name}"):
                return replace(action, reason=f"{NO_LONGER_WATCHED}: {why}")
    return action


def missing_log(log: LogTable) -> LogTableError:
    """What to raise where triggers are asked for, and there is no log."""
    return LogTableError(f"the log {log} is missing: run `eventlog db upgrade` first")


def of_the_log(table: str) -> TriggerError:
    """What to raise for a declared table that is the log or one of its companions."""
    what = "triggers on it would log their own rows without end"
    return TriggerError(f"{table} is the log, or belongs to it: {what}")


# --- names, hashes, tables --------------------------------------------------------------------------------------------


def first_free(name_of: Callable[[int], str], is_used: Callable[[str], bool]) -> str:
    """The first of the names 1, 2, ... that is not in use (spec/triggers.md 9)."""
    number = 1
    while is_used(name := name_of(number)):
        number += 1
    return name


def one_line(comment: str) -> str:
    """A text as the rest of a comment's line."""
    return " ".join(comment.split())


def sha256(text: str) -> str:
    """The hash of what was compiled."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(digests: Iterable[str]) -> str:
    """One hash of those of a table's triggers."""
    return sha256("\n".join(sorted(digests)))


class _OfTable(Protocol):
    @property
    def place(self) -> TableName: ...


T = TypeVar("T", bound=_OfTable)


def by_table(compiled: Iterable[T]) -> list[list[T]]:
    """What is declared for each table, in the order of the first."""
    tables: defaultdict[TableName, list[T]] = defaultdict(list)
    for one in compiled:
        tables[one.place].append(one)
    return list(tables.values())


# --- what became of columns -------------------------------------------------------------------------------------------

Columns = Mapping[str, str]
"""Column name -> its type as the database spells it, in the table's order."""


def column_changes(before: Columns, now: Columns, new: str = "new", unwatched: Iterable[str] = ()) -> tuple[str, ...]:
    """What became of the columns of one table, each without its subject: ``column x (text) is new``.

    ``new``: what is said of a column that was not there before; ``unwatched``: columns that no watch names any longer.

    A column that is gone counts as renamed if one of its type has come in its place, behind the same column: a
    catalogue does not tell that from a column dropped and another one added.
    """
    renamed = _renamed(before, now)
    lost = [name for name in before if name not in now and name not in renamed]
    gained = [name for name in now if name not in before and name not in renamed.values()]
    retyped = [name for name in before if name in now and before[name] != now[name]]
    return (
        *(f"column {old} is called {name} now (or was dropped, and {name} added)" for old, name in renamed.items()),
        *(f"column {name} is gone" for name in lost),
        *(f"column {name} is watched no longer" for name in unwatched),
        *(f"column {name} ({now[name]}) is {new}" for name in gained),
        *(f"column {name} is {now[name]} now, and was {before[name]}" for name in retyped),
    )


def _renamed(before: Columns, now: Columns) -> dict[str, str]:
    """The columns that count as renamed, old name -> new."""
    gained = [name for name in now if name not in before]
    renamed: dict[str, str] = {}
    for old in before:
        place = (before[old], _neighbour(old, before, now))
        if old not in now:
            name = next((name for name in gained if (now[name], _neighbour(name, now, before)) == place), None)
            if name is not None:
                renamed[old] = name
                gained.remove(name)
    return renamed


def _neighbour(name: str, columns: Columns, others: Columns) -> str | None:
    """The nearest column before this one that the others have too."""
    names = list(columns)
    return next((other for other in reversed(names[: names.index(name)]) if other in others), None)


def declared_otherwise(before: Columns, now: Columns, present: Collection[str]) -> tuple[str, ...]:
    """Why triggers that were compiled for other columns, or for the same, are not as declared.

    ``before`` is empty if it is not known; ``present``: all columns of the table, watched or not.
    """
    unwatched = [name for name in before if name not in now and name in present]
    watched = {name: before[name] for name in before if name not in unwatched}
    words = column_changes(watched, now if before else {}, "new to the watch, and not captured yet", unwatched)
    return words or ("the watch, its table or the templates have changed",)


def gap_of_columns(triggers: TableTriggers, before: Columns, now: Columns) -> Iterator[Gap]:
    """What was not logged of the columns that triggers were not compiled for, if it is known for which they were."""
    # A view's column keeps its name when one of its base table gets another: rows that are read back have its values.
    renamed = set(_renamed(before, now).values()) & triggers.names.keys()
    new = [name for name in now if before and name not in before and name not in renamed]
    if not new:
        return
    what = f"column {new[0]} of" if len(new) == 1 else f"columns {', '.join(new)} of"
    reason = f"{what} {triggers.table.name} held values before the triggers knew of it"
    where = None
    if isinstance(triggers, ClassTriggers) and not {column.name for column in triggers.key} & set(new):
        names = (quote_identifier(triggers.names.get(name, name)) for name in new)
        where = " OR ".join(f"{name} IS NOT NULL" for name in names)
    yield Gap(triggers.class_name, reason, where)


def gap_of_table(triggers: TableTriggers, reason: str) -> Gap:
    """What was not logged of a table whose triggers did not fire, with the reason."""
    return Gap(triggers.class_name, f"{triggers.table.name}: {reason}", deletes=isinstance(triggers, ClassTriggers))


def key_change(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """What became of a class's key, in words; empty if its columns are the same."""
    if tuple(before) == tuple(now):
        return ()
    names = (", ".join(now), ", ".join(before))
    return (
        f"the key is {names[0]} now, and was {names[1]}: rows that were logged by the old one become E; "
        f"with was_key = {toml(list(before))} in its [[watch]] `eventlog resync CLASS --deleted` deletes what the "
        "receiver has by it, and `eventlog resync CLASS` sends it by the new one",
    )
