"""Faults that are put into the product, to test the tester: each replaces a function, and the
simulation has to find it. One that finds nothing to replace fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from eventlog.core import requeue
from eventlog.publisher import (
    catalog_watcher,
    cycle,
    delivery,
    ledger,
    marks,
    open_context,
    purge,
    queue,
    sending,
    snapshot,
)
from eventlog.publisher.sinks import names
from eventlog.sql import consumers, followed_set, open_writers, resync, rows
from eventlog.sql.dialects.sqlite.log import SQLiteLog
from eventlog.sql.internal_tables import EntryKind, delete_entry, next_number


class Mutation(NamedTuple):
    """A fault: what it replaces.

    ``unseen`` says why no schedule has shown it: it is equivalent to what it replaces, or a hole of
    the generator; empty = it has to be found.
    """

    replaces: Callable[[], Mapping[tuple[Any, str], Any]]
    unseen: str = ""


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Have the fault in the product while the block runs.

    An attribute of objects is replaced by a property of their class.
    """
    with ExitStack() as stack:
        for (target, name), value in mutation.replaces().items():
            stack.enter_context(
                patch.object(target, name, value, create=isinstance(value, property))
            )
        yield


def replaced_lines(mutation: Mutation) -> Iterator[tuple[str, int, int]]:
    """Yield the file and the lines of each function that a fault replaces; of an attribute, those
    of the class."""
    for target, name in mutation.replaces():
        replaced = inspect.unwrap(vars(target).get(name, target))
        replaced = getattr(replaced, "__func__", replaced)
        lines, first = inspect.getsourcelines(replaced)
        path = inspect.getsourcefile(replaced)
        assert path is not None
        # Behind the head, which runs when the module is imported.
        body = 2 if len(lines) > 1 else 0
        yield path, first + body - (body > 0), first + len(lines) - 1


def _marks_before_flush() -> Mapping[tuple[Any, str], Any]:
    save = marks.DeliveryProgress.save

    def save_first(self: Any) -> None:
        sink = self._sink

        class Later:
            def flush(self) -> None:
                return None

            def __getattr__(self, name: str) -> Any:
                return getattr(sink, name)

        self._sink = Later()
        try:
            save(self)
        finally:
            self._sink = sink
        sink.flush()

    return {(marks.DeliveryProgress, "save"): save_first}


def _no_line() -> Mapping[tuple[Any, str], Any]:
    return {(ledger, "record_delivery"): lambda log, *_, **__: next_number(log)}


def _attempts_stay() -> Mapping[tuple[Any, str], Any]:
    left_of = marks._left_of

    def same(before: Any, events: Any, judged: Any) -> Any:
        attempts = {event.event_id: event.attempts for event in before}
        return [
            event._replace(attempts=attempts[event.event_id])
            for event in left_of(before, events, judged)
        ]

    return {(marks, "_left_of"): same}


def _epoch_stays() -> Mapping[tuple[Any, str], Any]:
    return {(open_context, "differing"): lambda *_: []}


def _names_gain_events() -> Mapping[tuple[Any, str], Any]:
    return {
        (names.OpenName, "takes"): lambda self, document: document.delivery_no == self.delivery_no
    }


def _rest_keeps_its_number() -> Mapping[tuple[Any, str], Any]:
    def rest_of(delivery: Any, left: Any) -> Any:
        return delivery._replace(
            documents={number: events for number, events in left.items() if events}
        )

    return {(marks, "rest_of"): rest_of}


def _behind_a_retry_is_done() -> Mapping[tuple[Any, str], Any]:
    def judge(events: Any, answer: Any) -> Any:
        answered: dict[Any, list[Any]] = {}
        retried = []
        for event in events:
            verdict = answer.result(event.sent_id)
            if verdict.level is sending.Level.RETRY:
                retried.append(event)
            else:
                answered.setdefault(verdict, []).append(event)
        return sending.Judged(list(answered.items()), retried, [])

    return {(sending, "_judge"): judge}


def _same_object_twice_in_the_air() -> Mapping[tuple[Any, str], Any]:
    source = inspect.getsource(sending._returned)
    overlaps = "event.object_id in objects for _, sent in in_progress.values() for event in sent"
    assert overlaps in source
    return _made_again(sending, "_returned", source.replace(overlaps, "()"))


def _unavailable_is_struck() -> Mapping[tuple[Any, str], Any]:
    build = cycle.build_recorded
    return {
        (cycle, "build_recorded"): lambda *given: build(*given)._replace(waiting=frozenset()),
    }


def _requeue_judges_nothing() -> Mapping[tuple[Any, str], Any]:
    return {(rows, "judge"): lambda _: requeue.Judgement([], [])}


def _old_catalogue_reads_back() -> Mapping[tuple[Any, str], Any]:
    return {(catalog_watcher.CatalogWatcher, "before_read_back"): lambda self: None}


def _insert_is_cut() -> Mapping[tuple[Any, str], Any]:
    return {(queue, "_complete_inserts"): lambda *_: None}


def _marks_forget_a_row() -> Mapping[tuple[Any, str], Any]:
    """Mark the row behind the last one of an answer too, as a range that is too long would."""
    add = marks.Marks.add

    def add_more(self: Any, letter: Any, record_ids: Any) -> None:
        record_ids = list(record_ids)
        add(self, letter, [*record_ids, record_ids[-1] + 1] if len(record_ids) > 2 else record_ids)

    return {(marks.Marks, "add"): add_more}


def _parked_rows_are_taken() -> Mapping[tuple[Any, str], Any]:
    read = cycle.read_window
    return {
        (cycle, "read_window"): lambda context, first, last, left_out, _, polled: read(
            context, first, last, left_out, (), polled
        )
    }


def _freed_begin_no_scan() -> Mapping[tuple[Any, str], Any]:
    wake = cycle._wake

    def none_told(context: Any, state: Any) -> list[Any]:
        wake(context, state)
        return []

    return {(cycle, "_wake"): none_told}


def _ended_writers_are_ignored() -> Mapping[tuple[Any, str], Any]:
    def follow(self: Any, writers: frozenset[str]) -> list[Any]:
        self.moments = [one._replace(writers=one.writers & writers) for one in self.moments]
        return []

    return {(open_writers.WriterHistory, "_follow"): follow}


def _failed_delete_is_told() -> Mapping[tuple[Any, str], Any]:
    source = inspect.getsource(resync.known)
    assert "| has_failed" in source
    return _made_again(resync, "known", source.replace("| has_failed", ""))


def _made_again(module: Any, name: str, source: str) -> Mapping[tuple[Any, str], Any]:
    """Return a function of a module with another source."""
    made: dict[str, Any] = {}
    exec(source, vars(module), made)
    return {(module, name): made[name]}


# --- sets -----------------------------------------------------------------------------------------


def _gaps_are_closed_at_once() -> Mapping[tuple[Any, str], Any]:
    add = open_writers.WriterHistory._add
    return {
        (open_writers.WriterHistory, "_add"): lambda self, look: add(
            self, look._replace(writers=frozenset())
        )
    }


def _scan_outlives_its_writers() -> Mapping[tuple[Any, str], Any]:
    return {(cycle, "is_still_valid"): lambda _, writers: writers is not None}


def _recent_rows_are_not_written() -> Mapping[tuple[Any, str], Any]:
    def forget(log: Any, line: Any, rows: Any, ended: Any = None) -> Any:
        if ended is not None:
            delete_entry(log, EntryKind.DONE, ended)
        return line.lines

    return {(consumers, "write_recent"): forget}


def _begins_behind_open_writers() -> Mapping[tuple[Any, str], Any]:
    first_set = consumers.first_set

    def begins(log: Any, where: str) -> Any:
        if where == consumers.EARLIEST:
            return first_set(log, where)
        return consumers.RecordSet(consumers._highest(log))

    return {(consumers, "first_set"): begins}


def _purge_asks_no_consumer() -> Mapping[tuple[Any, str], Any]:
    return {(purge, "done_by_consumers"): lambda *_: {}}


def _delete_asks_no_consumer() -> Mapping[tuple[Any, str], Any]:
    return {(ledger, "are_registered"): lambda *_: False}


# --- snapshots ------------------------------------------------------------------------------------


def _chunk_is_done_before_it_is_sent() -> Mapping[tuple[Any, str], Any]:
    send = cycle._send_new

    def send_unrecorded(session: Any, delivery: Any) -> Any:
        ended = send(session, delivery)
        if delivery.is_of_snapshot:
            session.state.deliveries.pop(delivery.number, None)
        return ended

    return {(snapshot, "add_entry"): lambda *_: None, (cycle, "_send_new"): send_unrecorded}


def _retried_objects_are_passed_over() -> Mapping[tuple[Any, str], Any]:
    build = cycle.build_objects

    def build_nothing(context: Any, recorded: Any) -> Any:
        events, waiting = build(context, recorded)
        return [event._replace(operation=None, steps=()) for event in events], waiting

    return {(cycle, "build_objects"): build_nothing}


def _changes_during_a_snapshot_are_passed_over() -> Mapping[tuple[Any, str], Any]:
    without_class = snapshot._without_class

    def ends(context: Any, loading: Any) -> Any:
        if loading.class_name is None and loading.again is None:
            now = consumers.first_set(context.log, consumers.LATEST)
            context.ledger.followed = followed_set.FollowedSet(now)
            ledger = context.ledger
            line = consumers.SetEntries(ledger.consumer, ledger.lines)
            ledger.lines = consumers.write_done(context.log, line, now)
        return without_class(context, loading)

    return {(snapshot, "_without_class"): ends}


# --- epochs, locks, names -------------------------------------------------------------------------


def _epoch_is_not_in_ids() -> Mapping[tuple[Any, str], Any]:
    return {(open_context, "epoch_suffix"): lambda _: ""}


def _recorded_events_lose_their_epoch() -> Mapping[tuple[Any, str], Any]:
    read = delivery._read
    return {(delivery, "_read"): lambda document, _: read(document, "")}


def _attempts_are_not_recorded() -> Mapping[tuple[Any, str], Any]:
    recorded = delivery._recorded
    return {
        (delivery, "_recorded"): lambda event_id, ids, dropped=(), attempts=1, place=0: recorded(
            event_id, ids, dropped, 1, place
        )
    }


def _last_number_is_not_recorded() -> Mapping[tuple[Any, str], Any]:
    rest_of = delivery.rest_of

    def rest(whole: Any, left: Any) -> Any:
        return rest_of(whole._replace(last_number=0), left)

    return {(marks, "rest_of"): rest}


def _line_goes_before_the_marks() -> Mapping[tuple[Any, str], Any]:
    write = marks.DeliveryProgress._write

    def strike_first(self: Any, own: Any) -> None:
        if not any(self._left.values()):
            delete_entry(self._context.log, EntryKind.DELIVERY, self.delivery_no)
            self._context.log.commit()
        write(self, own)

    return {(marks.DeliveryProgress, "_write"): strike_first}


def _second_publisher_gets_the_lock() -> Mapping[tuple[Any, str], Any]:
    return {(SQLiteLog, "try_lock"): lambda *_: True, (SQLiteLog, "claim"): lambda *_: True}


def _told_lines_stay() -> Mapping[tuple[Any, str], Any]:
    recover = ledger.StatusLedger.recover

    def recover_by_number(self: Any) -> None:
        if self.by_number:
            recover(self)

    return {(ledger.StatusLedger, "recover"): recover_by_number}


# --- requeue and due resyncs ----------------------------------------------------------------------


def _requeue_for_a_consumer_judges_nothing() -> Mapping[tuple[Any, str], Any]:
    judge_all = consumers.judge_all
    return {(consumers, "judge_all"): lambda *chosen, **_: judge_all(*chosen, force=True)}


def _request_is_cleared_too_early() -> Mapping[tuple[Any, str], Any]:
    pop = consumers.pop_requeued

    def pop_and_commit(log: Any, name: str) -> Any:
        again = pop(log, name)
        log.commit()
        return again

    return {(consumers, "pop_requeued"): pop_and_commit}


def _due_is_not_noted() -> Mapping[tuple[Any, str], Any]:
    return {(resync, "note_due"): lambda *_: None}


def _due_is_settled_at_the_beginning() -> Mapping[tuple[Any, str], Any]:
    begin = resync.begin

    def settle_first(log: Any, selection: Any, **how: Any) -> Any:
        line = begin(log, selection, **how)
        resync._settle(log, selection)
        return line

    return {(resync, "begin"): settle_first}


MUTATIONS: Mapping[str, Mutation] = {
    "rows are marked before the sink has the documents": Mutation(_marks_before_flush),
    "nothing is recorded before it is sent": Mutation(_no_line),
    "what is sent again behind a retry keeps its event-id": Mutation(_attempts_stay),
    "a copy that was put back is not noticed": Mutation(_epoch_stays),
    "the rest of a document keeps its number": Mutation(_rest_keeps_its_number),
    "an event behind a retry is answered for good": Mutation(_behind_a_retry_is_done),
    "two documents with a common object are in the air": Mutation(_same_object_twice_in_the_air),
    "recorded events of an unavailable class are not kept": Mutation(_unavailable_is_struck),
    "requeue sends what is stale": Mutation(_requeue_judges_nothing),
    "values are read back by an old catalogue": Mutation(_old_catalogue_reads_back),
    "an insert is cut at the end of a window": Mutation(_insert_is_cut),
    "a name of a file gains events": Mutation(_names_gain_events),
    "a row is marked that was not sent": Mutation(_marks_forget_a_row),
    "rows of parked objects are read": Mutation(
        _parked_rows_are_taken,
        unseen="equivalent: what is sent leaves events of parked objects out again",
    ),
    "objects that are free again begin no scan": Mutation(_freed_begin_no_scan),
    "a consumer reads no gap again when its writer has ended": Mutation(_ended_writers_are_ignored),
    "a delete that was refused counts as sent": Mutation(_failed_delete_is_told),
    "a consumer closes gaps of open writers": Mutation(_gaps_are_closed_at_once),
    "a scan goes on when a writer has ended": Mutation(_scan_outlives_its_writers),
    "rows that joined a set are not written": Mutation(_recent_rows_are_not_written),
    "a consumer begins behind open writers": Mutation(_begins_behind_open_writers),
    "a purge removes what a consumer lacks": Mutation(_purge_asks_no_consumer),
    "delete_from_log removes what a consumer lacks": Mutation(_delete_asks_no_consumer),
    "a chunk of a snapshot is done before it is sent": Mutation(_chunk_is_done_before_it_is_sent),
    "a snapshot sends no object again": Mutation(_retried_objects_are_passed_over),
    "what changes during a snapshot is passed over": Mutation(
        _changes_during_a_snapshot_are_passed_over
    ),
    "event-ids have no epoch": Mutation(_epoch_is_not_in_ids),
    "recorded events lose their epoch": Mutation(_recorded_events_lose_their_epoch),
    "the number of an attempt is not recorded": Mutation(_attempts_are_not_recorded),
    "the numbers of documents begin again after a restart": Mutation(_last_number_is_not_recorded),
    "the line of a delivery goes before its marks": Mutation(_line_goes_before_the_marks),
    "a publisher by time leaves what requeue has told": Mutation(_told_lines_stay),
    "a second publisher gets the lock": Mutation(_second_publisher_gets_the_lock),
    "requeue for a consumer sends what is stale": Mutation(_requeue_for_a_consumer_judges_nothing),
    "a consumer clears a request before it has its rows": Mutation(_request_is_cleared_too_early),
    "a due resync is not noted": Mutation(_due_is_not_noted),
    "a due resync is settled before it is done": Mutation(_due_is_settled_at_the_beginning),
}
