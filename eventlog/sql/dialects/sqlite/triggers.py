"""Triggers on SQLite: the changes that they log, as SQL, and how they are compared
(spec/triggers.md 2, 4, 5, 6, 7.5, 9, 10).

The texts are in the .sql.j2 files next to this module. A trigger of SQLite has no function and no
comment, so its text contains the hash of the compiled text. SQLite stores the text as it was
written, but rewrites it when a table or column is renamed: so whole texts are compared. A
transaction has exclusive access to the file. One trigger per operation and class writes all rows,
because SQLite does not define the order of several triggers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Column
from eventlog.core.values import Kind
from eventlog.model import EventType
from eventlog.sql.dialects.sqlite.objects import guessed_type, lacks_collation
from eventlog.sql.dialects.sqlite.text import (
    UTC_NOW,
    is_changed,
    is_one_spelling,
    key_text,
    value_text,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import (
    all_there,
    equal,
    field,
    fields,
    grouped,
    in_parts,
    literal,
    quote_identifier,
    statements,
    template_renderer,
    trigger_words,
)
from eventlog.sql.triggers import TriggerPlan, one_line
from eventlog.sql.triggers.declared import ChildTriggers, ClassTriggers, TableName, TableTriggers
from eventlog.sql.triggers.marked import MarkedTriggers, TriggerText, class_words, stored_trigger
from eventlog.sql.triggers.planner import Compiled, Installed, StoredTrigger

_SQL: Final = statements(__package__, "installed.sql")


class SQLiteTriggers(MarkedTriggers):
    """Triggers without functions, users and schemas."""

    only_by_row = "SQLite"
    follow_log = True
    by_hand = "was changed by hand, or something that it refers to was renamed"
    script_head = ("-- sqlite3 -bail FILE < this script", "BEGIN IMMEDIATE;")

    def texts(
        self,
        home: str | None,
        log: LogTable,
        triggers: TableTriggers,
        declared: Sequence[TableTriggers],
    ) -> Iterator[TriggerText]:
        if isinstance(triggers, ClassTriggers):
            bodies = _class_bodies(log, triggers, declared)
        else:
            bodies = _child_bodies(log, triggers)
        for operation, when, condition, body in bodies:
            yield operation, partial(_trigger, triggers, when, condition, body)

    def all_triggers(
        self, conn: Connection, tables: Collection[TableName] = ()
    ) -> list[StoredTrigger]:
        rows = conn.exec_driver_sql(
            "SELECT tbl_name, name, sql FROM main.sqlite_schema WHERE type = 'trigger' ORDER BY "
            "tbl_name, name"
        )
        return [stored_trigger("", name, ("", table), sql) for table, name, sql in rows]

    def log_in_marker(self, log: LogTable) -> str:
        return one_line(quote_identifier(log.name))

    def folded(self, name: str) -> str:
        return name.lower()

    def warnings(
        self, log: LogTable, compiled: Sequence[Compiled], installed: Installed
    ) -> Iterable[str]:
        for one in compiled:
            for trigger in installed.others.get(one.place, ()):
                if trigger.digest is None and "AFTER" in trigger.text.upper():
                    yield (
                        f"trigger {trigger.name} of {trigger.table[1]} may fire before eventlog's "
                        "trigger, since SQLite does not guarantee an order: the writes of "
                        f"{trigger.name} are then logged before the change that caused them"
                    )

    def plan_declared(
        self, log: OpenLog, schema: str | None, declared: Sequence[TableTriggers]
    ) -> TriggerPlan:
        plan = super().plan_declared(log, schema, declared)
        unknown = _unknown_collations(log.connection, declared)
        return replace(plan, warnings=(*plan.warnings, *_guesses(declared), *unknown))

    def not_captured(self, declared: Sequence[TableTriggers]) -> tuple[str, ...]:
        return (
            "rows that INSERT OR REPLACE and UPDATE OR REPLACE delete, unless the application's "
            "connection has set PRAGMA recursive_triggers = ON",
            "who made a change: SQLite has no users",
            "writes by a connection that has disabled triggers (SQLITE_DBCONFIG_ENABLE_TRIGGER)",
        )


# --- warnings before triggers are applied
# -----------------------------------------------------------


def _guesses(declared: Iterable[TableTriggers]) -> Iterator[str]:
    """Yield a warning for each column whose declared type is unknown."""
    for triggers in declared:
        columns = (
            [triggers.column]
            if isinstance(triggers, ChildTriggers)
            else [*triggers.key, *triggers.columns]
        )
        for column in dict.fromkeys(columns):
            if (assumed := guessed_type(column)) is not None:
                yield (
                    f"{triggers.table.name}.{column.name} is declared {column.type.sql}, which is "
                    f"not a standard type: eventlog treats its values as {assumed}"
                )


def _unknown_collations(conn: Connection, declared: Sequence[TableTriggers]) -> Iterator[str]:
    """Yield a warning for each key column that only the application can compare, since it registers
    the collation.
    """
    children = grouped(
        (one.class_name, one.table.name) for one in declared if isinstance(one, ChildTriggers)
    )
    for triggers in declared:
        if isinstance(triggers, ChildTriggers):
            continue
        for column, collation in conn.exec_driver_sql(
            _SQL["key_collations"], {"table": triggers.table.name}
        ).all():
            if not _is_known(conn, collation):
                lost = ", ".join(children[triggers.class_name])
                lost = lost and (
                    f"; values of {lost} cannot be read back, and rows that need these values get "
                    "status E"
                )
                yield (
                    f"{triggers.table.name}.{column} has the collation {collation}, which only the "
                    "application registers: reading rows back scans the whole table, and `resync` "
                    f"is refused{lost}"
                )


def _is_known(conn: Connection, collation: str) -> bool:
    try:
        conn.exec_driver_sql(f"SELECT '' = '' COLLATE {quote_identifier(collation)}").all()
    except DBAPIError as error:
        if not lacks_collation(error):
            raise
        return False
    return True


# --- what doctor queries --------------------------------------------------------------------------


def broken_triggers(log: OpenLog) -> Iterator[tuple[str, str, str]]:
    """Yield each table whose eventlog triggers name a missing table, together with the missing
    table and the SQL that drops the triggers.

    SQLite compiles the triggers of a table with each statement that fires them; EXPLAIN compiles
    the statement without running it.
    """
    conn = log.connection
    ours = (one for one in SQLiteTriggers().all_triggers(conn) if one.log is not None)
    by_table = grouped((one.table[1], one.name) for one in ours)
    for table, names in by_table.items():
        name = quote_identifier(table)
        column = conn.exec_driver_sql(_SQL["a_column"], {"table": table}).scalar()
        changed = f"{name} SET {quote_identifier(column)} = NULL" if column is not None else name
        for change in (
            f"INSERT INTO {name} DEFAULT VALUES",
            f"UPDATE {changed}",
            f"DELETE FROM {name}",  # noqa: S608
        ):
            try:
                conn.exec_driver_sql(f"EXPLAIN {change}").all()
            except DBAPIError as error:
                gone = re.fullmatch(r"no such table: (?:main\.)?(.+)", str(error.orig))
                if gone is not None and gone[1] != log.table.name:
                    yield (
                        table,
                        gone[1],
                        "; ".join(f"DROP TRIGGER {quote_identifier(one)}" for one in names),
                    )
                    break


# --- the texts of triggers ------------------------------------------------------------------------

_Body = tuple[str, str, str, str]
"""A trigger without its name: the operation, the firing statement, the condition, and the body."""


def _trigger(
    triggers: TableTriggers, when: str, condition: str, body: str, name: str, marker: str
) -> str:
    return _text_of(
        "trigger.sql.j2",
        name=name,
        table=triggers.table.name,
        when=when,
        condition=condition,
        body=body,
        marker=marker,
        columns=json.dumps(triggers.logged_columns(), ensure_ascii=False),
    ).rstrip()


def _class_bodies(
    log: LogTable, triggers: ClassTriggers, declared: Sequence[TableTriggers]
) -> Iterator[_Body]:
    old, new = fields("OLD", triggers.key), fields("NEW", triggers.key)
    words = class_words(triggers, declared, key_text, quote_identifier)
    rekeyed = " OR ".join(map(is_changed, old, new))
    changed = [
        is_changed(field("OLD", column), field("NEW", column)) for column in triggers.columns
    ]
    columns = triggers.columns
    first = field("NEW", columns[0]) + " IS NOT NULL" if columns else ""
    all_null = _chain(" AND ", [f"{field('NEW', column)} IS NULL" for column in columns[1:]])

    def body(event: str) -> str:
        return _text_of(
            "class_body.sql.j2",
            event=event,
            log=trigger_words(log, triggers.class_name, UTC_NOW),
            **words,
            insert_types={
                column.name: int(_of(column, triggers.insert_type)) for column in columns
            },
            update_types={
                column.name: int(_of(column, triggers.update_type)) for column in columns
            },
            first_condition=f"({first} OR {all_null})" if all_null else None,
        )

    yield "i", "AFTER INSERT", all_there(new), body("insert")
    if changed:
        condition = f"NOT ({rekeyed}) AND {all_there(new)} AND ({_chain(' OR ', changed)})"
        yield "u", "AFTER UPDATE", condition, body("update")
    yield "u", "AFTER UPDATE", rekeyed, body("rekey")
    yield "d", "AFTER DELETE", all_there(old), body("delete")


_CHAINED: Final = 500
"""The number of conditions in one chain. An expression of SQLite is at most a thousand levels deep,
and each condition adds one.
"""


def _chain(word: str, conditions: Sequence[str]) -> str:
    if len(conditions) <= _CHAINED:
        return word.join(conditions)
    return word.join(f"({word.join(part)})" for part in in_parts(conditions, _CHAINED))


def _child_bodies(log: LogTable, triggers: ChildTriggers) -> Iterator[_Body]:
    is_one = triggers.is_spelled_alike(is_one_spelling)
    owner = quote_identifier(triggers.owner.name)
    owner_key = key_text(triggers.log_key, fields("o", triggers.key))
    triggers = triggers.read_back_unless(triggers.column.type.kind is not Kind.BINARY)

    def refs(row: str) -> list[str]:
        return fields(row, triggers.owner_columns)

    def owned(row: str) -> str:
        # The owner's column comes first, since a foreign key compares by the owner's collation.
        return equal(fields("o", triggers.key), refs(row))

    def key_of(row: str) -> str:
        text = key_text(triggers.own_key, refs(row))
        if is_one:
            return text
        # Equal keys may be spelled differently ('ABC' and 'abc'): the owner's spelling counts, if
        # the owner exists.
        return (
            f"coalesce((SELECT {owner_key} FROM {owner} AS o WHERE {owned(row)} LIMIT 1), {text})"  # noqa: S608
        )

    def is_value(row: str) -> str:
        return all_there([*refs(row), field(row, triggers.column)])

    moved = " OR ".join(map(is_changed, refs("OLD"), refs("NEW")))
    if not is_one:
        moved = f"({moved}) AND ({key_of('OLD')}) IS NOT ({key_of('NEW')})"
    value_changed = is_changed(field("OLD", triggers.column), field("NEW", triggers.column))

    def body(event: str) -> str:
        return _text_of(
            "child_body.sql.j2",
            event=event,
            log=trigger_words(log, triggers.class_name, UTC_NOW),
            event_type=int(triggers.event_type),
            by_value=triggers.by_value,
            attribute=triggers.attribute,
            column=triggers.column,
            new_key=key_of("NEW"),
            owner=owner,
            owner_key=owner_key,
            owned=owned("OLD"),
            old_is_value=is_value("OLD"),
            new_is_value=is_value("NEW"),
        )

    stays = f"NOT ({moved}) AND {all_there(refs('NEW'))}"
    yield "i", "AFTER INSERT", is_value("NEW"), body("insert")
    yield "u", "AFTER UPDATE", f"{stays} AND {value_changed}", body("update")
    yield "u", "AFTER UPDATE", moved, body("move")
    yield "d", "AFTER DELETE", is_value("OLD"), body("delete")


_QUERIED_BACK: Final[Mapping[EventType, EventType]] = {
    EventType.INSERT_FIELD: EventType.INSERT_FIELD_QUERY_BACK,
    EventType.UPDATE_FIELD: EventType.UPDATE_FIELD_QUERY_BACK,
    EventType.UPDATE_FIELD_REMOVE_ALL: EventType.UPDATE_FIELD_QUERY_BACK,
}


def _of(column: Column, event_type: EventType) -> EventType:
    """Return the type of a column's log row: binary values are read back (spec/triggers.md 6.1)."""
    return (
        _QUERIED_BACK.get(event_type, event_type) if column.type.kind is Kind.BINARY else event_type
    )


# --- templates ------------------------------------------------------------------------------------


def _text_of(template: str, **values: object) -> str:
    return _rendered(template, **values).strip("\n")


def _both(*conditions: str | None) -> str | None:
    present = [condition for condition in conditions if condition is not None]
    return " AND ".join(present) or None


_rendered: Final = template_renderer(
    __package__,
    filters={"identifier": quote_identifier, "literal": literal},
    globals={"is_changed": is_changed, "value_text": value_text, "field": field, "both": _both},
)


TRIGGERS: Final = SQLiteTriggers()
