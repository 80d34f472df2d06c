"""The outbox by the table of spec/event-log.md 8.4, and small worlds with every fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from outbox_worlds import (
    FEEDS,
    Event,
    LogFeed,
    Store,
    World,
    every_world,
    explore,
    restore,
    run_random,
)

from eventlog.errors import ReceiverUnavailable
from eventlog.model import SUCCESS, Answer, EventResult, Level
from eventlog.publisher.send import policy
from eventlog.publisher.send.outbox import Do, Outbox
from eventlog.publisher.send.policy import Attempts, Document, Kind, Rules

ANSWERED = Answer()
REFUSED = Answer(general=EventResult(Level.ERROR, "answers 422"), culprit_unknown=True)
BUSY = Answer(general=EventResult(Level.RETRY), retry_after=7.0)
AWAY = ReceiverUnavailable("away")
Outcome = Answer | ReceiverUnavailable
Receive = Callable[[tuple[str, ...]], Outcome]


def failure() -> ReceiverUnavailable:
    failed = ReceiverUnavailable("answers 500", is_suspicious=True)
    failed.seconds = 1.0
    return failed


def failing(*bad: str) -> Receive:
    """A receiver that fails for these events."""
    return lambda ids: failure() if {one.partition(".")[0] for one in ids} & {*bad} else ANSWERED


def one_after_the_other(*outcomes: Outcome) -> Receive:
    left = iter(outcomes)
    return lambda ids: next(left)


class Log:
    """A publisher of a log: ``run`` sends until it has to wait longer than ``until``. Each letter or
    digit of ``objects`` is the object of a row; a class with a key is an object too.
    """

    def __init__(
        self, objects: Iterable[Any], batch_size: int = 128, rules: Rules | None = None
    ) -> None:
        names = tuple((name,) for name in objects)
        self.world = World(names, rules=rules or Rules(), batch_size=batch_size, rows=100)
        self.store = Store()
        self.sent: list[tuple[str, ...]] = []
        self.isolated = 0
        self.given_up: list[bool] = []  # whether it had to be written at once
        self.now = 0.0
        self.start()

    def start(self) -> None:
        self.feed = LogFeed(self.world, self.store)
        self.outbox = restore(self.world, self.feed, self.now)

    def save(self) -> None:
        self.feed.save(self.outbox, self.outbox.take_marks())

    def run(self, receive: Receive, most: int = 50, until: float = 1e9) -> None:
        while True:
            step = self.outbox.next(self.now)
            if step.do is Do.READ:
                self.save()
                if documents := self.feed.next(self.outbox):
                    self.outbox.add(documents)
                    continue
                step = self.outbox.next(self.now, is_empty=True)
            if step.do is Do.SEND:
                if len(self.sent) >= most:
                    return
                if (document := self.outbox.begin(step)) is not None:
                    self._send(document, receive)
            elif step.do is Do.DOUBT:
                self.outbox.end_round(self.now)
            else:
                self.save()
                self.outbox.rest()
                if step.do is Do.WAIT:
                    if step.until is None or step.until > until:
                        return
                    self.now = step.until

    def _send(self, document: Document[Event], receive: Receive) -> None:
        ids = tuple(event.sent_id for event in document.events)
        self.sent.append(ids)
        outcome = receive(ids)
        self.now += outcome.seconds if isinstance(outcome, ReceiverUnavailable) else 0.0
        settled = self.outbox.settle(document, outcome, self.now)
        self.isolated += settled.is_isolated
        if settled.given_up:
            self.given_up.append(settled.is_urgent)

    @property
    def statuses(self) -> str:
        return "".join(
            self.store.statuses.get(row + 1, "-") for row in range(len(self.world.objects))
        )


def kinds(outbox: Outbox[Event]) -> list[Kind | None]:
    return [document.attempts and document.attempts.kind for document in outbox.documents()]


def standing(log: Log) -> list[tuple[str, str, float | None]]:
    """The documents of the outbox with their first words and the time when they are due."""
    return [
        (one.document.events[0].sent_id, one.why.partition(":")[0], one.due)
        for one in log.outbox.standing()
    ]


def test_each_document_that_is_not_settled_shows_what_it_waits_for() -> None:
    log = Log("1213", 1)
    log.run(one_after_the_other(Answer({"1": EventResult(Level.RETRY)})), most=1, until=0.0)
    assert standing(log) == [
        ("1", "it is sent again later", 1.0),
        ("2", "it is sent at its turn", None),
        ("3", "it follows an event of its object that is not answered", None),
        ("4", "it is sent at its turn", None),
    ]
    parked = next(log.outbox.standing())
    assert parked.why.endswith("the receiver answered retry for all of its events")
    assert log.outbox.begin(log.outbox.next(log.now)) is not None
    assert standing(log)[1] == ("2", "it is being sent", None)


def test_while_the_receiver_is_in_doubt_the_others_wait_for_it() -> None:
    log = Log("1213", 2)
    log.run(one_after_the_other(failure()), most=1)
    first, second = log.outbox.standing()
    assert first.why.startswith("it is sent again later: the receiver failed for it")
    assert second.why == "it follows an event of its object that is not answered"


def test_a_document_that_fails_once_is_sent_again_after_another_one() -> None:
    log = Log("1234", 2)
    log.run(one_after_the_other(failure(), ANSWERED, ANSWERED))
    assert (log.sent, log.isolated) == ([("1", "2"), ("3", "4"), ("1", "2")], 0)


def test_after_its_second_failure_a_document_is_isolated_and_its_parts_are_tried() -> None:
    log = Log("12345678", 4)
    log.run(failing("2"), most=3)
    assert (kinds(log.outbox), log.isolated) == ([Kind.PART, Kind.PART], 1)
    log.run(failing("2"), most=7)
    assert log.sent[3:] == [("1", "2"), ("3", "4"), ("1",), ("2",)]


def test_in_doubt_the_documents_that_have_not_failed_come_first() -> None:
    log = Log("123456", 2)
    log.run(failing("1", "3"), most=3)
    assert log.sent == [("1", "2"), ("3", "4"), ("5", "6")]


def test_a_document_alone_is_cut_after_isolate_after_rounds() -> None:
    log = Log("1234", 4)
    log.run(failing("3"), most=7)
    assert log.sent == [("1", "2", "3", "4")] * 5 + [("1", "2"), ("3", "4")]


def test_halves_with_new_ids_are_written_before_anything_else_is_sent() -> None:
    log = Log("112", 2, Rules(isolate_after=1))
    log.run(failing("1", "3"), most=1)
    document = log.outbox.begin(log.outbox.next(log.now, is_empty=True))
    assert document is not None
    assert log.outbox.settle(document, failure(), log.now).is_urgent
    assert [event.sent_id for event in log.outbox.events()] == ["1", "2.2", "3"]


def test_a_part_that_follows_an_event_tried_alone_is_not_untried() -> None:
    log = Log("12135", 4)
    log.run(failing("1"), most=6)
    assert log.sent[4:] == [("4",), ("1",)]
    assert log.outbox.untried_due() is not None  # 2 has not been tried
    log.run(failing("1"), most=7)
    left = [[event.sent_id for event in one.events] for one in log.outbox.documents()]
    assert (left, log.outbox.untried_due()) == ([["1"], ["3.2"]], None)


def test_after_a_part_has_failed_others_are_sent_for_as_long_or_none_for_a_quarter_of_it() -> None:
    outbox = Outbox[Event](Rules(retry_initial=0.1, retry_max=0.1))

    def due_after(row: int, outcome: Outcome, now: float, tried: Attempts | None = None) -> float:
        """Send a document, and return when the next one is due."""
        event = Event(str(row), (row,), (row,))
        outbox.add([Document((row, 0), [event], 1, tried)])
        document = outbox.begin(outbox.next(now, is_empty=True))
        assert document is not None
        assert document.events == [event]
        outbox.settle(document, outcome, now)
        outbox.rest()
        due = outbox.next_due(now)
        assert due is not None
        return due

    assert due_after(1, failure(), 1.0, Attempts(Kind.PART)) == 1.25
    times = [1.125, 1.3125, 1.5, 1.6875, 1.875]
    dues = [due_after(row, ANSWERED, now) for row, now in enumerate(times, 2)]
    assert dues == [1.375, 1.5625, 1.75, 1.9375, 2.0]


def test_a_part_that_may_have_innocent_events_comes_before_events_that_were_tried_alone() -> None:
    outbox = Outbox[Event](Rules())
    events = [Event(str(row), (row,), (row,)) for row in (1, 2, 3)]
    alone = Document((1, 0), events[:1], 1, Attempts(Kind.PART, tries=1, due=1.0))
    part = Document((1, 1), events[1:], 2, Attempts(Kind.PART, due=2.0))
    outbox.add([alone, part])
    assert outbox.next(3.0, is_empty=True).document == part


@pytest.mark.parametrize("objects", ["1", "12"])
def test_nothing_is_given_up_while_the_receiver_answers_nobody(objects: str) -> None:
    log = Log(objects, rules=Rules(max_attempts=1))
    log.run(lambda ids: failure(), most=40)
    assert log.store.statuses == {}
    assert Kind.PART not in kinds(log.outbox)
    log.run(lambda ids: ANSWERED)
    assert set(log.statuses) == {"S"}


def test_after_max_attempts_alone_an_event_is_an_error_that_is_written_at_once() -> None:
    log = Log("1234", 2, Rules(max_attempts=3))
    log.run(failing("2"))
    assert log.statuses == "SESS"
    assert log.store.errors == [("2.2", "given up after 3 tries in its own document: answers 500")]
    assert log.sent.count(("2",)) == 3
    assert log.given_up == [True]


def test_retry_parks_the_object_and_a_later_event_of_it_gets_a_new_id() -> None:
    log = Log("112")
    log.run(one_after_the_other(Answer({"1": EventResult(Level.RETRY)}), ANSWERED))
    assert log.sent == [("1", "2", "3"), ("1", "2.2")]


def test_later_rows_of_a_parked_object_wait_in_the_queue_and_others_do_not() -> None:
    log = Log("12")
    log.run(one_after_the_other(Answer({"1": EventResult(Level.RETRY)})), until=0.0)
    log.world = log.feed.world = log.world._replace(objects=(*log.world.objects, ("1",), ("3",)))
    log.run(one_after_the_other(ANSWERED), until=0.0)
    assert log.sent == [("1", "2"), ("4",)]
    log.run(lambda ids: ANSWERED)
    assert log.sent[2:] == [("1",), ("3",)]


def test_a_refused_document_is_cut_until_the_event_is_alone() -> None:
    log = Log("12345678", 8)
    log.run(lambda ids: REFUSED if "6" in ids else ANSWERED)
    halves = [("1", "2", "3", "4"), ("5", "6", "7", "8"), ("5", "6"), ("5",), ("6",), ("7", "8")]
    assert log.sent[1:] == halves
    assert log.statuses == "SSSSSESS"


@pytest.mark.parametrize(("outcome", "seconds"), [(BUSY, 7.0), (AWAY, 1.0)])
def test_retry_for_all_and_an_unavailable_receiver_stop_everything(
    outcome: Outcome, seconds: float
) -> None:
    log = Log("1234", 2)
    log.run(one_after_the_other(outcome), until=0.0)
    assert log.sent == [("1", "2")]
    log.run(lambda ids: ANSWERED)
    assert log.sent == [("1", "2"), ("1", "2"), ("3", "4")]
    assert log.now == seconds


def test_a_part_of_a_document_that_can_be_sent_gets_a_new_number() -> None:
    log = Log("12")
    log.run(one_after_the_other(Answer({"1": EventResult(Level.RETRY)})), until=0.0)
    (parked,) = log.outbox.documents()
    behind = Document((9, 0), (Event("8", (8,), ("1",)), Event("9", (9,), ("9",))), 1)
    log.outbox.add([behind])
    assert log.outbox.begin(log.outbox.next(0.0, is_empty=True)) is None
    assert log.outbox.next(0.0, is_empty=True).do is Do.SAVE
    documents, last = log.outbox.record()[9]
    found = [(one.number, [event.event_id for event in one.events]) for one in documents]
    assert (found, last) == ([(2, ["9"]), (3, ["8"])], 3)
    assert parked.number


def test_skip_gives_the_event_up_and_releases_its_object() -> None:
    log = Log("121", 1)
    log.run(failing("1"), until=100.0, most=6)
    assert log.outbox.skip("1", EventResult(Level.ERROR, "by hand")) is not None
    log.run(failing("1"))
    assert log.statuses == "ESS"


def test_answers_that_are_lost_are_put_back_and_sent_before_later_events() -> None:
    log = Log("112", 1)
    log.run(one_after_the_other(ANSWERED, Answer({"2": EventResult(Level.RETRY)})), most=2)
    log.outbox.put_back()
    log.run(lambda ids: ANSWERED)
    assert log.sent[2:] == [("1",), ("3",), ("2",)]
    assert log.statuses == "SSS"


@pytest.mark.parametrize("is_killed", [True, False])
def test_an_event_that_may_have_been_sent_follows_a_new_id_under_a_new_id(is_killed: bool) -> None:
    log = Log("11121111", 2)
    log.run(lambda ids: ANSWERED, most=2)
    if is_killed:
        log.start()
    else:
        log.outbox.put_back()
    log.run(one_after_the_other(REFUSED, *[ANSWERED] * 5))
    before = [("1", "2"), ("3", "4")]
    # 5 to 8 are recorded, so they may have been sent before a restart.
    after = [("5.2", "6.2"), ("7.2", "8.2")] if is_killed else [("5", "6"), ("7", "8")]
    assert log.sent == [*before, ("1", "2"), ("1",), ("2.2",), ("3.2", "4"), *after]
    assert log.statuses == "SSSSSSSS"


def test_a_document_that_has_changed_when_it_is_built_again_keeps_its_turn() -> None:
    log = Log("1", rules=Rules(max_parked=0))
    log.run(one_after_the_other(Answer({"1": EventResult(Level.RETRY)})), until=0.0)
    log.outbox.retry_now()
    document = log.outbox.begin(log.outbox.next(log.now))
    assert document is not None
    again = [event.again() for event in document.events]
    assert log.outbox.rebuilt(document, again) is None
    log.save()
    step = log.outbox.next(log.now)
    assert step.do is Do.SEND
    assert step.document is not None
    assert step.document.events == again


@pytest.mark.parametrize("failures", [2, 3, 4])
def test_a_publisher_that_is_killed_after_a_few_failures_finds_the_culprit(failures: int) -> None:
    log = Log("12345678", 8)
    for _ in range(16 // failures + 8):
        log.run(failing("2"), most=len(log.sent) + failures)
        log.save()
        log.start()
    assert log.statuses == "S-SSSSSS"


def test_a_restart_continues_the_rounds_without_an_answer() -> None:
    log = Log("1234", 4)
    log.run(lambda ids: failure(), most=3)
    log.start()
    assert (log.outbox.rounds, log.outbox.in_doubt) == (3, True)


def test_a_receiver_that_fails_for_days_costs_few_writes() -> None:
    log, written = Log("12", 1), set()
    for most in range(1, 101):
        log.run(failing("1"), most=most)
        written.update(log.store.entries.values())
    assert log.sent.count(("1",)) > 90
    assert len(written) < 16


def test_a_receiver_that_cannot_be_reached_costs_no_write() -> None:
    log = Log("1234", 2)
    log.run(lambda ids: AWAY, most=1)
    entries = dict(log.store.entries)
    log.run(lambda ids: AWAY, most=20)
    assert log.store.entries == entries


def test_more_parked_objects_than_allowed_end_the_reading() -> None:
    log = Log("123", 1, Rules(max_parked=1))
    log.run(lambda ids: Answer({ids[0]: EventResult(Level.RETRY)}), until=0.0)
    log.world = log.feed.world = log.world._replace(objects=(*log.world.objects, ("4",)))
    assert log.outbox.next(0.0).do is Do.WAIT


# --- places ---------------------------------------------------------------------------------------


def waits(*bad: str) -> Receive:
    """A receiver whose place takes none of these events."""
    full = EventResult(Level.RETRY, "full", place="queue")
    return lambda ids: Answer({one: full for one in ids if one.partition(".")[0] in bad})


def test_events_of_a_class_wait_for_a_place_while_other_classes_are_sent() -> None:
    log = Log([("b", 1), ("a", 1), ("b", 2), ("a", 2)], 2)
    log.run(waits("1", "3"), until=0.0)
    assert log.sent == [("1", "2"), ("4",)], "the second event of the class is not tried"
    assert log.statuses == "-S-S"
    assert kinds(log.outbox) == [Kind.PLACE, None]
    assert standing(log)[1][1] == "it follows an event of its object that is not answered"


def test_a_place_that_takes_events_again_gets_them_in_order_and_under_their_ids() -> None:
    log = Log([("b", 1), ("a", 1), ("b", 2), ("b", 1)], 2)
    log.run(waits("1"), until=0.0)
    log.run(lambda ids: ANSWERED)
    assert log.sent == [("1", "2"), ("1",), ("3", "4")]
    assert log.statuses == "SSSS"


def test_rows_of_a_class_that_waits_are_not_recorded() -> None:
    log = Log([("b", 1), ("b", 2), ("b", 3)], 2)
    log.world = log.feed.world = log.world._replace(rows=1)
    log.run(waits("1", "2", "3"), until=100.0)
    assert set(log.sent) == {("1",)}
    assert log.outbox.size == 1


def test_a_place_that_waits_counts_no_attempt_and_records_nothing() -> None:
    log = Log([("b", 1)], 2, Rules(max_attempts=1, max_parked=0))
    log.run(waits("1"), until=1000.0)
    assert len(log.sent) > 10
    assert (log.statuses, log.outbox.is_full) == ("-", False)
    (entry,) = log.store.entries.values()
    assert [tried for *_, tried in entry.documents] == [None]


def test_what_a_receiver_answered_before_it_failed_is_marked() -> None:
    log = Log("123")
    broken = ReceiverUnavailable("the connection ended")
    broken.answered = {"1": SUCCESS, "3": EventResult(Level.ERROR, "no")}
    log.run(one_after_the_other(broken), until=0.0)
    assert log.statuses == "S-E"
    assert log.outbox.resume_at == 1.0
    log.run(one_after_the_other(ANSWERED))
    assert log.sent == [("1", "2", "3"), ("2",)]


def test_an_event_that_was_answered_after_a_lost_one_of_its_object_gets_a_new_id() -> None:
    log = Log("112")
    broken = ReceiverUnavailable("the connection ended")
    broken.answered = {"2": SUCCESS, "3": SUCCESS}
    log.run(one_after_the_other(broken, ANSWERED))
    assert log.sent == [("1", "2", "3"), ("1", "2.2")]


def flushed_after(log: Log, results: dict[str, EventResult], *, is_lost: bool) -> list[str]:
    """Send what there is; return the event-ids that are confirmed by a flush with these results."""
    while (step := log.outbox.next(log.now, is_empty=log.outbox.count > 0)).do is not Do.WAIT:
        if step.do is Do.READ:
            log.outbox.add(log.feed.next(log.outbox))
        elif (document := log.outbox.begin(step)) is not None:
            log._send(document, lambda ids: Answer(is_pending=True))
            break
    log.outbox.confirm(results, log.now, is_lost=is_lost)
    marks = log.outbox.take_marks()
    log.feed.save(log.outbox, marks)
    return [event.sent_id for mark in marks for event in mark.events]


def test_a_flush_that_is_lost_in_part_keeps_what_it_confirmed() -> None:
    log = Log("1121")
    confirmed = {"1": SUCCESS, "3": SUCCESS, "4": SUCCESS}
    assert flushed_after(log, confirmed, is_lost=True) == ["1", "3"]
    log.run(lambda ids: ANSWERED)
    assert log.sent == [("1", "2", "3", "4"), ("2", "4.2")], "what follows a lost event is repeated"


def test_an_event_that_a_flush_did_not_confirm_waits_for_its_place() -> None:
    log = Log([("b", 1), ("a", 1)])
    full = {"1": EventResult(Level.RETRY, "full", place="queue")}
    assert flushed_after(log, full, is_lost=False) == ["2"]
    assert kinds(log.outbox) == [Kind.PLACE]


def test_an_event_that_must_come_again_after_an_earlier_one_gets_a_new_id() -> None:
    log = Log("11")
    again = {"2": EventResult(Level.RETRY)}
    assert flushed_after(log, again, is_lost=False) == ["1"]
    log.run(lambda ids: ANSWERED)
    assert log.sent == [("1", "2"), ("2.2",)]


# --- worlds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("feed", FEEDS)
def test_every_small_world_keeps_its_promises_with_every_single_fault(feed: str) -> None:
    worlds = [world for length in (1, 2) for world in every_world(length, feed)]
    for world in worlds:
        for _ in explore(world, 1):
            pass


@pytest.mark.parametrize("feed", FEEDS)
def test_random_worlds_keep_their_promises(feed: str) -> None:
    for seed in range(300):
        run_random(feed, random.Random(seed))


@pytest.mark.parametrize(("first", "second"), [(("a",), ()), ((), ("a",)), (("a",), ("a",))])
def test_what_concerns_every_object_keeps_its_order_with_each(
    first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    events = [Event("c0", (0,), first), Event("c1", (1,), second)]
    waits = Answer({"c0": EventResult(Level.RETRY), "c1": SUCCESS})
    judged = policy.judge(events, waits)
    assert (judged.answered, judged.again) == ([], [events[0], events[1].again()])


@pytest.mark.night
@pytest.mark.parametrize("feed", FEEDS)
def test_many_random_worlds_keep_their_promises(feed: str) -> None:
    for seed in range(300, 30_300):
        run_random(feed, random.Random(seed))


@pytest.mark.night
@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize(("length", "faults"), [(1, 3), (2, 2), (3, 1), (4, 0)])
def test_every_world_keeps_its_promises(feed: str, length: int, faults: int) -> None:
    for world in every_world(length, feed):
        for _ in explore(world, faults):
            pass
