"""Bytes to records: any cut, stale buffers, what is not a record (formats/gbase-cdc.md 2)."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from documents import ROOT
from hypothesis import given
from hypothesis import strategies as st
from shared import refused

from eventlog.gbase import records
from eventlog.gbase.records import RECORD_NAMES, Frame, Framer

VECTORS = ROOT / "tests" / "conformance" / "vectors" / "gbase.json"
STREAM = bytes.fromhex(json.loads(VECTORS.read_text(encoding="utf-8"))["streams"][0]["hex"])
READS = (65, 24, 24, 40, 55, 36)


def frames(data: bytes, size: int, framer: Framer | None = None) -> list[Frame]:
    framer = framer or Framer()
    return [
        frame for at in range(0, len(data), size) for frame in framer.feed(data[at : at + size])
    ]


@pytest.mark.parametrize("size", [1, 7, 244])
def test_the_stream_in_fragments_is_the_same_six_records(size: int) -> None:
    found = frames(STREAM, size)
    assert [RECORD_NAMES[number] for _, number, _, _ in found] == [
        "TABSCHEM", "TIMEOUT", "TIMEOUT", "BEGINTX", "INSERT", "COMMTX",
    ]  # fmt: skip
    assert tuple(len(record) for *_, record in found) == READS
    assert [offset for offset, *_ in found] == [0, 65, 89, 113, 153, 208]


def test_what_lies_after_the_bytes_read_is_ignored() -> None:
    framer, buffer, at, found = Framer(), bytearray(68), 0, []
    for size in READS:  # one buffer, used repeatedly, as in the stream
        buffer[:size] = STREAM[at : at + size]
        at += size
        found += framer.feed(memoryview(buffer)[:size])
    assert found == frames(STREAM, 244)


def test_a_stream_cut_at_every_offset_gives_its_complete_records_and_goes_on() -> None:
    whole = frames(STREAM, 244)
    for cut in range(len(STREAM) + 1):
        framer = Framer()
        first = list(framer.feed(STREAM[:cut]))
        assert first == [frame for frame in whole if frame[0] + len(frame[3]) <= cut]
        assert first + list(framer.feed(STREAM[cut:])) == whole
        framer.finish()


def test_the_declared_end_inside_a_record_names_the_bytes_left() -> None:
    framer = Framer()
    assert len(list(framer.feed(STREAM[:130]))) == 4 - 1
    with refused("truncated_stream") as caught:
        framer.finish()
    assert caught.value.offset == 113
    assert "after 17 bytes of it" in str(caught.value)


@pytest.mark.parametrize(
    ("place", "number"),
    [(0, 15), (0, 23), (8, 67), (4, 1 << 20), (4, 0xFFFFFFFF), (0, 0xFFFFFFFF)],
)
def test_what_is_no_record_names_the_offset_after_the_records_before_it(
    place: int, number: int
) -> None:
    bad = bytearray(records.control(records.TIMEOUT, 0))
    bad[place : place + 4] = number.to_bytes(4, "big")
    coming = Framer().feed(STREAM + bad)
    assert [next(coming)[0] for _ in READS] == [0, 65, 89, 113, 153, 208]
    with refused("framing") as caught:
        next(coming)
    assert caught.value.offset == len(STREAM)


def test_a_header_is_refused_before_its_payload_is_waited_for() -> None:
    head = records.HEADER.pack(36, 1 << 20, 66, 200)
    with refused("framing", match="above max_record"):
        list(Framer().feed(head))
    assert list(Framer(2 << 20).feed(head)) == []


def test_records_not_taken_come_with_the_next_feed() -> None:
    framer = Framer()
    assert next(framer.feed(STREAM)) == frames(STREAM, 244)[0]
    assert list(framer.feed(b"")) == frames(STREAM, 244)[1:]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_any_cut_gives_the_same_records(cuts: list[int]) -> None:
    framer, found, ends = Framer(), [], sorted({0, *cuts, len(STREAM)})
    for begin, end in pairwise(ends):
        found += framer.feed(STREAM[begin:end])
    framer.finish()
    assert found == frames(STREAM, 244)


def test_a_large_record_byte_by_byte_takes_no_more_than_its_size() -> None:
    record = records.with_extra_header(records.control(records.TIMEOUT, 1), 200_000)
    assert [len(data) for *_, data in frames(record, 1)] == [len(record)]
