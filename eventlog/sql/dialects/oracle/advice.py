"""What people should know of declared triggers: warnings, grants, what no trigger sees (spec/triggers.md 1, 7, 7.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventlog.sql.declared import secret_names
from eventlog.sql.dialects.oracle.compile import Compiled
from eventlog.sql.dialects.oracle.ddl import number_sequence
from eventlog.sql.dialects.oracle.installed import MARKER, Installed
from eventlog.sql.dialects.oracle.text import base64_function, qualified, quote_function, quote_identifier
from eventlog.sql.dialects.oracle.types import Family, family
from eventlog.sql.log_table import LogTable
from eventlog.sql.triggers import ChildTriggers, ClassTriggers, TableTriggers


def warnings(
    log: LogTable, declared: Sequence[TableTriggers], compiled: Sequence[Compiled], installed: Installed
) -> list[str]:
    """Sentences on what is declared; ``compiled`` stands in the same order."""
    found: list[str] = []
    for triggers, made in zip(declared, compiled, strict=True):
        found += _secrets(triggers)
        found += _deferrable(triggers)
        found += _always(triggers)
        found += _order(made, installed)
        found += _grants(log, made)
    return list(dict.fromkeys(found))


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


def _order(made: Compiled, installed: Installed) -> Iterable[str]:
    for trigger in installed.triggers.get((made.schema or "", made.table), ()):
        is_foreign = trigger.source is None or MARKER.search(trigger.source) is None
        if is_foreign and trigger.is_enabled and trigger.type in ("AFTER EACH ROW", "COMPOUND"):
            yield (
                f"trigger {trigger.name} of {made.table} fires before or after ours, as Oracle likes: what it writes "
                f"to watched tables may be logged before the change it answers; give it FOLLOWS {made.triggers[0].name}"
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
