"""What ``doctor`` says of what is captured: classes and their keys, triggers, the rights on their tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from eventlog.core.catalog import Catalog, Database, Table, match_name
from eventlog.sql.doctor import Finding, error, info, warning
from eventlog.sql.doctor.facts import Answer, LogTrigger
from eventlog.sql.triggers import TriggerPlan


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
            yield error(
                "class_missing",
                f"there is no table or view {name!r} in schema {database.schema}, although it is configured",
                "correct tables or [[watch]] in eventlog.toml",
            )
            continue
        table = present[match]
        if table.kind == "view":
            if listed is not None and not has_key(table):
                yield error(
                    "class_without_key",
                    f"view {match} has no column whose name begins with pk_: it is no class and cannot be published",
                    f"ALTER VIEW {schema}.{quote(match)} RENAME COLUMN ... TO pk_...",
                )
        elif not table.primary_key and (listed is not None or match not in children):
            unique = next(iter(table.unique_keys), None)
            columns = "..." if unique is None else ", ".join(map(quote, unique))
            finding = info if listed is None else error
            yield finding(
                "class_without_key",
                f"table {match} has no primary key: it is no class, and its changes are not published",
                f"ALTER TABLE {schema}.{quote(match)} ADD PRIMARY KEY ({columns})",
            )


def has_key(table: Table) -> bool:
    """Whether a table has a primary key, or a view the columns that stand for one."""
    if table.kind == "view":
        return any(column.name[:3].casefold() == "pk_" for column in table.columns)
    return bool(table.primary_key)


def judge_deferrable(catalog: Catalog, plan: TriggerPlan | None) -> Iterator[Finding]:
    """Keys that are checked late (spec/triggers.md 7.1), unless the plan warns of them already."""
    told = [] if plan is None else [sentence for sentence in plan.warnings if "DEFERRABLE" in sentence]
    for cls in catalog.classes:
        if cls.table.key_deferrable and not any(cls.name in sentence for sentence in told):
            yield warning(
                "deferrable_key",
                f"the primary key of {cls.name} is DEFERRABLE: with the check deferred to commit the order of two "
                "sessions' changes of one key is not promised",
                f"make the primary key of {cls.name} NOT DEFERRABLE, if nothing shifts its keys",
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
            yield error("trigger_missing", text, *mend)
        elif action.kind == "drop":
            yield warning("trigger_orphaned", f"triggers of {action.table}: {action.reason}", *mend)
        else:
            off = [f"trigger {name} " for name in disabled.get(action.table, ())]
            reasons = [reason for reason in action.reason.split("; ") if not any(name in reason for name in off)]
            if reasons:
                text = f"triggers of {action.table} are not as declared: {'; '.join(reasons)}"
                finding = error if any(reason.endswith("is missing") for reason in reasons) else warning
                yield finding("trigger_drifted", text, *mend)
    for sentence in plan.warnings:
        code = "deferrable_key" if "DEFERRABLE" in sentence else "trigger_warning"
        yield warning(code, sentence, "eventlog triggers plan")
    for sentence in plan.not_captured:
        yield info("not_captured", f"not captured: {sentence}")


def judge_disabled(installed: Iterable[LogTrigger]) -> Iterator[Finding]:
    """Triggers of the log that do not fire."""
    for trigger in installed:
        if not trigger.enabled:
            yield error(
                "trigger_disabled",
                f"trigger {trigger.trigger} of {trigger.table} is disabled: what it should log is lost",
                trigger.mend,
            )


def judge_without_plan(installed: Iterable[LogTrigger], watched: Iterable[str], reason: str) -> Iterator[Finding]:
    """What can be said where no plan could be made. ``watched``: tables as ``schema.table`` that need triggers."""
    tables = {trigger.table for trigger in installed}
    yield info(
        "triggers_not_compared",
        f"whether the triggers are as declared was not compared: {reason}",
        "eventlog doctor, as the owner of the watched tables",
    )
    for table in watched:
        if table not in tables:
            yield error(
                "trigger_missing",
                f"{table}: watched, and not captured; its changes are lost until triggers are there",
                "eventlog triggers apply",
            )


def judge_orphans(orphans: Answer) -> Iterator[Finding]:
    """Triggers whose log is gone: they fail the application's statements. One finding a log.

    Each of ``orphans`` tells table, trigger, log, and the SQL that drops the trigger.
    """
    by_log: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for table, _, log, mend in orphans:
        by_log[log][table].append(mend)
    for log, tables in by_log.items():
        triggers = sum(map(len, tables.values()))
        many = "1 trigger still writes" if triggers == 1 else f"{triggers:,} triggers still write"
        yield error(
            "trigger_orphaned",
            f"the log {log} is gone, and {many} it: every change of {', '.join(tables)} fails",
            "eventlog db upgrade, which makes the log again (it says what to do first where the log was dropped "
            "by hand)",
            *(f"{'or ' if number == 0 else ''}{'; '.join(mends)}" for number, mends in enumerate(tables.values())),
        )


def judge_partitions(triggers: Answer) -> Iterator[Finding]:
    """Partitions whose changes are not logged, since a trigger of their table is missing there or disabled."""
    for table, partition, trigger, state, mend in triggers:
        yield error(
            "partition_trigger",
            f"trigger {trigger} of {table} is {state} in its partition {partition}: what is changed there is lost",
            mend,
        )


def judge_untouched(tables: Iterable[str], listed: bool) -> Iterator[Finding]:
    """Classes whose tables have no trigger at all."""
    finding = warning if listed else info
    for name in tables:
        yield finding(
            "trigger_missing",
            f"class {name} has no trigger of any kind: its changes are not logged",
            f'[[watch]] table = "{name}" in eventlog.toml, then eventlog triggers apply',
        )


def judge_unreadable(tables: Answer, user: str, schema: str, quote: Callable[[str], str]) -> Iterator[Finding]:
    """Tables that cannot be read back, with their columns that the user may not read."""
    for table, columns in tables:
        yield error(
            "rights_read",
            f"user {user} may not read {table} ({', '.join(columns)}): its query-back events cannot be built",
            f"GRANT SELECT ON {quote(schema)}.{quote(table)} TO {quote(user)}",
        )


def judge_rights_to_apply(missing: Sequence[str], user: str) -> Iterator[Finding]:
    """What the user lacks to apply triggers, which a publisher's user does not need."""
    if missing:
        yield info(
            "rights_triggers",
            f"user {user} cannot apply triggers: it lacks {'; '.join(missing)}. The publisher does not need that",
            "eventlog triggers apply --sql, to be run by the owner of the tables",
        )
