"""Following a source that is not a log: how a source is read, and what is kept of its position."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from followed_stream import (
    ITEM,
    OUTPUT,
    Receiver,
    Stream,
    files,
    following,
    once,
    position_at,
    running,
    saved_at,
    token_at_open,
)
from shared import wait_until

from eventlog.core.values import ValueOptions
from eventlog.errors import PublisherAlreadyRunning
from eventlog.model import Change, ChangeOp
from eventlog.publisher.context.context import Counters, PublisherOptions
from eventlog.publisher.context.observer import SILENT
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.stream import Failure, Mark, Read, SourceUnavailable
from eventlog.publisher.stream.follow import follow
from eventlog.publisher.stream.output import StreamOutput
from eventlog.publisher.stream.pending_event import ReadPosition
from eventlog.publisher.stream.position import Saved
from eventlog.publisher.stream.source_feed import SourceFeed


def test_a_file_is_followed_while_it_grows_and_ends_cleanly(stream: Stream, place: Path) -> None:
    receiver = Receiver()
    with running(following(files(stream.path)), position_at(place), receiver):
        for key in range(1, 6):
            stream.insert(key)
            wait_until(lambda: len(receiver.heard) == key)  # noqa: B023
        long = stream.begin()
        long.insert(ITEM, {"id": 6, "name": "open"})
        stream.insert(7)
        wait_until(lambda: len(receiver.heard) == 6)
    long.commit()
    stream.write()
    again = Receiver()
    once(stream, place, again)
    assert again.heard == ["add 6 open"]


def test_files_of_a_directory_continue_one_another(tmp_path: Path, place: Path) -> None:
    (tmp_path / "streams").mkdir()
    stream = Stream(tmp_path / "whole.cdc")
    for key in range(1, 21):
        stream.insert(key)
    data = stream.path.read_bytes()
    receiver = Receiver()
    with running(following(files(tmp_path / "streams")), position_at(place), receiver):
        for number, start in enumerate(range(0, len(data), 333)):
            (tmp_path / "streams" / f"{number:03}.cdc").write_bytes(data[start : start + 333])
        wait_until(lambda: len(receiver.heard) == 20)
    assert receiver.heard == [f"add {key} new" for key in range(1, 21)]


def test_a_position_belongs_to_one_publisher_and_to_one_source(place: Path) -> None:
    with position_at(place)() as position:
        position.save(Saved({"restart": None, "commit": None}, 1))
        with pytest.raises(PublisherAlreadyRunning), position_at(place)():
            pass
    assert saved_at(place, "linter") == Saved()


def test_a_standby_takes_over_a_position_when_its_publisher_ends(
    stream: Stream, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    receiver = Receiver()
    stream.insert(1)
    with ExitStack() as stack:
        with position_at(place)():
            followed = following(files(stream.path))
            stack.enter_context(running(followed, position_at(place), receiver, standby=True))
            wait_until(lambda: "waiting as its standby" in caplog.text)
            assert receiver.heard == []
        wait_until(lambda: receiver.heard == ["add 1 new"])


def test_the_position_does_not_go_back_while_a_stream_is_read_again(
    tmp_path: Path, place: Path
) -> None:
    stream = Stream(tmp_path / "capture.cdc")
    for key in range(2000):  # more than one fragment of the file
        stream.insert(key)
    once(stream, place, Receiver())
    token = {
        name: saved_at(place).token[name] for name in ("restart", "commit")
    }  # which files it was read of is lost
    marks = [
        step.token for step in files(stream.path).steps(token, once=True) if isinstance(step, Mark)
    ]
    assert len(marks) > 2
    assert {mark["commit"] for mark in marks if mark is not None} == {token["commit"]}
    assert marks[:-1] == [None] * (len(marks) - 1)


def test_no_delivery_number_is_used_twice(stream: Stream, place: Path) -> None:
    seen: list[int] = []
    for key in range(3):
        stream.insert(key)
        once(stream, place, Receiver())
        seen.append(saved_at(place).delivery_no)
    assert seen == sorted(set(seen))


class Flaky:
    """A source that fails after every second change, and can be read again from a mark."""

    def __init__(self, changes: list[Change]) -> None:
        self.changes, self.openings = changes, 0

    def steps(self, token: Any, *, once: bool) -> Any:
        self.openings += 1
        for number in range(token or 0, len(self.changes)):
            yield Read(self.changes[number], str(number))
            if number == (token or 0) + 1:
                yield Mark(number, is_idle=True)
                raise SourceUnavailable("the line is cut")
        yield Failure("end", "bad", "nothing")
        yield Mark(len(self.changes), is_idle=True)


def test_a_source_that_fails_is_opened_again_at_its_position(place: Path) -> None:
    changes = [
        Change("s", "t", ChangeOp.INSERT, (("id", n),), None, {"id": n, "name": "x"})
        for n in range(6)
    ]
    source, receiver = Flaky(changes), Receiver()
    receiver.enough = lambda receiver: "add 5 x" in receiver.heard
    follow(following(source), position_at(place), receiver.sink, receiver.stop)
    assert list(dict.fromkeys(receiver.heard)) == [f"add {n} x" for n in range(6)]
    assert source.openings > 2
    with pytest.raises(SourceUnavailable):
        follow(
            following(source),
            position_at(place.with_name("other")),
            Receiver().sink,
            StopRequest(),
            once=True,
        )


def test_the_first_mark_is_kept_before_anything_is_sent(place: Path) -> None:
    changes = [Change("s", "t", ChangeOp.INSERT, (("id", 1),), None, {"id": 1})]

    class Now(Flaky):
        def steps(self, token: Any, *, once: bool) -> Any:
            yield Mark("here")
            assert token_at_open(place) == "here"
            yield Read(self.changes[0], "1")
            yield Mark("there", is_idle=True)

    follow(following(Now(changes)), position_at(place), Receiver().sink, StopRequest(), once=True)
    assert saved_at(place).token == "there"


class Counted(int):
    """The number of an event, which counts how often numbers are compared."""

    compared = 0

    def __add__(self, more: int) -> Counted:
        return Counted(int(self) + more)

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        return not Counted(other) < self

    def __gt__(self, other: int) -> bool:
        return Counted(other) < self

    def __ge__(self, other: int) -> bool:
        return not self < other


def test_a_save_compares_as_many_events_however_many_have_no_answer(place: Path) -> None:
    """Two documents, or two hundred."""
    change = Change(None, "item", ChangeOp.INSERT, after={"id": 1})
    counted = []
    for events in (20, 2000):
        options, receiver = PublisherOptions(batch_size=10), Receiver()
        with position_at(place)() as position:
            output = StreamOutput(OUTPUT, None, ValueOptions())
            feed = SourceFeed(position, receiver.sink(), output, options, Counters(), SILENT)
            feed.next_number = Counted(0)
            for key in range(events):
                feed.add(f"e{key}", ((None, "item", (("id", key),)),), change, "")
            feed.mark(ReadPosition("after all"))
            feed.pack(everything=True)
            assert feed.size == events
            Counted.compared = 0
            assert feed.is_saved()
            feed.save()
            counted.append(Counted.compared)
    assert counted[0] == counted[1], counted
