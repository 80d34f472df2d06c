"""Triggers on Oracle: the changes that they log, as SQL, and how they are compared and applied.

See spec/triggers.md 2, 4, 5, 6, 7.2, 9, 10. The texts are in the .sql.j2 files next to this module.
A table has one trigger for each operation, since the source of a trigger is limited to 32 KiB. A
trigger of Oracle cannot have a comment, so its source contains the hash of the compiled text.
Changes made by hand are found by comparing the rest of the source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from sqlalchemy import Connection

from eventlog.core import table_key
from eventlog.core.catalog import Column
from eventlog.errors import DatabaseError, TriggerError
from eventlog.model import EventType
from eventlog.sql.dialects.oracle.script import (
    PROLOGUE,
    ddl_lock_timeout,
    drop_trigger,
    enabled,
    terminated,
)
from eventlog.sql.dialects.oracle.session import chunks, error_code, fetch
from eventlog.sql.dialects.oracle.text import (
    BASE64_FUNCTION,
    QUOTE_FUNCTION,
    SQL_TEXT,
    Family,
    base64_function,
    change_function,
    changed,
    differs,
    family,
    is_locator,
    is_loggable,
    is_long,
    joined,
    key_text,
    new_time,
    number_sequence,
    qualified,
    quote_function,
    quote_identifier,
    text_bytes,
    value_text,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import (
    PlainRows,
    grouped,
    literal,
    statements,
    template_renderer,
    trigger_words,
)
from eventlog.sql.triggers import Action, InstalledTrigger, by_table, missing_log
from eventlog.sql.triggers.declared import (
    ChildTriggers,
    ClassTriggers,
    TableName,
    TableTriggers,
    early_tables,
)
from eventlog.sql.triggers.marked import (
    CommittedTriggers,
    TriggerText,
    behind_marker,
    stored_trigger,
)
from eventlog.sql.triggers.planner import Compiled, CompiledTrigger, Installed, StoredTrigger

_SQL: Final = statements(__package__, "installed.sql")

_OPERATIONS: Final[Mapping[str, str]] = {"i": "INSERT", "u": "UPDATE", "d": "DELETE"}
_MAX_SOURCE: Final = 32 * 1024
"""The maximum number of bytes that Oracle accepts as the source of a trigger."""
_MAX_CHILD_VALUE: Final = 12_000
"""The maximum number of bytes of a child value that a trigger can find again: a string with the
hexadecimal digits of the value and of the owner's key identifies the value.
"""
_FLUSH: Final = 1000
"""The number of log rows that a compound trigger keeps in memory before it writes them."""


class OracleTriggers(CommittedTriggers):
    """Oracle's triggers. Oracle commits every statement of a plan: statements before an error keep
    their effect, and the next plan has the other statements.

    A new trigger is first created as disabled, then checked, and then enabled (``Oracle.run``),
    since a trigger that does not compile would make the writes to its table fail until it is
    dropped.
    """

    replaces = True
    # The database rewrites the text before the marker.
    compared = staticmethod(behind_marker)
    blank_digest = "0" * 64
    drop_trigger = staticmethod(drop_trigger)
    ended = staticmethod(terminated)
    script_head = (*PROLOGUE, "")
    script_end = ()

    def texts(
        self,
        home: str | None,
        log: LogTable,
        triggers: TableTriggers,
        declared: Sequence[TableTriggers],
    ) -> Iterator[TriggerText]:
        for letter, operation in _OPERATIONS.items():
            yield letter, partial(_trigger, home, log, triggers, operation)

    def find_log(self, log: OpenLog) -> OpenLog:
        table = log.table
        rows = fetch(log.connection, _SQL["log"], {"owner": table.schema, "name": table.name})
        if not rows:
            raise missing_log(table)
        return log.db.log(replace(table, schema=rows[0][0], name=rows[0][1]))

    def all_triggers(
        self, conn: Connection, tables: Collection[TableName] = ()
    ) -> list[StoredTrigger]:
        wanted = {*tables, *((owner, table) for owner, table in fetch(conn, _SQL["marked_tables"]))}
        rows = _by_owner(conn, "triggers", wanted)
        names = [(schema, name) for schema, name, *_ in rows]
        lines = _by_owner(conn, "sources", names)
        sources = grouped(((schema, name), line or "") for schema, name, line in lines)
        ordering = _by_owner(conn, "ordering", names)
        follows = grouped(((schema, name), tuple(other)) for schema, name, *other in ordering)
        return [
            stored_trigger(
                schema,
                name,
                table=(owner, table),
                text="".join(sources[schema, name]),
                is_enabled=status == "ENABLED",
                is_valid=validity == "VALID",
                type=type_,
                event=event,
                follows=frozenset(follows[schema, name]),
            )
            for schema, name, owner, table, type_, event, status, validity in rows
        ]

    def enable(self, trigger: StoredTrigger) -> list[str]:
        return [] if trigger.is_enabled else [enabled(trigger.schema, trigger.name)]

    def refuse(self, log: OpenLog, schema: str | None, declared: Sequence[TableTriggers]) -> None:
        super().refuse(log, schema, declared)
        for home in sorted({one.schema or schema or "" for one in declared}):
            if not log.db.sees_triggers(home):
                raise DatabaseError(
                    f"the database does not show the triggers of schema {home} to user "
                    f"{log.db.current_user()}, so missing ones cannot be detected: run the command "
                    f"as {home}, or as a user with CREATE ANY TRIGGER"
                )

    def first_actions(self, log: OpenLog) -> list[Action]:
        # The log of another program has no functions.
        table = log.table
        names = {"quote": table.own_name(QUOTE_FUNCTION), "base64": table.own_name(BASE64_FUNCTION)}
        rows = fetch(log.connection, _SQL["functions"], {"owner": table.schema, **names})
        if {row[0] for row in rows} >= set(names.values()):
            return []
        return [
            Action("create", str(log), "its functions are missing", tuple(create_functions(table)))
        ]

    def warnings(
        self, log: LogTable, compiled: Sequence[Compiled], installed: Installed
    ) -> Iterable[str]:
        for one in compiled:
            yield from _deferrable(one.declared)
            yield from _always(one.declared)
            yield from _grants(log, one)
        for name in early_tables(one.declared for one in compiled):
            yield (
                f"the foreign key of {name} is DEFERRABLE: if a transaction inserts a row before "
                "its owner, the value is sent as an update before the owner's insert, which does "
                "not have the value. Insert owners first, or use row_style = row_query_back"
            )
        for of_table in by_table(compiled):
            yield from _order(
                [trigger for one in of_table for trigger in one.triggers], of_table[0], installed
            )

    def drop_warnings(
        self, installed: Installed, dropped: Sequence[StoredTrigger]
    ) -> Iterable[str]:
        # If a trigger FOLLOWS a dropped trigger, every later write to its table fails.
        gone = {(trigger.schema, trigger.name) for trigger in dropped}
        for trigger in (one for of_table in installed.others.values() for one in of_table):
            named = sorted(gone & trigger.follows)
            if trigger.digest is None and named:
                names = ", ".join(name for _, name in named)
                yield (
                    f"trigger {trigger.name} of {'.'.join(trigger.table)} FOLLOWS {names}, which "
                    f"will be dropped. Then {trigger.name} is invalid, and writes that fire "
                    f"{trigger.name} fail (ORA-04098). Recreate {trigger.name} first without "
                    "FOLLOWS"
                )

    def not_captured(self, declared: Sequence[TableTriggers]) -> tuple[str, ...]:
        lobs = dict.fromkeys(
            f"{triggers.table.name}.{column.name}"
            for triggers in declared
            for column in (
                [triggers.column] if isinstance(triggers, ChildTriggers) else triggers.columns
            )
            if family(column) in (Family.CLOB, Family.NCLOB, Family.UNREADABLE)
        )
        partitioned = dict.fromkeys(
            triggers.table.name for triggers in declared if triggers.table.partitioned
        )
        return (
            "TRUNCATE",
            "direct-path loads of SQL*Loader, and Data Pump imports in the direct path",
            "FLASHBACK TABLE without ENABLE TRIGGERS",
            "changes that GoldenGate or another apply process writes",
            *(f"{table}: EXCHANGE, DROP and TRUNCATE of a partition" for table in partitioned),
            *([f"writes through a locator (DBMS_LOB, OCI) to {', '.join(lobs)}"] if lobs else []),
        )

    # Applying triggers

    busy = frozenset({54, 4021})  # resource busy; time-out while waiting to lock an object
    error_code = staticmethod(error_code)

    def settings(self, lock_timeout: float) -> list[str]:
        return [ddl_lock_timeout(lock_timeout)]

    def installed(self, log: OpenLog) -> list[InstalledTrigger]:
        return [
            one._replace(trigger_sql=f"CREATE OR REPLACE {one.trigger_sql}")
            for one in super().installed(log)
        ]


def _by_owner(conn: Connection, question: str, names: Iterable[TableName]) -> PlainRows:
    """Run a statement of installed.sql for these names, schema by schema, and return its rows."""
    by_owner = grouped(sorted(set(names)))
    return [
        row
        for owner, of_owner in by_owner.items()
        for chunk in chunks(of_owner)
        for row in fetch(
            conn,
            named_statement(question, len(chunk)),
            {"owner": owner, **{f"n{place}": name for place, name in enumerate(chunk)}},
        )
    ]


def named_statement(question: str, size: int) -> str:
    """Return a statement of installed.sql about ``size`` names of one schema."""
    return _SQL[question].replace("{names}", ", ".join(f":n{place}" for place in range(size)))


def shows_triggers(conn: Connection, schema: str) -> bool:
    """Return True if this session sees the triggers on a schema's tables. If the session does not
    see the triggers, no trigger counts as missing.
    """
    return bool(fetch(conn, _SQL["sees_triggers"], {"owner": schema}))


# --- their texts ----------------------------------------------------------------------------------


def _trigger(
    home: str | None, log: LogTable, triggers: TableTriggers, operation: str, name: str, marker: str
) -> str:
    if isinstance(triggers, ClassTriggers):
        template, words = "class_trigger.sql.j2", _class_words(log, triggers, operation)
        key, columns = triggers.log_key, triggers.key
    else:
        template, words = "child_trigger.sql.j2", _child_words(log, triggers, operation)
        key, columns = triggers.own_key, triggers.owner_columns
    base64 = base64_function(log, home)
    text = _text_of(
        template,
        name=qualified(home, name),
        table=qualified(home, triggers.table.name),
        operation=operation,
        marker=marker,
        flush=_FLUSH,
        base64=base64,
        key_of=lambda row: key_text(key, _fields(row, columns), quote_function(log, home), base64),
        is_there=lambda row: joined(
            " AND ", (f"{ref} IS NOT NULL" for ref in _fields(row, columns))
        ),
        **words,
    )
    if len(text.encode()) > _MAX_SOURCE:
        raise TriggerError(
            f"watch {triggers.class_name}: the trigger for {operation} of {triggers.table.name} "
            f"has {len(text.encode())} bytes, but Oracle accepts at most {_MAX_SOURCE}: exclude "
            "columns, or use row_style = row_query_back"
        )
    return text


def _class_words(log: LogTable, triggers: ClassTriggers, operation: str) -> dict[str, object]:
    loggable = [
        column for column in triggers.columns if is_loggable(column, triggers.watch.lob_values)
    ]
    compared = [*triggers.key, *triggers.columns] if operation == "UPDATE" else []
    by_value = triggers.insert_type == EventType.INSERT_FIELD
    written = loggable if by_value and operation != "DELETE" else []
    # A locator of :OLD or :NEW is written with its row instead of being kept until the end of the
    # statement.
    by_statement = triggers.watch.trigger_level == "statement" and not any(map(is_locator, written))
    return {
        "log": _log_for(log, triggers.class_name, triggers.log_key, written),
        "columns": triggers.columns,
        "names": triggers.log_names,
        "insert_type": int(triggers.insert_type),
        "update_type": int(triggers.update_type),
        "is_compound": by_statement or operation == "UPDATE",
        "inserted_by_value": [
            column for column in written if operation == "INSERT" or not is_locator(column)
        ],
        "by_statement": by_statement,
        "is_nullable": triggers.is_nullable,
        "lob_capture_always": triggers.watch.lob_capture_always,
        "families": _families(compared, [Family.TEXT] if operation == "UPDATE" else []),
        "plain": [column for column in triggers.columns if is_loggable(column, lob_values=False)],
        "readable": [column for column in triggers.columns if _is_readable(column)],
        "is_loggable": loggable.__contains__,
        "key_is_changed": joined(" OR ", map(_is_changed, triggers.key)),
    }


def _child_words(log: LogTable, triggers: ChildTriggers, operation: str) -> dict[str, object]:
    by_statement = triggers.watch.trigger_level == "statement"
    triggers = triggers.read_back_unless(
        is_loggable(triggers.column, lob_values=False)
        and (text_bytes(triggers.column) or 0) <= _MAX_CHILD_VALUE
    )
    written = [triggers.column] if triggers.by_value else []
    return {
        "log": _log_for(log, triggers.class_name, triggers.own_key, written),
        "event_type": int(triggers.event_type),
        "by_value": triggers.by_value,
        "attribute": triggers.attribute,
        "column": triggers.column,
        "is_compound": by_statement or (operation == "UPDATE" and triggers.by_value),
        "by_statement": by_statement,
        "families": _families([triggers.column], [Family.TEXT]) if operation == "UPDATE" else [],
    }


def _log_for(
    log: LogTable, class_name: str, key: Iterable[Column], by_value: Sequence[Column]
) -> dict[str, str]:
    """Return the variables that the templates need about the log. ``by_value`` are the columns
    whose values are logged.

    The types that FORALL binds are no wider than necessary: a text beyond 4000 bytes would be bound
    as a LONG, with all restrictions of a LONG.
    """
    has_long = any(map(is_long, by_value))
    return {
        **trigger_words(log, class_name, new_time(is_zoned=log.has_zoned_time), quote_identifier),
        "key_type": _text_type(map(_key_part_bytes, key)),
        "value_type": "CLOB" if has_long else _text_type([_longest(by_value)]),
        "parameter_type": "CLOB" if has_long else "VARCHAR2",
    }


def _text_type(parts: Iterable[int | None]) -> str:
    """Return the PL/SQL type for a text whose parts have at most these numbers of bytes; None =
    unknown size.
    """
    known = list(parts)
    fits = None not in known and sum(size or 0 for size in known) <= SQL_TEXT
    return f"VARCHAR2({SQL_TEXT if fits else 32767})"


def _longest(columns: Sequence[Column]) -> int | None:
    """Return the maximum number of bytes of these columns' texts, None if a text has no limit."""
    longest = 0
    for column in columns:
        if (size := text_bytes(column)) is None:
            return None
        longest = max(longest, size)
    return longest


def _key_part_bytes(column: Column) -> int | None:
    """Return the maximum number of bytes of a part of a key: + and =, the name, and the value in
    quotation marks with each of its characters escaped.
    """
    size = text_bytes(column)
    return None if size is None else len(table_key.quote(column.name).encode()) + 4 + 2 * size


def _families(columns: Iterable[Column], needed: Iterable[Family]) -> list[Family]:
    used = {family(column) for column in columns} | set(needed)
    return [one for one in Family if one in used and one is not Family.UNREADABLE]


def _is_readable(column: Column) -> bool:
    return family(column) is not Family.UNREADABLE


def field(row: str, column: Column) -> str:
    """Return PL/SQL of a column of the row OLD or NEW."""
    return f":{row}.{quote_identifier(column.name)}"


def _fields(row: str, columns: Iterable[Column]) -> list[str]:
    return [field(row, column) for column in columns]


def _is_changed(column: Column) -> str:
    return changed(column, field("OLD", column), field("NEW", column))


def create_functions(log: LogTable) -> list[str]:
    """Return the statements that create the functions of a log in its schema: one quotes texts in
    keys, one returns the base64 of binary values (spec/triggers.md 4, 6, 9).
    """
    return [
        _text_of("quote_function.sql.j2", function=quote_function(log)),
        _text_of("base64_function.sql.j2", function=base64_function(log)),
    ]


def _text_of(template: str, **values: object) -> str:
    """Return the text of a template, without the blank lines that its conditions leave."""
    lines = _rendered(template, **values).strip("\n").split("\n")
    return "\n".join(
        line for at, line in enumerate(lines) if line.strip() or (at and lines[at - 1].strip())
    )


_rendered: Final = template_renderer(
    __package__,
    filters={"identifier": quote_identifier, "literal": literal},
    globals={
        "is_changed": _is_changed,
        "is_readable": _is_readable,
        "value_text": value_text,
        "change_function": change_function,
        "differs": differs,
        "field": field,
    },
)


# --- warnings about declared triggers (spec/triggers.md 1, 7) -------------------------


def _deferrable(triggers: TableTriggers) -> Iterable[str]:
    if isinstance(triggers, ClassTriggers) and triggers.keys_may_shift:
        yield (
            f"the primary key of {triggers.table.name} is DEFERRABLE: statements of a transaction "
            "may exchange keys, or two rows may share a key for a while. The log then has the "
            "changes in the order of the statements, and takes all rows with the same key for one "
            "object. Make the key NOT DEFERRABLE if no statement needs the deferred "
            "check"
        )


def _always(triggers: TableTriggers) -> Iterable[str]:
    if triggers.watch.capture_replicated:
        yield (
            f"capture_replicated has no effect on {triggers.table.name}: use "
            "DBMS_DDL.SET_TRIGGER_FIRING_PROPERTY to set whether triggers fire for changes of an "
            "apply process"
        )


def _order(
    ours: Sequence[CompiledTrigger], compiled: Compiled, installed: Installed
) -> Iterable[str]:
    for trigger in installed.others.get(compiled.place, ()):
        if (
            trigger.digest is not None
            or not trigger.is_enabled
            or trigger.type not in ("AFTER EACH ROW", "COMPOUND")
        ):
            continue
        before = [
            qualified(compiled.schema if compiled.schema != trigger.schema else None, one.name)
            for one in ours
            if _OPERATIONS[one.operation] in trigger.event
            and (compiled.schema or "", one.name) not in trigger.follows
        ]
        if before:
            yield (
                (
                    f"trigger {trigger.name} of {trigger.table[1]} fires before or after "
                    "eventlog's trigger, in no fixed order: its writes to watched tables may be "
                    "logged before the change that caused them; give it FOLLOWS "
                )
                + ", ".join(before)
            )


def _grants(log: LogTable, compiled: Compiled) -> Iterable[str]:
    if compiled.schema in (None, log.schema):
        return
    owner = quote_identifier(compiled.schema or "")
    wanted = (
        f"GRANT INSERT ON {qualified(log.schema, log.name)} TO {owner}",
        f"GRANT SELECT ON {number_sequence(log)} TO {owner}",
        f"GRANT EXECUTE ON {quote_function(log)} TO {owner}",
        f"GRANT EXECUTE ON {base64_function(log)} TO {owner}",
    )
    yield (
        f"the triggers in schema {compiled.schema} write the log with the rights of the user "
        f"{compiled.schema}. Grant these rights directly to the user, not to a role: "
        f"{'; '.join(wanted)}"
    )


TRIGGERS: Final = OracleTriggers()
