"""The queries that ``doctor`` runs, its findings, and the judgement of the session
(spec/event-log.md 11).

The questions are the named statements of the file ``doctor.sql`` of each dialect, and the functions
of ``Dialect.answers`` for questions that SQL alone cannot answer. If a database has neither a
statement nor a function for a question, that question is left out. Each ``judge_`` function makes
findings from answers, without input or output. The functions of this module judge the session, its
rights and its clock; the other modules correspond to the groups of ``codes``.
``publisher.inspect.doctor`` has the table of checks, which connects questions and ``judge_``
functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from eventlog.core.secrets import is_loopback
from eventlog.errors import first_of
from eventlog.sql.port.sql_files import literal

if TYPE_CHECKING:
    from eventlog.sql.port.database import Answer, UnsafeSchema

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of ``doctor``."""

    code: str
    """The code, which is stable and meant for programs."""
    severity: Severity
    text: str
    """The text for people."""
    fix: tuple[str, ...] = ()
    """Commands, SQL or lines of the configuration that repair the problem, in order."""


Findings = Iterator[Finding]
"""What a ``judge_`` function returns."""


def error(code: str, text: str, *fix: str) -> Finding:
    """Return a finding about lost changes, or about a publisher that cannot work."""
    return Finding(code, "error", text, fix)


def warning(code: str, text: str, *fix: str) -> Finding:
    """Return a finding about something that should be repaired."""
    return Finding(code, "warning", text, fix)


def info(code: str, text: str, *fix: str) -> Finding:
    """Return a finding that is only information: nothing is wrong."""
    return Finding(code, "info", text, fix)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of ``doctor``: how much it reads, and the thresholds above which it reports."""

    sample: int = 100_000
    """The number of the log's newest rows that are read."""
    rows: int = 10_000
    """The number of rows of status N, from the first row on, that each question reads."""
    statement: int = 30
    """The statement timeout, in seconds."""
    shown: int = 5
    """The number of examples in one finding."""
    clock: float = 2.0
    """The maximum difference in seconds between the clocks of the database and this machine."""
    event_time: float = 60.0
    """How many seconds an event_time may be ahead of the database's clock."""
    writing: float = 60.0
    """The maximum age in seconds of an open transaction that writes."""
    snapshot: float = 3600.0
    """The maximum age in seconds of a database snapshot that prevents the removal of dead rows."""
    snapshot_transactions: int = 1_000
    """A database snapshot is reported only if at least this many transactions came after it."""
    snapshot_transactions_without_age: int = 1_000_000
    """The minimum number of transactions since a database snapshot of unknown age."""
    in_flight: float = 600.0
    """The maximum age in seconds of an in-flight entry while a publisher runs."""
    dead: int = 100_000
    """Dead rows of the log are reported if there are at least this many, and if they are at least
    ``dead_share`` of the number of live rows.
    """
    dead_share: float = 0.2
    dead_internal: int = 20_000
    """Dead rows of an internal table are reported if there are at least this many."""


def age(seconds: float) -> str:
    """Return a time in seconds as text, in the largest unit that gives at least two: ``90.0
    seconds``, ``2 hours``.
    """
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} seconds"


# --- answers --------------------------------------------------------------------------------------


class OpenTransaction(NamedTuple):
    """A transaction of another session."""

    pid: int | None
    user: str | None
    application: str | None
    state: str | None
    seconds: float | None
    """The age, None if this role may not see the transaction's start."""
    writes: bool
    """True if the transaction has changed something."""
    wrote_log: bool
    """True if the transaction has written rows to the log, which no other session sees yet."""
    prepared: str | None = None
    """The name of a prepared transaction, which does not belong to a session."""

    @property
    def who(self) -> str:
        """The owner of the transaction, in words."""
        if self.prepared is not None:
            return f"prepared transaction {self.prepared!r}"
        return _session(self.pid, self.user, self.application)


def _session(pid: int | None, user: str | None, application: str | None) -> str:
    """Return the name of a session for people."""
    in_brackets = f" ({application})" if application else ""
    return f"session {pid} of {user or 'another user'}{in_brackets}"


class HeldSnapshot(NamedTuple):
    """A database snapshot that prevents the removal of dead rows of the log (spec/event-log.md
    11).
    """

    kind: str
    """``session``, ``prepared``, ``slot`` or ``standby``."""
    name: str | None
    """The name of a prepared transaction or a slot."""
    pid: int | None
    user: str | None
    application: str | None
    address: str | None
    state: str | None
    """The state of the session that has the database snapshot or reads the slot, as far as this
    role may see it.
    """
    seconds: float | None
    """The age of the transaction, None if it is unknown."""
    transactions: int
    """The number of transactions since the database snapshot; their dead rows cannot be removed."""
    xmin: str
    """A text that identifies the database snapshot: it changes when the snapshot does."""
    fix: str
    """How to end the database snapshot."""

    def is_old(self, limits: Limits) -> bool:
        """Return True if the database snapshot is old, and later transactions have left dead
        rows.
        """
        if self.seconds is None:
            return self.transactions >= limits.snapshot_transactions_without_age
        return self.seconds >= limits.snapshot and self.transactions >= limits.snapshot_transactions

    @property
    def who(self) -> str:
        """The owner of the database snapshot, in words."""
        if self.kind == "prepared":
            return f"prepared transaction {self.name!r}"
        session = _session(self.pid, self.user, self.application)
        if self.address is not None:
            session = f"{session} at {self.address}"
        if self.kind == "slot":
            reader = "which nobody reads" if self.pid is None else f"read by {session}"
            return f"replication slot {self.name!r}, {reader}"
        return f"a standby's query, by {session}" if self.kind == "standby" else session


class TableStorage(NamedTuple):
    """A table of the log."""

    part: str
    """``log``, or the suffix of an internal table's name."""
    name: str
    """The name as SQL."""
    live: int | None
    dead: int | None
    """The live and dead rows by the database's statistics, None where these do not show them."""
    vacuumed: str | None
    """The time when dead rows were last removed, None where the database does not show it."""
    autovacuum: bool | None
    bytes: int
    """The bytes on disk, with indexes."""

    def slows_reading(self, limits: Limits) -> bool:
        """Return True if the table has so many dead rows that reading it is slow."""
        bound: float = limits.dead_internal
        if self.part == "log":
            bound = max(limits.dead, limits.dead_share * (self.live or 0))
        return (self.dead or 0) >= bound


def oldest_writer(transactions: Iterable[OpenTransaction]) -> OpenTransaction | None:
    """Return the transaction that has written to the log and has been open for the longest time;
    None if there is no such transaction, or if no age is known.
    """
    writers = [each for each in transactions if each.wrote_log and each.seconds is not None]
    return max(writers, key=lambda each: each.seconds or 0.0, default=None)


class LogTrigger(NamedTuple):
    """A trigger that writes to the log.

    ``table`` is ``schema.table``; ``fix`` is SQL that enables it.
    """

    table: str
    trigger: str
    enabled: bool
    fix: str


# --- the session and its rights -------------------------------------------------------------------


def judge_pool(pooled: bool) -> Findings:
    """Judge whether a connection pool changes sessions between transactions: if it does, the
    publisher's lock cannot work (spec/event-log.md 12).
    """
    if pooled:
        yield error(
            "pooling",
            "the database is reached through a connection pool in transaction mode. The "
            "publisher's lock and notifications belong to one session, so the publisher refuses to "
            "start",
            "set url in [database] to the server itself, or to a pool in session mode",
        )


def judge_search_path(unsafe: Iterable[UnsafeSchema]) -> Findings:
    """Judge who else may create objects in the search path of this session
    (spec/event-log.md 12.5).
    """
    for one in unsafe:
        yield warning("search_path", str(one), one.fix)


def judge_wire(unverified: tuple[str, str, str] | None) -> Findings:
    """Judge the way to the database: host, what the session has, and what to write in the URL."""
    if unverified is not None and not is_loopback(unverified[0]):
        host, has, to_do = unverified
        text = f"the session with the database on {host} has {has}"
        yield info("plain_credentials", text, f"add to database.url: {to_do}")


def judge_read_only(reason: str | None, fix: str) -> Findings:
    """Judge a session on a standby, or a read-only session.

    ``reason`` and ``fix`` are in words.
    """
    if reason is not None:
        text = f"{reason}: a publisher cannot mark rows here, and triggers cannot be applied"
        yield error("standby", text, fix)


def judge_clock(ahead: float, uncertainty: float, limits: Limits) -> Findings:
    """Judge the database's clock against this machine's: ``ahead`` is how many seconds the
    database's clock is ahead, and ``uncertainty`` the uncertainty of ``ahead`` in seconds.
    """
    if abs(ahead) - uncertainty > limits.clock:
        way = "ahead of" if ahead > 0 else "behind"
        yield warning(
            "clock",
            f"the database's clock is {age(abs(ahead))} {way} this machine's: the ages of rows and "
            "the times in documents are off by that much",
            "run chronyc makestep on whichever machine has the wrong time",
        )


def judge_rights(
    missing: Sequence[str], user: str, grants: Sequence[str], command: str
) -> Findings:
    """Judge the rights that the user lacks for publishing. ``command`` prints all needed rights."""
    if missing:
        text = f"user {user} lacks rights to publish the log: {'; '.join(missing)}"
        yield error("rights_publish", text, *grants, command)


def judge_rights_to_resyncs(
    missing: Sequence[str], user: str, grants: Sequence[str], command: str
) -> Findings:
    """Judge the right to read the due resyncs. Only the status page, `status` and the metrics need
    this right; the publisher does not need it.
    """
    if missing:
        text = (
            f"user {user} lacks {'; '.join(missing)}, so the status page, `status` and the metrics "
            "do not show the resyncs that are due. Publishing does not need this right"
        )
        yield info("rights_resync", text, *grants, command)


def judge_rights_to_reset(missing: Sequence[str], user: str, grants: Sequence[str]) -> Findings:
    """Judge the right to delete a consumer's row, which the consumer itself does not need."""
    if missing:
        text = (
            f"user {user} cannot run `eventlog consumers reset` and `drop`: it lacks "
            f"{'; '.join(missing)}. Publishing as a consumer does not need these rights"
        )
        yield info("rights_reset", text, *grants)


def judge_unreadable(tables: Answer, user: str, grants: Sequence[str], command: str) -> Findings:
    """Judge tables that cannot be read back, with the columns that the user may not read.
    ``grants`` are the statements that grant the rights, and ``command`` prints all rights that the
    user needs.
    """
    if names := _with_columns(tables):
        yield error(
            "rights_read",
            f"user {user} may not read {names}: the publisher reads their values back, so their "
            "classes wait",
            *grants,
            command,
        )


def judge_unreadable_later(
    tables: Answer, user: str, grants: Sequence[str], command: str
) -> Findings:
    """Judge unreadable tables whose values are logged: values that triggers cannot log are read
    back nevertheless.
    """
    if names := _with_columns(tables):
        yield warning(
            "rights_read_later",
            f"user {user} may not read {names}: triggers log the values, but the publisher reads "
            "the table for a value larger than max_binary_bytes, and for each row that was "
            "written between an ALTER TABLE and `triggers apply`. At such a row the class waits",
            *grants,
            command,
        )


def _with_columns(tables: Answer) -> str:
    return first_of([f"{table} ({', '.join(columns)})" for table, columns in tables], 5)


def judge_rights_to_apply(missing: Sequence[str], user: str) -> Findings:
    """Judge the rights that the user lacks for applying triggers, which no publisher needs."""
    if missing:
        yield info(
            "rights_triggers",
            f"user {user} cannot apply triggers: it lacks {'; '.join(missing)}. The publisher does "
            "not need these rights",
            "eventlog triggers apply --sql; let the owner of the tables run its output",
        )


def judge_transactions(transactions: Iterable[OpenTransaction], limits: Limits) -> Findings:
    """Judge old transactions that write, since their rows are not visible yet."""
    for transaction in transactions:
        seconds, who = transaction.seconds, transaction.who
        if transaction.prepared is not None:
            end, state = f"ROLLBACK PREPARED {literal(transaction.prepared)}", ""
        else:
            end = f"SELECT pg_terminate_backend({transaction.pid})"
            state = f", {transaction.state}" if transaction.state else ""
        if seconds is None:
            if transaction.wrote_log:
                yield info(
                    "open_transaction",
                    f"{who} has written rows to the log in a transaction that is still open; this "
                    "user cannot see its age (a member of pg_read_all_stats can)",
                )
            continue
        if transaction.writes and seconds >= limits.writing:
            rows = (
                "the rows that it has written"
                if transaction.wrote_log
                else "any rows that it writes"
            )
            yield warning(
                "open_transaction",
                f"{who} has had a transaction open for {age(seconds)}{state}: {rows} to the log "
                "are published only after it commits",
                end,
            )


def judge_snapshots(snapshots: Iterable[HeldSnapshot], limits: Limits) -> Findings:
    """Judge the database snapshots that prevent the removal of dead rows, since dead rows slow down
    reading the log.
    """
    for one in snapshots:
        if not one.is_old(limits):
            continue
        since = "of unknown age" if one.seconds is None else f"{age(one.seconds)} old"
        state = f", {one.state}" if one.kind == "session" and one.state else ""
        yield warning(
            "old_snapshot",
            f"{one.who}{state}, holds a database snapshot {since}: dead rows that "
            f"{one.transactions:,} transactions have left in the log and in other tables since "
            "then cannot be removed",
            one.fix,
        )


def judge_event_time(
    newest: Answer, event_time_zone: str, limits: Limits, *, is_utc: bool
) -> Findings:
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
