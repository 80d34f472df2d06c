"""A stream in files: a start reads from the oldest transaction that was open at the position, and
from no other bytes than those that were there.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from followed_stream import (
    ITEM,
    OPTIONS,
    Receiver,
    Stream,
    files,
    following,
    forget_files,
    position_at,
    running,
    saved_at,
)
from shared import refused, wait_until

from eventlog.errors import ConfigError
from eventlog.gbase.records import Framer
from eventlog.gbase.session import SessionDead
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.stream import Mark, Read, SourceLost
from eventlog.publisher.stream.follow import follow
from eventlog.publisher.stream.stream_files import FilesPosition, StreamFiles
from eventlog.testing.gbase_emulator import Switches


def once(path: Path, place: Path) -> list[str]:
    receiver = Receiver()
    follow(following(files(path)), position_at(place), receiver.sink, StopRequest(), once=True)
    return receiver.heard


def restart_of(place: Path) -> tuple[str, int]:
    restart = saved_at(place).token["capture"]["restart"]
    return restart["file"], restart["offset"]


# --- what is read again ---------------------------------------------------------------------------


def test_a_start_reads_nothing_again_where_no_transaction_was_open(
    stream: Stream, place: Path
) -> None:
    for key in range(1, 2000):
        stream.insert(key)
    once(stream.path, place)
    assert restart_of(place) == ("capture.cdc", stream.path.stat().st_size)
    # What lies before, and is not compared with, may be anything: it is not read.
    with stream.path.open("r+b") as file:
        file.write(bytes(1 << 16))
    stream.insert(2000)
    assert once(stream.path, place) == ["add 2000 new"]


def test_a_start_reads_from_the_oldest_transaction_that_was_open(
    stream: Stream, place: Path
) -> None:
    stream.insert(1)
    begin = stream.path.stat().st_size
    long = stream.begin()
    long.insert(ITEM, {"id": 100, "name": "long"})
    short = stream.begin()
    for key in range(2, 500):
        stream.insert(key)
    once(stream.path, place)
    assert restart_of(place) == ("capture.cdc", begin)
    short.insert(ITEM, {"id": 600, "name": "short"})
    short.commit()
    long.insert(ITEM, {"id": 101, "name": "long"})
    stream.write()
    assert once(stream.path, place) == ["add 600 short"]
    long.commit()
    stream.write()
    assert once(stream.path, place) == ["add 100 long", "add 101 long"]


def test_a_rolled_back_transaction_does_not_hold_the_position(stream: Stream, place: Path) -> None:
    stream.insert(1)
    work = stream.begin()
    work.insert(ITEM, {"id": 2, "name": "never"})
    stream.insert(3)
    once(stream.path, place)
    held = restart_of(place)
    work.rollback()
    stream.insert(4)
    assert once(stream.path, place) == ["add 4 new"]
    assert restart_of(place) > held
    assert restart_of(place)[1] == stream.path.stat().st_size


def test_the_tables_are_known_though_they_are_described_before_the_position(
    tmp_path: Path, place: Path
) -> None:
    stream = Stream(tmp_path / "capture.cdc", Switches(size_order="big"))
    stream.insert(1)
    once(stream.path, place)
    assert saved_at(place).token["capture"]["size_order"] == "big"
    stream.update(1, "new", "other")
    assert once(stream.path, place) == ["modify 1 other"]


def test_a_table_that_is_described_again_is_read_as_it_was_at_the_position(
    stream: Stream, place: Path
) -> None:
    open_work = stream.begin()
    open_work.insert(ITEM, {"id": 1, "name": "old"})
    stream.insert(2)
    once(stream.path, place)
    described = next(
        data for _, number, _, data in Framer().feed(stream.path.read_bytes()) if number == 200
    )
    wider = described.replace(b"id integer, name varchar(20,0)", b"id integer, name varchar(30,0)")
    with stream.path.open("ab") as file:
        file.write(wider)
    open_work.commit()
    stream.insert(3)
    assert once(stream.path, place) == ["add 1 old", "add 3 new"]
    tables = FilesPosition.of(saved_at(place).token["capture"]).tables
    assert [record for _, _, _, record in Framer().feed(tables)] == [wider]


def test_a_stream_of_idle_marks_does_not_write_the_position_at_each_look(stream: Stream) -> None:
    stream.insert(1)
    idle = struct.pack(">IIIIQ", 24, 0, 66, 201, 0)
    steps = files(stream.path).steps(None, once=False)
    marks: list[Any] = []
    for step in steps:
        if isinstance(step, Mark):
            marks.append(step.token)
        if len(marks) < 100:
            with stream.path.open("ab") as file:
                file.write(idle)
        else:
            break
    steps.close()
    assert (
        sum(mark is not None for mark in marks) <= 2
    )  # that of the first transaction, and that after it


def test_any_cut_of_a_stream_at_any_place_gives_each_change_once_or_again_and_none_less(
    tmp_path: Path,
) -> None:
    chosen = random.Random(7)
    stream = Stream(tmp_path / "whole.cdc")
    held: list[Any] = []
    for key in range(1, 120):
        work = stream.begin()
        work.insert(ITEM, {"id": key, "name": f"n{key}"})
        held.append(work)
        while held and chosen.random() < 0.6:
            ended = held.pop(chosen.randrange(len(held)))
            (ended.rollback if chosen.random() < 0.2 else ended.commit)()
    for work in held:
        work.commit()
    stream.write()
    data = stream.path.read_bytes()
    whole = [
        step.event_id
        for step in files(stream.path).steps(None, once=True)
        if isinstance(step, Read)
    ]
    for number in range(40):
        directory = tmp_path / f"streams{number}"
        directory.mkdir()
        cuts = sorted(chosen.sample(range(len(data)), 6))
        token, read = None, []
        # Each file is followed by its own process, which takes away what lies before its position.
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            (directory / f"{start:08}.cdc").write_bytes(data[start:end])
            for step in files(directory).steps(token, once=True):
                if isinstance(step, Read):
                    read.append(step.event_id)
                elif isinstance(step, Mark) and step.token is not None:
                    token = step.token
            for path in directory.iterdir():
                if token and "capture" in token and path.name < token["capture"]["restart"]["file"]:
                    path.unlink()
        assert read == whole


# --- what is not there any more -------------------------------------------------------------------


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def replaced(path: Path) -> None:
    """By one that begins with the same description of the tables, and is longer."""
    other = Stream(path.with_name("other.cdc"), Switches(log_start=99))
    for key in range(500, 600):
        other.insert(key)
    other.path.replace(path)


def removed(path: Path) -> None:
    path.unlink()


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (truncated, "bytes, and"),
    (replaced, "differ from"),
    (removed, "it is not there"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_capture_that_is_another_one_at_a_start_is_refused(
    stream: Stream, place: Path, damage: Callable[[Path], None], message: str
) -> None:
    long = stream.begin()
    long.insert(ITEM, {"id": 100, "name": "long"})
    for key in range(1, 20):
        stream.insert(key)
    once(stream.path, place)
    before = saved_at(place).token
    damage(stream.path)
    with pytest.raises(SourceLost, match=message) as error:
        once(stream.path, place)
    assert "Put that file back" in str(error.value)
    assert saved_at(place).token == before


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_capture_that_becomes_another_one_while_it_is_followed_stops(
    stream: Stream, place: Path, damage: Callable[[Path], None], message: str
) -> None:
    for key in range(1, 20):
        stream.insert(key)
    receiver = Receiver()

    def heard_all(heard: Receiver) -> bool:
        if len(heard.heard) == 19:
            damage(stream.path)
        return False

    receiver.enough = heard_all
    with pytest.raises(SourceLost, match=message):
        follow(following(files(stream.path)), position_at(place), receiver.sink, receiver.stop)
    assert saved_at(place).token["capture"]["read"]["offset"] > 0


def test_a_capture_that_is_copied_again_and_longer_goes_on(stream: Stream, place: Path) -> None:
    stream.insert(1)
    receiver = Receiver()
    with running(following(files(stream.path)), position_at(place), receiver):
        wait_for(receiver, 1)
        copy = stream.path.with_name("copy")
        copy.write_bytes(stream.path.read_bytes())
        copy.replace(stream.path)
        stream.insert(2)
        wait_for(receiver, 2)
    assert receiver.heard == ["add 1 new", "add 2 new"]


def wait_for(receiver: Receiver, count: int) -> None:
    wait_until(lambda: len(receiver.heard) >= count, f"{count} documents have come")


def test_a_directory_whose_file_at_the_position_is_gone_is_refused(
    tmp_path: Path, place: Path
) -> None:
    (tmp_path / "streams").mkdir()
    stream = Stream(tmp_path / "streams" / "1.cdc")
    stream.insert(1)
    once(tmp_path / "streams", place)
    (tmp_path / "streams" / "1.cdc").rename(tmp_path / "streams" / "2.cdc")
    with pytest.raises(SourceLost, match=r"1\.cdc is not the file"):
        once(tmp_path / "streams", place)


def test_a_file_that_an_open_transaction_is_still_to_be_read_from_is_missed(
    tmp_path: Path, place: Path
) -> None:
    streams = tmp_path / "streams"
    streams.mkdir()
    stream = Stream(tmp_path / "whole.cdc")
    open_work = stream.begin()
    for number in (1, 2, 3, 4):
        begin = stream.path.stat().st_size if number > 1 else 0
        open_work.insert(ITEM, {"id": number, "name": "open"})
        stream.insert(number + 10)
        (streams / f"{number}.cdc").write_bytes(stream.path.read_bytes()[begin:])
    once(streams, place)
    assert restart_of(place)[0] == "1.cdc"
    taken = (streams / "2.cdc").rename(tmp_path / "taken.cdc")
    with pytest.raises(SourceLost, match=r"2\.cdc is not the file .* it is not there"):
        once(streams, place)
    taken.rename(streams / "2.cdc")
    size = stream.path.stat().st_size
    open_work.commit()
    stream.write()
    (streams / "5.cdc").write_bytes(stream.path.read_bytes()[size:])
    assert once(streams, place) == [f"add {number} open" for number in (1, 2, 3, 4)]


def test_files_of_a_directory_continue_one_another_by_their_numbers(
    tmp_path: Path, place: Path
) -> None:
    stream = Stream(tmp_path / "whole.cdc")
    borders = [0]
    for key in range(1, 13):
        stream.insert(key)
        borders.append(stream.path.stat().st_size)
    data = stream.path.read_bytes()
    streams = tmp_path / "streams"
    streams.mkdir()
    for number, (begin, end) in enumerate(pairwise(borders), 1):
        (streams / f"{number}.cdc").write_bytes(data[begin:end])
        if number == 9:
            assert once(streams, place) == [f"add {key} new" for key in range(1, 10)]
    (streams / "_SUCCESS").touch()
    assert once(streams, place) == [f"add {key} new" for key in range(10, 13)]


def test_a_capture_taken_again_from_the_restart_is_read_without_the_old_files(
    stream: Stream, place: Path, tmp_path: Path
) -> None:
    stream.insert(1)
    once(stream.path, place)
    stream.insert(2)
    forget_files(place)  # as the message specifies
    stream.path.rename(tmp_path / "again.cdc")
    assert once(tmp_path / "again.cdc", place) == ["add 2 new"]


def test_a_capture_under_another_name_is_known_again_by_what_was_read(
    stream: Stream, place: Path, tmp_path: Path
) -> None:
    stream.insert(1)
    once(stream.path, place)
    size = stream.path.stat().st_size
    stream.insert(2)
    renamed = tmp_path / "z.cdc"
    stream.path.rename(renamed)
    assert files(renamed).backlog(saved_at(place).token).number == renamed.stat().st_size - size
    assert once(renamed, place) == ["add 2 new"]


def test_bytes_that_are_no_record_are_reported_with_their_file_and_place(
    tmp_path: Path, place: Path
) -> None:
    (tmp_path / "streams").mkdir()
    stream = Stream(tmp_path / "streams" / "1.cdc")
    stream.insert(1)
    once(tmp_path / "streams", place)
    stream.insert(2)
    (tmp_path / "streams" / "2.cdc").write_bytes(bytes(32))
    with refused("framing", match=r"^byte 0 of 2\.cdc: "):
        once(tmp_path / "streams", place)


def test_a_stream_that_breaks_is_sent_once_up_to_there_however_often_it_is_begun(
    stream: Stream, place: Path
) -> None:
    open_work = stream.begin()
    open_work.insert(ITEM, {"id": 9, "name": "open"})
    stream.insert(1, 2)
    whole = stream.path.read_bytes()
    stream.insert(3)
    with stream.path.open("ab") as file:
        file.write(bytes(32))
    heard: list[str] = []
    for _ in range(3):
        receiver = Receiver()
        with refused("framing"):
            follow(
                following(files(stream.path)),
                position_at(place),
                receiver.sink,
                StopRequest(),
                once=True,
            )
        heard += receiver.heard
    assert heard == ["add 1 new", "add 2 new", "add 3 new"]
    # Fixed, it goes on, and what was open is there.
    stream.path.write_bytes(whole)
    open_work.commit()
    stream.write()
    assert once(stream.path, place) == ["add 9 open"]


@pytest.mark.parametrize("name", ["1.cdc", "2.cdc"])
def test_a_stream_that_breaks_directly_after_its_position_is_reported_at_each_start(
    tmp_path: Path, place: Path, name: str
) -> None:
    streams = tmp_path / "streams"
    streams.mkdir()
    stream = Stream(streams / "1.cdc")
    stream.insert(1)
    once(streams, place)
    stream.insert(2)
    later = stream.path.stat().st_size
    stream.insert(3)
    data = stream.path.read_bytes()
    if name == "1.cdc":
        stream.path.write_bytes(data + bytes(32))
    else:
        stream.path.write_bytes(data[:later])
        (streams / name).write_bytes(data[later:] + bytes(32))
    heard: list[str] = []
    for _ in range(3):
        receiver = Receiver()
        with refused("framing", match=rf" of {name}: "):
            follow(
                following(files(streams)),
                position_at(place),
                receiver.sink,
                StopRequest(),
                once=True,
            )
        heard += receiver.heard
    assert heard == ["add 2 new", "add 3 new"]


def test_a_session_that_has_died_in_a_capture_is_gone_on_with_in_another_one(
    tmp_path: Path, place: Path
) -> None:
    streams = tmp_path / "streams"
    streams.mkdir()
    stream = Stream(streams / "1.cdc")
    stream.insert(1)
    with stream.path.open("ab") as file:
        file.write(struct.pack(">IIIIIi", 24, 0, 66, 202, 1, -83713))
    with pytest.raises(SessionDead):
        once(streams, place)
    again = Stream(streams / "2.cdc")  # activated at the restart: it brings what was answered again
    again.insert(1)
    again.insert(2)
    with pytest.raises(SessionDead):
        once(streams, place)
    stream.path.unlink()  # as docs/formats/convert.md says
    forget_files(place)
    assert once(streams, place) == ["add 2 new"]


@pytest.mark.parametrize(
    "damage", [{"restart": {}}, {"tables": "?"}, {"tables": "AAAA"}, {"read": None}]
)
def test_an_invalid_place_is_reported(stream: Stream, damage: dict[str, Any]) -> None:
    stream.insert(1)
    *_, last = files(stream.path).steps(None, once=True)
    assert isinstance(last, Mark)
    token = {**last.token, "capture": {**last.token["capture"], **damage}}
    with pytest.raises(ConfigError, match="names no place"):
        next(StreamFiles(stream.path, OPTIONS, 0.01).steps(token, once=True))
