"""How what is declared becomes triggers: each database has a subclass of ``Triggers`` (spec/triggers.md 2, 9, 10)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Catalog, Database
from eventlog.errors import DatabaseError, LogTableError, TriggerError
from eventlog.sql.connection import as_database_errors, load_dialect
from eventlog.sql.log_table import LogTable, named_after, quoted, schema_of
from eventlog.sql.statements import qualified
from eventlog.sql.triggers.compare import (
    Compiled,
    CompiledTrigger,
    Installed,
    StoredTrigger,
    TableName,
    by_table,
    declared_otherwise,
    digest_of,
    sha256,
)
from eventlog.sql.triggers.declared import TableTriggers, declared_triggers, warnings_of
from eventlog.sql.triggers.plan import (
    LOCK_TIMEOUT,
    NO_LONGER_WATCHED,
    Action,
    InstalledTrigger,
    TableSql,
    TriggerPlan,
    first_free,
    one_line,
)
from eventlog.sql.triggers.watch import Watch

ALL_GO: Final = "all triggers of the log go"
NO_FACTS: Final[Mapping[str, Any]] = MappingProxyType({})

Claims = Mapping[TableName, TableName]
"""Schema and name of each declared trigger -> its table."""


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
        return NO_FACTS

    @contextmanager
    def applying(self, conn: Connection, _lock_timeout: float) -> Iterator[None]:
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
        watches: Sequence[Watch],
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> tuple[TableSql, ...]:
        """The SQL of what is declared, table by table, from the catalogue and from ``facts`` alone.

        No database is asked, so names that others have taken there are not seen. Raises TriggerError for a watch that
        cannot be compiled.
        """
        declared, _ = declared_triggers(database, catalog, watches)
        return tuple(self.tables_sql(database.schema, log, declared, facts))

    def plan(
        self, conn: Connection, database: Database, catalog: Catalog, log: LogTable, watches: Sequence[Watch]
    ) -> TriggerPlan:
        """What brings the triggers that write a log to what is declared: one action a table, with its reason.

        ``database`` is the reflected schema, ``catalog`` its classes, built with or without ``exclusions``. Triggers of
        the log that no watch declares are dropped. Nothing is changed. Raises LogTableError if the log is missing,
        TriggerError for a watch that cannot be compiled or whose triggers could not run, DatabaseError.
        """
        log = self.find_log(conn, log)
        reflect = partial(load_dialect(conn.dialect.name).reflect, conn)
        declared, warnings = declared_triggers(database, catalog, watches, reflect)
        plan = self.plan_declared(conn, log, database.schema, declared)
        sentences = dict.fromkeys((*warnings, *warnings_of(declared), *plan.warnings))
        return TriggerPlan(plan.actions, tuple(sentences), plan.not_captured)

    def apply(self, conn: Connection, plan: TriggerPlan, lock_timeout: float = LOCK_TIMEOUT) -> None:
        """Run the statements of a plan, all or none where DDL is transactional. The caller commits.

        Where it is, no change goes unlogged between an old trigger and a new one. ``lock_timeout``: seconds to wait for
        a table, 0 = without end; whoever writes it meanwhile waits behind us. Raises DatabaseError if the database
        refuses a statement, if a trigger does not compile, or if a table is not to be had in time.
        """
        if not plan.changes:
            return
        action, run = plan.changes[0], load_dialect(conn.dialect.name).run
        with as_database_errors(conn):
            try:
                with self.applying(conn, lock_timeout):
                    for action in plan.changes:
                        for statement in action.statements:
                            run(conn, statement)
            except DBAPIError as error:
                locked_out = self.locked_out(conn, plan, action, error, lock_timeout)
                if locked_out is None:
                    raise
                raise locked_out from error

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


def missing_log(log: LogTable) -> LogTableError:
    """What to raise where triggers are asked for, and there is no log."""
    return LogTableError(f"the log {log} is missing: run `eventlog db upgrade` first")


def of_the_log(table: str) -> TriggerError:
    """What to raise for a declared table that is the log or one of its companions."""
    what = "triggers on it would log their own rows without end"
    return TriggerError(f"{table} is the log, or belongs to it: {what}")


class MarkedTriggers(Triggers):
    """Triggers that hold, in a comment of their own text, the hash of what was compiled (``compare.MARKER``).

    Their names are a schema's, and they go with their table when that is renamed. What a database of this kind must
    write is the text of its triggers, how they are read and dropped, and what they do not see.
    """

    replaces: bool = False
    """Whether CREATE takes the place of a trigger of the same name, so that no moment is without one."""
    blank_digest: str = ""
    """What stands for the hash in the text that is hashed."""

    @abstractmethod
    def texts(
        self, home: str | None, log: LogTable, triggers: TableTriggers, declared: Sequence[TableTriggers]
    ) -> Iterable[tuple[str, Callable[[str, str], str]]]:
        """For each trigger of a declaration its operation (i, u, d), and what makes its SQL of its name and its marker.

        ``home``: the schema of the table. Raises TriggerError for what the database has no trigger for.
        """

    @abstractmethod
    def all_triggers(self, conn: Connection) -> list[StoredTrigger]:
        """The triggers of all tables, in the order of tables and names; the text of ours among them."""

    @abstractmethod
    def not_captured(self, declared: Sequence[TableTriggers]) -> tuple[str, ...]:
        """Sentences on what the declared triggers do not see."""

    def refuse(self, conn: Connection, log: LogTable, schema: str | None, declared: Sequence[TableTriggers]) -> None:
        """Raise TriggerError for triggers that could not run, DatabaseError if it cannot be told what is there."""
        for triggers in declared:
            if (triggers.schema or schema) == log.schema and triggers.table.name in log.own_tables:
                raise of_the_log(triggers.table.name)

    def first_actions(self, conn: Connection, log: LogTable) -> list[Action]:
        """What the triggers of a log need beside it, if it is missing."""
        return []

    def warnings(self, log: LogTable, compiled: Sequence[Compiled], installed: Installed) -> Iterable[str]:
        """Sentences on what is declared."""
        return ()

    def drop_warnings(self, installed: Installed, dropped: Sequence[StoredTrigger]) -> Iterable[str]:
        """Sentences on what fails when these triggers go."""
        return ()

    def columns_of(self, trigger: StoredTrigger) -> Mapping[str, str]:
        """The columns, name -> type, that the text of an installed trigger tells to be compiled for; none if it tells
        none.
        """
        return {}

    def difference(self, stored: StoredTrigger, compiled: CompiledTrigger) -> str | None:
        """What is not as it was compiled, by words that follow the trigger's name; None if all is."""
        is_same = stored.text == compiled.statement
        return None if is_same else "was changed by hand, or something it names was renamed"

    def drop_trigger(self, schema: str | None, name: str) -> str:
        """The statement that drops a trigger."""
        return f"DROP TRIGGER {qualified(schema, name)}"

    def enable(self, trigger: StoredTrigger) -> Sequence[str]:
        """The statements that let a trigger fire which is made in the place of this one."""
        return ()

    def log_in_marker(self, log: LogTable) -> str:
        """The log as the markers of its triggers name it, in one line."""
        return qualified(log.schema, log.name)

    def folded(self, name: str) -> str:
        """A trigger's name in one form for all spellings that the database takes for the same."""
        return name

    # What the core asks for

    def find_log(self, conn: Connection, log: LogTable) -> LogTable:
        if not sa.inspect(conn).has_table(quoted(log.name), schema_of(log)):
            raise missing_log(log)
        return log

    def read_installed(self, conn: Connection, log: LogTable) -> Installed:
        """The triggers of a log, and those of others beside them."""
        tables: defaultdict[TableName, list[StoredTrigger]] = defaultdict(list)
        for trigger in self.all_triggers(conn):
            tables[trigger.table].append(trigger)
        return Installed(dict(tables), self.log_in_marker(log))

    def compile_declared(
        self,
        schema: str | None,
        log: LogTable,
        declared: Sequence[TableTriggers],
        taken: Collection[TableName] = (),
    ) -> list[Compiled]:
        """What is declared, as SQL, in its order. ``schema``: of the classes; ``taken``: triggers that are not ours.

        Raises TriggerError for what the database has no trigger for.
        """
        used = {(home, self.folded(name)) for home, name in taken}

        def marker(digest: str) -> str:
            return f"eventlog sha256:{digest} log {self.log_in_marker(log)}"

        def take_name(home: str, table: str, operation: str) -> str:
            name = first_free(
                lambda number: named_after(
                    f"tgr_{{}}_{operation}_{number}", table, log.max_identifier, upper=log.upper
                ),
                lambda name: (home, self.folded(name)) in used,
            )
            used.add((home, self.folded(name)))
            return name

        compiled = []
        for one in declared:
            home = one.schema or schema
            triggers = []
            for operation, text in self.texts(home, log, one, declared):
                name = take_name(home or "", one.table.name, operation)
                digest = sha256(text(name, marker(self.blank_digest)))
                triggers.append(CompiledTrigger(name, operation, text(name, marker(digest)), digest))
            compiled.append(Compiled(home, one, tuple(triggers)))
        return compiled

    def tables_sql(
        self, schema: str | None, log: LogTable, declared: Sequence[TableTriggers], _facts: Mapping[str, Any]
    ) -> list[TableSql]:
        return [self._table_sql(of_table) for of_table in by_table(self.compile_declared(schema, log, declared))]

    def plan_declared(
        self, conn: Connection, log: LogTable, schema: str | None, declared: Sequence[TableTriggers]
    ) -> TriggerPlan:
        self.refuse(conn, log, schema, declared)
        installed = self.read_installed(conn, log)
        compiled = self.compile_declared(schema, log, declared, installed.taken)
        claims = _claims(compiled)
        dropped = [one for one in installed.ours if claims.get((one.schema, one.name)) != one.table]
        return TriggerPlan(
            (*(self.first_actions(conn, log) if declared else ()), *self.actions(compiled, installed)),
            (*self.warnings(log, compiled, installed), *self.drop_warnings(installed, dropped)),
            self.not_captured(declared) if declared else (),
        )

    def plan_drop(self, conn: Connection, log: LogTable) -> TriggerPlan:
        installed = self.read_installed(conn, self.find_log(conn, log))
        return TriggerPlan(
            tuple(self._drop_all(installed, kept=(), reason=ALL_GO)),
            tuple(self.drop_warnings(installed, installed.ours)),
        )

    def installed(self, conn: Connection, log: LogTable) -> list[InstalledTrigger]:
        ours = self.read_installed(conn, self.find_log(conn, log)).ours
        return [InstalledTrigger(_name(one.table), one.name, None, one.is_enabled, one.text, None) for one in ours]

    def digests(self, conn: Connection, log: LogTable) -> Mapping[str, str]:
        installed = self.read_installed(conn, self.find_log(conn, log))
        return {
            _name(table): digest_of(one.digest for one in installed.on(table) if one.digest is not None)
            for table in installed.tables
        }

    # One action a table

    def actions(self, compiled: Sequence[Compiled], installed: Installed) -> list[Action]:
        """What brings the triggers of a log to all that is declared, as it is compiled."""
        claims = _claims(compiled)
        declared = set(claims.values())
        taken: defaultdict[TableName, list[StoredTrigger]] = defaultdict(list)
        for one in installed.ours:
            place = claims.get((one.schema, one.name), one.table)
            if place != one.table and one.table in declared:
                taken[place].append(one)
        return [
            # First, since a table that was renamed keeps the names that the new one of its name needs.
            *self._drop_all(installed, kept=declared, reason=NO_LONGER_WATCHED),
            *(self._compare(one, installed, claims, taken[one[0].place]) for one in by_table(compiled)),
        ]

    def _table_sql(self, compiled: Sequence[Compiled]) -> TableSql:
        """All that is declared for one table, as SQL for a database that has none of it, and the way back."""
        triggers = [trigger for one in compiled for trigger in one.triggers]
        return TableSql(
            table=_name(compiled[0].place),
            digest=digest_of(trigger.digest for trigger in triggers),
            create=tuple(trigger.statement for trigger in triggers),
            drop=tuple(self.drop_trigger(compiled[0].schema, trigger.name) for trigger in triggers),
        )

    def _drop_all(self, installed: Installed, *, kept: Collection[TableName], reason: str) -> list[Action]:
        """What takes our triggers away, but for those of the tables of ``kept``."""
        tables = [table for table in installed.tables if table not in kept]
        return [Action("drop", _name(table), reason, tuple(self._dropped(installed.on(table)))) for table in tables]

    def _compare(
        self, compiled: Sequence[Compiled], installed: Installed, claims: Claims, renamed: Iterable[StoredTrigger]
    ) -> Action:
        """What is to be done for one table, given all that is declared for it, and the names that are claimed at all.

        Whoever claims a name takes it from the other table that is declared: ``renamed``. Triggers of tables that are
        no longer watched are gone before.
        """
        place, name = compiled[0].place, _name(compiled[0].place)
        old = installed.on(place)
        declared = {trigger.name: trigger for one in compiled for trigger in one.triggers}
        create = [trigger.statement for trigger in declared.values()]
        taken = self._dropped(renamed)
        if not old:
            return Action("create", name, "watched, and not captured yet", (*taken, *create))
        reasons = list(self._differences(compiled, old))
        if not reasons:
            return Action("unchanged", name, "as declared")
        if self.replaces:
            enable = [statement for one in old if one.name in declared for statement in self.enable(one)]
            gone = self._dropped(one for one in old if (one.schema, one.name) not in claims)
            statements = (*taken, *create, *enable, *gone)
        else:
            dropped = self._dropped(one for one in old if claims.get((one.schema, one.name), place) == place)
            statements = (*taken, *dropped, *create)
        return Action("replace", name, "; ".join(dict.fromkeys(reasons)), statements)

    def _differences(self, compiled: Sequence[Compiled], old: Sequence[StoredTrigger]) -> Iterator[str]:
        unmatched = {trigger.name: trigger for trigger in old}
        for one in compiled:
            for trigger in one.triggers:
                stored = unmatched.pop(trigger.name, None)
                if stored is None:
                    yield f"trigger {trigger.name} is missing"
                elif stored.digest != trigger.digest:
                    present = [column.name for column in one.declared.table.columns]
                    yield from declared_otherwise(self.columns_of(stored), one.declared.columns_told(), present)
                elif (how := self.difference(stored, trigger)) is not None:
                    yield f"trigger {trigger.name} {how}"
        for name in unmatched:
            yield f"trigger {name} is one too many"

    def _dropped(self, triggers: Iterable[StoredTrigger]) -> list[str]:
        return [self.drop_trigger(trigger.schema or None, trigger.name) for trigger in triggers]


def _claims(compiled: Iterable[Compiled]) -> Claims:
    return {(one.schema or "", trigger.name): one.place for one in compiled for trigger in one.triggers}


def _name(table: TableName) -> str:
    """A table as actions name it."""
    return ".".join(filter(None, table))
