"""What ``doctor`` says of the facts: findings in words, each with what mends it. No input and no output here.

Every ``judge_`` function takes facts and gives findings; ``eventlog.publisher.examination`` gathers the facts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from eventlog.catalog import Catalog, Database, match_name
from eventlog.checks import BadRow
from eventlog.errors import RowError
from eventlog.model import Status
from eventlog.sql.health import (
    Ahead,
    Clock,
    Due,
    InstalledTrigger,
    Numbering,
    OpenTransaction,
    Orphan,
    PartitionTrigger,
    Rows,
    SpelledKey,
    StatusRows,
    Storage,
    Unreadable,
)
from eventlog.sql.log_table import Queue
from eventlog.sql.triggers import TriggerPlan

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that ``doctor`` has to say. ``code`` is stable and fit for programs, ``text`` is for people.

    ``error``: changes are lost, or nothing is published. ``warning``: something is to be mended. ``info``: it is as it
    was configured, but good to know. ``mend``: commands, SQL or lines of the configuration that mend it, in order.
    """

    code: str
    severity: Severity
    text: str
    mend: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is looked at, and from where on something is worth saying.

    ``sample``: newest rows of the log that are looked at. ``rows``: first rows N that are looked at for one
    reason. ``statement``: seconds that one statement may take. ``shown``: examples in one finding. Seconds: ``clock``
    between database and machine, ``event_time`` ahead of the database, ``writing`` and ``reading`` of an open
    transaction, ``in_flight`` of an in-flight line while a publisher runs. ``dead``: dead rows of the log, if they are
    ``dead_share`` of the live ones too.
    """

    sample: int = 100_000
    rows: int = 10_000
    statement: int = 30
    shown: int = 5
    clock: float = 2.0
    event_time: float = 60.0
    writing: float = 60.0
    reading: float = 3600.0
    in_flight: float = 600.0
    dead: int = 100_000
    dead_share: float = 0.2


LETTERS: Final = (Status.NEW, Status.SUCCESS, Status.WARNING, Status.ERROR, Status.FATAL)


# --- rows that are not picked up --------------------------------------------------------------------------------------


def judge_statuses(found: Sequence[StatusRows], log: str, status: str, limits: Limits) -> Iterator[Finding]:
    """Reserved letters, and rows that failed. ``log`` and ``status`` are SQL names."""
    whole = sum(one.rows for one in found)
    scope = f" among the newest {whole:,} rows, more were not looked at (--sample)" if whole >= limits.sample else ""
    for one in found:
        letter = None if one.status is None else one.status.rstrip(" ")
        if letter in LETTERS and (letter == one.status or letter != Status.NEW):
            if letter in (Status.ERROR, Status.FATAL):
                yield Finding(
                    "rows_failed",
                    "warning",
                    f"{_rows(one.rows)} of status {letter} ({_span(one)}){scope}: not tried again until requeued",
                    (f"eventlog show {one.last}", f"eventlog requeue --status {letter}"),
                )
        elif one.status is None:
            yield Finding(
                "status_reserved",
                "warning",
                f"{_rows(one.rows)} without a status ({_span(one)}){scope}: not looked at",
                (f"UPDATE {log} SET {status} = 'N' WHERE {status} IS NULL",),  # noqa: S608 - shown, not run
            )
        else:
            yield Finding(
                "status_reserved",
                "warning",
                f"{_rows(one.rows)} of status {one.status!r} ({_span(one)}){scope}: not looked at, since only N is "
                "new and every other letter but S, W, E and F is reserved",
                (f"UPDATE {log} SET {status} = 'N' WHERE {status} = {_literal(one.status)}",),  # noqa: S608 - shown, not run
            )


def judge_record_ids(found: Rows, log: str, record_id: str, limits: Limits) -> Iterator[Finding]:
    """Rows that cannot be addressed (spec/event-log.md 5)."""
    if found.rows:
        yield Finding(
            "record_id",
            "error",
            f"{_at_least(found, limits)} of status N whose {record_id} is NULL or not positive: they cannot "
            "be addressed and are never published",
            (f"UPDATE {log} SET {record_id} = DEFAULT WHERE {record_id} IS NULL OR {record_id} <= 0",),  # noqa: S608 - shown, not run
        )


def judge_loopback(found: Rows, user: str, leave: bool, limits: Limits) -> Iterator[Finding]:
    """Rows of the publisher's own user (spec/event-log.md 8.3)."""
    if not found.rows:
        return
    rows = f"{_at_least(found, limits)} of status N (from record_id {found.first} on) made by {user!r}, "
    if leave:
        yield Finding(
            "loopback",
            "warning",
            f"{rows}the publisher's own user: with loopback_rows = leave they stay N",
            ('loopback_rows = "consume" in [publisher]', f"or connect as another user than {user!r}"),
        )
    else:
        yield Finding(
            "loopback",
            "info",
            f"{rows}the publisher's own user: they will be marked S without being published",
            ("allow_loopback = true in [publisher], if they are to be published",),
        )


def judge_due(found: Due, limits: Limits) -> Iterator[Finding]:
    """Rows whose time has not come (``handle_future_events``)."""
    if found.rows:
        when = "" if found.next_time is None else f"; the next one at {found.next_time}"
        away = "" if found.next_seconds is None else f" (in {_age(found.next_seconds)})"
        yield Finding(
            "not_due",
            "info",
            f"{_at_least(found, limits)} of status N not due yet, since handle_future_events is set{when}{away}",
            ("handle_future_events = false in [publisher], if they are to be published now",),
        )


_BAD_MENDS: Final[Mapping[str, str]] = {
    "bad_event_type": "correct what writes event_type, and the rows",
    "missing_table": "correct what writes table_name, and the rows",
    "unknown_table": "watch the table ([[watch]] or tables in eventlog.toml), or correct table_name",
    "bad_table_key": "correct the trigger that writes table_key (`eventlog triggers apply` makes ours), and the rows",
    "missing_column": "correct what writes column_name, and the rows",
    "unknown_column": "correct what writes column_name, or take the column out of exclude",
    "bad_value": "correct what writes the value, or the value in its table",
    "bad_xml_char": "take the character out of the key or value",
}


def judge_bad(bad: Sequence[BadRow], checked: int, cut: bool, limits: Limits) -> Iterator[Finding]:
    """Rows N that the next cycle would mark E (spec/event-log.md 5), one finding a code."""
    by_code: defaultdict[str, list[BadRow]] = defaultdict(list)
    for row in bad:
        by_code[row.code].append(row)
    scope = f" among the first {checked:,} rows N, more were not checked" if cut else ""
    for code, rows in by_code.items():
        first = rows[0]
        ids = _listed([row.record_id for row in rows], limits.shown)
        yield Finding(
            "bad_rows",
            "warning",
            f"{_rows(len(rows))} of status N bad ({code}){scope}: record_id {ids}; they would become E. "
            f"The first one: {first.message}",
            (f"eventlog show {first.record_id}", _BAD_MENDS.get(code, "correct the rows")),
        )


def judge_in_flight(
    events: int, rows: int, seconds: float | None, publisher_runs: bool, limits: Limits
) -> Iterator[Finding]:
    """In-flight lines: of a flight, of parked objects, or left over (spec/event-log.md 8.1, 10)."""
    if not events:
        return
    since = "" if seconds is None else f", the oldest for {_age(seconds)}"
    what = f"{events:,} {'event' if events == 1 else 'events'} of {_rows(rows)} in flight{since}"
    if not publisher_runs:
        yield Finding(
            "in_flight_left",
            "warning",
            f"{what}, and no publisher runs: they are sent first, as recorded, at its next start",
            ("eventlog publish",),
        )
    elif seconds is not None and seconds > limits.in_flight:
        yield Finding(
            "in_flight",
            "warning",
            f"{what}: their objects are parked since the receiver answers retry, or it is away; their rows stay N "
            "and later rows of their objects wait behind them",
            ("eventlog status", "look at the receiver's log and at the publisher's"),
        )
    else:
        yield Finding("in_flight", "info", f"{what}: sent, and not answered for good yet; their rows are N until then")


def judge_queue(queue: Queue, publisher_runs: bool, disabled: bool) -> Iterator[Finding]:
    """What waits, and whether somebody takes it."""
    oldest = "" if queue.oldest_seconds is None else f", the oldest for {_age(max(0.0, queue.oldest_seconds))}"
    if disabled:
        yield Finding(
            "publisher_disabled",
            "warning",
            "publisher_disabled is set: nothing is published",
            ("publisher_disabled = false in [publisher]",),
        )
    if not queue.rows:
        return
    if publisher_runs:
        yield Finding("queue", "info", f"{_rows(queue.rows)} of status N{oldest}; a publisher runs")
    else:
        yield Finding(
            "no_publisher", "warning", f"{_rows(queue.rows)} of status N{oldest}, and no publisher runs",
            ("eventlog publish",),
        )  # fmt: skip


# --- the log ----------------------------------------------------------------------------------------------------------


def judge_keys(found: Iterable[SpelledKey], catalog: Catalog, cut: bool, limits: Limits) -> Iterator[Finding]:
    """Spellings of table_key that are not canonical (spec/event-log.md 4.3), one finding a class."""
    by_class: defaultdict[str, list[tuple[SpelledKey, str]]] = defaultdict(list)
    for one in found:
        log_name = catalog.log_name(one.table_name) if one.table_name else None
        if log_name is None:
            continue
        try:
            canonical = log_name.object_class.canonical_key(one.table_key)
        except RowError:
            continue
        if canonical != one.table_key:
            by_class[log_name.object_class.name].append((one, canonical))
    scope = f" (the newest {limits.sample:,} rows were looked at)" if cut else ""
    for name, spelled in by_class.items():
        examples = ", ".join(
            f"{one.table_key!r} for {canonical!r} (record_id {one.first})" for one, canonical in spelled[: limits.shown]
        )
        more = f" and {len(spelled) - limits.shown:,} more keys" if len(spelled) > limits.shown else ""
        yield Finding(
            "key_not_canonical",
            "warning",
            f"{_rows(sum(one.rows for one, _ in spelled))} of class {name} spell table_key other than canonically"
            f"{scope}: {examples}{more}; they are published all the same",
            ("eventlog triggers apply", f"or correct the trigger that writes table_key of {name}"),
        )


def judge_indexes(reading: bool, by_row: bool, reading_sql: str, row_sql: str) -> Iterator[Finding]:
    """The indexes that the publisher reads and marks by (spec/triggers.md 7)."""
    if not reading:
        yield Finding(
            "index_missing",
            "warning",
            "the log has no valid index of the rows N in record_id order: every look at the queue reads the whole log",
            (reading_sql,),
        )
    if not by_row:
        yield Finding(
            "index_missing",
            "warning",
            "the log has no index of record_id: to mark rows, to rebuild what is in flight and to show a row reads the "
            "whole log",
            (row_sql,),
        )


def judge_numberings(found: Iterable[Numbering]) -> Iterator[Finding]:
    """The sequence of record_id: ascending, and without a cache (design.md, what the field has learnt)."""
    for one in found:
        if one.cache > 1:
            yield Finding(
                "sequence_cache",
                "error",
                f"the sequence {one.name} caches {one.cache} numbers a session: the changes of one row by two sessions "
                "may be numbered, and sent, in the wrong order",
                (f"ALTER SEQUENCE {one.name} CACHE 1",),
            )
        if one.increment < 1 or one.cycles:
            wrong = "descends" if one.increment < 1 else "begins anew at its end"
            yield Finding(
                "sequence_order",
                "error",
                f"the sequence {one.name} {wrong}: record_id must ascend",
                (f"ALTER SEQUENCE {one.name} INCREMENT 1 NO CYCLE",),
            )


def judge_storage(found: Storage | None, log: str, limits: Limits) -> Iterator[Finding]:
    """Dead rows of the log. ``log`` is its SQL name."""
    if found is None:
        return
    if not found.autovacuum:
        yield Finding(
            "autovacuum_off",
            "warning",
            "autovacuum is off for the log: every mark leaves a dead row behind, and the log slows down without end",
            (f"ALTER TABLE {log} SET (autovacuum_enabled = true)",),
        )
    if found.dead >= limits.dead and found.dead >= limits.dead_share * found.live:
        last = f"last vacuumed {found.vacuumed}" if found.vacuumed else "never vacuumed"
        yield Finding(
            "dead_rows",
            "warning",
            f"the log has {found.dead:,} dead rows beside {found.live:,} live ones ({last}): windows are read slowly",
            (f"VACUUM (ANALYZE) {log}",),
        )


def judge_transactions(found: Iterable[OpenTransaction], limits: Limits) -> Iterator[Finding]:
    """Old transactions: nobody sees the rows of one that writes, and no dead row behind one's snapshot can go."""
    for one in found:
        if one.prepared is not None:
            who, end = f"prepared transaction {one.prepared!r}", f"ROLLBACK PREPARED {_literal(one.prepared)}"
        else:
            application = f" ({one.application})" if one.application else ""
            who = f"session {one.pid} of {one.user or 'another user'}{application}"
            end = f"SELECT pg_terminate_backend({one.pid})"
        state = f", {one.state}" if one.state and one.prepared is None else ""
        if one.seconds is None:
            if one.wrote_log:
                yield Finding(
                    "open_transaction",
                    "info",
                    f"{who} has written rows to the log in a transaction that is still open; its age is not shown to "
                    "this user (pg_read_all_stats shows it)",
                )
            continue
        if one.writes and one.seconds >= limits.writing:
            rows = "rows that it has written to the log" if one.wrote_log else "rows that it may write to the log"
            yield Finding(
                "open_transaction",
                "warning",
                f"{who} has a transaction open for {_age(one.seconds)}{state}: {rows} are not published before it "
                "commits",
                (end,),
            )
        elif one.seconds >= limits.reading:
            yield Finding(
                "open_transaction",
                "warning",
                f"{who} has a transaction open for {_age(one.seconds)}{state}: until it ends no dead row of the log "
                "can be removed",
                (end,),
            )


def judge_wake(missing: str | None, polling_interval: float) -> Iterator[Finding]:
    """Whether a publisher that sleeps is woken (spec/triggers.md 8). ``missing``: why nobody would do it."""
    if missing is not None:
        yield Finding(
            "wake_missing",
            "warning",
            f"a publisher that sleeps is not woken by changes: {missing}; it looks every {polling_interval:g} s",
            ("eventlog db upgrade", "or notify = false in [publisher], if polling is enough"),
        )


# --- the session ------------------------------------------------------------------------------------------------------


def judge_pool(pooled: bool) -> Iterator[Finding]:
    """A pool that lends sessions by the transaction takes the publisher's lock away (spec/event-log.md 12)."""
    if pooled:
        yield Finding(
            "pooling",
            "error",
            "the session changes from transaction to transaction: a connection pool in transaction mode stands "
            "between. The publisher's lock and notifications belong to a session, so the publisher refuses to start",
            ("url in [database]: the server itself, or a pool in session mode",),
        )


def judge_clock(found: Clock, limits: Limits) -> Iterator[Finding]:
    """The database's clock against this machine's."""
    if abs(found.ahead) - found.uncertainty > limits.clock:
        way = "ahead of" if found.ahead > 0 else "behind"
        yield Finding(
            "clock",
            "warning",
            f"the database's clock is {_age(abs(found.ahead))} {way} this machine's: ages of rows and times of "
            "documents do not agree",
            ("chronyc makestep, on the machine that is wrong",),
        )


def judge_event_time(found: Ahead | None, event_time_zone: str, limits: Limits) -> Iterator[Finding]:
    """event_time against the database's clock, where it should not lie ahead."""
    if found is None or found.seconds <= limits.event_time:
        return
    other = "local" if event_time_zone == "utc" else "utc"
    yield Finding(
        "event_time",
        "warning",
        f"row {found.record_id} has event_time {found.event_time}, {_age(found.seconds)} ahead of the database's clock "
        f"({event_time_zone}): is it written in another zone?",
        (f'event_time_zone = "{other}" in [publisher], or correct what writes event_time',),
    )


# --- classes and triggers ---------------------------------------------------------------------------------------------


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
    """Triggers whose log is gone: they fail the application's statements."""
    for one in found:
        yield Finding(
            "trigger_orphaned",
            "error",
            f"trigger {one.trigger} of {one.table} writes the log {one.log}, which is gone: every change of the table "
            "fails",
            (one.mend, "or make the log again: eventlog db upgrade"),
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


# --- rights -----------------------------------------------------------------------------------------------------------


def judge_rights(missing: Sequence[str], user: str, grants: Sequence[str]) -> Iterator[Finding]:
    """What the user lacks to publish."""
    if missing:
        text = f"user {user} lacks rights to publish the log: {'; '.join(missing)}"
        yield Finding("rights_publish", "error", text, tuple(grants))


def judge_unreadable(
    found: Iterable[Unreadable], user: str, schema: str, quote: Callable[[str], str]
) -> Iterator[Finding]:
    """Tables that cannot be read back."""
    for one in found:
        yield Finding(
            "rights_read",
            "error",
            f"user {user} may not read {one.table} ({', '.join(one.columns)}): its query-back events cannot be built",
            (f"GRANT SELECT ON {quote(schema)}.{quote(one.table)} TO {quote(user)}",),
        )


def judge_rights_to_apply(missing: Sequence[str], user: str) -> Iterator[Finding]:
    """What the user lacks to apply triggers, which a publisher's user need not be able to."""
    if missing:
        yield Finding(
            "rights_triggers",
            "info",
            f"user {user} cannot apply triggers: it lacks {'; '.join(missing)}. The publisher does not need that",
            ("eventlog triggers apply --sql, to be run by the owner of the tables",),
        )


# --- words ------------------------------------------------------------------------------------------------------------


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"


def _at_least(found: Rows | Due, limits: Limits) -> str:
    return f"at least {_rows(found.rows)}" if found.looked_at >= limits.rows else _rows(found.rows)


def _span(one: StatusRows) -> str:
    if one.first is None:
        return "no record_id"
    return f"record_id {one.first}" if one.first == one.last else f"record_id {one.first} to {one.last}"


def _listed(ids: Sequence[int], most: int) -> str:
    more = f" and {len(ids) - most:,} more" if len(ids) > most else ""
    return ", ".join(map(str, ids[:most])) + more


def _age(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} seconds"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
