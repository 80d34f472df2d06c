"""The findings of ``doctor`` about the log itself: its table, indexes and numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from eventlog.sql.doctor import (
    Finding,
    Findings,
    HeldSnapshot,
    Limits,
    TableStorage,
    error,
    warning,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import Answer, LockHolder
from eventlog.sql.port.questions import Numbering
from eventlog.sql.port.sql_files import Quote, grouped


def judge_revision(
    reached: Sequence[str], newest: Sequence[str], unknown: Sequence[str], fix: str, upgrade: str
) -> Findings:
    """Judge the revisions that the log has reached against the newest revisions.

    ``fix`` is the advice for an unknown revision, ``upgrade`` the command for an old revision.
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
    quote: Quote,
    reading_index: Sequence[str],
    row_index: Sequence[str],
    *,
    by_expression: bool = False,
) -> Findings:
    """Judge the indexes by which the publisher reads and marks rows (spec/triggers.md 7).
    ``reading_index`` and ``row_index`` are the SQL that creates these indexes.

    Each of ``columns`` is a column of an index, in the order of the index: the index's name,
    whether the index is valid, the column (for an expression its text, None if unknown), and the
    predicate of the index as the database writes it. ``by_expression`` is ``queue_by_expression``
    of the dialect.
    """
    indexes = grouped(
        ((name, predicate), column) for name, is_valid, column, predicate in columns if is_valid
    )
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


def _is_status_n(predicate: str, status: str, quote: Quote) -> bool:
    # PostgreSQL writes (status = 'N'::bpchar) or ((status)::text = 'N'::text), and the guard in a
    # log that eventlog made.
    plain = re.sub(r"::(bpchar|text|character varying)|[()\s]", "", _GUARD.sub("", predicate))
    return plain in (f"{status}='N'", f"{quote(status)}='N'")


def judge_lock(holder: LockHolder | None, log: str) -> Findings:
    """Judge the session that has locked the log; None = no session is known."""
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
) -> Findings:
    """Judge the sequence of record_id: later requests must get higher numbers (spec/triggers.md 7).
    ``record_id`` is the name of the column.

    ``must_be_known`` means that several transactions draw numbers at the same time.
    """
    if must_be_known and not numberings:
        yield warning(
            "sequence_unknown",
            f"the column {record_id} has no default, so the triggers of another program number "
            "the rows, from a sequence that eventlog cannot determine. Consumers, streams, "
            "resync and requeue need to know the sequence, and a sequence with a cache may put "
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
            wrong = "descends" if sequence.increment < 1 else "restarts after its last number"
            yield error(
                "sequence_order",
                f"the sequence {sequence.name} {wrong}: record_id must ascend",
                f"ALTER SEQUENCE {sequence.name} INCREMENT 1 NO CYCLE",
            )


def judge_storage(
    tables: Iterable[TableStorage], snapshots: Sequence[HeldSnapshot], limits: Limits
) -> Findings:
    """Judge the dead rows of the log and of its internal tables by the database's statistics.

    ``snapshots`` may prevent the removal of dead rows; the oldest snapshot comes first.
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
            slow = "reading the log is slow" if is_log else "each cycle of a publisher is slow"
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


def judge_wake(missing: str | None, polling_interval: float, upgrade: str) -> Findings:
    """Judge whether a sleeping publisher is woken (spec/triggers.md 8).

    ``missing`` is the reason why writers do not wake the publisher, ``upgrade`` the command that
    fixes this.
    """
    if missing is not None:
        yield warning(
            "wake_missing",
            f"changes do not wake a sleeping publisher: {missing}; it polls every "
            f"{polling_interval:g} s",
            upgrade,
            "or set notify = false in [publisher], if polling is enough",
        )
