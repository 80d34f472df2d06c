"""Faults that are put into the product, to test the tester: each replaces a function, and the simulation
has to find it. One that finds nothing to replace fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from eventlog.core import requeue
from eventlog.publisher import (
    catalog_watcher,
    cycle,
    delivery,
    marks,
    open_context,
    queue,
    snapshot,
)
from eventlog.publisher.sinks import files, objects
from eventlog.sql import rows


class Mutation(NamedTuple):
    """A fault: what it replaces, which plans may show it, and within how many of them it is found."""

    replaces: Callable[[], Mapping[tuple[Any, str], Any]]
    suits: Callable[[dict[str, Any]], bool] = lambda plan: True
    most: int = 200


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


def _has(*features: str) -> Callable[[dict[str, Any]], bool]:
    return lambda plan: set(features) <= set(plan["features"])


def _to_files(plan: dict[str, Any]) -> bool:
    return plan["sink"] != "python"


def _to_python(plan: dict[str, Any]) -> bool:
    return plan["sink"] == "python"


def _marks_before_flush() -> Mapping[tuple[Any, str], Any]:
    save = marks.InflightLine.save

    def save_first(self: Any) -> None:
        sink = self._sink

        class Later:
            def flush(self) -> None:
                return None

        self._sink = Later()
        try:
            save(self)
        finally:
            self._sink = sink
        sink.flush()

    return {(marks.InflightLine, "save"): save_first}


def _no_line() -> Mapping[tuple[Any, str], Any]:
    return {(cycle, "write_inflight"): lambda *_: None}


def _sendings_stay() -> Mapping[tuple[Any, str], Any]:
    left_of = marks._left_of

    def same(before: Any, events: Any, judged: Any) -> Any:
        sendings = {event.event_id: event.sendings for event in before}
        return [
            event._replace(sendings=sendings[event.event_id])
            for event in left_of(before, events, judged)
        ]

    return {(marks, "_left_of"): same}


def _epoch_stays() -> Mapping[tuple[Any, str], Any]:
    return {(open_context, "differing"): lambda *_: []}


def _names_gain_events() -> Mapping[tuple[Any, str], Any]:
    never = property(lambda self: False, lambda self, value: None)
    return {
        (files.LineFiles, "_was_there"): never,
        (objects.ObjectsSink, "_is_there"): lambda *_: False,
    }


def _rest_keeps_its_number() -> Mapping[tuple[Any, str], Any]:
    def rest_of(flight: Any, left: Any) -> Any:
        return flight._replace(
            envelopes={number: events for number, events in left.items() if events}
        )

    return {(marks, "rest_of"): rest_of, (snapshot, "rest_of"): rest_of}


def _behind_a_retry_is_done() -> Mapping[tuple[Any, str], Any]:
    def judge(events: Any, answer: Any) -> Any:
        answered: dict[Any, list[Any]] = {}
        retried = []
        for event in events:
            verdict = answer.verdict(event.sent_id)
            if verdict.level is delivery.Level.RETRY:
                retried.append(event)
            else:
                answered.setdefault(verdict, []).append(event)
        return delivery.Judged(list(answered.items()), retried, [])

    return {(delivery, "_judge"): judge}


def _same_object_twice_in_the_air() -> Mapping[tuple[Any, str], Any]:
    def returned(envelopes: Any, errand: Any, halted: Any, threads: Any) -> Any:
        parking, most, in_air = errand.parking, errand.options.concurrency, {}
        for number, events in envelopes:
            while in_air and len(in_air) >= most:
                yield from delivery._landed(in_air)
            if halted():
                break
            if parking:
                events = [event for event in events if not parking.is_waiting(event.object_id)]
            if not events:
                continue
            if threads is None:
                yield number, events, delivery._send(errand, number, events)
            else:
                in_air[threads.submit(delivery._send, errand, number, events)] = number, events
        while in_air:
            yield from delivery._landed(in_air)

    return {(delivery, "_returned"): returned}


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


MUTATIONS: Mapping[str, Mutation] = {
    "rows are marked before the sink has the documents": Mutation(_marks_before_flush, _to_files),
    "nothing is recorded before it is sent": Mutation(_no_line),
    "what is sent again behind a retry keeps its event-id": Mutation(
        _sendings_stay, lambda plan: plan["sink"] == "python" and not plan["is_strict"]
    ),
    "a copy that was put back is not noticed": Mutation(_epoch_stays, _has("restores")),
    "the rest of an envelope keeps its number": Mutation(
        _rest_keeps_its_number, lambda plan: _to_files(plan) and "schema" in plan["features"]
    ),
    "an event behind a retry is answered for good": Mutation(_behind_a_retry_is_done, _to_python),
    "two envelopes with a common object are in the air": Mutation(
        _same_object_twice_in_the_air, _to_python
    ),
    "recorded events of an unavailable class are not kept": Mutation(
        _unavailable_is_struck, _has("schema")
    ),
    "requeue sends what is stale": Mutation(_requeue_judges_nothing, _has("operators")),
    "values are read back by an old catalogue": Mutation(_old_catalogue_reads_back, _has("schema")),
    "an insert is cut at the end of a window": Mutation(_insert_is_cut),
    "a name of a file gains events": Mutation(_names_gain_events, _to_files),
    "a row is marked that was not sent": Mutation(_marks_forget_a_row),
}
