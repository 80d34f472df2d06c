"""What people should know of declared triggers: warnings, grants, what no trigger sees (spec/triggers.md 1, 7, 7.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventlog.sql.dialects.oracle.compare import by_table
from eventlog.sql.dialects.oracle.compile import Compiled, CompiledTrigger
from eventlog.sql.dialects.oracle.ddl import number_sequence
from eventlog.sql.dialects.oracle.installed import MARKER, Installed, Trigger
from eventlog.sql.dialects.oracle.text import base64_function, qualified, quote_function, quote_identifier
from eventlog.sql.dialects.oracle.types import Family, family
from eventlog.sql.log_table import LogTable
from eventlog.sql.triggers.declared import ChildTriggers, ClassTriggers, TableTriggers, secret_names


def warnings(
    log: LogTable, declared: Sequence[TableTriggers], compiled: Sequence[Compiled], installed: Installed
) -> list[str]:
    """Sentences on what is declared; ``compiled`` stands in the same order."""
    found: list[str] = []
    for triggers, made in zip(declared, compiled, strict=True):
        found += _secrets(triggers)
        found += _deferrable(triggers)
        found += _always(triggers)
        found += _grants(log, made)
    for of_table in by_table(compiled):
        found += _order([trigger for one in of_table for trigger in one.triggers], of_table[0], installed)
    return list(dict.fromkeys(found))


def is_foreign(trigger: Trigger) -> bool:
    """Whether a trigger is none of ours, of whichever log."""
    return trigger.source is None or MARKER.search(trigger.source) is None


def _secrets(triggers: TableTriggers) -> Iterable[str]:
    for column in secret_names(triggers):
        where = f"{triggers.table.name}.{column}"
        yield f"{where} looks like a secret and is logged in clear: exclude it if it is not needed"


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
