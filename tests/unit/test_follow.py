"""Following a source that is not a log: what each answer does to an event and to the position
(spec/event-log.md 8.4).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from followed_stream import (
    ITEM,
    OPTIONS,
    OUTPUT,
    PATIENCE,
    Receiver,
    Stream,
    failures,
    files,
    following,
    once,
    position_at,
    said,
    saved_at,
)
from shared import refused

from eventlog.errors import FatalAnswer, ReceiverUnavailable
from eventlog.gbase.options import ReadOptions
from eventlog.model import Answer, Document, Event, EventResult, Level
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.stream import Mark, Read
from eventlog.publisher.stream.follow import follow
from eventlog.publisher.stream.stream_files import StreamFiles

SUCCESS, WARNING, ERROR, RETRY, FATAL = Level


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [SUCCESS, WARNING])
def test_what_is_answered_is_not_sent_again(stream: Stream, place: Path, level: Level) -> None:
    stream.insert(1, 2)
    first, second = Receiver(k1=[level]), Receiver()
    once(stream, place, first)
    stream.insert(3)
    once(stream, place, second)
    assert (first.heard, second.heard) == (["add 1 new", "add 2 new"], ["add 3 new"])
    assert failures(place) == []


def test_an_event_is_named_after_the_position_of_its_change_and_a_new_key_after_it_too(
    stream: Stream, place: Path
) -> None:
    work = stream.begin()
    work.update(ITEM, {"id": 1, "name": "a"}, {"id": 2, "name": "a"})
    work.commit()
    stream.write()
    receiver = Receiver()
    once(stream, place, receiver)
    assert receiver.heard == ["delete 1", "add 2 a"]
    first, second = receiver.meanings
    assert len(first) == 33
    assert second == f"{first}.2"


def test_an_error_is_recorded_with_its_event_and_the_stream_goes_on(
    stream: Stream, place: Path
) -> None:
    stream.insert(1, 2, 3)
    receiver = Receiver(k2=[ERROR])
    counters = once(stream, place, receiver)
    (failure,) = failures(place)
    assert (failure["source"], failure["code"], failure["message"]) == (
        "gbase",
        "receiver",
        "because",
    )
    assert failure["event_id"] in failure["content"]
    assert "<add " in failure["content"]
    assert (counters.answers_success, counters.answers_error, counters.events_sent) == (2, 1, 3)
    again = Receiver()
    once(stream, place, again)
    assert again.heard == []


class Killed(BaseException):
    """Ends a run as a kill does: nothing is saved afterwards."""


def killed_at(text: str, stream: Stream, place: Path, receiver: Receiver, **options: Any) -> None:
    """Run a publisher that is killed when an event arrives."""
    receive = receiver.receive

    def until_then(body: bytes, events: Sequence[Event]) -> Answer:
        if text in [said(event) for event in events]:
            raise Killed
        return receive(body, events)

    receiver.receive = until_then  # type: ignore[method-assign]
    with suppress(Killed):
        once(stream, place, receiver, batch_size=1, mark_interval=1000, **options)


@pytest.mark.parametrize(
    ("answers", "options"),
    [([ERROR], {}), (3 * [RuntimeError("no")], {"max_attempts": 1, "isolate_after": 1})],
    ids=["refused", "given up"],
)
def test_what_is_not_sent_again_is_known_after_a_kill_within_its_transaction(
    stream: Stream, place: Path, answers: list[Level | Exception], options: dict[str, Any]
) -> None:
    work = stream.begin()
    for key in (1, 2):
        work.insert(ITEM, {"id": key, "name": "new"})
    work.update(ITEM, {"id": 1, "name": "new"}, {"id": 1, "name": "b"})
    work.update(ITEM, {"id": 1, "name": "b"}, {"id": 1, "name": "c"})
    work.commit()
    stream.write()
    first = Receiver(k1=answers)
    killed_at("modify 1 c", stream, place, first, **options)
    assert "modify 1 b" in first.heard
    again = Receiver()
    once(stream, place, again, batch_size=1)
    # The receiver may have applied the update of 1: its insert would undo that.
    assert "add 1 new" not in again.heard
    assert again.heard[-1] == "modify 1 c"
    assert len(failures(place)) == 1
    with position_at(place)() as position:
        assert position.entries() == {}


def test_fatal_stops_is_recorded_and_leaves_the_position_before_the_event(
    stream: Stream, place: Path
) -> None:
    stream.insert(1)
    stream.insert(2, 3)
    with pytest.raises(FatalAnswer, match="because"):
        once(stream, place, Receiver(k2=[FATAL]))
    (failure,) = failures(place)
    assert failure["message"] == "because"
    again = Receiver()
    once(stream, place, again)
    assert "add 2 new" in again.heard


@pytest.mark.parametrize("last", [SUCCESS, ERROR], ids=["accepted", "refused"])
def test_an_event_answered_fatal_at_each_start_has_one_failure_until_it_is_accepted(
    stream: Stream, place: Path, last: Level
) -> None:
    stream.insert(1, 2, 3)
    once(stream, place, Receiver(k1=[ERROR], k2=[SUCCESS], k3=[SUCCESS]))
    stream.insert(4, 5)
    for start in range(3):
        with pytest.raises(FatalAnswer):
            once(stream, place, Receiver(k4=[FATAL]), batch_size=1)
        assert len(failures(place)) == 2, start
    once(stream, place, Receiver(k4=[last]), batch_size=1)
    assert len(failures(place)) == (1 if last is SUCCESS else 2)
    stream.insert(6)
    once(stream, place, Receiver())
    assert len(failures(place)) == (1 if last is SUCCESS else 2)


def test_a_failure_is_settled_although_the_position_has_moved_since(
    stream: Stream, place: Path
) -> None:
    stream.insert(1)
    stream.insert(2)
    with pytest.raises(FatalAnswer):
        once(stream, place, Receiver(k1=[SUCCESS], k2=[FATAL]), batch_size=2)
    killed_at("add 2 new", stream, place, Receiver())
    once(stream, place, Receiver())
    assert failures(place) == []


def test_retry_parks_its_object_alone_and_nothing_of_it_overtakes(
    stream: Stream, place: Path
) -> None:
    receiver = Receiver(k1=[RETRY, RETRY])
    receiver.enough = lambda receiver: "modify 1 c" in receiver.heard
    stream.insert(1)
    stream.insert(2)
    stream.update(1, "new", "b")
    stream.update(1, "b", "c")
    stream.insert(3)
    follow(following(files(stream.path)), position_at(place), receiver.sink, receiver.stop)
    assert [one for one in receiver.heard if one.split()[1] == "1"] == [
        "add 1 new",
        "modify 1 b",
        "modify 1 c",
    ]
    assert receiver.heard.index("add 2 new") < receiver.heard.index("add 1 new")
    assert sum("add 1 new" in document_no for document_no in receiver.documents) == 3
    assert all(len(texts) == 1 for texts in receiver.meanings.values())
    again = Receiver()
    once(stream, place, again)
    assert again.heard == []


def test_a_parked_event_is_recorded_and_sent_first_at_the_next_start(
    stream: Stream, place: Path
) -> None:
    stream.insert(1)
    stream.insert(2)
    with pytest.raises(ReceiverUnavailable, match="1 object left"):
        once(stream, place, Receiver(k1=[RETRY]))
    stream.insert(3)
    again = Receiver()
    once(stream, place, again)
    assert again.documents == [["add 1 new"], ["add 3 new"]]


def test_retry_stops_everything_where_that_is_asked_for(stream: Stream, place: Path) -> None:
    receiver = Receiver(k1=[RETRY])
    receiver.enough = lambda receiver: len(receiver.heard) == 3
    stream.insert(1, 2)
    stream.insert(3)
    followed = following(files(stream.path), park=False, batch_size=2)
    follow(followed, position_at(place), receiver.sink, receiver.stop)
    assert receiver.documents == [["add 1 new", "add 2 new"], ["add 1 new"], ["add 3 new"]]


def test_a_general_retry_repeats_the_whole_document(stream: Stream, place: Path) -> None:
    class Grumpy(Receiver):
        def receive(self, body: bytes, events: Any) -> Answer:
            answer = super().receive(body, events)
            return Answer(general=EventResult(RETRY)) if len(self.documents) == 1 else answer

    receiver = Grumpy()
    receiver.enough = lambda receiver: len(receiver.documents) == 2
    stream.insert(1, 2)
    follow(following(files(stream.path)), position_at(place), receiver.sink, receiver.stop)
    assert receiver.documents == [["add 1 new", "add 2 new"]] * 2


def test_a_receiver_that_is_unavailable_is_waited_for(stream: Stream, place: Path) -> None:
    receiver = Receiver(k2=[ReceiverUnavailable("gone"), ReceiverUnavailable("gone")])
    receiver.enough = lambda receiver: "add 3 new" in receiver.heard
    stream.insert(1)
    stream.insert(2, 3)
    follow(
        following(files(stream.path), batch_size=1),
        position_at(place),
        receiver.sink,
        receiver.stop,
    )
    assert list(dict.fromkeys(receiver.heard)) == ["add 1 new", "add 2 new", "add 3 new"]


def test_a_document_that_fails_repeatedly_repeats_no_other(stream: Stream, place: Path) -> None:
    receiver = Receiver(k3=[ReceiverUnavailable("gone")] * 4)
    receiver.enough = lambda receiver: "add 4 new" in receiver.heard
    for key in range(1, 5):
        stream.insert(key)
    follow(
        following(files(stream.path), batch_size=1),
        position_at(place),
        receiver.sink,
        receiver.stop,
    )
    assert receiver.documents.count(["add 3 new"]) == 5
    assert receiver.documents.count(["add 1 new"]) == 1  # it is flushed before the pause


def test_once_ends_where_the_receiver_is_unavailable_and_the_next_run_goes_on(
    stream: Stream, place: Path
) -> None:
    for key in range(1, 4):
        stream.insert(key)
    with pytest.raises(ReceiverUnavailable, match="the rest of the source was not published"):
        once(stream, place, Receiver(k2=[ReceiverUnavailable("gone")]), batch_size=1)
    again = Receiver()
    once(stream, place, again)
    assert again.heard == ["add 1 new", "add 2 new", "add 3 new"]  # what one read gave has one mark


def test_answers_count_only_when_the_sink_has_flushed(stream: Stream, place: Path) -> None:
    class Forgetful(Receiver):
        flushes = 0

        def send(self, document: Document) -> Answer:
            return self.receive(document.body, document.events)

        def flush(self) -> dict[str, EventResult] | None:
            self.flushes += 1
            if self.flushes == 1:
                raise ReceiverUnavailable("lost")
            return {next(iter(self.meanings)): EventResult(ERROR, "late")}

        def close(self) -> None:
            pass

    receiver = Forgetful(k2=[ERROR, ERROR])
    receiver.enough = lambda receiver: len(receiver.documents) == 2
    stream.insert(1, 2)
    follow(following(files(stream.path)), position_at(place), lambda: receiver, receiver.stop)
    assert receiver.documents == [["add 1 new", "add 2 new"]] * 2
    assert sorted(failure["message"] for failure in failures(place)) == ["because", "late"]


def test_an_object_is_in_a_document_once(stream: Stream, place: Path) -> None:
    stream.insert(1, 2)
    stream.update(1, "new", "b")
    stream.insert(3)
    receiver = Receiver()
    once(stream, place, receiver)
    assert receiver.documents == [["add 1 new", "add 2 new"], ["modify 1 b", "add 3 new"]]


def test_all_other_objects_go_on_while_an_object_is_parked(stream: Stream, place: Path) -> None:
    for key in range(1, 50):
        stream.insert(key)
    receiver = Receiver(k1=[RETRY] * 1000)
    receiver.enough = lambda receiver: "add 49 new" in receiver.heard
    followed = following(files(stream.path), batch_size=2, query_limit=10)
    follow(followed, position_at(place), receiver.sink, receiver.stop)
    assert sorted(receiver.heard) == sorted(f"add {key} new" for key in range(2, 50))


def test_events_after_a_parked_one_of_their_object_are_bounded(stream: Stream, place: Path) -> None:
    stream.insert(1)
    for number in range(30):
        stream.update(1, str(number), str(number + 1))
    stream.insert(2)
    receiver = Receiver(k1=[RETRY] * 3)
    receiver.enough = lambda receiver: "modify 1 30" in receiver.heard
    followed = following(files(stream.path), batch_size=2, query_limit=10)
    follow(followed, position_at(place), receiver.sink, receiver.stop)
    assert receiver.heard.index("add 2 new") > 10
    own = [one for one in receiver.heard if one.split()[1] == "1"]
    assert own == ["add 1 new", *(f"modify 1 {number}" for number in range(1, 31))]


# --- changes that cannot be sent ------------------------------------------------------------------


def test_a_change_that_xds_cannot_hold_is_recorded_and_the_stream_goes_on(
    stream: Stream, place: Path
) -> None:
    work = stream.begin()
    work.insert(ITEM, {"id": 1, "name": "bell \x07"})
    work.truncate(ITEM)
    work.insert(ITEM, {"id": 2, "name": "x"})
    work.commit()
    stream.write()
    receiver = Receiver()
    counters = once(stream, place, receiver)
    assert receiver.heard == ["add 2 x"]
    bell, truncate = failures(place)
    assert bell["code"] == truncate["code"] == "not_expressible"
    assert json.loads(bell["content"])["after"]["name"] == "bell \x07"
    assert json.loads(truncate["content"])["op"] == "TRUNCATE"
    assert counters.rows_invalid == 2


@pytest.mark.promise("option gbase.reader.charset")
def test_a_row_that_cannot_be_read_is_recorded_and_the_stream_goes_on(
    stream: Stream, place: Path
) -> None:
    stream.insert(1)
    stream.insert(2, name="Ä")
    stream.insert(3)
    followed = following(
        files(stream.path, ReadOptions(labels={111: ITEM}, keys={"item": ["id"]}, charset="ascii"))
    )
    receiver = Receiver()
    follow(followed, position_at(place), receiver.sink, StopRequest(), once=True)
    assert receiver.heard == ["add 1 new", "add 3 new"]
    (failure,) = failures(place)
    assert (failure["code"], failure["content"]) == ("decode", None)
    assert len(failure["event_id"]) == 33


@pytest.mark.promise("code error-framing")
def test_a_stream_that_breaks_is_sent_as_far_as_it_can_be_read(stream: Stream, place: Path) -> None:
    stream.insert(1)
    with stream.path.open("ab") as file:
        file.write(b"\0" * 32)
    receiver = Receiver()
    with refused("framing"):
        once(stream, place, receiver)
    assert receiver.heard == ["add 1 new"]


# --- heartbeats -----------------------------------------------------------------------------------


@pytest.mark.promise("option publisher.heartbeat_interval")
def test_heartbeats_are_sent_while_nothing_comes_though_the_source_is_looked_at_seldom(
    stream: Stream, place: Path
) -> None:
    class Heart(Receiver):
        beats = 0

        def receive(self, body: bytes, events: Any) -> Answer:
            if events:
                return super().receive(body, events)
            assert body == OUTPUT.heartbeat
            self.beats += 1
            if self.beats == 3:
                self.stop.set()
            return Answer()

    stream.insert(1)
    receiver = Heart()
    followed = following(replace(files(stream.path), rest=3600.0), heartbeat_interval=0.02)
    follow(followed, position_at(place), receiver.sink, receiver.stop)
    assert (receiver.heard, receiver.beats, followed.counters.heartbeats_sent) == (
        ["add 1 new"],
        3,
        3,
    )


def test_a_heartbeat_that_is_answered_fatal_stops_and_one_that_is_not_answered_does_not(
    stream: Stream, place: Path
) -> None:
    answers: list[Any] = [ReceiverUnavailable("gone"), Answer(general=EventResult(FATAL, "enough"))]

    class Heart(Receiver):
        def receive(self, body: bytes, events: Any) -> Answer:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

    receiver = Heart()
    followed = following(files(stream.path), heartbeat_interval=0.01)
    with pytest.raises(FatalAnswer, match="enough"):
        follow(followed, position_at(place), receiver.sink, receiver.stop)
    assert answers == []


# --- several documents at once --------------------------------------------------------------------


class Crowd(Receiver):
    """Answers when so many documents are in the air; tells which objects were there beside one
    another.
    """

    def __init__(self, at_once: int, **answers: Any) -> None:
        super().__init__(**answers)
        self.barrier = threading.Barrier(at_once)
        self.lock = threading.Lock()

    def receive(self, body: bytes, events: Any) -> Answer:
        self.barrier.wait(PATIENCE)
        with self.lock:
            return super().receive(body, events)


@pytest.mark.promise("option publisher.concurrency")
def test_as_many_documents_are_in_the_air_as_are_asked_for(stream: Stream, place: Path) -> None:
    stream.insert(*range(1, 13))
    receiver = Crowd(3)
    once(stream, place, receiver, batch_size=2, concurrency=3)
    assert sorted(receiver.heard) == sorted(f"add {key} new" for key in range(1, 13))
    assert len(receiver.documents) == 6


def test_of_one_object_one_event_is_in_the_air(stream: Stream, place: Path) -> None:
    stream.insert(1, 2)
    values = ["new", *(f"v{number}" for number in range(20))]
    for before, after in pairwise(values):
        stream.update(1, before, after)
        stream.update(2, before, after)
    receiver = Crowd(1, k2=[RETRY, RETRY])
    receiver.enough = lambda receiver: len(receiver.heard) == 42
    follow(
        following(files(stream.path), batch_size=1, concurrency=4),
        position_at(place),
        receiver.sink,
        receiver.stop,
    )
    for key in "12":
        own = [one.split()[2] for one in receiver.heard if one.split()[1] == key]
        assert own == values
    assert all(len(texts) == 1 for texts in receiver.meanings.values())


@pytest.mark.parametrize("failure", [ReceiverUnavailable("gone"), RETRY, FATAL])
@pytest.mark.parametrize("park", [True, False])
def test_nothing_is_lost_whichever_of_several_documents_fails(
    stream: Stream, place: Path, failure: Any, park: bool
) -> None:
    stream.insert(*range(1, 9))
    expected = {f"add {key} new" for key in range(1, 9)}
    heard: set[str] = set()
    for key in (2, 4, 7):
        receiver = Receiver(**{f"k{key}": [failure]})
        with contextlib.suppress(ReceiverUnavailable, FatalAnswer):
            once(
                stream,
                place,
                receiver,
                batch_size=1,
                concurrency=4,
                park=park,
                retry_initial=60,
                retry_max=60,
            )
        heard |= set(receiver.heard)
        is_recorded = park and failure is RETRY
        # An event of the transaction has no answer yet.
        assert (saved_at(place).token["commit"] is None) is not is_recorded
    last = Receiver()
    once(stream, place, last)
    assert heard | set(last.heard) == expected
    assert saved_at(place).token["commit"] is not None


def test_the_position_stays_before_every_document_that_failed(stream: Stream, place: Path) -> None:
    """Each transaction has its own mark, by reading the file in small fragments."""
    for key in range(1, 41):
        stream.insert(key)

    class Slowly(StreamFiles):
        def steps(self, token: Any, *, once: bool) -> Any:
            reached: set[str] = set()
            for step in super().steps(token, once=once):
                yield step
                if isinstance(step, Read):
                    commit = step.event_id.partition(":")[0]
                    reached.add(commit)
                    yield Mark({"restart": commit, "commit": commit})

    source = Slowly(stream.path, OPTIONS, 0.01)
    for key in (4, 15, 23, 37):
        receiver = Receiver(
            **{
                f"k{key}": [ReceiverUnavailable("gone")],
                f"k{key + 1}": [ReceiverUnavailable("gone")],
            }
        )
        with pytest.raises(ReceiverUnavailable):
            follow(following(source, batch_size=1, concurrency=8, mark_interval=0),
                   position_at(place), receiver.sink, StopRequest(), once=True)  # fmt: skip
        again = Receiver()
        follow(
            following(source, batch_size=1),
            position_at(place),
            again.sink,
            StopRequest(),
            once=True,
        )
        assert {f"add {number} new" for number in range(key, 41)} <= {*receiver.heard, *again.heard}
        assert f"add {key} new" in again.heard
        place.unlink()
