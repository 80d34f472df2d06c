"""What ``doctor`` says of what is captured: classes and their keys, triggers, the rights on their tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from eventlog.core.catalog import Catalog, Database, Table, match_name
from eventlog.sql.doctor import Finding
from eventlog.sql.doctor.facts import LogTrigger, Orphan, PartitionTrigger, Unreadable
from eventlog.sql.triggers.plan import TriggerPlan


def judge_classes(
    database: Database,
    listed: Collection[str] | None,
    catalog: Catalog | None,
    ignore: Collection[str],
    quote: Callable[[str], str],
) -> Iterator[Finding]:
    """Classes that have no key, or that do not exist. ``listed``: what is configured to be a class, None = all tables
    with a key; ``ignore``: the log and its companions; ``catalog``: the classes, None if they could not be built.
    """
    schema = quote(database.schema or "")
    present = {table.name: table for table in database.tables if table.name not in ignore}
    names = sorted(present) if listed is None else listed
    children = {} if catalog is None else catalog.log_names
    for name in names:
        match = match_name(name, present)
        if match is None:
            yield Finding(
                "class_missing",
                "error",
                f"there is no table or view {name!r} in schema {database.schema}, although it is configured",
                ("correct tables or [[watch]] in eventlog.toml",),
            )
            continue
        table = present[match]
        if table.kind == "view":
            if listed is not None and not has_key(table):
                yield Finding(
                    "class_without_key",
                    "error",
                    f"view {match} has no column whose name begins with pk_: it is no class and cannot be published",
                    (f"ALTER VIEW {schema}.{quote(match)} RENAME COLUMN ... TO pk_...",),
                )
        elif not table.primary_key and (listed is not None or match not in children):
            unique = next(iter(table.unique_keys), None)
            columns = "..." if unique is None else ", ".join(map(quote, unique))
            yield Finding(
                "class_without_key",
                "info" if listed is None else "error",
                f"table {match} has no primary key: it is no class, and its changes are not published",
                (f"ALTER TABLE {schema}.{quote(match)} ADD PRIMARY KEY ({columns})",),
            )


def has_key(table: Table) -> bool:
    """Whether a table has a primary key, or a view the columns that stand for one."""
    if table.kind == "view":
        return any(column.name[:3].casefold() == "pk_" for column in table.columns)
    return bool(table.primary_key)


def judge_deferrable(catalog: Catalog, plan: TriggerPlan | None) -> Iterator[Finding]:
    """Keys that are checked late (spec/triggers.md 7.1), unless the plan warns of them already."""
    warnings = [] if plan is None else [warning for warning in plan.warnings if "DEFERRABLE" in warning]
    for cls in catalog.classes:
        if cls.table.key_deferrable and not any(cls.name in warning for warning in warnings):
            yield Finding(
                "deferrable_key",
                "warning",
                f"the primary key of {cls.name} is DEFERRABLE: with the check deferred to commit the order of two "
                "sessions' changes of one key is not promised",
                (f"make the primary key of {cls.name} NOT DEFERRABLE, if nothing shifts its keys",),
            )


def judge_plan(plan: TriggerPlan, installed: Iterable[LogTrigger]) -> Iterator[Finding]:
    """Triggers against what is declared; that one is disabled is a finding of its own."""
    disabled: defaultdict[str, list[str]] = defaultdict(list)
    for trigger in installed:
        if not trigger.enabled:
            disabled[trigger.table].append(trigger.trigger)
    mend = ("eventlog triggers plan", "eventlog triggers apply")
    for action in plan.changes:
        if action.kind == "create":
            text = f"{action.table}: {action.reason}; its changes are lost until triggers are there"
            yield Finding("trigger_missing", "error", text, mend)
        elif action.kind == "drop":
            yield Finding("trigger_orphaned", "warning", f"triggers of {action.table}: {action.reason}", mend)
        else:
            off = [f"trigger {name} " for name in disabled.get(action.table, ())]
            reasons = [reason for reason in action.reason.split("; ") if not any(name in reason for name in off)]
            if reasons:
                text = f"triggers of {action.table} are not as declared: {'; '.join(reasons)}"
                missing = any(reason.endswith("is missing") for reason in reasons)
                yield Finding("trigger_drifted", "error" if missing else "warning", text, mend)
    for warning in plan.warnings:
        code = "deferrable_key" if "DEFERRABLE" in warning else "trigger_warning"
        yield Finding(code, "warning", warning, ("eventlog triggers plan",))
    for sentence in plan.not_captured:
        yield Finding("not_captured", "info", f"not captured: {sentence}")


def judge_disabled(installed: Iterable[LogTrigger]) -> Iterator[Finding]:
    """Triggers of the log that do not fire."""
    for trigger in installed:
        if not trigger.enabled:
            yield Finding(
                "trigger_disabled",
                "error",
                f"trigger {trigger.trigger} of {trigger.table} is disabled: what it should log is lost",
                (trigger.mend,),
            )


def judge_without_plan(installed: Iterable[LogTrigger], watched: Iterable[str], reason: str) -> Iterator[Finding]:
    """What can be said where no plan could be made. ``watched``: tables as ``schema.table`` that need triggers."""
    tables = {trigger.table for trigger in installed}
    yield Finding(
        "triggers_not_compared",
        "info",
        f"whether the triggers are as declared was not compared: {reason}",
        ("eventlog doctor, as the owner of the watched tables",),
    )
    for table in watched:
        if table not in tables:
            yield Finding(
                "trigger_missing",
                "error",
                f"{table}: watched, and not captured; its changes are lost until triggers are there",
                ("eventlog triggers apply",),
            )


def judge_orphans(orphans: Iterable[Orphan]) -> Iterator[Finding]:
    """Triggers whose log is gone: they fail the application's statements. One finding a log."""
    by_log: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for orphan in orphans:
        by_log[orphan.log][orphan.table].append(orphan.mend)
    for log, tables in by_log.items():
        triggers = sum(map(len, tables.values()))
        many = "1 trigger still writes" if triggers == 1 else f"{triggers:,} triggers still write"
        which = ", ".join(tables)
        yield Finding(
            "trigger_orphaned",
            "error",
            f"the log {log} is gone, and {many} it: every change of {which} fails",
            (
                "eventlog db upgrade, which makes the log again (it says what to do first where the log was dropped "
                "by hand)",
                *(f"{'or ' if number == 0 else ''}{'; '.join(mends)}" for number, mends in enumerate(tables.values())),
            ),
        )


def judge_partitions(triggers: Iterable[PartitionTrigger]) -> Iterator[Finding]:
    """Partitions whose changes are not logged."""
    for trigger in triggers:
        yield Finding(
            "partition_trigger",
            "error",
            f"trigger {trigger.trigger} of {trigger.table} is {trigger.state} in its partition {trigger.partition}: "
            "what is changed there is lost",
            (trigger.mend,),
        )


def judge_untouched(tables: Iterable[str], listed: bool) -> Iterator[Finding]:
    """Classes whose tables have no trigger at all."""
    for name in tables:
        yield Finding(
            "trigger_missing",
            "warning" if listed else "info",
            f"class {name} has no trigger of any kind: its changes are not logged",
            (f'[[watch]] table = "{name}" in eventlog.toml, then eventlog triggers apply',),
        )


def judge_unreadable(
    tables: Iterable[Unreadable], user: str, schema: str, quote: Callable[[str], str]
) -> Iterator[Finding]:
    """Tables that cannot be read back."""
    for table in tables:
        yield Finding(
            "rights_read",
            "error",
            f"user {user} may not read {table.table} ({', '.join(table.columns)}): its query-back events cannot be "
            "built",
            (f"GRANT SELECT ON {quote(schema)}.{quote(table.table)} TO {quote(user)}",),
        )


def judge_rights_to_apply(missing: Sequence[str], user: str) -> Iterator[Finding]:
    """What the user lacks to apply triggers, which a publisher's user does not need."""
    if missing:
        yield Finding(
            "rights_triggers",
            "info",
            f"user {user} cannot apply triggers: it lacks {'; '.join(missing)}. The publisher does not need that",
            ("eventlog triggers apply --sql, to be run by the owner of the tables",),
        )
