"""The log itself: keys as they are spelled, indexes, numbering, dead rows, open transactions, wake-up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from eventlog.core.catalog import Catalog
from eventlog.errors import RowError
from eventlog.publisher.doctor import Finding, Limits
from eventlog.publisher.doctor.words import age, literal, row_count
from eventlog.sql.health import Numbering, OpenTransaction, SpelledKey, Storage


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
            f"{row_count(sum(one.rows for one, _ in spelled))} of class {name} spell table_key other than canonically"
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
    """The sequence of record_id: ascending in the order of the requests (spec/triggers.md 7)."""
    for one in found:
        if one.cache > 1:
            yield Finding(
                "sequence_cache",
                "error",
                f"the sequence {one.name} caches {one.cache} numbers a session: the changes of one row by two sessions "
                "may be numbered, and sent, in the wrong order",
                (f"ALTER SEQUENCE {one.name} CACHE 1",),
            )
        if one.disorder is not None:
            yield Finding(
                "sequence_order",
                "warning",
                f"the sequence {one.name} {one.disorder}: the changes of one row by two sessions may be numbered, and "
                "sent, in the wrong order",
                (one.mend,),
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
            who, end = f"prepared transaction {one.prepared!r}", f"ROLLBACK PREPARED {literal(one.prepared)}"
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
                f"{who} has a transaction open for {age(one.seconds)}{state}: {rows} are not published before it "
                "commits",
                (end,),
            )
        elif one.seconds >= limits.reading:
            yield Finding(
                "open_transaction",
                "warning",
                f"{who} has a transaction open for {age(one.seconds)}{state}: until it ends no dead row of the log "
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
