"""A document that is refused without a word of which event it was is sent in halves
(spec/event-log.md 8.4).
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fake_publisher import FakePublisher, Killed, NewWorld, Receiver
from followed_stream import OUTPUT, Stream, failures, files, following, position_at, said, saved_at
from samples import row

from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Change, ChangeOp, Document, Event, EventResult, Level, LogRow
from eventlog.publisher.context.context import Counters
from eventlog.publisher.ledger.delivery import decode
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.send.sending import DeliveryResult, send_heartbeat
from eventlog.publisher.stream import Mark, Read, SourceStep
from eventlog.publisher.stream import Stream as OpenedStream
from eventlog.publisher.stream.follow import follow
from eventlog.xds.publish import XdsWriter


def deletes(count: int, objects: int = 1000) -> list[LogRow]:
    """A type 4 row for each of so many events."""
    return [row(i, 4, f"idu={i % objects}") for i in range(1, count + 1)]


@dataclass
class Whole(Receiver):
    """Takes a document whole or not at all. ``refuses``: record_ids whose events it cannot take;
    ``requests``: all that came.

    ``most``: events of the largest document that it takes.
    """

    refuses: set[str] = field(default_factory=set)
    most: int = 1000
    requests: list[list[str]] = field(default_factory=list)

    def send(self, document: Document) -> Answer:
        ids = list(document.event_ids)
        self.requests.append(ids)
        if self.refuses & set(map(first_id, ids)) or len(ids) > self.most:
            return Answer(general=EventResult(Level.ERROR, "no"), culprit_unknown=True)
        return super().send(document)


def first_id(event_id: str) -> str:
    """The event-id without the number of attempts."""
    return event_id.partition(".")[0]


def bound(events: int, culprits: int) -> int:
    """The requests of a document of so many events, so many of which are refused."""
    return culprits * 2 * math.ceil(math.log2(events)) + 1


@pytest.mark.parametrize("count", [2, 3, 5, 64, 100, 127, 128])
def test_one_bad_event_never_condemns_the_others(new_world: NewWorld, count: int) -> None:
    for culprit in {1, 2, count // 2, count}:
        fake = new_world(deletes(count))
        receiver = Whole(refuses={str(culprit)})
        assert fake.run(receiver).result is DeliveryResult.DONE
        assert fake.statuses() == {i: "E" if i == culprit else "S" for i in range(1, count + 1)}
        assert fake.errors() == [(culprit, "receiver", "no")]
        assert len(receiver.requests) <= bound(count, 1)
        assert fake.in_flight() == {}


@pytest.mark.parametrize("culprits", [{1, 128}, {64, 65}, {3, 50, 77, 101}, set(range(1, 129))])
def test_each_of_several_culprits_costs_no_more_than_one(
    new_world: NewWorld, culprits: set[int]
) -> None:
    fake = new_world(deletes(128))
    receiver = Whole(refuses=set(map(str, culprits)))
    fake.run(receiver)
    assert {i for i, letter in fake.statuses().items() if letter == "E"} == culprits
    assert len(receiver.requests) <= bound(128, len(culprits))
    assert [line[0] for line in fake.errors()] == sorted(culprits)


def test_events_keep_their_order_and_their_ids_in_halves(new_world: NewWorld) -> None:
    fake = new_world(deletes(16))
    receiver = Whole(refuses={"6"})
    fake.run(receiver)
    taken = [name for ids in receiver.sent for name in ids]
    assert taken == [str(i) for i in range(1, 17) if i != 6]


def test_an_event_that_is_cut_from_an_earlier_one_of_its_object_gets_a_new_id_each_time(
    new_world: NewWorld,
) -> None:
    """The receiver may have applied it before it refused the document, and not the earlier one."""
    fake = new_world(deletes(4, objects=1), batch_size=4)
    receiver = Whole(refuses={"4"})
    recorded = []

    def look(name: str) -> None:
        if name == "before send":
            ((_, documents),) = fake.in_flight().items()
            recorded.append([[one[0], *one[3:]] for _, events in documents for one in events])

    receiver.step = look
    fake.run(receiver)
    assert receiver.requests == [
        ["1", "2", "3", "4"],
        ["1", "2.2"],
        ["3.2", "4.2"],
        ["3.2"],
        ["4.3"],
    ]
    # What was taken was recorded under its id before it was sent.
    assert recorded == [
        [["1"], ["2", 2], ["3", 2], ["4", 2]],
        [["3", 2], ["4", 3]],
    ]
    assert fake.statuses() == {1: "S", 2: "S", 3: "S", 4: "E"}


def test_document_that_is_too_large_is_halved_until_it_is_taken(new_world: NewWorld) -> None:
    fake = new_world(deletes(20))
    receiver = Whole(most=6)
    fake.run(receiver)
    assert receiver.sent == [list(map(str, range(first, first + 5))) for first in (1, 6, 11, 16)]
    assert set(fake.statuses().values()) == {"S"}


def test_halves_are_documents_with_new_numbers(new_world: NewWorld) -> None:
    fake = new_world(deletes(9), batch_size=3)
    receiver = Whole(refuses={"5"})
    fake.run(receiver)
    numbers = [
        (document.delivery_no, document.document_no, *document.event_ids)
        for document in receiver.documents
    ]
    assert numbers == [
        (1, 1, "1", "2", "3"),
        (1, 7, "4"),
        (1, 9, "6"),
        (1, 10, "7", "8", "9"),
    ]


def test_an_event_that_is_refused_alone_is_an_error_at_once(new_world: NewWorld) -> None:
    fake = new_world(deletes(3), batch_size=1)
    receiver = Whole(refuses={"2"})
    fake.run(receiver)
    assert receiver.requests == [["1"], ["2"], ["3"]]
    assert fake.statuses() == {1: "S", 2: "E", 3: "S"}


def test_what_is_decided_is_struck_off_before_the_next_half_is_sent(new_world: NewWorld) -> None:
    fake = new_world(deletes(8), mark_interval=1000)
    receiver = Whole(refuses={"3"})
    seen = []

    def look(name: str) -> None:
        assert not fake.connection.in_transaction()
        if name == "before send":
            left = [
                event[0]
                for documents in fake.in_flight().values()
                for _, events in documents
                for event in events
            ]
            seen.append((receiver.requests[-1], left))

    receiver.step = look
    fake.run(receiver)
    assert [left[0] for _, left in seen] == ["1", "4", "5"]
    assert all(sent[0] == left[0] for sent, left in seen)


def test_a_kill_between_two_halves_repeats_only_what_is_undecided(new_world: NewWorld) -> None:
    for last in range(1, 12):
        fake = new_world(deletes(16), mark_interval=1000)
        receiver = Whole(refuses={"7"})
        sends = 0

        def die(name: str, last: int = last) -> None:
            nonlocal sends
            sends += name == "before send"
            if sends > last:
                raise Killed

        receiver.step = die
        with suppress(Killed):
            fake.cycle(fake.start(), receiver)
        fake.connection.rollback()
        decided = {str(i) for i, letter in fake.statuses().items() if letter != "N"}
        receiver.step, before = lambda name: None, len(receiver.requests)
        fake.run(receiver)
        repeated = {name for ids in receiver.requests[before:] for name in ids}
        assert repeated.isdisjoint(decided)
        assert fake.statuses() == {i: "E" if i == 7 else "S" for i in range(1, 17)}
        assert fake.errors() == [(7, "receiver", "no")]
        assert [name for ids in receiver.sent for name in ids] == [
            str(i) for i in range(1, 17) if i != 7
        ]
        if sends <= last:  # it was not killed any more
            return
    raise AssertionError("there are moments that were not tried")


class Numbering(XdsWriter):
    """Its deliveries have numbers, so that each event has a place."""

    def first(self, delivery_no: int, before: str, raised: datetime | None) -> str:
        return f"{delivery_no}"


@dataclass
class FailsOrRefuses(Receiver):
    """Refuses documents with an event of row 4, or with ``is_failing`` fails for them, until it is
    fixed.
    """

    is_failing: bool = False
    is_fixed: bool = False

    def send(self, document: Document) -> Answer:
        if not self.is_fixed and "4" in map(first_id, document.event_ids):
            self.step("before send")
            if self.is_failing:
                raise ReceiverUnavailable("answers 500", is_suspicious=True)
            return Answer(general=EventResult(Level.ERROR, "no"), culprit_unknown=True)
        return super().send(document)


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_kill_at_any_moment_of_any_cut_leaves_each_event_its_number_and_each_object_its_order(
    new_world: NewWorld, is_failing: bool
) -> None:
    for last in range(1, 25):
        fake = new_world(deletes(12, objects=5), batch_size=6)
        fake.writer = Numbering
        receiver = FailsOrRefuses(is_failing=is_failing)
        places: dict[str, set[int]] = defaultdict(set)
        steps = count(1)

        def note(
            name: str, fake: FakePublisher = fake, places: dict[str, set[int]] = places
        ) -> None:
            for content in fake.contents_of_lines():
                delivery = decode(1, content)
                assert list(delivery.documents) == sorted(delivery.documents)
                for event in delivery.events():
                    places[event.event_id].add(event.place)

        def die(
            name: str,
            note: Callable[[str], None] = note,
            steps: Iterator[int] = steps,
            last: int = last,
        ) -> None:
            note(name)
            if next(steps) == last:
                raise Killed

        receiver.step = die
        with suppress(Killed):
            state = fake.start()
            for _ in range(12):
                fake.cycle(state, receiver)
        fake.connection.rollback()
        receiver.is_fixed, receiver.step = True, note
        fake.run(receiver)
        assert {len(own) for own in places.values()} == {1}
        assert set(fake.statuses().values()) <= {"S", "E"}
        for number in range(5):
            own = [
                int(first_id(one)) for one in receiver.applied if int(first_id(one)) % 5 == number
            ]
            assert own == sorted(own), receiver.sent


@pytest.mark.parametrize("trouble", ["away", "retry"])
def test_a_receiver_that_becomes_unavailable_between_halves_gets_the_rest_later(
    new_world: NewWorld, trouble: str
) -> None:
    class Tired(Whole):
        def send(self, document: Document) -> Answer:
            if len(self.requests) == 2:
                self.requests.append([])
                if trouble == "away":
                    raise ReceiverUnavailable("gone")
                return Answer(general=EventResult(Level.RETRY, "later"), retry_after=7)
            return super().send(document)

    fake = new_world(deletes(8))
    receiver, state = Tired(refuses={"6"}), fake.start()
    ended = fake.cycle(state, receiver)
    assert ended.result is (
        DeliveryResult.UNAVAILABLE if trouble == "away" else DeliveryResult.RETRY
    )
    assert fake.statuses() == {i: "S" if i < 5 else "N" for i in range(1, 9)}
    fake.run(receiver, state)
    assert receiver.requests[3] == ["5", "6", "7", "8"]
    assert fake.statuses() == {i: "E" if i == 6 else "S" for i in range(1, 9)}


def test_answers_to_a_half_that_the_sink_has_lost_mark_nothing(new_world: NewWorld) -> None:
    class Losing(Whole):
        has_lost = False

        def flush(self) -> None:
            if self.sent and not self.has_lost:
                self.has_lost = True
                raise ReceiverUnavailable("what was pending is lost")

    fake = new_world(deletes(8))
    receiver, state = Losing(refuses={"3"}), fake.start()
    assert fake.cycle(state, receiver).result is DeliveryResult.UNAVAILABLE
    assert set(fake.statuses().values()) == {"N"}
    fake.run(receiver, state)
    assert [ids for ids in receiver.sent if "1" in ids] == [["1", "2"]] * 2
    assert fake.statuses() == {i: "E" if i == 3 else "S" for i in range(1, 9)}


def test_a_publisher_that_is_asked_to_stop_leaves_the_halves_that_are_left(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes(8))
    receiver = Whole(refuses={"6"})
    ended = fake.cycle(fake.start(), receiver, lambda: len(receiver.requests) == 2)
    assert ended.result is DeliveryResult.STOPPED
    assert fake.statuses() == {i: "S" if i < 5 else "N" for i in range(1, 9)}


@pytest.mark.parametrize("park", [True, False])
def test_a_retry_in_a_half_holds_back_what_follows_of_its_object(
    new_world: NewWorld, park: bool
) -> None:
    """The receiver may have applied the later ones before it refused the whole: they come under a
    new event-id.
    """

    class Choosy(Whole):
        told = False

        def send(self, document: Document) -> Answer:
            answer = super().send(document)
            if answer.general is None and "1" in document.event_ids and not self.told:
                self.told = True
                return Answer({"1": EventResult(Level.RETRY, "not now")})
            return answer

    fake = new_world(deletes(8, objects=4), park=park)
    receiver, state = Choosy(refuses={"8"}), fake.start()
    fake.cycle(state, receiver)
    ((number, documents),) = fake.in_flight().items()
    assert number == 1
    assert [event for _, events in documents for event in events][:1] == [["1", [[1, 1]]]]
    assert ["5", [[5, 5]], [], 2] in [event for _, events in documents for event in events]
    while fake.cycle(state, receiver).result is DeliveryResult.RETRY:
        pass
    fake.run(receiver, state)
    assert [ids for ids in receiver.requests if "5" in ids] == [receiver.requests[0]]
    later = [name for ids in receiver.requests[2:] for name in ids if name in ("1", "5.2")]
    assert later.index("1") < later.index("5.2")
    assert fake.statuses() == {i: "E" if i == 8 else "S" for i in range(1, 9)}


def test_rows_that_make_no_event_any_more_do_not_keep_halving_from_its_end(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes(6))
    receiver, state = Whole(refuses={"5"}), fake.start()

    class Gone(Whole):
        def send(self, document: Document) -> Answer:
            raise ReceiverUnavailable("gone")

    fake.cycle(state, Gone())
    fake.connection.exec_driver_sql(
        "UPDATE eventlog SET status = 'X' WHERE record_id IN (1, 2, 3, 6)"
    )
    fake.connection.commit()
    fake.run(receiver)
    assert receiver.requests == [["4", "5"], ["4"], ["5"]]
    assert fake.statuses() == {1: "X", 2: "X", 3: "X", 4: "S", 5: "E", 6: "X"}
    assert fake.in_flight() == {}


def test_an_event_that_needs_no_answer_any_more_is_marked_before_a_later_one_is_sent(
    new_world: NewWorld,
) -> None:
    """Otherwise it might need one again after a restart, and come after the later one."""
    fake = new_world(deletes(2, objects=1), batch_size=1)
    state = fake.start()

    class Gone(Receiver):
        def send(self, document: Document) -> Answer:
            raise ReceiverUnavailable("gone")

    fake.cycle(state, Gone())
    fake.connection.exec_driver_sql("UPDATE eventlog SET status = 'X' WHERE record_id = 1")
    fake.connection.commit()
    left = []

    class Looking(Receiver):
        def send(self, document: Document) -> Answer:
            left.append([events for _, events in fake.in_flight()[1]])
            return super().send(document)

    fake.run(Looking())
    assert left == [[[["2", [[2, 2]]]]]]


def test_with_concurrency_halves_do_not_wait_for_a_document_that_hangs(new_world: NewWorld) -> None:
    """The first of two documents is refused while the other hangs: then three are in the air."""
    all_three = threading.Barrier(3)

    class Hanging(Receiver):
        def send(self, document: Document) -> Answer:
            if len(document.event_ids) == 4 and "1" in map(first_id, document.event_ids):
                return Answer(general=EventResult(Level.ERROR, "no"), culprit_unknown=True)
            all_three.wait(timeout=5)
            return super().send(document)

    fake = new_world(deletes(8), batch_size=4, concurrency=3)
    receiver = Hanging()
    assert fake.run(receiver).result is DeliveryResult.DONE
    assert fake.statuses() == dict.fromkeys(range(1, 9), "S")


def test_with_concurrency_the_halves_of_an_object_overtake_nothing(new_world: NewWorld) -> None:
    fake = new_world(deletes(240, objects=7), batch_size=10, concurrency=4)
    refused = {str(i) for i in range(3, 240, 17)}
    lock = threading.Lock()

    class Locked(Whole):
        def send(self, document: Document) -> Answer:
            with lock:
                return super().send(document)

    receiver = Locked(refuses=refused)
    assert fake.run(receiver).result is DeliveryResult.DONE
    taken = [int(first_id(name)) for ids in receiver.sent for name in ids]
    assert sorted(taken) == [i for i in range(1, 241) if str(i) not in refused]
    for number in range(7):
        own = [i for i in taken if i % 7 == number]
        assert own == sorted(own)
    assert {str(i) for i, letter in fake.statuses().items() if letter == "E"} == refused


def test_counters_count_each_event_once(new_world: NewWorld) -> None:
    fake = new_world(deletes(16))
    fake.run(Whole(refuses={"4"}))
    counters = fake.counters
    assert (counters.events_sent, counters.answers_success, counters.answers_error) == (16, 15, 1)
    assert (counters.rows_success, counters.rows_error, counters.rows_published) == (15, 1, 15)


def test_every_document_that_was_answered_is_counted_halves_too(new_world: NewWorld) -> None:
    fake, receiver = new_world(deletes(128)), Whole(refuses={"5", "77"})
    fake.run(receiver)
    assert len(receiver.requests) > 20
    assert fake.counters.documents_sent == len(receiver.requests)


def test_the_log_shows_the_status_that_halves_got_and_quotes_nothing(
    new_world: NewWorld, caplog: pytest.LogCaptureFixture
) -> None:
    class Answering(Whole):
        def send(self, document: Document) -> Answer:
            answer = super().send(document)
            said = EventResult(Level.ERROR, "the receiver answers 422; no Jack of idu=7")
            return (
                replace(answer, general=said, in_short="the receiver answers 422")
                if answer.general
                else answer
            )

    with caplog.at_level("INFO", "eventlog"):
        new_world(deletes(4)).run(Answering(refuses={"2"}))
    lines = [record.getMessage() for record in caplog.records if "halves" in record.getMessage()]
    assert lines == ["document 1 is sent in halves: the receiver answers 422"]


# --- streams --------------------------------------------------------------------------------------


class Sink:
    """Of a stream: refuses a document whole that holds one of these; ``before`` is called with
    each before that.
    """

    def __init__(
        self, *refuses: str, before: Callable[[list[str]], None] = lambda said: None
    ) -> None:
        self.refuses, self.before = set(refuses), before
        self.taken: list[str] = []
        self.requests: list[list[str]] = []

    def send(self, document: Document) -> Answer:
        events: tuple[Event, ...] = document.events
        short = [said(event) for event in events]
        self.before(short)
        self.requests.append(short)
        if self.refuses & set(short):
            return Answer(general=EventResult(Level.ERROR, "no"), culprit_unknown=True)
        self.taken += short
        return Answer()

    def flush(self) -> None: ...

    def close(self) -> None: ...


def publish(source: OpenedStream, position: Path, sink: Sink, **options: Any) -> None:
    follow(
        following(source, **options), position_at(position), lambda: sink, StopRequest(), once=True
    )


def test_a_stream_is_halved_too_and_records_the_culprit_alone(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "capture")
    stream.insert(*range(1, 17))
    sink = Sink("add 11 new")
    publish(files(stream.path), tmp_path / "position", sink, mark_interval=1000)
    assert sink.taken == [f"add {key} new" for key in range(1, 17) if key != 11]
    assert len(sink.requests) <= bound(16, 1)
    assert len(failures(tmp_path / "position")) == 1


def test_halves_of_a_stream_are_documents_with_new_numbers(tmp_path: Path) -> None:
    stream, numbers = Stream(tmp_path / "capture"), []
    stream.insert(*range(1, 9))

    class Noting(Sink):
        def send(self, document: Document) -> Answer:
            numbers.append((document.delivery_no, document.document_no))
            return super().send(document)

    sink = Noting("add 2 new", "add 7 new")
    publish(files(stream.path), tmp_path / "position", sink, batch_size=4, mark_interval=1000)
    assert sorted(sink.taken) == [f"add {key} new" for key in (1, 3, 4, 5, 6, 8)]
    assert len(set(numbers)) == len(numbers) == len(sink.requests)


class Numbered:
    """A source of inserts, with a mark behind each."""

    def steps(self, token: Any, *, once: bool) -> Iterator[SourceStep]:
        for number in range(token or 0, 16):
            key = number + 1
            change = Change(
                "s", "t", ChangeOp.INSERT, (("id", key),), None, {"id": key, "name": "new"}
            )
            yield Read(change, str(number))
            yield Mark(number + 1)
        yield Mark(16, is_idle=True)


def test_a_kill_between_halves_of_a_stream_repeats_only_what_is_undecided(tmp_path: Path) -> None:
    for last in range(1, 9):
        place, sink = tmp_path / f"position{last}", Sink("add 6 new")

        def die(_said: list[str], sink: Sink = sink, last: int = last) -> None:
            if len(sink.requests) == last:
                raise Killed

        sink.before = die
        with suppress(Killed):
            publish(Numbered(), place, sink, mark_interval=1000)
        taken, before = list(sink.taken), len(sink.requests)
        sink.before = lambda said: None
        publish(Numbered(), place, sink)
        assert sink.taken == [f"add {key} new" for key in range(1, 17) if key != 6]
        assert not {one for ids in sink.requests[before:] for one in ids} & set(taken)
        assert saved_at(place).token == 16


@pytest.mark.parametrize("last", range(1, 14))
def test_a_kill_between_halves_loses_nothing_of_the_documents_next_to_them(
    tmp_path: Path, last: int
) -> None:
    place, sink, lock = tmp_path / "position", Sink("add 3 new", "add 10 new"), threading.Lock()

    class Locked(Sink):
        def send(self, document: Document) -> Answer:
            with lock:
                return sink.send(document)

    def die(_said: list[str]) -> None:
        if len(sink.requests) >= last:
            raise Killed

    sink.before = die
    with suppress(Killed):
        publish(Numbered(), place, Locked(), batch_size=4, concurrency=3, mark_interval=1000)
    sink.before = lambda said: None
    publish(Numbered(), place, Locked(), batch_size=4, concurrency=3)
    assert set(sink.taken) == {f"add {key} new" for key in range(1, 17) if key not in (3, 10)}
    assert saved_at(place).token == 16


def test_the_heartbeat_that_is_refused_is_no_document_to_halve() -> None:
    class Refusing(Sink):
        def send(self, document: Document) -> Answer:
            return Answer(general=EventResult(Level.ERROR, "no"), culprit_unknown=True)

    assert send_heartbeat(Refusing(), Document(1, 1, (), OUTPUT.heartbeat), Counters())
