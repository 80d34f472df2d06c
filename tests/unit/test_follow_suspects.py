"""Following a source whose receiver fails for one document while it answers others
(spec/event-log.md 8.4, spec/change-model.md 6.6).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from followed_stream import (
    Receiver,
    Stream,
    failures,
    files,
    following,
    once,
    position_at,
    running,
    saved_at,
)
from shared import wait_until
from test_follow_sources import configure

from eventlog import cli
from eventlog.changes.publishing import Publishing
from eventlog.cloudevents.options import PublishOptions as CloudEventsOptions
from eventlog.cloudevents.publish import CloudEventWriter
from eventlog.core.catalog import table_of_types
from eventlog.errors import ReceiverUnavailable
from eventlog.model import (
    Answer,
    Change,
    ChangeOp,
    Document,
    Event,
    EventResult,
    KafkaRecord,
    Level,
    Lob,
)
from eventlog.publisher.ledger.delivery import Tried
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.sinks import Sink
from eventlog.publisher.stream import Described, Mark, Read
from eventlog.publisher.stream.follow import follow
from eventlog.publisher.stream.recorded import RecordedDocument, RecordedEvent, decode, encode
from eventlog.publisher.stream.skipping import skip_recorded
from eventlog.qlik.messages.message_tables import PublishOptions
from eventlog.qlik.messages.publish import QlikWriter


class Failing(Receiver):
    """Raises for documents with an event of ``culprits``, by key, and for all while ``is_down``.
    ``tried`` are these documents. Stops the publisher when ``limit`` of them have come.
    """

    def __init__(self, *culprits: int, is_down: bool = False) -> None:
        super().__init__()
        self.culprits, self.is_down = set(map(str, culprits)), is_down
        self.tried: list[list[str]] = []
        self.limit = 0

    def receive(self, body: bytes, events: Sequence[Event]) -> Answer:
        names = [f"{event.operation} {_key(event)}" for event in events]
        if self.is_down or any(_key(event) in self.culprits for event in events):
            self.tried.append(names)
            if len(self.tried) == self.limit:
                self.stop.set()
            raise RuntimeError("no such mailbox")
        return super().receive(body, events)


def _key(event: Event) -> str:
    return event.association.partition(",")[0].removeprefix("id=")


def run(stream: Stream, place: Path, receiver: Receiver, **options: Any) -> None:
    """A publisher that runs until the receiver stops it."""
    followed = following(files(stream.path), **options)
    follow(followed, position_at(place), receiver.sink, receiver.stop)


def entries(place: Path) -> list[dict[str, Any]]:
    with position_at(place)() as position:
        return [json.loads(content) for content in position.entries().values()]


def adds(*keys: int) -> set[str]:
    return {f"add {key} new" for key in keys}


def test_one_document_never_stops_the_flow(stream: Stream, place: Path) -> None:
    for first in range(0, 48, 4):
        stream.insert(*range(first, first + 4))
    receiver = Failing(6, 21)
    others = adds(*range(48)) - adds(6, 21)
    receiver.enough = lambda receiver: others <= set(receiver.heard)
    run(stream, place, receiver, batch_size=8)
    assert set(receiver.heard) == others


def test_a_quiet_source_sends_all_others_too(stream: Stream, place: Path) -> None:
    stream.insert(*range(16))
    receiver = Failing(5)
    receiver.enough = lambda receiver: len(receiver.heard) == 15
    run(stream, place, receiver, batch_size=16)
    assert set(receiver.heard) == adds(*range(16)) - adds(5)


def test_a_single_event_that_fails_does_not_keep_the_next_one_from_being_read(
    stream: Stream, place: Path
) -> None:
    stream.insert(1)
    receiver = Failing(1)
    with running(following(files(stream.path)), position_at(place), receiver):
        wait_until(lambda: len(receiver.tried) > 8)
        stream.insert(2)
        wait_until(lambda: receiver.heard == ["add 2 new"])


def test_later_events_of_the_culprit_wait_and_follow_in_order(stream: Stream, place: Path) -> None:
    stream.insert(1, 2, 3)
    stream.update(1, "new", "b")
    stream.insert(4)
    stream.update(1, "b", "c")
    receiver = Failing(1)
    receiver.enough = lambda receiver: adds(2, 3, 4) <= set(receiver.heard)
    run(stream, place, receiver, batch_size=2)
    again = Receiver()
    once(stream, place, again)
    assert [one for one in again.heard if one.split()[1] == "1"] == [
        "add 1 new", "modify 1 b", "modify 1 c",
    ]  # fmt: skip


def test_a_restart_repeats_what_waits_and_nothing_else(stream: Stream, place: Path) -> None:
    stream.insert(1, 2, 3, 4)
    stream.update(2, "new", "b")
    receiver = Failing(2)
    with pytest.raises(ReceiverUnavailable, match="1 object left"):
        once(stream, place, receiver, batch_size=2)
    assert saved_at(place).token["commit"] is not None
    assert set(receiver.heard) == adds(1, 3, 4)
    again = Receiver()
    again.meanings = receiver.meanings
    once(stream, place, again)
    assert again.heard == ["add 2 new", "modify 2 b"]
    assert all(len(texts) == 1 for texts in again.meanings.values())
    assert entries(place) == []


def test_kills_at_each_fourth_failure_do_not_stop_the_search_for_the_culprit(
    stream: Stream, place: Path
) -> None:
    stream.insert(*range(64))
    wanted, heard = adds(*range(64)) - adds(7), set[str]()
    for _ in range(20):  # four on a machine that has nothing else to do
        receiver = Failing(7)
        receiver.limit = 4
        run(stream, place, receiver, batch_size=16)
        heard |= set(receiver.heard)
        if heard >= wanted:
            break
    assert heard == wanted


@pytest.mark.promise("option publisher.max_attempts")
def test_attempts_go_on_after_a_restart_and_end_at_max_attempts(
    stream: Stream, place: Path
) -> None:
    stream.insert(1, 2, 3, 4)
    stream.update(1, "new", "b")
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(1), batch_size=2)
    (tries,) = [entry["suspect"]["tries"] for entry in entries(place) if "suspect" in entry]
    assert tries > 0
    followed = following(files(stream.path), batch_size=2, max_attempts=tries + 2)
    receiver = Failing(1)
    new = count(5)

    def is_given_up() -> bool:
        stream.insert(next(new))  # only the answer to another document decides
        return bool(failures(place))

    with running(followed, position_at(place), receiver):
        wait_until(is_given_up)
    failure, *_ = failures(place)  # its later events fail, too
    assert failure["code"] == "receiver"
    assert failure["message"].startswith("given up after ")
    # Attempts more, if nothing was answered between the restart and them.
    assert 2 <= receiver.tried.count(["add 1"]) <= 8
    assert "<add " in failure["content"]
    again = Receiver()
    once(stream, place, again)
    assert "add 1 new" not in again.heard


def test_an_event_that_got_retry_keeps_its_attempts_at_each_restart(
    stream: Stream, place: Path
) -> None:
    stream.insert(1)
    receiver = Receiver(k1=2 * [Level.RETRY])
    receiver.enough = lambda one: len(one.documents) == 2
    run(stream, place, receiver)
    (parked,) = [entry["parked"] for entry in entries(place)]
    with position_at(place)() as position:
        ((number, content),) = position.entries().items()
        later = content.replace(parked["due"], "2999-01-01T00:00:00.000")
        position.save(position.load(), entries={number: later})
    for key in (2, 3):
        stream.insert(key)
        receiver = Receiver()
        receiver.enough = lambda one: bool(one.heard)
        run(stream, place, receiver, retry_initial=3600, retry_max=3600)
        assert receiver.heard == [f"add {key} new"]
        assert [entry["parked"]["tries"] for entry in entries(place)] == [2]


def test_a_receiver_that_is_unavailable_parks_nothing_and_gives_nothing_up(
    stream: Stream, place: Path
) -> None:
    stream.insert(*range(8))
    receiver = Failing(is_down=True)
    receiver.limit = 30
    run(stream, place, receiver, batch_size=4, max_attempts=1)
    assert failures(place) == []
    again = Receiver()
    once(stream, place, again)
    assert set(again.heard) == adds(*range(8))


def contents_written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The contents of entries, as they are written from now on."""
    written: list[str] = []

    def encoded(document: RecordedDocument) -> str:
        written.append(encode(document))
        return written[-1]

    monkeypatch.setattr("eventlog.publisher.stream.source_feed.encode", encoded)
    return written


def test_a_receiver_that_fails_for_an_event_for_days_costs_few_writes(
    stream: Stream, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = contents_written(monkeypatch)
    stream.insert(1, 2, 3, 4)
    receiver = Failing(1)
    receiver.limit = 100
    run(stream, place, receiver, batch_size=2, retry_initial=0.001, retry_max=0.001)
    assert len(receiver.tried) == 100
    # While the two documents fail, when the first is cut, and at the powers of two.
    assert len(written) < 16


def test_nothing_is_recorded_for_a_receiver_of_a_source_that_cannot_be_reached(
    stream: Stream, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unreachable(Failing):
        def receive(self, body: bytes, events: Sequence[Event]) -> Answer:
            with suppress(RuntimeError):
                super().receive(body, events)
            raise ReceiverUnavailable("no connection")

    written = contents_written(monkeypatch)
    stream.insert(1, 2, 3, 4)
    receiver = Unreachable(is_down=True)
    receiver.limit = 20
    run(stream, place, receiver, batch_size=2)
    assert len(receiver.tried) == 20
    assert (written, entries(place)) == ([], [])


def test_with_on_retry_stop_a_failure_stops_everything(stream: Stream, place: Path) -> None:
    stream.insert(1, 2, 3)
    receiver = Failing(1)
    receiver.limit = 4
    run(stream, place, receiver, batch_size=1, park=False)
    assert (receiver.heard, receiver.tried) == ([], [["add 1"]] * 4)


# --- an event of all objects ----------------------------------------------------------------------


class Truncating:
    """A source of two inserts, a TRUNCATE, and an insert after it."""

    def steps(self, token: Any, *, once: bool) -> Iterator[Any]:
        changes = [
            *(Change("s", "t", ChangeOp.INSERT, (("id", n),), None, {"id": n}) for n in (1, 2)),
            Change("s", "t", ChangeOp.TRUNCATE),
            Change("s", "t", ChangeOp.INSERT, (("id", 3),), None, {"id": 3}),
        ]
        for number in range(token or 0, len(changes)):
            yield Read(changes[number], str(number))
            yield Mark(number + 1)
        yield Mark(len(changes), is_idle=True)

    def backlog(self, token: Any) -> None:
        return None


class Records(Sink):
    """Takes documents, and fails for those for which ``fails`` returns True. Stops the publisher at
    the event ``last``.
    """

    takes_several = True

    def __init__(self, fails: Callable[[Document], bool]) -> None:
        self.fails, self.came = fails, list[str]()
        self.last, self.stop = "", StopRequest()
        self.records: dict[str, tuple[KafkaRecord, ...]] = {}

    def send(self, document: Document) -> Answer:
        if self.fails(document):
            raise ReceiverUnavailable("answers 500", is_suspicious=True)
        self.came += document.event_ids
        for event_id, records in zip(document.event_ids, document.records, strict=False):
            assert isinstance(records, tuple)
            self.records[event_id] = records
        if self.last in self.came:
            self.stop.set()
        return Answer()


def test_a_truncate_that_fails_keeps_its_place_in_the_order(place: Path) -> None:
    writer = CloudEventWriter(CloudEventsOptions(), Publishing())
    failed: list[Document] = []

    def fails(document: Document) -> bool:
        if "2" in document.event_ids and len(failed) < 6:
            failed.append(document)
            return True
        return False

    sink = Records(fails)
    sink.last = "3"
    followed = following(Truncating(), writer)
    follow(followed, position_at(place, "s"), lambda: sink, sink.stop)
    assert len(failed) == 6
    first = [*dict.fromkeys(sink.came)]
    assert first == ["0", "1", "2", "3"]
    assert sink.came.index("3") > max(n for n, one in enumerate(sink.came) if one == "2")


# --- everything at random -------------------------------------------------------------------------


class Listed:
    """A source of changes in a list; a mark follows some of them."""

    def __init__(self, changes: Sequence[Change], chance: random.Random) -> None:
        self.changes = changes
        self.marked = {number for number in range(len(changes)) if chance.random() < 0.3}

    def steps(self, token: Any, *, once: bool) -> Iterator[Any]:
        while True:
            for number in range(token or 0, len(self.changes)):
                yield Read(self.changes[number], str(number))
                if number in self.marked:
                    yield Mark(number + 1)
            token = len(self.changes)
            yield Mark(token, is_idle=True, rest=0.001)

    def backlog(self, token: Any) -> None:
        return None


class Moody(Sink):
    """Applies an event once, by its event-id. Fails always for documents with an event of
    ``culprits``, and at random for all others, in each way. Stops the publisher after ``limit``
    documents, and at the last event.
    """

    takes_several = True

    def __init__(self, chance: random.Random, culprits: set[str], last: int) -> None:
        self.chance, self.culprits, self.last = chance, culprits, last
        self.applied: list[str] = []
        self.contents: dict[str, bytes] = {}
        self.is_calm = False
        self.limit, self.stop = 0, StopRequest()
        self.lock = Lock()

    def send(self, document: Document) -> Answer:
        with self.lock:
            try:
                return self._answer(document)
            finally:
                self.limit -= 1
                if self.limit == 0 or len(self.applied) == self.last:
                    self.stop.set()

    def _answer(self, document: Document) -> Answer:
        if len(document.event_ids) == 1:
            (event_id,) = document.event_ids
            assert self.contents.setdefault(event_id, document.body) == document.body
        if not self.culprits.isdisjoint(document.event_ids):
            raise ReceiverUnavailable("answers 500", is_suspicious=True)
        mood = 1.0 if self.is_calm else self.chance.random()
        if mood < 0.1:
            raise ReceiverUnavailable("no answer", is_suspicious=mood < 0.06)
        verdicts = {}
        for event_id in document.event_ids:
            if not self.is_calm and self.chance.random() < 0.1:
                verdicts[event_id] = EventResult(Level.RETRY, "later")
            elif event_id not in self.applied:
                self.applied.append(event_id)
        if mood < 0.12:
            raise ReceiverUnavailable("the answer is cut off", is_suspicious=True)
        return Answer(verdicts)


def changes_at_random(chance: random.Random, number: int) -> list[Change]:
    changes = []
    for place in range(number):
        key = chance.randrange(8)
        row = {"id": key, "v": place}
        if chance.random() < 0.03:
            changes.append(Change("s", "t", ChangeOp.TRUNCATE))
        elif chance.random() < 0.15:
            new = chance.randrange(8)
            after = {**row, "id": new}
            changes.append(Change("s", "t", ChangeOp.UPDATE, (("id", new),), row, after))
        else:
            changes.append(Change("s", "t", ChangeOp.INSERT, (("id", key),), None, row))
    return changes


def keys_of(change: Change) -> set[Any]:
    keys = {value for _, value in change.key or ()}
    return keys | ({change.before["id"]} if change.before else set())


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(n, marks=pytest.mark.night) for n in range(6, 60))]
)
def test_whatever_fails_and_whenever_it_restarts_each_object_gets_its_events_in_order(
    place: Path, seed: int
) -> None:
    chance = random.Random(seed)
    changes = changes_at_random(chance, 60)
    of_objects = [str(n) for n, change in enumerate(changes) if change.op is not ChangeOp.TRUNCATE]
    sink = Moody(chance, set(chance.sample(of_objects, 2)), len(changes))
    source = Listed(changes, chance)

    def publish(limit: int) -> None:
        sink.limit, sink.stop = limit, StopRequest()
        writer = CloudEventWriter(CloudEventsOptions(), Publishing())
        followed = following(
            source, writer, batch_size=chance.randint(1, 6), concurrency=chance.randint(1, 3),
            query_limit=chance.choice([5, 100]), mark_interval=0, retry_initial=0.001,
            retry_max=0.002, isolate_after=2,
        )  # fmt: skip
        follow(followed, position_at(place, "s"), lambda: sink, sink.stop)

    for _ in range(6):
        publish(chance.randint(1, 40))
    assert not sink.culprits & set(sink.applied)
    sink.is_calm, sink.culprits = True, set()
    publish(1000)
    order = list(map(int, sink.applied))
    assert sorted(order) == list(range(len(changes)))
    for key in range(8):
        own = [n for n in order if key in keys_of(changes[n]) or not keys_of(changes[n])]
        assert own == sorted(own)


# --- numbers ---------------------------------------------------------------------------------------


def test_a_parked_message_has_the_same_number_after_a_restart(stream: Stream, place: Path) -> None:
    def writer() -> QlikWriter:
        return QlikWriter(PublishOptions(), Publishing(topic="changes", in_records=True))

    stream.insert(1, 2)
    stream.insert(3)
    before: dict[str, tuple[KafkaRecord, ...]] = {}

    def fails(document: Document) -> bool:
        of_document = zip(document.event_ids, document.records, strict=True)
        before.update((name, one) for name, one in of_document if isinstance(one, tuple))
        return len(document.event_ids) == 1 and document.event_ids[0] == culprit

    first = Records(lambda document: False)
    follow(
        following(files(stream.path), writer()),
        position_at(place.with_name("other")),
        lambda: first,
        StopRequest(),
        once=True,
    )
    culprit = first.came[1]
    with suppress(ReceiverUnavailable):
        follow(
            following(files(stream.path), writer(), batch_size=1),
            position_at(place),
            lambda: Records(fails),
            StopRequest(),
            once=True,
        )
    stream.insert(4)
    last = Records(lambda document: False)
    follow(
        following(files(stream.path), writer()),
        position_at(place),
        lambda: last,
        StopRequest(),
        once=True,
    )
    assert last.came[0] == culprit
    assert len(last.came) == 2
    # Metadata messages, which a restart repeats, have the time at which they were made.
    assert last.records[culprit][-1] == before[culprit][-1] == first.records[culprit][-1]
    assert _sequence(last.records[last.came[1]]) > _sequence(first.records[first.came[2]])
    # The next number follows that of the position, which is above that of the parked message.
    numbers = [_sequence(first.records[one])[16:] for one in first.came]
    numbers.append(_sequence(last.records[last.came[1]])[16:])
    assert list(map(int, numbers)) == [1, 2, 3, 4]


def _sequence(records: tuple[KafkaRecord, ...]) -> str:
    value = records[-1].value
    assert value is not None
    return str(json.loads(value)["message"]["headers"]["changeSequence"])


# --- the record ------------------------------------------------------------------------------------


def test_a_recorded_event_has_the_same_values_and_types_when_it_is_read() -> None:
    row = {
        "id": 7, "a": "text \x00 \ud800", "b": Decimal("1.50"), "c": float("-inf"), "d": True,
        "e": None, "f": b"\x00\xff", "g": date(2024, 2, 29), "h": time(1, 2, 3, 4),
        "i": datetime(2024, 1, 2, 3, 4, 5, 6, UTC), "j": Lob(b"large"), "k": ("x", 2),
        "l": datetime(2024, 1, 2),
    }  # fmt: skip
    change = Change(
        "s", "t", ChangeOp.UPDATE, (("id", 7),), {"b": Decimal("1.5")}, row, frozenset({"a", "b"}),
        "12:34", "AB", 3, True, datetime(2024, 5, 6, tzinfo=UTC), "ann",
        {"masks": [1, {"x": {"deep": Decimal(1)}}], "part1": b"x", "names": {"a", "b"}},
    )  # fmt: skip
    described = Described(
        "s", table_of_types("t", [("id", "integer"), ("b", "numeric(9,2)")], ["id"])
    )
    document = RecordedDocument(
        [RecordedEvent(4, "12:34.2", change, "20240101", described)], Tried(3, "500", "2024-01-01")
    )
    read = decode(4, encode(document))
    (event,), (whole,) = read.events, document.events
    assert event[:-1] == whole[:-1]
    assert read.tried == document.tried
    assert event.described is not None
    assert event.described.table.columns == described.table.columns
    assert event.change.after is not None
    assert list(map(type, event.change.after.values())) == list(map(type, row.values()))
    assert event.change.extras == {**change.extras, "names": frozenset({"a", "b"})}


# --- nonces (event-log.md 8.4, Repetitions) --------------------------------------------------------


class Noting(Failing):
    """Notes the nonces under which each event-id was sent."""

    def __init__(self, *culprits: int) -> None:
        super().__init__(*culprits)
        self.nonces: dict[str, set[str]] = {}

    def sink(self) -> Sink:
        sink = super().sink()
        send = sink.send

        def noted(document: Document) -> Answer:
            for event_id in document.event_ids:
                self.nonces.setdefault(event_id, set()).add(document.nonce)
            return send(document)

        sink.send = noted  # type: ignore[method-assign]
        return sink


def test_an_event_that_waits_keeps_its_nonce_and_later_events_get_another(
    stream: Stream, place: Path
) -> None:
    stream.insert(1, 2, 3)
    first, again = Noting(2), Noting()
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, first, batch_size=2, needs_nonces=True)
    stream.insert(4)
    once(stream, place, again, needs_nonces=True)
    waited = first.nonces.keys() & again.nonces.keys()
    (later,) = again.nonces.keys() - waited
    assert all(first.nonces[one] == again.nonces[one] for one in waited)
    (nonce,) = set.union(*first.nonces.values())
    assert nonce not in again.nonces[later]
    assert list(entries(place)[0]) == ["line_format", "nonce", "events"]


def test_skip_leaves_the_nonces_of_other_events(stream: Stream, place: Path) -> None:
    stream.insert(1, 2, 3)
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(1, 3), batch_size=3, needs_nonces=True)
    before = nonces_of(place)
    skipped = next(iter(before))
    with position_at(place)() as position:
        skip_recorded(position, [skipped], "no need")
    assert nonces_of(place).items() == before.items() - {(skipped, before[skipped])}


def nonces_of(place: Path) -> dict[str, str]:
    """The nonce of each event that waits, by its event-id."""
    waiting = [(event["id"], one["nonce"]) for one in entries(place) for event in one["events"]]
    return dict(waiting)


# --- by hand ---------------------------------------------------------------------------------------


def test_skip_gives_a_waiting_event_up_and_later_events_of_its_object_are_sent(
    stream: Stream, tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    stream.update(2, "new", "b")
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(2), batch_size=2)
    capfd.readouterr()
    assert cli.run(["-c", str(config), "status", "--json"]) == 0
    waiting = json.loads(capfd.readouterr().out)["in_flight"]
    assert [(one["table_name"], one["table_key"], one["attempts"]) for one in waiting] == [
        ("app.item", "id=2", 1),
        ("app.item", "id=2", None),
    ]
    assert "no such mailbox" in waiting[0]["answer"]
    assert cli.run(["-c", str(config), "status"]) == 0
    assert "2 events sent first at the next start" in capfd.readouterr().out
    culprit = waiting[0]["event_id"]
    skip = ["-c", str(config), "skip", culprit, "--reason", "no need"]
    with position_at(place)():
        assert cli.run(skip) == 1  # a publisher runs
    assert cli.run([*skip[:3], "nothing", *skip[4:]]) == 2
    assert f"the receiver fails for {culprit}" in capfd.readouterr().err
    assert cli.run(skip) == 0
    (failure,) = failures(place)
    assert (failure["event_id"], failure["code"]) == (culprit, "skipped")
    assert "no need; the last answer: " in failure["message"]
    assert json.loads(failure["content"])["after"] == {"id": 2, "name": "new"}
    again = Receiver()
    once(stream, place, again)
    assert again.heard == ["modify 2 b"]


def test_one_run_tries_what_was_recorded_although_nothing_more_may_be_read(
    stream: Stream, place: Path
) -> None:
    stream.insert(1, 2, 3, 4)
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(2, 3), batch_size=2)
    stream.insert(5)
    receiver = Receiver()
    once(stream, place, receiver, query_limit=1)
    assert set(receiver.heard) >= adds(2, 3, 5)


@pytest.mark.promise("option skip--reason")
def test_skip_gives_up_all_events_that_it_names_or_none(
    stream: Stream, tmp_path: Path, place: Path
) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    later = {"retry_initial": 60, "retry_max": 60}  # not before the run ends
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Receiver(k1=[Level.RETRY], k2=[Level.RETRY]), **later)
    waiting = [event["id"] for entry in entries(place) for event in entry["events"]]
    skip = ["-c", str(config), "skip", "--reason", "no need"]
    assert cli.run([*skip, waiting[0], "nothing"]) == 2
    assert failures(place) == []
    assert cli.run([*skip, *waiting]) == 0
    assert [one["event_id"] for one in failures(place)] == waiting
    again = Receiver()
    once(stream, place, again)
    assert again.heard == []


def rerecord(place: Path, before: str, after: str) -> None:
    """Change what is recorded about the attempts at the waiting events."""
    with position_at(place)() as position:
        found = dict(position.entries())
        assert any(before in content for content in found.values())
        changed = {number: one.replace(before, after) for number, one in found.items()}
        position.save(position.load(), entries=changed)


@pytest.mark.promise("option skip--parked", "option skip--dry-run")
def test_skip_of_all_parked_events_takes_those_that_the_receiver_fails_for_and_none_in_doubt(
    stream: Stream, tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    stream.update(2, "new", "b")
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(2), batch_size=2)

    def named() -> list[str]:
        capfd.readouterr()
        skip = ["skip", "--parked", "--reason", "no need", "--dry-run", "--json"]
        assert cli.run(["-c", str(config), *skip]) == 0
        return [one["event_id"] for one in json.loads(capfd.readouterr().out)["skipped"]]

    (culprit,) = named()
    rerecord(place, '"tries":1', '"tries":0')  # a part that was not sent alone yet
    assert named() == [culprit]
    rerecord(place, '"suspect":{"tries":0', '"failures":{"tries":4')
    assert named() == []


def test_the_status_of_a_source_has_the_condition_that_objects_are_parked(
    stream: Stream, tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    stream.update(2, "new", "b")
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(2), batch_size=2)

    def parked() -> list[str]:
        capfd.readouterr()
        assert cli.run(["-c", str(config), "status", "--json"]) == 0
        conditions = json.loads(capfd.readouterr().out)["health"]["conditions"]
        return [one["text"] for one in conditions if one["name"] == "parked_objects"]

    assert len(parked()) == 1
    assert parked()[0].startswith("1 object parked")
    rerecord(place, '"suspect":{"tries":1', '"failures":{"tries":4')
    assert parked() == []


@pytest.mark.promise("command skip")
def test_the_rounds_of_a_doubt_outlive_a_skip(stream: Stream, tmp_path: Path, place: Path) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(2, 3), batch_size=2)
    rerecord(place, '"suspect":{"tries":1', '"failures":{"tries":4')
    waiting = [event["id"] for one in entries(place) for event in one["events"]]
    assert cli.run(["-c", str(config), "skip", waiting[0], "--reason", "no need"]) == 0
    (left,) = entries(place)
    assert left["failures"]["tries"] == 4


# --- explain --------------------------------------------------------------------------------------


def explained(config: Path, capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capfd.readouterr()
    assert cli.run(["-c", str(config), "explain", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def test_top_of_a_source_without_a_monitor_shows_its_lag_and_the_events_that_wait(
    stream: Stream, tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(2), batch_size=2)
    capfd.readouterr()
    assert cli.run(["-c", str(config), "top"]) == 0
    shown = capfd.readouterr().out
    assert "bytes after the position" in shown
    assert "id=2" in shown


def test_explain_shows_why_an_event_of_a_source_waits_and_when_it_is_tried_again(
    stream: Stream, tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    stream.update(2, "new", "b")
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(2), batch_size=2)
    found = explained(config, capfd, "--key", "id=2")
    culprit, later = found["events"]
    place_of = culprit["in_flight"]
    assert (culprit["class_name"], culprit["key"], place_of["attempts"]) == ("app.item", "id=2", 1)
    assert "the receiver fails for it: it was sent alone at least once" in culprit["state"]
    assert "no such mailbox" in place_of["last_answer"]
    assert datetime.fromisoformat(place_of["next_attempt"]).year > 2000
    assert culprit["change"]["after"] == {"id": 2, "name": "new"}
    assert later["state"] == (
        f"it waits for event {culprit['event_id']} of its object, which has no answer"
    )
    assert found["position"] == saved_at(place).token
    assert explained(config, capfd, "--key", "app.item.id=2") == found
    assert explained(config, capfd, "--key", "id=1")["events"] == []
    assert explained(config, capfd, culprit["event_id"])["events"] == [culprit]
    assert 'event-id="' + culprit["event_id"] in culprit["document"], "as it would be sent"
    (skip,) = culprit["remedies"]
    assert skip["command"] == f"eventlog skip --from gbase {culprit['event_id']} --reason REASON"
    assert "stop the publisher" not in skip["text"]
    with position_at(place)():
        running = explained(config, capfd, culprit["event_id"])
    assert running["publisher_runs"]
    assert "stop the publisher first" in running["events"][0]["remedies"][0]["text"]


def test_explain_names_the_limit_of_attempts_of_an_event_that_waits_for_another_document(
    stream: Stream, tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(2), batch_size=2)
    assert "limit" not in explained(config, capfd, "--key", "id=2")["events"][0]["state"]
    config.write_text(config.read_text().replace("[publisher]", "[publisher]\nmax_attempts = 1"))
    (culprit,) = explained(config, capfd, "--key", "id=2")["events"]
    assert "limit 1: waits until another document is answered" in culprit["state"]


@pytest.mark.promise("command explain", "option explain--key")
def test_explain_of_a_source_speaks_to_people(
    stream: Stream, tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(2), batch_size=2)
    (culprit,) = explained(config, capfd, "--key", "id=2")["events"]
    assert cli.run(["-c", str(config), "explain", culprit["event_id"], "--from", "gbase"]) == 0
    said = capfd.readouterr().out
    assert f"event {culprit['event_id']} of source gbase: the receiver fails for it" in said
    due = culprit["in_flight"]["next_attempt"]
    for part in (due, "no such mailbox", '"after": {"id": 2', "of capture.cdc", "<add "):
        assert part in said
    assert f"eventlog skip --from gbase {culprit['event_id']} --reason REASON" in said
    assert cli.run(["-c", str(config), "explain", "--key", "id=1"]) == 0
    assert "no event of id=1 waits for an answer" in capfd.readouterr().out


def test_explain_shows_the_failure_of_an_event_of_a_source_that_was_given_up(
    stream: Stream, tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    with pytest.raises(ReceiverUnavailable):
        once(stream, place, Failing(2), batch_size=2)
    (culprit,) = explained(config, capfd, "--key", "id=2")["events"]
    skip = ["skip", culprit["event_id"], "--reason", "no need"]
    assert cli.run(["-c", str(config), *skip]) == 0
    (given_up,) = explained(config, capfd, culprit["event_id"])["events"]
    assert given_up["state"].startswith("it failed (skipped): ")
    assert [one["code"] for one in given_up["errors"]] == ["skipped"]
    (unknown,) = explained(config, capfd, "no such event")["events"]
    assert "it does not wait, and it did not fail" in unknown["state"]


def test_explain_of_a_source_that_was_never_followed_has_its_beginning_as_position(
    stream: Stream, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    assert explained(config, capfd, "--key", "id=1")["position"] is None
    assert cli.run(["-c", str(config), "explain", "1:1"]) == 0
    assert "position: at the beginning of the source" in capfd.readouterr().out
