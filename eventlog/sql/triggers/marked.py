"""Compile, compare and create triggers whose text contains, in a comment, a hash of their
declaration.

The comment is the only record by which installed triggers are compared with the declared ones.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.errors import LogTableError
from eventlog.sql.log_table import LogTable, named_after
from eventlog.sql.port.quoted_names import quoted, schema_of
from eventlog.sql.port.sql_files import qualified, quote_identifier
from eventlog.sql.triggers import (
    ALL_GO,
    NO_LONGER_WATCHED,
    Action,
    InstalledTrigger,
    TableSql,
    TriggerPlan,
    Triggers,
    by_table,
    digest_of,
    error_for_log_table,
    first_free,
    made_for,
    missing_log,
    sha256,
    warnings_of_lost_logs,
)
from eventlog.sql.triggers.declared import TableName, TableTriggers
from eventlog.sql.triggers.uncaptured import (
    ANOTHER_TABLE,
    Uncaptured,
    declared_otherwise,
    uncaptured_columns,
    uncaptured_table,
)

MARKER: Final = re.compile("-- eventlog sha256:([0-9a-f]{64}) log (.*)")
"""The comment in the text of eventlog's triggers: the hash of the compiled text, and the log that
they write to, as SQL.
"""

_Claims = Mapping[TableName, TableName]
"""The table of each declared trigger, by the trigger's schema and name."""


@dataclass(frozen=True, slots=True)
class CompiledTrigger:
    """One trigger as SQL.

    ``digest`` is the hash of ``statement``, which contains it (``MARKER``).
    """

    name: str
    operation: str
    statement: str
    digest: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """The triggers of one declaration on one table.

    ``schema`` is the schema of the table, None = the session's current one.
    """

    schema: str | None
    declared: TableTriggers
    triggers: tuple[CompiledTrigger, ...]

    @property
    def place(self) -> TableName:
        return self.schema or "", self.declared.table.name


@dataclass(frozen=True, slots=True)
class StoredTrigger:
    """A trigger as a database has it."""

    schema: str
    name: str
    table: TableName
    text: str = ""
    """The SQL of the trigger, empty if the database does not show it."""
    is_enabled: bool = True
    is_valid: bool = True
    type: str = ""
    event: str = ""
    """The event on which the trigger fires, as the database writes it."""
    follows: frozenset[TableName] = frozenset()
    """The schema and name of the triggers that this one fires after, if the database shows them."""

    @property
    def digest(self) -> str | None:
        """The hash of the compiled text; None if the trigger is not one of eventlog's, for this or
        another log.
        """
        marker = MARKER.search(self.text)
        return None if marker is None else marker[1]

    @property
    def log(self) -> str | None:
        """The log that the trigger writes to, as SQL; None if the trigger is not one of
        eventlog's.
        """
        marker = MARKER.search(self.text)
        return None if marker is None else marker[2].rstrip()


@dataclass(frozen=True, slots=True)
class Installed:
    """All installed triggers. A trigger is *ours* if it writes to ``log``, or was made for it under
    a ``former`` name.
    """

    triggers: Mapping[TableName, Sequence[StoredTrigger]]
    """The triggers by table, in the order of their names."""
    log: str
    """The log as SQL."""
    former: Mapping[TableName, str] = field(default_factory=dict)
    """The log's former name, by table."""
    lost: Mapping[TableName, Collection[str]] = field(default_factory=dict)
    """Other logs that no longer exist, by the table whose triggers write to them."""

    def is_ours(self, trigger: StoredTrigger) -> bool:
        """Return True if the trigger writes to the log, or was made for it under a former name."""
        return trigger.log is not None and trigger.log in (
            self.log,
            self.former.get(trigger.table),
        )

    def on(self, table: TableName) -> list[StoredTrigger]:
        """Return our triggers on a table."""
        return [trigger for trigger in self.triggers.get(table, ()) if self.is_ours(trigger)]

    @property
    def ours(self) -> list[StoredTrigger]:
        """Our triggers, in the order of tables and names."""
        return [trigger for table in self.tables for trigger in self.on(table)]

    @property
    def tables(self) -> list[TableName]:
        """The tables that have our triggers."""
        return [table for table in sorted(self.triggers) if self.on(table)]

    @property
    def others(self) -> frozenset[TableName]:
        """Schema and name of the triggers that are not ours."""
        theirs = (
            trigger
            for several in self.triggers.values()
            for trigger in several
            if not self.is_ours(trigger)
        )
        return frozenset((trigger.schema, trigger.name) for trigger in theirs)


def behind_marker(text: str) -> str:
    """Return the text after the marker of one of our triggers."""
    marker = MARKER.search(text)
    return "" if marker is None else text[marker.end() :].rstrip()


class MarkedTriggers(Triggers):
    """Triggers that contain, in a comment of their text, the hash of the compiled
    text (``MARKER``).

    Their names belong to a schema, and they stay on their table when it is renamed. A subclass for
    such a database provides the text of the triggers, the way to read them, and the sentences on
    changes that they do not capture.
    """

    replaces: bool = False
    """True if CREATE replaces a trigger of the same name, so that a trigger exists at
    every moment.
    """
    quote: Callable[[str], str] = staticmethod(quote_identifier)
    """The function that writes a name as an SQL identifier."""
    follow_log: bool = False
    """True if the database puts the log's new name into the triggers when the log is renamed."""
    blank_digest: str = ""
    """The placeholder for the hash in the text that is hashed."""

    @abstractmethod
    def texts(
        self,
        home: str | None,
        log: LogTable,
        triggers: TableTriggers,
        declared: Sequence[TableTriggers],
    ) -> Iterable[tuple[str, Callable[[str, str], str]]]:
        """Yield the operation (i, u, d) of each trigger of a declaration, and a function from its
        name and marker to its SQL.

        ``home`` is the schema of the table. Raises TriggerError for a declaration that no trigger
        of the database can implement.
        """

    @abstractmethod
    def all_triggers(
        self, conn: Connection, tables: Collection[TableName] = ()
    ) -> list[StoredTrigger]:
        """Return the triggers of all tables that have one of ours, and of ``tables``, in the order
        of tables and names.

        Our triggers have their text.
        """

    @abstractmethod
    def not_captured(self, declared: Sequence[TableTriggers]) -> tuple[str, ...]:
        """Return sentences on changes that the declared triggers do not capture."""

    def refuse(
        self, conn: Connection, log: LogTable, schema: str | None, declared: Sequence[TableTriggers]
    ) -> None:
        """Raise TriggerError for triggers that could not run, DatabaseError if the present state
        cannot be read.
        """
        for triggers in declared:
            if (triggers.schema or schema) == log.schema and triggers.table.name in log.own_tables:
                raise error_for_log_table(triggers.table.name)

    def first_actions(self, conn: Connection, log: LogTable) -> list[Action]:
        """Return the actions that create missing objects, such as functions, that the triggers of a
        log need.
        """
        return []

    def warnings(
        self, log: LogTable, compiled: Sequence[Compiled], installed: Installed
    ) -> Iterable[str]:
        """Yield warnings about the declared triggers, as sentences."""
        return ()

    def drop_warnings(
        self, installed: Installed, dropped: Sequence[StoredTrigger]
    ) -> Iterable[str]:
        """Yield sentences on statements that fail once these triggers are dropped."""
        return ()

    def columns_of(self, trigger: StoredTrigger) -> Mapping[str, str]:
        """Return the columns, name -> type, for which an installed trigger was compiled, from its
        text; empty if the text lists none.
        """
        return {}

    def difference(self, stored: StoredTrigger, compiled: CompiledTrigger) -> str | None:
        """Return the difference from the compiled trigger, in words that follow its name; None if
        there is none.
        """
        is_same = stored.text == compiled.statement
        return (
            None if is_same else "was changed by hand, or something that it refers to was renamed"
        )

    def outdated(self, stored: StoredTrigger, compiled: CompiledTrigger) -> str | None:
        """Return the fault of a trigger that an earlier version compiled for the same columns, in
        words that follow its name; None if none is known.
        """
        return None

    def drop_trigger(self, schema: str | None, name: str) -> str:
        """Return the statement that drops a trigger."""
        return f"DROP TRIGGER {qualified(schema, name, self.quote)}"

    def at_once(self, table: TableName, statements: Sequence[str]) -> Sequence[str]:
        """Add to statements that drop and create triggers of a table a lock that blocks writers in
        between, and return them.
        """
        return statements

    def enable(self, trigger: StoredTrigger) -> Sequence[str]:
        """Return the statements that enable a trigger which has replaced this one."""
        return ()

    def log_in_marker(self, log: LogTable) -> str:
        """Return the log as the markers of its triggers name it, on one line."""
        return qualified(log.schema, log.name, self.quote)

    def folded(self, name: str) -> str:
        """Return a trigger's name in one form for all spellings that the database considers
        equal.
        """
        return name

    # The interface for the core

    def find_log(self, conn: Connection, log: LogTable) -> LogTable:
        if not sa.inspect(conn).has_table(quoted(log.name), schema_of(log)):
            raise missing_log(log)
        return log

    def read_installed(
        self,
        conn: Connection,
        log: LogTable,
        tables: Collection[TableName] = (),
        takes: Callable[[TableName], bool] = lambda _: False,
    ) -> Installed:
        """Return the triggers of a log, and foreign triggers on their tables and on ``tables``.

        ``takes`` returns True for tables whose triggers are taken over if they were made for a log
        that does not exist any more (spec/triggers.md 9.3).
        """
        found: defaultdict[TableName, list[StoredTrigger]] = defaultdict(list)
        for trigger in self.all_triggers(conn, tables):
            found[trigger.table].append(trigger)
        own = self.log_in_marker(log)
        logs = {
            table: {trigger.log for trigger in several if trigger.log is not None}
            for table, several in found.items()
        }
        gone = {
            name for name in set().union(*logs.values()) - {own} if self._is_gone(conn, log, name)
        }
        former = {
            table: next(iter(of_table & gone))
            for table, of_table in logs.items()
            if takes(table) and own not in of_table and len(of_table & gone) == 1
        }
        lost = {
            table: sorted(of_table & gone)
            for table, of_table in logs.items()
            if of_table & gone and table not in former
        }
        return Installed(dict(found), own, former, lost)

    def _is_gone(self, conn: Connection, log: LogTable, name: str) -> bool:
        """Return True if a marker names a log that is not a table, in the schema of ``log``."""
        empty = self.log_in_marker(replace(log, name=""))
        quote = empty[-1]
        written = name.removeprefix(empty[:-1]).removesuffix(quote).replace(2 * quote, quote)
        named = replace(log, name=written)
        if (
            self.log_in_marker(named) != name
        ):  # in another schema, whose tables may be hidden from this role
            return False
        try:
            self.find_log(conn, named)
        except LogTableError:
            return True
        return False

    def compile_declared(
        self,
        schema: str | None,
        log: LogTable,
        declared: Sequence[TableTriggers],
        others: Collection[TableName] = (),
    ) -> list[Compiled]:
        """Return the declared triggers as SQL, in their order.

        ``schema`` is that of the classes; ``others`` are the triggers that are not ours. Raises
        TriggerError for a declaration that the database's triggers cannot implement.
        """
        used = {(home, self.folded(name)) for home, name in others}

        def marker(digest: str) -> str:
            return f"eventlog sha256:{digest} log {self.log_in_marker(log)}"

        def free_name(home: str, table: str, operation: str) -> str:
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
                name = free_name(home or "", one.table.name, operation)
                digest = sha256(text(name, marker(self.blank_digest)))
                triggers.append(
                    CompiledTrigger(name, operation, text(name, marker(digest)), digest)
                )
            compiled.append(Compiled(home, one, tuple(triggers)))
        return compiled

    def tables_sql(
        self,
        schema: str | None,
        log: LogTable,
        declared: Sequence[TableTriggers],
        _facts: Mapping[str, Any],
    ) -> list[TableSql]:
        return [
            self._table_sql(of_table)
            for of_table in by_table(self.compile_declared(schema, log, declared))
        ]

    def plan_declared(
        self, conn: Connection, log: LogTable, schema: str | None, declared: Sequence[TableTriggers]
    ) -> TriggerPlan:
        self.refuse(conn, log, schema, declared)
        places = {(one.schema or schema or "", one.table.name) for one in declared}
        installed = self.read_installed(conn, log, places, places.__contains__)
        compiled = self.compile_declared(schema, log, declared, installed.others)
        claims = _claims(compiled)
        dropped = [one for one in installed.ours if claims.get((one.schema, one.name)) != one.table]
        return TriggerPlan(
            (
                *(self.first_actions(conn, log) if declared else ()),
                *self.actions(compiled, installed),
            ),
            (
                *warnings_of_lost_logs(installed.lost),
                *self.warnings(log, compiled, installed),
                *self.drop_warnings(installed, dropped),
            ),
            self.not_captured(declared) if declared else (),
        )

    def plan_drop(self, conn: Connection, log: LogTable) -> TriggerPlan:
        log = self.find_log(conn, log)
        # There is no declaration that shows which tables are meant, so the tables in the schema of
        # the log are taken.
        installed = self.read_installed(
            conn, log, takes=lambda table: table[0] == (log.schema or "")
        )
        return TriggerPlan(
            tuple(self._drop_all(installed, staying=(), reason=ALL_GO)),
            tuple(self.drop_warnings(installed, installed.ours)),
        )

    def installed(self, conn: Connection, log: LogTable) -> list[InstalledTrigger]:
        ours = self.read_installed(conn, self.find_log(conn, log)).ours
        return [
            InstalledTrigger(_name(one.table), one.name, None, one.is_enabled, one.text, None)
            for one in ours
        ]

    def tables_of(self, conn: Connection, log: LogTable) -> list[TableName]:
        return self.read_installed(conn, log).tables

    def digests(
        self, conn: Connection, log: LogTable, tables: Collection[TableName] = ()
    ) -> Mapping[str, str]:
        log = self.find_log(conn, log)
        installed = self.read_installed(conn, log, takes=tables.__contains__)
        return {
            _name(table): digest_of(
                one.digest for one in installed.on(table) if one.digest is not None
            )
            for table in installed.tables
        }

    # One action for each table

    def actions(self, compiled: Sequence[Compiled], installed: Installed) -> list[Action]:
        """Return the actions that bring the triggers of a log to the compiled declarations."""
        claims = _claims(compiled)
        declared = set(claims.values())
        renamed: defaultdict[TableName, list[StoredTrigger]] = defaultdict(list)
        for one in installed.ours:
            place = claims.get((one.schema, one.name), one.table)
            if place != one.table and one.table in declared:
                renamed[place].append(one)
        return [
            # Drops come first: a renamed table keeps the names of its triggers, which the new table
            # with its former name needs.
            *self._drop_all(installed, staying=declared, reason=NO_LONGER_WATCHED),
            *(
                self._compare(one, installed, claims, renamed[one[0].place])
                for one in by_table(compiled)
            ),
        ]

    def _table_sql(self, compiled: Sequence[Compiled]) -> TableSql:
        """Return the SQL that creates the triggers of one table in a database that has none of
        them, and the SQL that drops them.
        """
        triggers = [trigger for one in compiled for trigger in one.triggers]
        return TableSql(
            table=_name(compiled[0].place),
            digest=digest_of(trigger.digest for trigger in triggers),
            create=tuple(
                self.at_once(compiled[0].place, [trigger.statement for trigger in triggers])
            ),
            drop=tuple(self.drop_trigger(compiled[0].schema, trigger.name) for trigger in triggers),
        )

    def _drop_all(
        self, installed: Installed, *, staying: Collection[TableName], reason: str
    ) -> list[Action]:
        """Return the actions that drop our triggers, except on the tables of ``staying``."""
        tables = [table for table in installed.tables if table not in staying]
        return [
            Action("drop", _name(table), reason, tuple(self._dropped(installed.on(table))))
            for table in tables
        ]

    def _compare(
        self,
        compiled: Sequence[Compiled],
        installed: Installed,
        claims: _Claims,
        renamed: Iterable[StoredTrigger],
    ) -> Action:
        """Return the action for one table, from its compiled declarations and all claims of names.

        If a trigger of another declared table has a claimed name (``renamed``), that trigger gives
        it up. Triggers of tables that are no longer watched were dropped before.
        """
        place, name = compiled[0].place, _name(compiled[0].place)
        old = installed.on(place)
        declared = {trigger.name: trigger for one in compiled for trigger in one.triggers}
        create = [trigger.statement for trigger in declared.values()]
        drops = self._dropped(renamed)
        if not old:
            uncaptured = tuple(_uncaptured_of_new(compiled, installed, claims))
            statements = (*drops, *self.at_once(place, create))
            return Action("create", name, "watched, but not captured yet", statements, uncaptured)
        former = installed.former.get(place)
        reasons = (
            list(self._differences(compiled, old))
            if former is None
            else [made_for(former, fails=not self.follow_log)]
        )
        if not reasons:
            return Action("unchanged", name, "as declared")
        if self.replaces:
            enable = [
                statement for one in old if one.name in declared for statement in self.enable(one)
            ]
            gone = self._dropped(one for one in old if (one.schema, one.name) not in claims)
            statements = (*drops, *create, *enable, *gone)
        else:
            dropped = self._dropped(
                one for one in old if claims.get((one.schema, one.name), place) == place
            )
            statements = (*drops, *self.at_once(place, [*dropped, *create]))
        return Action(
            "replace",
            name,
            "; ".join(dict.fromkeys(reasons)),
            statements,
            tuple(self._uncaptured(compiled, old)),
        )

    def _uncaptured(
        self, compiled: Sequence[Compiled], old: Sequence[StoredTrigger]
    ) -> Iterator[Uncaptured]:
        """Yield the uncaptured changes of a table that has triggers: columns that they were not
        compiled for, and triggers that are missing or disabled.
        """
        named = {trigger.name: trigger for trigger in old}
        own = {trigger.name for one in compiled for trigger in one.triggers}
        # The triggers of a renamed table may have names that were made from its former name.
        has_others = not own >= named.keys()
        for one in compiled:
            stored = [named.get(trigger.name) for trigger in one.triggers]
            known = next(
                (
                    columns
                    for trigger in stored
                    if trigger and (columns := self.columns_of(trigger))
                ),
                {},
            )
            yield from uncaptured_columns(one.declared, known, one.declared.logged_columns())
            silent = [
                trigger.name
                for trigger, found in zip(one.triggers, stored, strict=True)
                if (not has_others if found is None else not found.is_enabled)
            ]
            if silent:
                verb = "was" if len(silent) == 1 else "were"
                yield uncaptured_table(
                    one.declared, f"{', '.join(silent)} {verb} missing or disabled"
                )

    def _differences(
        self, compiled: Sequence[Compiled], old: Sequence[StoredTrigger]
    ) -> Iterator[str]:
        unmatched = {trigger.name: trigger for trigger in old}
        if not unmatched.keys() & {trigger.name for one in compiled for trigger in one.triggers}:
            names = ", ".join(sorted(unmatched))
            yield (
                f"its triggers {names} were made for the former name of the table, and log that "
                "name until they are replaced"
            )
            return
        for one in compiled:
            for trigger in one.triggers:
                stored = unmatched.pop(trigger.name, None)
                if stored is None:
                    yield f"trigger {trigger.name} is missing"
                elif stored.digest != trigger.digest:
                    present = [column.name for column in one.declared.table.columns]
                    before, now = self.columns_of(stored), one.declared.logged_columns()
                    why = self.outdated(stored, trigger) if before == now else None
                    if why is not None:
                        yield f"trigger {trigger.name} {why}"
                    else:
                        yield from declared_otherwise(before, now, present)
                elif (how := self.difference(stored, trigger)) is not None:
                    yield f"trigger {trigger.name} {how}"
        for name in unmatched:
            yield f"trigger {name} is superfluous"

    def _dropped(self, triggers: Iterable[StoredTrigger]) -> list[str]:
        return [self.drop_trigger(trigger.schema or None, trigger.name) for trigger in triggers]


def _claims(compiled: Iterable[Compiled]) -> _Claims:
    return {
        (one.schema or "", trigger.name): one.place for one in compiled for trigger in one.triggers
    }


def _uncaptured_of_new(
    compiled: Sequence[Compiled], installed: Installed, claims: _Claims
) -> Iterator[Uncaptured]:
    """Yield the uncaptured changes of a table without triggers if the table that had its name
    before still has the triggers.
    """
    place = compiled[0].place
    if any(claims.get((one.schema, one.name)) == place for one in installed.ours):
        yield from (uncaptured_table(one.declared, ANOTHER_TABLE) for one in compiled)


def _name(table: TableName) -> str:
    """Return a table's name in the form that actions use."""
    return ".".join(filter(None, table))
