"""What is captured: classes and their keys, and triggers against what is declared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from eventlog.core.catalog import Catalog, Database, match_name
from eventlog.publisher.doctor import Finding
from eventlog.sql.health import InstalledTrigger, Orphan, PartitionTrigger
from eventlog.sql.triggers.plan import TriggerPlan


def judge_classes(
    database: Database,
    listed: Collection[str] | None,
    catalog: Catalog | None,
    ignore: Collection[str],
    quote: Callable[[str], str],
) -> Iterator[Finding]:
    """Classes without key or that are not there. ``listed``: what is configured to be a class, None = all tables with a
    key; ``ignore``: the log and its companions; ``catalog``: the classes, None if they could not be built.
    """
    schema = quote(database.schema or "")
    present = {table.name: table for table in database.tables if table.name not in ignore}
    names = sorted(present) if listed is None else listed
    children = {} if catalog is None else catalog.log_names
    for name in names:
        found = match_name(name, present)
        if found is None:
            yield Finding(
                "class_missing",
                "error",
                f"there is no table or view {name!r} in schema {database.schema}, although it is configured",
                ("correct tables or [[watch]] in eventlog.toml",),
            )
            continue
        table = present[found]
        if table.kind == "view":
            if listed is not None and not any(column.name[:3].casefold() == "pk_" for column in table.columns):
                yield Finding(
                    "class_without_key",
                    "error",
                    f"view {found} has no column whose name begins with pk_: it is no class and cannot be published",
                    (f"ALTER VIEW {schema}.{quote(found)} RENAME COLUMN ... TO pk_...",),
                )
        elif not table.primary_key and (listed is not None or found not in children):
            unique = next(iter(table.unique_keys), None)
            columns = "..." if unique is None else ", ".join(map(quote, unique))
            yield Finding(
                "class_without_key",
                "info" if listed is None else "error",
                f"table {found} has no primary key: it is no class, and its changes are not published",
                (f"ALTER TABLE {schema}.{quote(found)} ADD PRIMARY KEY ({columns})",),
            )


def judge_deferrable(catalog: Catalog, said: Iterable[str]) -> Iterator[Finding]:
    """Keys that are checked late (spec/triggers.md 7.1). ``said``: warnings of the plan, which may have said it."""
    warnings = [warning for warning in said if "DEFERRABLE" in warning]
    for cls in catalog.classes:
        if cls.table.key_deferrable and not any(cls.name in warning for warning in warnings):
            yield Finding(
                "deferrable_key",
                "warning",
                f"the primary key of {cls.name} is DEFERRABLE: with the check deferred to commit the order of two "
                "sessions' changes of one key is not promised",
                (f"make the primary key of {cls.name} NOT DEFERRABLE, if nothing shifts its keys",),
            )


def judge_plan(plan: TriggerPlan, disabled: Mapping[str, Collection[str]]) -> Iterator[Finding]:
    """Triggers against what is declared. ``disabled``: names of the disabled ones by table, reported by themselves."""
    mend = ("eventlog triggers plan", "eventlog triggers apply")
    for action in plan.changes:
        if action.kind == "create":
            text = f"{action.table}: {action.reason}; its changes are lost until triggers are there"
            yield Finding("trigger_missing", "error", text, mend)
        elif action.kind == "drop":
            yield Finding("trigger_orphaned", "warning", f"triggers of {action.table}: {action.reason}", mend)
        else:
            off = disabled.get(action.table, ())
            reasons = [
                reason for reason in action.reason.split("; ") if not any(f"trigger {name} " in reason for name in off)
            ]
            if reasons:
                text = f"triggers of {action.table} are not as declared: {'; '.join(reasons)}"
                missing = any(reason.endswith("is missing") for reason in reasons)
                yield Finding("trigger_drifted", "error" if missing else "warning", text, mend)
    for warning in plan.warnings:
        code = "deferrable_key" if "DEFERRABLE" in warning else "trigger_warning"
        yield Finding(code, "warning", warning, ("eventlog triggers plan",))
    for sentence in plan.not_captured:
        yield Finding("not_captured", "info", f"not captured: {sentence}")


def judge_installed(
    installed: Sequence[InstalledTrigger], watched: Collection[str] | None, reason: str = ""
) -> Iterator[Finding]:
    """Disabled triggers; and where no plan could be made, tables without and triggers without a watch.

    ``watched``: tables as ``schema.table``, None = a plan says which triggers are missing or too many.
    """
    for one in installed:
        if not one.enabled:
            yield Finding(
                "trigger_disabled",
                "error",
                f"trigger {one.trigger} of {one.table} is disabled: what it should log is lost",
                (one.mend,),
            )
    if watched is None:
        return
    tables = {one.table for one in installed}
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


def judge_orphans(found: Iterable[Orphan]) -> Iterator[Finding]:
    """Triggers whose log is gone: they fail the application's statements. One finding a log."""
    by_log: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        by_log[one.log][one.table].append(one.mend)
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


def judge_partitions(found: Iterable[PartitionTrigger]) -> Iterator[Finding]:
    """Partitions whose changes are not logged."""
    for one in found:
        yield Finding(
            "partition_trigger",
            "error",
            f"trigger {one.trigger} of {one.table} is {one.state} in its partition {one.partition}: what is changed "
            "there is lost",
            (one.mend,),
        )


def judge_untouched(tables: Iterable[str], listed: bool) -> Iterator[Finding]:
    """Classes that no trigger of anybody's is on."""
    for name in tables:
        yield Finding(
            "trigger_missing",
            "warning" if listed else "info",
            f"class {name} has no trigger of any kind: its changes are not logged",
            (f'[[watch]] table = "{name}" in eventlog.toml, then eventlog triggers apply',),
        )
