"""A dump as annotated text."""

from __future__ import annotations

import json

import pytest
from documents import ROOT
from shared import refused

from eventlog.gbase.format import listing
from eventlog.gbase.options import ReadOptions
from eventlog.testing.gbase_emulator import Switches
from eventlog.testing.gbase_workload import LABELS, SCENARIOS, play

VECTORS = ROOT / "tests" / "conformance" / "vectors" / "gbase.json"
STREAM = bytes.fromhex(json.loads(VECTORS.read_text(encoding="utf-8"))["streams"][0]["hex"])


def test_the_stream_reads_like_an_annotated_listing() -> None:
    lines = list(listing([STREAM], ReadOptions(labels={111: "shop:app.t1"})))
    insert = lines.index("00000099  INSERT of app.t1  transaction 0000000b01746018")
    assert [" ".join(line.split()) for line in lines[insert + 1 : insert + 12]] == [
        "00000099 00000028 header size: 40",
        "0000009d 0000000F payload size: 15",
        "000000a1 00000042 packet scheme: 66",
        "000000a5 00000028 record number: 40 = INSERT",
        "000000a9 0000000B01746050 sequence: 0000000b01746050",
        "000000b1 00000027 transaction id: 39",
        "000000b5 0000006F label: 111 = app.t1",
        "000000b9 00000000 flags: 0",
        "000000bd 0B000000 size of c2: 11 bytes",
        "000000c1 0000000F c1 integer: 15",
        "000000c5 0009616263616263616263 c2 varchar(20,0): 'abcabcabc'",
    ]
    assert "00000071  BEGINTX  transaction 0000000b01746018 begins" in lines
    assert "000000d0  COMMTX  transaction 0000000b01746018 is committed" in lines
    assert lines[-1] == "000000f4  end of the stream, 0 transactions open"


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_byte_of_a_stream_is_listed_once(name: str) -> None:
    data = play(name, Switches(extra_header=3))
    at = 0
    for line in listing([data], ReadOptions(labels=LABELS)):
        if line.startswith("  0"):
            offset, shown = line.split()[:2]
            assert int(offset, 16) == at or line.endswith("...")
            size = len(shown.rstrip(".")) // 2
            at = int(offset, 16) + size
            if shown.endswith("..."):
                at = next_offset(data, at, list(listing([data], ReadOptions(labels=LABELS))))
    assert at == len(data)


def next_offset(data: bytes, at: int, lines: list[str]) -> int:
    offsets = [int(line.split()[0], 16) for line in lines if line.startswith("  0")]
    return min((offset for offset in offsets if offset >= at), default=len(data))


def lines_until_error(data: bytes, code: str) -> list[str]:
    coming, lines = listing([data]), list[str]()
    with refused(code):
        lines.extend(iter(lambda: next(coming), None))
    return lines


def test_what_cannot_be_read_is_reported_where_it_stands_and_raised() -> None:
    assert lines_until_error(STREAM[:130], "truncated_stream")[-1].startswith(
        "00000071  !! truncated_stream: the stream ends inside the record at offset 113"
    )
    broken = bytearray(STREAM)
    broken[0xA0] = 14  # the payload of the INSERT, one byte less
    assert lines_until_error(bytes(broken), "row_length")[-1].startswith("00000099  !! row_length")
