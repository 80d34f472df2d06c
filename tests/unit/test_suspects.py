"""A receiver that fails for one document: when another one is tried, what is parked, what goes on
(spec/event-log.md 8.4).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace

import pytest
import sqlalchemy as sa
from fake_publisher import FakePublisher, NewWorld, Receiver, deletes, deliveries_of, judge
from samples import row

from eventlog.core.clock import monotonic
from eventlog.core.rows.events import Outgoing
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.ledger.delivery import Delivery, Tried, encode
from eventlog.publisher.send.policy import Kind
from eventlog.publisher.send.sending import DeliveryResult
from eventlog.publisher.send.session import PublisherState


@dataclass
class Failing(Receiver):
    """Fails for documents with an event of ``culprits``, and for all while ``is_down``; ``tried``
    are the event-ids of each of these.
    """

    culprits: Container[str] = ()
    is_down: bool = False
    tried: list[list[str]] = field(default_factory=list)
    fails: Callable[[], Answer] | None = None

    def send(self, document: Document) -> Answer:
        if self.is_down or any(
            one.partition(".")[0] in self.culprits for one in document.event_ids
        ):
            self.tried.append(list(document.event_ids))
            if self.fails is not None:
                return self.fails()
            raise ReceiverUnavailable("answers 500", is_suspicious=True)
        return super().send(document)


def isolate(fake: FakePublisher, state: PublisherState, receiver: Failing) -> None:
    """Cycles until the first document is isolated."""
    for _ in range(10):
        fake.cycle(state, receiver)
        if any(
            one.attempts is not None and one.attempts.kind is Kind.PART
            for one in state.outbox.documents()
        ):
            return
    raise AssertionError(receiver.tried)


def test_after_one_failure_another_document_is_sent_and_after_the_second_the_first_is_isolated(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes(*"12345678"), batch_size=4)
    receiver, state = Failing(culprits={"2"}), fake.start()
    assert fake.cycle(state, receiver).result is DeliveryResult.DONE
    assert receiver.tried == [["1", "2", "3", "4"]]
    assert receiver.sent == [["5", "6", "7", "8"]]
    fake.log([row(9, 4, "idu=3"), row(10, 4, "idu=9")])
    assert fake.cycle(state, receiver).result is DeliveryResult.DONE
    assert receiver.tried == [["1", "2", "3", "4"]] * 2
    # Its halves stand in the line as documents with new numbers.
    assert [[n, [one[0] for one in events]] for n, events in fake.in_flight()[1]] == [
        [3, ["1", "2"]],
        [4, ["3", "4"]],
    ]
    assert len(state.parked_objects()) == 4
    # Later events of its objects wait, all others go on.
    assert receiver.sent[1:] == [["10"]]


def test_a_document_that_failed_once_is_not_isolated(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"1234"), batch_size=2)
    receiver, state = Failing(culprits={"2"}), fake.start()
    fake.cycle(state, receiver)
    receiver.culprits = ()
    fake.run(receiver, state)
    assert (receiver.sent, len(state.parked_objects())) == ([["3", "4"], ["1", "2"]], 0)


@pytest.mark.parametrize("objects", ["12345678", "87654321"])
def test_without_another_document_the_halves_are_the_probe_of_each_other(
    new_world: NewWorld, objects: str
) -> None:
    fake = new_world(deletes(*objects), batch_size=8)
    receiver, state = Failing(culprits={"2"}), fake.start()
    for _ in range(5):
        assert fake.cycle(state, receiver).result is DeliveryResult.UNAVAILABLE
    assert not state.parked_objects()
    for _ in range(12):
        fake.cycle(state, receiver)
    assert receiver.applied.keys() == set("13456789") - {"9"}
    assert [one.event_id for one in state.parked_objects()] == ["2"]


def test_where_the_suspected_document_is_a_single_event_the_other_one_is_cut(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes("1"), batch_size=2)
    receiver, state = Failing(culprits={"1", "2"}), fake.start()
    fake.cycle(state, receiver)
    fake.log([row(2, 4, "idu=2"), row(3, 4, "idu=3")])
    for _ in range(20):
        fake.cycle(state, receiver)
    assert receiver.sent == [["3"]]


def test_where_nothing_else_decides_a_part_of_another_document_is_tried(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes(*"123"))
    nothing = (None, None, None, None, ())
    events = [Outgoing(str(number), [number], *nothing, 1, 0) for number in (1, 2, 3)]
    of_part = {1: Tried(1, "answers 500"), 2: Tried(0, "answers 500")}
    for delivery in (
        Delivery(1, {1: events[:1]}),
        Delivery(2, {1: events[1:2], 2: events[2:]}, tried=of_part),
    ):
        fake.connection.exec_driver_sql(
            "INSERT INTO eventlog_inflight VALUES (?, NULL, 'delivery', '2026-01-01', ?)",
            (delivery.number, encode(delivery)),
        )
    fake.connection.commit()
    receiver, state = Failing(culprits={"1", "2"}), fake.start()
    for _ in range(20):
        fake.cycle(state, receiver)
    assert receiver.sent == [["3"]]


def test_with_a_culprit_in_each_document_all_others_arrive(new_world: NewWorld) -> None:
    names = [str(number) for number in range(1, 65)]
    culprits = {"3", "12", "19", "35", "51"}  # two are in different halves of the first document
    fake = new_world(deletes(*names), batch_size=16)
    receiver, state = Failing(culprits=culprits), fake.start()
    for _ in range(60):
        fake.cycle(state, receiver)
    assert receiver.applied.keys() == set(names) - culprits


@pytest.mark.parametrize("batch_size", [2, 4, 8])
def test_a_receiver_that_is_unavailable_parks_nothing_and_gives_nothing_up(
    new_world: NewWorld, batch_size: int
) -> None:
    fake = new_world(deletes(*"12345678"), batch_size=batch_size, max_attempts=1)
    receiver, state = Failing(is_down=True), fake.start()
    for _ in range(40):
        before = len(fake.in_flight().get(1, ()))
        ended = fake.cycle(state, receiver)
        assert ended.result is DeliveryResult.UNAVAILABLE
        # At most one document is cut, and the next cycle follows at once only for the first ones.
        assert len(fake.in_flight()[1]) <= max(before, 8 // batch_size) + 1
        at_once = 8 // batch_size + batch_size.bit_length() - 1
        assert not ended.is_suspicious or len(fake.in_flight()[1]) <= at_once
    assert (receiver.sent, len(state.parked_objects())) == ([], 0)
    receiver.is_down = False
    fake.run(receiver, state)
    assert fake.statuses() == dict.fromkeys(range(1, 9), "S")


def test_halves_are_tried_until_the_culprit_is_alone(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"12345678"), batch_size=4)
    receiver, state = Failing(culprits={"2"}), fake.start()
    isolate(fake, state, receiver)
    for _ in range(6):
        fake.cycle(state, receiver)
    assert receiver.tried[2:5] == [["1", "2"], ["2"], ["2"]]
    assert sorted(map(tuple, receiver.sent)) == [("1",), ("3", "4"), ("5", "6", "7", "8")]
    assert [(one.event_id, one.reason) for one in state.parked_objects()] == [("2", "answers 500")]
    # Answered at last, it is done as all others.
    receiver.culprits = ()
    fake.run(receiver, state)
    assert set(fake.statuses().values()) == {"S"}
    assert not state.parked_objects()


def test_between_two_parts_that_fail_another_document_has_its_turn(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"12345678"), batch_size=4)
    receiver, state = Failing(culprits={"2", "3"}), fake.start()
    isolate(fake, state, receiver)
    del receiver.tried[:], receiver.documents[:]
    fake.log([row(9, 4, "idu=9")])
    fake.cycle(state, receiver)
    assert receiver.sent == [["9"]]
    assert receiver.tried == [["1", "2"], ["3", "4"]]


def test_receiver_that_answers_no_other_document_is_unavailable(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"12345678"), batch_size=2, isolate_after=10)
    receiver, state = Failing(is_down=True), fake.start()
    for _ in range(6):
        assert fake.cycle(state, receiver).result is DeliveryResult.UNAVAILABLE
    assert (receiver.sent, len(state.parked_objects())) == ([], 0)
    # Nobody knows which document another failure would have been of: each is a probe in its turn.
    probes = [ids for ids in receiver.tried if ids != ["1", "2"]]
    assert probes[:5] == [["3", "4"], ["5", "6"], ["7", "8"], ["3", "4"], ["5", "6"]]


def test_a_document_without_another_one_is_not_parked(new_world: NewWorld) -> None:
    fake = new_world(deletes("1"))
    receiver, state = Failing(culprits={"1"}), fake.start()
    for _ in range(8):
        assert fake.cycle(state, receiver).result is DeliveryResult.UNAVAILABLE
    assert not state.parked_objects()
    # One that comes into the queue later decides.
    fake.log([row(2, 4, "idu=1"), row(3, 4, "idu=3")])
    assert fake.cycle(state, receiver).result is DeliveryResult.DONE
    assert (receiver.sent, len(state.parked_objects())) == ([["3"]], 1)


def test_a_document_with_an_object_in_common_is_sent_without_it(new_world: NewWorld) -> None:
    fake = new_world(deletes("1", "2", "1", "3"), batch_size=2)
    receiver, state = Failing(culprits={"1"}), fake.start()
    isolate(fake, state, receiver)
    assert receiver.sent == [["4"]]
    assert sorted(deliveries_of(state)) == ["1", "2", "3"]


def test_several_documents_with_culprits_are_parked_one_after_the_other(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes(*map(str, range(1, 11))), batch_size=2, retry_initial=0)
    receiver, state = Failing(culprits={"1", "4", "5"}), fake.start()
    for _ in range(30):
        fake.cycle(state, receiver)
    whole = [ids for ids in receiver.tried if len(ids) == 2]
    assert len(whole) == 3 * 2  # each failed twice
    assert {name for ids in receiver.sent for name in ids} == {"2", "3", "6", "7", "8", "9", "10"}
    assert {one.event_id for one in state.parked_objects()} == {"1", "4", "5"}


@pytest.mark.parametrize("concurrency", [1, 2, 8])
def test_with_several_in_the_air_all_others_arrive_too(
    new_world: NewWorld, concurrency: int
) -> None:
    names = [str(number) for number in range(1, 41)]
    culprits = {"1", "3", "4", "22"}
    fake = new_world(deletes(*names), batch_size=2, concurrency=concurrency)
    receiver, state = Failing(culprits=culprits), fake.start()

    def all_but_culprits() -> bool:
        parked = {one.event_id for one in state.parked_objects()}
        return receiver.applied.keys() == set(names) - culprits and parked == culprits

    for _ in range(80):
        if all_but_culprits():
            break
        fake.cycle(state, receiver)
    for _ in range(5):  # and so it stays
        fake.cycle(state, receiver)
    assert all_but_culprits()
    receiver.culprits = ()
    fake.run(receiver, state)
    assert set(fake.statuses().values()) == {"S"}


@dataclass
class SlowFor(Failing):
    """Answers a document of the event ``slow`` alone after the next other document that it answers,
    or after half a second if no other one comes meanwhile.
    """

    slow: str = ""
    _other: threading.Event = field(default_factory=threading.Event)

    def send(self, document: Document) -> Answer:
        if [*document.event_ids] == [self.slow]:
            self._other.clear()
            self._other.wait(0.5)
            return super().send(document)
        answer = super().send(document)
        self._other.set()
        return answer


@pytest.mark.parametrize(
    "delivery_rows",
    [
        pytest.param(100, id="the later one comes from the queue"),
        pytest.param(6, id="the later one was recorded in the next delivery"),
    ],
)
def test_a_later_event_does_not_overtake_one_that_was_passed_over_meanwhile(
    new_world: NewWorld, delivery_rows: int
) -> None:
    """Event 1 is in the air while the part with event 2 fails: event 5 of the same object comes
    after both.
    """
    rows = deletes("1", "2", "2", "3", "1", "4", "1", "5")
    fake = new_world(rows, batch_size=2, concurrency=2, delivery_rows=delivery_rows)
    receiver, state = SlowFor(culprits={"2"}, slow="1"), fake.start()
    for _ in range(5):
        fake.cycle(state, receiver)
    fake.log([row(9, 4, "idu=1")])
    for _ in range(4):
        fake.cycle(state, receiver)
    sent = [name for names in receiver.sent for name in names]
    assert [name for name in sent if name in {"1", "5", "7", "9"}] == ["1", "5", "7", "9"]


def test_a_later_event_of_an_object_in_the_document_gets_a_new_id_when_it_is_sent_apart(
    new_world: NewWorld,
) -> None:
    """The receiver may have applied it, and not the earlier one."""
    fake = new_world(deletes("1", "2", "1", "1", "5", "6"), batch_size=4)
    receiver, state = Failing(culprits={"1"}), fake.start()
    isolate(fake, state, receiver)
    assert [[one[0], *one[3:]] for _, events in fake.in_flight()[1] for one in events] == [
        ["1"],
        ["2"],
        ["3", 2],
        ["4", 2],
    ]
    for _ in range(3):
        fake.cycle(state, receiver)
    receiver.culprits = ()
    fake.run(receiver, state)
    assert receiver.sent == [["5", "6"], ["2"], ["1"], ["3.2", "4.2"]]


def test_a_restart_tries_the_parts_once_and_lets_the_others_go_on(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"12345678"), batch_size=4)
    receiver, state = Failing(culprits={"2", "3"}), fake.start()
    isolate(fake, state, receiver)
    del receiver.tried[:], receiver.documents[:]
    fake.log([row(9, 4, "idu=3"), row(10, 4, "idu=9")])
    state = fake.start()
    assert fake.cycle(state, receiver).result is DeliveryResult.DONE
    assert (receiver.tried, receiver.sent) == ([["1", "2"], ["3", "4"]], [["10"]])
    receiver.culprits = ()
    fake.run(receiver, state)
    assert set(fake.statuses().values()) == {"S"}
    assert [ids for ids in receiver.sent if set(ids) & {"3", "9"}] == [["3"], ["9"]]


def test_after_max_tries_alone_the_event_is_an_error_with_the_last_answer(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes(*"1234"), batch_size=2, max_attempts=3)
    receiver, state = Failing(culprits={"2"}), fake.start()
    isolate(fake, state, receiver)
    fake.log([row(5, 4, "idu=2")])
    fake.run(receiver, state)
    assert fake.statuses() == {1: "S", 2: "E", 3: "S", 4: "S", 5: "S"}
    message = "given up after 3 tries in its own document: answers 500"
    assert fake.errors() == [(2, "receiver", message)]
    assert receiver.tried == [["1", "2"]] * 2 + [["2"]] * 3


def test_tries_alone_and_the_last_answer_outlive_a_restart(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"1234"), batch_size=2, max_attempts=4)
    receiver, state = Failing(culprits={"2"}), fake.start()
    isolate(fake, state, receiver)
    for _ in range(3):
        fake.cycle(state, receiver)
    tries = len([ids for ids in receiver.tried if ids == ["2"]])
    state = fake.start()
    # The line is written at the powers of two, since the pause is always the same here.
    assert [(one.tries, one.reason) for one in state.parked_objects()] == [(2, "answers 500")]
    fake.log([row(5, 4, "idu=5")])
    for number in range(6, 12):
        fake.cycle(state, receiver)
        fake.log([row(number, 4, f"idu={number}")])
    assert fake.statuses()[2] == "E"
    # What was answered before the restart proves nothing after it.
    assert receiver.tried.count(["2"]) == tries + 2 == 5


def test_a_part_waits_until_it_is_due_after_a_restart(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"12345678"), batch_size=4)
    receiver, state = Failing(culprits={"2"}), fake.start()
    isolate(fake, state, receiver)
    fake.options = replace(fake.options, retry_initial=3600, retry_max=3600)
    state = fake.start()
    tries = [*receiver.tried]
    fake.log([row(9, 4, "idu=3"), row(10, 4, "idu=9")])
    # The parts were due at once when they were recorded; the first of them fails.
    for _ in range(3):
        fake.cycle(state, receiver)
    assert receiver.tried == [*tries, ["1", "2"]]
    for _ in range(3):
        state = fake.start()
        fake.cycle(state, receiver)
    assert receiver.tried == [*tries, ["1", "2"]]
    assert receiver.sent == [["5", "6", "7", "8"], ["10"], ["3", "4"], ["9"]]
    # Chance takes away up to a half of the pause.
    assert all(1700 < one.due - monotonic() <= 3600 for one in state.parked_objects())


def test_a_part_that_got_retry_waits_as_long_as_that_answer_asks_after_a_restart(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes(*"1234"), batch_size=2)
    receiver, state = Failing(culprits={"2"}), fake.start()
    isolate(fake, state, receiver)
    while ["2"] not in receiver.tried:
        fake.cycle(state, receiver)
    receiver.culprits, receiver.judge = (), lambda event: "retry"
    fake.options = replace(fake.options, retry_initial=3600, retry_max=3600)
    state = fake.start()
    fake.cycle(state, receiver)
    sent = len(receiver.documents)
    fake.cycle(fake.start(), receiver)
    assert len(receiver.documents) == sent


@pytest.mark.parametrize("failures", [2, 3, 4])
def test_a_publisher_that_is_killed_after_a_few_failures_finds_the_culprit_of_a_quiet_log(
    new_world: NewWorld, failures: int
) -> None:
    """The cycles without an answer are counted over restarts."""
    fake = new_world(deletes(*"12345678"), batch_size=8)
    receiver = Failing(culprits={"2"})
    for _ in range(16 // failures + 8):
        state = fake.start()
        for _ in range(failures):
            fake.cycle(state, receiver)
    assert receiver.applied.keys() == set("1345678")


def test_an_object_that_got_retry_goes_on_waiting_after_a_restart(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"1234"), batch_size=4)
    receiver = Receiver(judge=lambda event: "retry" if event.event_id == "2" else "success")
    state = fake.start()
    fake.cycle(state, receiver)
    # The first attempt is recorded with the answers to the other events.
    (parked,) = fake.start().parked_objects()
    assert (parked.event_id, parked.tries) == ("2", 1)
    fake.cycle(state, receiver)
    fake.options = replace(fake.options, retry_initial=3600, retry_max=3600)
    (parked,) = fake.start().parked_objects()
    assert (parked.event_id, parked.tries, parked.reason) == ("2", 2, "retry of 2")
    state = fake.start()
    fake.cycle(state, receiver)
    (parked,) = state.parked_objects()
    assert parked.tries == 3
    # What is recorded is the second attempt, which is due.
    fake.log([row(5, 4, "idu=2"), row(6, 4, "idu=6")])
    before = len(receiver.documents)
    for _ in range(3):
        fake.cycle(state, receiver)
    assert receiver.sent[before:] == [["6"]]


def test_nothing_is_recorded_for_a_receiver_that_cannot_be_reached(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"1234"), batch_size=2)
    receiver = Receiver(judge=lambda event: "away")
    state = fake.start()
    fake.cycle(state, receiver)
    line = fake.contents_of_lines()
    for _ in range(10):
        assert fake.cycle(state, receiver).result is DeliveryResult.UNAVAILABLE
    assert fake.contents_of_lines() == line


def test_a_receiver_that_fails_for_days_costs_few_writes(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"12"), batch_size=1)
    receiver, state = Failing(culprits={"1"}), fake.start()
    written = set()
    for _ in range(100):
        fake.cycle(state, receiver)
        written.update(fake.contents_of_lines())
    assert len(receiver.tried) == 100
    # At first, when it is isolated, and at 1, 2, 4, 8, 16, 32 and 64 attempts.
    assert len(written) == 9


def test_the_line_is_encoded_only_when_it_is_written_and_read_only_at_the_start(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = new_world(deletes(*"12345678"), batch_size=4)
    receiver, state = Failing(culprits={"2"}), fake.start()
    encoded, statements = [], []

    def counted(delivery: Delivery, **options: bool) -> str:
        encoded.append(delivery)
        return encode(delivery, **options)

    for module in ("send.cycle", "ledger.in_flight"):
        monkeypatch.setattr(f"eventlog.publisher.{module}.encode", counted)
    sa.event.listen(
        fake.connection.engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, *_: statements.append(" ".join(statement.split())),
    )
    for _ in range(100):
        fake.cycle(state, receiver)
    assert len(receiver.tried) > 90
    of_line = [one.partition(" ")[0] for one in statements if "eventlog_inflight" in one]
    assert set(of_line) == {"INSERT", "UPDATE"}
    assert len(of_line) == len(encoded) < 15


def test_nothing_is_given_up_while_the_receiver_answers_nobody(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"1234"), batch_size=2, max_attempts=2)
    receiver, state = Failing(culprits={"1", "2"}), fake.start()
    isolate(fake, state, receiver)
    receiver.is_down = True
    for _ in range(20):
        fake.cycle(state, receiver)
    assert fake.statuses() == {1: "N", 2: "N", 3: "S", 4: "S"}


def test_on_retry_stop_means_that_the_receiver_is_unavailable(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"1234"), batch_size=2, park=False)
    receiver, state = Failing(culprits={"2"}), fake.start()
    for _ in range(10):
        assert fake.cycle(state, receiver).result is DeliveryResult.UNAVAILABLE
    assert receiver.sent == []


def test_any_other_failure_of_the_other_document_means_that_the_receiver_is_unavailable(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes(*"1234"), batch_size=2)
    receiver, state = Failing(culprits={"2"}), fake.start()
    receiver.judge = judge(e3="away")
    assert fake.cycle(state, receiver).reason == "away"
    assert not state.parked_objects()
    assert fake.cycle(state, receiver).result is DeliveryResult.DONE
    assert receiver.sent == [["3", "4"]]


def test_retry_of_the_other_document_parks_nothing(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"1234"), batch_size=2)
    receiver, state = Failing(culprits={"2"}), fake.start()
    later = Answer({}, EventResult(Level.RETRY))
    send, receiver_send = Receiver.send, receiver.send
    receiver.send = lambda document: later if "3" in document.event_ids else receiver_send(document)  # type: ignore[method-assign]
    assert fake.cycle(state, receiver).result is DeliveryResult.RETRY
    assert (send is Receiver.send, len(state.parked_objects())) == (True, 0)


def test_an_isolated_document_and_each_part_of_it_count_as_one_parked_object(
    new_world: NewWorld,
) -> None:
    fake = new_world(deletes(*"123456789"), batch_size=3, max_parked=2)
    receiver, state = Failing(culprits={"2"}), fake.start()
    for _ in range(12):
        assert fake.cycle(state, receiver).result is DeliveryResult.DONE
    assert receiver.applied.keys() == set("13456789")


def test_more_culprits_than_max_parked_stop_the_cycle(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"123456789"), batch_size=3, max_parked=1)
    receiver, state = Failing(culprits={"2", "5"}), fake.start()
    for _ in range(20):
        ended = fake.cycle(state, receiver)
    assert (ended.result, ended.reason) == (DeliveryResult.RETRY, "more than 1 object parked")


def test_documents_of_one_event_are_judged_each_by_itself(new_world: NewWorld) -> None:
    fake = new_world(deletes(*"123456"), batch_size=3)
    fake.singly = True
    receiver, state = Failing(culprits={"2"}), fake.start()
    for _ in range(8):
        fake.cycle(state, receiver)
    assert sorted(receiver.sent) == [["1"], ["3"], ["4"], ["5"], ["6"]]
    assert fake.in_flight() == {1: [[3, [["2", [[2, 2]]]]]]}
