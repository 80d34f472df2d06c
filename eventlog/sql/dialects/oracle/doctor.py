"""What ``doctor`` asks of Oracle beside doctor.sql, and what a plan of triggers tells people (spec/triggers.md 7.2).

What only ``V$`` views tell, such as the open transactions of others, is not asked: an application's user sees none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.sql.dialects.oracle.compare import by_table
from eventlog.sql.dialects.oracle.compile import Compiled, CompiledTrigger
from eventlog.sql.dialects.oracle.ddl import number_sequence
from eventlog.sql.dialects.oracle.installed import MARKER, Installed, Trigger, find_log, read_installed
from eventlog.sql.dialects.oracle.lock import call, current_user
from eventlog.sql.dialects.oracle.session import error_code, fetch, may_run
from eventlog.sql.dialects.oracle.text import (
    base64_function,
    literal,
    own_name,
    qualified,
    quote_function,
    quote_identifier,
)
from eventlog.sql.dialects.oracle.types import Family, family
from eventlog.sql.doctor.facts import AnswerFunction, LogTrigger, Numbering, Orphan, Unreadable
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import statements
from eventlog.sql.triggers.declared import ChildTriggers, ClassTriggers, TableTriggers, logged_secrets

# --- the log ----------------------------------------------------------------------------------------------------------


def numberings(conn: Connection, log: LogTable) -> list[Numbering]:
    """The sequence that gives record_ids, if it is the one that `eventlog db upgrade` makes (spec/triggers.md 7)."""
    names = {"owner": log.schema, "name": own_name("seq_{}_1", log.name)}
    answer = []
    for owner, name, cache, step, cycles, ordered, of_session in fetch(
        conn, statements(__package__, "doctor.sql")["numberings"], names
    ):
        sequence = qualified(owner, name)
        # The cache is the instance's, and sessions take their numbers from it one by one.
        numbering = Numbering(sequence, 1, int(step), cycles == "Y")
        if of_session == "Y":
            disorder, mend = "gives every session the same numbers (SESSION)", "GLOBAL"
        elif _is_scaled(conn, names):
            disorder, mend = "puts instance and session into its numbers (SCALE)", "NOSCALE"
        elif ordered != "Y" and int(cache) > 0 and _is_cluster(conn):
            disorder, mend = f"has a cache of {cache} numbers on each instance of a cluster (NOORDER)", "ORDER"
        else:
            answer.append(numbering)
            continue
        answer.append(numbering._replace(disorder=disorder, mend=f"ALTER SEQUENCE {sequence} {mend}"))
    return answer


_NO_COLUMN: Final = 904


def _is_scaled(conn: Connection, names: dict[str, str | None]) -> bool:
    try:
        return bool(fetch(conn, statements(__package__, "doctor.sql")["scaled"], names))
    except DBAPIError as error:
        if error_code(error) != _NO_COLUMN:
            raise
        return False


def _is_cluster(conn: Connection) -> bool:
    # V$INSTANCE knows it too, which an application's user does not see.
    is_cluster = "CASE WHEN DBMS_UTILITY.IS_CLUSTER_DATABASE THEN 1 ELSE 0 END"
    return call(conn, f"BEGIN\n    :answer := {is_cluster};\nEND;") == 1


# --- triggers and rights ----------------------------------------------------------------------------------------------


def _installed_triggers(conn: Connection, log: LogTable) -> Iterator[LogTrigger]:
    """The triggers that write the log; one that does not compile counts as disabled."""
    installed = read_installed(conn, find_log(conn, log))
    for table in installed.tables:
        for trigger in installed.on(table):
            mend = f"ALTER TRIGGER {qualified(trigger.schema, trigger.name)} "
            mend += "ENABLE" if trigger.is_valid else "COMPILE"
            yield LogTrigger(".".join(table), trigger.name, trigger.is_enabled and trigger.is_valid, mend)


def _orphans(conn: Connection) -> Iterator[Orphan]:
    """Triggers of ours whose log is gone."""
    for triggers in read_installed(conn, LogTable(None, "none", ())).triggers.values():
        for trigger in triggers:
            marked = MARKER.search(trigger.source or "")
            if marked is None or may_run(conn, f"SELECT 1 FROM {marked[3].rstrip()} WHERE 1 = 0"):  # noqa: S608 - quoted
                continue
            mend = f"DROP TRIGGER {qualified(trigger.schema, trigger.name)}"
            yield Orphan(".".join(trigger.table), trigger.name, marked[3].rstrip(), mend)


def _without_triggers(conn: Connection, schema: str, tables: Sequence[str], **_: Any) -> Iterator[tuple[str]]:
    """Those of the tables that have no trigger at all."""
    installed = read_installed(conn, LogTable(None, "none", ()))
    for table in tables:
        if not installed.triggers.get((schema, table)):
            yield (table,)


def _owned(_conn: Connection, schema: str, tables: Sequence[str], user: str) -> list[tuple[str]]:
    """All of the tables or none: a schema is its user's."""
    return [(table,) for table in tables] if schema == user else []


def _unreadable(
    conn: Connection, schema: str, tables: Sequence[str], columns: Sequence[str], **_: Any
) -> Iterator[Unreadable]:
    """Which of the columns this user may not read: Oracle grants whole tables, so all or none."""
    by_table: defaultdict[str, list[str]] = defaultdict(list)
    for table, column in zip(tables, columns, strict=True):
        by_table[table].append(column)
    for table, names in by_table.items():
        if not may_run(conn, f"SELECT 1 FROM {qualified(schema, table)} WHERE 1 = 0"):  # noqa: S608 - quoted names
            yield Unreadable(table, names)


def _rights_to_apply(conn: Connection, schema: str, **_: Any) -> Iterator[tuple[str]]:
    """What this session's user lacks to apply triggers to tables of a schema, in words."""
    privileges = {row[0] for row in fetch(conn, statements(__package__, "doctor.sql")["rights"])}
    if "CREATE ANY TRIGGER" in privileges:
        return
    user = current_user(conn)
    if "CREATE TRIGGER" not in privileges:
        yield ("the system privilege CREATE TRIGGER",)
    if schema != user:
        yield (f"CREATE ANY TRIGGER, since the tables stand in schema {schema} and this is {literal(user)}",)


ANSWERS: Final[Mapping[str, AnswerFunction]] = {
    "numberings": numberings,
    "installed_triggers": _installed_triggers,
    "orphans": _orphans,
    "without_triggers": _without_triggers,
    "owned": _owned,
    "unreadable": _unreadable,
    "rights_to_apply": _rights_to_apply,
}


# --- what people should know of declared triggers (spec/triggers.md 1, 7) ---------------------------------------------


def warnings(
    log: LogTable, declared: Sequence[TableTriggers], compiled: Sequence[Compiled], installed: Installed
) -> list[str]:
    """Sentences on what is declared; ``compiled`` stands in the same order."""
    sentences: list[str] = []
    for triggers, made in zip(declared, compiled, strict=True):
        sentences += logged_secrets(triggers)
        sentences += _deferrable(triggers)
        sentences += _always(triggers)
        sentences += _grants(log, made)
    for of_table in by_table(compiled):
        sentences += _order([trigger for one in of_table for trigger in one.triggers], of_table[0], installed)
    return list(dict.fromkeys(sentences))


def is_foreign(trigger: Trigger) -> bool:
    """Whether a trigger is none of ours, of whichever log."""
    return trigger.source is None or MARKER.search(trigger.source) is None


def _deferrable(triggers: TableTriggers) -> Iterable[str]:
    if isinstance(triggers, ClassTriggers) and triggers.may_repeat and not triggers.decides:
        yield (
            f"the primary key of {triggers.table.name} is DEFERRABLE: keys that several statements of one transaction "
            "exchange are logged in the order of the statements, and a key that two rows share for a while as if each "
            "were the object"
        )


def _always(triggers: TableTriggers) -> Iterable[str]:
    if triggers.always:
        yield (
            f"always has no effect on {triggers.table.name}: whether triggers fire for what an apply process writes is "
            "set by DBMS_DDL.SET_TRIGGER_FIRING_PROPERTY"
        )


def _order(ours: Sequence[CompiledTrigger], made: Compiled, installed: Installed) -> Iterable[str]:
    for trigger in installed.triggers.get((made.schema or "", made.table), ()):
        if not is_foreign(trigger) or not trigger.is_enabled or trigger.type not in ("AFTER EACH ROW", "COMPOUND"):
            continue
        behind = installed.follows.get((trigger.schema, trigger.name), ())
        before = [
            qualified(made.schema if made.schema != trigger.schema else None, one.name)
            for one in ours
            if one.operation in trigger.event and (made.schema or "", one.name) not in behind
        ]
        if before:
            yield (
                f"trigger {trigger.name} of {made.table} fires before or after ours, as Oracle likes: what it writes "
                f"to watched tables may be logged before the change it answers; give it FOLLOWS {', '.join(before)}"
            )


def left_invalid(installed: Installed, dropped: Iterable[Trigger]) -> Iterable[str]:
    """Sentences on the triggers of others that FOLLOW one of ours which goes: writes to their tables fail then."""
    gone = {(trigger.schema, trigger.name) for trigger in dropped}
    for found in installed.triggers.values():
        for trigger in found:
            named = sorted(gone.intersection(installed.follows.get((trigger.schema, trigger.name), ())))
            if is_foreign(trigger) and named:
                names = ", ".join(name for _, name in named)
                yield (
                    f"trigger {trigger.name} of {'.'.join(trigger.table)} FOLLOWS {names}, which goes: it is invalid "
                    "then, and every write to its table that fires it fails (ORA-04098); first make it without that"
                )


def _grants(log: LogTable, made: Compiled) -> Iterable[str]:
    if made.schema in (None, log.schema):
        return
    owner = quote_identifier(made.schema or "")
    wanted = (
        f"GRANT INSERT ON {qualified(log.schema, log.name)} TO {owner}",
        f"GRANT SELECT ON {number_sequence(log)} TO {owner}",
        f"GRANT EXECUTE ON {quote_function(log)} TO {owner}",
        f"GRANT EXECUTE ON {base64_function(log)} TO {owner}",
    )
    yield (
        f"the triggers in schema {made.schema} write the log with the rights of that user, which must be granted to it "
        f"itself and not to a role: {'; '.join(wanted)}"
    )


def not_captured(declared: Sequence[TableTriggers]) -> tuple[str, ...]:
    """Sentences on what the declared triggers do not see."""
    if not declared:
        return ()
    lobs = dict.fromkeys(
        f"{triggers.table.name}.{column.name}"
        for triggers in declared
        for column in ([triggers.column] if isinstance(triggers, ChildTriggers) else triggers.columns)
        if family(column) in (Family.CLOB, Family.NCLOB, Family.UNREADABLE)
    )
    partitioned = dict.fromkeys(triggers.table.name for triggers in declared if triggers.table.partitioned)
    return (
        "TRUNCATE",
        "direct-path loads of SQL*Loader, and Data Pump imports in the direct path",
        "FLASHBACK TABLE without ENABLE TRIGGERS",
        "what GoldenGate or another apply process writes",
        *(f"{table}: EXCHANGE, DROP and TRUNCATE of a partition" for table in partitioned),
        *([f"writes through a locator (DBMS_LOB, OCI) to {', '.join(lobs)}"] if lobs else []),
    )
