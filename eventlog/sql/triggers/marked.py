"""Triggers whose text contains, in a comment, a hash of their declaration."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Column
from eventlog.errors import DatabaseError, LogTableError, TriggerError
from eventlog.sql.log_table import LogTable, named_after
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.quoted_names import quoted, schema_of
from eventlog.sql.port.sql_files import Quote, all_there, equal, qualified, run_as_it_stands
from eventlog.sql.triggers import (
    Action,
    FactLiterals,
    InstalledTrigger,
    TableSql,
    TriggerPlan,
    by_table,
    digest_of,
    first_free,
    missing_log,
    sha256,
    warnings_of_lost_logs,
)
from eventlog.sql.triggers.declared import ClassTriggers, TableName, TableTriggers, following
from eventlog.sql.triggers.planner import (
    Compiled,
    CompiledTrigger,
    Installed,
    PlannedTriggers,
    StoredTrigger,
    name_of,
    refuse_own_tables,
)

MARKER: Final = re.compile("-- eventlog sha256:([0-9a-f]{64}) log (.*)")
"""The comment in the text of eventlog's triggers: the hash of the compiled text, and the log to
which the triggers write, as SQL.
"""


_COLUMNS: Final = re.compile(r"^ *-- columns (.*)$", re.MULTILINE)


def stored_trigger(
    schema: str,
    name: str,
    table: TableName,
    text: str = "",
    unquoted: Callable[[str], str] = str,
    **more: Any,
) -> StoredTrigger:
    """Return a trigger as a database has it. The comments in its text provide the hash, the log and
    the columns.

    ``unquoted`` converts the text of the columns to JSON.
    """
    if (marker := MARKER.search(text)) is not None:
        columns = _COLUMNS.search(text)
        more |= {
            "digest": marker[1],
            "log": marker[2].rstrip(),
            "columns": {} if columns is None else json.loads(unquoted(columns[1])),
        }
    return StoredTrigger(schema, name, table, text, **more)


def behind_marker(text: str) -> str:
    """Return the text after the marker of one of our triggers."""
    marker = MARKER.search(text)
    return "" if marker is None else text[marker.end() :].rstrip()


TriggerText = tuple[str, Callable[[str, str], str]]
"""The operation (i, u, d) of a trigger, and a function from its name and marker to its SQL."""


class MarkedTriggers(PlannedTriggers):
    """Triggers that contain, in a comment of their text, the hash of the compiled
    text (``MARKER``).

    A subclass provides the text of the triggers, the way to read triggers, and the sentences on
    changes that the triggers do not capture.
    """

    only_by_row: str = ""
    """The name, for people, of a database without statement-level triggers."""
    blank_digest: str = ""
    """The placeholder for the hash in the text that is hashed."""

    @abstractmethod
    def texts(
        self,
        home: str | None,
        log: LogTable,
        triggers: TableTriggers,
        declared: Sequence[TableTriggers],
    ) -> Iterable[TriggerText]:
        """Yield the triggers of a declaration.

        ``home`` is the schema of the table. Raises TriggerError for a declaration that no trigger
        of the database can implement.
        """

    @abstractmethod
    def all_triggers(
        self, conn: Connection, tables: Collection[TableName] = ()
    ) -> list[StoredTrigger]:
        """Return the triggers of ``tables`` and of all tables that have one of our triggers, in the
        order of tables and names.

        The result contains the text of our triggers.
        """

    @abstractmethod
    def not_captured(self, declared: Sequence[TableTriggers]) -> tuple[str, ...]:
        """Return sentences on changes that the declared triggers do not capture."""

    def refuse(self, log: OpenLog, schema: str | None, declared: Sequence[TableTriggers]) -> None:
        """Raise TriggerError for triggers that could not run, DatabaseError if the present state
        cannot be read.
        """
        refuse_own_tables(log.table, schema, declared)

    def first_actions(self, log: OpenLog) -> list[Action]:
        """Return the actions that create the missing objects that the triggers of a log need, such
        as functions.
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

    def drop_trigger(self, schema: str | None, name: str) -> str:
        """Return the statement that drops a trigger."""
        return f"DROP TRIGGER {qualified(schema, name, self.quote)}"

    def drop_stored(self, trigger: StoredTrigger) -> Sequence[str]:
        return (self.drop_trigger(trigger.schema or None, trigger.name),)

    def silent(
        self,
        compiled: Compiled,
        old: Sequence[StoredTrigger],
        _records: Sequence[StoredTrigger],
        has_others: bool,
    ) -> str | None:
        # The triggers of a renamed table may have names that were made from its former name.
        firing = {trigger.name: trigger.is_enabled for trigger in old}
        names = [one.name for one in compiled.triggers if not firing.get(one.name, has_others)]
        verb = "was" if len(names) == 1 else "were"
        return f"{', '.join(names)} {verb} missing or disabled" if names else None

    def folded(self, name: str) -> str:
        """Return a trigger's name in one form for all spellings that the database considers
        equal.
        """
        return name

    # The interface for the core

    def find_log(self, log: OpenLog) -> OpenLog:
        inspector = sa.inspect(log.connection)
        if not inspector.has_table(quoted(log.table.name), schema_of(log.table)):
            raise missing_log(log.table)
        return log

    def stored(
        self, conn: Connection, tables: Collection[TableName] = ()
    ) -> tuple[Sequence[StoredTrigger], Sequence[StoredTrigger]]:
        return self.all_triggers(conn, tables), ()

    def gone(self, log: OpenLog, names: Collection[str]) -> set[str]:
        return {name for name in names if self._is_gone(log, name)}

    def _is_gone(self, log: OpenLog, name: str) -> bool:
        """Return True if a marker names a log that is not a table, in the schema of ``log``."""
        empty = self.log_in_marker(replace(log.table, name=""))
        quote = empty[-1]
        written = name.removeprefix(empty[:-1]).removesuffix(quote).replace(2 * quote, quote)
        named = replace(log.table, name=written)
        if (
            self.log_in_marker(named) != name
        ):  # in another schema, whose tables may be hidden from this role
            return False
        try:
            self.find_log(log.db.log(named))
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

        ``schema`` is the schema of the classes; ``others`` are the triggers that are not ours.
        Raises TriggerError for a declaration that the database's triggers cannot implement.
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
            if self.only_by_row and one.watch.trigger_level != "row":
                raise TriggerError(
                    f"watch {one.class_name}: {self.only_by_row} has no statement-level triggers; "
                    "use trigger_level = row"
                )
            triggers = []
            for operation, text in self.texts(home, log, one, declared):
                name = free_name(home or "", one.table.name, operation)
                digest = sha256(text(name, marker(self.blank_digest)))
                triggers.append(
                    CompiledTrigger(name, operation, text(name, marker(digest)), digest)
                )
            compiled.append(Compiled(home, one, tuple(triggers), one.logged_columns()))
        return compiled

    def tables_sql(
        self,
        schema: str | None,
        log: LogTable,
        declared: Sequence[TableTriggers],
        _facts: FactLiterals,
    ) -> list[TableSql]:
        return [
            self._table_sql(of_table)
            for of_table in by_table(self.compile_declared(schema, log, declared))
        ]

    def plan_declared(
        self, log: OpenLog, schema: str | None, declared: Sequence[TableTriggers]
    ) -> TriggerPlan:
        self.refuse(log, schema, declared)
        places = {(one.schema or schema or "", one.table.name) for one in declared}
        installed = self.read_installed(log, places, places.__contains__)
        others = [one.key for one in chain.from_iterable(installed.others.values())]
        compiled = self.compile_declared(schema, log.table, declared, others)
        claims = self.claims(compiled)
        dropped = [one for one in installed.every() if claims.get(one.key) != one.table]
        return TriggerPlan(
            (
                *(self.first_actions(log) if declared else ()),
                *self.actions(compiled, installed),
            ),
            (
                *warnings_of_lost_logs(installed.lost),
                *self.warnings(log.table, compiled, installed),
                *self.drop_warnings(installed, dropped),
            ),
            self.not_captured(declared) if declared else (),
            digests=installed.digests(),
        )

    def installed(self, log: OpenLog) -> list[InstalledTrigger]:
        ours = self.read_installed(self.find_log(log)).every()
        return [
            InstalledTrigger(name_of(one.table), one.name, None, one.is_enabled, one.text, None)
            for one in ours
        ]

    def plan_drop_of(self, log: LogTable, installed: Installed) -> TriggerPlan:
        plan = super().plan_drop_of(log, installed)
        return replace(plan, warnings=tuple(self.drop_warnings(installed, installed.every())))

    def _table_sql(self, compiled: Sequence[Compiled]) -> TableSql:
        """Return the SQL that creates the triggers of one table in a database that has none of
        these triggers, and the SQL that drops the triggers.
        """
        triggers = [trigger for one in compiled for trigger in one.triggers]
        return TableSql(
            table=name_of(compiled[0].place),
            digest=digest_of(str(trigger.digest) for trigger in triggers),
            create=tuple(
                self.at_once(compiled[0].place, [trigger.statement for trigger in triggers])
            ),
            drop=tuple(self.drop_trigger(compiled[0].schema, trigger.name) for trigger in triggers),
        )


def class_words(
    triggers: ClassTriggers,
    declared: Sequence[TableTriggers],
    key_text: Callable[[Sequence[Column], Sequence[str]], str],
    quote: Quote,
) -> dict[str, object]:
    """Return those words for the templates of a class that do not depend on the database."""
    old, new = (
        [f"{row}.{quote(column.name)}" for column in triggers.key] for row in ("OLD", "NEW")
    )
    another = equal((f"t.{quote(column.name)}" for column in triggers.key), old)
    return {
        "columns": triggers.columns,
        "names": triggers.log_names,
        "insert_type": int(triggers.insert_type),
        "update_type": int(triggers.update_type),
        "old_key": key_text(triggers.log_key, old),
        "new_key": key_text(triggers.log_key, new),
        "old_is_there": all_there(old),
        "new_is_there": all_there(new),
        "may_repeat": triggers.may_repeat,
        "another": f"SELECT 1 FROM {quote(triggers.table.name)} AS t WHERE {another}",  # noqa: S608 - quoted names
        "children": [child.attribute for child in following(triggers, declared)],
    }


class CommittedTriggers(MarkedTriggers):
    """Triggers of databases that commit each statement of a plan separately.

    ``busy`` are the error codes, as ``error_code`` returns them, of a table that is locked for too
    long.
    """

    busy: frozenset[int]
    error_code: Callable[[DBAPIError], int]

    @contextmanager
    def applying(self, conn: Connection, _plan: TriggerPlan, lock_timeout: float) -> Iterator[None]:
        for setting in self.settings(lock_timeout):
            run_as_it_stands(conn, setting)
        yield

    def locked_out(
        self,
        conn: Connection,
        plan: TriggerPlan,
        action: Action,
        error: DBAPIError,
        lock_timeout: float,
    ) -> DatabaseError | None:
        if self.error_code(error) not in self.busy:
            return None
        return DatabaseError(
            f"{action.table} was locked for more than {lock_timeout:g} s by another transaction: "
            "run the command again when the transaction has ended, or wait longer with "
            "--lock-timeout; tables that were done before stay as they are"
        )
