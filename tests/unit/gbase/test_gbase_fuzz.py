"""Truncated, bit-flipped and random streams: a clear error or a clean skip, nothing else (issue 7,
6).
"""

from __future__ import annotations

import contextlib
import json
import random
import tracemalloc
from pathlib import Path

import pytest
from fuzzing import CASES, OF_A_FILE, damaged, run
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import examples

from eventlog.changes.json_form import to_json
from eventlog.errors import FormatError
from eventlog.gbase import records
from eventlog.gbase.format import listing
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.records import HEADER_SIZES
from eventlog.model import Change
from eventlog.testing.gbase_workload import SCENARIOS, play, stream

STREAMS = [play(name) for name in SCENARIOS] + [b"".join(stream(seed, 20_000)) for seed in range(3)]
LIMITS = ReadOptions(max_record=1 << 16, max_open_bytes=1 << 16)


def read(data: bytes, fragment: int = 1 << 16) -> list[Change]:
    """The changes before the first error; an error that is not a FormatError fails the test."""
    reader = StreamReader(LIMITS)
    changes = []
    with contextlib.closing(reader), contextlib.suppress(FormatError):
        for at in range(0, len(data), fragment):
            for change in reader.feed(data[at : at + fragment]):
                changes.append(change)  # noqa: PERF402, RUF100
        reader.finish()
    return changes


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(range(len(STREAMS))), st.integers(0), st.integers(1, 300))
def test_a_truncated_stream_gives_the_changes_in_front_of_the_cut(
    number: int, cut: int, fragment: int
) -> None:
    data = STREAMS[number]
    whole = read(data)
    found = read(data[: cut % (len(data) + 1)], fragment)
    assert found == whole[: len(found)]


@settings(max_examples=examples(500), deadline=None)
@given(
    st.sampled_from(range(len(STREAMS))),
    st.lists(st.tuples(st.integers(0), st.integers(0, 7)), min_size=1, max_size=9),
)
def test_flipped_bits_give_an_error_or_other_changes(
    number: int, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(STREAMS[number])
    for place, bit in flips:
        data[place % len(data)] ^= 1 << bit
    read(bytes(data))


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_no_stream(data: bytes) -> None:
    read(data)


@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([*HEADER_SIZES, 99]), st.integers(0, 12), st.binary(max_size=60)),
        max_size=12,
    ),
    st.text(alphabet='abc ,()"0123456789', max_size=30)
    | st.sampled_from(
        ["a integer", "a integer, b varchar(9,0)", "d decimal(9,3), t datetime day to fraction(2)"]
    ),
)
def test_records_of_random_content_are_an_error_or_skipped(
    made: list[tuple[int, int, bytes]], columns: str
) -> None:
    schem = records.tab_schem(
        0, columns, 0, columns.count(",") + 1 - columns.count("var"), columns.count("var")
    )
    data = schem + records.control(records.BEGINTX, 1, 0, 0, 0)
    for number, more, content in made:
        size = HEADER_SIZES.get(number, 16) + more
        body = bytes(8) + bytes(byte % 3 for byte in content[:12]) + content[12:]
        payload = max(0, len(body) - size + 16)
        data += records.HEADER.pack(size, payload, 66, number) + body.ljust(
            size - 16 + payload, b"\0"
        )
    read(data + records.control(records.COMMTX, 2, 0, 0))


@pytest.mark.parametrize("cases", CASES)
def test_damaged_bytes_give_an_error_or_other_changes_in_time(tmp_path: Path, cases: int) -> None:
    path, short = tmp_path / "damaged.cdc", sorted(STREAMS, key=len)[:-3]

    def reading(_rnd: random.Random) -> int:
        for change in read(path.read_bytes()):
            json.dumps(to_json(change))
        return 0

    run(cases * OF_A_FILE, path, lambda rnd: damaged(rnd, rnd.choice(short)), reading, least=0)


@pytest.mark.parametrize("seed", range(40))
def test_a_listing_of_a_broken_stream_ends_with_its_error(seed: int) -> None:
    rnd = random.Random(seed)
    data = bytearray(STREAMS[seed % len(STREAMS)])
    for _ in range(3):
        data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)
    lines = []
    with contextlib.suppress(FormatError):
        for line in listing([bytes(data)], LIMITS):
            lines.append(line)  # noqa: PERF402, RUF100
    assert "end of the stream" in lines[-1] or "!!" in lines[-1]


def test_memory_stays_below_the_limits_whatever_comes() -> None:
    rnd = random.Random(1)
    flood = [records.control(records.BEGINTX, number, number, 0, 0) for number in range(1, 200)]
    row = records.with_extra_header(records.control(records.TRUNCATE, 5, 0, 1), 500)
    tracemalloc.start()
    try:
        reader = StreamReader(LIMITS)
        with contextlib.closing(reader):
            for begin in flood:
                list(reader.feed(begin))
            for number in range(24_000):
                tx = rnd.randrange(1, 200).to_bytes(4, "big")
                list(reader.feed(row[:16] + number.to_bytes(8, "big") + tx + row[28:]))
            held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < 3 << 20  # of 12 MB that are open
