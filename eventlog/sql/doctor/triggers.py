"""The findings of ``doctor`` about classes and triggers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from eventlog.core.catalog import Catalog, Database, Table, match_name
from eventlog.core.catalog.builder import key_columns
from eventlog.core.options import toml
from eventlog.sql.doctor import Findings, LogTrigger, error, info, warning
from eventlog.sql.port.database import Answer
from eventlog.sql.port.sql_files import Quote, grouped, qualified
from eventlog.sql.resync import Due
from eventlog.sql.triggers import TriggerPlan
from eventlog.sql.triggers.declared import LEAVES_VIEW


def judge_classes(
    database: Database,
    listed: Collection[str] | None,
    catalog: Catalog | None,
    ignore: Collection[str],
    quote: Quote,
) -> Findings:
    """Judge unavailable classes, and tables without a key.

    ``listed`` are the configured classes, None = all tables with a key. ``ignore`` are the log and
    its internal tables. ``catalog`` are the classes, None if they could not be read.
    """
    present = {table.name: table for table in database.tables if table.name not in ignore}
    names = sorted(present) if listed is None else listed
    children = {} if catalog is None else catalog.log_names
    for name in names:
        match = match_name(name, present)
        if match is None:
            yield error(
                "class_missing",
                f"there is no table or view {name!r} in {database.place}, although it is "
                "configured",
                "correct tables or [[watch]] in eventlog.toml; if the table was renamed, add "
                f"renamed_from = {toml(name)}",
            )
            continue
        is_child = listed is None and match in children
        if not is_child:
            yield from _judge_key(
                present[match], database.schema, quote, is_listed=listed is not None
            )
    for name, reason in ({} if catalog is None else catalog.unavailable).items():
        if name in present and key_columns(present[name]):
            text = f"{name} cannot be published, and its rows wait: {reason}"
            yield error("class_unavailable", text, "correct its [[watch]] in eventlog.toml")


def _judge_key(table: Table, schema: str | None, quote: Quote, *, is_listed: bool) -> Findings:
    """Judge a table or view without a key. Configuring it is an error, since it is not a class."""
    sql_name = qualified(schema, table.name, quote)
    if table.kind == "view":
        if is_listed and not key_columns(table):
            yield error(
                "class_without_key",
                f"view {table.name} has no column whose name begins with pk_: it is not a class "
                "and cannot be published",
                f"ALTER VIEW {sql_name} RENAME COLUMN ... TO pk_...",
            )
    elif not table.primary_key:
        unique = next(iter(table.unique_keys), None)
        columns = "..." if unique is None else ", ".join(map(quote, unique))
        finding = error if is_listed else info
        yield finding(
            "class_without_key",
            f"table {table.name} has no primary key: it is not a class, "
            "and its changes are not published",
            f"ALTER TABLE {sql_name} ADD PRIMARY KEY ({columns})",
        )


def judge_child_values(catalog: Catalog, format: str) -> Findings:
    """Judge child tables for a format whose events are rows of one table."""
    for cls in catalog.classes:
        for child in cls.children:
            name, attribute = child.table.name, child.attribute.name
            exclude = (
                f"exclude = [{toml(attribute)}] in the [[watch]] of {cls.name}, then: eventlog "
                "triggers apply"
            )
            watch = f"[[watch]] with table = {toml(name)}, then: eventlog triggers apply"
            yield error(
                "child_values",
                f"in the format {format} an event is a row of one table, but {cls.name} has the "
                f"child table {name}: events with values of {name} get status E",
                *(
                    (watch, exclude)
                    if child.table.primary_key
                    else (f"add a primary key to {name}, and a {watch}", exclude)
                ),
            )


def judge_unwritable(sentences: Iterable[str]) -> Findings:
    """Judge classes that the format cannot write; each sentence names one class and its error."""
    for sentence in sentences:
        yield error(
            "class_unwritable",
            f"{sentence}. None of its changes can be sent",
            "exclude the column that fails (`exclude` in its [[watch]]), choose another format, or "
            "change an option of the format",
        )


def judge_deferrable(catalog: Catalog, plan: TriggerPlan | None) -> Findings:
    """Judge deferrable keys (spec/triggers.md 7.1), unless the plan warns of them."""
    sentences = (
        [] if plan is None else [sentence for sentence in plan.warnings if "DEFERRABLE" in sentence]
    )
    for cls in catalog.classes:
        if cls.table.key_deferrable and not any(cls.name in sentence for sentence in sentences):
            yield warning(
                "deferrable_key",
                f"the primary key of {cls.name} is DEFERRABLE: if its check is deferred to commit, "
                "two sessions' changes of one key may be sent in the wrong order",
                f"make the primary key of {cls.name} NOT DEFERRABLE, unless statements move keys "
                "between rows",
            )


def judge_refused(refused: Iterable[str]) -> Findings:
    """Judge watches that are impossible: no user can create triggers for them."""
    for sentence in refused:
        yield error(
            "watch_refused", f"its triggers stay as they are: {sentence}", "eventlog triggers plan"
        )


def judge_resyncs(due: Iterable[Due]) -> Findings:
    """Judge changes that no trigger has logged and that no resync has sent since then."""
    for one in due:
        text = f"receivers may have stale data for class {one.selection.class_name}: {one.reason}"
        yield warning("resync_due", text, one.command)


def judge_plan(plan: TriggerPlan, installed: Iterable[LogTrigger]) -> Findings:
    """Judge the triggers against the declarations. A disabled trigger is a separate finding."""
    disabled = grouped((one.table, one.trigger) for one in installed if not one.enabled)
    fix = ("eventlog triggers plan", "eventlog triggers apply")
    for action in plan.faults:
        if action.kind == "create":
            text = (
                f"{action.table}: {action.reason}; its changes are not captured until triggers "
                "exist"
            )
            yield error("trigger_missing", text, *fix)
        elif action.kind == "resync":
            text = (
                f"not captured: {action.reason}; `triggers apply` prints the resync command for it"
            )
            yield warning("trigger_drifted", text, *fix)
        elif action.kind == "ended":
            yield error(
                "capture_ended",
                f"{action.table} was captured and is not captured any more: {action.reason}",
                f"add a [[watch]] for {action.table}, then: {fix[1]}; if it is meant: eventlog "
                f"triggers accept {action.table}",
            )
        elif action.kind == "drop":
            yield warning("trigger_orphaned", f"triggers of {action.table}: {action.reason}", *fix)
        else:
            off = [f"trigger {name} " for name in disabled[action.table]]
            reasons = [
                reason
                for reason in action.reason.split("; ")
                if not any(name in reason for name in off)
            ]
            if reasons:
                text = f"triggers of {action.table} are not as declared: {'; '.join(reasons)}"
                finding = (
                    error if any(reason.endswith("is missing") for reason in reasons) else warning
                )
                yield finding("trigger_drifted", text, *fix)
    yield from judge_refused(plan.refused)
    for sentence in plan.warnings:
        code = "deferrable_key" if "DEFERRABLE" in sentence else "trigger_warning"
        if LEAVES_VIEW in sentence:
            command = sentence.partition("`")[2].rpartition("`")[0]
            yield warning("view_deletes", sentence, command)
        else:
            yield warning(code, sentence, "eventlog triggers plan")
    for sentence in plan.not_captured:
        yield info("not_captured", f"not captured: {sentence}")


def judge_superusers(
    functions: Answer, ungranted: Mapping[str, Sequence[str]], is_compared: bool
) -> Findings:
    """Judge functions that a superuser owns, although another role owns their table.

    Each of ``functions`` has the table, the superuser, and the SQL that gives the function to the
    owner of the table. ``ungranted`` are statements that grant the owner of a table what its
    functions need; they are unknown unless the triggers were compared (``is_compared``).
    """
    if not functions:
        return
    tables = list(dict.fromkeys(table for table, *_ in functions))
    grants = dict.fromkeys(one for table in tables for one in ungranted.get(table, ()))
    changes = ("BEGIN", *grants, *(statement for *_, statement in functions), "COMMIT")
    yield warning(
        "superuser_function",
        f"functions that the triggers of {', '.join(tables)} call belong to "
        f"{', '.join(sorted({superuser for _, superuser, _ in functions}))}, a superuser: the "
        "owner of the log can get the rights of a superuser"
        + ("" if is_compared else "; run `eventlog doctor` as a superuser, which prints the fix"),
        *(f"{one};" for one in changes if is_compared),
    )


def judge_definers(definers: Answer) -> Findings:
    """Judge the users with whose rights triggers run on MariaDB and MySQL.

    Each of ``definers`` has the user, its tables, whether it exists, and its rights on all
    databases by which it could get any other right, None if it has none.
    """
    for definer, tables, exists, rights in definers:
        what = f"the triggers of {tables} run with the rights of {definer}"
        fix = "eventlog triggers drop", "eventlog triggers apply"
        if not exists:
            text = f"{what}, a user that does not exist: every write to these tables fails"
            yield error("definer_missing", text, "create the user again, or as another user:", *fix)
        elif rights:
            text = f"{what}, which has {rights} on all databases"
            alone = "as a user with rights on these tables alone, while nobody writes to them:"
            yield warning("definer_rights", text, alone, *fix)


def judge_disabled(installed: Iterable[LogTrigger]) -> Findings:
    """Judge the disabled triggers of the log."""
    for trigger in installed:
        if not trigger.enabled:
            yield error(
                "trigger_disabled",
                f"trigger {trigger.trigger} of {trigger.table} is disabled: the changes that it "
                "should log are not captured",
                trigger.fix,
            )


def judge_without_plan(
    installed: Iterable[LogTrigger], watched: Iterable[str], reason: str
) -> Findings:
    """Judge triggers if no plan could be made.

    ``watched`` are the tables, as ``schema.table``, that need triggers.
    """
    tables = {trigger.table for trigger in installed}
    yield info(
        "triggers_not_compared",
        f"the triggers could not be compared with the declared ones: {reason}",
        "run eventlog doctor as the owner of the watched tables",
    )
    for table in watched:
        if table not in tables:
            yield error(
                "trigger_missing",
                f"{table} is watched, but has no triggers: its changes are not captured",
                "eventlog triggers apply",
            )


def judge_recorded(sentences: Iterable[str]) -> Findings:
    """Judge tables that have changed since `triggers apply` recorded them."""
    for sentence in sentences:
        text = f"triggers are not as declared: {sentence}"
        yield warning("trigger_drifted", text, "eventlog triggers apply")


def judge_orphans(orphans: Answer) -> Findings:
    """Judge triggers whose log does not exist: they make the application's statements fail. There
    is one finding per log.

    Each of ``orphans`` has table, trigger, log, and the SQL that drops the trigger.
    """
    by_log: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for table, _, log, fix in orphans:
        by_log[log][table].append(fix)
    for log, tables in by_log.items():
        triggers = sum(map(len, tables.values()))
        many = "1 trigger still writes" if triggers == 1 else f"{triggers:,} triggers still write"
        yield error(
            "trigger_orphaned",
            f"the log {log} does not exist, but {many} to it: every write to {', '.join(tables)} "
            "fails",
            "eventlog db upgrade (recreates the log; if it was dropped by hand, the command prints "
            "what to do first)",
            *(
                f"{'or ' if number == 0 else ''}{'; '.join(fixes)}"
                for number, fixes in enumerate(tables.values())
            ),
        )


def judge_broken(triggers: Answer) -> Findings:
    """Judge triggers that refer to a missing table: they make the application's statements fail.
    There is one finding per table.

    Each of ``triggers`` has the table of the triggers, the missing table, and the SQL that drops
    the triggers.
    """
    for table, gone, fix in triggers:
        yield error(
            "trigger_broken",
            f"triggers on {table} refer to {gone}, which does not exist: every write to {table}, "
            "and every ALTER TABLE ... RENAME in this database, fails",
            f"recreate {gone}, or remove it from eventlog.toml and run `eventlog triggers apply`",
            f"or {fix}",
        )


def judge_partitions(triggers: Answer) -> Findings:
    """Judge partitions whose changes are not logged, since a trigger of the partitioned table is
    missing or disabled on them.
    """
    for table, partition, trigger, state, fix in triggers:
        yield error(
            "partition_trigger",
            f"trigger {trigger} of {table} is {state} on its partition {partition}: changes in "
            "that partition are not captured",
            fix,
        )


def judge_untouched(tables: Iterable[str], listed: bool) -> Findings:
    """Judge classes whose tables have no trigger at all."""
    finding = warning if listed else info
    for name in tables:
        yield finding(
            "trigger_missing",
            f"class {name} has no trigger of any kind: its changes are not logged",
            f'add [[watch]] with table = "{name}" to eventlog.toml, then: eventlog triggers apply',
        )
