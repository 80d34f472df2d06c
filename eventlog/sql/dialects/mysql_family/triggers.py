"""Triggers on MariaDB and MySQL: the changes that they log, as SQL, and how they are compared
(spec/triggers.md 2, 4, 5, 6, 7.4, 9, 10).

The texts are in the .sql.j2 files next to this module. The files in each database's package have
the beginning of a trigger, and the loop over rows that foreign keys delete or change. A table has
one trigger for each operation. The body of a trigger contains the hash of the compiled text in an
unused literal. The server commits every statement by itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import unquote

from sqlalchemy import Connection

from eventlog.core.catalog import Column, Database, Table
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import DatabaseError, together
from eventlog.model import EventType
from eventlog.sql.dialects.mysql_family.cascades import FACT as CASCADES
from eventlog.sql.dialects.mysql_family.cascades import (
    SHARED,
    CascadeTriggers,
    as_fact,
    cascades_of,
    followed,
    from_fact,
    kept,
    leading_to,
    read_links,
)
from eventlog.sql.dialects.mysql_family.session import error_code
from eventlog.sql.dialects.mysql_family.text import (
    USER,
    UTC_NOW,
    bindable,
    field,
    fields,
    fits,
    in_text,
    is_changed,
    is_large,
    is_one_spelling,
    key_text,
    literal,
    quote_identifier,
    value_text,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import (
    all_there,
    equal,
    fetch,
    statements,
    template_renderer,
    trigger_words,
)
from eventlog.sql.triggers import FactLiterals, TableSql, TriggerPlan, one_line
from eventlog.sql.triggers.declared import (
    ChildTriggers,
    ClassTriggers,
    TableName,
    TableTriggers,
    following,
)
from eventlog.sql.triggers.marked import (
    CommittedTriggers,
    TriggerText,
    behind_marker,
    class_words,
    stored_trigger,
)
from eventlog.sql.triggers.planner import Compiled, CompiledTrigger, Installed, StoredTrigger

_SQL: Final = statements(__package__, "installed.sql")
_SQL_OF_TABLES: Final = statements(__package__, "reflect.sql")
DELIMITER: Final = "$eventlog$"
_LOCK_WAIT: Final = 1205
NO_CASCADES: Final = "NOT @@SESSION.foreign_key_checks"
"""An SQL condition that is true in a session without foreign key checks."""
_SILENCE: Final = "silence"
"""The facts for compiling triggers contain the result of ``silence`` under this name."""
_REFUSING: Final = "refusing"
"""The facts for compiling triggers contain the columns of ``TableTriggers.refusing``, by table,
under this name.
"""


_CHANGE: Final = "eventlog_change: BEGIN"
"""A part of the text of triggers that check whether the server has refused a change."""

_Body = tuple[str, str, str]
"""A trigger without its name: its operation, the statement that fires it, and its body."""


class FamilyTriggers(CommittedTriggers):
    """Triggers without functions, in the database of their log.

    ``render`` returns the text of a template (``family_renderer``).
    """

    replace_keeps_children: bool = False
    """True if a REPLACE that keeps the key of a row also keeps the rows that refer to it."""
    fires_for_refused: bool = False
    """True if the triggers of an UPDATE also fire for a row that UPDATE IGNORE leaves unchanged
    because the server refuses the change.
    """
    render: Callable[..., str]
    quote = staticmethod(quote_identifier)
    # The database shows only the body.
    compared = staticmethod(behind_marker)
    script_end = ("DELIMITER ;", "")

    def texts(
        self,
        home: str | None,
        log: LogTable,
        triggers: TableTriggers,
        declared: Sequence[TableTriggers],
    ) -> Iterator[TriggerText]:
        if isinstance(triggers, CascadeTriggers):
            bodies = self._cascade_bodies(log, triggers)
        elif isinstance(triggers, ClassTriggers):
            bodies = self._class_bodies(log, triggers, declared)
        else:
            bodies = self._child_bodies(log, triggers)
        for operation, when, body in bodies:
            yield operation, partial(self._trigger, triggers, when, body)

    def all_triggers(
        self, conn: Connection, tables: Collection[TableName] = ()
    ) -> list[StoredTrigger]:
        rows = fetch(conn, _SQL["triggers"], {})
        return [
            stored_trigger(
                "",
                name,
                ("", table),
                _as_written(conn, name, text),
                unquote,
                type=timing,
                event=event,
            )
            for table, name, text, timing, event, _ in rows
        ]

    def log_in_marker(self, log: LogTable) -> str:
        return in_text(one_line(quote_identifier(log.name)))

    def folded(self, name: str) -> str:
        return name.lower()

    def drop_trigger(self, schema: str | None, name: str) -> str:
        return f"DROP TRIGGER IF EXISTS {quote_identifier(name)}"

    def outdated(self, stored: StoredTrigger, compiled: CompiledTrigger) -> str | None:
        if _CHANGE in compiled.statement and _CHANGE not in stored.text:
            return "logs changes of UPDATE IGNORE that the server has refused"
        return None

    def refuse(self, log: OpenLog, schema: str | None, declared: Sequence[TableTriggers]) -> None:
        super().refuse(log, schema, declared)
        if not log.db.sees_triggers(""):
            raise DatabaseError(
                "the database does not show triggers to this user, so missing ones cannot be "
                "detected: run the command as the owner, or grant TRIGGER on the database"
            )

    def not_captured(self, declared: Sequence[TableTriggers]) -> tuple[str, ...]:
        always = (
            "TRUNCATE, and EXCHANGE, DROP and TRUNCATE of a partition",
            "changes that a replica applies in row-based replication, unless "
            "slave_run_triggers_for_rbr is set",
        )
        if not any(isinstance(one, CascadeTriggers) for one in declared):
            return always
        return (
            *always,
            "the server's refusal of an UPDATE IGNORE or DELETE IGNORE of a row: the triggers log "
            "that foreign keys to this row changed or deleted rows, although the keys did not",
        )

    def facts(self, log: OpenLog, database: Database, tables: Collection[str]) -> FactLiterals:
        conn = log.connection
        links = leading_to(read_links(conn), tables)
        cascading = {CASCADES: as_fact(links), _SILENCE: self.silence(conn)} if links else {}
        by_name = {table.name: table for table in database.tables}
        refusing = {
            name: further
            for name, columns in self.refusing(conn).items()
            if name in tables and (further := sorted(set(columns) - _keyed(by_name[name])))
        }
        return {**cascading, _REFUSING: refusing} if refusing else cascading

    def refusing(self, conn: Connection) -> Mapping[str, Collection[str]]:
        """Return, by table, the columns for which the server may refuse a row. The result is empty
        if triggers do not fire for refused rows.
        """
        if not self.fires_for_refused:
            return {}
        found: defaultdict[str, set[str]] = defaultdict(set)
        for table, column in fetch(conn, _SQL_OF_TABLES["refusing_columns"], {}):
            found[table].add(column)
        for table, column in fetch(conn, _SQL_OF_TABLES["validity_columns"], {}):
            found[table].discard(column)
        return found

    def silence(self, conn: Connection) -> str:
        """Return the SQL condition under which triggers do not log rows that foreign keys delete or
        change.
        """
        return NO_CASCADES

    def tables_sql(
        self,
        schema: str | None,
        log: LogTable,
        declared: Sequence[TableTriggers],
        facts: FactLiterals,
    ) -> list[TableSql]:
        declared = _with_refusing(declared, facts.get(_REFUSING, {}))
        cascades, refused = cascades_of(
            declared, from_fact(facts.get(CASCADES, ())), facts.get(_SILENCE, NO_CASCADES)
        )
        if refused:
            raise together(list(refused.values()))
        return super().tables_sql(schema, log, [*declared, *cascades], facts)

    def plan_declared(
        self, log: OpenLog, schema: str | None, declared: Sequence[TableTriggers]
    ) -> TriggerPlan:
        conn = log.connection
        declared = _with_refusing(declared, self.refusing(conn))
        cascades, refused = cascades_of(declared, read_links(conn), self.silence(conn))
        declared = [one for one in declared if one.class_name not in refused]
        plan = super().plan_declared(log, schema, [*declared, *cascades])
        warnings = (*plan.warnings, *_engines(log, declared))
        return replace(plan, warnings=warnings, refused=tuple(map(str, refused.values())))

    def warnings(
        self, log: LogTable, compiled: Sequence[Compiled], installed: Installed
    ) -> Iterable[str]:
        for one in compiled:
            for trigger in installed.others.get(one.place, ()):
                if trigger.digest is None and trigger.type == "AFTER":
                    yield (
                        f"trigger {trigger.name} of {trigger.table[1]} fires before eventlog's "
                        "trigger, since it is older: its writes are logged before the change "
                        "that caused them. Drop it and create it again after `eventlog triggers "
                        "apply`"
                    )

    # Applying triggers

    busy = frozenset({_LOCK_WAIT})
    error_code = staticmethod(error_code)

    def settings(self, lock_timeout: float) -> list[str]:
        seconds = max(1, round(lock_timeout)) if lock_timeout else 31536000
        return [f"SET SESSION lock_wait_timeout = {seconds}"]

    def ended(self, statements: Iterable[str]) -> Iterable[str]:
        return (f"{statement.rstrip()}\n{DELIMITER}" for statement in statements)

    # The texts of triggers

    def _text(self, template: str, **values: object) -> str:
        return self.render(template, **values).strip("\n")

    def _trigger(
        self, triggers: TableTriggers, when: str, body: str, name: str, marker: str
    ) -> str:
        return self._text(
            "trigger.sql.j2",
            name=name,
            table=triggers.table.name,
            when=when,
            body=body,
            marker=marker,
            variables=["eventlog_key"],
            columns=json.dumps(triggers.logged_columns(), ensure_ascii=False),
        ).rstrip()

    def _class_bodies(
        self, log: LogTable, triggers: ClassTriggers, declared: Sequence[TableTriggers]
    ) -> Iterator[_Body]:
        old, new = fields("OLD", triggers.key), fields("NEW", triggers.key)
        columns = triggers.columns
        first = f"{field('NEW', columns[0])} IS NOT NULL" if columns else ""
        children = following(triggers, declared)
        words = class_words(triggers, declared, key_text, quote_identifier)
        all_null = " AND ".join(f"{field('NEW', column)} IS NULL" for column in columns[1:])
        by_value = triggers.update_type in (
            EventType.UPDATE_FIELD,
            EventType.UPDATE_FIELD_REMOVE_ALL,
        )
        refused = self._refused(triggers, triggers.key, by_value=by_value)

        def body(event: str) -> str:
            return self._text(
                "class_body.sql.j2",
                event=event,
                log=_words(log, triggers.class_name),
                first_condition=f"({first} OR ({all_null}))" if all_null else None,
                **words,
                rekeyed=" OR ".join(map(is_changed, triggers.key, old, new)),
                **refused,
                any_changed=" OR ".join(
                    is_changed(column, field("OLD", column), field("NEW", column))
                    for column in columns
                ),
                kept=[
                    (child.attribute, self._has_rows(triggers, child))
                    for child in children
                    if self.replace_keeps_children
                    and triggers.insert_type != EventType.INSERT_ROW_QUERY_BACK
                ],
            )

        yield "i", "AFTER INSERT", body("insert")
        yield "u", "AFTER UPDATE", body("update")
        yield "d", "AFTER DELETE", body("delete")

    def _refused(
        self, triggers: TableTriggers, own: Sequence[Column], *, by_value: bool
    ) -> dict[str, str | None]:
        """Return two SQL conditions for the trigger of an UPDATE; a condition is None if the
        trigger does not need it.

        ``refused`` is true if the row is still as it was, so that the server has refused its
        change. The condition compares the columns ``own`` and all columns for which the server may
        refuse a row. ``may_be_refused`` is true if one of these columns has changed. ``refused``
        counts only if ``may_be_refused`` is true, so a change that was made is never taken for a
        refused change. Without ``by_value``, only a change of ``own`` matters, since all other
        values are read back.
        """
        table = triggers.table
        key = row_key(table)
        if not self.fires_for_refused or not key or not own:
            return {"refused": None, "may_be_refused": None}
        known = {column.name: column for column in table.columns}
        own_names = {column.name for column in own}
        names = {*own_names, *_keyed(table), *triggers.refusing}

        def changes(names: Iterable[str], row: str, other: str) -> str:
            columns = [
                known.get(name) or Column(name, ColumnType(Kind.OTHER)) for name in sorted(names)
            ]
            refs = fields(row, columns), fields(other, columns)
            return " OR ".join(map(is_changed, columns, *refs))

        found = " AND ".join(
            f"t.{quote_identifier(name)} = OLD.{quote_identifier(name)}" for name in key
        )
        return {
            "refused": (
                f"EXISTS (SELECT 1 FROM {quote_identifier(table.name)} AS t "  # noqa: S608 - quoted names
                f"WHERE {found} AND NOT ({changes(names, 't', 'OLD')}))"
            ),
            "may_be_refused": changes(names if by_value else own_names, "OLD", "NEW"),
        }

    def _has_rows(self, triggers: ClassTriggers, child: ChildTriggers) -> str:
        """Return an SQL condition that is true if rows of a child table belong to a new row."""
        owned = equal(fields("c", child.owner_columns), fields("NEW", triggers.key))
        return f"EXISTS (SELECT 1 FROM {quote_identifier(child.table.name)} AS c WHERE {owned})"  # noqa: S608

    def _cascade_bodies(self, log: LogTable, triggers: CascadeTriggers) -> Iterator[_Body]:
        looked_for = [
            ("u", "BEFORE UPDATE", followed(triggers, "UPDATE")),
            ("d", "BEFORE DELETE", followed(triggers, "DELETE")),
        ]
        if self.replace_keeps_children:
            looked_for.append(("i", "AFTER INSERT", kept(triggers)))
        for letter, when, rows in looked_for:
            if rows:
                body = self._text(
                    "cascade_body.sql.j2",
                    followed=rows,
                    silence=triggers.silence,
                    log=_words(log, triggers.class_name),
                )
                yield letter, when, body

    def _child_bodies(self, log: LogTable, triggers: ChildTriggers) -> Iterator[_Body]:
        is_one = triggers.is_spelled_alike(is_one_spelling)
        owner = quote_identifier(triggers.owner.name)
        owner_text = key_text(triggers.log_key, fields("o", triggers.key))

        def refs(row: str) -> list[str]:
            return fields(row, triggers.owner_columns)

        def owner_column(row: str, lock: str = "") -> str:
            owned = equal(fields("o", triggers.key), refs(row))
            return f"(SELECT {owner_text} FROM {owner} AS o WHERE {owned} LIMIT 1{lock})"  # noqa: S608 - quoted names

        def key_of(row: str, lock: str = "") -> str:
            text = key_text(triggers.own_key, refs(row))
            # Equal keys may be spelled differently ('ABC' and 'abc'): the owner's spelling counts,
            # if the owner exists.
            return text if is_one else f"COALESCE({owner_column(row, lock)}, {text})"

        # A statement that has waited for its foreign key may read an older spelling of the owner.
        # The key has already locked the owner, so this lock neither waits nor blocks anybody.
        current = SHARED if triggers.refers_to_owner else ""

        def is_value(row: str) -> str:
            return all_there([*refs(row), field(row, triggers.column)])

        own = (*triggers.owner_columns, triggers.column)
        refused = self._refused(triggers, own if triggers.by_value else (), by_value=True)
        moved = " OR ".join(map(is_changed, triggers.owner_columns, refs("OLD"), refs("NEW")))
        if not is_one:
            moved = f"({moved}) AND NOT (BINARY {key_of('OLD')} <=> BINARY {key_of('NEW')})"

        def body(event: str) -> str:
            return self._text(
                "child_body.sql.j2",
                event=event,
                log=_words(log, triggers.class_name),
                event_type=int(triggers.event_type),
                attribute=triggers.attribute,
                column=triggers.column,
                given_key=key_of("NEW", current),
                new_key=key_of("NEW"),
                owner_key=owner_column("OLD"),
                has_owner=all_there(refs("NEW")),
                **refused,
                moved=moved,
                old_is_value=is_value("OLD"),
                new_is_value=is_value("NEW"),
            )

        yield "i", "AFTER INSERT", body("insert")
        yield "u", "AFTER UPDATE", body("update")
        yield "d", "AFTER DELETE", body("delete")


def row_key(table: Table) -> tuple[str, ...]:
    """Return the columns of a key that identifies a table's rows; empty if the table has no key."""
    return next((key for key in (table.primary_key, *table.unique_keys) if key), ())


def _keyed(table: Table) -> set[str]:
    """Return the columns of the keys and foreign keys of a table."""
    keys = (table.primary_key, *table.unique_keys, *(key.columns for key in table.foreign_keys))
    return {column for key in keys for column in key}


def _with_refusing(
    declared: Iterable[TableTriggers], refusing: Mapping[str, Collection[str]]
) -> list[TableTriggers]:
    return [
        replace(
            one, refusing=tuple(sorted({*refusing.get(one.table.name, ())} - _keyed(one.table)))
        )
        for one in declared
    ]


def _as_written(conn: Connection, name: str, shown: str | None) -> str:
    """Return the text of a trigger. A trigger of eventlog is read as it was compiled, since the
    catalogue rewrites its literals.
    """
    if shown is None:
        return ""  # the user may write to the table of the trigger, but not create triggers on it
    if "DECLARE eventlog_trigger " not in shown:
        return shown
    ((_, _, statement, *_),) = fetch(
        conn, f"SHOW CREATE TRIGGER {bindable(quote_identifier(name))}", {}
    )
    return str(statement)


def _engines(log: OpenLog, declared: Sequence[TableTriggers]) -> Iterator[str]:
    """Yield warnings on tables, and on a log, whose engine has no transactions."""
    rows, name = fetch(log.connection, _SQL["engines"], {}), log.table.name
    engines = {str(table): str(engine) for table, engine in rows}
    if name in engines:
        yield (
            f"the log {name} uses the engine {engines[name]}, which has no transactions: "
            "so changes that were rolled back would be published. Run: ALTER TABLE "
            f"{quote_identifier(name)} ENGINE = InnoDB"
        )
    for table in dict.fromkeys(one.table.name for one in declared):
        if table in engines:
            yield (
                f"{table} uses the engine {engines[table]}, which has no transactions: changes of "
                "a transaction that is rolled back stay in the table but are not logged. Run: "
                f"ALTER TABLE {quote_identifier(table)} ENGINE = InnoDB"
            )


def _words(log: LogTable, class_name: str) -> dict[str, str]:
    return {**trigger_words(log, class_name, UTC_NOW, quote_identifier), "user": USER}


def family_renderer(package: str) -> Callable[..., str]:
    """Return the function that renders templates: the templates in the package of a database, and
    the templates that both databases share.
    """
    return staticmethod(
        template_renderer(
            package,
            filters={"identifier": quote_identifier, "literal": literal, "in_text": in_text},
            globals={
                "is_changed": is_changed,
                "value_text": value_text,
                "field": field,
                "fits": fits,
                "is_large": is_large,
            },
            base=__package__,
        )
    )


def script_head(client: str) -> Sequence[str]:
    """Return the first lines of a script with triggers for the program ``client``."""
    return (
        f"-- {client} DATABASE < this script",
        "SET NAMES utf8mb4;",
        f"DELIMITER {DELIMITER}",
        "",
    )
