"""The findings of ``doctor`` about a log: its table and indexes, its triggers, its rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from eventlog.core.catalog import Catalog, Database, ObjectClass, Table, match_name
from eventlog.core.catalog.builder import key_columns
from eventlog.core.options import toml
from eventlog.core.rows.checks import InvalidRow
from eventlog.errors import RowError, first_of, number_of
from eventlog.model import EventType, Status, unpadded
from eventlog.sql.doctor import (
    Finding,
    HeldSnapshot,
    Limits,
    LogTrigger,
    TableStorage,
    age,
    error,
    info,
    warning,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import Answer, LockHolder
from eventlog.sql.port.log_operations import NotDue, Queue
from eventlog.sql.port.questions import Numbering
from eventlog.sql.port.sql_files import literal, qualified
from eventlog.sql.resync import Due
from eventlog.sql.triggers import TriggerPlan
from eventlog.sql.triggers.declared import LEAVES_VIEW

# --- the table ------------------------------------------------------------------------------------


def judge_revision(
    reached: Sequence[str], newest: Sequence[str], unknown: Sequence[str], fix: str, upgrade: str
) -> Iterator[Finding]:
    """Judge the revisions that the log has reached against the newest ones.

    ``fix`` is the advice for an unknown revision, ``upgrade`` the command for an old one.
    """
    if unknown:
        text = (
            f"the log is at revision {', '.join(unknown)}, which this version of eventlog does "
            "not support"
        )
        yield warning("migration", text, fix)
    elif old := [revision for revision in reached if revision not in newest]:
        text = (
            f"the log is at revision {', '.join(old)}; newer revisions exist: {', '.join(newest)}"
        )
        yield warning("migration", text, upgrade)


def judge_indexes(
    columns: Answer,
    log: LogTable,
    quote: Callable[[str], str],
    reading_index: Sequence[str],
    row_index: Sequence[str],
    *,
    by_expression: bool = False,
) -> Iterator[Finding]:
    """Judge the indexes by which the publisher reads and marks (spec/triggers.md 7), with the SQL
    that creates them.

    Each of ``columns`` is a column of an index, in the order of the index: the index's name,
    whether the index is valid, the column (for an expression its text, None if unknown), and the
    predicate of the index as the database writes it. ``by_expression`` is ``queue_by_expression``
    of the dialect.
    """
    indexes: defaultdict[tuple[str, str | None], list[str | None]] = defaultdict(list)
    for name, is_valid, column, predicate in columns:
        if is_valid:
            indexes[name, predicate].append(column)
    record_id, status = log.column("record_id"), log.column("status")
    serves_reading = serves_rows = False
    queued = f"CASE {quote(status)} WHEN 'N' THEN {quote(record_id)} END"
    for (_, predicate), names in indexes.items():
        if by_expression:
            serves_reading |= "".join((names[0] or "").split()) == "".join(queued.split())
            serves_rows |= names[0] == record_id
        elif predicate is None:
            serves_reading |= names[:2] == [status, record_id]
            serves_rows |= names[0] == record_id
        else:
            serves_reading |= names[0] == record_id and _is_status_n(predicate, status, quote)
    if not serves_reading:
        yield warning(
            "index_missing",
            "the log has no valid index of the rows with status N in record_id order: each poll "
            "reads the whole log",
            *reading_index,
        )
    if not serves_rows:
        yield warning(
            "index_missing",
            "the log has no index of record_id: marking rows, rebuilding a delivery and showing a "
            "row each read the whole log",
            *row_index,
        )


_GUARD: Final = re.compile(
    r" OR \((\(.+ <> 'S'::bpchar\) AND )?\(.+ !~ '\^\[A-Za-z\]\$'::text\) AND .+\(.+\)\)\)$"
)


def _is_status_n(predicate: str, status: str, quote: Callable[[str], str]) -> bool:
    # PostgreSQL writes (status = 'N'::bpchar) or ((status)::text = 'N'::text), and the guard in a
    # log that eventlog made.
    plain = re.sub(r"::(bpchar|text|character varying)|[()\s]", "", _GUARD.sub("", predicate))
    return plain in (f"{status}='N'", f"{quote(status)}='N'")


def judge_lock(holder: LockHolder | None, log: str) -> Iterator[Finding]:
    """Judge the session that has locked the log; None = no such session is known."""
    if holder is not None and holder.is_other:
        yield Finding(
            "lock_of_another",
            "warning",
            f"a program other than eventlog holds the lock of the log {log}, so no publisher can "
            f"start: {holder}",
            (f"SELECT pg_terminate_backend({holder.session})",),
        )


def judge_numberings(
    numberings: Collection[Numbering], record_id: str, *, must_be_known: bool
) -> Iterator[Finding]:
    """Judge the sequence of record_id: later requests must get higher numbers (spec/triggers.md 7).
    ``record_id`` is the name of the column.

    ``must_be_known`` means that several transactions draw numbers at the same time.
    """
    if must_be_known and not numberings:
        yield warning(
            "sequence_unknown",
            f"the column {record_id} has no default, so the triggers of another program number "
            "the rows, from a sequence that eventlog cannot determine. Consumers, streams, "
            "resync and requeue cannot work without it, and a sequence with a cache may put "
            "changes of one row in the wrong order",
            'set record_id_sequence = "..." in [database] to the sequence of the triggers',
        )
    for sequence in numberings:
        if sequence.cache > 1:
            yield error(
                "sequence_cache",
                f"the sequence {sequence.name} caches {sequence.cache} numbers per session: the "
                "changes of one row by two sessions may be numbered, and sent, in the wrong order",
                f"ALTER SEQUENCE {sequence.name} CACHE 1",
            )
        if sequence.disorder is not None:
            yield warning(
                "sequence_order",
                f"the sequence {sequence.name} {sequence.disorder}: the changes of one row by two "
                "sessions may be numbered, and sent, in the wrong order",
                sequence.fix,
            )
        if sequence.increment < 1 or sequence.cycles:
            wrong = "descends" if sequence.increment < 1 else "starts again at its end"
            yield error(
                "sequence_order",
                f"the sequence {sequence.name} {wrong}: record_id must ascend",
                f"ALTER SEQUENCE {sequence.name} INCREMENT 1 NO CYCLE",
            )


def judge_storage(
    tables: Iterable[TableStorage], snapshots: Sequence[HeldSnapshot], limits: Limits
) -> Iterator[Finding]:
    """Judge the dead rows of the log and of its internal tables by the database's statistics.

    ``snapshots`` may prevent their removal; the oldest comes first.
    """
    for table in tables:
        part, name, live, dead, vacuumed, has_autovacuum, _ = table
        is_log = part == "log"
        if is_log and has_autovacuum is False:
            yield warning(
                "autovacuum_off",
                "autovacuum is off for the log: each marked row leaves a dead row, so reading the "
                "log gets ever slower",
                f"ALTER TABLE {name} SET (autovacuum_enabled = true)",
            )
        live, dead = live or 0, dead or 0
        if table.slows_reading(limits):
            last = f"last vacuumed {vacuumed}" if vacuumed else "never vacuumed"
            slow = "windows are read slowly" if is_log else "each cycle of a publisher is slow"
            holders = [
                one for one in snapshots[:1] if one.transactions >= limits.snapshot_transactions
            ]
            hindrance = "".join(f"; {one.who} prevents their removal" for one in holders)
            yield warning(
                "dead_rows",
                f"{'the log' if is_log else name} has {dead:,} dead rows and {live:,} live ones "
                f"({last}): {slow}{hindrance}",
                *(one.fix for one in holders),
                f"VACUUM (ANALYZE) {name}",
            )


def judge_wake(missing: str | None, polling_interval: float, upgrade: str) -> Iterator[Finding]:
    """Judge whether a sleeping publisher is woken (spec/triggers.md 8).

    ``missing`` is the reason why writers do not wake it, ``upgrade`` the command that fixes this.
    """
    if missing is not None:
        yield warning(
            "wake_missing",
            f"changes do not wake a sleeping publisher: {missing}; it polls every "
            f"{polling_interval:g} s",
            upgrade,
            "or set notify = false in [publisher], if polling is enough",
        )


# --- the triggers ---------------------------------------------------------------------------------


def judge_classes(
    database: Database,
    listed: Collection[str] | None,
    catalog: Catalog | None,
    ignore: Collection[str],
    quote: Callable[[str], str],
) -> Iterator[Finding]:
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


def _judge_key(
    table: Table, schema: str | None, quote: Callable[[str], str], *, is_listed: bool
) -> Iterator[Finding]:
    """Judge a table or view without a key, which is not a class: an error if it is configured."""
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


def judge_child_values(catalog: Catalog, format: str) -> Iterator[Finding]:
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
                f"in the format {format} an event is a row of one table: an event with values of "
                f"{name}, the child table of {cls.name}, becomes E",
                *(
                    (watch, exclude)
                    if child.table.primary_key
                    else (f"add a primary key to {name}, and a {watch}", exclude)
                ),
            )


def judge_unwritable(sentences: Iterable[str]) -> Iterator[Finding]:
    """Judge classes that the format cannot write; each sentence names one, with the error."""
    for sentence in sentences:
        yield error(
            "class_unwritable",
            f"{sentence}. None of its changes can be sent",
            "leave the column out by `exclude` in its [[watch]], or choose another format or "
            "another option of it",
        )


def judge_deferrable(catalog: Catalog, plan: TriggerPlan | None) -> Iterator[Finding]:
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
                f"make the primary key of {cls.name} NOT DEFERRABLE, unless statements rely on "
                "shifting its keys",
            )


def judge_refused(refused: Iterable[str]) -> Iterator[Finding]:
    """Judge watches that are impossible: no user can create triggers for them."""
    for sentence in refused:
        yield error(
            "watch_refused", f"its triggers stay as they are: {sentence}", "eventlog triggers plan"
        )


def judge_resyncs(due: Iterable[Due]) -> Iterator[Finding]:
    """Judge changes that no trigger has logged and no resync has sent since."""
    for one in due:
        text = f"receivers may have stale data for class {one.selection.class_name}: {one.reason}"
        yield warning("resync_due", text, one.command)


def judge_plan(plan: TriggerPlan, installed: Iterable[LogTrigger]) -> Iterator[Finding]:
    """Judge the triggers against the declared ones. A disabled trigger is a separate finding."""
    disabled: defaultdict[str, list[str]] = defaultdict(list)
    for trigger in installed:
        if not trigger.enabled:
            disabled[trigger.table].append(trigger.trigger)
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
                f"not captured: {action.reason}; `triggers apply` prints the resync that sends it"
            )
            yield warning("trigger_drifted", text, *fix)
        elif action.kind == "drop":
            yield warning("trigger_orphaned", f"triggers of {action.table}: {action.reason}", *fix)
        else:
            off = [f"trigger {name} " for name in disabled.get(action.table, ())]
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


def judge_disabled(installed: Iterable[LogTrigger]) -> Iterator[Finding]:
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
) -> Iterator[Finding]:
    """Judge triggers without a plan.

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


def judge_recorded(sentences: Iterable[str]) -> Iterator[Finding]:
    """Judge tables that have changed since `triggers apply` recorded them."""
    for sentence in sentences:
        text = f"triggers are not as declared: {sentence}"
        yield warning("trigger_drifted", text, "eventlog triggers apply")


def judge_orphans(orphans: Answer) -> Iterator[Finding]:
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


def judge_broken(triggers: Answer) -> Iterator[Finding]:
    """Judge triggers that refer to a missing table: they make the application's statements fail.
    There is one finding per table.

    Each of ``triggers`` has the table that they are on, the missing one, and the SQL that drops
    them.
    """
    for table, gone, fix in triggers:
        yield error(
            "trigger_broken",
            f"triggers on {table} refer to {gone}, which does not exist: every write to {table} "
            "fails, and so does every ALTER TABLE ... RENAME in this database",
            f"recreate {gone}, or remove it from eventlog.toml and run `eventlog triggers apply`",
            f"or {fix}",
        )


def judge_partitions(triggers: Answer) -> Iterator[Finding]:
    """Judge partitions whose changes are not logged, since a trigger of their table is missing
    there or disabled.
    """
    for table, partition, trigger, state, fix in triggers:
        yield error(
            "partition_trigger",
            f"trigger {trigger} of {table} is {state} on its partition {partition}: changes in "
            "that partition are not captured",
            fix,
        )


def judge_untouched(tables: Iterable[str], listed: bool) -> Iterator[Finding]:
    """Judge classes whose tables have no trigger at all."""
    finding = warning if listed else info
    for name in tables:
        yield finding(
            "trigger_missing",
            f"class {name} has no trigger of any kind: its changes are not logged",
            f'add [[watch]] with table = "{name}" to eventlog.toml, then: eventlog triggers apply',
        )


# --- the rows -------------------------------------------------------------------------------------

_STATUSES: Final = tuple(Status)


def judge_statuses(
    statuses: Answer,
    log: str,
    column: str,
    limits: Limits,
    skipped: Mapping[int, str] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Judge reserved statuses, and rows that failed and were not ``skipped`` (spec/event-log.md 2),
    which maps their record_ids to their status.

    ``log`` and ``column`` (of the status) are SQL names. A status is None for NULL, and keeps its
    trailing blanks.
    """
    statuses = list(statuses)
    whole = sum(rows for _, rows, _, _ in statuses)
    scope = (
        f" among the newest {whole:,} rows; older rows were not checked (--sample)"
        if whole >= limits.sample
        else ""
    )
    for status, rows, first, last in statuses:
        bare_status = None if status is None else unpadded(status)
        span = (
            "no record_id"
            if first is None
            else f"record_id {first}" + ("" if first == last else f" to {last}")
        )
        if bare_status in _STATUSES and (bare_status == status or bare_status != Status.NEW):
            if bare_status in (Status.ERROR, Status.FATAL):
                rows -= sum(
                    first is not None and letter == bare_status and first <= record_id <= last
                    for record_id, letter in skipped.items()
                )
                if not rows:
                    continue
                yield warning(
                    "rows_failed",
                    f"{number_of(rows, 'row')} of status {bare_status} ({span}){scope}: the "
                    "publisher does not try them again by itself",
                    f"eventlog explain {last}",
                    "eventlog errors",
                )
        elif status is None:
            yield warning(
                "status_reserved",
                f"{number_of(rows, 'row')} without a status ({span}){scope}: the publisher ignores "
                "them",
                f"UPDATE {log} SET {column} = 'N' WHERE {column} IS NULL",  # noqa: S608 - shown, not run
            )
        else:
            yield warning(
                "status_reserved",
                f"{number_of(rows, 'row')} of status {status!r} ({span}){scope}: the publisher "
                "ignores them, since every status except N, S, W, E and F is reserved",
                f"UPDATE {log} SET {column} = 'N' WHERE {column} = {literal(status)}",  # noqa: S608 - shown, not run
            )


def judge_record_ids(
    rows: int, rows_checked: int, log: str, record_id: str, limits: Limits
) -> Iterator[Finding]:
    """Judge rows without a usable record_id (spec/event-log.md 5).

    ``log`` and ``record_id`` are SQL names.
    """
    if rows:
        yield error(
            "record_id",
            f"{at_least(rows, rows_checked, limits)} of status N whose {record_id} is NULL or not "
            "positive: they are never published",
            f"UPDATE {log} SET {record_id} = DEFAULT WHERE {record_id} IS NULL OR {record_id} <= 0",  # noqa: S608
        )


def at_least(rows: int, rows_checked: int, limits: Limits) -> str:
    """Return the number of rows in words; "at least" if not all rows were read."""
    counted = number_of(rows, "row")
    return f"at least {counted}" if rows_checked >= limits.rows else counted


def judge_consumer(
    name: str, rows: int, seconds: float, runs: bool, limits: Limits
) -> Iterator[Finding]:
    """Judge a consumer that has rows to process and has made no progress for so many seconds."""
    if rows and seconds > limits.in_flight:
        why = (
            "it is running, so its receiver is unavailable or refuses events; see its log"
            if runs
            else "it is not running"
        )
        yield warning(
            "consumer_waits",
            f"consumer {name} has at least {number_of(rows, 'row')} to do and has made no progress "
            f"for {age(seconds)}: {why}. `eventlog purge` keeps these rows for it",
            f"run eventlog publish as consumer {name}; or, if nobody needs the consumer: eventlog "
            f"consumers drop {name}",
        )


def judge_beyond(name: str, top: int, following: int | None) -> Iterator[Finding]:
    """Judge a consumer that has done rows up to the record_id ``top``, against the numbers of the
    log.

    ``following`` is the record_id that the next row gets, None = unknown.
    """
    if following is not None and top >= following:
        yield error(
            "consumer_beyond",
            f"consumer {name} counts all record_ids up to {top} as done, but the log has used "
            f"none above {following - 1} yet: the consumer will skip new rows up to {top}",
            f"eventlog consumers reset {name} --start-from ... (docs/guides/consumers.md describes "
            "where it begins)",
        )


def judge_before_epoch(name: str, begun: datetime, raised: datetime | None) -> Iterator[Finding]:
    """Judge a consumer that was registered or reset at ``begun``.

    ``raised`` is the time when the log got its epoch, None = it has no epoch. Both are UTC.
    """
    if raised is not None and begun < raised.replace(tzinfo=None):
        yield info(
            "consumer_before_epoch",
            f"consumer {name} began before the log got its epoch, at {raised:%Y-%m-%d %H:%M:%S} "
            "UTC. If the database was then restored to a state from before the consumer was "
            "registered or reset, its receiver lacks data",
            f"if so, empty its receiver and run: eventlog consumers reset {name} --start-from "
            "snapshot",
        )


def judge_own_consumer(name: str, known: tuple[int, bool] | None) -> Iterator[Finding]:
    """Judge the configured consumer. ``known`` has its number of rows to process and whether it
    runs; None if it is not registered.
    """
    if known is None:
        yield info(
            "consumer_new", f"consumer {name} is not registered yet; its first start registers it"
        )
        return
    rows, runs = known
    if runs:
        yield info("queue", f"consumer {name} is running and has {number_of(rows, 'row')} to do")
    elif rows:
        text = f"consumer {name} has {number_of(rows, 'row')} to do and is not running"
        yield warning("no_publisher", text, "eventlog publish")


def judge_in_flight(
    events: int, rows: int, seconds: float | None, publisher_runs: bool, limits: Limits
) -> Iterator[Finding]:
    """Judge the in-flight entries: those of a delivery, those of parked objects, and those that a
    publisher left (spec/event-log.md 8.1, 10).
    """
    if not events:
        return
    since = "" if seconds is None else f", the oldest for {age(seconds)}"
    what = f"{number_of(events, 'event')} of {number_of(rows, 'row')} in flight{since}"
    if not publisher_runs:
        yield warning(
            "in_flight_left",
            f"{what}, and no publisher is running: the next one sends them first, as recorded",
            "eventlog publish",
        )
    elif seconds is not None and seconds > limits.in_flight:
        yield warning(
            "in_flight",
            f"{what}: their objects are parked, because the receiver answers retry or is "
            "unavailable; their rows stay N, and later rows of their objects wait for them",
            "eventlog status",
            "check the logs of the receiver and of the publisher",
        )
    else:
        yield info(
            "in_flight",
            f"{what}: sent and awaiting a final answer; their rows keep status N until then",
        )


def judge_queue(queue: Queue, publisher_runs: bool, disabled: bool) -> Iterator[Finding]:
    """Judge the queue, and whether a publisher reads it (spec/event-log.md 8, 11)."""
    oldest = (
        ""
        if queue.oldest_seconds is None
        else f", the oldest for {age(max(0.0, queue.oldest_seconds))}"
    )
    if disabled:
        yield warning(
            "publisher_disabled",
            "publisher_disabled = true: nothing is published",
            "set publisher_disabled = false in [publisher]",
        )
    if not queue.rows:
        return
    waiting = f"{number_of(queue.rows, 'row')} of status N{oldest}"
    if publisher_runs:
        yield info("queue", f"{waiting}; a publisher is running")
    else:
        yield warning("no_publisher", f"{waiting}, and no publisher is running", "eventlog publish")


def judge_event_time(
    newest: Answer, event_time_zone: str, limits: Limits, *, is_utc: bool
) -> Iterator[Finding]:
    """Judge event_time, which should not be ahead of the database's clock. With ``is_utc`` the
    option ``event_time_zone`` has no effect on the log.
    """
    other = "local" if event_time_zone == "utc" else "utc"
    setting = "" if is_utc else f'set event_time_zone = "{other}" in [publisher], or '
    for record_id, event_time, seconds in newest:
        if seconds > limits.event_time:
            yield warning(
                "event_time",
                f"row {record_id} has event_time {event_time}, {age(seconds)} ahead of the "
                f"database's clock ({event_time_zone}): it is probably in another time zone",
                f"{setting}correct the trigger that writes it",
            )


def judge_due(waiting: NotDue, limits: Limits) -> Iterator[Finding]:
    """Judge rows that are not due yet (``handle_future_events``)."""
    if waiting.rows:
        when = "" if waiting.next_time is None else f"; the next one at {waiting.next_time}"
        away = "" if waiting.next_seconds is None else f" (in {age(waiting.next_seconds)})"
        yield info(
            "not_due",
            f"handle_future_events = true postpones "
            f"{at_least(waiting.rows, waiting.rows_checked, limits)} of status N{when}{away}",
            "set handle_future_events = false in [publisher] to publish them now",
        )


_INVALID_ROW_FIXES: Final[Mapping[str, str]] = {
    "bad_event_type": "correct the trigger that writes event_type, and the rows",
    "missing_table": "correct the trigger that writes table_name, and the rows",
    "unknown_table": (
        "watch the table ([[watch]] or tables in eventlog.toml), or correct table_name"
    ),
    "bad_table_key": (
        "correct the trigger that writes table_key (`eventlog triggers apply` installs "
        "eventlog's triggers), and the rows"
    ),
    "missing_column": "correct the trigger that writes column_name, and the rows",
    "unknown_column": "correct the trigger that writes column_name, or remove the column from "
    "exclude",
    "bad_value": "correct the trigger that writes the value, or the value in its table",
    "bad_xml_char": "remove the character from the key or value",
}


def judge_invalid_rows(
    invalid: Sequence[InvalidRow], checked: int, cut: bool, limits: Limits, consumer: str = ""
) -> Iterator[Finding]:
    """Judge rows of status N that the next cycle would mark E (spec/event-log.md 5). Each code has
    one finding.

    With ``consumer``, judge the rows that this consumer has to process.
    """
    which = f"for consumer {consumer} to process" if consumer else "of status N"
    outcome = (
        "the next cycle will record errors for them"
        if consumer
        else "the next cycle will mark them E"
    )
    by_code: defaultdict[str, list[InvalidRow]] = defaultdict(list)
    for row in invalid:
        by_code[row.code].append(row)
    scope = (
        f" among the first {checked:,} rows{'' if consumer else ' N'}; the others were not checked"
        if cut
        else ""
    )
    for code, rows in by_code.items():
        first = rows[0]
        ids = first_of([str(row.record_id) for row in rows], limits.shown)
        yield warning(
            "invalid_rows",
            f"{number_of(len(rows), 'row')} {which} invalid ({code}){scope}: record_id {ids}; "
            f"{outcome}. The first one: {first.message}",
            f"eventlog explain {first.record_id}",
            _INVALID_ROW_FIXES.get(code, "correct the rows"),
        )


_PROVES_OBJECT: Final = frozenset(
    {
        EventType.INSERT_FIELD,
        EventType.UPDATE_FIELD,
        EventType.UPDATE_FIELD_REMOVE_ALL,
        EventType.INSERT_FIELD_QUERY_BACK,
    }
)
"""The types after which a receiver has the object: they are sent even if the object is gone when
they are published. Such a row may be a change of another session after the DELETE_ROW that a
cascade logged (spec/triggers.md 7.4). INSERT_ROW_QUERY_BACK is not one of them: ``resync
--deletes`` writes it after its DELETE_ROW, in case the object exists again.
"""


def logged_objects(
    rows: Iterable[Sequence[Any]], catalog: Catalog
) -> dict[ObjectClass, tuple[list[str], list[str]]]:
    """Return, for each class, the keys of objects that exist according to the log, and those whose
    last row is a DELETE_ROW.

    Each of ``rows`` holds record_id, event_type, table_name and table_key, in the order of the log.
    """
    found: dict[ObjectClass, dict[str, bool]] = {}
    last: dict[tuple[ObjectClass, str], int] = {}
    for _, event_type, table_name, table_key in rows:
        log_name = catalog.log_name(table_name) if table_name else None
        if (
            log_name is None
            or log_name.object_class.is_view
            or log_name.object_class not in catalog.classes
        ):
            continue
        with suppress(RowError):
            keys = found.setdefault(log_name.object_class, {})
            key = log_name.object_class.canonical_key(table_key)
            last[log_name.object_class, key] = event_type
            is_there = event_type in _PROVES_OBJECT and log_name.child is None
            if event_type == EventType.DELETE_ROW or is_there:
                keys[key] = is_there
            else:
                keys.setdefault(key, True)
    return {
        object_class: (
            [key for key, is_there in keys.items() if is_there],
            [key for key in keys if last[object_class, key] == EventType.DELETE_ROW],
        )
        for object_class, keys in found.items()
    }


def judge_gone(class_name: str, keys: Sequence[str], limits: Limits) -> Iterator[Finding]:
    """Judge objects that exist according to the log, but not in the table."""
    if keys:
        yield warning(
            "missed_delete",
            f"{number_of(len(keys), 'object')} of class {class_name}, named in the newest "
            f"{limits.rows:,} rows, deleted without a record in the log: "
            f"{first_of(list(keys), limits.shown, 'key')}. A statement that fires no trigger, such "
            "as TRUNCATE, deleted them",
            f"eventlog resync {class_name} --deletes",
        )


def judge_kept(class_name: str, keys: Sequence[str], limits: Limits) -> Iterator[Finding]:
    """Judge objects that are deleted according to the log, but exist in the table."""
    if keys:
        yield warning(
            "false_delete",
            f"{number_of(len(keys), 'object')} of class {class_name}, named in the newest "
            f"{limits.rows:,} rows, still in the table although the last row in the log is a "
            f"delete: {first_of(list(keys), limits.shown, 'key')}. A trigger logged their deletion "
            "with their parent, but the statement kept them, such as DELETE IGNORE on MariaDB",
            f"eventlog resync {class_name}",
        )


def judge_keys(keys: Answer, catalog: Catalog, limits: Limits) -> Iterator[Finding]:
    """Judge spellings of table_key that are not canonical (spec/event-log.md 4.3). There is one
    finding per class.

    Each of ``keys`` has table_name, table_key, the number of rows with that spelling, and the
    record_id of the first.
    """
    by_class: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    rows_checked = 0
    for table_name, table_key, rows, first in keys:
        rows_checked += rows
        log_name = catalog.log_name(table_name) if table_name else None
        if log_name is None:
            continue
        with suppress(RowError):
            canonical = log_name.object_class.canonical_key(table_key)
            if canonical != table_key:
                example = f"{table_key!r} for {canonical!r} (record_id {first})"
                by_class[log_name.object_class.name].append((rows, example))
    scope = (
        f" (the newest {limits.sample:,} rows were checked)"
        if rows_checked >= limits.sample
        else ""
    )
    for name, spelled in by_class.items():
        examples = first_of([example for _, example in spelled], limits.shown, "key")
        yield warning(
            "key_not_canonical",
            f"{number_of(sum(rows for rows, _ in spelled), 'row')} of class {name} with a "
            f"table_key that is not spelled canonically{scope}: {examples}; they are published "
            "nevertheless",
            "eventlog triggers apply",
            f"or correct the trigger that writes table_key of {name}",
        )
