"""Faults that are put into the product, to test the tester: each replaces functions of the product.

They were written from the specification (event-log 8.1, 11, 13.1, 13.2, 13.4) and know nothing of
the schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from eventlog.core.clock import monotonic
from eventlog.core.ranges import RecordSet
from eventlog.publisher import cycle, ledger
from eventlog.sql import consumers, followed_set, rows
from eventlog.sql.dialects.postgresql import log_session
from eventlog.sql.dialects.postgresql.database import PostgresDatabase
from eventlog.sql.dialects.postgresql.log import PostgresLog
from eventlog.sql.followed_set import FollowedSet
from eventlog.sql.open_writers import OpenWriters, WriterHistory
from eventlog.sql.statements import KIND, StatementKind, fetch

Replacements = Mapping[tuple[Any, str], Any]


@contextmanager
def faulty(name: str) -> Iterator[None]:
    """Have a fault in the product while the block runs."""
    with ExitStack() as kept:
        for (target, attribute), value in FAULTS[name]().items():
            kept.enter_context(patch.object(target, attribute, value))
        yield


# --- the writers ----------------------------------------------------------------------------------


def _writers_are_not_forgotten() -> Replacements:
    def take(self: WriterHistory, log: Any, last: int) -> list[Any]:
        self._add(OpenWriters(last, log.open_writers(), monotonic()))
        return []

    return {(WriterHistory, "take"): take}


def _gaps_of_ended_writers_stay_skipped() -> Replacements:
    take = WriterHistory.take

    def taken(self: WriterHistory, log: Any, last: int) -> list[Any]:
        take(self, log, last)
        return []

    return {(WriterHistory, "take"): taken}


def _prepared_transactions_do_not_count() -> Replacements:
    def open_writers(self: Any) -> frozenset[str] | None:
        statement = self.dialect.log_statement(self.table, "open_writers")
        statement = statement.replace("pid IS DISTINCT FROM", "pid <>")
        named = {"table": self.dialect.qualified(self.table.schema, self.table.name)}
        return frozenset(one for (one,) in fetch(self.connection, statement, named))

    return {(PostgresLog, "open_writers"): open_writers}


def _highest_number_is_the_horizon() -> Replacements:
    return {(PostgresLog, "open_writers"): lambda *_: frozenset()}


def _writers_are_read_before_the_highest_row() -> Replacements:
    def first_set(log: Any, begins: str) -> RecordSet:
        if begins != consumers.LATEST:
            return RecordSet()
        writers = log.open_writers()
        return RecordSet(0, consumers.visible_ids(log)) if writers else RecordSet(consumers.highest_row(log) or 0)  # fmt: skip

    return {(consumers, "first_set"): first_set}


def _beginning_ignores_writers() -> Replacements:
    def first_set(log: Any, begins: str) -> RecordSet:
        return RecordSet(consumers.highest_row(log) or 0 if begins == consumers.LATEST else 0)

    return {(consumers, "first_set"): first_set}


# --- the gaps -------------------------------------------------------------------------------------


def _gaps_close_once_they_were_seen_empty() -> Replacements:
    def pop_ended(self: WriterHistory) -> int:
        return max((look.last for look in self.moments), default=0)

    return {(WriterHistory, "pop_ended"): pop_ended}


def _gaps_close_with_the_first_writer_that_ends() -> Replacements:
    take = WriterHistory.take

    def taken(self: WriterHistory, log: Any, last: int) -> list[Any]:
        before = {look.last: look.writers for look in self.moments}
        ranges = take(self, log, last)
        self.moments = [
            look
            if before.get(look.last, look.writers) == look.writers
            else look._replace(writers=frozenset())
            for look in self.moments
        ]
        return ranges

    return {(WriterHistory, "take"): taken}


def _look_reads_the_writers_before_the_highest_row() -> Replacements:
    def take(self: WriterHistory, log: Any, last: int) -> list[Any]:
        writers = log.open_writers()
        ranges = self._follow(writers)
        highest = consumers.highest_row(log) or 0
        self._add(OpenWriters(max(last, highest), writers, monotonic()))
        return ranges

    return {(WriterHistory, "take"): take}


def _writers_are_read_in_the_statement_of_the_gaps() -> Replacements:
    look, shown_ids = FollowedSet.poll, followed_set.shown_ids

    def looked(self: FollowedSet, log: Any) -> bool:
        top = max(self.done.top, self.top)
        window = self.rows.outside(self.done, top)
        before = shown_ids(log, window) if window.gaps else []

        def seen(_: Any, window: Any) -> list[int]:
            return [one for one in before if any(low <= one <= high for low, high in window.gaps)]

        with patch.object(followed_set, "shown_ids", seen):
            return look(self, log)

    return {(FollowedSet, "poll"): looked}


# --- the window -----------------------------------------------------------------------------------


def _window_beside_skipped_gaps_always_counts() -> Replacements:
    return {(cycle, "is_still_valid"): lambda _, writers: writers is not None}


def _open_writers_are_believed() -> Replacements:
    return {(PostgresDatabase, "are_open"): lambda *_: True}


def _each_gap_is_read_by_its_own_statement() -> Replacements:
    read_fields = PostgresLog.read_fields

    def read(self: Any, window: Any, fields: Sequence[str]) -> Iterator[Any]:
        if window.gaps is None or window.limit is not None:
            yield from read_fields(self, window, fields)
            return
        for gap in window.gaps:
            yield from read_fields(self, replace(window, gaps=(gap,)), fields)

    return {(PostgresLog, "read_fields"): read}


def _one_snapshot_for_a_transaction() -> Replacements:
    def begin_publishing(self: Any) -> None:
        self.connection.exec_driver_sql("SELECT set_config('default_transaction_isolation', 'repeatable read', false)")  # fmt: skip

    def run_in_transaction(session: Any, cursor: Any, statement: str, given: Any, options: Any) -> None:  # fmt: skip
        run(session, cursor, statement, given, {KIND: options.get(KIND, StatementKind.OTHER)})

    run = log_session._run
    return {
        (PostgresDatabase, "begin_publishing"): begin_publishing,
        (log_session, "_run"): run_in_transaction,
    }


def _publisher_begins_at_its_first_row() -> Replacements:
    recover = ledger.StatusLedger.recover

    def recovered(self: Any) -> None:
        recover(self)
        if self.followed is not None:
            window = replace(self.followed.rows, first=1, limit=1)
            first = next(iter(consumers.shown_ids(self.log, window)), self.followed.top + 1)
            self.followed.add([(1, first - 1)])

    return {(ledger.StatusLedger, "recover"): recovered}


# --- requests -------------------------------------------------------------------------------------


def _told_rows_are_not_taken_up() -> Replacements:
    take_requests = rows.take_requests

    def popped(log: Any) -> list[Any]:
        take_requests(log)
        return []

    return {(ledger, "take_requests"): popped}


def _requests_of_a_consumer_are_not_taken_up() -> Replacements:
    pop_requeued = consumers.pop_requeued

    def popped(log: Any, name: str) -> Any:
        pop_requeued(log, name)
        return consumers.ResendRequest()

    return {(consumers, "pop_requeued"): popped}


def _requeue_tells_nobody() -> Replacements:
    return {(rows, "record_requeue_request"): lambda *_: None}


def _request_made_meanwhile_is_cleared() -> Replacements:
    def popped(log: Any, name: str) -> Any:
        asked = consumers.read_consumer(log, name)
        assert asked is not None
        if asked.requeued != consumers.ResendRequest():
            log.connection.exec_driver_sql("UPDATE eventlog_consumer SET requeued = NULL")
        return asked.requeued

    return {(consumers, "pop_requeued"): popped}


def _request_overwrites_the_one_before() -> Replacements:
    ask_again = consumers.ask_again

    def asked(log: Any, *given: Any) -> None:
        log.connection.exec_driver_sql("UPDATE eventlog_consumer SET requeued = NULL")
        ask_again(log, *given)

    return {(consumers, "ask_again"): asked}


def _request_is_cleared_before_its_rows_are_taken_out() -> Replacements:
    pop_requeued = consumers.pop_requeued

    def popped(log: Any, name: str) -> Any:
        asked = pop_requeued(log, name)
        log.commit()
        return asked

    return {(consumers, "pop_requeued"): popped}


def _copies_wait_for_nobody() -> Replacements:
    return {(rows, "wait_for"): lambda *_: None}


def _requeue_waits_for_no_delivery() -> Replacements:
    return {(PostgresLog, "lock_requeuing"): lambda *_: None}


FAULTS: Mapping[str, Callable[[], Replacements]] = {
    "writers are not forgotten": _writers_are_not_forgotten,
    "gaps of ended writers stay skipped": _gaps_of_ended_writers_stay_skipped,
    "prepared transactions do not count": _prepared_transactions_do_not_count,
    "the highest number is the horizon": _highest_number_is_the_horizon,
    "the writers are read before the highest row": _writers_are_read_before_the_highest_row,
    "a beginning ignores the writers": _beginning_ignores_writers,
    "gaps close once they were seen empty": _gaps_close_once_they_were_seen_empty,
    "gaps close with the first writer that ends": _gaps_close_with_the_first_writer_that_ends,
    "a look reads the writers before the highest row": _look_reads_the_writers_before_the_highest_row,
    "the writers are read in the statement of the gaps": _writers_are_read_in_the_statement_of_the_gaps,
    "a window beside skipped gaps always counts": _window_beside_skipped_gaps_always_counts,
    "open writers are believed": _open_writers_are_believed,
    "each gap is read by its own statement": _each_gap_is_read_by_its_own_statement,
    "one snapshot for a transaction": _one_snapshot_for_a_transaction,
    "the publisher begins at its first row": _publisher_begins_at_its_first_row,
    "told rows are not taken up": _told_rows_are_not_taken_up,
    "requests of a consumer are not taken up": _requests_of_a_consumer_are_not_taken_up,
    "requeue tells nobody": _requeue_tells_nobody,
    "a request made meanwhile is cleared": _request_made_meanwhile_is_cleared,
    "a request overwrites the one before": _request_overwrites_the_one_before,
    "a request is cleared before its rows are taken out": _request_is_cleared_before_its_rows_are_taken_out,
    "copies wait for nobody": _copies_wait_for_nobody,
    "requeue waits for no delivery": _requeue_waits_for_no_delivery,
}

NOT_FOUND_YET = (
    "a look reads the writers before the highest row",
    "each gap is read by its own statement",
)
"""Faults that no schedule has shown so far: each needs several sessions in one order within few
statements. They are tried, and are no failure of the tester. Six others, which are as hard to draw,
are found by the schedules in ``by_hand``.
"""
